/* guess.h - inside backend/cpu/: routers of mixtures once more, small, for guesses.
 *
 * A layer guesses which experts the layers behind it will use by asking their routers with its own input (moe.c).  A guess
 * changes no answer, so eight bits of a weight are enough for it, a quarter of what the router itself has: routers in
 * float took a twentieth of the time of decoding with experts on disk. */
#ifndef BACKEND_CPU_GUESS_H
#define BACKEND_CPU_GUESS_H

#include "backend/cpu/cpu_backend.h"
#include "quant/packed.h"

/* A router's matrix in blocks of Q8_0, packed. */
struct guess_router {
	struct weight w; /* rows 0: not made */
	struct packed packed;
};

/* Bytes of the small form, a multiple of 64; 0: this matrix has none, or this level no kernels for it. */
size_t guess_router_bytes(struct cpu_backend *c, const struct weight *router);
/* Makes it at `to`, guess_router_bytes aligned to 64, which must outlive *g.  False: it has numbers that Q8_0 does not take. */
bool guess_router_make(struct guess_router *g, const struct weight *router, uint8_t *to);

#endif
