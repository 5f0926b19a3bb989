/* test_engine_model.c - the engine over real architectures with tiny random
 * weights: many lives, each against its own sequence alone in another model,
 * prompt whole, answer token by token; with drafters and without.
 *
 *     test_engine_model FOLDER...
 *     test_engine_model --once FOLDER...   one life over each, at the best level
 *     test_engine_model --adapters FOLDER...   the same, of requests with adapters and without
 *     test_engine_model --families     one life over each family of ../shared/golden
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cache/kinds.h"
#include "driver.h"
#include "engine/draft/draft.h"
#include "lives.h"
#include "lora.h"
#include "model/model.h"
#include "test_backend.h"

enum { CTX = 256, STEP = 128, SLOTS = 5, LIVES = 3 };

/* The truth: one sequence, and what it was so far. */
static struct driver alone;
static int32_t had[CTX];
static int n_had;
/* Requests with no adapter, one, another, and both; by the model that adds them: the engine's, and alone's. */
enum { MIXES = 4, ADAPTERS = 2 };
static bool with_adapters;
static bool
	quick; /* under the sanitizers: the best level only, one short life that lacks pages and one that does not */
static struct adapters {
	struct adapter *of[ADAPTERS];
	struct adapter_mix mix[MIXES];
} ours, theirs;
static float *rows; /* [CTX][vocab] */
static float *seen; /* [CTX][hidden] as the output matrix reads them */

static void truth(const struct model *m, const int32_t *tok, int n, float *out)
{
	size_t vocab = (size_t)alone.vocab;
	int same = 0;

	CHECK(n <= CTX, "%d tokens", n);
	while (same < n && same < n_had && had[same] == tok[same])
		same++;
	if (same < n && same < n_had) {
		caches_close(&alone.m->caches, 0);
		same = n_had = 0;
	}
	if (same < n) {
		size_t hidden = (size_t)alone.m->shape.hidden, bytes = (size_t)(n - same) * hidden * sizeof(*seen);

		alone.pass.hidden = alone.be->ops->alloc(alone.be, bytes);
		driver_feed(&alone, 0, same, tok + same, n - same, NULL, 0, rows + (size_t)same * vocab);
		CHECK(!alone.be->ops->read(alone.be, seen + (size_t)same * hidden, alone.pass.hidden, bytes), "%d rows",
		      n - same);
		alone.be->ops->free(alone.be, alone.pass.hidden, bytes);
		alone.pass.hidden = NULL;
		memcpy(had, tok, (size_t)n * sizeof(*tok));
		n_had = n;
	}
	memcpy(out, rows + (size_t)(n - 1) * vocab, vocab * sizeof(*out));
}

static void last_row(const struct model *m, const int32_t *tok, int n, float *out)
{
	size_t hidden = (size_t)m->shape.hidden;
	float *logits = xmalloc((size_t)alone.vocab * sizeof(*logits));

	truth(m, tok, n, logits);
	memcpy(out, seen + (size_t)(n - 1) * hidden, hidden * sizeof(*out));
	free(logits);
}

static void adapters_make(struct adapters *a, struct model *m)
{
	for (int i = 0; i < ADAPTERS; i++)
		a->of[i] = lora_made(m, 3 + 5 * i, (uint64_t)i);
	a->mix[1] = (struct adapter_mix){ 1, { { a->of[0], 1 } } };
	a->mix[2] = (struct adapter_mix){ 1, { { a->of[0], 0.5f } } };
	a->mix[3] = (struct adapter_mix){ 2, { { a->of[1], 1 }, { a->of[0], -1 } } };
}

static void adapters_free(struct adapters *a)
{
	for (int i = 0; i < ADAPTERS; i++) {
		adapter_close(a->of[i]);
		a->of[i] = NULL;
	}
}

static void about(const struct life *l)
{
	const struct adapter_mix *mix = l->mix ? &theirs.mix[l->mix] : NULL;

	if (mix == alone.mix[0])
		return;
	caches_close(&alone.m->caches, 0);
	n_had = 0;
	alone.mix[0] = mix;
}

/* One engine: generous, short of pages, or with small steps.  drafts: and with
 * drafters, of which one is the model itself, so that most drafts come true. */
static void lives(struct store *st, enum cpu_level level, uint64_t seed, bool drafts)
{
	struct lives_opts lo = {
		.steps = quick ? 40 : 100, .prompt_max = 100, .answer_max = 140, .poison = -1, .last = last_row
	};
	struct model_opts mo = { .arith = ARITH_FAST, .slots = SLOTS, .ctx_max = CTX, .step_rows = STEP };
	struct engine_opts eo = { .seqs_max = SLOTS, .queue_max = LIVES_MAX, .by_hand = true };
	struct backend *be = test_backend_open(2, level);
	struct engine_stats es;
	struct model *m, *small = NULL;
	struct engine *e;
	struct err err;
	uint64_t s = seed;
	const struct adapter *of[MIXES][ADAPTERS];
	float scale[MIXES][ADAPTERS];
	struct ask_adapters asked[MIXES];

	eo.step_rows = seed % 2 ? STEP : 9;
	eo.logit_rows = seed % 2 ? STEP : 0;
	eo.answer_reserve = seed % 2 ? 8 : 0;   /* little is set aside: answers give way half way, ... */
	eo.park_bytes = seed % 3 ? 1 << 22 : 0; /* ... and come back from bytes, or are computed again */
	eo.prefix_bytes = seed % 3 ? 1 << 22 : 0;
	mo.snap_bytes = 1 << 23;
	CHECK(!model_bind(&m, st, &err), "%s", err.msg);
	if (seed % 2) {
		/* Pages for one whole sequence and a bit: the answers do not fit together. */
		struct model_opts one = { .kv = model_kv_default(ARITH_FAST), .step_rows = mo.step_rows };

		mo.kv_bytes = model_pool_bytes(&m->shape, &one, -1, CTX) + 2 * model_pool_bytes(&m->shape, &one, -1, 1);
	}
	if (drafts) {
		struct model_opts so = mo;

		mo.tape_rows = eo.n_draft = 2 + (int)(3 * seed);
		eo.draft_fixed = seed != 2;
		so.step_rows = seed % 2 ? 16 : 200;
		CHECK(!model_bind(&small, st, &err) && !model_attach(small, be, &so, &err), "%s", err.msg);
		eo.drafter[0] = draft_ngram_open(SLOTS, 1000);
		CHECK(!draft_model_open(&eo.drafter[1], small, SLOTS, eo.prefix_bytes / 2, &err), "%s", err.msg);
		eo.n_drafter = 2;
	}
	CHECK(!model_attach(m, be, &mo, &err), "%s", err.msg);
	if (with_adapters) {
		adapters_make(&ours, m);
		for (int i = 0; i < MIXES; i++) {
			for (int k = 0; k < ours.mix[i].n; k++) {
				of[i][k] = ours.mix[i].part[k].of;
				scale[i][k] = ours.mix[i].part[k].scale;
			}
			asked[i] = (struct ask_adapters){ of[i], scale[i], ours.mix[i].n };
		}
		lo.mix = asked;
		lo.n_mix = MIXES;
		lo.about = about;
		eo.verify_share = 0.2;
	}
	CHECK(!engine_open(&e, m, NULL, &eo, &err), "%s", err.msg);
	lives_many(e, m, NULL, truth, &lo, &s);
	while (engine_step(e))
		; /* what is to be verified */
	engine_stats(e, &es);
	CHECK(!es.prefix.wrong, "%d kept prefixes are not what a cold run gives", (int)es.prefix.wrong);
	CHECK(es.running == 0 && es.waiting == 0, "%d running", es.running);
	printf("  seed %d: %lld requests, %lld steps, %lld preempted, %lld prefix hits\n", (int)seed,
	       (long long)es.requests, (long long)es.steps, (long long)es.preempted, (long long)es.prefix.hits);
	engine_close(e);
	for (int i = 0; i < eo.n_drafter; i++) {
		printf("    %s: %d of %d drafts came true\n", es.drafter[i].name, (int)es.drafter[i].accepted,
		       (int)es.drafter[i].drafted);
		eo.drafter[i]->ops->close(eo.drafter[i]);
	}
	model_close(small);
	/* The drafter has no adapters. Where it is not asked for, what a draft costs decides: on a busy machine there may be none. */
	if (drafts && !with_adapters && (eo.draft_fixed || es.drafter[1].drafted))
		CHECK(es.drafter[1].accepted > es.drafter[1].drafted / 2, "a model that does not know itself");
	if (m->kv[0]) {
		struct paged_stats kv;

		paged_stats(m->kv[0], &kv);
		CHECK(kv.pages_used == 0, "%d pages are still in use", kv.pages_used);
	}
	model_close(m);
	adapters_free(&ours);
	be->ops->close(be);
}

/* The lives of seeds 1 to most at this level, with drafters, and without them too. */
static void folder(const char *path, enum cpu_level level, uint64_t most, bool plain)
{
	struct driver_opts o = {
		.arith = ARITH_FAST, .threads = 1, .level = level, .slots = 1, .ctx_max = CTX, .step_rows = CTX
	};
	struct store *st;
	struct err err;

	printf("%s, %s\n", path, cpu_level_name(level));
	CHECK(!driver_open(&alone, path, &o, &err), "%s", err.msg);
	CHECK(!store_open(&st, path, &err), "%s", err.msg);
	rows = xmalloc((size_t)CTX * (size_t)alone.vocab * sizeof(*rows));
	seen = xmalloc((size_t)CTX * (size_t)alone.m->shape.hidden * sizeof(*seen));
	n_had = 0;
	if (with_adapters)
		adapters_make(&theirs, alone.m);
	for (uint64_t seed = 1; seed <= most; seed++)
		for (int drafts = !plain; drafts < 2; drafts++)
			lives(st, level, seed, drafts);
	free(rows);
	free(seen);
	store_close(st);
	adapters_free(&theirs);
	driver_close(&alone);
}

/* Short of pages, with preemption, prefixes and drafters. */
static void family(const char *path)
{
	folder(path, cpu_detect(), 1, false);
}

int main(int argc, char **argv)
{
	quick = getenv("WEFT_TEST_QUICK") != NULL;
	log_set_level(LOG_WARN);
	if (argc == 2 && !strcmp(argv[1], "--families"))
		return each_golden_family(family) ? 0 : 77;
	with_adapters = argc > 1 && !strcmp(argv[1], "--adapters");
	if (with_adapters) {
		for (int i = 2; i < argc; i++)
			folder(argv[i], cpu_detect(), quick ? 1 : LIVES, !quick);
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "--once")) {
		for (int i = 2; i < argc; i++)
			family(argv[i]);
		return 0;
	}
	for (int i = 1; i < argc; i++) {
		enum cpu_level best = cpu_detect(), first = i == 1 ? CPU_SCALAR : cpu_level_next(CPU_SCALAR);

		/* The older levels have the same engine above them: one life each; and the lowest, which takes
		 * twenty times as long, for one folder. */
		for (enum cpu_level l = quick || first == CPU_LEVELS ? best : first; l < CPU_LEVELS;
		     l = cpu_level_next(l))
			folder(argv[i], l, l != best ? 1 : quick ? 2 : LIVES, l == best && !quick);
	}
	return 0;
}
