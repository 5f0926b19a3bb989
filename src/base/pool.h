/* pool.h - compute threads: fork, join, nothing else.
 *
 * pool_run calls fn(ctx, part) once for each part in [0, n), spread over the
 * pool's threads and the caller, and returns when all are done.  A thread is meant
 * to do a run of parts one after the other, so what a part asks the memory for beyond
 * its end is what comes next; but one that is done takes what is left of others'.
 * So which thread takes which part is not defined, and the result of a part must
 * not depend on it (the law of the row asks the same).  Threads spin for a short while after
 * work, then sleep; an idle pool costs nothing. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <stdint.h>

struct pool;

typedef void pool_fn(void *ctx, int part);

/* n_threads counts the caller: 1 starts no thread at all. */
struct pool *pool_new(int n_threads);
void pool_free(struct pool *p);
int pool_threads(const struct pool *p);
/* How often pool_run had more than one thread to wait for; to be read by its caller. */
const uint64_t *pool_joins(const struct pool *p);

/* From one thread at a time; fn must not call pool_run. */
void pool_run(struct pool *p, pool_fn *fn, void *ctx, int n);
/* pool_run with shares that the caller chose: thread i gets the units [begin[i], begin[i + 1]), from
 * begin[0] = 0 to begin[pool_threads]. */
void pool_run_cut(struct pool *p, pool_fn *fn, void *ctx, const int *begin);

/* Index of the calling thread inside fn: 0 is the caller of pool_run, others
 * count up to pool_threads - 1.  For picking a private scratch area. */
int pool_thread(void);

#endif
