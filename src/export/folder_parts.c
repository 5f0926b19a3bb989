/* folder_parts.c - tensors of a layer that the file has with others in a stack, in parts, or under a name that no table has.
 *
 *   experts apart            one matrix each: a stack of each kind
 *   gate and up of experts   in one tensor, one behind the other or in turn: two stacks
 *   mxfp4 of gpt-oss, V4     codes and scales apart: blocks that hold both, the same codes
 *   kv_b of latent attention by head rows of keys and of values: keys transposed, and values
 *   RWKV's shift             a vector each: one tensor
 *   q, k, v, z by key head   q, k and v of all heads, and z of all
 *   parts of a table         one table
 *
 * No matrix is copied: a tensor of the file is runs of elements, which lie in the folder's at steps that its line computes. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "export/folder_making.h"

enum { EXPERTS_MOST = 4096 };

struct part;
typedef void part_fn(struct making *m, const struct tensor *t, int64_t block, const struct part *p);

/* ---- steps ---- */

/* A tensor of the new file in elements of the folder's: its runs, their rows and columns; where the first begins, and from one
 * run, row and column to the next. */
struct steps {
	int64_t runs, rows, cols, first, run, row, col;
};

static struct source_tensor *take(struct making *m, const struct tensor *t, int64_t block, const char *name)
{
	struct source_tensor *to = &m->s->t[m->s->n++];
	char full[MAKING_NAME_BYTES];

	snprintf(full, sizeof full, "blk.%" PRId64 ".%s", block, name);
	making_take(m, to, t, full);
	return to;
}

/* Sets the axes: those of a stack are three, whatever their number is. */
static void shape(struct making *m, struct source_tensor *to, bool stack, int64_t cols, int64_t rows, int64_t runs)
{
	to->t.n_dim = stack ? 3 : 2;
	to->t.ne[0] = cols;
	to->t.ne[1] = rows;
	to->t.ne[2] = runs;
	to->t.count = cols * rows * runs;
	to->n_part = (int)runs;
	to->part = xcalloc((size_t)runs + 1, sizeof *to->part);
	if (to->scales) {
		struct item_scales all = *to->scales;

		to->scales = arena_alloc(&m->s->g.arena, size_mul((size_t)runs, sizeof *to->scales));
		for (int64_t i = 0; i < runs; i++)
			to->scales[i] = all;
	}
}

static void run_set(struct making *m, struct source_tensor *to, int64_t i, const uint8_t *data, size_t row_bytes)
{
	int64_t rows = to->t.ne[1], cols = to->t.ne[0];
	struct weight *w = &to->part[i];

	if (!m->code)
		m->code = weight_gguf(w, to->known_as, to->t.type, (int)rows, (int)cols, data,
		                      (size_t)(rows * cols) * (size_t)to->t.type->block_bytes, m->err);
	w->row_bytes = row_bytes;
}

static bool fits(const struct steps *s, int64_t count)
{
	return s->runs > 0 && s->rows > 0 && s->cols > 0 && s->runs <= EXPERTS_MOST && s->rows <= INT_MAX &&
	       s->cols <= INT_MAX &&
	       s->first + (s->runs - 1) * s->run + (s->rows - 1) * s->row + (s->cols - 1) * s->col < count;
}

/* NULL after a failure. */
static struct source_tensor *add_steps(struct making *m, const struct tensor *t, int64_t block, const char *name,
                                       bool stack, const struct steps *s)
{
	struct source_tensor *to = m->code ? NULL : take(m, t, block, name);
	size_t size;

	if (!m->code && !fits(s, t->count))
		making_fail(m, E_FORMAT,
		            "tensor %s: %" PRId64 " elements are not %" PRId64 " times %" PRId64 " rows of %" PRId64,
		            t->name, t->count, s->runs, s->rows, s->cols);
	if (m->code)
		return NULL;
	size = (size_t)to->t.type->block_bytes;
	shape(m, to, stack, s->cols, s->rows, s->runs);
	to->col_bytes = s->col == 1 ? 0 : (size_t)s->col * size;
	for (int64_t i = 0; i < s->runs && to->scales; i++) { /* of a matrix, whose rows are not cut */
		to->scales[i].row0 = (int)((s->first + i * s->run) / t->dim[1]);
		to->scales[i].across = s->col != 1;
	}
	for (int64_t i = 0; i < s->runs; i++)
		run_set(m, to, i, to->t.data + (size_t)(s->first + i * s->run) * size, (size_t)s->row * size);
	if (to->col_bytes)
		to->known_as = NULL; /* what the folder's counts is another axis */
	return m->code ? NULL : to;
}

static bool has_axes(struct making *m, const struct tensor *t, int n)
{
	if (t->n_dim != n)
		making_fail(m, E_FORMAT, "tensor %s has %d axes, %d are wanted", t->name, t->n_dim, n);
	return !m->code;
}

/* ---- lines ---- */

struct part {
	const char *hf;   /* behind "model.layers.N." */
	const char *arch; /* NULL: any */
	part_fn *add;
	const char *to[2]; /* behind "blk.N." */
	bool first;        /* of the first layer alone */
};

/* "ffn_up_shexp.weight", and where a layer has no experts "ffn_up.weight". */
static const char *shared_name(struct making *m, const char *name, char *buf, size_t cap)
{
	const char *at = strstr(name, "_shexp");

	if (!at || making_int(m, "num_local_experts", 0) > 0)
		return name;
	snprintf(buf, cap, "%.*s%s", (int)(at - name), name, at + strlen("_shexp"));
	return buf;
}

static void add_same(struct making *m, const struct tensor *t, int64_t block, const struct part *p)
{
	char name[MAKING_NAME_BYTES];

	if (has_axes(m, t, 2))
		add_steps(m, t, block, shared_name(m, p->to[0], name, sizeof name), false,
		          &(struct steps){ 1, t->dim[0], t->dim[1], 0, 0, t->dim[1], 1 });
}

static void add_stack(struct making *m, const struct tensor *t, int64_t block, const struct part *p)
{
	if (has_axes(m, t, 3))
		add_steps(m, t, block, p->to[0], true,
		          &(struct steps){ t->dim[0], t->dim[1], t->dim[2], 0, t->dim[1] * t->dim[2], t->dim[2], 1 });
}

/* Gate rows, then up rows: a matrix, or a stack of them. */
static void add_halves(struct making *m, const struct tensor *t, int64_t block, const struct part *p)
{
	bool stack = strstr(p->to[0], "_exps") != NULL;
	int64_t runs = stack ? t->dim[0] : 1, rows = t->dim[stack], cols = t->dim[stack + 1];
	char name[MAKING_NAME_BYTES];

	if (has_axes(m, t, 2 + stack) && rows % 2)
		making_fail(m, E_FORMAT, "tensor %s: %" PRId64 " rows are not gate and up", t->name, rows);
	for (int i = 0; i < 2; i++)
		add_steps(m, t, block, shared_name(m, p->to[i], name, sizeof name), stack,
		          &(struct steps){ runs, rows / 2, cols, i * (rows / 2) * cols, rows * cols, cols, 1 });
}

/* ---- gpt-oss ---- */

/* Biases of a stack's rows, of two in turn where the line has two names. */
static void add_biases(struct making *m, const struct tensor *t, int64_t block, const struct part *p)
{
	int n = p->to[1] ? 2 : 1;

	if (has_axes(m, t, 2) && t->dim[1] % n)
		making_fail(m, E_FORMAT, "tensor %s: %" PRId64 " biases are not gate and up", t->name, t->dim[1]);
	for (int i = 0; i < n; i++)
		add_steps(m, t, block, p->to[i], false,
		          &(struct steps){ 1, t->dim[0], t->dim[1] / n, i, 0, t->dim[1], n });
}

/* [experts][inputs][rows], of two stacks in turn where the line has two names. */
static void add_across(struct making *m, const struct tensor *t, int64_t block, const struct part *p)
{
	int n = p->to[1] ? 2 : 1;

	if (!has_axes(m, t, 3))
		return;
	if (t->dim[2] % n)
		making_fail(m, E_FORMAT, "tensor %s: %" PRId64 " rows are not gate and up", t->name, t->dim[2]);
	for (int i = 0; i < n; i++)
		add_steps(
			m, t, block, p->to[i], true,
			&(struct steps){ t->dim[0], t->dim[2] / n, t->dim[1], i, t->dim[1] * t->dim[2], n, t->dim[2] });
}

/* The scales of "..._blocks"; NULL: missing or of another size. */
static const struct tensor *scales_of(struct making *m, const struct tensor *t)
{
	int stem = (int)(strlen(t->name) - strlen("blocks"));
	char name[512];
	struct tensor *s;

	snprintf(name, sizeof name, "%.*sscales", stem, t->name);
	s = store_find(m->st, name);
	if (!s)
		making_fail(m, E_MISSING, "tensor %s: missing, with %s present", name, t->name);
	else if (t->type != DT_U8 || s->type != DT_U8 || s->n_dim != 3 || t->dim[3] != 16 ||
	         memcmp(s->dim, t->dim, 3 * sizeof *s->dim) != 0)
		making_fail(m, E_FORMAT, "tensors %s and %s: are not codes and scales of mxfp4", t->name, name);
	else
		m->code = store_data(m->st, s, m->err);
	return m->code ? NULL : s;
}

/* A stack of codes of mxfp4, named after t. */
static struct source_tensor *take_codes(struct making *m, const struct tensor *t, int64_t block, const char *name,
                                        int64_t cols, int64_t rows, int64_t experts)
{
	struct source_tensor *to = &m->s->t[m->s->n++];

	*to = (struct source_tensor){ .t = { .name = arena_printf(&m->s->g.arena, "blk.%" PRId64 ".%s", block, name),
		                             .type = gguf_type_named("MXFP4"),
		                             .ne = { 1, 1, 1, 1 } },
		                      .known_as = t->name,
		                      .stays = true };
	shape(m, to, true, cols, rows, experts);
	return to;
}

/* Codes [experts][rows][groups of 32][16 bytes], of two stacks in turn where the line has two names. */
static void add_codes(struct making *m, const struct tensor *t, int64_t block, const struct part *p)
{
	int n = p->to[1] ? 2 : 1;
	const struct tensor *s = has_axes(m, t, 4) ? scales_of(m, t) : NULL;
	int64_t rows = t->dim[1], cols = t->dim[2] * 32, experts = t->dim[0];

	if (s && (experts < 1 || experts > EXPERTS_MOST || rows < 1 || rows > INT_MAX || rows % n || cols < 1 ||
	          cols > INT_MAX))
		making_fail(m, E_FORMAT, "tensor %s: %" PRId64 " experts of %" PRId64 " rows of %" PRId64, t->name,
		            experts, rows, cols);
	for (int i = 0; i < n && !m->code; i++) {
		struct source_tensor *to = take_codes(m, t, block, p->to[i], cols, rows / n, experts);
		int32_t *row = arena_alloc(&m->s->g.arena, (size_t)(rows / n) * sizeof *row);

		for (int64_t r = 0; r < rows / n; r++)
			row[r] = (int32_t)(r * n + i);
		to->row = row;
		for (int64_t e = 0; e < experts && !m->code; e++) {
			m->code = weight_coded(&to->part[e], t->name, "mxfp4", 4, 32, (int)rows, (int)cols,
			                       t->data + (size_t)(e * rows * cols / 2), (size_t)(rows * cols / 2),
			                       s->data + (size_t)(e * rows * cols / 32), (size_t)(rows * cols / 32),
			                       NULL, 0, DT_U8, m->err);
			to->part[e].rows = (int)(rows / n);
		}
	}
}

/* Scales go with their codes. */
static void pass_scales(struct making *m, const struct tensor *t, int64_t block, const struct part *p)
{
	char name[512];

	snprintf(name, sizeof name, "%.*sblocks", (int)(strlen(t->name) - strlen("scales")), t->name);
	if (!store_find(m->st, name))
		making_fail(m, E_MISSING, "tensor %s: missing, with %s present", name, t->name);
}

/* ---- latent attention ---- */

/* By head the rows of keys, which are written transposed, and those of values. */
static void add_kv_b(struct making *m, const struct tensor *t, int64_t block, const struct part *p)
{
	int64_t heads = making_int(m, "num_attention_heads", INT64_MIN),
		rank = making_int(m, "kv_lora_rank", INT64_MIN), nope = making_int(m, "qk_nope_head_dim", INT64_MIN),
		values = making_int(m, "v_head_dim", INT64_MIN), head = (nope + values) * rank;

	if (has_axes(m, t, 2) && (t->dim[0] != heads * (nope + values) || t->dim[1] != rank))
		making_fail(m, E_FORMAT,
		            "tensor %s is [%" PRId64 ", %" PRId64 "], [%" PRId64 ", %" PRId64 "] are wanted", t->name,
		            t->dim[0], t->dim[1], heads * (nope + values), rank);
	add_steps(m, t, block, p->to[0], true, &(struct steps){ heads, rank, nope, 0, head, 1, rank });
	add_steps(m, t, block, p->to[1], true, &(struct steps){ heads, values, rank, nope * rank, head, rank, 1 });
}

/* ---- q, k, v and z ---- */

/* Qwen3-Next's q, k, v and z are together by key head: q, k and v of all heads, and z of all. */
static void add_qkvz(struct making *m, const struct tensor *t, int64_t block, const struct part *p)
{
	int64_t dk = making_int(m, "linear_key_head_dim", INT64_MIN),
		keys = making_int(m, "linear_num_key_heads", INT64_MIN),
		values = making_int(m, "linear_num_value_heads", INT64_MIN), each, per, at = 0, z = 0;
	struct source_tensor *to[2];
	int32_t *qkv, *gate;

	if (m->code)
		return;
	each = values / keys * dk;
	per = 2 * dk + 2 * each;
	if (values % keys || t->n_dim != 2 || t->dim[0] != keys * per) {
		making_fail(m, E_FORMAT, "tensor %s: %" PRId64 " rows, %" PRId64 " key heads have %" PRId64 " each",
		            t->name, t->dim[0], keys, per);
		return;
	}
	qkv = arena_alloc(&m->s->g.arena, size_mul((size_t)(keys * (2 * dk + each)), sizeof *qkv));
	gate = arena_alloc(&m->s->g.arena, size_mul((size_t)(keys * each), sizeof *gate));
	for (int part = 0; part < 3; part++)
		for (int64_t h = 0; h < keys; h++)
			for (int64_t r = 0; r < (part < 2 ? dk : each); r++)
				qkv[at++] = (int32_t)(h * per + part * dk + r);
	for (int64_t h = 0; h < keys; h++)
		for (int64_t r = 0; r < each; r++)
			gate[z++] = (int32_t)(h * per + 2 * dk + each + r);
	for (int i = 0; i < 2; i++) {
		to[i] = add_steps(m, t, block, p->to[i], false,
		                  &(struct steps){ 1, i ? z : at, t->dim[1], 0, 0, t->dim[1], 1 });
		if (to[i])
			to[i]->row = i ? gate : qkv;
	}
}

/* ---- RWKV ---- */

/* A tensor under two names: the first layer's matrices of v, which nothing reads and readers want, are those of a. */
static void add_twice(struct making *m, const struct tensor *t, int64_t block, const struct part *p)
{
	for (int i = 0; i < 2; i++)
		take(m, t, block, p->to[i]);
}

/* The vectors of the shift become one tensor, [6][1][1][inputs]. */
static void add_shift(struct making *m, const struct tensor *first, int64_t block, const struct part *p)
{
	static const char of[] = "rwkvag";
	int64_t n = sizeof of - 1, cols = first->count;
	struct source_tensor *to = take(m, first, block, p->to[0]);
	char name[512];

	if (!m->code && cols > INT_MAX)
		making_fail(m, E_LIMIT, "tensor %s: %" PRId64 " elements", first->name, cols);
	if (m->code)
		return;
	shape(m, to, true, cols, 1, n);
	to->t.n_dim = 4;
	to->t.ne[2] = 1;
	to->t.ne[3] = n;
	for (int64_t i = 0; i < n && !m->code; i++) {
		struct tensor *t;

		snprintf(name, sizeof name, "%.*s%c", (int)strlen(first->name) - 1, first->name, of[i]);
		t = store_find(m->st, name);
		if (!t || t->type != first->type || t->bytes != first->bytes)
			making_fail(m, E_MISSING, "tensor %s: missing, or of another size than %s", name, first->name);
		else if (!(m->code = store_data(m->st, t, m->err)))
			run_set(m, to, i, t->data, t->bytes);
	}
}

/* ---- Qwen3.8-Flash-Next ---- */

/* The last rows of an indexer's matrix, as many as a head has, make keys. */
static void add_index(struct making *m, const struct tensor *t, int64_t block, const struct part *p)
{
	int64_t dim = making_int(m, "indexer_head_dim", INT64_MIN), rows, cols;

	if (!has_axes(m, t, 2))
		return;
	rows = t->dim[0] - dim;
	cols = t->dim[1];
	if (dim < 1 || rows < 1) {
		making_fail(m, E_FORMAT, "tensor %s: %" PRId64 " rows, of which %" PRId64 " are of keys", t->name,
		            t->dim[0], dim);
		return;
	}
	add_steps(m, t, block, p->to[0], false, &(struct steps){ 1, rows, cols, 0, 0, cols, 1 });
	add_steps(m, t, block, p->to[1], false, &(struct steps){ 1, dim, cols, rows * cols, 0, cols, 1 });
}

static const char table_parts[] = "ple.ple_embedding.ngram_embedding.shard_";

/* The first part of the table stands for all, which become one table of the whole file. */
static void add_table(struct making *m, const struct tensor *first, int64_t block, const struct part *p)
{
	int stem = (int)strlen(first->name) - (int)strlen("0.weight");
	struct source_tensor *to = &m->s->t[m->s->n];
	struct tensor *t;
	char name[512];
	int64_t n = 0;

	if (!has_axes(m, first, 2))
		return;
	do
		snprintf(name, sizeof name, "%.*s%" PRId64 ".weight", stem, first->name, ++n);
	while (store_find(m->st, name));
	if (n > EXPERTS_MOST || first->dim[0] > INT_MAX / n || first->dim[1] > INT_MAX) {
		making_fail(m, E_LIMIT, "tensor %s: %" PRId64 " parts of %" PRId64 " rows", first->name, n,
		            first->dim[0]);
		return;
	}
	m->s->n++;
	making_take(m, to, first, p->to[0]);
	if (!m->code && to->scales)
		making_fail(m, E_UNSUPPORTED, "tensor %s: tables in FP8 are not written", first->name);
	if (m->code)
		return;
	shape(m, to, true, first->dim[1], first->dim[0], n);
	for (int64_t i = 0; i < n && !m->code; i++) {
		snprintf(name, sizeof name, "%.*s%" PRId64 ".weight", stem, first->name, i);
		t = store_find(m->st, name);
		if (t->type != first->type || t->bytes != first->bytes || t->n_dim != 2 || t->dim[1] != first->dim[1])
			making_fail(m, E_FORMAT, "tensor %s: of another size than %s", name, first->name);
		else if (!(m->code = store_data(m->st, t, m->err)))
			run_set(m, to, i, t->data, first->bytes / (size_t)first->dim[0]);
	}
	to->t.n_dim = 2;
	to->t.ne[1] = first->dim[0] * n;
	to->t.ne[2] = 1;
}

/* Rows of a, each followed by that of b. */
static const uint8_t *beside(struct making *m, const uint8_t *a, const uint8_t *b, size_t rows, size_t row_bytes)
{
	uint8_t *both = arena_alloc(&m->s->g.arena, size_mul(size_mul(2, rows), row_bytes));

	for (size_t r = 0; r < rows; r++) {
		memcpy(both + 2 * r * row_bytes, a + r * row_bytes, row_bytes);
		memcpy(both + (2 * r + 1) * row_bytes, b + r * row_bytes, row_bytes);
	}
	return both;
}

/* The scales of two matrices in FP8 that lie side by side. */
static void join_scales(struct making *m, struct source_tensor *to, const struct tensor *first,
                        const struct tensor *second)
{
	struct item_scales *a = to->scales, *b = making_scales(m, second);

	if (!m->code && (!b || b->type != a->type || b->wide != a->wide || b->high != a->high || b->broad != a->broad ||
	                 first->dim[1] % a->broad))
		making_fail(m, E_UNSUPPORTED, "tensor %s: has other blocks of scales than %s", second->name,
		            first->name);
	if (m->code)
		return;
	a->at = beside(m, a->at, b->at, (size_t)((first->dim[0] + a->high - 1) / a->high),
	               (size_t)a->wide * (size_t)dtype_size(a->type));
	a->wide *= 2;
}

/* A draft head's two matrices side by side; ends: of the first's name, other: of the second's in its place. */
static void add_joined(struct making *m, const struct tensor *first, const char *ends, const char *other)
{
	struct source_tensor *to = &m->s->t[m->s->n++];
	char name[512], behind[MAKING_NAME_BYTES];
	struct tensor *second;

	snprintf(name, sizeof name, "%.*s%s", (int)(strlen(first->name) - strlen(ends)), first->name, other);
	snprintf(behind, sizeof behind, "blk.%" PRId64 ".nextn.eh_proj.weight", m->blocks);
	second = store_find(m->st, name);
	if (!second || second->type != first->type || second->bytes != first->bytes || first->n_dim != 2)
		making_fail(m, E_MISSING, "tensor %s: missing, or of another size than %s", name, first->name);
	if (!m->code)
		m->code = store_data(m->st, second, m->err);
	making_take(m, to, first, behind);
	if (!m->code && to->scales)
		join_scales(m, to, first, second);
	if (m->code)
		return;
	to->t.data = beside(m, first->data, second->data, (size_t)first->dim[0], first->bytes / (size_t)first->dim[0]);
	to->t.bytes = 2 * first->bytes;
	to->t.count = 2 * first->count;
	to->t.ne[0] = 2 * first->dim[1];
	to->known_as = NULL;
}

/* ---- DeepSeek V4 ---- */

/* Numbers become those of 32 bits. */
static void add_ints(struct making *m, const struct tensor *t, int64_t block, const struct part *p)
{
	struct source_tensor *to = &m->s->t[m->s->n++];
	const int64_t *v = NULL;
	int32_t *out;

	if (has_axes(m, t, 2))
		m->code = store_ints(m->st, &m->s->g.arena, t->name, t->count, &v, m->err);
	if (m->code)
		return;
	out = arena_alloc(&m->s->g.arena, size_mul((size_t)t->count, sizeof *out));
	for (int64_t i = 0; i < t->count && !m->code; i++) {
		if (v[i] < 0 || v[i] > INT32_MAX)
			making_fail(m, E_FORMAT, "tensor %s: element %" PRId64 " is %" PRId64, t->name, i, v[i]);
		out[i] = (int32_t)v[i];
	}
	*to = (struct source_tensor){ .t = { .name = arena_printf(&m->s->g.arena, "blk.%" PRId64 ".%s", block,
		                                                  p->to[0]),
		                             .type = gguf_type_named("I32"),
		                             .n_dim = 2,
		                             .ne = { t->dim[1], t->dim[0], 1, 1 },
		                             .count = t->count,
		                             .data = (const uint8_t *)out,
		                             .bytes = (size_t)t->count * sizeof *out },
		                      .known_as = t->name,
		                      .stays = true };
}

static void add_draft(struct making *m, const struct tensor *t, int64_t block, const struct part *p)
{
	add_joined(m, t, "e_proj.weight", "h_proj.weight");
}

/* Makes run e of a matrix in mxfp4, "PATH.weight": a byte has two inputs, the first in its low half; "PATH.scale" has one scale for
 * 32 of them. */
static void run_codes(struct making *m, struct source_tensor *to, int64_t e, const struct tensor *t)
{
	char stem[512];
	struct tensor *s;

	snprintf(stem, sizeof stem, "%.*s", (int)(strlen(t->name) - strlen(".weight")), t->name);
	s = store_part(m->st, stem, ".scale");
	if (!s)
		making_fail(m, E_MISSING, "tensor %s.scale: missing, with %s present", stem, t->name);
	else if (s->type != DT_F8_E8M0 || s->n_dim != 2 || s->dim[0] != t->dim[0] || s->dim[1] * 16 != t->dim[1])
		making_fail(m, E_FORMAT, "tensors %s and %s: are not codes and scales of mxfp4", t->name, s->name);
	else
		m->code = store_data(m->st, s, m->err);
	if (!m->code)
		m->code = weight_coded(&to->part[e], t->name, "mxfp4", 4, 32, (int)t->dim[0], (int)(2 * t->dim[1]),
		                       t->data, t->bytes, s->data, s->bytes, NULL, 0, DT_U8, m->err);
}

/* Adds nothing: the tensor goes with another one, or nothing reads it. */
static void pass(struct making *m, const struct tensor *t, int64_t block, const struct part *p) {}

/* ---- experts apart ---- */

static const char *const stacks[] = { "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight" };

/* Names of experts that have a matrix each: the prefix before their number, and their matrices in the order of stacks. */
static const struct expert_form {
	const char *prefix, *hf[3];
} forms[] = { { "mlp.experts.", { "gate_proj", "up_proj", "down_proj" } },
	      { "mixer.experts.", { NULL, "up_proj", "down_proj" } },
	      { "feed_forward.experts.", { "w1", "w3", "w2" } },
	      { "ffn.experts.", { "w1", "w3", "w2" } },
	      { "feed_forward.experts.", { "gate_proj", "up_proj", "down_proj" } },
	      { "block_sparse_moe.experts.", { "w1", "w3", "w2" } } };

/* Expert 0 of a kind stands for all of its layer: "...experts.0.gate_proj.weight". */
static void add_apart(struct making *m, const struct tensor *first, int64_t block, const struct expert_form *form,
                      int kind)
{
	const char *count = json_get(m->st->text, "n_routed_experts")  ? "n_routed_experts" :
	                    json_get(m->st->text, "num_local_experts") ? "num_local_experts" :
	                                                                 "num_experts";
	int64_t n = making_int(m, count, INT64_MIN);
	int stem = (int)strlen(first->name) - (int)strlen("0.") - (int)strlen(form->hf[kind]) - (int)strlen(".weight");
	bool codes = first->type == DT_I8 && !first->format;
	struct source_tensor *to = NULL;

	if (n < 1 || n > EXPERTS_MOST)
		making_fail(m, E_FORMAT, "%s: %" PRId64, count, n);
	if (has_axes(m, first, 2) && (first->dim[0] > INT_MAX || first->dim[1] > INT_MAX / 2))
		making_fail(m, E_LIMIT, "tensor %s: %" PRId64 " rows of %" PRId64, first->name, first->dim[0],
		            first->dim[1]);
	if (m->code)
		return;
	if (codes) {
		to = take_codes(m, first, block, stacks[kind], 2 * first->dim[1], first->dim[0], n);
	} else {
		to = take(m, first, block, stacks[kind]);
		if (!m->code)
			shape(m, to, true, first->dim[1], first->dim[0], n);
	}
	for (int64_t e = 0; e < n && !m->code; e++) {
		char name[512];
		struct tensor *t;

		snprintf(name, sizeof name, "%.*s%" PRId64 ".%s.weight", stem, first->name, e, form->hf[kind]);
		t = store_find(m->st, name);
		if (!t || t->type != first->type || t->bytes != first->bytes || t->n_dim != 2 ||
		    t->dim[1] != first->dim[1])
			making_fail(m, E_MISSING, "tensor %s: missing, or of another size than %s", name, first->name);
		else if (!(m->code = store_data(m->st, t, m->err)) && codes)
			run_codes(m, to, e, t);
		else if (!m->code)
			run_set(m, to, e, t->data, first->bytes / (size_t)first->dim[0]);
		if (!m->code && to->scales) {
			const struct item_scales *own = making_scales(m, t);

			if (own)
				to->scales[e] = *own;
			else
				making_fail(m, E_MISSING, "tensor %s: has no scales", name);
		}
	}
}

static bool add_expert(struct making *m, const struct tensor *t, int64_t block, const char *rest)
{
	const char *of;

	for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
		int64_t e = name_numbered(rest, forms[f].prefix, &of);

		for (int kind = 0; kind < 3 && e >= 0; kind++)
			if (forms[f].hf[kind] && name_behind(of, forms[f].hf[kind]) &&
			    !strcmp(name_behind(of, forms[f].hf[kind]), ".weight")) {
				if (!e)
					add_apart(m, t, block, &forms[f], kind);
				return true;
			}
	}
	return false;
}

/* ---- all of them ---- */

#define GATE_UP                                              \
	{                                                    \
		"ffn_gate_exps.weight", "ffn_up_exps.weight" \
	}
#define DOWN                           \
	{                              \
		"ffn_down_exps.weight" \
	}

static const struct part parts[] = {
	{ "mlp.experts.gate_up_proj", "gpt-oss", add_across, GATE_UP },
	{ "mlp.experts.down_proj", "gpt-oss", add_across, DOWN },
	{ "mlp.experts.gate_up_proj", NULL, add_halves, GATE_UP },
	{ "mlp.experts.down_proj", NULL, add_stack, DOWN },
	{ "mlp.experts.gate_up_proj_blocks", NULL, add_codes, GATE_UP },
	{ "mlp.experts.down_proj_blocks", NULL, add_codes, DOWN },
	{ "mlp.experts.gate_up_proj_scales", NULL, pass_scales },
	{ "mlp.experts.down_proj_scales", NULL, pass_scales },
	{ "mlp.experts.gate_up_proj_bias", NULL, add_biases, { "ffn_gate_exps.bias", "ffn_up_exps.bias" } },
	{ "mlp.experts.down_proj_bias", NULL, add_biases, { "ffn_down_exps.bias" } },
	{ "block_sparse_moe.input_linear.weight", NULL, add_halves, GATE_UP },
	{ "block_sparse_moe.output_linear.weight", NULL, add_stack, DOWN },
	{ "shared_mlp.input_linear.weight", NULL, add_halves, { "ffn_gate_shexp.weight", "ffn_up_shexp.weight" } },
	{ "shared_mlp.output_linear.weight", NULL, add_same, { "ffn_down_shexp.weight" } },
	{ "linear_attn.in_proj_qkvz.weight", NULL, add_qkvz, { "attn_qkv.weight", "attn_gate.weight" } },
	{ "linear_attn.in_proj_ba.weight", NULL, add_same, { "ssm_ba.weight" } },
	{ "self_attn.kv_b_proj.weight", NULL, add_kv_b, { "attn_k_b.weight", "attn_v_b.weight" } },
	{ "self_attn.indexer.index_qk_proj.weight",
	  "qwen4exp",
	  add_index,
	  { "indexer.q_proj.weight", "indexer.k_proj.weight" } },
	{ "ple.ple_embedding.ngram_embedding.shard_0.weight",
	  "qwen4exp",
	  add_table,
	  { "per_layer_token_embd.weight" } },
	{ "ple.ple_embedding.layer_multipliers", "qwen4exp", pass },
	{ "ple.ple_embedding.ngram_heads_vocab_sizes", "qwen4exp", pass },
	{ "ple.ple_embedding.ngram_heads_offsets", "qwen4exp", pass },
	{ "e_proj.weight", "deepseek4", add_draft },
	{ "h_proj.weight", "deepseek4", pass },
	{ "ffn.gate.tid2eid", "deepseek4", add_ints, { "ffn_gate_tid2eid.weight" } },
	{ "attn.x_r", "rwkv7", add_shift, { "time_mix_lerp_fused.weight" } },
	{ "attn.x_w", "rwkv7", pass },
	{ "attn.x_k", "rwkv7", pass },
	{ "attn.x_v", "rwkv7", pass },
	{ "attn.x_a", "rwkv7", pass },
	{ "attn.x_g", "rwkv7", pass },
	{ "attn.a_lora.lora.2.bias", "rwkv7", add_twice, { "time_mix_a0.weight", "time_mix_v0.weight" }, true },
	{ "attn.a_lora.lora.0.weight", "rwkv7", add_twice, { "time_mix_a1.weight", "time_mix_v1.weight" }, true },
	{ "attn.a_lora.lora.2.weight", "rwkv7", add_twice, { "time_mix_a2.weight", "time_mix_v2.weight" }, true },
	{ "attn.v_lora.lora.2.bias", "rwkv7", pass, .first = true },
	{ "attn.v_lora.lora.0.weight", "rwkv7", pass, .first = true },
	{ "attn.v_lora.lora.2.weight", "rwkv7", pass, .first = true },
};

bool making_parts(struct making *m, const struct tensor *t, const char *hf)
{
	const char *rest = hf, *of;
	int64_t block = making_block(m, hf, &rest);

	if (!m->code && !strcmp(m->arch->name, "qwen4exp")) {
		if (!strcmp(hf, "mtp.fc_embedding.weight"))
			add_joined(m, t, "fc_embedding.weight", "fc_hidden.weight");
		if (!strncmp(hf, "mtp.fc_", 7))
			return true;
	}
	if (block < 0 || block >= m->blocks + m->drafts)
		return false;
	if (name_numbered(rest, table_parts, &of) > 0)
		return true; /* goes with the first */
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (!strcmp(parts[i].hf, rest) && (!parts[i].arch || !strcmp(parts[i].arch, m->arch->name)) &&
		    (!parts[i].first || !block)) {
			parts[i].add(m, t, block, &parts[i]);
			return true;
		}
	return add_expert(m, t, block, rest);
}
