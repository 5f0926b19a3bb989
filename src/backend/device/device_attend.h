/* device_attend.h - attention of a step on a device: kernels/append.cl and kernels/attend.cl, and the tables that they read. */
#ifndef BACKEND_DEVICE_DEVICE_ATTEND_H
#define BACKEND_DEVICE_DEVICE_ATTEND_H

#include "backend/backend.h"
#include "backend/device/kernel_shapes.h"
#include "backend/device/kernel_set.h"

/* The memory of one layer of one step.  Floats lie as backend.h's kv_append and attend say. */
struct device_attn {
	struct dmem pages;                /* page 0 of the group */
	struct dmem page;                 /* [n_item][page_max], of the group */
	struct dmem rows;                 /* [n_row] struct step_row */
	struct dmem append_shape;         /* struct append_shape, of the layer */
	struct dmem attend_shape;         /* struct attend_shape, of the layer */
	struct dmem cosines, sines, bend; /* [n_row][n_freq], [n_row]; bend none: no query is bent */
	struct dmem q_norm, k_norm, sinks;
	struct dmem units; /* struct attend_unit, as attend_units_cut made them */
	struct dmem part;  /* attend_part_bytes of them */
	bool turned;       /* device_attn_turned of the layer */
};

/* Can the device's kernels read and write these heads?  Up to 576 dims, a multiple of 4, both sides of one size, in every
 * format. */
bool device_attn_serves(const struct attn *);
/* Are keys or values rotated? */
bool device_attn_turned(const struct attn *, const struct kv_layer *);

/* The parts of a layer that the kernels read. */
struct append_shape append_shape_of(const struct attn *, size_t q_row, size_t q_head, const struct kv_view *,
                                    int layer);
struct attend_shape attend_shape_of(const struct attn *, size_t q_row, size_t q_head, const struct kv_view *,
                                    int layer);
/* The rows of a pass as the kernels read them, and their angles: [n_row], [n_row][n_freq]. */
void step_rows(struct step_row *, const struct pass *);
void step_angles(float *cosines, float *sines, float *bend, const struct attn *, const struct pass *);

/* Cuts the rows of a pass into units; returns how many, at most n_row. */
int attend_units_cut(struct attend_unit *, const struct attn *, const struct pass *);
/* Work-groups run a segment each where that gives the device enough of them; then partials of this many bytes lie between the
 * two launches.  0: no. */
size_t attend_part_bytes(const struct attn *, const struct pass *, const struct attend_unit *, int n_unit,
                         int *segments);

/* The operations of backend.h.  k none: the queries alone.  segments: what attend_part_bytes gave, 0 where that was 0. */
int device_append(struct kernel_set *, const struct device_attn *, const struct attn *, int n_row, struct dmem q,
                  struct dmem k, struct dmem v, struct err *);
int device_attend(struct kernel_set *, const struct device_attn *, const struct attn *, struct dmem out, struct dmem q,
                  struct dmem gate, int n_unit, int segments, struct err *);

#endif
