/* outbox.c - see outbox.h. */
#include "engine/outbox.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* A token that waits; n_top alternatives follow it. */
struct waiting {
	int32_t token;
	float logprob;
	uint32_t n_text;
	int n_top;
};

void outbox_init(struct outbox *o, void (*notify)(void *), void *arg)
{
	memset(o, 0, sizeof(*o));
	pthread_mutex_init(&o->lock, NULL);
	pthread_cond_init(&o->more, NULL);
	o->notify = notify;
	o->notify_arg = arg;
	buf_init(&o->token);
	buf_init(&o->text);
	buf_init(&o->taken);
}

void outbox_fini(struct outbox *o)
{
	buf_fini(&o->token);
	buf_fini(&o->text);
	buf_fini(&o->taken);
	pthread_cond_destroy(&o->more);
	pthread_mutex_destroy(&o->lock);
}

static bool waits(const struct outbox *o)
{
	return o->start_waits || o->progress_waits || o->n || o->done_waits;
}

/* Appends.  What was taken is cut off when it is most of the buffer, so a reader
 * that stays one event behind for ever costs no memory. */
static void append(struct buf *b, size_t *head, const void *p, size_t n)
{
	if (*head && *head >= b->n - *head) {
		buf_drop(b, *head);
		*head = 0;
	}
	if (n)
		buf_put(b, p, n);
}

static void skip(struct buf *b, size_t *head, size_t n)
{
	*head += n;
	if (*head == b->n) {
		buf_reset(b);
		*head = 0;
	}
}

static void text_put(struct outbox *o, const char *p, size_t n) { append(&o->text, &o->text_head, p, n); }

static void token_put(struct outbox *o, const struct event *ev)
{
	const struct pick *p = &ev->pick;
	struct waiting w = { ev->token, p->logprob, (uint32_t)ev->n_text, p->n_top > 0 ? p->n_top : 0 };

	append(&o->token, &o->token_head, &w, sizeof(w));
	if (w.n_top)
		buf_put(&o->token, p->top, (size_t)w.n_top * sizeof(p->top[0]));
	o->n++;
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
	skip(&o->text, &o->text_head, n);
	ev->text = o->taken.p;
	ev->n_text = n;
}

static void token_take(struct outbox *o, struct event *ev)
{
	struct waiting w;
	size_t top;

	memcpy(&w, o->token.p + o->token_head, sizeof(w));
	top = (size_t)w.n_top * sizeof(ev->pick.top[0]);
	memset(ev, 0, sizeof(*ev));
	ev->kind = EV_TOKEN;
	ev->token = ev->pick.token = w.token;
	ev->pick.logprob = w.logprob;
	ev->pick.n_top = w.n_top;
	memcpy(ev->pick.top, o->token.p + o->token_head + sizeof(w), top);
	skip(&o->token, &o->token_head, sizeof(w) + top);
	o->n--;
	text_take(o, ev, w.n_text);
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
		token_take(o, ev);
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
