/* fim.c - fill in the middle: a prompt of what comes before and after the answer. */
#include <string.h>

#include "server/api/complete.h"

/* Tokens of known models, in the order in which their authors put them: prefix, suffix, middle. */
static const struct {
	const char *prefix, *suffix, *middle;
} sets[] = {
	{ "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>" },    /* Qwen2.5-Coder and later, CodeGemma */
	{ "<fim_prefix>", "<fim_suffix>", "<fim_middle>" },          /* StarCoder, Granite */
	{ "<fim-prefix>", "<fim-suffix>", "<fim-middle>" },          /* SantaCoder */
	{ "<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>" }, /* GLM */
	{ "<\xef\xbd\x9c"
	  "fim\xe2\x96\x81"
	  "begin\xef\xbd\x9c>",
	  "<\xef\xbd\x9c"
	  "fim\xe2\x96\x81"
	  "hole\xef\xbd\x9c>",
	  "<\xef\xbd\x9c"
	  "fim\xe2\x96\x81"
	  "end\xef\xbd\x9c>" },                                            /* DeepSeek: begin, hole, end */
	{ "\xe2\x96\x81<PRE>", "\xe2\x96\x81<SUF>", "\xe2\x96\x81<MID>" }, /* Code Llama */
};

static bool find_marks(const struct tokenizer *t, int32_t id[3])
{
	for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
		id[0] = tokenizer_find(t, sets[i].prefix, strlen(sets[i].prefix));
		id[1] = tokenizer_find(t, sets[i].suffix, strlen(sets[i].suffix));
		id[2] = tokenizer_find(t, sets[i].middle, strlen(sets[i].middle));
		if (id[0] >= 0 && id[1] >= 0 && id[2] >= 0)
			return true;
	}
	return false;
}

bool fim_known(const struct tokenizer *t)
{
	int32_t id[3];

	return find_marks(t, id);
}

int fim_prompt(struct generation *g, const char *before, size_t n_before, const char *after, size_t n_after,
               const char *field, struct problem *p)
{
	const struct text_range all_before = { 0, n_before }, all_after = { 0, n_after };
	int32_t id[3];
	int r;

	if (!find_marks(g->served->tokenizer, id))
		return problem_set(p, 400, "unsupported_field", field,
		                   "%s: this model has no tokens to fill in the middle of a text", field);
	generation_prompts(g, 1);
	/* The client's text is read without special tokens. */
	tokens_put(&g->prompts.of[0], id[0]);
	if ((r = generation_tokenize(g, 0, before, n_before, TOKENIZE_SPECIAL, &all_before, n_before > 0, p)))
		return r;
	tokens_put(&g->prompts.of[0], id[1]);
	if ((r = generation_tokenize(g, 0, after, n_after, TOKENIZE_SPECIAL, &all_after, n_after > 0, p)))
		return r;
	tokens_put(&g->prompts.of[0], id[2]);
	return 0;
}
