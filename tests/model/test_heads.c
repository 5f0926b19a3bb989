/* test_heads.c - draft heads of others (EAGLE-3, DFlash) and of the model's own folder against a reference: what they are given of the model, then the first rounds'
 * logits and guesses; and the law of the row: however what the model gave is cut, the same bits.
 *
 *     test_heads [FOLDER NAME...]: those in FOLDER, given what the file says that the model gave
 *     test_heads --own FOLDER...: models that have one of their own
 *     test_heads --of MODEL FOLDER: such a model elsewhere, with the rounds in FOLDER
 *     test_heads --same MODEL HEAD OTHER: two files of one head for a model, which guess alike */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "base/alloc.h"
#include "base/json.h"
#include "base/log.h"
#include "driver.h"
#include "rounds.h"
#include "store/safetensors.h"

enum { ROWS = 96, BLOCK = 16, ROUNDS = 8 };

struct rig {
	struct driver target, head;
	struct rounds g;
	float *given;  /* [ROWS][carry] row t: what the model gave for token t - 1 */
	float *hidden; /* [ROWS][hidden] the head's own, of a step */
	float *logits; /* [ROWS][vocab] of a step */
};

static int32_t guess_of(const struct rig *r, int row)
{
	const struct shape *s = &r->head.m->shape;
	const float *x = r->logits + (size_t)row * (size_t)s->vocab;
	int best = rounds_best(x, s->vocab);

	return s->head.token ? s->head.token[best] : best;
}

/* Rows from pos on, of tokens tok; given: what they go on from. */
static void step(struct rig *r, int slot, int pos, const int32_t *tok, int n, const float *given, bool ahead)
{
	static int32_t see[ROWS];
	struct item it = { .slot = slot, .pos = pos, .n = n, .tok = tok, .logits = r->logits, .keep = n };
	struct pass *p = &r->head.pass;

	for (int i = 0; i < n; i++)
		see[i] = pos + n - 1;
	p->see = ahead && r->head.m->shape.head.block ? see : NULL;
	p->given = given;
	p->ahead = ahead;
	p->hidden = r->hidden;
	driver_step(&r->head, &it, 1);
}

static const float *given_row(const struct rig *r, int t)
{
	return r->given + (size_t)t * (size_t)r->head.m->shape.carry;
}

/* The guesses of a block, whose logits are in r->logits; those of a head that leans on the token before are changed. */
static void read_block(struct rig *r, int32_t before, int32_t *out, int most)
{
	const struct model *m = r->head.m;

	for (int i = 0; i < most; i++) {
		if (m->ops->lean)
			m->ops->lean(r->head.m, &r->head.pass, i + 1, before,
			             r->logits + (size_t)(i + 1) * (size_t)m->shape.vocab);
		before = out[i] = guess_of(r, i + 1);
	}
}

/* Guesses after n tokens, whose rows are there but for the last one's; the rows of guesses are taken back.
 * Returns how many. */
static int guess(struct rig *r, int slot, int n, int32_t *out, float *logits, float *hidden, int most)
{
	const struct shape *s = &r->head.m->shape;
	const struct head_shape *h = &s->head;
	size_t vocab = (size_t)s->vocab, cols = (size_t)shape_residual(s);
	int end = n;

	step(r, slot, n - 1, r->g.tok + n - 1, 1, given_row(r, n - 1), false);
	if (h->block) {
		int32_t tok[BLOCK] = { r->g.tok[n - 1] };

		for (int i = 1; i < h->block; i++)
			tok[i] = h->mask;
		step(r, slot, n, tok, h->block, NULL, true);
		most = h->block - 1;
		memcpy(logits, r->logits + vocab, (size_t)most * vocab * sizeof *logits);
		memcpy(hidden, r->hidden + cols, (size_t)most * cols * sizeof *hidden);
		read_block(r, r->g.tok[n - 1], out, most);
		end = n + h->block;
	}
	for (int i = 0; !h->block && i < most; i++) {
		float *own = hidden + (size_t)i * cols;

		if (i)
			step(r, slot, end++, out + i - 1, 1, own - cols, true);
		out[i] = guess_of(r, 0);
		memcpy(logits + (size_t)i * vocab, r->logits, vocab * sizeof *logits);
		memcpy(own, r->hidden, cols * sizeof *own);
	}
	CHECK(caches_rewind(&r->head.m->caches, slot, end, n) == n, "the rows of guesses stay");
	return most;
}

/* What the model gives for all tokens, as the golden has it. */
static void run_target(struct rig *r)
{
	const struct head_shape *h = &r->head.m->shape.head;
	size_t hidden = (size_t)shape_residual(&r->target.m->shape), carry = (size_t)r->head.m->shape.carry;
	struct tap tap[8];

	for (int i = 0; i < h->n_tap; i++)
		tap[i] = (struct tap){ h->tap[i], r->given + carry + (size_t)i * hidden, carry };
	r->target.pass.taps.v = tap;
	r->target.pass.taps.n = h->n_tap;
	r->target.pass.hidden = h->n_tap ? NULL : r->given + carry;
	driver_feed(&r->target, 0, 0, r->g.tok, r->g.n_tok - 1, NULL, 0, NULL);
}

/* Opens the rounds in which layers with a window are causal, where the reference has them beside those in which blocks see
 * both ways. */
static bool open_causal(struct rounds *to, const char *folder)
{
	char path[4300];
	struct err err;

	snprintf(path, sizeof path, "%s/draft_causal.safetensors", folder);
	if (!file_exists(path))
		return false;
	CHECK(!safetensors_open(&to->file, path, &err), "%s", err.msg);
	return true;
}

/* The tokens that a guess is chosen from, and their scores behind the guess before; all others come after them. */
static void compare_candidates(const struct rig *r, int round, int most)
{
	size_t vocab = (size_t)r->head.m->shape.vocab;
	const struct tensor *id;
	char name[32];
	float score[BLOCK * BLOCK];
	int each;

	snprintf(name, sizeof name, "round%d.candidate_ids", round);
	id = safetensors_find(&r->g.file, name);
	if (!id)
		return;
	each = (int)id->dim[1];
	CHECK(id->type == DT_I32 && id->dim[0] == most && each <= BLOCK, "%s", name);
	for (int i = 0; i < most; i++) {
		const float *x = r->logits + (size_t)(1 + i) * vocab;
		float least = INFINITY;
		int above = 0;

		for (int k = 0; k < each; k++) {
			int32_t token;

			memcpy(&token, id->data + ((size_t)i * (size_t)each + (size_t)k) * sizeof token, sizeof token);
			score[i * each + k] = x[token];
			least = fminf(least, x[token]);
		}
		for (size_t t = 0; t < vocab; t++)
			above += x[t] >= least;
		CHECK(above == each, "round %d: %d tokens to choose from, not %d", round, above, each);
	}
	rounds_compare(&r->g, round, "candidate_scores", score, most, each, true);
}

/* The guesses of a round in a file that has them as a tensor. */
static void causal_ids(const struct rounds *of, int round, int32_t *want, int n)
{
	const struct tensor *t;
	char name[32];

	snprintf(name, sizeof name, "round%d.draft_ids", round);
	t = safetensors_find(&of->file, name);
	CHECK(t && t->type == DT_I32 && t->count == n, "no %s", name);
	memcpy(want, t->data, (size_t)n * sizeof *want);
}

/* The same from the golden file. */
static void read_given(struct rig *r)
{
	float *to = r->given + r->head.m->shape.carry;

	for (int k = 0;; k++) {
		const struct tensor *t;
		char name[32];

		snprintf(name, sizeof name, "round%d.hidden_fed", k);
		t = safetensors_find(&r->g.file, name);
		if (!t)
			return;
		memcpy(to, t->data, t->bytes);
		to += t->count;
	}
}

static void run_rounds(struct rig *r, const char *folder)
{
	const struct json *list = json_get(r->g.j, "rounds");
	const struct shape *s = &r->head.m->shape;
	size_t vocab = (size_t)s->vocab;
	struct rounds causal = { 0 };
	bool windowed = open_causal(&causal, folder);
	float *logits[2], *hidden = xcalloc((size_t)BLOCK * (size_t)shape_residual(s), sizeof *hidden);
	int at[2] = { 0, 0 };

	for (int i = 0; i < 2; i++)
		logits[i] = xcalloc(BLOCK * vocab, sizeof(float));
	for (int k = 0; k < (int)json_len(list); k++) {
		const struct json *round = json_at(list, (size_t)k);
		int32_t want[BLOCK], got[2][BLOCK];
		int most = rounds_ids(json_get(round, "draft_ids"), want), n;
		int64_t bonus;

		CHECK(!json_to_int(json_get(round, "bonus_position"), &bonus), "bonus_position");
		n = (int)bonus + 1;
		/* Row 0 is of no token, and not in the file. */
		rounds_compare(&r->g, k, "hidden_fed", given_row(r, at[0] ? at[0] : 1), n - (at[0] ? at[0] : 1),
		               s->carry, false);
		for (int cut = 0; cut < 2; cut++) {
			/* All but the last token's row: at once, or one by one. */
			while (at[cut] < n - 1) {
				int rows = cut ? 1 : n - 1 - at[cut];

				step(r, cut, at[cut], r->g.tok + at[cut], rows, given_row(r, at[cut]), false);
				at[cut] += rows;
			}
			CHECK(guess(r, cut, n, got[cut], logits[cut], hidden, most) == most, "guesses");
			at[cut] = n;
			compare_candidates(r, k, most);
		}
		if (windowed)
			causal_ids(&causal, k, want, most);
		rounds_compare(windowed ? &causal : &r->g, k, "draft_logits", logits[0], most, s->vocab, true);
		if (!s->head.block || r->head.m->ops->lean)
			rounds_compare(&r->g, k, "draft_hidden", hidden, most, shape_residual(s), false);
		CHECK(!memcmp(got[0], want, (size_t)most * sizeof *want), "round %d guesses otherwise", k);
		CHECK(!memcmp(got[0], got[1], (size_t)most * sizeof *want) &&
		              !memcmp(logits[0], logits[1], (size_t)most * vocab * sizeof(float)),
		      "round %d hangs on the cut", k);
	}
	if (windowed)
		safetensors_close(&causal.file);
	free(logits[0]);
	free(logits[1]);
	free(hidden);
}

/* Compares the head in st over the model in the folder `target` with the rounds in the folder `rounds`. */
static void test(const char *target, struct store *st, const char *rounds, bool run)
{
	struct driver_opts o = {
		.arith = ARITH_F32, .threads = 2, .level = cpu_detect(), .slots = 2, .ctx_max = ROWS, .step_rows = ROWS
	};
	struct rig r = { 0 };
	struct model *m;
	struct err err;

	printf("%s\n", rounds);
	CHECK(!driver_open(&r.target, target, &o, &err), "%s", err.msg);
	rounds_open(&r.g, rounds);
	CHECK(!model_bind_head(&m, r.target.m, st ? st : r.target.st, &err), "%s", err.msg);
	CHECK(st || m->shape.weight_bytes > 0, "a head without weights");
	CHECK(!driver_attach(&r.head, m, &o, &err), "%s", err.msg);
	r.given = xcalloc((size_t)ROWS * (size_t)m->shape.carry, sizeof(float));
	r.hidden = xcalloc((size_t)ROWS * (size_t)shape_residual(&m->shape), sizeof(float));
	r.logits = xcalloc((size_t)ROWS * (size_t)m->shape.vocab, sizeof(float));
	if (run)
		run_target(&r);
	else
		read_given(&r);
	run_rounds(&r, rounds);
	free(r.given);
	free(r.hidden);
	free(r.logits);
	driver_close(&r.head);
	driver_close(&r.target);
	rounds_close(&r.g);
}

/* A head in a folder of its own, for qwen3_5. */
static void test_other(const char *root, const char *target, const char *name)
{
	char model[4200], head[4200];
	struct store *st;
	struct model *m;
	struct err err;

	snprintf(model, sizeof model, "%s/qwen3_5/%s", root, target ? target : "mlx-q4");
	snprintf(head, sizeof head, "%s/_draft/%s", root, name);
	CHECK(!store_open(&st, head, &err) && model_only_head(st), "%s", err.msg);
	CHECK(model_bind(&m, st, &err) == E_UNSUPPORTED, "a head is no model");
	test(model, st, head, target != NULL);
	store_close(st);
}

enum { CONTEXT = 20, TAPS = 8 };

/* What a head guesses after CONTEXT tokens of no meaning; returns how many.  tap: the layers that it reads, ended by -1. */
static int guess_any(struct rig *r, struct store *st, int32_t *out, float **logits, int tap[TAPS + 1])
{
	struct driver_opts o = {
		.arith = ARITH_F32, .threads = 2, .level = cpu_detect(), .slots = 1, .ctx_max = ROWS, .step_rows = ROWS
	};
	struct model *m;
	struct err err;
	float *hidden;
	int n;

	CHECK(!model_bind_head(&m, r->target.m, st, &err), "%s", err.msg);
	for (size_t i = 0; i < st->n; i++)
		CHECK(st->v[i]->used || st->v[i]->ignored, "%s is not used", st->v[i]->name);
	CHECK(!driver_attach(&r->head, m, &o, &err), "%s", err.msg);
	CHECK(m->shape.head.n_tap <= TAPS, "%d layers", m->shape.head.n_tap);
	memcpy(tap, m->shape.head.tap, (size_t)m->shape.head.n_tap * sizeof *tap);
	tap[m->shape.head.n_tap] = -1;
	r->given = xcalloc((size_t)ROWS * (size_t)m->shape.carry, sizeof(float));
	r->hidden = xcalloc((size_t)ROWS * (size_t)shape_residual(&m->shape), sizeof(float));
	r->logits = xcalloc((size_t)ROWS * (size_t)m->shape.vocab, sizeof(float));
	hidden = xcalloc((size_t)BLOCK * (size_t)shape_residual(&m->shape), sizeof *hidden);
	*logits = xcalloc((size_t)BLOCK * (size_t)m->shape.vocab, sizeof **logits);
	for (int i = 0; i < CONTEXT * m->shape.carry; i++)
		r->given[i] = sinf((float)i * 0.37f);
	for (int i = 0; i < CONTEXT; i++)
		r->g.tok[i] = i * i * 7 % (m->shape.vocab < 500 ? m->shape.vocab : 500);
	step(r, 0, 0, r->g.tok, CONTEXT - 1, r->given, false);
	n = guess(r, 0, CONTEXT, out, *logits, hidden, 4);
	free(r->given);
	free(r->hidden);
	free(r->logits);
	free(hidden);
	return n;
}

static void test_same(const char *model, const char *const file[2])
{
	struct driver_opts o = {
		.arith = ARITH_F32, .threads = 2, .level = cpu_detect(), .slots = 1, .ctx_max = ROWS, .step_rows = ROWS
	};
	int32_t out[2][BLOCK];
	int n[2], tap[2][TAPS + 1] = { 0 }, vocab = 0;
	float *logits[2], most = 0;
	struct rig r = { 0 };
	struct store *st;
	struct err err;

	CHECK(!driver_open(&r.target, model, &o, &err), "%s", err.msg);
	for (int i = 0; i < 2; i++) {
		CHECK(!store_open(&st, file[i], &err) && model_only_head(st), "%s", err.msg);
		n[i] = guess_any(&r, st, out[i], &logits[i], tap[i]);
		vocab = r.head.m->shape.vocab;
		driver_close(&r.head);
		store_close(st);
	}
	CHECK(!memcmp(tap[0], tap[1], sizeof tap[0]), "%s reads other layers", file[1]);
	CHECK(n[0] == n[1] && !memcmp(out[0], out[1], (size_t)n[0] * sizeof *out[0]), "%s guesses otherwise", file[1]);
	for (int i = 0; i < n[0] * vocab; i++)
		most = fmaxf(most, fabsf(logits[0][i] - logits[1][i]));
	CHECK(most <= 1e-4f, "%s: logits are %g apart", file[1], (double)most);
	printf("%s: %d guesses within %.1e\n", file[0], n[0], (double)most);
	free(logits[0]);
	free(logits[1]);
	driver_close(&r.target);
}

/* Rows of a tensor of the file against got, within 1e-3. */
static void compare_rows(const struct safetensors *f, const char *name, const float *got, int n, int cols)
{
	const struct tensor *t = safetensors_find(f, name);

	CHECK(t && t->type == DT_F32 && t->count == (int64_t)n * cols, "%s is not %d rows of %d", name, n, cols);
	for (int i = 0; i < n * cols; i++) {
		float want;

		memcpy(&want, t->data + (size_t)i * sizeof want, sizeof want);
		CHECK(fabsf(got[i] - want) <= 1e-3f, "%s: row %d: %g, not %g", name, i / cols, (double)got[i],
		      (double)want);
	}
	printf("  %s: %d rows\n", name, n);
}

/* Ids of the file, of which there are at most ROWS. */
static int ids_of(const struct safetensors *f, const char *name, int32_t *out)
{
	const struct tensor *t = safetensors_find(f, name);

	CHECK(t && t->type == DT_I32 && t->count < ROWS, "no %s", name);
	memcpy(out, t->data, (size_t)t->count * sizeof *out);
	return (int)t->count;
}

/* A head whose logits over a prompt are in golden_mtp.safetensors, and three guesses after it. */
static void test_pairs(const char *folder)
{
	struct driver_opts o = {
		.arith = ARITH_F32, .threads = 2, .level = cpu_detect(), .slots = 2, .ctx_max = ROWS, .step_rows = ROWS
	};
	int32_t want[BLOCK], got[BLOCK];
	struct rig r = { 0 };
	struct safetensors f;
	struct model *m;
	char path[4300];
	struct err err;
	float *logits, *hidden;
	int most, last, cols;

	printf("%s\n", folder);
	snprintf(path, sizeof path, "%s/golden.safetensors", folder);
	CHECK(!safetensors_open(&f, path, &err), "%s", err.msg);
	r.g.n_tok = ids_of(&f, "prompt_ids", r.g.tok);
	safetensors_close(&f);
	snprintf(path, sizeof path, "%s/golden_mtp.safetensors", folder);
	CHECK(!safetensors_open(&f, path, &err), "%s", err.msg);
	CHECK(ids_of(&f, "next_ids", r.g.tok + 1) == r.g.n_tok, "next_ids");
	last = r.g.n_tok++;
	most = ids_of(&f, "draft_ids", want);
	CHECK(!driver_open(&r.target, folder, &o, &err) && !model_bind_head(&m, r.target.m, r.target.st, &err) &&
	              !driver_attach(&r.head, m, &o, &err),
	      "%s", err.msg);
	cols = m->shape.carry;
	r.given = xcalloc((size_t)ROWS * (size_t)cols, sizeof(float));
	r.hidden = xcalloc((size_t)ROWS * (size_t)cols, sizeof(float));
	r.logits = xcalloc((size_t)ROWS * (size_t)m->shape.vocab, sizeof(float));
	logits = xcalloc((size_t)BLOCK * (size_t)m->shape.vocab, sizeof *logits);
	hidden = xcalloc((size_t)BLOCK * (size_t)cols, sizeof *hidden);
	run_target(&r);
	compare_rows(&f, "target_wide_last", given_row(&r, last), 1, cols);
	step(&r, 0, 0, r.g.tok, last, given_row(&r, 0), false);
	guess(&r, 0, last + 1, got, logits, hidden, most);
	compare_rows(&f, "draft_logits", logits, most, m->shape.vocab);
	CHECK(!memcmp(got, want, (size_t)most * sizeof *want), "other guesses");
	step(&r, 1, 0, r.g.tok, last + 1, given_row(&r, 0), false);
	most = (int)safetensors_find(&f, "mtp_logits")->dim[0];
	compare_rows(&f, "mtp_logits", r.logits + (size_t)(last + 1 - most) * (size_t)m->shape.vocab, most,
	             m->shape.vocab);
	free(r.given);
	free(r.hidden);
	free(r.logits);
	free(logits);
	free(hidden);
	driver_close(&r.head);
	driver_close(&r.target);
	safetensors_close(&f);
}

int main(int argc, char **argv)
{
	static const char *const name[] = { "eagle3_speculators", "eagle3_sglang", "eagle3_accepting", "dflash",
		                            "dflash_sliding",     "dflash2",       "dflash2_scaled" };
	const char *shared = shared_folder();
	char root[4096];

	log_set_level(LOG_WARN);
	if (argc == 4 && !strcmp(argv[1], "--of")) {
		test(argv[2], NULL, argv[3], true);
		return 0;
	}
	if (argc == 5 && !strcmp(argv[1], "--same")) {
		test_same(argv[2], (const char *const *)argv + 3);
		return 0;
	}
	for (int i = 2; i < argc; i++)
		if (!strcmp(argv[1], "--own"))
			test(argv[i], NULL, argv[i], true);
		else
			test_other(argv[1], NULL, argv[i]);
	if (argc > 1)
		return 0;
	if (!shared)
		return 77; /* skipped; shared_folder said why */
	snprintf(root, sizeof root, "%s/golden", shared);
	for (size_t i = 0; i < sizeof name / sizeof *name; i++)
		test_other(root, "hf-f32", name[i]);
	snprintf(root, sizeof root, "%s/golden/qwen4_exp_mtp/hf-bf16", shared);
	test_pairs(root);
	return 0;
}
