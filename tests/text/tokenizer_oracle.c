/* tokenizer_oracle.c - answers tokenizer_oracle.py.
 *
 *     tokenizer_oracle TOKENIZER.json CASES.json
 *
 * CASES is an array of {"text", "flags", "user": [[start, end], ...]}; for each, one
 * line of JSON: {"ids": [...], "text": decoded, "plain": decoded without specials}. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "text/tokens/tokenizer.h"

static void put_text(const struct tokenizer *t, const struct tokens *v, bool skip, struct buf *out)
{
	struct buf b;

	buf_init(&b);
	tokenizer_decode(t, v->id, v->n, skip, &b);
	json_put_str(out, b.p, b.n);
	buf_fini(&b);
}

static int one_case(const struct tokenizer *t, const struct json *j, struct err *err)
{
	const struct json *list = json_get(j, "user");
	size_t n, n_user = json_len(list);
	struct text_range *user = xcalloc(n_user + 1, sizeof *user);
	const char *text = json_str(json_get(j, "text"), &n);
	struct tokens v;
	struct buf out;
	int64_t flags = 0;
	int e;

	for (size_t i = 0; i < n_user; i++) {
		int64_t a = 0, b = 0;

		json_to_int(json_at(json_at(list, i), 0), &a);
		json_to_int(json_at(json_at(list, i), 1), &b);
		user[i] = (struct text_range){ (size_t)a, (size_t)b };
	}
	json_to_int(json_get(j, "flags"), &flags);
	tokens_init(&v);
	e = tokenizer_encode_ranges(t, text, n, (unsigned)flags, user, n_user, &v, err);
	if (!e) {
		buf_init(&out);
		buf_puts(&out, "{\"ids\": [");
		for (size_t i = 0; i < v.n; i++)
			buf_printf(&out, "%s%d", i ? ", " : "", v.id[i]);
		buf_puts(&out, "], \"text\": ");
		put_text(t, &v, false, &out);
		buf_puts(&out, ", \"plain\": ");
		put_text(t, &v, true, &out);
		buf_puts(&out, "}");
		puts(out.p);
		buf_fini(&out);
	}
	tokens_fini(&v);
	free(user);
	return e;
}

int main(int argc, char **argv)
{
	struct file_map model, cases;
	struct tokenizer *t = NULL;
	struct json *root = NULL;
	struct err err;
	int e;

	if (argc != 3) {
		fprintf(stderr, "usage: tokenizer_oracle TOKENIZER.json CASES.json\n");
		return 2;
	}
	if ((e = file_map_open(&model, argv[1], &err)) || (e = file_map_open(&cases, argv[2], &err)) ||
	    (e = tokenizer_open(&t, (const char *)model.p, model.n, &err)) ||
	    (e = !(root = json_parse((const char *)cases.p, cases.n, 0, &err)))) {
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	for (size_t i = 0; i < json_len(root) && !e; i++)
		if ((e = one_case(t, json_at(root, i), &err)))
			fprintf(stderr, "case %zu: %s\n", i, err.msg);
	json_free(root);
	tokenizer_close(t);
	file_map_close(&model);
	file_map_close(&cases);
	return e ? 1 : 0;
}
