/* GGUF files: the cases of tests/golden/_gguf/container, then files made here: what of the metadata and the
 * tensors becomes of Hugging Face's, split files, files picked from folders, and what is refused with what words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/log.h"
#include "folder.h"
#include "gguf_made.h"
#include "quant/basis.h"
#include "store/gguf/gguf_pre.h"
#include "store/store.h"

static const char *cases; /* tests/golden/_gguf/container */

static void assert_says(const struct err *err, const char *part)
{
	if (!strstr(err->msg, part))
		fail_msg("\"%s\" does not say \"%s\"", err->msg, part);
}

/* ---- the cases ---- */

static void test_cases(void **state)
{
	struct json *list;
	struct buf b;
	struct err err;
	int n[2] = { 0 };

	buf_init(&b);
	assert_int_equal(file_read(folder_path(cases, "cases.json"), 1 << 20, &b, NULL), 0);
	list = json_parse(b.p, b.n, 0, NULL);
	assert_non_null(list);
	for (size_t i = 0; i < json_len(list); i++) {
		const char *name = json_str(json_get(json_at(list, i), "file"), NULL);
		bool accept = !strcmp(json_str(json_get(json_at(list, i), "expect"), NULL), "accept");
		struct gguf g;
		int code = gguf_open(&g, folder_path(cases, name), &err);

		/* Refusing the other byte order with a message is fine, says its line. */
		if (!strcmp(name, "v3_big_endian.gguf"))
			accept = false;
		if ((code == 0) != accept)
			fail_msg("%s: %s", name, code ? err.msg : "was accepted");
		if (code)
			assert_says(&err, name);
		else
			gguf_close(&g);
		n[accept]++;
	}
	assert_true(n[0] > 30 && n[1] > 5);
	json_free(list);
	buf_fini(&b);
}

/* Any file cut anywhere is refused or has lost nothing that it says. */
static void test_truncated(void **state)
{
	struct buf b;
	struct gguf g;
	struct err err;

	buf_init(&b);
	assert_int_equal(file_read(folder_path(cases, "v3.gguf"), 1 << 20, &b, NULL), 0);
	assert_int_equal(gguf_open_bytes(&g, "whole", b.p, b.n, &err), 0);
	assert_int_equal(g.n_info, 2);
	assert_non_null(gguf_info(&g, g.info[1].name));
	gguf_close(&g);
	for (size_t n = 0; n + 32 < b.n; n++) {
		uint8_t *copy = malloc(n + 1);

		memcpy(copy, b.p, n);
		assert_int_not_equal(gguf_open_bytes(&g, "cut", copy, n, &err), 0);
		assert_says(&err, "cut: ");
		free(copy);
	}
	buf_fini(&b);
}

static void test_values(void **state)
{
	static const uint32_t list[] = { 7, 8, 9 };
	struct gguf_made m;
	struct gguf g;
	struct buf b;
	struct err err;
	int64_t v;
	double d;

	gguf_made_init(&m);
	gguf_made_u32(&m, "u", 4000000000u);
	gguf_made_f32(&m, "f", 1.5f);
	gguf_made_u32s(&m, "l", list, 3);
	gguf_made_str(&m, "s", "text");
	buf_init(&b);
	gguf_made_file(&m, &b);
	assert_int_equal(gguf_open_bytes(&g, "v.gguf", b.p, b.n, &err), 0);
	assert_int_equal(gguf_int(&g, gguf_find(&g, "u"), 0, &v, &err), 0);
	assert_int_equal(v, 4000000000);
	assert_int_equal(gguf_int(&g, gguf_find(&g, "u"), 5, &v, &err), 0); /* a scalar holds everywhere */
	assert_int_equal(gguf_int(&g, gguf_find(&g, "l"), 2, &v, &err), 0);
	assert_int_equal(v, 9);
	assert_int_equal(gguf_int(&g, gguf_find(&g, "l"), 3, &v, &err), E_FORMAT);
	assert_says(&err, "key l: has 3 elements, number 3");
	assert_int_equal(gguf_int(&g, gguf_find(&g, "f"), 0, &v, &err), E_FORMAT); /* no float is an integer */
	assert_says(&err, "key f: is f32, an integer is wanted");
	assert_int_equal(gguf_float(&g, gguf_find(&g, "f"), 0, &d, &err), 0);
	assert_true(d == 1.5);
	assert_int_equal(gguf_float(&g, gguf_find(&g, "u"), 0, &d, &err), 0);
	assert_int_equal(gguf_float(&g, gguf_find(&g, "s"), 0, &d, &err), E_FORMAT);
	assert_null(gguf_find(&g, "x"));
	gguf_close(&g);
	buf_fini(&b);
	gguf_made_fini(&m);
}

/* Two matrices of type 42, of blocks of 64 in 18 bytes or, as older files have them, of 128 in 34, told apart by where the
 * second begins and the file ends. */
static void test_type_42(void **state)
{
	static const int64_t ne[] = { 128, 16, 0 };
	static const size_t now = 16 * 36, old = 16 * 34;

	for (int kind = 0; kind < 3; kind++) {
		size_t first = kind == 0 ? now : old, second = kind == 1 ? old : now;
		struct gguf_made m;
		struct gguf g;
		struct buf b;
		struct err err;
		int code;

		gguf_made_init(&m);
		gguf_made_u32(&m, "u", 1);
		gguf_made_tensor(&m, "a", 42, ne, NULL, first);
		gguf_made_tensor(&m, "b", 42, ne, NULL, second);
		buf_init(&b);
		gguf_made_file(&m, &b);
		code = gguf_open_bytes(&g, "v.gguf", b.p, b.n, &err);
		if (kind == 2) { /* one of each */
			assert_int_equal(code, E_FORMAT);
			assert_says(&err, "tensor b: begins at byte");
		} else {
			assert_int_equal(code, 0);
			for (int i = 0; i < 2; i++) {
				assert_string_equal(g.info[i].type->name, kind ? "PQ2_0" : "Q2_0");
				assert_int_equal(g.info[i].bytes, kind ? old : now);
			}
			gguf_close(&g);
		}
		buf_fini(&b);
		gguf_made_fini(&m);
	}
}

/* ---- a model ---- */

enum { WIDTH = 8, ROWS = 8 };

/* A llama of one block with heads of 4: q has 2 heads, k one. */
static void llama_keys(struct gguf_made *m)
{
	gguf_made_str(m, "general.architecture", "llama");
	gguf_made_u32(m, "llama.block_count", 1);
	gguf_made_u32(m, "llama.context_length", 64);
	gguf_made_u32(m, "llama.embedding_length", WIDTH);
	gguf_made_u32(m, "llama.feed_forward_length", 16);
	gguf_made_u32(m, "llama.attention.head_count", 2);
	gguf_made_u32(m, "llama.attention.head_count_kv", 1);
	gguf_made_f32(m, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
	gguf_made_f32(m, "llama.rope.freq_base", 500000);
}

static void tensor(struct gguf_made *m, const char *name, int64_t cols, int64_t rows)
{
	int64_t ne[] = { cols, rows, 0 }, n = cols * (rows ? rows : 1);
	float f[WIDTH * 64];

	for (int64_t i = 0; i < n; i++)
		f[i] = (float)i;
	gguf_made_tensor(m, name, 0, ne, f, (size_t)n * sizeof *f);
}

static void llama_tensors(struct gguf_made *m)
{
	tensor(m, "token_embd.weight", WIDTH, 20);
	tensor(m, "output_norm.weight", WIDTH, 0);
	tensor(m, "blk.0.attn_q.weight", WIDTH, 8);
	tensor(m, "blk.0.attn_k.weight", WIDTH, 4);
	tensor(m, "blk.0.attn_v.weight", WIDTH, 4);
	tensor(m, "rope_freqs.weight", 2, 0);
	tensor(m, "odd.weight", 3, 0);
}

static void put_file(const char *dir, const char *name, const struct gguf_made *m)
{
	struct buf b;

	buf_init(&b);
	gguf_made_file(m, &b);
	folder_put(dir, name, b.p, b.n);
	buf_fini(&b);
}

static int64_t whole(const struct json *j, const char *key)
{
	int64_t v = -1;

	json_to_int(json_get(j, key), &v);
	return v;
}

static void test_model(void **state)
{
	/* Row r of a head of 4 in the file: pairs 0 2 1 3 of Hugging Face's halves. */
	static const int from[ROWS] = { 0, 2, 1, 3, 4, 6, 5, 7 };
	char *dir = folder_new();
	struct gguf_made m;
	struct store *st;
	struct weight w;
	struct err err = { 0 };
	double eps = 0;

	gguf_made_init(&m);
	llama_keys(&m);
	/* 0 divides by nothing */
	llama_tensors(&m);
	put_file(dir, "m.gguf", &m);
	assert_int_equal(store_open(&st, folder_path(dir, "m.gguf"), &err), E_FORMAT);
	assert_says(&err, "tensor rope_freqs.weight: element 0 is 0");
	gguf_made_fini(&m);

	for (int i = 0; i < 2; i++) { /* longrope needs both lists */
		static const char *const name[] = { "rope_factors_long.weight", "rope_factors_short.weight" };

		gguf_made_init(&m);
		llama_keys(&m);
		tensor(&m, "token_embd.weight", WIDTH, 20);
		tensor(&m, name[i], 2, 0);
		put_file(dir, "m.gguf", &m);
		assert_int_equal(store_open(&st, folder_path(dir, "m.gguf"), &err), E_MISSING);
		assert_says(&err, name[!i]);
		assert_says(&err, "missing, with");
		gguf_made_fini(&m);
	}

	gguf_made_init(&m);
	llama_keys(&m);
	m.n_infos = 0;
	tensor(&m, "token_embd.weight", WIDTH, 20);
	tensor(&m, "blk.0.attn_q.weight", WIDTH, 8);
	tensor(&m, "blk.0.attn_v.weight", WIDTH, 4);
	tensor(&m, "odd.weight", 3, 0);
	put_file(dir, "m.gguf", &m);
	assert_int_equal(store_open(&st, dir, &err), 0); /* a folder with one file in it */
	assert_string_equal(json_str(json_get(st->config, "model_type"), NULL), "llama");
	assert_int_equal(whole(st->config, "hidden_size"), WIDTH);
	assert_int_equal(whole(st->config, "vocab_size"), 20);
	assert_int_equal(whole(st->config, "head_dim"), 4);
	assert_int_equal(whole(st->config, "num_key_value_heads"), 1);
	json_to_double(json_get(st->config, "rms_norm_eps"), &eps);
	assert_true(eps == 1e-5); /* the decimal that was meant, not the float's */
	assert_non_null(store_find(st, "model.embed_tokens.weight"));
	assert_non_null(store_find(st, "odd.weight"));
	assert_null(store_find(st, "lm_head.weight"));
	assert_null(store_find(st, "model.layers.0.self_attn.q_proj.weight")->data);
	assert_int_equal(store_weight(st, "model.layers.0.self_attn.q_proj", ROWS, WIDTH, &w, &err), 0);
	for (int r = 0; r < ROWS; r++) {
		float f;

		memcpy(&f, w.data + (size_t)r * w.row_bytes, sizeof f);
		assert_int_equal((int)f, from[r] * WIDTH);
	}
	store_close(st);
	gguf_made_fini(&m);
	folder_remove(dir);
}

static void refused(const char *dir, const struct gguf_made *m, int code, const char *says)
{
	struct store *st;
	struct err err = { 0 };

	put_file(dir, "r.gguf", m);
	assert_int_equal(store_open(&st, folder_path(dir, "r.gguf"), &err), code);
	assert_says(&err, "r.gguf");
	assert_says(&err, says);
}

static void test_refused(void **state)
{
	static const char *const tokens[] = { "a", "b", "a" };
	static const uint32_t two[] = { 1, 1 };
	char *dir = folder_new();
	struct gguf_made m;

	gguf_made_init(&m);
	refused(dir, &m, E_FORMAT, "key general.architecture: missing");
	gguf_made_str(&m, "general.architecture", "mamba\x7f");
	refused(dir, &m, E_UNSUPPORTED, "; the nearest that is known: mamba; all that are: docs/gguf.md");
	gguf_made_fini(&m);
	gguf_made_init(&m);
	gguf_made_str(&m, "general.architecture", "yi");
	refused(dir, &m, E_UNSUPPORTED, "architecture \"yi\" is not known; all that are");
	gguf_made_fini(&m);
	gguf_made_init(&m);
	gguf_made_str(&m, "general.architecture", "deepseek41");
	refused(dir, &m, E_UNSUPPORTED, "architecture \"deepseek41\" is not supported: it has Engram tables");
	gguf_made_fini(&m);

	gguf_made_init(&m);
	gguf_made_str(&m, "general.architecture", "llama");
	refused(dir, &m, E_MISSING, "key llama.block_count: missing");
	gguf_made_u32(&m, "llama.block_count", 100000);
	refused(dir, &m, E_FORMAT, "llama.block_count: 100000 blocks");
	gguf_made_fini(&m);

	gguf_made_init(&m);
	llama_keys(&m);
	refused(dir, &m, E_MISSING, "token_embd.weight: missing");
	tensor(&m, "token_embd.weight", WIDTH, 20);
	tensor(&m, "blk.0.attn_q.weight", WIDTH, 6);
	refused(dir, &m, E_FORMAT, "tensor blk.0.attn_q.weight: 6 rows are not whole heads of 4");
	gguf_made_fini(&m);

	gguf_made_init(&m);
	llama_keys(&m);
	tensor(&m, "token_embd.weight", WIDTH, 20);
	gguf_made_strs(&m, "tokenizer.ggml.tokens", tokens, 3);
	refused(dir, &m, E_FORMAT, "tokens 0 and 2 have the same 1 bytes");
	gguf_made_fini(&m);

	gguf_made_init(&m);
	llama_keys(&m);
	tensor(&m, "token_embd.weight", WIDTH, 20);
	gguf_made_strs(&m, "tokenizer.ggml.tokens", tokens, 2);
	gguf_made_u32(&m, "tokenizer.ggml.eos_token_id", 2);
	refused(dir, &m, E_FORMAT, "tokenizer.ggml.eos_token_id: 2, there are 2 tokens");
	gguf_made_u32s(&m, "tokenizer.ggml.token_type", two, 1);
	refused(dir, &m, E_FORMAT, "tokenizer.ggml.token_type: 1 elements, there are 2 tokens");
	gguf_made_fini(&m);
	folder_remove(dir);
}

/* A file of two blocks, of a family whose blocks differ by their window. */
static void windows_keys(struct gguf_made *m, const char *arch, const int32_t heads_kv[2], const int32_t windows[2])
{
	static const struct {
		const char *key;
		uint32_t value;
	} keys[] = {
		{ "block_count", 2 },          { "context_length", 64 },         { "embedding_length", WIDTH },
		{ "feed_forward_length", 4 },  { "attention.key_length", 4 },    { "attention.head_count", 2 },
		{ "expert_count", 2 },         { "expert_used_count", 1 },       { "expert_feed_forward_length", 4 },
		{ "rope.dimension_count", 4 }, { "attention.sliding_window", 8 }
	};
	char key[80];

	gguf_made_init(m);
	gguf_made_str(m, "general.architecture", arch);
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		snprintf(key, sizeof key, "%s.%s", arch, keys[i].key);
		gguf_made_u32(m, key, keys[i].value);
	}
	snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
	gguf_made_f32(m, key, 1e-5f);
	snprintf(key, sizeof key, "%s.attention.head_count_kv", arch);
	gguf_made_i32s(m, key, heads_kv, 2);
	snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", arch);
	gguf_made_i32s(m, key, windows, 2);
	tensor(m, "token_embd.weight", WIDTH, 20);
}

static void test_windows_refused(void **state)
{
	static const int32_t full_first[2] = { 0, 1 }, window_first[2] = { 1, 0 }, full[2] = { 0, 0 },
			     heads[2] = { 1, 2 };
	static const uint32_t one[] = { 0 };
	char *dir = folder_new();
	struct gguf_made m;

	windows_keys(&m, "mimo2", heads, window_first);
	refused(dir, &m, E_UNSUPPORTED, "mimo2.attention.sliding_window_pattern: block 0 has a window");
	gguf_made_fini(&m);
	windows_keys(&m, "step35", heads, full);
	refused(dir, &m, E_UNSUPPORTED, "blocks 0 and 1 are of a kind and have different heads");
	gguf_made_fini(&m);
	windows_keys(&m, "step35", heads, full_first);
	tensor(&m, "rope_freqs.weight", 3, 0);
	refused(dir, &m, E_FORMAT, "tensor rope_freqs.weight: 3 elements of F32, 2 of F32 are wanted");
	gguf_made_fini(&m);
	windows_keys(&m, "step35", heads, full_first);
	tensor(&m, "rope_freqs.weight", 2, 0);
	refused(dir, &m, E_FORMAT, "tensor rope_freqs.weight: element 0 is 0");
	gguf_made_fini(&m);
	windows_keys(&m, "step35", heads, full_first);
	gguf_made_u32s(&m, "step35.swiglu_clamp_exp", one, 1);
	refused(dir, &m, E_FORMAT, "key step35.swiglu_clamp_exp: has 1 elements, step35.block_count is 2");
	gguf_made_fini(&m);
	windows_keys(&m, "bailingmoe3", window_first, full);
	gguf_made_u32(&m, "bailingmoe3.attention.kv_lora_rank", 4);
	gguf_made_u32(&m, "bailingmoe3.attention.key_length_mla", 8);
	gguf_made_u32(&m, "bailingmoe3.attention.value_length_mla", 4);
	gguf_made_u32(&m, "bailingmoe3.kda.head_dim", 4);
	gguf_made_u32(&m, "bailingmoe3.ssm.conv_kernel", 4);
	refused(dir, &m, E_UNSUPPORTED, "bailingmoe3.attention.head_count_kv: block 1 does not fit groups of 1");
	gguf_made_fini(&m);
	folder_remove(dir);
}

/* ---- split files ---- */

static void put_part(const char *dir, const char *name, int no, uint32_t count, uint32_t total, const char *holds)
{
	struct gguf_made m;

	gguf_made_init(&m);
	if (!no)
		llama_keys(&m);
	gguf_made_u32(&m, "split.no", (uint32_t)no);
	gguf_made_u32(&m, "split.count", count);
	gguf_made_u32(&m, "split.tensors.count", total);
	if (holds)
		tensor(&m, holds, WIDTH, 4);
	put_file(dir, name, &m);
	gguf_made_fini(&m);
}

static void test_split(void **state)
{
	char *dir = folder_new();
	struct store *st;
	struct err err = { 0 };

	put_part(dir, "m-00001-of-00002.gguf", 0, 2, 2, "token_embd.weight");
	assert_int_equal(store_open(&st, dir, &err), E_MISSING);
	assert_says(&err, "m-00002-of-00002.gguf");
	put_part(dir, "m-00002-of-00002.gguf", 1, 2, 2, "blk.0.attn_v.weight");
	for (int i = 0; i < 2; i++) {
		const char *name = i ? "m-00002-of-00002.gguf" : "m-00001-of-00002.gguf";

		assert_int_equal(store_open(&st, folder_path(dir, name), &err), 0);
		assert_int_equal(st->n, 2);
		assert_int_equal(st->n_file, 2);
		assert_true(strstr(store_find(st, "model.layers.0.self_attn.v_proj.weight")->file, "00002-of") != NULL);
		store_close(st);
	}
	assert_int_equal(store_open(&st, dir, &err), 0); /* one model */
	store_close(st);
	put_part(dir, "m-00002-of-00002.gguf", 1, 2, 3, "token_embd.weight");
	assert_int_equal(store_open(&st, dir, &err), E_FORMAT);
	assert_says(&err, "tensor model.embed_tokens.weight: also in");
	put_part(dir, "m-00002-of-00002.gguf", 0, 2, 2, NULL);
	assert_int_equal(store_open(&st, dir, &err), E_FORMAT);
	assert_says(&err, "split.no 0 and split.count 2, its name says part 2 of 2");
	put_part(dir, "m-00001-of-00002.gguf", 0, 2, 9, NULL);
	put_part(dir, "m-00002-of-00002.gguf", 1, 2, 9, NULL);
	assert_int_equal(store_open(&st, dir, &err), E_FORMAT);
	assert_says(&err, "split.tensors.count: 9, the 2 parts have 0");
	folder_remove(dir);
	dir = folder_new();
	put_part(dir, "renamed.gguf", 0, 2, 2, "token_embd.weight");
	assert_int_equal(store_open(&st, dir, &err), E_FORMAT);
	assert_says(&err, "one of 2 parts");
	folder_remove(dir);
}

/* ---- which file ---- */

static void test_pick(void **state)
{
	char *dir = folder_new(), hub[8192];
	struct buf at;
	struct err err = { 0 };
	char model[8192];

	buf_init(&at);
	put_part(dir, "x-Q4_K_M.gguf", 0, 0, 1, "token_embd.weight");
	put_part(dir, "mmproj-F16.gguf", 0, 0, 1, NULL);
	assert_int_equal(store_locate(dir, &at, &err), 0);
	assert_non_null(strstr(at.p, "/x-Q4_K_M.gguf"));
	put_part(dir, "x-Q8_0.gguf", 0, 0, 1, "token_embd.weight");
	put_part(dir, "BIG/x-BF16-00001-of-00002.gguf", 0, 2, 2, NULL);
	put_part(dir, "BIG/x-BF16-00002-of-00002.gguf", 1, 2, 2, NULL);
	assert_int_equal(store_locate(dir, &at, &err), E_ARG);
	assert_says(&err, "3 GGUF files");
	assert_says(&err, "x-Q4_K_M.gguf, x-Q8_0.gguf");
	snprintf(model, sizeof model, "%s:q8_0", dir);
	assert_int_equal(store_locate(model, &at, &err), 0);
	assert_non_null(strstr(at.p, "/x-Q8_0.gguf"));
	snprintf(model, sizeof model, "%s:BF16", dir);
	assert_int_equal(store_locate(model, &at, &err), 0);
	assert_non_null(strstr(at.p, "/BIG/x-BF16-00001-of-00002.gguf"));
	snprintf(model, sizeof model, "%s:Q4_K", dir); /* not Q4_K_M */
	assert_int_equal(store_locate(model, &at, &err), E_MISSING);
	assert_says(&err, "no GGUF file of type Q4_K; there are:");
	folder_put_tensors(dir, "model.safetensors", "{}", 0); /* the folder itself is a model */
	assert_int_equal(store_locate(dir, &at, &err), 0);
	assert_string_equal(at.p, dir);

	snprintf(hub, sizeof hub, "%s/hub", dir);
	setenv("HF_HUB_CACHE", hub, 1);
#define COMMIT "00112233445566778899aabbccddeeff00112233"
	folder_puts(dir, "hub/models--Org--M-GGUF/refs/main", COMMIT);
	put_part(dir, "hub/models--Org--M-GGUF/snapshots/" COMMIT "/M-Q4_K_M.gguf", 0, 0, 1, NULL);
	put_part(dir, "hub/models--Org--M-GGUF/snapshots/" COMMIT "/M-Q6_K.gguf", 0, 0, 1, NULL);
	assert_int_equal(store_locate("Org/M-GGUF:Q6_K", &at, &err), 0);
	assert_non_null(strstr(at.p, "/snapshots/" COMMIT "/M-Q6_K.gguf"));
	assert_int_equal(store_locate("Org/M-GGUF", &at, &err), E_ARG);
	unsetenv("HF_HUB_CACHE");
	buf_fini(&at);
	folder_remove(dir);
}

/* The name that is written for a way of cutting text is one that reads as the same way. */
static void test_names_of_pre_tokenizers(void **state)
{
	static const char *const names[] = { "llama-bpe", "glm4",        "qwen2",  "qwen35",     "gpt-2", "starcoder",
		                             "tekken",    "deepseek-v3", "falcon", "seed-coder", "viking" };
	static const char *const flagged[] = { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
		                               "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" },
				 *const longer[] = { "x", "y" };
	const struct gguf_pre *tekken = gguf_pre_find("tekken", 6);
	bool other = true;
	int length = 0;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const struct gguf_pre *pre = gguf_pre_find(names[i], (int)strlen(names[i]));
		const char *found;
		int n = 0;

		assert_non_null(pre);
		while (n < GGUF_PRE_STEPS && pre->step[n])
			n++;
		found = gguf_pre_name(pre->step, n, pre->whole_first, &length, &other);
		assert_ptr_equal(found ? gguf_pre_find(found, length) : NULL, pre);
		assert_false(other);
		assert_null(n > 1 ? gguf_pre_name(pre->step, n - 1, !pre->whole_first, &length, &other) : NULL);
	}
	assert_memory_equal(gguf_pre_name(flagged, 1, false, &length, &other), "qwen2", 5);
	assert_int_equal(length, 5);
	assert_null(gguf_pre_name(flagged, 1, true, &length, &other));
	assert_null(gguf_pre_name(longer, 2, false, &length, &other));
	assert_null(gguf_pre_name(longer, 0, false, &length, &other));
	/* The expression of Mistral's own file, which readers of the name replace. */
	assert_memory_equal(gguf_pre_name(&tekken->meant, 1, true, &length, &other), "tekken", 6);
	assert_true(other);
}

/* Templates with names are found by their keys, whatever the list of names says. */
static void test_templates(void **state)
{
	static const char *const lists[][2] = { { "tool_use", "none" }, { "rag", "\xff" } };

	for (int list = -1; list < 2; list++) {
		for (int whole = 0; whole < 2; whole++) {
			char *dir = folder_new();
			struct store_templates t;
			struct gguf_made m;
			struct store *st;
			struct err err = { 0 };

			gguf_made_init(&m);
			llama_keys(&m);
			gguf_made_str(&m, "tokenizer.chat_template.tool_use", "T\"\n");
			gguf_made_u32(&m, "tokenizer.chat_template.odd", 7); /* no text */
			gguf_made_str(&m, "tokenizer.chat_template2", "X");
			if (whole)
				gguf_made_str(&m, "tokenizer.chat_template", "D");
			if (list >= 0)
				gguf_made_strs(&m, "tokenizer.chat_templates", lists[list], 2);
			tensor(&m, "token_embd.weight", WIDTH, 20);
			put_file(dir, "m.gguf", &m);
			gguf_made_fini(&m);
			assert_int_equal(store_open(&st, dir, &err), 0);
			assert_int_equal(store_templates_read(st, &t, &err), 0);
			assert_int_equal(t.n, 1 + whole);
			assert_string_equal(t.v[0].text, whole ? "D" : "T\"\n");
			assert_string_equal(store_templates_find(&t, "tool_use"), "T\"\n");
			store_templates_end(&t);
			store_close(st);
			folder_remove(dir);
		}
	}
}

/* The keys of a rotated basis, with another value of one; NULL: without it. */
static void put_rotation(struct gguf_made *m, const char *other, const char *its)
{
	static const struct {
		const char *key, *value;
	} all[] = {
		{ "version", "1" },
		{ "block_size", "32" },
		{ "transform", "normalized-sylvester-walsh-hadamard" },
		{ "axis", "input-last-dimension" },
		{ "sign_mode", "explicit" },
		{ "sign_widths", "32" },
		{ "sign_values", "-1" },
		{ "weight_names", "output.weight" },
		{ "inverse_weight_names", "token_embd.weight" },
	};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		const char *key = all[i].key, *value = strcmp(key, other) ? all[i].value : its;
		char full[80];
		int32_t v[32];

		snprintf(full, sizeof full, "prism.hadamard.%s", key);
		for (int k = 0; value && k < 32; k++)
			v[k] = k % 3 ? 1 : atoi(value);
		if (!value)
			continue;
		if (!strcmp(key, "sign_values") || !strcmp(key, "sign_widths"))
			gguf_made_i32s(m, full, v, strcmp(key, "sign_values") ? 1 : 32);
		else if (strstr(key, "_names"))
			gguf_made_strs(m, full, &value, 1);
		else if (value[0] >= '0' && value[0] <= '9')
			gguf_made_u32(m, full, (uint32_t)atoi(value));
		else
			gguf_made_str(m, full, value);
	}
}

static void test_rotated(void **state)
{
	static const struct {
		const char *key, *value, *says; /* says NULL: it is read */
	} wrong[] = {
		{ "", "", NULL },
		{ "sign_mode", "identity", NULL },
		{ "version", NULL, "version: missing" },
		{ "version", "3", "version: is none of 1 and 2" },
		{ "version", "2", "tied_output: is true in version 2 alone" },
		{ "block_size", "24", "block_size: is not a power of two" },
		{ "block_size", "0", "block_size: is not a power of two" },
		{ "block_size", "64", "sign_widths: a width is not a multiple" },
		{ "transform", "fourier", "transform: is \"fourier\"" },
		{ "axis", NULL, "axis: is \"\"" },
		{ "sign_mode", "some", "sign_mode: is none" },
		{ "sign_widths", "0", "sign_widths: a width is not a multiple" },
		{ "sign_widths", "64", "sign_values: holds fewer" },
		{ "sign_values", "2", "sign_values: holds another number" },
		{ "sign_values", NULL, "sign_values: holds fewer" },
		{ "weight_names", NULL, "weight_names: is not a list" },
		{ "weight_names", "blk.0.ffn_up.weight",
		  "names \"model.layers.0.mlp.up_proj.weight\", which the model does not have" },
		{ "weight_names", "x", "weight_names: names \"x\", which the model does not have" },
		{ "weight_names", "odd", "weight_names: names \"odd\", which does not end in .weight" },
		{ "inverse_weight_names", "output.weight", "names \"lm_head.weight\", which is there twice" },
	};
	static const int64_t ne[] = { 32, 20, 0 };

	for (size_t c = 0; c < sizeof wrong / sizeof *wrong; c++) {
		char *dir = folder_new();
		struct gguf_made m;
		struct weight w;
		struct store *st;
		struct err err;
		int code;

		gguf_made_init(&m);
		llama_keys(&m);
		put_rotation(&m, wrong[c].key, wrong[c].value);
		gguf_made_tensor(&m, "token_embd.weight", 0, ne, NULL, 4 * 32 * 20);
		gguf_made_tensor(&m, "output.weight", 0, ne, NULL, 4 * 32 * 20);
		gguf_made_tensor(&m, "odd", 0, ne, NULL, 4 * 32 * 20);
		put_file(dir, "m.gguf", &m);
		code = store_open(&st, folder_path(dir, "m.gguf"), &err);
		if (wrong[c].says) {
			assert_int_not_equal(code, 0);
			assert_says(&err, wrong[c].says);
		} else {
			assert_int_equal(code, 0);
			assert_int_equal(store_weight(st, "lm_head", 20, 32, &w, &err), 0);
			assert_non_null(w.basis);
			assert_int_equal(w.basis->block, 32);
			assert_int_equal(w.basis->sign != NULL, wrong[c].key[0] == 0);
			store_close(st);
		}
		gguf_made_fini(&m);
		folder_remove(dir);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),     cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_values),    cmocka_unit_test(test_model),
		cmocka_unit_test(test_refused),   cmocka_unit_test(test_split),
		cmocka_unit_test(test_pick),      cmocka_unit_test(test_names_of_pre_tokenizers),
		cmocka_unit_test(test_templates), cmocka_unit_test(test_type_42),
		cmocka_unit_test(test_rotated),   cmocka_unit_test(test_windows_refused),
	};

	if (argc != 2) {
		fprintf(stderr, "usage: test_gguf tests/golden/_gguf/container\n");
		return 2;
	}
	cases = argv[1];
	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
