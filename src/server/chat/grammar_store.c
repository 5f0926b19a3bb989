/* grammar_store.c - see grammar_store.h. */
#include "server/chat/grammar_store.h"

#include <string.h>

#include "base/fault.h"

void grammar_store_init(struct grammar_store *s)
{
	memset(s, 0, sizeof *s);
	pthread_mutex_init(&s->lock, NULL);
}

/* Its last place is filled from the end. */
static void drop(struct grammar_store *s, int i)
{
	s->stats.bytes -= grammar_bytes(s->kept[i].grammar);
	grammar_unref(s->kept[i].grammar);
	s->kept[i] = s->kept[--s->stats.n];
}

void grammar_store_fini(struct grammar_store *s)
{
	while (s->stats.n)
		drop(s, s->stats.n - 1);
	pthread_mutex_destroy(&s->lock);
}

static struct kept_grammar *find_grammar(struct grammar_store *s, const struct digest *key)
{
	for (int i = 0; i < s->stats.n; i++)
		if (!memcmp(&s->kept[i].key, key, sizeof *key))
			return &s->kept[i];
	return NULL;
}

struct grammar *grammar_store_find(struct grammar_store *s, const struct digest *key)
{
	struct grammar *g = NULL;
	struct kept_grammar *k;

	fault_lock(&s->lock);
	if ((k = find_grammar(s, key))) {
		k->used = ++s->clock;
		g = k->grammar;
		grammar_ref(g);
	}
	s->stats.hits += g != NULL;
	s->stats.misses += !g;
	fault_unlock(&s->lock);
	return g;
}

static int oldest(const struct grammar_store *s)
{
	int old = 0;

	for (int i = 1; i < s->stats.n; i++)
		if (s->kept[i].used < s->kept[old].used)
			old = i;
	return old;
}

void grammar_store_keep(struct grammar_store *s, const struct digest *key, struct grammar *g)
{
	size_t n = grammar_bytes(g);

	fault_lock(&s->lock);
	/* Two requests may have compiled it at once. */
	if (n <= GRAMMAR_BYTES_KEPT && !find_grammar(s, key)) {
		while (s->stats.n == GRAMMARS_KEPT || s->stats.bytes + n > GRAMMAR_BYTES_KEPT)
			drop(s, oldest(s));
		s->kept[s->stats.n++] = (struct kept_grammar){ *key, g, ++s->clock };
		s->stats.bytes += n;
		grammar_ref(g);
	}
	fault_unlock(&s->lock);
}

void grammar_store_stats(struct grammar_store *s, struct grammar_store_stats *out)
{
	fault_lock(&s->lock);
	*out = s->stats;
	fault_unlock(&s->lock);
}
