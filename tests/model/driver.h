/* driver.h - a model run by hand: passes over chosen spans, without an engine.
 *
 * For the tests of src/model/: they decide how a prompt is cut, who shares a
 * step, which rows are tentative.  Every row's logits are asked for. */
#ifndef TESTS_DRIVER_H
#define TESTS_DRIVER_H

#include "model/model.h"
#include "store/store.h"

enum { DRIVER_SLOTS = 64 };
struct driver {
	struct store *st;
	struct backend *be;
	struct model *m;
	struct pass pass;
	int rows_max, vocab;
	float *near; /* [rows_max][vocab] the last step's logits */
	/* For the next step alone: states that it passes are captured; the caller's to drop. */
	struct driver_seen {
		int item, pos;
		struct snaps snaps;
	} * seen;
	int n_seen;
	/* What sequences of a slot add to products; NULL: nothing.  The caller's. */
	const struct adapter_mix *mix[DRIVER_SLOTS];
};

struct driver_opts {
	enum arith arith;
	int threads;
	enum cpu_level level;
	int slots, ctx_max, step_rows, tape_rows;
	struct kv_rows kv;           /* empty: what goes with arith */
	const char *device;          /* over that backend (test_backend.h); NULL: the one that the environment names */
	struct stream_opts *experts; /* left on disk so; NULL: in memory */
	struct rows_opts *tables;    /* likewise */
};

/* One sequence's part of a step. */
struct item {
	int slot, pos, n, n_draft;
	const int32_t *tok; /* [n] */
	float *logits;      /* [n][vocab], or NULL */
	int keep;           /* rows kept at settle: n unless tentative ones go */
};

int driver_open(struct driver *d, const char *folder, const struct driver_opts *o, struct err *err);
/* The same around a model that was bound already; takes it over. */
int driver_attach(struct driver *d, struct model *m, const struct driver_opts *o, struct err *err);
void driver_close(struct driver *d);
void driver_step(struct driver *d, const struct item *item, int n_item);

/* n tokens from pos in chunks of the cycled sizes (NULL: as large as a step). */
void driver_feed(struct driver *d, int slot, int pos, const int32_t *tok, int n, const int *chunk, int n_chunk,
                 float *logits);

/* <source>/../shared or WEFT_SHARED; NULL with a line that says so. */
const char *shared_folder(void);

/* Replaces an argument "shared:PATH", argv[i] with i < 8, by PATH in shared_folder().  Other arguments stay.  false: there
 * is no such folder. */
bool shared_argument(char **argv, int i);

/* One folder of reference vectors for every family; NULL ends them. */
extern const char *const golden_family[];

/* Calls each for one folder of every family, of 4 bits where there is one; for every third
 * family where WEFT_TEST_QUICK is set, since law_test and golden_test take all there, too.
 * Returns how many families there are, or 0 with a line that says so when ../shared is missing. */
int each_golden_family(void (*each)(const char *folder));

#endif
