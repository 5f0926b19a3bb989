/* rng.h - random numbers that are a function of (seed, position).
 *
 * The law of the row asks that a token's randomness depend on the request's
 * seed and the token's position and on nothing else, so there is no generator
 * with state: every number is asked for by its coordinates. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

/* 64 well-mixed bits of (seed, position, stream). */
uint64_t rng_bits(uint64_t seed, uint64_t position, uint64_t stream);

/* Uniform in the open interval (0, 1), 52 bits. */
double rng_uniform(uint64_t seed, uint64_t position, uint64_t stream);

/* A seed from the operating system, for requests that name none. */
uint64_t rng_os_seed(void);

#endif
