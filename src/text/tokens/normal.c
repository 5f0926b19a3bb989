/* normal.c - see normal.h. */
#include "text/tokens/normal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/utf8.h"
#include "text/tokens/charsmap.h"
#include "text/tokens/nfc.h"
#include "text/tokens/pretok.h"
#include "text/tokens/tokenizer.h"

enum { STEPS_MAX = 16, DEPTH_MAX = 8, CONTENT_MAX = 256 };

enum kind { FORM, LOWER, ACCENTS, STRIP, PREPEND, PREPEND_WORD, REPLACE, EXPRESSION, BERT, CHARSMAP };

struct step {
	enum kind kind;
	enum nfc_form form;
	bool left, right;                    /* STRIP */
	bool clean, chinese, accents, lower; /* BERT */
	char *what, *with;                   /* PREPEND: with; REPLACE: both */
	size_t n_what, n_with;
	pcre2_code *re;
	struct charsmap map;
};

struct normal {
	struct step step[STEPS_MAX];
	int n;
};

/* ---- texts that know where they come from ---- */

static void put(struct normal_text *t, const char *p, size_t n, uint32_t from)
{
	if (t->cap < t->text.n + n) {
		t->cap = 2 * (t->text.n + n) + 64;
		t->from = xrealloc(t->from, size_mul(t->cap, sizeof *t->from));
	}
	for (size_t i = 0; i < n; i++)
		t->from[t->text.n + i] = from;
	buf_put(&t->text, p, n);
}

/* Bytes [i, i + n) of the text before, as they are. */
static void copy(struct normal_text *t, const struct normal_text *of, size_t i, size_t n)
{
	for (size_t k = i; k < i + n; k++)
		put(t, of->text.p + k, 1, of->from[k]);
}

static void put_char(struct normal_text *t, uint32_t cp, uint32_t from)
{
	char text[4];

	put(t, text, (size_t)utf8_encode(cp, text), from);
}

/* ---- characters ---- */

static bool is_mark(uint32_t cp)
{
	return utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_MN;
}

static bool is_control(uint32_t cp)
{
	utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

	if (cp == '\t' || cp == '\n' || cp == '\r')
		return false;
	return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CN ||
	       c == UTF8PROC_CATEGORY_CO;
}

static bool is_space(uint32_t c)
{
	return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
	       (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* BERT's own blocks of ideographs. */
static bool is_chinese(uint32_t c)
{
	return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
	       (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
	       (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

/* In lower case: of the one character that becomes two, I with a dot, the second is that dot. */
static void put_lower(struct normal_text *to, uint32_t cp, uint32_t from)
{
	enum { I_WITH_DOT = 0x130, DOT_ABOVE = 0x307 };

	if (cp == I_WITH_DOT) {
		put_char(to, 'i', from);
		put_char(to, DOT_ABOVE, from);
		return;
	}
	put_char(to, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), from);
}

/* One character of BERT's normaliser, but for accents. */
static void put_bert(const struct step *s, struct normal_text *to, uint32_t cp, uint32_t from)
{
	if (s->clean && (!cp || cp == 0xFFFD || is_control(cp)))
		return;
	if (s->clean && is_space(cp))
		cp = ' ';
	if (s->chinese && is_chinese(cp)) {
		put(to, " ", 1, from);
		put_char(to, cp, from);
		put(to, " ", 1, from);
		return;
	}
	if (s->lower)
		put_lower(to, cp, from);
	else
		put_char(to, cp, from);
}

/* Steps that look at one character at a time. */
static void by_char(const struct step *s, struct normal_text *to, const struct normal_text *of)
{
	uint32_t cp;

	for (size_t i = 0, len; i < of->text.n; i += len) {
		len = (size_t)utf8_decode(of->text.p + i, of->text.n - i, &cp);
		if (s->kind == BERT)
			put_bert(s, to, cp, of->from[i]);
		else if (s->kind == LOWER)
			put_lower(to, cp, of->from[i]);
		else if (!is_mark(cp))
			copy(to, of, i, len);
	}
}

/* ---- the steps ---- */

static void do_form(enum nfc_form form, struct normal_text *to, const struct normal_text *of)
{
	struct nfc f;
	size_t at = 0;

	nfc_init(&f);
	f.form = form;
	nfc_run(&f, of->text.p, of->text.n);
	for (size_t i = 0; i < f.n_change; i++) {
		const struct nfc_change *c = &f.change[i];

		copy(to, of, at, c->from - at);
		put(to, f.out.p + c->to, c->to_end - c->to, of->from[c->from]);
		at = c->from_end;
	}
	copy(to, of, at, of->text.n - at);
	nfc_fini(&f);
}

static void do_strip(const struct step *s, struct normal_text *to, const struct normal_text *of)
{
	size_t from = 0, end = of->text.n, len;
	uint32_t cp;

	while (s->left && from < end && (len = (size_t)utf8_decode(of->text.p + from, end - from, &cp)) && is_space(cp))
		from += len;
	while (s->right && end > from) {
		len = 1;
		while (len < 4 && len < end - from && ((unsigned char)of->text.p[end - len] & 0xC0) == 0x80)
			len++;
		if (!utf8_decode(of->text.p + end - len, len, &cp) || !is_space(cp))
			break;
		end -= len;
	}
	copy(to, of, from, end - from);
}

static void do_replace(const struct step *s, struct normal_text *to, const struct normal_text *of)
{
	const char *p = of->text.p, *end = p + of->text.n, *hit;

	while (p < end && (hit = memmem(p, (size_t)(end - p), s->what, s->n_what))) {
		copy(to, of, (size_t)(p - of->text.p), (size_t)(hit - p));
		put(to, s->with, s->n_with, of->from[hit - of->text.p]);
		p = hit + s->n_what;
	}
	copy(to, of, (size_t)(p - of->text.p), (size_t)(end - p));
}

static int do_expression(const struct step *s, struct normal_text *to, const struct normal_text *of, struct err *err)
{
	pcre2_match_data *data = pcre2_match_data_create(1, NULL);
	pcre2_match_context *ctx = pcre2_match_context_create(NULL);
	const PCRE2_SIZE *o;
	size_t at = 0;
	int rc = 0;

	if (!data || !ctx)
		abort();
	o = pcre2_get_ovector_pointer(data);
	pcre2_set_match_limit(ctx, 10000000);
	while (at < of->text.n) {
		rc = pcre2_match(s->re, (PCRE2_SPTR)of->text.p, of->text.n, at, PCRE2_NO_UTF_CHECK, data, ctx);
		if (rc < 0 || o[1] <= o[0])
			break;
		copy(to, of, at, o[0] - at);
		put(to, s->with, s->n_with, of->from[o[0]]);
		at = o[1];
	}
	copy(to, of, at, of->text.n - at);
	pcre2_match_data_free(data);
	pcre2_match_context_free(ctx);
	if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
		return err_set(err, E_LIMIT, "normalizer: gave up at byte %zu of %zu", at, of->text.n);
	return 0;
}

/* Bytes of the extended grapheme cluster at p[0..n), n > 0. */
static size_t cluster_at(const char *p, size_t n)
{
	utf8proc_int32_t state = 0;
	uint32_t cp, next;
	size_t len = (size_t)utf8_decode(p, n, &cp);

	while (len < n && allowance_spend(0)) {
		size_t more = (size_t)utf8_decode(p + len, n - len, &next);

		if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)cp, (utf8proc_int32_t)next, &state))
			break;
		cp = next;
		len += more;
	}
	return len;
}

/* As the tokenizers library does it: a short cluster that begins with an entry is replaced by it as a whole; of others each
 * character is looked up.  SentencePiece itself takes the longest entry at every byte, which differs for clusters of several
 * characters alone. */
static void do_charsmap(const struct step *s, struct normal_text *to, const struct normal_text *of)
{
	enum { SHORT = 6 };
	const char *p = of->text.p, *with;
	size_t n, end = 0;
	uint32_t cp;

	for (size_t i = 0, len; i < of->text.n; i += len) {
		if (i == end) {
			len = cluster_at(p + i, of->text.n - i);
			end = i + len;
			if (len < SHORT && charsmap_find(&s->map, p + i, len, &with, &n)) {
				put(to, with, n, of->from[i]);
				continue;
			}
		}
		len = (size_t)utf8_decode(p + i, of->text.n - i, &cp);
		if (charsmap_find(&s->map, p + i, len, &with, &n))
			put(to, with, n, of->from[i]);
		else
			copy(to, of, i, len);
	}
}

static void do_prepend(const struct step *s, struct normal_text *to, const struct normal_text *of)
{
	size_t at = 0;

	while (s->kind == PREPEND_WORD && at < of->text.n && of->text.p[at] == ' ')
		at++;
	copy(to, of, 0, at);
	if (at < of->text.n)
		put(to, s->with, s->n_with, of->from[at]);
	copy(to, of, at, of->text.n - at);
}

static int do_step(const struct step *s, struct normal_text *to, const struct normal_text *of, struct err *err)
{
	switch (s->kind) {
	case FORM: do_form(s->form, to, of); break;
	case STRIP: do_strip(s, to, of); break;
	case PREPEND:
	case PREPEND_WORD: do_prepend(s, to, of); break;
	case REPLACE: do_replace(s, to, of); break;
	case EXPRESSION: return do_expression(s, to, of, err);
	case CHARSMAP: do_charsmap(s, to, of); break;
	case LOWER:
	case ACCENTS:
	case BERT: by_char(s, to, of); break;
	}
	return 0;
}

void normal_work_init(struct normal_work *w)
{
	*w = (struct normal_work){ 0 };
	buf_init(&w->text.text);
	buf_init(&w->next.text);
}

void normal_work_fini(struct normal_work *w)
{
	buf_fini(&w->text.text);
	buf_fini(&w->next.text);
	free(w->text.from);
	free(w->next.from);
}

bool normal_run(const struct normal *f, struct normal_work *w, const char *p, size_t n, int *code, struct err *err)
{
	*code = 0;
	if (!f)
		return false;
	buf_reset(&w->text.text);
	for (size_t i = 0; i < n; i++)
		put(&w->text, p + i, 1, (uint32_t)i);
	for (int i = 0; i < f->n && !*code; i++) {
		struct normal_text done = w->next;

		buf_reset(&done.text);
		if (allowance_spend(w->text.text.n))
			*code = do_step(&f->step[i], &done, &w->text, err);
		else
			*code = err_set(err, E_LIMIT, "normalizer: text of %zu bytes: %s", n, allowance_why());
		w->next = w->text;
		w->text = done;
		if (!*code && w->text.text.n > 3 * (size_t)TOKENIZER_TEXT_MAX)
			*code = err_set(err, E_LIMIT, "normalizer: %zu bytes, more than %zu", w->text.text.n,
			                3 * (size_t)TOKENIZER_TEXT_MAX);
	}
	return true;
}

void normal_source(const struct normal_work *w, size_t n, size_t to, size_t to_end, size_t *from, size_t *from_end)
{
	*from = to < w->text.text.n ? w->text.from[to] : n;
	*from_end = n;
	/* Following characters from the same source belong to it. */
	for (size_t i = to_end; i < w->text.text.n; i++)
		if (i == 0 || w->text.from[i] != w->text.from[i - 1]) {
			*from_end = w->text.from[i];
			break;
		}
}

/* ---- loading ---- */

static int add_text(struct step *s, const char *p, size_t n, char **to, size_t *len, struct err *err)
{
	if (!p || n > CONTENT_MAX)
		return err_set(err, E_FORMAT, "must have a text of at most %d bytes", CONTENT_MAX);
	*to = xstrndup(p, n);
	memcpy(*to, p, n);
	*len = n;
	return 0;
}

static int add_replace(struct step *s, const struct json *j, struct err *err)
{
	const struct json *pattern = json_get(j, "pattern");
	const char *p;
	size_t n;
	int e;

	p = json_str(json_get(j, "content"), &n);
	if ((e = add_text(s, p, n, &s->with, &s->n_with, err)))
		return e;
	if ((p = json_str(json_get(pattern, "String"), &n))) {
		s->kind = REPLACE;
		if (!n)
			return err_set(err, E_FORMAT, "pattern: is empty");
		return add_text(s, p, n, &s->what, &s->n_what, err);
	}
	s->kind = EXPRESSION;
	if (!(p = json_str(json_get(pattern, "Regex"), &n)))
		return err_set(err, E_FORMAT, "pattern must be {\"Regex\": text} or {\"String\": text}");
	return pretok_compile(p, n, &s->re, err);
}

static int add_bert(struct step *s, const struct json *j, struct err *err)
{
	int e;

	if ((e = json_get_bool(j, "clean_text", true, &s->clean, err)) ||
	    (e = json_get_bool(j, "handle_chinese_chars", true, &s->chinese, err)) ||
	    (e = json_get_bool(j, "lowercase", true, &s->lower, err)))
		return e;
	return json_get_bool(j, "strip_accents", s->lower, &s->accents, err);
}

static int add_step(struct step *s, const struct json *j, const char *type, struct err *err)
{
	static const char *const forms[] = { "NFC", "NFD", "NFKC", "NFKD" };
	const char *p;
	size_t n;
	int e;

	for (int i = 0; i < 4; i++)
		if (!strcmp(type, forms[i])) {
			*s = (struct step){ .kind = FORM, .form = (enum nfc_form)i };
			return 0;
		}
	*s = (struct step){ 0 };
	if (!strcmp(type, "Lowercase")) {
		s->kind = LOWER;
	} else if (!strcmp(type, "StripAccents")) {
		s->kind = ACCENTS;
	} else if (!strcmp(type, "Strip")) {
		s->kind = STRIP;
		if ((e = json_get_bool(j, "strip_left", true, &s->left, err)))
			return e;
		return json_get_bool(j, "strip_right", true, &s->right, err);
	} else if (!strcmp(type, "Prepend") || !strcmp(type, "PrependWord")) {
		s->kind = type[7] ? PREPEND_WORD : PREPEND;
		p = json_str(json_get(j, "prepend"), &n);
		return add_text(s, p, n, &s->with, &s->n_with, err);
	} else if (!strcmp(type, "Replace")) {
		return add_replace(s, j, err);
	} else if (!strcmp(type, "BertNormalizer")) {
		s->kind = BERT;
		return add_bert(s, j, err);
	} else if (!strcmp(type, "Precompiled")) {
		s->kind = CHARSMAP;
		p = json_str(json_get(j, "precompiled_charsmap"), &n);
		return charsmap_open(&s->map, p ? p : "", p ? n : 0, err);
	} else {
		return err_set(err, E_UNSUPPORTED, "this type is not done");
	}
	return 0;
}

/* BERT's accents go between two other steps: decomposed, marks dropped, then the rest of it. */
static int add_accents(struct normal *f, struct err *err)
{
	struct step bert = f->step[f->n - 1];

	if (f->n + 2 > STEPS_MAX)
		return err_set(err, E_LIMIT, "more than %d steps", STEPS_MAX);
	f->step[f->n - 1] = (struct step){ .kind = FORM, .form = FORM_D };
	f->step[f->n++] = (struct step){ .kind = ACCENTS };
	f->step[f->n++] = bert;
	return 0;
}

static int add_all(struct normal *f, const struct json *j, int depth, struct err *err)
{
	const char *type;
	int e;

	if (json_kind(j) == JSON_NULL)
		return 0;
	if (json_kind(j) != JSON_OBJECT)
		return err_set(err, E_FORMAT, "must be an object, is %s", json_kind_name(json_kind(j)));
	if (depth > DEPTH_MAX)
		return err_set(err, E_LIMIT, "Sequence nested deeper than %d", DEPTH_MAX);
	if ((e = json_get_str(j, "type", "", &type, err)))
		return e;
	if (!strcmp(type, "Sequence")) {
		const struct json *list = json_get(j, "normalizers");

		for (size_t i = 0; i < json_len(list); i++)
			if ((e = add_all(f, json_at(list, i), depth + 1, err)))
				return e;
		return 0;
	}
	if (f->n == STEPS_MAX)
		return err_set(err, E_LIMIT, "more than %d steps", STEPS_MAX);
	f->n++; /* from here normal_close frees it */
	if ((e = add_step(&f->step[f->n - 1], j, type, err)))
		return err_prefix(err, "type \"%.40s\"", type);
	return f->step[f->n - 1].kind == BERT && f->step[f->n - 1].accents ? add_accents(f, err) : 0;
}

int normal_open(struct normal **out, const struct json *j, struct err *err)
{
	struct normal *f = xcalloc(1, sizeof *f);
	int e = add_all(f, j, 0, err);

	*out = NULL;
	if (e) {
		normal_close(f);
		return err_prefix(err, "normalizer");
	}
	if (f->n)
		*out = f;
	else
		normal_close(f);
	return 0;
}

void normal_close(struct normal *f)
{
	if (!f)
		return;
	for (int i = 0; i < f->n; i++) {
		free(f->step[i].what);
		free(f->step[i].with);
		pcre2_code_free(f->step[i].re);
		charsmap_close(&f->step[i].map);
	}
	free(f);
}
