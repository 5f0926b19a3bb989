/* ngrams.c - embeddings of hashed n-grams (struct backend_ops, embed_ngrams). */
#include <assert.h>
#include <string.h>

#include "backend/cpu/state/conv.h"
#include "backend/cpu/row_tables.h"

struct ngram_job {
	const struct ngrams *g;
	const int32_t *row; /* [n_row][heads] of the table */
	float *out;
};

/* The token s before row i of the item, which is not before the sequence. */
static int32_t token_at(const struct conv_rows *r, int item, int i, int s)
{
	return (int32_t)*conv_input(r, item, i - s, 0);
}

/* The rows of the table that row i of the item reads. */
static void hash_row(const struct ngrams *g, const struct conv_rows *r, int item, int i, int32_t *row)
{
	int pos = r->p->span[item].pos + i, each = g->heads / (g->most - 1);
	bool ended = false;
	uint64_t mix = (uint64_t)token_at(r, item, i, 0) * (uint64_t)g->mult[0];

	for (int o = 1; o < g->most; o++) {
		int32_t c = ended || o > pos ? g->end : token_at(r, item, i, o);

		ended |= c == g->end;
		mix ^= (uint64_t)c * (uint64_t)g->mult[o];
		for (int h = (o - 1) * each; h < o * each; h++)
			row[h] = (int32_t)(g->offset[h] + (int64_t)(mix % (uint64_t)g->size[h]));
	}
}

static void decode_rows(void *ctx, int begin, int end)
{
	const struct ngram_job *j = ctx;
	int rows = j->g->part->rows, cols = j->g->part->cols;

	for (int i = begin; i < end; i++) {
		assert(j->row[i] / rows < j->g->n_part);
		weight_decode(j->out + (size_t)i * (size_t)cols, &j->g->part[j->row[i] / rows], j->row[i] % rows);
	}
}

/* Reads the rows of one part of the table after the other from disk. */
static void read_rows(const struct ngram_job *j, struct pass *p, struct row_asked *ask)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	int rows = j->g->part->rows, heads = j->g->heads;

	for (int k = 0; k < j->g->n_part; k++) {
		int n = 0;

		for (int i = 0; i < p->n_row * heads; i++)
			if (j->row[i] / rows == k)
				ask[n++] = (struct row_asked){ j->row[i] % rows, i / heads, i };
		if (n)
			row_table_read(row_tables_find(c->rows, &j->g->part[k]), p, ask, n, j->out);
	}
}

void cpu_embed_ngrams(struct pass *p, float *out, const struct ngrams *g, const struct state_view *view, int layer,
                      int at)
{
	struct cpu_backend *c = (struct cpu_backend *)p->be;
	size_t rows = (size_t)p->n_row, heads = (size_t)g->heads;
	size_t each = sizeof(int32_t) + sizeof(struct row_asked);
	float *tok = room_get(&c->parts, rows * (sizeof *tok + heads * each));
	int32_t *row = (int32_t *)(tok + rows);
	struct conv_rows r = { p, view, tok, layer, at, 1 };
	struct ngram_job j = { g, row, out };

	assert(g->most <= view->shape.conv_width && at < view->shape.conv_channels);
	for (int i = 0; i < p->n_row; i++)
		tok[i] = (float)(p->tok[i] < 0 ? 0 : p->tok[i]);
	for (int item = 0; item < p->n_item; item++) {
		for (int i = 0; i < p->span[item].n; i++)
			hash_row(g, &r, item, i, row + (size_t)(p->row[item] + i) * heads);
		conv_move(&r, item, 0, 1);
	}
	if (row_tables_find(c->rows, g->part))
		read_rows(&j, p, (struct row_asked *)(row + rows * heads));
	else
		cpu_range(c, decode_rows, &j, p->n_row * g->heads, 16);
}
