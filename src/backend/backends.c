/* backends.c - see backends.h. */
#include "backend/backends.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/device/device.h"
#include "backend/device/device_backend.h"
#include "backend/device/self_test.h"

enum { DEVICES_MOST = 16 }; /* of a kind */

static const struct kind {
	const char *name;
	int (*open)(struct device **, const char *library, int index, struct err *);
} kinds[] = { { "cuda", cuda_open }, { "opencl", opencl_open } };
enum { KINDS = sizeof kinds / sizeof *kinds };

/* The kind of a device's name and its number; NULL: none is called so. */
static const struct kind *kind_of(const char *name, int *index)
{
	size_t n = strcspn(name, ":");
	char *end = NULL;
	long i = name[n] ? strtol(name + n + 1, &end, 10) : 0;

	if (name[n] && (end == name + n + 1 || *end || i < 0 || i >= DEVICES_MOST))
		return NULL;
	*index = (int)i;
	for (int k = 0; k < KINDS; k++)
		if (strlen(kinds[k].name) == n && !strncmp(kinds[k].name, name, n))
			return &kinds[k];
	return NULL;
}

int backends_open(struct backend **to, const char *name, const struct backend_opts *o, struct err *err)
{
	const struct kind *kind;
	struct device *dev;
	int index, code;

	if (!strcmp(name, "cpu")) {
		*to = backend_cpu_open_chosen(o->threads, o->cpu);
		return 0;
	}
	kind = kind_of(name, &index);
	if (!kind)
		return err_set(err, E_ARG, "device '%s': none of cpu, cuda:N, opencl:N with N below %d", name,
		               DEVICES_MOST);
	code = kind->open(&dev, NULL, index, err);
	if (code)
		return code;
	*to = backend_device_open(dev);
	code = self_test(*to, err);
	if (code) {
		(*to)->ops->close(*to);
		*to = NULL;
	}
	return code;
}

/* Devices of a kind, numbered from 0 until there is none. */
static int find_kind(const struct kind *kind, struct backend_found *to, int most)
{
	int n = 0;

	for (int i = 0; i < DEVICES_MOST && n < most; i++) {
		struct backend_found *f = &to[n];
		struct device *dev;
		int code;

		*f = (struct backend_found){ 0 };
		snprintf(f->name, sizeof f->name, "%s:%d", kind->name, i);
		code = kind->open(&dev, NULL, i, &f->why);
		if (code == E_MISSING && i > 0)
			break;
		n++;
		if (code == E_MISSING)
			break;
		if (code)
			continue;
		snprintf(f->device, sizeof f->device, "%s", dev->name);
		snprintf(f->driver, sizeof f->driver, "%s", dev->driver);
		f->memory = dev->memory;
		f->gpu = dev->gpu;
		dev->ops->close(dev);
	}
	return n;
}

int backends_find(struct backend_found *to, int most)
{
	int n = 0;

	for (int k = 0; k < KINDS; k++)
		n += find_kind(&kinds[k], to + n, most - n);
	return n;
}
