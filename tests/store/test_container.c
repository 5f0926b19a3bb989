/* A container of the tests' own, as docs/formats.md describes one: what it lists and writes is what
 * the store hands out, and what is wrong with it is said.
 *
 * A toy file is lines: "document NAME TEXT", "f32 NAME ROWS COLS FIRST" (elements FIRST, FIRST + 1 ...). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "folder.h"
#include "store/store.h"

enum { TENSORS = 8 };

struct toy {
	struct buf text;
	struct tensor t[TENSORS];
	float first[TENSORS];
	int loads;
};

static bool match(const char *path)
{
	return strlen(path) > 4 && !strcmp(path + strlen(path) - 4, ".toy");
}

static int open_toy(struct container *c, struct err *err)
{
	struct toy *y = arena_zalloc(&c->arena, sizeof *y);

	buf_init(&y->text);
	c->own = y;
	return file_read(c->path, 1 << 16, &y->text, err);
}

static void close_toy(struct container *c)
{
	struct toy *y = c->own;

	buf_fini(&y->text);
}

static int list(struct container *c, struct err *err)
{
	struct toy *y = c->own;
	char name[64];

	c->v = arena_zalloc(&c->arena, TENSORS * sizeof *c->v);
	for (const char *line = y->text.p; line && *line; line = strchr(line, '\n'), line += line != NULL) {
		struct tensor *t = &y->t[c->n];
		long rows, cols;

		if (sscanf(line, "f32 %63s %ld %ld %f", name, &rows, &cols, &y->first[c->n]) != 4)
			continue;
		*t = (struct tensor){ .name = arena_strndup(&c->arena, name, strlen(name)),
			              .file = c->path,
			              .type = DT_F32,
			              .n_dim = 2,
			              .dim = { rows, cols },
			              .count = rows * cols,
			              .bytes = (size_t)(rows * cols) * sizeof(float),
			              .elements = rows * cols };
		c->v[c->n++] = t;
	}
	return 0;
}

/* Elements are made when they are first asked for. */
static int load(struct container *c, struct tensor *t, struct err *err)
{
	struct toy *y = c->own;
	float *f = arena_alloc(&c->arena, t->bytes);

	if (y->first[t - y->t] < 0)
		return err_set(err, E_FORMAT, "%s: tensor %s: begins at %g, below 0", c->path, t->name,
		               (double)y->first[t - y->t]);
	for (int64_t i = 0; i < t->count; i++)
		f[i] = y->first[t - y->t] + (float)i;
	t->data = (const uint8_t *)f;
	y->loads++;
	return 0;
}

static const char *place(struct container *c, const char *name)
{
	return arena_printf(&c->arena, "%s (%s)", c->path, name);
}

static int document(struct container *c, const char *name, struct buf *out, struct err *err)
{
	struct toy *y = c->own;
	char key[64];

	for (const char *line = y->text.p; line && *line; line = strchr(line, '\n'), line += line != NULL) {
		int at = 0;

		if (sscanf(line, "document %63s %n", key, &at) == 1 && at && !strcmp(key, name)) {
			buf_put(out, line + at, strcspn(line + at, "\n"));
			return 0;
		}
	}
	return err_set(err, E_MISSING, "%s: has no %s", c->path, name);
}

static int list_documents(struct container *c, const char *folder, const char *const **out, struct err *err)
{
	const char **found = arena_zalloc(&c->arena, 2 * sizeof *found);
	struct toy *y = c->own;

	if (strstr(y->text.p, folder))
		found[0] = arena_printf(&c->arena, "%s/tool_use.jinja", folder);
	*out = found;
	return 0;
}

static const struct container_ops toy_container = {
	.name = "toy",
	.match = match,
	.open = open_toy,
	.tensors = list,
	.close = close_toy,
	.document = document,
	.list = list_documents,
	.place = place,
	.load = load,
};

static struct store *opened(const char *dir, const char *text, int code, const char *says)
{
	struct store *st;
	struct err err = { 0 };

	folder_puts(dir, "m.toy", text);
	assert_int_equal(store_open_as(&st, &toy_container, folder_path(dir, "m.toy"), "toy", &err), code);
	if (code && !strstr(err.msg, says))
		fail_msg("\"%s\" does not say \"%s\"", err.msg, says);
	return st;
}

static void test_toy(void **state)
{
	char *dir = folder_new();
	struct store *st = opened(dir,
	                          "document config.json {\"model_type\":\"x\",\"eos_token_id\":7}\n"
	                          "document chat_template.jinja {{ bos }}\n"
	                          "document additional_chat_templates/tool_use.jinja {{ tools }}\n"
	                          "document generation_config.json {\"top_k\":3,\"eos_token_id\":9}\n"
	                          "f32 b.weight 2 3 1\nf32 a 1 4 0.5\n",
	                          0, "");
	struct store_sampling s = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 };
	struct err err = { 0 };
	struct weight w;
	const float *f;
	int32_t eos[4];
	struct store_templates t;
	struct buf b;

	assert_int_equal(st->n, 2);
	assert_string_equal(st->v[0]->name, "a"); /* sorted by the store */
	assert_int_equal(store_eos(st, eos, 4), 2);
	assert_int_equal(store_sampling(st, &s, &err), 0);
	assert_int_equal(s.top_k, 3);
	assert_int_equal(store_templates_read(st, &t, &err), 0);
	assert_string_equal(t.v[0].text, "{{ bos }}");
	assert_string_equal(store_templates_find(&t, "tool_use"), "{{ tools }}");
	store_templates_end(&t);
	buf_init(&b);
	assert_int_equal(store_document(st, "tokenizer.json", &b, &err), E_MISSING);
	assert_non_null(strstr(store_place(st, "tokenizer.json"), "m.toy (tokenizer.json)"));
	buf_fini(&b);

	assert_null(store_find(st, "a")->data);
	assert_int_equal(store_weight(st, "b", 2, 3, &w, &err), 0);
	assert_int_equal(((const struct toy *)st->box.own)->loads, 1);
	assert_int_equal(((const float *)(const void *)w.data)[5], 6);
	assert_int_equal(store_weight(st, "b", 2, 3, &w, &err), 0);
	assert_int_equal(((const struct toy *)st->box.own)->loads, 1); /* once */
	assert_int_equal(store_floats(st, &st->arena, "a", 4, 0, &f, &err), 0);
	assert_true(f[3] == 3.5f);
	assert_int_equal(store_weight(st, "b", 3, 3, &w, &err), E_FORMAT);
	assert_non_null(strstr(err.msg, "m.toy: tensor b.weight: is [2, 3], "));
	assert_non_null(strstr(err.msg, "m.toy (config.json) asks for [3, 3]"));
	store_close(st);
	folder_remove(dir);
}

static void test_toy_errors(void **state)
{
	char *dir = folder_new();
	struct err err = { 0 };
	struct store *st;
	struct weight w;

	opened(dir, "f32 a 1 1 0\n", E_MISSING, "has no config.json");
	opened(dir, "document config.json [\n", E_FORMAT, "m.toy (config.json)");
	opened(dir, "document config.json {}\nf32 a 1 1 0\nf32 a 1 1 0\n", E_FORMAT, "tensor a: also in");
	st = opened(dir, "document config.json {}\nf32 a 1 1 -2\n", 0, "");
	assert_int_equal(store_weight(st, "a", 1, 1, &w, &err), E_FORMAT);
	assert_non_null(strstr(err.msg, "begins at -2"));
	store_close(st);
	folder_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_toy),
		cmocka_unit_test(test_toy_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
