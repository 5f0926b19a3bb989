/* fake_cuda.c - a libcuda.so.1 for tests: the calls of backend/cuda/cuda.c over the first OpenCL device, so that the host code for
 * CUDA runs where no NVIDIA device is.  A module is told by the first line of its PTX, and a kernel's parameters by its PTX:
 * two 64-bit words are memory and a place in it, 32 bits a number.  They are no addresses: a program that reads through one crashes. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device/device.h"

enum { BAD_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, BAD_PTX = 218 };
enum { ALLOCATIONS = 4096, PARAMETERS = 2 * DARGS_MAX };

struct fake_module {
	struct device_module *m;
	const struct device_text *text;
};
struct fake_function {
	struct device_kernel *k;
	struct fake_module *m;
	char name[64];
	int n, threads;
	bool wide[PARAMETERS];
};

static struct device *dev;
static struct err why;
static struct {
	unsigned long long at;
	size_t bytes;
	struct dmem m;
} given[ALLOCATIONS];
static int n_given;
static unsigned long long next_at = 0x600000000000ull;

int cuInit(unsigned flags)
{
	return flags ? BAD_VALUE : dev ? 0 : opencl_open(&dev, NULL, 0, &why) ? 100 : 0;
}
int cuDriverGetVersion(int *v)
{
	*v = 12040;
	return 0;
}
int cuDeviceGetCount(int *n)
{
	*n = 1;
	return 0;
}
int cuDeviceGet(int *d, int i)
{
	*d = i;
	return i != 0;
}
int cuDeviceGetName(char *s, int n, int d)
{
	snprintf(s, (size_t)n, "CUDA's calls over %s", dev->name);
	return 0;
}
int cuDeviceTotalMem_v2(size_t *n, int d)
{
	*n = dev->memory;
	return 0;
}
int cuDeviceGetAttribute(int *v, int which, int d)
{
	*v = which == 75 ? 8 : 0;
	return which != 75 && which != 76;
}
int cuDevicePrimaryCtxRetain(void **c, int d)
{
	*c = dev;
	return 0;
}
int cuDevicePrimaryCtxRelease_v2(int d)
{
	return n_given ? BAD_VALUE : 0;
}
int cuCtxSetCurrent(void *c)
{
	return c != (void *)dev;
}
int cuStreamCreate(void **s, unsigned flags)
{
	*s = &dev;
	return flags != 1;
}
int cuStreamDestroy_v2(void *s)
{
	return s != (void *)&dev;
}
int cuStreamSynchronize(void *s)
{
	return s != (void *)&dev || dev->ops->wait(dev, &why);
}
int cuGetErrorString(int code, const char **text)
{
	*text = why.msg;
	return 0;
}

/* ---- memory ---- */

int cuMemAlloc_v2(unsigned long long *p, size_t n)
{
	if (n_given == ALLOCATIONS || dev->ops->alloc(dev, &given[n_given].m, n, &why))
		return OUT_OF_MEMORY;
	*p = given[n_given].at = next_at;
	given[n_given++].bytes = n;
	next_at += (n + (2 << 20) - 1) / (2 << 20) * (2 << 20);
	return 0;
}
/* n bytes at p; base NULL: they are in no allocation. */
static struct dmem find(unsigned long long p, size_t n)
{
	for (int i = 0; i < n_given; i++)
		if (p >= given[i].at && p + n <= given[i].at + given[i].bytes)
			return dmem_at(given[i].m, p - given[i].at);
	snprintf(why.msg, sizeof why.msg, "no memory at %llx + %zu", p, n);
	return (struct dmem){ 0 };
}
int cuMemFree_v2(unsigned long long p)
{
	for (int i = 0; i < n_given; i++)
		if (given[i].at == p) {
			dev->ops->free(dev, given[i].m);
			given[i] = given[--n_given];
			return 0;
		}
	return BAD_VALUE;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t n, void *s)
{
	struct dmem m = find(to, n);

	return !m.base || dev->ops->up(dev, m, from, n, &why);
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t n, void *s)
{
	struct dmem m = find(from, n);

	return !m.base || dev->ops->down(dev, to, m, n, &why);
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t n, void *s)
{
	struct dmem m = find(to, n), f = find(from, n);

	return !m.base || !f.base || dev->ops->copy(dev, m, f, n, &why);
}
int cuMemsetD8Async(unsigned long long p, unsigned char v, size_t n, void *s)
{
	struct dmem m = find(p, n);

	return !m.base || dev->ops->fill(dev, m, v, n, &why);
}

/* ---- kernels ---- */

int cuModuleLoadDataEx(void **to, const void *ptx, unsigned n, int *option, void **value)
{
	struct fake_module *m = calloc(1, sizeof *m);
	char name[64];

	*to = m;
	if (sscanf(ptx, "// %63s", name) != 1 || !strstr(ptx, ".target"))
		return BAD_PTX;
	m->text = device_text(name);
	return dev->ops->module(dev, &m->m, m->text, &why);
}
int cuModuleUnload(void *m)
{
	free(m);
	return 0;
}
/* Reads the parameters of the entry, and .reqntid or .maxntid after them. */
static bool entry(struct fake_function *f)
{
	char want[96];
	const char *p, *end, *threads;

	snprintf(want, sizeof want, ".entry %s(", f->name);
	p = strstr(f->m->text->ptx, want);
	if (!p || !(end = strchr(p, '{')))
		return false;
	threads = strstr(p, "ntid");
	f->threads = threads && threads < end ? atoi(threads + 4) : 1024;
	while ((p = strstr(p, ".param .")) && p < end) {
		p += strlen(".param .");
		f->wide[f->n++] = strncmp(p, "u64", 3) == 0;
		if (f->n == PARAMETERS)
			return false;
	}
	return true;
}
int cuModuleGetFunction(void **to, void *m, const char *name)
{
	struct fake_function *f = calloc(1, sizeof *f);

	f->m = m;
	snprintf(f->name, sizeof f->name, "%s", name);
	*to = f;
	return entry(f) ? 0 : NOT_FOUND;
}
int cuFuncGetAttribute(int *v, int which, void *f)
{
	*v = ((struct fake_function *)f)->threads;
	return which != 0;
}
int cuLaunchKernel(void *fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *s, void **value, void **extra)
{
	struct fake_function *f = fn;
	struct darg arg[PARAMETERS];
	int n = 0;

	if (shared || extra || gz != 1 || by != 1 || bz != 1 || s != (void *)&dev || gx == 0 || gy == 0)
		return BAD_VALUE;
	if (!f->k && dev->ops->kernel(dev, &f->k, f->m->m, f->name, (int)bx, &why))
		return NOT_FOUND;
	for (int i = 0; i < f->n; i++) {
		if (!f->wide[i]) {
			memcpy(&arg[n].i, value[i], 4);
			arg[n++].kind = DARG_INT;
			continue;
		}
		unsigned long long p = *(unsigned long long *)value[i];
		int64_t off = *(int64_t *)value[++i];
		struct dmem m = p ? find(p, 1) : (struct dmem){ 0 };

		if (p && !m.base)
			return BAD_VALUE;
		arg[n++] = darg_mem(p ? dmem_at(m, (size_t)off) : m);
	}
	return dev->ops->launch(dev, f->k, (int)gx, (int)gy, arg, n, &why);
}

/* ---- graphs ---- */

int cuStreamBeginCapture_v2(void *s, int mode)
{
	return dev->ops->record(dev, &why);
}
int cuStreamEndCapture(void *s, void **g)
{
	return dev->ops->recorded(dev, (struct device_recording **)g, &why);
}
int cuGraphInstantiateWithFlags(void **e, void *g, unsigned long long flags)
{
	*e = g;
	return 0;
}
int cuGraphLaunch(void *e, void *s)
{
	return dev->ops->play(dev, e, &why);
}
int cuGraphDestroy(void *g)
{
	dev->ops->forget(dev, g);
	return 0;
}
int cuGraphExecDestroy(void *e)
{
	return 0;
}
