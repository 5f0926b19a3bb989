/* gguf_projector_forms.c - what each type of projector becomes: names, weights put back as they were, vision_config,
 * audio_config. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "store/gguf/gguf_projector.h"

/* ---- weights that a converter changed ---- */

static int wrong_parts(const struct gguf_model *m, const struct gguf_info *a, const struct gguf_info *b,
                       const char *beside, struct err *err)
{
	char has[160], wants[160];

	if (!b)
		return err_set(err, E_MISSING, "%s: tensor %s: missing, and %s is there", m->part[0].path, beside,
		               a->name);
	return err_set(err, E_FORMAT, "%s: tensor %s: is %s %s, %s is %s %s", m->part[0].path, beside, b->type->name,
	               shape_text(has, sizeof has, b->ne, b->n_dim), a->name, a->type->name,
	               shape_text(wants, sizeof wants, a->ne, a->n_dim));
}

static bool same_kind(const struct gguf_info *a, const struct gguf_info *b)
{
	return b && a->type == b->type && a->n_dim == b->n_dim && !memcmp(a->ne, b->ne, sizeof a->ne);
}

/* Plain elements of one size, as a convolution of patches has them: [rows][3][p][p] */
static int check_patches(const struct gguf_model *m, const struct gguf_tensor *t, struct err *err)
{
	const struct gguf_info *i = t->from;
	char has[160];

	if (i->type->block == 1 && i->n_dim == 4 && i->ne[2] == 3)
		return 0;
	return err_set(err, E_FORMAT, "%s: tensor %s: is %s %s, a convolution over patches of 3 colours is wanted",
	               m->part[0].path, i->name, i->type->name, shape_text(has, sizeof has, i->ne, i->n_dim));
}

/* The two frames of a patch, which are one convolution in three dimensions: [rows][3][2][p][p] */
static const struct gguf_info *other_frame(const struct gguf_model *m)
{
	return gguf_tensor_info(m, "v.patch_embd.weight.1");
}

/* weft's own key, in files of towers that were trained with single pictures: frames of a patch.  2 where it is missing. */
static int64_t frames_of(struct gguf_conf *c)
{
	int64_t n = gguf_conf_int(c, "temporal_patch_size", 2);

	if (!c->code && (n < 1 || n > 2))
		gguf_conf_fail(c, E_UNSUPPORTED, "key clip.vision.temporal_patch_size: %" PRId64 ", 1 and 2 are read",
		               n);
	return c->code ? 2 : n;
}

/* The kernel of one frame stays where it is. Other programs want a second one, and add its output: it has to be all 0. */
static int one_frame_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	const struct gguf_info *b = other_frame(m);

	if (b && !same_kind(t->from, b))
		return wrong_parts(m, t->from, b, "v.patch_embd.weight.1", err);
	for (size_t i = 0; b && i < b->bytes; i++)
		if (b->data[i])
			return err_set(err, E_FORMAT,
			               "%s: tensor %s: is not 0, and key clip.vision.temporal_patch_size is 1",
			               m->part[0].path, b->name);
	t->t.n_dim = 5;
	t->t.dim[4] = t->t.dim[3];
	t->t.dim[3] = t->t.dim[2];
	t->t.dim[2] = 1;
	return 0;
}

static int frames_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	const struct gguf_info *b = other_frame(m);
	struct gguf_conf c = { .m = m, .err = err };
	int64_t frames = frames_of(&c);
	int code = c.code ? c.code : check_patches(m, t, err);

	if (code)
		return code;
	if (frames == 1)
		return one_frame_shape(m, t, err);
	if (!same_kind(t->from, b))
		return wrong_parts(m, t->from, b, "v.patch_embd.weight.1", err);
	t->t.n_dim = 5;
	t->t.dim[4] = t->t.dim[3];
	t->t.dim[3] = t->t.dim[2];
	t->t.dim[2] = 2;
	t->t.count = t->t.elements = 2 * t->t.count;
	t->t.bytes = size_mul(2, t->t.bytes);
	t->t.data = NULL;
	return 0;
}

static void frames_fill(const struct gguf_model *m, const struct gguf_tensor *t, uint8_t *to)
{
	const uint8_t *frame[2] = { t->from->data, other_frame(m)->data };
	int64_t planes = t->from->ne[3] * 3;
	size_t n = t->from->bytes / (size_t)planes;

	for (int64_t i = 0; i < planes; i++)
		for (int f = 0; f < 2; f++)
			memcpy(to + (size_t)(2 * i + f) * n, frame[f] + (size_t)i * n, n);
}

static const struct gguf_fix frames = { frames_shape, frames_fill };

/* Colours of a pixel side by side, as a matrix over patches has them: [rows][p * p * 3] */
static int pixels_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	int code = check_patches(m, t, err);

	if (code)
		return code;
	t->t.n_dim = 2;
	t->t.dim[1] = t->t.count / t->t.dim[0];
	t->t.data = NULL;
	return 0;
}

static void pixels_fill(const struct gguf_model *m, const struct gguf_tensor *t, uint8_t *to)
{
	int64_t rows = t->from->ne[3], pixels = t->from->ne[0] * t->from->ne[1];
	size_t n = t->from->bytes / (size_t)t->from->count;

	for (int64_t r = 0; r < rows; r++)
		for (int64_t p = 0; p < pixels; p++)
			for (int64_t c = 0; c < 3; c++)
				memcpy(to + (size_t)((r * pixels + p) * 3 + c) * n,
				       t->from->data + (size_t)((r * 3 + c) * pixels + p) * n, n);
}

static const struct gguf_fix pixels = { pixels_shape, pixels_fill };

/* Colours of a pixel side by side again, of a vector or of a matrix's columns, whose patches have them in planes. */
static int planes_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	const struct gguf_info *i = t->from;
	char has[160];

	if (i->type->block != 1 || i->n_dim > 2 || i->ne[0] % 3)
		return err_set(err, E_FORMAT, "%s: tensor %s: is %s %s, numbers of patches of 3 colours are wanted",
		               m->part[0].path, i->name, i->type->name, shape_text(has, sizeof has, i->ne, i->n_dim));
	t->t.data = NULL;
	return 0;
}

static void planes_fill(const struct gguf_model *m, const struct gguf_tensor *t, uint8_t *to)
{
	int64_t cols = t->from->ne[0], n_pixel = cols / 3, rows = t->from->count / cols;
	size_t n = t->from->bytes / (size_t)t->from->count;

	for (int64_t r = 0; r < rows; r++)
		for (int64_t p = 0; p < n_pixel; p++)
			for (int64_t c = 0; c < 3; c++)
				memcpy(to + (size_t)(r * cols + p * 3 + c) * n,
				       t->from->data + (size_t)(r * cols + c * n_pixel + p) * n, n);
}

static const struct gguf_fix planes = { planes_shape, planes_fill };

/* Places by axis, [2][places][width], as [places][2][width]. */
static int axes_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	const struct gguf_info *i = t->from;
	char has[160];

	if (i->type->block != 1 || i->n_dim != 3 || i->ne[2] != 2)
		return err_set(err, E_FORMAT, "%s: tensor %s: is %s %s, places of 2 axes are wanted", m->part[0].path,
		               i->name, i->type->name, shape_text(has, sizeof has, i->ne, i->n_dim));
	t->t.dim[0] = i->ne[1];
	t->t.dim[1] = 2;
	t->t.data = NULL;
	return 0;
}

static void axes_fill(const struct gguf_model *m, const struct gguf_tensor *t, uint8_t *to)
{
	int64_t places = t->from->ne[1];
	size_t row = t->from->bytes / (size_t)(2 * places);

	for (int64_t p = 0; p < places; p++)
		for (int64_t axis = 0; axis < 2; axis++)
			memcpy(to + (size_t)(2 * p + axis) * row, t->from->data + (size_t)(axis * places + p) * row,
			       row);
}

static const struct gguf_fix axes = { axes_shape, axes_fill };

/* Queries, keys and values of a block, which are one matrix.  Converters write the three one after the other, so that it can
 * mostly stay in the file. */
static const struct gguf_info *beside_q(const struct gguf_model *m, const struct gguf_tensor *t, char which,
                                        char name[GGUF_NAME_BYTES])
{
	char *at;

	snprintf(name, GGUF_NAME_BYTES, "%s", t->from->name);
	at = strstr(name, ".attn_q.");
	if (at)
		at[strlen(".attn_")] = which;
	return at ? gguf_tensor_info(m, name) : NULL;
}

static int joined_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	const struct gguf_info *q = t->from, *part[2];
	char name[2][GGUF_NAME_BYTES];

	for (int i = 0; i < 2; i++) {
		part[i] = beside_q(m, t, i ? 'v' : 'k', name[i]);
		if (!same_kind(q, part[i]))
			return wrong_parts(m, q, part[i], name[i], err);
	}
	if (q->n_dim < 1 || q->n_dim > 2)
		return err_set(err, E_FORMAT, "%s: tensor %s: %d dimensions, 1 or 2 are wanted", m->part[0].path,
		               q->name, q->n_dim);
	t->t.dim[0] *= 3;
	t->t.count *= 3;
	t->t.elements = t->t.count;
	t->t.bytes = size_mul(3, t->t.bytes);
	if (part[0]->data != q->data + q->bytes || part[1]->data != part[0]->data + q->bytes)
		t->t.data = NULL;
	return 0;
}

static void joined_fill(const struct gguf_model *m, const struct gguf_tensor *t, uint8_t *to)
{
	char name[GGUF_NAME_BYTES];
	size_t n = t->from->bytes;

	memcpy(to, t->from->data, n);
	memcpy(to + n, beside_q(m, t, 'k', name)->data, n);
	memcpy(to + 2 * n, beside_q(m, t, 'v', name)->data, n);
}

static const struct gguf_fix joined = { joined_shape, joined_fill };

/* Rows of a head in pairs, as llama's: put back in halves. */
static int64_t turned_dim(const struct gguf_model *m, const struct gguf_tensor *t)
{
	int64_t heads = gguf_conf_int(&(struct gguf_conf){ .m = m }, "attention.head_count", 0);

	return heads > 0 && t->from->ne[1] % heads == 0 ? t->from->ne[1] / heads : 0;
}

static int turned_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	int64_t d = turned_dim(m, t);

	if (t->from->n_dim != 2 || d < 2 || d % 2)
		return err_set(err, E_FORMAT,
		               "%s: tensor %s: %d dimensions, %" PRId64 " rows are not pairs of %" PRId64 " heads",
		               m->part[0].path, t->from->name, t->from->n_dim, t->from->ne[1],
		               gguf_conf_int(&(struct gguf_conf){ .m = m }, "attention.head_count", 0));
	t->t.data = NULL;
	return 0;
}

static void turned_fill(const struct gguf_model *m, const struct gguf_tensor *t, uint8_t *to)
{
	int64_t d = turned_dim(m, t), rows = t->from->ne[1];
	size_t n = t->from->bytes / (size_t)rows;

	for (int64_t r = 0; r < rows; r++) {
		int64_t j = r % d;

		memcpy(to + (size_t)(r - j + j % 2 * (d / 2) + j / 2) * n, t->from->data + (size_t)r * n, n);
	}
}

static const struct gguf_fix turned = { turned_shape, turned_fill };

/* softplus(x) of the file becomes x again, since an ear takes the softplus of what it reads. */
static int softplus_shape(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	int code = gguf_floats_shape(m, t, err);

	for (int64_t i = 0; i < t->t.count && !code; i++) {
		float y;

		memcpy(&y, t->from->data + 4 * i, sizeof y);
		if (!(y > 0) || !isfinite(y))
			code = err_set(err, E_FORMAT, "%s: tensor %s: element %" PRId64 " is %g, a softplus is above 0",
			               m->part[0].path, t->from->name, i, (double)y);
	}
	return code;
}

static void softplus_fill(const struct gguf_model *m, const struct gguf_tensor *t, uint8_t *to)
{
	for (int64_t i = 0; i < t->t.count; i++) {
		float y;

		memcpy(&y, t->from->data + 4 * i, sizeof y);
		y = (float)((double)y + log(-expm1(-(double)y)));
		memcpy(to + 4 * i, &y, sizeof y);
	}
}

static const struct gguf_fix softplus = { softplus_shape, softplus_fill };

/* Files may have factors of keys, of which no equation was found. */
static int no_factors(const struct gguf_model *m, struct gguf_tensor *t, struct err *err)
{
	return err_set(err, E_UNSUPPORTED, "%s: tensor %s: factors of keys are not done", m->part[0].path,
	               t->from->name);
}

static const struct gguf_fix refused = { no_factors, NULL };

/* ---- members that several have ---- */

/* A key that is not one of clip.vision; false where it is missing. */
static bool key_bool(struct gguf_conf *c, const char *key)
{
	const struct gguf_value *v = c->code ? NULL : gguf_find(&c->m->part[0], key);
	bool out = false;

	if (v)
		c->code = gguf_bool(&c->m->part[0], v, 0, &out, c->err);
	return out;
}

/* Dimension i of the tensor, the first varying fastest; an error where it is missing. */
static int64_t edge(struct gguf_conf *c, const char *name, int i)
{
	const struct gguf_info *t = gguf_tensor_info(c->m, name);

	if (!t)
		gguf_conf_fail(c, E_MISSING, "tensor %s: missing", name);
	return t ? t->ne[i] : 1;
}

/* The inner width of MLPs; files from before 2025 say 0. */
static int64_t inner(struct gguf_conf *c)
{
	int64_t n = gguf_conf_int(c, "feed_forward_length", 0), hidden = gguf_conf_int(c, "embedding_length", 0), width;

	if (n)
		return n;
	width = edge(c, "v.blk.0.ffn_up.weight", 1);
	return width != hidden ? width : edge(c, "v.blk.0.ffn_up.weight", 0);
}

static void put_sizes(struct gguf_conf *c, const char *depth, const char *heads)
{
	gguf_put_int(c, depth, c->m->blocks);
	gguf_put_int(c, "hidden_size", gguf_conf_int(c, "embedding_length", GGUF_NEEDED));
	gguf_put_int(c, "intermediate_size", inner(c));
	gguf_put_int(c, heads, gguf_conf_int(c, "attention.head_count", GGUF_NEEDED));
	gguf_put_int(c, "patch_size", gguf_conf_int(c, "patch_size", GGUF_NEEDED));
}

/* For towers whose heads need not fill the width. */
static void put_head_dim(struct gguf_conf *c)
{
	int64_t heads = gguf_conf_int(c, "attention.head_count", GGUF_NEEDED),
		rows = edge(c, "v.blk.0.attn_q.weight", 1);

	if (!c->code && (heads < 1 || rows % heads))
		gguf_conf_fail(c, E_FORMAT, "tensor v.blk.0.attn_q.weight: %" PRId64 " rows are not %" PRId64 " heads",
		               rows, heads);
	gguf_put_int(c, "head_dim", c->code ? 1 : rows / heads);
}

/* ---- Qwen ---- */

static const struct projector_name qwen_top[] = {
	{ "v.patch_embd.weight", "model.visual.patch_embed.proj.weight", &frames },
	{ "v.patch_embd.weight.1", NULL, NULL },
	{ "v.patch_embd.bias", "model.visual.patch_embed.proj.bias", NULL },
	{ "v.position_embd.weight", "model.visual.pos_embed.weight", NULL },
	{ "v.post_ln.", "model.visual.merger.norm.", NULL },
	{ "mm.0.", "model.visual.merger.linear_fc1.", NULL },
	{ "mm.2.", "model.visual.merger.linear_fc2.", NULL },
	{ NULL, NULL, NULL },
};

static const struct projector_name qwen_block[] = {
	{ "ln1.", "norm1.", NULL },
	{ "ln2.", "norm2.", NULL },
	{ "attn_qkv.", "attn.qkv.", NULL },
	{ "attn_out.", "attn.proj.", NULL },
	{ "ffn_up.", "mlp.linear_fc1.", NULL },
	{ "ffn_down.", "mlp.linear_fc2.", NULL },
	{ NULL, NULL, NULL },
};

static const struct projector_name qwen2_5_top[] = {
	{ "v.patch_embd.weight", "model.visual.patch_embed.proj.weight", &frames },
	{ "v.patch_embd.weight.1", NULL, NULL },
	{ "v.post_ln.", "model.visual.merger.ln_q.", NULL },
	{ "mm.0.", "model.visual.merger.mlp.0.", NULL },
	{ "mm.2.", "model.visual.merger.mlp.2.", NULL },
	{ NULL, NULL, NULL },
};

static const struct projector_name qwen2_5_block[] = {
	{ "ln1.", "norm1.", NULL },
	{ "ln2.", "norm2.", NULL },
	{ "attn_qkv.", "attn.qkv.", NULL },
	{ "attn_q.", "attn.qkv.", &joined },
	{ "attn_k.", NULL, NULL },
	{ "attn_v.", NULL, NULL },
	{ "attn_out.", "attn.proj.", NULL },
	{ "ffn_gate.", "mlp.gate_proj.", NULL },
	{ "ffn_up.", "mlp.up_proj.", NULL },
	{ "ffn_down.", "mlp.down_proj.", NULL },
	{ NULL, NULL, NULL },
};

static const struct projector_name qwen2_block[] = {
	{ "ln1.", "norm1.", NULL },          { "ln2.", "norm2.", NULL },
	{ "attn_qkv.", "attn.qkv.", NULL },  { "attn_q.", "attn.qkv.", &joined },
	{ "attn_k.", NULL, NULL },           { "attn_v.", NULL, NULL },
	{ "attn_out.", "attn.proj.", NULL }, { "ffn_up.", "mlp.fc1.", NULL },
	{ "ffn_down.", "mlp.fc2.", NULL },   { NULL, NULL, NULL },
};

static void put_qwen(struct gguf_conf *c)
{
	put_sizes(c, "depth", "num_heads");
	gguf_put_int(c, "out_hidden_size",
	             gguf_conf_int(c, "projection_dim",
	                           gguf_conf_has_tensor(c, "mm.2.weight") ? edge(c, "mm.2.weight", 1) : 1));
	gguf_put_int(c, "spatial_merge_size", gguf_conf_int(c, "spatial_merge_size", 2));
	gguf_put_int(c, "temporal_patch_size", frames_of(c));
}

/* Blocks whose output the text model gets too: those with tensors of their own.  The key, where it is there, must agree. */
static void put_deepstack(struct gguf_conf *c)
{
	const struct gguf_value *said = gguf_find(&c->m->part[0], "clip.vision.is_deepstack_layers");
	bool first = true;

	if (said && said->n != (uint64_t)c->m->blocks) {
		gguf_conf_fail(c, E_FORMAT, "key %s: %" PRIu64 " elements, there are %" PRId64 " blocks", said->key,
		               said->n, c->m->blocks);
		return;
	}
	gguf_put_name(c, "deepstack_visual_indexes");
	buf_putc(c->out, '[');
	for (int64_t i = 0; i < c->m->blocks && !c->code; i++) {
		char name[64];
		bool there, want = false;

		snprintf(name, sizeof name, "v.deepstack.%" PRId64 ".norm.weight", i);
		there = want = gguf_conf_has_tensor(c, name);
		if (said && !(c->code = gguf_bool(&c->m->part[0], said, (uint64_t)i, &want, c->err)) && want != there)
			gguf_conf_fail(c, E_FORMAT, "key %s: element %" PRId64 " is %s, tensor %s is %s", said->key, i,
			               want ? "true" : "false", name, there ? "there" : "missing");
		if (there) {
			buf_printf(c->out, "%s%" PRId64, first ? "" : ",", i);
			first = false;
		}
	}
	buf_putc(c->out, ']');
}

static void put_qwen3(struct gguf_conf *c)
{
	put_qwen(c);
	gguf_put_int(c, "num_position_embeddings", edge(c, "v.position_embd.weight", 1));
	put_deepstack(c);
}

/* The MLP's width is a factor of the tower's, and hidden_size the width of the text's vectors. */
static void put_qwen2(struct gguf_conf *c)
{
	int64_t width = gguf_conf_int(c, "embedding_length", GGUF_NEEDED), up = inner(c);

	gguf_put_int(c, "depth", c->m->blocks);
	gguf_put_int(c, "embed_dim", width);
	if (!c->code && (width < 1 || up < 1))
		gguf_conf_fail(c, E_FORMAT, "key clip.vision.embedding_length: %" PRId64 ", an MLP of %" PRId64, width,
		               up);
	gguf_put_float(c, "mlp_ratio", c->code ? 1 : (double)up / (double)width);
	gguf_put_int(c, "num_heads", gguf_conf_int(c, "attention.head_count", GGUF_NEEDED));
	gguf_put_int(c, "patch_size", gguf_conf_int(c, "patch_size", GGUF_NEEDED));
	gguf_put_int(c, "hidden_size",
	             gguf_conf_int(c, "projection_dim",
	                           gguf_conf_has_tensor(c, "mm.2.weight") ? edge(c, "mm.2.weight", 1) : 1));
	gguf_put_int(c, "spatial_merge_size", gguf_conf_int(c, "spatial_merge_size", 2));
	gguf_put_int(c, "temporal_patch_size", frames_of(c));
	gguf_put_str(c, "hidden_act", key_bool(c, "clip.use_silu") ? "silu" : "quick_gelu");
}

/* Each n-th block sees all, the others windows of 112 pixels. */
static void put_qwen2_5(struct gguf_conf *c)
{
	int64_t every = gguf_conf_int(c, "n_wa_pattern", GGUF_NEEDED);

	put_qwen(c);
	gguf_put_int(c, "window_size", gguf_conf_int(c, "window_size", 112));
	if (!c->code && every < 1)
		gguf_conf_fail(c, E_FORMAT, "key clip.vision.n_wa_pattern: %" PRId64, every);
	if (c->code)
		return;
	gguf_put_name(c, "fullatt_block_indexes");
	buf_putc(c->out, '[');
	for (int64_t i = every - 1; i < c->m->blocks && i >= 0; i += every)
		buf_printf(c->out, "%s%" PRId64, i > every - 1 ? "," : "", i);
	buf_putc(c->out, ']');
}

/* ---- SigLIP: Gemma 3 and LFM2 ---- */

static const struct projector_name siglip_block[] = {
	{ "ln1.", "layer_norm1.", NULL },
	{ "ln2.", "layer_norm2.", NULL },
	{ "attn_q.", "self_attn.q_proj.", NULL },
	{ "attn_k.", "self_attn.k_proj.", NULL },
	{ "attn_v.", "self_attn.v_proj.", NULL },
	{ "attn_out.", "self_attn.out_proj.", NULL },
	{ "ffn_up.", "mlp.fc1.", NULL },
	{ "ffn_down.", "mlp.fc2.", NULL },
	{ NULL, NULL, NULL },
};

static const struct projector_name gemma3_top[] = {
	{ "v.patch_embd.", "vision_tower.vision_model.embeddings.patch_embedding.", NULL },
	{ "v.position_embd.", "vision_tower.vision_model.embeddings.position_embedding.", NULL },
	{ "v.post_ln.", "vision_tower.vision_model.post_layernorm.", NULL },
	{ "mm.input_projection.weight", "multi_modal_projector.mm_input_projection_weight", NULL },
	{ "mm.soft_emb_norm.weight", "multi_modal_projector.mm_soft_emb_norm.weight", &gguf_minus_one },
	{ NULL, NULL, NULL },
};

static const struct projector_name lfm2_top[] = {
	{ "v.patch_embd.weight", "vision_tower.vision_model.embeddings.patch_embedding.weight", &pixels },
	{ "v.patch_embd.bias", "vision_tower.vision_model.embeddings.patch_embedding.bias", NULL },
	{ "v.position_embd.", "vision_tower.vision_model.embeddings.position_embedding.", NULL },
	{ "v.post_ln.", "vision_tower.vision_model.post_layernorm.", NULL },
	{ "mm.input_norm.", "multi_modal_projector.layer_norm.", NULL },
	{ "mm.1.", "multi_modal_projector.linear_1.", NULL },
	{ "mm.2.", "multi_modal_projector.linear_2.", NULL },
	{ NULL, NULL, NULL },
};

static void put_siglip(struct gguf_conf *c)
{
	put_sizes(c, "num_hidden_layers", "num_attention_heads");
	gguf_put_float(c, "layer_norm_eps", gguf_conf_float(c, "attention.layer_norm_epsilon", 1e-6));
}

static void put_gemma3(struct gguf_conf *c)
{
	put_siglip(c);
	gguf_put_int(c, "image_size", gguf_conf_int(c, "image_size", GGUF_NEEDED));
}

/* Rows of an image: averages of squares of patches. */
static void around_gemma3(struct gguf_conf *c)
{
	int64_t size = gguf_conf_int(c, "image_size", GGUF_NEEDED), patch = gguf_conf_int(c, "patch_size", GGUF_NEEDED);
	int64_t square = gguf_conf_int(c, "projector.scale_factor", 4), side;

	if (!c->code && (patch < 1 || square < 1 || size < 1 || size > 1 << 20 || size / patch % square))
		gguf_conf_fail(c, E_FORMAT,
		               "key clip.vision.projector.scale_factor: %" PRId64 ", an image has %" PRId64
		               " patches on a side",
		               square, patch < 1 ? 0 : size / patch);
	side = c->code ? 1 : size / patch / square;
	gguf_put_int(c, "mm_tokens_per_image", side * side);
}

static void put_lfm2(struct gguf_conf *c)
{
	put_siglip(c);
	gguf_put_int(c, "num_patches", edge(c, "v.position_embd.weight", 1));
}

static void around_lfm2(struct gguf_conf *c)
{
	gguf_put_int(c, "downsample_factor", gguf_conf_int(c, "projector.scale_factor", 2));
	gguf_put_bool(c, "projector_bias", gguf_conf_has_tensor(c, "mm.1.bias"));
	gguf_put_bool(c, "projector_use_layernorm", gguf_conf_has_tensor(c, "mm.input_norm.weight"));
	gguf_put_int(c, "projector_hidden_size", edge(c, "mm.1.weight", 1));
}

/* ---- Gemma 4 ---- */

static const struct projector_name gemma4_top[] = {
	{ "v.patch_embd.weight", "model.vision_tower.patch_embedder.input_proj.weight", &pixels },
	{ "v.position_embd.weight", "model.vision_tower.patch_embedder.position_embedding_table", NULL },
	{ "v.std_bias", "model.vision_tower.std_bias", NULL },
	{ "v.std_scale", "model.vision_tower.std_scale", NULL },
	{ "mm.input_projection.weight", "model.embed_vision.embedding_projection.weight", NULL },
	{ NULL, NULL, NULL },
};

/* A matrix, and the bounds of its input and output. */
#define BOUNDED(gguf, hf)                              \
	{ gguf ".weight", hf ".linear.weight", NULL }, \
	{                                              \
		gguf ".", hf ".", NULL                 \
	}
static const struct projector_name gemma4_block[] = {
	{ "ln1.", "input_layernorm.", NULL },           { "attn_post_norm.", "post_attention_layernorm.", NULL },
	{ "ln2.", "pre_feedforward_layernorm.", NULL }, { "ffn_post_norm.", "post_feedforward_layernorm.", NULL },
	{ "attn_q_norm.", "self_attn.q_norm.", NULL },  { "attn_k_norm.", "self_attn.k_norm.", NULL },
	BOUNDED("attn_q", "self_attn.q_proj"),          BOUNDED("attn_k", "self_attn.k_proj"),
	BOUNDED("attn_v", "self_attn.v_proj"),          BOUNDED("attn_out", "self_attn.o_proj"),
	BOUNDED("ffn_gate", "mlp.gate_proj"),           BOUNDED("ffn_up", "mlp.up_proj"),
	BOUNDED("ffn_down", "mlp.down_proj"),           { NULL, NULL, NULL },
};

static void put_gemma4(struct gguf_conf *c)
{
	put_sizes(c, "num_hidden_layers", "num_attention_heads");
	put_head_dim(c);
	gguf_put_float(c, "rms_norm_eps", gguf_conf_float(c, "attention.layer_norm_epsilon", 1e-6));
	gguf_put_int(c, "pooling_kernel_size", gguf_conf_int(c, "projector.scale_factor", 3));
	gguf_put_int(c, "position_embedding_size", edge(c, "v.position_embd.weight", 1));
	gguf_put_bool(c, "use_clipped_linears", gguf_conf_has_tensor(c, "v.blk.0.attn_q.input_min"));
	gguf_put_bool(c, "standardize", gguf_conf_has_tensor(c, "v.std_bias"));
}

/* The models without embeddings in each layer see an image's rows both ways. */
static void text_gemma4(struct gguf_conf *text)
{
	if (!gguf_conf_int(text, "embedding_length_per_layer_input", 0))
		gguf_put_str(text, "use_bidirectional_attention", "vision");
}

/* Pixels are scaled inside of the tower. */
static void processor_gemma4(struct gguf_conf *c)
{
	gguf_put_bool(c, "do_normalize", false);
}

static const struct projector_name unified_top[] = {
	{ "v.patch_norm.1.", "model.vision_embedder.patch_ln1.", &planes },
	{ "v.patch_embd.weight", "model.vision_embedder.patch_dense.weight", &planes },
	{ "v.patch_embd.bias", "model.vision_embedder.patch_dense.bias", NULL },
	{ "v.patch_norm.2.", "model.vision_embedder.patch_ln2.", NULL },
	{ "v.patch_norm.3.", "model.vision_embedder.pos_norm.", NULL },
	{ "v.position_embd.weight", "model.vision_embedder.pos_embedding", &axes },
	{ "mm.input_projection.weight", "model.embed_vision.embedding_projection.weight", NULL },
	{ NULL, NULL, NULL },
};

static void put_unified(struct gguf_conf *c)
{
	gguf_put_int(c, "mm_embed_dim", gguf_conf_int(c, "embedding_length", GGUF_NEEDED));
	gguf_put_int(c, "mm_posemb_size", edge(c, "v.position_embd.weight", 1));
	gguf_put_int(c, "patch_size", gguf_conf_int(c, "patch_size", GGUF_NEEDED));
	gguf_put_int(c, "pooling_kernel_size", gguf_conf_int(c, "projector.scale_factor", 3));
	gguf_put_float(c, "rms_norm_eps", gguf_conf_float(c, "attention.layer_norm_epsilon", 1e-6));
}

/* ---- sounds: Gemma 4 E2B, E4B ---- */

static const struct projector_name conformer_top[] = {
	{ "a.conv1d.0.norm.weight", "model.audio_tower.subsample_conv_projection.layer0.norm.weight", NULL },
	{ "a.conv1d.1.norm.weight", "model.audio_tower.subsample_conv_projection.layer1.norm.weight", NULL },
	{ "a.conv1d.0.weight", "model.audio_tower.subsample_conv_projection.layer0.conv.weight", NULL },
	{ "a.conv1d.1.weight", "model.audio_tower.subsample_conv_projection.layer1.conv.weight", NULL },
	{ "a.input_projection.weight", "model.audio_tower.subsample_conv_projection.input_proj_linear.weight", NULL },
	{ "a.pre_encode.out.", "model.audio_tower.output_proj.", NULL },
	{ "mm.a.input_projection.weight", "model.embed_audio.embedding_projection.weight", NULL },
	{ NULL, NULL, NULL },
};

/* conv_norm and norm_conv stand for each other's names. */
static const struct projector_name conformer_block[] = {
	{ "ffn_norm.", "feed_forward1.pre_layer_norm.", NULL },
	{ "ffn_post_norm.", "feed_forward1.post_layer_norm.", NULL },
	{ "ffn_norm_1.", "feed_forward2.pre_layer_norm.", NULL },
	{ "ffn_post_norm_1.", "feed_forward2.post_layer_norm.", NULL },
	{ "attn_pre_norm.", "norm_pre_attn.", NULL },
	{ "attn_post_norm.", "norm_post_attn.", NULL },
	{ "ln2.", "norm_out.", NULL },
	{ "attn_k_rel.", "self_attn.relative_k_proj.", NULL },
	{ "per_dim_scale.weight", "self_attn.per_dim_scale", &softplus },
	{ "per_dim_k_scale.weight", "self_attn.per_dim_k_scale", &refused },
	{ "conv_norm.", "lconv1d.pre_layer_norm.", NULL },
	{ "norm_conv.", "lconv1d.conv_norm.", NULL },
	{ "conv_dw.", "lconv1d.depthwise_conv1d.", NULL },
	BOUNDED("ffn_up", "feed_forward1.ffw_layer_1"),
	BOUNDED("ffn_down", "feed_forward1.ffw_layer_2"),
	BOUNDED("ffn_up_1", "feed_forward2.ffw_layer_1"),
	BOUNDED("ffn_down_1", "feed_forward2.ffw_layer_2"),
	BOUNDED("attn_q", "self_attn.q_proj"),
	BOUNDED("attn_k", "self_attn.k_proj"),
	BOUNDED("attn_v", "self_attn.v_proj"),
	BOUNDED("attn_out", "self_attn.post"),
	BOUNDED("conv_pw1", "lconv1d.linear_start"),
	BOUNDED("conv_pw2", "lconv1d.linear_end"),
	{ NULL, NULL, NULL },
};

/* Frames of samples, the window, the cap and the weight of half a block are constants of its loaders. */
static void put_conformer(struct gguf_conf *c)
{
	int64_t bands = gguf_conf_int(c, "num_mel_bins", 128);

	if (!c->code && bands != 128)
		gguf_conf_fail(c, E_UNSUPPORTED, "key clip.audio.num_mel_bins: %" PRId64 ", 128 are read", bands);
	gguf_put_str(c, "model_type", "gemma4_audio");
	gguf_put_int(c, "hidden_size", gguf_conf_int(c, "embedding_length", GGUF_NEEDED));
	gguf_put_int(c, "num_hidden_layers", c->m->blocks);
	gguf_put_int(c, "num_attention_heads", gguf_conf_int(c, "attention.head_count", GGUF_NEEDED));
	gguf_put_float(c, "rms_norm_eps", gguf_conf_float(c, "attention.layer_norm_epsilon", 1e-6));
	gguf_put_name(c, "subsampling_conv_channels");
	buf_printf(c->out, "[%" PRId64 ",%" PRId64 "]", edge(c, "a.conv1d.0.weight", 3),
	           edge(c, "a.conv1d.1.weight", 3));
	gguf_put_int(c, "conv_kernel_size", edge(c, "a.blk.0.conv_dw.weight", 0));
	gguf_put_bool(c, "use_clipped_linears", gguf_conf_has_tensor(c, "a.blk.0.attn_q.input_min"));
	gguf_put_int(c, "output_proj_dims", edge(c, "a.pre_encode.out.weight", 1));
}

static const struct projector_ear ear_gemma4 = { .type = "gemma4a",
	                                         .block = "model.audio_tower.layers.",
	                                         .top = conformer_top,
	                                         .in_block = conformer_block,
	                                         .audio = put_conformer };

/* ---- sounds: Gemma 4 12B ---- */

static const struct projector_name frames_top[] = {
	{ "mm.a.input_projection.weight", "model.embed_audio.embedding_projection.weight", NULL },
	{ NULL, NULL, NULL },
};

/* The frame of a sound is as long as its matrix is wide. */
static void put_frames(struct gguf_conf *c)
{
	gguf_put_str(c, "model_type", "gemma4_unified_audio");
	gguf_put_int(c, "audio_samples_per_token", edge(c, "mm.a.input_projection.weight", 0));
	gguf_put_float(c, "rms_norm_eps", gguf_conf_float(c, "attention.layer_norm_epsilon", 1e-6));
}

static const struct projector_ear ear_unified = {
	.type = "gemma4ua", .top = frames_top, .in_block = NULL, .audio = put_frames
};

/* ---- Pixtral ---- */

static const struct projector_name pixtral_top[] = {
	{ "v.patch_embd.", "vision_tower.patch_conv.", NULL },
	{ "v.pre_ln.", "vision_tower.ln_pre.", NULL },
	{ "mm.input_norm.", "multi_modal_projector.norm.", NULL },
	{ "mm.patch_merger.", "multi_modal_projector.patch_merger.merging_layer.", NULL },
	{ "mm.1.", "multi_modal_projector.linear_1.", NULL },
	{ "mm.2.", "multi_modal_projector.linear_2.", NULL },
	{ NULL, NULL, NULL },
};

static const struct projector_name llava_top[] = {
	{ "v.patch_embd.", "vision_tower.patch_conv.", NULL },
	{ "v.pre_ln.", "vision_tower.ln_pre.", NULL },
	{ "mm.1.", "multi_modal_projector.linear_1.", NULL },
	{ "mm.2.", "multi_modal_projector.linear_2.", NULL },
	{ NULL, NULL, NULL },
};

static const struct projector_name pixtral_block[] = {
	{ "ln1.", "attention_norm.", NULL },
	{ "ln2.", "ffn_norm.", NULL },
	{ "attn_q.", "attention.q_proj.", &turned },
	{ "attn_k.", "attention.k_proj.", &turned },
	{ "attn_v.", "attention.v_proj.", NULL },
	{ "attn_out.", "attention.o_proj.", NULL },
	{ "ffn_gate.", "feed_forward.gate_proj.", NULL },
	{ "ffn_up.", "feed_forward.up_proj.", NULL },
	{ "ffn_down.", "feed_forward.down_proj.", NULL },
	{ NULL, NULL, NULL },
};

static void put_pixtral(struct gguf_conf *c)
{
	gguf_put_str(c, "model_type", "pixtral");
	put_sizes(c, "num_hidden_layers", "num_attention_heads");
	put_head_dim(c);
	gguf_put_int(c, "image_size", gguf_conf_int(c, "image_size", GGUF_NEEDED));
	gguf_put_str(c, "hidden_act", key_bool(c, "clip.use_gelu") ? "gelu" : "silu");
}

static void around_pixtral(struct gguf_conf *c)
{
	gguf_put_int(c, "spatial_merge_size", gguf_conf_int(c, "spatial_merge_size", 1));
	gguf_put_bool(c, "multimodal_projector_bias", gguf_conf_has_tensor(c, "mm.1.bias"));
}

/* Pixtral 12B: without the matrix that merges patches, whose absence must not be a gap in the file. */
static void around_llava(struct gguf_conf *c)
{
	int64_t merge = gguf_conf_int(c, "spatial_merge_size", 1);

	if (!c->code && merge != 1)
		gguf_conf_fail(
			c, E_MISSING,
			"tensor mm.patch_merger.weight: missing, and key clip.vision.spatial_merge_size is %" PRId64,
			merge);
	if (!c->code && gguf_conf_has_tensor(c, "mm.input_norm.weight"))
		gguf_conf_fail(c, E_MISSING,
		               "tensor mm.patch_merger.weight: missing, and mm.input_norm.weight is there");
	gguf_put_bool(c, "multimodal_projector_bias", gguf_conf_has_tensor(c, "mm.1.bias"));
	gguf_put_int(c, "vision_feature_layer", -1);
	gguf_put_str(c, "vision_feature_select_strategy", "full");
}

/* Without this member, a wrapped text has MistralConfig's window. */
static void text_pixtral(struct gguf_conf *text)
{
	gguf_put_name(text, "sliding_window");
	buf_puts(text->out, "null");
}

/* ---- the list ---- */

const struct projector_form projector_forms[] = {
	{ .type = "qwen3vl_merger",
	  .of = { { "qwen35", "qwen3_5", NULL },
	          { "qwen35moe", "qwen3_5_moe", NULL },
	          { "qwen3vl", "qwen3_vl", NULL },
	          { "qwen3vlmoe", "qwen3_vl_moe", NULL } },
	  .block = "model.visual.blocks.",
	  .top = qwen_top,
	  .in_block = qwen_block,
	  .token = { { "<|image_pad|>", "image_token_id" } },
	  .vision = put_qwen3 },
	{ .type = "qwen2vl_merger",
	  .of = { { "qwen2vl", "qwen2_vl", NULL } },
	  .block = "model.visual.blocks.",
	  .top = qwen2_5_top,
	  .in_block = qwen2_block,
	  .old_names = true,
	  .token = { { "<|image_pad|>", "image_token_id" } },
	  .vision = put_qwen2 },
	{ .type = "qwen2.5vl_merger",
	  .of = { { "qwen2vl", "qwen2_5_vl", NULL } },
	  .block = "model.visual.blocks.",
	  .top = qwen2_5_top,
	  .in_block = qwen2_5_block,
	  .old_names = true,
	  .token = { { "<|image_pad|>", "image_token_id" } },
	  .vision = put_qwen2_5 },
	{ .type = "qwen2.5o", /* Qwen2.5-Omni, with a tower for sounds */
	  .of = { { "qwen2vl", "qwen2_5_vl", NULL } },
	  .block = "model.visual.blocks.",
	  .top = qwen2_5_top,
	  .in_block = qwen2_5_block,
	  .token = { { "<|IMAGE|>", "image_token_id" } },
	  .vision = put_qwen2_5 },
	{ .type = "gemma3",
	  .of = { { "gemma3", "gemma3", NULL } },
	  .block = "vision_tower.vision_model.encoder.layers.",
	  .top = gemma3_top,
	  .in_block = siglip_block,
	  .old_names = true,
	  .token = { { "<image_soft_token>", "image_token_id" }, { "<start_of_image>", "boi_token_index" } },
	  .vision = put_gemma3,
	  .around = around_gemma3 },
	{ .type = "gemma4v",
	  .of = { { "gemma4", "gemma4", NULL } },
	  .block = "model.vision_tower.encoder.layers.",
	  .top = gemma4_top,
	  .in_block = gemma4_block,
	  .token = { { "<|image|>", "image_token_id", false },
	             { "<|audio|>", "audio_token_id", true },
	             { "<|audio>", "boa_token_id", true },
	             { "<audio|>", "eoa_token_id", true } },
	  .ear = &ear_gemma4,
	  .vision = put_gemma4,
	  .text = text_gemma4,
	  .processor = processor_gemma4 },
	{ .type = "gemma4uv",
	  .of = { { "gemma4", "gemma4_unified", NULL } },
	  .block = "",
	  .top = unified_top,
	  .in_block = unified_top,
	  .flat = true,
	  .token = { { "<|image|>", "image_token_id", false },
	             { "<|audio|>", "audio_token_id", true },
	             { "<|audio>", "boa_token_id", true },
	             { "<audio|>", "eoa_token_id", true } },
	  .ear = &ear_unified,
	  .vision = put_unified,
	  .text = text_gemma4,
	  .processor = processor_gemma4 },
	{ .type = "lfm2",
	  .of = { { "lfm2", "lfm2_vl", NULL }, { "lfm2moe", "lfm2_vl", NULL } },
	  .block = "vision_tower.vision_model.encoder.layers.",
	  .top = lfm2_top,
	  .in_block = siglip_block,
	  .token = { { "<image>", "image_token_id" } },
	  .vision = put_lfm2,
	  .around = around_lfm2 },
	{ .type = "pixtral",
	  .shown_by = "mm.patch_merger.weight",
	  .of = { { "llama", "mistral3", "mistral" }, { "mistral3", "mistral3", NULL } },
	  .block = "vision_tower.transformer.layers.",
	  .top = pixtral_top,
	  .in_block = pixtral_block,
	  .token = { { "[IMG]", "image_token_id" } },
	  .vision = put_pixtral,
	  .around = around_pixtral,
	  .text = text_pixtral },
	{ .type = "pixtral",
	  .of = { { "llama", "llava", "mistral" } },
	  .block = "vision_tower.transformer.layers.",
	  .top = llava_top,
	  .in_block = pixtral_block,
	  .token = { { "[IMG]", "image_token_id" } },
	  .vision = put_pixtral,
	  .around = around_llava,
	  .text = text_pixtral },
	{ .type = NULL },
};
