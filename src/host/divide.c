/* divide.c - see divide.h. */
#include "host/divide.h"

#include "host/load_device.h"

static double ms_of(double bytes, int gbs)
{
	return bytes / gbs / 1e6;
}

/* Bytes of a layer that a token reads. */
static double read_of(const struct divide_ask *a, int layer)
{
	size_t mixture = a->mixtures[layer];

	return (double)(a->bytes[layer] - mixture) + (double)mixture * a->used;
}

static bool fits(const struct divide_ask *a, size_t there)
{
	size_t gb = (size_t)1 << 30, spare = a->memory / 8 < gb ? a->memory / 8 : gb;

	return device_copy_bytes(there) <= a->memory / 4 * 3 - spare;
}

/* The most layers that fit, for each is read sooner there; 0: none does. */
static struct division first_layers(const struct divide_ask *a)
{
	double here = (double)a->read, there = 0;
	struct division d = { 0 };

	for (int i = 0; i < a->layers; i++)
		here += read_of(a, i);
	d.alone = ms_of(here, DIVIDE_MACHINE_GBS);
	while (a->first_layers && d.layers < a->layers && fits(a, d.there + a->bytes[d.layers])) {
		double n = read_of(a, d.layers);

		d.there += a->bytes[d.layers++];
		there += n;
		here -= n;
	}
	d.ms = ms_of(here, DIVIDE_MACHINE_GBS) + ms_of(there, DIVIDE_DEVICE_GBS) + 2 * DIVIDE_CROSSING_US / 1e3;
	return d;
}

/* Layers 0: the model has no mixtures, or the rest does not fit. */
static struct division no_experts(const struct divide_ask *a)
{
	double here = 0, there = (double)a->read;
	struct division d = { .there = a->beside };
	int crossings = 0;

	for (int i = 0; i < a->layers; i++) {
		double n = (double)a->mixtures[i] * a->used;

		d.there += a->bytes[i] - a->mixtures[i];
		here += n;
		there += read_of(a, i) - n;
		crossings += a->mixtures[i] ? 2 : 0;
	}
	d.layers = crossings && fits(a, d.there) ? DEVICE_NO_EXPERTS : 0;
	d.ms = ms_of(here, DIVIDE_MACHINE_GBS) + ms_of(there, DIVIDE_DEVICE_GBS) + crossings * DIVIDE_CROSSING_US / 1e3;
	return d;
}

bool divide(const struct divide_ask *a, struct division *to)
{
	struct division other = no_experts(a);

	*to = first_layers(a);
	other.alone = to->alone;
	if (other.layers && (!to->layers || other.ms < to->ms))
		*to = other;
	return to->layers && to->ms < to->alone;
}
