/* hub_http.h - requests to the hub and to the stores that it leads to, by libcurl.  Inside src/hub/. */
#ifndef HUB_HUB_HTTP_H
#define HUB_HUB_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "hub/heads.h"
#include "hub/hub.h"

struct hub_http; /* libcurl, for all threads */
/* say, may be NULL: told of long waits and of the hub's own warnings, by one thread at a time. */
int hub_http_open(struct hub_http **out, const struct hub_place *place, void (*say)(void *arg, const char *line),
                  void *arg, struct err *err);
void hub_http_close(struct hub_http *http);
/* Ends all waits, and requests at their next byte: one thread has failed. */
void hub_http_stop(struct hub_http *http);
bool hub_http_stopped(const struct hub_http *http);
/* Waits before the next try; E_GONE: stopped meanwhile. */
int hub_http_wait(struct hub_http *http, const struct hub_head *head, int tries, const char *what, struct err *err);

/* One connection at a time, kept for the next request; each thread has its own. */
struct hub_line;
struct hub_line *hub_line_open(struct hub_http *http);
void hub_line_close(struct hub_line *line);

/* What an answer's body goes to.  Returns false to end the request; it is asked first when the head is complete. */
struct hub_sink {
	bool (*put)(void *arg, const struct hub_head *head, const void *p, size_t n);
	void *arg;
};
/* One request, no redirect followed.  from and to: bytes asked for, -1: all.  The token goes along to the hub's own
 * host alone.  0: head is filled, whatever the status; E_IO: no whole answer came; E_GONE: the sink ended it. */
int hub_ask(struct hub_line *line, const char *method, const char *url, int64_t from, int64_t to, struct hub_head *head,
            const struct hub_sink *sink, struct err *err);
/* The body of an API's answer, redirects on the hub's host followed, tried again where that may help.  what: for
 * messages.  E_LIMIT: it is larger than max. */
int hub_get(struct hub_line *line, const char *url, const char *what, size_t max, struct hub_head *head,
            struct buf *body, struct err *err);
/* Where the bytes of a file lie, and what the hub knows of it; tried again where that may help. */
int hub_locate(struct hub_line *line, const char *url, const char *what, struct hub_file *out, struct err *err);

#endif
