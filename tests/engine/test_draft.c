/* test_draft.c - speculation changes nothing but the number of steps: over the
 * toy model, with drafters from always right to always wrong, tokens, text,
 * log-probabilities, reasons, and the bytes of all caches are those of plain
 * decoding. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "cache/kinds.h"
#include "engine/core.h"
#include "guess.h"
#include "lives.h"
#include "rows.h"
#include "toy.h"

static struct tokenizer *tok;

static int64_t tick(struct clock *c)
{
	static int64_t now;

	return now += 1000;
}
static struct clock fake_clock = { tick };

struct rig {
	struct model *m;
	struct engine *e;
};

struct rig_opts {
	struct toy_opts toy;
	int seqs, rows, queue;
	size_t prefix_bytes, park; /* engine_opts.park_bytes */
	int reserve;               /* engine_opts.answer_reserve */
	int n_draft;
	struct drafter *drafter[DRAFTERS_MAX];
	int n_drafter;
	bool adapt;
	struct clock *clock;
};

static const struct rig_opts roomy = {
	.toy = { .slots = 8, .ctx_max = 256, .step_rows = 64, .page_rows = 8 },
	.seqs = 8,
	.rows = 64,
	.queue = 64,
	.prefix_bytes = 1 << 20,
};

static struct rig rig_open(const struct rig_opts *o)
{
	struct rig g;
	struct err err;
	struct engine_opts eo = { .seqs_max = o->seqs,
		                  .step_rows = o->rows,
		                  .queue_max = o->queue,
		                  .prefix_bytes = o->prefix_bytes,
		                  .clock = o->clock ? o->clock : &fake_clock,
		                  .by_hand = true,
		                  .logit_rows = o->rows,
		                  .park_bytes = o->park,
		                  .answer_reserve = o->reserve,
		                  .n_draft = o->n_draft,
		                  .n_drafter = o->n_drafter,
		                  .draft_fixed = !o->adapt };

	memcpy(eo.drafter, o->drafter, sizeof(eo.drafter));
	g.m = toy_open(&o->toy);
	CHECK(!engine_open(&g.e, g.m, tok, &eo, &err), "%s", err.msg);
	return g;
}

/* With one drafter alone, which guesses n_draft tokens ahead. */
static struct rig rig_guided(struct guesser *g, int n_draft)
{
	struct rig_opts o = roomy;
	struct rig rig;

	o.n_draft = n_draft;
	o.drafter[0] = &g->d;
	o.n_drafter = 1;
	rig = rig_open(&o);
	g->truth = toy_logits;
	g->m = rig.m;
	return rig;
}

static void rig_close(struct rig *g)
{
	struct paged_stats kv;

	engine_close(g->e);
	paged_stats(g->m->kv[0], &kv);
	CHECK(kv.pages_used == 0, "%d pages are still in use", kv.pages_used);
	toy_close(g->m);
}

static void submit(struct life *l, struct rig *g)
{
	struct err err;

	CHECK(!life_submit(l, g->e, &err), "%s", err.msg);
}

/* ---- what the caches hold ---- */

/* Plain decoding, step by step: what the caches held at each position. */
struct record {
	struct life l;
	struct buf at[LIFE_MAX];
	int end; /* the last position that was seen */
};

/* Runs l on g; looks after each step.  first: g decodes plainly, and what is seen
 * goes to rec; else it is compared. */
static int64_t run(struct life *l, struct rig *g, struct record *rec, bool first)
{
	int64_t steps = 0;

	submit(l, g);
	if (first)
		rec->end = 0;
	while (engine_step(g->e)) {
		struct sched *s = &g->e->sched;

		steps++;
		caches_check(&g->m->caches);
		if (!s->n_run || s->run[0]->pos == 0)
			continue;
		caches_held(&g->m->caches, s->run[0]->slot, s->run[0]->pos, rec->at, first);
		if (first)
			rec->end = s->run[0]->pos;
	}
	life_read(l, false);
	CHECK(l->done, "not done");
	return steps;
}

static void record_free(struct record *rec)
{
	for (int i = 0; i < LIFE_MAX; i++)
		buf_fini(&rec->at[i]);
	life_free(&rec->l);
}

/* One cell of the matrix: which request. */
struct cell {
	bool sampled, prefix;
	int told; /* 0: nothing; 1, 4: a mask; 2: what is said first; 3: a thought that is bound, and what follows */
	int stop; /* 0: none; 1: stop token; 2: stop string; 3: one that spans two tokens */
	int max_tokens, n_draft;
};

static void cell_told(struct life *l, const struct cell *c)
{
	static const int32_t end[] = { 5, 6, 77 }, then[] = { 9, 8, 7, 60, 61 };
	static const struct lead say = { .open = -1, .close = -1, .think_max = -1, .then = then, .n_then = 5 };
	static const struct lead bound = { .thinking = true,
		                           .open = -1,
		                           .close = 77,
		                           .think_max = 4,
		                           .end = end,
		                           .n_end = 3,
		                           .then = then,
		                           .n_then = 3 };

	l->masked = c->told == 1 || c->told == 4 ? 77 + (uint64_t)c->told : 0;
	if (c->told == 2 || c->told == 3)
		l->ask.lead = c->told == 2 ? &say : &bound;
}

static void cell_ask(struct life *l, const struct cell *c, const struct answer *plain, int32_t *stop_token, char *stop)
{
	static const char *string[1];

	life_init(l, 30, 250, 5);
	l->want_rows = true;
	l->ask.max_tokens = c->max_tokens;
	l->ask.sampling.n_logprobs = 3;
	if (c->sampled) {
		l->ask.sampling.temperature = 1;
		l->ask.sampling.seed = 77;
		l->ask.sampling.repetition_penalty = 1.3f;
		l->ask.sampling.frequency_penalty = 0.4f;
		l->ask.sampling.min_tokens = 3;
	}
	if (!plain || plain->n < 6)
		return;
	if (c->stop == 1) {
		*stop_token = plain->tok[4];
		l->ask.stop_token = stop_token;
		l->ask.n_stop_token = 1;
	} else if (c->stop >= 2) {
		int32_t from = c->stop == 2 ? 1 : 2;
		struct detok d;
		struct buf b;

		buf_init(&b);
		detok_init(&d, tok, false);
		detok_put(&d, plain->tok[4], &b);
		for (int i = 1; i < from; i++)
			detok_put(&d, plain->tok[4 + i], &b);
		snprintf(stop, 64, "%.*s", (int)b.n, b.n ? b.p : "");
		buf_fini(&b);
		if (*stop) {
			string[0] = stop;
			l->ask.stop = string;
			l->ask.n_stop = 1;
		}
	}
}

/* The whole conversation once more, with a word added: what was kept of it. */
static int next_turn(struct rig *g, const struct life *l)
{
	struct life next;
	struct answer want;
	int cached;

	life_init(&next, 1, 250, 1);
	memcpy(next.prompt, l->prompt, (size_t)l->ask.n_prompt * sizeof(*next.prompt));
	memcpy(next.prompt + l->ask.n_prompt, l->got.tok, (size_t)l->got.n * sizeof(*next.prompt));
	next.ask.n_prompt = l->ask.n_prompt + l->got.n + 1;
	next.prompt[next.ask.n_prompt - 1] = 99;
	next.ask.max_tokens = 5;
	next.want_rows = true;
	submit(&next, g);
	while (engine_step(g->e))
		;
	life_read(&next, false);
	life_alone(&next, g->m, life_room(g->m), tok, toy_logits, &want);
	life_check(&next, g->m, &want, toy_logits, false);
	cached = next.cached;
	life_free(&next);
	return cached;
}

static void warm(struct rig *g, bool prefix)
{
	struct life l;

	if (!prefix)
		return;
	life_init(&l, 20, 250, 5); /* the first 20 tokens of every cell's prompt */
	l.ask.max_tokens = 1;
	submit(&l, g);
	while (engine_step(g->e))
		;
	life_read(&l, false);
	life_free(&l);
}

static void test_cell(const struct cell *c, struct guesser *guess)
{
	static struct record plain;
	static struct life l;
	struct rig_opts o = roomy;
	struct answer free_answer, want;
	struct told told;
	int32_t stop_token = -1, all[2 * LIFE_MAX];
	int turn_plain, turn_draft;
	char stop[64] = "";
	struct rig a, b;
	int64_t steps_a, steps_b;

	memset(&plain, 0, sizeof(plain));
	a = rig_open(&o);
	cell_ask(&plain.l, c, NULL, NULL, NULL);
	life_alone(&plain.l, a.m, life_room(a.m), tok, toy_logits, &free_answer);
	cell_ask(&plain.l, c, &free_answer, &stop_token, stop);
	cell_told(&plain.l, c);
	warm(&a, c->prefix);
	steps_a = run(&plain.l, &a, &plain, true);
	if (c->told)
		free_answer = plain.l.got;
	turn_plain = next_turn(&a, &plain.l);
	memcpy(all, plain.l.prompt, (size_t)plain.l.ask.n_prompt * sizeof(*all));
	memcpy(all + plain.l.ask.n_prompt, free_answer.tok, (size_t)free_answer.n * sizeof(*all));
	told = (struct told){ all, plain.l.ask.n_prompt + free_answer.n };
	guess->told = &told;
	guess->n_told = 1;

	o.n_draft = c->n_draft;
	o.drafter[0] = &guess->d;
	o.n_drafter = 1;
	b = rig_open(&o);
	cell_ask(&l, c, &free_answer, &stop_token, stop);
	cell_told(&l, c);
	warm(&b, c->prefix);
	steps_b = run(&l, &b, &plain, false);
	if (!c->told) {
		life_alone(&l, b.m, life_room(b.m), tok, toy_logits, &want);
		life_check(&l, b.m, &want, toy_logits, false);
	}
	CHECK(!memcmp(&l.got, &plain.l.got, sizeof(l.got)), "the answers differ");
	CHECK(l.cached == plain.l.cached && l.row_max == plain.l.row_max, "cached %d, %d", l.cached, plain.l.cached);
	turn_draft = next_turn(&b, &l);
	/* A stop string may end the answer between two places, and steps of drafts have others. */
	CHECK(turn_plain == turn_draft || (c->stop && abs(turn_plain - turn_draft) < PLACE_NEAR),
	      "the next turn finds %d positions, and %d after plain decoding", turn_draft, turn_plain);
	CHECK(steps_b <= steps_a, "%d steps for %d", (int)steps_b, (int)steps_a);
	if (guess->how == GUESS_RIGHT && c->max_tokens > 2 && c->stop == 0) {
		CHECK((l.end.n_accepted > 0 || c->told == 2 || c->told == 3) && !l.end.n_rejected,
		      "%d accepted, %d not", l.end.n_accepted, l.end.n_rejected);
		CHECK(steps_b < steps_a, "%d steps", (int)steps_b);
	}
	if (guess->how == GUESS_WRONG && !c->told)
		CHECK(!l.end.n_accepted && steps_b == steps_a, "%d accepted", l.end.n_accepted);
	life_free(&l);
	record_free(&plain);
	rig_close(&a);
	rig_close(&b);
}

/* An answer that is expected, wholly, up to a token that is another, or with more behind it: the same bytes in fewer steps. */
static void test_expected(void)
{
	for (int v = 0; v < 32; v++) {
		struct cell c = {
			.sampled = v & 1, .prefix = v & 2, .told = v & 4 ? 3 : 0, .max_tokens = 20, .n_draft = 4
		};
		static struct record plain;
		static struct life l;
		int32_t expect[LIFE_MAX];
		struct rig_opts o = roomy;
		struct rig a, b;
		int64_t steps_a, steps_b;
		int wrong = v & 8 ? 7 : -1, more = v & 16 ? 9 : 0;

		memset(&plain, 0, sizeof(plain));
		a = rig_open(&o);
		cell_ask(&plain.l, &c, NULL, NULL, NULL);
		cell_told(&plain.l, &c);
		warm(&a, c.prefix);
		steps_a = run(&plain.l, &a, &plain, true);
		CHECK(plain.l.got.n == 20, "%d tokens", plain.l.got.n);
		memcpy(expect, plain.l.got.tok, sizeof(*expect) * 20);
		for (int i = 20; i < 20 + more; i++)
			expect[i] = 3;
		if (wrong >= 0)
			expect[wrong] = (expect[wrong] + 1) % 200;

		o.n_draft = c.n_draft;
		b = rig_open(&o);
		cell_ask(&l, &c, NULL, NULL, NULL);
		cell_told(&l, &c);
		l.ask.expect = expect;
		l.ask.n_expect = 20 + more;
		warm(&b, c.prefix);
		steps_b = run(&l, &b, &plain, false);
		CHECK(!memcmp(&l.got, &plain.l.got, sizeof(l.got)), "%d: the answers differ", v);
		CHECK(steps_a - steps_b >= (wrong < 0 ? 15 : 4), "%d: %d steps for %d", v, (int)steps_b, (int)steps_a);
		life_free(&l);
		record_free(&plain);
		rig_close(&a);
		rig_close(&b);
	}
}

static void test_matrix(bool quick)
{
	static const int depths[] = { 1, 3, 8, DRAFT_MAX };
	struct guesser g;

	for (int i = quick ? 1 : 0; i < (quick ? 2 : 4); i++) {
		int depth = depths[i];

		for (int max = 1; max <= 2 * depth + 2; max++)
			for (int v = 0; v < 32; v++) {
				struct cell c = { .sampled = v & 1,
					          .prefix = v & 2,
					          .stop = v < 16 ? v >> 2 : 0,
					          .told = v < 16 ? 0 : (v >> 2) - 3,
					          .max_tokens = max,
					          .n_draft = depth };

				guesser_init(&g, GUESS_RIGHT);
				test_cell(&c, &g);
				guesser_init(&g, GUESS_WRONG);
				test_cell(&c, &g);
				guesser_init(&g, GUESS_DICE);
				g.dice = (uint64_t)(100 * max + v);
				test_cell(&c, &g);
				guesser_init(&g, GUESS_TURN);
				for (g.turn = 0; g.turn < depth; g.turn++)
					test_cell(&c, &g);
			}
	}
}

/* ---- with tokens that an answer is made to say ---- */

/* Drafts run into the end of a thought's budget and over it, and change nothing. */
static void test_lead(void)
{
	static const int32_t end[] = { 11, 112, 13 }, then[] = { 221, 62 };
	static const enum guess hows[] = { GUESS_RIGHT, GUESS_WRONG, GUESS_DICE };
	struct guesser g;

	for (int i = 0; i < 24; i++) {
		struct lead lead = { .thinking = i & 1,
			             .open = -1,
			             .close = 13,
			             .think_max = i % 8,
			             .end = end,
			             .n_end = 3,
			             .then = then,
			             .n_then = 2 };
		struct life l[2];
		int32_t all[64];
		struct told told = { all, 60 };

		for (int drafted = 0; drafted < 2; drafted++) {
			struct rig_opts o = roomy;
			struct rig rig;

			guesser_init(&g, hows[i % 3]);
			g.dice = (uint64_t)i;
			g.told = &told;
			g.n_told = 1;
			o.n_draft = drafted ? 5 : 0;
			o.drafter[0] = &g.d;
			o.n_drafter = drafted;
			rig = rig_open(&o);
			life_init(&l[drafted], 30, 250, 40 + (uint64_t)i);
			l[drafted].ask.max_tokens = 30;
			l[drafted].ask.sampling.temperature = i & 2 ? 1 : 0;
			l[drafted].ask.sampling.seed = (uint64_t)i;
			l[drafted].ask.sampling.n_logprobs = 3;
			l[drafted].ask.lead = &lead;
			submit(&l[drafted], &rig);
			while (engine_step(rig.e))
				;
			life_read(&l[drafted], false);
			memcpy(all, l[0].prompt, 30 * sizeof *all);
			memcpy(all + 30, l[0].got.tok, 30 * sizeof *all);
			rig_close(&rig);
		}
		CHECK(!memcmp(&l[0].got, &l[1].got, sizeof l[0].got), "the answers of case %d differ", i);
		CHECK(hows[i % 3] != GUESS_RIGHT || l[1].end.n_accepted > 0, "nothing was drafted");
		life_free(&l[0]);
		life_free(&l[1]);
	}
}

/* ---- limits ---- */

/* Off by the request, and less than the engine's number. */
static void test_switch(void)
{
	struct guesser g;
	struct life l;
	struct rig rig;

	guesser_init(&g, GUESS_RIGHT);
	rig = rig_guided(&g, 6);
	for (int n = -1; n <= 3; n++) {
		life_init(&l, 20, 250, 3);
		l.ask.no_cache = true;
		l.ask.max_tokens = 29;
		l.ask.n_draft = n;
		g.asked = 0;
		submit(&l, &rig);
		while (engine_step(rig.e))
			;
		life_read(&l, false);
		CHECK(l.done && (n < 0) == !g.asked, "asked %d times", (int)g.asked);
		CHECK(n != 2 || g.asked == 29 / 3, "asked %d times", (int)g.asked);
		life_free(&l);
	}
	rig_close(&rig);
}

/* The position that --resume-at names is met, not jumped over. */
static void test_resume(void)
{
	struct guesser g;
	struct rig rig;

	guesser_init(&g, GUESS_RIGHT);
	rig = rig_guided(&g, 7);
	for (int at = 22; at < 50; at++) {
		struct answer want;
		struct life l;
		int slot = -1, moved = 0;

		life_init(&l, 20, 250, 3);
		l.want_rows = true;
		l.ask.no_cache = true;
		l.ask.max_tokens = 31;
		l.ask.resume_at = at;
		submit(&l, &rig);
		while (engine_step(rig.e)) {
			struct sched *s = &rig.e->sched;

			moved += s->n_run && slot >= 0 && s->run[0]->slot != slot;
			slot = s->n_run ? s->run[0]->slot : -1;
		}
		life_read(&l, false);
		life_alone(&l, rig.m, life_room(rig.m), tok, toy_logits, &want);
		life_check(&l, rig.m, &want, toy_logits, false);
		CHECK(moved == 1, "resume at %d: moved %d times", at, moved);
		life_free(&l);
	}
	rig_close(&rig);
}

/* A drafter that has nothing to say makes room for the next. */
static void test_chain(void)
{
	struct drafter *ngram = draft_ngram_open(8, 1000);
	struct rig_opts o = roomy;
	struct engine_stats s;
	struct guesser g;
	struct life l;
	struct rig rig;

	guesser_init(&g, GUESS_RIGHT);
	o.n_draft = 4;
	o.drafter[0] = ngram;
	o.drafter[1] = &g.d;
	o.n_drafter = 2;
	rig = rig_open(&o);
	g.truth = toy_logits;
	g.m = rig.m;
	for (int i = 0; i < 3; i++) {
		struct answer want;

		life_init(&l, 50, 250, 3);
		if (i) /* the same text again: known, and looked up */
			l.ask.sampling.seed = 3;
		l.ask.max_tokens = 40;
		submit(&l, &rig);
		while (engine_step(rig.e))
			;
		life_read(&l, false);
		life_alone(&l, rig.m, life_room(rig.m), tok, toy_logits, &want);
		life_check(&l, rig.m, &want, toy_logits, false);
		engine_stats(rig.e, &s);
		CHECK(!strcmp(s.drafter[0].name, "ngram") && !strcmp(s.drafter[1].name, "guess"), "names");
		if (!i)
			CHECK(!s.drafter[0].accepted && s.drafter[1].accepted == 31, "%d by ngram, %d by guess",
			      (int)s.drafter[0].accepted, (int)s.drafter[1].accepted);
		else
			CHECK(s.drafter[0].accepted > 25 * i, "%d by ngram", (int)s.drafter[0].accepted);
		life_free(&l);
	}
	rig_close(&rig);
	ngram->ops->close(ngram);
}

/* ---- what is drawn ---- */

/* The second token of many answers that agree in the first, drawn with drafts that
 * are right, wrong or either: its counts against the model's own distribution. */
static void test_distribution(enum guess how)
{
	enum { TOP = 5, ASKS = 12000 };
	int32_t top[TOP], text[LIFE_MAX], first = -1;
	int count[TOP] = { 0 }, n = 0, inside = 0, accepted = 0;
	double p[TOP], total = 0, chi = 0;
	static float row[TOY_VOCAB];
	struct guesser g;
	struct life l;
	struct rig rig;

	guesser_init(&g, how);
	rig = rig_guided(&g, 3);
	for (int i = 0; i < ASKS; i++) {
		life_init(&l, 3, 250, 8);
		l.ask.max_tokens = 4;
		l.ask.sampling.temperature = 1;
		l.ask.sampling.top_k = TOP;
		l.ask.sampling.seed = (uint64_t)i;
		submit(&l, &rig);
		while (engine_step(rig.e))
			;
		life_read(&l, false);
		if (first < 0) {
			first = l.got.tok[0];
			memcpy(text, l.prompt, 3 * sizeof(*text));
			text[3] = first;
			toy_logits(rig.m, text, 4, row);
			for (int k = 0; k < TOP; k++) {
				top[k] = 0;
				for (int v = 1; v < TOY_VOCAB; v++)
					top[k] = row[v] > row[top[k]] ? v : top[k];
				total += p[k] = exp((double)row[top[k]]);
				row[top[k]] = -1000;
			}
		}
		accepted += l.end.n_accepted;
		for (int k = 0; k < TOP && l.got.tok[0] == first; k++)
			count[k] += l.got.tok[1] == top[k];
		n += l.got.tok[0] == first;
		life_free(&l);
	}
	for (int k = 0; k < TOP; k++) {
		double want = n * p[k] / total;

		chi += (count[k] - want) * (count[k] - want) / want;
		inside += count[k];
	}
	CHECK(n > 1000 && inside == n, "%d of %d tokens inside the filter", inside, n);
	/* 18.5: one in a thousand, of 4 degrees of freedom; the seeds are always the same. */
	CHECK(chi < 18.5, "chi-square %g", chi);
	CHECK((how == GUESS_WRONG) == !accepted, "%d accepted", accepted);
	rig_close(&rig);
}

/* ---- a model that drafts ---- */

/* The model drafting for itself is always right, or it does not stand where it
 * should: alone, several at once with lengths of their own, after a prefix that
 * the model knew, after one that the drafter alone knows, and when the engine
 * moves a sequence to another slot. */
static void test_self(bool attention_only)
{
	struct rig_opts o = roomy;
	struct toy_opts small = roomy.toy;
	struct drafter *d;
	struct err err;
	struct rig rig;
	struct model *m;
	static struct life l[8];

	o.toy.attention_only = small.attention_only = attention_only;
	small.step_rows = 17; /* prompts are caught up with in several rounds */
	m = toy_open(&small);
	CHECK(!draft_model_open(&d, m, 8, 1 << 20, &err), "%s", err.msg);
	o.n_draft = 5;
	o.drafter[0] = d;
	o.n_drafter = 1;
	rig = rig_open(&o);
	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < 8; i++) {
			life_init(&l[i], 3 + 9 * i, 250, (uint64_t)i);
			if (round) /* parts from what was known at the end */
				l[i].prompt[l[i].ask.n_prompt - 1] = round;
			l[i].ask.max_tokens = 60 + i;
			l[i].ask.resume_at = round % 3 == 2 ? l[i].ask.n_prompt + 20 : 0;
			l[i].ask.no_cache = round == 4;
			l[i].ask.sampling.temperature = (float)(i % 2);
			submit(&l[i], &rig);
			if (round < 2)
				while (engine_step(rig.e))
					;
		}
		while (engine_step(rig.e)) {
			caches_check(&rig.m->caches);
			caches_check(&m->caches);
		}
		for (int i = 0; i < 8; i++) {
			struct answer want;

			life_read(&l[i], false);
			life_alone(&l[i], rig.m, life_room(rig.m), tok, toy_logits, &want);
			life_check(&l[i], rig.m, &want, toy_logits, false);
			CHECK(!l[i].end.n_rejected, "round %d, %d: %d rejected", round, i, l[i].end.n_rejected);
			CHECK(l[i].end.n_accepted >= (round < 2 ? 45 : 10), "round %d, %d: %d accepted", round, i,
			      l[i].end.n_accepted);
			life_free(&l[i]);
		}
	}
	rig_close(&rig);
	d->ops->close(d);
	toy_close(m);
}

/* Planning: drafts are taken for right as often as was said. */
static void test_pretend(void)
{
	struct engine_opts eo = { .seqs_max = 4,
		                  .step_rows = 64,
		                  .queue_max = 8,
		                  .clock = &fake_clock,
		                  .by_hand = true,
		                  .n_draft = 1,
		                  .n_drafter = 1,
		                  .draft_fixed = true,
		                  .draft_pretend = 0.7 };
	struct model *m = toy_open(&roomy.toy);
	struct engine_stats s;
	struct guesser g;
	struct engine *e;
	struct life l;
	struct err err;
	double share;

	guesser_init(&g, GUESS_WRONG);
	g.truth = toy_logits;
	g.m = m;
	eo.drafter[0] = &g.d;
	CHECK(!engine_open(&e, m, tok, &eo, &err), "%s", err.msg);
	for (int i = 0; i < 8; i++) {
		life_init(&l, 2, 250, (uint64_t)i);
		l.ask.max_tokens = 240;
		CHECK(!life_submit(&l, e, &err), "%s", err.msg);
		while (engine_step(e))
			;
		life_read(&l, false);
		CHECK(l.got.n == 240, "%d tokens", l.got.n);
		life_free(&l);
	}
	engine_stats(e, &s);
	share = (double)s.drafter[0].accepted / (double)s.drafter[0].drafted;
	CHECK(share > 0.65 && share < 0.75, "%g of %d", share, (int)s.drafter[0].drafted);
	engine_close(e);
	toy_close(m);
}

/* ---- many ---- */

static void test_lives(uint64_t seed)
{
	uint64_t s = seed;
	struct drafter *ngram = NULL, *model = NULL;
	struct model *small = NULL;
	struct guesser g;
	struct rig_opts o = {
		.toy = { .slots = 1 + (int)dice(&s, 6),
		         .ctx_max = 180,
		         .step_rows = 128,
		         .page_rows = 1 << dice(&s, 5),
		         .snaps = 1 + (int)dice(&s, 20),
		         .window = seed % 3 == 1 ? 1 + (int)(seed * 7 % 60) : 0,
		         .attention_only = !dice(&s, 4) },
		.rows = dice(&s, 3) ? 1 + (int)dice(&s, 128) : 1 + (int)dice(&s, 3),
		.queue = LIVES_MAX,
		.prefix_bytes = dice(&s, 4) ? 3000 << dice(&s, 8) : 0,
		.n_draft = 1 + (int)dice(&s, DRAFT_MAX),
	};
	struct lives_opts lo = { .steps = 400, .prompt_max = 90, .answer_max = 60, .poison = TOY_POISON };
	struct rig rig;

	o.seqs = 1 + (int)dice(&s, (uint64_t)o.toy.slots);
	o.toy.pages = (180 / o.toy.page_rows + 1) * (1 + (int)dice(&s, 3));
	/* Little is set aside: sequences give way half way, drafts or not. */
	o.reserve = 1 + (int)dice(&s, 30);
	o.park = dice(&s, 3) ? 1 << (8 + dice(&s, 10)) : 0;
	guesser_init(&g, (enum guess)dice(&s, GUESS_DICE + 1));
	g.turn = (int)dice(&s, (uint64_t)o.n_draft);
	if (dice(&s, 2))
		o.drafter[o.n_drafter++] = ngram = draft_ngram_open(o.seqs, dice(&s, 2) ? 200 : 0);
	if (dice(&s, 2)) {
		/* The same model with memory of its own, from ample to far too little. */
		struct toy_opts so = o.toy;
		struct err err;

		so.step_rows = o.seqs + (int)dice(&s, 40);
		so.pages = so.attention_only || dice(&s, 2) ? 1 + (int)dice(&s, 30) : 0;
		so.ctx_max = dice(&s, 2) ? 180 : 90;
		small = toy_open(&so);
		CHECK(!draft_model_open(&model, small, o.seqs, dice(&s, 2) ? 20000 : 0, &err), "%s", err.msg);
		o.drafter[o.n_drafter++] = model;
	}
	o.drafter[o.n_drafter++] = &g.d;
	o.adapt = dice(&s, 2);
	rig = rig_open(&o);
	g.truth = toy_logits;
	g.m = rig.m;
	lives_many(rig.e, rig.m, tok, toy_logits, &lo, &s);
	rig_close(&rig);
	if (ngram)
		ngram->ops->close(ngram);
	if (model) {
		model->ops->close(model);
		toy_close(small);
	}
}

int main(int argc, char **argv)
{
	bool quick = getenv("WEFT_TEST_QUICK") != NULL;
	/* test_draft COUNT [FIRST]: more lives. */
	uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : quick ? 15 : 100;
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

	tok = toy_tokenizer();
	test_lead();
	test_switch();
	test_resume();
	test_chain();
	test_pretend();
	test_self(false);
	test_self(true);
	test_distribution(GUESS_RIGHT);
	test_distribution(GUESS_WRONG);
	test_distribution(GUESS_DICE);
	test_expected();
	test_matrix(quick);
	for (uint64_t i = 0; i < n; i++)
		test_lives((first + i) * 1000003);
	tokenizer_close(tok);
	return 0;
}
