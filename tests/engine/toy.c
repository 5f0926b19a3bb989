/* toy.c - see toy.h. */
#include "model/model.h"
#include "text/tokens/tokenizer.h"
#include "toy.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "cache/kinds.h"
#include "quant/format.h"

enum { DIM = 16 }; /* of the cache row: the hash of a token lies in its first four bytes */

/* ---- a backend that only has memory ---- */

static void *far_alloc(struct backend *be, size_t n)
{
	return calloc(1, n ? n : 1);
}
static void far_free(struct backend *be, void *p, size_t n)
{
	free(p);
}
static void far_write(struct backend *be, void *far, const void *near, size_t n)
{
	memcpy(far, near, n);
}
static int far_read(struct backend *be, void *near, const void *far, size_t n)
{
	memcpy(near, far, n);
	return 0;
}
static void far_copy(struct backend *be, void *dst, const void *src, size_t n)
{
	memmove(dst, src, n);
}

static uint32_t mix(uint32_t h, int32_t tok, int pos)
{
	return (uint32_t)rng_bits(h, (uint64_t)pos, (uint64_t)(uint32_t)tok);
}

/* The state is one number; a row on the tape is its token and position. */
static float *state_at(const struct state_view *v, int slot)
{
	return v->s + (size_t)slot * (size_t)v->shape.layers * state_floats(&v->shape);
}

static void tape_put(const struct state_view *v, int slot, int row, int32_t tok, int pos)
{
	int32_t both[2] = { tok, pos };

	assert(row < v->tape_rows);
	memcpy(state_tape_row(v, slot, 0, row), both, sizeof(both));
}

/* The slot's state after `rows` of its tape. */
static uint32_t state_after(const struct state_view *v, int slot, int rows)
{
	uint32_t state;

	memcpy(&state, state_at(v, slot), sizeof(state));
	for (int i = 0; i < rows; i++) {
		int32_t both[2];

		memcpy(both, state_tape_row(v, slot, 0, i), sizeof(both));
		state = mix(state, both[0], both[1]);
	}
	return state;
}

static void tape_apply(struct backend *be, const struct state_view *v, int slot, int keep)
{
	uint32_t state = state_after(v, slot, keep);

	memcpy(state_at(v, slot), &state, sizeof(state));
}

static const struct backend_ops toy_backend_ops = {
	.name = "toy",
	.alloc = far_alloc,
	.free = far_free,
	.write = far_write,
	.read = far_read,
	.copy = far_copy,
	.tape_apply = tape_apply,
};

/* ---- the model ---- */

struct toy {
	struct model m;
	struct backend be;
	struct toy_opts o;
};

static uint32_t mark_of(int32_t tok, int pos)
{
	return mix(0x746f6b, tok, pos);
}

static void fill(float *out, bool poison, uint32_t state, uint32_t sum)
{
	uint64_t key = (uint64_t)state << 32 | sum;

	for (int v = 0; v < TOY_VOCAB; v++)
		out[v] = poison ? NAN : (float)(8 * rng_uniform(key, (uint64_t)v, 0));
	out[TOY_POISON] -= 1000; /* comes in prompts alone */
}

/* What the row of a window at pos holds: of the token and of all rows that it sees, so of everything before. */
static uint32_t fold(uint32_t seen, int32_t tok, int pos)
{
	return mix(seen + 0x77, tok, pos);
}

void toy_logits(const struct model *m, const int32_t *tok, int n, float *out)
{
	int window = ((const struct toy *)m)->o.window;
	uint32_t state = 0, sum = 0, *row = window ? xcalloc((size_t)n, sizeof(*row)) : NULL;

	for (int i = 0; i < n; i++) {
		if (m->state)
			state = mix(state, tok[i], i);
		sum += mark_of(tok[i], i);
		if (!window)
			continue;
		for (int k = i >= window ? i - window + 1 : 0; k < i; k++)
			row[i] = mix(row[i], (int)row[k], k);
		row[i] = fold(row[i], tok[i], i);
	}
	fill(out, tok[n - 1] == TOY_POISON, state, sum + (window ? row[n - 1] : 0));
	free(row);
}

static uint8_t *row_at(const struct kv_view *v, int item, int pos)
{
	int32_t page = v->page[(size_t)item * (size_t)v->page_max + (size_t)(pos / v->page_rows)];

	assert(page >= 0 && pos / v->page_rows >= v->first[item]);
	return v->base + (size_t)page * v->page_bytes + (size_t)(pos % v->page_rows) * v->layer[0].row_bytes[KV_KEYS];
}

/* What stands in the row: a token, or the number that it brings. */
static int32_t tok_of(const struct pass *p, int row)
{
	return p->tok[row] < 0 ? (int32_t)p->brought.v[~p->tok[row]][0] : p->tok[row];
}

/* Appends the row of the window at pos; returns it. */
static uint32_t window_row(const struct kv_view *v, int item, int32_t tok, int pos)
{
	uint32_t row = 0, seen;

	for (int k = pos >= v->window ? pos - v->window + 1 : 0; k < pos; k++) {
		memcpy(&seen, row_at(v, item, k), sizeof(seen));
		row = mix(row, (int)seen, k);
	}
	row = fold(row, tok, pos);
	memcpy(row_at(v, item, pos), &row, sizeof(row));
	return row;
}

/* Passes the state over a row; *ahead: the state after the item's last row. */
static uint32_t state_row(const struct state_view *sv, const struct pass *p, int row, uint32_t *ahead)
{
	const struct span *span = &p->span[p->item[row]];
	int pos = p->pos[row], taped = pos - span->pos - state_taped(sv, span);
	uint32_t state;

	if (pos == span->pos)
		*ahead = state_after(sv, span->slot, sv->owed[span->slot]);
	state = mix(*ahead, tok_of(p, row), pos);
	for (int i = 0; i < sv->n_keep; i++)
		if (sv->keep[i].item == p->item[row] && sv->keep[i].row == pos - span->pos + 1)
			memcpy(sv->keep[i].s, &state, sizeof(state));
	if (taped < 0)
		memcpy(state_at(sv, span->slot), &state, sizeof(state));
	else
		tape_put(sv, span->slot, state_taped_at(sv, span) + taped, tok_of(p, row), pos);
	*ahead = state;
	return state;
}

static void forward(struct model *m, struct pass *p)
{
	const struct kv_view *kv = p->kv[0], *window = p->kv[1];
	const struct state_view *sv = p->state;
	const struct toy_opts *o = &((struct toy *)m)->o;
	uint32_t ahead = 0;
	int logit = 0;

	if (o->on_forward)
		o->on_forward(o->on_forward_arg, p);
	if (o->idle)
		return;
	for (int row = 0; row < p->n_row; row++) {
		int item = p->item[row], pos = p->pos[row];
		uint32_t state = 0, sum = 0, mark = mark_of(tok_of(p, row), pos);

		assert(pos == p->span[item].pos + row - p->row[item] && pos < p->span[item].pos + p->span[item].n);
		memcpy(row_at(kv, item, pos), &mark, sizeof(mark));
		if (window)
			sum = window_row(window, item, tok_of(p, row), pos);
		if (sv)
			state = state_row(sv, p, row, &ahead);
		if (logit == p->n_logit || p->logit_row[logit] != row)
			continue;
		for (int i = 0; i <= pos; i++) {
			memcpy(&mark, row_at(kv, item, i), sizeof(mark));
			sum += mark;
		}
		fill(p->logits + (size_t)logit++ * TOY_VOCAB, tok_of(p, row) == TOY_POISON, state, sum);
	}
	assert(logit == p->n_logit);
}

static size_t work_floats(const struct model *m, int n_row, int n_logit)
{
	return 0;
}

static const struct model_ops toy_ops = { .size = sizeof(struct toy), .forward = forward, .work_floats = work_floats };

struct model *toy_open(const struct toy_opts *o)
{
	struct toy *t = xcalloc(1, sizeof(*t));
	struct model *m = &t->m;
	struct state_shape shape = { .layers = 1,
		                     .heads_k = 1,
		                     .heads_v = o->state_kb ? o->state_kb : 1,
		                     .dim_k = 16,
		                     .dim_v = 16,
		                     .conv_channels = 16,
		                     .conv_width = 4 };
	const struct kv_format *fmt = kv_format_find("f32");
	size_t page_bytes = 2 * (size_t)o->page_rows * fmt->row_bytes(DIM);
	int pages = o->pages ? o->pages : o->slots * (o->ctx_max / o->page_rows + 1) + 1;
	struct kv_group group = { .layers = 1, .heads = 1, .dim_k = DIM, .dim_v = DIM };
	struct paged_opts po = { .group = group,
		                 .rows = kv_rows_of(fmt),
		                 .page_rows = o->page_rows,
		                 .slots = o->slots,
		                 .ctx_max = o->ctx_max,
		                 .step_rows = o->step_rows,
		                 .pool = o->window ? &m->pool : NULL,
		                 .bytes_max = (size_t)pages * page_bytes };
	struct state_opts so = { .shape = shape,
		                 .slots = o->slots,
		                 .tape_rows = DRAFT_MAX,
		                 .snap_bytes_max = (size_t)(o->snaps ? o->snaps : 64) *
		                                   (state_slot_bytes(&shape) + 256) };
	struct paged_stats ps;

	t->o = *o;
	t->be = (struct backend){ .ops = &toy_backend_ops, .order = "toy", .threads = 1 };
	m->ops = &toy_ops;
	m->be = &t->be;
	m->arch = "toy";
	m->shape = (struct shape){ .layers = 2,
		                   .layers_attn = o->window ? 2 : 1,
		                   .layers_rec = 1,
		                   .hidden = 1,
		                   .vocab = TOY_VOCAB,
		                   .ctx_max = o->ctx_max,
		                   .kv = { group, group },
		                   .n_kv = o->window ? 2 : 1,
		                   .state = shape };
	m->opts = (struct model_opts){ .slots = o->slots,
		                       .ctx_max = o->ctx_max,
		                       .step_rows = o->step_rows,
		                       .tape_rows = DRAFT_MAX,
		                       .snap_bytes = so.snap_bytes_max };
	m->pool.max = 2 * po.bytes_max;
	m->kv[0] = paged_open(m->be, &po, NULL);
	assert(m->kv[0]);
	paged_stats(m->kv[0], &ps);
	assert(ps.pages == (o->window ? 2 * pages : pages));
	caches_add(&m->caches, m->kv[0]);
	if (o->window) {
		po.group.window = m->shape.kv[1].window = o->window;
		m->kv[1] = paged_open(m->be, &po, NULL);
		assert(m->kv[1]);
		caches_add(&m->caches, m->kv[1]);
	}
	if (!o->attention_only) {
		m->state = state_open(m->be, &so, NULL);
		assert(m->state);
		caches_add(&m->caches, m->state);
	}
	return m;
}

void toy_close(struct model *m)
{
	caches_check(&m->caches);
	caches_fini(&m->caches);
	free(m);
}

/* ---- the tokenizer ---- */

/* A byte as GPT-2's alphabet writes it, in JSON. */
static void put_byte(struct buf *b, int byte)
{
	int cp, n = 0;

	for (cp = 0; cp < byte; cp++)
		n += !((cp >= 33 && cp <= 126) || (cp >= 161 && cp <= 172) || cp >= 174);
	cp = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174 ? byte : 256 + n;
	buf_printf(b, "\\u%04x", (unsigned)cp);
}

static void put_token(struct buf *b, const char *bytes, size_t n, int id)
{
	buf_puts(b, id ? "," : "");
	buf_putc(b, '"');
	for (size_t i = 0; i < n; i++)
		put_byte(b, (unsigned char)bytes[i]);
	buf_printf(b, "\":%d", id);
}

struct tokenizer *toy_tokenizer(void)
{
	struct tokenizer *t;
	struct err err;
	struct buf b;

	buf_init(&b);
	buf_printf(
		&b,
		"{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"normalizer\":null,"
		"\"added_tokens\":[{\"id\":%d,\"content\":\"<|end|>\",\"single_word\":false,\"lstrip\":false,"
		"\"rstrip\":false,\"normalized\":false,\"special\":true}],"
		"\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false},"
		"\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},"
		"\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
		"\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":{",
		TOY_END);
	for (int i = 0; i < 256; i++)
		put_token(&b, (const char[]){ (char)i }, 1, i);
	put_token(&b, "\xe2\x82", 2, TOY_EURO_HEAD);
	put_token(&b, "xSTOPPEDy", 9, TOY_STOPPED);
	put_token(&b, "hello", 5, TOY_HELLO);
	buf_puts(&b, "},\"merges\":[]}}");
	if (tokenizer_open(&t, b.p, b.n, &err)) {
		fprintf(stderr, "toy tokenizer: %s\n", err.msg);
		abort();
	}
	buf_fini(&b);
	return t;
}
