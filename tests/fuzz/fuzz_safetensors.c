/* Any bytes as a safetensors file: refused, or every tensor lies inside the bytes
 * and is found under its name. */
#include <stdint.h>
#include <stdlib.h>

#include "mutate.h"
#include "store/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

const char *mutate_choice(unsigned i, const char **key)
{
	static const char *const types[] = { "\"BF16\"",    "\"F16\"", "\"F32\"", "\"F64\"",    "\"U8\"",
		                             "\"I8\"",      "\"U32\"", "\"I64\"", "\"BOOL\"",   "\"F8_E4M3\"",
		                             "\"F8_E8M0\"", "\"F4\"",  "\"C64\"", "\"F6_E2M3\"" };

	*key = "dtype";
	return types[i % (sizeof types / sizeof *types)];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct safetensors s;
	struct err err;
	size_t sum = 0;

	if (safetensors_open_bytes(&s, "fuzz.safetensors", data, size, &err))
		return 0;
	for (size_t i = 0; i < s.n; i++) {
		const struct tensor *t = &s.v[i];

		if (safetensors_find(&s, t->name) != t || t->count < 0 ||
		    (t->type != DT_OTHER && t->bytes != (size_t)t->count * (size_t)dtype_size(t->type)))
			abort();
		if (t->bytes && (t->data < data || t->bytes > size || t->data > data + size - t->bytes))
			abort();
		for (size_t k = 0; k < t->bytes; k++)
			sum += t->data[k];
	}
	if (sum == 0x7fffffff || s.bytes + s.hole_bytes > size)
		abort();
	safetensors_close(&s);
	return 0;
}
