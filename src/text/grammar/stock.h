/* stock.h - the automata that every grammar is made with, made once.
 *
 * For the compilers of this folder and calls_grammar.c.  They are constant, never freed, and shared by
 * all grammars and threads; the request that comes first pays nothing for them (base/allowance.h). */
#ifndef TEXT_STOCK_H
#define TEXT_STOCK_H

#include "text/grammar/dfa.h"

struct stock {
	const struct dfa *null, *boolean, *number; /* any value of that type; lexeme.h has the numbers */
	const struct dfa *decimal, *integer, *once;
	const struct dfa *string, *plain, *bare; /* any string; bare with BARE_VALUE_END */
};

/* Any thread. */
const struct stock *stock(void);

#endif
