/* ticket.h - a lock that is given in the order in which it was asked for.
 *
 * A pthread mutex may go to the thread that released it just before, again and again.  With this lock two threads that both
 * want it always take turns.  Threads that wait sleep. */
#ifndef BASE_TICKET_H
#define BASE_TICKET_H

#include <pthread.h>
#include <stdint.h>

struct ticket_lock {
	pthread_mutex_t lock;
	pthread_cond_t turn;
	uint64_t next, now; /* under lock: the next ticket to be drawn; the one whose turn it is */
};

void ticket_init(struct ticket_lock *t);
void ticket_fini(struct ticket_lock *t);
/* Any thread, once until ticket_leave.  A NULL lock is always free. */
void ticket_enter(struct ticket_lock *t);
void ticket_leave(struct ticket_lock *t);

#endif
