/* allowance.h - how much a request may cost before it is computed, and whether anyone still waits for it.
 *
 * A few bytes can ask for far more work than they suggest: an expression whose automaton explodes,
 * a thousand schemas, JSON within strings.  The thread that prepares a request begins an allowance;
 * whatever works for it (JSON, templates, grammars, the tokeniser) charges what it does, in steps of
 * some 20 ns, and ends early when the allowance says no: because it is spent, or because nobody waits
 * any more.  Steps are counted and not timed, so that a request is refused everywhere or nowhere.
 *
 * The allowance belongs to the thread, as a guard (fault.h) does, so that the layers between need
 * not pass it on.  A thread without one may do anything: commands, tests, loading. */
#ifndef BASE_ALLOWANCE_H
#define BASE_ALLOWANCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	ALLOWANCE_STEPS = 40000000, /* beside what its bytes cost: about a second */
	ALLOWANCE_TEXTS = 4, /* JSON texts of the largest size, one after another or at once: a request is read twice or
	                            * three times on its way, and arguments of calls are JSON in strings */
	ALLOWANCE_PER_BYTE = 8, /* of a body: one pass through parser, template and tokeniser, and slack */
};

struct allowance {
	uint64_t left;             /* steps */
	size_t containers, values; /* of JSON, left */
	const atomic_bool *gone;   /* nobody waits any more; NULL: somebody does */
	const char *why;           /* it may not go on; NULL: it may */
};

/* Begins the allowance of a request of n bytes for this thread; w lives until allowance_end. */
void allowance_begin(struct allowance *w, size_t n, const atomic_bool *gone);
void allowance_end(void);

/* Charges steps.  False: stop, soon. */
bool allowance_spend(uint64_t steps);
/* A JSON text of so many is about to be read.  Its arrays and objects cost memory, whatever its bytes say, so they are
 * counted by themselves: of one text up to JSON_CONTAINERS_MAX and JSON_VALUES_MAX (json.h).  False: stop, soon. */
bool allowance_read(size_t containers, size_t values);
/* Is there one? */
bool allowance_on(void);
/* Why this thread's work has to stop; NULL: it need not. */
const char *allowance_why(void);

/* What is made once for all requests is charged to none: the allowance is put aside, and comes back
 * with allowance_resume. */
struct allowance *allowance_pause(void);
void allowance_resume(struct allowance *w);

#endif
