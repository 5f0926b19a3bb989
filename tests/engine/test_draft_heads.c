/* test_draft_heads.c - draft heads among others, over a model of random weights, with drafts that come true (struct
 * rigged), one head and all of them at once: together, pushed out by more urgent requests and back, moved to another slot, and with what is kept on disk,
 * the answers are those of each request alone and cold without drafts, greedy and sampled.
 *
 *     test_draft_heads TOKENIZER-JSON MODEL HEAD...     "own": the model's own; a folder may be "shared:PATH", beside the checkout */
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
#include "spill_world.h"

enum { CTX = 256, STEP = 48, SLOTS = 2, DEPTH = 4, LIVES = 6, ANSWER = 50 };

enum { HEADS_MAX = 4 };
static struct store *st, *head_st[HEADS_MAX];
static int n_head; /* that draft */
static struct tokenizer *tok;
static struct backend *be;
static int vocab;

/* Stands still, so that whatever is on disk is waited for. */
static int64_t stands(struct clock *c)
{
	return 1;
}
static struct clock still = { stands };

struct how {
	bool chosen; /* drafters are chosen by what they gain */
	int slots;
	size_t park_bytes;
	const char *disk_dir; /* NULL: nothing is kept on disk */
};

struct rig {
	struct model *m, *head[HEADS_MAX];
	struct engine *e;
	struct guesser guess[HEADS_MAX];
	struct rigged rigged[HEADS_MAX];
	int n_head;
};

static void head_open(struct rig *g, const struct how *h, struct model_opts mo, const struct told *told, int n_told,
                      struct engine_opts *eo)
{
	int k = g->n_head++;
	struct drafter *head;
	struct err err;

	CHECK(!model_bind_head(&g->head[k], g->m, head_st[k], &err), "%s", err.msg);
	mo.step_rows = draft_head_rows(&g->head[k]->shape, h->slots);
	CHECK(!model_attach(g->head[k], be, &mo, &err), "%s", err.msg);
	CHECK(!draft_head_open(&head, g->head[k], h->slots, 1 << 22, &err), "%s", err.msg);
	rigged_init(&g->rigged[k], head, false);
	guesser_init(&g->guess[k], GUESS_DICE);
	g->guess[k].told = told;
	g->guess[k].n_told = n_told;
	g->guess[k].dice = (uint64_t)k + 1;
	g->rigged[k].by = &g->guess[k];
	if (h->disk_dir)
		g->rigged[k].d.identity.b[0] = (unsigned char)(1 + k);
	eo->drafter[k] = &g->rigged[k].d;
}

static void rig_open(struct rig *g, const struct how *h, bool drafts, const struct told *told, int n_told)
{
	struct model_opts mo = { .arith = ARITH_FAST,
		                 .slots = h->slots,
		                 .ctx_max = CTX,
		                 .step_rows = STEP,
		                 .tape_rows = DEPTH,
		                 .snap_bytes = 1 << 24 };
	struct engine_opts eo = { .seqs_max = h->slots,
		                  .step_rows = STEP,
		                  .queue_max = 2 * LIVES,
		                  .prefix_bytes = 1 << 23,
		                  .park_bytes = h->park_bytes,
		                  .by_hand = true,
		                  .n_draft = drafts ? DEPTH : 0,
		                  .n_drafter = drafts ? n_head : 0,
		                  .draft_fixed = !h->chosen };
	struct err err;

	memset(g, 0, sizeof *g);
	CHECK(!model_open(&g->m, st, be, &mo, &err), "%s", err.msg);
	while (drafts && g->n_head < n_head)
		head_open(g, h, mo, told, n_told, &eo);
	if (h->disk_dir) {
		eo.disk.dir = h->disk_dir;
		eo.disk.bytes = 1 << 28;
		eo.disk.io = world_io();
		eo.clock = &still;
	}
	CHECK(!engine_open(&g->e, g->m, tok, &eo, &err), "%s", err.msg);
}

static struct engine_stats rig_close(struct rig *g, const struct how *h, const char *what)
{
	struct engine_stats s;

	engine_stats(g->e, &s);
	engine_close(g->e);
	for (int k = 0; k < g->n_head; k++) {
		printf("  %s: %s %d of %d in %d rounds, %d pushed out, %d resumed\n", what, s.drafter[k].name,
		       (int)s.drafter[k].accepted, (int)s.drafter[k].drafted, (int)s.drafter[k].rounds,
		       (int)s.preempted, (int)s.resumed);
		/* Those behind the first speak when it says nothing, or when it is worth knowing them. */
		CHECK(k || h->chosen || s.drafter[k].accepted > 10, "%s: hardly a draft comes true", what);
		g->rigged[k].d.ops->close(&g->rigged[k].d);
		model_close(g->head[k]);
	}
	model_close(g->m);
	return s;
}

/* ---- requests ---- */

static void life_of(struct life *l, int i)
{
	static const int prompt[LIVES] = { 20, 130, 75, 3, 64, 40 };

	life_init(l, prompt[i], vocab, 100 + (uint64_t)i);
	l->ask.max_tokens = ANSWER;
	l->ask.sampling.n_logprobs = 2;
	if (i % 2) {
		l->ask.sampling.temperature = 1;
		l->ask.sampling.seed = (uint64_t)i;
	}
}

static void submit(struct rig *g, struct life *l)
{
	struct err err;

	CHECK(!life_submit(l, g->e, &err), "%s", err.msg);
}

/* Alone and cold; what is told of it goes to all. */
static void run_plain(struct life *l, struct answer *want, struct told *told, int32_t *all)
{
	struct how h = { .slots = 1 };
	struct rig g;

	rig_open(&g, &h, false, NULL, 0);
	submit(&g, l);
	while (engine_step(g.e))
		;
	life_read(l, false);
	CHECK(l->done, "not done");
	*want = l->got;
	memcpy(all, l->prompt, (size_t)l->ask.n_prompt * sizeof *all);
	memcpy(all + l->ask.n_prompt, l->got.tok, (size_t)l->got.n * sizeof *all);
	*told = (struct told){ all, l->ask.n_prompt + l->got.n };
	life_free(l);
	rig_close(&g, &h, "plain");
}

static struct answer want[LIVES + 1];
static struct told told[LIVES + 1];
static int32_t all[LIVES + 1][LIFE_MAX];

static void check(struct life *l, const struct answer *a, const char *what)
{
	life_read(l, false);
	CHECK(l->done && !memcmp(&l->got, a, sizeof *a), "%s: '%.*s', alone '%.*s'", what, (int)l->got.n_text,
	      l->got.text, (int)a->n_text, a->text);
	life_free(l);
}

/* All at once; some of them urgent, and late; some move to another slot half way. */
static void test_together(size_t park_bytes, bool chosen)
{
	static struct life l[LIVES];
	struct how h = { .chosen = chosen, .slots = SLOTS, .park_bytes = park_bytes };
	struct rig g;
	struct engine_stats s;
	int n = 2;

	rig_open(&g, &h, true, told, LIVES);
	for (int i = 0; i < LIVES; i++) {
		life_of(&l[i], i);
		l[i].ask.priority = i < 2 ? 0 : i;
		if (i == 4)
			l[i].ask.resume_at = l[i].ask.n_prompt + 7;
	}
	submit(&g, &l[0]);
	submit(&g, &l[1]);
	for (int step = 1; engine_step(g.e) || n < LIVES; step++)
		if (n < LIVES && step % 7 == 0)
			submit(&g, &l[n++]);
	for (int i = 0; i < LIVES; i++)
		check(&l[i], &want[i], "together");
	s = rig_close(&g, &h, chosen ? "chosen" : park_bytes ? "together, parked" : "together");
	CHECK(s.preempted > 0, "nobody was pushed out");
}

/* The next turn after a restart. */
static void test_restart(void)
{
	static struct life l;
	char dir[PATH_MAX];
	struct how h = { .slots = SLOTS, .disk_dir = dir };

	world_dir(dir);
	for (int start = 0; start < 2; start++) {
		struct rig g;

		rig_open(&g, &h, true, told, LIVES + 1);
		life_of(&l, 1);
		if (start) {
			memcpy(l.prompt, all[LIVES], (size_t)(told[1].n + 4) * sizeof *l.prompt);
			l.ask.n_prompt = told[1].n + 4;
		}
		submit(&g, &l);
		while (engine_step(g.e))
			;
		life_read(&l, false);
		CHECK(!start || l.cached > 128, "%d found on disk", l.cached);
		check(&l, &want[start ? LIVES : 1], "after a restart");
		rig_close(&g, &h, start ? "restarted" : "before");
	}
	world_remove(dir);
}

static void tell(void)
{
	static struct life l;

	for (int i = 0; i < LIVES; i++) {
		life_of(&l, i);
		run_plain(&l, &want[i], &told[i], all[i]);
	}
	/* What life 1 goes on with. */
	life_of(&l, 1);
	memcpy(l.prompt, all[1], (size_t)told[1].n * sizeof *l.prompt);
	for (int i = 0; i < 4; i++)
		l.prompt[told[1].n + i] = 5 + i;
	l.ask.n_prompt = told[1].n + 4;
	run_plain(&l, &want[LIVES], &told[LIVES], all[LIVES]);
}

/* own: the model's. */
static void head_store_open(int k, const char *folder)
{
	struct err err;

	head_st[k] = st;
	if (strcmp(folder, "own"))
		CHECK(!store_open(&head_st[k], folder, &err), "%s", err.msg);
}

static void head_store_close(int k)
{
	if (head_st[k] != st)
		store_close(head_st[k]);
}

/* Those of head_st: one, or several at once. */
static void test_heads(void)
{
	for (int k = 0; k < n_head; k++)
		printf("%s\n", head_st[k]->name);
	test_together(0, false);
	test_together(1 << 22, false);
	test_together(1 << 22, true);
	test_restart();
}

int main(int argc, char **argv)
{
	struct model *m;
	struct buf json;
	struct err err;

	CHECK(argc >= 4, "test_draft_heads TOKENIZER-JSON MODEL HEAD...");
	log_set_level(LOG_WARN);
	for (int i = 2; i < argc; i++)
		if (!shared_argument(argv, i))
			return 77; /* skipped; shared_folder said why */
	buf_init(&json);
	CHECK(!file_read(argv[1], 1 << 24, &json, &err) && !tokenizer_open(&tok, json.p, json.n, &err), "%s", err.msg);
	buf_fini(&json);
	be = test_backend_open(1, cpu_detect());
	CHECK(!store_open(&st, argv[2], &err) && !model_bind(&m, st, &err), "%s", err.msg);
	vocab = m->shape.vocab < 2000 ? m->shape.vocab : 2000;
	model_close(m);
	tell();
	n_head = 1;
	for (int i = 3; i < argc; i++) {
		head_store_open(0, argv[i]);
		test_heads();
		head_store_close(0);
	}
	CHECK(argc - 3 <= HEADS_MAX, "%d heads", argc - 3);
	for (n_head = 0; argc > 4 && n_head < argc - 3; n_head++)
		head_store_open(n_head, argv[3 + n_head]);
	if (n_head)
		test_heads();
	for (int k = 0; k < n_head; k++)
		head_store_close(k);
	tokenizer_close(tok);
	store_close(st);
	be->ops->close(be);
	return 0;
}
