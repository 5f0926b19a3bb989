/* channel_mix.c - do 3.5 bits serve better as keys of 3 and values of 4, or as half of
 * the channels of both at 4 and the other half at 3?
 *
 *     channel_mix MODEL TEXT [SEED]           SEED: of the signs that turn
 *
 * TurboQuant's paper spends a half bit on channels: those that are large as a rule get
 * one bit more, and each half is turned and has a length of its own.  Here both are
 * made naively: rows are kept as floats that went there and back, so only what codes
 * lose is seen, and every policy goes through the same code.  The larger channels are
 * the half with the largest mean absolute value of a layer, head and side: over TEXT
 * itself, which no choice made beforehand can know; or over other texts only, those of
 * the other parity, as a model's maker could choose them.
 *
 * Prints squared errors over squared lengths of keys and of values, the mean divergence
 * of the logits from the bf16 cache's over TEXT (a form feed begins a new one, special
 * tokens are read as such), and how far that is below the policy's without channels,
 * with the standard error of the difference over texts; and bytes of a key and a value
 * with a float length for each turned part.  One thread: heads are told apart by their
 * order. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "driver.h"
#include "text/tokens/tokenizer.h"

enum { LAYERS = 4, HEADS = 8, DIM = 256, CTX = 4096, STEP = 512 };

enum choice { WHOLE, OF_OTHERS, OF_ALL };
struct policy {
	const char *name;
	int high[2], low[2]; /* bits of keys and of values: of the larger channels, and of the others */
	enum choice choice;
};
static const struct policy policies[] = {
	{ "4", { 4, 4 }, { 4, 4 }, WHOLE },
	{ "keys 3, values 4", { 3, 4 }, { 3, 4 }, WHOLE },
	{ "channels 4 and 3, by this text", { 4, 4 }, { 3, 3 }, OF_ALL },
	{ "channels 4 and 3, by others", { 4, 4 }, { 3, 3 }, OF_OTHERS },
	{ "keys 2, values 3", { 2, 3 }, { 2, 3 }, WHOLE },
	{ "channels 3 and 2, by this text", { 3, 3 }, { 2, 2 }, OF_ALL },
	{ "channels 3 and 2, by others", { 3, 3 }, { 2, 2 }, OF_OTHERS },
};

static struct {
	const struct policy *policy; /* NULL: channels are looked at, and rows stay what they are */
	uint64_t seed;
	int heads, dim;
	int parity; /* of the text that is read */
	unsigned calls[LAYERS][2];
	double size[2][LAYERS][2][HEADS][DIM], far[2]; /* sums of absolute values, by parity */
	long rows[2];
	float book[2][5][16]; /* of a whole head, and of half a one: by bits, in units of 1 / sqrt(n) */
} w;

/* ---- the codec ---- */

/* Lloyd-Max for one coordinate of a random vector of length sqrt(n). */
static void book_make(float *book, int bits, int n)
{
	enum { GRID = 4000, ROUNDS = 600 };
	int entries = 1 << bits;
	double c[16], most = fmin(sqrt(n), 6);

	for (int k = 0; k < entries; k++)
		c[k] = 3.0 * (2 * k + 1 - entries) / entries;
	for (int round = 0; round < ROUNDS; round++) {
		double sum[16] = { 0 }, weight[16] = { 0 };

		for (int i = 0; i < GRID; i++) {
			double t = most * (2.0 * (i + 0.5) / GRID - 1), p = pow(1 - t * t / n, (n - 3) / 2.0);
			int k = 0;

			while (k + 1 < entries && t > (c[k] + c[k + 1]) / 2)
				k++;
			sum[k] += p * t;
			weight[k] += p;
		}
		for (int k = 0; k < entries; k++)
			c[k] = weight[k] > 0 ? sum[k] / weight[k] : c[k];
	}
	for (int k = 0; k < entries; k++)
		book[k] = (float)c[k];
}

static void hadamard(float *x, int n)
{
	for (int h = 1; h < n; h *= 2)
		for (int i = 0; i < n; i++)
			if (!(i & h)) {
				float a = x[i], b = x[i + h];

				x[i] = a + b;
				x[i + h] = a - b;
			}
}

static void signs(float *x, int n, int which)
{
	for (int i = 0; i < n; i++)
		x[i] *= rng_bits(w.seed, (uint64_t)i, (uint64_t)which) & 1 ? -1.0f : 1.0f;
}

/* x[0..n) there and back: turned, each element to the nearest entry, a scale without
 * bias in scores for keys and with the least error for values. */
static void there_and_back(float *x, int n, int bits, enum kv_side side)
{
	const float *book = w.book[n < w.dim][bits];
	float y[DIM], norm = 0, xy = 0, yy = 0, inv, scale;

	signs(x, n, 0);
	hadamard(x, n);
	signs(x, n, 1);
	hadamard(x, n);
	for (int i = 0; i < n; i++) {
		x[i] /= (float)n;
		norm += x[i] * x[i];
	}
	inv = norm > 0 ? sqrtf((float)n / norm) : 0;
	for (int i = 0; i < n; i++) {
		int k = 0;

		while (k + 1 < 1 << bits && x[i] * inv > (book[k] + book[k + 1]) / 2)
			k++;
		y[i] = book[k];
		xy += x[i] * y[i];
		yy += y[i] * y[i];
	}
	scale = norm > 0 ? side == KV_KEYS ? norm / xy : xy / yy : 0;
	for (int i = 0; i < n; i++)
		x[i] = scale * y[i];
	hadamard(x, n);
	signs(x, n, 1);
	hadamard(x, n);
	signs(x, n, 0);
	for (int i = 0; i < n; i++)
		x[i] /= (float)n;
}

/* Of a channel among those of its head, the largest first; others: the texts of this
 * parity do not count. */
static int channel_rank(int layer, int side, int head, int i, bool others)
{
	const double *a = w.size[!w.parity][layer][side][head], *b = w.size[w.parity][layer][side][head];
	int above = 0;

	for (int k = 0; k < w.dim; k++) {
		double x = a[k] + (others ? 0 : b[k]), y = a[i] + (others ? 0 : b[i]);

		above += x > y || (!(x < y) && k < i);
	}
	return above;
}

static void encode(int layer, void *row, const float *x, int dim, enum kv_side side)
{
	int head = (int)(w.calls[layer][side]++ % (unsigned)w.heads), half = dim / 2, n[2] = { 0, 0 };
	double far = 0, size = 0;
	const struct policy *p = w.policy;
	float part[2][DIM], back[DIM];

	if (!p) {
		for (int i = 0; i < dim; i++)
			w.size[w.parity][layer][side][head][i] += fabs((double)x[i]);
		memcpy(row, x, (size_t)dim * sizeof *x);
		return;
	}
	memcpy(back, x, (size_t)dim * sizeof *x);
	if (p->choice == WHOLE) {
		there_and_back(back, dim, p->high[side], side);
	} else {
		int low[DIM];

		for (int i = 0; i < dim; i++) {
			low[i] = channel_rank(layer, side, head, i, p->choice == OF_OTHERS) >= half;
			part[low[i]][n[low[i]]++] = x[i];
		}
		there_and_back(part[0], half, p->high[side], side);
		there_and_back(part[1], half, p->low[side], side);
		n[0] = n[1] = 0;
		for (int i = 0; i < dim; i++)
			back[i] = part[low[i]][n[low[i]]++];
	}
	for (int i = 0; i < dim; i++) {
		far += ((double)x[i] - (double)back[i]) * ((double)x[i] - (double)back[i]);
		size += (double)x[i] * (double)x[i];
	}
	w.far[side] += size > 0 ? far / size : 0;
	w.rows[side]++;
	memcpy(row, back, (size_t)dim * sizeof *back);
}

/* A format for each layer: rows are floats, and kernels those of f32 but for encode. */
static size_t bytes(int dim)
{
	return (size_t)dim * sizeof(float);
}
static void decode(float *x, const void *row, int dim)
{
	memcpy(x, row, bytes(dim));
}
#define LAYER(n)                                                                      \
	static void encode_##n(void *row, const float *x, int dim, enum kv_side side) \
	{                                                                             \
		encode(n, row, x, dim, side);                                         \
	}                                                                             \
	static void kernels_##n(struct kv_kernels *k, enum cpu_level level)           \
	{                                                                             \
		kv_format_find("f32")->kernels(k, level);                             \
		k->encode = encode_##n;                                               \
	}                                                                             \
	static const struct kv_format format_##n = { "naive", bytes, decode, kernels_##n };
LAYER(0)
LAYER(1)
LAYER(2)
LAYER(3)

/* ---- the model ---- */

static void die(const struct err *err)
{
	printf("%s\n", err->msg);
	exit(1);
}

static void open_model(struct driver *d, const char *folder, bool naive)
{
	static const struct kv_pair layer[LAYERS] = {
		{ &format_0, &format_0 },
		{ &format_1, &format_1 },
		{ &format_2, &format_2 },
		{ &format_3, &format_3 },
	};
	struct driver_opts o = { .arith = ARITH_FAST,
		                 .threads = 1,
		                 .level = cpu_detect(),
		                 .slots = 1,
		                 .ctx_max = CTX,
		                 .step_rows = STEP,
		                 .kv = { .layer = naive ? layer : NULL } };
	struct err err;

	if (!naive)
		o.kv = kv_rows_of(kv_format_find("bf16"));
	if (driver_open(d, folder, &o, &err))
		die(&err);
	w.heads = d->m->shape.kv[0].heads;
	w.dim = d->m->shape.kv[0].dim_k;
	assert(d->m->shape.layers_attn <= LAYERS && w.heads <= HEADS && w.dim <= DIM);
}

static double divergence(const float *p, const float *q, int n)
{
	double top[2] = { -INFINITY, -INFINITY }, sum[2] = { 0, 0 }, kl = 0;

	for (int i = 0; i < n; i++) {
		top[0] = fmax(top[0], (double)p[i]);
		top[1] = fmax(top[1], (double)q[i]);
	}
	for (int i = 0; i < n; i++) {
		sum[0] += exp((double)p[i] - top[0]);
		sum[1] += exp((double)q[i] - top[1]);
	}
	for (int i = 0; i < n; i++) {
		double a = (double)p[i] - top[0] - log(sum[0]), b = (double)q[i] - top[1] - log(sum[1]);

		kl += exp(a) * (a - b);
	}
	return kl;
}

/* Sum over the tokens of a text; plain NULL: codes are not compared. */
static double text_run(struct driver *plain, struct driver *naive, const int32_t *tok, int n)
{
	float *row[2];
	double kl = 0;

	for (int i = 0; i < 2; i++)
		row[i] = xmalloc((size_t)STEP * (size_t)naive->vocab * sizeof(float));
	for (int at = 0; at < n; at += STEP) {
		int m = n - at < STEP ? n - at : STEP;

		driver_feed(naive, 0, at, tok + at, m, NULL, 0, row[1]);
		if (!plain)
			continue;
		driver_feed(plain, 0, at, tok + at, m, NULL, 0, row[0]);
		for (int r = 0; r < m; r++)
			kl += divergence(row[0] + (size_t)r * (size_t)naive->vocab,
			                 row[1] + (size_t)r * (size_t)naive->vocab, naive->vocab);
	}
	caches_close(&naive->m->caches, 0);
	if (plain)
		caches_close(&plain->m->caches, 0);
	free(row[0]);
	free(row[1]);
	return kl;
}

/* kl: [texts], sums. */
static void texts_run(struct driver *plain, struct driver *naive, const struct tokens *ids, const struct tokens *ends,
                      double *kl)
{
	memset(w.calls, 0, sizeof w.calls);
	memset(w.far, 0, sizeof w.far);
	memset(w.rows, 0, sizeof w.rows);
	for (size_t i = 0, at = 0; i < ends->n; at = (size_t)ends->id[i++]) {
		int n = ends->id[i] - (int)at;

		w.parity = i % 2;
		kl[i] = text_run(plain, naive, ids->id + at, n < CTX ? n : CTX);
	}
}

static void report(const struct policy *p, const double *kl, const double *whole, size_t texts, size_t tokens)
{
	double sum = 0, gain = 0, square = 0;
	int bytes = 0;

	for (size_t i = 0; i < texts; i++) {
		sum += kl[i];
		gain += whole[i] - kl[i];
	}
	for (size_t i = 0; i < texts; i++)
		square += pow(whole[i] - kl[i] - gain / (double)texts, 2);
	for (int side = 0; side < 2; side++)
		bytes += w.dim * (p->high[side] + p->low[side]) / 16 + (p->choice == WHOLE ? 4 : 8);
	printf("%-32s %4d bytes  error of keys %.5f, of values %.5f  mean KL %.6f", p->name, bytes,
	       w.far[KV_KEYS] / (double)w.rows[KV_KEYS], w.far[KV_VALUES] / (double)w.rows[KV_VALUES],
	       sum / (double)tokens);
	if (p->choice != WHOLE)
		printf(", lower by %.6f +- %.6f", gain / (double)tokens, sqrt(square) / (double)tokens);
	printf("\n");
}

static void texts_read(struct tokens *ids, struct tokens *ends, const char *model, const char *path)
{
	struct buf json, text;
	struct tokenizer *t;
	char name[4300];
	struct err err;

	buf_init(&json);
	buf_init(&text);
	tokens_init(ids);
	tokens_init(ends);
	snprintf(name, sizeof name, "%s/tokenizer.json", model);
	if (file_read(name, 1 << 28, &json, &err) || tokenizer_open(&t, json.p, json.n, &err) ||
	    file_read(path, 1 << 28, &text, &err))
		die(&err);
	for (size_t at = 0, n; at < text.n; at += n + 1) {
		const char *end = memchr(text.p + at, '\f', text.n - at);

		n = end ? (size_t)(end - text.p) - at : text.n - at;
		if (n && tokenizer_encode(t, text.p + at, n, TOKENIZE_AROUND | TOKENIZE_SPECIAL, ids, &err))
			die(&err);
		tokens_put(ends, (int32_t)ids->n);
	}
	tokenizer_close(t);
	buf_fini(&json);
	buf_fini(&text);
}

int main(int argc, char **argv)
{
	struct driver plain, naive;
	struct tokens ids, ends;
	double *kl;

	if (argc < 3) {
		printf("channel_mix MODEL TEXT [SEED]\n");
		return 2;
	}
	w.seed = argc > 3 ? strtoull(argv[3], NULL, 0) : 5;
	log_set_level(LOG_ERROR);
	texts_read(&ids, &ends, argv[1], argv[2]);
	open_model(&plain, argv[1], false);
	open_model(&naive, argv[1], true);
	for (int bits = 2; bits <= 4; bits++) {
		book_make(w.book[0][bits], bits, w.dim);
		book_make(w.book[1][bits], bits, w.dim / 2);
	}
	kl = xcalloc(2 * ends.n, sizeof *kl);
	texts_run(NULL, &naive, &ids, &ends, kl);
	for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
		w.policy = &policies[i];
		texts_run(&plain, &naive, &ids, &ends, kl);
		if (w.policy->choice == WHOLE)
			memcpy(kl + ends.n, kl, ends.n * sizeof *kl);
		report(w.policy, kl, kl + ends.n, ends.n, ids.n);
	}
	free(kl);
	driver_close(&plain);
	driver_close(&naive);
	tokens_fini(&ids);
	tokens_fini(&ends);
	return 0;
}
