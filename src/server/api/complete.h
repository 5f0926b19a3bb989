/* complete.h - what the endpoints share whose prompts are text that goes on. */
#ifndef SERVER_COMPLETE_H
#define SERVER_COMPLETE_H

#include "server/chat/generate.h"

/* A string, an array of strings, an array of token ids, or an array of those; field names them in errors, flags are of
 * tokenizer_encode.  Fills g->prompts.of.  0, or *p's status. */
int prompts_read(struct generation *g, const struct json *v, const char *field, unsigned flags, struct problem *p);

/* The member "prompt" of body: a string, an array of strings, an array of token ids, or an array of those.  Fills
 * g->prompts.of.  0, or *p's status. */
int completion_prompts(struct generation *g, const struct json *body, struct problem *p);

/* A new object with the model's name of body alone, if it has one; ollama's names that end with ":latest" name what
 * comes before. */
struct json *ollama_body_new(const struct json *body);

/* A prompt for the text between two given ones (fill in the middle), where the model has tokens for that; fills
 * g->prompts.of[0].  field names the request's field in errors. */
int fim_prompt(struct generation *g, const char *before, size_t n_before, const char *after, size_t n_after,
               const char *field, struct problem *p);
/* Has it such tokens? */
bool fim_known(const struct tokenizer *t);

#endif
