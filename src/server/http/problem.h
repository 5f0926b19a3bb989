/* problem.h - an error as the client is told it: in the OpenAI API's shape, or Anthropic's. */
#ifndef SERVER_PROBLEM_H
#define SERVER_PROBLEM_H

#include <stdbool.h>

#include "base/buf.h"

/* How errors are written: as the OpenAI API does, as Anthropic's does, {"error": MESSAGE} as ollama, the same with an error_type as TEI,
 * or {"error": {"code", "message", "status"}} as Google. */
enum error_shape { SHAPE_OPENAI, SHAPE_ANTHROPIC, SHAPE_OLLAMA, SHAPE_TEI, SHAPE_GEMINI };

struct problem {
	int status;              /* HTTP; 0: no problem */
	const char *type, *code; /* code NULL: null */
	char param[80];          /* "": null */
	char message[640];
	int retry_after; /* seconds; 0: says nothing */
	char allow[40];  /* of a 405 */
	enum error_shape shape;
};

/* Fills *p and returns status, so that "return problem_set(...)" reads well.
 * type follows from status. */
int problem_set(struct problem *p, int status, const char *code, const char *param, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* 503: no new requests, for the server is about to end. */
int problem_stopping(struct problem *p);

/* Appends {"error": {...}}; Anthropic's has "type": "error" before it. */
void problem_put(struct buf *b, const struct problem *p);

#endif
