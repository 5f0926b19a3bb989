/* pace.h - how many prompt tokens a step may compute.
 *
 * While answers run, a step takes at most the gap asked for between their
 * tokens; while none does, twice that, so that the next request joins soon. Upper
 * bound: 6 decode steps (10 while no answer runs, 2.5 while images are pending, of steps without a tower).
 * A state that is copied to be kept counts with the step after which that is done.
 * What a step costs is measured:
 *
 *     step = base + rows * (row + ahead * mean position of the rows)
 *
 * base is what steps without prompt tokens took lately; row and ahead (what
 * attention adds for each token that a row looks back on) are fitted to the
 * steps with them, late ones counting most.  A pure struct: no engine, no clock. */
#ifndef ENGINE_PACE_H
#define ENGINE_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct pace {
	double gap_ns;
	double base_ns;          /* 0: not yet known */
	double quiet_ns;         /* base without what towers before steps add to it; 0: not yet known */
	double row_ns, ahead_ns; /* per row; per row and token before it; row_ns 0: not yet known */
	double keep_ns;          /* a state's copy; 0: not yet known */
	int idle;                /* rows of a step that delays no answer, at least */
	int most;        /* rows of the largest recent chunk: while answers run the next has at most twice that */
	bool pictures;   /* are pending while answers run */
	double taken_ns; /* since the last tokens */
	/* Fading sums of the fit: of n*n, n*m, m*m, n*y, m*y, where m is rows times position. */
	double nn, nm, mm, ny, my;
};

/* With a mixture of experts a step reads experts rather than answers' weights: of
 * `experts`, each row choosing `used`; 0: none.  Steps that delay no answer are then
 * long enough that each expert has a tile of rows. */
void pace_init(struct pace *p, int gap_ms, int experts, int used);
/* A step of n prompt rows at mean position pos and n_decode other rows took ns. */
void pace_learn(struct pace *p, int n_decode, int n, double pos, double ns);
/* Tells the next step's plan whether a running prompt's pictures are still to be computed, and the time that was taken since
 * the last tokens went out: by a tower, by copies of states and by their memory. */
void pace_beside(struct pace *p, bool pictures, double taken_ns);
/* Returns the nanoseconds that a tower may take before a step of answers that computes no prompts, nearly as many as
 * prompts could take in it; 0: not yet known. */
double pace_tower_ns(const struct pace *p);
/* To keep a state took ns. */
void pace_kept(struct pace *p, double ns);
/* The part of a step's time for prompts that keeping n states takes: 0 where no answer is
 * delayed by it, at most 0.9. */
double pace_keeping(const struct pace *p, bool decoding, int n);
/* Rows that a step may spend on prompts standing at pos, at least 1. */
int pace_rows(const struct pace *p, bool decoding, int pos);
/* Prompt tokens per second under these limits; 0: not yet known. */
double pace_rate(const struct pace *p, bool decoding);

#endif
