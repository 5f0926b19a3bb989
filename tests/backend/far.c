/* far.c - see far.h. */
#include "far.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/alloc.h"

enum { AREAS = 256 };

struct far {
	struct backend be;
	struct backend *inner;
	struct {
		void *p;
		size_t bytes;
	} area[AREAS];
	int n;
};

static void protect(struct far *f, int prot)
{
	for (int i = 0; i < f->n; i++) {
		int rc = mprotect(f->area[i].p, f->area[i].bytes, prot);

		assert(!rc);
	}
}

static struct far *near_be(struct backend *be)
{
	struct far *f = (struct far *)be;

	protect(f, PROT_READ | PROT_WRITE);
	return f;
}

/* The pass as the inner backend knows it. */
static struct pass near_pass(struct pass *p)
{
	struct pass q = *p;

	q.be = near_be(p->be)->inner;
	return q;
}

static void away(struct backend *be)
{
	protect((struct far *)be, PROT_NONE);
}

static void *far_alloc(struct backend *be, size_t bytes)
{
	struct far *f = (struct far *)be;
	void *p = f->inner->ops->alloc(f->inner, bytes);

	assert(f->n < AREAS && bytes);
	if (p) {
		f->area[f->n].p = p;
		f->area[f->n++].bytes = bytes;
		away(be);
	}
	return p;
}

static void far_free(struct backend *be, void *p, size_t bytes)
{
	struct far *f = (struct far *)be;
	int i = 0;

	if (!p)
		return;
	while (i < f->n && f->area[i].p != p)
		i++;
	assert(i < f->n && f->area[i].bytes == bytes);
	f->area[i] = f->area[--f->n];
	f->inner->ops->free(f->inner, p, bytes);
}

static void far_write(struct backend *be, void *to, const void *from, size_t n)
{
	struct far *f = near_be(be);

	f->inner->ops->write(f->inner, to, from, n);
	away(be);
}

static void far_read(struct backend *be, void *to, const void *from, size_t n)
{
	struct far *f = near_be(be);

	f->inner->ops->read(f->inner, to, from, n);
	away(be);
}

static void far_copy(struct backend *be, void *to, const void *from, size_t n)
{
	struct far *f = near_be(be);

	f->inner->ops->copy(f->inner, to, from, n);
	away(be);
}

#define FAR(op, ...)                              \
	do {                                      \
		struct pass q_ = near_pass(p);    \
		q_.be->ops->op(&q_, __VA_ARGS__); \
		away(p->be);                      \
	} while (0)

static void far_embed(struct pass *p, float *out, const struct weight *w)
{
	FAR(embed, out, w);
}

static void far_norm(struct pass *p, float *out, const float *in, int n, int cols, const float *gain, float eps)
{
	FAR(norm, out, in, n, cols, gain, eps);
}

static void far_linear(struct pass *p, const struct linear *job, int n_job, const float *in, int n, int cols)
{
	FAR(linear, job, n_job, in, n, cols);
}

static void far_kv_append(struct pass *p, const struct attn *a, float *q, size_t q_row, size_t q_head, float *k,
                          const float *v, const struct kv_view *view, int layer)
{
	FAR(kv_append, a, q, q_row, q_head, k, v, view, layer);
}

static void far_attend(struct pass *p, float *out, const struct attn *a, const float *q, const float *gate,
                       size_t q_row, size_t q_head, const struct kv_view *view, int layer)
{
	FAR(attend, out, a, q, gate, q_row, q_head, view, layer);
}

static void far_conv(struct pass *p, float *out, const struct conv *c, int n_conv, const float *in, int at, int n,
                     const struct state_view *view, int layer)
{
	FAR(conv, out, c, n_conv, in, at, n, view, layer);
}

static void far_recur(struct pass *p, float *out, const struct recur *r, const struct recur_in *in,
                      const struct state_view *view, int layer)
{
	FAR(recur, out, r, in, view, layer);
}

static void far_tape_apply(struct backend *be, const struct state_view *view, int slot, int keep)
{
	struct far *f = near_be(be);

	f->inner->ops->tape_apply(f->inner, view, slot, keep);
	away(be);
}

static void far_moe(struct pass *p, float *out, bool add, const struct moe *m, const float *in, const float *by, int n,
                    int cols)
{
	FAR(moe, out, add, m, in, by, n, cols);
}

static void far_add(struct pass *p, float *x, const float *y, int n, int cols, float scale)
{
	FAR(add, x, y, n, cols, scale);
}

static void far_map(struct pass *p, float *x, int n, int cols, float scale, float cap)
{
	FAR(map, x, n, cols, scale, cap);
}

static void far_mul(struct pass *p, float *x, const float *y, size_t y_ld, int n, int cols)
{
	FAR(mul, x, y, y_ld, n, cols);
}

static void far_gather(struct pass *p, float *out, const float *in, const int32_t *index, int n, int cols)
{
	FAR(gather, out, in, index, n, cols);
}

static void far_close(struct backend *be)
{
	struct far *f = near_be(be);

	f->inner->ops->close(f->inner);
	free(f);
}

static const struct backend_ops far_ops = {
	.name = "far",
	.alloc = far_alloc,
	.free = far_free,
	.write = far_write,
	.read = far_read,
	.copy = far_copy,
	.embed = far_embed,
	.norm = far_norm,
	.linear = far_linear,
	.kv_append = far_kv_append,
	.attend = far_attend,
	.conv = far_conv,
	.recur = far_recur,
	.tape_apply = far_tape_apply,
	.moe = far_moe,
	.add = far_add,
	.map = far_map,
	.mul = far_mul,
	.gather = far_gather,
	.close = far_close,
};

struct backend *far_open(struct backend *inner)
{
	struct far *f = xcalloc(1, sizeof *f);

	f->be = (struct backend){ &far_ops, inner->level, inner->threads };
	f->inner = inner;
	return &f->be;
}
