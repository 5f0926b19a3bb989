/* test_device.c - a device that fails in one of its calls: no wrong token or row of logits goes out, every request ends with
 * E_DEVICE and a message, requests after it too, and the books of the caches are whole.  Tried for each of the first 40
 * calls, then for one of 7, of 29 under WEFT_TEST_QUICK.
 *
 *     test_device FOLDER... */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rng.h"
#include "driver.h"
#include "far.h"
#include "rows.h"

enum { SEQS = 2, PROMPT = 21, ANSWER = 6, CTX = 64, STEP = 16 };

struct rig {
	struct backend *be;
	struct store *st;
	struct model *m;
	struct engine *e;
};

static void rig_open(struct rig *g, const char *path)
{
	struct model_opts mo = {
		.arith = ARITH_FAST, .slots = SEQS, .ctx_max = CTX, .step_rows = STEP, .snap_bytes = 1 << 24
	};
	struct engine_opts eo = {
		.seqs_max = SEQS, .step_rows = STEP, .queue_max = 8, .prefix_bytes = 1 << 24, .by_hand = true
	};
	struct err err;

	g->be = far_open(backend_cpu_open(1, cpu_detect()));
	CHECK(!store_open(&g->st, path, &err) && !model_open(&g->m, g->st, g->be, &mo, &err) &&
	              !engine_open(&g->e, g->m, NULL, &eo, &err),
	      "%s", err.msg);
}

static void rig_close(struct rig *g)
{
	engine_close(g->e);
	model_close(g->m);
	g->be->ops->close(g->be);
	store_close(g->st);
}

/* What came of it is the beginning of what should have. */
static void judge(const struct run *u, const struct run *want, int call)
{
	bool failed = u->end.finish == FINISH_ERROR;

	CHECK(u->n_got <= want->n_got && !memcmp(u->got, want->got, (size_t)u->n_got * sizeof *u->got),
	      "call %d: another token", call);
	CHECK(failed ? u->end.err.code == E_DEVICE && strstr(u->end.err.msg, "does not answer") :
	               u->end.finish == FINISH_LENGTH && u->n_got == ANSWER,
	      "call %d: finish %d, %d tokens, %s", call, (int)u->end.finish, u->n_got, u->end.err.msg);
}

/* Two requests at once.  Returns whether one of them failed. */
static bool both(struct rig *g, struct run u[SEQS], int32_t prompt[SEQS][PROMPT])
{
	bool failed = false;

	for (int i = 0; i < SEQS; i++) {
		run_begin(&u[i], prompt[i], PROMPT, ANSWER, (size_t)g->m->shape.vocab);
		memset(u[i].row, 0, (size_t)u[i].n_row * u[i].vocab * sizeof *u[i].row);
		run_submit(&u[i], g->e);
	}
	while (engine_step(g->e))
		;
	for (int i = 0; i < SEQS; i++) {
		run_read(&u[i]);
		failed |= u[i].end.finish == FINISH_ERROR;
	}
	return failed;
}

static void frees(struct run u[SEQS])
{
	for (int i = 0; i < SEQS; i++)
		run_free(&u[i]);
}

static void test(const char *path)
{
	static int32_t prompt[SEQS][PROMPT];
	struct run want[SEQS] = { 0 }, got[SEQS] = { 0 }, after[SEQS] = { 0 };
	struct engine_stats stats;
	struct rig g;
	int call = 0, tried = 0, stride = getenv("WEFT_TEST_QUICK") ? 29 : 7;

	rig_open(&g, path);
	for (int i = 0; i < SEQS; i++)
		for (int t = 0; t < PROMPT; t++)
			prompt[i][t] = (int32_t)(rng_bits(1, (uint64_t)i, (uint64_t)t) % (uint64_t)g.m->shape.vocab);
	CHECK(!both(&g, want, prompt), "%s", want[0].end.err.msg);
	frees(want);
	rig_close(&g);
	for (bool failed = true; failed;) {
		rig_open(&g, path);
		call += call < 40 ? 1 : stride;
		tried++;
		far_fail(g.be, call);
		failed = both(&g, got, prompt);
		for (int i = 0; i < SEQS; i++)
			judge(&got[i], &want[i], call);
		frees(got);
		if (failed) {
			CHECK(both(&g, after, prompt), "call %d: an answer of a lost device", call);
			for (int i = 0; i < SEQS; i++)
				CHECK(!after[i].n_got && after[i].end.err.code == E_DEVICE, "call %d", call);
			frees(after);
			engine_stats(g.e, &stats);
			CHECK(stats.device_lost, "call %d: the engine does not tell", call);
		}
		caches_check(&g.m->caches);
		rig_close(&g);
	}
	CHECK(call > 3 * ANSWER, "%d calls", call);
	printf("%s: the device failed in %d of %d calls\n", path, tried - 1, call - 1);
	for (int i = 0; i < SEQS; i++) {
		free(want[i].row);
		free(got[i].row);
		free(after[i].row);
	}
}

int main(int argc, char **argv)
{
	log_set_level(LOG_ERROR);
	CHECK(argc > 1, "test_device FOLDER...");
	for (int i = 1; i < argc; i++)
		test(argv[i]);
	return 0;
}
