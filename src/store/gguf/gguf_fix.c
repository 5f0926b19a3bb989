/* gguf_fix.c - what converters did to weights, undone.
 *
 * Rows are moved as they are written, so a quantised tensor keeps its bits; only
 * small vectors are computed anew, in float32.  The tensors in question:
 *
 *   llama q, k       within a head, rows 2 j, 2 j + 1 go back to j, d / 2 + j
 *   fused q k v      three runs of rows
 *   vectors (RWKV)   six in one tensor
 *   b, a (next)      per key head r rows of b, r of a: gathered
 *   A                -exp(A_log), or exp(A_log): its logarithm again
 *   norms (Gemma)    1 + w: minus 1 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "store/gguf/gguf_conf.h"

static int wrong(const struct gguf_model *m, const struct gguf_tensor *t, struct err *err, const char *what, int64_t a,
                 int64_t b)
{
	return err_set(err, E_FORMAT, "%s: tensor %s: %" PRId64 " %s %" PRId64, m->part[0].path, t->from->name, a, what,
	               b);
}

static int64_t rows_of(const struct gguf_tensor *t)
{
	return t->t.n_dim == 1 ? t->t.count : t->t.dim[t->t.n_dim - 2];
}
/* Bytes of one row; of a vector, of one element. */
static size_t row_bytes(const struct gguf_tensor *t)
{
	return t->t.bytes / (size_t)(t->t.n_dim == 1 ? t->t.count : t->t.count / t->t.dim[t->t.n_dim - 1]);
}

static int64_t head_dim(struct gguf_conf *c)
{
	int64_t heads = gguf_conf_int(c, "attention.head_count", 1), width = gguf_conf_int(c, "embedding_length", 0);

	return gguf_conf_int(c, "attention.key_length", heads > 0 ? width / heads : 0);
}

/* ---- rows in pairs ---- */

static int permuted_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	struct gguf_conf c = { .m = m, .err = err };
	int64_t d = head_dim(&c), rows = rows_of(t);

	if (c.code)
		return c.code;
	if (t->t.n_dim < 1 || t->t.n_dim > 2 || d < 2 || d % 2 || rows % d)
		return wrong(m, t, err, "rows are not whole heads of", rows, d);
	t->t.data = NULL;
	return 0;
}

static void permuted_fill(const struct gguf_model *m, const struct gguf_tensor *t, uint8_t *to)
{
	struct gguf_conf c = { .m = m };
	int64_t d = head_dim(&c), rows = rows_of(t);
	size_t n = row_bytes(t);

	for (int64_t head = 0; head < rows; head += d)
		for (int64_t j = 0; j < d / 2; j++)
			for (int64_t s = 0; s < 2; s++)
				memcpy(to + (size_t)(head + s * d / 2 + j) * n,
				       t->from->data + (size_t)(head + 2 * j + s) * n, n);
}

const struct gguf_fix gguf_permuted = { permuted_shape, permuted_fill };

/* ---- tokens of the model ---- */

/* Numbers of tokens, of which Hugging Face keeps how far they are beyond their place in the list. */
static int ahead_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	if (strcmp(t->from->type->name, "I64") || t->t.n_dim != 1)
		return err_set(err, E_FORMAT, "%s: tensor %s: is %s of %d axes, I64 of 1 is wanted", m->part[0].path,
		               t->from->name, t->from->type->name, t->t.n_dim);
	t->t.data = NULL;
	return 0;
}

static void ahead_fill(const struct gguf_model *m, const struct gguf_tensor *t, uint8_t *to)
{
	for (int64_t i = 0; i < t->t.count; i++) {
		uint64_t token;

		memcpy(&token, t->from->data + 8 * i, sizeof token);
		token -= (uint64_t)i;
		memcpy(to + 8 * i, &token, sizeof token);
	}
}

const struct gguf_fix gguf_ahead = { ahead_shape, ahead_fill };

/* ---- runs of rows ---- */

static void take_rows(struct gguf_tensor *t, int64_t first, int64_t n)
{
	size_t bytes = row_bytes(t);

	t->t.elements = t->t.count = t->t.count / rows_of(t) * n;
	t->t.dim[t->t.n_dim == 1 ? 0 : t->t.n_dim - 2] = n;
	t->t.data = t->from->data + (size_t)first * bytes;
	t->t.bytes = (size_t)n * bytes;
}

static int third_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	struct gguf_conf c = { .m = m, .err = err };
	int64_t d = head_dim(&c), heads = gguf_conf_int(&c, "attention.head_count", 1), rows = rows_of(t);
	int64_t heads_kv = gguf_conf_int(&c, "attention.head_count_kv", heads), q, kv;

	if (c.code)
		return c.code;
	if (t->t.n_dim < 1 || t->t.n_dim > 2 || d < 1 || heads < 1 || heads_kv < 1 || d > rows || heads > rows ||
	    heads_kv > rows)
		return wrong(m, t, err, "rows, not q, k and v of heads of", rows, d);
	q = heads * d;
	kv = heads_kv * d;
	if (q + 2 * kv != rows)
		return wrong(m, t, err, "rows, the heads of q, k and v have", rows, q + 2 * kv);
	take_rows(t, t->part == 0 ? 0 : t->part == 1 ? q : q + kv, t->part == 0 ? q : kv);
	return 0;
}

const struct gguf_fix gguf_third = { third_shape, NULL };

/* One of six vectors, [6][1][1][inputs]. */
static int sixth_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	enum { SIX = 6 };

	if (t->t.n_dim < 2 || t->t.dim[0] != SIX || t->t.count != SIX * t->t.dim[t->t.n_dim - 1])
		return wrong(m, t, err, "elements are not six vectors, of axes", t->t.count, t->t.n_dim);
	t->t.dim[0] = t->t.elements = t->t.count = t->t.dim[t->t.n_dim - 1];
	t->t.n_dim = 1;
	t->t.bytes /= SIX;
	t->t.data = t->from->data + (size_t)t->part * t->t.bytes;
	return 0;
}

const struct gguf_fix gguf_sixth = { sixth_shape, NULL };

/* ---- b and a of Qwen3-Next ---- */

static int ba_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	struct gguf_conf c = { .m = m, .err = err };
	int64_t heads = gguf_conf_int(&c, "ssm.group_count", 0), rows = rows_of(t);

	if (c.code)
		return c.code;
	if (t->t.n_dim != 2 || heads < 1 || heads > rows || rows % (2 * heads))
		return wrong(m, t, err, "rows are not b and a of whole groups of", rows, heads);
	take_rows(t, 0, rows / 2);
	t->t.data = NULL;
	return 0;
}

static void ba_fill(const struct gguf_model *m, const struct gguf_tensor *t, uint8_t *to)
{
	struct gguf_conf c = { .m = m };
	int64_t heads = gguf_conf_int(&c, "ssm.group_count", 0), r = rows_of(t) / heads;
	size_t n = row_bytes(t);

	for (int64_t h = 0; h < heads; h++)
		memcpy(to + (size_t)(h * r) * n, t->from->data + (size_t)((2 * h + t->part) * r) * n, (size_t)r * n);
}

const struct gguf_fix gguf_ba = { ba_shape, ba_fill };

/* ---- vectors computed anew ---- */

int gguf_floats_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	if (t->t.format || t->t.type != DT_F32)
		return err_set(err, E_UNSUPPORTED, "%s: tensor %s: is %s, this one is read as F32", m->part[0].path,
		               t->from->name, t->from->type->name);
	t->t.data = NULL;
	return 0;
}

static void fill_logs(const struct gguf_tensor *t, float sign, uint8_t *to)
{
	for (int64_t i = 0; i < t->t.count; i++) {
		float a;

		memcpy(&a, t->from->data + 4 * i, sizeof a);
		a = logf(sign * a);
		memcpy(to + 4 * i, &a, sizeof a);
	}
}

static void log_minus_fill(const struct gguf_model *m, const struct gguf_tensor *t, uint8_t *to)
{
	fill_logs(t, -1, to);
}

static void log_fill(const struct gguf_model *m, const struct gguf_tensor *t, uint8_t *to)
{
	fill_logs(t, 1, to);
}

const struct gguf_fix gguf_log_minus = { gguf_floats_shape, log_minus_fill };
const struct gguf_fix gguf_log = { gguf_floats_shape, log_fill };

static void minus_one_fill(const struct gguf_model *m, const struct gguf_tensor *t, uint8_t *to)
{
	for (int64_t i = 0; i < t->t.count; i++) {
		float w;

		memcpy(&w, t->from->data + 4 * i, sizeof w);
		w -= 1;
		memcpy(to + 4 * i, &w, sizeof w);
	}
}

const struct gguf_fix gguf_minus_one = { gguf_floats_shape, minus_one_fill };

/* ---- shapes alone ---- */

/* [channels][width] is told apart from Hugging Face's [channels][1][width] by a last axis of 1, as mlx has it. */
static int conv_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	if (t->t.n_dim != 2)
		return wrong(m, t, err, "dimensions, a convolution has", t->t.n_dim, 2);
	t->t.dim[t->t.n_dim++] = 1;
	return 0;
}

const struct gguf_fix gguf_conv = { conv_shape, NULL };

/* A vector that is a matrix of one row. */
static int row_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	if (t->t.n_dim == 1) { /* one row of a matrix */
		t->t.dim[1] = t->t.dim[0];
		t->t.dim[0] = 1;
		t->t.n_dim = 2;
	}
	return 0;
}

const struct gguf_fix gguf_row = { row_shape, NULL };
