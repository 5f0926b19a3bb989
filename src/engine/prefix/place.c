/* place.c - see place.h. */
#include "engine/prefix/place.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

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

/* The grid's finest step, and how near a place it is superfluous. */
enum { GRID = 512, GRID_APART = GRID / 2, GRID_LEVELS = 16 };

static void add(struct place_plan *p, int pos, enum place kind)
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

/* Multiples of GRID * 2^j within twice that of the tail: a prompt that parts from
 * this one at distance d from its end replays less than the next power of two,
 * and a longer prompt's grid keeps most of a shorter one's. */
static void add_grid(struct place_plan *p, int n_prompt)
{
	for (int j = 0; j < GRID_LEVELS && GRID << j < n_prompt; j++) {
		int step = GRID << j;

		for (int pos = (n_prompt - 1) / step * step; pos > 0 && n_prompt - pos <= 2 * step; pos -= step)
			if (!near(p, pos, GRID_APART))
				add(p, pos, PLACE_GRID);
	}
}

void place_plan_init(struct place_plan *p, int n_prompt, const int *mark, const unsigned char *kind, int n_mark)
{
	int last = n_prompt - 1;

	p->n = 0;
	p->at = xmalloc(size_mul((size_t)n_mark + 1 + 2 * GRID_LEVELS, sizeof(*p->at)));
	for (int i = 0; i < n_mark; i++)
		if (mark[i] > 0 && mark[i] < n_prompt && !near(p, mark[i], 1))
			add(p, mark[i], kind ? (enum place)kind[i] : PLACE_USER);
	/* The same prompt again: all but its last token.  Unless a mark is as good. */
	if (last > 0 && !near(p, last, PLACE_APART))
		add(p, last, PLACE_PROMPT);
	add_grid(p, n_prompt);
}

void place_plan_fini(struct place_plan *p)
{
	free(p->at);
}

const struct place_at *place_after(const struct place_plan *p, int pos)
{
	for (int i = 0; i < p->n; i++)
		if (p->at[i].pos > pos)
			return &p->at[i];
	return NULL;
}

/* ---- what it is worth ---- */

/* What is believed before anything was seen, as landings out of PRIOR prompts: at
 * fresh places, and at those that a prompt landed at, passed by, or both. */
enum { PRIOR = 4 };
static const double prior[PLACES][4] = {
	[PLACE_SYSTEM] = { 0.5, 1, 0.5, 1 },       [PLACE_USER] = { 0.3, 0.3, 0.05, 0.1 },
	[PLACE_HEADER] = { 0.3, 0.3, 0.03, 0.05 }, [PLACE_PROMPT] = { 0.2, 0.2, 0.03, 0.05 },
	[PLACE_END] = { 0.6, 0.3, 0.05, 0.05 },    [PLACE_JUNCTION] = { 0.3, 0.3, 0.1, 0.3 },
	[PLACE_GRID] = { 0.02, 0.1, 0.01, 0.05 },  [PLACE_LEFT] = { 0.3, 0.2, 0.03, 0.03 },
};
/* Of that, by what came since: nothing, few parted, many parted; and if it was left. */
static const double prior_since[PARTEDS][2] = { { 1, 0.7 }, { 0.05, 0.05 }, { 0.6, 0.2 } };
/* So many landings under a system prompt are believed to have been as everywhere. */
static const double KIN_PRIOR = 2;
/* Before anything was seen, the chance falls as 1 / (1 + age); so much promise is
 * taken to have been seen at each age. */
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
