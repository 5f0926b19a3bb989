/* model.c - picks the architecture, opens its caches; see model.h. */
#include "model/model.h"
#include "backend/stream_files.h"
#include "store/store.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "cache/kinds.h"
#include "model/head.h"
#include "model/mtp.h"

enum { PAGE_ROWS = 64 }; /* positions per KV page: the step of allocation, see docs/design.md */

/* Architectures that look like one we read and are not: loading them with that
 * graph would give wrong text without an error. */
static const struct {
	const char *type, *why;
} refused[] = {
	{ "deepseek_v41", "it has Engram tables, and histories that several layers read, which weft does not compute" },
	{ "deepseek_v41_text",
	  "it has Engram tables, and histories that several layers read, which weft does not compute" },
	{ "deberta-v2", "an encoder whose attention has relative positions, which weft does not compute" },
	{ "t5", "an encoder and a decoder; weft serves decoders alone" },
	{ "whisper", "speech recognition; weft serves text" },
};

static const struct model_ops *find_family(const char *type, const char **arch)
{
	for (int i = 0; models[i]; i++)
		for (int k = 0; models[i]->arch[k]; k++)
			if (!strcmp(models[i]->arch[k], type)) {
				*arch = models[i]->arch[k];
				return models[i];
			}
	return NULL;
}

/* The known type whose name begins most like this one; without a like one that of the plain transformer. */
static const char *nearest_type(const char *type, const struct model_ops **ops)
{
	const char *best = NULL;
	size_t most = 2; /* letters in common that say nothing */

	*ops = find_family("llama", &best);
	for (int i = 0; models[i]; i++)
		for (int k = 0; models[i]->arch[k]; k++) {
			const char *known = models[i]->arch[k];
			size_t n = 0;

			while (type[n] && type[n] == known[n])
				n++;
			if (n < most || (n == most && strlen(known) >= strlen(best)))
				continue;
			most = n;
			best = known;
			*ops = models[i];
		}
	return best;
}

/* What becomes of the folder when it is read as the nearest family, to buf. */
static void put_difference(struct buf *b, const struct model_ops *ops, const char *arch, struct store *st)
{
	struct model *m = NULL;
	struct err why;
	size_t left = 0, first = 0;

	if (model_bind_as(&m, ops, arch, st, &why)) {
		buf_printf(b, "read as that it fails: %s", why.msg);
		return;
	}
	for (size_t i = st->n; i-- > 0;)
		if (!st->v[i]->used) {
			first = i;
			left++;
		}
	if (left)
		buf_printf(b, "read as that, %zu of its %zu tensors are not used, as %s", left, st->n,
		           st->v[first]->name);
	else
		buf_printf(b, "all its tensors are those of that family");
	model_close(m);
}

static int unknown(struct store *st, const char *type, struct err *err)
{
	const struct model_ops *ops;
	const char *nearest = nearest_type(type, &ops);
	struct buf differs;
	int code;

	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		if (!strcmp(type, refused[i].type))
			return err_set(err, E_UNSUPPORTED, "%s: model_type \"%s\" is not supported: %s",
			               st->config_path, type, refused[i].why);
	buf_init(&differs);
	put_difference(&differs, ops, nearest, st);
	code = err_set(err, E_UNSUPPORTED,
	               "%s: model_type \"%.60s\" is not known; the nearest that is known: %s (%.260s); "
	               "all: docs/models.md",
	               st->config_path, type, nearest, differs.p);
	buf_fini(&differs);
	return code;
}

static void count(struct shape *s, const struct store *st)
{
	for (size_t i = 0; i < st->n; i++)
		if (st->v[i]->used) {
			s->params += st->v[i]->elements;
			s->weight_bytes += (int64_t)st->v[i]->bytes;
		}
}

static void list_files(struct model *m)
{
	struct stream_file *file = arena_alloc(&m->arena, size_mul((size_t)m->st->n_file + 1, sizeof *file));

	for (int i = 0; i < m->st->n_file; i++)
		file[i] = (struct stream_file){ &m->st->file[i].map, m->st->file[i].path };
	m->file = file;
}

int model_bind_as(struct model **out, const struct model_ops *ops, const char *arch, struct store *st, struct err *err)
{
	struct model *m = xcalloc(1, ops->size);
	int code;

	assert(ops->bind && ops->forward && ops->work_floats && ops->size >= sizeof *m);
	*out = NULL;
	m->ops = ops;
	m->arch = arch;
	m->st = st;
	arena_init(&m->arena);
	arena_init(&m->vectors);
	code = ops->bind(m, st, err);
	if (code) {
		model_close(m);
		return code;
	}
	count(&m->shape, st);
	list_files(m);
	store_ignore(st, "*.rotary_emb.inv_freq", "computed from the config");
	store_ignore(st, "score.", "a classifier's head, which is not the model's");
	store_report(st);
	*out = m;
	return 0;
}

bool model_only_head(const struct store *st)
{
	const char *type = json_str(json_get(st->config, "model_type"), NULL);
	size_t n = type ? strlen(type) : 0;

	return (n > 4 && !strcmp(type + n - 4, "_mtp")) || head_kind_of(st);
}

/* The type that says what computes: a wrapper of several kinds of text may have one of another file's. */
static const char *type_of(const struct store *st)
{
	const char *type = json_str(json_get(st->config, "model_type"), NULL);
	const char *text = json_str(json_get(st->text, "model_type"), NULL);

	return type && text && !strcmp(type, "mistral3") && !strcmp(text, "mistral4") ? text : type;
}

int model_bind(struct model **out, struct store *st, struct err *err)
{
	const char *type = type_of(st), *arch;
	const struct model_ops *ops;

	*out = NULL;
	if (model_only_head(st))
		return err_set(err, E_UNSUPPORTED,
		               "%s: a draft head without its model: serve that, with --draft-model FOLDER",
		               st->config_path);
	if (!type)
		return err_set(err, E_MISSING, "%s: model_type: missing", st->config_path);
	ops = find_family(type, &arch);
	if (!ops)
		return unknown(st, type, err);
	return model_bind_as(out, ops, arch, st, err);
}

/* Refuses the head of another family's model. */
static int check_family(const struct model *of, const struct store *st, struct err *err)
{
	const char *type = json_str(json_get(st->config, "model_type"), NULL), *arch;
	size_t n = type ? strlen(type) : 0;
	const struct model_ops *ops;
	char family[64];

	if (n < 5 || n - 4 >= sizeof family || strcmp(type + n - 4, "_mtp"))
		return 0;
	snprintf(family, sizeof family, "%.*s", (int)(n - 4), type);
	ops = find_family(family, &arch);
	if (!ops || ops == of->ops)
		return 0;
	return err_set(err, E_UNSUPPORTED, "%s: a draft head for %s, and the model is %s", st->dir, family, of->arch);
}

int model_bind_head(struct model **out, const struct model *of, struct store *st, struct err *err)
{
	const struct head_kind *kind = head_kind_of(st);
	struct shape before = { 0 }, *s;
	int code, *uses;

	*out = NULL;
	if (kind && of->shape.streams)
		return err_set(err, E_UNSUPPORTED, "%s: a draft head for one residual stream; %s has %d", st->dir,
		               of->arch, of->shape.streams);
	if (!kind && !of->ops->bind_head)
		return err_set(err, E_MISSING, "%s: no draft head is known for model_type %s", st->dir, of->arch);
	if (!kind && (code = check_family(of, st, err)))
		return code;
	count(&before, st);
	uses = store_uses(st);
	code = (kind ? kind->bind : mtp_open)(out, of, st, err);
	store_uses_end(st, uses, code);
	if (code)
		return code;
	s = &(*out)->shape;
	count(s, st);
	s->params -= before.params;
	s->weight_bytes -= before.weight_bytes;
	if (st != of->st)
		store_report(st);
	return 0;
}

/* Positions of long sequences turn by other angles, from the first on: one set is right for all sequences of the model. */
static void choose_lengths(struct model *m)
{
	struct rotary_lengths *y = &m->lengths;

	m->lengthened = y->n && m->opts.ctx_max > y->ctx;
	if (!y->n)
		return;
	if (m->lengthened)
		memcpy(y->freq, y->longer, (size_t)y->n * sizeof *y->freq);
	log_info("rotation (longrope) of %s sequences: the context is %d, and up to %d it is short",
	         m->lengthened ? "long" : "short", m->opts.ctx_max, y->ctx);
}

/* Fills in the options that opts leaves open, and refuses those that do not fit. */
static int complete(struct model *m, const struct model_opts *opts, struct err *err)
{
	struct model_opts *o = &m->opts;

	*o = *opts;
	assert(o->slots > 0 && o->step_rows > 0 && o->tape_rows >= 0 && o->ctx_max >= 0);
	if (o->ctx_max > m->shape.ctx_max)
		return err_set(err, E_LIMIT, "a context of %d positions was asked for, the model has %d", o->ctx_max,
		               m->shape.ctx_max);
	if (!o->ctx_max)
		o->ctx_max = m->shape.ctx_max;
	choose_lengths(m);
	if (o->kv.layer && m->shape.layers_attn) {
		struct kv_pair *own = arena_alloc(&m->arena, size_mul((size_t)m->shape.layers_attn, sizeof *own));

		memcpy(own, o->kv.layer, (size_t)m->shape.layers_attn * sizeof *own);
		o->kv.layer = own;
	} else if (!o->kv.all.k) {
		o->kv = model_kv_default(o->arith);
	}
	if (!o->kv_bytes)
		o->kv_bytes = size_mul((size_t)o->slots, model_pool_bytes(&m->shape, o, -1, o->ctx_max));
	return 0;
}

/* Positions of a page: a multiple of those that a row of any group stands for. */
static int page_rows(const struct shape *s)
{
	int n = PAGE_ROWS;

	for (int g = 0; g < s->n_kv; g++)
		for (int step = n; s->kv[g].every && n % s->kv[g].every;)
			n += step;
	return n;
}

/* The format of indexers' keys in a cache with these rows. */
static struct kv_pair index_rows(const struct kv_rows *kv)
{
	const struct kv_format *whole = kv_format_find("f32"), *half = kv_format_find("bf16");
	const struct kv_format *f = kv_rows_at(kv, 0).k == whole ? whole : half;

	return (struct kv_pair){ f, f };
}

/* The pages of group g. */
static int open_group(struct model *m, int g, struct err *err)
{
	const struct shape *s = &m->shape;
	struct kv_pair *layer = xcalloc((size_t)s->kv[g].layers, sizeof *layer);
	struct paged_opts o = {
		.group = s->kv[g],
		.rows.layer = layer,
		.page_rows = page_rows(s),
		.slots = m->opts.slots,
		.ctx_max = m->opts.ctx_max,
		.step_rows = m->opts.step_rows,
		.pool = s->n_kv > 1 ? &m->pool : NULL,
		.bytes_max = m->opts.kv_bytes,
	};

	for (int i = 0; i < s->kv[g].layers && s->kv[g].index; i++)
		layer[i] = index_rows(&m->opts.kv);
	for (int i = 0; i < s->kv[g].layers && s->kv[g].beside; i++)
		layer[i] = kv_rows_at(&m->opts.kv, s->like[g][i]);
	for (int i = 0; i < s->layers_attn; i++)
		if (shape_kv_place(s, i).group == g)
			layer[shape_kv_place(s, i).index] = kv_rows_at(&m->opts.kv, i);
	m->kv[g] = paged_open(m->be, &o, err);
	free(layer);
	if (!m->kv[g])
		return err->code;
	caches_add(&m->caches, m->kv[g]);
	return 0;
}

static int open_state(struct model *m, struct cache **out, const struct state_shape *shape, struct err *err)
{
	struct state_opts o = {
		.shape = *shape,
		.slots = m->opts.slots,
		.tape_rows = m->opts.tape_rows,
		.snap_bytes_max = m->opts.snap_bytes,
	};

	*out = state_open(m->be, &o, err);
	if (!*out)
		return err->code;
	caches_add(&m->caches, *out);
	return 0;
}

static int open_caches(struct model *m, struct err *err)
{
	const struct shape *s = &m->shape;

	m->pool.max = m->opts.kv_bytes;
	for (int g = 0; g < s->n_kv; g++) {
		int code = open_group(m, g, err);

		if (code)
			return code;
	}
	if (s->layers_rec && open_state(m, &m->state, &s->state, err))
		return err->code;
	if (s->past.layers && open_state(m, &m->past, &s->past, err))
		return err->code;
	if (s->carry) {
		struct carry_opts o = {
			.bytes = (size_t)s->carry * sizeof(float),
			.slots = m->opts.slots,
			.snap_bytes_max = m->opts.snap_bytes,
		};

		m->carry = carry_open(m->be, &o, err);
		if (!m->carry)
			return err->code;
		caches_add(&m->caches, m->carry);
	}
	return 0;
}

/* The matrices of an expert. */
enum { MATRICES = 3 };
static void matrices(const struct weight *w[MATRICES], const struct moe *x, int e)
{
	w[0] = x->gate ? &x->gate[e] : NULL;
	w[1] = x->up ? &x->up[e] : NULL;
	w[2] = &x->down[e];
}

/* The matrices of a mixture that all rows use; NULL where it has none. */
enum { COMMON = 5 };
static void common_matrices(const struct weight *w[COMMON], const struct moe *x)
{
	w[0] = x->router;
	w[1] = x->shared_gate;
	w[2] = x->shared_up;
	w[3] = x->shared_down;
	w[4] = x->shared_router;
}

static int by_address(const void *a, const void *b)
{
	const struct placed *x = *(struct placed *const *)a, *y = *(struct placed *const *)b;

	return (x->p > y->p) - (x->p < y->p);
}

/* Marks the one of v[n], in the order of addresses, that p lies in. */
static void mark_around(struct placed **v, int n, const uint8_t *p)
{
	int from = 0, to = n;

	while (from < to) {
		int mid = from + (to - from) / 2;

		if (v[mid]->p <= p)
			from = mid + 1;
		else
			to = mid;
	}
	if (p && from && p < v[from - 1]->p + v[from - 1]->bytes)
		v[from - 1]->mixture = true;
}

static void mark_weight(struct placed **v, int n, const struct weight *w)
{
	if (!w)
		return;
	mark_around(v, n, w->data);
	mark_around(v, n, w->scales);
	mark_around(v, n, w->biases);
}

/* Marks what only moe reads. */
static void mark_mixtures(const struct model *m, struct placed *v, int n)
{
	struct placed **sorted = xcalloc((size_t)n + 1, sizeof *sorted);
	const struct weight *w[MATRICES], *common[COMMON];

	for (int i = 0; i < n; i++)
		sorted[i] = &v[i];
	qsort(sorted, (size_t)n, sizeof *sorted, by_address);
	for (int i = 0; i < m->n_mixture; i++) {
		for (int e = 0; e < m->mixture[i]->experts; e++) {
			matrices(w, m->mixture[i], e);
			for (int k = 0; k < MATRICES; k++)
				mark_weight(sorted, n, w[k]);
		}
		common_matrices(common, m->mixture[i]);
		for (int k = 0; k < COMMON; k++)
			mark_weight(sorted, n, common[k]);
	}
	free(sorted);
}

/* The tensors that were handed out, and the vectors made of some. */
static int place(struct model *m, struct err *err)
{
	int n, code;

	if (!m->be->ops->place)
		return 0;
	m->placed = store_placed(m->st, &m->vectors, &n);
	mark_mixtures(m, m->placed, n);
	code = m->be->ops->place(m->be, m->placed, n, err);
	if (!code)
		m->n_placed = n;
	return code;
}

int model_rehearse(struct model *m, const struct adapter_mix *mix, struct err *err)
{
	struct backend *be = m->be;
	int rows = m->opts.step_rows, n = m->shape.head.block ? m->shape.head.guesses : 1;
	int32_t *zero = xcalloc((size_t)rows, sizeof *zero), *pos = xcalloc((size_t)rows, sizeof *pos);
	const struct span span = { .n = rows };
	size_t given = (size_t)rows * (size_t)(m->shape.carry + m->shape.hidden) * sizeof(float);
	struct pass p = { .be = be,
		          .arith = m->opts.arith,
		          .n_row = rows,
		          .n_item = 1,
		          .n_logit = n,
		          .tok = zero,
		          .pos = pos,
		          .item = zero,
		          .span = &span,
		          .row = zero,
		          .logit_row = pos,
		          .adapter = mix ? &mix : NULL,
		          .work.cap = size_mul(m->ops->work_floats(m, rows, n), sizeof(float)) };
	size_t logits = size_mul(size_mul((size_t)n, (size_t)m->shape.vocab), sizeof(float));
	int code;

	for (int i = 0; i < rows; i++)
		pos[i] = i;
	p.logits = be->ops->alloc(be, logits);
	p.work.p = p.work.cap ? be->ops->alloc(be, p.work.cap) : NULL;
	p.given = be->ops->alloc(be, given);
	if (p.logits && p.given && (p.work.p || !p.work.cap)) {
		do {
			be->ops->rehearse(be);
			p.ahead = false;
			model_run(m, &p, NULL);
			if (m->shape.head.block) {
				p.ahead = true;
				model_run(m, &p, NULL);
			}
			code = be->ops->rehearsed(be, err);
		} while (code == REHEARSE_AGAIN);
	} else {
		code = err_set(err, E_FULL, "no memory for a step of %d rows", rows);
	}
	be->ops->free(be, p.logits, logits);
	be->ops->free(be, p.work.p, p.work.cap);
	be->ops->free(be, (float *)(uintptr_t)p.given, given);
	free(zero);
	free(pos);
	return code;
}

int model_attach(struct model *m, struct backend *be, const struct model_opts *opts, struct err *err)
{
	struct err own;
	int code;

	m->be = be;
	code = complete(m, opts, err);
	if (!code)
		code = place(m, err);
	if (!code)
		code = open_caches(m, err ? err : &own);
	return !code && be->ops->rehearse ? model_rehearse(m, NULL, err) : code;
}

int model_run(struct model *m, struct pass *p, struct err *err)
{
	const struct model *of = m->shape.head.borrows ? m->shape.head.borrows : m;
	int rc;

	for (int g = 0; g < KV_GROUPS; g++)
		p->kv[g] = of->kv[g] ? paged_view(of->kv[g]) : NULL;
	p->state = m->state ? state_view(m->state) : NULL;
	p->past = m->past ? state_view(m->past) : NULL;
	rc = pass_begin(p);
	if (!rc)
		m->ops->forward(m, p);
	rc = pass_end(p);
	if (rc && err)
		*err = p->be->failed;
	return rc;
}

int model_open(struct model **out, struct store *st, struct backend *be, const struct model_opts *opts, struct err *err)
{
	int code = model_bind(out, st, err);

	if (!code && (code = model_attach(*out, be, opts, err))) {
		model_close(*out);
		*out = NULL;
	}
	return code;
}

void model_close(struct model *m)
{
	if (!m)
		return;
	caches_fini(&m->caches);
	if (m->n_placed)
		m->be->ops->unplace(m->be, m->placed, m->n_placed);
	free(m->placed);
	free(m->mixture);
	free(m->table);
	arena_fini(&m->arena);
	arena_fini(&m->vectors);
	free(m);
}

/* ---- experts ---- */

static size_t bytes_of(const struct weight *w)
{
	return (size_t)w->rows * (w->row_bytes + weight_scale_bytes(w) * (w->biases ? 2 : 1));
}

size_t model_expert_bytes(const struct model *m)
{
	size_t n = 0;

	for (int i = 0; i < m->n_mixture; i++)
		for (int e = 0; e < m->mixture[i]->experts; e++) {
			const struct weight *w[MATRICES];

			matrices(w, m->mixture[i], e);
			for (int k = 0; k < MATRICES; k++)
				n += w[k] ? bytes_of(w[k]) : 0;
		}
	return n;
}

size_t model_mixture_bytes(const struct model *m)
{
	size_t n = model_expert_bytes(m);

	for (int i = 0; i < m->n_mixture; i++) {
		const struct weight *w[COMMON];

		common_matrices(w, m->mixture[i]);
		for (int k = 0; k < COMMON; k++)
			n += w[k] ? bytes_of(w[k]) : 0;
	}
	return n;
}

void model_layer_bytes(const struct model *m, size_t *bytes, size_t *mixtures)
{
	size_t layers = (size_t)m->shape.layers;
	int n;
	struct placed *v = store_placed(m->st, &m->vectors, &n);

	memset(bytes, 0, layers * sizeof *bytes);
	memset(mixtures, 0, layers * sizeof *mixtures);
	mark_mixtures(m, v, n);
	for (int i = 0; i < n; i++) {
		int at = v[i].layer - 1;

		if (at < 0 || at >= m->shape.layers)
			continue;
		bytes[at] += v[i].bytes;
		mixtures[at] += v[i].mixture ? v[i].bytes : 0;
	}
	free(v);
}

bool model_has_expert(const struct model *m, const uint8_t *p, size_t n)
{
	for (int i = 0; i < m->n_mixture; i++)
		for (int e = 0; e < m->mixture[i]->experts; e++) {
			const struct weight *w[MATRICES];

			matrices(w, m->mixture[i], e);
			for (int k = 0; k < MATRICES; k++)
				if (w[k] && ((w[k]->data >= p && w[k]->data < p + n) ||
				             (w[k]->scales >= p && w[k]->scales < p + n) ||
				             (w[k]->biases >= p && w[k]->biases < p + n)))
					return true;
		}
	return false;
}

int model_stream(struct model *m, struct stream_opts *how, struct err *err)
{
	if (!m->n_mixture)
		return err_set(err, E_UNSUPPORTED, "memory for experts: %s has none", m->st->name);
	if (!m->be->ops->stream)
		return err_set(err, E_UNSUPPORTED, "memory for experts: backend %s holds all of them",
		               m->be->ops->name);
	how->file = m->file;
	how->n_file = m->st->n_file;
	return m->be->ops->stream(m->be, m->mixture, m->n_mixture, how, err);
}

/* ---- tables ---- */

/* Does the table lie in files?  One that was made when the model was opened is in memory anyway. */
static bool in_files(const struct model *m, int table)
{
	return stream_files_have(m->file, m->st->n_file, m->table[table]);
}

size_t model_table_bytes(const struct model *m)
{
	size_t n = 0;

	for (int i = 0; i < m->n_table; i++) {
		struct weight_run run[WEIGHT_RUNS];

		weight_runs(run, m->table[i]);
		for (int k = 0; k < WEIGHT_RUNS && in_files(m, i); k++)
			n += size_mul((size_t)m->table[i]->rows, run[k].each);
	}
	return n;
}

bool model_has_table(const struct model *m, const uint8_t *p, size_t n)
{
	for (int i = 0; i < m->n_table; i++) {
		struct weight_run run[WEIGHT_RUNS];

		weight_runs(run, m->table[i]);
		for (int k = 0; k < WEIGHT_RUNS; k++)
			if (run[k].each && run[k].p >= p && run[k].p < p + n && in_files(m, i))
				return true;
	}
	return false;
}

int model_stream_rows(struct model *m, struct rows_opts *how, struct err *err)
{
	const struct weight **table;
	int n = 0, rc;

	if (!model_table_bytes(m))
		return err_set(err, E_UNSUPPORTED, "tables on disk: %s has none that rows are only looked up of",
		               m->st->name);
	if (!m->be->ops->stream_rows)
		return err_set(err, E_UNSUPPORTED, "tables on disk: backend %s holds all of them", m->be->ops->name);
	table = xcalloc((size_t)m->n_table, sizeof *table);
	for (int i = 0; i < m->n_table; i++)
		if (in_files(m, i))
			table[n++] = m->table[i];
	how->file = m->file;
	how->n_file = m->st->n_file;
	rc = m->be->ops->stream_rows(m->be, table, n, how, err);
	free(table);
	return rc;
}

float *model_carried(const struct model *m, int slot)
{
	return carry_row(m->carry, slot);
}

void shape_kv_plain(struct shape *s, int layers, int heads, int dim)
{
	s->layers_attn = layers;
	s->n_kv = layers > 0;
	s->kv[0] = (struct kv_group){ .layers = layers, .heads = heads, .dim_k = dim, .dim_v = dim };
	s->place = NULL;
}

static bool group_alike(const struct kv_group *a, const struct kv_group *b)
{
	return a->heads == b->heads && a->dim_k == b->dim_k && a->dim_v == b->dim_v && a->latent == b->latent &&
	       a->window == b->window && a->index == b->index && a->beside == b->beside && a->every == b->every;
}

int model_kv_add(struct model *m, const struct kv_group *g, struct kv_place *out, struct err *err)
{
	struct shape *s = &m->shape;
	struct kv_group one = *g;
	int at = 0;

	/* A row of a whole text reads only what its own pass has written for its own layer, so all layers share one place.  The
	 * cache keeps all rows of it; attention alone applies the window. */
	if (s->whole)
		one.window = 0;
	g = &one;
	while (at < s->n_kv && !group_alike(&s->kv[at], g))
		at++;
	if (at == KV_GROUPS)
		return err_set(err, E_UNSUPPORTED, "attention layers of more than %d sizes and windows", KV_GROUPS);
	if (at == s->n_kv) {
		s->kv[s->n_kv++] = *g;
		s->kv[at].layers = 0;
	}
	if (!s->place)
		s->place = arena_zalloc(&m->arena, size_mul((size_t)s->layers, sizeof *s->place));
	if (s->whole && s->kv[at].layers) {
		*out = (struct kv_place){ at, 0 };
		return 0;
	}
	*out = (struct kv_place){ at, s->kv[at].layers++ };
	if (g->index)
		return 0;
	if (g->beside) {
		if (!s->like[at])
			s->like[at] = arena_zalloc(&m->arena, size_mul((size_t)s->layers, sizeof **s->like));
		s->like[at][out->index] = s->layers_attn - 1;
		return 0;
	}
	assert(s->layers_attn < s->layers);
	s->place[s->layers_attn++] = *out;
	return 0;
}

struct kv_place shape_kv_place(const struct shape *s, int layer)
{
	return s->place ? s->place[layer] : (struct kv_place){ 0, layer };
}

/* A row of group g, over its layers. */
static size_t group_bytes(const struct shape *s, const struct kv_rows *kv, int g)
{
	size_t n = 0;

	for (int i = 0; i < s->kv[g].layers && s->kv[g].beside; i++)
		n += (size_t)s->kv[g].heads * kv_group_head_bytes(&s->kv[g], kv_rows_at(kv, s->like[g][i]));
	for (int i = 0; i < s->layers_attn && !s->kv[g].index && !s->kv[g].beside; i++)
		if (shape_kv_place(s, i).group == g)
			n += (size_t)s->kv[g].heads * kv_group_head_bytes(&s->kv[g], kv_rows_at(kv, i));
	if (s->kv[g].index)
		n = (size_t)s->kv[g].layers * kv_group_head_bytes(&s->kv[g], index_rows(kv));
	return n;
}

size_t model_kv_row_bytes(const struct shape *s, const struct kv_rows *kv)
{
	size_t n = 0;

	for (int g = 0; g < s->n_kv; g++)
		if (!s->kv[g].index || !s->kv[g].window) /* what rows are made of is not kept */
			n += group_bytes(s, kv, g) / (size_t)(s->kv[g].every ? s->kv[g].every : 1);
	return n;
}

struct kv_rows model_kv_default(enum arith arith)
{
	return kv_rows_of(kv_format_find(arith == ARITH_F32 ? "f32" : "bf16"));
}

/* A page of group g, of whole lines as the cache has them. */
static size_t page_bytes(const struct shape *s, const struct model_opts *o, int g)
{
	int every = s->kv[g].every ? s->kv[g].every : 1;
	size_t n = size_mul(group_bytes(s, &o->kv, g), (size_t)(page_rows(s) / every));

	return (n + 63) / 64 * 64;
}

size_t model_pool_bytes(const struct shape *s, const struct model_opts *o, int group, int ctx)
{
	size_t n = 0;

	for (int g = 0; g < s->n_kv; g++)
		if (group < 0 || group == g)
			n += size_mul(page_bytes(s, o, g),
			              (size_t)paged_need_pages(s->kv[g].window, o->step_rows, page_rows(s), ctx));
	return n;
}

int model_longest(const struct shape *s, const struct model_opts *o, size_t bytes, int ctx)
{
	int least = 0, most = ctx;

	while (least < most) {
		int pos = most - (most - least) / 2;

		if (model_pool_bytes(s, o, -1, pos) <= bytes)
			least = pos;
		else
			most = pos - 1;
	}
	return least;
}

size_t model_slot_bytes(const struct shape *s, int tape_rows)
{
	size_t n = (size_t)s->carry * sizeof(float);

	if (s->layers_rec)
		n += state_slot_bytes(&s->state) + state_tape_bytes(&s->state, tape_rows);
	if (s->past.layers)
		n += state_slot_bytes(&s->past) + state_tape_bytes(&s->past, tape_rows);
	return n;
}

size_t model_snap_bytes(const struct shape *s)
{
	return (s->layers_rec ? state_slot_bytes(&s->state) : 0) + (s->past.layers ? state_slot_bytes(&s->past) : 0) +
	       (size_t)s->carry * sizeof(float);
}

void model_fill(const struct model *m, struct pass *p, struct kv_place at, float *k, const float *v)
{
	const struct kv_group *g = &m->shape.kv[at.group];
	const struct attn attn = { .heads_kv = g->heads, .dim = g->dim_k, .scale = 1 };

	p->be->ops->kv_append(p, &attn, NULL, 0, 0, k, v, p->kv[at.group], at.index);
}
