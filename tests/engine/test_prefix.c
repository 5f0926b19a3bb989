/* test_prefix.c - the prefix store: the tree against a naive account over random
 * lives, and through the engine over the toy model (toy.h), where a wrong state
 * or page gives other logits altogether.
 *
 *     test_prefix [LIVES [FIRST]] */
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/rng.h"
#include "cache/kinds.h"
#include "engine/core.h"
#include "hearer.h"
#include "lives.h"
#include "toy.h"

/* ---- the store alone ---- */

enum { SLOTS = 4, LONG = 60, NODES = 2000 };

/* What prefix_walk says is there: whole strings, each with what hangs at its end. */
struct seen {
	uint64_t id;
	char salt[4];
	int32_t tok[LONG];
	int n;
	bool state, pinned, lost;
};

struct account {
	struct seen e[NODES];
	int n;
};

static void see(void *arg, const struct prefix_item *it)
{
	struct account *a = arg;
	struct seen *s = &a->e[a->n++];

	CHECK(a->n <= NODES && it->end <= LONG, "%d nodes, %d tokens", a->n, it->end);
	*s = (struct seen){
		.id = it->id, .n = it->end, .state = it->has_state, .pinned = it->pinned, .lost = it->lost
	};
	CHECK(strlen(it->salt) < sizeof(s->salt), "salt");
	strcpy(s->salt, it->salt);
	for (int i = 0; it->parent && i < a->n; i++)
		if (a->e[i].id == it->parent)
			memcpy(s->tok, a->e[i].tok, (size_t)it->begin * sizeof(*s->tok));
	memcpy(s->tok + it->begin, it->tok, (size_t)(it->end - it->begin) * sizeof(*s->tok));
}

static struct account *look(const struct prefix *p)
{
	static struct account a;

	a.n = 0;
	prefix_walk(p, 0, see, &a);
	return &a;
}

static int naive_common(const struct seen *s, const char *salt, const int32_t *tok, int n)
{
	int i = 0;

	while (!strcmp(s->salt, salt) && i < s->n && i < n && s->tok[i] == tok[i])
		i++;
	return i;
}

/* prefix_find against the list. */
static void check_find(const struct prefix *p, const char *salt, const int32_t *tok, int n, bool anywhere)
{
	const struct account *a = look(p);
	struct prefix_hit hit;
	int known = 0, at = 0;
	bool lost = false, any = false, differs = false;

	for (int i = 0; i < a->n; i++) {
		const struct seen *s = &a->e[i];
		int same = naive_common(s, salt, tok, n), most = same < n - 1 ? same : n - 1;

		any |= !strcmp(s->salt, salt);
		known = same > known ? same : known;
		if (s->state && (anywhere || s->n <= most) && most > at)
			at = anywhere ? most : s->n;
	}
	for (int i = 0; i < a->n; i++) {
		const struct seen *s = &a->e[i];
		int same = naive_common(s, salt, tok, n);

		lost |= s->lost && same == s->n && s->n > at && s->n <= n - 1;
		differs |= !strcmp(s->salt, salt) && same == known && same < n && same < s->n;
	}
	prefix_find(p, salt, tok, n, &hit);
	CHECK(hit.at == at, "a state at %d, not %d", hit.at, at);
	CHECK((hit.at > 0) == (hit.node && hit.snaps), "no node");
	CHECK(hit.report.junction == (known < n - 1 ? known : n - 1), "junction %d, known %d of %d",
	      hit.report.junction, known, n);
	CHECK(hit.report.first_diff == (differs ? known : -1), "first difference %d, not %d", hit.report.first_diff,
	      differs ? known : -1);
	if (differs) {
		bool there = false;

		for (int i = 0; i < a->n; i++)
			there |= naive_common(&a->e[i], salt, tok, n) == known && !strcmp(a->e[i].salt, salt) &&
			         known < a->e[i].n && a->e[i].tok[known] == hit.report.was;
		CHECK(there && hit.report.was != tok[known], "was %d", (int)hit.report.was);
	}
	if (!any)
		CHECK(hit.report.reason == PREFIX_EMPTY, "reason %d", hit.report.reason);
	else if (hit.report.junction == at && at)
		CHECK(hit.report.reason == PREFIX_HIT, "reason %d", hit.report.reason);
	else
		CHECK(hit.report.reason == (lost  ? PREFIX_EVICTED :
		                            known ? PREFIX_NO_STATE :
		                                    PREFIX_DIVERGED),
		      "reason %d", hit.report.reason);
}

/* ---- what is announced ---- */

/* Told are the blocks at whose end a longer prompt resumes, or later, and no others. */
static void check_told(const struct prefix *p, const struct hearer *h)
{
	const struct account *a = look(p);
	static uint64_t seen[HEARD_MAX];
	int n = 0;

	CHECK(!h->open, "a message without an end");
	for (int i = 0; i < a->n; i++) {
		struct seen e = a->e[i];
		uint64_t name = 0;

		for (int end = BLOCK; end <= e.n && !*e.salt; end += BLOCK) {
			bool is = prefix_covers(p, "", e.tok, end);
			int32_t tok[LONG + 1];
			struct prefix_hit hit;
			int k = 0;

			name = name_behind(name, e.tok + end - BLOCK);
			CHECK((heard_at(h, name) < h->n) == is, "%s told: %d of %d", is ? "not" : "wrongly", end, e.n);
			memcpy(tok, e.tok, sizeof(e.tok));
			tok[end] = 1 << 20;
			prefix_find(p, "", tok, end + 1, &hit);
			CHECK((hit.at == end) == is, "resumed at %d of %d, told %d", hit.at, end, is);
			while (k < n && seen[k] != name)
				k++;
			if (is && k == n)
				seen[n++] = name;
		}
	}
	CHECK(n == h->n, "%d blocks are told, %d are there", h->n, n);
}

struct seq {
	int32_t tok[LONG];
	const char *salt;
	int n, pos; /* n: 0 when the slot is closed */
};

/* So many rows more, whose contents do not matter here. */
static void advance(struct model *m, struct prefix *p, struct seq *q, int slot, int n)
{
	struct span sp = { .slot = slot, .pos = q->pos, .n = n };

	while (caches_reserve(&m->caches, &sp))
		if (!prefix_evict(p, true))
			return;
	caches_begin(&m->caches, &sp, 1);
	caches_settle(&m->caches, &sp, n);
	q->pos += n;
}

static bool is_pinned(const struct prefix *p, uint64_t id)
{
	const struct account *a = look(p);

	for (int i = 0; i < a->n; i++)
		if (a->e[i].id == id)
			return a->e[i].pinned;
	return false;
}

static bool has_state_at(const struct prefix *p, const char *salt, const int32_t *tok, int n, bool anywhere)
{
	const struct account *a = look(p);

	for (int i = 0; i < a->n; i++)
		if (a->e[i].state && naive_common(&a->e[i], salt, tok, n) == n && (anywhere || a->e[i].n == n))
			return true;
	return false;
}

static void store_life(uint64_t seed)
{
	static const char *const salts[] = { "", "a", "b" };
	uint64_t s = seed;
	struct toy_opts to = { .slots = SLOTS,
		               .ctx_max = LONG,
		               .step_rows = LONG,
		               .page_rows = 1 << dice(&s, 4),
		               .snaps = 1 + (int)dice(&s, 12),
		               .attention_only = !dice(&s, 4) };
	struct seq q[SLOTS] = { 0 };
	struct model *m;
	struct prefix p;
	uint64_t pinned = 0;
	static struct hearer hearer;
	struct announce *told;

	hearer_init(&hearer);
	told = announce_open(&hearer.sink, BLOCK);
	to.pages = (LONG / to.page_rows + 1) * (1 + (int)dice(&s, 6));
	m = toy_open(&to);
	prefix_init(&p, &m->caches, 4000 << dice(&s, 6));
	for (int op = 0; op < 300; op++) {
		int slot = (int)dice(&s, SLOTS);
		struct seq *r = &q[slot];

		if (!r->n) {
			struct prefix_hit hit;
			int n = 1 + (int)dice(&s, LONG), words = 1 + (int)dice(&s, 3);

			r->salt = salts[dice(&s, dice(&s, 3) ? 1 : 3)];
			r->n = n;
			for (int i = 0; i < n; i++)
				r->tok[i] = i < 20 && dice(&s, 8) ? i : (int32_t)dice(&s, (uint64_t)words);
			check_find(&p, r->salt, r->tok, n, to.attention_only);
			prefix_find(&p, r->salt, r->tok, n, &hit);
			r->pos = hit.at;
			if (hit.at)
				CHECK(!caches_restore(&m->caches, slot, hit.snaps, hit.at), "restore");
			prefix_use(&p, &hit, 0);
		} else if (dice(&s, 3) && r->pos < r->n) {
			advance(m, &p, r, slot, 1 + (int)dice(&s, (uint64_t)(r->n - r->pos)));
			if (r->pos && dice(&s, 2)) {
				struct prefix_key key = { .salt = r->salt, .kind = (enum place)dice(&s, PLACES) };
				bool room = p.bytes_max > 200000;

				if (prefix_learn(&p, &key, slot, r->tok, r->pos) && room && to.snaps > 6)
					CHECK(has_state_at(&p, r->salt, r->tok, r->pos, to.attention_only),
					      "learned and not there");
			}
		} else {
			caches_close(&m->caches, slot);
			r->n = r->pos = 0;
			prefix_trim(&p);
		}
		if (!dice(&s, 20)) {
			const struct account *a = look(&p);
			uint64_t id = a->n ? a->e[dice(&s, (uint64_t)a->n)].id : 0;
			struct prefix_node *node = prefix_at(&p, id, NULL, NULL, 0);

			if (id && !dice(&s, 3)) {
				uint64_t gone = id;

				prefix_drop(&p, node, NULL);
				CHECK(!prefix_at(&p, gone, NULL, NULL, 0), "dropped and still there");
			} else if (id && !prefix_pin(&p, node, true, NULL)) {
				if (pinned && pinned != id && prefix_at(&p, pinned, NULL, NULL, 0))
					prefix_pin(&p, prefix_at(&p, pinned, NULL, NULL, 0), false, NULL);
				pinned = id;
				for (int i = 0; i < 5; i++)
					prefix_shrink(&p);
				CHECK(is_pinned(&p, id), "a pinned state is gone");
			}
		}
		if (!dice(&s, 60))
			prefix_drop(&p, NULL, salts[dice(&s, 3)]);
		if (!dice(&s, 30)) {
			struct paged_stats before, after;

			paged_stats(m->kv[0], &before);
			if (prefix_evict(&p, dice(&s, 2))) {
				paged_stats(m->kv[0], &after);
				CHECK(after.pages_used < before.pages_used, "evicted, and no page is free for it");
			}
		}
		prefix_check(&p);
		caches_check(&m->caches);
		if (!dice(&s, 3)) {
			hearer.again = !dice(&s, 20);
			announce_step(told, &p);
			check_told(&p, &hearer);
		}
		if (r->n == 0)
			CHECK(p.bytes <= p.bytes_max || p.n_pinned, "%zu bytes of %zu", p.bytes, p.bytes_max);
	}
	for (int i = 0; i < SLOTS; i++)
		caches_close(&m->caches, i);
	announce_close(told);
	CHECK(!hearer.n && hearer.cleared >= 2, "told at the end");
	prefix_fini(&p);
	toy_close(m);
}

/* However many prompts come under however many salts, the tree stays small. */
static void test_many(void)
{
	struct model *m = toy_open(
		&(struct toy_opts){ .slots = 1, .ctx_max = LONG, .step_rows = LONG, .page_rows = 4 });
	struct prefix p;

	prefix_init(&p, &m->caches, 64 << 20);
	for (int i = 0; i < 6000; i++) {
		int32_t tok[4] = { i % 7, i % 100, i, 1 };
		char salt[16];
		struct prefix_key key = { .salt = salt, .kind = PLACE_END };

		snprintf(salt, sizeof(salt), "%d", i % 50);
		prefix_note(&p, &key, tok, 4);
		CHECK(p.n_node <= 4096, "%d nodes", p.n_node);
	}
	CHECK(p.n_node > 4000, "%d nodes", p.n_node);
	prefix_check(&p);
	prefix_fini(&p);
	toy_close(m);
}

/* ---- through the engine ---- */

struct rig {
	struct model *m;
	struct engine *e;
	size_t bytes;
};

static struct rig rig_open(struct toy_opts to, int seqs, int rows, size_t bytes)
{
	struct engine_opts eo = {
		.seqs_max = seqs, .step_rows = rows, .queue_max = 64, .prefix_bytes = bytes, .by_hand = true
	};
	struct rig g = { .bytes = bytes };
	struct err err;

	g.m = toy_open(&to);
	CHECK(!engine_open(&g.e, g.m, NULL, &eo, &err), "%s", err.msg);
	return g;
}

static const struct toy_opts roomy = {
	.slots = 8, .ctx_max = 400, .step_rows = 64, .page_rows = 8, .pages = 4000, .snaps = 4000
};

static void rig_close(struct rig *g)
{
	struct engine_stats s;

	engine_stats(g->e, &s);
	CHECK(!s.running && !s.waiting, "%d running", s.running);
	engine_close(g->e);
	toy_close(g->m);
}

static bool step(struct rig *g)
{
	bool more = engine_step(g->e);

	caches_check(&g->m->caches);
	prefix_check(&g->e->prefix);
	CHECK(g->e->prefix.bytes <= g->bytes || g->e->sched.n_run, "%zu bytes kept", g->e->prefix.bytes);
	return more;
}

static void pump(struct rig *g)
{
	while (step(g))
		;
}

static void submit(struct life *l, struct rig *g)
{
	struct err err;

	CHECK(!life_submit(l, g->e, &err), "%s", err.msg);
}

static void finish(struct life *l, struct rig *g, bool partial)
{
	struct answer want;

	life_read(l, false);
	CHECK(l->done, "not done");
	life_alone(l, g->m, life_room(g->m), NULL, toy_logits, &want);
	life_check(l, g->m, &want, toy_logits, partial);
	life_free(l);
}

/* Runs tok[0..n) and checks rows, answer, and where it was resumed (-1: anywhere). */
static struct prefix_report run(struct rig *g, const int32_t *tok, int n, int answer, const char *salt, int resumed)
{
	struct prefix_report r, dry;
	struct prefix_spot spot = { .salt = salt, .tok = tok, .n = n };
	struct life l;

	CHECK(!engine_prefix_explain(g->e, &spot, &dry), "explain");
	life_init(&l, 1, 250, 1);
	memcpy(l.prompt, tok, (size_t)n * sizeof(*tok));
	l.ask.n_prompt = n;
	l.ask.max_tokens = answer;
	l.ask.cache_salt = salt;
	l.want_rows = true;
	submit(&l, g);
	pump(g);
	life_read(&l, false);
	r = l.end.prefix;
	CHECK(!memcmp(&r, &dry, sizeof(r)), "not what was foretold");
	CHECK(r.resumed == l.cached && r.resumed + r.replayed == r.junction, "report");
	CHECK(resumed < 0 || r.resumed == resumed, "resumed at %d of %d, not %d", r.resumed, n, resumed);
	finish(&l, g, false);
	return r;
}

/* Diverge at every k: the next 16 rows are the truth's (run checks all that are
 * computed), and the second visit replays nothing, but for a few tokens at the beginning. */
static void test_diverge(struct toy_opts to, size_t bytes, int step_k)
{
	enum { N = 320, TAIL = 16 };
	struct rig g = rig_open(to, 2, 64, bytes);
	int32_t base[LIFE_MAX], tok[LIFE_MAX];
	struct life l;

	life_init(&l, LIFE_MAX, 200, 5);
	memcpy(base, l.prompt, sizeof(base));
	run(&g, base, N, 2, NULL, -1);
	for (int k = 1; k < N; k += step_k) {
		struct prefix_report r;

		memcpy(tok, base, sizeof(tok));
		for (int i = k; i < k + TAIL; i++)
			tok[i] = 200 + (i + k) % 50;
		r = run(&g, tok, k + TAIL, 2, NULL, -1);
		CHECK(r.junction >= k || bytes < 1 << 20, "%d known of %d", r.junction, k);
		if (bytes < 1 << 20)
			continue;
		tok[k] = 251;
		r = run(&g, tok, k + TAIL, 0, NULL, -1);
		CHECK(r.junction == k && r.replayed == (k < PLACE_APART && !to.attention_only ? k : 0),
		      "%d replayed at %d", r.replayed, k);
	}
	rig_close(&g);
}

static void count_hits(void *arg, const struct prefix_item *it)
{
	int *hits = arg;

	hits[0] += it->hits;
	if (it->hits)
		CHECK(it->end == 99 && it->has_state && it->bytes > 0 && it->kind == PLACE_PROMPT, "hits at %d",
		      it->end);
	hits[1] += it->has_state;
}

/* What a conversation does: grow, regenerate, edit, grow from there. */
static void test_chat(void)
{
	struct rig g = rig_open(roomy, 4, 64, 1 << 20);
	int32_t t[LIFE_MAX], old;
	int hits[2] = { 0 };
	struct prefix_report r;
	struct life l;

	life_init(&l, 200, 250, 9);
	memcpy(t, l.prompt, sizeof(t));
	r = run(&g, t, 100, 10, NULL, 0);
	CHECK(r.source == PREFIX_NONE && r.reason == PREFIX_EMPTY && r.first_diff == -1, "first");
	r = run(&g, t, 100, 10, NULL, 99);
	CHECK(r.source == PREFIX_MEMORY && r.reason == PREFIX_HIT && r.replayed == 0, "again");
	/* The grid's places at 36, 48, 64, 80 and 90, the prompt's end and the answer's. */
	CHECK(!engine_prefix_walk(g.e, count_hits, hits) && hits[0] == 1 && hits[1] == 7, "%d hits, %d states", hits[0],
	      hits[1]);
	/* Parts in the middle, where nothing is kept: known and replayed, then kept. */
	old = t[60];
	t[60] = (t[60] + 1) % 250;
	r = run(&g, t, 100, 10, NULL, 48);
	CHECK(r.reason == PREFIX_NO_STATE && r.junction == 60 && r.replayed == 12 && r.first_diff == 60 && r.was == old,
	      "edit");
	t[60] = (old + 2) % 250;
	r = run(&g, t, 100, 10, NULL, 60);
	CHECK(r.reason == PREFIX_HIT && r.replayed == 0 && r.first_diff == 60, "edit again");
	/* Another tenant sees nothing of it, whatever it asks. */
	r = run(&g, t, 100, 10, "other", 0);
	CHECK(r.reason == PREFIX_EMPTY && r.junction == 0, "salt");
	run(&g, t, 100, 10, "other", 99);
	while (prefix_shrink(&g.e->prefix))
		;
	r = run(&g, t, 100, 10, "other", 0);
	CHECK(r.reason == PREFIX_EVICTED && r.junction == 99 && r.source == PREFIX_NONE, "evicted");
	t[0] ^= 1;
	r = run(&g, t, 50, 1, NULL, 0);
	CHECK(r.reason == PREFIX_DIVERGED && r.first_diff == 0 && r.was == (t[0] ^ 1), "all new");
	rig_close(&g);
}

/* A prompt that passes places takes no steps for them as long as they are few and there is
 * memory for their states, and each of them is then one to begin from. */
static void test_one_step(struct toy_opts to, int n_mark, int want)
{
	static const int mark[] = { 9, 18, 27, 36 };
	struct rig g = rig_open(to, 4, 64, 1 << 20);
	int steps = 0;
	struct life l;

	life_init(&l, 60, 250, 17);
	l.ask.mark = mark;
	l.ask.n_mark = n_mark;
	l.ask.max_tokens = 1;
	submit(&l, &g);
	for (; !l.done; steps++) {
		CHECK(step(&g), "it sleeps");
		life_read(&l, false);
	}
	CHECK(steps == want, "%d steps", steps);
	for (int i = n_mark; to.snaps > 1 && i-- > 0;) {
		struct prefix_report r;
		int32_t t[60];

		memcpy(t, l.prompt, sizeof(t));
		t[mark[i]] ^= 1;
		r = run(&g, t, 60, 3, NULL, mark[i]);
		CHECK(r.reason == PREFIX_HIT && r.resumed == mark[i], "parts at %d, resumed at %d", mark[i], r.resumed);
	}
	run(&g, l.prompt, 60, 3, NULL, to.snaps > 1 ? 59 : -1); /* one before its end is always a place */
	finish(&l, &g, false);
	rig_close(&g);
}

static int64_t computed(struct rig *g)
{
	struct engine_stats s;

	engine_stats(g->e, &s);
	return s.prompt_tokens - s.cached_tokens;
}

/* Many with one beginning, at once: it is computed once. */
static void test_together(void)
{
	static struct life l[8];

	for (int same = 0; same < 2; same++)
		for (int seqs = 2; seqs <= 8; seqs += 3) {
			struct toy_opts to = roomy;
			struct rig g;

			g = rig_open(to, seqs, 40, 1 << 20);
			for (int i = 0; i < 8; i++) {
				life_init(&l[i], 200, 250, 3);
				for (int k = 150; k < 200 && !same; k++)
					l[i].prompt[k] = (int32_t)rng_bits((uint64_t)i, (uint64_t)k, 0) & 127;
				l[i].prompt[150] = same ? 1 : i;
				l[i].want_rows = i % 2;
				l[i].ask.max_tokens = 5 + i;
				l[i].ask.sampling.temperature = 1;
				l[i].ask.sampling.seed = (uint64_t)i;
				submit(&l[i], &g);
			}
			pump(&g);
			for (int i = 0; i < 8; i++) {
				life_read(&l[i], false);
				if (i == 1)
					CHECK(l[i].end.prefix.source == PREFIX_RUNNING, "source %d",
					      l[i].end.prefix.source);
				finish(&l[i], &g, false);
			}
			CHECK(computed(&g) == (same ? 199 + 8 : 150 + 8 * 50), "%d computed", (int)computed(&g));
			rig_close(&g);
		}
}

/* No sharing over salts, nor with those who want none. */
static void test_apart(void)
{
	static struct life l[4], urgent;
	struct rig g = rig_open(roomy, 5, 40, 1 << 20);

	for (int i = 0; i < 4; i++) {
		life_init(&l[i], 100, 250, 3);
		l[i].ask.max_tokens = 3;
		l[i].ask.cache_salt = i == 1 ? "x" : NULL;
		l[i].ask.no_cache = i == 2;
		submit(&l[i], &g);
	}
	step(&g);
	life_init(&urgent, 100, 250, 3);
	urgent.ask.max_tokens = 3;
	urgent.ask.priority = 1;
	submit(&urgent, &g);
	CHECK(!reuse_waits(g.e, urgent.r), "it waits for one who is less urgent");
	request_cancel(urgent.r);
	CHECK(!reuse_waits(g.e, l[1].r) && !reuse_waits(g.e, l[2].r) && reuse_waits(g.e, l[3].r),
	      "who waits for the first");
	pump(&g);
	for (int i = 0; i < 4; i++) {
		life_read(&l[i], false);
		CHECK(l[i].cached == (i == 3 ? 99 : 0), "request %d: %d cached", i, l[i].cached);
		CHECK(i != 2 || l[i].end.prefix.reason == PREFIX_BYPASS, "reason");
		finish(&l[i], &g, false);
	}
	life_free(&urgent);
	rig_close(&g);
}

/* The one whose work the others wait for leaves, after every number of steps. */
static void test_leader_leaves(void)
{
	static struct life l[5];

	for (int after = 0; after < 14; after++)
		for (int second = 0; second < 2; second++) {
			struct rig g = rig_open(roomy, 5, 20, 1 << 20);

			for (int i = 0; i < 5; i++) {
				life_init(&l[i], 160, 250, 3);
				l[i].prompt[120] = i;
				l[i].want_rows = i > 1;
				l[i].ask.max_tokens = 6;
				submit(&l[i], &g);
			}
			for (int i = 0; i < after; i++)
				step(&g);
			request_cancel(l[0].r);
			step(&g);
			if (second)
				request_cancel(l[1].r);
			pump(&g);
			for (int i = 0; i < 5; i++)
				finish(&l[i], &g, i < 2);
			/* What was computed is not computed again: the leader's last chunk at most. */
			CHECK(computed(&g) <= 120 + 5 * 40 + 2 * 20 + 160, "%d computed", (int)computed(&g));
			rig_close(&g);
		}
}

/* One that parts from a prompt that is being computed, however far that is when the other comes: it waits for the step in
 * which the first comes to where they part and no longer, and goes on from there; or it does not wait, and replays no more
 * than places are apart. */
static void test_part_from_running(void)
{
	enum { N = 300, ROWS = 40 };
	static struct life l[2];

	for (int k = 9; k < N; k += 7)
		for (int before = 1; before < N / ROWS; before += 2) {
			struct rig g = rig_open(roomy, 2, ROWS, 1 << 20);
			int at;
			bool waited;

			for (int i = 0; i < 2; i++) {
				life_init(&l[i], N, 250, 3);
				l[i].want_rows = i;
				l[i].ask.max_tokens = 3;
			}
			l[1].prompt[k] = (l[0].prompt[k] + 1) & 127;
			submit(&l[0], &g);
			for (int i = 0; i < before; i++)
				step(&g);
			at = l[0].r->pos;
			submit(&l[1], &g);
			waited = reuse_waits(g.e, l[1].r);
			CHECK(!waited || k > at, "parts at %d, waits at %d", k, at);
			while (reuse_waits(g.e, l[1].r))
				step(&g);
			CHECK(l[0].r->pos < (k > at ? k : at) + ROWS, "parts at %d, waited from %d to %d", k, at,
			      l[0].r->pos);
			pump(&g);
			life_read(&l[1], false);
			CHECK(l[1].end.prefix.replayed <= (waited ? 0 : PLACE_STEP),
			      "parts at %d, came at %d: %d replayed", k, at, l[1].end.prefix.replayed);
			for (int i = 0; i < 2; i++)
				finish(&l[i], &g, false);
			rig_close(&g);
		}
}

static void test_pin(void)
{
	struct rig g = rig_open(roomy, 2, 64, 30000);
	struct prefix_spot spot;
	struct life l;
	int32_t t[LIFE_MAX];
	int dropped;
	struct err err;

	life_init(&l, 80, 250, 70);
	memcpy(t, l.prompt, sizeof(t));
	spot = (struct prefix_spot){ .tok = t, .n = 80 };
	CHECK(engine_prefix_pin(g.e, &spot, true, &err) == E_MISSING, "pinned nothing");
	run(&g, t, 80, 1, NULL, 0);
	CHECK(!engine_prefix_pin(g.e, &spot, true, &err), "%s", err.msg);
	for (int i = 0; i < 20; i++) {
		life_init(&l, 80, 250, 100 + (uint64_t)i);
		l.ask.max_tokens = 20;
		submit(&l, &g);
		pump(&g);
		finish(&l, &g, false);
	}
	run(&g, t, 80, 1, NULL, -1);
	CHECK(g.e->prefix.evicted > 0, "no pressure");
	run(&g, t, 80, 1, NULL, 79);
	CHECK(!engine_prefix_pin(g.e, &spot, false, &err), "%s", err.msg);
	spot.n = 79;
	CHECK(!engine_prefix_drop(g.e, &spot, &dropped) && dropped >= 1, "%d dropped", dropped);
	CHECK(run(&g, t, 80, 1, NULL, -1).resumed < 79, "dropped and there");
	CHECK(!engine_prefix_drop(g.e, &(struct prefix_spot){ 0 }, &dropped) && dropped > 0, "%d dropped", dropped);
	run(&g, t, 80, 1, NULL, 0);
	rig_close(&g);
}

/* Two that fit the pool side by side, but not beside what is pinned: the second waits,
 * or is computed as far as it goes and gives way; neither waits for ever. */
static void test_pin_room(int first, int second)
{
	struct toy_opts to = { .slots = 4, .ctx_max = 128, .step_rows = 32, .page_rows = 4, .pages = 50, .snaps = 64 };
	struct rig g = rig_open(to, 4, 32, 1 << 20);
	struct prefix_spot spot;
	struct life pin, l[2];
	struct engine_stats s;
	struct err err;

	life_init(&pin, 120, 250, 70);
	pin.ask.max_tokens = 1;
	spot = (struct prefix_spot){ .tok = pin.prompt, .n = 120 };
	submit(&pin, &g);
	pump(&g);
	finish(&pin, &g, false);
	CHECK(!engine_prefix_pin(g.e, &spot, true, &err), "%s", err.msg);
	for (int i = 0; i < 2; i++) {
		life_init(&l[i], i ? second : first, 250, 80 + (uint64_t)i);
		l[i].ask.max_tokens = 40;
		submit(&l[i], &g);
	}
	pump(&g);
	for (int i = 0; i < 2; i++)
		finish(&l[i], &g, false);
	engine_stats(g.e, &s);
	CHECK(s.preempted < 10, "gave way %lld times", (long long)s.preempted);
	rig_close(&g);
}

/* ---- hits computed again ---- */

static void test_verify(bool attention_only)
{
	struct toy_opts to = roomy;
	struct engine_opts eo = { .seqs_max = 1,
		                  .step_rows = 64,
		                  .queue_max = 64,
		                  .prefix_bytes = 1 << 20,
		                  .by_hand = true,
		                  .verify_share = 1,
		                  .verify_seed = 3 };
	struct rig g = { .bytes = 1 << 20 };
	struct engine_stats s;
	const struct kv_view *kv;
	int32_t t[LIFE_MAX];
	struct life l;
	struct err err;

	to.attention_only = attention_only;
	g.m = toy_open(&to);
	CHECK(!engine_open(&g.e, g.m, NULL, &eo, &err), "%s", err.msg);
	life_init(&l, 200, 250, 9);
	memcpy(t, l.prompt, sizeof(t));
	run(&g, t, 100, 10, NULL, 0);
	run(&g, t, 100, 10, NULL, 99);
	run(&g, t, 90, 10, NULL, attention_only ? 89 : 80);
	engine_stats(g.e, &s);
	CHECK(s.prefix.verified == 2 && !s.prefix.wrong, "%d verified, %d failed", (int)s.prefix.verified,
	      (int)s.prefix.wrong);
	CHECK(s.requests == 3 && s.finished[FINISH_LENGTH] == 3 && s.prompt_tokens == 290, "%d requests",
	      (int)s.requests);
	/* Somebody else's request comes while one is computed again. */
	life_init(&l, 1, 250, 1);
	memcpy(l.prompt, t, 100 * sizeof(*t));
	l.ask.n_prompt = 100;
	l.ask.max_tokens = 3;
	submit(&l, &g);
	while (!g.e->proof.req)
		step(&g);
	life_free(&l);
	submit(&l, &g);
	step(&g);
	CHECK(g.e->sched.n_run == 1 && !g.e->sched.run[0]->ask.proof, "it does not give way");
	pump(&g);
	finish(&l, &g, false);
	engine_stats(g.e, &s);
	CHECK(s.prefix.verified == 4 && !s.prefix.wrong, "%d verified", (int)s.prefix.verified);
	/* Memory goes bad: the next hit is wrong, is found out, and is not there again. */
	kv = paged_view(g.m->kv[0]);
	for (int i = 0; i < to.pages; i++)
		kv->base[(size_t)i * kv->page_bytes] ^= 1;
	life_init(&l, 1, 250, 1);
	memcpy(l.prompt, t, 100 * sizeof(*t));
	l.ask.n_prompt = 100;
	l.ask.max_tokens = 3;
	submit(&l, &g);
	pump(&g);
	life_read(&l, false);
	CHECK(l.done && l.cached == 99, "%d cached", l.cached);
	life_free(&l);
	engine_stats(g.e, &s);
	CHECK(s.prefix.wrong == 1, "%d failed", (int)s.prefix.wrong);
	run(&g, t, 100, 10, NULL, 0);
	rig_close(&g);
}

/* ---- a tier below ---- */

enum { FAR_MAX = 64 };
struct far {
	struct prefix_tier tier;
	struct prefix *prefix;
	struct {
		int32_t tok[LIFE_MAX];
		int n;
		struct buf bytes;
	} e[FAR_MAX];
	int n, late; /* late: asked so often before it comes */
	int asked;
};

struct far_sink {
	struct sink sink;
	struct buf *to;
};
struct far_source {
	struct source source;
	const char *p;
};

static int put(struct sink *s, const void *p, size_t n)
{
	buf_put(((struct far_sink *)s)->to, p, n);
	return 0;
}

static int get(struct source *s, void *p, size_t n)
{
	memcpy(p, ((struct far_source *)s)->p, n);
	((struct far_source *)s)->p += n;
	return 0;
}

static int far_at(struct far *f, const int32_t *tok, int n)
{
	int best = -1;

	for (int i = 0; i < f->n; i++)
		if (f->e[i].n <= n && !memcmp(f->e[i].tok, tok, (size_t)f->e[i].n * sizeof(*tok)) &&
		    (best < 0 || f->e[i].n > f->e[best].n))
			best = i;
	return best;
}

static void far_kept(struct prefix_tier *t, const char *salt, const int32_t *tok, int n) {}

static void far_left(struct prefix_tier *t, const char *salt, const int32_t *tok, int n, const struct snaps *snaps)
{
	struct far *f = (struct far *)t;
	struct far_sink s = { { put }, &f->e[f->n].bytes };
	int at = far_at(f, tok, n);

	if (f->n == FAR_MAX || (at >= 0 && f->e[at].n == n))
		return;
	buf_init(s.to);
	CHECK(!snaps_write(snaps, &s.sink), "write");
	memcpy(f->e[f->n].tok, tok, (size_t)n * sizeof(*tok));
	f->e[f->n++].n = n;
}

static void far_dropped(struct prefix_tier *t, const char *salt, const int32_t *tok, int n)
{
	struct far *f = (struct far *)t;

	for (int i = f->n - 1; i >= 0; i--)
		if (f->e[i].n >= n && (!n || !memcmp(f->e[i].tok, tok, (size_t)n * sizeof(*tok)))) {
			buf_fini(&f->e[i].bytes);
			f->e[i] = f->e[--f->n];
		}
}

static int far_find(struct prefix_tier *t, const char *salt, const int32_t *tok, int n)
{
	int at = far_at((struct far *)t, tok, n);

	return at < 0 ? 0 : ((struct far *)t)->e[at].n;
}

static bool far_fetch(struct prefix_tier *t, const char *salt, const int32_t *tok, int n, int have)
{
	struct far *f = (struct far *)t;
	int at = far_at(f, tok, n - 1);
	struct prefix_key key = { .salt = salt, .kind = PLACE_END };
	struct far_source s;
	struct snaps snaps;
	struct err err;

	if (at < 0 || f->e[at].n <= have)
		return false;
	if (++f->asked % f->late)
		return true;
	s = (struct far_source){ { get }, f->e[at].bytes.p };
	while (caches_read(f->prefix->caches, &s.source, &snaps, &err)) {
		s.p = f->e[at].bytes.p;
		if (!prefix_shrink(f->prefix))
			return false;
	}
	prefix_hang(f->prefix, &key, tok, f->e[at].n, &snaps);
	return false;
}

/* What left memory comes back from below, others running meanwhile; never anything wrong. */
static void test_tier(void)
{
	static struct far f = { .tier = { far_kept, far_left, far_dropped, far_find, far_fetch }, .late = 4 };
	static struct life l[3];
	struct rig g = rig_open(roomy, 4, 30, 1 << 20);
	struct prefix_spot spot;
	struct prefix_report r;
	int32_t t[LIFE_MAX];
	int dropped;

	f.prefix = &g.e->prefix;
	g.e->prefix.tier = &f.tier;
	life_init(&l[0], 200, 250, 70);
	memcpy(t, l[0].prompt, sizeof(t));
	run(&g, t, 150, 5, NULL, 0);
	while (prefix_shrink(&g.e->prefix))
		;
	CHECK(f.n == 2, "%d left", f.n);
	for (int i = 0; i < 3; i++) {
		life_init(&l[i], 150, 250, i ? 70 : 71);
		l[i].want_rows = true;
		l[i].ask.max_tokens = 30;
		submit(&l[i], &g);
	}
	pump(&g);
	for (int i = 0; i < 3; i++) {
		life_read(&l[i], false);
		CHECK(l[i].cached == (i ? 149 : 0), "%d cached", l[i].cached);
		CHECK(i != 1 || l[i].end.prefix.source == PREFIX_DISK, "source %d", l[i].end.prefix.source);
		finish(&l[i], &g, false);
	}
	while (prefix_shrink(&g.e->prefix))
		;
	spot = (struct prefix_spot){ .tok = t, .n = 200 };
	CHECK(!engine_prefix_explain(g.e, &spot, &r) && r.source == PREFIX_DISK && r.resumed == 149, "explained %d",
	      r.resumed);
	CHECK(!engine_prefix_drop(g.e, &(struct prefix_spot){ 0 }, &dropped), "drop");
	CHECK(f.n == 0, "%d are still below", f.n);
	run(&g, t, 150, 5, NULL, 0);
	rig_close(&g);
	far_dropped(&f.tier, "", NULL, 0);
}

int main(int argc, char **argv)
{
	bool quick = getenv("WEFT_TEST_QUICK") != NULL;
	uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : quick ? 100 : 1000;
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	struct toy_opts hard = roomy, dense = roomy;

	for (uint64_t i = 0; i < n; i++)
		store_life((first + i) * 7919);
	test_many();
	test_chat();
	test_one_step(roomy, 3, 1);
	test_one_step(roomy, 4, 1);
	test_together();
	test_apart();
	test_leader_leaves();
	test_part_from_running();
	test_pin();
	for (int i = 0; i < 8; i++)
		test_pin_room(8 + 9 * i, 57);
	test_tier();
	log_set_level(LOG_ERROR - 1); /* what goes wrong here is meant to */
	test_verify(false);
	test_verify(true);
	test_diverge(roomy, 64 << 20, quick ? 7 : 1);
	hard.page_rows = 1;
	test_diverge(hard, 1 << 19, quick ? 37 : 3);
	test_diverge(hard, 30000, quick ? 37 : 3);
	hard.snaps = 1;
	test_one_step(hard, 1, 1);
	test_diverge(hard, 1 << 19, quick ? 37 : 3);
	dense.attention_only = true;
	test_one_step(dense, 3, 1);
	test_diverge(dense, 64 << 20, quick ? 37 : 3);
	return 0;
}
