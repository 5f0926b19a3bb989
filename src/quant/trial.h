/* trial.h - inside quant/: which of two ways with the same bits is faster on this processor. */
#ifndef QUANT_TRIAL_H
#define QUANT_TRIAL_H

#include <stdatomic.h>
#include <stdbool.h>

/* Runs one way for some microseconds; returns the time, in any unit that both ways share. */
typedef double trial_fn(void);
/* Does `way` take more than `by` times as long as `other`?  The first call compares the best of some tries of each and stores the
 * answer in *known (0 at first, one for each question).  Any thread: two threads that measure at once may get different answers. */
bool trial_slower(atomic_int *known, trial_fn *way, trial_fn *other, double by);

#endif
