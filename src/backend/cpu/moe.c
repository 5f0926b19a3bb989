/* moe.c - mixture of experts: route, group the rows by expert, multiply, and sum
 * each row's experts in the order of their rank.
 *
 * An expert's product of a row does not depend on which other rows chose it, so
 * the grouping changes no bit.  Nor does it depend on when it is made: experts that are
 * read from disk (slots.h) come in several waves, those first that are there, and the
 * sum waits for all of them. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/route.h"
#include "backend/cpu/slots.h"
#include "base/alloc.h"
#include "base/fault.h"
#include "base/log.h"

/* Columns of a row that are summed at a time; the indices in c->acts of the rows grouped by expert, and of rows times
 * weights. */
enum { COMBINE_COLS = 512, BY_EXPERT = ACTS_MAX - 1, WEIGHTED = ACTS_MAX - 2 };

/* Experts that are computed together. */
struct wave {
	int *first, *used; /* [n + 1] where the rows of each begin, and [n] which */
	int *index;        /* [n] their places among all that are used */
	int *row;          /* rows of the input, by expert */
	int n, begin;      /* begin: rows of the waves before */
};

struct mix {
	struct cpu_backend *c;
	struct pass *p;
	const struct moe *m;
	const float *in, *by; /* rows of cols, and of the router's cols */
	float *out;
	bool add;
	int n, cols;
	float *logit;              /* [n][experts], then probabilities */
	float *weight;             /* [n][top_k] */
	int *expert, *place;       /* [n][top_k]: expert, and where in the order of experts */
	int *row, *pick;           /* [n * top_k] in that order: row, and which of the row's picks */
	int *first, *used, n_used; /* of the experts that have rows: where they begin, and which */
	struct wave wave;
	struct acts *acts;   /* [n_used] */
	struct product *job; /* [n_used + 1] */
	float *weighted; /* [n * top_k][cols] rows times the weights of their picks, where experts read that; or NULL */
	float *gated, *down; /* [n * top_k][inner or cols] in the order of experts */
	float *shared_gated, *shared_down, *shared_logit;
};

/* One row's choice, by its logits; tok: its token. */
static void route_one(struct cpu_backend *c, const struct moe *m, float *logit, int32_t tok, int *expert, float *weight)
{
	const int32_t *fixed = m->by_token ? m->by_token + (size_t)(tok > 0 ? tok : 0) * (size_t)m->top_k : NULL;

	if (m->route == ROUTE_ROOT)
		c->recur->softplus(logit, logit, m->experts);
	route_row(c->op, m, logit, fixed, expert, weight, weight + m->top_k);
}

static void route(void *ctx, int begin, int end)
{
	struct mix *d = ctx;
	size_t experts = (size_t)d->m->experts, k = (size_t)d->m->top_k;
	int *expert = cpu_my_scratch(d->c);
	float *weight = (float *)(expert + k);

	for (int i = begin; i < end; i++) {
		size_t r = (size_t)i;

		/* First to where no other thread writes nearby. */
		route_one(d->c, d->m, d->logit + r * experts, d->p->tok ? d->p->tok[i] : 0, expert, weight);
		memcpy(d->expert + r * k, expert, k * sizeof *expert);
		memcpy(d->weight + r * k, weight, k * sizeof *weight);
	}
}

/* Counting sort of (row, rank) by expert. */
static void group_rows(struct mix *d)
{
	int k = d->m->top_k, picks = d->n * k, experts = d->m->experts, *at = d->first, begin = 0;

	memset(at, 0, (size_t)experts * sizeof *at);
	for (int i = 0; i < picks; i++)
		at[d->expert[i]]++;
	for (int e = 0; e < experts; e++) {
		int rows = at[e];

		at[e] = begin;
		begin += rows;
	}
	for (int i = 0; i < picks; i++) {
		d->place[i] = at[d->expert[i]]++;
		d->row[d->place[i]] = i / k;
		d->pick[d->place[i]] = i;
	}
	/* at[e] is where expert e ends now. */
	begin = d->n_used = 0;
	for (int e = 0; e < experts; e++) {
		int end = at[e];

		if (end > begin) {
			d->used[d->n_used] = e;
			d->first[d->n_used++] = begin;
			begin = end;
		}
	}
	d->first[d->n_used] = picks;
}

/* The matrix of the wave's i-th expert. */
static const struct weight *matrix(const struct mix *d, int i, enum slab_part part)
{
	if (d->m->slots)
		return &slots_view(d->m->slots, d->wave.index[i])->w[part];
	return slab_weight(d->m, d->wave.used[i], part);
}

/* One product for each expert of the wave, from its rows of d->acts; like: bias, activation and factor of the first
 * expert's, of which each expert has its own.  part: the factor's, if there is one, is SLAB_UP.  outputs: of a row. */
static struct product *expert_jobs(struct mix *d, enum slab_part part, float *out, int outputs, struct product like)
{
	const struct wave *v = &d->wave;
	struct product *job = d->job;

	for (int i = 0; i < v->n; i++) {
		size_t e = (size_t)v->used[i];

		*job = like;
		job->w = matrix(d, i, part);
		job->x = job->x_up = &d->acts[i];
		job->r1 = d->acts[i].rows;
		job->out = out + (size_t)(v->begin + v->first[i]) * (size_t)outputs;
		job->ld = (size_t)outputs;
		job->up = like.up ? matrix(d, i, SLAB_UP) : NULL;
		job->bias = like.bias ? like.bias + e * (size_t)job->w->rows : NULL;
		job->bias_up = like.bias_up ? like.bias_up + e * (size_t)job->w->rows : NULL;
		job++;
	}
	return job;
}

static void combine(void *ctx, int begin, int end)
{
	struct mix *d = ctx;
	const struct op_table *op = d->c->op;
	int k = d->m->top_k, blocks = (d->cols + COMBINE_COLS - 1) / COMBINE_COLS;
	size_t cols = (size_t)d->cols;
	float t[COMBINE_COLS];

	for (int i = begin; i < end; i++) {
		int r = i / blocks, o = i % blocks * COMBINE_COLS;
		int n = d->cols - o < COMBINE_COLS ? d->cols - o : COMBINE_COLS;

		memset(t, 0, sizeof t);
		for (int j = r * k; j < (r + 1) * k; j++)
			op->axpy(t, d->weight[j], d->down + (size_t)d->place[j] * cols + (size_t)o, n);
		if (d->shared_down) {
			float g = 1.0f;

			if (d->shared_logit)
				op->sigmoid(&g, d->shared_logit + r, 1);
			op->axpy(t, g, d->shared_down + (size_t)r * cols + (size_t)o, n);
		}
		if (d->add)
			op->add(d->out + (size_t)r * cols + (size_t)o, t, n);
		else
			memcpy(d->out + (size_t)r * cols + (size_t)o, t, (size_t)n * sizeof *t);
	}
}

static size_t room_bytes(const struct moe *m, int n, int n_cols)
{
	size_t rows = (size_t)n, picks = rows * (size_t)m->top_k, cols = (size_t)n_cols;
	size_t experts = (size_t)m->experts, inner = (size_t)m->inner, shared = (size_t)m->shared_inner;
	size_t each = sizeof(struct acts) + sizeof(struct product) + 5 * sizeof(int);
	size_t weighted = m->weight_input ? picks * cols : 0;

	return 4 * (weighted + rows * (experts + shared + cols + 1) + picks * (6 + inner + cols)) +
	       (experts + 1) * each + 18 * 64;
}

size_t backend_cpu_own_bytes(struct moe *const *mix, int n_mix, int n, int cols)
{
	size_t most = 0;

	for (int i = 0; i < n_mix; i++) {
		/* Rows by expert are quantised once more, in codes and in tiles of them. */
		size_t picks = (size_t)n * (size_t)mix[i]->top_k, acts = 2 * picks * (size_t)cols;
		size_t own = room_bytes(mix[i], n, cols) + acts;

		most = own > most ? own : most;
	}
	return most;
}

static void mix_room(struct mix *d)
{
	const struct moe *m = d->m;
	size_t rows = (size_t)d->n, picks = rows * (size_t)m->top_k, cols = (size_t)d->cols;
	size_t experts = (size_t)m->experts, inner = (size_t)m->inner, shared = (size_t)m->shared_inner;
	uint8_t *p = room_get(&d->c->work, room_bytes(m, d->n, d->cols));

	d->acts = room_take(&p, experts * sizeof *d->acts);
	d->job = room_take(&p, (experts + 1) * sizeof *d->job);
	d->first = room_take(&p, 4 * (experts + 1));
	d->used = room_take(&p, 4 * experts);
	d->logit = room_take(&p, 4 * rows * experts);
	d->weight = room_take(&p, 4 * picks);
	d->expert = room_take(&p, 4 * picks);
	d->place = room_take(&p, 4 * picks);
	d->row = room_take(&p, 4 * picks);
	d->pick = room_take(&p, 4 * picks);
	d->wave.first = room_take(&p, 4 * (experts + 1));
	d->wave.used = room_take(&p, 4 * experts);
	d->wave.index = room_take(&p, 4 * experts);
	d->wave.row = room_take(&p, 4 * picks);
	d->weighted = m->weight_input ? room_take(&p, 4 * picks * cols) : NULL;
	d->gated = room_take(&p, 4 * picks * inner);
	d->down = room_take(&p, 4 * picks * cols);
	if (m->shared_inner) {
		d->shared_gated = room_take(&p, 4 * rows * shared);
		d->shared_down = room_take(&p, 4 * rows * cols);
		d->shared_logit = m->shared_router ? room_take(&p, 4 * rows) : NULL;
	}
}

/* Rows of weight_input: one for each pick, which what the experts give is not multiplied with again. */
static void weigh_inputs(struct mix *d)
{
	int picks = d->n * d->m->top_k;
	size_t cols = (size_t)d->cols;

	for (int i = 0; i < picks; i++) {
		float *to = d->weighted + (size_t)i * cols;

		memcpy(to, d->in + (size_t)(i / d->m->top_k) * cols, cols * sizeof *to);
		d->c->op->scale(to, d->weight[i], d->cols);
		d->weight[i] = 1.0f;
	}
	memcpy(d->row, d->pick, (size_t)picks * sizeof *d->row);
}

/* Always in float: a near tie of experts must not depend on eight bits of an activation. */
static void route_all(struct mix *d)
{
	const struct moe *m = d->m;
	struct product job[2];
	struct acts a;
	int n = 0;

	cpu_acts(d->c, &a, d->by, d->n, m->router->cols, 0, 0);
	job[n++] = (struct product){ .w = m->router, .x = &a, .r1 = d->n, .out = d->logit, .ld = (size_t)m->experts };
	if (d->shared_logit)
		job[n++] = (struct product){
			.w = m->shared_router, .x = &a, .r1 = d->n, .out = d->shared_logit, .ld = 1
		};
	cpu_products(d->c, ARITH_F32, job, n);
	cpu_scratch(d->c, (size_t)m->top_k * (sizeof(int) + sizeof(float)) + route_scratch_bytes(m));
	cpu_range(d->c, route, d, d->n, 1);
	group_rows(d);
	if (m->weight_input)
		weigh_inputs(d);
}

/* The shared expert's two products, of all rows. */
static struct product shared_in(struct mix *d, struct acts *acts, int *n_acts, enum arith arith)
{
	const struct moe *m = d->m;
	const struct weight *w = m->shared_gate ? m->shared_gate : m->shared_up;
	struct product job = {
		.w = w,
		.x = cpu_acts_for(d->c, acts, n_acts, w, arith, d->in, d->n),
		.r1 = d->n,
		.out = d->shared_gated,
		.ld = (size_t)m->shared_inner,
		.act = m->shared_act.kind ? m->shared_act : m->act,
	};

	if (m->shared_gate) {
		job.up = m->shared_up;
		job.x_up = cpu_acts_for(d->c, acts, n_acts, m->shared_up, arith, d->in, d->n);
	}
	return job;
}

static struct product shared_out(struct mix *d, struct acts *acts, int *n_acts, enum arith arith)
{
	const struct weight *w = d->m->shared_down;

	return (struct product){
		.w = w,
		.x = cpu_acts_for(d->c, acts, n_acts, w, arith, d->shared_gated, d->n),
		.r1 = d->n,
		.out = d->shared_down,
		.ld = (size_t)d->cols,
	};
}

/* ---- experts, a wave at a time ---- */

/* Rows whose expert could not be read are worth nothing, and so are the items that they belong to. */
static void spoil(struct mix *d, int used)
{
	struct pass *p = d->p;

	if (!p->spoil.items) {
		log_error("%s", slots_error(d->m->slots)->msg);
		fault_abort();
	}
	if (!p->spoil.why.code)
		p->spoil.why = *slots_error(d->m->slots);
	for (int i = d->first[used]; i < d->first[used + 1]; i++) {
		p->spoil.items[p->item[d->pick[i] / d->m->top_k]] = true;
		memset(d->down + (size_t)d->place[d->pick[i]] * (size_t)d->cols, 0, (size_t)d->cols * sizeof *d->down);
	}
}

/* Rows of the experts index[n] among the used ones, behind those of the waves before.  The floats of an expert that
 * is lost have a place as well. */
static void wave_of(struct mix *d, const int *index, int n)
{
	struct wave *v = &d->wave;
	int rows = 0;

	v->begin += v->n ? v->first[v->n] : 0;
	v->n = 0;
	for (int k = 0; k < n; k++) {
		int i = index[k], many = d->first[i + 1] - d->first[i];

		v->first[v->n] = rows;
		v->used[v->n] = d->used[i];
		v->index[v->n++] = i;
		memcpy(v->row + rows, d->row + d->first[i], (size_t)many * sizeof *v->row);
		for (int r = 0; r < many; r++)
			d->place[d->pick[d->first[i] + r]] = v->begin + rows + r;
		rows += many;
	}
	v->first[v->n] = rows;
}

/* Keeps the experts of index[n] that could be read; marks the rows of the others as spoiled, at places of their own. */
static int sort_out(struct mix *d, int *index, int n)
{
	int kept = 0, lost[1];

	for (int k = 0; k < n; k++) {
		if (slots_view(d->m->slots, index[k])) {
			index[kept++] = index[k];
			continue;
		}
		lost[0] = index[k];
		wave_of(d, lost, 1);
		spoil(d, index[k]);
	}
	return kept;
}

/* Both products of the wave's experts; with the shared expert's if it is the first. */
static void compute(struct mix *d, bool with_shared)
{
	const struct moe *m = d->m;
	const struct wave *v = &d->wave;
	struct cpu_backend *c = d->c;
	enum slab_part in = m->gate ? SLAB_GATE : SLAB_UP;
	enum arith arith = d->p->arith;
	struct product like = { .act = m->act,
		                .bias = m->gate ? m->gate_bias : m->up_bias,
		                .pairs = m->gate && !m->up,
		                .up = m->gate ? m->up : NULL };
	struct acts acts[ACTS_MAX], weighted,
		gated = { .rows = v->first[v->n], .cols = m->inner, .ld = (size_t)m->inner };
	const struct weight *first = slab_weight(m, 0, in);
	const struct acts *from;
	struct product *job;
	int n_acts = 0;

	like.bias_up = like.up ? m->up_bias : NULL;
	if (d->weighted) {
		cpu_acts(c, &weighted, d->weighted, d->n * m->top_k, d->cols,
		         cpu_act_group(c, first, arith, d->n * m->top_k), WEIGHTED);
		from = &weighted;
	} else {
		from = cpu_acts_for(c, acts, &n_acts, first, arith, d->in, d->n);
	}
	cpu_acts_runs(c, d->acts, v->first, v->n, from, v->row, cpu_act_group(c, first, arith, ACTS_TILED), BY_EXPERT);
	job = expert_jobs(d, in, d->gated, m->inner, like);
	if (with_shared)
		*job++ = shared_in(d, acts, &n_acts, arith);
	cpu_products(c, arith, d->job, (int)(job - d->job));

	gated.f = d->gated + (size_t)v->begin * (size_t)m->inner;
	cpu_acts_runs(c, d->acts, v->first, v->n, &gated, NULL, cpu_act_group(c, m->down, arith, ACTS_TILED),
	              BY_EXPERT);
	job = expert_jobs(d, SLAB_DOWN, d->down, d->cols, (struct product){ .bias = m->down_bias });
	n_acts = 0;
	if (with_shared)
		*job++ = shared_out(d, acts, &n_acts, arith);
	cpu_products(c, arith, d->job, (int)(job - d->job));
}

/* The arrays that group_rows made are the only wave. */
static void compute_all(struct mix *d)
{
	d->wave = (struct wave){ .first = d->first, .used = d->used, .row = d->row, .n = d->n_used };
	compute(d, d->m->shared_inner);
}

/* Hints to the slots which experts the next layer will take: its router is asked with this layer's input, and at least
 * half of its choices are those that it will make of its own.  Asked for behind what this layer misses and before anything
 * of it is computed, they are read while it is and while the next layer's attention is.  Uses d->logit, whose choices are made,
 * and d->wave. */
static void guess_next(struct mix *d)
{
	enum { FEW = 4 }; /* rows; of more, guesses are most of the experts */
	bool few = d->n <= FEW;
	struct slot_layer *next = few ? slots_guessing(d->m->slots) : NULL;
	const struct moe *m = next ? slots_mixture(next) : NULL;
	const struct weight *router;
	enum arith arith = ARITH_F32;
	int *expert = d->wave.used, n = 0;
	struct product job;
	struct acts a;

	if (!m || m->experts != d->m->experts || m->top_k != d->m->top_k || m->router->cols != d->m->router->cols)
		return;
	router = slots_router(next);
	if (router != m->router)
		arith = ARITH_FAST;
	cpu_acts(d->c, &a, d->by, d->n, router->cols, cpu_act_group(d->c, router, arith, d->n), 0);
	job = (struct product){ .w = router, .x = &a, .r1 = d->n, .out = d->logit, .ld = (size_t)m->experts };
	cpu_products(d->c, arith, &job, 1);
	cpu_scratch(d->c, (size_t)m->top_k * (sizeof(int) + sizeof(float)) + route_scratch_bytes(m));
	for (int i = 0; i < d->n; i++) {
		int *pick = cpu_my_scratch(d->c);
		float *weight = (float *)(pick + m->top_k);

		route_one(d->c, m, d->logit + (size_t)i * (size_t)m->experts, d->p->tok ? d->p->tok[i] : 0, pick,
		          weight);
		for (int k = 0; k < m->top_k && n < m->experts; k++)
			expert[n++] = pick[k];
	}
	slots_guess(next, expert, n);
}

static void compute_waves(struct mix *d)
{
	struct slot_layer *y = d->m->slots;
	int *index = xmalloc((size_t)d->m->experts * sizeof *index), n;
	bool with_shared = d->m->shared_inner;

	slots_visit(y, d->used, d->n_used);
	guess_next(d);
	while ((n = slots_ready(y, index))) {
		n = sort_out(d, index, n);
		if (n) {
			slots_pack(y, index, n);
			wave_of(d, index, n);
			compute(d, with_shared);
			with_shared = false;
			slots_release(y, index, n);
		}
	}
	if (with_shared) { /* no expert could be read */
		wave_of(d, NULL, 0);
		compute(d, true);
	}
	free(index);
}

static void check(const struct moe *m)
{
	assert(m->top_k >= 1 && m->top_k <= m->experts && (m->gate || m->up));
	assert(!act_needs_factor(m->act.kind) || m->gate);
	assert(!m->groups || (m->experts % m->groups == 0 && m->groups_used >= 1 && m->groups_used <= m->groups &&
	                      m->top_k <= m->experts / m->groups * m->groups_used));
}

void cpu_moe(struct pass *p, float *out, bool add, const struct moe *m, const float *in, const float *by, int n,
             int cols)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	struct mix d = {
		.c = c, .p = p, .m = m, .in = in, .by = by ? by : in, .out = out, .add = add, .n = n, .cols = cols
	};

	if (n <= 0)
		return;
	check(m);
	mix_room(&d);
	route_all(&d);
	p->experts_used = d.n_used;
	if (m->slots)
		compute_waves(&d);
	else
		compute_all(&d);
	cpu_range(c, combine, &d, n * ((cols + COMBINE_COLS - 1) / COMBINE_COLS), 2);
}
