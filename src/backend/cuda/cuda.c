/* cuda.c - NVIDIA's devices through their driver, opened at run time; own declarations of the driver's calls (CUDA Driver API
 * Reference Manual).  Kernels come as PTX, which the driver compiles for its device and keeps in a cache of its own. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device/device.h"
#include "base/alloc.h"

typedef int cu_result, cu_device;
typedef struct cu_context *cu_context;
typedef struct cu_module *cu_module;
typedef struct cu_function *cu_function;
typedef struct cu_stream *cu_stream;
typedef struct cu_graph *cu_graph;
typedef struct cu_graph_exec *cu_graph_exec;
typedef unsigned long long cu_pointer;
enum {
	OUT_OF_MEMORY = 2,
	NO_DEVICE = 100,
	ATTRIBUTE_MAJOR = 75,
	ATTRIBUTE_MINOR = 76,
	FUNCTION_MAX_THREADS = 0,
	STREAM_NON_BLOCKING = 1,
	CAPTURE_THREAD_LOCAL = 1,
	JIT_ERROR_LOG = 5,
	JIT_ERROR_LOG_BYTES = 6,
};

/* clang-format would indent each line of this list further than the last. */
/* clang-format off */
#define CALLS(X) \
	X(cuInit, (unsigned)) \
	X(cuDriverGetVersion, (int *)) \
	X(cuDeviceGetCount, (int *)) \
	X(cuDeviceGet, (cu_device *, int)) \
	X(cuDeviceGetName, (char *, int, cu_device)) \
	X(cuDeviceTotalMem_v2, (size_t *, cu_device)) \
	X(cuDeviceGetAttribute, (int *, int, cu_device)) \
	X(cuDevicePrimaryCtxRetain, (cu_context *, cu_device)) \
	X(cuDevicePrimaryCtxRelease_v2, (cu_device)) \
	X(cuCtxSetCurrent, (cu_context)) \
	X(cuModuleLoadDataEx, (cu_module *, const void *, unsigned, int *, void **)) \
	X(cuModuleUnload, (cu_module)) \
	X(cuModuleGetFunction, (cu_function *, cu_module, const char *)) \
	X(cuFuncGetAttribute, (int *, int, cu_function)) \
	X(cuMemAlloc_v2, (cu_pointer *, size_t)) \
	X(cuMemFree_v2, (cu_pointer)) \
	X(cuMemcpyHtoDAsync_v2, (cu_pointer, const void *, size_t, cu_stream)) \
	X(cuMemcpyDtoHAsync_v2, (void *, cu_pointer, size_t, cu_stream)) \
	X(cuMemcpyDtoDAsync_v2, (cu_pointer, cu_pointer, size_t, cu_stream)) \
	X(cuMemsetD8Async, (cu_pointer, unsigned char, size_t, cu_stream)) \
	X(cuStreamCreate, (cu_stream *, unsigned)) \
	X(cuStreamDestroy_v2, (cu_stream)) \
	X(cuStreamSynchronize, (cu_stream)) \
	X(cuLaunchKernel, (cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
	  unsigned, cu_stream, void **, void **)) \
	X(cuStreamBeginCapture_v2, (cu_stream, int)) \
	X(cuStreamEndCapture, (cu_stream, cu_graph *)) \
	X(cuGraphInstantiateWithFlags, (cu_graph_exec *, cu_graph, unsigned long long)) \
	X(cuGraphLaunch, (cu_graph_exec, cu_stream)) \
	X(cuGraphDestroy, (cu_graph)) \
	X(cuGraphExecDestroy, (cu_graph_exec)) \
	X(cuGetErrorString, (cu_result, const char **))
/* clang-format on */

struct device_kernel {
	struct device_kernel *next;
	cu_function f;
	unsigned threads;
	char name[64];
};
struct device_module {
	struct device_module *next;
	cu_module module;
	struct device_kernel *kernels;
};
struct device_recording {
	cu_graph graph;
	cu_graph_exec exec;
};
struct cuda {
	struct device dev;
	void *library;
	cu_device id;
	cu_context context;
	cu_stream stream;
	struct device_module *modules;
#define MEMBER(name, args) cu_result(*name) args;
	CALLS(MEMBER)
};

static int fail(struct cuda *c, const char *call, cu_result code, struct err *err)
{
	const char *text = NULL;

	c->cuGetErrorString(code, &text);
	return err_set(err, code == OUT_OF_MEMORY ? E_FULL : E_FAULT, "%s: %s: %s (%d)", c->dev.name, call,
	               text ? text : "unknown error", code);
}
#define TRY(c, call, args)                              \
	do {                                            \
		cu_result r_ = (c)->call args;          \
		if (r_)                                 \
			return fail(c, #call, r_, err); \
	} while (0)

static cu_pointer at(struct dmem m)
{
	return (cu_pointer)(uintptr_t)m.base + m.at;
}

/* The driver's context is of a thread: a model is opened on one, and computes on another. */
static struct cuda *here(struct device *d)
{
	static _Thread_local cu_context current;
	struct cuda *c = (struct cuda *)d;

	if (c->context && current != c->context && !c->cuCtxSetCurrent(c->context))
		current = c->context;
	return c;
}

static int cuda_alloc(struct device *d, struct dmem *m, size_t bytes, struct err *err)
{
	struct cuda *c = here(d);
	cu_pointer p = 0;
	cu_result r = c->cuMemAlloc_v2(&p, bytes ? bytes : 1);

	if (r == OUT_OF_MEMORY)
		return err_set(err, E_FULL, "%s: no memory for %zu bytes", d->name, bytes);
	if (r)
		return fail(c, "cuMemAlloc", r, err);
	*m = (struct dmem){ (void *)(uintptr_t)p, 0 };
	return 0;
}

static void cuda_free(struct device *d, struct dmem m)
{
	if (m.base)
		here(d)->cuMemFree_v2(at(m));
}

static int cuda_wait(struct device *d, struct err *err)
{
	struct cuda *c = here(d);

	TRY(c, cuStreamSynchronize, (c->stream));
	return 0;
}

static int cuda_up(struct device *d, struct dmem to, const void *from, size_t bytes, struct err *err)
{
	struct cuda *c = here(d);

	if (!bytes)
		return 0;
	TRY(c, cuMemcpyHtoDAsync_v2, (at(to), from, bytes, c->stream));
	return cuda_wait(d, err);
}

static int cuda_down(struct device *d, void *to, struct dmem from, size_t bytes, struct err *err)
{
	struct cuda *c = here(d);

	if (!bytes)
		return 0;
	TRY(c, cuMemcpyDtoHAsync_v2, (to, at(from), bytes, c->stream));
	return cuda_wait(d, err);
}

static int cuda_copy(struct device *d, struct dmem to, struct dmem from, size_t bytes, struct err *err)
{
	struct cuda *c = here(d);

	if (bytes)
		TRY(c, cuMemcpyDtoDAsync_v2, (at(to), at(from), bytes, c->stream));
	return 0;
}

static int cuda_fill(struct device *d, struct dmem m, uint8_t byte, size_t bytes, struct err *err)
{
	struct cuda *c = here(d);

	if (bytes)
		TRY(c, cuMemsetD8Async, (at(m), byte, bytes, c->stream));
	return 0;
}

static int cuda_module(struct device *d, struct device_module **to, const struct device_text *t, struct err *err)
{
	struct cuda *c = here(d);
	char log[400] = "";
	int option[] = { JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES };
	void *value[] = { log, (void *)(uintptr_t)(sizeof log - 1) };
	struct device_module *m;
	cu_module loaded;
	cu_result r;

	if (!t->ptx)
		return err_set(
			err, E_UNSUPPORTED,
			"this program was built without clang and has no kernels for CUDA: use --device opencl, which NVIDIA's "
			"driver serves too");
	r = c->cuModuleLoadDataEx(&loaded, t->ptx, 2, option, value);
	if (r)
		return err_set(err, E_UNSUPPORTED, "%s: the driver does not compile the kernels of '%s' (%d): %s",
		               d->name, t->name, r, log);
	m = xcalloc(1, sizeof *m);
	m->module = loaded;
	m->next = c->modules;
	*to = c->modules = m;
	return 0;
}

static int cuda_kernel(struct device *d, struct device_kernel **to, struct device_module *m, const char *name,
                       int threads, struct err *err)
{
	struct cuda *c = here(d);
	struct device_kernel *k;
	cu_function f;
	int most = 0;
	cu_result r = c->cuModuleGetFunction(&f, m->module, name);

	if (r)
		return err_set(err, E_MISSING, "%s: there is no kernel '%s' (%d)", d->name, name, r);
	TRY(c, cuFuncGetAttribute, (&most, FUNCTION_MAX_THREADS, f));
	if (most < threads)
		return err_set(err, E_ARG, "%s: kernel '%s' runs %d threads at most, and %d are asked for", d->name,
		               name, most, threads);
	k = xcalloc(1, sizeof *k);
	k->f = f;
	k->threads = (unsigned)threads;
	snprintf(k->name, sizeof k->name, "%s", name);
	k->next = m->kernels;
	*to = m->kernels = k;
	return 0;
}

static int cuda_launch(struct device *d, struct device_kernel *k, int gx, int gy, const struct darg *arg, int n,
                       struct err *err)
{
	struct cuda *c = here(d);
	cu_pointer base[DARGS_MAX];
	int64_t off[DARGS_MAX];
	void *value[2 * DARGS_MAX];
	int values = 0;
	cu_result r;

	for (int i = 0; i < n; i++)
		if (arg[i].kind == DARG_MEM) {
			base[i] = (cu_pointer)(uintptr_t)arg[i].mem.base;
			off[i] = base[i] ? (int64_t)arg[i].mem.at : -1;
			value[values++] = &base[i];
			value[values++] = &off[i];
		} else
			value[values++] = arg[i].kind == DARG_INT ? (void *)&arg[i].i : (void *)&arg[i].f;
	r = c->cuLaunchKernel(k->f, (unsigned)gx, (unsigned)gy, 1, k->threads, 1, 1, 0, c->stream, value, NULL);
	if (r) {
		char call[96];

		snprintf(call, sizeof call, "kernel '%s' of %d x %d groups", k->name, gx, gy);
		return fail(c, call, r, err);
	}
	return 0;
}

static int cuda_record(struct device *d, struct err *err)
{
	struct cuda *c = here(d);

	TRY(c, cuStreamBeginCapture_v2, (c->stream, CAPTURE_THREAD_LOCAL));
	return 0;
}

static void cuda_forget(struct device *d, struct device_recording *r)
{
	struct cuda *c = here(d);

	if (r->exec)
		c->cuGraphExecDestroy(r->exec);
	if (r->graph)
		c->cuGraphDestroy(r->graph);
	free(r);
}

static int cuda_recorded(struct device *d, struct device_recording **to, struct err *err)
{
	struct cuda *c = here(d);
	struct device_recording *r = xcalloc(1, sizeof *r);
	cu_result e = c->cuStreamEndCapture(c->stream, &r->graph);

	if (!e)
		e = c->cuGraphInstantiateWithFlags(&r->exec, r->graph, 0);
	if (e) {
		cuda_forget(d, r);
		return fail(c, "cuGraphInstantiateWithFlags", e, err);
	}
	*to = r;
	return 0;
}

static int cuda_play(struct device *d, struct device_recording *r, struct err *err)
{
	struct cuda *c = here(d);

	TRY(c, cuGraphLaunch, (r->exec, c->stream));
	return 0;
}

static void cuda_close(struct device *d)
{
	struct cuda *c = here(d);

	for (struct device_module *m = c->modules, *next; m; m = next) {
		for (struct device_kernel *k = m->kernels, *k2; k; k = k2) {
			k2 = k->next;
			free(k);
		}
		next = m->next;
		c->cuModuleUnload(m->module);
		free(m);
	}
	if (c->stream)
		c->cuStreamDestroy_v2(c->stream);
	if (c->context)
		c->cuDevicePrimaryCtxRelease_v2(c->id);
	/* The library stays: the driver has threads of its own, which may still run its code. */
	free(c);
}

static const struct device_ops cuda_ops = {
	.name = "cuda",
	.alloc = cuda_alloc,
	.free = cuda_free,
	.up = cuda_up,
	.down = cuda_down,
	.copy = cuda_copy,
	.fill = cuda_fill,
	.module = cuda_module,
	.kernel = cuda_kernel,
	.launch = cuda_launch,
	.record = cuda_record,
	.recorded = cuda_recorded,
	.play = cuda_play,
	.forget = cuda_forget,
	.wait = cuda_wait,
	.close = cuda_close,
};

/* Kernels use instructions of sm_80. */
enum { LEAST_COMPUTE = 80 };

static int start(struct cuda *c, int index, struct err *err)
{
	int devices = 0, major = 0, minor = 0, version = 0;
	cu_result r = c->cuInit(0);

	if (r == NO_DEVICE)
		return err_set(err, E_MISSING, "the NVIDIA driver finds no device");
	if (r)
		return fail(c, "cuInit", r, err);
	TRY(c, cuDeviceGetCount, (&devices));
	if (index >= devices)
		return err_set(err, E_MISSING, "CUDA has %d devices, and device %d is asked for", devices, index);
	TRY(c, cuDeviceGet, (&c->id, index));
	TRY(c, cuDeviceGetName, (c->dev.name, (int)sizeof c->dev.name, c->id));
	TRY(c, cuDriverGetVersion, (&version));
	snprintf(c->dev.driver, sizeof c->dev.driver, "CUDA %d.%d", version / 1000, version % 1000 / 10);
	TRY(c, cuDeviceTotalMem_v2, (&c->dev.memory, c->id));
	TRY(c, cuDeviceGetAttribute, (&major, ATTRIBUTE_MAJOR, c->id));
	TRY(c, cuDeviceGetAttribute, (&minor, ATTRIBUTE_MINOR, c->id));
	c->dev.compute = 10 * major + minor;
	if (c->dev.compute < LEAST_COMPUTE)
		return err_set(err, E_UNSUPPORTED,
		               "%s has compute capability %d.%d; kernels for CUDA need 8.0: use --device opencl",
		               c->dev.name, major, minor);
	TRY(c, cuDevicePrimaryCtxRetain, (&c->context, c->id));
	TRY(c, cuCtxSetCurrent, (c->context));
	TRY(c, cuStreamCreate, (&c->stream, STREAM_NON_BLOCKING));
	return 0;
}

int cuda_open(struct device **to, const char *library, int index, struct err *err)
{
	struct cuda *c = xcalloc(1, sizeof *c);
	int code;

	c->dev.ops = &cuda_ops;
	snprintf(c->dev.name, sizeof c->dev.name, "CUDA");
	c->library = dlopen(library ? library : "libcuda.so.1", RTLD_NOW);
	if (!c->library) {
		code = err_set(err, E_MISSING, "no NVIDIA driver: %s", dlerror());
		goto bad;
	}
#define FIND(name, args)                                                              \
	if (!(*(void **)&c->name = dlsym(c->library, #name))) {                       \
		code = err_set(err, E_MISSING, "the NVIDIA driver has no %s", #name); \
		goto bad;                                                             \
	}
	CALLS(FIND)
	code = start(c, index, err);
	if (!code) {
		*to = &c->dev;
		return 0;
	}
bad:
	cuda_close(&c->dev);
	return code;
}
