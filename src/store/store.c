/* store.c - opening a model folder and finding its tensors; see store.h. */
#include "store/store.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/pages.h"
#include "store/quantised.h"

enum {
	CONFIG_MAX = 64 << 20, /* a tokenizer_config.json with many added tokens has some MB */
	INDEX_MAX = 256 << 20, /* 2.4T parameters, one tensor per expert: 28 MB */
	SHARDS_MAX = 4096,
	WARN_MAX = 16, /* unknown tensors named one by one before a count */
};

const char *store_path(const struct store *st, const char *file)
{
	return arena_printf((struct arena *)(uintptr_t)&st->arena, "%s/%s", st->dir, file);
}

/* ---- settings files ---- */

static int read_json(struct store *st, const char *file, size_t max, bool optional, struct json **out, struct err *err)
{
	const char *path = store_path(st, file);
	struct buf b;
	int code;

	*out = NULL;
	if (!file_exists(path)) {
		if (optional)
			return 0;
		return err_set(err, E_MISSING,
		               "%s: missing; a model folder has config.json, tokenizer.json and "
		               "*.safetensors",
		               path);
	}
	buf_init(&b);
	code = file_read(path, max, &b, err);
	if (!code) {
		*out = json_parse(b.p, b.n, 0, err);
		if (!*out)
			code = err_prefix(err, "%s", path);
		else if (json_kind(*out) != JSON_OBJECT)
			code = err_set(err, E_FORMAT, "%s: holds %s, not an object", path,
			               json_kind_name(json_kind(*out)));
	}
	buf_fini(&b);
	return code;
}

static int read_settings(struct store *st, struct err *err)
{
	int code;

	st->config_path = store_path(st, "config.json");
	if ((code = read_json(st, "config.json", CONFIG_MAX, false, &st->config, err)) ||
	    (code = read_json(st, "generation_config.json", CONFIG_MAX, true, &st->generation, err)) ||
	    (code = read_json(st, "tokenizer_config.json", CONFIG_MAX, true, &st->tokenizer_config, err)))
		return code;
	st->text = json_get(st->config, "text_config");
	if (json_kind(st->text) != JSON_OBJECT)
		st->text = st->config;
	return coded_read_config(st, err);
}

/* ---- the list of shards ---- */

static int by_string(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

struct names {
	const char **v;
	size_t n, cap;
};

static void names_add(struct names *l, const char *name)
{
	if (l->n == l->cap)
		l->v = xrealloc(l->v, size_mul(l->cap = l->cap ? 2 * l->cap : 16, sizeof *l->v));
	l->v[l->n++] = name;
}

static void names_sort_unique(struct names *l)
{
	size_t n = 0;

	if (l->n)
		qsort(l->v, l->n, sizeof *l->v, by_string);
	for (size_t i = 0; i < l->n; i++)
		if (!n || strcmp(l->v[n - 1], l->v[i]))
			l->v[n++] = l->v[i];
	l->n = n;
}

/* The files that an index names.  A name is one in this folder, never a path. */
static int shards_of_index(struct store *st, const struct json *index, const char *path, struct names *out,
                           struct err *err)
{
	const struct json *map = json_get(index, "weight_map"), *value;
	const char *tensor, *file;
	struct json_cursor c;

	if (json_kind(map) != JSON_OBJECT)
		return err_set(err, E_FORMAT, "%s: \"weight_map\" is %s, not an object", path,
		               map ? json_kind_name(json_kind(map)) : "missing");
	for (c = json_first(map); json_next(&c, &tensor, &value);) {
		file = json_str(value, NULL);
		if (!file || !*file || *file == '.' || strchr(file, '/'))
			return err_set(err, E_FORMAT,
			               "%s: tensor %.200s: \"%.80s\" is not the name of a file in this folder", path,
			               tensor, file ? file : "");
		if (!out->n || strcmp(out->v[out->n - 1], file))
			names_add(out, file);
		if (out->n > 65536) /* alternating names; keep the list short */
			names_sort_unique(out);
	}
	names_sort_unique(out);
	for (size_t i = 0; i < out->n; i++) {
		size_t expects = 0, total = json_len(map);
		const char *first = "";

		out->v[i] = arena_strndup(&st->arena, out->v[i], strlen(out->v[i]));
		if (file_exists(store_path(st, out->v[i])))
			continue;
		for (c = json_first(map); json_next(&c, &tensor, &value);)
			if (!strcmp(json_str(value, NULL), out->v[i]) && !expects++)
				first = tensor;
		return err_set(err, E_MISSING, "%s: missing; %s expects %zu of its %zu tensors there, first %.200s",
		               store_path(st, out->v[i]), path, expects, total, first);
	}
	return 0;
}

/* model*.safetensors, as mlx-lm takes them; all of "-of-NNNNN" must be there. */
static int shards_of_folder(struct store *st, struct names *out, struct err *err)
{
	DIR *d = opendir(st->dir);
	struct dirent *e;
	int number, total, most = 0;
	size_t numbered = 0;

	while (d && (e = readdir(d))) {
		size_t n = strlen(e->d_name);

		if (!strncmp(e->d_name, "model", 5) && n > 12 && !strcmp(e->d_name + n - 12, ".safetensors")) {
			names_add(out, arena_strndup(&st->arena, e->d_name, n));
			if (sscanf(e->d_name, "model-%d-of-%d.safetensors", &number, &total) == 2) {
				numbered++;
				most = total > most ? total : most;
			}
		}
	}
	if (d)
		closedir(d);
	names_sort_unique(out);
	if (numbered && numbered < (size_t)most)
		return err_set(err, E_MISSING, "%s: %zu of %d shards model-*-of-%05d.safetensors are there", st->dir,
		               numbered, most, most);
	if (!out->n)
		return err_set(err, E_MISSING, "%s: no model*.safetensors in this folder", st->dir);
	return 0;
}

/* What the index says is where must be there. */
static int check_index(const struct store *st, const struct json *index, const char *path, struct err *err)
{
	const struct json *value;
	const char *name;
	struct json_cursor c;

	for (c = json_first(json_get(index, "weight_map")); json_next(&c, &name, &value);) {
		const struct tensor *t = store_find(st, name);
		const char *file = json_str(value, NULL), *at;

		if (!t)
			return err_set(err, E_MISSING, "%s: tensor %.200s: not in %.80s, where the index places it",
			               path, name, file);
		at = strrchr(t->file, '/');
		if (strcmp(at ? at + 1 : t->file, file))
			return err_set(err, E_FORMAT, "%s: tensor %.200s: in %s, the index places it in %.80s", path,
			               name, t->file, file);
	}
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct tensor *const *)a)->name, (*(const struct tensor *const *)b)->name);
}

static int merge(struct store *st, struct err *err)
{
	size_t n = 0;

	for (int i = 0; i < st->n_shard; i++)
		n += st->shard[i].n;
	st->v = arena_alloc(&st->arena, size_mul(n + 1, sizeof *st->v));
	for (int i = 0; i < st->n_shard; i++)
		for (size_t j = 0; j < st->shard[i].n; j++)
			st->v[st->n++] = &st->shard[i].v[j];
	if (n)
		qsort(st->v, n, sizeof *st->v, by_name);
	for (size_t i = 0; i + 1 < n; i++)
		if (!by_name(&st->v[i], &st->v[i + 1]))
			return err_set(err, E_FORMAT, "%s: tensor %s: also in %s", st->v[i + 1]->file, st->v[i]->name,
			               st->v[i]->file);
	return 0;
}

static int open_shards(struct store *st, const struct names *l, struct err *err)
{
	if (l->n > SHARDS_MAX)
		return err_set(err, E_LIMIT, "%s: %zu shards: at most %d are read", st->dir, l->n, SHARDS_MAX);
	st->shard = arena_zalloc(&st->arena, size_mul(l->n, sizeof *st->shard));
	for (size_t i = 0; i < l->n; i++) {
		struct safetensors *s = &st->shard[i];
		int code = safetensors_open(s, store_path(st, l->v[i]), err);

		if (code)
			return code;
		st->n_shard++;
		if (s->hole_bytes)
			log_info("%s: %zu bytes belong to no tensor", store_path(st, l->v[i]), s->hole_bytes);
	}
	return merge(st, err);
}

static int open_tensors(struct store *st, struct err *err)
{
	const char *path = store_path(st, "model.safetensors.index.json");
	struct names list = { 0 };
	struct json *index;
	int code = read_json(st, "model.safetensors.index.json", INDEX_MAX, true, &index, err);

	if (!code)
		code = index ? shards_of_index(st, index, path, &list, err) : shards_of_folder(st, &list, err);
	if (!code)
		code = open_shards(st, &list, err);
	if (!code && index)
		code = check_index(st, index, path, err);
	if (!code)
		coded_count_elements(st);
	json_free(index);
	free(list.v);
	return code;
}

/* ---- open, close ---- */

static const char *name_of(struct store *st, const char *model)
{
	char *real = dir_exists(model) ? realpath(model, NULL) : NULL;
	const char *s = real ? strrchr(real, '/') : NULL;

	s = arena_strndup(&st->arena, s && s[1] ? s + 1 : model, strlen(s && s[1] ? s + 1 : model));
	free(real);
	return s;
}

int store_open(struct store **out, const char *model, struct err *err)
{
	struct store *st;
	struct buf dir;
	int code;

	*out = NULL;
	buf_init(&dir);
	if ((code = store_locate(model, &dir, err))) {
		buf_fini(&dir);
		return code;
	}
	st = xcalloc(1, sizeof *st);
	arena_init(&st->arena);
	st->dir = arena_strndup(&st->arena, dir.p, dir.n);
	st->name = name_of(st, model);
	buf_fini(&dir);
	code = read_settings(st, err);
	if (!code)
		code = open_tensors(st, err);
	if (code)
		store_close(st);
	else
		*out = st;
	return code;
}

void store_close(struct store *st)
{
	if (!st)
		return;
	for (int i = 0; i < st->n_shard; i++)
		safetensors_close(&st->shard[i]);
	for (int i = 0; i < st->n_room; i++)
		pages_free(st->room[i].p, st->room[i].n);
	free(st->room);
	json_free(st->config);
	json_free(st->generation);
	json_free(st->tokenizer_config);
	arena_fini(&st->arena);
	free(st);
}

/* ---- tensors by name ---- */

struct tensor *store_find(const struct store *st, const char *name)
{
	struct tensor key = { .name = name }, *k = &key, **hit;

	hit = st->n ? bsearch(&k, st->v, st->n, sizeof *st->v, by_name) : NULL;
	return hit ? *hit : NULL;
}

const char *store_prefix(const struct store *st, const char *const *prefix, const char *name)
{
	struct buf b;
	const char *found = NULL;

	buf_init(&b);
	for (; *prefix && !found; prefix++) {
		buf_reset(&b);
		buf_printf(&b, "%s%s", *prefix, name);
		if (store_find(st, b.p))
			found = *prefix;
	}
	buf_fini(&b);
	return found;
}

int store_missing(const struct store *st, const char *name, struct err *err)
{
	return err_set(err, E_MISSING, "%s: tensor %s: missing (%zu tensors in %d files)", st->dir, name, st->n,
	               st->n_shard);
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
	int64_t most = 0;
	float *f;

	if (!t)
		return store_missing(st, name, err);
	for (int i = 0; i < t->n_dim; i++)
		most = t->dim[i] > most ? t->dim[i] : most;
	if (t->count != count)
		return store_shape_error(st, t, &count, 1, err);
	if (t->type != DT_F16 && t->type != DT_BF16 && t->type != DT_F32 && t->type != DT_F64)
		return err_set(err, E_FORMAT, "%s: tensor %s: is %s, a vector is read as BF16, F16, F32 or F64",
		               t->file, name, dtype_name(t->type));
	f = arena_alloc(a, size_mul((size_t)count, sizeof *f));
	dtype_to_float(f, t->data, t->type, (size_t)count);
	if (add != 0.0f)
		for (int64_t i = 0; i < count; i++)
			f[i] += add;
	t->used++;
	*out = f;
	return 0;
}

/* ---- what is left over ---- */

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
