/* test_missing.c - functions of src/base/posix/missing.h against glibc's, which they stand for. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/posix/missing.h"
#include "base/rng.h"
#undef memmem
#undef memrchr
#undef strcasestr
#undef qsort_r

static uint64_t random_below(uint64_t n)
{
	static uint64_t at;

	return rng_bits(1, at++, 0) % n;
}

/* A few letters alone, so that beginnings of matches are many. */
static size_t random_text(char *to, size_t most)
{
	size_t n = random_below(most + 1);

	for (size_t i = 0; i < n; i++)
		to[i] = "abAB"[random_below(4)];
	to[n] = 0;
	return n;
}

static int by_number(const void *a, const void *b, void *sign)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x < y ? -1 : x > y) * *(const int *)sign;
}

int main(void)
{
	for (int round = 0; round < 20000; round++) {
		char text[33], what[5];
		size_t n = random_text(text, sizeof text - 1), m = random_text(what, sizeof what - 1);

		assert(missing_memmem(text, n, what, m) == memmem(text, n, what, m));
		assert(missing_memrchr(text, *what, n) == memrchr(text, *what, n));
		assert(missing_strcasestr(text, what) == strcasestr(text, what));
	}
	for (int round = 0; round < 2000; round++) {
		uint32_t a[50][3], b[50][3]; /* elements longer than a word */
		size_t n = random_below(51);
		int sign = round & 1 ? 1 : -1;

		for (size_t i = 0; i < n; i++)
			for (int k = 0; k < 3; k++)
				/* No two are equal: glibc's order of those is its own. */
				a[i][k] = b[i][k] = (uint32_t)(random_below(1000) * 50 + i);
		missing_qsort_r(a, n, sizeof *a, by_number, &sign);
		qsort_r(b, n, sizeof *b, by_number, &sign);
		assert(!memcmp(a, b, n * sizeof *a));
	}
	puts("as glibc's");
	return 0;
}
