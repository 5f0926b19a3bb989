/* Any bytes as the file of keys: refused with a message of one line, and without keys; or keys of which each admits its
 * owner, a request without one is refused, and reading the file again changes nothing. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "held.h"
#include "server/http/clients.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whether a request with this key passes. */
static bool passes(const struct clients *c, const char *secret, int *key)
{
	static const struct http_limits limits = { .head_max = 2 << 20, .target_max = 100 };
	struct buf b, body;
	struct http h;
	size_t used;
	bool ok;

	buf_init(&b);
	buf_init(&body);
	buf_printf(&b, "GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: %s\r\n\r\n", secret);
	http_init(&h, &limits);
	ok = http_feed(&h, b.p, b.n, &used, &body) == HTTP_HEAD && !clients_admit(c, &h, key);
	http_fini(&h);
	buf_fini(&body);
	buf_fini(&b);
	return ok;
}

static void check_key(const struct clients *c, int i)
{
	const char *secret = c->key[i].secret;
	int key, plain = secret && *secret;

	if (!plain || !c->key[i].name || !*c->key[i].name)
		abort();
	for (const char *p = secret; *p; p++)
		plain &= *p > ' ' && *p < 0x7f;
	if (plain && (!passes(c, secret, &key) || strcmp(c->key[key].secret, secret)))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = { 0 };
	struct clients c;
	char path[64];
	int fd = held_file(data, size, path), added = 0, gone = 0, key;

	if (clients_open(&c, NULL, path, &err)) {
		if (!err.msg[0] || strchr(err.msg, '\n'))
			abort();
	} else {
		if (c.n < 1 || passes(&c, "", &key))
			abort();
		for (int i = 0; i < c.n && i < 64; i++)
			check_key(&c, i);
		if (clients_reload(&c, NULL, path, &added, &gone, &err) || gone)
			abort();
	}
	clients_close(&c);
	close(fd);
	return 0;
}
