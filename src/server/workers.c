/* workers.c - the threads that parse, template and tokenise: see inside.h. */
#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "server/inside.h"

static void *work(void *arg)
{
	struct server *s = arg;
	struct workers *w = &s->workers;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		struct exchange *x = w->head;

		if (!x) {
			if (w->stop)
				break;
			pthread_cond_wait(&w->more, &s->lock);
			continue;
		}
		if (!(w->head = x->next))
			w->tail = &w->head;
		x->next = NULL;
		pthread_mutex_unlock(&s->lock);
		exchange_prepare(x);
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

void workers_open(struct server *s, int n)
{
	struct workers *w = &s->workers;

	assert(n >= 1);
	w->tail = &w->head;
	pthread_cond_init(&w->more, NULL);
	w->thread = xcalloc((size_t)n, sizeof *w->thread);
	for (w->n = 0; w->n < n; w->n++)
		if (pthread_create(&w->thread[w->n], NULL, work, s))
			break;
	assert(w->n > 0);
}

void workers_give(struct server *s, struct exchange *x)
{
	struct workers *w = &s->workers;

	pthread_mutex_lock(&s->lock);
	x->next = NULL;
	*w->tail = x;
	w->tail = &x->next;
	pthread_cond_signal(&w->more);
	pthread_mutex_unlock(&s->lock);
}

void workers_close(struct server *s)
{
	struct workers *w = &s->workers;

	pthread_mutex_lock(&s->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->more);
	pthread_mutex_unlock(&s->lock);
	for (int i = 0; i < w->n; i++)
		pthread_join(w->thread[i], NULL);
	w->n = 0;
	free(w->thread);
	w->thread = NULL;
	pthread_cond_destroy(&w->more);
}
