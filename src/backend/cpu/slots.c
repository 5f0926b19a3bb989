/* slots.c - see slots.h.
 *
 * A slot is free, being read, or ready.  In a visit each wanted expert waits (for a slot to be read into), is on its
 * way, is given out or released, or is lost.  Slots of wanted experts are pinned from the moment the visit has them
 * until they are released, so a visit that wants more experts than there are slots goes through them in several turns.
 *
 * A slab of a checkpoint whose rows are slow is packed when it is used first (docs/experts-from-disk.md has what that gave):
 * from the slab's memory to a spare one, and the two change places. */
#include "backend/cpu/slots.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/guess.h"
#include "backend/cpu/pack.h"
#include "backend/policy.h"
#include "backend/slab_file.h"
#include "backend/stream_files.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/pages.h"

enum {
	DEPTH = 512,     /* reads under way at once, as many as a layer misses: docs/experts-from-disk.md, "Reading" */
	AHEAD_SHARE = 4, /* at most one slot in AHEAD_SHARE holds an expert that was read ahead */
	GUESSES = 256,   /* guesses after which their use is judged */
	GUESS_PAUSE = 8192, /* visits without guesses after they did not pay */
	WIDE_SHARE = 8,     /* a visit is wide if it leaves at most one expert in WIDE_SHARE unused */
	VICTIMS = 32,       /* slots to evict that one pass over all of them finds */
	VICTIM_VISITS = 8,  /* visits after which that pass is made again */
};

enum slot_state { SLOT_FREE, SLOT_READING, SLOT_READY };
struct slot {
	enum slot_state state;
	uint8_t *at; /* slot_bytes of the arena */
	struct slot_layer *of;
	int expert;
	int pins;         /* 1: of the visit */
	bool guessed;     /* of ahead: by the layer before */
	bool ahead;       /* read before it was known that it is used: stays until its layer's next visit */
	bool slow;        /* of rows that would be faster packed */
	bool unchecked;   /* of packed slabs: not compared with its digest yet */
	int parts, error; /* reads that are not back; of one that is */
	struct slab_lay lay;
	struct slab_view view;
};

enum want_state { WANT_WAITS, WANT_COMES, WANT_GIVEN, WANT_LOST };
struct want {
	int expert, slot;
	enum want_state state;
};

struct slot_layer {
	struct slots *s;
	struct moe *m;
	int index;
	int *slot; /* [experts] -1: in none */
	struct guess_router router;
	uint8_t *router_at; /* the place for it; NULL: there is none, or it was tried */
};

struct slots {
	struct cpu_backend *c;
	struct slot_layer *layer; /* [n_layer] */
	int n_layer, experts;
	struct policy policy;

	uint8_t *arena, *spare; /* spare: as large as a slot; NULL: nothing is packed */
	size_t slot_bytes, arena_bytes;
	struct slot *slot; /* [n_most] of which n may be used */
	int n, n_most;
	struct slot **ahead; /* [n_ahead] those whose `ahead` is set */
	int n_ahead;
	int n_least; /* experts of one row: fewer slots would be none */
	pthread_mutex_t ready_lock;
	size_t ready, ready_end; /* bytes of the arena that the system has given ahead, and is to give */

	struct reads *reads;
	struct slab_file packed; /* n 0: there is none */
	struct read_file *file;  /* [n_file] the checkpoint's */
	const struct stream_file *of;
	int n_file;

	struct slot *victim[VICTIMS]; /* next_victim .. n_victim - 1 are evicted next, in this order */
	double count[VICTIMS];        /* the victims' counts when they were found */
	int n_victim, next_victim;
	int64_t victims_of; /* the visit in which the victims were found */
	bool some_free;     /* perhaps */

	struct slot_layer *visited;
	struct want *want;          /* [n_want] */
	struct slot **unchecked;    /* [n_want] */
	uint64_t *piece;            /* [n_want][SLAB_PIECES] their digests */
	int n_want, n_open;         /* n_open: neither given nor lost */
	struct slot_layer *guessed; /* the layer whose experts guess[n_guess] are to be read ahead */
	int *guess, n_guess;
	int guesses, guesses_used; /* lately */
	int64_t guess_from;        /* the visit from which on guesses are made again */
	bool wide;
	bool told;      /* the log of a read that failed, in this visit */
	struct err why; /* of the last read that failed */
	FILE *trace;
	enum arith arith;
	struct stream_stats stats;
};

/* ---- eviction ---- */

static bool gives_way(const struct slot *x)
{
	return x->state == SLOT_READY && !x->pins && !x->ahead;
}

/* Up to VICTIMS free slots. */
static int find_free(struct slots *s)
{
	int n = 0;

	for (int i = 0; i < s->n && n < VICTIMS && s->some_free; i++)
		if (s->slot[i].state == SLOT_FREE)
			s->victim[n++] = &s->slot[i];
	s->some_free = n;
	return n;
}

/* The VICTIMS slots of which the policy names each before the next.  Experts of a layer lie side by side, counts as well as
 * slots, so that of thousands only those are looked at more closely which may be among the first. */
static int find_least(struct slots *s)
{
	double *count = s->count;
	int n = 0;

	for (int l = 0; l < s->n_layer; l++) {
		const struct slot_layer *y = &s->layer[l];

		for (int e = 0; e < y->m->experts; e++) {
			double c;
			int at;

			if (y->slot[e] < 0 || y->slot[e] >= s->n)
				continue;
			c = policy_count(&s->policy, l, e);
			if (n == VICTIMS && !policy_before(&s->policy, l, c, s->victim[n - 1]->of->index, count[n - 1]))
				continue;
			if (!gives_way(&s->slot[y->slot[e]]))
				continue;
			n += n < VICTIMS;
			for (at = n - 1;
			     at > 0 && policy_before(&s->policy, l, c, s->victim[at - 1]->of->index, count[at - 1]);
			     at--) {
				s->victim[at] = s->victim[at - 1];
				count[at] = count[at - 1];
			}
			s->victim[at] = &s->slot[y->slot[e]];
			count[at] = c;
		}
	}
	return n;
}

/* A count fades, so that one that has grown is of an expert that was used since. */
static bool used_since(const struct slots *s, int i)
{
	const struct slot *x = s->victim[i];

	return policy_count(&s->policy, x->of->index, x->expert) > s->count[i];
}

/* The slot to evict next, which counts as taken; NULL: there is none. */
static struct slot *victim(struct slots *s)
{
	for (;;) {
		struct slot *x;
		int i;

		if (s->stats.visits - s->victims_of >= VICTIM_VISITS || s->next_victim == s->n_victim) {
			s->n_victim = find_free(s);
			if (!s->n_victim)
				s->n_victim = find_least(s);
			s->next_victim = 0;
			s->victims_of = s->stats.visits;
		}
		if (!s->n_victim)
			return NULL;
		i = s->next_victim++;
		x = s->victim[i];
		if (x < s->slot + s->n && (x->state == SLOT_FREE || (gives_way(x) && !used_since(s, i))))
			return x;
	}
}

static void clear(struct slot *x)
{
	if (x->state != SLOT_FREE)
		x->of->slot[x->expert] = -1;
	x->state = SLOT_FREE;
	x->pins = 0;
	x->ahead = x->guessed = false;
}

/* ---- reading ---- */

/* For packed slabs: where the slot's is, and its digest. */
static const struct slab_entry *entry_of(const struct slots *s, const struct slot *x)
{
	return &s->packed.entry[s->policy.base[x->of->index] + x->expert];
}

static void put_packed(struct slots *s, struct slot *x)
{
	const struct slab_entry *entry = entry_of(s, x);
	const struct read_ask ask = { .file = &s->packed.file,
		                      .at = entry->at,
		                      .to = x->at,
		                      .n = entry->bytes,
		                      .need = entry->bytes,
		                      .tag = (uint64_t)(x - s->slot) };

	x->parts = 1;
	s->stats.read_bytes += (int64_t)ask.n;
	reads_put(s->reads, &ask);
}

static void put_checkpoint(struct slots *s, struct slot *x)
{
	struct slab_extent e[SLAB_EXTENTS];
	int n = slab_lay_checkpoint(&x->lay, e, x->of->m, x->expert, s->of, s->n_file);

	x->parts = n;
	for (int i = 0; i < n; i++) {
		const struct read_ask ask = { .file = &s->file[e[i].file],
			                      .at = e[i].at,
			                      .to = x->at + e[i].to,
			                      .n = e[i].n,
			                      .need = e[i].need,
			                      .tag = (uint64_t)(x - s->slot) };

		s->stats.read_bytes += (int64_t)ask.n;
		reads_put(s->reads, &ask);
	}
}

static bool packs(const void *arg, const struct weight *w)
{
	const struct slots *s = arg;

	return s->arith == ARITH_FAST && cpu_kernels(s->c, w->fmt)->packed && packed_fit(w);
}

static void begin_read(struct slots *s, struct slot *x, struct slot_layer *y, int expert)
{
	clear(x);
	x->state = SLOT_READING;
	x->of = y;
	x->expert = expert;
	x->error = 0;
	y->slot[expert] = (int)(x - s->slot);
	s->stats.reads++;
	if (!s->packed.n) {
		put_checkpoint(s, x);
		return;
	}
	slab_lay_packed(&x->lay, y->m, expert, packs, s);
	put_packed(s, x);
}

/* Sends for an expert before it is known that it is used. */
static void begin_ahead(struct slots *s, struct slot *x, struct slot_layer *y, int expert, bool guessed)
{
	begin_read(s, x, y, expert);
	x->ahead = true;
	x->guessed = guessed;
	s->ahead[s->n_ahead++] = x;
	s->stats.ahead++;
}

static void forget_ahead(struct slots *s, const struct slot *x)
{
	int kept = 0;

	if (!x->ahead)
		return;
	for (int i = 0; i < s->n_ahead; i++)
		if (s->ahead[i] != x)
			s->ahead[kept++] = s->ahead[i];
	s->n_ahead = kept;
}

/* The error of a slab that was read; 0: none. */
static int fault_of(struct slots *s, const struct slot *x, const struct read_file **file)
{
	*file = s->packed.n ? &s->packed.file : &s->file[0];
	if (x->error)
		return x->error;
	for (int i = 0; i < s->n_file && !s->packed.n; i++)
		if (!read_file_same(*file = &s->file[i]))
			return ESTALE;
	return 0;
}

static void lose(struct slots *s, struct slot *x, int fault, const struct read_file *file)
{
	s->stats.failed++;
	err_set(&s->why, E_IO, "expert %d of mixture %d could not be read: %s: %s", x->expert, x->of->index, file->path,
	        stream_fault_text(fault));
	if (!s->told)
		log_error("%s", s->why.msg);
	s->told = true;
	for (int i = 0; i < s->n_want && x->of == s->visited; i++)
		if (s->want[i].state == WANT_COMES && s->want[i].slot == x - s->slot)
			s->want[i].state = WANT_LOST;
	clear(x);
	s->some_free = true;
}

/* One read has ended. */
static void ended(struct slots *s, const struct read_done *done)
{
	struct slot *x = &s->slot[done->tag];
	const struct read_file *file;
	int fault;

	if (done->error)
		x->error = done->error;
	if (--x->parts)
		return;
	fault = fault_of(s, x, &file);
	if (fault) {
		forget_ahead(s, x);
		lose(s, x, fault, file);
		return;
	}
	x->state = SLOT_READY;
	x->unchecked = s->packed.n;
	x->slow = s->spare && slab_wants_packing(x->of->m, x->expert, packs, s);
	slab_view(&x->view, x->at, &x->lay, x->of->m, x->expert);
}

static bool harvest(struct slots *s, bool wait)
{
	int64_t began = wait ? clock_monotonic_ns() : 0;
	struct read_done done;
	bool some = false;

	while (reads_next(s->reads, &done, wait && !some)) {
		ended(s, &done);
		some = true;
	}
	if (wait)
		s->stats.wait_ns += clock_monotonic_ns() - began;
	return some;
}

/* Sends for what the visit waits for while there are slots; true: for all of it. */
static bool send_for(struct slots *s)
{
	for (int i = 0; i < s->n_want; i++) {
		struct want *w = &s->want[i];
		struct slot *x;

		if (w->state != WANT_WAITS)
			continue;
		x = victim(s);
		if (!x)
			return false;
		begin_read(s, x, s->visited, w->expert);
		x->pins = 1;
		w->slot = (int)(x - s->slot);
		w->state = WANT_COMES;
	}
	return true;
}

/* All that the visit misses has been sent for, and this layer uses nearly all of its experts: the next one will as well.  What
 * is read for it comes behind what this one waits for, so that the disk has work while a long wave is computed. */
static void read_ahead(struct slots *s)
{
	struct slot_layer *next = &s->layer[(s->visited->index + 1) % s->n_layer];

	if (!s->wide || next == s->visited)
		return;
	for (int e = 0; e < next->m->experts && s->n_ahead < s->n / AHEAD_SHARE; e++) {
		struct slot *x = next->slot[e] < 0 ? victim(s) : NULL;

		if (next->slot[e] >= 0)
			continue;
		if (!x || (x->state != SLOT_FREE && x->of == next))
			return;
		begin_ahead(s, x, next, e, false);
	}
}

/* ---- guesses ---- */

/* More than half must come true: each that does not has read a slab for nothing, and taken another's slot. */
static void judge_guesses(struct slots *s)
{
	if (s->guesses < GUESSES)
		return;
	log_debug("experts guessed from the layer before: %d of %d were used", s->guesses_used, s->guesses);
	if (s->guesses_used * 2 < s->guesses)
		s->guess_from = s->stats.visits + GUESS_PAUSE;
	s->guesses = s->guesses_used = 0;
}

struct slot_layer *slots_guessing(const struct slot_layer *y)
{
	struct slots *s = y->s;

	judge_guesses(s);
	return s->wide || y->index + 1 == s->n_layer || s->stats.visits < s->guess_from ? NULL :
	                                                                                  &s->layer[y->index + 1];
}

const struct moe *slots_mixture(const struct slot_layer *y)
{
	return y->m;
}

const struct weight *slots_router(struct slot_layer *y)
{
	if (y->router_at)
		guess_router_make(&y->router, y->m->router, y->router_at);
	y->router_at = NULL;
	return y->router.w.rows ? &y->router.w : y->m->router;
}

/* Sends for what was guessed, once nothing is on its way that the visit waits for: reads share the disk's rate, so that each
 * guess under way would make the visit wait for longer. */
static void send_guesses(struct slots *s)
{
	struct slot_layer *next = s->guessed;

	for (int i = 0; i < s->n_want && s->n_guess; i++)
		if (s->want[i].state == WANT_WAITS ||
		    (s->want[i].state == WANT_COMES && s->slot[s->want[i].slot].state == SLOT_READING))
			return;
	for (int i = 0; i < s->n_guess && s->n_ahead < s->n / AHEAD_SHARE; i++) {
		struct slot *x = next->slot[s->guess[i]] < 0 ? victim(s) : NULL;

		if (!x || (x->state != SLOT_FREE && x->of == next))
			continue;
		begin_ahead(s, x, next, s->guess[i], true);
		s->guesses++;
	}
	s->n_guess = 0;
}

void slots_guess(struct slot_layer *next, const int *expert, int n)
{
	struct slots *s = next->s;

	s->guessed = next;
	s->n_guess = n;
	memcpy(s->guess, expert, (size_t)n * sizeof *expert);
	send_guesses(s);
}

/* ---- a visit ---- */

static void write_trace(struct slots *s, const struct slot_layer *y, const int *used, int n)
{
	if (!s->trace)
		return;
	fprintf(s->trace, "%d", y->index);
	for (int i = 0; i < n; i++)
		fprintf(s->trace, " %d", used[i]);
	fputc('\n', s->trace);
}

/* The layer's turn has come: what was read ahead for it and is not used may go. */
static void end_ahead(struct slots *s, const struct slot_layer *y)
{
	int kept = 0;

	for (int i = 0; i < s->n_ahead; i++) {
		struct slot *x = s->ahead[i];

		if (x->of != y) {
			s->ahead[kept++] = x;
			continue;
		}
		s->guesses_used += x->guessed && x->pins > 0;
		x->ahead = x->guessed = false;
		s->stats.ahead_used += x->pins > 0;
	}
	s->n_ahead = kept;
}

void slots_visit(struct slot_layer *y, const int *used, int n)
{
	struct slots *s = y->s;

	assert(!s->n_open);
	s->visited = y;
	s->n_want = s->n_open = n;
	s->n_guess = 0;
	s->wide = n >= y->m->experts - y->m->experts / WIDE_SHARE;
	s->told = false;
	s->stats.visits++;
	s->stats.used += n;
	policy_visit(&s->policy, y->index);
	for (int i = 0; i < n; i++) {
		int at = y->slot[used[i]];

		policy_use(&s->policy, y->index, used[i]);
		s->want[i] = (struct want){ used[i], at, at < 0 ? WANT_WAITS : WANT_COMES };
		if (at < 0)
			continue;
		s->stats.hits++;
		s->slot[at].pins = 1;
	}
	end_ahead(s, y);
	write_trace(s, y, used, n);
	send_for(s);
}

static void check_some(void *ctx, int begin, int end)
{
	struct slots *s = ctx;

	for (int i = begin; i < end; i++) {
		const struct slot *x = s->unchecked[i / SLAB_PIECES];

		s->piece[i] = slab_piece_check(x->at, entry_of(s, x)->bytes, i % SLAB_PIECES);
	}
}

/* Compares what the visit uses now with its digests, on all threads; what is not used never is. */
static void check_wanted(struct slots *s)
{
	int n = 0;

	for (int i = 0; i < s->n_want; i++) {
		struct slot *x = s->want[i].state == WANT_COMES ? &s->slot[s->want[i].slot] : NULL;

		if (x && x->state == SLOT_READY && x->unchecked)
			s->unchecked[n++] = x;
	}
	cpu_range(s->c, check_some, s, n * SLAB_PIECES, 1);
	for (int i = 0; i < n; i++) {
		struct slot *x = s->unchecked[i];

		x->unchecked = false;
		if (slab_check(s->piece + i * SLAB_PIECES) != entry_of(s, x)->check)
			lose(s, x, EBADMSG, &s->packed.file);
	}
}

/* Gives out the visit's experts that are ready now. */
static int slots_give(struct slots *s, int *index)
{
	int n = 0;

	check_wanted(s);
	for (int i = 0; i < s->n_want; i++) {
		struct want *w = &s->want[i];
		bool there = w->state == WANT_COMES && s->slot[w->slot].state == SLOT_READY;

		if (!there && !(w->state == WANT_LOST && w->slot >= 0))
			continue;
		if (there)
			w->state = WANT_GIVEN;
		else
			w->slot = -1;
		index[n++] = i;
		s->n_open--;
	}
	return n;
}

int slots_ready(struct slot_layer *y, int *index)
{
	struct slots *s = y->s;

	assert(s->visited == y);
	harvest(s, false);
	while (s->n_open) {
		int n;

		if (send_for(s))
			read_ahead(s);
		send_guesses(s);
		n = slots_give(s, index);
		if (n)
			return n;
		if (!harvest(s, true))
			assert(!"every slot is in use");
	}
	return 0;
}

struct packing {
	const struct slab_view *rows;
	const struct slab_lay *lay;
	uint8_t *to;
};

static void pack_some(void *ctx, int begin, int end)
{
	const struct packing *k = ctx;

	slab_pack(k->to, k->lay, k->rows, begin, end);
}

static void pack_slot(struct slots *s, struct slot *x)
{
	enum { GRAIN = 4 };
	const struct slab_view rows = x->view;
	struct slab_lay lay;
	struct packing k = { .rows = &rows, .lay = &lay, .to = s->spare };

	slab_lay_packed(&lay, x->of->m, x->expert, packs, s);
	cpu_range(s->c, pack_some, &k, slab_pieces(&rows), GRAIN);
	s->spare = x->at;
	x->at = k.to;
	x->lay = lay;
	x->slow = false;
	slab_view(&x->view, x->at, &x->lay, x->of->m, x->expert);
	s->stats.packs++;
}

void slots_pack(struct slot_layer *y, const int *index, int n)
{
	struct slots *s = y->s;

	for (int i = 0; i < n; i++) {
		const struct want *w = &s->want[index[i]];

		if (w->state == WANT_GIVEN && s->slot[w->slot].slow)
			pack_slot(s, &s->slot[w->slot]);
	}
}

void slots_release(struct slot_layer *y, const int *index, int n)
{
	struct slots *s = y->s;

	for (int i = 0; i < n; i++) {
		const struct want *w = &s->want[index[i]];

		if (w->state == WANT_GIVEN)
			s->slot[w->slot].pins = 0;
	}
	if (!s->n_open)
		read_ahead(s);
}

const struct slab_view *slots_view(const struct slot_layer *y, int index)
{
	const struct want *w = &y->s->want[index];

	return w->state == WANT_GIVEN ? &y->s->slot[w->slot].view : NULL;
}

const struct err *slots_error(const struct slot_layer *y)
{
	return &y->s->why;
}

/* ---- opening ---- */

static int most_experts(const struct slots *s)
{
	int most = 0;

	for (int i = 0; i < s->n_layer; i++)
		most = s->layer[i].m->experts > most ? s->layer[i].m->experts : most;
	return most;
}

/* The largest slab, whether all experts lie in files, and whether some are worth packing. */
static int measure(struct slots *s, const struct stream_opts *how, bool *some_slow, struct err *err)
{
	for (int i = 0; i < s->n_layer; i++)
		for (int e = 0; e < s->layer[i].m->experts; e++) {
			struct slab_extent x[SLAB_EXTENTS];
			struct slab_lay lay;

			if (how->dir)
				slab_lay_packed(&lay, s->layer[i].m, e, packs, s);
			else if (!slab_lay_checkpoint(&lay, x, s->layer[i].m, e, how->file, how->n_file))
				return err_set(
					err, E_UNSUPPORTED,
					"%s: made when the model is opened, so that it cannot be read when it is "
					"used; packed slabs can (--expert-dir)",
					s->layer[i].m->down[e].name);
			s->slot_bytes = lay.bytes > s->slot_bytes ? lay.bytes : s->slot_bytes;
			if (how->dir || !slab_wants_packing(s->layer[i].m, e, packs, s))
				continue;
			slab_lay_packed(&lay, s->layer[i].m, e, packs, s);
			s->slot_bytes = lay.bytes > s->slot_bytes ? lay.bytes : s->slot_bytes;
			*some_slow = true;
		}
	return 0;
}

/* Bytes of the routers that guesses ask; 0: none are made. */
static size_t router_bytes(const struct slots *s)
{
	size_t bytes = 0;

	for (int i = 1; i < s->n_layer && s->arith == ARITH_FAST; i++)
		bytes += guess_router_bytes(s->c, s->layer[i].m->router);
	return bytes;
}

static void place_routers(struct slots *s, uint8_t *at)
{
	for (int i = 1; i < s->n_layer; i++) {
		size_t n = guess_router_bytes(s->c, s->layer[i].m->router);

		s->layer[i].router_at = n ? at : NULL;
		at += n;
	}
}

/* spare: one slot of those that fit is kept for packing, unless they are the least.  Routers for guesses have a place where not
 * all experts have one, and those of a token do. */
static int open_arena(struct slots *s, size_t bytes, bool spare, struct err *err)
{
	size_t n = bytes / s->slot_bytes, least = 0, routers = n < (size_t)s->experts ? router_bytes(s) : 0;

	for (int i = 0; i < s->n_layer; i++)
		least = (size_t)s->layer[i].m->top_k > least ? (size_t)s->layer[i].m->top_k : least;
	if (n < least)
		return err_set(err, E_LIMIT,
		               "memory for experts: %zu bytes hold %zu of them, a token uses %zu of a layer: %zu bytes "
		               "are the least",
		               bytes, n, least, least * s->slot_bytes);
	if (bytes < (least + 1) * s->slot_bytes + routers)
		routers = 0;
	n = (bytes - routers) / s->slot_bytes;
	spare = spare && n > least;
	n -= spare;
	n = n < (size_t)s->experts ? n : (size_t)s->experts;
	s->arena_bytes = (n + spare) * s->slot_bytes + routers;
	s->arena = pages_room(s->arena_bytes + page_bytes(), true);
	if (!s->arena)
		return err_set(err, E_FULL, "memory for experts: the system does not give %zu bytes", s->arena_bytes);
	pages_huge(s->arena, s->arena_bytes);
	s->ready_end = s->arena_bytes;
	s->n = s->n_most = (int)n;
	s->some_free = true;
	s->n_least = (int)least;
	s->slot = xcalloc(n, sizeof *s->slot);
	s->ahead = xcalloc(n / AHEAD_SHARE + 1, sizeof *s->ahead);
	for (size_t i = 0; i < n; i++)
		s->slot[i].at = s->arena + i * s->slot_bytes;
	s->spare = spare ? s->arena + n * s->slot_bytes : NULL;
	if (routers)
		place_routers(s, s->arena + (n + spare) * s->slot_bytes);
	return 0;
}

static int open_files(struct slots *s, const struct stream_opts *how, struct err *err)
{
	int rc = stream_files_open(&s->file, how->file, how->n_file, err);

	s->n_file = rc ? 0 : how->n_file;
	return rc;
}

static int open_packed(struct slots *s, const struct stream_opts *how, struct moe *const *mix, int n, struct err *err)
{
	const struct slab_list list = { .mix = mix, .n_mix = n, .packs = packs, .packs_arg = s };

	return slab_file_open(&s->packed, how->dir, how->key, &list, how, err);
}

static void open_layers(struct slots *s, struct moe *const *mix, int n)
{
	int *experts = xcalloc((size_t)n, sizeof *experts);

	s->layer = xcalloc((size_t)n, sizeof *s->layer);
	s->n_layer = n;
	for (int i = 0; i < n; i++) {
		experts[i] = mix[i]->experts;
		s->experts += experts[i];
		s->layer[i] = (struct slot_layer){ .s = s, .m = mix[i], .index = i };
		s->layer[i].slot = xmalloc((size_t)experts[i] * sizeof(int));
		memset(s->layer[i].slot, 0xff, (size_t)experts[i] * sizeof(int));
	}
	policy_init(&s->policy, experts, n, POLICY_HALF);
	s->want = xcalloc((size_t)most_experts(s), sizeof *s->want);
	s->guess = xcalloc((size_t)most_experts(s), sizeof *s->guess);
	s->unchecked = xcalloc((size_t)most_experts(s), sizeof *s->unchecked);
	s->piece = xcalloc((size_t)most_experts(s), SLAB_PIECES * sizeof *s->piece);
	free(experts);
}

static int open_slots(struct slots *s, struct moe *const *mix, int n, const struct stream_opts *how, struct err *err)
{
	bool some_slow = false;
	int rc = measure(s, how, &some_slow, err);

	if (!rc)
		rc = open_arena(s, how->bytes, some_slow, err);
	if (!rc)
		rc = how->dir ? open_packed(s, how, mix, n, err) : open_files(s, how, err);
	if (!rc)
		rc = reads_open(&s->reads, how->way, how->depth ? how->depth : DEPTH, err);
	if (!rc && how->trace) {
		s->trace = fopen(how->trace, "we");
		if (!s->trace)
			rc = err_set(err, E_IO, "%s: %s", how->trace, strerror(errno));
	}
	return rc;
}

int cpu_stream(struct backend *be, struct moe *const *mix, int n, const struct stream_opts *how, struct err *err)
{
	struct cpu_backend *c = (struct cpu_backend *)be;
	struct slots *s = xcalloc(1, sizeof *s);
	int rc;

	assert(n > 0 && !c->slots);
	s->c = c;
	s->arith = how->arith;
	s->of = how->file;
	s->packed.file.fd = -1;
	pthread_mutex_init(&s->ready_lock, NULL);
	open_layers(s, mix, n);
	rc = open_slots(s, mix, n, how, err);
	if (rc) {
		slots_free(s);
		return rc;
	}
	for (int i = 0; i < n; i++)
		mix[i]->slots = &s->layer[i];
	c->slots = s;
	pack_without(c->pack, mix, n);
	return 0;
}

void slots_free(struct slots *s)
{
	if (!s)
		return;
	reads_close(s->reads);
	slab_file_close(&s->packed);
	stream_files_close(s->file, s->n_file);
	if (s->trace)
		fclose(s->trace);
	if (s->arena)
		pages_free(s->arena, s->arena_bytes + page_bytes());
	for (int i = 0; i < s->n_layer; i++)
		free(s->layer[i].slot);
	policy_fini(&s->policy);
	pthread_mutex_destroy(&s->ready_lock);
	free(s->layer);
	free(s->slot);
	free(s->ahead);
	free(s->want);
	free(s->guess);
	free(s->unchecked);
	free(s->piece);
	free(s);
}

size_t slots_make_ready(struct slots *s, bool (*more)(void *arg, size_t done), void *arg)
{
	enum { PIECE = 32 << 20 };
	bool go_on = s != NULL;
	size_t done = 0;

	while (go_on && more(arg, done)) {
		size_t n;

		pthread_mutex_lock(&s->ready_lock);
		n = s->ready_end - s->ready < PIECE ? s->ready_end - s->ready : PIECE;
		go_on = n && pages_ready(s->arena + s->ready, n);
		if (go_on) {
			s->ready += n;
			done += n;
		}
		pthread_mutex_unlock(&s->ready_lock);
	}
	return done;
}

size_t cpu_stream_shrink(struct backend *be, size_t bytes)
{
	struct slots *s = ((struct cpu_backend *)be)->slots;
	size_t n;

	if (!s)
		return 0;
	while (harvest(s, true)) /* nothing is on its way into what goes */
		;
	n = bytes / s->slot_bytes;
	n = n < (size_t)s->n_most ? n : (size_t)s->n_most;
	n = n > (size_t)s->n_least ? n : (size_t)s->n_least;
	pthread_mutex_lock(&s->ready_lock);
	s->ready_end = s->ready;
	pthread_mutex_unlock(&s->ready_lock);
	for (int i = (int)n; i < s->n; i++) {
		forget_ahead(s, &s->slot[i]);
		clear(&s->slot[i]);
		be->ops->discard(be, s->slot[i].at, s->slot_bytes);
	}
	s->n = (int)n;
	return n * s->slot_bytes;
}

void cpu_stream_stats(const struct backend *be, struct stream_stats *out)
{
	const struct slots *s = ((const struct cpu_backend *)be)->slots;

	*out = (struct stream_stats){ 0 };
	if (!s)
		return;
	*out = s->stats;
	out->slots = s->n;
	for (int i = 0; i < s->n; i++)
		out->slots_used += s->slot[i].state == SLOT_READY;
	out->experts = s->experts;
	out->slot_bytes = s->slot_bytes;
	out->way = reads_name(s->reads);
	out->packed = s->packed.n > 0;
}
