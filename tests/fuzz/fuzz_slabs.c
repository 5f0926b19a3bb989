/* Changes to a file of packed experts: refused with a line that names the file, or each expert lies where the layout has it, in
 * a file of the right length.  The input is a byte of flags, two bytes of where the file is cut (0: nowhere), then
 * changes: two bytes of a place, one of a length, that many bytes.  Flag 1: the digest of the table is made right again; flag 2:
 * the file is a page longer. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/slab_file.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { EXPERTS = 3, HIDDEN = 16, INNER = 8, CHECK_AT = 48, TABLE_AT = 56 };

static struct {
	uint16_t rows[EXPERTS * INNER * HIDDEN];
	struct weight gate[EXPERTS], up[EXPERTS], down[EXPERTS];
	struct moe moe;
	struct moe *mix[1];
	struct slab_list list;
	struct stream_opts how;
	char *dir, *path;
	uint8_t *file;
	size_t n;
	struct slab_entry entry[EXPERTS];
} made;

static bool never(const void *arg, const struct weight *w)
{
	return false;
}

static void make_stack(struct weight *w, int rows, int cols)
{
	struct err err;

	for (int e = 0; e < EXPERTS; e++)
		if (weight_plain(&w[e], "expert", DT_BF16, rows, cols, made.rows + e * rows * cols,
		                 2 * (size_t)(rows * cols), &err))
			abort();
}

static int open_file(struct slab_file *f, struct err *err)
{
	const struct digest key = { .b = { 7 } };

	return slab_file_open(f, made.dir, &key, &made.list, &made.how, err);
}

static void end(void)
{
	folder_remove(made.dir);
	free(made.path);
	free(made.file);
}

/* The right file, made once. */
static void begin(void)
{
	struct slab_file f;
	struct err err;
	struct buf bytes;

	for (int i = 0; i < EXPERTS * INNER * HIDDEN; i++)
		made.rows[i] = (uint16_t)(0x3f00 + i % 100);
	make_stack(made.gate, INNER, HIDDEN);
	make_stack(made.up, INNER, HIDDEN);
	make_stack(made.down, HIDDEN, INNER);
	made.moe = (struct moe){
		.experts = EXPERTS, .top_k = 1, .inner = INNER, .gate = made.gate, .up = made.up, .down = made.down
	};
	made.mix[0] = &made.moe;
	made.list = (struct slab_list){ .mix = made.mix, .n_mix = 1, .packs = never };
	made.dir = folder_new();
	if (open_file(&f, &err) || f.n != EXPERTS)
		abort();
	memcpy(made.entry, f.entry, sizeof made.entry);
	made.path = xstrdup(f.path);
	buf_init(&bytes);
	if (file_read(f.path, SIZE_MAX, &bytes, &err))
		abort();
	made.n = bytes.n;
	made.file = xmalloc(made.n);
	memcpy(made.file, bytes.p, made.n);
	buf_fini(&bytes);
	slab_file_close(&f);
	atexit(end);
}

static void change(uint8_t *file, const uint8_t *data, size_t size)
{
	while (size >= 3) {
		size_t at = data[0] | (size_t)data[1] << 8, n = data[2];

		data += 3;
		size -= 3;
		n = n < size ? n : size;
		if (at + n <= made.n)
			memcpy(file + at, data, n);
		data += n;
		size -= n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slab_file f;
	struct err err = { 0 };
	uint8_t *file;
	size_t n, cut;
	uint64_t check;
	int rc;

	if (size < 3)
		return 0;
	if (!made.file)
		begin();
	file = xmalloc(made.n + READ_ALIGN);
	memcpy(file, made.file, made.n);
	memset(file + made.n, 0, READ_ALIGN);
	change(file, data + 3, size - 3);
	if (data[0] & 1) {
		check = check64(file + TABLE_AT, sizeof made.entry);
		memcpy(file + CHECK_AT, &check, sizeof check);
	}
	cut = data[1] | (size_t)data[2] << 8;
	n = cut && cut < made.n ? cut : made.n + (data[0] & 2 ? READ_ALIGN : 0);
	folder_put(made.dir, strrchr(made.path, '/') + 1, file, n);
	free(file);
	rc = open_file(&f, &err);
	if (rc && (!strstr(err.msg, made.path) || strchr(err.msg, '\n')))
		abort();
	if (rc)
		return 0;
	for (int i = 0; i < EXPERTS; i++)
		if (f.entry[i].at != made.entry[i].at || f.entry[i].bytes != made.entry[i].bytes)
			abort();
	if (f.n != EXPERTS || n != made.n)
		abort();
	slab_file_close(&f);
	return 0;
}
