/* disk.h - kept prefixes between memory and disk: what is written when, and whose
 * prompt waits for what is read.
 *
 * The tier of prefix.h over the files of spill.h.  A state that
 * was kept is written soon after, a few pieces between two steps; one that leaves
 * memory, then.  A prompt of which more lies on disk than in memory waits for it,
 * while others run: what is read is hung into the tree, and the prompt begins as if
 * it had been there.  It waits no longer than computing would take.
 *
 * Engine's thread only, but where it says otherwise. */
#ifndef ENGINE_DISK_H
#define ENGINE_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/prefix/report.h"

struct disk;
struct engine;
struct media;
struct spill;
struct spill_load;

/* As e->opts ask: without a folder or a pack e->disk stays NULL, and the calls below do
 * nothing.  The prefix store is open, and not yet in use. */
int disk_open(struct engine *e, struct err *err);
/* Writes what is to be written.  No request is left. */
void disk_close(struct engine *e);

/* Memory is short: gives up what is being read.  false: nothing is. */
bool disk_yield(struct engine *e);

/* The files, for what else is kept there; NULL: there is no folder and no pack. */
struct spill *disk_spill(const struct engine *e);

/* Between two steps. */
void disk_step(struct engine *e);
/* Whether reads or writes are pending. */
bool disk_busy(const struct engine *e);
/* Nothing runs: there is time for more of it.  false: the disk has to come first. */
bool disk_idle(struct engine *e);
/* disk_own_stats: the counts of the engine's thread, from that thread.  disk_stats: adds to them the counts of the files
 * and their threads, from any thread. */
void disk_own_stats(const struct engine *e, struct disk_stats *out);
void disk_stats(struct engine *e, struct disk_stats *io);

/* ---- vectors of images (vectors.c) ----
 *
 * A media object's vectors are one snapshot file, of a prefix of one token under a salt that no request has: the digest of
 * its pixels and settings.  So they share the budget, the order of use, the checks and the threads of kept prefixes.
 * Damaged files count as missing. */

/* One is read at a time. */
struct vectors {
	struct spill_load *load; /* NULL: none */
	struct media *media;     /* whose vectors it brings; a reference */
	int64_t deadline;        /* then they are computed after all */
};
/* Between two steps: takes what came.  True: a request waits for it no longer. */
bool vectors_step(struct engine *e);
/* Before a part of m's vectors is computed: are they being read, or next to be? */
bool vectors_fetch(struct engine *e, struct media *m);
/* m's vectors were computed: hands them over to be written. */
void vectors_keep(struct engine *e, struct media *m);
/* Gives up what is being read. */
void vectors_close(struct engine *e);

#endif
