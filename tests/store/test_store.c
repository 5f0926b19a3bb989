/* Unit tests of src/store: headers, folders, the hub's cache, settings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "folder.h"
#include "store/safetensors.h"
#include "store/store.h"

/* The message must hold each of the parts, separated by '|', and be one line. */
static void assert_says(const struct err *err, const char *parts)
{
	char want[512], *part, *save = NULL;

	snprintf(want, sizeof want, "%s", parts);
	for (part = strtok_r(want, "|", &save); part; part = strtok_r(NULL, "|", &save))
		if (!strstr(err->msg, part))
			fail_msg("\"%s\" does not say \"%s\"", err->msg, part);
	assert_null(strchr(err->msg, '\n'));
}

/* ---- headers ---- */

struct header_case {
	const char *header;
	size_t data;
	int code;
	const char *says;
};

static const struct header_case headers[] = {

	{ "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}",
	  24, 0, "" },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}   ", 4, 0, "" },
	{ "{\"a\":{\"dtype\":\"BF16\",\"shape\":[0,7],\"data_offsets\":[4,4]}}", 4, 0, "" },
	/* a hole between a and b, and bytes behind b */
	{ "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[1],"
	  "\"data_offsets\":[3,4]}}",
	  7, 0, "" },
	/* out of range, truncated: where it ends, what the file has */
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,32]}}", 31, E_FORMAT,
	  "f.safetensors|tensor a:|32|31" },
	/* overlap */
	{ "{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},\"y\":{\"dtype\":\"F32\",\"shape\":[4],"
	  "\"data_offsets\":[12,28]}}",
	  28, E_FORMAT, "f.safetensors|tensor y:|12|tensor x|16" },
	/* shape against range */
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[3,3],\"data_offsets\":[0,32]}}", 32, E_FORMAT,
	  "tensor a:|F32 [3, 3]|9 x 4|32" },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, E_FORMAT, "tensor a:|data_offsets" },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, E_FORMAT, "tensor a:|data_offsets" },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]}}", 8, E_FORMAT, "tensor a:|data_offsets" },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,8]}}", 8, E_FORMAT, "tensor a:|dimension 0" },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,8]}}", 8, E_FORMAT, "tensor a:|dimension 0" },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 8, E_LIMIT,
	  "tensor a:|2^63" },
	{ "{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 8, E_FORMAT,
	  "tensor a:|4611686018427387904 x 8" },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, E_LIMIT,
	  "tensor a:|9 dimensions|8" },
	/* a type that is not known, which may be used by nothing; its size is not known either */
	{ "{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, 0, "" },
	{ "{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,2]}}", 1, E_FORMAT, "tensor a:|ends at byte 2" },
	{ "{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[1,0]}}", 1, E_FORMAT, "tensor a:|data_offsets" },
	{ "{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"F6\",\"shape\":[2],"
	  "\"data_offsets\":[1,2]}}",
	  2, E_FORMAT, "tensor b:|inside tensor a" },
	{ "{\"a\":{\"dtype\":\"\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, E_UNSUPPORTED,
	  "tensor a:|unknown dtype" },
	{ "{\"a\":{\"dtype\":\"F \\\"4\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, E_UNSUPPORTED,
	  "tensor a:|unknown dtype F" },
	{ "{\"a\":{\"dtype\":\"F23456789_123456789_123456789_123456789_1\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1,
	  E_UNSUPPORTED, "tensor a:|unknown dtype F234" },
	{ "{\"a\":{\"dtype\":4,\"shape\":[2],\"data_offsets\":[0,1]}}", 1, E_UNSUPPORTED, "tensor a:|unknown dtype" },
	/* metadata is not read, whatever it is */
	{ "{\"__metadata__\":{\"a\":{\"b\":{\"c\":{\"d\":[[[1]]]}}},\"n\":5},\"a\":{\"dtype\":\"F32\",\"shape\":[],"
	  "\"data_offsets\":[0,4]}}",
	  4, 0, "" },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[[[[[[1]]]]]],\"data_offsets\":[0,4]}}", 4, E_FORMAT,
	  "tensor a:|dimension 0 is not a count" },
	{ "{\"a\":{\"shape\":[2],\"data_offsets\":[0,1]}}", 1, E_UNSUPPORTED, "tensor a:|dtype" },
	{ "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, E_FORMAT, "tensor a:|\"shape\" is missing" },
	{ "{\"a\":17}", 0, E_FORMAT, "tensor a:|integer" },
	{ "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
	  "\"data_offsets\":[1,2]}}",
	  2, E_FORMAT, "tensor a:|twice|2 names, 1 different" },
	{ "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],"
	  "\"data_offsets\":[1,2]}}",
	  2, E_FORMAT, "twice" },
	{ "{\"a\\nb\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, E_FORMAT, "control byte 0x0a" },
	{ "[]", 0, E_FORMAT, "array, not an object" },
	{ "{\"a\":", 0, E_FORMAT, "f.safetensors: header" },
};

static void test_headers(void **state)
{
	for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
		const struct header_case *h = &headers[i];
		char *dir = folder_new();
		struct safetensors s;
		struct err err = { 0 };
		int code;

		folder_put_tensors(dir, "f.safetensors", h->header, h->data);
		code = safetensors_open(&s, folder_path(dir, "f.safetensors"), &err);
		if (code != h->code)
			fail_msg("%s: code %d (%s), expected %d", h->header, code, err.msg, h->code);
		if (code)
			assert_says(&err, h->says);
		else
			safetensors_close(&s);
		folder_remove(dir);
	}
}

/* What is of a type that is not known is named by it, and never read. */
static void test_other_types(void **state)
{
	char *dir = folder_new();
	const float *floats;
	const int64_t *ints;
	struct arena arena;
	struct weight w;
	struct err err = { 0 };
	struct store *st;

	arena_init(&arena);
	folder_puts(dir, "config.json", "{}");
	/* Names of GGUF's types are none of safetensors. */
	folder_put_tensors(dir, "model.safetensors",
	                   "{\"v\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]},"
	                   "\"m.weight\":{\"dtype\":\"Q8_0\",\"shape\":[2,32],\"data_offsets\":[2,4]},"
	                   "\"c.weight\":{\"dtype\":\"F4\",\"shape\":[2,8],\"data_offsets\":[4,5]},"
	                   "\"c.scales\":{\"dtype\":\"F4\",\"shape\":[2,1],\"data_offsets\":[5,6]},"
	                   "\"odd\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[6,14]}}",
	                   14);
	assert_int_equal(store_open(&st, dir, &err), 0);
	assert_string_equal(tensor_type_name(store_find(st, "odd")), "C64");
	assert_int_equal(store_find(st, "odd")->bytes, 8);
	assert_int_equal(store_floats(st, &arena, "v", 4, 0, &floats, &err), E_FORMAT);
	assert_says(&err, "model.safetensors|tensor v|is F4");
	assert_int_equal(store_ints(st, &arena, "v", 4, &ints, &err), E_FORMAT);
	assert_says(&err, "tensor v|is F4");
	assert_int_equal(store_weight(st, "m", 2, 32, &w, &err), E_FORMAT);
	assert_says(&err, "tensor m.weight|is Q8_0");
	assert_int_not_equal(store_weight(st, "c", 2, 64, &w, &err), 0);
	store_close(st);
	arena_fini(&arena);
	folder_remove(dir);
}

/* As a clone leaves it where git-lfs has not fetched the file. */
#define LFS "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 134217728\n"

static void test_short_files(void **state)
{
	static const struct {
		const char *p;
		size_t n;
		const char *says;
	} file[] = {
		{ "", 0, "0 bytes" },
		{ "\1\0\0\0\0\0\0", 7, "7 bytes" },
		{ "\0\0\0\0\0\0\0\0", 8, "header of 0 bytes" },
		{ "\x10\0\0\0\0\0\0\0{}", 10, "header of 16 bytes|has 2" },
		{ "\0\0\0\0\0\0\0\x80{}", 10, "9223372036854775808" },
		{ "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "18446744073709551615" },
		{ LFS, sizeof LFS - 1, "git lfs pull" },
	};

	for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
		struct safetensors s;
		struct err err;

		assert_int_equal(safetensors_open_bytes(&s, "x.safetensors", file[i].p, file[i].n, &err), E_FORMAT);
		assert_says(&err, "x.safetensors");
		assert_says(&err, file[i].says);
	}
}

static void test_find_and_holes(void **state)
{
	char *dir = folder_new();
	struct safetensors s;
	struct tensor *t;

	folder_put_tensors(dir, "f.safetensors",
	                   "{\"b\":{\"dtype\":\"U8\",\"shape\":[1,2],\"data_offsets\":[5,7]},"
	                   "\"a\":{\"dtype\":\"I16\",\"shape\":[1],\"data_offsets\":[1,3]}}",
	                   10);
	assert_int_equal(safetensors_open(&s, folder_path(dir, "f.safetensors"), NULL), 0);
	assert_int_equal(s.n, 2);
	assert_int_equal(s.bytes, 4);
	assert_int_equal(s.hole_bytes, 6);
	t = safetensors_find(&s, "b");
	assert_non_null(t);
	assert_int_equal(t->n_dim, 2);
	assert_int_equal(t->count, 2);
	assert_ptr_equal(t->data, safetensors_find(&s, "a")->data + 4);
	assert_null(safetensors_find(&s, "c"));
	safetensors_close(&s);
	folder_remove(dir);
}

static void test_write_and_read(void **state)
{
	char *dir = folder_new();
	static const float f[6] = { 1, -2, 3, 4, 5, 6.5f };
	static const int32_t n[2] = { 7, -9 };
	struct tensor_out out[] = { { "logits", DT_F32, 2, { 2, 3 }, f },
		                    { "ids", DT_I32, 1, { 2 }, n },
		                    { "none", DT_F32, 1, { 0 }, f } };
	struct safetensors s;
	char path[8192];

	snprintf(path, sizeof path, "%s", folder_path(dir, "out.safetensors"));
	assert_int_equal(safetensors_write(path, out, 3, NULL), 0);
	assert_int_equal(safetensors_open(&s, path, NULL), 0);
	assert_int_equal((uintptr_t)safetensors_find(&s, "logits")->data % 8, 0);
	assert_memory_equal(safetensors_find(&s, "logits")->data, f, sizeof f);
	assert_memory_equal(safetensors_find(&s, "ids")->data, n, sizeof n);
	assert_int_equal(safetensors_find(&s, "none")->bytes, 0);
	assert_int_equal(s.hole_bytes, 0);
	safetensors_close(&s);
	assert_int_equal(safetensors_write("/nonexistent/x", out, 1, NULL), E_IO);
	folder_remove(dir);
}

/* ---- folders ---- */

#define ONE(name) "{\"" name "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"

static void open_fails(const char *dir, int code, const char *says)
{
	struct store *st;
	struct err err = { 0 };

	assert_int_equal(store_open(&st, dir, &err), code);
	assert_null(st);
	assert_says(&err, says);
}

static void test_folder_errors(void **state)
{
	char *dir = folder_new();

	open_fails("/no/such/folder", E_MISSING, "/no/such/folder");
	open_fails(dir, E_MISSING, "config.json|missing");
	folder_puts(dir, "adapter_config.json", "{}");
	open_fails(dir, E_MISSING, "config.json|an adapter|base model");
	folder_puts(dir, "config.json", "{\"model_type\":");
	open_fails(dir, E_FORMAT, "config.json");
	folder_puts(dir, "config.json", "[1]");
	open_fails(dir, E_FORMAT, "config.json|array");
	folder_puts(dir, "config.json", "{\"model_type\":\"llama\"}");
	open_fails(dir, E_MISSING, "no model*.safetensors");
	folder_puts(dir, "pytorch_model.bin", "");
	open_fails(dir, E_MISSING, "no model*.safetensors|pickles");
	folder_puts(dir, "a.incomplete", "");
	folder_puts(dir, "b.incomplete", "");
	open_fails(dir, E_MISSING, "no model*.safetensors|2 files|hf download");
	open_fails(folder_path(dir, "config.json"), E_ARG, "config.json: is a file of another kind");
	folder_puts(dir, "config.json", LFS);
	open_fails(dir, E_FORMAT, "config.json: a pointer of git-lfs");
	folder_puts(dir, "config.json", "{\"model_type\":\"llama\"}");
	folder_puts(dir, "x.gguf", LFS);
	open_fails(folder_path(dir, "x.gguf"), E_FORMAT, "x.gguf: a pointer of git-lfs|git lfs pull");
	unlink(folder_path(dir, "x.gguf"));

	folder_put_tensors(dir, "model-00001-of-00002.safetensors", ONE("a"), 8);
	open_fails(dir, E_MISSING, "1 of 2 shards");
	folder_put_tensors(dir, "model-00002-of-00002.safetensors", ONE("a"), 8);
	open_fails(dir, E_FORMAT, "tensor a:|model-00001-of-00002.safetensors|model-00002-of-00002.safetensors");

	folder_puts(dir, "model.safetensors.index.json",
	            "{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\","
	            "\"b\":\"model-00003.safetensors\",\"c\":\"model-00003.safetensors\"}}");
	open_fails(dir, E_MISSING, "model-00003.safetensors: missing|2 of its 3 tensors|first b");
	folder_puts(dir, "model.safetensors.index.json", "{\"weight_map\":{\"a\":\"../evil.safetensors\"}}");
	open_fails(dir, E_FORMAT, "tensor a:|../evil.safetensors");
	folder_puts(dir, "model.safetensors.index.json", "{\"weight_map\":[]}");
	open_fails(dir, E_FORMAT, "weight_map");
	folder_puts(
		dir, "model.safetensors.index.json",
		"{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\",\"z\":\"model-00001-of-00002.safetensors\"}}");
	open_fails(dir, E_MISSING, "tensor z:|model-00001-of-00002.safetensors");
	folder_puts(dir, "config.json", "{\"quantization_config\":{\"quant_method\":\"aqlm\"}}");
	open_fails(dir, E_UNSUPPORTED, "config.json|\"aqlm\"");
	folder_puts(dir, "config.json", "{\"quantization\":{\"bits\":4,\"mode\":\"nf4\"}}");
	open_fails(dir, E_UNSUPPORTED, "config.json|nf4");
	folder_puts(dir, "config.json", "{\"quantization_config\":2}");
	open_fails(dir, E_FORMAT, "config.json: quantization_config: is integer, not an object");
	for (int i = 0; i < 4; i++) {
		static const char *const sizes[] = { "[0,128]", "[128]", "\"128x\"", "[128,1e9]" };
		char config[200];

		snprintf(config, sizeof config,
		         "{\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":%s}}", sizes[i]);
		folder_puts(dir, "config.json", config);
		open_fails(dir, E_FORMAT,
		           "config.json: quantization_config.weight_block_size: is not two sizes of 1 to");
	}
	folder_remove(dir);
}

static void test_folder_forms(void **state)
{
	char *dir = folder_new();
	struct store *st;
	struct err err = { 0 };

	folder_puts(dir, "config.json", "{\"model_type\":\"x\",\"text_config\":{\"hidden_size\":3}}");
	folder_put_tensors(dir, "model.safetensors", ONE("a"), 8);
	folder_put_tensors(dir, "consolidated.safetensors", ONE("a"), 8); /* not ours */
	assert_int_equal(store_open(&st, dir, &err), 0);
	assert_int_equal(st->n, 1);
	assert_ptr_equal(st->text, json_get(st->config, "text_config"));
	store_close(st);

	/* mlx-lm's glob: no index, several files */
	folder_put_tensors(dir, "model-more.safetensors", ONE("b"), 8);
	assert_int_equal(store_open(&st, dir, &err), 0);
	assert_int_equal(st->n, 2);
	assert_non_null(store_find(st, "b"));
	store_close(st);

	/* an index counts; what it does not name is not opened */
	folder_puts(dir, "model.safetensors.index.json", "{\"weight_map\":{\"b\":\"model-more.safetensors\"}}");
	assert_int_equal(store_open(&st, dir, &err), 0);
	assert_int_equal(st->n, 1);
	assert_null(store_find(st, "a"));
	store_close(st);
	folder_remove(dir);
}

static void test_hub_cache(void **state)
{
	char *dir = folder_new(), path[8300];
	struct buf at;
	struct err err = { 0 };

	buf_init(&at);
	unsetenv("HF_HUB_CACHE");
	unsetenv("HUGGINGFACE_HUB_CACHE");
	setenv("HF_HOME", dir, 1);
	assert_int_equal(store_locate("Org/Some-Model.5", &at, &err), E_MISSING);
	assert_says(&err, "Org/Some-Model.5|hub/models--Org--Some-Model.5|weft pull Org/Some-Model.5");
	folder_puts(dir, "hub/models--Org--Some-Model.5/refs/main", "0123456789abcdef0123456789abcdef01234567");
	assert_int_equal(store_locate("Org/Some-Model.5", &at, &err), E_MISSING);
	assert_says(&err, "0123456789abcdef0123456789abcdef01234567");
	folder_puts(dir, "hub/models--Org--Some-Model.5/snapshots/0123456789abcdef0123456789abcdef01234567/config.json",
	            "{}");
	assert_int_equal(store_locate("Org/Some-Model.5", &at, &err), 0);
	snprintf(path, sizeof path,
	         "%s/hub/models--Org--Some-Model.5/snapshots/0123456789abcdef0123456789abcdef01234567", dir);
	assert_string_equal(at.p, path);
	folder_puts(dir, "hub/models--Org--Some-Model.5/refs/main", "../../etc");
	assert_int_equal(store_locate("Org/Some-Model.5", &at, &err), E_FORMAT);
	assert_says(&err, "not a commit");
	/* HF_HUB_CACHE goes before HF_HOME */
	snprintf(path, sizeof path, "%s/elsewhere", dir);
	setenv("HF_HUB_CACHE", path, 1);
	assert_int_equal(store_locate("Org/Some-Model.5", &at, &err), E_MISSING);
	assert_says(&err, "elsewhere/models--Org");
	assert_int_equal(store_locate("a/b/c", &at, &err), E_MISSING);
	assert_int_equal(store_locate("../x", &at, &err), E_MISSING);
	unsetenv("HF_HUB_CACHE");
	unsetenv("HF_HOME");
	buf_fini(&at);
	folder_remove(dir);
}

#define NAMED(name, text) "{\"name\":\"" name "\",\"template\":\"" text "\"}"
#define CONFIG(value) "{\"chat_template\":" value "}"
#define MORE "additional_chat_templates/"

/* Where chat templates are looked for, and which counts; as transformers has it, and where that fails, the first one found. */
static void test_templates(void **state)
{
	static const struct {
		const char *file, *config, *json, *more; /* NULL: there is none */
		const char *expected;                    /* the names and texts, the default one first */
	} cases[] = {
		{ NULL, NULL, NULL, NULL, "" },
		{ NULL, CONFIG("null"), NULL, NULL, "" },
		{ NULL, CONFIG("\"S\""), NULL, NULL, "default=S " },
		{ "J", NULL, NULL, NULL, "default=J " },
		{ "", NULL, NULL, NULL, "default= " },
		{ NULL, NULL, CONFIG("\"P\""), NULL, "default=P " },
		{ NULL, CONFIG("\"S\""), CONFIG("\"P\""), NULL, "default=S " },
		{ NULL, CONFIG("[" NAMED("default", "D") "," NAMED("tool_use", "T") "]"), NULL, NULL,
		  "default=D tool_use=T " },
		{ NULL, CONFIG("[" NAMED("rag", "R") "," NAMED("tool_use", "T") "," NAMED("default", "D") "]"), NULL,
		  NULL, "default=D tool_use=T rag=R " },
		/* Two of a name: the last, as in a dict. */
		{ NULL, CONFIG("[" NAMED("tool_use", "T") "," NAMED("default", "D") "," NAMED("tool_use", "U") "]"),
		  NULL, NULL, "default=D tool_use=U " },
		/* None called default: the first. */
		{ NULL, CONFIG("[" NAMED("rag", "R") "," NAMED("tool_use", "T") "]"), NULL, NULL, "rag=R tool_use=T " },
		{ NULL, CONFIG("[{\"template\":\"N\"},{\"name\":\"x\"},5,null,{\"name\":5,\"template\":6}]"), NULL,
		  NULL, "=N " },
		/* Files come before the list, all of it. */
		{ "J", CONFIG("[" NAMED("default", "D") "," NAMED("tool_use", "T") "]"), NULL, NULL, "default=J " },
		{ "J", NULL, NULL, MORE "tool_use.jinja", "default=J tool_use=M " },
		{ NULL, CONFIG("\"S\""), NULL, MORE "tool_use.jinja", "default=S tool_use=M " },
		{ NULL, CONFIG("[" NAMED("default", "D") "," NAMED("rag", "R") "]"), NULL, MORE "tool_use.jinja",
		  "default=D tool_use=M " },
		{ NULL, NULL, CONFIG("\"P\""), MORE "tool_use.jinja", "default=P tool_use=M " },
		{ NULL, NULL, NULL, MORE "tool_use.jinja", "tool_use=M " },
		{ "J", NULL, NULL, MORE "default.jinja", "default=M " },
		/* What is no template there. */
		{ "J", NULL, NULL, MORE "tool_use.txt", "default=J " },
		{ "J", NULL, NULL, MORE ".jinja", "default=J " },
		{ "J", NULL, NULL, MORE "tool_use.jinja/x", "default=J " },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char *dir = folder_new();
		struct store_templates t;
		struct err err = { 0 };
		struct store *st;
		struct buf found;

		folder_puts(dir, "config.json", "{}");
		folder_put_tensors(dir, "model.safetensors", ONE("a"), 8);
		if (cases[i].file)
			folder_puts(dir, "chat_template.jinja", cases[i].file);
		if (cases[i].config)
			folder_puts(dir, "tokenizer_config.json", cases[i].config);
		if (cases[i].json)
			folder_puts(dir, "chat_template.json", cases[i].json);
		if (cases[i].more)
			folder_puts(dir, cases[i].more, "M");
		assert_int_equal(store_open(&st, dir, &err), 0);
		assert_int_equal(store_templates_read(st, &t, &err), 0);
		buf_init(&found);
		buf_puts(&found, "");
		for (size_t k = 0; k < t.n; k++) {
			buf_printf(&found, "%s=%s ", t.v[k].name, t.v[k].text);
			assert_string_equal(store_templates_find(&t, t.v[k].name), t.v[k].text);
		}
		assert_null(store_templates_find(&t, "none"));
		assert_string_equal(found.p, cases[i].expected);
		buf_fini(&found);
		store_templates_end(&t);
		store_close(st);
		folder_remove(dir);
	}
}

/* Templates that cannot be read are told of, not left out. */
static void test_bad_templates(void **state)
{
	char *dir = folder_new();
	struct store_templates t;
	struct err err = { 0 };
	struct store *st;
	struct buf many;

	folder_puts(dir, "config.json", "{}");
	folder_put_tensors(dir, "model.safetensors", ONE("a"), 8);
	folder_puts(dir, "chat_template.json", "{");
	assert_int_equal(store_open(&st, dir, &err), 0);
	assert_int_equal(store_templates_read(st, &t, &err), E_FORMAT);
	assert_says(&err, "chat_template.json");
	store_templates_end(&t);
	assert_int_equal(store_templates_read(st, &t, NULL), E_FORMAT);
	store_templates_end(&t);

	folder_puts(dir, "chat_template.jinja", "J");
	folder_puts(dir, MORE "tool_use.jinja", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
	assert_int_not_equal(store_templates_read(st, &t, &err), 0);
	assert_says(&err, "tool_use.jinja");
	store_templates_end(&t);
	store_close(st);

	buf_init(&many);
	buf_puts(&many, "{\"chat_template\":[");
	for (int i = 0; i < 65; i++)
		buf_printf(&many, "%s{\"name\":\"n%d\",\"template\":\"t\"}", i ? "," : "", i);
	buf_puts(&many, "]}");
	folder_remove(dir);
	dir = folder_new();
	folder_puts(dir, "config.json", "{}");
	folder_put_tensors(dir, "model.safetensors", ONE("a"), 8);
	folder_put(dir, "tokenizer_config.json", many.p, many.n);
	assert_int_equal(store_open(&st, dir, &err), 0);
	assert_int_equal(store_templates_read(st, &t, &err), E_LIMIT);
	assert_says(&err, "tokenizer_config.json|64");
	store_templates_end(&t);
	store_close(st);
	buf_fini(&many);
	folder_remove(dir);
}

static void test_settings(void **state)
{
	char *dir = folder_new();
	struct store_sampling s = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 };
	struct err err = { 0 };
	struct store *st;
	int32_t eos[8];

	folder_puts(dir, "config.json", "{\"eos_token_id\":[5,6],\"text_config\":{\"eos_token_id\":7}}");
	folder_puts(dir, "generation_config.json",
	            "{\"eos_token_id\":[6,8],\"temperature\":0.6,\"top_k\":20,\"do_sample\":true}");
	folder_put_tensors(dir, "model.safetensors", ONE("a"), 8);
	assert_int_equal(store_open(&st, dir, &err), 0);
	assert_int_equal(store_eos(st, eos, 8), 4);
	assert_memory_equal(eos, ((int32_t[]){ 6, 8, 5, 7 }), 16);
	assert_int_equal(store_eos(st, eos, 2), 2);
	assert_int_equal(store_sampling(st, &s, &err), 0);
	assert_true(s.temperature == 0.6 && s.top_k == 20 && s.top_p == 1);
	store_close(st);

	folder_puts(dir, "generation_config.json", "{\"do_sample\":false,\"top_p\":2}");
	assert_int_equal(store_open(&st, dir, &err), 0);
	assert_int_equal(store_sampling(st, &s, &err), E_FORMAT);
	assert_says(&err, "generation_config.json|top_p 2");
	store_close(st);
	folder_remove(dir);
}

/* ---- matrices ---- */

static const char coded_config[] =
	"{\"quantization\":{\"bits\":4,\"group_size\":32,"
	"\"language_model.model.layers.0.q\":{\"bits\":8,\"group_size\":64},\"model.layers.0.p\":false}}";

static const char coded_header[] =
	/* 4 bits, groups of 32: 8 words and 2 scales for 64 inputs */
	"{\"model.layers.0.k.weight\":{\"dtype\":\"U32\",\"shape\":[2,8],\"data_offsets\":[0,64]},"
	"\"model.layers.0.k.scales\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[64,72]},"
	"\"model.layers.0.k.biases\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[72,80]},"
	/* 8 bits, groups of 64: 16 words, 1 scale */
	"\"model.layers.0.q.weight\":{\"dtype\":\"U32\",\"shape\":[2,16],\"data_offsets\":[80,208]},"
	"\"model.layers.0.q.scales\":{\"dtype\":\"F16\",\"shape\":[2,1],\"data_offsets\":[208,212]},"
	"\"model.layers.0.q.biases\":{\"dtype\":\"F16\",\"shape\":[2,1],\"data_offsets\":[212,216]},"
	"\"model.layers.0.p.weight\":{\"dtype\":\"BF16\",\"shape\":[2,64],\"data_offsets\":[216,472]},"
	/* what nothing in the config speaks of: 8 bits where 4 are the default */
	"\"wide.weight\":{\"dtype\":\"U32\",\"shape\":[2,16],\"data_offsets\":[472,600]},"
	"\"wide.scales\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[600,608]},"
	"\"group.weight\":{\"dtype\":\"U32\",\"shape\":[2,8],\"data_offsets\":[608,672]},"
	"\"group.scales\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[672,676]},"
	"\"group.biases\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[676,680]},"
	"\"wide.biases\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[680,688]},"
	"\"ints.weight\":{\"dtype\":\"I8\",\"shape\":[2,64],\"data_offsets\":[688,816]}}";

static void weight_fails(struct store *st, const char *path, int rows, int cols, int code, const char *says)
{
	struct weight w;
	struct err err = { 0 };

	assert_int_equal(store_weight(st, path, rows, cols, &w, &err), code);
	assert_says(&err, says);
}

static void test_weights(void **state)
{
	char *dir = folder_new();
	struct weight w, e[2];
	struct err err = { 0 };
	struct store *st;

	folder_puts(dir, "config.json", coded_config);
	folder_put_tensors(dir, "model.safetensors", coded_header, 816);
	assert_int_equal(store_open(&st, dir, &err), 0);
	assert_int_equal(store_weight(st, "model.layers.0.k", 2, 64, &w, &err), 0);
	assert_string_equal(w.fmt->name, "affine4");
	assert_int_equal(w.group, 32);
	assert_int_equal(store_find(st, "model.layers.0.k.weight")->elements, 128);
	assert_int_equal(store_find(st, "model.layers.0.k.scales")->elements, 0);
	assert_int_equal(store_find(st, "model.layers.0.k.biases")->used, 1);
	assert_int_equal(store_weight(st, "model.layers.0.q", 2, 64, &w, &err), 0);
	assert_string_equal(w.fmt->name, "affine8");
	assert_int_equal(store_weight(st, "model.layers.0.p", 2, 64, &w, &err), 0);
	assert_string_equal(w.fmt->name, "bf16");
	assert_int_equal(store_find(st, "model.layers.0.p.weight")->elements, 128);

	weight_fails(st, "model.layers.0.p", 2, 32, E_FORMAT,
	             "model.safetensors|tensor model.layers.0.p.weight|[2, 64]|[2, 32]");
	weight_fails(st, "model.layers.0.k", 3, 64, E_FORMAT, "tensor model.layers.0.k.weight|[2, 8]|[3, 8]");
	weight_fails(st, "wide", 2, 64, E_FORMAT, "tensor wide.weight|says 4 bits|[2, 16]|holds 8");
	weight_fails(st, "group", 2, 64, E_FORMAT, "tensor group.scales|groups of 32|means 64");
	weight_fails(st, "ints", 2, 64, E_FORMAT, "tensor ints.weight|I8");
	weight_fails(st, "gone", 2, 64, E_MISSING, "tensor gone.weight|missing");
	assert_int_equal(store_stack(st, "model.layers.0.p", 2, 1, 64, e, &err), E_FORMAT);
	assert_says(&err, "[2, 64]|[2, 1, 64]");
	store_ignore(st, "wide.", "a test");
	assert_string_equal(store_find(st, "wide.scales")->ignored, "a test");
	store_close(st);
	folder_remove(dir);
}

/* The config disagrees with what tensors are there. */
static void test_weights_against_config(void **state)
{
	char *dir = folder_new();
	struct err err = { 0 };
	struct store *st;

	folder_puts(dir, "config.json",
	            "{\"quantization\":{\"bits\":4,\"model.layers.0.k\":false,"
	            "\"layers.0.p\":{\"bits\":6,\"group_size\":64}}}");
	folder_put_tensors(dir, "model.safetensors", coded_header, 816);
	assert_int_equal(store_open(&st, dir, &err), 0);
	weight_fails(st, "model.layers.0.k", 2, 64, E_FORMAT, "tensor model.layers.0.k.scales|config.json|not coded");
	weight_fails(st, "model.layers.0.p", 2, 64, E_MISSING, "tensor model.layers.0.p.scales|missing|6 bits");
	store_close(st);

	/* no section at all: the shapes say it */
	folder_puts(dir, "config.json", "{}");
	assert_int_equal(store_open(&st, dir, &err), 0);
	struct weight w;

	assert_int_equal(store_weight(st, "wide", 2, 64, &w, &err), 0);
	assert_string_equal(w.fmt->name, "affine8");
	assert_int_equal(w.group, 32);
	weight_fails(st, "wide", 2, 96, E_FORMAT, "tensor wide.weight|16 words|96");
	store_close(st);
	folder_remove(dir);
}

static void test_floats(void **state)
{
	char *dir = folder_new();
	struct arena a;
	struct err err = { 0 };
	struct store *st;
	const float *f;

	arena_init(&a);
	folder_puts(dir, "config.json", "{}");
	folder_put_tensors(dir, "model.safetensors",
	                   "{\"v\":{\"dtype\":\"BF16\",\"shape\":[2,1,3],\"data_offsets\":[1,13]},"
	                   "\"i\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[13,17]}}",
	                   17);
	assert_int_equal(store_open(&st, dir, &err), 0);
	assert_int_equal(store_floats(st, &a, "v", 6, 1, &f, &err), 0);
	for (int i = 0; i < 6; i++)
		assert_true(f[i] == 1.0f);
	assert_int_equal(store_floats(st, &a, "v", 5, 0, &f, &err), E_FORMAT);
	assert_says(&err, "tensor v|[2, 1, 3]|[5]");
	assert_int_equal(store_floats(st, &a, "i", 1, 0, &f, &err), E_FORMAT);
	assert_says(&err, "tensor i|I32");
	assert_int_equal(store_floats(st, &a, "w", 1, 0, &f, &err), E_MISSING);
	store_close(st);
	arena_fini(&a);
	folder_remove(dir);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_headers),
		cmocka_unit_test(test_short_files),
		cmocka_unit_test(test_find_and_holes),
		cmocka_unit_test(test_write_and_read),
		cmocka_unit_test(test_folder_errors),
		cmocka_unit_test(test_folder_forms),
		cmocka_unit_test(test_hub_cache),
		cmocka_unit_test(test_settings),
		cmocka_unit_test(test_templates),
		cmocka_unit_test(test_other_types),
		cmocka_unit_test(test_bad_templates),
		cmocka_unit_test(test_weights),
		cmocka_unit_test(test_weights_against_config),
		cmocka_unit_test(test_floats),
	};

	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
