/* sample.h - random weights of every kind and rows of activations, with what a product of them must be.
 *
 * Memory of both lies between fences (fenced.h), so that a kernel that reads or writes past an end is caught. */
#ifndef TESTS_SAMPLE_H
#define TESTS_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "fenced.h"
#include "quant/coded/coded.h"
#include "quant/packed.h"

/* A kind of weight.  Types of GGUF have bits 0, since their blocks hold their scales; `halves` f16 scales of a block
 * begin at byte `half`. */
struct kind {
	const char *name, *mode;
	int bits, group;
	enum dtype plain;
	int half, halves;
};
extern const struct kind kinds[];
extern const size_t n_kinds;
extern const char *const value_name[VALUES];

static inline bool is_gguf(const struct kind *k)
{
	return k->mode && !k->bits;
}

struct sample {
	struct weight w;
	struct fence data, scales, biases, packed;
	struct packed made;
	struct weight bare; /* w without the bytes that its packed form replaces */
};

/* Makes a random weight; group 0: as the kind says; st: the type of its scales.  sample_drop() frees it. */
void sample_make(struct sample *s, const struct kind *k, int rows, int cols, int group, enum dtype st, enum value v);
void sample_drop(struct sample *s);
/* Lays the packed form of s->w out; again after the weight has changed. */
void sample_lay_out(struct sample *s);
/* Output o of coded weights as numbers: element i is code[i] times the scale of its group, plus the group's bias. */
struct coded_row {
	int16_t *code;
	float *scale, *bias; /* of each group; bias NULL: there is none */
};

void coded_row_make(struct coded_row *t, const struct kind *k, const struct weight *w, int o);
void coded_row_drop(struct coded_row *t);

/* One output for row r, in the order of roundings that format.h promises: of coded weights; of n bf16 weights at a level
 * whose order of products (struct level_orders) is not plain. */
float truth_coded(const struct coded_row *t, const struct acts *x, int r);
float truth_bf16(const char *order, const float *w, const float *x, int n);

struct rows {
	struct acts a;
	struct fence f, q, scale, sum, scaled, tiles, pairs;
};

/* Makes n rows of random activations, quantised at `level` where group is not 0; rows_drop() frees them. */
void rows_make(struct rows *x, int n, int cols, int group, enum value v, enum cpu_level level);
/* Arranges the rows as pairs, or by chance does not.  A level without a form of its own gets the form of the best level,
 * which its kernels must ignore. */
void rows_pair(struct rows *x, enum cpu_level level);
void rows_drop(struct rows *x);

#endif
