/* Loading: what real sizes amount to, and what each broken folder is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "folder.h"
#include "made.h"
#include "model/model.h"
#include "store/store.h"

static void assert_says(const struct err *err, const char *parts)
{
	char want[512], *part, *save = NULL;

	snprintf(want, sizeof want, "%s", parts);
	for (part = strtok_r(want, "|", &save); part; part = strtok_r(NULL, "|", &save))
		if (!strstr(err->msg, part))
			fail_msg("\"%s\" does not say \"%s\"", err->msg, part);
	assert_null(strchr(err->msg, '\n'));
}

/* ---- real sizes ---- */

/* The published configurations and the text parameters of their checkpoints. */
static const struct {
	const char *name;
	struct made_qwen q;
	int64_t params, kv_row, state;
} sizes[] = {
	{ "0.8B", { 1024, 24, 8, 2, 256, 16, 16, 3584, 0, 0, 0, 0, 248320, 1, 0 }, 752393024, 12288, 18874368 },
	{ "35B-A3B",
	  { 2048, 40, 16, 2, 256, 16, 32, 0, 256, 8, 512, 512, 248320, 0, 0 },
	  34660610688,
	  20480,
	  62914560 },
	{ "Next-80B-A3B",
	  { 2048, 48, 16, 2, 256, 16, 32, 5120, 512, 10, 512, 512, 151936, 0, 1 },
	  79674391296,
	  24576,
	  75497472 },
	{ "2B", { 2048, 24, 8, 2, 256, 16, 16, 6144, 0, 0, 0, 0, 248320, 1, 0 }, 1881825088, 12288, 18874368 },
	{ "4B", { 2560, 32, 16, 4, 256, 16, 32, 9216, 0, 0, 0, 0, 248320, 1, 0 }, 4205751296, 32768, 50331648 },
	{ "9B", { 4096, 32, 16, 4, 256, 16, 32, 12288, 0, 0, 0, 0, 248320, 0, 0 }, 8953803264, 32768, 50331648 },
	{ "27B", { 5120, 64, 24, 4, 256, 16, 48, 17408, 0, 0, 0, 0, 248320, 0, 0 }, 26895998464, 65536, 150994944 },
	{ "122B-A10B",
	  { 3072, 48, 32, 2, 256, 16, 64, 0, 256, 8, 1024, 1024, 248320, 0, 0 },
	  122111526912,
	  24576,
	  150994944 },
	{ "397B-A17B",
	  { 4096, 60, 32, 2, 256, 16, 64, 0, 512, 10, 1024, 1024, 248320, 0, 0 },
	  396346350336,
	  30720,
	  188743680 },
};

static void test_real_sizes(void **state)
{
	const struct kv_format *bf16 = kv_format_find("bf16");
	size_t n = getenv("WEFT_TEST_QUICK") ? 2 : sizeof sizes / sizeof *sizes;

	for (size_t i = 0; i < n; i++) {
		char *dir = folder_new();
		struct store *st;
		struct model *m;
		struct made t;
		struct err err = { 0 };
		struct buf config;

		made_init(&t);
		made_qwen_tensors(&t, &sizes[i].q);
		made_add(&t, "BF16", 2, sizes[i].q.hidden, 2 * sizes[i].q.hidden, 0, "mtp.fc.weight");
		if (made_write(&t, dir, "model.safetensors", 0)) {
			printf("%s: not tried, this file system has no room for the hole\n", sizes[i].name);
			folder_remove(dir);
			continue;
		}
		buf_init(&config);
		made_qwen_config(&config, &sizes[i].q);
		folder_puts(dir, "config.json", config.p);
		buf_fini(&config);
		if (store_open(&st, dir, &err) || model_bind(&m, st, &err))
			fail_msg("%s: %s", sizes[i].name, err.msg);
		if (m->shape.params != sizes[i].params)
			fail_msg("%s: %lld parameters, published are %lld", sizes[i].name, (long long)m->shape.params,
			         (long long)sizes[i].params);
		assert_int_equal(model_kv_row_bytes(&m->shape, &(struct kv_rows){ .all = { bf16, bf16 } }),
		                 sizes[i].kv_row);
		assert_int_equal((size_t)m->shape.layers_rec * state_floats(&m->shape.state) * sizeof(float),
		                 sizes[i].state);
		assert_non_null(store_find(st, "mtp.fc.weight")->ignored);
		model_close(m);
		store_close(st);
		folder_remove(dir);
	}
}

/* ---- broken folders ---- */

static const struct made_qwen tiny = { 64, 4, 2, 1, 32, 1, 2, 96, 0, 0, 0, 0, 128, 0, 0 };
static const struct made_qwen tiny_moe = { 64, 4, 2, 1, 32, 1, 2, 0, 4, 2, 32, 32, 128, 0, 0 };
static const struct made_qwen tiny_next = { 64, 4, 2, 1, 32, 1, 2, 96, 4, 2, 32, 32, 128, 0, 1 };

/* Writes q's folder with m's breakage; the config with `from` replaced by `to`. */
static void make(const char *dir, const struct made_qwen *q, struct made *m, const char *from, const char *to,
                 uint64_t cut)
{
	struct buf config, out;
	char *at;

	made_qwen_tensors(m, q);
	assert_int_equal(made_write(m, dir, "model.safetensors", cut), 0);
	buf_init(&config);
	buf_init(&out);
	made_qwen_config(&config, q);
	at = from ? strstr(config.p, from) : NULL;
	if (from)
		assert_non_null(at);
	if (at) {
		buf_put(&out, config.p, (size_t)(at - config.p));
		buf_puts(&out, to);
		buf_puts(&out, at + strlen(from));
	}
	folder_puts(dir, "config.json", at ? out.p : config.p);
	buf_fini(&config);
	buf_fini(&out);
}

static void load_says(const char *dir, int code, const char *says)
{
	struct store *st = NULL;
	struct model *m = NULL;
	struct err err = { 0 };
	int got = store_open(&st, dir, &err);

	if (!got)
		got = model_bind(&m, st, &err);
	if (got != code)
		fail_msg("code %d (%s), expected %d: %s", got, err.msg, code, says);
	if (code)
		assert_says(&err, says);
	model_close(m);
	store_close(st);
}

static void test_sound(void **state)
{
	const struct made_qwen *q[] = { &tiny, &tiny_moe, &tiny_next };

	for (int i = 0; i < 3; i++) {
		char *dir = folder_new();
		struct made m;

		made_init(&m);
		make(dir, q[i], &m, NULL, NULL, 0);
		load_says(dir, 0, "");
		folder_remove(dir);
	}
}

struct tensor_case {
	const struct made_qwen *q;
	const char *name, *dtype;
	int64_t dim[3], shift;
	uint64_t cut;
	int code;
	const char *says;
};

static const struct tensor_case tensor_cases[] = {
	/* missing */
	{ &tiny,
	  "layers.2.mlp.up_proj.weight",
	  NULL,
	  { 0 },
	  0,
	  0,
	  E_MISSING,
	  "tensor model.language_model.layers.2.mlp.up_proj.weight: missing" },
	{ &tiny,
	  "layers.3.self_attn.k_norm.weight",
	  NULL,
	  { 0 },
	  0,
	  0,
	  E_MISSING,
	  "layers.3.self_attn.k_norm.weight: missing" },
	{ &tiny, "embed_tokens.weight", NULL, { 0 }, 0, 0, E_MISSING, "embed_tokens.weight: missing" },
	{ &tiny, "lm_head.weight", NULL, { 0 }, 0, 0, E_MISSING, "lm_head.weight: missing|tie_word_embeddings" },
	{ &tiny_next,
	  "experts.3.down_proj.weight",
	  NULL,
	  { 0 },
	  0,
	  0,
	  E_MISSING,
	  "layers.0.mlp.experts.3.down_proj.weight: missing" },
	/* shapes that the config contradicts */
	{ &tiny,
	  "layers.3.self_attn.q_proj.weight",
	  NULL,
	  { 64, 64 },
	  0,
	  0,
	  E_FORMAT,
	  "model.safetensors: tensor model.language_model.layers.3.self_attn.q_proj.weight|[64, 64]|config.json|[128, 64]" },
	{ &tiny,
	  "layers.0.linear_attn.in_proj_qkv.weight",
	  NULL,
	  { 512, 32 },
	  0,
	  0,
	  E_FORMAT,
	  "in_proj_qkv.weight|[512, 32]|[512, 64]" },
	{ &tiny,
	  "layers.1.input_layernorm.weight",
	  NULL,
	  { 63 },
	  0,
	  0,
	  E_FORMAT,
	  "layers.1.input_layernorm.weight|[63]|[64]" },
	{ &tiny,
	  "layers.0.linear_attn.conv1d.weight",
	  NULL,
	  { 512, 1, 3 },
	  0,
	  0,
	  E_FORMAT,
	  "conv1d.weight|[512, 1, 3]|[2048]" },
	{ &tiny_moe,
	  "layers.0.mlp.experts.gate_up_proj",
	  NULL,
	  { 4, 32, 64 },
	  0,
	  0,
	  E_FORMAT,
	  "experts.gate_up_proj|[4, 32, 64]|[4, 64, 64]" },
	{ &tiny_moe,
	  "layers.1.mlp.experts.down_proj",
	  NULL,
	  { 3, 64, 32 },
	  0,
	  0,
	  E_FORMAT,
	  "experts.down_proj|[3, 64, 32]|[4, 64, 32]" },
	{ &tiny_next,
	  "layers.0.linear_attn.in_proj_ba.weight",
	  NULL,
	  { 2, 64 },
	  0,
	  0,
	  E_FORMAT,
	  "in_proj_ba.weight|[2, 64]|[4, 64]" },
	/* types */
	{ &tiny,
	  "layers.0.mlp.down_proj.weight",
	  "I16",
	  { 0 },
	  0,
	  0,
	  E_FORMAT,
	  "layers.0.mlp.down_proj.weight|I16|BF16, F16 or F32" },
	{ &tiny, "layers.0.linear_attn.A_log", "I32", { 0 }, 0, 0, E_FORMAT, "linear_attn.A_log|I32" },
	{ &tiny,
	  "model.language_model.norm.weight",
	  "Q4",
	  { 0 },
	  0,
	  0,
	  E_FORMAT,
	  "model.language_model.norm.weight|is Q4, a vector is read as" },
	{ &tiny_next,
	  "layers.0.mlp.experts.1.up_proj.weight",
	  "F16",
	  { 0 },
	  0,
	  0,
	  E_UNSUPPORTED,
	  "experts.1.up_proj|f16 in groups of 0|layer 0 are bf16" },
	{ &tiny_next,
	  "layers.0.mlp.experts.2.down_proj.weight",
	  "F16",
	  { 0 },
	  0,
	  0,
	  E_UNSUPPORTED,
	  "experts.2.down_proj|f16|layer 0 are bf16" },
	/* places */
	{ &tiny,
	  "layers.0.mlp.down_proj.weight",
	  NULL,
	  { 0 },
	  -2,
	  0,
	  E_FORMAT,
	  "tensor model.language_model.layers.0.mlp.down_proj.weight|inside tensor" },
	{ &tiny,
	  "layers.0.mlp.down_proj.weight",
	  NULL,
	  { 0 },
	  1 << 30,
	  0,
	  E_FORMAT,
	  "layers.0.mlp.down_proj.weight: ends at byte" },
	{ &tiny, NULL, NULL, { 0 }, 0, 1, E_FORMAT, "layers.3.mlp.down_proj.weight: ends at byte|truncated" },
};

static void test_broken_tensors(void **state)
{
	for (size_t i = 0; i < sizeof tensor_cases / sizeof *tensor_cases; i++) {
		const struct tensor_case *c = &tensor_cases[i];
		char *dir = folder_new();
		struct made m;

		made_init(&m);
		m.break_name = c->name;
		m.break_dtype = c->dtype;
		memcpy(m.break_dim, c->dim, sizeof c->dim);
		m.break_shift = c->shift;
		make(dir, c->q, &m, NULL, NULL, c->cut);
		load_says(dir, c->code, c->says);
		folder_remove(dir);
	}
}

struct config_case {
	const struct made_qwen *q;
	const char *from, *to;
	int code;
	const char *says;
};

static const struct config_case config_cases[] = {
	{ &tiny, "\"qwen3_5\"", "\"deberta-v2\"", E_UNSUPPORTED,
	  "config.json|\"deberta-v2\"|an encoder whose attention" },
	{ &tiny, "\"qwen3_5\"", "\"deepseek_v41\"", E_UNSUPPORTED,
	  "config.json|\"deepseek_v41\"|it has Engram tables" },
	{ &tiny, "\"qwen3_5\"", "\"qwen3_55\"", E_UNSUPPORTED, "config.json|\"qwen3_55\"|nearest|docs/models.md" },
	{ &tiny, "\"model_type\"", "\"kind\"", E_MISSING, "config.json: model_type: missing" },
	{ &tiny, "\"hidden_size\":64,", "", E_MISSING, "config.json: text_config.hidden_size: missing" },
	{ &tiny, "\"hidden_size\":64,", "\"hidden_size\":null,", E_MISSING, "text_config.hidden_size: missing" },
	{ &tiny, "\"hidden_size\":64,", "\"hidden_size\":\"64\",", E_FORMAT, "text_config.hidden_size: is string" },
	{ &tiny, "\"hidden_size\":64,", "\"hidden_size\":0,", E_FORMAT,
	  "text_config.hidden_size: 0 is not between 1 and" },
	{ &tiny, "\"num_hidden_layers\":4", "\"num_hidden_layers\":5000", E_FORMAT, "num_hidden_layers: 5000" },
	{ &tiny, "\"num_hidden_layers\":4", "\"num_hidden_layers\":4,\"layer_types\":[\"full_attention\"]", E_FORMAT,
	  "layer_types: has 1 entries, num_hidden_layers is 4" },
	{ &tiny, "\"full_attention_interval\":4", "\"layer_types\":[\"x\",\"x\",\"x\",\"x\"]", E_UNSUPPORTED,
	  "layer_types: layer 0 is \"x\"" },
	{ &tiny, "\"full_attention_interval\":4,", "", E_MISSING, "full_attention_interval: missing" },
	{ &tiny, "\"num_key_value_heads\":1", "\"num_key_value_heads\":3", E_FORMAT,
	  "num_attention_heads: 2|num_key_value_heads 3" },
	{ &tiny, "\"linear_num_key_heads\":1", "\"linear_num_key_heads\":4", E_FORMAT,
	  "linear_num_value_heads: 2|linear_num_key_heads 4" },
	{ &tiny, "\"hidden_act\":\"silu\"", "\"hidden_act\":\"gelu\"", E_UNSUPPORTED, "hidden_act: \"gelu\"" },
	{ &tiny, "\"hidden_act\":\"silu\"", "\"output_gate_type\":\"tanh\"", E_UNSUPPORTED,
	  "output_gate_type: \"tanh\"|sigmoid" },
	{ &tiny, "\"hidden_act\":\"silu\"", "\"attn_output_gate\":false", E_UNSUPPORTED, "attn_output_gate" },
	{ &tiny, "\"rope_theta\":1e7,", "", E_MISSING, "rope_theta: missing" },
	{ &tiny, "\"rope_type\":\"default\"", "\"rope_type\":\"spiral\"", E_UNSUPPORTED,
	  "rope_parameters.rope_type \"spiral\"" },
	{ &tiny, "\"rope_type\":\"default\"", "\"rope_type\":\"longrope\"", E_MISSING,
	  "rope_parameters.short_factor: missing" },
	{ &tiny, "\"rope_type\":\"default\"", "\"rope_type\":\"yarn\"", E_MISSING, "rope_parameters.factor: missing" },
	{ &tiny, "\"partial_rotary_factor\":0.25", "\"partial_rotary_factor\":0.04", E_FORMAT,
	  "partial_rotary_factor: 0.04 of 32" },
	{ &tiny, "\"intermediate_size\":96", "\"other\":1", E_MISSING, "intermediate_size: missing" },
	{ &tiny_moe, "\"num_experts_per_tok\":2", "\"num_experts_per_tok\":5", E_FORMAT,
	  "num_experts_per_tok: 5|1 and 4" },
	{ &tiny_moe, "\"num_experts\":4", "\"num_experts\":8", E_FORMAT, "mlp.gate.weight|[4, 64]|[8, 64]" },
	{ &tiny, "\"vocab_size\":128", "\"vocab_size\":256", E_FORMAT, "embed_tokens.weight|[128, 64]|[256, 64]" },
	{ &tiny, "\"model_type\"", "\"quantization_config\":{\"quant_method\":\"bitsandbytes\"},\"model_type\"",
	  E_UNSUPPORTED, "\"bitsandbytes\"" },
	{ &tiny, "\"model_type\"", "\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":5},\"model_type\"",
	  E_UNSUPPORTED, "quantization_config.bits: 5 bits" },
	{ &tiny, "\"model_type\"",
	  "\"quantization_config\":{\"quant_method\":\"awq\",\"version\":\"gemv\"},\"model_type\"", E_UNSUPPORTED,
	  "\"gemv\"|gemm" },
	/* the config speaks of a coding that the tensors do not have */
	{ &tiny, "\"model_type\"",
	  "\"quantization\":{\"bits\":4,\"group_size\":64,\"model.layers.2.mlp.up_proj\":{\"bits\":8}},"
	  "\"model_type\"",
	  E_MISSING, "layers.2.mlp.up_proj.scales: missing|8 bits" },
};

static void test_broken_configs(void **state)
{
	for (size_t i = 0; i < sizeof config_cases / sizeof *config_cases; i++) {
		const struct config_case *c = &config_cases[i];
		char *dir = folder_new();
		struct made m;

		made_init(&m);
		make(dir, c->q, &m, c->from, c->to, 0);
		load_says(dir, c->code, c->says);
		folder_remove(dir);
	}
}

/* ---- weights in another basis ---- */

static const char *latent; /* a folder of a model with latent attention */

/* Says beside a model that a matrix is in a rotated basis, and loads it. */
static void rotated_says(const char *dir, const char *name, int code, const char *says)
{
	char text[512];

	snprintf(text, sizeof text,
	         "{\"prism.hadamard.version\":1,\"prism.hadamard.block_size\":8,"
	         "\"prism.hadamard.transform\":\"normalized-sylvester-walsh-hadamard\","
	         "\"prism.hadamard.axis\":\"input-last-dimension\",\"prism.hadamard.sign_mode\":\"identity\","
	         "\"prism.hadamard.weight_names\":[\"%s\"]}",
	         name);
	folder_puts(dir, "hadamard.json", text);
	load_says(dir, code, says);
}

/* Matrices whose operations do not turn their inputs are refused. */
static void test_rotated(void **state)
{
	static const struct {
		const struct made_qwen *q;
		const char *name;
		int code; /* 0: it is read */
		const char *says;
	} cases[] = {
		{ &tiny, "model.language_model.layers.0.mlp.down_proj.weight", 0, "" },
		{ &tiny_moe, "model.language_model.layers.0.mlp.shared_expert.up_proj.weight", 0, "" },
		{ &tiny_moe, "model.language_model.layers.1.mlp.gate.weight", E_UNSUPPORTED,
		  "layers.1.mlp.gate.weight|routers" },
		{ &tiny_moe, "model.language_model.layers.1.mlp.shared_expert_gate.weight", E_UNSUPPORTED,
		  "shared_expert_gate.weight|routers" },
		{ &tiny_moe, "model.language_model.layers.1.mlp.experts.down_proj", E_FORMAT,
		  "experts.down_proj|does not end in .weight" },
		{ &tiny_next, "model.layers.1.mlp.experts.2.up_proj.weight", E_UNSUPPORTED,
		  "experts.2.up_proj.weight|experts" },
	};
	static const char *const files[] = { "config.json", "model.safetensors" };
	char *dir;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct made m;

		dir = folder_new();
		made_init(&m);
		make(dir, cases[i].q, &m, NULL, NULL, 0);
		rotated_says(dir, cases[i].name, cases[i].code, cases[i].says);
		folder_remove(dir);
	}
	dir = folder_new();
	for (int i = 0; i < 2; i++) {
		char from[4096];

		snprintf(from, sizeof from, "%s/%s", latent, files[i]);
		assert_int_equal(symlink(from, folder_path(dir, files[i])), 0);
	}
	rotated_says(dir, "model.layers.1.self_attn.o_proj.weight", 0, "");
	rotated_says(dir, "model.layers.1.self_attn.kv_b_proj.weight", E_UNSUPPORTED, "kv_b_proj.weight|heads");
	folder_remove(dir);
}

/* What nothing uses is named, with a reason. */
static void test_ignored(void **state)
{
	char *dir = folder_new();
	struct store *st;
	struct model *model;
	struct made m;
	struct err err = { 0 };

	made_init(&m);
	made_add(&m, "BF16", 1, 4, 0, 0, "model.visual.blocks.0.norm1.weight");
	made_add(&m, "BF16", 1, 4, 0, 0, "model.layers.0.self_attn.rotary_emb.inv_freq");
	made_add(&m, "BF16", 1, 4, 0, 0, "surprise");
	made_add(&m, "BF16", 2, 64, 128, 0, "mtp.fc.weight");
	make(dir, &tiny, &m, NULL, NULL, 0);
	assert_int_equal(store_open(&st, dir, &err), 0);
	assert_int_equal(model_bind(&model, st, &err), 0);
	assert_non_null(strstr(store_find(st, "model.visual.blocks.0.norm1.weight")->ignored, "vision"));
	assert_non_null(strstr(store_find(st, "mtp.fc.weight")->ignored, "draft"));
	assert_non_null(strstr(store_find(st, "model.layers.0.self_attn.rotary_emb.inv_freq")->ignored, "config"));
	assert_non_null(strstr(store_find(st, "surprise")->ignored, "not used"));
	for (size_t i = 0; i < st->n; i++)
		assert_true(!st->v[i]->used != !st->v[i]->ignored);
	model_close(model);
	store_close(st);
	folder_remove(dir);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sound),          cmocka_unit_test(test_broken_tensors),
		cmocka_unit_test(test_broken_configs), cmocka_unit_test(test_ignored),
		cmocka_unit_test(test_real_sizes),     cmocka_unit_test(test_rotated),
	};

	if (argc != 2)
		return 2;
	latent = argv[1];
	log_set_level((enum log_level) - 1); /* the warnings are what is tested */
	return cmocka_run_group_tests_name("loader", tests, NULL, NULL);
}
