/* Replays traces of experts (docs/experts-from-disk.md, "Policy"): how many reads each way of choosing who gives way
 * would have cost, the one that is shipped (backend/policy.h) among them, and how few reads there could have been.
 *
 *     expert_replay TRACE EXPERTS SLOTS...   a trace as --expert-trace writes it, of layers of so many experts
 *     expert_replay --made SKEW REPEAT       a made trace: 8 layers, 8 of 256 experts
 *     expert_replay                          made traces, and checks
 *
 * Made traces: an expert's share of its layer's uses is proportional to exp(SKEW z), z normal; each pick is, with
 * probability REPEAT, one of those that the token before used. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "backend/policy.h"
#include "base/alloc.h"
#include "base/rng.h"

/* ---- traces ---- */

struct visit {
	int layer, first, n; /* used[first] .. */
};
struct trace {
	struct visit *visit;
	int *used; /* experts, counted within their layer */
	int n_visit, n_used, cap_visit, cap_used, layers, experts;
};

static void add_visit(struct trace *t, int layer)
{
	if (t->n_visit == t->cap_visit)
		t->visit = xrealloc(t->visit, (size_t)(t->cap_visit = 2 * t->cap_visit + 64) * sizeof *t->visit);
	t->visit[t->n_visit++] = (struct visit){ layer, t->n_used, 0 };
	t->layers = layer >= t->layers ? layer + 1 : t->layers;
}

static void add_use(struct trace *t, int expert)
{
	if (t->n_used == t->cap_used)
		t->used = xrealloc(t->used, (size_t)(t->cap_used = 2 * t->cap_used + 64) * sizeof *t->used);
	t->used[t->n_used++] = expert;
	t->visit[t->n_visit - 1].n++;
}

static void read_trace(struct trace *t, const char *path)
{
	FILE *f = fopen(path, "r");
	char *line = NULL, *at;
	size_t cap = 0;

	CHECK(f, "%s: cannot be read", path);
	while (getline(&line, &cap, f) > 0) {
		add_visit(t, (int)strtol(line, &at, 10));
		while (*at == ' ') {
			int e = (int)strtol(at, &at, 10);

			CHECK(e >= 0 && e < t->experts, "expert %d of %d", e, t->experts);
			add_use(t, e);
		}
	}
	free(line);
	fclose(f);
}

static double uniform(uint64_t *seed)
{
	return ((double)(rng_bits(*seed, 1, 0) >> 11) + 0.5) / 9007199254740992.0 + 0 * (double)(*seed += 1);
}

enum { LAYERS = 8, EXPERTS = 256, PICKS = 8 };

static int draw(const double *share, uint64_t *seed)
{
	double x = uniform(seed);
	int e = 0;

	while (e < EXPERTS - 1 && x > share[e])
		x -= share[e++];
	return e;
}

static bool among(const int *v, int n, int e)
{
	for (int i = 0; i < n; i++)
		if (v[i] == e)
			return true;
	return false;
}

/* One prompt, which uses everything, then tokens. */
static void make_trace(struct trace *t, double skew, double repeat, int tokens)
{
	static double share[LAYERS][EXPERTS];
	int last[LAYERS][PICKS];
	uint64_t seed = 7;

	memset(last, 0xff, sizeof last);
	for (int y = 0; y < LAYERS; y++) {
		double all = 0;

		for (int e = 0; e < EXPERTS; e++) {
			double z = sqrt(-2 * log(uniform(&seed))) * cos(6.283185307179586 * uniform(&seed));

			all += share[y][e] = exp(skew * z);
		}
		for (int e = 0; e < EXPERTS; e++)
			share[y][e] /= all;
		add_visit(t, y);
		for (int e = 0; e < EXPERTS; e++)
			add_use(t, e);
	}
	for (int i = 0; i < tokens; i++)
		for (int y = 0; y < LAYERS; y++) {
			int now[PICKS], n = 0;

			add_visit(t, y);
			while (n < PICKS) {
				int e = uniform(&seed) < repeat ? last[y][(int)(uniform(&seed) * PICKS)] : -1;

				e = e < 0 ? draw(share[y], &seed) : e;
				if (!among(now, n, e))
					add_use(t, now[n++] = e);
			}
			memcpy(last[y], now, sizeof now);
		}
}

/* ---- replaying ---- */

enum way { LRU, LFU, SHIPPED, BELADY, WAYS };
static const char *const names[WAYS] = { "LRU", "LFU, decaying", "shipped", "Belady's bound" };

struct sim {
	const struct trace *t;
	enum way way;
	struct policy policy;
	int *slot;     /* [slots] id = layer * experts + expert; -1: free */
	char *there;   /* [ids] */
	int64_t *last; /* [ids] the last use */
	int *next;     /* [uses] the next use of the same id */
	int *coming;   /* [ids] its next use, once it was used */
	int n;
};

static int id_of(const struct trace *t, int layer, int expert)
{
	return layer * t->experts + expert;
}

static void find_next(struct sim *s)
{
	const struct trace *t = s->t;

	for (int i = 0; i < t->layers * t->experts; i++)
		s->coming[i] = INT32_MAX;
	for (int v = t->n_visit - 1; v >= 0; v--)
		for (int i = t->visit[v].first; i < t->visit[v].first + t->visit[v].n; i++) {
			int id = id_of(t, t->visit[v].layer, t->used[i]);

			s->next[i] = s->coming[id];
			s->coming[id] = i;
		}
}

/* Does id go before the best so far? */
static bool goes(const struct sim *s, int id, int best)
{
	int e = s->t->experts;

	if (best < 0)
		return true;
	switch (s->way) {
	case LRU: return s->last[id] < s->last[best];
	case BELADY: return s->coming[id] > s->coming[best];
	case LFU: return policy_count(&s->policy, id / e, id % e) < policy_count(&s->policy, best / e, best % e);
	default:
		return policy_before(&s->policy, id / e, policy_count(&s->policy, id / e, id % e), best / e,
		                     policy_count(&s->policy, best / e, best % e));
	}
}

static void take(struct sim *s, int id, const char *pinned)
{
	int best = -1;

	for (int i = 0; i < s->n; i++) {
		if (s->slot[i] < 0) {
			best = i;
			break;
		}
		if (!pinned[s->slot[i]] && goes(s, s->slot[i], best < 0 ? -1 : s->slot[best]))
			best = i;
	}
	CHECK(best >= 0, "more experts in a visit than slots");
	if (s->slot[best] >= 0)
		s->there[s->slot[best]] = 0;
	s->slot[best] = id;
	s->there[id] = 1;
}

/* Reads that the trace costs with n slots. */
static int64_t replay(const struct trace *t, enum way way, int n)
{
	size_t ids = (size_t)t->layers * (size_t)t->experts;
	struct sim s = { .t = t, .way = way, .n = n };
	int *experts = xcalloc((size_t)t->layers, sizeof *experts);
	char *pinned = xcalloc(ids, 1);
	int64_t reads = 0;

	for (int i = 0; i < t->layers; i++)
		experts[i] = t->experts;
	policy_init(&s.policy, experts, t->layers, way == LFU ? 4 * POLICY_HALF : POLICY_HALF);
	s.slot = xmalloc((size_t)n * sizeof *s.slot);
	memset(s.slot, 0xff, (size_t)n * sizeof *s.slot);
	s.there = xcalloc(ids, 1);
	s.last = xcalloc(ids, sizeof *s.last);
	s.coming = xcalloc(ids, sizeof *s.coming);
	s.next = xcalloc((size_t)t->n_used + 1, sizeof *s.next);
	find_next(&s);
	for (int v = 0; v < t->n_visit; v++) {
		const struct visit *x = &t->visit[v];
		bool all = x->n > n; /* computed in turns, as slots.c does: each stays only until it is computed */

		policy_visit(&s.policy, x->layer);
		for (int i = x->first; i < x->first + x->n; i++) {
			policy_use(&s.policy, x->layer, t->used[i]);
			pinned[id_of(t, x->layer, t->used[i])] = !all;
		}
		for (int i = x->first; i < x->first + x->n; i++) {
			int id = id_of(t, x->layer, t->used[i]);

			s.last[id] = v;
			s.coming[id] = s.next[i];
			if (s.there[id])
				continue;
			reads++;
			take(&s, id, pinned);
		}
		for (int i = x->first; i < x->first + x->n; i++)
			pinned[id_of(t, x->layer, t->used[i])] = 0;
	}
	policy_fini(&s.policy);
	free(experts);
	free(pinned);
	free(s.slot);
	free(s.there);
	free(s.last);
	free(s.coming);
	free(s.next);
	return reads;
}

static void print(const struct trace *t, int slots, int64_t reads[WAYS])
{
	printf("%5d slots of %d:", slots, t->layers * t->experts);
	for (enum way w = LRU; w < WAYS; w++) {
		reads[w] = replay(t, w, slots);
		printf("  %s %lld (%.1f %% there)", names[w], (long long)reads[w],
		       100.0 * (1 - (double)reads[w] / t->n_used));
	}
	putchar('\n');
}

static void made(double skew, double repeat, int tokens, bool check)
{
	struct trace t = { .experts = EXPERTS };

	make_trace(&t, skew, repeat, tokens);
	printf("made, skew %.1f, repeat %.2f: %d visits, %d uses\n", skew, repeat, t.n_visit, t.n_used);
	for (int quarter = 1; quarter < 4; quarter++) {
		int64_t reads[WAYS];

		print(&t, LAYERS * EXPERTS / 4 * quarter, reads);
		for (enum way w = LRU; w < BELADY && check; w++) {
			CHECK(reads[BELADY] <= reads[w], "fewer reads than the bound");
			CHECK((double)reads[SHIPPED] <= 1.03 * (double)reads[w], "%s reads less than what is shipped",
			      names[w]);
		}
	}
	free(t.visit);
	free(t.used);
}

int main(int argc, char **argv)
{
	struct trace t = { 0 };
	int64_t reads[WAYS];

	if (argc == 1) {
		made(0, 0, 60, true);
		made(0, 0.38, 60, true);
		made(1, 0.38, 60, true);
		made(2, 0.1, 60, true);
		return 0;
	}
	if (argc == 4 && !strcmp(argv[1], "--made")) {
		made(strtod(argv[2], NULL), strtod(argv[3], NULL), 400, false);
		return 0;
	}
	CHECK(argc > 3, "expert_replay TRACE EXPERTS SLOTS...");
	t.experts = atoi(argv[2]);
	read_trace(&t, argv[1]);
	for (int i = 3; i < argc; i++)
		print(&t, atoi(argv[i]), reads);
	free(t.visit);
	free(t.used);
	return 0;
}
