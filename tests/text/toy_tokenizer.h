/* toy_tokenizer.h - a small tokenizer.json, written by code, for tests. */
#ifndef TESTS_TOY_TOKENIZER_H
#define TESTS_TOY_TOKENIZER_H

#include <stdio.h>

#include "base/buf.h"
#include "base/utf8.h"

/* Parts of the file that a test may replace; NULL: as below. */
struct toy {
	const char *model;  /* more members of "model", ending in a comma */
	const char *vocab;  /* more entries, each after a comma */
	const char *merges; /* the elements */
	const char *added;  /* the elements */
	const char *normalizer, *pre, *post, *decoder;
};

#define TOY_SPLIT(re)                                                                                       \
	"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" re "\"}," \
	"\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}"

/* Bytes have the ids 0 to 255; then "he" 256, "ll" 257, "hell" 258, "hello" 259, " w" 260. */
static inline void toy_write(struct buf *b, const struct toy *t)
{
	uint32_t next = 0x100;

	buf_printf(b,
	           "{\"version\":\"1.0\",\"added_tokens\":[%s],\"normalizer\":%s,\"pre_tokenizer\":%s,"
	           "\"post_processor\":%s,\"decoder\":%s,\"model\":{\"type\":\"BPE\",%s\"vocab\":{",
	           t->added ? t->added : "", t->normalizer ? t->normalizer : "null",
	           t->pre ? t->pre : TOY_SPLIT(" ?\\\\p{L}+|\\\\s+|[^\\\\s\\\\p{L}]+"), t->post ? t->post : "null",
	           t->decoder ? t->decoder : "{\"type\":\"ByteLevel\"}", t->model ? t->model : "");
	for (uint32_t c = 0; c < 256; c++) {
		int self = (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || c >= 0xAE;
		char u[5] = "";

		u[utf8_encode(self ? c : next++, u)] = 0;
		buf_printf(b, "%s\"%s%s\":%u", c ? "," : "", c == '"' || c == '\\' ? "\\" : "", u, c);
	}
	buf_printf(b, "%s},\"merges\":[%s]}}",
	           t->vocab ? t->vocab : ",\"he\":256,\"ll\":257,\"hell\":258,\"hello\":259,\"Ġw\":260",
	           t->merges ? t->merges : "\"h e\",\"l l\",\"he ll\",\"hell o\",\"Ġ w\"");
}

#endif
