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
 *
 * Traffic, all from a seed.  Agents: system and tools of 3000-8000 tokens out of
 * two, a task, then 8-40 rounds of thought and call (50-300) and tool result
 * (100-3000); thoughts stay in the prompt until the task is done.  Chats: system
 * of 200-500, turns of 20-300 and answers of 100-800; before the next turn the
 * answer is regenerated (12 %), the last message edited (10 %) or an earlier one
 * (3 %).  Thinking chats: 300-2000 tokens of thought before each answer, which
 * later prompts leave out.  One-offs: 2000 tokens of instructions, a question, one
 * or two turns.  A chat's or agent's first turn is followed by a request for a
 * title, under another system prompt, half of the time.  Edits: a document of 2000-8000
 * tokens without marks, of which 100 somewhere are rewritten before each request.  Fill in the
 * middle: 300-3000 tokens before the cursor and 100-1500 after it, as an editor sends them while
 * 2-12 tokens are typed between two requests.  Rewritten results: an agent that replaces an earlier
 * tool result by 40 tokens before half of its rounds.  Branches: a chat in which every other
 * turn is asked from the middle of an answer, the rest of it gone.  Of the conversations that
 * are open, the next request comes from the last one again (60 %) or any. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "cache/kinds.h"
#include "engine/prefix/place.h"
#include "engine/prefix/prefix.h"
#include "lives.h"
#include "quant/format.h"

enum { CTX = 1 << 18, STATE_TOKENS = 1572, PAGE_ROWS = 64, SLOT = 0 };

/* ---- memory that is not there ---- */

static void *far_alloc(struct backend *be, size_t n)
{
	return malloc(1);
}
static void far_free(struct backend *be, void *p, size_t n)
{
	free(p);
}
static void far_move(struct backend *be, void *dst, const void *src, size_t n) {}
static int far_read(struct backend *be, void *near, const void *far, size_t n)
{
	return 0;
}
static void far_apply(struct backend *be, const struct state_view *v, int slot, int keep) {}

static const struct backend_ops nowhere = {
	.name = "nowhere",
	.alloc = far_alloc,
	.free = far_free,
	.write = far_move,
	.read = far_read,
	.copy = far_move,
	.tape_apply = far_apply,
};

/* ---- traffic ---- */

enum role { SYSTEM, USER, ANSWER, TOOL };
struct message {
	enum role role;
	uint64_t key;   /* its words are a function of this */
	int n, thought; /* tokens; of an answer: thought before it */
};

enum kind { AGENT, CHAT, THINKING, ONEOFF, EDIT, MIDDLE, REWRITE, BRANCH, KINDS, TITLE };
enum { MESSAGES = 128, OPEN_MAX = 16 };
struct talk {
	enum kind kind;
	struct message m[MESSAGES];
	int n;
	int left; /* turns to come */
	bool titled;
};

static uint64_t state;

static int between(int a, int b)
{
	return a + (int)dice(&state, (uint64_t)(b - a + 1));
}

static bool percent(int p)
{
	return (int)dice(&state, 100) < p;
}

static void say(struct talk *t, enum role role, int n, uint64_t key)
{
	t->m[t->n++] = (struct message){ .role = role, .key = key ? key : rng_bits(++state, 1, 1), .n = n };
}

static void begin(struct talk *t, enum kind kind)
{
	int which = between(1, 2);

	memset(t, 0, sizeof(*t));
	t->kind = kind;
	switch (kind) {
	case AGENT:
		say(t, SYSTEM, which == 1 ? 3000 : 8000, (uint64_t)which);
		say(t, USER, between(200, 800), 0);
		t->left = between(8, 40);
		break;
	case CHAT:
	case THINKING:
		say(t, SYSTEM, which == 1 ? 200 : 500, 10 + (uint64_t)which);
		say(t, USER, between(20, 300), 0);
		t->left = between(2, 14);
		break;
	case EDIT:
		for (int i = 0, n = between(20, 80); i < n; i++)
			say(t, USER, 100, 0);
		t->left = between(10, 40);
		break;
	case MIDDLE:
		say(t, USER, between(300, 3000), 0);
		say(t, USER, 4, 0);
		say(t, USER, between(100, 1500), 0);
		t->left = between(10, 40);
		break;
	case REWRITE:
		say(t, SYSTEM, 3000, 1);
		say(t, USER, between(200, 800), 0);
		t->left = between(8, 40);
		break;
	case BRANCH:
		say(t, SYSTEM, 200, 11);
		say(t, USER, between(20, 300), 0);
		t->left = between(4, 14);
		break;
	default:
		say(t, SYSTEM, 2000, 20);
		say(t, USER, between(50, 400), 0);
		t->left = between(1, 2);
	}
}

/* What the user does after an answer.  false: nothing more. */
static bool go_on(struct talk *t)
{
	int last = t->n - 1;

	if (--t->left <= 0 || t->n + 2 > MESSAGES)
		return false;
	if (t->kind == EDIT) {
		t->n = last; /* what was answered is not part of the document */
		t->m[between(0, t->n - 1)].key = rng_bits(++state, 1, 1);
		return true;
	}
	if (t->kind == MIDDLE) {
		t->n = last;
		t->m[1].n += between(2, 12); /* what follows the cursor moves on */
		return true;
	}
	if (t->kind == REWRITE && t->n > 5 && percent(50)) {
		int i = 3 + 2 * between(0, (t->n - 4) / 2);

		t->m[i].n = 40;
		t->m[i].key = rng_bits(++state, 1, 1);
	}
	if (t->kind == BRANCH && percent(50)) {
		t->m[last].n = between(1, t->m[last].n);
		say(t, USER, between(20, 300), 0);
		return true;
	}
	if (t->kind == AGENT || t->kind == REWRITE) {
		say(t, TOOL, percent(70) ? between(100, 600) : between(600, 3000), 0);
		return true;
	}
	if (percent(12)) {
		t->n = last; /* again */
		return true;
	}
	if (percent(11)) {
		t->n = last - 1; /* the last message, otherwise */
		say(t, USER, between(20, 300), 0);
		return true;
	}
	if (percent(4) && t->n > 5) {
		t->n = 1 + 2 * between(0, (t->n - 3) / 2); /* an earlier one */
		say(t, USER, between(20, 300), 0);
		return true;
	}
	say(t, USER, between(20, 300), 0);
	return true;
}

/* ---- a prompt ---- */

enum { HEAD = 3, TAIL = 2 }; /* tokens around a message */

struct text {
	int32_t tok[CTX];
	int n;
	int mark[3];
	unsigned char kind[3];
	int n_mark;
};

static void put(struct text *x, uint64_t key, int from, int n)
{
	CHECK(x->n + n <= CTX, "%d tokens", x->n + n);
	for (int i = 0; i < n; i++)
		x->tok[x->n++] = (int32_t)(rng_bits(key, (uint64_t)(from + i), 2) & 0xffff);
}

static void put_message(struct text *x, const struct message *m, bool thought)
{
	put(x, 1000 + m->role, 0, HEAD);
	if (thought)
		put(x, m->key, 100000, m->thought);
	put(x, m->key, 0, m->n);
	put(x, 2000, 0, TAIL);
}

/* As templates of thinking models do: thoughts before the last user's message go. */
static void render(struct text *x, const struct talk *t)
{
	int last = 0;

	x->n = x->n_mark = 0;
	if (t->kind == EDIT || t->kind == MIDDLE) {
		for (int i = 0; i < t->n; i++)
			put(x, t->m[i].key, 0, t->m[i].n);
		return;
	}
	for (int i = 0; i < t->n; i++)
		if (t->m[i].role == USER)
			last = i;
	for (int i = 0; i < t->n; i++) {
		if (i == 1) {
			x->mark[0] = x->n;
			x->kind[0] = PLACE_SYSTEM;
			x->n_mark = 1;
		}
		if (i == last && i > 1) {
			x->mark[x->n_mark] = x->n;
			x->kind[x->n_mark++] = PLACE_USER;
		}
		put_message(x, &t->m[i], i > last);
	}
	x->mark[x->n_mark] = x->n;
	x->kind[x->n_mark++] = PLACE_HEADER;
	put(x, 1000 + ANSWER, 0, HEAD);
}

/* ---- serving ---- */

struct sim {
	struct backend be;
	struct caches caches;
	struct prefix prefix;
	int states;
	int64_t prompt, computed;
	int64_t now;
};

static void sim_open(struct sim *s, int states, bool kv)
{
	const struct kv_format *fmt = kv_format_find("bf16");
	struct state_shape shape = { .layers = 4,
		                     .heads_k = 1,
		                     .heads_v = 1,
		                     .dim_k = 128,
		                     .dim_v = 128,
		                     .conv_channels = 16,
		                     .conv_width = 4 };
	struct paged_opts po = { .group = { .layers = 1, .heads = 1 },
		                 .rows = kv_rows_of(fmt),
		                 .page_rows = PAGE_ROWS,
		                 .slots = 1,
		                 .ctx_max = CTX };
	struct state_opts so = { .slots = 1, .snap_bytes_max = SIZE_MAX / 2 };
	size_t state_bytes, per_token;

	memset(s, 0, sizeof(*s));
	s->states = states;
	s->be = (struct backend){ .ops = &nowhere, .order = "nowhere", .threads = 1 };
	po.group.dim_k = po.group.dim_v = 32;
	per_token = 2 * fmt->row_bytes(po.group.dim_k);
	/* As many heads as make a state of the right size. */
	shape.heads_v = shape.heads_k = (int)(per_token * STATE_TOKENS * (kv ? 1 : 1000) / (4 * 128 * 128 * 4) + 1);
	so.shape = shape;
	state_bytes = state_slot_bytes(&shape);
	po.bytes_max = (size_t)(kv ? 1 << 20 : 1 << 19) * (per_token * PAGE_ROWS);
	CHECK((caches_add(&s->caches, paged_open(&s->be, &po, NULL)), s->caches.v[0]), "pages");
	CHECK((caches_add(&s->caches, state_open(&s->be, &so, NULL)), s->caches.v[1]), "states");
	prefix_init(&s->prefix, &s->caches, states ? (size_t)states * state_bytes + state_bytes / 2 : SIZE_MAX / 2);
}

static void sim_close(struct sim *s)
{
	prefix_fini(&s->prefix);
	caches_fini(&s->caches);
}

static void advance(struct sim *s, int *pos, int to)
{
	struct span sp = { .slot = SLOT, .pos = *pos, .n = to - *pos };

	if (to <= *pos)
		return;
	while (caches_reserve(&s->caches, &sp))
		CHECK(prefix_evict(&s->prefix, true), "no room");
	caches_begin(&s->caches, &sp, 1);
	caches_settle(&s->caches, &sp, sp.n);
	*pos = to;
}

static void keep(struct sim *s, const struct text *x, int pos, enum place kind)
{
	struct prefix_key key = { .kind = kind, .now = s->now };

	if (kind == PLACE_END || prefix_room(&s->prefix, &key, x->tok, pos, 0, 0))
		prefix_learn(&s->prefix, &key, SLOT, x->tok, pos);
}

static bool coarse; /* places 512 tokens apart: what the grid is compared with */

static struct place_pitch pitch_of(const struct sim *s, int n)
{
	const struct prefix *p = &s->prefix;

	if (coarse)
		return (struct place_pitch){ .step = PLACE_COARSE, .near = PLACE_COARSE, .dense = 2 * PLACE_COARSE };
	if (!p->place_bytes)
		return place_pitch(&(struct place_cost){ 0 }, n);
	return place_pitch(&(struct place_cost){ .states = (double)p->bytes_max / (double)p->place_bytes,
	                                         .token = p->token_bytes / (double)p->place_bytes },
	                   n);
}

/* One request, as reuse.c would have it: x->tok[0..n_prompt) and then the answer. */
static void serve(struct sim *s, const struct text *x, int n_prompt)
{
	struct prefix_hit hit;
	struct place_plan plan;
	struct place_pitch pitch;
	int pos, junction;

	s->now++;
	prefix_find(&s->prefix, "", x->tok, n_prompt, &hit);
	if (hit.at)
		CHECK(!caches_restore(&s->caches, SLOT, hit.snaps, hit.at), "restore");
	prefix_use(&s->prefix, &hit, s->now);
	pos = hit.at;
	junction = hit.report.junction > hit.at ? hit.report.junction : 0;
	s->prompt += n_prompt;
	s->computed += n_prompt - pos;
	place_plan_init(&plan, n_prompt, x->mark, x->kind, x->n_mark, 0);
	pitch = pitch_of(s, n_prompt);
	for (;;) {
		enum place kind = PLACES;
		int next = place_next(&plan, &pitch, pos, pos, &kind);

		if (junction > pos && junction < next) {
			next = junction;
			kind = PLACE_JUNCTION;
		}
		advance(s, &pos, next);
		if (next == n_prompt)
			break;
		keep(s, x, pos, kind);
	}
	place_plan_fini(&plan);
	while (pitch.answers && x->n - 1 - pos > pitch.step) {
		advance(s, &pos, pos + pitch.step);
		keep(s, x, pos, PLACE_GRID);
	}
	advance(s, &pos, x->n - 1);
	keep(s, x, pos, PLACE_END);
	caches_close(&s->caches, SLOT);
	prefix_trim(&s->prefix);
}

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
	static bool here[CTX];
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
enum { TRAFFICS = sizeof(traffics) / sizeof(traffics[0]) };

static enum kind pick(const struct traffic *f)
{
	int d = between(0, 99), k = 0;

	while (k < KINDS - 1 && d >= f->share[k])
		d -= f->share[k++];
	return (enum kind)k;
}

static struct text text;
static bool quick, foresight;

static void serve_all(struct sim *s, int n_sim, int n_prompt)
{
	if (foresight) /* which takes most of the time */
		remember(&s[n_sim - 1], &text, n_prompt);
	for (int i = 0; i < n_sim; i++)
		serve(&s[i], &text, n_prompt);
}

static bool is_agent(const struct talk *t)
{
	return t->kind == AGENT || t->kind == REWRITE;
}

static bool has_title(const struct talk *t)
{
	return t->kind != ONEOFF && t->kind != EDIT && t->kind != MIDDLE;
}

/* The answer that the model gives, and with it the tokens computed for it. */
static void answer(struct talk *t, struct sim *s, int n_sim)
{
	int n_prompt;
	struct message *m = &t->m[t->n];

	render(&text, t);
	n_prompt = text.n;
	say(t, ANSWER, is_agent(t) ? between(50, 300) : t->kind == MIDDLE ? between(5, 30) : between(100, 800), 0);
	m->thought = t->kind == THINKING ? between(300, 2000) : is_agent(t) ? between(30, 300) : 0;
	put(&text, m->key, 100000, m->thought);
	put(&text, m->key, 0, m->n);
	put(&text, 2000, 0, 1);
	serve_all(s, n_sim, n_prompt);
}

static void title(const struct talk *t, struct sim *s, int n_sim)
{
	static struct talk x;
	int n;

	x.kind = TITLE;
	x.n = 0;
	say(&x, SYSTEM, 120, 30);
	x.m[x.n++] = t->m[1];
	render(&text, &x);
	n = text.n;
	put(&text, ++state, 0, 12);
	serve_all(s, n_sim, n);
}

static void run(const struct traffic *f, uint64_t seed, int requests, struct sim *s, int n_sim)
{
	static struct talk open[OPEN_MAX];
	int last = 0;

	state = seed * 1000003;
	for (int i = 0; i < f->open; i++)
		begin(&open[i], pick(f));
	while (requests-- > 0) {
		struct talk *t;

		if (!percent(60))
			last = between(0, f->open - 1);
		t = &open[last];
		answer(t, s, n_sim);
		if (!t->titled && has_title(t) && percent(50))
			title(t, s, n_sim);
		t->titled = true;
		if (!go_on(t))
			begin(t, pick(f));
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
				sim_open(&s[b], budget[b], kv);
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
