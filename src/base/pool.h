/* pool.h - compute threads: fork, join, nothing else.
 *
 * pool_run calls fn(ctx, part) once for each part in [0, n), spread over the
 * pool's threads and the caller, and returns when all are done.  Which thread
 * takes which part is not defined, so the result of a part must not depend on
 * it (the law of the row asks the same).  Threads spin for a short while after
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

/* Index of the calling thread inside fn: 0 is the caller of pool_run, others
 * count up to pool_threads - 1.  For picking a private scratch area. */
int pool_thread(void);

#endif
