/* calibrate.c - see calibrate.h. */
#include "host/calibrate.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "host/load.h"

enum { TEXT_MAX = 64 << 20, PIECE = 512 };

static void see(void *arg, const struct weight *w, const float *x, size_t ld, int n)
{
	imatrix_add(arg, w->name, x, ld, n, w->cols);
}

/* One piece of at most PIECE tokens, from an empty cache. */
static int read_piece(struct engine *e, const int32_t *id, int n, struct err *err)
{
	struct ask a = { .prompt = id, .n_prompt = n, .no_cache = true, .n_draft = -1 };
	struct request *r = NULL;
	struct event ev;
	bool done = false;
	int rc;

	sampler_params_init(&a.sampling);
	rc = engine_submit(e, &a, &r, err);
	while (!rc && !done) {
		bool more = engine_step(e);

		while (!rc && request_next(r, &ev)) {
			done |= ev.kind == EV_DONE;
			if (ev.kind == EV_DONE && ev.finish == FINISH_ERROR)
				rc = err_set(err, ev.err.code, "%s", ev.err.msg);
		}
		if (!rc && !done && !more)
			rc = err_set(err, E_LIMIT,
			             "no request can run: give the keys and values more memory (--memory)");
	}
	if (r)
		request_free(r);
	return rc;
}

static int read_tokens(struct session *s, const char *text, size_t n, struct err *err)
{
	struct tokens ids;
	int rc;

	tokens_init(&ids);
	rc = tokenizer_encode(s->tok, text, n, TOKENIZE_AROUND, &ids, err);
	for (size_t at = 0, some; at < ids.n && !rc; at += some) {
		some = ids.n - at < PIECE ? ids.n - at : PIECE;
		rc = read_piece(s->engine, ids.id + at, (int)some, err);
	}
	tokens_fini(&ids);
	return rc;
}

static int read_all(struct session *s, const char *path, struct err *err)
{
	struct buf text;
	int rc;

	buf_init(&text);
	rc = file_read(path, TEXT_MAX, &text, err);
	if (!rc && !text.n)
		rc = err_set(err, E_FORMAT, "%s: there is no text in it", path);
	for (size_t at = 0, n; at < text.n && !rc; at += n + 1) {
		const char *end = memchr(text.p + at, '\f', text.n - at);

		n = end ? (size_t)(end - text.p) - at : text.n - at;
		if (n && (rc = read_tokens(s, text.p + at, n, err)))
			err_prefix(err, "%s", path);
	}
	buf_fini(&text);
	return rc;
}

int calibrate(struct imatrix *m, const char *text, const struct host_opts *load, struct err *err)
{
	const struct observer observer = { see, m };
	struct host_opts o = *load;
	struct session s = { 0 };
	int rc;

	*m = (struct imatrix){ 0 };
	o.arith = ARITH_F32;
	o.device = "cpu"; /* only products of the processor call the observer */
	o.parallel = o.queue = 1;
	o.prefix_bytes = 0;
	o.draft.n = 0;
	o.ctx_default = PIECE;
	rc = session_open(&s, &o, LOAD_ENGINE | LOAD_BY_HAND | LOAD_TOKENIZER, err);
	if (rc)
		return rc;
	s.be->observer = &observer;
	rc = read_all(&s, text, err);
	s.be->observer = NULL;
	imatrix_finish(m);
	for (size_t i = 0; i < s.store->n && !rc; i++)
		if (s.store->v[i]->origin)
			imatrix_rename(m, s.store->v[i]->name, s.store->v[i]->origin);
	session_close(&s);
	if (rc)
		imatrix_fini(m);
	return rc;
}
