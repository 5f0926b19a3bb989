/* api_models.c - GET /v1/models and /v1/models/{id}: with what clients of the OpenAI
 * API look for and what those of Anthropic's do, for both ask there. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/inside.h"
#include "server/routes.h"

struct listing {
	struct buf b;
	int64_t created;
	const char *name; /* [n] the one that was asked for; NULL: all */
	size_t n;
	int count;
	char first[256], last[256];
};

void put_capabilities(unsigned can, struct buf *b)
{
	static const char *const name[] = { "chat", "tools", "thinking", "insert", "vision", "audio" };

	buf_puts(b, "[\"completion\"");
	for (size_t i = 0; i < sizeof name / sizeof *name; i++)
		if (can & 1u << i)
			buf_printf(b, ",\"%s\"", name[i]);
	buf_putc(b, ']');
}

/* name[0..n): one of the model's, or of an adapter of it. */
static void put_model(struct listing *l, const struct known_model *m, const char *name, size_t n)
{
	const struct served *d = known_as(m);
	const struct served_model *is = &d->is;
	time_t created = (time_t)l->created;
	struct buf *b = &l->b;
	struct tm utc;
	char when[40];

	buf_puts(b, l->count++ ? ",{\"id\":" : "{\"id\":");
	json_put_str(b, name, n);
	buf_printf(
		b,
		",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"weft\",\"max_model_len\":%d,\"type\":\"model\",\"display_name\":",
		(long long)l->created, d->ctx_max);
	json_put_str(b, name, n);
	strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&created, &utc));
	if (adapter_named(d, name, n) >= 0) {
		buf_puts(b, ",\"parent\":");
		json_put_cstr(b, d->name);
	} else {
		buf_puts(b, ",\"root\":"); /* an alias has another id */
		json_put_cstr(b, d->name);
	}
	buf_printf(b, ",\"created_at\":\"%s\",\"max_input_tokens\":%d,\"max_tokens\":%d", when, d->ctx_max, d->ctx_max);
	/* as llama-server has it */
	buf_printf(b, ",\"meta\":{\"n_vocab\":%d,\"n_ctx_train\":%d,\"n_embd\":%d,\"n_params\":%lld,\"size\":%lld}",
	           d->vocab, is->ctx_max, is->hidden, (long long)is->params, (long long)is->bytes);
	buf_printf(b, ",\"status\":{\"value\":\"%s\"", known_phase_name(m));
	if (m->source.open)
		buf_printf(b, ",\"bytes\":%zu,\"pinned\":%s,\"requests\":%d,\"waiting\":%d,\"loads\":%lld", m->bytes,
		           m->source.pinned ? "true" : "false", m->refs, m->waiting, (long long)m->loads);
	if (m->source.why.code || m->why.code) {
		buf_puts(b, ",\"error\":");
		json_put_cstr(b, m->source.why.code ? m->source.why.msg : m->why.msg);
	}
	buf_puts(b, "},\"capabilities\":");
	put_capabilities(served_can(d), b);
	buf_putc(b, '}');
	snprintf(l->last, sizeof l->last, "%.*s", (int)n, name);
	if (l->count == 1)
		memcpy(l->first, l->last, sizeof l->first);
}

static void put_names(void *arg, const struct known_model *m)
{
	const struct served *d = known_as(m);
	const char *at = d->aliases, *next;
	struct listing *l = arg;
	size_t len;

	put_model(l, m, d->name, strlen(d->name));
	while ((next = served_alias(&at, &len)))
		put_model(l, m, next, len);
	for (int i = 0; i < d->n_adapter; i++)
		put_model(l, m, d->adapter[i].name, strlen(d->adapter[i].name));
}

static void list(struct exchange *x)
{
	struct listing l = { .created = x->srv->created };
	size_t n;

	buf_init(&l.b);
	buf_putc(&l.b, '{');
	/* Codex wants a catalogue with its own instructions for each model.  With an empty one it goes by its settings; a list
	 * without one is an error to it. */
	if (exchange_query(x, "client_version", &n))
		buf_puts(&l.b, "\"models\":[],");
	buf_puts(&l.b, "\"object\":\"list\",\"data\":[");
	known_each(x->srv, put_names, &l);
	buf_puts(&l.b, "],\"has_more\":false,\"first_id\":");
	json_put_cstr(&l.b, l.first);
	buf_puts(&l.b, ",\"last_id\":");
	json_put_cstr(&l.b, l.last);
	buf_puts(&l.b, "}\n");
	exchange_reply(x, 200, "application/json", l.b.p, l.b.n);
	buf_fini(&l.b);
}

static void put_asked(void *arg, const struct known_model *m)
{
	struct listing *l = arg;
	bool is_default = l->n == 7 && !memcmp(l->name, "default", 7);

	put_model(l, m, is_default ? m->about.name : l->name, is_default ? strlen(m->about.name) : l->n);
}

static void one(struct exchange *x)
{
	struct listing l = { .created = x->srv->created, .name = x->rest.p, .n = x->rest.n };
	struct problem p;

	buf_init(&l.b);
	if (known_one(x->srv, x->rest.p, x->rest.n, put_asked, &l, &p)) {
		exchange_refuse(x, &p);
	} else {
		buf_putc(&l.b, '\n');
		exchange_reply(x, 200, "application/json", l.b.p, l.b.n);
	}
	buf_fini(&l.b);
}

const struct endpoint models_endpoint = { .ready = list };
const struct endpoint model_endpoint = { .ready = one };
