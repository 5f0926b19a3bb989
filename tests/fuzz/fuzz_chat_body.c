/* A request's body to a parsed ask, without an engine: the whole way through JSON,
 * checks, template and tokenizer.  Whatever the bytes, it is parameters within
 * their bounds or an error that can be sent.  The first byte chooses the API. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/chat/generate.h"
#include "server/routes.h"
#include "served.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct generation *g, const struct served *d)
{
	const struct params *a = &g->params;
	struct err err;

	if (a->n < 1 || a->n > N_MAX || a->max_tokens < -1 || a->n_stop > STOPS_MAX ||
	    a->n_stop_token > STOP_TOKENS_MAX)
		abort();
	if (sampler_params_check(&a->sampling, d->vocab, &err))
		abort();
	for (int i = 0; i < g->prompts.n; i++)
		for (size_t k = 0; k < g->prompts.of[i].n; k++)
			if (g->prompts.of[i].id[k] < 0 || g->prompts.of[i].id[k] >= d->vocab)
				abort();
	for (int i = 0; i < g->marks.n; i++)
		if (g->marks.at[i] < 1 || (size_t)g->marks.at[i] >= g->prompts.of[0].n ||
		    (i && g->marks.at[i] <= g->marks.at[i - 1]))
			abort();
	for (int i = 0; i < g->led.lead.n_end + g->led.lead.n_then; i++) {
		int32_t id = i < g->led.lead.n_end ? g->led.lead.end[i] : g->led.lead.then[i - g->led.lead.n_end];

		if (id < 0 || id >= d->vocab)
			abort();
	}
	if (g->led.on && g->led.lead.think_max >= 0 && g->led.lead.end[g->led.lead.n_end - 1] != g->led.lead.close)
		abort();
	/* What a reply repeats of the request is JSON. */
	if (g->echo.n) {
		struct json *j;
		struct buf b;

		buf_init(&b);
		buf_printf(&b, "{\"a\":0%s}", g->echo.p);
		if (!(j = json_parse(b.p, b.n, 200, NULL)))
			abort();
		json_free(j);
		buf_fini(&b);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct served *d = fuzz_served();
	static const struct endpoint *const families[] = {
		&chat_endpoint,        &completions_endpoint,     &messages_endpoint,     &responses_endpoint,
		&ollama_chat_endpoint, &ollama_generate_endpoint, &ollama_show_endpoint,  &native_endpoint,
		&infill_endpoint,      &embed_endpoint,           &ollama_embed_endpoint, &gemini_endpoint
	};
	struct generation *g;
	struct problem p = { 0 };
	struct json *body;
	struct err err;
	struct buf b;

	if (!size)
		return 0;
	body = body_parse((const char *)data + 1, size - 1, &p);
	g = generation_new(d, families[data[0] % (sizeof families / sizeof *families)]);
	if (body && !g->endpoint->read(g, body, &p)) {
		if (p.status)
			abort();
		check(g, d);
	} else {
		struct json *j;

		if (p.status < 400 || p.status > 599 || !*p.message || !*http_reason(p.status))
			abort();
		buf_init(&b);
		p.shape = data[0] % (SHAPE_GEMINI + 1);
		problem_put(&b, &p);
		if (!(j = json_parse(b.p, b.n, 0, &err)))
			abort();
		json_free(j);
		buf_fini(&b);
	}
	buf_init(&b);
	warnings_put(&g->params.warnings, &b);
	for (size_t i = 0; i < b.n; i++)
		if (b.p[i] < 0x20 || b.p[i] == 0x7f)
			abort();
	buf_fini(&b);
	generation_free(g);
	return 0;
}
