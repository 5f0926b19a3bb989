/* toy_truth.c - the toy model, and what it must give.
 *
 * Keys and values of a position hold its prefix's hash, so a row of another
 * sequence, or of this one before it went back, is never mistaken for the right
 * one.  The recurrence hashes tokens into S. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "world.h"

const char *const kind_name[KINDS] = { "paged", "window", "state", "pooled", "carry" };
bool toy_far;

/* Formats of two sizes, so that layers and sides differ. */
static size_t toy_row_bytes(int dim)
{
	return (size_t)dim;
}
static size_t toy_wide_bytes(int dim)
{
	return (size_t)dim + 3;
}

static const struct kv_format toy_format = { .name = "toy", .row_bytes = toy_row_bytes };
static const struct kv_format toy_wide = { .name = "toy wide", .row_bytes = toy_wide_bytes };
static const struct kv_pair toy_pair[2][2] = {
	{ { &toy_format, &toy_wide }, { &toy_format, &toy_format } },
	{ { &toy_wide, &toy_wide }, { &toy_wide, &toy_format } },
};

static void toy_open(struct world *w, uint64_t bits)
{
	w->be = toy_backend_open(toy_far);
	for (int g = 0; g < GROUPS; g++, bits = bits >> 10 | bits << 54) {
		struct kv_group *y = &w->paged[g].group;

		w->paged[g].rows = kv_rows_of(&toy_format);
		if (bits >> 7 & 3)
			w->paged[g].rows.layer = toy_pair[bits >> 8 & 1];
		y->layers = 1 + (int)(bits & 1);
		y->heads = 1 + (int)(bits >> 1 & 1);
		y->dim_k = (int[]){ 8, 3, 5, 1 }[bits >> 2 & 3];
		y->dim_v = (int[]){ y->dim_k, y->dim_k, 4, 7 }[bits >> 4 & 3];
		y->latent = y->dim_v < y->dim_k;
	}
	w->state.shape = (struct state_shape){ .layers = 1 + (int)(bits >> 4 & 1),
		                               .heads_k = 1,
		                               .heads_v = 1,
		                               .dim_k = 1,
		                               .dim_v = 2,
		                               .conv_channels = 3,
		                               .conv_width = 1 + (int)(bits >> 5 & 3) };
}

uint64_t prefix_hash(uint64_t before, int32_t tok)
{
	return mix(before, (uint64_t)tok + 7);
}

/* What the toy writes to row (layer, key or value, head) of a position, cut to
 * the first dim bytes: byte i is byte i % 8 of the hash. */
static uint64_t kv_row(uint64_t h, int layer, int kv, int head)
{
	return mix(h, (uint64_t)(layer * 64 + kv * 32 + head));
}

static uint64_t input(int32_t tok, int pos, int layer)
{
	return (uint32_t)mix(mix((uint64_t)tok, (uint64_t)pos), (uint64_t)layer);
}

/* The first position that a row sees. */
static int seen_from(const struct kv_group *g, int pos)
{
	return g->window && pos >= g->window ? pos - g->window + 1 : 0;
}

/* ---- through the views ---- */

static uint8_t *kv_at(const struct kv_view *v, int item, int layer, int kv, int head, int pos)
{
	int32_t page = v->page[item * v->page_max + pos / v->page_rows];
	const struct kv_layer *y = &v->layer[layer];

	assert(page >= 0 && pos / v->page_rows >= v->first[item]);
	return v->base + (size_t)page * v->page_bytes + y->at[kv] +
	       (size_t)(head * v->page_rows + pos % v->page_rows) * y->row_bytes[kv];
}

/* The row of a head, key or value, as it stands in the cache, and as it must stand there. */
static uint64_t row_at(const struct kv_view *v, int item, int layer, int kv, int head, int pos)
{
	uint64_t row = 0;

	memcpy(&row, kv_at(v, item, layer, kv, head, pos), (size_t)(kv ? v->dim_v : v->dim));
	return row;
}

static uint64_t row_of(const struct kv_group *g, uint64_t h, int layer, int kv, int head)
{
	int n = kv ? g->dim_v : g->dim_k;
	uint64_t row = kv_row(h, layer, g->latent ? 0 : kv, head);

	return n < 8 ? row & (((uint64_t)1 << 8 * n) - 1) : row;
}

static void attend(const struct world *w, enum kind kind, const struct item *it, int n)
{
	const struct kv_view *v = paged_view(w->kind[kind]);
	const struct kv_group *g = &w->paged[kind].group;
	int sides = g->latent ? 1 : 2;

	assert(v->window == g->window && v->heads == g->heads && v->dim == g->dim_k && v->dim_v == g->dim_v);
	for (int i = 0; i < n; i++) {
		uint64_t h = 0;

		for (int pos = 0; pos < it[i].span.pos + it[i].span.n; pos++) {
			h = prefix_hash(h, it[i].tok[pos]);
			if (pos < it[i].span.pos)
				continue;
			for (int k = 0; k < g->layers * sides * v->heads; k++) {
				int layer = k / v->heads / sides, kv = k / v->heads % sides, head = k % v->heads;
				uint64_t row = row_of(g, h, layer, kv, head);

				memcpy(kv_at(v, i, layer, kv, head, pos), &row, (size_t)(kv ? v->dim_v : v->dim));
			}
		}
	}
	for (int i = 0; i < n; i++)
		for (int at = it[i].span.pos; at < it[i].span.pos + it[i].span.n; at++) {
			uint64_t seen = 0;

			for (int pos = seen_from(g, at); pos <= at; pos++)
				for (int k = 0; k < g->layers * 2 * v->heads; k++)
					seen = mix(seen,
					           row_at(v, i, k / v->heads / 2, k / v->heads % 2, k % v->heads, pos));
			it[i].out[at - it[i].span.pos][kind] = seen;
		}
}

static uint64_t state_hash(uint64_t h, const uint32_t *s, size_t n, const uint32_t *tail, size_t m)
{
	for (size_t i = 0; i < n; i++)
		h = mix(h, s[i]);
	for (size_t i = 0; i < m; i++)
		h = mix(h, tail[i]);
	return h;
}

static void recur(const struct world *w, const struct item *it, int n)
{
	const struct state_view *v = state_view(w->kind[STATE]);
	const struct state_shape *h = &v->shape;
	size_t ns = state_floats(h), nt = state_tail_floats(h), nk = state_tape_floats(h);
	uint32_t *s = xmalloc(ns * sizeof *s), *tail = xmalloc((nt + 1) * sizeof *tail);

	for (int i = 0; i < n; i++) {
		const struct span *sp = &it[i].span;
		int taped = state_taped(v, sp), taped_at = state_taped_at(v, sp);

		assert(taped_at + sp->n - taped <= v->tape_rows);
		assert(!v->still[sp->slot] || v->owed[sp->slot] + sp->n - sp->n_draft <= STATE_LATE);
		for (int r = 0; r < sp->n; r++)
			it[i].out[r][STATE] = 0;
		for (int layer = 0; layer < h->layers; layer++) {
			size_t at = (size_t)sp->slot * (size_t)h->layers + (size_t)layer;
			uint32_t *far_s = (uint32_t *)v->s + at * ns;
			uint32_t *far_tail = nt ? (uint32_t *)v->tail + at * nt : tail;

			memcpy(s, far_s, ns * sizeof *s);
			memcpy(tail, far_tail, nt * sizeof *tail);
			for (int r = 0; r < v->owed[sp->slot]; r++) {
				uint32_t y32;

				memcpy(&y32, state_tape_row(v, sp->slot, layer, r) + nk - 1, sizeof y32);
				toy_update(s, ns, tail, h->conv_width - 1, h->conv_channels, y32);
			}
			for (int r = 0; r < sp->n; r++) {
				uint64_t y = input(it[i].tok[sp->pos + r], sp->pos + r, layer);

				toy_update(s, ns, tail, h->conv_width - 1, h->conv_channels, y);
				it[i].out[r][STATE] = state_hash(it[i].out[r][STATE], s, ns, tail, nt);
				for (int k = 0; k < v->n_keep; k++)
					if (v->keep[k].item == i && v->keep[k].row == r + 1) {
						assert(r < taped);
						memcpy(v->keep[k].s + (size_t)layer * ns, s, ns * sizeof *s);
						memcpy(v->keep[k].tail + (size_t)layer * nt, tail, nt * sizeof *tail);
					}
				if (r < taped) {
					memcpy(far_s, s, ns * sizeof *s);
					memcpy(far_tail, tail, nt * sizeof *tail);
				} else {
					uint32_t y32 = (uint32_t)y;

					memcpy(state_tape_row(v, sp->slot, layer, taped_at + r - taped) + nk - 1, &y32,
					       sizeof y32);
				}
			}
		}
	}
	free(s);
	free(tail);
}

void toy_pool(const struct world *w, const struct item *it, int n)
{
	const struct pooled_view *v = pooled_view(w->kind[POOLED]);
	int g = v->group;

	for (int i = 0; i < n; i++) {
		const struct span *sp = &it[i].span;
		uint64_t *raw = v->raw + (size_t)sp->slot * (size_t)v->raw_rows;
		int base = sp->pos - sp->pos % g;
		uint64_t whole = 0, h = 0; /* groups before row's own; the prefix */

		for (int pos = 0; pos < sp->pos + sp->n; pos++) {
			h = prefix_hash(h, it[i].tok[pos]);
			if (pos >= sp->pos)
				raw[pos - base] = h;
		}
		for (int k = 0; k < base / g; k++)
			whole = mix(whole, v->block[sp->slot * v->block_max + k / POOLED_BLOCK][k % POOLED_BLOCK]);
		for (int pos = sp->pos; pos < sp->pos + sp->n; pos++) {
			uint64_t seen;

			if (pos % g == 0 && pos > base)
				whole = mix(whole, pooled_number(raw + (pos - g - base), g));
			seen = whole;
			for (int k = pos - pos % g; k <= pos; k++)
				seen = mix(seen, raw[k - base]);
			it[i].out[pos - sp->pos][POOLED] = seen;
		}
	}
}

static void toy_forward(struct world *w, const struct item *it, int n)
{
	toy_gate(w->be, true);
	for (int k = 0; k < GROUPS; k++)
		if (w->kind[k])
			attend(w, (enum kind)k, it, n);
	if (w->kind[STATE])
		recur(w, it, n);
	if (w->kind[POOLED])
		toy_pool(w, it, n);
	toy_gate(w->be, false);
}

/* ---- from the tokens alone ---- */

static void oracle_paged(const struct world *w, enum kind kind, const int32_t *tok, int first, int n,
                         uint64_t (*out)[KINDS])
{
	const struct kv_group *g = &w->paged[kind].group;
	uint64_t *h = xcalloc((size_t)n, sizeof *h);

	for (int pos = 0; pos < n; pos++)
		h[pos] = prefix_hash(pos ? h[pos - 1] : 0, tok[pos]);
	for (int at = first; at < n; at++) {
		uint64_t seen = 0;

		for (int pos = seen_from(g, at); pos <= at; pos++)
			for (int layer = 0; layer < g->layers; layer++)
				for (int kv = 0; kv < 2; kv++)
					for (int head = 0; head < g->heads; head++)
						seen = mix(seen, row_of(g, h[pos], layer, kv, head));
		out[at - first][kind] = seen;
	}
	free(h);
}

static void oracle_state(const struct world *w, const int32_t *tok, int first, int n, uint64_t (*out)[KINDS])
{
	const struct state_shape *h = &w->state.shape;
	size_t ns = state_floats(h), nt = state_tail_floats(h);
	uint32_t *s = xmalloc(ns * sizeof *s), *tail = xmalloc((nt + 1) * sizeof *tail);

	for (int layer = 0; layer < h->layers; layer++) {
		memset(s, 0, ns * sizeof *s);
		memset(tail, 0, nt * sizeof *tail);
		for (int pos = 0; pos < n; pos++) {
			toy_update(s, ns, tail, h->conv_width - 1, h->conv_channels, input(tok[pos], pos, layer));
			if (pos >= first)
				out[pos - first][STATE] = state_hash(layer ? out[pos - first][STATE] : 0, s, ns, tail,
				                                     nt);
		}
	}
	free(s);
	free(tail);
}

void toy_pool_oracle(const struct world *w, const int32_t *tok, int first, int n, uint64_t (*out)[KINDS])
{
	uint64_t *h = xcalloc((size_t)n, sizeof *h), whole = 0;
	int g = w->pooled.group;

	for (int pos = 0; pos < n; pos++) {
		uint64_t seen;

		h[pos] = prefix_hash(pos ? h[pos - 1] : 0, tok[pos]);
		if (pos && pos % g == 0)
			whole = mix(whole, pooled_number(h + pos - g, g));
		seen = whole;
		for (int k = pos - pos % g; k <= pos; k++)
			seen = mix(seen, h[k]);
		if (pos >= first)
			out[pos - first][POOLED] = seen;
	}
	free(h);
}

static void toy_oracle(struct world *w, const int32_t *tok, int first, int n, uint64_t (*out)[KINDS])
{
	for (int k = 0; k < GROUPS; k++)
		if (w->kind[k])
			oracle_paged(w, (enum kind)k, tok, first, n, out);
	if (w->kind[STATE])
		oracle_state(w, tok, first, n, out);
	if (w->kind[POOLED])
		toy_pool_oracle(w, tok, first, n, out);
}

const struct truth toy_truth = {
	.name = "toy",
	.open = toy_open,
	.forward = toy_forward,
	.oracle = toy_oracle,
};
