/* rng.c - see rng.h.
 *
 * The mixing step is the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast
 * splittable pseudorandom number generators", OOPSLA 2014), applied once per
 * coordinate; each coordinate first passes a distinct odd multiplier, so that
 * neighbouring positions and streams are unrelated. */
#include "base/rng.h"

#include "base/system.h"

uint64_t rng_place(uint64_t seed, uint64_t position)
{
	return rng_mix(rng_mix(seed + 0x9E3779B97F4A7C15u) ^ position * 0xD1342543DE82EF95u);
}

uint64_t rng_bits(uint64_t seed, uint64_t position, uint64_t stream)
{
	return rng_bits_at(rng_place(seed, position), stream);
}

double rng_uniform(uint64_t seed, uint64_t position, uint64_t stream)
{
	return rng_uniform_of(rng_bits(seed, position, stream));
}

uint64_t rng_os_seed(void)
{
	uint64_t s;

	system_random(&s, sizeof s);
	return s;
}
