/* Ids of texts and pairs against those of Hugging Face's tokenizers: the cases beside each tokenizer in
 * ../shared/golden/_embed/tokenizers, and the texts of the goldens, prompts and truncation included.
 *
 *     texts_test ROOT                    all of them
 *     texts_test ROOT NAME=FILE...       the texts of these goldens with the tokenizers of GGUF files */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "driver.h"
#include "store/store.h"
#include "text/tokens/pair.h"

static int n_case, n_bad;

static struct json *document(const char *folder, const char *name)
{
	char path[4400];
	struct json *j;
	struct buf b;
	struct err err;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	buf_init(&b);
	if (file_read(path, 1 << 26, &b, &err))
		return NULL;
	j = json_parse(b.p, b.n, 0, &err);
	CHECK(j, "%s: %s", path, err.msg);
	buf_fini(&b);
	return j;
}

static struct tokenizer *tokenizer_of(const char *folder)
{
	char path[4400];
	struct tokenizer *t;
	struct buf b;
	struct err err;

	snprintf(path, sizeof path, "%s/tokenizer.json", folder);
	buf_init(&b);
	if (file_read(path, 1 << 26, &b, &err))
		return NULL;
	CHECK(!tokenizer_open(&t, b.p, b.n, &err), "%s: %s", path, err.msg);
	buf_fini(&b);
	return t;
}

static struct tokenizer *tokenizer_of_file(const char *path)
{
	struct tokenizer *t;
	struct store *st;
	struct buf b;
	struct err err;

	buf_init(&b);
	CHECK(!store_open(&st, path, &err), "%s", err.msg);
	CHECK(!store_document(st, "tokenizer.json", &b, &err), "%s", err.msg);
	CHECK(!tokenizer_open(&t, b.p, b.n, &err), "%s: %s", path, err.msg);
	buf_fini(&b);
	store_close(st);
	return t;
}

static void compare(const struct tokenizer *t, const char *where, int i, const struct texts_in *in,
                    const struct json *ids, const struct json *types)
{
	struct tokens got;
	size_t length;
	int second;
	struct err err;
	bool same;

	tokens_init(&got);
	n_case++;
	if (texts_encode(t, in, TOKENIZE_SPECIAL, &got, &second, &length, &err)) {
		printf("%s, case %d: %s\n", where, i, err.msg);
		n_bad++;
		return;
	}
	same = got.n == json_len(ids);
	for (size_t k = 0; k < got.n && same; k++) {
		int64_t id = -1, type = 0;

		json_to_int(json_at(ids, k), &id);
		same = id == got.id[k];
		if (types && !json_to_int(json_at(types, k), &type))
			same &= type == (second && (int)k >= second);
	}
	if (!same) {
		printf("%s, case %d, \"%.*s\": %zu ids, second at %d; other ones are right:", where, i,
		       (int)(in->n[0] < 60 ? in->n[0] : 60), in->p[0], got.n, second);
		for (size_t k = 0; k < got.n && k < 12; k++)
			printf(" %d", got.id[k]);
		printf(" | ");
		for (size_t k = 0; k < json_len(ids) && k < 12; k++) {
			int64_t id = -1;

			json_to_int(json_at(ids, k), &id);
			printf(" %d", (int)id);
		}
		printf("\n");
		n_bad++;
	}
	tokens_fini(&got);
}

static void cases_of(const char *folder)
{
	struct tokenizer *t = tokenizer_of(folder);
	struct json *cases = document(folder, "cases.json"), *file = document(folder, "tokenizer.json");
	int64_t most = 0;

	json_to_int(json_get(json_get(file, "truncation"), "max_length"), &most);
	json_free(file);
	for (size_t i = 0; i < json_len(cases) && t; i++) {
		const struct json *c = json_at(cases, i);
		struct texts_in in = { .most = (int)most };

		in.p[0] = json_str(json_get(c, "text"), &in.n[0]);
		in.p[1] = json_str(json_get(c, "pair"), &in.n[1]);
		in.two = in.p[1] != NULL;
		compare(t, folder, (int)i, &in, json_get(c, "ids"), json_get(c, "type_ids"));
	}
	json_free(cases);
	tokenizer_close(t);
}

/* Texts with prompts, or pairs, of a golden whose ids follow from its tokenizer; frees t. */
static void texts_with(struct tokenizer *t, const char *folder)
{
	struct json *g = t ? document(folder, "golden.json") : NULL;
	const struct json *texts = json_get(g, "texts"), *pairs = json_get(g, "pairs");
	int64_t most = 0;

	json_to_int(json_get(g, "max_seq_length"), &most);
	for (size_t i = 0; g && i < json_len(texts ? texts : pairs); i++) {
		const char *name = json_str(json_at(json_get(g, "prompt_names"), i), NULL), *prompt = "", *text;
		struct texts_in in = { .most = (int)most };
		struct buf whole;

		buf_init(&whole);
		if (name)
			prompt = json_str(json_get(json_get(g, "prompts"), name), NULL);
		if (texts) {
			text = json_str(json_at(texts, i), NULL);
			buf_printf(&whole, "%s%s", prompt, text);
			in.p[0] = whole.p ? whole.p : "";
			in.n[0] = whole.n;
		} else {
			in.two = true;
			for (size_t k = 0; k < 2; k++)
				in.p[k] = json_str(json_at(json_at(pairs, i), k), &in.n[k]);
		}
		compare(t, folder, (int)i, &in, json_at(json_get(g, "ids"), i), json_at(json_get(g, "type_ids"), i));
		buf_fini(&whole);
	}
	json_free(g);
	tokenizer_close(t);
}

static void texts_of(const char *folder)
{
	texts_with(tokenizer_of(folder), folder);
}

static void each(const char *root, const char *below, void (*fn)(const char *folder))
{
	char path[4300];
	struct dirent **list;
	int n;

	n = scandir(root, &list, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		if (list[i]->d_name[0] != '.') {
			snprintf(path, sizeof path, "%s/%s%s", root, list[i]->d_name, below);
			fn(path);
		}
		free(list[i]);
	}
	free(list);
}

int main(int argc, char **argv)
{
	char path[4200];

	if (argc < 2 || !shared_argument(argv, 1))
		return argc < 2 ? 2 : 77;
	snprintf(path, sizeof path, "%s/tokenizers", argv[1]);
	if (argc == 2) {
		each(path, "", cases_of);
		each(argv[1], "/hf-bf16", texts_of);
	}
	for (int i = 2; i < argc; i++) {
		const char *file = strchr(argv[i], '=');

		CHECK(file, "%s: NAME=FILE is wanted", argv[i]);
		snprintf(path, sizeof path, "%s/%.*s/hf-bf16", argv[1], (int)(file - argv[i]), argv[i]);
		texts_with(tokenizer_of_file(file + 1), path);
	}
	printf("%d of %d texts and pairs as they should be\n", n_case - n_bad, n_case);
	CHECK(n_case, "no cases in %s", argv[1]);
	return n_bad > 0;
}
