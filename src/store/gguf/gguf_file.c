/* gguf_file.c - see gguf_file.h. */
#include "store/gguf/gguf_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum {
	KEY_MAX = 1024, /* the format allows 65,535; the longest in use has some 60 */
	NAME_MAX_BYTES = 63,
	PAIR_MIN = 8 + 1 + 4 + 1, /* bytes of the shortest pair and the shortest tensor entry */
	INFO_MIN = 8 + 1 + 4 + 4 + 8,
	DEFAULT_ALIGNMENT = 32,
};
static const uint64_t ARRAY_MAX = 1 << 30;

static const uint8_t kind_bytes[GGUF_KINDS] = {
	[GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
	[GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};
static const char *const kind_name[GGUF_KINDS] = {
	"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64",
};

static uint64_t load_le(const uint8_t *p, int bytes)
{
	uint64_t v = 0;

	for (int i = bytes; i-- > 0;)
		v = v << 8 | p[i];
	return v;
}

/* ---- reading in order ---- */

struct reader {
	struct gguf *g;
	const uint8_t *p; /* the file */
	size_t at, n;
	struct err *err;
	int code;
};

static bool take_bytes(struct reader *r, size_t bytes, const char *what)
{
	if (r->code)
		return false;
	if (bytes > r->n - r->at)
		r->code = err_set(r->err, E_FORMAT,
		                  "%s: %s at byte %zu needs %zu bytes, the file has %zu left (truncated?)", r->g->path,
		                  what, r->at, bytes, r->n - r->at);
	return !r->code;
}

static uint64_t take_number(struct reader *r, int bytes, const char *what)
{
	uint64_t v;

	if (!take_bytes(r, (size_t)bytes, what))
		return 0;
	v = load_le(r->p + r->at, bytes);
	r->at += (size_t)bytes;
	return v;
}

static struct gguf_string take_string(struct reader *r, const char *what)
{
	uint64_t n = take_number(r, 8, what);
	struct gguf_string s = { "", 0 };

	if (r->code)
		return s;
	if (n > r->n - r->at) {
		r->code = err_set(r->err, E_FORMAT,
		                  "%s: %s at byte %zu: a length of %" PRIu64 " bytes, the file has %zu left",
		                  r->g->path, what, r->at - 8, n, r->n - r->at);
		return s;
	}
	s = (struct gguf_string){ (const char *)r->p + r->at, (size_t)n };
	r->at += (size_t)n;
	return s;
}

/* A name that messages can show: printable, of 1 to most bytes. */
static const char *take_name(struct reader *r, size_t most, const char *what)
{
	size_t begins = r->at;
	struct gguf_string s = take_string(r, what);

	if (r->code)
		return "";
	if (!s.n || s.n > most) {
		r->code = err_set(r->err, E_FORMAT, "%s: %s at byte %zu has %zu bytes; 1 to %zu are allowed",
		                  r->g->path, what, begins, s.n, most);
		return "";
	}
	for (size_t i = 0; i < s.n; i++)
		if ((unsigned char)s.p[i] < 0x20 || (unsigned char)s.p[i] >= 0x7f) {
			r->code = err_set(r->err, E_FORMAT, "%s: %s at byte %zu holds the byte 0x%02x", r->g->path,
			                  what, begins, (unsigned char)s.p[i]);
			return "";
		}
	return arena_strndup(&r->g->arena, s.p, s.n);
}

/* ---- metadata ---- */

static void skip_elements(struct reader *r, const struct gguf_value *v)
{
	char what[KEY_MAX + 32];

	snprintf(what, sizeof what, "key %s: its value", v->key);
	if (v->kind != GGUF_STRING) {
		if (v->n > (r->n - r->at) / kind_bytes[v->kind])
			take_bytes(r, v->n > SIZE_MAX / 8 ? SIZE_MAX : (size_t)v->n * kind_bytes[v->kind], what);
		else
			r->at += (size_t)v->n * kind_bytes[v->kind];
		return;
	}
	if (v->n > (r->n - r->at) / 8)
		take_bytes(r, v->n > SIZE_MAX / 8 ? SIZE_MAX : (size_t)v->n * 8, what);
	for (uint64_t i = 0; i < v->n && !r->code; i++)
		take_string(r, what);
}

static void read_pair(struct reader *r, struct gguf_value *v)
{
	int32_t kind;

	v->key = take_name(r, KEY_MAX, "a key");
	kind = (int32_t)take_number(r, 4, v->key);
	v->n = 1;
	if (!r->code && kind == GGUF_ARRAY) {
		v->array = true;
		kind = (int32_t)take_number(r, 4, v->key);
		v->n = take_number(r, 8, v->key);
		if (!r->code && kind == GGUF_ARRAY)
			r->code = err_set(r->err, E_UNSUPPORTED, "%s: key %s: an array of arrays", r->g->path, v->key);
		else if (!r->code && v->n > ARRAY_MAX)
			r->code = err_set(r->err, E_LIMIT,
			                  "%s: key %s: %" PRIu64 " elements, at most %" PRIu64 " are read", r->g->path,
			                  v->key, v->n, ARRAY_MAX);
	}
	if (!r->code && (kind < 0 || kind >= GGUF_KINDS))
		r->code = err_set(r->err, E_FORMAT, "%s: key %s: value type %" PRId32 " is none of 0 to %d", r->g->path,
		                  v->key, kind, GGUF_KINDS - 1);
	if (r->code)
		return;
	v->kind = (enum gguf_kind)kind;
	v->p = r->p + r->at;
	skip_elements(r, v);
}

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct gguf_value *)a)->key, ((const struct gguf_value *)b)->key);
}

static void read_pairs(struct reader *r, size_t n)
{
	struct gguf *g = r->g;

	g->kv = arena_zalloc(&g->arena, size_mul(n + 1, sizeof *g->kv));
	for (; g->n_kv < n && !r->code; g->n_kv++)
		read_pair(r, &g->kv[g->n_kv]);
	if (r->code)
		return;
	if (n)
		qsort(g->kv, n, sizeof *g->kv, by_key);
	for (size_t i = 0; i + 1 < n && !r->code; i++)
		if (!by_key(&g->kv[i], &g->kv[i + 1]))
			r->code = err_set(r->err, E_FORMAT, "%s: key %s: there twice", g->path, g->kv[i].key);
}

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
	struct gguf_value k = { .key = key };

	return g->n_kv ? bsearch(&k, g->kv, g->n_kv, sizeof k, by_key) : NULL;
}

/* ---- tensors ---- */

static void read_dims(struct reader *r, struct gguf_info *t)
{
	uint32_t n = (uint32_t)take_number(r, 4, t->name);

	if (!r->code && n > GGUF_DIMS)
		r->code = err_set(r->err, E_FORMAT, "%s: tensor %s: %" PRIu32 " dimensions, at most %d are possible",
		                  r->g->path, t->name, n, GGUF_DIMS);
	if (r->code)
		return;
	t->n_dim = (int)n;
	t->count = 1;
	for (int i = 0; i < GGUF_DIMS; i++)
		t->ne[i] = 1;
	for (int i = 0; i < t->n_dim && !r->code; i++) {
		t->ne[i] = (int64_t)take_number(r, 8, t->name);
		if (!r->code && t->ne[i] < 1)
			r->code = err_set(r->err, E_FORMAT, "%s: tensor %s: dimension %d is %" PRId64, r->g->path,
			                  t->name, i, t->ne[i]);
		else if (!r->code && __builtin_mul_overflow(t->count, t->ne[i], &t->count))
			r->code = err_set(r->err, E_LIMIT, "%s: tensor %s: the product of its dimensions exceeds 2^63",
			                  r->g->path, t->name);
	}
}

static void read_type(struct reader *r, struct gguf_info *t)
{
	int32_t id = (int32_t)take_number(r, 4, t->name);
	const char *why;
	int64_t bytes;

	if (r->code)
		return;
	t->type = gguf_type(id, &why);
	if (!t->type)
		r->code = err_set(r->err, E_UNSUPPORTED, "%s: tensor %s: type %" PRId32 " is %s", r->g->path, t->name,
		                  id, why);
	else if (t->ne[0] % t->type->block)
		r->code = err_set(r->err, E_FORMAT,
		                  "%s: tensor %s: rows of %" PRId64 " elements are not whole blocks of %d, as %s "
		                  "has them",
		                  r->g->path, t->name, t->ne[0], t->type->block, t->type->name);
	else if (__builtin_mul_overflow(t->count / t->type->block, (int64_t)t->type->block_bytes, &bytes))
		r->code = err_set(r->err, E_LIMIT,
		                  "%s: tensor %s: %" PRId64 " elements of %s take more than 2^63 bytes", r->g->path,
		                  t->name, t->count, t->type->name);
	else
		t->bytes = (size_t)bytes;
}

/* The offset stands in for the pointer until the data section's place is known. */
struct placed {
	struct gguf_info *t;
	uint64_t offset;
};

static void read_info(struct reader *r, struct gguf_info *t, struct placed *at)
{
	t->name = take_name(r, NAME_MAX_BYTES, "a tensor's name");
	read_dims(r, t);
	read_type(r, t);
	*at = (struct placed){ t, take_number(r, 8, t->name) };
}

static int by_offset(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;

	return x->offset != y->offset ? (x->offset > y->offset) - (x->offset < y->offset) :
	                                (x->t->bytes > y->t->bytes) - (x->t->bytes < y->t->bytes);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct gguf_info *)a)->name, ((const struct gguf_info *)b)->name);
}

/* ---- type 42 of two kinds ---- */

enum { Q2_0 = 42, PQ2_0 = 142 };

static int64_t bytes_of(const struct gguf_info *t, const struct gguf_type *type)
{
	return t->ne[0] % type->block ? -1 : t->count / type->block * type->block_bytes;
}

/* Is the i-th tensor followed by the next, or by the end of the file, as one of that type would be? */
static bool fits(const struct placed *v, size_t n, size_t i, const struct gguf_type *type, size_t alignment,
                 size_t room)
{
	int64_t bytes = bytes_of(v[i].t, type);
	uint64_t next = i + 1 < n ? v[i + 1].offset : room, has = next - v[i].offset;
	uint64_t padded = ((uint64_t)bytes + alignment - 1) / alignment * alignment;

	return bytes >= 0 && next >= v[i].offset && (has == padded || (i + 1 == n && has == (uint64_t)bytes));
}

/* Files from before Q2_0 had blocks of 64 have the same id for blocks of 128, which are PQ2_0 today; the distances between
 * tensors tell. */
static void tell_old(struct reader *r, struct placed *v, size_t n, size_t alignment, size_t room)
{
	const char *why;
	const struct gguf_type *now = gguf_type(Q2_0, &why), *old = gguf_type(PQ2_0, &why);
	bool all_now = true, all_old = true;

	for (size_t i = 0; i < n; i++)
		if (v[i].t->type == now) {
			all_now &= fits(v, n, i, now, alignment, room);
			all_old &= fits(v, n, i, old, alignment, room);
		}
	if (all_now || !all_old)
		return;
	log_info("%s: type 42 of blocks of 128, as older files have it: read as PQ2_0", r->g->path);
	for (size_t i = 0; i < n; i++)
		if (v[i].t->type == now) {
			v[i].t->type = old;
			v[i].t->bytes = (size_t)bytes_of(v[i].t, old);
		}
}

/* Each tensor begins where the one before ends, rounded up to the alignment. */
static void place(struct reader *r, struct placed *v, size_t n, size_t alignment)
{
	size_t pad = (alignment - r->at % alignment) % alignment, room, end = 0;
	const uint8_t *data;

	if (!n || !take_bytes(r, pad, "the padding before the data"))
		return;
	data = r->p + r->at + pad;
	room = r->n - r->at - pad;
	qsort(v, n, sizeof *v, by_offset);
	tell_old(r, v, n, alignment, room);
	for (size_t i = 0; i < n; i++) {
		struct gguf_info *t = v[i].t;

		if (v[i].offset != end) {
			r->code = err_set(r->err, E_FORMAT,
			                  "%s: tensor %s: begins at byte %" PRIu64 " of the data, %zu is where %s "
			                  "(alignment %zu)",
			                  r->g->path, t->name, v[i].offset, end,
			                  i ? "the one before it ends" : "the data begins", alignment);
			return;
		}
		if (end > room || t->bytes > room - end) {
			r->code = err_set(r->err, E_FORMAT,
			                  "%s: tensor %s: %zu bytes from byte %zu of the data, the file has %zu "
			                  "(truncated?)",
			                  r->g->path, t->name, t->bytes, end, room);
			return;
		}
		t->data = data + end;
		end += t->bytes;
		r->g->tail_bytes = room - end;
		end += (alignment - end % alignment) % alignment;
	}
}

static void read_infos(struct reader *r, size_t n, size_t alignment)
{
	struct gguf *g = r->g;
	struct placed *at;

	g->info = arena_zalloc(&g->arena, size_mul(n + 1, sizeof *g->info));
	at = xmalloc(size_mul(n + 1, sizeof *at));
	for (; g->n_info < n && !r->code; g->n_info++)
		read_info(r, &g->info[g->n_info], &at[g->n_info]);
	if (!r->code)
		place(r, at, n, alignment);
	free(at);
	if (r->code)
		return;
	if (n)
		qsort(g->info, n, sizeof *g->info, by_name);
	for (size_t i = 0; i + 1 < n && !r->code; i++)
		if (!by_name(&g->info[i], &g->info[i + 1]))
			r->code = err_set(r->err, E_FORMAT, "%s: tensor %s: there twice", g->path, g->info[i].name);
}

const struct gguf_info *gguf_info(const struct gguf *g, const char *name)
{
	struct gguf_info k = { .name = name };

	return g->n_info ? bsearch(&k, g->info, g->n_info, sizeof k, by_name) : NULL;
}

/* ---- the file ---- */

static size_t alignment_of(struct reader *r)
{
	const struct gguf_value *v = gguf_find(r->g, "general.alignment");
	uint64_t a = DEFAULT_ALIGNMENT;

	if (!v || r->code)
		return DEFAULT_ALIGNMENT;
	if (v->kind != GGUF_U32 || v->array) {
		r->code = err_set(r->err, E_FORMAT, "%s: key general.alignment: is %s%s, must be u32", r->g->path,
		                  v->array ? "an array of " : "", kind_name[v->kind]);
		return DEFAULT_ALIGNMENT;
	}
	a = load_le(v->p, 4);
	if (!a || a & (a - 1))
		r->code = err_set(r->err, E_FORMAT, "%s: key general.alignment: %" PRIu64 " is not a power of two",
		                  r->g->path, a);
	return r->code ? DEFAULT_ALIGNMENT : (size_t)a;
}

static void read_version(struct reader *r)
{
	uint32_t version;

	if (r->n < 4 || memcmp(r->p, "GGUF", 4)) {
		r->code = err_set(r->err, E_FORMAT, "%s: does not begin with \"GGUF\"%s", r->g->path,
		                  r->n >= 4 && (!memcmp(r->p, "lmgg", 4) || !memcmp(r->p, "tjgg", 4)) ?
		                          ": an old GGML file; convert the model anew" :
		                          "");
		return;
	}
	r->at = 4;
	version = (uint32_t)take_number(r, 4, "the version");
	if (!r->code && version && !(version & 0xffff))
		r->code = err_set(r->err, E_UNSUPPORTED, "%s: a big-endian file; little-endian ones are read",
		                  r->g->path);
	else if (!r->code && version != 2 && version != 3)
		r->code = err_set(r->err, E_UNSUPPORTED, "%s: GGUF version %" PRIu32 "; 2 and 3 are read", r->g->path,
		                  version);
}

static size_t take_count(struct reader *r, size_t least, const char *what)
{
	int64_t n = (int64_t)take_number(r, 8, what);

	if (!r->code && (n < 0 || (uint64_t)n > (r->n - r->at) / least))
		r->code = err_set(r->err, E_FORMAT, "%s: %s is %" PRId64 ", the file has %zu bytes left", r->g->path,
		                  what, n, r->n - r->at);
	return r->code ? 0 : (size_t)n;
}

int gguf_open_bytes(struct gguf *g, const char *path, const void *p, size_t n, struct err *err)
{
	struct reader r = { .g = g, .p = p, .n = n, .err = err };
	size_t n_info, n_kv;

	*g = (struct gguf){ 0 };
	arena_init(&g->arena);
	g->path = arena_strndup(&g->arena, path, strlen(path));
	read_version(&r);
	n_info = take_count(&r, INFO_MIN, "the number of tensors");
	n_kv = take_count(&r, PAIR_MIN, "the number of keys");
	if (!r.code)
		read_pairs(&r, n_kv);
	if (!r.code) {
		size_t alignment = alignment_of(&r);

		if (!r.code)
			read_infos(&r, n_info, alignment);
	}
	if (r.code)
		gguf_close(g);
	return r.code;
}

int gguf_open(struct gguf *g, const char *path, struct err *err)
{
	struct file_map map;
	int code = file_map_open(&map, path, err);

	if (code)
		return code;
	code = gguf_open_bytes(g, path, map.p, map.n, err);
	if (code)
		file_map_close(&map);
	else
		g->map = map;
	return code;
}

void gguf_close(struct gguf *g)
{
	file_map_close(&g->map);
	arena_fini(&g->arena);
	*g = (struct gguf){ 0 };
}

bool gguf_is(const char *path)
{
	FILE *f = file_exists(path) ? fopen(path, "rb") : NULL; /* opening a pipe would wait for a writer */
	char magic[4] = { 0 };
	bool is = f && fread(magic, 1, 4, f) == 4 && !memcmp(magic, "GGUF", 4);

	if (f)
		fclose(f);
	return is;
}

/* ---- values ---- */

static const uint8_t *element(const struct gguf_value *v, uint64_t i)
{
	return v->p + (v->array ? i : 0) * kind_bytes[v->kind];
}

static int wrong_kind(const struct gguf *g, const struct gguf_value *v, const char *wanted, struct err *err)
{
	return err_set(err, E_FORMAT, "%s: key %s: is %s%s, %s is wanted", g->path, v->key,
	               v->array ? "an array of " : "", kind_name[v->kind], wanted);
}

static int check_index(const struct gguf *g, const struct gguf_value *v, uint64_t i, struct err *err)
{
	if (!v->array || i < v->n)
		return 0;
	return err_set(err, E_FORMAT, "%s: key %s: has %" PRIu64 " elements, number %" PRIu64 " is asked for", g->path,
	               v->key, v->n, i);
}

int gguf_int(const struct gguf *g, const struct gguf_value *v, uint64_t i, int64_t *out, struct err *err)
{
	uint64_t x;
	int bits, code = check_index(g, v, i, err);

	if (code)
		return code;
	if (v->kind == GGUF_F32 || v->kind == GGUF_F64 || v->kind == GGUF_STRING)
		return wrong_kind(g, v, "an integer", err);
	x = load_le(element(v, i), kind_bytes[v->kind]);
	bits = 8 * kind_bytes[v->kind];
	if (v->kind == GGUF_BOOL)
		x = x != 0;
	else if ((v->kind == GGUF_I8 || v->kind == GGUF_I16 || v->kind == GGUF_I32) && x >> (bits - 1))
		x |= ~UINT64_C(0) << bits;
	if (v->kind == GGUF_U64 && x > INT64_MAX)
		return err_set(err, E_LIMIT, "%s: key %s: %" PRIu64 " exceeds 2^63", g->path, v->key, x);
	*out = (int64_t)x;
	return 0;
}

int gguf_float(const struct gguf *g, const struct gguf_value *v, uint64_t i, double *out, struct err *err)
{
	int64_t whole;
	float f;
	int code = check_index(g, v, i, err);

	if (code)
		return code;
	if (v->kind == GGUF_F32) {
		memcpy(&f, element(v, i), sizeof f);
		*out = (double)f;
	} else if (v->kind == GGUF_F64) {
		memcpy(out, element(v, i), sizeof *out);
	} else if (v->kind == GGUF_STRING || v->kind == GGUF_BOOL) {
		return wrong_kind(g, v, "a number", err);
	} else if (!(code = gguf_int(g, v, i, &whole, err))) {
		*out = (double)whole;
	}
	return code;
}

int gguf_bool(const struct gguf *g, const struct gguf_value *v, uint64_t i, bool *out, struct err *err)
{
	int64_t x = 0;
	int code = gguf_int(g, v, i, &x, err);

	*out = x != 0;
	return code;
}

struct gguf_string gguf_next(const uint8_t **at)
{
	struct gguf_string s = { (const char *)*at + 8, (size_t)load_le(*at, 8) };

	*at = (const uint8_t *)s.p + s.n;
	return s;
}
