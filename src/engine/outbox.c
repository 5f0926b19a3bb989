/* outbox.c - see outbox.h. */
#include "engine/outbox.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { RING_FIRST = 32 };       /* a reader that keeps up never needs more */

void outbox_init(struct outbox *o, void (*notify)(void *), void *arg)
{
	memset(o, 0, sizeof(*o));
	pthread_mutex_init(&o->lock, NULL);
	pthread_cond_init(&o->more, NULL);
	o->notify = notify;
	o->notify_arg = arg;
	o->cap = RING_FIRST;
	o->token = xmalloc(size_mul(o->cap, sizeof(o->token[0])));
	buf_init(&o->text);
	buf_init(&o->taken);
}

void outbox_fini(struct outbox *o)
{
	free(o->token);
	buf_fini(&o->text);
	buf_fini(&o->taken);
	pthread_cond_destroy(&o->more);
	pthread_mutex_destroy(&o->lock);
}

static bool waits(const struct outbox *o)
{
	return o->start_waits || o->progress_waits || o->n || o->done_waits;
}

static void text_put(struct outbox *o, const char *p, size_t n)
{
	/* Taken text is cut off when it is most of the buffer, so a reader that stays
	 * one event behind for ever costs no memory. */
	if (o->text_head && o->text_head >= o->text.n - o->text_head) {
		buf_drop(&o->text, o->text_head);
		o->text_head = 0;
	}
	if (n)
		buf_put(&o->text, p, n);
}

static void token_put(struct outbox *o, const struct event *ev)
{
	if (o->n == o->cap) {
		struct outbox_token *bigger = xmalloc(size_mul(2 * o->cap, sizeof(*bigger)));

		for (size_t i = 0; i < o->n; i++)
			bigger[i] = o->token[(o->head + i) & (o->cap - 1)];
		free(o->token);
		o->token = bigger;
		o->head = 0;
		o->cap *= 2;
	}
	o->token[(o->head + o->n++) & (o->cap - 1)] = (struct outbox_token){
		.token = ev->token, .n_text = (uint32_t)ev->n_text, .pick = ev->pick,
	};
	text_put(o, ev->text, ev->n_text);
}

void outbox_put(struct outbox *o, const struct event *ev)
{
	pthread_mutex_lock(&o->lock);
	if (!o->left) {
		bool first = !waits(o);

		switch (ev->kind) {
		case EV_START:
			o->start = *ev;
			o->start_waits = true;
			break;
		case EV_PROGRESS:
			o->progress = *ev;
			o->progress_waits = true;
			break;
		case EV_TOKEN:
			token_put(o, ev);
			break;
		case EV_DONE:
			o->done = *ev;
			o->done_waits = true;
			text_put(o, ev->text, ev->n_text);
			break;
		}
		if (first) {
			pthread_cond_signal(&o->more);
			if (o->notify)
				o->notify(o->notify_arg);
		}
	}
	pthread_mutex_unlock(&o->lock);
}

static void text_take(struct outbox *o, struct event *ev, size_t n)
{
	buf_reset(&o->taken);
	buf_put(&o->taken, o->text.p + o->text_head, n);
	o->text_head += n;
	if (o->text_head == o->text.n) {
		buf_reset(&o->text);
		o->text_head = 0;
	}
	ev->text = o->taken.p;
	ev->n_text = n;
}

static void take(struct outbox *o, struct event *ev)
{
	if (o->start_waits) {
		*ev = o->start;
		o->start_waits = false;
	} else if (o->progress_waits) {
		*ev = o->progress;
		o->progress_waits = false;
	} else if (o->n) {
		struct outbox_token *t = &o->token[o->head];

		memset(ev, 0, sizeof(*ev));
		ev->kind = EV_TOKEN;
		ev->token = t->token;
		ev->pick = t->pick;
		text_take(o, ev, t->n_text);
		o->head = (o->head + 1) & (o->cap - 1);
		o->n--;
	} else {
		*ev = o->done;
		o->done_waits = false;
		o->over = true;
		text_take(o, ev, o->done.n_text);
	}
}

int outbox_take(struct outbox *o, struct event *ev, bool wait)
{
	int got = 0;

	pthread_mutex_lock(&o->lock);
	if (!o->over) {
		while (wait && !waits(o))
			pthread_cond_wait(&o->more, &o->lock);
		if (waits(o)) {
			take(o, ev);
			got = 1;
		}
	}
	pthread_mutex_unlock(&o->lock);
	return got;
}

void outbox_leave(struct outbox *o)
{
	pthread_mutex_lock(&o->lock);
	o->left = true;
	o->notify = NULL;
	pthread_mutex_unlock(&o->lock);
}
