/* folder_keys.c - metadata of a GGUF file from config.json, by architecture. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "export/folder_making.h"

void making_fail(struct making *m, int code, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (m->code)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	m->code = err_set(m->err, code, "%s: %s", m->st->config_path, text);
}

/* Notes that a member of config.json could not be read. */
static void noted(struct making *m, int rc)
{
	if (rc)
		m->code = err_prefix(m->err, "%s", m->st->config_path);
}

/* Returns the default of MistralConfig for a member that the config inside of a wrapper leaves out; NAN: none is known. */
static double default_of(const struct making *m, const char *member)
{
	static const struct {
		const char *member;
		double v;
	} mistral[] = { { "num_attention_heads", 32 },
		        { "num_key_value_heads", 8 },
		        { "max_position_embeddings", 131072 },
		        { "vocab_size", 32000 },
		        { "rms_norm_eps", 1e-6 } };

	for (size_t i = 0; i < sizeof mistral / sizeof *mistral && m->inside; i++)
		if (!strcmp(mistral[i].member, member) && !json_get(m->st->text, member))
			return mistral[i].v;
	return (double)NAN;
}

int64_t making_int(struct making *m, const char *member, int64_t dflt)
{
	double known = default_of(m, member);
	int64_t v = 0;

	if (!isnan(known))
		return m->code ? 1 : (int64_t)known;
	if (!m->code && dflt == INT64_MIN && !json_get(m->st->text, member))
		making_fail(m, E_MISSING, "%s: missing", member);
	if (!m->code)
		noted(m, json_get_int(m->st->text, member, dflt, &v, m->err));
	return m->code ? 1 : v;
}

double making_float(struct making *m, const char *member, double dflt)
{
	double v = 0, known = default_of(m, member);

	if (!isnan(known))
		return m->code ? 1 : known;
	if (!m->code && isnan(dflt) && !json_get(m->st->text, member))
		making_fail(m, E_MISSING, "%s: missing", member);
	if (!m->code)
		noted(m, json_get_double(m->st->text, member, dflt, &v, m->err));
	return m->code ? 1 : v;
}

void key_put(struct making *m, const char *key, int64_t v)
{
	if (v < 0 || v > UINT32_MAX)
		making_fail(m, E_FORMAT, "%" PRId64 " for %s is out of range", v, key + 1);
	if (!m->code)
		pair_u32(&m->p, key, (uint32_t)v);
}

/* The whole part of v. */
void key_put_whole(struct making *m, const char *key, double v)
{
	if (!(v >= 0 && v <= UINT32_MAX))
		making_fail(m, E_FORMAT, "%g for %s is out of range", v, key + 1);
	if (!m->code)
		key_put(m, key, (int64_t)v);
}

void key_copy(struct making *m, const char *key, const char *member)
{
	key_put(m, key, making_int(m, member, INT64_MIN));
}

void key_copy_if_there(struct making *m, const char *key, const char *member)
{
	if (json_get(m->st->text, member) && json_kind(json_get(m->st->text, member)) != JSON_NULL)
		key_copy(m, key, member);
}

bool making_flag(struct making *m, const char *member, bool dflt)
{
	bool v = dflt;

	if (!m->code)
		noted(m, json_get_bool(m->st->text, member, dflt, &v, m->err));
	return v;
}

bool making_has(const struct making *m, const char *member)
{
	return json_kind(json_get(m->st->text, member)) != JSON_NULL;
}

void key_float(struct making *m, const char *key, const char *member, double dflt)
{
	double v = making_float(m, member, dflt);

	if (!m->code)
		pair_f32(&m->p, key, v);
}

void key_float_if_there(struct making *m, const char *key, const char *member)
{
	if (making_has(m, member))
		key_float(m, key, member, (double)NAN);
}

void want_int(struct making *m, const char *member, int64_t dflt, int64_t want)
{
	int64_t v = making_int(m, member, dflt);

	if (!m->code && v != want)
		making_fail(m, E_UNSUPPORTED, "%s: %" PRId64 ": GGUF files of %s have %" PRId64, member, v,
		            m->arch->name, want);
}

void want_flag(struct making *m, const char *member, bool dflt)
{
	if (making_flag(m, member, dflt) != dflt)
		making_fail(m, E_UNSUPPORTED, "%s: %s: GGUF files of %s have %s", member, dflt ? "false" : "true",
		            m->arch->name, dflt ? "true" : "false");
}

void want_text(struct making *m, const char *member, const char *want)
{
	size_t n;
	const char *is = json_str(json_get(m->st->text, member), &n);

	if (is && (n != strlen(want) || memcmp(is, want, n)))
		making_fail(m, E_UNSUPPORTED, "%s: %.60s: GGUF files of %s have %s", member, is, m->arch->name, want);
}

void want_float(struct making *m, const char *member, double want)
{
	double v = making_float(m, member, want);

	if (!m->code && v != want)
		making_fail(m, E_UNSUPPORTED, "%s: %g: GGUF files of %s have %g", member, v, m->arch->name, want);
}

bool layer_is(const struct making *m, int64_t i, const char *type, bool otherwise)
{
	const struct json *list = json_get(m->st->text, "layer_types");
	size_t n;
	const char *is = json_str(json_at(list, (size_t)i), &n);

	return json_len(list) ? is && n == strlen(type) && !memcmp(is, type, n) : otherwise;
}

bool layers_count(struct making *m)
{
	size_t n = json_len(json_get(m->st->text, "layer_types"));

	if (m->blocks > MAKING_LAYERS_MAX)
		making_fail(m, E_LIMIT, "num_hidden_layers: %" PRId64 ", at most %d", m->blocks, MAKING_LAYERS_MAX);
	else if (n && n != (size_t)m->blocks)
		making_fail(m, E_FORMAT, "layer_types: %zu, of %" PRId64 " layers", n, m->blocks);
	return !m->code;
}

void key_ints(struct making *m, const char *key, const int32_t *v)
{
	if (!m->code)
		pair_list(&m->p, key, GGUF_I32, (uint64_t)m->blocks, v, (size_t)m->blocks * sizeof *v);
}

/* ---- rotations ---- */

static const struct json *rope_of(const struct making *m)
{
	const struct json *r = json_get(m->st->text, "rope_parameters");

	return r ? r : json_get(m->st->text, "rope_scaling");
}

double rope_float(struct making *m, const char *member, double dflt)
{
	double v = dflt;

	if (!m->code)
		noted(m, json_get_double(rope_of(m), member, dflt, &v, m->err));
	return v;
}

const struct json *rope_member(const struct making *m, const char *member)
{
	return json_get(rope_of(m), member);
}

static const char *rope_type(struct making *m)
{
	const char *type = "default";

	if (!m->code)
		noted(m, json_get_str(rope_of(m), "type", type, &type, m->err));
	if (!m->code)
		noted(m, json_get_str(rope_of(m), "rope_type", type, &type, m->err));
	return m->code ? "default" : type;
}

float *making_divisors(struct making *m, int64_t n)
{
	struct source_tensor *t = &m->s->t[m->s->n++];
	float *v = arena_alloc(&m->s->g.arena, (size_t)n * sizeof *v);

	t->t = (struct gguf_info){ .name = "rope_freqs.weight",
		                   .type = gguf_type_named("F32"),
		                   .n_dim = 1,
		                   .ne = { n, 1, 1, 1 },
		                   .count = n,
		                   .data = (const uint8_t *)v,
		                   .bytes = (size_t)n * sizeof *v };
	return v;
}

/* llama3's scaling is a tensor of divisors, by the length of each wave. */
static void put_llama3(struct making *m, int64_t dim, double theta)
{
	double factor = rope_float(m, "factor", 8), low = rope_float(m, "low_freq_factor", 1),
	       high = rope_float(m, "high_freq_factor", 4),
	       length = rope_float(m, "original_max_position_embeddings", 8192);
	float *v = making_divisors(m, dim / 2);

	for (int64_t j = 0; j < dim / 2; j++) {
		double wave = 2 * M_PI * pow(theta, 2 * (double)j / (double)dim),
		       s = (length / wave - low) / (high - low);

		v[j] = (float)(wave < length / high ? 1 : wave > length / low ? factor : 1 / ((1 - s) / factor + s));
	}
}

static bool rope_has(const struct making *m, const char *member)
{
	return json_kind(rope_member(m, member)) != JSON_NULL;
}

static void put_yarn(struct making *m)
{
	double factor = rope_float(m, "factor", 1), usual = factor > 1 ? 0.1 * log(factor) + 1 : 1,
	       attention = rope_float(m, "attention_factor", usual);

	key_put_whole(m, ".rope.scaling.original_context_length",
	              rope_float(m, "original_max_position_embeddings",
	                         (double)making_int(m, "max_position_embeddings", INT64_MIN)));
	if (rope_has(m, "beta_fast"))
		pair_f32(&m->p, ".rope.scaling.yarn_beta_fast", rope_float(m, "beta_fast", 32));
	if (rope_has(m, "beta_slow"))
		pair_f32(&m->p, ".rope.scaling.yarn_beta_slow", rope_float(m, "beta_slow", 1));
	/* Readers of the file multiply the usual factor by this one. */
	if (fabs(attention / usual - 1) > 1e-6)
		pair_f32(&m->p, ".rope.scaling.attn_factor", attention / usual);
}

void key_rope(struct making *m, int64_t dim)
{
	double theta = rope_float(m, "rope_theta", making_float(m, "rope_theta", 10000));
	const char *type = rope_type(m);

	if (m->code)
		return;
	pair_f32(&m->p, ".rope.freq_base", theta);
	if (!strcmp(type, "default") || !strcmp(type, "mrope")) /* mrope: positions of pictures alone differ */
		return;
	if (!strcmp(type, "llama3") && !strcmp(m->arch->name, "llama")) {
		put_llama3(m, dim, theta);
		return;
	}
	if (strcmp(type, "linear") && strcmp(type, "yarn")) {
		making_fail(m, E_UNSUPPORTED, "rope type %s: a GGUF file of %s has default, linear or yarn here", type,
		            m->arch->name);
		return;
	}
	pair_text(&m->p, ".rope.scaling.type", type, strlen(type));
	pair_f32(&m->p, ".rope.scaling.factor", rope_float(m, "factor", 1));
	if (!strcmp(type, "yarn"))
		put_yarn(m);
}

/* ---- architectures ---- */

int64_t making_head_dim(struct making *m)
{
	int64_t heads = making_int(m, "num_attention_heads", INT64_MIN),
		width = making_int(m, "hidden_size", INT64_MIN);
	int64_t dim = making_int(m, "head_dim", heads > 0 ? width / heads : 0);

	if (dim < 2 || dim > MAKING_SIZE_MAX || dim % 2)
		making_fail(m, E_FORMAT, "heads of %" PRId64, dim);
	return m->code ? 2 : dim;
}

/* Sizes that all have; a window that only some of them have is refused. */
void keys_plain(struct making *m)
{
	int64_t dim = making_head_dim(m);

	if (making_flag(m, "use_sliding_window", false))
		making_fail(m, E_UNSUPPORTED, "use_sliding_window: GGUF files of %s have no window", m->arch->name);
	key_put(m, ".block_count", m->blocks + m->drafts);
	key_copy(m, ".context_length", "max_position_embeddings");
	key_copy(m, ".embedding_length", "hidden_size");
	key_copy_if_there(m, ".feed_forward_length", "intermediate_size");
	key_copy(m, ".attention.head_count", "num_attention_heads");
	key_put(m, ".attention.head_count_kv",
	        making_int(m, "num_key_value_heads", making_int(m, "num_attention_heads", INT64_MIN)));
	if (!m->code)
		pair_f32(&m->p, ".attention.layer_norm_rms_epsilon", making_float(m, "rms_norm_eps", (double)NAN));
	key_put(m, ".attention.key_length", dim);
	key_put(m, ".attention.value_length", dim);
	key_rope(m, dim);
}

static void keys_llama(struct making *m)
{
	const struct json *window = json_get(m->st->text, "sliding_window");

	if (json_kind(window) == JSON_INT)
		making_fail(m, E_UNSUPPORTED, "sliding_window: GGUF files of llama have no window");
	if (m->inside && !window)
		making_fail(m, E_UNSUPPORTED,
		            "sliding_window: missing, which is 4096 here, and GGUF files of llama have none");
	keys_plain(m);
	key_copy(m, ".vocab_size", "vocab_size");
	key_put(m, ".rope.dimension_count", making_head_dim(m));
}

void keys_experts(struct making *m)
{
	key_copy(m, ".expert_count", "num_experts");
	key_copy(m, ".expert_used_count", "num_experts_per_tok");
	key_copy(m, ".expert_feed_forward_length", "moe_intermediate_size");
	key_copy_if_there(m, ".expert_shared_feed_forward_length", "shared_expert_intermediate_size");
}

static void keys_qwen3_moe(struct making *m)
{
	if (!making_flag(m, "norm_topk_prob", true))
		making_fail(m, E_UNSUPPORTED, "norm_topk_prob false: GGUF files of qwen3moe have normalised weights");
	keys_plain(m);
	keys_experts(m);
}

/* Files of this architecture have full attention in every n-th layer. */
static void check_layers(struct making *m, int64_t every)
{
	const struct json *types = json_get(m->st->text, "layer_types");

	for (size_t i = 0; i < json_len(types) && !m->code; i++) {
		size_t n;
		const char *type = json_str(json_at(types, i), &n);
		bool full = type && n == 14 && !memcmp(type, "full_attention", 14);

		if (full != ((int64_t)(i + 1) % every == 0))
			making_fail(m, E_UNSUPPORTED, "layer_types: layer %zu, of every %" PRId64 " one is full", i,
			            every);
	}
}

/* Frequencies that turn by time, row and column; t, h, w where the config says nothing. */
static void put_sections(struct making *m, int32_t t, int32_t h, int32_t w)
{
	const struct json *from = json_get(rope_of(m), "mrope_section");
	int32_t section[4] = { t, h, w, 0 };

	for (size_t i = 0; i < json_len(from) && i < 3 && !m->code; i++) {
		int64_t v;

		if (json_to_int(json_at(from, i), &v) || v < 0 || v > INT32_MAX)
			making_fail(m, E_FORMAT, "mrope_section: element %zu is not a number of frequencies", i);
		else
			section[i] = (int32_t)v;
	}
	if (!m->code)
		pair_list(&m->p, ".rope.dimension_sections", GGUF_I32, 4, section, sizeof section);
}

/* Sizes of attention and of gated delta nets. */
static void keys_delta(struct making *m)
{
	int64_t every = making_int(m, "full_attention_interval", 4);
	int64_t dk = making_int(m, "linear_key_head_dim", INT64_MIN),
		heads = making_int(m, "linear_num_value_heads", INT64_MIN),
		keys = making_int(m, "linear_num_key_heads", INT64_MIN);

	if (every < 1 || every > INT32_MAX)
		making_fail(m, E_FORMAT, "full_attention_interval: %" PRId64, every);
	if (dk != making_int(m, "linear_value_head_dim", INT64_MIN))
		making_fail(m, E_UNSUPPORTED, "linear_value_head_dim: %" PRId64 ", keys have %" PRId64,
		            making_int(m, "linear_value_head_dim", INT64_MIN), dk);
	if (dk < 1 || heads < 1 || keys < 1 || dk > MAKING_SIZE_MAX || heads > MAKING_SIZE_MAX ||
	    keys > MAKING_SIZE_MAX)
		making_fail(m, E_FORMAT, "%" PRId64 " linear heads over %" PRId64 ", of %" PRId64, heads, keys, dk);
	check_layers(m, every);
	keys_plain(m);
	if (json_get(m->st->text, "num_experts"))
		keys_experts(m);
	if (m->drafts)
		key_put(m, ".nextn_predict_layers", m->drafts);
	key_copy(m, ".ssm.conv_kernel", "linear_conv_kernel_dim");
	key_put(m, ".ssm.state_size", dk);
	key_put(m, ".ssm.group_count", keys);
	key_put(m, ".ssm.time_step_rank", heads);
	key_put(m, ".ssm.inner_size", dk * heads);
	key_put(m, ".full_attention_interval", every);
	key_put_whole(m, ".rope.dimension_count",
	              (double)making_head_dim(m) *
	                      rope_float(m, "partial_rotary_factor", making_float(m, "partial_rotary_factor", 0.25)));
}

static void keys_qwen3_5(struct making *m)
{
	keys_delta(m);
	put_sections(m, 11, 11, 10);
}

/* Numbers of n-grams, which the folder has as a tensor of a layer. */
static void key_numbers(struct making *m, const char *key, const char *tensor, int64_t n)
{
	const int64_t *v = NULL;

	for (size_t i = 0; i < m->st->n && !v && !m->code; i++)
		if (name_ends(m->st->v[i]->name, tensor))
			m->code = store_ints(m->st, &m->s->g.arena, m->st->v[i]->name, n, &v, m->err);
	if (!m->code && !v)
		making_fail(m, E_MISSING, "tensor %s: missing", tensor);
	if (!m->code)
		pair_list(&m->p, key, GGUF_U64, (uint64_t)n, v, (size_t)n * sizeof *v);
}

static void keys_ngrams(struct making *m)
{
	const struct json *list = json_get(m->st->text, "ple_layer_ids"), *end = json_get(m->st->text, "eos_token_id");
	int64_t size = making_int(m, "ngram_size", INT64_MIN), each = making_int(m, "heads_per_ngram", INT64_MIN);
	int64_t dim = making_int(m, "ple_embed_dim", INT64_MIN), layer = 0, id = 0;
	int32_t at;

	if (json_kind(end) == JSON_ARRAY)
		end = json_at(end, 0);
	if (json_len(list) != 1 || json_to_int(json_at(list, 0), &layer) || layer < 1 || layer > m->blocks)
		making_fail(m, E_UNSUPPORTED, "ple_layer_ids: GGUF files have n-grams in one layer");
	if (size < 2 || size > 64 || each < 1 || each > MAKING_SIZE_MAX || dim < 1 || dim % ((size - 1) * each))
		making_fail(m, E_FORMAT, "ple_embed_dim: %" PRId64 " for %" PRId64 " heads of each length to %" PRId64,
		            dim, each, size);
	if (json_to_int(end, &id))
		making_fail(m, E_MISSING, "eos_token_id: missing, and n-grams end at it");
	if (m->code)
		return;
	at = (int32_t)layer - 1;
	pair_list(&m->p, ".ple.layers", GGUF_I32, 1, &at, sizeof at);
	key_put(m, ".ple.ngram_size", size);
	key_put(m, ".ple.heads_per_ngram", each);
	key_copy(m, ".ple.conv_kernel", "ple_conv_kernel_size");
	key_put(m, ".ple.eos_token_id", id);
	key_put(m, ".embedding_length_per_layer_input", dim / ((size - 1) * each));
	key_numbers(m, ".ple.layer_multipliers", ".layer_multipliers", size);
	key_numbers(m, ".ple.head_vocab_sizes", ".ngram_heads_vocab_sizes", (size - 1) * each);
	key_numbers(m, ".ple.head_offsets", ".ngram_heads_offsets", (size - 1) * each);
	if (!m->code && !json_to_int(json_get(m->st->config, "image_token_id"), &id))
		key_put(m, ".ple.image_token_id", id);
}

static void keys_qwen4(struct making *m)
{
	int64_t every = making_int(m, "full_attention_interval", 4), size, n = m->blocks + m->drafts;
	int32_t ratio[MAKING_LAYERS_MAX + 1] = { 0 };

	m->norms_whole = making_flag(m, "norm_weights_whole", false);
	keys_delta(m);
	want_text(m, "output_gate_type", "sigmoid");
	if (json_get(rope_of(m), "mrope_section"))
		put_sections(m, 11, 11, 10);
	key_copy(m, ".hyper_connection.count", "hc_count");
	key_copy(m, ".hyper_connection.low_rank", "hc_lowrank");
	key_copy(m, ".attention.indexer.head_count", "indexer_n_heads");
	key_copy(m, ".attention.indexer.key_length", "indexer_head_dim");
	key_copy(m, ".attention.indexer.top_k", "indexer_budget");
	size = making_int(m, "indexer_compress_ratio", INT64_MIN);
	if (size < 1 || size > MAKING_SIZE_MAX || m->blocks > MAKING_LAYERS_MAX)
		making_fail(m, E_FORMAT, "indexer_compress_ratio: %" PRId64 ", in %" PRId64 " layers", size, m->blocks);
	for (int64_t i = 0; i < m->blocks && !m->code; i++)
		ratio[i] = (i + 1) % every ? 0 : (int32_t)size;
	if (!m->code)
		pair_list(&m->p, ".attention.compress_ratios", GGUF_I32, (uint64_t)n, ratio, (size_t)n * sizeof *ratio);
	if (making_has(m, "ple_layer_ids"))
		keys_ngrams(m);
}

static void keys_qwen3_next(struct making *m)
{
	if (!making_flag(m, "norm_topk_prob", true))
		making_fail(m, E_UNSUPPORTED, "norm_topk_prob false: GGUF files of qwen3next have normalised weights");
	keys_delta(m);
}

static void keys_qwen2_vl(struct making *m)
{
	keys_plain(m);
	put_sections(m, 16, 24, 24);
}

/* Vectors of earlier blocks of the tower join the first layers. */
static void keys_qwen3_vl(struct making *m)
{
	const struct json *vision = json_get(m->st->config, "vision_config");

	keys_plain(m);
	put_sections(m, 24, 20, 20);
	key_put(m, ".n_deepstack_layers", (int64_t)json_len(json_get(vision, "deepstack_visual_indexes")));
}

static void keys_qwen3_vl_moe(struct making *m)
{
	keys_qwen3_vl(m);
	keys_experts(m);
}

static const struct family {
	const char *model_type, *arch;
	making_keys_fn *keys;
	making_settle_fn *settle;
	bool delta;
	const char *with; /* a member of the config that counts something, so the line is this one; NULL: any */
} families[] = {
	{ "llama", "llama", keys_llama },
	{ "mistral", "llama", keys_llama },
	{ "ministral3", "mistral3", keys_ministral3 },
	{ "smollm3", "smollm3", keys_smollm3 },
	{ "granite", "granite", keys_granite },
	{ "phi3", "phi3", keys_phi3 },
	{ "glm4", "glm4", keys_glm4 },
	{ "olmo2", "olmo2", keys_plain },
	{ "olmo3", "olmo2", keys_olmo3 },
	{ "qwen2", "qwen2", keys_plain },
	{ "qwen2_moe", "qwen2moe", keys_qwen2_moe },
	{ "qwen3", "qwen3", keys_plain },
	{ "qwen3_moe", "qwen3moe", keys_qwen3_moe },
	{ "qwen2_vl", "qwen2vl", keys_qwen2_vl },
	{ "qwen2_vl_text", "qwen2vl", keys_qwen2_vl },
	{ "qwen2_5_vl", "qwen2vl", keys_qwen2_vl },
	{ "qwen2_5_vl_text", "qwen2vl", keys_qwen2_vl },
	{ "qwen3_vl_text", "qwen3vl", keys_qwen3_vl },
	{ "qwen3_vl_moe_text", "qwen3vlmoe", keys_qwen3_vl_moe },
	{ "qwen3_5_text", "qwen35", keys_qwen3_5, settle_tiled, true },
	{ "qwen3_5_moe_text", "qwen35moe", keys_qwen3_5, settle_tiled, true },
	{ "qwen4_exp_text", "qwen4exp", keys_qwen4, settle_tiled, true },
	{ "gemma2", "gemma2", keys_gemma2 },
	{ "gemma3_text", "gemma3", keys_gemma3 },
	{ "gemma4_text", "gemma4", keys_gemma4 },
	{ "gemma4_unified_text", "gemma4", keys_gemma4 },
	{ "glm4_moe", "glm4moe", keys_glm4_moe },
	{ "lfm2", "lfm2", keys_lfm2 },
	{ "lfm2_moe", "lfm2moe", keys_lfm2_moe },
	{ "minimax_m2", "minimax-m2", keys_minimax },
	{ "qwen3_next", "qwen3next", keys_qwen3_next, NULL, true },
	{ "granitemoehybrid", "granitehybrid", keys_granite_hybrid, settle_mamba },
	{ "mamba2", "mamba2", keys_mamba2, settle_mamba },
	{ "nemotron_h", "nemotron_h_moe", keys_nemotron, settle_mamba, .with = "n_routed_experts" },
	{ "nemotron_h", "nemotron_h", keys_nemotron, settle_mamba },
	{ "falcon_h1", "falcon-h1", keys_falcon_h1, settle_falcon_h1 },
	{ "jamba", "jamba", keys_jamba },
	{ "rwkv7", "rwkv7", keys_rwkv7, settle_rwkv7 },
	{ "gpt_oss", "gpt-oss", keys_gpt_oss },
	{ "deepseek_v3", "deepseek2", keys_deepseek },
	{ "kimi_k2", "deepseek2", keys_deepseek },
	{ "glm4_moe_lite", "deepseek2", keys_deepseek },
	{ "deepseek_v32", "deepseek32", keys_dsa },
	{ "glm_moe_dsa", "glm-dsa", keys_dsa },
	{ "kimi_linear", "kimi-linear", keys_kimi_linear, settle_kimi_linear },
	{ "glm5_next_text", "glm5-next", keys_glm5_next, settle_glm5_next },
	{ "deepseek_v4", "deepseek4", keys_deepseek4 },
};
enum { FAMILIES = sizeof families / sizeof *families };

void folder_families(struct buf *out)
{
	for (int i = 0; i < FAMILIES; i++)
		if (!families[i].with)
			buf_printf(out, "%s%s", i ? ", " : "", families[i].model_type);
}

static const struct family *family_of(struct making *m)
{
	const char *type = "";

	if (!m->code)
		noted(m, json_get_str(m->st->text, "model_type", "", &type, m->err));
	for (int i = 0; i < FAMILIES && !m->code; i++)
		if (!strcmp(families[i].model_type, type) &&
		    (!families[i].with || making_int(m, families[i].with, 0) > 0))
			return &families[i];
	if (!m->code) {
		struct buf known;

		buf_init(&known);
		folder_families(&known);
		making_fail(m, E_UNSUPPORTED, "model_type %s: GGUF files are written of %s", type, known.p);
		buf_fini(&known);
	}
	return NULL;
}

void making_keys(struct making *m)
{
	static const char *const roots[] = { "", "language_model." };
	const struct family *f = family_of(m);
	char behind[80];

	if (!f)
		return;
	m->arch = gguf_arch_find(f->arch);
	m->settle = f->settle;
	m->delta = f->delta;
	m->inside = !strcmp(f->model_type, "mistral") && m->st->text != m->st->config;
	m->p = (struct pairs){ .g = &m->s->g, .arch = f->arch };
	m->blocks = making_int(m, "num_hidden_layers", INT64_MIN);
	if (store_has(m->st, "mtp.0.e_proj.weight")) /* of several, the first */
		m->drafts = 1;
	if (store_has(m->st, "mtp.fc.weight") || store_has(m->st, "mtp.fc_embedding.weight"))
		m->drafts = making_int(m, "mtp_num_hidden_layers", 1);
	for (int i = 0; i < 2; i++) {
		snprintf(behind, sizeof behind, "model.%slayers.%" PRId64 ".eh_proj.weight", roots[i], m->blocks);
		if (!m->arch->mtp_apart && store_has(m->st, behind))
			m->drafts = making_int(m, "num_nextn_predict_layers", 1);
	}
	if (m->blocks < 1 || m->blocks > 100000 || m->drafts < 0 || m->drafts > 1)
		making_fail(m, E_FORMAT, "%" PRId64 " layers and %" PRId64 " of a draft head", m->blocks, m->drafts);
	if (m->code)
		return;
	pair_text(&m->p, "general.architecture", f->arch, strlen(f->arch));
	pair_text(&m->p, "general.type", "model", 5);
	pair_text(&m->p, "general.name", m->st->name, strlen(m->st->name));
	f->keys(m);
}
