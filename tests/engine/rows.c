/* rows.c - see rows.h. */
#include "rows.h"

#include <string.h>

#include "base/alloc.h"

static void keep(void *arg, int pos, const float *row, int vocab)
{
	struct rows *r = arg;

	if (pos < r->from)
		return;
	CHECK(pos - r->from < r->most && (size_t)vocab == r->vocab, "row %d", pos);
	memcpy(r->row + (size_t)(pos - r->from) * r->vocab, row, r->vocab * sizeof(*row));
	r->n++;
}

struct prefix_report rows_ask(struct engine *e, const int32_t *tok, int n, struct rows *rows)
{
	struct ask a = { .prompt = tok, .n_prompt = n };
	struct prefix_report report = { .resumed = -1 };
	struct request *r;
	struct event ev;
	struct err err;

	sampler_params_init(&a.sampling);
	if (rows) {
		a.on_logits = keep;
		a.on_logits_arg = rows;
		rows->n = 0;
	}
	CHECK(!engine_submit(e, &a, &r, &err), "%s", err.msg);
	while (engine_step(e))
		;
	while (request_next(r, &ev))
		if (ev.kind == EV_DONE) {
			CHECK(ev.finish == FINISH_LENGTH, "%s", ev.err.msg);
			report = ev.prefix;
		}
	request_free(r);
	CHECK(report.resumed >= 0, "no end");
	return report;
}

int rows_answer(struct engine *e, int32_t *tok, int n, int n_answer)
{
	struct ask a = { .prompt = tok, .n_prompt = n, .max_tokens = n_answer };
	struct request *r;
	struct event ev;
	struct err err;
	int got = 0;

	sampler_params_init(&a.sampling);
	a.sampling.temperature = 0;
	CHECK(!engine_submit(e, &a, &r, &err), "%s", err.msg);
	while (engine_step(e))
		;
	while (request_next(r, &ev)) {
		if (ev.kind == EV_TOKEN)
			tok[n + got++] = ev.token;
		CHECK(ev.kind != EV_DONE || ev.finish == FINISH_LENGTH, "%s", ev.err.msg);
	}
	request_free(r);
	return got ? n + got - 1 : n;
}

static void keep_row(void *arg, int pos, const float *row, int vocab)
{
	struct run *u = arg;

	CHECK(pos < u->n_row, "row %d", pos);
	u->first = u->first < 0 || pos < u->first ? pos : u->first;
	memcpy(u->row + (size_t)pos * u->vocab, row, u->vocab * sizeof *row);
}

void run_begin(struct run *u, const int32_t *prompt, int n, int n_answer, size_t vocab)
{
	CHECK(n_answer <= RUN_ANSWER_MAX, "%d tokens of answer", n_answer);
	u->vocab = vocab;
	u->n_row = n + n_answer;
	u->row = xrealloc(u->row, (size_t)u->n_row * vocab * sizeof *u->row);
	u->n_got = 0;
	u->first = -1;
	u->done = false;
	u->a.prompt = prompt;
	u->a.n_prompt = n;
	u->a.max_tokens = n_answer;
	sampler_params_init(&u->a.sampling);
	u->a.sampling.temperature = 0;
	u->a.on_logits = keep_row;
	u->a.on_logits_arg = u;
}

void run_submit(struct run *u, struct engine *e)
{
	struct err err;

	CHECK(!engine_submit(e, &u->a, &u->r, &err), "%s", err.msg);
}

void run_read(struct run *u)
{
	struct event ev;

	while (request_next(u->r, &ev)) {
		if (ev.kind == EV_TOKEN)
			u->got[u->n_got++] = ev.token;
		if (ev.kind == EV_DONE) {
			u->end = ev;
			u->done = true;
		}
	}
}

void run_free(struct run *u)
{
	CHECK(u->done, "no end");
	request_free(u->r);
}

void run_end(struct run *u, struct engine *e)
{
	while (engine_step(e))
		;
	run_read(u);
	run_free(u);
}

void run_same(const struct run *u, const struct run *want, const char *what)
{
	CHECK(u->end.finish == FINISH_LENGTH, "%s: %s", what, u->end.err.msg);
	CHECK(u->first >= 0, "%s: no row was looked at", what);
	CHECK(u->n_got == u->a.max_tokens && !memcmp(u->got, want->got, (size_t)u->n_got * sizeof *u->got),
	      "%s: another answer", what);
	for (int i = u->first; i < u->n_row - 1; i++)
		CHECK(!memcmp(u->row + (size_t)i * u->vocab, want->row + (size_t)i * u->vocab,
		              u->vocab * sizeof(float)),
		      "%s: row %d differs", what, i);
}

struct bytes {
	struct sink sink;
	struct buf buf;
};

static int put(struct sink *s, const void *p, size_t n)
{
	buf_put(&((struct bytes *)s)->buf, p, n);
	return 0;
}

void caches_bytes(struct caches *caches, int slot, int pos, struct buf *out)
{
	struct bytes b = { .sink = { put } };
	struct snaps snaps;

	CHECK(!caches_capture(caches, slot, pos, &snaps), "no room to look");
	buf_init(&b.buf);
	CHECK(!snaps_write(&snaps, &b.sink), "write");
	snaps_drop(&snaps);
	*out = b.buf;
}

void caches_held(struct caches *caches, int slot, int pos, struct buf *at, bool keep)
{
	struct buf now;

	caches_bytes(caches, slot, pos, &now);
	if (keep) {
		buf_fini(&at[pos]);
		at[pos] = now;
		return;
	}
	CHECK(at[pos].n == now.n && !memcmp(at[pos].p, now.p, now.n), "the caches differ at position %d", pos);
	buf_fini(&now);
}
