/* embedder.c - see embedder.h: what a folder says, put together. */
#include "embed/embedder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed/reading.h"
#include "model/model.h"

/* ---- texts ---- */

static void read_prompts(struct reading *r)
{
	struct json *j = reading_document(r, "config_sentence_transformers.json");
	const struct json *value, *all = json_get(j, "prompts");
	const char *key, *text, *usual = json_str(json_get(j, "default_prompt_name"), NULL);
	struct json_cursor c = json_first(all);
	struct embedder *e = r->e;
	size_t n;

	e->default_prompt = -1;
	while (json_kind(all) == JSON_OBJECT && json_next(&c, &key, &value)) {
		text = json_str(value, &n);
		if (!text) {
			reading_fail(r, E_FORMAT, "%s: prompts: \"%.40s\" is not a string",
			             store_place(r->st, "config_sentence_transformers.json"), key);
			break;
		}
		if (e->n_prompt == EMBED_PROMPTS_MAX) {
			reading_fail(r, E_LIMIT, "%s: prompts: more than %d",
			             store_place(r->st, "config_sentence_transformers.json"), EMBED_PROMPTS_MAX);
			break;
		}
		if (usual && !strcmp(usual, key))
			e->default_prompt = e->n_prompt;
		e->prompt[e->n_prompt++] = (struct embed_prompt){ reading_keep(r, key, strlen(key)),
			                                          reading_keep(r, text, n) };
	}
	if (usual && e->default_prompt < 0)
		reading_fail(r, E_FORMAT, "%s: default_prompt_name: \"%.40s\" is none of prompts",
		             store_place(r->st, "config_sentence_transformers.json"), usual);
	json_free(j);
}

/* The longest text, and whether it is lower-cased: sentence_bert_config.json, else the tokenizer's number. */
static void read_lengths(struct reading *r)
{
	static const char *const names[] = { "sentence_bert_config.json", "sentence_roberta_config.json",
		                             "sentence_xlm-roberta_config.json", "sentence_camembert_config.json" };
	struct json *j = NULL;
	size_t i = 0;
	int64_t most = 0;

	while (i < sizeof names / sizeof *names && !r->code && !(j = reading_document(r, names[i])))
		i++;
	if (j) {
		json_to_int(json_get(j, "max_seq_length"), &most);
		json_to_bool(json_get(j, "do_lower_case"), &r->e->lower);
	}
	if (!most)
		json_to_int(json_get(r->st->tokenizer_config, "model_max_length"), &most);
	if (most > 0 && most < r->m->shape.ctx_max)
		r->e->max_tokens = (int)most;
	json_free(j);
}

/* ---- the whole ---- */

static const char *arch_of(const struct store *st)
{
	const char *arch = json_str(json_at(json_get(st->config, "architectures"), 0), NULL);

	return arch ? arch : "";
}

static bool refuse_heads(struct reading *r)
{
	static const struct {
		const char *arch, *why;
	} refused[] = {
		{ "JinaForRanking", "a listwise reranker, all documents in one prompt" },
		{ "Lfm2BidirForSequenceRouting", "a router over categories in the text" },
		{ "Lfm2BidirForRuleMatching", "a linter of rules" },
		{ "GecTaggerForGEC", "a tagger of corrections" },
		{ "BertForQuestionAnswering", "an extractor of answers" },
		{ "SpladeModel", "an embedder with sparse vectors" },
	};

	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		if (!strcmp(r->arch, refused[i].arch)) {
			reading_fail(r, E_UNSUPPORTED, "%s: architectures: %s, %s, is not computed by this version",
			             r->st->config_path, r->arch, refused[i].why);
			return true;
		}
	return false;
}

/* Without files that say so: an encoder's vectors are the mean of its rows; a writer's are the last row, as long as 1. */
static void read_plain(struct reading *r)
{
	struct embedder *e = r->e;
	const char *said = json_str(json_get(r->st->config, "pooling"), NULL);

	e->writes = !r->m->shape.whole;
	e->rows = e->writes ? ROWS_LAST : ROWS_MEAN;
	if (r->m->shape.whole && said)
		e->rows = !strcmp(said, "cls") ? ROWS_FIRST : !strcmp(said, "last") ? ROWS_LAST : ROWS_MEAN;
	e->normalized = e->writes;
}

int embedder_open(struct embedder **out, const struct model *m, struct store *st, struct err *err)
{
	struct embedder *e = xcalloc(1, sizeof *e);
	struct reading r = { .e = e, .m = m, .st = st, .err = err, .width = m->shape.hidden, .arch = arch_of(st) };
	struct embed_step *step;

	*out = NULL;
	arena_init(&e->arena);
	e->in = m->shape.hidden;
	e->pad = -1;
	if (!refuse_heads(&r) && !head_read(&r) && !modules_read(&r))
		read_plain(&r);
	read_prompts(&r);
	read_lengths(&r);
	if (r.code) {
		embedder_close(e);
		return r.code;
	}
	step = arena_alloc(&e->arena, size_mul((size_t)r.n_step + 1, sizeof *step));
	memcpy(step, r.step, (size_t)r.n_step * sizeof *step);
	e->step = step;
	e->n_step = r.n_step;
	e->out = r.n_step ? r.width : e->in;
	*out = e;
	return 0;
}

void embedder_close(struct embedder *e)
{
	if (!e)
		return;
	arena_fini(&e->arena);
	free(e);
}

unsigned embedder_rows(const struct embedder *e, const int32_t *ids, int n, int n_prompt, int *from)
{
	*from = e->no_prompt && n_prompt < n ? n_prompt : 0;
	if (e->rows != ROWS_LAST)
		return e->rows;
	*from = n - 1;
	while (e->pad >= 0 && *from > 0 && ids[*from] == e->pad)
		--*from;
	return *from == n - 1 ? ROWS_LAST : ROWS_FIRST;
}

const char *embedder_prompt(const struct embedder *e, const char *name)
{
	for (int i = 0; i < e->n_prompt; i++)
		if (!strcmp(e->prompt[i].name, name))
			return e->prompt[i].text;
	return NULL;
}

const char *embedder_label(const struct embedder *e, int i, char scratch[32])
{
	if (e->label && e->label[i])
		return e->label[i];
	snprintf(scratch, 32, "LABEL_%d", i);
	return scratch;
}
