/* Logits of every model in ../shared/golden that weft reads, against a reference
 * implementation's: reference arithmetic (weights as stored, activations in
 * float32), within 1e-3 absolute, in one prefill, token by token, and in chunks
 * of 1, 7 and 64; then teacher-forced greedy steps; then a prompt of 600.
 *
 *     golden_test [--root FOLDER] [FAMILY[/VARIANT]...] */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "driver.h"
#include "store/safetensors.h"

static const float TOLERANCE = 1e-3f;
enum { PROMPT_MOST = 700 };

/* Beside golden_family: more shapes of families that are in it. */
static const char *const more_shapes[] = { "qwen3_5_vl",
	                                   "nemotron_h",
	                                   "gemma3_mm",
	                                   "exaone4_full",
	                                   "bailing_moe_v1",
	                                   "mistral4_mm",
	                                   "llama4",
	                                   "_gguf/models/bonsai_mlx_1bit",
	                                   "_gguf/models/bonsai_mlx_2bit",
	                                   NULL };

/* ---- the vectors ---- */

struct golden {
	struct safetensors file;
	const int32_t *prompt, *greedy, *positions; /* positions NULL: all */
	const float *logits, *step;
	int n_prompt, n_greedy, n_logits, vocab;
};

static const void *tensor(const struct safetensors *s, const char *name, enum dtype type, int *rows)
{
	const struct tensor *t = safetensors_find(s, name);

	if (!t || t->type != type || t->n_dim < 1) {
		printf("no %s in the golden file\n", name);
		exit(1);
	}
	if (rows)
		*rows = (int)t->dim[0];
	return t->data;
}

static int golden_open(struct golden *g, const char *path, int is_long)
{
	struct err err;

	*g = (struct golden){ 0 };
	if (!file_exists(path))
		return -1;
	if (safetensors_open(&g->file, path, &err)) {
		printf("%s\n", err.msg);
		exit(1);
	}
	g->prompt = tensor(&g->file, "prompt_ids", DT_I32, &g->n_prompt);
	g->greedy = tensor(&g->file, "greedy_ids", DT_I32, &g->n_greedy);
	g->logits = tensor(&g->file, is_long ? "logits" : "prompt_logits", DT_F32, &g->n_logits);
	g->step = tensor(&g->file, "step_logits", DT_F32, NULL);
	/* FP8: the others are of weights that were rounded to bf16 when they were read. */
	if (safetensors_find(&g->file, "prompt_logits_exact_scale")) {
		g->logits = tensor(&g->file, "prompt_logits_exact_scale", DT_F32, &g->n_logits);
		g->n_greedy = 0;
	}
	if (is_long)
		g->positions = tensor(&g->file, "positions", DT_I32, NULL);
	g->vocab = (int)safetensors_find(&g->file, "step_logits")->dim[1];
	return 0;
}

/* Largest difference; NaN counts as infinite. */
static float worst(const float *a, const float *b, size_t n)
{
	float most = 0;

	for (size_t i = 0; i < n; i++) {
		float want, d;

		memcpy(&want, &b[i], sizeof want); /* the file's data may be unaligned */
		d = fabsf(a[i] - want);
		if (!(d <= most))
			most = isnan(d) ? INFINITY : d;
	}
	return most;
}

/* ---- modes ---- */

struct result {
	float one, single, chunks, greedy, longer;
};

static float against(const struct golden *g, const float *got)
{
	size_t v = (size_t)g->vocab;
	float most = 0;

	if (!g->positions)
		return worst(got, g->logits, (size_t)g->n_logits * v);
	for (int i = 0; i < g->n_logits; i++)
		most = fmaxf(most, worst(got + (size_t)g->positions[i] * v, g->logits + (size_t)i * v, v));
	return most;
}

/* Row 0 of step_logits is the last prompt row; row i follows greedy id i - 1. */
static float greedy(struct driver *d, const struct golden *g, const float *last_row)
{
	size_t v = (size_t)g->vocab;
	float most = g->n_greedy ? worst(last_row, g->step, v) : 0, *row = xmalloc(v * sizeof *row);

	for (int i = 1; i < g->n_greedy; i++) {
		driver_feed(d, 0, g->n_prompt + i - 1, &g->greedy[i - 1], 1, NULL, 0, row);
		most = fmaxf(most, worst(row, g->step + (size_t)i * v, v));
	}
	free(row);
	return most;
}

/* The vectors of name and, with longer, those of a prompt of 600. */
static void run(struct driver *d, const char *folder, const char *name, bool longer, struct result *r)
{
	static const int ones[] = { 1 }, mixed[] = { 1, 7, 64 };
	float *got = xmalloc((size_t)PROMPT_MOST * (size_t)d->vocab * sizeof *got);
	struct golden g;
	char path[4300];

	snprintf(path, sizeof path, "%s/%s.safetensors", folder, name);
	if (golden_open(&g, path, 0) || g.vocab != d->vocab || g.n_prompt > PROMPT_MOST) {
		printf("%s: unusable\n", path);
		exit(1);
	}
	driver_feed(d, 0, 0, g.prompt, g.n_prompt, ones, 1, got);
	r->single = against(&g, got);
	caches_close(&d->m->caches, 0);
	driver_feed(d, 0, 0, g.prompt, g.n_prompt, mixed, 3, got);
	r->chunks = against(&g, got);
	caches_close(&d->m->caches, 0);
	driver_feed(d, 0, 0, g.prompt, g.n_prompt, NULL, 0, got);
	r->one = against(&g, got);
	r->greedy = greedy(d, &g, got + (size_t)(g.n_prompt - 1) * (size_t)g.vocab);
	caches_close(&d->m->caches, 0);
	safetensors_close(&g.file);

	r->longer = -1;
	snprintf(path, sizeof path, "%s/golden_long.safetensors", folder);
	if (longer && !golden_open(&g, path, 1)) {
		driver_feed(d, 0, 0, g.prompt, g.n_prompt, NULL, 0, got);
		r->longer = fmaxf(against(&g, got), greedy(d, &g, got + (size_t)(g.n_prompt - 1) * (size_t)g.vocab));
		caches_close(&d->m->caches, 0);
		safetensors_close(&g.file);
	}
	free(got);
}

/* model: what is opened; folder: where its vectors are. */
static int check_as(const char *model, const char *folder, const char *vectors, bool long_too, const char *name)
{
	struct driver_opts o = { .arith = ARITH_F32,
		                 .threads = 2,
		                 .level = cpu_detect(),
		                 .slots = 1,
		                 .ctx_max = 1024,
		                 .step_rows = PROMPT_MOST,
		                 .tape_rows = 0 };
	struct err err;
	struct driver d;
	struct result r;
	char longer[32] = "-";
	int ok;

	if (driver_open(&d, model, &o, &err)) {
		printf("FAIL %-24s %s\n", name, err.msg);
		return 1;
	}
	run(&d, folder, vectors, long_too, &r);
	driver_close(&d);
	ok = r.one <= TOLERANCE && r.single <= TOLERANCE && r.chunks <= TOLERANCE && r.greedy <= TOLERANCE &&
	     r.longer <= TOLERANCE;
	if (r.longer >= 0)
		snprintf(longer, sizeof longer, "%.1e", (double)r.longer);
	printf("%s %-24s one %.1e  single %.1e  chunks %.1e  greedy %.1e  long %s\n", ok ? "ok  " : "FAIL", name,
	       (double)r.one, (double)r.single, (double)r.chunks, (double)r.greedy, longer);
	return !ok;
}

/* A folder with the tensors of another and its config, in which the one `was` is `now`. */
static void changed_folder(char *to, const char *from, const char *was, const char *now)
{
	char path[4300];
	struct buf config;
	struct err err;
	FILE *f;
	char *at;

	buf_init(&config);
	snprintf(path, sizeof path, "%s/config.json", from);
	if (!mkdtemp(to) || file_read(path, 1 << 20, &config, &err) || !(at = strstr(config.p, was)))
		exit(printf("%s: no %s\n", path, was) > 0);
	snprintf(path, sizeof path, "%s/config.json", to);
	f = fopen(path, "w");
	fprintf(f, "%.*s%s%s", (int)(at - config.p), config.p, now, at + strlen(was));
	fclose(f);
	for (int i = 0; i < 2; i++) {
		static const char *const file[] = { "model.safetensors", "model.safetensors.index.json" };
		char target[4300];

		snprintf(target, sizeof target, "%s/%s", from, file[i]);
		snprintf(path, sizeof path, "%s/%s", to, file[i]);
		if (file_exists(target) && symlink(target, path))
			exit(printf("%s: cannot be made\n", path) > 0);
	}
	buf_fini(&config);
}

static void drop_folder(const char *folder)
{
	static const char *const file[] = { "config.json", "model.safetensors", "model.safetensors.index.json" };
	char path[4300];

	for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, file[i]);
		unlink(path);
	}
	rmdir(folder);
}

/* The vectors of mamba2 in ../shared follow Hugging Face's modules, whose gated norm goes over the whole width; those in the
 * tree have a norm by groups. */
static bool whole_norm(const char *name)
{
	static const char *const of[] = { "mamba2/hf-bf16", "mamba2/mlx-q4", "mamba2/mlx-q8" };

	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		if (!strcmp(name, of[i]))
			return true;
	return false;
}

/* gpt-oss: golden.safetensors knows only whole borders of the YaRN ramp, golden_hfyarn.safetensors does what the config
 * says.  With the config changed the former, which alone has a long prompt, is right as well. */
static int check(const char *root, const char *name)
{
	char folder[4096], path[4300], changed[] = "/tmp/golden-XXXXXX";
	int bad;

	snprintf(folder, sizeof folder, "%s/%s", root, name);
	if (whole_norm(name)) {
		changed_folder(changed, folder, "\"n_groups\"", "\"norm_groups\": 1, \"n_groups\"");
		bad = check_as(changed, folder, "golden", true, name);
		drop_folder(changed);
		return bad;
	}
	snprintf(path, sizeof path, "%s/golden_hfyarn.safetensors", folder);
	if (!file_exists(path))
		return check_as(folder, folder, "golden", true, name);
	bad = check_as(folder, folder, "golden_hfyarn", false, name);
	changed_folder(changed, folder, "\"truncate\": false", "\"truncate\": true");
	bad += check_as(changed, folder, "golden", true, name);
	drop_folder(changed);
	return bad;
}

static int by_string(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int check_family(const char *root, const char *family)
{
	char path[4300], *variant[64];
	struct dirent *e;
	int bad = 0, n = 0;
	DIR *dir;

	if (strchr(family, '/'))
		return check(root, family);
	snprintf(path, sizeof path, "%s/%s", root, family);
	dir = opendir(path);
	if (!dir) {
		printf("FAIL %s: not there\n", path);
		return 1;
	}
	while ((e = readdir(dir)) && n < 64)
		if (e->d_name[0] != '.')
			variant[n++] = xstrdup(e->d_name);
	closedir(dir);
	qsort(variant, (size_t)n, sizeof *variant, by_string);
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof path, "%s/%s", family, variant[i]);
		bad += check(root, path);
		free(variant[i]);
	}
	return bad;
}

/* Families without vectors of their own, where they are llama: a window wider than the text; all layers rotate; and
 * a residual stream of twice the size, which norms take back. */
static int check_kin(const char *root)
{
	static const struct {
		const char *name, *type;
	} kin[] = {
		{ "as mistral", "\"model_type\": \"mistral\", \"sliding_window\": 1000" },
		{ "as smollm3", "\"model_type\": \"smollm3\", \"rope_theta\": 10000, \"no_rope_layers\": [1, 1, 1]" },
		{ "as granite", "\"model_type\": \"granite\", \"rope_theta\": 10000, \"attention_multiplier\": 0.125, "
		                "\"embedding_multiplier\": 2, \"residual_multiplier\": 2, \"logits_scaling\": 1" },
	};
	char folder[4300];
	int bad = 0;

	snprintf(folder, sizeof folder, "%s/llama2/hf-bf16", root);
	for (size_t i = 0; i < sizeof kin / sizeof *kin; i++) {
		char changed[] = "/tmp/golden-XXXXXX";

		changed_folder(changed, folder, "\"model_type\": \"llama\"", kin[i].type);
		bad += check_as(changed, folder, "golden", true, kin[i].name);
		drop_folder(changed);
	}
	return bad;
}

int main(int argc, char **argv)
{
	char shared[4096];
	const char *root = shared;
	int bad = 0, i = 1;

	if (argc > 2 && !strcmp(argv[1], "--root")) {
		root = argv[2];
		i = 3;
	} else if (shared_folder()) {
		snprintf(shared, sizeof shared, "%s/golden", shared_folder());
	} else {
		return 77;
	}
	log_set_level(LOG_ERROR);
	if (i < argc)
		for (; i < argc; i++)
			bad += check_family(root, argv[i]);
	else {
		for (i = 0; golden_family[i]; i++)
			bad += check_family(root, golden_family[i]);
		for (i = 0; more_shapes[i]; i++)
			bad += check_family(root, more_shapes[i]);
		bad += check_kin(root);
	}
	if (bad)
		printf("%d folders beyond %g\n", bad, (double)TOLERANCE);
	return bad > 0;
}
