/* Any bytes as an adapter beside a model of the tree, which the first byte chooses, as it does the form: a GGUF file, or a
 * folder of PEFT, whose config has the length that the next two bytes say and whose tensors are the rest.  Refused with a
 * message of one line, or pairs that fit the model's matrices and are made into an adapter, or refused then. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "held.h"
#include "model/adapter.h"
#include "model/model.h"
#include "store/adapter_file.h"
#include "store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const bases[] = { "_gguf/models/llama2/q4_0.gguf", "_gguf/models/qwen3_5/q4_0.gguf", "phi3/hf-bf16",
	                             "qwen3_5/mlx-q4" };
enum { BASES = sizeof bases / sizeof *bases };

static struct model *model[BASES];
static char folder[] = "/tmp/weft-fuzz-XXXXXX";

static void remove_all(void)
{
	int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	unlinkat(dir, "adapter_config.json", 0);
	unlinkat(dir, "adapter_model.safetensors", 0);
	close(dir);
	rmdir(folder);
	for (int i = 0; i < BASES; i++)
		if (model[i]) {
			struct store *st = model[i]->st;
			struct backend *be = model[i]->be;

			model_close(model[i]);
			be->ops->close(be);
			store_close(st);
		}
}

static void make(int i)
{
	static bool made;
	const struct model_opts opts = { .arith = ARITH_FAST, .slots = 1, .ctx_max = 16, .step_rows = 16 };
	struct store *st;
	char path[512];
	struct err err;

	if (!made && !mkdtemp(folder))
		abort();
	if (!made)
		atexit(remove_all);
	made = true;
	if (model[i])
		return;
	snprintf(path, sizeof path, WEFT_TREE_GOLDEN "/%s", bases[i]);
	if (store_open(&st, path, &err) || model_open(&model[i], st, backend_cpu_open(1, cpu_detect()), &opts, &err)) {
		fprintf(stderr, "%s\n", err.msg);
		abort();
	}
}

static void put(const char *name, const uint8_t *p, size_t n)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	f = fopen(path, "we");
	if (!f || fwrite(p, 1, n, f) != n || fclose(f))
		abort();
}

static void check_message(const struct err *err)
{
	if (!err->msg[0] || strchr(err->msg, '\n'))
		abort();
}

static void try_adapter(struct model *m, const char *path)
{
	struct adapter_file f;
	struct adapter *a;
	struct err err = { 0 };

	if (adapter_file_open(&f, m->st, path, &err)) {
		check_message(&err);
	} else {
		if (f.n < 1)
			abort();
		for (int i = 0; i < f.n; i++)
			if (f.v[i].rank < 1 || f.v[i].rows < 1 || f.v[i].cols < 1 || !store_matrix(m->st, f.v[i].path))
				abort();
		if (adapter_make(&a, m, "fuzz", path, f.v, f.n, &err))
			check_message(&err);
		adapter_close(a);
	}
	adapter_file_close(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64];
	size_t n;
	int base, fd;

	log_set_level(LOG_ERROR);
	if (size < 3)
		return 0;
	base = data[0] / 2 % BASES;
	make(base);
	if (data[0] % 2) {
		fd = held_file(data + 1, size - 1, path);
		try_adapter(model[base], path);
		close(fd);
		return 0;
	}
	n = data[1] + 256u * data[2];
	n = n < size - 3 ? n : size - 3;
	put("adapter_config.json", data + 3, n);
	put("adapter_model.safetensors", data + 3 + n, size - 3 - n);
	try_adapter(model[base], folder);
	return 0;
}
