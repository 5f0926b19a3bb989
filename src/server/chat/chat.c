/* chat.c - see chat.h: the order in which a conversation becomes a prompt. */
#include "server/chat/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "server/chat/chat_steps.h"
#include "server/inside.h"
#include "server/routes.h"
#include "text/calls/dialect.h"

void chat_tell_compaction(struct generation *g, const struct json *items, const char *at)
{
	size_t n;

	for (size_t i = 0; json_kind(items) == JSON_ARRAY && i < json_len(items) && allowance_spend(1); i++) {
		const char *type = json_str(json_get(json_at(items, i), "type"), &n);

		if (type && !strcmp(type, "compaction"))
			warnings_add(&g->params.warnings.ignored, at, type);
	}
}

void chat_init(struct chat *c)
{
	*c = (struct chat){ .think = -1,
		            .budget = -1,
		            .add_generation_prompt = true,
		            .tool_choice_field = "tool_choice",
		            .effort_field = "reasoning_effort",
		            .budget_field = "thinking_budget" };
	c->messages = json_new_array();
}

void chat_fini(struct chat *c)
{
	json_free(c->messages);
	free(c->prefill);
}

int chat_body(struct generation *g, struct json *body, const struct field *const *tables, chat_step *read,
              chat_step *make, struct problem *p)
{
	struct chat c;
	int r;

	if (!(g->body = body_check(body, tables, &g->params.warnings, p)))
		return p->status;
	generation_prompts(g, 1);
	chat_init(&c);
	if (!(r = model_read(g, g->body, p)) && !(r = read(g, &c, p)))
		r = make(g, &c, p);
	chat_fini(&c);
	return r;
}

int chat_text(struct generation *g, struct chat *c, struct buf *out, struct problem *p)
{
	struct prompt prompt;
	int r;

	prompt_init(&prompt);
	if (!(r = chat_render(g, c, &prompt, p)))
		buf_put(out, prompt.out.text.p, prompt.out.text.n);
	prompt_fini(&prompt);
	return r;
}

static void find_messages(struct generation *g, const struct chat *c, const struct prompt *prompt)
{
	g->messages.n = c->n_message;
	g->messages.at = xcalloc((size_t)g->messages.n + 1, sizeof *g->messages.at);
	prompt_messages(prompt, g->served->tokenizer, &g->prompts.of[0], g->messages.at, g->messages.n);
}

/* The text from `from` to `to`, which holds no turn of ours. */
static int tokenize_part(struct generation *g, const struct prompt *prompt, size_t from, size_t to, struct problem *p)
{
	struct text_range *user = xcalloc(prompt->n_user + 1, sizeof *user);
	size_t n = 0;
	int r;

	for (size_t i = 0; i < prompt->n_user; i++) {
		struct text_range u = prompt->user[i];

		if (u.start < to && u.end > from)
			user[n++] = (struct text_range){ u.start > from ? u.start - from : 0,
				                         (u.end < to ? u.end : to) - from };
	}
	r = generation_tokenize(g, 0, prompt->out.text.p + from, to - from, TOKENIZE_SPECIAL, user, n, p);
	free(user);
	return r;
}

static int tokenize(struct generation *g, const struct prompt *prompt, struct problem *p)
{
	size_t at = 0;
	int r;

	for (int i = 0; i < g->past.n_splice; i++) {
		const struct splice *s = &g->past.splice[i];

		if ((r = tokenize_part(g, prompt, at, s->at, p)))
			return r;
		for (size_t k = 0; k < s->turn->n; k++)
			tokens_put(&g->prompts.of[0], s->turn->id[k]);
		at = s->at + s->n;
	}
	return tokenize_part(g, prompt, at, prompt->out.text.n, p);
}

/* Keeps the tokens that the answer's turn begins with. */
static void keep_header(struct past *past, const struct prompt *prompt)
{
	size_t at = prompt->part[MARKS_MAX - 1];

	if (past->turns && at && at < prompt->out.text.n)
		past->header = xstrndup(prompt->out.text.p + at, prompt->out.text.n - at);
}

/* Does that text begin with a special token?  Such give no text unless they are asked for. */
static bool begins_special(const struct tokenizer *t, const char *text)
{
	const char *end = strpbrk(text, ">]");
	int32_t id = end ? tokenizer_find(t, text, (size_t)(end - text) + 1) : -1;

	return id >= 0 && tokenizer_is_special(t, id);
}

/* Before calls, or around thoughts. */
static bool special_parts(const struct tokenizer *t, const struct dialect *const *dialects, const struct speech *speech)
{
	for (int i = 0; dialects[i]; i++)
		if (begins_special(t, dialects[i]->open))
			return true;
	return begins_special(t, speech->think_open) || begins_special(t, speech->think_close);
}

/* After everything that counts tokens by their text. */
static int expand_images(struct generation *g, struct problem *p)
{
	const struct image_places places[] = { { g->marks.at, g->marks.n }, { g->messages.at, g->messages.n } };

	return images_expand(&g->images, &g->prompts.of[0], places, 2, p);
}

int chat_prompt(struct generation *g, struct chat *c, struct problem *p)
{
	struct prompt prompt;
	int r;

	prompt_init(&prompt);
	if (!(r = chat_render(g, c, &prompt, p)))
		r = tokenize(g, &prompt, p);
	if (!r) {
		keep_header(&g->past, &prompt);
		g->tools.dialects = dialects_of(generation_template(g));
		g->thoughts.speech = speech_of(generation_template(g));
		if (special_parts(g->served->tokenizer, g->tools.dialects, g->thoughts.speech))
			g->params.skip_special = false;
		g->thoughts.open = c->add_generation_prompt &&
		                   split_opens(g->thoughts.speech, prompt.out.text.p, prompt.out.text.n);
		if (c->go_on)
			g->thoughts.open = chat_in_thought(g->thoughts.speech, c->prefill);
		g->thoughts.may_open = !g->thoughts.open && !c->go_on && speech_thinks(generation_template(g)) &&
		                       !split_closes(g->thoughts.speech, prompt.out.text.p, prompt.out.text.n);
		g->marks.n = prompt_marks(&prompt, g->served->tokenizer, &g->prompts.of[0], g->marks.at, g->marks.kind);
		if (g->params.cache_report)
			find_messages(g, c, &prompt);
		r = expand_images(g, p);
	}
	if (!r)
		r = chat_set_lead(g, c, p);
	prompt_fini(&prompt);
	return r;
}
