/* Any bytes as a GGUF file: refused with a message, or every value and tensor lies inside of the file, documents are
 * JSON objects, tensors can be had, and its tokenizer, if it opens, encodes a text and decodes it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "store/gguf/gguf_file.h"
#include "store/store.h"
#include "text/tokens/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern const struct container_ops gguf_container;

static void check_file(const uint8_t *data, size_t size)
{
	struct gguf g;
	struct err err = { 0 };
	uint64_t sum = 0;

	if (gguf_open_bytes(&g, "fuzz.gguf", data, size, &err)) {
		if (!err.msg[0] || strchr(err.msg, '\n'))
			abort();
		return;
	}
	for (size_t i = 0; i < g.n_kv; i++) {
		const struct gguf_value *v = &g.kv[i];
		const uint8_t *at = v->p;

		if (gguf_find(&g, v->key) != v)
			abort();
		for (uint64_t k = 0; k < v->n; k++) {
			int64_t whole = 0;
			double real = 0;

			if (v->kind == GGUF_STRING) {
				struct gguf_string s = gguf_next(&at);

				for (size_t b = 0; b < s.n; b++)
					sum += (uint8_t)s.p[b];
			} else {
				gguf_int(&g, v, k, &whole, NULL);
				gguf_float(&g, v, k, &real, NULL);
			}
			sum += (uint64_t)whole;
		}
	}
	for (size_t i = 0; i < g.n_info; i++) {
		const struct gguf_info *t = &g.info[i];

		if (gguf_info(&g, t->name) != t || t->count < 1 || t->data < data || t->bytes > size ||
		    t->data > data + size - t->bytes)
			abort();
		for (size_t b = 0; b < t->bytes; b++)
			sum += t->data[b];
	}
	if (sum == 0x7fffffff)
		fprintf(stderr, "\n");
	gguf_close(&g);
}

static void check_tokenizer(const struct store *st)
{
	static const char text[] = "Hello, w\xC3\xB6rld 12345\n\n\t <s></s> don't";
	struct tokenizer *t;
	struct tokens ids;
	struct buf json, back;

	buf_init(&json);
	buf_init(&back);
	tokens_init(&ids);
	if (!store_document(st, "tokenizer.json", &json, NULL) && !tokenizer_open(&t, json.p, json.n, NULL)) {
		if (!tokenizer_encode(t, text, sizeof text - 1, TOKENIZE_SPECIAL | TOKENIZE_AROUND, &ids, NULL))
			tokenizer_decode(t, ids.id, ids.n, false, &back);
		tokenizer_close(t);
	}
	tokens_fini(&ids);
	buf_fini(&back);
	buf_fini(&json);
}

static void check_store(struct store *st)
{
	struct store_templates templates;

	if (json_kind(st->config) != JSON_OBJECT || json_kind(st->generation) != JSON_OBJECT)
		abort();
	for (size_t i = 0; i < st->n; i++) {
		const struct tensor *t = st->v[i];

		if (store_data(st, st->v[i], NULL) || !t->data)
			abort();
	}
	(void)store_templates_read(st, &templates, NULL);
	store_templates_end(&templates);
	check_tokenizer(st);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz.gguf", 0);
	struct err err = { 0 };
	struct store *st;
	char path[64];

	log_set_level(LOG_ERROR);
	check_file(data, size);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	if (!store_open_as(&st, &gguf_container, path, "fuzz", &err))
		check_store(st);
	else if (!err.msg[0])
		abort();
	store_close(st);
	close(fd);
	return 0;
}
