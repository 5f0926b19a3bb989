/* past.c - see past.h. */
#include "server/chat/past.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "server/chat/messages.h"

static const char blanks[] = " \t\r\n";

static struct text trim(struct text t)
{
	while (t.n && strchr(blanks, t.p[0]) && t.p[0])
		t = (struct text){ t.p + 1, t.n - 1 };
	while (t.n && strchr(blanks, t.p[t.n - 1]) && t.p[t.n - 1])
		t.n--;
	return t;
}

static struct text text_of(const struct json *v)
{
	struct text t = { "", 0 };
	size_t n;
	const char *s = json_str(v, &n);

	if (s)
		t = (struct text){ s, n };
	return t;
}

static bool same(struct text a, struct text b)
{
	return a.n == b.n && !memcmp(a.p, b.p, a.n);
}

static bool role_is(const struct json *message, const char *role)
{
	size_t n;
	const char *s = json_str(json_get(message, "role"), &n);

	return s && !strcmp(s, role);
}

/* ---- what a message of the assistant says ---- */

static struct said read_said(const struct json *m)
{
	static const char open[] = "<think>", close[] = "</think>";
	struct said s = { .content = text_of(json_get(m, "content")), .calls = json_get(m, "tool_calls") };
	const char *end = memmem(s.content.p, s.content.n, close, sizeof close - 1), *begin;

	if (end) {
		struct text whole = s.content;

		s.thinking = (struct text){ whole.p, (size_t)(end - whole.p) };
		s.content = (struct text){ end + sizeof close - 1, whole.n - s.thinking.n - (sizeof close - 1) };
		begin = memmem(s.thinking.p, s.thinking.n, open, sizeof open - 1);
		if (begin)
			s.thinking = (struct text){ begin + sizeof open - 1,
				                    (size_t)(end - begin) - (sizeof open - 1) };
	}
	if (!s.thinking.n)
		s.thinking = text_of(json_get(m, "reasoning_content"));
	s.content = trim(s.content);
	s.thinking = trim(s.thinking);
	return s;
}

/* ---- keys ---- */

struct member {
	const char *name;
	const struct json *value;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct member *)a)->name, ((const struct member *)b)->name);
}

/* One text for all ways to write a value: members by name, numbers by value. */
static void put_canonical(struct buf *b, const struct json *j)
{
	struct json_cursor c;
	struct member *m;
	size_t n = json_len(j), i = 0;
	int64_t whole;
	double d = 0;

	if (!allowance_spend(1))
		return;
	switch (json_kind(j)) {
	case JSON_INT:
	case JSON_DOUBLE:
		json_to_double(j, &d);
		/* 2^53: beyond it a double is no longer every whole number. */
		if (json_kind(j) == JSON_INT && json_to_whole(j, &whole))
			buf_puts(b, json_number_text(j)); /* beyond 64 bits */
		else if (!json_to_int(j, &whole) && (whole > INT64_C(1) << 53 || whole < -(INT64_C(1) << 53)))
			buf_printf(b, "%lld", (long long)whole);
		else
			buf_printf(b, "%.17g", d);
		break;
	case JSON_ARRAY:
		buf_putc(b, '[');
		for (i = 0; i < n && !allowance_why(); i++) {
			put_canonical(b, json_at(j, i));
			buf_putc(b, ',');
		}
		buf_putc(b, ']');
		break;
	case JSON_OBJECT:
		m = xcalloc(n + 1, sizeof *m);
		for (c = json_first(j); i < n && json_next(&c, &m[i].name, &m[i].value); i++)
			;
		qsort(m, i, sizeof *m, by_name);
		buf_putc(b, '{');
		for (n = i, i = 0; i < n && !allowance_why(); i++) {
			json_put_cstr(b, m[i].name);
			buf_putc(b, ':');
			put_canonical(b, m[i].value);
			buf_putc(b, ',');
		}
		buf_putc(b, '}');
		free(m);
		break;
	default: json_put(b, j);
	}
}

static const struct json *function_of(const struct json *calls, size_t i)
{
	return json_get(json_at(calls, i), "function");
}

static void put_key(struct sha256 *s, const struct json *m)
{
	struct text role = text_of(json_get(m, "role")), content = text_of(json_get(m, "content"));
	struct said said;
	struct buf b;

	sha256_field(s, role.p, role.n);
	if (!role_is(m, "assistant")) {
		sha256_field(s, content.p, content.n);
		return;
	}
	said = read_said(m);
	sha256_field(s, said.content.p, said.content.n);
	buf_init(&b);
	for (size_t i = 0; i < json_len(said.calls); i++) {
		json_put(&b, json_get(function_of(said.calls, i), "name"));
		put_canonical(&b, json_get(function_of(said.calls, i), "arguments"));
		buf_putc(&b, ';');
	}
	sha256_field(s, b.p, b.n);
	buf_fini(&b);
}

static struct digest next_key(const struct digest *before, const struct json *message)
{
	struct sha256 s;
	struct digest d;

	sha256_init(&s);
	sha256_put(&s, before, sizeof *before);
	put_key(&s, message);
	sha256_end(&s, &d);
	return d;
}

static struct digest first_key(const struct past_context *c)
{
	struct sha256 s;
	struct digest d;
	struct buf b;

	sha256_init(&s);
	sha256_field(&s, c->salt ? c->salt : "", c->salt ? strlen(c->salt) : 0);
	sha256_put(&s, &c->key, sizeof c->key);
	sha256_put(&s, &c->model, sizeof c->model);
	buf_init(&b);
	json_put(&b, c->tools);
	buf_putc(&b, '\n');
	json_put(&b, c->variables);
	sha256_field(&s, b.p, b.n);
	buf_fini(&b);
	sha256_end(&s, &d);
	return d;
}

/* ---- reading ---- */

void past_fini(struct past *h)
{
	for (int i = 0; i < h->n; i++)
		turns_give_back(h->turns, h->turn[i]);
	free(h->turn);
	free(h->splice);
	free(h->header);
	*h = (struct past){ 0 };
}

/* A thought that the client wrote is the client's. */
static bool may_restore(const struct json *theirs, const struct turn *t, enum turn_replay mode)
{
	struct said a = read_said(theirs);

	return same(a.thinking, t->said.thinking) || (!a.thinking.n && mode == REPLAY_ALL);
}

void past_read(struct past *h, struct turns *turns, enum turn_replay mode, const struct past_context *context,
               const struct json *messages)
{
	h->turns = turns;
	h->n = (int)json_len(messages);
	h->turn = xcalloc((size_t)h->n + 1, sizeof *h->turn);
	h->end = first_key(context);
	for (int i = 0; i < h->n && allowance_spend(1); i++) {
		const struct json *m = json_at(messages, (size_t)i);
		struct turn *t;

		h->end = next_key(&h->end, m);
		if (!role_is(m, "assistant") || !(t = turns_find(turns, &h->end)))
			continue;
		if (may_restore(m, t, mode)) {
			h->turn[i] = t;
			h->n_turn++;
		} else {
			turns_give_back(turns, t);
		}
	}
}

/* ---- putting ours in the place of theirs ---- */

/* The client's call, with its id and other members, but with our function: the name, and the arguments as the model
 * wrote them. */
static struct json *our_call(const struct json *theirs, const struct json *ours)
{
	struct json *out = json_copy(theirs);

	if (json_get(theirs, "function"))
		json_set(out, "function", json_copy_whole(json_get(ours, "function")));
	return out;
}

static struct json *our_message(const struct json *theirs, const struct turn *t)
{
	const struct json *calls = json_get(theirs, "tool_calls");
	const struct said *said = &t->said;
	struct json *out = json_copy(theirs), *list;

	if (json_get(theirs, "content"))
		json_set_str(out, "content", said->content.p, said->content.n);
	if (calls) {
		list = json_new_array();
		for (size_t i = 0; i < json_len(calls); i++)
			json_add(list, our_call(json_at(calls, i), json_at(said->calls, i)));
		json_set(out, "tool_calls", list);
	}
	json_drop(out, "reasoning_content");
	if (said->thinking.n)
		json_set_str(out, "reasoning_content", said->thinking.p, said->thinking.n);
	return out;
}

struct json *past_restore(const struct past *h, const struct json *messages)
{
	struct json *out = json_new_array();

	for (int i = 0; i < h->n && allowance_spend(0); i++) {
		const struct json *m = json_at(messages, (size_t)i);

		json_add(out, h->turn[i] ? our_message(m, h->turn[i]) : json_share(m));
	}
	return out;
}

struct json *past_blank(const struct past *h, const struct json *messages)
{
	struct json *out = json_new_array();

	for (int i = 0; i < h->n && allowance_spend(0); i++)
		json_add(out, h->turn[i] ? message_new("assistant", "x", 1) : json_share(json_at(messages, (size_t)i)));
	return out;
}

/* ---- the text ---- */

/* Where message m's own strings stand in a rendering: [begin, end); false: nowhere. */
static bool strings_of(const struct template_output *o, int m, size_t *begin, size_t *end)
{
	size_t at = 0;
	bool found = false;

	for (size_t i = 0; i < o->n_runs; at = o->runs[i++].end) {
		if (o->runs[i].message != m || o->runs[i].end == at)
			continue;
		if (!found)
			*begin = at;
		*end = o->runs[i].end;
		found = true;
	}
	return found;
}

/* The end of the strings that come before this byte; the beginning of those that
 * come after it, and whose they are (-1: the end of the text). */
static size_t strings_before(const struct template_output *o, size_t byte)
{
	size_t at = 0, end = 0;

	for (size_t i = 0; i < o->n_runs && o->runs[i].end <= byte; at = o->runs[i++].end)
		if (o->runs[i].message >= 0 && o->runs[i].end > at)
			end = o->runs[i].end;
	return end;
}

static size_t strings_after(const struct template_output *o, size_t byte, int *message)
{
	size_t at = 0;

	*message = -1;
	for (size_t i = 0; i < o->n_runs; at = o->runs[i++].end) {
		if (at >= byte && o->runs[i].message >= 0 && o->runs[i].end > at) {
			*message = o->runs[i].message;
			return at;
		}
	}
	return o->text.n;
}

/* The turn that message m is, from the end of its header to where the template goes
 * on after it: what follows there is what follows a word in the turn's place. */
static bool place_of(const struct past *h, const struct template_output *o, const struct template_output *blank, int m,
                     size_t *from, size_t *to)
{
	const char *header = h->turn[m]->header, *p, *found = NULL;
	size_t n = strlen(header), begin = 0, end = 0, before, b_begin = 0, b_end = 0, next, b_next, tail;
	int who, b_who;

	if (!n || !strings_of(o, m, &begin, &end) || !strings_of(blank, m, &b_begin, &b_end))
		return false;
	before = strings_before(o, begin);
	for (p = o->text.p + before; (p = memmem(p, (size_t)(o->text.p + begin - p), header, n)); p++)
		found = p;
	if (!found)
		return false;
	*from = (size_t)(found - o->text.p) + n;
	next = strings_after(o, end, &who);
	b_next = strings_after(blank, b_end, &b_who);
	tail = b_next - b_end;
	/* Two turns of ours in a row: the second's beginning differs between the renderings. */
	if (who != b_who || (who >= 0 && h->turn[who]) || tail > next - end ||
	    memcmp(o->text.p + next - tail, blank->text.p + b_end, tail) != 0)
		return false;
	*to = next - tail;
	return *from <= begin && *to >= end;
}

static size_t bytes_of(const struct turn *t, const struct tokenizer *tok, struct buf *out)
{
	size_t from = out->n;

	for (size_t i = 0; i < t->n; i++) {
		size_t n = 0;
		const char *p = tokenizer_token_bytes(tok, t->id[i], &n);

		if (p)
			buf_put(out, p, n);
	}
	return out->n - from;
}

/* [from, to) of the old text became n bytes; the turn's own strings began at `begin`. */
struct edit {
	size_t from, begin, to, n;
};

/* Where a byte of the old text is in the new one. */
static size_t moved(const struct edit *e, int n, size_t byte)
{
	size_t shift = 0; /* modulo 2^64, as all that is added to it */

	for (int i = 0; i < n && byte > e[i].from; i++) {
		if (byte <= e[i].begin)
			return e[i].from + shift;
		if (byte < e[i].to)
			return e[i].from + shift + e[i].n;
		shift += e[i].n - (e[i].to - e[i].from);
	}
	return byte + shift;
}

/* All that points into the text follows it. */
static void move_all(struct prompt *p, const struct edit *e, int n)
{
	for (size_t i = 0; i < p->out.n_runs; i++)
		p->out.runs[i].end = moved(e, n, p->out.runs[i].end);
	for (int i = 0; i < MARKS_MAX; i++)
		p->part[i] = moved(e, n, p->part[i]);
	/* Ranges inside a kept turn stay inside it, where no text is tokenised. */
	for (size_t i = 0; i < p->n_user; i++)
		p->user[i] = (struct text_range){ moved(e, n, p->user[i].start), moved(e, n, p->user[i].end) };
}

void past_splice(struct past *h, struct prompt *p, const struct template_output *blank, const struct tokenizer *t)
{
	struct edit *edit = xcalloc((size_t)h->n_turn + 1, sizeof *edit);
	struct buf text;
	size_t at = 0;
	int n = 0;

	h->splice = xcalloc((size_t)h->n_turn + 1, sizeof *h->splice);
	buf_init(&text);
	for (int m = 0; m < h->n; m++) {
		struct edit *e = &edit[n];
		size_t end;

		if (!h->turn[m] || !place_of(h, &p->out, blank, m, &e->from, &e->to) || e->from < at)
			continue;
		strings_of(&p->out, m, &e->begin, &end);
		buf_put(&text, p->out.text.p + at, e->from - at);
		h->splice[n].at = text.n;
		h->splice[n].turn = h->turn[m];
		h->splice[n].n = e->n = bytes_of(h->turn[m], t, &text);
		h->n_token += (int)h->turn[m]->n;
		at = e->to;
		n++;
	}
	h->n_splice = n;
	buf_put(&text, p->out.text.p + at, p->out.text.n - at);
	move_all(p, edit, n);
	buf_fini(&p->out.text);
	p->out.text = text;
	free(edit);
}

void past_remember(const struct past *h, const struct json *message, const struct tokens *answer)
{
	struct digest key = next_key(&h->end, message);
	struct said said = read_said(message);

	turns_put(h->turns, &key, answer, h->header, &said);
}

/* ---- lines that mean nothing ---- */

/* Bytes of it at the beginning of p[0..n): the name, then any number of
 * "name=value;", then the end of the line.  What follows on the line stays: blocks
 * of a system prompt are joined without a break. */
static size_t volatile_bytes(const char *p, size_t n)
{
	static const char name[] = "x-anthropic-billing-header:";
	size_t i = sizeof name - 1;

	if (n < i || memcmp(p, name, i) != 0)
		return 0;
	for (;;) {
		size_t k = i;

		while (k < n && p[k] == ' ')
			k++;
		while (k < n && (p[k] == '_' || (p[k] >= 'a' && p[k] <= 'z')))
			k++;
		if (k == n || p[k] != '=')
			break;
		while (k < n && p[k] != ';' && p[k] != '\n')
			k++;
		if (k == n || p[k] != ';')
			break;
		i = k + 1;
	}
	while (i < n && p[i] == ' ')
		i++;
	return i + (i < n && p[i] == '\n');
}

/* Bytes of it in a message. */
static size_t volatile_in(const struct json *m)
{
	struct text t = text_of(json_get(m, "content"));

	return role_is(m, "system") ? volatile_bytes(t.p, t.n) : 0;
}

struct json *past_drop_volatile(const struct json *messages)
{
	struct json *out, *changed;
	bool found = false;

	for (size_t i = 0; i < json_len(messages) && !found; i++)
		found = volatile_in(json_at(messages, i));
	if (!found)
		return NULL;
	out = json_new_array();
	for (size_t i = 0; i < json_len(messages) && allowance_spend(0); i++) {
		const struct json *m = json_at(messages, i);
		struct text t = text_of(json_get(m, "content"));
		size_t drop = volatile_in(m);

		changed = drop ? json_copy(m) : json_share(m);
		if (drop)
			json_set_str(changed, "content", t.p + drop, t.n - drop);
		json_add(out, changed);
	}
	return out;
}
