/* gguf_list.h - inside quant/: the tensor types of GGUF that matrices are made of, beside plain numbers: format_NAME and
 * gguf_NAME of each. */
#ifndef QUANT_GGUF_LIST_H
#define QUANT_GGUF_LIST_H

/* clang-format 14 does not come to an end with it. */
/* clang-format off */
#define GGUF_TYPES(X) \
	X(q4_0) X(q4_1) X(q5_0) X(q5_1) X(q8_0) X(q2_k) X(q3_k) X(q4_k) X(q5_k) \
	X(q6_k) X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs) X(iq3_s) X(iq1_s) X(iq1_m) X(iq4_nl) \
	X(iq4_xs) X(tq1_0) X(tq2_0) X(mxfp4_gguf) X(nvfp4_gguf) X(q1_0) X(q2_0)
/* clang-format on */

#endif
