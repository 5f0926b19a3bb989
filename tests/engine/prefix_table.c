/* prefix_table.c - what the prefix store saves on five prompts: cold, the same
 * again (and once more), one that shares its beginning, and one that goes on; as a
 * chat renders them, with marks, and raw, without any.
 *
 *     prefix_table [--runs N | --pairs N] [--threads N] [--share X] MODEL-FOLDER
 *
 * Lengths and common beginnings are those of the table in mlx-lm's pull request
 * 1254: 571 tokens; again; 431 of which 424 are the same; 577 of which 564 are
 * the same; its times stand beside ("there").  As a chat's prompt, 424 is where system and tools end and 564 where
 * the header of the answer begins.  Every prompt follows the first directly, and is also
 * run without the store: its 32 tokens and their probabilities must be the same to the last
 * bit.  What a run adds to a cold prompt's time is in the row "cold".  --share is
 * engine_opts.place_share; without it copies may take any time, and no replay is longer
 * than the bound.  --pairs runs nothing but cold prompts, in turn without and with the store. */
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/prefix/place.h"
#include "lives.h"
#include "model/model.h"
#include "store/store.h"

enum { SYSTEM = 424, HEADER = 564, FIRST = 571, SHARED = 431, LONGER = 577, ANSWER = 32, RUNS_MAX = 99 };

struct outcome {
	int32_t tok[ANSWER];
	float logprob[ANSWER];
	int n;
	struct prefix_report report;
	double ms; /* to the first token */
};

/* Like a server's that had a moment before: the memory of the next states is there. */
static void ask_one(struct engine *e, struct model *m, const int32_t *tok, int n, const char *salt, bool cold, bool raw,
                    int answer, struct outcome *o)
{
	const int mark[] = { SYSTEM, HEADER };
	const unsigned char kind[] = { PLACE_SYSTEM, PLACE_HEADER };
	struct ask a = { .prompt = tok,
		         .n_prompt = n,
		         .max_tokens = answer,
		         .cache_salt = salt,
		         .no_cache = cold,
		         .mark = mark,
		         .mark_kind = kind,
		         .n_mark = raw ? 0 : 2 };
	struct request *r;
	struct event ev;
	struct err err;

	*o = (struct outcome){ .ms = -1 };
	sampler_params_init(&a.sampling);
	a.sampling.temperature = 0;
	while (caches_prepare(&m->caches))
		;
	CHECK(!engine_submit(e, &a, &r, &err), "%s", err.msg);
	while (engine_step(e))
		;
	while (request_next(r, &ev)) {
		if (ev.kind == EV_TOKEN) {
			o->tok[o->n] = ev.token;
			o->logprob[o->n++] = ev.pick.logprob;
		} else if (ev.kind == EV_DONE) {
			CHECK(ev.finish == FINISH_LENGTH, "%s", ev.err.msg);
			o->report = ev.prefix;
			o->ms = (double)(ev.queue_ns + ev.prefill_ns) / 1e6;
		}
	}
	request_free(r);
}

static int by_size(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return (d > 0) - (d < 0);
}

static void table(struct engine *e, struct model *m, int runs, bool raw, bool bound)
{
	static const struct {
		const char *name;
		int n, same;
		double there; /* milliseconds of that table */
	} row[] = {
		{ "cold", FIRST, 0, 2030 },          { "the same again", FIRST, FIRST, 314 },
		{ "and again", FIRST, FIRST, 314 },  { "shared beginning", SHARED, SYSTEM, 397 },
		{ "extended", LONGER, HEADER, 461 },
	};
	enum { COLD, SAME, THIRD, BEGINNING, EXTENDED, ROWS };
	static const int at[ROWS] = { 0, FIRST - 1, FIRST - 1, SYSTEM, HEADER };
	int32_t base[LONGER], tok[LONGER];
	int vocab = m->shape.vocab, dropped;

	for (int i = 0; i < LONGER; i++)
		base[i] = (int32_t)(rng_bits(11, (uint64_t)i, 1) % (uint64_t)vocab);
	printf("%s\n\n| prompt | tokens | in common | resumed at | computed | first token, cold | first token | of cold | "
	       "there | of cold there | equal |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
	       raw ? "raw prompts" : "prompts of a chat");
	for (int k = 0; k < ROWS; k++) {
		double cold_ms[RUNS_MAX], ms[RUNS_MAX];
		struct outcome cold = { 0 }, warm = { 0 }, first;

		memcpy(tok, base, sizeof(tok));
		for (int i = row[k].same; i < row[k].n && k > THIRD; i++)
			tok[i] = (base[i] + 1) % vocab;
		for (int i = 0; i < runs; i++) {
			char salt[32];

			/* A salt of its own is a store of its own. */
			snprintf(salt, sizeof(salt), "%d-%d-%d", raw, k, i);
			ask_one(e, m, tok, row[k].n, NULL, true, raw, ANSWER, &cold);
			cold_ms[i] = cold.ms;
			for (int before = 0; before < (k == THIRD ? 2 : k > COLD); before++)
				ask_one(e, m, base, FIRST, salt, false, raw, ANSWER, &first);
			ask_one(e, m, tok, row[k].n, salt, false, raw, ANSWER, &warm);
			ms[i] = warm.ms;
			/* What earlier runs left must not take the memory of the next. */
			CHECK(!engine_prefix_drop(e, &(struct prefix_spot){ 0 }, &dropped), "drop");
			CHECK(warm.n == cold.n && !memcmp(warm.tok, cold.tok, sizeof(cold.tok)) &&
			              !memcmp(warm.logprob, cold.logprob, sizeof(cold.logprob)),
			      "%s: not what a cold run says", row[k].name);
		}
		qsort(cold_ms, (size_t)runs, sizeof(*ms), by_size);
		qsort(ms, (size_t)runs, sizeof(*ms), by_size);
		printf("| %s | %d | %d | %d | %d | %.1f ms | %.1f ms | %.3f | %.0f ms | %.3f | yes |\n", row[k].name,
		       row[k].n, row[k].same, warm.report.resumed, row[k].n - warm.report.resumed, cold_ms[runs / 2],
		       ms[runs / 2], ms[runs / 2] / cold_ms[runs / 2], row[k].there, row[k].there / row[0].there);
		fflush(stdout);
		CHECK(!bound || raw || warm.report.resumed == at[k], "resumed at %d (%s)", warm.report.resumed,
		      prefix_reason_name(warm.report.reason));
		CHECK(!bound || warm.report.replayed <= (k == BEGINNING ? PLACE_STEP : PLACE_NEAR), "%d replayed",
		      warm.report.replayed);
	}
	printf("\n");
}

/* What keeping states adds to a cold prompt: pairs without and with the store, one after the other. */
static void cold_pairs(struct engine *e, struct model *m, int pairs, bool raw)
{
	double ms[RUNS_MAX];
	int32_t tok[FIRST];

	for (int i = 0; i < FIRST; i++)
		tok[i] = (int32_t)(rng_bits(12, (uint64_t)i, 1) % (uint64_t)m->shape.vocab);
	for (int i = 0; i < pairs; i++) {
		struct outcome without, with;
		char salt[32];

		snprintf(salt, sizeof(salt), "cold-%d-%d", raw, i);
		ask_one(e, m, tok, FIRST, NULL, true, raw, 1, &without);
		ask_one(e, m, tok, FIRST, salt, false, raw, 1, &with);
		ms[i] = with.ms / without.ms;
	}
	qsort(ms, (size_t)pairs, sizeof(*ms), by_size);
	printf("%s, %d pairs: first token with the store %.3f of without (%.3f to %.3f); a copy %.2f ms\n",
	       raw ? "raw" : "chat", pairs, ms[pairs / 2], ms[pairs / 4], ms[pairs * 3 / 4],
	       caches_copy_ns(&m->caches) / 1e6);
}

int main(int argc, char **argv)
{
	struct model_opts mo = { .arith = ARITH_FAST, .slots = 1, .ctx_max = 1024, .step_rows = 256 };
	struct engine_opts eo = {
		.seqs_max = 1, .step_rows = 256, .queue_max = 4, .prefix_bytes = (size_t)2 << 30, .by_hand = true
	};
	int runs = 5, pairs = 0, threads = cpu_count();
	const char *path = NULL;
	struct backend *be;
	struct engine *e;
	struct store *st;
	struct model *m;
	struct err err;

	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--runs") && i + 1 < argc)
			runs = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--threads") && i + 1 < argc)
			threads = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--pairs") && i + 1 < argc)
			pairs = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--share") && i + 1 < argc)
			eo.place_share = atof(argv[++i]);
		else
			path = argv[i];
	CHECK(path && runs > 0 && runs <= RUNS_MAX && pairs >= 0 && pairs <= RUNS_MAX,
	      "prefix_table [--runs N | --pairs N] [--threads N] [--share X] MODEL-FOLDER");
	log_set_level(LOG_WARN);
	be = backend_cpu_open(threads, cpu_detect());
	CHECK(!store_open(&st, path, &err), "%s", err.msg);
	CHECK(!model_bind(&m, st, &err), "%s", err.msg);
	mo.kv = model_kv_default(ARITH_FAST);
	mo.snap_bytes = eo.prefix_bytes;
	mo.kv_bytes = model_pool_bytes(&m->shape, &mo, -1, 8 * mo.ctx_max);
	CHECK(!model_attach(m, be, &mo, &err), "%s", err.msg);
	CHECK(!engine_open(&e, m, NULL, &eo, &err), "%s", err.msg);
	for (int raw = 0; raw < 2 && pairs; raw++)
		cold_pairs(e, m, pairs, raw);
	for (int raw = 0; raw < 2 && !pairs; raw++)
		table(e, m, runs, raw, eo.place_share <= 0);
	engine_close(e);
	model_close(m);
	be->ops->close(be);
	store_close(st);
	return 0;
}
