/* test_dspark.c - a DSpark head beside the DFlash head whose layers it shares: the same rows, a guess from the last token's
 * row on, and logits that lean on the token before by its two matrices.
 *
 *     test_dspark MODEL DFLASH DSPARK */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "base/alloc.h"
#include "base/log.h"
#include "driver.h"

enum { CONTEXT = 12, BLOCK = 6, ROWS = 32 };

struct head {
	struct driver d;
	struct store *st;
	float *logits; /* [BLOCK][vocab] */
};

static void head_open(struct head *h, const struct driver *target, const char *folder)
{
	struct driver_opts o = {
		.arith = ARITH_F32, .threads = 1, .level = cpu_detect(), .slots = 1, .ctx_max = ROWS, .step_rows = ROWS
	};
	struct model *m;
	struct err err;

	*h = (struct head){ 0 };
	CHECK(!store_open(&h->st, folder, &err) && model_only_head(h->st), "%s", err.msg);
	CHECK(!model_bind_head(&m, target->m, h->st, &err) && !driver_attach(&h->d, m, &o, &err), "%s", err.msg);
	h->logits = xcalloc((size_t)BLOCK * (size_t)m->shape.vocab, sizeof *h->logits);
}

/* A context of these rows, and a block after it. */
static void guess(struct head *h, const float *given)
{
	static int32_t see[BLOCK], tok[CONTEXT], block[BLOCK] = { 7 };
	struct item it = { .n = CONTEXT, .tok = tok, .keep = CONTEXT };
	struct pass *p = &h->d.pass;

	p->given = given;
	driver_step(&h->d, &it, 1);
	for (int i = 0; i < BLOCK; i++) {
		see[i] = CONTEXT + BLOCK - 1;
		block[i] = i ? h->d.m->shape.head.mask : 7;
	}
	it = (struct item){ .pos = CONTEXT, .n = BLOCK, .tok = block, .logits = h->logits, .keep = BLOCK };
	p->see = see;
	p->ahead = true;
	driver_step(&h->d, &it, 1);
}

/* Row i of a matrix of f32. */
static void row_of(const struct store *st, const char *name, int i, int cols, float *out)
{
	const struct tensor *t = store_find(st, name);

	CHECK(t && t->dim[1] == cols, "%s: not of %d columns", name, cols);
	memcpy(out, t->data + (size_t)i * (size_t)cols * sizeof *out, (size_t)cols * sizeof *out);
}

static void head_close(struct head *h)
{
	driver_close(&h->d);
	store_close(h->st);
	free(h->logits);
}

int main(int argc, char **argv)
{
	enum { RANK = 8 };
	struct driver_opts o = {
		.arith = ARITH_F32, .threads = 1, .level = cpu_detect(), .slots = 1, .ctx_max = ROWS, .step_rows = ROWS
	};
	struct driver target;
	struct head flash, spark;
	float *given, *leant, most = 0;
	size_t vocab;
	struct err err;

	CHECK(argc == 4, "test_dspark MODEL DFLASH DSPARK");
	log_set_level(LOG_WARN);
	CHECK(!driver_open(&target, argv[1], &o, &err), "%s", err.msg);
	head_open(&flash, &target, argv[2]);
	head_open(&spark, &target, argv[3]);
	vocab = (size_t)spark.d.m->shape.vocab;
	CHECK(flash.d.m->shape.head.guesses == flash.d.m->shape.head.block - 1,
	      "DFlash guesses from the first mask on");
	CHECK(spark.d.m->shape.head.block == BLOCK && spark.d.m->shape.head.guesses == BLOCK,
	      "DSpark guesses from the last token on");
	CHECK(!flash.d.m->ops->lean && spark.d.m->ops->lean, "only DSpark leans on the token before");
	given = xcalloc((size_t)CONTEXT * (size_t)spark.d.m->shape.carry, sizeof *given);
	for (int i = 0; i < CONTEXT * spark.d.m->shape.carry; i++)
		given[i] = sinf((float)i * 0.37f);
	guess(&flash, given);
	guess(&spark, given);
	CHECK(!memcmp(flash.logits, spark.logits, BLOCK * vocab * sizeof(float)), "other logits from the same layers");
	leant = xcalloc(vocab, sizeof *leant);
	for (int32_t token = 0; token < 500; token += 83) {
		float before[RANK], then[RANK];

		memcpy(leant, spark.logits, vocab * sizeof *leant);
		spark.d.m->ops->lean(spark.d.m, &spark.d.pass, 0, token, leant);
		row_of(spark.st, "markov_head.markov_w1.weight", token, RANK, before);
		for (size_t v = 0; v < vocab; v++) {
			float by = 0;

			row_of(spark.st, "markov_head.markov_w2.weight", (int)v, RANK, then);
			for (int k = 0; k < RANK; k++)
				by += before[k] * then[k];
			most = fmaxf(most, fabsf(leant[v] - spark.logits[v] - by));
		}
	}
	printf("within %.1e\n", (double)most);
	CHECK(most < 1e-4f, "%g", (double)most);
	free(given);
	free(leant);
	head_close(&spark);
	head_close(&flash);
	driver_close(&target);
	return 0;
}
