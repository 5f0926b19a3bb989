/* test_export.c - files written row by row: cut off and gone on with, they have the bytes of one go; importance matrices in
 * both forms; which type a tensor of a mix gets. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "export/imatrix.h"
#include "export/mix.h"
#include "export/write_rows.h"
#include "quant/encode/encode.h"

static int failures;

static void check(bool ok, const char *what)
{
	if (ok)
		return;
	printf("FAIL %s\n", what);
	failures++;
}

/* ---- going on ---- */

enum { ROWS = 5, COLS = 64, ITEMS = 6, HEAD = 32 };
static int encoded; /* rows, by one thread */

static void encode(const struct item *it, uint8_t *const out[ITEM_STREAMS], const float *x)
{
	encoded++;
	gguf_encode(out[0], it->how, x, it->w.cols, it->importance);
}

static struct write_job job_of(struct item *item, const float *x, const char *path, const char *words,
                               struct pool *pool)
{
	static const uint8_t head[HEAD] = "head", copied[40] = "copied";
	const struct gguf_type *type = gguf_type_named("Q8_0");
	size_t row = COLS / 32 * 34, at = HEAD;
	struct err err;

	for (int i = 0; i < ITEMS; i++) {
		item[i] = (struct item){ .name = "item", .at[0] = at };
		if (i == 1) {
			item[i].bytes = copied;
			item[i].n = sizeof copied;
			at += sizeof copied;
			continue;
		}
		check(!weight_plain(&item[i].w, "item", DT_F32, ROWS, COLS, x + (size_t)i * ROWS * COLS,
		                    ROWS * COLS * sizeof *x, &err),
		      "a matrix");
		item[i].encode = encode;
		item[i].how = type;
		item[i].row_bytes[0] = row;
		item[i].stack = 1;
		at += ROWS * row;
	}
	return (struct write_job){ .path = path,
		                   .words = words,
		                   .head = head,
		                   .head_bytes = HEAD,
		                   .bytes = at,
		                   .item = item,
		                   .n = ITEMS,
		                   .pool = pool,
		                   .safe_bytes = 1 };
}

static void read_back(struct buf *to, const char *path)
{
	struct err err;

	buf_init(to);
	check(!file_read(path, 1 << 20, to, &err), path);
}

static void check_resume(const char *dir)
{
	static float x[ITEMS * ROWS * COLS];
	struct pool *pool = pool_new(1);
	struct item item[ITEMS];
	struct buf path, other, whole, again;
	struct write_job job;
	struct err err;
	float *bad = &x[4 * ROWS * COLS + 7];

	buf_init(&path);
	buf_init(&other);
	buf_printf(&path, "%s/whole", dir);
	buf_printf(&other, "%s/again", dir);
	for (int i = 0; i < ITEMS * ROWS * COLS; i++)
		x[i] = sinf((float)i);
	job = job_of(item, x, path.p, "one", pool);
	check(!write_rows(&job, &err), "one go");
	check(encoded == (ITEMS - 1) * ROWS, "every row once");
	read_back(&whole, path.p);
	check(whole.n == job.bytes && !memcmp(whole.p, "head", 4), "its length and head");

	job = job_of(item, x, other.p, "two", pool);
	*bad = NAN;
	check(write_rows(&job, &err) == E_FORMAT, "what is no number is refused");
	check(access(other.p, F_OK) != 0, "nothing half done has the name");
	*bad = sinf((float)(bad - x));
	encoded = 0;
	check(!write_rows(&job, &err), "gone on");
	check(encoded == 2 * ROWS, "with what was not there");
	read_back(&again, other.p);
	check(again.n == whole.n && !memcmp(again.p, whole.p, whole.n), "to the same bytes");
	buf_fini(&again);

	*bad = INFINITY;
	check(write_rows(&job, &err) == E_FORMAT, "what has no end is refused");
	*bad = sinf((float)(bad - x));
	job.words = "three";
	encoded = 0;
	check(!write_rows(&job, &err) && encoded == (ITEMS - 1) * ROWS, "another job begins anew");
	buf_fini(&whole);
	buf_fini(&path);
	buf_fini(&other);
	pool_free(pool);
}

/* ---- importance ---- */

static bool check_forms(void)
{
	const char *root = getenv("WEFT_SHARED");
	char a[1024], b[1024];
	struct imatrix x, y;
	struct err err;

	snprintf(a, sizeof a, "%s/golden/_gguf/imatrix/imatrix.gguf", root ? root : WEFT_SHARED_DEFAULT);
	snprintf(b, sizeof b, "%s/golden/_gguf/imatrix/imatrix.dat", root ? root : WEFT_SHARED_DEFAULT);
	if (!file_exists(a)) {
		printf("skipped: %s missing\n", a);
		return false;
	}
	check(!imatrix_read(&x, a, &err), "the form of GGUF");
	check(!imatrix_read(&y, b, &err), "the older form");
	check(x.n > 0 && x.n == y.n, "as many weights in both");
	for (int i = 0; i < x.n && i < y.n; i++) {
		const struct importance *p = &x.v[i], *q = imatrix_find(&y, p->name, p->cols);

		check(q && q->cols == p->cols, p->name);
		for (int k = 0; q && k < p->cols; k++)
			if (!(fabsf(p->v[k] - q->v[k]) <= 1e-4f * fabsf(p->v[k]))) {
				printf("FAIL %s: input %d is %g and %g\n", p->name, k, (double)p->v[k],
				       (double)q->v[k]);
				failures++;
				break;
			}
	}
	imatrix_fini(&x);
	imatrix_fini(&y);
	return true;
}

static void put_file(const char *path, const void *p, size_t n)
{
	FILE *f = fopen(path, "w");

	check(f && fwrite(p, 1, n, f) == n && !fclose(f), path);
}

/* Bytes of the older form that promise more than there is, or negative numbers. */
static void check_hostile(const char *dir)
{
	static const int32_t files[][6] = {
		{ -1 },
		{ 1, 1 << 20 },
		{ 1, 0, 1, -5 },
		{ 1, 0, 1, 1 << 30 },
		{ 0x7fffffff },
		{ 1, 0, 1, 1, (int32_t)0xbf800000 },
		{ 1, 0, 1, 1, 0x7fc00000 },
	};
	struct buf path;
	struct imatrix m;
	struct err err;

	buf_init(&path);
	buf_printf(&path, "%s/imatrix", dir);
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		put_file(path.p, files[i], sizeof files[i]);
		check(imatrix_read(&m, path.p, &err) == E_FORMAT && !m.n, "a broken importance matrix is refused");
	}
	put_file(path.p, "", 0);
	check(imatrix_read(&m, path.p, &err) == E_FORMAT, "and an empty one");
	buf_fini(&path);
}

/* ---- mixes ---- */

static void check_mixes(void)
{
	static const struct {
		const char *mix, *tensor, *type; /* NULL: it stays */
		int n_dim, cols;
	} c[] = {
		{ "q4_k_m", "output.weight", "Q6_K", 2, 256 },
		{ "Q4_K_M", "token_embd.weight", "Q4_K", 2, 256 },
		{ "Q4_K_M", "blk.0.attn_v.weight", "Q6_K", 2, 256 },
		{ "Q4_K_M", "blk.1.attn_v.weight", "Q4_K", 2, 256 },
		{ "Q4_K_M", "blk.7.ffn_down.weight", "Q6_K", 2, 256 },
		{ "Q4_K_M", "blk.0.attn_norm.weight", NULL, 1, 256 },
		{ "Q4_K_M", "blk.0.ffn_gate_inp.weight", NULL, 2, 256 },
		{ "Q4_K_M", "blk.0.ssm_conv1d.weight", NULL, 2, 256 },
		{ "Q4_K_M", "blk.0.attn_q.bias", NULL, 1, 256 },
		{ "Q4_K_M", "blk.1.attn_q.weight", "Q5_0", 2, 96 },
		{ "Q6_K", "blk.1.attn_q.weight", "Q8_0", 2, 96 },
		{ "Q6_K", "blk.1.attn_q.weight", "F16", 2, 40 },
		{ "Q8_0", "output.weight", "Q8_0", 2, 256 },
		{ "IQ4_XS", "blk.5.ffn_up.weight", "IQ4_XS", 2, 256 },
		{ "BF16", "blk.5.ffn_up.weight", "BF16", 2, 256 },
	};
	const struct mix_model m = { .blocks = 8 };

	for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
		const struct gguf_type *t = mix_type(mix_find(c[i].mix), &m, c[i].tensor, c[i].n_dim, c[i].cols);

		if (c[i].type ? !t || strcmp(t->name, c[i].type) : t != NULL) {
			printf("FAIL %s %s: %s, should be %s\n", c[i].mix, c[i].tensor, t ? t->name : "as it is",
			       c[i].type ? c[i].type : "as it is");
			failures++;
		}
	}
	check(!mix_find("Q4_K_XXL"), "no such mix");
}

int main(void)
{
	char dir[] = "/tmp/weft-export-XXXXXX";
	bool shared;

	check(mkdtemp(dir) != NULL, "a folder for files");
	check_resume(dir);
	check_hostile(dir);
	check_mixes();
	shared = check_forms();
	if (chdir(dir) == 0) {
		unlink("whole");
		unlink("again");
		unlink("imatrix");
		rmdir(dir);
	}
	return failures ? 1 : shared ? 0 : 77;
}
