/* prompt.c - see prompt.h. */
#include "server/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void prompt_init(struct prompt *p)
{
	memset(p, 0, sizeof *p);
	template_output_init(&p->out);
}

void prompt_fini(struct prompt *p)
{
	template_output_fini(&p->out);
	free(p->user);
}

static void find_user(struct prompt *p)
{
	const struct template_output *o = &p->out;
	size_t at = 0;

	p->user = xcalloc(o->n_runs + 1, sizeof *p->user);
	for (size_t i = 0; i < o->n_runs; at = o->runs[i++].end) {
		if (!o->runs[i].user || o->runs[i].end == at)
			continue;
		if (p->n_user && p->user[p->n_user - 1].end == at)
			p->user[p->n_user - 1].end = o->runs[i].end;
		else
			p->user[p->n_user++] = (struct text_range){ at, o->runs[i].end };
	}
}

/* Where the first and the last user's words begin: before the first stand system
 * and tools, which other conversations share; the last is what people edit. */
static void find_turns(struct prompt *p, const struct json *messages)
{
	const struct template_output *o = &p->out;
	size_t at = 0, n;
	int seen = -1;

	for (size_t i = 0; i < o->n_runs; at = o->runs[i++].end) {
		int m = o->runs[i].message;
		const char *role;

		if (m < 0 || m <= seen || o->runs[i].end == at)
			continue;
		seen = m;
		role = json_str(json_get(json_at(messages, (size_t)m), "role"), &n);
		if (!role || strcmp(role, "user"))
			continue;
		if (!p->part[0])
			p->part[0] = at;
		p->part[1] = at;
	}
}

/* Where the header of the answer begins.  Templates write the same turn otherwise
 * once it lies in the past (without its thinking, for one). */
static void find_header(struct prompt *p, const struct template *t, const struct template_input *in)
{
	struct template_input bare = *in;
	struct template_output o;
	size_t n = 0;

	bare.add_generation_prompt = false;
	template_output_init(&o);
	if (!template_render(t, &bare, &o, NULL)) {
		while (n < o.text.n && n < p->out.text.n && o.text.p[n] == p->out.text.p[n])
			n++;
		p->part[2] = n;
	}
	template_output_fini(&o);
}

int prompt_render(struct prompt *p, const struct template *t, const struct template_input *in, struct problem *problem)
{
	struct err err;

	if (template_render(t, in, &p->out, &err))
		return problem_set(problem, err.code == E_UNSUPPORTED ? 500 : 400, "template_error", "messages",
		                   "the chat template of this model refuses these messages: %s", err.msg);
	find_user(p);
	find_turns(p, in->messages);
	if (in->add_generation_prompt)
		find_header(p, t, in);
	return 0;
}

int prompt_marks(const struct prompt *p, const struct tokenizer *t, const struct tokens *ids, int mark[MARKS_MAX])
{
	enum { APART = 8 };     /* tokens: closer marks are not worth a snapshot each */
	size_t at = 0, k = 0;
	int n = 0;

	/* Tokens' bytes follow the text's, but where normalisation changed it; then the
	 * marks are off, which costs a reuse and nothing else. */
	for (int i = 0; i < MARKS_MAX; i++) {
		while (k < ids->n) {
			size_t len = 0;

			tokenizer_token_bytes(t, ids->id[k], &len);
			if (at + len > p->part[i])
				break;
			at += len;
			k++;
		}
		if ((int)k >= (n ? mark[n - 1] : 0) + APART && k < ids->n)
			mark[n++] = (int)k;
	}
	return n;
}
