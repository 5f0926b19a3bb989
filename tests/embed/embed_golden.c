/* Vectors and scores of the models in ../shared/golden/_embed, through an engine, against a reference implementation's:
 * rows within 3e-4, vectors and scores within 1e-4, in reference arithmetic (weights as stored, activations in float32).
 * And the law: what a text gives alone is what it gives beside all others, in either order, with one thread and with several,
 * in both arithmetics, bit for bit.
 *
 *     embed_golden ROOT NAME[=MODEL]...    MODEL, a GGUF file, is opened in place of the folder */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "driver.h"
#include "embed/embedder.h"
#include "host/load.h"
#include "store/safetensors.h"

enum { TEXTS = 16 };
static const float ROWS_NEAR = 3e-4f, VECTORS_NEAR = 1e-4f;

struct text {
	const int32_t *ids, *types;
	int n, second;
	struct request *req;
	float *rows, *pooled;
	size_t n_pooled;
};

struct golden {
	struct safetensors file;
	struct json *about;
	int n;
	struct text text[TEXTS];
};

static const struct tensor *tensor(const struct golden *g, const char *name, int i)
{
	char full[64];

	snprintf(full, sizeof full, "%s_%d", name, i);
	return safetensors_find(&g->file, full);
}

/* Ids lie at any address in the file. */
static const int32_t *ids_of(const struct tensor *t)
{
	int32_t *ids = xmalloc((size_t)t->count * sizeof *ids);

	memcpy(ids, t->data, (size_t)t->count * sizeof *ids);
	return ids;
}

static void golden_open(struct golden *g, const char *folder)
{
	char path[4300];
	struct buf b;
	struct err err;

	*g = (struct golden){ 0 };
	snprintf(path, sizeof path, "%s/golden.safetensors", folder);
	CHECK(!safetensors_open(&g->file, path, &err), "%s", err.msg);
	snprintf(path, sizeof path, "%s/golden.json", folder);
	buf_init(&b);
	CHECK(!file_read(path, 1 << 24, &b, &err), "%s", err.msg);
	g->about = json_parse(b.p, b.n, 0, &err);
	CHECK(g->about, "%s: %s", path, err.msg);
	buf_fini(&b);
	for (const struct tensor *t; g->n < TEXTS && (t = tensor(g, "ids", g->n)); g->n++) {
		struct text *x = &g->text[g->n];
		const struct tensor *types = tensor(g, "type_ids", g->n);

		x->ids = ids_of(t);
		x->n = (int)t->count;
		x->types = types ? ids_of(types) : NULL;
		for (int i = 0; i < x->n && x->types && !x->second; i++)
			x->second = x->types[i] ? i : 0;
	}
	CHECK(g->n, "%s: no texts", folder);
}

static void golden_close(struct golden *g)
{
	for (int i = 0; i < TEXTS; i++) {
		free((void *)g->text[i].ids);
		free((void *)g->text[i].types);
	}
	json_free(g->about);
	safetensors_close(&g->file);
}

/* ---- running ---- */

struct trial {
	struct session s;
	enum arith arith;
};

static int open_session(struct session *s, const char *folder, enum arith arith, int threads, struct err *err)
{
	struct host_opts o;

	host_opts_init(&o);
	o.model = folder;
	o.arith = arith;
	o.threads = threads;
	o.device = "cpu";
	o.parallel = 4;
	o.queue = 64;
	o.kv_bytes = 16 << 20;
	o.prefix_bytes = 0;
	o.small_pages = true;
	return session_open(s, &o, LOAD_ENGINE | LOAD_BY_HAND, err);
}

static void submit(struct session *s, struct text *x, bool rows)
{
	struct ask ask = { .prompt = x->ids, .n_prompt = x->n, .second = x->second };
	struct err err;

	ask.rows = rows ? ROWS_ALL : embedder_rows(s->embedder, x->ids, x->n, 0, &ask.rows_from);
	sampler_params_init(&ask.sampling);
	CHECK(!engine_submit(s->engine, &ask, &x->req, &err), "%s", err.msg);
}

static float *take(struct text *x, size_t *n)
{
	struct event ev = { 0 };
	const float *got;
	float *out;

	while (request_next(x->req, &ev) && ev.kind != EV_DONE)
		;
	CHECK(ev.kind == EV_DONE && ev.finish == FINISH_LENGTH, "a text did not end well: %s", ev.err.msg);
	got = request_rows(x->req, n);
	out = xmalloc(*n * sizeof *out);
	memcpy(out, got, *n * sizeof *out);
	request_free(x->req);
	x->req = NULL;
	return out;
}

/* Texts [first, end), all of them in the engine at once; in what order. */
static void run(struct session *s, struct golden *g, int first, int end, bool back, bool rows, float **out, size_t *n)
{
	for (int i = first; i < end; i++)
		submit(s, &g->text[back ? end - 1 - (i - first) : i], rows);
	while (engine_step(s->engine))
		;
	for (int i = first; i < end; i++)
		out[i] = take(&g->text[i], &n[i]);
}

static float worst(const float *a, const uint8_t *b, size_t n)
{
	float most = 0;

	for (size_t i = 0; i < n; i++) {
		float want, d;

		memcpy(&want, b + i * sizeof want, sizeof want);
		d = fabsf(a[i] - want);
		if (!(d <= most))
			most = isnan(d) ? INFINITY : d;
	}
	return most;
}

/* The vector or scores of text i against what the file says, under any of these names. */
static float check_result(const struct session *s, const struct golden *g, int i, const float *pooled, size_t n)
{
	const struct embedder *e = s->embedder;
	const struct tensor *vector = tensor(g, "embedding", i), *logits = tensor(g, "logits", i);
	const struct tensor *score = tensor(g, "score", i), *cut = tensor(g, "matryoshka", i);
	int rows = (int)(n / (size_t)e->in);
	float *v = xmalloc((size_t)rows * (size_t)e->out * sizeof *v), most = 0;

	CHECK(n == (size_t)rows * (size_t)e->in, "%zu floats", n);
	for (int r = 0; r < rows; r++)
		embedder_run(e, pooled + (size_t)r * (size_t)e->in, v + (size_t)r * (size_t)e->out);
	CHECK(vector || logits || score, "nothing to compare text %d with", i);
	if (vector) {
		vector_normalize(v, e->out);
		CHECK(vector->count == e->out, "%d numbers, %lld are right", e->out, (long long)vector->count);
		most = worst(v, vector->data, (size_t)e->out);
	}
	/* Nomic's own way to cut, with a norm before, is in no file of the folder. */
	if (cut && strncmp(json_str(json_get(g->about, "model"), NULL), "nomic_bert", 10)) {
		vector_normalize(v, (int)cut->count);
		most = fmaxf(most, worst(v, cut->data, (size_t)cut->count));
	}
	if (logits) {
		CHECK(logits->count == (int64_t)rows * e->out, "%d numbers, %lld are right", rows * e->out,
		      (long long)logits->count);
		most = worst(v, logits->data, (size_t)logits->count);
	}
	if (score && e->kind != EMBEDS) {
		struct embedder usual =
			*e; /* a folder may say that its scores are logits; the file has the usual ones */

		usual.act = e->act != SCORES_RAW ? e->act : e->out == 1 ? SCORES_SIGMOID : SCORES_SOFTMAX;
		embedder_scores(&usual, v, false);
		CHECK(score->count == e->out, "%d scores, %lld are right", e->out, (long long)score->count);
		most = fmaxf(most, worst(v, score->data, (size_t)e->out));
	}
	free(v);
	return most;
}

/* ---- checks ---- */

static int check_values(const char *folder, const char *model, const char *name)
{
	float *rows[TEXTS], *pooled[TEXTS], in_rows = 0, in_result = 0;
	size_t n[TEXTS], m[TEXTS];
	struct session s;
	struct golden g;
	struct err err;
	bool ok;

	golden_open(&g, folder);
	if (open_session(&s, model, ARITH_F32, 2, &err)) {
		printf("FAIL %-24s %s\n", name, err.msg);
		return 1;
	}
	for (int i = 0; i < g.n; i++)
		if (g.text[i].n > s.model->opts.ctx_max)
			g.n = i; /* the longest of a model whose rotation would change */
	run(&s, &g, 0, g.n, false, true, rows, n);
	run(&s, &g, 0, g.n, false, false, pooled, m);
	for (int i = 0; i < g.n; i++) {
		const struct tensor *t = tensor(&g, "hidden", i);
		float d = t ? worst(rows[i], t->data, n[i]) : 0;

		CHECK(!t || (size_t)t->count == n[i], "%zu numbers, %lld are right", n[i], (long long)t->count);
		in_rows = fmaxf(in_rows, d);
		in_result = fmaxf(in_result, check_result(&s, &g, i, pooled[i], m[i]));
		free(rows[i]);
		free(pooled[i]);
	}
	session_close(&s);
	ok = in_rows <= ROWS_NEAR && in_result <= VECTORS_NEAR;
	printf("%s %-24s %d texts  rows %.1e  vectors, scores %.1e\n", ok ? "ok  " : "FAIL", name, g.n, (double)in_rows,
	       (double)in_result);
	golden_close(&g);
	return !ok;
}

static int check_law(const char *folder, const char *model, const char *name, enum arith arith)
{
	float *alone[TEXTS], *other[TEXTS];
	size_t n[TEXTS], m[TEXTS];
	struct session one, two;
	struct golden g;
	struct err err;
	int bad = 0;

	golden_open(&g, folder);
	CHECK(!open_session(&one, model, arith, 1, &err), "%s", err.msg);
	CHECK(!open_session(&two, model, arith, 3, &err), "%s", err.msg);
	for (int i = 0; i < g.n; i++)
		if (g.text[i].n > one.model->opts.ctx_max)
			g.n = i;
	for (int i = 0; i < g.n; i++)
		run(&one, &g, i, i + 1, false, true, alone, n);
	for (int way = 0; way < 4; way++) {
		run(way & 1 ? &two : &one, &g, 0, g.n, way & 2, true, other, m);
		for (int i = 0; i < g.n; i++) {
			if (n[i] != m[i] || memcmp(alone[i], other[i], n[i] * sizeof **alone)) {
				printf("FAIL %s: text %d differs beside others (arithmetic %d, way %d)\n", name, i,
				       arith, way);
				bad = 1;
			}
			free(other[i]);
		}
	}
	for (int i = 0; i < g.n; i++)
		free(alone[i]);
	session_close(&one);
	session_close(&two);
	golden_close(&g);
	return bad;
}

int main(int argc, char **argv)
{
	int bad = 0;

	log_set_level(LOG_ERROR);
	if (argc < 3 || !shared_argument(argv, 1))
		return argc < 3 ? 2 : 77;
	for (int i = 2; i < argc; i++) {
		char folder[4200];
		const char *file = strchr(argv[i], '='), *model = file ? file + 1 : folder;

		snprintf(folder, sizeof folder, "%s/%.*s/hf-bf16", argv[1], (int)strcspn(argv[i], "="), argv[i]);
		bad |= check_values(folder, model, argv[i]);
		bad |= check_law(folder, model, argv[i], ARITH_F32);
		bad |= check_law(folder, model, argv[i], ARITH_FAST);
	}
	return bad;
}
