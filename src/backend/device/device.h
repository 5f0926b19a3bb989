/* device.h - a device that computes for the processor: what a host layer gives.
 *
 * Two layers implement it: opencl/opencl.c over libOpenCL.so.1, and cuda/cuda.c over NVIDIA's libcuda.so.1.  Both open their
 * library at run time, so a program that was built without either runs, and says what is missing.  Kernels are written once,
 * in the dialect of kernels/dialect.cl, and are part of the program: as OpenCL C for the one, as PTX for the other.
 *
 * All work of a device is done in the order in which it was asked for.  Calls come from one thread.  Functions return 0, or a
 * code with *err set.  After E_FAULT the device is lost: nothing that it holds may be read, and all that is left is to close
 * it. */
#ifndef BACKEND_DEVICE_DEVICE_H
#define BACKEND_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Memory of a device, or a place in it: `at` bytes behind the beginning of what alloc gave.  base NULL: none. */
struct dmem {
	void *base;
	size_t at;
};
static inline struct dmem dmem_at(struct dmem m, size_t bytes)
{
	return (struct dmem){ m.base, m.at + bytes };
}

/* One argument of a kernel.  Memory becomes two parameters of the kernel, which declares them by MEM (dialect.cl). */
struct darg {
	enum { DARG_MEM, DARG_INT, DARG_FLOAT } kind;
	struct dmem mem;
	int32_t i;
	float f;
};
static inline struct darg darg_mem(struct dmem m)
{
	return (struct darg){ .kind = DARG_MEM, .mem = m };
}
static inline struct darg darg_int(int32_t i)
{
	return (struct darg){ .kind = DARG_INT, .i = i };
}
static inline struct darg darg_float(float f)
{
	return (struct darg){ .kind = DARG_FLOAT, .f = f };
}
enum { DARGS_MAX = 24 };

/* Kernels of one set of constants: a line of kernels/modules.  kernel_texts.py writes the list. */
struct device_text {
	const char *name;    /* "rows" */
	const char *options; /* "-DBITS=4 -DGROUP=64" */
	const char *source;  /* OpenCL C, headers included */
	const char *ptx;     /* for sm_80 and later; NULL: the build found no clang */
};
extern const struct device_text device_texts[]; /* ended by a name of NULL */

struct device;
struct device_module;
struct device_kernel;
struct device_recording;

struct device_ops {
	const char *name; /* "opencl", "cuda" */
	/* E_FULL where the device has no such memory left.  What new memory holds is not defined. */
	int (*alloc)(struct device *, struct dmem *, size_t bytes, struct err *);
	void (*free)(struct device *, struct dmem); /* at 0 */
	/* Copies; the host's side may be changed or read when the call returns. */
	int (*up)(struct device *, struct dmem to, const void *from, size_t bytes, struct err *);
	int (*down)(struct device *, void *to, struct dmem from, size_t bytes, struct err *);
	int (*copy)(struct device *, struct dmem to, struct dmem from, size_t bytes, struct err *); /* apart */
	int (*fill)(struct device *, struct dmem, uint8_t byte, size_t bytes, struct err *);

	/* Compiles the kernels of a text.  E_UNSUPPORTED: this build has none for the device. */
	int (*module)(struct device *, struct device_module **, const struct device_text *, struct err *);
	/* A kernel of the module; threads: what it was declared with.  E_MISSING.  Both live as long as the device. */
	int (*kernel)(struct device *, struct device_kernel **, struct device_module *, const char *name, int threads,
	              struct err *);
	/* Starts gx by gy work-groups. */
	int (*launch)(struct device *, struct device_kernel *, int gx, int gy, const struct darg *, int n,
	              struct err *);
	/* Between the two, launches are recorded and not run.  play runs them, in their order, with the arguments that they
	 * had. */
	int (*record)(struct device *, struct err *);
	int (*recorded)(struct device *, struct device_recording **, struct err *);
	int (*play)(struct device *, struct device_recording *, struct err *);
	void (*forget)(struct device *, struct device_recording *);
	int (*wait)(struct device *, struct err *); /* until all that was asked for is done */
	void (*close)(struct device *);
};

struct device {
	const struct device_ops *ops;
	char name[128];   /* as the device calls itself */
	char driver[128]; /* version of its driver */
	size_t memory;    /* bytes in all */
	bool gpu;         /* and not a processor that OpenCL shows as a device */
	int compute;      /* 10 * major + minor of NVIDIA's compute capability; 0: not known */
};

/* Opens the index-th device, counted over all platforms.  library: the file to open; NULL: the usual one.  E_MISSING: no such
 * library, or no such device; E_UNSUPPORTED: the device lacks what kernels need, and the message says what. */
int opencl_open(struct device **, const char *library, int index, struct err *);
int cuda_open(struct device **, const char *library, int index, struct err *);

/* The text of that name; asserts that there is one. */
const struct device_text *device_text(const char *name);

#endif
