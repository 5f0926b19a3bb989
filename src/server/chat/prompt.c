/* prompt.c - see prompt.h. */
#include "server/chat/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"

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
	for (size_t i = 0; i < o->n_runs && allowance_spend(0); at = o->runs[i++].end) {
		if (!o->runs[i].user || o->runs[i].end == at)
			continue;
		if (p->n_user && p->user[p->n_user - 1].end == at)
			p->user[p->n_user - 1].end = o->runs[i].end;
		else
			p->user[p->n_user++] = (struct text_range){ at, o->runs[i].end };
	}
}

/* Where the first and the last user's words begin: before the first are system
 * and tools, which other conversations share; the last is what people edit. */
static void find_turns(struct prompt *p, const struct json *messages)
{
	const struct template_output *o = &p->out;
	size_t at = 0, n;
	int seen = -1;

	for (size_t i = 0; i < o->n_runs && allowance_spend(0); at = o->runs[i++].end) {
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
		while (n < o.text.n && n < p->out.text.n && o.text.p[n] == p->out.text.p[n] &&
		       (n % ALLOWANCE_PIECE || allowance_spend(0)))
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

void prompt_cut(struct prompt *p, size_t n)
{
	p->out.text.n = n;
	p->out.text.p[n] = 0;
	while (p->n_user && p->user[p->n_user - 1].start >= n)
		p->n_user--;
	if (p->n_user && p->user[p->n_user - 1].end > n)
		p->user[p->n_user - 1].end = n;
	for (int i = 0; i < MARKS_MAX; i++)
		if (p->part[i] > n)
			p->part[i] = 0;
}

/* Walks a prompt's tokens and the bytes they stand for.  Those follow the text's,
 * but where normalisation changed it; then places are off, which costs a reuse and
 * nothing else. */
struct walk {
	const struct tokenizer *t;
	const struct tokens *ids;
	size_t at, k; /* bytes before token k */
};

/* The first token that does not end at or before this byte. */
static size_t walk_to(struct walk *w, size_t byte)
{
	for (; w->k < w->ids->n && allowance_spend(0); w->k++) {
		size_t len = 0;

		tokenizer_token_bytes(w->t, w->ids->id[w->k], &len);
		if (w->at + len > byte)
			break;
		w->at += len;
	}
	return w->k;
}

int prompt_marks(const struct prompt *p, const struct tokenizer *t, const struct tokens *ids, int mark[MARKS_MAX],
                 unsigned char kind[MARKS_MAX])
{
	static const unsigned char kinds[MARKS_MAX] = { PLACE_SYSTEM, PLACE_USER, PLACE_HEADER };
	enum { APART = 8 }; /* tokens: closer marks are not worth a snapshot each */
	struct walk w = { .t = t, .ids = ids };
	int n = 0;

	for (int i = 0; i < MARKS_MAX; i++) {
		size_t k = walk_to(&w, p->part[i]);

		if ((int)k >= (n ? mark[n - 1] : 0) + APART && k < ids->n) {
			kind[n] = kinds[i];
			mark[n++] = (int)k;
		}
	}
	return n;
}

void prompt_messages(const struct prompt *p, const struct tokenizer *t, const struct tokens *ids, int *at, int n)
{
	const struct template_output *o = &p->out;
	struct walk w = { .t = t, .ids = ids };
	size_t from = 0;

	for (int i = 0; i < n; i++)
		at[i] = -1;
	for (size_t i = 0; i < o->n_runs && allowance_spend(0); from = o->runs[i++].end) {
		int m = o->runs[i].message;

		if (m >= 0 && m < n && at[m] < 0 && o->runs[i].end > from)
			at[m] = (int)walk_to(&w, from);
	}
}
