/* jinja_scope.c - every name to a slot, once, by Jinja's compile-time rules.
 *
 * Jinja decides at compile time where a name lives.  A scope (loop body, macro, set
 * block, with) is looked through first, statement by statement but not into inner
 * scopes: a name read first is fetched from the context when the scope is entered, a
 * name assigned first begins as a copy of the outer one or unset; branches of an if
 * share their scope, and a name assigned in only some of them begins as the outer
 * one.  Then the inner scopes are done.  This file follows that order, because
 * templates depend on its corners (an assignment further down hides a context
 * variable from a loop further up).
 *
 * Also checked here, since it needs to know which names the template defines: calls
 * of unknown functions and methods, and filter and test names passed as strings. */
#include "text/jinja/jinja.h"

#include <string.h>

/* A name known in a scope.  The bindings of one name form a stack, innermost
 * scope first; a binding is invisible again when the if branch that made it ends,
 * until the branches are merged. */
struct binding {
	struct binding *outer;
	struct binding *sibling; /* next of the same scope */
	struct frame *frame;
	int name;
	uint16_t slot;
	enum load_kind load;
	struct binding *from; /* LOAD_ALIAS */
	bool visible, stored;
	int count; /* branches that store it, while merging */
};

struct fn {
	struct fn *outer;
	uint32_t n_slots;
};

struct frame {
	struct frame *outer;
	struct fn *fn;
	struct binding *first;
	uint32_t n, next_slot;
};

/* A change that a branch made, to be undone and then merged. */
struct change {
	struct binding *b;
	bool made_visible, made_stored;
	enum load_kind load;
	struct binding *from;
};

struct scoper {
	struct jcompile *c;
	struct frame *f;
	struct change *log;
	size_t n_log, cap_log;
};

static void log_change(struct scoper *s, struct change ch)
{
	if (s->n_log == s->cap_log) {
		struct change *old = s->log;

		s->cap_log = s->cap_log ? s->cap_log * 2 : 64;
		s->log = arena_alloc(&s->c->t->mem, size_mul(s->cap_log, sizeof *s->log));
		if (s->n_log)
			memcpy(s->log, old, s->n_log * sizeof *old);
	}
	s->log[s->n_log++] = ch;
}

static struct binding *visible_from(struct binding *b)
{
	while (b && !b->visible)
		b = b->outer;
	return b;
}

static struct binding *find_binding(struct scoper *s, int name)
{
	return visible_from(s->c->t->names[name].top);
}

/* The name as scopes outside of the current one know it. */
static struct binding *find_outer(struct scoper *s, int name)
{
	struct binding *b = s->c->t->names[name].top;

	if (b && b->frame == s->f)
		b = b->outer;
	return visible_from(b);
}

static struct binding *define(struct scoper *s, int name, enum load_kind load, struct binding *from)
{
	struct jname *nm = &s->c->t->names[name];
	struct binding *b = nm->top;

	if (!b || b->frame != s->f) {
		if (s->f->next_slot >= UINT16_MAX)
			jc_fail(s->c, E_LIMIT, 0, "more than %d variables", UINT16_MAX);
		b = arena_zalloc(&s->c->t->mem, sizeof *b);
		b->outer = nm->top;
		b->frame = s->f;
		b->name = name;
		b->slot = (uint16_t)s->f->next_slot++;
		b->sibling = s->f->first;
		s->f->first = b;
		s->f->n++;
		if (s->f->next_slot > s->f->fn->n_slots)
			s->f->fn->n_slots = s->f->next_slot;
		nm->top = b;
	}
	b->load = load;
	b->from = from;
	if (!b->visible) {
		b->visible = true;
		log_change(s, (struct change){ .b = b, .made_visible = true });
	}
	return b;
}

static void set_stored(struct scoper *s, struct binding *b)
{
	if (b->stored)
		return;
	b->stored = true;
	log_change(s, (struct change){ .b = b, .made_stored = true });
}

static void load_name(struct scoper *s, int name)
{
	s->c->t->names[name].read = true;
	if (!find_binding(s, name))
		define(s, name, LOAD_RESOLVE, NULL);
}

static void store_name(struct scoper *s, int name)
{
	struct binding *b = find_binding(s, name), *outer;

	if (!b || b->frame != s->f) {
		outer = find_outer(s, name);
		b = define(s, name, outer ? LOAD_ALIAS : LOAD_UNDEF, outer);
	}
	set_stored(s, b);
}

static struct binding *param(struct scoper *s, int name)
{
	struct binding *b = define(s, name, LOAD_PARAM, NULL);

	set_stored(s, b);
	return b;
}

/* ---- first pass: what a scope knows ---- */

static void look_nodes(struct scoper *s, const struct nodes *list);

static void look_target(struct scoper *s, const struct node *n, bool as_param)
{
	if (n->kind == N_NSREF) {
		load_name(s, n->name);
	} else if (n->kind == N_NAME) {
		if (as_param)
			param(s, n->name);
		else
			store_name(s, n->name);
	} else {
		for (uint32_t i = 0; i < n->list.n; i++)
			look_target(s, n->list.v[i], as_param);
	}
}

static void look_expr(struct scoper *s, const struct node *n)
{
	if (!n)
		return;
	if (n->kind == N_NAME)
		load_name(s, n->name);
	look_expr(s, n->a);
	look_expr(s, n->b);
	look_expr(s, n->c);
	look_expr(s, n->star);
	look_expr(s, n->starstar);
	for (uint32_t i = 0; i < n->list.n; i++)
		look_expr(s, n->list.v[i]);
	for (uint32_t i = 0; n->kind == N_DICT && i < n->body.n; i++)
		look_expr(s, n->body.v[i]);
	for (uint32_t i = 0; i < n->n_kw; i++)
		look_expr(s, n->kw[i].value);
}

/* Undoes the changes in the log since mark; returns them as an array of *n. */
static struct change *take_back(struct scoper *s, size_t mark, size_t *n)
{
	struct change *out;

	*n = s->n_log - mark;
	out = arena_alloc(&s->c->t->mem, size_mul(*n ? *n : 1, sizeof *out));
	for (size_t i = 0; i < *n; i++) {
		out[i] = s->log[mark + i];
		out[i].load = out[i].b->load;
		out[i].from = out[i].b->from;
	}
	for (size_t i = 0; i < *n; i++) {
		if (out[i].made_visible)
			out[i].b->visible = false;
		if (out[i].made_stored)
			out[i].b->stored = false;
	}
	s->n_log = mark;
	return out;
}

static void look_if(struct scoper *s, const struct node *n)
{
	struct change *ch[3];
	size_t n_ch[3], mark = s->n_log;

	look_expr(s, n->a);
	mark = s->n_log;
	for (int k = 0; k < 3; k++) {
		if (k == 0)
			look_nodes(s, &n->body);
		for (uint32_t i = 0; k == 1 && i < n->list.n; i++)
			look_if(s, n->list.v[i]);
		if (k == 2)
			look_nodes(s, &n->orelse);
		ch[k] = take_back(s, mark, &n_ch[k]);
	}
	for (int k = 0; k < 3; k++) {
		for (size_t i = 0; i < n_ch[k]; i++) {
			struct change *x = &ch[k][i];

			define(s, x->b->name, x->load, x->from);
			if (x->made_stored) {
				set_stored(s, x->b);
				x->b->count++;
			}
		}
	}
	/* Not stored on every path: begin as the outer one. */
	for (int k = 0; k < 3; k++) {
		for (size_t i = 0; i < n_ch[k]; i++) {
			struct binding *b = ch[k][i].b, *outer;

			if (!ch[k][i].made_stored || !b->count)
				continue;
			if (b->count != 3) {
				outer = find_outer(s, b->name);
				b->load = outer ? LOAD_ALIAS : LOAD_RESOLVE;
				b->from = outer;
			}
			b->count = 0;
		}
	}
}

static void look_nodes(struct scoper *s, const struct nodes *list)
{
	for (uint32_t i = 0; i < list->n; i++) {
		const struct node *n = list->v[i];

		switch (n->kind) {
		case N_OUTPUT: look_expr(s, n); break;
		case N_SET:
			look_expr(s, n->b);
			look_target(s, n->a, false);
			break;
		case N_SETBLOCK: look_target(s, n->a, false); break;
		case N_IF: look_if(s, n); break;
		case N_FOR:
		case N_CALLBLOCK: look_expr(s, n->b); break;
		case N_MACRO: store_name(s, n->name); break;
		case N_WITH:
			for (uint32_t k = 0; k < n->orelse.n; k++)
				look_expr(s, n->orelse.v[k]);
			break;
		default: /* inner scopes wait for the second pass */ break;
		}
	}
}

/* Whether a name is read anywhere below, inner scopes included. */
static bool reads(const struct node *n, int name);

static bool nodes_read(const struct nodes *list, int name)
{
	for (uint32_t i = 0; i < list->n; i++)
		if (reads(list->v[i], name))
			return true;
	return false;
}

static bool reads(const struct node *n, int name)
{
	if (!n)
		return false;
	if (n->kind == N_NAME && n->name == name)
		return true;
	for (uint32_t i = 0; i < n->n_kw; i++)
		if (reads(n->kw[i].value, name))
			return true;
	return reads(n->a, name) || reads(n->b, name) || reads(n->c, name) || reads(n->star, name) ||
	       reads(n->starstar, name) || reads(n->else_scope, name) || nodes_read(&n->list, name) ||
	       nodes_read(&n->body, name) || nodes_read(&n->orelse, name);
}

/* ---- second pass: references, and the inner scopes ---- */

static void resolve_nodes(struct scoper *s, struct nodes *list);

static void open_frame(struct scoper *s, struct frame *f, struct fn *fn)
{
	*f = (struct frame){ .outer = s->f, .fn = fn };
	f->next_slot = s->f && s->f->fn == fn ? s->f->next_slot : 0;
	s->f = f;
}

static struct ref ref_to(struct scoper *s, const struct binding *b)
{
	struct ref ref = { .slot = b->slot };

	for (struct fn *fn = s->f->fn; fn != b->frame->fn; fn = fn->outer)
		ref.hops++;
	return ref;
}

/* Leaves the scope and says what entering it has to load. */
static struct scope close_frame(struct scoper *s)
{
	struct frame *f = s->f;
	struct scope out = { .loads = arena_alloc(&s->c->t->mem, size_mul(f->n ? f->n : 1, sizeof *out.loads)) };

	for (struct binding *b = f->first; b; b = b->sibling) {
		struct load l = { .kind = b->load, .slot = b->slot, .name = b->name };

		if (b->load == LOAD_ALIAS)
			l.from = ref_to(s, b->from);
		if (b->load != LOAD_PARAM)
			out.loads[out.n++] = l;
		s->c->t->names[b->name].top = b->outer;
	}
	s->f = f->outer;
	return out;
}

static bool const_str(const struct node *n, size_t i, const char **p, size_t *len)
{
	if (i >= n->list.n || n->list.v[i]->kind != N_CONST || n->list.v[i]->value.kind != V_STR)
		return false;
	*p = n->list.v[i]->value.s->p;
	*len = n->list.v[i]->value.s->n;
	return true;
}

/* select("name"), selectattr(attr, "name"), map("name"): names inside strings. */
static void check_filter(struct scoper *s, const struct node *n)
{
	const char *f = n->filter->name, *p;
	size_t len;
	bool attr = !strcmp(f, "selectattr") || !strcmp(f, "rejectattr");

	if (attr || !strcmp(f, "select") || !strcmp(f, "reject")) {
		if (const_str(n, attr ? 1 : 0, &p, &len) && !test_find(p, len))
			jc_fail(s->c, E_UNSUPPORTED, n->line, "unknown test '%.*s'", (int)len, p);
	} else if (!strcmp(f, "map")) {
		if (const_str(n, 0, &p, &len) && !filter_find(p, len))
			jc_fail(s->c, E_UNSUPPORTED, n->line, "unknown filter '%.*s'", (int)len, p);
	}
}

static void check_call(struct scoper *s, const struct node *n)
{
	const struct node *f = n->a;
	struct jname *nm;
	int known;

	if (f->kind == N_NAME) {
		nm = &s->c->t->names[f->name];
		if (str_is(nm->str, "loop") && !nm->stored)
			jc_fail(s->c, E_UNSUPPORTED, n->line, "recursive loops are not supported");
		if (!nm->stored && !str_is(nm->str, "caller") && !func_find(nm->p, nm->n))
			jc_fail(s->c, E_UNSUPPORTED, n->line, "unknown function '%.*s'", (int)nm->n, nm->p);
	} else if (f->kind == N_ATTR) {
		nm = &s->c->t->names[f->name];
		known = method_known(nm->p, nm->n);
		if (!nm->stored && known == METHOD_LACKING)
			jc_fail(s->c, E_UNSUPPORTED, n->line, "method '%.*s' is not supported", (int)nm->n, nm->p);
		if (!nm->stored && known == METHOD_UNKNOWN)
			jc_fail(s->c, E_UNSUPPORTED, n->line, "unknown method '%.*s'", (int)nm->n, nm->p);
	}
}

static void resolve_expr(struct scoper *s, struct node *n)
{
	if (!n)
		return;
	if (n->kind == N_NAME || n->kind == N_NSREF)
		n->ref = ref_to(s, find_binding(s, n->name));
	else if (n->kind == N_CALL)
		check_call(s, n);
	else if (n->kind == N_FILTER)
		check_filter(s, n);
	resolve_expr(s, n->a);
	resolve_expr(s, n->b);
	resolve_expr(s, n->c);
	resolve_expr(s, n->star);
	resolve_expr(s, n->starstar);
	for (uint32_t i = 0; i < n->list.n; i++)
		resolve_expr(s, n->list.v[i]);
	for (uint32_t i = 0; n->kind == N_DICT && i < n->body.n; i++)
		resolve_expr(s, n->body.v[i]);
	for (uint32_t i = 0; i < n->n_kw; i++)
		resolve_expr(s, n->kw[i].value);
}

/* A scope of the same function that holds a body and expressions over it. */
static void resolve_inner(struct scoper *s, struct node *n, struct node *filters)
{
	struct frame f;

	open_frame(s, &f, s->f->fn);
	look_nodes(s, &n->body);
	look_expr(s, filters);
	resolve_nodes(s, &n->body);
	resolve_expr(s, filters);
	n->scope = close_frame(s);
}

static void resolve_for(struct scoper *s, struct node *n)
{
	int loop = jc_name(s->c, "loop", 4);
	struct frame test, body;
	uint32_t after_test;

	resolve_expr(s, n->b);
	if (n->else_scope)
		resolve_inner(s, n->else_scope, NULL);
	/* The test runs while the body's variables are alive, so its slots lie before
	 * theirs; its targets are set through list[0], the same names once more. */
	open_frame(s, &test, s->f->fn);
	if (n->c) {
		struct node *copy = arena_alloc(&s->c->t->mem, sizeof *copy);

		*copy = *n->a;
		if (copy->kind == N_TUPLE) {
			copy->list.v = arena_alloc(&s->c->t->mem, size_mul(copy->list.n + 1, sizeof *copy->list.v));
			for (uint32_t i = 0; i < copy->list.n; i++) {
				copy->list.v[i] = arena_alloc(&s->c->t->mem, sizeof *copy);
				*copy->list.v[i] = *n->a->list.v[i];
				if (copy->list.v[i]->kind != N_NAME)
					jc_fail(s->c, E_UNSUPPORTED, n->line, "nested targets in a loop with a test");
			}
		}
		look_target(s, copy, true);
		look_expr(s, n->c);
		resolve_expr(s, copy);
		resolve_expr(s, n->c);
		n->list.v = arena_alloc(&s->c->t->mem, sizeof *n->list.v);
		n->list.v[0] = copy;
		n->list.n = 1;
	}
	after_test = test.next_slot;
	n->scope2 = close_frame(s);

	open_frame(s, &body, s->f->fn);
	body.next_slot = after_test;
	if (after_test > body.fn->n_slots)
		body.fn->n_slots = after_test;
	n->extended = nodes_read(&n->body, loop);
	n->name = n->extended ? param(s, loop)->slot : -1;
	look_target(s, n->a, true);
	look_nodes(s, &n->body);
	resolve_expr(s, n->a);
	resolve_nodes(s, &n->body);
	n->scope = close_frame(s);
}

/* A macro, or the body of a call block: a function of its own. */
static void resolve_macro(struct scoper *s, struct node *n)
{
	static const char *const special[] = { "caller", "kwargs", "varargs" };
	struct fn fn = { .outer = s->f->fn };
	struct frame f;

	open_frame(s, &f, &fn);
	for (uint32_t i = 0; i < n->list.n; i++)
		param(s, n->list.v[i]->name);
	for (int k = 0; k < 3; k++) {
		int name = jc_name(s->c, special[k], strlen(special[k]));
		struct binding *b = find_binding(s, name);

		n->special[k] = -1;
		if ((!b || b->frame != s->f) && nodes_read(&n->body, name))
			n->special[k] = param(s, name)->slot;
	}
	for (uint32_t i = 0; i < n->orelse.n; i++)
		look_expr(s, n->orelse.v[i]);
	look_nodes(s, &n->body);
	for (uint32_t i = 0; i < n->list.n; i++)
		resolve_expr(s, n->list.v[i]);
	for (uint32_t i = 0; i < n->orelse.n; i++)
		resolve_expr(s, n->orelse.v[i]);
	resolve_nodes(s, &n->body);
	n->scope = close_frame(s);
	n->n_slots = (uint16_t)fn.n_slots;
}

static void resolve_with(struct scoper *s, struct node *n)
{
	struct frame f;

	for (uint32_t i = 0; i < n->orelse.n; i++)
		resolve_expr(s, n->orelse.v[i]);
	open_frame(s, &f, s->f->fn);
	for (uint32_t i = 0; i < n->list.n; i++)
		look_target(s, n->list.v[i], true);
	look_nodes(s, &n->body);
	for (uint32_t i = 0; i < n->list.n; i++)
		resolve_expr(s, n->list.v[i]);
	resolve_nodes(s, &n->body);
	n->scope = close_frame(s);
}

static void resolve_if(struct scoper *s, struct node *n)
{
	resolve_expr(s, n->a);
	resolve_nodes(s, &n->body);
	for (uint32_t i = 0; i < n->list.n; i++) {
		resolve_expr(s, n->list.v[i]->a);
		resolve_nodes(s, &n->list.v[i]->body);
	}
	resolve_nodes(s, &n->orelse);
}

static void resolve_nodes(struct scoper *s, struct nodes *list)
{
	for (uint32_t i = 0; i < list->n; i++) {
		struct node *n = list->v[i];

		switch (n->kind) {
		case N_OUTPUT: resolve_expr(s, n); break;
		case N_SET:
			resolve_expr(s, n->b);
			resolve_expr(s, n->a);
			break;
		case N_SETBLOCK:
			resolve_expr(s, n->a);
			resolve_inner(s, n, n->b);
			break;
		case N_FILTERBLOCK: resolve_inner(s, n, n->b); break;
		case N_SCOPE: resolve_inner(s, n, NULL); break;
		case N_IF: resolve_if(s, n); break;
		case N_FOR: resolve_for(s, n); break;
		case N_MACRO:
			n->ref = ref_to(s, find_binding(s, n->name));
			resolve_macro(s, n);
			break;
		case N_CALLBLOCK:
			resolve_expr(s, n->b);
			resolve_macro(s, n->c);
			break;
		case N_WITH: resolve_with(s, n); break;
		default: break;
		}
	}
}

void jinja_scope(struct jcompile *c)
{
	struct scoper s = { .c = c };
	struct fn fn = { 0 };
	struct frame f;

	open_frame(&s, &f, &fn);
	look_nodes(&s, &c->t->body);
	resolve_nodes(&s, &c->t->body);
	c->t->scope = close_frame(&s);
	c->t->n_slots = (uint16_t)fn.n_slots;
}
