/* problem.h - an error as the client is told it: the OpenAI API's shape. */
#ifndef SERVER_PROBLEM_H
#define SERVER_PROBLEM_H

#include "base/buf.h"

struct problem {
	int status;                     /* HTTP; 0: no problem */
	const char *type, *code;        /* code NULL: null */
	char param[80];                 /* "": null */
	char message[640];
	int retry_after;                /* seconds; 0: says nothing */
	const char *allow;              /* of a 405 */
};

/* Fills *p and returns status, so that "return problem_set(...)" reads well.
 * type follows from status. */
int problem_set(struct problem *p, int status, const char *code, const char *param, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* Appends {"error": {...}}. */
void problem_put(struct buf *b, const struct problem *p);

#endif
