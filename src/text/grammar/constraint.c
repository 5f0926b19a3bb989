/* constraint.c - see constraint.h. */
#include "text/grammar/constraint.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static const char think_open[] = "<think>", think_close[] = "</think>";

enum phase { THOUGHT, START, CONTENT, CALL, AFTER };

/* What a token changed, to be undone. */
struct change {
	unsigned char phase, seen;
	bool may_think, trying;
	unsigned char marks;
	short content, call; /* steps of the matchers */
};

struct constraint {
	struct mask_source source;
	struct constraint_rules r;
	int32_t id_think, id_open, id_close, id_break; /* -1: no token */
	struct matcher *content, *call;                /* NULL: free */

	enum phase phase;
	int seen; /* bytes of the tag looked for that the text ends with */
	bool may_think;
	bool trying; /* what was said may be the beginning of a call without tags */
	int marks;   /* that it has */
	struct change *past;
	int n_past, cap_past;
	uint32_t *mask; /* where the matcher's own does not do */
	size_t n_word;
};

static const char *plain_bytes(void *ctx, int32_t id, size_t *n)
{
	const struct tokenizer *t = ctx;

	return tokenizer_is_added(t, id) ? NULL : tokenizer_token_bytes(t, id, n);
}

struct vocab *constraint_vocab(const struct tokenizer *t)
{
	return vocab_new(tokenizer_size(t), plain_bytes, (void *)(uintptr_t)t);
}

/* ---- accepting ---- */

/* How much of tag the text ends with, given how much it did before byte c. */
static int follow(const char *tag, int seen, char c)
{
	size_t n = (size_t)seen + 1;
	char text[64];

	/* The longest end of what was seen and c that begins the tag. */
	memcpy(text, tag, (size_t)seen);
	text[seen] = c;
	for (size_t k = n; k; k--)
		if (!memcmp(text + n - k, tag, k))
			return (int)k;
	return 0;
}

/* Reads up to the end of tag; returns the bytes taken, *found when it came. */
static size_t look_for(struct constraint *k, const char *tag, const char *p, size_t n, bool *found)
{
	*found = false;
	for (size_t i = 0; i < n; i++) {
		k->seen = follow(tag, k->seen, p[i]);
		if (!tag[k->seen]) {
			k->seen = 0;
			*found = true;
			return i + 1;
		}
	}
	return n;
}

static bool is(const char *p, size_t n, const char *text)
{
	return text && n == strlen(text) && !memcmp(p, text, n);
}

static bool blank(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != '\n' && p[i] != ' ')
			return false;
	return true;
}

static void begin_call(struct constraint *k, struct change *c)
{
	k->phase = k->call ? CALL : AFTER;
	k->seen = 0;
	if (k->call) {
		matcher_restart(k->call, 1, true);
		c->call++;
	}
}

/* Where content may begin, calls without tags may. */
static void begin_alone(struct constraint *k, int *steps)
{
	k->trying = false;
	if (!k->r.call_alone || !k->call || (k->content && !k->r.must_call))
		return;
	matcher_restart(k->call, MATCHER_BREAKS_MAX, false);
	++*steps;
	k->marks = 0;
	if (k->r.must_call)
		k->phase = CALL;
	else
		k->trying = true;
}

/* The text so far and p, as a call without tags. */
static void try_call(struct constraint *k, const char *p, size_t n, struct change *c)
{
	/* A tag of Llama's may stand before it. */
	if (k->phase == START && is(p, n, "<|python_tag|>"))
		return;
	if (!matcher_put(k->call, p, n)) {
		k->trying = false;
		return;
	}
	c->call++;
	for (size_t i = 0; i < n; i++)
		k->marks += p[i] == k->r.mark;
	if (k->marks < k->r.n_mark)
		return;
	k->trying = false;
	k->phase = CALL;
}

/* Content: returns the bytes taken. */
static size_t take_content(struct constraint *k, const char *p, size_t n, struct change *c)
{
	bool found;
	size_t used;

	if (k->phase == START && k->may_think && is(p, n, think_open)) {
		k->phase = THOUGHT;
		k->may_think = false;
		return n;
	}
	if (k->trying) {
		try_call(k, p, n, c);
		if (k->phase == CALL)
			return n;
	}
	if (k->content && k->phase != AFTER) {
		if (k->phase == START && is(p, n, k->r.call_open)) {
			begin_call(k, c);
			return n;
		}
		if (matcher_put(k->content, p, n)) {
			c->content++;
			if (k->phase == START && !blank(p, n))
				k->phase = CONTENT;
			return n;
		}
		/* Not what the mask allowed: the answer was made to say it. */
		k->phase = AFTER;
		return 0;
	}
	if (k->phase == START && !blank(p, n))
		k->phase = CONTENT;
	if (!k->r.call_open)
		return n;
	used = look_for(k, k->r.call_open, p, n, &found);
	if (found)
		begin_call(k, c);
	return used;
}

static void accept(struct mask_source *m, int32_t token)
{
	struct constraint *k = (struct constraint *)m;
	struct change c = {
		(unsigned char)k->phase, (unsigned char)k->seen, k->may_think, k->trying, (unsigned char)k->marks, 0, 0
	};
	size_t n = 0, used = 0;
	const char *p = tokenizer_token_bytes(k->r.tokenizer, token, &n);
	bool found;
	int steps = 0;

	for (; p && n; p += used, n -= used) {
		used = n;
		switch (k->phase) {
		case THOUGHT:
			used = look_for(k, think_close, p, n, &found);
			if (found) {
				k->phase = START;
				k->may_think = false;
				if (k->content) {
					matcher_restart(k->content, MATCHER_BREAKS_MAX, false);
					c.content++;
				}
				begin_alone(k, &steps);
				c.call = (short)(c.call + steps);
			}
			break;
		case START:
		case CONTENT:
		case AFTER: used = take_content(k, p, n, &c); break;
		case CALL:
			if (k->r.call_alone && k->may_think && is(p, n, think_open)) {
				/* It must call, and has not begun to. */
				k->phase = THOUGHT;
				k->may_think = false;
			} else if (matcher_complete(k->call) && is(p, n, k->r.call_close)) {
				k->phase = AFTER;
			} else if (matcher_put(k->call, p, n)) {
				c.call++;
				k->may_think = false;
			} else {
				k->phase = AFTER;
				used = 0;
			}
			break;
		}
	}
	if (k->n_past == k->cap_past) {
		k->cap_past = k->cap_past ? 2 * k->cap_past : 64;
		k->past = xrealloc(k->past, size_mul((size_t)k->cap_past, sizeof *k->past));
	}
	k->past[k->n_past++] = c;
}

static void rollback(struct mask_source *m, int n)
{
	struct constraint *k = (struct constraint *)m;

	assert(n >= 0 && n <= k->n_past);
	for (; n; n--) {
		const struct change *c = &k->past[--k->n_past];

		k->phase = (enum phase)c->phase;
		k->seen = c->seen;
		k->may_think = c->may_think;
		k->trying = c->trying;
		k->marks = c->marks;
		if (c->content)
			matcher_back(k->content, c->content);
		if (c->call)
			matcher_back(k->call, c->call);
	}
}

/* ---- masks ---- */

static void allow(struct constraint *k, int32_t id)
{
	if (id >= 0 && id < vocab_size(k->r.vocab))
		k->mask[id / 32] |= 1u << id % 32;
}

static void allow_end(struct constraint *k)
{
	for (int i = 0; i < k->r.n_end; i++)
		allow(k, k->r.end[i]);
}

static const uint32_t *mask(struct mask_source *m)
{
	struct constraint *k = (struct constraint *)m;

	switch (k->phase) {
	case THOUGHT:
		if (!k->content)
			return NULL;
		/* Free, but the answer cannot end before its content. */
		memset(k->mask, 0xFF, k->n_word * sizeof *k->mask);
		for (int i = 0; i < k->r.n_end; i++)
			if (k->r.end[i] >= 0 && k->r.end[i] < vocab_size(k->r.vocab))
				k->mask[k->r.end[i] / 32] &= ~(1u << k->r.end[i] % 32);
		return k->mask;
	case START:
	case CONTENT:
		if (!k->content)
			return NULL;
		if (k->phase == CONTENT && !matcher_complete(k->content))
			return matcher_mask(k->content, k->r.vocab);
		memcpy(k->mask, matcher_mask(k->content, k->r.vocab), k->n_word * sizeof *k->mask);
		if (matcher_complete(k->content))
			allow_end(k);
		if (k->phase == START && k->may_think)
			allow(k, k->id_think);
		if (k->phase == START)
			allow(k, k->id_open);
		return k->mask;
	case CALL:
		if (!matcher_complete(k->call) && !(k->r.call_alone && k->may_think))
			return matcher_mask(k->call, k->r.vocab);
		memcpy(k->mask, matcher_mask(k->call, k->r.vocab), k->n_word * sizeof *k->mask);
		if (!matcher_complete(k->call))
			allow(k, k->id_think);
		else if (k->r.call_alone)
			allow_end(k);
		else
			allow(k, k->id_close);
		return k->mask;
	case AFTER:
		if (!k->content)
			return NULL;
		/* Another call, or the end: content was held to be something else. */
		memset(k->mask, 0, k->n_word * sizeof *k->mask);
		allow(k, k->id_open);
		allow(k, k->id_break);
		allow_end(k);
		return k->mask;
	}
	return NULL;
}

static bool whole(const struct mask_source *m)
{
	const struct constraint *k = (const struct constraint *)m;

	if (k->phase == CALL && k->r.call_alone)
		return matcher_whole(k->call);
	return k->phase == CONTENT && k->content && matcher_whole(k->content);
}

/* ---- life ---- */

static void free_it(struct mask_source *m)
{
	struct constraint *k = (struct constraint *)m;

	matcher_free(k->content);
	matcher_free(k->call);
	grammar_unref(k->r.content);
	grammar_unref(k->r.call);
	free((void *)(uintptr_t)k->r.end);
	free(k->past);
	free(k->mask);
	free(k);
}

static int32_t find(const struct tokenizer *t, const char *text)
{
	return text ? tokenizer_find(t, text, strlen(text)) : -1;
}

struct mask_source *constraint_new(const struct constraint_rules *r)
{
	static const struct mask_source_ops ops = { mask, accept, rollback, whole, free_it };
	struct constraint *k = xcalloc(1, sizeof *k);
	int32_t *end = xmalloc(size_mul((size_t)r->n_end + 1, sizeof *end));
	int steps = 0;

	k->source.ops = &ops;
	k->r = *r;
	if (r->n_end)
		memcpy(end, r->end, (size_t)r->n_end * sizeof *end);
	k->r.end = end;
	k->id_think = find(r->tokenizer, think_open);
	k->id_open = find(r->tokenizer, r->call_open);
	k->id_close = find(r->tokenizer, r->call_close);
	k->id_break = find(r->tokenizer, "\n");
	/* Without a token for its end a call could not be left. */
	if (r->call && (r->call_alone || (k->id_open >= 0 && k->id_close >= 0))) {
		grammar_ref(r->call);
		k->call = matcher_new(r->call);
	} else {
		k->r.call = NULL;
	}
	if (r->content) {
		grammar_ref(r->content);
		k->content = matcher_new(r->content);
	}
	k->phase = r->thinking ? THOUGHT : START;
	k->may_think = r->may_think && k->id_think >= 0;
	if (!r->thinking)
		begin_alone(k, &steps);
	k->n_word = ((size_t)vocab_size(r->vocab) + 31) / 32;
	k->mask = xcalloc(k->n_word + 1, sizeof *k->mask);
	return &k->source;
}
