/* test_engine.c - the engine over a toy model whose logits depend on every
 * visible token (toy.h), driven by hand under a clock that we turn: the same on
 * every run.  Whatever happens around a request, its tokens, its text and its
 * logits are those of the request alone. */
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "cache/kinds.h"
#include "lives.h"
#include "model/model.h"
#include "text/tokens/tokenizer.h"
#include "toy.h"

static struct tokenizer *tok;

/* Each look at it moves it on by 1 us, and in random lives by up to jump more. */
static int64_t jump;
static int64_t tick(struct clock *c)
{
	static int64_t now;

	return now += 1000 + (jump ? (int64_t)(rng_bits(3, (uint64_t)now, 3) % (uint64_t)jump) : 0);
}
static struct clock fake_clock = { tick };

struct rig {
	struct model *m;
	struct engine *e;
};

struct rig_opts {
	struct toy_opts toy;
	int seqs, rows, queue;
	size_t prefix_bytes;
	int reserve;     /* engine_opts.answer_reserve */
	size_t park;     /* engine_opts.park_bytes */
	bool few_logits; /* as in serving: those of answers alone */
};

static const struct rig_opts roomy = {
	.toy = { .slots = 8, .ctx_max = 256, .step_rows = 64, .page_rows = 8 },
	.seqs = 8,
	.rows = 64,
	.queue = 64,
};

static struct rig rig_open(const struct rig_opts *o)
{
	struct rig g;
	struct err err;
	struct engine_opts eo = { .seqs_max = o->seqs,
		                  .step_rows = o->rows,
		                  .queue_max = o->queue,
		                  .prefix_bytes = o->prefix_bytes,
		                  .answer_reserve = o->reserve,
		                  .park_bytes = o->park,
		                  .logit_rows = o->few_logits ? 0 : o->rows,
		                  .clock = &fake_clock,
		                  .by_hand = true };

	g.m = toy_open(&o->toy);
	CHECK(!engine_open(&g.e, g.m, tok, &eo, &err), "%s", err.msg);
	return g;
}

static struct engine_stats stats_of(struct rig *g)
{
	struct engine_stats s;

	engine_stats(g->e, &s);
	return s;
}

/* Everything that was taken was given back. */
static void rig_close(struct rig *g)
{
	struct engine_stats s = stats_of(g);
	struct paged_stats kv;

	CHECK(s.running == 0 && s.waiting == 0, "%d running, %d waiting", s.running, s.waiting);
	engine_close(g->e);
	paged_stats(g->m->kv[0], &kv);
	CHECK(kv.pages_used == 0, "%d pages are still in use", kv.pages_used);
	toy_close(g->m);
}

static void pump(struct rig *g)
{
	while (engine_step(g->e))
		caches_check(&g->m->caches);
}

static void submit(struct life *l, struct rig *g)
{
	struct err err;

	CHECK(!life_submit(l, g->e, &err), "%s", err.msg);
}

static void check(struct life *l, struct rig *g, bool partial)
{
	struct answer want;

	life_alone(l, g->m, life_room(g->m), tok, toy_logits, &want);
	life_check(l, g->m, &want, toy_logits, partial);
}

/* Runs one request to its end and checks it. */
static void run_one(struct life *l, struct rig *g)
{
	submit(l, g);
	pump(g);
	life_read(l, false);
	CHECK(l->done, "not done");
	check(l, g, false);
}

/* ---- the law ---- */

static void test_alone(void)
{
	struct rig g = rig_open(&roomy);
	struct life l;

	for (int n = 1; n < 100; n += 9)
		for (int temp = 0; temp < 2; temp++) {
			life_init(&l, n, 250, (uint64_t)n);
			l.want_rows = true;
			l.ask.max_tokens = 20;
			l.ask.sampling.temperature = temp;
			l.ask.sampling.seed = (uint64_t)n * 31;
			run_one(&l, &g);
			CHECK(l.progress == n && l.end.n_output == 20 && l.end.finish == FINISH_LENGTH,
			      "%d of %d, %d tokens, finish %d", l.progress, n, l.end.n_output, l.end.finish);
			CHECK(l.end.queue_ns > 0 && l.end.prefill_ns > 0 && l.end.decode_ns > 0, "times");
			life_free(&l);
		}
	rig_close(&g);
}

static void test_together(void)
{
	static struct life l[8];
	struct rig g = rig_open(&roomy);

	for (int i = 0; i < 8; i++) {
		life_init(&l[i], 1 + 13 * i, 250, 500 + (uint64_t)i);
		l[i].want_rows = true;
		l[i].ask.max_tokens = 60 - 5 * i;
		l[i].ask.sampling.temperature = i % 3 ? 1 : 0;
		l[i].ask.sampling.seed = (uint64_t)i;
		submit(&l[i], &g);
		for (int k = 0; k < i; k++)
			engine_step(g.e); /* they join at different steps */
	}
	pump(&g);
	for (int i = 0; i < 8; i++) {
		life_read(&l[i], false);
		check(&l[i], &g, false);
		life_free(&l[i]);
	}
	rig_close(&g);
}

static void test_chunks(void)
{
	static const int split[][3] = { { 1, 1, 1 }, { 7, 7, 7 }, { 1, 7, 64 }, { 64, 2, 3 }, { 5, 200, 1 } };
	struct life l[2];

	for (int rows = 1; rows <= 64; rows = rows * 3 + 1)
		for (size_t s = 0; s < sizeof(split) / sizeof(split[0]); s++) {
			struct rig_opts o = roomy;
			struct rig g;

			o.rows = rows;
			g = rig_open(&o);
			for (int i = 0; i < 2; i++) {
				life_init(&l[i], 100, 250, 7 + (uint64_t)i);
				l[i].want_rows = true;
				l[i].ask.max_tokens = 5;
				if (i) {
					l[i].ask.split = split[s];
					l[i].ask.n_split = 3;
				}
				submit(&l[i], &g);
			}
			pump(&g);
			for (int i = 0; i < 2; i++) {
				life_read(&l[i], false);
				check(&l[i], &g, false);
				life_free(&l[i]);
			}
			rig_close(&g);
		}
}

/* Asked-for chunks are what is computed: PROGRESS tells. */
static void test_split_sizes(void)
{
	static const int split[] = { 1, 7, 64 };
	int want[] = { 1, 8, 72, 73, 80, 100 };
	struct rig g = rig_open(&roomy);
	struct life l;

	life_init(&l, 100, 250, 1);
	l.ask.split = split;
	l.ask.n_split = 3;
	submit(&l, &g);
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		engine_step(g.e);
		life_read(&l, false);
		CHECK(l.progress == want[i], "%d positions after step %zu", l.progress, i);
	}
	CHECK(l.done, "max_tokens 0 ends with the prompt");
	life_free(&l);
	rig_close(&g);
}

static void test_resume(void)
{
	static struct life l, other[7];
	struct rig g = rig_open(&roomy);

	for (int at = 1; at < 70; at++) {
		/* With and without another slot to go to. */
		int n_other = at % 2 ? 7 : 1;

		for (int i = 0; i < n_other; i++) {
			life_init(&other[i], 20, 250, 900 + (uint64_t)i);
			other[i].ask.max_tokens = 90;
			submit(&other[i], &g);
		}
		life_init(&l, 60, 250, 3);
		l.want_rows = true;
		l.ask.no_cache = true;
		l.ask.max_tokens = 12;
		l.ask.resume_at = at;
		run_one(&l, &g);
		life_free(&l);
		for (int i = 0; i < n_other; i++) {
			life_read(&other[i], false);
			check(&other[i], &g, false);
			life_free(&other[i]);
		}
	}
	rig_close(&g);
}

/* ---- kept prefixes ---- */

static void run_prefix(struct rig *g, struct life *l, const int32_t *tokens, int n, int cached)
{
	life_init(l, 1, 250, 1);
	memcpy(l->prompt, tokens, (size_t)n * sizeof(*tokens));
	l->ask.n_prompt = n;
	l->want_rows = true;
	l->ask.max_tokens = 9;
	run_one(l, g);
	CHECK(l->cached == cached, "%d of %d cached, not %d", l->cached, n, cached);
}

static void test_prefix(void)
{
	struct rig_opts o = roomy;
	struct rig g;
	struct life a, b;
	int32_t t[LIFE_MAX];
	int n;

	o.prefix_bytes = 1 << 20;
	g = rig_open(&o);
	life_init(&a, 50, 250, 11);
	memcpy(t, a.prompt, sizeof(t));
	run_prefix(&g, &a, t, 50, 0);
	run_prefix(&g, &b, t, 50, 49); /* the same again: all but one */
	life_free(&b);
	/* The answer and a word more: all that was computed, which is all but the answer's last token. */
	n = 50;
	memcpy(t + n, a.got.tok, (size_t)a.got.n * sizeof(*t));
	n += a.got.n;
	t[n] = 17;
	run_prefix(&g, &b, t, n + 1, 50 + a.got.n - 1);
	life_free(&b);
	/* Leaving the path between two snapshots: a recurrent state stands at the one before. */
	t[30] = (t[30] + 1) % 250;
	run_prefix(&g, &b, t, 50, 16);
	life_free(&b);
	/* A prompt of one token, twice. */
	run_prefix(&g, &b, t + 3, 1, 0);
	life_free(&b);
	run_prefix(&g, &b, t + 3, 1, 0);
	life_free(&b);
	/* no_cache neither uses nor keeps. */
	n = stats_of(&g).prefix.entries;
	life_init(&b, 40, 250, 99);
	b.ask.no_cache = true;
	run_one(&b, &g);
	CHECK(stats_of(&g).prefix.entries == n, "kept in spite of no_cache");
	life_free(&b);
	life_free(&a);
	rig_close(&g);
}

/* A conversation: each prompt holds the one before, its answer and more.  After a
 * stop token the whole answer is there to be found. */
static void test_conversation(void)
{
	struct rig_opts o = roomy;
	struct rig g;
	int32_t t[LIFE_MAX];
	int n = 12, before = 0;

	o.prefix_bytes = 1 << 20;
	g = rig_open(&o);
	for (int i = 0; i < n; i++)
		t[i] = i;
	for (int turn = 0; turn < 6; turn++) {
		struct answer alone;
		struct life l;

		life_init(&l, 1, 250, 1);
		memcpy(l.prompt, t, (size_t)n * sizeof(*t));
		l.ask.n_prompt = n;
		l.ask.max_tokens = 7;
		life_alone(&l, g.m, life_room(g.m), tok, toy_logits, &alone);
		l.ask.stop_token = &alone.tok[5]; /* the sixth token ends it */
		l.ask.n_stop_token = 1;
		run_one(&l, &g);
		CHECK(l.end.finish == FINISH_STOP && l.got.n <= 5, "stop token");
		CHECK(l.cached == before, "turn %d: %d of %d cached, not %d", turn, l.cached, n, before);
		memcpy(t + n, l.got.tok, (size_t)l.got.n * sizeof(*t));
		n += l.got.n;
		before = n;
		t[n++] = alone.tok[5];
		t[n++] = 40 + turn;
		life_free(&l);
	}
	rig_close(&g);
}

static void test_marks(void)
{
	static const int mark[] = { 20, 31, 500 };
	struct rig_opts o = roomy;
	struct rig g;
	struct life l;
	int32_t t[LIFE_MAX];

	o.prefix_bytes = 1 << 20;
	g = rig_open(&o);
	life_init(&l, 50, 250, 4);
	memcpy(t, l.prompt, sizeof(t));
	l.ask.mark = mark;
	l.ask.n_mark = 3;
	run_one(&l, &g);
	life_free(&l);
	t[40]++;
	run_prefix(&g, &l, t, 50, 40);
	life_free(&l);
	t[25]++;
	run_prefix(&g, &l, t, 50, 20);
	life_free(&l);
	rig_close(&g);
}

/* Without recurrent state any common beginning will do, and one entry holds them all. */
static void test_prefix_attention(void)
{
	struct rig_opts o = roomy;
	struct rig g;
	struct life l;
	int32_t t[LIFE_MAX];

	o.prefix_bytes = 1 << 20;
	o.toy.attention_only = true;
	g = rig_open(&o);
	life_init(&l, 50, 250, 11);
	memcpy(t, l.prompt, sizeof(t));
	run_prefix(&g, &l, t, 50, 0);
	CHECK(stats_of(&g).prefix.entries == 1, "%d entries", stats_of(&g).prefix.entries);
	life_free(&l);
	for (int at = 49; at > 0; at--) {
		t[at]++;
		run_prefix(&g, &l, t, at + 1, at);
		life_free(&l);
		t[at]--;
	}
	rig_close(&g);
}

/* Budgets are kept: of bytes, of snapshots, of pages. */
static void test_prefix_budget(void)
{
	struct rig_opts o = roomy;

	for (int kind = 0; kind < 3; kind++) {
		struct rig g;
		struct life l;

		o = roomy;
		o.prefix_bytes = kind == 0 ? 20000 : 1 << 20;
		o.toy.snaps = kind == 1 ? 3 : 0;
		if (kind == 2) {
			o.toy.pages = 12;
			o.toy.slots = o.seqs = 1;
		}
		g = rig_open(&o);
		for (int i = 0; i < 30; i++) {
			struct engine_stats s;

			life_init(&l, 60, 250, (uint64_t)i % 7);
			l.want_rows = true;
			l.ask.max_tokens = 20;
			run_one(&l, &g);
			life_free(&l);
			s = stats_of(&g);
			CHECK(s.prefix.bytes <= o.prefix_bytes, "%zu bytes kept", s.prefix.bytes);
			CHECK(kind != 1 || s.prefix.entries <= 3, "%d entries", s.prefix.entries);
		}
		CHECK(stats_of(&g).prefix.entries > 0, "nothing was kept");
		rig_close(&g);
	}
}

/* ---- memory short ---- */

static void test_preempt(void)
{
	static struct life l[6];

	for (int page_rows = 1; page_rows <= 16; page_rows *= 4)
		for (int cache = 0; cache < 2; cache++) {
			struct rig_opts o = roomy;
			struct rig g;

			/* Room for the prompts together, and for one answer. */
			o.toy.page_rows = page_rows;
			o.toy.pages = 160 / page_rows;
			o.prefix_bytes = cache ? 1 << 20 : 0;
			o.reserve = 1;
			g = rig_open(&o);
			for (int i = 0; i < 6; i++) {
				life_init(&l[i], 10 + 2 * i, 250, 40 + (uint64_t)i);
				l[i].want_rows = true;
				l[i].ask.max_tokens = 100;
				l[i].ask.sampling.temperature = i % 2;
				submit(&l[i], &g);
			}
			pump(&g);
			CHECK(stats_of(&g).preempted > 0, "nobody was preempted");
			for (int i = 0; i < 6; i++) {
				life_read(&l[i], false);
				CHECK(l[i].done && l[i].end.finish == FINISH_LENGTH && l[i].got.n == 100, "request %d",
				      i);
				check(&l[i], &g, false);
				life_free(&l[i]);
			}
			rig_close(&g);
		}
}

static void test_limits(void)
{
	struct rig_opts o = roomy;
	struct rig g;
	struct life l;
	struct err err;
	int32_t bad[] = { 1, 2, TOY_VOCAB };

	o.queue = 3;
	o.toy.pages = 10; /* 80 positions: less than the context */
	g = rig_open(&o);
	/* Prompts at the edge of what fits: 80 would leave no room for a token. */
	life_init(&l, 79, 250, 1);
	l.ask.max_tokens = 50;
	run_one(&l, &(struct rig){ g.m, g.e });
	CHECK(l.got.n == 1 && l.got.finish == FINISH_LENGTH, "%d tokens", l.got.n);
	life_free(&l);
	life_init(&l, 80, 250, 1);
	l.ask.max_tokens = 1;
	CHECK(life_submit(&l, g.e, &err) == E_LIMIT && strstr(err.msg, "80"), "%s", err.msg);
	l.ask.max_tokens = 0;
	CHECK(!life_submit(&l, g.e, &err), "%s", err.msg);
	pump(&g);
	life_read(&l, false);
	CHECK(l.done && l.progress == 80, "the whole pool");
	life_free(&l);
	life_init(&l, 300, 250, 1);
	l.ask.max_tokens = 1;
	CHECK(life_submit(&l, g.e, &err) == E_LIMIT && strstr(err.msg, "300") && strstr(err.msg, "256"), "%s", err.msg);
	l.ask.n_prompt = 0;
	CHECK(life_submit(&l, g.e, &err) == E_ARG, "no prompt");
	l.ask.n_prompt = 3;
	l.ask.prompt = bad;
	CHECK(life_submit(&l, g.e, &err) == E_ARG && strstr(err.msg, "300"), "%s", err.msg);
	l.ask.prompt = l.prompt;
	l.ask.max_tokens = -1;
	CHECK(life_submit(&l, g.e, &err) == E_ARG, "max_tokens -1");
	rig_close(&g);
}

static void test_queue_full(void)
{
	static struct life l[5];
	struct rig_opts o = roomy;
	struct rig g;
	struct err err;

	o.seqs = 1;
	o.queue = 3;
	g = rig_open(&o);
	for (int i = 0; i < 5; i++) {
		life_init(&l[i], 10, 250, (uint64_t)i);
		l[i].ask.max_tokens = 5;
		if (i == 4) {
			CHECK(life_submit(&l[i], g.e, &err) == E_FULL && strstr(err.msg, "3"),
			      "a queue of 3 took a 4th");
			break;
		}
		submit(&l[i], &g);
		if (i == 0)
			engine_step(g.e); /* runs; the others wait */
	}
	CHECK(stats_of(&g).waiting == 3 && stats_of(&g).running == 1, "waiting");
	/* Leaving the queue makes room at the next step. */
	request_cancel(l[2].r);
	engine_step(g.e);
	submit(&l[4], &g);
	pump(&g);
	for (int i = 0; i < 5; i++) {
		life_read(&l[i], false);
		check(&l[i], &g, i == 2);
		CHECK(l[i].end.finish == (i == 2 ? FINISH_CANCEL : FINISH_LENGTH), "request %d", i);
		CHECK(l[i].started == (i != 2), "request %d", i);
		life_free(&l[i]);
	}
	rig_close(&g);
}

/* ---- the end of an answer ---- */

static void test_max_tokens(void)
{
	struct rig g = rig_open(&roomy);

	for (int n = 0; n < 4; n++) {
		struct life l;

		life_init(&l, 20, 250, 5);
		l.want_rows = true;
		l.ask.max_tokens = n;
		run_one(&l, &g);
		CHECK(l.got.n == n && l.got.finish == FINISH_LENGTH, "%d tokens", l.got.n);
		life_free(&l);
	}
	/* The context's end: 256 positions, the answer included. */
	for (int n = 254; n < 256; n++) {
		struct life l;

		life_init(&l, n, 250, 5);
		l.ask.max_tokens = 1000;
		run_one(&l, &g);
		CHECK(l.got.n == 256 - n && l.got.finish == FINISH_LENGTH, "%d tokens", l.got.n);
		life_free(&l);
	}
	rig_close(&g);
}

/* What is chosen after given tokens is what the same tokens in the prompt lead to,
 * and they are given where they should be. */
static void test_lead(void)
{
	static const int32_t end[] = { 11, 112, 13 }, then[] = { 221, 62 };
	struct rig g = rig_open(&roomy);

	for (int k = 0; k < 24; k++) {
		bool thinking = k & 1, long_one = k & 2;
		int bound = k / 4 < 5 ? k / 4 : -1, n_given, from;
		struct lead lead = { .thinking = thinking,
			             .open = -1,
			             .close = 13,
			             .think_max = bound,
			             .end = end,
			             .n_end = 3,
			             .then = then,
			             .n_then = 2 };
		struct life l, free_one, rest;

		life_init(&free_one, 30, 250, 900 + (uint64_t)k);
		free_one.ask.max_tokens = 1;
		free_one.ask.sampling.temperature = long_one ? 1 : 0;
		free_one.ask.sampling.seed = (uint64_t)k;
		run_one(&free_one, &g);
		/* Without a bound the thought's own first token ends it. */
		if (bound < 0)
			lead.close = free_one.got.tok[0];
		if (!thinking && long_one) { /* the first token opens one, and nothing follows */
			lead.open = free_one.got.tok[0];
			lead.n_then = 0;
		}
		life_init(&l, 30, 250, 900 + (uint64_t)k);
		l.ask.sampling = free_one.ask.sampling;
		l.ask.sampling.n_logprobs = 0;
		l.ask.max_tokens = 30;
		l.ask.lead = &lead;
		submit(&l, &g);
		pump(&g);
		life_read(&l, false);
		CHECK(l.got.n == 30, "%d tokens", l.got.n);
		if (thinking || lead.open >= 0) {
			from = bound < 0 ? (thinking ? 1 : 30) : bound + (lead.open >= 0);
			n_given = from == 30 ? 0 : (bound < 0 ? 0 : 3) + lead.n_then;
			for (int i = 0; i < 3 && bound >= 0; i++)
				CHECK(l.got.tok[from + i] == end[i], "case %d: token %d is %d", k, from + i,
				      l.got.tok[from + i]);
		} else {
			from = 0;
			n_given = 2;
		}
		for (int i = 0; i < lead.n_then && from < 30; i++)
			CHECK(l.got.tok[from + n_given - lead.n_then + i] == then[i], "case %d: then %d", k, i);
		/* The same from there on, and before it. */
		for (int part = 0; part < 2; part++) {
			int at = part ? from + n_given : 0, n = part ? 30 - at : from;

			if (n <= 0)
				continue;
			life_init(&rest, 30, 250, 900 + (uint64_t)k);
			for (int i = 0; i < at; i++)
				rest.prompt[30 + i] = l.got.tok[i];
			rest.ask.n_prompt = 30 + at;
			rest.ask.sampling = l.ask.sampling;
			rest.ask.max_tokens = n;
			run_one(&rest, &g);
			CHECK(!memcmp(rest.got.tok, l.got.tok + at, (size_t)n * sizeof(int32_t)), "case %d, part %d", k,
			      part);
			CHECK(!memcmp(rest.got.logprob, l.got.logprob + at, (size_t)n * sizeof(float)),
			      "case %d, part %d", k, part);
			life_free(&rest);
		}
		/* A given token's logarithm is the model's. */
		for (int i = from; i < from + n_given; i++)
			CHECK(l.got.logprob[i] < 0, "case %d: %g", k, (double)l.got.logprob[i]);
		life_free(&l);
		life_free(&free_one);
	}
	struct lead bad = { .open = -1, .close = -1, .think_max = -1, .then = (int32_t[]){ TOY_VOCAB }, .n_then = 1 };
	struct life l;
	struct err err;

	life_init(&l, 3, 250, 1);
	l.ask.max_tokens = 1;
	l.ask.lead = &bad;
	CHECK(life_submit(&l, g.e, &err) == E_ARG, "an id that is none");
	rig_close(&g);
}

/* Every stop string that can be cut out of an answer, over token borders, and
 * what may be reused after it. */
static void test_stop_strings(void)
{
	struct rig_opts o = roomy;
	struct rig g;
	struct answer alone;
	struct life l;

	o.prefix_bytes = 4 << 20;
	g = rig_open(&o);
	life_init(&l, 10, 250, 6);
	l.ask.max_tokens = 30;
	l.ask.sampling.temperature = 1;
	life_alone(&l, g.m, life_room(g.m), tok, toy_logits, &alone);
	for (size_t at = 0; at < alone.n_text; at++)
		for (size_t n = 1; n <= 7 && at + n <= alone.n_text; n += 3) {
			char one[8] = { 0 };
			const char *stop[] = { "never said", one, "nor this" };
			struct answer want;

			memcpy(one, alone.text + at, n);
			if (utf8_valid(one, n) < n || strlen(one) < n)
				continue;
			life_init(&l, 10, 250, 6);
			l.ask.max_tokens = 30;
			l.ask.sampling.temperature = 1;
			l.ask.stop = stop;
			l.ask.n_stop = 3;
			life_alone(&l, g.m, life_room(g.m), tok, toy_logits, &want);
			CHECK(want.n_text <= at, "stop at %zu", at);
			run_one(&l, &g);
			CHECK(!strcmp(l.got.stop, one), "stop '%s', not '%s'", l.got.stop, one);
			life_free(&l);
		}
	/* An empty one is refused. */
	life_init(&l, 10, 250, 6);
	l.ask.stop = (const char *[]){ "" };
	l.ask.n_stop = 1;
	CHECK(life_submit(&l, g.e, &(struct err){ 0 }) == E_ARG, "empty stop");
	rig_close(&g);
}

/* After a stop string the caches are kept only as far as the text went out. */
static void test_stop_reuse(void)
{
	struct rig_opts o = roomy;
	struct rig g;
	struct life l;
	struct answer alone;
	int32_t t[LIFE_MAX];
	const char *stop[1];
	char one[64];
	int keep;

	o.prefix_bytes = 1 << 20;
	o.toy.attention_only = true; /* can go back to any position */
	g = rig_open(&o);
	life_init(&l, 10, 250, 21);
	l.ask.max_tokens = 30;
	life_alone(&l, g.m, life_room(g.m), tok, toy_logits, &alone);
	/* Stop at the text of tokens 12 and 13, as one string. */
	keep = 12;
	{
		struct answer head = alone;
		struct buf a, b;

		buf_init(&a);
		buf_init(&b);
		tokenizer_decode(tok, head.tok, (size_t)keep, false, &a);
		tokenizer_decode(tok, head.tok, (size_t)keep + 2, false, &b);
		CHECK(b.n > a.n && !memcmp(a.p, b.p, a.n), "text of tokens");
		snprintf(one, sizeof(one), "%s", b.p + a.n);
		buf_fini(&a);
		buf_fini(&b);
	}
	stop[0] = one;
	l.ask.stop = stop;
	l.ask.n_stop = 1;
	run_one(&l, &g);
	CHECK(l.end.finish == FINISH_STOP, "no stop");
	if (l.got.n == keep + 2) {
		memcpy(t, l.prompt, 10 * sizeof(*t));
		memcpy(t + 10, l.got.tok, (size_t)l.got.n * sizeof(*t));
		life_free(&l);
		run_prefix(&g, &l, t, 10 + keep + 2, 10 + keep);
	}
	life_free(&l);
	rig_close(&g);
}

/* ---- cancel ---- */

static void test_cancel(void)
{
	static struct life other[3], l;

	/* Cancelled after every number of steps: in the queue, in the prompt, in the answer. */
	for (int after = 0; after < 30; after++)
		for (int how = 0; how < 2; how++) {
			struct rig_opts o = roomy;
			struct rig g;
			int used;

			o.rows = 16;
			o.seqs = 3;
			g = rig_open(&o);
			for (int i = 0; i < 3; i++) {
				life_init(&other[i], 9 * i + 5, 250, 60 + (uint64_t)i);
				other[i].want_rows = true;
				other[i].ask.max_tokens = i ? 60 : 4; /* the first makes room */
				submit(&other[i], &g);
			}
			life_init(&l, 90, 250, 77);
			l.ask.max_tokens = 100;
			submit(&l, &g);
			for (int i = 0; i < after; i++)
				engine_step(g.e);
			if (how) {
				life_read(&l, false);
				life_free(&l); /* the reader just leaves */
			} else {
				request_cancel(l.r);
				request_cancel(l.r);
			}
			engine_step(g.e);
			used = stats_of(&g).kv.pages_used;
			CHECK(used <= 2 * (64 + 16) / 8 + 4, "%d pages after the cancel", used);
			CHECK(stats_of(&g).running <= 3 && stats_of(&g).finished[FINISH_CANCEL] == 1, "cancelled");
			if (!how) {
				life_read(&l, false);
				CHECK(l.done && l.end.finish == FINISH_CANCEL, "no DONE");
				check(&l, &g, true);
				life_free(&l);
			}
			pump(&g);
			for (int i = 0; i < 3; i++) {
				life_read(&other[i], false);
				check(&other[i], &g, false);
				life_free(&other[i]);
			}
			CHECK(stats_of(&g).kv.pages_used == 0, "pages");
			rig_close(&g);
		}
}

/* Closing with everything under way: each gets its DONE, also when read later. */
static void test_close(void)
{
	static struct life l[4];
	struct rig_opts o = roomy;
	struct rig g;

	o.seqs = 2;
	g = rig_open(&o);
	for (int i = 0; i < 4; i++) {
		life_init(&l[i], 30, 250, (uint64_t)i);
		l[i].ask.max_tokens = 100;
		submit(&l[i], &g);
	}
	for (int i = 0; i < 5; i++)
		engine_step(g.e);
	engine_close(g.e);
	toy_close(g.m);
	for (int i = 0; i < 4; i++) {
		life_read(&l[i], true);
		CHECK(l[i].end.finish == FINISH_CANCEL, "request %d", i);
		life_free(&l[i]);
	}
}

/* A request that breaks breaks alone. */
static void test_fault(void)
{
	static struct life l[3];
	struct rig g = rig_open(&roomy);

	for (int i = 0; i < 3; i++) {
		life_init(&l[i], 20, 250, 80 + (uint64_t)i);
		l[i].ask.max_tokens = 20;
		if (i == 1)
			l[i].prompt[19] = TOY_POISON;
		submit(&l[i], &g);
	}
	pump(&g);
	for (int i = 0; i < 3; i++) {
		life_read(&l[i], false);
		CHECK(l[i].done && l[i].end.finish == (i == 1 ? FINISH_ERROR : FINISH_LENGTH), "request %d", i);
		CHECK(i != 1 || (l[i].end.err.code && l[i].end.err.msg[0]), "no message");
		check(&l[i], &g, false);
		life_free(&l[i]);
	}
	CHECK(stats_of(&g).finished[FINISH_ERROR] == 1, "counted");
	rig_close(&g);
}

/* notify comes once per filling of the box. */
static void count_up(void *arg)
{
	++*(int *)arg;
}

static void test_notify(void)
{
	struct rig g = rig_open(&roomy);
	struct life l;
	int calls = 0, before;

	life_init(&l, 5, 250, 1);
	l.ask.max_tokens = 10;
	l.ask.notify = count_up;
	l.ask.notify_arg = &calls;
	submit(&l, &g);
	engine_step(g.e);
	CHECK(calls == 1, "%d calls", calls);
	engine_step(g.e);
	CHECK(calls == 1, "%d calls for a box that was never emptied", calls);
	life_read(&l, false);
	engine_step(g.e);
	CHECK(calls == 2, "%d calls", calls);
	before = calls;
	life_free(&l);
	pump(&g);
	CHECK(calls == before, "called after the reader had left");
	rig_close(&g);
}

/* ---- many lives ---- */

static void test_lives(uint64_t seed)
{
	uint64_t s = seed;
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
	};
	struct lives_opts lo = { .steps = 400, .prompt_max = 90, .answer_max = 60, .poison = TOY_POISON };
	struct rig g;

	o.seqs = 1 + (int)dice(&s, (uint64_t)o.toy.slots);
	o.few_logits = dice(&s, 2);
	o.park = dice(&s, 3) ? 1 << (8 + dice(&s, 10)) : 0;
	jump = dice(&s, 2) ? 200000000 : 0; /* some steps take long: chunks of all sizes */
	o.reserve = dice(&s, 2) ? 1 + (int)dice(&s, 30) : 0;
	/* From just enough for one to enough for all. */
	o.toy.pages = (180 / o.toy.page_rows + 1) * (1 + (int)dice(&s, 3));
	g = rig_open(&o);
	lives_many(g.e, g.m, tok, toy_logits, &lo, &s);
	rig_close(&g);
}

int main(int argc, char **argv)
{
	/* More lives than a test run has time for: test_engine COUNT [FIRST]. */
	uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : getenv("WEFT_TEST_QUICK") ? 20 : 60;
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

	tok = toy_tokenizer();
	test_alone();
	test_together();
	test_chunks();
	test_split_sizes();
	test_resume();
	test_prefix();
	test_conversation();
	test_marks();
	test_prefix_attention();
	test_prefix_budget();
	test_preempt();
	test_limits();
	test_queue_full();
	test_max_tokens();
	test_lead();
	test_stop_strings();
	test_stop_reuse();
	test_cancel();
	test_close();
	test_fault();
	test_notify();
	for (uint64_t i = 0; i < n; i++)
		test_lives((first + i) * 1000003);
	tokenizer_close(tok);
	return 0;
}
