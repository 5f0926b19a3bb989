/* test_assistant.c - Gemma 4's assistant against a reference: the hidden rows that it is given, then the logits, hidden rows
 * and guesses of the first rounds, over the model's own caches; and that a guess leaves those as they were.
 *
 *     test_assistant [HEAD NAME]: skips where the reference vectors are not there; HEAD: another file of the one NAME there */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../check.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "driver.h"
#include "rounds.h"
#include "store/safetensors.h"

enum { ROWS = 64, GUESSES = 8 };

/* A row of token tok that goes on from `given`, after n tokens that the model's caches hold. */
static void step(struct driver *target, struct driver *head, int n, int32_t tok, const float *given, float *hidden,
                 float *logits)
{
	const struct span lay = { .pos = n };
	const int32_t rope[3] = { n, n, n };
	struct item it = { .pos = n - 1, .n = 1, .tok = &tok, .logits = logits, .keep = 1 };

	head->pass.given = given;
	head->pass.hidden = hidden;
	head->pass.rope_pos = rope;
	caches_begin(&target->m->caches, &lay, 1);
	driver_step(head, &it, 1);
	caches_close(&head->m->caches, 0);
}

static void test(const char *root, const char *name, const char *file)
{
	struct driver_opts o = {
		.arith = ARITH_F32, .threads = 2, .level = cpu_detect(), .slots = 1, .ctx_max = ROWS, .step_rows = ROWS
	};
	struct driver target, head = { 0 };
	struct rounds g;
	struct store *st;
	struct model *m;
	char path[4200];
	struct err err;
	float *hidden, *own, *logits, *again;
	size_t wide, vocab;
	int at = 0;

	printf("%s\n", name);
	snprintf(path, sizeof path, "%s/gemma4_e2b/hf-bf16", root);
	CHECK(!driver_open(&target, path, &o, &err), "%s", err.msg);
	snprintf(path, sizeof path, "%s/_draft/%s", root, name);
	rounds_open(&g, path);
	CHECK(!store_open(&st, file ? file : path, &err) && model_only_head(st), "%s", err.msg);
	CHECK(model_bind(&m, st, &err) == E_UNSUPPORTED, "a head is no model");
	CHECK(!model_bind_head(&m, target.m, st, &err) && !driver_attach(&head, m, &o, &err), "%s", err.msg);
	wide = (size_t)m->shape.carry;
	vocab = (size_t)m->shape.vocab;
	hidden = xcalloc(ROWS * wide, sizeof *hidden);
	own = xcalloc(GUESSES * wide, sizeof *own);
	logits = xcalloc(GUESSES * vocab, sizeof *logits);
	again = xcalloc(2 * vocab, sizeof *again);
	for (int k = 0; k < (int)json_len(json_get(g.j, "rounds")); k++) {
		const struct json *round = json_at(json_get(g.j, "rounds"), (size_t)k);
		int32_t want[GUESSES], got[GUESSES];
		int most = rounds_ids(json_get(round, "draft_ids"), want), n;
		int64_t bonus;

		CHECK(!json_to_int(json_get(round, "bonus_position"), &bonus), "bonus_position");
		n = (int)bonus;
		target.pass.hidden = hidden + (size_t)at * wide;
		driver_feed(&target, 0, at, g.tok + at, n - at, NULL, 0, NULL);
		at = n;
		rounds_compare(&g, k, "hidden_fed", hidden + (size_t)(n - 1) * wide, 1, (int)wide, true);
		for (int i = 0; i < most; i++) {
			step(&target, &head, n, i ? got[i - 1] : g.tok[n],
			     i ? own + (size_t)(i - 1) * wide : hidden + (size_t)(n - 1) * wide, own + (size_t)i * wide,
			     logits + (size_t)i * vocab);
			got[i] = rounds_best(logits + (size_t)i * vocab, (int)vocab);
		}
		rounds_compare(&g, k, "draft_hidden", own, most, (int)wide, true);
		rounds_compare(&g, k, "draft_logits", logits, most, (int)vocab, true);
		CHECK(!memcmp(got, want, (size_t)most * sizeof *got), "round %d guesses otherwise", k);
	}
	/* The model goes on as if nobody had guessed. */
	driver_feed(&target, 0, at, g.tok + at, 1, NULL, 0, again);
	caches_close(&target.m->caches, 0);
	target.pass.hidden = hidden;
	driver_feed(&target, 0, 0, g.tok, at, NULL, 0, NULL);
	driver_feed(&target, 0, at, g.tok + at, 1, NULL, 0, again + vocab);
	CHECK(!memcmp(again, again + vocab, vocab * sizeof *again), "the model's logits after guesses");
	free(hidden);
	free(own);
	free(logits);
	free(again);
	driver_close(&head);
	driver_close(&target);
	store_close(st);
	rounds_close(&g);
}

/* A window that is not the model's would reach rows that are gone. */
static void test_window(const char *root)
{
	static const char key[] = "\"sliding_window\": 24";
	struct driver_opts o = {
		.arith = ARITH_F32, .threads = 1, .level = cpu_detect(), .slots = 1, .ctx_max = ROWS, .step_rows = ROWS
	};
	char dir[] = "/tmp/weft-assistant-XXXXXX", path[4300], from[4300], *at;
	struct driver target;
	struct store *st;
	struct model *m;
	struct buf b;
	struct err err;
	FILE *f;

	CHECK(mkdtemp(dir), "no folder");
	buf_init(&b);
	snprintf(from, sizeof from, "%s/_draft/gemma4_assistant/config.json", root);
	CHECK(!file_read(from, 1 << 20, &b, &err), "%s", err.msg);
	buf_putc(&b, 0);
	at = strstr(b.p, key);
	CHECK(at, "no %s", key);
	memcpy(at + sizeof key - 3, "99", 2);
	snprintf(path, sizeof path, "%s/config.json", dir);
	f = fopen(path, "w");
	CHECK(f && fputs(b.p, f) >= 0 && !fclose(f), "%s", path);
	buf_fini(&b);
	snprintf(from, sizeof from, "%s/_draft/gemma4_assistant/model.safetensors", root);
	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	CHECK(!symlink(from, path), "%s", path);
	snprintf(from, sizeof from, "%s/gemma4_e2b/hf-bf16", root);
	CHECK(!driver_open(&target, from, &o, &err) && !store_open(&st, dir, &err), "%s", err.msg);
	CHECK(model_bind_head(&m, target.m, st, &err) == E_UNSUPPORTED && strstr(err.msg, "window of 99"), "%s",
	      err.msg);
	store_close(st);
	driver_close(&target);
	unlink(path);
	snprintf(path, sizeof path, "%s/config.json", dir);
	unlink(path);
	rmdir(dir);
}

int main(int argc, char **argv)
{
	const char *shared = shared_folder();
	char root[4096];

	log_set_level(LOG_WARN);
	if (!shared)
		return 77; /* skipped; shared_folder said why */
	snprintf(root, sizeof root, "%s/golden", shared);
	if (argc == 3) {
		test(root, argv[2], argv[1]);
		return 0;
	}
	test(root, "gemma4_assistant", NULL);
	test(root, "gemma4_assistant_ordered", NULL);
	test_window(root);
	return 0;
}
