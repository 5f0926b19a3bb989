/* jinja_func.c - global functions: range, dict, namespace, and those that chat templates expect. */
#include "text/jinja/jinja.h"

#include <string.h>
#include <time.h>

enum { RANGE_MAX = 100000 }; /* as in Jinja's sandbox */

static struct value g_range(struct jrender *r, const struct jargs *a)
{
	struct jrange *g = jr_alloc(r, sizeof *g);
	struct value arg[3];
	__int128 n;

	args_bind(r, "range", "- - -", a, arg, 1);
	if (arg[1].kind == V_MISSING)
		*g = (struct jrange){ 0, args_int(r, "range", arg[0], 0), 1, 0 };
	else
		*g = (struct jrange){ args_int(r, "range", arg[0], 0), args_int(r, "range", arg[1], 0),
			              args_int(r, "range", arg[2], 1), 0 };
	if (!g->step)
		jr_fail(r, E_ARG, "range() arg 3 must not be zero");
	n = g->step > 0 ? ((__int128)g->stop - g->start + g->step - 1) / g->step :
	                  ((__int128)g->start - g->stop - g->step - 1) / -(__int128)g->step;
	if (n > RANGE_MAX)
		jr_fail(r, E_LIMIT, "range of more than %d elements", RANGE_MAX);
	g->n = n > 0 ? (int64_t)n : 0;
	return (struct value){ .kind = V_RANGE, .range = g };
}

/* dict(mapping or pairs, **kw) */
static struct jdict *make_dict(struct jrender *r, const char *what, const struct jargs *a)
{
	struct jdict *o = dict_new(r);
	struct jiter it;
	struct value v;

	if (a->n > 1)
		jr_fail(r, E_ARG, "%s expected at most 1 argument, got %zu", what, a->n);
	if (a->n && a->v[0].kind == V_DICT) {
		for (size_t i = 0; i < a->v[0].o->n; i++)
			dict_set(r, o, a->v[0].o->e[i].key, a->v[0].o->e[i].value);
	} else if (a->n) {
		it = iter_open(r, a->v[0]);
		while (iter_next(r, &it, &v)) {
			struct jlist *pair = v_to_list(r, v);

			if (pair->n != 2)
				jr_fail(r, E_ARG, "%s: element has length %zu; 2 is required", what, pair->n);
			dict_set(r, o, pair->v[0], pair->v[1]);
		}
	}
	for (size_t i = 0; i < a->n_kw; i++)
		dict_set(r, o, v_str(a->kw[i]), a->kwv[i]);
	return o;
}

static struct value g_dict(struct jrender *r, const struct jargs *a)
{
	return v_dict(make_dict(r, "dict", a));
}

static struct value g_namespace(struct jrender *r, const struct jargs *a)
{
	return (struct value){ .kind = V_SPACE, .o = make_dict(r, "namespace", a) };
}

static struct value g_raise_exception(struct jrender *r, const struct jargs *a)
{
	struct value arg[1];
	struct jstr *s;

	args_bind(r, "raise_exception", "message", a, arg, 1);
	s = v_to_str(r, arg[0]);
	jr_fail(r, E_ARG, "%.*s", s->n < 400 ? (int)s->n : 400, s->p);
}

static struct value g_strftime_now(struct jrender *r, const struct jargs *a)
{
	struct value arg[1];
	struct tm tm = { 0 };
	char text[1024], *format;
	time_t now = (time_t)r->now;
	size_t n;

	args_bind(r, "strftime_now", "format", a, arg, 1);
	jr_steps(r, 200);
	if (arg[0].kind != V_STR || arg[0].s->n > 200)
		jr_fail(r, E_ARG, "strftime_now: format must be a string of at most 200 bytes");
	if (!arg[0].s->n)
		return arg[0];
	format = jr_alloc(r, arg[0].s->n + 1);
	memcpy(format, arg[0].s->p, arg[0].s->n);
	format[arg[0].s->n] = 0;
	if (!localtime_r(&now, &tm))
		jr_fail(r, E_ARG, "strftime_now: time %lld is out of range", (long long)r->now);
	n = strftime(text, sizeof text, format, &tm);
	if (!n)
		jr_fail(r, E_LIMIT, "strftime_now: result of more than %zu bytes", sizeof text - 1);
	return v_str(str_copy(r, text, n));
}

static const struct jfunc funcs[] = {
	{ "range", g_range },
	{ "dict", g_dict },
	{ "namespace", g_namespace },
	{ "raise_exception", g_raise_exception },
	{ "strftime_now", g_strftime_now },
};

const struct jfunc *func_find(const char *name, size_t n)
{
	FIND_NAMED(funcs);
}
