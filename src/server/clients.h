/* clients.h - who may ask, and who a request belongs to.
 *
 * A client is what fairness is between.  With several keys it is the key; where
 * there is one key or none, which tells nobody apart, the request's "user"; else
 * the address without its port. */
#ifndef SERVER_CLIENTS_H
#define SERVER_CLIENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "server/http.h"

enum { CLIENT_MAX = 96, NO_KEY = -1 };

struct client_key {
	char *name, *secret;
};

struct clients {
	struct client_key *key;
	int n; /* 0: anybody may ask */
};

/* api_key: NULL or "" for none.  path: a file with a line "NAME KEY" or "KEY" for
 * each; '#' begins a comment; NULL for none.  Keys without a name are called by
 * their number. */
int clients_open(struct clients *c, const char *api_key, const char *path, struct err *err);
void clients_close(struct clients *c);

/* May this request pass?  *key: the number of its key, or NO_KEY without keys. */
int clients_admit(const struct clients *c, const struct http *h, int *key);

/* The client's name for key, user (NULL or "": none) and peer ("address:port"). */
void clients_name(const struct clients *c, int key, const char *user, size_t n_user, const char *peer,
                  char out[CLIENT_MAX]);
/* For the engine: a hash, never 0. */
uint64_t client_number(const char *name);

#endif
