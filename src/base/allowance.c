/* allowance.c - see allowance.h. */
#include "base/allowance.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/json.h"

struct allowance_later {
	void (*drop)(void *p);
	void *p;
	struct allowance_later *next;
};

static _Thread_local struct allowance *current;

void allowance_begin(struct allowance *w, size_t n, const atomic_bool *gone)
{
	*w = (struct allowance){
		.left = ALLOWANCE_STEPS + (uint64_t)n * ALLOWANCE_PER_BYTE,
		.containers = (size_t)ALLOWANCE_TEXTS * JSON_CONTAINERS_MAX,
		.values = (size_t)ALLOWANCE_TEXTS * JSON_VALUES_MAX,
		.gone = gone,
	};
	current = w;
}

void allowance_end(void)
{
	current = NULL;
}

bool allowance_spend(uint64_t steps)
{
	struct allowance *w = current;

	if (!w)
		return true;
	if (!w->why && w->gone && atomic_load_explicit(w->gone, memory_order_relaxed))
		w->why = "nothing waits for it any more";
	if (!w->why && steps > w->left)
		w->why = "it takes too much work to prepare";
	w->left -= steps < w->left ? steps : w->left;
	return !w->why;
}

uint64_t allowance_left(void)
{
	return current ? current->left : 0;
}

struct allowance *allowance_part_begin(struct allowance *part, uint64_t steps)
{
	struct allowance *whole = current;

	if (!whole)
		return NULL;
	*part = (struct allowance){ .left = steps, .gone = whole->gone, .why = whole->why };
	current = part;
	return whole;
}

void allowance_part_end(struct allowance *part, struct allowance *whole)
{
	if (!whole)
		return;
	current = whole;
	allowance_settle(part);
}

void allowance_grant(uint64_t steps)
{
	if (current)
		current->left += steps;
}

bool allowance_on(void)
{
	return current != NULL;
}

bool allowance_read(size_t containers, size_t values)
{
	struct allowance *w = current;

	if (!w)
		return true;
	if (!w->why && (containers > JSON_CONTAINERS_MAX || values > JSON_VALUES_MAX || containers > w->containers ||
	                values > w->values))
		w->why = "it holds more JSON values, those inside of strings included, than one request may";
	if (w->why)
		return false;
	w->containers -= containers;
	w->values -= values;
	return true;
}

const char *allowance_why(void)
{
	return current ? current->why : NULL;
}

bool allowance_free_later(void (*drop)(void *p), void *p)
{
	struct allowance *w = current;
	struct allowance_later *r;

	if (!w || !w->why)
		return false;
	r = xmalloc(sizeof *r);
	*r = (struct allowance_later){ drop, p, w->later };
	w->later = r;
	return true;
}

void allowance_settle(struct allowance *w)
{
	while (w->later) {
		struct allowance_later *r = w->later;

		w->later = r->next;
		r->drop(r->p);
		free(r);
	}
}

struct allowance *allowance_pause(void)
{
	struct allowance *w = current;

	current = NULL;
	return w;
}

void allowance_resume(struct allowance *w)
{
	current = w;
}
