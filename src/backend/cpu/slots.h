/* slots.h - inside backend/cpu/: a cache of expert weights: slots, and the expert in each.
 *
 * One arena is cut into slots of one size, that of the largest slab.  A layer that is computed visits: it says which
 * experts it uses, and gets them in the order in which they are there, first those that are in slots already, then
 * those that are read meanwhile.  What is being used stays; for what is read the policy (backend/policy.h) names the
 * expert to evict. All calls are the engine thread's. */
#ifndef BACKEND_CPU_SLOTS_H
#define BACKEND_CPU_SLOTS_H

#include "backend/cpu/cpu_backend.h"
#include "backend/slabs.h"

struct slots;

/* Operations of the backend's table; see backend.h. */
int cpu_stream(struct backend *be, struct moe *const *mix, int n, const struct stream_opts *how, struct err *err);
size_t cpu_stream_shrink(struct backend *be, size_t bytes);
void cpu_stream_stats(const struct backend *be, struct stream_stats *out);
void slots_free(struct slots *s); /* NULL is allowed */

/* Makes the system give the memory of slots before they are used: the first write to a page waits until it has been cleared,
 * or longer on a virtual machine, whose host may have to give it first.  Any thread, during passes; ends when more(arg, bytes
 * so far), asked before each piece of 32 MB, says so, or when slots have been given back.  Returns the bytes that are ready. */
size_t slots_make_ready(struct slots *s, bool (*more)(void *arg, size_t done), void *arg); /* NULL is allowed */

/* The layer uses experts used[n], all different.  Reading begins. */
void slots_visit(struct slot_layer *y, const int *used, int n);
/* Indices into `used` that are there now and were not given out before; waits for one.  Returns how many; 0: all were
 * given out.  They stay until slots_release. */
int slots_ready(struct slot_layer *y, int *index);
/* Packs those of index[n], as slots_ready gave them, whose rows would be slow as they are.  slots_view says where they are
 * afterwards; the numbers are the same. */
void slots_pack(struct slot_layer *y, const int *index, int n);
/* Returns slots whose experts have been computed. */
void slots_release(struct slot_layer *y, const int *index, int n);
/* After slots_visit, in steps of few rows: the layer whose experts may be guessed now; NULL: none, or guesses have not paid
 * lately.  Then those that it is likely to use: they are read behind what the visit misses. */
struct slot_layer *slots_guessing(const struct slot_layer *y);
const struct moe *slots_mixture(const struct slot_layer *y);
const struct weight *slots_router(struct slot_layer *y); /* to guess with: its own, or a smaller one (guess.h) */
void slots_guess(struct slot_layer *next, const int *expert, int n);
/* NULL: it could not be read, slots_error says why. */
const struct slab_view *slots_view(const struct slot_layer *y, int index);
const struct err *slots_error(const struct slot_layer *y);

#endif
