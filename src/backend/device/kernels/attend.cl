/* attend.cl - attention over keys and values in their pages, in the processor's order (backend/cpu/attend.c): scores by 16 partial
 * sums (codes: quant/kv/kv_coded.c), softmax over blocks of 64 keys at absolute positions, a partial of every 256 keys, partials
 * merged in rising order.
 *
 * A work-group has a unit of at most Q queries of one head of keys: those of adjacent rows of an item, in order, `of_row` of each.
 * Where few rows meet many keys, work-groups have a segment each (attend_part, then attend_merge), else all of them in turn
 * (attend).  A work-item has a key when scores are made, and two dims of every G-th query when values are summed.  Heads have at
 * most DIM dims.  With TURNED keys or values may be rotated, and heads have DIM dims. */
#include "dialect.cl"
#include "math.cl"
#include "../kernel_shapes.h"
#include "sums.cl"
#include "kv.cl"

#if DIM > 512
#define THREADS 288 /* DIM / 2: a pair of dims each */
#else
#define THREADS 256
#endif
#define SEGMENT 256
#define BLOCK 64
#define BLOCKS (SEGMENT / BLOCK)
#define Q (DIM > 256 ? 8 : 16)
#define LINE (SEGMENT + 16) /* floats from one query's scores to the next */
#define PAIRS (DIM / 2)
#define G (THREADS / PAIRS)
#define OWN (Q / G)
#if defined(TURNED)
#define IS_TURNED(side) ((side).unit != 0.0f)
#else
#define IS_TURNED(side) 0
#endif
#define TOGETHER 4 /* queries that meet a key at once */
/* Values whose loads are under way at once, and turns of a loop over dims: more only takes PoCL's compiler longer. */
#if defined(__NVPTX__)
#define KEYS 8
#define UNROLL_DIMS _Pragma("unroll 4")
#else
#define KEYS 2
#define UNROLL_DIMS
#endif

/* Who attends: a unit's rows, and the query heads [head, head + of_row). */
struct unit {
	int row, n_row, kv_head, head, of_row, n;
	int item, from, see; /* [from, see): positions of which some row sees some */
};

/* Local memory of a work-group. */
struct desk {
	LOCAL uint *q;      /* [Q][DIM] as floats; of codes: [Q][DIM / 4] upper bytes, then as many lower ones */
	LOCAL float *q_of;  /* [Q][17] of coded queries: sums of groups, and the scale */
	LOCAL float *s;     /* [Q][LINE] scores, then weights */
	LOCAL float *corr;  /* [Q][BLOCKS] */
	LOCAL float *top;   /* [Q][BLOCKS] */
	LOCAL float *m, *l; /* [Q] of all segments so far */
	LOCAL float *old, *add; /* [Q] what accumulators so far and those of the segment are multiplied with */
	LOCAL int *from, *see, *in; /* [Q] the positions that the query sees; does it see some of this segment? */
	LOCAL long *value;  /* [SEGMENT] rows of values */
};
#define DESK                                                                                                                  \
	LOCAL uint desk_q[Q * DIM];                                                                                           \
	LOCAL float desk_s[Q * LINE], desk_f[Q * (17 + 2 * BLOCKS + 4)];                                                      \
	LOCAL int desk_i[3 * Q];                                                                                              \
	LOCAL long desk_v[SEGMENT];                                                                                           \
	struct desk d = { desk_q, desk_f, desk_s, desk_f + 17 * Q, desk_f + (17 + BLOCKS) * Q, desk_f + (17 + 2 * BLOCKS) * Q, \
		          desk_f + (18 + 2 * BLOCKS) * Q, desk_f + (19 + 2 * BLOCKS) * Q, desk_f + (20 + 2 * BLOCKS) * Q,     \
		          desk_i, desk_i + Q, desk_i + 2 * Q, desk_v }

FN int first_seen(GLOBAL const struct attend_shape *s, int pos)
{
	int first = s->window ? pos - s->window + 1 : 0;

	if (first < s->first && pos >= s->first)
		first = s->first;
	return first > 0 ? first : 0;
}
FN int last_seen(GLOBAL const struct attend_shape *s, GLOBAL const struct step_row *row)
{
	return s->both_ways ? row->see : row->pos;
}

/* The i-th unit: those of the table, each by heads of keys, each by parts of the query heads that share one. */
FN void unit_of(struct unit *u, GLOBAL const struct attend_shape *s, GLOBAL const struct attend_unit *units,
                GLOBAL const struct step_row *rows, int i)
{
	int group = s->heads / s->heads_kv, parts = (group + Q - 1) / Q, part = i % parts;
	GLOBAL const struct attend_unit *from = units + i / parts / s->heads_kv;

	u->row = from->row, u->n_row = from->n;
	u->kv_head = i / parts % s->heads_kv;
	u->head = u->kv_head * group + part * Q;
	u->of_row = group - part * Q < Q ? group - part * Q : Q;
	u->n = u->n_row * u->of_row;
	u->item = rows[u->row].item;
	u->from = first_seen(s, rows[u->row].pos);
	u->see = last_seen(s, rows + u->row + u->n_row - 1) + 1;
}

/* Queries as codes of 15 bits with one scale, 16 work-items a query. */
FN void code_queries(const struct desk *d, GLOBAL const struct attend_shape *s, SCRATCH_PARAM, int t)
{
	int j = t / 16 < Q ? t / 16 : Q - 1, l = t % 16, mine = t / 16 < Q, words = kv_chunks(s->dim) * (CHUNK / 4);
	LOCAL uint *q = d->q + j * DIM;
	float most = 0.0f, scale, inv;
	uint high[DIM / 64], low[DIM / 64];

	for (int i = l; i < s->dim; i += 16)
		most = max1(abs1(as_float1(q[i])), most);
	most = top16(most, sh, t);
	if (mine && l == 0)
		d->q_of[j * 17 + 16] = most;
	BARRIER();
	most = d->q_of[j * 17 + 16];
	scale = most < 1e-30f ? 0.0f : div1(most, 16256.0f);
	inv = most < 1e-30f ? 0.0f : div1(1.0f, scale);
	UNROLL
	for (int k = 0; k < DIM / 64; k++) {
		int w = l + 16 * k;

		high[k] = low[k] = 0;
		for (int i = 0; i < 4 && w < words; i++) {
			float v = 4 * w + i < s->dim ? mul1(as_float1(q[4 * w + i]), inv) : 0.0f;
			int c, h;

			v = max1(min1(v, 16256.0f), -16256.0f);
			c = (int)(as_uint1(add1(v, 12582912.0f)) - 0x4b400000u);
			h = (c + 64) >> 7;
			high[k] |= ((uint)h & 255u) << (8 * i);
			low[k] |= ((uint)(c - 128 * h) & 255u) << (8 * i);
		}
	}
	BARRIER();
	if (mine) {
		if (l == 0)
			d->q_of[j * 17 + 16] = scale;
		UNROLL
		for (int k = 0; k < DIM / 64; k++) {
			q[l + 16 * k] = high[k];
			q[DIM / 4 + l + 16 * k] = low[k];
		}
	}
	BARRIER();
	if (mine) { /* the sum of group l */
		int sum = 0, of = s->k.group / 4;

		for (int w = l * of; w < (l + 1) * of && w * 4 < s->dim; w++)
			sum += 128 * dot_u8s8(0x01010101u, q[w]) + dot_u8s8(0x01010101u, q[DIM / 4 + w]);
		d->q_of[j * 17 + l] = (float)sum;
	}
}

/* Queries, what they see, and what they have so far. */
FN void begin(const struct desk *d, GLOBAL const struct attend_shape *s, const struct unit *u, GLOBAL const struct step_row *rows,
              GLOBAL const float *q, SCRATCH_PARAM, int t)
{
	for (int i = t; i < Q * DIM; i += THREADS) {
		int j = i / DIM, c = i % DIM, in = j < u->n && c < s->dim;

		d->q[i] = in ? as_uint1(q[(long)(u->row + j / u->of_row) * s->q_row + (long)(u->head + j % u->of_row) * s->q_head + c]) :
		               0u;
	}
	if (t < Q) {
		int row = u->row + (t < u->n ? t / u->of_row : 0);

		d->from[t] = first_seen(s, rows[row].pos);
		d->see[t] = t < u->n ? last_seen(s, rows + row) + 1 : 0;
		d->m[t] = -INFINITY;
		d->l[t] = 0.0f;
	}
	BARRIER();
	if (s->k.bits < 16)
		code_queries(d, s, sh, t);
	BARRIER();
}

/* Sixteen numbers of a row of floats, from d0 on, of which n are there.  wide: the row lies at a multiple of 16 bytes. */
FN void row_16(float *x, GLOBAL const uchar *row, int bits, int d0, int n, int wide)
{
	if (wide && bits == 16 && n >= 16) {
		uint4 a = ((GLOBAL const uint4 *)row)[d0 / 8], b = ((GLOBAL const uint4 *)row)[d0 / 8 + 1];
		uint two[8];

		two[0] = a.x, two[1] = a.y, two[2] = a.z, two[3] = a.w, two[4] = b.x, two[5] = b.y, two[6] = b.z, two[7] = b.w;
		UNROLL
		for (int i = 0; i < 8; i++)
			x[2 * i] = low_bf16(two[i]), x[2 * i + 1] = high_bf16(two[i]);
		return;
	}
	UNROLL
	for (int i = 0; i < 16; i += 2) {
		if (bits == 16) {
			uint two = i < n ? ((GLOBAL const uint *)row)[(d0 + i) / 2] : 0u;

			x[i] = low_bf16(two), x[i + 1] = high_bf16(two);
		} else {
			x[i] = i < n ? ((GLOBAL const float *)row)[d0 + i] : 0.0f;
			x[i + 1] = i < n ? ((GLOBAL const float *)row)[d0 + i + 1] : 0.0f;
		}
	}
}

/* The tree of 16 partial sums of one work-item. */
FN float tree_own(float *f)
{
	UNROLL
	for (int h = 8; h; h /= 2)
		UNROLL
		for (int i = 0; i < h; i++)
			f[i] = add1(f[i], f[i + h]);
	return f[0];
}

/* Scores of TOGETHER queries from j0 on by one key. */
FN void score_floats(const struct desk *d, GLOBAL const uchar *row, GLOBAL const struct attend_shape *s, int j0, int t)
{
	float f[TOGETHER][16];
	int wide = ((ulong)row & 15u) == 0;

	UNROLL
	for (int j = 0; j < TOGETHER; j++)
		UNROLL
		for (int i = 0; i < 16; i++)
			f[j][i] = 0.0f;
	UNROLL_DIMS
	for (int d0 = 0; d0 < s->dim; d0 += 16) {
		int n = s->dim - d0;
		float x[16];

		row_16(x, row, s->k.bits, d0, n, wide);
		UNROLL
		for (int j = 0; j < TOGETHER; j++)
			UNROLL
			for (int i = 0; i < 16; i += 4) {
				uint4 q = *(LOCAL const uint4 *)(d->q + (j0 + j) * DIM + d0 + i);

				if (i < n) { /* dims are a multiple of 4 */
					f[j][i] = fma1(as_float1(q.x), x[i], f[j][i]);
					f[j][i + 1] = fma1(as_float1(q.y), x[i + 1], f[j][i + 1]);
					f[j][i + 2] = fma1(as_float1(q.z), x[i + 2], f[j][i + 2]);
					f[j][i + 3] = fma1(as_float1(q.w), x[i + 3], f[j][i + 3]);
				}
			}
	}
	UNROLL
	for (int j = 0; j < TOGETHER; j++)
		d->s[(j0 + j) * LINE + t] = tree_own(f[j]);
}

#if defined(TURNED)
/* The entries of a book that four codes name, a byte each. */
FN uint named_entries(GLOBAL const struct kv_shape *s, uint codes)
{
	uint book[4];

	UNROLL
	for (int i = 0; i < 4; i++)
		book[i] = (uint)s->book[i];
	return table16(book, codes);
}

/* Word i of a chunk of codes of 2 or 3 bits, a byte each. */
FN uint small_word(GLOBAL const uint *chunk, int bits, int i)
{
	uint w = chunk[i % 4] >> (i / 4 * 2) & 0x03030303u;

	return bits == 3 ? w | ((chunk[4 + i / 8] >> (i % 8 * 4) & 15u) * 0x00204081u & 0x01010101u) << 2 : w;
}
#endif

/* The words of a chunk of codes, a byte each; of rotated rows the entries that they name. */
FN void chunk_words(uint *w, GLOBAL const uint *row, GLOBAL const struct kv_shape *s, int chunk)
{
	int bits = s->bits;

#if defined(TURNED)
	for (int i = 0; i < 16 && bits < 4; i++)
		w[i] = small_word(row + 2 * bits * chunk, bits, i);
	if (bits >= 4)
#endif
	UNROLL
	for (int i = 0; i < 8; i++) {
		if (bits == 8) {
			w[i] = row[16 * chunk + i];
			w[8 + i] = row[16 * chunk + 8 + i];
		} else {
			uint x = row[8 * chunk + i];

			w[i] = x & 0x0f0f0f0fu, w[8 + i] = (x >> 4) & 0x0f0f0f0fu;
		}
	}
#if defined(TURNED)
	for (int i = 0; i < 16 && IS_TURNED(*s); i++)
		w[i] = named_entries(s, w[i]);
#endif
}
FN int dot_code(GLOBAL const struct kv_shape *s, uint codes, uint q)
{
	return IS_TURNED(*s) ? dot_s8s8(codes, q) : dot_u8s8(codes, q);
}

/* The same for a row of codes: lane i has the words i of its chunks. */
FN void score_codes(const struct desk *d, GLOBAL const uchar *row, GLOBAL const struct attend_shape *s, int j0, int t)
{
	GLOBAL const ushort *scales = (GLOBAL const ushort *)(row + kv_scales_at(&s->k, s->dim));
	int turned = IS_TURNED(s->k), groups = turned ? 0 : s->dim / s->k.group, chunks = kv_chunks(s->dim);
	int span = turned ? chunks : s->k.group > CHUNK ? s->k.group / CHUNK : 1;
	float f[2][16];

	UNROLL
	for (int i = 0; i < 16; i++) {
		float bias = i < groups ? low_f16(scales[groups + i]) : 0.0f;

		UNROLL
		for (int j = 0; j < 2; j++)
			f[j][i] = mul1(bias, i < groups ? d->q_of[(j0 + j) * 17 + i] : 0.0f);
	}
	for (int c = 0; c < chunks; c += span) {
		int g0 = turned ? 0 : c * CHUNK / s->k.group, g1 = s->k.group == 32 ? g0 + 1 : g0;
		float low = turned ? *(GLOBAL const float *)scales : low_f16(scales[g0]);
		float high = turned ? low : g1 < groups ? low_f16(scales[g1]) : 0.0f;
		int sum[2][16];

		UNROLL
		for (int j = 0; j < 2; j++)
			UNROLL
			for (int i = 0; i < 16; i++)
				sum[j][i] = 0;
		for (int b = c; b < c + span && b < chunks; b++) {
			uint w[16];

			chunk_words(w, (GLOBAL const uint *)row, &s->k, b);
			UNROLL
			for (int j = 0; j < 2; j++)
				UNROLL
				for (int i = 0; i < 16; i++) {
					LOCAL const uint *q = d->q + (j0 + j) * DIM + b * 16 + i;

					sum[j][i] += 128 * dot_code(&s->k, w[i], q[0]) + dot_code(&s->k, w[i], q[DIM / 4]);
				}
		}
		UNROLL
		for (int j = 0; j < 2; j++)
			UNROLL
			for (int i = 0; i < 16; i++)
				f[j][i] = fma1(i < 8 ? low : high, (float)sum[j][i], f[j][i]);
	}
	UNROLL
	for (int j = 0; j < 2; j++)
		d->s[(j0 + j) * LINE + t] = mul1(d->q_of[(j0 + j) * 17 + 16], tree_own(f[j]));
}

/* Scores of all queries by key t of the segment from position `base` on, and where its value lies. */
FN void scores(const struct desk *d, GLOBAL const struct attend_shape *s, const struct unit *u, GLOBAL const int *page,
               GLOBAL const uchar *kv, int base, int t)
{
	int pos = base + t;
	GLOBAL const uchar *row;

	if (t >= SEGMENT || pos < u->from || pos >= u->see)
		return;
	d->value[t] = kv_row_at(page, s->page_max, s->page_rows, s->page_bytes, &s->v, u->item, u->kv_head, pos);
	row = kv + kv_row_at(page, s->page_max, s->page_rows, s->page_bytes, &s->k, u->item, u->kv_head, pos);
	if (s->k.bits >= 16)
		for (int j = 0; j < u->n; j += TOGETHER)
			score_floats(d, row, s, j, t);
	else
		for (int j = 0; j < u->n; j += 2)
			score_codes(d, row, s, j, t);
}

/* Scores to weights, 16 work-items a query; and what the query has after the segment. */
FN void softmax(const struct desk *d, GLOBAL const struct attend_shape *s, int base, SCRATCH_PARAM, int t)
{
	int mine = t / 16 < Q, j = mine ? t / 16 : 0, l = t % 16, from = d->from[j] - base, see = d->see[j] - base;
	float scale = s->cap != 0.0f ? 1.0f : s->scale, e[BLOCKS][4], top[BLOCKS], m = -INFINITY, sum = 0.0f;

	UNROLL
	for (int b = 0; b < BLOCKS; b++) {
		top[b] = -INFINITY;
		UNROLL
		for (int v = 0; v < 4; v++) {
			int i = b * BLOCK + 16 * v + l, in = mine && i >= from && i < see;
			float x = in ? d->s[j * LINE + i] : 0.0f;

			if (s->cap != 0.0f)
				x = mul1(tanh_of_double(mul1(x, s->cap_by)), s->cap);
			e[b][v] = in ? mul1(x, scale) : -INFINITY;
			top[b] = max1(top[b], e[b][v]);
		}
		top[b] = top16(top[b], sh, t);
		if (mine && l == 0)
			d->top[j * BLOCKS + b] = top[b];
	}
	BARRIER();
	UNROLL
	for (int b = 0; b < BLOCKS; b++) {
		int sees = from < (b + 1) * BLOCK && see > b * BLOCK;
		float next = max1(d->top[j * BLOCKS + b], m), corr = exp_bits(sub1(m, next)), all = 0.0f;

		UNROLL
		for (int v = 0; v < 4; v++) {
			e[b][v] = exp_bits(sub1(e[b][v], next));
			all = add1(all, e[b][v]);
			if (mine)
				d->s[j * LINE + b * BLOCK + 16 * v + l] = e[b][v];
		}
		all = tree16(all, sh, t);
		if (mine && l == 0)
			d->corr[j * BLOCKS + b] = sees ? corr : 1.0f;
		sum = sees ? fma1(sum, corr, all) : sum;
		m = sees ? next : m;
	}
	if (mine && l == 0) {
		float best = max1(m, d->m[j]), old = exp_bits(sub1(d->m[j], best)), add = exp_bits(sub1(m, best));

		d->in[j] = from < SEGMENT && see > 0;
		d->old[j] = old, d->add[j] = add;
		if (from < SEGMENT && see > 0) {
			d->l[j] = fma1(sum, add, mul1(d->l[j], old));
			d->m[j] = best;
		}
	}
}

#if defined(TURNED)
/* value_pair of a rotated row. */
FN void turned_pair(float *x, GLOBAL const uchar *row, GLOBAL const struct attend_shape *s, int i)
{
	float scale = *(GLOBAL const float *)(row + kv_scales_at(&s->v, s->dim));
	GLOBAL const uchar *chunk = row + i / CHUNK * (CHUNK / 8) * s->v.bits;
	int four = s->v.bits == 4, at = i % CHUNK, of = four ? 32 : 16;
	uint two = (uint)((GLOBAL const ushort *)chunk)[at % of / 2] >> (at / of * (four ? 4 : 2)) & (four ? 0x0f0fu : 0x0303u);

	if (s->v.bits == 3) {
		uint upper = (uint)chunk[16 + at / 8] >> at % 8;

		two |= (upper & 1u) << 2 | (upper & 2u) << 9;
	}
	two = named_entries(&s->v, two);
	x[0] = mul1(scale, (float)((int)(two << 24) >> 24));
	x[1] = mul1(scale, (float)((int)(two << 16) >> 24));
}
#endif

/* Numbers i and i + 1 of a row of values, i even. */
FN void value_pair(float *x, GLOBAL const uchar *row, GLOBAL const struct attend_shape *s, int i)
{
	if (s->v.bits == 16) {
		uint two = ((GLOBAL const uint *)row)[i / 2];

		x[0] = low_bf16(two), x[1] = high_bf16(two);
	} else if (s->v.bits == 32) {
		x[0] = ((GLOBAL const float *)row)[i], x[1] = ((GLOBAL const float *)row)[i + 1];
#if defined(TURNED)
	} else if (IS_TURNED(s->v)) {
		turned_pair(x, row, s, i);
#endif
	} else {
		GLOBAL const ushort *scales = (GLOBAL const ushort *)(row + kv_scales_at(&s->v, s->dim)) + i / s->v.group;
		float scale = low_f16(scales[0]), bias = low_f16(scales[s->dim / s->v.group]);
		int shift = i % CHUNK / 32 * 4;
		uint two = s->v.bits == 8 ? ((GLOBAL const ushort *)row)[i / 2] :
		                            (uint)((GLOBAL const ushort *)row)[i / CHUNK * 16 + i % 32 / 2] >> shift;
		uint mask = s->v.bits == 8 ? 255u : 15u;

		x[0] = fma1(scale, (float)(two & mask), bias);
		x[1] = fma1(scale, (float)(two >> 8 & mask), bias);
	}
}

/* Weights times values of the segment. */
FN void mixes(float acc[OWN][2], const struct desk *d, GLOBAL const struct attend_shape *s, const struct unit *u,
              GLOBAL const uchar *kv, int base, int t)
{
	int i0 = t % PAIRS * 2, g = t / PAIRS, in = i0 < s->dim;

	UNROLL
	for (int o = 0; o < OWN; o++)
		acc[o][0] = acc[o][1] = 0.0f;
	for (int b = 0; b < BLOCKS && in; b++) {
		int lo = u->from - base > b * BLOCK ? u->from - base : b * BLOCK,
		    hi = u->see - base < (b + 1) * BLOCK ? u->see - base : (b + 1) * BLOCK;
		int all = d->from[u->n - 1] - base <= lo && d->see[0] - base >= hi;

		UNROLL
		for (int o = 0; o < OWN; o++) {
			float corr = d->corr[(g + G * o) * BLOCKS + b];

			acc[o][0] = mul1(acc[o][0], corr), acc[o][1] = mul1(acc[o][1], corr);
		}
		for (int i = lo; i < hi; i += KEYS) {
			float x[KEYS][2];

			UNROLL
			for (int k = 0; k < KEYS; k++)
				value_pair(x[k], kv + d->value[i + k < hi ? i + k : hi - 1], s, i0);
			UNROLL
			for (int o = 0; o < OWN; o++) {
				int j = g + G * o;

				if (j >= u->n)
					continue;
				UNROLL
				for (int k = 0; k < KEYS; k++) {
					int at = base + i + k;

					/* What a row does not see must not even add zero times itself. */
					if (i + k < hi && (all || (at >= d->from[j] && at < d->see[j]))) {
						acc[o][0] = fma1(d->s[j * LINE + i + k], x[k][0], acc[o][0]);
						acc[o][1] = fma1(d->s[j * LINE + i + k], x[k][1], acc[o][1]);
					}
				}
			}
		}
	}
}

/* Multiplies what the queries have by what a sink leaves of it, and adds that to their sums of weights. */
FN void sink(float all[OWN][2], float *sum, const struct desk *d, const struct unit *u, GLOBAL const float *sinks, int t)
{
	UNROLL
	for (int o = 0; o < OWN; o++) {
		int j = t / PAIRS + G * o, there = j < u->n;

		sum[o] = d->l[j];
		if (sinks && there) {
			float m = d->m[j], own = sinks[u->head + j % u->of_row], best = max1(own, m), corr = exp_bits(sub1(m, best));

			sum[o] = fma1(sum[o], corr, exp_bits(sub1(own, best)));
			all[o][0] = mul1(all[o][0], corr), all[o][1] = mul1(all[o][1], corr);
		}
	}
}

#if defined(TURNED)
/* Rotates what the queries have back, through d->q. */
FN void turn_back(float all[OWN][2], const struct desk *d, GLOBAL const struct attend_shape *s, int t)
{
	int n = IS_TURNED(s->v) ? DIM : 0;
	LOCAL float *x = (LOCAL float *)d->q;

	BARRIER();
	UNROLL
	for (int o = 0; o < OWN; o++) {
		LOCAL float *at = x + (t / PAIRS + G * o) * DIM + t % PAIRS * 2;

		at[0] = all[o][0], at[1] = all[o][1];
	}
	BARRIER();
	hadamard_local(x, Q, DIM, n, t, THREADS);
	signs_local(x, Q, DIM, n, &s->turn, 1, 1.0f / DIM, t, THREADS);
	hadamard_local(x, Q, DIM, n, t, THREADS);
	signs_local(x, Q, DIM, n, &s->turn, 0, 1.0f, t, THREADS);
	UNROLL
	for (int o = 0; o < OWN; o++) {
		LOCAL const float *at = x + (t / PAIRS + G * o) * DIM + t % PAIRS * 2;

		all[o][0] = at[0], all[o][1] = at[1];
	}
}
#endif

/* What the accumulators of all segments give. */
FN void finish(float all[OWN][2], const struct desk *d, GLOBAL const struct attend_shape *s, const struct unit *u, GLOBAL float *out,
               GLOBAL const float *gate, GLOBAL const float *sinks, int t)
{
	int i0 = t % PAIRS * 2, g = t / PAIRS;
	float sum[OWN];

	sink(all, sum, d, u, sinks, t);
#if defined(TURNED)
	turn_back(all, d, s, t);
#endif
	UNROLL
	for (int o = 0; o < OWN; o++) {
		int j = g + G * o, row = u->row + j / u->of_row, head = u->head + j % u->of_row;

		if (j < u->n && i0 < s->dim) {
			float r = div1(1.0f, sum[o]);
			GLOBAL float *to = out + ((long)row * s->heads + head) * s->dim + i0;

			UNROLL
			for (int i = 0; i < 2; i++) {
				float a = mul1(all[o][i], r);

				to[i] = gate ? mul1(a, sigmoid_bits(gate[(long)row * s->q_row + (long)head * s->q_head + i0 + i])) :
				               a;
			}
		}
	}
}

/* The accumulators of a segment go into those of all before it. */
FN void merge(float all[OWN][2], float acc[OWN][2], const struct desk *d, int t)
{
	UNROLL
	for (int o = 0; o < OWN; o++) {
		int j = t / PAIRS + G * o;

		if (d->in[j])
			UNROLL
			for (int i = 0; i < 2; i++)
				all[o][i] = fma1(acc[o][i], d->add[j], mul1(all[o][i], d->old[j]));
	}
}

/* out[row][heads * dim] */
KERNEL(THREADS) attend(MEM(float, out), MEM(const float, q), MEM(const float, gate), MEM(const float, sinks),
                       MEM(const uchar, kv), MEM(const int, page), MEM(const struct step_row, rows),
                       MEM(const struct attend_unit, units), MEM(const struct attend_shape, shape))
{
	SCRATCH(scratch, THREADS);
	DESK;
	USE(float, out);
	USE_CONST(float, q);
	USE_CONST(float, gate);
	USE_CONST(float, sinks);
	USE_CONST(uchar, kv);
	USE_CONST(int, page);
	USE_CONST(struct step_row, rows);
	USE_CONST(struct attend_unit, units);
	USE_CONST(struct attend_shape, shape);
	GLOBAL const struct attend_shape *s = shape;
	struct unit u;
	int t = TID;
	float all[OWN][2], acc[OWN][2];

	unit_of(&u, s, units, rows, BID);
	begin(&d, s, &u, rows, q, SCRATCH_OF(scratch), t);
	UNROLL
	for (int o = 0; o < OWN; o++)
		all[o][0] = all[o][1] = 0.0f;
	for (int base = u.from / SEGMENT * SEGMENT; base < u.see; base += SEGMENT) {
		scores(&d, s, &u, page, kv, base, t);
		BARRIER();
		softmax(&d, s, base, SCRATCH_OF(scratch), t);
		BARRIER();
		mixes(acc, &d, s, &u, kv, base, t);
		merge(all, acc, &d, t);
		BARRIER();
	}
	finish(all, &d, s, &u, out, NONE(gate) ? 0 : gate, NONE(sinks) ? 0 : sinks, t);
}

/* A segment of each unit: part[unit][segment][Q][DIM + 2], the accumulators, the maximum and the sum. */
KERNEL(THREADS) attend_part(MEM(float, part), MEM(const float, q), MEM(const uchar, kv), MEM(const int, page),
                            MEM(const struct step_row, rows), MEM(const struct attend_unit, units),
                            MEM(const struct attend_shape, shape), int segments)
{
	SCRATCH(scratch, THREADS);
	DESK;
	USE(float, part);
	USE_CONST(float, q);
	USE_CONST(uchar, kv);
	USE_CONST(int, page);
	USE_CONST(struct step_row, rows);
	USE_CONST(struct attend_unit, units);
	USE_CONST(struct attend_shape, shape);
	GLOBAL const struct attend_shape *s = shape;
	struct unit u;
	int t = TID, base;
	float acc[OWN][2];

	unit_of(&u, s, units, rows, BID);
	base = (u.from / SEGMENT + BID_Y) * SEGMENT;
	if (base >= u.see)
		return;
	begin(&d, s, &u, rows, q, SCRATCH_OF(scratch), t);
	scores(&d, s, &u, page, kv, base, t);
	BARRIER();
	softmax(&d, s, base, SCRATCH_OF(scratch), t);
	BARRIER();
	mixes(acc, &d, s, &u, kv, base, t);
	UNROLL
	for (int o = 0; o < OWN; o++) {
		int j = t / PAIRS + G * o;
		GLOBAL float *to = part + (((long)BID * segments + BID_Y) * Q + j) * (DIM + 2);

		to[t % PAIRS * 2] = acc[o][0], to[t % PAIRS * 2 + 1] = acc[o][1];
		if (t % PAIRS == 0)
			to[DIM] = d.m[j], to[DIM + 1] = d.l[j];
	}
}

/* Merges the segments of each unit. */
KERNEL(THREADS) attend_merge(MEM(float, out), MEM(const float, part), MEM(const float, gate), MEM(const float, sinks),
                             MEM(const struct step_row, rows), MEM(const struct attend_unit, units),
                             MEM(const struct attend_shape, shape), int segments)
{
	LOCAL float f[4 * Q];
	LOCAL int in[Q];
#if defined(TURNED)
	LOCAL uint turned[Q * DIM];
#endif
	struct desk d;
	USE(float, out);
	USE_CONST(float, part);
	USE_CONST(float, gate);
	USE_CONST(float, sinks);
	USE_CONST(struct step_row, rows);
	USE_CONST(struct attend_unit, units);
	USE_CONST(struct attend_shape, shape);
	GLOBAL const struct attend_shape *s = shape;
	struct unit u;
	int t = TID;
	float all[OWN][2], acc[OWN][2];

	unit_of(&u, s, units, rows, BID);
	d.m = f, d.l = f + Q, d.old = f + 2 * Q, d.add = f + 3 * Q, d.in = in;
#if defined(TURNED)
	d.q = turned;
#endif
	if (t < Q)
		d.m[t] = -INFINITY, d.l[t] = 0.0f;
	UNROLL
	for (int o = 0; o < OWN; o++)
		all[o][0] = all[o][1] = 0.0f;
	for (int seg = 0, base = u.from / SEGMENT * SEGMENT; base < u.see; seg++, base += SEGMENT) {
		GLOBAL const float *from = part + ((long)BID * segments + seg) * Q * (DIM + 2);

		if (t < Q) {
			int row = u.row + (t < u.n ? t / u.of_row : 0);
			float m = from[t * (DIM + 2) + DIM], best = max1(m, d.m[t]);

			d.in[t] = t < u.n && last_seen(s, rows + row) >= base && first_seen(s, rows[row].pos) < base + SEGMENT;
			d.old[t] = exp_bits(sub1(d.m[t], best)), d.add[t] = exp_bits(sub1(m, best));
			if (d.in[t]) {
				d.l[t] = fma1(from[t * (DIM + 2) + DIM + 1], d.add[t], mul1(d.l[t], d.old[t]));
				d.m[t] = best;
			}
		}
		BARRIER();
		UNROLL
		for (int o = 0; o < OWN; o++)
			UNROLL
			for (int i = 0; i < 2; i++)
				acc[o][i] = from[(t / PAIRS + G * o) * (DIM + 2) + t % PAIRS * 2 + i];
		merge(all, acc, &d, t);
		BARRIER();
	}
	finish(all, &d, s, &u, out, NONE(gate) ? 0 : gate, NONE(sinks) ? 0 : sinks, t);
}
