/* logits.c - `weft logits`: token ids in, the logits of every position out.
 *
 * Through the engine that serves, so that what is compared is what is served.
 * How the work is cut (--split), what else runs (--alongside), where it is
 * interrupted (--resume-at) and what was computed before (--warm) may change no bit. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rng.h"
#include "bench/ids.h"
#include "cli/cli.h"
#include "host/load.h"
#include "host/load_image.h"
#include "model/media.h"
#include "store/safetensors.h"

enum { STEP_ROWS_MAX = 65536, IMAGE_ROWS = 2048 };

struct work {
	const struct logits_options *o;
	struct session s;
	struct ids prompt_file, warm_file;
	struct media **media; /* [n_media] the images */
	int n_media;
	struct seen_ids prompt, before; /* the files' ids with images in full */
	const int32_t *ids, *warm;
	int32_t *greedy;
	int n, n_greedy, n_warm; /* prompt; tokens decoded so far; the prompt before it */
	int common;              /* tokens that both prompts begin with */
	int vocab, n_row;        /* rows wanted: the prompt's and all but the last decoded one's */
	float *row;              /* [n_row][vocab] */
	bool *seen;              /* [n_row] */
	int rows_seen;
	struct request **other; /* [alongside] */
	int started;            /* others so far, for their tokens */
};

/* ---- the ids ---- */

static int check_ids(const struct work *w, struct err *err)
{
	int ctx = w->s.model->opts.ctx_max, at = w->o->resume_at;

	int rc = ids_check(&w->prompt_file, w->o->ids, w->vocab, err);

	if (!rc)
		rc = ids_check(&w->warm_file, w->o->warm, w->vocab, err);
	if (rc)
		return rc;
	if (w->n_warm > ctx)
		return err_set(err, E_LIMIT, "%d ids in %s do not fit a context of %d", w->n_warm, w->o->warm, ctx);
	if (w->n > ctx - w->o->greedy)
		return err_set(err, E_LIMIT, "%d ids and %d more do not fit a context of %d", w->n, w->o->greedy, ctx);
	if (at && at >= w->n + w->o->greedy)
		return err_set(err, E_ARG, "--resume-at %d is not inside the %d positions that are computed", at,
		               w->n + (w->o->greedy ? w->o->greedy - 1 : 0));
	return 0;
}

/* ---- running ---- */

static void keep_row(void *arg, int pos, const float *row, int vocab)
{
	struct work *w = arg;

	if (pos >= w->n_row)
		return;
	memcpy(w->row + (size_t)pos * (size_t)vocab, row, (size_t)vocab * sizeof(*row));
	w->rows_seen += !w->seen[pos];
	w->seen[pos] = true;
}

/* Keeps a row of the prompt that ran before, if the prompt begins with the same ids: it is not computed again. */
static void keep_common_row(void *arg, int pos, const float *row, int vocab)
{
	const struct work *w = arg;

	if (pos < w->common)
		keep_row(arg, pos, row, vocab);
}

static void ask_init(struct ask *a, const struct work *w)
{
	*a = (struct ask){ .no_cache = !w->n_warm, .split = w->o->split.v, .n_split = w->o->split.n };
	sampler_params_init(&a->sampling);
	a->sampling.temperature = 0;
	a->adapters = loaded_ask(&w->s.adapters);
}

/* Another sequence: its own tokens, its own length, decoding until it is stopped. */
static int start_other(struct work *w, int i, struct err *err)
{
	int n = 1 + (w->n - 1) * (i + 1) / (w->o->alongside + 1), rc;
	int32_t *ids = xcalloc((size_t)n, sizeof(*ids));
	struct ask a;

	ask_init(&a, w);
	for (int k = 0; k < n; k++)
		ids[k] = (int32_t)(rng_bits((uint64_t)w->started, (uint64_t)k, 0) % (uint64_t)w->vocab);
	w->started++;
	a.adapters.n = 0; /* these have none */
	a.prompt = ids;
	a.n_prompt = n;
	a.max_tokens = w->s.model->opts.ctx_max;
	rc = engine_submit(w->s.engine, &a, &w->other[i], err);
	free(ids);
	return rc;
}

/* One that came to the end of its context makes room for a new one. */
static int keep_others_going(struct work *w, struct err *err)
{
	for (int i = 0; i < w->o->alongside; i++) {
		struct event ev;
		int rc;

		while (w->other[i] && request_next(w->other[i], &ev))
			if (ev.kind == EV_DONE) {
				request_free(w->other[i]);
				w->other[i] = NULL;
				if ((rc = start_other(w, i, err)))
					return rc;
			}
	}
	return 0;
}

/* The prompt before it, whole, with its state kept where the two part. */
static int run_warm(struct work *w, struct err *err)
{
	struct request *r;
	struct event ev;
	struct ask a;
	int rc;

	while (w->common < w->n && w->common < w->n_warm && w->ids[w->common] == w->warm[w->common])
		w->common++;
	ask_init(&a, w);
	a.prompt = w->warm;
	a.n_prompt = w->n_warm;
	a.span = w->before.span;
	a.n_span = w->before.n_span;
	a.mark = &w->common;
	a.n_mark = 1;
	a.on_logits = keep_common_row;
	a.on_logits_arg = w;
	rc = engine_submit(w->s.engine, &a, &r, err);
	if (rc)
		return rc;
	while (request_wait(r, &ev))
		if (ev.kind == EV_DONE && ev.finish == FINISH_ERROR)
			rc = err_set(err, ev.err.code, "%s: %s", w->o->warm, ev.err.msg);
	request_free(r);
	return rc;
}

static int run_logits(struct work *w, struct err *err)
{
	struct request *r = NULL;
	struct event ev;
	struct ask a;
	int rc = 0;

	w->other = xcalloc((size_t)w->o->alongside + 1, sizeof(struct request *));
	for (int i = 0; i < w->o->alongside && !rc; i++)
		rc = start_other(w, i, err);
	ask_init(&a, w);
	a.prompt = w->ids;
	a.n_prompt = w->n;
	a.span = w->prompt.span;
	a.n_span = w->prompt.n_span;
	a.max_tokens = w->o->greedy;
	a.resume_at = w->o->resume_at;
	a.on_logits = keep_row;
	a.on_logits_arg = w;
	if (!rc && w->n_warm)
		rc = run_warm(w, err);
	if (!rc)
		rc = engine_submit(w->s.engine, &a, &r, err);
	while (!rc && request_wait(r, &ev)) {
		rc = keep_others_going(w, err);
		if (ev.kind == EV_TOKEN && w->n_greedy < w->o->greedy)
			w->greedy[w->n_greedy++] = ev.token;
		else if (ev.kind == EV_DONE && ev.finish == FINISH_ERROR)
			rc = err_set(err, ev.err.code, "%s", ev.err.msg);
		else if (ev.kind == EV_DONE && w->n_warm)
			log_info("%d tokens, %d in common with the ones before, resumed at %d (%s, %s)", w->n,
			         w->common, ev.prefix.resumed, prefix_source_name(ev.prefix.source),
			         prefix_reason_name(ev.prefix.reason));
	}
	if (r)
		request_free(r);
	for (int i = 0; i < w->o->alongside; i++)
		if (w->other[i])
			request_free(w->other[i]);
	free(w->other);
	if (!rc && (w->rows_seen != w->n_row || w->n_greedy != w->o->greedy))
		rc = err_set(err, E_LIMIT, "%d of %d rows and %d of %d tokens came", w->rows_seen, w->n_row,
		             w->n_greedy, w->o->greedy);
	return rc;
}

static int write_out(const struct work *w, struct err *err)
{
	struct tensor_out out[3] = {
		{ "logits", DT_F32, 2, { w->n, w->vocab }, w->row },
		{ "greedy_ids", DT_I32, 1, { w->n_greedy }, w->greedy },
		{ "step_logits", DT_F32, 2, { w->n_greedy, w->vocab }, w->row + (size_t)(w->n - 1) * (size_t)w->vocab },
	};

	return safetensors_write(w->o->out, out, w->n_greedy ? 3 : 1, err);
}

/* ---- the command ---- */

/* Slots for all; steps in which every chunk that was asked for fits. */
static int complete(const struct options *given, struct options *o, struct err *err)
{
	int most = 0;

	*o = *given;
	if (!o->logits.ids || !o->logits.out)
		return err_set(err, E_ARG, "--ids FILE and --out FILE are needed");
	for (int i = 0; i < o->logits.split.n; i++)
		most = o->logits.split.v[i] > most ? o->logits.split.v[i] : most;
	o->load.parallel = o->load.queue = 1 + o->logits.alongside;
	if (!o->logits.warm)
		o->load.prefix_bytes = 0;
	if (most > STEP_ROWS_MAX / o->load.parallel)
		return err_set(err, E_LIMIT, "--split: %d sequences of %d tokens are more than %d in a step",
		               o->load.parallel, most, STEP_ROWS_MAX);
	if (o->logits.images.n && o->load.step_rows < IMAGE_ROWS) /* whose rows may not be cut */
		o->load.step_rows = IMAGE_ROWS;
	if (o->load.step_rows < most * o->load.parallel)
		o->load.step_rows = most * o->load.parallel;
	return 0;
}

/* The ids of both prompts, with images in them. */
static int take_ids(struct work *w, struct err *err)
{
	int rc = 0;

	w->media = xcalloc((size_t)w->o->images.n + 1, sizeof(struct media *));
	for (int i = 0; i < w->o->images.n && !rc; i++, w->n_media += !rc)
		rc = media_of_file(&w->s, w->o->images.v[i], &w->media[i], err);
	if (!rc)
		rc = media_into_ids(&w->s, w->media, w->n_media, w->prompt_file.id, w->prompt_file.n, false, &w->prompt,
		                    err);
	if (!rc)
		rc = media_into_ids(&w->s, w->media, w->n_media, w->warm_file.id, w->warm_file.n, true, &w->before,
		                    err);
	w->ids = w->prompt.id;
	w->n = w->prompt.n;
	w->warm = w->before.id;
	w->n_warm = w->before.n;
	return rc;
}

static void drop_ids(struct work *w)
{
	seen_ids_fini(&w->prompt);
	seen_ids_fini(&w->before);
	for (int i = 0; i < w->n_media; i++)
		media_unref(w->media[i]);
	free(w->media);
	ids_fini(&w->prompt_file);
	ids_fini(&w->warm_file);
}

int cmd_logits(const struct options *given)
{
	struct options o;
	struct work w = { .o = &o.logits };
	struct err err;
	int rc = complete(given, &o, &err);

	if (rc) {
		cli_fail("logits", &err);
		return EXIT_USAGE;
	}
	rc = ids_read_one(&w.prompt_file, o.logits.ids, &err);
	if (!rc && o.logits.warm)
		rc = ids_read_one(&w.warm_file, o.logits.warm, &err);
	if (!rc)
		rc = session_open(&w.s, &o.load, LOAD_ENGINE | LOAD_LOGITS | (o.logits.images.n ? LOAD_TOWER : 0),
		                  &err);
	if (!rc)
		rc = take_ids(&w, &err);
	if (!rc) {
		w.vocab = w.s.model->shape.vocab;
		rc = check_ids(&w, &err);
	}
	if (!rc) {
		w.n_row = w.n + (o.logits.greedy ? o.logits.greedy - 1 : 0);
		w.row = xmalloc(size_mul(size_mul((size_t)w.n_row, (size_t)w.vocab), sizeof(*w.row)));
		w.seen = xcalloc((size_t)w.n_row, sizeof(*w.seen));
		w.greedy = xcalloc((size_t)o.logits.greedy + 1, sizeof(*w.greedy));
		rc = run_logits(&w, &err);
	}
	if (!rc)
		rc = write_out(&w, &err);
	engine_close(w.s.engine); /* which has references to images */
	w.s.engine = NULL;
	drop_ids(&w);
	session_close(&w.s);
	free(w.row);
	free(w.seen);
	free(w.greedy);
	return rc ? cli_fail("logits", &err) : 0;
}
