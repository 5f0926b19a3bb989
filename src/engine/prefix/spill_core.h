/* spill_core.h - what the files behind spill.h share: spill.c opens and closes, spill_keys.c names pieces, spill_look.c
 * sees what other programs did, spill_write.c and spill_read.c write and read; these three have a thread each.  For these alone. */
#ifndef ENGINE_SPILL_CORE_H
#define ENGINE_SPILL_CORE_H

#include <pthread.h>

#include "engine/prefix/spill.h"
#include "engine/prefix/spill_index.h"
#include "engine/prefix/spill_redis.h"
#include "engine/prefix/spill_share.h"

/* A piece to be written, or a prefix to be dropped. */
struct job {
	struct job *next;
	struct spill_head head;
	uint64_t tail;
	bool again;                   /* over a file that the disk does not give */
	int32_t *tok;                 /* [head.n_tok] */
	const void *payload;          /* NULL: not to be written but dropped, the keys below; or all */
	void (*release)(void *owner); /* of the payload's memory */
	void *owner;
	struct digest *key;
	bool to_file, to_redis;
};

/* A piece that was read and not taken yet. */
struct got {
	struct got *next;
	struct spill_got got;
};

struct spill_load {
	struct spill_load *next;
	struct spill *s;
	struct spill_want w;
	int32_t *tok;
	struct digest *key;
	bool snap;   /* the snapshot is still to be read, before the pages */
	int at, end; /* the next page to read; past the last */
	struct got *ready, **ready_end;
	size_t ready_bytes;
	bool busy; /* the thread reads for it, without the lock */
	bool told; /* the taker was told to wait */
	bool ended, failed, closed;
};

/* Looks at what other programs did; see spill_look.c.  Under the lock. */
struct spill_looks {
	pthread_t thread;
	pthread_cond_t wanted; /* for the one that looks */
	pthread_cond_t over;
	bool busy; /* one thread lists the folder */
	uint64_t asked, done;
	struct spill_tallies others; /* when their folders were listed; changed by the thread that looks */
};

struct spill {
	struct spill_opts o;
	const struct spill_io *io;
	int root, own; /* descriptors: the directory, this model's folder in it */
	char folder[SPILL_FOLDER], tally[SPILL_TALLY];
	struct spill_owner owner;
	bool read_only; /* there are packs alone */
	struct spill_redis redis;
	uint64_t tally_kb; /* the writer's alone */

	pthread_mutex_t lock;
	pthread_cond_t work, idle; /* for the writer; for flush */
	pthread_cond_t wanted;     /* for the reader */
	pthread_t writer, reader;
	/* Under the lock. */
	struct spill_looks looks;
	struct spill_index index;
	struct job *jobs, **jobs_end;
	struct spill_load *loads;
	int dropping; /* prefixes that are still to be dropped */
	bool writing, closing;
	bool unsynced;       /* names were given that a power cut might take back */
	int rest, rest_next; /* pieces still to be left alone; after the next failure */
	int64_t clock;       /* the last time given to a use: they rise */
	struct disk_stats stats;
};

/* Checksum of the tokens after the last whole page before pos. */
uint64_t spill_tail(const struct spill *s, const int32_t *tok, int pos);
/* All of the piece's head but its sum and the bytes of its payload. */
void spill_head_fill(const struct spill *s, const struct spill_piece *p, struct spill_head *h);
/* The calls below need the lock. */
struct spill_entry *spill_entry_of(const struct spill *s, const struct spill_piece *p); /* NULL: none */
/* The time of a use.  Times come from the wall clock, since they outlive the process, and rise. */
int64_t spill_tick(struct spill *s);
void spill_used(struct spill *s, const struct digest *key, const int32_t *tok, int pos); /* spill_use */

/* Learns what other programs did to this model's folder, or all: lists each whose tallies changed, that was not listed for
 * a minute, or, must, in any case.  Called and returns locked. */
void spill_look_again(struct spill *s, bool all, bool must);

/* For the writing thread, without the lock: bytes are about to be written; they are there. */
void spill_announce(struct spill *s, uint64_t bytes);
void spill_announced(struct spill *s);
/* Bytes that others announced since their folders were listed. */
uint64_t spill_others_wrote(struct spill *s);
/* Makes and opens this model's folder again, where another program removed it. */
bool spill_folder_again(struct spill *s);
/* Was a folder not listed for a minute?  With the lock. */
bool spill_is_old(const struct spill *s);

/* Is the piece there, and not merely queued?  With the lock. */
bool spill_on_disk(const struct spill *s, const struct spill_entry *e);
/* The next load that reads from Redis, or one that does not.  NULL: none.  With the lock. */
struct spill_load *spill_next_load(struct spill *s, bool redis);
/* Reads its next piece.  Called and returns locked; l may be gone then. */
void spill_read_one(struct spill *s, struct spill_load *l);
void spill_job_free(struct job *j);
/* The job is over: its memory, and its part of the queue.  With the lock. */
void spill_job_end(struct spill *s, struct job *j);
/* All bytes of the piece. */
uint64_t spill_size_of(const struct spill_head *h);

/* The threads' functions; arg: the struct spill. */
void *spill_writer(void *arg);
void *spill_reader(void *arg);
void *spill_looker(void *arg);

#endif
