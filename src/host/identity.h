/* identity.h - the digest of everything that determines the numbers of a kept prefix, except its tokens. */
#ifndef HOST_IDENTITY_H
#define HOST_IDENTITY_H

#include "base/digest.h"
#include "host/load.h"

/* The digest of the program, the instructions and library functions it computes with,
 * the arithmetic, the formats of what it keeps, the bytes of all weights, the config,
 * the tokenizer and the chat template.  s has its model attached to its backend.
 *
 * The weights' bytes are read whole the first time; o->disk.dir remembers which
 * files had which (file "weights"), by everything that the system changes when a file
 * changes.  docs/prefix-store.md has the reasons. */
int identity_of(const struct session *s, const struct host_opts *o, struct digest *out, struct err *err);

/* The digest of all weights' bytes alone; dir, which is made, remembers them as above. */
int identity_of_weights(const struct store *st, const char *dir, struct digest *out, struct err *err);

/* The digest of everything that determines what a drafter keeps with a prefix.  d's model is attached; of: the
 * model's digest. */
int identity_of_draft(const struct draft_source *d, const struct host_opts *o, const struct digest *of,
                      struct digest *out, struct err *err);

#endif
