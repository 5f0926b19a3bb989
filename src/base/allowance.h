/* allowance.h - how much a request may cost before it is computed, and whether its client is still there.
 *
 * A few bytes can ask for far more work than they suggest: an expression whose automaton explodes,
 * a thousand schemas, JSON within strings.  The thread that prepares a request begins an allowance;
 * JSON, templates, grammars and the tokeniser charge their work to it, in steps of some 20 ns, and end
 * early when the allowance says no: because it is spent, or because the client has left.  Steps are
 * counted and not timed, so that a request is refused on every machine or on none.
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
	ALLOWANCE_PIECE = 64 << 10, /* bytes that a pass over a text reads between two looks at the allowance */
	ALLOWANCE_STEPS = 40000000, /* on top of what its bytes cost: about a second */
	ALLOWANCE_TEXTS = 4, /* JSON texts of the largest size, one after another or at once: a body, and arguments of
	                            * calls, which are JSON in strings */
	ALLOWANCE_PER_BYTE = 8, /* of a body: one pass through parser, template and tokeniser, and slack */
};

struct allowance_later; /* what waits for allowance_settle */

struct allowance {
	uint64_t left;             /* steps */
	size_t containers, values; /* of JSON, left */
	const atomic_bool *gone;   /* set when the client has left; NULL: never */
	const char *why;           /* the reason to stop; NULL: the work may go on */
	struct allowance_later *later;
};

/* Begins the allowance of a request of n bytes for this thread; w lives until allowance_end. */
void allowance_begin(struct allowance *w, size_t n, const atomic_bool *gone);
void allowance_end(void);

/* Charges steps, and looks whether anyone still waits: work asks before each ALLOWANCE_PIECE bytes, or each value,
 * so that it ends within milliseconds.  False: stop, soon. */
bool allowance_spend(uint64_t steps);
/* Steps that are left; 0 without an allowance. */
uint64_t allowance_left(void);
/* Charges a JSON text of that many containers and values, before it is read.  Arrays and objects cost memory beyond
 * their bytes, so they are counted apart from steps: up to JSON_CONTAINERS_MAX and JSON_VALUES_MAX (json.h) per text.
 * False: stop, soon. */
bool allowance_read(size_t containers, size_t values);
/* Whether this thread has an allowance. */
bool allowance_on(void);
/* The reason why this thread's work has to stop; NULL: it may go on. */
const char *allowance_why(void);

/* Freeing a large value takes time, which a cancelled request's reply need not wait for. If this thread's work has to
 * stop, allowance_settle calls drop(p) after the reply, and true is returned; else nothing is done. */
bool allowance_free_later(void (*drop)(void *p), void *p);
/* Ends the use of an allowance: calls what allowance_free_later left. */
void allowance_settle(struct allowance *w);

/* A part of the work whose cost must not depend on what else the request asks for: begins an allowance of its own for
 * it, of these steps.  Returns the request's, for allowance_part_end; NULL, and nothing is begun: the thread has
 * none. */
struct allowance *allowance_part_begin(struct allowance *part, uint64_t steps);
void allowance_part_end(struct allowance *part, struct allowance *whole);
/* Adds steps, for work that a header has announced within a limit of its own. */
void allowance_grant(uint64_t steps);

/* Puts the allowance aside while something is made that all requests share, so that none of them pays for it;
 * allowance_resume brings it back. */
struct allowance *allowance_pause(void);
void allowance_resume(struct allowance *w);

#endif
