/* mutate_safetensors.c - changes the header of a safetensors file as mutate_json.c changes a document, and has its length
 * follow, since a file whose length is wrong is refused before its header is read.  For fuzzers alone. */
#define LLVMFuzzerCustomMutator mutate_json
#include "mutate_json.c"
#undef LLVMFuzzerCustomMutator

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

enum { LENGTH = 8, ROOM = 1 << 16 };

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	static uint8_t header[1 + ROOM]; /* behind the byte that mutate_json leaves as it is */
	uint64_t n = 0;
	size_t now;

	if (size > LENGTH)
		memcpy(&n, data, LENGTH);
	if (seed % 8 == 0 || size <= LENGTH || n < 2 || n > size - LENGTH || n > ROOM)
		return LLVMFuzzerMutate(data, size, max);
	memcpy(header + 1, data + LENGTH, (size_t)n);
	now = mutate_json(header, 1 + (size_t)n, 1 + ROOM, seed) - 1;
	if (size - (size_t)n + now > max)
		return size;
	memmove(data + LENGTH + now, data + LENGTH + n, size - LENGTH - (size_t)n);
	memcpy(data + LENGTH, header + 1, now);
	size = size - (size_t)n + now;
	n = now;
	memcpy(data, &n, LENGTH);
	return size;
}
