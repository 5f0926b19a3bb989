/* rng.c - see rng.h.
 *
 * The mixing step is the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast
 * splittable pseudorandom number generators", OOPSLA 2014), applied once per
 * coordinate; each coordinate first passes a distinct odd multiplier, so that
 * neighbouring positions and streams are unrelated. */
#include "base/rng.h"

#include <stdlib.h>
#include <sys/random.h>

static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return z ^ z >> 31;
}

uint64_t rng_bits(uint64_t seed, uint64_t position, uint64_t stream)
{
	uint64_t h = mix(seed + 0x9E3779B97F4A7C15u);

	h = mix(h ^ position * 0xD1342543DE82EF95u);
	return mix(h + stream * 0xDA942042E4DD58B5u + 1);
}

double rng_uniform(uint64_t seed, uint64_t position, uint64_t stream)
{
	/* +0.5 keeps 0 and 1 out: log(u) stays finite. */
	return ((double)(rng_bits(seed, position, stream) >> 12) + 0.5) * 0x1p-52;
}

uint64_t rng_os_seed(void)
{
	uint64_t s;

	if (getentropy(&s, sizeof s))
		abort();
	return s;
}
