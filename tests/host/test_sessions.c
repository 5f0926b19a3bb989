/* test_sessions - two models in one process, opened through src/host without a command line: their answers at once
 * are those that each gives alone, and their memory plans share one bound.
 *
 * Usage: test_sessions MODEL MODEL */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "host/load.h"
#include "../check.h"

enum { N_MODEL = 2, N_PROMPT = 48, N_ANSWER = 24, MB = 1 << 20 };

struct answer {
	int32_t id[N_ANSWER];
	int n;
};

static struct host_opts description(const char *model)
{
	struct host_opts o;

	host_opts_init(&o);
	o.model = model;
	o.parallel = 2;
	o.threads = 1;
	o.ctx_size = 256;
	return o;
}

static struct request *ask(struct session *s)
{
	int32_t prompt[N_PROMPT];
	struct request *r = NULL;
	struct err err = { 0 };
	struct ask a = { .prompt = prompt, .n_prompt = N_PROMPT, .max_tokens = N_ANSWER };

	for (int i = 0; i < N_PROMPT; i++)
		prompt[i] = 5 + (i * 37) % 50;
	sampler_params_init(&a.sampling);
	a.sampling.temperature = 0.8f;
	a.sampling.seed = 7;
	CHECK(!engine_submit(s->engine, &a, &r, &err), "submit: %s", err.msg);
	return r;
}

static void take(struct request *r, struct answer *out)
{
	struct event ev;

	*out = (struct answer){ .n = 0 };
	while (request_wait(r, &ev)) {
		if (ev.kind == EV_TOKEN && out->n < N_ANSWER)
			out->id[out->n++] = ev.token;
		if (ev.kind == EV_DONE) {
			CHECK(ev.finish != FINISH_ERROR, "the answer failed: %s", ev.err.msg);
			break;
		}
	}
	request_free(r);
}

static void alone(const char *model, struct answer *out)
{
	struct host_opts o = description(model);
	struct err err = { 0 };
	struct session s;

	CHECK(!session_open(&s, &o, LOAD_ENGINE, &err), "%s: %s", model, err.msg);
	take(ask(&s), out);
	session_close(&s);
	CHECK(out->n == N_ANSWER, "%s: %d tokens", model, out->n);
}

/* Both at once, three requests each, so that steps of the two engines overlap. */
static void together(const struct host_opts *o, size_t memory, const struct answer *expected)
{
	enum { EACH = 3 };
	struct request *r[N_MODEL][EACH];
	struct session s[N_MODEL];
	struct err err = { 0 };
	struct answer got;
	size_t planned = 0;

	CHECK(!sessions_open(s, o, N_MODEL, memory, LOAD_ENGINE, &err), "both: %s", err.msg);
	for (int i = 0; i < N_MODEL; i++) {
		planned += plan_total(&s[i].plan);
		/* A quarter of what fixed parts leave is for them (docs/memory.md), and each model has its part of that. */
		CHECK(s[i].plan.prefix <= memory / 4 / N_MODEL, "%s: kept prefixes of %zu bytes", o[i].model,
		      s[i].plan.prefix);
	}
	CHECK(planned <= memory, "plans of %zu bytes, %zu may be taken", planned, memory);
	for (int k = 0; k < EACH; k++)
		for (int i = 0; i < N_MODEL; i++)
			r[i][k] = ask(&s[i]);
	for (int k = 0; k < EACH; k++)
		for (int i = 0; i < N_MODEL; i++) {
			take(r[i][k], &got);
			CHECK(got.n == expected[i].n && !memcmp(got.id, expected[i].id, (size_t)got.n * sizeof *got.id),
			      "%s: another answer beside the other model (request %d)", o[i].model, k);
		}
	for (int i = 0; i < N_MODEL; i++)
		session_close(&s[i]);
}

/* What is left over is shared out evenly: a larger bound gives both models more. */
static void shares(const struct host_opts *o, size_t memory)
{
	struct session less[N_MODEL], more[N_MODEL];
	struct err err = { 0 };

	CHECK(!sessions_open(less, o, N_MODEL, memory, LOAD_ENGINE | LOAD_PLAN, &err), "%s", err.msg);
	CHECK(!sessions_open(more, o, N_MODEL, memory + 64 * (size_t)MB, LOAD_ENGINE | LOAD_PLAN, &err), "%s", err.msg);
	for (int i = 0; i < N_MODEL; i++) {
		CHECK(more[i].plan.prefix > less[i].plan.prefix, "%s: kept prefixes %zu and %zu bytes", o[i].model,
		      less[i].plan.prefix, more[i].plan.prefix);
		CHECK(less[i].plan.weights == more[i].plan.weights, "%s: weights", o[i].model);
	}
	for (int i = 0; i < N_MODEL; i++) {
		session_close(&less[i]);
		session_close(&more[i]);
	}
}

static void too_little(const struct host_opts *o)
{
	struct session s[N_MODEL];
	struct err err = { 0 };

	CHECK(sessions_open(s, o, N_MODEL, MB, LOAD_ENGINE, &err) == E_LIMIT, "two models in 1 MB: %d, %s", err.code,
	      err.msg);
	CHECK(strstr(err.msg, "2 models"), "message: %s", err.msg);
	for (int i = 0; i < N_MODEL; i++)
		CHECK(!s[i].store && !s[i].engine, "model %d is still open", i);
}

/* The second cannot be opened: the first is closed again. */
static void one_missing(const struct host_opts *o)
{
	struct host_opts bad[N_MODEL] = { o[0], o[1] };
	struct session s[N_MODEL];
	struct err err = { 0 };

	bad[1].model = "no/such-model-anywhere";
	CHECK(sessions_open(s, bad, N_MODEL, 0, LOAD_ENGINE, &err) == E_MISSING, "%d, %s", err.code, err.msg);
	CHECK(!s[0].store && !s[1].store, "a model is still open");
}

int main(int argc, char **argv)
{
	enum { MEMORY = 1200 };
	struct answer expected[N_MODEL];
	struct host_opts o[N_MODEL];

	if (argc != 1 + N_MODEL)
		return 2;
	for (int i = 0; i < N_MODEL; i++) {
		o[i] = description(argv[1 + i]);
		alone(argv[1 + i], &expected[i]);
	}
	together(o, MEMORY * (size_t)MB, expected);
	shares(o, MEMORY * (size_t)MB);
	too_little(o);
	one_missing(o);
	return 0;
}
