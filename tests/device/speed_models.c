/* speed_models.c - whole models as times, on a device and on the processor: prompts, and tokens of one and of several sequences, each
 * step with the logits of its last rows brought to the host. */
#include "speed_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/backends.h"
#include "base/alloc.h"
#include "quant/choices.h"

enum { SEQS = 8, STEP = 512, CTX = 8192 + 256 };

struct run {
	struct model *m;
	struct store *st;
	struct backend *be;
	struct pass p;
	float *near;
	int32_t tok[STEP], pos[STEP], item[STEP], first[SEQS], logit_row[SEQS];
	struct span span[SEQS];
	FILE *csv;
	const char *where;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void say(struct run *r, const char *what, double v, const char *unit)
{
	printf("%-8s %-40s %10.1f %s\n", r->where, what, v, unit);
	if (r->csv)
		fprintf(r->csv, "%s,%s,%.2f,%s\n", r->where, what, v, unit);
	fflush(stdout);
}

/* n rows of each of `seqs` sequences from pos on; the last row of each has logits.  false: no memory, or the device failed. */
static bool step(struct run *r, int seqs, int pos, int n)
{
	struct pass *p = &r->p;
	struct err err = { 0 };

	p->n_row = p->n_item = p->n_logit = 0;
	for (int i = 0; i < seqs; i++) {
		r->span[i] = (struct span){ i, pos, n, 0 };
		r->first[i] = p->n_row;
		for (int k = 0; k < n; k++, p->n_row++) {
			r->tok[p->n_row] = (pos + k) * 31 % 500;
			r->pos[p->n_row] = pos + k;
			r->item[p->n_row] = i;
		}
		r->logit_row[p->n_logit++] = p->n_row - 1;
		p->n_item++;
		if (caches_reserve(&r->m->caches, &r->span[i]))
			return false;
	}
	caches_begin(&r->m->caches, r->span, p->n_item);
	if (model_run(r->m, p, &err) ||
	    r->be->ops->read(r->be, r->near, p->logits,
	                     (size_t)p->n_logit * (size_t)r->m->shape.vocab * sizeof(float))) {
		printf("%s\n", r->be->failed.msg);
		return false;
	}
	for (int i = 0; i < seqs; i++)
		caches_settle(&r->m->caches, &r->span[i], n);
	return true;
}

static void prompt(struct run *r, int n)
{
	char what[64];
	double t = now();

	for (int at = 0; at < n; at += STEP)
		if (!step(r, 1, at, n - at < STEP ? n - at : STEP))
			return;
	t = now() - t;
	snprintf(what, sizeof what, "prompt of %d, tokens/s", n);
	say(r, what, n / t, "tokens/s");
}

/* Tokens of sequences that stand at pos. */
static void decode(struct run *r, int seqs, int pos, double seconds)
{
	char what[64];
	double begin, t = 0;
	int n = 0;

	if (!step(r, seqs, pos, 1))
		return;
	for (begin = now(); t < seconds && n < 100 && step(r, seqs, pos + 1 + n, 1); t = now() - begin)
		n++;
	snprintf(what, sizeof what, "decoding %d at %d, tokens/s", seqs, pos);
	say(r, what, n * seqs / t, "tokens/s");
	snprintf(what, sizeof what, "decoding %d at %d, a step", seqs, pos);
	say(r, what, 1e6 * t / n, "us");
}

static void times(struct run *r, bool small)
{
	double seconds = small ? 0.3 : 2;
	int few = small ? 8 : 64;

	prompt(r, small ? 64 : 512);
	caches_close(&r->m->caches, 0);
	prompt(r, small ? 64 : 512); /* after what is done once */
	decode(r, 1, small ? 64 : 512, seconds);
	caches_close(&r->m->caches, 0);
	if (step(r, SEQS, 0, few)) {
		decode(r, SEQS, few, seconds);
		for (int k = 0; k < SEQS; k++)
			caches_close(&r->m->caches, k);
	}
	if (small)
		return;
	prompt(r, 8192);
	decode(r, 1, 8192, seconds);
}

void speed_models(const char *folder, const char *device, int threads, bool small, FILE *csv)
{
	struct run *r = xcalloc(1, sizeof *r);
	struct choices cpu = choices_all(cpu_detect());
	const struct backend_opts bo = { threads, &cpu };
	struct model_opts mo = { .arith = ARITH_FAST,
		                 .slots = SEQS,
		                 .ctx_max = small ? 256 : CTX,
		                 .step_rows = STEP,
		                 .tape_rows = 4,
		                 .kv_bytes = small ? 0 : (size_t)1 << 30,
		                 .snap_bytes = 1 };
	struct err err;
	double t = now();

	r->csv = csv;
	r->where = device;
	if (store_open(&r->st, folder, &err) || backends_open(&r->be, device, &bo, &err) ||
	    model_open(&r->m, r->st, r->be, &mo, &err)) {
		printf("%s: %s\n", device, err.msg);
		exit(1);
	}
	say(r, "opened in", 1e3 * (now() - t), "ms");
	r->p = (struct pass){ .be = r->be,
		              .arith = ARITH_FAST,
		              .tok = r->tok,
		              .pos = r->pos,
		              .item = r->item,
		              .span = r->span,
		              .row = r->first,
		              .logit_row = r->logit_row };
	r->p.work.cap = r->m->ops->work_floats(r->m, STEP, SEQS) * sizeof(float);
	r->p.work.p = r->be->ops->alloc(r->be, r->p.work.cap);
	r->p.logits = r->be->ops->alloc(r->be, (size_t)SEQS * (size_t)r->m->shape.vocab * sizeof(float));
	r->near = xmalloc((size_t)SEQS * (size_t)r->m->shape.vocab * sizeof(float));
	if (r->p.work.p && r->p.logits)
		times(r, small);
	r->be->ops->free(r->be, r->p.work.p, r->p.work.cap);
	r->be->ops->free(r->be, r->p.logits, (size_t)SEQS * (size_t)r->m->shape.vocab * sizeof(float));
	model_close(r->m);
	r->be->ops->close(r->be);
	store_close(r->st);
	free(r->near);
	free(r);
}
