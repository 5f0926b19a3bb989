/* classifiers.c - see reading.h: heads of classifiers and rerankers, by architectures[0].
 *
 * Names and activations are those of transformers' ForSequenceClassification classes.  A head's last product has a row for
 * each label; with one label it is a reranker's score. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed/reading.h"
#include "model/model.h"

static bool ends_in(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* NAME.weight and, if it is there, NAME.bias as a step; false: there is none. */
static bool add_dense(struct reading *r, const char *name, enum step_act act, bool needed)
{
	struct embed_step s = { .in = r->width, .act = act };
	char full[80];
	int n;

	snprintf(full, sizeof full, "%s.weight", name);
	s.w = reading_floats(r, full, s.in, &s.out);
	if (!s.w) {
		if (needed)
			reading_fail(r, E_MISSING, "%s: no tensor %s, and %s has one", r->st->dir, full, r->arch);
		return false;
	}
	snprintf(full, sizeof full, "%s.bias", name);
	s.bias = reading_floats(r, full, 1, &n);
	if (s.bias && n != s.out)
		reading_fail(r, E_FORMAT, "%s: tensor %s: %d numbers, %d rows", r->st->dir, full, n, s.out);
	reading_step(r, s, name);
	return true;
}

static void add_norm(struct reading *r, const char *name, float eps)
{
	struct embed_step s = { .in = r->width, .out = r->width, .eps = eps };
	char full[80];
	int n, n_bias;

	snprintf(full, sizeof full, "%s.weight", name);
	s.gain = reading_floats(r, full, 1, &n);
	if (!s.gain || n != s.in) {
		reading_fail(r, E_FORMAT, "%s: tensor %s: %d numbers, where %d are read", r->st->dir, full, n, s.in);
		return;
	}
	snprintf(full, sizeof full, "%s.bias", name);
	s.bias = reading_floats(r, full, 1, &n_bias);
	if (s.bias && n_bias != s.in)
		reading_fail(r, E_FORMAT, "%s: tensor %s: %d numbers, where %d are read", r->st->dir, full, n_bias,
		             s.in);
	reading_step(r, s, name);
}

static void read_labels(struct reading *r)
{
	const struct json *names = json_get(r->st->config, "id2label");
	int n = r->width;
	const char **label;
	char key[16];

	if (r->code || json_kind(names) != JSON_OBJECT || n > EMBED_LABELS_MAX)
		return;
	label = arena_zalloc(&r->e->arena, (size_t)n * sizeof *label);
	for (int i = 0; i < n; i++) {
		const char *s;
		size_t len;

		snprintf(key, sizeof key, "%d", i);
		s = json_str(json_get(names, key), &len);
		label[i] = s ? reading_keep(r, s, len) : NULL;
	}
	r->e->label = label;
}

/* Reads how logits become scores.  Where the folder does not say it, one logit gets a sigmoid and several get a softmax. */
static void read_score_act(struct reading *r)
{
	const struct json *c = r->st->config;
	const char *fn = json_str(json_get(json_get(c, "sentence_transformers"), "activation_fn"), NULL);
	const char *problem = json_str(json_get(c, "problem_type"), NULL);
	struct embedder *e = r->e;

	if (!fn)
		fn = json_str(json_get(c, "sbert_ce_default_activation_function"), NULL);
	e->act = r->width == 1 ? SCORES_SIGMOID : SCORES_SOFTMAX;
	if (problem && !strcmp(problem, "regression"))
		e->act = SCORES_RAW;
	else if (problem && !strcmp(problem, "multi_label_classification"))
		e->act = SCORES_SIGMOID;
	if (fn && ends_in(fn, "Identity"))
		e->act = SCORES_RAW;
	else if (fn && ends_in(fn, "Sigmoid"))
		e->act = SCORES_SIGMOID;
}

static void head_bert(struct reading *r)
{
	r->e->rows = ROWS_FIRST;
	add_dense(r, "pooler.dense", STEP_TANH, false); /* without a pooler the classifier reads the row itself */
	add_dense(r, "classifier", STEP_PLAIN, true);
}

static void head_roberta(struct reading *r)
{
	r->e->rows = ROWS_FIRST;
	add_dense(r, "classifier.dense", STEP_TANH, true);
	add_dense(r, "classifier.out_proj", STEP_PLAIN, true);
}

static void head_modern(struct reading *r)
{
	struct conf c = { .j = r->st->config, .file = r->st->config_path, .where = "", .err = r->err };
	const char *pooling = conf_str_or(&c, "classifier_pooling", "cls");

	r->e->rows = !strcmp(pooling, "mean") ? ROWS_MEAN : ROWS_FIRST;
	if (strcmp(pooling, "mean") && strcmp(pooling, "cls"))
		conf_fail(&c, E_UNSUPPORTED, "classifier_pooling: \"%.40s\" is not done; only cls and mean", pooling);
	add_dense(r, "head.dense", reading_act(r, c.file, conf_str_or(&c, "classifier_activation", "gelu")), true);
	add_norm(r, "head.norm", (float)conf_above_zero_or(&c, "norm_eps", 1e-5));
	add_dense(r, "classifier", STEP_PLAIN, true);
	if (!r->code)
		r->code = c.code;
}

static void head_bidirec(struct reading *r)
{
	struct conf c = { .j = r->st->config, .file = r->st->config_path, .where = "", .err = r->err };
	const char *pooling = conf_str_or(&c, "pooling", "avg");

	r->e->rows = !strcmp(pooling, "cls") ? ROWS_FIRST : !strcmp(pooling, "last") ? ROWS_LAST : ROWS_MEAN;
	add_dense(r, "score", STEP_PLAIN, true);
	reading_step(r,
	             (struct embed_step){ .in = r->width,
	                                  .out = r->width,
	                                  .scale = (float)(1 / conf_above_zero_or(&c, "temperature", 1)) },
	             "temperature");
	if (!r->code)
		r->code = c.code;
}

/* The step that scores the last row by the difference of two words' rows, of a model that is asked for one of them. */
static void add_words(struct reading *r, const float *w)
{
	r->e->rows = ROWS_LAST;
	r->e->asks = true;
	reading_step(r, (struct embed_step){ .in = r->m->shape.hidden, .out = 1, .w = w }, "the words' rows");
}

/* Qwen3-Reranker as vLLM names it, with the rows of yes and no as its classifier. */
static void head_yes_no(struct reading *r)
{
	int hidden = r->m->shape.hidden, rows = 0;
	const float *two = reading_floats(r, "score.weight", hidden, &rows);
	float *w;

	if (!two || rows != 2) {
		reading_fail(r, E_FORMAT, "%s: tensor score.weight: %d rows, where those of yes and no are read",
		             r->st->dir, rows);
		return;
	}
	w = arena_zalloc(&r->e->arena, (size_t)hidden * sizeof *w);
	for (int i = 0; i < hidden; i++)
		w[i] = two[i] - two[hidden + i];
	add_words(r, w);
}

/* A model that writes is asked at its right-most token that is not the pad. */
static void head_writer(struct reading *r)
{
	bool asks = false;
	int64_t pad = -1;

	json_to_bool(json_get(r->st->config, "is_original_qwen3_reranker"), &asks);
	if (asks) {
		head_yes_no(r);
		return;
	}

	json_to_int(json_get(r->st->config, "pad_token_id"), &pad);
	r->e->rows = ROWS_LAST;
	r->e->pad = pad >= 0 && pad < r->m->shape.vocab ? (int32_t)pad : -1;
	add_dense(r, "score", STEP_PLAIN, true);
}

static void head_of_tokens(struct reading *r)
{
	r->e->rows = ROWS_ALL;
	r->e->all_rows = true;
	if (!add_dense(r, "classifier", STEP_PLAIN, false))
		add_dense(r, "score", STEP_PLAIN, true);
}

static const struct {
	const char *arch; /* or how it ends */
	void (*read)(struct reading *);
} heads[] = {
	{ "BertForSequenceClassification", head_bert },
	{ "RobertaForSequenceClassification", head_roberta },
	{ "CamembertForSequenceClassification", head_roberta },
	{ "ModernBertForSequenceClassification", head_modern },
	{ "LlamaBidirectionalForSequenceClassification", head_bidirec },
	{ "ForSequenceClassification", head_writer },
	{ "ForTokenClassification", head_of_tokens },
};

bool head_read(struct reading *r)
{
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
		/* Other names end in "BertForSequence..."; only "Roberta..." and general names may have something before
		 * them. */
		bool general = heads[i].arch[0] == 'F' || !strncmp(heads[i].arch, "Roberta", 7);

		if (general ? !ends_in(r->arch, heads[i].arch) : strcmp(r->arch, heads[i].arch))
			continue;
		heads[i].read(r);
		r->e->kind = r->width == 1 && !r->e->all_rows ? RANKS : LABELS;
		read_labels(r);
		read_score_act(r);
		return true;
	}
	return false;
}

void head_of_words(struct reading *r, int32_t yes, int32_t no)
{
	static const char *const matrix[] = { "lm_head", "embed_tokens", "model.embed_tokens", NULL };
	int hidden = r->m->shape.hidden;
	float *w = arena_zalloc(&r->e->arena, (size_t)hidden * sizeof *w), *row;
	struct store_matrix *m = NULL;

	for (int i = 0; matrix[i] && !m; i++)
		m = store_matrix(r->st, matrix[i]);
	if (!m || m->w.cols != hidden || yes >= m->w.rows || no >= m->w.rows) {
		reading_fail(r, E_MISSING, "%s: no rows of the words' tokens %d and %d", r->st->dir, yes, no);
		return;
	}
	row = xmalloc((size_t)hidden * sizeof *row);
	for (int k = 0; k < 2; k++) {
		int32_t id = k ? no : yes;

		if (id < 0)
			continue;
		weight_decode(row, &m->w, id);
		for (int i = 0; i < hidden; i++)
			w[i] += k ? -row[i] : row[i];
	}
	free(row);
	r->e->kind = RANKS;
	r->e->act = SCORES_SIGMOID;
	add_words(r, w);
}
