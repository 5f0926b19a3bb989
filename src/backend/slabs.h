/* slabs.h - one expert of one layer as a run of bytes, and where its bytes are on disk.
 *
 * A slab holds the matrices of one expert, each in the layout that products read best: packed (quant/packed.h) or
 * rows with their scales and biases.  Slabs come from a file of packed slabs, one read each (slab_file.h), or straight
 * from the checkpoint, where a matrix has up to three runs of bytes that lie apart. */
#ifndef BACKEND_SLABS_H
#define BACKEND_SLABS_H

#include "backend/backend.h"
#include "base/digest.h"
#include "base/reads.h"
#include "quant/packed.h"

enum slab_part { SLAB_GATE, SLAB_UP, SLAB_DOWN, SLAB_PARTS };
enum { SLAB_STREAMS = 3, SLAB_EXTENTS = SLAB_PARTS * SLAB_STREAMS };

/* The matrix of an expert as the checkpoint has it; NULL: the mixture has none. */
static inline const struct weight *slab_weight(const struct moe *m, int expert, enum slab_part part)
{
	const struct weight *stack = part == SLAB_GATE ? m->gate : part == SLAB_UP ? m->up : m->down;

	return stack ? &stack[expert] : NULL;
}

/* Where things lie in a slab. */
struct slab_lay {
	struct {
		bool packed;             /* at[0] has the packed form; else data, scales, biases */
		size_t at[SLAB_STREAMS]; /* in bytes from the slab's begin */
	} part[SLAB_PARTS];
	size_t bytes; /* a multiple of READ_ALIGN */
};

/* A read that brings part of a slab. */
struct slab_extent {
	int file; /* of the list of files */
	uint64_t at;
	size_t n, need, to; /* as struct read_ask has them; to: in the slab */
};

/* Is w of a kind that products read packed? */
typedef bool slab_packs_fn(const void *arg, const struct weight *w);

/* A packed slab. */
void slab_lay_packed(struct slab_lay *lay, const struct moe *m, int expert, slab_packs_fn *packs, const void *arg);
void slab_fill(uint8_t *slab, const struct slab_lay *lay, const struct moe *m, int expert);
/* Is every matrix of the expert packed by `packs`, and are its rows slow (packed_rows_slow)? */
bool slab_wants_packing(const struct moe *m, int expert, slab_packs_fn *packs, const void *arg);

/* A slab of what file[n_file] hold, as it lies there; returns the number of extents, 0 where a matrix lies in none
 * of them. */
int slab_lay_checkpoint(struct slab_lay *lay, struct slab_extent x[SLAB_EXTENTS], const struct moe *m, int expert,
                        const struct stream_file *file, int n_file);

/* The matrices of an expert whose slab lies at `slab`. */
struct slab_view {
	struct weight w[SLAB_PARTS];
	struct packed packed[SLAB_PARTS];
};
void slab_view(struct slab_view *v, const uint8_t *slab, const struct slab_lay *lay, const struct moe *m, int expert);

/* Packing a slab of rows, which `rows` sees, into another slab laid out by slab_lay_packed, whose parts are all packed.  It is
 * done in pieces [0, slab_pieces()), which threads may share: piece i of a part is 16 outputs. */
int slab_pieces(const struct slab_view *rows);
void slab_pack(uint8_t *slab, const struct slab_lay *lay, const struct slab_view *rows, int begin, int end);

#endif
