/* prefix_tree.c - see prefix_tree.h. */
#include "engine/prefix/prefix_tree.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void node_count_out(struct prefix *p, const struct prefix_node *e)
{
	if (is_root(e))
		return;
	p->own_bytes -= own_bytes(e);
	if (is_ghost(e))
		p->ghost_bytes -= own_bytes(e);
}

void node_count_in(struct prefix *p, const struct prefix_node *e)
{
	if (is_root(e))
		return;
	p->own_bytes += own_bytes(e);
	if (is_ghost(e))
		p->ghost_bytes += own_bytes(e);
}

static void node_link(struct prefix *p, struct prefix_node *parent, struct prefix_node *e)
{
	node_count_out(p, parent);
	e->parent = parent;
	e->tree = parent->tree;
	e->prev = NULL;
	e->next = parent->child;
	if (e->next)
		e->next->prev = e;
	parent->child = e;
	node_count_in(p, parent);
}

void node_unlink(struct prefix *p, struct prefix_node *e)
{
	node_count_out(p, e->parent);
	*(e->prev ? &e->prev->next : &e->parent->child) = e->next;
	if (e->next)
		e->next->prev = e->prev;
	node_count_in(p, e->parent);
}

static struct prefix_node *node_new(struct prefix *p, struct prefix_node *parent, const int32_t *tok, int n)
{
	struct prefix_node *e = xcalloc(1, sizeof(*e));

	e->tok = xmalloc(size_mul((size_t)n, sizeof(*tok)));
	memcpy(e->tok, tok, (size_t)n * sizeof(*tok));
	e->n = n;
	e->end = parent->end + n;
	e->id = ++p->next_id;
	e->made = e->used = e->recent = p->clock;
	e->under = heads_kin(parent) ? parent : parent->under;
	p->n_node++;
	node_link(p, parent, e);
	node_count_in(p, e);
	return e;
}

void node_free(struct prefix_node *e)
{
	free(e->tok);
	free(e->block);
	free(e);
}

/* The first `at` tokens of e become a node of their own above it. */
static struct prefix_node *node_split(struct prefix *p, struct prefix_node *e, int at)
{
	struct prefix_node *parent = e->parent, *head;
	int32_t *rest;

	assert(at > 0 && at < e->n);
	node_count_out(p, e);
	node_unlink(p, e);
	head = node_new(p, parent, e->tok, at);
	head->below = e->below;
	head->made = e->made;
	head->used = e->used;
	head->recent = e->recent;
	head->made_ns = e->made_ns;
	head->used_ns = e->used_ns;
	rest = xmalloc(size_mul((size_t)(e->n - at), sizeof(*rest)));
	memcpy(rest, e->tok + at, (size_t)(e->n - at) * sizeof(*rest));
	free(e->tok);
	free(e->block);
	e->tok = rest;
	e->block = NULL;
	e->n -= at;
	node_link(p, head, e);
	node_count_in(p, e);
	return head;
}

void node_join(struct prefix *p, struct prefix_node *e)
{
	struct prefix_node *c = e->child;
	int32_t *tok;

	if (is_root(e) || e->placed || has_state(e) || !c || c->next)
		return;
	node_count_out(p, c);
	node_unlink(p, c);
	tok = xmalloc(size_mul((size_t)e->n + (size_t)c->n, sizeof(*tok)));
	memcpy(tok, e->tok, (size_t)e->n * sizeof(*tok));
	memcpy(tok + e->n, c->tok, (size_t)c->n * sizeof(*tok));
	free(c->tok);
	free(c->block);
	c->tok = tok;
	c->block = NULL;
	c->n += e->n;
	node_count_out(p, e);
	node_unlink(p, e);
	node_link(p, e->parent, c);
	node_count_in(p, c);
	node_free(e);
	p->n_node--;
}

void tree_free(struct prefix *p, struct prefix_tree *t)
{
	struct prefix_tree **at = &p->tree;

	assert(!t->root.child);
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	p->own_bytes -= sizeof(*t) + strlen(t->salt);
	free(t->salt);
	free(t);
}

void node_remove_leaf(struct prefix *p, struct prefix_node *e)
{
	while (is_ghost(e)) {
		struct prefix_node *parent = e->parent;

		node_count_out(p, e);
		node_unlink(p, e);
		node_free(e);
		p->n_node--;
		e = parent;
		if (!e->child && e->placed)
			break; /* a ghost in its own right */
	}
	if (is_root(e) && !e->child)
		tree_free(p, e->tree);
	else
		node_join(p, e);
}

/* Length of the common beginning. */
static int common_tokens(const int32_t *a, const int32_t *b, int n)
{
	enum { STRIDE = 256 }; /* tokens per memcmp: long enough for its speed, short enough to finish by hand */
	int i = 0;

	while (n - i >= STRIDE && !memcmp(a + i, b + i, STRIDE * sizeof(*a)))
		i += STRIDE;
	while (i < n && a[i] == b[i])
		i++;
	return i;
}

bool tree_has_salt(const struct prefix_tree *t, const char *salt)
{
	return !strcmp(t->salt, salt ? salt : "");
}

struct prefix_tree *tree_find(const struct prefix *p, const char *salt)
{
	struct prefix_tree *t = p->tree;

	while (t && !tree_has_salt(t, salt))
		t = t->next;
	return t;
}

struct prefix_tree *tree_make(struct prefix *p, const char *salt)
{
	struct prefix_tree *t = tree_find(p, salt);

	if (t)
		return t;
	t = xcalloc(1, sizeof(*t));
	t->salt = xstrdup(salt ? salt : "");
	t->root.tree = t;
	t->next = p->tree;
	p->tree = t;
	p->own_bytes += sizeof(*t) + strlen(t->salt);
	return t;
}

struct prefix_node *node_next_in(const struct prefix_node *top, struct prefix_node *e)
{
	if (e->child)
		return e->child;
	while (e != top && !e->next)
		e = e->parent;
	return e == top ? NULL : e->next;
}

struct prefix_node *node_first(const struct prefix *p)
{
	for (struct prefix_tree *t = p->tree; t; t = t->next)
		if (t->root.child)
			return t->root.child;
	return NULL;
}

struct prefix_node *node_next(struct prefix_node *e)
{
	struct prefix_tree *t = e->tree;

	e = node_next_in(&t->root, e);
	while (!e && (t = t->next))
		e = t->root.child;
	return e;
}

struct way tree_follow(struct prefix_tree *t, const int32_t *tok, int n)
{
	struct way w = { .whole = &t->root };

	for (;;) {
		struct prefix_node *e = w.whole->child;
		int same, most;

		while (e && (w.depth == n || e->tok[0] != tok[w.depth]))
			e = e->next;
		if (!e)
			return w;
		most = e->n < n - w.depth ? e->n : n - w.depth;
		same = common_tokens(e->tok, tok + w.depth, most);
		w.depth += same;
		if (same < e->n) {
			w.part = e;
			return w;
		}
		w.whole = e;
	}
}

struct prefix_node *node_make(struct prefix *p, const char *salt, const int32_t *tok, int n)
{
	struct way w = tree_follow(tree_make(p, salt), tok, n);

	if (w.part)
		w.whole = node_split(p, w.part, w.depth - w.whole->end);
	if (w.depth < n)
		return node_new(p, w.whole, tok + w.depth, n - w.depth);
	return w.whole;
}

int32_t *node_path(const struct prefix_node *e)
{
	int32_t *tok = xmalloc(size_mul((size_t)e->end + 1, sizeof(*tok)));

	for (; !is_root(e); e = e->parent)
		memcpy(tok + e->end - e->n, e->tok, (size_t)e->n * sizeof(*tok));
	return tok;
}
