/* spill_share.h - programs that share a folder of kept prefixes, with no lock between them.
 *
 * A temporary name says whose it is; a program that opens the folder removes it if that one has ended, or after an hour.
 *
 * DIR/servers has a tally for each program and model: an empty file (with a hole) whose length grows with what the program
 * writes.  So the others need not list a folder to learn that nothing came, or how much.  A tally is a hint: the files of
 * pieces alone say what is there. */
#ifndef ENGINE_SPILL_SHARE_H
#define ENGINE_SPILL_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/prefix/spill_file.h"

enum {
	SPILL_OWNER = 48,
	SPILL_TMP_NAME = sizeof(SPILL_TMP) + SPILL_OWNER + SPILL_NAME,
	SPILL_TALLY = SPILL_FOLDER + SPILL_OWNER,
};

/* One that writes: of this process, among others.  Any thread. */
struct spill_owner {
	struct spill_owner *next; /* of all that this process has */
	char name[SPILL_OWNER];   /* machine-process-random */
};
void spill_owner_begin(struct spill_owner *o);
void spill_owner_end(struct spill_owner *o);

/* Where the owner writes what will be `name`. */
void spill_tmp_name(const struct spill_owner *o, const char *name, char out[SPILL_TMP_NAME]);
/* Is it a temporary name in folder dir that no program will give up any more? */
bool spill_tmp_left(int dir, const char *name);

/* The tallies of others. */
struct spill_tally {
	char name[SPILL_TALLY]; /* folder of the model, -, owner */
	uint64_t kb;
};
struct spill_tallies {
	struct spill_tally *v;
	size_t n;
};

void spill_tally_name(char out[SPILL_TALLY], const char *folder, const struct spill_owner *o);
/* Makes a tally of directory root kb long.  A failure costs the others only time: they list the folder every minute. */
void spill_tally_put(int root, const char *name, uint64_t kb);
/* All but `own`, into *out, which the caller frees by spill_tallies_fini.  false: they cannot be read.  removed, if not NULL:
 * becomes the number of those that were removed, because their program has ended or did not change them for an hour (then it
 * makes them anew).  The caller's own is to grow by that: others may not have seen what they told. */
bool spill_tallies_read(int root, const char *own, uint64_t *removed, struct spill_tallies *out);
void spill_tallies_fini(struct spill_tallies *t);
/* Do they differ from before, for that folder (NULL: any)?  *kb grows by what was written since. */
bool spill_tallies_new(const struct spill_tallies *t, const struct spill_tallies *before, const char *folder,
                       uint64_t *kb);
/* Takes those of a folder over from t. */
void spill_tallies_take(struct spill_tallies *to, const struct spill_tallies *t, const char *folder);

#endif
