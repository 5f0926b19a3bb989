/* template_cli.c - the template engine behind a pipe, for the scripts that compare
 * it with Jinja2 and for timing by hand.
 *
 * Each line of standard input is a job: {"source", "messages", "tools", "extra",
 * "add_generation_prompt", "bos_token", "eos_token", "now"}.  Each gets one line:
 * {"text": ..., "runs": [[end, message, user], ...]} or {"error": ..., "code": ...,
 * "at": "open" or "render"}.  With --time N every job is opened and rendered N times
 * and the mean of both goes to standard error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "text/jinja/template.h"

static void put_error(const char *at, const struct err *err)
{
	struct buf b;

	buf_init(&b);
	buf_printf(&b, "{\"at\": \"%s\", \"code\": \"%s\", \"error\": ", at, err_name(err->code));
	json_put_cstr(&b, err->msg);
	buf_puts(&b, "}\n");
	fwrite(b.p, 1, b.n, stdout);
	buf_fini(&b);
}

static void put_output(const struct template_output *o)
{
	struct buf b;

	buf_init(&b);
	buf_puts(&b, "{\"text\": ");
	json_put_str(&b, o->text.p, o->text.n);
	buf_puts(&b, ", \"runs\": [");
	for (size_t i = 0; i < o->n_runs; i++)
		buf_printf(&b, "%s[%zu, %d, %s]", i ? ", " : "", o->runs[i].end, o->runs[i].message,
		           o->runs[i].user ? "true" : "false");
	buf_puts(&b, "]}\n");
	fwrite(b.p, 1, b.n, stdout);
	buf_fini(&b);
}

static void job(const struct json *j, int repeat)
{
	struct template_output out;
	struct template_input in = { 0 };
	struct template *t = NULL;
	struct err err = { 0 };
	const char *src;
	int64_t t0, t1, t2;
	size_t n = 0;
	int code;

	src = json_str(json_get(j, "source"), &n);
	in.messages = json_get(j, "messages");
	in.tools = json_kind(json_get(j, "tools")) == JSON_NULL ? NULL : json_get(j, "tools");
	in.extra = json_kind(json_get(j, "extra")) == JSON_NULL ? NULL : json_get(j, "extra");
	json_get_bool(j, "add_generation_prompt", false, &in.add_generation_prompt, &err);
	json_get_str(j, "bos_token", NULL, &in.bos_token, &err);
	json_get_str(j, "eos_token", NULL, &in.eos_token, &err);
	json_get_int(j, "now", 0, &in.now, &err);
	t0 = clock_monotonic_ns();
	for (int i = 0; i < repeat; i++) {
		template_close(t);
		if (template_open(&t, src ? src : "", n, NULL, &err)) {
			put_error("open", &err);
			return;
		}
	}
	t1 = clock_monotonic_ns();
	template_output_init(&out);
	for (int i = 0; i < repeat; i++)
		if ((code = template_render(t, &in, &out, &err)))
			break;
	t2 = clock_monotonic_ns();
	if (code)
		put_error("render", &err);
	else
		put_output(&out);
	if (repeat > 1)
		fprintf(stderr, "open %.1f us, render %.1f us, %zu bytes\n", (double)(t1 - t0) / repeat / 1e3,
		        (double)(t2 - t1) / repeat / 1e3, out.text.n);
	template_output_fini(&out);
	template_close(t);
}

int main(int argc, char **argv)
{
	int repeat = argc == 3 && !strcmp(argv[1], "--time") ? atoi(argv[2]) : 1;
	struct err err = { 0 };
	struct json *j;
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	while ((n = getline(&line, &cap, stdin)) > 0) {
		j = json_parse(line, (size_t)n, 0, &err);
		if (j)
			job(j, repeat < 1 ? 1 : repeat);
		else
			put_error("job", &err);
		json_free(j);
		fflush(stdout);
	}
	free(line);
	return 0;
}
