/* made_model.c - see made_model.h. */
#include "made_model.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"

const struct made_shape made_shapes[] = {
	{ "tiny", 256, 8, 2, 1, 2, 4, 512, 512 },
	{ "0.8b", 1024, 24, 8, 2, 16, 16, 3584, 248320 },
	{ "4b", 2560, 32, 16, 4, 16, 32, 9216, 248320 },
	{ NULL, 0, 0, 0, 0, 0, 0, 0, 0 },
};

enum { TENSORS = 2048, HEAD = 256, REC = 128, GROUP = 64, WIDTH = 4 };
enum fill { CODES, SCALES, BIASES, ONES, SMALL, HALVES };
struct made {
	FILE *f;
	char *head;
	size_t head_n, head_cap, at;
	struct {
		size_t bytes;
		enum fill fill;
	} tensor[TENSORS];
	int n;
	uint64_t seed;
};

static void name_tensor(struct made *m, const char *name, const char *type, int rows, int cols, int third, int each,
                        enum fill fill)
{
	size_t bytes = (size_t)rows * (size_t)(cols ? cols : 1) * (size_t)(third ? third : 1) * (size_t)each;
	char line[400], shape[64];

	snprintf(shape, sizeof shape, third ? "%d,%d,%d" : cols ? "%d,%d" : "%d", rows, cols, third);
	snprintf(line, sizeof line,
	         "%s\"language_model.model.%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
	         m->n ? "," : "", name, type, shape, m->at, m->at + bytes);
	if (m->head_n + strlen(line) + 1 > m->head_cap)
		m->head = xrealloc(m->head, m->head_cap = 2 * m->head_cap + sizeof line);
	strcpy(m->head + m->head_n, line);
	m->head_n += strlen(line);
	m->tensor[m->n].bytes = bytes;
	m->tensor[m->n++].fill = fill;
	m->at += bytes;
}

static void matrix(struct made *m, const char *at, const char *what, int rows, int cols)
{
	char name[200];

	snprintf(name, sizeof name, "%s%s.weight", at, what);
	name_tensor(m, name, "U32", rows, cols / 8, 0, 4, CODES);
	snprintf(name, sizeof name, "%s%s.scales", at, what);
	name_tensor(m, name, "BF16", rows, cols / GROUP, 0, 2, SCALES);
	snprintf(name, sizeof name, "%s%s.biases", at, what);
	name_tensor(m, name, "BF16", rows, cols / GROUP, 0, 2, BIASES);
}

static void vector(struct made *m, const char *at, const char *what, const char *type, int n, enum fill fill)
{
	char name[200];

	snprintf(name, sizeof name, "%s%s", at, what);
	name_tensor(m, name, type, n, 0, 0, !strcmp(type, "F32") ? 4 : 2, fill);
}

static void layer(struct made *m, const struct made_shape *s, int i)
{
	int keys = s->rec_keys * REC, values = s->rec_values * REC, h = s->hidden;
	char at[64], name[100];

	snprintf(at, sizeof at, "layers.%d.", i);
	vector(m, at, "input_layernorm.weight", "BF16", h, ONES);
	vector(m, at, "post_attention_layernorm.weight", "BF16", h, ONES);
	matrix(m, at, "mlp.gate_proj", s->inner, h);
	matrix(m, at, "mlp.up_proj", s->inner, h);
	matrix(m, at, "mlp.down_proj", h, s->inner);
	if (i % 4 == 3) {
		matrix(m, at, "self_attn.q_proj", 2 * s->heads * HEAD, h);
		matrix(m, at, "self_attn.k_proj", s->heads_kv * HEAD, h);
		matrix(m, at, "self_attn.v_proj", s->heads_kv * HEAD, h);
		matrix(m, at, "self_attn.o_proj", h, s->heads * HEAD);
		vector(m, at, "self_attn.q_norm.weight", "BF16", HEAD, ONES);
		vector(m, at, "self_attn.k_norm.weight", "BF16", HEAD, ONES);
		return;
	}
	matrix(m, at, "linear_attn.in_proj_qkv", 2 * keys + values, h);
	matrix(m, at, "linear_attn.in_proj_z", values, h);
	matrix(m, at, "linear_attn.in_proj_a", s->rec_values, h);
	matrix(m, at, "linear_attn.in_proj_b", s->rec_values, h);
	matrix(m, at, "linear_attn.out_proj", h, values);
	vector(m, at, "linear_attn.norm.weight", "BF16", REC, ONES);
	vector(m, at, "linear_attn.dt_bias", "BF16", s->rec_values, SMALL);
	vector(m, at, "linear_attn.A_log", "F32", s->rec_values, HALVES);
	snprintf(name, sizeof name, "%slinear_attn.conv1d.weight", at);
	name_tensor(m, name, "BF16", 2 * keys + values, WIDTH, 1, 2, SMALL);
}

static uint64_t next(struct made *m)
{
	m->seed ^= m->seed << 13, m->seed ^= m->seed >> 7, m->seed ^= m->seed << 17;
	return m->seed;
}

static void fill(struct made *m, uint64_t *to, size_t n, enum fill how)
{
	static const struct {
		uint64_t mask, set; /* of four bf16 numbers: the bits that chance sets, and those of all */
	} of[] = {
		[CODES] = { UINT64_MAX, 0 },
		[SCALES] = { 0x003f003f003f003f, 0x3b803b803b803b80 }, /* about 2^-8 */
		[BIASES] = { 0x003f003f003f003f, 0xbd00bd00bd00bd00 }, /* - 2^-5 */
		[ONES] = { 0x001f001f001f001f, 0x3f803f803f803f80 },
		[SMALL] = { 0x807f807f807f807f, 0x3d803d803d803d80 },
		[HALVES] = { 0x007fffff007fffff, 0x3f0000003f000000 }, /* of two f32 */
	};

	for (size_t i = 0; i < n; i++)
		to[i] = (next(m) & of[how].mask) | of[how].set;
}

static void ended(const char *folder)
{
	perror(folder);
	exit(1);
}

static void config(const struct made_shape *s, const char *folder)
{
	char path[600];
	FILE *f;

	snprintf(path, sizeof path, "%s/config.json", folder);
	f = fopen(path, "w");
	if (!f)
		ended(path);
	fprintf(f,
	        "{\"architectures\":[\"Qwen3_5ForConditionalGeneration\"],\"model_type\":\"qwen3_5\",\"eos_token_id\":2,"
	        "\"quantization\":{\"group_size\":64,\"bits\":4,\"mode\":\"affine\"},\"tie_word_embeddings\":true,\"text_config\":{"
	        "\"model_type\":\"qwen3_5_text\",\"attn_output_gate\":true,\"full_attention_interval\":4,\"hidden_act\":\"silu\","
	        "\"linear_conv_kernel_dim\":4,\"max_position_embeddings\":32768,\"rms_norm_eps\":1e-06,\"vocab_size\":%d,"
	        "\"hidden_size\":%d,\"intermediate_size\":%d,\"num_hidden_layers\":%d,\"num_attention_heads\":%d,"
	        "\"num_key_value_heads\":%d,\"head_dim\":256,\"linear_num_key_heads\":%d,\"linear_num_value_heads\":%d,"
	        "\"linear_key_head_dim\":128,\"linear_value_head_dim\":128,\"tie_word_embeddings\":true,\"layer_types\":[",
	        s->vocab, s->hidden, s->inner, s->layers, s->heads, s->heads_kv, s->rec_keys, s->rec_values);
	for (int i = 0; i < s->layers; i++)
		fprintf(f, "%s\"%s\"", i ? "," : "", i % 4 == 3 ? "full_attention" : "linear_attention");
	fprintf(f,
	        "],\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":10000000,\"partial_rotary_factor\":0.25,"
	        "\"mrope_interleaved\":true,\"mrope_section\":[11,11,10]}}}\n");
	if (fclose(f))
		ended(path);
}

void made_model(const struct made_shape *s, const char *folder)
{
	enum { PIECE = 1 << 16 };
	struct made *m = xcalloc(1, sizeof *m);
	uint64_t *piece = xmalloc(PIECE * sizeof *piece), length;
	char path[600];

	m->seed = 88172645463325252u;
	mkdir(folder, 0777);
	config(s, folder);
	matrix(m, "", "embed_tokens", s->vocab, s->hidden);
	vector(m, "", "norm.weight", "BF16", s->hidden, ONES);
	for (int i = 0; i < s->layers; i++)
		layer(m, s, i);
	snprintf(path, sizeof path, "%s/model.safetensors", folder);
	m->f = fopen(path, "wb");
	if (!m->f)
		ended(path);
	length = m->head_n + 2;
	fwrite(&length, sizeof length, 1, m->f);
	fprintf(m->f, "{%s}", m->head);
	for (int i = 0; i < m->n; i++)
		for (size_t left = m->tensor[i].bytes, n; left; left -= n) {
			n = left < PIECE * sizeof *piece ? left : PIECE * sizeof *piece;
			fill(m, piece, (n + 7) / 8, m->tensor[i].fill);
			if (fwrite(piece, 1, n, m->f) != n)
				ended(path);
		}
	if (fclose(m->f))
		ended(path);
	free(piece);
	free(m->head);
	free(m);
}
