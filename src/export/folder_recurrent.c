/* folder_recurrent.c - metadata of a GGUF file from config.json, of families with recurrences; see folder_keys.c. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "export/folder_making.h"

/* ---- Mamba-2 ---- */

/* One value for the layers that are of a kind, 0 for the others. */
struct kinds {
	char kind[MAKING_LAYERS_MAX]; /* 'M'amba, '*' attention, '-' an MLP, 'E'xperts */
};

static bool kinds_read(struct making *m, struct kinds *k)
{
	static const char *const name[] = { "mamba", "attention", "mlp", "moe" };
	const struct json *types = json_get(m->st->text, "layers_block_type");
	const char *pattern = json_str(json_get(m->st->text, "hybrid_override_pattern"), NULL);
	size_t n;

	if (types == NULL)
		types = json_get(m->st->text, "layer_types");
	if (!layers_count(m))
		return false;
	for (int64_t i = 0; i < m->blocks; i++) {
		const char *type = json_str(json_at(types, (size_t)i), &n);

		k->kind[i] = pattern && i < (int64_t)strlen(pattern) ? pattern[i] : 0;
		for (int t = 0; t < 4 && !pattern && type; t++)
			if (!strcmp(type, name[t]))
				k->kind[i] = "M*-E"[t];
		if (!k->kind[i] || !strchr("M*-E", k->kind[i])) {
			making_fail(m, E_UNSUPPORTED, "layer %" PRId64 " is of no kind that GGUF files of %s have", i,
			            m->arch->name);
			return false;
		}
	}
	return true;
}

/* A list: v for layers of a kind in `of`, w for those in `or`, 0 for the others. */
static void key_by_kind(struct making *m, const char *key, const struct kinds *k, const char *of, int64_t v,
                        const char * or, int64_t w)
{
	int32_t list[MAKING_LAYERS_MAX];

	if (v < 0 || v > INT32_MAX || w < 0 || w > INT32_MAX)
		making_fail(m, E_FORMAT, "%" PRId64 " or %" PRId64 " for %s", v, w, key + 1);
	for (int64_t i = 0; i < m->blocks && !m->code; i++)
		list[i] = (int32_t)(strchr(of, k->kind[i]) ? v : strchr(or, k->kind[i]) ? w : 0);
	key_ints(m, key, list);
}

/* The members of a mixer: those of mamba2 have no word before them, Nemotron's and Granite's another one. */
static void key_mixer(struct making *m, const char *heads, const char *size, const char *groups, const char *state,
                      const char *kernel)
{
	int64_t n = making_int(m, heads, INT64_MIN), dim = making_int(m, size, INT64_MIN);

	if (n < 1 || dim < 1 || n > MAKING_SIZE_MAX || dim > MAKING_SIZE_MAX)
		making_fail(m, E_FORMAT, "%s: %" PRId64 ", of %" PRId64, heads, n, dim);
	if (m->code)
		return;
	key_copy(m, ".ssm.conv_kernel", kernel);
	key_copy(m, ".ssm.state_size", state);
	key_put(m, ".ssm.group_count", making_int(m, groups, 1));
	key_put(m, ".ssm.inner_size", n * dim);
	key_put(m, ".ssm.time_step_rank", n);
}

enum { NO_POSITIONS = 1 << 20 }; /* the context that files have whose layers do not turn */

void keys_mamba2(struct making *m)
{
	key_put(m, ".block_count", m->blocks);
	key_put(m, ".context_length", NO_POSITIONS);
	key_copy(m, ".embedding_length", "hidden_size");
	key_put(m, ".feed_forward_length", 0);
	key_put(m, ".attention.head_count", 0);
	key_float(m, ".attention.layer_norm_rms_epsilon", "layer_norm_epsilon", 1e-5);
	key_mixer(m, "num_heads", "head_dim", "n_groups", "state_size", "conv_kernel");
}

static void nemotron_experts(struct making *m)
{
	key_copy(m, ".expert_count", "n_routed_experts");
	key_copy(m, ".expert_used_count", "num_experts_per_tok");
	key_put(m, ".expert_group_count", making_int(m, "n_group", 1));
	key_put(m, ".expert_group_used_count", making_int(m, "topk_group", 1));
	key_copy(m, ".expert_feed_forward_length", "moe_intermediate_size");
	key_copy(m, ".expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size");
	key_put(m, ".expert_shared_count", making_int(m, "n_shared_experts", 1));
	key_float(m, ".expert_weights_scale", "routed_scaling_factor", 1);
	key_copy_if_there(m, ".moe_latent_size", "moe_latent_size");
	if (!m->code)
		pair_bool(&m->p, ".expert_weights_norm", making_flag(m, "norm_topk_prob", true));
}

void keys_nemotron(struct making *m)
{
	bool experts = strcmp(m->arch->name, "nemotron_h");
	int64_t dim = making_head_dim(m), heads = making_int(m, "num_attention_heads", INT64_MIN);
	const char *eps = making_has(m, "layer_norm_epsilon") ? "layer_norm_epsilon" : "norm_eps";
	struct kinds k;

	want_text(m, "mlp_hidden_act", "relu2");
	if (heads < 1)
		making_fail(m, E_FORMAT, "num_attention_heads: %" PRId64, heads);
	if (m->code || !kinds_read(m, &k))
		return;
	key_put(m, ".block_count", m->blocks);
	key_put(m, ".context_length", NO_POSITIONS);
	key_copy(m, ".embedding_length", "hidden_size");
	key_copy(m, ".vocab_size", "vocab_size");
	key_by_kind(m, ".feed_forward_length", &k, "-", making_int(m, "intermediate_size", 0), "E",
	            experts ? making_int(m, "moe_intermediate_size", 0) : 0);
	key_put(m, ".attention.head_count", heads);
	key_by_kind(m, ".attention.head_count_kv", &k, "*", making_int(m, "num_key_value_heads", heads), "", 0);
	key_put(m, ".attention.key_length", dim);
	key_put(m, ".attention.value_length", dim);
	key_float(m, ".attention.layer_norm_rms_epsilon", eps, 1e-5);
	key_float(m, ".attention.layer_norm_epsilon", eps, 1e-5);
	key_mixer(m, "mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel");
	key_rope(m, dim);
	key_put(m, ".rope.dimension_count", m->code ? 0 : making_int(m, "hidden_size", INT64_MIN) / heads);
	if (!m->code)
		pair_bool(&m->p, ".rope.scaling.finetuned", false);
	if (experts)
		nemotron_experts(m);
}

/* Rows of queries and keys are in pairs, also where they do not turn. */
void keys_granite_hybrid(struct making *m)
{
	int64_t dim = making_head_dim(m), experts = making_int(m, "num_local_experts", 0),
		heads = making_int(m, "num_attention_heads", INT64_MIN);
	const char *position = json_str(json_get(m->st->text, "position_embedding_type"), NULL);
	bool turns = position && !strcmp(position, "rope");
	struct kinds k;

	if (m->code || !kinds_read(m, &k))
		return;
	if (!memchr(k.kind, 'M', (size_t)m->blocks))
		making_fail(m, E_UNSUPPORTED,
		            "layer_types: none is mamba: GGUF has such a model as granite or granitemoe");
	/* Readers norm each group by itself, Granite's own module the whole width. */
	want_int(m, "mamba_n_groups", 1, 1);
	key_put(m, ".block_count", m->blocks);
	key_put(m, ".context_length", turns ? making_int(m, "max_position_embeddings", INT64_MIN) : NO_POSITIONS);
	key_copy(m, ".embedding_length", "hidden_size");
	key_copy(m, ".vocab_size", "vocab_size");
	key_put(m, ".feed_forward_length",
	        making_int(m, experts ? "intermediate_size" : "shared_intermediate_size", INT64_MIN));
	key_put(m, ".attention.head_count", heads);
	key_by_kind(m, ".attention.head_count_kv", &k, "*", making_int(m, "num_key_value_heads", heads), "", 0);
	key_float(m, ".attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-5);
	key_rope(m, dim);
	key_put(m, ".rope.dimension_count", dim);
	keys_granite_scales(m);
	key_mixer(m, "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv");
	if (!m->code)
		pair_bool(&m->p, ".rope.scaling.finetuned", turns);
	if (experts < 1)
		return;
	key_put(m, ".expert_count", experts);
	key_copy(m, ".expert_used_count", "num_experts_per_tok");
	key_copy(m, ".expert_shared_feed_forward_length", "shared_intermediate_size");
}

/* The model's factors are in its matrices: folder_orders.c. */
void keys_falcon_h1(struct making *m)
{
	int64_t dim = making_head_dim(m), heads = making_int(m, "mamba_n_heads", INT64_MIN),
		size = making_int(m, "mamba_d_head", INT64_MIN);
	static const char *const none[] = { "attention_bias", "mlp_bias", "projectors_bias", "mamba_proj_bias" };

	for (size_t i = 0; i < sizeof none / sizeof *none; i++)
		want_flag(m, none[i], false);
	want_flag(m, "mamba_use_mlp", true);
	if (making_flag(m, "mamba_rms_norm", false) && making_flag(m, "mamba_norm_before_gate", true))
		making_fail(m, E_UNSUPPORTED, "mamba_norm_before_gate: true: GGUF files of falcon-h1 have false");
	if (m->norms_whole)
		making_fail(m, E_UNSUPPORTED,
		            "convolutions of [channels][width][1]: matrices may hold the model's factors "
		            "already; take the folder as Hugging Face has it");
	key_put(m, ".block_count", m->blocks);
	key_copy(m, ".context_length", "max_position_embeddings");
	key_copy(m, ".embedding_length", "hidden_size");
	key_copy(m, ".vocab_size", "vocab_size");
	key_copy(m, ".feed_forward_length", "intermediate_size");
	key_copy(m, ".attention.head_count", "num_attention_heads");
	key_put(m, ".attention.head_count_kv",
	        making_int(m, "num_key_value_heads", making_int(m, "num_attention_heads", INT64_MIN)));
	key_put(m, ".attention.key_length", dim);
	key_put(m, ".attention.value_length", dim);
	key_float(m, ".attention.layer_norm_rms_epsilon", "rms_norm_eps", (double)NAN);
	key_rope(m, dim);
	key_mixer(m, "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv");
	if (!m->code && making_int(m, "mamba_d_ssm", heads * size) != heads * size)
		making_fail(m, E_FORMAT, "mamba_d_ssm: %" PRId64 ", of %" PRId64 " heads of %" PRId64,
		            making_int(m, "mamba_d_ssm", 0), heads, size);
}

/* ---- Jamba ---- */

static int64_t jamba_rank(struct making *m)
{
	int64_t width = making_int(m, "hidden_size", INT64_MIN);
	const char *word = json_str(json_get(m->st->text, "mamba_dt_rank"), NULL);

	if ((word && !strcmp(word, "auto")) || !making_has(m, "mamba_dt_rank"))
		return (width + 15) / 16;
	return making_int(m, "mamba_dt_rank", INT64_MIN);
}

/* Layer i attends where i mod period = offset. */
void keys_jamba(struct making *m)
{
	int64_t period = making_int(m, "attn_layer_period", 8), offset = making_int(m, "attn_layer_offset", 4),
		heads = making_int(m, "num_attention_heads", INT64_MIN),
		kv = making_int(m, "num_key_value_heads", heads), width = making_int(m, "hidden_size", INT64_MIN),
		experts = making_int(m, "num_experts", 16), times = making_int(m, "mamba_expand", 2);
	int32_t list[MAKING_LAYERS_MAX];

	if (period < 1 || kv < 1 || kv > MAKING_SIZE_MAX)
		making_fail(m, E_FORMAT, "attn_layer_period: %" PRId64 ", of %" PRId64 " key heads", period, kv);
	if (width < 1 || width > MAKING_SIZE_MAX || times < 1 || times > MAKING_SIZE_MAX)
		making_fail(m, E_FORMAT, "hidden_size: %" PRId64 ", %" PRId64 " times as wide inside", width, times);
	if (making_has(m, "sliding_window"))
		making_fail(m, E_UNSUPPORTED, "sliding_window: GGUF files of jamba have no window");
	if (!layers_count(m))
		return;
	for (int64_t i = 0; i < m->blocks; i++)
		list[i] = i % period == offset ? (int32_t)kv : 0;
	key_put(m, ".block_count", m->blocks);
	key_put(m, ".context_length", making_int(m, "max_position_embeddings", 262144));
	key_put(m, ".embedding_length", width);
	key_copy(m, ".feed_forward_length", "intermediate_size");
	key_put(m, ".attention.head_count", heads);
	key_ints(m, ".attention.head_count_kv", list);
	key_float(m, ".attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-6);
	key_put(m, ".ssm.conv_kernel", making_int(m, "mamba_d_conv", 4));
	key_put(m, ".ssm.inner_size", times * width);
	key_put(m, ".ssm.state_size", making_int(m, "mamba_d_state", 16));
	key_put(m, ".ssm.time_step_rank", jamba_rank(m));
	key_put(m, ".expert_count", experts);
	key_put(m, ".expert_used_count", making_int(m, "num_experts_per_tok", 2));
}

/* ---- RWKV ---- */

/* Readers of the file take 64e-5 for the norm of each head, which is norm_eps times the size of a head. */
void keys_rwkv7(struct making *m)
{
	int64_t dim = making_int(m, "head_dim", 64), width = making_int(m, "hidden_size", INT64_MIN);
	double eps = making_float(m, "norm_eps", 1e-5);

	if (width < 1 || width > MAKING_SIZE_MAX || dim < 1 || dim > MAKING_SIZE_MAX)
		making_fail(m, E_FORMAT, "hidden_size: %" PRId64 ", in heads of %" PRId64, width, dim);
	want_text(m, "hidden_act", "sqrelu");
	if (making_has(m, "attn"))
		making_fail(m, E_UNSUPPORTED, "attn: GGUF files of rwkv7 have no layers of attention");
	if (!(fabs(eps * (double)dim - 64e-5) < 1e-9))
		making_fail(m, E_UNSUPPORTED,
		            "norm_eps: %g, of heads of %" PRId64 ": GGUF files of rwkv7 have 64e-5 in all", eps, dim);
	key_put(m, ".block_count", m->blocks);
	key_put(m, ".context_length", NO_POSITIONS);
	key_put(m, ".embedding_length", width);
	key_put(m, ".feed_forward_length", making_int(m, "intermediate_size", m->code ? 0 : 4 * width));
	key_put(m, ".attention.head_count", 0);
	key_float(m, ".attention.layer_norm_epsilon", "norm_eps", 1e-5);
	key_put(m, ".wkv.head_size", dim);
	key_copy(m, ".attention.decay_lora_rank", "decay_low_rank_dim");
	key_copy(m, ".attention.iclr_lora_rank", "a_low_rank_dim");
	key_copy(m, ".attention.value_residual_mix_lora_rank", "v_low_rank_dim");
	key_copy(m, ".attention.gate_lora_rank", "gate_low_rank_dim");
}
