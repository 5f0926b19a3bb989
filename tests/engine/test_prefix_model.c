/* test_prefix_model.c - over real architectures: a sequence of LONG tokens is kept;
 * then prompts part from it at k, for every k or each so many, and the logits of
 * the next TAIL tokens are those of another model that computes each prompt from
 * nothing, bit for bit.  What is replayed has a bound.
 *
 * With --random N they part at N places of a longer sequence (--length, 4,000 tokens) in any
 * order, so that a place meets what earlier ones left.
 *
 *     test_prefix_model [--every N] [--from K] [--to K] [--random N] [--length L] FOLDER...
 *     test_prefix_model --families     every family of ../shared/golden, at few places
 *     test_prefix_model --windows N L  those of windows, N random places of L tokens */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rng.h"
#include "driver.h"
#include "test_backend.h"
#include "engine/engine.h"
#include "engine/prefix/place.h"
#include "rows.h"

enum { LONG = 1000, LONGER = 4000, TAIL = 16, STEP = 256 };

static void fork_at(int32_t *tok, const int32_t *base, int k, int which, int vocab)
{
	memcpy(tok, base, (size_t)k * sizeof(*tok));
	for (int i = 0; i < TAIL; i++)
		tok[k + i] = (int32_t)(rng_bits((uint64_t)which, (uint64_t)(k + i), 4) % (uint64_t)vocab);
	tok[k] = (base[k] + 1 + which) % vocab; /* neither as the base goes on nor as the other does */
}

/* One model that serves, and one that computes each prompt from nothing. */
struct rig {
	const char *path;
	struct backend *be;
	struct store *st;
	struct model *m;
	struct engine *e;
	struct driver cold;
	struct rows rows;
	float *truth;        /* [TAIL][vocab] */
	int32_t *base, *tok; /* [n], [n + TAIL] */
	int n;
};

/* A model that takes sequences of ctx tokens, whatever its config says. */
static struct model *bind_long(struct store *st, int ctx)
{
	struct model *m;
	struct err err;

	CHECK(!model_bind(&m, st, &err), "%s", err.msg);
	m->shape.ctx_max = ctx > m->shape.ctx_max ? ctx : m->shape.ctx_max;
	return m;
}

static void rig_open(struct rig *g, const char *path, int n)
{
	int ctx = n + TAIL + 1;
	struct driver_opts o = {
		.arith = ARITH_FAST, .threads = 2, .level = cpu_detect(), .slots = 1, .ctx_max = ctx, .step_rows = STEP
	};
	struct model_opts mo = {
		.arith = ARITH_FAST, .slots = 1, .ctx_max = ctx, .step_rows = STEP, .snap_bytes = (size_t)2 << 30
	};
	struct engine_opts eo = { .seqs_max = 1,
		                  .step_rows = STEP,
		                  .logit_rows = STEP,
		                  .queue_max = 4,
		                  .prefix_bytes = (size_t)1 << 30,
		                  .by_hand = true };
	struct err err;

	*g = (struct rig){ .path = path, .be = test_backend_open(2, cpu_detect()), .rows.most = TAIL, .n = n };
	CHECK(!store_open(&g->cold.st, path, &err), "%s", err.msg);
	g->m = bind_long(g->cold.st, ctx);
	CHECK(!driver_attach(&g->cold, g->m, &o, &err), "%s", err.msg);
	CHECK(!store_open(&g->st, path, &err), "%s", err.msg);
	g->m = bind_long(g->st, ctx);
	mo.kv = model_kv_default(ARITH_FAST);
	mo.kv_bytes = model_pool_bytes(&g->m->shape, &mo, -1, 1) * (n < LONGER ? LONGER : 2 * (size_t)n);
	CHECK(!model_attach(g->m, g->be, &mo, &err), "%s", err.msg);
	CHECK(!engine_open(&g->e, g->m, NULL, &eo, &err), "%s", err.msg);
	g->rows.vocab = (size_t)g->m->shape.vocab;
	g->rows.row = xmalloc(TAIL * g->rows.vocab * sizeof(float));
	g->truth = xmalloc(TAIL * g->rows.vocab * sizeof(float));
	g->base = xmalloc((size_t)n * sizeof(*g->base));
	g->tok = xmalloc((size_t)(n + TAIL) * sizeof(*g->tok));
	for (int i = 0; i < n; i++)
		g->base[i] = (int32_t)(rng_bits(7, (uint64_t)i, 3) % g->rows.vocab);
	rows_ask(g->e, g->base, n, NULL);
}

static void rig_close(struct rig *g)
{
	free(g->truth);
	free(g->base);
	free(g->tok);
	free(g->rows.row);
	engine_close(g->e);
	model_close(g->m);
	g->be->ops->close(g->be);
	store_close(g->st);
	driver_close(&g->cold);
}

/* A prompt that parts from the base at k; look: its logits are compared.  Returns how many tokens were replayed. */
static int part(struct rig *g, int k, int which, bool look)
{
	int32_t *tok = g->tok;
	struct prefix_report r;

	fork_at(tok, g->base, k, which, (int)g->rows.vocab);
	g->rows.from = k;
	r = rows_ask(g->e, tok, k + TAIL, &g->rows);
	CHECK(g->rows.n == TAIL && r.resumed <= k, "k %d: %d rows, resumed at %d", k, g->rows.n, r.resumed);
	if (!look)
		return r.replayed;
	driver_feed(&g->cold, 0, 0, tok, k, NULL, 0, NULL);
	driver_feed(&g->cold, 0, k, tok + k, TAIL, NULL, 0, g->truth);
	caches_close(&g->cold.m->caches, 0);
	CHECK(!memcmp(g->rows.row, g->truth, TAIL * g->rows.vocab * sizeof(float)),
	      "%s: parted at %d, resumed at %d: logits differ from a cold run's", g->path, k, r.resumed);
	return r.replayed;
}

static void each(const char *path, int from, int to, int every)
{
	static struct rig g;
	int64_t replayed = 0, n = 0;

	rig_open(&g, path, LONG);
	for (int k = to; k >= from; k -= every, n++) {
		int first = part(&g, k, 0, true), again;

		CHECK(first <= (LONG - k > PLACE_TAIL ? PLACE_STEP : PLACE_NEAR), "%s: k %d: %d tokens replayed", path,
		      k, first);
		replayed += first;
		/* The second one's truth only now and then: it costs as much again. */
		again = part(&g, k, 1, k % 5 == 0);
		CHECK(!again, "k %d: %d tokens replayed by the second", k, again);
	}
	printf("%s: parted at %d places: equal; %.1f tokens replayed on the first visit\n", path, (int)n,
	       (double)replayed / (double)n);
	rig_close(&g);
}

static void at_random(const char *path, int n, int length)
{
	static struct rig g;
	int64_t replayed = 0;
	int most = 0;

	rig_open(&g, path, length);
	for (int i = 0; i < n; i++) {
		int k = 1 + (int)(rng_bits(11, (uint64_t)i, 5) % (uint64_t)(length - 1)), again = part(&g, k, i, true);

		CHECK(again <= PLACE_STEP, "%s: k %d: %d tokens replayed", path, k, again);
		most = again > most ? again : most;
		replayed += again;
	}
	printf("%s: parted at %d random places of %d: equal; %.1f tokens replayed, at most %d\n", path, n, length,
	       (double)replayed / n, most);
	rig_close(&g);
}

static bool quick; /* under the sanitizers: fewer places, shorter prompts */

static bool windows(int n, int length)
{
	static const char *const folder[] = { "gemma3_text/mlx-q4", "gemma4_e2b/mlx-q4", "gemma4_31b/mlx-q4",
		                              "gemma4_moe/mlx-q4",  "gpt_oss/hf-bf16",   "olmo3/mlx-q4" };
	const char *shared = shared_folder();
	char path[1024];

	for (size_t i = 0; shared && i < sizeof(folder) / sizeof(*folder); i++) {
		snprintf(path, sizeof(path), "%s/golden/%s", shared, folder[i]);
		at_random(path, quick ? 2 : n, quick ? length / 2 : length);
	}
	return shared;
}

/* Few places, some near a page's end: windows' snapshots reach back as far as their first page. */
static void family(const char *path)
{
	each(path, 965, LONG - 1, quick ? 51 : 17);
	each(path, 100, 500, 199);
}

int main(int argc, char **argv)
{
	int every, from = 1, to = LONG - 1, random = 0, length = LONGER;

	quick = getenv("WEFT_TEST_QUICK") != NULL;
	every = quick ? 97 : 37;
	log_set_level(LOG_WARN);
	if (argc == 2 && !strcmp(argv[1], "--families"))
		return each_golden_family(family) ? 0 : 77;
	if (argc == 4 && !strcmp(argv[1], "--windows"))
		return windows(atoi(argv[2]), atoi(argv[3])) ? 0 : 77;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--every"))
			every = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--from"))
			from = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--to"))
			to = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--random"))
			random = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--length"))
			length = atoi(argv[++i]);
		else if (random)
			at_random(argv[i], random, length);
		else
			each(argv[i], from, to, every);
	}
	return 0;
}
