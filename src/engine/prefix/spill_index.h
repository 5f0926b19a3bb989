/* spill_index.h - the names of the files of a folder of kept prefixes, in memory.
 *
 * Found by key, and in order of use.  Made by listing the folder; nothing of it is
 * written.  For spill.c, under its lock. */
#ifndef ENGINE_SPILL_INDEX_H
#define ENGINE_SPILL_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/prefix/spill_file.h"

/* Whether Redis has it (spill_redis.h). */
enum spill_shared { SHARED_UNKNOWN, SHARED_YES, SHARED_NO };

/* A place in a ring of entries; the ring's own place belongs to no entry. */
struct spill_link {
	struct spill_link *prev, *next;
};

struct spill_entry {
	struct spill_entry *chain; /* in a bucket */
	struct spill_link use;     /* oldest first */
	struct spill_link stale;   /* in index.stale while the file's time is behind used; else alone */
	struct digest key;
	uint64_t tail, bytes;
	int64_t used;   /* time of last use; what the file's time will be */
	uint32_t pos;   /* 0 for a page */
	int32_t folder; /* index.folder[]; 0: this model's */
	enum spill_kind kind;
	bool queued;   /* not on disk yet */
	bool leaving;  /* its file is being evicted */
	bool unread;   /* the disk does not give it: as if it were not there, but the file stays */
	uint64_t seen; /* the listing that found it last: index.listing */
	int32_t pack;  /* in that pack, counted from 1; 0: a file of the folder */
	bool no_file;  /* Redis alone has it */
	enum spill_shared shared;
	uint64_t pack_at; /* where in the pack */
};

struct spill_index {
	struct spill_entry **bucket;
	size_t n_bucket, n;
	struct spill_link use, stale;
	struct spill_link packed; /* entries of packs, which are in no order of use */
	struct spill_link lent;   /* entries without a file, in the order in which they were found */
	size_t n_lent;
	uint64_t bytes;       /* of files on disk */
	int64_t pages, snaps; /* of this model, on disk */
	uint64_t listing;     /* counts them */
	struct spill_folder {
		char *name;     /* in the directory: one for each model */
		int64_t listed; /* when it was listed last, by a monotonic clock */
	} * folder;
	int n_folder;
};

/* A file as a listing found it. */
struct spill_found {
	enum spill_kind kind;
	struct digest key;
	uint32_t pos;
	uint64_t tail, bytes;
	int64_t used;
	int folder; /* index.folder[] */
	bool known; /* the index has it */
};
struct spill_list {
	struct spill_found *v;
	size_t n, cap;
};

void spill_index_init(struct spill_index *x, const char *own_folder);
void spill_index_fini(struct spill_index *x);

/* Lists the directory; removes temporary files that programs which have ended left, and folders without any piece for a day.
 * 0 or E_IO. */
int spill_index_scan(struct spill_index *x, int root, const struct spill_io *io, struct err *err);

/* A folder is listed again in steps, so that the lock is held for none that waits for the disk: begin; spill_list_folder without the
 * lock; see, which says whether the index has it; spill_found_stat, without the lock, and found for those that it has not;
 * end, which removes those that are there no longer. */
uint64_t spill_index_begin(struct spill_index *x);
bool spill_index_see(struct spill_index *x, const struct spill_found *f);
void spill_index_found(struct spill_index *x, const struct spill_found *f);
void spill_index_end(struct spill_index *x, int folder, uint64_t listing);
/* Adds a folder's files to *out, which the caller frees (v): names only.  false: it cannot be listed. */
bool spill_list_folder(int root, const char *folder, int number, struct spill_list *out);
/* Size and time; false: it is gone, or not a regular file. */
bool spill_found_stat(int root, const char *folder, struct spill_found *f);
/* The number of a model's folder in the index, added if need be. */
int spill_index_folder(struct spill_index *x, const char *name);

struct spill_entry *spill_index_find(const struct spill_index *x, enum spill_kind kind, const struct digest *key,
                                     uint32_t pos, uint64_t tail);
/* Entries under a key, of any kind: call with NULL first. */
struct spill_entry *spill_index_next(const struct spill_index *x, const struct digest *key, struct spill_entry *e);
/* All, the one used last long ago first: call with NULL first. */
struct spill_entry *spill_index_each(const struct spill_index *x, struct spill_entry *e);
/* Queued, used now; a folder of this model's. */
struct spill_entry *spill_index_add(struct spill_index *x, enum spill_kind kind, const struct digest *key, uint32_t pos,
                                    uint64_t tail, int64_t used);
/* A piece of a pack: never the oldest, no part of the budget, and not in spill_index_each. */
void spill_index_pack(struct spill_index *x, const struct spill_entry *what);
/* A piece that Redis alone has: treated like one of a pack.  Beyond some number the one found first is forgotten. */
void spill_index_lend(struct spill_index *x, enum spill_kind kind, const struct digest *key, uint32_t pos,
                      uint64_t tail);
/* Forgets what Redis has. */
void spill_index_unlend(struct spill_index *x);
/* Forgets all pieces of packs. */
void spill_index_unpack(struct spill_index *x);
void spill_index_written(struct spill_index *x, struct spill_entry *e, uint64_t bytes);
void spill_index_remove(struct spill_index *x, struct spill_entry *e);
/* The newest from now on. */
void spill_index_use(struct spill_index *x, struct spill_entry *e, int64_t used);
/* Another program used it then: its place in the order. */
void spill_index_move(struct spill_index *x, struct spill_entry *e, int64_t used);
/* The one on disk not used for longest; NULL: none. */
struct spill_entry *spill_index_oldest(const struct spill_index *x);
/* One whose file should be given the time of its use, taken off that list; NULL: none. */
struct spill_entry *spill_index_stale(struct spill_index *x);

enum { SPILL_PATH = SPILL_NAME + 20 }; /* folder, slash, name, 0 */
void spill_index_path(const struct spill_index *x, const struct spill_entry *e, char out[SPILL_PATH]);

#endif
