/* matcher.c - a walk through a grammar; see grammar.h and tables.h.
 *
 * A walk is a few threads, each a frame: a place in a shape, and the frame of the
 * shape around it, which is where it will continue.  Several threads are needed
 * only where a schema leaves open which of several forms a value has. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar/lexeme.h"
#include "text/grammar/tables.h"

enum {
	/* White space is limited to what people and models write, so that a model cannot
	 * fill an answer with it: nothing, one blank, or a line break and indentation.
	 * Blanks are counted: 1 after a lone one, 2 + k after a line break and k more, up to INDENT_MAX. */
	HISTORY_FIRST = 64,
	FRAMES_MANY = 20000, /* half a megabyte */
};

#define FULL_SUB 0xFFFFFF

/* ---- frames ---- */

static uint32_t hash(const struct frame *f)
{
	uint64_t h = (uint64_t)(uint32_t)f->shape * 0x9E3779B97F4A7C15u;

	h = (h ^ f->at) * 0x9E3779B97F4A7C15u;
	h = (h ^ ((uint64_t)f->a << 32 | f->b)) * 0x9E3779B97F4A7C15u;
	h = (h ^ (uint64_t)(uint32_t)f->parent) * 0x9E3779B97F4A7C15u;
	return (uint32_t)(h >> 32);
}

static void rehash(struct matcher *m)
{
	memset(m->bucket, 0xFF, (size_t)m->cap_frame * sizeof *m->bucket);
	for (int i = 0; i < m->n_frame; i++) {
		uint32_t k = hash(&m->frame[i]) & (uint32_t)(m->cap_frame - 1);

		m->frame[i].chain = m->bucket[k];
		m->bucket[k] = i;
	}
}

int32_t frame_make(struct matcher *m, struct frame f)
{
	uint32_t h = hash(&f);

	for (int32_t i = m->bucket[h & (uint32_t)(m->cap_frame - 1)]; i >= 0; i = m->frame[i].chain) {
		const struct frame *x = &m->frame[i];

		if (x->shape == f.shape && x->at == f.at && x->a == f.a && x->b == f.b && x->parent == f.parent)
			return i;
	}
	if (m->n_frame == m->cap_frame) {
		m->cap_frame *= 2;
		m->frame = xrealloc(m->frame, size_mul((size_t)m->cap_frame, sizeof *m->frame));
		m->bucket = xrealloc(m->bucket, size_mul((size_t)m->cap_frame, sizeof *m->bucket));
		rehash(m);
	}
	h &= (uint32_t)(m->cap_frame - 1);
	f.chain = m->bucket[h];
	m->frame[m->n_frame] = f;
	m->bucket[h] = m->n_frame;
	return m->n_frame++;
}

void frame_drop(struct matcher *m, int n)
{
	/* The newest is the first of its chain. */
	while (m->n_frame > n) {
		const struct frame *f = &m->frame[--m->n_frame];

		m->bucket[hash(f) & (uint32_t)(m->cap_frame - 1)] = f->chain;
	}
}

static void put(struct threads *t, int32_t id)
{
	for (int i = 0; i < t->n; i++)
		if (t->id[i] == id)
			return;
	if (t->n < THREADS_MAX)
		t->id[t->n++] = id;
}

/* ---- places of rules ---- */

/* Opens the threads that may go on at a place; parent: the frame that its rule leads to when it ends. */
static void open_steps(struct matcher *m, int place, int32_t parent, struct threads *out)
{
	const struct net *net = m->g->net;

	for (int i = net->at[place]; i < net->at[place + 1] && out->offers < OFFERS_MAX; i++) {
		const struct net_step *s = &net->step[i];
		struct frame f = { net->shape, (uint32_t)s->to, 0, 0, parent, 0 };
		int32_t after = net->tail[s->to] ? parent : frame_make(m, f);

		if (s->rule >= 0) {
			open_steps(m, s->rule, after, out);
			continue;
		}
		f = (struct frame){ s->shape >= 0 ? s->shape : net->shape, 0, 0, 0, after, 0 };
		if (s->shape < 0) {
			f.a = (uint32_t)s->node;
			f.b = 1;
		}
		put(out, frame_make(m, f));
		out->offers++;
		m->work++;
	}
}

/* Ends the content of frame id, and that of the frames around it where they may end, outermost last. */
static void leave(struct matcher *m, int32_t id, struct threads *out)
{
	while (out->offers < OFFERS_MAX) {
		struct frame f = m->frame[id];

		if (f.shape < 0 || m->g->shape[f.shape].kind != SHAPE_NET) {
			put(out, id);
			return;
		}
		open_steps(m, (int)f.at, f.parent, out);
		if (!m->g->net->ends[f.at])
			return;
		id = f.parent;
	}
}

/* Before anything was taken; `before` line breaks may come. */
static void begin(struct matcher *m, uint32_t before, uint32_t after, struct threads *out)
{
	if (!m->g->net || before)
		put(out, frame_make(m, (struct frame){ SHAPE_BEGIN, MATCHER_BREAKS_MAX - before, after, 0, -1, 0 }));
	if (m->g->net)
		leave(m,
		      frame_make(m,
		                 (struct frame){ m->g->net->shape, 0, 0, 0,
		                                 frame_make(m, (struct frame){ SHAPE_END, after, 0, 0, -1, 0 }), 0 }),
		      out);
}

/* ---- steps ---- */

static int blank(int w, uint8_t c)
{
	if (!w)
		return c == ' ' ? 1 : c == '\n' ? 2 : -1;
	return w >= 2 && w < 2 + INDENT_MAX && (c == ' ' || c == '\t') ? w + 1 : -1;
}

static uint32_t place(enum phase p, int sub)
{
	return (uint32_t)p << 24 | (uint32_t)sub;
}

static uint32_t up_to(uint32_t n, uint32_t cap)
{
	return n < cap ? n : cap;
}

/* A word of shape sh goes from state `from` to `to` by c.  a: its characters. */
static void word_step(struct matcher *m, int32_t sh, int from, uint32_t a, int32_t parent, uint8_t c,
                      struct threads *out)
{
	const struct shape *s = &m->g->shape[sh];
	int to = s->d->n ? dfa_step(s->d, from, c) : -1;

	if (to < 0)
		return;
	if (s->counted && from == LEXEME_BODY && (c == '"' ? a < s->min : a == s->max))
		return;
	if (s->counted && to == LEXEME_BODY && from)
		a = up_to(a + 1, s->max == NO_LIMIT ? s->min : s->max);
	if (s->d->label[to] >= 0)
		leave(m, parent, out);
	if (!s->d->last[to])
		put(out, frame_make(m, (struct frame){ sh, (uint32_t)to, a, 0, parent, 0 }));
}

/* A head was spelled, and what follows is of shape s: parameters, or an object whose first
 * property was in the head. */
static void behind_head(const struct shape *s, struct frame *f)
{
	f->at = s->tagged ? place(AT_FIRST, 0) : place(AT_AFTER, 0);
	if (s->tagged)
		return;
	f->a = 1;
	f->b = up_to(1, s->max == NO_LIMIT ? s->min : s->max);
}

/* The head of a call, up to its parameters or behind its name. */
static void calls_step(struct matcher *m, struct frame f, uint8_t c, struct threads *out)
{
	const struct shape *s = &m->g->shape[f.shape];
	int to = dfa_step(s->d, (int)f.at, c);

	if (to < 0)
		return;
	f.at = (uint32_t)to;
	/* One tool's name may begin another's. */
	if (s->d->label[to] >= 0 && !s->d->last[to])
		put(out, frame_make(m, f));
	if (s->d->label[to] >= 0 && s->places) {
		f = (struct frame){ m->g->net->shape, (uint32_t)s->node[s->d->label[to]], 0, 0, f.parent, 0 };
		leave(m, frame_make(m, f), out);
		return;
	}
	if (s->d->label[to] >= 0) {
		f.shape = s->node[s->d->label[to]];
		behind_head(&m->g->shape[f.shape], &f);
	}
	put(out, frame_make(m, f));
}

/* The first byte of a value. */
static void enter(struct matcher *m, int32_t node, struct frame around, uint8_t c, struct threads *out)
{
	const struct grammar *g = m->g;
	int32_t parent = -1;

	for (int32_t i = g->first[node]; i < g->first[node + 1]; i++) {
		const struct shape *s = &g->shape[i];

		if (s->kind == SHAPE_WORD || s->kind == SHAPE_CALLS ? !s->d->n || dfa_step(s->d, 0, c) < 0 :
		                                                      c != (s->kind == SHAPE_ARRAY ? '[' : '{'))
			continue;
		if (parent < 0)
			parent = frame_make(m, around);
		if (s->kind == SHAPE_WORD)
			word_step(m, i, 0, 0, parent, c, out);
		else if (s->kind == SHAPE_CALLS)
			calls_step(m, (struct frame){ i, 0, 0, 0, parent, 0 }, c, out);
		else
			put(out, frame_make(m, (struct frame){ i, place(AT_FIRST, 0), 0, 0, parent, 0 }));
	}
}

static void array_step(struct matcher *m, struct frame f, uint8_t c, struct threads *out)
{
	const struct shape *s = &m->g->shape[f.shape];
	enum phase at = (enum phase)(f.at >> 24);
	int w = (int)(f.at & FULL_SUB), next = blank(w, c);
	bool may_close = f.a >= s->min && at != AT_NEXT;

	if (next >= 0 && (at != AT_AFTER || may_close)) {
		f.at = place(at, next);
		put(out, frame_make(m, f));
		return;
	}
	if (c == ']' && may_close) {
		leave(m, f.parent, out);
		return;
	}
	if (at == AT_AFTER) {
		if (c == ',' && !w && f.a < s->max) {
			f.at = place(AT_NEXT, 0);
			put(out, frame_make(m, f));
		}
		return;
	}
	if (f.a < s->max) {
		uint32_t cap = s->max != NO_LIMIT           ? s->max :
		               s->min > (uint32_t)s->n_node ? s->min :
		                                              (uint32_t)s->n_node;
		int32_t node = f.a < (uint32_t)s->n_node ? s->node[f.a] : s->rest;

		f.at = place(AT_AFTER, 0);
		f.a = up_to(f.a + 1, cap);
		enter(m, node, f, c, out);
	}
}

/* Which members may come after `next` properties are passed and `n` members were
 * written: properties lo to hi, and perhaps others. */
struct walk_memory {
	int64_t lo, hi;
	bool others;
};

static struct walk_memory room_of(const struct shape *s, uint32_t next, uint32_t n)
{
	int64_t need = s->next_need[next], left;
	struct walk_memory r = { next, need < s->n_node ? need : s->n_node - 1, false };

	/* Passing over a property must leave enough of them to come to min. */
	left = (int64_t)s->n_node - 1 + (s->n_other > 0) + n + 1 - s->min;
	if (left < r.hi)
		r.hi = left;
	if (s->max != NO_LIMIT && (int64_t)n + 1 + s->n_need[next] > s->max)
		r.lo = need; /* only what is required has a place; none: past hi */
	r.others = s->n_other && need == s->n_node && n + 1 >= s->min && (s->max == NO_LIMIT || n < s->max);
	if (s->tagged) /* the end is spelled like a key */
		r.others = need == s->n_node && n >= s->min;
	return r;
}

bool key_may(const struct shape *s, int state, uint32_t a, uint32_t b)
{
	struct walk_memory r = room_of(s, a, b);
	int lo = s->label_at[state], hi = s->label_at[state + 1];

	if (r.others && s->other_at[state])
		return true;
	while (lo < hi) {
		int mid = (lo + hi) / 2;

		if (s->label[mid] < r.lo)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < s->label_at[state + 1] && s->label[lo] <= r.hi;
}

bool key_may_other(const struct shape *s, uint32_t a, uint32_t b)
{
	return room_of(s, a, b).others;
}

static void key_step(struct matcher *m, struct frame f, int from, uint8_t c, struct threads *out)
{
	const struct shape *s = &m->g->shape[f.shape];
	int to = s->d->n ? dfa_step(s->d, from, c) : -1;

	if (to < 0 || !key_may(s, to, f.a, f.b))
		return;
	if (s->d->label[to] >= 0) {
		word_end(m, &f, to, out);
		return;
	}
	f.at = place(AT_KEY, to);
	put(out, frame_make(m, f));
}

/* Behind that much of what follows a value. */
static uint32_t after_value(const struct shape *s, uint32_t sub)
{
	return s->value_end[sub] ? place(AT_AFTER, (int)sub) : place(AT_NEXT, 0);
}

/* In a tagged call. */
static void tagged_step(struct matcher *m, struct frame f, uint8_t c, struct threads *out)
{
	const struct shape *s = &m->g->shape[f.shape];
	enum phase at = (enum phase)(f.at >> 24);
	int sub = (int)(f.at & FULL_SUB);

	if (at == AT_VALUE) {
		f.at = place(AT_AFTER, 0);
		enter(m, s->node[sub], f, c, out);
	} else if (at == AT_AFTER) {
		if (c != (uint8_t)s->value_end[sub])
			return;
		f.at = after_value(s, (uint32_t)sub + 1);
		put(out, frame_make(m, f));
	} else {
		key_step(m, f, at == AT_KEY ? sub : 0, c, out);
	}
}

static void object_step(struct matcher *m, struct frame f, uint8_t c, struct threads *out)
{
	const struct shape *s = &m->g->shape[f.shape];
	enum phase at = (enum phase)(f.at >> 24);
	int sub = (int)(f.at & FULL_SUB), next = blank(sub, c);
	bool may_close = s->next_need[f.a] == s->n_node && f.b >= s->min;
	struct walk_memory r;

	if (s->tagged) {
		tagged_step(m, f, c, out);
		return;
	}
	switch (at) {
	case AT_KEY: key_step(m, f, sub, c, out); return;
	case AT_COLON:
		if (c == ':') {
			f.at = place(AT_VALUE, sub);
			put(out, frame_make(m, f));
		}
		return;
	case AT_VALUE:
		if (c == ' ') {
			f.at = place(AT_BLANK_VALUE, sub);
			put(out, frame_make(m, f));
			return;
		}
		/* fall through */
	case AT_BLANK_VALUE:
		next = sub < s->n_node ? s->node[sub] : s->other[sub - s->n_node];
		f.at = place(AT_AFTER, 0);
		f.a = (uint32_t)(sub < s->n_node ? sub + 1 : s->n_node);
		f.b = up_to(f.b + 1, s->max == NO_LIMIT ? s->min : s->max);
		enter(m, next, f, c, out);
		return;
	case AT_FIRST:
	case AT_NEXT:
	case AT_AFTER:
	case N_PHASE: break;
	}
	if (next >= 0 && (at != AT_AFTER || may_close)) {
		f.at = place(at, next);
		put(out, frame_make(m, f));
	} else if (c == '}' && may_close && at != AT_NEXT) {
		leave(m, f.parent, out);
	} else if (at != AT_AFTER) {
		key_step(m, f, 0, c, out);
	} else if (c == ',' && !sub) {
		r = room_of(s, f.a, f.b);
		if (r.lo <= r.hi || r.others) {
			f.at = place(AT_NEXT, 0);
			put(out, frame_make(m, f));
		}
	}
}

void frame_step(struct matcher *m, int32_t id, uint8_t c, struct threads *out)
{
	struct frame f = m->frame[id];

	m->work++;
	if (f.shape == SHAPE_END) {
		if (f.at && c == '\n')
			put(out, FRAME_END);
		return;
	}
	if (f.shape == SHAPE_BEGIN) {
		if (c == '\n' && f.at < MATCHER_BREAKS_MAX) {
			begin(m, MATCHER_BREAKS_MAX - f.at - 1, f.a, out);
		} else if (!m->g->net) {
			enter(m, m->g->root, (struct frame){ SHAPE_END, f.a, 0, 0, -1, 0 }, c, out);
		}
		return;
	}
	switch (m->g->shape[f.shape].kind) {
	case SHAPE_WORD: word_step(m, f.shape, (int)f.at, f.a, f.parent, c, out); break;
	case SHAPE_ARRAY: array_step(m, f, c, out); break;
	case SHAPE_OBJECT: object_step(m, f, c, out); break;
	case SHAPE_CALLS: calls_step(m, f, c, out); break;
	case SHAPE_NET:
		if (f.b)
			enter(m, (int32_t)f.a, m->frame[f.parent], c, out);
		break;
	}
}

void threads_step(struct matcher *m, const struct threads *in, uint8_t c, struct threads *out)
{
	out->n = out->offers = 0;
	for (int i = 0; i < in->n; i++)
		frame_step(m, in->id[i], c, out);
}

const struct dfa *frame_word(const struct matcher *m, const struct frame *f, int *state)
{
	const struct shape *s;

	if (f->shape < 0)
		return NULL;
	s = &m->g->shape[f->shape];
	*state = (int)(f->at & FULL_SUB);
	if (s->kind == SHAPE_WORD || (s->kind == SHAPE_OBJECT && f->at >> 24 == AT_KEY))
		return s->d;
	return NULL;
}

void word_end(struct matcher *m, const struct frame *f, int state, struct threads *out)
{
	const struct shape *s = &m->g->shape[f->shape];
	int label = s->d->label[state];
	struct frame next = *f;

	if (s->kind == SHAPE_WORD) {
		leave(m, f->parent, out);
		return;
	}
	if (!s->tagged) {
		next.at = place(s->colon ? AT_VALUE : AT_COLON, label);
		put(out, frame_make(m, next));
		return;
	}
	if (label == s->n_node) {
		leave(m, f->parent, out);
		return;
	}
	next.a = s->any_key ? 0 : (uint32_t)label + 1;
	next.b = up_to(f->b + 1, s->max == NO_LIMIT ? s->min : s->max);
	if (s->bare[label] >= 0) {
		/* Already in the text: its mask is kept, and a walk from outside would be long. */
		next.at = after_value(s, s->bare_end);
		next.parent = frame_make(m, next);
		put(out, frame_make(m, (struct frame){ m->g->first[s->bare[label]], 0, 0, 0, next.parent, 0 }));
		next.parent = f->parent;
	}
	if (s->node[label] >= 0) {
		next.at = place(AT_VALUE, label);
		put(out, frame_make(m, next));
	}
}

/* ---- walks ---- */

/* Steps long ago are forgotten, and frames that no step left has. */
static void sort_out(struct matcher *m)
{
	int drop = m->n_past > 2 * UNDO_MAX ? m->n_past - UNDO_MAX : 0, from = m->past_at[drop], n = 0;
	int32_t *id = xcalloc((size_t)m->n_frame + 1, sizeof *id);

	if (drop) {
		memmove(m->past, m->past + from, (size_t)(m->past_at[m->n_past] - from) * sizeof *m->past);
		for (int i = drop; i <= m->n_past; i++)
			m->past_at[i - drop] = m->past_at[i] - from;
		m->n_past -= drop;
	}
	id[FRAME_END] = 1;
	for (int i = 0; i < m->past_at[m->n_past]; i++)
		id[m->past[i]] = 1;
	/* Frames around a frame were made before it. */
	for (int i = m->n_frame - 1; i >= 0; i--)
		if (id[i] && m->frame[i].parent >= 0)
			id[m->frame[i].parent] = 1;
	for (int i = 0; i < m->n_frame; i++) {
		if (!id[i])
			continue;
		m->frame[n] = m->frame[i];
		if (m->frame[n].parent >= 0)
			m->frame[n].parent = id[m->frame[n].parent];
		id[i] = n++;
	}
	m->n_frame = m->n_live = n;
	for (int i = 0; i < m->past_at[m->n_past]; i++)
		m->past[i] = id[m->past[i]];
	free(id);
	rehash(m);
	masks_forget(m->masks);
}

static void push_step(struct matcher *m, const struct threads *t)
{
	int at = m->past_at[m->n_past];

	if (m->n_past + 1 == m->cap_past) {
		m->cap_past *= 2;
		m->past_at = xrealloc(m->past_at, size_mul((size_t)m->cap_past + 1, sizeof *m->past_at));
	}
	if (at + t->n > m->cap_threads) {
		m->cap_threads = 2 * (at + t->n);
		m->past = xrealloc(m->past, size_mul((size_t)m->cap_threads, sizeof *m->past));
	}
	memcpy(m->past + at, t->id, (size_t)t->n * sizeof *m->past);
	m->past_at[++m->n_past] = at + t->n;
	if (m->n_frame > 2 * m->n_live + FRAMES_MANY || m->n_past > 4 * UNDO_MAX)
		sort_out(m);
}

static void now(const struct matcher *m, struct threads *t)
{
	int from = m->past_at[m->n_past - 1];

	t->n = m->past_at[m->n_past] - from;
	memcpy(t->id, m->past + from, (size_t)t->n * sizeof *t->id);
}

void matcher_restart(struct matcher *m, int before, bool after)
{
	struct threads t = { .n = 0 };

	begin(m, (uint32_t)before, after, &t);
	push_step(m, &t);
}

struct matcher *matcher_new(struct grammar *g)
{
	struct matcher *m = xcalloc(1, sizeof *m);

	grammar_ref(g);
	m->g = g;
	m->cap_frame = 64; /* a power of two: the hash is masked */
	m->frame = xmalloc((size_t)m->cap_frame * sizeof *m->frame);
	m->bucket = xmalloc((size_t)m->cap_frame * sizeof *m->bucket);
	rehash(m);
	m->cap_past = HISTORY_FIRST;
	m->past_at = xcalloc((size_t)m->cap_past + 1, sizeof *m->past_at);
	frame_make(m, (struct frame){ SHAPE_END, 0, 0, 0, -1, 0 });
	matcher_restart(m, 0, false);
	return m;
}

static void *copy(const void *p, int n, size_t size)
{
	void *q = xmalloc(size_mul((size_t)n + 1, size));

	memcpy(q, p, (size_t)n * size);
	return q;
}

struct matcher *matcher_copy(const struct matcher *m)
{
	struct matcher *c = copy(m, 1, sizeof *m);

	grammar_ref(c->g);
	c->frame = copy(m->frame, m->cap_frame, sizeof *m->frame);
	c->bucket = copy(m->bucket, m->cap_frame, sizeof *m->bucket);
	c->past = copy(m->past, m->cap_threads, sizeof *m->past);
	c->past_at = copy(m->past_at, m->cap_past, sizeof *m->past_at);
	c->masks = NULL;
	return c;
}

void matcher_free(struct matcher *m)
{
	if (!m)
		return;
	masks_free(m->masks);
	grammar_unref(m->g);
	free(m->frame);
	free(m->bucket);
	free(m->past);
	free(m->past_at);
	free(m);
}

/* Takes p[0..n).  True: some of t came to less than all it could, there being no room. */
static bool walk(struct matcher *m, struct threads *t, const char *p, size_t n)
{
	struct threads other;
	bool full = false;

	for (size_t i = 0; i < n && t->n; i++) {
		threads_step(m, t, (uint8_t)p[i], &other);
		*t = other;
		full |= t->n == THREADS_MAX || t->offers == OFFERS_MAX;
	}
	m->full |= full;
	return full;
}

/* Each word by itself, and what is none together: as masks are made. */
static void walk_apart(struct matcher *m, struct threads *t, const char *p, size_t n)
{
	struct threads rest = { .n = 0 }, all = { .n = 0 };

	for (int i = 0; i < t->n; i++) {
		struct frame f = m->frame[t->id[i]];
		const struct dfa *d;
		int state;

		if (!(d = frame_word(m, &f, &state)) || m->g->shape[f.shape].kind != SHAPE_WORD ||
		    m->g->shape[f.shape].counted) {
			rest.id[rest.n++] = t->id[i];
			continue;
		}
		for (size_t k = 0; k < n && state >= 0; k++) {
			struct threads after = { .n = 0 };

			state = dfa_step(d, state, (uint8_t)p[k]);
			if (state < 0 || d->label[state] < 0)
				continue;
			word_end(m, &f, state, &after);
			walk(m, &after, p + k + 1, n - k - 1);
			for (int j = 0; j < after.n; j++)
				put(&all, after.id[j]);
		}
		if (state >= 0 && !d->last[state])
			put(&all, frame_make(m, (struct frame){ f.shape, (uint32_t)state, f.a, 0, f.parent, 0 }));
	}
	walk(m, &rest, p, n);
	for (int j = 0; j < rest.n; j++)
		put(&all, rest.id[j]);
	*t = all;
}

bool matcher_put(struct matcher *m, const char *p, size_t n)
{
	struct threads t;
	int frames = m->n_frame;

	now(m, &t);
	/* Where there was no room for all, those that fit might not be those that go on. */
	if (walk(m, &t, p, n) && !t.n) {
		frame_drop(m, frames);
		now(m, &t);
		walk_apart(m, &t, p, n);
	}
	if (!t.n) {
		frame_drop(m, frames);
		return false;
	}
	push_step(m, &t);
	return true;
}

void matcher_back(struct matcher *m, int n)
{
	assert(n >= 0 && n < m->n_past);
	m->n_past -= n;
}

static bool may_end(const struct matcher *m, const struct threads *t)
{
	for (int i = 0; i < t->n; i++)
		if (m->frame[t->id[i]].shape == SHAPE_END)
			return true;
	return false;
}

bool matcher_complete(const struct matcher *m)
{
	struct threads t;

	now(m, &t);
	return may_end(m, &t);
}

bool matcher_whole(const struct matcher *m)
{
	struct threads t;

	now(m, &t);
	return t.n == 1 && t.id[0] == FRAME_END;
}

/* ---- what must come ---- */

/* Bytes 64 i + b: bit b of word i. */
struct byte_set {
	uint64_t word[4];
};

static void byte_add(struct byte_set *s, int c)
{
	s->word[c / 64] |= (uint64_t)1 << c % 64;
}

static void bytes_add(struct byte_set *s, const char *text)
{
	for (; *text; text++)
		byte_add(s, (uint8_t)*text);
}

static void add_ways(const struct dfa *d, int state, struct byte_set *s)
{
	for (int c = 0; d->n && c < 256; c++)
		if (dfa_step(d, state, (uint8_t)c) >= 0)
			byte_add(s, c);
}

/* The bytes that a value may begin with. */
static void add_value(const struct grammar *g, int32_t node, struct byte_set *set)
{
	for (int32_t i = g->first[node]; i < g->first[node + 1]; i++) {
		const struct shape *s = &g->shape[i];

		if (s->kind == SHAPE_WORD || s->kind == SHAPE_CALLS)
			add_ways(s->d, 0, set);
		else
			byte_add(set, s->kind == SHAPE_ARRAY ? '[' : '{');
	}
}

static void add_object(const struct matcher *m, const struct frame *f, struct byte_set *set)
{
	const struct shape *s = &m->g->shape[f->shape];
	enum phase at = (enum phase)(f->at >> 24);
	int sub = (int)(f->at & FULL_SUB);

	if (at == AT_KEY) {
		add_ways(s->d, sub, set);
	} else if (s->tagged && at == AT_AFTER) {
		byte_add(set, (uint8_t)s->value_end[sub]);
	} else if (at == AT_VALUE || at == AT_BLANK_VALUE) {
		bytes_add(set, s->tagged ? "" : " ");
		add_value(m->g, sub < s->n_node ? s->node[sub] : s->other[sub - s->n_node], set);
	} else if (at == AT_COLON) {
		byte_add(set, ':');
	} else {
		bytes_add(set, s->tagged ? "" : " \t\n,}");
		add_ways(s->d, 0, set);
	}
}

/* At least the bytes that frame_step would make anything of. */
static void add_bytes(const struct matcher *m, int32_t id, struct byte_set *set)
{
	const struct frame *f = &m->frame[id];
	const struct shape *s;

	if (f->shape < 0) {
		byte_add(set, '\n');
		if (f->shape == SHAPE_BEGIN && !m->g->net)
			add_value(m->g, m->g->root, set);
		return;
	}
	s = &m->g->shape[f->shape];
	switch (s->kind) {
	case SHAPE_WORD:
	case SHAPE_CALLS: add_ways(s->d, (int)f->at, set); break;
	case SHAPE_ARRAY:
		bytes_add(set, " \t\n,]");
		if (f->a < s->max && (f->a < (uint32_t)s->n_node || s->rest >= 0))
			add_value(m->g, f->a < (uint32_t)s->n_node ? s->node[f->a] : s->rest, set);
		break;
	case SHAPE_OBJECT: add_object(m, f, set); break;
	case SHAPE_NET:
		if (f->b)
			add_value(m->g, (int32_t)f->a, set);
		break;
	}
}

/* Those of the set from lo to hi that may come; more than MATCHER_CHOICES_MAX are not told apart. */
static int bytes_among(struct matcher *m, const struct threads *t, const struct byte_set *set, int lo, int hi,
                       uint8_t *may, int n)
{
	for (int c = lo; c <= hi && n <= MATCHER_CHOICES_MAX; c++) {
		int frames = m->n_frame;
		struct threads to;

		if (!(set->word[c / 64] >> c % 64 & 1))
			continue;
		threads_step(m, t, (uint8_t)c, &to);
		frame_drop(m, frames);
		if (!to.n)
			continue;
		if (n < MATCHER_CHOICES_MAX)
			may[n] = (uint8_t)c;
		n++;
	}
	return n;
}

/* Printing ones first: where text is free they are soon too many. Marks are not text. */
static int bytes_of(struct matcher *m, const struct threads *t, uint8_t *may)
{
	struct byte_set set = { 0 };
	int n;

	for (int i = 0; i < t->n; i++)
		add_bytes(m, t->id[i], &set);
	n = bytes_among(m, t, &set, ' ', '~', may, 0);
	n = bytes_among(m, t, &set, 0, ' ' - 1, may, n);
	n = bytes_among(m, t, &set, '~' + 1, 0xFF, may, n);
	for (int i = 0; i < n && n <= MATCHER_CHOICES_MAX; i++)
		if (may[i] >= MARK_FIRST)
			return 0;
	return n;
}

size_t matcher_ahead(struct matcher *m, char *out, size_t max, matcher_choice *choose, void *arg)
{
	struct threads t, to;
	int frames = m->n_frame;
	size_t n = 0;

	now(m, &t);
	while (n < max && !may_end(m, &t)) {
		uint8_t may[MATCHER_CHOICES_MAX];
		int many = bytes_of(m, &t, may), c;

		if (many < 1 || many > MATCHER_CHOICES_MAX)
			break;
		c = many == 1 ? may[0] : choose(arg, out, n, may, many);
		if (c < 0)
			break;
		threads_step(m, &t, (uint8_t)c, &to);
		t = to;
		out[n++] = (char)c;
	}
	frame_drop(m, frames);
	return n;
}
