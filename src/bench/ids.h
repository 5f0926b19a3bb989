/* ids.h - files of token ids: a JSON array of them, or of such arrays. */
#ifndef BENCH_IDS_H
#define BENCH_IDS_H

#include <stdint.h>

#include "base/err.h"

/* Texts one after the other: text i is id[part[i]] to id[part[i + 1]] - 1, and not
 * empty.  Zeroed holds nothing. */
struct ids {
	int32_t *id;
	int n;
	int *part; /* [n_part + 1] */
	int n_part;
};

/* At least one id.  E_FORMAT: another value, or a number that is not an id; E_IO. */
int ids_read(struct ids *f, const char *path, struct err *err);
/* Where a single text is wanted. */
int ids_read_one(struct ids *f, const char *path, struct err *err);
/* E_ARG: an id outside of [0, vocab). */
int ids_check(const struct ids *f, const char *path, int vocab, struct err *err);
void ids_fini(struct ids *f);

#endif
