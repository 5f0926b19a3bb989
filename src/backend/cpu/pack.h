/* pack.h - the weights that models have placed with the CPU backend: packing them, and where
 * products read them now.
 *
 * Operations read host memory where it is, so placing costs nothing.  In spare time matrices are
 * packed into blocks where the level's kernels read these (quant/packed.h), and what else the
 * files hold moves to huge pages at the same addresses (file_map_own): bench/notes/kernels.md, "Huge
 * pages", says what it gains. */
#ifndef BACKEND_CPU_PACK_H
#define BACKEND_CPU_PACK_H

#include "backend/backend.h"

struct pack;
struct pack *pack_new(void);
void pack_free(struct pack *k); /* no product runs any more */

/* Operations of the backend's table; see backend.h. */
int cpu_place(struct backend *be, const struct placed *v, int n, struct err *err);
void cpu_unplace(struct backend *be, const struct placed *v, int n);
size_t cpu_pack(struct backend *be, const struct pack_opts *how);

/* Excludes the experts of these mixtures, which products read through slots (slots.h): they are never packed, and
 * pack_runs leaves them out. */
void pack_without(struct pack *k, struct moe *const *mix, int n);
/* Excludes tables that stay on disk (row_tables.h) too. */
void pack_without_rows(struct pack *k, const struct weight *const *table, int n);

/* The memory that products of be, a CPU backend, read now, in runs; the caller frees them.  Not while cpu_pack
 * is at work. */
struct pack_run {
	const uint8_t *p;
	size_t n;
	const struct file_map *file; /* in whose mapping; NULL: packed */
};
struct pack_run *pack_runs(const struct backend *be, int *n);

#endif
