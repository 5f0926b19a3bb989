/* names.c - see names.h, and hub.h for what the environment says. */
#include "hub/names.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/file.h"
#include "hub/hub.h"

enum { NAME_MAX_CHARS = 96, TOKEN_MAX = 4096 };

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* One half of ORG/NAME, of n characters. */
static bool is_part(const char *s, size_t n)
{
	if (!n || n > NAME_MAX_CHARS || !is_word(s[0]) || !is_word(s[n - 1]))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!is_word(s[i]) && s[i] != '-' && s[i] != '.')
			return false;
		if (i && (s[i] == '-' || s[i] == '.') && s[i] == s[i - 1])
			return false;
	}
	return n < 4 || strncasecmp(s + n - 4, ".git", 4) != 0;
}

bool hub_is_name(const char *s)
{
	const char *slash = strchr(s, '/');

	return slash ? is_part(s, (size_t)(slash - s)) && is_part(slash + 1, strlen(slash + 1)) : is_part(s, strlen(s));
}

bool hub_is_path(const char *s)
{
	size_t n;

	if (!*s || strchr(s, '\\') || strlen(s) > 1000)
		return false;
	for (const char *p = s; *p; p++)
		if ((unsigned char)*p < 32 || *p == 127)
			return false;
	for (;; s += n + 1) {
		n = strcspn(s, "/");
		if (!n || n > 255 || (n == 1 && s[0] == '.') || (n == 2 && s[0] == '.' && s[1] == '.'))
			return false;
		if (!s[n])
			return true;
	}
}

bool hub_is_hex(const char *s, size_t n)
{
	return strspn(s, "0123456789abcdef") == n && !s[n];
}

bool hub_is_digest(const char *s)
{
	return hub_is_hex(s, HUB_COMMIT) || hub_is_hex(s, HUB_SHA256);
}

void hub_put_escaped(struct buf *b, const char *s, bool keep_slashes)
{
	for (; *s; s++)
		if (isalnum((unsigned char)*s) || strchr("-_.~", *s) || (*s == '/' && keep_slashes))
			buf_putc(b, *s);
		else
			buf_printf(b, "%%%02X", (unsigned)(unsigned char)*s);
}

void hub_put_resolve(struct buf *b, const char *name, const char *revision, const char *path)
{
	buf_printf(b, "/%s/resolve/", name);
	hub_put_escaped(b, revision, false);
	buf_putc(b, '/');
	hub_put_escaped(b, path, true);
}

void hub_put_folder(struct buf *b, const char *name)
{
	buf_puts(b, "models--");
	for (; *name; name++)
		if (*name == '/')
			buf_puts(b, "--");
		else
			buf_putc(b, *name);
}

void hub_put_link(struct buf *b, const char *path, const char *digest)
{
	buf_puts(b, "../../");
	for (; *path; path++)
		if (*path == '/')
			buf_puts(b, "../");
	buf_printf(b, "blobs/%s", digest);
}

void hub_put_relative(struct buf *b, const char *url, const char *path)
{
	const char *host = strstr(url, "://");

	host = host ? host + 3 : url;
	buf_put(b, url, (size_t)(host - url) + strcspn(host, "/?#"));
	buf_puts(b, path);
}

/* The host and port of a URL, n characters of them; *port: where the URL has none, its scheme's. */
static const char *origin(const char *url, size_t *scheme, size_t *n, int *port)
{
	const char *at = strstr(url, "://"), *colon;

	*scheme = at ? (size_t)(at - url) : 0;
	at = at ? at + 3 : url;
	*n = strcspn(at, "/?#");
	*port = *scheme == 5 ? 443 : 80;
	colon = memrchr(at, ':', *n);
	if (colon && !memchr(colon, ']', *n - (size_t)(colon - at))) {
		*port = atoi(colon + 1);
		*n = (size_t)(colon - at);
	}
	return at;
}

bool hub_same_origin(const char *a, const char *b)
{
	size_t scheme_a, scheme_b, n, m;
	int port_a, port_b;
	const char *host_a = origin(a, &scheme_a, &n, &port_a), *host_b = origin(b, &scheme_b, &m, &port_b);

	return scheme_a == scheme_b && !strncasecmp(a, b, scheme_a) && n == m && !strncasecmp(host_a, host_b, n) &&
	       port_a == port_b && !memchr(host_a, '@', n);
}

/* ---- what a person names ---- */

static bool is_revision(const char *s)
{
	return *s && !strstr(s, "..") && s[0] != '/' && s[0] != '-' && strlen(s) <= 200 &&
	       !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./+")] && hub_is_path(s);
}

int hub_wish_parse(struct hub_wish *w, const char *text, struct err *err)
{
	const char *rest = text, *at, *colon;

	*w = (struct hub_wish){ 0 };
	if (!strncmp(rest, "hf://", 5))
		rest += 5;
	else if (!strncmp(rest, "https://huggingface.co/", 23))
		rest += 23;
	else if (!strncmp(rest, "hf.co/", 6))
		rest += 6;
	at = strchr(rest, '@');
	colon = strrchr(rest, ':');
	if (colon && (strchr(colon, '/') || (at && colon < at)))
		colon = NULL;
	w->type = colon ? xstrdup(colon + 1) : NULL;
	w->name = xstrndup(rest, at ? (size_t)(at - rest) : colon ? (size_t)(colon - rest) : strlen(rest));
	w->revision = at ? xstrndup(at + 1, colon ? (size_t)(colon - at - 1) : strlen(at + 1)) : xstrdup("main");
	if (hub_is_name(w->name) && is_revision(w->revision) && (!w->type || (*w->type && strlen(w->type) < 64)))
		return 0;
	hub_wish_free(w);
	return err_set(err, E_ARG,
	               "%s: no name of a model on the hub, which look like Qwen/Qwen3.5-4B, org/name:Q4_K_M or "
	               "org/name@revision",
	               text);
}

void hub_wish_free(struct hub_wish *w)
{
	free(w->name);
	free(w->revision);
	free(w->type);
	*w = (struct hub_wish){ 0 };
}

/* ---- the environment ---- */

/* The value of the first variable that has one. */
static const char *env(const char *a, const char *b)
{
	const char *v = getenv(a);

	if (v && *v)
		return v;
	v = b ? getenv(b) : NULL;
	return v && *v ? v : NULL;
}

static bool is_true(const char *v)
{
	return v && (!strcmp(v, "1") || !strcasecmp(v, "on") || !strcasecmp(v, "yes") || !strcasecmp(v, "true"));
}

/* Appends v, a "~" at its beginning expanded. */
static void put_home(struct buf *b, const char *v)
{
	if (v[0] == '~' && (!v[1] || v[1] == '/')) {
		buf_puts(b, env("HOME", NULL) ? env("HOME", NULL) : "");
		v++;
	}
	buf_puts(b, v);
}

static void put_hf_home(struct buf *b)
{
	if (env("HF_HOME", NULL)) {
		put_home(b, env("HF_HOME", NULL));
	} else if (env("XDG_CACHE_HOME", NULL)) {
		put_home(b, env("XDG_CACHE_HOME", NULL));
		buf_puts(b, "/huggingface");
	} else {
		put_home(b, "~/.cache/huggingface");
	}
}

static char *stripped(const char *s)
{
	size_t n;

	s += strspn(s, " \t\r\n");
	for (n = strlen(s); n && strchr(" \t\r\n", s[n - 1]);)
		n--;
	return n ? xstrndup(s, n) : NULL;
}

static char *token(void)
{
	struct buf path, text;
	char *out = NULL;

	if (env("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"))
		return stripped(env("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"));
	if (is_true(getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")))
		return NULL;
	buf_init(&path);
	buf_init(&text);
	if (env("HF_TOKEN_PATH", NULL)) {
		put_home(&path, env("HF_TOKEN_PATH", NULL));
	} else {
		put_hf_home(&path);
		buf_puts(&path, "/token");
	}
	if (file_exists(path.p) && !file_read(path.p, TOKEN_MAX, &text, NULL))
		out = stripped(text.p);
	buf_fini(&path);
	buf_fini(&text);
	return out;
}

void hub_place_get(struct hub_place *p)
{
	const char *endpoint = env("HF_ENDPOINT", "MODEL_ENDPOINT"), *cache;
	struct buf b;
	size_t n;

	endpoint = endpoint ? endpoint : "https://huggingface.co";
	for (n = strlen(endpoint); n && endpoint[n - 1] == '/';)
		n--;
	cache = env("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE");
	buf_init(&b);
	if (cache) {
		put_home(&b, cache);
	} else {
		put_hf_home(&b);
		buf_puts(&b, "/hub");
	}
	*p = (struct hub_place){ .endpoint = xstrndup(endpoint, n),
		                 .token = token(),
		                 .cache = buf_take(&b),
		                 .offline = is_true(getenv("HF_HUB_OFFLINE")) ||
		                            is_true(getenv("TRANSFORMERS_OFFLINE")) };
	buf_fini(&b);
}

void hub_place_free(struct hub_place *p)
{
	free(p->endpoint);
	free(p->token);
	free(p->cache);
	*p = (struct hub_place){ 0 };
}
