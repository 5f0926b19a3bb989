/* folder_tokens.c - the tokenizer of a GGUF file from tokenizer.json, with special tokens, chat template and sampling.
 *
 * Byte-level pairs are written; the way they cut text must have a name (gguf_pre.c).  A vocabulary by ranks, as of a
 * tekken.json, has no merges: two tokens whose texts together are a third are one, those of the lowest rank first. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "export/folder_making.h"
#include "store/gguf_pre.h"
#include "store/gguf_vocab.h"

struct token {
	const char *p; /* NULL: no token has this id */
	size_t n;
	int type;
};

struct tokens_made {
	struct making *m;
	const struct json *tokenizer, *model;
	bool ranked; /* the vocabulary is by ranks, which are in the order of ids */
	struct token *tok;
	int64_t n; /* rows of the embedding */
};

static bool is(const struct json *j, const char *text)
{
	size_t n;
	const char *s = json_str(j, &n);

	return s && n == strlen(text) && !memcmp(s, text, n);
}

/* ---- the list ---- */

static void token_set(struct tokens_made *t, int64_t id, const char *p, size_t n, int type)
{
	if (id < 0 || id >= t->n)
		making_fail(t->m, E_FORMAT, "tokenizer.json: token %" PRId64 ", the embedding has %" PRId64 " rows", id,
		            t->n);
	else
		t->tok[id] = (struct token){ p, n, type };
}

/* An array by id of [text, score], or null where a special token's id is. */
static void read_ranked(struct tokens_made *t)
{
	const struct json *vocab = json_get(t->model, "vocab");

	for (size_t i = 0; i < json_len(vocab) && !t->m->code; i++) {
		size_t n;
		const char *text = json_str(json_at(json_at(vocab, i), 0), &n);

		if (text)
			token_set(t, (int64_t)i, text, n, GGUF_NORMAL);
	}
}

static void read_tokens(struct tokens_made *t)
{
	const struct json *value, *added = json_get(t->tokenizer, "added_tokens");
	const char *text;
	int64_t id;

	if (t->ranked)
		read_ranked(t);
	for (struct json_cursor c = json_first(json_get(t->model, "vocab"));
	     !t->ranked && json_next(&c, &text, &value);)
		token_set(t, json_to_int(value, &id) ? -1 : id, text, strlen(text), GGUF_NORMAL);
	for (size_t i = 0; i < json_len(added); i++) {
		const struct json *a = json_at(added, i);
		bool special = true;
		size_t n;

		text = json_str(json_get(a, "content"), &n);
		if (!text || json_to_int(json_get(a, "id"), &id) || json_to_bool(json_get(a, "special"), &special))
			making_fail(t->m, E_FORMAT, "tokenizer.json: added token %zu has no id or content", i);
		else
			token_set(t, id, text, n, special ? GGUF_CONTROL : GGUF_USER);
	}
}

static void put_string(struct buf *b, const char *p, size_t n)
{
	uint64_t length = n;

	buf_put(b, &length, sizeof length);
	buf_put(b, p, n);
}

/* Rows of the embedding that no token has get a text of their own, as converters give them. */
static void put_tokens(struct tokens_made *t)
{
	struct buf text, type;

	buf_init(&text);
	buf_init(&type);
	for (int64_t i = 0; i < t->n; i++) {
		int32_t kind = t->tok[i].p ? t->tok[i].type : GGUF_UNUSED;
		char pad[32];

		snprintf(pad, sizeof pad, "[PAD%" PRId64 "]", i);
		put_string(&text, t->tok[i].p ? t->tok[i].p : pad, t->tok[i].p ? t->tok[i].n : strlen(pad));
		buf_put(&type, &kind, sizeof kind);
	}
	pair_list(&t->m->p, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)t->n, text.p, text.n);
	pair_list(&t->m->p, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)t->n, type.p, type.n);
	buf_fini(&text);
	buf_fini(&type);
}

/* A merge is "left right", or a list of both. */
static void put_merges(struct tokens_made *t)
{
	const struct json *merges = json_get(t->model, "merges");
	struct buf all, one;

	buf_init(&all);
	buf_init(&one);
	for (size_t i = 0; i < json_len(merges) && !t->m->code; i++) {
		const struct json *j = json_at(merges, i);
		size_t n[2] = { 0, 0 };
		const char *s[2] = { json_str(j, &n[0]), "" };

		if (json_kind(j) == JSON_ARRAY)
			for (int k = 0; k < 2; k++)
				s[k] = json_str(json_at(j, (size_t)k), &n[k]);
		if (!s[0] || !s[1])
			making_fail(t->m, E_FORMAT, "tokenizer.json: merge %zu is not two texts", i);
		buf_reset(&one);
		if (s[0])
			buf_put(&one, s[0], n[0]);
		if (json_kind(j) == JSON_ARRAY && s[1]) {
			buf_putc(&one, ' ');
			buf_put(&one, s[1], n[1]);
		}
		put_string(&all, one.p ? one.p : "", one.n);
	}
	pair_list(&t->m->p, "tokenizer.ggml.merges", GGUF_STRING, json_len(merges), all.p, all.n);
	buf_fini(&all);
	buf_fini(&one);
}

/* ---- merges of a vocabulary by ranks ---- */

static int by_text(const void *a, const void *b)
{
	const struct token *x = *(const struct token *const *)a, *y = *(const struct token *const *)b;
	int c = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);

	return c ? c : (x->n > y->n) - (x->n < y->n);
}

/* A token's text cut in two, where both halves are tokens. */
struct split {
	const struct token *left, *right;
};

static int by_rank(const void *a, const void *b)
{
	const struct split *x = a, *y = b;

	if (x->left != y->left)
		return x->left < y->left ? -1 : 1;
	return (x->right > y->right) - (x->right < y->right);
}

static const struct token *token_of(const struct token *const *sorted, size_t n, const char *p, size_t len)
{
	struct token key = { p, len, 0 }, *at = &key;
	const struct token *const *found = bsearch(&at, sorted, n, sizeof *sorted, by_text);

	return found ? *found : NULL;
}

/* Appends the merges that give `whole`; their number. */
static uint64_t put_splits(const struct token *const *sorted, size_t n, const struct token *whole, struct buf *all)
{
	struct split *split = xmalloc(size_mul(whole->n + 1, sizeof *split));
	uint64_t found = 0;

	for (size_t at = 1; at < whole->n; at++) {
		struct split s;

		if (((unsigned char)whole->p[at] & 0xC0) == 0x80) /* inside a character, which is a byte */
			continue;
		s.left = token_of(sorted, n, whole->p, at);
		s.right = s.left ? token_of(sorted, n, whole->p + at, whole->n - at) : NULL;
		if (s.right)
			split[found++] = s;
	}
	qsort(split, found, sizeof *split, by_rank);
	for (uint64_t i = 0; i < found; i++) {
		uint64_t length = whole->n + 1;

		buf_put(all, &length, sizeof length);
		buf_put(all, split[i].left->p, split[i].left->n);
		buf_putc(all, ' ');
		buf_put(all, split[i].right->p, split[i].right->n);
	}
	free(split);
	return found;
}

static void put_ranked_merges(struct tokens_made *t)
{
	const struct token **sorted = xmalloc(size_mul((size_t)t->n + 1, sizeof *sorted));
	uint64_t merges = 0;
	struct buf all;
	size_t n = 0;

	for (int64_t i = 0; i < t->n; i++)
		if (t->tok[i].p && t->tok[i].type == GGUF_NORMAL)
			sorted[n++] = &t->tok[i];
	qsort(sorted, n, sizeof *sorted, by_text);
	buf_init(&all);
	for (int64_t i = 0; i < t->n; i++)
		if (t->tok[i].p && t->tok[i].type == GGUF_NORMAL)
			merges += put_splits(sorted, n, &t->tok[i], &all);
	for (int64_t i = 0; i < t->n; i++)
		if (t->tok[i].p && t->tok[i].type != GGUF_NORMAL && token_of(sorted, n, t->tok[i].p, t->tok[i].n))
			making_fail(t->m, E_UNSUPPORTED,
			            "tokenizer: special token %" PRId64
			            " has the text of an ordinary one, which a GGUF file cannot tell apart",
			            i);
	pair_list(&t->m->p, "tokenizer.ggml.merges", GGUF_STRING, merges, all.p, all.n);
	buf_fini(&all);
	free(sorted);
}

/* ---- how text is cut ---- */

/* Adds a step of the pre-tokenizer; false: none that expressions say. */
static bool add_step(const struct json *j, const char **step, int *n, bool *bytes)
{
	bool regex = true;
	size_t length;

	if (is(json_get(j, "type"), "ByteLevel")) {
		*bytes = true;
		if (json_get(j, "use_regex") && json_to_bool(json_get(j, "use_regex"), &regex))
			return false;
		if (regex && *n < GGUF_PRE_STEPS)
			step[(*n)++] = GGUF_PRE_BYTE_LEVEL;
		return !regex || *n < GGUF_PRE_STEPS;
	}
	if (!is(json_get(j, "type"), "Split") || !is(json_get(j, "behavior"), "Isolated") || *n == GGUF_PRE_STEPS)
		return false;
	step[*n] = json_str(json_get(json_get(j, "pattern"), "Regex"), &length);
	return step[(*n)++] != NULL;
}

static void put_pre(struct tokens_made *t)
{
	const struct json *pre = json_get(t->tokenizer, "pre_tokenizer"), *list = json_get(pre, "pretokenizers");
	const char *step[GGUF_PRE_STEPS + 1] = { NULL }, *name = NULL;
	bool bytes = false, known = true, whole = t->ranked, other = false;
	int n = 0, length = 0;

	if (list)
		for (size_t i = 0; i < json_len(list); i++)
			known &= add_step(json_at(list, i), step, &n, &bytes);
	else
		known = add_step(pre, step, &n, &bytes);
	if (json_get(t->model, "ignore_merges"))
		known &= !json_to_bool(json_get(t->model, "ignore_merges"), &whole);
	if (known && bytes)
		name = gguf_pre_name(step, n, whole, &length, &other);
	if (!name)
		making_fail(t->m, E_UNSUPPORTED,
		            "tokenizer.json: GGUF has no name here for the way in which it cuts text%s",
		            bytes ? "" : ", which is not that of byte-level pairs");
	else
		pair_text(&t->m->p, "tokenizer.ggml.pre", name, (size_t)length);
	if (other)
		log_warn("%s: readers of GGUF cut words with capitals or marks beyond ASCII otherwise than its own "
		         "tokenizer (%.*s)",
		         t->m->st->dir, length, name);
}

/* Whether a token goes before every text. */
static bool adds_bos(const struct tokens_made *t)
{
	const struct json *post = json_get(t->tokenizer, "post_processor"), *list = json_get(post, "processors"),
			  *one = post;
	bool flag = false;

	for (size_t i = 0; i < json_len(list); i++)
		if (is(json_get(json_at(list, i), "type"), "TemplateProcessing"))
			one = json_at(list, i);
	if (is(json_get(one, "type"), "TemplateProcessing"))
		return json_get(json_at(json_get(one, "single"), 0), "SpecialToken") != NULL;
	if (json_to_bool(json_get(t->m->st->tokenizer_config, "add_bos_token"), &flag))
		flag = false;
	return flag;
}

/* ---- special tokens ---- */

/* The id of a token that tokenizer_config.json names, by its text or an object around it; -1: none. */
static int64_t named(const struct tokens_made *t, const char *member)
{
	const struct json *j = json_get(t->m->st->tokenizer_config, member);
	size_t n;
	const char *text = json_str(json_kind(j) == JSON_OBJECT ? json_get(j, "content") : j, &n);

	for (int64_t i = 0; i < t->n && text; i++)
		if (t->tok[i].p && t->tok[i].n == n && !memcmp(t->tok[i].p, text, n))
			return i;
	return -1;
}

static void put_specials(struct tokens_made *t)
{
	static const char *const of[][2] = { { "bos_token", "tokenizer.ggml.bos_token_id" },
		                             { "eos_token", "tokenizer.ggml.eos_token_id" },
		                             { "unk_token", "tokenizer.ggml.unknown_token_id" },
		                             { "pad_token", "tokenizer.ggml.padding_token_id" } };

	for (int i = 0; i < 4; i++) {
		int64_t id = named(t, of[i][0]);
		int32_t stop;

		if (id < 0 && i == 1 && store_eos(t->m->st, &stop, 1) == 1 && stop >= 0 && stop < t->n)
			id = stop;
		if (id >= 0)
			pair_u32(&t->m->p, of[i][1], (uint32_t)id);
	}
	pair_bool(&t->m->p, "tokenizer.ggml.add_bos_token", adds_bos(t));
}

/* ---- beside the tokenizer ---- */

static void put_template(struct making *m)
{
	struct err err = { 0 };
	char *text = store_chat_template(m->st, &err);

	if (text)
		pair_text(&m->p, "tokenizer.chat_template", text, strlen(text));
	free(text);
}

static void put_sampling(struct making *m)
{
	static const char *const of[][2] = { { "temperature", "general.sampling.temp" },
		                             { "top_p", "general.sampling.top_p" },
		                             { "min_p", "general.sampling.min_p" },
		                             { "repetition_penalty", "general.sampling.penalty_repeat" } };
	const struct json *j = m->st->generation;
	bool sample;
	double v;
	int64_t k;

	if (json_to_bool(json_get(j, "do_sample"), &sample))
		sample = true;
	for (int i = 0; i < 4; i++)
		if (!i && !sample)
			pair_f32(&m->p, of[i][1], 0);
		else if (!json_to_double(json_get(j, of[i][0]), &v))
			pair_f32(&m->p, of[i][1], v);
	if (!json_to_int(json_get(j, "top_k"), &k) && k >= 0 && k <= INT32_MAX)
		pair_u32(&m->p, "general.sampling.top_k", (uint32_t)k);
}

static void put_all(struct tokens_made *t)
{
	t->model = json_get(t->tokenizer, "model");
	t->ranked = is(json_get(t->model, "type"), "ScoredBPE");
	if (!(t->ranked || is(json_get(t->model, "type"), "BPE")) ||
	    json_kind(json_get(t->model, "vocab")) != (t->ranked ? JSON_ARRAY : JSON_OBJECT)) {
		making_fail(t->m, E_UNSUPPORTED, "tokenizer.json: GGUF files are written of byte-level pairs (BPE)");
		return;
	}
	pair_text(&t->m->p, "tokenizer.ggml.model", "gpt2", 4);
	put_pre(t);
	read_tokens(t);
	if (t->m->code)
		return;
	put_tokens(t);
	if (t->ranked)
		put_ranked_merges(t);
	else
		put_merges(t);
	put_specials(t);
}

void making_tokens(struct making *m, int64_t vocabulary)
{
	struct tokens_made t = { .m = m, .n = vocabulary };
	struct json *root = NULL;
	struct buf text;
	int rc;

	buf_init(&text);
	rc = store_document(m->st, "tokenizer.json", &text, m->err);
	if (!rc && !(root = json_parse(text.p, text.n, 0, m->err)))
		rc = err_prefix(m->err, "%s", store_place(m->st, "tokenizer.json"));
	if (rc == E_MISSING) {
		log_warn("%s: has no tokenizer.json: the GGUF file will have no tokenizer", m->st->dir);
	} else if (rc) {
		m->code = rc;
	} else if (vocabulary > GGUF_TOKENS_MAX) {
		making_fail(m, E_LIMIT, "%" PRId64 " tokens, at most %d", vocabulary, GGUF_TOKENS_MAX);
	} else {
		t.tokenizer = root;
		t.tok = xcalloc((size_t)vocabulary + 1, sizeof *t.tok);
		put_all(&t);
		free(t.tok);
	}
	json_free(root);
	buf_fini(&text);
	if (m->code)
		return;
	put_template(m);
	put_sampling(m);
}
