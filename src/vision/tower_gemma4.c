/* tower_gemma4.c - Gemma 4's tower: RMS norms around both blocks, norms of queries, keys and values, places by axis,
 * rotation by column and row, gated GELU; products with stored bounds in the small models.  Gemma 4 12B has no blocks:
 * a patch of 48 x 48 pixels, normed, is one matrix and a place away from a row's vector. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "vision/tower_parts.h"

/* The four bounds of a matrix. */
static void bind_bounded(struct binder *b, struct tower_linear *l, int rows, int cols, int i, const char *name,
                         bool bounded)
{
	static const char *const what[] = { "input_min", "input_max", "output_min", "output_max" };
	float *to[] = { &l->in[0], &l->in[1], &l->out[0], &l->out[1] };
	char inner[96];

	snprintf(inner, sizeof inner, "%s.linear", name);
	bind_linear(b, l, rows, cols, "encoder.layers", i, inner, false);
	l->bounded = bounded;
	for (int k = 0; k < 4 && bounded && !b->code; k++) {
		const float *v = bind_floats(b, 1, 0, "encoder.layers.%d.%s.%s", i, name, what[k]);

		if (v)
			*to[k] = *v;
	}
}

static void bind_block(struct tower *t, struct binder *b, struct tower_block *k, int i, float eps, bool bounded)
{
	static const char path[] = "encoder.layers";
	int h = t->hidden, heads = t->heads * t->dim;

	k->gated = k->v_norm = true;
	bind_norm(b, &k->norm_attn, TOWER_NORM_RMS, h, 0, eps, path, i, "input_layernorm");
	bind_norm(b, &k->post_attn, TOWER_NORM_RMS, h, 0, eps, path, i, "post_attention_layernorm");
	bind_norm(b, &k->norm_mlp, TOWER_NORM_RMS, h, 0, eps, path, i, "pre_feedforward_layernorm");
	bind_norm(b, &k->post_mlp, TOWER_NORM_RMS, h, 0, eps, path, i, "post_feedforward_layernorm");
	k->q_norm = bind_floats(b, t->dim, 0, "%s.%d.self_attn.q_norm.weight", path, i);
	k->k_norm = bind_floats(b, t->dim, 0, "%s.%d.self_attn.k_norm.weight", path, i);
	bind_bounded(b, &k->q, heads, h, i, "self_attn.q_proj", bounded);
	bind_bounded(b, &k->k, heads, h, i, "self_attn.k_proj", bounded);
	bind_bounded(b, &k->v, heads, h, i, "self_attn.v_proj", bounded);
	bind_bounded(b, &k->proj, h, heads, i, "self_attn.o_proj", bounded);
	bind_bounded(b, &k->gate, t->inner, h, i, "mlp.gate_proj", bounded);
	bind_bounded(b, &k->up, t->inner, h, i, "mlp.up_proj", bounded);
	bind_bounded(b, &k->down, h, t->inner, i, "mlp.down_proj", bounded);
}

/* (x - bias) scale = scale x - bias scale */
static void bind_standard(struct tower *t, struct binder *b)
{
	const float *bias = bind_floats(b, t->hidden, 0, "std_bias"),
		    *scale = bind_floats(b, t->hidden, 0, "std_scale");
	float *shift;

	if (b->code)
		return;
	shift = bind_table(b, (size_t)t->hidden);
	for (int i = 0; i < t->hidden; i++)
		shift[i] = -bias[i] * scale[i];
	t->projector.gain = scale;
	t->projector.shift = shift;
}

static const char *const projector_prefixes[] = { "model.embed_vision.", "embed_vision.", NULL };

static void bind_projection(struct tower *t, struct binder *b, float eps)
{
	t->projector.joined = (struct tower_norm){ .kind = TOWER_NORM_RMS, .eps = eps };
	if (b->code)
		return;
	b->prefix = store_prefix(t->st, projector_prefixes, "embedding_projection.weight");
	if (!b->prefix)
		b->code = store_missing(t->st, "embed_vision.embedding_projection.weight", b->err);
	t->projector.n = 1;
	bind_linear(b, &t->projector.linear[0], t->out, t->hidden, "embedding_projection", -1, "", false);
}

static void bind_gemma4(struct tower *t, struct binder *b, struct conf *c)
{
	struct conf rope = {
		.j = conf_get(c, "rope_parameters"), .file = c->file, .where = "rope_parameters.", .err = c->err
	};
	struct conf text = { .j = t->st->text, .file = c->file, .where = "text_config.", .err = c->err };
	float eps = (float)conf_double_or(c, "rms_norm_eps", 1e-6);
	bool bounded = conf_bool_or(c, "use_clipped_linears", false);

	t->depth = conf_int(c, "num_hidden_layers", 1, CONF_LAYERS_MAX);
	t->hidden = conf_int(c, "hidden_size", 1, CONF_DIM_MAX);
	t->inner = conf_int(c, "intermediate_size", 1, CONF_DIM_MAX);
	t->heads = conf_int(c, "num_attention_heads", 1, CONF_HEADS_MAX);
	t->dim = conf_int(c, "head_dim", 4, CONF_HEAD_DIM_MAX);
	t->scale = 1;
	t->act.kind = ACT_GELU_TANH;
	t->rope.kind = ROPE_HALVES;
	t->rope.theta = conf_double_or(&rope, "rope_theta", 100);
	t->places.side = conf_int_or(c, "position_embedding_size", 10240, 1, 1 << 20);
	t->form = (struct picture_form){ .size = SIZE_FILL, .resample = RESAMPLE_BICUBIC, .frames = 1 };
	t->form.patch = conf_int_or(c, "patch_size", 16, 1, 64);
	t->form.merge = conf_int_or(c, "pooling_kernel_size", 3, 1, 16);
	t->form.patches_max = t->form.merge * t->form.merge * conf_int_or(c, "default_output_length", 280, 1, 4096);
	for (int i = 0; i < 3; i++)
		t->form.mean[i] = t->form.std[i] = 0.5f; /* 2 x - 1, in the model; the processor leaves [0, 1] */
	if (c->code || rope.code) {
		c->code = c->code ? c->code : rope.code;
		return;
	}
	t->both_ways = !strcmp(conf_str_or(&text, "use_bidirectional_attention", ""), "vision");
	t->places.kind = PLACES_AXES;
	t->places.table = bind_host_table(b, 2 * t->places.side, t->hidden, "patch_embedder.position_embedding_table");
	bind_patches(b, t, "patch_embedder.input_proj", false);
	t->embed.channels_last = true;
	t->block = arena_zalloc(&t->holder.arena, size_mul((size_t)t->depth, sizeof *t->block));
	for (int i = 0; i < t->depth && !b->code; i++)
		bind_block(t, b, &t->block[i], i, eps, bounded);
	t->projector.average = true;
	t->projector.factor = sqrtf((float)t->hidden) / (float)(t->form.merge * t->form.merge);
	if (conf_bool_or(c, "standardize", false))
		bind_standard(t, b);
	bind_projection(t, b, eps);
}

static const char *const marks[] = { "<|image>", "<image|>", NULL };

static int gemma4_layout(const struct tower *t, const struct picture_plan *p, int32_t *out)
{
	int n = 0;

	out[n++] = t->tokens.mark[0];
	n += layout_plain(t, p, out + n);
	out[n++] = t->tokens.mark[1];
	return n;
}

static const char *const prefixes[] = { "model.vision_tower.", "vision_tower.", NULL };
static const char *const types[] = { "gemma4", NULL };

const struct tower_family tower_gemma4 = { "gemma4",    types, prefixes,     "patch_embedder.input_proj.weight",
	                                   bind_gemma4, marks, gemma4_layout };

/* ---- Gemma 4 12B ---- */

/* The norms are the framework's, whatever rms_norm_eps says. */
#define LAYER_EPS 1e-5f

/* pos_embedding is [places][axis][hidden], and the table that places are added from [axis][places][hidden]. */
static void bind_axes(struct tower *t, struct binder *b)
{
	const float *from = bind_host_table(b, 2 * t->places.side, t->hidden, "pos_embedding");
	float *to;

	if (!from)
		return;
	to = arena_alloc(&t->holder.arena, size_mul(2 * (size_t)t->places.side, (size_t)t->hidden * sizeof *to));
	for (int place = 0; place < t->places.side; place++)
		for (int axis = 0; axis < 2; axis++)
			memcpy(to + (size_t)(axis * t->places.side + place) * (size_t)t->hidden,
			       from + (size_t)(2 * place + axis) * (size_t)t->hidden, (size_t)t->hidden * sizeof *to);
	t->places.table = to;
}

static void bind_unified(struct tower *t, struct binder *b, struct conf *c)
{
	struct conf text = { .j = t->st->text, .file = c->file, .where = "text_config.", .err = c->err };
	int patch = conf_int_or(c, "patch_size", 16, 1, 64), pool = conf_int_or(c, "pooling_kernel_size", 3, 1, 16);
	float eps = (float)conf_double_or(c, "rms_norm_eps", 1e-6);

	t->hidden = conf_int(c, "mm_embed_dim", 1, CONF_DIM_MAX);
	t->places.side = conf_int_or(c, "mm_posemb_size", 1120, 1, 1 << 20);
	t->form = (struct picture_form){ .size = SIZE_FILL, .resample = RESAMPLE_BICUBIC, .frames = 1, .merge = 1 };
	t->form.patch = conf_int_or(c, "model_patch_size", patch * pool, 1, 1024);
	t->form.patches_max = conf_int_or(c, "num_soft_tokens", 280, 1, 4096);
	for (int i = 0; i < 3; i++)
		t->form.std[i] = 1; /* [0, 1] as it is */
	t->form.levels = true;
	if (c->code)
		return;
	t->both_ways = !strcmp(conf_str_or(&text, "use_bidirectional_attention", ""), "vision");
	t->places.kind = PLACES_AXES;
	bind_axes(t, b);
	/* A norm takes the scale away but for its epsilon, and levels are exact where a patch is nearly of one colour. */
	bind_norm(b, &t->embed.patch, TOWER_NORM_LAYER, 3 * t->form.patch * t->form.patch, 0, LAYER_EPS * 255 * 255,
	          "patch_ln1", -1, "");
	bind_patches(b, t, "patch_dense", true);
	t->embed.channels_last = true;
	bind_norm(b, &t->embed.embedded, TOWER_NORM_LAYER, t->hidden, 0, LAYER_EPS, "patch_ln2", -1, "");
	bind_norm(b, &t->pre, TOWER_NORM_LAYER, t->hidden, 0, LAYER_EPS, "pos_norm", -1, "");
	bind_projection(t, b, eps);
}

static const char *const unified_prefixes[] = { "model.vision_embedder.", "vision_embedder.", NULL };
static const char *const unified_types[] = { "gemma4_unified", NULL };

const struct tower_family tower_gemma4_unified = { "gemma4_unified",     unified_types, unified_prefixes,
	                                           "patch_dense.weight", bind_unified,  marks,
	                                           gemma4_layout };
