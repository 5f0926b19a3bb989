/* draft_model.c - the drafter that is a smaller model with the same tokens.
 *
 * Its caches hold true tokens only: each round it first computes what became
 * true since, then guesses on, and goes back.  A recurrent state goes back
 * through a snapshot, which costs two copies of it; keys and values only forget.
 * It may lag behind: a sequence that was not drafted for, or one whose prefix
 * was known to the model and not here, is caught up with when asked for, at most
 * one step of rows_max rows a round.  Prefixes are kept in a store of its own,
 * at the lengths at which the engine keeps them. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/draft/draft.h"
#include "engine/draft/draft_pass.h"
#include "engine/prefix/prefix.h"

struct seq {
	uint64_t id; /* 0: nothing here */
	bool open;   /* false: only `pos` was looked up, the caches are empty */
	int pos;     /* tokens computed, which is the caches' position */
	bool dead;   /* cannot be computed: a token that the model lacks, or a row that is none */
};

struct draft_model {
	struct drafter d;
	struct model *m;
	struct draft_pass pass;
	struct prefix prefix;
	struct seq *seq;       /* [seqs_max] */
	struct draft_ask **in; /* [seqs_max] asks of the round that are in it */
	struct draft_ask **at; /* [seqs_max] asks of the step, by span */
	struct snaps *back;    /* [seqs_max] by slot: where to go back to */
};

static void seq_close(struct draft_model *g, int slot)
{
	struct seq *s = &g->seq[slot];

	if (s->open)
		caches_close(&g->m->caches, slot);
	*s = (struct seq){ 0 };
}

static bool keeps(const struct draft_model *g, const struct draft_seq *a)
{
	return !a->secret && g->prefix.bytes_max;
}

/* The slot's sequence, from a kept prefix if there is one. */
static struct seq *seq_of(struct draft_model *g, const struct draft_seq *a)
{
	struct seq *s = &g->seq[a->slot];
	struct prefix_hit hit = { 0 };

	if (s->id == a->id && s->open)
		return s;
	seq_close(g, a->slot);
	*s = (struct seq){ .id = a->id, .open = true };
	if (keeps(g, a))
		prefix_find(&g->prefix, a->salt, a->tok, a->n_tok, &hit);
	if (hit.at && caches_restore(&g->m->caches, a->slot, hit.snaps, hit.at))
		caches_close(&g->m->caches, a->slot);
	else
		s->pos = hit.at;
	if (keeps(g, a))
		prefix_use(&g->prefix, &hit, a->now);
	return s;
}

/* The last token is the first guess's own. */
static int behind(struct drafter *d, const struct draft_seq *a)
{
	struct draft_model *g = (struct draft_model *)d;
	struct seq *s = &g->seq[a->slot];
	struct prefix_hit hit = { 0 };

	if (s->id != a->id) {
		seq_close(g, a->slot);
		if (keeps(g, a))
			prefix_find(&g->prefix, a->salt, a->tok, a->n_tok, &hit);
		*s = (struct seq){ .id = a->id, .pos = hit.at };
	}
	return a->n_tok - 1 - s->pos;
}

static void keep(struct draft_model *g, const struct draft_seq *a, enum place kind)
{
	struct prefix_key key = { .salt = a->salt, .kind = kind, .by = a->id, .now = a->now };

	assert(g->seq[a->slot].pos <= a->n_tok);
	if (keeps(g, a))
		prefix_learn(&g->prefix, &key, a->slot, a->tok, g->seq[a->slot].pos);
}

/* Where the rows after pos must end: at the next length worth keeping, or at the end. */
static int next_cut(const struct draft_model *g, int pos, const struct draft_seq *a, enum place *kind)
{
	struct place_at at;

	if (!keeps(g, a) || !place_after(a->plan, pos, &at) || at.pos >= a->n_tok)
		return a->n_tok;
	*kind = at.kind;
	return at.pos;
}

static bool ask_add(struct draft_model *g, struct draft_ask *a, int pos, const int32_t *tok, int n, bool logits)
{
	int span = g->pass.pass.n_item;

	while (draft_pass_add(&g->pass, a->seq.slot, pos, tok, n, logits))
		if (!prefix_evict(&g->prefix, true))
			return false;
	g->at[span] = a;
	return true;
}

static bool knows(const struct draft_model *g, const int32_t *tok, int n)
{
	for (int i = 0; i < n; i++)
		if (tok[i] < 0 || tok[i] >= g->m->shape.vocab)
			return false;
	return true;
}

static void guess(struct draft_model *g, struct draft_ask *a, int logits)
{
	draft_guess(a, draft_pass_logits(&g->pass, logits));
}

/* One step of what became true since the last round, at most `left` rows; a
 * sequence that is then up to date has a first guess.  Returns the rows. */
static int catch_up(struct draft_model *g, int n_in, int left)
{
	int logits = 0;

	draft_pass_clear(&g->pass);
	for (int i = 0; i < n_in; i++) {
		struct draft_seq *a = &g->in[i]->seq;
		struct seq *s = seq_of(g, a);
		enum place kind = PLACE_GRID;
		int n = next_cut(g, s->pos, a, &kind) - s->pos;

		n = n < left - g->pass.pass.n_row ? n : left - g->pass.pass.n_row;
		n = n < g->in[i]->most - g->in[i]->caught ? n : g->in[i]->most - g->in[i]->caught;
		if (s->dead || n < 1)
			continue;
		if (!knows(g, a->tok + s->pos, n))
			s->dead = true;
		else
			ask_add(g, g->in[i], s->pos, a->tok + s->pos, n, s->pos + n == a->n_tok);
	}
	draft_pass_run(&g->pass);
	for (int i = 0; i < g->pass.pass.n_item; i++) {
		struct draft_ask *a = g->at[i];
		struct seq *s = &g->seq[a->seq.slot];
		enum place kind = PLACE_GRID;
		int cut = next_cut(g, s->pos, &a->seq, &kind);

		s->pos += g->pass.span[i].n;
		a->caught += g->pass.span[i].n - (s->pos == a->seq.n_tok);
		if (s->pos == a->seq.n_tok)
			guess(g, a, logits++);
		else if (s->pos == cut)
			keep(g, &a->seq, kind);
	}
	return g->pass.pass.n_row;
}

/* Before the first guess is computed: a way back. */
static bool leave(struct draft_model *g, struct draft_ask *a)
{
	struct seq *s = &g->seq[a->seq.slot];

	assert(s->pos == a->seq.n_tok);
	while (!caches_go_back(&g->m->caches) &&
	       caches_capture(&g->m->caches, a->seq.slot, s->pos, &g->back[a->seq.slot]))
		if (!prefix_shrink(&g->prefix))
			return false;
	return true;
}

static void go_back(struct draft_model *g, struct draft_ask *a, int pos)
{
	struct caches *caches = &g->m->caches;
	int slot = a->seq.slot, n_tok = a->seq.n_tok;

	if (caches_go_back(caches)) {
		caches_rewind(caches, slot, pos, n_tok);
		return;
	}
	if (pos > n_tok) {
		caches_close(caches, slot);
		if (caches_restore(caches, slot, &g->back[slot], n_tok))
			g->seq[slot] = (struct seq){ 0 }; /* no memory: begins again */
	}
	snaps_drop(&g->back[slot]);
}

/* Guess after guess, a row each of all that go on. */
static void go_on(struct draft_model *g, int n_in)
{
	for (int i = 0; i < n_in; i++)
		if (g->in[i]->n && (g->in[i]->max == 1 || !leave(g, g->in[i])))
			g->in[i]->max = 1;
	for (int depth = 1;; depth++) {
		draft_pass_clear(&g->pass);
		for (int i = 0; i < n_in; i++) {
			struct draft_ask *a = g->in[i];

			if (a->n == depth && a->max > depth)
				ask_add(g, a, a->seq.n_tok + depth - 1, &a->out[depth - 1], 1, true);
		}
		if (!g->pass.pass.n_item)
			break;
		draft_pass_run(&g->pass);
		for (int i = 0; i < g->pass.pass.n_item; i++) {
			g->seq[g->at[i]->seq.slot].pos++;
			guess(g, g->at[i], i);
		}
	}
	for (int i = 0; i < n_in; i++) {
		struct draft_ask *a = g->in[i];
		struct seq *s = &g->seq[a->seq.slot];
		int pos = s->pos;

		if (!a->n || (a->max == 1 && pos == a->seq.n_tok))
			continue;
		s->pos = a->seq.n_tok;
		go_back(g, a, pos);
	}
}

static void propose(struct drafter *d, struct draft_ask *ask, int n_ask)
{
	struct draft_model *g = (struct draft_model *)d;

	int left = g->pass.rows_max, n_in = 0, rows;

	for (int i = 0; i < n_ask; i++) {
		struct draft_ask *a = &ask[i];
		int room = g->m->opts.ctx_max - a->seq.n_tok;

		a->n = 0;
		a->max = a->max < room ? a->max : room;
		if (a->max > 0)
			g->in[n_in++] = a;
	}
	while (left > 0 && (rows = catch_up(g, n_in, left)) > 0)
		left -= rows;
	go_on(g, n_in);
}

static struct prefix *kept(struct drafter *d, struct model **m)
{
	struct draft_model *g = (struct draft_model *)d;

	*m = g->m;
	return &g->prefix;
}

static void learn(struct drafter *d, const struct draft_seq *a)
{
	struct draft_model *g = (struct draft_model *)d;
	struct seq *s = &g->seq[a->slot];

	if (s->id == a->id && s->open && s->pos > 0)
		keep(g, a, PLACE_END);
}

static void forget(struct drafter *d, int slot)
{
	seq_close((struct draft_model *)d, slot);
}

static void model_close_drafter(struct drafter *d)
{
	struct draft_model *g = (struct draft_model *)d;

	for (int i = 0; i < g->pass.seqs_max; i++)
		seq_close(g, i);
	prefix_fini(&g->prefix);
	draft_pass_close(&g->pass);
	free(g->seq);
	free(g->in);
	free(g->at);
	free(g->back);
	free(g);
}

static const struct drafter_ops draft_model_ops = {
	.name = "model",
	.propose = propose,
	.close = model_close_drafter,
	.learn = learn,
	.forget = forget,
	.behind = behind,
	.kept = kept,
};

int draft_model_open(struct drafter **out, struct model *m, int seqs_max, size_t prefix_bytes, struct err *err)
{
	struct draft_model *g = xcalloc(1, sizeof(*g));
	int rc = draft_pass_open(&g->pass, m, seqs_max, m->opts.step_rows, err);

	*out = NULL;
	if (rc) {
		free(g);
		return rc;
	}
	assert(seqs_max <= m->opts.slots);
	g->d.ops = &draft_model_ops;
	g->m = m;
	g->seq = xcalloc((size_t)seqs_max, sizeof(*g->seq));
	g->in = xcalloc((size_t)seqs_max, sizeof(struct draft_ask *));
	g->at = xcalloc((size_t)seqs_max, sizeof(struct draft_ask *));
	g->back = xcalloc((size_t)seqs_max, sizeof(*g->back));
	prefix_init(&g->prefix, &m->caches, prefix_bytes);
	*out = &g->d;
	return 0;
}

int draft_vocabulary(const struct tokenizer *t, const struct tokenizer *of, const char *name, struct err *err)
{
	int32_t n = tokenizer_size(t), m = tokenizer_size(of);

	for (int32_t id = 0; id < n && id < m; id++) {
		size_t a_n, b_n;
		const char *a = tokenizer_token_bytes(t, id, &a_n), *b = tokenizer_token_bytes(of, id, &b_n);

		if (!a != !b || (a && (a_n != b_n || memcmp(a, b, a_n))))
			return err_set(err, E_UNSUPPORTED,
			               "%s cannot draft: its token %d is \"%.*s\", the model's is \"%.*s\"", name, id,
			               b ? (int)b_n : 4, b ? b : "none", a ? (int)a_n : 4, a ? a : "none");
	}
	if (n != m)
		return err_set(err, E_UNSUPPORTED, "%s cannot draft: it has %d tokens, the model %d", name, m, n);
	return 0;
}
