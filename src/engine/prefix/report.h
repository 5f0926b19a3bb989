/* report.h - what the prefix store says of itself: why a request began where it
 * did, and what is kept.  Plain data, for engine.h and prefix.h. */
#ifndef ENGINE_REPORT_H
#define ENGINE_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kinds of place at which a state is kept: what is likely to come after it. */
enum place {
	PLACE_SYSTEM,   /* end of system and tools: other conversations begin here */
	PLACE_USER,     /* start of a user's message: it is edited */
	PLACE_HEADER,   /* before the header of the answer: regenerated, or written otherwise next time */
	PLACE_PROMPT,   /* one before the prompt's end: the same prompt again */
	PLACE_END,      /* end of the answer: the conversation goes on */
	PLACE_JUNCTION, /* two prompts parted here */
	PLACE_GRID,     /* nothing in particular, toward the tail of a long prompt */
	PLACE_LEFT,     /* where a cancelled request was */
	PLACES
};
const char *place_name(enum place kind); /* "system", "user", ... */

enum prefix_source { PREFIX_NONE, PREFIX_RUNNING, PREFIX_MEMORY, PREFIX_DISK };

/* Why a prompt was not resumed further on. */
enum prefix_reason {
	PREFIX_HIT,       /* it was resumed where the common prefix ends */
	PREFIX_OFF,       /* there is no store: its budget is 0 */
	PREFIX_BYPASS,    /* the request wanted neither to use nor to keep */
	PREFIX_EMPTY,     /* nothing is known under this salt */
	PREFIX_DIVERGED,  /* other first token than all that is known */
	PREFIX_NO_STATE,  /* the prefix is known, a state was never kept as far on */
	PREFIX_EVICTED,   /* one was, and had to go */
	PREFIX_NO_MEMORY, /* one is there, and there was no memory to restore it */
	PREFIX_REASONS
};
const char *prefix_reason_name(enum prefix_reason reason); /* "hit", "off", "bypass", ... */
const char *prefix_source_name(enum prefix_source source); /* "none", "running", "memory", "disk" */

struct prefix_report {
	enum prefix_source source;
	enum prefix_reason reason;
	int resumed;      /* positions that needed no computing */
	int junction;     /* positions in common with what is known, at most one less than the prompt */
	int replayed;     /* junction - resumed: known before and computed again */
	int first_diff;   /* index of the first token that differs from the nearest known text; -1: none does */
	int32_t was;      /* the token known there; -1: none */
	enum place place; /* what the state resumed from was kept for; PLACES: there is none, or it is on disk */
	uint64_t node;    /* id of the node resumed from; 0: none */
};

/* The replayed tokens that places 16 tokens apart would have saved. */
int prefix_spared(const struct prefix_report *r);

/* One node of the tree, as engine_prefix_walk shows it. */
struct prefix_item {
	uint64_t id, parent; /* parent 0: a root */
	const char *salt;
	int begin, end;     /* positions of its run of tokens */
	const int32_t *tok; /* [end - begin] */
	enum place kind;
	bool has_state; /* in memory */
	bool on_disk;   /* could be had from the disk too */
	bool pinned;
	bool lost;               /* it had a state that had to go */
	size_t bytes;            /* that dropping its state would free now */
	int hits;                /* requests that resumed from it */
	int64_t age_ns, idle_ns; /* since it was made; since it was used */
};

/* The Redis server of kept prefixes. */
struct redis_stats {
	bool on, up;
	int64_t written, read; /* pieces */
	uint64_t written_bytes, read_bytes;
	double ns_byte;  /* what a byte took of late; 0: nothing was read for a minute */
	int64_t dropped; /* not written: no room in the queue, or it is left alone */
	int64_t failed;  /* operations that failed, or came too late */
	int64_t damaged; /* values found wrong, and removed */
	int64_t found;   /* pieces found there that are in no file */
};

/* Kept prefixes on disk. */
struct disk_stats {
	bool on;
	int64_t pages, snaps;               /* files of this model */
	uint64_t bytes, bytes_max;          /* of all files */
	int pending;                        /* kept states of which not all is handed over yet */
	size_t queue_bytes;                 /* handed over and not yet written */
	int64_t written, read;              /* pieces */
	uint64_t written_bytes, read_bytes; /* payloads */
	int64_t dropped;                    /* not written: the queue was full, or the piece larger than the budget */
	int64_t failed;                     /* not written: the disk refused, or is being left alone after it did */
	int64_t damaged;                    /* found wrong or unreadable, and removed */
	int64_t vanished;                   /* gone when wanted */
	int64_t found;                      /* pieces that other programs wrote */
	int64_t evicted;
	uint64_t read_ns;        /* reading and checking read_bytes took this long */
	int64_t loads, given_up; /* prompts that waited for a prefix; of them, in vain */
	struct redis_stats redis;
};

#endif
