/* gguf_heads.c - config.json of files that hold a draft head alone: EAGLE-3, DFlash and its kin, Gemma 4's assistant.
 *
 * A file's own embedding or output matrix may be missing: then it is the model's.  Layers of the model are named by what
 * they read, counted from 0; Hugging Face names them so for EAGLE-3, and by what they give for DFlash. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "store/gguf/gguf_conf.h"

/* What both kinds of heads with keys and values have. */
static void put_head(struct gguf_conf *c)
{
	int64_t heads = gguf_conf_int(c, "attention.head_count", GGUF_NEEDED);
	int64_t width = gguf_conf_int(c, "embedding_length", GGUF_NEEDED);
	int64_t dim = gguf_conf_int(c, "attention.key_length", heads > 0 ? width / heads : 0);

	gguf_put_int(c, "hidden_size", width);
	gguf_put_int(c, "num_hidden_layers", c->m->blocks);
	gguf_put_int(c, "max_position_embeddings", gguf_conf_int(c, "context_length", GGUF_NEEDED));
	gguf_put_int(c, "num_attention_heads", heads);
	gguf_put_int(c, "num_key_value_heads", gguf_conf_int(c, "attention.head_count_kv", heads));
	gguf_put_int(c, "head_dim", dim);
	gguf_put_float(c, "rms_norm_eps", gguf_conf_float(c, "attention.layer_norm_rms_epsilon", (double)NAN));
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_str(c, "hidden_act", "silu");
	gguf_put_rope(c, dim, 10000);
}

static void put_architecture(struct gguf_conf *c, const char *name)
{
	gguf_put_name(c, "architectures");
	buf_putc(c->out, '[');
	json_put_cstr(c->out, name);
	buf_putc(c->out, ']');
}

void gguf_config_eagle3(struct gguf_conf *c)
{
	static const char *const layers[] = { "target_layers", "extract_layers" }; /* the second in older files */
	const struct gguf_info *output = gguf_tensor_info(c->m, "output.weight");

	put_architecture(c, "LlamaForCausalLMEagle3");
	put_head(c);
	gguf_put_bool(c, "norm_before_residual", gguf_conf_bool(c, "norm_before_residual", false));
	if (gguf_conf_bool(c, "norm_before_fc", false))
		gguf_conf_fail(c, E_UNSUPPORTED, "key %s.norm_before_fc: true is not done in a GGUF file",
		               c->m->arch->name);
	if (output && output->n_dim == 2)
		gguf_put_int(c, "draft_vocab_size", output->ne[1]);
	for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
		if (gguf_conf_has(c, layers[i])) {
			gguf_copy_list(c, "eagle_aux_hidden_state_layer_ids", layers[i], 0);
			return;
		}
}

/* What the config of DFlash has apart; first: the last token's row has a guess (DSpark). */
static void put_block(struct gguf_conf *c, bool second, bool first)
{
	const struct gguf_value *mask = gguf_find(&c->m->part[0], "tokenizer.ggml.mask_token_id");
	const struct gguf_info *rank = gguf_tensor_info(c->m, "markov_w1.weight");
	int64_t id = 0;

	if (!mask)
		gguf_conf_fail(c, E_MISSING, "key tokenizer.ggml.mask_token_id: missing, and it has no safe default");
	else if (!c->code)
		c->code = gguf_int(&c->m->part[0], mask, 0, &id, c->err);
	gguf_put_name(c, "dflash_config");
	buf_putc(c->out, '{');
	gguf_put_int(c, "mask_token_id", id);
	gguf_put_int(c, "block_size", gguf_conf_int(c, "block_size", GGUF_NEEDED));
	gguf_copy_list(c, "target_layer_ids", "target_layers", -1);
	if (first)
		gguf_put_str(c, "projector_type", "dspark");
	if (first && rank)
		gguf_put_int(c, "markov_rank", rank->ne[0]);
	if (second) {
		gguf_put_int(c, "conv_kernel_size", gguf_conf_int(c, "conv_kernel_size", GGUF_NEEDED));
		gguf_put_int(c, "conv_group_size", gguf_conf_int(c, "conv_group_size", GGUF_NEEDED));
		gguf_put_int(c, "selector_rank", gguf_conf_int(c, "selector_rank", GGUF_NEEDED));
		gguf_put_int(c, "selector_top_k", gguf_conf_int(c, "selector_top_k", GGUF_NEEDED));
		gguf_copy_float(c, "input_embedding_scale", "embedding_scale");
		gguf_copy_float(c, "output_multiplier", "logit_scale");
		gguf_copy_float(c, "final_logit_softcapping", "final_logit_softcapping");
	}
	buf_putc(c->out, '}');
}

/* A window without a pattern is all layers'. */
static void put_windows(struct gguf_conf *c)
{
	int64_t window = gguf_conf_int(c, "attention.sliding_window", 0);

	if (!window || c->code)
		return;
	gguf_put_int(c, "sliding_window", window);
	gguf_put_name(c, "layer_types");
	for (int64_t i = 0; i < c->m->blocks && !c->code; i++) {
		bool local = gguf_conf_block_int(c, "attention.sliding_window_pattern", i, 1) != 0;

		buf_putc(c->out, i ? ',' : '[');
		json_put_cstr(c->out, local ? "sliding_attention" : "full_attention");
	}
	buf_putc(c->out, ']');
}

void gguf_config_dflash(struct gguf_conf *c)
{
	bool second = gguf_conf_has(c, "conv_kernel_size"), first = gguf_conf_bool(c, "sample_from_anchor", false);

	if (gguf_conf_has_tensor(c, "d2t"))
		gguf_conf_fail(c, E_UNSUPPORTED,
		               "tensor d2t: a DFlash head for some of the model's tokens is not done");
	if (gguf_conf_bool(c, "log_snr_conditioning", false))
		gguf_conf_fail(c, E_UNSUPPORTED, "key %s.log_snr_conditioning: true is not done", c->m->arch->name);
	if (gguf_conf_has_tensor(c, "blk.0.attn_sinks.weight"))
		gguf_conf_fail(c, E_UNSUPPORTED, "tensor blk.0.attn_sinks.weight: sinks in a draft head are not done");
	put_architecture(c, second ? "DFlash2DraftModel" : "DFlashDraftModel");
	put_head(c);
	put_windows(c);
	/* Blocks of DFlash 2 see both ways; files of DFlash that do not say are causal where there is a window. */
	if (second || gguf_conf_has(c, "attention.causal"))
		gguf_put_bool(c, "is_causal", gguf_conf_bool(c, "attention.causal", false));
	put_block(c, second, first);
}

/* Its layers are those of Gemma 4, and none has keys and values. */
void gguf_config_assistant(struct gguf_conf *c)
{
	const char *wide = gguf_conf_has(c, "embedding_length_out") ? "embedding_length_out" : "n_embd_backbone";
	const struct gguf_info *clusters = gguf_tensor_info(c->m, "masked_embd_centroids.weight");

	if (!clusters)
		clusters = gguf_tensor_info(c->m, "mtp.centroids.weight");
	put_architecture(c, "Gemma4AssistantForCausalLM");
	gguf_config_gemma4(c);
	gguf_put_int(c, "backbone_hidden_size", gguf_conf_int(c, wide, GGUF_NEEDED));
	gguf_put_bool(c, "use_ordered_embeddings", clusters != NULL);
	if (!clusters)
		return;
	gguf_put_int(c, "num_centroids", gguf_conf_int(c, "n_centroids", clusters->ne[1]));
	gguf_copy_int(c, "centroid_intermediate_top_k", "centroid_top_k");
}

void gguf_config_deepseek4_head(struct gguf_conf *c)
{
	(void)c; /* the model's */
}
