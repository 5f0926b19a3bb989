/* held.h - bytes of a fuzzer as a file that has a path. */
#ifndef TESTS_FUZZ_HELD_H
#define TESTS_FUZZ_HELD_H

#include <stddef.h>
#include <stdint.h>

/* A file in memory; its descriptor, to be closed, and its path. */
int held_file(const void *p, size_t n, char path[64]);

#endif
