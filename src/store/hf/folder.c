/* folder.c - the container of Hugging Face and mlx-lm: a folder with config.json and safetensors.
 *
 * Documents are its files; where tokenizer.json is not there and tekken.json, tiktoken.model or
 * RWKV's list of tokens is, some are made of that (tekken.h, tiktoken.h, rwkv_vocab.h).  Tensors are those of the shards that
 * model.safetensors.index.json names, or of all model*.safetensors. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "store/container.h"
#include "store/lfs.h"
#include "store/hf/rwkv_vocab.h"
#include "store/safetensors.h"
#include "store/hf/tekken.h"
#include "store/hf/tiktoken.h"
#include "store/hf/v4_spelling.h"

enum {
	TEMPLATE_MAX = 4 << 20,    /* the longest known template has 17 KB */
	DOCUMENT_MAX = 64 << 20,   /* a tokenizer_config.json with many added tokens has some MB */
	TOKENIZER_MAX = 256 << 20, /* as much again as the largest known */
	INDEX_MAX = 256 << 20,     /* 2.4T parameters, one tensor per expert: 28 MB */
	SHARDS_MAX = 4096,
	LISTED_MAX = 1024, /* documents of a folder in the folder; the most known are three */
};

struct folder {
	struct container *c;
	struct safetensors *shard;
	enum { V4_UNKNOWN, V4_NO, V4_YES } v4; /* whether the config is DeepSeek V4's: known once it has been read */
};

static const char *folder_path(const struct folder *f, const char *file)
{
	return arena_printf(&f->c->arena, "%s/%s", f->c->path, file);
}

/* ---- documents ---- */

static bool match(const char *path)
{
	return dir_exists(path);
}

static int open_folder(struct container *c, struct err *err)
{
	struct folder *f = arena_zalloc(&c->arena, sizeof *f);

	f->c = c;
	c->own = f;
	return 0;
}

static size_t most_of(const char *name)
{
	return !strcmp(name, "tokenizer.json") ? TOKENIZER_MAX :
	       strstr(name, "chat_template")   ? TEMPLATE_MAX :
	                                         DOCUMENT_MAX;
}

/* The document at path, of at most `most` bytes, as `parse` reads it; NULL without a failure: there is no such file. */
typedef struct json *parse_fn(const char *p, size_t n, int depth_max, struct err *err);
static int read_json(const char *path, size_t most, parse_fn *parse, struct json **out, struct err *err)
{
	struct buf b;
	int code;

	*out = NULL;
	if (!file_exists(path))
		return 0;
	buf_init(&b);
	code = file_read(path, most, &b, err);
	if (!code && !(*out = parse(b.p, b.n, 0, err)))
		code = err_prefix(err, "%s", path);
	buf_fini(&b);
	return code;
}

/* The config of a tokenizer whose data does not say all; NULL without a failure: there is none. */
static int tokenizer_config(const struct folder *f, struct json **out, struct err *err)
{
	return read_json(folder_path(f, "tokenizer_config.json"), DOCUMENT_MAX, json_parse, out, err);
}

static int of_tekken(const struct folder *f, const struct buf *text, struct buf *out, struct err *err)
{
	return tekken_tokenizer(text->p, text->n, out, err);
}

static int config_of_tekken(const struct folder *f, const struct buf *text, struct buf *out, struct err *err)
{
	return tekken_tokenizer_config(text->p, text->n, out, err);
}

static int of_tiktoken(const struct folder *f, const struct buf *text, struct buf *out, struct err *err)
{
	struct json *config;
	int code = tokenizer_config(f, &config, err);
	const char *pattern = code ? NULL : tiktoken_pattern(config, err);

	if (!code)
		code = pattern ? tiktoken_tokenizer(text->p, text->n, pattern, config, out, err) : err->code;
	json_free(config);
	return code;
}

static int of_rwkv(const struct folder *f, const struct buf *text, struct buf *out, struct err *err)
{
	struct json *config;
	int code = tokenizer_config(f, &config, err);

	if (!code)
		code = rwkv_tokenizer(text->p, text->n, config, out, err);
	json_free(config);
	return code;
}

/* Documents that are made of another file when their own is missing, and so is tokenizer.json. */
static const struct made {
	const char *name, *from;
	int (*make)(const struct folder *f, const struct buf *text, struct buf *out, struct err *err);
} made[] = { { "tokenizer.json", "tekken.json", of_tekken },
	     { "tokenizer_config.json", "tekken.json", config_of_tekken },
	     { "tokenizer.json", "tiktoken.model", of_tiktoken },
	     { "tokenizer.json", "rwkv_vocab_v20230424.txt", of_rwkv } };

/* How the document is to be made; NULL: it is a file. */
static const struct made *made_of(const struct folder *f, const char *name)
{
	for (size_t i = 0; i < sizeof made / sizeof *made; i++)
		if (!strcmp(made[i].name, name) && !file_exists(folder_path(f, name)) &&
		    !file_exists(folder_path(f, "tokenizer.json")) && file_exists(folder_path(f, made[i].from)))
			return &made[i];
	return NULL;
}

static const char *place(struct container *c, const char *name)
{
	const struct made *how = made_of(c->own, name);

	return folder_path(c->own, how ? how->from : name);
}

static int make(const struct folder *f, const struct made *how, const char *path, struct buf *out, struct err *err)
{
	struct buf text;
	int e;

	buf_init(&text);
	e = file_read(path, TOKENIZER_MAX, &text, err);
	if (!e && (e = how->make(f, &text, out, err)))
		err_prefix(err, "%s", path);
	buf_fini(&text);
	return e;
}

static int spell_config(struct folder *f, const char *path, struct buf *text, struct err *err)
{
	bool v4;
	int code = v4_spell_config(text, &v4, err);

	f->v4 = v4 ? V4_YES : V4_NO;
	return code ? err_prefix(err, "%s", path) : 0;
}

static int document(struct container *c, const char *name, struct buf *out, struct err *err)
{
	const char *path = place(c, name);
	const struct made *how = made_of(c->own, name);

	if (lfs_refuse_file(path, err) || file_refuse_special(path, err))
		return err->code;
	if (how)
		return make(c->own, how, path, out, err);
	if (!file_exists(path) && !strcmp(name, "config.json") &&
	    file_exists(folder_path(c->own, "adapter_config.json")))
		return err_set(err, E_MISSING,
		               "%s: missing; the folder is an adapter: serve its base model, with --lora FOLDER", path);
	if (!file_exists(path))
		return err_set(err, E_MISSING,
		               "%s: missing; a model folder has config.json, tokenizer.json and *.safetensors", path);
	if (file_read(path, most_of(name), out, err))
		return err->code;
	return !strcmp(name, "config.json") ? spell_config(c->own, path, out, err) : 0;
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

static int list(struct container *c, const char *folder, const char *const **out, struct err *err)
{
	const char *path = folder_path(c->own, folder), **v;
	DIR *d = opendir(path);
	struct names found = { 0 };
	struct dirent *e;
	int code = 0;

	if (!d && errno != ENOENT && errno != ENOTDIR)
		return err_set(err, E_IO, "%s: cannot be listed: %s", path, strerror(errno));
	while (d && !code && (e = readdir(d))) {
		const char *name = arena_printf(&c->arena, "%s/%s", folder, e->d_name);

		if (*e->d_name != '.' && !dir_exists(folder_path(c->own, name)))
			names_add(&found, name);
		if (found.n > LISTED_MAX)
			code = err_set(err, E_LIMIT, "%s: more than %d files", path, LISTED_MAX);
	}
	if (d)
		closedir(d);
	names_sort_unique(&found);
	v = arena_zalloc(&c->arena, size_mul(found.n + 1, sizeof *v));
	for (size_t i = 0; i < found.n; i++)
		v[i] = found.v[i];
	free(found.v);
	*out = v;
	return code;
}

/* The files that an index names.  A name is one in this folder, never a path. */
static int shards_of_index(struct folder *f, const struct json *index, const char *path, struct names *out,
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

		out->v[i] = arena_strndup(&f->c->arena, out->v[i], strlen(out->v[i]));
		if (file_exists(folder_path(f, out->v[i])))
			continue;
		for (c = json_first(map); json_next(&c, &tensor, &value);)
			if (!strcmp(json_str(value, NULL), out->v[i]) && !expects++)
				first = tensor;
		return err_set(err, E_MISSING, "%s: missing; %s expects %zu of its %zu tensors there, first %.200s",
		               folder_path(f, out->v[i]), path, expects, total, first);
	}
	return 0;
}

/* Files that `hf download` has begun and not ended: in the folder, where it notes those of a folder of one's own, and
 * next to the snapshots of its cache. */
static int unfinished(const struct folder *f)
{
	static const char *const where[] = { "", "/.cache/huggingface/download", "/../../blobs" };
	int n = 0;

	for (size_t i = 0; i < sizeof where / sizeof *where; i++) {
		DIR *d = opendir(arena_printf(&f->c->arena, "%s%s", f->c->path, where[i]));
		struct dirent *e;

		while (d && (e = readdir(d))) {
			size_t len = strlen(e->d_name);

			n += len > 11 && !strcmp(e->d_name + len - 11, ".incomplete");
		}
		if (d)
			closedir(d);
	}
	return n;
}

/* Says what is there in place of model*.safetensors, and what to do with it. */
static int no_weights(struct folder *f, struct err *err)
{
	static const struct {
		const char *file, *what;
	} other[] = {
		{ "pytorch_model.bin.index.json",
		  "its weights are PyTorch's pickles (.bin), which are programs and are not read: take a revision with "
		  "safetensors, or convert it" },
		{ "pytorch_model.bin",
		  "its weights are PyTorch's pickles (.bin), which are programs and are not read: take a revision with "
		  "safetensors, or convert it" },
		{ "adapter_model.safetensors", "it is an adapter: serve its base model, with --lora FOLDER" },
	};

	for (size_t i = 0; i < sizeof other / sizeof *other; i++)
		if (file_exists(folder_path(f, other[i].file)))
			return err_set(err, E_MISSING, "%s: no model*.safetensors in this folder; %s", f->c->path,
			               other[i].what);
	return err_set(err, E_MISSING, "%s: no model*.safetensors in this folder", f->c->path);
}

/* model*.safetensors, as mlx-lm takes them; all of "-of-NNNNN" must be there. */
static int shards_of_folder(struct folder *f, struct names *out, struct err *err)
{
	DIR *d = opendir(f->c->path);
	struct dirent *e;
	int number, total, most = 0, begun;
	size_t numbered = 0;

	while (d && (e = readdir(d))) {
		size_t n = strlen(e->d_name);

		if (!strncmp(e->d_name, "model", 5) && n > 12 && !strcmp(e->d_name + n - 12, ".safetensors")) {
			names_add(out, arena_strndup(&f->c->arena, e->d_name, n));
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
		return err_set(err, E_MISSING, "%s: %zu of %d shards model-*-of-%05d.safetensors are there", f->c->path,
		               numbered, most, most);
	if (!out->n && (begun = unfinished(f)))
		return err_set(
			err, E_MISSING,
			"%s: no model*.safetensors in this folder, and %d files that were not downloaded to their "
			"end: `hf download` goes on with them",
			f->c->path, begun);
	if (!out->n)
		return no_weights(f, err);
	return 0;
}

/* Checks that every tensor of the index is in the file that the index names. */
static int check_index(const struct folder *f, const struct json *index, const char *path, struct err *err)
{
	const struct json *value;
	const char *name;
	struct json_cursor c;

	for (c = json_first(json_get(index, "weight_map")); json_next(&c, &name, &value);) {
		const struct tensor *t = tensors_find(f->c->v, f->c->n, name);
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

static int open_shards(struct folder *f, const struct names *l, struct err *err)
{
	struct container *c = f->c;
	size_t n = 0;

	if (l->n > SHARDS_MAX)
		return err_set(err, E_LIMIT, "%s: %zu shards: at most %d are read", c->path, l->n, SHARDS_MAX);
	f->shard = arena_zalloc(&c->arena, size_mul(l->n, sizeof *f->shard));
	c->file = arena_zalloc(&c->arena, size_mul(l->n, sizeof *c->file));
	for (size_t i = 0; i < l->n; i++) {
		struct safetensors *s = &f->shard[i];
		const char *path = folder_path(f, l->v[i]);
		int code = safetensors_open(s, path, err);

		if (code)
			return code;
		c->file[c->n_file++] = (struct store_file){ path, s->map };
		n += s->n;
		if (s->hole_bytes)
			log_info("%s: %zu bytes belong to no tensor", path, s->hole_bytes);
	}
	c->v = arena_alloc(&c->arena, size_mul(n + 1, sizeof *c->v));
	for (int i = 0; i < c->n_file; i++)
		for (size_t j = 0; j < f->shard[i].n; j++)
			c->v[c->n++] = &f->shard[i].v[j];
	tensors_sort(c->v, c->n);
	return 0;
}

static bool is_v4(struct folder *f)
{
	struct buf config;
	struct err err;

	if (f->v4 == V4_UNKNOWN) {
		buf_init(&config);
		document(f->c, "config.json", &config, &err);
		buf_fini(&config);
	}
	return f->v4 == V4_YES;
}

static int tensors(struct container *c, struct err *err)
{
	struct folder *f = c->own;
	const char *path = folder_path(f, "model.safetensors.index.json");
	struct names list = { 0 };
	struct json *index;
	int code = read_json(path, INDEX_MAX, json_parse_python, &index, err);

	if (!code)
		code = index ? shards_of_index(f, index, path, &list, err) : shards_of_folder(f, &list, err);
	if (!code)
		code = open_shards(f, &list, err);
	if (!code && index)
		code = check_index(f, index, path, err);
	if (!code && is_v4(f) && v4_spell_tensors(c->v, c->n, &c->arena))
		tensors_sort(c->v, c->n);
	json_free(index);
	free(list.v);
	return code;
}

static void close_folder(struct container *c)
{
	struct folder *f = c->own;

	for (int i = 0; i < c->n_file; i++)
		safetensors_close(&f->shard[i]);
}

const struct container_ops folder_container = {
	.name = "folder",
	.match = match,
	.open = open_folder,
	.tensors = tensors,
	.close = close_folder,
	.document = document,
	.list = list,
	.place = place,
};
