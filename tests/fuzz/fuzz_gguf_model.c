/* Any bytes as the header of a GGUF model behind which a pattern stands in the place of tensors: refused in a line, or a model that
 * is bound and run (trial.h), or a draft head that is bound. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "model/model.h"
#include "store/store.h"
#include "trial.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TENSORS = 5 << 20 };

/* Finite as numbers of any type, and not all alike. */
static void put_pattern(uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(i % 4 == 3 ? 0x3c : i % 4 == 1 ? 0x2c : i / 4 * 37);
}

static void put(int fd, const uint8_t *p, size_t n, size_t at)
{
	if (pwrite(fd, p, n, (off_t)at) != (ssize_t)n)
		abort();
}

static void try_head(const char *path)
{
	static struct store *target_st;
	static struct model *target;
	struct store *st = NULL;
	struct model *head = NULL;
	struct err err = { 0 };
	int rc;

	if (!target &&
	    (store_open(&target_st, WEFT_TREE_GOLDEN "/qwen3_5/mlx-q4", &err) || model_bind(&target, target_st, &err)))
		abort();
	rc = store_open(&st, path, &err);
	if (!rc && model_only_head(st))
		rc = model_bind_head(&head, target, st, &err);
	trial_refusal(rc, &err);
	model_close(head);
	store_close(st);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t tensors[TENSORS];
	static int fd = -1;
	char path[64];

	if (size > TENSORS / 2)
		return 0;
	if (fd < 0) {
		log_set_level((enum log_level) - 1);
		put_pattern(tensors, TENSORS);
		if ((fd = memfd_create("fuzz.gguf", MFD_CLOEXEC)) < 0)
			abort();
		put(fd, tensors, TENSORS, 0);
	}
	put(fd, data, size, 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	trial_model(path);
	try_head(path);
	put(fd, tensors, size, 0);
	return 0;
}
