/* checkkern.c - every kernel of weights and activations, of every level, against a
 * truth written here from the formulas of quant/format.h, to the bit; and with
 * --bench, how fast they are.  (Cache rows: checkkv.)
 *
 *   checkkern [--seed N] [--rounds N] [--bench] [format ...]
 *
 * --bench prints GB/s of weights for one row (and of reading the same bytes), and
 * 1e9 operations a second for more, of one thread's processor time.
 *
 * Operands end at an unreadable page or begin after one, at odd addresses;
 * outputs are fenced by a pattern; a kernel that dies of a signal is reported by
 * name.  Values are random, extreme, zero, denormal, huge. */
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "fenced.h"
#include "golden.h"
#include "quant/gguf/gguf.h"
#include "quant/bf16/bf16_kernels.h"
#include "quant/coded/coded.h"
#include "quant/packed.h"
#include "sample.h"

/* ---- the product ---- */

struct shape {
	int rows, cols, group, n;
	enum dtype st;
	enum value v;
	bool whole;
}; /* whole: no part of it */

static void shape_text(char *s, size_t n, const struct shape *h)
{
	snprintf(s, n, "%d x %d group %d scales %s, %d rows, %s", h->rows, h->cols, h->group, dtype_name(h->st), h->n,
	         value_name[h->v]);
}

static void check_with(const struct kind *k, const struct weight *w, const struct rows *x, const struct shape *h,
                       enum cpu_level level, enum arith arith, weight_mul_fn *mul, const float *want)
{
	size_t ld = (size_t)h->rows + 3, scratch_bytes = (weight_scratch_bytes(w) + 63) / 64 * 64;
	/* Any part of the outputs and rows gives what the whole gives. */
	int o0 = h->whole || pick(2) ? 0 : pick(h->rows),
	    o1 = h->whole || pick(2) ? h->rows : o0 + 1 + pick(h->rows - o0);
	int r0 = h->whole || pick(2) ? 0 : pick(h->n), r1 = h->whole || pick(2) ? h->n : r0 + 1 + pick(h->n - r0);
	struct fence out, scratch;
	char text[200];
	int sig;

	fence_make(&out, ((size_t)(r1 - r0 - 1) * ld + (size_t)(o1 - o0)) * 4, 1, 0);
	fence_make(&scratch, scratch_bytes, 1, 0);
	memset(out.p, 0x5a, out.bytes);
	shape_text(text, sizeof text, h);
	sig = GUARD(mul((float *)out.p, ld, w, o0, o1, &x->a, r0, r1, scratch.p));
	if (sig) {
		printf("FAIL %s %s arith %d: %s (%s)\n", k->name, cpu_level_name(level), arith, signal_name(sig), text);
		failures++;
	}
	for (size_t i = 0; i < out.bytes / 4 && !sig; i++) {
		int r = (int)(i / ld), o = (int)(i % ld);
		float got = ((float *)out.p)[i], expect;

		if (o < o1 - o0)
			expect = want[(r0 + r) * h->rows + o0 + o];
		else
			memset(&expect, 0x5a, 4);
		if (same(got, expect))
			continue;
		printf("FAIL %s %s arith %d: row %d output %d is %a, should be %a (%s; outputs %d to %d, rows %d "
		       "to %d)\n",
		       k->name, cpu_level_name(level), arith, r0 + r, o0 + o, (double)got, (double)expect, text, o0, o1,
		       r0, r1);
		failures++;
		break;
	}
	fence_drop(&out);
	fence_drop(&scratch);
}

static void check_mul(const struct kind *k, const struct sample *s, const struct rows *x, const struct shape *h,
                      enum cpu_level level, enum arith arith, const float *want)
{
	struct kernels kn;

	s->w.fmt->kernels(&kn, level);
	check_with(k, &s->w, x, h, level, arith, kn.mul[arith], want);
	if (s->bare.packed && arith == ARITH_FAST && kn.packed)
		check_with(k, &s->bare, x, h, level, arith, kn.mul[arith], want);
#if defined(__x86_64__)
	/* Of the two that a processor chooses from, each. */
	if (level == CPU_AVX512BF16 && kn.acts == ACTS_BF16 && arith == ARITH_FAST) {
		weight_mul_fn *other = kn.mul[arith] == bf16_mul_dot ? bf16_mul_floats : bf16_mul_dot;

		check_with(k, &s->w, x, h, level, arith, other, want);
		if (s->bare.packed)
			check_with(k, &s->bare, x, h, level, arith, other, want);
	}
	if (s->bare.packed && k->mode && level == CPU_AVX512 && arith == ARITH_FAST)
		check_with(k, &s->bare, x, h, level, arith,
		           kn.mul[arith] == coded_mul_avx512 ? coded_mul_avx512_panels : coded_mul_avx512, want);
#endif
}

/* The truth itself, of one output, against double precision over its decoded weights; coded: it was computed from codes.
 * want[r * h->rows]: of row r. */
static void check_truth(const struct kind *k, const struct rows *x, const struct shape *h, const float *want,
                        const float *decoded, const struct coded_row *coded)
{
	for (int r = 0; r < h->n; r++) {
		double sum = 0, size = 0, off;

		for (int i = 0; i < h->cols; i++) {
			double a = coded ? (double)x->a.q[r * h->cols + i] *
			                           (double)x->a.scale[(r * h->cols + i) / h->group] :
			                   (double)x->a.f[r * h->cols + i];
			double b = (double)decoded[i];

			sum += a * b;
			size += fabs(a * b);
			/* scale * code and bias may cancel in b: their sizes count */
			if (coded && coded->bias)
				size += fabs(a * (double)coded->bias[i / h->group]) * 2;
		}
		off = fabs(sum - (double)want[r * h->rows]);
		if (off > size * 1e-5 + 1e-37 && isfinite(want[r * h->rows]) && isfinite(size)) {
			char text[200];

			shape_text(text, sizeof text, h);
			printf("FAIL %s: the truth itself is off: %g for %g (%s)\n", k->name, (double)want[r * h->rows],
			       sum, text);
			failures++;
			return;
		}
	}
}

/* Each kind of value and type of scale in its turn, the rest at random.  most: of
 * the product's multiplications. */
static struct shape shape_of(const struct kind *k, int turn, int most)
{
	static const enum dtype scale_types[] = { DT_BF16, DT_F16, DT_F32 };
	static const int groups[] = { 32, 64, 128, 64, 32, 16, 8, 24, 40, 192 };
	/* Of rows of activations: where kernels take turns, and a few beyond a tile or what is done at once. */
	static const int edges[] = { 4, 5, 16, 17, 20, 21, 32, 33, 36, 257, 260 };
	struct shape h = { .rows = 1 + pick(40),
		           .n = turn % 3 == 1 ? edges[pick(11)] : 1 + pick(turn % 9 ? 17 : 300),
		           .v = (enum value)(turn % VALUES),
		           .st = scale_types[turn / VALUES % 3] };

	h.group = k->group ? k->group : groups[pick(10)];
	if (is_gguf(k)) {
		int block = gguf_type_named(k->name)->block;

		h.cols = block * (1 + pick(block < 256 ? 40 : 5));
	} else if (k->mode) {
		h.cols = h.group * (1 + pick(pick(4) ? 9 : 40));
		if (pick(3) == 0)
			h.cols = (h.cols + 511) / 512 * 512 / h.group * h.group + h.group;
	} else {
		h.group = 0;
		h.cols = 1 + pick(pick(3) ? 100 : 700);
	}
	if (pick(3) == 0)
		h.rows = 32 * (1 + pick(3)) + pick(3);
	if (h.n > most / h.rows / h.cols)
		h.n = most / h.rows / h.cols + 1;
	return h;
}

enum { BLOCKS_EACH = 17, BLOCKS_MANY = BLOCKS_EACH + 7, BLOCKS_TURNS = BLOCKS_MANY + 6 };

/* What kernels take that read blocks, in groups of 64 or bf16, which have a form of their own for each number of few rows, and
 * do eight at a time, 32, 64 or 256 in one go, of more; with so many inputs that nothing else asks for as
 * much scratch, that they are taken in stretches, the last of one group, or rows are by what a cache holds.
 * Then one row of many outputs, which may be read as two runs. */
static struct shape shape_of_blocks(const struct kind *k, int turn)
{
	static const int many[] = { 24, 31, 33, 64, 68, 136, 260 };
	static const enum dtype scale_types[] = { DT_BF16, DT_F16, DT_F32 };
	int n = turn < BLOCKS_EACH ? turn + 1 : many[turn < BLOCKS_MANY ? turn - BLOCKS_EACH : 0],
	    group = is_gguf(k) ? k->group :
	            k->mode    ? 64 :
	                         0;

	if (turn >= BLOCKS_MANY)
		return (struct shape){ .rows = pick(2) ? 128 + pick(140) : 16 * (8 + pick(9)),
			               .cols = 512 * (turn - BLOCKS_MANY + 1),
			               .group = group,
			               .n = 1,
			               .st = scale_types[pick(3)],
			               .v = (enum value)(pick(2) ? V_RANDOM : pick(VALUES)),
			               .whole = pick(3) > 0 };

	if (is_gguf(k))
		return (struct shape){ .rows = 16 * (n > 100 ? 1 + pick(2) : 1 + pick(4)),
			               .cols = n > 100 ? 1280 : 256 * (1 + pick(3)),
			               .group = group,
			               .n = n,
			               .v = (enum value)(pick(2) ? V_RANDOM : pick(VALUES)),
			               .whole = pick(2) };
	return (struct shape){ .rows = n == 136            ? 48 :
		                       n == 260 || n == 64 ? 16 + pick(2) :
		                       pick(2)             ? 16 + pick(20) :
		                                             16 * (1 + pick(3)),
		               .cols = n == 64  ? 1536 :
		                       n == 136 ? 3840 :
		                       n == 260 ? 1088 :
		                                  128 * (1 + pick(5)),
		               .group = group,
		               .n = n,
		               .st = DT_BF16,
		               .v = (enum value)(pick(2) ? V_RANDOM : pick(VALUES)),
		               .whole = true };
}

/* How many of these are for it: runs are those of codes. */
static int turns_of_blocks(const struct kind *k)
{
	return is_gguf(k) ? BLOCKS_MANY : k->mode ? k->group ? 0 : BLOCKS_TURNS : k->plain == DT_BF16 ? BLOCKS_MANY : 0;
}

static void round_mul(const struct kind *k, struct shape h)
{
	struct sample s;
	struct rows x;
	float *decoded, *want, *want_fast, *want_pairs;
	const char *order = level_orders(cpu_detect()).products; /* a machine has no other but plain */
	bool fast, pairs = !k->mode && k->plain == DT_BF16;

	sample_make(&s, k, h.rows, h.cols, h.group, h.st, h.v);
	decoded = xmalloc((size_t)h.cols * 4);
	want = xmalloc((size_t)h.rows * (size_t)h.n * 12);
	want_fast = want + h.rows * h.n;
	want_pairs = want_fast + h.rows * h.n;
	rows_make(&x, h.n, h.cols, h.group, h.v, CPU_SCALAR);
	fast = s.w.fmt->coding != NULL;
	for (int o = 0; o < h.rows; o++) {
		struct coded_row coded;

		s.bare.fmt->decode(decoded, &s.bare, o);
		for (int r = 0; r < h.n; r++) {
			const float *row = x.a.f + (size_t)r * (size_t)h.cols;

			want[r * h.rows + o] = truth_dot(row, decoded, h.cols);
			if (pairs)
				want_pairs[r * h.rows + o] = truth_bf16(order, decoded, row, h.cols);
		}
		check_truth(k, &x, &h, want + o, decoded, NULL);
		if (!fast)
			continue;
		coded_row_make(&coded, k, &s.w, o);
		for (int r = 0; r < h.n; r++)
			want_fast[r * h.rows + o] = truth_coded(&coded, &x.a, r);
		check_truth(k, &x, &h, want_fast + o, decoded, &coded);
		coded_row_drop(&coded);
	}
	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l)) {
		if (!k->mode)
			rows_pair(&x, l);
		check_mul(k, &s, &x, &h, l, ARITH_F32, want);
		check_mul(k, &s, &x, &h, l, ARITH_FAST,
		          fast                                               ? want_fast :
		          pairs && strcmp(level_orders(l).products, "plain") ? want_pairs :
		                                                               want);
	}
	sample_drop(&s);
	rows_drop(&x);
	free(decoded);
	free(want);
}

/* ---- what a dot product of bf16 makes of any bits ---- */

/* Any bits; of modest size; tiny and denormal; whose products are denormal; zeros and ones. */
static uint16_t bf16_bits(int kind)
{
	unsigned r = (unsigned)bits(), far = (unsigned)pick(12), some = (unsigned)pick(3);
	const unsigned exponent[] = { 0, 121 + far, far / 3, 62 + some, some ? 127 : 0 };

	return (uint16_t)(kind ? (r & (kind == 4 ? 0x8000 : 0x807f)) | exponent[kind] << 7 : r);
}

static void round_bits(void)
{
	static const struct kind half = { "bf16, any bits", NULL, 16, 0, DT_BF16 };
	struct shape h = { .rows = pick(2) ? 1 + pick(40) : 16 * (1 + pick(3)),
		           .cols = pick(2) ? 1 + pick(100) : 64 * (1 + pick(2)),
		           .n = 1 + pick(12),
		           .v = V_RANDOM };
	struct sample s;
	struct rows x;
	float *decoded, *want, *f;
	int w_kind = pick(5), x_kind = pick(5);

	sample_make(&s, &half, h.rows, h.cols, 0, DT_BF16, h.v);
	rows_make(&x, h.n, h.cols, 0, h.v, CPU_SCALAR);
	f = (float *)x.f.p;
	decoded = xmalloc((size_t)h.cols * 4);
	want = xmalloc((size_t)h.rows * (size_t)h.n * 4);
	for (int i = 0; i < h.rows * h.cols; i++) {
		uint16_t b = bf16_bits(pick(8) ? w_kind : pick(5));

		memcpy(s.data.p + 2 * i, &b, 2);
	}
	sample_lay_out(&s);
	for (int i = 0; i < h.n * h.cols; i++)
		f[i] = bf16_to_float(bf16_bits(pick(8) ? x_kind : 1 + pick(4))) * (pick(2) ? 1 : 1 + 0.01f * uniform());
	for (int o = 0; o < h.rows; o++) {
		s.w.fmt->decode(decoded, &s.w, o);
		for (int r = 0; r < h.n; r++)
			want[r * h.rows + o] = truth_bf16(level_orders(cpu_detect()).products, decoded, f + r * h.cols,
			                                  h.cols);
	}
	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l)) {
		if (!strcmp(level_orders(l).products, "plain"))
			continue;
		rows_pair(&x, l);
		check_mul(&half, &s, &x, &h, l, ARITH_FAST, want);
	}
	sample_drop(&s);
	rows_drop(&x);
	free(decoded);
	free(want);
}

/* ---- the rest ---- */

static void round_quantise(int turn)
{
	/* Groups of 64 have a kernel of their own; what is no number, and what has no end, is passed over or a code
	 * of 127. */
	int group = turn / VALUES % 3 ? 64 : 1 + pick(140), groups = 1 + pick(20), cols = group * groups;
	bool odd = turn / VALUES % 3 == 2;
	const float strange[] = { NAN, -NAN, INFINITY, -INFINITY, -0.0f };
	enum value v = (enum value)(turn % VALUES);

	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l)) {
		struct fence f, q, sc, su, ss;
		float *x = fence_make(&f, (size_t)cols * 4, 1, 0), *scale = fence_make(&sc, (size_t)groups * 4, 1, 0);
		int8_t *codes = fence_make(&q, (size_t)cols, 1, 0);
		int32_t *sum = fence_make(&su, (size_t)groups * 4, 1, 0);
		float *scaled = fence_make(&ss, (size_t)groups * 4, 1, 0);
		uint64_t keep = counter;
		int sig;

		for (int i = 0; i < cols; i++)
			x[i] = v == V_EDGE ? (float)(pick(255) - 127) :
			                     uniform() * (v == V_HUGE       ? 3e38f :
			                                  v == V_TINY       ? 1e-30f :
			                                  v == V_ZERO_SCALE ? 0 :
			                                                      1);
		for (int i = 0; odd && i < cols; i += 1 + pick(100))
			x[i] = strange[pick(5)];
		counter = keep + 2 * (uint64_t)cols;
		sig = GUARD(acts_quantiser(l)(codes, scale, sum, scaled, x, cols, group));
		if (sig) {
			printf("FAIL quantise %s: %s\n", cpu_level_name(l), signal_name(sig));
			failures++;
		}
		for (int g = 0; g < groups && !sig; g++) {
			float top = 0, want;
			int s = 0;

			for (int i = g * group; i < (g + 1) * group; i++)
				top = fmaxf(top, fabsf(x[i]));
			want = top < 1e-30f ? 0 : top / 127;
			for (int i = g * group; i < (g + 1) * group; i++) {
				float p = x[i] * (want > 0 ? 1 / want : 0);
				float c = isnan(p) ? 127 : rintf(fminf(fmaxf(p, -127), 127));

				s += (int)c;
				if (codes[i] != (int)c) {
					fail_at("quantise, code", l, cols, group);
					g = groups;
					break;
				}
			}
			if (g < groups && (scale[g] != want || sum[g] != s || scaled[g] != want * (float)s)) {
				fail_at("quantise, scale or sum", l, cols, group);
				break;
			}
		}
		if (l != cpu_detect())
			counter = keep;
		fence_drop(&f);
		fence_drop(&q);
		fence_drop(&sc);
		fence_drop(&su);
		fence_drop(&ss);
	}
}

static void round_vec(void)
{
	int n = 1 + pick(300);
	struct fence fa, fb;
	float *a = fence_make(&fa, (size_t)n * 4, 1, 0), *b = fence_make(&fb, (size_t)n * 4, pick(2), 4);

	for (int i = 0; i < n; i++) {
		a[i] = uniform();
		b[i] = uniform();
	}
	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l)) {
		struct vec_kernels k;
		float got = 0;
		int sig;

		vec_kernels(&k, l);
		sig = GUARD(got = k.dot(a, b, n));
		if (sig || !same(got, truth_dot(a, b, n)))
			fail_at(sig ? signal_name(sig) : "dot", l, n, 0);
		sig = GUARD(got = k.sum_squares(a, n));
		if (sig || !same(got, truth_dot(a, a, n)))
			fail_at(sig ? signal_name(sig) : "sum of squares", l, n, 0);
	}
	fence_drop(&fa);
	fence_drop(&fb);
}
static void check_numbers(void)
{
	uint16_t one;
	float f, half;
	double d = 1.5;
	uint8_t b = 0x7f;

	for (uint32_t h = 0; h < 65536; h++) {
		f = bf16_to_float((uint16_t)h);
		if (f == f && float_to_bf16(f) != h)
			fail_at("bf16 there and back", 0, (int)h, 0);
		one = (uint16_t)h;
		half = f16_to_float(one);
		dtype_to_float(&f, &one, DT_F16, 1);
		if (memcmp(&f, &half, sizeof f))
			fail_at("f16 one by one and many", 0, (int)h, 0);
	}
	f = NAN;
	if (bf16_to_float(float_to_bf16(f)) == bf16_to_float(float_to_bf16(f)))
		fail_at("bf16 NaN", 0, 0, 0);
	if (float_to_bf16(1.00390625f) != 0x3f80 || float_to_bf16(1.01171875f) != 0x3f82)
		fail_at("bf16 ties", 0, 0, 0);
	if (f16_to_float(0x3c00) != 1 || f16_to_float(0x0001) != 0x1p-24f || f16_to_float(0x7bff) != 65504 ||
	    !isinf(f16_to_float(0xfc00)))
		fail_at("f16", 0, 0, 0);
	dtype_to_float(&f, &d, DT_F64, 1);
	if (f != 1.5f)
		fail_at("f64", 0, 0, 0);
	dtype_to_float(&f, &b, DT_F8_E4M3, 1);
	if (f == f)
		fail_at("e4m3 NaN", 0, 0, 0);
	b = 0x7e;
	dtype_to_float(&f, &b, DT_F8_E4M3, 1);
	if (f != 448)
		fail_at("e4m3", 0, 0, 0);
	b = 0x7b;
	dtype_to_float(&f, &b, DT_F8_E5M2, 1);
	if (f != 57344)
		fail_at("e5m2", 0, 0, 0);
	b = 0;
	dtype_to_float(&f, &b, DT_F8_E8M0, 1);
	if (f != 0x1p-127f)
		fail_at("e8m0", 0, 0, 0);
}

static void check_refusals(void)
{
	struct weight w;
	struct err err;
	uint8_t d[4096] = { 0 };
	struct {
		int rc, want;
	} c[] = {
		{ weight_plain(&w, "t", DT_F32, 4, 8, d, 127, &err), E_FORMAT },
		{ weight_plain(&w, "t", DT_U8, 4, 8, d, 32, &err), E_UNSUPPORTED },
		{ weight_plain(&w, "t", DT_F32, 0, 8, d, 0, &err), E_FORMAT },
		{ weight_coded(&w, "t", "affine", 4, 32, 4, 64, d, 128, d, 16, d, 16, DT_BF16, &err), 0 },
		{ weight_coded(&w, "t", "affine", 7, 32, 4, 64, d, 128, d, 16, d, 16, DT_BF16, &err), E_UNSUPPORTED },
		{ weight_coded(&w, "t", "affine", 4, 32, 4, 64, d, 128, d, 16, NULL, 0, DT_BF16, &err), E_MISSING },
		{ weight_coded(&w, "t", "affine", 4, 33, 4, 64, d, 128, d, 16, d, 16, DT_BF16, &err), E_FORMAT },
		{ weight_coded(&w, "t", "affine", 4, 32, 4, 64, d, 129, d, 16, d, 16, DT_BF16, &err), E_FORMAT },
		{ weight_coded(&w, "t", "affine", 4, 32, 4, 64, d, 128, d, 15, d, 16, DT_BF16, &err), E_FORMAT },
		{ weight_coded(&w, "t", "affine", 4, 32, 4, 64, d, 128, d, 16, d, 12, DT_BF16, &err), E_FORMAT },
		{ weight_coded(&w, "t", "affine", 4, 32, 4, 64, d, 128, d, 8, d, 8, DT_U8, &err), E_FORMAT },
		{ weight_coded(&w, "t", "mxfp4", 4, 16, 4, 64, d, 128, d, 16, NULL, 0, DT_U8, &err), E_UNSUPPORTED },
		{ weight_coded(&w, "t", "nvfp4", 4, 16, 4, 64, d, 128, d, 16, NULL, 0, DT_U8, &err), 0 },
		{ weight_coded(&w, "t", "mxfp4", 4, 32, 4, 64, d, 128, d, 8, d, 8, DT_U8, &err), E_FORMAT },
	};

	for (size_t i = 0; i < sizeof c / sizeof *c; i++)
		if (c[i].rc != c[i].want)
			fail_at("refusal", 0, (int)i, c[i].rc);
}

/* ---- another implementation's files ---- */

static bool check_golden(const char *file)
{
	static const int group_list[] = { 32, 64, 128 };
	struct golden *g = golden_open(file);
	int dim[4], xd[4];
	const float *x;

	if (!g)
		return false;
	x = golden_get(g, "x", xd);
	for (size_t i = 0; i < n_kinds; i++)
		for (int j = 0; j < 3; j++) {
			const struct kind *k = &kinds[i];
			int group = k->group ? k->group : group_list[j], rows, cols = xd[1];
			char key[96], base[64];
			const void *packed, *scales, *biases = NULL;
			const float *want, *product;
			float *row = xmalloc((size_t)cols * 4), *out;
			struct weight w;
			struct err err;
			struct kernels kn;
			void *scratch;
			size_t groups;

			if (!k->mode || is_gguf(k) || (k->group && (j || k->plain)))
				goto next;
			if (!k->group && k->bits == 1) /* which that implementation does not write: test_gguf */
				goto next;
			if (k->group)
				snprintf(base, sizeof base, "%s", k->mode);
			else
				snprintf(base, sizeof base, "affine.b%d.g%d", k->bits, group);
			snprintf(key, sizeof key, "%s.packed", base);
			packed = golden_get(g, key, dim);
			if (!packed) {
				printf("FAIL %s: no %s\n", file, key);
				failures++;
				goto next;
			}
			rows = dim[0];
			groups = (size_t)rows * (size_t)(cols / group);
			snprintf(key, sizeof key, k->group ? "%s.scales_u8" : "%s.scales", base);
			scales = golden_get(g, key, dim);
			snprintf(key, sizeof key, "%s.biases", base);
			if (!k->group)
				biases = golden_get(g, key, dim);
			snprintf(key, sizeof key, "%s.dequant_f32", base);
			want = golden_get(g, key, dim);
			snprintf(key, sizeof key, "%s.xWT_f32", base);
			product = golden_get(g, key, dim);
			if (weight_coded(&w, base, k->mode, k->bits, group, rows, cols, packed,
			                 (size_t)rows * (size_t)cols * (size_t)k->bits / 8, scales,
			                 groups * (k->group ? 1 : 4), biases, biases ? groups * 4 : 0,
			                 k->group ? DT_U8 : DT_F32, &err)) {
				printf("FAIL %s: %s\n", file, err.msg);
				failures++;
				goto next;
			}
			for (int o = 0; o < rows; o++) {
				w.fmt->decode(row, &w, o);
				for (int c = 0; c < cols; c++)
					if (row[c] != want[o * cols + c]) {
						printf("FAIL %s %s: element %d %d is %g, should be %g\n", file, base, o,
						       c, (double)row[c], (double)want[o * cols + c]);
						failures++;
						o = rows;
						break;
					}
			}
			out = xmalloc((size_t)xd[0] * (size_t)rows * 4);
			scratch = aligned_alloc(64, (weight_scratch_bytes(&w) + 63) / 64 * 64);
			w.fmt->kernels(&kn, cpu_detect());
			kn.mul[ARITH_F32](out, (size_t)rows, &w, 0, rows,
			                  &(struct acts){ .rows = xd[0], .cols = cols, .f = x, .ld = (size_t)cols }, 0,
			                  xd[0], scratch);
			for (int r = 0; r < xd[0] * rows; r++) {
				double size = 0;

				w.fmt->decode(row, &w, r % rows);
				for (int c = 0; c < cols; c++)
					size += fabs((double)row[c] * (double)x[r / rows * cols + c]);
				if (fabsf(out[r] - product[r]) > (float)(1e-6 * size)) {
					printf("FAIL %s %s: product %d is %g, should be %g\n", file, base, r,
					       (double)out[r], (double)product[r]);
					failures++;
					break;
				}
			}
			free(out);
			free(scratch);
		next:
			free(row);
		}
	golden_close(g);
	return true;
}

/* ---- bench ---- */

/* Best of a few passes. */
static double bench_once(weight_mul_fn *mul, const struct weight *w, const struct acts *x, int n, float *out,
                         void *scratch)
{
	double best = 1e9, total = 0;

	for (int i = 0; i < 12 && (i < 3 || total < 0.12); i++) {
		double t = now();

		mul(out, (size_t)w->rows, w, 0, w->rows, x, 0, n, scratch);
		t = now() - t;
		total += t;
		best = t < best ? t : best;
	}
	return best;
}

/* Reading the same bytes in order and doing nothing with them: the ceiling. */
static double bench_read(const struct weight *w)
{
	size_t n = (size_t)w->rows * w->row_bytes / 8;
	double best = 1e9;
	uint64_t sum = 0;

	for (int i = 0; i < 4; i++) {
		double t = now();

		for (size_t j = 0; j + 8 <= n; j += 8) {
			uint64_t v;

			memcpy(&v, w->data + j * 8, 8);
			sum += v;
		}
		t = now() - t;
		best = t < best ? t : best;
	}
	if (sum == 1)
		printf(" ");
	return (double)n * 8 / best * 1e-9;
}

/* One line of it: `of` is the weight, or what its blocks are of. */
static void bench_line(const struct kind *k, const struct weight *of, const char *what, enum cpu_level l)
{
	static const int ns[] = { 1, 2, 4, 8, 64, 256 };
	struct kernels kn;

	of->fmt->kernels(&kn, l);
	printf("%-8s %-7s %s", k->name, cpu_level_name(l), what);
	for (size_t i = 0; i < sizeof ns / sizeof *ns; i++) {
		int n = ns[i], m = n > 8 ? 960 : of->rows;
		struct weight w = weight_rows(of, 0, m < of->rows ? m : of->rows);
		float *out = xmalloc((size_t)w.rows * (size_t)n * 4);
		void *scratch = aligned_alloc(64, (weight_scratch_bytes(&w) + 63) / 64 * 64);
		struct rows x;
		double t, bytes;

		rows_make(&x, n, w.cols, w.group, V_RANDOM, l);
		if (!k->mode && n >= ACTS_TILED)
			while (acts_pairer(l) && !x.a.pairs)
				rows_pair(&x, l);
		t = bench_once(kn.mul[ARITH_FAST], &w, &x.a, n, out, scratch);
		bytes = (double)w.rows * ((double)w.row_bytes + 2 * (double)weight_scale_bytes(&w));
		if (n == 1)
			printf("  1 row %5.1f GB/s", bytes / t * 1e-9);
		else
			printf("  %d: %4.0f Gop/s", n, 2.0 * w.rows * w.cols * n / t * 1e-9);
		rows_drop(&x);
		free(out);
		free(scratch);
	}
	printf("\n");
}

static void bench(const struct kind *k)
{
	int group = k->group ? k->group : 64, cols = 3584;
	/* One row: more than the third cache holds.  Many rows: a matrix of a layer. */
	int stored = format_find(k->name)->bits, rows = (int)(100e6 * 8 / stored / cols) / 96 * 96;
	struct sample s;

	sample_make(&s, k, rows, cols, k->mode ? group : 0, DT_BF16, V_RANDOM);
	for (enum cpu_level l = cpu_level_next(CPU_SCALAR); l < CPU_LEVELS; l = cpu_level_next(l)) {
		struct kernels kn;
		char what[64];

		s.w.fmt->kernels(&kn, l);
		snprintf(what, sizeof what, "read %4.1f GB/s", bench_read(&s.w));
		bench_line(k, &s.w, what, l);
		if (s.bare.packed && kn.packed)
			bench_line(k, &s.bare, "  from blocks ", l);
	}
	sample_drop(&s);
}

int main(int argc, char **argv)
{
	enum { ALL = 1 << 30, QUICK = 300000 };
	struct check_opts o;
	bool golden = true;

	/* Quick: each value with each type of scale once, in smaller products. */
	check_opts_read(&o, argc, argv, 3 * VALUES);
	for (size_t i = 0; i < n_kinds; i++) {
		bool wanted = check_wanted(&o, kinds[i].name);

		/* Types of GGUF share their kernels. */
		int rounds = is_gguf(&kinds[i]) ? (o.rounds + 2) / 3 : o.rounds;

		for (int r = 0; r < rounds && wanted && !o.bench && failures < 20; r++)
			round_mul(&kinds[i], shape_of(&kinds[i], r, o.quick ? QUICK : ALL));
		for (int t = 0; t < turns_of_blocks(&kinds[i]) && wanted && !o.bench && failures < 20;
		     t += o.quick && is_gguf(&kinds[i]) ? 1 + pick(6) : 1)
			round_mul(&kinds[i], shape_of_blocks(&kinds[i], t));
		if (wanted && o.bench)
			bench(&kinds[i]);
	}
	if (o.bench)
		return 0;
	for (int f = 0; formats[f]; f++) {
		size_t i = 0;

		while (i < n_kinds && strcmp(kinds[i].name, formats[f]->name))
			i++;
		if (i == n_kinds) {
			printf("FAIL %s: no sample of it in checkkern's table\n", formats[f]->name);
			failures++;
		}
	}
	check_numbers();
	check_refusals();
	for (int r = 0; r < 8 * o.rounds && check_wanted(&o, "bf16") && failures < 20; r++)
		round_bits();
	for (int r = 0; r < o.rounds; r++) {
		round_quantise(r);
		round_vec();
	}
	golden &= check_golden("_quant/quantize_f32.safetensors");
	golden &= check_golden("_quant/quantize_bf16.safetensors");
	golden &= check_golden("_quant/quantize_f16.safetensors");
	if (failures)
		printf("%d failures; again with --seed %llu\n", failures, (unsigned long long)seed);
	return failures ? 1 : golden ? 0 : 77;
}
