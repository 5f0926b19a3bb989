/* jinja_filter.c - filters, and how arguments meet parameters.
 *
 * Filters that yield lazily in Jinja yield lazily here (struct jgen), since a
 * template can see the difference: a generator is true when empty, has no length,
 * and is used up by the first loop over it. */
#include "text/jinja/jinja.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

void args_bind(struct jrender *r, const char *what, const char *names, const struct jargs *a, struct value *out,
               int required)
{
	size_t n = 0, len;

	for (const char *p = names; *p; p += len, n++) {
		p += strspn(p, " ");
		len = strcspn(p, " ");
		out[n] = (struct value){ .kind = V_MISSING };
		if (n < a->n)
			out[n] = a->v[n];
		for (size_t k = 0; k < a->n_kw; k++) {
			if (a->kw[k]->n != len || memcmp(a->kw[k]->p, p, len))
				continue;
			if (n < a->n)
				jr_fail(r, E_ARG, "%s() got multiple values for argument '%.*s'", what, (int)len, p);
			out[n] = a->kwv[k];
		}
		if (out[n].kind == V_MISSING && (int)n < required)
			jr_fail(r, E_ARG, "%s() missing required argument %zu", what, n + 1);
	}
	if (a->n > n)
		jr_fail(r, E_ARG, "%s() takes at most %zu arguments, got %zu", what, n, a->n);
	for (size_t k = 0; k < a->n_kw; k++) {
		bool known = false;

		for (const char *p = names; *p; p += len) {
			p += strspn(p, " ");
			len = strcspn(p, " ");
			known = known || (a->kw[k]->n == len && !memcmp(a->kw[k]->p, p, len));
		}
		if (!known)
			jr_fail(r, E_ARG, "%s() got an unexpected keyword argument '%.*s'", what,
			        a->kw[k]->n < 60 ? (int)a->kw[k]->n : 60, a->kw[k]->p);
	}
}

static bool given(struct value v)
{
	return v.kind != V_MISSING && v.kind != V_NONE;
}

int64_t args_int(struct jrender *r, const char *what, struct value v, int64_t deflt)
{
	if (v.kind != V_MISSING && !v_as_int(v, &deflt))
		jr_fail(r, E_ARG, "%s: expected an integer, got %s", what, v_type(v));
	return deflt;
}

/* ---- attribute paths: "a.b.0" ---- */

static struct value path_parts(struct jrender *r, struct value attr)
{
	struct jlist *l = list_new(r, 0);
	struct jstr *s = attr.s;
	size_t cap = 0, from = 0;

	if (attr.kind != V_STR) {
		if (given(attr))
			list_push(r, l, &cap, attr);
		return v_list(l);
	}
	for (size_t i = 0; i <= s->n; i++) {
		int64_t index;

		if (i < s->n && s->p[i] != '.')
			continue;
		if (i > from && isdigit((unsigned char)s->p[from]) && parse_int(s->p + from, i - from, 10, &index))
			list_push(r, l, &cap, v_int(index));
		else
			list_push(r, l, &cap, v_str(str_sub(r, s, from, i)));
		from = i + 1;
	}
	return v_list(l);
}

static struct value follow(struct jrender *r, struct value path, struct value v, struct value fill)
{
	for (size_t i = 0; path.kind == V_LIST && i < path.l->n; i++) {
		v = v_getitem(r, v, path.l->v[i]);
		if (v.kind == V_UNDEF && given(fill))
			v = fill;
	}
	return v;
}

static struct value folded(struct jrender *r, struct value v, bool fold)
{
	return fold && v.kind == V_STR ? v_str(str_lower(r, v.s)) : v;
}

/* ---- generators ---- */

static struct jgen *gen_new(struct jrender *r, enum gen_op op, struct value src)
{
	struct jgen *g = jr_alloc(r, sizeof *g);
	struct value missing = { .kind = V_MISSING };

	*g = (struct jgen){ .op = op, .src = { .of = src }, .path = missing, .fill = missing };
	return g;
}

static struct value v_gen(struct jgen *g)
{
	return (struct value){ .kind = V_GEN, .gen = g };
}

/* On the first pull: what Python's generator function does before its loop. */
static void gen_start(struct jrender *r, struct jgen *g)
{
	struct value src = g->src.of;
	size_t off = g->by_attr;

	g->started = true;
	if (g->op == GEN_ITEMS) {
		if (src.kind != V_UNDEF && src.kind != V_DICT)
			jr_fail(r, E_ARG, "Can only get item pairs from a mapping.");
		if (src.kind == V_DICT)
			src = (struct value){ .kind = V_VIEW, .aux = VIEW_ITEMS, .o = src.o };
	}
	if ((g->op == GEN_MAP || g->op == GEN_SELECT) && !v_true(r, src))
		src = v_list(list_new(r, 0));
	else if (g->op == GEN_SELECT) {
		if (g->args.n < off)
			jr_fail(r, E_ARG, "Missing parameter for attribute name");
		if (g->by_attr)
			g->path = path_parts(r, g->args.v[0]);
		if (g->args.n > off) {
			if (g->args.v[off].kind == V_STR)
				g->test = test_find(g->args.v[off].s->p, g->args.v[off].s->n);
			if (!g->test)
				jr_fail(r, E_UNSUPPORTED, "unknown test in select");
			off++;
		}
		if (off) {
			g->args.v += off;
			g->args.n -= off;
		}
	}
	g->src = iter_open(r, src);
}

static bool gen_batch(struct jrender *r, struct jgen *g, struct value *out)
{
	struct jlist *l = list_new(r, 0);
	struct value v;
	size_t cap = 0;

	while ((int64_t)l->n < g->size && iter_next(r, &g->src, &v))
		list_push(r, l, &cap, v);
	if (!l->n)
		return false;
	while (given(g->fill) && (int64_t)l->n < g->size) {
		jr_steps(r, 1);
		list_push(r, l, &cap, g->fill);
	}
	*out = v_list(l);
	return true;
}

static bool gen_pull(struct jrender *r, struct jgen *g, struct value *out)
{
	struct value v, key;

	if (g->op == GEN_BATCH)
		return gen_batch(r, g, out);
	while (iter_next(r, &g->src, out)) {
		if (g->op == GEN_MAP) {
			*out = g->filter ? g->filter->call(r, *out, &g->args) : follow(r, g->path, *out, g->fill);
			return true;
		}
		if (g->op == GEN_SELECT) {
			v = follow(r, g->path, *out, (struct value){ .kind = V_MISSING });
			if ((g->test ? g->test->call(r, v, &g->args) : v_true(r, v)) != g->negate)
				return true;
			continue;
		}
		if (g->op == GEN_UNIQUE) {
			key = folded(r, follow(r, g->path, *out, (struct value){ .kind = V_MISSING }), g->fold);
			if (dict_get(r, g->seen, key))
				continue;
			dict_set(r, g->seen, key, v_none());
		}
		return true;
	}
	return false;
}

bool gen_next(struct jrender *r, struct jgen *g, struct value *out)
{
	bool more;

	jr_enter(r);
	if (!g->started)
		gen_start(r, g);
	more = gen_pull(r, g, out);
	jr_leave(r);
	return more;
}

static struct value select_gen(struct jrender *r, struct value self, const struct jargs *a, bool attr, bool negate)
{
	struct jgen *g = gen_new(r, GEN_SELECT, self);

	g->args = *a;
	g->by_attr = attr;
	g->negate = negate;
	return v_gen(g);
}

static struct value f_select(struct jrender *r, struct value self, const struct jargs *a)
{
	return select_gen(r, self, a, false, false);
}

static struct value f_reject(struct jrender *r, struct value self, const struct jargs *a)
{
	return select_gen(r, self, a, false, true);
}

static struct value f_selectattr(struct jrender *r, struct value self, const struct jargs *a)
{
	return select_gen(r, self, a, true, false);
}

static struct value f_rejectattr(struct jrender *r, struct value self, const struct jargs *a)
{
	return select_gen(r, self, a, true, true);
}

static struct value f_map(struct jrender *r, struct value self, const struct jargs *a)
{
	struct jgen *g = gen_new(r, GEN_MAP, self);
	struct value arg[2];

	if (!a->n) {
		args_bind(r, "map", "attribute default", a, arg, 0);
		if (arg[0].kind == V_MISSING)
			jr_fail(r, E_ARG, "map requires a filter argument");
		g->path = path_parts(r, arg[0]);
		g->fill = arg[1];
		return v_gen(g);
	}
	if (a->v[0].kind == V_STR)
		g->filter = filter_find(a->v[0].s->p, a->v[0].s->n);
	if (!g->filter)
		jr_fail(r, E_UNSUPPORTED, "unknown filter in map");
	g->args = *a;
	g->args.v++;
	g->args.n--;
	return v_gen(g);
}

static struct value f_items(struct jrender *r, struct value self, const struct jargs *a)
{
	args_bind(r, "items", "", a, NULL, 0);
	return v_gen(gen_new(r, GEN_ITEMS, self));
}

static struct value f_unique(struct jrender *r, struct value self, const struct jargs *a)
{
	struct jgen *g = gen_new(r, GEN_UNIQUE, self);
	struct value arg[2];

	args_bind(r, "unique", "case_sensitive attribute", a, arg, 0);
	g->fold = !v_true(r, arg[0]);
	g->path = path_parts(r, arg[1]);
	g->seen = dict_new(r);
	return v_gen(g);
}

static struct value f_batch(struct jrender *r, struct value self, const struct jargs *a)
{
	struct jgen *g = gen_new(r, GEN_BATCH, self);
	struct value arg[2];

	args_bind(r, "batch", "linecount fill_with", a, arg, 1);
	g->size = args_int(r, "batch", arg[0], 1);
	g->fill = arg[1];
	if (g->size < 1)
		jr_fail(r, E_ARG, "batch: linecount must be positive, is %lld", (long long)g->size);
	return v_gen(g);
}

static bool reversible(struct value v)
{
	return v_has_len(v) && v.kind != V_GEN;
}

static struct value f_reverse(struct jrender *r, struct value self, const struct jargs *a)
{
	struct jlist *l;

	args_bind(r, "reverse", "", a, NULL, 0);
	if (self.kind == V_STR)
		return v_slice(r, self, v_none(), v_none(), v_int(-1));
	if (!v_iterable(self))
		jr_fail(r, E_ARG, "argument must be iterable");
	l = v_to_list(r, self);
	for (size_t i = 0; i < l->n / 2; i++) {
		struct value t = l->v[i];

		l->v[i] = l->v[l->n - 1 - i];
		l->v[l->n - 1 - i] = t;
	}
	return reversible(self) ? v_gen(gen_new(r, GEN_PLAIN, v_list(l))) : v_list(l);
}

/* ---- sequences ---- */

static struct value f_length(struct jrender *r, struct value self, const struct jargs *a)
{
	args_bind(r, "length", "", a, NULL, 0);
	return v_int(v_len(r, self));
}

static struct value f_list(struct jrender *r, struct value self, const struct jargs *a)
{
	args_bind(r, "list", "", a, NULL, 0);
	return v_list(v_to_list(r, self));
}

static struct value f_first(struct jrender *r, struct value self, const struct jargs *a)
{
	struct jiter it = iter_open(r, self);
	struct value v;

	args_bind(r, "first", "", a, NULL, 0);
	return iter_next(r, &it, &v) ? v : v_undef_hint(r, "No first item, sequence was empty.");
}

static struct value f_last(struct jrender *r, struct value self, const struct jargs *a)
{
	int64_t n;

	args_bind(r, "last", "", a, NULL, 0);
	if (!reversible(self))
		jr_fail(r, E_ARG, "'%s' object is not reversible", v_type(self));
	n = v_len(r, self);
	if (!n)
		return v_undef_hint(r, "No last item, sequence was empty.");
	if (self.kind == V_DICT)
		return self.o->e[n - 1].key;
	if (self.kind == V_VIEW)
		return view_at(r, self, (size_t)n - 1);
	return v_getitem(r, self, v_int(-1));
}

static struct value f_join(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[2], path, v;
	struct jstr *sep = NULL;
	struct jiter it;
	struct sb b;

	args_bind(r, "join", "d attribute", a, arg, 0);
	if (arg[0].kind != V_MISSING)
		sep = v_to_str(r, arg[0]);
	path = path_parts(r, arg[1]);
	it = iter_open(r, self);
	sb_init(&b);
	for (bool first = true; iter_next(r, &it, &v); first = false) {
		if (!first && sep)
			sb_put_str(r, &b, sep);
		v_put_str(r, &b, follow(r, path, v, (struct value){ .kind = V_MISSING }));
	}
	return v_str(sb_str(r, &b));
}

static struct value f_sort(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[3], *keys, *paths;
	struct jlist *l = v_to_list(r, self);
	size_t n_paths = 1, from = 0, k = 0;
	bool fold;

	args_bind(r, "sort", "reverse case_sensitive attribute", a, arg, 0);
	fold = !v_true(r, arg[1]);
	if (arg[2].kind == V_STR)
		for (size_t i = 0; i < arg[2].s->n; i++)
			n_paths += arg[2].s->p[i] == ',';
	paths = jr_array(r, n_paths, sizeof *paths);
	if (arg[2].kind == V_STR) {
		for (size_t i = 0; i <= arg[2].s->n; i++) {
			if (i < arg[2].s->n && arg[2].s->p[i] != ',')
				continue;
			paths[k++] = path_parts(r, v_str(str_sub(r, arg[2].s, from, i)));
			from = i + 1;
		}
	} else {
		paths[0] = path_parts(r, arg[2]);
	}
	keys = jr_array(r, l->n, sizeof *keys);
	for (size_t i = 0; i < l->n; i++) {
		struct jlist *key = list_new(r, n_paths);

		for (k = 0; k < n_paths; k++)
			key->v[k] = folded(r, follow(r, paths[k], l->v[i], (struct value){ .kind = V_MISSING }), fold);
		keys[i] = v_list(key);
	}
	v_sort(r, keys, l->v, l->n, v_true(r, arg[0]));
	return v_list(l);
}

static struct value f_dictsort(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[3], *keys;
	struct jlist *l;
	bool by_value = false;

	args_bind(r, "dictsort", "case_sensitive by reverse", a, arg, 0);
	if (arg[1].kind != V_MISSING) {
		by_value = arg[1].kind == V_STR && str_is(arg[1].s, "value");
		if (!by_value && !(arg[1].kind == V_STR && str_is(arg[1].s, "key")))
			jr_fail(r, E_ARG, "dictsort: you can only sort by either \"key\" or \"value\"");
	}
	if (self.kind == V_UNDEF)
		v_fail_undef(r, self);
	if (self.kind != V_DICT)
		jr_fail(r, E_ARG, "'%s' object has no attribute 'items'", v_type(self));
	l = list_new(r, self.o->n);
	keys = jr_array(r, l->n, sizeof *keys);
	jr_steps(r, l->n);
	for (size_t i = 0; i < l->n; i++) {
		const struct jpair *e = &self.o->e[i];

		l->v[i] = v_pair(r, e->key, e->value);
		keys[i] = folded(r, by_value ? e->value : e->key, !v_true(r, arg[0]));
	}
	v_sort(r, keys, l->v, l->n, v_true(r, arg[2]));
	return v_list(l);
}

static struct value extreme(struct jrender *r, struct value self, const struct jargs *a, bool max)
{
	struct value arg[2], path, best, best_key, v, key, missing = { .kind = V_MISSING };
	struct jiter it = iter_open(r, self);
	bool fold;

	args_bind(r, max ? "max" : "min", "case_sensitive attribute", a, arg, 0);
	if (!iter_next(r, &it, &best))
		return v_undef_hint(r, "No aggregated item, sequence was empty.");
	fold = !v_true(r, arg[0]);
	path = path_parts(r, arg[1]);
	best_key = folded(r, follow(r, path, best, missing), fold);
	while (iter_next(r, &it, &v)) {
		key = folded(r, follow(r, path, v, missing), fold);
		if (v_compare(r, max ? OP_GT : OP_LT, key, best_key)) {
			best = v;
			best_key = key;
		}
	}
	return best;
}

static struct value f_min(struct jrender *r, struct value self, const struct jargs *a)
{
	return extreme(r, self, a, false);
}

static struct value f_max(struct jrender *r, struct value self, const struct jargs *a)
{
	return extreme(r, self, a, true);
}

static struct value f_sum(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[2], path, total, v;
	struct jiter it;

	args_bind(r, "sum", "attribute start", a, arg, 0);
	path = path_parts(r, arg[0]);
	total = arg[1].kind == V_MISSING ? v_int(0) : arg[1];
	if (total.kind == V_STR)
		jr_fail(r, E_ARG, "sum() can't sum strings");
	it = iter_open(r, self);
	while (iter_next(r, &it, &v))
		total = v_add(r, total, follow(r, path, v, (struct value){ .kind = V_MISSING }));
	return total;
}

/* ---- text ---- */

static struct value soft(struct jrender *r, struct value self, struct jstr *s)
{
	return v_str(self.kind == V_STR && self.s->markup ? str_markup(r, s) : s);
}

static struct value f_upper(struct jrender *r, struct value self, const struct jargs *a)
{
	args_bind(r, "upper", "", a, NULL, 0);
	return soft(r, self, str_upper(r, v_soft_str(r, self)));
}

static struct value f_lower(struct jrender *r, struct value self, const struct jargs *a)
{
	args_bind(r, "lower", "", a, NULL, 0);
	return soft(r, self, str_lower(r, v_soft_str(r, self)));
}

static struct value f_capitalize(struct jrender *r, struct value self, const struct jargs *a)
{
	args_bind(r, "capitalize", "", a, NULL, 0);
	return soft(r, self, str_capitalize(r, v_soft_str(r, self)));
}

static struct value f_title(struct jrender *r, struct value self, const struct jargs *a)
{
	args_bind(r, "title", "", a, NULL, 0);
	return v_str(str_title(r, v_soft_str(r, self), true));
}

static struct value f_trim(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[1];
	struct jstr *chars = NULL, *s = v_soft_str(r, self);

	args_bind(r, "trim", "chars", a, arg, 0);
	if (given(arg[0])) {
		if (arg[0].kind != V_STR)
			jr_fail(r, E_ARG, "strip arg must be None or str");
		chars = s->markup ? str_escape(r, arg[0].s) : arg[0].s;
	}
	return v_str(str_strip(r, s, chars, STRIP_LEFT | STRIP_RIGHT));
}

static struct value f_string(struct jrender *r, struct value self, const struct jargs *a)
{
	args_bind(r, "string", "", a, NULL, 0);
	return v_str(v_soft_str(r, self));
}

static struct value f_safe(struct jrender *r, struct value self, const struct jargs *a)
{
	args_bind(r, "safe", "", a, NULL, 0);
	return v_str(str_markup(r, v_soft_str(r, self)));
}

static struct value f_escape(struct jrender *r, struct value self, const struct jargs *a)
{
	args_bind(r, "escape", "", a, NULL, 0);
	return v_str(str_escape(r, v_soft_str(r, self)));
}

static struct value f_replace(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[3];

	args_bind(r, "replace", "old new count", a, arg, 2);
	return v_str(str_replace(r, v_to_str(r, self), v_to_str(r, arg[0]), v_to_str(r, arg[1]),
	                         given(arg[2]) ? args_int(r, "replace", arg[2], -1) : -1));
}

static struct value f_indent(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[3];
	struct jstr *s = self.s, *by;
	bool first, blank, first_line = true;
	size_t from = 0, k;
	struct sb b;

	jr_steps(r, self.kind == V_STR ? self.s->n / 4 : 0);
	args_bind(r, "indent", "width first blank", a, arg, 0);
	if (self.kind == V_UNDEF)
		v_fail_undef(r, self);
	if (self.kind != V_STR)
		jr_fail(r, E_ARG, "indent: must be str, not %s", v_type(self));
	by = arg[0].kind == V_STR ?
	             arg[0].s :
	             v_binary(r, OP_MUL, v_str(str_lit(r, " ")), v_int(args_int(r, "indent", arg[0], 4))).s;
	first = v_true(r, arg[1]);
	blank = v_true(r, arg[2]);
	sb_init(&b);
	if (first)
		sb_put_str(r, &b, by);
	/* The lines of s + "\n": every break ends one, and so does the end. */
	for (size_t i = 0; i <= s->n; i += k) {
		k = i < s->n ? line_break_at(s->p + i, s->n - i) : 1;
		if (!k) {
			k = 1;
			continue;
		}
		if (!first_line) {
			sb_puts(r, &b, "\n");
			if (blank || i > from)
				sb_put_str(r, &b, by);
		}
		sb_put_sub(r, &b, s, from, i);
		first_line = false;
		from = i + k;
	}
	return soft(r, self, sb_str(r, &b));
}

static struct value f_format(struct jrender *r, struct value self, const struct jargs *a)
{
	struct jlist *l = list_new(r, a->n);
	struct jdict *o = dict_new(r);

	if (a->n && a->n_kw)
		jr_fail(r, E_ARG, "format: can't handle positional and keyword arguments at the same time");
	for (size_t i = 0; i < a->n; i++)
		l->v[i] = a->v[i];
	for (size_t i = 0; i < a->n_kw; i++)
		dict_set(r, o, v_str(a->kw[i]), a->kwv[i]);
	return format_percent(r, v_soft_str(r, self), a->n_kw ? v_dict(o) : v_tuple(l));
}

static struct value f_from_json(struct jrender *r, struct value self, const struct jargs *a)
{
	struct err err = { 0 };
	struct value v;

	args_bind(r, "from_json", "", a, NULL, 0);
	if (self.kind != V_STR)
		jr_fail(r, E_ARG, "from_json: must be str, not %s", v_type(self));
	/* The parser's own tree may be some fifty times its text. */
	if (self.s->n > r->lim->memory_max / 64)
		jr_fail(r, E_LIMIT, "from_json: text of %zu bytes, limit is %zu", self.s->n, r->lim->memory_max / 64);
	jr_steps(r, 4 * self.s->n + 200);
	r->parsed = json_parse(self.s->p, self.s->n, 0, &err);
	if (!r->parsed)
		jr_fail(r, E_ARG, "from_json: %s", err.msg);
	v = v_from_json(r, r->parsed, str_origin(self.s), true);
	json_free(r->parsed);
	r->parsed = NULL;
	return v;
}

static struct value f_tojson(struct jrender *r, struct value self, const struct jargs *a)
{
	return v_tojson(r, self, a);
}

/* ---- numbers and the rest ---- */

static struct value truncated(struct jrender *r, double d, struct value deflt)
{
	if (isnan(d))
		return deflt;
	if (isinf(d))
		jr_fail(r, E_ARG, "cannot convert float infinity to integer");
	if (d >= 9.2e18 || d <= -9.2e18)
		jr_fail(r, E_UNSUPPORTED, "integer beyond 64 bits");
	return v_int((int64_t)d);
}

static struct value f_int(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[2];
	int64_t i, base;
	double d;

	jr_steps(r, self.kind == V_STR ? self.s->n / 2 : 0);
	args_bind(r, "int", "default base", a, arg, 0);
	if (arg[0].kind == V_MISSING)
		arg[0] = v_int(0);
	base = args_int(r, "int", arg[1], 10);
	if (self.kind == V_UNDEF)
		v_fail_undef(r, self);
	if (v_as_int(self, &i))
		return v_int(i);
	if (self.kind == V_FLOAT)
		return truncated(r, self.d, arg[0]);
	if (self.kind != V_STR)
		return arg[0];
	if (base >= 0 && base <= 36 && base != 1 && parse_int(self.s->p, self.s->n, (int)base, &i))
		return v_int(i);
	return parse_float(self.s->p, self.s->n, &d) ? truncated(r, d, arg[0]) : arg[0];
}

static struct value f_float(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[1];
	double d;

	jr_steps(r, self.kind == V_STR ? self.s->n / 2 : 0);
	args_bind(r, "float", "default", a, arg, 0);
	if (arg[0].kind == V_MISSING)
		arg[0] = v_float(0);
	if (self.kind == V_UNDEF)
		v_fail_undef(r, self);
	if (v_is_number(self))
		return v_float(v_as_double(self));
	return self.kind == V_STR && parse_float(self.s->p, self.s->n, &d) ? v_float(d) : arg[0];
}

static struct value f_abs(struct jrender *r, struct value self, const struct jargs *a)
{
	int64_t i;

	args_bind(r, "abs", "", a, NULL, 0);
	if (v_as_int(self, &i))
		return i < 0 ? v_binary(r, OP_SUB, v_int(0), v_int(i)) : v_int(i);
	if (self.kind != V_FLOAT)
		jr_fail(r, E_ARG, "bad operand type for abs(): '%s'", v_type(self));
	return v_float(fabs(self.d));
}

static struct value f_round(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[2];
	int64_t i, digits;
	double scale, d;

	args_bind(r, "round", "precision method", a, arg, 0);
	digits = args_int(r, "round", arg[0], 0);
	if (!v_is_number(self))
		jr_fail(r, E_ARG, "type %s doesn't define __round__ method", v_type(self));
	if (arg[1].kind == V_MISSING || (arg[1].kind == V_STR && str_is(arg[1].s, "common"))) {
		if (v_as_int(self, &i) && digits >= 0)
			return v_int(i);
		if (v_as_int(self, &i))
			jr_fail(r, E_UNSUPPORTED, "round: an integer to tens");
		return v_float(round_to(self.d, digits));
	}
	if (arg[1].kind != V_STR || (!str_is(arg[1].s, "ceil") && !str_is(arg[1].s, "floor")))
		jr_fail(r, E_ARG, "round: method must be common, ceil or floor");
	scale = pow(10, (double)digits);
	d = v_as_double(self) * scale;
	return v_float((str_is(arg[1].s, "ceil") ? ceil(d) : floor(d)) / scale);
}

static struct value f_default(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[2];

	args_bind(r, "default", "default_value boolean", a, arg, 0);
	if (arg[0].kind == V_MISSING)
		arg[0] = v_str(str_lit(r, ""));
	return self.kind == V_UNDEF || (v_true(r, arg[1]) && !v_true(r, self)) ? arg[0] : self;
}

static struct value f_attr(struct jrender *r, struct value self, const struct jargs *a)
{
	struct value arg[1];

	args_bind(r, "attr", "name", a, arg, 1);
	if (arg[0].kind != V_STR)
		jr_fail(r, E_ARG, "attr: name must be str, not %s", v_type(arg[0]));
	/* Never an item of a dict, so look where it has none. */
	if (self.kind == V_DICT)
		self = v_dict(dict_new(r));
	return v_getattr(r, self, arg[0].s);
}

static const struct jfilter filters[] = {
	{ "abs", f_abs },
	{ "attr", f_attr },
	{ "batch", f_batch },
	{ "capitalize", f_capitalize },
	{ "count", f_length },
	{ "d", f_default },
	{ "default", f_default },
	{ "dictsort", f_dictsort },
	{ "e", f_escape },
	{ "escape", f_escape },
	{ "first", f_first },
	{ "float", f_float },
	{ "format", f_format },
	{ "from_json", f_from_json },
	{ "indent", f_indent },
	{ "int", f_int },
	{ "items", f_items },
	{ "join", f_join },
	{ "last", f_last },
	{ "length", f_length },
	{ "list", f_list },
	{ "lower", f_lower },
	{ "map", f_map },
	{ "max", f_max },
	{ "min", f_min },
	{ "reject", f_reject },
	{ "rejectattr", f_rejectattr },
	{ "replace", f_replace },
	{ "reverse", f_reverse },
	{ "round", f_round },
	{ "safe", f_safe },
	{ "select", f_select },
	{ "selectattr", f_selectattr },
	{ "sort", f_sort },
	{ "string", f_string },
	{ "sum", f_sum },
	{ "title", f_title },
	{ "tojson", f_tojson },
	{ "trim", f_trim },
	{ "unique", f_unique },
	{ "upper", f_upper },
};

const struct jfilter *filter_find(const char *name, size_t n)
{
	FIND_NAMED(filters);
}
