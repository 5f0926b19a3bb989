/* test_divide - which part of a model a device takes (host/divide.h). */
#include "host/divide.h"
#include "host/load_device.h"
#include "../check.h"

enum { LAYERS = 10 };
static const size_t MB = (size_t)1 << 20, GB = (size_t)1 << 30;

/* Ten layers of 1 GB, `mixture` MB of each its experts', of which a token reads a sixteenth. */
static bool divided(size_t memory, size_t mixture, bool first_layers, struct division *d)
{
	size_t bytes[LAYERS], mixtures[LAYERS];
	struct divide_ask a = { .layers = LAYERS,
		                .bytes = bytes,
		                .mixtures = mixtures,
		                .used = 1 / 16.0,
		                .beside = GB,
		                .read = GB / 2,
		                .memory = memory,
		                .first_layers = first_layers };

	for (int i = 0; i < LAYERS; i++) {
		bytes[i] = GB;
		mixtures[i] = mixture * MB;
	}
	return divide(&a, d);
}

int main(void)
{
	struct division d;

	CHECK(divided(8 * GB, 0, true, &d) && d.layers == 4 && d.there == 4 * GB, "8 GB: %d layers", d.layers);
	CHECK(d.alone > 281.8 && d.alone < 281.9, "alone %f ms", d.alone);
	CHECK(d.ms > 185.2 && d.ms < 185.3, "divided %f ms", d.ms);
	CHECK(divided(4 * GB, 0, true, &d) && d.layers == 2, "4 GB: %d layers", d.layers);
	CHECK(!divided(GB, 0, true, &d), "1 GB has a layer");
	CHECK(divided(64 * GB, 0, true, &d) && d.layers == LAYERS, "64 GB: %d layers", d.layers);
	CHECK(!divided(8 * GB, 0, false, &d), "no mixtures, and no layers alone, yet divided");
	/* Of what is beside the experts, all fits: a token reads less from the machine than with four layers of ten there. */
	CHECK(divided(8 * GB, 900, true, &d) && d.layers == DEVICE_NO_EXPERTS, "mixtures: %d layers", d.layers);
	CHECK(d.there == GB + 10 * (GB - 900 * MB), "all but the experts: %zu bytes", d.there);
	CHECK(divided(8 * GB, 900, false, &d) && d.layers == DEVICE_NO_EXPERTS, "mixtures alone: %d layers", d.layers);
	/* All but the experts is too much; some layers fit. */
	CHECK(divided(8 * GB, 300, true, &d) && d.layers == 4, "few experts: %d layers", d.layers);
	/* Almost all is experts, which all fit but one layer's: layers are read sooner. */
	CHECK(divided(16 * GB, 1000, true, &d) && d.layers == 9, "most layers: %d", d.layers);
	return 0;
}
