/* Projector files beside GGUF models: which is found, what of its metadata and tensors becomes of Hugging Face's, and what is
 * refused with what words.  Whole models are compared by projector_of_folder.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/log.h"
#include "folder.h"
#include "gguf_made.h"
#include "store/store.h"

enum { WIDTH = 4, INNER = 6, PATCH = 2 };

static void assert_says(const struct err *err, const char *part)
{
	if (!strstr(err->msg, part))
		fail_msg("\"%s\" does not say \"%s\"", err->msg, part);
}

/* ---- files ---- */

static void put_file(const char *dir, const char *name, struct gguf_made *m)
{
	struct buf b;

	buf_init(&b);
	gguf_made_file(m, &b);
	folder_put(dir, name, b.p, b.n);
	buf_fini(&b);
	gguf_made_fini(m);
}

/* Elements are first, first + 1, ... */
static void tensor(struct gguf_made *m, const char *name, const int64_t *ne, int first)
{
	float f[512];
	int64_t n = 1;

	for (int i = 0; ne[i]; i++)
		n *= ne[i];
	assert_true(n <= 512);
	for (int64_t i = 0; i < n; i++)
		f[i] = (float)(first + i);
	gguf_made_tensor(m, name, 0, ne, f, (size_t)n * sizeof *f);
}

static void put_text(const char *dir, const char *arch, bool marked)
{
	const char *const tokens[] = { "a", marked ? "<|image_pad|>" : "b", "[IMG]" };
	static const char *const keys[] = { "block_count", "context_length", "feed_forward_length",
		                            "attention.head_count" };
	static const uint32_t sections[] = { 1, 1, 0, 0 };
	struct gguf_made m;
	char key[80];

	gguf_made_init(&m);
	gguf_made_str(&m, "general.architecture", arch);
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		snprintf(key, sizeof key, "%s.%s", arch, keys[i]);
		gguf_made_u32(&m, key, 1);
	}
	snprintf(key, sizeof key, "%s.embedding_length", arch);
	gguf_made_u32(&m, key, WIDTH);
	snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
	gguf_made_f32(&m, key, 1e-6f);
	snprintf(key, sizeof key, "%s.rope.dimension_sections", arch);
	gguf_made_u32s(&m, key, sections, 4);
	gguf_made_strs(&m, "tokenizer.ggml.tokens", tokens, 3);
	tensor(&m, "token_embd.weight", (const int64_t[]){ WIDTH, 3, 0 }, 0);
	put_file(dir, "model.gguf", &m);
}

struct made {
	const char *arch, *type;
	uint32_t out, every;
	bool frame, wide_frame, blank_frame, apart, no_k, wide_k;
	int blocks, frames; /* frames 0: the key is missing */
};
static const struct made good = {
	.arch = "clip", .type = "qwen2.5vl_merger", .out = WIDTH, .every = 1, .frame = true, .blocks = 1
};

static struct gguf_made made(const struct made *w)
{
	static const int64_t frame[] = { PATCH, PATCH, 3, WIDTH, 0 }, wide[] = { PATCH, PATCH, 3, 2 * WIDTH, 0 },
			     square[] = { WIDTH, WIDTH, 0 }, flat[] = { WIDTH, 1, 0 };
	static const float zeros[PATCH * PATCH * 3 * WIDTH];
	struct gguf_made m;

	gguf_made_init(&m);
	gguf_made_str(&m, "general.architecture", w->arch);
	gguf_made_str(&m, "clip.projector_type", w->type);
	gguf_made_u32(&m, "clip.vision.projection_dim", w->out);
	gguf_made_u32(&m, "clip.vision.block_count", (uint32_t)w->blocks);
	gguf_made_u32(&m, "clip.vision.embedding_length", WIDTH);
	gguf_made_u32(&m, "clip.vision.feed_forward_length", INNER);
	gguf_made_u32(&m, "clip.vision.attention.head_count", 1);
	gguf_made_u32(&m, "clip.vision.patch_size", PATCH);
	if (w->every)
		gguf_made_u32(&m, "clip.vision.n_wa_pattern", w->every);
	gguf_made_u32(&m, "clip.vision.image_max_pixels", 12345);
	tensor(&m, "v.patch_embd.weight", frame, 0);
	if (w->frames)
		gguf_made_u32(&m, "clip.vision.temporal_patch_size", (uint32_t)w->frames);
	if (w->blank_frame)
		gguf_made_tensor(&m, "v.patch_embd.weight.1", 0, frame, zeros, sizeof zeros);
	else if (w->frame)
		tensor(&m, "v.patch_embd.weight.1", w->wide_frame ? wide : frame, 100);
	tensor(&m, "v.blk.0.attn_q.weight", square, 0);
	if (w->apart)
		tensor(&m, "v.blk.0.ln1.weight", flat, 0);
	if (!w->no_k)
		tensor(&m, "v.blk.0.attn_k.weight", w->wide_k ? flat : square, 16);
	tensor(&m, "v.blk.0.attn_v.weight", square, 32);
	tensor(&m, "v.unknown", flat, 0);
	return m;
}

static void put_made(const char *dir, const char *name, const struct made *w)
{
	struct gguf_made m = made(w);

	put_file(dir, name, &m);
}

/* ---- what becomes of it ---- */

static int64_t whole(const struct json *j, const char *key)
{
	int64_t v = -1;

	json_to_int(json_get(j, key), &v);
	return v;
}

static void check_config(const struct store *st)
{
	const struct json *vision = json_get(st->config, "vision_config");
	struct json *j;
	struct buf b;
	struct err err;

	assert_string_equal(json_str(json_get(st->config, "model_type"), NULL), "qwen2_5_vl");
	assert_string_equal(json_str(json_get(st->text, "model_type"), NULL), "qwen2");
	assert_ptr_equal(st->text, json_get(st->config, "text_config"));
	assert_int_equal(whole(st->config, "image_token_id"), 1);
	assert_int_equal(whole(st->text, "hidden_size"), WIDTH);
	assert_int_equal(json_len(json_get(json_get(st->text, "rope_parameters"), "mrope_section")), 3);
	assert_int_equal(whole(vision, "depth"), 1);
	assert_int_equal(whole(vision, "intermediate_size"), INNER);
	assert_int_equal(json_len(json_get(vision, "fullatt_block_indexes")), 1);
	buf_init(&b);
	assert_int_equal(store_document(st, "preprocessor_config.json", &b, &err), 0);
	assert_non_null(j = json_parse(b.p, b.n, 0, &err));
	assert_int_equal(whole(j, "max_pixels"), 12345);
	json_free(j);
	buf_fini(&b);
}

static float element(struct store *st, const char *name, int64_t i)
{
	struct tensor *t = store_find(st, name);
	struct err err;
	float f;

	assert_non_null(t);
	assert_int_equal(store_data(st, t, &err), 0);
	memcpy(&f, t->data + 4 * i, sizeof f);
	return f;
}

/* The three matrices of attention are one, which lies in the file where it can. */
static void check_tensors(struct store *st, bool apart)
{
	static const char qkv[] = "model.visual.blocks.0.attn.qkv.weight",
			  patch[] = "model.visual.patch_embed.proj.weight";
	const struct tensor *t = store_find(st, qkv), *p = store_find(st, patch);

	assert_non_null(t);
	assert_non_null(p);
	assert_true((t->data == NULL) == apart);
	assert_int_equal(t->dim[0], 3 * WIDTH);
	assert_int_equal(t->dim[1], WIDTH);
	assert_null(store_find(st, "v.blk.0.attn_k.weight"));
	for (int i = 0; i < 3 * WIDTH * WIDTH; i++)
		assert_true(element(st, qkv, i) == (float)i);
	assert_int_equal(p->n_dim, 5);
	assert_int_equal(p->dim[2], 2);
	/* [row][colour][frame][y][x] */
	for (int plane = 0; plane < 3 * WIDTH; plane++)
		for (int i = 0; i < 2 * PATCH * PATCH; i++)
			assert_true(element(st, patch, plane * 2 * PATCH * PATCH + i) ==
			            (float)(plane * PATCH * PATCH + i % (PATCH * PATCH) + 100 * (i / (PATCH * PATCH))));
	assert_non_null(store_find(st, "v.unknown"));
	assert_null(store_find(st, "v.unknown")->ignored);
}

static void test_model(void **state)
{
	for (int apart = 0; apart < 2; apart++) {
		char *dir = folder_new();
		struct made w = good;
		struct store *st;
		struct err err = { 0 };

		w.apart = apart;
		put_text(dir, "qwen2vl", true);
		put_made(dir, "x.mmproj-F16.gguf", &w);
		assert_int_equal(store_open_seeing(&st, dir, "", &err), 0);
		check_config(st);
		check_tensors(st, apart);
		assert_int_equal(st->n_file, 2);
		store_close(st);
		assert_int_equal(store_open(&st, dir, &err), 0); /* who does not ask for a tower has none */
		assert_string_equal(json_str(json_get(st->config, "model_type"), NULL), "qwen2");
		assert_null(json_get(st->config, "vision_config"));
		assert_int_equal(st->n, 1);
		store_close(st);
		folder_remove(dir);
	}
}

/* Towers of single pictures have a kernel for one frame, which stays in the file; beside it may be one of zeros. */
static void test_one_frame(void **state)
{
	static const char patch[] = "model.visual.patch_embed.proj.weight";

	for (int blank = 0; blank < 2; blank++) {
		char *dir = folder_new();
		struct made w = good;
		const struct tensor *t;
		struct store *st;
		struct err err = { 0 };

		w.frame = false;
		w.frames = 1;
		w.blank_frame = blank;
		put_text(dir, "qwen2vl", true);
		put_made(dir, "mmproj.gguf", &w);
		assert_int_equal(store_open_seeing(&st, dir, "", &err), 0);
		t = store_find(st, patch);
		assert_true(t && t->data && t->n_dim == 5 && t->dim[1] == 3 && t->dim[2] == 1 && t->dim[3] == PATCH);
		assert_int_equal(t->count, PATCH * PATCH * 3 * WIDTH);
		for (int i = 0; i < t->count; i++)
			assert_true(element(st, patch, i) == (float)i);
		assert_int_equal(whole(json_get(st->config, "vision_config"), "temporal_patch_size"), 1);
		store_close(st);
		folder_remove(dir);
	}
}

/* ---- Pixtral, with and without the matrix that merges patches ---- */

struct pixtral {
	bool merger, norm, bias;
	uint32_t merge, heads; /* merge 0: the key is missing */
};

static void put_pixtral(const char *dir, const struct pixtral *w)
{
	static const int64_t patch[] = { PATCH, PATCH, 3, WIDTH, 0 }, square[] = { WIDTH, WIDTH, 0 },
			     merged[] = { 4 * WIDTH, WIDTH, 0 }, one[] = { WIDTH, 0 };
	struct gguf_made m;

	gguf_made_init(&m);
	gguf_made_str(&m, "general.architecture", "clip");
	gguf_made_str(&m, "clip.projector_type", "pixtral");
	gguf_made_u32(&m, "clip.vision.block_count", 1);
	gguf_made_u32(&m, "clip.vision.embedding_length", WIDTH);
	gguf_made_u32(&m, "clip.vision.feed_forward_length", INNER);
	gguf_made_u32(&m, "clip.vision.attention.head_count", w->heads);
	gguf_made_u32(&m, "clip.vision.patch_size", PATCH);
	gguf_made_u32(&m, "clip.vision.image_size", 64);
	if (w->merge)
		gguf_made_u32(&m, "clip.vision.spatial_merge_size", w->merge);
	tensor(&m, "v.patch_embd.weight", patch, 0);
	tensor(&m, "v.blk.0.attn_q.weight", square, 0);
	if (w->merger)
		tensor(&m, "mm.patch_merger.weight", merged, 0);
	if (w->norm)
		tensor(&m, "mm.input_norm.weight", one, 0);
	if (w->bias)
		tensor(&m, "mm.1.bias", one, 0);
	put_file(dir, "mmproj.gguf", &m);
}

static void check_pixtral(const struct store *st, const char *type)
{
	const struct json *vision = json_get(st->config, "vision_config"), *window;

	assert_string_equal(json_str(json_get(st->config, "model_type"), NULL), type);
	assert_string_equal(json_str(json_get(st->text, "model_type"), NULL), "mistral");
	assert_string_equal(json_str(json_get(vision, "model_type"), NULL), "pixtral");
	assert_string_equal(json_str(json_get(vision, "hidden_act"), NULL), "silu");
	assert_int_equal(whole(st->config, "image_token_id"), 2);
	window = json_get(st->text, "sliding_window"); /* without it, a text inside of a wrapper would have one */
	assert_true(window && json_kind(window) == JSON_NULL);
}

static void test_pixtral(void **state)
{
	static const char q[] = "vision_tower.transformer.layers.0.attention.q_proj.weight";
	char *dir = folder_new();
	struct store *st;
	struct err err = { 0 };

	put_text(dir, "llama", true);
	put_pixtral(dir, &(struct pixtral){ .bias = true, .heads = 1 });
	assert_int_equal(store_open_seeing(&st, dir, "", &err), 0);
	check_pixtral(st, "llava");
	assert_int_equal(whole(st->config, "vision_feature_layer"), -1);
	assert_string_equal(json_str(json_get(st->config, "vision_feature_select_strategy"), NULL), "full");
	assert_int_equal(json_kind(json_get(st->config, "multimodal_projector_bias")), JSON_BOOL);
	/* Rows in pairs: 0, 1 are a pair in the file, 0 and 2 here. */
	for (int row = 0; row < WIDTH; row++)
		for (int i = 0; i < WIDTH; i++)
			assert_true(element(st, q, row * WIDTH + i) == (float)((row % 2 * 2 + row / 2) * WIDTH + i));
	store_close(st);
	put_pixtral(dir, &(struct pixtral){ .merger = true, .norm = true, .merge = 2, .heads = 1 });
	assert_int_equal(store_open_seeing(&st, dir, "", &err), 0);
	check_pixtral(st, "mistral3");
	assert_int_equal(whole(st->config, "spatial_merge_size"), 2);
	assert_non_null(store_find(st, "multi_modal_projector.patch_merger.merging_layer.weight"));
	store_close(st);
	folder_remove(dir);
}

/* A file that has lost the matrix that merges patches must not pass for Pixtral 12B's. */
static void test_pixtral_refused(void **state)
{
	static const struct {
		struct pixtral made;
		int code;
		const char *says;
	} cases[] = {
		{ { .norm = true, .merge = 2, .heads = 1 },
		  E_MISSING,
		  "tensor mm.patch_merger.weight: missing, and key clip.vision.spatial_merge_size is 2" },
		{ { .norm = true, .heads = 1 },
		  E_MISSING,
		  "tensor mm.patch_merger.weight: missing, and mm.input_norm.weight is there" },
		{ { .heads = 3 },
		  E_FORMAT,
		  "tensor v.blk.0.attn_q.weight: 2 dimensions, 4 rows are not pairs of 3 heads" },
		{ { .heads = 4 }, E_FORMAT, "4 rows are not pairs of 4 heads" },
		{ { .heads = 0 }, E_FORMAT, "4 rows are not pairs of 0 heads" },
	};
	char *dir = folder_new();

	put_text(dir, "llama", true);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct store *st;
		struct err err = { 0 };
		char *path = strdup(folder_path(dir, "mmproj.gguf"));

		put_pixtral(dir, &cases[i].made);
		assert_int_equal(store_open_seeing(&st, folder_path(dir, "model.gguf"), path, &err), cases[i].code);
		assert_says(&err, cases[i].says);
		free(path);
	}
	folder_remove(dir);
}

/* ---- which is found ---- */

static bool sees(const char *dir, const char *tower)
{
	struct store *st;
	struct err err = { 0 };
	bool out;

	assert_int_equal(store_open_seeing(&st, dir, tower, &err), 0);
	out = json_get(st->config, "vision_config") != NULL;
	assert_int_equal(st->n_file, 1 + out);
	store_close(st);
	return out;
}

static void test_beside(void **state)
{
	char *dir = folder_new(), *other = folder_new();
	struct made w = good;

	put_text(dir, "qwen2vl", true);
	assert_false(sees(dir, ""));
	put_made(other, "tower.gguf", &good);
	assert_true(sees(dir, folder_path(other, "tower.gguf")));
	put_made(dir, "mmproj-model.gguf", &good);
	assert_true(sees(dir, ""));
	assert_false(sees(dir, NULL));
	put_made(dir, "mmproj-other.gguf", &good); /* which of two is not for weft to say */
	assert_false(sees(dir, ""));
	assert_true(sees(dir, folder_path(dir, "mmproj-other.gguf")));
	folder_remove(dir);

	dir = folder_new();
	put_text(dir, "qwen2vl", true);
	w.out = WIDTH + 1; /* one that does not fit leaves a model of text */
	put_made(dir, "mmproj.gguf", &w);
	assert_false(sees(dir, ""));
	folder_puts(dir, "mmproj.gguf", "GGUF");
	assert_false(sees(dir, ""));
	folder_remove(dir);
	folder_remove(other);
}

/* ---- refused ---- */

static void refused(const char *dir, const struct made *w, int code, const char *says)
{
	struct store *st;
	struct err err = { 0 };
	char *path;

	put_made(dir, "tower.gguf", w);
	path = strdup(folder_path(dir, "tower.gguf"));
	assert_int_equal(store_open_seeing(&st, folder_path(dir, "model.gguf"), path, &err), code);
	assert_says(&err, says);
	free(path);
}

#define WITH(...)                                    \
	(&(struct made){ .arch = "clip",             \
	                 .type = "qwen2.5vl_merger", \
	                 .out = WIDTH,               \
	                 .every = 1,                 \
	                 .frame = true,              \
	                 .blocks = 1,                \
	                 __VA_ARGS__ })

static void test_refused(void **state)
{
	char *dir = folder_new();
	struct store *st;
	struct err err = { 0 };

	put_text(dir, "qwen2vl", true);
	assert_int_equal(store_open_seeing(&st, folder_path(dir, "model.gguf"), "/no/such.gguf", &err), E_MISSING);
	assert_says(&err, "/no/such.gguf");
	put_made(dir, "tower.gguf", &good);
	assert_int_equal(store_open(&st, folder_path(dir, "tower.gguf"), &err), E_ARG);
	assert_says(&err, "is a projector file");
	folder_puts(dir, "config.json", "{}");
	folder_put_tensors(dir, "model.safetensors", "{}", 0);
	assert_int_equal(store_open_seeing(&st, dir, "tower.gguf", &err), E_ARG);
	assert_says(&err, "its tower is among its own files; tower.gguf");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
	refused(dir, WITH(.arch = "llama"), E_FORMAT, "general.architecture: \"llama\", a projector file has \"clip\"");
	refused(dir, WITH(.type = "ldpv2"), E_UNSUPPORTED, "type \"ldpv2\" is not done; known: qwen3vl_merger");
	refused(dir, WITH(.type = "gemma3"), E_FORMAT, "is for models of architecture gemma3, that of");
	refused(dir, WITH(.out = 5), E_FORMAT, "clip.vision.projection_dim: 5, ");
	refused(dir, WITH(.out = 5), E_FORMAT, "model.gguf has vectors of 4");
	refused(dir, WITH(.blocks = 0), E_FORMAT, "clip.vision.block_count: 0, 1 to");
	refused(dir, WITH(.every = 0), E_MISSING, "clip.vision.n_wa_pattern: missing");
	refused(dir, WITH(.frame = false), E_MISSING, "tensor v.patch_embd.weight.1: missing");
	refused(dir, WITH(.wide_frame = true), E_FORMAT, "tensor v.patch_embd.weight.1: is F32 [2, 2, 3, 8]");
	refused(dir, WITH(.frames = 1), E_FORMAT,
	        "tensor v.patch_embd.weight.1: is not 0, and key clip.vision.temporal_patch_size is 1");
	refused(dir, WITH(.frames = 1, .wide_frame = true), E_FORMAT,
	        "tensor v.patch_embd.weight.1: is F32 [2, 2, 3, 8]");
	refused(dir, WITH(.frames = 3), E_UNSUPPORTED, "key clip.vision.temporal_patch_size: 3, 1 and 2 are read");
	refused(dir, WITH(.frames = 2, .frame = false), E_MISSING, "tensor v.patch_embd.weight.1: missing");
	refused(dir, WITH(.no_k = true), E_MISSING, "tensor v.blk.0.attn_k.weight: missing");
	refused(dir, WITH(.wide_k = true), E_FORMAT, "tensor v.blk.0.attn_k.weight: is F32 [4, 1]");
#pragma GCC diagnostic pop
	put_text(dir, "qwen2vl", false);
	refused(dir, &good, E_MISSING, "has no token \"<|image_pad|>\"");
	folder_remove(dir);
}

/* ---- a tower for sounds in the same file ---- */

struct hearing {
	const char *type; /* NULL: no tower for images beside it */
	uint32_t bands, blocks;
	float raised; /* an element of what a softplus gives */
	bool factors, no_kernel;
};

static void put_hearing(const char *dir, const struct hearing *w)
{
	static const int64_t one[] = { 1, 0 }, kernel[] = { 3, 3, 1, WIDTH, 0 }, square[] = { WIDTH, WIDTH, 0 };
	struct gguf_made m;

	gguf_made_init(&m);
	gguf_made_str(&m, "general.architecture", "clip");
	if (w->type)
		gguf_made_str(&m, "clip.vision.projector_type", w->type);
	gguf_made_str(&m, "clip.audio.projector_type", "gemma4a");
	for (int i = 0; i < 2; i++) {
		gguf_made_u32(&m, i ? "clip.audio.block_count" : "clip.vision.block_count", i ? w->blocks : 1);
		gguf_made_u32(&m, i ? "clip.audio.embedding_length" : "clip.vision.embedding_length", WIDTH);
		gguf_made_u32(&m, i ? "clip.audio.attention.head_count" : "clip.vision.attention.head_count", 1);
	}
	gguf_made_u32(&m, "clip.vision.feed_forward_length", INNER);
	gguf_made_u32(&m, "clip.vision.patch_size", PATCH);
	gguf_made_u32(&m, "clip.audio.num_mel_bins", w->bands);
	tensor(&m, "v.patch_embd.weight", (const int64_t[]){ PATCH, PATCH, 3, WIDTH, 0 }, 0);
	tensor(&m, "v.position_embd.weight", (const int64_t[]){ WIDTH, WIDTH, 2, 0 }, 0);
	tensor(&m, "v.blk.0.attn_q.weight", square, 0);
	tensor(&m, "a.conv1d.0.weight", kernel, 0);
	if (!w->no_kernel)
		tensor(&m, "a.conv1d.1.weight", kernel, 0);
	tensor(&m, "a.pre_encode.out.weight", square, 0);
	tensor(&m, "a.blk.0.conv_dw.weight", square, 0);
	gguf_made_tensor(&m, "a.blk.0.per_dim_scale.weight", 0, one, &w->raised, sizeof w->raised);
	if (w->factors)
		tensor(&m, "a.blk.0.per_dim_k_scale.weight", one, 1);
	put_file(dir, "mmproj.gguf", &m);
}

static void put_marked(const char *dir)
{
	static const char *const marks[] = { "<|image|>", "<|audio|>", "<|audio>", "<audio|>" };
	static const char *const keys[] = { "gemma4.block_count",
		                            "gemma4.context_length",
		                            "gemma4.feed_forward_length",
		                            "gemma4.attention.head_count",
		                            "gemma4.attention.key_length",
		                            "gemma4.attention.key_length_swa",
		                            "gemma4.attention.sliding_window" };
	struct gguf_made m;

	gguf_made_init(&m);
	gguf_made_str(&m, "general.architecture", "gemma4");
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		gguf_made_u32(&m, keys[i], 1);
	gguf_made_u32(&m, "gemma4.embedding_length", WIDTH);
	gguf_made_f32(&m, "gemma4.attention.layer_norm_rms_epsilon", 1e-6f);
	gguf_made_strs(&m, "tokenizer.ggml.tokens", marks, 4);
	tensor(&m, "token_embd.weight", (const int64_t[]){ WIDTH, 4, 0 }, 0);
	put_file(dir, "model.gguf", &m);
}

static void test_hearing(void **state)
{
	static const struct {
		struct hearing made;
		int code;
		const char *says;
	} cases[] = {
		{ { "gemma4v", 64, 1, 1, 0, 0 }, E_UNSUPPORTED, "key clip.audio.num_mel_bins: 64, 128 are read" },
		{ { "gemma4v", 128, 0, 1, 0, 0 }, E_FORMAT, "key clip.audio.block_count: 0, 1 to 1024 are read" },
		{ { "gemma4v", 128, 1, 0, 0, 0 },
		  E_FORMAT,
		  "per_dim_scale.weight: element 0 is 0, a softplus is above" },
		{ { "gemma4v", 128, 1, 1, 1, 0 },
		  E_UNSUPPORTED,
		  "per_dim_k_scale.weight: factors of keys are not done" },
		{ { "gemma4v", 128, 1, 1, 0, 1 }, E_MISSING, "tensor a.conv1d.1.weight: missing" },
		{ { NULL, 128, 1, 1, 0, 0 }, E_UNSUPPORTED, "a projector for sounds alone, \"gemma4a\", is not done" },
	};
	char *dir = folder_new();
	struct err err = { 0 };
	struct store *st;

	put_marked(dir);
	put_hearing(dir, &(struct hearing){ "gemma4v", 128, 1, 1, 0, 0 });
	assert_int_equal(store_open_seeing(&st, dir, "", &err), 0);
	assert_int_equal(whole(st->config, "audio_token_id"), 1);
	assert_int_equal(whole(json_get(st->config, "audio_config"), "output_proj_dims"), WIDTH);
	/* softplus(0.5413...) is 1 */
	assert_float_equal(element(st, "model.audio_tower.layers.0.self_attn.per_dim_scale", 0), 0.54132485f, 1e-7);
	store_close(st);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char *path = strdup(folder_path(dir, "mmproj.gguf"));

		put_hearing(dir, &cases[i].made);
		assert_int_equal(store_open_seeing(&st, folder_path(dir, "model.gguf"), path, &err), cases[i].code);
		assert_says(&err, cases[i].says);
		free(path);
	}
	folder_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),   cmocka_unit_test(test_one_frame),
		cmocka_unit_test(test_pixtral), cmocka_unit_test(test_pixtral_refused),
		cmocka_unit_test(test_beside),  cmocka_unit_test(test_refused),
		cmocka_unit_test(test_hearing),
	};

	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
