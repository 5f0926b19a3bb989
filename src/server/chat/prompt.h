/* prompt.h - messages to the text and the tokens of a prompt.
 *
 * What users wrote is marked on the way, so that it is never read as special
 * tokens; and so are the places where a later prompt is likely to part from this
 * one, at which the engine keeps a prefix. */
#ifndef SERVER_PROMPT_H
#define SERVER_PROMPT_H

#include "engine/prefix/report.h"
#include "server/http/problem.h"
#include "text/jinja/template.h"
#include "text/tokens/tokenizer.h"

enum { MARKS_MAX = 3 };

struct prompt {
	struct template_output out;
	struct text_range *user; /* of out.text; sorted, apart from each other */
	size_t n_user;
	size_t part[MARKS_MAX]; /* byte offsets in out.text; 0: there is none */
};

void prompt_init(struct prompt *p);
void prompt_fini(struct prompt *p);

int prompt_render(struct prompt *p, const struct template *t, const struct template_input *in, struct problem *problem);

/* Leaves the first n bytes of the text. */
void prompt_cut(struct prompt *p, size_t n);

/* The marks of a prompt that was tokenised to ids, rising, and what kind of place
 * each is (enum place); returns how many. */
int prompt_marks(const struct prompt *p, const struct tokenizer *t, const struct tokens *ids, int mark[MARKS_MAX],
                 unsigned char kind[MARKS_MAX]);
/* The token at which each of n messages' own text begins; -1: it has none. */
void prompt_messages(const struct prompt *p, const struct tokenizer *t, const struct tokens *ids, int *at, int n);

#endif
