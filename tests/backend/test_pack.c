/* test_pack.c - weights into memory of the process's own: what they hold stays, whatever of them has moved, whoever
 * reads them meanwhile, and whenever that ends. */
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/cpu/pack.h"
#include "base/buf.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/rng.h"
#include "folder.h"
#include "store/safetensors.h"
#include "store/store.h"

enum { MB = 1 << 20, PIECE = 32 * MB };

/* ---- a folder with what fits and what does not ---- */

enum { BIG_ROWS = 8448, BIG_COLS = 4096 }; /* more than a piece */

/* Of 16 bits `scales` is the numbers' own type. */
static struct matrix {
	const char *path;
	int n, rows, cols, bits;
	enum dtype scales;
	bool blocks;
} matrices[] = {
	{ "four", 0, 48, 128, 4, DT_BF16, true },
	{ "eight", 0, 32, 192, 8, DT_BF16, true },
	{ "stack", 3, 16, 256, 4, DT_BF16, true },
	{ "thin", 2, 8, 128, 4, DT_BF16, false }, /* of a stack parts begin within a block */
	{ "odd", 0, 20, 128, 4, DT_BF16, false },
	{ "half", 0, 32, 128, 8, DT_F16, false },
	{ "big", 0, BIG_ROWS, BIG_COLS, 8, DT_BF16, true },
	{ "plain", 0, 1024, 4096, 16, DT_F16, false }, /* huge pages of it are moved as they are */
	{ "last", 0, 16, 128, 4, DT_BF16, true },
	{ "pairs", 0, 48, 192, 16, DT_BF16, true }, /* where the level reads these */
	{ "experts", 2, 16, 128, 16, DT_BF16, true },
	{ "short", 0, 32, 160, 16, DT_BF16, false }, /* no whole blocks of 64 inputs */
};
enum { MATRICES = sizeof matrices / sizeof *matrices, BIG = 6, PLAIN = 7, PAIRS = 9, EXPERTS = 10 };

static char *dir;

static size_t word_bytes(const struct matrix *m)
{
	return (size_t)m->rows * (size_t)(m->n ? m->n : 1) * (size_t)m->cols * (size_t)m->bits / 8;
}
static size_t scale_bytes(const struct matrix *m)
{
	return (size_t)m->rows * (size_t)(m->n ? m->n : 1) * (size_t)(m->cols / 64) * 2;
}
static size_t block_bytes_of(const struct matrix *m)
{
	return m->blocks ? word_bytes(m) + (m->bits < 16 ? 2 * scale_bytes(m) : 0) : 0;
}

static size_t all_blocks(void)
{
	size_t n = 0;

	for (int i = 0; i < MATRICES; i++)
		n += block_bytes_of(&matrices[i]);
	return n;
}

static void *words(size_t n, uint64_t seed)
{
	uint64_t *p = malloc(n + 8);

	for (size_t i = 0; i <= n / 8; i++)
		p[i] = rng_mix(seed + i * 0x9E3779B97F4A7C15u);
	return p;
}

/* Numbers between a hundredth and one, of either sign. */
static void *scales(size_t n, enum dtype t, uint64_t seed)
{
	uint16_t *p = malloc(n);

	for (size_t i = 0; i < n / 2; i++) {
		double x = rng_uniform(seed, i, 0) * 0.99 + 0.01;

		x = rng_bits(seed, i, 1) & 1 ? x : -x;
		p[i] = t == DT_F16 ? float_to_f16((float)x) : float_to_bf16((float)x);
	}
	return p;
}

static struct tensor_out tensor(char *name, const struct matrix *m, const char *suffix, enum dtype t, int64_t last,
                                void *data)
{
	struct tensor_out o = { .name = name, .type = t, .data = data };

	sprintf(name, "%s.%s", m->path, suffix);
	if (m->n)
		o.dim[o.n_dim++] = m->n;
	o.dim[o.n_dim++] = m->rows;
	o.dim[o.n_dim++] = last;
	return o;
}

static int make_folder(void **state)
{
	static char name[3 * MATRICES][32];
	struct tensor_out t[3 * MATRICES];
	int n = 0;

	dir = folder_new();
	for (int i = 0; i < MATRICES; i++) {
		const struct matrix *m = &matrices[i];
		uint64_t seed = 1000 * (uint64_t)i;

		if (m->bits == 16) {
			t[n] = tensor(name[n], m, "weight", m->scales, m->cols, scales(word_bytes(m), m->scales, seed));
			n++;
			continue;
		}
		t[n] = tensor(name[n], m, "weight", DT_U32, (int64_t)m->cols * m->bits / 32,
		              words(word_bytes(m), seed));
		n++;
		t[n] = tensor(name[n], m, "scales", m->scales, m->cols / 64,
		              scales(scale_bytes(m), m->scales, seed + 1));
		n++;
		t[n] = tensor(name[n], m, "biases", m->scales, m->cols / 64,
		              scales(scale_bytes(m), m->scales, seed + 2));
		n++;
	}
	folder_puts(dir, "config.json", "{}");
	assert_int_equal(safetensors_write(folder_path(dir, "model.safetensors"), t, n, NULL), 0);
	for (int i = 0; i < n; i++)
		free((void *)(uintptr_t)t[i].data);
	return 0;
}

static int remove_folder(void **state)
{
	folder_remove(dir);
	return 0;
}

/* ---- its weights ---- */

enum { PARTS = 3 };
static struct store *st;
static struct weight weight[MATRICES][PARTS];

static int parts_of(int i)
{
	return matrices[i].n ? matrices[i].n : 1;
}

static enum cpu_level best_with_blocks(void)
{
	enum cpu_level best = CPU_LEVELS;
	struct kernels k;

	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l)) {
		weight[0][0].fmt->kernels(&k, l);
		if (k.packed)
			best = l;
	}
	assert_int_not_equal(best, CPU_LEVELS);
	return best;
}

/* Whether pairs of bf16 are read is another question than whether codes are. */
static void know_pairs(void)
{
	struct kernels k;

	weight[PAIRS][0].fmt->kernels(&k, best_with_blocks());
	matrices[PAIRS].blocks = matrices[EXPERTS].blocks = k.packed;
}

static struct backend *be;
static struct placed *placed;
static int n_placed;

static void place_weights(void)
{
	struct err err = { 0 };

	placed = store_placed(st, &(struct arena){ 0 }, &n_placed);
	assert_int_equal(be->ops->place(be, placed, n_placed, &err), 0);
}

static void unplace_weights(void)
{
	be->ops->unplace(be, placed, n_placed);
	free(placed);
}

static void open_folder(void)
{
	struct err err = { 0 };

	assert_int_equal(store_open(&st, dir, &err), 0);
	for (int i = 0; i < MATRICES; i++) {
		const struct matrix *m = &matrices[i];

		assert_int_equal(m->n ? store_stack(st, m->path, m->n, m->rows, m->cols, weight[i], &err) :
		                        store_weight(st, m->path, m->rows, m->cols, weight[i], &err),
		                 0);
	}
	know_pairs();
	be = backend_cpu_open(1, best_with_blocks());
	place_weights();
}

static void close_folder(void)
{
	unplace_weights();
	be->ops->close(be);
	store_close(st);
}

static bool in_blocks(int i)
{
	return weight[i][0].packed && atomic_load(&weight[i][0].packed->at);
}

/* What the rows of a matrix stand for; of a large one every 37th, which is another of 16 each time. */
static uint64_t sum_of(int i, int from, int to)
{
	int step = matrices[i].rows > 1000 ? 37 : 1;
	static float row[BIG_COLS];
	uint64_t sum = 0;

	for (int k = 0; k < parts_of(i); k++)
		for (int o = from; o < to && o < matrices[i].rows; o += step) {
			weight[i][k].fmt->decode(row, &weight[i][k], o);
			sum = rng_mix(sum ^ check64(row, (size_t)matrices[i].cols * sizeof *row));
		}
	return sum;
}

static void sums_of(uint64_t sum[MATRICES])
{
	for (int i = 0; i < MATRICES; i++)
		sum[i] = sum_of(i, 0, INT_MAX);
}

/* ---- products ---- */

enum { X_ROWS = 3, SMALL_ROWS = 64 };

struct products {
	float out[MATRICES][PARTS][X_ROWS][SMALL_ROWS];
};

/* By the level's kernels, of the small ones; rows of x are the same for all. */
static void multiply(struct products *p, enum cpu_level level)
{
	enum { COLS = 256, GROUPS = COLS / 64 };
	static float x[X_ROWS][COLS], scale[X_ROWS * GROUPS], scaled[X_ROWS * GROUPS];
	static int8_t q[X_ROWS * COLS];
	static int32_t sum[X_ROWS * GROUPS];

	for (int r = 0; r < X_ROWS; r++)
		for (int i = 0; i < COLS; i++)
			x[r][i] = (float)rng_uniform(7, (uint64_t)i, (uint64_t)r) - 0.5f;
	for (int i = 0; i < MATRICES; i++) {
		struct weight *w = weight[i];
		struct acts a = { .rows = X_ROWS,
			          .cols = w->cols,
			          .f = x[0],
			          .ld = COLS,
			          .group = 64,
			          .q = q,
			          .scale = scale,
			          .sum = sum,
			          .scaled_sum = scaled };
		int groups = w->cols / 64;
		struct kernels k;
		void *scratch;

		if (w->rows > SMALL_ROWS)
			continue;
		w->fmt->kernels(&k, level);
		scratch = aligned_alloc(64, weight_scratch_bytes(w));
		for (int r = 0; r < X_ROWS && w->fmt->coding; r++)
			acts_quantiser(level)(q + r * w->cols, scale + r * groups, sum + r * groups,
			                      scaled + r * groups, x[r], w->cols, 64);
		for (int part = 0; part < parts_of(i); part++)
			k.mul[ARITH_FAST](p->out[i][part][0], SMALL_ROWS, &w[part], 0, w[part].rows, &a, 0, X_ROWS,
			                  scratch);
		free(scratch);
	}
}

/* ---- moving ---- */

static long resident_file_kb(void)
{
	struct buf b;
	const char *at;
	long kb = -1;
	struct err err;

	buf_init(&b);
	if (!file_read("/proc/self/status", 1 << 16, &b, &err)) {
		buf_putc(&b, 0);
		at = strstr(b.p, "RssFile:");
		kb = at ? atol(at + strlen("RssFile:")) : -1;
	}
	buf_fini(&b);
	return kb;
}

/* How often it was asked, and how often it says yes; resident memory of files when it was. */
struct asked {
	int n, most;
	size_t done;
	long kb[8];
};

static bool ask(void *arg, size_t done)
{
	struct asked *a = arg;

	assert_true(done >= a->done);
	a->done = done;
	a->kb[a->n % 8] = resident_file_kb();
	return a->n++ < a->most;
}

static size_t move(struct asked *a, enum arith arith)
{
	return be->ops->pack(be, &(struct pack_opts){ .arith = arith, .huge_rows = true, .more = ask, .arg = a });
}

/* Other bytes in the whole file, which a second call puts right: what has not moved shows them. */
static void turn_file(void)
{
	const char *path = folder_path(dir, "model.safetensors");
	FILE *f = fopen(path, "r+b");
	uint8_t *p = malloc(MB);
	size_t n;

	for (long at = 0; fseek(f, at, SEEK_SET), (n = fread(p, 1, MB, f)) > 0; at += (long)n) {
		for (size_t i = 0; i < n; i++)
			p[i] ^= 0x5a;
		fseek(f, at, SEEK_SET);
		assert_int_equal(fwrite(p, 1, n, f), n);
	}
	free(p);
	assert_int_equal(fclose(f), 0);
}

/* ---- tests ---- */

static void test_all(void **state)
{
	uint64_t before[MATRICES], after[MATRICES], middle;
	struct products want, got;
	struct asked a = { .most = INT_MAX }, again = { .most = INT_MAX };
	size_t moved;

	open_folder();
	memset(&want, 0, sizeof want);
	memset(&got, 0, sizeof got);
	sums_of(before);
	middle = sum_of(PLAIN, 300, 600);
	multiply(&want, best_with_blocks());
	moved = move(&a, ARITH_FAST);
	/* Two pieces of blocks, the end of them, and one of the plain matrix; the rows went with each piece. */
	assert_int_equal(a.n, 4);
	if (a.kb[0] >= 0) {
		assert_in_range(a.kb[1], 0, a.kb[0] - PIECE / 1024 * 9 / 10);
		assert_in_range(a.kb[2], 0, a.kb[0] - (long)(block_bytes_of(&matrices[BIG]) / 1024) * 9 / 10);
	}
	assert_in_range(moved, all_blocks() + word_bytes(&matrices[PLAIN]) - 2 * HUGE_PAGE_BYTES,
	                all_blocks() + word_bytes(&matrices[PLAIN]));
	for (int i = 0; i < MATRICES; i++)
		assert_int_equal(in_blocks(i), matrices[i].blocks);
	sums_of(after);
	multiply(&got, best_with_blocks());
	assert_memory_equal(before, after, sizeof before);
	assert_memory_equal(&want, &got, sizeof want);
	/* Nothing is done twice. */
	assert_int_equal(move(&again, ARITH_FAST), 0);
	assert_int_equal(again.n, 0);
	/* Nobody reads the file where there are blocks. */
	turn_file();
	sums_of(after);
	for (int i = 0; i < MATRICES; i++)
		assert_int_equal(before[i] == after[i], matrices[i].blocks);
	assert_int_equal(sum_of(PLAIN, 300, 600), middle); /* in huge pages */
	turn_file();
	close_folder();
}

/* Told to end in the middle of the big one, which is then as it was; a second call makes it. */
static void test_end(void **state)
{
	uint64_t before[MATRICES], after[MATRICES];
	struct asked a = { .most = 1 }, rest = { .most = INT_MAX };
	size_t small = all_blocks() - block_bytes_of(&matrices[BIG]), moved;
	int n;
	struct pack_run *run;

	open_folder();
	sums_of(before);
	a.most = 0;
	assert_int_equal(move(&a, ARITH_FAST), 0);
	a = (struct asked){ .most = 1 };
	moved = move(&a, ARITH_FAST);
	assert_int_equal(moved, small);
	for (int i = 0; i < MATRICES; i++)
		assert_int_equal(in_blocks(i), matrices[i].blocks && i != BIG);
	run = pack_runs(be, &n);
	assert_null(run[0].file);
	assert_int_equal(run[0].n, small);
	free(run);
	sums_of(after);
	assert_memory_equal(before, after, sizeof before);
	assert_true(move(&rest, ARITH_FAST) >= block_bytes_of(&matrices[BIG]));
	assert_true(in_blocks(BIG));
	sums_of(after);
	assert_memory_equal(before, after, sizeof before);
	close_folder();
}

static void test_no_memory(void **state)
{
	uint64_t before[MATRICES], after[MATRICES];
	struct asked a = { .most = INT_MAX };

	open_folder();
	sums_of(before);
	pages_room_max = all_blocks() - 1;
	assert_int_equal(move(&a, ARITH_FAST), 0);
	pages_room_max = SIZE_MAX;
	for (int i = 0; i < MATRICES; i++)
		assert_false(in_blocks(i));
	sums_of(after);
	assert_memory_equal(before, after, sizeof before);
	close_folder();
}

/* Where nobody reads blocks all rows go to huge pages; and what is to stay rows does. */
static void test_rows(void **state)
{
	uint64_t before[MATRICES], after[MATRICES];
	struct asked a = { .most = INT_MAX };
	size_t file;

	open_folder();
	file = st->file[0].map.n;
	sums_of(before);
	assert_int_equal(move(&a, ARITH_F32), file / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES);
	for (int i = 0; i < MATRICES; i++)
		assert_false(in_blocks(i));
	/* These rows are not the file's any more: they must not be sent away. */
	assert_int_equal(move(&a, ARITH_FAST), 0);
	sums_of(after);
	assert_memory_equal(before, after, sizeof before);
	close_folder();

	open_folder();
	unplace_weights();
	store_rows_only(st, weight[BIG]);
	place_weights();
	assert_null(weight[BIG][0].packed);
	a = (struct asked){ .most = INT_MAX };
	assert_in_range(move(&a, ARITH_FAST), all_blocks() - 4 * MB + word_bytes(&matrices[PLAIN]), file);
	for (int i = 0; i < MATRICES; i++)
		assert_int_equal(in_blocks(i), matrices[i].blocks && i != BIG);
	sums_of(after);
	assert_memory_equal(before, after, sizeof before);
	close_folder();
}

/* Each byte of the file is in one run, or in blocks. */
static void test_runs(void **state)
{
	struct asked a = { .most = INT_MAX };
	struct pack_run *run;
	size_t file, bytes = 0;
	int n;

	open_folder();
	file = st->file[0].map.n;
	run = pack_runs(be, &n);
	assert_int_equal(n, 1);
	assert_int_equal(run[0].n, file);
	assert_ptr_equal(run[0].file, &st->file[0].map);
	free(run);
	move(&a, ARITH_FAST);
	run = pack_runs(be, &n);
	for (int i = 0; i < n; i++) {
		bytes += run[i].n;
		assert_int_equal(run[i].file != NULL, i > 0);
		for (int k = 0; k < MATRICES && run[i].file; k++)
			assert_true(!in_blocks(k) || weight[k][0].data < run[i].p ||
			            weight[k][0].data >= run[i].p + run[i].n);
	}
	assert_int_equal(run[0].n, all_blocks());
	assert_int_equal(bytes, file);
	free(run);
	close_folder();
}

/* ---- beside who multiplies ---- */

struct mover {
	sem_t begin;
	atomic_bool done;
	size_t moved;
};

static void *mover(void *arg)
{
	struct mover *m = arg;
	struct asked a = { .most = INT_MAX };

	sem_wait(&m->begin);
	m->moved = move(&a, ARITH_FAST);
	atomic_store(&m->done, true);
	return NULL;
}

static void test_beside(void **state)
{
	struct products want, got;
	struct mover m = { .done = false };
	uint64_t big, plain;
	pthread_t thread;
	bool last = false;

	open_folder();
	memset(&want, 0, sizeof want);
	memset(&got, 0, sizeof got);
	multiply(&want, best_with_blocks());
	big = sum_of(BIG, 4000, 4300);
	plain = sum_of(PLAIN, 200, 500);
	sem_init(&m.begin, 0, 0);
	assert_int_equal(pthread_create(&thread, NULL, mover, &m), 0);
	for (int i = 0; !last; i++) {
		last = atomic_load(&m.done);
		if (i == 1)
			sem_post(&m.begin);
		multiply(&got, best_with_blocks());
		assert_memory_equal(&want, &got, sizeof want);
		assert_int_equal(sum_of(BIG, 4000, 4300), big);
		assert_int_equal(sum_of(PLAIN, 200, 500), plain);
	}
	pthread_join(thread, NULL);
	assert_true(m.moved > all_blocks());
	sem_destroy(&m.begin);
	close_folder();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all),  cmocka_unit_test(test_end),  cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_rows), cmocka_unit_test(test_runs), cmocka_unit_test(test_beside),
	};

	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests_name("moving weights", tests, make_folder, remove_folder);
}
