/* gguf_windows.c - config.json of families whose layers with a window, or with chunks, differ from the others in more than
 * that: MiMo V2 Flash, Step 3.5 Flash, Llama 4. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "store/gguf/gguf_conf.h"

static bool windowed(struct gguf_conf *c, int64_t i)
{
	return gguf_conf_block_int(c, "attention.sliding_window_pattern", i, 0) != 0;
}

/* The first block that sees a window, or that sees all; 0: there is none. */
static int64_t first_block(struct gguf_conf *c, bool window)
{
	for (int64_t i = 0; i < c->m->blocks - c->m->drafts && !c->code; i++)
		if (windowed(c, i) == window)
			return i;
	return 0;
}

static int64_t heads_of(struct gguf_conf *c, int64_t i)
{
	return gguf_conf_block_int(c, "attention.head_count", i, GGUF_NEEDED);
}

static int64_t heads_kv_of(struct gguf_conf *c, int64_t i)
{
	return gguf_conf_block_int(c, "attention.head_count_kv", i, GGUF_NEEDED);
}

/* Blocks of a kind have the heads of the first of that kind; the config has one number for each kind. */
static void check_heads(struct gguf_conf *c)
{
	int64_t first[2] = { first_block(c, false), first_block(c, true) };

	for (int64_t i = 0; i < c->m->blocks - c->m->drafts && !c->code; i++) {
		int64_t of = first[windowed(c, i)];

		if (heads_of(c, i) != heads_of(c, of) || heads_kv_of(c, i) != heads_kv_of(c, of))
			gguf_conf_fail(c, E_UNSUPPORTED,
			               "key %s.attention.head_count: blocks %" PRId64 " and %" PRId64
			               " are of a kind and have different heads",
			               c->m->arch->name, of, i);
	}
	if (windowed(c, 0))
		gguf_conf_fail(c, E_UNSUPPORTED,
		               "key %s.attention.sliding_window_pattern: block 0 has a window, which is not done",
		               c->m->arch->name);
}

static void put_flags(struct gguf_conf *c, const char *member, gguf_block_is_fn *is)
{
	gguf_put_name(c, member);
	for (int64_t i = 0; i < c->m->blocks - c->m->drafts && !c->code; i++)
		buf_printf(c->out, "%c%d", i ? ',' : '[', is(c, i));
	buf_putc(c->out, ']');
}

/* One number for blocks with a window, another for the others, as a list by block. */
static void put_by_kind(struct gguf_conf *c, const char *member, double local, double all)
{
	gguf_put_name(c, member);
	for (int64_t i = 0; i < c->m->blocks - c->m->drafts && !c->code; i++) {
		buf_putc(c->out, i ? ',' : '[');
		gguf_put_number(c->out, windowed(c, i) ? local : all);
	}
	buf_putc(c->out, ']');
}

void gguf_config_mimo(struct gguf_conf *c)
{
	int64_t all = first_block(c, false), local = first_block(c, true);
	int64_t dim = gguf_conf_int(c, "attention.key_length", GGUF_NEEDED);

	check_heads(c);
	gguf_put_common(c);
	gguf_put_float(c, "layernorm_epsilon", gguf_conf_float(c, "attention.layer_norm_rms_epsilon", (double)NAN));
	gguf_put_int(c, "num_key_value_heads", heads_kv_of(c, all));
	gguf_put_int(c, "swa_num_attention_heads", heads_of(c, local));
	gguf_put_int(c, "swa_num_key_value_heads", heads_kv_of(c, local));
	gguf_put_int(c, "head_dim", dim);
	gguf_put_int(c, "v_head_dim", gguf_conf_int(c, "attention.value_length", dim));
	gguf_put_rope(c, dim, 5e6);
	gguf_put_float(c, "swa_rope_theta", gguf_conf_float(c, "rope.freq_base_swa", 1e4));
	gguf_put_int(c, "sliding_window", gguf_conf_int(c, "attention.sliding_window", GGUF_NEEDED));
	put_flags(c, "hybrid_layer_pattern", windowed);
	put_flags(c, "moe_layer_freq", gguf_conf_mixture);
	gguf_put_bool(c, "add_swa_attention_sink_bias", gguf_conf_block_has(c, local, "attn_sinks.weight"));
	gguf_put_bool(c, "add_full_attention_sink_bias", gguf_conf_block_has(c, all, "attn_sinks.weight"));
	gguf_copy_float(c, "attention_value_scale", "attention.value_scale");
	gguf_put_routed(c);
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
}

/* The divisors of the frequencies of layers that see all, which turn half of a head.  Files have as many as a whole head has
 * frequencies.  Newer ones have those of the half, and then ones.  Older ones have those of frequencies of a whole head, every
 * second of which is one of the half's. */
static void put_half_divisors(struct gguf_conf *c, const struct gguf_info *t, int64_t dims)
{
	int64_t half = dims / 4, step = 1;

	if (strcmp(t->type->name, "F32") || t->count != dims / 2 || half < 1) {
		gguf_conf_fail(c, E_FORMAT, "tensor %s: %" PRId64 " elements of %s, %" PRId64 " of F32 are wanted",
		               t->name, t->count, t->type->name, dims / 2);
		return;
	}
	for (int64_t i = half; i < t->count; i++)
		if (gguf_float_at(t, i) != 1)
			step = 2;
	gguf_put_name(c, "rope_scaling");
	buf_puts(c->out, "{\"rope_type\":\"longrope\",\"attention_factor\":1");
	for (int list = 0; list < 2; list++) {
		gguf_put_name(c, list ? "short_factor" : "long_factor");
		for (int64_t i = 0; i < half; i++) {
			float f = gguf_float_at(t, step * i);

			if (!(f > 0) || !isfinite(f))
				gguf_conf_fail(c, E_FORMAT, "tensor %s: element %" PRId64 " is %g", t->name, step * i,
				               (double)f);
			buf_putc(c->out, i ? ',' : '[');
			gguf_put_number(c->out, isfinite(f) ? (double)f : 1);
		}
		buf_putc(c->out, ']');
	}
	buf_putc(c->out, '}');
	gguf_put_name(c, "yarn_only_types");
	buf_puts(c->out, "[\"full_attention\"]");
}

/* moe_layers_enum: the numbers of the blocks with a router, as text. */
static void put_mixtures(struct gguf_conf *c, const char *member, char open, char close)
{
	bool first = true;

	gguf_put_name(c, member);
	buf_putc(c->out, open);
	for (int64_t i = 0; i < c->m->blocks - c->m->drafts && !c->code; i++)
		if (gguf_conf_mixture(c, i)) {
			buf_printf(c->out, "%s%" PRId64, first ? "" : ",", i);
			first = false;
		}
	buf_putc(c->out, close);
}

static void put_step_ropes(struct gguf_conf *c, int64_t dim)
{
	const struct gguf_info *divisors = gguf_tensor_info(c->m, "rope_freqs.weight");
	double base = gguf_conf_float(c, "rope.freq_base", 5e6), share;
	int64_t dims = gguf_conf_int(c, "rope.dimension_count", dim);

	if (!c->code && (dims < 4 || dims > dim || dims % 4))
		gguf_conf_fail(c, E_FORMAT, "key %s.rope.dimension_count: %" PRId64 " of heads of %" PRId64,
		               c->m->arch->name, dims, dim);
	share = c->code ? 1 : (double)dims / (double)dim;
	put_by_kind(c, "rope_theta", gguf_conf_float(c, "rope.freq_base_swa", 1e4), base);
	put_by_kind(c, "partial_rotary_factors", share, share / 2);
	if (divisors && !c->code)
		put_half_divisors(c, divisors, dims);
}

void gguf_config_step(struct gguf_conf *c)
{
	int64_t all = first_block(c, false), local = first_block(c, true);
	int64_t dim = gguf_conf_int(c, "attention.key_length", GGUF_NEEDED);

	check_heads(c);
	gguf_put_common(c);
	gguf_put_int(c, "num_attention_groups", heads_kv_of(c, all));
	gguf_put_int(c, "head_dim", dim);
	gguf_put_name(c, "attention_other_setting");
	buf_putc(c->out, '{');
	gguf_put_int(c, "num_attention_heads", heads_of(c, local));
	gguf_put_int(c, "num_attention_groups", heads_kv_of(c, local));
	buf_putc(c->out, '}');
	gguf_put_types(c, "attention.sliding_window_pattern", "sliding_attention", "full_attention");
	put_step_ropes(c, dim);
	gguf_put_int(c, "sliding_window", gguf_conf_int(c, "attention.sliding_window", GGUF_NEEDED));
	gguf_put_bool(c, "use_qk_norm", gguf_conf_has_tensor(c, "blk.0.attn_q_norm.weight"));
	gguf_put_bool(c, "use_head_wise_attn_gate", gguf_conf_has_tensor(c, "blk.0.attn_gate.weight"));
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "moe_num_experts", gguf_conf_int(c, "expert_count", GGUF_NEEDED));
	gguf_put_int(c, "moe_top_k", gguf_conf_int(c, "expert_used_count", GGUF_NEEDED));
	gguf_put_int(c, "moe_intermediate_size", gguf_conf_int(c, "expert_feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "share_expert_dim", gguf_shared_width(c));
	gguf_put_float(c, "moe_router_scaling_factor", gguf_conf_float(c, "expert_weights_scale", 1));
	gguf_put_bool(c, "norm_expert_weight", gguf_conf_bool(c, "expert_weights_norm", true));
	put_mixtures(c, "moe_layers_enum", '"', '"');
	if (gguf_conf_has(c, "swiglu_clamp_exp"))
		gguf_copy_floats(c, "swiglu_limits", "swiglu_clamp_exp");
	if (gguf_conf_has(c, "swiglu_clamp_shexp"))
		gguf_copy_floats(c, "swiglu_limits_shared", "swiglu_clamp_shexp");
}

/* Chunks, the layers that do not rotate and the factors of queries are constants of the family; Maverick, which has 128
 * experts, does not norm queries and keys. */
void gguf_config_llama4(struct gguf_conf *c)
{
	enum { MAVERICK = 128 };
	int64_t experts = gguf_conf_int(c, "expert_count", 0);

	if (!c->code && !gguf_conf_int(c, "attention.sliding_window", 1))
		gguf_conf_fail(c, E_UNSUPPORTED,
		               "key %s.attention.sliding_window: 0: layers without chunks are not done",
		               c->m->arch->name);
	gguf_put_common(c);
	gguf_put_heads(c, 500000);
	gguf_put_bool(c, "use_qk_norm", experts != MAVERICK);
	gguf_put_int(c, "intermediate_size_mlp", gguf_conf_int(c, "feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "intermediate_size", gguf_conf_int(c, "expert_feed_forward_length", GGUF_NEEDED));
	gguf_put_int(c, "num_local_experts", gguf_conf_int(c, "expert_count", GGUF_NEEDED));
	gguf_put_int(c, "num_experts_per_tok", gguf_conf_int(c, "expert_used_count", GGUF_NEEDED));
	put_mixtures(c, "moe_layers", '[', ']');
}
