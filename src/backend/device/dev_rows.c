/* dev_rows.c - operations on rows of floats, and products. */
#include <assert.h>
#include <limits.h>
#include <string.h>

#include "backend/device/dev.h"

enum { THREADS = DEV_THREADS };

static const struct dmem none;

void dev_embed(struct pass *p, float *out, const struct weight *table)
{
	struct dev *d = dev_of(p);
	const struct dev_weight *w = dev_weight_of(d, table, p->arith);
	struct dmem tok = dev_table(d, d->tok);

	if (!w)
		return;
	if (w->module)
		dev_run(d, w->module, "embed", THREADS, dev_blocks((size_t)w->cols), p->n_row,
		        DARGS(darg_mem(dev_at(d, out)), darg_mem(w->codes), darg_mem(w->scales), darg_mem(tok),
		              darg_int(w->cols / w->group)));
	else
		dev_run(d, "plain", "embed", THREADS, dev_blocks((size_t)w->cols), p->n_row,
		        DARGS(darg_mem(dev_at(d, out)), darg_mem(w->codes), darg_mem(tok), darg_int(w->kind),
		              darg_int(w->cols)));
}

void dev_bring(struct pass *p, float *x, int cols, int level)
{
	struct dev *d = dev_of(p);

	assert((level + 1) * cols <= p->brought.cols);
	dev_run(d, "rows", "bring", THREADS, dev_blocks((size_t)cols), p->n_row,
	        DARGS(darg_mem(dev_at(d, x)), darg_mem(dev_table(d, d->brought)), darg_mem(dev_table(d, d->tok)),
	              darg_int(cols), darg_int(p->brought.cols), darg_int(level * cols), darg_int(level > 0)));
}

void dev_norm(struct pass *p, float *out, const float *in, int n, int cols, const float *gain, float eps)
{
	struct dev *d = dev_of(p);

	dev_run(d, "rows", "norm", THREADS, n, 1,
	        DARGS(darg_mem(dev_at(d, out)), darg_mem(dev_at(d, in)), darg_mem(dev_vector(d, gain)), darg_int(cols),
	              darg_float(eps), darg_int(1)));
}

void dev_layer_norm(struct pass *p, float *out, const float *in, int n, int cols, const float *gain, const float *bias,
                    float eps)
{
	struct dev *d = dev_of(p);

	dev_run(d, "rows", "layer_norm", THREADS, n, 1,
	        DARGS(darg_mem(dev_at(d, out)), darg_mem(dev_at(d, in)), darg_mem(dev_vector(d, gain)),
	              darg_mem(dev_vector(d, bias)), darg_int(cols), darg_float(eps)));
}

/* ---- products ---- */

/* The form of that group; index into form, -1: refused. */
static int form_of(struct dev *d, struct dev_acts *a, int group)
{
	size_t codes = ((size_t)a->rows * (size_t)a->cols + 63) / 64 * 64,
	       groups = (size_t)a->rows * (size_t)(a->cols / group);
	size_t most = (size_t)a->rows * (size_t)(a->cols / 16 + 16) * sizeof(float); /* of one list of scales */
	int i = 0;

	while (i < a->n && a->form[i].group != group)
		i++;
	if (i < a->n)
		return i;
	if (i == DEV_GROUPS) {
		dev_refuse(d, "a product of weights in more than %d sizes of groups", DEV_GROUPS);
		return -1;
	}
	most = (most + 63) / 64 * 64;
	a->form[i].group = group;
	a->form[i].q = dmem_at(dev_room(d, ROOM_ACTS, DEV_GROUPS * codes), (size_t)i * codes);
	a->form[i].scale = dmem_at(dev_room(d, ROOM_SCALES, 2 * DEV_GROUPS * most), (size_t)(2 * i) * most);
	a->form[i].sum = dmem_at(a->form[i].scale, most);
	a->n++;
	dev_run(d, "rows", "quantise", 64, (int)((groups + 3) / 4), 1,
	        DARGS(darg_mem(a->form[i].q), darg_mem(a->form[i].scale), darg_mem(a->form[i].sum), darg_mem(a->in),
	              darg_int(group), darg_int((int)groups)));
	return i;
}

int dev_unit_size(const struct dev_weight *w, int rows)
{
	return !w->module ? 4 : rows <= 2 * DEV_FEW ? DEV_FEW : 64;
}

void dev_product(struct dev *d, enum arith arith, struct dev_acts *a, const struct weight *of, struct dmem out,
                 size_t ld, const float *bias, bool add, const struct dev_places *places)
{
	const struct dev_weight *w = dev_stack_of(d, of, places ? places->experts : 1, arith);
	struct dmem unit = places ? places->unit : none, index = places ? places->index : none,
		    to_add = dev_vector(d, bias);
	int size, units, form;
	bool few;

	if (!w)
		return;
	size = places ? places->size : dev_unit_size(w, a->rows > DEV_FEW ? INT_MAX : 0);
	units = places ? places->units : (a->rows + size - 1) / size;
	few = size == DEV_FEW;
	if (!w->module) {
		dev_run(d, "plain", "plain", THREADS, (w->rows + 31) / 32, units,
		        DARGS(darg_mem(out), darg_mem(w->codes), darg_mem(a->in), darg_mem(to_add), darg_mem(unit),
		              darg_mem(index), darg_int(w->kind), darg_int((int)ld), darg_int(w->rows),
		              darg_int(w->cols), darg_int(a->rows), darg_int(add)));
		return;
	}
	form = form_of(d, a, w->group);
	if (form < 0)
		return;
	dev_run(d, w->module, few ? "few" : "many", few ? 256 : 128, few ? (w->rows + 15) / 16 : (w->rows + 63) / 64,
	        units,
	        DARGS(darg_mem(out), darg_mem(w->codes), darg_mem(w->scales), darg_mem(a->form[form].q),
	              darg_mem(a->form[form].scale), darg_mem(a->form[form].sum), darg_mem(to_add), darg_mem(unit),
	              darg_mem(index), darg_int((int)ld), darg_int(w->cols / w->group), darg_int(a->rows),
	              darg_int(w->rows), darg_int(add)));
}

void dev_activate(struct dev *d, struct dmem x, struct dmem y, size_t n, const struct activation *act)
{
	if (act->kind == ACT_XIELU) {
		dev_refuse(d, "the activation xIELU");
		return;
	}
	dev_run(d, "rows", "gate", THREADS, dev_blocks(n), 1,
	        DARGS(darg_mem(x), darg_mem(y), darg_int((int)n), darg_int((int)act->kind), darg_float(act->alpha),
	              darg_float(act->limit)));
}

static void copy_rows(struct dev *d, struct dmem out, size_t out_ld, struct dmem from, int n, int cols)
{
	dev_run(d, "rows", "blend", THREADS, dev_blocks((size_t)cols), n,
	        DARGS(darg_mem(out), darg_mem(from), darg_mem(none), darg_mem(none), darg_int((int)out_ld),
	              darg_int(cols)));
}

void dev_linear(struct pass *p, const struct linear *job, int n_job, const float *in, int n, int cols)
{
	struct dev *d = dev_of(p);
	struct dev_acts a = { .in = dev_at(d, in), .rows = n, .cols = cols };

	assert(n_job <= LINEAR_JOBS);
	if (n <= 0)
		return;
	for (int i = 0; i < n_job && !dev_idle(d); i++) {
		const struct linear *j = &job[i];
		size_t all = (size_t)n * (size_t)j->w->rows;
		bool later = j->up || j->act.kind;
		bool apart = (later && j->ld != (size_t)j->w->rows) || (j->add && low_rank_any(p, j->w));
		size_t ld = apart ? (size_t)j->w->rows : j->ld;
		struct dmem out = apart ? dev_room(d, ROOM_FLOATS, all * sizeof(float)) : dev_at(d, j->out), up = none;

		assert(j->w->cols == cols && !(j->add && later));
		dev_product(d, p->arith, &a, j->w, out, ld, j->bias, j->add && !apart, NULL);
		dev_low_rank(p, &a, j->w, out, ld);
		if (j->up) {
			up = dev_room(d, ROOM_UP, all * sizeof(float));
			dev_product(d, p->arith, &a, j->up->w, up, (size_t)j->w->rows, j->up->bias, false, NULL);
			dev_low_rank(p, &a, j->up->w, up, (size_t)j->w->rows);
		}
		if (later)
			dev_activate(d, out, up, all, &j->act);
		if (apart && j->add)
			dev_add_rows(d, dev_at(d, j->out), j->ld, out, n, j->w->rows);
		else if (apart)
			copy_rows(d, dev_at(d, j->out), j->ld, out, n, j->w->rows);
	}
}

/* ---- numbers ---- */

void dev_gate(struct pass *p, float *x, const float *y, int n, int cols, const struct activation *act)
{
	struct dev *d = dev_of(p);

	dev_activate(d, dev_at(d, x), dev_vector(d, y), (size_t)n * (size_t)cols, act);
}

void dev_affine(struct pass *p, float *x, int n, int cols, const float *gain, const float *shift, float low, float high)
{
	struct dev *d = dev_of(p);

	dev_run(d, "rows", "affine", THREADS, dev_blocks((size_t)cols), n,
	        DARGS(darg_mem(dev_at(d, x)), darg_mem(dev_vector(d, gain)), darg_mem(dev_vector(d, shift)),
	              darg_int(cols), darg_float(low), darg_float(high)));
}

void dev_add(struct pass *p, float *x, const float *y, int n, int cols, float scale)
{
	struct dev *d = dev_of(p);
	size_t all = (size_t)n * (size_t)cols;

	dev_run(d, "rows", "add", THREADS, dev_blocks(all), 1,
	        DARGS(darg_mem(dev_at(d, x)), darg_mem(dev_vector(d, y)), darg_int((int)all), darg_float(scale)));
}

void dev_map(struct pass *p, float *x, int n, int cols, float scale, float cap)
{
	struct dev *d = dev_of(p);
	size_t all = (size_t)n * (size_t)cols;

	dev_run(d, "rows", "map", THREADS, dev_blocks(all), 1,
	        DARGS(darg_mem(dev_at(d, x)), darg_int((int)all), darg_float(scale),
	              darg_float(cap != 0 ? 2.0f * scale / cap : 0.0f), darg_float(cap)));
}

void dev_mul(struct pass *p, float *x, const float *y, size_t y_ld, int each, int n, int cols)
{
	struct dev *d = dev_of(p);

	dev_run(d, "rows", "mul", THREADS, dev_blocks((size_t)cols), n,
	        DARGS(darg_mem(dev_at(d, x)), darg_mem(dev_vector(d, y)), darg_int((int)y_ld), darg_int(each),
	              darg_int(n), darg_int(cols)));
}

void dev_blend(struct pass *p, float *out, size_t out_ld, const float *a, const float *b, const float *t, int n,
               int cols)
{
	struct dev *d = dev_of(p);

	dev_run(d, "rows", "blend", THREADS, dev_blocks((size_t)cols), n,
	        DARGS(darg_mem(dev_at(d, out)), darg_mem(dev_at(d, a)), darg_mem(dev_at(d, b)), darg_mem(dev_at(d, t)),
	              darg_int((int)out_ld), darg_int(cols)));
}

void dev_gather(struct pass *p, float *out, const float *in, const int32_t *index, int n, int cols)
{
	struct dev *d = dev_of(p);
	bool logits = index >= p->logit_row && index + n <= p->logit_row + p->n_logit;
	const int32_t *from = logits ? p->logit_row : p->picked.row;

	assert(logits || (index >= p->picked.row && index + n <= p->picked.row + p->picked.n));
	dev_run(d, "rows", "gather", THREADS, dev_blocks((size_t)cols), n,
	        DARGS(darg_mem(dev_at(d, out)), darg_mem(dev_at(d, in)),
	              darg_mem(
			      dev_table(d, (logits ? d->logit_row : d->pick) + (size_t)(index - from) * sizeof *index)),
	              darg_int(cols)));
}
