/* A request's body to a parsed ask, without an engine: the whole way through JSON,
 * checks, template and tokenizer.  Whatever the bytes, it is parameters within
 * their bounds or an error that can be sent.  The first byte chooses the API. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "server/generate.h"
#include "server/routes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char chat[] =
	"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% if m.tool_calls %}{% for c in m.tool_calls %}"
	"<tool_call><function={{ c.function.name }} {{ c.function.arguments | tojson }}</tool_call>{% endfor %}{% endif %}<|im_end|>"
	"{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|im_start|>assistant\n"
	"{% if enable_thinking %}<think>\n{% endif %}{% endif %}{{ reasoning_effort }}";

/* A tokenizer of single bytes, in GPT-2's alphabet, and two special tokens. */
static struct tokenizer *bytes_tokenizer(void)
{
	struct tokenizer *t;
	struct buf b;
	struct err err;
	uint32_t other = 256;

	buf_init(&b);
	buf_puts(&b, "{\"added_tokens\":[{\"id\":256,\"content\":\"<|im_start|>\",\"special\":true},"
	         "{\"id\":257,\"content\":\"<|im_end|>\",\"special\":true},{\"id\":258,\"content\":\"<think>\"},"
	         "{\"id\":259,\"content\":\"</think>\"},{\"id\":260,\"content\":\"<tool_call>\"}],\"normalizer\":null,"
	         "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
	         "\"use_regex\":true},\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},"
	         "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
	for (uint32_t c = 0; c < 256; c++) {
		char s[4];
		int shown = (c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xac) || c >= 0xae;
		int n = utf8_encode(shown ? c : other++, s);

		if (c)
			buf_putc(&b, ',');
		json_put_str(&b, s, (size_t)n);
		buf_printf(&b, ":%u", c);
	}
	buf_puts(&b, "}}}");
	if (tokenizer_open(&t, b.p, b.n, &err))
		abort();
	buf_fini(&b);
	return t;
}

static void check(const struct generation *g, const struct served *d)
{
	const struct params *a = &g->params;
	struct err err;

	if (a->n < 1 || a->n > N_MAX || a->max_tokens < -1 || a->n_stop > STOPS_MAX || a->n_stop_token > STOP_TOKENS_MAX)
		abort();
	if (sampler_params_check(&a->sampling, d->vocab, &err))
		abort();
	for (int i = 0; i < g->n_prompt; i++)
		for (size_t k = 0; k < g->prompt[i].n; k++)
			if (g->prompt[i].id[k] < 0 || g->prompt[i].id[k] >= d->vocab)
				abort();
	for (int i = 0; i < g->n_mark; i++)
		if (g->mark[i] < 1 || (size_t)g->mark[i] >= g->prompt[0].n || (i && g->mark[i] <= g->mark[i - 1]))
			abort();
	for (int i = 0; i < g->lead.n_end + g->lead.n_then; i++) {
		int32_t id = i < g->lead.n_end ? g->lead.end[i] : g->lead.then[i - g->lead.n_end];

		if (id < 0 || id >= d->vocab)
			abort();
	}
	if (g->led && g->lead.think_max >= 0 && g->lead.end[g->lead.n_end - 1] != g->lead.close)
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
	static struct served d;
	static struct template *t;
	static const struct family *const families[] = { &chat_family, &completions_family, &messages_family, &responses_family };
	struct generation *g;
	struct problem p = { 0 };
	struct err err;

	if (!d.tokenizer) {
		struct template_limits limits = { .steps_max = 100000, .memory_max = 4 << 20, .output_max = 1 << 20 };

		if (template_open(&t, chat, sizeof chat - 1, &limits, &err))
			abort();
		d.tokenizer = bytes_tokenizer();
		d.tmpl = t;
		d.name = "m";
		d.ctx_max = 100000;
		d.vocab = tokenizer_size(d.tokenizer);
		d.max_tokens = -1;
		sampler_params_init(&d.sampling);
	}
	if (!size)
		return 0;
	g = generation_new(&d, families[data[0] & 3]);
	if (!g->fam->read(g, (const char *)data + 1, size - 1, &p)) {
		if (p.status)
			abort();
		check(g, &d);
	} else {
		struct buf b;
		struct json *j;

		if (p.status < 400 || p.status > 599 || !*p.message || !*http_reason(p.status))
			abort();
		buf_init(&b);
		p.anthropic = data[0] & 2;
		problem_put(&b, &p);
		if (!(j = json_parse(b.p, b.n, 0, &err)))
			abort();
		json_free(j);
		buf_fini(&b);
	}
	for (size_t i = 0; i < g->params.unknown.n; i++)
		if (g->params.unknown.p[i] < 0x20 || g->params.unknown.p[i] == 0x7f)
			abort();
	generation_free(g);
	return 0;
}
