/* rows.c - see rows.h. */
#include "rows.h"

#include <string.h>

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
