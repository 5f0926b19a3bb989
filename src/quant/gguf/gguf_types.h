/* gguf_types.h - inside quant/gguf: what the files that read blocks share. */
#ifndef QUANT_GGUF_TYPES_H
#define QUANT_GGUF_TYPES_H

#include <string.h>

#include "quant/coded/coded.h"
#include "quant/gguf/gguf.h"

static inline uint16_t u16_at(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint32_t u32_at(const uint8_t *p)
{
	return u16_at(p) | (uint32_t)u16_at(p + 2) << 16;
}

/* struct format.decode of all of them. */
void gguf_decode(float *out, const struct weight *w, int o);

/* Tensor type `type` and its format.  stored: about what bits an element takes in the file; block_length elements,
 * group_length of which share a scale, in block_size bytes, read by codes_of and scales_of (struct file_block); what
 * follows: the other members of struct coding. */
#define GGUF_TYPE(type_id, type, type_name, stored, block_length, group_length, block_size, scale_kind, codes_of, \
                  scales_of, ...)                                                                                 \
	static const struct file_block block_##type = { block_length, block_size, group_length,                   \
		                                        scale_kind,   codes_of,   scales_of };                    \
	static const struct coding coding_##type = { .block = &block_##type, __VA_ARGS__ };                       \
	const struct format format_##type = { type_name, stored, gguf_decode, coded_kernels, &coding_##type };    \
	const struct gguf_type gguf_##type = { type_id, type_name, block_length, block_size, &format_##type }

/* 4-bit codes as multiples of an uneven step: value plus 127. */
extern const uint8_t gguf_nl_code[16];

#endif
