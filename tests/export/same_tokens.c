/* same_tokens.c - whether two models read texts alike, for test_pieces_to_gguf.py.
 *
 *     same_tokens ONE OTHER < TEXTS
 *
 * TEXTS are parted by bytes 0.  Compared are the ids of each, as ordinary text, with special tokens read, and with the tokens
 * that go around a text; what the ids are decoded to; the bytes of every token that ONE has, and whether it is special; the
 * chat templates.  Prints the counts, or what differs, the first few. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "store/store.h"
#include "text/tokens/detok.h"
#include "text/tokens/tokenizer.h"

enum { SHOWN_MOST = 4 };

static int wrong;
static size_t n_text, n_id;

struct model {
	struct store *st;
	struct tokenizer *tok;
};

static void die(const char *what, const struct err *err)
{
	printf("%s: %s\n", what, err->msg);
	exit(2);
}

static struct model open_of(const char *path)
{
	struct model m = { NULL, NULL };
	struct err err;
	struct buf text;

	buf_init(&text);
	if (store_open(&m.st, path, &err) || store_document(m.st, "tokenizer.json", &text, &err) ||
	    tokenizer_open(&m.tok, text.p, text.n, &err))
		die(path, &err);
	buf_fini(&text);
	return m;
}

static void show(const char *what, const struct tokens *v)
{
	printf("  %s:", what);
	for (size_t i = 0; i < v->n && i < 40; i++)
		printf(" %d", v->id[i]);
	printf("\n");
}

static void compare_text(const struct model *m, const char *p, size_t n, unsigned flags)
{
	struct tokens ids[2];
	struct buf back[2];
	bool same;

	for (int i = 0; i < 2; i++) {
		struct err err;

		tokens_init(&ids[i]);
		buf_init(&back[i]);
		if (tokenizer_encode(m[i].tok, p, n, flags, &ids[i], &err))
			die("encode", &err);
		tokenizer_decode(m[i].tok, ids[i].id, ids[i].n, false, &back[i]);
	}
	same = ids[0].n == ids[1].n && (!ids[0].n || !memcmp(ids[0].id, ids[1].id, ids[0].n * sizeof *ids[0].id));
	n_id += ids[0].n;
	if (!same && wrong++ < SHOWN_MOST) {
		printf("flags %u, ids of \"%.*s\"\n", flags, (int)(n < 80 ? n : 80), p);
		show("one", &ids[0]);
		show("other", &ids[1]);
	} else if (same && (back[0].n != back[1].n || (back[0].n && memcmp(back[0].p, back[1].p, back[0].n))) &&
	           wrong++ < SHOWN_MOST) {
		printf("flags %u, decoded \"%.*s\": \"%.*s\", other \"%.*s\"\n", flags, (int)n, p, (int)back[0].n,
		       back[0].p, (int)back[1].n, back[1].p);
	}
	for (int i = 0; i < 2; i++) {
		tokens_fini(&ids[i]);
		buf_fini(&back[i]);
	}
}

static void compare_tokens(const struct model *m)
{
	for (int32_t id = 0; id < tokenizer_size(m[0].tok); id++) {
		size_t n[2] = { 0, 0 };
		const char *p = tokenizer_token_bytes(m[0].tok, id, &n[0]),
			   *q = tokenizer_token_bytes(m[1].tok, id, &n[1]);

		if (p &&
		    (!q || n[0] != n[1] || memcmp(p, q, n[0]) ||
		     tokenizer_is_special(m[0].tok, id) != tokenizer_is_special(m[1].tok, id)) &&
		    wrong++ < SHOWN_MOST)
			printf("token %d: \"%.*s\"%s, other \"%.*s\"%s\n", id, (int)n[0], p,
			       tokenizer_is_special(m[0].tok, id) ? " special" : "", (int)n[1], q ? q : "",
			       tokenizer_is_special(m[1].tok, id) ? " special" : "");
	}
}

static void compare_templates(const struct model *m)
{
	struct store_templates t[2];
	struct err err;

	for (int i = 0; i < 2; i++)
		if (store_templates_read(m[i].st, &t[i], &err))
			t[i].n = 0;
	for (int i = 0; i < 2; i++) {
		for (size_t k = 0; k < t[i].n; k++) {
			const char *other = store_templates_find(&t[!i], t[i].v[k].name);

			if ((!other || strcmp(t[i].v[k].text, other)) && wrong++ < SHOWN_MOST)
				printf("templates differ: %s\n", t[i].v[k].name);
		}
	}
	store_templates_end(&t[0]);
	store_templates_end(&t[1]);
}

int main(int argc, char **argv)
{
	struct model m[2];
	struct err err;
	struct buf all;

	if (argc != 3)
		return 2;
	for (int i = 0; i < 2; i++)
		m[i] = open_of(argv[1 + i]);
	compare_tokens(m);
	compare_templates(m);
	buf_init(&all);
	if (file_read_fd(STDIN_FILENO, "standard input", 1 << 28, &all, &err))
		die("texts", &err);
	for (size_t at = 0, n; at < all.n; at += n + 1) {
		n = strnlen(all.p + at, all.n - at);
		compare_text(m, all.p + at, n, 0);
		compare_text(m, all.p + at, n, TOKENIZE_SPECIAL);
		compare_text(m, all.p + at, n, TOKENIZE_AROUND | TOKENIZE_SPECIAL);
		n_text++;
	}
	printf("%zu texts, %zu ids, %d differ\n", n_text, n_id, wrong);
	buf_fini(&all);
	for (int i = 0; i < 2; i++) {
		tokenizer_close(m[i].tok);
		store_close(m[i].st);
	}
	return wrong != 0;
}
