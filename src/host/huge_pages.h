/* huge_pages.h - weights in memory of the process's own, once a model is open.
 *
 * Mapped files come in pages of 4 KB, and a step that reads gigabytes of them waits for
 * their addresses as well; and kernels read some matrices faster in another order than the file's: see
 * bench/notes/kernels.md, "Huge pages".  So the weights are laid out anew or copied into
 * memory of the process's own behind the program's back (the backend's pack), by a thread
 * that gets the processor time that is left over, and that lets answers go first. */
#ifndef HOST_HUGE_PAGES_H
#define HOST_HUGE_PAGES_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/engine.h"
#include "store/store.h"

enum { HUGE_STORES_MAX = 8 };
struct huge_pages_of {
	struct store *store[HUGE_STORES_MAX]; /* of the models whose weights be has; NULL: none */
	struct backend *be;
	struct engine *engine; /* that reads them */
	enum arith arith;
	size_t planned; /* bytes of memory that all is to take, the weights among them */
};

struct huge_pages {
	struct huge_pages_of of;
	bool huge;    /* the system gives huge pages on request */
	size_t spare; /* bytes that stay available to others, at least */
	atomic_bool stop;
	bool threaded;
	pthread_t thread;
};

/* Is there enough to gain with these stores, and would the plan leave a sixteenth
 * of the machine's (or the control group's) memory available?  Then from now on h moves weights;
 * otherwise, as after the end, h does nothing.  now: returns when all is moved.
 * Between two pieces of 32 MB it waits until the engine has nothing to do, but not for
 * more than a second.  Stores, backend and engine must stay until huge_pages_end. */
void huge_pages_begin(struct huge_pages *h, const struct huge_pages_of *of, bool now);
/* Does not wait for more than a piece of 32 MB.  Also of an h of zeros. */
void huge_pages_end(struct huge_pages *h);

#endif
