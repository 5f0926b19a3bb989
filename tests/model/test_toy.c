/* The recipe of docs/add-a-model.md, followed for the smallest architecture there
 * can be: an embedding, one attention layer with a paged cache, tied output.  No
 * file outside this one knows it. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cache/kinds.h"
#include "driver.h"
#include "folder.h"
#include "model/attention.h"
#include "model/conf.h"
#include "model/rotary.h"
#include "model/work.h"
#include "store/safetensors.h"

/* ---- the architecture: this much is a new model ---- */

struct toy {
	struct model m;
	struct weight embed, head;
	struct attention attn;
};

static int bind(struct model *m, struct store *st, struct err *err)
{
	struct toy *t = (struct toy *)m;
	struct shape *s = &m->shape;
	struct conf c = { .j = st->text, .file = st->config_path, .where = "", .err = err };
	struct binder b = { .st = st, .m = m, .err = err };
	struct rotary_defaults d = { .partial = 1 };
	struct attention_form f = { 0 };

	s->layers = 1;
	f.hidden = s->hidden = conf_int(&c, "hidden_size", 1, CONF_DIM_MAX);
	s->vocab = conf_int(&c, "vocab_size", 1, CONF_VOCAB_MAX);
	s->ctx_max = conf_int(&c, "max_position_embeddings", 1, CONF_CTX_MAX);
	f.op.heads = conf_int(&c, "num_attention_heads", 1, CONF_HEADS_MAX);
	f.op.heads_kv = conf_int(&c, "num_key_value_heads", 1, CONF_HEADS_MAX);
	f.op.dim = conf_int(&c, "head_dim", 2, CONF_HEAD_DIM_MAX);
	f.op.scale = 1.0f / sqrtf((float)f.op.dim);
	rotary_read(&f.op.rope, &c, &d, f.op.dim, &s->ctx_max, &m->arena);
	if (c.code)
		return c.code;
	shape_kv_plain(s, 1, f.op.heads_kv, f.op.dim);
	bind_find_prefix(&b, "embed_tokens");
	bind_embedding(&b, &t->embed, &t->head, "embed_tokens", s->vocab, s->hidden, true);
	attention_bind(&b, &t->attn, &f, 0);
	return b.code;
}

static size_t work_floats(const struct model *m, int n_row, int n_logit)
{
	return work_floats_of(n_row, m->shape.hidden) + work_floats_of(n_logit, m->shape.hidden) +
	       attention_floats(&((const struct toy *)m)->attn, n_row);
}

static void forward(struct model *m, struct pass *p)
{
	const struct toy *t = (const struct toy *)m;
	int hidden = m->shape.hidden;
	struct linear head = { &t->head, p->logits, (size_t)m->shape.vocab, NULL, false };
	float *x, *last;

	x = pass_floats(p, (size_t)p->n_row * (size_t)hidden);
	p->be->ops->embed(p, x, &t->embed);
	attention_forward(p, &t->attn, x, true, x, p->kv[0], 0);
	last = pass_floats(p, (size_t)p->n_logit * (size_t)hidden);
	p->be->ops->gather(p, last, x, p->logit_row, p->n_logit, hidden);
	p->be->ops->linear(p, &head, 1, last, p->n_logit, hidden);
}

static const char *const arch[] = { "toy", NULL };
static const struct model_ops toy_ops = {
	.arch = arch,
	.size = sizeof(struct toy),
	.bind = bind,
	.forward = forward,
	.work_floats = work_floats,
};

/* ---- a folder of it, and what it must compute, written plainly in double ---- */

enum { H = 32, V = 48, HEADS = 2, DIM = 16, N = 100 };

static float w_embed[V][H], w_q[HEADS * DIM][H], w_k[DIM][H], w_v[DIM][H], w_o[H][HEADS * DIM];

static void fill(float *w, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		w[i] = ((float)(seed >> 8) / (float)(1 << 24) - 0.5f) * 0.6f;
	}
}

static void write_folder(const char *dir)
{
	struct tensor_out t[] = {
		{ "model.embed_tokens.weight", DT_F32, 2, { V, H }, w_embed },
		{ "model.layers.0.self_attn.q_proj.weight", DT_F32, 2, { HEADS * DIM, H }, w_q },
		{ "model.layers.0.self_attn.k_proj.weight", DT_F32, 2, { DIM, H }, w_k },
		{ "model.layers.0.self_attn.v_proj.weight", DT_F32, 2, { DIM, H }, w_v },
		{ "model.layers.0.self_attn.o_proj.weight", DT_F32, 2, { H, HEADS * DIM }, w_o },
	};

	fill(&w_embed[0][0], V * H, 1);
	fill(&w_q[0][0], HEADS * DIM * H, 2);
	fill(&w_k[0][0], DIM * H, 3);
	fill(&w_v[0][0], DIM * H, 4);
	fill(&w_o[0][0], H * HEADS * DIM, 5);
	folder_puts(dir, "config.json",
	            "{\"model_type\":\"toy\",\"hidden_size\":32,\"vocab_size\":48,\"num_attention_heads\":2,"
	            "\"num_key_value_heads\":1,\"head_dim\":16,\"max_position_embeddings\":512,\"rope_theta\":100}");
	assert(!safetensors_write(folder_path(dir, "model.safetensors"), t, 5, NULL));
}

static double dot(const float *a, const double *b, int n)
{
	double s = 0;

	for (int i = 0; i < n; i++)
		s += (double)a[i] * b[i];
	return s;
}

static void rotate(double *x, int pos)
{
	for (int i = 0; i < DIM / 2; i++) {
		double a = pos * pow(100, -2.0 * i / DIM), u = x[i], v = x[i + DIM / 2];

		x[i] = u * cos(a) - v * sin(a);
		x[i + DIM / 2] = v * cos(a) + u * sin(a);
	}
}

static void plainly(const int32_t *tok, int n, double (*logits)[V])
{
	static double k[N][DIM], v[N][DIM];

	for (int t = 0; t < n; t++) {
		double x[H], q[DIM], out[HEADS * DIM] = { 0 }, p[N], sum, y;

		for (int i = 0; i < H; i++)
			x[i] = (double)w_embed[tok[t]][i];
		for (int i = 0; i < DIM; i++) {
			k[t][i] = dot(w_k[i], x, H);
			v[t][i] = dot(w_v[i], x, H);
		}
		rotate(k[t], t);
		for (int h = 0; h < HEADS; h++) {
			for (int i = 0; i < DIM; i++)
				q[i] = dot(w_q[h * DIM + i], x, H);
			rotate(q, t);
			sum = 0;
			for (int s = 0; s <= t; s++) {
				y = 0;
				for (int i = 0; i < DIM; i++)
					y += q[i] * k[s][i];
				sum += p[s] = exp(y / sqrt(DIM));
			}
			for (int s = 0; s <= t; s++)
				for (int i = 0; i < DIM; i++)
					out[h * DIM + i] += p[s] / sum * v[s][i];
		}
		for (int i = 0; i < H; i++)
			x[i] += dot(w_o[i], out, HEADS * DIM);
		for (int i = 0; i < V; i++)
			logits[t][i] = dot(w_embed[i], x, H);
	}
}

int main(void)
{
	static double want[N][V];
	static float whole[N][V], parts[N][V];
	static const int cut[] = { 1, 7, 20 };
	struct driver_opts o = {
		.arith = ARITH_F32, .threads = 2, .level = cpu_detect(), .slots = 2, .ctx_max = 256, .step_rows = 128
	};
	struct driver d = { 0 };
	struct model *m;
	struct err err;
	char *dir = folder_new();
	int32_t tok[N];
	double most = 0;

	log_set_level(LOG_ERROR);
	write_folder(dir);
	for (int i = 0; i < N; i++)
		tok[i] = (i * i + 3 * i) % V;
	if (store_open(&d.st, dir, &err) || model_bind_as(&m, &toy_ops, "toy", d.st, &err) ||
	    driver_attach(&d, m, &o, &err)) {
		printf("FAIL %s\n", err.msg);
		return 1;
	}
	plainly(tok, N, want);
	driver_feed(&d, 0, 0, tok, N, NULL, 0, &whole[0][0]);
	driver_feed(&d, 1, 0, tok, N, cut, 3, &parts[0][0]);
	for (int i = 0; i < N; i++)
		for (int k = 0; k < V; k++)
			most = fmax(most, fabs((double)whole[i][k] - want[i][k]));
	printf("largest difference from the plain computation: %.1e\n", most);
	if (!(most < 1e-4) || memcmp(whole, parts, sizeof whole)) {
		printf("FAIL %s\n", most < 1e-4 ? "in parts it differs" : "");
		return 1;
	}
	driver_close(&d);
	folder_remove(dir);
	return 0;
}
