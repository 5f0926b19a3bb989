/* tower_qwen.c - the towers of Qwen3-VL and Qwen3.5 (LayerNorm, learned places, deepstack in the former), of Qwen2.5-VL
 * (RMS norms, gated MLPs, windows), and of Qwen2-VL (LayerNorm, no places but rotations). */
#include <stdio.h>
#include <string.h>
#include <math.h>

#include "vision/tower_parts.h"

static const char *const prefixes[] = {
	"model.visual.", "visual.", "model.language_model.visual.", "vision_tower.", "model.vision_tower.", NULL
};

/* Reads what all of these towers have but for widths. */
static void read_form(struct tower *t, struct conf *c, int patch)
{
	static const float half[3] = { 0.5f, 0.5f, 0.5f };

	t->depth = conf_int(c, "depth", 1, CONF_LAYERS_MAX);
	t->heads = conf_int(c, "num_heads", 1, CONF_HEADS_MAX);
	t->rope.kind = ROPE_ROW_COL;
	t->rope.theta = 10000;
	t->grid_places = true;
	t->form = (struct picture_form){ .size = SIZE_AREA, .resample = RESAMPLE_BICUBIC };
	t->form.patch = conf_int_or(c, "patch_size", patch, 1, 64);
	t->form.merge = conf_int_or(c, "spatial_merge_size", 2, 1, 8);
	t->form.frames = conf_int_or(c, "temporal_patch_size", 2, 1, 8);
	for (int i = 0; i < 3; i++)
		t->form.mean[i] = t->form.std[i] = half[i];
}

static void read_common(struct tower *t, struct conf *c, int patch)
{
	read_form(t, c, patch);
	t->hidden = conf_int(c, "hidden_size", 1, CONF_DIM_MAX);
	t->inner = conf_int(c, "intermediate_size", 1, CONF_DIM_MAX);
	t->out = conf_int(c, "out_hidden_size", 1, CONF_DIM_MAX);
}

/* Query, key and value are one matrix. */
static void bind_attention(struct binder *b, struct tower *t, struct tower_block *k, int i)
{
	struct tower_linear all, *part[] = { &k->q, &k->k, &k->v };

	bind_linear(b, &all, 3 * t->hidden, t->hidden, "blocks", i, "attn.qkv", true);
	bind_linear(b, &k->proj, t->hidden, t->hidden, "blocks", i, "attn.proj", true);
	if (b->code)
		return;
	if (t->hidden % 16)
		bind_rows_only(b, &all.w);
	for (int j = 0; j < 3; j++) {
		part[j]->w = weight_rows(&all.w, j * t->hidden, t->hidden);
		part[j]->bias = all.bias + j * t->hidden;
	}
}

static void bind_merger(struct binder *b, struct tower *t, struct projector *p, const char *norm, const char *fc1,
                        const char *fc2, enum tower_norm_kind kind, bool norm_joined)
{
	int joined = t->hidden * t->form.merge * t->form.merge;

	bind_norm(b, norm_joined ? &p->joined : &p->before, kind, norm_joined ? joined : t->hidden, 0, 1e-6f, norm, -1,
	          "");
	p->n = 2;
	bind_linear(b, &p->linear[0], joined, joined, fc1, -1, "", true);
	bind_linear(b, &p->linear[1], t->out, joined, fc2, -1, "", true);
	p->act[0].kind = ACT_GELU_ERF;
}

static void read_deepstack(struct tower *t, struct conf *c)
{
	const struct json *list = conf_list(c, "deepstack_visual_indexes");
	int64_t at;

	t->deep.n = (int)json_len(list);
	if (t->deep.n > TOWER_DEEP) {
		conf_fail(c, E_UNSUPPORTED, "deepstack_visual_indexes: %d of them, at most %d are read", t->deep.n,
		          TOWER_DEEP);
		t->deep.n = 0;
	}
	for (int k = 0; k < t->deep.n; k++) {
		if (json_to_int(json_at(list, (size_t)k), &at) || at < 0 || at >= t->depth ||
		    (k && at <= t->deep.after[k - 1])) {
			conf_fail(c, E_FORMAT, "deepstack_visual_indexes: no rising list of blocks below %d", t->depth);
			return;
		}
		t->deep.after[k] = (int)at;
	}
}

/* Binds blocks with LayerNorms and an MLP of two matrices, called up and down. */
static void bind_plain_blocks(struct tower *t, struct binder *b, const char *up, const char *down)
{
	t->block = arena_zalloc(&t->holder.arena, size_mul((size_t)t->depth, sizeof *t->block));
	for (int i = 0; i < t->depth && !b->code; i++) {
		struct tower_block *k = &t->block[i];

		bind_norm(b, &k->norm_attn, TOWER_NORM_LAYER, t->hidden, 0, 1e-6f, "blocks", i, "norm1");
		bind_norm(b, &k->norm_mlp, TOWER_NORM_LAYER, t->hidden, 0, 1e-6f, "blocks", i, "norm2");
		bind_attention(b, t, k, i);
		bind_linear(b, &k->up, t->inner, t->hidden, "blocks", i, up, true);
		bind_linear(b, &k->down, t->hidden, t->inner, "blocks", i, down, true);
	}
}

static void bind_qwen(struct tower *t, struct binder *b, struct conf *c)
{
	int side = 0, table;

	read_common(t, c, 16);
	t->form.area_min = 65536;
	t->form.area_max = 16777216;
	t->act.kind = ACT_GELU_TANH;
	table = conf_int_or(c, "num_position_embeddings", 2304, 1, 1 << 20);
	while ((side + 1) * (side + 1) <= table)
		side++;
	if (side * side != table)
		conf_fail(c, E_FORMAT, "num_position_embeddings: %d is not a square", table);
	read_deepstack(t, c);
	if (c->code)
		return;
	t->places.kind = PLACES_CORNERS;
	t->places.side = side;
	t->places.table = bind_host_table(b, table, t->hidden, "pos_embed");
	bind_patches(b, t, "patch_embed.proj", true);
	bind_plain_blocks(t, b, "mlp.linear_fc1", "mlp.linear_fc2");
	bind_merger(b, t, &t->projector, "merger.norm", "merger.linear_fc1", "merger.linear_fc2", TOWER_NORM_LAYER,
	            false);
	for (int k = 0; k < t->deep.n; k++) {
		char path[3][64];
		static const char *const part[] = { "norm", "linear_fc1", "linear_fc2" };

		for (int i = 0; i < 3; i++)
			snprintf(path[i], sizeof path[i], "deepstack_merger_list.%d.%s", k, part[i]);
		bind_merger(b, t, &t->deep.v[k], path[0], path[1], path[2], TOWER_NORM_LAYER, true);
	}
}

static const float clip_mean[3] = { 0.48145466f, 0.4578275f, 0.40821073f },
		   clip_std[3] = { 0.26862954f, 0.26130258f, 0.27577711f };

/* Blocks that see everything; the others see windows. */
static void read_windows(struct tower *t, struct conf *c, bool *full)
{
	int cell = t->form.patch * t->form.merge, window = conf_int(c, "window_size", cell, 1 << 16);

	t->window = window / cell;
	conf_layers_named(c, "fullatt_block_indexes", 0, t->depth, full);
}

static void bind_qwen2_5(struct tower *t, struct binder *b, struct conf *c)
{
	bool *full;

	read_common(t, c, 14);
	t->form.area_min = 3136;
	t->form.area_max = 12845056;
	for (int i = 0; i < 3; i++) {
		t->form.mean[i] = clip_mean[i];
		t->form.std[i] = clip_std[i];
	}
	t->act.kind = ACT_SILU;
	if (c->code)
		return;
	full = arena_zalloc(&t->holder.arena, (size_t)t->depth * sizeof *full);
	read_windows(t, c, full);
	if (c->code)
		return;
	bind_patches(b, t, "patch_embed.proj", false);
	t->block = arena_zalloc(&t->holder.arena, size_mul((size_t)t->depth, sizeof *t->block));
	for (int i = 0; i < t->depth && !b->code; i++) {
		struct tower_block *k = &t->block[i];

		k->windowed = !full[i];
		k->gated = true;
		bind_norm(b, &k->norm_attn, TOWER_NORM_RMS, t->hidden, 0, 1e-6f, "blocks", i, "norm1");
		bind_norm(b, &k->norm_mlp, TOWER_NORM_RMS, t->hidden, 0, 1e-6f, "blocks", i, "norm2");
		bind_attention(b, t, k, i);
		bind_linear(b, &k->gate, t->inner, t->hidden, "blocks", i, "mlp.gate_proj", true);
		bind_linear(b, &k->up, t->inner, t->hidden, "blocks", i, "mlp.up_proj", true);
		bind_linear(b, &k->down, t->hidden, t->inner, "blocks", i, "mlp.down_proj", true);
	}
	bind_merger(b, t, &t->projector, "merger.ln_q", "merger.mlp.0", "merger.mlp.2", TOWER_NORM_RMS, false);
}

/* For Qwen2-VL, whose hidden_size is the width of the text's vectors, and the tower's a factor of mlp_ratio below its
 * MLP's. */
static void read_qwen2(struct tower *t, struct conf *c)
{
	const char *act = conf_str_or(c, "hidden_act", "quick_gelu");
	double ratio = conf_double_or(c, "mlp_ratio", 4);

	t->hidden = conf_int(c, "embed_dim", 1, CONF_DIM_MAX);
	t->out = conf_int(c, "hidden_size", 1, CONF_DIM_MAX);
	if (!(ratio > 0 && ratio * t->hidden <= CONF_DIM_MAX))
		conf_fail(c, E_FORMAT, "mlp_ratio: %g times embed_dim %d is not between 1 and %d", ratio, t->hidden,
		          CONF_DIM_MAX);
	else
		t->inner = (int)(ratio * t->hidden + 1e-3); /* a GGUF file's ratio is rounded to a float */
	read_form(t, c, 14);
	t->form.area_min = 3136;
	t->form.area_max = 12845056;
	for (int i = 0; i < 3; i++) {
		t->form.mean[i] = clip_mean[i];
		t->form.std[i] = clip_std[i];
	}
	t->act.kind = ACT_GELU_QUICK;
	if (strcmp(act, "quick_gelu"))
		conf_fail(c, E_UNSUPPORTED, "hidden_act: \"%.40s\" is not known; known: quick_gelu", act);
}

static void bind_qwen2(struct tower *t, struct binder *b, struct conf *c)
{
	read_qwen2(t, c);
	if (c->code)
		return;
	bind_patches(b, t, "patch_embed.proj", false);
	bind_plain_blocks(t, b, "mlp.fc1", "mlp.fc2");
	bind_merger(b, t, &t->projector, "merger.ln_q", "merger.mlp.0", "merger.mlp.2", TOWER_NORM_LAYER, false);
}

static const char *const qwen_types[] = { "qwen3_5",      "qwen3_5_moe",           "qwen3_vl",
	                                  "qwen3_vl_moe", "prism_hadamard_qwen35", NULL };
static const char *const qwen2_5_types[] = { "qwen2_5_vl", NULL };
static const char *const qwen2_types[] = { "qwen2_vl", NULL };
static const char *const no_marks[] = { NULL };

const struct tower_family tower_qwen = { "qwen3_vl", qwen_types, prefixes,    "patch_embed.proj.weight",
	                                 bind_qwen,  no_marks,   layout_plain };
const struct tower_family tower_qwen2_5 = { "qwen2_5_vl", qwen2_5_types, prefixes,    "patch_embed.proj.weight",
	                                    bind_qwen2_5, no_marks,      layout_plain };
const struct tower_family tower_qwen2 = { "qwen2_vl", qwen2_types, prefixes,    "patch_embed.proj.weight",
	                                  bind_qwen2, no_marks,    layout_plain };
