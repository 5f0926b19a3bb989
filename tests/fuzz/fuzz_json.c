/* Any bytes into the JSON parser; what parses must write and parse again. */
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err;
	struct buf b;
	struct json *j = json_parse((const char *)data, size, 0, &err), *again;

	if (!j)
		return 0;
	buf_init(&b);
	json_put(&b, j);
	again = json_parse(b.p, b.n, 0, &err);
	if (!again)
		abort();
	json_free(again);
	json_free(j);
	buf_fini(&b);
	return 0;
}
