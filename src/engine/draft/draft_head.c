/* draft_head.c - drafters that are small models over the model's own hidden rows: its head for multi-token prediction,
 * EAGLE-3, DFlash (model.h, model_bind_head).
 *
 * The head has a row of keys and values for each token, made of the token and what
 * the model gave for the token before (its hidden row, or outputs of some of its layers).
 * Those rows come out of the model's own steps; they wait here until the sequence is drafted
 * for, or until there are enough for a step, so that a sequence that is not drafted for costs
 * little.  One kind of head guesses on from its own hidden, token by token; another guesses a
 * block of tokens in one pass, whose rows are of unknown tokens.  The rows that came of
 * guesses are taken back.
 *
 * Where following is not expected to pay (draft_seq.follow), only the last
 * rows wait, and those before are forgotten.
 *
 * What the model gave for the token before the first is zero.  A sequence that begins in a
 * prefix that the model knew and the head does not has rows from there on only:
 * worse guesses, no wrong ones. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/draft/draft.h"
#include "engine/draft/draft_pass.h"
#include "engine/prefix/prefix.h"

struct seq {
	uint64_t id; /* 0: nothing here */
	int base;    /* the first token that has a row; token t's lies at t - base */
	int pos;     /* tokens before it have theirs */
	int n;       /* hidden rows waiting: those of the tokens pos - 1 and on */
	int guessed; /* rows past pos - base that are to be taken back */
	int row;     /* in the last step */
};

struct head {
	struct drafter d;
	struct drafter_ops ops; /* d's, named after the kind of head */
	struct model *m;
	struct draft_pass pass;
	struct prefix prefix;
	struct seq *seq;       /* [seqs_max] */
	struct draft_ask **in; /* [seqs_max] asks of the step */
	size_t row_bytes;      /* of what the model gives for a token */
	size_t own_bytes;      /* of the head's own hidden */
	int block;             /* rows of a block; 0: it guesses token by token */
	int32_t *masks;        /* [block] */
	float *full;           /* logits of all the model's tokens, where the head has those of some; or NULL */
	/* The backend's. */
	char *waiting;        /* [seqs_max][DRAFT_WAITING_MAX] rows */
	char *given, *hidden; /* [rows_max] rows: into and out of a step; hidden NULL where nothing reads it */
	char *zero;           /* one row */
};

static char *wait_row(const struct head *g, int slot, int i)
{
	return g->waiting + ((size_t)slot * DRAFT_WAITING_MAX + (size_t)i) * g->row_bytes;
}

/* The row that the head's caches carry for the slot: the hidden row of the last token. */
static char *carried(const struct head *g, int slot)
{
	return (char *)model_carried(g->m, slot);
}

static void copy(const struct head *g, char *to, const char *from, int n)
{
	g->m->be->ops->copy(g->m->be, to, from, (size_t)n * g->row_bytes);
}

static void seq_close(struct head *g, int slot)
{
	if (g->seq[slot].id)
		caches_close(&g->m->caches, slot);
	g->seq[slot] = (struct seq){ 0 };
}

static bool keeps(const struct head *g, const struct draft_seq *a)
{
	return !a->secret && g->prefix.bytes_max;
}

/* A step of rows that the model knows, or of guesses. */
static void begin(struct head *g, bool ahead)
{
	draft_pass_clear(&g->pass);
	g->pass.pass.ahead = ahead;
}

/* ---- following the model ---- */

/* Rows for the next n tokens of the sequence; false: no memory. */
static bool head_add(struct head *g, const struct draft_seq *a, int n, bool logits)
{
	struct seq *s = &g->seq[a->slot];
	int row = g->pass.pass.n_row;

	assert(n > 0 && n <= s->n && s->pos + n <= a->n_tok);
	while (draft_pass_add(&g->pass, a->slot, s->pos - s->base, a->tok + s->pos, n, logits))
		if (!prefix_evict(&g->prefix, true))
			return false;
	copy(g, g->given + (size_t)row * g->row_bytes, wait_row(g, a->slot, 0), n);
	s->row = row + n - 1;
	return true;
}

/* The next n tokens have their rows; what waits for them is dropped. */
static void drop(struct head *g, int slot, int n)
{
	struct seq *s = &g->seq[slot];

	for (int i = n; i < s->n && n; i++)
		copy(g, wait_row(g, slot, i - n), wait_row(g, slot, i), 1);
	s->pos += n;
	s->n -= n;
}

/* n rows alone, for later.  false: the sequence is lost. */
static bool flush(struct head *g, const struct draft_seq *a, int n)
{
	if (n < 1)
		return true;
	begin(g, false);
	if (!head_add(g, a, n, false)) {
		seq_close(g, a->slot);
		return false;
	}
	draft_pass_run(&g->pass);
	if (g->pass.spoiled[0]) {
		seq_close(g, a->slot);
		return false;
	}
	drop(g, a->slot, n);
	return true;
}

/* A new sequence, or one of which something is missing: the model's next hidden
 * row will be that of token at. */
static void seq_open(struct head *g, const struct draft_seq *a, int at)
{
	struct seq *s = &g->seq[a->slot];
	struct prefix_hit hit = { 0 };
	bool fresh = s->id != a->id;

	seq_close(g, a->slot);
	*s = (struct seq){ .id = a->id, .base = at + 1, .pos = at + 1 };
	if (at == 0) {
		*s = (struct seq){ .id = a->id, .n = 1 };
		copy(g, wait_row(g, a->slot, 0), g->zero, 1);
		return;
	}
	if (!fresh || !keeps(g, a))
		return;
	prefix_find(&g->prefix, a->salt, a->tok, at + 1, &hit);
	if (hit.at == at && !caches_restore(&g->m->caches, a->slot, hit.snaps, at)) {
		prefix_use(&g->prefix, &hit, a->now);
		*s = (struct seq){ .id = a->id, .pos = at, .n = 1 };
		copy(g, wait_row(g, a->slot, 0), carried(g, a->slot), 1);
	} else {
		caches_close(&g->m->caches, a->slot);
	}
}

/* Keeps what the head has of the first n tokens, if it has them all, or will soon. */
static void keep(struct head *g, const struct draft_seq *a, enum place kind, int n)
{
	struct prefix_key key = { .salt = a->salt, .kind = kind, .by = a->id, .now = a->now };
	struct seq *s = &g->seq[a->slot];

	if (!keeps(g, a) || s->base || s->pos > n || s->pos - 1 + s->n != n ||
	    (!a->follow && n - s->pos > 1 + DRAFT_MAX) || !flush(g, a, n - s->pos))
		return;
	/* As many tokens as the model's own caches hold there. */
	assert(!s->base && s->pos == n);
	copy(g, carried(g, a->slot), wait_row(g, a->slot, 0), 1);
	prefix_learn(&g->prefix, &key, a->slot, a->tok, n);
}

/* There is no room for n rows more, and what waits will not be computed: the sequence
 * begins anew with the last of them.  Returns how many of the n are left out. */
static int shed(struct head *g, int slot, int n)
{
	struct seq *s = &g->seq[slot];
	int over = s->n + n - DRAFT_WAITING_MAX, old;

	if (over <= 0)
		return 0;
	if (n < DRAFT_WAITING_MAX / 2)
		over = DRAFT_WAITING_MAX / 2; /* row by row: not each time */
	if (s->pos > s->base)
		caches_close(&g->m->caches, slot);
	old = over < s->n ? over : s->n;
	drop(g, slot, old);
	s->pos += over - old;
	s->base = s->pos;
	return over - old;
}

static int follow_one(struct head *g, const struct draft_run *run, const char *hidden)
{
	const struct draft_seq *a = &run->seq;
	struct seq *s = &g->seq[a->slot];
	int at = a->pos - run->n, done = 0, computed = 0;
	struct place_at place;
	bool placed;

	if (s->id != a->id || at != s->pos - 1 + s->n)
		seq_open(g, a, at);
	if (!a->follow)
		done = shed(g, a->slot, run->n);
	placed = keeps(g, a) && place_after(a->plan, at + done, &place);
	while (done < run->n) {
		int n;

		if (s->n == DRAFT_WAITING_MAX) {
			if (!flush(g, a, s->n))
				return computed;
			computed += DRAFT_WAITING_MAX;
		}
		n = run->n - done < DRAFT_WAITING_MAX - s->n ? run->n - done : DRAFT_WAITING_MAX - s->n;
		if (placed && place.pos <= a->pos && n > place.pos - at - done)
			n = place.pos - at - done;
		copy(g, wait_row(g, a->slot, s->n), hidden + (size_t)(run->row + done) * g->row_bytes, n);
		s->n += n;
		done += n;
		if (placed && place.pos == at + done) {
			keep(g, a, place.kind, at + done);
			if (s->id != a->id)
				return computed;
			placed = place_after(a->plan, at + done, &place);
		}
	}
	return computed;
}

static int follow(struct drafter *d, const struct pass *p, const struct draft_run *run, int n_run)
{
	const char *rows = (const char *)(d->n_tap ? d->taps : p->hidden);
	int computed = 0;

	for (int i = 0; i < n_run; i++)
		computed += follow_one((struct head *)d, &run[i], rows);
	return computed;
}

/* The last row is the first guess's own. */
static int behind(struct drafter *d, const struct draft_seq *a)
{
	const struct seq *s = &((struct head *)d)->seq[a->slot];

	return s->id == a->id && s->n ? s->n - 1 : 0;
}

/* ---- guessing ---- */

static void guess(struct head *g, struct draft_ask *a, int logits)
{
	const struct shape *m = &g->m->shape;
	float *row = draft_pass_logits(&g->pass, logits);

	if (g->m->ops->lean)
		g->m->ops->lean(g->m, &g->pass.pass, g->pass.logit_row[logits],
		                a->n ? a->out[a->n - 1] : a->seq.tok[a->seq.n_tok - 1], row);
	if (g->full) {
		for (int i = 0; i < m->head.vocab; i++)
			g->full[i] = -INFINITY;
		for (int i = 0; i < m->vocab; i++)
			g->full[m->head.token[i]] = row[i];
		row = g->full;
	}
	draft_guess(a, row);
}

/* More waits than may be computed now: the first of it. */
static void part_of(struct head *g, struct draft_ask *a)
{
	const struct seq *s = &g->seq[a->seq.slot];

	if (s->id == a->seq.id && s->n - 1 > a->most && flush(g, &a->seq, a->most))
		a->caught = a->most;
}

/* The positions that a sequence needs beyond its tokens. */
static int room_for(const struct head *g, const struct draft_ask *a)
{
	int room = g->m->opts.ctx_max - a->seq.n_tok;

	if (g->block)
		return room < g->block ? 0 : g->m->shape.head.guesses;
	return room;
}

/* Makes rows of the waiting tokens; the last row gives the first guess.  Returns the number of sequences in g->in; those
 * whose rows were spoiled are closed. */
static int first_rows(struct head *g, struct draft_ask *ask, int n_ask)
{
	int n_in = 0;

	for (int i = 0; i < n_ask; i++)
		part_of(g, &ask[i]);
	begin(g, false);
	for (int i = 0; i < n_ask; i++) {
		struct draft_ask *a = &ask[i];
		struct seq *s = &g->seq[a->seq.slot];
		int room = room_for(g, a);

		a->n = 0;
		a->max = a->max < room ? a->max : room;
		if (s->id != a->seq.id || s->pos + s->n != a->seq.n_tok || s->n < 1 || a->max < 1 ||
		    s->n > g->pass.rows_max - g->pass.pass.n_row || a->caught)
			continue;
		a->caught = s->n - 1;
		if (head_add(g, &a->seq, s->n, !g->block))
			g->in[n_in++] = a;
	}
	draft_pass_run(&g->pass);
	for (int i = 0; i < n_in; i++) {
		int slot = g->in[i]->seq.slot;

		if (g->pass.spoiled[i]) {
			seq_close(g, slot);
			continue;
		}
		/* The last row stays to be asked of again, if nothing comes of this round. */
		drop(g, slot, g->seq[slot].n - 1);
		g->seq[slot].guessed = 1;
	}
	return n_in;
}

/* All guesses for the n_in sequences of g->in at once. */
static void guess_blocks(struct head *g, int n_in)
{
	int n = 0, each = g->m->shape.head.guesses;

	begin(g, true);
	for (int i = 0; i < n_in; i++) {
		struct draft_ask *a = g->in[i];
		struct seq *s = &g->seq[a->seq.slot];

		if (!s->id)
			continue;
		g->masks[0] = a->seq.tok[a->seq.n_tok - 1];
		if (draft_pass_add(&g->pass, a->seq.slot, s->pos - s->base + s->guessed, g->masks, g->block, true))
			continue;
		s->guessed += g->block;
		g->in[n++] = a;
	}
	draft_pass_run(&g->pass);
	for (int i = 0; i < n; i++)
		for (int row = 0; row < each && g->in[i]->n == row && row < g->in[i]->max && !g->pass.spoiled[i]; row++)
			guess(g, g->in[i], i * each + row);
}

/* Makes the next guess for the sequences that have `depth` guesses and want more; false: there are none. */
static bool guess_next(struct head *g, struct draft_ask *ask, int n_ask, int depth)
{
	struct backend *be = g->m->be;
	int n_in = 0;

	begin(g, true);
	for (int i = 0; i < n_ask; i++) {
		struct draft_ask *a = &ask[i];
		struct seq *s = &g->seq[a->seq.slot];
		size_t row = (size_t)g->pass.pass.n_row;

		if (a->n != depth || a->max <= depth ||
		    draft_pass_add(&g->pass, a->seq.slot, s->pos - s->base + s->guessed, &a->out[depth - 1], 1, true))
			continue;
		be->ops->copy(be, g->given + row * g->own_bytes, g->hidden + (size_t)s->row * g->own_bytes,
		              g->own_bytes);
		s->row = (int)row;
		s->guessed++;
		g->in[n_in++] = a;
	}
	draft_pass_run(&g->pass);
	for (int i = 0; i < n_in; i++)
		if (!g->pass.spoiled[i])
			guess(g, g->in[i], i);
	return n_in;
}

static void propose(struct drafter *d, struct draft_ask *ask, int n_ask)
{
	struct head *g = (struct head *)d;
	int n_in = first_rows(g, ask, n_ask);

	if (g->block) {
		guess_blocks(g, n_in);
	} else {
		for (int i = 0; i < n_in; i++)
			if (!g->pass.spoiled[i])
				guess(g, g->in[i], i);
		for (int depth = 1; guess_next(g, ask, n_ask, depth); depth++)
			;
	}
	for (int i = 0; i < n_ask; i++) {
		struct seq *s = &g->seq[ask[i].seq.slot];

		if (s->id != ask[i].seq.id || !s->guessed)
			continue;
		caches_rewind(&g->m->caches, ask[i].seq.slot, s->pos - s->base + s->guessed, s->pos - s->base);
		s->guessed = 0;
	}
}

static struct prefix *kept(struct drafter *d, struct model **m)
{
	struct head *g = (struct head *)d;

	*m = g->m;
	return &g->prefix;
}

static void learn(struct drafter *d, const struct draft_seq *a)
{
	struct head *g = (struct head *)d;

	if (g->seq[a->slot].id == a->id)
		keep(g, a, PLACE_END, a->pos);
}

static void forget(struct drafter *d, int slot)
{
	seq_close((struct head *)d, slot);
}

/* ---- open and close ---- */

static void head_close(struct drafter *d)
{
	struct head *g = (struct head *)d;
	struct backend *be = g->m->be;
	size_t seqs = (size_t)g->pass.seqs_max, rows = (size_t)g->pass.rows_max;

	for (int i = 0; g->seq && i < g->pass.seqs_max; i++)
		seq_close(g, i);
	prefix_fini(&g->prefix);
	if (g->waiting)
		be->ops->free(be, g->waiting, seqs * DRAFT_WAITING_MAX * g->row_bytes);
	if (g->given)
		be->ops->free(be, g->given, rows * g->row_bytes);
	if (g->hidden)
		be->ops->free(be, g->hidden, rows * g->own_bytes);
	if (g->zero)
		be->ops->free(be, g->zero, g->row_bytes);
	draft_pass_close(&g->pass);
	free(g->seq);
	free(g->in);
	free(g->masks);
	free(g->full);
	free(g);
}

static const struct drafter_ops head_ops = {
	.propose = propose,
	.close = head_close,
	.learn = learn,
	.forget = forget,
	.follow = follow,
	.behind = behind,
	.kept = kept,
};

int draft_head_rows(const struct shape *s, int seqs_max)
{
	int rows = DRAFT_WAITING_MAX + seqs_max;

	return rows > seqs_max * s->head.block ? rows : seqs_max * s->head.block;
}

static void head_init(struct head *g, struct model *m, int seqs_max)
{
	const struct head_shape *h = &m->shape.head;

	g->ops = head_ops;
	g->ops.name = m->ops->arch[0];
	g->d = (struct drafter){ .ops = &g->ops, .tap = h->tap, .n_tap = h->n_tap };
	g->m = m;
	g->row_bytes = (size_t)m->shape.carry * sizeof(float);
	g->own_bytes = (size_t)shape_residual(&m->shape) * sizeof(float);
	g->d.block = h->block ? h->guesses : 0;
	g->block = h->block;
	g->masks = xcalloc((size_t)h->block + 1, sizeof(*g->masks));
	for (int i = 1; i < h->block; i++)
		g->masks[i] = h->mask;
	if (h->token)
		g->full = xmalloc(size_mul((size_t)h->vocab, sizeof(float)));
	g->in = xcalloc((size_t)seqs_max, sizeof(struct draft_ask *));
}

int draft_head_open(struct drafter **out, struct model *m, int seqs_max, size_t prefix_bytes, struct err *err)
{
	struct backend *be = m->be;
	int rows = m->opts.step_rows;
	struct head *g;
	bool reads;

	if (m->shape.head.borrows)
		return draft_borrow_open(out, m, seqs_max, err);
	*out = NULL;
	g = xcalloc(1, sizeof(*g));
	assert(rows >= draft_head_rows(&m->shape, seqs_max));
	assert(m->shape.carry >= shape_residual(&m->shape) && seqs_max <= m->opts.slots);
	assert(caches_go_back(&m->caches)); /* of guesses */
	head_init(g, m, seqs_max);
	prefix_init(&g->prefix, &m->caches, prefix_bytes);
	if (draft_pass_open(&g->pass, m, seqs_max, rows, err)) {
		head_close(&g->d);
		return err->code;
	}
	g->waiting = be->ops->alloc(be, size_mul(size_mul((size_t)seqs_max, DRAFT_WAITING_MAX), g->row_bytes));
	g->given = be->ops->alloc(be, size_mul((size_t)rows, g->row_bytes));
	reads = !g->block || m->ops->lean;
	g->hidden = reads ? be->ops->alloc(be, size_mul((size_t)rows, g->own_bytes)) : NULL;
	g->zero = be->ops->alloc(be, g->row_bytes);
	g->pass.pass.given = (const float *)g->given;
	g->pass.pass.hidden = (float *)g->hidden;
	if (!g->waiting || !g->given || (!g->hidden && reads) || !g->zero) {
		head_close(&g->d);
		return err_set(err, E_FULL, "no memory for a draft head over %d sequences", seqs_max);
	}
	g->seq = xcalloc((size_t)seqs_max, sizeof(*g->seq));
	*out = &g->d;
	return 0;
}
