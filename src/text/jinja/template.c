/* template.c - see template.h: opening, limits, inputs to values, output to runs. */
#include "text/jinja/template.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allowance.h"
#include "base/utf8.h"
#include "text/jinja/jinja.h"

static const struct template_limits defaults = {
	.source_max = 1 << 20,
	.nest_max = 100,
	.steps_max = 20 * 1000 * 1000,
	.memory_max = (size_t)256 << 20,
	.output_max = (size_t)64 << 20,
	.depth_max = 1200,
	.call_max = 100,
};

static struct template_limits with_defaults(const struct template_limits *given)
{
	struct template_limits l = given ? *given : defaults;

	if (!l.source_max)
		l.source_max = defaults.source_max;
	if (l.nest_max <= 0)
		l.nest_max = defaults.nest_max;
	if (!l.steps_max)
		l.steps_max = defaults.steps_max;
	if (!l.memory_max)
		l.memory_max = defaults.memory_max;
	if (!l.output_max)
		l.output_max = defaults.output_max;
	if (l.depth_max <= 0)
		l.depth_max = defaults.depth_max;
	if (l.call_max <= 0)
		l.call_max = defaults.call_max;
	return l;
}

/* ---- opening ---- */

void jc_fail(struct jcompile *c, int code, int line, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	err_set(c->err, code, "template line %d: %s", line, text);
	longjmp(c->fail, 1);
}

struct jstr *jc_str(struct jcompile *c, const char *p, size_t n)
{
	struct jstr *s = arena_zalloc(&c->t->mem, sizeof *s);

	s->p = p;
	s->n = n;
	s->chars = NO_CHARS;
	str_chars(s); /* counted now: renderings share it */
	return s;
}

/* Names are interned: one id for each spelling. */
int jc_name(struct jcompile *c, const char *p, size_t n)
{
	uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
	struct jname *old = c->t->names, *nm;
	size_t k;

	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)p[i]) * 0x100000001b3u;
	if (2 * (size_t)c->t->n_names >= c->name_index_cap) {
		size_t cap = c->name_index_cap ? 2 * c->name_index_cap : 256;
		uint32_t *index = arena_zalloc(&c->t->mem, cap * sizeof *index);

		for (int i = 0; i < c->t->n_names; i++) {
			uint64_t g = 0xcbf29ce484222325u;

			for (size_t b = 0; b < old[i].n; b++)
				g = (g ^ (unsigned char)old[i].p[b]) * 0x100000001b3u;
			for (k = g & (cap - 1); index[k]; k = (k + 1) & (cap - 1))
				;
			index[k] = (uint32_t)i + 1;
		}
		c->name_index = index;
		c->name_index_cap = cap;
	}
	for (k = h & (c->name_index_cap - 1); c->name_index[k]; k = (k + 1) & (c->name_index_cap - 1)) {
		nm = &old[c->name_index[k] - 1];
		if (nm->n == n && !memcmp(nm->p, p, n))
			return (int)c->name_index[k] - 1;
	}
	if ((size_t)c->t->n_names == c->cap_names) {
		c->cap_names = c->cap_names ? 2 * c->cap_names : 128;
		c->t->names = arena_alloc(&c->t->mem, c->cap_names * sizeof *old);
		if (c->t->n_names)
			memcpy(c->t->names, old, (size_t)c->t->n_names * sizeof *old);
	}
	nm = &c->t->names[c->t->n_names];
	*nm = (struct jname){ .p = arena_strndup(&c->t->mem, p, n), .n = n };
	nm->str = jc_str(c, nm->p, n);
	c->name_index[k] = (uint32_t)++c->t->n_names;
	return c->t->n_names - 1;
}

int template_open(struct template **out, const char *src, size_t n, const struct template_limits *limits,
                  struct err *err)
{
	struct err local = { 0 };
	struct template *t;
	struct jcompile *c;
	size_t bad;
	int code;

	*out = NULL;
	t = xcalloc(1, sizeof *t);
	t->lim = with_defaults(limits);
	arena_init(&t->mem);
	c = arena_zalloc(&t->mem, sizeof *c);
	c->t = t;
	c->err = err ? err : &local;
	if (setjmp(c->fail)) {
		code = c->err->code;
		template_close(t);
		return code;
	}
	if (n > t->lim.source_max)
		jc_fail(c, E_LIMIT, 1, "%zu bytes of template, limit is %zu", n, t->lim.source_max);
	bad = utf8_valid(src, n);
	if (bad < n)
		jc_fail(c, E_FORMAT, 1, "invalid UTF-8 at byte %zu", bad);
	t->src = arena_strndup(&t->mem, src, n);
	t->n_src = n;
	jinja_lex(c, src, n);
	jinja_parse(c);
	jinja_scope(c);
	*out = t;
	return 0;
}

void template_close(struct template *t)
{
	if (!t)
		return;
	arena_fini(&t->mem);
	free(t);
}

bool template_uses(const struct template *t, const char *variable)
{
	size_t n = strlen(variable);

	for (int i = 0; i < t->n_names; i++)
		if (t->names[i].n == n && !memcmp(t->names[i].p, variable, n))
			return t->names[i].read;
	return false;
}

const char *template_text(const struct template *t, size_t *n)
{
	*n = t->n_src;
	return t->src;
}

bool template_says(const struct template *t, const char *text)
{
	return memmem(t->src, t->n_src, text, strlen(text));
}

/* ---- rendering: limits ---- */

void jr_fail(struct jrender *r, int code, const char *fmt, ...)
{
	char text[450];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	err_set(r->err, code, "template line %d: %s", r->line, text);
	longjmp(r->fail, 1);
}

void *jr_alloc(struct jrender *r, size_t n)
{
	if (n > r->lim->memory_max || r->mem.used > r->lim->memory_max - n)
		jr_fail(r, E_LIMIT, "needs more than %zu bytes of memory", r->lim->memory_max);
	return arena_alloc(&r->mem, n);
}

void *jr_array(struct jrender *r, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes))
		jr_fail(r, E_LIMIT, "needs more than %zu bytes of memory", r->lim->memory_max);
	return jr_alloc(r, bytes);
}

void jr_steps(struct jrender *r, uint64_t n)
{
	r->steps += n;
	if (!allowance_spend(n))
		jr_fail(r, E_LIMIT, "%s", allowance_why());
	if (r->steps > r->lim->steps_max || r->steps < n)
		jr_fail(r, E_LIMIT, "more than %llu steps", (unsigned long long)r->lim->steps_max);
}

void jr_copy(struct jrender *r, char *to, const char *from, size_t n)
{
	enum { PIECE = 1 << 20 };

	for (size_t k; n; to += k, from += k, n -= k) {
		k = n < PIECE ? n : PIECE;
		memcpy(to, from, k);
		if (n > k)
			jr_steps(r, 0);
	}
}

void jr_enter(struct jrender *r)
{
	r->steps++;
	if (!allowance_spend(1))
		jr_fail(r, E_LIMIT, "%s", allowance_why());
	if (r->steps > r->lim->steps_max)
		jr_fail(r, E_LIMIT, "more than %llu steps", (unsigned long long)r->lim->steps_max);
	if (++r->depth > r->lim->depth_max)
		jr_fail(r, E_LIMIT, "evaluation nested more than %d deep", r->lim->depth_max);
}

/* ---- rendering: inputs ---- */

static struct value str_from(struct jrender *r, const char *p, size_t n, uint32_t origin, bool copy)
{
	struct jstr *s = copy ? str_copy(r, p, n) : str_new(r, p, n, origin);

	s->origin = origin;
	return v_str(s);
}

/* An integer beyond 64 bits: the nearest float in what is computed, and all its digits where it is written. */
static struct value v_beyond(struct jrender *r, const char *digits)
{
	struct value v = v_float(strtod(digits, NULL));

	v.digits = str_copy(r, digits, strlen(digits) + 1)->p;
	return v;
}

struct value v_from_json(struct jrender *r, const struct json *j, uint32_t origin, bool copy)
{
	struct json_cursor cur;
	const struct json *v;
	struct jlist *l;
	struct jdict *o;
	const char *key, *s;
	bool flag = false;
	int64_t i = 0;
	size_t n;

	switch (json_kind(j)) {
	case JSON_BOOL: json_to_bool(j, &flag); return v_bool(flag);
	case JSON_INT: return json_to_int(j, &i) ? v_beyond(r, json_number_text(j)) : v_int(i);
	case JSON_DOUBLE: return v_float(strtod(json_number_text(j), NULL));
	case JSON_STRING: s = json_str(j, &n); return str_from(r, s, n, origin, copy);
	case JSON_ARRAY:
		jr_enter(r);
		l = list_new(r, json_len(j));
		for (size_t k = 0; k < l->n; k++) {
			jr_steps(r, 1);
			l->v[k] = v_from_json(r, json_at(j, k), origin, copy);
		}
		jr_leave(r);
		return v_list(l);
	case JSON_OBJECT:
		jr_enter(r);
		o = dict_new(r);
		for (cur = json_first(j); json_next(&cur, &key, &v);) {
			struct value k = str_from(r, key, strlen(key), origin, copy);

			dict_set(r, o, k, v_from_json(r, v, origin, copy));
		}
		jr_leave(r);
		return v_dict(o);
	default: return v_none();
	}
}

static void define(struct jrender *r, const char *name, size_t n, struct value v)
{
	for (int i = 0; i < r->t->n_names; i++)
		if (r->t->names[i].n == n && !memcmp(r->t->names[i].p, name, n))
			r->ctx[i] = v;
}

static struct value messages_value(struct jrender *r, const struct json *messages)
{
	struct jlist *l = list_new(r, json_len(messages));

	for (size_t i = 0; i < l->n; i++)
		l->v[i] = v_from_json(r, json_at(messages, i), origin_message(i), false);
	return v_list(l);
}

static void define_inputs(struct jrender *r, const struct template_input *in)
{
	const struct template *t = r->t;
	struct json_cursor cur;
	const struct json *v;
	const char *key;

	r->ctx = jr_array(r, (size_t)t->n_names, sizeof *r->ctx);
	for (int i = 0; i < t->n_names; i++) {
		const struct jfunc *f = func_find(t->names[i].p, t->names[i].n);

		r->ctx[i] = (struct value){ .kind = V_MISSING };
		if (f)
			r->ctx[i] = (struct value){ .kind = V_FUNC, .func = f };
	}
	define(r, "messages", 8, messages_value(r, in->messages));
	define(r, "tools", 5, in->tools ? v_from_json(r, in->tools, ORIGIN_USER, false) : v_none());
	define(r, "documents", 9, v_none());
	define(r, "add_generation_prompt", 21, v_bool(in->add_generation_prompt));
	if (in->bos_token)
		define(r, "bos_token", 9, v_str(str_lit(r, in->bos_token)));
	if (in->eos_token)
		define(r, "eos_token", 9, v_str(str_lit(r, in->eos_token)));
	for (cur = json_first(in->extra); json_next(&cur, &key, &v);)
		define(r, key, strlen(key), v_from_json(r, v, ORIGIN_USER, false));
}

static int check_input(const struct template_input *in, struct err *err)
{
	static const char *const fixed[] = { "messages", "tools", "add_generation_prompt" };

	if (json_kind(in->messages) != JSON_ARRAY)
		return err_set(err, E_ARG, "messages: must be an array, is %s",
		               json_kind_name(json_kind(in->messages)));
	if (in->tools && json_kind(in->tools) != JSON_ARRAY)
		return err_set(err, E_ARG, "tools: must be an array, is %s", json_kind_name(json_kind(in->tools)));
	if (in->extra && json_kind(in->extra) != JSON_OBJECT)
		return err_set(err, E_ARG, "template variables: must be an object, is %s",
		               json_kind_name(json_kind(in->extra)));
	for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
		if (json_get(in->extra, fixed[i]))
			return err_set(err, E_ARG, "template variables may not set \"%s\"", fixed[i]);
	if ((in->bos_token && utf8_valid(in->bos_token, strlen(in->bos_token)) < strlen(in->bos_token)) ||
	    (in->eos_token && utf8_valid(in->eos_token, strlen(in->eos_token)) < strlen(in->eos_token)))
		return err_set(err, E_ARG, "bos_token or eos_token is not valid UTF-8");
	return 0;
}

/* ---- rendering: output ---- */

void template_output_init(struct template_output *o)
{
	*o = (struct template_output){ 0 };
	buf_init(&o->text);
}

void template_output_fini(struct template_output *o)
{
	buf_fini(&o->text);
	free(o->runs);
	*o = (struct template_output){ 0 };
	buf_init(&o->text);
}

static void give(const struct sb *b, struct template_output *out)
{
	buf_reset(&out->text);
	buf_put(&out->text, b->p, b->n);
	free(out->runs);
	out->n_runs = b->n_runs;
	out->runs = xmalloc(size_mul(b->n_runs, sizeof *out->runs));
	for (size_t i = 0; i < b->n_runs; i++)
		out->runs[i] = (struct template_run){
			.end = b->runs[i].end,
			.message = (int)(b->runs[i].origin >> 1) - 1,
			.user = b->runs[i].origin & 1,
		};
}

int template_render(const struct template *t, const struct template_input *in, struct template_output *out,
                    struct err *err)
{
	struct err local = { 0 };
	struct jrender *r;
	int code = check_input(in, err);
	struct sb *b;

	if (code)
		return code;
	/* On the heap, not on this stack: nothing that setjmp could leave undefined. */
	r = xcalloc(1, sizeof *r);
	r->t = t;
	r->lim = &t->lim;
	r->now = in->now;
	r->err = err ? err : &local;
	arena_init(&r->mem);
	if (setjmp(r->fail)) {
		code = r->err->code;
	} else {
		b = jr_alloc(r, sizeof *b);
		sb_init(b);
		b->max = t->lim.output_max;
		r->out = b;
		define_inputs(r, in);
		jr_run(r);
		give(r->out, out);
		code = 0;
	}
	json_free(r->parsed);
	arena_fini(&r->mem);
	free(r);
	return code;
}
