/* adapter_file.c - see adapter_file.h; the form of PEFT is read here. */
#include "store/adapter_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "store/gguf/gguf_file.h"
#include "store/safetensors.h"

enum { CONFIG_MAX = 1 << 20, PATH_BYTES = 512 };

struct adapter_matrix *adapter_file_room(struct adapter_file *f, int n)
{
	int old = f->n;

	f->n += n;
	f->v = xrealloc(f->v, size_mul((size_t)f->n, sizeof *f->v));
	memset(f->v + old, 0, (size_t)n * sizeof *f->v);
	return f->v + old;
}

void adapter_file_close(struct adapter_file *f)
{
	free(f->v);
	arena_fini(&f->arena);
}

/* ---- adapter_config.json ---- */

struct peft {
	const char *path; /* of the config */
	const struct json *config;
	double alpha, rank;
	bool rslora;
};

static bool is_set(const struct json *j)
{
	bool on = false;
	int64_t n = 0;

	switch (json_kind(j)) {
	case JSON_NULL: return false;
	case JSON_BOOL: json_to_bool(j, &on); return on;
	case JSON_INT: return json_to_int(j, &n) || n;
	case JSON_STRING: return *json_str(j, NULL);
	case JSON_ARRAY:
	case JSON_OBJECT: return json_len(j) > 0;
	default: return true;
	}
}

/* Refuses adapters that are more than a plain low-rank addition. */
static int refuse_kinds(const struct peft *c, struct err *err)
{
	static const struct {
		const char *key, *why;
	} more[] = {
		{ "use_dora", "magnitudes of DoRA" },
		{ "modules_to_save", "modules that are saved whole" },
		{ "trainable_token_indices", "trained rows of the embedding" },
		{ "target_parameters", "additions to stacks of experts" },
		{ "layer_replication", "layers that are used twice" },
		{ "fan_in_fan_out", "weights that lie transposed" },
		{ "lora_bias", "biases of B" },
		{ "alora_invocation_tokens", "adapters that begin at a token" },
		{ "use_qalora", "averaged inputs of QALoRA" },
		{ "arrow_config", "adapters that choose among themselves" },
	};
	const char *type = json_str(json_get(c->config, "peft_type"), NULL);
	const char *bias = json_str(json_get(c->config, "bias"), NULL);
	const char *start = json_str(json_get(c->config, "init_lora_weights"), NULL);

	if (!type || strcmp(type, "LORA"))
		return err_set(err, E_UNSUPPORTED, "%s: peft_type: is %s, only LORA is done", c->path,
		               type ? type : "missing");
	for (size_t i = 0; i < sizeof more / sizeof *more; i++)
		if (is_set(json_get(c->config, more[i].key)))
			return err_set(err, E_UNSUPPORTED, "%s: %s: %s are not done", c->path, more[i].key,
			               more[i].why);
	if (bias && strcmp(bias, "none"))
		return err_set(err, E_UNSUPPORTED, "%s: bias: \"%.40s\", trained biases are not done", c->path, bias);
	if (start && (!strncmp(start, "pissa", 5) || !strcmp(start, "olora") || !strcmp(start, "corda") ||
	              !strcmp(start, "lora_ga")))
		return err_set(err, E_UNSUPPORTED,
		               "%s: init_lora_weights: \"%.40s\": it is for weights that were changed at its start; "
		               "PEFT can convert it",
		               c->path, start);
	return 0;
}

static int read_config(struct peft *c, struct err *err)
{
	const struct json *rs = json_get(c->config, "use_rslora");
	int code = refuse_kinds(c, err);

	if (code)
		return code;
	if (json_to_double(json_get(c->config, "r"), &c->rank) || !(c->rank >= 1))
		return err_set(err, E_FORMAT, "%s: r: must be a number of 1 or more", c->path);
	if (json_to_double(json_get(c->config, "lora_alpha"), &c->alpha) || !isfinite(c->alpha))
		return err_set(err, E_FORMAT, "%s: lora_alpha: must be a finite number", c->path);
	c->rslora = is_set(rs);
	return 0;
}

/* PEFT takes the first of a pattern's keys that the module's path ends with, as regular expressions; plain names, in which
 * a dot is a dot, are what is read here.  0, E_UNSUPPORTED; *out as it was where no key is for the module. */
static int from_pattern(const struct peft *c, const char *key, const char *module, double *out, struct err *err)
{
	const struct json *map = json_get(c->config, key), *value;
	struct json_cursor at;
	const char *name;

	if (json_kind(map) != JSON_OBJECT)
		return 0;
	for (at = json_first(map); json_next(&at, &name, &value);) {
		size_t n, m = strlen(module);

		name += *name == '^';
		n = strlen(name);
		if (strpbrk(name, "*+?[](){}|\\$^"))
			return err_set(err, E_UNSUPPORTED, "%s: %s: \"%.80s\": only plain names are read", c->path, key,
			               name);
		if (n > m || strcmp(module + m - n, name) || (n < m && module[m - n - 1] != '.'))
			continue;
		if (json_to_double(value, out) || !isfinite(*out))
			return err_set(err, E_FORMAT, "%s: %s: \"%.80s\" must be a finite number", c->path, key, name);
		return 0;
	}
	return 0;
}

/* ---- adapter_model.safetensors ---- */

/* Layouts of one model differ in what comes before "layers". */
static const char *const roots[] = { "model.language_model.", "language_model.model.", "language_model.", "model.",
	                             "" };

const char *adapter_file_path(const struct store *base, const char *module)
{
	char path[PATH_BYTES];
	const struct store_matrix *w = store_matrix(base, module);
	size_t skip = 0;

	for (size_t i = 0; !w && i < sizeof roots / sizeof *roots && !skip; i++)
		if (*roots[i] && !strncmp(module, roots[i], strlen(roots[i])))
			skip = strlen(roots[i]);
	for (size_t i = 0; !w && i < sizeof roots / sizeof *roots; i++) {
		snprintf(path, sizeof path, "%s%s", roots[i], module + skip);
		w = store_matrix(base, path);
	}
	return w ? w->path : NULL;
}

/* The path of the module between PEFT's words, where the name ends in `tail`; NULL: it does not. */
static const char *module_of(struct arena *a, const char *name, const char *side)
{
	static const char *const heads[] = { "base_model.model.", "base_model." };
	static const char *const tails[] = { ".weight", ".default.weight" };
	size_t n = strlen(name);

	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
		if (!strncmp(name, heads[i], strlen(heads[i]))) {
			name += strlen(heads[i]);
			break;
		}
	n = strlen(name);
	for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
		char tail[64];
		size_t m = (size_t)snprintf(tail, sizeof tail, ".%s%s", side, tails[i]);

		if (n > m && !strcmp(name + n - m, tail))
			return arena_strndup(a, name, n - m);
	}
	return NULL;
}

static const struct tensor *other_side(struct adapter_file *f, const struct safetensors *s, const char *name)
{
	char *b = arena_strndup(&f->arena, name, strlen(name)), *at = strstr(b, ".lora_A.");

	at[strlen(".lora_")] = 'B';
	return safetensors_find(s, b);
}

static int floats_of(struct adapter_file *f, const struct tensor *t, const float **out, struct err *err)
{
	float *to;

	if (t->type != DT_F32 && t->type != DT_F16 && t->type != DT_BF16 && t->type != DT_F64)
		return err_set(err, E_UNSUPPORTED, "%s: tensor %s: is %s; F32, F16 and BF16 are read", t->file, t->name,
		               tensor_type_name(t));
	*out = to = arena_alloc(&f->arena, size_mul((size_t)t->count, sizeof *to));
	dtype_to_float(to, t->data, t->type, (size_t)t->count);
	return 0;
}

static int read_pair(struct adapter_file *f, const struct store *base, const struct peft *c,
                     const struct safetensors *s, const struct tensor *a, const char *module, struct err *err)
{
	const struct tensor *b = other_side(f, s, a->name);
	double alpha = c->alpha;
	struct adapter_matrix *m;
	const char *path;
	int code;

	if (!b)
		return err_set(err, E_MISSING, "%s: tensor %s: there, and its B is missing", a->file, a->name);
	if (a->n_dim != 2 || b->n_dim != 2 || a->dim[0] != b->dim[1] || a->dim[0] < 1 || a->dim[1] > INT32_MAX ||
	    b->dim[0] > INT32_MAX) {
		char x[160], y[160];

		return err_set(err, E_FORMAT,
		               "%s: tensor %s: is %s, and its B %s: no [rank, inputs] and [outputs, rank]", a->file,
		               a->name, shape_text(x, sizeof x, a->dim, a->n_dim),
		               shape_text(y, sizeof y, b->dim, b->n_dim));
	}
	path = adapter_file_path(base, module);
	if (!path)
		return err_set(err, E_MISSING,
		               "%s: tensor %s: the model %s has no matrix %s that an adapter could be for", a->file,
		               a->name, base->name, module);
	if ((code = from_pattern(c, "alpha_pattern", module, &alpha, err)))
		return code;
	m = adapter_file_room(f, 1);
	*m = (struct adapter_matrix){ .name = module, .path = path, .rank = (int)a->dim[0], .rows = (int)b->dim[0] };
	m->cols = (int)a->dim[1];
	m->factor = (float)(c->rslora ? alpha / sqrt(m->rank) : alpha / m->rank);
	code = floats_of(f, a, &m->a, err);
	return code ? code : floats_of(f, b, &m->b, err);
}

/* Layouts in which the model's matrices have other rows, or other factors, than those that PEFT trained with. */
static int check_layout(const struct store *base, const char *file, const char *path, struct err *err)
{
	const struct tensor *conv;
	bool tiled = false;

	json_to_bool(json_get(base->text, "linear_value_heads_tiled"), &tiled);
	if (tiled && strstr(path, ".linear_attn."))
		return err_set(err, E_UNSUPPORTED,
		               "%s: %s: the value heads of %s are in another order; convert the adapter to GGUF", file,
		               path, base->name);
	conv = store_find(base, "model.layers.0.mamba.conv1d.weight");
	if (!strcmp(json_str(json_get(base->text, "model_type"), NULL) ?: "", "falcon_h1") && conv &&
	    conv->n_dim == 3 && conv->dim[1] != 1)
		return err_set(err, E_UNSUPPORTED,
		               "%s: %s: the weights of %s hold its multipliers; an adapter needs the folder as its "
		               "authors published it",
		               file, path, base->name);
	return 0;
}

static int read_tensors(struct adapter_file *f, const struct store *base, const struct peft *c,
                        const struct safetensors *s, struct err *err)
{
	int code = 0;

	for (size_t i = 0; i < s->n && !code; i++) {
		const struct tensor *t = &s->v[i];
		const char *module = module_of(&f->arena, t->name, "lora_A");

		if (module)
			code = read_pair(f, base, c, s, t, module, err);
		else if (!module_of(&f->arena, t->name, "lora_B"))
			code = err_set(err, E_UNSUPPORTED,
			               "%s: tensor %s: is neither lora_A nor lora_B of a linear layer", t->file,
			               t->name);
		if (!code && module)
			code = check_layout(base, t->file, f->v[f->n - 1].path, err);
	}
	return code;
}

static int peft_read(struct adapter_file *f, const struct store *base, struct err *err)
{
	struct peft c = { .path = arena_printf(&f->arena, "%s/adapter_config.json", f->path) };
	const char *tensors = arena_printf(&f->arena, "%s/adapter_model.safetensors", f->path);
	struct json *config = NULL;
	struct safetensors s;
	struct buf text;
	int code;

	buf_init(&text);
	code = file_refuse_special(c.path, err);
	if (!code)
		code = file_read(c.path, CONFIG_MAX, &text, err);
	if (!code && !(config = json_parse_python(text.p, text.n, 0, err)))
		code = err_prefix(err, "%s", c.path);
	buf_fini(&text);
	c.config = config;
	if (!code)
		code = read_config(&c, err);
	if (!code && !(code = safetensors_open(&s, tensors, err))) {
		code = read_tensors(f, base, &c, &s, err);
		safetensors_close(&s);
	}
	json_free(config);
	return code;
}

int adapter_file_open(struct adapter_file *f, const struct store *base, const char *path, struct err *err)
{
	int code;

	*f = (struct adapter_file){ .v = NULL };
	arena_init(&f->arena);
	f->path = arena_strndup(&f->arena, path, strlen(path));
	if (dir_exists(path))
		code = peft_read(f, base, err);
	else if (file_exists(path) && gguf_is(path))
		code = gguf_adapter_read(f, base, err);
	else
		code = err_set(err, E_MISSING,
		               "%s: neither a GGUF file nor a folder with adapter_config.json and "
		               "adapter_model.safetensors",
		               path);
	if (!code && !f->n)
		code = err_set(err, E_FORMAT, "%s: an adapter of no matrices", path);
	return code;
}
