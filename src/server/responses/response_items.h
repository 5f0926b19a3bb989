/* response_items.h - items of /v1/responses as they are kept and listed. */
#ifndef SERVER_RESPONSE_ITEMS_H
#define SERVER_RESPONSE_ITEMS_H

#include "base/json.h"
#include "server/http/exchange.h"

/* input, a string or an array of items, as an array to be freed: each item with an id and a status, and text in parts. */
struct json *items_of(const struct json *input);
/* Appends items as the store of responses keeps them: elements of an array, without brackets, behind those that are there. */
void items_put(const struct json *items, struct buf *out);
/* Kept elements as an array; freed with json_free. */
struct json *items_parse(const struct buf *kept);
/* "": it has none. */
const char *item_id(const struct json *item);
/* Appends items from..to, counted from the last one on where they do not rise, as a list. */
void items_put_list(const struct json *items, size_t from, size_t to, bool rising, struct buf *out);
/* Appends a page of items, as the query of x asks for: limit (20), order (desc), after.  Returns 0 or *p's status. */
int items_page(const struct exchange *x, const struct json *items, struct buf *out, struct problem *p);

#endif
