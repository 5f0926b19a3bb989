/* foreign.c - see foreign.h.  Layouts: the quantisers' own code; docs/formats.md has them in words. */
#include "store/foreign.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- config ---- */

static int bits_of(struct store *st, const struct json *j, const char *key, struct err *err)
{
	int64_t bits;
	int code = json_get_int(j, key, 4, &bits, err);

	if (code)
		return err_prefix(err, "%s: quantization_config", st->config_path);
	if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
		return err_set(err, E_UNSUPPORTED,
		               "%s: quantization_config.%s: %" PRId64 " bits are not read; 2, 3, 4 and 8 are",
		               st->config_path, key, bits);
	st->foreign.bits = (int)bits;
	return 0;
}

/* The first group's weights; all groups of one file have codes of one size, or shapes will disagree. */
static const struct json *compressed_weights(const struct json *section)
{
	const struct json *groups = json_get(section, "config_groups"), *value;
	struct json_cursor c = json_first(groups);
	const char *key;

	return json_next(&c, &key, &value) ? json_get(value, "weights") : NULL;
}

enum { BLOCK_SIDE_MAX = 1 << 20 };

/* Blocks that share a scale: [rows, inputs], or as compressed-tensors also writes them, "rowsxinputs". */
static bool is_block(const struct json *size, int64_t side[2])
{
	const char *text = json_str(size, NULL);
	int end = 0;

	if (text)
		return sscanf(text, "%9" SCNd64 "x%9" SCNd64 "%n", &side[0], &side[1], &end) == 2 && !text[end];
	return json_len(size) == 2 && !json_to_int(json_at(size, 0), &side[0]) &&
	       !json_to_int(json_at(size, 1), &side[1]);
}

/* null, or no such key: they stay as they are. */
static int read_block(struct store *st, const struct json *size, const char *key, struct err *err)
{
	int64_t side[2];

	if (!size || json_kind(size) == JSON_NULL)
		return 0;
	if (!is_block(size, side) || side[0] < 1 || side[0] > BLOCK_SIDE_MAX || side[1] < 1 || side[1] > BLOCK_SIDE_MAX)
		return err_set(err, E_FORMAT,
		               "%s: quantization_config.%s: is not two sizes of 1 to %d, of rows and of inputs",
		               st->config_path, key, BLOCK_SIDE_MAX);
	for (int i = 0; i < 2; i++)
		st->foreign.block[i] = (int)side[i];
	return 0;
}

bool foreign_read_config(struct store *st, const struct json *section, const char *method, struct err *err, int *code)
{
	const char *text;

	*code = 0;
	*code = read_block(st, json_get(section, "weight_block_size"), "weight_block_size", err);
	if (*code || !strcmp(method, "fp8"))
		return true;
	if (!strcmp(method, "compressed-tensors")) {
		const struct json *w = compressed_weights(section);

		*code = read_block(st, json_get(w, "block_structure"), "config_groups.weights.block_structure", err);
		if (!*code)
			*code = bits_of(st, w, "num_bits", err);
		return true;
	}
	if (strcmp(method, "awq") && strcmp(method, "gptq"))
		return false;
	st->foreign.awq = !strcmp(method, "awq");
	text = json_str(json_get(section, "checkpoint_format"), NULL);
	st->foreign.zeros_as_they_are = text && !strcmp(text, "gptq_v2");
	*code = bits_of(st, section, "bits", err);
	text = json_str(json_get(section, "version"), NULL);
	if (!*code && st->foreign.awq && text && strcmp(text, "gemm") && strcmp(text, "GEMM"))
		*code = err_set(err, E_UNSUPPORTED, "%s: quantization_config.version: \"%.40s\" is not read; gemm is",
		                st->config_path, text);
	if (!*code && st->foreign.awq && st->foreign.bits != 4)
		*code = err_set(err, E_UNSUPPORTED, "%s: quantization_config.bits: AWQ of %d bits is not read; 4 are",
		                st->config_path, st->foreign.bits);
	return true;
}

/* ---- parts ---- */

/* The part, which must be there, of that type and (rows 0: any) that shape. */
static int need(struct store *st, const char *path, const char *suffix, enum dtype type, int64_t rows, int64_t cols,
                struct tensor **out, struct err *err)
{
	const int64_t want[] = { rows, cols };
	struct tensor *t = *out = store_part(st, path, suffix);
	struct buf name;
	int code;

	if (!t) {
		buf_init(&name);
		buf_printf(&name, "%s%s", path, suffix);
		code = store_missing(st, name.p, err);
		buf_fini(&name);
		return code;
	}
	if (type != DT_COUNT && t->type != type)
		return err_set(err, E_FORMAT, "%s: tensor %s: is %s, it is read as %s", t->file, t->name,
		               tensor_type_name(t), dtype_name(type));
	if (rows && (t->n_dim != 2 || t->dim[0] != rows || t->dim[1] != cols))
		return store_shape_error(st, t, want, 2, err);
	return store_data(st, t, err);
}

static int need_scales(const struct tensor *s, struct err *err)
{
	if (s->type == DT_F16 || s->type == DT_BF16 || s->type == DT_F32 || s->type == DT_F8_E8M0)
		return 0;
	return err_set(err, E_FORMAT, "%s: tensor %s: is %s, scales are F16, BF16, F32 or F8_E8M0", s->file, s->name,
	               tensor_type_name(s));
}

static void read_with(struct tensor *t)
{
	if (t)
		t->ignored = "read with its matrix";
}

static float number(const struct tensor *t, int64_t i)
{
	float x;

	dtype_to_float(&x, t->data + (size_t)i * (size_t)dtype_size(t->type), t->type, 1);
	return x;
}

static uint32_t word(const struct tensor *t, int64_t i)
{
	uint32_t x;

	memcpy(&x, t->data + 4 * (size_t)i, 4);
	return x;
}

/* Code i of a stream of words that begins at word `first` and goes on every `step` words. */
static unsigned code_at(const struct tensor *t, int64_t first, int64_t step, int64_t i, int bits)
{
	int64_t at = i * bits / 32;
	int shift = (int)(i * bits % 32);
	uint64_t x = word(t, first + at * step);

	if (shift + bits > 32)
		x |= (uint64_t)word(t, first + (at + 1) * step) << 32;
	return (unsigned)(x >> shift) & ((1u << bits) - 1);
}

static void put_code(uint8_t *row, int64_t i, int bits, unsigned code)
{
	int64_t at = i * bits;
	unsigned x = code << at % 8;

	row[at / 8] |= (uint8_t)x;
	if (x > 255)
		row[at / 8 + 1] |= (uint8_t)(x >> 8);
}

/* ---- what is made ---- */

/* A matrix on its way: codes, scales and biases in one piece of memory, in the place of w's bytes. */
struct laid {
	uint8_t *codes; /* NULL: they stay where the file has them */
	float *scales, *biases;
	size_t code_bytes, scale_bytes;
	int rows, cols, group, bits;
};

static void lay(struct store *st, struct laid *y, bool codes, bool biases)
{
	y->scale_bytes = size_mul((size_t)y->rows, (size_t)(y->cols / y->group) * sizeof(float));
	y->code_bytes = size_mul((size_t)y->rows, (size_t)y->cols * (size_t)y->bits / 8);
	y->codes = codes ? arena_zalloc(&st->arena, y->code_bytes + (size_t)(biases ? 2 : 1) * y->scale_bytes + 64) :
	                   NULL;
	y->scales = codes ? (float *)(y->codes + (y->code_bytes + 63) / 64 * 64) :
	                    arena_zalloc(&st->arena, (size_t)(biases ? 2 : 1) * y->scale_bytes);
	y->biases = biases ? (float *)((uint8_t *)y->scales + y->scale_bytes) : NULL;
}

/* The weight, kept with w: w's own bytes are the codes, those of s the scales, unless both are in one piece. */
static int finish(struct store *st, struct laid *y, struct tensor *w, struct tensor *s, const char *mode,
                  struct weight *out, struct err *err)
{
	size_t stored = w->bytes + s->bytes, scales = (size_t)(y->biases ? 2 : 1) * y->scale_bytes;
	int code = weight_coded(out, w->name, mode, y->bits, y->group, y->rows, y->cols, y->codes ? y->codes : w->data,
	                        y->codes ? y->code_bytes : w->bytes, y->scales, y->scale_bytes, y->biases,
	                        y->biases ? y->scale_bytes : 0, DT_F32, err);
	struct weight *made;

	if (code)
		return code;
	if (y->codes) {
		w->data = y->codes;
		w->bytes = (size_t)((uint8_t *)y->scales - y->codes) + scales;
		read_with(s);
	} else {
		s->data = (const uint8_t *)y->scales;
		s->bytes = scales;
		s->used++;
	}
	w->used++;
	w->fmt = out->fmt;
	w->group = out->group;
	w->stored = stored;
	w->elements = (int64_t)y->rows * y->cols;
	s->elements = 0;
	made = arena_alloc(&st->arena, sizeof *made);
	*made = *out;
	w->made = made;
	return 0;
}

/* The group for scales of `most` inputs each: the largest size that kernels support and that divides both. */
static int group_within(int cols, int most)
{
	for (int g = 128; g >= 16; g /= 2)
		if (cols % g == 0 && most % g == 0)
			return g;
	return most % 16 == 0 && cols % most == 0 ? most : 0;
}

static int no_group(const struct tensor *w, int cols, int most, struct err *err)
{
	return err_set(err, E_UNSUPPORTED, "%s: tensor %s: %d inputs with scales for %d have no group of 16 to 128",
	               w->file, w->name, cols, most);
}

static bool ends(const char *name, const char *suffix)
{
	size_t n = strlen(name), m = strlen(suffix);

	return n > m && !strcmp(name + n - m, suffix);
}

/* ---- scales by block, by row, of all: FP8 and int8 ---- */

/* Where the scale of a row and an input is: at expert * each + row / high * wide + col / broad. */
struct grid {
	int64_t each, wide;
	int high, broad;
};

static int64_t over(int64_t n, int64_t by)
{
	return (n + by - 1) / by;
}

static int grid_of(const struct store *st, const struct tensor *s, const struct wanted *m, struct grid *g,
                   struct err *err)
{
	int64_t n = m->n ? m->n : 1, high = st->foreign.block[0], broad = st->foreign.block[1];
	const int64_t want[] = { n, over(m->rows, high), over(m->cols, broad) };
	int skip = m->n == 0;

	if (s->count == 1 || (m->n && s->count == n)) {
		*g = (struct grid){ .each = s->count > 1, .wide = 1, .high = m->rows, .broad = m->cols };
		return 0;
	}
	if (s->count == n * m->rows &&
	    (s->n_dim == 1 || s->dim[s->n_dim - 1] == 1 || m->rows == s->dim[s->n_dim - 1])) {
		*g = (struct grid){ .each = m->rows, .wide = 1, .high = 1, .broad = m->cols };
		return 0;
	}
	if (s->n_dim != 3 - skip || memcmp(s->dim, want + skip, (size_t)(3 - skip) * sizeof *want))
		return store_shape_error(st, s, want + skip, 3 - skip, err);
	*g = (struct grid){ .each = want[1] * want[2], .wide = want[2], .high = (int)high, .broad = (int)broad };
	return 0;
}

static float grid_scale(const struct tensor *s, const struct grid *g, int64_t expert, int64_t row, int64_t col)
{
	return number(s, expert * g->each + row / g->high * g->wide + col / g->broad);
}

static int check_matrix(const struct store *st, const struct tensor *w, const struct wanted *m, int *rows,
                        struct err *err)
{
	const int64_t want[] = { m->n, m->rows, m->cols };
	int skip = m->n == 0;

	if (w->n_dim != 3 - skip || memcmp(w->dim, want + skip, (size_t)(3 - skip) * sizeof *want))
		return store_shape_error(st, w, want + skip, 3 - skip, err);
	if (__builtin_mul_overflow(m->n ? m->n : 1, m->rows, rows))
		return err_set(err, E_LIMIT, "%s: tensor %s: %d x %d rows are too many", w->file, w->name, m->n,
		               m->rows);
	return 0;
}

/* E4M3 as it lies; of int8 the codes are made unsigned. */
static int bytes_with_scales(struct store *st, struct tensor *w, struct tensor *s, const struct wanted *m,
                             struct weight *out, struct err *err)
{
	bool ints = w->type == DT_I8;
	struct laid y = { .cols = m->cols, .bits = 8 };
	struct grid g = { 0 };
	int code;

	if ((code = check_matrix(st, w, m, &y.rows, err)) || (code = need_scales(s, err)) ||
	    (code = grid_of(st, s, m, &g, err)) || (code = store_data(st, w, err)) || (code = store_data(st, s, err)))
		return code;
	y.group = group_within(m->cols, g.broad);
	if (!y.group)
		return no_group(w, m->cols, g.broad, err);
	lay(st, &y, ints, ints);
	for (int64_t i = 0, k = 0; i < y.rows; i++)
		for (int64_t c = 0; c < m->cols; c += y.group, k++) {
			y.scales[k] = grid_scale(s, &g, i / m->rows, i % m->rows, c);
			if (ints)
				y.biases[k] = -128.0f * y.scales[k];
		}
	for (size_t i = 0; ints && i < y.code_bytes; i++)
		y.codes[i] = w->data[i] ^ 0x80;
	return finish(st, &y, w, s, ints ? "affine" : "fp8", out, err);
}

static struct tensor *scales_of(const struct store *st, const char *path)
{
	struct tensor *s = store_part(st, path, ".weight_scale_inv");

	s = s ? s : store_part(st, path, ".weight_scale");
	s = s ? s : store_part(st, path, "_scale_inv");
	return s ? s : store_part(st, path, ".scale");
}

int store_grid(struct store *st, const struct tensor *w, struct store_grid *out, struct err *err)
{
	struct wanted m = { .rows = (int)w->dim[0], .cols = (int)w->dim[1] };
	struct grid g = { 0 };
	struct tensor *s;
	struct buf path;
	int code, stem = (int)strlen(w->name) - (ends(w->name, ".weight") ? (int)strlen(".weight") : 0);

	*out = (struct store_grid){ .s = NULL };
	if (w->n_dim != 2 || w->dim[0] > INT_MAX || w->dim[1] > INT_MAX)
		return err_set(err, E_UNSUPPORTED, "%s: tensor %s: E4M3 of %d axes", w->file, w->name, w->n_dim);
	buf_init(&path);
	buf_printf(&path, "%.*s", stem, w->name);
	s = scales_of(st, path.p);
	buf_fini(&path);
	if (!s)
		return 0;
	if ((code = need_scales(s, err)) || (code = grid_of(st, s, &m, &g, err)) || (code = store_data(st, s, err)))
		return code;
	*out = (struct store_grid){ .s = s, .wide = g.wide, .high = g.high, .broad = g.broad };
	return 0;
}

/* ---- AWQ and GPTQ ---- */

/* Codes by input and output, and zeros by group and output, of a quantiser that packs words of eight nibbles along the
 * outputs in an order of its own (AWQ), or words of bits along the inputs (GPTQ). */
struct packing {
	const struct tensor *q, *z, *g_idx;
	int64_t rows, cols;
	int bits;
	bool awq;
	int more; /* added to zeros */
};

static unsigned nibble(const struct tensor *t, int64_t word_at, int64_t column)
{
	static const int at[] = { 0, 4, 1, 5, 2, 6, 3, 7 };

	return word(t, word_at + column / 8) >> 4 * at[column % 8] & 15;
}

static unsigned packing_code(const struct packing *p, int64_t row, int64_t col)
{
	return p->awq ? nibble(p->q, col * (p->rows / 8), row) : code_at(p->q, row, p->rows, col, p->bits);
}

static int packing_zero(const struct packing *p, int64_t row, int64_t group)
{
	if (p->awq)
		return (int)nibble(p->z, group * (p->rows / 8), row);
	return (int)code_at(p->z, group * (p->rows * p->bits / 32), 1, row, p->bits) + p->more;
}

/* Groups that do not follow each other: no format has them.  Values as floats, four bytes each. */
static int unordered(struct store *st, const struct packing *p, struct tensor *q, struct tensor *s, struct weight *out,
                     struct err *err)
{
	size_t bytes = size_mul((size_t)p->rows * (size_t)p->cols, sizeof(float));
	float *x = arena_alloc(&st->arena, bytes);
	struct weight *made;
	int code;

	for (int64_t i = 0; i < p->cols; i++) {
		int32_t g = (int32_t)word(p->g_idx, i);

		if (g < 0 || g >= s->dim[0])
			return err_set(err, E_FORMAT, "%s: tensor %s: entry %" PRId64 " is %" PRId32 " of %" PRId64,
			               p->g_idx->file, p->g_idx->name, i, g, s->dim[0]);
		for (int64_t o = 0; o < p->rows; o++)
			x[o * p->cols + i] = number(s, g * p->rows + o) *
			                     (float)((int)packing_code(p, o, i) - packing_zero(p, o, g));
	}
	code = weight_plain(out, q->name, DT_F32, (int)p->rows, (int)p->cols, x, bytes, err);
	if (code)
		return code;
	q->stored = q->bytes + s->bytes;
	q->data = (const uint8_t *)x;
	q->bytes = bytes;
	q->used++;
	q->fmt = out->fmt;
	q->elements = p->rows * p->cols;
	made = arena_alloc(&st->arena, sizeof *made);
	*made = *out;
	q->made = made;
	read_with(s);
	return 0;
}

static bool in_order(const struct packing *p, int group)
{
	for (int64_t i = 0; p->g_idx && i < p->cols; i++)
		if ((int64_t)word(p->g_idx, i) != i / group)
			return false;
	return true;
}

static int foreign_words(struct store *st, const char *path, struct tensor *q, const struct wanted *m,
                         struct weight *out, struct err *err)
{
	int bits = st->foreign.bits, code;
	struct packing p = { .q = q,
		             .rows = m->rows,
		             .cols = m->cols,
		             .bits = bits,
		             .awq = st->foreign.awq,
		             .more = !st->foreign.zeros_as_they_are };
	int64_t wide = p.awq ? m->rows / 8 : m->rows, high = p.awq ? m->cols : over((int64_t)m->cols * bits, 32);
	struct laid y = { .rows = m->rows, .cols = m->cols, .bits = bits };
	struct tensor *s, *z, *g = store_part(st, path, ".g_idx");

	if (m->n || m->rows * (int64_t)bits % 32 || (int64_t)m->cols * bits % 8)
		return err_set(err, E_UNSUPPORTED, "%s: tensor %s: %d rows of %d codes of %d bits are not whole words",
		               q->file, q->name, m->rows, m->cols, bits);
	if ((code = need(st, path, ".qweight", DT_I32, high, wide, &q, err)) ||
	    (code = need(st, path, ".scales", DT_COUNT, 0, 0, &s, err)) || (code = need_scales(s, err)))
		return code;
	if (s->n_dim != 2 || s->dim[1] != m->rows || !s->dim[0] || m->cols % s->dim[0])
		return store_shape_error(st, s, (const int64_t[]){ over(m->cols, 128), m->rows }, 2, err);
	if ((code = need(st, path, ".qzeros", DT_I32, s->dim[0], m->rows * (int64_t)bits / 32, &z, err)))
		return code;
	if (g && (code = need(st, path, ".g_idx", DT_I32, 0, 0, &g, err)))
		return code;
	if (g && g->count != m->cols)
		return store_shape_error(st, g, &(const int64_t){ m->cols }, 1, err);
	p.z = z;
	p.g_idx = g;
	read_with(z);
	read_with(g);
	y.group = (int)(m->cols / s->dim[0]);
	if (!in_order(&p, y.group))
		return unordered(st, &p, q, s, out, err);
	lay(st, &y, true, true);
	for (int64_t o = 0; o < m->rows; o++) {
		uint8_t *row = y.codes + (size_t)o * ((size_t)m->cols * (size_t)bits / 8);
		int64_t groups = s->dim[0];

		for (int64_t i = 0; i < m->cols; i++)
			put_code(row, i, bits, packing_code(&p, o, i));
		for (int64_t k = 0; k < groups; k++) {
			y.scales[o * groups + k] = number(s, k * m->rows + o);
			y.biases[o * groups + k] = -(float)packing_zero(&p, o, k) * y.scales[o * groups + k];
		}
	}
	return finish(st, &y, q, s, "affine", out, err);
}

/* ---- compressed-tensors ---- */

/* Words along the inputs, as affine codes lie; zeros, where there are any, along the outputs. */
static int compressed(struct store *st, const char *path, struct tensor *q, const struct wanted *m, struct weight *out,
                      struct err *err)
{
	int bits = st->foreign.bits, code;
	struct laid y = { .rows = m->rows, .cols = m->cols, .bits = bits };
	struct tensor *s, *z = store_part(st, path, ".weight_zero_point"), *g = store_part(st, path, ".weight_g_idx");
	int64_t groups;

	if (m->n || (bits != 4 && bits != 8) || (int64_t)m->cols * bits % 32)
		return err_set(err, E_UNSUPPORTED, "%s: tensor %s: %d codes of %d bits are not whole words of 4 or 8",
		               q->file, q->name, m->cols, bits);
	if ((code = need(st, path, ".weight_packed", DT_I32, m->rows, (int64_t)m->cols * bits / 32, &q, err)) ||
	    (code = need(st, path, ".weight_scale", DT_COUNT, 0, 0, &s, err)) || (code = need_scales(s, err)))
		return code;
	groups = s->count / m->rows;
	if (s->n_dim != 2 || s->dim[0] != m->rows || !groups || m->cols % groups)
		return store_shape_error(st, s, (const int64_t[]){ m->rows, over(m->cols, 128) }, 2, err);
	if (g)
		return err_set(err, E_UNSUPPORTED, "%s: tensor %s: groups out of order are not read", g->file, g->name);
	if (z &&
	    (code = need(st, path, ".weight_zero_point", DT_I32, over((int64_t)m->rows * bits, 32), groups, &z, err)))
		return code;
	y.group = group_within(m->cols, (int)(m->cols / groups));
	if (!y.group)
		return no_group(q, m->cols, (int)(m->cols / groups), err);
	lay(st, &y, false, true);
	for (int64_t o = 0, k = 0; o < m->rows; o++)
		for (int64_t i = 0; i < m->cols; i += y.group, k++) {
			int64_t at = i / (m->cols / groups);
			int zero = z ? (int)code_at(z, at, groups, o, bits) : 1 << (bits - 1);

			y.scales[k] = number(s, o * groups + at);
			y.biases[k] = -(float)zero * y.scales[k];
		}
	read_with(z);
	read_with(store_part(st, path, ".weight_shape"));
	return finish(st, &y, q, s, "affine", out, err);
}

/* ---- which ---- */

bool foreign_is_mxfp4(const struct tensor *w, const struct tensor *s)
{
	return w->type == DT_I8 && !w->format && s->type == DT_F8_E8M0;
}

bool foreign_has(const struct store *st, const char *path)
{
	return store_part(st, path, ".qweight") || store_part(st, path, ".weight_packed");
}

static int choose(struct store *st, const char *path, const struct wanted *m, struct weight *out, bool *is,
                  struct err *err)
{
	struct tensor *w = store_part(st, path, ".weight"), *s;

	*is = true;
	if (!w)
		w = store_find(st, path);
	if (w && w->made) {
		w->used++;
		*out = *w->made;
		return 0;
	}
	if (w && !w->format && (w->type == DT_F8_E4M3 || w->type == DT_I8)) {
		s = scales_of(st, path);
		if (s && !foreign_is_mxfp4(w, s))
			return bytes_with_scales(st, w, s, m, out, err);
	}
	if (!w && (w = store_part(st, path, ".qweight")) && st->foreign.bits)
		return w->made ? (*out = *w->made, 0) : foreign_words(st, path, w, m, out, err);
	if (!w && (w = store_part(st, path, ".weight_packed")) && w->type == DT_I32 && st->foreign.bits)
		return w->made ? (*out = *w->made, 0) : compressed(st, path, w, m, out, err);
	*is = false;
	return 0;
}

int foreign_matrix(struct store *st, const char *path, const struct wanted *m, struct weight *out, bool *is,
                   struct err *err)
{
	int code = choose(st, path, m, out, is, err);

	if (*is && !code && out->rows != (m->n ? m->n : 1) * m->rows)
		return err_set(err, E_FORMAT, "%s: %s: has %d rows, %d are asked for", st->dir, path, out->rows,
		               (m->n ? m->n : 1) * m->rows);
	return code;
}

/* ---- counting ---- */

/* path.scale is counted with path.weight, if it has that one's scales. */
static void count_with_scale(struct store *st, struct tensor *s, struct buf *path)
{
	struct tensor *w;

	if (!tensor_stem(path, s->name, ".scale"))
		return;
	w = store_part(st, path->p, ".weight");
	if (!w || w->format || (w->type != DT_F8_E4M3 && w->type != DT_I8))
		return;
	s->elements = 0;
	if (foreign_is_mxfp4(w, s) && w->count < INT64_MAX / 2)
		w->elements = 2 * w->count;
}

void foreign_count_elements(struct store *st)
{
	static const char *const beside[] = { ".weight_scale_inv", ".weight_scale",     ".qzeros", ".g_idx",
		                              ".weight_shape",     ".weight_zero_point" };
	static const char *const of_activations[] = { ".input_scale", ".input_zero_point", ".k_scale", ".v_scale",
		                                      ".output_scale" };
	struct buf path;

	buf_init(&path);
	for (size_t i = 0; i < st->n; i++) {
		struct tensor *t = st->v[i];
		bool words = ends(t->name, ".qweight") || ends(t->name, ".weight_packed");

		for (size_t k = 0; k < sizeof beside / sizeof *beside; k++)
			if (ends(t->name, beside[k]))
				t->elements = 0;
		for (size_t k = 0; k < sizeof of_activations / sizeof *of_activations; k++)
			if (ends(t->name, of_activations[k])) {
				t->elements = 0;
				t->ignored = "scale of activations: they are scaled token by token";
			}
		if (ends(t->name, ".scales") && st->foreign.bits)
			t->elements = 0;
		if (words && t->type == DT_I32 && st->foreign.bits && t->count < INT64_MAX / 32)
			t->elements = t->count * 32 / st->foreign.bits;
		count_with_scale(st, t, &path);
	}
	buf_fini(&path);
}
