/* Any bytes as the head and the name of a file of kept prefixes: refused, or what is
 * read, written again, is the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/prefix/spill_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_name(const uint8_t *data, size_t size)
{
	char *name = malloc(size + 1), again[SPILL_NAME];
	enum spill_kind kind;
	struct digest key;
	uint32_t pos;
	uint64_t tail;

	if (!name)
		abort();
	memcpy(name, data, size);
	name[size] = '\0';
	if (!spill_name_get(name, &kind, &key, &pos, &tail)) {
		spill_name_put(again, kind, &key, pos, tail);
		if (strcmp(again, name))
			abort();
	}
	free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t again[SPILL_HEAD];
	struct spill_head h;
	struct err err;

	try_name(data, size);
	if (spill_head_get(&h, data, size, size, &err))
		return 0;
	if (h.kind != SPILL_PAGE && h.kind != SPILL_SNAP)
		abort();
	if (h.n_tok == 0 || h.n_tok > h.pos || SPILL_HEAD + (uint64_t)h.n_tok * 4 + h.payload_bytes != size)
		abort();
	spill_head_put(&h, again);
	if (memcmp(again, data, SPILL_HEAD))
		abort();
	return 0;
}
