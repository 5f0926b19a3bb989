/* load_packs.h - the packs of prefixes that --pack names. */
#ifndef HOST_LOAD_PACKS_H
#define HOST_LOAD_PACKS_H

#include "base/err.h"

struct host_disk;
struct session;

/* Opens the packs of d into s->pack, and checks that they are of s->identity with its `about` text (host/identity.h).
 * E_UNSUPPORTED, E_MISSING, E_FORMAT, E_IO: the message has the file and what differs.  In any case packs_close follows, after
 * the engine is closed. */
int load_packs(struct session *s, const struct host_disk *d, const char *about, struct err *err);
/* Reads each whole, and compares its digests, while the engine reads its prefixes.  told: called with the percentage that is
 * done.  E_FORMAT, E_IO, as above. */
int packs_check(struct session *s, void (*told)(void *arg, int percent), void *arg, struct err *err);
void packs_close(struct session *s);

#endif
