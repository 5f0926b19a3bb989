/* Adapters (LoRA) in reference arithmetic.
 *
 * Against a merge: random additions to all matrices of a model, and the same model with W + factor B A written out in
 * float32.  Against goldens: an adapter in both of its forms beside the logits of a reference.  And files that are
 * refused, each by what is wrong with it.
 *
 *     adapter_test FOLDER...     folders to merge with */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "driver.h"
#include "folder.h"
#include "lora.h"
#include "store/safetensors.h"

enum { ROWS = 40, PROMPT_MAX = 128 };

static const struct driver_opts reference = {
	.arith = ARITH_F32,
	.threads = 2,
	.slots = 2,
	.ctx_max = 256,
	.step_rows = 128,
	.tape_rows = 1,
};

static int open_model(struct driver *d, const char *path)
{
	struct driver_opts o = reference;
	struct err err;

	o.level = cpu_detect();
	if (!driver_open(d, path, &o, &err))
		return 0;
	printf("FAIL %s: %s\n", path, err.msg);
	return 1;
}

/* Largest difference of n numbers, in units of the largest of b; what is no number is infinitely far. */
static float worst(const float *a, const float *b, int n)
{
	float most = 0, large = 0;

	for (int i = 0; i < n; i++) {
		float want, d;

		memcpy(&want, &b[i], sizeof want);
		d = fabsf(a[i] - want);
		large = fmaxf(large, fabsf(want));
		if (!(d <= most))
			most = isnan(d) ? INFINITY : d;
	}
	return most / fmaxf(large, 1);
}

/* ---- against a merge ---- */

static const struct adapter_matrix *pair_of(const struct adapter_matrix *v, int n, const char *tensor)
{
	for (int i = 0; i < n; i++) {
		size_t len = strlen(v[i].path);

		if (!strncmp(v[i].path, tensor, len) && !strcmp(tensor + len, ".weight"))
			return &v[i];
	}
	return NULL;
}

/* W + factor B A. */
static float *merged(const struct tensor *t, const struct adapter_matrix *v)
{
	float *x = xmalloc((size_t)t->count * sizeof *x);

	dtype_to_float(x, t->data, t->type, (size_t)t->count);
	for (size_t o = 0; o < (size_t)v->rows; o++)
		for (size_t r = 0; r < (size_t)v->rank; r++)
			for (size_t i = 0; i < (size_t)v->cols; i++)
				x[o * (size_t)v->cols + i] += v->factor * v->b[o * (size_t)v->rank + r] *
				                              v->a[r * (size_t)v->cols + i];
	return x;
}

/* The model as a folder of its own, with what the pairs add inside its matrices.  Returns how many there were. */
static int write_merged(const char *to, const char *from, const struct store *st, const struct adapter_matrix *v, int n)
{
	struct tensor_out *out = xcalloc(st->n, sizeof *out);
	float **made = xcalloc(st->n, sizeof *made);
	struct buf config;
	struct err err;
	int done = 0;

	for (size_t i = 0; i < st->n; i++) {
		const struct tensor *t = st->v[i];
		const struct adapter_matrix *pair = pair_of(v, n, t->name);

		out[i] = (struct tensor_out){ t->name, pair ? DT_F32 : t->type, t->n_dim, { 0 }, t->data };
		memcpy(out[i].dim, t->dim, sizeof out[i].dim);
		if (!pair)
			continue;
		out[i].data = made[i] = merged(t, pair);
		done++;
	}
	buf_init(&config);
	if (safetensors_write(folder_path(to, "model.safetensors"), out, (int)st->n, &err) ||
	    file_read(folder_path(from, "config.json"), 1 << 20, &config, &err)) {
		printf("FAIL %s\n", err.msg);
		exit(1);
	}
	folder_put(to, "config.json", config.p, config.n);
	buf_fini(&config);
	for (size_t i = 0; i < st->n; i++)
		free(made[i]);
	free(made);
	free(out);
	return done;
}

static void random_tokens(int32_t *tok, int n, int vocab)
{
	for (int i = 0; i < n; i++)
		tok[i] = (int32_t)(rng_bits(7, (uint64_t)i, 0) % (uint64_t)vocab);
}

/* Logits with the adapter beside the model, with its matrices merged, and without. */
static int check_merge(const char *folder)
{
	struct driver d, e;
	struct adapter *a;
	struct adapter_mix mix = { .n = 1 };
	struct adapter_matrix *v;
	int32_t tok[ROWS];
	char *dir = folder_new();
	float *got, *want, *plain, far, moved;
	struct err err;
	int n, done, floats;

	if (open_model(&d, folder))
		return 1;
	v = lora_pairs(d.m, 5, 3, 0, &n);
	if (adapter_make(&a, d.m, "made", "made", v, n, &err)) {
		printf("FAIL %s: %s\n", folder, err.msg);
		return 1;
	}
	done = write_merged(dir, folder, d.st, v, n);
	lora_free(v, n);
	random_tokens(tok, ROWS, d.vocab);
	floats = ROWS * d.vocab;
	got = xcalloc((size_t)floats, sizeof *got);
	want = xcalloc((size_t)floats, sizeof *want);
	plain = xcalloc((size_t)floats, sizeof *plain);
	mix.part[0].of = a;
	mix.part[0].scale = 1;
	d.mix[0] = &mix;
	driver_feed(&d, 0, 0, tok, ROWS, NULL, 0, got);
	driver_feed(&d, 1, 0, tok, ROWS, NULL, 0, plain);
	if (open_model(&e, dir))
		return 1;
	driver_feed(&e, 0, 0, tok, ROWS, NULL, 0, want);
	far = worst(got, want, floats);
	moved = worst(plain, want, floats);
	n -= done;
	done = far <= 2e-4f && moved > 0.01f && !n;
	printf("%s %s: %.1e of the merged model's logits; the model without is %.1e away\n", done ? "ok  " : "FAIL",
	       folder, (double)far, (double)moved);
	if (n)
		printf("FAIL %s: %d matrices are no tensor of the folder\n", folder, n);
	driver_close(&e);
	adapter_close(a);
	driver_close(&d);
	folder_remove(dir);
	free(got);
	free(want);
	free(plain);
	return !done;
}

/* ---- against goldens ---- */

static int check_golden(const char *root, const char *model, const char *path, const struct safetensors *s)
{
	const struct tensor *prompt = safetensors_find(s, "prompt_ids"), *logits = safetensors_find(s, "logits");
	struct adapter_mix mix = { .n = 1 };
	struct adapter *a;
	struct driver d;
	struct err err;
	float *got, far;
	int n = (int)prompt->dim[0];

	if (open_model(&d, model))
		return 1;
	if (adapter_open(&a, d.m, "golden", path, &err)) {
		printf("FAIL %s\n", err.msg);
		return 1;
	}
	got = xmalloc((size_t)n * (size_t)d.vocab * sizeof *got);
	mix.part[0].of = a;
	mix.part[0].scale = 1;
	d.mix[0] = &mix;
	driver_feed(&d, 0, 0, (const int32_t *)prompt->data, n, NULL, 0, got);
	far = worst(got, (const float *)logits->data, n * d.vocab);
	printf("%s %s: %.1e\n", far <= 1e-4f ? "ok  " : "FAIL", path + strlen(root), (double)far);
	free(got);
	adapter_close(a);
	driver_close(&d);
	return !(far <= 1e-4f);
}

static int check_goldens(const char *shared)
{
	static const char *const forms[] = { "adapter.gguf", "peft" };
	char root[2048], path[4096], model[4096];
	struct safetensors s;
	struct err err;
	int bad = 0;

	snprintf(root, sizeof root, "%s/golden/_gguf", shared);
	snprintf(path, sizeof path, "%s/lora/golden.safetensors", root);
	snprintf(model, sizeof model, "%s/models/llama/bf16.gguf", root);
	if (safetensors_open(&s, path, &err)) {
		printf("FAIL %s\n", err.msg);
		return 1;
	}
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		snprintf(path, sizeof path, "%s/lora/%s", root, forms[i]);
		bad += check_golden(root, model, path, &s);
	}
	safetensors_close(&s);
	return bad;
}

/* ---- refusals ---- */

static const char plain_config[] = "\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4";

static const struct {
	const char *config; /* members beside plain_config, which they come before; NULL: the tensors are wrong */
	const char *tensor; /* name of the first tensor, less its end */
	int rank, rows, cols;
	const char *says;
} wrong[] = {
	{ "\"use_dora\": true", NULL, 2, 0, 0, "use_dora" },
	{ "\"modules_to_save\": [\"lm_head\"]", NULL, 2, 0, 0, "modules_to_save" },
	{ "\"bias\": \"all\"", NULL, 2, 0, 0, "bias" },
	{ "\"target_parameters\": [\"experts\"]", NULL, 2, 0, 0, "target_parameters" },
	{ "\"alpha_pattern\": {\"q_.*\": 3}", NULL, 2, 0, 0, "alpha_pattern" },
	{ "\"init_lora_weights\": \"pissa\"", NULL, 2, 0, 0, "pissa" },
	{ "", "base_model.model.model.embed_tokens.lora_A.weight", 2, 0, 0, "embeddings" },
	{ "", "base_model.model.model.layers.0.mlp.no_proj.lora_A.weight", 2, 0, 0, "no_proj" },
	{ "", "base_model.model.model.layers.0.mlp.up_proj.lora_magnitude_vector", 2, 0, 0, "lora_magnitude_vector" },
	{ "", NULL, 2, -1, 0, "is for [" },
	{ "", NULL, 2, 0, 1, "is for [" },
	{ "", NULL, LOW_RANK_MAX + 1, 0, 0, "rank" },
	{ "", NULL, 0, 0, 0, "no [rank, inputs]" },
};

static int check_refusal(struct model *m, const char *dir, size_t i)
{
	const char *name = wrong[i].tensor ? wrong[i].tensor :
	                                     "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight";
	const struct store_matrix *w = store_matrix(m->st, "model.layers.0.mlp.down_proj");
	int rank = wrong[i].rank, rows = w->w.rows + wrong[i].rows, cols = w->w.cols + wrong[i].cols;
	float *zeros = xcalloc((size_t)(rank + 1) * (size_t)(rows + cols), sizeof *zeros);
	struct tensor_out v[2] = { { name, DT_F32, 2, { rank, cols }, zeros },
		                   { NULL, DT_F32, 2, { rows, rank }, zeros } };
	char text[512], *b = xstrdup(name), *side = strstr(b, "lora_A");
	struct adapter *a = NULL;
	struct err err = { .msg = "" };
	int bad;

	if (side)
		side[strlen("lora_")] = 'B';
	v[1].name = b;
	snprintf(text, sizeof text, "{%s%s%s}", wrong[i].config, *wrong[i].config ? ", " : "", plain_config);
	folder_puts(dir, "adapter_config.json", text);
	if (safetensors_write(folder_path(dir, "adapter_model.safetensors"), v, 1 + !!side, &err)) {
		printf("FAIL %s\n", err.msg);
		exit(1);
	}
	bad = !adapter_open(&a, m, "wrong", dir, &err) || !strstr(err.msg, wrong[i].says);
	if (bad)
		printf("FAIL refusal %zu: \"%s\", to say \"%s\"\n", i, a ? "taken" : err.msg, wrong[i].says);
	adapter_close(a);
	free(zeros);
	free(b);
	return bad;
}

static int check_refusals(const char *folder)
{
	struct driver d;
	char *dir;
	int bad = 0;

	if (open_model(&d, folder))
		return 1;
	dir = folder_new();
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		bad += check_refusal(d.m, dir, i);
	printf("%s refused as they should be: %zu adapters\n", bad ? "FAIL" : "ok  ", sizeof wrong / sizeof *wrong);
	folder_remove(dir);
	driver_close(&d);
	return bad;
}

int main(int argc, char **argv)
{
	const char *shared;
	char folder[4096];
	int bad = 0;

	log_set_level(LOG_ERROR);
	bad += check_refusals(argv[1]);
	for (int i = 2; i < argc; i++)
		bad += check_merge(argv[i]);
	if (!(shared = shared_folder()))
		return bad > 0;
	bad += check_goldens(shared);
	for (int i = 0; golden_family[i]; i++) {
		snprintf(folder, sizeof folder, "%s/golden/%s/hf-f32", shared, golden_family[i]);
		if (!dir_exists(folder))
			snprintf(folder, sizeof folder, "%s/golden/%s/hf-bf16", shared, golden_family[i]);
		if (dir_exists(folder))
			bad += check_merge(folder);
	}
	return bad > 0;
}
