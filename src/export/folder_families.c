/* folder_families.c - metadata of a GGUF file from config.json, of families other than the plain ones; see folder_keys.c. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "export/folder_making.h"

/* How many angles turn, of heads of dim. */
static void key_turning(struct making *m, int64_t dim, double dflt)
{
	key_put_whole(m, ".rope.dimension_count",
	              (double)dim *
	                      rope_float(m, "partial_rotary_factor", making_float(m, "partial_rotary_factor", dflt)));
}

/* ---- kinds of layers ---- */

static void key_windows(struct making *m, int64_t every)
{
	uint8_t windowed[MAKING_LAYERS_MAX];

	if (!layers_count(m))
		return;
	for (int64_t i = 0; i < m->blocks; i++)
		windowed[i] = layer_is(m, i, "sliding_attention", (i + 1) % every != 0);
	pair_list(&m->p, ".attention.sliding_window_pattern", GGUF_BOOL, (uint64_t)m->blocks, windowed,
	          (size_t)m->blocks);
}

/* Every n-th layer sees all. */
static void want_period(struct making *m, int64_t every)
{
	if (!layers_count(m))
		return;
	if (every < 1 || every > INT32_MAX)
		making_fail(m, E_FORMAT, "sliding_window_pattern: %" PRId64, every);
	for (int64_t i = 0; i < m->blocks && !m->code; i++)
		if (layer_is(m, i, "full_attention", (i + 1) % every == 0) != ((i + 1) % every == 0))
			making_fail(m, E_UNSUPPORTED,
			            "layer_types: layer %" PRId64 ", of every %" PRId64 " one sees all", i, every);
}

/* The file says the period where readers do not expect it. */
static void key_period(struct making *m, int64_t usual)
{
	int64_t every = making_int(m, "sliding_window_pattern", making_int(m, "_sliding_window_pattern", usual));

	want_period(m, every);
	if (every != usual)
		key_put(m, ".attention.sliding_window_pattern", every);
}

/* ---- plain ones with something more ---- */

void keys_ministral3(struct making *m)
{
	keys_plain(m);
	key_copy(m, ".vocab_size", "vocab_size");
	key_put(m, ".rope.dimension_count", making_head_dim(m));
	if (!m->code && making_has(m, "sliding_window"))
		making_fail(m, E_UNSUPPORTED, "sliding_window: GGUF files of %s have no window", m->arch->name);
	if (m->code)
		return;
	pair_f32(&m->p, ".rope.scaling.yarn_log_multiplier", rope_float(m, "mscale_all_dim", 1));
	pair_f32(&m->p, ".attention.temperature_scale", rope_float(m, "llama_4_scaling_beta", 0));
}

/* Every fourth layer does not turn, as readers of the file take it. */
void keys_smollm3(struct making *m)
{
	const struct json *turns = json_get(m->st->text, "no_rope_layers");
	int64_t v;

	keys_plain(m);
	key_copy(m, ".vocab_size", "vocab_size");
	key_put(m, ".rope.dimension_count", making_head_dim(m));
	want_int(m, "no_rope_layer_interval", 4, 4);
	for (size_t i = 0; i < json_len(turns) && !m->code; i++)
		if (json_to_int(json_at(turns, i), &v) || v != ((i + 1) % 4 != 0))
			making_fail(
				m, E_UNSUPPORTED,
				"no_rope_layers: layer %zu: in GGUF files of smollm3 every fourth layer does not turn",
				i);
}

void keys_granite_scales(struct making *m)
{
	key_float_if_there(m, ".attention.scale", "attention_multiplier");
	key_float_if_there(m, ".embedding_scale", "embedding_multiplier");
	key_float_if_there(m, ".residual_scale", "residual_multiplier");
	key_float_if_there(m, ".logit_scale", "logits_scaling");
}

void keys_granite(struct making *m)
{
	keys_plain(m);
	key_copy(m, ".vocab_size", "vocab_size");
	key_put(m, ".rope.dimension_count", making_head_dim(m));
	keys_granite_scales(m);
}

void keys_phi3(struct making *m)
{
	keys_plain(m);
	key_turning(m, making_head_dim(m), 1);
	key_copy_if_there(m, ".attention.sliding_window", "sliding_window");
}

void keys_glm4(struct making *m)
{
	keys_plain(m);
	key_turning(m, making_head_dim(m), 0.5);
}

void keys_olmo3(struct making *m)
{
	keys_plain(m);
	key_copy(m, ".attention.sliding_window", "sliding_window");
	key_windows(m, 4);
}

void keys_qwen2_moe(struct making *m)
{
	want_flag(m, "norm_topk_prob", false);
	keys_plain(m);
	keys_experts(m);
}

/* ---- Gemma ---- */

static int64_t gemma_sizes(struct making *m)
{
	int64_t dim = making_int(m, "head_dim", 256), heads = making_int(m, "num_attention_heads", INT64_MIN);

	if (dim < 2 || dim > MAKING_SIZE_MAX || dim % 2 || heads < 1 || heads > MAKING_SIZE_MAX)
		making_fail(m, E_FORMAT, "%" PRId64 " heads of %" PRId64, heads, dim);
	want_text(m, "hidden_activation", "gelu_pytorch_tanh");
	key_put(m, ".block_count", m->blocks);
	key_put(m, ".context_length", making_int(m, "max_position_embeddings", 131072));
	key_copy(m, ".embedding_length", "hidden_size");
	key_put(m, ".attention.head_count", heads);
	key_float(m, ".attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-6);
	key_float_if_there(m, ".final_logit_softcapping", "final_logit_softcapping");
	key_copy(m, ".attention.sliding_window", "sliding_window");
	return m->code ? 2 : dim;
}

/* Readers of the file scale scores by the size of a head, those of the 27B by another one.  Where queries have norms, the
 * difference goes into them. */
static void settle_scale(struct making *m, int64_t dim, int64_t blocks_27b, bool has_norms)
{
	int64_t heads = making_int(m, "num_attention_heads", INT64_MIN),
		width = making_int(m, "hidden_size", INT64_MIN), read = m->blocks == blocks_27b ? width / heads : dim,
		scalar = making_int(m, "query_pre_attn_scalar", 256);

	if (!m->code && (scalar < 1 || read < 1))
		making_fail(m, E_FORMAT, "query_pre_attn_scalar: %" PRId64, scalar);
	if (m->code || scalar == read)
		return;
	if (has_norms)
		m->query_scale = sqrt((double)read / (double)scalar);
	else
		making_fail(m, E_UNSUPPORTED, "query_pre_attn_scalar: %" PRId64 ": GGUF files of %s have %" PRId64,
		            scalar, m->arch->name, read);
}

void keys_gemma2(struct making *m)
{
	int64_t dim = gemma_sizes(m);

	key_copy(m, ".feed_forward_length", "intermediate_size");
	key_copy(m, ".attention.head_count_kv", "num_key_value_heads");
	key_put(m, ".attention.key_length", dim);
	key_put(m, ".attention.value_length", dim);
	key_rope(m, dim);
	if (!making_has(m, "final_logit_softcapping"))
		key_float(m, ".final_logit_softcapping", "final_logit_softcapping", 30);
	key_float(m, ".attn_logit_softcapping", "attn_logit_softcapping", 50);
	key_period(m, 2);
	settle_scale(m, dim, 46, false);
}

/* A member of the rotation of one kind of layers, or of flat where there is one for all. */
static double rope_of_kind(struct making *m, const char *kind, const char *member, const char *flat, double dflt)
{
	const struct json *of = json_get(json_get(m->st->text, "rope_parameters"), kind);
	double v = dflt;

	if (m->code)
		return dflt;
	if (!of)
		return flat ? making_float(m, flat, dflt) : rope_float(m, member, dflt);
	if (json_get_double(of, member, dflt, &v, m->err))
		m->code = err_prefix(m->err, "%s: rope_parameters.%s", m->st->config_path, kind);
	return v;
}

static void gemma_ropes(struct making *m)
{
	double full = rope_of_kind(m, "full_attention", "rope_theta", "rope_theta", 1e6),
	       local = rope_of_kind(m, "sliding_attention", "rope_theta", "rope_local_base_freq", 1e4);

	if (m->code)
		return;
	pair_f32(&m->p, ".rope.freq_base", full);
	pair_f32(&m->p, ".rope.freq_base_swa", local);
}

/* The type of the rotation that layers have which see all. */
static bool full_rope_is(const struct making *m, const char *type)
{
	const struct json *r = json_get(m->st->text, "rope_parameters"), *full = json_get(r, "full_attention");
	const char *is;

	if (!full)
		full = json_kind(r) == JSON_OBJECT ? r : json_get(m->st->text, "rope_scaling");
	is = json_str(json_get(full, "rope_type"), NULL);
	is = is ? is : json_str(json_get(full, "type"), NULL);
	return !strcmp(is ? is : "default", type);
}

void keys_gemma3(struct making *m)
{
	int64_t dim = gemma_sizes(m);
	double factor = rope_of_kind(m, "full_attention", "factor", NULL, 1);

	key_copy(m, ".feed_forward_length", "intermediate_size");
	key_copy(m, ".attention.head_count_kv", "num_key_value_heads");
	key_put(m, ".attention.key_length", dim);
	key_put(m, ".attention.value_length", dim);
	gemma_ropes(m);
	key_period(m, 6);
	settle_scale(m, dim, 62, true);
	want_flag(m, "use_bidirectional_attention", false);
	if (making_has(m, "attn_logit_softcapping"))
		making_fail(m, E_UNSUPPORTED, "attn_logit_softcapping: GGUF files of gemma3 have none");
	if (m->code || full_rope_is(m, "default"))
		return;
	if (!full_rope_is(m, "linear")) {
		making_fail(m, E_UNSUPPORTED, "rope_scaling: a GGUF file of gemma3 has default or linear here");
		return;
	}
	pair_text(&m->p, ".rope.scaling.type", "linear", 6);
	pair_f32(&m->p, ".rope.scaling.factor", factor);
}

/* Layers that see all turn a share of their angles: divisors of 1, and for the others one that leaves no angle. */
static void gemma4_divisors(struct making *m, int64_t dim)
{
	int64_t turning = (int64_t)((double)dim *
	                            rope_of_kind(m, "full_attention", "partial_rotary_factor", NULL, 0.25) / 2);
	float *v = m->code ? NULL : making_divisors(m, dim / 2);

	for (int64_t i = 0; v && i < dim / 2; i++)
		v[i] = i < turning ? 1.0F : 1e30F;
}

/* One number for all layers, or a list where the last ones are twice as wide. */
static void gemma4_widths(struct making *m, int64_t shared)
{
	int64_t inner = making_int(m, "intermediate_size", INT64_MIN);
	int32_t width[MAKING_LAYERS_MAX];

	if (!making_flag(m, "use_double_wide_mlp", false)) {
		key_put(m, ".feed_forward_length", inner);
		return;
	}
	if (inner < 1 || inner > INT32_MAX / 2)
		making_fail(m, E_FORMAT, "intermediate_size: %" PRId64, inner);
	if (m->code || !layers_count(m))
		return;
	for (int64_t i = 0; i < m->blocks; i++)
		width[i] = (int32_t)(i < m->blocks - shared ? inner : 2 * inner);
	key_ints(m, ".feed_forward_length", width);
}

static void gemma4_heads(struct making *m)
{
	int64_t local = making_int(m, "num_key_value_heads", INT64_MIN);
	int64_t full = making_int(m, "num_global_key_value_heads", local);
	int32_t heads[MAKING_LAYERS_MAX];

	if (!making_has(m, "num_global_key_value_heads")) {
		key_put(m, ".attention.head_count_kv", local);
		return;
	}
	if (local < 1 || full < 1 || local > MAKING_SIZE_MAX || full > MAKING_SIZE_MAX)
		making_fail(m, E_FORMAT, "%" PRId64 " and %" PRId64 " key heads", local, full);
	if (m->code || !layers_count(m))
		return;
	for (int64_t i = 0; i < m->blocks; i++)
		heads[i] = (int32_t)(layer_is(m, i, "sliding_attention", false) ? local : full);
	key_ints(m, ".attention.head_count_kv", heads);
}

void keys_gemma4(struct making *m)
{
	int64_t dim = gemma_sizes(m), full = making_int(m, "global_head_dim", dim),
		shared = making_int(m, "num_kv_shared_layers", 0);

	if (full < 2 || full > MAKING_SIZE_MAX || full % 2 || shared < 0 || shared > m->blocks)
		making_fail(m, E_FORMAT, "heads of %" PRId64 ", %" PRId64 " layers that share keys", full, shared);
	if (!json_len(json_get(m->st->text, "layer_types")))
		making_fail(m, E_MISSING, "layer_types: missing");
	gemma4_widths(m, shared);
	gemma4_heads(m);
	gemma_ropes(m);
	key_put(m, ".attention.key_length", full);
	key_put(m, ".attention.value_length", full);
	key_put(m, ".attention.key_length_swa", dim);
	key_put(m, ".attention.value_length_swa", dim);
	key_put(m, ".attention.shared_kv_layers", shared);
	key_put(m, ".embedding_length_per_layer_input", making_int(m, "hidden_size_per_layer_input", 0));
	key_windows(m, 1);
	key_put(m, ".rope.dimension_count", full);
	key_put_whole(m, ".rope.dimension_count_swa",
	              (double)dim * rope_of_kind(m, "sliding_attention", "partial_rotary_factor", NULL, 1));
	if (!m->code && !full_rope_is(m, "proportional"))
		making_fail(m, E_UNSUPPORTED, "rope_parameters.full_attention: a GGUF file of gemma4 is proportional");
	gemma4_divisors(m, full);
	if (making_flag(m, "enable_moe_block", false)) {
		key_copy(m, ".expert_count", "num_experts");
		key_copy(m, ".expert_used_count", "top_k_experts");
		key_copy(m, ".expert_feed_forward_length", "moe_intermediate_size");
	}
}

/* ---- routers of sigmoids ---- */

void keys_glm4_moe(struct making *m)
{
	keys_plain(m);
	key_turning(m, making_head_dim(m), 0.5);
	key_copy(m, ".expert_count", "n_routed_experts");
	key_copy(m, ".expert_used_count", "num_experts_per_tok");
	key_put(m, ".expert_group_count", making_int(m, "n_group", 1));
	key_put(m, ".expert_group_used_count", making_int(m, "topk_group", 1));
	key_copy(m, ".expert_feed_forward_length", "moe_intermediate_size");
	key_put(m, ".expert_shared_count", making_int(m, "n_shared_experts", 0));
	key_put(m, ".leading_dense_block_count", making_int(m, "first_k_dense_replace", 0));
	key_put(m, ".expert_gating_func", GATING_SIGMOID);
	key_float(m, ".expert_weights_scale", "routed_scaling_factor", 1);
	if (!m->code)
		pair_bool(&m->p, ".expert_weights_norm", making_flag(m, "norm_topk_prob", true));
	if (m->drafts)
		key_put(m, ".nextn_predict_layers", m->drafts);
}

void keys_minimax(struct making *m)
{
	want_text(m, "scoring_func", "sigmoid");
	want_int(m, "shared_intermediate_size", 0, 0);
	keys_plain(m);
	key_put(m, ".rope.dimension_count", making_int(m, "rotary_dim", making_head_dim(m)));
	key_copy(m, ".expert_count", "num_local_experts");
	key_copy(m, ".expert_used_count", "num_experts_per_tok");
	key_copy(m, ".expert_feed_forward_length", "intermediate_size");
	key_put(m, ".expert_gating_func", GATING_SIGMOID);
}

/* ---- short convolutions ---- */

/* The width that its config says in a roundabout way. */
static int64_t lfm2_width(struct making *m)
{
	int64_t width = making_int(m, "block_ff_dim", making_int(m, "intermediate_size", 12288)),
		multiple = making_int(m, "block_multiple_of", 256);
	double by = making_float(m, "block_ffn_dim_multiplier", 1);

	if (!making_flag(m, "block_auto_adjust_ff_dim", true))
		return width;
	if (m->code || multiple < 1 || multiple > MAKING_SIZE_MAX || width < 1 || width > MAKING_SIZE_MAX ||
	    !(by > 0 && by < 1000)) {
		making_fail(m, E_FORMAT, "block_ff_dim %" PRId64 ", multiples of %" PRId64, width, multiple);
		return 1;
	}
	width = (int64_t)(by * (double)(2 * width / 3));
	return (width + multiple - 1) / multiple * multiple;
}

/* Puts the keys that both kinds of LFM2 have. */
static void lfm2_layers(struct making *m)
{
	int64_t dim = making_head_dim(m), kv = making_int(m, "num_key_value_heads", INT64_MIN);
	const struct json *full = json_get(m->st->text, "full_attn_idxs");
	int32_t heads[MAKING_LAYERS_MAX];

	if (!layers_count(m))
		return;
	if (kv < 1 || kv > MAKING_SIZE_MAX)
		making_fail(m, E_FORMAT, "num_key_value_heads: %" PRId64, kv);
	for (int64_t i = 0; i < m->blocks; i++) {
		bool attends = false;
		int64_t at;

		for (size_t k = 0; k < json_len(full); k++)
			attends |= !json_to_int(json_at(full, k), &at) && at == i;
		heads[i] = layer_is(m, i, "full_attention", attends) ? (int32_t)kv : 0;
	}
	key_put(m, ".block_count", m->blocks);
	key_copy(m, ".context_length", "max_position_embeddings");
	key_copy(m, ".embedding_length", "hidden_size");
	key_copy(m, ".attention.head_count", "num_attention_heads");
	key_ints(m, ".attention.head_count_kv", heads);
	key_rope(m, dim);
	key_float(m, ".attention.layer_norm_rms_epsilon", making_has(m, "norm_eps") ? "norm_eps" : "block_norm_eps",
	          1e-5);
	key_copy(m, ".vocab_size", "vocab_size");
	key_copy(m, ".shortconv.l_cache", "conv_L_cache");
}

void keys_lfm2(struct making *m)
{
	lfm2_layers(m);
	key_put(m, ".feed_forward_length", lfm2_width(m));
}

void keys_lfm2_moe(struct making *m)
{
	lfm2_layers(m);
	want_flag(m, "norm_topk_prob", true);
	want_flag(m, "use_expert_bias", true);
	if (making_float(m, "routed_scaling_factor", 1) != 1)
		making_fail(m, E_UNSUPPORTED, "routed_scaling_factor: GGUF files of lfm2moe have 1");
	key_copy(m, ".feed_forward_length", "intermediate_size");
	key_copy(m, ".expert_count", "num_experts");
	key_copy(m, ".expert_used_count", "num_experts_per_tok");
	key_copy(m, ".expert_feed_forward_length", "moe_intermediate_size");
	key_put(m, ".leading_dense_block_count", making_int(m, "num_dense_layers", 0));
	key_put(m, ".expert_gating_func", GATING_SIGMOID);
}

/* ---- gpt-oss ---- */

void keys_gpt_oss(struct making *m)
{
	bool truncate = true;

	want_float(m, "swiglu_limit", 7);
	want_float(m, "swiglu_alpha", 1.702);
	keys_plain(m);
	want_period(m, 2);
	key_copy(m, ".attention.sliding_window", "sliding_window");
	key_copy(m, ".expert_count", "num_local_experts");
	key_copy(m, ".expert_used_count", "num_experts_per_tok");
	key_copy(m, ".expert_feed_forward_length", "intermediate_size");
	if (!m->code && !json_to_bool(rope_member(m, "truncate"), &truncate) && !truncate)
		log_warn("%s: rope_scaling.truncate: false: readers of GGUF cut the ramp of YaRN to whole frequencies",
		         m->st->dir);
}
