/* announce.c - see announce.h. */
#include "engine/prefix/announce.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/digest.h"
#include "engine/prefix/prefix.h"
#include "engine/prefix/prefix_tree.h"

/* A name that was announced; 0: the place is empty. */
struct told {
	uint64_t name;
	uint64_t round; /* of the last comparison that found it */
};

struct announce {
	struct block_sink *sink;
	int size;
	uint64_t changes; /* of the store, at the last comparison */
	uint64_t round;
	struct told *told; /* [room] open addressing; room is a power of 2, and at least half is empty */
	size_t n, room;
	/* Blocks to be announced together, one behind the other. */
	uint64_t parent, *run; /* [n_run] */
	int32_t *tok;          /* [n_run * size] */
	int n_run, run_room;
	bool said; /* something, since the last end() */
};

enum { TOLD_LEAST = 64 };

struct announce *announce_open(struct block_sink *sink, int size)
{
	struct announce *a = xcalloc(1, sizeof(*a));

	assert(size > 0);
	a->sink = sink;
	a->size = size;
	a->room = TOLD_LEAST;
	a->told = xcalloc(a->room, sizeof(*a->told));
	sink->cleared(sink);
	sink->end(sink);
	return a;
}

void announce_close(struct announce *a)
{
	if (!a)
		return;
	a->sink->cleared(a->sink);
	a->sink->end(a->sink);
	free(a->told);
	free(a->run);
	free(a->tok);
	free(a);
}

/* ---- the announced ones ---- */

static struct told *place_of(const struct announce *a, uint64_t name)
{
	size_t i = name & (a->room - 1);

	while (a->told[i].name && a->told[i].name != name)
		i = (i + 1) & (a->room - 1);
	return &a->told[i];
}

/* Keeps those of this round alone, in `room` places. */
static void told_renew(struct announce *a, size_t room, bool all)
{
	struct told *old = a->told;
	size_t n = a->room;

	a->told = xcalloc(room, sizeof(*a->told));
	a->room = room;
	a->n = 0;
	for (size_t i = 0; i < n; i++)
		if (old[i].name && (all || old[i].round == a->round)) {
			*place_of(a, old[i].name) = old[i];
			a->n++;
		}
	free(old);
}

/* False: it is new. */
static bool told_see(struct announce *a, uint64_t name)
{
	struct told *t;

	if (2 * (a->n + 1) > a->room)
		told_renew(a, 2 * a->room, true);
	t = place_of(a, name);
	t->round = a->round;
	if (t->name)
		return true;
	t->name = name;
	a->n++;
	return false;
}

/* ---- names ---- */

/* The tokens of the block that ends at `end`, which is in e. */
static void block_tokens(const struct prefix_node *e, int end, int size, int32_t *out)
{
	int have = end;

	for (; have > end - size; e = e->parent) {
		int begin = e->end - e->n, from = begin > end - size ? begin : end - size;

		memcpy(out + from - (end - size), e->tok + from - begin, (size_t)(have - from) * sizeof(*out));
		have = from;
	}
}

/* 0: a row of an image is in the block. */
static uint64_t block_name(uint64_t parent, const int32_t *tok, int n)
{
	uint8_t word[8];
	struct digest d;
	struct sha256 h;
	uint64_t name = 0;

	for (int i = 0; i < 8; i++)
		word[i] = (uint8_t)(parent >> 8 * i);
	sha256_init(&h);
	sha256_put(&h, word, sizeof(word));
	for (int i = 0; i < n; i++) {
		for (int k = 0; k < 4; k++)
			word[k] = (uint8_t)((uint32_t)tok[i] >> 8 * k);
		sha256_put(&h, word, 4);
		if (tok[i] < 0) {
			sha256_drop(&h);
			return 0;
		}
	}
	sha256_end(&h, &d);
	for (int i = 0; i < 8; i++)
		name = name << 8 | d.b[i];
	return name ? name : 1;
}

/* The name of the block that ends at `end` > 0, in e or above; names of all nodes above e are made. */
static uint64_t name_at(const struct prefix_node *e, int end, int size)
{
	while (e->end - e->n >= end)
		e = e->parent;
	return e->block[end / size - (e->end - e->n) / size - 1];
}

static void make_names(struct prefix_node *e, int size, int32_t *tok)
{
	int first = (e->end - e->n) / size, n = e->end / size - first;
	uint64_t name = first && n ? name_at(e->parent, first * size, size) : 0;

	e->block = xcalloc((size_t)n + 1, sizeof(*e->block));
	for (int i = 0; i < n && (name || !(first + i)); i++) {
		block_tokens(e, (first + i + 1) * size, size, tok);
		e->block[i] = name = block_name(name, tok, size);
	}
}

/* ---- the comparison ---- */

static void run_end(struct announce *a)
{
	if (!a->n_run)
		return;
	a->sink->stored(a->sink, a->parent, a->run, a->n_run, a->tok, a->size);
	a->said = true;
	a->n_run = 0;
}

/* Room for one more block, and for one that is being named. */
static void run_reserve(struct announce *a)
{
	if (a->n_run + 2 <= a->run_room)
		return;
	a->run_room = a->run_room ? 2 * a->run_room : 16;
	a->run = xrealloc(a->run, size_mul((size_t)a->run_room, sizeof(*a->run)));
	a->tok = xrealloc(a->tok, size_mul((size_t)a->run_room * (size_t)a->size, sizeof(*a->tok)));
}

static void tell(struct announce *a, const struct prefix_node *e, int end, uint64_t name)
{
	uint64_t parent = end > a->size ? name_at(e, end - a->size, a->size) : 0;

	if (a->n_run && a->run[a->n_run - 1] != parent)
		run_end(a);
	run_reserve(a);
	if (!a->n_run)
		a->parent = parent;
	block_tokens(e, end, a->size, a->tok + (size_t)a->n_run * (size_t)a->size);
	a->run[a->n_run++] = name;
}

/* Looks at the blocks that end in e. */
static void look_at(struct announce *a, struct prefix_node *e)
{
	int first = (e->end - e->n) / a->size, n = e->end / a->size - first;
	const struct prefix_node *state;

	run_reserve(a);
	if (!e->block) {
		run_end(a); /* the room behind it is for make_names */
		make_names(e, a->size, a->tok);
	}
	state = n && e->below ? node_state_below(e) : NULL;
	for (int i = 0; i < n && state; i++) {
		int end = (first + i + 1) * a->size;

		if (e->block[i] && snaps_reach(&state->snaps, end) == end && !told_see(a, e->block[i]))
			tell(a, e, end, e->block[i]);
	}
}

/* Tells what was not seen in this round. */
static void tell_removed(struct announce *a)
{
	uint64_t *gone = xmalloc(size_mul(a->n + 1, sizeof(*gone)));
	int n = 0;

	for (size_t i = 0; i < a->room; i++)
		if (a->told[i].name && a->told[i].round != a->round)
			gone[n++] = a->told[i].name;
	if (n) {
		a->sink->removed(a->sink, gone, n);
		a->said = true;
		told_renew(a, a->room, false);
	}
	free(gone);
}

void announce_step(struct announce *a, const struct prefix *p)
{
	struct prefix_tree *t;
	bool again;

	if (!a)
		return;
	again = a->sink->again(a->sink);
	if (!again && a->changes == p->changes)
		return;
	a->changes = p->changes;
	if (again) {
		a->round++;
		told_renew(a, TOLD_LEAST, false);
		a->sink->cleared(a->sink);
		a->said = true;
	}
	a->round++;
	t = tree_find(p, NULL);
	for (struct prefix_node *e = t ? t->root.child : NULL; e; e = node_next_in(&t->root, e))
		look_at(a, e);
	run_end(a);
	tell_removed(a);
	if (a->said)
		a->sink->end(a->sink);
	a->said = false;
}
