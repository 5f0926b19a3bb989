/* checkkv.c - every kernel of cache rows, of every level, against what the rows stand
 * for and against each other, to the bit; and with --bench, nanoseconds a row.
 *
 *   checkkv [--seed N] [--rounds N] [--bench] [format ...]
 *
 * Rows end at an unreadable page or begin after one, at odd addresses; outputs are
 * fenced by a pattern; a kernel that dies of a signal is reported by name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "fenced.h"

/* A score of coded rows within float rounding of the sum of what the codes stand
 * for, with the query as int16: then got itself, else a NaN. */
static float score_near(float got, const float *q, const float *row, int dim)
{
	float top = 0, most = 0, scale, inv;
	double sum = 0, size = 0;

	for (int i = 0; i < dim; i++) {
		top = fmaxf(top, fabsf(q[i]));
		most = fmaxf(most, fabsf(row[i])); /* scale times code and bias may be as large as that */
	}
	scale = top < 1e-30f ? 0 : top / (127 * 128);
	inv = scale > 0 ? 1 / scale : 0;
	for (int i = 0; i < dim; i++) {
		double x = (double)scale * (double)rintf(fminf(fmaxf(q[i] * inv, -127 * 128), 127 * 128));

		sum += x * (double)row[i];
		size += fabs(x * (double)most);
	}
	return fabs((double)got - sum) <= 2e-6 * size + 1e-37 ? got : NAN;
}

/* A head size that the format takes. */
static int kv_dim(const struct kv_format *f)
{
	for (;;) {
		int dim = pick(2) ? 32 << pick(5) : pick(2) ? 32 * (1 + pick(8)) : 2 * (1 + pick(90));

		if (f->row_bytes(dim))
			return dim;
	}
}

static void kv_fill(float *x, int n, enum value v)
{
	float offset = pick(2) ? 3 * uniform() : 0, scale = v == V_HUGE       ? 1e4f :
	                                                    v == V_TINY       ? 1e-6f :
	                                                    v == V_ZERO_SCALE ? 0 :
	                                                                        1;

	for (int i = 0; i < n; i++)
		x[i] = (uniform() + offset) * scale * (v == V_EDGE && i == n / 3 ? 50 : 1);
}

/* Affine codes: within half a step, the step being what the format's name says of
 * each group's range, and the range a little more than that for the rounding of
 * its ends to f16. */
static bool kv_near(const char *name, const float *x, const float *dec, int dim)
{
	int bits = 0, group = 0;

	if (sscanf(name, "u%dg%d", &bits, &group) != 2)
		return false;
	for (int g = 0; g < dim; g += group) {
		float lo = INFINITY, hi = -INFINITY, step;

		for (int i = g; i < g + group; i++) {
			lo = fminf(lo, x[i]);
			hi = fmaxf(hi, x[i]);
		}
		step = (hi - lo + 0x1p-10f * fabsf(lo)) / (float)((1 << bits) - 1) * (1 + 0x1p-9f) + 0x1p-23f;
		for (int i = g; i < g + group; i++)
			if (fabsf(x[i] - dec[i]) > step * 0.505f)
				return false;
	}
	return true;
}

/* Rows opened as floats, in two goes: each number what the row stands for, nothing beside
 * them, and scores and sums to the bit those of the rows themselves. */
static void round_opened(const struct kv_format *f, enum cpu_level l, const uint8_t *rows, const float *dec, int n,
                         const uint8_t *q, int nq, int dim)
{
	size_t bytes = f->row_bytes(dim), ld = (size_t)n + (size_t)pick(5), floats = kv_opened_bytes(dim) / 4;
	size_t s_bytes = ((size_t)(nq - 1) * ld + (size_t)n) * 4, a_bytes = (size_t)nq * (size_t)dim * 4;
	int cut = pick(n), sig, bad = 0;
	struct fence open, score, acc;
	float *o = fence_make(&open, floats * 4, pick(2), 0), *s, *a;
	float *want_s = xmalloc(s_bytes), *want_a = xmalloc(a_bytes);
	struct kv_kernels k;

	f->kernels(&k, l);
	memset(o, 0x5a, open.bytes);
	sig = GUARD(k.open(o, rows, cut, dim));
	if (!sig)
		sig = GUARD(k.open(o + cut * KV_PANEL, rows + (size_t)cut * bytes, n - cut, dim));
	for (size_t i = 0; i < floats && !sig; i++) {
		int row = (int)(i / KV_PANEL) % KV_BLOCK,
		    d = (int)(i / KV_PANEL) / KV_BLOCK * KV_PANEL + (int)(i % KV_PANEL);
		float e;

		memset(&e, 0x5a, 4);
		bad |= memcmp(o + i, row < n && d < dim ? dec + row * dim + d : &e, 4) != 0;
	}
	if (sig || bad)
		fail_at(sig ? signal_name(sig) : "kv open", l, dim, n);
	for (size_t i = 0; i < floats && !bad; i++) { /* what is not written is not read */
		int row = (int)(i / KV_PANEL) % KV_BLOCK,
		    d = (int)(i / KV_PANEL) / KV_BLOCK * KV_PANEL + (int)(i % KV_PANEL);

		if (row >= n || d >= dim)
			o[i] = NAN;
	}
	s = fence_make(&score, s_bytes, pick(2), 0);
	memset(s, 0x5a, score.bytes);
	memset(want_s, 0x5a, s_bytes);
	k.score(want_s, ld, q, nq, rows, n, dim, &(struct kv_ahead){ 0 });
	if (k.score_opened) {
		sig = GUARD(k.score_opened(s, ld, q, nq, o, n, dim));
		if (sig || memcmp(s, want_s, s_bytes))
			fail_at(sig ? signal_name(sig) : "kv score opened", l, dim, n);
	}
	for (size_t i = 0; i < s_bytes / 4; i++)
		s[i] = (float)(i % 7) * 0.25f;
	a = fence_make(&acc, a_bytes, 1, 0);
	for (int i = 0; i < nq * dim; i++)
		want_a[i] = a[i] = (float)(i % 5);
	k.mix(want_a, s, ld, nq, rows, n, dim, &(struct kv_ahead){ 0 });
	sig = GUARD(k.mix_opened(a, s, ld, nq, o, n, dim));
	if (sig || memcmp(a, want_a, a_bytes))
		fail_at(sig ? signal_name(sig) : "kv mix opened", l, dim, n);
	fence_drop(&open);
	fence_drop(&score);
	fence_drop(&acc);
	free(want_s);
	free(want_a);
}

static void round_kv(const struct kv_format *f, int turn)
{
	int dim = kv_dim(f), n = 1 + pick(70), nq = 1 + pick(9);
	size_t ld = (size_t)n + (size_t)pick(5), bytes = f->row_bytes(dim);
	bool plain = !strcmp(f->name, "f32") || !strcmp(f->name, "bf16");
	struct fence rows, q, score, acc, query;
	float *x = xmalloc((size_t)n * (size_t)dim * 4), *dec = xmalloc((size_t)n * (size_t)dim * 4);
	float *want = xmalloc((size_t)nq * (size_t)dim * 4), *first = xmalloc((size_t)nq * ld * 4);
	enum value v = (enum value)(turn % VALUES);

	fence_make(&rows, bytes * (size_t)n, pick(2), (size_t)pick(9));
	fence_make(&q, (size_t)nq * (size_t)dim * 4, 1, 0);
	kv_fill((float *)q.p, nq * dim, v);
	for (int r = 0; r < n; r++)
		kv_fill(x + r * dim, dim, (enum value)pick(VALUES));
	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l)) {
		struct kv_kernels k;
		struct fence row;

		f->kernels(&k, l);
		fence_make(&row, bytes, 1, 0);
		for (int r = 0; r < n; r++) {
			uint8_t *want_row = rows.p + (size_t)r * bytes;
			int sig;

			memset(row.p, l ? 0x33 : 0x44, bytes);
			sig = GUARD(k.encode(row.p, x + r * dim, dim, (enum kv_side)(r % 2)));
			if (!l)
				memcpy(want_row, row.p, bytes);
			if (sig || memcmp(want_row, row.p, bytes)) {
				fail_at(sig ? signal_name(sig) : f->name, l, dim, r);
				break;
			}
		}
		fence_drop(&row);
	}
	for (int r = 0; r < n; r++) {
		float *from = x + r * dim, *to = dec + r * dim;

		f->decode(to, rows.p + (size_t)r * bytes, dim);
		for (int i = 0; i < dim && plain; i++)
			if (fabsf(from[i] - to[i]) > 0x1p-8f * fabsf(from[i])) {
				fail_at(f->name, 0, dim, i);
				break;
			}
		if (f->name[0] == 'u' && !kv_near(f->name, from, to, dim))
			fail_at(f->name, 0, dim, r);
	}
	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l)) {
		struct kv_kernels k;
		float *s = fence_make(&score, ((size_t)(nq - 1) * ld + (size_t)n) * 4, 1, 0);
		float *a = fence_make(&acc, (size_t)nq * (size_t)dim * 4, 1, 0);
		size_t q_bytes;
		int sig = 0, bad = 0;

		/* Less than there is to ask for, as much, or more. */
		struct kv_ahead ahead = kv_ahead_of(rows.p, (size_t)pick(2 * (int)rows.bytes));

		memset(s, 0x5a, score.bytes);
		f->kernels(&k, l);
		q_bytes = k.query_bytes(dim);
		fence_make(&query, q_bytes * (size_t)nq, 0, 0);
		for (int j = 0; j < nq && !sig; j++)
			sig = GUARD(k.query(query.p + (size_t)j * q_bytes, (float *)q.p + j * dim, dim));
		if (!sig)
			sig = GUARD(k.score(s, ld, query.p, nq, rows.p, n, dim, &ahead));
		for (int j = 0; j < nq && !sig; j++)
			for (size_t r = 0; r < ld && (size_t)j * ld + r < score.bytes / 4; r++) {
				size_t at = (size_t)j * ld + r;
				float e;

				memset(&e, 0x5a, 4);
				if (r < (size_t)n && plain)
					e = truth_dot((float *)q.p + j * dim, dec + r * (size_t)dim, dim);
				else if (r < (size_t)n && l)
					e = first[at];
				else if (r < (size_t)n)
					e = first[at] = score_near(s[at], (float *)q.p + j * dim, dec + r * (size_t)dim,
					                           dim);
				bad |= !same(e, s[at]);
			}
		if (sig || bad)
			fail_at(sig ? signal_name(sig) : f->name, l, dim, n);
		for (size_t i = 0; i < score.bytes / 4; i++)
			s[i] = (float)(i % 7) * 0.25f;
		for (int i = 0; i < nq * dim; i++)
			want[i] = a[i] = (float)(i % 5);
		for (int j = 0; j < nq; j++)
			for (int r = 0; r < n; r++)
				for (int i = 0; i < dim; i++)
					want[j * dim + i] = fmaf(s[(size_t)j * ld + (size_t)r], dec[r * dim + i],
					                         want[j * dim + i]);
		sig = GUARD(k.mix(a, s, ld, nq, rows.p, n, dim, &ahead));
		if (sig || memcmp(a, want, (size_t)nq * (size_t)dim * 4))
			fail_at(sig ? signal_name(sig) : "kv mix", l, dim, n);
		if (dim % 16 == 0)
			round_opened(f, l, rows.p, dec, n < KV_BLOCK ? n : KV_BLOCK, query.p, nq, dim);
		fence_drop(&score);
		fence_drop(&acc);
		fence_drop(&query);
	}
	fence_drop(&rows);
	fence_drop(&q);
	free(x);
	free(dec);
	free(want);
	free(first);
}

/* Any 32 bits as bf16, at every level: ties, what overflows, denormals, and what is not a number, whose low half
 * alone may say so. */
static void round_bf16(const struct kv_format *f)
{
	static const uint32_t edge[] = { 0x7f800001, 0xffbfffff, 0x7fc00000, 0x7f800000, 0xff800000,
		                         0x7f7fffff, 0x7f7f8000, 0x7f7f7fff, 0x3f808000, 0x3f818000,
		                         0x3f808001, 0x00000001, 0x80008000, 0x80000000, 0 };
	int dim = kv_dim(f);
	float *x = xmalloc((size_t)dim * 4);
	uint16_t *want = xmalloc((size_t)dim * 2);
	struct fence row;

	for (int i = 0; i < dim; i++) {
		uint32_t u = pick(2) ? (uint32_t)bits() : edge[pick(sizeof edge / sizeof *edge)];

		memcpy(x + i, &u, 4);
		want[i] = float_to_bf16(x[i]);
	}
	fence_make(&row, (size_t)dim * 2, 1, 0);
	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l)) {
		struct kv_kernels k;
		int sig;

		f->kernels(&k, l);
		memset(row.p, 0x33, row.bytes);
		sig = GUARD(k.encode(row.p, x, dim, KV_KEYS));
		if (sig || memcmp(row.p, want, row.bytes))
			fail_at(sig ? signal_name(sig) : "bf16 of any bits", l, dim, 0);
	}
	fence_drop(&row);
	free(x);
	free(want);
}

/* Decoding at depth: 4 queries of a head of 256 over more rows than the caches hold,
 * 64 at a time, keys and then values as attention reads them. */
static void bench_kv(const struct kv_format *f, enum cpu_level l)
{
	enum { DIM = 256, ROWS = 1 << 18, NQ = 4, BLOCK = 64 };
	size_t bytes = f->row_bytes(DIM);
	uint8_t *rows = xmalloc(2 * ROWS * bytes);
	float x[DIM], s[NQ * BLOCK], *acc = xcalloc(NQ * DIM, 4), best[3] = { 1e9f, 1e9f, 1e9f };
	struct kv_kernels k;
	struct kv_ahead ahead;
	uint8_t *q;
	double t;

	f->kernels(&k, l);
	q = aligned_alloc(64, NQ * k.query_bytes(DIM));
	kv_fill(x, DIM, V_RANDOM);
	t = now();
	for (int i = 0; i < BLOCK; i++)
		k.encode(rows + (size_t)i * bytes, x, DIM, KV_KEYS);
	best[2] = (float)((now() - t) / BLOCK);
	for (size_t i = BLOCK; i < 2 * ROWS; i += BLOCK)
		memcpy(rows + i * bytes, rows, BLOCK * bytes);
	for (int j = 0; j < NQ; j++)
		k.query(q + (size_t)j * k.query_bytes(DIM), x, DIM);
	for (int i = 0; i < 5; i++) {
		double sum[2] = { 0, 0 };

		for (size_t r = 0; r < ROWS; r += BLOCK) {
			double a = now(), b;

			ahead = kv_ahead_of(rows + (ROWS + r) * bytes, BLOCK * bytes);
			k.score(s, BLOCK, q, NQ, rows + r * bytes, BLOCK, DIM, &ahead);
			b = now();
			sum[0] += b - a;
			ahead = kv_ahead_of(rows + (r + BLOCK) * bytes, BLOCK * bytes);
			k.mix(acc, s, BLOCK, NQ, rows + (ROWS + r) * bytes, BLOCK, DIM, &ahead);
			sum[1] += now() - b;
		}
		for (int side = 0; side < 2; side++)
			best[side] = fminf(best[side], (float)(sum[side] / ROWS));
	}
	printf("%-8s %-7s %3zu bytes  keys %5.1f ns a row (%4.1f GB/s)  values %5.1f ns (%4.1f GB/s)  encode %5.0f ns\n",
	       f->name, cpu_level_name(l), bytes, (double)best[0] * 1e9, (double)bytes / (double)best[0] * 1e-9,
	       (double)best[1] * 1e9, (double)bytes / (double)best[1] * 1e-9, (double)best[2] * 1e9);
	free(rows);
	free(acc);
	free(q);
}

int main(int argc, char **argv)
{
	struct check_opts o;

	/* Quick: each value twice. */
	check_opts_read(&o, argc, argv, 2 * VALUES);
	for (int f = 0; kv_formats[f]; f++) {
		if (!check_wanted(&o, kv_formats[f]->name))
			continue;
		for (enum cpu_level l = cpu_level_next(CPU_SCALAR); l < CPU_LEVELS && o.bench; l = cpu_level_next(l))
			bench_kv(kv_formats[f], l);
		for (int r = 0; r < o.rounds && !o.bench && failures < 20; r++) {
			round_kv(kv_formats[f], r);
			if (!strcmp(kv_formats[f]->name, "bf16"))
				round_bf16(kv_formats[f]);
		}
	}
	if (failures)
		printf("%d failures; again with --seed %llu\n", failures, (unsigned long long)seed);
	return failures > 0;
}
