/* device_recur.h - recurrent layers of a step on a device: kernels/conv.cl and kernels/recur.cl, and the tables that they
 * read.  States, tails and tapes lie as backend.h's state_view has them, S in the processor's order. */
#ifndef BACKEND_DEVICE_DEVICE_RECUR_H
#define BACKEND_DEVICE_DEVICE_RECUR_H

#include "backend/backend.h"
#include "backend/device/kernel_shapes.h"
#include "backend/device/kernel_set.h"

/* The memory of one layer of one step. */
struct device_recur {
	struct dmem s, tail, tape;                        /* of all slots and layers */
	struct dmem kept;                                 /* what the places of step_keep count from */
	struct dmem rows;                                 /* [n_row] struct step_row */
	struct dmem items;                                /* [n_item] struct step_item */
	struct dmem keeps;                                /* [n_keep] struct step_keep */
	struct dmem shape;                                /* struct recur_shape, of the layer */
	struct dmem conv, conv_bias, rate, dt_bias, skip; /* of struct recur; rate: a_log_exp, or the fixed decays */
	struct dmem x;                                    /* [n_row][x_cols], room for what the convolution gives */
	struct dmem kq, dot, decay, beta, update;         /* recur_room_floats of them */
};
struct recur_room {
	size_t kq, dot, decay, beta, update;
};

/* Can the kernels follow this rule and these heads?  Gated delta, fixed decays, SSM and KDA; keys of at most 256 dims, a multiple
 * of 4. */
bool device_recur_serves(const struct state_shape *);
struct recur_shape recur_shape_of(const struct recur *, const struct state_view *, int layer);
struct recur_room recur_room_floats(const struct state_shape *, int n_row);
/* The items of a pass as the kernels read them. */
void step_items(struct step_item *, const struct pass *, const struct state_view *);

/* The operations of backend.h; x, z, b, a as struct recur_in has them.  device_recur leaves out what comes after S: norm and
 * gate. */
int device_conv(struct kernel_set *, const struct device_recur *, const struct state_view *, struct dmem out,
                const struct conv *, const struct dmem *w, const struct dmem *bias, int n_conv, struct dmem in, int at,
                int n, int n_row, int n_item, struct err *);
int device_recur(struct kernel_set *, const struct device_recur *, const struct state_view *, bool convolved,
                 struct dmem out, struct dmem x, struct dmem a, struct dmem b, int n_row, int n_item, struct err *);
/* items: one, of the slot, with `keep` owed rows and none of its own. */
int device_tape_apply(struct kernel_set *, const struct device_recur *, const struct state_view *, struct err *);

#endif
