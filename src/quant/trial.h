/* trial.h - inside quant/: which of two ways with the same bits is faster on this processor. */
#ifndef QUANT_TRIAL_H
#define QUANT_TRIAL_H

#include <stdatomic.h>
#include <stdbool.h>

/* Does it for some microseconds; returns what it took, in a unit of its own. */
typedef double trial_fn(void);
/* way takes more than `by` times what other takes: by the best of some tries of each the first time it is asked, by
 * *known (zero at first, one per question) then.  Any thread: should two measure at once, each has its own answer that once. */
bool trial_slower(atomic_int *known, trial_fn *way, trial_fn *other, double by);

#endif
