/* reads_ring.h - inside base/: a queue of reads that the system works off by itself (io_uring).  posix/ has none. */
#ifndef BASE_READS_RING_H
#define BASE_READS_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring;
/* Room for `depth` reads at once.  0, or an errno: the system does not allow it (ENOSYS: it has none). */
int ring_open(struct ring **out, int depth);
/* Nothing may be under way. */
void ring_close(struct ring *r);
/* Prepares a read of n bytes at `at` of fd; to NULL: nothing is read, but it ends like a read.  At most depth at once. */
void ring_put(struct ring *r, int fd, uint8_t *to, size_t n, uint64_t at, void *tag);
/* Begins what was prepared. */
void ring_submit(struct ring *r);
/* One that ended: *came is the bytes that were read or a negative errno.  False: none has; with wait: there is none. */
bool ring_next(struct ring *r, bool wait, void **tag, int *came);

#endif
