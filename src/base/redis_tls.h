/* redis_tls.h - TLS over a connected socket that does not block, for redis.c.
 *
 * In a build without libssl tls_there() is false, and no call works.  events: set to what to wait for (poll.h) where a call
 * could do nothing yet; 0: it failed. */
#ifndef BASE_REDIS_TLS_H
#define BASE_REDIS_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

struct tls;

bool tls_there(void);
/* For a server of that name or address.  NULL: see err. */
struct tls *tls_new(int fd, const char *host, struct err *err);
void tls_free(struct tls *t);
/* 0: the server is the right one. */
int tls_shake(struct tls *t, short *events, struct err *err);
/* Bytes; 0: the other side has closed; -1: see events. */
ssize_t tls_read(struct tls *t, void *p, size_t n, short *events);
ssize_t tls_write(struct tls *t, const void *p, size_t n, short *events);

#endif
