/* test_draft_pays.c - drafting when it pays, and hardly losing by it when not: over the
 * toy model, on a clock that steps and drafters alone move. */
#include <math.h>
#include <string.h>

#include "engine/core.h"
#include "guess.h"
#include "lives.h"
#include "toy.h"

static struct tokenizer *tok;

/* What so many rows cost. */
struct machine {
	struct clock clock;
	int64_t now;
	double first, row; /* the first row, each further one */
	double most;       /* rows beyond which each costs as much as the first */
};

static int64_t machine_now(struct clock *c)
{
	return ((struct machine *)c)->now;
}

static void machine_step(void *arg, const struct pass *p)
{
	struct machine *m = arg;
	double over = p->n_row > m->most ? p->n_row - m->most : 0;

	m->now += (int64_t)(m->first + (p->n_row - 1 - over) * m->row + over * m->first);
}

/* A drafter whose guesses take time, and that may have all of a sequence to compute before
 * the first. */
enum { SLOTS = 24 };
struct player {
	struct drafter d;
	struct guesser g;
	struct machine *m;
	double row, token;  /* what it takes for each */
	double block;       /* what it takes for all guesses of a sequence */
	uint64_t id[SLOTS]; /* of the slot's sequence */
	int pos[SLOTS];     /* tokens computed */
	int late;           /* times that it caught up with more than a round leaves */
	/* Of a whim: this share of rounds is right, the others up to some token. */
	bool whim;
	double right;
	uint64_t dice;
	double dearest; /* call */
};

static int player_behind(struct drafter *d, const struct draft_seq *s)
{
	struct player *l = (struct player *)d;

	if (l->id[s->slot] != s->id) {
		l->id[s->slot] = s->id;
		l->pos[s->slot] = 0;
	}
	return s->n_tok - 1 - l->pos[s->slot];
}

static void player_propose(struct drafter *d, struct draft_ask *ask, int n_ask)
{
	struct player *l = (struct player *)d;
	double took = 0;

	for (int i = 0; i < n_ask; i++) {
		int behind = l->d.ops->behind ? player_behind(d, &ask[i].seq) : 0;

		ask[i].caught = behind < ask[i].most ? behind : ask[i].most;
		l->late += ask[i].caught > 1 + DRAFT_MAX;
		l->pos[ask[i].seq.slot] += ask[i].caught;
		if (l->whim) {
			l->g.how = (double)dice(&l->dice, 1000) < 1000 * l->right ? GUESS_RIGHT : GUESS_TURN;
			l->g.turn = (int)dice(&l->dice, 4);
		}
		if (ask[i].caught == behind)
			l->g.d.ops->propose(&l->g.d, &ask[i], 1);
		took += ask[i].caught * l->row + ask[i].n * l->token + (ask[i].n ? l->block : 0);
	}
	l->m->now += (int64_t)took;
	l->dearest = took > l->dearest ? took : l->dearest;
}

static void player_close(struct drafter *d) {}

static const struct drafter_ops ready_ops = { .name = "ready", .propose = player_propose, .close = player_close };
static const struct drafter_ops late_ops = {
	.name = "late",
	.propose = player_propose,
	.close = player_close,
	.behind = player_behind,
};

static void player_init(struct player *l, enum guess how, int turn, bool late)
{
	*l = (struct player){ .d = { late ? &late_ops : &ready_ops } };
	guesser_init(&l->g, how);
	l->g.turn = turn;
}

/* ---- a machine at work ---- */

struct rig {
	struct machine *m;
	struct model *model;
	struct engine *e;
};

static void rig_open(struct rig *g, struct machine *m, struct player *player, int n_player, int seqs, int depth)
{
	struct toy_opts to = { .slots = seqs,
		               .ctx_max = 256,
		               .step_rows = 64,
		               .page_rows = 8,
		               .on_forward = machine_step,
		               .on_forward_arg = m };
	struct engine_opts eo = { .seqs_max = seqs,
		                  .step_rows = 64,
		                  .queue_max = 64,
		                  .clock = &m->clock,
		                  .by_hand = true,
		                  .logit_rows = 64,
		                  .n_draft = depth,
		                  .n_drafter = n_player };
	struct err err;

	m->clock.now_ns = machine_now;
	m->now = 1;
	g->m = m;
	g->model = toy_open(&to);
	for (int i = 0; i < n_player; i++) {
		eo.drafter[i] = &player[i].d;
		player[i].m = m;
		player[i].g.truth = toy_logits;
		player[i].g.m = g->model;
	}
	CHECK(!engine_open(&g->e, g->model, tok, &eo, &err), "%s", err.msg);
}

static void rig_close(struct rig *g)
{
	engine_close(g->e);
	toy_close(g->model);
}

/* n answers at once, of so many tokens to prompts of so many. */
static void answer(struct rig *g, int n, int prompt, int tokens, uint64_t seed)
{
	static struct life l[SLOTS];
	struct err err;

	for (int i = 0; i < n; i++) {
		life_init(&l[i], prompt, 250, seed + (uint64_t)i);
		l[i].ask.max_tokens = tokens;
		CHECK(!life_submit(&l[i], g->e, &err), "%s", err.msg);
	}
	while (engine_step(g->e))
		;
	for (int i = 0; i < n; i++) {
		life_read(&l[i], false);
		CHECK(l[i].done && l[i].got.n == tokens, "%d tokens", l[i].got.n);
		life_free(&l[i]);
	}
}

struct work {
	int turns, at_once, prompt, answer, depth;
};

/* Time that it takes with these drafters. */
static int64_t time_of(struct machine *m, struct player *player, int n_player, const struct work *w)
{
	struct rig g;

	rig_open(&g, m, player, n_player, w->at_once, w->depth);
	for (int i = 0; i < w->turns; i++)
		answer(&g, w->at_once, w->prompt, w->answer, (uint64_t)(i * w->at_once));
	rig_close(&g);
	return m->now - 1;
}

/* ---- as much as pays ---- */

static void test_pays(void)
{
	/* Bound by memory up to 20 rows; by arithmetic at once; rows at two thirds of a
	 * step (a mixture of experts). */
	static const struct machine machines[] = {
		{ .first = 1e7, .row = 3e5, .most = 20 },
		{ .first = 1e7, .row = 1e7, .most = 1 },
		{ .first = 1e7, .row = 66e5, .most = 1e9 },
	};
	static const enum guess how[] = { GUESS_WRONG, GUESS_TURN, GUESS_RIGHT };

	for (int k = 0; k < 3; k++)
		for (int n = 1; n <= 24; n = n == 1 ? 3 : n * 2)
			for (int h = 0; h < 3; h++) {
				struct work w = { .turns = 1, .at_once = n, .prompt = 2, .answer = 200, .depth = 8 };
				struct machine m = machines[k];
				int64_t plain = time_of(&m, NULL, 0, &w), drafted;
				struct player p;

				player_init(&p, how[h], 1, false);
				drafted = time_of(&m, &p, 1, &w);
				CHECK((double)drafted <= 1.03 * (double)plain,
				      "machine %d, %d sequences, drafter %d: %g of plain", k, n, h,
				      (double)drafted / (double)plain);
				/* One right token of each run pays where a row costs little. */
				if (k == 0 && n == 1 && how[h] == GUESS_TURN)
					CHECK((double)drafted < 0.65 * (double)plain, "%g",
					      (double)drafted / (double)plain);
				if (k == 0 && n == 1 && how[h] == GUESS_RIGHT)
					CHECK((double)drafted < 0.2 * (double)plain, "%g",
					      (double)drafted / (double)plain);
				if (k == 2 && n == 1 && how[h] == GUESS_RIGHT)
					CHECK((double)drafted < 0.8 * (double)plain, "%g",
					      (double)drafted / (double)plain);
			}
}

/* What a drafter spends on the prompt is counted: where answers are short it is not asked,
 * and where they are long it is. */
static void test_late(void)
{
	static const struct {
		int n, prompt, answer;
		double row, token, most;
		bool asked;
	} cases[] = {
		{ 200, 200, 14, 2e6, 1e5, 1.03, false }, /* 400 ms before it could save 100 */
		{ 200, 200, 14, 1e5, 1e5, 0.8, true },   /* 20 ms */
		{ 60, 20, 200, 2e6, 1e5, 0.5, true },    /* 40 ms, and 1,500 saved */
		{ 200, 20, 14, 2e6, 1e7, 1.03, false },  /* a guess costs as much as a step */
	};

	for (int i = 0; i < 4; i++) {
		struct work w = { .turns = cases[i].n,
			          .at_once = 1,
			          .prompt = cases[i].prompt,
			          .answer = cases[i].answer,
			          .depth = 4 };
		struct machine m = { .first = 1e7, .row = 3e5, .most = 1e9 };
		int64_t plain = time_of(&m, NULL, 0, &w), drafted;
		struct player p;

		player_init(&p, GUESS_RIGHT, 0, true);
		p.row = cases[i].row;
		p.token = cases[i].token;
		drafted = time_of(&m, &p, 1, &w);
		CHECK((double)drafted <= cases[i].most * (double)plain, "case %d: %g of plain", i,
		      (double)drafted / (double)plain);
		CHECK((p.late > cases[i].n / 2) == cases[i].asked, "case %d: caught up %d times", i, p.late);
	}
}

/* Of several the one that is right more often is asked, in whatever order they come. */
static void test_choice(void)
{
	struct work w = { .turns = 1, .at_once = 1, .prompt = 2, .answer = 200, .depth = 8 };
	struct machine m = { .first = 1e7, .row = 3e5, .most = 20 };
	int64_t plain = time_of(&m, NULL, 0, &w);

	for (int right = 0; right < 3; right++) {
		struct player p[3];
		int64_t drafted;

		for (int i = 0; i < 3; i++)
			player_init(&p[i], i == right ? GUESS_RIGHT : GUESS_TURN, 1, false);
		drafted = time_of(&m, p, 3, &w);
		CHECK((double)drafted < 0.25 * (double)plain, "drafter %d is right: %g of plain", right,
		      (double)drafted / (double)plain);
	}
}

/* One that always says something, and that is right most of the time, does not hide one that is right always. */
static void test_hidden(void)
{
	struct work w = { .turns = 20, .at_once = 1, .prompt = 2, .answer = 200, .depth = 8 };
	struct machine m = { .first = 1e7, .row = 3e5, .most = 20 };
	int64_t alone, both;
	struct player p[2];

	for (int late = 0; late < 2; late++) {
		player_init(&p[0], GUESS_RIGHT, 0, false);
		p[0].whim = true;
		p[0].right = 0.6;
		p[0].dice = 1;
		player_init(&p[1], GUESS_RIGHT, 0, late);
		p[1].row = 1e5;
		alone = time_of(&m, &p[1], 1, &w);
		both = time_of(&m, p, 2, &w);
		CHECK((double)both < 1.15 * (double)alone, "late %d: %g of the better one alone", late,
		      (double)both / (double)alone);
	}
}

/* A block of guesses has one price, however few of them are used: one that takes longer than a step pays all the same,
 * alone, for several, and behind one that is right now and then. */
static void test_block(void)
{
	for (int n = 1; n <= 4; n += 3)
		for (int behind = 0; behind < 2; behind++) {
			struct work w = { .turns = 4, .at_once = n, .prompt = 2, .answer = 200, .depth = 8 };
			struct machine m = { .first = 1e7, .row = 3e5, .most = 1e9 };
			int64_t plain = time_of(&m, NULL, 0, &w), drafted;
			struct player p[2];

			player_init(&p[0], GUESS_TURN, 0, false);
			p[0].whim = true;
			p[0].right = 0.2;
			p[0].dice = 1;
			player_init(&p[1], GUESS_RIGHT, 0, false);
			p[1].d.block = 8;
			p[1].block = n == 1 ? 12e6 : 4e6;
			drafted = time_of(&m, p + !behind, 1 + behind, &w);
			CHECK((double)drafted < 0.5 * (double)plain, "%d sequences, behind %d: %g of plain", n, behind,
			      (double)drafted / (double)plain);
		}
}

/* What an idle drafter has to catch up with at its first guess is not the price of the guesses that follow: one that is right
 * half of the time, behind one that always is wrong, is found to pay. */
static void test_idle(void)
{
	for (int prompt = 2; prompt < 60; prompt += 4) {
		struct work w = { .turns = 100, .at_once = 1, .prompt = prompt, .answer = 20, .depth = 8 };
		struct machine m = { .first = 3e6, .row = 6e5, .most = 1e9 };
		int64_t alone, both;
		struct player p[2];

		player_init(&p[0], GUESS_WRONG, 0, false);
		player_init(&p[1], GUESS_RIGHT, 0, true);
		p[1].whim = true;
		p[1].right = 0.5;
		p[1].dice = 1;
		p[1].row = 0.8e5;
		p[1].token = 7e5;
		alone = time_of(&m, &p[1], 1, &w);
		both = time_of(&m, p, 2, &w);
		CHECK((double)both < 1.05 * (double)alone, "prompts of %d: %g of the better one alone", prompt,
		      (double)both / (double)alone);
	}
}

/* ---- what may be lost ---- */

/* Answers one after the other, of any length to prompts of any length, on any machine, with
 * drafters whose luck and prices change: at the end of each the time is what it would be
 * without drafts and DRAFT_LOSS of that, at most, and twice what the dearest call took, of
 * which nobody knew the price, or that it had risen so; and from any answer on it is so too, but for what was saved before. */
static void test_loss(uint64_t seed)
{
	enum { TURNS = 60, DEPTH = 6 };
	static const double share[] = { 0, 0, 0.3, 0.7, 1 };
	uint64_t s = seed * 1000003, at;
	struct machine m = { .first = 1e7, .row = 1e5 * (double)(1 + dice(&s, 100)), .most = 1 + (double)dice(&s, 40) };
	struct player p[2];
	double plain[TURNS], longest = 0, least = 0, once = 0, row = m.row > m.first ? m.row : m.first;
	int n = 1 + (int)dice(&s, 2), short_most = 2 + (int)dice(&s, 40), prompt_most = 2 + (int)dice(&s, 180);

	for (int drafted = 0; drafted < 2; drafted++) {
		struct rig g;

		for (int i = 0; i < n; i++) {
			player_init(&p[i], GUESS_RIGHT, 0, dice(&s, 3));
			p[i].whim = true;
			p[i].dice = seed;
			p[i].row = m.row * (double)dice(&s, 200) / 100;
			p[i].token = m.first * (double)dice(&s, 100) / 100;
		}
		rig_open(&g, &m, p, drafted ? n : 0, 1, DEPTH);
		at = seed;
		for (int turn = 0; turn < TURNS; turn++) {
			int prompt = 2 + (int)dice(&at, (uint64_t)prompt_most),
			    many = 1 + (int)dice(&at, (uint64_t)short_most);
			double over, keep;

			if (!dice(&at, 8))
				many += 40;
			for (int i = 0; i < n; i++) {
				if (!dice(&at, 6))
					p[i].right = share[dice(&at, 5)];
				if (!dice(&at, 40))
					p[i].token *= 3;
			}
			answer(&g, 1, prompt, many, (uint64_t)turn);
			if (!drafted) {
				plain[turn] = (double)m.now;
				over = plain[turn] - (turn ? plain[turn - 1] : 0);
				longest = over > longest ? over : longest;
				continue;
			}
			for (int i = 0; i < n; i++)
				once = p[i].dearest + DEPTH * row > once ? p[i].dearest + DEPTH * row : once;
			over = (double)m.now - (1 + DRAFT_LOSS) * plain[turn];
			keep = DRAFT_LOSS * 10 * longest + 9 * n * m.first;
			CHECK(over <= n * (2 * once + m.first),
			      "case %d, answer %d: %g steps more than plain and its part", (int)seed, turn,
			      over / m.first);
			CHECK(over <= least + 2 * n * once + keep,
			      "case %d, answer %d: %g steps more since an earlier one", (int)seed, turn,
			      (over - least) / m.first);
			least = over < least ? over : least;
		}
		rig_close(&g);
	}
}

/* How long answers are expected to be. */
static void test_lengths(void)
{
	struct draft_lengths l = { { 0 }, { 0 } };

	CHECK(draft_more(&l, 0, 100) == 0 && draft_more(&l, 40, 100) == 40 && draft_more(&l, 40, 10) == 10,
	      "nothing known");
	for (int i = 0; i < 100; i++)
		draft_length_learn(&l, i % 4 ? 14 : 400);
	CHECK(fabs(draft_more(&l, 0, 1000) - 110) < 20, "%g", draft_more(&l, 0, 1000));
	CHECK(fabs(draft_more(&l, 0, 10) - 10) < 2, "%g", draft_more(&l, 0, 10));
	/* Past the short ones it is one of the long. */
	CHECK(fabs(draft_more(&l, 20, 1000) - 360) < 70, "%g", draft_more(&l, 20, 1000));
	CHECK(fabs(draft_more(&l, 500, 1000) - 500) < 1, "%g", draft_more(&l, 500, 1000));
	for (int n = 1; n < 1 << 30; n *= 3)
		draft_length_learn(&l, n);
}

int main(int argc, char **argv)
{
	bool quick = getenv("WEFT_TEST_QUICK") != NULL;
	/* test_draft_pays COUNT [FIRST]: more cases. */
	uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : quick ? 150 : 600;
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

	tok = toy_tokenizer();
	test_pays();
	test_choice();
	test_hidden();
	test_block();
	test_idle();
	test_late();
	test_lengths();
	for (uint64_t i = 0; i < n; i++)
		test_loss(first + i);
	tokenizer_close(tok);
	return 0;
}
