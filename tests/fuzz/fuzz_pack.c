/* Any bytes as a pack of prefixes: refused, or its pieces fill it exactly.  An odd first byte, which is not part of the pack, has
 * the checksums computed anew, so that what is behind them is reached. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "engine/prefix/prefix_pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { AT_ABOUT = 12, AT_PIECES = 16, AT_PIECE_BYTES = 24, AT_TABLE_SUM = 72 };

static uint64_t get(const uint8_t *p, size_t n)
{
	uint64_t v = 0;

	memcpy(&v, p, n);
	return v;
}

static void repair(uint8_t *p, size_t n)
{
	uint64_t about, pieces, bytes, at, table, sum;
	struct sha256 h;
	struct digest d;

	if (n < PACK_HEAD)
		return;
	about = get(p + AT_ABOUT, 4);
	bytes = get(p + AT_PIECE_BYTES, 8);
	pieces = get(p + AT_PIECES, 8);
	at = PACK_HEAD + about;
	if (at > n || bytes > n - at)
		return;
	table = at + bytes;
	for (uint64_t i = 0; i < pieces && table + (i + 1) * PACK_ENTRY <= n; i++) {
		uint8_t *entry = p + table + i * PACK_ENTRY;
		uint64_t size = get(entry + 32, 8);

		if (size < SPILL_HEAD || size > table - at)
			break;
		sum = check64(p + at, SPILL_HEAD - 8);
		memcpy(p + at + SPILL_HEAD - 8, &sum, 8);
		sha256_init(&h);
		sha256_put(&h, p + at, (size_t)size);
		sha256_end(&h, &d);
		memcpy(entry, &d, sizeof(d));
		at += size;
	}
	sha256_init(&h);
	sha256_put(&h, p + PACK_HEAD, (size_t)about);
	sha256_put(&h, p + table, n - (size_t)table);
	sha256_end(&h, &d);
	memcpy(p + AT_TABLE_SUM, &d, sizeof(d));
	sum = check64(p, PACK_HEAD - 8);
	memcpy(p + PACK_HEAD - 8, &sum, 8);
}

static void look(const char *path, size_t size)
{
	struct pack_piece piece;
	struct pack_walk w;
	struct pack *p;
	struct err err = { 0 };
	uint64_t sum = 0, n = 0;
	int32_t *tok;
	int rc = pack_open(&p, path, &err);

	if (rc) {
		if (!err.msg[0])
			abort();
		return;
	}
	for (w = pack_walk(p); pack_next(&w, &piece, &rc, &err);) {
		if (piece.part.at > size || piece.part.bytes > size - piece.part.at ||
		    piece.part.bytes != SPILL_HEAD + (uint64_t)piece.head.n_tok * 4 + piece.head.payload_bytes)
			abort();
		if (!pack_tokens(&piece, &tok, &err))
			free(tok);
		sum += piece.part.bytes;
		n++;
	}
	if (!rc && (n != pack_pieces(p) || PACK_HEAD + strlen(pack_about(p)) > size ||
	            sum > size - PACK_HEAD - n * PACK_ENTRY))
		abort();
	if (pack_check(p, NULL, NULL, &err) == 0 && rc)
		abort();
	pack_close(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char path[64];
	uint8_t *copy;
	FILE *f;

	if (!size)
		return 0;
	if (!path[0])
		snprintf(path, sizeof(path), "/tmp/weft-fuzz-pack-%ld", (long)getpid());
	copy = malloc(size);
	f = fopen(path, "wb");
	if (!copy || !f)
		abort();
	memcpy(copy, data + 1, size - 1);
	if (data[0] & 1)
		repair(copy, size - 1);
	if (size > 1 && fwrite(copy, 1, size - 1, f) != size - 1)
		abort();
	fclose(f);
	look(path, size - 1);
	unlink(path);
	free(copy);
	return 0;
}
