/* Any bytes as a file of token ids: refused with a message of one line, or texts that are not empty, of ids from 0. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/ids.h"
#include "held.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = { 0 };
	struct ids f;
	char path[64];
	int fd = held_file(data, size, path);

	if (ids_read(&f, path, &err)) {
		if (!err.msg[0] || strchr(err.msg, '\n') || f.id || f.part)
			abort();
	} else {
		if (f.n_part < 1 || f.part[0] || f.part[f.n_part] != f.n)
			abort();
		for (int i = 0; i < f.n_part; i++)
			if (f.part[i] >= f.part[i + 1])
				abort();
		for (int i = 0; i < f.n; i++)
			if (f.id[i] < 0)
				abort();
		ids_check(&f, path, 1000, &err);
	}
	ids_fini(&f);
	close(fd);
	return 0;
}
