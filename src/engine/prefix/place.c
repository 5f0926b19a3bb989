/* place.c - see place.h. */
#include "engine/prefix/place.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

int prefix_spared(const struct prefix_report *r)
{
	return r->replayed / PLACE_NEAR * PLACE_NEAR;
}

const char *place_name(enum place kind)
{
	static const char *const name[PLACES] = { "system", "user",     "header", "prompt",
		                                  "end",    "junction", "grid",   "left" };

	return name[kind];
}

const char *prefix_reason_name(enum prefix_reason reason)
{
	static const char *const name[PREFIX_REASONS] = { "hit",      "off",      "bypass",  "empty",
		                                          "diverged", "no_state", "evicted", "no_memory" };

	return name[reason];
}

const char *prefix_source_name(enum prefix_source source)
{
	static const char *const name[] = { "none", "running", "memory", "disk" };

	return name[source];
}

/* ---- where ---- */

static void plan_add(struct place_plan *p, int pos, enum place kind)
{
	int i = p->n++;

	for (; i > 0 && p->at[i - 1].pos > pos; i--)
		p->at[i] = p->at[i - 1];
	p->at[i] = (struct place_at){ pos, kind };
}

/* Is a place within d positions of pos? */
static bool near(const struct place_plan *p, int pos, int d)
{
	for (int i = 0; i < p->n; i++)
		if (abs(p->at[i].pos - pos) < d)
			return true;
	return false;
}

void place_plan_init(struct place_plan *p, int n_prompt, const int *mark, const unsigned char *kind, int n_mark,
                     int block)
{
	int last = n_prompt - 1, at;

	p->n = 0;
	p->n_prompt = n_prompt;
	p->at = xmalloc(size_mul((size_t)n_mark + 1, sizeof(*p->at)));
	block = block > 1 ? block : 1;
	last -= last > 0 ? last % block : 0;
	for (int i = 0; i < n_mark; i++) {
		at = mark[i] > 0 && mark[i] < n_prompt ? mark[i] / block * block : 0;
		if (at > 0 && !near(p, at, 1))
			plan_add(p, at, kind ? (enum place)kind[i] : PLACE_USER);
	}
	/* For the same prompt asked again: all but its last token, unless a mark is near enough. */
	if (last > 0 && !near(p, last, PLACE_APART))
		plan_add(p, last, PLACE_PROMPT);
}

void place_plan_fini(struct place_plan *p)
{
	free(p->at);
}

/* The nearest fixed place after pos that is not too near the last one kept; NULL: none. */
static const struct place_at *fixed_after(const struct place_plan *p, int pos, int kept)
{
	for (int i = 0; i < p->n; i++)
		if (p->at[i].pos > pos && p->at[i].pos - kept >= PLACE_APART)
			return &p->at[i];
	return NULL;
}

/* ---- the grid ---- */

/* So a prompt that parts from it at a distance d from the end replays less than the next power of two. */
int place_coarse(int pos, int n)
{
	int64_t best = n;

	for (int64_t step = PLACE_COARSE; step < n; step *= 2) {
		int64_t from = n - 2 * step > pos + 1 ? n - 2 * step : pos + 1, at = (from + step - 1) / step * step;

		best = at < best ? at : best;
	}
	return (int)best;
}

bool place_after(const struct place_plan *p, int pos, struct place_at *out)
{
	int at = place_coarse(pos, p->n_prompt);

	/* None near a fixed one. */
	while (at < p->n_prompt && near(p, at, PLACE_COARSE / 2))
		at = place_coarse(at, p->n_prompt);
	*out = (struct place_at){ at, PLACE_GRID };
	for (int i = p->n - 1; i >= 0; i--)
		if (p->at[i].pos > pos && p->at[i].pos <= out->pos)
			*out = p->at[i];
	return out->pos < p->n_prompt;
}

/* Doublings after which nothing is denser than a prompt is long. */
enum { STEP_MOST = 1 << 20 };

/* Short prompts' places near their end are paid for as if they were this long: a
 * millisecond or two, which the next prompt saves many times over. */
enum { TAIL_SHARE = 512 };

/* A prompt has near checkpoints only if the budget has room for NEAR_ROOM times their number.  With room for twice their
 * number, 64 tokens apart, they would still evict checkpoints that save thousands of tokens; then there are none, in
 * answers neither. */
enum { NEAR_ROOM = 8 };

/* With room for fewer checkpoints than this, a prompt has the coarse grid of models whose states are expensive. */
enum { GRID_ROOM = 2 };

/* Checkpoints of a prompt of n tokens whose first level has `first` of them; at least 1. */
static double places_of(double first, int step, int n)
{
	double all = 0, far = 0, level = step * first;

	while (far + level < n) {
		all += first;
		far += level;
		level *= 2;
	}
	return all + (n - far) / level * first;
}

struct place_pitch place_pitch(const struct place_cost *c, int n)
{
	struct place_pitch g = { .step = PLACE_STEP, .near = PLACE_NEAR, .dense = INT_MAX, .answers = true };
	double copy = c->row_ns > 0 ? c->copy_ns / c->row_ns / c->share : 0; /* tokens that pay for one */

	if (c->anywhere)
		return (struct place_pitch){ .step = PLACE_NEVER, .near = PLACE_NEVER, .dense = PLACE_NEVER };
	while (copy > g.step && g.step < STEP_MOST)
		g.step *= 2;
	while (g.near < g.step && copy * PLACE_TAIL / g.near > TAIL_SHARE * (1 - copy / g.step))
		g.near *= 2;
	if (c->states > 0) {
		double room = (c->states - c->token * n) / 2, first = n / g.step + 1;

		if (room < GRID_ROOM) {
			int step = g.step > PLACE_COARSE ? g.step : PLACE_COARSE;

			return (struct place_pitch){ .step = step, .near = step, .dense = 2 * step, .block = c->block };
		}
		while (g.near < g.step && room < NEAR_ROOM * PLACE_TAIL / g.near)
			g.near *= 2;
		if (room < 2 * NEAR_ROOM) {
			g.near = PLACE_COARSE;
			g.answers = false;
		}
		while (first > 1 && places_of(first, g.step, n) > room)
			first *= 0.75;
		g.dense = (int)fmin(INT_MAX, first * g.step);
	}
	g.dense = g.dense > PLACE_TAIL ? g.dense : PLACE_TAIL;
	g.block = c->block;
	return g;
}

/* How far after `kept` the next place may be, when the prompt ends at n. */
static int gap_at(const struct place_pitch *g, int kept, int n)
{
	int64_t dense = g->dense, far = n - kept, step = g->step;
	int gap;

	if (far <= PLACE_TAIL + g->near)
		return g->near;
	while (far > dense && step < n) {
		dense = 2 * dense + g->dense;
		step *= 2;
	}
	gap = step < n ? (int)step : n;
	return gap < far - PLACE_TAIL ? gap : (int)far - PLACE_TAIL;
}

/* place_next where all places are multiples of a block, as the fixed ones are. */
static int next_block(const struct place_pitch *g, const struct place_at *fixed, int next, int pos, int end,
                      enum place *kind)
{
	next -= next % g->block;
	next = next > pos ? next : (pos / g->block + 1) * g->block;
	*kind = next < end || !fixed ? PLACE_GRID : fixed->kind;
	return next < end ? next : end;
}

int place_next(const struct place_plan *p, const struct place_pitch *g, int pos, int kept, enum place *kind)
{
	int gap = gap_at(g, kept, p->n_prompt);
	const struct place_at *fixed = fixed_after(p, pos, kept);
	int end = fixed ? fixed->pos : p->n_prompt, next = kept + gap, round = gap / 2;

	if (g->block > 1)
		return next_block(g, fixed, next, pos, end, kind);
	if (gap < end - kept) {
		/* Multiples of half a step are those of other prompts too.  Two gaps that
		 * one place cuts are made even. */
		if (end - kept <= 2 * gap)
			next = kept + (end - kept + 1) / 2;
		else if (round > 1 && next / round * round > kept)
			next = next / round * round;
		next = next > pos ? next : pos + 1;
		if (next < end) {
			*kind = PLACE_GRID;
			return next;
		}
	}
	if (fixed) {
		*kind = fixed->kind;
		return end;
	}
	/* Where places cost little the same prompt again replays nothing, the first time too. */
	*kind = PLACE_GRID;
	return g->near == PLACE_NEAR && pos < end - 1 && kept < end - 1 ? end - 1 : end;
}

/* ---- what it is worth ---- */

/* Prior odds, as landings out of PRIOR prompts: at fresh checkpoints, and at those that a prompt
 * landed at, passed by, or both. */
enum { PRIOR = 4 };
static const double prior[PLACES][4] = {
	[PLACE_SYSTEM] = { 0.5, 1, 0.5, 1 },        [PLACE_USER] = { 0.3, 0.3, 0.05, 0.1 },
	[PLACE_HEADER] = { 0.3, 0.3, 0.03, 0.05 },  [PLACE_PROMPT] = { 0.2, 0.2, 0.03, 0.05 },
	[PLACE_END] = { 0.6, 0.3, 0.05, 0.05 },     [PLACE_JUNCTION] = { 0.3, 0.3, 0.1, 0.3 },
	[PLACE_GRID] = { 0.002, 0.1, 0.001, 0.05 }, [PLACE_LEFT] = { 0.3, 0.2, 0.03, 0.03 },
};
/* Factors of the prior by what happened since: nothing, few parted, many parted; and whether it was left. */
static const double prior_since[PARTEDS][2] = { { 1, 0.7 }, { 0.05, 0.05 }, { 0.6, 0.2 } };
/* Weight of the general odds among those under one system prompt, in landings. */
static const double KIN_PRIOR = 2;
/* Before anything was seen, the chance falls as 1 / (1 + age); this much promise
 * is taken to have been seen at each age. */
enum { AGE_PRIOR = 4 };

int place_rank(int landed, int passed, enum place_parted parted, bool left)
{
	landed = landed < PLACE_OFTEN ? landed : PLACE_OFTEN;
	passed = passed < PLACE_OFTEN ? passed : PLACE_OFTEN;
	return ((parted * 2 + left) * (PLACE_OFTEN + 1) + landed) * (PLACE_OFTEN + 1) + passed;
}

static void ranks_init(struct place_odds *o, enum place kind, enum place_parted parted, bool left)
{
	for (int l = 0; l <= PLACE_OFTEN; l++)
		for (int p = 0; p <= PLACE_OFTEN; p++) {
			int r = place_rank(l, p, parted, left);

			o->waited[kind][r] = PRIOR;
			o->landed[kind][r] = PRIOR * prior[kind][2 * (p > 0) + (l > 0)] * prior_since[parted][left];
		}
}

void place_odds_init(struct place_odds *o)
{
	for (int k = 0; k < PLACES; k++)
		for (int i = 0; i < PARTEDS * 2; i++)
			ranks_init(o, (enum place)k, (enum place_parted)(i / 2), i % 2);
	for (int i = 0; i < PLACE_AGES; i++) {
		o->promised[i] = AGE_PRIOR;
		o->came[i] = (double)AGE_PRIOR / (1 << i);
	}
}

static int age_of(uint64_t age)
{
	int i = 0;

	while (i < PLACE_AGES - 1 && age + 1 >= (uint64_t)2 << i)
		i++;
	return i;
}

static double of_kind(const struct place_odds *o, enum place kind, int rank)
{
	return o->landed[kind][rank] / o->waited[kind][rank];
}

static double of_age(const struct place_odds *o, int age)
{
	return o->came[age] / o->promised[age];
}

static double of_kin(const struct place_kin *kin, enum place kind)
{
	return (kin->landed[kind] + KIN_PRIOR) / (kin->promised[kind] + KIN_PRIOR);
}

void place_waited(struct place_odds *o, struct place_kin *kin, enum place kind, int rank, uint64_t age)
{
	int i = age_of(age);
	double k = of_kind(o, kind, rank), a = of_age(o, i); /* both from before this prompt */

	kin->promised[kind] += k * a;
	o->promised[i] += k;
	o->waited[kind][rank] += a;
}

void place_landed(struct place_odds *o, struct place_kin *kin, enum place kind, int rank, uint64_t age)
{
	kin->landed[kind]++;
	o->landed[kind][rank]++;
	o->came[age_of(age)]++;
}

double place_chance(const struct place_odds *o, const struct place_kin *kin, enum place kind, int rank, uint64_t age)
{
	return of_kind(o, kind, rank) * of_age(o, age_of(age)) * of_kin(kin, kind);
}
