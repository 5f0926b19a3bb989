/* test_file.c - mapped files: their own memory for their bytes, while others read. */
#include <pthread.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/rng.h"

enum { MB = 1 << 20, HUGE_PAGE = 2 * MB, PIECE = 32 * MB, SIZE = 2 * PIECE + HUGE_PAGE + 4321, READERS = 3 };

static uint8_t byte_at(size_t i)
{
	return (uint8_t)(((uint64_t)i * 0x9E3779B97F4A7C15u) >> 56);
}

static struct file_map map;
static char path[] = "/tmp/weft-file-XXXXXX";
static int fd;

/* Bytes [0, SIZE) of a file, as they are (0) and with OTHER, made once: under a sanitizer each byte takes long. */
enum { OTHER = 0x5a };
static const uint8_t *bytes_of(uint8_t other)
{
	static uint8_t *all[2];

	assert_true(other == 0 || other == OTHER);
	if (!all[0]) {
		all[0] = malloc(SIZE);
		all[1] = malloc(SIZE);
		for (size_t i = 0; i < SIZE; i++)
			all[1][i] = (all[0][i] = byte_at(i)) ^ OTHER;
	}
	return all[other != 0];
}

static void write_all(size_t n, uint8_t other)
{
	const uint8_t *p = bytes_of(other);

	for (size_t at = 0; at < n; at += MB) {
		size_t k = n - at < MB ? n - at : MB;

		assert_int_equal(pwrite(fd, p + at, k, (off_t)at), k);
	}
}

static void make(size_t n)
{
	struct err err;

	strcpy(path + sizeof path - 7, "XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	write_all(n, 0);
	assert_int_equal(file_map_open(&map, path, &err), 0);
	assert_int_equal(map.n, n);
}

static void drop(void)
{
	file_map_close(&map);
	close(fd);
	unlink(path);
}

static bool in_order(size_t from, size_t to, uint8_t other)
{
	return memcmp(map.p + from, bytes_of(other) + from, to - from) == 0;
}

static atomic_bool done;
static atomic_long wrong;

/* Bytes from anywhere, again and again. */
static void *reader(void *arg)
{
	for (uint64_t i = 0; !atomic_load(&done); i++) {
		size_t at = (size_t)(rng_bits(*(const uint64_t *)arg, i, 0) % map.n);

		atomic_fetch_add(&wrong, map.p[at] != byte_at(at));
	}
	return NULL;
}

static bool up_to(void *arg, size_t n)
{
	return n < *(const size_t *)arg;
}

/* What was replaced is the process's own: the file's new bytes show only in the rest. */
static void test_own(void **state)
{
	static uint64_t seed[READERS] = { 1, 2, 3 };
	pthread_t thread[READERS];
	const size_t most[] = { 0, 1, PIECE + 1, SIZE }, own[] = { 0, PIECE, 2 * PIECE, 2 * PIECE + HUGE_PAGE };

	for (int k = 0; k < 4; k++) {
		size_t limit = most[k];

		make(SIZE);
		assert_int_equal((uintptr_t)map.p % HUGE_PAGE, 0);
		atomic_store(&done, false);
		for (int i = 0; i < READERS; i++)
			assert_int_equal(pthread_create(&thread[i], NULL, reader, &seed[i]), 0);
		assert_int_equal(file_map_own(&map, 0, map.n, up_to, &limit), own[k]);
		atomic_store(&done, true);
		for (int i = 0; i < READERS; i++)
			pthread_join(thread[i], NULL);
		assert_int_equal(atomic_load(&wrong), 0);
		assert_true(in_order(0, SIZE, 0));
		write_all(SIZE, 0x5a);
		assert_true(in_order(0, own[k], 0));
		assert_true(in_order(own[k], SIZE, 0x5a));
		drop();
	}
}

/* Of a range whole huge pages alone; and what is dropped comes back from the file. */
static void test_range(void **state)
{
	size_t limit = SIZE;

	make(SIZE);
	assert_int_equal(file_map_own(&map, 1, 2 * HUGE_PAGE - 1, up_to, &limit), 0);
	assert_int_equal(file_map_own(&map, 1, 2 * HUGE_PAGE, up_to, &limit), HUGE_PAGE);
	assert_int_equal(file_map_own(&map, 4 * HUGE_PAGE, 4 * HUGE_PAGE, up_to, &limit), 0);
	assert_true(in_order(0, SIZE, 0));
	file_map_drop(&map, 2 * HUGE_PAGE, SIZE);
	file_map_drop(&map, 5, 4095);
	assert_true(in_order(0, SIZE, 0));
	write_all(SIZE, 0x5a);
	assert_true(in_order(0, HUGE_PAGE, 0x5a));
	assert_true(in_order(HUGE_PAGE, 2 * HUGE_PAGE, 0));
	assert_true(in_order(2 * HUGE_PAGE, SIZE, 0x5a));
	/* No page that is not whole in the range: the one beside is the process's own. */
	file_map_drop(&map, HUGE_PAGE - 4095, HUGE_PAGE);
	file_map_drop(&map, 2 * HUGE_PAGE, 2 * HUGE_PAGE + 4095);
	assert_true(in_order(HUGE_PAGE, 2 * HUGE_PAGE, 0));
	drop();
}

/* Less than a huge page stays as it is; one and a byte has one. */
static void test_small(void **state)
{
	const size_t size[] = { 1, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 1 };
	size_t limit = SIZE;

	for (int k = 0; k < 4; k++) {
		make(size[k]);
		assert_int_equal(file_map_own(&map, 0, map.n, up_to, &limit), size[k] / HUGE_PAGE * HUGE_PAGE);
		assert_true(in_order(0, size[k], 0));
		drop();
	}
}

/* The last test: what is lost is lost for good. */
static void test_shorter(void **state)
{
	make(3 * HUGE_PAGE);
	fault_install();
	assert_null(file_lost());
	assert_int_equal(ftruncate(fd, HUGE_PAGE), 0);
	assert_true(in_order(0, HUGE_PAGE, 0));
	assert_null(file_lost());
	for (size_t i = HUGE_PAGE; i < map.n; i++)
		assert_int_equal(map.p[i], 0);
	assert_string_equal(file_lost(), path);
	drop();
	assert_string_equal(file_lost(), path);
}

/* A pipe in a file's place is refused, and not waited for. */
static void test_pipe(void **state)
{
	struct err err;

	strcpy(path + sizeof path - 7, "XXXXXX");
	fd = mkstemp(path);
	close(fd);
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(file_map_open(&map, path, &err), E_IO);
	assert_non_null(strstr(err.msg, "not a regular file"));
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_own), cmocka_unit_test(test_range),
		                            cmocka_unit_test(test_small), cmocka_unit_test(test_pipe),
		                            cmocka_unit_test(test_shorter) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
