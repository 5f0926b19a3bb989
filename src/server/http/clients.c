/* clients.c - see clients.h. */
#include "server/http/clients.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/file.h"

enum { FILE_MAX = 1 << 20 }; /* bytes: some ten thousand keys */

static void add_key(struct clients *c, const char *name, size_t n_name, const char *secret, size_t n_secret)
{
	char number[24];

	c->key = xrealloc(c->key, size_mul((size_t)c->n + 1, sizeof *c->key));
	if (!n_name) {
		n_name = (size_t)snprintf(number, sizeof number, "key%d", c->n + 1);
		name = number;
	}
	c->key[c->n++] = (struct client_key){ xstrndup(name, n_name), xstrndup(secret, n_secret) };
}

/* One line without its end. */
static int line(struct clients *c, const char *p, size_t n, const char *path, int number, struct err *err)
{
	static const char blank[] = " \t\r";
	const char *end = memchr(p, '#', n), *word[2];
	size_t len[2];
	int words = 0;

	/* As in UTF-16, whose keys would be single letters. */
	if (memchr(p, 0, n))
		return err_set(err, E_FORMAT, "%s line %d: a byte 0; keys are lines of plain text", path, number);
	if (end)
		n = (size_t)(end - p);
	for (size_t i = 0; i < n;) {
		size_t from;

		while (i < n && memchr(blank, p[i], 3))
			i++;
		for (from = i; i < n && !memchr(blank, p[i], 3); i++)
			;
		if (i == from)
			break;
		if (words == 2)
			return err_set(err, E_FORMAT,
			               "%s line %d: a name and a key were expected; there is a third word", path,
			               number);
		word[words] = p + from;
		len[words++] = i - from;
	}
	if (words == 1)
		add_key(c, NULL, 0, word[0], len[0]);
	else if (words == 2)
		add_key(c, word[0], len[0], word[1], len[1]);
	return 0;
}

static int read_file(struct clients *c, const char *path, struct err *err)
{
	static const char mark[] = "\xef\xbb\xbf"; /* U+FEFF, which some editors put in front */
	struct buf b;
	int number = 0, before = c->n, r;
	size_t at = 0;

	buf_init(&b);
	r = file_read(path, FILE_MAX, &b, err);
	if (b.n >= 3 && !memcmp(b.p, mark, 3))
		at = 3;
	while (!r && at < b.n) {
		const char *p = b.p + at, *lf = memchr(p, '\n', b.n - at);
		size_t n = lf ? (size_t)(lf - p) : b.n - at;

		r = line(c, p, n, path, ++number, err);
		at += n + 1;
	}
	buf_fini(&b);
	/* An empty list would open the server to all clients. */
	if (!r && c->n == before)
		r = err_set(err, E_FORMAT, "%s holds no key", path);
	return r;
}

static void count_valid(struct clients *c)
{
	int valid = 0;

	for (int i = 0; i < c->n; i++)
		valid += c->key[i].secret != NULL;
	atomic_store(&c->apart, valid > 1);
}

int clients_open(struct clients *c, const char *api_key, const char *path, struct err *err)
{
	int r;

	memset(c, 0, sizeof *c);
	/* An empty key, as of a variable that is not set, would open the server to all clients. */
	if (api_key && !*api_key)
		return err_set(err, E_ARG, "the API key is empty; a server without keys is started without --api-key");
	if (api_key)
		add_key(c, NULL, 0, api_key, strlen(api_key));
	r = path ? read_file(c, path, err) : 0;
	count_valid(c);
	return r;
}

void clients_close(struct clients *c)
{
	for (int i = 0; i < c->n; i++) {
		free(c->key[i].name);
		free(c->key[i].secret);
	}
	free(c->key);
	c->key = NULL;
	c->n = 0;
}

static int number_of(const struct clients *c, const char *secret)
{
	for (int i = 0; i < c->n; i++)
		if (c->key[i].secret && !strcmp(c->key[i].secret, secret))
			return i;
	return NO_KEY;
}

int clients_reload(struct clients *c, const char *api_key, const char *path, int *added, int *gone, struct err *err)
{
	struct clients now;
	int r = clients_open(&now, api_key, path, err);

	*added = *gone = 0;
	for (int i = 0; !r && i < c->n; i++)
		if (c->key[i].secret && number_of(&now, c->key[i].secret) == NO_KEY) {
			free(c->key[i].secret);
			c->key[i].secret = NULL;
			++*gone;
		}
	for (int i = 0; !r && i < now.n; i++) {
		int old = number_of(c, now.key[i].secret);

		if (old == NO_KEY) {
			add_key(c, now.key[i].name, strlen(now.key[i].name), now.key[i].secret,
			        strlen(now.key[i].secret));
			++*added;
			continue;
		}
		free(c->key[old].name);
		c->key[old].name = xstrndup(now.key[i].name, strlen(now.key[i].name));
	}
	clients_close(&now);
	count_valid(c);
	return r;
}

/* In time that does not depend on where the bytes differ. */
static bool same_secret(struct http_slice given, const char *key)
{
	size_t n = strlen(key);
	unsigned diff = given.n != n;

	for (size_t i = 0; i < given.n; i++)
		diff |= (unsigned char)given.p[i] ^ (unsigned char)key[n ? i % n : 0];
	return !diff;
}

int clients_admit(const struct clients *c, const struct http *h, int *key)
{
	struct http_slice bearer = http_field(h, "authorization");
	struct http_slice other = http_field(h, "x-api-key"),
			  azure = http_field(h, "api-key"), /* as Anthropic's, Azure's and Google's clients send it */
		google = http_field(h, "x-goog-api-key");

	*key = NO_KEY;
	if (!c->n)
		return 0;
	if (bearer.n >= 7 && !strncasecmp(bearer.p, "bearer ", 7))
		bearer = (struct http_slice){ bearer.p + 7, bearer.n - 7 };
	else
		bearer.p = NULL;
	for (int i = 0; i < c->n; i++) /* all of them: the time tells nothing */
		if (c->key[i].secret && ((bearer.p && same_secret(bearer, c->key[i].secret)) ||
		                         (other.p && same_secret(other, c->key[i].secret)) ||
		                         (azure.p && same_secret(azure, c->key[i].secret)) ||
		                         (google.p && same_secret(google, c->key[i].secret))))
			*key = i;
	return *key == NO_KEY ? E_ARG : 0;
}

/* FNV-1a.  Two names that met would share a share, no more. */
uint64_t client_number(const char *name)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	return h ? h : 1;
}

/* Users write this, and it stands in the log between blanks. */
static void make_word(char *name)
{
	for (char *p = name; *p; p++)
		if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
			*p = '?';
}

void client_name(const char *user, size_t n_user, const char *peer, char out[CLIENT_MAX])
{
	const char *port = strrchr(peer, ':');

	if (n_user)
		snprintf(out, CLIENT_MAX, "user:%.*s", (int)(n_user < CLIENT_MAX ? n_user : CLIENT_MAX), user);
	else
		snprintf(out, CLIENT_MAX, "%.*s", port ? (int)(port - peer) : CLIENT_MAX, peer);
	make_word(out);
}

bool clients_name(const struct clients *c, int key, char out[CLIENT_MAX])
{
	if (key == NO_KEY || !atomic_load(&c->apart))
		return false;
	snprintf(out, CLIENT_MAX, "key:%s", c->key[key].name);
	make_word(out);
	return true;
}
