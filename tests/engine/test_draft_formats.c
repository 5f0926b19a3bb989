/* test_draft_formats.c - drafts over every format of keys and values: over a real
 * model, with drafters that are right, wrong, either, and right up to each index,
 * greedy and sampled, over prompts new and known, with a mask, a stop token, a stop
 * string that two tokens make, every interesting max_tokens, and cancelled half way,
 * the answers with all logits, the bytes of all caches after each step, and what the
 * next turn finds are those of plain decoding.  The list of formats is the program's
 * own.
 *
 *     test_draft_formats TOKENIZER-JSON MODEL [--head FOLDER] [FORMAT...]: of these formats alone, with every
 *     max_tokens; with a draft head, whose own guesses are told at first, and those of such drafters in their
 *     place afterwards.  Its guesses after so many tokens are the same, whatever was told and taken back before.
 *     FOLDER own: the model's own head.  A folder may be "shared:PATH", beside the checkout: where that is not there nothing is tested */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "driver.h"
#include "test_backend.h"
#include "engine/core.h"
#include "guess.h"
#include "lives.h"
#include "rows.h"

enum { CTX = 96, STEP = 64, DEPTH = 4, PROMPT = 40, KNOWN = 30, MOST = 2 * DEPTH + 2 };

static struct store *st;
static struct tokenizer *tok;
static int vocab; /* tokens that prompts are made of */
static struct backend *be;
static struct store *head_st; /* NULL: drafters that know */

struct rig {
	struct model *m, *head;
	struct engine *e;
	struct guesser guess;
	struct rigged rigged;
	struct drafter *drafter;
};

static void rig_open(struct rig *g, struct kv_pair pair, bool drafts)
{
	struct model_opts mo = { .arith = ARITH_FAST,
		                 .slots = 1,
		                 .ctx_max = CTX,
		                 .step_rows = STEP,
		                 .tape_rows = DEPTH,
		                 .snap_bytes = 1 << 23,
		                 .kv = { .all = pair } };
	struct engine_opts eo = { .seqs_max = 1,
		                  .step_rows = STEP,
		                  .logit_rows = STEP,
		                  .queue_max = 2,
		                  .prefix_bytes = 1 << 23,
		                  .by_hand = true,
		                  .n_draft = drafts ? DEPTH : 0,
		                  .n_drafter = drafts,
		                  .draft_fixed = true };
	struct err err;

	guesser_init(&g->guess, GUESS_RIGHT);
	g->head = NULL;
	g->drafter = &g->guess.d;
	CHECK(!model_open(&g->m, st, be, &mo, &err), "%s", err.msg);
	if (drafts && head_st) {
		mo.kv = (struct kv_rows){ 0 };
		CHECK(!model_bind_head(&g->head, g->m, head_st, &err), "%s", err.msg);
		mo.step_rows = draft_head_rows(&g->head->shape, 1);
		CHECK(!model_attach(g->head, be, &mo, &err), "%s", err.msg);
		CHECK(!draft_head_open(&g->drafter, g->head, 1, 1 << 22, &err), "%s", err.msg);
		rigged_init(&g->rigged, g->drafter, true);
		g->drafter = &g->rigged.d;
	}
	eo.drafter[0] = g->drafter;
	CHECK(!engine_open(&g->e, g->m, tok, &eo, &err), "%s", err.msg);
}

static void rig_close(struct rig *g)
{
	struct engine_stats s;

	engine_stats(g->e, &s);
	engine_close(g->e);
	if (g->head) {
		printf("  %s: %d of %d in %d rounds, %d guessed twice\n", s.drafter[0].name, (int)s.drafter[0].accepted,
		       (int)s.drafter[0].drafted, (int)s.drafter[0].rounds, (int)g->rigged.compared);
		CHECK(s.drafter[0].rounds > 20 && g->rigged.compared > 20, "the head says nothing");
		CHECK(s.drafter[0].accepted > s.drafter[0].drafted / 10, "hardly a draft comes true");
		g->drafter->ops->close(g->drafter);
	}
	model_close(g->head);
	model_close(g->m);
}

/* ---- what the caches hold ---- */

static struct buf at[CTX]; /* of plain decoding */

static void look(struct rig *g, bool plain)
{
	struct request *r = g->e->sched.n_run ? g->e->sched.run[0] : NULL;

	if (r && r->pos)
		caches_held(&g->m->caches, r->slot, r->pos, at, plain);
}

/* ---- a request ---- */

struct cell {
	bool sampled, known, masked;
	int32_t stop;          /* a token; -1: none */
	const char *stop_text; /* NULL: none */
	int max_tokens;
};

static void ask(struct life *l, const struct cell *c)
{
	life_init(l, PROMPT, vocab, 3);
	l->ask.max_tokens = c->max_tokens;
	l->ask.sampling.n_logprobs = 2;
	l->want_rows = true;
	l->masked = c->masked ? 11 : 0;
	if (c->sampled) {
		l->ask.sampling.temperature = 1;
		l->ask.sampling.seed = 7;
		l->ask.sampling.repetition_penalty = 1.2f;
	}
	if (c->stop >= 0) {
		l->ask.stop_token = &c->stop;
		l->ask.n_stop_token = 1;
	}
	if (c->stop_text) {
		l->ask.stop = &c->stop_text;
		l->ask.n_stop = 1;
	}
}

static void submit(struct rig *g, struct life *l)
{
	struct err err;

	CHECK(!life_submit(l, g->e, &err), "%s", err.msg);
}

static void finish(struct rig *g, struct life *l)
{
	while (engine_step(g->e))
		;
	life_read(l, false);
	CHECK(l->done, "not done");
}

/* As cold as at first, or with the beginning of the prompt known. */
static void prepare(struct rig *g, const struct cell *c)
{
	struct life l;
	int dropped;

	CHECK(!engine_prefix_drop(g->e, &(struct prefix_spot){ 0 }, &dropped), "drop");
	if (!c->known)
		return;
	life_init(&l, PROMPT, vocab, 3);
	l.ask.n_prompt = KNOWN;
	l.ask.max_tokens = 1;
	submit(g, &l);
	finish(g, &l);
	life_free(&l);
}

/* What is known of the conversation afterwards. */
static int next_turn(struct rig *g, const struct life *l)
{
	struct life next;
	int cached;

	life_init(&next, 1, vocab, 1);
	memcpy(next.prompt, l->prompt, PROMPT * sizeof(*next.prompt));
	memcpy(next.prompt + PROMPT, l->got.tok, (size_t)l->got.n * sizeof(*next.prompt));
	next.ask.n_prompt = PROMPT + l->got.n + 1;
	next.prompt[next.ask.n_prompt - 1] = 9;
	next.ask.max_tokens = 1;
	submit(g, &next);
	finish(g, &next);
	cached = next.cached;
	life_free(&next);
	return cached;
}

struct plain {
	struct life l;
	int turn;
};

static void run_plain(struct rig *g, const struct cell *c, struct plain *p)
{
	prepare(g, c);
	ask(&p->l, c);
	submit(g, &p->l);
	while (engine_step(g->e))
		look(g, true);
	finish(g, &p->l);
	p->turn = next_turn(g, &p->l);
}

static void run_drafted(struct rig *g, const struct cell *c, const struct plain *p)
{
	size_t row = (size_t)g->m->shape.vocab * sizeof(float);
	struct life l;
	int turn;

	prepare(g, c);
	ask(&l, c);
	submit(g, &l);
	while (engine_step(g->e))
		look(g, false);
	finish(g, &l);
	CHECK(!memcmp(&l.got, &p->l.got, sizeof(l.got)), "the answers differ");
	CHECK(l.cached == p->l.cached && l.row_max == p->l.row_max, "cached %d, %d", l.cached, p->l.cached);
	for (int i = 0; i <= l.row_max; i++)
		CHECK(!l.row[i] == !p->l.row[i] && (!l.row[i] || !memcmp(l.row[i], p->l.row[i], row)),
		      "the logits of row %d differ", i);
	turn = next_turn(g, &l);
	CHECK(turn == p->turn, "the next turn finds %d positions, and %d after plain decoding", turn, p->turn);
	life_free(&l);
}

/* Cancelled after so many steps: what came is the beginning, and all of it comes when it is asked again. */
static void run_cancelled(struct rig *g, const struct cell *c, const struct plain *p, int steps)
{
	struct life l;

	prepare(g, c);
	ask(&l, c);
	submit(g, &l);
	for (int i = 0; i < steps && engine_step(g->e); i++)
		look(g, false);
	request_cancel(l.r);
	finish(g, &l);
	CHECK(l.got.n <= p->l.got.n && !memcmp(l.got.tok, p->l.got.tok, (size_t)l.got.n * sizeof(*l.got.tok)),
	      "another beginning");
	life_free(&l);
	ask(&l, c);
	submit(g, &l);
	while (engine_step(g->e))
		look(g, false);
	finish(g, &l);
	CHECK(!memcmp(&l.got, &p->l.got, sizeof(l.got)), "the answer after a cancelled one differs");
	life_free(&l);
}

/* ---- all of them ---- */

static void test_cell(struct rig *plain, struct rig *drafted, const struct cell *c, bool quick)
{
	static struct plain p;
	static int32_t all[2 * LIFE_MAX];
	struct guesser *g = &drafted->guess;
	struct told told = { all, 0 };

	run_plain(plain, c, &p);
	CHECK(!c->stop_text || !strcmp(p.l.got.stop, c->stop_text), "%s did not stop the answer", c->stop_text);
	memcpy(all, p.l.prompt, PROMPT * sizeof(*all));
	memcpy(all + PROMPT, p.l.got.tok, (size_t)p.l.got.n * sizeof(*all));
	told.n = PROMPT + p.l.got.n;
	g->told = &told;
	g->n_told = 1;
	if (head_st) {
		rigged_clear(&drafted->rigged);
		drafted->rigged.by = NULL;
		run_drafted(drafted, c, &p);
		drafted->rigged.by = g;
	}
	for (int how = quick ? GUESS_TURN : GUESS_RIGHT; how <= (quick ? GUESS_TURN : GUESS_DICE); how++)
		for (g->turn = 0; g->turn < (how == GUESS_TURN ? DEPTH : 1); g->turn++) {
			g->how = (enum guess)how;
			run_drafted(drafted, c, &p);
		}
	g->how = GUESS_TURN;
	g->turn = 2;
	for (int steps = 1; steps <= (quick ? 1 : 2); steps++)
		run_cancelled(drafted, c, &p, steps);
	life_free(&p.l);
}

/* A stop in the middle of a run of drafts: the fourth token of the answer; then, where
 * tokens have text, what the fourth and the fifth read together. */
static void test_stops(struct rig *plain, struct rig *drafted, struct cell c, bool quick)
{
	struct plain p;
	struct detok d;
	struct buf text;

	run_plain(plain, &c, &p);
	c.stop = p.l.got.n > 3 ? p.l.got.tok[3] : -1;
	test_cell(plain, drafted, &c, quick);
	c.stop = -1;
	buf_init(&text);
	detok_init(&d, tok, false);
	for (int i = 0; i < 5 && i < p.l.got.n; i++) {
		if (i == 3) /* a character may begin in the tokens before */
			text.n = 0;
		detok_put(&d, p.l.got.tok[i], &text);
	}
	if (p.l.got.n <= 3)
		text.n = 0;
	if (text.n) {
		buf_putc(&text, 0);
		c.stop_text = text.p;
		test_cell(plain, drafted, &c, quick);
	}
	buf_fini(&text);
	life_free(&p.l);
}

static void test_pair(struct kv_pair pair, bool every, bool quick)
{
	struct rig plain, drafted;

	printf("keys %s, values %s\n", pair.k->name, pair.v->name);
	rig_open(&plain, pair, false);
	rig_open(&drafted, pair, true);
	for (int v = 0; v < 8; v++)
		for (int max = quick ? MOST : 1; max <= MOST; max++) {
			struct cell c = {
				.sampled = v & 1, .known = v & 2, .masked = v & 4, .stop = -1, .max_tokens = max
			};

			if ((quick && v % 3) || (!every && max != 1 && max != DEPTH + 1 && max != MOST))
				continue;
			test_cell(&plain, &drafted, &c, quick);
			if (max < DEPTH + 1 || c.masked)
				continue;
			test_stops(&plain, &drafted, c, quick);
		}
	rig_close(&plain);
	rig_close(&drafted);
}

static bool named(char **names, const char *name)
{
	while (*names && strcmp(*names, name))
		names++;
	return *names;
}

int main(int argc, char **argv)
{
	bool quick = getenv("WEFT_TEST_QUICK") != NULL;
	struct model *m;
	struct buf json;
	struct err err;
	int dim;

	CHECK(argc >= 3, "test_draft_formats TOKENIZER-JSON MODEL [FORMAT...]");
	log_set_level(LOG_WARN);
	buf_init(&json);
	CHECK(!file_read(argv[1], 1 << 24, &json, &err) && !tokenizer_open(&tok, json.p, json.n, &err), "%s", err.msg);
	buf_fini(&json);
	be = test_backend_open(1, cpu_detect());
	if (!shared_argument(argv, 2) || (argc > 4 && !shared_argument(argv, 4)))
		return 77; /* skipped; shared_folder said why */
	CHECK(!store_open(&st, argv[2], &err) && !model_bind(&m, st, &err), "%s", err.msg);
	if (argc > 4 && !strcmp(argv[3], "--head")) {
		if (!strcmp(argv[4], "own"))
			head_st = st;
		else
			CHECK(!store_open(&head_st, argv[4], &err), "%s", err.msg);
		argv[4] = argv[2];
		argv += 2;
		argc -= 2;
	}
	dim = m->shape.kv[0].dim_k;
	vocab = m->shape.vocab < 2000 ? m->shape.vocab : 2000;
	model_close(m);
	for (int i = 0; kv_formats[i]; i++) {
		const struct kv_format *f = kv_formats[i], *g = kv_formats[i + 1] ? kv_formats[i + 1] : kv_formats[0];

		if (!f->row_bytes(dim) || (argc > 3 && !named(argv + 3, f->name)))
			continue;
		if (quick && argc == 3 && i % 3 != 1) /* one of plain rows, of 8, of 4 and of few bits */
			continue;
		test_pair((struct kv_pair){ f, f }, argc > 3, quick);
		if (g->row_bytes(dim) && !quick && argc == 3)
			test_pair((struct kv_pair){ f, g }, false, true);
	}
	for (int i = 0; i < CTX; i++)
		buf_fini(&at[i]);
	tokenizer_close(tok);
	if (head_st != st)
		store_close(head_st);
	store_close(st);
	be->ops->close(be);
	return 0;
}
