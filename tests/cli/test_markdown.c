/* An answer's markdown at a terminal: marks become colours however the text is cut, tables are drawn, nothing else is changed. */
#include <locale.h>
#include <string.h>

#include "cli/markdown.h"
#include "cli/markdown_table.h"
#include "../check.h"

#define B "\033[1m"
#define C "\033[36m"
#define U "\033[4m"
#define I "\033[3m"
#define O "\033[0m"
#define BAR " \xe2\x94\x82 "
#define DASH "\xe2\x94\x80"
#define CROSS DASH "\xe2\x94\xbc" DASH

static void shows_in(int columns, const char *text, const char *want)
{
	for (size_t step = 1; step <= strlen(text) + 1; step++) {
		struct markdown m = { .columns = columns };
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

static void shows(const char *text, const char *want)
{
	shows_in(0, text, want);
}

static void tables(void)
{
	shows("|a|b|\n|-|-|\n|1|22|\nend", B "a" O BAR B "b" O "\n" DASH CROSS DASH DASH "\n1" BAR "22\nend");
	/* How each column is aligned; cells that are missing, or too many; pipes that are text; no end of the last line. */
	shows("| a | bb | c |\n|:-:|--:|---|\n| 123 | 4 |\n  | 1 | 2 | x\\|y | no |",
	      " " B "a" O " " BAR B "bb" O BAR B "c" O "\n" DASH DASH DASH CROSS DASH DASH CROSS DASH DASH DASH
	      "\n123" BAR " 4" BAR "\n 1 " BAR " 2" BAR "x|y\n");
	/* Marks in cells take no room, and wide letters two columns; what follows begins a block of its own. */
	shows("|`c`|\xe4\xb8\xad|x|\n|-|-|-|\n|**dd**|e|y|\n- i",
	      B O C "c" O O " " BAR B "\xe4\xb8\xad" O BAR B "x" O "\n" DASH DASH CROSS DASH DASH CROSS DASH "\n" O B
	            "dd" O BAR "e " BAR "y\n\xe2\x80\xa2 i");
	/* A narrow terminal: cells take several lines, broken at blanks, else anywhere; their colours do not run over. */
	shows_in(13, "|h|k|\n|-|-|\n|aa **bb cc**|1234567890|",
	         B "h" O "    " BAR B "k" O "\n" DASH DASH DASH DASH DASH CROSS DASH DASH DASH DASH DASH "\naa " O B
	           "bb" O BAR "12345\n" B "cc" O "   " BAR "67890\n");
	shows_in(8, "|h|k|\n|-|-|\n|aaaaa|bb|\n|c||", B "h" O ": aaaaa\n" B "k" O ": bb\n\n" B "h" O ": c\n");
	/* No tables. */
	shows("|a|b\nc", "|a|b\nc");
	shows("| a **b** |\n| - x |\n", "| a " O B "b" O " |\n| - x |\n");
	shows("|a", "|a");
	shows("|a|\n|-", B "a" O "\n" DASH "\n");
	shows("```\n|a|\n|-|\n```", O C "```\n|a|\n|-|\n" O "```");
	shows("a | b", "a | b");
}

static void large_tables(void)
{
	struct markdown m = { 0 };
	struct buf out;

	buf_init(&out);
	markdown_put(&m, "|a|\n|-|\n", 8, &out);
	for (int i = 0; i < 3 * TABLE_BYTES_MAX; i++)
		markdown_put(&m, "|x|\n", 4, &out);
	CHECK(out.n > TABLE_BYTES_MAX && m.rows.n <= 2 * TABLE_BYTES_MAX, "%zu shown, %zu held", out.n, m.rows.n);
	markdown_put(&m, "|", 1, &out);
	for (int i = 0; i < 3 * TABLE_BYTES_MAX; i++)
		markdown_put(&m, "y", 1, &out);
	CHECK(m.rows.n <= 2 * TABLE_BYTES_MAX, "%zu held of one line", m.rows.n);
	markdown_end(&m, &out);
	CHECK(!m.rows.p, "nothing is held at the end");
	buf_fini(&out);
}

int main(void)
{
	setlocale(LC_CTYPE, "C.UTF-8"); /* for wide letters */
	shows("plain text\n", "plain text\n");
	shows("# Lima\nis", O B U "Lima" O "\nis");
	shows("### A **b** c", O B "A " O B "b" O B " c" O);
	shows("a *b c* d", "a " O I "b c" O " d");
	shows("*a*\n*b", O I "a" O "\n" O I "b" O);
	shows("***a*** b", O B O B I "a" O I O " b");
	shows("a*b*c and a * b", "a*b*c and a * b");
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
	tables();
	large_tables();
	return 0;
}
