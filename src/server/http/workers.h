/* workers.h - the threads that parse, template and tokenise, and the requests that wait for them.
 *
 * Clients (clients.h) with requests to prepare stand in a ring and are served in turn, a request
 * each.  One client has at most all workers but one at work, so that another's request begins at
 * once, whatever the first has sent.  What a request may cost is bounded (base/allowance.h).
 *
 * A worker that waits for another machine (image_hosts.h) or a model (known_models.h) steps aside: it computes nothing, so another thread has its
 * place, and its client may have another request at work.
 *
 * What waits here waits for an answer as much as what waits in the engine, so it counts in the
 * same bound (--queue), and of that no client gets more than is left to the others.
 *
 * IO thread, but for what says otherwise. */
#ifndef SERVER_WORKERS_H
#define SERVER_WORKERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/http/clients.h"
#include "server/http/problem.h"

struct exchange;
struct server;

/* A client with requests that wait or are at work. */
struct line {
	char client[CLIENT_MAX];
	struct exchange *head, **tail;
	int n_waiting, n_working, n_aside;
	int n_back;        /* threads that stepped aside and wait for a place */
	struct line *next; /* of the ring, which begins with the next client */
};

/* Memory that is given up: large values are freed here and not on the loop. */
struct rubbish {
	void (*drop)(void *p);
	void *p;
	struct rubbish *next;
};

/* One thread, and what it does. */
struct worker {
	struct server *srv;
	pthread_t thread;
	int64_t since; /* clock when it began to compute for an exchange; 0: it does not.  Under the server's lock */
	struct line *line; /* whose request it prepares */
	bool aside;
};

/* Threads that may step aside at once, and those of them that may do so for one client. */
enum { ASIDE_MAX = 64, ASIDE_CLIENT_MAX = 32 };

/* All under the server's lock. */
struct workers {
	struct worker *v; /* [n_thread] */
	int n_thread;
	int n; /* places: threads that compute at once */
	pthread_cond_t more, place;
	struct line *ring;
	int n_waiting, n_working, n_aside;
	int64_t refused; /* exchanges, there being no room */
	struct rubbish *rubbish;
	bool trim; /* much was freed: the system is to have it back */
	bool stop;
};

/* n: places.  aside: some requests wait for other machines or models. */
void workers_open(struct server *s, int n, bool aside);
/* Finishes what is queued. */
void workers_close(struct server *s);

/* 0: x is prepared soon (exchange_prepare), on a thread.  Else *p's status: there is no room. */
int workers_give(struct server *s, struct exchange *x, struct problem *p);
/* True: x had been given and not been begun, and will not be. */
bool workers_take_back(struct server *s, struct exchange *x);
/* drop(p) is called on a worker. */
void workers_discard(struct server *s, void (*drop)(void *p), void *p);
/* Something large was freed. */
void workers_trim(struct server *s);

/* The calling worker is going to wait for another machine or a model; workers_back ends that, once there is a place again.  Not 0: *p's
 * status, with nothing begun, as too many wait already.  On a thread that is not a worker both do nothing. */
int workers_aside(struct problem *p);
void workers_back(void);

/* Any thread.  Numbers of waiting and of begun jobs, and how long the oldest of those that compute has done so. */
struct workers_stats {
	int waiting, working;
	int64_t oldest_ns, refused;
};
void workers_stats(struct server *s, struct workers_stats *out);

#endif
