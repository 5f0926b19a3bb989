/* modules.c - see reading.h: modules.json of sentence-transformers and the folders that it names.
 *
 * Modules are applied in their order; their kinds are known by the last part of their type, which old and new versions share.
 * Format: huggingface/sentence-transformers, models/ of version 5. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "embed/reading.h"
#include "model/model.h"
#include "store/safetensors.h"

enum { PATH = 1200 };

/* A tensor of a module's own file as floats of the arena. */
static const float *module_floats(struct reading *r, const struct safetensors *s, const char *file, const char *name,
                                  int64_t count, bool needed)
{
	const struct tensor *t = safetensors_find(s, name);
	float *f;

	if (r->code || (!t && !needed))
		return NULL;
	if (!t) {
		reading_fail(r, E_MISSING, "%s: no tensor %s", file, name);
		return NULL;
	}
	if (t->count != count || (t->type != DT_F16 && t->type != DT_BF16 && t->type != DT_F32)) {
		reading_fail(r, E_FORMAT, "%s: tensor %s: %lld numbers of %s, where %lld of F32, BF16 or F16 are read",
		             file, name, (long long)t->count, tensor_type_name(t), (long long)count);
		return NULL;
	}
	f = arena_alloc(&r->e->arena, size_mul((size_t)count, sizeof *f));
	dtype_to_float(f, t->data, t->type, (size_t)count);
	return f;
}

/* Opens model.safetensors of a module's folder; false is a failure. */
static bool module_file(struct reading *r, struct safetensors *s, char file[PATH], const char *path)
{
	char name[PATH];
	struct err err;

	if (r->code)
		return false;
	snprintf(name, sizeof name, "%s/model.safetensors", path);
	snprintf(file, PATH, "%s", store_place(r->st, name));
	if (!safetensors_open(s, file, &err))
		return true;
	reading_fail(r, err.code, "%s (weights of a module are read from model.safetensors alone)", err.msg);
	return false;
}

/* Takes a Dense's product from the model's own files, where GGUF has it; false: it is not there. */
static bool dense_of_model(struct reading *r, const char *path, struct embed_step *step, bool bias)
{
	char name[PATH];
	int rows = 0, n = 0;

	snprintf(name, sizeof name, "%s.linear.weight", path);
	if (!store_find(r->st, name))
		return false;
	step->w = reading_floats(r, name, step->in, &rows);
	snprintf(name, sizeof name, "%s.linear.bias", path);
	step->bias = bias ? reading_floats(r, name, 1, &n) : NULL;
	if (!r->code && (rows != step->out || (bias && n != step->out)))
		reading_fail(r, E_FORMAT, "%s: tensors %s.linear: %d rows and %d biases, where %d are read", r->st->dir,
		             path, rows, n, step->out);
	return true;
}

static void read_dense(struct reading *r, const char *path, const struct json *j, struct conf *c)
{
	struct embed_step step = { .in = conf_int(c, "in_features", 1, CONF_DIM_MAX),
		                   .out = conf_int(c, "out_features", 1, CONF_DIM_MAX) };
	const char *act = json_str(json_get(j, "activation_function"), NULL);
	bool bias = conf_bool_or(c, "bias", true);
	struct safetensors s;
	char file[PATH];

	step.act = reading_act(r, c->file, act ? act : "Tanh");
	if (conf_bool_or(c, "use_residual", false))
		conf_fail(c, E_UNSUPPORTED, "use_residual: true is not done by this version");
	if (c->code)
		return;
	if (!dense_of_model(r, path, &step, bias)) {
		if (!module_file(r, &s, file, path))
			return;
		step.w = module_floats(r, &s, file, "linear.weight", (int64_t)step.in * step.out, true);
		if (bias)
			step.bias = module_floats(r, &s, file, "linear.bias", step.out, true);
		safetensors_close(&s);
	}
	reading_step(r, step, c->file);
}

static void read_norm(struct reading *r, const char *path, struct conf *c)
{
	int n = conf_int(c, "dimension", 1, CONF_DIM_MAX);
	struct embed_step step = { .in = n, .out = n, .eps = 1e-5f };
	struct safetensors s;
	char file[PATH];

	if (c->code || !module_file(r, &s, file, path))
		return;
	step.gain = module_floats(r, &s, file, "norm.weight", n, true);
	step.bias = module_floats(r, &s, file, "norm.bias", n, false);
	safetensors_close(&s);
	reading_step(r, step, c->file);
}

/* Names of poolings, as booleans of old files and in new ones. */
static const struct {
	const char *key, *name;
	unsigned rows;
} poolings[] = {
	{ "pooling_mode_cls_token", "cls", ROWS_FIRST },
	{ "pooling_mode_max_tokens", "max", ROWS_MAX },
	{ "pooling_mode_mean_tokens", "mean", ROWS_MEAN },
	{ "pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", ROWS_SQRT_MEAN },
	{ "pooling_mode_weightedmean_tokens", "weightedmean", ROWS_WEIGHTED },
	{ "pooling_mode_lasttoken", "lasttoken", ROWS_LAST },
};

static unsigned pooling_named(struct conf *c, const char *name)
{
	for (size_t i = 0; name && i < sizeof poolings / sizeof *poolings; i++)
		if (!strcmp(poolings[i].name, name))
			return poolings[i].rows;
	conf_fail(c, E_UNSUPPORTED, "pooling_mode: \"%.40s\" is not done", name ? name : "");
	return 0;
}

static void read_pooling(struct reading *r, struct conf *c)
{
	const struct json *mode = conf_get(c, "pooling_mode");
	unsigned rows = 0;
	int n = 0;

	if (r->n_step)
		conf_fail(c, E_UNSUPPORTED, "a Pooling of what another module gives is not computed by this version");
	for (size_t i = 0; i < sizeof poolings / sizeof *poolings && !mode; i++)
		if (conf_bool_or(c, poolings[i].key, false))
			rows |= poolings[i].rows;
	if (json_kind(mode) == JSON_ARRAY)
		for (size_t i = 0; i < json_len(mode); i++)
			rows |= pooling_named(c, json_str(json_at(mode, i), NULL));
	else if (mode)
		rows = pooling_named(c, json_str(mode, NULL));
	rows = rows ? rows : ROWS_MEAN;
	r->e->rows = rows;
	r->e->no_prompt = !conf_bool_or(c, "include_prompt", true);
	for (unsigned k = rows; k; k &= k - 1)
		n++;
	r->width = r->e->in = n * r->m->shape.hidden;
}

/* The difference of two rows of the output matrix. */
static void read_logit_score(struct reading *r, struct conf *c)
{
	int vocab = r->m->shape.vocab;
	int yes = conf_int(c, "true_token_id", 0, vocab - 1);
	int no = conf_get(c, "false_token_id") ? conf_int(c, "false_token_id", 0, vocab - 1) : -1;

	if (!c->code)
		head_of_words(r, yes, no);
}

static void read_module(struct reading *r, const char *kind, const char *path, bool *pooled)
{
	char name[PATH];
	struct json *j;
	struct conf c;

	snprintf(name, sizeof name, "%s/config.json", path);
	j = reading_document(r, name);
	c = (struct conf){ .j = j,
		           .file = reading_keep(r, store_place(r->st, name), strlen(store_place(r->st, name))),
		           .where = "",
		           .err = r->err };
	if (r->code)
		return;
	if (!j)
		reading_fail(r, E_MISSING, "%s: missing, and modules.json names it", c.file);
	else if (!strcmp(kind, "Pooling")) {
		read_pooling(r, &c);
		*pooled = true;
	} else if (!strcmp(kind, "Dense"))
		read_dense(r, path, j, &c);
	else if (!strcmp(kind, "LayerNorm"))
		read_norm(r, path, &c);
	else
		read_logit_score(r, &c);
	if (!r->code)
		r->code = c.code;
	json_free(j);
}

/* A module of modules.json, whose type ends in kind. */
static void take_module(struct reading *r, const char *kind, const char *path, bool *pooled)
{
	static const char *const known[] = { "Pooling", "Dense", "LayerNorm", "LogitScore" };
	bool fits = false;

	if (!strcmp(kind, "Transformer") && *path)
		reading_fail(r, E_UNSUPPORTED, "%s: a Transformer in the folder \"%.60s\": open that folder",
		             store_place(r->st, "modules.json"), path);
	if (!strcmp(kind, "Transformer"))
		return;
	if (!strcmp(kind, "Normalize")) {
		r->e->normalized = true;
		return;
	}
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		fits |= !strcmp(known[i], kind);
	if (!fits)
		reading_fail(r, E_UNSUPPORTED, "%s: a module of type %.60s is not computed by this version",
		             store_place(r->st, "modules.json"), kind);
	else if (!*path || strchr(path, '\\') || strstr(path, "..") || *path == '/')
		reading_fail(r, E_FORMAT, "%s: path \"%.60s\" of a module is none inside of the folder",
		             store_place(r->st, "modules.json"), path);
	else
		read_module(r, kind, path, pooled);
}

bool modules_read(struct reading *r)
{
	struct json *j = reading_document(r, "modules.json");
	bool pooled = false, dense_first = false;

	if (!j)
		return r->code != 0;
	if (json_kind(j) != JSON_ARRAY || json_len(j) > EMBED_STEPS_MAX)
		reading_fail(r, E_FORMAT, "%s: must be a list of at most %d modules",
		             store_place(r->st, "modules.json"), EMBED_STEPS_MAX);
	r->e->kind = EMBEDS;
	for (size_t i = 0; i < json_len(j) && !r->code; i++) {
		const struct json *m = json_at(j, i);
		const char *type = json_str(json_get(m, "type"), NULL), *path = json_str(json_get(m, "path"), NULL);
		const char *kind = type ? strrchr(type, '.') : NULL;

		if (!type)
			reading_fail(r, E_FORMAT, "%s: module %zu has no type", store_place(r->st, "modules.json"), i);
		else
			take_module(r, kind ? kind + 1 : type, path ? path : "", &pooled);
		dense_first |= r->n_step && !pooled;
	}
	/* A Dense right behind the model is a projection of every row. */
	if (!pooled && r->e->kind == EMBEDS) {
		r->e->rows = dense_first ? ROWS_ALL : ROWS_MEAN;
		r->e->all_rows = dense_first;
	}
	json_free(j);
	return true;
}
