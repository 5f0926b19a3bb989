/* split.c - see split.h. */
#include "server/split.h"

#include <string.h>

#include "server/exchange.h"

static const char think_open[] = "<think>", think_close[] = "</think>";
static const char call_open[] = "<tool_call>", call_close[] = "</tool_call>";

static bool blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

void split_init(struct split *s, bool thinking, const struct json *tools)
{
	memset(s, 0, sizeof *s);
	s->state = thinking ? SPLIT_THINK : SPLIT_START;
	s->skip_blanks = thinking;
	s->tools = tools;
	buf_init(&s->held);
	buf_init(&s->thinking);
	buf_init(&s->content);
	buf_init(&s->calls);
}

void split_fini(struct split *s)
{
	buf_fini(&s->held);
	buf_fini(&s->thinking);
	buf_fini(&s->content);
	buf_fini(&s->calls);
}

bool split_opens(const char *p, size_t n)
{
	size_t len = sizeof think_open - 1;

	while (n && blank(p[n - 1]))
		n--;
	return n >= len && !memcmp(p + n - len, think_open, len);
}

static const char *find(const char *p, size_t n, const char *tag)
{
	return memmem(p, n, tag, strlen(tag));
}

/* How much of the end of p[0..n) is the beginning of tag. */
static size_t partial(const char *p, size_t n, const char *tag)
{
	size_t most = strlen(tag) - 1;

	for (size_t k = n < most ? n : most; k; k--)
		if (!memcmp(p + n - k, tag, k))
			return k;
	return 0;
}

static size_t blanks_at_end(const char *p, size_t n)
{
	size_t k = 0;

	while (k < n && blank(p[n - 1 - k]))
		k++;
	return k;
}

/* Moves the first n held bytes to out. */
static void emit(struct split *s, struct buf *out, size_t n)
{
	buf_put(out, s->held.p, n);
	buf_drop(&s->held, n);
}

static void drop_blanks(struct split *s)
{
	size_t k = 0;

	if (!s->skip_blanks)
		return;
	while (k < s->held.n && blank(s->held.p[k]))
		k++;
	buf_drop(&s->held, k);
	if (s->held.n)
		s->skip_blanks = false;
}

/* ---- calls ---- */

/* The type a tool's schema gives an argument; NULL when it does not say. */
static const char *argument_type(const struct split *s, const char *name, size_t n_name, const char *key)
{
	for (size_t i = 0; i < json_len(s->tools); i++) {
		const struct json *f = json_get(json_at(s->tools, i), "function");
		size_t n;
		const char *own = json_str(json_get(f, "name"), &n);

		if (own && n == n_name && !memcmp(own, name, n))
			return json_str(json_get(json_get(json_get(json_get(f, "parameters"), "properties"), key), "type"), &n);
	}
	return NULL;
}

static void put_argument(const struct split *s, const char *name, size_t n_name, const char *key, const char *v, size_t n,
                         struct buf *out)
{
	const char *type = argument_type(s, name, n_name, key);
	struct json *j = NULL;

	if (type && strcmp(type, "string"))
		j = json_parse(v, n, 0, NULL);
	if (j)
		json_put(out, j);
	else
		json_put_str(out, v, n);
	json_free(j);
}

/* Text up to the tag after *p, which moves behind it; NULL when it is not there. */
static const char *until(const char **p, const char *end, const char *tag, size_t *n)
{
	const char *from = *p, *at = find(from, (size_t)(end - from), tag);

	if (!at)
		return NULL;
	*n = (size_t)(at - from);
	*p = at + strlen(tag);
	return from;
}

static const char *skip(const char *p, const char *end)
{
	while (p < end && blank(*p))
		p++;
	return p;
}

static bool begins(const char *p, const char *end, const char *tag)
{
	return (size_t)(end - p) >= strlen(tag) && !memcmp(p, tag, strlen(tag));
}

/* <function=NAME> (<parameter=KEY> value </parameter>)* </function> */
static bool read_xml(const struct split *s, const char *p, const char *end, const char **name, size_t *n_name,
                     struct buf *args)
{
	size_t n;
	const char *value;
	int count = 0;

	if (!begins(p, end, "<function="))
		return false;
	p += strlen("<function=");
	if (!(*name = until(&p, end, ">", n_name)) || !*n_name || *n_name > 200)
		return false;
	buf_putc(args, '{');
	for (p = skip(p, end); begins(p, end, "<parameter="); p = skip(p, end)) {
		const char *key;
		char *key0;

		p += strlen("<parameter=");
		if (!(key = until(&p, end, ">", &n)) || !n || n > 200)
			return false;
		struct buf k;

		buf_init(&k);
		buf_put(&k, key, n);
		key0 = k.p;
		/* One line break after the tag and one before the next belong to the form. */
		if (p < end && *p == '\n')
			p++;
		if ((value = until(&p, end, "</parameter>", &n))) {
			if (n && value[n - 1] == '\n')
				n--;
			if (count++)
				buf_putc(args, ',');
			json_put_cstr(args, key0);
			buf_putc(args, ':');
			put_argument(s, *name, *n_name, key0, value, n, args);
		}
		buf_fini(&k);
		if (!value)
			return false;
	}
	buf_putc(args, '}');
	return begins(p, end, "</function>") && skip(p + strlen("</function>"), end) == end;
}

static void put_call(struct split *s, const char *name, size_t n_name, const struct buf *args)
{
	char id[24];

	random_id(id);
	if (s->calls.n)
		buf_putc(&s->calls, ',');
	buf_putc(&s->calls, '{');
	if (s->indexed)
		buf_printf(&s->calls, "\"index\":%d,", s->n_call);
	s->n_call++;
	buf_printf(&s->calls, "\"id\":\"call_%s\",\"type\":\"function\",\"function\":{\"name\":", id);
	json_put_str(&s->calls, name, n_name);
	buf_puts(&s->calls, ",\"arguments\":");
	json_put_str(&s->calls, args->p, args->n);
	buf_puts(&s->calls, "}}");
}

/* What stood between the tags.  False: it is no call. */
static bool read_call(struct split *s, const char *p, size_t n)
{
	const char *end = p + n, *name = NULL;
	size_t n_name = 0;
	struct json *j = NULL;
	struct buf args;
	bool good;

	p = skip(p, end);
	end -= blanks_at_end(p, (size_t)(end - p));
	buf_init(&args);
	good = read_xml(s, p, end, &name, &n_name, &args);
	if (!good && p < end && *p == '{' && (j = json_parse(p, (size_t)(end - p), 0, NULL))) {
		const struct json *a = json_get(j, "arguments");

		buf_reset(&args);
		name = json_str(json_get(j, "name"), &n_name);
		if (json_kind(a) == JSON_OBJECT)
			json_put(&args, a);
		else if (json_kind(a) == JSON_NULL)
			buf_puts(&args, "{}");
		good = name && n_name && args.n;
	}
	if (good)
		put_call(s, name, n_name, &args);
	json_free(j);
	buf_fini(&args);
	return good;
}

/* ---- the states: each returns false when more text is needed ---- */

static bool in_start(struct split *s)
{
	size_t at = 0, len = sizeof think_open - 1, left;

	while (at < s->held.n && blank(s->held.p[at]))
		at++;
	left = s->held.n - at;
	if (left >= len && !memcmp(s->held.p + at, think_open, len)) {
		buf_drop(&s->held, at + len);
		s->state = SPLIT_THINK;
		s->skip_blanks = true;
		return true;
	}
	if (left < len && !memcmp(s->held.p + at, think_open, left))
		return false;
	s->state = SPLIT_TEXT;
	return true;
}

static bool in_think(struct split *s)
{
	const char *tag;
	size_t n;

	drop_blanks(s);
	tag = find(s->held.p, s->held.n, think_close);
	if (!tag) {
		n = s->held.n - partial(s->held.p, s->held.n, think_close);
		emit(s, &s->thinking, n - blanks_at_end(s->held.p, n));
		return false;
	}
	n = (size_t)(tag - s->held.p);
	emit(s, &s->thinking, n - blanks_at_end(s->held.p, n));
	buf_drop(&s->held, (size_t)(find(s->held.p, s->held.n, think_close) - s->held.p) + sizeof think_close - 1);
	s->state = SPLIT_TEXT;
	s->skip_blanks = true;
	return true;
}

static bool in_text(struct split *s)
{
	const char *tag;
	size_t n;

	drop_blanks(s);
	if (!s->tools) {
		emit(s, &s->content, s->held.n);
		return false;
	}
	tag = find(s->held.p, s->held.n, call_open);
	if (!tag) {
		n = s->held.n - partial(s->held.p, s->held.n, call_open);
		emit(s, &s->content, n - blanks_at_end(s->held.p, n));
		return false;
	}
	n = (size_t)(tag - s->held.p);
	emit(s, &s->content, n - blanks_at_end(s->held.p, n));
	s->state = SPLIT_CALL;
	return true;
}

/* held begins with blanks and the opening tag, both kept until the call is read. */
static bool in_call(struct split *s, bool at_end)
{
	const char *open = find(s->held.p, s->held.n, call_open) + sizeof call_open - 1;
	size_t before = (size_t)(open - s->held.p), n = s->held.n - before, whole = s->held.n;
	const char *close = find(open, n, call_close);

	if (!close && !at_end)
		return false;
	if (close) {
		n = (size_t)(close - open);
		whole = before + n + sizeof call_close - 1;
	}
	if (read_call(s, open, n)) {
		buf_drop(&s->held, whole);
		s->skip_blanks = true;
	} else {
		emit(s, &s->content, whole);
	}
	s->state = SPLIT_TEXT;
	return true;
}

static void run(struct split *s, bool at_end)
{
	bool more = true;

	while (more) {
		switch (s->state) {
		case SPLIT_START: more = in_start(s); break;
		case SPLIT_THINK: more = in_think(s); break;
		case SPLIT_TEXT: more = in_text(s); break;
		case SPLIT_CALL: more = in_call(s, at_end); break;
		}
	}
}

void split_put(struct split *s, const char *p, size_t n)
{
	buf_put(&s->held, p, n);
	/* Plain content, by far the most common, passes through. */
	run(s, false);
}

void split_end(struct split *s)
{
	run(s, true);
	/* What was held back became nothing.  Blanks after thinking or a call are none's. */
	if (s->state == SPLIT_THINK)
		emit(s, &s->thinking, s->held.n - blanks_at_end(s->held.p, s->held.n));
	else
		emit(s, &s->content, s->held.n);
	buf_reset(&s->held);
}
