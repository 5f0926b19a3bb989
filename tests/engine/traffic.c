/* traffic.c - the scheduler under traffic: the engine over a model that computes
 * nothing, driven by hand under a clock that each step moves by what it would
 * cost.  Seconds of it are a day.
 *
 *     traffic             the test: properties that must hold
 *     traffic --table     the figures of bench/notes/scheduling.md
 *
 * All is a function of SEED. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "cache/kinds.h"
#include "lives.h"
#include "model/model.h"
#include "toy.h"

enum { SEED = 20, CTX = 20000, SLOTS = 16, GAP_MS = 100, EOS = 7, N_SHORT = 200 };
static const double S = 1e9;

/* What a step costs, within a twentieth: as on a machine that computes 1000 prompt
 * tokens per second and 28 single decode steps. */
static const double BASE = 35e-3, DECODE_ROW = 0.6e-3, PROMPT_ROW = 1e-3, ROW_AHEAD = 40e-9;

enum kind { CHAT, LONG, HOG, N_KIND };
static const char *const kind_name[] = { "short", "long", "of the greedy" };

struct asked {
	enum kind kind;
	struct request *req;
	int n_prompt;
	int64_t born, first, last, worst_gap, cancel_at;
	bool queued;        /* in the list of those with events */
	struct asked *next; /* there */
};

struct sample {
	double *v;
	int n, cap;
};

struct world {
	struct clock clock;
	int64_t now;
	struct model *m;
	struct engine *e;
	uint64_t dice, tokens, words;
	double answer_mean;
	struct asked *told;           /* who have events */
	struct asked *canceller[256]; /* who will leave */
	int n_canceller, live;
	bool print;

	bool kept;    /* prefixes are: prompts differ, and states are kept on the way */
	bool bounded; /* nobody short waits for a slot, or for others as short */
	struct sample ttft[N_KIND], ratio[N_KIND], gap, more; /* more: seconds, than alone */
	int64_t sent[N_KIND], refused[N_LIMIT], ended[4], late, preempted_end, gaps, gaps_over;
	double worst_retry;
};

/* ---- numbers ---- */

static double unit(struct world *w)
{
	return (double)(rng_bits(SEED, ++w->dice, 1) >> 11) / 9007199254740992.0; /* 2^53 */
}

static double exponential(struct world *w, double mean)
{
	return -mean * log(1 - unit(w));
}

static int between(struct world *w, int a, int b)
{
	return a + (int)(unit(w) * (b - a + 1));
}

static void put(struct sample *s, double v)
{
	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 1024;
		s->v = xrealloc(s->v, size_mul((size_t)s->cap, sizeof(*s->v)));
	}
	s->v[s->n++] = v;
}

static int rising(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double at(struct sample *s, double p)
{
	if (!s->n)
		return 0;
	qsort(s->v, (size_t)s->n, sizeof(*s->v), rising);
	return s->v[(int)(p * (s->n - 1) + 0.5)];
}

/* ---- the model ---- */

static int64_t now_of(struct clock *c)
{
	return ((struct world *)c)->now;
}

/* Time passes; each answer ends with the same chance at every token. */
static void forward(void *arg, const struct pass *p)
{
	struct world *w = arg;
	double cost = BASE;

	for (int i = 0; i < p->n_item; i++) {
		const struct span *s = &p->span[i];

		cost += s->n == 1 ? DECODE_ROW : s->n * PROMPT_ROW;
		cost += s->n * ROW_AHEAD * (s->pos + s->n / 2.0);
	}
	w->now += (int64_t)(cost * (0.95 + 0.1 * unit(w)) * S);
	memset(p->logits, 0, (size_t)p->n_logit * TOY_VOCAB * sizeof(float));
	for (int i = 0; i < p->n_logit; i++)
		p->logits[(size_t)i * TOY_VOCAB +
		          (rng_bits(SEED, ++w->tokens, 2) % 1000 < 1000 / w->answer_mean ? EOS : 1)] = 1;
}

/* What a prompt's first token would take alone; states that are kept take no steps. */
static double solo(int n)
{
	double s = 0;

	for (int pos = 0, k; pos < n; pos += k) {
		k = n - pos < 165 ? n - pos : 165; /* rows of an idle step: twice the gap, with its margin */
		s += BASE + k * (PROMPT_ROW + ROW_AHEAD * (pos + k / 2.0));
	}
	return s;
}

/* ---- requests ---- */

static void notify(void *arg);
static struct world *the_world; /* for notify, which has one argument */

static void notify(void *arg)
{
	struct asked *a = arg;

	if (a->queued)
		return;
	a->queued = true;
	a->next = the_world->told;
	the_world->told = a;
}

static void forget_canceller(struct world *w, struct asked *a)
{
	for (int i = 0; i < w->n_canceller; i++)
		if (w->canceller[i] == a) {
			w->canceller[i] = w->canceller[--w->n_canceller];
			return;
		}
}

static void ended(struct world *w, struct asked *a, const struct event *ev)
{
	w->ended[ev->finish]++;
	if (ev->finish == FINISH_ERROR) {
		CHECK(ev->err.code == E_LATE, "a request failed: %s", ev->err.msg);
		w->late++;
	}
	w->preempted_end += ev->n_preempted > 0;
	if (!ev->n_preempted && a->worst_gap)
		put(&w->gap, (double)a->worst_gap / S);
	forget_canceller(w, a);
	request_free(a->req);
	free(a);
	w->live--;
}

/* Twice the time alone; but nothing interrupts a step, and beside answers a step holds
 * fewer rows: one that alone takes less than two and a half gaps may take so much more. */
static void first_of_short(struct world *w, double took, double alone)
{
	double gaps = 2.5e-3 * GAP_MS, most = alone + (alone > gaps ? alone : gaps);

	put(&w->more, took - alone);
	CHECK(took <= most, "%.3f s to a first token that alone takes %.3f", took, alone);
}

static void read_events(struct world *w)
{
	struct asked *a, *next;
	struct event ev;

	for (a = w->told, w->told = NULL; a; a = next) {
		bool done = false;

		next = a->next;
		a->queued = false;
		while (!done && request_next(a->req, &ev)) {
			done = ev.kind == EV_DONE;
			/* An answer that ends at its first token has none. */
			if (ev.kind != EV_TOKEN && !(done && ev.finish == FINISH_STOP && !a->first))
				continue;
			if (!a->first) {
				a->first = w->now;
				put(&w->ttft[a->kind], (double)(w->now - a->born) / S);
				put(&w->ratio[a->kind], (double)(w->now - a->born) / S / solo(a->n_prompt));
				if (w->bounded && a->kind == CHAT)
					first_of_short(w, (double)(w->now - a->born) / S, solo(a->n_prompt));
			} else {
				int64_t gap = w->now - a->last;

				w->gaps++;
				w->gaps_over += gap > GAP_MS * 1000000;
				a->worst_gap = gap > a->worst_gap ? gap : a->worst_gap;
			}
			a->last = w->now;
		}
		if (done)
			ended(w, a, &ev);
	}
}

struct wish {
	double came_s; /* while a step ran, mostly; 0: now */
	enum kind kind;
	uint64_t client;
	int n_prompt, priority;
	double deadline_s, leaves_s; /* 0: none */
};

static void ask(struct world *w, const struct wish *x)
{
	static int32_t prompt[CTX];
	static const int32_t eos = EOS;
	struct asked *a = xcalloc(1, sizeof(*a));
	struct refusal why;
	struct err err;
	struct ask ask = {
		.prompt = prompt,
		.n_prompt = x->n_prompt,
		.max_tokens = 1024,
		.stop_token = &eos,
		.n_stop_token = 1,
		.client = x->client,
		.priority = x->priority,
		.refusal = &why,
		.notify = notify,
		.notify_arg = a,
		.deadline_ns = x->deadline_s ? w->now + (int64_t)(x->deadline_s * S) : 0,
	};

	for (int i = 1; i < x->n_prompt && w->kept; i++) /* the first is the same in all */
		prompt[i] = (int32_t)(rng_bits(SEED, ++w->words, 3) % 256);
	sampler_params_init(&ask.sampling);
	ask.sampling.temperature = 0;
	*a = (struct asked){ .kind = x->kind,
		             .n_prompt = x->n_prompt,
		             .born = x->came_s > 0 ? (int64_t)(x->came_s * S) : w->now };
	w->sent[x->kind]++;
	if (engine_submit(w->e, &ask, &a->req, &err)) {
		CHECK(err.code == E_FULL || err.code == E_LATE, "%s", err.msg);
		w->refused[why.limit]++;
		w->worst_retry = why.retry_s > w->worst_retry ? why.retry_s : w->worst_retry;
		free(a);
		return;
	}
	w->live++;
	if (x->leaves_s && w->n_canceller < 256) {
		a->cancel_at = w->now + (int64_t)(x->leaves_s * S);
		w->canceller[w->n_canceller++] = a;
	}
}

/* ---- the world ---- */

static void world_open(struct world *w, int pages, bool kept)
{
	struct toy_opts to = { .slots = SLOTS,
		               .ctx_max = CTX,
		               .step_rows = 512,
		               .page_rows = 64,
		               .pages = pages,
		               .snaps = 64,
		               .idle = true,
		               .on_forward = forward,
		               .on_forward_arg = w };
	struct engine_opts eo = { .seqs_max = SLOTS,
		                  .step_rows = 512,
		                  .queue_max = 256,
		                  .queue_seconds = 120,
		                  .decode_gap_ms = GAP_MS,
		                  .answer_reserve = 256,
		                  .park_bytes = 1 << 28,
		                  .by_hand = true,
		                  .prefix_bytes = kept ? 1 << 20 : 0,
		                  .clock = &w->clock };
	struct err err;

	memset(w, 0, sizeof(*w));
	w->clock.now_ns = now_of;
	w->now = 1;
	w->kept = kept;
	w->answer_mean = 150;
	the_world = w;
	w->m = toy_open(&to);
	CHECK(!engine_open(&w->e, w->m, NULL, &eo, &err), "%s", err.msg);
}

static bool turn(struct world *w)
{
	bool moved;

	for (int i = w->n_canceller - 1; i >= 0; i--)
		if (w->canceller[i]->cancel_at <= w->now) {
			request_cancel(w->canceller[i]->req);
			w->canceller[i] = w->canceller[--w->n_canceller];
		}
	moved = engine_step(w->e);
	read_events(w);
	return moved;
}

/* Until all have ended; then all books must balance. */
static void settle(struct world *w)
{
	struct engine_stats s;
	struct paged_stats kv;
	int64_t sent = 0, out = 0;

	while (w->live)
		turn(w);
	engine_stats(w->e, &s);
	for (int i = 0; i < N_KIND; i++)
		sent += w->sent[i];
	for (int i = 0; i < N_LIMIT; i++) {
		CHECK(s.refused[i] == w->refused[i], "refused");
		out += w->refused[i];
	}
	for (int i = 0; i < 4; i++) {
		CHECK(s.finished[i] == w->ended[i], "ended");
		out += w->ended[i];
	}
	CHECK(sent == out && s.late == w->late, "%lld asked, %lld ended or were refused", (long long)sent,
	      (long long)out);
	CHECK(!s.running && !s.waiting && !s.waiting_tokens && !s.parked.n && !s.parked.bytes, "something is left");
	paged_stats(w->m->kv[0], &kv);
	CHECK(w->kept || !kv.pages_used, "%d pages are still in use", kv.pages_used);
}

static void world_close(struct world *w)
{
	engine_close(w->e);
	toy_close(w->m);
	for (int i = 0; i < N_KIND; i++) {
		free(w->ttft[i].v);
		free(w->ratio[i].v);
	}
	free(w->gap.v);
	free(w->more.v);
}

/* ---- one greedy client ---- */

static void greedy(bool print, bool kept, int least, int most)
{
	static struct world w;
	double next;

	world_open(&w, 0, kept);
	w.bounded = true;
	for (int i = 0; i < 100; i++)
		ask(&w, &(struct wish){ .kind = HOG, .client = 1, .n_prompt = 8000 });
	/* Once some of its answers are under way, somebody new asks every ten seconds. */
	next = 20;
	for (uint64_t client = 2; client < 2 + N_SHORT; client++) {
		next += 5 + 10 * unit(&w);
		while (w.now < next * S && w.live)
			turn(&w);
		ask(&w, &(struct wish){
				.came_s = next, .kind = CHAT, .client = client, .n_prompt = between(&w, least, most) });
		/* As many of its own as it may have waiting. */
		for (int i = 0; i < 20; i++)
			ask(&w, &(struct wish){ .kind = HOG, .client = 1, .n_prompt = 8000 });
	}
	settle(&w);
	if (print)
		printf("| %d to %d%s | %d | %.2f to %.2f s | %.2f s | %.2f s | %.2f s | %.2f | %.2f | %.2f |\n", least,
		       most, kept ? ", kept" : "", w.ttft[CHAT].n, solo(least), solo(most), at(&w.ttft[CHAT], 0.5),
		       at(&w.ttft[CHAT], 0.99), at(&w.more, 1), at(&w.ratio[CHAT], 0.5), at(&w.ratio[CHAT], 0.99),
		       at(&w.ratio[CHAT], 1));
	CHECK(w.ttft[CHAT].n == N_SHORT, "%d of %d short ones were answered", w.ttft[CHAT].n, N_SHORT);
	CHECK(least < 200 || at(&w.ratio[CHAT], 1) <= 2, "%.2f times as long as alone", at(&w.ratio[CHAT], 1));
	CHECK(w.refused[LIMIT_SHARE] > 0 && !w.refused[LIMIT_COUNT], "shares");
	world_close(&w);
}

/* ---- a flood ---- */

static void flood(bool print)
{
	static struct world w;
	int64_t refused = 0;

	world_open(&w, 0, false);
	/* It has served somebody, so that it knows its rates. */
	ask(&w, &(struct wish){ .kind = CHAT, .client = 1, .n_prompt = 1000 });
	while (w.live)
		turn(&w);
	for (uint64_t i = 0; i < 1000; i++)
		ask(&w, &(struct wish){ .kind = CHAT, .client = 2 + i % 200, .n_prompt = between(&w, 100, 2000) });
	settle(&w);
	for (int i = 0; i < N_LIMIT; i++)
		refused += w.refused[i];
	if (print)
		printf("flood: 1000 requests at once from 200 clients: %lld taken, %lld refused (retry after at most %.0f s); "
		       "first tokens of the taken: median %.1f s, 99%% %.1f s\n",
		       (long long)(1001 - refused), (long long)refused, w.worst_retry, at(&w.ttft[CHAT], 0.5),
		       at(&w.ttft[CHAT], 0.99));
	CHECK(refused > 700, "%lld refused", (long long)refused);
	CHECK(at(&w.ttft[CHAT], 0.99) < 2 * 120, "%.0f s for a queue of 120 s", at(&w.ttft[CHAT], 0.99));
	world_close(&w);
}

/* ---- a day ---- */

static double rate_at(double s)
{
	return 0.3 * (1 - 0.6 * cos(s / 86400 * 2 * M_PI)); /* requests per second; the night is quiet */
}

static void one_of_the_day(struct world *w, double came_s)
{
	struct wish x = { .came_s = came_s,
		          .kind = unit(w) < 0.03 ? LONG : CHAT,
		          .client = 10 + (uint64_t)between(w, 0, 4999) };

	x.n_prompt = x.kind == LONG ? between(w, 4000, 16000) : 50 + (int)exponential(w, 400);
	x.n_prompt = x.n_prompt < CTX - 1100 ? x.n_prompt : CTX - 1100;
	x.priority = unit(w) < 0.02;
	x.deadline_s = unit(w) < 0.1 ? 60 : 0;
	x.leaves_s = unit(w) < 0.05 ? exponential(w, 5) : 0;
	ask(w, &x);
}

static void day(bool print, double hours)
{
	static struct world w;
	double next = 0, burst = 1800, from = hours < 24 ? 10 * 3600.0 : 0;
	struct engine_stats s;

	world_open(&w, 900, false); /* of 64: less than sixteen answers and long prompts may take */
	while (next < hours * 3600) {
		if (burst < next) {
			/* Every second hour two clients send 30 long prompts each. */
			for (int i = 0; i < 60; i++)
				ask(&w,
				    &(struct wish){ .kind = HOG, .client = 1 + (uint64_t)(i % 2), .n_prompt = 8000 });
			burst += 7200;
		}
		while (w.now < next * S)
			if (!turn(&w))
				w.now = (int64_t)(next * S) + 1;
		one_of_the_day(&w, next);
		next += exponential(&w, 1 / rate_at(from + next));
	}
	settle(&w);
	engine_stats(w.e, &s);
	if (print) {
		printf("day: %lld requests of %d clients, %lld steps, %lld prompt and %lld output tokens\n",
		       (long long)(w.sent[0] + w.sent[1] + w.sent[2]), 5002, (long long)s.steps,
		       (long long)s.prompt_tokens, (long long)s.output_tokens);
		for (int k = 0; k < N_KIND; k++)
			printf("| prompts %s | %lld | %.2f | %.2f | %.2f | %.2f |\n", kind_name[k],
			       (long long)w.sent[k], at(&w.ttft[k], 0.5), at(&w.ttft[k], 0.95), at(&w.ttft[k], 0.99),
			       at(&w.ttft[k], 1));
		printf("gaps between tokens: %.4f%% over %d ms; of answers, the worst gap: median %.0f ms, 99%% %.0f ms, all %.0f ms\n",
		       100.0 * (double)w.gaps_over / (double)w.gaps, GAP_MS, 1e3 * at(&w.gap, 0.5),
		       1e3 * at(&w.gap, 0.99), 1e3 * at(&w.gap, 1));
		printf("ended: %lld stop, %lld length, %lld cancelled, %lld too late; gave way: %lld requests, %lld times, of which "
		       "%lld for another client and %lld came back without computing again\n",
		       (long long)w.ended[FINISH_STOP], (long long)w.ended[FINISH_LENGTH],
		       (long long)w.ended[FINISH_CANCEL], (long long)w.late, (long long)w.preempted_end,
		       (long long)s.preempted, (long long)s.yielded, (long long)s.resumed);
		printf("refused: %lld by count, %lld by seconds, %lld over their share, %lld by deadline\n",
		       (long long)w.refused[LIMIT_COUNT], (long long)w.refused[LIMIT_SECONDS],
		       (long long)w.refused[LIMIT_SHARE], (long long)w.refused[LIMIT_DEADLINE]);
	}
	CHECK((double)w.gaps_over <= 1e-3 * (double)w.gaps, "%lld of %lld gaps are over %d ms", (long long)w.gaps_over,
	      (long long)w.gaps, GAP_MS);
	CHECK(at(&w.gap, 1) < 1.5e-3 * GAP_MS, "a gap of %.0f ms", 1e3 * at(&w.gap, 1));
	for (int k = 0; k < N_KIND; k++)
		CHECK(at(&w.ttft[k], 1) < 1800, "a first token after %.0f s", at(&w.ttft[k], 1));
	world_close(&w);
}

int main(int argc, char **argv)
{
	bool print = argc > 1 && !strcmp(argv[1], "--table");

	for (int kept = 0; kept < 2; kept++) {
		greedy(print, kept, 1, 49);
		greedy(print, kept, 50, 199);
		greedy(print, kept, 200, 500);
		greedy(print, kept, 501, 2000);
	}
	flood(print);
	day(print, getenv("WEFT_TEST_QUICK") ? 1 : 24);
	return 0;
}
