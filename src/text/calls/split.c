/* split.c - see split.h. */
#include "text/calls/split.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/calls/dialect.h"

static const char *const no_noise[] = { NULL };
const struct speech speech_plain = { .think_open = "<think>", .think_close = "</think>", .noise = no_noise };

static bool blank(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

void split_init(struct split *s, bool thinking, const struct json *tools, const struct dialect *const *dialects)
{
	memset(s, 0, sizeof *s);
	s->state = thinking ? SPLIT_THINK : SPLIT_START;
	s->skip_blanks = thinking;
	s->tools = tools;
	s->dialects = dialects;
	s->speech = dialects && dialects[0]->speech ? dialects[0]->speech : &speech_plain;
	buf_init(&s->held);
	buf_init(&s->text);
	buf_init(&s->call.name);
	buf_init(&s->call.arguments);
}

void split_fini(struct split *s)
{
	buf_fini(&s->held);
	buf_fini(&s->text);
	buf_fini(&s->call.name);
	buf_fini(&s->call.arguments);
	free(s->piece);
	s->piece = NULL;
}

void split_taken(struct split *s)
{
	buf_reset(&s->text);
	s->n_piece = 0;
}

static bool ends_with(const char *p, size_t n, const char *tag)
{
	size_t len = strlen(tag);

	while (n && blank(p[n - 1]))
		n--;
	return n >= len && !memcmp(p + n - len, tag, len);
}

bool split_opens(const struct speech *how, const char *p, size_t n)
{
	return ends_with(p, n, how->think_open);
}
bool split_closes(const struct speech *how, const char *p, size_t n)
{
	return ends_with(p, n, how->think_close);
}

/* ---- pieces ---- */

void split_piece(struct split *s, enum piece_kind kind, const char *p, size_t n)
{
	struct piece *last = s->n_piece ? &s->piece[s->n_piece - 1] : NULL;
	bool whole = kind == PIECE_CALL || kind == PIECE_CALL_END;

	if (!n && !whole)
		return;
	if (!last || last->kind != kind || whole) {
		if (s->n_piece == s->cap_piece) {
			s->cap_piece = s->cap_piece ? 2 * s->cap_piece : 8;
			s->piece = xrealloc(s->piece, size_mul((size_t)s->cap_piece, sizeof *s->piece));
		}
		last = &s->piece[s->n_piece++];
		*last = (struct piece){ .kind = kind, .at = s->text.n };
	}
	buf_put(&s->text, p, n);
	last->n += n;
	if (kind == PIECE_CONTENT)
		s->content_begun = true;
	s->n_whole += kind == PIECE_CALL_END;
}

void split_call(struct split *s, const char *name, size_t n)
{
	split_piece(s, PIECE_CALL, name, n);
	s->n_call++;
	s->content_begun = true;
	buf_reset(&s->call.name);
	buf_put(&s->call.name, name, n);
}

void split_drop(struct split *s, size_t n)
{
	buf_drop(&s->held, n);
}

void split_put_back(struct split *s, const char *text)
{
	struct buf b;

	buf_init(&b);
	buf_puts(&b, text);
	buf_put(&b, s->held.p, s->held.n);
	buf_fini(&s->held);
	s->held = b;
}

/* Moves the first n held bytes out. */
static void emit(struct split *s, enum piece_kind kind, size_t n)
{
	split_piece(s, kind, s->held.p, n);
	buf_drop(&s->held, n);
}

/* ---- what is asked of the tools ---- */

static const struct json *function_of(const struct split *s, const char *name, size_t n)
{
	for (size_t i = 0; i < json_len(s->tools); i++) {
		const struct json *f = json_get(json_at(s->tools, i), "function");
		size_t len;
		const char *own = json_str(json_get(f, "name"), &len);

		if (own && len == n && !memcmp(own, name, n))
			return f;
	}
	return NULL;
}

bool split_knows(const struct split *s, const char *name, size_t n)
{
	return function_of(s, name, n);
}

size_t split_prefix(const struct split *s, const char *p, size_t n)
{
	size_t best = 0;

	for (size_t i = 0; i < json_len(s->tools); i++) {
		size_t len;
		const char *own = json_str(json_get(json_get(json_at(s->tools, i), "function"), "name"), &len);

		if (own && len > best && len <= n && !memcmp(own, p, len))
			best = len;
	}
	return best;
}

const struct json *split_parameters(const struct split *s, const char *name, size_t n)
{
	return json_get(function_of(s, name, n), "parameters");
}

/* ---- finding ---- */

size_t blanks(const char *p, size_t n)
{
	size_t k = 0;

	while (k < n && blank(p[k]))
		k++;
	return k;
}

size_t blanks_at_end(const char *p, size_t n)
{
	size_t k = 0;

	while (k < n && blank(p[n - 1 - k]))
		k++;
	return k;
}

static void drop_blanks(struct split *s)
{
	if (!s->skip_blanks)
		return;
	buf_drop(&s->held, blanks(s->held.p, s->held.n));
	if (s->held.n)
		s->skip_blanks = false;
}

/* ---- the states: each returns false when more text is needed ---- */

static bool in_start(struct split *s, bool over)
{
	const char *open = s->speech->think_open;
	size_t at = blanks(s->held.p, s->held.n), len = strlen(open), left = s->held.n - at;

	if (left >= len && !memcmp(s->held.p + at, open, len)) {
		buf_drop(&s->held, at + len);
		s->state = SPLIT_THINK;
		s->skip_blanks = true;
		return true;
	}
	if (left < len && !over && !memcmp(s->held.p + at, open, left))
		return false;
	s->state = SPLIT_TEXT;
	return true;
}

/* The first place in held where the thought ends; *len: bytes there that do not belong to what follows.  NULL: nowhere,
 * and the last *held of the bytes may be the beginning of it. */
static const char *think_end(const struct split *s, size_t *len, size_t *held)
{
	const char *close = s->speech->think_close, *first = memmem(s->held.p, s->held.n, close, strlen(close));

	*len = strlen(close);
	*held = text_partial(s->held.p, s->held.n, close);
	for (const char *const *b = s->speech->breaks; b && *b; b++) {
		const char *at = memmem(s->held.p, s->held.n, *b, strlen(*b));
		size_t k = text_partial(s->held.p, s->held.n, *b);

		if (at && (!first || at < first)) {
			first = at;
			*len = 0;
		}
		*held = k > *held ? k : *held;
	}
	return first;
}

static bool in_think(struct split *s, bool over)
{
	const char *tag;
	size_t n, len, held;

	drop_blanks(s);
	tag = think_end(s, &len, &held);
	n = tag ? (size_t)(tag - s->held.p) : s->held.n - (over ? 0 : held);
	emit(s, PIECE_THINKING, n - blanks_at_end(s->held.p, n));
	if (!tag) {
		if (over)
			buf_reset(&s->held);
		return false;
	}
	/* Emitting text has moved the tag in held. */
	buf_drop(&s->held, blanks(s->held.p, s->held.n) + len);
	s->state = SPLIT_TEXT;
	s->skip_blanks = true;
	return true;
}

/* Noise, or the beginning of another thought: the first of them in held, or SIZE_MAX; *len its length, *thought what it
 * is.  *safe: neither begins before that byte, whatever follows. */
static size_t find_form(const struct split *s, size_t *len, bool *thought, size_t *safe)
{
	const struct speech *form = s->speech;
	size_t best = SIZE_MAX;

	*safe = s->held.n;
	for (size_t i = 0;; i++) {
		const char *text = form->noise[i] ? form->noise[i] : form->reopens ? form->think_open : NULL, *at;
		size_t k;

		if (!text)
			break;
		at = memmem(s->held.p, s->held.n, text, strlen(text));
		k = at ? (size_t)(at - s->held.p) : SIZE_MAX;
		/* The longer of two that begin there. */
		if (at && (k < best || (k == best && strlen(text) > *len))) {
			best = k;
			*len = strlen(text);
			*thought = !form->noise[i];
		}
		k = s->held.n - text_partial(s->held.p, s->held.n, text);
		if (k < *safe)
			*safe = k;
		if (!form->noise[i])
			break;
	}
	return best;
}

/* The first place in held, from `from` on, where a call opens; SIZE_MAX when there
 * is none.  *safe: no call opens before that byte, whatever follows. */
static size_t find_open(const struct split *s, size_t *safe)
{
	size_t best = SIZE_MAX;

	*safe = s->held.n;
	for (int i = 0; s->dialects[i]; i++) {
		const char *open = s->dialects[i]->open, *at;
		size_t k;

		if (!*open) {
			k = blanks(s->held.p, s->held.n);
			if (!s->content_begun && k < best)
				best = k;
			continue;
		}
		at = memmem(s->held.p, s->held.n, open, strlen(open));
		if (at && (size_t)(at - s->held.p) < best)
			best = (size_t)(at - s->held.p);
		k = s->held.n - text_partial(s->held.p, s->held.n, open);
		if (k < *safe)
			*safe = k;
	}
	return best;
}

/* A call may open at held[at].  NO: none does, though it may have looked so.  If several dialects read it, the first
 * counts, so none is asked before those ahead of it have said no: they would have more to say of a text that comes
 * whole. */
static enum verdict call_at(struct split *s, size_t at, bool over)
{
	bool opened = false;

	for (int i = 0; s->dialects[i]; i++) {
		const struct dialect *d = s->dialects[i];
		size_t len = strlen(d->open);
		enum verdict v = text_match(s->held.p + at, s->held.n - at, d->open);

		if (!len && s->content_begun)
			continue;
		if (v == CALL_MAYBE && !over)
			return v;
		if (v != CALL_YES)
			continue;
		opened |= len > 0;
		v = d->begins(s, d, s->held.p + at + len, s->held.n - at - len, over);
		if (v == CALL_YES) {
			buf_drop(&s->held, at + len);
			s->dialect = d;
			s->state = SPLIT_CALL;
			buf_fini(&s->call.name);
			buf_fini(&s->call.arguments);
			memset(&s->call, 0, sizeof s->call);
			buf_init(&s->call.name);
			buf_init(&s->call.arguments);
			return v;
		}
		if (v == CALL_MAYBE && !over)
			return v;
	}
	s->malformed |= opened;
	return CALL_NO;
}

/* Content up to byte n, without the blanks before what follows it. */
static size_t emit_before(struct split *s, size_t n)
{
	size_t some = n - blanks_at_end(s->held.p, n);

	emit(s, PIECE_CONTENT, some);
	return n - some;
}

/* Could held[at..] still become what comes before a call? */
static bool may_open(const struct split *s, size_t at)
{
	for (int i = 0; s->tools && s->dialects[i]; i++) {
		const char *open = s->dialects[i]->open;
		size_t n = s->held.n - at;

		if (n < strlen(open) && !memcmp(s->held.p + at, open, n))
			return true;
	}
	return false;
}

static bool take_form(struct split *s, size_t at, size_t len, bool thought)
{
	buf_drop(&s->held, emit_before(s, at) + len);
	s->skip_blanks = true;
	if (thought)
		s->state = SPLIT_THINK;
	return true;
}

static bool in_text(struct split *s, bool over)
{
	size_t at = SIZE_MAX, safe = s->held.n, form, form_safe, len = 0;
	bool thought = false;
	enum verdict v;

	drop_blanks(s);
	if (!s->held.n)
		return false;
	form = find_form(s, &len, &thought, &form_safe);
	if (s->tools)
		at = find_open(s, &safe);
	if (form != SIZE_MAX && form < at)
		return (over || !may_open(s, form)) && take_form(s, form, len, thought);
	if (at != SIZE_MAX && (at < s->held.n || s->content_begun)) {
		at = emit_before(s, at);
		v = call_at(s, at, over);
		if (v == CALL_NO && form != SIZE_MAX && s->held.n >= at &&
		    find_form(s, &len, &thought, &form_safe) == at)
			return take_form(s, at, len, thought);
		if (v != CALL_NO)
			return v == CALL_YES;
		/* Its first byte is content, and so no call begins there. */
		emit(s, PIECE_CONTENT, at + 1);
		return s->held.n > 0;
	}
	safe = form_safe < safe ? form_safe : safe;
	if (over)
		safe = s->held.n;
	else if (s->tools || s->speech != &speech_plain)
		safe -= blanks_at_end(s->held.p, safe);
	emit(s, PIECE_CONTENT, safe);
	return false;
}

static bool in_call(struct split *s, bool over)
{
	if (s->dialect->read(s, over) == CALL_MORE && !over)
		return false;
	s->state = SPLIT_TEXT;
	s->skip_blanks = true;
	return true;
}

static void split_run(struct split *s, bool over)
{
	bool more = true;

	while (more) {
		switch (s->state) {
		case SPLIT_START: more = in_start(s, over); break;
		case SPLIT_THINK: more = in_think(s, over); break;
		case SPLIT_TEXT: more = in_text(s, over); break;
		case SPLIT_CALL: more = in_call(s, over); break;
		}
	}
}

void split_put(struct split *s, const char *p, size_t n)
{
	buf_put(&s->held, p, n);
	split_run(s, false);
}

/* The beginning of a demanded call, which the answer's end cut. */
static void drop_lead(struct split *s)
{
	size_t safe, at = find_open(s, &safe);

	at = at < safe ? at : safe;
	s->malformed |= at < s->held.n;
	s->held.n = at;
}

void split_end(struct split *s)
{
	if (s->demanded && s->tools && !s->n_call && s->state != SPLIT_THINK)
		drop_lead(s);
	split_run(s, true);
}
