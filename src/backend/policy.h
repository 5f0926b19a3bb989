/* policy.h - which expert gives up its slot: the least by uses that fade.
 *
 * Each expert has a count of the steps that used it, which halves every `half` visits of its layer.  The count is kept
 * whether the expert has a slot or not.  The least count goes first; of equal counts that of the layer which is
 * computed again last, so that a prompt, which uses all experts of all layers, gives up what it has just used.
 *
 * Time is counted in visits of a layer, not in reads: a layer that this step has not come to yet looks no older than
 * one that it has passed.  Compared with others by traces: docs/experts-from-disk.md, "Policy". */
#ifndef BACKEND_POLICY_H
#define BACKEND_POLICY_H

#include <stdbool.h>
#include <stdint.h>

struct policy {
	int layers, now; /* now: the layer visited last */
	int *base;       /* [layers + 1] the first expert of a layer, counted over all */
	int64_t *visit;  /* [layers] */
	struct use {
		double count; /* as of `last` */
		int64_t last; /* the visit of its layer */
	} * use;              /* [all experts] */
	double *fade;         /* by age in visits */
};

/* experts[layers]: of each layer. */
void policy_init(struct policy *p, const int *experts, int layers, double half);
void policy_fini(struct policy *p);
/* The layer is computed now. */
void policy_visit(struct policy *p, int layer);
/* The layer uses this expert: once for each that it uses, whatever the number of rows. */
void policy_use(struct policy *p, int layer, int expert);
/* Its uses, faded up to now. */
double policy_count(const struct policy *p, int layer, int expert);
/* Layers until this one is computed again, 0 for the next. */
static inline int policy_distance(const struct policy *p, int layer)
{
	return (layer - p->now - 1 + p->layers) % p->layers;
}

/* Is the first of two experts with these counts evicted? */
static inline bool policy_before(const struct policy *p, int layer, double count, int layer2, double count2)
{
	return count != count2 ? count < count2 : policy_distance(p, layer) > policy_distance(p, layer2);
}

/* Visits after which a use counts half: chosen by replaying traces. */
enum { POLICY_HALF = 12 };

#endif
