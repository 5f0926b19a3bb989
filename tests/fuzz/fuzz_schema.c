/* The grammar compiler: any JSON as a schema.  What compiles is walked by the
 * input's own bytes, and never stands where nothing may follow. */
#include <stdio.h>
#include <stdlib.h>

#include "text/grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct json *j = json_parse((const char *)data, size, 0, NULL);
	struct grammar *g;
	struct matcher *m;
	struct err err;

	if (!j || grammar_compile(j, &g, &err)) {
		json_free(j);
		return 0;
	}
	json_free(j);
	m = matcher_new(g);
	grammar_unref(g);
	for (size_t i = 0; i < size && i < 400 && !matcher_whole(m); i++) {
		int c = 0;

		/* The next byte of the input that may come, or any. */
		if (matcher_put(m, (const char *)data + i, 1))
			continue;
		for (; c < 256; c++) {
			char b = (char)(c + data[i]);

			if (matcher_put(m, &b, 1))
				break;
		}
		if (c == 256)
			abort();
	}
	matcher_free(m);
	return 0;
}
