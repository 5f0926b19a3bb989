/* prefix_sim.c - how many prompt tokens the prefix store saves, over made-up
 * traffic and with the real tree, placement and eviction.
 *
 *     prefix_sim [--seeds N] [--first SEED] [--requests N] [--kv] [--coarse] [--no-foresight]
 *
 * The last five kinds are of a quarter of the seeds and of the requests.  Prints for each kind of traffic the share of prompt tokens that are computed
 * with room for 2, 8 and 32 states, with room for everything, and what one would
 * compute who has room for 8 and knows what will be asked.  Without options
 * it also fails when the share at 8 is further from that with all than it was.  The caches are
 * real, the memory behind them is not: nothing is stored or computed.  A state
 * costs as much as STATE_TOKENS tokens of keys and values; without --kv those
 * cost next to nothing, so that a budget is one of states.
 * The traffic is described in sim_talks.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "lives.h"
#include "sim_store.h"
#include "sim_talks.h"

/* ---- with foresight ---- */

/* What is done by one who knows all requests to come, with the same places: of the
 * states that there are, those go that are of use latest, for the tokens that they
 * will save.  Not the best that could be done, but near it (docs/prefix-store.md). */
enum { SPOTS = 1 << 17, REQUESTS = 4096, AHEAD = 200 };

/* Places of all requests by what leads to them: equal beginnings have one number. */
struct spot {
	uint64_t sum; /* of the tokens before it; 0: free */
	int pos;
};
static struct spot spot[SPOTS];

struct past {
	int n_prompt, n;
	struct way {
		int spot, pos;
		bool place;
	} * way; /* [n] known places on it, rising; place: one of its own */
};
static struct past past[REQUESTS];
static int n_past;

static int spot_of(uint64_t sum, int pos, bool make)
{
	uint64_t i = (sum ^ (uint64_t)pos * 0x9e3779b97f4a7c15) >> 20 & (SPOTS - 1);

	while (spot[i].sum && (spot[i].sum != sum || spot[i].pos != pos))
		i = (i + 1) & (SPOTS - 1);
	if (!spot[i].sum && !make)
		return -1;
	spot[i] = (struct spot){ sum, pos };
	return (int)i;
}

/* all: the store with room for everything, which knows where prompts part. */
static void remember(struct sim *all, const struct text *x, int n_prompt)
{
	static bool here[TALK_CTX];
	struct past *r = &past[n_past++];
	struct place_plan plan;
	struct place_pitch pitch;
	struct prefix_hit hit;
	enum place kind;
	uint64_t sum = 1;

	CHECK(n_past <= REQUESTS, "requests");
	memset(here, 0, sizeof(here));
	place_plan_init(&plan, n_prompt, x->mark, x->kind, x->n_mark, 0);
	pitch = place_pitch(&(struct place_cost){ .states = 8 }, n_prompt);
	for (int pos = 0; (pos = place_next(&plan, &pitch, pos, pos, &kind)) < n_prompt;)
		here[pos] = true;
	place_plan_fini(&plan);
	prefix_find(&all->prefix, "", x->tok, n_prompt, &hit);
	here[hit.report.junction] = here[x->n - 1] = true;
	r->n_prompt = n_prompt;
	r->way = xmalloc((size_t)x->n * sizeof(*r->way));
	for (int i = 1, id; i < x->n; i++) {
		sum = rng_bits(sum, (uint64_t)x->tok[i - 1], 3) | 1;
		id = spot_of(sum, i, here[i]);
		if (id >= 0)
			r->way[r->n++] = (struct way){ id, i, here[i] };
	}
	r->way = xrealloc(r->way, (size_t)(r->n + 1) * sizeof(*r->way));
}

/* Where request r would resume with the states kept, but not by `without`. */
static int resumes(const struct past *r, const bool *kept, int without)
{
	for (int i = r->n; i-- > 0;)
		if (r->way[i].pos < r->n_prompt && kept[r->way[i].spot] && r->way[i].spot != without)
			return r->way[i].pos;
	return 0;
}

/* Tokens that the state will save, by how many requests from now. */
static double use_of(int id, int now, const bool *kept)
{
	for (int q = now + 1; q < n_past && q <= now + AHEAD; q++) {
		int with = resumes(&past[q], kept, -1),
		    without = with == spot[id].pos ? resumes(&past[q], kept, id) : with;

		if (with > without)
			return (double)(with - without) / (q - now);
	}
	return 0;
}

/* Share of the remembered requests' prompt tokens that is computed; forgets them. */
static double foreseen(int states)
{
	static bool kept[SPOTS];
	static int list[SPOTS];
	double prompt = 0, computed = 0;
	int n = 0;

	memset(kept, 0, sizeof(kept));
	for (int r = 0; r < n_past; r++) {
		const struct past *x = &past[r];
		int at = resumes(x, kept, -1);

		prompt += x->n_prompt;
		computed += x->n_prompt - at;
		for (int i = 0; i < x->n; i++)
			if (x->way[i].pos > at && x->way[i].place && !kept[x->way[i].spot]) {
				kept[x->way[i].spot] = true;
				list[n++] = x->way[i].spot;
			}
		while (n > states) {
			double least = 0;
			int worst = -1;

			for (int i = 0; i < n; i++) {
				double v = use_of(list[i], r, kept);

				if (worst < 0 || v < least) {
					worst = i;
					least = v;
				}
			}
			kept[list[worst]] = false;
			list[worst] = list[--n];
		}
	}
	for (int r = 0; r < n_past; r++)
		free(past[r].way);
	memset(past, 0, sizeof(past));
	memset(spot, 0, sizeof(spot));
	n_past = 0;
	return computed / prompt;
}

/* ---- a run ---- */

struct traffic {
	const char *name;
	int open; /* conversations at once */
	int share[KINDS];
	double most;   /* points between 8 states and all that seeds 1..4 may show */
	bool foreseen; /* 8 states are enough for one who knows what comes */
};
static const struct traffic traffics[] = {
	{ "agents, 2 at once", 2, { [AGENT] = 100 }, 1, true },
	{ "chats, 3 at once", 3, { [CHAT] = 100 }, 6.5, true },
	{ "thinking chats, 3", 3, { [THINKING] = 100 }, 6, true },
	{ "one-offs", 2, { [ONEOFF] = 100 }, 1.2, true },
	{ "mix of 5", 5, { [AGENT] = 35, [CHAT] = 30, [THINKING] = 20, [ONEOFF] = 15 }, 5, true },
	{ "edits, 2 documents", 2, { [EDIT] = 100 }, 0, false },
	{ "fill in the middle, 2", 2, { [MIDDLE] = 100 }, 0, false },
	{ "rewritten results, 2", 2, { [REWRITE] = 100 }, 0, false },
	{ "branches, 3", 3, { [BRANCH] = 100 }, 0, false },
	{ "mix of 6",
	  6,
	  { [AGENT] = 20, [CHAT] = 20, [EDIT] = 15, [MIDDLE] = 15, [REWRITE] = 15, [BRANCH] = 15 },
	  0,
	  false },
};
enum { OPEN_MAX = 16, SYSTEMS = 2 };
enum { TRAFFICS = sizeof(traffics) / sizeof(traffics[0]) };

static enum kind pick(const struct traffic *f)
{
	int d = between(0, 99), k = 0;

	while (k < KINDS - 1 && d >= f->share[k])
		d -= f->share[k++];
	return (enum kind)k;
}

static struct text text;
static bool quick, foresight, coarse;

static void serve_all(struct sim *s, int n_sim, int n_prompt)
{
	if (foresight) /* which takes most of the time */
		remember(&s[n_sim - 1], &text, n_prompt);
	for (int i = 0; i < n_sim; i++)
		sim_serve(&s[i], &text, n_prompt);
}

static void run(const struct traffic *f, uint64_t seed, int requests, struct sim *s, int n_sim)
{
	static struct talk open[OPEN_MAX];
	int last = 0;

	talks_seed(seed);
	for (int i = 0; i < f->open; i++)
		talk_begin(&open[i], pick(f), SYSTEMS);
	while (requests-- > 0) {
		struct talk *t;

		if (!percent(60))
			last = between(0, f->open - 1);
		t = &open[last];
		serve_all(s, n_sim, talk_answer(t, &text));
		if (!t->titled && talk_has_title(t) && percent(50))
			serve_all(s, n_sim, talk_title(t, &text));
		t->titled = true;
		if (!talk_go_on(t))
			talk_begin(t, pick(f), SYSTEMS);
	}
}

int main(int argc, char **argv)
{
	static const int budget[] = { 2, 8, 32, 128, 0 };
	enum { BUDGETS = 5, ALL = BUDGETS - 1 };
	int seeds, requests = 400;
	uint64_t first = 1;
	bool kv = false, look_ahead = true;

	quick = argc == 1 && getenv("WEFT_TEST_QUICK");
	seeds = quick ? 1 : 4;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--kv"))
			kv = true;
		else if (!strcmp(argv[i], "--coarse"))
			coarse = true;
		else if (!strcmp(argv[i], "--no-foresight"))
			look_ahead = false;
		else if (i + 1 < argc && !strcmp(argv[i], "--seeds"))
			seeds = atoi(argv[++i]);
		else if (i + 1 < argc && !strcmp(argv[i], "--first"))
			first = strtoull(argv[++i], NULL, 10);
		else if (i + 1 < argc && !strcmp(argv[i], "--requests"))
			requests = atoi(argv[++i]);
		else
			CHECK(false,
			      "prefix_sim [--seeds N] [--first SEED] [--requests N] [--kv] [--coarse] [--no-foresight]");
	}
	printf("prompt tokens computed, in %%; seeds %d..%d, %d requests each%s\n", (int)first, (int)first + seeds - 1,
	       requests, kv ? ", keys and values count" : "");
	printf("%-22s %10s %8s %8s %8s %8s %12s\n", "", "2 states", "8", "32", "128", "all", "foreseen");
	for (int k = 0; k < TRAFFICS; k++) {
		double share[BUDGETS] = { 0 }, ahead = 0;
		int n_seed;

		foresight = traffics[k].foreseen && look_ahead && !quick;
		n_seed = traffics[k].foreseen ? seeds : (seeds + 3) / 4;

		for (int i = 0; i < n_seed; i++) {
			static struct sim s[BUDGETS];

			for (int b = 0; b < BUDGETS; b++)
				sim_open(&s[b], budget[b], kv), s[b].coarse = coarse;
			/* Those that part anywhere make trees of thousands of places, all of which are looked at. */
			run(&traffics[k], first + (uint64_t)i, traffics[k].foreseen ? requests : requests / 4, s,
			    BUDGETS);
			for (int b = 0; b < BUDGETS; b++) {
				prefix_check(&s[b].prefix);
				share[b] += 100 * (double)s[b].computed / (double)s[b].prompt / n_seed;
				sim_close(&s[b]);
			}
			ahead += n_past ? 100 * foreseen(8) / n_seed : 0;
		}
		CHECK(ahead < share[ALL] + 1, "%s: %.1f %% with foresight, %.1f %% with all", traffics[k].name, ahead,
		      share[ALL]);
		CHECK(argc > 1 || !traffics[k].most || share[1] - share[ALL] < traffics[k].most + quick,
		      "%s: %.1f %% with 8 states, %.1f %% with all", traffics[k].name, share[1], share[ALL]);
		printf("%-22s %10.1f %8.1f %8.1f %8.1f %8.1f %12.1f\n", traffics[k].name, share[0], share[1], share[2],
		       share[3], share[ALL], ahead);
	}
	return 0;
}
