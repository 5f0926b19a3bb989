/* quantised.c - the quantization section of config.json, and the matrices it speaks of.
 *
 * A module is coded when its entry in the config says so, or when it has no
 * entry and a tensor PATH.scales exists.  Whatever the config says is checked
 * against the shapes: words hold 32 / bits inputs, scales cover a group. */
#include "store/quantised.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/gguf/gguf.h"
#include "store/basis_file.h"
#include "store/foreign.h"

/* Names in the config are those after mlx's own renaming, or before it. */
static const char *normalised(const char *path)
{
	for (;;) {
		if (!strncmp(path, "model.", 6))
			path += 6;
		else if (!strncmp(path, "language_model.", 15))
			path += 15;
		else
			return path;
	}
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct quant_entry *)a)->path, ((const struct quant_entry *)b)->path);
}

/* ---- config ---- */

/* mlx-lm's defaults, by mode. */
static const struct quant_entry modes[] = {
	{ NULL, "affine", 4, 64, false },
	{ NULL, "mxfp4", 4, 32, false },
	{ NULL, "mxfp8", 8, 32, false },
	{ NULL, "nvfp4", 4, 16, false },
};

static int read_entry(const struct store *st, const char *where, const struct json *j, struct quant_entry *out,
                      struct err *err)
{
	const char *mode;
	int64_t bits, group;
	size_t m;
	int code;

	if ((code = json_get_str(j, "mode", "affine", &mode, err)))
		return err_prefix(err, "%s: %s", st->config_path, where);
	for (m = 0; m < sizeof modes / sizeof *modes && strcmp(modes[m].mode, mode);)
		m++;
	if (m == sizeof modes / sizeof *modes)
		return err_set(err, E_UNSUPPORTED, "%s: %s: mode \"%.40s\" is none of affine, mxfp4, mxfp8, nvfp4",
		               st->config_path, where, mode);
	if ((code = json_get_int(j, "bits", modes[m].bits, &bits, err)) ||
	    (code = json_get_int(j, "group_size", modes[m].group, &group, err)))
		return err_prefix(err, "%s: %s", st->config_path, where);
	if (bits < 1 || bits > 16 || group < 1 || group > 65536)
		return err_set(err, E_FORMAT, "%s: %s: %" PRId64 " bits in groups of %" PRId64 " are not possible",
		               st->config_path, where, bits, group);
	out->mode = modes[m].mode;
	out->bits = (int)bits;
	out->group = (int)group;
	return 0;
}

/* The first section that is there, or NULL. */
static int find_section(const struct store *st, const struct json **out, struct err *err)
{
	static const char *const key[] = { "quantization", "quantization_config" };
	const struct json *where[] = { st->config, st->text };

	*out = NULL;
	for (int k = 0; k < 2; k++)
		for (int i = 0; i < 2; i++) {
			const struct json *j = json_get(where[i], key[k]);

			if (!j || json_kind(j) == JSON_NULL)
				continue;
			if (json_kind(j) != JSON_OBJECT)
				return err_set(err, E_FORMAT, "%s: %s: is %s, not an object", st->config_path, key[k],
				               json_kind_name(json_kind(j)));
			*out = j;
			return 0;
		}
	return 0;
}

int coded_read_config(struct store *st, struct err *err)
{
	enum { SIDE = 128 }; /* of blocks that share an FP8 scale, where nothing says another */
	const char *key, *method;
	const struct json *section, *value;
	struct json_cursor c;
	int code = find_section(st, &section, err);

	st->foreign.block[0] = st->foreign.block[1] = SIDE;
	if (code)
		return code;
	method = json_str(json_get(section, "quant_method"), NULL);
	if (!section)
		return 0;
	if (method && !strcmp(method, "mxfp4"))
		return 0; /* gpt-oss: blocks and scales say themselves that they are */
	if (method && foreign_read_config(st, section, method, err, &code))
		return code;
	if (method && strcmp(method, "mlx"))
		return err_set(err, E_UNSUPPORTED,
		               "%s: quantization method \"%.40s\" is not read by this version; it reads "
		               "plain (BF16, F16, F32), MLX (affine, mxfp4, mxfp8, nvfp4), fp8, awq, gptq and "
		               "compressed-tensors checkpoints",
		               st->config_path, method);
	if ((code = read_entry(st, "quantization", section, &st->dflt, err)))
		return code;
	st->coded = true;
	st->entry = arena_zalloc(&st->arena, size_mul(json_len(section) + 1, sizeof *st->entry));
	for (c = json_first(section); json_next(&c, &key, &value);) {
		struct quant_entry *e = &st->entry[st->n_entry];
		bool on;

		if (json_kind(value) == JSON_OBJECT) {
			if ((code = read_entry(st, key, value, e, err)))
				return code;
		} else if (!json_to_bool(value, &on) && !on) {
			e->plain = true;
		} else {
			continue; /* bits, group_size, mode, or true: the default */
		}
		e->path = arena_strndup(&st->arena, normalised(key), strlen(normalised(key)));
		st->n_entry++;
	}
	if (st->n_entry)
		qsort(st->entry, st->n_entry, sizeof *st->entry, by_path);
	return 0;
}

const struct quant_entry *coded_entry(const struct store *st, const char *path)
{
	struct quant_entry key = { .path = normalised(path) }, *e = NULL;

	if (st->n_entry)
		e = bsearch(&key, st->entry, st->n_entry, sizeof *st->entry, by_path);
	return e ? e : st->coded ? &st->dflt : NULL;
}

/* ---- matrices ---- */

static int shape_is(const struct tensor *t, const struct wanted *m, int64_t last)
{
	int64_t dim[3] = { m->n, m->rows, last };
	int skip = m->n == 0;

	if (m->flat)
		return t->n_dim > 0 && t->dim[0] == m->rows && t->count == (int64_t)m->rows * last;
	if (t->n_dim != 3 - skip)
		return 0;
	for (int i = 0; i < t->n_dim; i++)
		if (t->dim[i] != dim[i + skip])
			return 0;
	return 1;
}

static int shape_error(const struct store *st, const struct tensor *t, const struct wanted *m, int64_t last,
                       struct err *err)
{
	int64_t dim[3] = { m->n, m->rows, last };

	return store_shape_error(st, t, m->n ? dim : dim + 1, m->n ? 3 : 2, err);
}

static int all_rows(const struct tensor *t, const struct wanted *m, int *rows, struct err *err)
{
	if (__builtin_mul_overflow(m->n ? m->n : 1, m->rows, rows))
		return err_set(err, E_LIMIT, "%s: tensor %s: %d x %d rows: at most %d are read", t->file, t->name, m->n,
		               m->rows, INT_MAX);
	return 0;
}

/* Parts of a stack begin where blocks do, or there are none. */
static void keep_for_blocks(struct store *st, struct tensor *t, const struct wanted *m, struct weight *w)
{
	struct weight *whole;

	if (!packed_fit(w) || m->rows % BLOCK_OUT)
		return;
	w->packed = &t->packed;
	if (t->whole)
		return;
	whole = arena_alloc(&st->arena, sizeof *whole);
	*whole = *w;
	t->whole = whole;
}

static int plain(struct store *st, struct tensor *t, const struct wanted *m, struct weight *out, struct err *err)
{
	int rows, code;

	if (!t->format && t->type != DT_F32 && t->type != DT_F16 && t->type != DT_BF16)
		return err_set(err, E_FORMAT, "%s: tensor %s: is %s, a matrix is read as BF16, F16 or F32", t->file,
		               t->name, tensor_type_name(t));
	if (!shape_is(t, m, m->cols))
		return shape_error(st, t, m, m->cols, err);
	if ((code = all_rows(t, m, &rows, err)) || (code = store_data(st, t, err)))
		return code;
	if (t->format && !gguf_type_named(t->format))
		code = err_set(err, E_UNSUPPORTED, "%s: tensor %s: number format %s is not known", t->file, t->name,
		               t->format);
	else if (t->format)
		code = weight_gguf(out, t->name, gguf_type_named(t->format), rows, m->cols, t->data, t->bytes, err);
	else
		code = weight_plain(out, t->name, t->type, rows, m->cols, t->data, t->bytes, err);
	if (code)
		return code;
	t->used++;
	t->fmt = out->fmt;
	t->group = out->group;
	t->stored = t->bytes;
	keep_for_blocks(st, t, m, out);
	return 0;
}

/* Guesses bits and group from the shapes, where the config does not name them. */
static int guess(const struct tensor *w, const struct tensor *s, int cols, struct quant_entry *e, struct err *err)
{
	int64_t words = w->n_dim ? w->dim[w->n_dim - 1] : 0, groups = s->n_dim ? s->dim[s->n_dim - 1] : 0;

	if (!words || !groups || words * 32 % cols || cols % groups)
		return err_set(err, E_FORMAT,
		               "%s: tensor %s: %" PRId64 " words and %" PRId64 " scales per row for %d "
		               "inputs are of no known coding",
		               w->file, w->name, words, groups, cols);
	e->bits = (int)(words * 32 / cols);
	e->group = (int)(cols / groups);
	e->mode = s->type != DT_U8 ? "affine" : e->bits == 8 ? "mxfp8" : e->group == 16 ? "nvfp4" : "mxfp4";
	return 0;
}

static int check_coded(const struct store *st, const struct quant_entry *e, const struct tensor *w,
                       const struct tensor *s, const struct tensor *b, const struct wanted *m, struct err *err)
{
	int64_t words = (int64_t)m->cols * e->bits / 32, groups = m->cols / e->group;
	bool affine = !strcmp(e->mode, "affine");
	char shape[160];

	if (w->type != DT_U32)
		return err_set(err, E_FORMAT, "%s: tensor %s: is %s, coded words are U32", w->file, w->name,
		               tensor_type_name(w));
	if (m->cols % e->group || (int64_t)m->cols * e->bits % 32)
		return err_set(err, E_FORMAT, "%s: tensor %s: %d inputs are not whole groups of %d at %d bits", w->file,
		               w->name, m->cols, e->group, e->bits);
	if (!shape_is(w, m, words)) {
		int64_t have = w->n_dim ? w->dim[w->n_dim - 1] : 0;

		if (shape_is(w, m, have) && have * 32 % m->cols == 0)
			return err_set(err, E_FORMAT,
			               "%s: tensor %s: %s says %d bits, its shape %s for %d inputs holds %" PRId64,
			               w->file, w->name, st->config_path, e->bits,
			               shape_text(shape, sizeof shape, w->dim, w->n_dim), m->cols, have * 32 / m->cols);
		return shape_error(st, w, m, words, err);
	}
	if (!shape_is(s, m, groups)) {
		int64_t have = s->n_dim ? s->dim[s->n_dim - 1] : 0;

		if (have && shape_is(s, m, have) && m->cols % have == 0)
			return err_set(err, E_FORMAT,
			               "%s: tensor %s: %s says groups of %d, its shape %s for %d inputs means "
			               "%" PRId64,
			               s->file, s->name, st->config_path, e->group,
			               shape_text(shape, sizeof shape, s->dim, s->n_dim), m->cols, m->cols / have);
		return shape_error(st, s, m, groups, err);
	}
	if (affine ? s->type != DT_BF16 && s->type != DT_F16 && s->type != DT_F32 : s->type != DT_U8)
		return err_set(err, E_FORMAT, "%s: tensor %s: is %s, scales of %s are %s", s->file, s->name,
		               tensor_type_name(s), e->mode, affine ? "BF16, F16 or F32" : "U8");
	if (affine && (!shape_is(b, m, groups) || b->type != s->type))
		return err_set(err, E_FORMAT, "%s: tensor %s: is %s %s, its scales are %s [.., %" PRId64 "]", b->file,
		               b->name, tensor_type_name(b), shape_text(shape, sizeof shape, b->dim, b->n_dim),
		               tensor_type_name(s), groups);
	return 0;
}

static int coded(struct store *st, const char *path, struct tensor *w, struct tensor *s, const struct quant_entry *said,
                 const struct wanted *m, struct weight *out, struct err *err)
{
	struct quant_entry e = said ? *said : (struct quant_entry){ 0 };
	struct tensor *b = NULL;
	struct buf name;
	int code = 0, rows;

	if (!said && (code = guess(w, s, m->cols, &e, err)))
		return code;
	if (!strcmp(e.mode, "affine")) {
		buf_init(&name);
		buf_printf(&name, "%s.biases", path);
		b = store_find(st, name.p);
		if (!b)
			code = store_missing(st, name.p, err);
		buf_fini(&name);
	}
	if (code || (code = check_coded(st, &e, w, s, b, m, err)) || (code = all_rows(w, m, &rows, err)))
		return code;
	if ((code = store_data(st, w, err)) || (code = store_data(st, s, err)) ||
	    (b && (code = store_data(st, b, err))))
		return code;
	code = weight_coded(out, w->name, e.mode, e.bits, e.group, rows, m->cols, w->data, w->bytes, s->data, s->bytes,
	                    b ? b->data : NULL, b ? b->bytes : 0, s->type, err);
	if (code)
		return code;
	w->used++;
	s->used++;
	if (b)
		b->used++;
	w->elements = (int64_t)rows * m->cols;
	s->elements = 0;
	if (b)
		b->elements = 0;
	w->fmt = out->fmt;
	w->group = out->group;
	w->stored = w->bytes + s->bytes + (b ? b->bytes : 0);
	keep_for_blocks(st, w, m, out);
	return 0;
}

/* Codes of mxfp4 and their scales, of shapes that were checked. */
static int mxfp4(struct store *st, struct tensor *w, struct tensor *s, const struct wanted *m, struct weight *out,
                 struct err *err)
{
	int rows, code;

	if ((code = all_rows(w, m, &rows, err)) || (code = store_data(st, w, err)) || (code = store_data(st, s, err)))
		return code;
	code = weight_coded(out, w->name, "mxfp4", 4, 32, rows, m->cols, w->data, w->bytes, s->data, s->bytes, NULL, 0,
	                    s->type, err);
	if (code)
		return code;
	w->used++;
	s->used++;
	w->elements = (int64_t)rows * m->cols;
	s->elements = 0;
	w->fmt = out->fmt;
	w->group = out->group;
	w->stored = w->bytes + s->bytes;
	keep_for_blocks(st, w, m, out);
	return 0;
}

static int whole_groups(const struct tensor *w, const struct wanted *m, struct err *err)
{
	return m->cols % 32 ? err_set(err, E_FORMAT, "%s: tensor %s: %d inputs are not whole groups of 32", w->file,
	                              w->name, m->cols) :
	                      0;
}

/* gpt-oss as Hugging Face has it: path_blocks [n][rows][cols / 32][16] and path_scales [n][rows][cols / 32], which are
 * mxfp4's codes and scales with the groups as a dimension of their own. */
static int mxfp4_blocks(struct store *st, struct tensor *w, struct tensor *s, const struct wanted *m,
                        struct weight *out, struct err *err)
{
	const int64_t codes[] = { m->n, m->rows, m->cols / 32, 16 };
	int skip = m->n == 0, code;

	if (w->type != DT_U8 || s->type != DT_U8)
		return err_set(err, E_FORMAT, "%s: tensors %s and %s: are %s and %s, mxfp4 is U8", w->file, w->name,
		               s->name, tensor_type_name(w), tensor_type_name(s));
	if ((code = whole_groups(w, m, err)))
		return code;
	if (w->n_dim != 4 - skip || memcmp(w->dim, codes + skip, (size_t)(4 - skip) * sizeof *codes))
		return store_shape_error(st, w, codes + skip, 4 - skip, err);
	if (s->n_dim != 3 - skip || memcmp(s->dim, codes + skip, (size_t)(3 - skip) * sizeof *codes))
		return store_shape_error(st, s, codes + skip, 3 - skip, err);
	return mxfp4(st, w, s, m, out, err);
}

/* DeepSeek V4's experts: path.weight [n][rows][cols / 2] and path.scale [n][rows][cols / 32], mxfp4's codes and scales. */
static int mxfp4_pairs(struct store *st, struct tensor *w, struct tensor *s, const struct wanted *m, struct weight *out,
                       struct err *err)
{
	int code = whole_groups(w, m, err);

	if (code)
		return code;
	if (!shape_is(w, m, m->cols / 2))
		return shape_error(st, w, m, m->cols / 2, err);
	if (!shape_is(s, m, m->cols / 32))
		return shape_error(st, s, m, m->cols / 32, err);
	return mxfp4(st, w, s, m, out, err);
}

/* The basis of a matrix that was read. */
static int in_basis(struct store *st, struct tensor *t, const struct wanted *m, bool foreign, struct weight *out,
                    struct err *err)
{
	if (!t->rotated)
		return 0;
	if (m->n || m->flat || foreign)
		return err_set(err, E_UNSUPPORTED, "%s: tensor %s: %s in a rotated basis is not read", t->file, t->name,
		               foreign ? "a matrix of another quantiser" : "a stack");
	return basis_of(st, t, m->cols, &out->basis, err);
}

static int matrix(struct store *st, const char *path, const struct wanted *m, struct weight *out, struct err *err)
{
	const struct quant_entry *e = coded_entry(st, path);
	struct tensor *w, *s;
	struct buf name;
	bool foreign;
	int code = foreign_matrix(st, path, m, out, &foreign, err);

	buf_init(&name);
	buf_printf(&name, "%s.weight", path);
	w = store_find(st, name.p);
	if (foreign)
		goto out;
	if (!w)
		w = store_find(st, path); /* a stack without the suffix */
	if (!w) {
		s = store_part(st, path, "_scales");
		w = s ? store_part(st, path, "_blocks") : NULL;
		code = w ? mxfp4_blocks(st, w, s, m, out, err) : store_missing(st, name.p, err);
		goto out;
	}
	buf_reset(&name);
	buf_printf(&name, "%s.scales", path);
	s = store_find(st, name.p);
	if (e && e->plain && s)
		code = err_set(err, E_FORMAT, "%s: tensor %s: there, although %s says that %s is not coded", s->file,
		               s->name, st->config_path, path);
	else if (e && e->path && !e->plain && !s)
		code = err_set(err, E_MISSING, "%s: tensor %s: missing, although %s says %d bits for %s", w->file,
		               name.p, st->config_path, e->bits, path);
	else if (s)
		code = coded(st, path, w, s, e, m, out, err);
	else if ((s = store_part(st, path, ".scale")) && foreign_is_mxfp4(w, s))
		code = mxfp4_pairs(st, w, s, m, out, err);
	else
		code = plain(st, w, m, out, err);
out:
	if (!code && w)
		code = in_basis(st, w, m, foreign, out, err);
	buf_fini(&name);
	return code;
}

int store_weight(struct store *st, const char *path, int rows, int cols, struct weight *out, struct err *err)
{
	struct wanted m = { 0, rows, cols };
	int code = matrix(st, path, &m, out, err);

	if (code)
		return code;
	if (!(st->n_matrix & (st->n_matrix + 1))) /* grows at 0, 1, 3, 7 ... */
		st->matrix = xrealloc(st->matrix, size_mul(2 * st->n_matrix + 1, sizeof *st->matrix));
	st->matrix[st->n_matrix++] = (struct store_matrix){ arena_strndup(&st->arena, path, strlen(path)), *out };
	return 0;
}

int store_flat(struct store *st, const char *path, int rows, int cols, struct weight *out, struct err *err)
{
	struct wanted m = { .rows = rows, .cols = cols, .flat = true };

	return matrix(st, path, &m, out, err);
}

int store_stack(struct store *st, const char *path, int n, int rows, int cols, struct weight *out, struct err *err)
{
	struct wanted m = { n, rows, cols };
	struct weight all;
	int code = matrix(st, path, &m, &all, err);

	for (int i = 0; !code && i < n; i++)
		out[i] = weight_rows(&all, i * rows, rows);
	return code;
}

/* Rows of n matrices of which the file has columns, side by side. */
static uint8_t *turned(struct store *st, const struct tensor *t, int n, int rows, int cols)
{
	size_t each = t->bytes / (size_t)t->count, at = 0;
	uint8_t *to = arena_alloc(&st->arena, t->bytes);

	for (int e = 0; e < n; e++)
		for (int r = 0; r < rows; r++)
			for (int c = 0; c < cols; c++, at += each)
				memcpy(to + at,
				       t->data + (((size_t)e * (size_t)cols + (size_t)c) * (size_t)rows + (size_t)r) *
				                         each,
				       each);
	return to;
}

int store_turned(struct store *st, const char *path, int n, int rows, int cols, struct weight *out, struct err *err)
{
	const int64_t want[] = { n, cols, rows };
	const struct wanted m = { n, rows, cols };
	struct tensor *t = store_find(st, path);
	struct weight *all;
	int code, n_rows;

	/* Coded stacks, and those that were turned when they were written anew, have rows. */
	if (!t || t->format || t->n_dim != 3 || (!t->made && memcmp(t->dim, want, sizeof want)))
		return store_stack(st, path, n, rows, cols, out, err);
	if ((code = all_rows(t, &m, &n_rows, err)) || (code = store_data(st, t, err)))
		return code;
	if (!t->made) {
		all = arena_alloc(&st->arena, sizeof *all);
		t->data = turned(st, t, n, rows, cols);
		code = weight_plain(all, t->name, t->type, n_rows, cols, t->data, t->bytes, err);
		if (code)
			return code;
		t->dim[1] = rows;
		t->dim[2] = cols;
		t->made = all;
		t->fmt = all->fmt;
		t->stored = t->bytes;
	}
	t->used++;
	for (int i = 0; i < n; i++)
		out[i] = weight_rows(t->made, i * rows, rows);
	return 0;
}

/* ---- counting ---- */

void coded_count_elements(struct store *st)
{
	struct buf path;

	foreign_count_elements(st);
	buf_init(&path);
	for (size_t i = 0; i < st->n; i++) {
		struct tensor *s = st->v[i], *w, *b;
		const struct quant_entry *e;

		if (!tensor_stem(&path, s->name, ".scales") || !(e = coded_entry(st, path.p)) || e->plain)
			continue;
		buf_puts(&path, ".weight");
		if (!(w = store_find(st, path.p)) || w->type != DT_U32 ||
		    __builtin_mul_overflow(w->count, (int64_t)32, &w->elements))
			continue;
		w->elements /= e->bits;
		s->elements = 0;
		path.n -= strlen(".weight");
		buf_puts(&path, ".biases");
		if ((b = store_find(st, path.p)))
			b->elements = 0;
	}
	buf_fini(&path);
}
