/* Keys and values in few bits, from end to end: how far the logits of a prompt are
 * from those of the plain cache, beside how far a reference implementation's
 * quantised cache goes on the same model (MLX's affine codes; a TurboQuant with its
 * last attention layer left plain).  Reference arithmetic; codes from position 0.
 *
 *     golden_kv_test          what tests/golden has, then every file of ../shared/golden
 *
 * Codes differ, so logits do: what is compared is the mean Kullback-Leibler
 * divergence from the golden logits of the plain cache.  Ours may be at most 2 %
 * above theirs, file by file: both are one draw of rounding errors on a random
 * model, but the same draw every time. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "driver.h"
#include "store/safetensors.h"

enum { ROWS = 128, LAYERS_MAX = 64, IN_TREE = 2 };

struct cell {
	const char *model, *file, *tensor, *key, *value;
	bool skip_last;
};
static const struct cell cells[] = {
	{ "qwen3_5/mlx-q4", "_kvquant/qwen3_5.mlx-q4.kv8", "all_prompt_logits", "u8g64", "u8g64", false },
	{ "qwen3_5/mlx-q4", "_kvquant/qwen3_5.mlx-q4.kv4", "all_prompt_logits", "u4g64", "u4g64", false },
	{ "qwen3_5/hf-f32", "_kvquant/qwen3_5.hf-f32.kv8", "all_prompt_logits", "u8g64", "u8g64", false },
	{ "qwen3_5/hf-f32", "_kvquant/qwen3_5.hf-f32.kv4", "all_prompt_logits", "u4g64", "u4g64", false },
	{ "qwen3/mlx-q4", "_kvquant/qwen3.mlx-q4.kv8", "all_prompt_logits", "u8g64", "u8g64", false },
	{ "qwen3/mlx-q4", "_kvquant/qwen3.mlx-q4.kv4", "all_prompt_logits", "u4g64", "u4g64", false },
	{ "qwen3/hf-f32", "_kvquant/qwen3.hf-f32.kv8", "all_prompt_logits", "u8g64", "u8g64", false },
	{ "qwen3/hf-f32", "_kvquant/qwen3.hf-f32.kv4", "all_prompt_logits", "u4g64", "u4g64", false },
	{ "qwen3/hf-f32", "_turboquant/e2e_qwen3_kv4.0", "prompt_logits", "tq4", "tq4", true },
	{ "qwen3/hf-f32", "_turboquant/e2e_qwen3_kv3.5", "prompt_logits", "tq3", "tq4", true },
	{ "qwen3/hf-f32", "_turboquant/e2e_qwen3_kv2.5", "prompt_logits", "tq2", "tq3", true },
};

static const void *numbers(struct safetensors *s, const char *path, const char *name, int *rows)
{
	const struct tensor *t;
	struct err err;

	if (safetensors_open(s, path, &err)) {
		printf("%s\n", err.msg);
		exit(1);
	}
	t = safetensors_find(s, name);
	assert(t && t->n_dim >= 1);
	if (rows)
		*rows = (int)t->dim[0];
	return t->data;
}

/* In nats, of a row: p and q are logits. */
static double divergence(const char *p_row, const char *q_row, int n)
{
	double sum[2] = { 0, 0 }, top[2] = { -INFINITY, -INFINITY }, kl = 0;
	float *x = xmalloc((size_t)n * 2 * sizeof *x);

	memcpy(x, p_row, (size_t)n * sizeof *x); /* a file's data may be unaligned */
	memcpy(x + n, q_row, (size_t)n * sizeof *x);
	for (int s = 0; s < 2; s++) {
		for (int i = 0; i < n; i++)
			top[s] = fmax(top[s], (double)x[s * n + i]);
		for (int i = 0; i < n; i++)
			sum[s] += exp((double)x[s * n + i] - top[s]);
	}
	for (int i = 0; i < n; i++) {
		double a = (double)x[i] - top[0] - log(sum[0]), b = (double)x[n + i] - top[1] - log(sum[1]);

		kl += exp(a) * (a - b);
	}
	free(x);
	return kl;
}

static void logits(float *got, const char *folder, const struct cell *c, const int32_t *prompt, int n)
{
	struct kv_pair layer[LAYERS_MAX];
	struct driver_opts o = { .arith = ARITH_F32,
		                 .threads = 2,
		                 .level = cpu_detect(),
		                 .slots = 1,
		                 .ctx_max = ROWS,
		                 .step_rows = ROWS,
		                 .kv = { .layer = layer } };
	struct store *st;
	struct model *m;
	struct driver d;
	struct err err;
	int layers;

	if (store_open(&st, folder, &err) || model_bind(&m, st, &err)) {
		printf("FAIL %s: %s\n", folder, err.msg);
		exit(1);
	}
	layers = m->shape.layers_attn;
	assert(layers <= LAYERS_MAX);
	for (int i = 0; i < layers; i++)
		layer[i] = (struct kv_pair){ kv_format_find(c->key), kv_format_find(c->value) };
	if (c->skip_last)
		layer[layers - 1] = (struct kv_pair){ kv_format_find("f32"), kv_format_find("f32") };
	d = (struct driver){ .st = st };
	if (driver_attach(&d, m, &o, &err)) {
		printf("FAIL %s: %s\n", folder, err.msg);
		exit(1);
	}
	driver_feed(&d, 0, 0, prompt, n, NULL, 0, got);
	caches_close(&d.m->caches, 0);
	driver_close(&d);
}

/* Mean divergence of each from the plain cache; false: a file is not there. */
static bool compare(const char *root, const struct cell *c, double *theirs, double *ours)
{
	char folder[1200], plain[1300], other[1300];
	struct safetensors file[3];
	const char *want, *their;
	const int32_t *prompt;
	int n, vocab;
	float *got;

	snprintf(folder, sizeof folder, "%s/%s", root, c->model);
	snprintf(plain, sizeof plain, "%s/golden.safetensors", folder);
	snprintf(other, sizeof other, "%s/%s.safetensors", root, c->file);
	if (!file_exists(plain) || !file_exists(other))
		return false;
	prompt = numbers(&file[0], plain, "prompt_ids", &n);
	want = numbers(&file[1], plain, "prompt_logits", NULL);
	their = numbers(&file[2], other, c->tensor, NULL);
	vocab = (int)safetensors_find(&file[1], "prompt_logits")->dim[1];
	assert(n <= ROWS && (int)safetensors_find(&file[2], c->tensor)->dim[0] == n);
	got = xmalloc((size_t)ROWS * (size_t)vocab * sizeof *got);
	logits(got, folder, c, prompt, n);
	*theirs = *ours = 0;
	for (int i = 0; i < n; i++) {
		size_t at = (size_t)i * (size_t)vocab * sizeof(float);

		*theirs += divergence(want + at, their + at, vocab) / n;
		*ours += divergence(want + at, (const char *)got + at, vocab) / n;
	}
	free(got);
	for (int i = 0; i < 3; i++)
		safetensors_close(&file[i]);
	return true;
}

static int check(const char *root, int n)
{
	int bad = 0;

	for (int i = 0; i < n; i++) {
		const struct cell *c = &cells[i];
		double theirs, ours;
		bool ok;

		if (!compare(root, c, &theirs, &ours)) {
			printf("FAIL %s: %s or %s is missing\n", root, c->file, c->model);
			bad++;
			continue;
		}
		ok = ours > 0 && ours <= theirs * 1.02; /* 0: nothing was quantised */
		printf("%s %-30s keys %-5s values %-5s  mean KL %.3g, the reference's %.3g\n", ok ? "ok  " : "FAIL",
		       c->file, c->key, c->value, ours, theirs);
		bad += !ok;
	}
	return bad;
}

int main(void)
{
	char root[1024];
	int bad;

	log_set_level(LOG_ERROR);
	bad = check(WEFT_TREE_GOLDEN, IN_TREE);
	if (shared_folder()) {
		snprintf(root, sizeof root, "%s/golden", shared_folder());
		bad += check(root, sizeof cells / sizeof *cells);
	}
	return bad > 0;
}
