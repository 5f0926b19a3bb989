/* fuzz_template.c - a hostile chat template over hostile messages.
 *
 * Input: template text, a NUL byte, then a JSON array of messages, or an object
 * {"messages", "tools", "extra"}.  Whatever they are, opening and rendering end with
 * text or an error, soon, and the runs cover the text. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "text/jinja/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Small bounds: a fuzzer wants many runs, not long ones. */
	const struct template_limits lim = { .steps_max = 200000, .memory_max = 4 << 20, .output_max = 1 << 20 };
	const uint8_t *nul = memchr(data, 0, size);
	size_t n = nul ? (size_t)(nul - data) : size, at = 0;
	struct template_input in = { .add_generation_prompt = true, .bos_token = "<s>", .now = 1763000000 };
	struct json *root = NULL, *empty = json_parse("[]", 2, 0, NULL);
	struct template_output out;
	struct template *t;
	struct err err = { 0 };

	if (nul)
		root = json_parse((const char *)nul + 1, size - n - 1, 0, NULL);
	in.messages = json_kind(root) == JSON_ARRAY ? root : json_get(root, "messages");
	if (json_kind(in.messages) != JSON_ARRAY)
		in.messages = empty;
	in.tools = json_get(root, "tools");
	in.extra = json_get(root, "extra");
	if (!template_open(&t, (const char *)data, n, &lim, &err)) {
		template_output_init(&out);
		if (template_render(t, &in, &out, &err))
			assert(err.code && err.msg[0]);
		for (size_t i = 0; i < out.n_runs; i++) {
			assert(out.runs[i].end > at && out.runs[i].message < (int)json_len(in.messages));
			at = out.runs[i].end;
		}
		assert(at == out.text.n);
		template_output_fini(&out);
		template_close(t);
	} else {
		assert(!t && err.code && err.msg[0]);
	}
	json_free(root);
	json_free(empty);
	return 0;
}
