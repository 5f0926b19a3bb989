/* alloc.h - heap memory that is there or ends the program, and arenas.
 *
 * Callers do not recover from running out of memory: xmalloc and its kin abort with a
 * message (fault.h says what that ends).  Only budgets can be refused, and callers
 * check those before they allocate. */
#ifndef BASE_ALLOC_H
#define BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

void *xmalloc(size_t n);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t n);
/* For large memory that can be done without, or whose lack ends one request: NULL
 * when it is refused. */
void *try_malloc(size_t n);
extern size_t try_malloc_max; /* tests: more than that is refused */
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n);

/* n * size, or abort when that overflows. */
size_t size_mul(size_t n, size_t size);

/* Memory with one lifetime: allocations are freed together by reset or fini.
 * Not thread-safe; one owner.  Everything is aligned to 16 bytes. */
struct arena {
	struct arena_block *head;
	size_t used; /* bytes handed out since init or reset */
};

void arena_init(struct arena *a);
void arena_fini(struct arena *a);
/* The blocks of memory behind the arena's allocations: their number, and an iteration over them (begin with *at NULL;
 * false ends it). */
size_t arena_blocks(const struct arena *a);
bool arena_next(const struct arena *a, const struct arena_block **at, const void **p, size_t *n);
void arena_reset(struct arena *a);             /* frees all but keeps the arena usable */
void *arena_alloc(struct arena *a, size_t n);  /* uninitialised */
void *arena_zalloc(struct arena *a, size_t n); /* zeroed */
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
