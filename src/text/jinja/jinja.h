/* jinja.h - inside of the template interpreter; only jinja_*.c and template.c
 * include this.
 *
 *   jinja_lex.c      source text -> tokens (Jinja's whitespace rules)
 *   jinja_parse.c    tokens -> nodes: statements (jinja_parse.h: what it shares with jinja_expr.c)
 *   jinja_expr.c     tokens -> nodes: expressions
 *   jinja_scope.c    names -> slots (Jinja's compile-time scoping), loops and calls checked
 *   jinja_string.c   strings with origins, and the builder that makes them
 *   jinja_value.c    values: truth, equality, order, hash, str and repr, containers, iteration
 *   jinja_eval.c     nodes -> values and output
 *   jinja_attr.c     attributes, slices and the methods of dict, list, tuple, loop
 *   jinja_text.c     the methods of str
 *   jinja_filter.c   filters; jinja_test.c tests; jinja_func.c global functions
 *   jinja_format.c   numbers and % formatting, tojson
 *
 * Memory: nodes live in the template's arena, everything made while rendering in
 * the rendering's arena, freed at its end; values are never freed singly and,
 * namespaces apart, never change.  Errors leave by longjmp to the one setjmp in
 * template.c: nothing between holds anything but arena memory. */
#ifndef TEXT_JINJA_H
#define TEXT_JINJA_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/err.h"
#include "text/jinja/template.h"

/* ---- strings ---- */

/* Where text came from: ORIGIN_TEXT is the template's own, odd values are the
 * user's: 1 without a message, origin_message(i) out of message i. */
enum { ORIGIN_TEXT = 0, ORIGIN_USER = 1 };
static inline uint32_t origin_message(size_t i)
{
	return (uint32_t)(i + 1) << 1 | 1;
}
static inline uint32_t origin_mix(uint32_t a, uint32_t b)
{
	return a == b || b == ORIGIN_TEXT ? a : a == ORIGIN_TEXT ? b : ORIGIN_USER;
}

struct jrun {
	size_t end;
	uint32_t origin;
};

/* An immutable str.  With n_runs == 0 all of it has one origin; else runs[] are
 * its origins in order (the last end may exceed n, see sb in jinja_string.c). */
struct jstr {
	const char *p;
	size_t n;     /* bytes, always valid UTF-8 */
	size_t chars; /* code points; NO_CHARS: not counted yet */
	uint32_t origin;
	uint32_t n_runs;
	struct jrun *runs;
	struct sb *grown; /* the builder whose end it is, so that s ~ x can append in place */
	bool markup;      /* went through |safe: + and methods escape what joins it */
};
#define NO_CHARS ((size_t)-1)

/* Growing text with origins. */
struct sb {
	char *p;
	size_t n, cap;
	struct jrun *runs;
	uint32_t n_runs, cap_runs;
	size_t max; /* E_LIMIT beyond this many bytes */
};

/* ---- values ---- */

enum vkind {
	V_MISSING, /* a slot never assigned; never seen by operations */
	V_UNDEF,
	V_NONE,
	V_BOOL,
	V_INT,
	V_FLOAT,
	V_STR,
	V_LIST,
	V_TUPLE,
	V_DICT,
	V_VIEW, /* dict.keys(), values(), items() */
	V_RANGE,
	V_GEN,
	V_SPACE,
	V_MACRO,
	V_FUNC,
	V_METHOD,
	V_LOOP,
};
enum { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };
/* aux of an undefined value: what its string says */
enum { UNDEF_NAME, UNDEF_HINT, UNDEF_UNSAFE, UNDEF_ATTR /* + kind of the object */ };

struct value {
	uint8_t kind;
	uint8_t aux; /* V_VIEW: which; V_UNDEF: reason */
	union {
		bool b;
		int64_t i;
		double d;
		struct jstr *s;
		struct jlist *l;
		struct jdict *o;
		struct jrange *range;
		struct jgen *gen;
		struct jmacro *macro;
		const struct jfunc *func;
		struct jmethod *method;
		struct jloop *loop;
	};
	const char *digits; /* V_FLOAT that stands for an integer beyond 64 bits: as it is written.  Else NULL */
};

struct jlist {
	size_t n;
	struct value *v;
};

struct jpair {
	struct value key, value;
	uint64_t hash;
};

struct jdict {
	size_t n, cap;
	struct jpair *e; /* in order of insertion */
	uint32_t *index; /* open addressing over e, entries + 1; NULL while small */
	size_t index_cap;
};

struct jrange {
	int64_t start, stop, step, n;
};

/* Element i; the sums may wrap on the way, the element fits. */
static inline int64_t range_at(const struct jrange *g, int64_t i)
{
	return (int64_t)((uint64_t)g->start + (uint64_t)i * (uint64_t)g->step);
}

struct jmacro {
	const struct node *node;
	struct jrec *scope; /* record of the function it was defined in */
};

struct jmethod {
	struct value self;
	const struct jmethod_def *def;
};

/* Arguments of a call: positional and by keyword. */
struct jargs {
	size_t n, n_kw;
	struct value *v;
	struct jstr **kw; /* names of kwv[] */
	struct value *kwv;
};

struct jrender;
struct jfunc {
	const char *name;
	struct value (*call)(struct jrender *r, const struct jargs *a);
};
struct jfilter {
	const char *name;
	struct value (*call)(struct jrender *r, struct value self, const struct jargs *a);
};
struct jtest {
	const char *name;
	bool (*call)(struct jrender *r, struct value self, const struct jargs *a);
};
struct jmethod_def {
	const char *name;
	uint8_t n;    /* its length */
	uint8_t kind; /* whose method */
	bool refused; /* it would change its object: the sandbox says no */
	struct value (*call)(struct jrender *r, struct value self, const struct jargs *a); /* NULL: we lack it */
};

/* An iteration under way over any iterable value. */
struct jiter {
	struct value of;
	size_t i; /* next element, or byte offset in a str */
};

/* A generator: what lazy filters yield.  Consumed once, like Python's. */
enum gen_op { GEN_MAP, GEN_SELECT, GEN_UNIQUE, GEN_ITEMS, GEN_PLAIN, GEN_BATCH };
struct jgen {
	enum gen_op op;
	struct jiter src;
	bool started;
	bool by_attr;                 /* SELECT: looks at an attribute, args.v[0] */
	bool negate;                  /* SELECT: keeps what fails the test */
	bool fold;                    /* UNIQUE: case does not count */
	struct value path;            /* attribute path (a list of parts), or V_MISSING */
	struct value fill;            /* MAP: instead of undefined, BATCH: pads; V_MISSING: none */
	const struct jfilter *filter; /* MAP by filter */
	const struct jtest *test;     /* SELECT; NULL: truth */
	struct jargs args;
	struct jdict *seen; /* UNIQUE */
	int64_t size;       /* BATCH */
};

/* ---- nodes ---- */

enum nkind {
	/* expressions */
	N_CONST,
	N_NAME,
	N_TUPLE,
	N_LIST,
	N_DICT,
	N_COND,
	N_OR,
	N_AND,
	N_NOT,
	N_NEG,
	N_POS,
	N_BINARY,
	N_CONCAT,
	N_COMPARE,
	N_ATTR,
	N_ITEM,
	N_SLICE,
	N_CALL,
	N_FILTER,
	N_TEST,
	N_NSREF,
	/* statements */
	N_OUTPUT,
	N_FOR,
	N_IF,
	N_SET,
	N_SETBLOCK,
	N_MACRO,
	N_CALLBLOCK,
	N_FILTERBLOCK,
	N_WITH,
	N_SCOPE,
	N_BREAK,
	N_CONTINUE,
};
enum nop {
	OP_ADD,
	OP_SUB,
	OP_MUL,
	OP_DIV,
	OP_FLOORDIV,
	OP_MOD,
	OP_POW,
	OP_EQ,
	OP_NE,
	OP_LT,
	OP_LE,
	OP_GT,
	OP_GE,
	OP_IN,
	OP_NOTIN
};

struct nodes {
	struct node **v;
	uint32_t n;
};

/* A variable: slot of the function record `hops` functions outward. */
struct ref {
	uint16_t hops, slot;
};

enum load_kind { LOAD_PARAM, LOAD_RESOLVE, LOAD_ALIAS, LOAD_UNDEF };
struct load {
	enum load_kind kind;
	uint16_t slot;
	int name;
	struct ref from; /* LOAD_ALIAS */
};

/* Loads into slots that entering a scope performs. */
struct scope {
	struct load *loads;
	uint32_t n;
};

struct keyword {
	struct jstr *name;
	int id;
	struct node *value;
};

struct node {
	uint8_t kind, op;
	bool extended;  /* N_FOR: the body reads loop */
	uint16_t depth; /* height of the expression */
	int line;
	int name; /* N_NAME, N_NSREF, N_MACRO: id; N_FOR: slot of loop */
	struct ref ref;
	struct node *a, *b, *c; /* operands; see jinja_parse.c for each kind */
	struct nodes list, body, orelse;
	uint8_t *ops; /* N_COMPARE: operator before list[i] */
	struct keyword *kw;
	uint32_t n_kw;
	struct node *star, *starstar;
	struct value value; /* N_CONST, and the name of N_ATTR, N_NSREF */
	const struct jfilter *filter;
	const struct jtest *test;
	struct scope scope, scope2; /* inner scope; N_FOR: scope2 is the test's */
	struct node *else_scope;    /* N_FOR: N_SCOPE that holds the else branch */
	uint16_t n_slots;           /* N_MACRO: size of its record */
	int special[3];             /* N_MACRO: slots of caller, kwargs, varargs, or -1 */
};

struct jname {
	const char *p;
	size_t n;
	struct jstr *str;
	bool read;           /* loaded somewhere */
	bool stored;         /* assigned somewhere, or an attribute set on a namespace */
	struct binding *top; /* jinja_scope.c */
};

struct template
{
	struct arena mem;
	struct template_limits lim;
	const char *src; /* as it was given */
	size_t n_src;
	struct jname *names;
	int n_names;
	struct nodes body;
	struct scope scope;
	uint16_t n_slots;
};

/* ---- compiling ---- */

enum tkind {
	T_EOF,
	T_DATA,
	T_VAR_BEGIN,
	T_VAR_END,
	T_BLOCK_BEGIN,
	T_BLOCK_END,
	T_NAME,
	T_STRING,
	T_INT,
	T_FLOAT,
	T_ADD,
	T_SUB,
	T_DIV,
	T_FLOORDIV,
	T_MUL,
	T_MOD,
	T_POW,
	T_TILDE,
	T_LBRACKET,
	T_RBRACKET,
	T_LPAREN,
	T_RPAREN,
	T_LBRACE,
	T_RBRACE,
	T_EQ,
	T_NE,
	T_GT,
	T_GE,
	T_LT,
	T_LE,
	T_ASSIGN,
	T_DOT,
	T_COLON,
	T_PIPE,
	T_COMMA,
	T_SEMICOLON,
};

struct token {
	enum tkind kind;
	int line;
	const char *p; /* T_DATA, T_STRING (unescaped), T_NAME */
	size_t n;
	int name; /* T_NAME: id */
	int64_t i;
	double d;
};

struct jcompile {
	struct template *t;
	struct token *tok;
	size_t n_tok, cap_tok, at;
	uint32_t *name_index; /* hash table over names */
	size_t name_index_cap, cap_names;
	int nest, loops;
	struct err *err;
	jmp_buf fail;
};

_Noreturn void jc_fail(struct jcompile *c, int code, int line, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
int jc_name(struct jcompile *c, const char *p, size_t n);
struct jstr *jc_str(struct jcompile *c, const char *p, size_t n);
void jinja_lex(struct jcompile *c, const char *src, size_t n);
void jinja_parse(struct jcompile *c);
void jinja_scope(struct jcompile *c);

/* ---- rendering ---- */

struct jrec {
	struct jrec *parent;
	struct value slot[];
};

struct jloop {
	struct jiter src;
	const struct node *node;
	struct jrec *rec;
	struct value prev, cur, next; /* V_MISSING: none (next: not peeked) */
	int64_t index0;
	int64_t length; /* -1: not asked */
	struct value last_changed;
};

struct jrender {
	const struct template *t;
	const struct template_limits *lim;
	struct arena mem;
	uint64_t steps;
	int depth, calls;
	int line;
	struct sb *out;
	struct value *ctx; /* by name id: what the caller passes, and functions */
	int64_t now;
	struct json *parsed; /* a tree being converted, freed also when that fails */
	struct err *err;
	jmp_buf fail;
};

_Noreturn void jr_fail(struct jrender *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void *jr_alloc(struct jrender *r, size_t n); /* E_LIMIT beyond memory_max */
void *jr_array(struct jrender *r, size_t n, size_t size);
void jr_steps(struct jrender *r, uint64_t n); /* E_LIMIT beyond steps_max */
/* memcpy, with looks at the allowance on the way (base/allowance.h). */
void jr_copy(struct jrender *r, char *to, const char *from, size_t n);
static inline void jr_bytes(struct jrender *r, size_t n)
{
	jr_steps(r, n / 16 + 1);
}
void jr_enter(struct jrender *r); /* one evaluation deeper; E_LIMIT beyond depth_max */
static inline void jr_leave(struct jrender *r)
{
	r->depth--;
}

/* jinja_string.c */
void sb_init(struct sb *b);
void sb_reserve(struct jrender *r, struct sb *b, size_t more);
void sb_put(struct jrender *r, struct sb *b, const char *p, size_t n, uint32_t origin);
void sb_puts(struct jrender *r, struct sb *b, const char *s); /* ORIGIN_TEXT */
void sb_put_str(struct jrender *r, struct sb *b, const struct jstr *s);
void sb_put_sub(struct jrender *r, struct sb *b, const struct jstr *s, size_t from, size_t to);
struct jstr *sb_str(struct jrender *r, struct sb *b);
void sb_one_origin(struct sb *b, uint32_t origin);                                 /* all of it */
struct jstr *str_new(struct jrender *r, const char *p, size_t n, uint32_t origin); /* p is borrowed */
struct jstr *str_copy(struct jrender *r, const char *p, size_t n);
struct jstr *str_lit(struct jrender *r, const char *s);
struct jstr *str_sub(struct jrender *r, struct jstr *s, size_t from, size_t to); /* bytes */
struct jstr *str_concat(struct jrender *r, struct jstr *a, const struct jstr *b);
struct jstr *str_escape(struct jrender *r, struct jstr *s); /* &<>'" as Markup does; a markup stays as it is */
struct jstr *str_markup(struct jrender *r, struct jstr *s);
struct jstr *str_upper(struct jrender *r, struct jstr *s);
struct jstr *str_lower(struct jrender *r, struct jstr *s);
struct jstr *str_capitalize(struct jrender *r, struct jstr *s);
struct jstr *str_title(struct jrender *r, struct jstr *s, bool jinja);
struct jstr *str_replace(struct jrender *r, struct jstr *s, const struct jstr *old, const struct jstr *with,
                         int64_t count);
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
struct jstr *str_strip(struct jrender *r, struct jstr *s, const struct jstr *chars, int sides); /* NULL: whitespace */
size_t str_chars(struct jstr *s);
size_t str_offset(struct jstr *s, size_t chars); /* byte offset of a code point */
uint32_t str_origin(const struct jstr *s);       /* the one origin, or the mix */
bool str_eq(const struct jstr *a, const struct jstr *b);
bool str_is(const struct jstr *a, const char *b);
int str_cmp(const struct jstr *a, const struct jstr *b);
bool is_space(uint32_t cp);                    /* Python's str.isspace */
size_t space_at(const char *p, size_t n);      /* length of the whitespace character at p, or 0 */
size_t space_before(const char *p, size_t n);  /* length of the whitespace character that ends p[0..n) */
size_t line_break_at(const char *p, size_t n); /* of str.splitlines */
const char *mem_find(const char *p, size_t n, const char *what, size_t m);

/* jinja_value.c */
static inline struct value v_none(void)
{
	return (struct value){ .kind = V_NONE };
}
static inline struct value v_bool(bool b)
{
	return (struct value){ .kind = V_BOOL, .b = b };
}
static inline struct value v_int(int64_t i)
{
	return (struct value){ .kind = V_INT, .i = i };
}
static inline struct value v_float(double d)
{
	return (struct value){ .kind = V_FLOAT, .d = d };
}
static inline struct value v_str(struct jstr *s)
{
	return (struct value){ .kind = V_STR, .s = s };
}
static inline struct value v_list(struct jlist *l)
{
	return (struct value){ .kind = V_LIST, .l = l };
}
static inline struct value v_tuple(struct jlist *l)
{
	return (struct value){ .kind = V_TUPLE, .l = l };
}
static inline struct value v_dict(struct jdict *o)
{
	return (struct value){ .kind = V_DICT, .o = o };
}
static inline struct value v_undef(struct jstr *name, int why)
{
	return (struct value){ .kind = V_UNDEF, .aux = (uint8_t)why, .s = name };
}
struct value v_undef_hint(struct jrender *r, const char *hint);
struct value v_pair(struct jrender *r, struct value a, struct value b);
bool v_is_number(struct value v);            /* int, bool, float */
bool v_as_int(struct value v, int64_t *out); /* int or bool */
double v_as_double(struct value v);          /* of a number */
const char *v_type(struct value v);          /* Python's type name */
_Noreturn void v_fail_undef(struct jrender *r, struct value v);
bool v_true(struct jrender *r, struct value v);
bool v_eq(struct jrender *r, struct value a, struct value b);
bool v_compare(struct jrender *r, int op, struct value a, struct value b);
bool v_in(struct jrender *r, struct value v, struct value in);
bool v_has_len(struct value v);
int64_t v_len(struct jrender *r, struct value v);
bool v_iterable(struct value v);
struct jstr *v_to_str(struct jrender *r, struct value v);   /* str(v) */
struct jstr *v_soft_str(struct jrender *r, struct value v); /* a markup stays one */
void v_put_str(struct jrender *r, struct sb *b, struct value v);
void v_put_repr(struct jrender *r, struct sb *b, struct value v);
struct jlist *list_new(struct jrender *r, size_t n);
void list_push(struct jrender *r, struct jlist *l, size_t *cap, struct value v);
struct jlist *v_to_list(struct jrender *r, struct value v); /* list(v), a fresh one */
struct jdict *dict_new(struct jrender *r);
void dict_set(struct jrender *r, struct jdict *o, struct value key, struct value v);
struct value *dict_get(struct jrender *r, struct jdict *o, struct value key); /* NULL: absent; error: unhashable */
struct value *dict_get_str(struct jrender *r, struct jdict *o, const struct jstr *key);
bool v_hashable(struct value v);
struct value view_at(struct jrender *r, struct value view, size_t i);
struct jiter iter_open(struct jrender *r, struct value v); /* error: not iterable */
bool iter_next(struct jrender *r, struct jiter *it, struct value *out);
void v_sort(struct jrender *r, struct value *keys, struct value *vals, size_t n, bool reverse);

/* jinja_eval.c */
struct value jr_eval(struct jrender *r, struct jrec *rec, const struct node *n);
void jr_run(struct jrender *r);
struct value jr_call(struct jrender *r, struct value f, const struct jargs *a);
struct value v_add(struct jrender *r, struct value a, struct value b);
struct value v_binary(struct jrender *r, int op, struct value a, struct value b);
bool loop_fetch(struct jrender *r, struct jloop *l, struct value *out);

/* A line of a table of methods; METHOD_REFUSED: one that would change its object, which the sandbox refuses. */
#define METHOD(kind, name, fn)                         \
	{                                              \
		name, sizeof name - 1, kind, false, fn \
	}
#define METHOD_REFUSED(kind, name)                      \
	{                                               \
		name, sizeof name - 1, kind, true, NULL \
	}

/* jinja_text.c: the methods of str, and what slices of a str share with them. */
extern const struct jmethod_def text_methods[];
extern const size_t n_text_methods;
/* Checks an integer argument as Python's __index__ does; deflt where it is missing. */
int64_t py_index(struct jrender *r, struct value v, int64_t deflt);
/* A slice bound on a length n, clamped to 0 .. n; deflt where it is None or missing. */
int64_t py_bound(struct jrender *r, struct value v, int64_t deflt, int64_t n);
void no_args(struct jrender *r, const char *what, const struct jargs *a); /* E_ARG where there are any */
/* s as the result of a method of self: markup where self is. */
struct value str_like(struct jrender *r, struct value self, struct jstr *s);

/* jinja_attr.c */
struct value v_getattr(struct jrender *r, struct value v, struct jstr *name);
struct value v_getitem(struct jrender *r, struct value v, struct value key);
struct value v_slice(struct jrender *r, struct value v, struct value from, struct value to, struct value step);
struct value method_call(struct jrender *r, struct jmethod *m, const struct jargs *a);
enum { METHOD_UNKNOWN, METHOD_LACKING, METHOD_KNOWN };
int method_known(const char *name, size_t n);

/* jinja_filter.c, jinja_test.c, jinja_func.c */
const struct jfilter *filter_find(const char *name, size_t n);
const struct jtest *test_find(const char *name, size_t n);
const struct jfunc *func_find(const char *name, size_t n);
/* Body of a function that looks a name up in a table: returns the entry whose name is the n bytes at name, or NULL. */
#define FIND_NAMED(table)                                                          \
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)                  \
		if (strlen(table[i].name) == n && !memcmp(table[i].name, name, n)) \
			return &table[i];                                          \
	return NULL
bool gen_next(struct jrender *r, struct jgen *g, struct value *out);
/* Lays arguments out by parameter: names is "a b c"; absent ones become
 * V_MISSING, too many or unknown ones are errors of `what`. */
void args_bind(struct jrender *r, const char *what, const char *names, const struct jargs *a, struct value *out,
               int required);
/* The integer of an argument of `what`; deflt where it is missing, E_ARG where it is not an integer. */
int64_t args_int(struct jrender *r, const char *what, struct value v, int64_t deflt);

/* jinja_format.c */
void put_int(struct jrender *r, struct sb *b, int64_t i);
void put_float(struct jrender *r, struct sb *b, double d); /* Python's repr */
struct value format_percent(struct jrender *r, struct jstr *fmt, struct value args);
struct value format_braces(struct jrender *r, struct jstr *fmt, const struct jargs *a);
struct value v_tojson(struct jrender *r, struct value v, const struct jargs *a);
bool parse_int(const char *p, size_t n, int base, int64_t *out); /* int("...", base) */
bool parse_float(const char *p, size_t n, double *out);          /* float("...") */
double round_to(double v, int64_t digits);

/* template.c */
struct value v_from_json(struct jrender *r, const struct json *j, uint32_t origin, bool copy);

#endif
