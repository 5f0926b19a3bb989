/* tower_pixtral.c - Pixtral's tower: RMS norms, no biases, rotation by row and column in turn, gated MLPs.  Mistral 3's projector
 * merges patches by a matrix over [channel][patch]; that of Pixtral 12B, which Hugging Face wraps as a llava, makes a row of each
 * patch. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "vision/tower_parts.h"

static const char *const projector_prefixes[] = { "multi_modal_projector.", "model.multi_modal_projector.", NULL };

static void bind_projector(struct tower *t, struct binder *b, float eps, bool merges, bool bias, struct activation act)
{
	struct projector *p = &t->projector;
	int h = t->hidden;

	if (b->code)
		return;
	b->prefix = store_prefix(t->st, projector_prefixes, "linear_1.weight");
	if (!b->prefix) {
		b->code = store_missing(t->st, "multi_modal_projector.linear_1.weight", b->err);
		return;
	}
	if (merges) {
		bind_norm(b, &p->before, TOWER_NORM_RMS, h, 0, eps, "norm", -1, "");
		p->channels_first = true;
		bind_linear(b, &p->linear[p->n++], h, h * t->form.merge * t->form.merge, "patch_merger.merging_layer",
		            -1, "", false);
	}
	p->act[p->n] = act;
	bind_linear(b, &p->linear[p->n++], t->out, h, "linear_1", -1, "", bias);
	bind_linear(b, &p->linear[p->n++], t->out, t->out, "linear_2", -1, "", bias);
}

static struct activation read_act(struct conf *c, const char *key)
{
	const char *name = conf_str_or(c, key, "gelu");

	if (!strcmp(name, "silu"))
		return (struct activation){ .kind = ACT_SILU };
	if (strcmp(name, "gelu"))
		conf_fail(c, E_UNSUPPORTED, "%s: \"%.40s\" is not known; known: gelu, silu", key, name);
	return (struct activation){ .kind = ACT_GELU_ERF };
}

/* The projector reads what the last block gives, all of it. */
static void check_features(struct conf *top, bool llava)
{
	int layer = conf_int_or(top, "vision_feature_layer", llava ? -2 : -1, -CONF_LAYERS_MAX, CONF_LAYERS_MAX);
	const char *which = conf_str_or(top, "vision_feature_select_strategy", llava ? "default" : "full");

	if (layer != -1)
		conf_fail(top, E_UNSUPPORTED, "vision_feature_layer: %d, -1 is known", layer);
	if (strcmp(which, "full"))
		conf_fail(top, E_UNSUPPORTED, "vision_feature_select_strategy: \"%.40s\", \"full\" is known", which);
}

static void bind_pixtral(struct tower *t, struct binder *b, struct conf *c)
{
	static const float mean[3] = { 0.48145466f, 0.4578275f, 0.40821073f },
			   std[3] = { 0.26862954f, 0.26130258f, 0.27577711f };
	static const char path[] = "transformer.layers";
	struct conf top = { .j = t->st->config, .file = c->file, .where = "", .err = c->err };
	struct conf text = { .j = t->st->text, .file = c->file, .where = "text_config.", .err = c->err };
	struct conf rope = {
		.j = conf_get(c, "rope_parameters"), .file = c->file, .where = "rope_parameters.", .err = c->err
	};
	bool llava = !strcmp(conf_str_or(&top, "model_type", ""), "llava");
	float eps = (float)conf_double_or(&text, "rms_norm_eps", 1e-5);
	bool bias = conf_bool_or(&top, "multimodal_projector_bias", llava);
	struct activation act = read_act(&top, "projector_hidden_act");

	t->depth = conf_int_or(c, "num_hidden_layers", 24, 1, CONF_LAYERS_MAX);
	t->hidden = conf_int_or(c, "hidden_size", 1024, 1, CONF_DIM_MAX);
	t->inner = conf_int_or(c, "intermediate_size", 4096, 1, CONF_DIM_MAX);
	t->heads = conf_int_or(c, "num_attention_heads", 16, 1, CONF_HEADS_MAX);
	t->dim = conf_int_or(c, "head_dim", t->hidden / t->heads, 4, CONF_HEAD_DIM_MAX);
	t->act = read_act(c, "hidden_act");
	t->rope.kind = ROPE_ALTERNATE;
	t->rope.theta = conf_double_or(c, "rope_theta", conf_double_or(&rope, "rope_theta", 10000));
	t->form = (struct picture_form){ .size = SIZE_LONGEST, .resample = RESAMPLE_BICUBIC, .frames = 1 };
	t->form.patch = conf_int_or(c, "patch_size", 16, 1, 64);
	t->form.merge = llava ? 1 : conf_int_or(&top, "spatial_merge_size", 2, 1, 8);
	t->form.edge = conf_int_or(c, "image_size", llava ? 1024 : 1540, 1, PICTURE_EDGE_MAX);
	check_features(&top, llava);
	for (int i = 0; i < 3; i++) {
		t->form.mean[i] = mean[i];
		t->form.std[i] = std[i];
	}
	c->code = c->code ? c->code : top.code ? top.code : text.code ? text.code : rope.code;
	if (c->code)
		return;
	bind_patches(b, t, "patch_conv", false);
	bind_norm(b, &t->pre, TOWER_NORM_RMS, t->hidden, 0, 1e-5f, "ln_pre", -1, "");
	t->block = arena_zalloc(&t->holder.arena, size_mul((size_t)t->depth, sizeof *t->block));
	for (int i = 0; i < t->depth && !b->code; i++) {
		struct tower_block *k = &t->block[i];
		int h = t->hidden, heads = t->heads * t->dim;

		k->gated = true;
		bind_norm(b, &k->norm_attn, TOWER_NORM_RMS, h, 0, 1e-5f, path, i, "attention_norm");
		bind_norm(b, &k->norm_mlp, TOWER_NORM_RMS, h, 0, 1e-5f, path, i, "ffn_norm");
		bind_linear(b, &k->q, heads, h, path, i, "attention.q_proj", false);
		bind_linear(b, &k->k, heads, h, path, i, "attention.k_proj", false);
		bind_linear(b, &k->v, heads, h, path, i, "attention.v_proj", false);
		bind_linear(b, &k->proj, h, heads, path, i, "attention.o_proj", false);
		bind_linear(b, &k->gate, t->inner, h, path, i, "feed_forward.gate_proj", false);
		bind_linear(b, &k->up, t->inner, h, path, i, "feed_forward.up_proj", false);
		bind_linear(b, &k->down, h, t->inner, path, i, "feed_forward.down_proj", false);
	}
	bind_projector(t, b, eps, !llava, bias, act);
}

static const char *const marks[] = { "[IMG_BREAK]", "[IMG_END]", NULL };

/* A break after each row of the grid, the end in place of the last. */
static int pixtral_layout(const struct tower *t, const struct picture_plan *p, int32_t *out)
{
	int n = 0, rows = p->view[0].grid_h / t->form.merge, cols = p->view[0].grid_w / t->form.merge;

	for (int r = 0; r < rows; r++) {
		struct picture_plan one = { .rows = cols };

		n += layout_plain(t, &one, out + n);
		out[n++] = t->tokens.mark[r == rows - 1];
	}
	return n;
}

static const char *const prefixes[] = { "vision_tower.", "vision_tower.vision_model.", "model.vision_tower.", NULL };
static const char *const types[] = { "mistral3", "llava", NULL };

const struct tower_family tower_pixtral = { "pixtral",    types, prefixes,      "patch_conv.weight",
	                                    bind_pixtral, marks, pixtral_layout };
