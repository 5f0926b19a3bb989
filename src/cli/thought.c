/* thought.c - see thought.h. */
#include "cli/thought.h"

#include <string.h>

static const char open_tag[] = "<think>", close_tag[] = "</think>";

static size_t spaces(const char *p, size_t n)
{
	size_t i = 0;

	while (i < n && strchr(" \t\r\n", p[i]) && p[i])
		i++;
	return i;
}

bool thought_opened(const char *prompt, size_t n)
{
	size_t tag = strlen(open_tag);

	while (n && spaces(prompt + n - 1, 1))
		n--;
	return n >= tag && !memcmp(prompt + n - tag, open_tag, tag);
}

void thought_init(struct thought *t, bool opened, thought_fn *thinking, thought_fn *answer, void *arg)
{
	*t = (struct thought){ .state = opened ? THOUGHT_INSIDE : THOUGHT_BEGIN, .thinking = thinking, .answer = answer,
	                       .arg = arg };
	buf_init(&t->held);
}

void thought_fini(struct thought *t)
{
	buf_fini(&t->held);
}

/* How much at the end of the held bytes may be the beginning of the closing tag,
 * or space before one. */
static size_t tail(const struct buf *b)
{
	size_t tag = strlen(close_tag), k = b->n < tag - 1 ? b->n : tag - 1;

	while (k && memcmp(b->p + b->n - k, close_tag, k))
		k--;
	while (k < b->n && spaces(b->p + b->n - k - 1, 1))
		k++;
	return k;
}

/* One move of the state; false when more text is needed. */
static bool move(struct thought *t)
{
	struct buf *b = &t->held;
	size_t skip = spaces(b->p, b->n), n, tag;
	const char *at;

	switch (t->state) {
	case THOUGHT_BEGIN:
		tag = strlen(open_tag);
		n = b->n - skip < tag ? b->n - skip : tag;
		if (!memcmp(b->p + skip, open_tag, n)) {
			if (n < tag)
				return false;
			buf_drop(b, skip + tag);
			t->state = THOUGHT_INSIDE;
		} else {
			t->state = THOUGHT_ANSWER;
		}
		return true;
	case THOUGHT_INSIDE:
		at = memmem(b->p, b->n, close_tag, strlen(close_tag));
		n = at ? (size_t)(at - b->p) : b->n - tail(b);
		tag = at ? strlen(close_tag) : 0;
		for (skip = n; at && skip && spaces(b->p + skip - 1, 1); skip--)
			;
		if (skip)
			t->thinking(t->arg, b->p, at ? skip : n);
		buf_drop(b, n + tag);
		if (at)
			t->state = THOUGHT_AFTER;
		return at;
	case THOUGHT_AFTER:
		buf_drop(b, skip);
		if (b->n)
			t->state = THOUGHT_ANSWER;
		return b->n;
	case THOUGHT_ANSWER:
		if (b->n)
			t->answer(t->arg, b->p, b->n);
		buf_reset(b);
		return false;
	}
	return false;
}

void thought_put(struct thought *t, const char *p, size_t n)
{
	buf_put(&t->held, p, n);
	while (t->held.n && move(t))
		;
}

void thought_flush(struct thought *t)
{
	struct buf *b = &t->held;

	if (b->n && t->state == THOUGHT_INSIDE)
		t->thinking(t->arg, b->p, b->n);
	else if (b->n && t->state != THOUGHT_AFTER)
		t->answer(t->arg, b->p, b->n);
	buf_reset(b);
}
