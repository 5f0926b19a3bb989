/* dev_memory.c - memory of the backend over a device: addresses that name places in the device's memory. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/device/dev.h"
#include "base/alloc.h"

/* The area that begins at or before p; -1: none does. */
static int area_before(const struct dev *d, const void *p)
{
	int low = 0, high = d->n_area;

	while (low < high) {
		int mid = (low + high) / 2;

		if (d->area[mid].p <= (const uint8_t *)p)
			low = mid + 1;
		else
			high = mid;
	}
	return low - 1;
}

static const struct dev_area *area_of(const struct dev *d, const void *p)
{
	int i = area_before(d, p);

	return i >= 0 && (const uint8_t *)p < d->area[i].p + d->area[i].bytes ? &d->area[i] : NULL;
}

struct dmem dev_at(struct dev *d, const void *p)
{
	const struct dev_area *a = p ? area_of(d, p) : NULL;

	assert(!p || a);
	return a ? dmem_at(a->mem, (size_t)((const uint8_t *)p - a->p)) : (struct dmem){ 0 };
}

void *dev_alloc(struct backend *be, size_t bytes)
{
	struct dev *d = (struct dev *)be;
	struct dev_area a = { .bytes = bytes ? bytes : 1 };
	struct err err;
	int i;

	if (be->failed.code)
		return NULL;
	a.p = mmap(NULL, a.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (a.p == MAP_FAILED)
		return NULL;
	if (d->dev->ops->alloc(d->dev, &a.mem, a.bytes, &err)) {
		munmap(a.p, a.bytes);
		return NULL;
	}
	if (!dev_ok(d, d->dev->ops->fill(d->dev, a.mem, 0, a.bytes, &err), &err)) {
		d->dev->ops->free(d->dev, a.mem);
		munmap(a.p, a.bytes);
		return NULL;
	}
	d->area = dev_grow(d->area, &d->cap_area, d->n_area + 1, sizeof *d->area);
	i = area_before(d, a.p) + 1;
	memmove(&d->area[i + 1], &d->area[i], (size_t)(d->n_area++ - i) * sizeof *d->area);
	d->area[i] = a;
	return a.p;
}

void dev_free(struct backend *be, void *p, size_t bytes)
{
	struct dev *d = (struct dev *)be;
	struct err err;
	int i;

	if (!p)
		return;
	i = area_before(d, p);
	assert(i >= 0 && d->area[i].p == p && d->area[i].bytes == (bytes ? bytes : 1));
	d->dev->ops->wait(d->dev, &err); /* launches that read it may not have run */
	d->dev->ops->free(d->dev, d->area[i].mem);
	munmap(d->area[i].p, d->area[i].bytes);
	memmove(&d->area[i], &d->area[i + 1], (size_t)(--d->n_area - i) * sizeof *d->area);
}

void dev_write(struct backend *be, void *to, const void *from, size_t n)
{
	struct dev *d = (struct dev *)be;
	struct err err;

	if (!be->failed.code && n)
		dev_ok(d, d->dev->ops->up(d->dev, dev_at(d, to), from, n, &err), &err);
}

int dev_read(struct backend *be, void *to, const void *from, size_t n)
{
	struct dev *d = (struct dev *)be;
	struct err err;

	if (!be->failed.code && n)
		dev_ok(d, d->dev->ops->down(d->dev, to, dev_at(d, from), n, &err), &err);
	return be->failed.code;
}

void dev_copy(struct backend *be, void *to, const void *from, size_t n)
{
	struct dev *d = (struct dev *)be;
	struct err err;

	if (!be->failed.code && n)
		dev_ok(d, d->dev->ops->copy(d->dev, dev_at(d, to), dev_at(d, from), n, &err), &err);
}

void *dev_grow(void *list, int *cap, int n, size_t each)
{
	if (n <= *cap)
		return list;
	*cap = n < 32 ? 32 : 2 * n;
	return xrealloc(list, size_mul((size_t)*cap, each));
}

/* What was in a room is gone when it grows. */
struct dmem dev_room(struct dev *d, enum dev_room which, size_t bytes)
{
	struct err err;

	if (bytes <= d->room[which].cap || dev_idle(d))
		return d->room[which].mem;
	if (d->room[which].mem.base) {
		if (!dev_ok(d, d->dev->ops->wait(d->dev, &err), &err))
			return d->room[which].mem;
		d->dev->ops->free(d->dev, d->room[which].mem);
		d->room[which].mem = (struct dmem){ 0 };
		d->room[which].cap = 0;
	}
	bytes += bytes / 4;
	if (dev_ok(d, d->dev->ops->alloc(d->dev, &d->room[which].mem, bytes, &err), &err))
		d->room[which].cap = bytes;
	return d->room[which].mem;
}
