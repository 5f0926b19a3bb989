/* ppl.c - `weft ppl [MODEL]`: what a setting costs in quality.
 *
 * The model is opened twice, once as it is asked for and once as what it is
 * compared with, and both read the same tokens through the engine that serves, a
 * step of one after a step of the other, so that no more than a step's logits are
 * held of either.  A text longer than --ctx-size is read in pieces of that length,
 * each from an empty cache. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "bench/divergence.h"
#include "bench/ids.h"
#include "cli/cli.h"
#include "host/load.h"

enum { TEXT_MAX = 256 << 20 }; /* bytes */

/* Tokens [at, at + n) of the whole, read from an empty cache. */
struct piece {
	int at, n;
};

struct ppl {
	const struct ppl_options *o;
	struct session s, base; /* base is closed when nothing is compared */
	bool compare;
	struct tokens ids;
	struct piece *piece;
	int n_piece, cap_piece;
	int vocab;

	/* The piece that is read, and base's rows of it that s has still to give. */
	struct piece now;
	float *row;                /* [row_max][vocab] */
	int row_max, first, n_row; /* row[0] is of position `first` */
	int seen;                  /* rows of s */
	bool astray;               /* a row came out of its turn */
	struct gaps gaps;
};

/* ---- what is read ---- */

static void piece_add(struct ppl *w, size_t at, size_t end)
{
	int ctx = w->s.model->opts.ctx_max;

	for (int n; at < end; at += (size_t)n) {
		n = end - at > (size_t)ctx ? ctx : (int)(end - at);
		if (w->n_piece == w->cap_piece) {
			w->cap_piece = w->cap_piece ? 2 * w->cap_piece : 16;
			w->piece = xrealloc(w->piece, size_mul((size_t)w->cap_piece, sizeof(*w->piece)));
		}
		w->piece[w->n_piece++] = (struct piece){ (int)at, n };
	}
}

/* A form feed begins a new text. */
static int read_text(struct ppl *w, struct err *err)
{
	unsigned flags = TOKENIZE_AROUND | (w->o->special ? TOKENIZE_SPECIAL : 0u);
	struct buf text;
	int rc;

	buf_init(&text);
	rc = file_read(w->o->text_file, TEXT_MAX, &text, err);
	for (size_t at = 0, n; at < text.n && !rc; at += n + 1) {
		const char *end = memchr(text.p + at, '\f', text.n - at);
		size_t before = w->ids.n;

		n = end ? (size_t)(end - text.p) - at : text.n - at;
		if (n && (rc = tokenizer_encode(w->s.tok, text.p + at, n, flags, &w->ids, err)))
			err_prefix(err, "%s", w->o->text_file);
		piece_add(w, before, w->ids.n);
	}
	buf_fini(&text);
	return rc;
}

static int read_ids(struct ppl *w, struct err *err)
{
	struct ids f;
	int rc = ids_read(&f, w->o->ids, err);

	if (!rc)
		rc = ids_check(&f, w->o->ids, w->vocab, err);
	for (int i = 0; i < f.n_part && !rc; i++) {
		size_t before = w->ids.n;

		for (int k = f.part[i]; k < f.part[i + 1]; k++)
			tokens_put(&w->ids, f.id[k]);
		piece_add(w, before, w->ids.n);
	}
	ids_fini(&f);
	return rc;
}

static int read_all(struct ppl *w, struct err *err)
{
	const char *path = w->o->ids ? w->o->ids : w->o->text_file;
	int rc = w->o->ids ? read_ids(w, err) : read_text(w, err);

	if (!rc && w->ids.n < 2)
		rc = err_set(err, E_FORMAT, "%s: %zu tokens, and it takes 2 for one to follow another", path, w->ids.n);
	if (!rc && w->ids.n > INT_MAX)
		rc = err_set(err, E_LIMIT, "%s: %zu tokens, more than %d", path, w->ids.n, INT_MAX);
	return rc;
}

/* ---- running ---- */

static void score(struct ppl *w, int pos, const float *p, const float *q)
{
	struct row_gap gap;

	row_compare(&gap, p, q, w->vocab, pos + 1 < w->now.n ? w->ids.id[w->now.at + pos + 1] : -1);
	gaps_add(&w->gaps, &gap);
}

static void keep_row(void *arg, int pos, const float *row, int vocab)
{
	struct ppl *w = arg;

	if (w->n_row == w->row_max || pos != w->first + w->n_row) {
		w->astray = true;
		return;
	}
	memcpy(w->row + (size_t)w->n_row++ * (size_t)vocab, row, (size_t)vocab * sizeof(*row));
}

static void take_row(void *arg, int pos, const float *row, int vocab)
{
	struct ppl *w = arg;

	if (pos != w->seen || (w->compare && (pos < w->first || pos >= w->first + w->n_row))) {
		w->astray = true;
		return;
	}
	w->seen++;
	if (w->compare)
		score(w, pos, w->row + (size_t)(pos - w->first) * (size_t)vocab, row);
	else
		score(w, pos, row, NULL);
}

static int submit(struct ppl *w, struct engine *e, struct request **r,
                  void (*on_logits)(void *, int, const float *, int), struct err *err)
{
	struct ask a = { .prompt = w->ids.id + w->now.at,
		         .n_prompt = w->now.n,
		         .no_cache = true,
		         .split = &w->row_max,
		         .n_split = 1,
		         .on_logits = on_logits,
		         .on_logits_arg = w,
		         .n_draft = -1 };

	sampler_params_init(&a.sampling);
	a.sampling.temperature = 0;
	return engine_submit(e, &a, r, err);
}

/* Reads a request's events other than rows. */
static int look(struct request *r, bool *done, struct err *err)
{
	struct event ev;

	while (request_next(r, &ev)) {
		*done |= ev.kind == EV_DONE;
		if (ev.kind == EV_DONE && ev.finish == FINISH_ERROR)
			return err_set(err, ev.err.code, "%s", ev.err.msg);
	}
	return 0;
}

/* Until it is done, or with rows: until some have come. */
static int advance(struct ppl *w, struct engine *e, struct request *r, const int *rows, bool *done, struct err *err)
{
	int before = rows ? *rows : 0, rc = 0;

	while (!rc && !*done && (!rows || *rows == before)) {
		if (!engine_step(e) && !*done) {
			rc = look(r, done, err);
			if (!rc && !*done)
				rc = err_set(err, E_LIMIT,
				             "no request can run: give the keys and values more memory (--memory)");
		}
		if (!rc)
			rc = look(r, done, err);
	}
	if (!rc && w->astray)
		rc = err_set(err, E_LIMIT, "a piece of %d tokens was not read in steps of %d: give it more memory",
		             w->now.n, w->row_max);
	return rc;
}

static int read_piece(struct ppl *w, struct err *err)
{
	struct request *r = NULL, *base = NULL;
	bool done = false, base_done = false;
	int rc = submit(w, w->s.engine, &r, take_row, err);

	w->seen = w->first = w->n_row = 0;
	if (!rc && w->compare)
		rc = submit(w, w->base.engine, &base, keep_row, err);
	while (!rc && w->seen < w->now.n) {
		if (w->compare) {
			w->first = w->seen;
			w->n_row = 0;
			rc = advance(w, w->base.engine, base, &w->n_row, &base_done, err);
		}
		if (!rc)
			rc = advance(w, w->s.engine, r, &w->seen, &done, err);
		if (!rc && done && w->seen < w->now.n)
			rc = err_set(err, E_LIMIT, "%d of %d rows came", w->seen, w->now.n);
	}
	/* The last steps of the requests, which have no rows. */
	if (!rc)
		rc = advance(w, w->s.engine, r, NULL, &done, err);
	if (!rc && base)
		rc = advance(w, w->base.engine, base, NULL, &base_done, err);
	if (r)
		request_free(r);
	if (base)
		request_free(base);
	return rc;
}

static void progress(const struct ppl *w, int pieces)
{
	if (!isatty(STDERR_FILENO))
		return;
	if (pieces == w->n_piece)
		fputs("\r\033[K", stderr);
	else
		fprintf(stderr, "\r\033[Kread %zu of %zu tokens, %d of %d texts", w->gaps.n, w->ids.n, pieces,
		        w->n_piece);
	fflush(stderr);
}

static int run_ppl(struct ppl *w, struct err *err)
{
	int rc = 0;

	w->row_max = w->compare && w->base.step_rows < w->s.step_rows ? w->base.step_rows : w->s.step_rows;
	if (w->compare)
		w->row = xmalloc(size_mul(size_mul((size_t)w->row_max, (size_t)w->vocab), sizeof(*w->row)));
	for (int i = 0; i < w->n_piece && !rc; i++) {
		progress(w, i);
		w->now = w->piece[i];
		rc = read_piece(w, err);
	}
	progress(w, w->n_piece);
	return rc;
}

/* ---- what is printed ---- */

static const char *source_name(const struct ppl *w)
{
	return w->o->ids ? w->o->ids : w->o->text_file;
}

/* Appends a description of the setting that is compared. */
static void setting(struct buf *out, const struct session *s)
{
	buf_printf(out, "%s arithmetic, ", s->model->opts.arith == ARITH_F32 ? "f32" : "fast");
	kv_describe(out, s->kv, &s->model->shape);
}

static void print_table(struct ppl *w, const struct gap_summary *g)
{
	struct buf b;

	buf_init(&b);
	buf_printf(&b, "model          %s\n", w->s.store->name);
	buf_printf(&b, "read           %zu tokens in %d text%s of up to %d, %zu of them scored (%s)\n", w->ids.n,
	           w->n_piece, w->n_piece == 1 ? "" : "s", w->s.model->opts.ctx_max, w->gaps.scored, source_name(w));
	buf_puts(&b, "setting        ");
	setting(&b, &w->s);
	if (w->compare) {
		buf_puts(&b, "\nagainst        ");
		if (w->o->against == AGAINST_MODEL)
			buf_printf(&b, "%s, ", w->base.store->name);
		setting(&b, &w->base);
	}
	buf_printf(&b, "\n\nperplexity     %.4f", g->ppl_q);
	if (w->compare) {
		buf_printf(&b, "; %.4f of what it is compared with, ratio %.5f\n", g->ppl_p, g->ppl_q / g->ppl_p);
		buf_printf(
			&b,
			"KL divergence  mean %.3g (standard error %.2g), median %.3g, 99.9 %% up to %.3g, most %.3g\n",
			g->kl_mean, g->kl_error, g->kl_median, g->kl_999, g->kl_max);
		buf_printf(&b, "same top token %.3f %%", 100 * g->same_top);
	}
	buf_putc(&b, '\n');
	fwrite(b.p, 1, b.n, stdout);
	buf_fini(&b);
}

static void put_number(struct buf *b, const char *key, double v)
{
	buf_printf(b, ", \"%s\": ", key);
	json_put_double(b, v);
}

static void json_setting(struct buf *b, const char *key, const struct session *s)
{
	struct buf text;

	buf_init(&text);
	kv_describe(&text, s->kv, &s->model->shape);
	buf_printf(b, ", \"%s\": {\"arith\": \"%s\", \"kv\": ", key,
	           s->model->opts.arith == ARITH_F32 ? "f32" : "fast");
	json_put_str(b, text.p, text.n);
	buf_printf(b, ", \"kv_bytes_per_token\": %zu}", model_kv_row_bytes(&s->model->shape, &s->model->opts.kv));
	buf_fini(&text);
}

static void print_json(struct ppl *w, const struct gap_summary *g)
{
	struct buf b;

	buf_init(&b);
	buf_puts(&b, "{\"model\": ");
	json_put_cstr(&b, w->s.store->name);
	buf_puts(&b, ", \"read\": ");
	json_put_cstr(&b, source_name(w));
	buf_printf(&b, ", \"tokens\": %zu, \"texts\": %d, \"ctx_size\": %d, \"scored\": %zu", w->ids.n, w->n_piece,
	           w->s.model->opts.ctx_max, w->gaps.scored);
	json_setting(&b, "setting", &w->s);
	put_number(&b, "perplexity", g->ppl_q);
	if (w->compare) {
		json_setting(&b, "against", &w->base);
		put_number(&b, "against_perplexity", g->ppl_p);
		put_number(&b, "kl_mean", g->kl_mean);
		put_number(&b, "kl_standard_error", g->kl_error);
		put_number(&b, "kl_median", g->kl_median);
		put_number(&b, "kl_p999", g->kl_999);
		put_number(&b, "kl_max", g->kl_max);
		put_number(&b, "same_top", g->same_top);
	}
	buf_puts(&b, "}\n");
	fwrite(b.p, 1, b.n, stdout);
	buf_fini(&b);
}

/* ---- the command ---- */

static int complete(const struct options *given, struct options *o, struct err *err)
{
	*o = *given;
	if (!o->ppl.ids == !o->ppl.text_file)
		return err_set(err, E_ARG,
		               o->ppl.ids ? "--text %s and --ids %s: one of them is read" :
		                            "--text FILE or --ids FILE is needed",
		               o->ppl.text_file, o->ppl.ids);
	if (o->ppl.special && o->ppl.ids)
		return err_set(err, E_ARG, "--special is about --text, and --ids %s was given", o->ppl.ids);
	if (o->ppl.against_model)
		o->ppl.against = AGAINST_MODEL;
	o->load.parallel = o->load.queue = 1;
	o->load.prefix_bytes = 0;
	o->load.draft.n = 0;
	o->load.ctx_default = 2048;
	if ((o->ppl.against == AGAINST_BF16 && kv_policy_plain(&o->load.kv) && o->load.arith == ARITH_FAST) ||
	    (o->ppl.against == AGAINST_EXACT && kv_policy_plain(&o->load.kv) && !o->load.kv.key.bits &&
	     !o->load.kv.value.bits && o->load.arith == ARITH_F32))
		o->ppl.against = AGAINST_NONE; /* itself */
	return 0;
}

/* The other one: as this, but for what is compared. */
static int open_base(struct ppl *w, const struct host_opts *given, struct err *err)
{
	struct host_opts o = *given;
	int rc;

	if (w->o->against == AGAINST_MODEL)
		o.model = w->o->against_model;
	else
		o.kv = (struct kv_policy){ .key.bits = 16, .value.bits = 16, .skip = "none" };
	if (w->o->against == AGAINST_EXACT) {
		o.arith = ARITH_F32;
		o.kv = (struct kv_policy){ .skip = "none" };
	}
	rc = session_open(&w->base, &o, LOAD_ENGINE | LOAD_LOGITS | LOAD_BY_HAND, err);
	if (!rc && w->base.model->shape.vocab != w->vocab)
		rc = err_set(err, E_ARG, "%s has a vocabulary of %d, %s one of %d", w->base.store->name,
		             w->base.model->shape.vocab, w->s.store->name, w->vocab);
	return rc;
}

int cmd_ppl(const struct options *given)
{
	struct options o;
	struct ppl w = { .o = &o.ppl };
	struct gap_summary g;
	struct err err;
	int rc = complete(given, &o, &err);

	if (rc) {
		cli_fail("ppl", &err);
		return EXIT_USAGE;
	}
	tokens_init(&w.ids);
	rc = session_open(&w.s, &o.load,
	                  LOAD_ENGINE | LOAD_LOGITS | LOAD_BY_HAND | (o.ppl.text_file ? LOAD_TOKENIZER : 0u), &err);
	if (!rc) {
		w.vocab = w.s.model->shape.vocab;
		rc = read_all(&w, &err);
	}
	w.compare = o.ppl.against != AGAINST_NONE;
	if (!rc && w.compare)
		rc = open_base(&w, &o.load, &err);
	if (!rc)
		rc = run_ppl(&w, &err);
	if (!rc) {
		gaps_summary(&g, &w.gaps);
		if (o.ppl.json)
			print_json(&w, &g);
		else
			print_table(&w, &g);
	}
	gaps_fini(&w.gaps);
	tokens_fini(&w.ids);
	free(w.piece);
	free(w.row);
	session_close(&w.base);
	session_close(&w.s);
	return rc ? cli_fail("ppl", &err) : 0;
}
