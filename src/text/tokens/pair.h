/* pair.h - a text, or two of them, as a model that reads whole texts wants it: with the tokens of the file's processor
 * around and between them, cut to a number of ids.
 *
 * Format: huggingface/tokenizers, TemplateProcessing, BertProcessing, RobertaProcessing, and truncation "longest_first". */
#ifndef TEXT_PAIR_H
#define TEXT_PAIR_H

#include "text/tokens/tokenizer.h"

struct texts_in {
	const char *p[2];
	size_t n[2];
	bool two;
	int most;         /* ids, those around included; 0: any number */
	bool ends;        /* the end of a text that is too long is kept, not its beginning */
	bool second_only; /* of two texts, only the second is cut */
};

enum { AROUND_MAX = 16 }; /* ids before a text, between two, or behind one */

/* Ids around and between two texts. */
struct pair_form {
	int32_t part[3][AROUND_MAX]; /* before, between, behind */
	size_t n[3];
	int plain; /* ids of the middle part that are of type 0; below 0: all ids are of type 0 */
};

/* NULL: the file has no form for two texts. */
const struct pair_form *tokenizer_pair(const struct tokenizer *t);

/* Appends the ids; *second: where type 1 begins, 0: nowhere; *length: how many ids there would have been without `most`.
 * Without a form for two texts each gets what a single one has before it, and the second what a single one has
 * behind it.  E_ARG, E_LIMIT as
 * tokenizer_encode; E_LIMIT, too, where `most` has no room for what is around. */
int texts_encode(const struct tokenizer *t, const struct texts_in *in, unsigned flags, struct tokens *out, int *second,
                 size_t *length, struct err *err);

#endif
