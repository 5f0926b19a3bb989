/* from_tower.c - see from_tower.h.
 *
 * Names come from the tables that projector files are read with (gguf_projector_forms.c), read the other way.  What a converter
 * changes:
 *
 *   Qwen2's q, k, v   one matrix becomes three
 *   deepstack         tensors are numbered by the block behind which they read, not counted
 *   patch kernels     of two frames become two, [rows][3][p][p] each; of one, it and one of zeros, since others want two
 *   Gemma 3's norm    w becomes 1 + w
 *   Pixtral's q, k    rows j, d / 2 + j of a head become 2 j, 2 j + 1
 *   Pixtral           the text's embedding of the mark between rows of a picture is in the file
 *   Gemma 4           colours of a patch come in planes; of the 12B places come by axis
 *   Gemma 4's ear     scales of queries are a softplus of what the folder has */
#include "export/from_tower.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/gguf/gguf_projector.h"

enum { NAME_BYTES = 160 };

struct tower_making {
	struct store *st;
	struct gguf_source *s;
	const struct gguf_source *text;
	const struct tower_facts *f;
	const struct projector_form *form;
	bool pixtral, gemma3, gemma4;
	const struct projector_ear *ear; /* NULL: none is written */
	bool apart;                      /* q, k and v become three */
	const struct json *deep;         /* numbers of blocks; NULL: none */
	struct pairs p;
	struct err *err;
	int code; /* the first failure; later steps do nothing */
};

static void fail(struct tower_making *m, int code, const char *what, const char *says)
{
	if (!m->code)
		m->code = err_set(m->err, code, "%s: %s: %s", m->st->dir, what, says);
}

/* ---- names ---- */

static const char *behind(const char *s, const char *prefix)
{
	size_t n = strlen(prefix);

	return strncmp(s, prefix, n) ? NULL : s + n;
}

/* A tower's tensor as the tables call it; false: it is of the text. */
static bool table_name(const struct tower_making *m, const char *name, char out[NAME_BYTES])
{
	static const char *const qwen[][2] = {
		{ "model.visual.", "model.visual." }, { "model.language_model.visual.", "model.visual." },
		{ "visual.", "model.visual." },       { "model.vision_tower.", "model.visual." },
		{ "vision_tower.", "model.visual." }, { NULL, NULL }
	};
	static const char *const pixtral[][2] = { { "vision_tower.vision_model.", "vision_tower." },
		                                  { "model.vision_tower.", "vision_tower." },
		                                  { "vision_tower.", "vision_tower." },
		                                  { "model.multi_modal_projector.", "multi_modal_projector." },
		                                  { "multi_modal_projector.", "multi_modal_projector." },
		                                  { NULL, NULL } };
	static const char *const siglip[][2] = { { "vision_tower.", "vision_tower." },
		                                 { "model.vision_tower.", "vision_tower." },
		                                 { "model.multi_modal_projector.", "multi_modal_projector." },
		                                 { "multi_modal_projector.", "multi_modal_projector." },
		                                 { NULL, NULL } };
	static const char *const gemma4[][2] = { { "model.vision_tower.", "model.vision_tower." },
		                                 { "vision_tower.", "model.vision_tower." },
		                                 { "model.vision_embedder.", "model.vision_embedder." },
		                                 { "vision_embedder.", "model.vision_embedder." },
		                                 { "model.embed_vision.", "model.embed_vision." },
		                                 { "embed_vision.", "model.embed_vision." },
		                                 { "model.audio_tower.", "model.audio_tower." },
		                                 { "audio_tower.", "model.audio_tower." },
		                                 { "model.embed_audio.", "model.embed_audio." },
		                                 { "embed_audio.", "model.embed_audio." },
		                                 { NULL, NULL } };
	const char *const(*at)[2] = m->pixtral ? pixtral : m->gemma3 ? siglip : m->gemma4 ? gemma4 : qwen, *rest;

	for (; (*at)[0]; at++)
		if ((rest = behind(name, (*at)[0]))) {
			snprintf(out, NAME_BYTES, "%s%s", (*at)[1], rest);
			return true;
		}
	return false;
}

/* A line of the table whose tensor is called hf, and its name in the file behind `prefix`. */
static bool file_name(const struct projector_name *table, const char *hf, const char *prefix, char out[NAME_BYTES])
{
	for (; table->gguf; table++) {
		size_t n = strlen(table->gguf);
		bool begins = table->gguf[n - 1] == '.';

		if (!table->hf || (begins ? !behind(hf, table->hf) : strcmp(hf, table->hf) != 0))
			continue;
		snprintf(out, NAME_BYTES, "%s%s%s", prefix, table->gguf, begins ? behind(hf, table->hf) : "");
		return true;
	}
	return false;
}

/* "K.norm.weight" of the K-th of the blocks that the config lists. */
static bool deep_name(const struct tower_making *m, const char *hf, char out[NAME_BYTES])
{
	static const struct projector_name part[] = { { "norm.", "norm.", NULL },
		                                      { "fc1.", "linear_fc1.", NULL },
		                                      { "fc2.", "linear_fc2.", NULL },
		                                      { NULL, NULL, NULL } };
	char prefix[40];
	int64_t block;
	int which, at = 0;

	if (sscanf(hf, "%5d.%n", &which, &at) != 1 || !at || which < 0 ||
	    json_to_int(json_at(m->deep, (size_t)which), &block) || block < 0 || block >= m->f->depth)
		return false;
	snprintf(prefix, sizeof prefix, "v.deepstack.%d.", (int)block);
	return file_name(part, hf + at, prefix, out);
}

/* The name in a block of `blocks`, whose tensors are called at.N.* there and prefix.N.* in the file. */
static bool block_name(const struct projector_name *table, const char *hf, const char *prefix, int blocks,
                       char out[NAME_BYTES])
{
	char full[32];
	int block, at = 0;

	if (sscanf(hf, "%5d.%n", &block, &at) != 1 || !at || block < 0 || block >= blocks)
		return false;
	snprintf(full, sizeof full, "%s.blk.%d.", prefix, block);
	return file_name(table, hf + at, full, out);
}

static bool heard_name(const struct tower_making *m, const char *hf, char out[NAME_BYTES])
{
	const char *rest = m->ear && m->ear->block ? behind(hf, m->ear->block) : NULL;

	if (rest)
		return block_name(m->ear->in_block, rest, "a", m->f->heard_blocks, out);
	return m->ear && file_name(m->ear->top, hf, "", out);
}

static bool projector_name_of(const struct tower_making *m, const char *hf, char out[NAME_BYTES])
{
	const char *rest = m->form->flat ? NULL : behind(hf, m->form->block),
		   *deep = behind(hf, "model.visual.deepstack_merger_list.");

	if (deep)
		return deep_name(m, deep, out);
	if (rest)
		return block_name(m->form->in_block, rest, "v", m->f->depth, out);
	return file_name(m->form->top, hf, "", out) || heard_name(m, hf, out);
}

/* ---- tensors ---- */

static struct source_tensor *add(struct tower_making *m, const char *name, int n_dim, const int64_t *ne)
{
	struct source_tensor *to = &m->s->t[m->s->n++];

	*to = (struct source_tensor){ .t = { .name = arena_strndup(&m->s->g.arena, name, strlen(name)),
		                             .type = gguf_type_named("F32"),
		                             .n_dim = n_dim,
		                             .ne = { 1, 1, 1, 1 },
		                             .count = 1 } };
	for (int d = 0; d < n_dim; d++) {
		to->t.ne[d] = ne[d];
		to->t.count *= ne[d];
	}
	return to;
}

static void put_floats(struct source_tensor *to, const float *v)
{
	to->t.data = (const uint8_t *)v;
	to->t.bytes = (size_t)to->t.count * sizeof *v;
}

/* All elements of a tensor whose type is one of numbers; NULL after a failure. */
static const float *floats_of(struct tower_making *m, struct tensor *t)
{
	float plus = m->gemma3 && strstr(t->name, "mm_soft_emb_norm.") ? 1 : 0;
	const float *v = NULL;

	if (!m->code)
		m->code = store_floats(m->st, &m->s->g.arena, t->name, t->count, plus, &v, m->err);
	return m->code ? NULL : v;
}

/* [rows][3][frames][p][p], or with colours last: a kernel for each frame. */
static void add_kernel(struct tower_making *m, struct tensor *t, const char *name)
{
	int p = m->f->patch, frames = 1, rows = m->f->hidden;
	bool last = t->n_dim >= 4 && t->dim[t->n_dim - 1] == 3;
	const int64_t ne[] = { p, p, 3, rows };
	const float *from = floats_of(m, t);
	char second[NAME_BYTES];
	size_t plane = (size_t)p * (size_t)p, all = plane * 3 * (size_t)rows;

	if (t->n_dim == 5)
		frames = (int)t->dim[last ? 1 : 2];
	if (!m->code && (frames < 1 || frames > 2 || t->count != (int64_t)all * frames))
		fail(m, E_UNSUPPORTED, t->name, "a kernel of one or two frames is written");
	for (int f = 0; f < frames && !m->code; f++) {
		float *to = arena_alloc(&m->s->g.arena, size_mul(all, sizeof *to));

		for (int r = 0; r < rows; r++)
			for (int c = 0; c < 3; c++)
				for (size_t i = 0; i < plane; i++)
					to[((size_t)r * 3 + (size_t)c) * plane + i] =
						last ? from[(((size_t)r * (size_t)frames + (size_t)f) * plane + i) * 3 +
					                    (size_t)c] :
						       from[(((size_t)r * 3 + (size_t)c) * (size_t)frames + (size_t)f) *
					                            plane +
					                    i];
		snprintf(second, sizeof second, "%.150s.1", name);
		put_floats(add(m, f ? second : name, 4, ne), to);
	}
	if (m->code || m->pixtral || m->gemma3 || frames == 2)
		return;
	snprintf(second, sizeof second, "%.150s.1", name);
	put_floats(add(m, second, 4, ne), arena_zalloc(&m->s->g.arena, size_mul(all, sizeof(float))));
	pair_u32(&m->p, ".temporal_patch_size", 1);
}

/* Rows of each head in pairs. */
static const int32_t *paired(struct tower_making *m, int64_t rows, const char *name)
{
	int64_t d = rows / m->f->heads;
	int32_t *row;

	if (rows % m->f->heads || d % 2 || rows > INT32_MAX) {
		fail(m, E_FORMAT, name, "its rows are not pairs of heads");
		return NULL;
	}
	row = arena_alloc(&m->s->g.arena, size_mul((size_t)rows, sizeof *row));
	for (int64_t r = 0; r < rows; r++)
		row[r] = (int32_t)(r / d * d + r % 2 * (d / 2) + r % d / 2);
	return row;
}

static void add_matrix(struct tower_making *m, struct tensor *t, const char *name)
{
	const struct gguf_type *type = gguf_type_named(tensor_type_name(t));
	struct source_tensor *to;

	if (t->n_dim != 2)
		fail(m, E_FORMAT, t->name, "two dimensions are wanted");
	if (!type || t->format || !type->fmt || type->block != 1)
		fail(m, E_UNSUPPORTED, t->name, "projector files are made of BF16, F16 and F32");
	if (m->code || (m->code = store_data(m->st, t, m->err)))
		return;
	to = add(m, name, 2, (const int64_t[]){ t->dim[1], t->dim[0] });
	to->t.type = type;
	to->t.data = t->data;
	to->t.bytes = t->bytes;
	to->known_as = t->name;
	if (!m->s->kept)
		m->s->kept = type->name;
	if (m->pixtral && (strstr(name, ".attn_q.") || strstr(name, ".attn_k.")))
		to->row = paired(m, t->dim[0], t->name);
}

/* One of n equal runs of rows of a tensor that was just added becomes a tensor of its own, which is called `to` there. */
static void add_run(struct tower_making *m, const struct source_tensor *all, int i, int n, const char *name)
{
	const char *at = strstr(name, "attn_qkv.");
	struct source_tensor *to = &m->s->t[m->s->n++];
	int last = all->t.n_dim - 1;

	*to = *all;
	to->t.name = arena_printf(&m->s->g.arena, "%.*sattn_%c.%s", (int)(at - name), name, "qkv"[i],
	                          at + strlen("attn_qkv."));
	to->t.ne[last] /= n;
	to->t.count /= n;
	to->t.bytes /= (size_t)n;
	to->t.data += (size_t)i * to->t.bytes;
}

/* The tensor that was added last becomes three. */
static void split(struct tower_making *m, const char *name)
{
	struct source_tensor all = m->s->t[--m->s->n];

	if (all.t.ne[all.t.n_dim - 1] % 3)
		fail(m, E_FORMAT, name, "its rows are not those of q, k and v");
	for (int i = 0; i < 3 && !m->code; i++)
		add_run(m, &all, i, 3, name);
}

/* Rows of n points of 3 colours, by the point in the folder, as 3 planes. */
static float *planes_of(struct tower_making *m, struct tensor *t)
{
	int64_t cols = t->n_dim ? t->dim[t->n_dim - 1] : 1, n = cols / 3;
	const float *from = floats_of(m, t);
	float *to = arena_alloc(&m->s->g.arena, size_mul((size_t)t->count, sizeof *to));

	if (cols % 3)
		fail(m, E_FORMAT, t->name, "its columns are not those of 3 colours");
	for (int64_t i = 0; i < t->count && !m->code; i++) {
		int64_t at = i % cols;

		to[i - at + at % 3 * n + at / 3] = from[i];
	}
	return to;
}

/* [places][2][width] by the axis. */
static float *axes_of(struct tower_making *m, struct tensor *t)
{
	const float *from = floats_of(m, t);
	float *to = arena_alloc(&m->s->g.arena, size_mul((size_t)t->count, sizeof *to));
	int64_t width = t->dim[2], places = t->dim[0];

	for (int64_t i = 0; i < t->count && !m->code; i++) {
		int64_t row = i / width;

		to[(row % 2 * places + row / 2) * width + i % width] = from[i];
	}
	return to;
}

static float *softplus_of(struct tower_making *m, struct tensor *t)
{
	const float *from = floats_of(m, t);
	float *to = arena_alloc(&m->s->g.arena, size_mul((size_t)t->count, sizeof *to));

	for (int64_t i = 0; i < t->count && !m->code; i++)
		to[i] = (float)log1p(exp((double)from[i]));
	return to;
}

/* A kernel over mel bands, [out][in][3][3], or with its channels last. */
static void add_bands(struct tower_making *m, struct tensor *t, const char *name)
{
	bool last = t->n_dim == 4 && t->dim[1] == t->dim[2] && t->dim[3] != t->dim[2];
	const int64_t ne[] = { 3, 3, t->count / (9 * t->dim[0]), t->dim[0] };
	const float *from = floats_of(m, t);
	float *to = arena_alloc(&m->s->g.arena, size_mul((size_t)t->count, sizeof *to));

	if (t->n_dim != 4 || ne[2] < 1 || t->count != 9 * ne[2] * ne[3])
		fail(m, E_FORMAT, t->name, "a kernel of 3 x 3 points is wanted");
	for (int64_t i = 0; i < t->count && !m->code; i++) {
		int64_t point = i % 9, in = i / 9 % ne[2], out = i / 9 / ne[2];

		to[i] = from[last ? (out * 9 + point) * ne[2] + in : i];
	}
	if (!m->code)
		put_floats(add(m, name, 4, ne), to);
}

/* Adds t if files of Gemma 4 have it in another layout than its folders.  False: it is added as it is. */
static bool add_gemma4(struct tower_making *m, struct tensor *t, const char *name)
{
	const int64_t p = m->f->patch, patch[] = { p, p, 3, t->dim[0] },
		      places[] = { t->dim[2], m->form->flat ? t->dim[0] : t->dim[1], 2 };
	const int64_t taps[] = { t->dim[0] ? t->count / t->dim[0] : 0, t->dim[0] }, one = 1;

	if (behind(name, "a.conv1d.") && t->n_dim > 1)
		add_bands(m, t, name);
	else if (!strcmp(name, "v.patch_embd.weight") && t->n_dim == 2)
		put_floats(m->form->flat ? add(m, name, 2, (const int64_t[]){ t->dim[1], t->dim[0] }) :
		                           add(m, name, 4, patch),
		           planes_of(m, t));
	else if (behind(name, "v.patch_norm.1."))
		put_floats(add(m, name, 1, t->dim), planes_of(m, t));
	else if (!strcmp(name, "v.position_embd.weight") && t->n_dim == 3)
		put_floats(add(m, name, 3, places), m->form->flat ? axes_of(m, t) : floats_of(m, t));
	else if (strstr(name, ".per_dim_scale."))
		put_floats(add(m, name, 1, t->dim), softplus_of(m, t));
	else if (strstr(name, ".conv_dw."))
		put_floats(add(m, name, 2, taps), floats_of(m, t));
	else if (t->n_dim == 0)
		put_floats(add(m, name, 1, &one), floats_of(m, t));
	else
		return false;
	return true;
}

static void add_tensor(struct tower_making *m, struct tensor *t)
{
	char hf[NAME_BYTES], name[NAME_BYTES];

	if (!table_name(m, t->name, hf))
		return;
	if (!projector_name_of(m, hf, name))
		fail(m, E_UNSUPPORTED, t->name, "projector files have no name for it");
	else if (m->gemma4 && add_gemma4(m, t, name))
		;
	else if (!strcmp(name, "v.patch_embd.weight"))
		add_kernel(m, t, name);
	else if (t->n_dim == 1)
		put_floats(add(m, name, 1, t->dim), floats_of(m, t));
	else if (behind(name, "v.position_embd.") && t->n_dim == 2)
		put_floats(add(m, name, 2, (const int64_t[]){ t->dim[1], t->dim[0] }), floats_of(m, t));
	else
		add_matrix(m, t, name);
	if (!m->code && m->apart && strstr(name, ".attn_qkv."))
		split(m, name);
}

/* The id of a token by its text, of the tokens that the text's file has; -1: none. */
static int64_t token_id(const struct gguf_source *text, const char *token)
{
	const struct gguf_value *v = gguf_find(&text->g, "tokenizer.ggml.tokens");
	const uint8_t *at;

	at = v ? v->p : NULL;
	for (uint64_t i = 0; v && i < v->n; i++) {
		struct gguf_string s = gguf_next(&at);

		if (s.n == strlen(token) && !memcmp(s.p, token, s.n))
			return (int64_t)i;
	}
	return -1;
}

/* The text's embedding of the mark between rows of an image. */
static void add_break(struct tower_making *m)
{
	int64_t id = token_id(m->text, "[IMG_BREAK]"), width = m->f->out;
	const struct source_tensor *e = NULL;
	struct weight w;
	float *v;

	for (size_t i = 0; i < m->text->n; i++)
		if (!strcmp(m->text->t[i].t.name, "token_embd.weight"))
			e = &m->text->t[i];
	if (id < 0 || !e || id >= e->t.ne[1] || e->t.ne[0] != width)
		fail(m, E_MISSING, "tokenizer", "no token [IMG_BREAK] with a row of the embedding, which the file has");
	if (m->code || (m->code = weight_gguf(&w, e->t.name, e->t.type, (int)e->t.ne[1], (int)width, e->t.data,
	                                      e->t.bytes, m->err)))
		return;
	v = arena_alloc(&m->s->g.arena, size_mul((size_t)width, sizeof *v));
	w.fmt->decode(v, &w, (int)id);
	put_floats(add(m, "v.token_embd.img_break", 1, &width), v);
}

/* ---- metadata ---- */

static int64_t edge_of(const struct tower_making *m, const char *name, int d)
{
	for (size_t i = 0; i < m->s->n; i++)
		if (!strcmp(m->s->t[i].t.name, name))
			return m->s->t[i].t.ne[d];
	return 0;
}

/* The whole blocks of Qwen2.5-VL: every n-th. */
static void put_windows(struct tower_making *m)
{
	const struct json *vision = json_get(m->st->config, "vision_config"),
			  *list = json_get(vision, "fullatt_block_indexes");
	int64_t every = 0, window = 112, at;

	if (json_to_int(json_at(list, 0), &every) || ++every < 1 || json_len(list) != (size_t)(m->f->depth / every))
		fail(m, E_UNSUPPORTED, "fullatt_block_indexes", "projector files have every n-th block");
	for (size_t i = 0; i < json_len(list) && !m->code; i++)
		if (json_to_int(json_at(list, i), &at) || at != (int64_t)(i + 1) * every - 1)
			fail(m, E_UNSUPPORTED, "fullatt_block_indexes", "projector files have every n-th block");
	if (m->code)
		return;
	pair_u32(&m->p, ".n_wa_pattern", (uint32_t)every);
	if (!json_to_int(json_get(vision, "window_size"), &window) && window != 112)
		pair_u32(&m->p, ".window_size", (uint32_t)window);
}

static void put_qwen2(struct tower_making *m, bool windows)
{
	pair_u32(&m->p, ".image_size", 560);
	pair_f32(&m->p, ".attention.layer_norm_epsilon", 1e-6);
	if (!windows)
		return;
	pair_bool(&m->p, "clip.use_silu", true);
	put_windows(m);
}

static void put_qwen3(struct tower_making *m)
{
	uint8_t *deep = arena_zalloc(&m->s->g.arena, (size_t)m->f->depth);
	int64_t at;

	for (size_t i = 0; i < json_len(m->deep); i++)
		if (!json_to_int(json_at(m->deep, i), &at) && at >= 0 && at < m->f->depth)
			deep[at] = 1;
	pair_bool(&m->p, "clip.use_gelu", true);
	pair_u32(&m->p, ".image_size",
	         (uint32_t)(sqrt((double)edge_of(m, "v.position_embd.weight", 1)) + 0.5) * (uint32_t)m->f->patch);
	pair_f32(&m->p, ".attention.layer_norm_epsilon", 1e-6);
	pair_list(&m->p, ".is_deepstack_layers", GGUF_BOOL, (uint64_t)m->f->depth, deep, (size_t)m->f->depth);
}

static void put_gemma3(struct tower_making *m)
{
	const struct json *vision = json_get(m->st->config, "vision_config");
	double eps = 1e-6;

	json_to_double(json_get(vision, "layer_norm_eps"), &eps);
	pair_bool(&m->p, "clip.use_gelu", true);
	pair_u32(&m->p, ".image_size", (uint32_t)m->f->edge);
	pair_u32(&m->p, ".projector.scale_factor", (uint32_t)m->f->merge);
	pair_f32(&m->p, ".attention.layer_norm_epsilon", eps);
}

static void put_pixtral(struct tower_making *m)
{
	const char *act = json_str(json_get(json_get(m->st->config, "vision_config"), "hidden_act"), NULL);

	pair_bool(&m->p, act && !strcmp(act, "silu") ? "clip.use_silu" : "clip.use_gelu", true);
	pair_u32(&m->p, ".image_size", (uint32_t)m->f->edge);
	pair_f32(&m->p, ".attention.layer_norm_epsilon", 1e-5);
}

/* A number of the config that files have no key for, so that their readers take this one. */
static void take_only(struct tower_making *m, const char *config, const char *member, double only, double dflt)
{
	double v = dflt;
	char says[80];

	json_to_double(json_get(json_get(m->st->config, config), member), &v);
	snprintf(says, sizeof says, "%g, and projector files have no key for others than %g", v, only);
	if (v < only || v > only)
		fail(m, E_UNSUPPORTED, member, says);
}

/* Whether products are bounded, which files show by bounds of the first. */
static void check_bounds(struct tower_making *m, const char *config, const char *bound, bool dflt)
{
	bool want = dflt;

	json_to_bool(json_get(json_get(m->st->config, config), "use_clipped_linears"), &want);
	if (want != (edge_of(m, bound, 0) > 0))
		fail(m, E_FORMAT, "use_clipped_linears", "its tensors say the contrary");
}

static void put_eps(struct tower_making *m, const char *config, const char *key)
{
	double eps = 1e-6;

	json_to_double(json_get(json_get(m->st->config, config), "rms_norm_eps"), &eps);
	pair_f32(&m->p, key, eps);
}

static void put_gemma4(struct tower_making *m)
{
	const struct tower_facts *f = m->f;
	const struct json *vision = json_get(m->st->config, "vision_config");
	int64_t pool = 3, layered = 0, patch;
	bool flat = m->form->flat;

	json_to_int(json_get(vision, "pooling_kernel_size"), &pool);
	json_to_int(json_get(m->st->text, "hidden_size_per_layer_input"), &layered);
	patch = flat && pool > 0 ? f->patch / pool : f->patch;
	if (pool < 1 || (flat && patch * pool != f->patch))
		fail(m, E_UNSUPPORTED, "model_patch_size", "is not a multiple of pooling_kernel_size");
	if (f->both_ways != !layered)
		fail(m, E_UNSUPPORTED, "use_bidirectional_attention",
		     "projector files have no key for it: rows of an image see each other where layers have no embeddings");
	pair_u32(&m->p, ".patch_size", (uint32_t)patch);
	pair_u32(&m->p, ".projector.scale_factor", (uint32_t)pool);
	pair_u32(&m->p, ".image_size", 224);
	put_eps(m, "vision_config", ".attention.layer_norm_epsilon");
	if (f->rows != 280)
		fail(m, E_UNSUPPORTED, "max_soft_tokens", "projector files have no key for others than 280");
	if (!flat)
		check_bounds(m, "vision_config", "v.blk.0.attn_q.input_min", false);
}

static void put_heard(struct tower_making *m)
{
	const struct tower_facts *f = m->f;
	int64_t dim = edge_of(m, "a.blk.0.per_dim_scale.weight", 0);

	pair_bool(&m->p, "clip.has_audio_encoder", true);
	pair_text(&m->p, "clip.audio.projector_type", m->ear->type, strlen(m->ear->type));
	pair_u32(&m->p, "clip.audio.block_count", (uint32_t)f->heard_blocks);
	pair_u32(&m->p, "clip.audio.embedding_length", (uint32_t)f->heard_width);
	pair_u32(&m->p, "clip.audio.feed_forward_length", (uint32_t)edge_of(m, "a.blk.0.ffn_up.weight", 1));
	pair_u32(&m->p, "clip.audio.attention.head_count", dim ? (uint32_t)(f->heard_width / dim) : 0);
	pair_u32(&m->p, "clip.audio.projection_dim", (uint32_t)f->out);
	put_eps(m, "audio_config", "clip.audio.attention.layer_norm_epsilon");
	if (!m->ear->block)
		return;
	pair_u32(&m->p, "clip.audio.num_mel_bins", 128);
	take_only(m, "audio_config", "attention_context_left", 13, 13);
	take_only(m, "audio_config", "attention_logit_cap", 50, 50);
	take_only(m, "audio_config", "residual_weight", 0.5, 0.5);
	check_bounds(m, "audio_config", "a.blk.0.attn_q.input_min", true);
}

/* Members that depend on the family. */
static void put_own(struct tower_making *m)
{
	if (m->pixtral)
		put_pixtral(m);
	else if (m->gemma3)
		put_gemma3(m);
	else if (m->gemma4)
		put_gemma4(m);
	else if (m->apart)
		put_qwen2(m, !strcmp(m->form->type, "qwen2.5vl_merger"));
	else
		put_qwen3(m);
}

static void put_keys(struct tower_making *m)
{
	static const float zeros[3], ones[3] = { 1, 1, 1 }; /* Gemma 4 scales colours in the model */
	const struct tower_facts *f = m->f;
	const char *type = m->gemma4 ? "clip.vision.projector_type" : "clip.projector_type";

	pair_text(&m->p, "general.architecture", "clip", 4);
	pair_text(&m->p, "general.type", "mmproj", 6);
	pair_text(&m->p, "general.name", m->st->name, strlen(m->st->name));
	pair_text(&m->p, type, m->form->type, strlen(m->form->type));
	pair_bool(&m->p, "clip.has_vision_encoder", true);
	pair_u32(&m->p, ".block_count", (uint32_t)f->depth);
	pair_u32(&m->p, ".embedding_length", (uint32_t)f->hidden);
	pair_u32(&m->p, ".feed_forward_length", (uint32_t)edge_of(m, "v.blk.0.ffn_up.weight", 1));
	pair_u32(&m->p, ".attention.head_count", (uint32_t)f->heads);
	pair_u32(&m->p, ".projection_dim", (uint32_t)f->out);
	if (!m->gemma4) /* which counts pixels of what is pooled */
		pair_u32(&m->p, ".patch_size", (uint32_t)f->patch);
	if (!m->gemma3 && !m->gemma4 && (!m->pixtral || f->merge > 1))
		pair_u32(&m->p, ".spatial_merge_size", (uint32_t)f->merge);
	pair_list(&m->p, ".image_mean", GGUF_F32, 3, m->gemma4 ? zeros : f->mean, sizeof f->mean);
	pair_list(&m->p, ".image_std", GGUF_F32, 3, m->gemma4 ? ones : f->std, sizeof f->std);
	if (f->area_max) {
		pair_u32(&m->p, ".image_min_pixels", (uint32_t)f->area_min);
		pair_u32(&m->p, ".image_max_pixels", (uint32_t)f->area_max);
	}
	put_own(m);
	if (m->ear)
		put_heard(m);
}

/* ---- all of it ---- */

/* The form whose models have this type, of those that are written. */
static const struct projector_form *form_of(const char *type)
{
	static const char *const written[] = { "qwen2_vl", "qwen2_5_vl",  "qwen3_vl",      "qwen3_vl_moe",
		                               "qwen3_5",  "qwen3_5_moe", "mistral3",      "llava",
		                               "gemma3",   "gemma4",      "gemma4_unified" };
	bool known = false;

	for (size_t i = 0; i < sizeof written / sizeof *written; i++)
		known = known || !strcmp(type, written[i]);
	for (const struct projector_form *f = projector_forms; f->type && known; f++)
		for (int i = 0; i < PROJECTOR_ARCHS && f->of[i].arch; i++)
			if (!strcmp(f->of[i].whole, type))
				return f;
	return NULL;
}

int tower_source(struct gguf_source *s, struct store *st, const struct gguf_source *text, const struct tower_facts *f,
                 struct err *err)
{
	const char *type = json_str(json_get(st->config, "model_type"), NULL);
	struct tower_making m = { .st = st, .s = s, .text = text, .f = f, .err = err };

	*s = (struct gguf_source){ .g.path = st->dir, .made = true };
	arena_init(&s->g.arena);
	m.p = (struct pairs){ .g = &s->g, .arch = "clip.vision" };
	m.form = form_of(type ? type : "");
	if (!m.form)
		return err_set(
			err, E_UNSUPPORTED,
			"%s: model_type %.40s: projector files are written of Qwen2-VL to Qwen3.5, mistral3, llava, gemma3, gemma4, "
			"gemma4_unified",
			st->config_path, type ? type : "");
	m.pixtral = !strcmp(m.form->type, "pixtral");
	m.gemma3 = !strcmp(m.form->type, "gemma3");
	m.gemma4 = !strncmp(m.form->type, "gemma4", 6);
	m.ear = f->hears ? m.form->ear : NULL;
	m.apart = !strncmp(m.form->type, "qwen2", 5);
	m.deep = json_get(json_get(st->config, "vision_config"), "deepstack_visual_indexes");
	s->t = xcalloc(3 * st->n + 2, sizeof *s->t);
	for (size_t i = 0; i < st->n && !m.code; i++)
		add_tensor(&m, st->v[i]);
	if (m.pixtral && !m.code)
		add_break(&m);
	if (!m.code)
		put_keys(&m);
	pairs_sort(&m.p);
	return m.code;
}
