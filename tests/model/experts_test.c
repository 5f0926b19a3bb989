/* Experts on disk (docs/experts-from-disk.md) against experts in memory, with memcmp: for every size of memory from the
 * experts of one row to all of them, read by io_uring and by threads, from packed slabs and from the checkpoint.
 *
 *     experts_test FOLDER...     model folders or GGUF files
 *     experts_test --families    those of every family with mixtures, from ../shared/golden
 *     experts_test --faults FOLDER DIR   reads that fail, files that change; DIR is made and removed */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "driver.h"

enum { ROWS = 48, STEP = 32, TAPE = 3 };

struct run {
	const char *folder;
	int32_t tok[ROWS];
	float *want, *got;
	size_t bytes; /* of all rows */
	int64_t packs;
	size_t slot; /* of a slot, once one is open */
	int bad, ways;
};

static struct driver_opts opts_of(enum arith arith, struct stream_opts *how)
{
	return (struct driver_opts){ .arith = arith,
		                     .threads = 2,
		                     .level = cpu_detect(),
		                     .slots = 2,
		                     .ctx_max = 128,
		                     .step_rows = STEP,
		                     .tape_rows = TAPE,
		                     .experts = how };
}

/* A prompt in a chunk, then row by row, then a chunk again. */
static void feed(struct driver *d, const int32_t *tok, float *out)
{
	static const int size[] = { STEP, 1, 1, 1, 5, 8, 1, 1, 1, 1 };

	driver_feed(d, 0, 0, tok, ROWS, size, 10, out);
	caches_close(&d->m->caches, 0);
}

static void open_or_die(struct run *r, struct driver *d, const struct driver_opts *o)
{
	struct err err;

	if (driver_open(d, r->folder, o, &err)) {
		printf("FAIL %s: %s\n", r->folder, err.msg);
		exit(1);
	}
}

/* The least memory and what all experts take, of slots as they are with `how`. */
static void sizes(struct run *r, enum arith arith, struct stream_opts how, size_t *least, size_t *all, size_t *slot)
{
	struct driver_opts o = opts_of(arith, &how);
	struct stream_stats s;
	struct driver d;

	how.bytes = (size_t)1 << 40;
	open_or_die(r, &d, &o);
	d.be->ops->stream_stats(d.be, &s);
	*slot = s.slot_bytes;
	*all = (size_t)s.experts * s.slot_bytes;
	*least = (size_t)d.m->shape.experts_used * s.slot_bytes;
	driver_close(&d);
}

static void one(struct run *r, enum arith arith, struct stream_opts *how, size_t bytes, const char *what)
{
	struct driver_opts o = opts_of(arith, how);
	struct stream_stats s;
	struct driver d;

	how->bytes = bytes;
	open_or_die(r, &d, &o);
	memset(r->got, 0xff, r->bytes);
	feed(&d, r->tok, r->got);
	feed(&d, r->tok, r->got); /* with what the first left in the slots */
	d.be->ops->stream_stats(d.be, &s);
	if (memcmp(r->got, r->want, r->bytes)) {
		printf("FAIL %s: %s, %s, %d of %d experts in memory: bytes differ\n", r->folder, what, s.way, s.slots,
		       s.experts);
		r->bad++;
	}
	if (!s.reads || s.failed || s.used - s.hits != s.reads - s.ahead) {
		printf("FAIL %s: %s: %lld used, %lld there, %lld read, %lld of them ahead, %lld failed\n", r->folder,
		       what, (long long)s.used, (long long)s.hits, (long long)s.reads, (long long)s.ahead,
		       (long long)s.failed);
		r->bad++;
	}
	r->ways++;
	r->packs += s.packs;
	driver_close(&d);
}

static void check_way(struct run *r, enum arith arith, struct stream_opts *how, const char *what)
{
	size_t least, all, slot;

	sizes(r, arith, *how, &least, &all, &slot);
	one(r, arith, how, least, what);
	one(r, arith, how, least + slot, what);
	one(r, arith, how, (least + all) / 2, what);
	one(r, arith, how, all - slot, what);
	one(r, arith, how, all, what);
}

/* In place of the checkpoint's, which the loader has. */
static void digest_of(struct digest *out, const char *folder)
{
	struct sha256 h;

	sha256_init(&h);
	sha256_field(&h, folder, strlen(folder));
	sha256_end(&h, out);
}

/* least: the arithmetics from this one on. */
static int check(const char *folder, const char *dir, enum arith least)
{
	struct run r = { .folder = folder };
	struct digest key;
	struct stream_opts uring = { .way = READS_BEST }, threads = { .way = READS_THREADS },
			   packed = { .way = READS_BEST, .dir = dir, .key = &key };

	digest_of(&key, folder);
	for (enum arith arith = least; arith <= ARITH_FAST; arith++) {
		struct driver_opts o = opts_of(arith, NULL);
		struct driver d;

		open_or_die(&r, &d, &o);
		for (int i = 0; i < ROWS; i++)
			r.tok[i] = (int32_t)(rng_bits(7, (uint64_t)i, 0) % (uint64_t)d.vocab);
		r.bytes = (size_t)ROWS * (size_t)d.vocab * sizeof(float);
		r.want = xrealloc(r.want, r.bytes);
		r.got = xrealloc(r.got, r.bytes);
		feed(&d, r.tok, r.want);
		driver_close(&d);
		uring.arith = threads.arith = packed.arith = arith;
		check_way(&r, arith, &uring, "from the checkpoint");
		if (arith == ARITH_FAST)
			check_way(&r, arith, &threads, "from the checkpoint");
		check_way(&r, arith, &packed, "packed");
	}
	/* Rows of GGUF are packed when they are used again. */
	if (strstr(folder, ".gguf") && cpu_detect() != CPU_SCALAR && !r.packs) {
		printf("FAIL %s: no slab was packed\n", folder);
		r.bad++;
	}
	printf("%s %s: %d ways, %lld slabs packed\n", r.bad ? "FAIL" : "ok  ", folder, r.ways, (long long)r.packs);
	free(r.want);
	free(r.got);
	return r.bad;
}

static const char *const families[] = {
	"qwen3_5_moe",       "qwen3_moe",     "qwen3_next",  "gpt_oss",    "lfm2_moe",         "nemotron_h_moe",
	"nemotron_h_latent", "deepseek_v3",   "glm4_moe",    "minimax_m2", "granitemoehybrid", "bailing_moe_linear",
	"gemma4_moe",        "glm4_moe_lite", "kimi_linear", "jamba",      "phimoe",           "step3p5",
	"glm5_next",         "deepseek_v4",
};
static const char *const variants[] = { "mlx-q4", "hf-bf16", "hf-f32" };

/* GGUF files: the first of a mixture's folder. */
static const char *const gguf[] = { "k_qwen3_moe", "qwen3_moe", "gpt_oss" };

static int check_families(const char *dir)
{
	const char *shared = shared_folder();
	char folder[1024];
	int bad = 0;

	if (!shared)
		return -1;
	for (size_t f = 0; f < sizeof families / sizeof *families; f++)
		for (size_t v = 0, seen = 0; v < sizeof variants / sizeof *variants && !seen; v++) {
			snprintf(folder, sizeof folder, "%s/golden/%s/%s", shared, families[f], variants[v]);
			if (!dir_exists(folder))
				continue;
			seen++;
			bad += check(folder, dir, ARITH_FAST);
		}
	for (size_t g = 0; g < sizeof gguf / sizeof *gguf; g++)
		for (const char *const *t = (const char *const[]){ "q4_k_m", "q8_0", "bf16", NULL }; *t; t++) {
			snprintf(folder, sizeof folder, "%s/golden/_gguf/models/%s/%s.gguf", shared, gguf[g], *t);
			if (file_exists(folder))
				bad += check(folder, dir, ARITH_FAST);
		}
	return bad;
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/weft-experts-XXXXXX", cmd[64];
	int bad = 0;

	log_set_level(LOG_ERROR);
	if (!mkdtemp(dir))
		return 1;
	if (argc == 2 && !strcmp(argv[1], "--families"))
		bad = check_families(dir);
	else
		for (int i = 1; i < argc; i++)
			bad += check(argv[i], dir, ARITH_F32);
	snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
	bad += system(cmd) != 0;
	return bad < 0 ? 77 : bad > 0;
}
