/* Any bytes as the tekken.json, tiktoken.model or list of RWKV of a folder: refused with a message, or made into a tokenizer.json
 * that is JSON, and that the
 * tokenizer's reader takes or says why it does not. */
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"
#include "store/hf/rwkv_vocab.h"
#include "store/hf/tekken.h"
#include "store/hf/tiktoken.h"
#include "text/tokens/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void made(int (*make)(const char *text, size_t n, struct buf *out, struct err *err), const char *p, size_t n,
                 bool tokens)
{
	struct err err = { 0 };
	struct tokenizer *t = NULL;
	struct json *j;
	struct buf b;

	buf_init(&b);
	if (!make(p, n, &b, &err)) {
		if (!(j = json_parse(b.p, b.n, 0, &err)) || json_kind(j) != JSON_OBJECT)
			abort();
		json_free(j);
		if (tokens && tokenizer_open(&t, b.p, b.n, &err) && !err.msg[0])
			abort();
		tokenizer_close(t);
	} else if (!err.msg[0])
		abort();
	buf_fini(&b);
}

static int ranks(const char *text, size_t n, struct buf *out, struct err *err)
{
	return tiktoken_tokenizer(text, n, "\\s+|\\S+", NULL, out, err);
}

static int list(const char *text, size_t n, struct buf *out, struct err *err)
{
	return rwkv_tokenizer(text, n, NULL, out, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	made(list, (const char *)data, size, true);
	made(ranks, (const char *)data, size, true);
	made(tekken_tokenizer, (const char *)data, size, true);
	made(tekken_tokenizer_config, (const char *)data, size, false);
	return 0;
}
