/* store.c - opening a model and finding its tensors; see store.h. */
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "store/basis_file.h"
#include "store/foreign.h"
#include "store/quantised.h"

enum { WARN_MAX = 16 }; /* unknown tensors named one by one before a count */

/* ---- documents ---- */

/* The container is not part of what a constant store promises: it may keep what it makes. */
static struct container *box_of(const struct store *st)
{
	return (struct container *)(uintptr_t)&st->box;
}

int store_document(const struct store *st, const char *name, struct buf *out, struct err *err)
{
	return container_document(box_of(st), name, out, err);
}

int store_list(const struct store *st, const char *folder, const char *const **out, struct err *err)
{
	return container_list(box_of(st), folder, out, err);
}

const char *store_place(const struct store *st, const char *name)
{
	return container_place(box_of(st), name);
}

static int read_json(struct store *st, const char *name, bool optional, struct json **out, struct err *err)
{
	struct buf b;
	int code;

	*out = NULL;
	buf_init(&b);
	code = store_document(st, name, &b, err);
	if (!code) {
		*out = json_parse_python(b.p, b.n, 0, err);
		if (!*out)
			code = err_prefix(err, "%s", store_place(st, name));
		else if (json_kind(*out) != JSON_OBJECT)
			code = err_set(err, E_FORMAT, "%s: holds %s, not an object", store_place(st, name),
			               json_kind_name(json_kind(*out)));
	} else if (code == E_MISSING && optional) {
		code = 0;
	}
	buf_fini(&b);
	return code;
}

static int read_settings(struct store *st, struct err *err)
{
	int code;

	st->config_path = store_place(st, "config.json");
	if ((code = read_json(st, "config.json", false, &st->config, err)) ||
	    (code = read_json(st, "generation_config.json", true, &st->generation, err)) ||
	    (code = read_json(st, "tokenizer_config.json", true, &st->tokenizer_config, err)))
		return code;
	st->text = json_get(st->config, "text_config");
	if (json_kind(st->text) != JSON_OBJECT)
		st->text = st->config;
	return coded_read_config(st, err);
}

/* ---- open, close ---- */

static const char *name_of(struct store *st, const char *model)
{
	char *real = dir_exists(model) || file_exists(model) ? realpath(model, NULL) : NULL;
	const char *s = real ? strrchr(real, '/') : NULL;

	s = arena_strndup(&st->arena, s && s[1] ? s + 1 : model, strlen(s && s[1] ? s + 1 : model));
	free(real);
	return s;
}

static int open_tensors(struct store *st, struct err *err)
{
	int code = container_tensors(&st->box, err);

	st->v = st->box.v;
	st->n = st->box.n;
	st->file = st->box.file;
	st->n_file = st->box.n_file;
	if (code)
		return code;
	coded_count_elements(st);
	return basis_read(st, err);
}

static int open_as(struct store **out, const struct container_ops *ops, const char *path, const char *name,
                   const char *tower, struct err *err)
{
	struct store *st = xcalloc(1, sizeof *st);
	int code;

	*out = NULL;
	arena_init(&st->arena);
	st->dir = arena_strndup(&st->arena, path, strlen(path));
	st->name = name_of(st, name);
	code = container_open(&st->box, ops, path, tower, err);
	if (!code)
		code = read_settings(st, err);
	if (!code)
		code = open_tensors(st, err);
	if (code)
		store_close(st);
	else
		*out = st;
	return code;
}

int store_open_as(struct store **out, const struct container_ops *ops, const char *path, const char *name,
                  struct err *err)
{
	return open_as(out, ops, path, name, NULL, err);
}

int store_open(struct store **out, const char *model, struct err *err)
{
	return store_open_seeing(out, model, NULL, err);
}

int store_open_seeing(struct store **out, const char *model, const char *tower, struct err *err)
{
	struct buf path;
	int code;

	*out = NULL;
	buf_init(&path);
	code = store_locate(model, &path, err);
	if (!code)
		code = open_as(out, NULL, path.p, model, tower, err);
	buf_fini(&path);
	return code;
}

void store_close(struct store *st)
{
	if (!st)
		return;
	container_close(&st->box);
	json_free(st->config);
	json_free(st->generation);
	json_free(st->tokenizer_config);
	free(st->matrix);
	arena_fini(&st->arena);
	free(st);
}

/* ---- tensors by name ---- */

struct tensor *store_find(const struct store *st, const char *name)
{
	return tensors_find(st->v, st->n, name);
}

struct tensor *store_part(const struct store *st, const char *path, const char *suffix)
{
	struct buf name;
	struct tensor *t;

	buf_init(&name);
	buf_printf(&name, "%s%s", path, suffix);
	t = store_find(st, name.p);
	buf_fini(&name);
	return t;
}

bool store_has(const struct store *st, const char *name)
{
	struct buf path;
	bool has;

	if (store_find(st, name))
		return true;
	buf_init(&path);
	has = tensor_stem(&path, name, ".weight") && foreign_has(st, path.p);
	buf_fini(&path);
	return has;
}

int store_data(struct store *st, struct tensor *t, struct err *err)
{
	return container_load(&st->box, t, err);
}

const char *store_prefix(const struct store *st, const char *const *prefix, const char *name)
{
	struct buf b;
	const char *found = NULL;

	buf_init(&b);
	for (; *prefix && !found; prefix++) {
		buf_reset(&b);
		buf_printf(&b, "%s%s", *prefix, name);
		if (store_has(st, b.p))
			found = *prefix;
	}
	buf_fini(&b);
	return found;
}

int store_missing(const struct store *st, const char *name, struct err *err)
{
	return err_set(err, E_MISSING, "%s: tensor %s: missing (%zu tensors in %d files)", st->dir, name, st->n,
	               st->n_file);
}

int store_shape_error(const struct store *st, const struct tensor *t, const int64_t *dim, int n_dim, struct err *err)
{
	char is[160], wants[160];

	return err_set(err, E_FORMAT, "%s: tensor %s: is %s, %s asks for %s", t->file, t->name,
	               shape_text(is, sizeof is, t->dim, t->n_dim), st->config_path,
	               shape_text(wants, sizeof wants, dim, n_dim));
}

int store_floats(struct store *st, struct arena *a, const char *name, int64_t count, float add, const float **out,
                 struct err *err)
{
	struct tensor *t = store_find(st, name);
	int code;
	float *f;

	if (!t)
		return store_missing(st, name, err);
	if (t->count != count)
		return store_shape_error(st, t, &count, 1, err);
	if (t->rotated)
		return err_set(err, E_FORMAT, "%s: tensor %s: a vector in a rotated basis is not read", t->file, name);
	if (t->format || (t->type != DT_F16 && t->type != DT_BF16 && t->type != DT_F32 && t->type != DT_F64))
		return err_set(err, E_FORMAT, "%s: tensor %s: is %s, a vector is read as BF16, F16, F32 or F64",
		               t->file, name, tensor_type_name(t));
	if ((code = store_data(st, t, err)))
		return code;
	f = arena_alloc(a, size_mul((size_t)count, sizeof *f));
	dtype_to_float(f, t->data, t->type, (size_t)count);
	if (add != 0.0f)
		for (int64_t i = 0; i < count; i++)
			f[i] += add;
	t->used++;
	*out = f;
	return 0;
}

struct store_matrix *store_matrix(const struct store *st, const char *path)
{
	for (size_t i = 0; i < st->n_matrix; i++)
		if (!strcmp(st->matrix[i].path, path))
			return &st->matrix[i];
	return NULL;
}

void store_apart(struct store *st, const struct weight *w)
{
	for (size_t i = st->n_matrix; i-- > 0;) /* it is among the last */
		if (st->matrix[i].w.data == w->data) {
			st->matrix[i].apart = true;
			return;
		}
}

int store_ints(struct store *st, struct arena *a, const char *name, int64_t count, const int64_t **out, struct err *err)
{
	struct tensor *t = store_find(st, name);
	int64_t *v;
	int code;

	if (!t)
		return store_missing(st, name, err);
	if (t->count != count)
		return store_shape_error(st, t, &count, 1, err);
	if (t->format || (t->type != DT_I64 && t->type != DT_I32))
		return err_set(err, E_FORMAT, "%s: tensor %s: is %s, a list of numbers is read as I64 or I32", t->file,
		               name, tensor_type_name(t));
	if ((code = store_data(st, t, err)))
		return code;
	v = arena_alloc(a, size_mul((size_t)count, sizeof *v));
	for (int64_t i = 0; i < count; i++) {
		int32_t half;

		if (t->type == DT_I64) {
			memcpy(&v[i], t->data + i * 8, sizeof v[i]);
			continue;
		}
		memcpy(&half, t->data + i * 4, sizeof half);
		v[i] = half;
	}
	t->used++;
	*out = v;
	return 0;
}

/* ---- memory ---- */

void store_rows_only(struct store *st, struct weight *w)
{
	struct tensor *t = store_find(st, w->name);

	w->packed = NULL;
	if (t)
		t->whole = NULL;
}

static const struct file_map *mapping_of(const struct store *st, const uint8_t *p)
{
	for (int i = 0; i < st->n_file; i++)
		if (p >= st->file[i].map.p && p < st->file[i].map.p + st->file[i].map.n)
			return &st->file[i].map;
	return NULL;
}

/* As struct placed has it: by the first part of the name that is a number. */
static int layer_in(const char *name)
{
	for (const char *at = name; at; at = strchr(at, '.')) {
		size_t n = strspn(at += *at == '.', "0123456789");

		if (n && n < 6 && at[n] == '.')
			return 1 + (int)strtol(at, NULL, 10);
	}
	return PLACED_NO_LAYER;
}

struct placed *store_placed(const struct store *st, const struct arena *made, int *n)
{
	struct placed *v = xcalloc(st->n + arena_blocks(made) + 1, sizeof *v);
	const struct arena_block *at = NULL;
	const void *p;
	size_t bytes;

	*n = 0;
	for (size_t i = 0; i < st->n; i++) {
		const struct tensor *t = st->v[i];

		if (t->used && t->data && t->bytes)
			v[(*n)++] = (struct placed){ t->data, t->bytes, t->whole, mapping_of(st, t->data),
				                     layer_in(t->name) };
	}
	while (arena_next(made, &at, &p, &bytes))
		v[(*n)++] = (struct placed){ .p = p, .bytes = bytes };
	return v;
}

/* ---- what is left over ---- */

int *store_uses(const struct store *st)
{
	int *uses = xmalloc(size_mul(st->n + 1, sizeof *uses));

	for (size_t i = 0; i < st->n; i++)
		uses[i] = st->v[i]->used;
	return uses;
}

void store_uses_end(struct store *st, int *uses, bool again)
{
	for (size_t i = 0; i < st->n && again; i++)
		st->v[i]->used = uses[i];
	free(uses);
}

static bool matches(const char *name, const char *pattern)
{
	size_t n = strlen(name), m = strlen(pattern);

	if (*pattern == '*')
		return n >= m - 1 && !strcmp(name + n - (m - 1), pattern + 1);
	return !strncmp(name, pattern, m);
}

void store_ignore(struct store *st, const char *pattern, const char *why)
{
	size_t n = 0, bytes = 0;

	for (size_t i = 0; i < st->n; i++) {
		struct tensor *t = st->v[i];

		if (t->used || t->ignored || !matches(t->name, pattern))
			continue;
		t->ignored = why;
		n++;
		bytes += t->bytes;
		log_debug("ignored: %s: %s", t->name, why);
	}
	if (n)
		log_info("ignored: %s%s, %zu tensors, %.1f MB: %s", pattern, *pattern == '*' ? "" : "*", n,
		         (double)bytes / 1e6, why);
}

void store_report(struct store *st)
{
	size_t n = 0;

	for (size_t i = 0; i < st->n; i++) {
		struct tensor *t = st->v[i];

		if (t->used || t->ignored)
			continue;
		t->ignored = "not used by this architecture";
		log_at(n++ < WARN_MAX ? LOG_WARN : LOG_DEBUG, "ignored: %s in %s: not used by this architecture",
		       t->name, t->file);
	}
	if (n > WARN_MAX)
		log_warn("ignored: %zu tensors more; weft inspect --tensors names them", n - WARN_MAX);
}
