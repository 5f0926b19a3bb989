/* jinja_test.c - tests: "x is defined", "x is divisibleby 3". */
#include "text/jinja/jinja.h"

#include <string.h>

static bool t_defined(struct jrender *r, struct value v, const struct jargs *a)
{
	return v.kind != V_UNDEF;
}
static bool t_undefined(struct jrender *r, struct value v, const struct jargs *a)
{
	return v.kind == V_UNDEF;
}
static bool t_none(struct jrender *r, struct value v, const struct jargs *a)
{
	return v.kind == V_NONE;
}
static bool t_boolean(struct jrender *r, struct value v, const struct jargs *a)
{
	return v.kind == V_BOOL;
}
static bool t_false(struct jrender *r, struct value v, const struct jargs *a)
{
	return v.kind == V_BOOL && !v.b;
}
static bool t_true(struct jrender *r, struct value v, const struct jargs *a)
{
	return v.kind == V_BOOL && v.b;
}
static bool t_integer(struct jrender *r, struct value v, const struct jargs *a)
{
	return v.kind == V_INT;
}
static bool t_float(struct jrender *r, struct value v, const struct jargs *a)
{
	return v.kind == V_FLOAT;
}
static bool t_number(struct jrender *r, struct value v, const struct jargs *a)
{
	return v_is_number(v);
}
static bool t_string(struct jrender *r, struct value v, const struct jargs *a)
{
	return v.kind == V_STR;
}
static bool t_mapping(struct jrender *r, struct value v, const struct jargs *a)
{
	return v.kind == V_DICT;
}

static bool t_sequence(struct jrender *r, struct value v, const struct jargs *a)
{
	return v_has_len(v) && v.kind != V_VIEW;
}

static bool t_iterable(struct jrender *r, struct value v, const struct jargs *a)
{
	return v_iterable(v) || v.kind == V_LOOP;
}

static bool t_callable(struct jrender *r, struct value v, const struct jargs *a)
{
	return v.kind == V_FUNC || v.kind == V_MACRO || v.kind == V_METHOD || v.kind == V_LOOP || v.kind == V_UNDEF;
}

static bool t_escaped(struct jrender *r, struct value v, const struct jargs *a)
{
	return v.kind == V_STR && v.s->markup;
}

static bool remainder_is(struct jrender *r, struct value v, int64_t by, int64_t want)
{
	return v_eq(r, v_binary(r, OP_MOD, v, v_int(by)), v_int(want));
}

static bool t_odd(struct jrender *r, struct value v, const struct jargs *a)
{
	return remainder_is(r, v, 2, 1);
}
static bool t_even(struct jrender *r, struct value v, const struct jargs *a)
{
	return remainder_is(r, v, 2, 0);
}

static struct value only_arg(struct jrender *r, const char *what, const struct jargs *a)
{
	struct value arg[1];

	args_bind(r, what, "-", a, arg, 1);
	return arg[0];
}

static bool t_divisibleby(struct jrender *r, struct value v, const struct jargs *a)
{
	return v_eq(r, v_binary(r, OP_MOD, v, only_arg(r, "divisibleby", a)), v_int(0));
}

static bool t_sameas(struct jrender *r, struct value v, const struct jargs *a)
{
	struct value o = only_arg(r, "sameas", a);

	return v.kind == o.kind && (v.kind <= V_STR ? v_eq(r, v, o) : v.l == o.l);
}

static bool t_lower(struct jrender *r, struct value v, const struct jargs *a)
{
	struct jargs none = { 0 };

	return v_true(r, jr_call(r, v_getattr(r, v_str(v_to_str(r, v)), str_lit(r, "islower")), &none));
}

static bool t_upper(struct jrender *r, struct value v, const struct jargs *a)
{
	struct jargs none = { 0 };

	return v_true(r, jr_call(r, v_getattr(r, v_str(v_to_str(r, v)), str_lit(r, "isupper")), &none));
}

static bool t_filter(struct jrender *r, struct value v, const struct jargs *a)
{
	return v.kind == V_STR && filter_find(v.s->p, v.s->n);
}

static bool t_test(struct jrender *r, struct value v, const struct jargs *a)
{
	return v.kind == V_STR && test_find(v.s->p, v.s->n);
}

#define COMPARE(fn, op)                                                          \
	static bool fn(struct jrender *r, struct value v, const struct jargs *a) \
	{                                                                        \
		return v_compare(r, op, v, only_arg(r, "test", a));              \
	}
COMPARE(t_eq, OP_EQ)
COMPARE(t_ne, OP_NE)
COMPARE(t_lt, OP_LT)
COMPARE(t_le, OP_LE)
COMPARE(t_gt, OP_GT)
COMPARE(t_ge, OP_GE)
COMPARE(t_in, OP_IN)
#undef COMPARE

static const struct jtest tests[] = {
	{ "defined", t_defined },
	{ "undefined", t_undefined },
	{ "none", t_none },
	{ "boolean", t_boolean },
	{ "false", t_false },
	{ "true", t_true },
	{ "integer", t_integer },
	{ "float", t_float },
	{ "number", t_number },
	{ "string", t_string },
	{ "mapping", t_mapping },
	{ "sequence", t_sequence },
	{ "iterable", t_iterable },
	{ "callable", t_callable },
	{ "escaped", t_escaped },
	{ "odd", t_odd },
	{ "even", t_even },
	{ "divisibleby", t_divisibleby },
	{ "sameas", t_sameas },
	{ "lower", t_lower },
	{ "upper", t_upper },
	{ "filter", t_filter },
	{ "test", t_test },
	{ "in", t_in },
	{ "==", t_eq },
	{ "eq", t_eq },
	{ "equalto", t_eq },
	{ "!=", t_ne },
	{ "ne", t_ne },
	{ ">", t_gt },
	{ "gt", t_gt },
	{ "greaterthan", t_gt },
	{ ">=", t_ge },
	{ "ge", t_ge },
	{ "<", t_lt },
	{ "lt", t_lt },
	{ "lessthan", t_lt },
	{ "<=", t_le },
	{ "le", t_le },
};

const struct jtest *test_find(const char *name, size_t n)
{
	FIND_NAMED(tests);
}
