/* tower_siglip.c - SigLIP's tower, as Gemma 3 and LFM2-VL have it: LayerNorm, biases, learned places, GELU. */
#include <math.h>
#include <stdio.h>

#include "vision/tower_parts.h"

static void read_common(struct tower *t, struct conf *c, int patch)
{
	t->depth = conf_int_or(c, "num_hidden_layers", 27, 1, CONF_LAYERS_MAX);
	t->hidden = conf_int_or(c, "hidden_size", 1152, 1, CONF_DIM_MAX);
	t->inner = conf_int_or(c, "intermediate_size", 4304, 1, CONF_DIM_MAX);
	t->heads = conf_int_or(c, "num_attention_heads", 16, 1, CONF_HEADS_MAX);
	t->act.kind = ACT_GELU_TANH;
	t->form.resample = RESAMPLE_BILINEAR;
	t->form.patch = conf_int_or(c, "patch_size", patch, 1, 64);
	t->form.frames = 1;
	for (int i = 0; i < 3; i++)
		t->form.mean[i] = t->form.std[i] = 0.5f;
}

static void bind_blocks(struct tower *t, struct binder *b, float eps)
{
	static const char path[] = "encoder.layers";
	int h = t->hidden;

	t->block = arena_zalloc(&t->holder.arena, size_mul((size_t)t->depth, sizeof *t->block));
	for (int i = 0; i < t->depth && !b->code; i++) {
		struct tower_block *k = &t->block[i];

		bind_norm(b, &k->norm_attn, TOWER_NORM_LAYER, h, 0, eps, path, i, "layer_norm1");
		bind_norm(b, &k->norm_mlp, TOWER_NORM_LAYER, h, 0, eps, path, i, "layer_norm2");
		bind_linear(b, &k->q, h, h, path, i, "self_attn.q_proj", true);
		bind_linear(b, &k->k, h, h, path, i, "self_attn.k_proj", true);
		bind_linear(b, &k->v, h, h, path, i, "self_attn.v_proj", true);
		bind_linear(b, &k->proj, h, h, path, i, "self_attn.out_proj", true);
		bind_linear(b, &k->up, t->inner, h, path, i, "mlp.fc1", true);
		bind_linear(b, &k->down, h, t->inner, path, i, "mlp.fc2", true);
	}
	bind_norm(b, &t->post, TOWER_NORM_LAYER, h, 0, eps, "post_layernorm", -1, "");
}

/* The projector's tensors are next to the tower's. */
static const char *const projector_prefixes[] = { "multi_modal_projector.", "model.multi_modal_projector.", NULL };

static void to_projector(struct tower *t, struct binder *b, const char *shown_by)
{
	if (b->code)
		return;
	b->prefix = store_prefix(t->st, projector_prefixes, shown_by);
	if (!b->prefix)
		b->code = store_missing(t->st, shown_by, b->err);
}

/* The matrix is stored as [in][out]. */
static void bind_transposed(struct binder *b, struct tower_linear *l, int rows, int cols, const char *path)
{
	const float *table = bind_host_table(b, cols, rows, path);
	float *to;

	if (b->code)
		return;
	to = bind_table(b, size_mul((size_t)rows, (size_t)cols));
	for (int r = 0; r < rows; r++)
		for (int c = 0; c < cols; c++)
			to[(size_t)r * (size_t)cols + (size_t)c] = table[(size_t)c * (size_t)rows + (size_t)r];
	b->code = weight_plain(&l->w, path, DT_F32, rows, cols, to, (size_t)rows * (size_t)cols * sizeof *to, b->err);
}

static void bind_gemma3(struct tower *t, struct binder *b, struct conf *c)
{
	struct conf top = { .j = t->st->config, .file = c->file, .where = "", .err = c->err };
	int rows = conf_int_or(&top, "mm_tokens_per_image", 256, 1, 1 << 16), side = 0, grid;
	float eps = (float)conf_double_or(c, "layer_norm_eps", 1e-6);

	read_common(t, c, 14);
	t->form.size = SIZE_SQUARE;
	t->form.edge = conf_int_or(c, "image_size", 896, 1, PICTURE_EDGE_MAX);
	grid = t->form.edge / t->form.patch;
	while ((side + 1) * (side + 1) <= rows)
		side++;
	if (side * side != rows || grid % side || t->form.edge % t->form.patch)
		conf_fail(c, E_FORMAT, "%d rows of an image of %d x %d patches", rows, grid, grid);
	if (c->code || top.code) {
		c->code = c->code ? c->code : top.code;
		return;
	}
	t->form.merge = grid / side;
	t->tokens.placeholder = conf_int_or(&top, "boi_token_index", t->tokens.row, 0, CONF_VOCAB_MAX);
	t->both_ways = true;
	t->places.kind = PLACES_TABLE;
	t->places.side = grid;
	t->places.table = bind_host_table(b, grid * grid, t->hidden, "embeddings.position_embedding");
	bind_patches(b, t, "embeddings.patch_embedding", true);
	bind_blocks(t, b, eps);
	to_projector(t, b, "mm_soft_emb_norm.weight");
	t->projector.average = true;
	t->projector.factor = 1.0f / (float)(t->form.merge * t->form.merge);
	bind_norm(b, &t->projector.joined, TOWER_NORM_RMS, t->hidden, 1, eps, "mm_soft_emb_norm", -1, "");
	t->projector.n = 1;
	bind_transposed(b, &t->projector.linear[0], t->out, t->hidden, "mm_input_projection_weight");
}

/* Marks: two line ends, begin and end of an image. */
static const char *const gemma3_marks[] = { "\n\n", "<start_of_image>", "<end_of_image>", NULL };

/* HF's processor puts these around the rows; the template writes the second mark alone. */
static int gemma3_layout(const struct tower *t, const struct picture_plan *p, int32_t *out)
{
	int n = 0;

	out[n++] = t->tokens.mark[0];
	out[n++] = t->tokens.mark[1];
	n += layout_plain(t, p, out + n);
	out[n++] = t->tokens.mark[2];
	out[n++] = t->tokens.mark[0];
	return n;
}

static void bind_lfm2(struct tower *t, struct binder *b, struct conf *c)
{
	struct conf top = { .j = t->st->config, .file = c->file, .where = "", .err = c->err };
	float eps = (float)conf_double_or(c, "layer_norm_eps", 1e-6);
	int places = conf_int_or(c, "num_patches", 256, 1, 1 << 20), side = 0, inner, joined;
	bool bias = conf_bool_or(&top, "projector_bias", true);

	read_common(t, c, 16);
	t->form.size = SIZE_TILES;
	t->form.merge = conf_int_or(&top, "downsample_factor", 2, 1, 8);
	t->form.area_min = 64 * 1024;
	t->form.area_max = 256 * 1024;
	t->form.edge = 512;
	t->form.tiles_min = 2;
	t->form.tiles_max = 10;
	t->form.tolerance = 2;
	t->form.split = t->form.whole = true;
	inner = conf_int_or(&top, "projector_hidden_size", 2560, 1, CONF_DIM_MAX);
	while ((side + 1) * (side + 1) <= places)
		side++;
	if (side * side != places)
		conf_fail(c, E_FORMAT, "num_patches: %d is not a square", places);
	if (!c->code && !picture_read(&t->form, top.j, top.file, c->err)) /* the processor's file has the same keys */
		t->places.kind = PLACES_ANTIALIAS;
	if (c->code || top.code) {
		c->code = c->code ? c->code : top.code;
		return;
	}
	t->places.side = side;
	t->places.table = bind_host_table(b, places, t->hidden, "embeddings.position_embedding");
	bind_patches(b, t, "embeddings.patch_embedding", true);
	t->embed.channels_last = true;
	bind_blocks(t, b, eps);
	to_projector(t, b, "linear_1.weight");
	joined = t->hidden * t->form.merge * t->form.merge;
	if (conf_bool_or(&top, "projector_use_layernorm", true))
		bind_norm(b, &t->projector.joined, TOWER_NORM_LAYER, joined, 0, 1e-5f, "layer_norm", -1, "");
	t->projector.n = 2;
	bind_linear(b, &t->projector.linear[0], inner, joined, "linear_1", -1, "", bias);
	bind_linear(b, &t->projector.linear[1], t->out, inner, "linear_2", -1, "", bias);
	t->projector.act[0].kind = ACT_GELU_ERF;
}

static const char *const lfm2_marks[] = { "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>",
	                                  "<|img_row_1_col_1|>", NULL };

/* Ids of tiles go on from the first by rows of ten. */
static int lfm2_layout(const struct tower *t, const struct picture_plan *p, int32_t *out)
{
	int n = 0, tiles = p->tile_rows * p->tile_cols;

	out[n++] = t->tokens.mark[0];
	for (int v = 0; v < p->n_view; v++) {
		struct picture_plan one = { .rows = p->view[v].grid_h / t->form.merge *
			                            (p->view[v].grid_w / t->form.merge) };

		if (tiles && v < tiles && tiles > 1)
			out[n++] = t->tokens.mark[3] == MEDIA_UNKNOWN ?
			                   MEDIA_UNKNOWN :
			                   t->tokens.mark[3] + 10 * (v / p->tile_cols) + v % p->tile_cols;
		else if (tiles > 1)
			out[n++] = t->tokens.mark[2];
		n += layout_plain(t, &one, out + n);
	}
	out[n++] = t->tokens.mark[1];
	return n;
}

static const char *const prefixes[] = { "vision_tower.vision_model.",
	                                "model.vision_tower.vision_model.",
	                                "vision_tower.",
	                                "model.vision_tower.",
	                                "vision_model.",
	                                NULL };
static const char *const gemma3_types[] = { "gemma3", NULL };
static const char *const lfm2_types[] = { "lfm2_vl", "lfm2-vl", NULL };

const struct tower_family tower_gemma3 = { "gemma3",    gemma3_types, prefixes,     "embeddings.patch_embedding.weight",
	                                   bind_gemma3, gemma3_marks, gemma3_layout };
const struct tower_family tower_lfm2 = { "lfm2_vl", lfm2_types, prefixes,   "embeddings.patch_embedding.weight",
	                                 bind_lfm2, lfm2_marks, lfm2_layout };
