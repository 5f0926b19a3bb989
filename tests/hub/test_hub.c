/* test_hub.c - what src/hub reads and decides without a network, by the tables beside it: names, headers, lists of files,
 * and which files a model is made of.
 *
 *   test_hub FOLDER */
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "hub/choose.h"
#include "hub/heads.h"
#include "hub/hub.h"
#include "hub/hub_cache.h"
#include "hub/names.h"

static struct json *table(const char *folder, const char *name)
{
	struct buf path, text;
	struct json *root;
	struct err err;

	buf_init(&path);
	buf_init(&text);
	buf_printf(&path, "%s/%s.json", folder, name);
	CHECK(!file_read(path.p, 1 << 20, &text, &err), "%s", err.msg);
	root = json_parse(text.p, text.n, 0, &err);
	CHECK(root, "%s: %s", path.p, err.msg);
	buf_fini(&path);
	buf_fini(&text);
	return root;
}

static const char *str(const struct json *j, const char *key)
{
	return json_str(json_get(j, key), NULL);
}

static bool flag(const struct json *j, const char *key)
{
	bool b = false;

	json_to_bool(json_get(j, key), &b);
	return b;
}

static int64_t number(const struct json *j, const char *key)
{
	int64_t n = -1;

	json_to_int(json_get(j, key), &n);
	return n;
}

static void test_names(const char *folder)
{
	struct json *t = table(folder, "names");
	const struct json *list = json_get(t, "ids");
	struct buf b;

	buf_init(&b);
	for (size_t i = 0; i < json_len(list); i++) {
		const struct json *c = json_at(list, i);

		CHECK(hub_is_name(str(c, "id")) == flag(c, "ok"), "%s", str(c, "id"));
		if (!flag(c, "ok"))
			continue;
		buf_reset(&b);
		hub_put_folder(&b, str(c, "id"));
		CHECK(!strcmp(b.p, str(c, "folder")), "%s", b.p);
	}
	list = json_get(t, "urls");
	for (size_t i = 0; i < json_len(list); i++) {
		const struct json *c = json_at(list, i);

		buf_reset(&b);
		hub_put_resolve(&b, str(c, "id"), str(c, "revision"), str(c, "path"));
		CHECK(!strcmp(b.p, str(c, "expect")), "%s, not %s", b.p, str(c, "expect"));
	}
	list = json_get(t, "links");
	for (size_t i = 0; i < json_len(list); i++) {
		const struct json *c = json_at(list, i);

		buf_reset(&b);
		hub_put_link(&b, str(c, "path"), str(c, "etag"));
		CHECK(!strcmp(b.p, str(c, "expect")), "%s", b.p);
	}
	list = json_get(t, "paths");
	for (size_t i = 0; i < json_len(list); i++) {
		const struct json *c = json_at(list, i);

		CHECK(hub_is_path(str(c, "path")) == flag(c, "ok"), "'%s'", str(c, "path"));
	}
	buf_fini(&b);
	json_free(t);
}

static void test_wishes(void)
{
	static const struct {
		const char *text, *name, *revision, *type;
	} good[] = {
		{ "Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-4B", "main", NULL },
		{ "a/b:Q4_K_M", "a/b", "main", "Q4_K_M" },
		{ "a/b@v1.0", "a/b", "v1.0", NULL },
		{ "a/b@refs/pr/3:Q8_0", "a/b", "refs/pr/3", "Q8_0" },
		{ "hf.co/a/b:Q8_0", "a/b", "main", "Q8_0" },
		{ "https://huggingface.co/a/b", "a/b", "main", NULL },
		{ "gpt2", "gpt2", "main", NULL },
	};
	static const char *const bad[] = {
		"",       "a/b/c",   "../x",  "a/b:", "a/b@", "/etc",     "a/b@../c",
		"a/b@-x", "a/b@x y", "a b/c", "./x",  "~/m",  "a/b@a//b", "https://x.y/a/b"
	};
	struct hub_wish w;
	struct err err;

	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		CHECK(!hub_wish_parse(&w, good[i].text, &err), "%s", err.msg);
		CHECK(!strcmp(w.name, good[i].name) && !strcmp(w.revision, good[i].revision), "%s", good[i].text);
		CHECK(!w.type == !good[i].type && (!w.type || !strcmp(w.type, good[i].type)), "%s", good[i].text);
		hub_wish_free(&w);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		CHECK(hub_wish_parse(&w, bad[i], &err) == E_ARG, "'%s'", bad[i]);
}

static void put_head(struct hub_head *h, int64_t status, const struct json *headers)
{
	struct json_cursor c = json_first(headers);
	const struct json *v;
	const char *key;
	struct buf line;

	buf_init(&line);
	buf_printf(&line, "HTTP/1.1 %lld what\r\n", (long long)status);
	hub_head_line(h, line.p, line.n);
	while (json_next(&c, &key, &v)) {
		buf_reset(&line);
		buf_printf(&line, "%s: %s\r\n", key, json_str(v, NULL));
		hub_head_line(h, line.p, line.n);
	}
	buf_fini(&line);
}

/* A word of the message that stands for a kind of error. */
static const char *word_of(const char *kind)
{
	static const char *const words[][2] = {
		{ "gated", "gated" },
		{ "repo", "no such model" },
		{ "token", "wrong or expired" },
		{ "revision", "no such branch" },
		{ "entry", "no such file" },
		{ "disabled", "disabled" },
		{ "forbidden", "permission" },
	};

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (!strcmp(words[i][0], kind))
			return words[i][1];
	return "?";
}

static void test_head(const struct json *c)
{
	static const char *const steps[] = { "done", "follow", "fetch", "retry", "error" };
	const struct json *want = json_get(c, "expect");
	const char *name = str(c, "name"), *asked = str(c, "request");
	struct hub_file f = { .size = -1 };
	struct err err = { 0 };
	struct hub_head h;
	enum hub_step step;

	hub_head_init(&h);
	buf_init(&f.url);
	put_head(&h, number(c, "status"), json_get(c, "headers"));
	step = hub_file_step(&h, asked, &f, &err);
	CHECK(!strcmp(steps[step], str(want, "step")), "%s: %s (%s)", name, steps[step], err.msg);
	if (str(want, "url")) {
		CHECK(!strcmp(f.url.p, str(want, "url")), "%s: %s", name, f.url.p);
		CHECK(hub_same_origin(f.url.p, asked) == flag(want, "send_token"), "%s: token", name);
	}
	if (str(want, "etag"))
		CHECK(!strcmp(f.digest, str(want, "etag")) && !strcmp(f.commit, str(want, "commit")) &&
		              f.size == number(want, "size"),
		      "%s: %s %s %lld", name, f.digest, f.commit, (long long)f.size);
	if (str(want, "kind"))
		CHECK(strstr(err.msg, word_of(str(want, "kind"))), "%s: %s", name, err.msg);
	if (json_get(want, "first_wait"))
		CHECK(hub_wait(&h, 0) == number(want, "first_wait"), "%s: %d s", name, hub_wait(&h, 0));
	CHECK(!h.location.n || !strstr(err.msg, h.location.p), "%s: the message has the signed address", name);
	hub_head_fini(&h);
	buf_fini(&f.url);
}

static void test_headers(const char *folder)
{
	static const char *const ranges[] = { "append", "restart", "complete", "restart", "new_location" };
	struct json *t = table(folder, "headers");
	const struct json *list = json_get(t, "heads");
	struct hub_head h;
	struct buf b;

	for (size_t i = 0; i < json_len(list); i++)
		test_head(json_at(list, i));
	buf_init(&b);
	list = json_get(t, "link");
	for (size_t i = 0; i < json_len(list); i++) {
		const struct json *c = json_at(list, i);

		buf_reset(&b);
		CHECK(hub_next(str(c, "value"), &b) == (str(c, "expect") != NULL), "%s", str(c, "value"));
		CHECK(!str(c, "expect") || !strcmp(b.p, str(c, "expect")), "%s", b.p);
	}
	list = json_get(t, "ranges");
	hub_head_init(&h);
	for (size_t i = 0; i < json_len(list); i++) {
		const struct json *c = json_at(list, i);
		enum hub_range got;

		hub_head_reset(&h);
		h.status = (int)number(c, "status");
		snprintf(h.range, sizeof h.range, "%s", str(c, "content_range") ? str(c, "content_range") : "");
		got = hub_range_step(&h, number(c, "asked"), number(c, "total"));
		CHECK(!strcmp(ranges[got], str(c, "expect")), "range %zu: %s", i, ranges[got]);
	}
	hub_head_fini(&h);
	buf_fini(&b);
	json_free(t);
}

static void test_tree(const char *folder)
{
	struct json *t = table(folder, "tree");
	const struct json *pages = json_get(t, "pages"), *want = json_get(t, "expect");
	struct hub_tree tree = { 0 };
	struct err err;
	struct buf b;

	buf_init(&b);
	for (size_t i = 0; i < json_len(pages); i++) {
		buf_reset(&b);
		json_put(&b, json_get(json_at(pages, i), "body"));
		CHECK(!hub_tree_page(&tree, b.p, b.n, &err), "%s", err.msg);
	}
	CHECK((size_t)tree.n == json_len(want), "%d files", tree.n);
	for (int i = 0; i < tree.n; i++) {
		const struct json *e = json_at(want, (size_t)i);

		CHECK(!strcmp(tree.v[i].path, str(e, "path")) && tree.v[i].size == number(e, "size") &&
		              !strcmp(tree.v[i].digest, str(e, "name")),
		      "%s", tree.v[i].path);
	}
	CHECK(hub_tree_page(&tree, "{}", 2, &err) == E_FORMAT, "an object");
	CHECK(hub_tree_page(&tree, "[{\"type\":\"file\",\"path\":\"a\"}]", 28, &err) == E_FORMAT, "no size");
	hub_tree_free(&tree);
	buf_fini(&b);
	json_free(t);
}

static void test_choice(const struct json *c)
{
	static const char *const words[][2] = { { "mmproj", "mmproj" },
		                                { "mtp", "mtp-" },
		                                { "dflash", "dflash-" },
		                                { "eagle3", "eagle3-" },
		                                { "dspark", "dspark-" } };
	const struct json *want = json_get(c, "expect"), *listing = json_get(c, "listing"),
			  *files = json_get(want, "files");
	const char *type = *str(c, "tag") ? str(c, "tag") : NULL;
	struct hub_choice got = { 0 };
	struct hub_tree tree = { 0 };
	struct err err = { 0 };
	int code;

	/* Lists of other programs, files by name, and heads without a model are not asked for here. */
	if (json_get(want, "preset") || *str(c, "file") || (str(want, "model") && !*str(want, "model")))
		return;
	for (size_t i = 0; i < json_len(listing); i++) {
		const char *path = json_str(json_at(listing, i), NULL);

		if (!strstr(path, ".safetensors"))
			hub_tree_add(&tree, path, 1, "", "");
	}
	code = hub_choose(&tree, type, false, &got, &err);
	CHECK(!code == !json_get(want, "error"), "%s: %s", str(c, "name"), err.msg);
	if (!code) {
		CHECK((size_t)got.n == json_len(files), "%s: %d files", str(c, "name"), got.n);
		CHECK(!strcmp(tree.v[got.model].path, str(want, "model")), "%s: %s", str(c, "name"),
		      tree.v[got.model].path);
		for (int i = 0; i < got.n; i++)
			CHECK(!strcmp(tree.v[got.v[i]].path, json_str(json_at(files, (size_t)i), NULL)), "%s: %s",
			      str(c, "name"), tree.v[got.v[i]].path);
		for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
			int at = hub_sidecar(&tree, got.model, words[i][1], type);

			if (str(want, words[i][0]))
				CHECK(!strcmp(at < 0 ? "" : tree.v[at].path, str(want, words[i][0])), "%s: %s: %s",
				      str(c, "name"), words[i][0], at < 0 ? "none" : tree.v[at].path);
		}
	}
	hub_choice_free(&got);
	hub_tree_free(&tree);
}

static void test_choices(const char *folder)
{
	struct json *t = table(folder, "choose");

	for (size_t i = 0; i < json_len(t); i++)
		test_choice(json_at(t, i));
	json_free(t);
}

/* A folder of safetensors: settings and the shards of the index, and nothing of another form. */
static void test_folder(void)
{
	static const char *const there[] = { "README.md",         "config.json",
		                             "tokenizer.json",    "chat_template.jinja",
		                             "a.safetensors",     "b.safetensors",
		                             "old.safetensors",   "model.safetensors.index.json",
		                             "pytorch_model.bin", "pytorch_model.bin.index.json",
		                             "onnx/config.json",  "consolidated.safetensors" };
	static const char index[] =
		"{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\",\"z\":\"a.safetensors\"}}";
	static const char other[] = "{\"weight_map\":{\"x\":\"c.safetensors\"}}";
	struct hub_tree tree = { 0 };
	struct hub_choice got;
	struct err err;
	struct buf b;

	for (size_t i = 0; i < sizeof there / sizeof *there; i++)
		hub_tree_add(&tree, there[i], 1, "", "");
	CHECK(!hub_choose(&tree, NULL, true, &got, &err), "%s", err.msg);
	CHECK(got.index == 7, "%d", got.index);
	CHECK(!hub_choose_shards(&tree, index, sizeof index - 1, &got, &err), "%s", err.msg);
	buf_init(&b);
	for (int i = 0; i < got.n; i++)
		buf_printf(&b, "%s ", tree.v[got.v[i]].path);
	CHECK(!strcmp(b.p, "config.json tokenizer.json chat_template.jinja model.safetensors.index.json a.safetensors "
	                   "b.safetensors "),
	      "%s", b.p);
	CHECK(hub_choose_shards(&tree, other, sizeof other - 1, &got, &err) == E_MISSING, "a shard that is not there");
	CHECK(hub_choose_shards(&tree, "{", 1, &got, &err) == E_FORMAT, "no JSON");
	CHECK(hub_choose_shards(&tree, "{}", 2, &got, &err) == E_FORMAT, "no map");
	buf_fini(&b);
	hub_choice_free(&got);
	hub_tree_free(&tree);
}

static unsigned random_bits(uint32_t *seed)
{
	return (*seed = *seed * 1664525u + 1013904223u) >> 8;
}

/* Random bytes, and texts of the hub with random changes: nothing may crash, and what is taken is in bounds. */
static void test_noise(const char *folder)
{
	static const char *const names[] = {
		"ETag",      "X-Linked-Etag", "X-Linked-Size", "Content-Length",  "Location",     "Link",
		"RateLimit", "Retry-After",   "Content-Range", "X-Error-Message", "X-Repo-Commit"
	};
	static const char some[] = "<>;=rt\"-/0123456789 bytes", marks[] = "\"{}[],:0e-./";
	struct json *t = table(folder, "tree");
	uint32_t seed = 1;
	struct buf page;

	buf_init(&page);
	json_put(&page, json_get(json_at(json_get(t, "pages"), 0), "body"));
	for (int i = 0; i < 3000; i++) {
		struct hub_file f = { .size = -1 };
		struct hub_tree tree = { 0 };
		struct hub_choice got = { 0 };
		struct hub_head h;
		struct buf line, text;
		struct err err;

		hub_head_init(&h);
		buf_init(&f.url);
		buf_init(&line);
		buf_init(&text);
		h.status = (int)(random_bits(&seed) % 600);
		for (int k = 0; k < 6; k++) {
			buf_reset(&line);
			buf_printf(&line, "%s: ", names[random_bits(&seed) % (sizeof names / sizeof *names)]);
			for (unsigned n = random_bits(&seed) % 40 * (i % 8 ? 1 : 300); n; n--)
				buf_putc(&line, random_bits(&seed) % 3 ? some[random_bits(&seed) % (sizeof some - 1)] :
				                                         (int)(random_bits(&seed) % 256));
			hub_head_line(&h, line.p, line.n);
		}
		hub_file_step(&h, "https://a.b/c", &f, &err);
		CHECK(hub_wait(&h, i % 7) >= 0 && hub_wait(&h, i % 7) <= 600, "%d s", hub_wait(&h, i % 7));
		hub_range_step(&h, i % 5, random_bits(&seed));
		hub_next(h.link.p, &text);

		buf_reset(&text);
		buf_put(&text, page.p, page.n);
		for (unsigned k = random_bits(&seed) % 4; k; k--)
			text.p[random_bits(&seed) % text.n] = random_bits(&seed) % 2 ?
			                                              (char)random_bits(&seed) :
			                                              marks[random_bits(&seed) % (sizeof marks - 1)];
		if (!hub_tree_page(&tree, text.p, text.n, &err))
			hub_choose(&tree, i % 2 ? "Q4_K_M" : NULL, true, &got, &err);
		for (int k = 0; k < tree.n; k++)
			CHECK(hub_is_path(tree.v[k].path) && tree.v[k].size >= 0 && hub_is_digest(tree.v[k].digest),
			      "%s", tree.v[k].path);
		hub_choice_free(&got);
		hub_tree_free(&tree);
		hub_head_fini(&h);
		buf_fini(&f.url);
		buf_fini(&line);
		buf_fini(&text);
	}
	buf_fini(&page);
	json_free(t);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2, "test_hub FOLDER");
	test_names(argv[1]);
	test_wishes();
	test_headers(argv[1]);
	test_tree(argv[1]);
	test_choices(argv[1]);
	test_folder();
	test_noise(argv[1]);
	return 0;
}
