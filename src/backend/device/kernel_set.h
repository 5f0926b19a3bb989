/* kernel_set.h - kernels of a device by name: compiled when they are first asked for, and kept. */
#ifndef BACKEND_DEVICE_KERNEL_SET_H
#define BACKEND_DEVICE_KERNEL_SET_H

#include <stdbool.h>

#include "backend/device/device.h"

struct kernel_set {
	struct device *dev;
	struct {
		const struct device_text *text;
		struct device_module *m;
	} module[64];
	struct {
		const struct device_text *text;
		const char *name;
		struct device_kernel *k;
	} kernel[192];
	int modules, n;
	bool only_find; /* kernels_run compiles, and starts nothing */
};

/* The kernel of that name; asserts that the module's name is one.  Errors: those of module and kernel in device_ops. */
int kernels_find(struct kernel_set *, struct device_kernel **, const char *module, const char *name, int threads,
                 struct err *);
/* Starts it. */
int kernels_run(struct kernel_set *, const char *module, const char *name, int threads, int gx, int gy,
                const struct darg *arg, int n, struct err *);
#define DARGS(...) \
	(const struct darg[]){ __VA_ARGS__ }, (int)(sizeof(struct darg[]){ __VA_ARGS__ } / sizeof(struct darg))

#endif
