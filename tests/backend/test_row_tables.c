/* test_row_tables.c - embed of tables that stay on disk (docs/experts-from-disk.md): the floats of rows in memory, whatever the
 * buffer, the threads and the way of reading; reads that fail, and files that are cut, changed or replaced. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "../check.h"

/* The bf16 table begins at an odd byte; the coded one's rows, scales and biases lie one after the other behind it, up to the
 * end of the file. */
enum {
	BEFORE = 777,
	WIDE = 700,
	PLAIN_ROWS = 3001,
	CODED_ROWS = 500,
	CODED_COLS = 2048,
	GROUP = 64,
	ROWS = 300,
	ITEMS = 5
};
enum { PLAIN_BYTES = PLAIN_ROWS * WIDE * 2, CODE_BYTES = CODED_ROWS * CODED_COLS / 2 };
enum { SCALE_BYTES = CODED_ROWS * (CODED_COLS / GROUP) * 2 };
enum { PLAIN_AT = BEFORE, CODES_AT = PLAIN_AT + PLAIN_BYTES, SCALES_AT = CODES_AT + CODE_BYTES };
enum { BIASES_AT = SCALES_AT + SCALE_BYTES, BYTES = BIASES_AT + SCALE_BYTES };

static char dir[] = "/tmp/weft-tables-XXXXXX", path[64];
static uint8_t bytes[BYTES]; /* of the file, by which it is judged */

static void write_file(const char *to)
{
	FILE *f = fopen(to, "w");

	CHECK(f && fwrite(bytes, 1, BYTES, f) == BYTES && !fclose(f), "%s", to);
}

static void make_bytes(void)
{
	for (int i = PLAIN_AT; i + 1 < BYTES; i += 2) {
		uint16_t h = float_to_bf16((float)(rng_uniform(4, (uint64_t)i, 0) * 2 - 1));

		memcpy(bytes + i, &h, 2);
	}
}

/* Both tables in memory that begins at p as the file does. */
static void tables_at(struct weight w[2], const uint8_t *p)
{
	struct err err;

	CHECK(!weight_plain(&w[0], "plain", DT_BF16, PLAIN_ROWS, WIDE, p + PLAIN_AT, PLAIN_BYTES, &err), "%s", err.msg);
	CHECK(!weight_coded(&w[1], "coded", "affine", 4, GROUP, CODED_ROWS, CODED_COLS, p + CODES_AT, CODE_BYTES,
	                    p + SCALES_AT, SCALE_BYTES, p + BIASES_AT, SCALE_BYTES, DT_BF16, &err),
	      "%s", err.msg);
}

struct world {
	struct file_map map;
	struct stream_file file;
	struct weight on_disk[2], truth[2];
	struct backend *be;
	struct pass pass;
	int32_t tok[ROWS], item[ROWS];
	bool spoiled[ITEMS];
	float *out;
};

static void open_map(struct world *w)
{
	struct err err;

	*w = (struct world){ 0 };
	CHECK(!file_map_open(&w->map, path, &err), "%s", err.msg);
	w->file = (struct stream_file){ &w->map, path };
	tables_at(w->on_disk, w->map.p);
	tables_at(w->truth, bytes);
	w->out = xcalloc((size_t)ROWS * CODED_COLS, sizeof *w->out);
}

static int stream(struct world *w, struct rows_opts how, struct err *err)
{
	const struct weight *table[] = { &w->on_disk[0], &w->on_disk[1] };

	how.file = &w->file;
	how.n_file = 1;
	return w->be->ops->stream_rows(w->be, table, 2, &how, err);
}

static void open_world(struct world *w, int threads, size_t room, enum reads_way way)
{
	struct err err;

	open_map(w);
	w->be = backend_cpu_open(threads, cpu_detect());
	w->pass = (struct pass){ .be = w->be, .tok = w->tok, .item = w->item, .spoil.items = w->spoiled };
	CHECK(!stream(w, (struct rows_opts){ .bytes = room, .way = way }, &err), "%s", err.msg);
}

static void close_world(struct world *w)
{
	if (w->be)
		w->be->ops->close(w->be);
	file_map_close(&w->map);
	free(w->out);
}

/* n rows by chance, many of them close to each other, and those at both ends. */
static void choose(struct world *w, int table, int n, uint64_t seed)
{
	int rows = w->truth[table].rows;

	for (int i = 0; i < n; i++) {
		uint64_t x = rng_bits(seed, (uint64_t)i, 0);

		w->tok[i] = (int32_t)(x % 3 ? x / 3 % (uint64_t)rows : x / 3 % 9);
		w->item[i] = i * ITEMS / n;
	}
	w->tok[n / 2] = rows - 1;
	w->tok[0] = -1; /* brings its own vector: row 0 */
	w->pass.n_row = n;
	w->pass.n_item = ITEMS;
	memset(w->spoiled, 0, sizeof w->spoiled);
	w->pass.spoil.why.code = 0;
}

/* Embeds, and returns the number of rows that are zeros; others must be right, and items of zeros alone are spoiled. */
static int embed(struct world *w, int table)
{
	const struct weight *truth = &w->truth[table];
	size_t row = (size_t)truth->cols * sizeof(float);
	float *want = xmalloc(row), *zero = xcalloc(1, row);
	bool lost[ITEMS] = { false };
	int n = 0;

	memset(w->out, 0xff, (size_t)w->pass.n_row * row);
	w->be->ops->embed(&w->pass, w->out, &w->on_disk[table]);
	for (int i = 0; i < w->pass.n_row; i++) {
		const float *got = w->out + (size_t)i * (size_t)truth->cols;

		truth->fmt->decode(want, truth, w->tok[i] < 0 ? 0 : w->tok[i]);
		if (!memcmp(got, want, row))
			continue;
		CHECK(!memcmp(got, zero, row), "table %d, row %d of %d, which looks up %d, is another", table, i,
		      w->pass.n_row, w->tok[i]);
		lost[w->item[i]] = true;
		n++;
	}
	for (int i = 0; i < ITEMS; i++)
		CHECK(w->spoiled[i] == lost[i], "item %d: spoiled %d", i, w->spoiled[i]);
	CHECK(!n == !w->pass.spoil.why.code, "%d rows lost, error %d", n, w->pass.spoil.why.code);
	free(want);
	free(zero);
	return n;
}

static void equal(void)
{
	static const size_t room[] = { 1, 30000, 1 << 20, 16 << 20 };

	for (int i = 0; i < 8; i++) {
		struct world w;
		struct row_stats s;

		open_world(&w, 1 + i % 2, room[i / 2], i % 4 == 3 ? READS_THREADS : READS_BEST);
		for (int n = 1; n <= ROWS; n += n < 8 ? 1 : 73) {
			for (int table = 0; table < 2; table++) {
				choose(&w, table, n, (uint64_t)n);
				CHECK(!embed(&w, table), "a row is lost");
			}
		}
		w.be->ops->row_stats(w.be, &s);
		CHECK(s.tables == 2 && s.table_bytes == BYTES - BEFORE && s.reads && !s.failed, "%zu bytes, %d failed",
		      s.table_bytes, (int)s.failed);
		close_world(&w);
	}
}

/* ---- faults ---- */

static atomic_int reads_begun;

static int fail_some(const struct read_ask *a)
{
	return atomic_fetch_add(&reads_begun, 1) % 7 == 3 ? EIO : 0;
}

static void failing(enum reads_way way)
{
	struct world w;
	struct row_stats s;
	int lost[2] = { 0 };

	open_world(&w, 2, 100000, way);
	for (int table = 0; table < 2; table++)
		for (int n = 10; n <= ROWS; n += 58) {
			choose(&w, table, n, (uint64_t)n);
			reads_fault = fail_some;
			lost[table] += embed(&w, table);
			reads_fault = NULL;
			CHECK(!w.pass.spoil.why.code ||
			              strstr(w.pass.spoil.why.msg,
			                     table ? "of coded could not be read" : "of plain could not be read"),
			      "%s", w.pass.spoil.why.msg);
			choose(&w, table, n, (uint64_t)n);
			CHECK(!embed(&w, table), "a row is lost after the disk has recovered");
		}
	w.be->ops->row_stats(w.be, &s);
	CHECK(lost[0] > 10 && lost[1] > 10 && s.failed == lost[0] + lost[1], "%d and %d rows lost, %d counted", lost[0],
	      lost[1], (int)s.failed);
	close_world(&w);
}

/* The file loses its end, from the middle of the coded rows on, or is touched. */
static void changed(bool cut, const char *says)
{
	static const struct timespec then[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
	struct world w;

	write_file(path);
	open_world(&w, 1, 1 << 20, READS_BEST);
	CHECK(cut ? !truncate(path, SCALES_AT - CODE_BYTES / 2) : !utimensat(AT_FDCWD, path, then, 0), "%s", path);
	choose(&w, 1, 64, 1);
	CHECK(embed(&w, 1) == 64 && strstr(w.pass.spoil.why.msg, path), "%s", w.pass.spoil.why.msg);
	choose(&w, 1, 5, 1);
	for (int i = 0; i < 5; i++)
		w.tok[i] = CODED_ROWS - 1;
	CHECK(embed(&w, 1) == 5 && strstr(w.pass.spoil.why.msg, says), "%s, not %s", w.pass.spoil.why.msg, says);
	close_world(&w);
}

static void refused(void)
{
	char other[80];
	struct err err;
	struct world w;

	write_file(path);
	open_map(&w);
	w.be = backend_cpu_open(1, cpu_detect());
	w.on_disk[1] = w.truth[1];
	CHECK(stream(&w, (struct rows_opts){ .bytes = 1 }, &err) == E_UNSUPPORTED && strstr(err.msg, "coded: made"),
	      "%s", err.msg);
	snprintf(other, sizeof other, "%s.new", path);
	write_file(other);
	CHECK(!rename(other, path), "rename");
	CHECK(stream(&w, (struct rows_opts){ .bytes = 1 }, &err) == E_IO && strstr(err.msg, "changed since"), "%s",
	      err.msg);
	close_world(&w);
}

int main(void)
{
	CHECK(mkdtemp(dir), "mkdtemp");
	snprintf(path, sizeof path, "%s/tables", dir);
	make_bytes();
	write_file(path);
	equal();
	failing(READS_BEST);
	failing(READS_THREADS);
	changed(true, "ends too early");
	changed(false, "was changed");
	refused();
	CHECK(!unlink(path) && !rmdir(dir), "%s", dir);
	return 0;
}
