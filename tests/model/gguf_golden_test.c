/* Logits of GGUF files against a reference implementation's of the same files, their tensors decoded to float32 and
 * everything computed in float32: the prompt in one go and in chunks, then greedy tokens fed one by one, of which the
 * last one's logits are compared.  So this checks the container, the config made from metadata, what is undone of the
 * converter's work, and the number formats.
 *
 *     gguf_golden_test [--root FOLDER] [NAME/FILE]...
 *
 * FOLDER/NAME/FILE.gguf, or its parts, with FILE.safetensors beside.  Without names: all of FOLDER; an architecture that
 * is not read is told and passed over, unless it is one of those that must be read. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "driver.h"
#include "store/safetensors.h"

enum { PROMPT_MAX = 128 };

/* Families that a file of must be read; routers and delta nets amplify what differs in the last bit. */
static const struct {
	const char *name;
	float tolerance;
} known[] = {
	{ "llama", 1e-3f },          { "llama2", 1e-3f },         { "qwen2", 1e-3f },          { "qwen2_split", 1e-3f },
	{ "qwen3", 1e-3f },          { "k_llama", 1e-3f },        { "qwen3_moe", 5e-3f },      { "k_qwen3_moe", 5e-3f },
	{ "qwen3_5", 5e-3f },        { "k_qwen3_5", 5e-3f },      { "qwen3_5_moe", 5e-3f },    { "qwen3_next", 5e-3f },
	{ "gemma3_text", 1e-3f },    { "gemma4_e2b", 1e-3f },     { "gemma4_moe", 5e-3f },     { "k_gemma3", 1e-3f },
	{ "gemma4_unified", 1e-3f }, { "gpt_oss", 5e-3f },        { "glm4_moe", 5e-3f },       { "falcon_h1", 1e-3f },
	{ "granite_hybrid", 5e-3f }, { "nemotron_h", 1e-3f },     { "nemotron_h_moe", 5e-3f }, { "lfm2", 1e-3f },
	{ "lfm2_moe", 5e-3f },       { "deepseek_v3", 5e-3f },    { "kimi_linear", 5e-3f },    { "mamba2", 1e-3f },
	{ "qwen4_exp", 1e-3f },      { "qwen4_exp_mtp", 1e-3f },  { "glm5_next", 1e-3f },      { "deepseek_v4", 1e-3f },
	{ "bonsai_1bit", 5e-3f },    { "bonsai_ternary", 5e-3f }, { "bonsai_tied", 5e-3f },    { "bailingmoe2", 5e-3f },
	{ "bailing_hybrid", 1e-3f }, { "granite_swa", 1e-3f },    { "kimi_k25", 1e-3f },
};

static float tolerance_of(const char *name)
{
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strncmp(known[i].name, name, strlen(known[i].name)) && name[strlen(known[i].name)] == '/')
			return known[i].tolerance;
	return 0;
}

static const void *tensor(const struct safetensors *s, const char *name, int *n)
{
	const struct tensor *t = safetensors_find(s, name);

	if (!t) {
		printf("FAIL: no %s in the golden file\n", name);
		exit(1);
	}
	if (n)
		*n = (int)t->dim[0];
	return t->data;
}

/* Largest difference; NaN counts as infinite. */
static float worst(const float *a, const float *b, int n)
{
	float most = 0;

	for (int i = 0; i < n; i++) {
		float want, d;

		memcpy(&want, &b[i], sizeof want);
		d = fabsf(a[i] - want);
		if (!(d <= most))
			most = isnan(d) ? INFINITY : d;
	}
	return most;
}

static float at_positions(const struct safetensors *s, const float *got, int vocab)
{
	int n;
	const int32_t *at = tensor(s, "positions", &n);
	const float *want = tensor(s, "logits", NULL);
	float most = 0;

	for (int i = 0; i < n; i++)
		most = fmaxf(most, worst(got + (size_t)at[i] * (size_t)vocab, want + (size_t)i * (size_t)vocab, vocab));
	return most;
}

/* The largest difference of all ways to compute it. */
static float compare(struct driver *d, const struct safetensors *s)
{
	static const int mixed[] = { 1, 7, 64 };
	int n, more, v = d->vocab;
	const int32_t *prompt = tensor(s, "prompt_ids", &n), *greedy = tensor(s, "greedy_ids", &more);
	float *got = xmalloc((size_t)PROMPT_MAX * (size_t)v * sizeof *got), most;

	if (n > PROMPT_MAX) {
		printf("FAIL: a prompt of %d tokens\n", n);
		exit(1);
	}
	driver_feed(d, 0, 0, prompt, n, mixed, 3, got);
	most = at_positions(s, got, v);
	caches_close(&d->m->caches, 0);
	driver_feed(d, 0, 0, prompt, n, NULL, 0, got);
	most = fmaxf(most, at_positions(s, got, v));
	/* The last row of the greedy run is of the last token but one. */
	for (int i = 0; i + 1 < more; i++)
		driver_feed(d, 0, n + i, &greedy[i], 1, NULL, 0, got);
	most = fmaxf(most, worst(got, tensor(s, "greedy_logits_last", NULL), v));
	free(got);
	return most;
}

/* 0: right, or passed over; 1: wrong. */
static int check(const char *root, const char *name, const char *file, int *done)
{
	struct driver_opts o = {
		.arith = ARITH_F32,
		.threads = 2,
		.level = cpu_detect(),
		.slots = 1,
		.ctx_max = 256,
		.step_rows = 128,
		.tape_rows = 1,
	};
	float tolerance = tolerance_of(name), most;
	struct safetensors s;
	struct driver d;
	struct err err;
	char path[8192];
	int code;

	snprintf(path, sizeof path, "%s/%s.gguf", root, file);
	code = driver_open(&d, path, &o, &err);
	if (code == E_UNSUPPORTED && !tolerance) {
		printf("not read  %-28s %s\n", name,
		       err.msg + (strncmp(err.msg, path, strlen(path)) ? 0 : strlen(path)));
		return 0;
	}
	if (code) {
		printf("FAIL      %s: %s\n", file, err.msg);
		return 1;
	}
	snprintf(path, sizeof path, "%s/%s.safetensors", root, name);
	if (safetensors_open(&s, path, &err)) {
		printf("FAIL      %s\n", err.msg);
		return 1;
	}
	most = compare(&d, &s);
	tolerance = tolerance ? tolerance : 5e-3f;
	printf("%s %-28s %-16s %.2e, at most %.0e\n", most <= tolerance ? "ok       " : "FAIL     ", name, d.m->arch,
	       (double)most, (double)tolerance);
	safetensors_close(&s);
	driver_close(&d);
	(*done)++;
	return !(most <= tolerance);
}

/* Folders of mlx, which golden_test.c reads. */
static bool is_folder(const char *name)
{
	return !strncmp(name, "bonsai_mlx_", 11);
}

/* FILE of a golden FILE.safetensors, which may have its model in parts. */
static int check_golden(const char *root, const char *name, int *done)
{
	char path[8192], file[4096];

	if (is_folder(name))
		return 0;
	snprintf(file, sizeof file, "%s", name);
	snprintf(path, sizeof path, "%s/%s.gguf", root, name);
	if (!file_exists(path))
		snprintf(file, sizeof file, "%s-00001-of-00003", name);
	return check(root, name, file, done);
}

static int by_string(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int check_all(const char *root, int *done)
{
	char path[8192], *found[512];
	struct dirent *e, *f;
	int n = 0, bad = 0;
	DIR *d = opendir(root), *sub;

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof path, "%s/%s", root, e->d_name);
		sub = e->d_name[0] == '.' ? NULL : opendir(path);
		while (sub && (f = readdir(sub))) {
			char *end = strstr(f->d_name, ".safetensors");

			if (!end || n == 512)
				continue;
			snprintf(path, sizeof path, "%s/%.*s", e->d_name, (int)(end - f->d_name), f->d_name);
			found[n++] = xstrdup(path);
		}
		if (sub)
			closedir(sub);
	}
	if (d)
		closedir(d);
	qsort(found, (size_t)n, sizeof *found, by_string);
	for (int i = 0; i < n; i++) {
		bad += check_golden(root, found[i], done);
		free(found[i]);
	}
	return bad;
}

int main(int argc, char **argv)
{
	const char *root = NULL, *shared;
	char path[4096];
	int bad = 0, done = 0, at = 1;

	log_set_level(LOG_ERROR);
	if (argc > 2 && !strcmp(argv[1], "--root")) {
		root = argv[2];
		at = 3;
	} else {
		shared = shared_folder();
		if (!shared)
			return 77;
		snprintf(path, sizeof path, "%s/golden/_gguf/models", shared);
		root = path;
	}
	if (at == argc)
		bad = check_all(root, &done);
	for (; at < argc; at++)
		bad += check_golden(root, argv[at], &done);
	printf("%d files compared, %d wrong\n", done, bad);
	return bad || !done;
}
