/* toy_backend.c - memory and tape_apply, with deterministic nonsense for arithmetic.
 *
 * Small enough to be right at sight, so that what checkcache finds is in the
 * caches.  Far memory is page-protected, like the far backend's. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "world.h"

struct region {
	void *p;
	size_t bytes;
	struct region *next;
};

struct toy_backend {
	struct backend be;
	bool far;
	struct region *regions;
	size_t live;
	int refuse; /* the nth alloc from now */
	int open;   /* depth of gates */
};

static struct toy_backend *toy_of(const struct backend *be)
{
	return (struct toy_backend *)be;
}

void toy_gate(struct backend *be, bool open)
{
	struct toy_backend *t = toy_of(be);

	t->open += open ? 1 : -1;
	assert(t->open >= 0);
	if (!t->far || t->open != (open ? 1 : 0))
		return;
	for (struct region *r = t->regions; r; r = r->next)
		if (mprotect(r->p, r->bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE))
			abort();
}

static void *toy_alloc(struct backend *be, size_t bytes)
{
	struct toy_backend *t = toy_of(be);
	struct region *r;

	assert(bytes > 0);
	if (t->refuse > 0 && --t->refuse == 0)
		return NULL;
	r = xmalloc(sizeof *r);
	r->bytes = bytes;
	if (t->far) {
		r->p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (r->p == MAP_FAILED)
			abort();
	} else {
		r->p = aligned_alloc(64, (bytes + 63) / 64 * 64);
		if (!r->p)
			abort();
		memset(r->p, 0, bytes);
	}
	r->next = t->regions;
	t->regions = r;
	t->live += bytes;
	return r->p;
}

static void toy_free(struct backend *be, void *p, size_t bytes)
{
	struct toy_backend *t = toy_of(be);
	struct region **at = &t->regions, *r;

	while (*at && (*at)->p != p)
		at = &(*at)->next;
	r = *at;
	assert(r && r->bytes == bytes);
	*at = r->next;
	t->live -= bytes;
	if (t->far)
		munmap(p, bytes);
	else
		free(p);
	free(r);
}

/* Whole bytes of one allocation. */
static void inside(const struct backend *be, const void *p, size_t n)
{
	const char *a = p;

	for (const struct region *r = toy_of(be)->regions; r; r = r->next) {
		const char *b = r->p;

		if (a >= b && a + n <= b + r->bytes)
			return;
	}
	assert(!"not the backend's memory");
}

/* Lost at once, so that a page that somebody still reads shows. */
static void toy_discard(struct backend *be, void *p, size_t n)
{
	inside(be, p, n);
	toy_gate(be, true);
	memset(p, 0xA5, n);
	toy_gate(be, false);
}

static void toy_copy(struct backend *be, void *dst, const void *src, size_t n)
{
	inside(be, dst, n);
	inside(be, src, n);
	toy_gate(be, true);
	memcpy(dst, src, n);
	toy_gate(be, false);
}

static void toy_write(struct backend *be, void *far, const void *near, size_t n)
{
	inside(be, far, n);
	toy_gate(be, true);
	memcpy(far, near, n);
	toy_gate(be, false);
}

static int toy_read(struct backend *be, void *near, const void *far, size_t n)
{
	inside(be, far, n);
	toy_gate(be, true);
	memcpy(near, far, n);
	toy_gate(be, false);
	return 0;
}

void toy_update(uint32_t *s, size_t n, uint32_t *tail, int rows, int c, uint64_t y)
{
	for (size_t i = 0; i < n; i++)
		s[i] = (uint32_t)mix(s[i] + (i << 32), y + (rows ? tail[i % (size_t)c] : 0));
	if (!rows)
		return;
	memmove(tail, tail + c, (size_t)((rows - 1) * c) * sizeof *tail);
	for (int i = 0; i < c; i++)
		tail[(rows - 1) * c + i] = (uint32_t)mix(y, (uint64_t)i);
}

static void toy_tape_apply(struct backend *be, const struct state_view *v, int slot, int keep)
{
	const struct state_shape *h = &v->shape;
	size_t n = state_floats(h), m = state_tail_floats(h), k = state_tape_floats(h);

	assert(keep > 0 && keep <= v->tape_rows);
	toy_gate(be, true);
	for (int row = 0; row < keep; row++)
		for (int layer = 0; layer < h->layers; layer++) {
			size_t at = (size_t)slot * (size_t)h->layers + (size_t)layer;
			uint32_t y;

			memcpy(&y, state_tape_row(v, slot, layer, row) + k - 1, sizeof y);
			toy_update((uint32_t *)v->s + at * n, n, m ? (uint32_t *)v->tail + at * m : NULL,
			           h->conv_width - 1, h->conv_channels, y);
		}
	toy_gate(be, false);
}

static void toy_close(struct backend *be)
{
	assert(toy_of(be)->live == 0);
	free(be);
}

static const struct backend_ops toy_ops = {
	.name = "toy",
	.alloc = toy_alloc,
	.free = toy_free,
	.discard = toy_discard,
	.write = toy_write,
	.read = toy_read,
	.copy = toy_copy,
	.tape_apply = toy_tape_apply,
	.close = toy_close,
};

struct backend *toy_backend_open(bool far)
{
	struct toy_backend *t = xcalloc(1, sizeof *t);

	t->be.ops = &toy_ops;
	t->be.order = "toy";
	t->be.threads = 1;
	t->far = far;
	return &t->be;
}

size_t toy_backend_live(const struct backend *be)
{
	return toy_of(be)->live;
}

int toy_backend_refuse(struct backend *be, int nth)
{
	int left = toy_of(be)->refuse;

	toy_of(be)->refuse = nth;
	return left;
}
