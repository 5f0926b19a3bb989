/* Values of the config that a model reads through a list or beside its usual keys: of another type, of another length or
 * with entries that are none of what is listed, each is refused by a message that names the key and both values.
 * A folder has its config and a tensor that shows a tower, and none of the model's: the whole config is sound where binding
 * stops at a tensor that is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "folder.h"
#include "model/model.h"
#include "store/store.h"
#include "vision/picture.h"
#include "vision/tower.h"

#define SIZES                                                                                                      \
	"\"vocab_size\":64,\"hidden_size\":32,\"num_hidden_layers\":4,\"num_attention_heads\":2,\"head_dim\":16,"  \
	"\"num_key_value_heads\":2,\"intermediate_size\":48,\"rms_norm_eps\":1e-5,\"max_position_embeddings\":64," \
	"\"rope_theta\":1e4,\"hidden_act\":\"silu\","
#define LATENT                                                                                                    \
	"\"kv_lora_rank\":32,\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":8,\"v_head_dim\":16,\"num_experts\":4," \
	"\"moe_intermediate_size\":16,"
#define STREAMS ",\"hc_count\":4"
#define BLOCKS(budget, each) ",\"indexer_head_dim\":8,\"indexer_budget\":" #budget ",\"indexer_compress_ratio\":" #each
#define LINEAR ",\"full_attention_interval\":4"
#define NGRAMS ",\"ple_layer_ids\":[1],\"ple_embed_dim\":32,\"eos_token_id\":[7,8]"
#define MIXTURE "\"moe_intermediate_size\":16,"
#define POOLS \
	",\"index_kpool_compress\":true,\"index_kpool_always_select_tail\":true,\"index_topk\":8,\"index_kpool\":4"
#define LAYERS(a, b) ",\"layer_types\":[\"" a "\",\"" b "\",\"" a "\",\"" b "\"]"
#define NOPE ",\"q_lora_rank\":16,\"qk_rope_head_dim\":0"
#define ROUNDS ",\"hc_sinkhorn_iters\":3"
#define KDA LAYERS("linear_attention", "deepseek_sparse_attention")
#define TOWER                                                                                              \
	"\"image_token_id\":1,\"vision_config\":{\"depth\":4,\"hidden_size\":32,\"intermediate_size\":32," \
	"\"num_heads\":2,\"out_hidden_size\":32,"

#define WHOLE ",\"vision_feature_layer\":-1,\"vision_feature_select_strategy\":\"full\""

/* Configs behind LLAVA are opened as towers. */
enum family {
	BAILING,
	GRANITE,
	GROUPS,
	QWEN2_MOE,
	QWEN3_NEXT,
	QWEN4,
	GLM5,
	V4,
	KIMI,
	LFM2,
	JAMBA,
	MAMBA2,
	OLMO_HYBRID,
	BAMBA,
	MIMO,
	STEP,
	LLAMA4,
	PHI3,
	EAGLE3,
	LLAVA,
	QWEN3_VL,
	QWEN2_5_VL,
	QWEN2_VL,
	PIXTRAL,
	TOKEN
};

/* Configs of the families; a case puts its keys in the place of the @. */
static const char *const configs[] = {
	[BAILING] = "{\"model_type\":\"bailing_hybrid\"," SIZES LATENT "\"layer_group_size\":2,\"kda_lower_bound\":-5,"
		    "\"num_experts_per_tok\":2@}",
	[GRANITE] = "{\"model_type\":\"granite\"," SIZES "\"tie_word_embeddings\":true,\"attention_multiplier\":@}",
	[GROUPS] = "{\"model_type\":\"bailing_hybrid\"," SIZES LATENT "\"layer_group_size\":2,\"kda_lower_bound\":-5,"
		   "\"num_experts_per_tok\":3,\"n_group\":2,\"topk_group\":@}",
	[QWEN2_MOE] = "{\"model_type\":\"qwen2_moe\"," SIZES "\"num_experts\":4,\"num_experts_per_tok\":2,"
		      "\"moe_intermediate_size\":16,\"shared_expert_intermediate_size\":16@}",
	[QWEN3_NEXT] = "{\"model_type\":\"qwen3_next\"," SIZES "\"num_experts\":4,\"num_experts_per_tok\":2,"
		       "\"moe_intermediate_size\":16,\"shared_expert_intermediate_size\":16,"
		       "\"full_attention_interval\":4,\"linear_num_key_heads\":1,\"linear_num_value_heads\":2,"
		       "\"linear_key_head_dim\":16,\"linear_value_head_dim\":16,\"linear_conv_kernel_dim\":4,"
		       "\"partial_rotary_factor\":0.25@}",
	[QWEN4] = "{\"model_type\":\"qwen4_exp_text\"," SIZES "\"num_experts\":4,\"num_experts_per_tok\":2,"
		  "\"moe_intermediate_size\":16,\"shared_expert_intermediate_size\":16,"
		  "\"linear_num_key_heads\":1,\"linear_num_value_heads\":2,"
		  "\"linear_key_head_dim\":16,\"linear_value_head_dim\":16,\"linear_conv_kernel_dim\":4,"
		  "\"hc_lowrank\":8,\"indexer_n_heads\":2,\"ngram_size\":3,\"heads_per_ngram\":2,"
		  "\"ple_conv_kernel_size\":4@}",
	[GLM5] = "{\"model_type\":\"glm5_next_text\"," SIZES MIXTURE
		 "\"kv_lora_rank\":32,\"qk_nope_head_dim\":16,\"v_head_dim\":16,\"n_routed_experts\":4,"
		 "\"num_experts_per_tok\":2,\"index_n_heads\":2,\"index_head_dim\":8,\"hc_mult\":4,"
		 "\"linear_attn_config\":{\"num_heads\":2,\"head_dim\":16}@}",
	[V4] = "{\"model_type\":\"deepseek_v4\",\"vocab_size\":64,\"hidden_size\":32,\"num_hidden_layers\":2,"
	       "\"num_attention_heads\":2,\"head_dim\":16,\"rms_norm_eps\":1e-5,\"max_position_embeddings\":64,"
	       "\"compress_rope_theta\":1e4,\"qk_rope_head_dim\":8,\"q_lora_rank\":16,\"o_lora_rank\":8,"
	       "\"sliding_window\":8,\"index_n_heads\":2,\"index_head_dim\":8,\"index_topk\":4,\"hc_mult\":4,"
	       "\"hc_sinkhorn_iters\":3,\"n_routed_experts\":4,\"num_experts_per_tok\":2," MIXTURE
	       "\"hidden_act\":\"silu\"@}",
	[KIMI] = "{\"model_type\":\"kimi_linear\"," SIZES LATENT "\"mla_use_nope\":true,\"num_experts_per_token\":2,"
		 "\"linear_attn_config\":{\"num_heads\":2,\"head_dim\":16@}}",
	[LFM2] = "{\"model_type\":\"lfm2\"," SIZES "\"norm_eps\":1e-5,\"conv_L_cache\":3@}",
	[JAMBA] = "{\"model_type\":\"jamba\"," SIZES "\"num_experts\":4,\"num_experts_per_tok\":2,"
		  "\"attn_layer_offset\":2,\"attn_layer_period\":4@}",
	[MAMBA2] = "{\"model_type\":\"mamba2\",\"vocab_size\":64,\"hidden_size\":32,\"num_hidden_layers\":4,"
		   "\"num_heads\":4,\"head_dim\":16,\"expand\":2,\"state_size\":16,\"n_groups\":2,\"conv_kernel\":4,"
		   "\"layer_norm_epsilon\":1e-5,\"tie_word_embeddings\":false@}",
	[OLMO_HYBRID] = "{\"model_type\":\"olmo_hybrid\",\"vocab_size\":64,\"hidden_size\":32,\"num_hidden_layers\":4,"
			"\"num_attention_heads\":2,\"num_key_value_heads\":2,\"head_dim\":16,\"intermediate_size\":48,"
			"\"max_position_embeddings\":64,\"hidden_act\":\"silu\",\"linear_num_key_heads\":2,"
			"\"linear_num_value_heads\":2,\"linear_key_head_dim\":16,\"linear_value_head_dim\":16,"
			"\"linear_conv_kernel_dim\":4@}",
	[BAMBA] = "{\"model_type\":\"bamba\"," SIZES "\"mamba_n_heads\":4,\"mamba_d_head\":16,\"mamba_d_state\":16@}",
	[MIMO] = "{\"model_type\":\"mimo_v2_flash\"," SIZES MIXTURE
		 "\"n_routed_experts\":4,\"num_experts_per_tok\":2@}",
	[STEP] = "{\"model_type\":\"step3p5\",\"vocab_size\":64,\"hidden_size\":32,\"num_hidden_layers\":4,"
		 "\"num_attention_heads\":2,\"num_attention_groups\":2,\"head_dim\":16,\"intermediate_size\":48,"
		 "\"max_position_embeddings\":64," MIXTURE "\"moe_num_experts\":4,\"moe_top_k\":2,"
		 "\"share_expert_dim\":16@}",
	[LLAMA4] = "{\"model_type\":\"llama4_text\"," SIZES "\"intermediate_size_mlp\":48,\"num_local_experts\":4,"
		   "\"num_experts_per_tok\":1@}",
	[PHI3] = "{\"model_type\":\"phi3\"," SIZES "\"rope_scaling\":{\"type\":\"longrope\"@}}",
	[EAGLE3] = "{\"speculators_model_type\":\"eagle3\"," SIZES "\"draft_vocab_size\":64,\"num_hidden_layers\":1@}",
	[LLAVA] = "{\"model_type\":\"llava\",\"image_token_index\":1,\"text_config\":{" SIZES
		  "\"sliding_window\":null,\"model_type\":@},\"multimodal_projector_bias\":false}",
	[QWEN3_VL] = "{\"model_type\":\"qwen3_vl\",\"text_config\":{\"hidden_size\":32}," TOWER
		     "\"num_position_embeddings\":16@}}",
	[QWEN2_5_VL] = "{\"model_type\":\"qwen2_5_vl\",\"text_config\":{\"hidden_size\":32}," TOWER
		       "\"window_size\":56@}}",
	[QWEN2_VL] = "{\"model_type\":\"qwen2_vl\",\"hidden_size\":32,\"image_token_id\":1,\"vision_config\":{"
		     "\"depth\":4,\"embed_dim\":32,\"num_heads\":2,\"hidden_size\":32@}}",
	[PIXTRAL] = "{\"model_type\":\"llava\",\"image_token_index\":1,\"text_config\":{\"hidden_size\":32},"
		    "\"vision_config\":{\"model_type\":\"pixtral\"}@}",
	[TOKEN] = "{\"model_type\":\"llava\",\"text_config\":{\"hidden_size\":32},\"vision_config\":{}" WHOLE "@}",
};

static const struct {
	enum family of;
	const char *keys;
	int code;
	const char *says;
} cases[] = {
	{ BAILING, "", E_MISSING, "tensor" },
	{ BAILING, ",\"expert_swiglu_limit_list\":null", E_MISSING, "tensor" },
	{ BAILING, ",\"expert_swiglu_limit_list\":[0,null,7,7.5,1]", E_MISSING, "tensor" },
	{ BAILING, ",\"expert_swiglu_limit_list\":7", E_FORMAT,
	  "config.json: expert_swiglu_limit_list: is integer, not a list" },
	{ BAILING, ",\"expert_swiglu_limit_list\":\"7\"", E_FORMAT, "expert_swiglu_limit_list: is string, not a list" },
	{ BAILING, ",\"expert_swiglu_limit_list\":{\"0\":7}", E_FORMAT,
	  "expert_swiglu_limit_list: is object, not a list" },
	{ BAILING, ",\"expert_swiglu_limit_list\":[7,7,7]", E_FORMAT,
	  "expert_swiglu_limit_list: has 3 entries, num_hidden_layers is 4" },
	{ BAILING, ",\"expert_swiglu_limit_list\":[]", E_FORMAT,
	  "expert_swiglu_limit_list: has 0 entries, num_hidden_layers is 4" },
	{ BAILING, ",\"expert_swiglu_limit_list\":[7,\"7\",7,7]", E_FORMAT,
	  "expert_swiglu_limit_list: entry 1 is string, not a limit" },
	{ BAILING, ",\"share_expert_swiglu_limit_list\":[7,7,-2,7]", E_FORMAT,
	  "share_expert_swiglu_limit_list: entry 2 is -2, not a limit" },
	{ BAILING, ",\"share_expert_swiglu_limit_list\":[7]", E_FORMAT,
	  "share_expert_swiglu_limit_list: has 1 entries, num_hidden_layers is 4" },
	{ BAILING,
	  ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"original_max_position_embeddings\":32,"
	  "\"mscale_all_dim\":\"1\"}",
	  E_FORMAT, "config.json: rope_scaling.mscale_all_dim: is string, not a number" },

	{ BAILING, ",\"n_group\":4", E_FORMAT, "n_group: 4 does not cut 4 experts into groups of two and more" },
	{ BAILING, ",\"n_group\":3,\"topk_group\":2", E_FORMAT, "n_group: 3 does not cut 4 experts into groups" },
	{ GRANITE, "-1", E_FORMAT, "config.json: attention_multiplier: -1 is not above 0" },
	{ GRANITE, "1e39", E_FORMAT,
	  "config.json: attention_multiplier: 1e+39 is not above 0, or no number that a float holds" },
	{ GRANITE, "1", E_MISSING, "" },
	{ GROUPS, "1", E_FORMAT, "config.json: topk_group: 1 groups of 2 experts have no 3 to choose" },
	{ GROUPS, "2", E_MISSING, "" },

	{ QWEN2_MOE, ",\"mlp_only_layers\":[]", E_MISSING, "tensor" },
	{ QWEN2_MOE, ",\"mlp_only_layers\":[0,3]", E_MISSING, "tensor" },
	{ QWEN2_MOE, ",\"mlp_only_layers\":3", E_FORMAT, "config.json: mlp_only_layers: is integer, not a list" },
	{ QWEN2_MOE, ",\"mlp_only_layers\":[0,4]", E_FORMAT, "mlp_only_layers: entry 1 is 4, not a layer of 0 to 3" },
	{ QWEN2_MOE, ",\"mlp_only_layers\":[0.5]", E_FORMAT, "mlp_only_layers: entry 0 is 0.5, not a layer of 0 to 3" },
	{ QWEN3_NEXT, ",\"mlp_only_layers\":[1]", E_MISSING, "tensor" },
	{ QWEN3_NEXT, ",\"mlp_only_layers\":{\"1\":1}", E_FORMAT, "mlp_only_layers: is object, not a list" },
	{ QWEN3_NEXT, ",\"mlp_only_layers\":[-1]", E_FORMAT, "mlp_only_layers: entry 0 is -1, not a layer of 0 to 3" },
	{ QWEN3_NEXT, ",\"mlp_only_layers\":[null]", E_FORMAT,
	  "mlp_only_layers: entry 0 is null, not a layer of 0 to 3" },

	{ QWEN4, STREAMS BLOCKS(8, 4) LINEAR NGRAMS, E_MISSING, "tensor" },
	{ QWEN4, STREAMS BLOCKS(8, 4) LINEAR, E_MISSING, "tensor" },
	{ QWEN4, BLOCKS(8, 4) LINEAR, E_MISSING, "config.json: hc_count: missing" },
	{ QWEN4, ",\"hc_count\":1" BLOCKS(8, 4) LINEAR, E_FORMAT, "config.json: hc_count: 1 is not between 2 and" },
	{ QWEN4, STREAMS BLOCKS(8, 3) LINEAR, E_FORMAT,
	  "config.json: indexer_budget: 8 is not a multiple of indexer_compress_ratio 3" },
	{ QWEN4, STREAMS BLOCKS(8, 16) LINEAR, E_FORMAT, "indexer_compress_ratio: 16 is not between 1 and 8" },
	{ QWEN4, STREAMS BLOCKS(8, 4) LINEAR ",\"indexer_kv_heads\":2", E_UNSUPPORTED,
	  "indexer_kv_heads: only 1 is done" },
	{ QWEN4, STREAMS BLOCKS(8, 4) LINEAR ",\"partial_rotary_factor\":1", E_FORMAT,
	  "indexer_head_dim: 8 is less than the 16 dims that are rotated" },
	{ QWEN4, STREAMS BLOCKS(8, 4) ",\"layer_types\":[\"linear_attention\"]", E_FORMAT,
	  "layer_types: has 1 entries, num_hidden_layers is 4" },
	{ QWEN4, STREAMS BLOCKS(8, 4) ",\"layer_types\":[\"linear_attention\",\"x\",\"x\",\"x\"]", E_UNSUPPORTED,
	  "layer_types: layer 1 is \"x\", which is not known" },
	{ QWEN4, STREAMS BLOCKS(8, 4) LINEAR ",\"ple_layer_ids\":[4]", E_UNSUPPORTED,
	  "ple_layer_ids: layer 4, counted from 1, is not of linear attention" },
	{ QWEN4, STREAMS BLOCKS(8, 4) LINEAR ",\"ple_layer_ids\":[0]", E_FORMAT,
	  "ple_layer_ids: entry 0 is 0, not a layer of 1 to 4" },
	{ QWEN4, STREAMS BLOCKS(8, 4) LINEAR ",\"ple_layer_ids\":[1],\"ple_embed_dim\":30", E_FORMAT,
	  "ple_embed_dim: 30 is not a multiple of the 4 heads of n-grams" },
	{ QWEN4, STREAMS BLOCKS(8, 4) LINEAR ",\"ple_layer_ids\":[1],\"ple_embed_dim\":32", E_MISSING,
	  "eos_token_id: no token id, at which n-grams end" },
	{ QWEN4, STREAMS BLOCKS(8, 4) LINEAR NGRAMS ",\"ple_conv_kernel_size\":1", E_FORMAT,
	  "ple_conv_kernel_size: 1 is not between 2 and 8" },
	{ QWEN4, STREAMS BLOCKS(8, 4) LINEAR NGRAMS ",\"ngram_multipliers\":[1,3]", E_FORMAT,
	  "ngram_multipliers: has 2 entries, n-grams want 3" },
	{ QWEN4, STREAMS BLOCKS(8, 4) LINEAR NGRAMS ",\"ngram_offsets\":[0,1,2,\"3\"]", E_FORMAT,
	  "ngram_offsets: entry 3 is string, not a number" },

	{ GLM5, NOPE ROUNDS POOLS KDA, E_MISSING, "tensor" },
	{ GLM5, NOPE ROUNDS POOLS LAYERS("linear_attention", "full_attention"), E_MISSING, "tensor" },
	{ GLM5, NOPE ROUNDS POOLS KDA ",\"gate_lower_bound\":null,\"swiglu_limit\":null", E_MISSING, "tensor" },
	{ GLM5, NOPE ROUNDS POOLS, E_MISSING, "config.json: layer_types: missing" },
	{ GLM5, NOPE ROUNDS POOLS LAYERS("linear_attention", "x"), E_UNSUPPORTED,
	  "layer_types: layer 1 is \"x\"; known: linear_attention, deepseek_sparse_attention" },
	{ GLM5, NOPE ROUNDS POOLS KDA ",\"indexer_types\":[\"full\",\"shared\",\"full\",\"full\"]", E_UNSUPPORTED,
	  "config.json: indexer_types: layer 1 is \"shared\"; only full is done" },
	{ GLM5, NOPE ROUNDS POOLS KDA ",\"indexer_types\":[\"shared\",\"full\"]", E_MISSING, "tensor" },
	{ GLM5, NOPE ROUNDS POOLS KDA ",\"mlp_layer_types\":[\"dense\"]", E_FORMAT,
	  "mlp_layer_types: has 1 entries, num_hidden_layers is 4" },
	{ GLM5, NOPE ROUNDS POOLS KDA ",\"mhc\":false", E_UNSUPPORTED, "mhc: false is not a known model" },
	{ GLM5, NOPE ROUNDS POOLS KDA ",\"n_group\":2", E_UNSUPPORTED, "n_group: 2; groups of experts" },
	{ GLM5, NOPE ROUNDS POOLS KDA ",\"swiglu_limit\":-1", E_FORMAT, "swiglu_limit: -1 is not a limit" },
	{ GLM5, NOPE ROUNDS KDA, E_MISSING, "config.json: index_topk: missing" },
	{ GLM5, NOPE ROUNDS KDA ",\"index_topk\":8,\"index_kpool\":3", E_FORMAT,
	  "index_topk: 8 is not a multiple of index_kpool 3" },
	{ GLM5, NOPE ROUNDS KDA ",\"index_topk\":8,\"index_kpool\":4", E_UNSUPPORTED,
	  "index_kpool_compress: only true is done" },
	{ GLM5, NOPE POOLS KDA ",\"hc_sinkhorn_iters\":0", E_FORMAT, "hc_sinkhorn_iters: 0 is not between 1 and" },
	{ GLM5, ROUNDS POOLS KDA ",\"q_lora_rank\":16,\"qk_rope_head_dim\":8", E_UNSUPPORTED,
	  "qk_rope_head_dim: 8; latent attention without positions alone is done" },
	{ GLM5, ROUNDS POOLS KDA ",\"qk_rope_head_dim\":0", E_UNSUPPORTED,
	  "q_lora_rank: 0, and an indexer reads that rank" },

	{ V4, ",\"o_groups\":2,\"compress_ratios\":[0,4,0]", E_MISSING, "tensor" },
	{ V4, ",\"o_groups\":2", E_FORMAT, "config.json: compress_ratios: has 0 entries, num_hidden_layers is 2" },
	{ V4, ",\"o_groups\":2,\"compress_ratios\":[0,1]", E_FORMAT,
	  "compress_ratios: entry 1 is 1, not 0, nor 2 to 4096" },
	{ V4, ",\"o_groups\":2,\"compress_ratios\":4", E_FORMAT, "compress_ratios: is integer, not a list" },
	{ V4, ",\"o_groups\":2,\"compress_ratios\":[0,4],\"scoring_func\":\"sigmoid\"", E_UNSUPPORTED,
	  "scoring_func: only sqrtsoftplus is done" },
	{ V4, ",\"o_groups\":3,\"compress_ratios\":[0,4]", E_FORMAT, "o_groups: 3 is not between 1 and 2" },

	{ KIMI, ",\"full_attn_layers\":[4],\"kda_layers\":[1,2,3]", E_MISSING, "tensor" },
	{ KIMI, ",\"full_attn_layers\":[3],\"kda_layers\":[0,1,2]", E_MISSING, "tensor" },
	{ KIMI, ",\"kda_layers\":[1,2,3,4]", E_MISSING, "tensor" },
	{ KIMI, ",\"full_attn_layers\":4,\"kda_layers\":[1,2,3,4]", E_FORMAT,
	  "config.json: linear_attn_config.full_attn_layers: is integer, not a list" },
	{ KIMI, ",\"full_attn_layers\":[4,5],\"kda_layers\":[1,2,3]", E_FORMAT,
	  "linear_attn_config.full_attn_layers: entry 1 is 5, not a layer of 1 to 4" },
	{ KIMI, ",\"full_attn_layers\":[4],\"kda_layers\":[1,2,3,\"4\"]", E_FORMAT,
	  "linear_attn_config.kda_layers: entry 3 is string, not a layer of 1 to 4" },

	{ LFM2, ",\"full_attn_idxs\":[2]", E_MISSING, "tensor" },
	{ LFM2, ",\"full_attn_idxs\":2", E_FORMAT, "config.json: full_attn_idxs: is integer, not a list" },
	{ LFM2, ",\"full_attn_idxs\":[9]", E_FORMAT, "full_attn_idxs: entry 0 is 9, not a layer of 0 to 3" },

	{ JAMBA, ",\"mamba_dt_rank\":\"auto\"", E_MISSING, "tensor" },
	{ JAMBA, ",\"mamba_dt_rank\":null", E_MISSING, "tensor" },
	{ JAMBA, ",\"mamba_dt_rank\":2.5", E_FORMAT, "config.json: mamba_dt_rank: is number, not an integer" },
	{ JAMBA, ",\"mamba_dt_rank\":\"4\"", E_FORMAT, "config.json: mamba_dt_rank: is string, not an integer" },

	{ MAMBA2, ",\"time_step_limit\":[0.0,Infinity]", E_MISSING, "tensor" },
	{ MAMBA2, ",\"time_step_limit\":[0,null]", E_MISSING, "tensor" },
	{ MAMBA2, ",\"time_step_limit\":[0,\"inf\"]", E_MISSING, "tensor" },
	{ MAMBA2, ",\"time_step_limit\":[0,{\"__float__\":\"Infinity\"}]", E_MISSING, "tensor" },
	{ MAMBA2, ",\"time_step_limit\":[0,0.1]", E_MISSING, "tensor" },
	{ MAMBA2, ",\"time_step_limit\":[0,\"0.1\"]", E_FORMAT, "config.json: time_step_limit: is not two numbers" },
	{ MAMBA2, ",\"time_step_limit\":[0,{\"__float__\":\"0.1\"}]", E_FORMAT, "time_step_limit: is not two numbers" },
	{ MAMBA2, ",\"time_step_limit\":[0,true]", E_FORMAT, "time_step_limit: is not two numbers" },
	{ MAMBA2, ",\"time_step_limit\":0.1", E_FORMAT, "time_step_limit: is not two numbers" },

	{ OLMO_HYBRID, ",\"rope_parameters\":{\"rope_theta\":null}", E_MISSING, "tensor" },
	{ OLMO_HYBRID, ",\"rope_parameters\":500000", E_FORMAT,
	  "config.json: rope_parameters: is integer, not an object" },

	{ BAMBA, ",\"attn_layer_indices\":[2]", E_MISSING, "tensor" },
	{ BAMBA, ",\"attn_layer_indices\":2", E_FORMAT, "config.json: attn_layer_indices: is integer, not a list" },
	{ BAMBA, ",\"attn_layer_indices\":[4]", E_FORMAT, "attn_layer_indices: entry 0 is 4, not a layer of 0 to 3" },

	{ MIMO, ",\"hybrid_layer_pattern\":[0,1,1,0],\"moe_layer_freq\":[0,1,1,1]", E_MISSING, "tensor" },
	{ MIMO, ",\"hybrid_layer_pattern\":1", E_FORMAT, "config.json: hybrid_layer_pattern: is integer, not a list" },
	{ MIMO, ",\"hybrid_layer_pattern\":[0,1,1]", E_FORMAT,
	  "hybrid_layer_pattern: entry 3 is null, neither 0 nor 1" },
	{ MIMO, ",\"hybrid_layer_pattern\":[0,2,1,0]", E_FORMAT,
	  "hybrid_layer_pattern: entry 1 is 2, neither 0 nor 1" },
	{ MIMO, ",\"moe_layer_freq\":[0,1,\"1\",1]", E_FORMAT, "moe_layer_freq: entry 2 is string, neither 0 nor 1" },
	{ MIMO, ",\"v_head_dim\":17", E_FORMAT, "config.json: v_head_dim: 17 is not between 1 and 16" },
	{ MIMO, ",\"swa_v_head_dim\":17", E_FORMAT, "swa_v_head_dim: 17 is not between 1 and 16" },
	{ MIMO, ",\"swa_head_dim\":8", E_UNSUPPORTED, "swa_head_dim: is not head_dim" },
	{ MIMO, ",\"swa_num_attention_heads\":3,\"swa_num_key_value_heads\":2", E_FORMAT,
	  "swa_num_attention_heads: 3 is not a multiple of swa_num_key_value_heads 2" },

	{ STEP, "", E_MISSING, "tensor" },
	{ STEP,
	  ",\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\",\"full_attention\",\"x\"],"
	  "\"rope_theta\":[5e6,1e4,1e4,1e4,5e6],\"swiglu_limits\":[0,null,7,0.5,-1e9]",
	  E_FORMAT, "swiglu_limits: entry 4 is -1e9, not a limit" },
	{ STEP, ",\"layer_types\":[\"full_attention\"]", E_UNSUPPORTED,
	  "config.json: layer_types: layer 1 is neither full_attention nor sliding_attention" },
	{ STEP, ",\"layer_types\":[0,0,0,0]", E_UNSUPPORTED, "layer_types: layer 0 is neither" },
	{ STEP, ",\"layer_types\":\"full_attention\"", E_FORMAT, "layer_types: is string, not a list" },
	{ STEP, ",\"rope_theta\":[1e4,1e4]", E_FORMAT, "config.json: rope_theta: has 2 entries, none for layer 2" },
	{ STEP, ",\"rope_theta\":[1e4,\"1e4\",1e4,1e4]", E_FORMAT, "rope_theta: entry 1 is string, not a number" },
	{ STEP, ",\"rope_theta\":[1e4,0,1e4,1e4]", E_FORMAT, "rope_theta: entry 1, 0, is not above 1" },
	{ STEP, ",\"partial_rotary_factors\":[]", E_FORMAT, "partial_rotary_factors: has 0 entries, none for layer 0" },
	{ STEP, ",\"swiglu_limits\":[7,7,7]", E_FORMAT, "swiglu_limits: has 3 entries, num_hidden_layers is 4" },
	{ STEP, ",\"swiglu_limits_shared\":[7,7,7,-2]", E_FORMAT, "swiglu_limits_shared: entry 3 is -2, not a limit" },
	{ STEP, ",\"moe_layers_enum\":\"1,3\"", E_MISSING, "tensor" },
	{ STEP, ",\"moe_layers_enum\":\"1;3\"", E_FORMAT, "moe_layers_enum: \"1;3\" is not a list of layers" },
	{ STEP, ",\"moe_layers_enum\":\"-1\"", E_FORMAT, "moe_layers_enum: \"-1\" is not a list of layers" },
	{ STEP, ",\"moe_layers_enum\":[1,3]", E_FORMAT, "moe_layers_enum: is array, not a string" },
	{ STEP, ",\"attention_other_setting\":{\"num_attention_heads\":3,\"num_attention_groups\":2}", E_FORMAT,
	  "num_attention_groups: does not divide num_attention_heads" },
	{ STEP, ",\"attention_other_setting\":{\"num_attention_heads\":1e9}", E_FORMAT,
	  "attention_other_setting.num_attention_heads: 1000000000 is not between" },

	{ LLAMA4, ",\"moe_layers\":[1,3],\"no_rope_layers\":[]", E_MISSING, "tensor" },
	{ LLAMA4, ",\"no_rope_layers\":[1,1,1]", E_FORMAT, "no_rope_layers: has 3 entries, num_hidden_layers is 4" },
	{ LLAMA4, ",\"no_rope_layers\":4", E_FORMAT, "config.json: no_rope_layers: is integer, not a list" },
	{ LLAMA4, ",\"no_rope_layers\":[1,1,1,\"0\"]", E_FORMAT, "no_rope_layers: entry 3 is not a number" },
	{ LLAMA4, ",\"moe_layers\":[4]", E_FORMAT, "moe_layers: entry 0 is 4, not a layer of 0 to 3" },
	{ LLAMA4, ",\"moe_layers\":3", E_FORMAT, "moe_layers: is integer, not a list" },
	{ LLAMA4, ",\"attention_chunk_size\":0", E_FORMAT, "attention_chunk_size: 0 is not between 1 and" },

	{ PHI3, "", E_MISSING, "config.json: rope_scaling.short_factor: missing" },
	{ PHI3, ",\"short_factor\":[1,1,1,1,1,1,1,1],\"long_factor\":[1,1,1,1,1,1,1,1]", E_MISSING, "tensor" },
	{ PHI3, ",\"short_factor\":1,\"long_factor\":[1,1,1,1,1,1,1,1]", E_FORMAT,
	  "rope_scaling.short_factor: is integer, not a list" },
	{ PHI3, ",\"short_factor\":[1,1,1,1,1,1,1,1],\"long_factor\":[1,1,1]", E_FORMAT,
	  "rope_scaling.long_factor: has 3 entries for 8 frequencies" },
	{ PHI3, ",\"short_factor\":[1,1,1,1,1,1,1,0],\"long_factor\":[1,1,1,1,1,1,1,1]", E_FORMAT,
	  "rope_scaling.short_factor" },
	{ PHI3, ",\"short_factor\":[1,1,1,1,1,1,1,\"1\"],\"long_factor\":[1,1,1,1,1,1,1,1]", E_FORMAT,
	  "rope_scaling.short_factor: entry 7 is string, not a number" },

	{ EAGLE3, "", E_MISSING, "tensor" },
	{ EAGLE3, ",\"eagle_config\":{\"eagle_aux_hidden_state_layer_ids\":[]}", E_MISSING, "tensor" },
	{ EAGLE3, ",\"eagle_config\":{\"eagle_aux_hidden_state_layer_ids\":[1,2,8]}", E_MISSING, "tensor" },
	{ EAGLE3, ",\"eagle_config\":{\"eagle_aux_hidden_state_layer_ids\":[1,2,9]}", E_UNSUPPORTED, "entry 2" },
	{ EAGLE3, ",\"eagle_aux_hidden_state_layer_ids\":2", E_FORMAT,
	  "config.json: eagle_aux_hidden_state_layer_ids: is integer, not a list" },
	{ EAGLE3, ",\"eagle_config\":{\"eagle_aux_hidden_state_layer_ids\":\"2\"}", E_FORMAT,
	  "config.json: eagle_config.eagle_aux_hidden_state_layer_ids: is string, not a list" },

	{ LLAVA, "\"mistral\"},\"vision_config\":{\"model_type\":\"pixtral\"", E_MISSING, "tensor" },
	{ LLAVA, "\"mistral\"},\"vision_config\":{\"model_type\":\"clip_vision_model\"", E_UNSUPPORTED,
	  "config.json: vision_config.model_type: \"clip_vision_model\" in a llava is not known; known: pixtral" },
	{ LLAVA, "\"mistral\"},\"vision_config\":{\"model_type\":7", E_UNSUPPORTED,
	  "vision_config.model_type: \"\" in a llava is not known" },
	{ LLAVA, "\"llama\"},\"vision_config\":{\"model_type\":\"pixtral\"", E_UNSUPPORTED,
	  "model_type: \"llama\" in a llava is not known; known: mistral" },

	{ QWEN3_VL, ",\"deepstack_visual_indexes\":[0,2]", E_MISSING, "tensor" },
	{ QWEN3_VL, ",\"deepstack_visual_indexes\":2", E_FORMAT,
	  "config.json: vision_config.deepstack_visual_indexes: is integer, not a list" },
	{ QWEN3_VL, ",\"deepstack_visual_indexes\":{}", E_FORMAT, "deepstack_visual_indexes: is object, not a list" },
	{ QWEN2_5_VL, ",\"fullatt_block_indexes\":[3]", E_FORMAT, "patch_embed.proj.weight: is [1]" },
	{ QWEN2_5_VL, ",\"fullatt_block_indexes\":3", E_FORMAT,
	  "config.json: vision_config.fullatt_block_indexes: is integer, not a list" },
	{ QWEN2_5_VL, ",\"fullatt_block_indexes\":[4]", E_FORMAT,
	  "vision_config.fullatt_block_indexes: entry 0 is 4, not a layer of 0 to 3" },

	{ QWEN2_VL, "", E_FORMAT, "patch_embed.proj.weight: is [1]" },
	{ QWEN2_VL, ",\"hidden_act\":\"silu\"", E_UNSUPPORTED,
	  "config.json: vision_config.hidden_act: \"silu\" is not known; known: quick_gelu" },
	{ QWEN2_VL, ",\"mlp_ratio\":0", E_FORMAT,
	  "vision_config.mlp_ratio: 0 times embed_dim 32 is not between 1 and" },
	{ QWEN2_VL, ",\"mlp_ratio\":1e9", E_FORMAT, "vision_config.mlp_ratio: 1e+09 times embed_dim 32" },
	{ QWEN2_VL, ",\"mlp_ratio\":[4]", E_FORMAT, "vision_config.mlp_ratio: is array, not a number" },

	{ PIXTRAL, WHOLE, E_FORMAT, "patch_conv.weight: is [1]" },
	{ PIXTRAL, "", E_UNSUPPORTED, "config.json: vision_feature_layer: -2, -1 is known" },
	{ PIXTRAL, ",\"vision_feature_layer\":[-1]", E_FORMAT, "vision_feature_layer: is array, not an integer" },
	{ PIXTRAL, ",\"vision_feature_layer\":-1", E_UNSUPPORTED,
	  "vision_feature_select_strategy: \"default\", \"full\" is known" },
	{ PIXTRAL, WHOLE ",\"projector_hidden_act\":\"relu\"", E_UNSUPPORTED,
	  "config.json: projector_hidden_act: \"relu\" is not known; known: gelu, silu" },

	{ TOKEN, ",\"image_token_id\":5", E_FORMAT, "patch_conv.weight: is [1]" },
	{ TOKEN, ",\"image_token_index\":5,\"image_token_id\":null", E_FORMAT, "patch_conv.weight: is [1]" },
	{ TOKEN, "", E_MISSING, "config.json: image_token_id: missing, and a tower needs it" },
	{ TOKEN, ",\"image_token_id\":null", E_MISSING, "image_token_id: missing, and a tower needs it" },
	{ TOKEN, ",\"image_token_id\":\"5\"", E_FORMAT, "config.json: image_token_id: is string, not an integer" },
	{ TOKEN, ",\"image_token_id\":5.5", E_FORMAT, "image_token_id: is number, not an integer" },
	{ TOKEN, ",\"image_token_id\":[5],\"image_token_index\":5", E_FORMAT,
	  "image_token_id: is array, not an integer" },
	{ TOKEN, ",\"image_token_index\":-1", E_FORMAT, "image_token_index: -1 is not between 0 and" },
	{ TOKEN, ",\"image_token_index\":true", E_FORMAT, "image_token_index: is boolean, not an integer" },
};

/* Opens the folder as a model, as the draft head of one with 8 layers, or as the tower of one that sees. */
static int open_folder(const char *dir, enum family of, struct err *err)
{
	static const struct model target = { .shape = { .layers = 8, .vocab = 64, .hidden = 32 } };
	struct store *st = NULL;
	struct model *m = NULL;
	struct tower *t = NULL;
	int rc = store_open(&st, dir, err);

	if (!rc && of >= QWEN3_VL) {
		rc = tower_open(&t, st, err);
		assert_true(rc || t);
	} else if (!rc) {
		rc = of == EAGLE3 ? model_bind_head(&m, &target, st, err) : model_bind(&m, st, err);
	}
	tower_close(t);
	model_close(m);
	store_close(st);
	return rc;
}

static void test_values(void **state)
{
	static const char header[] = "{\"visual.patch_embed.proj.weight\":{\"dtype\":\"F32\",\"shape\":[1],"
				     "\"data_offsets\":[0,4]},\"vision_tower.patch_conv.weight\":{\"dtype\":\"F32\","
				     "\"shape\":[1],\"data_offsets\":[4,8]}}";
	char *dir = folder_new();
	int bad = 0;

	folder_put_tensors(dir, "model.safetensors", header, 8);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const char *text = configs[cases[i].of], *at = strchr(text, '@');
		struct err err = { 0 };
		char config[2000];
		int rc;

		snprintf(config, sizeof config, "%.*s%s%s", (int)(at - text), text, cases[i].keys, at + 1);
		folder_puts(dir, "config.json", config);
		rc = open_folder(dir, cases[i].of, &err);
		if (rc != cases[i].code || !strstr(err.msg, cases[i].says) || strchr(err.msg, '\n')) {
			print_error("%zu, %s: %d: \"%s\" does not say \"%s\"\n", i, cases[i].keys, rc, err.msg,
			            cases[i].says);
			bad++;
		}
	}
	folder_remove(dir);
	assert_int_equal(bad, 0);
}

/* The size of pictures, which a file of its own says. */
static void test_size(void **state)
{
	static const char *const texts[] = { "{\"size\":{\"longest_edge\":64}}", "{\"size\":null}", "{\"size\":64}",
		                             "{\"size\":[64,64]}" };

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct picture_form form = { .size = SIZE_LONGEST, .patch = 16, .edge = 32, .std = { 1, 1, 1 } };
		struct err err = { 0 };
		struct json *j = json_parse(texts[i], strlen(texts[i]), 0, &err);
		int rc = picture_read(&form, j, "p.json", &err);

		json_free(j);
		assert_int_equal(rc, i < 2 ? 0 : E_FORMAT);
		assert_int_equal(form.edge, i ? 32 : 64);
		if (rc)
			assert_string_equal(err.msg, i == 2 ? "p.json: size: is integer, not an object" :
			                                      "p.json: size: is array, not an object");
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(test_values), cmocka_unit_test(test_size) };

	log_set_level((enum log_level) - 1);
	return cmocka_run_group_tests_name("lists of the config", tests, NULL, NULL);
}
