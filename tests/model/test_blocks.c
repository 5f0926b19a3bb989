/* test_blocks.c - the law of the row where weights are laid out in blocks: before, after, and while a prompt and its
 * answer are on their way, one moment after the other; alone and beside another sequence; each level that reads blocks. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/rng.h"
#include "../check.h"
#include "driver.h"

enum { PROMPT = 40, ANSWER = 6, N = PROMPT + ANSWER, STEPS = 3 + ANSWER, NEVER = STEPS };

static const int chunk[STEPS] = { 23, 1, 16, 1, 1, 1, 1, 1, 1 };

static bool more(void *arg, size_t done)
{
	return true;
}

static void lay_out(struct driver *d)
{
	size_t in_blocks = 0;

	d->be->ops->pack(d->be, &(struct pack_opts){ .arith = ARITH_FAST, .more = more });
	for (size_t i = 0; i < d->st->n; i++)
		in_blocks += atomic_load(&d->st->v[i]->packed.at) != NULL;
	CHECK(in_blocks, "nothing is in blocks");
}

/* Logits of all rows, with blocks from step `when` on; beside: another sequence in each step. */
static void pass(const char *folder, enum cpu_level level, int when, bool beside, float **out, int *vocab)
{
	struct driver_opts o = {
		.arith = ARITH_FAST, .threads = 2, .level = level, .slots = 2, .ctx_max = 64, .step_rows = 64
	};
	int32_t tok[2][N];
	struct driver d;
	struct err err;
	int at = 0;

	CHECK(!driver_open(&d, folder, &o, &err), "%s", err.msg);
	*vocab = d.vocab;
	*out = xcalloc((size_t)N * (size_t)d.vocab, sizeof **out);
	for (int i = 0; i < 2 * N; i++)
		tok[i / N][i % N] = (int32_t)(rng_bits(11, (uint64_t)i, 0) % (uint64_t)d.vocab);
	for (int i = 0; i < STEPS; at += chunk[i++]) {
		struct item item[2];

		if (i == when)
			lay_out(&d);
		for (int k = 0; k < 2; k++)
			item[k] = (struct item){ .slot = k,
				                 .pos = at,
				                 .n = chunk[i],
				                 .tok = tok[k] + at,
				                 .keep = chunk[i],
				                 .logits = k ? NULL : *out + (size_t)at * (size_t)d.vocab };
		driver_step(&d, item, 1 + beside);
	}
	CHECK(at == N, "%d rows", at);
	driver_close(&d);
}

static void test(const char *folder, enum cpu_level level)
{
	float *want, *got;
	int vocab, quick = getenv("WEFT_TEST_QUICK") != NULL, last = level == CPU_SCALAR ? 1 : STEPS - 1;

	printf("%s, %s\n", folder, cpu_level_name(level));
	pass(folder, level, NEVER, false, &want, &vocab);
	for (int when = 0; when <= last; when += 1 + 2 * quick)
		for (int beside = 0; beside < 2; beside++) {
			pass(folder, level, when, beside, &got, &vocab);
			for (int i = 0; i < N; i++)
				CHECK(!memcmp(got + (size_t)i * (size_t)vocab, want + (size_t)i * (size_t)vocab,
				              (size_t)vocab * sizeof *got),
				      "%s, %s: blocks from step %d on, %d beside: row %d differs", folder,
				      cpu_level_name(level), when, beside, i);
			free(got);
		}
	free(want);
}

/* Do kernels of the level read blocks of any of its matrices. */
static bool reads_blocks(const char *folder, enum cpu_level level)
{
	struct driver_opts o = {
		.arith = ARITH_FAST, .threads = 1, .level = level, .slots = 1, .ctx_max = 64, .step_rows = 64
	};
	struct kernels k = { .packed = false };
	struct driver d;
	struct err err;

	CHECK(!driver_open(&d, folder, &o, &err), "%s", err.msg);
	for (size_t i = 0; i < d.st->n && !k.packed; i++)
		if (d.st->v[i]->whole)
			d.st->v[i]->whole->fmt->kernels(&k, level);
	driver_close(&d);
	return k.packed;
}

int main(int argc, char **argv)
{
	log_set_level(LOG_WARN);
	for (int i = 1; i < argc; i++)
		for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l))
			if (reads_blocks(argv[i], l))
				test(argv[i], l);
	return 0;
}
