/* test_draft_grammar.c - drafts from the form of an answer: over the bundled model, held to schemas and to calls,
 * the answers and the bytes of all caches after each step are those of plain decoding, greedy and sampled, alone
 * and beside a search in the text or the model's draft head, and with that head alone, or with heads of other makes; and what
 * the form forces comes true.
 *
 *     test_draft_grammar MODEL [EAGLE-3-HEAD DFLASH-HEAD] */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "driver.h"
#include "test_backend.h"
#include "engine/core.h"
#include "lives.h"
#include "rows.h"
#include "text/grammar/constraint.h"

enum { CTX = 320, STEP = 64, DEPTH = 8, ANSWER = 120 };

static struct tokenizer *tok;
static struct vocab *vocab;
static const char *folder, *const *head_folder; /* head_folder[2], or NULL */

struct form {
	const char *said, *schema, *tools; /* a schema for content, or tools for a call */
	double least;                      /* share of drafts that come true */
};

static const struct form forms[] = {
	/* As the model was trained to write. */
	{ "Please write a JSON object with city \"Bristol\" and colour \"yellow\".",
	  "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"colour\":{\"type\":\"string\"}},\"required\":[\"city\","
	  "\"colour\"],\"additionalProperties\":false}",
	  NULL, 0.8 },
	{ "What is the weather in Austin?", NULL,
	  "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{"
	  "\"type\":\"string\"}},\"required\":[\"city\"],\"additionalProperties\":false}}}]",
	  0.8 },
	/* Words in tokens of its own. */
	{ "Describe a city.",
	  "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":20},\"population\":{\"type\":\"integer\"},"
	  "\"continent\":{\"enum\":[\"Europe\",\"Asia\",\"Africa\"]},\"is_capital\":{\"type\":\"boolean\"}},\"required\":[\"name\","
	  "\"population\",\"continent\",\"is_capital\"],\"additionalProperties\":false}",
	  NULL, 0 },
	{ "List people.",
	  "{\"type\":\"array\",\"minItems\":2,\"maxItems\":3,\"items\":{\"type\":\"object\",\"properties\":{\"first_name\":{\"type\":\"string\","
	  "\"maxLength\":8},\"last_name\":{\"type\":\"string\",\"maxLength\":8}},\"required\":[\"first_name\",\"last_name\"],"
	  "\"additionalProperties\":false}}",
	  NULL, 0 },
	/* Nothing is forced. */
	{ "Say anything.", "{}", NULL, 0 },
};

static struct mask_source *held_to(const struct form *f)
{
	static int32_t end;
	const char *text = f->schema ? f->schema : f->tools;
	struct json *j = json_parse(text, strlen(text), 0, NULL);
	struct constraint_rules r = { .tokenizer = tok, .vocab = vocab, .end = &end, .n_end = 1 };
	struct grammar *g;
	struct mask_source *m;
	struct err err;

	end = tokenizer_find(tok, "<|im_end|>", 10);
	if (f->schema) {
		CHECK(!grammar_compile(j, &g, &err), "%s", err.msg);
		r.content = g;
	} else {
		CHECK(!grammar_compile_calls(j, CALLS_TAGGED, NULL, false, &g, &err), "%s", err.msg);
		r.call = g;
		r.call_open = "<tool_call>";
		r.call_close = "</tool_call>";
	}
	json_free(j);
	m = constraint_new(&r);
	grammar_unref(g);
	return m;
}

/* ---- an engine ---- */

enum { GRAMMAR = 1, NGRAM = 2, MTP = 4, EAGLE3 = 8, DFLASH = 16, DFLASH2 = 32, HEADS = 4 };

struct rig {
	struct store *st, *head_st[HEADS];
	struct backend *be;
	struct model *m, *head[HEADS];
	struct engine *e;
	struct engine_opts o;
	struct engine_stats stats;
	int steps;
};

/* Head i: the model's own, or one of another folder. */
static void head_open(struct rig *g, int i, struct model_opts mo)
{
	struct err err;

	mo.step_rows = draft_head_rows(&g->m->shape, 1);
	CHECK(!i || !store_open(&g->head_st[i], head_folder[i - 1], &err), "%s", err.msg);
	CHECK(!model_bind_head(&g->head[i], g->m, i ? g->head_st[i] : g->st, &err) &&
	              !model_attach(g->head[i], g->be, &mo, &err) &&
	              !draft_head_open(&g->o.drafter[g->o.n_drafter++], g->head[i], 1, 1 << 22, &err),
	      "%s", err.msg);
}

static void rig_open(struct rig *g, unsigned drafters, bool fixed)
{
	struct model_opts mo = { .arith = ARITH_FAST,
		                 .slots = 1,
		                 .ctx_max = CTX,
		                 .step_rows = STEP,
		                 .tape_rows = DEPTH,
		                 .snap_bytes = 1 << 24 };
	struct err err;

	memset(g, 0, sizeof *g);
	g->be = test_backend_open(1, cpu_detect());
	g->o = (struct engine_opts){ .seqs_max = 1,
		                     .step_rows = STEP,
		                     .queue_max = 2,
		                     .prefix_bytes = 1 << 23,
		                     .by_hand = true,
		                     .n_draft = drafters ? DEPTH : 0,
		                     .draft_fixed = fixed };
	CHECK(!store_open(&g->st, folder, &err) && !model_open(&g->m, g->st, g->be, &mo, &err), "%s", err.msg);
	if (drafters & GRAMMAR)
		g->o.drafter[g->o.n_drafter++] = draft_grammar_open(tok, 1);
	if (drafters & NGRAM)
		g->o.drafter[g->o.n_drafter++] = draft_ngram_open(1, 1 << 12);
	for (int i = 0; i < HEADS; i++)
		if (drafters & MTP << i)
			head_open(g, i, mo);
	CHECK(!engine_open(&g->e, g->m, tok, &g->o, &err), "%s", err.msg);
}

static void rig_close(struct rig *g)
{
	engine_stats(g->e, &g->stats);
	engine_close(g->e);
	for (int i = 0; i < g->o.n_drafter; i++)
		g->o.drafter[i]->ops->close(g->o.drafter[i]);
	for (int i = 0; i < HEADS; i++)
		model_close(g->head[i]);
	model_close(g->m);
	g->be->ops->close(g->be);
	for (int i = 0; i < HEADS; i++)
		store_close(g->head_st[i]);
	store_close(g->st);
}

/* ---- answers ---- */

static struct buf at[CTX]; /* what the caches hold after so many tokens, in plain decoding */

static void look(struct rig *g, const struct request *r, bool plain)
{
	if (r->slot >= 0 && r->pos)
		caches_held(&g->m->caches, r->slot, r->pos, at, plain);
}

static void ask(struct rig *g, const struct form *f, bool sampled, bool plain, struct answer *out)
{
	char prompt[512];
	int32_t end;
	struct tokens t;
	struct life l;
	struct err err;

	tokens_init(&t);
	snprintf(prompt, sizeof prompt, "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n%s", f->said,
	         f->tools ? "<tool_call>" : "");
	CHECK(!tokenizer_encode(tok, prompt, strlen(prompt), TOKENIZE_SPECIAL, &t, &err), "%s", err.msg);
	life_init(&l, 1, 2000, 1);
	memcpy(l.prompt, t.id, t.n * sizeof *l.prompt);
	l.ask.n_prompt = (int)t.n;
	tokens_fini(&t);
	l.ask.max_tokens = ANSWER;
	l.ask.sampling.n_logprobs = 2;
	if (sampled) {
		l.ask.sampling.temperature = 1;
		l.ask.sampling.seed = 5;
	}
	l.held = held_to(f);
	end = tokenizer_find(tok, "<|im_end|>", 10);
	l.ask.stop_token = &end;
	l.ask.n_stop_token = 1;
	if (f->tools) /* the prompt has opened it */
		l.held->ops->accept(l.held, tokenizer_find(tok, "<tool_call>", 11));
	CHECK(!life_submit(&l, g->e, &err), "%s", err.msg);
	while (engine_step(g->e)) {
		look(g, l.r, plain);
		g->steps++;
	}
	life_read(&l, false);
	CHECK(l.done, "not done");
	*out = l.got;
	life_free(&l);
}

static void test_form(const struct form *f, bool sampled)
{
	static const unsigned kinds[] = { GRAMMAR,       GRAMMAR | NGRAM,
		                          GRAMMAR | MTP, MTP,
		                          EAGLE3,        DFLASH,
		                          DFLASH2,       GRAMMAR | NGRAM | MTP | EAGLE3 | DFLASH | DFLASH2 };
	static struct answer want, got;
	struct rig g;
	int plain;

	rig_open(&g, 0, true);
	ask(&g, f, sampled, true, &want);
	rig_close(&g);
	plain = g.steps;
	printf("%.*s\n", (int)want.n_text, want.text);
	for (int k = 0; k < (head_folder ? 8 : 4); k++)
		for (int fixed = 0; fixed < 2; fixed++) {
			rig_open(&g, kinds[k], fixed);
			/* Twice: known, and with what was learned of it. */
			for (int turn = 0; turn < 2; turn++) {
				ask(&g, f, sampled, false, &got);
				CHECK(!memcmp(&got, &want, sizeof got), "'%.*s' for '%.*s'", (int)got.n_text, got.text,
				      (int)want.n_text, want.text);
			}
			rig_close(&g);
			for (int i = 0; i < g.o.n_drafter; i++)
				printf("  %s %d of %d in %d rounds, %d steps, %d of plain decoding\n",
				       g.stats.drafter[i].name, (int)g.stats.drafter[i].accepted,
				       (int)g.stats.drafter[i].drafted, (int)g.stats.drafter[i].rounds, g.steps,
				       2 * plain);
			if (kinds[k] == GRAMMAR && fixed && f->least > 0)
				CHECK(g.stats.drafter[0].rounds > 2 &&
				              (double)g.stats.drafter[0].accepted >=
				                      f->least * (double)g.stats.drafter[0].drafted,
				      "of what is forced %d of %d drafts came true", (int)g.stats.drafter[0].accepted,
				      (int)g.stats.drafter[0].drafted);
		}
}

int main(int argc, char **argv)
{
	char path[512];
	struct buf json;
	struct err err;
	int n_form;

	CHECK(argc == 2 || argc == 5, "test_draft_grammar MODEL [EAGLE-3-HEAD DFLASH-HEAD DFLASH-2-HEAD]");
	head_folder = argc == 5 ? (const char *const *)argv + 2 : NULL;
	n_form = getenv("WEFT_TEST_QUICK") ? 3 : (int)(sizeof forms / sizeof *forms);

	folder = argv[1];
	log_set_level(LOG_WARN);
	snprintf(path, sizeof path, "%s/tokenizer.json", folder);
	buf_init(&json);
	CHECK(!file_read(path, 1 << 24, &json, &err) && !tokenizer_open(&tok, json.p, json.n, &err), "%s", err.msg);
	buf_fini(&json);
	vocab = constraint_vocab(tok, NULL);
	for (int i = 0; i < n_form; i++)
		for (int sampled = 0; sampled < 2; sampled++)
			test_form(&forms[i], sampled);
	for (int i = 0; i < CTX; i++)
		buf_fini(&at[i]);
	vocab_free(vocab);
	tokenizer_close(tok);
	return 0;
}
