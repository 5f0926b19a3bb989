/* llama.c - plain transformers: llama, mistral, ministral3, qwen2, qwen2_moe, qwen3, qwen3_moe, smollm3, phi3, granite.
 *
 *     h = a E[token]
 *     per layer:  h += r attention(rms(h));  h += r ffn(rms(h))
 *     logits = b rms(h) lm_head'
 *
 * They differ in biases (qwen2), norms of queries and keys (qwen3), the feed-forward block (the mixtures), a window in all
 * layers (mistral, phi3), layers that do not rotate (smollm3), fused matrices (phi3), queries that grow with their
 * position (ministral3), and the factors a, r, b (granite), which are 1 elsewhere. */
#include <string.h>

#include "model/decoder.h"
#include "model/families.h"

struct plan {
	struct decoder_plan all;
	const char *kind;
	int sparse_step;
	bool *dense;   /* [layers] by mlp_only_layers; NULL: no mixture */
	bool *upright; /* [layers] that do not rotate; NULL: all rotate */
	float residual;
	bool inside; /* the config is that of a model inside of a wrapper, which leaves out what is MistralConfig's default */
};

enum { MISTRAL_WINDOW = 4096 }; /* MistralConfig's default */

static bool is(const struct plan *p, const char *kind)
{
	return !strcmp(p->kind, kind);
}

static void read_moe(struct decoder *d, struct conf *c, struct plan *p)
{
	struct moe_form *m = &p->all.moe;
	int layers = d->m.shape.layers;

	m->experts = conf_int(c, "num_experts", 0, 1 << 16);
	p->sparse_step = conf_int_or(c, "decoder_sparse_step", 1, 1, CONF_LAYERS_MAX);
	if (!m->experts || c->code)
		return;
	m->act = p->all.ffn.act;
	m->top_k = conf_int(c, "num_experts_per_tok", 1, m->experts);
	m->inner = conf_int(c, "moe_intermediate_size", 1, CONF_DIM_MAX);
	if (is(p, "qwen2_moe")) {
		m->shared_inner = conf_int(c, "shared_expert_intermediate_size", 0, CONF_DIM_MAX);
		m->normalise = conf_bool_or(c, "norm_topk_prob", false);
	} else {
		m->normalise = conf_bool(c, "norm_topk_prob");
	}
	p->dense = arena_zalloc(&d->m.arena, (size_t)layers * sizeof *p->dense);
	conf_layers_named(c, "mlp_only_layers", 0, layers, p->dense);
}

/* smollm3: no_rope_layers has a 1 for each layer that rotates; without it every fourth does not. */
static void read_upright(struct decoder *d, struct conf *c, struct plan *p)
{
	const struct json *list = conf_get(c, "no_rope_layers");
	int layers = d->m.shape.layers, every = conf_int_or(c, "no_rope_layer_interval", 4, 1, CONF_LAYERS_MAX);

	p->upright = arena_zalloc(&d->m.arena, (size_t)layers * sizeof *p->upright);
	if (list && json_len(list) != (size_t)layers)
		conf_fail(c, E_FORMAT, "no_rope_layers: has %zu entries, num_hidden_layers is %d", json_len(list),
		          layers);
	for (int i = 0; i < layers && !c->code; i++) {
		int64_t rotates = (i + 1) % every != 0;

		if (list && json_to_int(json_at(list, (size_t)i), &rotates))
			conf_fail(c, E_FORMAT, "no_rope_layers: entry %d is no number", i);
		p->upright[i] = !rotates;
	}
}

/* Queries of positions beyond the context that a model was first trained with grow by their logarithm. */
static void read_bend(struct conf *c, struct attn *op)
{
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

static void read_windows(struct decoder *d, struct conf *c, struct plan *p)
{
	if (is(p, "mistral") || is(p, "phi3")) {
		decoder_windows(d, c, 0, &p->all);
		if (p->inside && is(p, "mistral") && !c->code && !json_get(c->j, "sliding_window")) {
			p->all.window = MISTRAL_WINDOW;
			for (int i = 0; i < d->m.shape.layers; i++)
				p->all.local[i] = true;
		}
		return;
	}
	if (conf_bool_or(c, "use_sliding_window", false))
		conf_fail(c, E_UNSUPPORTED, "use_sliding_window: true is not done by this version");
	/* Where a list names local layers they are; sliding_window without one is a leftover. */
	if (conf_get(c, "layer_types"))
		decoder_windows(d, c, 0, &p->all);
}

static void read_config(struct decoder *d, struct conf *c, struct plan *p)
{
	bool llama = is(p, "llama"), qwen2 = is(p, "qwen2") || is(p, "qwen2_moe");
	/* Llama 1 and 2 predate the key rope_theta. */
	struct rotary_defaults r = { .theta = llama || is(p, "mistral") || is(p, "phi3") ? 10000 : 0, .partial = 1 };
	static const struct decoder_defaults mistral = {
		.vocab = 32000, .ctx = 131072, .heads = 32, .heads_kv = 8, .eps = 1e-6
	};
	struct attention_form *a = &p->all.attn;

	decoder_read(d, c,
	             p->inside && is(p, "mistral") ? &mistral : &(struct decoder_defaults){ .tied = is(p, "smollm3") },
	             &p->all);
	if (c->code)
		return;
	p->all.ffn.bias = (llama || is(p, "granite") || is(p, "smollm3")) && conf_bool_or(c, "mlp_bias", false);
	a->bias_qkv = qwen2 || conf_bool_or(c, "attention_bias", false);
	a->bias_o = !qwen2 && a->bias_qkv;
	a->norms = is(p, "qwen3") || is(p, "qwen3_moe");
	a->fused = p->all.ffn.fused = is(p, "phi3");
	read_windows(d, c, p);
	rotary_read(&a->op.rope, c, &r, a->op.dim, &d->m.shape.ctx_max, &d->m.vectors);
	if (is(p, "qwen3_moe") || is(p, "qwen2_moe"))
		read_moe(d, c, p);
	if (is(p, "smollm3"))
		read_upright(d, c, p);
	if (is(p, "ministral3"))
		read_bend(c, &a->op);
	if (is(p, "granite")) {
		a->op.scale = (float)conf_above_zero_or(c, "attention_multiplier", (double)a->op.scale);
		p->residual = (float)conf_double_or(c, "residual_multiplier", 1);
	}
	if (!p->all.ffn.inner && !p->all.moe.experts)
		conf_int(c, "intermediate_size", 1, CONF_DIM_MAX);
}

static void bind_layer(struct binder *b, struct decoder *d, const struct plan *p, int i)
{
	struct decoder_plan of = p->all;

	if (p->upright && p->upright[i])
		of.attn.op.rope.n_freq = 0;
	decoder_bind_layer(b, d, &of, i, p->dense && (p->dense[i] || (i + 1) % p->sparse_step != 0));
	d->layer[i].join_attn.scale = d->layer[i].join_ffn.scale = p->residual;
}

/* Models that see, whose text part is that of another family. */
static const char *const seeing[][2] = {
	{ "qwen2_vl", "qwen2" }, { "qwen2_5_vl", "qwen2" }, { "qwen3_vl", "qwen3" }, { "qwen3_vl_moe", "qwen3_moe" }
};

/* Wrappers around a tower and a text model: the kinds of text that are known in one, and what its tower has to be. */
static const struct {
	const char *type, *tower, *known[3];
} wrappers[] = { { "mistral3", NULL, { "ministral3", "mistral" } }, { "llava", "pixtral", { "mistral" } } };

static void check_wrapper(struct conf *c, const struct store *st, const struct plan *p, const char *type)
{
	for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++) {
		const char *const *known = wrappers[i].known;
		const char *said = json_str(json_get(json_get(st->config, "vision_config"), "model_type"), NULL),
			   *tower = said ? said : "";

		if (strcmp(wrappers[i].type, type))
			continue;
		if (!is(p, known[0]) && !(known[1] && is(p, known[1])))
			conf_fail(c, E_UNSUPPORTED, "model_type: \"%.40s\" in a %s is not known; known: %s%s%s",
			          p->kind, type, known[0], known[1] ? ", " : "", known[1] ? known[1] : "");
		if (wrappers[i].tower && strcmp(tower, wrappers[i].tower))
			c->code = err_set(c->err, E_UNSUPPORTED,
			                  "%s: vision_config.model_type: \"%.40s\" in a %s is not known; known: %s",
			                  st->config_path, tower, type, wrappers[i].tower);
	}
}

/* A wrapper's model says itself which kind it is. */
static void choose_kind(struct decoder *d, struct conf *c, struct store *st, struct plan *p)
{
	p->inside = !strcmp(d->m.arch, "mistral3") || !strcmp(d->m.arch, "llava");
	p->kind = p->inside ? decoder_kind(d, st) : d->m.arch;
	for (size_t i = 0; i < sizeof seeing / sizeof *seeing; i++)
		if (is(p, seeing[i][0]))
			p->kind = seeing[i][1];
	check_wrapper(c, st, p, d->m.arch);
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct decoder *d = (struct decoder *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct plan p = { 0 };

	choose_kind(d, &c, st, &p);
	read_config(d, &c, &p);
	if (c.code)
		return c.code;
	decoder_bind(&b, d, &p.all, 0);
	if (is(&p, "granite")) {
		d->trunk.embed_scale = (float)conf_double_or(&c, "embedding_multiplier", 1);
		d->trunk.logit_scale = (float)(1 / conf_above_zero_or(&c, "logits_scaling", 1));
	}
	for (int i = 0; i < m->shape.layers && !b.code; i++)
		bind_layer(&b, d, &p, i);
	/* Vectors of earlier blocks of the tower, of which each row of an image brings as many. */
	m->shape.deep = (int)json_len(json_get(json_get(st->config, "vision_config"), "deepstack_visual_indexes"));
	if (!b.code && (st->text != st->config || json_get(st->config, "vision_config")))
		decoder_ignore(st);
	return b.code ? b.code : c.code;
}

static const char *const arch[] = {
	"llama", "mistral", "ministral3", "mistral3",   "qwen2",    "qwen2_moe",    "qwen3", "qwen3_moe", "smollm3",
	"phi3",  "granite", "qwen2_vl",   "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "llava", NULL,
};

const struct model_ops llama_ops = {
	.arch = arch,
	.size = sizeof(struct decoder),
	.bind = bind,
	.forward = decoder_forward,
	.work_floats = decoder_work_floats,
};
