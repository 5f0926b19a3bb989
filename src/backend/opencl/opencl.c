/* opencl.c - devices through the OpenCL loader, opened at run time; own declarations (Khronos, The OpenCL Specification 3.0).
 * What kernels need of a device: fused multiply-add, denormals or not, and division and square roots correctly rounded. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device/device.h"
#include "base/alloc.h"

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef struct platform *cl_platform;
typedef struct dev *cl_device;
typedef struct context *cl_context;
typedef struct queue *cl_queue;
typedef struct mem *cl_mem;
typedef struct program *cl_program;
typedef struct kernel *cl_kernel;
enum {
	DEVICE_TYPE_ALL = -1,
	TYPE_GPU = 1 << 2,
	TYPE_ACCELERATOR = 1 << 3,
	DEVICE_TYPE = 0x1000,
	DEVICE_GLOBAL_MEM_SIZE = 0x101f,
	DEVICE_SINGLE_FP_CONFIG = 0x101b,
	DEVICE_NAME = 0x102b,
	DRIVER_VERSION = 0x102d,
	PROGRAM_BUILD_LOG = 0x1183,
	KERNEL_COMPILE_WORK_GROUP_SIZE = 0x11b1,
	FP_FMA = 1 << 5,
	FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 1 << 7,
	PLATFORM_NOT_FOUND = -1001,
	MEM_FAILURE = -4,
	OUT_OF_RESOURCES = -5,
};

/* clang-format would indent each line of this list further than the last. */
/* clang-format off */
#define CALLS(X) \
	X(cl_int, clGetPlatformIDs, (cl_uint, cl_platform *, cl_uint *)) \
	X(cl_int, clGetDeviceIDs, (cl_platform, cl_ulong, cl_uint, cl_device *, cl_uint *)) \
	X(cl_int, clGetDeviceInfo, (cl_device, cl_uint, size_t, void *, size_t *)) \
	X(cl_context, clCreateContext, (const intptr_t *, cl_uint, const cl_device *, void *, void *, cl_int *)) \
	X(cl_queue, clCreateCommandQueue, (cl_context, cl_device, cl_ulong, cl_int *)) \
	X(cl_mem, clCreateBuffer, (cl_context, cl_ulong, size_t, void *, cl_int *)) \
	X(cl_int, clReleaseMemObject, (cl_mem)) \
	X(cl_int, clReleaseCommandQueue, (cl_queue)) \
	X(cl_int, clReleaseContext, (cl_context)) \
	X(cl_int, clReleaseProgram, (cl_program)) \
	X(cl_int, clReleaseKernel, (cl_kernel)) \
	X(cl_int, clEnqueueWriteBuffer, (cl_queue, cl_mem, cl_uint, size_t, size_t, const void *, cl_uint, \
	  const void *, void *)) \
	X(cl_int, clEnqueueReadBuffer, (cl_queue, cl_mem, cl_uint, size_t, size_t, void *, cl_uint, \
	  const void *, void *)) \
	X(cl_int, clEnqueueCopyBuffer, (cl_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint, \
	  const void *, void *)) \
	X(cl_int, clEnqueueFillBuffer, (cl_queue, cl_mem, const void *, size_t, size_t, size_t, cl_uint, \
	  const void *, void *)) \
	X(cl_program, clCreateProgramWithSource, (cl_context, cl_uint, const char **, const size_t *, cl_int *)) \
	X(cl_int, clBuildProgram, (cl_program, cl_uint, const cl_device *, const char *, void *, void *)) \
	X(cl_int, clGetProgramBuildInfo, (cl_program, cl_device, cl_uint, size_t, void *, size_t *)) \
	X(cl_kernel, clCreateKernel, (cl_program, const char *, cl_int *)) \
	X(cl_int, clGetKernelWorkGroupInfo, (cl_kernel, cl_device, cl_uint, size_t, void *, size_t *)) \
	X(cl_int, clSetKernelArg, (cl_kernel, cl_uint, size_t, const void *)) \
	X(cl_int, clEnqueueNDRangeKernel, (cl_queue, cl_kernel, cl_uint, const size_t *, const size_t *, \
	  const size_t *, cl_uint, const void *, void *)) \
	X(cl_int, clFinish, (cl_queue))
/* clang-format on */

struct device_kernel {
	struct device_kernel *next;
	cl_kernel k;
	size_t threads;
	char name[64];
};
struct device_module {
	struct device_module *next;
	cl_program program;
	struct device_kernel *kernels;
};
struct launch {
	struct device_kernel *k;
	int gx, gy, n;
	struct darg arg[DARGS_MAX];
};
struct device_recording {
	struct launch *launch;
	int n;
};
struct opencl {
	struct device dev;
	void *library;
	cl_device id;
	cl_context context;
	cl_queue queue;
	struct device_module *modules;
	struct device_recording *recording; /* NULL: launches run */
#define MEMBER(result, name, args) result(*name) args;
	CALLS(MEMBER)
};

/* Fails with what call returned. */
static int fail(struct opencl *o, const char *call, cl_int code, struct err *err)
{
	return err_set(err, code == MEM_FAILURE ? E_FULL : E_FAULT, "%s: %s returned %d", o->dev.name, call, (int)code);
}

static int ocl_alloc(struct device *d, struct dmem *m, size_t bytes, struct err *err)
{
	struct opencl *o = (struct opencl *)d;
	cl_int e = 0;
	cl_mem b = o->clCreateBuffer(o->context, 1, bytes ? bytes : 1, NULL, &e);
	uint8_t zero = 0;

	/* Implementations give memory when it is first touched; an error would come too late to say which allocation failed. */
	if (!e && (e = o->clEnqueueFillBuffer(o->queue, b, &zero, 1, 0, 1, 0, NULL, NULL)))
		o->clReleaseMemObject(b);
	if (e)
		return err_set(err, E_FULL, "%s: no memory for %zu bytes (clCreateBuffer: %d)", d->name, bytes, (int)e);
	*m = (struct dmem){ b, 0 };
	return 0;
}

static void ocl_free(struct device *d, struct dmem m)
{
	if (m.base)
		((struct opencl *)d)->clReleaseMemObject(m.base);
}

static int ocl_up(struct device *d, struct dmem to, const void *from, size_t bytes, struct err *err)
{
	struct opencl *o = (struct opencl *)d;
	cl_int e = bytes ? o->clEnqueueWriteBuffer(o->queue, to.base, 1, to.at, bytes, from, 0, NULL, NULL) : 0;

	return e ? fail(o, "clEnqueueWriteBuffer", e, err) : 0;
}

static int ocl_down(struct device *d, void *to, struct dmem from, size_t bytes, struct err *err)
{
	struct opencl *o = (struct opencl *)d;
	cl_int e = bytes ? o->clEnqueueReadBuffer(o->queue, from.base, 1, from.at, bytes, to, 0, NULL, NULL) : 0;

	return e ? fail(o, "clEnqueueReadBuffer", e, err) : 0;
}

static int ocl_copy(struct device *d, struct dmem to, struct dmem from, size_t bytes, struct err *err)
{
	struct opencl *o = (struct opencl *)d;
	cl_int e = bytes ? o->clEnqueueCopyBuffer(o->queue, from.base, to.base, from.at, to.at, bytes, 0, NULL, NULL) :
	                   0;

	return e ? fail(o, "clEnqueueCopyBuffer", e, err) : 0;
}

static int ocl_fill(struct device *d, struct dmem m, uint8_t byte, size_t bytes, struct err *err)
{
	struct opencl *o = (struct opencl *)d;
	cl_int e = bytes ? o->clEnqueueFillBuffer(o->queue, m.base, &byte, 1, m.at, bytes, 0, NULL, NULL) : 0;

	return e ? fail(o, "clEnqueueFillBuffer", e, err) : 0;
}

static int ocl_module(struct device *d, struct device_module **to, const struct device_text *t, struct err *err)
{
	struct opencl *o = (struct opencl *)d;
	struct device_module *m = xcalloc(1, sizeof *m);
	char options[512], log[400] = "";
	cl_int e;

	/* The module's name makes its program another than that of the same source with other constants, also to caches. */
	snprintf(options, sizeof options, "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt -DMODULE_%s %s%s%s",
	         t->name, t->options, d->gpu ? "" : " -DPROCESSOR",
	         strstr(d->name, "Oclgrind") ? " -cl-opt-disable" : "");
	m->program = o->clCreateProgramWithSource(o->context, 1, (const char *[]){ t->source }, NULL, &e);
	if (!e)
		e = o->clBuildProgram(m->program, 1, &o->id, options, NULL, NULL);
	if (e) {
		if (m->program) {
			o->clGetProgramBuildInfo(m->program, o->id, PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
			o->clReleaseProgram(m->program);
		}
		free(m);
		return err_set(err, E_UNSUPPORTED, "%s: the kernels of '%s' do not compile (%d): %s", d->name, t->name,
		               (int)e, log);
	}
	m->next = o->modules;
	*to = o->modules = m;
	return 0;
}

static int ocl_kernel(struct device *d, struct device_kernel **to, struct device_module *m, const char *name,
                      int threads, struct err *err)
{
	struct opencl *o = (struct opencl *)d;
	struct device_kernel *k = xcalloc(1, sizeof *k);
	size_t declared[3] = { 0 };
	cl_int e;

	k->k = o->clCreateKernel(m->program, name, &e);
	if (e) {
		free(k);
		return err_set(err, E_MISSING, "%s: there is no kernel '%s' (clCreateKernel: %d)", d->name, name,
		               (int)e);
	}
	k->threads = (size_t)threads;
	snprintf(k->name, sizeof k->name, "%s", name);
	k->next = m->kernels;
	m->kernels = k;
	e = o->clGetKernelWorkGroupInfo(k->k, o->id, KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof declared, declared, NULL);
	if (e || declared[0] != k->threads)
		return err_set(err, E_ARG, "%s: kernel '%s' has %zu threads, and %d are asked for", d->name, name,
		               declared[0], threads);
	*to = k;
	return 0;
}

static int set_args(struct opencl *o, const struct launch *l)
{
	cl_uint at = 0;
	cl_int e = 0;

	for (int i = 0; i < l->n && !e; i++) {
		const struct darg *a = &l->arg[i];

		if (a->kind == DARG_MEM) {
			int64_t off = a->mem.base ? (int64_t)a->mem.at : -1;

			e = o->clSetKernelArg(l->k->k, at++, sizeof(cl_mem), a->mem.base ? &a->mem.base : NULL);
			e = e ? e : o->clSetKernelArg(l->k->k, at++, sizeof off, &off);
		} else if (a->kind == DARG_INT)
			e = o->clSetKernelArg(l->k->k, at++, sizeof a->i, &a->i);
		else
			e = o->clSetKernelArg(l->k->k, at++, sizeof a->f, &a->f);
	}
	return e;
}

static int run(struct opencl *o, const struct launch *l, struct err *err)
{
	size_t local[2] = { l->k->threads, 1 }, global[2] = { (size_t)l->gx * local[0], (size_t)l->gy };
	cl_int e = set_args(o, l);

	if (!e)
		e = o->clEnqueueNDRangeKernel(o->queue, l->k->k, 2, NULL, global, local, 0, NULL, NULL);
	if (e)
		return err_set(err, E_FAULT, "%s: kernel '%s' did not start (%d)", o->dev.name, l->k->name, (int)e);
	return 0;
}

static int ocl_launch(struct device *d, struct device_kernel *k, int gx, int gy, const struct darg *arg, int n,
                      struct err *err)
{
	struct opencl *o = (struct opencl *)d;
	struct launch l = { .k = k, .gx = gx, .gy = gy, .n = n };

	memcpy(l.arg, arg, (size_t)n * sizeof *arg);
	if (!o->recording)
		return run(o, &l, err);
	o->recording->launch = xrealloc(o->recording->launch, (size_t)(o->recording->n + 1) * sizeof l);
	o->recording->launch[o->recording->n++] = l;
	return 0;
}

static int ocl_record(struct device *d, struct err *err)
{
	((struct opencl *)d)->recording = xcalloc(1, sizeof(struct device_recording));
	return 0;
}

static int ocl_recorded(struct device *d, struct device_recording **to, struct err *err)
{
	struct opencl *o = (struct opencl *)d;

	*to = o->recording;
	o->recording = NULL;
	return 0;
}

static int ocl_play(struct device *d, struct device_recording *r, struct err *err)
{
	int e = 0;

	for (int i = 0; i < r->n && !e; i++)
		e = run((struct opencl *)d, &r->launch[i], err);
	return e;
}

static void ocl_forget(struct device *d, struct device_recording *r)
{
	free(r->launch);
	free(r);
}

static int ocl_wait(struct device *d, struct err *err)
{
	struct opencl *o = (struct opencl *)d;
	cl_int e = o->clFinish(o->queue);

	return e ? fail(o, "clFinish", e, err) : 0;
}

static void ocl_close(struct device *d)
{
	struct opencl *o = (struct opencl *)d;

	for (struct device_module *m = o->modules, *next; m; m = next) {
		for (struct device_kernel *k = m->kernels, *k2; k; k = k2) {
			k2 = k->next;
			o->clReleaseKernel(k->k);
			free(k);
		}
		next = m->next;
		o->clReleaseProgram(m->program);
		free(m);
	}
	if (o->queue)
		o->clReleaseCommandQueue(o->queue);
	if (o->context)
		o->clReleaseContext(o->context);
	/* The library stays: implementations have threads of their own, which may still run its code. */
	free(o);
}

static const struct device_ops opencl_ops = {
	.name = "opencl",
	.alloc = ocl_alloc,
	.free = ocl_free,
	.up = ocl_up,
	.down = ocl_down,
	.copy = ocl_copy,
	.fill = ocl_fill,
	.module = ocl_module,
	.kernel = ocl_kernel,
	.launch = ocl_launch,
	.record = ocl_record,
	.recorded = ocl_recorded,
	.play = ocl_play,
	.forget = ocl_forget,
	.wait = ocl_wait,
	.close = ocl_close,
};

/* The index-th device of all platforms. */
static int find_device(struct opencl *o, int index, struct err *err)
{
	cl_platform platform[16];
	cl_uint platforms = 0, before = 0;
	cl_int e = o->clGetPlatformIDs(16, platform, &platforms);

	if (e || platforms == 0)
		return err_set(err, E_MISSING,
		               "the OpenCL loader knows no implementation (clGetPlatformIDs: %d): one belongs to the "
		               "package of the device's driver",
		               (int)e);
	for (cl_uint i = 0; i < platforms && i < 16; i++) {
		cl_device id[16];
		cl_uint n = 0;

		if (o->clGetDeviceIDs(platform[i], (cl_ulong)DEVICE_TYPE_ALL, 16, id, &n))
			continue;
		n = n < 16 ? n : 16;
		if ((cl_uint)index < before + n) {
			o->id = id[(cl_uint)index - before];
			return 0;
		}
		before += n;
	}
	return err_set(err, E_MISSING, "OpenCL has %u devices, and device %d is asked for", (unsigned)before, index);
}

static int describe(struct opencl *o, struct err *err)
{
	cl_ulong memory = 0, fp = 0, type = 0;

	o->clGetDeviceInfo(o->id, DEVICE_NAME, sizeof o->dev.name, o->dev.name, NULL);
	o->clGetDeviceInfo(o->id, DRIVER_VERSION, sizeof o->dev.driver, o->dev.driver, NULL);
	o->clGetDeviceInfo(o->id, DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory, NULL);
	o->clGetDeviceInfo(o->id, DEVICE_SINGLE_FP_CONFIG, sizeof fp, &fp, NULL);
	o->clGetDeviceInfo(o->id, DEVICE_TYPE, sizeof type, &type, NULL);
	o->dev.memory = (size_t)memory;
	o->dev.gpu = type & (TYPE_GPU | TYPE_ACCELERATOR);
	if ((fp & (FP_FMA | FP_CORRECTLY_ROUNDED_DIVIDE_SQRT)) != (FP_FMA | FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) &&
	    !strstr(o->dev.name, "Oclgrind"))
		return err_set(err, E_UNSUPPORTED,
		               "%s does not promise fused multiply-add and correctly rounded division and square "
		               "roots in OpenCL",
		               o->dev.name);
	return 0;
}

int opencl_open(struct device **to, const char *library, int index, struct err *err)
{
	struct opencl *o = xcalloc(1, sizeof *o);
	cl_int e = 0;
	int code;

	o->dev.ops = &opencl_ops;
	o->library = dlopen(library ? library : "libOpenCL.so.1", RTLD_NOW);
	if (!o->library) {
		code = err_set(err, E_MISSING, "no OpenCL loader (package ocl-icd-libopencl1): %s", dlerror());
		goto bad;
	}
#define FIND(result, name, args)                                                      \
	if (!(*(void **)&o->name = dlsym(o->library, #name))) {                       \
		code = err_set(err, E_MISSING, "the OpenCL loader has no %s", #name); \
		goto bad;                                                             \
	}
	CALLS(FIND)
	if ((code = find_device(o, index, err)) || (code = describe(o, err)))
		goto bad;
	o->context = o->clCreateContext(NULL, 1, &o->id, NULL, NULL, &e);
	if (!e)
		o->queue = o->clCreateCommandQueue(o->context, o->id, 0, &e);
	if (!e) {
		*to = &o->dev;
		return 0;
	}
	code = fail(o, "clCreateCommandQueue", e, err);
bad:
	ocl_close(&o->dev);
	return code;
}
