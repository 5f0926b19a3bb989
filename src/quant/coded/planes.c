/* planes.c - filling planes, and reading them in plain C (planes.h). */
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/cpu.h"
#include "quant/coded/planes.h"

bool planes_fit(const struct weight *w)
{
	return w->fmt->coding && w->fmt->coding->block && w->cols % BLOCK_INPUTS == 0 && w->rows % BLOCK_OUT == 0;
}

/* bench/notes/beside-others.md, "One stream": a Zen 4 fetches one rising stream ahead better without hints, a Sapphire Rapids
 * with them, of codes of fewer than 8 bits, which take longer to compute. */
bool planes_hints(const struct coding *c)
{
	enum { UNKNOWN, NO, YES };
	static atomic_int known; /* CPUID is slow in a virtual machine */
	int k = atomic_load_explicit(&known, memory_order_relaxed);

	if (k == UNKNOWN) {
		struct cpu_processor p;

		cpu_processor(&p);
		k = strcmp(p.vendor, "GenuineIntel") ? NO : YES;
		atomic_store_explicit(&known, k, memory_order_relaxed);
	}
	return k == YES && c->bits < 8;
}

/* cols / n, n a power of two: kernels ask often enough that a division was a fiftieth of a prompt. */
static size_t runs_of(int cols, int n)
{
	assert((n & (n - 1)) == 0);
	return (size_t)cols >> __builtin_ctz((unsigned)n);
}

/* How many values of d (and m) a row has. */
static size_t scale_blocks(const struct weight *w)
{
	return runs_of(w->cols, w->fmt->coding->block->length);
}

struct plane_scales planes_scales(const struct weight *w)
{
	enum scale_kind kind = w->fmt->coding->block->kind;
	bool halves = kind != SCALE_E8M0 && kind != SCALE_UE4M3;
	bool bytes = kind != SCALE_HALF && kind != SCALE_HALVES && kind != SCALE_BLOCK;
	size_t d = scale_blocks(w) * BLOCK_OUT * sizeof(uint16_t), s = runs_of(w->cols, w->group) * BLOCK_OUT;
	struct plane_scales at = { .d = 0 };

	at.m = halves ? d : 0;
	at.s = at.m + (kind == SCALE_HALVES || kind == SCALE_TIMES_MIN ? d : 0);
	at.min = at.s + (bytes ? s : 0);
	at.end = at.min + (kind == SCALE_TIMES_MIN ? s : 0);
	at.end = (at.end + BLOCK_LINE - 1) / BLOCK_LINE * BLOCK_LINE;
	return at;
}

size_t planes_head(const struct weight *w)
{
	return planes_scales(w).end;
}

size_t planes_code_bytes(const struct coding *c)
{
	return (size_t)(planes_low(c->bits) + planes_high(c->bits)) * 2 * BLOCK_LINE;
}

/* ---- in ---- */

/* Scales of output o + i, where d (and m) are the only ones. */
static void fill_halves(uint8_t *to, const struct plane_scales *at, const struct weight *w, int o, int i)
{
	const struct file_block *b = w->fmt->coding->block;
	const uint8_t *p = w->data + (size_t)(o + i) * w->row_bytes;
	size_t blocks = scale_blocks(w), size = sizeof(uint16_t), step = BLOCK_OUT * size;

	to += at->d + (size_t)i * size;
	for (size_t n = 0; n < blocks; n++, p += b->bytes, to += step) {
		memcpy(to, p, size);
		if (b->kind == SCALE_HALVES)
			memcpy(to + (at->m - at->d), p + size, size);
	}
}

/* Scales of output o + i, where groups have a byte (or two) of their own. */
static void fill_scales(uint8_t *to, const struct plane_scales *at, const struct weight *w, int o, int i)
{
	const struct file_block *b = w->fmt->coding->block;
	const uint8_t *p = w->data + (size_t)(o + i) * w->row_bytes;
	size_t blocks = scale_blocks(w);
	int per = b->length / b->group;
	bool d = at->m > at->d, m = at->s > at->m, s = at->min > at->s, min = b->kind == SCALE_TIMES_MIN;

	for (size_t n = 0; n < blocks; n++, p += b->bytes) {
		size_t half = (n * BLOCK_OUT + (size_t)i) * sizeof(uint16_t);
		struct scale_parts parts;

		b->scales(&parts, p);
		if (d)
			memcpy(to + at->d + half, &parts.d, sizeof parts.d);
		if (m)
			memcpy(to + at->m + half, &parts.m, sizeof parts.m);
		for (size_t g = 0; s && g < (size_t)per; g++) {
			size_t byte = (n * (size_t)per + g) * BLOCK_OUT + (size_t)i;

			to[at->s + byte] = parts.s[g];
			if (min)
				to[at->min + byte] = parts.min[g];
		}
	}
}

/* Outputs that are packed side by side, and a quad of codes of each. */
enum { FOUR = 4 };
typedef uint32_t quads __attribute__((vector_size(FOUR * sizeof(uint32_t))));
/* Elements i, j, k, l of a, which has those below FOUR, and b. */
#ifdef __clang__
#define PICK(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define PICK(a, b, i, j, k, l) __builtin_shuffle(a, b, (quads){ i, j, k, l })
#endif

/* Element j of v[i] to element i of t[j]. */
__attribute__((always_inline)) static inline void turn_four(quads t[FOUR], const quads v[FOUR])
{
	quads a = PICK(v[0], v[1], 0, 4, 1, 5), b = PICK(v[0], v[1], 2, 6, 3, 7);
	quads c = PICK(v[2], v[3], 0, 4, 1, 5), d = PICK(v[2], v[3], 2, 6, 3, 7);

	t[0] = PICK(a, c, 0, 1, 4, 5);
	t[1] = PICK(a, c, 2, 3, 6, 7);
	t[2] = PICK(b, d, 0, 1, 4, 5);
	t[3] = PICK(b, d, 2, 3, 6, 7);
}

/* Codes [at, at + 64) of four outputs to quads: quad[q] has quad q of each. */
static inline void turn(quads quad[PLANE_QUADS], uint8_t (*code)[FILE_BLOCK_MOST + BLOCK_INPUTS], int at)
{
	for (int q = 0; q < PLANE_QUADS; q += FOUR) {
		quads v[FOUR];

		for (int i = 0; i < FOUR; i++)
			memcpy(&v[i], code[i] + at + 4 * q, sizeof v[i]);
		turn_four(quad + q, v);
	}
}

/* The low bits of the codes, or the high ones, to the places of the four outputs in lines at `to`.  Inlined, so that
 * the number of bits is a constant: packing is a good part of what an expert costs that comes from disk. */
__attribute__((always_inline)) static inline void put_bits(uint8_t *to, const quads *quad, const int low,
                                                           const int high, const bool is_high)
{
	const int bits = is_high ? high : low, from = is_high ? low : bits == 1, per = 8 / bits;
	const uint32_t mask = 0x01010101u * ((1u << bits) - 1);

#pragma GCC unroll 16
	for (int q = 0; q < PLANE_QUADS; q += per) {
		int at = is_high ? planes_high_line(q / per, low, high) : planes_low_line(q / per, low, high);
		quads line = { 0 };

#pragma GCC unroll 8
		for (int j = 0; j < per; j++)
			line |= (quad[q + j] >> from & mask) << bits * j;
		memcpy(to + BLOCK_LINE * at, &line, sizeof line);
	}
}

__attribute__((always_inline)) static inline void put_both(uint8_t *to, const quads *quad, const int low,
                                                           const int high)
{
	put_bits(to, quad, low, high, false);
	if (high)
		put_bits(to, quad, low, high, true);
}

static void put_codes(uint8_t *to, const quads *quad, int low, int high)
{
	switch (16 * low + high) {
	case 16 * 8: put_both(to, quad, 8, 0); break;
	case 16 * 4: put_both(to, quad, 4, 0); break;
	case 16 * 4 + 1: put_both(to, quad, 4, 1); break;
	case 16 * 4 + 2: put_both(to, quad, 4, 2); break;
	case 16 * 1: put_both(to, quad, 1, 0); break;
	case 16 * 2: put_both(to, quad, 2, 0); break;
	case 16 * 2 + 1: put_both(to, quad, 2, 1); break;
	default: assert(!"codes that have no planes");
	}
}

/* A run of bytes with two codes each, of the four outputs whose runs lie row_bytes apart, to lines at `to`. */
__attribute__((always_inline)) static inline void put_nibbles(uint8_t *to, const uint8_t *from, size_t row_bytes,
                                                              const int run)
{
	const uint32_t lower = 0x0f0f0f0fu;

#pragma GCC unroll 2
	for (int i = 0; i < run; i += (int)sizeof(quads), from += sizeof(quads)) {
		quads v[FOUR], t[FOUR];

		for (int f = 0; f < FOUR; f++)
			memcpy(&v[f], from + (size_t)f * row_bytes, sizeof v[f]);
		turn_four(t, v);
#pragma GCC unroll 2
		for (int j = 0; j < FOUR; j += 2, to += BLOCK_LINE) {
			quads low = (t[j] & lower) | (t[j + 1] & lower) << 4,
			      high = (t[j] >> 4 & lower) | (t[j + 1] & ~lower);

			memcpy(to, &low, sizeof low);
			memcpy(to + run / 8 * BLOCK_LINE, &high, sizeof high);
		}
	}
}

/* The codes of outputs o + i .. o + i + 3, of a coding that says where its nibbles lie. */
static void fill_nibbles(uint8_t *to, const struct weight *w, int o, int i)
{
	const struct coding *c = w->fmt->coding;
	const struct file_block *b = c->block;
	const uint8_t *at = w->data + (size_t)(o + i) * w->row_bytes;
	int run = c->nibbles_run;

	to += 4 * i;
	for (int k = 0; k < w->cols; k += b->length, at += b->bytes)
		for (int j = 0; j < b->length; j += 2 * run, to += run / 4 * BLOCK_LINE) {
			const uint8_t *from = at + c->nibbles_at + j / 2;

			if (run == 16)
				put_nibbles(to, from, w->row_bytes, 16);
			else
				put_nibbles(to, from, w->row_bytes, 32);
		}
}

/* The codes of outputs o + i .. o + i + 3. */
static void fill_codes(uint8_t *to, const struct weight *w, int o, int i)
{
	const struct coding *c = w->fmt->coding;
	const struct file_block *b = c->block;
	const uint8_t *at = w->data + (size_t)(o + i) * w->row_bytes;
	int low = planes_low(c->bits), high = planes_high(c->bits), n = 0;
	size_t step = planes_code_bytes(c);
	uint8_t code[FOUR][FILE_BLOCK_MOST + BLOCK_INPUTS];
	quads quad[PLANE_QUADS];

	to += 4 * i;
	for (int k = 0; k < w->cols; k += b->length, at += b->bytes) {
		int j = 0;

		for (int f = 0; f < FOUR; f++)
			b->codes(code[f] + n, at + (size_t)f * w->row_bytes);
		for (n += b->length; n - j >= BLOCK_INPUTS; j += BLOCK_INPUTS, to += step) {
			turn(quad, code, j);
			put_codes(to, quad, low, high);
		}
		n -= j; /* 32 inputs of a block of as many, or none */
		assert(!n || !j);
	}
}

void planes_fill(uint8_t *to, const struct weight *w, int o)
{
	enum scale_kind kind = w->fmt->coding->block->kind;
	struct plane_scales at = planes_scales(w);

	assert(planes_fit(w) && o % BLOCK_OUT == 0);
	memset(to, 0, at.end);
	for (int i = 0; i < BLOCK_OUT; i++)
		if (kind == SCALE_HALF || kind == SCALE_HALVES)
			fill_halves(to, &at, w, o, i);
		else
			fill_scales(to, &at, w, o, i);
	for (int i = 0; i < BLOCK_OUT; i += FOUR)
		if (w->fmt->coding->nibbles_run)
			fill_nibbles(to + at.end, w, o, i);
		else
			fill_codes(to + at.end, w, o, i);
}

/* ---- out ---- */

static const uint8_t *planes_at(const struct weight *w, const uint8_t *planes, int o)
{
	return planes + (size_t)(o / BLOCK_OUT) * packed_step(w);
}

/* Bits of an input, whose line is at `line`. */
static unsigned bits_of(const uint8_t *line, int input, int bits)
{
	return line[input % 4] >> bits * (input / 4 % (8 / bits)) & ((1u << bits) - 1);
}

void planes_row(uint8_t *code, const struct weight *w, const uint8_t *planes, int o)
{
	const struct coding *c = w->fmt->coding;
	const uint8_t *at = planes_at(w, planes, o) + planes_scales(w).end + (size_t)(o % BLOCK_OUT) * 4;
	int low = planes_low(c->bits), high = planes_high(c->bits);

	for (int k = 0; k < w->cols; k += BLOCK_INPUTS, at += planes_code_bytes(c))
		for (int i = 0; i < BLOCK_INPUTS; i++) {
			int line = planes_low_line(i / 4 * low / 8, low, high);
			unsigned v = bits_of(at + BLOCK_LINE * line, i, low) << (low == 1);

			if (high) {
				line = planes_high_line(i / 4 * high / 8, low, high);
				v |= bits_of(at + BLOCK_LINE * line, i, high) << low;
			}
			*code++ = c->lut ? c->lut[v] : (uint8_t)v;
		}
}

void planes_scale(float *scale, float *bias, const struct weight *w, const uint8_t *planes, int o, int g)
{
	const struct coding *c = w->fmt->coding;
	const uint8_t *p = planes_at(w, planes, o);
	struct plane_scales at = planes_scales(w);
	size_t half = (size_t)(g * w->group / c->block->length * BLOCK_OUT + o % BLOCK_OUT) * sizeof(uint16_t);
	size_t byte = (size_t)(g * BLOCK_OUT + o % BLOCK_OUT);
	struct scale_parts parts = { .s = { p[at.s + byte] }, .min = { p[at.min + byte] } };

	memcpy(&parts.d, p + at.d + half, sizeof parts.d);
	memcpy(&parts.m, p + at.m + half, sizeof parts.m);
	scale_of_parts(scale, bias, c, &parts, 0);
}
