/* gguf_families.c - config.json of families other than the plain ones: windows, sigmoid routers, latent attention,
 * Mamba-2, short convolutions.  Members are those that their binders in src/model/ read. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "store/gguf/gguf_conf.h"

/* Does some block have the tensor? */
static bool has_in_some(const struct gguf_conf *c, const char *tensor)
{
	for (int64_t i = 0; i < c->m->blocks; i++)
		if (gguf_conf_block_has(c, i, tensor))
			return true;
	return false;
}

/* The largest of a key's elements over the blocks. */
static int64_t most(struct gguf_conf *c, const char *key)
{
	int64_t v = 0;

	for (int64_t i = 0; i < c->m->blocks && !c->code; i++) {
		int64_t of = gguf_conf_block_int(c, key, i, 0);

		v = of > v ? of : v;
	}
	return v;
}

/* A list of names, one per block: `yes` where the key's element is not 0. */
static void put_trunk(struct gguf_conf *c, const char *member, const char *key, const char *yes, const char *no)
{
	gguf_put_name(c, member);
	for (int64_t i = 0; i < c->m->blocks - c->m->drafts && !c->code; i++) {
		buf_putc(c->out, i ? ',' : '[');
		json_put_cstr(c->out, gguf_conf_block_int(c, key, i, 0) ? yes : no);
	}
	buf_putc(c->out, ']');
}

void gguf_put_types(struct gguf_conf *c, const char *key, const char *yes, const char *no)
{
	put_trunk(c, "layer_types", key, yes, no);
}

void gguf_put_heads(struct gguf_conf *c, double theta)
{
	int64_t heads = gguf_conf_int(c, "attention.head_count", GGUF_NEEDED);
	int64_t width = gguf_conf_int(c, "embedding_length", GGUF_NEEDED);
	int64_t dim = gguf_conf_int(c, "attention.key_length", heads > 0 ? width / heads : 0);

	gguf_put_int(c, "num_key_value_heads", most(c, "attention.head_count_kv"));
	gguf_put_int(c, "head_dim", dim);
	gguf_put_rope(c, dim, theta);
}

/* ---- windows ---- */

/* Local layers have a rotation of their own; linear scaling is of the others. */
void gguf_config_gemma3(struct gguf_conf *c)
{
	int64_t heads = gguf_conf_int(c, "attention.head_count", GGUF_NEEDED);
	int64_t width = gguf_conf_int(c, "embedding_length", GGUF_NEEDED);
	int64_t dim = gguf_conf_int(c, "attention.key_length", 256);
	double factor = gguf_conf_float(c, "rope.scaling.factor", 1);
	enum { BLOCKS_27B = 62 }; /* whose scores are scaled by another size; the metadata has no key for it */

	gguf_put_common(c);
	gguf_put_int(c, "num_key_value_heads", gguf_conf_int(c, "attention.head_count_kv", heads));
	gguf_put_int(c, "head_dim", dim);
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_str(c, "hidden_activation", "gelu_pytorch_tanh");
	gguf_put_int(c, "query_pre_attn_scalar", c->m->blocks == BLOCKS_27B && heads > 0 ? width / heads : dim);
	gguf_put_int(c, "sliding_window", gguf_conf_int(c, "attention.sliding_window", GGUF_NEEDED));
	gguf_put_int(c, "sliding_window_pattern", gguf_conf_int(c, "attention.sliding_window_pattern", 6));
	gguf_put_float(c, "rope_theta", gguf_conf_float(c, "rope.freq_base", 1e6));
	gguf_put_float(c, "rope_local_base_freq", gguf_conf_float(c, "rope.freq_base_swa", 1e4));
	gguf_copy_float(c, "attn_logit_softcapping", "attn_logit_softcapping");
	gguf_copy_float(c, "final_logit_softcapping", "final_logit_softcapping");
	if (factor == 1 || c->code)
		return;
	gguf_put_name(c, "rope_scaling");
	buf_putc(c->out, '{');
	gguf_put_str(c, "rope_type", "linear");
	gguf_put_float(c, "factor", factor);
	buf_putc(c->out, '}');
}

/* Blocks whose attention sees a window. */
static bool windowed(struct gguf_conf *c, int64_t i)
{
	return gguf_conf_block_int(c, "attention.sliding_window_pattern", i, 1) != 0;
}

/* Every other layer sees a window, the first too; scores are scaled as in Gemma 3, the 27B with 46 blocks. */
void gguf_config_gemma2(struct gguf_conf *c)
{
	int64_t heads = gguf_conf_int(c, "attention.head_count", GGUF_NEEDED);
	int64_t width = gguf_conf_int(c, "embedding_length", GGUF_NEEDED);
	int64_t dim = gguf_conf_int(c, "attention.key_length", 256);
	enum { BLOCKS_27B = 46 };

	gguf_put_common(c);
	gguf_put_int(c, "num_key_value_heads", gguf_conf_int(c, "attention.head_count_kv", heads));
	gguf_put_int(c, "head_dim", dim);
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_str(c, "hidden_activation", "gelu_pytorch_tanh");
	gguf_put_int(c, "query_pre_attn_scalar", c->m->blocks == BLOCKS_27B && heads > 0 ? width / heads : dim);
	gguf_put_int(c, "sliding_window", gguf_conf_int(c, "attention.sliding_window", 4096));
	gguf_put_int(c, "sliding_window_pattern", gguf_conf_int(c, "attention.sliding_window_pattern", 2));
	gguf_put_float(c, "rope_theta", gguf_conf_float(c, "rope.freq_base", 1e4));
	gguf_copy_float(c, "attn_logit_softcapping", "attn_logit_softcapping");
	gguf_copy_float(c, "final_logit_softcapping", "final_logit_softcapping");
}

void gguf_config_arcee(struct gguf_conf *c)
{
	gguf_config_plain(c);
	gguf_put_str(c, "hidden_activation", "relu2");
}

/* xIELU's numbers are lists by block, whose keys have no architecture before them. */
void gguf_config_apertus(struct gguf_conf *c)
{
	gguf_config_plain(c);
	gguf_put_str(c, "hidden_activation", "xielu");
	gguf_copy_floats(c, "xielu_alpha_p", "xielu.alpha_p");
	gguf_copy_floats(c, "xielu_alpha_n", "xielu.alpha_n");
	gguf_copy_floats(c, "xielu_beta", "xielu.beta");
	gguf_copy_floats(c, "xielu_eps", "xielu.eps");
}

void gguf_config_gemma(struct gguf_conf *c)
{
	gguf_config_plain(c);
	gguf_put_str(c, "hidden_activation", "gelu_pytorch_tanh");
}

/* OLMo 2 is OLMo 3 without windows.  The pattern is a list, or every n-th block sees all. */
void gguf_config_olmo(struct gguf_conf *c)
{
	static const char pattern[] = "attention.sliding_window_pattern";
	bool list = gguf_conf_is_list(c, pattern);
	int64_t window = gguf_conf_int(c, "attention.sliding_window", 0), every = 4;

	gguf_config_plain(c);
	gguf_put_int(c, "sliding_window", window);
	if (!list)
		every = gguf_conf_int(c, pattern, every);
	if (!c->code && every < 1)
		gguf_conf_fail(c, E_FORMAT, "key %s.%s: %" PRId64, c->m->arch->name, pattern, every);
	gguf_put_name(c, "layer_types");
	for (int64_t i = 0; i < c->m->blocks && !c->code; i++) {
		bool local = list ? windowed(c, i) : (i + 1) % every != 0;

		buf_putc(c->out, i ? ',' : '[');
		json_put_cstr(c->out, window && local ? "sliding_attention" : "full_attention");
	}
	buf_putc(c->out, ']');
}

static int64_t first_global(struct gguf_conf *c)
{
	for (int64_t i = 0; i < c->m->blocks && !c->code; i++)
		if (!windowed(c, i))
			return i;
	return 0;
}

/* Divisors of 1 rotate, far larger ones do not: which share of the frequencies turns. */
static double turning_share(struct gguf_conf *c)
{
	const struct gguf_info *t = gguf_tensor_info(c->m, "rope_freqs.weight");
	int64_t n = 0;

	if (!t || strcmp(t->type->name, "F32"))
		return 1;
	while (n < t->count && gguf_float_at(t, n) < 1e20f)
		n++;
	return (double)n / (double)t->count;
}

static void put_gemma4_ropes(struct gguf_conf *c)
{
	double full = gguf_conf_float(c, "rope.freq_base", 1e6), local = gguf_conf_float(c, "rope.freq_base_swa", 1e4);

	gguf_put_name(c, "rope_parameters");
	buf_puts(c->out, "{\"full_attention\":{");
	gguf_put_str(c, "rope_type", "proportional");
	gguf_put_float(c, "rope_theta", full);
	gguf_put_float(c, "partial_rotary_factor", turning_share(c));
	buf_puts(c->out, "},\"sliding_attention\":{");
	gguf_put_str(c, "rope_type", "default");
	gguf_put_float(c, "rope_theta", local);
	buf_puts(c->out, "}}");
}

static void put_gemma4_attention(struct gguf_conf *c)
{
	int64_t global = first_global(c), dim = gguf_conf_int(c, "attention.key_length", GGUF_NEEDED);
	char value[64];

	snprintf(value, sizeof value, "blk.%" PRId64 ".attn_v.weight", global);
	gguf_put_int(c, "head_dim", gguf_conf_int(c, "attention.key_length_swa", dim));
	gguf_put_int(c, "global_head_dim", dim);
	gguf_put_int(c, "num_key_value_heads", gguf_conf_block_int(c, "attention.head_count_kv", global ? 0 : 1, 1));
	gguf_put_int(c, "num_global_key_value_heads", gguf_conf_block_int(c, "attention.head_count_kv", global, 1));
	gguf_put_bool(c, "attention_k_eq_v", !gguf_conf_has_tensor(c, value));
	gguf_put_int(c, "sliding_window", gguf_conf_int(c, "attention.sliding_window", GGUF_NEEDED));
	gguf_put_int(c, "num_kv_shared_layers",
	             gguf_conf_int(c, "attention.shared_kv_layers", c->m->arch->head ? c->m->blocks : 0));
	gguf_put_types(c, "attention.sliding_window_pattern", "sliding_attention", "full_attention");
	put_gemma4_ropes(c);
}

void gguf_config_gemma4(struct gguf_conf *c)
{
	int64_t experts = gguf_conf_int(c, "expert_count", 0);
	int64_t inner = gguf_conf_block_int(c, "feed_forward_length", 0, GGUF_NEEDED);

	gguf_put_common(c);
	put_gemma4_attention(c);
	gguf_put_str(c, "hidden_activation", "gelu_pytorch_tanh");
	gguf_put_int(c, "intermediate_size", inner);
	gguf_put_bool(c, "use_double_wide_mlp", most(c, "feed_forward_length") > inner);
	gguf_put_int(c, "hidden_size_per_layer_input", gguf_conf_int(c, "embedding_length_per_layer_input", 0));
	gguf_copy_float(c, "final_logit_softcapping", "final_logit_softcapping");
	gguf_put_bool(c, "enable_moe_block", experts > 0);
	if (!experts)
		return;
	gguf_put_int(c, "num_experts", experts);
	gguf_put_int(c, "top_k_experts", gguf_conf_int(c, "expert_used_count", GGUF_NEEDED));
	gguf_put_int(c, "moe_intermediate_size", gguf_conf_int(c, "expert_feed_forward_length", GGUF_NEEDED));
}

void gguf_config_gpt_oss(struct gguf_conf *c)
{
	gguf_put_common(c);
	gguf_put_heads(c, 150000);
	gguf_put_bool(c, "attention_bias", gguf_conf_has_tensor(c, "blk.0.attn_q.bias"));
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "expert_feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "num_local_experts", gguf_conf_int(c, "expert_count", GGUF_NEEDED));
	gguf_put_int(c, "num_experts_per_tok", gguf_conf_int(c, "expert_used_count", GGUF_NEEDED));
	gguf_put_int(c, "sliding_window", gguf_conf_int(c, "attention.sliding_window", GGUF_NEEDED));
}

/* ---- sigmoid routers ---- */

void gguf_put_routed(struct gguf_conf *c)
{
	gguf_put_int(c, "n_routed_experts", gguf_conf_int(c, "expert_count", GGUF_NEEDED));
	gguf_put_int(c, "num_experts_per_tok", gguf_conf_int(c, "expert_used_count", GGUF_NEEDED));
	gguf_put_int(c, "moe_intermediate_size",
	             gguf_conf_is_list(c, "expert_feed_forward_length") ?
	                     most(c, "expert_feed_forward_length") :
	                     gguf_conf_int(c, "expert_feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "n_group", gguf_conf_int(c, "expert_group_count", 1));
	gguf_put_int(c, "topk_group", gguf_conf_int(c, "expert_group_used_count", 1));
	gguf_put_bool(c, "norm_topk_prob", gguf_conf_bool(c, "expert_weights_norm", true));
	gguf_put_float(c, "routed_scaling_factor", gguf_conf_float(c, "expert_weights_scale", 1));
}

/* Files of the models that see have their rows of q and k in another order. */
void gguf_config_glm4(struct gguf_conf *c)
{
	for (int64_t i = 0; i < 4 && !c->code; i++)
		if (gguf_conf_has(c, "rope.dimension_sections") &&
		    gguf_conf_block_int(c, "rope.dimension_sections", i, 0))
			gguf_conf_fail(c, E_UNSUPPORTED, "key %s.rope.dimension_sections: %s", c->m->arch->name,
			               "rotations in sections (GLM-4V) are not done");
	gguf_config_plain(c);
}

void gguf_config_minimax(struct gguf_conf *c)
{
	int64_t heads = gguf_conf_int(c, "attention.head_count", GGUF_NEEDED);
	int64_t width = gguf_conf_int(c, "embedding_length", GGUF_NEEDED);
	int64_t dim = gguf_conf_int(c, "attention.key_length", heads > 0 ? width / heads : 0);

	gguf_put_common(c);
	gguf_put_int(c, "num_key_value_heads", gguf_conf_int(c, "attention.head_count_kv", heads));
	gguf_put_int(c, "head_dim", dim);
	gguf_put_int(c, "rotary_dim", gguf_conf_int(c, "rope.dimension_count", dim));
	gguf_put_float(c, "rope_theta", gguf_conf_float(c, "rope.freq_base", 1e4));
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "expert_feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "num_local_experts", gguf_conf_int(c, "expert_count", GGUF_NEEDED));
	gguf_put_int(c, "num_experts_per_tok", gguf_conf_int(c, "expert_used_count", GGUF_NEEDED));
	gguf_put_bool(c, "use_routing_bias", gguf_conf_has_tensor(c, "blk.0.exp_probs_b.bias"));
}

void gguf_config_glm4_moe(struct gguf_conf *c)
{
	gguf_put_common(c);
	gguf_put_heads(c, 10000);
	gguf_put_routed(c);
	gguf_put_bool(c, "attention_bias", gguf_conf_has_tensor(c, "blk.0.attn_q.bias"));
	gguf_put_bool(c, "use_qk_norm", gguf_conf_has_tensor(c, "blk.0.attn_q_norm.weight"));
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "n_shared_experts", gguf_conf_int(c, "expert_shared_count", 0));
	gguf_put_int(c, "first_k_dense_replace", gguf_conf_int(c, "leading_dense_block_count", 0));
}

int64_t gguf_shared_width(const struct gguf_conf *c)
{
	const struct gguf_info *shared = NULL;
	char name[64];

	for (int64_t i = 0; i < c->m->blocks && !shared; i++) {
		snprintf(name, sizeof name, "blk.%" PRId64 ".ffn_down_shexp.weight", i);
		shared = gguf_tensor_info(c->m, name);
	}
	return shared ? shared->ne[0] : 0;
}

/* The width of shared experts as a multiple of `each`, an expert's. */
static int64_t shared_count(struct gguf_conf *c, int64_t each)
{
	int64_t width = gguf_shared_width(c);

	if (!c->code && (each < 1 || width % each))
		gguf_conf_fail(c, E_FORMAT, "shared experts are %" PRId64 " wide, experts %" PRId64, width, each);
	return c->code ? 0 : width / each;
}

/* ---- mixtures with plain attention ---- */

/* Mixtral, and others whose config has one width for experts and for plain blocks; a file may have the former, too. */
void gguf_config_mixtral(struct gguf_conf *c)
{
	int64_t inner;

	gguf_config_plain(c);
	inner = gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED);
	gguf_put_int(c, "num_local_experts", gguf_conf_int(c, "expert_count", GGUF_NEEDED));
	gguf_put_int(c, "num_experts_per_tok", gguf_conf_int(c, "expert_used_count", GGUF_NEEDED));
	if (!c->code && gguf_conf_int(c, "expert_feed_forward_length", inner) != inner)
		gguf_conf_fail(c, E_FORMAT, "key %s.expert_feed_forward_length: is not feed_forward_length",
		               c->m->arch->name);
}

void gguf_config_phimoe(struct gguf_conf *c)
{
	gguf_config_mixtral(c);
	gguf_copy_int(c, "sliding_window", "attention.sliding_window");
	gguf_put_bool(c, "lm_head_bias", gguf_conf_has_tensor(c, "output.bias"));
}

void gguf_config_granite_moe(struct gguf_conf *c)
{
	if (gguf_shared_width(c))
		gguf_conf_fail(c, E_UNSUPPORTED,
		               "key %s.expert_shared_feed_forward_length: shared experts of %s are not done",
		               c->m->arch->name, c->m->arch->name);
	gguf_config_mixtral(c);
	gguf_put_scales(c);
}

void gguf_config_olmoe(struct gguf_conf *c)
{
	gguf_config_plain(c);
	gguf_put_int(c, "num_experts", gguf_conf_int(c, "expert_count", GGUF_NEEDED));
	gguf_put_int(c, "num_experts_per_tok", gguf_conf_int(c, "expert_used_count", GGUF_NEEDED));
	gguf_put_bool(c, "norm_topk_prob", gguf_conf_bool(c, "expert_weights_norm", false));
}

void gguf_config_ernie_moe(struct gguf_conf *c)
{
	int64_t inner = gguf_conf_int(c, "expert_feed_forward_length", GGUF_NEEDED);

	gguf_config_plain(c);
	gguf_put_int(c, "moe_num_experts", gguf_conf_int(c, "expert_count", GGUF_NEEDED));
	gguf_put_int(c, "moe_k", gguf_conf_int(c, "expert_used_count", GGUF_NEEDED));
	gguf_put_int(c, "moe_intermediate_size", inner);
	gguf_put_int(c, "moe_num_shared_experts", shared_count(c, inner));
	gguf_put_int(c, "moe_layer_interval", gguf_conf_int(c, "interleave_moe_layer_step", 1));
	gguf_put_int(c, "moe_layer_start_index", gguf_conf_int(c, "leading_dense_block_count", 0));
}

void gguf_config_afmoe(struct gguf_conf *c)
{
	int64_t inner = gguf_conf_int(c, "expert_feed_forward_length", GGUF_NEEDED);

	gguf_config_plain(c);
	gguf_put_int(c, "num_experts", gguf_conf_int(c, "expert_count", GGUF_NEEDED));
	gguf_put_routed(c);
	gguf_put_float(c, "route_scale", gguf_conf_float(c, "expert_weights_scale", 1));
	gguf_put_int(c, "num_shared_experts", shared_count(c, inner));
	gguf_put_int(c, "num_dense_layers", gguf_conf_int(c, "leading_dense_block_count", 0));
	gguf_put_int(c, "sliding_window", gguf_conf_int(c, "attention.sliding_window", GGUF_NEEDED));
	gguf_put_bool(c, "mup_enabled", true);
}

/* ---- Command ---- */

void gguf_config_cohere2(struct gguf_conf *c)
{
	gguf_config_plain(c);
	gguf_put_float(c, "logit_scale", gguf_conf_float(c, "logit_scale", (double)NAN));
	gguf_put_int(c, "sliding_window", gguf_conf_int(c, "attention.sliding_window", GGUF_NEEDED));
}

void gguf_config_cohere2_moe(struct gguf_conf *c)
{
	int64_t inner = gguf_conf_int(c, "expert_feed_forward_length", GGUF_NEEDED);

	gguf_put_common(c);
	gguf_put_heads(c, 10000);
	gguf_put_float(c, "logit_scale", gguf_conf_float(c, "logit_scale", (double)NAN));
	gguf_put_int(c, "sliding_window", gguf_conf_int(c, "attention.sliding_window", GGUF_NEEDED));
	gguf_put_types(c, "attention.sliding_window_pattern", "sliding_attention", "full_attention");
	gguf_put_int(c, "num_experts", gguf_conf_int(c, "expert_count", GGUF_NEEDED));
	gguf_put_int(c, "num_experts_per_tok", gguf_conf_int(c, "expert_used_count", GGUF_NEEDED));
	gguf_put_bool(c, "norm_topk_prob", gguf_conf_bool(c, "expert_weights_norm", true));
	gguf_put_int(c, "intermediate_size", inner);
	gguf_put_int(c, "prefix_dense_intermediate_size", gguf_conf_int(c, "feed_forward_length", inner));
	gguf_put_int(c, "first_k_dense_replace", gguf_conf_int(c, "leading_dense_block_count", 0));
	gguf_put_int(c, "num_shared_experts", shared_count(c, inner));
	gguf_put_str(c, "expert_selection_fn", gguf_conf_int(c, "expert_gating_func", 2) == 2 ? "sigmoid" : "softmax");
}

/* Ling 1: its head is normalised in the file, and q, k and v are apart. */
void gguf_config_bailing(struct gguf_conf *c)
{
	int64_t inner = gguf_conf_int(c, "expert_feed_forward_length", GGUF_NEEDED);

	gguf_config_plain(c);
	gguf_put_routed(c);
	gguf_put_int(c, "num_experts", gguf_conf_int(c, "expert_count", GGUF_NEEDED));
	gguf_put_int(c, "num_shared_experts", shared_count(c, inner));
	gguf_put_int(c, "first_k_dense_replace", gguf_conf_int(c, "leading_dense_block_count", 0));
	gguf_put_bool(c, "qkv_apart", true);
}

/* Ling 2. */
void gguf_config_bailing2(struct gguf_conf *c)
{
	int64_t shared = gguf_shared_width(c);

	gguf_put_common(c);
	gguf_put_heads(c, 600000);
	gguf_put_int(c, "num_experts", gguf_conf_int(c, "expert_count", GGUF_NEEDED));
	gguf_put_routed(c);
	gguf_put_str(c, "score_function", gguf_conf_int(c, "expert_gating_func", 2) == 2 ? "sigmoid" : "softmax");
	gguf_put_bool(c, "moe_router_enable_expert_bias", has_in_some(c, "exp_probs_b.bias"));
	gguf_put_bool(c, "use_qk_norm", gguf_conf_has_tensor(c, "blk.0.attn_q_norm.weight"));
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "num_shared_experts", shared > 0);
	if (shared)
		gguf_put_int(c, "moe_shared_expert_intermediate_size", shared);
	gguf_put_int(c, "first_k_dense_replace", gguf_conf_int(c, "leading_dense_block_count", 0));
}

/* ---- latent attention ---- */

/* Sizes of a head, of which `turned` inputs at least have positions.  In files whose key rows are the latent ones, the heads'
 * own have keys of their own. */
static void put_latent(struct gguf_conf *c, int64_t turned)
{
	bool own = gguf_conf_has(c, "attention.key_length_mla");
	int64_t key = gguf_conf_int(c, own ? "attention.key_length_mla" : "attention.key_length", GGUF_NEEDED);
	int64_t rope = gguf_conf_int(c, "rope.dimension_count", GGUF_NEEDED);

	if (!c->code && (rope < turned || rope >= key))
		gguf_conf_fail(c, E_FORMAT, "key %s.rope.dimension_count: %" PRId64 " of heads of %" PRId64,
		               c->m->arch->name, rope, key);
	gguf_put_int(c, "kv_lora_rank", gguf_conf_int(c, "attention.kv_lora_rank", GGUF_NEEDED));
	gguf_put_int(c, "qk_nope_head_dim", key - rope);
	gguf_put_int(c, "qk_rope_head_dim", rope);
	gguf_put_int(c, "v_head_dim",
	             gguf_conf_int(c, own ? "attention.value_length_mla" : "attention.value_length", GGUF_NEEDED));
	gguf_copy_int(c, "q_lora_rank", "attention.q_lora_rank");
}

enum { SOFTMAX = 1, SIGMOID = 2, ROOT_SOFTPLUS = 4 }; /* values of expert_gating_func */

/* Scores of experts are sigmoids; absent: what files without the key have, of DeepSeek-V2 softmax. */
static void want_sigmoids(struct gguf_conf *c, int64_t absent)
{
	int64_t kind = gguf_conf_int(c, "expert_gating_func", absent);

	if (!c->code && kind != SIGMOID)
		gguf_conf_fail(c, E_UNSUPPORTED, "key %s.expert_gating_func: %" PRId64 ", only sigmoids (%d) are done",
		               c->m->arch->name, kind, SIGMOID);
}

void gguf_config_deepseek(struct gguf_conf *c)
{
	int64_t rope = gguf_conf_int(c, "rope.dimension_count", GGUF_NEEDED);

	gguf_put_common(c);
	put_latent(c, 1);
	gguf_put_rope(c, rope, 10000);
	want_sigmoids(c, SOFTMAX);
	gguf_put_routed(c);
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "n_shared_experts", gguf_conf_int(c, "expert_shared_count", 0));
	gguf_put_int(c, "first_k_dense_replace", gguf_conf_int(c, "leading_dense_block_count", 0));
}

/* Blocks with a key head, of which the config says how many lie from one to the next; those behind the last whole group have
 * one, too. */
static void put_group(struct gguf_conf *c)
{
	int64_t layers = c->m->blocks - c->m->drafts, group = 0;

	while (group < layers && !c->code && !gguf_conf_block_int(c, "attention.head_count_kv", group, GGUF_NEEDED))
		group++;
	group++;
	for (int64_t i = 0; i < layers && !c->code; i++) {
		bool latent = (i + 1) % group == 0 || i >= layers / group * group;

		if ((gguf_conf_block_int(c, "attention.head_count_kv", i, 0) != 0) != latent)
			gguf_conf_fail(c, E_UNSUPPORTED,
			               "key %s.attention.head_count_kv: block %" PRId64
			               " does not fit groups of %" PRId64,
			               c->m->arch->name, i, group);
	}
	gguf_put_int(c, "layer_group_size", group);
}

/* Ling 3. */
void gguf_config_bailing3(struct gguf_conf *c)
{
	gguf_put_common(c);
	put_latent(c, 1);
	gguf_put_rope(c, gguf_conf_int(c, "rope.dimension_count", GGUF_NEEDED), 6e6);
	gguf_put_int(c, "head_dim", gguf_conf_int(c, "kda.head_dim", GGUF_NEEDED));
	gguf_put_int(c, "num_key_value_heads", gguf_conf_int(c, "attention.head_count", GGUF_NEEDED));
	put_group(c);
	gguf_put_int(c, "short_conv_kernel_size", gguf_conf_int(c, "ssm.conv_kernel", GGUF_NEEDED));
	gguf_put_bool(c, "kda_safe_gate", gguf_conf_bool(c, "kda.safe_gate", true));
	gguf_put_float(c, "kda_lower_bound", gguf_conf_float(c, "kda.gate_lower_bound", -5));
	if (has_in_some(c, "attn_gate.weight"))
		gguf_put_str(c, "gated_attention_proj_granularity_type", "head_wise");
	gguf_put_bool(c, "attention_outputs_alike", true);
	want_sigmoids(c, SIGMOID);
	gguf_put_int(c, "num_experts", gguf_conf_int(c, "expert_count", GGUF_NEEDED));
	gguf_put_routed(c);
	gguf_put_bool(c, "moe_router_enable_expert_bias", has_in_some(c, "exp_probs_b.bias"));
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "num_shared_experts", gguf_shared_width(c) > 0);
	if (gguf_shared_width(c))
		gguf_put_int(c, "moe_shared_expert_intermediate_size", gguf_shared_width(c));
	gguf_put_int(c, "first_k_dense_replace", gguf_conf_int(c, "leading_dense_block_count", 0));
	if (gguf_conf_has(c, "swiglu_clamp_exp"))
		gguf_copy_floats(c, "expert_swiglu_limit_list", "swiglu_clamp_exp");
	if (gguf_conf_has(c, "swiglu_clamp_shexp"))
		gguf_copy_floats(c, "share_expert_swiglu_limit_list", "swiglu_clamp_shexp");
}

/* Which layers have an indexer.  Files of GLM 5.2 lack the key; its layers are known by the length of its context. */
static void put_indexers(struct gguf_conf *c)
{
	enum { LONG = 1 << 20 };

	if (!gguf_conf_has(c, "attention.indexer.types")) {
		if (gguf_conf_int(c, "context_length", GGUF_NEEDED) >= LONG) {
			gguf_put_int(c, "index_topk_freq", 4);
			gguf_put_int(c, "index_skip_topk_offset", 3);
		}
		return;
	}
	put_trunk(c, "indexer_types", "attention.indexer.types", "full", "shared");
}

void gguf_config_dsa(struct gguf_conf *c)
{
	gguf_config_deepseek(c);
	gguf_put_int(c, "index_n_heads", gguf_conf_int(c, "attention.indexer.head_count", GGUF_NEEDED));
	gguf_put_int(c, "index_head_dim", gguf_conf_int(c, "attention.indexer.key_length", GGUF_NEEDED));
	gguf_put_int(c, "index_topk", gguf_conf_int(c, "attention.indexer.top_k", GGUF_NEEDED));
	if (!strcmp(c->m->arch->name, "glm-dsa"))
		put_indexers(c);
}

/* Writes the numbers, from 1, of the blocks that have a key head (attention), or of those without. */
static void put_numbers(struct gguf_conf *c, const char *member, bool attention)
{
	bool first = true;

	gguf_put_name(c, member);
	buf_putc(c->out, '[');
	for (int64_t i = 0; i < c->m->blocks - c->m->drafts && !c->code; i++) {
		if ((gguf_conf_block_int(c, "attention.head_count_kv", i, 0) != 0) != attention)
			continue;
		buf_printf(c->out, "%s%" PRId64, first ? "" : ",", i + 1);
		first = false;
	}
	buf_putc(c->out, ']');
}

static void put_kda(struct gguf_conf *c)
{
	gguf_put_name(c, "linear_attn_config");
	buf_putc(c->out, '{');
	gguf_put_int(c, "num_heads", gguf_conf_int(c, "attention.head_count", GGUF_NEEDED));
	gguf_put_int(c, "head_dim", gguf_conf_int(c, "kda.head_dim", GGUF_NEEDED));
	gguf_put_int(c, "short_conv_kernel_size", gguf_conf_int(c, "ssm.conv_kernel", GGUF_NEEDED));
	put_numbers(c, "full_attn_layers", true);
	put_numbers(c, "kda_layers", false);
	buf_putc(c->out, '}');
}

/* Mistral Small 4: a softmax router. */
void gguf_config_mistral4(struct gguf_conf *c)
{
	gguf_put_common(c);
	put_latent(c, 1);
	gguf_put_rope(c, gguf_conf_int(c, "rope.dimension_count", GGUF_NEEDED), 10000);
	gguf_put_routed(c);
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "n_shared_experts",
	             shared_count(c, gguf_conf_int(c, "expert_feed_forward_length", GGUF_NEEDED)));
	gguf_put_int(c, "first_k_dense_replace", gguf_conf_int(c, "leading_dense_block_count", 0));
}

void gguf_config_kimi_linear(struct gguf_conf *c)
{
	gguf_put_common(c);
	put_latent(c, 1);
	gguf_put_bool(c, "mla_use_nope", true);
	put_kda(c);
	want_sigmoids(c, SOFTMAX);
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "num_experts", gguf_conf_int(c, "expert_count", GGUF_NEEDED));
	gguf_put_int(c, "num_experts_per_token", gguf_conf_int(c, "expert_used_count", GGUF_NEEDED));
	gguf_put_int(c, "moe_intermediate_size", gguf_conf_int(c, "expert_feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "num_shared_experts", gguf_conf_int(c, "expert_shared_count", 0));
	gguf_put_int(c, "num_expert_group", gguf_conf_int(c, "expert_group_count", 1));
	gguf_put_int(c, "topk_group", gguf_conf_int(c, "expert_group_used_count", 1));
	gguf_put_bool(c, "moe_renormalize", gguf_conf_bool(c, "expert_weights_norm", true));
	gguf_put_float(c, "routed_scaling_factor", gguf_conf_float(c, "expert_weights_scale", 1));
	gguf_put_int(c, "first_k_dense_replace", gguf_conf_int(c, "leading_dense_block_count", 0));
}

/* One bound of all activations, which keys have by block, for experts and for the shared one. */
static void put_bound(struct gguf_conf *c)
{
	static const char *const keys[] = { "swiglu_clamp_exp", "swiglu_clamp_shexp" };
	double bound = gguf_conf_block_float(c, keys[0], 0, 0);

	for (int k = 0; k < 2; k++)
		for (int64_t i = 0; i < c->m->blocks - c->m->drafts && !c->code; i++) {
			double own = gguf_conf_block_float(c, keys[k], i, bound);

			if (own != bound)
				gguf_conf_fail(c, E_UNSUPPORTED,
				               "key %s.%s: block %" PRId64 " has %g, the first %g; one of all is done",
				               c->m->arch->name, keys[k], i, own, bound);
		}
	gguf_put_float(c, "swiglu_limit", bound);
}

/* Early files call the length of pools block_size, or lack it. */
static void put_pools(struct gguf_conf *c)
{
	int64_t length = gguf_conf_int(c, "attention.indexer.kpool",
	                               gguf_conf_int(c, "attention.indexer.block_size", 4));
	bool tail = gguf_conf_bool(c, "attention.indexer.kpool_select_tail",
	                           gguf_conf_bool(c, "attention.indexer.kpool_always_select_tail", true));

	gguf_put_int(c, "index_n_heads", gguf_conf_int(c, "attention.indexer.head_count", GGUF_NEEDED));
	gguf_put_int(c, "index_head_dim", gguf_conf_int(c, "attention.indexer.key_length", GGUF_NEEDED));
	gguf_put_int(c, "index_topk", gguf_conf_int(c, "attention.indexer.top_k", GGUF_NEEDED));
	gguf_put_int(c, "index_kpool", length);
	gguf_put_bool(c, "index_kpool_compress", true);
	gguf_put_bool(c, "index_kpool_always_select_tail", tail);
	if (gguf_conf_has(c, "attention.indexer.types"))
		put_trunk(c, "indexer_types", "attention.indexer.types", "full", "shared");
}

/* Layers of Kimi Delta Attention have no key heads. */
void gguf_config_glm5_next(struct gguf_conf *c)
{
	gguf_put_common(c);
	put_latent(c, 0);
	gguf_put_types(c, "attention.head_count_kv", "deepseek_sparse_attention", "linear_attention");
	gguf_put_name(c, "linear_attn_config");
	buf_putc(c->out, '{');
	gguf_put_int(c, "num_heads", gguf_conf_int(c, "attention.head_count", GGUF_NEEDED));
	gguf_put_int(c, "head_dim", gguf_conf_int(c, "kda.head_dim", GGUF_NEEDED));
	gguf_put_int(c, "short_conv_kernel_size", gguf_conf_int(c, "ssm.conv_kernel", GGUF_NEEDED));
	gguf_copy_float(c, "gate_lower_bound", "kda.gate_lower_bound");
	buf_putc(c->out, '}');
	put_pools(c);
	gguf_put_int(c, "hc_mult", gguf_conf_int(c, "hyper_connection.count", GGUF_NEEDED));
	gguf_put_int(c, "hc_sinkhorn_iters", gguf_conf_int(c, "hyper_connection.sinkhorn_iterations", GGUF_NEEDED));
	gguf_put_float(c, "hc_eps", gguf_conf_float(c, "hyper_connection.epsilon", 1e-6));
	want_sigmoids(c, SIGMOID);
	gguf_put_routed(c);
	put_bound(c);
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "n_shared_experts", gguf_conf_int(c, "expert_shared_count", 0));
	gguf_put_int(c, "first_k_dense_replace", gguf_conf_int(c, "leading_dense_block_count", 0));
}

/* ---- DeepSeek V4 ---- */

/* Rotations of layers without a history, and of those with one, which alone are scaled. */
static void put_two_ropes(struct gguf_conf *c)
{
	gguf_put_float(c, "rope_theta", gguf_conf_float(c, "rope.freq_base", 10000));
	gguf_put_float(c, "compress_rope_theta", gguf_conf_float(c, "attention.compress_rope_freq_base", 160000));
	if (!gguf_conf_is(c, "rope.scaling.type", "yarn"))
		return;
	gguf_put_name(c, "rope_scaling");
	buf_putc(c->out, '{');
	gguf_put_str(c, "type", "yarn");
	gguf_put_float(c, "factor", gguf_conf_float(c, "rope.scaling.factor", (double)NAN));
	gguf_put_int(c, "original_max_position_embeddings",
	             gguf_conf_int(c, "rope.scaling.original_context_length", GGUF_NEEDED));
	gguf_put_float(c, "beta_fast", gguf_conf_float(c, "rope.scaling.yarn_beta_fast", 32));
	gguf_put_float(c, "beta_slow", gguf_conf_float(c, "rope.scaling.yarn_beta_slow", 1));
	buf_putc(c->out, '}');
}

void gguf_config_deepseek4(struct gguf_conf *c)
{
	int64_t kind = gguf_conf_int(c, "expert_gating_func", ROOT_SOFTPLUS);

	if (!c->code && kind != ROOT_SOFTPLUS)
		gguf_conf_fail(c, E_UNSUPPORTED,
		               "key %s.expert_gating_func: %" PRId64 ", only roots of softplus (%d) are done",
		               c->m->arch->name, kind, ROOT_SOFTPLUS);
	gguf_put_common(c);
	put_two_ropes(c);
	gguf_put_int(c, "head_dim", gguf_conf_int(c, "attention.key_length", GGUF_NEEDED));
	gguf_put_int(c, "qk_rope_head_dim", gguf_conf_int(c, "rope.dimension_count", GGUF_NEEDED));
	gguf_put_int(c, "q_lora_rank", gguf_conf_int(c, "attention.q_lora_rank", GGUF_NEEDED));
	gguf_put_int(c, "o_lora_rank", gguf_conf_int(c, "attention.output_lora_rank", GGUF_NEEDED));
	gguf_put_int(c, "o_groups", gguf_conf_int(c, "attention.output_group_count", GGUF_NEEDED));
	gguf_put_int(c, "sliding_window", gguf_conf_int(c, "attention.sliding_window", GGUF_NEEDED));
	gguf_copy_list(c, "compress_ratios", "attention.compress_ratios", 0);
	gguf_put_int(c, "index_n_heads", gguf_conf_int(c, "attention.indexer.head_count", GGUF_NEEDED));
	gguf_put_int(c, "index_head_dim", gguf_conf_int(c, "attention.indexer.key_length", GGUF_NEEDED));
	gguf_put_int(c, "index_topk", gguf_conf_int(c, "attention.indexer.top_k", GGUF_NEEDED));
	gguf_put_int(c, "num_hash_layers", gguf_conf_int(c, "hash_layer_count", 0));
	gguf_put_int(c, "hc_mult", gguf_conf_int(c, "hyper_connection.count", GGUF_NEEDED));
	gguf_put_int(c, "hc_sinkhorn_iters", gguf_conf_int(c, "hyper_connection.sinkhorn_iterations", GGUF_NEEDED));
	gguf_put_float(c, "hc_eps", gguf_conf_float(c, "hyper_connection.epsilon", 1e-6));
	gguf_put_routed(c);
	put_bound(c);
	gguf_put_int(c, "n_shared_experts", gguf_conf_int(c, "expert_shared_count", 0));
}

/* ---- Mamba-2 ---- */

/* Inner width over heads. */
static int64_t mamba_head(struct gguf_conf *c)
{
	int64_t inner = gguf_conf_int(c, "ssm.inner_size", GGUF_NEEDED);
	int64_t heads = gguf_conf_int(c, "ssm.time_step_rank", GGUF_NEEDED);

	if (!c->code && (heads < 1 || inner < 1 || inner % heads))
		gguf_conf_fail(c, E_FORMAT,
		               "key %s.ssm.inner_size: %" PRId64 " is not whole heads, of which there are %" PRId64,
		               c->m->arch->name, inner, heads);
	return c->code ? 1 : inner / heads;
}

static void put_mamba(struct gguf_conf *c)
{
	gguf_put_int(c, "mamba_n_heads", gguf_conf_int(c, "ssm.time_step_rank", GGUF_NEEDED));
	gguf_put_int(c, "mamba_d_head", mamba_head(c));
	gguf_put_int(c, "mamba_d_ssm", gguf_conf_int(c, "ssm.inner_size", GGUF_NEEDED));
	gguf_put_int(c, "mamba_n_groups", gguf_conf_int(c, "ssm.group_count", 1));
	gguf_put_int(c, "mamba_d_state", gguf_conf_int(c, "ssm.state_size", GGUF_NEEDED));
	gguf_put_int(c, "mamba_d_conv", gguf_conf_int(c, "ssm.conv_kernel", GGUF_NEEDED));
}

/* Its multipliers are in the weights: the axes of the convolution tell the binder. */
void gguf_config_falcon_h1(struct gguf_conf *c)
{
	gguf_put_common(c);
	gguf_put_heads(c, 1e11);
	put_mamba(c);
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_bool(c, "mamba_conv_bias", gguf_conf_has_tensor(c, "blk.0.ssm_conv1d.bias"));
	gguf_put_bool(c, "mamba_rms_norm", gguf_conf_has_tensor(c, "blk.0.ssm_norm.weight"));
	gguf_put_bool(c, "mamba_norm_before_gate", false);
}

/* Granite's factors. */
void gguf_put_scales(struct gguf_conf *c)
{
	gguf_copy_float(c, "attention_multiplier", "attention.scale");
	gguf_copy_float(c, "embedding_multiplier", "embedding_scale");
	gguf_copy_float(c, "residual_multiplier", "residual_scale");
	gguf_copy_float(c, "logits_scaling", "logit_scale");
}

/* Windows and a rotation by layer; one base, or none. */
void gguf_config_granite_swa(struct gguf_conf *c)
{
	double base = gguf_conf_float(c, "rope.freq_base", 10000);
	int64_t shared = gguf_shared_width(c);

	if (gguf_conf_int(c, "expert_count", 0))
		gguf_config_mixtral(c);
	else
		gguf_config_plain(c);
	gguf_put_scales(c);
	gguf_put_int(c, "sliding_window", gguf_conf_int(c, "attention.sliding_window", GGUF_NEEDED));
	gguf_put_types(c, "attention.sliding_window_pattern", "sliding_attention", "full_attention");
	gguf_put_name(c, "layer_rope_theta");
	for (int64_t i = 0; i < c->m->blocks && !c->code; i++) {
		buf_putc(c->out, i ? ',' : '[');
		gguf_put_number(c->out, gguf_conf_block_int(c, "attention.rope_pattern", i, 1) ? base : 0);
	}
	buf_putc(c->out, ']');
	gguf_put_int(c, "shared_intermediate_size", shared);
}

void gguf_config_granite(struct gguf_conf *c)
{
	int64_t experts = gguf_conf_int(c, "expert_count", 0);
	int64_t inner = gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED);

	gguf_put_common(c);
	gguf_put_heads(c, 10000);
	put_mamba(c);
	gguf_put_types(c, "attention.head_count_kv", "attention", "mamba");
	gguf_put_int(c, "intermediate_size", inner);
	gguf_put_int(c, "shared_intermediate_size",
	             experts ? gguf_conf_int(c, "expert_shared_feed_forward_length", 0) : inner);
	gguf_put_int(c, "num_local_experts", experts);
	if (experts)
		gguf_put_int(c, "num_experts_per_tok", gguf_conf_int(c, "expert_used_count", GGUF_NEEDED));
	gguf_put_str(c, "position_embedding_type", gguf_conf_bool(c, "rope.scaling.finetuned", true) ? "rope" : "nope");
	gguf_put_scales(c);
}

/* One mixer per block: attention where it has key heads, experts or an MLP where it has a width, else Mamba. */
static void put_pattern(struct gguf_conf *c, bool experts)
{
	gguf_put_name(c, "hybrid_override_pattern");
	buf_putc(c->out, '"');
	for (int64_t i = 0; i < c->m->blocks - c->m->drafts && !c->code; i++)
		buf_putc(c->out, gguf_conf_block_int(c, "attention.head_count_kv", i, 0) ? '*' :
		                 !gguf_conf_block_int(c, "feed_forward_length", i, 0)    ? 'M' :
		                 experts                                                 ? 'E' :
		                                                                           '-');
	buf_putc(c->out, '"');
}

/* The mixer's sizes under the names that they have where it is all of a block. */
static void put_mixer(struct gguf_conf *c, const char *heads, const char *head_dim)
{
	gguf_put_float(c, "layer_norm_epsilon", gguf_conf_float(c, "attention.layer_norm_rms_epsilon", (double)NAN));
	gguf_put_int(c, heads, gguf_conf_int(c, "ssm.time_step_rank", GGUF_NEEDED));
	gguf_put_int(c, head_dim, mamba_head(c));
	gguf_put_int(c, "n_groups", gguf_conf_int(c, "ssm.group_count", 1));
	gguf_put_int(c, "conv_kernel", gguf_conf_int(c, "ssm.conv_kernel", GGUF_NEEDED));
}

void gguf_config_mamba2(struct gguf_conf *c)
{
	gguf_put_common(c);
	put_mixer(c, "num_heads", "head_dim");
	gguf_put_int(c, "state_size", gguf_conf_int(c, "ssm.state_size", GGUF_NEEDED));
	gguf_put_bool(c, "use_conv_bias", gguf_conf_has_tensor(c, "blk.0.ssm_conv1d.bias"));
}

/* Mamba and Falcon-Mamba, whose norms inside of a block have the same epsilon here. */
void gguf_config_mamba(struct gguf_conf *c)
{
	double eps = gguf_conf_float(c, "attention.layer_norm_rms_epsilon", (double)NAN);

	gguf_put_common(c);
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "ssm.inner_size", GGUF_NEEDED));
	gguf_put_int(c, "state_size", gguf_conf_int(c, "ssm.state_size", GGUF_NEEDED));
	gguf_put_int(c, "conv_kernel", gguf_conf_int(c, "ssm.conv_kernel", GGUF_NEEDED));
	gguf_put_int(c, "time_step_rank", gguf_conf_int(c, "ssm.time_step_rank", GGUF_NEEDED));
	gguf_put_bool(c, "use_conv_bias", gguf_conf_has_tensor(c, "blk.0.ssm_conv1d.bias"));
	gguf_put_float(c, "layer_norm_epsilon", eps);
	gguf_put_float(c, "mixer_rms_eps", eps);
}

void gguf_config_nemotron(struct gguf_conf *c)
{
	bool experts = gguf_conf_int(c, "expert_count", 0) > 0;

	gguf_put_common(c);
	gguf_put_heads(c, 10000);
	put_pattern(c, experts);
	put_mixer(c, "mamba_num_heads", "mamba_head_dim");
	gguf_put_int(c, "ssm_state_size", gguf_conf_int(c, "ssm.state_size", GGUF_NEEDED));
	gguf_put_str(c, "mlp_hidden_act", "relu2");
	gguf_put_int(c, "intermediate_size", most(c, "feed_forward_length"));
	if (!experts)
		return;
	gguf_put_routed(c);
	gguf_put_int(c, "moe_shared_expert_intermediate_size",
	             gguf_conf_int(c, "expert_shared_feed_forward_length", 0));
	gguf_copy_int(c, "moe_latent_size", "moe_latent_size");
}

/* ---- short convolutions ---- */

void gguf_config_lfm2(struct gguf_conf *c)
{
	gguf_put_common(c);
	gguf_put_heads(c, 1e6);
	gguf_put_types(c, "attention.head_count_kv", "full_attention", "conv");
	gguf_put_float(c, "norm_eps", gguf_conf_float(c, "attention.layer_norm_rms_epsilon", (double)NAN));
	gguf_put_int(c, "conv_L_cache", gguf_conf_int(c, "shortconv.l_cache", GGUF_NEEDED));
	gguf_put_bool(c, "block_auto_adjust_ff_dim", false);
	gguf_put_int(c, "intermediate_size", most(c, "feed_forward_length"));
	if (!gguf_conf_int(c, "expert_count", 0))
		return;
	gguf_put_int(c, "num_experts", gguf_conf_int(c, "expert_count", 0));
	gguf_put_int(c, "num_experts_per_tok", gguf_conf_int(c, "expert_used_count", GGUF_NEEDED));
	gguf_put_int(c, "moe_intermediate_size", gguf_conf_int(c, "expert_feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "num_dense_layers", gguf_conf_int(c, "leading_dense_block_count", 0));
	gguf_put_bool(c, "norm_topk_prob", gguf_conf_bool(c, "expert_weights_norm", true));
	gguf_put_bool(c, "use_expert_bias", true);
	gguf_put_float(c, "routed_scaling_factor", gguf_conf_float(c, "expert_weights_scale", 1));
}

/* ---- layers in turn ---- */

static bool has_key_heads(struct gguf_conf *c, int64_t i)
{
	return gguf_conf_block_int(c, "attention.head_count_kv", i, 0) != 0;
}

/* Block i is of a kind where i mod period = offset, as the config has it, while the file says it of each block.  A kind that
 * no block is of has an offset that no remainder reaches. */
static void put_turns(struct gguf_conf *c, const char *period, const char *offset, gguf_block_is_fn *is)
{
	int64_t first = -1, every = 0;

	for (int64_t i = 0; i < c->m->blocks && !c->code; i++) {
		if (!is(c, i))
			continue;
		every = first >= 0 && !every ? i - first : every;
		first = first < 0 ? i : first;
	}
	every = first < 0 ? 1 : every ? every : c->m->blocks;
	first = first < 0 ? 1 : first;
	for (int64_t i = 0; i < c->m->blocks && !c->code; i++)
		if (is(c, i) != (i % every == first))
			gguf_conf_fail(c, E_UNSUPPORTED,
			               "block %" PRId64 ": of every %" PRId64 " one is such: %s %" PRId64, i, every,
			               offset, first);
	gguf_put_int(c, period, every);
	gguf_put_int(c, offset, first);
}

void gguf_config_jamba(struct gguf_conf *c)
{
	int64_t width = gguf_conf_int(c, "embedding_length", GGUF_NEEDED),
		inner = gguf_conf_int(c, "ssm.inner_size", GGUF_NEEDED);

	if (!c->code && (width < 1 || inner < 1 || inner % width))
		gguf_conf_fail(c, E_FORMAT,
		               "key %s.ssm.inner_size: %" PRId64 " is not a multiple of the width, %" PRId64,
		               c->m->arch->name, inner, width);
	gguf_put_common(c);
	gguf_put_int(c, "num_key_value_heads", most(c, "attention.head_count_kv"));
	put_turns(c, "attn_layer_period", "attn_layer_offset", has_key_heads);
	put_turns(c, "expert_layer_period", "expert_layer_offset", gguf_conf_mixture);
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "mamba_expand", c->code ? 1 : inner / width);
	gguf_put_int(c, "mamba_d_state", gguf_conf_int(c, "ssm.state_size", GGUF_NEEDED));
	gguf_put_int(c, "mamba_d_conv", gguf_conf_int(c, "ssm.conv_kernel", GGUF_NEEDED));
	gguf_put_int(c, "mamba_dt_rank", gguf_conf_int(c, "ssm.time_step_rank", GGUF_NEEDED));
	gguf_put_int(c, "num_experts", gguf_conf_int(c, "expert_count", 0));
	gguf_copy_int(c, "num_experts_per_tok", "expert_used_count");
}

/* ---- RWKV ---- */

void gguf_config_rwkv7(struct gguf_conf *c)
{
	const struct gguf_info *embedding = gguf_tensor_info(c->m, "token_embd.weight");

	if (!embedding)
		gguf_conf_fail(c, E_MISSING, "tensor token_embd.weight: missing");
	gguf_put_int(c, "hidden_size", gguf_conf_int(c, "embedding_length", GGUF_NEEDED));
	gguf_put_int(c, "num_hidden_layers", c->m->blocks);
	gguf_put_int(c, "vocab_size", embedding ? embedding->ne[1] : 1);
	gguf_put_int(c, "max_position_embeddings", gguf_conf_int(c, "context_length", GGUF_NEEDED));
	gguf_put_float(c, "norm_eps", gguf_conf_float(c, "attention.layer_norm_epsilon", (double)NAN));
	gguf_put_int(c, "head_dim", gguf_conf_int(c, "wkv.head_size", GGUF_NEEDED));
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "decay_low_rank_dim", gguf_conf_int(c, "attention.decay_lora_rank", GGUF_NEEDED));
	gguf_put_int(c, "a_low_rank_dim", gguf_conf_int(c, "attention.iclr_lora_rank", GGUF_NEEDED));
	gguf_put_int(c, "v_low_rank_dim", gguf_conf_int(c, "attention.value_residual_mix_lora_rank", GGUF_NEEDED));
	gguf_put_int(c, "gate_low_rank_dim", gguf_conf_int(c, "attention.gate_lora_rank", GGUF_NEEDED));
	gguf_put_bool(c, "tie_word_embeddings", !gguf_conf_has_tensor(c, "output.weight"));
	gguf_put_str(c, "hidden_act", "sqrelu");
}
