/* ffn.c - see ffn.h. */
#include "model/ffn.h"

#include <math.h>
#include <string.h>

#include "model/work.h"

struct activation ffn_read_act(struct conf *c, enum act absent)
{
	const char *key = conf_get(c, "hidden_activation") ? "hidden_activation" : "hidden_act";
	const char *name = conf_str_or(c, key, "silu");

	if (!conf_get(c, key) && absent != ACT_NONE)
		return (struct activation){ .kind = absent };
	if (!strcmp(name, "silu") || !strcmp(name, "swish"))
		return (struct activation){ .kind = ACT_SILU };
	if (!strcmp(name, "gelu_pytorch_tanh") || !strcmp(name, "gelu_new") || !strcmp(name, "gelu_fast"))
		return (struct activation){ .kind = ACT_GELU_TANH };
	if (!strcmp(name, "relu2"))
		return (struct activation){ .kind = ACT_RELU2 };
	if (!strcmp(name, "xielu"))
		return (struct activation){ .kind = ACT_XIELU };
	conf_fail(c, E_UNSUPPORTED, "%s: \"%.40s\" is not done; only silu, gelu_pytorch_tanh, relu2 and xielu", key,
	          name);
	return (struct activation){ .kind = ACT_SILU };
}

const struct json *ffn_read_limits(struct conf *c, const char *key, int layers)
{
	const struct json *list = conf_list(c, key);
	double limit;

	if (list && json_len(list) < (size_t)layers)
		conf_fail(c, E_FORMAT, "%s: has %zu entries, num_hidden_layers is %d", key, json_len(list), layers);
	for (size_t i = 0; i < json_len(list); i++) {
		const struct json *entry = json_at(list, i);

		if (json_kind(entry) != JSON_NULL && (json_to_double(entry, &limit) || !(limit >= 0)))
			conf_fail(c, E_FORMAT, "%s: entry %zu is %.40s, not a limit", key, i, conf_entry(entry));
	}
	return list;
}

struct activation ffn_limited(struct activation act, const struct json *list, int i)
{
	double limit;

	if (json_to_double(json_at(list, (size_t)i), &limit) || !(limit > 0))
		return act;
	return (struct activation){ .kind = ACT_LIMITED, .limit = (float)limit };
}

void moe_read_groups(struct moe_form *m, struct conf *c, const char *key)
{
	int each;

	m->groups = conf_int_or(c, key, 1, 1, m->experts);
	m->groups_used = conf_int_or(c, "topk_group", 1, 1, m->groups);
	if (c->code || m->groups == 1)
		return;
	each = m->experts / m->groups;
	if (m->experts % m->groups || each < 2)
		conf_fail(c, E_FORMAT, "%s: %d does not cut %d experts into groups of two and more", key, m->groups,
		          m->experts);
	else if (m->top_k > each * m->groups_used)
		conf_fail(c, E_FORMAT, "topk_group: %d groups of %d experts have no %d to choose", m->groups_used, each,
		          m->top_k);
}

void moe_read_noaux(struct moe_form *m, struct conf *c, struct activation act)
{
	m->experts = conf_int(c, "n_routed_experts", 1, 1 << 16);
	m->top_k = conf_int(c, "num_experts_per_tok", 1, m->experts);
	m->inner = conf_int(c, "moe_intermediate_size", 1, CONF_DIM_MAX);
	m->shared_inner = m->inner * conf_int_or(c, "n_shared_experts", 0, 0, 64);
	m->normalise = conf_bool_or(c, "norm_topk_prob", true);
	moe_read_groups(m, c, "n_group");
	m->scale = (float)conf_double_or(c, "routed_scaling_factor", 1);
	m->norm_eps = 1e-20f;
	m->route = ROUTE_SIGMOID;
	m->act = act;
	m->shared_plain = true;
	m->shared = "shared_experts";
	m->select_bias = "gate.e_score_correction_bias";
	if (strcmp(conf_str_or(c, "topk_method", "noaux_tc"), "noaux_tc"))
		conf_fail(c, E_UNSUPPORTED, "topk_method: only noaux_tc is done");
	if (strcmp(conf_str_or(c, "scoring_func", "sigmoid"), "sigmoid"))
		conf_fail(c, E_UNSUPPORTED, "scoring_func: only sigmoid is done");
}

static void bind_gate_up(struct binder *b, struct ffn *f, const struct ffn_form *m, const char *at,
                         const char *const proj[3], int layer)
{
	struct weight both;

	if (m->fused) {
		bind_weight(b, &both, 2 * m->inner, f->hidden, "layers.%d.%s.gate_up_proj", layer, at);
		if (b->code)
			return;
		f->gate = weight_rows(&both, 0, m->inner);
		f->up = weight_rows(&both, m->inner, m->inner);
		return;
	}
	if (!m->gateless)
		bind_weight(b, &f->gate, m->inner, f->hidden, "layers.%d.%s.%s", layer, at, proj[0]);
	bind_weight(b, &f->up, m->inner, f->hidden, "layers.%d.%s.%s", layer, at, proj[1]);
}

/* The two alphas of xIELU come out of a softplus; beta is part of the second. */
static void bind_xielu(struct binder *b, struct activation *act, const struct ffn_form *m, const char *at, int layer)
{
	static const char *const names[4] = { "alpha_p", "alpha_n", "beta", "eps" };
	float v[4] = { 0 };

	for (int i = 0; i < 4; i++) {
		const float *t = m->xielu ? &m->xielu[layer][i] :
		                            bind_floats(b, 1, 0, "layers.%d.%s.act_fn.%s", layer, at, names[i]);

		if (b->code)
			return;
		v[i] = *t;
	}
	/* Numbers between eps and 0 count as eps, which is less than a rounding of the products makes. */
	if (!(v[3] <= 0 && v[3] >= -1e-5f))
		b->code = err_set(b->err, E_UNSUPPORTED, "%s: layer %d: xIELU's eps is %g; from -1e-5 to 0 is done",
		                  b->st->dir, layer, (double)v[3]);
	act->alpha = (float)log1p(exp((double)v[0]));
	act->limit = (float)((double)v[2] + log1p(exp((double)v[1])));
	act->beta = v[2];
}

void ffn_bind_dense(struct binder *b, struct ffn *f, int hidden, const struct ffn_form *m, int layer)
{
	static const char *const usual[3] = { "gate_proj", "up_proj", "down_proj" };
	const char *const *proj = m->proj[0] ? m->proj : usual, *at = m->at ? m->at : "mlp";

	f->hidden = hidden;
	f->act = m->act;
	if (m->act.kind == ACT_XIELU)
		bind_xielu(b, &f->act, m, at, layer);
	bind_gate_up(b, f, m, at, proj, layer);
	bind_weight(b, &f->down, hidden, m->inner, "layers.%d.%s.%s", layer, at, proj[2]);
	if (!m->bias)
		return;
	if (!m->gateless)
		f->bias_gate = bind_floats(b, m->inner, 0, "layers.%d.%s.%s.bias", layer, at, proj[0]);
	f->bias_up = bind_floats(b, m->inner, 0, "layers.%d.%s.%s.bias", layer, at, proj[1]);
	f->bias_down = bind_floats(b, hidden, 0, "layers.%d.%s.%s.bias", layer, at, proj[2]);
}

size_t ffn_floats(const struct ffn *f, int n_row)
{
	return f->moe.experts ? 0 : work_floats_of(n_row, f->up.rows);
}

void ffn_forward(struct pass *p, const struct ffn *f, float *out, bool add, const float *h)
{
	const struct backend_ops *ops = p->be->ops;
	size_t mark = p->work.used, inner = (size_t)f->up.rows;
	struct linear up = { .w = &f->up, .bias = f->bias_up }, first = up;
	struct linear down = { .w = &f->down, .out = out, .ld = (size_t)f->hidden, .bias = f->bias_down, .add = add };

	if (f->moe.experts) {
		ops->moe(p, out, add, &f->moe, h, NULL, p->n_row, f->hidden);
		return;
	}
	if (f->gate.rows)
		first = (struct linear){ .w = &f->gate, .bias = f->bias_gate, .up = &up };
	first.out = pass_floats(p, (size_t)p->n_row * inner);
	first.ld = inner;
	first.act = f->act;
	first.reader = &f->down;
	ops->linear(p, &first, 1, h, p->n_row, f->hidden);
	ops->linear(p, &down, 1, first.out, p->n_row, f->up.rows);
	p->work.used = mark;
}
