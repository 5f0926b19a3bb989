/* test_disk_model.c - over real architectures: prompts are kept on disk by one engine,
 * then another one, after a restart, goes on from there; the logits of what follows are
 * those of a model that computes each prompt from nothing, bit for bit.
 *
 *     test_disk_model FOLDER...
 *     test_disk_model --families     every family of ../shared/golden */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rng.h"
#include "driver.h"
#include "test_backend.h"
#include "engine/core.h"
#include "rows.h"
#include "spill_world.h"

enum { PROMPT = 300, MORE = 16, CTX = 512, STEP = 128, PROMPTS = 6 };

/* A clock that stands still: no rate is ever measured, so that whatever is on disk is
 * waited for, though these models compute faster than any disk reads. */
static int64_t stands(struct clock *c)
{
	return 1;
}

static struct clock still = { stands };

/* Some begin alike; lengths with and without a part-filled page. */
static int prompt(int k, int32_t *tok, int vocab)
{
	int n = k % 3 ? PROMPT - 7 * k : 256;

	for (int i = 0; i < n + MORE; i++)
		tok[i] = (int32_t)(rng_bits((uint64_t)(i < 150 ? k % 2 : k), (uint64_t)i, 8) % (uint64_t)vocab);
	return n;
}

struct rig {
	struct backend *be;
	struct model *m;
	struct engine *e;
};

static struct rig rig_open(struct store *st, const char *dir)
{
	struct model_opts mo = { .arith = ARITH_FAST,
		                 .slots = 2,
		                 .ctx_max = CTX,
		                 .step_rows = STEP,
		                 .snap_bytes = (size_t)1 << 30,
		                 .kv = model_kv_default(ARITH_FAST) };
	struct engine_opts eo = { .seqs_max = 2,
		                  .step_rows = STEP,
		                  .logit_rows = STEP,
		                  .queue_max = 4,
		                  .prefix_bytes = (size_t)1 << 29,
		                  .by_hand = true,
		                  .disk.dir = dir,
		                  .disk.bytes = (uint64_t)1 << 30,
		                  .disk.io = world_io(),
		                  .clock = &still };
	struct rig g = { .be = test_backend_open(2, cpu_detect()) };
	struct err err;

	CHECK(!model_bind(&g.m, st, &err), "%s", err.msg);
	CHECK(!model_attach(g.m, g.be, &mo, &err), "%s", err.msg);
	CHECK(!engine_open(&g.e, g.m, NULL, &eo, &err), "%s", err.msg);
	return g;
}

static void rig_close(struct rig *g)
{
	engine_close(g->e);
	model_close(g->m);
	g->be->ops->close(g->be);
}

static void folder(const char *path)
{
	struct driver_opts o = {
		.arith = ARITH_FAST, .threads = 2, .level = cpu_detect(), .slots = 1, .ctx_max = CTX, .step_rows = CTX
	};
	int32_t tok[PROMPT + MORE];
	struct engine_stats s;
	struct driver cold;
	struct store *st;
	struct rows rows = { .most = MORE };
	struct rig g;
	char dir[PATH_MAX];
	struct err err;
	float *truth;
	int far = 0;

	world_dir(dir);
	CHECK(!driver_open(&cold, path, &o, &err), "%s", err.msg);
	CHECK(!store_open(&st, path, &err), "%s", err.msg);
	g = rig_open(st, dir);
	rows.vocab = (size_t)g.m->shape.vocab;
	rows.row = xmalloc(MORE * rows.vocab * sizeof(float));
	truth = xmalloc(CTX * rows.vocab * sizeof(float));
	for (int k = 0; k < PROMPTS; k++)
		rows_ask(g.e, tok, prompt(k, tok, (int)rows.vocab), NULL);
	rig_close(&g);
	g = rig_open(st, dir);
	for (int k = 0; k < PROMPTS; k++) {
		int n = prompt(k, tok, (int)rows.vocab);
		struct prefix_report r;

		rows.from = n;
		r = rows_ask(g.e, tok, n + MORE, &rows);
		CHECK(rows.n == MORE && r.source == PREFIX_DISK && r.resumed >= n - 1 && r.resumed <= n,
		      "%s: prompt %d of %d: resumed at %d from %s", path, k, n, r.resumed,
		      prefix_source_name(r.source));
		driver_feed(&cold, 0, 0, tok, n + MORE, NULL, 0, truth);
		caches_close(&cold.m->caches, 0);
		CHECK(!memcmp(rows.row, truth + (size_t)n * rows.vocab, MORE * rows.vocab * sizeof(float)),
		      "%s: prompt %d resumed at %d from disk: logits differ from a cold run's", path, k, r.resumed);
		far += r.resumed;
	}
	engine_stats(g.e, &s);
	CHECK(s.disk.damaged + s.disk.vanished + s.disk.given_up == 0, "faults counted");
	printf("%s: %d prompts went on from disk, %d tokens in all; logits equal\n", path, PROMPTS, far);
	rig_close(&g);
	free(rows.row);
	free(truth);
	driver_close(&cold);
	store_close(st);
	world_remove(dir);
}

int main(int argc, char **argv)
{
	log_set_level(LOG_WARN);
	if (argc == 2 && !strcmp(argv[1], "--families"))
		return each_golden_family(folder) ? 0 : 77;
	for (int i = 1; i < argc; i++)
		folder(argv[i]);
	return 0;
}
