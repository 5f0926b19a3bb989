/* coded_many_amx.c - products over coded weights with tiles of int8; the bits of coded.c.
 *
 * One tile instruction sums 64 inputs of 16 outputs by 16 rows: 2,048 operations a
 * cycle where vpdpbusd does 256.  Codes of 16 outputs are a tile as they lie, once
 * they are bytes; the activations, 16 rows by quads of inputs, were laid out so
 * before.  A group of 64 inputs is one instruction, one of 32 half a tile, one of
 * 128 two.  What bounds many rows are the float steps, four instructions per group,
 * output and 16 rows, and what the first cache holds: so codes of 32 outputs are
 * made in stretches of TILED_INPUTS and used for all rows at once, and the sums in
 * float wait in memory between two stretches, which changes no bit of them.  What
 * comes from far, the next codes and the lines outputs are written to, is asked for
 * a few lines at a time, before tiles that take longer than they do.
 *
 * What bounds few rows is reading the weights.  For groups of 64 codes of 4 or 8 bits
 * two groups at a time become bytes, two groups before their turn, so that arithmetic
 * and memory need not wait for one another (few_run). */
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "quant/coded/coded_avx512.h"
#include "quant/coded/coded_prefetch.h"
#include "quant/lanes/tile_config.h"
#include "quant/lanes/transpose512.h"

enum { T_OUT = 16, T_ROWS = ACTS_TILE, T_BYTES = 64, T_SUMS = T_OUT * T_ROWS, FEW_TILES = 2, BLOCK = 8, LINE = 64 };

/* Registers 0 to 3: sums; 4, 5: codes; 6, 7: activations. */
static void configure(int inputs)
{
	struct tile_config c = { .palette = 1 };

	for (int i = 0; i < 4; i++) {
		c.rows[i] = T_OUT;
		c.row_bytes[i] = T_BYTES;
	}
	for (int i = 4; i < 6; i++) {
		c.rows[i] = T_OUT;
		c.row_bytes[i] = (uint16_t)inputs;
		c.rows[i + 2] = (uint8_t)(inputs / 4);
		c.row_bytes[i + 2] = T_BYTES;
	}
	tile_config_load(&c);
}

/* The memory of a call, out of the thread's scratch. */
struct tiles_scratch {
	float *scale, *bias; /* [groups][PANEL_OUT] */
	uint8_t *code;       /* [2][a stretch of inputs / step][16][step] */
	float *f;            /* [tiles of rows][2][16][16] */
	uint8_t *tiles;      /* TILED_HERE rows */
};

/* ---- activations ---- */

void acts_tile_amx(uint8_t *tile, const struct acts *a, int r0, int rows)
{
	int groups = a->cols / a->group;
	float *beside = (float *)tile;
	int8_t *q = (int8_t *)(beside + (size_t)groups * 3 * T_ROWS);

	if (rows < T_ROWS)
		memset(beside, 0, (size_t)groups * 3 * T_ROWS * sizeof(float));
	for (int r = 0; r < rows; r++) {
		size_t at = (size_t)(r0 + r) * (size_t)groups;

		for (int g = 0; g < groups; g++, at++) {
			float *to = beside + (size_t)g * 3 * T_ROWS + r;

			to[0] = a->scale[at];
			to[T_ROWS] = a->scaled_sum[at];
			memcpy(to + 2 * T_ROWS, &a->sum[at], sizeof(float));
		}
	}
	for (int k = 0; k < a->cols; k += 64) {
		int have = a->cols - k < 64 ? a->cols - k : 64;
		__mmask64 m = have == 64 ? ~(__mmask64)0 : ((__mmask64)1 << have) - 1;
		__m512i t[16];

		for (int r = 0; r < T_ROWS; r++)
			t[r] = _mm512_maskz_loadu_epi8(r < rows ? m : 0,
			                               a->q + (size_t)(r0 + (r < rows ? r : 0)) * (size_t)a->cols + k);
		transpose16(t);
#pragma GCC unroll 16
		for (int i = 0; i < 16; i++)
			if (4 * i < have)
				_mm512_storeu_si512(q + (size_t)(k + 4 * i) * T_ROWS, t[i]);
	}
}

/* ---- one tile of outputs by rows ---- */

/* All pointers at the first input or group of a stretch. */
struct tile {
	const uint8_t *code;       /* [inputs / step][16 outputs][step] */
	const int8_t *q;           /* [inputs / 4][16 rows][4] */
	const float *beside;       /* [groups][scale, scaled_sum, sum][16 rows] */
	const float *scale, *bias; /* [groups][PANEL_OUT]; bias NULL when there is none */
	int group, groups, step, zero;
	float *f;                /* [16 outputs][16 rows]: the sums so far */
	int32_t (*sums)[T_SUMS]; /* [BLOCK] room */
};

/* per: instructions for a group. */
#define GROUP_SUMS(N, CODES, ROWS)                                                \
	INLINE void group_sums_##N(const struct tile *t, int g, const int per)    \
	{                                                                         \
		size_t at = (size_t)g * (size_t)t->group, step = (size_t)t->step; \
                                                                                  \
		_tile_zero(N);                                                    \
		for (int k = 0; k < per; k++, at += step) {                       \
			_tile_loadd(CODES, t->code + at * T_OUT, step);           \
			_tile_loadd(ROWS, t->q + at * T_ROWS, 4 * T_ROWS);        \
			_tile_dpbusd(N, CODES, ROWS);                             \
		}                                                                 \
	}
GROUP_SUMS(0, 4, 6)
GROUP_SUMS(1, 5, 7)
GROUP_SUMS(2, 4, 6)
GROUP_SUMS(3, 5, 7)

/* Integer sums of n <= BLOCK groups from g on, to t->sums.  Sums are stored two products
 * later: a store that waits for its product holds up what comes behind it. */
INLINE void block_sums(const struct tile *t, int g, int n, const int per)
{
#define PRODUCT(i, N) \
	if ((i) < n)  \
		group_sums_##N(t, g + (i), per);
#define STORE(i, N)  \
	if ((i) < n) \
		_tile_stored(N, t->sums[i], T_BYTES);
	PRODUCT(0, 0)
	PRODUCT(1, 1)
	PRODUCT(2, 2)
	STORE(0, 0)
	PRODUCT(3, 3)
	STORE(1, 1)
	PRODUCT(4, 0)
	STORE(2, 2)
	PRODUCT(5, 1)
	STORE(3, 3)
	PRODUCT(6, 2)
	STORE(4, 0)
	PRODUCT(7, 3)
	STORE(5, 1)
	STORE(6, 2)
	STORE(7, 3)
#undef PRODUCT
#undef STORE
}

/* The float steps of one group, as in format.h: an output's 16 rows at a time. */
INLINE void group_steps(__m512 f[], const struct tile *t, int g, const int32_t *isum, const bool has_bias)
{
	const float *beside = t->beside + (size_t)g * 3 * T_ROWS;
	const float *s = t->scale + (size_t)g * PANEL_OUT, *b = has_bias ? t->bias + (size_t)g * PANEL_OUT : NULL;
	__m512 xs = _mm512_loadu_ps(beside), ss = _mm512_loadu_ps(beside + T_ROWS);
	__m512i zero = _mm512_setzero_si512();

	if (!has_bias && t->zero)
		zero = _mm512_mullo_epi32(_mm512_set1_epi32(t->zero), _mm512_loadu_si512(beside + 2 * T_ROWS));
#pragma GCC unroll 16
	for (int o = 0; o < T_OUT; o++) {
		__m512i v = _mm512_load_si512(isum + o * T_ROWS);

		if (!has_bias)
			v = _mm512_sub_epi32(v, zero);
		f[o] = _mm512_fmadd_ps(_mm512_set1_ps(s[o]), _mm512_mul_ps(_mm512_cvtepi32_ps(v), xs), f[o]);
		if (has_bias)
			f[o] = _mm512_fmadd_ps(_mm512_set1_ps(b[o]), ss, f[o]);
	}
}

/* All sums of a block first: woven into one another, tiles and float steps take turns at
 * the port where half of the multiplications go. */
INLINE void tile_run(const struct tile *shared, bool first, const int per, const bool has_bias)
{
	const struct tile t = *shared; /* in registers: the tile instructions may write any memory */
	__m512 f[T_OUT];

#pragma GCC unroll 16
	for (int o = 0; o < T_OUT; o++)
		f[o] = first ? _mm512_setzero_ps() : _mm512_load_ps(t.f + o * T_ROWS);
	for (int g = 0; g < t.groups; g += BLOCK) {
		int n = t.groups - g < BLOCK ? t.groups - g : BLOCK;

		block_sums(&t, g, n, per);
		for (int i = 0; i < n; i++)
			group_steps(f, &t, g + i, t.sums[i], has_bias);
	}
#pragma GCC unroll 16
	for (int o = 0; o < T_OUT; o++)
		_mm512_store_ps(t.f + o * T_ROWS, f[o]);
}

static void tile_plain(const struct tile *t, bool first)
{
	if (t->group == t->step)
		tile_run(t, first, 1, false);
	else
		tile_run(t, first, t->group / t->step, false);
}

static void tile_biased(const struct tile *t, bool first)
{
	if (t->group == t->step)
		tile_run(t, first, 1, true);
	else
		tile_run(t, first, t->group / t->step, true);
}

/* f to out: a row of n_out outputs at a time. */
static void tile_out(float *out, size_t ld, const float *f, int rows, int n_out)
{
	__mmask16 m = (__mmask16)((1u << n_out) - 1);
	__m512i t[16];

	for (int o = 0; o < T_OUT; o++)
		t[o] = _mm512_load_si512(f + o * T_ROWS);
	transpose16(t);
	for (int r = 0; r < rows; r++)
		_mm512_mask_storeu_ps(out + (size_t)r * ld, m, _mm512_castsi512_ps(t[r]));
}

/* ---- few rows ---- */

/* The 64 codes at p. */
INLINE __m512i group_codes(const uint8_t *p, const int bits)
{
	if (bits == 8)
		return _mm512_loadu_si512(p);
	return nibbles_in_order(_mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)p)));
}

/* Groups g and g + 1, of which n are, of n_out outputs to [2][16 outputs][64].  As many lines of
 * what is ahead are fetched into the second cache; at NULL: none. */
INLINE void few_codes(uint8_t *to, const struct weight *w, int o, int n_out, int g, int n, struct coded_ahead ahead,
                      const int bits)
{
	const uint8_t *from = w->data + (size_t)o * w->row_bytes + (size_t)g * 8 * bits;
	const uint8_t *next = ahead.at ? ahead.at + (size_t)(T_OUT * g) * 8 * bits / RUNS : NULL;
	const uint8_t *blocks = packed_of(w);

	if (blocks) {
		codes_of_blocks(to, packed_at(w, blocks, o, g), n, 0, bits);
		for (int k = 0; k < T_OUT * bits / 4 && next; k++)
			_mm_prefetch(next + (size_t)(k % RUNS) * ahead.hop + LINE * (k / RUNS), _MM_HINT_T1);
		return;
	}

#pragma GCC unroll 4
	for (int i = 0; i < n_out; i++, from += w->row_bytes, to += T_BYTES) {
		_mm512_store_si512(to, group_codes(from, bits));
		if (n == 2)
			_mm512_store_si512(to + T_OUT * T_BYTES, group_codes(from + 8 * bits, bits));
		for (int k = i * bits / 4, end = k + bits / 4; k < end && next; k++)
			_mm_prefetch(next + (size_t)(k % RUNS) * ahead.hop + LINE * (k / RUNS), _MM_HINT_T1);
	}
}

INLINE void few_sums(int32_t *sums, const struct tile *t, int g, const uint8_t *code)
{
	_tile_zero(0);
	_tile_loadd(4, code, T_BYTES);
	_tile_loadd(6, t->q + (size_t)g * T_BYTES * T_ROWS, 4 * T_ROWS);
	_tile_dpbusd(0, 4, 6);
	_tile_stored(0, sums, T_BYTES);
}

/* n_out <= 16 outputs from o on by a tile of rows.  Two groups are multiplied while the next
 * two become bytes and the last two take their float steps.  Their buffers stay in the first
 * cache: bytes of whole rows go to the second and come back, which takes longer than their
 * tiles do. */
INLINE void few_run(const struct tile *shared, const struct weight *weight, int o, int n_out, struct coded_ahead ahead,
                    const int bits)
{
	const struct weight w = *weight;
	const struct tile t = *shared; /* in registers: the tile instructions may write any memory */
	int32_t sums[4][T_SUMS] __attribute__((aligned(64)));
	uint8_t code[4][T_OUT * T_BYTES] __attribute__((aligned(64)));
	__m512 f[T_OUT];

#pragma GCC unroll 16
	for (int i = 0; i < T_OUT; i++)
		f[i] = _mm512_setzero_ps();
	few_codes(code[0], &w, o, n_out, 0, t.groups > 1 ? 2 : 1, ahead, bits);
	for (int g = 0; g < t.groups + 2; g += 2) {
		int now = g & 2, other = now ^ 2;

		if (g < t.groups)
			few_sums(sums[now], &t, g, code[now]);
		if (g + 1 < t.groups)
			few_sums(sums[now + 1], &t, g + 1, code[now + 1]);
		if (g + 2 < t.groups)
			few_codes(code[other], &w, o, n_out, g + 2, t.groups - g > 3 ? 2 : 1, ahead, bits);
		if (g)
			group_steps(f, &t, g - 2, sums[other], true);
		if (g && g - 1 < t.groups)
			group_steps(f, &t, g - 1, sums[other + 1], true);
	}
#pragma GCC unroll 16
	for (int i = 0; i < T_OUT; i++)
		_mm512_store_ps(t.f + i * T_ROWS, f[i]);
}

static void few_4(const struct tile *t, const struct weight *w, int o, int n_out, struct coded_ahead ahead)
{
	few_run(t, w, o, n_out, ahead, 4);
}

static void few_8(const struct tile *t, const struct weight *w, int o, int n_out, struct coded_ahead ahead)
{
	few_run(t, w, o, n_out, ahead, 8);
}

static bool few_takes(const struct weight *w)
{
	const struct coding *c = w->fmt->coding;

	return w->group == T_BYTES && c->bias && (c->bits == 4 || c->bits == 8);
}

/* rows <= FEW_TILES * 16 rows, laid out. */
static void mul_few(float *out, size_t ld, const struct weight *w, int o0, int o1, const uint8_t *tiles, int rows,
                    const struct tiles_scratch *m)
{
	struct tile t = { .groups = w->cols / w->group, .scale = m->scale, .bias = m->bias, .f = m->f };
	size_t tile_bytes = acts_tile_bytes(w->cols, w->group);
	const struct coded_ahead none = { NULL, 0 };

	for (int o = o0; o < o1; o += T_OUT) {
		int n_out = o1 - o < T_OUT ? o1 - o : T_OUT;

		coded_scales_avx512(m->scale, m->bias, PANEL_OUT, w, o, n_out);
		for (int r = 0; r < rows; r += T_ROWS) {
			t.beside = (const float *)(tiles + (size_t)(r / T_ROWS) * tile_bytes);
			t.q = (const int8_t *)(t.beside + (size_t)t.groups * 3 * T_ROWS);
			(w->fmt->coding->bits == 4 ? few_4 : few_8)(&t, w, o, n_out, r ? none : coded_look_ahead(w, o));
			tile_out(out + (size_t)r * ld + (o - o0), ld, t.f, rows - r < T_ROWS ? rows - r : T_ROWS,
			         n_out);
		}
	}
}

/* ---- rows by outputs ---- */

/* Rows of a call, laid out, and where their outputs go. */
struct rows {
	const uint8_t *tiles;
	int n;      /* <= TILED_ROWS */
	float *out; /* [n][ld] */
	size_t ld;
};

/* PANEL_OUT outputs from o on, n_out of them real; to r->out. */
static void mul_panel(const struct weight *w, int o, int n_out, const struct rows *r, const struct tiles_scratch *m)
{
	int32_t sums[BLOCK][T_SUMS] __attribute__((aligned(64)));
	int n = (r->n + T_ROWS - 1) / T_ROWS;
	int groups = w->cols / w->group, halves = n_out > T_OUT ? 2 : 1;
	/* Whole groups, and whole 64 inputs.  For few rows all: a panel is then read in one
	 * stretch of memory in rising order, which is what counts there. */
	int even = w->group % T_BYTES ? 2 : 1;
	int stretch = n <= FEW_TILES ? w->cols : TILED_INPUTS / w->group / even * even * w->group;
	size_t half = (size_t)T_OUT * (size_t)stretch;
	size_t tile_bytes = acts_tile_bytes(w->cols, w->group), beside = (size_t)groups * 3 * T_ROWS * sizeof(float);
	bool has_bias = w->fmt->coding->bias;
	struct coded_span span = { .w = w, .inputs = w->group % T_BYTES ? 32 : T_BYTES, .ahead = n <= FEW_TILES };
	struct tile t = { .group = w->group, .step = span.inputs, .zero = w->fmt->coding->zero, .sums = sums };

	for (int h = 0; h < halves; h++)
		coded_scales_avx512(m->scale + T_OUT * h, m->bias + T_OUT * h, PANEL_OUT, w, o + T_OUT * h,
		                    n_out - T_OUT * h < T_OUT ? n_out - T_OUT * h : T_OUT);
	for (int k = 0; k < w->cols; k += stretch) {
		span.k0 = k;
		span.k1 = w->cols - k < stretch ? w->cols : k + stretch;
		t.groups = (span.k1 - k) / w->group;
		for (int h = 0; h < halves; h++) {
			span.o = o + T_OUT * h;
			span.n = n_out - T_OUT * h < T_OUT ? n_out - T_OUT * h : T_OUT;
			coded_codes_avx512(m->code + h * half, &span);
		}
		for (int i = 0; i < n; i++) {
			const uint8_t *tile = r->tiles + (size_t)i * tile_bytes;
			float *out = span.k1 == w->cols ? r->out + (size_t)(T_ROWS * i) * r->ld : NULL;
			int rows = r->n - T_ROWS * i < T_ROWS ? r->n - T_ROWS * i : T_ROWS;
			int share = PANEL_OUT * i / n;
			size_t at = (size_t)(k / w->group);

			for (int j = 0; out && j < rows; j++)
				for (int h = 0; h < halves; h++)
					__builtin_prefetch(out + (size_t)j * r->ld + T_OUT * h, 1);
			if (!span.ahead)
				coded_prefetch_codes(w, o + share, PANEL_OUT * (i + 1) / n - share, span.k1, stretch);
			t.beside = (const float *)tile + at * 3 * T_ROWS;
			t.q = (const int8_t *)tile + beside + (size_t)k * T_ROWS;
			for (int h = 0; h < halves; h++) {
				t.code = m->code + h * half;
				t.scale = m->scale + at * PANEL_OUT + T_OUT * h;
				t.bias = m->bias + at * PANEL_OUT + T_OUT * h;
				t.f = m->f + (size_t)(2 * i + h) * T_SUMS;
				(has_bias ? tile_biased : tile_plain)(&t, k == 0);
				if (out)
					tile_out(out + T_OUT * h, r->ld, t.f, rows,
					         n_out - T_OUT * h < T_OUT ? n_out - T_OUT * h : T_OUT);
			}
		}
	}
}

/* rows <= TILED_ROWS rows, laid out. */
static void mul_rows(float *out, size_t ld, const struct weight *w, int o0, int o1, const uint8_t *tiles, int rows,
                     const struct tiles_scratch *m)
{
	if (rows <= FEW_TILES * T_ROWS && few_takes(w)) {
		mul_few(out, ld, w, o0, o1, tiles, rows, m);
		return;
	}
	for (int o = o0; o < o1; o += PANEL_OUT)
		mul_panel(w, o, o1 - o < PANEL_OUT ? o1 - o : PANEL_OUT,
		          &(struct rows){ tiles, rows, out + (o - o0), ld }, m);
}

static void lay_out(struct tiles_scratch *m, uint8_t *scratch, const struct weight *w)
{
	size_t scales = (size_t)(w->cols / w->group) * PANEL_OUT;

	m->scale = (float *)scratch;
	m->bias = m->scale + scales;
	m->code = (uint8_t *)(m->bias + scales);
	m->f = (float *)(m->code + PANEL_OUT * (w->cols > TILED_INPUTS ? (size_t)w->cols : TILED_INPUTS));
	m->tiles = (uint8_t *)(m->f + TILED_ROWS * PANEL_OUT);
}

double coded_peak_amx(int64_t n)
{
	configure(T_BYTES);
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
	_tile_zero(4);
	_tile_zero(5);
	_tile_zero(6);
	_tile_zero(7);
	for (int64_t k = 0; k < n; k++) {
		_tile_dpbusd(0, 4, 6);
		_tile_dpbusd(1, 5, 7);
	}
	_tile_release();
	return 2.0 * 2 * T_ROWS * T_OUT * T_BYTES * (double)n;
}

void coded_many_amx(float *out, size_t ld, const struct weight *w, int o0, int o1, const struct acts *x, int r0, int r1,
                    void *scratch)
{
	size_t tile_bytes = acts_tile_bytes(w->cols, w->group);
	bool given = x->tiles && r0 % T_ROWS == 0;
	struct tiles_scratch m;

	lay_out(&m, scratch, w);
	configure(w->group % T_BYTES ? 32 : T_BYTES);
	for (int r = r0, most = given ? TILED_ROWS : TILED_HERE; r < r1; r += most) {
		int rows = r1 - r < most ? r1 - r : most;

		for (int i = 0; i < rows && !given; i += T_ROWS)
			acts_tile_amx(m.tiles + (size_t)(i / T_ROWS) * tile_bytes, x, r + i,
			              rows - i < T_ROWS ? rows - i : T_ROWS);
		mul_rows(out + (size_t)(r - r0) * ld, ld, w, o0, o1,
		         given ? x->tiles + (size_t)(r / T_ROWS) * tile_bytes : m.tiles, rows, &m);
	}
	_tile_release();
}
