/* test_indexer.c - a model whose rows see what an indexer chooses: as many positions as there are give the bits of the same
 * model without indexers, fewer do not, and rows that are before the first choice are the same again.
 *
 *     test_indexer FOLDER     tests/golden/dsa_mtp/hf-bf16 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "driver.h"
#include "folder.h"

enum { N = 90, MOST = 9 }; /* MOST: index_topk of the folder */

/* The folder with `from` of its config in `to`. */
static char *changed(const char *folder, const char *from, const char *to)
{
	char *dir = folder_new(), at[4096];
	struct buf config, tensors, out;
	const char *hit;
	struct err err;

	buf_init(&config);
	buf_init(&tensors);
	buf_init(&out);
	snprintf(at, sizeof at, "%s/config.json", folder);
	CHECK(!file_read(at, (size_t)1 << 20, &config, &err), "%s", err.msg);
	snprintf(at, sizeof at, "%s/model.safetensors", folder);
	CHECK(!file_read(at, (size_t)1 << 20, &tensors, &err), "%s", err.msg);
	hit = strstr(config.p, from);
	CHECK(hit, "no %s", from);
	buf_put(&out, config.p, (size_t)(hit - config.p));
	buf_puts(&out, to);
	buf_puts(&out, hit + strlen(from));
	folder_put(dir, "config.json", out.p, out.n);
	folder_put(dir, "model.safetensors", tensors.p, tensors.n);
	buf_fini(&config);
	buf_fini(&tensors);
	buf_fini(&out);
	return dir;
}

static float *logits_of(const char *folder, enum arith arith, size_t *row)
{
	const struct driver_opts o = {
		.arith = arith, .threads = 2, .level = cpu_detect(), .slots = 1, .ctx_max = 128, .step_rows = 64
	};
	int32_t tok[N];
	struct driver d;
	struct err err;
	float *out;

	CHECK(!driver_open(&d, folder, &o, &err), "%s", err.msg);
	for (int i = 0; i < N; i++)
		tok[i] = (i * i + 7 * i) % d.vocab;
	*row = (size_t)d.vocab * sizeof(float);
	out = xmalloc(N * *row);
	driver_feed(&d, 0, 0, tok, N, NULL, 0, out);
	driver_close(&d);
	return out;
}

int main(int argc, char **argv)
{
	char *all, *none;

	CHECK(argc == 2, "a folder");
	log_set_level(LOG_ERROR);
	all = changed(argv[1], "\"index_topk\": 9", "\"index_topk\": 90");
	none = changed(argv[1], "\"glm_moe_dsa\"", "\"deepseek_v3\"");
	for (enum arith arith = ARITH_F32; arith <= ARITH_FAST; arith++) {
		size_t row;
		float *few = logits_of(argv[1], arith, &row), *full = logits_of(all, arith, &row),
		      *plain = logits_of(none, arith, &row);

		CHECK(!memcmp(full, plain, N * row), "all chosen is not what it is without indexers");
		CHECK(!memcmp(few, plain, MOST * row), "rows of no choice are not what they are without indexers");
		CHECK(memcmp((char *)few + MOST * row, (char *)plain + MOST * row, row), "a choice changes nothing");
		free(few);
		free(full);
		free(plain);
	}
	folder_remove(all);
	folder_remove(none);
	return 0;
}
