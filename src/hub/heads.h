/* heads.h - headers of the hub's answers: what they say of a file, of an error, of a wait.  Inside src/hub/. */
#ifndef HUB_HEADS_H
#define HUB_HEADS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct hub_head {
	int status;
	char commit[64], etag[160], linked_etag[160];
	int64_t length, linked_size; /* -1: not said */
	struct buf location, link;   /* a Location is a secret: it never reaches a message */
	char code[64], message[256], warning[256];
	int64_t left, seconds, retry_after; /* RateLimit's r and t; -1: not said */
	char range[96];                     /* Content-Range */
};
void hub_head_init(struct hub_head *h);
void hub_head_reset(struct hub_head *h);
void hub_head_fini(struct hub_head *h);
/* One header line.  A status line begins a new answer: all that was said before is forgotten.  Control bytes become '?', since
 * parts of a line reach messages. */
void hub_head_line(struct hub_head *h, const char *line, size_t n);

/* What to do after an answer to a request for what the hub knows of a file. */
enum hub_step {
	HUB_DONE,   /* the file lies at the URL that was asked */
	HUB_FOLLOW, /* ask `url` the same */
	HUB_FETCH,  /* the file lies at `url` */
	HUB_RETRY,
	HUB_REFUSED
};
struct hub_file {
	struct buf url;
	char commit[64], digest[160];
	int64_t size;
};
/* `asked` is the URL that was asked.  Fills out->url for FOLLOW and FETCH, the rest for DONE and FETCH.  HUB_REFUSED
 * leaves err set. */
enum hub_step hub_file_step(const struct hub_head *h, const char *asked, struct hub_file *out, struct err *err);
/* E_MISSING, E_UNSUPPORTED or E_IO: what an error status means. */
int hub_head_error(const struct hub_head *h, bool token, const char *what, struct err *err);
/* Whether the status may pass by itself, and how many seconds to wait before the try after `tries` others. */
bool hub_may_retry(int status);
int hub_wait(const struct hub_head *h, int tries);
/* The URL with rel="next" of a Link header; false: there is none. */
bool hub_next(const char *link, struct buf *out);

/* What to do with the body of an answer to "Range: bytes=ASKED-", of a file of `total` bytes. */
enum hub_range {
	HUB_APPEND,
	HUB_WHOLE, /* a body from the beginning */
	HUB_COMPLETE,
	HUB_RESTART,
	HUB_NEW_LOCATION
};
enum hub_range hub_range_step(const struct hub_head *h, int64_t asked, int64_t total);

#endif
