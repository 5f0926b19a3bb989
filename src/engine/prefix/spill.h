/* spill.h - kept prefixes on disk: found again after a restart, or after memory
 * forgot them.
 *
 * A folder of immutable files (spill_file.h).  The whole pages of a prefix are keyed
 * by a chain of SHA-256, key[i+1] = H(key[i], tokens of page i) with key[0] = H(model,
 * salt), so that branches share files; a snapshot hangs on the key of the last whole
 * page before its position.  The names of the files are the index: opening lists
 * them and reads none, and a file is checked when it is first wanted.  There is
 * nothing else that could disagree with the files after a crash.
 *
 * Nothing here waits for the disk but spill_open, spill_flush and spill_close: bytes
 * to be written are handed over with their memory, and a thread writes them; another
 * thread reads what a load asks for, a few pieces ahead of the taker; a third looks at what
 * other programs wrote.  A file
 * that is damaged, of another model or of other tokens is dropped and counted, never
 * used.
 *
 * A Redis server may have the same pieces under the same names (spill_redis.h), for servers that share no disk.
 *
 * Pieces of packs are found like files of the folder.  They are never evicted; whatever is dropped, none of them is
 * found any more.
 *
 * Any number of programs read and write one folder, also over a network; there is no
 * lock.  Files are never changed, a rename alone makes one, and any may go at any
 * time: then it is not found.  The budget is kept by all (spill_share.h).
 * Knows nothing of caches, slots or requests.  Any thread. */
#ifndef ENGINE_SPILL_H
#define ENGINE_SPILL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "engine/prefix/report.h"
#include "engine/prefix/spill_file.h"

struct pack;
struct spill;
struct spill_load;

struct spill_opts {
	const char *dir; /* made if its parent is there; NULL: there are packs or Redis alone */
	struct pack *const
		*pack; /* [n_pack] of this model, checked (prefix_pack.h); the caller's, open until spill_close */
	int n_pack;
	uint64_t bytes_max;         /* of all files, other models' included */
	size_t queue_bytes;         /* handed over and not yet written; beyond it pieces are dropped */
	size_t window_bytes;        /* a load reads this far ahead of its taker */
	struct digest model;        /* everything the payloads are a function of, besides the tokens */
	int page_rows;              /* tokens of a page */
	const struct spill_io *io;  /* NULL: the system's */
	const char *redis;          /* URL of a Redis server that has pieces too; NULL: none */
	const char *redis_password; /* NULL: what the URL says */
	int redis_seconds;          /* seconds after which unused pieces go there */
	void (*looked)(void *arg);  /* on the thread that looks, after each spill_look; must not block.  NULL: none */
	void *looked_arg;
};

/* E_IO: the folder cannot be made, listed or written; E_ARG. */
int spill_open(struct spill **out, const struct spill_opts *o, struct err *err);
/* Writes everything that was handed over, then frees.  All loads must be closed before. */
void spill_close(struct spill *s);
/* Waits until everything handed over so far is written or dropped. */
void spill_flush(struct spill *s);
bool spill_read_only(const struct spill *s); /* there are packs alone */
int spill_page_rows(const struct spill *s);

/* The keys of tok[0..n): key[0] of the empty prefix under this salt, key[i] of the
 * first i whole pages, for i up to n / page_rows. */
void spill_keys(const struct spill *s, const void *salt, size_t n_salt, const int32_t *tok, int n, struct digest *key);
/* spill_keys where keys stand for more than tokens: more[i] is the digest of whole page i's further contents (images);
 * zeros: none. */
void spill_keys_more(const struct spill *s, const void *salt, size_t n_salt, const int32_t *tok, int n,
                     const struct digest *more, struct digest *key);

/* A piece of the prefix tok[0..pos) with keys key[0..pos / page_rows].  A page is
 * the whole page that ends at pos. */
struct spill_piece {
	enum spill_kind kind;
	int pos;
	const int32_t *tok;
	const struct digest *key;
};

/* Would this piece be written?  false when it is on disk, waits to be, or nothing is
 * written. */
bool spill_wants(struct spill *s, const struct spill_piece *p);
/* Could n bytes more be handed over now? */
bool spill_room(struct spill *s, size_t n);
/* Hands over n bytes from malloc, in any case.  E_FULL: they were dropped. */
int spill_put(struct spill *s, const struct spill_piece *p, void *payload, size_t n);
/* Hands over n bytes that stay where they are and as they are until release(owner), on any thread, in any case.
 * E_FULL: they were dropped. */
int spill_put_held(struct spill *s, const struct spill_piece *p, const void *payload, size_t n,
                   void (*release)(void *owner), void *owner);

/* The prefix tok[0..pos) was used: what is there of it (its snapshot at pos, its
 * pages) is evicted after everything that was not, and from its end.  To be said
 * before more of a prefix is handed over, or its beginning might make room for its
 * end; and after, which puts the new pieces in order. */
void spill_use(struct spill *s, const struct digest *key, const int32_t *tok, int pos);

/* A piece that came from disk was of no use: drops and counts it, like damage. */
void spill_bad(struct spill *s, const struct spill_piece *p);

/* Drops what is there, whichever program wrote it, of tok[0..n) (its last page, and the snapshot at its end) and of
 * all that begins with it; key NULL: all of this model, whatever the salt.  Nothing of it
 * is found from now on, and until the files are gone, nothing at all. */
void spill_drop(struct spill *s, const struct digest *key, const int32_t *tok, int n);

/* Has the folder looked at for what other programs wrote: costs little where none did.  What is found by then is found by the
 * calls below once spill_looked(ticket).  0: there is no folder, and nothing to wait for. */
uint64_t spill_look(struct spill *s);
bool spill_looked(struct spill *s, uint64_t ticket);

/* Asks Redis for the pieces of tok[0..n), whose n_chain chains of keys lie one after the other; pages: chain 0 has pages.  What is
 * found there is given a new time to live.  0: nothing to wait for: there is no Redis, or it does not answer. */
uint64_t spill_look_shared(struct spill *s, const struct digest *key, int n_chain, bool pages, const int32_t *tok,
                           int n);
bool spill_looked_shared(struct spill *s, uint64_t ticket);
/* Has Redis alone the piece? */
bool spill_is_shared(struct spill *s, const struct spill_piece *p);

/* The largest position <= n at which a snapshot and, with pages, all whole pages before it are
 * there; 0: none.  Says nothing of damage yet. */
int spill_find(struct spill *s, const struct digest *key, bool pages, const int32_t *tok, int n);
/* Are the whole pages from `from` to `to` there? */
bool spill_find_run(struct spill *s, const struct digest *key, int from, int to);
/* Whole pages of the prefix that are there. */
int spill_find_pages(struct spill *s, const struct digest *key, int n_page);

/* ---- loads ---- */

struct spill_want {
	const int32_t *tok;       /* [pos] copied, like key */
	const struct digest *key; /* [pos / page_rows + 1] */
	int pos, page;            /* the snapshot at pos, then the pages from this one on */
	size_t page_bytes;        /* payload of a page */
	size_t snap_max;          /* no snapshot has more; 0: pages only */
	/* On the reading thread, when something came to a load whose taker had been told
	 * to wait.  Must not block. */
	void (*notify)(void *arg);
	void *notify_arg;
};
struct spill_got {
	enum spill_kind kind;
	int page;      /* of a page: its number */
	void *payload; /* from malloc, the taker's now */
	size_t n;
};
enum spill_next {
	SPILL_GOT,  /* *out filled */
	SPILL_WAIT, /* nothing yet: notify follows */
	SPILL_END,  /* all were taken */
	SPILL_FAIL, /* the next piece cannot be had; what came before is good */
};

struct spill_load *spill_load_open(struct spill *s, const struct spill_want *w);
enum spill_next spill_load_next(struct spill_load *l, struct spill_got *out);
/* At any time; what was not taken is dropped.  notify does not come after. */
void spill_load_close(struct spill_load *l);

/* ---- counters ---- */

void spill_stats(struct spill *s, struct disk_stats *out);

#endif
