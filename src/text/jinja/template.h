/* template.h - chat templates: messages in, prompt text out.
 *
 * A template is the Jinja text a checkpoint carries.  It is compiled once and
 * rendered for every request, with the meaning Jinja2 gives it in the sandboxed
 * environment of the transformers library (trim_blocks, lstrip_blocks, loop
 * controls, tojson, raise_exception, strftime_now, {% generation %}).  Template
 * and inputs are hostile: time, memory, output and nesting are bounded, and a
 * construct that we lack is an error when the template is opened, never a wrong
 * prompt.  Used by server and cli.
 *
 * A struct template is immutable after template_open: any number of threads may
 * render it at the same time. */
#ifndef TEXT_TEMPLATE_H
#define TEXT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

struct template;

/* Every bound on what a template may cost.  A zero field means the default. */
struct template_limits {
	size_t source_max;  /* bytes of template text; default 1 MiB (the largest known has 17 KB) */
	int nest_max;       /* nested tags and brackets; a chain of operators may be 4 times as long; 100 */
	uint64_t steps_max; /* expressions evaluated, elements visited, 16-byte units moved; 20 million,
	                         * some seconds */
	size_t memory_max;  /* bytes held during one rendering, inputs excluded; 256 MiB */
	size_t output_max;  /* bytes of the prompt; 64 MiB */
	int depth_max;      /* nested evaluations, macro calls included; 1200 (about 0.5 MiB of stack) */
	int call_max;       /* nested macro calls; 100 */
};

/* Compiles src[0..n), UTF-8.  On error *out is NULL and the message names the
 * line: E_FORMAT for what is not Jinja, E_UNSUPPORTED for what we lack (a tag,
 * filter, test, function or method), E_LIMIT.  limits may be NULL. */
int template_open(struct template **out, const char *src, size_t n, const struct template_limits *limits,
                  struct err *err);
void template_close(struct template *t); /* NULL is allowed */

/* Input of a rendering.  All pointers are borrowed for the call. */
struct template_input {
	const struct json *messages; /* array of objects */
	const struct json *tools;    /* array, or NULL: none in the template */
	const struct json *extra;    /* object of further variables (enable_thinking, documents), or NULL */
	bool add_generation_prompt;
	const char *bos_token; /* NULL: not defined in the template */
	const char *eos_token;
	int64_t now; /* seconds since 1970, for strftime_now (local time) */
};

/* A stretch of output with one origin.  Runs follow one another and cover the
 * whole text: run i is [runs[i-1].end, runs[i].end). */
struct template_run {
	size_t end;
	int message; /* index of the message whose strings it came from; -1: none */
	bool user;   /* text out of messages, tools or extra: never to be read as special tokens */
};

struct template_output {
	struct buf text;
	struct template_run *runs;
	size_t n_runs;
};

void template_output_init(struct template_output *o);
void template_output_fini(struct template_output *o);

/* Renders into out, replacing what it holds.  Errors name the template's line:
 * E_ARG when the template raises (raise_exception, or a type error in Python's
 * sense), E_LIMIT when a bound is reached, E_UNSUPPORTED. */
int template_render(const struct template *t, const struct template_input *in, struct template_output *out,
                    struct err *err);

/* True when the template's text reads the variable, wherever (for example
 * "enable_thinking", "tools"). */
bool template_uses(const struct template *t, const char *variable);

/* Its source, n bytes; the template's own. */
const char *template_text(const struct template *t, size_t *n);
/* True when these bytes are anywhere in the template's text. */
bool template_says(const struct template *t, const char *text);

#endif
