/* lexeme.h - the words of JSON as automata: strings, numbers, and some of them.
 *
 * For the grammar files of this folder.  Strings include their quotation marks.
 * What has to be told apart (constants, patterns, names) is held to one spelling:
 * the short escapes, \u00xx for other control characters, and everything else as
 * it is.  NULL when the pool is used up (dfa.h). */
#ifndef TEXT_LEXEME_H
#define TEXT_LEXEME_H

#include "base/err.h"
#include "text/grammar/dfa.h"

enum {
	NUMBER_DIGITS_MAX = 24, /* before the point, and after it: a number ends some time */
	DECIMAL_DIGITS_MAX =
		15, /* digits in all, where bounds are to hold: a double distinguishes numbers of that many */
	INTEGER_DIGITS_MAX = 18, /* fits in 64 bits */
	MULTIPLE_STATES_MAX = 20000,
};

/* Any string, any escapes.  State LEXEME_BODY is between two characters. */
struct dfa *lexeme_string(struct dfa_pool *p);
enum { LEXEME_BODY = 1 };

/* Any string in the one spelling. */
struct dfa *lexeme_plain_string(struct dfa_pool *p);

/* Strings in the one spelling that are in `of` (a language of such strings) and have
 * min to max characters; max < 0: any number. */
struct dfa *lexeme_length(struct dfa_pool *p, const struct dfa *of, int64_t min, int64_t max);

/* Strings of `of` (in the one spelling) as bare text, and what ends it: a line break
 * and `end`, which begins with '<', holds no other and does not occur in the text. */
struct dfa *lexeme_bare(struct dfa_pool *p, const struct dfa *of, const char *end);
#define BARE_VALUE_END "</parameter>"
/* lexeme_bare_to: bare text that `end` ends without a line break.  lexeme_bare_between: text between two marks of one
 * byte, which the text does not contain. */
struct dfa *lexeme_bare_to(struct dfa_pool *p, const struct dfa *of, const char *end);
struct dfa *lexeme_bare_between(struct dfa_pool *p, const struct dfa *of, const char *mark);

/* A set of texts, each with its label; a text that is there twice has the lower. */
struct texts {
	struct nfa f;
};
void texts_init(struct texts *t);
void texts_put(struct texts *t, const char *p, size_t n, int32_t label);
struct dfa *texts_finish(struct dfa_pool *p, struct texts *t); /* and fini */
void texts_fini(struct texts *t);

/* text as struct calls_spelling (grammar.h) has it: \1, \2 and \3 stand for numbers and ids.  Adds it to f from state
 * `at`; returns its end. */
int lexeme_spell(struct nfa *f, int at, const char *text);
/* The language of such texts in a list that NULL ends. */
struct dfa *lexeme_spelled(struct dfa_pool *p, const char *const *list);

/* A decimal number without exponent: digits before and after the point, no zeros
 * at the outer ends. */
struct decimal {
	bool negative;
	int n_whole, n_part;
	char whole[NUMBER_DIGITS_MAX + 1], part[NUMBER_DIGITS_MAX + 1];
};

/* Reads a JSON number.  E_LIMIT: it has too many digits. */
int decimal_parse(struct decimal *d, const char *text);
void decimal_text(const struct decimal *d, char out[2 * NUMBER_DIGITS_MAX + 4]);

/* Any number; those written without exponent; those without point as well. */
struct dfa *lexeme_number(struct dfa_pool *p);
struct dfa *lexeme_decimal(struct dfa_pool *p, bool integer);
/* Decimals with one spelling for each value: no -0, no zero at the end of a part. */
struct dfa *lexeme_once(struct dfa_pool *p);
/* The decimals above (below) d, or equal to it unless open. */
struct dfa *lexeme_bound(struct dfa_pool *p, const struct decimal *d, bool below, bool open);
/* Multiples of d > 0.  NULL without a reason in p: d has too many digits. */
struct dfa *lexeme_multiple(struct dfa_pool *p, const struct decimal *d);

#endif
