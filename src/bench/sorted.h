/* sorted.h - numbers in rising order, for medians and percentiles. */
#ifndef BENCH_SORTED_H
#define BENCH_SORTED_H

#include <stddef.h>

/* Sorts v[0..n), the smallest first; none may be a NaN. */
void sort_doubles(double *v, size_t n);

#endif
