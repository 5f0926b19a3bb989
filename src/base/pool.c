/* pool.c - see pool.h.
 *
 * One job at a time, cut into a run of parts for each thread, published by bumping a
 * generation counter; a thread takes the parts of its own run and then those that
 * are left of others', from an atomic counter each.  A worker spins on the generation
 * of its run for SPIN rounds (tens of microseconds, longer than the gap between two
 * operations of a step), then sleeps on a condition variable.  The generation and the
 * part counter share one 64-bit word, so that a worker that wakes late cannot take a
 * part of a newer job with the older job's function. */
#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/fault.h"

enum { SPIN = 4000, CACHE_LINE = 64 };

struct run {
	_Alignas(CACHE_LINE) _Atomic uint64_t ticket; /* generation << 32 | next part */
	atomic_int end;
};

struct pool {
	_Alignas(CACHE_LINE) atomic_int done; /* parts finished of this job */
	_Alignas(CACHE_LINE) atomic_int sleeping;
	atomic_bool quit;
	pool_fn *_Atomic fn;
	void *_Atomic ctx;
	struct run *run; /* [n_threads asked for] */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	int n_threads;
	uint64_t joins;
	int *begin; /* [n_threads asked for + 1]: pool_run's own cut */
	pthread_t *thread;
};

static _Thread_local int thread_index;

int pool_thread(void)
{
	return thread_index;
}
int pool_threads(const struct pool *p)
{
	return p->n_threads;
}
const uint64_t *pool_joins(const struct pool *p)
{
	return &p->joins;
}

static void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb"); /* `yield` does nothing on most of these processors */
#endif
}

/* Takes parts of job generation gen out of one run until none is left. */
static void work_run(struct pool *p, struct run *r, uint32_t gen)
{
	for (;;) {
		uint64_t t = atomic_load_explicit(&r->ticket, memory_order_acquire);
		/* A thread that sees the end of a newer job also sees the older ticket closed (pool_run_cut). */
		int end = atomic_load_explicit(&r->end, memory_order_acquire);
		pool_fn *fn = atomic_load_explicit(&p->fn, memory_order_relaxed);
		void *ctx = atomic_load_explicit(&p->ctx, memory_order_relaxed);

		if ((uint32_t)(t >> 32) != gen || (uint32_t)t >= (uint32_t)end)
			return;
		if (!atomic_compare_exchange_weak_explicit(&r->ticket, &t, t + 1, memory_order_acq_rel,
		                                           memory_order_relaxed))
			continue;
		fn(ctx, (int)(uint32_t)t);
		atomic_fetch_add_explicit(&p->done, 1, memory_order_release);
	}
}

static void work(struct pool *p, uint32_t gen, int index)
{
	for (int i = 0; i < p->n_threads; i++)
		work_run(p, &p->run[(index + i) % p->n_threads], gen);
}

/* In one order with `sleeping`: a worker that goes to sleep sees the new job, or the job's caller sees it asleep. */
static uint32_t generation(struct pool *p, int index)
{
	return (uint32_t)(atomic_load_explicit(&p->run[index].ticket, memory_order_seq_cst) >> 32);
}

struct start {
	struct pool *p;
	int index;
};

static void *worker(void *arg)
{
	struct start s = *(struct start *)arg;
	struct pool *p = s.p;
	uint32_t seen = 0;

	free(arg);
	thread_index = s.index;
	for (;;) {
		uint32_t gen = seen;

		for (int i = 0; i < SPIN && (gen = generation(p, s.index)) == seen; i++)
			cpu_relax();
		if (gen == seen) {
			pthread_mutex_lock(&p->lock);
			atomic_fetch_add(&p->sleeping, 1);
			while ((gen = generation(p, s.index)) == seen && !atomic_load(&p->quit))
				pthread_cond_wait(&p->wake, &p->lock);
			atomic_fetch_sub(&p->sleeping, 1);
			pthread_mutex_unlock(&p->lock);
		}
		if (atomic_load(&p->quit))
			return NULL;
		seen = gen;
		work(p, gen, s.index);
	}
}

struct pool *pool_new(int n_threads)
{
	struct pool *p = aligned_alloc(CACHE_LINE, (sizeof *p + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);

	if (!p)
		fault_abort();
	if (n_threads < 1)
		n_threads = 1;
	*p = (struct pool){ .n_threads = n_threads };
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, NULL);
	p->run = aligned_alloc(CACHE_LINE, (size_t)n_threads * sizeof *p->run);
	if (!p->run)
		fault_abort();
	for (int i = 0; i < n_threads; i++)
		p->run[i] = (struct run){ 0 };
	p->begin = xcalloc((size_t)n_threads + 1, sizeof *p->begin);
	p->thread = xcalloc((size_t)n_threads, sizeof *p->thread);
	for (int i = 1; i < n_threads; i++) {
		struct start *s = xmalloc(sizeof *s);

		*s = (struct start){ p, i };
		if (pthread_create(&p->thread[i], NULL, worker, s)) {
			free(s);
			p->n_threads = i; /* fewer threads give the same answers */
			break;
		}
	}
	return p;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	atomic_store(&p->quit, true);
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);
	/* A worker that spins sees quit after its spin, through the same path. */
	for (int i = 1; i < p->n_threads; i++)
		pthread_join(p->thread[i], NULL);
	pthread_mutex_destroy(&p->lock);
	pthread_cond_destroy(&p->wake);
	free(p->thread);
	free(p->begin);
	free(p->run);
	free(p);
}

void pool_run(struct pool *p, pool_fn *fn, void *ctx, int n)
{
	for (int i = 0; i <= p->n_threads; i++)
		p->begin[i] = (int)((int64_t)(n < 0 ? 0 : n) * i / p->n_threads);
	pool_run_cut(p, fn, ctx, p->begin);
}

void pool_run_cut(struct pool *p, pool_fn *fn, void *ctx, const int *begin)
{
	int n = begin[p->n_threads];
	uint32_t gen;

	if (p->n_threads == 1 || n <= 1) {
		for (int i = 0; i < n; i++)
			fn(ctx, i);
		return;
	}
	p->joins++;
	gen = generation(p, 0) + 1;
	/* Close the old tickets before the job changes: a late worker may still hold
	 * one, and a larger end would make its part number look like work. */
	for (int i = 0; i < p->n_threads; i++)
		atomic_exchange_explicit(&p->run[i].ticket, (uint64_t)(gen - 1) << 32 | UINT32_MAX,
		                         memory_order_acq_rel);
	atomic_store_explicit(&p->done, 0, memory_order_relaxed);
	atomic_store_explicit(&p->fn, fn, memory_order_relaxed);
	atomic_store_explicit(&p->ctx, ctx, memory_order_relaxed);
	for (int i = 0; i < p->n_threads; i++) {
		atomic_store_explicit(&p->run[i].end, begin[i + 1], memory_order_release);
		atomic_store_explicit(&p->run[i].ticket, (uint64_t)gen << 32 | (uint32_t)begin[i],
		                      memory_order_seq_cst);
	}
	if (atomic_load_explicit(&p->sleeping, memory_order_seq_cst)) {
		pthread_mutex_lock(&p->lock);
		pthread_cond_broadcast(&p->wake);
		pthread_mutex_unlock(&p->lock);
	}
	work(p, gen, 0);
	while (atomic_load_explicit(&p->done, memory_order_acquire) < n)
		cpu_relax();
}
