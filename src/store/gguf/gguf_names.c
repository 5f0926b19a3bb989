/* gguf_names.c - which tensor is which: GGUF's names and Hugging Face's.
 *
 * One table of the names that most architectures share, and one per architecture
 * of what it has in addition or under other names.  A name in no table stays as it is, and the
 * store says that nothing used it. */
#include <string.h>

#include "store/gguf/gguf_conf.h"

/* Names that several families share but for the module, `at`, that they stand in.  clang-format would put the whole list
 * of a macro in columns. */
/* clang-format off */
#define MAMBA_NAMES(at)                                             \
	{ "ssm_in.weight", at ".in_proj.weight", NULL, 0 },         \
	{ "ssm_conv1d.weight", at ".conv1d.weight", &gguf_conv, 0 }, \
	{ "ssm_conv1d.bias", at ".conv1d.bias", NULL, 0 },          \
	{ "ssm_a", at ".A_log", &gguf_log_minus, 0 },               \
	{ "ssm_d", at ".D", NULL, 0 },                              \
	{ "ssm_dt.bias", at ".dt_bias", NULL, 0 },                  \
	{ "ssm_norm.weight", at ".norm.weight", NULL, 0 },          \
	{ "ssm_out.weight", at ".out_proj.weight", NULL, 0 }
#define EXPERT_NAMES(at)                                                           \
	{ "ffn_gate_exps.weight", at ".switch_mlp.gate_proj.weight", NULL, 0 },    \
	{ "ffn_up_exps.weight", at ".switch_mlp.up_proj.weight", NULL, 0 },        \
	{ "ffn_down_exps.weight", at ".switch_mlp.down_proj.weight", NULL, 0 }
#define SHARED_EXPERT_NAMES(at)                                       \
	{ "ffn_gate_shexp.weight", at ".gate_proj.weight", NULL, 0 }, \
	{ "ffn_up_shexp.weight", at ".up_proj.weight", NULL, 0 },     \
	{ "ffn_down_shexp.weight", at ".down_proj.weight", NULL, 0 }
#define HEAD_NAMES(dense)                                      \
	{ "cls.weight", dense ".weight", NULL, 0 },            \
	{ "cls.bias", dense ".bias", NULL, 0 },                \
	{ "cls.output.weight", "classifier.weight", NULL, 0 }, \
	{ "cls.output.bias", "classifier.bias", NULL, 0 }
#define BERT_NAMES                                                                          \
	{ "token_embd.weight", "model.embeddings.word_embeddings.weight", NULL, 0 },        \
	{ "token_types.weight", "model.embeddings.token_type_embeddings.weight", NULL, 0 }, \
	{ "position_embd.weight", "model.embeddings.position_embeddings.weight", NULL, 0 }, \
	{ "token_embd_norm.weight", "model.embeddings.LayerNorm.weight", NULL, 0 },         \
	{ "token_embd_norm.bias", "model.embeddings.LayerNorm.bias", NULL, 0 },             \
	{ "attn_q.weight", "attention.self.query.weight", NULL, 0 },                        \
	{ "attn_q.bias", "attention.self.query.bias", NULL, 0 },                            \
	{ "attn_k.weight", "attention.self.key.weight", NULL, 0 },                          \
	{ "attn_k.bias", "attention.self.key.bias", NULL, 0 },                              \
	{ "attn_v.weight", "attention.self.value.weight", NULL, 0 },                        \
	{ "attn_v.bias", "attention.self.value.bias", NULL, 0 },                            \
	{ "attn_qkv.weight", "attention.self.query.weight", &gguf_third, 0 },               \
	{ "attn_qkv.weight", "attention.self.key.weight", &gguf_third, 1 },                 \
	{ "attn_qkv.weight", "attention.self.value.weight", &gguf_third, 2 },               \
	{ "attn_qkv.bias", "attention.self.query.bias", &gguf_third, 0 },                   \
	{ "attn_qkv.bias", "attention.self.key.bias", &gguf_third, 1 },                     \
	{ "attn_qkv.bias", "attention.self.value.bias", &gguf_third, 2 },                   \
	{ "attn_output.weight", "attention.output.dense.weight", NULL, 0 },                 \
	{ "attn_output.bias", "attention.output.dense.bias", NULL, 0 },                     \
	{ "attn_output_norm.weight", "attention.output.LayerNorm.weight", NULL, 0 },        \
	{ "attn_output_norm.bias", "attention.output.LayerNorm.bias", NULL, 0 }
#define DELTA_NAMES                                                          \
	{ "attn_qkv.weight", "linear_attn.in_proj_qkv.weight", NULL, 0 },    \
	{ "attn_gate.weight", "linear_attn.in_proj_z.weight", NULL, 0 },     \
	{ "ssm_beta.weight", "linear_attn.in_proj_b.weight", NULL, 0 },      \
	{ "ssm_alpha.weight", "linear_attn.in_proj_a.weight", NULL, 0 },     \
	{ "ssm_ba.weight", "linear_attn.in_proj_b.weight", &gguf_ba, 0 },    \
	{ "ssm_ba.weight", "linear_attn.in_proj_a.weight", &gguf_ba, 1 },    \
	{ "ssm_in.weight", "linear_attn.in_proj_qkvz.weight", NULL, 0 },     \
	{ "ssm_conv1d.weight", "linear_attn.conv1d.weight", &gguf_conv, 0 }, \
	{ "ssm_a", "linear_attn.A_log", &gguf_log_minus, 0 },                \
	{ "ssm_dt.bias", "linear_attn.dt_bias", NULL, 0 },                   \
	{ "ssm_norm.weight", "linear_attn.norm.weight", NULL, 0 },           \
	{ "ssm_out.weight", "linear_attn.out_proj.weight", NULL, 0 }
/* clang-format on */

const struct gguf_name gguf_top_names[] = {
	{ "token_embd.weight", "model.embed_tokens.weight", NULL, 0 },
	{ "output.weight", "lm_head.weight", NULL, 0 },
	{ "output.bias", "lm_head.bias", NULL, 0 },
	{ "dense_2.weight", "2_Dense.linear.weight", NULL, 0 },
	{ "dense_2.bias", "2_Dense.linear.bias", NULL, 0 },
	{ "dense_3.weight", "3_Dense.linear.weight", NULL, 0 },
	{ "dense_3.bias", "3_Dense.linear.bias", NULL, 0 },
	{ "output_norm.weight", "model.norm.weight", NULL, 0 },
	{ "output_norm.bias", "model.norm.bias", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

const struct gguf_name gguf_block_names[] = {
	{ "attn_norm.weight", "input_layernorm.weight", NULL, 0 },
	{ "ffn_norm.weight", "post_attention_layernorm.weight", NULL, 0 },
	{ "attn_q.weight", "self_attn.q_proj.weight", NULL, 0 },
	{ "attn_q.bias", "self_attn.q_proj.bias", NULL, 0 },
	{ "attn_k.weight", "self_attn.k_proj.weight", NULL, 0 },
	{ "attn_k.bias", "self_attn.k_proj.bias", NULL, 0 },
	{ "attn_v.weight", "self_attn.v_proj.weight", NULL, 0 },
	{ "attn_v.bias", "self_attn.v_proj.bias", NULL, 0 },
	{ "attn_qkv.weight", "self_attn.q_proj.weight", &gguf_third, 0 },
	{ "attn_qkv.weight", "self_attn.k_proj.weight", &gguf_third, 1 },
	{ "attn_qkv.weight", "self_attn.v_proj.weight", &gguf_third, 2 },
	{ "attn_qkv.bias", "self_attn.q_proj.bias", &gguf_third, 0 },
	{ "attn_qkv.bias", "self_attn.k_proj.bias", &gguf_third, 1 },
	{ "attn_qkv.bias", "self_attn.v_proj.bias", &gguf_third, 2 },
	{ "attn_output.weight", "self_attn.o_proj.weight", NULL, 0 },
	{ "attn_output.bias", "self_attn.o_proj.bias", NULL, 0 },
	{ "attn_q_norm.weight", "self_attn.q_norm.weight", NULL, 0 },
	{ "attn_k_norm.weight", "self_attn.k_norm.weight", NULL, 0 },
	{ "attn_sinks.weight", "self_attn.sinks", NULL, 0 },
	{ "ffn_gate.weight", "mlp.gate_proj.weight", NULL, 0 },
	{ "ffn_gate.bias", "mlp.gate_proj.bias", NULL, 0 },
	{ "ffn_up.weight", "mlp.up_proj.weight", NULL, 0 },
	{ "ffn_up.bias", "mlp.up_proj.bias", NULL, 0 },
	{ "ffn_down.weight", "mlp.down_proj.weight", NULL, 0 },
	{ "ffn_down.bias", "mlp.down_proj.bias", NULL, 0 },
	{ "ffn_gate_inp.weight", "mlp.gate.weight", NULL, 0 },
	EXPERT_NAMES("mlp"),
	{ "ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj", NULL, 0 },
	{ "ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", &gguf_row, 0 },
	SHARED_EXPERT_NAMES("mlp.shared_expert"),
	{ NULL, NULL, NULL, 0 },
};

/* A draft head that Hugging Face keeps apart, under "mtp.". */
const struct gguf_name gguf_draft_names[] = {
	{ "nextn.eh_proj.weight", "mtp.fc.weight", NULL, 0 },
	{ "nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight", NULL, 0 },
	{ "nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight", NULL, 0 },
	{ "nextn.shared_head_norm.weight", "mtp.norm.weight", NULL, 0 },
	{ "nextn.embed_tokens.weight", "mtp.embed_tokens.weight", NULL, 0 },
	{ "nextn.shared_head_head.weight", "mtp.lm_head.weight", NULL, 0 },
	{ "nextn.hc_head_norm.weight", "mtp.hyper_connection_mixer.hc_norm.weight", NULL, 0 },
	{ "nextn.hc_head_down.weight", "mtp.hyper_connection_mixer.input_mix_weight_down.weight", NULL, 0 },
	{ "nextn.hc_head_up.weight", "mtp.hyper_connection_mixer.input_mix_weight_up.weight", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

/* A draft head that Hugging Face keeps as the layer after the last. */
const struct gguf_name gguf_behind_names[] = {
	{ "nextn.eh_proj.weight", "eh_proj.weight", NULL, 0 },
	{ "nextn.enorm.weight", "enorm.weight", NULL, 0 },
	{ "nextn.hnorm.weight", "hnorm.weight", NULL, 0 },
	{ "nextn.shared_head_norm.weight", "shared_head.norm.weight", NULL, 0 },
	{ "nextn.embed_tokens.weight", "embed_tokens.weight", NULL, 0 },
	{ "nextn.shared_head_head.weight", "shared_head.head.weight", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name none[] = { { NULL, NULL, NULL, 0 } };
static const struct gguf_name qwen3[] = {
	{ "cls.output.weight", "score.weight", NULL, 0 }, /* of rerankers */
	{ NULL, NULL, NULL, 0 },
};

/* The rows of q and k, in pairs for the other rotation. */
static const struct gguf_name llama[] = {
	{ "attn_q.weight", "self_attn.q_proj.weight", &gguf_permuted, 0 },
	{ "attn_q.bias", "self_attn.q_proj.bias", &gguf_permuted, 0 },
	{ "attn_k.weight", "self_attn.k_proj.weight", &gguf_permuted, 0 },
	{ "attn_k.bias", "self_attn.k_proj.bias", &gguf_permuted, 0 },
	{ NULL, NULL, NULL, 0 },
};

/* Gated delta nets.  Norms hold 1 + w, as mlx's files do: the model tells by the axes of the convolution. */
static const struct gguf_name qwen35[] = {
	{ "post_attention_norm.weight", "post_attention_layernorm.weight", NULL, 0 },
	DELTA_NAMES,
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name qwen4[] = {
	DELTA_NAMES,
	{ "per_layer_token_embd.weight", "model.ngram_embedding.weight", NULL, 0 },
	{ "output_hc_norm.weight", "model.hyper_connection_mixer.hc_norm.weight", NULL, 0 },
	{ "output_hc_down.weight", "model.hyper_connection_mixer.input_mix_weight_down.weight", NULL, 0 },
	{ "output_hc_up.weight", "model.hyper_connection_mixer.input_mix_weight_up.weight", NULL, 0 },
	{ "hc_attn_norm.weight", "attn_hyper_connection.hc_norm.weight", NULL, 0 },
	{ "hc_attn_down.weight", "attn_hyper_connection.input_mix_weight_down.weight", NULL, 0 },
	{ "hc_attn_up.weight", "attn_hyper_connection.input_mix_weight_up.weight", NULL, 0 },
	{ "hc_attn_inject.weight", "attn_hyper_connection.block_inject_weight.weight", NULL, 0 },
	{ "hc_ffn_norm.weight", "mlp_hyper_connection.hc_norm.weight", NULL, 0 },
	{ "hc_ffn_down.weight", "mlp_hyper_connection.input_mix_weight_down.weight", NULL, 0 },
	{ "hc_ffn_up.weight", "mlp_hyper_connection.input_mix_weight_up.weight", NULL, 0 },
	{ "hc_ffn_inject.weight", "mlp_hyper_connection.block_inject_weight.weight", NULL, 0 },
	{ "indexer.q_proj.weight", "self_attn.indexer.q_proj.weight", NULL, 0 },
	{ "indexer.k_proj.weight", "self_attn.indexer.k_proj.weight", NULL, 0 },
	{ "indexer.q_norm.weight", "self_attn.indexer.q_layernorm.weight", NULL, 0 },
	{ "indexer.k_norm.weight", "self_attn.indexer.k_layernorm.weight", NULL, 0 },
	{ "ple_key.weight", "ple.key_proj.weight", NULL, 0 },
	{ "ple_value.weight", "ple.value_proj.weight", NULL, 0 },
	{ "ple_norm_key.weight", "ple.norm_key.weight", NULL, 0 },
	{ "ple_norm_query.weight", "ple.norm_query.weight", NULL, 0 },
	{ "ple_norm_conv.weight", "ple.norm_conv.weight", NULL, 0 },
	{ "ple_conv1d.weight", "ple.conv1d.weight", &gguf_conv, 0 },
	{ NULL, NULL, NULL, 0 },
};

/* Norms hold 1 + w. */
static const struct gguf_name gemma3[] = {
	{ "output_norm.weight", "model.norm.weight", &gguf_minus_one, 0 },
	{ "attn_norm.weight", "input_layernorm.weight", &gguf_minus_one, 0 },
	{ "post_attention_norm.weight", "post_attention_layernorm.weight", &gguf_minus_one, 0 },
	{ "ffn_norm.weight", "pre_feedforward_layernorm.weight", &gguf_minus_one, 0 },
	{ "post_ffw_norm.weight", "post_feedforward_layernorm.weight", &gguf_minus_one, 0 },
	{ "attn_q_norm.weight", "self_attn.q_norm.weight", &gguf_minus_one, 0 },
	{ "attn_k_norm.weight", "self_attn.k_norm.weight", &gguf_minus_one, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name phi3[] = {
	{ "attn_qkv.weight", "self_attn.qkv_proj.weight", NULL, 0 },
	{ "ffn_up.weight", "mlp.gate_up_proj.weight", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name glm4[] = {
	{ "post_attention_norm.weight", "post_self_attn_layernorm.weight", NULL, 0 },
	{ "post_ffw_norm.weight", "post_mlp_layernorm.weight", NULL, 0 },
	{ "ffn_up.weight", "mlp.gate_up_proj.weight", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name olmo[] = {
	{ "post_attention_norm.weight", "post_attention_layernorm.weight", NULL, 0 },
	{ "post_ffw_norm.weight", "post_feedforward_layernorm.weight", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name minimax[] = {
	{ "ffn_gate_inp.weight", "block_sparse_moe.gate.weight", NULL, 0 },
	EXPERT_NAMES("block_sparse_moe"),
	{ "exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name gemma4[] = {
	{ "per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight", NULL, 0 },
	{ "per_layer_model_proj.weight", "model.per_layer_model_projection.weight", NULL, 0 },
	{ "per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight", NULL, 0 },
	{ "post_attention_norm.weight", "post_attention_layernorm.weight", NULL, 0 },
	{ "ffn_norm.weight", "pre_feedforward_layernorm.weight", NULL, 0 },
	{ "post_ffw_norm.weight", "post_feedforward_layernorm.weight", NULL, 0 },
	{ "post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight", NULL, 0 },
	{ "post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight", NULL, 0 },
	{ "pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight", NULL, 0 },
	{ "layer_output_scale.weight", "layer_scalar", NULL, 0 },
	{ "inp_gate.weight", "per_layer_input_gate.weight", NULL, 0 },
	{ "proj.weight", "per_layer_projection.weight", NULL, 0 },
	{ "post_norm.weight", "post_per_layer_input_norm.weight", NULL, 0 },
	{ "ffn_gate_inp.weight", "router.proj.weight", NULL, 0 },
	{ "ffn_gate_inp.scale", "router.scale", NULL, 0 },
	{ "ffn_down_exps.scale", "router.per_expert_scale", NULL, 0 },
	{ "ffn_gate_up_exps.weight", "experts.gate_up_proj.weight", NULL, 0 },
	{ "ffn_gate_exps.weight", "experts.gate_proj.weight", NULL, 0 },
	{ "ffn_up_exps.weight", "experts.up_proj.weight", NULL, 0 },
	{ "ffn_down_exps.weight", "experts.down_proj.weight", NULL, 0 },
	/* Assistants have these; "mtp." in older files. */
	{ "nextn.pre_projection.weight", "pre_projection.weight", NULL, 0 },
	{ "nextn.post_projection.weight", "post_projection.weight", NULL, 0 },
	{ "masked_embd_centroids.weight", "masked_embedding.centroids.weight", NULL, 0 },
	{ "masked_embd_ordering", "masked_embedding.token_ordering", NULL, 0 },
	{ "mtp.pre_projection.weight", "pre_projection.weight", NULL, 0 },
	{ "mtp.post_projection.weight", "post_projection.weight", NULL, 0 },
	{ "mtp.centroids.weight", "masked_embedding.centroids.weight", NULL, 0 },
	{ "mtp.token_ordering", "masked_embedding.token_ordering", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name eagle3[] = {
	{ "fc.weight", "model.fc.weight", NULL, 0 },
	{ "output.weight", "model.lm_head.weight", NULL, 0 },
	{ "d2t", "d2t", &gguf_ahead, 0 },
	{ "attn_norm_2.weight", "hidden_norm.weight", NULL, 0 },
	{ "attn_q.weight", "self_attn.q_proj.weight", &gguf_permuted, 0 },
	{ "attn_k.weight", "self_attn.k_proj.weight", &gguf_permuted, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name dflash[] = {
	{ "fc.weight", "model.fc.weight", NULL, 0 },
	{ "enc.output_norm.weight", "model.hidden_norm.weight", NULL, 0 },
	{ "attn_conv_base", "attention_conv.base_kernel", NULL, 0 },
	{ "attn_conv_proj.weight", "attention_conv.kernel_projection.weight", NULL, 0 },
	{ "ffn_conv_base", "mlp_conv.base_kernel", NULL, 0 },
	{ "ffn_conv_proj.weight", "mlp_conv.kernel_projection.weight", NULL, 0 },
	{ "selector_predecessor.weight", "model.candidate_selector.predecessor_codebook.weight", NULL, 0 },
	{ "selector_prev.weight", "model.candidate_selector.predecessor_codebook.weight", NULL, 0 },
	{ "selector_successor.weight", "model.candidate_selector.successor_codebook.weight", NULL, 0 },
	{ "selector_next.weight", "model.candidate_selector.successor_codebook.weight", NULL, 0 },
	{ "selector_hidden.weight", "model.candidate_selector.hidden_projection.weight", NULL, 0 },
	{ "markov_w1.weight", "model.markov_head.markov_w1.weight", NULL, 0 },
	{ "markov_w2.weight", "model.markov_head.markov_w2.weight", NULL, 0 },
	{ "conf_proj.weight", "confidence_head.proj.weight", NULL, 0 },
	{ "conf_proj.bias", "confidence_head.proj.bias", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name gpt_oss[] = {
	{ "post_attention_norm.weight", "post_attention_layernorm.weight", NULL, 0 },
	{ "ffn_gate_inp.weight", "mlp.router.weight", NULL, 0 },
	{ "ffn_gate_inp.bias", "mlp.router.bias", NULL, 0 },
	{ "ffn_gate_exps.bias", "mlp.switch_mlp.gate_proj.bias", NULL, 0 },
	{ "ffn_up_exps.bias", "mlp.switch_mlp.up_proj.bias", NULL, 0 },
	{ "ffn_down_exps.bias", "mlp.switch_mlp.down_proj.bias", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name bailing2[] = {
	{ "token_embd.weight", "model.word_embeddings.weight", NULL, 0 },
	{ "attn_qkv.weight", "attention.query_key_value.weight", NULL, 0 },
	{ "attn_output.weight", "attention.dense.weight", NULL, 0 },
	{ "attn_q_norm.weight", "attention.query_layernorm.weight", NULL, 0 },
	{ "attn_k_norm.weight", "attention.key_layernorm.weight", NULL, 0 },
	{ "exp_probs_b.bias", "mlp.gate.expert_bias", NULL, 0 },
	SHARED_EXPERT_NAMES("mlp.shared_experts"),
	{ NULL, NULL, NULL, 0 },
};

/* Ling 3: delta rules and latent attention in turn. */
static const struct gguf_name bailing3[] = {
	{ "token_embd.weight", "model.word_embeddings.weight", NULL, 0 },
	{ "attn_q.weight", "attention.q_proj.weight", NULL, 0 },
	{ "attn_k.weight", "attention.k_proj.weight", NULL, 0 },
	{ "attn_v.weight", "attention.v_proj.weight", NULL, 0 },
	{ "attn_q_a.weight", "attention.q_a_proj.weight", NULL, 0 },
	{ "attn_q_a_norm.weight", "attention.q_a_layernorm.weight", NULL, 0 },
	{ "attn_q_b.weight", "attention.q_b_proj.weight", NULL, 0 },
	{ "attn_kv_a_mqa.weight", "attention.kv_a_proj_with_mqa.weight", NULL, 0 },
	{ "attn_kv_a_norm.weight", "attention.kv_a_layernorm.weight", NULL, 0 },
	{ "attn_k_b.weight", "attention.embed_q.weight", NULL, 0 },
	{ "attn_v_b.weight", "attention.unembed_out.weight", NULL, 0 },
	{ "attn_gate.weight", "attention.g_proj.weight", NULL, 0 },
	{ "attn_output.weight", "attention.o_proj.weight", NULL, 0 },
	{ "ssm_f_a.weight", "attention.f_proj.weight", NULL, 0 },
	{ "ssm_g_a.weight", "attention.g_proj.weight", NULL, 0 },
	{ "ssm_beta.weight", "attention.b_proj.weight", NULL, 0 },
	{ "ssm_conv1d_q.weight", "attention.q_conv1d.weight", NULL, 0 },
	{ "ssm_conv1d_k.weight", "attention.k_conv1d.weight", NULL, 0 },
	{ "ssm_conv1d_v.weight", "attention.v_conv1d.weight", NULL, 0 },
	{ "ssm_a", "attention.A_log", &gguf_log, 0 },
	{ "ssm_dt.bias", "attention.dt_bias", NULL, 0 },
	{ "ssm_norm.weight", "attention.o_norm.weight", NULL, 0 },
	{ "exp_probs_b.bias", "mlp.gate.expert_bias", NULL, 0 },
	SHARED_EXPERT_NAMES("mlp.shared_experts"),
	{ "layer_output_norm.weight", "final_layernorm.weight", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name glm4_moe[] = {
	{ "post_attention_norm.weight", "post_attention_layernorm.weight", NULL, 0 },
	SHARED_EXPERT_NAMES("mlp.shared_experts"),
	{ "exp_probs_b.bias", "mlp.gate.e_score_correction_bias", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

/* Latent attention.  Newer files have the two halves of kv_b in one matrix a head, as mlx's folders do. */
#define LATENT_NAMES                                                                        \
	{ "attn_q_a.weight", "self_attn.q_a_proj.weight", NULL, 0 },                        \
		{ "attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight", NULL, 0 },      \
		{ "attn_q_b.weight", "self_attn.q_b_proj.weight", NULL, 0 },                \
		{ "attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight", NULL, 0 }, \
		{ "attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight", NULL, 0 },    \
		{ "attn_kv_b.weight", "self_attn.kv_b_proj.weight", NULL, 0 },              \
		{ "attn_k_b.weight", "self_attn.embed_q.weight", NULL, 0 },                 \
	{                                                                                   \
		"attn_v_b.weight", "self_attn.unembed_out.weight", NULL, 0                  \
	}

static const struct gguf_name deepseek[] = {
	LATENT_NAMES,
	SHARED_EXPERT_NAMES("mlp.shared_experts"),
	{ "exp_probs_b.bias", "mlp.gate.e_score_correction_bias", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

/* clang-format off */
#define INDEX_NAMES                                                                    \
	{ "indexer.attn_q_b.weight", "self_attn.indexer.wq_b.weight", NULL, 0 },       \
	{ "indexer.attn_k.weight", "self_attn.indexer.wk.weight", NULL, 0 },           \
	{ "indexer.k_norm.weight", "self_attn.indexer.k_norm.weight", NULL, 0 },       \
	{ "indexer.k_norm.bias", "self_attn.indexer.k_norm.bias", NULL, 0 },           \
	{ "indexer.proj.weight", "self_attn.indexer.weights_proj.weight", NULL, 0 }
#define KDA_NAMES                                                         \
	{ "ssm_beta.weight", "self_attn.b_proj.weight", NULL, 0 },        \
	{ "ssm_f_a.weight", "self_attn.f_a_proj.weight", NULL, 0 },       \
	{ "ssm_f_b.weight", "self_attn.f_b_proj.weight", NULL, 0 },       \
	{ "ssm_g_a.weight", "self_attn.g_a_proj.weight", NULL, 0 },       \
	{ "ssm_g_b.weight", "self_attn.g_b_proj.weight", NULL, 0 },       \
	{ "ssm_conv1d_q.weight", "self_attn.q_conv1d.weight", NULL, 0 },  \
	{ "ssm_conv1d_k.weight", "self_attn.k_conv1d.weight", NULL, 0 },  \
	{ "ssm_conv1d_v.weight", "self_attn.v_conv1d.weight", NULL, 0 },  \
	{ "ssm_a", "self_attn.A_log", &gguf_log_minus, 0 },               \
	{ "ssm_dt.bias", "self_attn.dt_bias", NULL, 0 },                  \
	{ "ssm_norm.weight", "self_attn.o_norm.weight", NULL, 0 }
#define STREAM_NAMES                                           \
	{ "hc_attn_fn.weight", "hc_attn_fn", NULL, 0 },        \
	{ "hc_attn_base.weight", "hc_attn_base", NULL, 0 },    \
	{ "hc_attn_scale.weight", "hc_attn_scale", NULL, 0 },  \
	{ "hc_ffn_fn.weight", "hc_ffn_fn", NULL, 0 },          \
	{ "hc_ffn_base.weight", "hc_ffn_base", NULL, 0 },      \
	{ "hc_ffn_scale.weight", "hc_ffn_scale", NULL, 0 }
/* clang-format on */

static const struct gguf_name dsa[] = {
	LATENT_NAMES,
	SHARED_EXPERT_NAMES("mlp.shared_experts"),
	{ "exp_probs_b.bias", "mlp.gate.e_score_correction_bias", NULL, 0 },
	INDEX_NAMES,
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name kimi_linear[] = {
	LATENT_NAMES,
	{ "ffn_gate_inp.weight", "block_sparse_moe.gate.weight", NULL, 0 },
	EXPERT_NAMES("block_sparse_moe"),
	SHARED_EXPERT_NAMES("block_sparse_moe.shared_experts"),
	{ "exp_probs_b.bias", "block_sparse_moe.gate.e_score_correction_bias", NULL, 0 },
	KDA_NAMES,
	{ NULL, NULL, NULL, 0 },
};

/* The gate and the bias of pools have two names, of which the first is the one that is written. */
static const struct gguf_name glm5_next[] = {
	LATENT_NAMES,
	SHARED_EXPERT_NAMES("mlp.shared_experts"),
	{ "exp_probs_b.bias", "mlp.gate.e_score_correction_bias", NULL, 0 },
	INDEX_NAMES,
	{ "indexer_compressor_gate.weight", "self_attn.indexer.index_kpool_compress_gate", NULL, 0 },
	{ "indexer_compressor_ape.weight", "self_attn.indexer.index_kpool_compress_ape", NULL, 0 },
	{ "indexer.kpool_gate.weight", "self_attn.indexer.index_kpool_compress_gate", NULL, 0 },
	{ "indexer.kpool_ape.weight", "self_attn.indexer.index_kpool_compress_ape", NULL, 0 },
	KDA_NAMES,
	STREAM_NAMES,
	{ NULL, NULL, NULL, 0 },
};

/* DeepSeek's own names. */
static const struct gguf_name deepseek4[] = {
	{ "token_embd.weight", "model.embed.weight", NULL, 0 },
	{ "output.weight", "model.head.weight", NULL, 0 },
	{ "output_hc_fn.weight", "model.hc_head_fn", NULL, 0 },
	{ "output_hc_base.weight", "model.hc_head_base", NULL, 0 },
	{ "output_hc_scale.weight", "model.hc_head_scale", NULL, 0 },
	{ "nextn.hc_head_fn.weight", "hc_head_fn", NULL, 0 },
	{ "nextn.hc_head_base.weight", "hc_head_base", NULL, 0 },
	{ "nextn.hc_head_scale.weight", "hc_head_scale", NULL, 0 },
	{ "hc_head_fn.weight", "hc_head_fn", NULL, 0 }, /* behind mtp.0. */
	{ "hc_head_base.weight", "hc_head_base", NULL, 0 },
	{ "hc_head_scale.weight", "hc_head_scale", NULL, 0 },
	STREAM_NAMES,
	{ "attn_norm.weight", "attn_norm.weight", NULL, 0 },
	{ "ffn_norm.weight", "ffn_norm.weight", NULL, 0 },
	{ "attn_q_a.weight", "attn.wq_a.weight", NULL, 0 },
	{ "attn_q_a_norm.weight", "attn.q_norm.weight", NULL, 0 },
	{ "attn_q_b.weight", "attn.wq_b.weight", NULL, 0 },
	{ "attn_kv.weight", "attn.wkv.weight", NULL, 0 },
	{ "attn_kv_a_norm.weight", "attn.kv_norm.weight", NULL, 0 },
	{ "attn_sinks.weight", "attn.attn_sink", NULL, 0 },
	{ "attn_output_a.weight", "attn.wo_a.weight", NULL, 0 },
	{ "attn_output_b.weight", "attn.wo_b.weight", NULL, 0 },
	{ "attn_compressor_kv.weight", "attn.compressor.wkv.weight", NULL, 0 },
	{ "attn_compressor_gate.weight", "attn.compressor.wgate.weight", NULL, 0 },
	{ "attn_compressor_ape.weight", "attn.compressor.ape", NULL, 0 },
	{ "attn_compressor_norm.weight", "attn.compressor.norm.weight", NULL, 0 },
	{ "indexer.attn_q_b.weight", "attn.indexer.wq_b.weight", NULL, 0 },
	{ "indexer.proj.weight", "attn.indexer.weights_proj.weight", NULL, 0 },
	{ "indexer_compressor_kv.weight", "attn.indexer.compressor.wkv.weight", NULL, 0 },
	{ "indexer_compressor_gate.weight", "attn.indexer.compressor.wgate.weight", NULL, 0 },
	{ "indexer_compressor_ape.weight", "attn.indexer.compressor.ape", NULL, 0 },
	{ "indexer_compressor_norm.weight", "attn.indexer.compressor.norm.weight", NULL, 0 },
	{ "ffn_gate_inp.weight", "ffn.gate.weight", NULL, 0 },
	{ "ffn_gate_tid2eid.weight", "ffn.gate.tid2eid", NULL, 0 },
	{ "exp_probs_b.bias", "ffn.gate.bias", NULL, 0 },
	EXPERT_NAMES("ffn"),
	{ "ffn_gate_shexp.weight", "ffn.shared_experts.w1.weight", NULL, 0 },
	{ "ffn_up_shexp.weight", "ffn.shared_experts.w3.weight", NULL, 0 },
	{ "ffn_down_shexp.weight", "ffn.shared_experts.w2.weight", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name falcon_h1[] = {
	{ "output_norm.weight", "model.final_layernorm.weight", NULL, 0 },
	{ "ffn_norm", "pre_ff_layernorm.weight", NULL, 0 },
	{ "ffn_norm.weight", "pre_ff_layernorm.weight", NULL, 0 },
	{ "ffn_gate.weight", "feed_forward.gate_proj.weight", NULL, 0 },
	{ "ffn_up.weight", "feed_forward.up_proj.weight", NULL, 0 },
	{ "ffn_down.weight", "feed_forward.down_proj.weight", NULL, 0 },
	MAMBA_NAMES("mamba"),
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name granite[] = {
	{ "attn_q.weight", "self_attn.q_proj.weight", &gguf_permuted, 0 },
	{ "attn_k.weight", "self_attn.k_proj.weight", &gguf_permuted, 0 },
	{ "ffn_gate_inp.weight", "block_sparse_moe.router.layer.weight", NULL, 0 },
	EXPERT_NAMES("block_sparse_moe"),
	SHARED_EXPERT_NAMES("mlp"),
	{ "ffn_gate.weight", "mlp.gate_proj.weight", NULL, 0 },
	{ "ffn_up.weight", "mlp.up_proj.weight", NULL, 0 },
	{ "ffn_down.weight", "mlp.down_proj.weight", NULL, 0 },
	MAMBA_NAMES("mamba"),
	{ NULL, NULL, NULL, 0 },
};

/* One mixer per block; mamba2's are of one kind. */
static const struct gguf_name nemotron[] = {
	{ "token_embd.weight", "model.embeddings.weight", NULL, 0 },
	{ "output_norm.weight", "model.norm_f.weight", NULL, 0 },
	{ "attn_norm.weight", "norm.weight", NULL, 0 },
	{ "attn_q.weight", "mixer.q_proj.weight", NULL, 0 },
	{ "attn_k.weight", "mixer.k_proj.weight", NULL, 0 },
	{ "attn_v.weight", "mixer.v_proj.weight", NULL, 0 },
	{ "attn_output.weight", "mixer.o_proj.weight", NULL, 0 },
	{ "ffn_up.weight", "mixer.up_proj.weight", NULL, 0 },
	{ "ffn_down.weight", "mixer.down_proj.weight", NULL, 0 },
	{ "ffn_gate_inp.weight", "mixer.gate.weight", NULL, 0 },
	{ "ffn_up_exps.weight", "mixer.switch_mlp.up_proj.weight", NULL, 0 },
	{ "ffn_down_exps.weight", "mixer.switch_mlp.down_proj.weight", NULL, 0 },
	{ "ffn_up_shexp.weight", "mixer.shared_experts.up_proj.weight", NULL, 0 },
	{ "ffn_down_shexp.weight", "mixer.shared_experts.down_proj.weight", NULL, 0 },
	{ "ffn_latent_down.weight", "mixer.fc1_latent_proj.weight", NULL, 0 },
	{ "ffn_latent_up.weight", "mixer.fc2_latent_proj.weight", NULL, 0 },
	{ "exp_probs_b.bias", "mixer.gate.e_score_correction_bias", NULL, 0 },
	MAMBA_NAMES("mixer"),
	{ NULL, NULL, NULL, 0 },
};

/* Mamba's selective scan, attention without positions. */
static const struct gguf_name jamba[] = {
	{ "output_norm.weight", "model.final_layernorm.weight", NULL, 0 },
	{ "ffn_norm.weight", "pre_ff_layernorm.weight", NULL, 0 },
	{ "ffn_gate.weight", "feed_forward.gate_proj.weight", NULL, 0 },
	{ "ffn_up.weight", "feed_forward.up_proj.weight", NULL, 0 },
	{ "ffn_down.weight", "feed_forward.down_proj.weight", NULL, 0 },
	{ "ffn_gate_inp.weight", "feed_forward.router.weight", NULL, 0 },
	EXPERT_NAMES("feed_forward"),
	{ "ssm_in.weight", "mamba.in_proj.weight", NULL, 0 },
	{ "ssm_conv1d.weight", "mamba.conv1d.weight", &gguf_conv, 0 },
	{ "ssm_conv1d.bias", "mamba.conv1d.bias", NULL, 0 },
	{ "ssm_x.weight", "mamba.x_proj.weight", NULL, 0 },
	{ "ssm_dt.weight", "mamba.dt_proj.weight", NULL, 0 },
	{ "ssm_dt.bias", "mamba.dt_proj.bias", NULL, 0 },
	{ "ssm_dt_norm.weight", "mamba.dt_layernorm.weight", NULL, 0 },
	{ "ssm_b_norm.weight", "mamba.b_layernorm.weight", NULL, 0 },
	{ "ssm_c_norm.weight", "mamba.c_layernorm.weight", NULL, 0 },
	{ "ssm_a", "mamba.A_log", &gguf_log_minus, 0 },
	{ "ssm_d", "mamba.D", NULL, 0 },
	{ "ssm_out.weight", "mamba.out_proj.weight", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

/* Vectors of the shift are one tensor.  The first block has matrices of v that nothing reads. */
static const struct gguf_name rwkv7[] = {
	{ "token_embd.weight", "model.embeddings.weight", NULL, 0 },
	{ "token_embd_norm.weight", "model.layers.0.pre_norm.weight", NULL, 0 },
	{ "token_embd_norm.bias", "model.layers.0.pre_norm.bias", NULL, 0 },
	{ "attn_norm.weight", "attn_norm.weight", NULL, 0 },
	{ "attn_norm.bias", "attn_norm.bias", NULL, 0 },
	{ "attn_norm_2.weight", "ffn_norm.weight", NULL, 0 },
	{ "attn_norm_2.bias", "ffn_norm.bias", NULL, 0 },
	{ "time_mix_lerp_fused.weight", "attn.x_r", &gguf_sixth, 0 },
	{ "time_mix_lerp_fused.weight", "attn.x_w", &gguf_sixth, 1 },
	{ "time_mix_lerp_fused.weight", "attn.x_k", &gguf_sixth, 2 },
	{ "time_mix_lerp_fused.weight", "attn.x_v", &gguf_sixth, 3 },
	{ "time_mix_lerp_fused.weight", "attn.x_a", &gguf_sixth, 4 },
	{ "time_mix_lerp_fused.weight", "attn.x_g", &gguf_sixth, 5 },
	{ "time_mix_w0.weight", "attn.w_lora.lora.2.bias", NULL, 0 },
	{ "time_mix_w1.weight", "attn.w_lora.lora.0.weight", NULL, 0 },
	{ "time_mix_w2.weight", "attn.w_lora.lora.2.weight", NULL, 0 },
	{ "time_mix_a0.weight", "attn.a_lora.lora.2.bias", NULL, 0 },
	{ "time_mix_a1.weight", "attn.a_lora.lora.0.weight", NULL, 0 },
	{ "time_mix_a2.weight", "attn.a_lora.lora.2.weight", NULL, 0 },
	{ "time_mix_v0.weight", "attn.v_lora.lora.2.bias", NULL, 0 },
	{ "time_mix_v1.weight", "attn.v_lora.lora.0.weight", NULL, 0 },
	{ "time_mix_v2.weight", "attn.v_lora.lora.2.weight", NULL, 0 },
	{ "time_mix_g1.weight", "attn.g_lora.lora.0.weight", NULL, 0 },
	{ "time_mix_g2.weight", "attn.g_lora.lora.2.weight", NULL, 0 },
	{ "time_mix_k_k.weight", "attn.k_k", NULL, 0 },
	{ "time_mix_k_a.weight", "attn.k_a", NULL, 0 },
	{ "time_mix_r_k.weight", "attn.r_k", NULL, 0 },
	{ "time_mix_key.weight", "attn.k_proj.weight", NULL, 0 },
	{ "time_mix_value.weight", "attn.v_proj.weight", NULL, 0 },
	{ "time_mix_receptance.weight", "attn.r_proj.weight", NULL, 0 },
	{ "time_mix_ln.weight", "attn.g_norm.weight", NULL, 0 },
	{ "time_mix_ln.bias", "attn.g_norm.bias", NULL, 0 },
	{ "time_mix_output.weight", "attn.o_proj.weight", NULL, 0 },
	{ "channel_mix_lerp_k.weight", "ffn.x_k", NULL, 0 },
	{ "channel_mix_key.weight", "ffn.key.weight", NULL, 0 },
	{ "channel_mix_value.weight", "ffn.value.weight", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name lfm2[] = {
	{ "token_embd_norm.weight", "model.embedding_norm.weight", NULL, 0 },
	{ "output_norm.weight", "model.embedding_norm.weight", NULL, 0 },
	{ "attn_norm.weight", "operator_norm.weight", NULL, 0 },
	{ "ffn_norm.weight", "ffn_norm.weight", NULL, 0 },
	{ "attn_q_norm.weight", "self_attn.q_layernorm.weight", NULL, 0 },
	{ "attn_k_norm.weight", "self_attn.k_layernorm.weight", NULL, 0 },
	{ "attn_output.weight", "self_attn.out_proj.weight", NULL, 0 },
	{ "shortconv.conv.weight", "conv.conv.weight", NULL, 0 },
	{ "shortconv.in_proj.weight", "conv.in_proj.weight", NULL, 0 },
	{ "shortconv.out_proj.weight", "conv.out_proj.weight", NULL, 0 },
	{ "ffn_gate.weight", "feed_forward.w1.weight", NULL, 0 },
	{ "ffn_up.weight", "feed_forward.w3.weight", NULL, 0 },
	{ "ffn_down.weight", "feed_forward.w2.weight", NULL, 0 },
	{ "ffn_gate_inp.weight", "feed_forward.gate.weight", NULL, 0 },
	EXPERT_NAMES("feed_forward"),
	{ "exp_probs_b.bias", "feed_forward.expert_bias", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name mixtral[] = {
	{ "attn_q.weight", "self_attn.q_proj.weight", &gguf_permuted, 0 },
	{ "attn_k.weight", "self_attn.k_proj.weight", &gguf_permuted, 0 },
	{ "ffn_gate_inp.weight", "block_sparse_moe.gate.weight", NULL, 0 },
	EXPERT_NAMES("block_sparse_moe"),
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name phimoe[] = {
	{ "attn_norm.bias", "input_layernorm.bias", NULL, 0 },
	{ "ffn_norm.bias", "post_attention_layernorm.bias", NULL, 0 },
	{ "ffn_gate_inp.weight", "block_sparse_moe.gate.weight", NULL, 0 },
	EXPERT_NAMES("block_sparse_moe"),
	{ NULL, NULL, NULL, 0 },
};

/* Norms hold 1 + w. */
static const struct gguf_name gemma[] = {
	{ "output_norm.weight", "model.norm.weight", &gguf_minus_one, 0 },
	{ "attn_norm.weight", "input_layernorm.weight", &gguf_minus_one, 0 },
	{ "ffn_norm.weight", "post_attention_layernorm.weight", &gguf_minus_one, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name cohere2_moe[] = {
	SHARED_EXPERT_NAMES("mlp.shared_experts"),
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name seed_oss[] = {
	{ "post_attention_norm.weight", "post_attention_layernorm.weight", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name ernie_moe[] = {
	{ "exp_probs_b.bias", "mlp.moe_statics.e_score_correction_bias", NULL, 0 },
	SHARED_EXPERT_NAMES("mlp.shared_experts"),
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name hunyuan[] = {
	{ "attn_q_norm.weight", "self_attn.query_layernorm.weight", NULL, 0 },
	{ "attn_k_norm.weight", "self_attn.key_layernorm.weight", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name afmoe[] = {
	{ "post_attention_norm.weight", "post_attention_layernorm.weight", NULL, 0 },
	{ "ffn_norm.weight", "pre_mlp_layernorm.weight", NULL, 0 },
	{ "post_ffw_norm.weight", "post_mlp_layernorm.weight", NULL, 0 },
	{ "attn_gate.weight", "self_attn.gate_proj.weight", NULL, 0 },
	{ "ffn_gate_inp.weight", "mlp.router.gate.weight", NULL, 0 },
	{ "exp_probs_b.bias", "mlp.expert_bias", NULL, 0 },
	SHARED_EXPERT_NAMES("mlp.shared_experts"),
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name mimo[] = {
	{ "attn_sinks.weight", "self_attn.attention_sink_bias", NULL, 0 },
	{ "exp_probs_b.bias", "mlp.gate.e_score_correction_bias", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

/* Norms hold 1 + w. */
static const struct gguf_name step[] = {
	{ "output_norm.weight", "model.norm.weight", &gguf_minus_one, 0 },
	{ "attn_norm.weight", "input_layernorm.weight", &gguf_minus_one, 0 },
	{ "ffn_norm.weight", "post_attention_layernorm.weight", &gguf_minus_one, 0 },
	{ "attn_q_norm.weight", "self_attn.q_norm.weight", &gguf_minus_one, 0 },
	{ "attn_k_norm.weight", "self_attn.k_norm.weight", &gguf_minus_one, 0 },
	{ "attn_gate.weight", "self_attn.g_proj.weight", NULL, 0 },
	{ "ffn_gate_inp.weight", "moe.gate.weight", NULL, 0 },
	EXPERT_NAMES("moe"),
	{ "exp_probs_b.bias", "moe.router_bias", NULL, 0 },
	SHARED_EXPERT_NAMES("share_expert"),
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name llama4[] = {
	{ "ffn_gate.weight", "feed_forward.gate_proj.weight", NULL, 0 },
	{ "ffn_up.weight", "feed_forward.up_proj.weight", NULL, 0 },
	{ "ffn_down.weight", "feed_forward.down_proj.weight", NULL, 0 },
	{ "ffn_gate_inp.weight", "feed_forward.router.weight", NULL, 0 },
	EXPERT_NAMES("feed_forward"),
	SHARED_EXPERT_NAMES("feed_forward.shared_expert"),
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name apertus[] = {
	{ "attn_norm.weight", "attention_layernorm.weight", NULL, 0 },
	{ "ffn_norm.weight", "feedforward_layernorm.weight", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name bailing[] = {
	{ "token_embd.weight", "model.word_embeddings.weight", NULL, 0 },
	{ "attn_q.weight", "attention.q_proj.weight", &gguf_permuted, 0 },
	{ "attn_k.weight", "attention.k_proj.weight", &gguf_permuted, 0 },
	{ "attn_v.weight", "attention.v_proj.weight", NULL, 0 },
	{ "attn_output.weight", "attention.dense.weight", NULL, 0 },
	SHARED_EXPERT_NAMES("mlp.shared_experts"),
	{ NULL, NULL, NULL, 0 },
};

/* Gate and up rows of the shared expert are one matrix. */
static const struct gguf_name granite_moe[] = {
	{ "attn_q.weight", "self_attn.q_proj.weight", &gguf_permuted, 0 },
	{ "attn_k.weight", "self_attn.k_proj.weight", &gguf_permuted, 0 },
	{ "ffn_gate_inp.weight", "block_sparse_moe.router.layer.weight", NULL, 0 },
	EXPERT_NAMES("block_sparse_moe"),
	{ "ffn_up_shexp.weight", "shared_mlp.input_linear.weight", NULL, 0 },
	{ "ffn_down_shexp.weight", "shared_mlp.output_linear.weight", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name mamba[] = {
	{ "token_embd.weight", "model.embeddings.weight", NULL, 0 },
	{ "output_norm.weight", "model.norm_f.weight", NULL, 0 },
	{ "attn_norm.weight", "norm.weight", NULL, 0 },
	{ "ssm_in.weight", "mixer.in_proj.weight", NULL, 0 },
	{ "ssm_conv1d.weight", "mixer.conv1d.weight", &gguf_conv, 0 },
	{ "ssm_conv1d.bias", "mixer.conv1d.bias", NULL, 0 },
	{ "ssm_x.weight", "mixer.x_proj.weight", NULL, 0 },
	{ "ssm_dt.weight", "mixer.dt_proj.weight", NULL, 0 },
	{ "ssm_dt.bias", "mixer.dt_proj.bias", NULL, 0 },
	{ "ssm_a", "mixer.A_log", &gguf_log_minus, 0 },
	{ "ssm_d", "mixer.D", NULL, 0 },
	{ "ssm_out.weight", "mixer.out_proj.weight", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

/* ---- encoders ---- */

/* cls is the pooler's product, or that of RoBERTa's head, which computes the same. */
static const struct gguf_name bert[] = {
	BERT_NAMES,
	HEAD_NAMES("pooler.dense"),
	{ "ffn_up.weight", "intermediate.dense.weight", NULL, 0 },
	{ "ffn_up.bias", "intermediate.dense.bias", NULL, 0 },
	{ "ffn_down.weight", "output.dense.weight", NULL, 0 },
	{ "ffn_down.bias", "output.dense.bias", NULL, 0 },
	{ "layer_output_norm.weight", "output.LayerNorm.weight", NULL, 0 },
	{ "layer_output_norm.bias", "output.LayerNorm.bias", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name jina_bert[] = {
	BERT_NAMES,
	HEAD_NAMES("pooler.dense"),
	{ "ffn_up.weight", "mlp.gated_layers.weight", NULL, 0 },
	{ "ffn_down.weight", "mlp.wo.weight", NULL, 0 },
	{ "ffn_down.bias", "mlp.wo.bias", NULL, 0 },
	{ "layer_output_norm.weight", "mlp.layernorm.weight", NULL, 0 },
	{ "layer_output_norm.bias", "mlp.layernorm.bias", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name nomic_bert[] = {
	{ "token_embd.weight", "model.embeddings.word_embeddings.weight", NULL, 0 },
	{ "token_types.weight", "model.embeddings.token_type_embeddings.weight", NULL, 0 },
	{ "token_embd_norm.weight", "model.emb_ln.weight", NULL, 0 },
	{ "token_embd_norm.bias", "model.emb_ln.bias", NULL, 0 },
	{ "attn_qkv.weight", "attn.Wqkv.weight", NULL, 0 },
	{ "attn_output.weight", "attn.out_proj.weight", NULL, 0 },
	{ "attn_output_norm.weight", "norm1.weight", NULL, 0 },
	{ "attn_output_norm.bias", "norm1.bias", NULL, 0 },
	{ "ffn_up.weight", "mlp.fc11.weight", NULL, 0 },
	{ "ffn_gate.weight", "mlp.fc12.weight", NULL, 0 },
	{ "ffn_down.weight", "mlp.fc2.weight", NULL, 0 },
	{ "layer_output_norm.weight", "norm2.weight", NULL, 0 },
	{ "layer_output_norm.bias", "norm2.bias", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_name modern_bert[] = {
	{ "token_embd.weight", "model.embeddings.tok_embeddings.weight", NULL, 0 },
	{ "token_embd_norm.weight", "model.embeddings.norm.weight", NULL, 0 },
	{ "output_norm.weight", "model.final_norm.weight", NULL, 0 },
	HEAD_NAMES("head.dense"),
	{ "cls.norm.weight", "head.norm.weight", NULL, 0 },
	{ "attn_norm.weight", "attn_norm.weight", NULL, 0 },
	{ "attn_qkv.weight", "attn.Wqkv.weight", NULL, 0 },
	{ "attn_qkv.bias", "attn.Wqkv.bias", NULL, 0 },
	{ "attn_output.weight", "attn.Wo.weight", NULL, 0 },
	{ "attn_output.bias", "attn.Wo.bias", NULL, 0 },
	{ "ffn_norm.weight", "mlp_norm.weight", NULL, 0 },
	{ "ffn_up.weight", "mlp.Wi.weight", NULL, 0 },
	{ "ffn_down.weight", "mlp.Wo.weight", NULL, 0 },
	{ NULL, NULL, NULL, 0 },
};

static const struct gguf_arch archs[] = {
	{ "llama", "llama", llama, gguf_config_llama, false },
	{ "llama", "mixtral", mixtral, gguf_config_mixtral, false, "expert_count" },
	{ "mistral3", "ministral3", llama, gguf_config_plain, false },
	{ "smollm3", "smollm3", llama, gguf_config_plain, false },
	{ "granite", "granite", llama, gguf_config_granite_dense, false },
	{ "phi3", "phi3", phi3, gguf_config_phi3, false },
	{ "glm4", "glm4", glm4, gguf_config_glm4, false },
	{ "olmo2", "olmo3", olmo, gguf_config_olmo, false },
	{ "bailingmoe3", "bailing_hybrid", bailing3, gguf_config_bailing3, false },
	{ "bailingmoe2", "bailing_moe", bailing2, gguf_config_bailing2, false },
	{ "qwen2", "qwen2", none, gguf_config_plain, false },
	{ "qwen2moe", "qwen2_moe", none, gguf_config_qwen2_moe, false },
	{ "qwen3", "qwen3", qwen3, gguf_config_plain, false },
	{ "qwen3moe", "qwen3_moe", none, gguf_config_qwen3_moe, false },
	/* The text of models that see; positions of text alone turn as they do without sections. */
	{ "qwen2vl", "qwen2", none, gguf_config_plain, false },
	{ "qwen3vl", "qwen3", none, gguf_config_plain, false },
	{ "qwen3vlmoe", "qwen3_moe", none, gguf_config_qwen3_moe, false },
	{ "qwen3next", "qwen3_next", qwen35, gguf_config_qwen3_next, true },
	{ "qwen35", "qwen3_5_text", qwen35, gguf_config_qwen3_5, true },
	{ "qwen35moe", "qwen3_5_moe_text", qwen35, gguf_config_qwen3_5, true },
	{ "qwen4exp", "qwen4_exp_text", qwen4, gguf_config_qwen4, true },
	{ "gemma2", "gemma2", gemma3, gguf_config_gemma2, false },
	{ "gemma3", "gemma3_text", gemma3, gguf_config_gemma3, false },
	{ "gemma4", "gemma4_text", gemma4, gguf_config_gemma4, false },
	/* Draft heads; the second name of the assistant in older files. */
	{ "eagle3", "llama", eagle3, gguf_config_eagle3, .head = true },
	{ "dflash", "qwen3", dflash, gguf_config_dflash, .head = true },
	{ "gemma4-assistant", "gemma4_assistant", gemma4, gguf_config_assistant, .head = true },
	{ "gemma4_assistant", "gemma4_assistant", gemma4, gguf_config_assistant, .head = true },
	{ "gpt-oss", "gpt_oss", gpt_oss, gguf_config_gpt_oss, false },
	{ "glm4moe", "glm4_moe", glm4_moe, gguf_config_glm4_moe, false },
	{ "minimax-m2", "minimax_m2", minimax, gguf_config_minimax, false },
	{ "deepseek2", "deepseek_v3", deepseek, gguf_config_deepseek, false },
	{ "deepseek32", "deepseek_v32", dsa, gguf_config_dsa, false },
	{ "glm-dsa", "glm_moe_dsa", dsa, gguf_config_dsa, false },
	{ "kimi-linear", "kimi_linear", kimi_linear, gguf_config_kimi_linear, false },
	{ "glm5-next", "glm5_next_text", glm5_next, gguf_config_glm5_next, false },
	{ "glm5next", "glm5_next_text", glm5_next, gguf_config_glm5_next, false },
	{ "deepseek4", "deepseek_v4", deepseek4, gguf_config_deepseek4, false },
	{ "deepseek4_mtp_support", "deepseek_v4_mtp", deepseek4, gguf_config_deepseek4_head, .head = true,
	  .sizeless = true },
	{ "mamba2", "mamba2", nemotron, gguf_config_mamba2, false },
	{ "falcon-h1", "falcon_h1", falcon_h1, gguf_config_falcon_h1, false },
	{ "granitehybrid", "granitemoehybrid", granite, gguf_config_granite, false },
	{ "nemotron_h", "nemotron_h", nemotron, gguf_config_nemotron, false },
	{ "nemotron_h_moe", "nemotron_h", nemotron, gguf_config_nemotron, false },
	{ "jamba", "jamba", jamba, gguf_config_jamba, false },
	{ "rwkv7", "rwkv7", rwkv7, gguf_config_rwkv7, false },
	{ "lfm2", "lfm2", lfm2, gguf_config_lfm2, false },
	{ "lfm2moe", "lfm2_moe", lfm2, gguf_config_lfm2, false },
	{ "gemma", "gemma", gemma, gguf_config_gemma, false },
	{ "cohere2", "cohere2", none, gguf_config_cohere2, false },
	{ "cohere2moe", "cohere2_moe", cohere2_moe, gguf_config_cohere2_moe, false },
	{ "seed_oss", "seed_oss", seed_oss, gguf_config_plain, false },
	{ "exaone4", "exaone4", olmo, gguf_config_olmo, false },
	{ "ernie4_5", "ernie4_5", none, gguf_config_plain, false },
	{ "ernie4_5-moe", "ernie4_5_moe", ernie_moe, gguf_config_ernie_moe, false },
	{ "olmoe", "olmoe", none, gguf_config_olmoe, false },
	{ "arcee", "arcee", llama, gguf_config_arcee, false },
	{ "hunyuan-dense", "hunyuan_v1_dense", hunyuan, gguf_config_plain, false },
	{ "granitemoe", "granitemoe", granite_moe, gguf_config_granite_moe, false },
	{ "granite_swa", "granite_swa", llama, gguf_config_granite_swa, false },
	{ "granite_swa", "granitemoe_swa", granite_moe, gguf_config_granite_swa, false, "expert_count" },
	{ "phimoe", "phimoe", phimoe, gguf_config_phimoe, false },
	{ "afmoe", "afmoe", afmoe, gguf_config_afmoe, false },
	{ "apertus", "apertus", apertus, gguf_config_apertus, false },
	{ "bailingmoe", "bailing_moe", bailing, gguf_config_bailing, false },
	{ "mistral4", "mistral4", deepseek, gguf_config_mistral4, false },
	{ "mimo2", "mimo_v2_flash", mimo, gguf_config_mimo, false },
	{ "step35", "step3p5", step, gguf_config_step, false },
	{ "llama4", "llama4_text", llama4, gguf_config_llama4, false },
	{ "mamba", "mamba", mamba, gguf_config_mamba, false },
	{ "mamba", "falcon_mamba", mamba, gguf_config_mamba, false, "ssm.dt_b_c_rms" },
	{ "bert", "bert", bert, gguf_config_bert, .block = "encoder.layer.", .both_ways = true },
	{ "jina-bert-v2", "bert", jina_bert, gguf_config_jina_bert, .block = "encoder.layer.", .both_ways = true },
	{ "nomic-bert", "nomic_bert", nomic_bert, gguf_config_nomic_bert, .block = "encoder.layers.",
	  .both_ways = true },
	{ "modern-bert", "modernbert", modern_bert, gguf_config_modern_bert, .both_ways = true },
	{ "gemma-embedding", "gemma3_text", gemma3, gguf_config_gemma_embedding, .both_ways = true },
	{ "llama-embed", "llama_bidirec", llama, gguf_config_llama, .both_ways = true },
};

const struct gguf_arch *gguf_arch_find(const char *name)
{
	for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
		if (!strcmp(archs[i].name, name) && !archs[i].with)
			return &archs[i];
	return NULL;
}

const struct gguf_arch *gguf_arch_choose(const struct gguf_model *m)
{
	struct err err;
	struct gguf_conf c = { .m = m, .err = &err };

	for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
		if (archs[i].with && !strcmp(archs[i].name, m->arch->name) && gguf_conf_int(&c, archs[i].with, 0) > 0)
			return &archs[i];
	return m->arch;
}

const char *gguf_arch_nearest(const char *name)
{
	const char *best = NULL;
	size_t most = 1;

	for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
		const char *known = archs[i].name;
		size_t n = 0;

		while (name[n] && name[n] == known[n])
			n++;
		if (n < most || (n == most && (!best || strlen(known) >= strlen(best))))
			continue;
		most = n;
		best = known;
	}
	return best;
}
