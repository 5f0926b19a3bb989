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
#include "server/responses/response_store.h"
#include "server/server.h"
#include "server/http/workers.h"

struct event_base;
struct evconnlistener;

struct server {
	struct server_opts opts;
	struct known_models known;
	int queue_max; /* of all that waits; 0: any number */
	char *host, *cors_origin, *api_key, *api_key_file;
	struct gate gate;
	struct clients clients;
	struct turns *turns;
	int64_t created; /* seconds since 1970 */

	struct event_base *base;
	struct evconnlistener *listener;
	struct event *ring, *accept_again, *grace, *on_term, *on_int, *on_hup;
	int pipe[2]; /* rings the IO thread */
	int port;
	const char *unix_path; /* to be removed at the end; NULL: a port is bound */
	bool stopping;
	struct {
		int64_t wall, cpu;
	} turn, longest; /* of the loop, in ns: when this one began (0: not yet); the longest */

	struct conn *conns;
	int n_busy;            /* connections with an answer that is not all out */
	int n_conn, n_refused; /* counted ones, and those that were too many */
	int64_t body_bytes;    /* of all bodies being read or prepared */

	struct exchange *rest; /* exchanges at rest */
	struct exchange **all; /* every one there is */
	size_t n_all, cap_all;
	struct metrics metrics;
	struct response_store responses;
	struct background *background; /* responses without a connection (responses/response_keep.h) */
	int n_background;
	size_t background_bytes; /* of the events of those that run, and of those that are still followed */
	struct image_folders image_folders;
	struct image_hosts image_hosts;

	pthread_mutex_t lock;
	struct exchange *mail, **mail_tail; /* wants the IO thread; under lock */
	bool stop_asked;                    /* under lock */
	struct workers workers;
};

/* server.c */
void server_ring(struct server *s); /* any thread */
/* First in every callback: the turn of the loop begins with the first of them. */
void server_turn(struct server *s);
void server_conn_gone(struct server *s); /* a connection was closed */

#endif
