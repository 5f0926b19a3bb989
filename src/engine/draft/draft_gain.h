/* draft_gain.h - how many tokens are worth drafting.
 *
 * A step with drafts emits, per sequence, one token and as many drafts as come
 * true before the first that does not: with a share `a` of drafts coming true,
 * a + a^2 + ... .  It takes longer by what the rows and the drafter cost.  Rows are
 * given, the most promising first, while tokens per time rise: none where
 * it does not pay, which is also what a full batch comes to, since there each row
 * costs its share.
 *
 * The shares are measured per sequence and drafter, beginning at what the drafter
 * has reached with others; the time of a step by its number of rows.  A sequence
 * that is not drafted for is tried again after some steps, later each time.
 *
 * A drafter may have tokens to compute before its first guess, most of all the
 * prompt.  That is done when what it saves in the rest of the answer pays for it:
 * the time saved per token, times the tokens that are still expected, which is
 * learned from how long answers were.
 *
 * Expecting is not knowing: each drafter has an account of what it may lose, and what
 * it cannot pay for is not done.  Pure structs: no engine, no clock. */
#ifndef ENGINE_DRAFT_GAIN_H
#define ENGINE_DRAFT_GAIN_H

#include <stdint.h>

/* Fading counts of drafts that were reached, and that were right. */
struct draft_odds {
	double right, tried;
};
void draft_odds_learn(struct draft_odds *o, int right, int wrong, double fade);

/* One sequence and drafter. */
struct draft_try {
	struct draft_odds odds;
	struct draft_odds said; /* rounds in which it was asked, and said anything */
	int idle, wait;         /* steps since it was drafted for; steps after which it is tried */
	int follow;             /* its prompt: 1: it pays to follow it, -1: it does not, 0: not asked yet */
};

/* A time that is measured again and again. */
struct draft_time {
	double ns;    /* 0: not known */
	int64_t seen; /* step at which it last was */
	int n;
};
void draft_time_learn(struct draft_time *t, int64_t now, double ns);
/* 0: not known, or measured long ago, or so few times that it is worth another. */
double draft_time_of(const struct draft_time *t, int64_t now);

enum { DRAFT_ROWS_MAX = 64 }; /* of steps whose time is told apart */
struct draft_cost {
	struct draft_time step[DRAFT_ROWS_MAX + 1];
	int64_t now; /* steps */
};
/* Learns that a step of `rows` rows, none of them of a prompt, took ns. */
void draft_cost_learn(struct draft_cost *c, int rows, double ns);
/* Expected ns of a step of `rows` rows; 0: not known yet. */
double draft_cost_of(const struct draft_cost *c, int rows);

/* How long answers were, fading, by powers of two. */
enum { DRAFT_LENGTHS = 32 };
struct draft_lengths {
	double answers[DRAFT_LENGTHS], tokens[DRAFT_LENGTHS];
};
void draft_length_learn(struct draft_lengths *l, int tokens);
/* Expected number of further tokens of an answer that has `tokens` and may get `most` more. */
double draft_more(const struct draft_lengths *l, int tokens, int most);

/* The loss budget of each drafter.  It earns its part of DRAFT_LOSS of all work, as long
 * as that would take without drafts, and the time that its own drafts save.  From that, and
 * from one step's time at the very start, it pays all its costs: its rows in the model's
 * steps, its own time, and its catching up with a sequence.
 *
 * Since nothing begins that the account does not cover, a drafter that has begun n times
 * has lost at most its earnings and, once, the excess of the dearest begin over its expected
 * cost.  Savings are kept up to DRAFT_LOSS of the time of some ten answers, or some steps:
 * that is what a new kind of text can cost at first. */
#define DRAFT_LOSS 0.02
enum { DRAFT_ACCOUNTS = 8 };
struct draft_accounts {
	int n;                      /* drafters */
	double done;                /* fading with each answer: what was done, in ns without drafts */
	double step_ns;             /* what a step takes without drafts */
	double may[DRAFT_ACCOUNTS]; /* [n] ns that may be lost; < 0: more than that is */
};
/* Accounts ns of useful work: what the step took, or would have taken without drafts. */
void draft_account_work(struct draft_accounts *a, double ns);
void draft_account_spend(struct draft_accounts *a, int k, double ns);
void draft_account_save(struct draft_accounts *a, int k, double ns);
/* An answer has ended. */
void draft_account_end(struct draft_accounts *a);

/* One step: its rows, and for each drafter k the drafts[k] that it gave and the right[k] tokens that were accepted. */
struct draft_round {
	double ns;
	double plain_ns; /* without those drafts */
	double step_ns;  /* without those and without rows of prompts */
	int tokens;      /* that it gives then */
	int drafted[DRAFT_ACCOUNTS], right[DRAFT_ACCOUNTS];
};
void draft_account_round(struct draft_accounts *a, const struct draft_round *r);

/* One sequence that could be drafted for. */
struct draft_bid {
	double share;    /* of drafts that come true */
	double first_ns; /* before its first guess, what came before it must be computed */
	int max;         /* most tokens */
	int n;           /* out */
};
struct draft_deal {
	const struct draft_cost *cost;
	int rows;               /* of the step so far */
	double tokens;          /* that it will emit */
	double ns;              /* spent on drafting already */
	double token_ns;        /* what the drafter takes for one */
	double seq_ns;          /* and for each sequence, however many its drafts are */
	double row_ns, step_ns; /* with prompts in the step: its time, and what a row more adds; 0: cost tells */
	int rows_max;
	double may_ns; /* drafts that make it longer by more than this are not made */
};
/* Fills bid[i].n.  Returns the tokens per nanosecond that are expected then; 0: not
 * known, and nothing is given. */
double draft_deal(const struct draft_deal *d, struct draft_bid *bid, int n_bid);
/* Nanoseconds by which `drafts` drafts of one sequence lengthen the step; 0: not known. */
double draft_longer(const struct draft_deal *d, int drafts);
/* Nanoseconds that a step of d saves at this rate, against one without drafts. */
double draft_saves(const struct draft_deal *d, double rate);

#endif
