/* v4_spelling.c - see v4_spelling.h. */
#include "store/hf/v4_spelling.h"

#include <string.h>

#include "base/json.h"

/* ---- names ---- */

struct spelling {
	const char *from, *to;
};

/* Beginnings of names, which end at a full stop or with the name.  The first that matches counts. */
static const struct spelling top[] = {
	{ "embed_tokens", "embed" },
	{ "lm_head", "head" },
	{ "hc_head.hc_fn", "hc_head_fn" },
	{ "hc_head.hc_base", "hc_head_base" },
	{ "hc_head.hc_scale", "hc_head_scale" },
	{ "hc_head.fn", "hc_head_fn" },
	{ "hc_head.base", "hc_head_base" },
	{ "hc_head.scale", "hc_head_scale" },
	{ "norm", "norm" },
	{ "embed", "embed" },
	{ "head", "head" },
	{ NULL, NULL },
};

/* Beginnings of what follows "layers.N." in a name. */
static const struct spelling layer[] = {
	{ "input_layernorm", "attn_norm" },
	{ "post_attention_layernorm", "ffn_norm" },
	{ "attn_hc.fn", "hc_attn_fn" },
	{ "attn_hc.base", "hc_attn_base" },
	{ "attn_hc.scale", "hc_attn_scale" },
	{ "ffn_hc.fn", "hc_ffn_fn" },
	{ "ffn_hc.base", "hc_ffn_base" },
	{ "ffn_hc.scale", "hc_ffn_scale" },
	{ "self_attn.q_a_proj", "attn.wq_a" },
	{ "self_attn.q_a_norm", "attn.q_norm" },
	{ "self_attn.q_b_proj", "attn.wq_b" },
	{ "self_attn.kv_proj", "attn.wkv" },
	{ "self_attn.kv_norm", "attn.kv_norm" },
	{ "self_attn.o_a_proj", "attn.wo_a" },
	{ "self_attn.o_b_proj", "attn.wo_b" },
	{ "self_attn.sinks", "attn.attn_sink" },
	{ "self_attn.compressor.kv_proj", "attn.compressor.wkv" },
	{ "self_attn.compressor.gate_proj", "attn.compressor.wgate" },
	{ "self_attn.compressor.position_bias", "attn.compressor.ape" },
	{ "self_attn.compressor.kv_norm", "attn.compressor.norm" },
	{ "self_attn.compressor.indexer.kv_proj", "attn.indexer.compressor.wkv" },
	{ "self_attn.compressor.indexer.gate_proj", "attn.indexer.compressor.wgate" },
	{ "self_attn.compressor.indexer.position_bias", "attn.indexer.compressor.ape" },
	{ "self_attn.compressor.indexer.kv_norm", "attn.indexer.compressor.norm" },
	{ "self_attn.compressor.indexer.q_b_proj", "attn.indexer.wq_b" },
	{ "self_attn.compressor.indexer.weights_proj", "attn.indexer.weights_proj" },
	{ "self_attn.compressor.indexer.scorer.weights_proj", "attn.indexer.weights_proj" },
	{ "mlp.gate.e_score_correction_bias", "ffn.gate.bias" },
	{ "ffn.gate.e_score_correction_bias", "ffn.gate.bias" },
	{ "mlp.gate", "ffn.gate" },
	{ "mlp.shared_experts.gate_proj", "ffn.shared_experts.w1" },
	{ "mlp.shared_experts.up_proj", "ffn.shared_experts.w3" },
	{ "mlp.shared_experts.down_proj", "ffn.shared_experts.w2" },
	{ "ffn.shared_experts.gate_proj", "ffn.shared_experts.w1" },
	{ "ffn.shared_experts.up_proj", "ffn.shared_experts.w3" },
	{ "ffn.shared_experts.down_proj", "ffn.shared_experts.w2" },
	{ "mlp.experts", "ffn.experts" },
	{ NULL, NULL },
};

static const struct spelling *find(const struct spelling *table, const char *name)
{
	for (; table->from; table++) {
		size_t n = strlen(table->from);

		if (!strncmp(name, table->from, n) && (!name[n] || name[n] == '.'))
			return table;
	}
	return NULL;
}

/* The name, or the path of a module, as DeepSeek has it. */
static void spell(const char *name, struct buf *out)
{
	const char *at = name, *rest;
	const struct spelling *s;

	if (!strncmp(at, "language_model.", 15))
		at += 15;
	if (!strncmp(at, "model.", 6))
		at += 6;
	if (!strncmp(at, "layers.", 7)) {
		rest = at + 7 + strspn(at + 7, "0123456789");
		rest += *rest == '.';
		s = find(layer, rest);
		buf_put(out, at, (size_t)(rest - at));
		at = rest;
	} else if (!(s = find(top, at))) {
		at = name;
	}
	buf_puts(out, s ? s->to : "");
	buf_puts(out, at + (s ? strlen(s->from) : 0));
}

/* Outputs of groups in axes of their own, as mlx-vlm has them, are rows like the others. */
static void join_groups(struct tensor *t)
{
	if (t->n_dim != 3 || !strstr(t->name, ".attn.wo_a."))
		return;
	t->dim[0] *= t->dim[1];
	t->dim[1] = t->dim[2];
	t->n_dim = 2;
}

bool v4_spell_tensors(struct tensor **v, size_t n, struct arena *a)
{
	bool changed = false;
	struct buf b;

	buf_init(&b);
	for (size_t i = 0; i < n; i++) {
		buf_reset(&b);
		spell(v[i]->name, &b);
		if (b.n != strlen(v[i]->name) || memcmp(b.p, v[i]->name, b.n) != 0) {
			v[i]->name = arena_strndup(a, b.p, b.n);
			changed = true;
		}
		join_groups(v[i]);
	}
	buf_fini(&b);
	return changed;
}

/* ---- the config ---- */

/* How matrices are coded: the keys that are paths are spelled. */
static struct json *coding_of(const struct json *coding)
{
	struct json_cursor c = json_first(coding);
	struct json *out = json_new_object();
	const struct json *value;
	const char *path;
	struct buf name;

	buf_init(&name);
	while (json_next(&c, &path, &value)) {
		buf_reset(&name);
		spell(path, &name);
		json_set(out, name.p, json_share(value));
	}
	buf_fini(&name);
	return out;
}

static int set_ratios(struct json *out, const struct json *config, struct err *err)
{
	static const struct {
		const char *type;
		int64_t every;
	} known[] = { { "sliding_attention", 0 },
		      { "compressed_sparse_attention", 4 },
		      { "heavily_compressed_attention", 128 } };
	const struct json *types = json_get(config, "layer_types"), *rates = json_get(config, "compress_rates");
	struct json *list = json_new_array();

	json_set(out, "compress_ratios", list);
	for (size_t i = 0; i < json_len(types); i++) {
		const char *type = json_str(json_at(types, i), NULL);
		size_t k = 0;
		int64_t every;

		while (k < 3 && (!type || strcmp(type, known[k].type)))
			k++;
		if (k == 3)
			return err_set(err, E_FORMAT,
			               "layer_types: entry %zu is \"%.60s\", not sliding_attention, "
			               "compressed_sparse_attention or heavily_compressed_attention",
			               i, type ? type : json_kind_name(json_kind(json_at(types, i))));
		every = known[k].every;
		if (json_get(rates, type) && json_to_int(json_get(rates, type), &every))
			return err_set(err, E_FORMAT, "compress_rates: %s is not a number", type);
		json_add(list, json_new_int(every));
	}
	return 0;
}

static int set_hashed(struct json *out, const struct json *types, struct err *err)
{
	size_t n = 0;

	for (size_t i = 0; i < json_len(types); i++) {
		const char *type = json_str(json_at(types, i), NULL);
		bool hashed = type && !strcmp(type, "hash_moe");

		if (!hashed && (!type || strcmp(type, "moe")))
			return err_set(err, E_FORMAT, "mlp_layer_types: entry %zu is \"%.60s\", not hash_moe or moe", i,
			               type ? type : json_kind_name(json_kind(json_at(types, i))));
		if (hashed && n < i)
			return err_set(err, E_FORMAT, "mlp_layer_types: entry %zu is hash_moe behind moe", i);
		n += hashed;
	}
	json_set(out, "num_hash_layers", json_new_int((int64_t)n));
	return 0;
}

/* transformers has the rotations of both kinds of layers in one object. */
static void set_rotations(struct json *out, const struct json *config, const struct json *both)
{
	static const char *const apart[] = { "rope_theta", "partial_rotary_factor", "attention_factor" };
	const struct json *near = json_get(json_get(both, "main"), "rope_theta"), *far = json_get(both, "compress");
	struct json *scaling;

	if (near && !json_get(config, "rope_theta"))
		json_set(out, "rope_theta", json_share(near));
	if (json_get(far, "rope_theta") && !json_get(config, "compress_rope_theta"))
		json_set(out, "compress_rope_theta", json_share(json_get(far, "rope_theta")));
	if (json_get(config, "rope_scaling"))
		return;
	scaling = json_copy(far);
	for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
		json_drop(scaling, apart[i]);
	json_set(out, "rope_scaling", scaling);
}

/* Changes out, a copy of config. */
static int translate(const struct json *config, struct json *out, struct err *err)
{
	const struct json *both = json_get(config, "rope_parameters"), *value;
	bool rotations = json_kind(json_get(both, "compress")) == JSON_OBJECT;
	struct json_cursor c = json_first(config);
	double dim = 0, part = 0.125;
	const char *key;
	int code = 0;

	while (json_next(&c, &key, &value))
		if (!strncmp(key, "quantization", 12) && json_kind(value) == JSON_OBJECT)
			json_set(out, key, coding_of(value));
	if (rotations)
		json_drop(out, "rope_parameters");
	if (!json_get(config, "compress_ratios") && json_get(config, "layer_types"))
		code = set_ratios(out, config, err);
	if (!code && !json_get(config, "num_hash_layers") && json_get(config, "mlp_layer_types"))
		code = set_hashed(out, json_get(config, "mlp_layer_types"), err);
	if (!json_get(config, "qk_rope_head_dim") && !json_to_double(json_get(config, "head_dim"), &dim) && dim > 0 &&
	    dim < 1 << 20) {
		json_to_double(json_get(config, "partial_rotary_factor"), &part);
		json_set(out, "qk_rope_head_dim", json_new_int(part > 0 && part <= 1 ? (int)(dim * part) : 0));
	}
	if (rotations)
		set_rotations(out, config, both);
	return code;
}

/* Has the config members that DeepSeek does not write, or does it lack some that DeepSeek writes? */
static bool differs(const struct json *config)
{
	static const char *const own[] = { "compress_ratios", "num_hash_layers", "qk_rope_head_dim" };

	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		if (!json_get(config, own[i]))
			return true;
	return json_get(config, "quantization") || json_get(json_get(config, "rope_parameters"), "compress");
}

int v4_spell_config(struct buf *text, bool *v4, struct err *err)
{
	struct json *config = json_parse_python(text->p, text->n, 0, NULL), *out;
	const char *type = json_str(json_get(config, "model_type"), NULL);
	int code = 0;

	*v4 = type && !strcmp(type, "deepseek_v4");
	if (*v4 && differs(config)) {
		out = json_copy(config);
		if (!(code = translate(config, out, err))) {
			buf_reset(text);
			json_put(text, out);
		}
		json_free(out);
	}
	json_free(config);
	return code;
}
