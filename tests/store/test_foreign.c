/* Matrices of other quantisers: what is decoded has the bits of a naive reading, which stands beside the model as
 * dequantised.PATH; and what is broken says what and where.  Arguments: folders. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "store/safetensors.h"
#include "store/store.h"

static const char prefix[] = "dequantised.";

static int compare(struct store *st, const struct tensor *t)
{
	int rows = (int)t->dim[0], cols = (int)t->dim[1], bad = 0;
	float *row = xmalloc((size_t)cols * sizeof *row);
	struct weight w, again;
	struct err err;

	if (store_weight(st, t->name + strlen(prefix), rows, cols, &w, &err) ||
	    store_weight(st, t->name + strlen(prefix), rows, cols, &again, &err)) {
		printf("FAIL %s: %s\n", st->dir, err.msg);
		free(row);
		return 1;
	}
	for (int o = 0; o < rows; o++) {
		w.fmt->decode(row, &w, o);
		bad += memcmp(row, t->data + (size_t)o * (size_t)cols * sizeof *row, (size_t)cols * sizeof *row) != 0;
	}
	bad += w.data != again.data || w.scales != again.scales;
	printf("%s %s: %s as %s in groups of %d: %d of %d rows differ\n", bad ? "FAIL" : "ok  ", st->dir, t->name,
	       w.fmt->name, w.group, bad, rows);
	free(row);
	return bad > 0;
}

static int check(const char *folder)
{
	struct safetensors golden;
	struct store *st;
	struct buf path;
	struct err err;
	int bad = 0, n = 0;

	buf_init(&path);
	buf_printf(&path, "%s/golden.safetensors", folder);
	if (store_open(&st, folder, &err) || safetensors_open(&golden, path.p, &err)) {
		printf("FAIL %s\n", err.msg);
		return 1;
	}
	for (size_t i = 0; i < golden.n; i++)
		if (!strncmp(golden.v[i].name, prefix, strlen(prefix))) {
			bad += compare(st, &golden.v[i]);
			n++;
		}
	if (!n)
		printf("FAIL %s: no %sPATH in it\n", path.p, prefix);
	safetensors_close(&golden);
	store_close(st);
	buf_fini(&path);
	return bad + !n;
}

/* Asks for the first matrix of the golden file with another number of rows and of inputs: an error, and not the process's
 * end. */
static int refuses(const char *folder)
{
	static const int shapes[][2] = { { 1, 1 }, { 32, 4096 }, { 4096, 32 }, { 33, 33 }, { 1 << 30, 1 << 30 } };
	struct store *st;
	struct err err;
	struct weight w;
	int bad = 0;

	if (store_open(&st, folder, &err))
		return 1;
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		if (!store_weight(st, "model.layers.0.mlp.down_proj", shapes[i][0], shapes[i][1], &w, &err)) {
			printf("FAIL %s: down_proj is read as %d x %d\n", folder, shapes[i][0], shapes[i][1]);
			bad++;
		}
	store_close(st);
	return bad;
}

int main(int argc, char **argv)
{
	int bad = argc < 2;

	log_set_level(LOG_ERROR);
	for (int i = 1; i < argc; i++)
		bad += check(argv[i]) + refuses(argv[i]);
	return bad > 0;
}
