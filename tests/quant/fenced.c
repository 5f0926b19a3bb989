#include "fenced.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/rng.h"

uint64_t seed = 1, counter;
int failures;

uint64_t bits(void)
{
	return rng_bits(seed, counter++, 0);
}
int pick(int n)
{
	return (int)(bits() % (uint64_t)n);
}
float uniform(void)
{
	return (float)((double)(bits() >> 11) * 0x1p-52 - 1);
}

void fail_at(const char *what, enum cpu_level level, int a, int b)
{
	printf("FAIL %s %s (%d, %d)\n", what, cpu_level_name(level), a, b);
	failures++;
}

/* ---- memory with an unreadable page on either side ---- */

enum { PAGE = 4096 };

void *fence_make(struct fence *f, size_t bytes, int at_end, size_t skip)
{
	size_t inner = (bytes + skip + PAGE - 1) / PAGE * PAGE;

	f->bytes = bytes;
	f->map_bytes = inner + 2 * PAGE;
	f->map = mmap(NULL, f->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert(f->map != MAP_FAILED);
	assert(!mprotect(f->map, PAGE, PROT_NONE) && !mprotect(f->map + PAGE + inner, PAGE, PROT_NONE));
	f->p = at_end ? f->map + PAGE + inner - bytes : f->map + PAGE + skip;
	return f->p;
}

void fence_drop(struct fence *f)
{
	if (f->map)
		munmap(f->map, f->map_bytes);
	f->map = NULL;
}

const void *fence_nothing(void)
{
	enum { BYTES = 64 << 20 };
	static void *p;

	if (!p)
		p = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert(p != MAP_FAILED);
	return p;
}

/* ---- signals ---- */

sigjmp_buf trap;
volatile sig_atomic_t trapped;

static void on_signal(int sig)
{
	if (trapped) {
		trapped = sig;
		siglongjmp(trap, 1);
	}
	signal(sig, SIG_DFL);
	raise(sig);
}

const char *signal_name(int s)
{
	return s == SIGILL ? "SIGILL" : s == SIGSEGV ? "SIGSEGV" : s == SIGBUS ? "SIGBUS" : "SIGFPE";
}

void trap_signals(void)
{
	static const int caught[] = { SIGILL, SIGSEGV, SIGBUS, SIGFPE };
	struct sigaction sa = { .sa_handler = on_signal };

	for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
		sigaction(caught[i], &sa, NULL);
}

/* ---- numbers ---- */

static float tree16(float *s)
{
	for (int h = 8; h; h /= 2)
		for (int i = 0; i < h; i++)
			s[i] += s[i + h];
	return s[0];
}

float truth_dot(const float *a, const float *b, int n)
{
	float s[16] = { 0 };

	for (int i = 0; i < n; i++)
		s[i % 16] = fmaf(a[i], b[i], s[i % 16]);
	return tree16(s);
}

bool same(float a, float b)
{
	return (a != a && b != b) || !memcmp(&a, &b, 4);
}

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the command line ---- */

void check_opts_read(struct check_opts *o, int argc, char **argv, int quick)
{
	*o = (struct check_opts){ .quick = getenv("WEFT_TEST_QUICK") != NULL, .name = argv };
	o->rounds = o->quick ? quick : getenv("WEFT_TEST_FULL") ? 200 : 72;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--seed") && i + 1 < argc)
			seed = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--rounds") && i + 1 < argc)
			o->rounds = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--bench"))
			o->bench = true;
		else if (!strcmp(argv[i], "--verbose"))
			o->verbose = true;
		else
			o->name[o->n_name++] = argv[i]; /* over what was read already */
	}
	trap_signals();
	printf("seed %llu, up to %s\n", (unsigned long long)seed, cpu_level_name(cpu_detect()));
}

bool check_wanted(const struct check_opts *o, const char *name)
{
	bool wanted = !o->n_name;

	for (int i = 0; i < o->n_name; i++)
		wanted |= !strcmp(o->name[i], name);
	return wanted;
}
