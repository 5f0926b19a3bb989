/* energy.h - the energy that the machine's processors have used, as the system counts it (RAPL).
 *
 * Linux: Documentation/power/powercap; one counter a processor package, in microjoules, for everything that runs on
 * it.  Virtual machines mostly have none, and since Linux 5.10 only root reads them. */
#ifndef BENCH_ENERGY_H
#define BENCH_ENERGY_H

#include <stdbool.h>
#include <stdint.h>

enum { ENERGY_PACKAGES_MAX = 16 };
#define ENERGY_ROOT "/sys/class/powercap"

struct energy {
	int n; /* packages; 0: the system counts none, or lets us read none */
	struct energy_package {
		char path[128];     /* of its counter */
		uint64_t at, range; /* microjoules when energy_begin read it; where it begins again at 0 */
	} package[ENERGY_PACKAGES_MAX];
};

/* Finds the packages' counters below root (ENERGY_ROOT). */
void energy_open(struct energy *e, const char *root);
/* Remembers the values of the counters. */
void energy_begin(struct energy *e);
/* Joules of all packages since energy_begin; a counter may begin again once in between (every 20 minutes at 200 W).
 * Below 0: none is known. */
double energy_joules(const struct energy *e);

#endif
