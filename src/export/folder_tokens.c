/* folder_tokens.c - the tokenizer of a GGUF file from tokenizer.json, with special tokens, chat template and sampling.
 *
 * Byte-level pairs are written here; the way they cut text must have a name (gguf_pre.c).  A vocabulary by ranks, as of a
 * tekken.json or tiktoken.model, has no merges: two tokens whose texts together are a third are one, those of the lowest rank
 * first. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "export/folder_vocab.h"
#include "store/byte_text.h"
#include "store/gguf/gguf_pre.h"

bool json_says(const struct json *j, const char *text)
{
	size_t n;
	const char *s = json_str(j, &n);

	return s && n == strlen(text) && !memcmp(s, text, n);
}

/* ---- the list ---- */

static void token_set(struct tokens_made *t, int64_t id, struct token token)
{
	if (id < 0 || id >= t->n)
		making_fail(t->m, E_FORMAT, "tokenizer.json: token %" PRId64 ", the embedding has %" PRId64 " rows", id,
		            t->n);
	else
		t->tok[id] = token;
}

/* An array by id of [text, score], or null where a special token's id is. */
static void read_listed(struct tokens_made *t)
{
	const struct json *vocab = json_get(t->model, "vocab");

	for (size_t i = 0; i < json_len(vocab) && !t->m->code; i++) {
		struct token token = { .type = GGUF_NORMAL, .inside = true };
		double score = 0;

		token.p = json_str(json_at(json_at(vocab, i), 0), &token.n);
		if (json_to_double(json_at(json_at(vocab, i), 1), &score))
			score = 0;
		token.score = (float)score;
		if (!isfinite(token.score))
			making_fail(t->m, E_FORMAT, "tokenizer.json: token %zu: a score of %g is none of float32", i,
			            score);
		t->rounded |= (double)token.score != score;
		if (token.p)
			token_set(t, (int64_t)i, token);
	}
}

static void read_added(struct tokens_made *t, const struct json *a, size_t i)
{
	struct token token = { .type = GGUF_CONTROL };
	bool special = true;
	int64_t id;

	token.p = json_str(json_get(a, "content"), &token.n);
	if (!token.p || json_to_int(json_get(a, "id"), &id) || json_to_bool(json_get(a, "special"), &special)) {
		making_fail(t->m, E_FORMAT, "tokenizer.json: added token %zu has no id or content", i);
		return;
	}
	token.type = special ? GGUF_CONTROL : GGUF_USER;
	if (json_to_bool(json_get(a, "normalized"), &token.normalized))
		token.normalized = !special;
	if (id >= 0 && id < t->n) {
		token.inside = t->tok[id].inside;
		token.score = t->tok[id].score;
	}
	token_set(t, id, token);
}

void vocab_read(struct tokens_made *t)
{
	const struct json *value, *added = json_get(t->tokenizer, "added_tokens");
	const char *text;
	int64_t id;

	if (t->listed)
		read_listed(t);
	for (struct json_cursor c = json_first(json_get(t->model, "vocab"));
	     !t->listed && json_next(&c, &text, &value);)
		token_set(t, json_to_int(value, &id) ? -1 : id,
		          (struct token){ .p = text, .n = strlen(text), .type = GGUF_NORMAL, .inside = true });
	for (size_t i = 0; i < json_len(added); i++)
		read_added(t, json_at(added, i), i);
}

static void put_string(struct buf *b, const char *p, size_t n)
{
	uint64_t length = n;

	buf_put(b, &length, sizeof length);
	buf_put(b, p, n);
}

void vocab_put(struct tokens_made *t, const char *pad)
{
	struct buf text, type;

	buf_init(&text);
	buf_init(&type);
	for (int64_t i = 0; i < t->n; i++) {
		int32_t kind = t->tok[i].p ? t->tok[i].type : GGUF_UNUSED;
		char none[32];

		snprintf(none, sizeof none, "[%s%" PRId64 "]", pad, i);
		put_string(&text, t->tok[i].p ? t->tok[i].p : none, t->tok[i].p ? t->tok[i].n : strlen(none));
		buf_put(&type, &kind, sizeof kind);
	}
	pair_list(&t->m->p, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)t->n, text.p, text.n);
	pair_list(&t->m->p, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)t->n, type.p, type.n);
	buf_fini(&text);
	buf_fini(&type);
}

/* A merge is "left right", or a list of both. */
bool merge_read(struct tokens_made *t, size_t i, struct merge_text *out)
{
	const struct json *j = json_at(json_get(t->model, "merges"), i);
	const char *cut;
	size_t n;

	*out = (struct merge_text){ .p = { NULL } };
	if (json_kind(j) == JSON_ARRAY) {
		for (size_t k = 0; k < 2; k++)
			out->p[k] = json_str(json_at(j, k), &out->n[k]);
	} else if ((out->p[0] = json_str(j, &n)) && (cut = memchr(out->p[0], ' ', n))) {
		out->n[0] = (size_t)(cut - out->p[0]);
		out->p[1] = cut + 1;
		out->n[1] = n - out->n[0] - 1;
	}
	if (!out->p[0] || !out->p[1])
		making_fail(t->m, E_FORMAT, "tokenizer.json: merge %zu is not two texts", i);
	return out->p[0] && out->p[1];
}

void vocab_put_merges(struct tokens_made *t)
{
	size_t n = json_len(json_get(t->model, "merges"));
	struct merge_text one;
	struct buf all;

	buf_init(&all);
	for (size_t i = 0; i < n && merge_read(t, i, &one); i++) {
		uint64_t length = one.n[0] + 1 + one.n[1];

		buf_put(&all, &length, sizeof length);
		buf_put(&all, one.p[0], one.n[0]);
		buf_putc(&all, ' ');
		buf_put(&all, one.p[1], one.n[1]);
	}
	if (!t->m->code)
		pair_list(&t->m->p, "tokenizer.ggml.merges", GGUF_STRING, n, all.p, all.n);
	buf_fini(&all);
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
	struct token key = { .p = p, .n = len }, *at = &key;
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

/* Characters of s[at, n): where the next one begins. */
static size_t behind_character(const char *p, size_t n, size_t at)
{
	for (at++; at < n && ((unsigned char)p[at] & 0xC0) == 0x80; at++)
		;
	return at;
}

/* Whether neighbours of its text, those of the lowest rank joined first, become the token. */
static bool is_joined(const struct token *const *sorted, size_t n, const struct token *whole, size_t *end)
{
	size_t k = 0;

	for (size_t at = 0; at < whole->n; k++)
		end[k] = at = behind_character(whole->p, whole->n, at);
	while (k > 1) {
		const struct token *best = NULL;
		size_t at = 0;

		for (size_t i = 0; i + 1 < k; i++) {
			size_t from = i ? end[i - 1] : 0;
			const struct token *made = token_of(sorted, n, whole->p + from, end[i + 1] - from);

			if (made && (!best || made < best)) { /* by id, which is the rank */
				best = made;
				at = i;
			}
		}
		if (!best)
			return false;
		memmove(end + at, end + at + 1, (k - at - 1) * sizeof *end);
		k--;
	}
	return true;
}

enum { JOINING_MOST = 1 << 26 };

/* Whether each token is what its own text is joined to, so that it makes no difference to take whole pieces first. */
static bool all_joined(const struct tokens_made *t)
{
	const struct token **sorted = xmalloc(size_mul((size_t)t->n + 1, sizeof *sorted));
	uint64_t work = 0;
	size_t n = 0, most = 0, *end;
	bool all = true;

	for (int64_t i = 0; i < t->n; i++)
		if (t->tok[i].p && t->tok[i].type == GGUF_NORMAL) {
			sorted[n++] = &t->tok[i];
			most = t->tok[i].n > most ? t->tok[i].n : most;
			work += (uint64_t)t->tok[i].n * t->tok[i].n;
		}
	all = work < JOINING_MOST; /* vocabularies have a tenth of it */
	qsort(sorted, n, sizeof *sorted, by_text);
	end = xmalloc(size_mul(most + 1, sizeof *end));
	for (int64_t i = 0; i < t->n && all; i++)
		if (t->tok[i].p && t->tok[i].type == GGUF_NORMAL)
			all = is_joined(sorted, n, &t->tok[i], end);
	free(end);
	free(sorted);
	return all;
}

/* ---- how text is cut ---- */

/* Adds a step of the pre-tokenizer; false: none that expressions say. */
static bool add_step(const struct json *j, const char **step, int *n, bool *bytes)
{
	bool regex = true;
	size_t length;

	if (json_says(json_get(j, "type"), "ByteLevel")) {
		*bytes = true;
		if (json_get(j, "use_regex") && json_to_bool(json_get(j, "use_regex"), &regex))
			return false;
		if (regex && *n < GGUF_PRE_STEPS)
			step[(*n)++] = GGUF_PRE_BYTE_LEVEL;
		return !regex || *n < GGUF_PRE_STEPS;
	}
	if (!json_says(json_get(j, "type"), "Split") || !json_says(json_get(j, "behavior"), "Isolated") ||
	    *n == GGUF_PRE_STEPS)
		return false;
	step[*n] = json_str(json_get(json_get(j, "pattern"), "Regex"), &length);
	return step[(*n)++] != NULL;
}

static void put_pre(struct tokens_made *t)
{
	const struct json *pre = json_get(t->tokenizer, "pre_tokenizer"), *list = json_get(pre, "pretokenizers");
	const char *step[GGUF_PRE_STEPS + 1] = { NULL }, *name = NULL;
	bool bytes = false, known = true, whole = t->listed, other = false;
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
	if (known && bytes && !name && t->listed && all_joined(t))
		name = gguf_pre_name(step, n, false, &length, &other);
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

/* ---- special tokens ---- */

/* The tokens that go around every text: how many on each side, and the id of the last one read. */
struct around {
	int n[2];
	int64_t id[2];
	bool said; /* tokenizer.json has a step that says it */
};

static void around_put(struct around *a, int side, int64_t id)
{
	a->n[side]++;
	a->id[side] = id;
}

static void read_template(const struct json *step, struct around *a)
{
	const struct json *single = json_get(step, "single"), *known = json_get(step, "special_tokens");
	int side = 0;

	a->said = true;
	for (size_t i = 0; i < json_len(single); i++) {
		const char *name = json_str(json_get(json_get(json_at(single, i), "SpecialToken"), "id"), NULL);
		const struct json *ids = name ? json_get(json_get(known, name), "ids") : NULL;
		int64_t id;

		for (size_t k = 0; name && k < json_len(ids); k++)
			around_put(a, side, json_to_int(json_at(ids, k), &id) ? -1 : id);
		side |= !name;
	}
}

static void read_around(const struct tokens_made *t, const struct json *step, struct around *a, int depth)
{
	static const char *const pair[] = { "cls", "sep" };
	const struct json *list = json_get(step, "processors"), *type = json_get(step, "type");
	int64_t id;

	for (size_t i = 0; depth < 8 && i < json_len(list); i++)
		read_around(t, json_at(list, i), a, depth + 1);
	if (json_says(type, "TemplateProcessing"))
		read_template(step, a);
	for (int side = 0; side < 2 && (json_says(type, "BertProcessing") || json_says(type, "RobertaProcessing"));
	     side++) {
		a->said = true;
		around_put(a, side, json_to_int(json_at(json_get(step, pair[side]), 1), &id) ? -1 : id);
	}
}

int64_t vocab_find(const struct tokens_made *t, const char *text, size_t n)
{
	for (int64_t i = 0; i < t->n; i++)
		if (t->tok[i].p && t->tok[i].n == n && !memcmp(t->tok[i].p, text, n))
			return i;
	return -1;
}

/* The id of a token that tokenizer_config.json names, by its text or an object around it; -1: none. */
static int64_t named(const struct tokens_made *t, const char *member)
{
	const struct json *j = json_get(t->m->st->tokenizer_config, member);
	size_t n;
	const char *text = json_str(json_kind(j) == JSON_OBJECT ? json_get(j, "content") : j, &n);

	return text ? vocab_find(t, text, n) : -1;
}

/* A file has one token for before and one for behind a text, which are those that begin and end texts anyway. */
static int64_t settle_around(struct tokens_made *t, const struct around *a, int side, int64_t id)
{
	if (!t->pieces || !a->n[side])
		return id;
	if (a->n[side] > 1)
		making_fail(t->m, E_UNSUPPORTED,
		            "tokenizer.json: %d tokens %s every text: a GGUF file has a key for one", a->n[side],
		            side ? "behind" : "before");
	else if (a->id[side] < 0 || a->id[side] >= t->n)
		making_fail(t->m, E_FORMAT, "tokenizer.json: post_processor: no token %" PRId64, a->id[side]);
	else if (id >= 0 && id != a->id[side])
		making_fail(t->m, E_UNSUPPORTED,
		            "tokenizer.json: token %" PRId64 " goes %s every text, %s is %" PRId64
		            ": a GGUF file has one key for both",
		            a->id[side], side ? "behind" : "before", side ? "eos_token" : "bos_token", id);
	return a->id[side];
}

static void put_specials(struct tokens_made *t)
{
	static const char *const of[][2] = { { "bos_token", "tokenizer.ggml.bos_token_id" },
		                             { "eos_token", "tokenizer.ggml.eos_token_id" },
		                             { "unk_token", "tokenizer.ggml.unknown_token_id" },
		                             { "pad_token", "tokenizer.ggml.padding_token_id" } };
	struct around a = { .said = false };
	bool before = false;

	read_around(t, json_get(t->tokenizer, "post_processor"), &a, 0);
	for (int i = 0; i < 4 && !t->m->code; i++) {
		int64_t id = i == 2 && t->pieces ? t->unknown : named(t, of[i][0]);
		int32_t stop;

		if (id < 0 && i == 1 && !(t->pieces && a.n[1]) && store_eos(t->m->st, &stop, 1) == 1 && stop >= 0 &&
		    stop < t->n)
			id = stop;
		if (i < 2)
			id = settle_around(t, &a, i, id);
		if (id >= 0 && !t->m->code)
			pair_u32(&t->m->p, of[i][1], (uint32_t)id);
	}
	if (!a.said && json_to_bool(json_get(t->m->st->tokenizer_config, "add_bos_token"), &before))
		before = false;
	pair_bool(&t->m->p, "tokenizer.ggml.add_bos_token", a.n[0] > 0 || before);
	if (t->pieces)
		pair_bool(&t->m->p, "tokenizer.ggml.add_eos_token", a.n[1] > 0);
}

/* ---- besides the tokenizer ---- */

/* The key of a template that is not the default one: a character of its name that is not a letter or digit becomes '_', as in
 * llama.cpp's converter.  Appends it. */
static void put_template_key(struct buf *key, const char *name)
{
	buf_puts(key, "tokenizer.chat_template.");
	for (; *name; name++) {
		bool plain = (*name >= '0' && *name <= '9') || (*name >= 'a' && *name <= 'z') ||
		             (*name >= 'A' && *name <= 'Z');

		buf_putc(key, plain ? *name : '_');
	}
}

/* Puts template i, which is not the first, and its name into the list of names; names that become one key are one template. */
static bool put_named(struct making *m, const struct store_templates *t, size_t i, struct buf *names)
{
	struct buf key, other;
	bool told = false;
	uint64_t n;

	buf_init(&key);
	buf_init(&other);
	put_template_key(&key, t->v[i].name);
	for (size_t k = 1; k < i && !told; k++) {
		buf_reset(&other);
		put_template_key(&other, t->v[k].name);
		told = !strcmp(key.p, other.p);
	}
	if (told || !*t->v[i].name) {
		log_warn("%s: the chat template \"%s\" is left out: a GGUF file cannot tell its name from another",
		         m->st->dir, t->v[i].name);
		told = true;
	} else {
		pair_text(&m->p, key.p, t->v[i].text, strlen(t->v[i].text));
		n = strlen(strrchr(key.p, '.') + 1);
		buf_put(names, &n, sizeof n);
		buf_put(names, strrchr(key.p, '.') + 1, n);
	}
	buf_fini(&other);
	buf_fini(&key);
	return !told;
}

/* Chat templates under the keys of llama.cpp's converter: the first under the plain one, the others under their names, with
 * a list of these. */
static void put_templates(struct making *m)
{
	struct store_templates t;
	struct buf names;
	uint64_t n = 0;

	buf_init(&names);
	m->code = store_templates_read(m->st, &t, m->err);
	if (!m->code && t.n)
		pair_text(&m->p, "tokenizer.chat_template", t.v[0].text, strlen(t.v[0].text));
	for (size_t i = 1; i < t.n && !m->code; i++)
		n += put_named(m, &t, i, &names);
	if (n)
		pair_list(&m->p, "tokenizer.chat_templates", GGUF_STRING, n, names.p, names.n);
	store_templates_end(&t);
	buf_fini(&names);
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

/* Whether the text is cut as bytes. */
static bool is_byte_level(const struct json *pre)
{
	const struct json *list = json_get(pre, "pretokenizers");

	for (size_t i = 0; i < json_len(list); i++)
		if (json_says(json_get(json_at(list, i), "type"), "ByteLevel"))
			return true;
	return json_says(json_get(pre, "type"), "ByteLevel");
}

static void put_bytes(struct tokens_made *t)
{
	pair_text(&t->m->p, "tokenizer.ggml.model", "gpt2", 4);
	vocab_read(t);
	if (!t->m->code)
		put_pre(t);
	if (t->m->code)
		return;
	vocab_put(t, "PAD");
	if (t->listed)
		put_ranked_merges(t);
	else
		vocab_put_merges(t);
}

/* ---- the longest match ---- */

/* The token's bytes as Python writes them, without its quotes: a quote of its own is escaped where both kinds are there. */
static void escape(struct tokens_made *t, struct token *token)
{
	uint8_t *bytes = xmalloc(token->n + 1);
	int64_t n = byte_text_read(bytes, token->p, token->n);
	bool quotes = n > 0 && memchr(bytes, '\'', (size_t)n) && memchr(bytes, '"', (size_t)n);
	struct buf text;

	buf_init(&text);
	if (n < 1)
		making_fail(t->m, E_FORMAT, "tokenizer.json: token %td is not written in the characters of bytes",
		            token - t->tok);
	for (int64_t i = 0; i < n; i++) {
		static const char plain[] = "\t\n\r\\", letter[] = "tnr\\";
		const char *known = bytes[i] ? strchr(plain, bytes[i]) : NULL;

		if (known)
			buf_printf(&text, "\\%c", letter[known - plain]);
		else if (bytes[i] < 0x20 || bytes[i] > 0x7E)
			buf_printf(&text, "\\x%02x", bytes[i]);
		else
			buf_printf(&text, "%s%c", quotes && bytes[i] == '\'' ? "\\" : "", bytes[i]);
	}
	token->p = arena_strndup(&t->m->s->g.arena, text.n ? text.p : "", text.n);
	token->n = text.n;
	buf_fini(&text);
	free(bytes);
}

/* RWKV's: what is not ASCII is escaped in the file. */
static void put_longest(struct tokens_made *t)
{
	pair_text(&t->m->p, "tokenizer.ggml.model", "rwkv", 4);
	vocab_read(t);
	for (int64_t i = 0; i < t->n && !t->m->code; i++)
		if (t->tok[i].p && t->tok[i].type == GGUF_NORMAL)
			escape(t, &t->tok[i]);
	if (!t->m->code)
		vocab_put(t, "PAD");
}

static void put_all(struct tokens_made *t)
{
	const struct json *type;
	bool longest;

	t->model = json_get(t->tokenizer, "model");
	t->unknown = -1;
	type = json_get(t->model, "type");
	longest = json_says(type, "Longest");
	t->listed = json_says(type, "ScoredBPE") || json_says(type, "Unigram");
	t->pieces = json_says(type, "Unigram") ||
	            (json_says(type, "BPE") && !is_byte_level(json_get(t->tokenizer, "pre_tokenizer")));
	if (!(t->listed || longest || json_says(type, "BPE")) ||
	    json_kind(json_get(t->model, "vocab")) != (t->listed ? JSON_ARRAY : JSON_OBJECT)) {
		making_fail(t->m, E_UNSUPPORTED,
		            "tokenizer.json: GGUF files are written of pairs (BPE) and of Unigram, with a vocabulary");
		return;
	}
	if (longest)
		put_longest(t);
	else if (t->pieces)
		pieces_put(t);
	else
		put_bytes(t);
	if (!t->m->code)
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
	put_templates(m);
	put_sampling(m);
}
