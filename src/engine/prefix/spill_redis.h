/* spill_redis.h - the pieces of spill.h in a Redis server too, for servers that share no disk.
 *
 *     weft:FOLDER:NAME     the bytes of the file NAME in the model's folder, with an expiry that each look renews
 *     weft:FOLDER:KEY.at   bit i: there is, or was, a snapshot i tokens after the whole page KEY
 *
 * A look (spill_look_shared) asks for all names that a prompt may have at once, by EXPIRE, which says whether it is there and
 * renews it; the index then has entries without a file.  A load gets those from here, and checks them as it checks files.
 *
 * Two connections with a thread each: one for looks and loads, one for what is written.  Each operation has a deadline.  After a
 * failure a connection is closed and left alone for 1, 2, 4 ... 60 seconds, in which nothing waits for it: pieces that Redis alone
 * has count as not there, and what would be written is dropped.  A connection is made while no request waits.
 *
 * What is dropped is dropped here too.  Until that is done nothing is found here or written.
 *
 * For the files behind spill.h; with the lock of struct spill, where nothing else is said. */
#ifndef ENGINE_SPILL_REDIS_H
#define ENGINE_SPILL_REDIS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/prefix/spill_file.h"

struct job;
struct redis;
struct spill;
struct spill_look;

/* One connection, its thread's alone but for `up` and the times. */
struct spill_line {
	struct redis *redis;
	const char *does; /* "read", "write" */
	bool up;
	bool told;          /* the log says that it fails */
	int64_t rest_until; /* left alone; monotonic ns */
	int64_t rest_ns;    /* the last time it was left alone for */
};

struct spill_redis {
	bool on, closing;
	struct spill_line in, out;
	pthread_t reader, writer;
	pthread_cond_t wanted, work, tried;
	bool asked;     /* to connect for reading */
	bool was_tried; /* the first connection for reading was made, or failed */
	struct spill_look *looks, **looks_end;
	int n_looks;
	uint64_t look_asked, look_done;
	struct job *jobs, **jobs_end;
	uint64_t job_bytes;
	bool writing;
	double rate_ns, rate_bytes; /* of what was read; the older, the less it counts */
	int64_t rate_at;            /* the last read */
	int dropping;               /* prefixes that are still to be dropped there */
	int64_t close_until;        /* then what is not written is dropped */
};

/* As s->o says; starts the threads, and waits a second for the first connection at most.  Without the lock. */
int spill_redis_open(struct spill *s, struct err *err);
/* Ends the threads: reading at once, writing after what is queued, or five seconds.  Without the lock. */
void spill_redis_stop(struct spill *s);
void spill_redis_free(struct spill *s);

/* Could pieces be found there now; written? */
bool spill_redis_reads(const struct spill *s);
bool spill_redis_writes(const struct spill *s);
/* Takes a piece to be written, or a prefix to be dropped; false: it does not, and counts it. */
bool spill_redis_put(struct spill *s, struct job *j);
/* A read of `bytes` took ns; what a byte took of late, 0 where nothing was read for a minute. */
void spill_redis_took(struct spill *s, size_t bytes, int64_t ns);
double spill_redis_ns_byte(const struct spill *s);
/* Reads and checks a piece, as spill_file_read.  Without the lock, on the reading thread. */
int spill_redis_read(struct spill *s, const char *name, struct spill_head *want, size_t most, const int32_t *tok,
                     void **payload, struct err *err);

#endif
