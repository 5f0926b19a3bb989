/* kernel_shapes.h - the tables that kernels read besides their data, laid out for the host's compiler and for that of
 * kernels alike: integers and floats of 32 bits. */
#ifndef BACKEND_DEVICE_KERNEL_SHAPES_H
#define BACKEND_DEVICE_KERNEL_SHAPES_H

/* A row of a step; see: the last position that it sees where attention goes both ways. */
struct step_row {
	int item, pos, see;
};

/* Adjacent rows of an item whose queries attend together. */
struct attend_unit {
	int row, n;
};

/* How a side of the cache is written: bits of a number, and how many of them share a scale (0: floats, or a rotated row). */
struct kv_shape {
	int bits, group, row_bytes;
	int at;      /* of head 0, in a page */
	float unit;  /* of the book's entries, where rows are rotated; 0: they are not */
	int book[4]; /* its 16 entries, a byte each */
};

/* The signs of a rotation's two rounds: bit i of word w is of element 16 w + i (quant/kv/kv_coded.c). */
struct kv_turn {
	int negative[2][32];
};

/* Keys and values of one layer in their pages, and the queries that attend to them. */
struct attend_shape {
	int heads, heads_kv, dim;
	int q_row, q_head; /* floats from row to row, from head to head */
	int page_rows, page_max, page_bytes;
	struct kv_shape k, v;
	int window, first, both_ways;
	float scale, cap; /* cap 0: none */
	float cap_by;     /* 2 scale / cap */
	struct kv_turn turn;
};

struct append_shape {
	int heads, heads_kv, dim;
	int q_row, q_head;
	int page_rows, page_max, page_bytes;
	struct kv_shape k, v;
	int n_freq, apart, adjacent; /* of the rotation: pairs (i, i + apart), or neighbours */
	int norm_from, v_norm, v_is_key;
	float eps;
	struct kv_turn turn;
};

/* An item of a step, for what has a state. */
struct step_item {
	int row, n;     /* its rows in the step; none when a tape is made part of the state between steps */
	int sure;       /* of them, those that S goes through; 0: S stays as it is */
	int slot, owed; /* owed: rows on the tape that come before */
	int taped_at;   /* of the tape, where the first row goes that is not sure */
	int tail;       /* rows after which the tail is written; -1: it stays as it is */
};

/* A copy of the state of an item as it would be after `row` of its rows; places in blocks of 16 floats. */
struct step_keep {
	int item, row, s_block, tail_block;
};

/* One layer's state, and what moves it. */
struct recur_shape {
	int layers, layer;
	int heads_k, heads_v, dim_k, dim_v, tiled;
	int channels, width;                                           /* of the convolution */
	int x_cols, x_key, x_query, x_value;                           /* of x: columns, and where each part begins */
	int tape_rows, tape_floats, tape_key, tape_decay, tape_update; /* as struct state_tape has it */
	int decay_n;
	int l2; /* keys and queries are set to length 1 */
	float query_scale;
	float beta_scale, gate_floor, dt_min, dt_max; /* 0: none */
};

/* How a mixture chooses experts and weighs them (struct moe); route: enum moe_route. */
struct moe_shape {
	int experts, top_k, route, normalise;
	int groups, groups_used, groups_strict;
	float scale, norm_eps, jitter; /* scale 0: none */
};

#endif
