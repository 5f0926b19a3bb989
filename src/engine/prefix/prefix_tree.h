/* prefix_tree.h - the radix tree of kept prefixes: nodes, the way of a prompt, and the books over both.
 *
 * Only prefix.c, prefix_tree.c and announce.c include this.  A node is a run of tokens; which states hang where, and which of
 * them go first, is prefix.c's affair.  The engine's thread only; nothing fails, since memory that is not there
 * ends the program. */
#ifndef ENGINE_PREFIX_TREE_H
#define ENGINE_PREFIX_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/cache.h"
#include "engine/prefix/place.h"
#include "engine/prefix/prefix.h"

struct prefix_node {
	/* The fields that every lookup reads of every node come first. */
	struct prefix_node *parent, *child; /* child: the first of its children, the newest first */
	struct prefix_node *next, *prev;    /* among its parent's children */
	struct prefix_node *under;          /* the nearest above that ends a system prompt; else the root */
	uint64_t recent;                    /* clock of the store when this or anything below was in use last */
	int passes;                         /* prompts that were known further on than here */
	int landed;                         /* prompts for which this was the last known place */
	enum place kind;
	enum place_parted parted; /* since `recent` */
	bool placed;              /* a state was meant to be here; false: only a fork of the way */
	bool lost, pinned;
	bool fine; /* of the grid: the tier below is not told of it */
	bool read; /* came from the tier below, and was not used since */
	int n, end;
	int32_t *tok;    /* [n] what follows the parent's end */
	uint64_t *block; /* announce.c: names of the blocks that end in it; NULL: not made yet */
	struct prefix_tree *tree;
	struct snaps snaps; /* at end; n == 0: none */
	int below;          /* nodes in this subtree, itself included, that have a snapshot */
	uint64_t id, by;
	int hits;            /* prompts resumed from here */
	uint64_t made, used; /* clock of the store */
	int64_t made_ns, used_ns;
	struct place_kin kin; /* of those whose `under` it is */
};

/* All prompts under one salt.  The root node has no tokens and never a snapshot. */
struct prefix_tree {
	struct prefix_tree *next;
	char *salt;
	struct prefix_node root;
};

static inline bool has_state(const struct prefix_node *e)
{
	return e->snaps.n > 0;
}

static inline bool is_root(const struct prefix_node *e)
{
	return !e->parent;
}

static inline bool is_ghost(const struct prefix_node *e)
{
	return !is_root(e) && !e->child && !has_state(e);
}

/* True where a node ends a system prompt, so that what is learned below it counts there. */
static inline bool heads_kin(const struct prefix_node *e)
{
	return is_root(e) || (e->placed && e->kind == PLACE_SYSTEM);
}

/* Bytes of a node and its tokens, which a ghost holds too. */
static inline size_t own_bytes(const struct prefix_node *e)
{
	return sizeof(*e) + (size_t)e->n * sizeof(*e->tok);
}

/* How far tok[0..n) leads into a tree: `whole` is the last node passed to its end, `part` the
 * child entered and not left (NULL: none), `depth` the tokens in common. */
struct way {
	struct prefix_node *whole, *part;
	int depth;
};

/* The tree of a salt (NULL and "" are one); tree_find returns NULL where there is none. */
struct prefix_tree *tree_find(const struct prefix *p, const char *salt);
struct prefix_tree *tree_make(struct prefix *p, const char *salt);
bool tree_has_salt(const struct prefix_tree *t, const char *salt);
/* Frees a tree that has no nodes left. */
void tree_free(struct prefix *p, struct prefix_tree *t);
struct way tree_follow(struct prefix_tree *t, const int32_t *tok, int n);

/* The node at the end of tok[0..n); makes it, and its tree, where they are missing. */
struct prefix_node *node_make(struct prefix *p, const char *salt, const int32_t *tok, int n);
/* All tokens of a node's path, from the first on; the caller frees them. */
int32_t *node_path(const struct prefix_node *e);
/* Every change that makes or ends a ghost, or alters a node's size, is between these two. */
void node_count_out(struct prefix *p, const struct prefix_node *e);
void node_count_in(struct prefix *p, const struct prefix_node *e);
/* Takes a node out of its parent's children. */
void node_unlink(struct prefix *p, struct prefix_node *e);
/* Merges a node into its only child, and frees it, where it is neither a place nor has a state: a fork whose other
 * branches went.  Otherwise does nothing. */
void node_join(struct prefix *p, struct prefix_node *e);
/* The nearest node at or below e with a state, from which prompts that leave the tree there resume; NULL: there is none. */
struct prefix_node *node_state_below(struct prefix_node *e);
/* Frees a node that hangs nowhere, and its memory. */
void node_free(struct prefix_node *e);
/* Frees a leaf without a state, then every node above it that only led there. */
void node_remove_leaf(struct prefix *p, struct prefix_node *e);

/* Pre-order within the subtree of top, which is not returned itself; NULL: that was the last. */
struct prefix_node *node_next_in(const struct prefix_node *top, struct prefix_node *e);
/* Pre-order over all nodes of all trees but roots; NULL: none, or none left. */
struct prefix_node *node_first(const struct prefix *p);
struct prefix_node *node_next(struct prefix_node *e);

#endif
