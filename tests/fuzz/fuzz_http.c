/* The HTTP parser: whatever the bytes, cutting them elsewhere changes nothing.
 * The first byte seeds the cuts; the rest is what a client sends. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Small, so that the fuzzer reaches them. */
static const struct http_limits limits = { .head_max = 600, .target_max = 100, .body_max = 2000 };

struct outcome {
	int requests, code, minor, fields;
	bool open;       /* ended in the middle of a message */
	struct buf seen; /* paths and bodies, each with its length */
};

static void note(struct buf *b, const char *p, size_t n)
{
	buf_printf(b, "%zu:", n);
	buf_put(b, p, n);
}

static void run(const char *p, size_t n, uint32_t cut, struct outcome *o)
{
	struct http h;
	struct buf body;
	size_t at = 0;

	http_init(&h, &limits);
	buf_init(&body);
	buf_init(&o->seen);
	o->requests = o->code = o->minor = o->fields = 0;
	for (;;) {
		size_t len = n - at, used;

		if (cut) {
			cut = cut * 1664525 + 1013904223;
			if (len > (cut >> 20) % 17)
				len = (cut >> 20) % 17;
		}
		enum http_status s = http_feed(&h, p + at, len, &used, &body);

		if (used > len || body.n > 2000 || h.head.n > 1200)
			abort();
		at += used;
		if (s == HTTP_BAD) {
			if (!h.code || !h.why || !*http_reason(h.code))
				abort();
			o->code = h.code;
			break;
		}
		if (s == HTTP_MORE && used != len)
			abort();
		if (s == HTTP_MORE && at == n)
			break;
		if (s == HTTP_HEAD) {
			note(&o->seen, h.method.p, h.method.n);
			note(&o->seen, h.path.p, h.path.n);
			note(&o->seen, h.query.p, h.query.n);
			o->minor += h.minor;
			o->fields += h.n_field;
			http_field(&h, "content-type");
		}
		if (s == HTTP_DONE) {
			struct buf plain;
			size_t bad = 0;

			buf_init(&plain);
			if (http_unescape(h.path, &plain, &bad) && bad >= h.path.n)
				abort();
			buf_fini(&plain);
			if (h.length >= 0 && (size_t)h.length != body.n)
				abort();
			note(&o->seen, h.path.p, h.path.n);
			note(&o->seen, body.p, body.n);
			buf_reset(&body);
			http_reset(&h);
			o->requests++;
		}
	}
	o->open = !http_idle(&h);
	http_fini(&h);
	buf_fini(&body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct outcome whole, cut;

	if (size < 1)
		return 0;
	run((const char *)data + 1, size - 1, 0, &whole);
	run((const char *)data + 1, size - 1, 1 + data[0] * 2654435761u, &cut);
	if (whole.requests != cut.requests || whole.code != cut.code || whole.minor != cut.minor ||
	    whole.fields != cut.fields || whole.open != cut.open)
		abort();
	if (whole.seen.n != cut.seen.n || (whole.seen.n && memcmp(whole.seen.p, cut.seen.p, whole.seen.n)))
		abort();
	buf_fini(&whole.seen);
	buf_fini(&cut.seen);
	return 0;
}
