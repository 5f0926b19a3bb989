/* served.c - see served.h. */
#include "served.h"

#include <stdlib.h>

#include "base/utf8.h"

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
	buf_puts(&b,
	         "{\"added_tokens\":[{\"id\":256,\"content\":\"<|im_start|>\",\"special\":true},"
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

const struct served *fuzz_served(void)
{
	static struct served d;
	struct template_limits limits = { .steps_max = 100000, .memory_max = 4 << 20, .output_max = 1 << 20 };
	struct template *t;
	struct err err;

	if (d.tokenizer)
		return &d;
	if (template_open(&t, chat, sizeof chat - 1, &limits, &err))
		abort();
	d.tokenizer = bytes_tokenizer();
	d.tmpl = t;
	d.name = "m";
	d.ctx_max = 100000;
	d.vocab = tokenizer_size(d.tokenizer);
	d.max_tokens = -1;
	sampler_params_init(&d.sampling);
	return &d;
}
