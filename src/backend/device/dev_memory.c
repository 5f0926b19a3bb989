/* dev_memory.c - memory of the backend over a device: addresses that name places in the device's memory. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device/dev.h"
#include "base/alloc.h"
#include "base/pages.h"

/* The number of ranges that begin at or before p. */
static int ranges_before(const struct dev_ranges *l, const void *p)
{
	int low = 0, high = l->n;

	while (low < high) {
		int mid = (low + high) / 2;

		if (l->v[mid].p <= (const uint8_t *)p)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct dev_range *dev_range_of(const struct dev_ranges *l, const void *p)
{
	int i = ranges_before(l, p) - 1;

	return i >= 0 && (const uint8_t *)p < l->v[i].p + l->v[i].bytes ? &l->v[i] : NULL;
}

struct dev_range *dev_range_add(struct dev_ranges *l, const struct dev_range *r)
{
	int i = ranges_before(l, r->p);

	if (dev_range_of(l, r->p) || (i < l->n && l->v[i].p < r->p + r->bytes))
		return NULL;
	l->v = dev_grow(l->v, &l->cap, l->n + 1, sizeof *l->v);
	memmove(&l->v[i + 1], &l->v[i], (size_t)(l->n++ - i) * sizeof *l->v);
	l->v[i] = *r;
	return &l->v[i];
}

void dev_range_drop(struct dev_ranges *l, struct dev_range *r)
{
	memmove(r, r + 1, (size_t)(&l->v[l->n--] - (r + 1)) * sizeof *r);
}

struct dmem dev_at(struct dev *d, const void *p)
{
	const struct dev_range *a = p ? dev_range_of(&d->area, p) : NULL;

	assert(!p || a);
	return a ? dmem_at(a->mem, (size_t)((const uint8_t *)p - a->p)) : (struct dmem){ 0 };
}

void *dev_alloc(struct backend *be, size_t bytes)
{
	struct dev *d = (struct dev *)be;
	struct dev_range a = { .bytes = bytes ? bytes : 1 };
	struct err err;
	void *p;

	if (be->failed.code)
		return NULL;
	p = pages_any(a.bytes, false);
	if (!p)
		return NULL;
	if (d->dev->ops->alloc(d->dev, &a.mem, a.bytes, &err)) {
		pages_free(p, a.bytes);
		return NULL;
	}
	if (!dev_ok(d, d->dev->ops->fill(d->dev, a.mem, 0, a.bytes, &err), &err)) {
		d->dev->ops->free(d->dev, a.mem);
		pages_free(p, a.bytes);
		return NULL;
	}
	a.p = p;
	dev_range_add(&d->area, &a);
	return p;
}

void dev_free(struct backend *be, void *p, size_t bytes)
{
	struct dev *d = (struct dev *)be;
	struct dev_range *a = p ? dev_range_of(&d->area, p) : NULL;
	struct err err;

	if (!p)
		return;
	assert(a && a->p == p && a->bytes == (bytes ? bytes : 1));
	d->dev->ops->wait(d->dev, &err); /* launches that read it may not have run */
	d->dev->ops->free(d->dev, a->mem);
	pages_free(p, a->bytes);
	dev_range_drop(&d->area, a);
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

	/* OpenCL takes a copy onto itself for an overlap. */
	if (!be->failed.code && n && to != from)
		dev_ok(d, d->dev->ops->copy(d->dev, dev_at(d, to), dev_at(d, from), n, &err), &err);
}

void *dev_grow(void *list, int *cap, int n, size_t each)
{
	if (n <= *cap)
		return list;
	*cap = n < 32 ? 32 : 2 * n;
	return xrealloc(list, size_mul((size_t)*cap, each));
}

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
