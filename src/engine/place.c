/* place.c - see place.h. */
#include "engine/place.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

const char *place_name(enum place kind)
{
	static const char *const name[PLACES] = { "system", "user", "header", "prompt", "end", "junction", "grid", "left" };

	return name[kind];
}

const char *prefix_reason_name(enum prefix_reason reason)
{
	static const char *const name[PREFIX_REASONS] = { "hit", "off", "bypass", "empty", "diverged", "no_state", "evicted",
	                                                  "no_memory" };

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

/* What is believed before anything was seen, as returns out of PRIOR places made. */
enum { PRIOR = 4 };
static const double prior[PLACES][PLACE_RANKS] = {
	[PLACE_SYSTEM] = { 0.5, 0.5, 0.5 }, [PLACE_USER] = { 0.3, 0.05, 0.02 }, [PLACE_HEADER] = { 0.3, 0.03, 0.01 },
	[PLACE_PROMPT] = { 0.2, 0.03, 0.01 }, [PLACE_END] = { 0.6, 0.05, 0.02 }, [PLACE_JUNCTION] = { 0.3, 0.1, 0.1 },
	[PLACE_GRID] = { 0.02, 0.01, 0.01 }, [PLACE_LEFT] = { 0.3, 0.03, 0.01 },
};
/* Requests after which a place not returned to is half forgotten. */
enum { HALF = 16 };

void place_odds_init(struct place_odds *o)
{
	for (int k = 0; k < PLACES; k++)
		for (int r = 0; r < PLACE_RANKS; r++) {
			o->made[k][r] = PRIOR;
			o->landed[k][r] = PRIOR * prior[k][r];
		}
}

void place_made(struct place_odds *o, enum place kind, int rank)
{
	o->made[kind][rank]++;
}

void place_landed(struct place_odds *o, enum place kind, int rank)
{
	o->landed[kind][rank]++;
}

double place_chance(const struct place_odds *o, enum place kind, int rank, int landed, uint64_t age, uint64_t life)
{
	double rate = o->landed[kind][rank] / o->made[kind][rank];

	return (rate + landed) / (1 + landed) * HALF / (HALF + (double)age);
}
