/* clients.h - which clients may ask, and which one a request belongs to.
 *
 * A client is what fairness is between.  With several keys it is the key; where
 * there is one key or none, which distinguishes no clients, the request's "user"; else
 * the address without its port. */
#ifndef SERVER_CLIENTS_H
#define SERVER_CLIENTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "server/http/http.h"

enum { CLIENT_MAX = 96, NO_KEY = -1 };

/* A key keeps its number for as long as the server runs, and no other gets it: answers that are kept, and requests
 * under way, belong to it.  secret NULL: it is valid no more. */
struct client_key {
	char *name, *secret;
};

/* The sender of a request. */
struct sender {
	int key;                 /* which of the server's keys it came with, or NO_KEY */
	char client[CLIENT_MAX]; /* the client that it counts for */
	bool keyed;              /* by its key, whatever the body says */
	char peer[64];           /* address:port, or "unix" */
};

struct clients {
	struct client_key *key;
	int n; /* keys, revoked ones included; 0: no key is needed */
	atomic_bool
		apart; /* any thread: there is more than one valid key, so what is one's is hidden from the others */
};

/* api_key: NULL or "" for none.  path: a file with a line "NAME KEY" or "KEY" for
 * each; '#' begins a comment; NULL for none.  Keys without a name are called by
 * their number. */
int clients_open(struct clients *c, const char *api_key, const char *path, struct err *err);
void clients_close(struct clients *c);
/* Reads the keys again, as on SIGHUP: keys that were added become valid, keys that were removed become invalid (*added and
 * *gone count them).  After an error the old keys stay valid.  IO thread, as clients_admit and clients_name. */
int clients_reload(struct clients *c, const char *api_key, const char *path, int *added, int *gone, struct err *err);

/* May this request pass?  *key: the number of its key, or NO_KEY without keys. */
int clients_admit(const struct clients *c, const struct http *h, int *key);

/* Writes the name of the key's client to out.  False, with out unchanged, where keys do not distinguish clients. */
bool clients_name(const struct clients *c, int key, char out[CLIENT_MAX]);
/* Any thread.  The name where no key says it, for user[0..n_user) (n_user 0: none) and peer ("address:port"). */
void client_name(const char *user, size_t n_user, const char *peer, char out[CLIENT_MAX]);
/* For the engine: a hash, never 0. */
uint64_t client_number(const char *name);

#endif
