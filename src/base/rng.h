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

/* The random number in two steps, for many streams at one position. */
uint64_t rng_place(uint64_t seed, uint64_t position);
static inline uint64_t rng_mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return z ^ z >> 31;
}
static inline uint64_t rng_bits_at(uint64_t place, uint64_t stream)
{
	return rng_mix(place + stream * 0xDA942042E4DD58B5u + 1);
}
/* Random bits to a number uniform in (0, 1); + 0.5 keeps 0 and 1 out, so log(u) is finite. */
static inline double rng_uniform_of(uint64_t bits)
{
	return ((double)(bits >> 12) + 0.5) * 0x1p-52;
}

/* Uniform in the open interval (0, 1), 52 bits. */
double rng_uniform(uint64_t seed, uint64_t position, uint64_t stream);

/* A seed from the operating system, for requests that name none. */
uint64_t rng_os_seed(void);

#endif
