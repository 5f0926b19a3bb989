/* Any bytes as the config.json of a tiny model folder, which the first byte chooses, beside that folder's own tensors: refused
 * with one line that says why, or a model (a draft head, a tower, an encoder with its head) whose tensors have the shapes that
 * the config asks for.  A model that writes is run (trial.h), and so are the steps of an encoder's head. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "embed/embedder.h"
#include "folder.h"
#include "model/model.h"
#include "mutate.h"
#include "store/store.h"
#include "trial.h"
#include "vision/tower.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum what { MODEL, HEAD, TOWER, ENCODER };

static const struct seed {
	const char *folder;
	enum what what;
} seeds[] = {
	{ "qwen3_5/mlx-q4", MODEL },
	{ "qwen3_5_moe/mlx-q4", MODEL },
	{ "qwen2/mlx-q4", MODEL },
	{ "olmo3/mlx-q4", MODEL },
	{ "glm4_moe/mlx-q4", MODEL },
	{ "gemma4_31b/mlx-q4", MODEL },
	{ "granite/hf-bf16", MODEL },
	{ "smollm3/hf-bf16", MODEL },
	{ "phi3/hf-bf16", MODEL },
	{ "qwen2_moe/hf-bf16", MODEL },
	{ "olmo2/awq", MODEL },
	{ "olmo2/gptq-order", MODEL },
	{ "olmo2/ct-int4-zeros", MODEL },
	{ "olmo2/fp8-block", MODEL },
	{ "olmo2/ct-fp8", MODEL },
	{ "glm4/hf-bf16", MODEL },
	{ "gemma2/hf-bf16", MODEL },
	{ "olmo_hybrid/hf-bf16", MODEL },
	{ "mamba2_grouped/hf-bf16", MODEL },
	{ "bailing_v3_lora/hf-bf16", MODEL },
	{ "deepseek_mtp/hf-bf16", MODEL },
	{ "glm4_moe_mtp/hf-bf16", MODEL },
	{ "bailing_v3_mtp/hf-bf16", MODEL },
	{ "nemotron_h_mtp/hf-bf16", MODEL },
	{ "_draft/dflash_sliding", HEAD },
	{ "_draft/dspark", HEAD },
	{ "_draft/eagle3_speculators", HEAD },
	{ "pixtral/hf-bf16", TOWER },
	{ "qwen2_vl/hf-bf16", TOWER },
	{ "_embed/bert/hf-bf16", ENCODER },
	{ "_embed/bert_cross/hf-bf16", ENCODER },
	{ "_embed/bge_reranker/hf-bf16", ENCODER },
	{ "_embed/modernbert/hf-bf16", ENCODER },
	{ "dsa_mtp/hf-bf16", MODEL },
	{ "qwen4_mtp/hf-bf16", MODEL },
	{ "_draft/dflash2", HEAD },
	{ "glm5_mtp/hf-bf16", MODEL },
	{ "deepseek4/hf-bf16", MODEL },
};
enum { N_SEED = sizeof seeds / sizeof *seeds };

/* One of all families, whose config is then read as far as the tensors let it. */
const char *mutate_choice(unsigned i, const char **key)
{
	static char value[64];
	unsigned n = 0;

	for (int pass = 0; pass < 2; pass++) {
		if (pass)
			i %= n;
		n = 0;
		for (int k = 0; models[k]; k++)
			for (int a = 0; models[k]->arch[a]; a++, n++)
				if (pass && n == i)
					snprintf(value, sizeof value, "\"%s\"", models[k]->arch[a]);
	}
	*key = "model_type";
	return value;
}

static char *folder[N_SEED]; /* with everything but the config */

static void end(void)
{
	for (int i = 0; i < N_SEED; i++)
		if (folder[i])
			folder_remove(folder[i]);
}

static char *make_folder(const struct seed *s)
{
	static const char *const files[] = { "model.safetensors", "model-markov.safetensors",
		                             "model.safetensors.index.json", "preprocessor_config.json" };
	char *dir = folder_new(), from[4096];

	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		snprintf(from, sizeof from, "%s/%s/%s", WEFT_TREE_GOLDEN, s->folder, files[i]);
		if (!access(from, R_OK) && symlink(from, folder_path(dir, files[i])))
			abort();
	}
	return dir;
}

static void try_head(const char *dir)
{
	struct store *target_st = NULL, *st = NULL;
	struct model *target = NULL, *head = NULL;
	struct err err = { 0 };
	int rc;

	if (store_open(&target_st, WEFT_TREE_GOLDEN "/qwen3_5/mlx-q4", &err) || model_bind(&target, target_st, &err))
		abort();
	rc = store_open(&st, dir, &err);
	if (!rc)
		rc = model_bind_head(&head, target, st, &err);
	trial_refusal(rc, &err);
	model_close(head);
	store_close(st);
	model_close(target);
	store_close(target_st);
}

static void try_tower(const char *dir)
{
	struct store *st = NULL;
	struct tower *t = NULL;
	struct err err = { 0 };
	int rc = store_open(&st, dir, &err);

	if (!rc)
		rc = tower_open(&t, st, &err);
	trial_refusal(rc, &err);
	tower_close(t);
	store_close(st);
}

/* Runs the steps behind the model on a pooled row. */
static void run_steps(const struct embedder *e)
{
	float *in = xcalloc((size_t)e->in, sizeof *in), *out = xcalloc((size_t)e->out, sizeof *out);
	char scratch[32];

	embedder_run(e, in, out);
	embedder_scores(e, out, false);
	embedder_label(e, e->out - 1, scratch);
	free(in);
	free(out);
}

static void try_encoder(const char *dir)
{
	struct store *st = NULL;
	struct model *m = NULL;
	struct embedder *e = NULL;
	struct err err = { 0 };
	int rc = store_open(&st, dir, &err);

	if (!rc)
		rc = model_bind(&m, st, &err);
	if (!rc)
		rc = embedder_open(&e, m, st, &err);
	trial_refusal(rc, &err);
	if (!rc)
		run_steps(e);
	embedder_close(e);
	model_close(m);
	store_close(st);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool begun;
	int i;

	if (!size)
		return 0;
	if (!begun) {
		atexit(end);
		log_set_level((enum log_level) - 1);
		begun = true;
	}
	i = data[0] % N_SEED;
	if (!folder[i])
		folder[i] = make_folder(&seeds[i]);
	folder_put(folder[i], "config.json", data + 1, size - 1);
	if (seeds[i].what == MODEL)
		trial_model(folder[i]);
	else if (seeds[i].what == HEAD)
		try_head(folder[i]);
	else if (seeds[i].what == TOWER)
		try_tower(folder[i]);
	else
		try_encoder(folder[i]);
	return 0;
}
