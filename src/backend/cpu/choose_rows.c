/* choose_rows.c - an indexer's choice of the positions that rows attend to (struct backend_ops, choose).
 *
 * Rows go in batches whose scores fit the work memory: first scores, in parts of a row and a stretch of positions, then
 * the choice, a row at a time.  A score is a function of the query, the key and the weights, and the choice one of the
 * scores, so neither hangs on batches or threads. */
#include <assert.h>
#include <string.h>

#include "backend/cpu/attend.h"

enum {
	STRETCH = 512,       /* positions of a part */
	SCORES = 1 << 18,    /* that a batch has at most, where it has several rows: they stay in the second cache */
	OPEN_LEAST = 32,     /* heads from which on a block of keys is dequantised to floats */
	DIGITS = 3,          /* of a score, when the choice looks for the last that is taken */
	DIGIT_VALUES = 2048, /* most values of a digit */
};

struct choose {
	struct pass *p;
	struct cpu_backend *c;
	const struct attn *a;
	const float *q, *weight;
	size_t q_row, q_head, q_bytes;
	const struct kv_view *view;
	int layer;
	struct kv_kernels kv[2];
	int32_t *chosen;
	int most;
	int row;       /* the batch's first */
	int stretches; /* of a row, at most */
	size_t ld;     /* scores from row to row */
	float *score;
};

/* A thread's memory: the queries of a row, keys that lie apart side by side, a block of dequantised keys, the scores of a
 * block by head. */
struct desk {
	uint8_t *q, *rows;
	float *open, *s;
};

static size_t desk_lay(const struct choose *d, struct desk *k, uint8_t *p)
{
	uint8_t *at = p;

	k->q = room_take(&at, (size_t)d->a->heads * d->q_bytes);
	k->rows = room_take(&at, d->a->pooled ? KV_BLOCK * d->view->layer[d->layer].row_bytes[KV_KEYS] : 0);
	k->open = room_take(&at, kv_opened_bytes(d->a->dim));
	k->s = room_take(&at, (size_t)d->a->heads * KV_BLOCK * sizeof(float));
	return (size_t)(at - p);
}

static int positions_of(const struct choose *d, int row)
{
	return attn_last(d->p, d->a, row) + 1 - (d->view->every > 1 ? 0 : attn_first(d->p, d->a, row));
}

/* Are keys rows of their own, for groups of positions? */
static bool of_groups(const struct choose *d)
{
	return d->view->every > 1;
}

/* Are these rows chosen themselves, and not the positions that they are of? */
static bool as_rows(const struct choose *d)
{
	return of_groups(d) && d->a->window > 0;
}

/* Positions of a key. */
static int each_of(const struct choose *d)
{
	return of_groups(d) ? d->view->every : d->a->pooled ? d->a->pooled : 1;
}

/* Positions that keys are chosen of, where there are more. */
static int most_of(const struct choose *d)
{
	return as_rows(d) ? (d->most - d->a->window) * each_of(d) + each_of(d) - 1 : d->most;
}

/* Keys [at, at + n) of a row's, counted from the first that it sees, of which *run lie one after the other. */
static const uint8_t *keys_at(const struct choose *d, const struct desk *k, int row, int at, int n, int *run)
{
	int each = each_of(d), pos = (of_groups(d) ? 0 : attn_first(d->p, d->a, row)) + at * each + each - 1,
	    item = d->p->item[row];
	size_t bytes = d->view->layer[d->layer].row_bytes[KV_KEYS];

	*run = (d->view->page_rows - pos % d->view->page_rows + each - 1) / (of_groups(d) ? each : 1);
	*run = *run < n ? *run : n;
	if (!d->a->pooled)
		return kv_at(d->view, item, d->layer, KV_KEYS, 0, pos);
	for (int i = 0; i < n; i++)
		memcpy(k->rows + (size_t)i * bytes, kv_at(d->view, item, d->layer, KV_KEYS, 0, pos + i * each), bytes);
	*run = n;
	return k->rows;
}

/* Scores of keys [at, at + n), n <= KV_BLOCK. */
static void score_block(const struct choose *d, const struct desk *k, float *out, int row, int at, int n)
{
	const struct kv_kernels *keys = &d->kv[KV_KEYS];
	int heads = d->a->heads, dim = d->a->dim;
	bool open = heads >= OPEN_LEAST && dim % 16 == 0 && keys->score_opened;
	struct kv_ahead none = { 0 };

	for (int i = 0, run; i < n; i += run) {
		const uint8_t *rows = keys_at(d, k, row, at + i, n - i, &run);

		if (open)
			keys->open(k->open + i * KV_PANEL, rows, run, dim);
		else
			keys->score(k->s + i, KV_BLOCK, k->q, heads, rows, run, dim, &none);
	}
	if (open)
		keys->score_opened(k->s, KV_BLOCK, k->q, heads, k->open, n, dim);
	d->c->op->index_sum(out, k->s, KV_BLOCK, d->weight ? d->weight + (size_t)row * (size_t)heads : NULL, heads, n);
}

static void score_part(void *ctx, int part)
{
	const struct choose *d = ctx;
	int row = d->row + part / d->stretches, at = part % d->stretches * STRETCH, n = positions_of(d, row);
	int keys = n / each_of(d), end = keys < at + STRETCH ? keys : at + STRETCH;
	float *score = d->score + (size_t)(row - d->row) * d->ld;
	struct desk k;

	if (n <= most_of(d) || at >= keys)
		return;
	desk_lay(d, &k, cpu_my_scratch(d->c));
	for (int h = 0; h < d->a->heads; h++)
		d->kv[KV_KEYS].query(k.q + (size_t)h * d->q_bytes,
		                     d->q + (size_t)row * d->q_row + (size_t)h * d->q_head, d->a->dim);
	for (; at < end; at += KV_BLOCK)
		score_block(d, &k, score + at, row, at, end - at < KV_BLOCK ? end - at : KV_BLOCK);
}

/* A number that has the order of scores: no number is least, and both zeros are equal. */
static uint32_t order_of(float score)
{
	uint32_t bits;

	if (score != score)
		return 0;
	score = score == 0 ? 0.0f : score;
	memcpy(&bits, &score, sizeof bits);
	return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The order of the most-th highest of n scores; *equal: how many of that order are taken. */
static uint32_t least_taken(const float *score, int n, int most, int *equal)
{
	static const struct {
		int shift, bits;
	} digit[DIGITS] = { { 21, 11 }, { 10, 11 }, { 0, 10 } };
	uint32_t above = 0;

	*equal = most;
	for (int k = 0; k < DIGITS; k++) {
		int count[DIGIT_VALUES] = { 0 }, d = (1 << digit[k].bits) - 1;

		for (int i = 0; i < n; i++) {
			uint32_t v = order_of(score[i]) >> digit[k].shift;

			if (!k || v >> digit[k].bits == above)
				count[v & (uint32_t)d]++;
		}
		for (; count[d] < *equal; d--)
			*equal -= count[d];
		above = above << digit[k].bits | (uint32_t)d;
	}
	return above;
}

/* Appends to `to` what a row's k keys are, from j on: rows of groups, or positions. */
static int take_key(const struct choose *d, int32_t *to, int at, int first, int j)
{
	int each = each_of(d);

	if (as_rows(d)) {
		to[++at] = ~j;
		return at;
	}
	for (int k = 0; k < each; k++)
		to[++at] = first + j * each + k;
	return at;
}

static void take_rows(void *ctx, int begin, int end)
{
	const struct choose *d = ctx;

	for (int i = begin; i < end; i++) {
		int row = d->row + i, n = positions_of(d, row), first = attn_first(d->p, d->a, row);
		int each = each_of(d), keys = n / each, most = most_of(d) / each, equal = 0, at = 0, taken = 0;
		int32_t *to = d->chosen + (size_t)row * (size_t)(d->most + 1);
		const float *score = d->score + (size_t)i * d->ld;
		bool all = n <= most_of(d);
		uint32_t least;

		if (all && !as_rows(d))
			keys = 0;
		least = keys && !all ? least_taken(score, keys, most, &equal) : 0;
		for (int j = 0; j < keys && taken < most; j++) {
			uint32_t order = all ? 1 : order_of(score[j]);

			if (order > least || (order == least && equal-- > 0)) {
				at = take_key(d, to, at, first, j);
				taken++;
			}
		}
		for (int j = as_rows(d) ? first : first + keys * each; j <= attn_last(d->p, d->a, row); j++)
			to[++at] = j;
		*to = at;
	}
}

void cpu_choose(struct pass *p, int32_t *chosen, int most, const struct attn *a, const float *q, size_t q_row,
                size_t q_head, const float *weight, const struct kv_view *view, int layer)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct choose d = { .p = p,
		            .c = c,
		            .a = a,
		            .q = q,
		            .weight = weight,
		            .q_row = q_row,
		            .q_head = q_head,
		            .view = view,
		            .layer = layer,
		            .chosen = chosen,
		            .most = most };
	uint8_t none[1];
	int longest = 0, batch;
	bool scored;

	assert(most >= (a->pooled ? a->pooled : 1) && (!a->pooled || a->first <= most) && a->heads_kv == 1 &&
	       view->heads == 1 && view->dim == a->dim);
	assert(view->every <= 1 || (!a->pooled && !a->first && (a->window ? a->window < most : view->every <= most)));
	layer_kernels(d.kv, &view->layer[layer], c->choices.attention);
	d.q_bytes = d.kv[KV_KEYS].query_bytes(a->dim);
	for (int r = 0; r < p->n_row; r++)
		longest = positions_of(&d, r) > longest ? positions_of(&d, r) : longest;
	scored = longest > most_of(&d);
	if (scored) {
		struct desk k;

		d.stretches = (longest + STRETCH - 1) / STRETCH;
		d.ld = (size_t)d.stretches * STRETCH;
		cpu_scratch(c, desk_lay(&d, &k, none));
	}
	batch = scored && (size_t)p->n_row * d.ld > SCORES
	? (int)(SCORES / d.ld) : p->n_row;
	batch = batch ? batch : 1;
	if (scored)
		d.score = room_get(&c->work, (size_t)batch * d.ld * sizeof(float));
	for (int n; d.row < p->n_row; d.row += n) {
		n = p->n_row - d.row < batch ? p->n_row - d.row : batch;
		if (scored)
			pool_run(c->pool, score_part, &d, n * d.stretches);
		cpu_range(c, take_rows, &d, n, 1);
	}
}
