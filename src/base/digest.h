/* digest.h - bytes that stand for more bytes.
 *
 * SHA-256 (OpenSSL's libcrypto) where two different inputs must never share an
 * answer: keys of kept prefixes, across tenants, models and restarts.  XXH3
 * (libxxhash) where only accidents are looked for: damage on disk, a changed
 * file.  About 1.6 and 17 GB/s. */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

struct digest {
	uint8_t b[32];
};

/* SHA-256 of what is put between init and end; end gives the memory back. */
struct sha256 {
	void *ctx;
};
void sha256_init(struct sha256 *s);
void sha256_put(struct sha256 *s, const void *p, size_t n);
/* A string or field of variable length, its length first, so that what follows
 * cannot be taken for a part of it. */
void sha256_field(struct sha256 *s, const void *p, size_t n);
void sha256_end(struct sha256 *s, struct digest *out);

/* SHA-1, only to compare with the names that git gives to files.  Bytes are put by sha256_put. */
void sha1_init(struct sha256 *s);
void sha1_end(struct sha256 *s, uint8_t out[20]);
/* Instead of either end, where the digest is not wanted any more. */
void sha256_drop(struct sha256 *s);

/* Checksums: 128 bits of one or two runs of bytes, 64 of one. */
struct check128 {
	uint64_t lo, hi;
};
struct check128 check128(const void *p, size_t n, const void *q, size_t m);
uint64_t check64(const void *p, size_t n);
/* check128 of what is put between begin and end; end gives the memory back. */
struct check128_run {
	void *state;
};
void check128_begin(struct check128_run *r);
void check128_put(struct check128_run *r, const void *p, size_t n);
struct check128 check128_end(struct check128_run *r);

/* "0f3a..." of n bytes and a 0: out has room for 2 n + 1. */
void hex_put(char *out, const uint8_t *p, size_t n);
/* n bytes from 2 n digits of lower case; 0, or E_FORMAT. */
int hex_get(uint8_t *out, size_t n, const char *s);

#endif
