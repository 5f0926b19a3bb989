/* anchors.h - where the names that a schema gives to its parts lead ("$anchor", and "$id": "#NAME").
 *
 * For schema.c.  A schema is walked once, when the first reference by name is met in it. */
#ifndef TEXT_ANCHORS_H
#define TEXT_ANCHORS_H

#include "base/json.h"
#include "text/grammar/dfa.h"

struct anchor {
	const struct json *root, *at; /* at NULL: root was walked */
	const char *name;
	int32_t chain; /* of the same bucket, -1 ends */
};

/* All zeros: empty. */
struct anchors {
	struct anchor *v;
	int n, cap;
	int32_t *bucket; /* [cap] */
};

/* The part of root that is called name; NULL: none is, or p is used up. */
const struct json *anchors_find(struct anchors *a, struct dfa_pool *p, const struct json *root, const char *name);
void anchors_fini(struct anchors *a);

#endif
