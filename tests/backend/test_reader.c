/* test_reader.c - what one product alone reads may be kept in the form that it wants
 * (struct linear, reader): the same bits as through floats, for products and for the
 * recurrence, every form of weights, any number of rows and threads, at every level. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/rng.h"

enum {
	HIDDEN = 256,
	INNER = 384,
	HK = 2,
	HV = 4,
	DK = 32,
	DV = 64,
	Z = HV * DV,
	CH = 2 * HK * DK + Z,
	WIDTH = 4,
	ROWS = 150,
	TAPE = 3
};

static int failures, kept;

static float *floats(uint64_t seed, size_t n, float scale)
{
	float *f = xmalloc(n * sizeof *f);

	for (size_t i = 0; i < n; i++)
		f[i] = (float)(rng_uniform(seed, i, 7) * 2 - 1) * scale;
	return f;
}

static uint8_t *halves(uint64_t seed, size_t n, float scale)
{
	float *f = floats(seed, n, scale);
	uint8_t *p = xmalloc(n * 2);

	for (size_t i = 0; i < n; i++) {
		uint16_t h = float_to_bf16(f[i]);

		memcpy(p + 2 * i, &h, 2);
	}
	free(f);
	return p;
}

/* bits 16: bf16. */
static struct weight make(uint64_t seed, int bits, int group, int rows, int cols)
{
	size_t n = (size_t)rows * (size_t)cols, bytes = n * (size_t)bits / 8;
	uint8_t *codes;
	struct weight w;
	struct err err;

	if (bits == 16) {
		assert(!weight_plain(&w, "w", DT_BF16, rows, cols, halves(seed, n, 0.2f), n * 2, &err));
		return w;
	}
	codes = xmalloc(bytes);
	for (size_t i = 0; i < bytes; i++)
		codes[i] = (uint8_t)rng_bits(seed, i, 3);
	assert(!weight_coded(&w, "w", "affine", bits, group, rows, cols, codes, bytes,
	                     halves(seed + 1, n / (size_t)group, 0.3f / (float)(1 << bits)), n / (size_t)group * 2,
	                     halves(seed + 2, n / (size_t)group, 0.1f), n / (size_t)group * 2, DT_BF16, &err));
	return w;
}

static void drop(struct weight *w)
{
	free((void *)w->data);
	free((void *)w->scales);
	free((void *)w->biases);
}

struct layer {
	struct weight gate, up, down, out;
};

/* Rows of three sequences, the last with tentative ones. */
struct step {
	struct span span[3];
	int32_t row[3];
	int n;
};

static struct step cut(int n)
{
	struct step s = { .n = 0 };
	int first = n / 3, second = n > 2 ? 1 : 0;

	for (int i = 0; i < 3; i++) {
		int rows = i == 0 ? first : i == 1 ? second : n - first - second;

		if (!rows)
			continue;
		s.row[s.n] = i == 0 ? 0 : i == 1 ? first : first + second;
		s.span[s.n++] = (struct span){ .slot = i, .n = rows, .n_draft = i == 2 && rows > TAPE ? TAPE - 1 : 0 };
	}
	return s;
}

/* x [2][ROWS][HIDDEN]: += the feed-forward, += the recurrence.  Returns whether floats were left unwritten. */
static bool run(struct backend *be, enum arith arith, const struct layer *y, int n, bool readers, float *x)
{
	struct step s = cut(n);
	const int32_t owed[3] = { 0 };
	const bool still[3] = { false };
	struct state_view st = {
		.shape = { 1, HK, HV, DK, DV, CH, WIDTH }, .tape_rows = TAPE, .owed = owed, .still = still
	};
	struct pass p = { .be = be, .arith = arith, .n_row = n, .n_item = s.n, .span = s.span, .row = s.row };
	float *in = floats(1, ROWS * HIDDEN, 2), *qkv = floats(2, ROWS * CH, 1), *z = floats(3, ROWS * Z, 2);
	float *b = floats(4, ROWS * HV, 1), *a = floats(5, ROWS * HV, 1), *conv = floats(6, CH * WIDTH, 1),
	      *gains = floats(7, HIDDEN + INNER, 1);
	/* What is not written is not a number, and where nothing may be read twice it is drawn anew. */
	float *mid = xmalloc(ROWS * INNER * sizeof *mid);
	struct linear up = { .w = &y->up, .bias = gains };
	struct linear gate = { .w = &y->gate,
		               .out = mid,
		               .ld = INNER,
		               .up = &up,
		               .reader = readers ? &y->down : NULL,
		               .act = { .kind = ACT_SILU } };
	struct linear down = { .w = &y->down, .out = x, .ld = HIDDEN, .add = true };
	struct linear out = { .w = &y->out, .out = x + ROWS * HIDDEN, .ld = HIDDEN, .add = true };
	struct recur d = { .conv = conv,
		           .a_log_exp = gains + 8,
		           .dt_bias = gains,
		           .norm = gains,
		           .eps = 1e-6f,
		           .reader = readers ? &y->out : NULL };
	bool unwritten;

	for (int i = 0; i < HV; i++)
		gains[8 + i] = fabsf(gains[8 + i]);
	st.s = xcalloc(3 * state_floats(&st.shape), sizeof(float));
	st.tail = xcalloc(3 * state_tail_floats(&st.shape), sizeof(float));
	st.tape = xcalloc(3 * TAPE * state_tape_floats(&st.shape), sizeof(float));
	memset(mid, 0xff, ROWS * INNER * sizeof *mid);
	be->ops->linear(&p, &gate, 1, in, n, HIDDEN);
	unwritten = isnan(mid[0]);
	be->ops->linear(&p, &down, 1, mid, n, INNER);
	/* Floats at the same place, which nobody made ready. */
	memcpy(mid, in, (size_t)n * HIDDEN * sizeof *mid);
	be->ops->linear(&p, &(struct linear){ .w = &y->gate, .out = mid + n * HIDDEN, .ld = INNER }, 1, mid, 1, HIDDEN);
	for (int i = 0; i < HIDDEN; i++)
		x[i] += mid[n * HIDDEN + i];
	memset(mid, 0xff, ROWS * INNER * sizeof *mid);
	be->ops->recur(&p, mid, &d, &(struct recur_in){ qkv, z, b, a }, &st, 0);
	unwritten &= isnan(mid[0]);
	be->ops->linear(&p, &out, 1, mid, n, Z);
	free(in), free(qkv), free(z), free(b), free(a), free(conv), free(gains), free(mid);
	free(st.s), free(st.tail), free(st.tape);
	return unwritten;
}

static void try(enum cpu_level level, int threads, enum arith arith, const struct layer *y, const char *what)
{
	static const int rows[] = { 1, 4, 5, 16, 17, 40, ROWS };
	struct backend *be = backend_cpu_open(threads, level);
	float *one = xmalloc(2 * ROWS * HIDDEN * sizeof *one), *two = xmalloc(2 * ROWS * HIDDEN * sizeof *two);

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		memset(one, 0, 2 * ROWS * HIDDEN * sizeof *one);
		memset(two, 0, 2 * ROWS * HIDDEN * sizeof *two);
		if (run(be, arith, y, rows[i], false, one)) {
			printf("FAIL %s: %d rows left unwritten for anyone\n", what, rows[i]);
			failures++;
		}
		kept += run(be, arith, y, rows[i], true, two);
		if (isnan(one[0]) || memcmp(one, two, 2 * ROWS * HIDDEN * sizeof *one)) {
			printf("FAIL %s: %d rows, level %s, %d threads, arith %d: other bits with a reader\n", what,
			       rows[i], cpu_level_name(level), threads, arith);
			failures++;
		}
	}
	free(one);
	free(two);
	be->ops->close(be);
}

int main(void)
{
	static const struct {
		const char *name;
		int bits, group, reader_bits, reader_group;
	} of[] = {
		{ "4 bits by 64", 4, 64, 4, 64 },        { "4 and 8 bits, 32", 4, 64, 8, 32 },
		{ "8 and 4 bits, 128", 8, 32, 4, 128 },  { "3 bits", 3, 64, 3, 64 },
		{ "bf16 read by 4 bits", 16, 0, 4, 64 }, { "4 bits read by bf16", 4, 64, 16, 0 },
	};
	enum cpu_level top = cpu_detect();
	bool quick = getenv("WEFT_TEST_QUICK") != NULL;

	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		struct layer y = {
			make(10, of[i].bits, of[i].group, INNER, HIDDEN),
			make(20, of[i].bits, of[i].group, INNER, HIDDEN),
			make(30, of[i].reader_bits, of[i].reader_group, HIDDEN, INNER),
			make(40, of[i].reader_bits, of[i].reader_group, HIDDEN, Z),
		};

		for (enum cpu_level l = quick ? top : CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l))
			for (int threads = 1; threads <= (quick ? 2 : 3); threads++)
				try(l, threads, ARITH_FAST, &y, of[i].name);
		try(top, 2, ARITH_F32, &y, of[i].name);
		drop(&y.gate), drop(&y.up), drop(&y.down), drop(&y.out);
	}
	if (!kept) {
		printf("FAIL nothing was kept for a reader\n");
		failures++;
	}
	return failures != 0;
}
