/* dev.h - inside device/: the parts of the backend over a device that its files share. */
#ifndef BACKEND_DEVICE_DEV_H
#define BACKEND_DEVICE_DEV_H

#include "backend/backend.h"
#include "backend/device/device_attend.h"
#include "backend/device/device_recur.h"
#include "backend/device/kernel_set.h"
#include "backend/low_rank.h"
#include "quant/placed.h"

/* A range of host addresses that operations name.  Either alloc() gave it: addresses without memory.  Or models placed it. */
struct dev_range {
	const uint8_t *p;
	size_t bytes;
	struct dmem
		mem; /* its bytes on the device; base NULL: a placed range that no operation has read as it is yet */
	int models;  /* that placed it */
};
/* Ranges that do not overlap, in the order of their addresses. */
struct dev_ranges {
	struct dev_range *v;
	int n, cap;
};

/* A weight as kernels read it. */
struct dev_weight {
	const uint8_t *data;     /* of the weight that it was made of: with rows, cols, experts and `exact` its name */
	int rows, cols, experts; /* experts: matrices of a stack, one behind the other; 1 */
	bool exact;              /* for ARITH_F32: floats, where it is coded */
	const char *module;      /* of coded.cl; NULL: plain numbers of `kind` (plain.cl) */
	int kind, group;
	struct dmem codes, scales; /* codes: the numbers, of plain ones */
	bool own;                  /* codes is this weight's memory, and not a part of what was placed */
};
struct dev_weights {
	struct dev_weight *v;
	int n, cap;
};

/* Memory that operations work in.  It grows, and loses its contents then. */
enum dev_room {
	ROOM_TABLES,
	ROOM_ACTS,
	ROOM_SCALES,
	ROOM_FLOATS,
	ROOM_UP,
	ROOM_PART,
	ROOM_LOW,
	ROOM_KEPT,
	ROOM_X,
	ROOM_KQ,
	ROOM_DOT,
	ROOM_DECAY,
	ROOM_BETA,
	ROOM_UPDATE,
	ROOM_ITEM,
	ROOM_MIX,
	ROOMS
};

/* Angles of the rows of a pass, by what they depend on. */
struct dev_angles {
	struct rope rope;
	float bend;
	int bend_every;
	size_t cosines, sines, bends; /* in the tables */
};
/* The units into which attention cuts the rows of a pass, in the same form. */
struct dev_units {
	int heads, heads_kv, dim, window, first;
	bool both_ways;
	size_t at; /* in the tables */
	int n, segments;
	size_t part_bytes;
};
/* A table of a layer that is the same in all passes (kernel_shapes.h), found by its bytes. */
struct dev_shape {
	void *bytes;
	size_t n;
	struct dmem mem;
};
struct dev_shapes {
	struct dev_shape *v;
	int n, cap;
};

struct dev {
	struct backend be;
	struct device *dev;
	struct kernel_set kernels;
	char level[300];
	bool rehearsing;
	struct err refused; /* in a rehearsal; code 0: nothing was */

	struct dev_ranges area, placed;
	struct dev_weights weights;
	struct dev_shapes shapes;
	struct {
		struct dmem mem;
		size_t cap;
	} room[ROOMS];

	/* The pass that has begun, and where its tables are in ROOM_TABLES. */
	const struct pass *of;
	uint8_t *table; /* as they are brought over */
	size_t table_n, table_cap;
	size_t rows, tok, logit_row, pick, items, keeps, page[KV_GROUPS], brought;
	struct dev_angles angles[16];
	struct dev_units units[16];
	int n_angles, n_units;
};

static inline struct dev *dev_of(const struct pass *p)
{
	return (struct dev *)p->be;
}
/* Does the device not compute any longer?  Or was an operation of this rehearsal refused? */
static inline bool dev_idle(const struct dev *d)
{
	return d->be.failed.code || d->refused.code;
}
/* The device is lost, and why. */
void dev_lost(struct dev *d, const struct err *why);
/* An operation that there is no kernel for.  In a pass that was not rehearsed the device counts as lost. */
void dev_refuse(struct dev *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Starts a kernel; in a rehearsal it is only compiled. */
void dev_run(struct dev *d, const char *module, const char *kernel, int threads, int gx, int gy, const struct darg *arg,
             int n);
/* Looks at what a call returned. */
bool dev_ok(struct dev *d, int code, const struct err *err);

/* dev_memory.c.  dev_at: the memory that an address of alloc() names; base NULL for NULL. */
struct dmem dev_at(struct dev *d, const void *p);
struct dmem dev_room(struct dev *d, enum dev_room which, size_t bytes);
/* The range that p lies in; NULL: none. */
struct dev_range *dev_range_of(const struct dev_ranges *l, const void *p);
/* Adds a range; NULL: it overlaps another. */
struct dev_range *dev_range_add(struct dev_ranges *l, const struct dev_range *r);
void dev_range_drop(struct dev_ranges *l, struct dev_range *r);
/* The list with room for n members. */
void *dev_grow(void *list, int *cap, int n, size_t each);
void *dev_alloc(struct backend *be, size_t bytes);
void dev_free(struct backend *be, void *p, size_t bytes);
void dev_write(struct backend *be, void *to, const void *from, size_t n);
int dev_read(struct backend *be, void *to, const void *from, size_t n);
void dev_copy(struct backend *be, void *to, const void *from, size_t n);

/* dev_weights.c */
int dev_place(struct backend *be, const struct placed *v, int n, struct err *err);
void dev_unplace(struct backend *be, const struct placed *v, int n);
/* Host floats that were placed, or memory of alloc(); base NULL for NULL. */
struct dmem dev_vector(struct dev *d, const void *p);
/* NULL: refused, or the device failed. */
const struct dev_weight *dev_weight_of(struct dev *d, const struct weight *w, enum arith arith);
/* Returns n weights of one size, format and group as one stack; NULL as for dev_weight_of. */
const struct dev_weight *dev_stack_of(struct dev *d, const struct weight *w, int n, enum arith arith);
struct dmem dev_shape_of(struct dev *d, const void *bytes, size_t n);

/* dev_tables.c.  dev_kept_floats: of a copy of all layers' S, and of their tails, in whole blocks of 16. */
void dev_kept_floats(const struct state_shape *shape, size_t *s, size_t *tail);
int dev_begin(struct pass *p);
int dev_end(struct pass *p);
static inline struct dmem dev_table(const struct dev *d, size_t at)
{
	return dmem_at(d->room[ROOM_TABLES].mem, at);
}
const struct dev_angles *dev_angles_of(struct pass *p, const struct attn *a);
const struct dev_units *dev_units_of(struct pass *p, const struct attn *a);

/* dev_rows.c: products.  The inputs of products, as floats and as bytes in groups: one form for each size of group. */
enum { DEV_THREADS = 256, DEV_GROUPS = 4, DEV_FEW = 8 }; /* DEV_FEW: most rows of the kernel of few rows */
struct dev_acts {
	struct dmem in;
	int rows, cols, n;
	struct {
		int group;
		struct dmem q, scale, sum;
	} form[DEV_GROUPS];
};
/* Rows by expert, as kernels read them (places.cl). */
struct dev_places {
	struct dmem unit, index;  /* index none: what is multiplied lies in places as well */
	int experts, units, size; /* size: most places of a unit, as dev_unit_size has it */
};
static inline int dev_blocks(size_t n)
{
	return (int)((n + DEV_THREADS - 1) / DEV_THREADS);
}
/* rows: of an expert, on average. */
int dev_unit_size(const struct dev_weight *w, int rows);
/* out = in w' + bias, or out += that.  places: w are experts; NULL: rows of a in their order. */
void dev_product(struct dev *d, enum arith arith, struct dev_acts *a, const struct weight *w, struct dmem out,
                 size_t ld, const float *bias, bool add, const struct dev_places *places);
/* dev_low.c: adds what adapters of the pass add to the products of a's rows by w; rows of out are ld floats apart.
 * dev_add_rows: x += y; rows of x are ld floats apart, those of y cols. */
void dev_low_rank(struct pass *p, const struct dev_acts *a, const struct weight *w, struct dmem out, size_t ld);
void dev_add_rows(struct dev *d, struct dmem x, size_t ld, struct dmem y, int n, int cols);
/* x[n] = act(x) * y, y none: act(x) */
void dev_activate(struct dev *d, struct dmem x, struct dmem y, size_t n, const struct activation *act);

/* dev_rows.c, dev_heads.c, dev_layers.c and dev_moe.c: the operations */
void dev_embed(struct pass *p, float *out, const struct weight *w);
void dev_bring(struct pass *p, float *x, int cols, int level);
void dev_norm(struct pass *p, float *out, const float *in, int n, int cols, const float *gain, float eps);
void dev_layer_norm(struct pass *p, float *out, const float *in, int n, int cols, const float *gain, const float *bias,
                    float eps);
void dev_linear(struct pass *p, const struct linear *job, int n_job, const float *in, int n, int cols);
void dev_gate(struct pass *p, float *x, const float *y, int n, int cols, const struct activation *act);
void dev_affine(struct pass *p, float *x, int n, int cols, const float *gain, const float *shift, float low,
                float high);
void dev_add(struct pass *p, float *x, const float *y, int n, int cols, float scale);
void dev_map(struct pass *p, float *x, int n, int cols, float scale, float cap);
void dev_mul(struct pass *p, float *x, const float *y, size_t y_ld, int each, int n, int cols);
void dev_blend(struct pass *p, float *out, size_t out_ld, const float *a, const float *b, const float *t, int n,
               int cols);
void dev_gather(struct pass *p, float *out, const float *in, const int32_t *index, int n, int cols);
void dev_by_head(struct pass *p, float *out, const struct by_head *h, const float *in, int n);
void dev_heads(struct pass *p, float *out, int out_dim, const float *in, int in_dim, int n, int heads,
               const struct grid_rope *rope);
void dev_kv_append(struct pass *p, const struct attn *a, float *q, size_t q_row, size_t q_head, float *k,
                   const float *v, const struct kv_view *view, int layer);
void dev_attend(struct pass *p, float *out, const struct attn *a, const float *q, const float *gate, size_t q_row,
                size_t q_head, const struct kv_view *view, int layer);
void dev_conv(struct pass *p, float *out, const struct conv *c, int n_conv, const float *in, int at, int n,
              const struct state_view *view, int layer);
void dev_recur(struct pass *p, float *out, const struct recur *r, const struct recur_in *in,
               const struct state_view *view, int layer);
void dev_moe(struct pass *p, float *out, bool add, const struct moe *m, const float *in, const float *by, int n,
             int cols);
void dev_tape_apply(struct backend *be, const struct state_view *view, int slot, int keep);

#endif
