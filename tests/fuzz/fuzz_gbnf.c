/* Grammars of rules, and regular expressions.  What compiles is walked by the input's
 * own bytes, and never stands where nothing may follow; what a mask allows is taken. */
#include "text/grammar/grammar.h"
#include "walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;
	struct grammar *g;
	struct err err;

	if (!size)
		return 0;
	size--;
	if (*data % 4 == 3 ? grammar_compile_regex(text, size, &g, &err) : grammar_compile_gbnf(text, size, &g, &err))
		return 0;
	walk_grammar(g, text, size);
	return 0;
}
