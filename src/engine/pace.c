/* pace.c - see pace.h. */
#include "engine/pace.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* Without a measurement: few rows while answers run; else enough that the
 * weights are not read for a handful.  The latter is also the least that a step
 * without answers does: below it prompts would cost markedly more. */
enum { ROWS_FIRST = 8, ROWS_IDLE = 64, ROWS_EXPERT = 16 };

/* Part of the gap that is planned with; the rest is for what the model of the
 * cost does not know. */
static const double PLANNED = 0.85;
/* Where one decode step is longer than the gap, prompts still get on: they may
 * make it this much longer. */
static const double STRETCH = 1.25;
/* A step is at most WORTH times as long as its fixed cost, which is then a tenth of it: longer steps would
 * save little and keep new requests waiting; while answers run, whose next tokens wait too, WORTH_BESIDE times;
 * while pictures are on their way WORTH_PICTURES times what it was without them, the tower's part included: an answer's gap
 * then grows by one and a half of its steps as planned. */
static const double WORTH = 10, WORTH_BESIDE = 6, WORTH_PICTURES = 2.5;
static const double AT_MOST = 2;     /* times what such steps took, one step more counts as */
static const double KEEP_MOST = 0.9; /* of a step's time for prompts: some rows remain */
static const double FADE = 0.9;      /* of the sums, per step: some ten steps count */
/* Shares of a slower step in quiet_ns: without a tower before it, and with one, which makes it slower by itself.  That is a
 * second or two, longer than images are decoded during steps, and some ten seconds: more than a moment in which the machine is
 * slow, less than what stays so. */
static const double QUIET = 1. / 64, QUIET_BESIDE = 1. / 256;

void pace_init(struct pace *p, int gap_ms, int experts, int used)
{
	memset(p, 0, sizeof(*p));
	p->gap_ns = gap_ms * 1e6;
	p->idle = experts > 0 && used > 0 && experts / used * ROWS_EXPERT > ROWS_IDLE ? experts / used * ROWS_EXPERT :
	                                                                                ROWS_IDLE;
}

/* Least squares, held near what was known before where the steps say little: with
 * all prompts at one position, row and ahead cannot be told apart. */
static void fit(struct pace *p)
{
	double keep_n = 1e-3 * p->nn, keep_m = 2e-2 * p->mm + 1e-9;
	double a = p->nn + keep_n, b = p->nm, d = p->mm + keep_m;
	double u = p->ny + keep_n * p->row_ns, v = p->my + keep_m * p->ahead_ns;
	double det = a * d - b * b, row = (u * d - v * b) / det, ahead = (v * a - u * b) / det;

	if (ahead < 0) {
		ahead = 0;
		row = u / a;
	}
	/* All of it from attention: then nothing is known of rows at the beginning. */
	if (row < 0.05 * p->ny / p->nn) {
		row = 0.05 * p->ny / p->nn;
		ahead = (v - b * row) / d;
		ahead = ahead > 0 ? ahead : 0;
	}
	p->row_ns = row;
	p->ahead_ns = ahead;
}

/* After a step that computed no prompts. */
static void learn_quiet(struct pace *p)
{
	if (!p->quiet_ns || p->base_ns < p->quiet_ns)
		p->quiet_ns = p->base_ns;
	else
		p->quiet_ns += (p->taken_ns > 0 ? QUIET_BESIDE : QUIET) * (p->base_ns - p->quiet_ns);
}

void pace_learn(struct pace *p, int n_decode, int n, double pos, double ns)
{
	double y = ns - p->base_ns, m = n * pos;

	if (!n) {
		/* Until now all of a step was counted to its rows. */
		if (n_decode && !p->base_ns)
			p->nn = p->nm = p->mm = p->ny = p->my = p->most = 0;
		/* While prompts wait such steps are rare: one that was held up by something else must
		 * not count for all until the next. */
		if (n_decode && p->base_ns && ns > AT_MOST * p->base_ns)
			ns = AT_MOST * p->base_ns;
		if (n_decode)
			p->base_ns += (p->base_ns ? 0.2 : 1) * (ns - p->base_ns);
		if (n_decode)
			learn_quiet(p);
		return;
	}
	/* base holds the rows of the answers: without them a small step says little. */
	if (!n_decode && p->base_ns && n < ROWS_IDLE / 4)
		return;
	if (y < ns / 50)
		y = ns / 50;
	/* Deep in a context rows cost more and steps are small; after many of them the cost of a row at the
	 * beginning of a prompt is unknown again.  A prompt's last rows teach nothing. */
	if (n > p->most)
		p->most = n;
	else if (n >= p->most / 8)
		p->most -= (p->most - n) / 8;
	p->nn = FADE * p->nn + (double)n * n;
	p->nm = FADE * p->nm + n * m;
	p->mm = FADE * p->mm + m * m;
	p->ny = FADE * p->ny + n * y;
	p->my = FADE * p->my + m * y;
	fit(p);
}

static double limit_of(const struct pace *p, bool decoding)
{
	double gaps = decoding ? 1 : 2, worth = decoding ? WORTH_BESIDE : WORTH, limit = gaps * PLANNED * p->gap_ns;
	double step_ns = p->base_ns;

	if (decoding && p->pictures) { /* the rest again for what the model of the cost does not know */
		worth = 1 + PLANNED * (WORTH_PICTURES - 1);
		step_ns = p->quiet_ns;
	}
	if (step_ns && limit > worth * step_ns)
		limit = worth * step_ns;
	if (decoding)
		limit -= p->taken_ns;
	if (limit < gaps * STRETCH * p->base_ns)
		limit = gaps * STRETCH * p->base_ns;
	return limit;
}

int pace_rows(const struct pace *p, bool decoding, int pos)
{
	double left = limit_of(p, decoding) - p->base_ns, first = p->row_ns + p->ahead_ns * pos, rows;

	if (!p->row_ns)
		return decoding ? ROWS_FIRST : p->idle;
	/* rows * first + ahead * rows^2 / 2 = left, in the form that bears ahead = 0. */
	rows = 2 * left / (first + sqrt(first * first + 2 * p->ahead_ns * left));
	if (decoding && rows > 2 * p->most + ROWS_FIRST)
		rows = 2 * p->most + ROWS_FIRST;
	if (!decoding && rows < p->idle)
		rows = p->idle;
	return rows < 1 ? 1 : rows > INT_MAX ? INT_MAX : (int)rows;
}

void pace_beside(struct pace *p, bool pictures, double taken_ns)
{
	p->pictures = pictures;
	p->taken_ns = taken_ns;
}

double pace_tower_ns(const struct pace *p)
{
	struct pace before = *p;

	before.pictures = true;
	before.taken_ns = 0;
	/* A part may last longer by half of a unit, and leaves the processors' caches to it. */
	return p->base_ns ? PLANNED * (limit_of(&before, true) - p->base_ns) : 0;
}

void pace_kept(struct pace *p, double ns)
{
	/* One that was held up counts for half, and is soon forgotten. */
	p->keep_ns += (!p->keep_ns ? 1 : ns > p->keep_ns ? 0.5 : 0.1) * (ns - p->keep_ns);
}

double pace_keeping(const struct pace *p, bool decoding, int n)
{
	double left = limit_of(p, decoding) - p->base_ns;

	if (!decoding || !p->row_ns)
		return 0;
	return n * p->keep_ns < KEEP_MOST * left ? n * p->keep_ns / left : KEEP_MOST;
}

double pace_rate(const struct pace *p, bool decoding)
{
	double rows = pace_rows(p, decoding, 0);

	return p->row_ns ? rows * 1e9 / (p->base_ns + rows * p->row_ns) : 0;
}
