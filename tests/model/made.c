/* made.c - see made.h. */
#include "made.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void made_init(struct made *m)
{
	*m = (struct made){ 0 };
	buf_init(&m->head);
	buf_putc(&m->head, '{');
}

void made_add(struct made *m, const char *dtype, int n_dim, int64_t d0, int64_t d1, int64_t d2, const char *fmt, ...)
{
	int64_t dim[3] = { d0, d1, d2 };
	int64_t shift = 0;
	uint64_t bytes;
	char name[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof name, fmt, ap);
	va_end(ap);
	if (m->break_name && strlen(name) >= strlen(m->break_name) &&
	    !strcmp(name + strlen(name) - strlen(m->break_name), m->break_name)) {
		if (!m->break_dtype && !m->break_dim[0] && !m->break_shift)
			return;
		dtype = m->break_dtype ? m->break_dtype : dtype;
		for (int i = 0; i < 3; i++)
			dim[i] = m->break_dim[i] ? m->break_dim[i] : dim[i];
		shift = m->break_shift;
	}
	bytes = !strcmp(dtype, "F32") || !strcmp(dtype, "I32") ? 4 : 2;
	buf_printf(&m->head, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", m->head.n > 1 ? "," : "", name, dtype);
	for (int i = 0; i < n_dim; i++) {
		buf_printf(&m->head, "%s%lld", i ? "," : "", (long long)dim[i]);
		bytes *= (uint64_t)dim[i];
	}
	buf_printf(&m->head, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)(m->at + (uint64_t)shift),
	           (unsigned long long)(m->at + (uint64_t)shift + bytes));
	m->at += bytes;
}

int made_write(struct made *m, const char *dir, const char *file, uint64_t cut)
{
	uint8_t len[8];
	char path[8192];
	int fd, bad;

	buf_putc(&m->head, '}');
	for (int i = 0; i < 8; i++)
		len[i] = (uint8_t)((uint64_t)m->head.n >> 8 * i);
	snprintf(path, sizeof path, "%s/%s", dir, file);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	bad = fd < 0 || write(fd, len, 8) != 8 || write(fd, m->head.p, m->head.n) != (ssize_t)m->head.n ||
	      ftruncate(fd, (off_t)(8 + m->head.n + m->at - cut));
	if (bad)
		perror(path);
	if (fd >= 0)
		close(fd);
	buf_fini(&m->head);
	return bad ? -1 : 0;
}

void made_qwen_config(struct buf *out, const struct made_qwen *q)
{
	buf_printf(out, "%s", q->next ? "{" : "{\"model_type\":");
	if (!q->next)
		buf_printf(out, "\"%s\",\"text_config\":{", q->experts ? "qwen3_5_moe" : "qwen3_5");
	else
		buf_printf(
			out,
			"\"model_type\":\"qwen3_next\",\"norm_topk_prob\":true,\"decoder_sparse_step\":1,"
			"\"mlp_only_layers\":[],\"rope_theta\":10000000,\"partial_rotary_factor\":0.25,\"rope_scaling\":null,");
	buf_printf(out,
	           "\"hidden_size\":%d,\"num_hidden_layers\":%d,\"vocab_size\":%d,\"max_position_embeddings\":262144,"
	           "\"rms_norm_eps\":1e-6,\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"head_dim\":%d,"
	           "\"hidden_act\":\"silu\",\"full_attention_interval\":4,\"linear_num_key_heads\":%d,"
	           "\"linear_num_value_heads\":%d,\"linear_key_head_dim\":128,\"linear_value_head_dim\":128,"
	           "\"linear_conv_kernel_dim\":4,\"tie_word_embeddings\":%s",
	           q->hidden, q->layers, q->vocab, q->heads, q->heads_kv, q->dim, q->lin_k, q->lin_v,
	           q->tied ? "true" : "false");
	if (q->experts)
		buf_printf(out,
		           ",\"num_experts\":%d,\"num_experts_per_tok\":%d,\"moe_intermediate_size\":%d,"
		           "\"shared_expert_intermediate_size\":%d",
		           q->experts, q->top_k, q->moe_inner, q->shared);
	else
		buf_printf(out, ",\"intermediate_size\":%d", q->inner);
	if (!q->next)
		buf_printf(out,
		           ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e7,"
		           "\"partial_rotary_factor\":0.25,\"mrope_section\":[%d,%d,%d]}}",
		           (q->dim / 8 + 2) / 3, (q->dim / 8 + 1) / 3, q->dim / 8 / 3);
	buf_putc(out, '}');
}

static void add_ffn(struct made *m, const struct made_qwen *q, const char *at)
{
	int64_t h = q->hidden, e = q->experts, i = q->moe_inner;

	if (!e) {
		made_add(m, "BF16", 2, q->inner, h, 0, "%s.mlp.gate_proj.weight", at);
		made_add(m, "BF16", 2, q->inner, h, 0, "%s.mlp.up_proj.weight", at);
		made_add(m, "BF16", 2, h, q->inner, 0, "%s.mlp.down_proj.weight", at);
		return;
	}
	made_add(m, "BF16", 2, e, h, 0, "%s.mlp.gate.weight", at);
	made_add(m, "BF16", 2, q->shared, h, 0, "%s.mlp.shared_expert.gate_proj.weight", at);
	made_add(m, "BF16", 2, q->shared, h, 0, "%s.mlp.shared_expert.up_proj.weight", at);
	made_add(m, "BF16", 2, h, q->shared, 0, "%s.mlp.shared_expert.down_proj.weight", at);
	made_add(m, "BF16", 2, 1, h, 0, "%s.mlp.shared_expert_gate.weight", at);
	if (!q->next) {
		made_add(m, "BF16", 3, e, 2 * i, h, "%s.mlp.experts.gate_up_proj", at);
		made_add(m, "BF16", 3, e, h, i, "%s.mlp.experts.down_proj", at);
		return;
	}
	for (int k = 0; k < e; k++) {
		made_add(m, "BF16", 2, i, h, 0, "%s.mlp.experts.%d.gate_proj.weight", at, k);
		made_add(m, "BF16", 2, i, h, 0, "%s.mlp.experts.%d.up_proj.weight", at, k);
		made_add(m, "BF16", 2, h, i, 0, "%s.mlp.experts.%d.down_proj.weight", at, k);
	}
}

static void add_attention(struct made *m, const struct made_qwen *q, const char *at)
{
	int64_t h = q->hidden, d = q->dim;

	made_add(m, "BF16", 2, 2 * q->heads * d, h, 0, "%s.self_attn.q_proj.weight", at);
	made_add(m, "BF16", 2, q->heads_kv * d, h, 0, "%s.self_attn.k_proj.weight", at);
	made_add(m, "BF16", 2, q->heads_kv * d, h, 0, "%s.self_attn.v_proj.weight", at);
	made_add(m, "BF16", 2, h, q->heads * d, 0, "%s.self_attn.o_proj.weight", at);
	made_add(m, "BF16", 1, d, 0, 0, "%s.self_attn.q_norm.weight", at);
	made_add(m, "BF16", 1, d, 0, 0, "%s.self_attn.k_norm.weight", at);
}

static void add_delta(struct made *m, const struct made_qwen *q, const char *at)
{
	int64_t h = q->hidden, k = q->lin_k * 128, v = q->lin_v * 128;

	if (q->next) {
		made_add(m, "BF16", 2, 2 * k + 2 * v, h, 0, "%s.linear_attn.in_proj_qkvz.weight", at);
		made_add(m, "BF16", 2, 2 * q->lin_v, h, 0, "%s.linear_attn.in_proj_ba.weight", at);
	} else {
		made_add(m, "BF16", 2, 2 * k + v, h, 0, "%s.linear_attn.in_proj_qkv.weight", at);
		made_add(m, "BF16", 2, v, h, 0, "%s.linear_attn.in_proj_z.weight", at);
		made_add(m, "BF16", 2, q->lin_v, h, 0, "%s.linear_attn.in_proj_b.weight", at);
		made_add(m, "BF16", 2, q->lin_v, h, 0, "%s.linear_attn.in_proj_a.weight", at);
	}
	made_add(m, "BF16", 3, 2 * k + v, 1, 4, "%s.linear_attn.conv1d.weight", at);
	made_add(m, "F32", 1, q->lin_v, 0, 0, "%s.linear_attn.A_log", at);
	made_add(m, "BF16", 1, q->lin_v, 0, 0, "%s.linear_attn.dt_bias", at);
	made_add(m, "F32", 1, 128, 0, 0, "%s.linear_attn.norm.weight", at);
	made_add(m, "BF16", 2, h, v, 0, "%s.linear_attn.out_proj.weight", at);
}

void made_qwen_tensors(struct made *m, const struct made_qwen *q)
{
	const char *trunk = q->next ? "model" : "model.language_model";
	int64_t h = q->hidden;
	char at[128];

	made_add(m, "BF16", 2, q->vocab, h, 0, "%s.embed_tokens.weight", trunk);
	made_add(m, "BF16", 1, h, 0, 0, "%s.norm.weight", trunk);
	if (!q->tied)
		made_add(m, "BF16", 2, q->vocab, h, 0, "lm_head.weight");
	for (int i = 0; i < q->layers; i++) {
		snprintf(at, sizeof at, "%s.layers.%d", trunk, i);
		made_add(m, "BF16", 1, h, 0, 0, "%s.input_layernorm.weight", at);
		made_add(m, "BF16", 1, h, 0, 0, "%s.post_attention_layernorm.weight", at);
		if ((i + 1) % 4 == 0)
			add_attention(m, q, at);
		else
			add_delta(m, q, at);
		add_ffn(m, q, at);
	}
}
