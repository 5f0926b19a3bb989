/* digest.c - see digest.h. */
#include "base/digest.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"

/* Fetched once: a lookup by name each time would cost more than a short digest. */
static EVP_MD *sha;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fetch(void)
{
	sha = EVP_MD_fetch(NULL, "SHA256", NULL);
}

/* libcrypto fails only without memory or in a broken installation. */
static void need(int ok)
{
	if (ok)
		return;
	log_error("libcrypto gives no digest");
	fault_abort();
}

void sha256_init(struct sha256 *s)
{
	pthread_once(&once, fetch);
	need(sha != NULL);
	s->ctx = EVP_MD_CTX_new();
	need(s->ctx && EVP_DigestInit_ex2(s->ctx, sha, NULL));
}

void sha256_put(struct sha256 *s, const void *p, size_t n)
{
	need(!n || EVP_DigestUpdate(s->ctx, p, n));
}

void sha256_field(struct sha256 *s, const void *p, size_t n)
{
	uint64_t length = n;

	sha256_put(s, &length, sizeof(length));
	sha256_put(s, p, n);
}

void sha256_drop(struct sha256 *s)
{
	EVP_MD_CTX_free(s->ctx);
	s->ctx = NULL;
}

void sha256_end(struct sha256 *s, struct digest *out)
{
	unsigned n = 0;

	need(EVP_DigestFinal_ex(s->ctx, out->b, &n) && n == sizeof(out->b));
	sha256_drop(s);
}

void sha1_init(struct sha256 *s)
{
	s->ctx = EVP_MD_CTX_new();
	need(s->ctx && EVP_DigestInit_ex2(s->ctx, EVP_sha1(), NULL));
}

void sha1_end(struct sha256 *s, uint8_t out[20])
{
	unsigned n = 0;

	need(EVP_DigestFinal_ex(s->ctx, out, &n) && n == 20);
	sha256_drop(s);
}

void check128_begin(struct check128_run *r)
{
	r->state = XXH3_createState();
	need(r->state && XXH3_128bits_reset(r->state) == XXH_OK);
}

void check128_put(struct check128_run *r, const void *p, size_t n)
{
	need(!n || XXH3_128bits_update(r->state, p, n) == XXH_OK);
}

struct check128 check128_end(struct check128_run *r)
{
	XXH128_hash_t h = XXH3_128bits_digest(r->state);

	XXH3_freeState(r->state);
	return (struct check128){ h.low64, h.high64 };
}

struct check128 check128(const void *p, size_t n, const void *q, size_t m)
{
	struct check128_run r;

	check128_begin(&r);
	check128_put(&r, p, n);
	check128_put(&r, q, m);
	return check128_end(&r);
}

uint64_t check64(const void *p, size_t n)
{
	return XXH3_64bits(p, n);
}

void hex_put(char *out, const uint8_t *p, size_t n)
{
	static const char digit[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		*out++ = digit[p[i] >> 4];
		*out++ = digit[p[i] & 15];
	}
	*out = '\0';
}

/* One more than the value of each digit; 0: it is none.  A table, since a processor cannot guess whether a letter follows. */
static const uint8_t value[256] = {
	['0'] = 1, ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
	['8'] = 9, ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
};

static int digit_of(char c)
{
	return value[(uint8_t)c] - 1;
}

int hex_get(uint8_t *out, size_t n, const char *s)
{
	for (size_t i = 0; i < n; i++) {
		int hi = digit_of(s[2 * i]), lo = hi < 0 ? -1 : digit_of(s[2 * i + 1]);

		if (lo < 0)
			return E_FORMAT;
		out[i] = (uint8_t)(hi << 4 | lo);
	}
	return 0;
}
