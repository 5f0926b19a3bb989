/* dev_moe.c - mixtures of experts.  What a router chooses stays on the device: launches are as many as the choice may need at
 * most, and those that it does not need find units without rows (kernels/moe.cl, places.cl). */
#include <assert.h>

#include "backend/device/dev.h"

enum { EXPERTS = 1024, CHOICES = 64 }; /* of moe.cl */

struct mix {
	struct dev *d;
	const struct moe *m;
	enum arith arith;
	int n, cols, picks, first_out;                         /* first_out: outputs of an expert's first product */
	struct dmem logit, weight, expert, place, index, unit; /* by row, by pick, by place, by unit */
	struct dmem weighted, first, factor, gated, given;     /* by place; weighted by pick */
	struct dmem shared, shared_factor, shared_given, shared_logit;
	int size; /* of the units that there are; 0: none yet */
};

static bool served(struct dev *d, const struct moe *m)
{
	if (m->by_token)
		dev_refuse(d, "experts that tokens choose");
	else if (m->slots)
		dev_refuse(d, "experts on disk");
	else if (m->experts > EXPERTS || m->top_k > CHOICES || m->groups > CHOICES)
		dev_refuse(d, "mixtures of %d experts in %d groups, %d of a row", m->experts, m->groups, m->top_k);
	else
		return true;
	return false;
}

static struct dmem take(size_t *at, struct dmem room, size_t n)
{
	struct dmem m = dmem_at(room, *at);

	*at += (n * sizeof(float) + 255) / 256 * 256;
	return n ? m : (struct dmem){ 0 };
}

/* The memory of a call; returns how many bytes it is. */
static size_t lay_out(struct mix *x, struct dmem room)
{
	const struct moe *m = x->m;
	size_t n = (size_t)x->n, picks = (size_t)x->picks, cols = (size_t)x->cols, inner = (size_t)m->inner, at = 0;
	size_t shared = n * (size_t)m->shared_inner;
	bool pairs = m->gate && !m->up;

	x->logit = take(&at, room, n * (size_t)m->experts);
	x->weight = take(&at, room, picks);
	x->expert = take(&at, room, picks);
	x->place = take(&at, room, picks);
	x->index = take(&at, room, picks);
	x->unit = take(&at, room, 3 * picks);
	x->weighted = take(&at, room, m->weight_input ? picks * cols : 0);
	x->first = take(&at, room, picks * (size_t)x->first_out);
	x->factor = take(&at, room, m->gate && m->up ? picks * inner : 0);
	x->gated = pairs ? take(&at, room, picks * inner) : x->first;
	x->given = take(&at, room, picks * cols);
	x->shared = take(&at, room, shared);
	x->shared_factor = take(&at, room, m->shared_gate ? shared : 0);
	x->shared_given = take(&at, room, shared ? n * cols : 0);
	x->shared_logit = take(&at, room, m->shared_router ? n : 0);
	return at;
}

static void route(struct mix *x, struct dmem by)
{
	struct dev *d = x->d;
	const struct moe *m = x->m;
	struct dev_acts a = { .in = by, .rows = x->n, .cols = m->router->cols };
	const struct moe_shape shape = { .experts = m->experts,
		                         .top_k = m->top_k,
		                         .route = (int)m->route,
		                         .normalise = m->normalise,
		                         .groups = m->groups,
		                         .groups_used = m->groups_used,
		                         .groups_strict = m->groups_strict,
		                         .scale = m->scale,
		                         .norm_eps = m->norm_eps,
		                         .jitter = m->jitter };
	struct dmem s = dev_shape_of(d, &shape, sizeof shape), bias = dev_vector(d, m->router_bias);

	dev_product(d, ARITH_F32, &a, m->router, x->logit, (size_t)m->experts, NULL, false, NULL);
	if (m->shared_router)
		dev_product(d, ARITH_F32, &a, m->shared_router, x->shared_logit, 1, NULL, false, NULL);
	if (m->route == ROUTE_ROUNDS)
		dev_run(d, "moe", "rounds", DEV_THREADS, x->n, 1,
		        DARGS(darg_mem(x->expert), darg_mem(x->weight), darg_mem(x->logit), darg_mem(s),
		              darg_mem(bias)));
	else
		dev_run(d, "moe", "route", DEV_THREADS, x->n, 1,
		        DARGS(darg_mem(x->expert), darg_mem(x->weight), darg_mem(x->logit), darg_mem(s), darg_mem(bias),
		              darg_mem(dev_vector(d, m->select_bias)), darg_mem(dev_vector(d, m->expert_scale))));
}

/* The product of a stack of experts, with units of the size that it wants. */
static void multiply(struct mix *x, struct dev_acts *a, const struct weight *stack, struct dmem out, const float *bias,
                     struct dmem index)
{
	int experts = x->m->experts, most;
	const struct dev_weight *w = dev_stack_of(x->d, stack, experts, x->arith);
	struct dev_places places = { .unit = x->unit, .index = index, .experts = experts };

	if (!w)
		return;
	places.size = dev_unit_size(w, x->picks / experts);
	most = experts + x->picks / places.size;
	places.units = most < x->picks ? most : x->picks;
	if (places.size != x->size)
		dev_run(x->d, "moe", "by_expert", DEV_THREADS, 1, 1,
		        DARGS(darg_mem(x->place), darg_mem(x->index), darg_mem(x->unit), darg_mem(x->expert),
		              darg_int(x->picks), darg_int(x->m->top_k), darg_int(experts), darg_int(places.size),
		              darg_int(places.units), darg_int(x->m->weight_input)));
	x->size = places.size;
	dev_product(x->d, x->arith, a, stack, out, (size_t)stack->rows, bias, false, &places);
}

/* Computes the experts for the rows that chose them, and the shared expert for all rows. */
static void compute(struct mix *x, struct dmem in)
{
	struct dev *d = x->d;
	const struct moe *m = x->m;
	const struct weight *one = m->shared_gate ? m->shared_gate : m->shared_up;
	struct activation act = m->shared_act.kind ? m->shared_act : m->act;
	struct dev_acts rows = { .in = in, .rows = x->n, .cols = x->cols }, weighted = rows, gated = rows,
			shared = rows;
	struct dev_acts *from = m->weight_input ? &weighted : &rows;
	size_t inner = (size_t)x->picks * (size_t)m->inner, each = (size_t)m->shared_inner;

	if (m->weight_input) {
		weighted.in = x->weighted;
		weighted.rows = x->picks;
		dev_run(d, "moe", "weigh", DEV_THREADS, dev_blocks((size_t)x->cols), x->picks,
		        DARGS(darg_mem(x->weighted), darg_mem(in), darg_mem(x->weight), darg_int(m->top_k),
		              darg_int(x->cols)));
	}
	multiply(x, from, m->gate ? m->gate : m->up, x->first, m->gate ? m->gate_bias : m->up_bias, x->index);
	if (m->gate && m->up)
		multiply(x, from, m->up, x->factor, m->up_bias, x->index);
	if (m->gate && !m->up)
		dev_run(d, "moe", "pairs", DEV_THREADS, dev_blocks(inner), 1,
		        DARGS(darg_mem(x->gated), darg_mem(x->first), darg_int((int)inner), darg_int((int)m->act.kind),
		              darg_float(m->act.alpha), darg_float(m->act.limit)));
	else if (m->gate || m->act.kind)
		dev_activate(d, x->gated, x->factor, inner, &m->act);
	if (m->shared_inner) {
		dev_product(d, x->arith, &rows, one, x->shared, each, NULL, false, NULL);
		if (m->shared_gate)
			dev_product(d, x->arith, &rows, m->shared_up, x->shared_factor, each, NULL, false, NULL);
		if (m->shared_gate || act.kind)
			dev_activate(d, x->shared, x->shared_factor, (size_t)x->n * each, &act);
		shared = (struct dev_acts){ .in = x->shared, .rows = x->n, .cols = m->shared_inner };
		dev_product(d, x->arith, &shared, m->shared_down, x->shared_given, (size_t)x->cols, NULL, false, NULL);
	}
	gated = (struct dev_acts){ .in = x->gated, .rows = x->picks, .cols = m->inner };
	multiply(x, &gated, m->down, x->given, m->down_bias, (struct dmem){ 0 });
}

void dev_moe(struct pass *p, float *out, bool add, const struct moe *m, const float *in, const float *by, int n,
             int cols)
{
	struct dev *d = dev_of(p);
	struct mix x = { .d = d, .m = m, .arith = p->arith, .n = n, .cols = cols, .picks = n * m->top_k };
	struct dmem weight;

	if (n <= 0 || dev_idle(d) || !served(d, m))
		return;
	x.first_out = m->gate ? m->gate->rows : m->up->rows;
	lay_out(&x, dev_room(d, ROOM_MIX, lay_out(&x, (struct dmem){ 0 })));
	route(&x, dev_at(d, by ? by : in));
	compute(&x, dev_at(d, in));
	weight = m->weight_input ? (struct dmem){ 0 } : x.weight;
	dev_run(d, "moe", "combine", DEV_THREADS, dev_blocks((size_t)cols), n,
	        DARGS(darg_mem(dev_at(d, out)), darg_mem(x.given), darg_mem(weight), darg_mem(x.place),
	              darg_mem(x.shared_given), darg_mem(x.shared_logit), darg_int(m->top_k), darg_int(cols),
	              darg_int(add)));
}
