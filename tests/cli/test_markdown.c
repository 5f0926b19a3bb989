/* An answer's markdown at a terminal: marks become colours however the text is cut, and nothing else is changed. */
#include <string.h>

#include "cli/markdown.h"
#include "../check.h"

#define B "\033[1m"
#define C "\033[36m"
#define O "\033[0m"

static void shows(const char *text, const char *want)
{
	for (size_t step = 1; step <= strlen(text) + 1; step++) {
		struct markdown m = { 0 };
		struct buf out;

		buf_init(&out);
		for (size_t at = 0; at < strlen(text); at += step)
			markdown_put(&m, text + at, at + step > strlen(text) ? strlen(text) - at : step, &out);
		markdown_end(&m, &out);
		buf_putc(&out, 0);
		CHECK(!strcmp(out.p, want), "\"%s\" in steps of %zu: \"%s\", wanted \"%s\"", text, step, out.p, want);
		buf_fini(&out);
	}
}

int main(void)
{
	shows("plain text\n", "plain text\n");
	shows("# Lima\nis", B "# Lima" O "\nis");
	shows("a **bold** word", "a " O B "bold" O " word");
	shows("call `f(x)` now", "call " O C "f(x)" O " now");
	shows("- one\n* two", "\xe2\x80\xa2 one\n\xe2\x80\xa2 two");
	shows("  - deep", "  \xe2\x80\xa2 deep");
	shows("```c\nint *a = **b; # no\n```\nend", O C "```c\nint *a = **b; # no\n" O "```\nend");
	shows("2 * 3 * 4", "2 * 3 * 4");
	shows("#tag and -x", "#tag and -x");
	shows("`a` first", O C "a" O " first");
	shows("**b** first", O B "b" O " first");
	shows("open **bold\nnext", "open " O B "bold" O "\nnext");
	shows("a `code", "a " O C "code" O);
	shows("*", "*");
	shows("``` open", O C "``` open" O);
	return 0;
}
