/* workers.h - the threads that parse, template and tokenise, and who waits for them.
 *
 * Clients (clients.h) with requests to prepare stand in a ring and are served in turn, a request
 * each.  One client has at most all workers but one at work, so that another's request begins at
 * once, whatever the first has sent.  What a request may cost is bounded (base/allowance.h).
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

#include "server/clients.h"
#include "server/problem.h"

struct exchange;
struct server;

/* A client with requests that wait or are at work. */
struct line {
	char client[CLIENT_MAX];
	struct exchange *head, **tail;
	int n_waiting, n_working;
	struct line *next; /* of the ring, which begins with who is next */
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
	int64_t since; /* clock when it began with an exchange; 0: it has none.  Under the server's lock */
};

/* All under the server's lock. */
struct workers {
	struct worker *v;
	int n;
	pthread_cond_t more;
	struct line *ring;
	int n_waiting, n_working;
	int64_t refused; /* exchanges, there being no room */
	struct rubbish *rubbish;
	bool trim; /* much was freed: the system is to have it back */
	bool stop;
};

void workers_open(struct server *s, int n);
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

/* Any thread.  Numbers of waiting and of running jobs, and how long ago the oldest running one began. */
struct workers_stats {
	int waiting, working;
	int64_t oldest_ns, refused;
};
void workers_stats(struct server *s, struct workers_stats *out);

#endif
