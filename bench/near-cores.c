/* near-cores.c - whether two threads run on processors that share a third cache, and what memory gives them meanwhile.
 *
 *     cc -O3 -march=native bench/near-cores.c -o /tmp/near-cores -lpthread; /tmp/near-cores [LINES]
 *
 * Each line: gigabytes a second of two threads that read 512 MB in huge pages ten times, and the time of a cache line's
 * way to the other thread and back.  A host may move a virtual machine's processors at any moment. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BYTES = 512 << 20, HUGE = 2 << 20, RUN = 1 << 20, AHEAD = 3072, PASSES = 10, THROWS = 20000 };

typedef uint64_t line __attribute__((vector_size(64), aligned(64), may_alias));

static const uint8_t *memory;
static _Atomic uint64_t sink;
static _Alignas(64) atomic_int ball;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Half of the memory, as two runs side by side. */
static void *read_half(void *half)
{
	line a = { 0 }, b = { 0 };

	for (int k = 0; k < PASSES; k++)
		for (const uint8_t *p = half; p < (const uint8_t *)half + BYTES / 2; p += 2 * RUN)
			for (int i = 0; i < RUN; i += 64) {
				__builtin_prefetch(p + i + AHEAD);
				__builtin_prefetch(p + RUN + i + AHEAD);
				a += *(const line *)(p + i);
				b += *(const line *)(p + RUN + i);
			}
	a += b;
	sink += a[0] + a[7];
	return NULL;
}

static void *throw_back(void *none)
{
	for (int i = 0; i < THROWS; i++) {
		while (atomic_load(&ball) != 2 * i + 1)
			;
		atomic_store(&ball, 2 * i + 2);
	}
	return none;
}

static double read_seconds(void)
{
	pthread_t other;
	double t = now();

	pthread_create(&other, NULL, read_half, (void *)(memory + BYTES / 2));
	read_half((void *)memory);
	pthread_join(other, NULL);
	return now() - t;
}

static double throw_seconds(void)
{
	pthread_t other;
	double t;

	atomic_store(&ball, 0);
	pthread_create(&other, NULL, throw_back, NULL);
	t = now();
	for (int i = 0; i < THROWS; i++) {
		atomic_store(&ball, 2 * i + 1);
		while (atomic_load(&ball) != 2 * i + 2)
			;
	}
	t = now() - t;
	pthread_join(other, NULL);
	return t / THROWS;
}

int main(int argc, char **argv)
{
	int lines = argc > 1 ? atoi(argv[1]) : 10;
	uint8_t *p = mmap(NULL, BYTES + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("near-cores: 514 MB of memory");
		return 1;
	}
	p += (HUGE - (uintptr_t)p % HUGE) % HUGE;
	madvise(p, BYTES, MADV_HUGEPAGE);
	memset(p, 1, BYTES);
	memory = p;
	for (int i = 0; i < lines; i++) {
		double s = read_seconds();

		printf("%5.1f GB/s, there and back %5.0f ns\n", (double)BYTES * PASSES / s * 1e-9, throw_seconds() * 1e9);
		fflush(stdout);
	}
	return 0;
}
