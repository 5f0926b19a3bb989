/* recur.cl - recurrences that move S of a head by products, token by token (backend/cpu/recur_kernels.c): KIND says which.  Keys of
 * at most DIM dims, a multiple of 4; -DEXACT: of DIM.
 *
 *   DELTA   d = beta (v - a S'k)    out = a S'q + dot d    S <- a S + k d'
 *   INSERT  d = beta v              out = a S'q + dot d    S <- a S + k d'
 *   BY_KEY  d = beta (v - S'k)      out = S'q + dot d      S <- diag(a) S + put d'    a in k and q, put without
 *
 * A sum over the rows of S is made by quarters: a work-group has 32 columns of a head and four work-items a column, a quarter each,
 * its numbers in registers.  The vectors of TOKENS tokens wait in local memory, quarters PART floats apart, so that the four read
 * 16 bytes from different banks. */
#include "dialect.cl"
#include "math.cl"
#include "../kernel_shapes.h"
#include "sums.cl"

#define DELTA 0
#define INSERT 1
#define BY_KEY 2
#define THREADS 128
#define OWN (DIM / 4)
#define PART (OWN + 4)
#define TOKENS 8
#define VECTORS (KIND == BY_KEY ? 4 : 2) /* of a token: read, query, put, decay */
#if defined(EXACT)
#define IN_QUARTER(i, width) 1
#else
#define IN_QUARTER(i, width) ((i) < (width))
#endif
/* Of four rows of S from i on, the e-th: its part of S'k and S'q, and its update. */
#define SUM_ROW(e, component)                                     \
	if (IN_QUARTER(i + e, width)) {                           \
		m = fma1(v[i + e], as_float1(k.component), m);    \
		u = fma1(v[i + e], as_float1(q.component), u);    \
	}
#define UPDATE_ROW(e, component)  \
	if (IN_QUARTER(i + e, width)) \
		v[i + e] = fma1(as_float1(put.component), d, mul1(KIND == BY_KEY ? as_float1(a.component) : f, v[i + e]));

FN int first_head(GLOBAL const struct recur_shape *s, int hk)
{
	return s->tiled ? hk : hk * (s->heads_v / s->heads_k);
}
FN int key_head(GLOBAL const struct recur_shape *s, int h)
{
	return s->tiled ? h % s->heads_k : h / (s->heads_v / s->heads_k);
}

/* Decays and betas of the value heads of a key head, and the factors of KIND. */
FN void gates(GLOBAL float *decay, GLOBAL float *beta, GLOBAL const float *a, GLOBAL const float *b, GLOBAL const float *rate,
              GLOBAL const float *bias, GLOBAL const struct recur_shape *s, int row, int h)
{
	long at = (long)row * s->heads_v + h;

#if KIND == DELTA
	float v = sigmoid_bits(b[at]);

	decay[at] = exp_bits(mul1(-rate[h], softplus_bits(add1(a[at], bias[h]))));
	beta[at] = s->beta_scale != 0.0f ? mul1(v, s->beta_scale) : v;
#elif KIND == INSERT
	if (a) {
		float v = softplus_bits(add1(a[at], bias[h]));

		v = min1(s->dt_max, max1(s->dt_min, v));
		beta[at] = v;
		decay[at] = exp_bits(mul1(-rate[h], v));
	} else {
		beta[at] = 1.0f;
		decay[at] = rate[h];
	}
#else
	beta[at] = sigmoid_bits(b[at]);
#endif
}

/* keys[n_row][heads_k][VECTORS][dim_k], dot[n_row][heads_k] of put . query, decay and beta [n_row][heads_v], of x as it was
 * convolved.  A work-group has a key head of a row.  rate: exp(A_log), or with no a the decays themselves. */
KERNEL(THREADS) keys(MEM(float, kq), MEM(float, dot), MEM(float, decay), MEM(float, beta), MEM(const float, x), MEM(const float, a),
                     MEM(const float, b), MEM(const float, rate), MEM(const float, bias), MEM(const struct recur_shape, shape))
{
	SCRATCH(scratch, THREADS);
	LOCAL float k[DIM], q[DIM], shared[2];
	USE(float, kq);
	USE(float, dot);
	USE(float, decay);
	USE(float, beta);
	USE_CONST(float, x);
	USE_CONST(float, a);
	USE_CONST(float, b);
	USE_CONST(float, rate);
	USE_CONST(float, bias);
	USE_CONST(struct recur_shape, shape);
	GLOBAL const struct recur_shape *s = shape;
	int t = TID, hk = BID, row = BID_Y, dim = s->dim_k, step = s->tiled ? s->heads_k : 1;
	GLOBAL const float *from = x + (long)row * s->x_cols + (long)hk * dim;
	GLOBAL float *to = kq + ((long)row * s->heads_k + hk) * VECTORS * dim;
	LOCAL const float *mine = t < 16 ? k : q;
	float part = 0.0f, rk, rq;

	for (int i = t; i < dim; i += THREADS) {
		k[i] = from[s->x_key + i];
		q[i] = from[s->x_query + i];
	}
	BARRIER();
	if (t < 32)
		for (int i = t % 16; i < dim; i += 16)
			part = fma1(mine[i], mine[i], part);
	part = tree16(part, SCRATCH_OF(scratch), t);
	if (t == 0 || t == 16)
		shared[t / 16] = part;
	BARRIER();
	rk = div1(1.0f, sqrt1(add1(shared[0], 1e-6f))), rq = div1(1.0f, sqrt1(add1(shared[1], 1e-6f)));
	for (int i = t; i < dim; i += THREADS) {
		if (s->l2)
			k[i] = mul1(k[i], rk), q[i] = mul1(q[i], rq);
		q[i] = mul1(q[i], s->query_scale);
	}
	BARRIER();
	part = 0.0f;
	if (t < 16)
		for (int i = t; i < dim; i += 16)
			part = fma1(k[i], q[i], part);
	part = tree16(part, SCRATCH_OF(scratch), t);
	if (t == 0)
		dot[(long)row * s->heads_k + hk] = part;
	for (int i = t; i < dim; i += THREADS) {
#if KIND == BY_KEY
		int at = hk * dim + i;
		float alpha = add1(a[(long)row * s->heads_v * dim + at], bias[at]);

		if (s->gate_floor != 0.0f)
			alpha = mul1(sigmoid_bits(mul1(alpha, rate[hk])), s->gate_floor);
		else
			alpha = mul1(softplus_bits(alpha), -rate[hk]);
		alpha = exp_bits(alpha);
		to[i] = mul1(k[i], alpha), to[dim + i] = mul1(q[i], alpha);
		to[2 * dim + i] = k[i], to[3 * dim + i] = alpha;
#else
		to[i] = k[i], to[dim + i] = q[i];
#endif
	}
	for (int i = t; i < s->heads_v / s->heads_k; i += THREADS)
		gates(decay, beta, NONE(a) ? 0 : a, b, rate, bias, s, row, first_head(s, hk) + i * step);
}

/* Where a number of a vector waits. */
FN int slot_of(int token, int vector, int i, int width)
{
	return ((token * VECTORS + vector) * 4 + i / width) * PART + i % width;
}

/* The sums of the four work-items of a column. */
FN float quarters(float v, SCRATCH_PARAM, int t)
{
	v = add1(v, SHFL_XOR(v, 1, sh, t));
	return add1(add1(0.0f, v), SHFL_XOR(v, 2, sh, t));
}

FN void state_store(GLOBAL float *to, const float *x, int ld, int width, int quarter)
{
	UNROLL
	for (int i = 0; i < OWN; i++)
		if (IN_QUARTER(i, width))
			to[(long)(quarter * width + i) * ld] = x[i];
}

/* S of one head through the owed rows of the tape and the item's rows.  state: [slot][layer] as backend/cpu/recur_kernels.h has S;
 * out[n_row][heads_v * dim_v] gets what is read, plus skip[head] v unless skip is none; update, of the same size, the right factors
 * of the rows that are not sure. */
KERNEL(THREADS) scan(MEM(float, out), MEM(float, update), MEM(float, state), MEM(float, kept), MEM(const float, tape),
                     MEM(const float, kq), MEM(const float, dot), MEM(const float, decay), MEM(const float, beta),
                     MEM(const float, x), MEM(const float, skip), MEM(const struct step_item, items),
                     MEM(const struct step_keep, keeps), MEM(const struct recur_shape, shape), int n_keep)
{
	SCRATCH(scratch, THREADS);
	LOCAL uint vectors[TOKENS * VECTORS * 4 * PART];
	LOCAL float value[TOKENS][32], gate[TOKENS][4];
	USE(float, out);
	USE(float, update);
	USE(float, state);
	USE(float, kept);
	USE_CONST(float, tape);
	USE_CONST(float, kq);
	USE_CONST(float, dot);
	USE_CONST(float, decay);
	USE_CONST(float, beta);
	USE_CONST(float, x);
	USE_CONST(float, skip);
	USE_CONST(struct step_item, items);
	USE_CONST(struct step_keep, keeps);
	USE_CONST(struct recur_shape, shape);
	GLOBAL const struct recur_shape *s = shape;
	int t = TID, quarter = t % 4, h = BID_Y % s->heads_v, hk = key_head(s, h), dim = s->dim_k, width = dim / 4;
	int c0 = BID * 32, c = c0 + t / 4, real = c < s->dim_v, ld = s->dim_v - c0 > 16 ? 32 : 16;
	GLOBAL const struct step_item *item = items + BID_Y / s->heads_v;
	long layer_floats = (long)s->heads_v * dim * ((s->dim_v + 15) / 16 * 16), slot_layer = (long)item->slot * s->layers + s->layer;
	long at = (long)h * dim * ((s->dim_v + 15) / 16 * 16) + (long)c0 * dim + t / 4;
	int old = item->owed, n = item->n, sure = item->sure, row0 = item->row, cols = s->heads_v * s->dim_v;
	GLOBAL float *mine = state + slot_layer * layer_floats + at;
	float v[OWN];

	UNROLL
	for (int i = 0; i < OWN; i++)
		v[i] = real && IN_QUARTER(i, width) ? mine[(long)(quarter * width + i) * ld] : 0.0f;
	for (int n0 = -old; n0 < n; n0 += TOKENS) {
		BARRIER();
		for (int i = t; i < TOKENS * VECTORS * dim; i += THREADS) {
			int token = i / (VECTORS * dim), vector = i / dim % VECTORS, k = i % dim, j = n0 + token;
			float f = 0.0f;

			if (j >= 0 && j < n)
				f = kq[((long)(row0 + j) * s->heads_k + hk) * VECTORS * dim + vector * dim + k];
			else if (j < 0) {
				GLOBAL const float *row = tape + (slot_layer * s->tape_rows + old + j) * s->tape_floats;

				f = vector == (KIND == BY_KEY ? 2 : 0)  ? row[s->tape_key + hk * dim + k] :
				    KIND == BY_KEY && vector == 3 ? row[s->tape_decay + h * dim + k] :
				                                            0.0f;
			}
			vectors[slot_of(token, vector, k, width)] = as_uint1(f);
		}
		for (int i = t; i < TOKENS * 32; i += THREADS) {
			int token = i / 32, k = c0 + i % 32, j = n0 + token;

			value[token][i % 32] =
				j >= n || k >= s->dim_v ? 0.0f :
				j >= 0 ? x[(long)(row0 + j) * s->x_cols + s->x_value + h * s->dim_v + k] :
				         tape[(slot_layer * s->tape_rows + old + j) * s->tape_floats + s->tape_update + h * s->dim_v + k];
		}
		if (t < TOKENS && n0 + t < n) {
			int j = n0 + t;

			gate[t][0] = KIND == BY_KEY ? 1.0f :
			             j >= 0     ? decay[(long)(row0 + j) * s->heads_v + h] :
			                          tape[(slot_layer * s->tape_rows + old + j) * s->tape_floats + s->tape_decay + h];
			gate[t][1] = j >= 0 ? beta[(long)(row0 + j) * s->heads_v + h] : 0.0f;
			gate[t][2] = j >= 0 ? dot[(long)(row0 + j) * s->heads_k + hk] : 0.0f;
		}
		BARRIER();
		for (int token = 0; token < TOKENS && n0 + token < n; token++) {
			int j = n0 + token;
			LOCAL const uint4 *k4 = (LOCAL const uint4 *)(vectors + slot_of(token, 0, 0, OWN) + quarter * PART);
			LOCAL const uint4 *q4 = k4 + PART, *put4 = KIND == BY_KEY ? k4 + 2 * PART : k4, *a4 = k4 + 3 * PART;
			float f = gate[token][0], in = value[token][t / 4], m = 0.0f, u = 0.0f, d, o;

			UNROLL
			for (int i = 0; i < OWN; i += 4) {
				uint4 k = k4[i / 4], q = q4[i / 4];

				SUM_ROW(0, x)
				SUM_ROW(1, y)
				SUM_ROW(2, z)
				SUM_ROW(3, w)
			}
#if KIND != INSERT
			m = quarters(m, SCRATCH_OF(scratch), t);
#endif
			u = quarters(u, SCRATCH_OF(scratch), t);
#if KIND == DELTA
			d = mul1(gate[token][1], sub1(in, mul1(f, m)));
#elif KIND == INSERT
			d = mul1(gate[token][1], in);
#else
			d = mul1(gate[token][1], sub1(in, m));
#endif
			if (j < 0)
				d = in;
			o = fma1(gate[token][2], d, KIND == BY_KEY ? u : mul1(f, u));
			if (!NONE(skip))
				o = fma1(skip[h], in, o);
			if (j >= 0 && real && quarter == 0) {
				out[(long)(row0 + j) * cols + h * s->dim_v + c] = o;
				if (j >= sure)
					update[(long)(row0 + j) * cols + h * s->dim_v + c] = d;
			}
			UNROLL
			for (int i = 0; i < OWN; i += 4) {
				uint4 put = put4[i / 4], a = KIND == BY_KEY ? a4[i / 4] : put;

				UPDATE_ROW(0, x)
				UPDATE_ROW(1, y)
				UPDATE_ROW(2, z)
				UPDATE_ROW(3, w)
			}
			if (real && j + 1 == sure && sure > 0)
				state_store(mine, v, ld, width, quarter);
			for (int i = 0; i < n_keep; i++)
				if (real && keeps[i].item == BID_Y / s->heads_v && keeps[i].row == j + 1)
					state_store(kept + (long)keeps[i].s_block * 16 + s->layer * layer_floats + at, v, ld, width, quarter);
		}
	}
	if (real && n == 0)
		state_store(mine, v, ld, width, quarter);
}
