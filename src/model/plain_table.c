/* plain_table.c - the rows of plain.h.  To add a family: its row, its name in plain_arch, and its vectors in
 * tests/model/driver.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/plain.h"

/* ---- what a few families read besides their row ---- */

/* Every no_rope_layer_interval-th layer does not rotate. */
static void read_upright_interval(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	int layers = d->m.shape.layers, every = conf_int_or(c, "no_rope_layer_interval", 4, 1, CONF_LAYERS_MAX);

	p->upright = arena_zalloc(&d->m.arena, (size_t)layers * sizeof *p->upright);
	for (int i = 0; i < layers; i++)
		p->upright[i] = (i + 1) % every == 0;
}

/* smollm3: no_rope_layers has a 1 for each layer that rotates; without it the interval says which. */
static void read_upright(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	const struct json *list = conf_get(c, "no_rope_layers");
	int layers = d->m.shape.layers;
	int64_t rotates;

	read_upright_interval(p, d, c);
	if (list && json_len(list) != (size_t)layers)
		conf_fail(c, E_FORMAT, "no_rope_layers: has %zu entries, num_hidden_layers is %d", json_len(list),
		          layers);
	for (int i = 0; i < layers && list && !c->code; i++)
		if (json_to_int(json_at(list, (size_t)i), &rotates))
			conf_fail(c, E_FORMAT, "no_rope_layers: entry %d is not a number", i);
		else
			p->upright[i] = !rotates;
}

/* Queries of positions beyond the context that a model was first trained with grow by their logarithm. */
static void read_bend(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	struct attn *op = &p->all.attn.op;
	struct conf r = *c;

	r.j = conf_get(c, "rope_parameters");
	r.where = "rope_parameters.";
	if (!r.j || !conf_get(&r, "llama_4_scaling_beta"))
		return;
	op->q_bend = (float)conf_double(&r, "llama_4_scaling_beta");
	op->q_bend_every = conf_int(&r, "original_max_position_embeddings", 1, CONF_CTX_MAX);
	if (!c->code)
		c->code = r.code;
}

/* Layers without a mixture: those that mlp_only_layers names, and all but each decoder_sparse_step-th. */
static void read_sparse(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	int layers = d->m.shape.layers, step = conf_int_or(c, "decoder_sparse_step", 1, 1, CONF_LAYERS_MAX);

	conf_layers_named(c, "mlp_only_layers", 0, layers, p->dense);
	for (int i = 0; i < layers; i++)
		p->dense[i] |= (i + 1) % step != 0;
}

static void read_clamp(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	p->all.moe.act = (struct activation){ ACT_CLAMPED, (float)conf_double_or(c, "swiglu_alpha", 1.702),
		                              (float)conf_double_or(c, "swiglu_limit", 7) };
	if (!(p->all.moe.act.limit > 0))
		conf_fail(c, E_FORMAT, "swiglu_limit: %g is not positive", (double)p->all.moe.act.limit);
}

/* "dtype" or "torch_dtype". */
static bool stored_in_float32(struct conf *c)
{
	return !strcmp(conf_str_or(c, conf_get(c, "dtype") ? "dtype" : "torch_dtype", ""), "float32");
}

/* The embedding's factor as the first implementation has it: rounded to bf16. */
static void read_gemma(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	p->embed_scale = bf16_to_float(float_to_bf16(sqrtf((float)d->m.shape.hidden)));
	/* Embedders whose files are in float32 are run so, and the factor is not rounded. */
	if (conf_bool_or(c, "use_bidirectional_attention", false) && stored_in_float32(c))
		p->embed_scale = sqrtf((float)d->m.shape.hidden);
}

static void read_gemma23(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	struct attn *op = &p->all.attn.op;
	bool two = !p->all.attn.norms;

	read_gemma(p, d, c);
	op->scale = (float)(1 / sqrt(conf_above_zero_or(c, "query_pre_attn_scalar", 256)));
	op->softcap = (float)conf_double_or(c, "attn_logit_softcapping", two ? 50 : 0);
	p->logit_cap = (float)conf_double_or(c, "final_logit_softcapping", two ? 30 : 0);
}

static void refuse_clip(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	if (conf_get(c, "clip_qkv"))
		conf_fail(c, E_UNSUPPORTED, "clip_qkv: clipped queries, keys and values are not done by this version");
}

static void refuse_head_norms(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	if (conf_bool_or(c, "use_qk_norm", false))
		conf_fail(c, E_UNSUPPORTED, "use_qk_norm: LayerNorms of queries and keys are not done by this version");
}

/* ERNIE: a bound of the layers with experts, which some files give as lists. */
static int layer_bound(struct conf *c, const char *key, int dflt, bool most)
{
	const struct json *j = conf_get(c, key);
	int64_t bound, v;

	if (json_kind(j) != JSON_ARRAY || !json_len(j)) {
		bound = conf_int_or(c, key, dflt, -1, CONF_LAYERS_MAX);
		return bound < 0 ? dflt : (int)bound;
	}
	bound = most ? -1 : CONF_LAYERS_MAX;
	for (size_t i = 0; i < json_len(j); i++)
		if (json_to_int(json_at(j, i), &v) || v < 0 || v > CONF_LAYERS_MAX)
			conf_fail(c, E_FORMAT, "%s: entry %zu is %.40s, not the number of a layer", key, i,
			          conf_entry(json_at(j, i)));
		else if ((v > bound) == most)
			bound = v;
	return (int)bound;
}

static void read_ernie(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	int layers = d->m.shape.layers, every = conf_int_or(c, "moe_layer_interval", 1, 1, CONF_LAYERS_MAX);
	int first = layer_bound(c, "moe_layer_start_index", 0, false);
	int last = layer_bound(c, "moe_layer_end_index", layers - 1, true);

	for (int i = 0; i < layers; i++)
		p->dense[i] = (i + 1) % every || i < first || i > last;
	if (p->all.ffn.bias)
		conf_fail(c, E_UNSUPPORTED, "use_bias: experts with biases are not done by this version");
}

/* Embeddings times the root of their width. */
static void read_afmoe(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	if (conf_bool_or(c, "mup_enabled", false))
		p->embed_scale = sqrtf((float)d->m.shape.hidden);
	if (strcmp(conf_str_or(c, "score_func", "sigmoid"), "sigmoid"))
		conf_fail(c, E_UNSUPPORTED, "score_func: only sigmoid is done");
}

/* Granite 4.5: a base of the rotation for each layer, of which 0 is none. */
static void read_bases(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	const struct json *list = conf_list(c, "layer_rope_theta");
	int layers = d->m.shape.layers, ctx = d->m.shape.ctx_max;

	for (int i = 0; i < layers && !conf_get(c, "layer_types"); i++)
		p->all.local[i] = p->all.window && i % 4;
	if (!list || c->code)
		return;
	if (json_len(list) != (size_t)layers) {
		conf_fail(c, E_FORMAT, "layer_rope_theta: has %zu entries, num_hidden_layers is %d", json_len(list),
		          layers);
		return;
	}
	p->rope = arena_zalloc(&d->m.arena, (size_t)layers * sizeof *p->rope);
	for (int i = 0; i < layers && !c->code; i++) {
		struct rotary_defaults r = { .partial = 1 };

		if (json_to_double(json_at(list, (size_t)i), &r.given) ||
		    !(r.given == 0 || (r.given > 1 && isfinite(r.given))))
			conf_fail(c, E_FORMAT, "layer_rope_theta: entry %d is neither 0 nor a number above 1", i);
		else if (r.given > 0)
			rotary_read(&p->rope[i], c, &r, p->all.attn.op.dim, &ctx, &d->m.vectors);
	}
}

/* Layers without experts, and, where layer_types is absent, windows, are counted apart in Command A+'s first layers;
 * of the layers without a window those rotate that have no experts, where their pattern is 1. */
static void read_command_layers(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	int layers = d->m.shape.layers, first = conf_int_or(c, "first_k_dense_replace", 0, 0, layers);
	int prefix = conf_int_or(c, "prefix_dense_sliding_window_pattern", 1, 1, CONF_LAYERS_MAX);
	int every = conf_int_or(c, "sliding_window_pattern", 4, 1, CONF_LAYERS_MAX);
	bool listed = conf_get(c, "layer_types");

	if (!conf_layer_types(c, "mlp_layer_types", layers, "dense", "sparse", p->dense))
		for (int i = 0; i < layers; i++)
			p->dense[i] = i < first;
	p->rope = arena_zalloc(&d->m.arena, (size_t)layers * sizeof *p->rope);
	for (int i = 0; i < layers; i++) {
		if (!listed)
			p->all.local[i] = p->all.window &&
			                  (i < first ? (i + 1) % prefix : (i - first + 1) % every) != 0;
		if (p->all.local[i] || (p->dense[i] && prefix == 1))
			p->rope[i] = p->all.attn.op.rope;
	}
}

static void read_command_moe(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	const char *score = conf_str_or(c, "expert_selection_fn", "sigmoid");
	const char *join = conf_str_or(c, "shared_expert_combination_strategy", "average");

	refuse_head_norms(p, d, c);
	if (conf_get(c, "rms_norm_eps")) {
		p->layer_norm = false;
		d->eps = (float)conf_above_zero_or(c, "rms_norm_eps", 1e-5);
	}
	if (!strcmp(score, "softmax"))
		p->all.moe.route = ROUTE_TOP;
	else if (strcmp(score, "sigmoid"))
		conf_fail(c, E_UNSUPPORTED, "expert_selection_fn: \"%.40s\" is not known; known: sigmoid, softmax",
		          score);
	if (!strcmp(join, "average") && p->all.moe.shared_inner)
		p->residual_moe = 0.5f;
	else if (strcmp(join, "average") && strcmp(join, "sum"))
		conf_fail(c, E_UNSUPPORTED,
		          "shared_expert_combination_strategy: \"%.40s\" is not known; known: average, sum", join);
	if (p->dense)
		read_command_layers(p, d, c);
}

/* Ling 1 scores by a softmax; 2 by sigmoids, with a bias of the choice and groups. */
static void read_ling(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	static const char *const refused[] = { "use_bias", "use_qkv_bias", "multi_gate" };
	struct moe_form *m = &p->all.moe;

	p->all.attn.norms = conf_bool_or(c, "use_qk_norm", false);
	p->all.attn.fused = !conf_bool_or(c, "qkv_apart", false); /* as in GGUF files of Ling 1 */
	if (!strcmp(conf_str_or(c, "score_function", "softmax"), "sigmoid")) {
		m->route = ROUTE_SIGMOID;
		if (conf_bool_or(c, "moe_router_enable_expert_bias", true))
			m->select_bias = "gate.expert_bias";
	}
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		if (conf_bool_or(c, refused[i], false))
			conf_fail(c, E_UNSUPPORTED, "%s: true is not done by this version", refused[i]);
}

/* phimoe: an expert counts as near the chosen one (ROUTE_ROUNDS) within twice the noise of training. */
static void read_rounds(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	p->all.moe.jitter = 2 * (float)conf_double_or(c, "router_jitter_noise", 0.01);
	if (!c->code && (p->all.moe.top_k != 2 || p->all.moe.experts < 2))
		conf_fail(c, E_UNSUPPORTED, "num_experts_per_tok: %d of %d; 2 of two and more are done",
		          p->all.moe.top_k, p->all.moe.experts);
}

/* A list of 0 and 1 by layer. */
static void read_flags(struct conf *c, const char *key, int layers, bool *out)
{
	const struct json *list = conf_list(c, key);
	int64_t v = 0;

	for (int i = 0; i < layers && list; i++)
		if (json_to_int(json_at(list, (size_t)i), &v) || (v != 0 && v != 1))
			conf_fail(c, E_FORMAT, "%s: entry %d is %.40s, neither 0 nor 1", key, i,
			          conf_entry(json_at(list, (size_t)i)));
		else
			out[i] = v;
}

/* MiMo: layers with a window have heads, sinks and a rotation of their own, and heads of values are narrower than those of
 * keys. */
static void read_mimo(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	int layers = d->m.shape.layers;
	struct attention_form *all = &p->all.attn, *local = arena_alloc(&d->m.arena, sizeof *local);

	read_flags(c, "hybrid_layer_pattern", layers, p->all.local);
	if (p->dense && conf_get(c, "moe_layer_freq")) {
		read_flags(c, "moe_layer_freq", layers, p->dense);
		for (int i = 0; i < layers; i++)
			p->dense[i] = !p->dense[i];
	}
	p->all.window = conf_int_or(c, "sliding_window", conf_int_or(c, "sliding_window_size", 128, 1, CONF_CTX_MAX), 1,
	                            CONF_CTX_MAX);
	all->dim_v = conf_int_or(c, "v_head_dim", all->op.dim, 1, all->op.dim);
	all->values_scale = (float)conf_double_or(c, "attention_value_scale", 0);
	*local = *all;
	local->op.heads = conf_int_or(c, "swa_num_attention_heads", all->op.heads, 1, CONF_HEADS_MAX);
	local->op.heads_kv = conf_int_or(c, "swa_num_key_value_heads", all->op.heads_kv, 1, CONF_HEADS_MAX);
	local->dim_v = conf_int_or(c, "swa_v_head_dim", all->dim_v, 1, all->op.dim);
	local->sinks = conf_bool_or(c, "add_swa_attention_sink_bias", false);
	all->sinks = conf_bool_or(c, "add_full_attention_sink_bias", false);
	if (conf_int_or(c, "swa_head_dim", all->op.dim, 1, CONF_HEAD_DIM_MAX) != all->op.dim)
		conf_fail(c, E_UNSUPPORTED, "swa_head_dim: is not head_dim, which is not done by this version");
	if (!c->code && local->op.heads % local->op.heads_kv)
		conf_fail(c, E_FORMAT, "swa_num_attention_heads: %d is not a multiple of swa_num_key_value_heads %d",
		          local->op.heads, local->op.heads_kv);
	if (strcmp(conf_str_or(c, "scoring_func", "sigmoid"), "sigmoid"))
		conf_fail(c, E_UNSUPPORTED, "scoring_func: only sigmoid is done");
	p->windowed = local;
}

/* Entry i of a list by layer, or the number that is there instead of a list. */
static double by_layer(struct conf *c, const char *key, int i, double dflt)
{
	const struct json *j = conf_get(c, key), *entry = json_kind(j) == JSON_ARRAY ? json_at(j, (size_t)i) : j;
	double v = dflt;

	if (json_kind(j) == JSON_ARRAY && json_len(j) <= (size_t)i)
		conf_fail(c, E_FORMAT, "%s: has %zu entries, none for layer %d", key, json_len(j), i);
	else if (json_kind(entry) != JSON_NULL && (json_to_double(entry, &v) || !isfinite(v)))
		conf_fail(c, E_FORMAT, "%s: entry %d is %.40s, not a number", key, i, conf_entry(entry));
	return v;
}

/* GGUF files have xIELU's numbers in their metadata, from which these lists by layer are. */
static void read_apertus(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	static const char *const keys[4] = { "xielu_alpha_p", "xielu_alpha_n", "xielu_beta", "xielu_eps" };
	float(*xielu)[4];

	p->all.attn.norms = conf_bool_or(c, "qk_norm", true);
	if (conf_bool_or(c, "post_norm", false))
		conf_fail(c, E_UNSUPPORTED, "post_norm: true is not done by this version");
	if (!conf_get(c, keys[0]))
		return;
	p->all.ffn.xielu = xielu = arena_alloc(&d->m.arena, (size_t)d->m.shape.layers * sizeof *xielu);
	for (int i = 0; i < d->m.shape.layers; i++)
		for (int k = 0; k < 4; k++)
			xielu[i][k] = (float)by_layer(c, keys[k], i, 0);
}

/* Is entry i of the list that name? */
static bool entry_is(const struct json *list, int i, const char *name)
{
	const char *s = json_str(json_at(list, (size_t)i), NULL);

	return s && !strcmp(s, name);
}

static bool list_has(const struct json *list, const char *name)
{
	for (int i = 0; i < (int)json_len(list); i++)
		if (entry_is(list, i, name))
			return true;
	return false;
}

/* Step: a base and a share of a head that rotates for each layer; scaled frequencies where yarn_only_types says. */
static void read_step_ropes(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	const struct json *scaled = conf_list(c, "yarn_only_types");
	int layers = d->m.shape.layers, ctx = d->m.shape.ctx_max;

	p->rope = arena_zalloc(&d->m.arena, (size_t)layers * sizeof *p->rope);
	for (int i = 0; i < layers && !c->code; i++) {
		struct rotary_defaults r = { .partial = by_layer(c, "partial_rotary_factors", i, 1),
			                     .given = by_layer(c, "rope_theta", i, 10000) };

		if (!(r.given > 1))
			conf_fail(c, E_FORMAT, "rope_theta: entry %d, %g, is not above 1", i, r.given);
		r.unscaled = scaled && !list_has(scaled, p->all.local[i] ? "sliding_attention" : "full_attention");
		rotary_read(&p->rope[i], c, &r, p->all.attn.op.dim, &ctx, &d->m.vectors);
	}
}

/* moe_layers_enum: "3,4,5"; without it all but the first. */
static void read_step_mixtures(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	const char *s = conf_str_or(c, "moe_layers_enum", "");
	bool said = *s;

	for (int i = 0; i < d->m.shape.layers; i++)
		p->dense[i] = said || !i;
	while (*s) {
		char *end;
		long at = strtol(s, &end, 10);

		if (end == s || at < 0 || (*end && *end != ',')) {
			conf_fail(c, E_FORMAT, "moe_layers_enum: \"%.40s\" is not a list of layers", s);
			return;
		}
		if (at < d->m.shape.layers)
			p->dense[at] = false;
		s = *end ? end + 1 : end;
	}
}

static void read_step(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	struct attention_form *all = &p->all.attn, *local = arena_alloc(&d->m.arena, sizeof *local);
	const struct json *types = conf_list(c, "layer_types");
	struct conf other = *c;
	int layers = d->m.shape.layers;

	all->op.heads_kv = conf_int_or(c, "num_attention_groups", all->op.heads_kv, 1, CONF_HEADS_MAX);
	all->gate_proj = conf_bool_or(c, "use_head_wise_attn_gate", false) ? "g_proj" : NULL;
	all->norms = conf_bool_or(c, "use_qk_norm", true);
	*local = *all;
	other.j = conf_get(c, "attention_other_setting");
	other.where = "attention_other_setting.";
	if (other.j) {
		local->op.heads = conf_int_or(&other, "num_attention_heads", all->op.heads, 1, CONF_HEADS_MAX);
		local->op.heads_kv = conf_int_or(&other, "num_attention_groups", all->op.heads_kv, 1, CONF_HEADS_MAX);
		if (conf_int_or(&other, "head_dim", all->op.dim, 1, CONF_HEAD_DIM_MAX) != all->op.dim)
			conf_fail(&other, E_UNSUPPORTED, "head_dim: is another, which is not done by this version");
		c->code = c->code ? c->code : other.code;
	}
	if (!c->code && (all->op.heads % all->op.heads_kv || local->op.heads % local->op.heads_kv))
		conf_fail(c, E_FORMAT, "num_attention_groups: does not divide num_attention_heads");
	p->windowed = local;
	/* The lists by layer have entries for draft heads, too. */
	for (int i = 0; i < layers && types; i++) {
		p->all.local[i] = entry_is(types, i, "sliding_attention");
		if (!p->all.local[i] && !entry_is(types, i, "full_attention"))
			conf_fail(c, E_UNSUPPORTED,
			          "layer_types: layer %d is neither full_attention nor sliding_attention", i);
	}
	p->all.window = conf_int_or(c, "sliding_window", 512, 1, CONF_CTX_MAX);
	read_step_ropes(p, d, c);
	if (p->dense)
		read_step_mixtures(p, d, c);
	p->limit = ffn_read_limits(c, "swiglu_limits", layers);
	p->limit_shared = ffn_read_limits(c, "swiglu_limits_shared", layers);
	if (strcmp(conf_str_or(c, "moe_router_activation", "sigmoid"), "sigmoid"))
		conf_fail(c, E_UNSUPPORTED, "moe_router_activation: only sigmoid is done");
}

/* Llama 4: layers that rotate see chunks and norm their queries and keys; the others see everything, by queries that grow
 * with their position. */
static void read_llama4(struct plain_plan *p, struct decoder *d, struct conf *c)
{
	int layers = d->m.shape.layers, step = conf_int_or(c, "interleave_moe_layer_step", 1, 1, CONF_LAYERS_MAX);
	struct attention_form *all = &p->all.attn, *standing = arena_alloc(&d->m.arena, sizeof *standing);
	const struct json *tuning = conf_get(c, "attn_temperature_tuning");
	bool grows = true, *mixed, listed;
	int64_t n;

	*standing = *all;
	if (json_kind(tuning) == JSON_BOOL)
		json_to_bool(tuning, &grows);
	else if (tuning && !json_to_int(tuning, &n))
		grows = n != 0;
	if (grows) {
		standing->op.q_bend = (float)conf_double_or(c, "attn_scale", 0.1);
		standing->op.q_bend_every = conf_int_or(c, "floor_scale", 8192, 1, CONF_CTX_MAX);
		standing->op.q_bend_from = 1;
	}
	all->op.chunk = conf_int_or(c, "attention_chunk_size", 8192, 1, CONF_CTX_MAX);
	all->norms_plain = conf_bool_or(c, "use_qk_norm", true);
	if (json_len(conf_list(c, "no_rope_layers")))
		read_upright(p, d, c);
	else
		read_upright_interval(p, d, c);
	p->standing = standing;
	if (!p->dense)
		return;
	mixed = arena_zalloc(&d->m.arena, (size_t)layers * sizeof *mixed);
	listed = conf_layers_named(c, "moe_layers", 0, layers, mixed);
	for (int i = 0; i < layers; i++)
		p->dense[i] = listed ? !mixed[i] : (i + 1) % step != 0;
	p->all.moe.shared_inner = p->all.moe.inner;
}

/* ---- the rows ---- */

/* clang-format off */
#define ATTENTION_BIAS .bias_qkv = "attention_bias", .bias_o = "attention_bias"
#define WHOLE(base) .rope = { .theta = (base), .partial = 1 }
#define FULL_KIND(base) .rope = { .theta = (base), .partial = 1, .kind = "full_attention" }
#define NORMS_AFTER .norm = { NULL, "post_attention_layernorm", NULL, "post_feedforward_layernorm" }
#define NORMS_AROUND(second) \
	.norm = { "input_layernorm", "post_attention_layernorm", second, "post_feedforward_layernorm" }
#define LOCAL_EXPERTS .count = "num_local_experts", .used = "num_experts_per_tok", .inner = "intermediate_size"
#define QWEN_EXPERTS                                                                                      \
	.count = "num_experts", .used = "num_experts_per_tok", .inner = "moe_intermediate_size", \
	.normalise = "norm_topk_prob"
/* clang-format on */

static const struct plain rows[] = {
	{ .type = "llama", ATTENTION_BIAS, .bias_mlp = "mlp_bias", WHOLE(10000), .windows = WINDOWS_LISTED },
	{ .type = "mistral", ATTENTION_BIAS, WHOLE(10000), .windows = WINDOWS_ALL },
	{ .type = "ministral3", ATTENTION_BIAS, WHOLE(0), .windows = WINDOWS_LISTED, .more = read_bend },
	{ .type = "mixtral",
	  .lack = { .eps = 1e-5 },
	  WHOLE(1e6),
	  .windows = WINDOWS_ALL,
	  .moe = { .at = "block_sparse_moe", .proj = { "w1", "w3", "w2" }, .normalise = true },
	  .experts = { LOCAL_EXPERTS } },
	{ .type = "qwen2", .attn.bias_qkv = true, WHOLE(0), .windows = WINDOWS_LISTED },
	{ .type = "qwen2_moe",
	  .attn.bias_qkv = true,
	  WHOLE(0),
	  .windows = WINDOWS_LISTED,
	  .experts = { QWEN_EXPERTS, .shared_width = "shared_expert_intermediate_size" },
	  .more = read_sparse },
	{ .type = "qwen3", .attn.norms = true, ATTENTION_BIAS, WHOLE(0), .windows = WINDOWS_LISTED },
	{ .type = "qwen3_moe",
	  .attn.norms = true,
	  ATTENTION_BIAS,
	  WHOLE(0),
	  .windows = WINDOWS_LISTED,
	  .experts = { QWEN_EXPERTS, .normalise_needed = true },
	  .more = read_sparse },
	{ .type = "smollm3",
	  .lack.tied = true,
	  ATTENTION_BIAS,
	  .bias_mlp = "mlp_bias",
	  WHOLE(0),
	  .windows = WINDOWS_LISTED,
	  .more = read_upright },
	{ .type = "phi3", ATTENTION_BIAS, .attn.fused = true, .ffn.fused = true, WHOLE(10000), .windows = WINDOWS_ALL },
	/* LayerNorms with biases; a router of two rounds. */
	{ .type = "phimoe",
	  .lack = { .eps = 1e-5 },
	  .layer_norm = true,
	  .layer_norm_bias = true,
	  ATTENTION_BIAS,
	  WHOLE(10000),
	  .windows = WINDOWS_ALL,
	  .moe = { .at = "block_sparse_moe", .proj = { "w1", "w3", "w2" }, .route = ROUTE_ROUNDS },
	  .experts = { LOCAL_EXPERTS },
	  .head_bias = "lm_head_bias",
	  .more = read_rounds },
	{ .type = "granite",
	  ATTENTION_BIAS,
	  .bias_mlp = "mlp_bias",
	  WHOLE(0),
	  .windows = WINDOWS_LISTED,
	  .factors = true },
	{ .type = "granitemoe",
	  .lack = { .eps = 1e-6 },
	  ATTENTION_BIAS,
	  WHOLE(10000),
	  .factors = true,
	  .moe = { .at = "block_sparse_moe", .router = "router.layer", .route = ROUTE_TOP },
	  .experts = { LOCAL_EXPERTS } },
	{ .type = "gemma",
	  .lack = { .vocab = 256000, .ctx = 8192, .dim = 256, .eps = 1e-6, .tied = true },
	  ATTENTION_BIAS,
	  .attn.norm_add = 1,
	  .ffn.act.kind = ACT_GELU_TANH,
	  WHOLE(10000),
	  .more = read_gemma },
	/* Caps of scores and logits; a window in every other layer, the first included. */
	{ .type = "gemma2",
	  .lack = { .vocab = 256000,
	            .ctx = 8192,
	            .heads = 8,
	            .heads_kv = 4,
	            .dim = 256,
	            .eps = 1e-6,
	            .act = ACT_GELU_TANH,
	            .tied = true },
	  NORMS_AROUND("pre_feedforward_layernorm"),
	  ATTENTION_BIAS,
	  .attn.norm_add = 1,
	  FULL_KIND(1e4),
	  .windows = WINDOWS_EVERY,
	  .every = 2,
	  .every_key = "sliding_window_pattern",
	  .more = read_gemma23 },
	{ .type = "gemma3_text",
	  .lack = { .vocab = 262208,
	            .ctx = 131072,
	            .heads = 8,
	            .heads_kv = 4,
	            .dim = 256,
	            .eps = 1e-6,
	            .act = ACT_GELU_TANH,
	            .tied = true },
	  NORMS_AROUND("pre_feedforward_layernorm"),
	  ATTENTION_BIAS,
	  .attn = { .norms = true, .norm_add = 1, .op.both_ways = true },
	  FULL_KIND(1e6),
	  .local = { .theta = 1e4,
	             .partial = 1,
	             .kind = "sliding_attention",
	             .theta_key = "rope_local_base_freq",
	             .unscaled = true },
	  .windows = WINDOWS_EVERY,
	  .every = 6,
	  .every_key = "sliding_window_pattern",
	  .more = read_gemma23 },
	/* Sinks; the router takes the largest logits and a softmax over these; experts are clamped and have biases. */
	{ .type = "gpt_oss",
	  .lack = { .eps = 1e-5, .dim = 64 },
	  ATTENTION_BIAS,
	  .attn = { .bias_qkv = true, .bias_o = true, .sinks = true },
	  WHOLE(150000),
	  .windows = WINDOWS_EVERY,
	  .every = 2,
	  .moe = { .route = ROUTE_TOP, .router = "router", .router_bias = true, .bias = true },
	  .experts = { LOCAL_EXPERTS },
	  .more = read_clamp },
	{ .type = "olmo2",
	  .lack = { .eps = 1e-5 },
	  NORMS_AFTER,
	  ATTENTION_BIAS,
	  .attn.norms_whole = true,
	  FULL_KIND(10000) },
	/* rope_scaling is for the layers without a window. */
	{ .type = "olmo3",
	  .lack = { .eps = 1e-5 },
	  NORMS_AFTER,
	  ATTENTION_BIAS,
	  .attn.norms_whole = true,
	  FULL_KIND(10000),
	  .local = { .theta = 10000, .partial = 1, .kind = "sliding_attention", .unscaled = true },
	  .windows = WINDOWS_EVERY,
	  .every = 4 },
	{ .type = "olmoe",
	  .lack = { .eps = 1e-5 },
	  ATTENTION_BIAS,
	  .attn.norms_whole = true,
	  WHOLE(10000),
	  .experts = { .count = "num_experts",
	               .used = "num_experts_per_tok",
	               .inner = "intermediate_size",
	               .normalise = "norm_topk_prob" },
	  .more = refuse_clip },
	{ .type = "glm4",
	  .norm = { "input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm" },
	  .bias_qkv = "attention_bias",
	  .attn.op.rope.adjacent = true,
	  .ffn.fused = true,
	  .rope = { .theta = 10000, .partial = 0.5 } },
	{ .type = "cohere2",
	  .lack = { .eps = 1e-5, .eps_key = "layer_norm_eps", .tied = true },
	  .norm = { "input_layernorm" },
	  .beside = true,
	  .layer_norm = true,
	  ATTENTION_BIAS,
	  .attn.op.rope.adjacent = true,
	  WHOLE(10000),
	  .rotates = ROTATES_LOCAL,
	  .windows = WINDOWS_EVERY,
	  .every = 4,
	  .every_key = "sliding_window_pattern",
	  .logit_scale = "logit_scale",
	  .logit_scale_or = 0.0625f,
	  .more = refuse_head_norms },
	{ .type = "seed_oss",
	  .lack = { .eps = 1e-6 },
	  .bias_qkv = "attention_bias",
	  .bias_o = "attention_out_bias",
	  .bias_mlp = "mlp_bias",
	  .attn.bias_qkv = true,
	  WHOLE(1e7) },
	{ .type = "exaone4",
	  .lack = { .eps = 1e-5 },
	  NORMS_AFTER,
	  .attn.norms = true,
	  WHOLE(1e6),
	  .rotates = ROTATES_WINDOWED,
	  .windows = WINDOWS_EVERY,
	  .every = 4,
	  .every_key = "sliding_window_pattern" },
	{ .type = "ernie4_5",
	  .lack = { .eps = 1e-5, .tied = true },
	  .bias_qkv = "use_bias",
	  .bias_o = "use_bias",
	  .bias_mlp = "use_bias",
	  .attn.op.rope.adjacent = true,
	  WHOLE(500000) },
	/* The bias of the choice has no say in the weights. */
	{ .type = "ernie4_5_moe",
	  .lack = { .eps = 1e-5, .tied = true },
	  .bias_qkv = "use_bias",
	  .bias_o = "use_bias",
	  .bias_mlp = "use_bias",
	  .attn.op.rope.adjacent = true,
	  WHOLE(500000),
	  .moe = { .normalise = true,
	           .norm_eps = 1e-12f,
	           .select_bias = "moe_statics.e_score_correction_bias",
	           .shared = "shared_experts",
	           .shared_plain = true },
	  .experts = { .count = "moe_num_experts",
	               .used = "moe_k",
	               .inner = "moe_intermediate_size",
	               .shared_count = "moe_num_shared_experts" },
	  .more = read_ernie,
	  .ignore = "model.mtp_" },
	{ .type = "arcee",
	  .lack = { .eps = 1e-5 },
	  ATTENTION_BIAS,
	  .bias_mlp = "mlp_bias",
	  .ffn.gateless = true,
	  WHOLE(10000) },
	{ .type = "apertus",
	  .lack = { .eps = 1e-5 },
	  .norm = { "attention_layernorm", NULL, "feedforward_layernorm", NULL },
	  ATTENTION_BIAS,
	  .bias_mlp = "mlp_bias",
	  .attn.norms = true,
	  .ffn.gateless = true,
	  WHOLE(12e6),
	  .more = read_apertus },
	{ .type = "internlm3",
	  .lack = { .eps = 1e-6 },
	  .bias_qkv = "qkv_bias",
	  .bias_o = "bias",
	  .bias_mlp = "bias",
	  WHOLE(10000) },
	/* Norms of queries and keys come after their rotation. */
	{ .type = "hunyuan_v1_dense",
	  .lack = { .eps = 1e-5 },
	  ATTENTION_BIAS,
	  .bias_mlp = "mlp_bias",
	  .attn = { .norms = true, .norms_after = true, .q_norm = "query_layernorm", .k_norm = "key_layernorm" },
	  WHOLE(10000) },
	/* Attention has a gate for each number; layers without a window do not rotate. */
	{ .type = "afmoe",
	  .lack = { .eps = 1e-5 },
	  .norm = { "input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm" },
	  .attn = { .norms = true, .gate_proj = "gate_proj" },
	  WHOLE(10000),
	  .rotates = ROTATES_LOCAL,
	  .windows = WINDOWS_EVERY,
	  .every = 4,
	  .every_key = "global_attn_every_n_layers",
	  .moe = { .route = ROUTE_SIGMOID,
	           .router = "router.gate",
	           .select_bias = "expert_bias",
	           .normalise = true,
	           .norm_eps = 1e-20f,
	           .groups_strict = true,
	           .shared = "shared_experts",
	           .shared_plain = true },
	  .experts = { .count = "num_experts",
	               .used = "num_experts_per_tok",
	               .inner = "moe_intermediate_size",
	               .scale = "route_scale",
	               .groups = "n_group",
	               .shared_count = "num_shared_experts",
	               .dense_first = "num_dense_layers" },
	  .more = read_afmoe },
	{ .type = "llama4_text",
	  .lack = { .eps = 1e-5, .ctx = 131072 },
	  ATTENTION_BIAS,
	  .attn.op.rope.adjacent = true,
	  WHOLE(500000),
	  .ffn.at = "feed_forward",
	  .moe = { .at = "feed_forward",
	           .router = "router",
	           .route = ROUTE_SIGMOID,
	           .weight_input = true,
	           .turned = true,
	           .shared_plain = true },
	  .experts = { LOCAL_EXPERTS, .dense_inner = "intermediate_size_mlp" },
	  .more = read_llama4 },
	{ .type = "mimo_v2_flash",
	  .lack = { .eps = 1e-5, .eps_key = "layernorm_epsilon" },
	  ATTENTION_BIAS,
	  .attn.sinks_name = "attention_sink_bias",
	  .rope = { .theta = 5e6, .partial = 1 },
	  .local = { .theta = 1e4, .partial = 1, .kind = "sliding_attention", .theta_key = "swa_rope_theta" },
	  .moe = { .route = ROUTE_SIGMOID,
	           .select_bias = "gate.e_score_correction_bias",
	           .normalise = true,
	           .norm_eps = 1e-20f,
	           .shared = "shared_experts",
	           .shared_plain = true },
	  .experts = { .count = "n_routed_experts",
	               .used = "num_experts_per_tok",
	               .inner = "moe_intermediate_size",
	               .normalise = "norm_topk_prob",
	               .scale = "routed_scaling_factor",
	               .groups = "n_group",
	               .shared_count = "n_shared_experts" },
	  .more = read_mimo,
	  .ignore = "model.mtp.",
	  .heads_behind = true },
	/* Gates of heads; layers with a window have more heads; what SiLU gives is limited, and by how much goes by layer. */
	{ .type = "step3p5",
	  .lack = { .eps = 1e-5 },
	  .attn = { .norms = true, .norm_add = 1, .gate_by_head = true },
	  .rope = { .given = 10000, .partial = 1, .unscaled = true },
	  .moe = { .at = "moe",
	           .route = ROUTE_SIGMOID,
	           .select_bias = "router_bias",
	           .normalise = true,
	           .norm_eps = 1e-20f,
	           .shared_at = "share_expert",
	           .shared_plain = true },
	  .experts = { .count = "moe_num_experts",
	               .used = "moe_top_k",
	               .inner = "moe_intermediate_size",
	               .normalise = "norm_expert_weight",
	               .scale = "moe_router_scaling_factor",
	               .shared_width = "share_expert_dim" },
	  .more = read_step,
	  .heads_behind = true },
	/* Windows, a sink in every layer, and a base of the rotation for each. */
	{ .type = "granite_swa",
	  .lack = { .tied = true },
	  ATTENTION_BIAS,
	  .bias_mlp = "mlp_bias",
	  .attn.sinks = true,
	  WHOLE(10000),
	  .windows = WINDOWS_EVERY,
	  .every = 4,
	  .factors = true,
	  .more = read_bases },
	{ .type = "granitemoe_swa",
	  .lack = { .tied = true },
	  ATTENTION_BIAS,
	  .attn.sinks = true,
	  WHOLE(10000),
	  .windows = WINDOWS_EVERY,
	  .every = 4,
	  .factors = true,
	  .moe = { .at = "block_sparse_moe",
	           .router = "router.layer",
	           .route = ROUTE_TOP,
	           .shared_at = "shared_mlp",
	           .shared_plain = true },
	  .experts = { LOCAL_EXPERTS, .shared_width = "shared_intermediate_size" },
	  .more = read_bases },
	{ .type = "cohere2_moe",
	  .lack = { .eps = 1e-5, .eps_key = "layer_norm_eps", .tied = true },
	  .norm = { "input_layernorm" },
	  .beside = true,
	  .layer_norm = true,
	  ATTENTION_BIAS,
	  .attn.op.rope.adjacent = true,
	  WHOLE(10000),
	  .windows = WINDOWS_EVERY,
	  .every = 4,
	  .moe = { .route = ROUTE_SIGMOID, .shared = "shared_experts", .shared_plain = true, .normalise = true },
	  .experts = { .count = "num_experts",
	               .used = "num_experts_per_tok",
	               .inner = "intermediate_size",
	               .normalise = "norm_topk_prob",
	               .shared_count = "num_shared_experts",
	               .dense_inner = "prefix_dense_intermediate_size" },
	  .logit_scale = "logit_scale",
	  .logit_scale_or = 0.0625f,
	  .more = read_command_moe,
	  .heads_behind = true },
	{ .type = "bailing_moe",
	  .trunk.embed = "word_embeddings",
	  .attn = { .fused = true,
	            .at = "attention",
	            .qkv_proj = "query_key_value",
	            .o_proj = "dense",
	            .q_norm = "query_layernorm",
	            .k_norm = "key_layernorm" },
	  WHOLE(0),
	  .moe = { .normalise = true,
	           .norm_eps = 1e-20f,
	           .groups_strict = true,
	           .shared = "shared_experts",
	           .shared_plain = true },
	  .experts = { .count = "num_experts",
	               .used = "num_experts_per_tok",
	               .inner = "moe_intermediate_size",
	               .normalise = "norm_topk_prob",
	               .scale = "routed_scaling_factor",
	               .groups = "n_group",
	               .shared_count = "num_shared_experts",
	               .shared_each = "moe_shared_expert_intermediate_size",
	               .dense_first = "first_k_dense_replace" },
	  .head_norm = "norm_head",
	  .more = read_ling,
	  .heads_behind = true },
};

enum { ROWS = sizeof rows / sizeof *rows };

const char *const plain_arch[] = {
	"llama",   "mistral",     "ministral3",     "mistral3",    "mixtral",     "llama_bidirec",
	"qwen2",   "qwen2_moe",   "qwen3",          "qwen3_moe",   "smollm3",     "phi3",
	"granite", "granitemoe",  "qwen2_vl",       "qwen2_5_vl",  "qwen3_vl",    "qwen3_vl_moe",
	"llava",   "gemma",       "gemma2",         "gemma3_text", "gemma3",      "gpt_oss",
	"olmo2",   "olmo3",       "olmoe",          "glm4",        "cohere2",     "seed_oss",
	"exaone4", "ernie4_5",    "ernie4_5_moe",   "arcee",       "internlm3",   "hunyuan_v1_dense",
	"apertus", "phimoe",      "mimo_v2_flash",  "step3p5",     "llama4_text", "llama4",
	"afmoe",   "granite_swa", "granitemoe_swa", "cohere2_moe", "bailing_moe", NULL,
};

const struct plain *plain_find(const char *type)
{
	for (int i = 0; i < ROWS; i++)
		if (!strcmp(rows[i].type, type))
			return &rows[i];
	return NULL;
}
