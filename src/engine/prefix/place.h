/* place.h - where along a prompt states are kept, and what one is worth there.
 *
 * Policy only: numbers in, numbers out; it touches no cache and no tree.
 * docs/prefix-store.md has the reasons. */
#ifndef ENGINE_PLACE_H
#define ENGINE_PLACE_H

#include "engine/prefix/report.h"

/* A state that no request has resumed from yet is not kept closer than this to the state before it: computing
 * this many tokens again, in a step that computes the tail anyway, costs next to nothing, while a step of their
 * own costs as much as one that decodes. */
enum { PLACE_APART = 8 };

struct place_at {
	int pos;
	enum place kind;
};

/* Where one prompt's states are kept whatever lies between: rising, apart from each other. */
struct place_plan {
	struct place_at *at;
	int n, n_prompt;
};

/* From the prompt's length and its marks (rising; kind NULL: unknown), of which
 * those outside (0, n_prompt) are ignored.  The end of the prompt is added.
 * block > 1: each place is the multiple of it at or before.
 * Owned: place_plan_fini. */
void place_plan_init(struct place_plan *p, int n_prompt, const int *mark, const unsigned char *kind, int n_mark,
                     int block);
void place_plan_fini(struct place_plan *p);

/* The first place after pos where states are expensive (drafters, disk): a fixed one, or
 * one of a grid of multiples of PLACE_COARSE * 2^j within twice that of the prompt's end.
 * False: none. */
enum { PLACE_COARSE = 512 };
int place_coarse(int pos, int n); /* the next of the grid after pos for a prompt of n tokens; n: none */
bool place_after(const struct place_plan *p, int pos, struct place_at *out);

/* The grid: how many tokens apart places are, so that a prompt that parts from another
 * between two marks replays no more.  Within PLACE_TAIL of the end they are `near` apart.
 * Before that they are `step` apart up to `dense` from the end, twice that for twice
 * as much, and so on: there are dense / step places for each doubling of the length. */
enum { PLACE_STEP = 64, PLACE_NEAR = 16, PLACE_TAIL = 64, PLACE_NEVER = 1 << 28 };
struct place_pitch {
	int step, near, dense;
	bool answers; /* places in answers, too */
	int block;    /* all are multiples of it; 0 or 1: they need not be */
};

/* Costs of keeping a state, to weigh against what it may save. */
struct place_cost {
	double copy_ns, row_ns; /* a state's copy; a prompt token's computing; 0: not known yet */
	double share;           /* most of a prompt's time that copies may take */
	double states, token; /* that the budget holds; a token's keys and values, as part of one.  0: not known yet */
	bool anywhere;        /* one state serves for all positions before it: no grid */
	int block;            /* the pitch's */
};
/* The spacing for a prompt of n tokens: PLACE_STEP and PLACE_NEAR, doubled as often as the costs demand; checkpoints that
 * half of the budget does not hold are left out far from the end. */
struct place_pitch place_pitch(const struct place_cost *c, int n);

/* The first position after pos at which a state is to be kept, given that the last one
 * before it is at `kept` <= pos (0: none); the prompt's length: none. */
int place_next(const struct place_plan *p, const struct place_pitch *g, int pos, int kept, enum place *kind);

/* How often places are returned to, learned while serving: the chance that the next
 * prompt lands at a place is taken to be a factor of its kind and rank, times one of
 * its age, times one of the system prompt that it is under.
 *
 * Rank: what has become of it.  A prompt may have ended its common way there (landed)
 * or gone on past it (passed), never, once or more often.  Since it or anything below
 * was last in use, another may have parted from its way further up: where few do, and
 * then this branch was asked again or edited and is left behind, or where many do, and
 * that was another conversation.  And the request right after its last use may have
 * begun afresh (left): the client has perhaps gone on there.
 * Age: requests since it or anything below was in use, by powers of two. */
enum { PLACE_OFTEN = 2, PLACE_MANY = 3 }; /* PLACE_MANY: landings that make a place one where many part */
enum place_parted { PARTED_NOT, PARTED_FEW, PARTED_MANY, PARTEDS };
enum { PLACE_RANKS = (PLACE_OFTEN + 1) * (PLACE_OFTEN + 1) * PARTEDS * 2, PLACE_AGES = 16 };
int place_rank(int landed, int passed, enum place_parted parted, bool left);

struct place_odds {
	/* Landings, and how many one would expect if the other factor were all. */
	double landed[PLACES][PLACE_RANKS], waited[PLACES][PLACE_RANKS];
	double came[PLACE_AGES], promised[PLACE_AGES];
};
/* Statistics of reuse among the checkpoints under one system prompt: requests for titles are never continued, an
 * agent's rounds nearly always.  Begins as zeros. */
struct place_kin {
	double landed[PLACES], promised[PLACES];
};

void place_odds_init(struct place_odds *o);
/* A prompt came that might have landed at this place; it did. */
void place_waited(struct place_odds *o, struct place_kin *kin, enum place kind, int rank, uint64_t age);
void place_landed(struct place_odds *o, struct place_kin *kin, enum place kind, int rank, uint64_t age);
double place_chance(const struct place_odds *o, const struct place_kin *kin, enum place kind, int rank, uint64_t age);

#endif
