/* jinja_eval.c - runs a compiled template.
 *
 * Evaluation walks the nodes.  A function (the template itself, a macro, a call
 * block's body) has a record of slots; entering a scope sets its slots as
 * jinja_scope.c decided.  Output goes to r->out, which macros, set blocks and filter
 * blocks replace for a while. */
#include "text/jinja/jinja.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

static enum flow run_nodes(struct jrender *r, struct jrec *rec, const struct nodes *list);

/* ---- variables ---- */

static struct value *slot(struct jrec *rec, struct ref ref)
{
	for (unsigned h = ref.hops; h; h--)
		rec = rec->parent;
	return &rec->slot[ref.slot];
}

static void enter_scope(struct jrender *r, struct jrec *rec, const struct scope *sc)
{
	for (uint32_t i = 0; i < sc->n; i++) {
		const struct load *l = &sc->loads[i];
		struct value v = { .kind = V_MISSING };

		if (l->kind == LOAD_RESOLVE)
			v = r->ctx[l->name];
		else if (l->kind == LOAD_ALIAS)
			v = *slot(rec, l->from);
		rec->slot[l->slot] = v;
	}
	jr_steps(r, sc->n);
}

static void assign(struct jrender *r, struct jrec *rec, const struct node *target, struct value v)
{
	struct jlist *l;

	if (target->kind == N_NAME) {
		*slot(rec, target->ref) = v;
		return;
	}
	if (target->kind == N_NSREF) {
		struct value ns = *slot(rec, target->ref);

		if (ns.kind != V_SPACE)
			jr_fail(r, E_ARG, "cannot assign attribute on non-namespace object");
		dict_set(r, ns.o, target->value, v);
		return;
	}
	if (v.kind == V_LIST || v.kind == V_TUPLE)
		l = v.l;
	else if (v_iterable(v))
		l = v_to_list(r, v);
	else
		jr_fail(r, E_ARG, "cannot unpack non-iterable %s object", v_type(v));
	if (l->n != target->list.n)
		jr_fail(r, E_ARG, "cannot unpack %zu values into %u names", l->n, target->list.n);
	for (uint32_t i = 0; i < target->list.n; i++)
		assign(r, rec, target->list.v[i], l->v[i]);
}

/* ---- operators ---- */

_Noreturn static void bad_operands(struct jrender *r, const char *op, struct value a, struct value b)
{
	if (a.kind == V_UNDEF)
		v_fail_undef(r, a);
	if (b.kind == V_UNDEF)
		v_fail_undef(r, b);
	jr_fail(r, E_ARG, "unsupported operand types for %s: '%s' and '%s'", op, v_type(a), v_type(b));
}

_Noreturn static void too_big(struct jrender *r)
{
	jr_fail(r, E_LIMIT, "integer beyond 64 bits");
}

static struct value join_lists(struct jrender *r, struct value a, struct value b)
{
	struct jlist *l = list_new(r, a.l->n + b.l->n);

	jr_steps(r, l->n);
	if (a.l->n)
		memcpy(l->v, a.l->v, a.l->n * sizeof *l->v);
	if (b.l->n)
		memcpy(l->v + a.l->n, b.l->v, b.l->n * sizeof *l->v);
	return a.kind == V_LIST ? v_list(l) : v_tuple(l);
}

struct value v_add(struct jrender *r, struct value a, struct value b)
{
	int64_t i, k, out;

	if (a.kind == V_STR && b.kind == V_STR) {
		struct jstr *s;

		if (!a.s->markup && !b.s->markup)
			return v_str(str_concat(r, a.s, b.s));
		s = str_concat(r, str_escape(r, a.s), str_escape(r, b.s));
		s->markup = true;
		return v_str(s);
	}
	if (v_as_int(a, &i) && v_as_int(b, &k)) {
		if (__builtin_add_overflow(i, k, &out))
			too_big(r);
		return v_int(out);
	}
	if (v_is_number(a) && v_is_number(b))
		return v_float(v_as_double(a) + v_as_double(b));
	if (a.kind == b.kind && (a.kind == V_LIST || a.kind == V_TUPLE))
		return join_lists(r, a, b);
	bad_operands(r, "+", a, b);
}

static struct value repeat(struct jrender *r, struct value a, int64_t n)
{
	struct jlist *l;
	struct sb b;
	size_t total;

	if (n < 0)
		n = 0;
	if (a.kind == V_STR) {
		sb_init(&b);
		if (__builtin_mul_overflow(a.s->n, (size_t)n, &total))
			jr_fail(r, E_LIMIT, "string of %zu bytes times %lld", a.s->n, (long long)n);
		sb_reserve(r, &b, total);
		for (int64_t i = 0; i < n && a.s->n; i++)
			sb_put_str(r, &b, a.s);
		return v_str(a.s->markup ? str_markup(r, sb_str(r, &b)) : sb_str(r, &b));
	}
	if (__builtin_mul_overflow(a.l->n, (size_t)n, &total))
		jr_fail(r, E_LIMIT, "list of %zu elements times %lld", a.l->n, (long long)n);
	l = list_new(r, total);
	jr_steps(r, total);
	for (size_t i = 0; i < total; i += a.l->n)
		memcpy(l->v + i, a.l->v, a.l->n * sizeof *l->v);
	return a.kind == V_LIST ? v_list(l) : v_tuple(l);
}

static bool repeatable(struct value v)
{
	return v.kind == V_STR || v.kind == V_LIST || v.kind == V_TUPLE;
}

static struct value multiply(struct jrender *r, struct value a, struct value b)
{
	int64_t i, k, out;

	if (v_as_int(a, &i) && v_as_int(b, &k)) {
		if (__builtin_mul_overflow(i, k, &out))
			too_big(r);
		return v_int(out);
	}
	if (v_is_number(a) && v_is_number(b))
		return v_float(v_as_double(a) * v_as_double(b));
	if (repeatable(a) && v_as_int(b, &k))
		return repeat(r, a, k);
	if (repeatable(b) && v_as_int(a, &k))
		return repeat(r, b, k);
	bad_operands(r, "*", a, b);
}

static struct value int_power(struct jrender *r, int64_t base, int64_t e)
{
	int64_t out = 1;

	if (e < 0) {
		if (!base)
			jr_fail(r, E_ARG, "0.0 cannot be raised to a negative power");
		return v_float(pow((double)base, (double)e));
	}
	if (base == 0 || base == 1)
		return v_int(e ? base : 1);
	if (base == -1)
		return v_int(e % 2 ? -1 : 1);
	for (; e; e--) /* at most 63 rounds before it overflows */
		if (__builtin_mul_overflow(out, base, &out))
			too_big(r);
	return v_int(out);
}

/* / // % ** of numbers, with Python's signs. */
static struct value divide(struct jrender *r, int op, struct value a, struct value b)
{
	int64_t i, k, q;
	double x, y, m;

	if (v_as_int(a, &i) && v_as_int(b, &k) && op != OP_DIV) {
		if (op == OP_POW)
			return int_power(r, i, k);
		if (!k)
			jr_fail(r, E_ARG, "integer division or modulo by zero");
		if (k == -1) {
			if (i == INT64_MIN)
				too_big(r);
			return v_int(op == OP_MOD ? 0 : -i);
		}
		q = i / k;
		i %= k;
		if (i && (i < 0) != (k < 0)) {
			i += k;
			q--;
		}
		return v_int(op == OP_MOD ? i : q);
	}
	x = v_as_double(a);
	y = v_as_double(b);
	if (op == OP_POW) {
		if (x == 0 && y < 0)
			jr_fail(r, E_ARG, "0.0 cannot be raised to a negative power");
		if (x < 0 && y != floor(y))
			jr_fail(r, E_UNSUPPORTED, "complex numbers");
		m = pow(x, y);
		if (isinf(m) && isfinite(x) && isfinite(y))
			jr_fail(r, E_ARG, "result of ** too large");
		return v_float(m);
	}
	if (y == 0)
		jr_fail(r, E_ARG, "division by zero");
	if (op == OP_DIV)
		return v_float(x / y);
	m = fmod(x, y);
	if (op == OP_MOD) {
		if (m && (m < 0) != (y < 0))
			m += y;
		return v_float(m ? m : copysign(0.0, y));
	}
	x = (x - m) / y;
	if (m && (m < 0) != (y < 0))
		x -= 1;
	y = floor(x);
	return v_float(x - y > 0.5 ? y + 1 : x ? y : copysign(0.0, v_as_double(a) / v_as_double(b)));
}

struct value v_binary(struct jrender *r, int op, struct value a, struct value b)
{
	static const char *const names[] = { "+", "-", "*", "/", "//", "%", "**" };
	int64_t i, k, out;

	switch (op) {
	case OP_ADD: return v_add(r, a, b);
	case OP_MUL: return multiply(r, a, b);
	case OP_SUB:
		if (v_as_int(a, &i) && v_as_int(b, &k)) {
			if (__builtin_sub_overflow(i, k, &out))
				too_big(r);
			return v_int(out);
		}
		if (v_is_number(a) && v_is_number(b))
			return v_float(v_as_double(a) - v_as_double(b));
		break;
	case OP_MOD:
		if (a.kind == V_STR)
			return format_percent(r, a.s, b);
		/* fall through */
	default:
		if (v_is_number(a) && v_is_number(b))
			return divide(r, op, a, b);
		break;
	}
	bad_operands(r, names[op], a, b);
}

/* ---- expressions ---- */

static struct value eval_list(struct jrender *r, struct jrec *rec, const struct node *n)
{
	struct jlist *l = list_new(r, n->list.n);

	for (uint32_t i = 0; i < n->list.n; i++)
		l->v[i] = jr_eval(r, rec, n->list.v[i]);
	return n->kind == N_LIST ? v_list(l) : v_tuple(l);
}

static struct value eval_dict(struct jrender *r, struct jrec *rec, const struct node *n)
{
	struct jdict *o = dict_new(r);

	for (uint32_t i = 0; i < n->list.n; i++) {
		struct value key = jr_eval(r, rec, n->list.v[i]);

		dict_set(r, o, key, jr_eval(r, rec, n->body.v[i]));
	}
	return v_dict(o);
}

static struct value eval_concat(struct jrender *r, struct jrec *rec, const struct node *n)
{
	struct value v = jr_eval(r, rec, n->list.v[0]), x;
	struct jstr *s = v_to_str(r, v);

	for (uint32_t i = 1; i < n->list.n; i++) {
		x = jr_eval(r, rec, n->list.v[i]);
		s = str_concat(r, s, v_to_str(r, x));
	}
	return v_str(s);
}

static struct value eval_compare(struct jrender *r, struct jrec *rec, const struct node *n)
{
	struct value left = jr_eval(r, rec, n->a), right;

	for (uint32_t i = 0; i < n->list.n; i++) {
		right = jr_eval(r, rec, n->list.v[i]);
		if (!v_compare(r, n->ops[i], left, right))
			return v_bool(false);
		left = right;
	}
	return v_bool(true);
}

static struct value eval_item(struct jrender *r, struct jrec *rec, const struct node *n)
{
	struct value of = jr_eval(r, rec, n->a), part[3];
	const struct node *s = n->b, *bound[3];

	if (s->kind != N_SLICE)
		return v_getitem(r, of, jr_eval(r, rec, s));
	bound[0] = s->a;
	bound[1] = s->b;
	bound[2] = s->c;
	for (int i = 0; i < 3; i++)
		part[i] = bound[i] ? jr_eval(r, rec, bound[i]) : v_none();
	return v_slice(r, of, part[0], part[1], part[2]);
}

static void eval_args(struct jrender *r, struct jrec *rec, const struct node *n, struct jargs *a)
{
	struct jlist *extra = NULL;
	struct jdict *more = NULL;
	struct value v;

	*a = (struct jargs){ .n = n->list.n, .n_kw = n->n_kw };
	if (!n->list.n && !n->n_kw && !n->star && !n->starstar)
		return;
	if (n->star)
		extra = v_to_list(r, jr_eval(r, rec, n->star));
	a->v = jr_array(r, a->n + (extra ? extra->n : 0), sizeof *a->v);
	for (size_t i = 0; i < a->n; i++)
		a->v[i] = jr_eval(r, rec, n->list.v[i]);
	for (size_t i = 0; extra && i < extra->n; i++)
		a->v[a->n++] = extra->v[i];
	if (n->starstar) {
		v = jr_eval(r, rec, n->starstar);
		if (v.kind != V_DICT)
			jr_fail(r, E_ARG, "argument after ** must be a mapping, not %s", v_type(v));
		more = v.o;
	}
	a->kw = jr_array(r, a->n_kw + (more ? more->n : 0), sizeof *a->kw);
	a->kwv = jr_array(r, a->n_kw + (more ? more->n : 0), sizeof *a->kwv);
	for (size_t i = 0; i < a->n_kw; i++) {
		a->kw[i] = n->kw[i].name;
		a->kwv[i] = jr_eval(r, rec, n->kw[i].value);
	}
	for (size_t i = 0; more && i < more->n; i++) {
		if (more->e[i].key.kind != V_STR)
			jr_fail(r, E_ARG, "keywords must be strings");
		for (size_t k = 0; k < n->n_kw; k++)
			if (str_eq(n->kw[k].name, more->e[i].key.s))
				jr_fail(r, E_ARG, "got multiple values for a keyword argument");
		a->kw[a->n_kw] = more->e[i].key.s;
		a->kwv[a->n_kw++] = more->e[i].value;
	}
}

static struct value eval_call(struct jrender *r, struct jrec *rec, const struct node *n)
{
	struct value f = jr_eval(r, rec, n->a);
	struct jargs a;

	eval_args(r, rec, n, &a);
	r->line = n->line;
	return jr_call(r, f, &a);
}

/* A filter chain; text is what is at its innermost place in blocks. */
static struct value eval_filter(struct jrender *r, struct jrec *rec, const struct node *n, const struct value *text)
{
	struct value v;
	struct jargs a;

	jr_enter(r);
	v = !n->a ? *text : n->a->kind == N_FILTER ? eval_filter(r, rec, n->a, text) : jr_eval(r, rec, n->a);
	eval_args(r, rec, n, &a);
	r->line = n->line;
	v = n->filter->call(r, v, &a);
	jr_leave(r);
	return v;
}

static struct value eval_name(struct jrender *r, struct jrec *rec, const struct node *n)
{
	struct value v = *slot(rec, n->ref);

	return v.kind == V_MISSING ? v_undef(r->t->names[n->name].str, UNDEF_NAME) : v;
}

static struct value eval_negate(struct jrender *r, struct value v, bool negate)
{
	int64_t i;

	if (v_as_int(v, &i)) {
		if (negate && __builtin_sub_overflow((int64_t)0, i, &i))
			too_big(r);
		return v_int(i);
	}
	if (v.kind != V_FLOAT) {
		if (v.kind == V_UNDEF)
			v_fail_undef(r, v);
		jr_fail(r, E_ARG, "bad operand type for unary %c: '%s'", negate ? '-' : '+', v_type(v));
	}
	return v_float(negate ? -v.d : v.d);
}

static struct value eval_node(struct jrender *r, struct jrec *rec, const struct node *n)
{
	struct value v;
	struct jargs a;

	switch (n->kind) {
	case N_COND:
		if (v_true(r, jr_eval(r, rec, n->a)))
			return jr_eval(r, rec, n->b);
		if (n->c)
			return jr_eval(r, rec, n->c);
		return v_undef_hint(r, "the inline if-expression evaluated to false and has no else");
	case N_OR:
	case N_AND: v = jr_eval(r, rec, n->a); return v_true(r, v) == (n->kind == N_OR) ? v : jr_eval(r, rec, n->b);
	case N_NOT: return v_bool(!v_true(r, jr_eval(r, rec, n->a)));
	case N_NEG:
	case N_POS: return eval_negate(r, jr_eval(r, rec, n->a), n->kind == N_NEG);
	case N_BINARY: v = jr_eval(r, rec, n->a); return v_binary(r, n->op, v, jr_eval(r, rec, n->b));
	case N_TEST:
		v = jr_eval(r, rec, n->a);
		eval_args(r, rec, n, &a);
		return v_bool(n->test->call(r, v, &a));
	case N_ATTR: return v_getattr(r, jr_eval(r, rec, n->a), n->value.s);
	case N_ITEM: return eval_item(r, rec, n);
	case N_CALL: return eval_call(r, rec, n);
	case N_FILTER: return eval_filter(r, rec, n, NULL);
	case N_CONCAT: return eval_concat(r, rec, n);
	case N_COMPARE: return eval_compare(r, rec, n);
	case N_DICT: return eval_dict(r, rec, n);
	default: return eval_list(r, rec, n);
	}
}

struct value jr_eval(struct jrender *r, struct jrec *rec, const struct node *n)
{
	struct value v;

	if (n->kind == N_CONST)
		return n->value;
	if (n->kind == N_NAME)
		return eval_name(r, rec, n);
	r->line = n->line;
	jr_enter(r);
	v = eval_node(r, rec, n);
	jr_leave(r);
	return v;
}

/* ---- calls ---- */

static struct value macro_arg(struct jrender *r, struct jrec *rec, const struct node *n, size_t i)
{
	size_t first = n->list.n - n->orelse.n;
	char hint[128];

	if (i >= first)
		return jr_eval(r, rec, n->orelse.v[i - first]);
	snprintf(hint, sizeof hint, "parameter '%.80s' was not provided", r->t->names[n->list.v[i]->name].p);
	return v_undef(str_copy(r, hint, strlen(hint)), UNDEF_HINT);
}

/* Binds arguments as Jinja's Macro does: positions, then names, then defaults. */
static void bind_macro(struct jrender *r, struct jrec *rec, const struct node *n, const struct jargs *a)
{
	bool *used = jr_alloc(r, a->n_kw + 1);
	struct jdict *kwargs = dict_new(r);
	struct jlist *varargs;
	const char *name = n->name < 0 ? "caller" : r->t->names[n->name].p;
	size_t over = a->n > n->list.n ? a->n - n->list.n : 0;

	memset(used, 0, a->n_kw + 1);
	for (size_t i = 0; i < n->list.n; i++) {
		struct value v = { .kind = V_MISSING };
		const struct jstr *param = r->t->names[n->list.v[i]->name].str;

		if (i < a->n)
			v = a->v[i];
		for (size_t k = 0; i >= a->n && k < a->n_kw; k++) {
			if (str_eq(a->kw[k], param)) {
				v = a->kwv[k];
				used[k] = true;
			}
		}
		rec->slot[n->list.v[i]->ref.slot] = v;
	}
	for (size_t k = 0; k < a->n_kw; k++) {
		if (used[k])
			continue;
		if (n->special[0] >= 0 && str_is(a->kw[k], "caller"))
			rec->slot[n->special[0]] = a->kwv[k];
		else if (n->special[1] >= 0)
			dict_set(r, kwargs, v_str(a->kw[k]), a->kwv[k]);
		else
			jr_fail(r, E_ARG, "macro '%s' takes no keyword argument '%.*s'", name,
			        a->kw[k]->n < 60 ? (int)a->kw[k]->n : 60, a->kw[k]->p);
	}
	if (n->special[1] >= 0)
		rec->slot[n->special[1]] = v_dict(kwargs);
	if (n->special[2] >= 0) {
		varargs = list_new(r, over);
		for (size_t i = 0; i < over; i++)
			varargs->v[i] = a->v[n->list.n + i];
		rec->slot[n->special[2]] = v_tuple(varargs);
	} else if (over) {
		jr_fail(r, E_ARG, "macro '%s' takes not more than %u argument(s), got %zu", name, n->list.n, a->n);
	}
}

static struct value call_macro(struct jrender *r, const struct jmacro *m, const struct jargs *a)
{
	const struct node *n = m->node;
	struct jrec *rec = jr_alloc(r, sizeof *rec + n->n_slots * sizeof *rec->slot);
	struct sb *outer = r->out, b;

	if (++r->calls > r->lim->call_max)
		jr_fail(r, E_LIMIT, "macros call one another more than %d deep", r->lim->call_max);
	jr_enter(r);
	rec->parent = m->scope;
	for (uint32_t i = 0; i < n->n_slots; i++)
		rec->slot[i] = (struct value){ .kind = V_MISSING };
	if (n->special[0] >= 0)
		rec->slot[n->special[0]] = v_undef_hint(r, "No caller defined");
	bind_macro(r, rec, n, a);
	enter_scope(r, rec, &n->scope);
	for (size_t i = 0; i < n->list.n; i++) {
		struct value *v = &rec->slot[n->list.v[i]->ref.slot];

		if (v->kind == V_MISSING)
			*v = macro_arg(r, rec, n, i);
	}
	sb_init(&b);
	r->out = &b;
	run_nodes(r, rec, &n->body);
	r->out = outer;
	jr_leave(r);
	r->calls--;
	return v_str(sb_str(r, &b));
}

struct value jr_call(struct jrender *r, struct value f, const struct jargs *a)
{
	switch (f.kind) {
	case V_MACRO: return call_macro(r, f.macro, a);
	case V_FUNC: return f.func->call(r, a);
	case V_METHOD: return method_call(r, f.method, a);
	case V_UNDEF: v_fail_undef(r, f);
	default: jr_fail(r, E_ARG, "'%s' object is not callable", v_type(f));
	}
}

/* ---- statements ---- */

bool loop_fetch(struct jrender *r, struct jloop *l, struct value *out)
{
	struct value v;

	while (iter_next(r, &l->src, &v)) {
		if (l->node->c) {
			assign(r, l->rec, l->node->list.v[0], v);
			if (!v_true(r, jr_eval(r, l->rec, l->node->c)))
				continue;
		}
		*out = v;
		return true;
	}
	return false;
}

static enum flow run_for(struct jrender *r, struct jrec *rec, const struct node *n)
{
	struct value items = jr_eval(r, rec, n->b), v, missing = { .kind = V_MISSING };
	struct jloop *l = jr_alloc(r, sizeof *l);
	bool done = false; /* some pass ran to its end: only that keeps else away, as in Jinja */

	r->line = n->line;
	*l = (struct jloop){ .src = iter_open(r, items),
		             .node = n,
		             .rec = rec,
		             .prev = missing,
		             .cur = missing,
		             .next = missing,
		             .index0 = -1,
		             .length = -1,
		             .last_changed = missing };
	if (v_has_len(items) && !n->c)
		l->length = v_len(r, items);
	enter_scope(r, rec, &n->scope2);
	for (;;) {
		enum flow flow;

		if (l->next.kind != V_MISSING) {
			v = l->next;
			l->next = missing;
		} else if (!loop_fetch(r, l, &v)) {
			break;
		}
		l->index0++;
		l->prev = l->cur;
		l->cur = v;
		if (n->name >= 0)
			rec->slot[n->name] = (struct value){ .kind = V_LOOP, .loop = l };
		assign(r, rec, n->a, v);
		enter_scope(r, rec, &n->scope);
		flow = run_nodes(r, rec, &n->body);
		done = done || flow == FLOW_NEXT;
		if (flow == FLOW_BREAK)
			break;
	}
	if (done || !n->else_scope)
		return FLOW_NEXT;
	enter_scope(r, rec, &n->else_scope->scope);
	return run_nodes(r, rec, &n->else_scope->body);
}

static enum flow run_if(struct jrender *r, struct jrec *rec, const struct node *n)
{
	if (v_true(r, jr_eval(r, rec, n->a)))
		return run_nodes(r, rec, &n->body);
	for (uint32_t i = 0; i < n->list.n; i++)
		if (v_true(r, jr_eval(r, rec, n->list.v[i]->a)))
			return run_nodes(r, rec, &n->list.v[i]->body);
	return run_nodes(r, rec, &n->orelse);
}

/* Runs a body into a string of its own. */
static enum flow capture(struct jrender *r, struct jrec *rec, const struct node *n, struct value *text)
{
	struct sb *outer = r->out, b;
	enum flow flow;

	sb_init(&b);
	r->out = &b;
	enter_scope(r, rec, &n->scope);
	flow = run_nodes(r, rec, &n->body);
	r->out = outer;
	*text = v_str(sb_str(r, &b));
	return flow;
}

static struct value new_macro(struct jrender *r, struct jrec *rec, const struct node *n)
{
	struct jmacro *m = jr_alloc(r, sizeof *m);

	*m = (struct jmacro){ n, rec };
	return (struct value){ .kind = V_MACRO, .macro = m };
}

static void run_call_block(struct jrender *r, struct jrec *rec, const struct node *n)
{
	struct value f = jr_eval(r, rec, n->b->a);
	struct jstr **kw;
	struct value *kwv;
	struct jargs a;

	eval_args(r, rec, n->b, &a);
	kw = jr_array(r, a.n_kw + 1, sizeof *kw);
	kwv = jr_array(r, a.n_kw + 1, sizeof *kwv);
	for (size_t i = 0; i < a.n_kw; i++) {
		kw[i] = a.kw[i];
		kwv[i] = a.kwv[i];
	}
	kw[a.n_kw] = str_lit(r, "caller");
	kwv[a.n_kw] = new_macro(r, rec, n->c);
	a.kw = kw;
	a.kwv = kwv;
	a.n_kw++;
	v_put_str(r, r->out, jr_call(r, f, &a));
}

static enum flow run_one(struct jrender *r, struct jrec *rec, const struct node *n)
{
	enum flow flow = FLOW_NEXT;
	struct value text;

	switch (n->kind) {
	case N_OUTPUT:
		for (uint32_t i = 0; i < n->list.n; i++)
			v_put_str(r, r->out, jr_eval(r, rec, n->list.v[i]));
		return flow;
	case N_IF: return run_if(r, rec, n);
	case N_FOR: return run_for(r, rec, n);
	case N_SET: assign(r, rec, n->a, jr_eval(r, rec, n->b)); return flow;
	case N_SETBLOCK:
		flow = capture(r, rec, n, &text);
		if (flow == FLOW_NEXT)
			assign(r, rec, n->a, n->b ? eval_filter(r, rec, n->b, &text) : text);
		return flow;
	case N_FILTERBLOCK:
		flow = capture(r, rec, n, &text);
		if (flow == FLOW_NEXT)
			v_put_str(r, r->out, eval_filter(r, rec, n->b, &text));
		return flow;
	case N_MACRO: *slot(rec, n->ref) = new_macro(r, rec, n); return flow;
	case N_CALLBLOCK: run_call_block(r, rec, n); return flow;
	case N_WITH:
		for (uint32_t i = 0; i < n->list.n; i++)
			assign(r, rec, n->list.v[i], jr_eval(r, rec, n->orelse.v[i]));
		enter_scope(r, rec, &n->scope);
		return run_nodes(r, rec, &n->body);
	case N_SCOPE: enter_scope(r, rec, &n->scope); return run_nodes(r, rec, &n->body);
	case N_BREAK: return FLOW_BREAK;
	default: return FLOW_CONTINUE;
	}
}

static enum flow run_nodes(struct jrender *r, struct jrec *rec, const struct nodes *list)
{
	enum flow flow = FLOW_NEXT;

	if (!list->n)
		return flow;
	jr_enter(r);
	for (uint32_t i = 0; i < list->n && flow == FLOW_NEXT; i++) {
		r->line = list->v[i]->line;
		flow = run_one(r, rec, list->v[i]);
	}
	jr_leave(r);
	return flow;
}

void jr_run(struct jrender *r)
{
	const struct template *t = r->t;
	struct jrec *rec = jr_alloc(r, sizeof *rec + t->n_slots * sizeof *rec->slot);

	rec->parent = NULL;
	for (uint32_t i = 0; i < t->n_slots; i++)
		rec->slot[i] = (struct value){ .kind = V_MISSING };
	enter_scope(r, rec, &t->scope);
	run_nodes(r, rec, &t->body);
}
