/* gguf_config.c - config.json from the metadata, by architecture.
 *
 * Members are Hugging Face's, so that binders need not know where they come from.
 * Sizes are as the metadata says; binders compare them with the tensors. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "store/gguf/gguf_projector.h"

static int64_t vocabulary(struct gguf_conf *c)
{
	const struct gguf_info *t = gguf_tensor_info(c->m, "token_embd.weight");

	if (!t)
		gguf_conf_fail(c, E_MISSING, "tensor token_embd.weight: missing");
	return t ? t->ne[1] : 1;
}

static int64_t head_dim(struct gguf_conf *c)
{
	int64_t heads = gguf_conf_int(c, "attention.head_count", GGUF_NEEDED);
	int64_t width = gguf_conf_int(c, "embedding_length", GGUF_NEEDED);

	return gguf_conf_int(c, "attention.key_length", heads > 0 ? width / heads : 0);
}

/* A choice of rotation, biases and windows aside, what all have. */
void gguf_put_common(struct gguf_conf *c)
{
	int64_t heads = gguf_conf_int(c, "attention.head_count", GGUF_NEEDED);

	gguf_put_int(c, "hidden_size", gguf_conf_int(c, "embedding_length", GGUF_NEEDED));
	gguf_put_int(c, "num_hidden_layers", c->m->blocks - c->m->drafts);
	if (c->m->drafts && !c->m->arch->mtp_apart)
		gguf_put_int(c, "num_nextn_predict_layers", c->m->drafts);
	gguf_put_int(c, "vocab_size", vocabulary(c));
	gguf_put_int(c, "max_position_embeddings", gguf_conf_int(c, "context_length", GGUF_NEEDED));
	gguf_put_int(c, "num_attention_heads", heads);
	if (gguf_conf_has(c, "attention.layer_norm_epsilon") && !gguf_conf_has(c, "attention.layer_norm_rms_epsilon"))
		gguf_put_float(c, "layer_norm_eps", gguf_conf_float(c, "attention.layer_norm_epsilon", (double)NAN));
	else
		gguf_put_float(c, "rms_norm_eps", gguf_conf_float(c, "attention.layer_norm_rms_epsilon", (double)NAN));
	gguf_put_bool(c, "tie_word_embeddings", !gguf_tensor_info(c->m, "output.weight"));
	gguf_put_str(c, "hidden_act", "silu");
}

static void put_attention(struct gguf_conf *c, double theta)
{
	int64_t heads = gguf_conf_int(c, "attention.head_count", GGUF_NEEDED), dim = head_dim(c);

	gguf_put_int(c, "num_key_value_heads", gguf_conf_int(c, "attention.head_count_kv", heads));
	gguf_put_int(c, "head_dim", dim);
	if (!c->code && gguf_conf_int(c, "attention.value_length", dim) != dim)
		gguf_conf_fail(c, E_UNSUPPORTED, "key %s.attention.value_length: %" PRId64 ", keys have %" PRId64,
		               c->m->arch->name, gguf_conf_int(c, "attention.value_length", dim), dim);
	gguf_put_rope(c, dim, theta);
}

void gguf_config_plain(struct gguf_conf *c)
{
	gguf_put_common(c);
	put_attention(c, 10000);
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_bool(c, "attention_bias",
	              gguf_conf_has_tensor(c, "blk.0.attn_q.bias") || gguf_conf_has_tensor(c, "blk.0.attn_qkv.bias"));
}

void gguf_config_llama(struct gguf_conf *c)
{
	gguf_config_plain(c);
	gguf_put_bool(c, "mlp_bias", gguf_conf_has_tensor(c, "blk.0.ffn_gate.bias"));
}

static void put_experts(struct gguf_conf *c)
{
	gguf_put_int(c, "num_experts", gguf_conf_int(c, "expert_count", GGUF_NEEDED));
	gguf_put_int(c, "num_experts_per_tok", gguf_conf_int(c, "expert_used_count", GGUF_NEEDED));
	gguf_put_int(c, "moe_intermediate_size", gguf_conf_int(c, "expert_feed_forward_length", GGUF_NEEDED));
	gguf_put_bool(c, "norm_topk_prob", gguf_conf_bool(c, "expert_weights_norm", true));
}

void gguf_config_qwen3_moe(struct gguf_conf *c)
{
	gguf_config_plain(c);
	put_experts(c);
}

/* Blocks without a router are dense. */
void gguf_config_qwen2_moe(struct gguf_conf *c)
{
	bool first = true;

	gguf_config_plain(c);
	gguf_put_int(c, "num_experts", gguf_conf_int(c, "expert_count", GGUF_NEEDED));
	gguf_put_int(c, "num_experts_per_tok", gguf_conf_int(c, "expert_used_count", GGUF_NEEDED));
	gguf_put_int(c, "moe_intermediate_size", gguf_conf_int(c, "expert_feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "shared_expert_intermediate_size",
	             gguf_conf_int(c, "expert_shared_feed_forward_length", GGUF_NEEDED));
	gguf_put_bool(c, "norm_topk_prob", gguf_conf_bool(c, "expert_weights_norm", false));
	gguf_put_name(c, "mlp_only_layers");
	buf_putc(c->out, '[');
	for (int64_t i = 0; i < c->m->blocks && !c->code; i++) {
		char router[64];

		snprintf(router, sizeof router, "blk.%" PRId64 ".ffn_gate_inp.weight", i);
		if (gguf_conf_has_tensor(c, router))
			continue;
		buf_printf(c->out, "%s%" PRId64, first ? "" : ",", i);
		first = false;
	}
	buf_putc(c->out, ']');
}

/* A window in all layers, where the metadata has one. */
void gguf_config_phi3(struct gguf_conf *c)
{
	int64_t window = gguf_conf_int(c, "attention.sliding_window", 0);

	gguf_config_plain(c);
	if (window)
		gguf_put_int(c, "sliding_window", window);
}

void gguf_config_granite_dense(struct gguf_conf *c)
{
	gguf_config_plain(c);
	gguf_put_bool(c, "mlp_bias", gguf_conf_has_tensor(c, "blk.0.ffn_gate.bias"));
	gguf_put_scales(c);
}

/* ---- gated delta nets ---- */

/* Which blocks are attention: a list, or every n-th. */
static void put_layer_types(struct gguf_conf *c)
{
	int64_t every = gguf_conf_int(c, "full_attention_interval", 4);

	if (!c->code && every < 1)
		gguf_conf_fail(c, E_FORMAT, "key %s.full_attention_interval: %" PRId64, c->m->arch->name, every);
	if (c->code)
		return;
	gguf_put_name(c, "layer_types");
	buf_putc(c->out, '[');
	for (int64_t i = 0; i < c->m->blocks - c->m->drafts && !c->code; i++) {
		bool recurrent = gguf_conf_block_int(c, "attention.recurrent_layers", i, (i + 1) % every != 0);

		buf_puts(c->out, i ? "," : "");
		json_put_cstr(c->out, recurrent ? "linear_attention" : "full_attention");
	}
	buf_putc(c->out, ']');
}

static void put_delta(struct gguf_conf *c)
{
	int64_t dim = gguf_conf_int(c, "ssm.state_size", GGUF_NEEDED),
		values = gguf_conf_int(c, "ssm.time_step_rank", GGUF_NEEDED);
	int64_t inner = gguf_conf_int(c, "ssm.inner_size", GGUF_NEEDED);

	if (!c->code && (dim < 1 || values < 1 || values > INT32_MAX || dim > INT32_MAX || inner != dim * values))
		gguf_conf_fail(c, E_FORMAT,
		               "key %s.ssm.inner_size: %" PRId64 ", %" PRId64 " heads of %" PRId64 " are wanted",
		               c->m->arch->name, inner, values, dim);
	gguf_put_int(c, "linear_num_key_heads", gguf_conf_int(c, "ssm.group_count", GGUF_NEEDED));
	gguf_put_int(c, "linear_num_value_heads", values);
	gguf_put_int(c, "linear_key_head_dim", dim);
	gguf_put_int(c, "linear_value_head_dim", dim);
	gguf_put_int(c, "linear_conv_kernel_dim", gguf_conf_int(c, "ssm.conv_kernel", GGUF_NEEDED));
}

static void put_hybrid(struct gguf_conf *c)
{
	gguf_put_common(c);
	put_attention(c, 10000);
	put_layer_types(c);
	put_delta(c);
	gguf_copy_int(c, "intermediate_size", "feed_forward_length");
	if (gguf_conf_int(c, "expert_count", 0)) {
		put_experts(c);
		gguf_put_int(c, "shared_expert_intermediate_size",
		             gguf_conf_int(c, "expert_shared_feed_forward_length", 0));
	}
	if (c->m->drafts)
		gguf_put_int(c, "mtp_num_hidden_layers", c->m->drafts);
}

void gguf_config_qwen3_next(struct gguf_conf *c)
{
	put_hybrid(c);
}

/* Value head n of these files belongs to key head n mod (key heads). */
void gguf_config_qwen3_5(struct gguf_conf *c)
{
	put_hybrid(c);
	gguf_put_bool(c, "linear_value_heads_tiled", true);
}

/* Positions of an indexer's blocks: those of its first layer of attention, since linear layers and draft heads have 0. */
static int64_t block_of_indexers(struct gguf_conf *c)
{
	int64_t size = 0;

	for (int64_t i = 0; i < c->m->blocks && !size && !c->code; i++)
		size = gguf_conf_block_int(c, "attention.compress_ratios", i, GGUF_NEEDED);
	return size;
}

/* Members for n-grams; Hugging Face keeps some of these numbers in tensors. */
static void put_ngrams(struct gguf_conf *c)
{
	int64_t size = gguf_conf_int(c, "ple.ngram_size", GGUF_NEEDED);
	int64_t each = gguf_conf_int(c, "ple.heads_per_ngram", GGUF_NEEDED);
	int64_t width = gguf_conf_int(c, "embedding_length_per_layer_input", GGUF_NEEDED);

	if (!c->code && (size < 2 || size > 64 || each < 1 || each > 4096 || width < 1 || width > 1 << 20))
		gguf_conf_fail(c, E_FORMAT, "key %s.ple.ngram_size: %" PRId64 " tokens, %" PRId64 " heads of %" PRId64,
		               c->m->arch->name, size, each, width);
	gguf_copy_list(c, "ple_layer_ids", "ple.layers", 1);
	gguf_put_int(c, "ngram_size", size);
	gguf_put_int(c, "heads_per_ngram", each);
	gguf_put_int(c, "ple_embed_dim", (size - 1) * each * width);
	gguf_put_int(c, "ple_conv_kernel_size", gguf_conf_int(c, "ple.conv_kernel", GGUF_NEEDED));
	gguf_put_int(c, "ngram_end_token_id", gguf_conf_int(c, "ple.eos_token_id", GGUF_NEEDED));
	gguf_copy_list(c, "ngram_multipliers", "ple.layer_multipliers", 0);
	gguf_copy_list(c, "ngram_vocab_sizes", "ple.head_vocab_sizes", 0);
	gguf_copy_list(c, "ngram_offsets", "ple.head_offsets", 0);
}

void gguf_config_qwen4(struct gguf_conf *c)
{
	gguf_config_qwen3_5(c);
	gguf_put_str(c, "output_gate_type", "sigmoid");
	gguf_put_bool(c, "norm_weights_whole", true);
	gguf_put_int(c, "hc_count", gguf_conf_int(c, "hyper_connection.count", GGUF_NEEDED));
	gguf_put_int(c, "hc_lowrank", gguf_conf_int(c, "hyper_connection.low_rank", GGUF_NEEDED));
	gguf_put_int(c, "indexer_n_heads", gguf_conf_int(c, "attention.indexer.head_count", GGUF_NEEDED));
	gguf_put_int(c, "indexer_head_dim", gguf_conf_int(c, "attention.indexer.key_length", GGUF_NEEDED));
	gguf_put_int(c, "indexer_budget", gguf_conf_int(c, "attention.indexer.top_k", GGUF_NEEDED));
	gguf_put_int(c, "indexer_compress_ratio", block_of_indexers(c));
	if (gguf_conf_has(c, "ple.layers"))
		put_ngrams(c);
}

/* ---- the document ---- */

static void put_text(struct gguf_conf *c, const char *model_type)
{
	gguf_put_str(c, "model_type", model_type);
	c->m->arch->config(c);
	if (!c->m->arch->head)
		gguf_config_pooling(c);
}

/* The text's members under text_config, with those of the tower. */
static void put_seeing(struct gguf_conf *c, const struct gguf_projector *p)
{
	const struct projector_form *f = p->form;
	const char *text = f->of[p->which].text;
	struct gguf_conf tower = { .m = &p->m, .out = c->out, .err = c->err };
	struct gguf_conf ear = { .m = &p->sound, .out = c->out, .err = c->err };

	gguf_put_str(c, "model_type", f->of[p->which].whole);
	for (int i = 0; i < PROJECTOR_MARKS && f->token[i].text; i++)
		if (p->token[i] >= 0)
			gguf_put_int(c, f->token[i].member, p->token[i]);
	if (f->around)
		f->around(&tower);
	gguf_put_name(&tower, "vision_config");
	buf_putc(c->out, '{');
	f->vision(&tower);
	buf_putc(c->out, '}');
	if (p->ear) {
		gguf_put_name(&ear, "audio_config");
		buf_putc(c->out, '{');
		p->ear->audio(&ear);
		buf_putc(c->out, '}');
	}
	gguf_put_name(c, "text_config");
	buf_putc(c->out, '{');
	put_text(c, text ? text : c->m->arch->model_type);
	if (f->text)
		f->text(c);
	buf_putc(c->out, '}');
	c->code = tower.code ? tower.code : ear.code ? ear.code : c->code;
}

int gguf_config(const struct gguf_model *m, struct buf *out, struct err *err)
{
	struct gguf_conf c = { .m = m, .out = out, .err = err };
	int32_t stop[GGUF_STOPS];
	int n = 0;

	buf_putc(out, '{');
	if (m->seen)
		put_seeing(&c, m->seen);
	else
		put_text(&c, m->arch->model_type);
	if (!c.code)
		c.code = gguf_stops(m, stop, &n, err);
	if (!c.code && n) {
		gguf_put_name(&c, "eos_token_id");
		for (int i = 0; i < n; i++)
			buf_printf(out, "%c%" PRId32, i ? ',' : '[', stop[i]);
		buf_putc(out, ']');
	}
	buf_putc(out, '}');
	return c.code;
}
