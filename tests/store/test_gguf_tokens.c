/* Tokenizers from the metadata of GGUF files: ids and text of tests/golden/_gguf/tokenizers/cases.json, which llama.cpp
 * made, all equal: the byte-level vocabulary under every name of a pre-tokenizer, and a vocabulary of each other kind.
 * Decoding one by one gives what the whole gives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "store/gguf/gguf_model.h"
#include "text/tokens/detok.h"
#include "text/tokens/tokenizer.h"

static const char *root;
static const struct json *cases; /* the file */
static int bad, compared;

static void read_file(const char *name, struct buf *out)
{
	char path[8192];
	struct err err;

	snprintf(path, sizeof path, "%s/%s", root, name);
	if (file_read(path, 1 << 24, out, &err)) {
		printf("%s\n", err.msg);
		exit(1);
	}
}

static uint64_t number(const char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof v);
	return v;
}

/* The file with another text under the key, which has no tensors behind it. */
static void set_string(struct buf *file, const char *key, const char *value)
{
	char *at = memmem(file->p, file->n, key, strlen(key));
	struct buf out;
	uint64_t n;
	size_t head;

	if (!at) {
		printf("no key %s\n", key);
		exit(1);
	}
	at += strlen(key) + 4;
	head = (size_t)(at - file->p);
	n = number(at);
	buf_init(&out);
	buf_put(&out, file->p, head);
	buf_put(&out, &(uint64_t){ strlen(value) }, 8);
	buf_puts(&out, value);
	buf_put(&out, at + 8 + n, file->n - head - 8 - (size_t)n);
	buf_fini(file);
	*file = out;
}

static struct tokenizer *open_of(const struct buf *file, const char *what)
{
	struct gguf_arch arch = { .name = "llama" };
	struct gguf g;
	struct gguf_model m = { .part = &g, .n_part = 1, .arch = &arch };
	struct tokenizer *t = NULL;
	struct buf json;
	struct err err;

	buf_init(&json);
	if (gguf_open_bytes(&g, what, file->p, file->n, &err) || gguf_tokenizer(&m, &json, &err) ||
	    tokenizer_open(&t, json.p, json.n, &err)) {
		printf("FAIL %s: %s\n", what, err.msg);
		bad++;
	}
	gguf_close(&g);
	buf_fini(&json);
	return t;
}

static bool flag(const struct json *c, const char *key)
{
	bool on = false;

	json_to_bool(json_get(c, key), &on);
	return on;
}

static bool same(const struct tokens *v, const struct json *want)
{
	int64_t id;

	if (json_len(want) != v->n)
		return false;
	for (size_t i = 0; i < v->n; i++)
		if (json_to_int(json_at(want, i), &id) || id != v->id[i])
			return false;
	return true;
}

static void show(const char *what, const struct tokens *v, const struct json *want, const char *text, size_t n)
{
	struct buf b;

	buf_init(&b);
	json_put_str(&b, text, n);
	printf("FAIL %s: %.200s\n  have", what, b.p);
	for (size_t i = 0; i < v->n && i < 40; i++)
		printf(" %d", v->id[i]);
	buf_reset(&b);
	json_put(&b, want);
	printf("\n  want %.300s\n", b.p);
	buf_fini(&b);
}

/* Whole and one by one. */
static void decode(const struct tokenizer *t, const struct tokens *v, bool skip, struct buf *out)
{
	struct detok d;
	struct buf one;

	buf_init(&one);
	tokenizer_decode(t, v->id, v->n, skip, out);
	detok_init(&d, t, skip);
	for (size_t i = 0; i < v->n; i++)
		detok_put(&d, v->id[i], &one);
	detok_flush(&d, &one);
	if (one.n != out->n || memcmp(one.p, out->p, one.n)) {
		printf("FAIL decoded one by one: \"%s\", whole: \"%s\"\n", one.p, out->p);
		bad++;
	}
	buf_fini(&one);
}

/* SentencePiece's space is a space afterwards, and stands behind a token of the user's. */
static bool loses(const char *what, const char *text)
{
	return strstr(text, "▁") || (!strncmp(what, "spm", 3) && strstr(text, "<tool>"));
}

/* Where these tokenizers are meant to differ: a text that spells a control token is text, whatever the vocabulary; a
 * token whose text is a 0 byte is that byte (llama.cpp reads texts up to the first one); and what marks the beginning of a
 * word in the file is no mark in a text. */
static bool differs(const char *what, const char *text, size_t n)
{
	return (!strcmp(what, "rwkv") && !strncmp(text, "<s></s>", 7)) ||
	       (!strcmp(what, "gemma4") && memchr(text, 0, n)) || (!strcmp(what, "wpm") && strstr(text, "▁"));
}

/* ids of every case; decoded text where the vocabulary loses nothing. */
static void check(const struct tokenizer *t, const char *what, const struct json *ids, bool returns)
{
	const struct json *list = json_get(cases, "cases");
	struct tokens v;
	struct buf back;
	struct err err;
	int wrong = 0;

	tokens_init(&v);
	buf_init(&back);
	for (size_t i = 0; i < json_len(list); i++) {
		const struct json *c = json_at(list, i);
		size_t n;
		const char *text = json_str(json_get(c, "text"), &n);
		unsigned flags = (flag(c, "parse_special") ? TOKENIZE_SPECIAL : 0u) |
		                 (flag(c, "add_special") ? TOKENIZE_AROUND : 0u);

		tokens_reset(&v);
		buf_reset(&back);
		compared++;
		if (tokenizer_encode(t, text, n, flags, &v, &err)) {
			printf("FAIL %s: %s\n", what, err.msg);
			wrong++;
			continue;
		}
		if (differs(what, text, n) && !(flags & TOKENIZE_SPECIAL))
			continue;
		if (!same(&v, json_at(ids, i)) && wrong++ < 3)
			show(what, &v, json_at(ids, i), text, n);
		decode(t, &v, true, &back);
		if (returns && !loses(what, text) && !(flags & TOKENIZE_AROUND) && !flag(c, "parse_special") &&
		    (back.n != n || memcmp(back.p, text, n)) && wrong++ < 3)
			printf("FAIL %s: \"%s\" comes back as \"%s\"\n", what, text, back.p);
	}
	if (wrong)
		printf("FAIL %s: %d of %zu\n", what, wrong, json_len(list));
	bad += wrong;
	tokens_fini(&v);
	buf_fini(&back);
}

static void check_byte_level(void)
{
	const struct json *bpe = json_get(cases, "bpe"), *entry;
	struct json_cursor c = json_first(bpe);
	const char *name;

	while (json_next(&c, &name, &entry)) {
		struct tokenizer *t;
		struct buf file;

		buf_init(&file);
		read_file("bpe.gguf", &file);
		set_string(&file, "tokenizer.ggml.pre", name);
		t = open_of(&file, name);
		if (t)
			check(t, name, json_get(entry, "ids"), true);
		tokenizer_close(t);
		buf_fini(&file);
	}
}

static void check_others(void)
{
	static const struct {
		const char *name;
		bool returns;
	} kinds[] = { { "spm", true },  { "spm_noprefix", true }, { "spm_eos", true }, { "gemma4", true },
		      { "ugm", false }, { "wpm", false },         { "rwkv", true } };
	char name[64];

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct tokenizer *t;
		struct buf file;

		buf_init(&file);
		snprintf(name, sizeof name, "%s.gguf", kinds[i].name);
		read_file(name, &file);
		t = open_of(&file, kinds[i].name);
		if (t)
			check(t, kinds[i].name, json_get(json_get(json_get(cases, "other"), kinds[i].name), "ids"),
			      kinds[i].returns);
		tokenizer_close(t);
		buf_fini(&file);
	}
}

int main(int argc, char **argv)
{
	struct json *file;
	struct buf b;

	if (argc != 2) {
		fprintf(stderr, "usage: test_gguf_tokens tests/golden/_gguf/tokenizers\n");
		return 2;
	}
	root = argv[1];
	log_set_level(LOG_ERROR);
	buf_init(&b);
	read_file("cases.json", &b);
	file = json_parse(b.p, b.n, 0, NULL);
	cases = file;
	check_byte_level();
	check_others();
	printf("%d texts compared, %d wrong\n", compared, bad);
	json_free(file);
	buf_fini(&b);
	return bad != 0 || compared < 4000;
}
