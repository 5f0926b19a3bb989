/* tokenizer.c - see tokenizer.h.
 *
 * The way of a text: added tokens that match the raw text; what is between them
 * normalised (nfc.c, or a chain of steps, normal.c); added tokens that match the
 * normalised text; pieces (pretok.c); tokens (token_model.h). */
#include "text/tokens/tokenizer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/tokens/added.h"
#include "text/tokens/bpe.h"
#include "text/tokens/token_decoder.h"
#include "text/tokens/detok.h"
#include "text/tokens/nfc.h"
#include "text/tokens/normal.h"
#include "text/tokens/pair.h"
#include "text/tokens/pretok.h"
#include "text/tokens/recent.h"
#include "text/tokens/token_model.h"

enum {
	NORMALIZER_DEPTH_MAX = 8,
};

struct tokenizer {
	struct token_model model; /* its words hold the added tokens too */
	struct pretok *pretok;
	bool nfc;              /* the only step of normalising */
	struct normal *normal; /* other steps; NULL: none */
	struct decoder decoder;
	struct token_text *text; /* by id: what a token stands for; NULL: its bytes */
	struct buf text_pool;
	struct added_token *added;
	size_t n_added;
	struct token_text *added_text; /* [n_added] contents */
	char *added_pool;
	struct added raw, norm;   /* found before and after normalising */
	bool *special, *is_added; /* by id */
	int32_t prefix[AROUND_MAX], suffix[AROUND_MAX];
	size_t n_prefix, n_suffix;
	struct pair_form pair; /* with has_pair */
	bool has_pair;
	struct recent *recent; /* NULL: tokenizer_remember was not called, or added tokens may be in normalised text */
};

/* ---- loading ---- */

/* NFC alone, in whatever Sequences, has a way of its own. */
static bool only_nfc(const struct json *j, int depth)
{
	const char *type = json_str(json_get(j, "type"), NULL);
	const struct json *list = json_get(j, "normalizers");

	if (!type || depth > NORMALIZER_DEPTH_MAX)
		return false;
	if (strcmp(type, "Sequence"))
		return !strcmp(type, "NFC");
	for (size_t i = 0; i < json_len(list); i++)
		if (!only_nfc(json_at(list, i), depth + 1))
			return false;
	return json_len(list) > 0;
}

static int load_normalizer(struct tokenizer *t, const struct json *j, struct err *err)
{
	t->nfc = only_nfc(j, 0);
	return t->nfc ? 0 : normal_open(&t->normal, j, err);
}

/* The ids of a special token of a template, onto to[]. */
static int put_around(const struct tokenizer *t, const struct json *ids, int32_t *to, size_t *n, struct err *err)
{
	int64_t id;

	if (!json_len(ids))
		return err_set(err, E_FORMAT, "TemplateProcessing: a special token without ids");
	for (size_t i = 0; i < json_len(ids); i++) {
		if (*n == AROUND_MAX)
			return err_set(err, E_LIMIT, "TemplateProcessing: more than %d tokens on one side", AROUND_MAX);
		if (json_to_int(json_at(ids, i), &id) || id < 0 || id >= t->model.words.n_tok ||
		    !t->model.words.tok[id].p)
			return err_set(err, E_FORMAT,
			               "TemplateProcessing: special token with an id that is not a token");
		to[(*n)++] = (int32_t)id;
	}
	return 0;
}

/* "pair" of a template: A, then B, and types that are 0 and from some place on 1.  Others leave the file without a form for
 * two texts, which only rerankers need. */
static void load_template_pair(struct tokenizer *t, const struct json *j)
{
	const struct json *pair = json_get(j, "pair"), *known = json_get(j, "special_tokens");
	struct pair_form f = { .plain = -1 };
	struct err why;
	int at = 0;

	for (size_t i = 0; i < json_len(pair); i++) {
		const struct json *item = json_at(pair, i), *sp = json_get(item, "SpecialToken");
		const struct json *text = json_get(item, "Sequence");
		const char *name = json_str(json_get(text ? text : sp, "id"), NULL);
		int64_t type = 0;

		json_to_int(json_get(text ? text : sp, "type_id"), &type);
		if (text && (at > 1 || !name || strcmp(name, at ? "B" : "A")))
			return;
		if (type && !at)
			return;
		if (type && f.plain < 0)
			f.plain = (int)f.n[1];
		else if (!type && f.plain >= 0)
			return;
		if (text)
			at++;
		else if (put_around(t, json_get(json_get(known, name ? name : ""), "ids"), f.part[at], &f.n[at], &why))
			return;
	}
	t->has_pair = at == 2;
	t->pair = f;
}

static int load_template(struct tokenizer *t, const struct json *j, struct err *err)
{
	const struct json *single = json_get(j, "single"), *known = json_get(j, "special_tokens");
	bool seen = false;
	int e;

	for (size_t i = 0; i < json_len(single); i++) {
		const struct json *item = json_at(single, i), *sp = json_get(item, "SpecialToken");
		const char *name;

		if (json_get(item, "Sequence")) {
			if (seen)
				return err_set(err, E_UNSUPPORTED, "TemplateProcessing: the text occurs twice");
			seen = true;
			continue;
		}
		if ((e = json_get_str(sp, "id", "", &name, err)))
			return err_prefix(err, "TemplateProcessing");
		if ((e = put_around(t, json_get(json_get(known, name), "ids"), seen ? t->suffix : t->prefix,
		                    seen ? &t->n_suffix : &t->n_prefix, err)))
			return e;
	}
	if (!seen)
		return err_set(err, E_FORMAT, "TemplateProcessing: \"single\" has no Sequence");
	load_template_pair(t, j);
	return 0;
}

/* "cls" before a text and "sep" behind it, each a text and its id; between two texts "sep" once or twice, and types with
 * the former. */
static int load_pair(struct tokenizer *t, const struct json *j, bool twice, struct err *err)
{
	int64_t cls, sep;

	if (json_to_int(json_at(json_get(j, "cls"), 1), &cls) || json_to_int(json_at(json_get(j, "sep"), 1), &sep) ||
	    cls < 0 || cls >= t->model.words.n_tok || sep < 0 || sep >= t->model.words.n_tok)
		return err_set(err, E_FORMAT, "\"cls\" and \"sep\" must be pairs of a text and its id");
	if (t->n_prefix || t->n_suffix)
		return err_set(err, E_UNSUPPORTED, "two processors that put tokens around a text");
	t->prefix[t->n_prefix++] = (int32_t)cls;
	t->suffix[t->n_suffix++] = (int32_t)sep;
	t->has_pair = true;
	t->pair = (struct pair_form){ .part = { { (int32_t)cls }, { (int32_t)sep, (int32_t)sep }, { (int32_t)sep } },
		                      .n = { 1, twice ? 2 : 1, 1 },
		                      .plain = twice ? -1 : 1 };
	return 0;
}

static int load_post(struct tokenizer *t, const struct json *j, int depth, struct err *err)
{
	const char *type;
	int e;

	if (json_kind(j) == JSON_NULL)
		return 0;
	if (json_kind(j) != JSON_OBJECT || depth > NORMALIZER_DEPTH_MAX)
		return err_set(err, E_FORMAT, "must be an object, is %s", json_kind_name(json_kind(j)));
	if ((e = json_get_str(j, "type", "", &type, err)))
		return e;
	if (!strcmp(type, "Sequence")) {
		const struct json *list = json_get(j, "processors");

		for (size_t i = 0; i < json_len(list); i++)
			if ((e = load_post(t, json_at(list, i), depth + 1, err)))
				return e;
		return 0;
	}
	if (!strcmp(type, "ByteLevel")) /* trims offsets, which are not used here */
		return 0;
	if (!strcmp(type, "BertProcessing") || !strcmp(type, "RobertaProcessing"))
		return load_pair(t, j, !strcmp(type, "RobertaProcessing"), err);
	if (strcmp(type, "TemplateProcessing"))
		return err_set(err, E_UNSUPPORTED, "type \"%.40s\" is not done", type);
	if (t->n_prefix || t->n_suffix)
		return err_set(err, E_UNSUPPORTED, "two TemplateProcessing");
	return load_template(t, j, err);
}

/* Reads entry i of added_tokens into *a; the content goes to pool. */
static int read_added(const struct json *j, size_t i, struct added_token *a, const char **content, size_t *n,
                      struct err *err)
{
	int64_t id;
	int e;

	if (json_to_int(json_get(j, "id"), &id) || !(*content = json_str(json_get(j, "content"), n)))
		return err_set(err, E_FORMAT, "added_tokens[%zu]: must have an integer id and a string content", i);
	if (id < 0 || id >= TOKENIZER_IDS_MAX)
		return err_set(err, E_LIMIT, "added_tokens[%zu]: id %lld is outside [0, %d)", i, (long long)id,
		               TOKENIZER_IDS_MAX);
	if (*n > TOKENIZER_ADDED_BYTES_MAX)
		return err_set(err, E_LIMIT, "added_tokens[%zu]: content of %zu bytes, more than %d", i, *n,
		               TOKENIZER_ADDED_BYTES_MAX);
	a->id = (int32_t)id;
	if ((e = json_get_bool(j, "special", false, &a->special, err)) ||
	    (e = json_get_bool(j, "normalized", !a->special, &a->normalized, err)) ||
	    (e = json_get_bool(j, "lstrip", false, &a->lstrip, err)) ||
	    (e = json_get_bool(j, "rstrip", false, &a->rstrip, err)) ||
	    (e = json_get_bool(j, "single_word", false, &a->single_word, err)))
		return err_prefix(err, "added_tokens[%zu]", i);
	return 0;
}

/* Whether the vocabulary's token has this text, in the file's spelling or as bytes. */
static bool same_token(const struct tokenizer *t, const struct token_text *tok, const char *content, size_t n)
{
	char byte[TOKENIZER_ADDED_BYTES_MAX];
	long len = t->model.byte_level ? bpe_unmap(content, n, byte) : -1;

	return (len >= 0 && tok->n == (size_t)len && !memcmp(tok->p, byte, tok->n)) ||
	       (tok->n == n && !memcmp(tok->p, content, n));
}

/* Puts content under a's id, which may be a new one or the vocabulary's own. */
static int claim_id(struct tokenizer *t, const struct added_token *a, const char *content, size_t n, int32_t n_vocab,
                    struct err *err)
{
	struct lexicon *l = &t->model.words;

	if (a->id >= l->n_tok) {
		l->tok = xrealloc(l->tok, ((size_t)a->id + 1) * sizeof *l->tok);
		memset(l->tok + l->n_tok, 0, (size_t)(a->id + 1 - l->n_tok) * sizeof *l->tok);
		l->n_tok = a->id + 1;
	} else if (l->tok[a->id].p && (a->id >= n_vocab || !same_token(t, &l->tok[a->id], content, n))) {
		return err_set(err, E_FORMAT, "added_tokens: id %d of \"%.*s\" belongs to another token", a->id, (int)n,
		               content);
	}
	/* The vocabulary's own bytes stay: lookups compare them. */
	if (a->id >= n_vocab || !l->tok[a->id].p)
		l->tok[a->id] = (struct token_text){ content, (uint32_t)n };
	return 0;
}

static int read_all_added(struct tokenizer *t, const struct json *list, struct err *err)
{
	size_t n_list = json_len(list), n_bytes = 0, n;
	int32_t n_vocab = t->model.words.n_tok;
	const char *p;
	char *to;
	int e;

	if (json_kind(list) != JSON_ARRAY && json_kind(list) != JSON_NULL)
		return err_set(err, E_FORMAT, "added_tokens: must be an array, is %s", json_kind_name(json_kind(list)));
	if (n_list > TOKENIZER_ADDED_MAX)
		return err_set(err, E_LIMIT, "added_tokens: %zu, more than %d", n_list, TOKENIZER_ADDED_MAX);
	t->added = xcalloc(n_list + 1, sizeof *t->added);
	for (size_t i = 0; i < n_list; i++) {
		if ((e = read_added(json_at(list, i), i, &t->added[i], &p, &n, err)))
			return e;
		n_bytes += n;
	}
	t->n_added = n_list;
	t->added_text = xcalloc(n_list + 1, sizeof *t->added_text);
	t->added_pool = to = xmalloc(n_bytes + 1);
	for (size_t i = 0; i < n_list; i++) {
		p = json_str(json_get(json_at(list, i), "content"), &n);
		memcpy(to, p, n);
		t->added_text[i] = (struct token_text){ to, (uint32_t)n };
		if ((e = claim_id(t, &t->added[i], to, n, n_vocab, err)))
			return e;
		to += n;
	}
	return 0;
}

/* Appends the form that an added token has in a normalised text. */
static int put_normalised(const struct tokenizer *t, struct nfc *nfc, struct normal_work *w, struct token_text text,
                          struct buf *out, struct err *err)
{
	int e;

	if (t->nfc && nfc_run(nfc, text.p, text.n))
		buf_put(out, nfc->out.p, nfc->out.n);
	else if (normal_run(t->normal, w, text.p, text.n, &e, err)) {
		if (e)
			return e;
		buf_put(out, w->text.text.p, w->text.text.n);
	} else {
		buf_put(out, text.p, text.n);
	}
	return 0;
}

/* The two sets: of tokens found before, and after normalising. */
static int find_added(struct tokenizer *t, struct err *err)
{
	size_t *end = xcalloc(t->n_added + 1, sizeof *end);
	struct normal_work w;
	struct buf text;
	struct nfc nfc;
	int e = 0;

	buf_init(&text);
	nfc_init(&nfc);
	normal_work_init(&w);
	for (size_t i = 0; i < t->n_added && !e; i++) {
		if (t->added[i].normalized)
			e = put_normalised(t, &nfc, &w, t->added_text[i], &text, err);
		else
			buf_put(&text, t->added_text[i].p, t->added_text[i].n);
		end[i + 1] = text.n;
	}
	added_init(&t->raw, t->added, text.n);
	added_init(&t->norm, t->added, text.n);
	for (size_t i = 0; i < t->n_added && !e; i++) {
		size_t n = end[i + 1] - end[i];
		const char *p = text.p + end[i];

		if (n && !added_put(t->added[i].normalized ? &t->norm : &t->raw, p, n, (uint32_t)i))
			e = err_set(err, E_FORMAT, "added_tokens[%zu]: content \"%.*s\" occurs twice", i, (int)n, p);
	}
	normal_work_fini(&w);
	nfc_fini(&nfc);
	buf_fini(&text);
	free(end);
	return e;
}

static void mark_added(struct tokenizer *t)
{
	size_t n = (size_t)t->model.words.n_tok;

	t->special = xcalloc(n, sizeof *t->special);
	t->is_added = xcalloc(n, sizeof *t->is_added);
	for (size_t i = 0; i < t->n_added; i++) {
		t->special[t->added[i].id] = t->added[i].special;
		t->is_added[t->added[i].id] = true;
	}
	t->model.hidden = t->special;
	t->model.n_hidden = (int32_t)n;
}

/* Fills t->text, the bytes that each token stands for in a text.  The decoder reads added tokens too, which may be runs
 * of spaces; special ones keep their content, which dialects look for. */
static void decode_all(struct tokenizer *t)
{
	const struct lexicon *l = &t->model.words;
	size_t *end = xcalloc((size_t)l->n_tok + 1, sizeof *end);

	t->text = xcalloc((size_t)l->n_tok, sizeof *t->text);
	for (int32_t i = 0; i < l->n_tok; i++) {
		if (l->tok[i].p && !t->decoder.byte_level && !t->special[i])
			decoder_put(&t->decoder, l->tok[i].p, l->tok[i].n, &t->text_pool);
		end[i + 1] = t->text_pool.n;
	}
	for (int32_t i = 0; i < l->n_tok; i++)
		if (l->tok[i].p)
			t->text[i] = t->decoder.byte_level ? l->tok[i] :
			                                     (struct token_text){ t->text_pool.p + end[i],
				                                                  (uint32_t)(end[i + 1] - end[i]) };
	for (size_t i = 0; i < t->n_added; i++)
		if (t->decoder.byte_level || t->added[i].special)
			t->text[t->added[i].id] = t->added_text[i];
	free(end);
}

static int load_model(struct tokenizer *t, const struct json *root, struct err *err)
{
	int e;

	if (json_kind(json_get(root, "model")) != JSON_OBJECT)
		return err_set(err, E_FORMAT, "model: must be an object, is %s",
		               json_kind_name(json_kind(json_get(root, "model"))));
	if ((e = load_normalizer(t, json_get(root, "normalizer"), err)) ||
	    (e = decoder_open(&t->decoder, json_get(root, "decoder"), err)) ||
	    (e = pretok_open(&t->pretok, json_get(root, "pre_tokenizer"), err)))
		return e;
	if (pretok_byte_level(t->pretok) != t->decoder.byte_level)
		return err_set(err, E_UNSUPPORTED, "ByteLevel is %s the pre_tokenizer and %s the decoder",
		               pretok_byte_level(t->pretok) ? "in" : "not in", t->decoder.byte_level ? "in" : "not in");
	return token_model_open(&t->model, json_get(root, "model"), t->decoder.byte_level, err);
}

static int load(struct tokenizer *t, const struct json *root, struct err *err)
{
	int e;

	if (json_kind(root) != JSON_OBJECT)
		return err_set(err, E_FORMAT, "must be an object, is %s", json_kind_name(json_kind(root)));
	if ((e = load_model(t, root, err)) || (e = read_all_added(t, json_get(root, "added_tokens"), err)) ||
	    (e = find_added(t, err)))
		return e;
	mark_added(t);
	decode_all(t);
	if ((e = load_post(t, json_get(root, "post_processor"), 0, err)))
		return err_prefix(err, "post_processor");
	return 0;
}

int tokenizer_open(struct tokenizer **out, const char *json, size_t n, struct err *err)
{
	struct json *root = json_parse(json, n, 0, err);
	struct tokenizer *t;
	int e;

	*out = NULL;
	if (!root) {
		err_prefix(err, "tokenizer.json");
		return err ? err->code : E_FORMAT;
	}
	t = xcalloc(1, sizeof *t);
	buf_init(&t->text_pool);
	e = load(t, root, err);
	json_free(root);
	if (e) {
		tokenizer_close(t);
		err_prefix(err, "tokenizer.json");
		return e;
	}
	*out = t;
	return 0;
}

void tokenizer_close(struct tokenizer *t)
{
	if (!t)
		return;
	token_model_close(&t->model);
	normal_close(t->normal);
	decoder_close(&t->decoder);
	free(t->text);
	free(t->added_text);
	buf_fini(&t->text_pool);
	pretok_close(t->pretok);
	added_fini(&t->raw);
	added_fini(&t->norm);
	free(t->added);
	free(t->added_pool);
	free(t->special);
	free(t->is_added);
	recent_free(t->recent);
	free(t);
}

void tokenizer_remember(struct tokenizer *t, size_t bytes)
{
	/* What is found in normalised text depends on the ranges of users, too. */
	if (!t->norm.n)
		t->recent = recent_new(bytes);
}

/* ---- asking ---- */

int32_t tokenizer_size(const struct tokenizer *t)
{
	return t->model.words.n_tok;
}

const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, size_t *n)
{
	if (id < 0 || id >= t->model.words.n_tok || !t->text[id].p) {
		*n = 0;
		return NULL;
	}
	*n = t->text[id].n;
	return t->text[id].p;
}

int tokenizer_begin_strip(const struct tokenizer *t)
{
	return t->decoder.strip;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
	return id >= 0 && id < t->model.words.n_tok && t->special[id];
}

bool tokenizer_is_added(const struct tokenizer *t, int32_t id)
{
	return id >= 0 && id < t->model.words.n_tok && t->is_added[id];
}

int32_t tokenizer_find(const struct tokenizer *t, const char *p, size_t n)
{
	for (size_t i = 0; i < t->n_added; i++)
		if (t->added_text[i].n == n && !memcmp(t->added_text[i].p, p, n))
			return t->added[i].id;
	if (t->decoder.byte_level)
		return lexicon_find(&t->model.words, p, n);
	/* Rare, and the table by bytes has the file's spelling. */
	for (int32_t i = 0; i < t->model.words.n_tok; i++)
		if (t->text[i].p && t->text[i].n == n && !memcmp(t->text[i].p, p, n))
			return i;
	return -1;
}

const int32_t *tokenizer_prefix(const struct tokenizer *t, size_t *n)
{
	*n = t->n_prefix;
	return *n ? t->prefix : NULL;
}

const struct pair_form *tokenizer_pair(const struct tokenizer *t)
{
	return t->has_pair ? &t->pair : NULL;
}

const int32_t *tokenizer_suffix(const struct tokenizer *t, size_t *n)
{
	*n = t->n_suffix;
	return *n ? t->suffix : NULL;
}

/* ---- encoding ---- */

struct encoder {
	const struct tokenizer *t;
	unsigned flags;
	const struct text_range *user;
	size_t n_user;
	struct pretok_run *run;
	struct token_work work;
	struct nfc nfc;
	struct normal_work normal;
	enum { SOURCE, NFC, NORMAL } traced; /* positions are of the text at hand, or of what normalising made of it */
	size_t n_source;                     /* bytes of the latter's source */
	size_t base;                         /* where the source at hand begins in the text */
	struct tokens *out;
	struct err *err;
};

/* May a special token be at [start, end) of the source at hand? */
static bool may_be_special(void *ctx, size_t start, size_t end)
{
	const struct encoder *c = ctx;
	size_t lo = 0, hi = c->n_user;

	if (!(c->flags & TOKENIZE_SPECIAL))
		return false;
	if (c->traced == NFC)
		nfc_source(&c->nfc, start, end, &start, &end);
	else if (c->traced == NORMAL)
		normal_source(&c->normal, c->n_source, start, end, &start, &end);
	start += c->base;
	end += c->base;
	/* The first range that ends after start is the only one that can be in the way. */
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (c->user[mid].end > start)
			hi = mid;
		else
			lo = mid + 1;
	}
	/* Empty ranges hold no byte. */
	while (lo < c->n_user && c->user[lo].start == c->user[lo].end)
		lo++;
	return lo == c->n_user || c->user[lo].start >= end;
}

static void on_piece(void *ctx, const char *p, size_t n)
{
	struct encoder *c = ctx;

	if (!allowance_spend(n / 2 + 1))
		return; /* encode_pieces says so */
	c->t->model.ops->encode(&c->t->model, &c->work, p, n, c->out);
}

/* Text in which tokens of set may be; what is between them goes to next. */
static int encode_between(struct encoder *c, const struct added *set, const char *p, size_t n,
                          int (*next)(struct encoder *, const char *, size_t))
{
	struct added_match m;
	size_t at = 0, base = c->base;
	int e;

	while (added_next(set, p, n, at, may_be_special, c, &m)) {
		if (m.start > at) {
			c->base = base + at;
			if ((e = next(c, p + at, m.start - at)))
				return e;
			c->base = base;
		}
		tokens_put(c->out, m.token->id);
		at = m.end;
	}
	c->base = base + at;
	e = at < n ? next(c, p + at, n - at) : 0;
	c->base = base;
	return e;
}

static int encode_pieces(struct encoder *c, const char *p, size_t n)
{
	int e = pretok_split(c->run, p, n, c->base == 0, on_piece, c, c->err);

	if (!e && allowance_why())
		e = err_set(c->err, E_LIMIT, "text of %zu bytes: %s", n, allowance_why());
	return e;
}

static int encode_normalised(struct encoder *c, const char *p, size_t n)
{
	size_t base = c->base;
	int e = 0;

	if (c->t->nfc && nfc_run(&c->nfc, p, n)) {
		c->traced = NFC;
		e = encode_between(c, &c->t->norm, c->nfc.out.p, c->nfc.out.n, encode_pieces);
	} else if (normal_run(c->t->normal, &c->normal, p, n, &e, c->err)) {
		c->traced = NORMAL;
		c->n_source = n;
		if (!e)
			e = encode_between(c, &c->t->norm, c->normal.text.text.p, c->normal.text.text.n, encode_pieces);
	} else {
		return encode_between(c, &c->t->norm, p, n, encode_pieces);
	}
	c->traced = SOURCE;
	c->base = base;
	return e;
}

/* encode_normalised, or what it gave for the same text before. */
static int encode_again(struct encoder *c, const char *p, size_t n)
{
	struct recent *r = c->t->recent;
	size_t before = c->out->n;
	uint64_t left = allowance_left(), steps;
	int e;

	if (!r || n < RECENT_TEXT_LEAST || !allowance_on() || (c->flags & TOKENIZE_APART))
		return encode_normalised(c, p, n);
	if (recent_find(r, p, n, c->base == 0, c->out, &steps)) {
		if (allowance_spend(steps))
			return 0;
		return err_set(c->err, E_LIMIT, "text of %zu bytes: %s", n, allowance_why());
	}
	e = encode_normalised(c, p, n);
	if (!e && !allowance_why())
		recent_put(r, p, n, c->base == 0, c->out->id + before, c->out->n - before, left - allowance_left());
	return e;
}

static int check_text(const char *text, size_t n, const struct text_range *user, size_t n_user, struct err *err)
{
	size_t at, last = 0;

	if (n > TOKENIZER_TEXT_MAX)
		return err_set(err, E_LIMIT, "text: %zu bytes, more than %d", n, TOKENIZER_TEXT_MAX);
	if ((at = utf8_valid_piecewise(text, n)) < n)
		return err_set(err, E_ARG, "text: invalid UTF-8 at byte %zu (0x%02X)", at, (unsigned char)text[at]);
	for (size_t i = 0; i < n_user; i++) {
		if (user[i].start < last || user[i].end < user[i].start || user[i].end > n)
			return err_set(err, E_ARG,
			               "text: range %zu, bytes %zu to %zu, is out of order or beyond %zu bytes", i,
			               user[i].start, user[i].end, n);
		last = user[i].end;
	}
	return 0;
}

int tokenizer_encode_ranges(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                            const struct text_range *user, size_t n_user, struct tokens *out, struct err *err)
{
	struct encoder c = { .t = t, .flags = flags, .user = user, .n_user = n_user, .out = out, .err = err };
	size_t before = out->n;
	int e;

	if ((e = check_text(text, n, user, n_user, err)))
		return e;
	if (flags & TOKENIZE_AROUND)
		for (size_t i = 0; i < t->n_prefix; i++)
			tokens_put(out, t->prefix[i]);
	c.run = pretok_run_new(t->pretok, n);
	nfc_init(&c.nfc);
	normal_work_init(&c.normal);
	e = encode_between(&c, &t->raw, text, n, encode_again);
	nfc_fini(&c.nfc);
	normal_work_fini(&c.normal);
	token_work_fini(&c.work);
	pretok_run_free(c.run);
	if (e) {
		out->n = before;
		return e;
	}
	if (flags & TOKENIZE_AROUND)
		for (size_t i = 0; i < t->n_suffix; i++)
			tokens_put(out, t->suffix[i]);
	return 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags, struct tokens *out,
                     struct err *err)
{
	return tokenizer_encode_ranges(t, text, n, flags, NULL, 0, out, err);
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *id, size_t n, bool skip_special, struct buf *out)
{
	struct detok d;

	detok_init(&d, t, skip_special);
	for (size_t i = 0; i < n && allowance_spend(1); i++)
		detok_put(&d, id[i], out);
	detok_flush(&d, out);
}
