/* bench_disk.c - what the disk gives that experts are read from. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/pages.h"
#include "base/reads.h"
#include "base/rng.h"
#include "bench/bench.h"

enum { DEPTH = 16, READS = 400, NS_MOST = 1000000000 };

struct probe {
	struct reads *reads;
	struct read_file file;
	uint8_t *room;
	size_t n; /* bytes of a read */
	uint64_t places;
	uint64_t seed;
};

static void ask(struct probe *p, uint64_t tag)
{
	const struct read_ask a = { .file = &p->file,
		                    .at = rng_bits(p->seed, tag, 0) % p->places * READ_ALIGN,
		                    .to = p->room + tag % DEPTH * p->n,
		                    .n = p->n,
		                    .need = p->n,
		                    .tag = tag };

	reads_put(p->reads, &a);
}

/* Bytes a second of reads at random places, DEPTH of them under way. */
static double measure(struct probe *p)
{
	int64_t began = clock_monotonic_ns(), ns = 0;
	struct read_done done;
	int n = 0;

	for (int i = 0; i < DEPTH; i++)
		ask(p, (uint64_t)i);
	while (n < READS && ns < NS_MOST && reads_next(p->reads, &done, true)) {
		if (done.error)
			return 0;
		n++;
		ns = clock_monotonic_ns() - began;
		ask(p, done.tag + DEPTH);
	}
	return ns ? (double)n * (double)p->n * 1e9 / (double)ns : 0;
}

double bench_disk(const struct store *st, size_t slab, uint64_t seed)
{
	const struct store_file *file = &st->file[0];
	struct probe p = { .n = slab, .seed = seed };
	struct err none;
	double rate = 0;

	for (int i = 1; i < st->n_file; i++)
		if (st->file[i].map.n > file->map.n)
			file = &st->file[i];
	if (file->map.n <= slab || read_file_open(&p.file, file->path, &none))
		return 0;
	p.places = (file->map.n - slab) / READ_ALIGN + 1;
	p.room = pages_room(DEPTH * slab, true);
	if (p.room && !reads_open(&p.reads, READS_BEST, DEPTH, &none)) {
		rate = measure(&p);
		reads_close(p.reads);
	}
	if (p.room)
		pages_free(p.room, DEPTH * slab);
	read_file_close(&p.file);
	return rate;
}
