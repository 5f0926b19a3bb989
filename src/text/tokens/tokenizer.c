/* tokenizer.c - see tokenizer.h.
 *
 * The way of a text: added tokens that match the raw text; NFC of what is between
 * them; added tokens that match the normalised text; pieces (pretok.c); merging
 * (bpe.c). */
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
#include "text/tokens/detok.h"
#include "text/tokens/nfc.h"
#include "text/tokens/pretok.h"

enum {
	AROUND_MAX = 16, /* tokens before, and after, a text */
	NORMALIZER_DEPTH_MAX = 8,
};

struct tokenizer {
	struct bpe bpe; /* its tok table holds the added tokens too */
	struct pretok *pretok;
	bool nfc;
	struct added_token *added;
	size_t n_added;
	char *added_pool;
	struct added raw, norm;   /* found before and after normalising */
	bool *special, *is_added; /* by id */
	int32_t prefix[AROUND_MAX], suffix[AROUND_MAX];
	size_t n_prefix, n_suffix;
};

/* ---- tokens ---- */

void tokens_init(struct tokens *v)
{
	*v = (struct tokens){ 0 };
}

void tokens_fini(struct tokens *v)
{
	free(v->id);
	*v = (struct tokens){ 0 };
}

void tokens_reset(struct tokens *v)
{
	v->n = 0;
}

void tokens_put(struct tokens *v, int32_t id)
{
	if (v->n == v->cap) {
		v->cap = v->cap ? 2 * v->cap : 64;
		v->id = xrealloc(v->id, size_mul(v->cap, sizeof *v->id));
	}
	v->id[v->n++] = id;
}

/* ---- loading ---- */

static int load_normalizer(struct tokenizer *t, const struct json *j, int depth, struct err *err)
{
	const char *type;
	int e;

	if (json_kind(j) == JSON_NULL)
		return 0;
	if (json_kind(j) != JSON_OBJECT)
		return err_set(err, E_FORMAT, "normalizer: must be an object, is %s", json_kind_name(json_kind(j)));
	if (depth > NORMALIZER_DEPTH_MAX)
		return err_set(err, E_LIMIT, "normalizer: Sequence nested deeper than %d", NORMALIZER_DEPTH_MAX);
	if ((e = json_get_str(j, "type", "", &type, err)))
		return err_prefix(err, "normalizer");
	if (!strcmp(type, "Sequence")) {
		const struct json *list = json_get(j, "normalizers");

		for (size_t i = 0; i < json_len(list); i++)
			if ((e = load_normalizer(t, json_at(list, i), depth + 1, err)))
				return e;
		return 0;
	}
	if (strcmp(type, "NFC"))
		return err_set(err, E_UNSUPPORTED, "normalizer type \"%.40s\": only NFC is done", type);
	t->nfc = true;
	return 0;
}

static int check_decoder(const struct json *j, int depth, struct err *err)
{
	const char *type;
	int e;

	if (json_kind(j) != JSON_OBJECT || depth > 1)
		return err_set(err, E_UNSUPPORTED, "decoder: must be ByteLevel, is %s", json_kind_name(json_kind(j)));
	if ((e = json_get_str(j, "type", "", &type, err)))
		return err_prefix(err, "decoder");
	if (!strcmp(type, "Sequence") && json_len(json_get(j, "decoders")) == 1)
		return check_decoder(json_at(json_get(j, "decoders"), 0), depth + 1, err);
	if (strcmp(type, "ByteLevel"))
		return err_set(err, E_UNSUPPORTED, "decoder type \"%.40s\": only ByteLevel is done", type);
	return 0;
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
		if (json_to_int(json_at(ids, i), &id) || id < 0 || id >= t->bpe.n_tok || !t->bpe.tok[id].p)
			return err_set(err, E_FORMAT, "TemplateProcessing: special token with an id that is no token");
		to[(*n)++] = (int32_t)id;
	}
	return 0;
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
	return seen ? 0 : err_set(err, E_FORMAT, "TemplateProcessing: \"single\" has no Sequence");
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
	if (!strcmp(type, "ByteLevel")) /* trims offsets, which nobody here asks for */
		return 0;
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

/* Puts content under a's id, which may be a new one or the vocabulary's own. */
static int claim_id(struct tokenizer *t, const struct added_token *a, const char *content, size_t n, int32_t n_vocab,
                    struct err *err)
{
	struct bpe *b = &t->bpe;
	char byte[TOKENIZER_ADDED_BYTES_MAX];
	long len = bpe_unmap(content, n, byte);

	if (a->id >= b->n_tok) {
		b->tok = xrealloc(b->tok, ((size_t)a->id + 1) * sizeof *b->tok);
		memset(b->tok + b->n_tok, 0, (size_t)(a->id + 1 - b->n_tok) * sizeof *b->tok);
		b->n_tok = a->id + 1;
	} else if (b->tok[a->id].p) {
		const struct bpe_token *tok = &b->tok[a->id];
		bool same = a->id < n_vocab && ((len >= 0 && tok->n == (size_t)len && !memcmp(tok->p, byte, tok->n)) ||
		                                (tok->n == n && !memcmp(tok->p, content, n)));

		if (!same)
			return err_set(err, E_FORMAT, "added_tokens: id %d of \"%.*s\" belongs to another token", a->id,
			               (int)n, content);
	}
	b->tok[a->id] = (struct bpe_token){ content, (uint32_t)n };
	return 0;
}

static int load_added(struct tokenizer *t, const struct json *list, struct err *err)
{
	size_t n_list = json_len(list), n_bytes = 0, n;
	int32_t n_vocab = t->bpe.n_tok;
	struct nfc nfc;
	const char *p;
	char *to;
	int e = 0;

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
	t->added_pool = to = xmalloc(n_bytes + 1);
	added_init(&t->raw, t->added, n_bytes);
	/* A content can grow when normalised, by no more than a factor of three (UAX 15, stability table). */
	added_init(&t->norm, t->added, 3 * n_bytes);
	nfc_init(&nfc);
	for (size_t i = 0; i < n_list && !e; i++) {
		struct added_token *a = &t->added[i];

		p = json_str(json_get(json_at(list, i), "content"), &n);
		memcpy(to, p, n);
		if ((e = claim_id(t, a, to, n, n_vocab, err)))
			break;
		p = to;
		to += n;
		if (!n)
			continue;
		if (a->normalized && t->nfc && nfc_run(&nfc, p, n)) {
			p = nfc.out.p;
			n = nfc.out.n;
		}
		if (!added_put(a->normalized ? &t->norm : &t->raw, p, n, (uint32_t)i))
			e = err_set(err, E_FORMAT, "added_tokens[%zu]: content \"%.*s\" occurs twice", i, (int)n, p);
	}
	nfc_fini(&nfc);
	return e;
}

static int load(struct tokenizer *t, const struct json *root, struct err *err)
{
	int e;

	if (json_kind(root) != JSON_OBJECT)
		return err_set(err, E_FORMAT, "must be an object, is %s", json_kind_name(json_kind(root)));
	if (json_kind(json_get(root, "model")) != JSON_OBJECT)
		return err_set(err, E_FORMAT, "model: must be an object, is %s",
		               json_kind_name(json_kind(json_get(root, "model"))));
	if ((e = load_normalizer(t, json_get(root, "normalizer"), 0, err)) ||
	    (e = check_decoder(json_get(root, "decoder"), 0, err)) ||
	    (e = pretok_open(&t->pretok, json_get(root, "pre_tokenizer"), err)) ||
	    (e = bpe_open(&t->bpe, json_get(root, "model"), err)) ||
	    (e = load_added(t, json_get(root, "added_tokens"), err)))
		return e;
	if ((e = load_post(t, json_get(root, "post_processor"), 0, err)))
		return err_prefix(err, "post_processor");
	t->special = xcalloc((size_t)t->bpe.n_tok, sizeof *t->special);
	t->is_added = xcalloc((size_t)t->bpe.n_tok, sizeof *t->is_added);
	for (size_t i = 0; i < t->n_added; i++) {
		t->special[t->added[i].id] = t->added[i].special;
		t->is_added[t->added[i].id] = true;
	}
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
	bpe_close(&t->bpe);
	pretok_close(t->pretok);
	added_fini(&t->raw);
	added_fini(&t->norm);
	free(t->added);
	free(t->added_pool);
	free(t->special);
	free(t->is_added);
	free(t);
}

/* ---- asking ---- */

int32_t tokenizer_size(const struct tokenizer *t)
{
	return t->bpe.n_tok;
}

const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, size_t *n)
{
	if (id < 0 || id >= t->bpe.n_tok || !t->bpe.tok[id].p) {
		*n = 0;
		return NULL;
	}
	*n = t->bpe.tok[id].n;
	return t->bpe.tok[id].p;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
	return id >= 0 && id < t->bpe.n_tok && t->special[id];
}

bool tokenizer_is_added(const struct tokenizer *t, int32_t id)
{
	return id >= 0 && id < t->bpe.n_tok && t->is_added[id];
}

int32_t tokenizer_find(const struct tokenizer *t, const char *p, size_t n)
{
	for (size_t i = 0; i < t->n_added; i++) {
		const struct bpe_token *tok = &t->bpe.tok[t->added[i].id];

		if (tok->n == n && !memcmp(tok->p, p, n))
			return t->added[i].id;
	}
	return bpe_find(&t->bpe, p, n);
}

const int32_t *tokenizer_prefix(const struct tokenizer *t, size_t *n)
{
	*n = t->n_prefix;
	return *n ? t->prefix : NULL;
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
	struct bpe_scratch scratch;
	struct nfc nfc;
	const struct nfc *traced; /* positions are of its result, or NULL: of the source */
	size_t base;              /* where the source at hand begins in the text */
	struct tokens *out;
	struct err *err;
};

/* May a special token stand at [start, end) of the source at hand? */
static bool may_be_special(void *ctx, size_t start, size_t end)
{
	const struct encoder *c = ctx;
	size_t lo = 0, hi = c->n_user;

	if (!(c->flags & TOKENIZE_SPECIAL))
		return false;
	if (c->traced)
		nfc_source(c->traced, start, end, &start, &end);
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
	bpe_encode(&c->t->bpe, &c->scratch, p, n, c->out);
}

/* Text in which tokens of set may stand; what is between them goes to next. */
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
	int e = pretok_split(c->run, p, n, on_piece, c, c->err);

	if (!e && allowance_why())
		e = err_set(c->err, E_LIMIT, "text of %zu bytes: %s", n, allowance_why());
	return e;
}

static int encode_normalised(struct encoder *c, const char *p, size_t n)
{
	int e;

	if (!c->t->nfc || !nfc_run(&c->nfc, p, n))
		return encode_between(c, &c->t->norm, p, n, encode_pieces);
	c->traced = &c->nfc;
	e = encode_between(c, &c->t->norm, c->nfc.out.p, c->nfc.out.n, encode_pieces);
	c->traced = NULL;
	return e;
}

static int check_text(const char *text, size_t n, const struct text_range *user, size_t n_user, struct err *err)
{
	size_t at, last = 0;

	if (n > TOKENIZER_TEXT_MAX)
		return err_set(err, E_LIMIT, "text: %zu bytes, more than %d", n, TOKENIZER_TEXT_MAX);
	if ((at = utf8_valid(text, n)) < n)
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
	e = encode_between(&c, &t->raw, text, n, encode_normalised);
	nfc_fini(&c.nfc);
	bpe_scratch_fini(&c.scratch);
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
	for (size_t i = 0; i < n; i++)
		detok_put(&d, id[i], out);
	detok_flush(&d, out);
}
