/* prefix.c - see prefix.h. */
#include "engine/prefix/prefix.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/prefix/prefix_tree.h"

/* Ghosts may take this share of the budget: a token is some thousandth of what
 * its page and state are, so that the memory of a path outlives its states by far. */
enum { GHOST_SHARE = 32 };
/* Most nodes; beyond it the oldest ghosts are dropped.  Every lookup and every eviction
 * looks at all nodes, which takes a tenth of a millisecond for this many. */
enum { NODES_MAX = 4096 };

static uint64_t age_of(const struct prefix *p, const struct prefix_node *e)
{
	return p->clock - e->recent;
}

static int rank_of(const struct prefix *p, const struct prefix_node *e)
{
	uint64_t age = age_of(p, e);
	bool left = age > 0 && age <= 64 && p->fresh >> (age - 1) & 1;

	return place_rank(e->landed, e->passes, e->parted, left);
}

/* Marks e and all nodes above it as just used. */
static void touch(const struct prefix *p, struct prefix_node *e)
{
	for (; !is_root(e); e = e->parent) {
		e->recent = p->clock;
		e->parted = PARTED_NOT;
	}
}

/* ---- states ---- */

static void attach(struct prefix *p, struct prefix_node *e, const struct snaps *snaps)
{
	assert(!has_state(e) && snaps->pos == e->end);
	node_count_out(p, e);
	e->snaps = *snaps;
	node_count_in(p, e);
	e->lost = false;
	p->n_state++;
	p->changes++;
	for (struct prefix_node *a = e; a; a = a->parent)
		a->below++;
}

static void unpin(struct prefix *p, struct prefix_node *e)
{
	for (int i = 0; e->pinned && i < p->n_pinned; i++)
		if (p->pin[i] == e) {
			p->pin[i] = p->pin[--p->n_pinned];
			e->pinned = false;
		}
}

/* The node may be gone afterwards. */
static void detach(struct prefix *p, struct prefix_node *e)
{
	node_count_out(p, e);
	snaps_drop(&e->snaps);
	node_count_in(p, e);
	unpin(p, e);
	p->n_state--;
	p->changes++;
	for (struct prefix_node *a = e; a; a = a->parent)
		a->below--;
}

static void evict(struct prefix *p, struct prefix_node *e)
{
	if (p->tier && !e->fine) {
		int32_t *tok = node_path(e);

		p->tier->left(p->tier, e->tree->salt, tok, e->end, &e->snaps);
		free(tok);
	}
	e->lost = true;
	detach(p, e);
	p->evicted++;
}

static void count(struct prefix *p)
{
	p->bytes = caches_kept(p->caches) + p->own_bytes;
}

static double own_chance(const struct prefix *p, const struct prefix_node *e)
{
	return e->placed ? place_chance(&p->odds, &e->under->kin, e->kind, rank_of(p, e), age_of(p, e)) : 0;
}

/* The chance that the next prompt lands at a place below top that has no state at or above
 * it there. */
static double chance_below(const struct prefix *p, struct prefix_node *top)
{
	struct prefix_node *d = top->child;
	double chance = 0;

	while (d) {
		if (!has_state(d))
			chance += own_chance(p, d);
		if (!has_state(d) && d->child) {
			d = d->child;
			continue;
		}
		while (d != top && !d->next)
			d = d->parent;
		d = d == top ? NULL : d->next;
	}
	return chance;
}

/* Expected replay that one byte of e's memory saves.  Prompts whose last known
 * place is e or a place without a state below it resume at e; without e they
 * would at the state above. */
static double worth(const struct prefix *p, struct prefix_node *e, size_t bytes)
{
	const struct prefix_node *up = e->parent;

	while (!is_root(up) && !has_state(up))
		up = up->parent;
	return (own_chance(p, e) + chance_below(p, e)) * (e->end - up->end) / (double)(bytes + 1);
}

/* The state to go first; room: among those that give room to slots, for as much of it
 * as they give. */
static struct prefix_node *least(const struct prefix *p, bool room, bool pinned)
{
	struct prefix_node *worst = NULL;
	double least = 0;

	for (struct prefix_node *e = node_first(p); e; e = node_next(e)) {
		double v;

		if (!has_state(e) || (e->pinned && !pinned) || (room && !snaps_room(&e->snaps)))
			continue;
		v = worth(p, e, room ? snaps_room(&e->snaps) : snaps_alone(&e->snaps));
		if (!worst || v < least) {
			worst = e;
			least = v;
		}
	}
	return worst;
}

static bool drop_ghost(struct prefix *p)
{
	struct prefix_node *oldest = NULL;

	for (struct prefix_node *e = node_first(p); e; e = node_next(e))
		if (is_ghost(e) && (!oldest || e->used < oldest->used))
			oldest = e;
	if (!oldest)
		return false;
	node_remove_leaf(p, oldest);
	return true;
}

static bool evict_one(struct prefix *p, struct prefix_node *e)
{
	if (!e)
		return false;
	evict(p, e);
	node_join(p, e);
	return true;
}

bool prefix_evict(struct prefix *p, bool pinned)
{
	return evict_one(p, least(p, true, false)) || (pinned && evict_one(p, least(p, true, true)));
}

bool prefix_shrink(struct prefix *p)
{
	return evict_one(p, least(p, false, false));
}

bool prefix_yield(struct prefix *p)
{
	return prefix_evict(p, false) || prefix_shrink(p) || prefix_evict(p, true) ||
	       evict_one(p, least(p, false, true));
}

void prefix_cut(struct prefix *p, size_t bytes)
{
	for (count(p); p->bytes > bytes; count(p)) {
		struct prefix_node *e = NULL;

		if (p->ghost_bytes <= bytes / GHOST_SHARE && (p->n_state - p->n_pinned > 1 || !p->ghost_bytes))
			e = least(p, false, false);
		if (!evict_one(p, e) && !drop_ghost(p) && !prefix_shrink(p))
			break; /* pins, and what leads to them */
	}
	while ((p->ghost_bytes > bytes / GHOST_SHARE || p->n_node > NODES_MAX) && drop_ghost(p))
		;
}

void prefix_trim(struct prefix *p)
{
	prefix_cut(p, p->bytes_max);
}

/* ---- what the engine calls ---- */

void prefix_init(struct prefix *p, struct caches *caches, size_t bytes_max)
{
	memset(p, 0, sizeof(*p));
	p->caches = caches;
	p->bytes_max = bytes_max;
	place_odds_init(&p->odds);
}

void prefix_fini(struct prefix *p)
{
	p->tier = NULL; /* what is on disk stays there */
	prefix_drop(p, NULL, NULL);
	free(p->pin);
	free(p->pin_snaps);
	assert(!p->tree && !p->own_bytes && !p->ghost_bytes && !p->n_state && !p->n_node);
}

/* Among the children with a state at or below them, the one that ends first; NULL: there is none. */
static struct prefix_node *child_with_state(const struct prefix_node *e)
{
	struct prefix_node *first = NULL;

	for (struct prefix_node *c = e->child; c; c = c->next)
		if (c->below && (!first || c->end < first->end))
			first = c;
	return first;
}

/* Where texts part, the child with the nearest state is followed: a window's snapshot reaches back over few positions only. */
struct prefix_node *node_state_below(struct prefix_node *e)
{
	while (e && !has_state(e))
		e = child_with_state(e);
	return e;
}

/* Without recurrent state a snapshot further down serves as well. */
static void consider(struct prefix_hit *out, struct prefix_node *e, int most)
{
	int at;

	e = node_state_below(e);
	at = e ? snaps_reach(&e->snaps, most) : 0;
	if (at > out->at) {
		out->at = at;
		out->node = e;
		out->snaps = &e->snaps;
	}
}

/* Why not further, and where the texts part. */
static void report(const struct prefix *p, const struct way *w, int n, struct prefix_hit *out)
{
	struct prefix_report *r = &out->report;
	const struct prefix_node *next = w->part ? w->part : w->whole->child;
	bool lost = false;

	r->source = !out->at ? PREFIX_NONE : out->node->read ? PREFIX_DISK : PREFIX_MEMORY;
	r->resumed = out->at;
	r->junction = w->depth < n - 1 ? w->depth : n - 1;
	r->replayed = r->junction - r->resumed;
	r->node = out->node ? out->node->id : 0;
	r->place = out->node ? out->node->kind : PLACES;
	r->first_diff = r->was = -1;
	if (w->depth < n && next) {
		r->first_diff = w->depth;
		r->was = next->tok[w->part ? w->depth - w->whole->end : 0];
	}
	for (const struct prefix_node *e = w->whole; e && e->end > out->at; e = e->parent)
		lost |= e->lost && e->end <= r->junction;
	if (r->replayed == 0 && r->junction > 0)
		r->reason = PREFIX_HIT;
	else if (lost)
		r->reason = PREFIX_EVICTED;
	else
		r->reason = w->depth ? PREFIX_NO_STATE : PREFIX_DIVERGED;
}

void prefix_find(const struct prefix *p, const char *salt, const int32_t *tok, int n, struct prefix_hit *out)
{
	struct prefix_tree *t = tree_find(p, salt);
	struct way w;
	int most;

	*out = (struct prefix_hit){ .report = { .first_diff = -1,
		                                .was = -1,
		                                .place = PLACES,
		                                .reason = p->bytes_max ? PREFIX_EMPTY : PREFIX_OFF } };
	if (!t)
		return;
	w = tree_follow(t, tok, n);
	most = w.depth < n - 1 ? w.depth : n - 1;
	if (w.part)
		consider(out, w.part, most);
	for (struct prefix_node *e = w.whole; !is_root(e); e = e->parent) {
		if (out->at < e->end)
			consider(out, e, e->end < most ? e->end : most);
		if (!out->deepest && e->placed && e->end <= most)
			out->deepest = e;
	}
	report(p, &w, n, out);
}

void prefix_use(struct prefix *p, const struct prefix_hit *hit, int64_t now)
{
	struct prefix_node *e = hit->deepest;

	for (struct prefix_node *o = node_first(p); o; o = node_next(o))
		if (o->placed)
			place_waited(&p->odds, &o->under->kin, o->kind, rank_of(p, o), age_of(p, o));
	if (e)
		place_landed(&p->odds, &e->under->kin, e->kind, rank_of(p, e), age_of(p, e));
	p->clock++;
	p->fresh = p->fresh << 1 | (!e || e->kind == PLACE_SYSTEM || e->landed >= PLACE_MANY);
	if (hit->node) {
		hit->node->hits++;
		hit->node->read = false;
		hit->node->used = p->clock;
		hit->node->used_ns = now;
	}
	if (!e)
		return;
	for (struct prefix_node *a = e; !is_root(a); a = a->parent) {
		a->landed += a == e;
		a->passes += a != e;
	}
	/* Nodes below it are no longer the latest; a branch that was left behind stays so. */
	for (struct prefix_node *d = node_next_in(e, e); d; d = node_next_in(e, d))
		if (d->parted != PARTED_FEW)
			d->parted = e->landed >= PLACE_MANY ? PARTED_MANY : PARTED_FEW;
	e->used = p->clock;
	touch(p, e);
}

/* A state is, or was to be, here. */
static void placed(struct prefix *p, struct prefix_node *e, const struct prefix_key *key)
{
	e->by = key->by;
	e->used = p->clock;
	e->used_ns = key->now;
	touch(p, e);
	e->fine = key->fine && (!e->placed || e->fine);
	if (e->placed)
		return;
	e->placed = true;
	e->kind = key->kind;
	for (struct prefix_node *d = heads_kin(e) ? node_next_in(e, e) : NULL; d; d = node_next_in(e, d))
		if (d->under == e->under)
			d->under = e;
	e->made = p->clock;
	e->made_ns = key->now;
}

void prefix_rekind(struct prefix *p, const char *salt, const int32_t *tok, int n, enum place kind)
{
	struct prefix_tree *t = tree_find(p, salt);
	struct way w = { 0 };

	if (t)
		w = tree_follow(t, tok, n);
	if (w.whole && w.depth == n && !w.part && w.whole->placed && !w.whole->landed && !heads_kin(w.whole))
		w.whole->kind = kind;
}

void prefix_note(struct prefix *p, const struct prefix_key *key, const int32_t *tok, int n)
{
	if (!p->bytes_max || n < 1)
		return;
	placed(p, node_make(p, key->salt, tok, n), key);
	prefix_trim(p);
}

bool prefix_covers(const struct prefix *p, const char *salt, const int32_t *tok, int n)
{
	struct prefix_tree *t = tree_find(p, salt);
	struct prefix_node *below;
	struct way w;

	if (!t)
		return false;
	w = tree_follow(t, tok, n);
	if (w.depth < n)
		return false;
	below = node_state_below(w.part ? w.part : w.whole);
	return below && snaps_reach(&below->snaps, n) == n;
}

/* Takes snaps over.  NULL: they are larger than the budget, and dropped. */
static struct prefix_node *hang(struct prefix *p, const struct prefix_key *key, const int32_t *tok, int n,
                                struct snaps *snaps)
{
	struct prefix_node *e;

	if (snaps->bytes + (size_t)n * sizeof(*tok) + sizeof(*e) > p->bytes_max) {
		snaps_drop(snaps);
		return NULL;
	}
	e = node_make(p, key->salt, tok, n);
	placed(p, e, key);
	attach(p, e, snaps);
	/* Where caches can go back anywhere, the new state can stand in for those above it.  A window's snapshot reaches
	 * back as well, but only some rows, and it may be evicted first: then what it stood in for would be missing. */
	for (struct prefix_node *a = e->parent, *up; !is_root(a) && caches_go_back(p->caches); a = up) {
		up = a->parent;
		if (has_state(a) && !a->pinned && snaps_reach(snaps, a->end) == a->end)
			detach(p, a);
	}
	return e;
}

bool prefix_hang(struct prefix *p, const struct prefix_key *key, const int32_t *tok, int n, struct snaps *snaps)
{
	struct prefix_node *e;

	assert(snaps->pos == n);
	if (prefix_covers(p, key->salt, tok, n)) {
		snaps_drop(snaps);
		return false;
	}
	e = hang(p, key, tok, n, snaps);
	if (e)
		e->read = true;
	prefix_trim(p);
	return e != NULL;
}

/* Hangs snapshots that were captured here in at the end of tok[0..n), learns their size and tells the tier below. */
static bool give(struct prefix *p, const struct prefix_key *key, const int32_t *tok, int n, struct snaps *snaps)
{
	struct prefix_node *e = hang(p, key, tok, n, snaps);

	if (!e)
		return false;
	p->place_bytes = snaps_alone(&e->snaps);
	p->token_bytes = (double)(e->snaps.bytes - p->place_bytes) / n;
	if (p->tier && !e->fine)
		p->tier->kept(p->tier, e->tree->salt, tok, n);
	prefix_trim(p);
	return true;
}

bool prefix_give(struct prefix *p, const struct prefix_key *key, const int32_t *tok, int n, struct snaps *snaps)
{
	if (!p->bytes_max || prefix_covers(p, key->salt, tok, n)) {
		snaps_drop(snaps);
		return p->bytes_max;
	}
	return give(p, key, tok, n, snaps);
}

bool prefix_learn(struct prefix *p, const struct prefix_key *key, int slot, const int32_t *tok, int n)
{
	struct snaps snaps;

	if (!p->bytes_max || n < 1)
		return false;
	if (prefix_covers(p, key->salt, tok, n))
		return true;
	while (caches_capture(p->caches, slot, n, &snaps))
		if (!prefix_shrink(p)) { /* which can only uncover */
			prefix_note(p, key, tok, n);
			return false;
		}
	p->captured++;
	return give(p, key, tok, n, &snaps);
}

/* worth() of a future state at the end of tok[0..n), if there will be one at `above`. */
static double worth_at(const struct prefix *p, const struct prefix_key *key, const int32_t *tok, int n, int above)
{
	struct prefix_tree *t = tree_find(p, key->salt);
	const struct place_kin none = { { 0 }, { 0 } };
	struct prefix_node *e = NULL;
	enum place kind = key->kind;
	int landed = 0, passes = 0;
	double chance = 0;
	struct way w;

	if (t) {
		w = tree_follow(t, tok, n);
		e = w.whole;
		/* A passing prompt reaches states further down by itself; its grid is not for those. */
		if (key->kind == PLACE_GRID)
			chance = 0;
		else if (w.part)
			chance = has_state(w.part) ? 0 : own_chance(p, w.part) + chance_below(p, w.part);
		else if (w.depth == n)
			chance = chance_below(p, e);
		if (!w.part && w.depth == n && e->placed) {
			kind = e->kind;
			landed = e->landed;
			passes = e->passes;
		}
		for (struct prefix_node *a = e; !is_root(a) && a->end > above; a = a->parent)
			if (has_state(a) && a->end < n)
				above = a->end;
	}
	chance += place_chance(&p->odds,
	                       !e           ? &none :
	                       heads_kin(e) ? &e->kin :
	                                      &e->under->kin,
	                       kind, place_rank(landed, passes, PARTED_NOT, false), 0);
	return chance * (n - above) / (double)(p->place_bytes + 1);
}

bool prefix_outbid(struct prefix *p, const struct prefix_key *key, const int32_t *tok, int n, int above)
{
	struct prefix_node *e = least(p, false, false);

	return e && worth(p, e, snaps_alone(&e->snaps)) <= worth_at(p, key, tok, n, above) && evict_one(p, e);
}

bool prefix_room(struct prefix *p, const struct prefix_key *key, const int32_t *tok, int n, int above, size_t pending)
{
	size_t bytes = p->place_bytes + sizeof(struct prefix_node) + PLACE_STEP * sizeof(*tok) + pending;

	if (!p->bytes_max)
		return false;
	for (count(p); p->bytes + bytes > p->bytes_max; count(p))
		if (!prefix_outbid(p, key, tok, n, above))
			return false;
	return true;
}

void prefix_forget(struct prefix *p, const char *salt, const int32_t *tok, int n)
{
	struct prefix_tree *t = tree_find(p, salt);
	struct prefix_node *e;
	struct way w;

	if (!t)
		return;
	w = tree_follow(t, tok, n);
	e = w.whole;
	if (w.depth < n || w.part || is_root(e) || e->kind != PLACE_GRID || !e->placed || e->pinned || e->landed ||
	    e->hits)
		return;
	if (has_state(e))
		detach(p, e);
	node_count_out(p, e);
	e->placed = false;
	node_count_in(p, e);
	if (e->child)
		node_join(p, e);
	else
		node_remove_leaf(p, e);
}

const struct snaps *prefix_snaps(const struct prefix *p, const char *salt, const int32_t *tok, int n)
{
	struct prefix_tree *t = tree_find(p, salt);
	struct way w;

	if (!t)
		return NULL;
	w = tree_follow(t, tok, n);
	return w.depth == n && !w.part && has_state(w.whole) ? &w.whole->snaps : NULL;
}

const struct snaps *prefix_alike(const struct prefix *p, const char *salt, const int32_t *tok, int *n)
{
	struct prefix_tree *t = tree_find(p, salt);
	struct prefix_node *e;
	struct way w;

	if (!t)
		return NULL;
	w = tree_follow(t, tok, *n);
	/* States below the end of the path begin with all of it; otherwise the nearest above. */
	e = node_state_below(w.part ? w.part : w.whole);
	if (e) {
		*n = w.depth;
		return &e->snaps;
	}
	for (e = w.whole; !is_root(e) && !has_state(e); e = e->parent)
		;
	*n = e->end;
	return has_state(e) ? &e->snaps : NULL;
}

struct prefix_node *prefix_top(struct prefix_node *node)
{
	while (!is_root(node->parent))
		node = node->parent;
	return node;
}

uint64_t prefix_by(const struct prefix_node *node)
{
	return node->by;
}

/* ---- what people call ---- */

struct prefix_node *prefix_at(const struct prefix *p, uint64_t id, const char *salt, const int32_t *tok, int n)
{
	struct prefix_tree *t;
	struct prefix_node *e;

	if (id) {
		for (e = node_first(p); e && e->id != id; e = node_next(e))
			;
		return e;
	}
	t = tree_find(p, salt);
	if (!t)
		return NULL;
	for (e = tree_follow(t, tok, n).whole; !is_root(e) && !has_state(e); e = e->parent)
		;
	return is_root(e) ? NULL : e;
}

/* The subtree of top goes; top stays only as a root. */
static int drop_all(struct prefix *p, struct prefix_node *top)
{
	struct prefix_node *e = top;
	int n = 0;

	for (;;) {
		struct prefix_node *parent = e->parent;

		if (e->child) {
			e = e->child;
			continue;
		}
		if (is_root(e))
			return n;
		if (has_state(e)) {
			detach(p, e);
			n++;
		}
		node_count_out(p, e);
		node_unlink(p, e);
		node_free(e);
		p->n_node--;
		if (e == top)
			return n;
		e = parent;
	}
}

static int drop_node(struct prefix *p, struct prefix_node *node)
{
	struct prefix_node *parent = node->parent;
	int n = drop_all(p, node);

	if (is_root(parent) && !parent->child)
		tree_free(p, parent->tree);
	else if (!is_root(parent) && !parent->child && !has_state(parent) && !parent->placed)
		node_remove_leaf(p, parent);
	else
		node_join(p, parent);
	count(p);
	return n;
}

int32_t *prefix_path(const struct prefix_node *node, const char **salt, int *n)
{
	*salt = node->tree->salt;
	*n = node->end;
	return node_path(node);
}

int prefix_drop_path(struct prefix *p, const char *salt, const int32_t *tok, int n)
{
	struct prefix_tree *t = tree_find(p, salt);
	struct way w;

	assert(n > 0);
	if (p->tier)
		p->tier->dropped(p->tier, salt, tok, n);
	if (!t)
		return 0;
	w = tree_follow(t, tok, n);
	return w.depth < n ? 0 : drop_node(p, w.part ? w.part : w.whole);
}

int prefix_drop(struct prefix *p, struct prefix_node *node, const char *salt)
{
	int n = 0;

	if (node) {
		if (p->tier) {
			int32_t *tok = node_path(node);

			p->tier->dropped(p->tier, node->tree->salt, tok, node->end);
			free(tok);
		}
		return drop_node(p, node);
	}
	/* Not for each tree: after a restart there is none of what lies below. */
	if (p->tier)
		p->tier->dropped(p->tier, salt, NULL, 0);
	for (struct prefix_tree *t = p->tree, *next; t; t = next) {
		next = t->next;
		if (salt && !tree_has_salt(t, salt))
			continue;
		n += drop_all(p, &t->root);
		tree_free(p, t);
	}
	count(p);
	return n;
}

int prefix_pin(struct prefix *p, struct prefix_node *node, bool pin, struct err *err)
{
	size_t held = 0;

	if (!node || !has_state(node))
		return err_set(err, E_MISSING, "nothing is kept there that could be pinned");
	if (!pin) {
		unpin(p, node);
		return 0;
	}
	if (node->pinned)
		return 0;
	for (int i = 0; i < p->n_pinned; i++)
		held += p->pin[i]->snaps.bytes;
	if (held + node->snaps.bytes > p->bytes_max / 2)
		return err_set(err, E_FULL,
		               "%zu bytes to be pinned in addition to %zu; pins may hold half of a budget of %zu",
		               node->snaps.bytes, held, p->bytes_max);
	if (p->n_pinned == p->pin_room) {
		p->pin_room = p->pin_room ? 2 * p->pin_room : 8;
		p->pin = xrealloc(p->pin, size_mul((size_t)p->pin_room, sizeof(*p->pin)));
		p->pin_snaps = xrealloc(p->pin_snaps, size_mul((size_t)p->pin_room, sizeof(*p->pin_snaps)));
	}
	p->pin[p->n_pinned++] = node;
	node->pinned = true;
	return 0;
}

const struct snaps *const *prefix_pinned(const struct prefix *p, int *n)
{
	*n = p->n_pinned;
	for (int k = 0; k < p->n_pinned; k++)
		p->pin_snaps[k] = &p->pin[k]->snaps;
	return p->pin_snaps;
}

void prefix_walk(const struct prefix *p, int64_t now, void (*fn)(void *arg, const struct prefix_item *item), void *arg)
{
	for (struct prefix_node *e = node_first(p); e; e = node_next(e)) {
		int32_t *tok = p->tier ? node_path(e) : NULL;
		struct prefix_item item = {
			.id = e->id,
			.parent = e->parent->id,
			.salt = e->tree->salt,
			.begin = e->end - e->n,
			.end = e->end,
			.tok = e->tok,
			.kind = e->kind,
			.has_state = has_state(e),
			.pinned = e->pinned,
			.lost = e->lost,
			.bytes = has_state(e) ? snaps_alone(&e->snaps) : 0,
			.hits = e->hits,
			.age_ns = now - e->made_ns,
			.idle_ns = now - e->used_ns,
		};

		if (p->tier)
			item.on_disk = p->tier->find(p->tier, e->tree->salt, tok, e->end) == e->end;
		fn(arg, &item);
		free(tok);
	}
}

void prefix_check(const struct prefix *p)
{
	size_t own = 0, ghosts = 0;
	int n_state = 0, n_pinned = 0, n_node = 0;

	for (struct prefix_tree *t = p->tree; t; t = t->next) {
		own += sizeof(*t) + strlen(t->salt);
		assert(t->root.child && !has_state(&t->root));
	}
	for (struct prefix_node *e = node_first(p); e; e = node_next(e)) {
		int below = has_state(e);

		own += own_bytes(e);
		ghosts += is_ghost(e) ? own_bytes(e) : 0;
		n_state += has_state(e);
		n_pinned += e->pinned;
		n_node++;
		assert(e->n > 0 && e->end == e->parent->end + e->n && e->tree == e->parent->tree);
		assert(!e->pinned || has_state(e));
		assert(e->under == (heads_kin(e->parent) ? e->parent : e->parent->under));
		assert(!has_state(e) || e->snaps.pos == e->end);
		assert(has_state(e) || e->placed || (e->child && e->child->next)); /* else it should be joined */
		for (const struct prefix_node *c = e->child; c; c = c->next) {
			below += c->below;
			assert(c->parent == e && (!c->next || c->next->prev == c));
			for (const struct prefix_node *o = c->next; o; o = o->next)
				assert(o->tok[0] != c->tok[0]);
		}
		assert(below == e->below);
	}
	for (int i = 0; i < p->n_pinned; i++)
		assert(p->pin[i]->pinned);
	assert(own == p->own_bytes && ghosts == p->ghost_bytes && n_state == p->n_state && n_pinned == p->n_pinned);
	assert(n_node == p->n_node);
}
