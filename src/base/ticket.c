/* ticket.c - see ticket.h. */
#include "base/ticket.h"

void ticket_init(struct ticket_lock *t)
{
	*t = (struct ticket_lock){ .next = 0 };
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->turn, NULL);
}

void ticket_fini(struct ticket_lock *t)
{
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->turn);
}

void ticket_enter(struct ticket_lock *t)
{
	uint64_t own;

	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	own = t->next++;
	while (t->now != own)
		pthread_cond_wait(&t->turn, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

void ticket_leave(struct ticket_lock *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->now++;
	pthread_cond_broadcast(&t->turn);
	pthread_mutex_unlock(&t->lock);
}
