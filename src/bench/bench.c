/* bench.c - `weft bench [MODEL]`: how fast this machine computes a model.
 *
 * Through the engine that serves, one step at a time on this thread: what is
 * timed is what a request waits for, sampling included, HTTP aside.  With guesses
 * ahead each row of decoding is measured without them and then with.
 *
 * A prompt is timed from its submission to its first token.  Decoding is timed
 * over steps in which every sequence of the batch gets a token, all of them at
 * the depth that was asked for.  What comes before (the depth) is computed once
 * and kept as a prefix, of which each measurement resumes. */
#include "bench/bench.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "bench/energy.h"
#include "bench/sorted.h"

enum { BATCH_MOST = 256, SLACK = 8 }; /* positions that decoding may run beyond what is timed */

struct bench {
	const struct bench_options *o;
	struct session s;
	struct pool *pool;        /* for the ceilings: as many threads as the backend has */
	struct ceilings ceilings; /* measured last */
	int32_t *ids;
	uint64_t seed; /* of what follows the depth: new each time */
	struct request *req[BATCH_MOST];
	int n_req;
	struct profile profile;
	struct energy energy;
};

/* ---- requests ---- */

/* Tokens of sequence i: the first `depth` always the same, the rest new. */
static void fill(struct bench *b, int i, int depth, int n)
{
	uint64_t vocab = (uint64_t)b->s.model->shape.vocab;

	b->seed++;
	for (int k = 0; k < n; k++)
		b->ids[k] = (int32_t)(rng_bits(k < depth ? (uint64_t)i : b->seed << 32, (uint64_t)k, 0) % vocab);
}

static int submit(struct bench *b, int i, const struct bench_row *r, int n, int max_tokens, struct err *err)
{
	int depth = r->depth;
	struct ask a = { .prompt = b->ids,
		         .n_prompt = depth + n,
		         .max_tokens = max_tokens,
		         .no_cache = !depth,
		         .mark = &depth,
		         .n_mark = depth ? 1 : 0,
		         .n_draft = r->drafts ? 0 : -1 };
	int rc;

	sampler_params_init(&a.sampling);
	a.sampling.temperature = 0;
	a.adapters = loaded_ask(&b->s.adapters);
	fill(b, i, depth, depth + n);
	rc = engine_submit(b->s.engine, &a, &b->req[b->n_req], err);
	b->n_req += !rc;
	return rc;
}

static void drop_all(struct bench *b)
{
	for (int i = 0; i < b->n_req; i++)
		request_cancel(b->req[i]);
	while (engine_step(b->s.engine))
		;
	for (int i = 0; i < b->n_req; i++)
		request_free(b->req[i]);
	b->n_req = 0;
}

/* Events of request i since the last look. */
struct seen {
	int tokens;
	int cached; /* -1: it has not started */
	bool done;
};

static int look(struct bench *b, int i, struct seen *seen, struct err *err)
{
	struct event ev;

	while (request_next(b->req[i], &ev)) {
		if (ev.kind == EV_START)
			seen->cached = ev.cached;
		seen->tokens += ev.kind == EV_TOKEN;
		seen->done |= ev.kind == EV_DONE;
		if (ev.kind == EV_DONE && ev.finish == FINISH_ERROR)
			return err_set(err, ev.err.code, "%s", ev.err.msg);
	}
	return 0;
}

/* Steps until request i has a token. */
static int until_first(struct bench *b, int i, struct seen *seen, struct err *err)
{
	int rc = look(b, i, seen, err);

	while (!rc && !seen->tokens && !seen->done) {
		if (!engine_step(b->s.engine))
			return err_set(err, E_LIMIT,
			               "no request can run: give the keys and values more memory (--memory)");
		rc = look(b, i, seen, err);
	}
	return rc;
}

static int resumed(const struct seen *seen, int depth, struct err *err)
{
	return seen->cached == depth ?
	               0 :
	               err_set(err, E_LIMIT, "of the %d tokens before, %d were kept: give it more memory", depth,
	                       seen->cached);
}

/* ---- measurements ---- */

/* Computes what comes before once, or makes it up, so that it is kept. */
static int prepare(struct bench *b, const struct bench_row *r, struct err *err)
{
	int dropped, rc = engine_prefix_drop(b->s.engine, &(struct prefix_spot){ 0 }, &dropped);
	struct bench_fill fill;

	if (b->o->fill)
		bench_fill_begin(&fill, b->s.model);
	for (int i = 0; i < r->batch && r->depth && !rc; i++) {
		struct seen seen = { .cached = -1 };

		rc = submit(b, i, r, 1, 1, err);
		if (!rc)
			rc = until_first(b, 0, &seen, err);
		drop_all(b);
	}
	if (b->o->fill)
		bench_fill_end(&fill, b->s.model);
	return rc;
}

/* The clock of a run, and what else it counts. */
struct took {
	struct stream_stats experts;
	struct row_stats tables;
	int64_t ns;
	double steps, joins;
	double tokens, drafted, accepted;
	double joules; /* below 0: not counted */
};

static double drafted(const struct engine_stats *st)
{
	double n = 0;

	for (int i = 0; i < DRAFTERS_MAX; i++)
		n += (double)st->drafter[i].drafted;
	return n;
}

static double accepted(const struct engine_stats *st)
{
	double n = 0;

	for (int i = 0; i < DRAFTERS_MAX; i++)
		n += (double)st->drafter[i].accepted;
	return n;
}

/* The clocks and counters are of the processor's operations: a device's calls return before their work is done. */
static void begin_profile(struct bench *b)
{
	if (b->s.be == b->s.cpu)
		profile_start(&b->profile, b->s.be, backend_cpu_choices(b->s.be));
}

static void end_profile(struct bench *b)
{
	if (b->s.be->profile)
		profile_stop(&b->profile, b->s.be);
}

static void start(struct bench *b, struct took *t)
{
	struct engine_stats st;

	if (b->s.be->profile) { /* what came before is not of it */
		profile_stop(&b->profile, b->s.be);
		begin_profile(b);
	}
	engine_stats(b->s.engine, &st);
	energy_begin(&b->energy);
	*t = (struct took){ .drafted = -drafted(&st),
		            .accepted = -accepted(&st),
		            .steps = (double)st.steps,
		            .joins = (double)backend_cpu_joins(b->s.cpu),
		            .experts = st.experts,
		            .tables = st.tables,
		            .ns = clock_monotonic_ns() };
}

static void stop(struct bench *b, struct took *t)
{
	struct engine_stats st;

	t->ns = clock_monotonic_ns() - t->ns;
	t->joules = energy_joules(&b->energy);
	engine_stats(b->s.engine, &st);
	t->steps = (double)st.steps - t->steps;
	t->drafted += drafted(&st);
	t->accepted += accepted(&st);
	t->joins = (double)backend_cpu_joins(b->s.cpu) - t->joins;
	st.experts.used -= t->experts.used;
	st.experts.hits -= t->experts.hits;
	st.experts.reads -= t->experts.reads;
	st.experts.read_bytes -= t->experts.read_bytes;
	st.experts.wait_ns -= t->experts.wait_ns;
	st.experts.ahead -= t->experts.ahead;
	st.experts.ahead_used -= t->experts.ahead_used;
	t->experts = st.experts;
	st.tables.read_bytes -= t->tables.read_bytes;
	st.tables.wait_ns -= t->tables.wait_ns;
	t->tables = st.tables;
}

static void add_experts(struct bench_experts *x, const struct took *t)
{
	x->slots = t->experts.slots;
	x->of = t->experts.experts;
	x->seconds += (double)t->ns / 1e9;
	x->used += (double)t->experts.used;
	x->hits += (double)t->experts.hits;
	x->reads += (double)t->experts.reads;
	x->bytes += (double)t->experts.read_bytes;
	x->wait += (double)t->experts.wait_ns / 1e9;
	x->ahead += (double)t->experts.ahead;
	x->ahead_used += (double)t->experts.ahead_used;
}

static void add_tables(struct bench_tables *x, const struct took *t)
{
	x->tables = t->tables.tables;
	x->seconds += (double)t->ns / 1e9;
	x->bytes += (double)t->tables.read_bytes;
	x->wait += (double)t->tables.wait_ns / 1e9;
}

static int run_prompt(struct bench *b, const struct bench_row *r, struct took *t, struct err *err)
{
	struct seen seen = { .cached = -1 };
	int rc;

	start(b, t);
	rc = submit(b, 0, r, r->n_prompt, 1, err);
	if (!rc)
		rc = until_first(b, 0, &seen, err);
	stop(b, t);
	t->tokens = r->n_prompt;
	return rc ? rc : resumed(&seen, r->depth, err);
}

static int run_decode(struct bench *b, const struct bench_row *r, struct took *t, struct err *err)
{
	struct seen seen[BATCH_MOST];
	int rc = 0, tokens = 0, first = 0;

	for (int i = 0; i < r->batch; i++)
		seen[i] = (struct seen){ .cached = -1 };
	for (int i = 0; i < r->batch && !rc; i++)
		rc = submit(b, i, r, 1, r->n_gen + SLACK + (r->drafts ? DRAFT_MAX : 0), err);
	for (int i = 0; i < r->batch && !rc; i++) {
		rc = until_first(b, i, &seen[i], err);
		if (!rc)
			rc = resumed(&seen[i], r->depth, err);
	}
	for (int i = 0; i < r->batch && !rc; i++) {
		rc = look(b, i, &seen[i], err);
		seen[i].tokens = 0;
	}
	start(b, t);
	/* With guesses some sequences are ahead of others: until the first has its tokens. */
	for (int k = 0; k < r->n_gen && first < r->n_gen && !rc; k++) {
		engine_step(b->s.engine);
		for (int i = 0; i < r->batch && r->drafts && !rc; i++) {
			rc = look(b, i, &seen[i], err);
			first = seen[i].tokens > first ? seen[i].tokens : first;
		}
	}
	stop(b, t);
	for (int i = 0; i < r->batch && !rc; i++) {
		rc = look(b, i, &seen[i], err);
		tokens += seen[i].tokens;
	}
	t->tokens = tokens;
	return rc || r->drafts || tokens == r->batch * r->n_gen ?
	               rc :
	               err_set(err, E_LIMIT, "%d of %d tokens came: give it more memory", tokens, r->batch * r->n_gen);
}

static int run_once(struct bench *b, const struct bench_row *r, struct took *t, struct err *err)
{
	int rc = r->n_gen ? run_decode(b, r, t, err) : run_prompt(b, r, t, err);

	drop_all(b);
	return rc;
}

/* ---- rows ---- */

static double most(double a, double b)
{
	return a > b ? a : b;
}

/* The best of what was measured before and after the row. */
static void take_ceilings(struct bench *b, struct bench_row *r)
{
	struct ceilings before = b->ceilings;

	b->ceilings = (struct ceilings){ 0 };
	ceilings_measure(&b->ceilings, b->pool, b->s.cpu);
	r->before = before;
	r->after = b->ceilings;
	r->ceilings.read = most(before.read, b->ceilings.read);
	r->ceilings.int8 = most(before.int8, b->ceilings.int8);
	r->ceilings.int8_vectors = most(before.int8_vectors, b->ceilings.int8_vectors);
	r->ceilings.bf16 = most(before.bf16, b->ceilings.bf16);
	r->ceilings.f32 = most(before.f32, b->ceilings.f32);
	r->ceilings.join = before.join < b->ceilings.join ? before.join : b->ceilings.join;
}

/* First a run with the counters, which also brings caches and pages in and so says
 * nothing of time; then those that count; then perhaps one with the clocks. */
static int run_row(struct bench *b, struct bench_row *r, struct err *err)
{
	int rc = prepare(b, r, err), n = b->o->repeat;

	r->rate = xcalloc((size_t)n, sizeof *r->rate);
	for (int i = 0; i < 1 + n + b->o->profile && !rc; i++) {
		bool counted = i == 0 || i == 1 + n;
		struct took t;

		if (counted)
			begin_profile(b);
		rc = run_once(b, r, &t, err);
		if (counted) {
			end_profile(b);
			r->cost = b->profile;
			r->cost_ns = t.ns;
			r->tokens = t.tokens;
			r->steps = t.steps;
			r->joins = t.joins;
		} else {
			r->rate[r->n_run++] = t.tokens * 1e9 / (double)t.ns;
			r->all_tokens += t.tokens;
			add_experts(&r->experts, &t);
			add_tables(&r->tables, &t);
			r->all_steps += t.steps;
			r->drafted += t.drafted;
			r->accepted += t.accepted;
			r->joules = t.joules < 0 || r->joules < 0 ? -1 : r->joules + t.joules;
		}
	}
	sort_doubles(r->rate, (size_t)r->n_run);
	if (!rc)
		take_ceilings(b, r);
	if (!rc && r->experts.slots) {
		struct stream_stats now;

		b->s.be->ops->stream_stats(b->s.be, &now);
		/* A row may get more than the probe, where others share the disk or the machine's host meters it. */
		r->experts.disk = most(bench_disk(b->s.store, now.slot_bytes, b->seed),
		                       r->experts.bytes / r->experts.seconds);
	}
	return rc;
}

static int show_row(struct bench *b, struct bench_row *r, int *n_row, struct err *err)
{
	struct buf out;
	int rc = run_row(b, r, err);

	buf_init(&out);
	if (!rc && b->o->json) {
		buf_puts(&out, (*n_row)++ ? ",\n" : "[");
		bench_print_json(&b->s, b->o->profile, r, &out);
	} else if (!rc) {
		bench_print_row(r, &out);
		if (b->o->profile)
			bench_print_profile(r, &out);
	}
	fwrite(out.p, 1, out.n, stdout);
	fflush(stdout);
	buf_fini(&out);
	return rc;
}

/* The row, and once more with guesses. */
static int show(struct bench *b, struct bench_row r, int *n_row, struct err *err)
{
	struct bench_row more = r;
	int rc = show_row(b, &r, n_row, err);

	if (!rc && r.n_gen && b->s.drafts.n) {
		more.drafts = true;
		more.plain = bench_median(&r);
		rc = show_row(b, &more, n_row, err);
	}
	free(r.rate);
	free(more.rate);
	return rc;
}

static int run_all(struct bench *b, struct err *err)
{
	const struct bench_options *o = b->o;
	struct buf head;
	int rc = 0, n_row = 0;

	buf_init(&head);
	bench_print_head(&b->s, &head);
	if (!o->json)
		fwrite(head.p, 1, head.n, stdout);
	buf_fini(&head);
	ceilings_measure(&b->ceilings, b->pool, b->s.cpu);
	for (int d = 0; d < o->depth.n; d++) {
		int depth = o->depth.v[d];

		for (int i = 0; i < o->prompt.n && !rc; i++)
			if (o->prompt.v[i])
				rc = show(b,
				          (struct bench_row){ .n_prompt = o->prompt.v[i], .depth = depth, .batch = 1 },
				          &n_row, err);
		for (int i = 0; i < o->output.n && !rc; i++)
			for (int k = 0; k < o->batch.n && !rc && o->output.v[i]; k++)
				rc = show(b,
				          (struct bench_row){
						  .n_gen = o->output.v[i], .depth = depth, .batch = o->batch.v[k] },
				          &n_row, err);
	}
	if (o->json)
		puts(n_row ? "]" : "[]");
	return rc;
}

static int largest(const struct ints *v)
{
	int n = 0;

	for (int i = 0; i < v->n; i++)
		n = v->v[i] > n ? v->v[i] : n;
	return n;
}

/* Sequences and positions for the largest row, and as many again for what is kept. */
static int complete(const struct options *given, struct options *o, struct err *err)
{
	int64_t prompt = largest(&given->bench.prompt), output = largest(&given->bench.output) + SLACK + DRAFT_MAX + 1;
	int64_t ctx = largest(&given->bench.depth) + (prompt > output ? prompt : output) + 1;

	*o = *given;
	if (ctx > INT_MAX)
		return err_set(err, E_ARG, "%lld positions are too many", (long long)ctx);
	o->load.ctx_size = (int)ctx;
	o->load.parallel = 2 * largest(&given->bench.batch) + 1;
	o->load.queue = o->load.parallel;
	if (o->load.draft.kind == DRAFT_NONE && (o->load.draft.model.n || o->load.draft.pretend > 0))
		o->load.draft.kind = DRAFT_AUTO;
	return 0;
}

int cmd_bench(const struct options *given)
{
	struct options o;
	struct bench b = { .o = &o.bench };
	struct err err;
	int rc = complete(given, &o, &err);

	if (!rc && o.bench.paired)
		return bench_paired(&o.bench, &err) ? cli_fail("bench", &err) : 0;
	energy_open(&b.energy, ENERGY_ROOT);
	if (!rc)
		rc = session_open(&b.s, &o.load, LOAD_ENGINE | LOAD_BY_HAND | LOAD_HUGE_NOW, &err);
	if (!rc) {
		b.ids = xcalloc((size_t)o.load.ctx_size, sizeof *b.ids);
		b.pool = pool_new(b.s.cpu->threads);
		rc = run_all(&b, &err);
		drop_all(&b);
	}
	pool_free(b.pool);
	session_close(&b.s);
	free(b.ids);
	return rc ? cli_fail("bench", &err) : 0;
}
