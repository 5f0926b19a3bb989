/* safetensors.c - see safetensors.h. */
#include "store/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "store/lfs.h"

/* The reference library's bound; a 2.4T model's header is about 30 MB. */
static const uint64_t HEADER_MAX = 100000000;
/* Leaves room in an error line for the path and the numbers. */
enum { NAME_MAX_BYTES = 200 };

static uint64_t load_u64le(const uint8_t *p)
{
	uint64_t v = 0;

	for (int i = 7; i >= 0; i--)
		v = v << 8 | p[i];
	return v;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

static int by_data(const void *a, const void *b)
{
	const struct tensor *x = *(const struct tensor *const *)a, *y = *(const struct tensor *const *)b;

	if (x->data != y->data)
		return x->data < y->data ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* ---- names given twice ---- */

struct slice {
	const char *p;
	size_t n;
};

static int by_slice(const void *a, const void *b)
{
	const struct slice *x = a, *y = b;
	int c = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);

	return c ? c : x->n < y->n ? -1 : x->n > y->n;
}

/* The parser keeps the last of two members with one name, so the source text is
 * asked: its keys at depth 1 must be as many as the members.  p[0..n) is known
 * to be valid JSON, an object. */
static int check_repeats(const char *path, const char *p, size_t n, size_t members, struct err *err)
{
	struct slice *key = NULL, last = { 0 };
	size_t n_key = 0, cap = 0;
	int depth = 0, code = 0;

	for (size_t i = 0; i < n; i++) {
		if (p[i] == '"') {
			size_t start = ++i;

			while (i < n && p[i] != '"')
				i += p[i] == '\\' ? 2 : 1;
			last = (struct slice){ p + start, i - start };
		} else if (p[i] == '{' || p[i] == '[') {
			depth++;
		} else if (p[i] == '}' || p[i] == ']') {
			depth--;
		} else if (p[i] == ':' && depth == 1) {
			if (n_key == cap)
				key = xrealloc(key, size_mul(cap = cap ? 2 * cap : 256, sizeof *key));
			key[n_key++] = last;
		}
	}
	if (n_key != members) {
		qsort(key, n_key, sizeof *key, by_slice);
		last = (struct slice){ "(written with escapes)", 22 };
		for (size_t i = 0; i + 1 < n_key; i++)
			if (by_slice(&key[i], &key[i + 1]) == 0)
				last = key[i];
		code = err_set(err, E_FORMAT, "%s: tensor %.*s: the header names it twice (%zu names, %zu different)",
		               path, (int)(last.n < NAME_MAX_BYTES ? last.n : NAME_MAX_BYTES), last.p, n_key, members);
	}
	free(key);
	return code;
}

/* ---- one entry ---- */

static int check_name(const char *path, const char *name, struct err *err)
{
	size_t n = strlen(name);

	if (n == 0 || n > NAME_MAX_BYTES)
		return err_set(err, E_LIMIT, "%s: a tensor's name of %zu bytes: 1 to %d are allowed", path, n,
		               NAME_MAX_BYTES);
	for (const char *c = name; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return err_set(err, E_FORMAT, "%s: a tensor's name holds the control byte 0x%02x", path,
			               (unsigned char)*c);
	return 0;
}

static int read_shape(struct tensor *t, const struct json *j, struct err *err)
{
	if (json_kind(j) != JSON_ARRAY)
		return err_set(err, E_FORMAT, "%s: tensor %s: \"shape\" is %s, not an array", t->file, t->name,
		               j ? json_kind_name(json_kind(j)) : "missing");
	if (json_len(j) > TENSOR_DIMS)
		return err_set(err, E_LIMIT, "%s: tensor %s: %zu dimensions, at most %d are read", t->file, t->name,
		               json_len(j), TENSOR_DIMS);
	t->n_dim = (int)json_len(j);
	t->count = 1;
	for (int i = 0; i < t->n_dim; i++) {
		if (json_to_int(json_at(j, (size_t)i), &t->dim[i]) || t->dim[i] < 0)
			return err_set(err, E_FORMAT, "%s: tensor %s: dimension %d is not a count", t->file, t->name,
			               i);
		if (__builtin_mul_overflow(t->count, t->dim[i], &t->count))
			return err_set(err, E_LIMIT, "%s: tensor %s: the product of its shape exceeds 2^63", t->file,
			               t->name);
	}
	return 0;
}

/* The bytes of a tensor with that many between its data_offsets. */
static int check_bytes(const struct tensor *t, int64_t bytes, struct err *err)
{
	char shape[160];
	int64_t want;

	if (t->type == DT_OTHER) /* how many an element has is not known */
		return 0;
	if (!__builtin_mul_overflow(t->count, (int64_t)dtype_size(t->type), &want) && want == bytes)
		return 0;
	return err_set(err, E_FORMAT,
	               "%s: tensor %s: %s %s needs %" PRId64 " x %d bytes, its data_offsets span %" PRId64, t->file,
	               t->name, tensor_type_name(t), shape_text(shape, sizeof shape, t->dim, t->n_dim), t->count,
	               dtype_size(t->type), bytes);
}

/* If a type is not known only its name counts, as long as it can be one: the tensor may be one that nothing uses. */
static int read_type(struct tensor *t, const struct json *j, struct arena *arena, struct err *err)
{
	enum { LONGEST = 40 };
	size_t n = 0;
	const char *type = json_str(j, &n);

	if (!type || !n || n > LONGEST ||
	    strspn(type, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") != n)
		return err_set(err, E_UNSUPPORTED, "%s: tensor %s: unknown dtype %.40s", t->file, t->name,
		               type ? type : "(none)");
	if (dtype_parse(type, &t->type)) {
		t->type = DT_OTHER;
		t->other = arena_strndup(arena, type, n);
	}
	return 0;
}

static int read_entry(struct tensor *t, const struct json *j, struct arena *arena, const uint8_t *data, size_t n_data,
                      struct err *err)
{
	const struct json *off = json_get(j, "data_offsets");
	int64_t begin, end;
	int code;

	if (json_kind(j) != JSON_OBJECT)
		return err_set(err, E_FORMAT, "%s: tensor %s: its entry is %s, not an object", t->file, t->name,
		               json_kind_name(json_kind(j)));
	if ((code = read_type(t, json_get(j, "dtype"), arena, err)) ||
	    (code = read_shape(t, json_get(j, "shape"), err)))
		return code;
	if (json_len(off) != 2 || json_to_int(json_at(off, 0), &begin) || json_to_int(json_at(off, 1), &end) ||
	    begin < 0 || end < begin)
		return err_set(err, E_FORMAT, "%s: tensor %s: data_offsets are not two rising positions", t->file,
		               t->name);
	if ((code = check_bytes(t, end - begin, err)))
		return code;
	if ((uint64_t)end > n_data)
		return err_set(err, E_FORMAT,
		               "%s: tensor %s: ends at byte %" PRId64 " of the data, the file has %zu "
		               "(truncated?)",
		               t->file, t->name, end, n_data);
	t->data = data + begin;
	t->bytes = (size_t)(end - begin);
	t->elements = t->count;
	return 0;
}

/* ---- the file ---- */

static int check_overlaps(struct safetensors *s, const uint8_t *data, size_t n_data, struct err *err)
{
	struct tensor **v = xmalloc(size_mul(s->n + 1, sizeof *v));
	size_t end = 0, n = 0;
	int code = 0;

	for (size_t i = 0; i < s->n; i++)
		if (s->v[i].bytes)
			v[n++] = &s->v[i];
	qsort(v, n, sizeof *v, by_data);
	for (size_t i = 0; i < n && !code; i++) {
		size_t begin = (size_t)(v[i]->data - data);

		if (begin < end)
			code = err_set(err, E_FORMAT,
			               "%s: tensor %s: begins at byte %zu of the data, inside tensor %s, "
			               "which ends at %zu",
			               v[i]->file, v[i]->name, begin, v[i - 1]->name, end);
		s->hole_bytes += begin - (code ? begin : end);
		end = begin + v[i]->bytes;
	}
	if (!code)
		s->hole_bytes += n_data - end;
	free(v);
	return code;
}

static int read_header(struct safetensors *s, const char *path, const uint8_t *p, size_t n, struct err *err)
{
	const char *name;
	const struct json *value;
	struct json_cursor c;
	struct json *root;
	uint64_t len;
	int code = 0;

	if (lfs_refuse(path, p, n, err))
		return err->code;
	if (n < 8)
		return err_set(err, E_FORMAT, "%s: %zu bytes: too short for a safetensors file (truncated?)", path, n);
	len = load_u64le(p);
	if (len < 2 || len > HEADER_MAX)
		return err_set(err, E_FORMAT,
		               "%s: header of %" PRIu64 " bytes: 2 to %" PRIu64 " are possible "
		               "(not a safetensors file?)",
		               path, len, HEADER_MAX);
	if (len > n - 8)
		return err_set(err, E_FORMAT,
		               "%s: header of %" PRIu64 " bytes, the file has %zu after its length "
		               "(truncated?)",
		               path, len, n - 8);
	root = json_parse((const char *)p + 8, (size_t)len, 0, err);
	if (!root)
		return err_prefix(err, "%s: header", path);
	if (json_kind(root) != JSON_OBJECT) {
		code = err_set(err, E_FORMAT, "%s: the header is %s, not an object", path,
		               json_kind_name(json_kind(root)));
		goto out;
	}
	if ((code = check_repeats(path, (const char *)p + 8, (size_t)len, json_len(root), err)))
		goto out;
	s->v = arena_zalloc(&s->arena, size_mul(json_len(root) + 1, sizeof *s->v));
	path = arena_strndup(&s->arena, path, strlen(path));
	for (c = json_first(root); !code && json_next(&c, &name, &value);) {
		struct tensor *t = &s->v[s->n];

		if (!strcmp(name, "__metadata__"))
			continue;
		if ((code = check_name(path, name, err)))
			break;
		t->name = arena_strndup(&s->arena, name, strlen(name));
		t->file = path;
		code = read_entry(t, value, &s->arena, p + 8 + len, n - 8 - (size_t)len, err);
		s->bytes += t->bytes;
		s->n++;
	}
	if (!code)
		code = check_overlaps(s, p + 8 + len, n - 8 - (size_t)len, err);
	qsort(s->v, s->n, sizeof *s->v, by_name);
out:
	json_free(root);
	return code;
}

int safetensors_open_bytes(struct safetensors *s, const char *path, const void *p, size_t n, struct err *err)
{
	int code;

	*s = (struct safetensors){ 0 };
	arena_init(&s->arena);
	code = read_header(s, path, p, n, err);
	if (code)
		safetensors_close(s);
	return code;
}

int safetensors_open(struct safetensors *s, const char *path, struct err *err)
{
	struct file_map map;
	int code = file_map_open(&map, path, err);

	if (code)
		return code;
	code = safetensors_open_bytes(s, path, map.p, map.n, err);
	if (code)
		file_map_close(&map);
	else
		s->map = map;
	return code;
}

void safetensors_close(struct safetensors *s)
{
	file_map_close(&s->map);
	arena_fini(&s->arena);
	*s = (struct safetensors){ 0 };
}

struct tensor *safetensors_find(const struct safetensors *s, const char *name)
{
	struct tensor key = { .name = name };

	return s->n ? bsearch(&key, s->v, s->n, sizeof *s->v, by_name) : NULL;
}

/* ---- writing ---- */

static size_t out_bytes(const struct tensor_out *t)
{
	size_t n = (size_t)dtype_size(t->type);

	for (int i = 0; i < t->n_dim; i++)
		n = size_mul(n, (size_t)t->dim[i]);
	return n;
}

static void put_header(struct buf *b, const struct tensor_out *v, int n)
{
	size_t at = 0;

	buf_putc(b, '{');
	for (int i = 0; i < n; i++) {
		size_t bytes = out_bytes(&v[i]);
		char shape[160];

		buf_puts(b, i ? ",\"" : "\"");
		buf_puts(b, v[i].name);
		buf_printf(b, "\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", dtype_name(v[i].type),
		           shape_text(shape, sizeof shape, v[i].dim, v[i].n_dim), at, at + bytes);
		at += bytes;
	}
	buf_putc(b, '}');
	while (b->n % 8) /* the data begins at a multiple of 8, as readers like it */
		buf_putc(b, ' ');
}

int safetensors_write(const char *path, const struct tensor_out *v, int n, struct err *err)
{
	struct buf head, tmp;
	uint8_t len[8];
	FILE *f;
	int bad, special = file_is_special(path); /* that is written where it is */

	buf_init(&head);
	buf_init(&tmp);
	put_header(&head, v, n);
	for (int i = 0; i < 8; i++)
		len[i] = (uint8_t)((uint64_t)head.n >> 8 * i);
	if (special)
		buf_puts(&tmp, path);
	else
		buf_printf(&tmp, "%s.%ld.tmp", path, (long)getpid());
	f = fopen(tmp.p, "wb");
	bad = !f || fwrite(len, 1, 8, f) != 8 || fwrite(head.p, 1, head.n, f) != head.n;
	for (int i = 0; i < n && !bad; i++) {
		size_t bytes = out_bytes(&v[i]);

		bad = bytes && fwrite(v[i].data, 1, bytes, f) != bytes;
	}
	if (f && fclose(f))
		bad = 1;
	if (!bad && !special && rename(tmp.p, path))
		bad = 1;
	if (bad) {
		err_set(err, E_IO, "%s: %s", path, strerror(errno));
		if (f && !special)
			unlink(tmp.p);
	}
	buf_fini(&head);
	buf_fini(&tmp);
	return bad ? E_IO : 0;
}
