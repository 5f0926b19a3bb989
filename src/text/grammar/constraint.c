/* constraint.c - see constraint.h. */
#include "text/grammar/constraint.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum phase { THOUGHT, START, CONTENT, CALL, AFTER };

/* Marks that are searched for in free text: a thought, and the ways in which calls open. */
enum { LOOK_THOUGHT, LOOK_CALL, LOOKS = LOOK_CALL + 1 + CONSTRAINT_OPENS };

/* Tokens that begin a part of an answer whose content is held. */
struct opener {
	struct tokens ids;
	enum { OPEN_THOUGHT, OPEN_CONTENT, OPEN_CALL } part;
	bool later; /* it is not the first part */
};
enum { OPENERS_MAX = 6, OPEN_TEXT_MAX = 64 };

/* The change that a token made, for undoing it. */
struct change {
	unsigned char phase, seen[LOOKS];
	unsigned char alive, n_opened;
	bool later;
	bool may_think, trying;
	unsigned char marks;
	short content, call; /* steps of the matchers */
};

struct constraint {
	struct mask_source source;
	struct constraint_rules r;
	int32_t id_think, id_open, id_close, id_break; /* -1: no token */
	int32_t id_mark[MARKS_MOST];
	struct opener opener[OPENERS_MAX]; /* none: one token opens a thought or a call, and content opens by itself */
	int n_opener;
	struct matcher *content, *call; /* NULL: free */

	enum phase phase;
	unsigned char seen[LOOKS]; /* bytes of each text looked for that the text ends with; [0] of a thought's end */
	unsigned alive;            /* openers that begin with what was said */
	int n_opened;              /* tokens of the openers that were read */
	bool later;                /* a part came before */
	bool may_think;
	bool trying; /* what was said may be the beginning of a call without tags */
	int marks;   /* that it has */
	struct change *past;
	int n_past, cap_past;
	uint32_t *mask; /* where the matcher's own does not do */
	size_t n_word;
};

static int32_t find_mark(const struct tokenizer *t, const char *text)
{
	return text ? tokenizer_find(t, text, strlen(text)) : -1;
}

/* Bytes that stand for the marks in grammars. */
static const char mark_bytes[] = "\xF8\xF9\xFA\xFB\xFC\xFD\xFE";
static_assert(sizeof mark_bytes == MARKS_MOST + 1, "a byte for each");

struct words {
	const struct tokenizer *t;
	int32_t mark[MARKS_MOST];
	int n;
};

static void find_marks(const struct tokenizer *t, const struct call_marks *marks, int32_t *id)
{
	for (int i = 0; i < MARKS_MOST; i++)
		id[i] = marks && i < marks->n ? find_mark(t, marks->text[i]) : -1;
}

static const char *word_bytes(void *ctx, int32_t id, size_t *n)
{
	const struct words *w = ctx;

	for (int i = 0; i < MARKS_MOST; i++) {
		if (w->mark[i] == id) {
			*n = 1;
			return &mark_bytes[i];
		}
	}
	const char *p = tokenizer_is_added(w->t, id) ? NULL : tokenizer_token_bytes(w->t, id, n);

	/* Vocabularies of bytes have tokens for the bytes by which grammars know the marks.  No UTF-8 has these
	 * bytes. */
	for (size_t i = 0; p && i < *n; i++)
		if ((unsigned char)p[i] >= MARK_FIRST)
			return NULL;
	return p;
}

struct vocab *constraint_vocab(const struct tokenizer *t, const struct call_marks *marks)
{
	struct words w = { .t = t };

	find_marks(t, marks, w.mark);
	return vocab_new(tokenizer_size(t), word_bytes, &w);
}

void constraint_marks(const struct tokenizer *t, const char *const *texts, struct call_marks *out)
{
	out->n = 0;
	for (; texts && *texts && out->n < MARKS_MOST; texts++) {
		int32_t id = find_mark(t, *texts);

		if (id >= 0 && tokenizer_is_added(t, id))
			out->text[out->n++] = *texts;
	}
}

/* ---- accepting ---- */

/* How much of tag the text ends with, given how much it did before byte c. */
static int follow(const char *tag, int seen, char c)
{
	size_t n = (size_t)seen + 1;
	char text[OPEN_TEXT_MAX];

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
		k->seen[0] = (unsigned char)follow(tag, k->seen[0], p[i]);
		if (!tag[k->seen[0]]) {
			k->seen[0] = 0;
			*found = true;
			return i + 1;
		}
	}
	return n;
}

/* The text that is searched for in free text; NULL: none. */
static const char *looked_for(const struct constraint *k, int what)
{
	if (what == LOOK_THOUGHT)
		return k->r.reopens || (k->phase == START && k->may_think) ? k->r.think_open : NULL;
	return what == LOOK_CALL ? k->r.call_open : k->r.also[what - LOOK_CALL - 1];
}

/* Reads up to the end of the first of them; returns the bytes taken, *found which it was, or -1. */
static size_t look_for_any(struct constraint *k, const char *p, size_t n, int *found)
{
	*found = -1;
	for (size_t i = 0; i < n; i++) {
		for (int what = 0; what < LOOKS; what++) {
			const char *text = looked_for(k, what);

			if (!text)
				continue;
			k->seen[what] = (unsigned char)follow(text, k->seen[what], p[i]);
			if (!text[k->seen[what]]) {
				memset(k->seen, 0, sizeof k->seen);
				*found = what;
				return i + 1;
			}
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
	k->later = true;
	memset(k->seen, 0, sizeof k->seen);
	if (k->call) {
		matcher_restart(k->call, k->r.call_close ? 1 : 0, k->r.call_close);
		c->call++;
	}
}

static void begin_call_by(struct constraint *k, int what, struct change *c)
{
	const char *opened = what > LOOK_CALL ? k->r.opened[what - LOOK_CALL - 1] : NULL;

	begin_call(k, c);
	if (!opened || !k->call)
		return;
	if (matcher_put(k->call, opened, strlen(opened)))
		c->call++;
	else
		k->phase = AFTER;
}

static void begin_thought(struct constraint *k)
{
	k->phase = THOUGHT;
	k->may_think = false;
	memset(k->seen, 0, sizeof k->seen);
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
	/* A tag of Llama's may come before it. */
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

/* Which openers may come next. */
static bool opener_may(const struct constraint *k, int i)
{
	const struct opener *o = &k->opener[i];

	if (k->n_opened ? !(k->alive >> i & 1) : o->later != k->later)
		return false;
	if (o->part == OPEN_THOUGHT)
		return k->n_opened || (k->later ? k->r.reopens : k->may_think);
	return o->part == OPEN_CONTENT || k->call;
}

/* The token goes on with an opener, and may end one.  False: with none. */
static bool take_opener(struct constraint *k, int32_t token, struct change *c)
{
	unsigned alive = 0;
	int whole = -1;

	for (int i = 0; i < k->n_opener; i++) {
		const struct opener *o = &k->opener[i];

		if (!opener_may(k, i) || (size_t)k->n_opened >= o->ids.n || o->ids.id[k->n_opened] != token)
			continue;
		alive |= 1u << i;
		if (o->ids.n == (size_t)k->n_opened + 1)
			whole = i;
	}
	if (!alive)
		return false;
	k->alive = alive;
	k->n_opened++;
	if (whole < 0)
		return true;
	k->n_opened = 0;
	if (k->opener[whole].part == OPEN_THOUGHT)
		begin_thought(k);
	else if (k->opener[whole].part == OPEN_CALL)
		begin_call(k, c);
	else
		k->phase = CONTENT;
	return true;
}

/* Content that is held: returns the bytes taken. */
static size_t take_held(struct constraint *k, int32_t token, const char *p, size_t n, struct change *c)
{
	if (k->phase == START && k->n_opener && take_opener(k, token, c))
		return n;
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

/* Content: returns the bytes taken. */
static size_t take_content(struct constraint *k, int32_t token, const char *p, size_t n, struct change *c)
{
	int found;
	size_t used;

	if (k->phase == START && k->may_think && is(p, n, k->r.think_open)) {
		begin_thought(k);
		return n;
	}
	if (k->trying) {
		try_call(k, p, n, c);
		if (k->phase == CALL)
			return n;
	}
	if (k->content && k->phase != AFTER)
		return take_held(k, token, p, n, c);
	used = look_for_any(k, p, n, &found);
	if (found == LOOK_THOUGHT)
		begin_thought(k);
	else if (found >= 0)
		begin_call_by(k, found, c);
	else if (k->phase == START && !blank(p, n) && !k->seen[LOOK_THOUGHT])
		k->phase = CONTENT;
	return used;
}

/* A token inside of a call: as its mark, where it is one. */
static const char *in_grammar(const struct constraint *k, int32_t token, const char *p, size_t *n)
{
	for (int i = 0; i < MARKS_MOST; i++) {
		if (k->id_mark[i] == token) {
			*n = 1;
			return &mark_bytes[i];
		}
	}
	return p;
}

static size_t take_call(struct constraint *k, int32_t token, const char *p, size_t n, struct change *c)
{
	size_t len = n;
	const char *text = in_grammar(k, token, p, &len);

	if (k->r.call_alone && k->may_think && is(p, n, k->r.think_open)) {
		/* A call is required and has not begun. */
		begin_thought(k);
		return n;
	}
	if (k->r.call_close && matcher_complete(k->call) && is(p, n, k->r.call_close)) {
		k->phase = AFTER;
		return n;
	}
	if (!matcher_put(k->call, text, len)) {
		k->phase = AFTER;
		return 0;
	}
	c->call++;
	k->may_think = false;
	if (!k->r.call_close && !k->r.call_alone && matcher_whole(k->call))
		k->phase = AFTER;
	return n;
}

static void accept(struct mask_source *m, int32_t token)
{
	struct constraint *k = (struct constraint *)m;
	struct change c = { .phase = (unsigned char)k->phase,
		            .alive = (unsigned char)k->alive,
		            .n_opened = (unsigned char)k->n_opened,
		            .later = k->later,
		            .may_think = k->may_think,
		            .trying = k->trying,
		            .marks = (unsigned char)k->marks };
	size_t n = 0, used = 0;
	const char *p = tokenizer_token_bytes(k->r.tokenizer, token, &n);
	bool found;
	int steps = 0;

	memcpy(c.seen, k->seen, sizeof c.seen);
	for (; p && n; p += used, n -= used) {
		used = n;
		switch (k->phase) {
		case THOUGHT:
			used = look_for(k, k->r.think_close, p, n, &found);
			if (found) {
				k->phase = START;
				k->may_think = false;
				k->later = true;
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
		case AFTER: used = take_content(k, token, p, n, &c); break;
		case CALL: used = take_call(k, token, p, n, &c); break;
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
		memcpy(k->seen, c->seen, sizeof k->seen);
		k->alive = c->alive;
		k->n_opened = c->n_opened;
		k->later = c->later;
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

/* Allows the parts that may open at the beginning of an answer whose content is held. */
static void allow_open(struct constraint *k)
{
	for (int i = 0; i < k->n_opener; i++)
		if (opener_may(k, i))
			allow(k, k->opener[i].ids.id[k->n_opened]);
	if (k->n_opener)
		return;
	if (k->may_think)
		allow(k, k->id_think);
	allow(k, k->id_open);
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
		if (k->phase == START && (k->n_opened || (k->r.content_open && k->n_opener)))
			memset(k->mask, 0, k->n_word * sizeof *k->mask);
		else
			memcpy(k->mask, matcher_mask(k->content, k->r.vocab), k->n_word * sizeof *k->mask);
		if (matcher_complete(k->content) && !k->n_opened)
			allow_end(k);
		if (k->phase == START)
			allow_open(k);
		return k->mask;
	case CALL:
		if (!matcher_complete(k->call) && !(k->r.call_alone && k->may_think))
			return matcher_mask(k->call, k->r.vocab);
		memcpy(k->mask, matcher_mask(k->call, k->r.vocab), k->n_word * sizeof *k->mask);
		if (!matcher_complete(k->call))
			allow(k, k->id_think);
		else if (k->r.call_alone || !k->r.call_close)
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

static bool mask_whole(const struct mask_source *m)
{
	const struct constraint *k = (const struct constraint *)m;

	if (k->phase == CALL && k->r.call_alone)
		return matcher_whole(k->call);
	return k->phase == CONTENT && k->content && matcher_whole(k->content);
}

/* Only inside of what a grammar holds: elsewhere a tag or the end may come as well. */
static size_t ahead(struct mask_source *m, char *out, size_t max, ahead_choice *choose, void *arg)
{
	struct constraint *k = (struct constraint *)m;

	static_assert((int)AHEAD_MAX == (int)MATCHER_CHOICES_MAX, "one bound");
	if (k->phase == CONTENT && k->content)
		return matcher_ahead(k->content, out, max, choose, arg);
	if (k->phase == CALL && !(k->r.call_alone && k->may_think))
		return matcher_ahead(k->call, out, max, choose, arg);
	return 0;
}

/* ---- life ---- */

static void free_it(struct mask_source *m)
{
	struct constraint *k = (struct constraint *)m;

	matcher_free(k->content);
	matcher_free(k->call);
	grammar_unref(k->r.content);
	grammar_unref(k->r.call);
	for (int i = 0; i < k->n_opener; i++)
		tokens_fini(&k->opener[i].ids);
	free((void *)(uintptr_t)k->r.end);
	free(k->past);
	free(k->mask);
	free(k);
}

static void add_opener(struct constraint *k, int part, const char *text, bool later)
{
	struct opener *o = &k->opener[k->n_opener];
	char whole[2 * OPEN_TEXT_MAX];

	if (!text)
		return;
	snprintf(whole, sizeof whole, "%s%s", later && k->r.turn ? k->r.turn : "", text);
	*o = (struct opener){ .part = part, .later = later };
	tokens_init(&o->ids);
	if (tokenizer_encode(k->r.tokenizer, whole, strlen(whole), TOKENIZE_SPECIAL, &o->ids, NULL) || !o->ids.n)
		tokens_fini(&o->ids);
	else
		k->n_opener++;
}

/* Where parts do not open by one token each. */
static void make_openers(struct constraint *k)
{
	if (!k->content || (!k->r.content_open && (k->id_think >= 0 || (!k->r.may_think && !k->r.reopens))))
		return;
	for (int later = 0; later < 2; later++) {
		add_opener(k, OPEN_THOUGHT, k->r.think_open, later);
		add_opener(k, OPEN_CONTENT, k->r.content_open, later);
		add_opener(k, OPEN_CALL, k->call ? k->r.call_open : NULL, later);
	}
}

static bool short_enough(const char *text)
{
	return !text || strlen(text) < OPEN_TEXT_MAX;
}

/* Texts looked for, as long as they may be. */
static void settle_texts(struct constraint_rules *r)
{
	if (!r->think_open || !short_enough(r->think_open) || !short_enough(r->think_close)) {
		r->think_open = "<think>";
		r->think_close = "</think>";
	}
	if (!short_enough(r->call_open))
		r->call_open = NULL;
	for (int i = 0; i < CONSTRAINT_OPENS; i++)
		if (!short_enough(r->also[i]))
			r->also[i] = NULL;
}

struct mask_source *constraint_new(const struct constraint_rules *r)
{
	static const struct mask_source_ops ops = { mask, accept, rollback, mask_whole, free_it, ahead };
	struct constraint *k = xcalloc(1, sizeof *k);
	int32_t *end = xmalloc(size_mul((size_t)r->n_end + 1, sizeof *end));
	int steps = 0;

	k->source.ops = &ops;
	k->r = *r;
	if (r->n_end)
		memcpy(end, r->end, (size_t)r->n_end * sizeof *end);
	k->r.end = end;
	settle_texts(&k->r);
	find_marks(r->tokenizer, r->marks, k->id_mark);
	k->r.marks = NULL; /* the caller's */
	k->id_think = find_mark(r->tokenizer, k->r.think_open);
	k->id_open = find_mark(r->tokenizer, r->call_open);
	k->id_close = find_mark(r->tokenizer, r->call_close);
	k->id_break = find_mark(r->tokenizer, "\n");
	/* Without a token for its end a call could not be left. */
	if (r->call && (r->call_alone || !r->call_close || (k->id_open >= 0 && k->id_close >= 0))) {
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
	make_openers(k);
	k->may_think = r->may_think;
	if (!r->thinking)
		begin_alone(k, &steps);
	k->n_word = ((size_t)vocab_size(r->vocab) + 31) / 32;
	k->mask = xcalloc(k->n_word + 1, sizeof *k->mask);
	return &k->source;
}
