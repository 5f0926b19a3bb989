/* reading.c - see reading.h. */
#include "embed/reading.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void reading_fail(struct reading *r, int code, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (r->code)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	r->code = err_set(r->err, code, "%s", text);
}

struct json *reading_document(struct reading *r, const char *name)
{
	struct json *j = NULL;
	struct err err;
	struct buf text;
	int code;

	if (r->code)
		return NULL;
	buf_init(&text);
	code = store_document(r->st, name, &text, &err);
	if (!code && !(j = json_parse_python(text.p, text.n, 0, &err)))
		code = err_prefix(&err, "%s", store_place(r->st, name));
	buf_fini(&text);
	if (code && code != E_MISSING)
		reading_fail(r, code, "%s", err.msg);
	return j;
}

const char *reading_keep(struct reading *r, const char *text, size_t n)
{
	char *p = arena_alloc(&r->e->arena, n + 1);

	memcpy(p, text, n);
	p[n] = '\0';
	return p;
}

void reading_step(struct reading *r, struct embed_step s, const char *what)
{
	if (r->code)
		return;
	if (s.in != r->width)
		reading_fail(r, E_FORMAT, "%s: reads %d numbers, and what comes before it gives %d", what, s.in,
		             r->width);
	else if (r->n_step == EMBED_STEPS_MAX)
		reading_fail(r, E_LIMIT, "%s: more than %d steps behind the model", what, EMBED_STEPS_MAX);
	else
		r->step[r->n_step++] = s;
	r->width = s.out;
}

const float *reading_floats(struct reading *r, const char *name, int cols, int *rows)
{
	static const char *const prefixes[] = { "", "bert.", "roberta.", "model.", "lfm2.", NULL };
	const char *prefix = r->code ? NULL : store_prefix(r->st, prefixes, name);
	const struct tensor *t;
	const float *out = NULL;
	char full[320];

	*rows = 0;
	if (!prefix)
		return NULL;
	snprintf(full, sizeof full, "%s%s", prefix, name);
	t = store_find(r->st, full);
	if (!t || t->count < 1 || t->count % cols || t->count / cols > CONF_DIM_MAX) {
		reading_fail(r, E_FORMAT, "%s: tensor %s: %lld numbers, which %d does not divide", r->st->dir, full,
		             t ? (long long)t->count : 0, cols);
		return NULL;
	}
	*rows = (int)(t->count / cols);
	r->code = store_floats(r->st, &r->e->arena, full, t->count, 0, &out, r->err);
	return out;
}

enum step_act reading_act(struct reading *r, const char *where, const char *name)
{
	static const struct {
		const char *name;
		enum step_act act;
	} known[] = {
		{ "Identity", STEP_PLAIN }, { "Tanh", STEP_TANH },       { "tanh", STEP_TANH },
		{ "GELU", STEP_GELU },      { "gelu", STEP_GELU },       { "gelu_new", STEP_GELU_TANH },
		{ "ReLU", STEP_RELU },      { "relu", STEP_RELU },       { "SiLU", STEP_SILU },
		{ "silu", STEP_SILU },      { "Sigmoid", STEP_SIGMOID }, { "gelu_pytorch_tanh", STEP_GELU_TANH },
	};
	const char *last = strrchr(name, '.');

	last = last ? last + 1 : name;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strcmp(known[i].name, last))
			return known[i].act;
	reading_fail(r, E_UNSUPPORTED, "%s: activation \"%.60s\" is not done", where, name);
	return STEP_PLAIN;
}
