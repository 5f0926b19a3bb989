/* test_pack.c - packs of prefixes: what is in one is what was in the folder, and nothing else is ever taken for it. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "engine/prefix/prefix_pack.h"
#include "spill_world.h"

enum { PREFIXES = 5 };

static char dir[PATH_MAX], from[PATH_MAX + 16], other[PATH_MAX + 16], path[PATH_MAX + 16], again[PATH_MAX + 16];

static const char about[] = "{\"model\": \"toy\"}\n";

static void must(int rc, const struct err *err)
{
	if (rc)
		fail_msg("%s", err->msg);
}

static struct pack_from all_of(const char *folder)
{
	return (struct pack_from){ .dir = folder, .model = world_opts(dir).model, .io = world_io() };
}

static struct spill *open_folder(const char *folder, struct pack *const *pack, int n)
{
	struct spill_opts o = world_opts(folder);
	struct err err;
	struct spill *s;

	o.pack = pack;
	o.n_pack = n;
	must(spill_open(&s, &o, &err), &err);
	return s;
}

static void fill(const char *folder)
{
	struct spill *s = open_folder(folder, NULL, 0);
	struct digest model = world_opts(dir).model;
	int32_t tok[LONGEST];
	struct err err;

	for (uint64_t k = 0; k < PREFIXES; k++)
		world_put(s, tok, world_tokens(k, tok));
	spill_close(s);
	must(pack_about_write(folder, &model, about, &err), &err);
}

static int setup(void **state)
{
	world_dir(dir);
	snprintf(from, sizeof(from), "%s/from", dir);
	snprintf(other, sizeof(other), "%s/other", dir);
	snprintf(path, sizeof(path), "%s/a.pack", dir);
	snprintf(again, sizeof(again), "%s/b.pack", dir);
	fill(from);
	return 0;
}

static int teardown(void **state)
{
	world_remove(dir);
	return 0;
}

static struct pack_sum write_pack(const char *folder, const char *to)
{
	struct pack_from f = all_of(folder);
	struct pack_sum sum;
	struct err err;

	must(pack_write(&f, to, &sum, &err), &err);
	return sum;
}

static struct pack *open_pack(const char *file)
{
	struct pack *p;
	struct err err;

	must(pack_open(&p, file, &err), &err);
	return p;
}

static void read_whole(const char *file, struct buf *out)
{
	struct err err;

	buf_init(out);
	must(file_read(file, SIZE_MAX, out, &err), &err);
}

static void write_whole(const char *file, const void *p, size_t n)
{
	FILE *f = fopen(file, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(p, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

static bool is_there(const char *file)
{
	return !access(file, F_OK);
}

/* Opened, checked and taken into a folder as a program would; the code of the first that refuses it. */
static int take(const char *file, struct err *err)
{
	struct pack *p;
	int rc = pack_open(&p, file, err);

	if (rc)
		return rc;
	rc = pack_check(p, NULL, NULL, err);
	pack_close(p);
	return rc;
}

/* ---- the same bytes ---- */

static void test_round_trip(void **state)
{
	struct pack_sum sum = write_pack(from, path), taken;
	struct pack *p = open_pack(path);
	struct buf a, b;
	struct err err;

	assert_string_equal(pack_about(p), about);
	assert_int_equal(pack_pieces(p), sum.pieces);
	assert_memory_equal(pack_digest(p), &sum.digest, sizeof(sum.digest));
	assert_int_equal(sum.left_out, 0);
	must(pack_check(p, NULL, NULL, &err), &err);
	must(pack_import(p, other, world_io(), &taken, &err), &err);
	assert_int_equal(taken.pieces, sum.pieces);
	must(pack_import(p, other, world_io(), &taken, &err), &err);
	assert_int_equal(taken.left_out, sum.pieces);
	pack_close(p);
	write_pack(other, again);
	read_whole(path, &a);
	read_whole(again, &b);
	assert_int_equal(a.n, sum.bytes);
	assert_int_equal(a.n, b.n);
	assert_memory_equal(a.p, b.p, a.n);
	buf_fini(&a);
	buf_fini(&b);
}

/* world_load compares every byte. */
static void load_all(struct spill *s)
{
	int32_t tok[LONGEST];

	for (uint64_t k = 0; k < PREFIXES; k++) {
		int n = world_tokens(k, tok);

		assert_int_equal(world_find(s, tok, n), n);
		assert_true(world_load(s, tok, n));
	}
}

static void test_served(void **state)
{
	struct pack *p;
	struct spill_opts o = world_opts(NULL);
	struct disk_stats st;
	struct err err;
	struct spill *s;
	int32_t tok[LONGEST];
	int n;

	write_pack(from, path);
	p = open_pack(path);
	o.pack = &p;
	o.n_pack = 1;
	must(spill_open(&s, &o, &err), &err);
	load_all(s);
	n = world_tokens(0, tok);
	tok[0]++;
	assert_int_equal(world_find(s, tok, n), 0);
	spill_close(s);

	/* Beside a folder: what the pack has is not written, and no part of its budget. */
	s = open_folder(other, &p, 1);
	load_all(s);
	for (uint64_t k = 0; k < PREFIXES; k++)
		world_put(s, tok, world_tokens(k, tok));
	spill_flush(s);
	spill_stats(s, &st);
	assert_int_equal(st.written, 0);
	assert_int_equal(st.bytes, 0);
	world_put(s, tok, world_tokens(100, tok));
	spill_flush(s);
	spill_stats(s, &st);
	assert_true(st.written > 0);
	spill_close(s);
	assert_int_equal(world_files(from, ".snap").files, PREFIXES);
	pack_close(p);
}

/* A dropped prefix is not found in a pack. */
static void test_dropped(void **state)
{
	struct digest key[LONGEST / ROWS + 1];
	int32_t tok[LONGEST];
	struct pack *p;

	write_pack(from, path);
	p = open_pack(path);
	for (int all = 0; all < 2; all++) {
		struct spill *s = open_folder(other, &p, 1);
		int n = world_tokens(1, tok);

		spill_keys(s, NULL, 0, tok, n, key);
		spill_drop(s, all ? NULL : key, tok, all ? 0 : n);
		spill_flush(s);
		assert_int_equal(world_find(s, tok, n), 0);
		spill_close(s);
	}
	pack_close(p);
}

/* A budget that is full takes nothing out of a pack. */
static void test_budget(void **state)
{
	struct spill_opts o = world_opts(other);
	struct pack *p;
	struct spill *s;
	struct err err;
	int32_t tok[LONGEST];

	write_pack(from, path);
	p = open_pack(path);
	o.pack = &p;
	o.n_pack = 1;
	o.bytes_max = 2000;
	must(spill_open(&s, &o, &err), &err);
	for (uint64_t k = 100; k < 120; k++)
		world_put(s, tok, world_tokens(k, tok));
	spill_flush(s);
	load_all(s);
	spill_close(s);
	pack_close(p);
}

/* ---- what is refused ---- */

static void test_flips(void **state)
{
	struct buf b;
	struct err err;
	int fd;

	write_pack(from, path);
	read_whole(path, &b);
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	for (size_t i = 0; i < b.n; i += getenv("WEFT_TEST_QUICK") && i > 400 ? 5 : 1) {
		char flipped = (char)(b.p[i] ^ 1 << i % 8);

		assert_int_equal(pwrite(fd, &flipped, 1, (off_t)i), 1);
		if (!take(path, &err))
			fail_msg("bit %zu of byte %zu is not missed", i % 8, i);
		if (!strstr(err.msg, path))
			fail_msg("byte %zu: no path in \"%s\"", i, err.msg);
		assert_int_equal(pwrite(fd, &b.p[i], 1, (off_t)i), 1);
	}
	close(fd);
	must(take(path, &err), &err);
	buf_fini(&b);
}

static void test_cut(void **state)
{
	struct buf b;
	struct err err;

	write_pack(from, path);
	read_whole(path, &b);
	for (size_t n = 0; n < b.n; n += n < 400 ? 1 : 37) {
		write_whole(again, b.p, n);
		assert_int_not_equal(take(again, &err), 0);
	}
	buf_putc(&b, 0);
	write_whole(again, b.p, b.n);
	assert_int_not_equal(take(again, &err), 0);
	buf_fini(&b);
}

/* The head of a pack as bytes: prefix_pack.h. */
enum {
	AT_VERSION = 8,
	AT_ABOUT = 12,
	AT_PIECES = 16,
	AT_PIECE_BYTES = 24,
	AT_FILE_BYTES = 32,
	AT_MODEL = 40,
	AT_TABLE = 72
};

static uint64_t get(const struct buf *b, size_t at)
{
	uint64_t v;

	memcpy(&v, b->p + at, sizeof(v));
	return v;
}

static void set(struct buf *b, size_t at, uint64_t v, size_t n)
{
	memcpy(b->p + at, &v, n);
}

/* Computes the checksums again, as for a file that is forged on purpose. */
static void repair(struct buf *b)
{
	uint32_t about_bytes = (uint32_t)get(b, AT_ABOUT);
	uint64_t table = PACK_HEAD + about_bytes + get(b, AT_PIECE_BYTES);
	struct sha256 h;
	struct digest d;

	if (about_bytes < b->n - PACK_HEAD && table <= b->n) {
		sha256_init(&h);
		sha256_put(&h, b->p + PACK_HEAD, about_bytes);
		sha256_put(&h, b->p + table, b->n - table);
		sha256_end(&h, &d);
		memcpy(b->p + AT_TABLE, &d, sizeof(d));
	}
	set(b, PACK_HEAD - 8, check64(b->p, PACK_HEAD - 8), 8);
}

static void test_sizes(void **state)
{
	static const struct {
		size_t at, n;
	} field[] = {
		{ AT_VERSION, 4 }, { AT_ABOUT, 4 }, { AT_PIECES, 8 }, { AT_PIECE_BYTES, 8 }, { AT_FILE_BYTES, 8 }
	};
	static const uint64_t odd[] = { 0,          1,          2,          47,    48,         1ull << 31,
		                        1ull << 32, 1ull << 60, 1ull << 63, ~0ull, ~0ull - 111 };
	struct buf b;
	struct err err;

	write_pack(from, path);
	read_whole(path, &b);
	for (size_t f = 0; f < sizeof(field) / sizeof(*field); f++)
		for (size_t k = 0; k < 2 * sizeof(odd) / sizeof(*odd); k++) {
			uint64_t before = get(&b, field[f].at), v = odd[k / 2] + (k % 2 ? before : 0);

			set(&b, field[f].at, v, field[f].n);
			if (get(&b, field[f].at) == before)
				continue;
			repair(&b);
			write_whole(again, b.p, b.n);
			if (!take(again, &err))
				fail_msg("field at %zu: %llu is taken", field[f].at, (unsigned long long)v);
			set(&b, field[f].at, before, 8);
		}
	buf_fini(&b);
}

/* Two neighbours of n bytes change places. */
static void swap(char *p, size_t n)
{
	char *first = xmalloc(n);

	memcpy(first, p, n);
	memmove(p, p + n, n);
	memcpy(p + n, first, n);
	free(first);
}

/* An entry of the table that says another size, twice the same piece, pieces in another order, of another model. */
static void test_table(void **state)
{
	size_t table, entry, size;
	struct sha256 h;
	struct digest d;
	struct buf b;
	struct err err;

	write_pack(from, path);
	read_whole(path, &b);
	table = PACK_HEAD + (uint32_t)get(&b, AT_ABOUT) + get(&b, AT_PIECE_BYTES);
	for (int k = 0; k < 5; k++) {
		static const uint64_t odd[] = { 0, SPILL_HEAD - 1, SPILL_HEAD, 1 << 20, ~0ull };
		uint64_t before = get(&b, table + 32);

		set(&b, table + 32, odd[k], 8);
		repair(&b);
		write_whole(again, b.p, b.n);
		assert_int_equal(take(again, &err), E_FORMAT);
		assert_non_null(strstr(err.msg, odd[k] == SPILL_HEAD ? "head" : "are left"));
		set(&b, table + 32, before, 8);
	}
	/* Another digest than the piece has. */
	b.p[table + 5] ^= 1;
	repair(&b);
	write_whole(again, b.p, b.n);
	assert_int_equal(take(again, &err), E_FORMAT);
	assert_non_null(strstr(err.msg, "the table says"));
	b.p[table + 5] ^= 1;
	/* A number of a piece is another, and the digest in the table with it, the checksum in the piece is not. */
	entry = b.n - PACK_ENTRY;
	size = (size_t)get(&b, entry + 32);
	b.p[table - 1] ^= 1;
	sha256_init(&h);
	sha256_put(&h, b.p + table - size, size);
	sha256_end(&h, &d);
	memcpy(b.p + entry, &d, sizeof(d));
	repair(&b);
	write_whole(again, b.p, b.n);
	assert_int_equal(take(again, &err), E_FORMAT);
	assert_non_null(strstr(err.msg, "its checksum"));
	buf_fini(&b);
	read_whole(path, &b);
	/* The last two pieces, pages of one size, change places. */
	entry = b.n - 2 * PACK_ENTRY;
	size = (size_t)get(&b, entry + 32);
	assert_int_equal(size, get(&b, entry + PACK_ENTRY + 32));
	for (int back = 0; back < 2; back++) {
		swap(b.p + table - 2 * size, size);
		swap(b.p + entry, PACK_ENTRY);
		repair(&b);
		write_whole(again, b.p, b.n);
		assert_int_equal(take(again, &err), back ? 0 : E_FORMAT);
		if (!back)
			assert_non_null(strstr(err.msg, "not in its place"));
	}
	/* The last piece twice. */
	memcpy(b.p + table - 2 * size, b.p + table - size, size);
	memcpy(b.p + entry, b.p + entry + PACK_ENTRY, PACK_ENTRY);
	repair(&b);
	write_whole(again, b.p, b.n);
	assert_int_equal(take(again, &err), E_FORMAT);
	buf_fini(&b);
	read_whole(path, &b);
	b.p[AT_MODEL] ^= 1;
	repair(&b);
	write_whole(again, b.p, b.n);
	assert_int_equal(take(again, &err), E_FORMAT);
	assert_non_null(strstr(err.msg, "another model"));
	buf_fini(&b);
}

/* ---- what goes wrong on the way ---- */

static struct spill_io bad_io;
static int calls, fail_at, half;

static bool fails(void)
{
	return ++calls == fail_at;
}

static ssize_t bad_write(const struct spill_io *io, int fd, const void *p, size_t n)
{
	if (fails()) {
		errno = ENOSPC;
		return half ? write(fd, p, n / 2) : -1;
	}
	return half && calls > fail_at ? (errno = ENOSPC, -1) : write(fd, p, n);
}

static int bad_sync(const struct spill_io *io, int fd)
{
	errno = EIO;
	return fails() ? -1 : 0;
}

static int bad_rename(const struct spill_io *io, int d, const char *a, const char *b)
{
	errno = EROFS;
	return fails() ? -1 : renameat(d, a, d, b);
}

/* Whichever call fails: no file has the name, none is left, and what was imported before is whole. */
static void test_full(void **state)
{
	struct pack_from f = all_of(from);
	struct pack_sum sum;
	struct err err;
	struct pack *p;
	char partial[PATH_MAX + 32];
	int rc;

	bad_io = *world_io();
	bad_io.write = bad_write;
	bad_io.sync = bad_sync;
	bad_io.rename = bad_rename;
	f.io = &bad_io;
	snprintf(partial, sizeof(partial), "%s.partial", path);
	for (half = 0; half < 2; half++) {
		unlink(path);
		for (fail_at = 1;; fail_at++) {
			calls = 0;
			rc = pack_write(&f, path, &sum, &err);
			assert_false(is_there(partial));
			if (calls <= fail_at) /* the last is the sync of the folder, which may fail */
				break;
			assert_int_equal(rc, E_IO);
			assert_false(is_there(path));
		}
	}
	half = fail_at = 0;
	must(pack_write(&f, path, &sum, &err), &err);
	p = open_pack(path);
	for (fail_at = 1;; fail_at++) {
		calls = 0;
		world_remove(other);
		rc = pack_import(p, other, &bad_io, &sum, &err);
		assert_int_equal(world_files(other, ".snap").tmp, 0);
		if (calls <= fail_at)
			break;
		assert_int_equal(rc, E_IO);
	}
	assert_true(fail_at > 40); /* calls were counted */
	pack_close(p);
}

/* A piece that is damaged or has gone is left out, and all others are there. */
static void test_left_out(void **state)
{
	struct pack_sum whole = write_pack(from, path), sum;
	struct world_files f = world_files(from, ".snap");
	struct err err;
	struct buf b;

	read_whole(f.last, &b);
	b.p[b.n - 1] ^= 1;
	write_whole(f.last, b.p, b.n);
	buf_fini(&b);
	sum = write_pack(from, again);
	assert_int_equal(sum.left_out, 1);
	assert_int_equal(sum.pieces, whole.pieces - 1);
	must(take(again, &err), &err);
	assert_int_equal(unlink(f.last), 0);
	unlink(again);
	sum = write_pack(from, again);
	assert_int_equal(sum.pieces, whole.pieces - 1);
	must(take(again, &err), &err);
}

static void test_open_elsewhere(void **state)
{
	struct spill *s = open_folder(from, NULL, 0);
	struct pack_sum sum = write_pack(from, path);
	struct pack *p = open_pack(path);
	struct err err;

	assert_int_equal(pack_import(p, from, world_io(), &sum, &err), 0);
	assert_int_equal(sum.pieces, 0); /* all were there */
	pack_close(p);
	spill_close(s);
}

static void test_positions(void **state)
{
	struct pack_from f = all_of(from);
	struct pack_sum sum;
	struct pack_piece piece;
	struct pack_walk w;
	struct pack *p;
	struct err err;
	int32_t tok[LONGEST];
	int n = world_tokens(3, tok), nowhere[] = { n, LONGEST + 1 }, rc;

	f.pos = &n;
	f.n_pos = 1;
	must(pack_write(&f, path, &sum, &err), &err);
	p = open_pack(path);
	for (w = pack_walk(p); pack_next(&w, &piece, &rc, &err);)
		assert_true(piece.head.kind == SPILL_PAGE ? piece.head.pos <= (uint32_t)n :
		                                            piece.head.pos == (uint32_t)n);
	must(rc, &err);
	pack_close(p);
	f.pos = nowhere;
	f.n_pos = 2;
	assert_int_equal(pack_write(&f, again, &sum, &err), E_MISSING);
	assert_false(is_there(again));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_round_trip), T(test_served),   T(test_dropped),        T(test_budget),
		T(test_flips),      T(test_cut),      T(test_sizes),          T(test_table),
		T(test_full),       T(test_left_out), T(test_open_elsewhere), T(test_positions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
