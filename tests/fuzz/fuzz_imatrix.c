/* Any bytes as an importance matrix in either of its forms: refused with a message of one line, or tables in the order of
 * their names, whose values are finite and above 0, and in which each is found under its name. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "export/imatrix.h"
#include "held.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = { 0 };
	struct imatrix m;
	char path[64];
	int fd = held_file(data, size, path), rc = imatrix_read(&m, path, &err);

	if (rc && (!err.msg[0] || strchr(err.msg, '\n') || m.n || m.v))
		abort();
	for (int i = 0; i < m.n; i++) {
		const struct importance *it = &m.v[i], *found = imatrix_find(&m, it->name, it->cols);

		if (it->stack < 1 || it->cols < 1 || !found || strcmp(found->name, it->name) ||
		    (i && strcmp(it[-1].name, it->name) >= 0))
			abort();
		for (size_t k = 0; k < (size_t)it->stack * (size_t)it->cols; k++)
			if (!(it->v[k] > 0) || isinf(it->v[k]))
				abort();
	}
	if (m.n)
		imatrix_rename(&m, m.v[0].name, "another");
	imatrix_fini(&m);
	close(fd);
	return 0;
}
