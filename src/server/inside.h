/* inside.h - what the files of this folder share: the server itself. */
#ifndef SERVER_INSIDE_H
#define SERVER_INSIDE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/http/clients.h"
#include "server/http/conn.h"
#include "server/http/exchange.h"
#include "server/http/gate.h"
#include "server/known_models.h"
#include "server/http/metrics.h"
#include "server/responses/response_keep.h"
#include "server/responses/response_store.h"
#include "server/server.h"
#include "server/http/workers.h"

struct event_base;
struct evconnlistener;

/* Copies of the options' strings, to which the options point. */
struct opts_texts {
	char *host, *cors_origin, *api_key, *api_key_file;
};

/* The socket that clients connect to. */
struct listening {
	struct evconnlistener *at;
	struct event *again; /* ends a pause for lack of descriptors */
	int port;
	const char *unix_path; /* to be removed at the end; NULL: a port is bound */
};

/* Signals to the process, and the end of the time that answers still have then. */
struct signals {
	struct event *on_term, *on_int, *on_hup, *grace;
};

/* Turns of the loop, in ns: when this one began (0: not yet); the longest. */
struct loop_clock {
	struct {
		int64_t wall, cpu;
	} turn, longest;
};

struct connections {
	struct conn *first;
	int n, n_refused;   /* counted ones, and those that were too many */
	int n_busy;         /* with an answer that is not all out */
	int64_t body_bytes; /* of all bodies being read or prepared */
};

struct exchanges {
	struct exchange *rest; /* those at rest */
	struct exchange **v;   /* every one there is */
	size_t n, cap;
};

/* Exchanges that other threads hand to the IO thread. */
struct mailbox {
	int pipe[2]; /* rings the IO thread */
	struct event *ring;
	/* Under the server's lock. */
	struct exchange *first, **tail;
	bool stop_asked;
};

struct server {
	struct server_opts opts;
	struct opts_texts texts;
	struct known_models known;
	int queue_max; /* of all that waits; 0: any number */
	struct gate gate;
	struct clients clients;
	struct turns *turns;
	int64_t created; /* seconds since 1970 */

	struct event_base *base;
	struct listening listening;
	struct signals signals;
	bool stopping;
	struct loop_clock clock;
	struct connections conns;
	struct exchanges exchanges;

	struct metrics metrics;
	struct response_store responses;
	struct backgrounds backgrounds;
	struct image_folders image_folders;
	struct image_hosts image_hosts;

	pthread_mutex_t lock;
	struct mailbox mailbox;
	struct workers workers;
};

/* server.c */
void server_ring(struct server *s); /* any thread */
/* First in every callback: the turn of the loop begins with the first of them. */
void server_turn(struct server *s);
void server_conn_gone(struct server *s); /* a connection was closed */

#endif
