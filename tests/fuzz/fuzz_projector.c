/* Any bytes as a projector file beside a GGUF model, whose architecture the first byte chooses: refused with a message, or
 * documents are JSON objects, tensors can be had, and towers for images and sounds are bound or say why they cannot be.
 * Beside a model that does not name it, a projector that is refused leaves a model of text. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "gguf_made.h"
#include "sound/ear.h"
#include "store/store.h"
#include "vision/tower.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const archs[] = { "qwen35", "qwen3vl", "qwen2vl", "gemma3", "gemma4", "lfm2", "llama", "mistral3" };
enum { ARCHS = sizeof archs / sizeof *archs };

/* Keys and the tokens that any of them needs; vectors of 8. */
static void put_text(struct gguf_made *m, const char *arch)
{
	static const struct {
		const char *key;
		uint32_t v;
	} keys[] = {
		{ "block_count", 4 },          { "context_length", 64 },
		{ "embedding_length", 8 },     { "feed_forward_length", 8 },
		{ "attention.head_count", 1 }, { "attention.head_count_kv", 1 },
		{ "attention.key_length", 8 }, { "attention.sliding_window", 16 },
		{ "shortconv.l_cache", 3 },    { "ssm.conv_kernel", 4 },
		{ "ssm.state_size", 4 },       { "ssm.group_count", 1 },
		{ "ssm.time_step_rank", 1 },   { "ssm.inner_size", 4 },
	};
	static const char *const tokens[] = {
		"<|image_pad|>", "<image_soft_token>", "<start_of_image>", "<end_of_image>", "<|image|>", "<image>",
		"[IMG]",         "<|IMAGE|>",          "<|audio|>",        "<|audio>",       "<audio|>"
	};
	static const uint32_t sections[] = { 2, 1, 1, 0 };
	static const int64_t embedding[] = { 8, 11, 0 };
	char key[80];

	gguf_made_init(m);
	gguf_made_str(m, "general.architecture", arch);
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		snprintf(key, sizeof key, "%s.%s", arch, keys[i].key);
		gguf_made_u32(m, key, keys[i].v);
	}
	snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
	gguf_made_f32(m, key, 1e-6f);
	snprintf(key, sizeof key, "%s.rope.dimension_sections", arch);
	gguf_made_u32s(m, key, sections, 4);
	gguf_made_strs(m, "tokenizer.ggml.tokens", tokens, sizeof tokens / sizeof *tokens);
	gguf_made_tensor(m, "token_embd.weight", 0, embedding, NULL, 8 * 11 * 4);
}

/* A file in memory, and its path. */
static int put_file(const void *p, size_t n, char path[64])
{
	int fd = memfd_create("fuzz.gguf", 0);

	if (fd < 0 || write(fd, p, n) != (ssize_t)n)
		abort();
	snprintf(path, 64, "/proc/self/fd/%d", fd);
	return fd;
}

static int text_of(int arch, char path[64])
{
	static int fd[ARCHS];

	if (!fd[arch]) {
		struct gguf_made m;
		struct buf b;

		buf_init(&b);
		put_text(&m, archs[arch]);
		gguf_made_file(&m, &b);
		fd[arch] = put_file(b.p, b.n, path);
		gguf_made_fini(&m);
		buf_fini(&b);
	}
	snprintf(path, 64, "/proc/self/fd/%d", fd[arch]);
	return fd[arch];
}

static void check_store(struct store *st)
{
	struct tower *t = NULL;
	struct ear *ear = NULL;
	struct json *j;
	struct err err = { 0 };
	struct buf b;

	buf_init(&b);
	if (json_kind(json_get(st->config, "vision_config")) != JSON_OBJECT || st->text == st->config ||
	    store_document(st, "preprocessor_config.json", &b, &err) || !(j = json_parse(b.p, b.n, 0, &err)))
		abort();
	json_free(j);
	buf_fini(&b);
	for (size_t i = 0; i < st->n; i++)
		if (store_data(st, st->v[i], NULL) || !st->v[i]->data)
			abort();
	if (tower_open(&t, st, &err) && (!err.msg[0] || strchr(err.msg, '\n')))
		abort();
	tower_close(t);
	if (ear_open(&ear, st, &err) && (!err.msg[0] || strchr(err.msg, '\n')))
		abort();
	ear_close(ear);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = { 0 };
	struct store *st = NULL;
	char text[64], path[64];
	int fd;

	log_set_level(LOG_ERROR);
	if (!size)
		return 0;
	text_of(data[0] % ARCHS, text);
	fd = put_file(data + 1, size - 1, path);
	if (!store_open_seeing(&st, text, path, &err))
		check_store(st);
	else if (!err.msg[0] || strchr(err.msg, '\n'))
		abort();
	store_close(st);
	close(fd);
	return 0;
}
