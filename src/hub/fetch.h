/* fetch.h - files of one commit, fetched into blobs/ by several connections.  Inside src/hub/.
 *
 * A file is fetched in parts, each by a request of its own; blobs/DIGEST.weft.incomplete holds its bytes and
 * DIGEST.weft.parts lists the parts that are whole, so that a later call fetches only the rest.  When all are there and
 * the digest is right, the file gets the name blobs/DIGEST. */
#ifndef HUB_FETCH_H
#define HUB_FETCH_H

#include "hub/choose.h"
#include "hub/hub_http.h"

struct hub_fetch {
	struct hub_http *http;
	const struct hub_place *place;
	const char *name, *commit; /* of the repository */
	const char *folder;        /* models--ORG--NAME in the cache, which exists */
	const struct hub_entry *const *entry;
	int n;
	const struct hub_options *options;
	const struct hub_watch *watch;
};
/* Fetches those of entry[n] whose blobs are not there.  *fetched grows by the bytes that came over the network. */
int hub_fetch(const struct hub_fetch *f, uint64_t *fetched, struct err *err);
/* Bytes of entry that are not on disk yet. */
uint64_t hub_fetch_left(const char *folder, const struct hub_entry *entry, const struct hub_options *options);

#endif
