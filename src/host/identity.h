/* identity.h - the digest of everything that determines the numbers of a kept prefix, except its tokens. */
#ifndef HOST_IDENTITY_H
#define HOST_IDENTITY_H

#include "base/digest.h"
#include "host/load.h"

/* Number of the arithmetic: every order of roundings, and the layout of what is kept.  A change that gives any model another
 * bit, or moves a byte of a kept state, takes the next number, and stores of the one before are not read any more.
 * tests/model/arithmetic.txt certifies it: digests of logits and of kept states, the same on every processor. */
enum { ARITHMETIC = 1 };

/* The digest of ARITHMETIC and the backend's name for its own part of it, of results of the library functions it computes
 * with, the formats of what it keeps, the bytes of all weights, the config, the tokenizer and the chat template.  Nothing
 * else of the program is in it: other builds, levels and processors with the same arithmetic read the same files.
 * s has its model attached to its backend.  about: set to a JSON object that has each of these parts as text or as a digest of its
 * own, for messages, with the names of program and model.
 *
 * The weights' bytes are read whole the first time; o->disk.dir remembers which
 * files had which (file "weights"), by everything that the system changes when a file
 * changes, and the arithmetic of the last program that used it (file "arithmetic"): where that was another one, the log
 * says that its prefixes are not used.  Without a folder nothing is remembered.  docs/prefix-store.md has the reasons. */
int identity_of(const struct session *s, const struct host_opts *o, struct digest *out, struct buf *about,
                struct err *err);

/* Fills *err with the first part that differs between two models whose digests differ, and the two values, from their `about`
 * texts; theirs is of a file that others wrote.  Returns E_MISSING where it is the weights, so another model; E_UNSUPPORTED for any
 * other part; E_FORMAT: none differs, or theirs cannot be read. */
int identity_compare(const char *theirs, const char *ours, struct err *err);

/* The digest of all weights' bytes alone; dir, which is made, remembers them as above. */
int identity_of_weights(const struct store *st, const char *dir, struct digest *out, struct err *err);

/* The digest of everything that determines what a drafter keeps with a prefix.  d's model is attached; of: the
 * model's digest. */
int identity_of_draft(const struct draft_source *d, const struct host_opts *o, const struct digest *of,
                      struct digest *out, struct err *err);

#endif
