/* format_list.h - inside quant/: every weight format by name. */
#ifndef QUANT_FORMAT_LIST_H
#define QUANT_FORMAT_LIST_H

#include "quant/format.h"

#define QUANT_FORMATS(X) \
	X(f32)           \
	X(f16)           \
	X(bf16)          \
	X(affine1) X(affine2) X(affine3) X(affine4) X(affine5) X(affine6) X(affine8) X(mxfp4) X(nvfp4) X(mxfp8) X(fp8)

/* The tensor types of GGUF that matrices have, besides plain numbers: format_NAME and gguf_NAME of each.
   clang-format 14 does not come to an end with the list. */
/* clang-format off */
#define GGUF_TYPES(X) \
	X(q4_0) X(q4_1) X(q5_0) X(q5_1) X(q8_0) X(q2_k) X(q3_k) X(q4_k) X(q5_k) \
	X(q6_k) X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs) X(iq3_s) X(iq1_s) X(iq1_m) X(iq4_nl) \
	X(iq4_xs) X(tq1_0) X(tq2_0) X(mxfp4_gguf) X(nvfp4_gguf) X(q1_0) X(q2_0) X(pq2_0) X(ptq1_0)
/* clang-format on */

#define DECLARE_FORMAT(name) extern const struct format format_##name;
QUANT_FORMATS(DECLARE_FORMAT)
GGUF_TYPES(DECLARE_FORMAT)
#undef DECLARE_FORMAT

#endif
