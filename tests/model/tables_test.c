/* Tables on disk (docs/experts-from-disk.md) against tables in memory, with memcmp: chunks, single tokens, several sequences in
 * one step; buffers of one row and of many; by io_uring and by threads; one thread of arithmetic and two; beside experts that
 * are on disk as well.
 *
 *     tables_test MODEL...       model folders or GGUF files, each of which must have a table
 *     tables_test --families     those of every family, from ../shared/golden; some have none */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "backend/stream_files.h"
#include "driver.h"

enum { STEP = 32, ALONE = 48, TOGETHER = 3, EACH = 7, ROWS = ALONE + 2 * TOGETHER * EACH };

struct run {
	const char *folder;
	int32_t tok[ROWS];
	float *want, *got;
	size_t bytes; /* of all rows */
	int bad, ways;
};

static struct driver_opts opts_of(enum arith arith, int threads, struct rows_opts *tables)
{
	return (struct driver_opts){ .arith = arith,
		                     .threads = threads,
		                     .level = cpu_detect(),
		                     .slots = 1 + TOGETHER,
		                     .ctx_max = 128,
		                     .step_rows = STEP,
		                     .tape_rows = 2,
		                     .tables = tables };
}

static void open_or_die(struct run *r, struct driver *d, const struct driver_opts *o)
{
	struct err err;

	if (driver_open(d, r->folder, o, &err)) {
		printf("FAIL %s: %s\n", r->folder, err.msg);
		exit(1);
	}
}

/* The first and the last row of a table, each token twice, and others by chance. */
static void choose_tokens(struct run *r, int vocab)
{
	for (int i = 0; i < ROWS; i++)
		r->tok[i] = (int32_t)(rng_bits(11, (uint64_t)(i / 2), 0) % (uint64_t)vocab);
	r->tok[0] = vocab - 1;
	r->tok[3] = r->tok[ROWS - 1] = 0;
}

/* A prompt in a chunk, then row by row, then a chunk again; then sequences side by side, the last two rows of each tentative,
 * of which one is taken back. */
static void feed(struct driver *d, const int32_t *tok, float *out)
{
	static const int size[] = { STEP, 1, 1, 1, 5, 7, 1 };
	struct item item[TOGETHER];
	size_t row = (size_t)d->vocab;

	driver_feed(d, 0, 0, tok, ALONE, size, 7, out);
	for (int turn = 0; turn < 2; turn++) {
		int at = ALONE + turn * TOGETHER * EACH;

		for (int i = 0; i < TOGETHER; i++)
			item[i] = (struct item){ .slot = 1 + i,
				                 .pos = turn * (EACH - 1),
				                 .n = EACH,
				                 .n_draft = 2,
				                 .tok = tok + at + i * EACH,
				                 .logits = out + (size_t)(at + i * EACH) * row,
				                 .keep = EACH - 1 };
		driver_step(d, item, TOGETHER);
	}
	for (int i = 0; i <= TOGETHER; i++)
		caches_close(&d->m->caches, i);
}

/* A row of each table for each token; of n-grams one for each of four heads, from whatever part of the table. */
static int64_t rows_of(const struct model *m, int tables)
{
	return m->shape.past.layers ? (1 + 4) * ROWS : (int64_t)tables * ROWS;
}

/* experts: those are on disk as well. */
static void one(struct run *r, enum arith arith, int threads, struct rows_opts how, bool experts)
{
	struct stream_opts slots = { .arith = arith, .bytes = (size_t)1 << 30 };
	struct driver_opts o = opts_of(arith, threads, &how);
	struct row_stats s;
	struct driver d;

	o.experts = experts ? &slots : NULL;
	open_or_die(r, &d, &o);
	memset(r->got, 0xff, r->bytes);
	feed(&d, r->tok, r->got);
	d.be->ops->row_stats(d.be, &s);
	if (memcmp(r->got, r->want, r->bytes)) {
		printf("FAIL %s: arithmetic %d, %d threads, %s, buffer of %zu bytes%s: bytes differ\n", r->folder,
		       arith, threads, s.way, s.buffer_bytes, experts ? ", experts on disk" : "");
		r->bad++;
	}
	if (s.tables < 1 || s.table_bytes != model_table_bytes(d.m) || s.rows != rows_of(d.m, s.tables) || !s.reads ||
	    s.read_bytes < s.reads * READ_ALIGN || s.failed) {
		printf("FAIL %s: %d tables of %zu bytes, %lld rows, %lld reads of %lld bytes, %lld failed\n", r->folder,
		       s.tables, s.table_bytes, (long long)s.rows, (long long)s.reads, (long long)s.read_bytes,
		       (long long)s.failed);
		r->bad++;
	}
	r->ways++;
	driver_close(&d);
}

static bool has_tables(const char *folder)
{
	struct driver_opts o = opts_of(ARITH_FAST, 1, NULL);
	struct run r = { .folder = folder };
	struct driver d;
	bool has;

	open_or_die(&r, &d, &o);
	has = model_table_bytes(d.m) > 0;
	driver_close(&d);
	return has;
}

static int check(const char *folder)
{
	static const size_t room[] = { 1, 40000, 4 << 20 };
	struct run r = { .folder = folder };

	for (enum arith arith = ARITH_F32; arith <= ARITH_FAST; arith++) {
		struct driver_opts o = opts_of(arith, 2, NULL);
		bool mixed;
		struct driver d;

		open_or_die(&r, &d, &o);
		/* Experts whose rows were made in memory are in no file. */
		mixed = d.m->n_mixture && stream_files_have(d.m->file, d.m->st->n_file, &d.m->mixture[0]->down[0]);
		choose_tokens(&r, d.vocab);
		r.bytes = (size_t)ROWS * (size_t)d.vocab * sizeof(float);
		r.want = xrealloc(r.want, r.bytes);
		r.got = xrealloc(r.got, r.bytes);
		feed(&d, r.tok, r.want);
		driver_close(&d);
		for (int i = 0; i < 3; i++)
			one(&r, arith, i % 2 + 1, (struct rows_opts){ .bytes = room[i], .way = READS_BEST }, false);
		one(&r, arith, 2, (struct rows_opts){ .bytes = room[1], .way = READS_THREADS }, false);
		if (mixed)
			one(&r, arith, 1, (struct rows_opts){ .bytes = room[2] }, true);
	}
	printf("%s %s: %d ways\n", r.bad ? "FAIL" : "ok  ", folder, r.ways);
	free(r.want);
	free(r.got);
	return r.bad;
}

static int bad, with_tables;

static void check_if_any(const char *folder)
{
	if (!has_tables(folder))
		return;
	with_tables++;
	bad += check(folder);
}

/* Every family, the embeddings per layer in every form that there is, and types of GGUF. */
static int check_families(void)
{
	static const char *const more[] = { "gemma4_e2b/hf-bf16", "gemma4_e2b/mlx-q8" };
	static const char *const gguf[] = { "gemma4_e2b", "llama", "k_llama", "qwen3_5", "deepseek_v3", "qwen2_split" };
	const char *shared = shared_folder();
	char path[1024];
	glob_t g;

	if (!each_golden_family(check_if_any))
		return 0;
	for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
		snprintf(path, sizeof path, "%s/golden/%s", shared, more[i]);
		if (dir_exists(path))
			check_if_any(path);
	}
	for (size_t i = 0; i < sizeof gguf / sizeof *gguf; i++) {
		snprintf(path, sizeof path, "%s/golden/_gguf/models/%s/*.gguf", shared, gguf[i]);
		if (glob(path, 0, NULL, &g))
			continue;
		for (size_t k = 0; k < g.gl_pathc; k++)
			if (!strstr(g.gl_pathv[k], "-of-") || strstr(g.gl_pathv[k], "-00001-of-"))
				check_if_any(g.gl_pathv[k]);
		globfree(&g);
	}
	if (with_tables < 10) {
		printf("FAIL only %d models have tables\n", with_tables);
		bad++;
	}
	return bad;
}

int main(int argc, char **argv)
{
	log_set_level(LOG_ERROR);
	if (argc == 2 && !strcmp(argv[1], "--families"))
		return check_families() != 0;
	for (int i = 1; i < argc; i++) {
		if (!has_tables(argv[i])) {
			printf("FAIL %s has no table\n", argv[i]);
			bad++;
			continue;
		}
		bad += check(argv[i]);
	}
	return bad != 0;
}
