/* problem.c - see problem.h. */
#include "server/http/problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

static const char *type_of(int status)
{
	switch (status) {
	case 401: return "authentication_error";
	case 404: return "not_found_error";
	case 429: return "rate_limit_error";
	default: return status >= 500 ? "server_error" : "invalid_request_error";
	}
}

int problem_set(struct problem *p, int status, const char *code, const char *param, const char *fmt, ...)
{
	va_list ap;

	memset(p, 0, sizeof *p);
	p->status = status;
	p->type = type_of(status);
	p->code = code;
	snprintf(p->param, sizeof p->param, "%s", param ? param : "");
	va_start(ap, fmt);
	vsnprintf(p->message, sizeof p->message, fmt, ap);
	va_end(ap);
	/* Messages quote what clients sent, and are logged: one line each. */
	for (char *c = p->message; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = ' ';
	return status;
}

int problem_stopping(struct problem *p)
{
	problem_set(p, 503, "stopping", NULL, "the server is stopping and takes no new requests");
	p->retry_after = 1; /* another instance, or this one after a restart, may answer then */
	return p->status;
}

/* Anthropic's API has names of its own for some errors, and neither param nor code. */
static void put_anthropic(struct buf *b, const struct problem *p)
{
	const char *type = p->type;

	if (p->status == 413)
		type = "request_too_large";
	else if (p->status == 503)
		type = "overloaded_error";
	else if (p->status >= 500)
		type = "api_error";
	buf_puts(b, "{\"type\":\"error\",\"error\":{\"type\":");
	json_put_cstr(b, type);
	buf_puts(b, ",\"message\":");
	json_put_cstr(b, p->message);
	buf_puts(b, "}}");
}

/* Google's API has a name for each status. */
static void put_google(struct buf *b, const struct problem *p)
{
	static const struct {
		int status;
		const char *name;
	} names[] = { { 401, "UNAUTHENTICATED" },    { 403, "PERMISSION_DENIED" }, { 404, "NOT_FOUND" },
		      { 429, "RESOURCE_EXHAUSTED" }, { 499, "CANCELLED" },         { 501, "UNIMPLEMENTED" },
		      { 503, "UNAVAILABLE" },        { 504, "DEADLINE_EXCEEDED" } };
	const char *name = p->status < 500 ? "INVALID_ARGUMENT" : "INTERNAL";

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].status == p->status)
			name = names[i].name;
	buf_printf(b, "{\"error\":{\"code\":%d,\"message\":", p->status);
	json_put_cstr(b, p->message);
	buf_printf(b, ",\"status\":\"%s\"}}", name);
}

void problem_put(struct buf *b, const struct problem *p)
{
	if (p->shape == SHAPE_GEMINI) {
		put_google(b, p);
		return;
	}
	if (p->shape == SHAPE_ANTHROPIC) {
		put_anthropic(b, p);
		return;
	}
	if (p->shape == SHAPE_OLLAMA) {
		buf_puts(b, "{\"error\":");
		json_put_cstr(b, p->message);
		buf_putc(b, '}');
		return;
	}
	if (p->shape == SHAPE_TEI) {
		buf_puts(b, "{\"error\":");
		json_put_cstr(b, p->message);
		buf_printf(b, ",\"error_type\":\"%s\"}",
		           p->status == 429 || p->status == 503 ? "Overloaded" :
		           p->status >= 500                     ? "Backend" :
		                                                  "Validation");
		return;
	}
	buf_puts(b, "{\"error\":{\"message\":");
	json_put_cstr(b, p->message);
	buf_puts(b, ",\"type\":");
	json_put_cstr(b, p->type);
	buf_puts(b, ",\"param\":");
	if (*p->param)
		json_put_cstr(b, p->param);
	else
		buf_puts(b, "null");
	buf_puts(b, ",\"code\":");
	if (p->code)
		json_put_cstr(b, p->code);
	else
		buf_puts(b, "null");
	buf_puts(b, "}}");
}
