/* net.c - from rules (rules.h) to a network of places (struct net in tables.h).
 *
 * What holds no rule that holds itself is a regular language: the longest stretches
 * of such become words, automata over bytes.  What is left are rules that call each
 * other, each a small automaton over words and calls.  Places from which no end can
 * be reached are left out, empty moves are followed here and not in a walk, and what
 * a walk could not do (a rule that begins with itself) is refused. */
#include <stdlib.h>
#include <string.h>

#include "text/grammar/rules.h"

enum {
	STATES_MAX = 100000, /* of the network, and as many edges */
	STEPS_MAX = 200000,  /* of all places */
	WORK_MAX = 4000000,  /* edges of all words before they are automata */
	NESTED_MAX = 3000,   /* calls of the functions below: of 200 bytes of stack or so */
};

enum edge_kind { EDGE_EMPTY, EDGE_WORD, EDGE_VALUE, EDGE_CALL };

struct edge {
	int32_t from, to, x;   /* x: the word's shape, the value's node, the rule */
	int32_t more, more_in; /* the next edge of the same `from`; of the same `to` */
	uint8_t kind;
};

struct maker {
	struct rules *r;
	struct grammar *g; /* whose nodes and shapes the rules name */
	struct dfa_pool *p;
	struct err *err;
	int rule; /* at hand */
	int nested;
	size_t work;

	struct edge *edge;
	int n_edge, cap_edge;
	int32_t *out, *in, *rule_of; /* by state: first edges, -1 none */
	int n_state, cap_state;
	int32_t *start, *end; /* by rule; -1: not made */
	int32_t *todo;        /* rules to be made */
	int n_todo;
	bool *regular;                /* by expression */
	int32_t *word, *word_of_rule; /* shapes of expressions that were made words, of whole rules; NO_WORD, NOT_YET */
	const struct dfa **d;         /* by shape */
	int n_word, cap_word;

	bool *live, *can, *empty, *can_be_empty; /* states, rules: to the end at all; without a byte */
};
enum { NOT_YET = -1, NO_WORD = -2 };

static int fail(struct maker *m, size_t at, int code, const char *what)
{
	return rules_fail(m->r, m->rule, at, m->err, code, "%s", what);
}

static int too_much(struct maker *m, size_t at)
{
	return fail(m, at, E_LIMIT, m->p->why ? m->p->why : "it takes too much to prepare");
}

/* ---- what is regular ---- */

struct refs {
	int32_t *left; /* by rule: those in it that are not known to be regular */
	struct {
		int32_t owner, more;
	} * ref;
	int32_t *first; /* by rule: where it is */
	int n, cap;
};

/* Notes what rule `owner` holds.  last: e is the end of it. */
static int note(struct maker *m, struct refs *f, int owner, int e, bool last)
{
	struct expr *x = &m->r->expr[e];
	int rc = 0;

	if (m->nested++ > NESTED_MAX)
		return too_much(m, x->at);
	x->loop = x->kind == EXPR_RULE && x->rule == owner && last;
	if (x->kind == EXPR_VALUE)
		f->left[owner] = INT32_MAX / 2;
	if (x->kind == EXPR_RULE && !x->loop) {
		if (f->n == f->cap) {
			f->cap = f->cap ? 2 * f->cap : 64;
			f->ref = xrealloc(f->ref, size_mul((size_t)f->cap, sizeof *f->ref));
		}
		f->ref[f->n].owner = owner;
		f->ref[f->n].more = f->first[x->rule];
		f->first[x->rule] = f->n++;
		f->left[owner]++;
	}
	for (int c = x->first; c >= 0 && !rc; c = m->r->expr[c].next)
		rc = note(m, f, owner, c,
		          last && (x->kind == EXPR_ALT || (x->kind == EXPR_SEQ && m->r->expr[c].next < 0) ||
		                   (x->kind == EXPR_REPEAT && x->max == 1)));
	m->nested--;
	return rc;
}

static int find_regular_rules(struct maker *m)
{
	struct rules *r = m->r;
	struct refs f = { 0 };
	int rc = 0, n = 0;

	f.left = xcalloc((size_t)r->n_rule + 1, sizeof *f.left);
	f.first = xmalloc(size_mul((size_t)r->n_rule + 1, sizeof *f.first));
	memset(f.first, 0xFF, (size_t)r->n_rule * sizeof *f.first);
	for (m->rule = 0; m->rule < r->n_rule && !rc; m->rule++)
		if (r->rule[m->rule].body >= 0)
			rc = note(m, &f, m->rule, r->rule[m->rule].body, true);
	m->n_todo = 0;
	for (int i = 0; i < r->n_rule && !rc; i++)
		if (!f.left[i])
			m->todo[m->n_todo++] = i;
	while (n < m->n_todo) {
		int i = m->todo[n++];

		r->rule[i].regular = true;
		for (int k = f.first[i]; k >= 0; k = f.ref[k].more)
			if (!--f.left[f.ref[k].owner])
				m->todo[m->n_todo++] = f.ref[k].owner;
	}
	m->n_todo = 0;
	free(f.left);
	free(f.first);
	free(f.ref);
	return rc;
}

/* Makes the net of an expression and all that is in it; their depth was checked before. */
static bool find_regular(struct maker *m, int e)
{
	const struct expr *x = &m->r->expr[e];
	bool all = x->kind == EXPR_RULE ? m->r->rule[x->rule].regular && !x->loop : x->kind != EXPR_VALUE;

	for (int c = x->first; c >= 0; c = m->r->expr[c].next)
		all &= find_regular(m, c);
	return m->regular[e] = all;
}

/* ---- words ---- */

/* From state `from` to `to` by e, which is regular.  self: the rule it stands in,
 * which begins in state `begin`. */
static int put_word(struct maker *m, struct nfa *f, int e, int from, int to, int begin)
{
	const struct expr *x = &m->r->expr[e];
	int rc = 0, at = from, next;

	if (m->nested > NESTED_MAX || f->n_edge > NFA_EDGES_MAX || f->n > NFA_EDGES_MAX ||
	    m->work + (size_t)f->n > WORK_MAX)
		return too_much(m, x->at);
	m->nested++;
	switch (x->kind) {
	case EXPR_TEXT: nfa_empty(f, nfa_text(f, from, x->p, x->n), to, NFA_EMPTY); break;
	case EXPR_CLASS:
		for (int i = x->range; i < x->range + x->n_range; i++)
			nfa_utf8(f, from, m->r->range[i].lo, m->r->range[i].hi, to);
		break;
	case EXPR_RULE:
		if (x->loop) {
			nfa_empty(f, from, begin, NFA_EMPTY);
			break;
		}
		at = nfa_state(f);
		nfa_empty(f, from, at, NFA_EMPTY);
		rc = put_word(m, f, m->r->rule[x->rule].body, at, to, at);
		break;
	case EXPR_SEQ:
		for (int c = x->first; c >= 0 && !rc; c = m->r->expr[c].next, at = next) {
			next = nfa_state(f);
			rc = put_word(m, f, c, at, next, begin);
		}
		nfa_empty(f, at, to, NFA_EMPTY);
		break;
	case EXPR_ALT:
		for (int c = x->first; c >= 0 && !rc; c = m->r->expr[c].next)
			rc = put_word(m, f, c, from, to, begin);
		break;
	case EXPR_REPEAT:
		/* What it loops back to is its own: others may begin at `from`. */
		at = nfa_state(f);
		nfa_empty(f, from, at, NFA_EMPTY);
		for (int i = 0; i < (x->max < 0 ? x->min : x->max) && !rc; i++, at = next) {
			next = nfa_state(f);
			if (i >= x->min)
				nfa_empty(f, at, to, NFA_EMPTY);
			rc = put_word(m, f, x->first, at, next, begin);
		}
		nfa_empty(f, at, to, NFA_EMPTY);
		if (x->max < 0 && !rc) {
			next = nfa_state(f);
			nfa_empty(f, at, next, NFA_EMPTY);
			rc = put_word(m, f, x->first, next, at, begin);
		}
		break;
	case EXPR_WORD:
	case EXPR_VALUE: break; /* by themselves: see word_of */
	}
	m->nested--;
	return rc;
}

static int add_word(struct maker *m, const struct dfa *d)
{
	if (!d->n)
		return NO_WORD;
	if (m->n_word == m->cap_word) {
		m->cap_word = m->cap_word ? 2 * m->cap_word : 32;
		m->d = xrealloc(m->d, size_mul((size_t)m->cap_word, sizeof *m->d));
	}
	m->d[m->n_word] = d;
	return m->n_word++;
}

/* *shape of e; of e and those after it while they are regular (list), or of all in it
 * that are (alternatives). */
static int word_of(struct maker *m, int e, bool list, int32_t *shape)
{
	struct expr *x = &m->r->expr[e];
	bool alternatives = x->kind == EXPR_ALT && !m->regular[e];
	bool alone = !list || x->next < 0 || !m->regular[x->next];
	int32_t *kept = alone && x->kind == EXPR_RULE ? &m->word_of_rule[x->rule] : &m->word[e];
	struct nfa f;
	int rc = 0, at = 0, end;

	if (*kept != NOT_YET) {
		*shape = *kept;
		return 0;
	}
	if (x->kind == EXPR_WORD) {
		*shape = *kept = add_word(m, x->d);
		return 0;
	}
	nfa_init(&f);
	end = nfa_state(&f);
	nfa_accept(&f, end, 0);
	for (int c = alternatives ? x->first : e; c >= 0 && !rc; c = m->r->expr[c].next) {
		int next;

		if (alternatives) {
			if (m->regular[c])
				rc = put_word(m, &f, c, 0, end, -1);
			continue;
		}
		if (!m->regular[c] || m->r->expr[c].kind == EXPR_WORD)
			break;
		next = nfa_state(&f);
		rc = put_word(m, &f, c, at, next, -1);
		at = next;
		if (!list)
			break;
	}
	if (!alternatives)
		nfa_empty(&f, at, end, NFA_EMPTY);
	m->work += (size_t)f.n_edge + (size_t)f.n;
	if (!rc) {
		const struct dfa *d = dfa_from_nfa(m->p, &f);

		rc = d ? 0 : too_much(m, x->at);
		if (d)
			*shape = *kept = add_word(m, d);
	}
	nfa_fini(&f);
	return rc;
}

/* ---- the network ---- */

static int state_new(struct maker *m)
{
	if (m->n_state == m->cap_state) {
		size_t cap = m->cap_state ? 2 * (size_t)m->cap_state : 64;

		m->out = xrealloc(m->out, size_mul(cap, sizeof *m->out));
		m->in = xrealloc(m->in, size_mul(cap, sizeof *m->in));
		m->rule_of = xrealloc(m->rule_of, size_mul(cap, sizeof *m->rule_of));
		m->cap_state = (int)cap;
	}
	m->out[m->n_state] = m->in[m->n_state] = -1;
	m->rule_of[m->n_state] = m->rule;
	return m->n_state++;
}

static void edge_new(struct maker *m, enum edge_kind kind, int from, int to, int x)
{
	if (m->n_edge == m->cap_edge) {
		m->cap_edge = m->cap_edge ? 2 * m->cap_edge : 128;
		m->edge = xrealloc(m->edge, size_mul((size_t)m->cap_edge, sizeof *m->edge));
	}
	m->edge[m->n_edge] = (struct edge){ from, to, x, m->out[from], m->in[to], (uint8_t)kind };
	m->out[from] = m->in[to] = m->n_edge++;
}

static void word_edge(struct maker *m, int from, int to, int32_t shape)
{
	if (shape == NO_WORD)
		return;
	if (m->d[shape]->label[0] >= 0)
		edge_new(m, EDGE_EMPTY, from, to, 0);
	if (!m->d[shape]->last[0])
		edge_new(m, EDGE_WORD, from, to, shape);
}

static void need_rule(struct maker *m, int rule)
{
	if (m->start[rule] >= 0)
		return;
	m->start[rule] = m->end[rule] = 0; /* soon */
	m->todo[m->n_todo++] = rule;
}

static void call_edge(struct maker *m, int from, int to, int rule)
{
	edge_new(m, EDGE_CALL, from, to, rule);
	need_rule(m, rule);
}

/* The shape of calls in a node whose labels lead to rules (struct expr); NULL: it is none. */
static struct shape *heads_of(const struct maker *m, int32_t node)
{
	struct shape *s = m->g->first[node] < m->g->first[node + 1] ? &m->g->shape[m->g->first[node]] : NULL;

	return s && s->kind == SHAPE_CALLS && s->places ? s : NULL;
}

static void value_edge(struct maker *m, int from, int to, const struct expr *x)
{
	const struct shape *heads = heads_of(m, x->rule);

	edge_new(m, EDGE_VALUE, from, to, x->rule);
	for (int i = 0; heads && i < heads->n_node; i++)
		need_rule(m, heads->node[i]);
}

static int put_expr(struct maker *m, int e, int from, int to);

static int put_sequence(struct maker *m, int first, int from, int to)
{
	int32_t shape = NO_WORD;
	int at = from, rc = 0;

	for (int c = first; c >= 0 && !rc;) {
		int next = state_new(m);

		if (m->regular[c] && m->r->expr[c].kind != EXPR_WORD) {
			if (!(rc = word_of(m, c, true, &shape)))
				word_edge(m, at, next, shape);
			while (c >= 0 && m->regular[c] && m->r->expr[c].kind != EXPR_WORD)
				c = m->r->expr[c].next;
		} else {
			rc = put_expr(m, c, at, next);
			c = m->r->expr[c].next;
		}
		at = next;
	}
	if (!rc)
		edge_new(m, EDGE_EMPTY, at, to, 0);
	return rc;
}

static int put_repeat(struct maker *m, const struct expr *x, int from, int to)
{
	int first = x->first, min = x->min, max = x->max, at = state_new(m), next, rc = 0;

	/* What it loops back to is its own: others may begin at `from`. */
	edge_new(m, EDGE_EMPTY, from, at, 0);
	for (int i = 0; i < (max < 0 ? min : max) && !rc; i++, at = next) {
		next = state_new(m);
		if (i >= min)
			edge_new(m, EDGE_EMPTY, at, to, 0);
		rc = put_expr(m, first, at, next);
	}
	if (rc)
		return rc;
	edge_new(m, EDGE_EMPTY, at, to, 0);
	if (max >= 0)
		return 0;
	next = state_new(m);
	edge_new(m, EDGE_EMPTY, at, next, 0);
	return put_expr(m, first, next, at);
}

static int put_expr(struct maker *m, int e, int from, int to)
{
	const struct expr *x = &m->r->expr[e];
	int32_t shape = NO_WORD;
	int rc = 0;

	if (m->nested > NESTED_MAX || m->n_state > STATES_MAX || m->n_edge > STATES_MAX)
		return too_much(m, x->at);
	m->nested++;
	if (m->regular[e]) {
		if (!(rc = word_of(m, e, false, &shape)))
			word_edge(m, from, to, shape);
	} else if (x->kind == EXPR_RULE) {
		if (x->loop)
			edge_new(m, EDGE_EMPTY, from, m->start[m->rule], 0);
		else
			call_edge(m, from, to, x->rule);
	} else if (x->kind == EXPR_VALUE) {
		value_edge(m, from, to, x);
	} else if (x->kind == EXPR_SEQ) {
		rc = put_sequence(m, x->first, from, to);
	} else if (x->kind == EXPR_REPEAT) {
		rc = put_repeat(m, x, from, to);
	} else {
		bool some = false;

		for (int c = x->first; c >= 0 && !rc; c = m->r->expr[c].next) {
			if (m->regular[c])
				some = true;
			else
				rc = put_expr(m, c, from, to);
		}
		if (some && !rc && !(rc = word_of(m, e, false, &shape)))
			word_edge(m, from, to, shape);
	}
	m->nested--;
	return rc;
}

/* whole: the expression that is rule `root` and nothing else. */
static int put_rules(struct maker *m, int root, int whole)
{
	int rc = 0;

	m->todo[m->n_todo++] = root;
	for (int i = 0; i < m->n_todo && !rc; i++) {
		m->rule = m->todo[i];
		m->start[m->rule] = state_new(m);
		m->end[m->rule] = state_new(m);
		rc = put_expr(m, m->rule == root && m->regular[whole] ? whole : m->r->rule[m->rule].body,
		              m->start[m->rule], m->end[m->rule]);
	}
	return rc;
}

/* ---- what can be reached ---- */

/* From which states the end of their rule can be reached: state[], and which rules
 * so have an end: rule[].  words: by any way; else without a byte. */
static void find_ends(struct maker *m, bool words, bool *state, bool *rule)
{
	int32_t *stack = xmalloc(size_mul((size_t)m->n_state + 1, sizeof *stack)), n = 0;
	int32_t *wait = xmalloc(size_mul((size_t)m->r->n_rule + 1, sizeof *wait)); /* by rule: edges that need it */
	int32_t *more = xmalloc(size_mul((size_t)m->n_edge + 1, sizeof *more));

	memset(wait, 0xFF, (size_t)m->r->n_rule * sizeof *wait);
	for (int i = 0; i < m->n_todo; i++) {
		state[m->end[m->todo[i]]] = true;
		stack[n++] = m->end[m->todo[i]];
	}
	while (n) {
		int s = stack[--n], own = m->rule_of[s];

		for (int e = m->in[s]; e >= 0; e = m->edge[e].more_in) {
			const struct edge *x = &m->edge[e];

			if (x->kind == EDGE_CALL && !rule[x->x]) {
				more[e] = wait[x->x];
				wait[x->x] = e;
			} else if ((x->kind == EDGE_EMPTY || x->kind == EDGE_CALL || words) && !state[x->from]) {
				state[x->from] = true;
				stack[n++] = x->from;
			}
		}
		if (s != m->start[own] || rule[own])
			continue;
		rule[own] = true;
		for (int e = wait[own]; e >= 0; e = more[e])
			if (!state[m->edge[e].from]) {
				state[m->edge[e].from] = true;
				stack[n++] = m->edge[e].from;
			}
	}
	free(stack);
	free(wait);
	free(more);
}

/* ---- places ---- */

struct places {
	int32_t *place; /* by state; -1: none */
	int32_t *state; /* by place */
	int n;
	struct net_step *step;
	int n_step, cap_step;
	int32_t *at; /* by place */
	bool *ends;
	uint32_t *mark, epoch; /* by state */
	int32_t *stack;
};

static int place_of(struct places *p, int state)
{
	if (p->place[state] < 0) {
		p->state[p->n] = state;
		p->place[state] = p->n++;
	}
	return p->place[state];
}

/* All that can come at a place, by empty moves too. */
static void make_place(struct maker *m, struct places *p, int place)
{
	int n = 0, s = p->state[place];

	p->at[place] = p->n_step;
	p->epoch++;
	p->mark[s] = p->epoch;
	p->stack[n++] = s;
	while (n) {
		s = p->stack[--n];
		p->ends[place] |= s == m->end[m->rule_of[s]];
		for (int e = m->out[s]; e >= 0; e = m->edge[e].more) {
			const struct edge *x = &m->edge[e];
			bool pass = x->kind == EDGE_EMPTY || (x->kind == EDGE_CALL && m->can_be_empty[x->x]);

			if (!m->live[x->to] || (x->kind == EDGE_CALL && !m->can[x->x]))
				continue;
			if (pass && p->mark[x->to] != p->epoch) {
				p->mark[x->to] = p->epoch;
				p->stack[n++] = x->to;
			}
			if (x->kind == EDGE_EMPTY)
				continue;
			if (p->n_step == p->cap_step) {
				p->cap_step = p->cap_step ? 2 * p->cap_step : 64;
				p->step = xrealloc(p->step, size_mul((size_t)p->cap_step, sizeof *p->step));
			}
			p->step[p->n_step++] = (struct net_step){
				.shape = x->kind == EDGE_WORD ? x->x : -1,
				.node = x->kind == EDGE_VALUE ? x->x : -1,
				.rule = x->kind == EDGE_CALL ? place_of(p, m->start[x->x]) : -1,
				.to = place_of(p, x->to),
			};
		}
	}
	p->at[place + 1] = p->n_step;
}

struct begins {
	int32_t n, depth;
}; /* n -1: being looked at; 0: not yet */

/* How many words may begin at a place.  A rule that begins with itself comes back to
 * where it is being looked at. */
static int count_begins(struct maker *m, const struct places *p, struct begins *b, int place)
{
	int rc = 0, n = 0, depth = 0;
	int rule = m->rule_of[p->state[place]];

	if (b[place].n > 0)
		return 0;
	m->rule = rule;
	if (b[place].n < 0)
		return fail(
			m, m->r->rule[rule].at, E_UNSUPPORTED,
			"it begins with itself (left recursion), which is not supported; write it with * or with the rule at the end");
	b[place].n = -1;
	for (int i = p->at[place]; i < p->at[place + 1] && !rc; i++) {
		const struct net_step *s = &p->step[i];

		if (s->rule < 0) {
			n++;
			continue;
		}
		if (m->nested++ > RULES_DEPTH_MAX)
			return fail(m, m->r->rule[rule].at, E_LIMIT, "more than 200 rules begin with each other");
		rc = count_begins(m, p, b, s->rule);
		m->nested--;
		n += b[s->rule].n;
		depth = b[s->rule].depth > depth ? b[s->rule].depth : depth;
		if (n > THREADS_MAX)
			break;
	}
	m->rule = rule;
	if (!rc && depth >= RULES_DEPTH_MAX)
		rc = fail(m, m->r->rule[rule].at, E_LIMIT, "more than 200 rules begin with each other");
	if (!rc && n > THREADS_MAX)
		rc = fail(m, m->r->rule[rule].at, E_LIMIT,
		          "more than 64 alternatives with rules that hold themselves begin at one place");
	b[place] = (struct begins){ n ? n : 1, depth + 1 };
	return rc;
}

/* Puts places in the stead of the rules that calls lead to. */
static int place_heads(struct maker *m, struct places *p)
{
	for (int i = 0; i < m->n_edge; i++) {
		struct shape *heads = m->edge[i].kind == EDGE_VALUE ? heads_of(m, m->edge[i].x) : NULL;

		for (int k = 0; heads && k < heads->n_node; k++) {
			int rule = heads->node[k];

			if (!m->can[rule])
				return fail(m, m->r->rule[rule].at, E_FORMAT, "no text fulfils it");
			heads->node[k] = place_of(p, m->start[rule]);
		}
	}
	return 0;
}

static int make_places(struct maker *m, struct places *p)
{
	struct begins *b;
	int rc = place_heads(m, p);

	for (int i = 0; i < p->n && !rc; i++) {
		make_place(m, p, i);
		m->rule = m->rule_of[p->state[i]];
		if (p->n_step > STEPS_MAX)
			rc = too_much(m, m->r->rule[m->rule].at);
	}
	b = xcalloc((size_t)p->n + 1, sizeof *b);
	m->nested = 0;
	for (int i = 0; i < p->n && !rc; i++)
		rc = count_begins(m, p, b, i);
	free(b);
	return rc;
}

/* ---- tables ---- */

static void *kept(struct dfa_pool *p, const void *from, int n, size_t size)
{
	void *to = arena_zalloc(&p->a, ((size_t)n + 1) * size);

	if (n)
		memcpy(to, from, (size_t)n * size);
	return to;
}

static void make_tables(struct maker *m, struct places *p, struct grammar *g)
{
	struct shape *shape = arena_zalloc(&m->p->a, ((size_t)g->n_shape + (size_t)m->n_word + 1) * sizeof *shape);
	struct net *net = arena_zalloc(&m->p->a, sizeof *net);

	if (g->n_shape)
		memcpy(shape, g->shape, (size_t)g->n_shape * sizeof *shape);
	for (int i = 0; i < p->n_step; i++)
		if (p->step[i].shape >= 0)
			p->step[i].shape += g->n_shape;
	g->shape = shape;
	for (int i = 0; i < m->n_word; i++)
		g->shape[g->n_shape++] = (struct shape){ .kind = SHAPE_WORD, .d = m->d[i] };
	net->shape = g->n_shape;
	g->shape[g->n_shape++] = (struct shape){ .kind = SHAPE_NET };
	net->at = kept(m->p, p->at, p->n + 1, sizeof *net->at);
	net->step = kept(m->p, p->step, p->n_step, sizeof *net->step);
	net->ends = kept(m->p, p->ends, p->n, sizeof *net->ends);
	net->tail = arena_zalloc(&m->p->a, (size_t)p->n + 1);
	for (int i = 0; i < p->n; i++)
		net->tail[i] = p->ends[i] && p->at[i] == p->at[i + 1];
	g->net = net;
	g->root = -1;
}

static int finish(struct maker *m, int root, struct grammar *g)
{
	struct places p = { 0 };
	size_t n = (size_t)m->n_state + 2;
	int rc;

	m->live = xcalloc(n, 1);
	m->empty = xcalloc(n, 1);
	m->can = xcalloc((size_t)m->r->n_rule + 1, 1);
	m->can_be_empty = xcalloc((size_t)m->r->n_rule + 1, 1);
	find_ends(m, true, m->live, m->can);
	find_ends(m, false, m->empty, m->can_be_empty);
	m->rule = root;
	if (!m->can[root])
		return fail(m, m->r->rule[root].at, E_FORMAT, "no text fulfils it");
	p.place = xmalloc(n * sizeof *p.place);
	memset(p.place, 0xFF, n * sizeof *p.place);
	p.state = xcalloc(n, sizeof *p.state);
	p.at = xcalloc(n + 1, sizeof *p.at);
	p.ends = xcalloc(n, 1);
	p.mark = xcalloc(n, sizeof *p.mark);
	p.stack = xmalloc(n * sizeof *p.stack);
	place_of(&p, m->start[root]);
	rc = make_places(m, &p);
	if (!rc)
		make_tables(m, &p, g);
	free(p.place);
	free(p.state);
	free(p.at);
	free(p.ends);
	free(p.mark);
	free(p.stack);
	free(p.step);
	return rc;
}

static int32_t *minus_ones(int n)
{
	int32_t *p = xmalloc(size_mul((size_t)n + 1, sizeof *p));

	memset(p, 0xFF, ((size_t)n + 1) * sizeof *p);
	return p;
}

int net_make(struct rules *r, int root, struct dfa_pool *p, struct grammar *g, struct err *err)
{
	struct maker m = { .r = r, .g = g, .p = p, .err = err, .rule = root };
	int whole = r->rule[root].body, rc;

	/* All of it: where it is regular, one word. */
	if (r->expr[whole].kind != EXPR_WORD && (whole = expr_new(r, EXPR_RULE, r->rule[root].at)) < 0)
		return err_set(err, E_LIMIT, "more than %d elements", EXPRS_MAX);
	if (r->expr[whole].kind == EXPR_RULE)
		r->expr[whole].rule = root;
	m.start = minus_ones(r->n_rule);
	m.end = minus_ones(r->n_rule);
	m.todo = minus_ones(r->n_rule);
	m.word = minus_ones(r->n_expr);
	m.word_of_rule = minus_ones(r->n_rule);
	m.regular = xcalloc((size_t)r->n_expr + 1, 1);
	rc = find_regular_rules(&m);
	for (int i = 0; i < r->n_rule && !rc; i++)
		if (r->rule[i].body >= 0)
			find_regular(&m, r->rule[i].body);
	if (!rc)
		find_regular(&m, whole);
	m.nested = 0;
	if (!rc)
		rc = put_rules(&m, root, whole);
	m.nested = 0;
	if (!rc)
		rc = finish(&m, root, g);
	free(m.start);
	free(m.end);
	free(m.todo);
	free(m.word);
	free(m.word_of_rule);
	free(m.regular);
	free(m.d);
	free(m.edge);
	free(m.out);
	free(m.in);
	free(m.rule_of);
	free(m.live);
	free(m.can);
	free(m.empty);
	free(m.can_be_empty);
	return rc;
}
