/* dfa.c - see dfa.h. */
#include "text/grammar/dfa.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "base/allowance.h"

void dfa_pool_init(struct dfa_pool *p)
{
	memset(p, 0, sizeof *p);
	arena_init(&p->a);
}

void dfa_pool_fini(struct dfa_pool *p)
{
	arena_fini(&p->a);
}

bool dfa_spend(struct dfa_pool *p, size_t work)
{
	p->work += work;
	if (p->work > DFA_WORK_MAX && !p->why)
		p->why = "it takes too much work to prepare";
	if (p->a.used > DFA_BYTES_MAX && !p->why)
		p->why = "it takes too much memory to prepare";
	if (!allowance_spend(work) && !p->why)
		p->why = allowance_why();
	return !p->why;
}

bool dfa_finite(struct dfa_pool *p, const struct dfa *d)
{
	size_t cells = (size_t)d->n * (size_t)d->n_cls;
	int32_t *into, *open;
	int n_open = 0, done = 0;

	if (!dfa_spend(p, cells))
		return false;
	/* From every state an accepting one can be reached, so a cycle has words without end. */
	into = xcalloc((size_t)d->n + 1, sizeof *into);
	open = xmalloc(((size_t)d->n + 1) * sizeof *open);
	for (size_t i = 0; i < cells; i++)
		if (d->next[i] >= 0)
			into[d->next[i]]++;
	for (int i = 0; i < d->n; i++)
		if (!into[i])
			open[n_open++] = i;
	while (n_open) {
		const int32_t *next = d->next + (size_t)open[--n_open] * (size_t)d->n_cls;

		done++;
		for (int k = 0; k < d->n_cls; k++)
			if (next[k] >= 0 && !--into[next[k]])
				open[n_open++] = next[k];
	}
	free(into);
	free(open);
	return done == d->n;
}

int dfa_match(const struct dfa *d, const char *p, size_t n)
{
	int s = d->n ? 0 : -1;

	for (size_t i = 0; i < n && s >= 0; i++)
		s = dfa_step(d, s, (uint8_t)p[i]);
	return s < 0 ? -1 : d->label[s];
}

/* ---- building: states that grow, then trimmed into a pool ---- */

struct draft {
	int n, cap, n_cls;
	uint8_t cls[256];
	int32_t *next, *label;
};

static int draft_state(struct draft *d, int32_t label)
{
	if (d->n == d->cap) {
		d->cap = d->cap ? 2 * d->cap : 32;
		d->next = xrealloc(d->next, size_mul((size_t)d->cap * (size_t)d->n_cls, sizeof *d->next));
		d->label = xrealloc(d->label, size_mul((size_t)d->cap, sizeof *d->label));
	}
	for (int c = 0; c < d->n_cls; c++)
		d->next[d->n * d->n_cls + c] = -1;
	d->label[d->n] = label;
	return d->n++;
}

static void draft_fini(struct draft *d)
{
	free(d->next);
	free(d->label);
}

/* Which states reach an accepting one: backwards along the edges. */
static bool *draft_live(const struct draft *d)
{
	size_t n_edge = (size_t)d->n * (size_t)d->n_cls, top = 0;
	int32_t *first = xcalloc((size_t)d->n + 2, sizeof *first), *from, *stack;
	bool *live = xcalloc((size_t)d->n + 1, sizeof *live);

	from = xmalloc(size_mul(n_edge + 1, sizeof *from));
	stack = xmalloc(size_mul((size_t)d->n + 1, sizeof *stack));
	for (size_t e = 0; e < n_edge; e++)
		if (d->next[e] >= 0)
			first[d->next[e] + 2]++;
	for (int s = 0; s < d->n; s++)
		first[s + 1] += first[s];
	/* first[t + 1] is where the edges into t begin, and moves to where they end. */
	for (size_t e = 0; e < n_edge; e++)
		if (d->next[e] >= 0)
			from[first[d->next[e] + 1]++] = (int32_t)(e / (size_t)d->n_cls);
	for (int s = 0; s < d->n; s++)
		if (d->label[s] >= 0) {
			live[s] = true;
			stack[top++] = s;
		}
	while (top) {
		int t = stack[--top];

		for (int32_t i = first[t]; i < first[t + 1]; i++)
			if (!live[from[i]]) {
				live[from[i]] = true;
				stack[top++] = from[i];
			}
	}
	free(first);
	free(from);
	free(stack);
	return live;
}

/* Makes one class of those that lead nowhere from any state: between the letters that texts are made of there are as
 * many as letters.  column: of each old class the new one; returns how many there are now. */
static int draft_columns(const struct draft *d, const int32_t *id, int column[256])
{
	bool leads[256] = { false };
	int n = 0, nowhere = -1;

	for (int s = 0; s < d->n; s++)
		for (int c = 0; c < d->n_cls && id[s] >= 0; c++) {
			int to = d->next[s * d->n_cls + c];

			leads[c] |= to >= 0 && id[to] >= 0;
		}
	for (int c = 0; c < d->n_cls; c++) {
		column[c] = leads[c] || nowhere < 0 ? n++ : nowhere;
		if (!leads[c])
			nowhere = column[c];
	}
	return n;
}

/* Frees the draft. */
static struct dfa *draft_finish(struct dfa_pool *p, struct draft *d)
{
	struct dfa *out = NULL;
	int column[256], n = 0, n_cls;
	bool *live;
	int32_t *id;

	if (p->why) {
		draft_fini(d);
		return NULL;
	}
	live = draft_live(d);
	id = xmalloc(size_mul((size_t)d->n + 1, sizeof *id));
	for (int s = 0; s < d->n; s++)
		id[s] = live[s] && live[0] ? n++ : -1;
	n_cls = draft_columns(d, id, column);
	p->n_cell += (size_t)n * (size_t)n_cls;
	if (p->n_cell > DFA_CELLS_MAX)
		p->why = "it needs too many states";
	if (!p->why) {
		out = arena_zalloc(&p->a, sizeof *out);
		out->n = n;
		out->n_cls = n_cls;
		for (int b = 0; b < 256; b++)
			out->cls[b] = (uint8_t)column[d->cls[b]];
		out->next = arena_alloc(&p->a, size_mul((size_t)n * (size_t)n_cls + 1, sizeof *out->next));
		out->label = arena_alloc(&p->a, size_mul((size_t)n + 1, sizeof *out->label));
		out->last = arena_zalloc(&p->a, (size_t)n + 1);
		for (int s = 0; s < d->n; s++) {
			if (id[s] < 0)
				continue;
			out->label[id[s]] = d->label[s];
			out->last[id[s]] = true;
			for (int c = 0; c < d->n_cls; c++) {
				int t = d->next[s * d->n_cls + c];

				t = t >= 0 ? id[t] : -1;
				out->next[id[s] * n_cls + column[c]] = t;
				if (t >= 0)
					out->last[id[s]] = false;
			}
		}
	}
	free(live);
	free(id);
	draft_fini(d);
	return out;
}

/* ---- a table from 64-bit keys to numbers counted up ---- */

struct ids {
	uint64_t *key;
	int32_t *slot;
	int n, cap;
};

static int32_t *ids_slot(struct ids *t, uint64_t key)
{
	uint32_t mask = 2 * (uint32_t)t->cap - 1, h = (uint32_t)((key * 0x9E3779B97F4A7C15u) >> 32);

	while (t->slot[h & mask] >= 0 && t->key[t->slot[h & mask]] != key)
		h++;
	return &t->slot[h & mask];
}

/* Its number; *is_new when it has just got one. */
static int ids_of(struct ids *t, uint64_t key, bool *is_new)
{
	int32_t *slot;

	if (t->n == t->cap) {
		t->cap = t->cap ? 2 * t->cap : 32;
		t->key = xrealloc(t->key, size_mul((size_t)t->cap, sizeof *t->key));
		t->slot = xrealloc(t->slot, size_mul(2 * (size_t)t->cap, sizeof *t->slot));
		memset(t->slot, 0xFF, 2 * (size_t)t->cap * sizeof *t->slot);
		for (int i = 0; i < t->n; i++)
			*ids_slot(t, t->key[i]) = i;
	}
	slot = ids_slot(t, key);
	*is_new = *slot < 0;
	if (*is_new) {
		*slot = t->n;
		t->key[t->n++] = key;
	}
	return *slot;
}

static void ids_fini(struct ids *t)
{
	free(t->key);
	free(t->slot);
}

static bool too_many(struct dfa_pool *p, int n, int n_cls)
{
	if (n > DFA_STATES_MAX || n > DFA_CELLS_MAX / n_cls)
		p->why = "it needs too many states";
	return p->why != NULL;
}

/* ---- edges ---- */

void nfa_init(struct nfa *f)
{
	memset(f, 0, sizeof *f);
	nfa_state(f);
}

void nfa_fini(struct nfa *f)
{
	free(f->edge);
	free(f->head);
	free(f->label);
	memset(f, 0, sizeof *f);
}

int nfa_state(struct nfa *f)
{
	if (f->n == f->cap) {
		f->cap = f->cap ? 2 * f->cap : 64;
		f->head = xrealloc(f->head, size_mul((size_t)f->cap, sizeof *f->head));
		f->label = xrealloc(f->label, size_mul((size_t)f->cap, sizeof *f->label));
	}
	f->head[f->n] = f->label[f->n] = -1;
	return f->n++;
}

static void add_edge(struct nfa *f, int from, struct nfa_edge e)
{
	/* Past the limit nothing grows; dfa_from_nfa refuses what came of it. */
	if (f->n_edge > NFA_EDGES_MAX)
		return;
	if (f->n_edge == f->cap_edge) {
		f->cap_edge = f->cap_edge ? 2 * f->cap_edge : 128;
		f->edge = xrealloc(f->edge, size_mul((size_t)f->cap_edge, sizeof *f->edge));
	}
	e.more = f->head[from];
	f->edge[f->n_edge] = e;
	f->head[from] = f->n_edge++;
}

void nfa_bytes(struct nfa *f, int from, int lo, int hi, int to)
{
	add_edge(f, from, (struct nfa_edge){ .to = to, .kind = NFA_BYTES, .lo = (uint8_t)lo, .hi = (uint8_t)hi });
}

void nfa_empty(struct nfa *f, int from, int to, enum nfa_kind kind)
{
	add_edge(f, from, (struct nfa_edge){ .to = to, .kind = (uint8_t)kind });
}

void nfa_accept(struct nfa *f, int state, int32_t label)
{
	f->label[state] = label;
}

int nfa_text(struct nfa *f, int from, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int to = nfa_state(f);

		nfa_bytes(f, from, (uint8_t)p[i], (uint8_t)p[i], to);
		from = to;
	}
	return from;
}

/* lo and hi have encodings of the same length. */
static void utf8_same(struct nfa *f, int from, uint32_t lo, uint32_t hi, int to)
{
	char a[4], b[4];
	int n;

	for (uint32_t i = 6; i <= 18; i += 6) {
		uint32_t m = (1u << i) - 1;

		if ((lo & ~m) == (hi & ~m) || hi <= 0x7F)
			continue;
		if (lo & m) {
			utf8_same(f, from, lo, lo | m, to);
			utf8_same(f, from, (lo | m) + 1, hi, to);
			return;
		}
		if ((hi & m) != m) {
			utf8_same(f, from, lo, (hi & ~m) - 1, to);
			utf8_same(f, from, hi & ~m, hi, to);
			return;
		}
	}
	n = utf8_encode(lo, a);
	utf8_encode(hi, b);
	for (int i = 0; i < n; i++) {
		int next = i + 1 < n ? nfa_state(f) : to;

		nfa_bytes(f, from, (uint8_t)a[i], (uint8_t)b[i], next);
		from = next;
	}
}

void nfa_utf8(struct nfa *f, int from, uint32_t lo, uint32_t hi, int to)
{
	static const uint32_t part[][2] = {
		{ 0, 0x7F }, { 0x80, 0x7FF }, { 0x800, 0xD7FF }, { 0xE000, 0xFFFF }, { 0x10000, 0x10FFFF }
	};

	for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
		uint32_t a = lo > part[i][0] ? lo : part[i][0], b = hi < part[i][1] ? hi : part[i][1];

		if (a <= b)
			utf8_same(f, from, a, b, to);
	}
}

static void put_escape(struct nfa *f, int from, uint32_t c, int to)
{
	static const char hex[] = "0123456789abcdef", from_c[] = "\"\\\b\f\n\r\t", to_c[] = "\"\\bfnrt";
	const char *at = c ? strchr(from_c, (int)c) : NULL;
	int s = nfa_text(f, from, "\\", 1), low = (int)(c & 15);

	if (at) {
		nfa_bytes(f, s, to_c[at - from_c], to_c[at - from_c], to);
		return;
	}
	s = nfa_text(f, s, c < 16 ? "u000" : "u001", 4);
	nfa_bytes(f, s, hex[low], hex[low], to);
	if (low > 9)
		nfa_bytes(f, s, hex[low] - 32, hex[low] - 32, to);
}

void nfa_chars(struct nfa *f, int from, uint32_t lo, uint32_t hi, int to)
{
	static const uint32_t plain[][2] = { { 0x20, 0x21 }, { 0x23, 0x5B }, { 0x5D, 0x10FFFF } };

	for (uint32_t c = lo; c < 0x20 && c <= hi; c++)
		put_escape(f, from, c, to);
	if (lo <= '"' && hi >= '"')
		put_escape(f, from, '"', to);
	if (lo <= '\\' && hi >= '\\')
		put_escape(f, from, '\\', to);
	for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
		uint32_t a = lo > plain[i][0] ? lo : plain[i][0], b = hi < plain[i][1] ? hi : plain[i][1];

		if (a <= b)
			nfa_utf8(f, from, a, b, to);
	}
}

/* ---- sets of states ---- */

struct sets {
	struct dfa_pool *p;
	const struct nfa *f;
	int32_t *pool; /* members, one set after another */
	size_t n_pool, cap_pool;
	size_t *at; /* where set i begins; it ends where i + 1 begins */
	int n, cap;
	int32_t *slot;  /* open addressing by content; n_slot, a power of two, is more than twice n */
	uint64_t *hash; /* of each set */
	uint32_t n_slot;
	uint32_t *mark, epoch; /* by state: epoch when it is in the set at hand */
	int32_t *cur, *stack;
	int n_cur;
};

static void add_closed(struct sets *s, int state, bool begin, bool end)
{
	int top = 0;

	if (s->mark[state] == s->epoch)
		return;
	s->mark[state] = s->epoch;
	s->stack[top++] = state;
	while (top) {
		int at = s->stack[--top];

		s->cur[s->n_cur++] = at;
		for (int32_t e = s->f->head[at]; e >= 0; e = s->f->edge[e].more) {
			const struct nfa_edge *g = &s->f->edge[e];

			if (g->kind == NFA_BYTES || (g->kind == NFA_BEGIN && !begin) || (g->kind == NFA_END && !end) ||
			    s->mark[g->to] == s->epoch)
				continue;
			s->mark[g->to] = s->epoch;
			s->stack[top++] = g->to;
		}
	}
}

static int by_value(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return (x > y) - (x < y);
}

/* Where a set of this hash is, or would go. */
static uint32_t slot_of(const struct sets *s, uint64_t h)
{
	return (uint32_t)(h >> 32) & (s->n_slot - 1);
}

static void slots_grow(struct sets *s)
{
	s->n_slot = s->n_slot ? 2 * s->n_slot : 128;
	s->slot = xrealloc(s->slot, size_mul(s->n_slot, sizeof *s->slot));
	memset(s->slot, 0xFF, s->n_slot * sizeof *s->slot);
	for (int i = 0; i < s->n; i++) {
		uint32_t k = slot_of(s, s->hash[i]);

		while (s->slot[k] >= 0)
			k = (k + 1) & (s->n_slot - 1);
		s->slot[k] = i;
	}
}

/* Adds the set at hand. */
static int set_new(struct sets *s, uint64_t h)
{
	if (s->n + 1 >= s->cap) {
		s->cap = s->cap ? 2 * s->cap : 64;
		s->at = xrealloc(s->at, size_mul((size_t)s->cap + 1, sizeof *s->at));
		s->hash = xrealloc(s->hash, size_mul((size_t)s->cap, sizeof *s->hash));
	}
	if (s->n_pool + (size_t)s->n_cur > s->cap_pool) {
		s->cap_pool = 2 * (s->n_pool + (size_t)s->n_cur);
		s->pool = xrealloc(s->pool, size_mul(s->cap_pool, sizeof *s->pool));
	}
	s->at[s->n] = s->n_pool;
	s->hash[s->n] = h;
	if (s->n_cur)
		memcpy(s->pool + s->n_pool, s->cur, (size_t)s->n_cur * sizeof *s->cur);
	s->n_pool += (size_t)s->n_cur;
	s->at[s->n + 1] = s->n_pool;
	return s->n++;
}

/* The number of the set at hand, a new one if it was not met before. */
static int set_id(struct sets *s)
{
	uint64_t h = 1469598103934665603u;
	size_t probes = 0;

	qsort(s->cur, (size_t)s->n_cur, sizeof *s->cur, by_value);
	/* The golden ratio's multiple lets sets of one or two small numbers differ in the upper half, too. */
	for (int i = 0; i < s->n_cur; i++)
		h = (h ^ (uint64_t)(uint32_t)s->cur[i]) * 0x9E3779B97F4A7C15u;
	if (2 * ((uint32_t)s->n + 1) > s->n_slot)
		slots_grow(s);
	for (uint32_t k = slot_of(s, h);; k = (k + 1) & (s->n_slot - 1)) {
		int id = s->slot[k];

		if (++probes % 8 == 0)
			dfa_spend(s->p, 1);
		if (id < 0)
			return s->slot[k] = set_new(s, h);
		if (s->hash[id] == h && s->at[id + 1] - s->at[id] == (size_t)s->n_cur &&
		    !memcmp(s->pool + s->at[id], s->cur, (size_t)s->n_cur * sizeof *s->cur))
			return id;
	}
}

static int32_t set_label(const struct sets *s, int id)
{
	int32_t best = -1;

	for (size_t i = s->at[id]; i < s->at[id + 1]; i++) {
		int32_t l = s->f->label[s->pool[i]];

		if (l >= 0 && (best < 0 || l < best))
			best = l;
	}
	return best;
}

/* Bytes that all edges treat alike, and one byte of each class. */
static int classes_of(const struct nfa *f, uint8_t cls[256], uint8_t sample[256])
{
	bool cut[257] = { true };
	int n = -1;

	cut['"'] = cut['"' + 1] = true;
	for (int i = 0; i < f->n_edge; i++)
		if (f->edge[i].kind == NFA_BYTES)
			cut[f->edge[i].lo] = cut[f->edge[i].hi + 1] = true;
	for (int b = 0; b < 256; b++) {
		if (cut[b])
			sample[++n] = (uint8_t)b;
		cls[b] = (uint8_t)n;
	}
	return n + 1;
}

/* The set that byte b leads to from set id, in s->cur. */
static void follow(struct sets *s, int id, uint8_t b, bool begin)
{
	int32_t *from = NULL;
	int n = (int)(s->at[id + 1] - s->at[id]);
	size_t edges = 0;

	if (b == '"' && id) {
		/* The end edges are open here: the set from which the mark is read is larger. */
		s->epoch++;
		s->n_cur = 0;
		for (int i = 0; i < n; i++)
			add_closed(s, s->pool[s->at[id] + (size_t)i], false, false);
		for (int i = 0; i < s->n_cur; i++)
			for (int32_t e = s->f->head[s->cur[i]]; e >= 0; e = s->f->edge[e].more)
				if (s->f->edge[e].kind == NFA_END)
					add_closed(s, s->f->edge[e].to, false, true);
		n = s->n_cur;
		from = xmalloc(((size_t)n + 1) * sizeof *from);
		memcpy(from, s->cur, (size_t)n * sizeof *from);
	}
	s->epoch++;
	s->n_cur = 0;
	for (int i = 0; i < n; i++) {
		int at = from ? from[i] : s->pool[s->at[id] + (size_t)i];

		for (int32_t e = s->f->head[at]; e >= 0; e = s->f->edge[e].more, edges++)
			if (s->f->edge[e].kind == NFA_BYTES && b >= s->f->edge[e].lo && b <= s->f->edge[e].hi)
				add_closed(s, s->f->edge[e].to, begin, false);
	}
	dfa_spend(s->p, edges + (size_t)s->n_cur + 1);
	free(from);
}

/* Which classes may lead on from set id.  Classes are in the order of bytes. */
static void find_busy(const struct sets *s, int id, const uint8_t cls[256], bool busy[256])
{
	memset(busy, 0, 256);
	busy[cls['"']] = id > 0; /* end edges are open there: follow looks */
	for (size_t i = s->at[id]; i < s->at[id + 1]; i++)
		for (int32_t e = s->f->head[s->pool[i]]; e >= 0; e = s->f->edge[e].more)
			if (s->f->edge[e].kind == NFA_BYTES)
				memset(busy + cls[s->f->edge[e].lo], 1,
				       (size_t)(cls[s->f->edge[e].hi] - cls[s->f->edge[e].lo]) + 1);
}

struct dfa *dfa_from_nfa(struct dfa_pool *p, const struct nfa *f)
{
	struct sets s = { .p = p, .f = f };
	struct draft d = { 0 };
	uint8_t sample[256];
	bool busy[256];

	if (f->n_edge > NFA_EDGES_MAX)
		p->why = "it needs too many states";
	/* Charges work in proportion to the edges, also where it has no result. */
	if (p->why || !dfa_spend(p, (size_t)(f->n_edge + f->n) / 8))
		return NULL;
	d.n_cls = classes_of(f, d.cls, sample);
	s.mark = xcalloc((size_t)f->n, sizeof *s.mark);
	s.cur = xmalloc(size_mul((size_t)f->n + 1, sizeof *s.cur));
	s.stack = xmalloc(size_mul((size_t)f->n + 1, sizeof *s.stack));
	s.epoch = 1;
	add_closed(&s, 0, false, false);
	set_id(&s);
	draft_state(&d, set_label(&s, 0));
	for (int id = 0; id < s.n && !too_many(p, s.n, d.n_cls); id++) {
		find_busy(&s, id, d.cls, busy);
		for (int c = 0; c < d.n_cls && !p->why; c++) {
			int to;

			if (!busy[c])
				continue;
			follow(&s, id, sample[c], id == 0);
			if (!s.n_cur)
				continue;
			to = set_id(&s);
			if (to == d.n)
				draft_state(&d, set_label(&s, to));
			d.next[id * d.n_cls + c] = to;
			if (too_many(p, s.n, d.n_cls))
				break;
		}
	}
	free(s.pool);
	free(s.at);
	free(s.slot);
	free(s.hash);
	free(s.mark);
	free(s.cur);
	free(s.stack);
	return draft_finish(p, &d);
}

/* ---- a step function ---- */

struct dfa *dfa_from_lazy(struct dfa_pool *p, const struct dfa_lazy *l)
{
	struct draft d = { .n_cls = 1 };
	struct ids ids = { 0 }, kinds = { 0 };
	char sample[256];
	bool is_new;

	if (p->why)
		return NULL;
	for (const char *b = l->bytes; *b; b++) {
		int c = 1 + ids_of(&kinds, l->kind ? l->kind(l->ctx, *b) : (uint8_t)*b, &is_new);

		d.cls[(uint8_t)*b] = (uint8_t)c;
		if (is_new)
			sample[d.n_cls++] = *b;
	}
	ids_fini(&kinds);
	ids_of(&ids, l->first, &is_new);
	draft_state(&d, l->accept(l->ctx, l->first) ? 0 : -1);
	for (int s = 0; s < ids.n && !too_many(p, ids.n, d.n_cls) && dfa_spend(p, (size_t)d.n_cls); s++) {
		for (int c = 1; c < d.n_cls; c++) {
			uint64_t to;
			int id;

			if (!l->step(l->ctx, ids.key[s], sample[c], &to))
				continue;
			id = ids_of(&ids, to, &is_new);
			if (is_new)
				draft_state(&d, l->accept(l->ctx, to) ? 0 : -1);
			d.next[s * d.n_cls + c] = id;
		}
	}
	ids_fini(&ids);
	return draft_finish(p, &d);
}

/* ---- two at once ---- */

enum mode { AND, OR, MINUS, MARK, KEYS };

struct pairing {
	enum mode mode;
	int bit;            /* MARK */
	const int32_t *map; /* KEYS */
};

static int32_t pair_label(const struct pairing *m, int32_t a, int32_t b)
{
	switch (m->mode) {
	case AND: return b >= 0 ? a : -1;
	case OR: return a >= 0 ? a : b;
	case MINUS: return b < 0 ? a : -1;
	case MARK: return a < 0 ? -1 : a | (b >= 0) << m->bit;
	case KEYS: return a == DFA_DROPPED ? -1 : a >= 0 ? a : b >= 0 ? m->map[b] : -1;
	}
	return -1;
}

static struct dfa *pair(struct dfa_pool *p, const struct dfa *a, const struct dfa *b, const struct pairing *m)
{
	bool either = m->mode == OR || m->mode == KEYS;
	struct draft d = { 0 };
	struct ids ids = { 0 }, cls = { 0 };
	int ca[256], cb[256];
	bool is_new;

	if (!a || !b || p->why)
		return NULL;
	for (int i = 0; i < 256; i++) {
		int c = ids_of(&cls, (uint64_t)a->cls[i] << 8 | b->cls[i], &is_new);

		ca[c] = a->cls[i];
		cb[c] = b->cls[i];
		d.cls[i] = (uint8_t)c;
	}
	d.n_cls = cls.n;
	ids_fini(&cls);
	/* A state of one, and of the other; 0 where there is none. */
	ids_of(&ids, (uint64_t)(a->n ? 1 : 0) << 32 | (b->n ? 1 : 0), &is_new);
	draft_state(&d, pair_label(m, a->n ? a->label[0] : -1, b->n ? b->label[0] : -1));
	for (int s = 0; s < ids.n && !too_many(p, ids.n, d.n_cls) && dfa_spend(p, (size_t)d.n_cls); s++) {
		int sa = (int)(ids.key[s] >> 32) - 1, sb = (int)(ids.key[s] & 0xFFFFFFFF) - 1;

		for (int c = 0; c < d.n_cls; c++) {
			int ta = sa < 0 ? -1 : a->next[sa * a->n_cls + ca[c]];
			int tb = sb < 0 ? -1 : b->next[sb * b->n_cls + cb[c]], id;

			if ((ta < 0 && (!either || tb < 0)) || (tb < 0 && m->mode == AND))
				continue;
			id = ids_of(&ids, (uint64_t)(ta + 1) << 32 | (uint64_t)(tb + 1), &is_new);
			if (is_new)
				draft_state(&d, pair_label(m, ta < 0 ? -1 : a->label[ta], tb < 0 ? -1 : b->label[tb]));
			d.next[s * d.n_cls + c] = id;
		}
	}
	ids_fini(&ids);
	return draft_finish(p, &d);
}

struct dfa *dfa_and(struct dfa_pool *p, const struct dfa *a, const struct dfa *b)
{
	return a == b ? (struct dfa *)(uintptr_t)a : pair(p, a, b, &(struct pairing){ .mode = AND });
}

struct dfa *dfa_or(struct dfa_pool *p, const struct dfa *a, const struct dfa *b)
{
	return a == b ? (struct dfa *)(uintptr_t)a : pair(p, a, b, &(struct pairing){ .mode = OR });
}

struct dfa *dfa_minus(struct dfa_pool *p, const struct dfa *a, const struct dfa *b)
{
	return pair(p, a, b, &(struct pairing){ .mode = MINUS });
}

struct dfa *dfa_mark(struct dfa_pool *p, const struct dfa *a, const struct dfa *b, int bit)
{
	return pair(p, a, b, &(struct pairing){ .mode = MARK, .bit = bit });
}

struct dfa *dfa_keys(struct dfa_pool *p, const struct dfa *keys, const struct dfa *names, const int32_t *map)
{
	return pair(p, keys, names, &(struct pairing){ .mode = KEYS, .map = map });
}

struct dfa *dfa_relabel(struct dfa_pool *p, const struct dfa *a, const int32_t *map)
{
	struct draft d = { 0 };

	if (!a || p->why)
		return NULL;
	d.n_cls = a->n_cls;
	memcpy(d.cls, a->cls, sizeof d.cls);
	if (!a->n)
		draft_state(&d, -1);
	for (int s = 0; s < a->n; s++) {
		int32_t l = a->label[s];

		draft_state(&d, l < 0 ? -1 : map[l]);
		memcpy(d.next + (size_t)s * (size_t)d.n_cls, a->next + (size_t)s * (size_t)d.n_cls,
		       (size_t)d.n_cls * sizeof *d.next);
	}
	dfa_spend(p, (size_t)a->n);
	return draft_finish(p, &d);
}
