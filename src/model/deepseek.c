/* deepseek.c - DeepSeek-V3 and R1, Kimi-K2 and the text of K2.5, GLM-4.7-Flash (glm4_moe_lite), Mistral Small 4: latent attention and
 * mixtures.  DeepSeek-V3.2 and GLM-5 (glm_moe_dsa): the same, and indexers choose what rows see.
 *
 *     h = E[token];  per layer:  h += mla(rms(h));  h += ffn(rms(h));  logits = rms(h) lm_head'
 *
 * The mixture scores by sigmoids, chooses with a bias and in groups (a rejected group scores 0, as in
 * Hugging Face's code), and has an expert for all rows. */
#include <math.h>
#include <string.h>

#include "model/decoder.h"
#include "model/families.h"
#include "model/mla.h"
#include "model/mtp.h"

struct plan {
	struct mla_form attn;
	struct ffn_form ffn;
	struct moe_form moe;
	int dense, every;                        /* first layers without experts; of the others every such has */
	bool listed, plain[CONF_LAYERS_MAX + 1]; /* listed: plain says which layers have no experts */
	bool tied;
	struct indexer_form index;
	bool indexed, chooses[CONF_LAYERS_MAX + 1]; /* indexed: layers that choose; others follow */
};

static void read_moe(struct conf *c, struct plan *p)
{
	moe_read_noaux(&p->moe, c, p->ffn.act);
	p->dense = conf_int_or(c, "first_k_dense_replace", 0, 0, CONF_LAYERS_MAX);
	p->every = conf_int_or(c, "moe_layer_freq", 1, 1, CONF_LAYERS_MAX);
}

/* Mistral Small 4 scores by a softmax, without a bias of the choice, and its scores have no factor of yarn's: the makers'
 * own parameters say apply_scale false. */
static void change_mistral4(struct plan *p)
{
	p->moe.route = ROUTE_SOFTMAX;
	p->moe.select_bias = NULL;
	p->moe.groups_strict = true;
	p->attn.scale = (float)(1 / sqrt((double)(p->attn.nope + p->attn.rope)));
}

/* Which layers have an indexer: a list of names, letters F and S, or each n-th layer says so. */
static void read_choosers(struct conf *c, struct plan *p, int layers)
{
	const char *word = conf_str_or(c, "index_topk_pattern", NULL);
	int every = conf_int_or(c, "index_topk_freq", 1, 1, CONF_LAYERS_MAX);
	int offset = conf_int_or(c, "index_skip_topk_offset", 2, 0, CONF_LAYERS_MAX);

	if (!conf_layer_types(c, "indexer_types", layers, "full", "shared", p->chooses)) {
		if (word && (strspn(word, "FS") != strlen(word) || strlen(word) != (size_t)layers))
			conf_fail(c, E_FORMAT, "index_topk_pattern: \"%.40s\" is not %d letters F and S", word, layers);
		for (int i = 0; i < layers && !c->code; i++)
			p->chooses[i] = word ? word[i] == 'F' : i < offset || (i - offset + 1) % every == 0;
	}
	if (!c->code && !p->chooses[0])
		conf_fail(c, E_FORMAT, "indexer_types: layer 0 shares a choice, and there is none before it");
}

static void read_indexers(struct stack *s, struct conf *c, struct plan *p)
{
	bool glm = !strcmp(s->m.arch, "glm_moe_dsa");

	p->indexed = glm || !strcmp(s->m.arch, "deepseek_v32");
	if (!p->indexed || c->code)
		return;
	p->index.hidden = s->m.shape.hidden;
	p->index.q_lora = p->attn.q_lora;
	if (!p->attn.q_lora)
		conf_fail(c, E_UNSUPPORTED, "q_lora_rank: 0, and an indexer reads that rank");
	indexer_read(&p->index, c, &p->attn.turn, p->attn.rope, glm);
	read_choosers(c, p, s->m.shape.layers);
}

static void read_config(struct stack *s, struct conf *c, struct plan *p)
{
	stack_read(s, c);
	s->trunk.eps = (float)conf_double(c, "rms_norm_eps");
	p->tied = conf_bool_or(c, "tie_word_embeddings", false);
	p->ffn = (struct ffn_form){ .inner = conf_int(c, "intermediate_size", 1, CONF_DIM_MAX),
		                    .act = ffn_read_act(c, ACT_NONE) };
	mla_read(&p->attn, s, c, false);
	read_moe(c, p);
	p->listed = conf_layer_types(c, "mlp_layer_types", s->m.shape.layers, "dense", "sparse", p->plain);
	read_indexers(s, c, p);
	if (!strcmp(s->m.arch, "mistral4"))
		change_mistral4(p);
}

/* i may be a draft head's layer, which is behind the lists. */
static bool has_experts(const struct plan *p, int i)
{
	return p->listed ? !p->plain[i] : i >= p->dense && i % p->every == 0;
}

static void bind_layer(struct stack *s, struct binder *b, const struct plan *p, int i)
{
	int hidden = s->m.shape.hidden;
	struct mla_form attn = p->attn;

	attn.index = p->indexed ? &p->index : NULL;
	attn.follows = !p->chooses[i];
	stack_add_mla(s, b, &attn, bind_floats(b, hidden, 0, "layers.%d.input_layernorm.weight", i), i);
	if (has_experts(p, i))
		stack_add_moe(s, b, &p->moe, bind_floats(b, hidden, 0, "layers.%d.post_attention_layernorm.weight", i),
		              i);
	else
		stack_add_ffn(s, b, &p->ffn, bind_floats(b, hidden, 0, "layers.%d.post_attention_layernorm.weight", i),
		              i);
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct stack *s = (struct stack *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct plan p = { 0 };

	read_config(s, &c, &p);
	if (c.code)
		return c.code;
	stack_init(s, &b, 2 * m->shape.layers, NULL, p.tied);
	for (int i = 0; i < m->shape.layers && !b.code; i++) {
		bind_layer(s, &b, &p, i);
		stack_end_layer(s, i);
	}
	if (!b.code && st->text != st->config) {
		decoder_ignore(st);
		store_ignore(st, "mm_projector.", "vision tower: not read by this version");
	}
	if (!b.code)
		mtp_ignore_behind(&b, conf_int_or(&c, "num_nextn_predict_layers", 0, 0, 64));
	return b.code ? b.code : c.code;
}

static int bind_head(struct model *m, const struct model *of, struct store *st, struct err *err)
{
	struct stack *s = (struct stack *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct plan p = { 0 };
	int layer;

	read_config(s, &c, &p);
	if (c.code)
		return c.code;
	p.attn.first = p.index.first = 1;
	layer = mtp_bind(&b, &s->trunk, of, &mtp_behind, 1);
	p.plain[layer] = false;
	p.chooses[layer] = true;
	stack_room(s, 2);
	bind_layer(s, &b, &p, layer);
	return b.code;
}

static const char *const arch[] = { "deepseek_v3", "kimi_k2",      "kimi_k25",    "glm4_moe_lite",
	                            "mistral4",    "deepseek_v32", "glm_moe_dsa", NULL };

const struct model_ops deepseek_ops = {
	.arch = arch,
	.size = sizeof(struct stack),
	.bind = bind,
	.forward = stack_forward,
	.work_floats = stack_work_floats,
	.bind_head = bind_head,
};
