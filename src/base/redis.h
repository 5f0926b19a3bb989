/* redis.h - one connection to a Redis server: commands out, replies in, all with deadlines.
 *
 * hiredis writes commands and parses replies; the connection is ours, since its own time limits are for each call of the system
 * alone: a server that sends a byte now and then would hold a caller for ever.  rediss:// is TLS by OpenSSL; the server's
 * certificate is checked by the system's authorities (SSL_CERT_FILE, SSL_CERT_DIR name others).
 *
 * What comes from the server is not trusted: a reply has a size limit, and messages quote nothing of it but the first word of an
 * error.  No message has the user or the password.
 *
 * A connection is for one thread at a time.  Deadlines are monotonic (clock.h).  Any failure but E_UNSUPPORTED of redis_reply
 * closes it. */
#ifndef BASE_REDIS_H
#define BASE_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct redis;

/* redis://[user:password@]host[:port][/db], or rediss://; not connected yet.  password: NULL, or instead of the URL's.
 * E_ARG; E_UNSUPPORTED: this build has no hiredis. */
int redis_new(struct redis **out, const char *url, const char *password, struct err *err);
void redis_free(struct redis *r);
/* The URL without user and password. */
const char *redis_name(const struct redis *r);

/* Connects, sends the password, chooses the database.  The names of hosts are looked up by the system, in its own time.
 * E_IO, E_LATE, E_FORMAT. */
int redis_connect(struct redis *r, int64_t until, struct err *err);
void redis_close(struct redis *r);

struct redis_word {
	const void *p;
	size_t n;
};
/* Adds a command of n words to those that redis_send sends. */
void redis_add(struct redis *r, const struct redis_word *word, int n);
/* Adds a command of words that are texts; the last is NULL. */
void redis_addf(struct redis *r, const char *word, ...) __attribute__((sentinel));
int redis_send(struct redis *r, int64_t until, struct err *err);
/* SET name value EX seconds, at once; the value lies in parts. */
int redis_set(struct redis *r, const char *name, const struct redis_word *part, int n_part, int seconds, int64_t until,
              struct err *err);

enum redis_kind { REDIS_NIL, REDIS_INTEGER, REDIS_TEXT, REDIS_LIST };
struct redis_reply {
	enum redis_kind kind;
	int64_t n;        /* the integer; bytes of a text; items of a list */
	const char *text; /* followed by a 0 */
	void *own;
};
/* The next reply, to be freed in any case; its bytes and those of the replies sent with it are at most `most`.  E_UNSUPPORTED: the
 * server answers with an error, and the connection stays; E_LATE, E_FORMAT, E_IO. */
int redis_reply(struct redis *r, struct redis_reply *out, size_t most, int64_t until, struct err *err);
void redis_reply_free(struct redis_reply *reply);
/* An item of a list, valid as long as the list. */
struct redis_reply redis_item(const struct redis_reply *list, int64_t i);

#endif
