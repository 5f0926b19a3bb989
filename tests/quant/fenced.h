/* fenced.h - for the programs that check kernels: operands beside unreadable pages,
 * kernels that die, random numbers, and one truth that all of them need. */
#ifndef TESTS_QUANT_FENCED_H
#define TESTS_QUANT_FENCED_H

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quant/format.h"

/* Of one seed; the counter is how many were drawn. */
extern uint64_t seed, counter;
uint64_t bits(void);
int pick(int n);     /* 0 .. n - 1 */
float uniform(void); /* -1 .. 1 */

/* What failed is printed where it fails, and counted here. */
extern int failures;
void fail_at(const char *what, enum cpu_level level, int a, int b);

/* Values that kernels meet, random ones of each kind. */
enum value { V_RANDOM, V_MOST, V_ZERO_SCALE, V_TINY, V_HUGE, V_EDGE, VALUES };

/* ---- memory with an unreadable page on either side ---- */

struct fence {
	uint8_t *map, *p;
	size_t map_bytes, bytes;
};

/* Ends flush with the unreadable page, or begins `skip` bytes after the one before. */
void *fence_make(struct fence *f, size_t bytes, int at_end, size_t skip);
void fence_drop(struct fence *f);
/* So much address that any sample fits, none of it readable. */
const void *fence_nothing(void);

/* ---- a kernel that dies is that kernel's failure ---- */

extern sigjmp_buf trap;
extern volatile sig_atomic_t trapped;
void trap_signals(void);
const char *signal_name(int s);

/* 0, or the signal that the call died of. */
#define GUARD(call) (trapped = 1, sigsetjmp(trap, 1) ? (int)trapped : ((call), trapped = 0, 0))

/* ---- numbers ---- */

bool same(float a, float b);                            /* to the bit; any NaN is any other */
float truth_dot(const float *a, const float *b, int n); /* in the order that format.h promises */

/* Processor time of this thread, in seconds: the machine is shared, and what others
 * took of its processors is not the kernel's. */
double now(void);

/* ---- the command line ---- */

/* [--seed N] [--rounds N] [--bench] [--verbose] [NAME...]; rounds: 72, each value with
 * each type of scale four times; 200 where WEFT_TEST_FULL, `quick` where WEFT_TEST_QUICK says so. */
struct check_opts {
	int rounds;
	bool quick, bench, verbose;
	char **name;
	int n_name;
};
void check_opts_read(struct check_opts *o, int argc, char **argv, int quick);
bool check_wanted(const struct check_opts *o, const char *name); /* named, or none is */

#endif
