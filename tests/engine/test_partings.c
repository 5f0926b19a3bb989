/* test_partings.c - partings at random tokens of fresh prompts and of the answers to them: how
 * much is replayed has a bound, and the logits of the next TAIL tokens are those of another model
 * that computes each prompt from nothing, bit for bit.
 *
 *     test_partings N FOLDER... */
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

enum { LONG = 1000, TAIL = 16, CTX = 1024, STEP = 256 };

static void fork_at(int32_t *tok, const int32_t *base, int k, int which, int vocab)
{
	memcpy(tok, base, (size_t)k * sizeof(*tok));
	for (int i = 0; i < TAIL; i++)
		tok[k + i] = (int32_t)(rng_bits((uint64_t)which, (uint64_t)(k + i), 4) % (uint64_t)vocab);
	tok[k] = (base[k] + 1 + which) % vocab; /* neither as the base goes on nor as the other does */
}

/* n partings at random tokens of random prompts and of the answers to them, each of a prompt
 * that is computed under a salt of its own, so that no junction of another is near: the replay is
 * within its bound, and the logits are a cold run's. */
static void random_partings(const char *path, int n, uint64_t seed)
{
	enum { ANSWER = 200, MOST = LONG - ANSWER };
	struct driver_opts o = {
		.arith = ARITH_FAST, .threads = 2, .level = cpu_detect(), .slots = 1, .ctx_max = CTX, .step_rows = STEP
	};
	struct model_opts mo = {
		.arith = ARITH_FAST, .slots = 1, .ctx_max = CTX, .step_rows = STEP, .snap_bytes = (size_t)2 << 30
	};
	struct engine_opts eo = { .seqs_max = 1,
		                  .step_rows = STEP,
		                  .logit_rows = STEP,
		                  .queue_max = 4,
		                  .prefix_bytes = (size_t)2 << 30,
		                  .by_hand = true };
	struct backend *be = test_backend_open(2, cpu_detect());
	int32_t base[LONG + TAIL], tok[LONG + TAIL];
	int64_t replayed = 0;
	int most = 0, near = 0, in_answer = 0, dropped;
	struct rows rows = { .most = TAIL };
	struct driver cold;
	struct engine *e;
	struct store *st;
	struct model *m;
	struct err err;
	float *truth;

	CHECK(!driver_open(&cold, path, &o, &err), "%s", err.msg);
	CHECK(!store_open(&st, path, &err), "%s", err.msg);
	CHECK(!model_bind(&m, st, &err), "%s", err.msg);
	mo.kv = model_kv_default(ARITH_FAST);
	mo.kv_bytes = model_pool_bytes(&m->shape, &mo, -1, 4 * CTX);
	CHECK(!model_attach(m, be, &mo, &err), "%s", err.msg);
	CHECK(!engine_open(&e, m, NULL, &eo, &err), "%s", err.msg);
	rows.vocab = (size_t)m->shape.vocab;
	rows.row = xmalloc(TAIL * rows.vocab * sizeof(float));
	truth = xmalloc((LONG + TAIL) * rows.vocab * sizeof(float));
	for (int i = 0; i < n; i++) {
		uint64_t dice = rng_bits(seed, (uint64_t)i, 5);
		int n_prompt = 2 + (int)(dice % MOST), n_answer = (int)((dice >> 20) % ANSWER), end, k, bound;
		struct prefix_report r;

		for (int t = 0; t < n_prompt; t++)
			base[t] = (int32_t)(rng_bits(dice, (uint64_t)t, 6) % rows.vocab);
		end = rows_answer(e, base, n_prompt, n_answer);
		k = 1 + (int)((dice >> 40) % (uint64_t)(end - 1));
		fork_at(tok, base, k, 0, (int)rows.vocab);
		rows.from = k;
		r = rows_ask(e, tok, k + TAIL, &rows);
		bound = end - k <= PLACE_TAIL ? PLACE_NEAR : PLACE_STEP;
		CHECK(r.junction == k && r.replayed <= bound, "%s: of %d and %d, parted at %d: %d replayed, known %d",
		      path, n_prompt, end - n_prompt, k, r.replayed, r.junction);
		replayed += r.replayed;
		most = r.replayed > most ? r.replayed : most;
		near += end - k <= PLACE_TAIL;
		in_answer += k > n_prompt;
		driver_feed(&cold, 0, 0, tok, k + TAIL, NULL, 0, truth);
		caches_close(&cold.m->caches, 0);
		CHECK(!memcmp(rows.row, truth + (size_t)k * rows.vocab, TAIL * rows.vocab * sizeof(float)),
		      "%s: parted at %d, resumed at %d: logits differ from a cold run's", path, k, r.resumed);
		CHECK(!engine_prefix_drop(e, &(struct prefix_spot){ 0 }, &dropped), "drop");
	}
	printf("%s: %d partings at random, %d near an end, %d in an answer: equal; %.1f tokens replayed, %d at most\n",
	       path, n, near, in_answer, (double)replayed / n, most);
	free(truth);
	free(rows.row);
	engine_close(e);
	model_close(m);
	be->ops->close(be);
	store_close(st);
	driver_close(&cold);
}

int main(int argc, char **argv)
{
	int n;

	log_set_level(LOG_WARN);
	CHECK(argc > 2, "test_partings N FOLDER...");
	n = getenv("WEFT_TEST_QUICK") ? atoi(argv[1]) / 4 : atoi(argv[1]); /* quick: under the sanitizers */
	for (int i = 2; i < argc; i++)
		random_partings(argv[i], n, 1);
	return 0;
}
