/* api_models.c - GET /v1/models and /v1/models/{id}: with what clients of the OpenAI
 * API look for and what those of Anthropic's do, for both ask there. */
#include <string.h>
#include <time.h>

#include "server/inside.h"
#include "server/routes.h"

/* name[0..n): one of the served model's, or an adapter's. */
static void put_model(struct buf *b, const struct server *s, const char *name, size_t n)
{
	const struct served_model *is = &known_default(s)->served.is;
	time_t created = (time_t)s->created;
	struct tm utc;
	char when[40];

	buf_puts(b, "{\"id\":");
	json_put_str(b, name, n);
	buf_printf(
		b,
		",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"weft\",\"max_model_len\":%d,\"type\":\"model\",\"display_name\":",
		(long long)s->created, known_default(s)->served.ctx_max);
	json_put_str(b, name, n);
	strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&created, &utc));
	if (adapter_named(&known_default(s)->served, name, n) >= 0) {
		buf_puts(b, ",\"parent\":");
		json_put_cstr(b, known_default(s)->served.name);
	}
	buf_printf(b, ",\"created_at\":\"%s\",\"max_input_tokens\":%d,\"max_tokens\":%d", when,
	           known_default(s)->served.ctx_max, known_default(s)->served.ctx_max);
	/* as llama-server has it */
	buf_printf(b, ",\"meta\":{\"n_vocab\":%d,\"n_ctx_train\":%d,\"n_embd\":%d,\"n_params\":%lld,\"size\":%lld}}",
	           known_default(s)->served.vocab, is->ctx_max, is->hidden, (long long)is->params,
	           (long long)is->bytes);
}

static void list(struct exchange *x)
{
	const struct served *d = &known_default(x->srv)->served;
	const char *at = d->aliases, *name = d->name, *next;
	size_t n = strlen(name), len;
	struct buf b;

	buf_init(&b);
	buf_puts(&b, "{\"object\":\"list\",\"data\":[");
	put_model(&b, x->srv, name, n);
	while ((next = served_alias(&at, &len))) {
		buf_putc(&b, ',');
		put_model(&b, x->srv, name = next, n = len);
	}
	for (int i = 0; i < d->n_adapter; i++) {
		buf_putc(&b, ',');
		put_model(&b, x->srv, name = d->adapter[i].name, n = strlen(d->adapter[i].name));
	}
	buf_puts(&b, "],\"has_more\":false,\"first_id\":");
	json_put_cstr(&b, d->name);
	buf_puts(&b, ",\"last_id\":");
	json_put_str(&b, name, n);
	buf_puts(&b, "}\n");
	exchange_reply(x, 200, "application/json", b.p, b.n);
	buf_fini(&b);
}

static void one(struct exchange *x)
{
	const char *own = known_default(x->srv)->served.name;
	bool same = !strcmp(x->rest.p, "default");
	struct problem p;
	struct buf b;

	if (!known_find(x->srv, x->rest.p, x->rest.n)) {
		known_unknown(x->srv, x->rest.p, x->rest.n, &p);
		exchange_refuse(x, &p);
		return;
	}
	buf_init(&b);
	put_model(&b, x->srv, same ? own : x->rest.p, same ? strlen(own) : x->rest.n);
	buf_putc(&b, '\n');
	exchange_reply(x, 200, "application/json", b.p, b.n);
	buf_fini(&b);
}

const struct endpoint models_endpoint = { .ready = list };
const struct endpoint model_endpoint = { .ready = one };
