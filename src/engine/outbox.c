/* outbox.c - see outbox.h. */
#include "engine/outbox.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"

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

/* Room for n more.  What was taken is cut off when it is most of the buffer, so a
 * reader that stays one event behind for ever costs no memory. */
static void outbox_reserve(struct buf *b, size_t *head, size_t n)
{
	if (*head && *head >= b->n - *head) {
		buf_drop(b, *head);
		*head = 0;
	}
	buf_reserve(b, n);
}

static void skip(struct buf *b, size_t *head, size_t n)
{
	*head += n;
	if (*head == b->n) {
		buf_reset(b);
		*head = 0;
	}
}

/* Room first: that is what may fail, and then nothing was put. */
static void token_put(struct outbox *o, const struct event *ev)
{
	const struct pick *p = &ev->pick;
	struct waiting w = { ev->token, p->logprob, (uint32_t)ev->n_text, p->n_top > 0 ? p->n_top : 0 };
	size_t top = (size_t)w.n_top * sizeof(p->top[0]);

	outbox_reserve(&o->token, &o->token_head, sizeof(w) + top);
	outbox_reserve(&o->text, &o->text_head, ev->n_text);
	buf_put(&o->token, &w, sizeof(w));
	buf_put(&o->token, p->top, top);
	buf_put(&o->text, ev->text, ev->n_text);
	o->n++;
}

struct put {
	struct outbox *o;
	const struct event *ev;
};

static void put(void *arg)
{
	const struct put *a = arg;
	struct outbox *o = a->o;
	const struct event *ev = a->ev;

	switch (ev->kind) {
	case EV_START:
		o->start = *ev;
		o->start_waits = true;
		break;
	case EV_PROGRESS:
		o->progress = *ev;
		o->progress_waits = true;
		break;
	case EV_TOKEN: token_put(o, ev); break;
	case EV_DONE:
		outbox_reserve(&o->text, &o->text_head, ev->n_text);
		buf_put(&o->text, ev->text, ev->n_text);
		o->done = *ev;
		o->done_waits = true;
		break;
	}
}

/* The reader's wake-up touches what requests share, so it is outside the guard. */
void outbox_put(struct outbox *o, const struct event *ev)
{
	struct put a = { o, ev };
	bool whole = true;

	fault_lock(&o->lock);
	if (!o->left) {
		bool first = !waits(o);

		whole = fault_guard(put, &a);
		if (whole && first) {
			pthread_cond_signal(&o->more);
			if (o->notify)
				o->notify(o->notify_arg);
		}
	}
	fault_unlock(&o->lock);
	if (!whole)
		fault_as(fault_code());
}

/* There is room for it in `taken`: made before anything is taken, since it may fail. */
static void text_room(struct outbox *o, size_t n)
{
	buf_reset(&o->taken);
	buf_reserve(&o->taken, n);
}

static void text_take(struct outbox *o, struct event *ev, size_t n)
{
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
	text_room(o, w.n_text);
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

static void take_event(struct outbox *o, struct event *ev)
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
		text_room(o, o->done.n_text);
		*ev = o->done;
		o->done_waits = false;
		o->over = true;
		text_take(o, ev, o->done.n_text);
	}
}

struct wish {
	struct outbox *o;
	size_t n_text;
};

static void grant(void *arg)
{
	const struct wish *w = arg;

	if (!w->o->left)
		buf_reserve(&w->o->text, w->n_text);
}

void outbox_room(struct outbox *o, size_t n_text)
{
	fault_locked(&o->lock, grant, &(struct wish){ o, n_text });
}

struct taking {
	struct outbox *o;
	struct event *ev;
	bool wait, got;
};

static void take_next(void *arg)
{
	struct taking *t = arg;
	struct outbox *o = t->o;

	if (o->over)
		return;
	while (t->wait && !waits(o))
		pthread_cond_wait(&o->more, &o->lock);
	t->got = waits(o);
	if (t->got)
		take_event(o, t->ev);
}

int outbox_take(struct outbox *o, struct event *ev, bool wait)
{
	struct taking t = { o, ev, wait, false };

	fault_locked(&o->lock, take_next, &t);
	return t.got;
}

void outbox_leave(struct outbox *o)
{
	fault_lock(&o->lock);
	o->left = true;
	o->notify = NULL;
	fault_unlock(&o->lock);
}
