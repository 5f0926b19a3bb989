/* draft_pretend.c - the drafter for planning: proposes as much as it is asked
 * for, at no cost, and the engine takes a given share of it for right
 * (engine_opts.draft_pretend).  The answers mean nothing; their speed does. */
#include <stdlib.h>

#include "base/alloc.h"
#include "engine/draft/draft.h"

static void propose(struct drafter *d, struct draft_ask *ask, int n_ask)
{
	for (int i = 0; i < n_ask; i++) {
		int32_t last = ask[i].seq.tok[ask[i].seq.n_tok - 1];

		/* Any token that is surely one: what was said last. */
		for (ask[i].n = 0; ask[i].n < ask[i].max; ask[i].n++)
			ask[i].out[ask[i].n] = last < 0 ? 0 : last;
	}
}

static void pretend_close(struct drafter *d)
{
	free(d);
}

static const struct drafter_ops pretend_ops = { .name = "pretend", .propose = propose, .close = pretend_close };

struct drafter *draft_pretend_open(void)
{
	struct drafter *d = xcalloc(1, sizeof(*d));

	d->ops = &pretend_ops;
	return d;
}
