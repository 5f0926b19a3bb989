/* draft_gain.c - see draft_gain.h. */
#include "engine/draft/draft_gain.h"

/* Gains below this factor are within the noise of a measurement. */
static const double MARGIN = 1.02;
/* A row more adds this much to a step, until it was measured: weights are read once. */
static const double ROW_FIRST = 0.05;
/* A time is forgotten after FORGET steps without a new measurement, so that one bad measurement
 * does not count for ever; after FORGET_FEW while it was measured fewer than FEW times. */
enum { FORGET = 2000, FORGET_FEW = 64, FEW = 4 };
/* Most rows that a step may have beyond the largest that was measured: from some number of rows
 * on each further row costs, and that number is not known. */
enum { STRIDE = 4 };

void draft_odds_learn(struct draft_odds *o, int right, int wrong, double fade)
{
	for (int i = 0; i < right + wrong; i++) {
		o->right = fade * o->right + (i < right);
		o->tried = fade * o->tried + 1;
	}
}

/* For each time, the part of the way that the known one moves toward it.  Whatever else happens on a machine
 * makes steps longer and none shorter, so that it is the short ones that compare. */
static const double TOWARD_LESS = 0.25, TOWARD_MORE = 0.025;

/* The first times are of cold memory as often as not: the least of them counts. */
void draft_time_learn(struct draft_time *t, int64_t now, double ns)
{
	if (ns <= 0)
		return;
	if (t->ns <= 0 || now - t->seen > FORGET)
		*t = (struct draft_time){ .ns = ns };
	else if (t->n < FEW)
		t->ns = ns < t->ns ? ns : t->ns;
	else
		t->ns += (ns < t->ns ? TOWARD_LESS : TOWARD_MORE) * ((ns < 3 * t->ns ? ns : 3 * t->ns) - t->ns);
	t->seen = now;
	t->n++;
}

void draft_cost_learn(struct draft_cost *c, int rows, double ns)
{
	c->now++;
	if (rows >= 1 && rows <= DRAFT_ROWS_MAX)
		draft_time_learn(&c->step[rows], c->now, ns);
}

/* Some twenty answers count. */
static const double FADE_LENGTH = 0.95;

void draft_length_learn(struct draft_lengths *l, int tokens)
{
	int at = 0;

	for (int i = 0; i < DRAFT_LENGTHS; i++) {
		l->answers[i] *= FADE_LENGTH;
		l->tokens[i] *= FADE_LENGTH;
	}
	while (tokens >> (at + 1))
		at++;
	l->answers[at]++;
	l->tokens[at] += tokens;
}

/* The mean of the longer answers seen, with one made-up answer twice as long as this one is now, since none of
 * its kind may have been seen. */
double draft_more(const struct draft_lengths *l, int tokens, int most)
{
	double n = 1, more = tokens < most ? tokens : most;

	for (int i = 0; i < DRAFT_LENGTHS; i++) {
		double left = l->answers[i] > 0 ? l->tokens[i] / l->answers[i] - tokens : 0;

		if (left > 0) {
			n += l->answers[i];
			more += l->answers[i] * (left < most ? left : most);
		}
	}
	return more / n;
}

double draft_time_of(const struct draft_time *t, int64_t now)
{
	return now - t->seen <= (t->n < FEW ? FORGET_FEW : FORGET) ? t->ns : 0;
}

static int known(const struct draft_cost *c, int rows)
{
	return draft_time_of(&c->step[rows], c->now) > 0;
}

double draft_cost_of(const struct draft_cost *c, int rows)
{
	int below = rows < DRAFT_ROWS_MAX ? rows : DRAFT_ROWS_MAX, above, before;

	for (above = below; above <= DRAFT_ROWS_MAX && !known(c, above); above++)
		;
	while (below > 0 && !known(c, below))
		below--;
	if (below == rows)
		return c->step[rows].ns;
	if (!below)
		return above <= DRAFT_ROWS_MAX ? c->step[above].ns : 0;
	if (above <= DRAFT_ROWS_MAX && above > below)
		return c->step[below].ns + (c->step[above].ns - c->step[below].ns) * (rows - below) / (above - below);
	/* Past the largest that is known: as it rose before, if that is known. */
	for (before = below - 1; before > 0 && !known(c, before); before--)
		;
	if (before > 0 && c->step[below].ns > c->step[before].ns)
		return c->step[below].ns + (c->step[below].ns - c->step[before].ns) * (rows - below) / (below - before);
	return c->step[below].ns * (1 + ROW_FIRST * (rows - below));
}

enum { KEPT_STEPS = 8 };
/* Some ten answers count: one fifth of an answer's time may be laid out before it begins. */
static const double FADE_DONE = 0.9;

static void keep_most(struct draft_accounts *a, int k)
{
	double most = DRAFT_LOSS / a->n * a->done + KEPT_STEPS * a->step_ns;

	if (a->may[k] > most)
		a->may[k] = most;
}

void draft_account_work(struct draft_accounts *a, double ns)
{
	a->done += ns;
	for (int k = 0; k < a->n; k++)
		draft_account_save(a, k, DRAFT_LOSS / a->n * ns);
}

void draft_account_spend(struct draft_accounts *a, int k, double ns)
{
	a->may[k] -= ns;
}

void draft_account_save(struct draft_accounts *a, int k, double ns)
{
	a->may[k] += ns;
	keep_most(a, k);
}

void draft_account_end(struct draft_accounts *a)
{
	a->done *= FADE_DONE;
	for (int k = 0; k < a->n; k++)
		keep_most(a, k);
}

void draft_account_round(struct draft_accounts *a, const struct draft_round *r)
{
	double longer = r->ns > r->plain_ns ? r->ns - r->plain_ns : 0, work = r->ns - longer;
	double token_ns = r->tokens ? r->step_ns / r->tokens : 0;
	int drafted = 0;

	if (r->tokens && !a->step_ns)
		for (int k = 0; k < a->n; k++)
			a->may[k] += r->step_ns;
	if (r->tokens)
		a->step_ns = r->step_ns;

	for (int k = 0; k < a->n; k++) {
		drafted += r->drafted[k];
		work += r->right[k] * token_ns;
	}
	draft_account_work(a, work);
	for (int k = 0; k < a->n; k++) {
		if (!r->drafted[k])
			continue;
		draft_account_spend(a, k, longer * r->drafted[k] / drafted);
		draft_account_save(a, k, r->right[k] * token_ns);
	}
}

/* The bid whose next draft is the likeliest to come true; -1: none is left. */
static int likeliest(const struct draft_bid *bid, const double *gain, int n_bid)
{
	int best = -1;

	for (int i = 0; i < n_bid; i++)
		if (bid[i].n < bid[i].max && (best < 0 || gain[i] > gain[best]))
			best = i;
	return best;
}

/* With `more` drafts of `begun` sequences. */
static double time_of(const struct draft_deal *d, int more, int begun)
{
	double step = d->step_ns > 0 ? d->step_ns + more * d->row_ns : draft_cost_of(d->cost, d->rows + more);

	return step > 0 ? step + d->ns + more * d->token_ns + begun * d->seq_ns : 0;
}

static double longer(const struct draft_deal *d, int drafts, int begun)
{
	double by = time_of(d, drafts, begun) - time_of(d, 0, 0);

	return by > 0 ? by : 0;
}

/* Gives out n rows; *begun: how many bids have any. */
static double give(struct draft_bid *bid, double *gain, int n_bid, int n, double *tokens, int *begun)
{
	int i = -1;

	for (int k = 0; k < n; k++) {
		i = likeliest(bid, gain, n_bid);
		if (i < 0)
			return 0;
		*tokens += gain[i];
		*begun += !bid[i].n++;
		gain[i] *= bid[i].share;
	}
	return 1;
}

static void clear(struct draft_bid *bid, double *gain, int n_bid)
{
	for (int i = 0; i < n_bid; i++) {
		bid[i].n = 0;
		gain[i] = bid[i].share;
	}
}

static int most_of(const struct draft_deal *d)
{
	int most = DRAFT_ROWS_MAX;

	while (most > d->rows && !known(d->cost, most))
		most--;
	most += STRIDE;
	return d->step_ns > 0 || most > d->rows_max ? d->rows_max : most;
}

double draft_deal(const struct draft_deal *d, struct draft_bid *bid, int n_bid)
{
	enum { BIDS = 1024 }; /* sequences at once */
	double gain[BIDS], tokens = d->tokens, best = 0, before = time_of(d, 0, 0);
	int n = n_bid < BIDS ? n_bid : BIDS, best_n = 0, begun = 0, most = most_of(d);

	clear(bid, gain, n);
	for (int i = n; i < n_bid; i++)
		bid[i].n = 0;
	if (before <= 0)
		return 0;
	best = MARGIN * d->tokens / before;
	for (int k = 1; d->rows + k <= most && give(bid, gain, n, 1, &tokens, &begun) > 0; k++) {
		double rate = tokens / time_of(d, k, begun);

		if (longer(d, k, begun) > d->may_ns)
			break;
		if (rate > best) {
			best = rate;
			best_n = k;
		}
	}
	clear(bid, gain, n);
	tokens = d->tokens;
	give(bid, gain, n, best_n, &tokens, &begun);
	return best_n ? best : d->tokens / before;
}

double draft_longer(const struct draft_deal *d, int drafts)
{
	return longer(d, drafts, drafts > 0);
}

double draft_saves(const struct draft_deal *d, double rate)
{
	double plain = time_of(d, 0, 0);

	return rate > 0 && plain > 0 && rate * plain > d->tokens ? plain - d->tokens / rate : 0;
}
