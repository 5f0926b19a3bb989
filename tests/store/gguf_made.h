/* gguf_made.h - GGUF files made by hand, right or broken. */
#ifndef TESTS_GGUF_MADE_H
#define TESTS_GGUF_MADE_H

#include <stdint.h>

#include "base/buf.h"
#include "store/gguf/gguf_file.h"

struct gguf_made {
	struct buf pairs, infos, data;
	int64_t n_pairs, n_infos;
};

void gguf_made_init(struct gguf_made *g);
void gguf_made_fini(struct gguf_made *g);
void gguf_made_u32(struct gguf_made *g, const char *key, uint32_t v);
void gguf_made_f32(struct gguf_made *g, const char *key, float v);
void gguf_made_str(struct gguf_made *g, const char *key, const char *v);
void gguf_made_strs(struct gguf_made *g, const char *key, const char *const *v, int n);
void gguf_made_u32s(struct gguf_made *g, const char *key, const uint32_t *v, int n);
void gguf_made_i32s(struct gguf_made *g, const char *key, const int32_t *v, int n);
/* A tensor of type 0 (F32) or the given number; dimensions as GGUF has them, 0-ended; bytes may be NULL: zeros. */
void gguf_made_tensor(struct gguf_made *g, const char *name, uint32_t type, const int64_t *ne, const void *p, size_t n);
/* The whole file, version 3, appended to out. */
void gguf_made_file(const struct gguf_made *g, struct buf *out);

#endif
