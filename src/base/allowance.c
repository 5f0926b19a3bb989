/* allowance.c - see allowance.h. */
#include "base/allowance.h"

#include "base/json.h"

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
		w->why = "nobody waits for it any more";
	if (!w->why && steps > w->left)
		w->why = "it takes too much work to prepare";
	w->left -= steps < w->left ? steps : w->left;
	return !w->why;
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
