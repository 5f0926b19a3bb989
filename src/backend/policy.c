/* policy.c - see policy.h. */
#include "backend/policy.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"

enum { AGES = 4096 }; /* visits; what is older counts nothing */

void policy_init(struct policy *p, const int *experts, int layers, double half)
{
	*p = (struct policy){ .layers = layers, .now = layers - 1 };
	p->base = xcalloc((size_t)layers + 1, sizeof *p->base);
	for (int i = 0; i < layers; i++)
		p->base[i + 1] = p->base[i] + experts[i];
	p->visit = xcalloc((size_t)layers, sizeof *p->visit);
	p->use = xcalloc((size_t)p->base[layers] + 1, sizeof *p->use);
	p->fade = xcalloc(AGES, sizeof *p->fade);
	for (int i = 0; i < AGES; i++)
		p->fade[i] = exp2(-i / half);
}

void policy_fini(struct policy *p)
{
	free(p->base);
	free(p->visit);
	free(p->use);
	free(p->fade);
	*p = (struct policy){ 0 };
}

void policy_visit(struct policy *p, int layer)
{
	p->now = layer;
	p->visit[layer]++;
}

double policy_count(const struct policy *p, int layer, int expert)
{
	const struct use *u = &p->use[p->base[layer] + expert];
	int64_t age = p->visit[layer] - u->last;

	return age < AGES ? u->count * p->fade[age] : 0;
}

void policy_use(struct policy *p, int layer, int expert)
{
	double count = policy_count(p, layer, expert) + 1;

	p->use[p->base[layer] + expert] = (struct use){ count, p->visit[layer] };
}
