/* response_tell.h - an answer in the shapes of /v1/responses: its items, the response, the events of its stream.
 *
 * IO thread, on the work of an exchange. */
#ifndef SERVER_RESPONSE_TELL_H
#define SERVER_RESPONSE_TELL_H

#include <stdbool.h>

#include "base/buf.h"

struct background;
struct choice;
struct event;
struct generation;
struct json;
struct problem;

enum { STATUS_CANCELLED = 499 }; /* of a problem: it was cancelled by name */

/* How a response in the background ended.  It is stored when it is over, with its events (response_keep.c). */
struct response_end {
	struct buf object; /* empty: it has not ended */
	bool whole;        /* with an answer */
};

/* State of a request until its answer is complete: `own` of its generation. */
struct responses {
	/* As the store of responses keeps them. */
	struct buf history;    /* the conversation so far, as messages */
	struct buf items;      /* what was asked, as it is listed */
	struct buf tools;      /* the items so far that bring tools */
	struct json *brought;  /* those of them that came before this request, until it is read; NULL: none */
	bool summary;          /* thoughts are told as their own summary: clients that ask for one show nothing else */
	bool wants_background; /* its client does not wait for it */
	struct background *behind; /* once it runs there; NULL: it does not */
	struct response_end *end;  /* its; NULL as behind is */
	int sequence;              /* number of the next event of the stream */
	bool told_begun;           /* response.in_progress was told of one in the background */
	char conversation[64];     /* that it belongs to; "": none */
};

/* Appends the response, with what there is of its output.  why: of one that failed, or NULL. */
void response_put(struct generation *g, const char *status, const struct problem *why, struct buf *out);
/* Appends the items of a complete answer, without brackets. */
void response_put_items(const struct generation *g, struct choice *c, struct buf *out);

/* Steps of struct endpoint. */
void response_token(struct generation *g, struct choice *c, const struct event *ev);
void response_first(struct generation *g, struct choice *c, struct buf *out);
void response_delta(struct generation *g, struct choice *c, struct buf *out);
void response_last(struct generation *g, struct choice *c, struct buf *out);
void response_progress(struct generation *g, struct choice *c, const struct event *ev, struct buf *out);
void response_close(struct generation *g, struct buf *out);
void response_error(struct generation *g, const struct problem *p, struct buf *out);
void response_whole(struct generation *g, struct buf *out);

#endif
