/* test_prefix_model.c - over real architectures: a sequence of LONG tokens is kept;
 * then prompts part from it at k, for every k or each so many, and the logits of
 * the next TAIL tokens are those of another model that computes each prompt from
 * nothing, bit for bit.
 *
 *     test_prefix_model [--every N] [--from K] [--to K] FOLDER... */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rng.h"
#include "driver.h"
#include "engine/engine.h"
#include "rows.h"

enum { LONG = 1000, TAIL = 16, CTX = 1024, STEP = 256 };

static void fork_at(int32_t *tok, const int32_t *base, int k, int which, int vocab)
{
	memcpy(tok, base, (size_t)k * sizeof(*tok));
	for (int i = 0; i < TAIL; i++)
		tok[k + i] = (int32_t)(rng_bits((uint64_t)which, (uint64_t)(k + i), 4) % (uint64_t)vocab);
	tok[k] = (base[k] + 1 + which) % vocab; /* neither as the base goes on nor as the other does */
}

static void folder(const char *path, int from, int to, int every)
{
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
		                  .prefix_bytes = (size_t)1 << 30,
		                  .by_hand = true };
	struct backend *be = backend_cpu_open(2, cpu_detect());
	int32_t base[LONG + TAIL], tok[LONG + TAIL];
	int64_t replayed = 0, again = 0, n = 0;
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
	mo.kv_bytes = model_pool_bytes(&m->shape, &mo, -1, 1) * 4000;
	CHECK(!model_attach(m, be, &mo, &err), "%s", err.msg);
	CHECK(!engine_open(&e, m, NULL, &eo, &err), "%s", err.msg);
	rows.vocab = (size_t)m->shape.vocab;
	rows.row = xmalloc(TAIL * rows.vocab * sizeof(float));
	truth = xmalloc((LONG + TAIL) * rows.vocab * sizeof(float));
	for (int i = 0; i < LONG; i++)
		base[i] = (int32_t)(rng_bits(7, (uint64_t)i, 3) % rows.vocab);
	rows_ask(e, base, LONG, NULL);
	for (int k = to; k >= from; k -= every)
		for (int which = 0; which < 2; which++) {
			struct prefix_report r;

			fork_at(tok, base, k, which, (int)rows.vocab);
			rows.from = k;
			r = rows_ask(e, tok, k + TAIL, &rows);
			CHECK(rows.n == TAIL && r.resumed <= k, "k %d: %d rows, resumed at %d", k, rows.n, r.resumed);
			CHECK(!which || !r.replayed, "k %d: %d tokens replayed by the second", k, r.replayed);
			/* The second one's truth only now and then: it costs as much again. */
			if (which && k % 5)
				continue;
			driver_feed(&cold, 0, 0, tok, k + TAIL, NULL, 0, truth);
			caches_close(&cold.m->caches, 0);
			CHECK(!memcmp(rows.row, truth + (size_t)k * rows.vocab, TAIL * rows.vocab * sizeof(float)),
			      "%s: parted at %d, resumed at %d: logits differ from a cold run's", path, k, r.resumed);
			*(which ? &again : &replayed) += r.replayed;
			n += !which;
		}
	printf("%s: parted at %d places: equal; %.1f tokens replayed on the first visit\n", path, (int)n,
	       (double)replayed / (double)n);
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
	int every = getenv("WEFT_TEST_QUICK") ? 97 : 37, from = 1, to = LONG - 1;

	log_set_level(LOG_WARN);
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--every"))
			every = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--from"))
			from = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--to"))
			to = atoi(argv[++i]);
		else
			folder(argv[i], from, to, every);
	}
	return 0;
}
