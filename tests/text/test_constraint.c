/* test_constraint.c MODEL_FOLDER - where thoughts, content and calls are, and that
 * going back is as if what was taken back had never been.  The tokenizer is the
 * bundled model's, which has the tags. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "../check.h"
#include "text/calls/dialect.h"
#include "text/grammar/constraint.h"

static struct tokenizer *tok;
static struct vocab *vocab;
static int32_t end_id;

static struct grammar *made(const char *schema)
{
	struct json *j = json_parse(schema, strlen(schema), 0, NULL);
	struct grammar *g;
	struct err err;

	CHECK(!grammar_compile(j, &g, &err), "%s", err.msg);
	json_free(j);
	return g;
}

static struct mask_source *start(const char *content, const char *call, bool thinking, bool may_think)
{
	struct constraint_rules r = {
		.tokenizer = tok,
		.vocab = vocab,
		.thinking = thinking,
		.may_think = may_think,
		.end = &end_id,
		.n_end = 1,
		.content = content ? made(content) : NULL,
		.call = call ? made(call) : NULL,
		.call_open = call ? "<tool_call>" : NULL,
		.call_close = call ? "</tool_call>" : NULL,
	};
	struct mask_source *m = constraint_new(&r);

	grammar_unref(r.content);
	grammar_unref(r.call);
	return m;
}

static bool allowed(struct mask_source *m, int32_t id)
{
	const uint32_t *mask = m->ops->mask(m);

	return !mask || mask[id / 32] >> (id % 32) & 1;
}

static bool may(struct mask_source *m, const char *token)
{
	int32_t id = tokenizer_find(tok, token, strlen(token));

	CHECK(id >= 0, "%s is no token", token);
	return allowed(m, id);
}

/* Takes text, each of its tokens being allowed, or (forced) not asked. */
static void say(struct mask_source *m, const char *text, bool forced)
{
	struct tokens ids;

	tokens_init(&ids);
	CHECK(!tokenizer_encode(tok, text, strlen(text), TOKENIZE_SPECIAL, &ids, NULL), "%s", text);
	for (size_t i = 0; i < ids.n; i++) {
		size_t n;
		const char *p = tokenizer_token_bytes(tok, ids.id[i], &n);

		CHECK(forced || allowed(m, ids.id[i]), "token %zu (%.*s) of %s", i, (int)n, p, text);
		m->ops->accept(m, ids.id[i]);
	}
	tokens_fini(&ids);
}

static const char object[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],"
			     "\"additionalProperties\":false}";

static void test_parts(void)
{
	struct mask_source *m = start(object, NULL, false, false);

	CHECK(!may(m, "<think>") && !may(m, "a") && !allowed(m, end_id) && may(m, "{"), "content alone");
	say(m, "{\"a\": 12", false);
	CHECK(!m->ops->whole(m) && !allowed(m, end_id), "in the middle");
	say(m, "}", false);
	CHECK(m->ops->whole(m) && allowed(m, end_id) && !may(m, "}"), "the end");
	m->ops->free(m);

	m = start(object, NULL, true, false);
	CHECK(may(m, "a") && may(m, "</think>") && may(m, "<tool_call>") && !allowed(m, end_id),
	      "thoughts are free, but go on");
	say(m, "anything {</thin", false);
	CHECK(may(m, "a") && !allowed(m, end_id), "no tag yet");
	say(m, "</think>", false);
	CHECK(m->ops->mask(m) && may(m, "{") && may(m, "\n") && !may(m, "a") && !allowed(m, end_id),
	      "after the thought");
	say(m, "\n\n{\"a\": 1}", false);
	CHECK(m->ops->whole(m), "the end");
	m->ops->free(m);

	m = start(object, NULL, false, true);
	CHECK(may(m, "<think>") && may(m, "{") && !may(m, "\n"), "a thought may begin");
	say(m, "<think>so</think>{\"a\":1}", false);
	CHECK(m->ops->whole(m) && !may(m, "<think>"), "the end");
	m->ops->free(m);

	/* A number is complete and may go on. */
	m = start("{\"type\":\"integer\"}", NULL, false, false);
	say(m, "1", false);
	CHECK(allowed(m, end_id) && may(m, "2") && !m->ops->whole(m), "1");
	m->ops->free(m);
}

static void test_calls(void)
{
	struct mask_source *m = start(NULL, object, false, false);

	CHECK(!m->ops->mask(m), "content is free");
	say(m, "I will call: ", true);
	CHECK(!m->ops->mask(m), "content is free");
	say(m, "<tool_call>", true);
	CHECK(m->ops->mask(m) && may(m, "\n") && may(m, "{") && !may(m, "a") && !may(m, "</tool_call>"), "in a call");
	say(m, "\n{\"a\": 1}", false);
	CHECK(may(m, "</tool_call>") && may(m, "\n") && !may(m, "{") && !allowed(m, end_id) && !m->ops->whole(m),
	      "its end");
	say(m, "\n</tool_call>", false);
	CHECK(!m->ops->mask(m), "behind it");
	say(m, "\n<tool_call>\n{\"a\": 2}\n</tool_call>", false);
	CHECK(!m->ops->mask(m), "behind the second");
	/* What the answer is made to say may be no such call: then it is free. */
	say(m, "<tool_call>[[", true);
	CHECK(!m->ops->mask(m), "something else");
	m->ops->free(m);

	/* Content of a form, or calls. */
	m = start(object, object, false, false);
	CHECK(may(m, "<tool_call>") && may(m, "{") && !may(m, "a"), "either");
	say(m, "<tool_call>{\"a\":1}</tool_call>", false);
	CHECK(may(m, "<tool_call>") && allowed(m, end_id) && !may(m, "a"), "more calls or the end");
	m->ops->free(m);
	m = start(object, object, false, false);
	say(m, "{", false);
	CHECK(!may(m, "<tool_call>"), "content has begun");
	m->ops->free(m);
}

static const char tools[] =
	"[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
	"\"integer\"},\"b\":{\"type\":\"boolean\"}},\"required\":[\"a\"],\"additionalProperties\":false}}}]";

/* Calls without tags. */
static struct mask_source *start_alone(enum calls_form form, const char *content, bool must, bool thinking,
                                       bool may_think)
{
	struct constraint_rules r = {
		.tokenizer = tok,
		.vocab = vocab,
		.thinking = thinking,
		.may_think = may_think,
		.end = &end_id,
		.n_end = 1,
		.content = content ? made(content) : NULL,
		.call_alone = true,
		.mark = form == CALLS_LLAMA ? '"' : '(',
		.n_mark = form == CALLS_LLAMA ? 4 : 1,
		.must_call = must,
	};
	struct json *j = json_parse(tools, strlen(tools), 0, NULL);
	struct mask_source *m;
	struct err err;

	CHECK(!grammar_compile_calls(j, form, NULL, true, &r.call, &err), "%s", err.msg);
	json_free(j);
	m = constraint_new(&r);
	grammar_unref(r.content);
	grammar_unref(r.call);
	return m;
}

static void test_alone(void)
{
	struct mask_source *m = start_alone(CALLS_LLAMA, NULL, false, false, false);

	CHECK(!m->ops->mask(m), "free: it may be anything");
	say(m, "{\"name\": \"ad", true);
	CHECK(!m->ops->mask(m), "and still");
	say(m, "d\"", true);
	CHECK(m->ops->mask(m) && may(m, ",") && !may(m, "}") && !allowed(m, end_id), "a call for certain");
	say(m, ", \"parameters\": {\"a\": 12, \"b\": false}}", false);
	CHECK(allowed(m, end_id) && may(m, ";") && !may(m, ",") && !m->ops->whole(m), "one call");
	say(m, "; {\"name\": \"add\", \"parameters\": {\"a\": 1", false);
	CHECK(!allowed(m, end_id) && may(m, "}") && !may(m, "."), "another");
	m->ops->free(m);

	m = start_alone(CALLS_LLAMA, NULL, false, false, false);
	say(m, "{\"name\": \"Ada\"", true);
	CHECK(!m->ops->mask(m), "a value, and no call");
	m->ops->rollback(m, 3);
	m->ops->free(m);
	m = start_alone(CALLS_LLAMA, NULL, false, true, false);
	say(m, "{\"name\": \"add\"</think>\n\n{\"name\": \"add\"", true);
	CHECK(m->ops->mask(m) && may(m, ","), "after a thought");
	m->ops->free(m);
	m = start_alone(CALLS_LLAMA, NULL, false, false, false);
	say(m, "Well, {\"name\": \"add\"", true);
	CHECK(!m->ops->mask(m), "not the whole answer");
	m->ops->free(m);
	m = start_alone(CALLS_LLAMA, object, false, false, false);
	say(m, "{\"", false);
	CHECK(may(m, "a") && !may(m, "n"), "content of a form is no call");
	m->ops->free(m);

	m = start_alone(CALLS_LLAMA, object, true, false, true);
	CHECK(may(m, "<think>") && may(m, "{") && !may(m, "a") && !allowed(m, end_id), "it must call, and may think");
	say(m, "<think>a</think>{\"name\":", false);
	CHECK(!may(m, "<think>"), "it has");
	say(m, " \"add\", \"parameters\": {\"a\": 2}}", false);
	CHECK(allowed(m, end_id) && !may(m, "a"), "and nothing else");
	m->ops->free(m);

	m = start_alone(CALLS_PYTHON, NULL, false, false, false);
	say(m, "[add", true);
	CHECK(!m->ops->mask(m), "a list, perhaps");
	say(m, "(", true);
	CHECK(m->ops->mask(m) && may(m, "a") && !may(m, "b"), "a call for certain");
	say(m, "a=12, b=True)", false);
	CHECK(may(m, "]") && may(m, ",") && !allowed(m, end_id), "its end");
	say(m, "]", false);
	CHECK(m->ops->whole(m) && allowed(m, end_id), "the end");
	m->ops->free(m);
}

static struct mask_source *start_of(uint64_t seed)
{
	if (seed % 4 == 3)
		return start_alone(seed % 8 == 3 ? CALLS_LLAMA : CALLS_PYTHON, NULL, seed % 5 != 0, seed % 16 > 8,
		                   seed % 3 == 0);
	return start(object, object, seed % 2, seed % 3 == 0);
}

/* A walk with steps back tells the same as one that never went there. */
static void test_back(uint64_t seed)
{
	struct mask_source *m = start_of(seed), *fresh;
	int32_t took[200];
	int n = 0, size = tokenizer_size(tok);

	for (uint64_t i = 0; i < 60; i++) {
		const uint32_t *mask = m->ops->mask(m);
		int32_t id = (int32_t)(rng_bits(seed, i, 1) % (uint64_t)size);

		if (m->ops->whole(m) || (n && rng_bits(seed, i, 2) % 4 == 0)) {
			int k = (int)(rng_bits(seed, i, 3) % (uint64_t)(n + 1));

			m->ops->rollback(m, k);
			n -= k;
			continue;
		}
		if (rng_bits(seed, i, 4) % 3 == 0)
			id = tokenizer_find(tok, rng_bits(seed, i, 5) % 2 ? "</think>" : "<tool_call>",
			                    rng_bits(seed, i, 5) % 2 ? 8 : 11);
		for (int32_t k = 0; mask && !(mask[id / 32] >> (id % 32) & 1) && k <= size; k++)
			id = (id + 1) % size;
		if (id == end_id)
			continue;
		CHECK(!mask || mask[id / 32] >> (id % 32) & 1, "nothing may follow");
		m->ops->accept(m, id);
		took[n++] = id;
	}
	fresh = start_of(seed);
	for (int i = 0; i < n; i++)
		fresh->ops->accept(fresh, took[i]);
	const uint32_t *a = m->ops->mask(m), *b = fresh->ops->mask(fresh);

	CHECK(!a == !b && (!a || !memcmp(a, b, (size_t)(size + 31) / 32 * 4)), "masks differ, seed %llu",
	      (unsigned long long)seed);
	CHECK(m->ops->whole(m) == fresh->ops->whole(fresh), "whole");
	m->ops->free(m);
	fresh->ops->free(fresh);
}

/* Is it a token for a byte that no UTF-8 has?  Grammars know the marks by such bytes. */
static bool is_odd_byte(int32_t id)
{
	size_t n = 0;
	const char *p = tokenizer_is_added(tok, id) ? NULL : tokenizer_token_bytes(tok, id, &n);

	for (size_t i = 0; p && i < n; i++)
		if ((unsigned char)p[i] >= MARK_FIRST)
			return true;
	return false;
}

/* Strings between marks: a mark is said by its own token, and by no token of a byte. */
static void test_marks(void)
{
	static const char *const texts[] = { "<tool_call>", NULL };
	static const char tool[] =
		"[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
		"\"properties\":{\"s\":{\"type\":\"string\"}},\"required\":[\"s\"]}}}]";
	static const char *const said[] = { "call:f{s:", "\xF8", "ab", "\xF8" };
	struct json *j = json_parse(tool, strlen(tool), 0, NULL);
	int32_t id_mark = tokenizer_find(tok, texts[0], strlen(texts[0]));
	struct calls_spelling spelling = *dialect_gemma.held; /* whose own mark is no token of this model */
	struct call_marks marks;
	struct vocab *v;
	struct grammar *g;
	struct matcher *m;
	struct err err;
	int n_odd = 0;

	spelling.quote = texts[0];
	constraint_marks(tok, texts, &marks);
	CHECK(marks.n == 1, "the mark is a token");
	v = constraint_vocab(tok, &marks);
	CHECK(!grammar_compile_spelled(j, &spelling, &marks, NULL, true, &g, &err), "%s", err.msg);
	m = matcher_new(g);
	for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
		const uint32_t *mask;

		CHECK(matcher_put(m, said[i], strlen(said[i])), "part %zu of a call", i);
		mask = matcher_mask(m, v);
		CHECK((mask[id_mark / 32] >> (id_mark % 32) & 1) == (i < 3), "the mark behind part %zu", i);
		for (int32_t id = 0; id < vocab_size(v); id++) {
			bool odd = is_odd_byte(id);

			n_odd += odd;
			CHECK(!odd || !(mask[id / 32] >> (id % 32) & 1), "token %d stands for a mark", id);
		}
	}
	CHECK(n_odd > 0, "this vocabulary has tokens for such bytes");
	matcher_free(m);
	grammar_unref(g);
	vocab_free(v);
	json_free(j);
}

int main(int argc, char **argv)
{
	char path[1000];
	struct buf text;
	struct err err;

	CHECK(argc > 1, "no model folder");
	snprintf(path, sizeof path, "%s/tokenizer.json", argv[1]);
	buf_init(&text);
	CHECK(!file_read(path, 1 << 26, &text, &err), "%s", err.msg);
	CHECK(!tokenizer_open(&tok, text.p, text.n, &err), "%s", err.msg);
	buf_fini(&text);
	vocab = constraint_vocab(tok, NULL);
	end_id = tokenizer_find(tok, "<|im_end|>", 10);
	CHECK(end_id >= 0 && tokenizer_is_added(tok, end_id), "<|im_end|>");
	test_parts();
	test_calls();
	test_alone();
	test_marks();
	for (uint64_t seed = 1; seed <= (getenv("WEFT_TEST_QUICK") ? 60 : 400); seed++)
		test_back(seed);
	vocab_free(vocab);
	tokenizer_close(tok);
	return 0;
}
