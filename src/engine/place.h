/* place.h - where along a prompt states are kept, and what one is worth there.
 *
 * Policy only: numbers in, numbers out; it touches no cache and no tree.
 * docs/prefix-store.md has the reasons. */
#ifndef ENGINE_PLACE_H
#define ENGINE_PLACE_H

#include "engine/report.h"

/* A state closer than this to the one before it is not worth its memory: so many
 * tokens more in a step that computes the tail anyway cost next to nothing. */
enum { PLACE_APART = 8 };

struct place_at {
	int pos;
	enum place kind;
};

/* Where one prompt's states are kept: rising, apart from each other. */
struct place_plan {
	struct place_at *at;
	int n;
};

/* From the prompt's length and its marks (rising; kind NULL: unknown), of which
 * those outside (0, n_prompt) are ignored.  The end of the prompt and a grid that
 * is denser toward the tail are added.  Owned: place_plan_fini. */
void place_plan_init(struct place_plan *p, int n_prompt, const int *mark, const unsigned char *kind, int n_mark);
void place_plan_fini(struct place_plan *p);
/* The first place after pos; NULL: none. */
const struct place_at *place_after(const struct place_plan *p, int pos);

/* How often places of each kind are returned to, learned while serving.  rank:
 * how many later prompts have gone on past the place, counted up to RANKS - 1. */
enum { PLACE_RANKS = 3 };
struct place_odds {
	double made[PLACES][PLACE_RANKS], landed[PLACES][PLACE_RANKS];
};

void place_odds_init(struct place_odds *o);
void place_made(struct place_odds *o, enum place kind, int rank);
void place_landed(struct place_odds *o, enum place kind, int rank);
/* Expected returns to a place that was last touched `age` requests ago and was
 * returned to `landed` times in `life` requests since it was made.  Relative. */
double place_chance(const struct place_odds *o, enum place kind, int rank, int landed, uint64_t age, uint64_t life);

#endif
