/* vocab.c - which tokens may come next: the vocabulary as a trie, walked along a
 * grammar.
 *
 * What a token may be depends on all that is around a place, but most of it can be
 * said from the word at the place alone: a token either stays in the word, or
 * leaves its language, or ends it and goes on.  The first two are the same
 * wherever the word is, so they are kept per word and state (struct sheet);
 * the third, a few thousand tokens in a string and none in most other words, is
 * walked with the whole.  Any string's sheets are made with the vocabulary.
 *
 * The trie lies in one array, in the order of a walk: from a node that may not be
 * entered one jump leads past all that is below it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar/lexeme.h"
#include "text/grammar/tables.h"

enum {
	TOKEN_BYTES_MAX = 512,   /* longer ones never match */
	KEPT_MASKS = 16,         /* per walk: 32 kB each at 250,000 tokens */
	KEPT_SHEETS = 64,        /* per walk, each with a mask */
	MASK_WORK_MAX = 1000000, /* frames stepped for one mask, some 50 ms; past it longer tokens are left out */
	EXITS_MAX = 20000,       /* kept of a word */
	EXITS_MANY = 100,        /* ends of a word: it pays to look at what may follow first */
};

struct trie_node {
	uint8_t byte;
	uint16_t depth;   /* of what the byte leads to: 1 below the root */
	uint32_t up, end; /* the node above; the one after all that is below */
	int32_t first, n; /* its tokens in `sorted` */
};

/* Where a token ends a word: what comes after it, node and below, must be walked. */
struct word_exit {
	uint32_t node;
	int32_t state;  /* accepting */
	uint32_t chars; /* that the token began */
};

/* The effect of all tokens on one word in one state. */
struct sheet {
	const struct dfa *d;
	int state;
	uint32_t a, b;          /* of a key: see key_may; else 0 */
	bool key, any_key;      /* any_key: of plain strings, whatever they are keys of */
	uint32_t *mask;         /* tokens that stay in it, or end where it may; not those of the exits below, */
	struct word_exit *exit; /* which are all where characters count or any_key is; else those that go on */
	int n_exit, cap_exit;
	bool apart; /* so: the exits' own tokens are not in the mask */
	bool many;  /* too many ends to be kept; those that are apart are not counted */
	const struct vocab *v;
	/* For counting words: the tokens of the mask by the characters that they begin;
	 * those with k are by_chars[chars_at[k]..chars_at[k + 1]). */
	int32_t *by_chars, *chars_at;
};
enum { CHARS_MAX = TOKEN_BYTES_MAX }; /* no token begins more */

struct vocab {
	int32_t n;
	int n_word; /* of 32 bits in a mask */
	struct trie_node *node;
	uint32_t n_node;
	int32_t *sorted;
	int depth_max;
	/* Any string, and any in the one spelling, in all states. */
	struct dfa_pool pool;
	const struct dfa *string, *plain, *bare;
	struct sheet *sheet, *plain_sheet;
	/* Sheets of any bare text, each made when it is first needed. */
	_Atomic(struct sheet *) *bare_sheet;
};

struct masks {
	const struct vocab *v;
	struct sheet sheet[KEPT_SHEETS];
	int n_sheet, at_sheet;
	struct {
		struct threads t;
		uint32_t *mask;
	} kept[KEPT_MASKS];
	int n_kept, at_kept;
	struct threads *level; /* [depth_max + 1] of a walk */
	uint32_t *part;        /* a mask to work in */
	uint64_t work_end;     /* of the mask at hand */
};

static void set_bit(uint32_t *mask, int32_t id)
{
	mask[id / 32] |= 1u << id % 32;
}

/* ---- building ---- */

struct entry {
	const char *p;
	size_t n;
	int32_t id;
};

static int by_bytes(const void *x, const void *y)
{
	const struct entry *a = x, *b = y;
	int c = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);

	return c ? c : a->n != b->n ? (a->n > b->n) - (a->n < b->n) : (a->id > b->id) - (a->id < b->id);
}

static void add_node(struct vocab *v, size_t *cap, uint8_t byte, size_t depth)
{
	if (v->n_node == *cap) {
		*cap = *cap ? 2 * *cap : 1024;
		v->node = xrealloc(v->node, size_mul(*cap, sizeof *v->node));
	}
	v->node[v->n_node++] = (struct trie_node){ .byte = byte, .depth = (uint16_t)depth };
}

static void build_trie(struct vocab *v, const struct entry *e, int n)
{
	uint32_t open[TOKEN_BYTES_MAX + 1] = { 0 }; /* nodes from the root to the last token */
	size_t cap = 0, depth = 0;

	add_node(v, &cap, 0, 0);
	for (int i = 0; i < n; i++) {
		size_t common = 0;

		while (i && common < e[i].n && common < e[i - 1].n && e[i].p[common] == e[i - 1].p[common])
			common++;
		for (; depth > common; depth--)
			v->node[open[depth]].end = v->n_node;
		for (; depth < e[i].n; depth++) {
			add_node(v, &cap, (uint8_t)e[i].p[depth], depth + 1);
			open[depth + 1] = v->n_node - 1;
			v->node[v->n_node - 1].up = open[depth];
			v->node[v->n_node - 1].first = i;
		}
		if (e[i].n)
			v->node[open[e[i].n]].n++;
		v->sorted[i] = e[i].id;
		if ((int)e[i].n > v->depth_max)
			v->depth_max = (int)e[i].n;
	}
	for (; depth; depth--)
		v->node[open[depth]].end = v->n_node;
	v->node[0].end = v->n_node;
}

/* ---- sheets ---- */

static void add_exit(struct sheet *s, uint32_t node, int state, uint32_t chars)
{
	if (s->n_exit == EXITS_MAX && !s->apart)
		s->many = true;
	if (s->many)
		return;
	if (s->n_exit == s->cap_exit) {
		s->cap_exit = s->cap_exit ? 2 * s->cap_exit : 64;
		s->exit = xrealloc(s->exit, size_mul((size_t)s->cap_exit, sizeof *s->exit));
	}
	s->exit[s->n_exit++] = (struct word_exit){ node, state, chars };
}

/* Walks the whole trie with the word alone.  chars: also count the characters that
 * begin.  shape: of a key, else NULL. */
static void fill_sheet(const struct vocab *v, struct sheet *s, const struct shape *shape, bool chars)
{
	const struct dfa *d = s->d;
	int32_t state[TOKEN_BYTES_MAX + 1];
	uint32_t count[TOKEN_BYTES_MAX + 1], *chars_of = NULL;

	memset(s->mask, 0, (size_t)v->n_word * sizeof *s->mask);
	s->n_exit = 0;
	s->apart = chars || s->any_key;
	s->many = false;
	s->v = v;
	if (chars)
		chars_of = xcalloc((size_t)v->n + 1, sizeof *chars_of);
	state[0] = s->state;
	count[0] = 0;
	for (uint32_t i = 1; i < v->n_node;) {
		const struct trie_node *t = &v->node[i];
		int from = state[t->depth - 1], to = dfa_step(d, from, t->byte);

		if (to < 0 || (shape && !key_may(shape, to, s->a, s->b))) {
			i = t->end;
			continue;
		}
		state[t->depth] = to;
		if (chars)
			count[t->depth] = count[t->depth - 1] + (from == LEXEME_BODY && t->byte != '"');
		if (d->label[to] >= 0 && (s->apart || t->end > i + 1))
			add_exit(s, i, to, chars ? count[t->depth] : 0);
		if (d->last[to] && (s->apart || d->label[to] < 0)) {
			i = t->end;
			continue;
		}
		for (int32_t k = t->first; k < t->first + t->n; k++) {
			set_bit(s->mask, v->sorted[k]);
			if (chars)
				chars_of[v->sorted[k]] = 1 + count[t->depth];
		}
		i = d->last[to] ? t->end : i + 1;
	}
	if (!chars)
		return;
	s->chars_at = xcalloc(CHARS_MAX + 4, sizeof *s->chars_at);
	for (int32_t id = 0; id < v->n; id++)
		if (chars_of[id])
			s->chars_at[chars_of[id] + 1]++;
	for (int k = 0; k < CHARS_MAX + 2; k++)
		s->chars_at[k + 1] += s->chars_at[k];
	s->by_chars = xmalloc(size_mul((size_t)s->chars_at[CHARS_MAX + 2] + 1, sizeof *s->by_chars));
	for (int32_t id = 0; id < v->n; id++)
		if (chars_of[id])
			s->by_chars[s->chars_at[chars_of[id]]++] = id;
	/* Each has moved to where it ends, which is where the next begins. */
	free(chars_of);
}

static void sheet_fini(struct sheet *s)
{
	free(s->mask);
	free(s->exit);
	free(s->by_chars);
	free(s->chars_at);
}

void sheet_free(struct sheet *s)
{
	if (s)
		sheet_fini(s);
	free(s);
}

static struct sheet *sheets_of(const struct vocab *v, const struct dfa *d, bool chars)
{
	struct sheet *all = xcalloc((size_t)d->n, sizeof *all);

	for (int s = 0; s < d->n; s++) {
		all[s] = (struct sheet){ .d = d, .state = s, .any_key = !chars };
		all[s].mask = xcalloc((size_t)v->n_word + 1, sizeof *all[s].mask);
		/* No walk is before a string's first byte or after its last. */
		if (s && !d->last[s])
			fill_sheet(v, &all[s], NULL, chars);
	}
	return all;
}

struct vocab *vocab_new(int32_t n, const char *(*bytes)(void *ctx, int32_t id, size_t *len), void *ctx)
{
	struct vocab *v = xcalloc(1, sizeof *v);
	struct entry *e = xmalloc(size_mul((size_t)n + 1, sizeof *e));
	int n_entry = 0;

	v->n = n;
	v->n_word = (n + 31) / 32;
	for (int32_t id = 0; id < n; id++) {
		size_t len = 0;
		const char *p = bytes(ctx, id, &len);

		if (p && len && len <= TOKEN_BYTES_MAX)
			e[n_entry++] = (struct entry){ p, len, id };
	}
	qsort(e, (size_t)n_entry, sizeof *e, by_bytes);
	v->sorted = xmalloc(size_mul((size_t)n_entry + 1, sizeof *v->sorted));
	build_trie(v, e, n_entry);
	free(e);
	dfa_pool_init(&v->pool);
	v->string = lexeme_string(&v->pool);
	v->plain = lexeme_plain_string(&v->pool);
	v->bare = lexeme_bare(&v->pool, v->plain, BARE_VALUE_END);
	v->bare_sheet = xcalloc((size_t)v->bare->n, sizeof *v->bare_sheet);
	v->sheet = sheets_of(v, v->string, true);
	v->plain_sheet = sheets_of(v, v->plain, false);
	return v;
}

void vocab_free(struct vocab *v)
{
	if (!v)
		return;
	for (int s = 0; s < v->string->n; s++)
		sheet_fini(&v->sheet[s]);
	for (int s = 0; s < v->plain->n; s++)
		sheet_fini(&v->plain_sheet[s]);
	for (int s = 0; s < v->bare->n; s++) {
		struct sheet *h = atomic_load(&v->bare_sheet[s]);

		if (h)
			sheet_fini(h);
		free(h);
	}
	free(v->bare_sheet);
	free(v->sheet);
	free(v->plain_sheet);
	dfa_pool_fini(&v->pool);
	free(v->node);
	free(v->sorted);
	free(v);
}

int32_t vocab_size(const struct vocab *v)
{
	return v->n;
}

/* ---- masks of a walk ---- */

void masks_forget(struct masks *k)
{
	for (int i = 0; k && i < k->n_kept; i++)
		k->kept[i].t.n = 0;
}

void masks_free(struct masks *k)
{
	if (!k)
		return;
	for (int i = 0; i < k->n_sheet; i++)
		sheet_fini(&k->sheet[i]);
	for (int i = 0; i < k->n_kept; i++)
		free(k->kept[i].mask);
	free(k->level);
	free(k->part);
	free(k);
}

/* The trie below node `root`, whose byte has been taken: level[0] are the threads
 * there.  first: the bytes that they may go on with; NULL: not looked at before. */
static void walk_below(struct matcher *m, const struct vocab *v, uint32_t root, const bool *first, uint32_t *mask)
{
	struct threads *level = m->masks->level;
	uint16_t base = v->node[root].depth;
	uint32_t end = v->node[root].end;

	for (uint32_t i = root + 1; i < end;) {
		const struct trie_node *t = &v->node[i];
		int depth = t->depth - base;

		if ((first && depth == 1 && !first[t->byte]) || (m->work > m->masks->work_end && (root || depth > 1))) {
			i = t->end;
			continue;
		}
		threads_step(m, &level[depth - 1], t->byte, &level[depth]);
		if (!level[depth].n) {
			i = t->end;
			continue;
		}
		for (int32_t k = t->first; k < t->first + t->n; k++)
			set_bit(mask, v->sorted[k]);
		i++;
	}
}

static const struct sheet *bare_sheet(const struct vocab *v, int state)
{
	struct sheet *h = atomic_load(&v->bare_sheet[state]), *made;

	if (h)
		return h;
	made = xcalloc(1, sizeof *made);
	*made = (struct sheet){ .d = v->bare, .state = state };
	made->mask = xcalloc((size_t)v->n_word + 1, sizeof *made->mask);
	fill_sheet(v, made, NULL, false);
	if (atomic_compare_exchange_strong(&v->bare_sheet[state], &h, made))
		return made;
	sheet_fini(made);
	free(made);
	return h;
}

/* The sheets of a grammar's word, shared by all walks; NULL: there is no room for more. */
static const struct sheet *shared_sheet(struct grammar *g, const struct vocab *v, const struct dfa *d, int state)
{
	struct sheet *made = NULL, *s;

	for (int i = 0; i < SHARED_SHEETS; i++) {
		s = atomic_load(&g->sheet[i]);
		if (!s && !made) {
			made = xcalloc(1, sizeof *made);
			*made = (struct sheet){ .d = d, .state = state };
			made->mask = xcalloc((size_t)v->n_word + 1, sizeof *made->mask);
			fill_sheet(v, made, NULL, false);
		}
		if (!s && atomic_compare_exchange_strong(&g->sheet[i], &s, made))
			return made;
		if (s->v == v && s->d == d && s->state == state) {
			sheet_free(made);
			return s;
		}
	}
	sheet_free(made);
	return NULL;
}

static const struct sheet *sheet_of(struct matcher *m, const struct vocab *v, const struct frame *f,
                                    const struct dfa *d, int state)
{
	const struct shape *shape = &m->g->shape[f->shape];
	struct masks *k = m->masks;
	bool key = shape->kind == SHAPE_OBJECT;
	uint32_t a = key ? f->a : 0, b = key ? f->b : 0;
	const struct sheet *shared;
	struct sheet *s;

	/* A key of which nothing is known is any string. */
	if (d == m->g->string && (!key || key_may_other(shape, a, b)))
		return &v->sheet[state];
	if (d == m->g->bare && !key)
		return bare_sheet(v, state);
	/* Where any key may come all stay in it alike; how they end is looked at later. */
	if (key && shape->plain_at && key_may_other(shape, a, b))
		return &v->plain_sheet[shape->plain_at[state]];
	if (!key && (shared = shared_sheet(m->g, v, d, state)))
		return shared;
	for (int i = 0; i < k->n_sheet; i++) {
		s = &k->sheet[i];
		if (s->d == d && s->state == state && s->key == key && s->a == a && s->b == b)
			return s;
	}
	if (k->n_sheet < KEPT_SHEETS) {
		s = &k->sheet[k->n_sheet++];
		s->mask = xmalloc(size_mul((size_t)v->n_word + 1, sizeof *s->mask));
	} else {
		s = &k->sheet[k->at_sheet++ % KEPT_SHEETS];
	}
	s->d = d;
	s->state = state;
	s->a = a;
	s->b = b;
	s->key = key;
	fill_sheet(v, s, key ? shape : NULL, false);
	return s;
}

/* The sheet's mask, but for tokens that begin more than `most` characters. */
static void or_sheet(struct matcher *m, const struct vocab *v, const struct sheet *s, uint32_t most, uint32_t *mask)
{
	const uint32_t *from = s->mask;

	if (most < CHARS_MAX) {
		int32_t n = s->chars_at[most + 1], all = s->chars_at[CHARS_MAX + 2];
		uint32_t *part = m->masks->part;

		/* Whichever are fewer: those that fit, or those that do not. */
		if (n <= all / 2) {
			for (int32_t i = 0; i < n; i++)
				set_bit(mask, s->by_chars[i]);
			return;
		}
		memcpy(part, s->mask, (size_t)v->n_word * sizeof *part);
		for (int32_t i = n; i < all; i++)
			part[s->by_chars[i] / 32] &= ~(1u << s->by_chars[i] % 32);
		from = part;
	}
	for (int i = 0; i < v->n_word; i++)
		mask[i] |= from[i];
}

/* Where an object's keys come from `state` by the bytes of a node. */
static int state_at(const struct vocab *v, const struct dfa *d, int state, uint32_t node)
{
	uint8_t byte[TOKEN_BYTES_MAX];
	int n = v->node[node].depth;

	for (int i = n; i-- > 0; node = v->node[node].up)
		byte[i] = v->node[node].byte;
	for (int i = 0; i < n && state >= 0; i++)
		state = dfa_step(d, state, byte[i]);
	return state;
}

/* Those that the threads of level[0] may go on with; returns whether there are any. */
static bool first_bytes(struct matcher *m, bool *first)
{
	struct threads to;
	bool some = false;

	for (int c = 0; c < 256; c++) {
		int frames = m->n_frame;

		threads_step(m, &m->masks->level[0], (uint8_t)c, &to);
		some |= first[c] = to.n > 0;
		frame_drop(m, frames);
	}
	return some;
}

/* Adds the tokens that go on behind the ends of a word, where there are too many ends to be kept. */
static void or_ends(struct matcher *m, const struct vocab *v, const struct frame *f, const struct sheet *s,
                    uint32_t *mask)
{
	const struct dfa *d = s->d;
	int32_t state[TOKEN_BYTES_MAX + 1], label = -1;
	int frames = m->n_frame, after = frames;
	bool first[256];

	state[0] = s->state;
	for (uint32_t i = 1; i < v->n_node;) {
		const struct trie_node *t = &v->node[i];
		int to = dfa_step(d, state[t->depth - 1], t->byte);

		if (to < 0 || (s->key && !key_may(&m->g->shape[f->shape], to, s->a, s->b))) {
			i = t->end;
			continue;
		}
		state[t->depth] = to;
		if (d->label[to] >= 0 && t->end > i + 1) {
			if (d->label[to] != label) {
				label = d->label[to];
				frame_drop(m, frames);
				m->masks->level[0].n = m->masks->level[0].offers = 0;
				word_end(m, f, to, &m->masks->level[0]);
				after = m->n_frame;
				if (!first_bytes(m, first) && m->g->shape[f->shape].kind == SHAPE_WORD)
					break;
			}
			walk_below(m, v, i, first, mask);
			frame_drop(m, after);
		}
		i = d->last[to] ? t->end : i + 1;
	}
	frame_drop(m, frames);
}

static void or_word(struct matcher *m, const struct vocab *v, int32_t id, const struct dfa *d, int state,
                    uint32_t *mask)
{
	struct frame f = m->frame[id];
	const struct shape *shape = &m->g->shape[f.shape];
	const struct sheet *s = sheet_of(m, v, &f, d, state);
	uint32_t least = 0, most = NO_LIMIT;
	int frames = m->n_frame, after = frames;
	int64_t label = -1; /* what level[0] follows; -1: it was not made */
	bool first[256];

	if (shape->kind == SHAPE_WORD && shape->counted) {
		uint32_t begun = f.a + (state != LEXEME_BODY);

		least = begun < shape->min ? shape->min - begun : 0;
		most = shape->max == NO_LIMIT ? NO_LIMIT : shape->max - begun;
	}
	or_sheet(m, v, s, most, mask);
	if (s->many) {
		or_ends(m, v, &f, s, mask);
		return;
	}
	for (int i = 0; i < s->n_exit; i++) {
		const struct word_exit *x = &s->exit[i];
		const struct trie_node *t = &v->node[x->node];
		int end = x->state;

		if (x->chars < least || x->chars > most)
			continue;
		if (s->any_key) { /* this one may be a property's */
			end = state_at(v, d, state, x->node);
			if (end < 0 || !key_may(shape, end, f.a, f.b))
				continue;
		}
		/* The continuation is equal behind all ends of a word; of a key, behind all ends with one label. */
		if (label != d->label[end]) {
			label = d->label[end];
			frame_drop(m, frames);
			m->masks->level[0].n = m->masks->level[0].offers = 0;
			word_end(m, &f, end, &m->masks->level[0]);
			after = m->n_frame;
			/* Behind a word it is the same everywhere; often nothing may come. */
			if (s->n_exit > EXITS_MANY && !first_bytes(m, first) && shape->kind == SHAPE_WORD && !s->apart)
				break;
		}
		for (int32_t k = t->first; k < t->first + t->n && s->apart; k++)
			set_bit(mask, v->sorted[k]);
		walk_below(m, v, x->node, s->n_exit > EXITS_MANY ? first : NULL, mask);
		frame_drop(m, after);
	}
	frame_drop(m, frames);
}

static void fill_mask(struct matcher *m, const struct vocab *v, const struct threads *t, uint32_t *mask)
{
	struct threads rest = { .n = 0 };

	memset(mask, 0, (size_t)v->n_word * sizeof *mask);
	m->masks->work_end = m->work + MASK_WORK_MAX;
	for (int i = 0; i < t->n; i++) {
		int state, frames = m->n_frame;
		const struct dfa *d = frame_word(m, &m->frame[t->id[i]], &state);

		if (d)
			or_word(m, v, t->id[i], d, state, mask);
		else
			rest.id[rest.n++] = t->id[i];
		frame_drop(m, frames);
	}
	if (rest.n) {
		int frames = m->n_frame;

		m->masks->level[0] = rest;
		walk_below(m, v, 0, NULL, mask);
		frame_drop(m, frames);
	}
}

const uint32_t *matcher_mask(struct matcher *m, const struct vocab *v)
{
	int from = m->past_at[m->n_past - 1], at;
	struct masks *k = m->masks;
	struct threads t;

	if (!k || k->v != v) {
		masks_free(k);
		k = m->masks = xcalloc(1, sizeof *k);
		k->v = v;
		k->level = xmalloc(size_mul((size_t)v->depth_max + 2, sizeof *k->level));
		k->part = xmalloc(size_mul((size_t)v->n_word + 1, sizeof *k->part));
	}
	t.n = m->past_at[m->n_past] - from;
	memcpy(t.id, m->past + from, (size_t)t.n * sizeof *t.id);
	for (int i = 0; i < k->n_kept; i++)
		if (k->kept[i].t.n == t.n && !memcmp(k->kept[i].t.id, t.id, (size_t)t.n * sizeof *t.id))
			return k->kept[i].mask;
	if (k->n_kept < KEPT_MASKS) {
		at = k->n_kept++;
		k->kept[at].mask = xmalloc(size_mul((size_t)v->n_word + 1, sizeof *k->kept[at].mask));
	} else {
		at = k->at_kept++ % KEPT_MASKS;
	}
	k->kept[at].t = t;
	fill_mask(m, v, &t, k->kept[at].mask);
	return k->kept[at].mask;
}
