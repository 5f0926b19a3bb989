/* bench.h - inside `weft bench [MODEL]`: what a row of its table is, and what the
 * machine allows. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "backend/profile.h"
#include "base/buf.h"
#include "base/pool.h"
#include "cli/cli.h"
#include "host/load.h"

/* Upper bounds of this machine's speed, measured with all threads of the benchmark. */
struct ceilings {
	double read;            /* bytes a second: the model's own weights, read in the best order known */
	double int8, bf16, f32; /* operations a second on registers, at the level in use; bf16 0: it has none */
	double int8_vectors;    /* where int8 is of tiles: what vectors alone give; 0: int8 is of vectors */
	double join;            /* seconds that waiting for all threads takes, with nothing to do */
};

/* Measures for some tenths of a second; what is better than before stays. */
void ceilings_measure(struct ceilings *c, struct pool *pool, const struct backend *be);

struct bench_row {
	int n_prompt, n_gen; /* one of the two is 0 */
	int depth, batch;
	bool drafts; /* decoding with guesses ahead */
	int n_run;
	double *rate;             /* [n_run] tokens a second, sorted */
	struct ceilings ceilings; /* the best of the two below */
	struct ceilings before, after;
	struct profile cost; /* of one run */
	int64_t cost_ns;     /* how long that run took */
	double joules;       /* of all runs that were timed and their tokens; below 0: the system counts none */
	double tokens;       /* that came in it */
	double steps, joins; /* steps of the engine in it; times threads were waited for */
	/* With guesses: of all runs but the first; and what the same gave without. */
	double all_tokens, all_steps, drafted, accepted, plain;
	/* With experts on disk, of all runs but the first: their time, experts used, found, read; bytes read; seconds the
	 * engine waited for them; and what the disk gives a second. */
	struct bench_experts {
		int slots, of;
		double seconds, used, hits, reads, bytes, wait, ahead, ahead_used, disk;
	} experts;
	struct bench_tables { /* on disk too */
		int tables;
		double seconds, bytes, wait;
	} tables;
};

/* Bytes a second that reads of `slab` bytes at random places of the model's largest file get, past the page cache;
 * 0: it cannot be read so. */
double bench_disk(const struct store *st, size_t slab, uint64_t seed);

/* Between the two, steps write random keys and values and compute nothing. */
struct bench_fill {
	const struct model_ops *own;
	struct model_ops ops;
};
void bench_fill_begin(struct bench_fill *f, struct model *m);
void bench_fill_end(struct bench_fill *f, struct model *m);

/* "pp512", "tg64 @ d4096 x8" */
void bench_name(const struct bench_row *r, char *out, size_t size);
double bench_median(const struct bench_row *r);
/* Tokens a second if nothing took longer than the ceilings ask for; *by says what
 * binds: "read" or "compute".  0: a ceiling is not known. */
double bench_floor(const struct bench_row *r, const char **by);
/* bench_floor as it would be without tiles of int8; 0: the level has no tiles, no product is
 * int8, or memory reads bind either way. */
double bench_floor_vectors(const struct bench_row *r);

/* The largest change of a ceiling that binds the row, from before it to after: 0.1 where one was a tenth higher
 * after or before; *name, *from and *to say which. */
double bench_ceiling_moved(const struct bench_row *r, const char **name, double *from, double *to);

/* Measures this program and o->paired in turn, and prints. */
int bench_paired(const struct bench_options *o, struct err *err);

void bench_print_head(const struct session *s, struct buf *out);
void bench_print_row(const struct bench_row *r, struct buf *out);
void bench_print_profile(const struct bench_row *r, struct buf *out);
/* One object of the array; profile: with the time that each operation took. */
void bench_print_json(const struct session *s, bool profile, const struct bench_row *r, struct buf *out);

#endif
