/* constraint.h - what an answer is held to, token by token.
 *
 *     <think> free </think> content <tool_call> call </tool_call> ...
 *
 * or, in dialects without tags, one call or several as the whole answer.
 *
 * Thoughts are free, but do not end an answer whose content is held.  Content is
 * held to one grammar, what is in a call to another, each from where its part
 * begins; a part without a grammar is free.
 * Where it is follows from the bytes of the accepted tokens, those included
 * that the answer was made to say.  Special and other added tokens match no
 * grammar; the tags are allowed by id where they may come.
 *
 * The engine's side of it is struct mask_source. */
#ifndef TEXT_CONSTRAINT_H
#define TEXT_CONSTRAINT_H

#include "text/grammar/grammar.h"
#include "text/tokens/mask_source.h"
#include "text/tokens/tokenizer.h"

enum { CONSTRAINT_OPENS = 3 };

struct constraint_rules {
	const struct tokenizer *tokenizer;
	const struct vocab *vocab;            /* made by constraint_vocab; both must outlive the constraint */
	bool thinking;                        /* the answer begins inside a thought */
	bool may_think;                       /* or it may begin with one */
	const char *think_open, *think_close; /* NULL: <think>, </think> */
	bool reopens;                         /* thoughts may begin anywhere */
	/* Texts before content, and before every part but the first; NULL: none. */
	const char *content_open, *turn;
	struct grammar *content; /* NULL: free */
	struct grammar *call;    /* between the tags, line breaks aside; NULL: free */
	/* NULL without calls, or where they have no tags.  call_close is one token, and so is call_open; or call_close
	 * is NULL, and the end of a call is part of its grammar.  Then calls may open in the ways also[], too, of which
	 * opened[] is the part that the grammar begins with (NULL: none). */
	const char *call_open, *call_close;
	const char *also[CONSTRAINT_OPENS], *opened[CONSTRAINT_OPENS];
	const struct call_marks *marks; /* of `call` and of the vocabulary; NULL: none */
	bool call_alone;                /* calls are the whole answer.  It is free until it is one for certain: when
	                                 * all before and `mark` for the n_mark-th time is as `call` has it */
	char mark;
	int n_mark;
	bool must_call;     /* it is one from its beginning; then content does not count */
	const int32_t *end; /* tokens that end an answer */
	int n_end;
};

/* The tokenizer's ordinary tokens, and the marks, each as its byte. */
struct vocab *constraint_vocab(const struct tokenizer *t, const struct call_marks *marks);
/* Finds those of texts (ended by NULL) that are added tokens of the tokenizer. */
void constraint_marks(const struct tokenizer *t, const char *const *texts, struct call_marks *out);

/* Copies the rules.  Freed through its ops. */
struct mask_source *constraint_new(const struct constraint_rules *r);

#endif
