/* folder_latent.c - metadata of a GGUF file from config.json, of families with attention over latent rows; see folder_keys.c.
 *
 * A file has such attention as that of one key head, whose rows are the latent ones; the heads' own sizes have keys besides. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "export/folder_making.h"

static bool entry_is(const struct json *list, size_t i, const char *name)
{
	const char *s = json_str(json_at(list, i), NULL);

	return s && !strcmp(s, name);
}

/* The first layers, which have no experts. */
static int64_t dense_layers(struct making *m)
{
	const struct json *list = json_get(m->st->text, "mlp_layer_types");
	int64_t n = 0;

	if (m->code || !making_has(m, "mlp_layer_types"))
		return making_int(m, "first_k_dense_replace", 0);
	for (size_t i = 0; i < json_len(list) && !m->code; i++)
		if (entry_is(list, i, "dense") && n++ < (int64_t)i)
			making_fail(
				m, E_UNSUPPORTED,
				"mlp_layer_types: layer %zu has no experts: GGUF files of %s have first layers without",
				i, m->arch->name);
	return n;
}

/* Sizes of attention, and what all of a kind have; the inputs of a head that turn, `turned` at least, are returned. */
static int64_t latent_sizes(struct making *m, int64_t turned)
{
	int64_t rank = making_int(m, "kv_lora_rank", INT64_MIN), nope = making_int(m, "qk_nope_head_dim", INT64_MIN),
		rope = making_int(m, "qk_rope_head_dim", INT64_MIN), values = making_int(m, "v_head_dim", INT64_MIN),
		heads = making_int(m, "num_attention_heads", INT64_MIN);

	if (rank < 1 || nope < 1 || rope < turned || values < 1 || heads < 1 || rank > MAKING_SIZE_MAX ||
	    nope > MAKING_SIZE_MAX || rope > MAKING_SIZE_MAX || values > MAKING_SIZE_MAX || heads > MAKING_SIZE_MAX)
		making_fail(m, E_FORMAT,
		            "%" PRId64 " heads of %" PRId64 " and %" PRId64 ", values of %" PRId64
		            ", latent rows of %" PRId64,
		            heads, nope, rope, values, rank);
	if (m->code)
		return 2;
	want_flag(m, "attention_bias", false);
	want_int(m, "moe_layer_freq", 1, 1);
	key_put(m, ".block_count", m->blocks + m->drafts);
	key_copy(m, ".embedding_length", "hidden_size");
	key_copy(m, ".feed_forward_length", "intermediate_size");
	key_copy(m, ".vocab_size", "vocab_size");
	key_put(m, ".attention.head_count", heads);
	key_float(m, ".attention.layer_norm_rms_epsilon", "rms_norm_eps", (double)NAN);
	key_copy_if_there(m, ".attention.q_lora_rank", "q_lora_rank");
	key_put(m, ".attention.kv_lora_rank", rank);
	key_put(m, ".attention.key_length", rank + rope);
	key_put(m, ".attention.key_length_mla", nope + rope);
	key_put(m, ".attention.value_length_mla", values);
	key_put(m, ".rope.dimension_count", rope);
	key_copy(m, ".expert_feed_forward_length", "moe_intermediate_size");
	key_put(m, ".leading_dense_block_count", dense_layers(m));
	key_put(m, ".expert_gating_func", GATING_SIGMOID);
	key_float(m, ".expert_weights_scale", "routed_scaling_factor", 1);
	if (m->drafts)
		key_put(m, ".nextn_predict_layers", m->drafts);
	return m->code ? 2 : rope;
}

/* YaRN makes scores larger by mscale_all_dim, and rotated rows by mscale over it, for which there is no key. */
static void key_yarn_scale(struct making *m)
{
	double all = rope_float(m, "mscale_all_dim", 0), rows = rope_float(m, "mscale", 0);

	if (m->code || all == 0)
		return;
	if (rows != all)
		making_fail(m, E_UNSUPPORTED,
		            "rope_scaling: mscale %g, and mscale_all_dim %g: GGUF files of %s have one", rows, all,
		            m->arch->name);
	else
		pair_f32(&m->p, ".rope.scaling.yarn_log_multiplier", 0.1 * all);
}

static void key_routed(struct making *m)
{
	want_text(m, "topk_method", "noaux_tc");
	want_text(m, "scoring_func", "sigmoid");
	key_copy(m, ".expert_count", "n_routed_experts");
	key_copy(m, ".expert_used_count", "num_experts_per_tok");
	key_put(m, ".expert_group_count", making_int(m, "n_group", 1));
	key_put(m, ".expert_group_used_count", making_int(m, "topk_group", 1));
	key_put(m, ".expert_shared_count", making_int(m, "n_shared_experts", 0));
	if (!m->code)
		pair_bool(&m->p, ".expert_weights_norm", making_flag(m, "norm_topk_prob", true));
}

void keys_deepseek(struct making *m)
{
	int64_t rope = latent_sizes(m, 2);

	want_flag(m, "rope_interleave", true);
	key_copy(m, ".context_length", "max_position_embeddings");
	key_put(m, ".attention.head_count_kv", 1);
	key_put(m, ".attention.value_length", making_int(m, "kv_lora_rank", INT64_MIN));
	key_rope(m, rope);
	key_yarn_scale(m);
	key_routed(m);
}

/* Which layers have an indexer. */
static void key_indexers(struct making *m)
{
	const struct json *list = making_has(m, "indexer_types") ? json_get(m->st->text, "indexer_types") : NULL;
	int64_t every = making_int(m, "index_topk_freq", 1), offset = making_int(m, "index_skip_topk_offset", 2);
	uint8_t has[MAKING_LAYERS_MAX] = { 0 };

	if (!layers_count(m))
		return;
	if (making_has(m, "index_topk_pattern") && !list)
		making_fail(m, E_UNSUPPORTED, "index_topk_pattern: GGUF files are written of indexer_types");
	if (every < 1 || (list && json_len(list) != (size_t)m->blocks))
		making_fail(m, E_FORMAT, "index_topk_freq %" PRId64 ", and %zu indexer_types of %" PRId64 " layers",
		            every, json_len(list), m->blocks);
	for (int64_t i = 0; i < m->blocks && !m->code; i++)
		has[i] = list ? entry_is(list, (size_t)i, "full") : i < offset || (i - offset + 1) % every == 0;
	if (!m->code)
		pair_list(&m->p, ".attention.indexer.types", GGUF_BOOL, (uint64_t)m->blocks, has, (size_t)m->blocks);
}

void keys_dsa(struct making *m)
{
	bool glm = !m->code && !strcmp(m->arch->name, "glm-dsa");

	keys_deepseek(m);
	want_flag(m, "indexer_rope_interleave", glm);
	key_copy(m, ".attention.indexer.head_count", "index_n_heads");
	key_copy(m, ".attention.indexer.key_length", "index_head_dim");
	key_copy(m, ".attention.indexer.top_k", "index_topk");
	if (glm)
		key_indexers(m);
}

/* Whether one of the lists of layers counts them from 0, as newer folders do. */
static bool lists_zero(const struct json *of)
{
	static const char *const list[] = { "full_attn_layers", "kda_layers" };
	int64_t at;

	for (int k = 0; k < 2; k++)
		for (size_t i = 0; i < json_len(json_get(of, list[k])); i++)
			if (!json_to_int(json_at(json_get(of, list[k]), i), &at) && !at)
				return true;
	return false;
}

/* Layers of Kimi Delta Attention have no key heads. */
static void key_kda_layers(struct making *m, const struct json *of)
{
	const struct json *full = json_get(of, "full_attn_layers");
	int64_t base = lists_zero(of) ? 0 : 1, at;
	int32_t heads[MAKING_LAYERS_MAX] = { 0 };

	if (!layers_count(m))
		return;
	for (size_t i = 0; i < json_len(full) && !m->code; i++)
		if (json_to_int(json_at(full, i), &at) || at < base || at - base >= m->blocks)
			making_fail(m, E_FORMAT, "linear_attn_config.full_attn_layers: element %zu is not a layer", i);
		else
			heads[at - base] = 1;
	key_ints(m, ".attention.head_count_kv", heads);
}

static void key_of(struct making *m, const struct json *of, const char *key, const char *member)
{
	int64_t v = 0;

	if (!m->code && json_to_int(json_get(of, member), &v))
		making_fail(m, E_MISSING, "linear_attn_config.%s: missing, or no integer", member);
	key_put(m, key, v);
}

void keys_kimi_linear(struct making *m)
{
	const struct json *of = json_get(m->st->text, "linear_attn_config");
	int64_t heads = 0, rank = making_int(m, "kv_lora_rank", INT64_MIN);
	double floor = 0;

	latent_sizes(m, 2);
	want_flag(m, "mla_use_nope", true);
	want_flag(m, "moe_renormalize", true);
	want_text(m, "moe_router_activation_func", "sigmoid");
	if (!m->code && (json_to_int(json_get(of, "num_heads"), &heads) ||
	                 heads != making_int(m, "num_attention_heads", INT64_MIN)))
		making_fail(m, E_UNSUPPORTED,
		            "linear_attn_config.num_heads: %" PRId64 ": GGUF files of %s have num_attention_heads",
		            heads, m->arch->name);
	if (!m->code && !json_to_double(json_get(of, "gate_lower_bound"), &floor) && floor != 0)
		making_fail(m, E_UNSUPPORTED, "linear_attn_config.gate_lower_bound: %g: GGUF files of %s have none",
		            floor, m->arch->name);
	key_copy(m, ".context_length",
	         making_has(m, "model_max_length") ? "model_max_length" : "max_position_embeddings");
	key_put(m, ".attention.value_length", making_int(m, "head_dim", rank));
	key_float(m, ".rope.freq_base", "rope_theta", 10000);
	key_kda_layers(m, of);
	key_of(m, of, ".kda.head_dim", "head_dim");
	key_of(m, of, ".ssm.conv_kernel", "short_conv_kernel_size");
	key_copy(m, ".expert_count", "num_experts");
	key_copy(m, ".expert_used_count", "num_experts_per_token");
	key_put(m, ".expert_group_count", making_int(m, "num_expert_group", 1));
	key_put(m, ".expert_group_used_count", making_int(m, "topk_group", 1));
	key_put(m, ".expert_shared_count", making_int(m, "num_shared_experts", 0));
}

/* ---- GLM-5.3-Flash ---- */

/* The bound of all activations, by layer; shared: readers want that of shared experts besides. */
static void key_bound(struct making *m, bool shared)
{
	double bound = making_float(m, "swiglu_limit", 0);
	float list[MAKING_LAYERS_MAX];

	if (m->code || bound == 0)
		return;
	for (int64_t i = 0; i < m->blocks; i++)
		list[i] = (float)bound;
	pair_list(&m->p, ".swiglu_clamp_exp", GGUF_F32, (uint64_t)m->blocks, list, (size_t)m->blocks * sizeof *list);
	if (shared)
		pair_list(&m->p, ".swiglu_clamp_shexp", GGUF_F32, (uint64_t)m->blocks, list,
		          (size_t)m->blocks * sizeof *list);
}

static void key_streams(struct making *m)
{
	key_copy(m, ".hyper_connection.count", "hc_mult");
	key_copy(m, ".hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters");
	key_float(m, ".hyper_connection.epsilon", "hc_eps", 1e-6);
}

/* Layers of Kimi Delta Attention, by layer_types, have no key heads; these have heads as attention has them. */
static void key_delta_layers(struct making *m)
{
	const struct json *of = json_get(m->st->text, "linear_attn_config");
	int32_t heads[MAKING_LAYERS_MAX] = { 0 };
	int64_t own = 0;
	double floor;

	if (!layers_count(m))
		return;
	for (int64_t i = 0; i < m->blocks; i++)
		heads[i] = !layer_is(m, i, "linear_attention", false);
	key_ints(m, ".attention.head_count_kv", heads);
	if (!m->code &&
	    (json_to_int(json_get(of, "num_heads"), &own) || own != making_int(m, "num_attention_heads", INT64_MIN)))
		making_fail(m, E_UNSUPPORTED,
		            "linear_attn_config.num_heads: %" PRId64 ": GGUF files of %s have num_attention_heads", own,
		            m->arch->name);
	key_of(m, of, ".kda.head_dim", "head_dim");
	key_of(m, of, ".ssm.conv_kernel", "short_conv_kernel_size");
	if (!m->code && !json_to_double(json_get(of, "gate_lower_bound"), &floor))
		pair_f32(&m->p, ".kda.gate_lower_bound", floor);
}

void keys_glm5_next(struct making *m)
{
	latent_sizes(m, 0);
	want_flag(m, "mhc", true);
	want_flag(m, "index_kpool_compress", true);
	want_flag(m, "index_kpool_always_select_tail", true);
	want_int(m, "qk_rope_head_dim", 0, 0);
	key_copy(m, ".context_length", "max_position_embeddings");
	key_put(m, ".attention.value_length", making_int(m, "kv_lora_rank", INT64_MIN));
	if (!m->code)
		pair_f32(&m->p, ".attention.layer_norm_epsilon", 1e-6); /* of indexers' keys */
	key_delta_layers(m);
	key_copy(m, ".attention.indexer.head_count", "index_n_heads");
	key_copy(m, ".attention.indexer.key_length", "index_head_dim");
	key_copy(m, ".attention.indexer.top_k", "index_topk");
	key_copy(m, ".attention.indexer.kpool", "index_kpool");
	if (!m->code)
		pair_bool(&m->p, ".attention.indexer.kpool_select_tail", true);
	key_indexers(m);
	key_streams(m);
	key_routed(m);
	key_bound(m, true);
}

/* ---- DeepSeek V4 ---- */

/* Positions of a group, by layer; the config's list may say it of draft heads too. */
static void key_ratios(struct making *m)
{
	const struct json *list = json_get(m->st->text, "compress_ratios");
	int32_t every[MAKING_LAYERS_MAX];
	size_t n = json_len(list), all = (size_t)(m->blocks + m->drafts);
	int64_t v;

	if (!m->code && (n >= MAKING_LAYERS_MAX || (int64_t)n < m->blocks))
		making_fail(m, E_FORMAT, "compress_ratios: %zu, of %" PRId64 " layers", n, m->blocks);
	for (size_t i = 0; i < n && !m->code; i++)
		if (json_to_int(json_at(list, i), &v) || v < 0 || v > MAKING_SIZE_MAX)
			making_fail(m, E_FORMAT, "compress_ratios: element %zu is not a number of positions", i);
		else
			every[i] = (int32_t)v;
	if (!m->code && n < all)
		every[n++] = 0;
	if (!m->code)
		pair_list(&m->p, ".attention.compress_ratios", GGUF_I32, n, every, n * sizeof *every);
}

static void key_windows_and_indexers(struct making *m)
{
	key_copy(m, ".attention.head_count", "num_attention_heads");
	key_put(m, ".attention.head_count_kv", 1);
	key_copy(m, ".attention.key_length", "head_dim");
	key_copy(m, ".attention.value_length", "head_dim");
	key_copy(m, ".attention.q_lora_rank", "q_lora_rank");
	key_copy(m, ".attention.output_lora_rank", "o_lora_rank");
	key_copy(m, ".attention.output_group_count", "o_groups");
	key_copy(m, ".attention.sliding_window", "sliding_window");
	key_copy(m, ".attention.indexer.head_count", "index_n_heads");
	key_copy(m, ".attention.indexer.key_length", "index_head_dim");
	key_copy(m, ".attention.indexer.top_k", "index_topk");
	key_float(m, ".attention.layer_norm_rms_epsilon", "rms_norm_eps", (double)NAN);
	key_float(m, ".attention.compress_rope_freq_base", "compress_rope_theta", (double)NAN);
	key_ratios(m);
}

void keys_deepseek4(struct making *m)
{
	int64_t rope = making_int(m, "qk_rope_head_dim", INT64_MIN);

	want_text(m, "hidden_act", "silu");
	want_text(m, "topk_method", "noaux_tc");
	want_text(m, "scoring_func", "sqrtsoftplus");
	want_flag(m, "attention_bias", false);
	want_int(m, "num_key_value_heads", 1, 1);
	key_put(m, ".block_count", m->blocks + m->drafts);
	if (m->drafts)
		key_put(m, ".nextn_predict_layers", m->drafts);
	key_copy(m, ".context_length", "max_position_embeddings");
	key_copy(m, ".embedding_length", "hidden_size");
	key_copy(m, ".feed_forward_length",
	         making_has(m, "intermediate_size") ? "intermediate_size" : "moe_intermediate_size");
	key_copy(m, ".vocab_size", "vocab_size");
	key_windows_and_indexers(m);
	key_put(m, ".rope.dimension_count", rope);
	key_rope(m, rope);
	key_streams(m);
	key_put(m, ".hash_layer_count", making_int(m, "num_hash_layers", 0));
	key_copy(m, ".expert_count", "n_routed_experts");
	key_copy(m, ".expert_used_count", "num_experts_per_tok");
	key_copy(m, ".expert_feed_forward_length", "moe_intermediate_size");
	key_put(m, ".expert_shared_count", making_int(m, "n_shared_experts", 0));
	key_float(m, ".expert_weights_scale", "routed_scaling_factor", 1);
	key_put(m, ".expert_gating_func", GATING_ROOT);
	if (!m->code)
		pair_bool(&m->p, ".expert_weights_norm", making_flag(m, "norm_topk_prob", true));
	if (layers_count(m))
		key_bound(m, false);
}
