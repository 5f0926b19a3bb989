/* coded.h - inside quant/: what a format of small codes asks for: struct format.kernels, and scratch. */
#ifndef QUANT_CODED_H
#define QUANT_CODED_H

#include "quant/coding.h"

/* struct format.kernels of every format that has a coding: decodes under ARITH_F32, multiplies codes under ARITH_FAST. */
void coded_kernels(struct kernels *k, enum cpu_level level);
/* Scratch bytes of the products of w, at any level. */
size_t coded_scratch(const struct weight *w);

/* The products that coded_kernels chooses from; tests compare the two of AVX-512. */
weight_mul_fn coded_mul_avx2, coded_mul_avxvnni, coded_mul_avx512, coded_mul_avx512_panels, coded_mul_avx512bf16;
weight_mul_fn coded_mul_avx512bf16_panels, coded_mul_amx;
weight_mul_fn coded_mul_neon, coded_mul_dotprod, coded_mul_i8mm;

#endif
