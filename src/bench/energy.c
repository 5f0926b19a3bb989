/* energy.c - joules of the processor packages, from the system's counters. */
#include "bench/energy.h"

#include <inttypes.h>
#include <stdio.h>

static bool read_number(const char *path, uint64_t *out)
{
	FILE *f = fopen(path, "r");
	bool ok = f && fscanf(f, "%" SCNu64, out) == 1;

	if (f)
		fclose(f);
	return ok;
}

void energy_open(struct energy *e, const char *root)
{
	*e = (struct energy){ 0 };
	for (int i = 0; i < ENERGY_PACKAGES_MAX; i++) {
		struct energy_package *p = &e->package[e->n];
		char range[sizeof p->path];

		/* The kernel gives this name to packages of other makers, too; zones within one have a second number. */
		snprintf(p->path, sizeof p->path, "%s/intel-rapl:%d/energy_uj", root, i);
		snprintf(range, sizeof range, "%s/intel-rapl:%d/max_energy_range_uj", root, i);
		if (read_number(p->path, &p->at) && read_number(range, &p->range))
			e->n++;
	}
}

void energy_begin(struct energy *e)
{
	for (int i = 0; i < e->n; i++)
		if (!read_number(e->package[i].path, &e->package[i].at))
			e->n = 0;
}

double energy_joules(const struct energy *e)
{
	double sum = 0;

	for (int i = 0; i < e->n; i++) {
		const struct energy_package *p = &e->package[i];
		uint64_t now;

		if (!read_number(p->path, &now))
			return -1;
		sum += (double)(now >= p->at ? now - p->at : now + p->range - p->at) / 1e6;
	}
	return e->n ? sum : -1;
}
