/* plain.c - see plain.h. */
#include "model/plain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/families.h"

enum { MISTRAL_WINDOW = 4096 }; /* MistralConfig's default */

/* MistralConfig's defaults, which a wrapper's config leaves out. */
static const struct decoder_defaults mistral = {
	.vocab = 32000, .ctx = 131072, .heads = 32, .heads_kv = 8, .eps = 1e-6
};

static bool is(const struct plain_plan *p, const char *type)
{
	return !strcmp(p->of->type, type);
}

/* ---- which row ---- */

/* Models that see, whose text part is that of another family. */
static const char *const seeing[][2] = {
	{ "qwen2_vl", "qwen2" },         { "qwen2_5_vl", "qwen2" },   { "qwen3_vl", "qwen3" },
	{ "qwen3_vl_moe", "qwen3_moe" }, { "gemma3", "gemma3_text" }, { "llama4", "llama4_text" },
	{ "llama_bidirec", "llama" },
};

/* Wrappers around a tower and a text model: the kinds of text that are known in one, and what its tower has to be. */
static const struct {
	const char *type, *tower, *known[3];
} wrappers[] = { { "mistral3", NULL, { "ministral3", "mistral" } }, { "llava", "pixtral", { "mistral" } } };

static void check_wrapper(struct conf *c, const struct store *st, const char *kind, const char *type)
{
	for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++) {
		const char *const *known = wrappers[i].known;
		const char *said = json_str(json_get(json_get(st->config, "vision_config"), "model_type"), NULL),
			   *tower = said ? said : "";

		if (strcmp(wrappers[i].type, type))
			continue;
		if (strcmp(kind, known[0]) && !(known[1] && !strcmp(kind, known[1])))
			conf_fail(c, E_UNSUPPORTED, "model_type: \"%.40s\" in a %s is not known; known: %s%s%s", kind,
			          type, known[0], known[1] ? ", " : "", known[1] ? known[1] : "");
		if (wrappers[i].tower && strcmp(tower, wrappers[i].tower))
			c->code = err_set(c->err, E_UNSUPPORTED,
			                  "%s: vision_config.model_type: \"%.40s\" in a %s is not known; known: %s",
			                  st->config_path, tower, type, wrappers[i].tower);
	}
}

/* A wrapper's model says itself which kind it is. */
static void choose_row(struct decoder *d, struct conf *c, struct store *st, struct plain_plan *p)
{
	const char *kind = d->m.arch;

	p->inside = !strcmp(kind, "mistral3") || !strcmp(kind, "llava");
	if (p->inside)
		kind = decoder_kind(d, st);
	for (size_t i = 0; i < sizeof seeing / sizeof *seeing; i++)
		if (!strcmp(kind, seeing[i][0]))
			kind = seeing[i][1];
	check_wrapper(c, st, kind, d->m.arch);
	p->of = plain_find(kind);
	if (!p->of)
		conf_fail(c, E_UNSUPPORTED, "model_type: \"%.40s\" is not a known text model", kind);
}

/* ---- config ---- */

static void read_bias(bool *to, struct conf *c, const char *key)
{
	if (key)
		*to = conf_bool_or(c, key, *to);
}

/* The pattern as a string, "LLLG": letter i mod its length says whether layer i is local. */
static void read_letters(struct decoder *d, struct conf *c, struct plain_plan *p)
{
	const char *letter = json_str(conf_get(c, p->of->every_key), NULL);
	size_t n = letter ? strlen(letter) : 0;

	for (int i = 0; i < d->m.shape.layers && n; i++)
		p->all.local[i] = p->all.window && letter[(size_t)i % n] == 'L';
}

static void read_windows(struct decoder *d, struct conf *c, struct plain_plan *p)
{
	const struct plain *of = p->of;
	int every = of->windows == WINDOWS_EVERY ? of->every : 0;

	if (of->windows == WINDOWS_LISTED && conf_bool_or(c, "use_sliding_window", false))
		conf_fail(c, E_UNSUPPORTED, "use_sliding_window: true is not done by this version");
	if (of->windows == WINDOWS_NONE || (of->windows == WINDOWS_LISTED && !conf_get(c, "layer_types")))
		return;
	if (of->every_key && !conf_get(c, "layer_types") && !json_str(conf_get(c, of->every_key), NULL))
		every = conf_int_or(c, of->every_key,
		                    conf_int_or(c, "_sliding_window_pattern", every, 1, CONF_LAYERS_MAX), 1,
		                    CONF_LAYERS_MAX);
	decoder_windows(d, c, every, &p->all);
	if (of->every_key && !conf_get(c, "layer_types"))
		read_letters(d, c, p);
	if (p->inside && is(p, "mistral") && !c->code && !json_get(c->j, "sliding_window")) {
		p->all.window = MISTRAL_WINDOW;
		for (int i = 0; i < d->m.shape.layers; i++)
			p->all.local[i] = true;
	}
}

static void read_ropes(struct decoder *d, struct conf *c, struct plain_plan *p)
{
	const struct plain *of = p->of;
	struct attn *op = &p->all.attn.op;
	int *ctx = &d->m.shape.ctx_max, local_ctx = *ctx;

	rotary_read_lengths(&op->rope, &d->m.lengths, c, &of->rope, op->dim, ctx, &d->m.vectors);
	p->local = op->rope;
	if (of->local.kind)
		rotary_read(&p->local, c, &of->local, op->dim, &local_ctx, &d->m.vectors);
	op->rope.adjacent = p->local.adjacent = of->attn.op.rope.adjacent;
}

static void read_shared(struct moe_form *m, struct conf *c, const struct plain_experts *k)
{
	if (k->shared_width)
		m->shared_inner = conf_int(c, k->shared_width, 0, CONF_DIM_MAX);
	if (k->shared_count)
		m->shared_inner = conf_int_or(c, k->shared_count, 0, 0, 1 << 10) *
		                  (k->shared_each ? conf_int_or(c, k->shared_each, m->inner, 1, CONF_DIM_MAX) :
		                                    m->inner);
}

static void read_experts(struct decoder *d, struct conf *c, struct plain_plan *p)
{
	const struct plain_experts *k = &p->of->experts;
	struct moe_form *m = &p->all.moe;
	int layers = d->m.shape.layers, first = 0;

	if (!k->count || c->code)
		return;
	p->dense = arena_zalloc(&d->m.arena, (size_t)layers * sizeof *p->dense);
	m->experts = conf_int(c, k->count, 0, 1 << 16);
	if (!m->experts || c->code)
		return;
	m->top_k = conf_int(c, k->used, 1, m->experts);
	m->inner = conf_int(c, k->inner, 1, CONF_DIM_MAX);
	if (m->act.kind == ACT_NONE)
		m->act = p->all.ffn.act;
	if (k->normalise)
		m->normalise = k->normalise_needed ? conf_bool(c, k->normalise) :
		                                     conf_bool_or(c, k->normalise, m->normalise);
	if (k->scale)
		m->scale = (float)conf_double_or(c, k->scale, 1);
	if (k->groups)
		moe_read_groups(m, c, k->groups);
	read_shared(m, c, k);
	if (k->dense_inner)
		p->all.ffn.inner = conf_int_or(c, k->dense_inner, p->all.ffn.inner, 0, CONF_DIM_MAX);
	if (k->dense_first)
		first = conf_int_or(c, k->dense_first, 0, 0, layers);
	for (int i = 0; i < first; i++)
		p->dense[i] = true;
}

static void read_factors(struct conf *c, struct plain_plan *p)
{
	struct attn *op = &p->all.attn.op;

	if (!p->of->factors)
		return;
	op->scale = (float)conf_above_zero_or(c, "attention_multiplier", (double)op->scale);
	p->residual = p->residual_ffn = (float)conf_double_or(c, "residual_multiplier", 1);
}

/* Does every row see its whole text?  Embedders made of models that write say so in one of these ways. */
static bool sees_both_ways(const struct decoder *d, struct conf *c)
{
	return !strcmp(d->m.arch, "llama_bidirec") || conf_bool_or(c, "use_bidirectional_attention", false) ||
	       !conf_bool_or(c, "is_causal", true);
}

/* A window is of both sides then: its half before a row, its half after it. */
static void turn_both_ways(struct attn *op)
{
	op->both_ways = true;
	op->ahead = op->window / 2;
	op->window = op->window ? op->ahead + 1 : 0;
}

/* The form of each layer's attention: its window, and whether and how it rotates. */
static void form_layers(struct decoder *d, struct plain_plan *p)
{
	int layers = d->m.shape.layers;
	bool windows = false;

	for (int i = 0; i < layers; i++)
		windows |= p->all.local[i];
	p->attn = arena_zalloc(&d->m.arena, (size_t)layers * sizeof *p->attn);
	for (int i = 0; i < layers; i++) {
		bool local = p->all.local[i];

		p->attn[i] = decoder_attention(&p->all, i);
		if (local && p->windowed) {
			p->attn[i] = *p->windowed;
			p->attn[i].op.window = p->all.window;
		}
		if (local)
			p->attn[i].op.rope = p->local;
		else if (p->of->rotates == ROTATES_LOCAL || (p->of->rotates == ROTATES_WINDOWED && windows))
			p->attn[i].op.rope.n_freq = 0;
		if (p->rope)
			p->attn[i].op.rope = p->rope[i];
		if (p->upright && p->upright[i] && p->standing)
			p->attn[i] = *p->standing;
		if (p->upright && p->upright[i])
			p->attn[i].op.rope.n_freq = 0;
		if (d->m.shape.whole)
			turn_both_ways(&p->attn[i].op);
	}
}

/* Some layer has a plain block, whose width has to be there. */
static void want_inner(const struct decoder *d, struct conf *c, const struct plain_plan *p)
{
	bool plain = !p->all.moe.experts;
	const char *key = p->of->experts.dense_inner;

	for (int i = 0; i < d->m.shape.layers && p->dense; i++)
		plain |= p->dense[i];
	if (plain && !p->all.ffn.inner && !c->code)
		conf_int(c, key ? key : "intermediate_size", 1, CONF_DIM_MAX);
}

static void read_config(struct decoder *d, struct conf *c, struct plain_plan *p)
{
	const struct plain *of = p->of;

	if (c->code)
		return;
	p->all.attn = of->attn;
	p->all.ffn = of->ffn;
	p->all.moe = of->moe;
	p->layer_norm = of->layer_norm;
	decoder_read(d, c, p->inside && is(p, "mistral") ? &mistral : &of->lack, &p->all);
	if (c->code)
		return;
	read_bias(&p->all.attn.bias_qkv, c, of->bias_qkv);
	read_bias(&p->all.attn.bias_o, c, of->bias_o);
	read_bias(&p->all.ffn.bias, c, of->bias_mlp);
	read_windows(d, c, p);
	read_ropes(d, c, p);
	read_experts(d, c, p);
	read_factors(c, p);
	d->m.shape.whole = sees_both_ways(d, c);
	if (c->code)
		return;
	if (of->more)
		of->more(p, d, c);
	form_layers(d, p);
	want_inner(d, c, p);
}

/* ---- tensors ---- */

/* A gain, or NULL where the row names none. */
static const float *bind_gain(struct binder *b, const struct decoder *d, const struct plain *of, const char *name,
                              int i)
{
	return name ? bind_floats(b, d->m.shape.hidden, of->attn.norm_add, "layers.%d.%s.weight", i, name) : NULL;
}

/* What a LayerNorm adds: its bias, or zeros; NULL for RMS norms. */
static const float *bind_shift(struct binder *b, const struct decoder *d, const struct plain_plan *p, const char *name,
                               int i)
{
	const struct plain *of = p->of;

	if (!p->layer_norm || !name)
		return NULL;
	if (of->layer_norm_bias)
		return bind_floats(b, d->m.shape.hidden, 0, "layers.%d.%s.bias", i, name);
	return d->trunk.norm_bias;
}

static void bind_ffn(struct binder *b, struct decoder *d, const struct plain_plan *p, int i)
{
	struct decoder_layer *y = &d->layer[i];
	struct ffn_form plain = p->all.ffn;
	struct moe_form moe = p->all.moe;

	if (moe.experts && !p->dense[i]) {
		if (p->limit_shared)
			moe.shared_act = ffn_limited(moe.act, p->limit_shared, i);
		moe.act = ffn_limited(moe.act, p->limit, i);
		ffn_bind_moe(b, &y->ffn, d->m.shape.hidden, &moe, i);
		d->m.shape.layers_moe++;
		if (p->residual_moe != 0)
			y->join_ffn.scale = p->residual_moe;
	} else {
		plain.act = ffn_limited(plain.act, p->limit_shared, i);
		ffn_bind_dense(b, &y->ffn, d->m.shape.hidden, &plain, i);
	}
}

static void bind_layer(struct binder *b, struct decoder *d, const struct plain_plan *p, int i)
{
	static const char *const usual[4] = { "input_layernorm", NULL, "post_attention_layernorm", NULL };
	const struct plain *of = p->of;
	const char *const *norm = of->norm[0] || of->norm[1] ? of->norm : usual;
	struct decoder_layer *y = &d->layer[i];
	struct attention_form f = p->attn[i];

	y->norm_attn = bind_gain(b, d, of, norm[0], i);
	y->bias_attn = bind_shift(b, d, p, norm[0], i);
	y->norm_ffn = bind_gain(b, d, of, norm[2], i);
	y->bias_ffn = bind_shift(b, d, p, norm[2], i);
	y->beside = of->beside;
	y->join_attn = (struct join){ bind_gain(b, d, of, norm[1], i), d->eps, p->residual };
	y->join_ffn = (struct join){ bind_gain(b, d, of, norm[3], i), d->eps, p->residual_ffn };
	decoder_bind_attention(b, d, &f, i);
	bind_ffn(b, d, p, i);
}

/* Divides the columns of lm_head by their lengths, which is to divide what it reads: the last norm's gain. */
static void norm_head(struct binder *b, struct trunk *t)
{
	size_t hidden = (size_t)t->hidden;
	double *square = xcalloc(hidden, sizeof *square);
	float *row = xmalloc(hidden * sizeof *row), *gain = bind_table(b, hidden);

	for (int i = 0; i < t->vocab; i++) {
		weight_decode(row, &t->head, i);
		for (size_t j = 0; j < hidden; j++)
			square[j] += (double)row[j] * (double)row[j];
	}
	for (size_t j = 0; j < hidden; j++)
		gain[j] = (float)((double)t->norm[j] / (sqrt(square[j]) + 1e-7));
	t->norm = gain;
	free(row);
	free(square);
}

static void bind_trunk(struct binder *b, struct decoder *d, struct conf *c, const struct plain_plan *p)
{
	const struct plain *of = p->of;
	struct trunk *t = &d->trunk;
	struct trunk_names names = { of->trunk.embed ? of->trunk.embed : "embed_tokens",
		                     of->trunk.norm ? of->trunk.norm : "norm" };
	int hidden = d->m.shape.hidden;
	float *zero;

	trunk_bind_as(b, t, &names, d->m.shape.vocab, hidden, p->all.tied, d->eps, of->attn.norm_add);
	decoder_room(d, &p->all, d->m.shape.layers);
	if (b->code)
		return;
	if (of->layer_norm_bias) {
		t->norm_bias = bind_floats(b, hidden, 0, "norm.bias");
	} else if (p->layer_norm) {
		zero = bind_table(b, (size_t)hidden);
		memset(zero, 0, (size_t)hidden * sizeof *zero);
		t->norm_bias = zero;
	}
	if (of->factors) {
		t->embed_scale = (float)conf_double_or(c, "embedding_multiplier", 1);
		t->logit_scale = (float)(1 / conf_above_zero_or(c, "logits_scaling", 1));
	}
	if (p->embed_scale != 0)
		t->embed_scale = p->embed_scale;
	if (of->logit_scale)
		t->logit_scale = (float)conf_double_or(c, of->logit_scale, (double)of->logit_scale_or);
	t->logit_cap = p->logit_cap;
	if (of->head_bias && conf_bool_or(c, of->head_bias, false))
		trunk_bind_head_bias(b, t);
	if (!b->code && of->head_norm && conf_bool_or(c, of->head_norm, false))
		norm_head(b, t);
}

/* Draft heads have names of their own, or those of layers behind the last. */
static void ignore_heads(struct store *st, const struct plain *of, int layers)
{
	enum { MOST = 8 };
	char at[64];

	if (of->ignore)
		store_ignore(st, of->ignore, "draft head: not read by this version");
	for (int i = layers; i < layers + MOST && of->heads_behind; i++) {
		snprintf(at, sizeof at, "model.layers.%d.", i);
		store_ignore(st, at, "draft head: not read by this version");
	}
}

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct decoder *d = (struct decoder *)m;
	struct binder b = { .st = st, .m = m, .err = err };
	struct conf c = decoder_conf(st, err);
	struct plain_plan p = { 0 };

	choose_row(d, &c, st, &p);
	read_config(d, &c, &p);
	if (c.code)
		return c.code;
	bind_trunk(&b, d, &c, &p);
	for (int i = 0; i < m->shape.layers && !b.code; i++)
		bind_layer(&b, d, &p, i);
	/* Vectors of earlier blocks of the tower, of which each row of an image brings as many. */
	m->shape.deep = (int)json_len(json_get(json_get(st->config, "vision_config"), "deepstack_visual_indexes"));
	if (!b.code)
		decoder_ignore(st);
	if (!b.code)
		ignore_heads(st, p.of, m->shape.layers);
	return b.code ? b.code : c.code;
}

const struct model_ops plain_ops = {
	.arch = plain_arch,
	.size = sizeof(struct decoder),
	.bind = bind,
	.forward = decoder_forward,
	.work_floats = decoder_work_floats,
};
