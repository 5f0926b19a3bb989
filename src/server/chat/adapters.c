/* adapters.c - see adapters.h; and GET and POST /lora-adapters, llama-server's. */
#include "server/chat/adapters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "server/chat/fields.h"
#include "server/inside.h"
#include "server/routes.h"

enum { SCALE_MOST = 1000 };

void adapter_scales_init(struct adapter_scales *s)
{
	memset(s->of, 0, sizeof s->of);
	pthread_mutex_init(&s->lock, NULL);
}

void adapter_scales_fini(struct adapter_scales *s)
{
	pthread_mutex_destroy(&s->lock);
}

int adapter_named(const struct served *d, const char *name, size_t n)
{
	for (int i = 0; i < d->n_adapter; i++)
		if (n == strlen(d->adapter[i].name) && !memcmp(name, d->adapter[i].name, n))
			return i;
	return -1;
}

/* A list of {"id", "scale"}; at: its place, for messages.  Those that it leaves out have scale 0. */
static int read_list(const struct json *list, const char *at, const struct served *d, float *scale, struct problem *p)
{
	static const struct field known[] = { { "id" }, { "scale" }, { NULL } };
	static const struct field *const tables[] = { known, NULL };
	int r = 0;

	if (json_kind(list) != JSON_ARRAY)
		return field_wrong(p, at, "a list of objects with id and scale", list);
	for (size_t i = 0; i < json_len(list) && !r; i++) {
		const struct json *one = json_at(list, i);
		int64_t id = -1;
		double s = 1;
		struct warnings w;

		if (json_kind(one) != JSON_OBJECT || json_kind(json_get(one, "id")) == JSON_NULL)
			return field_wrong(p, at, "a list of objects with id and scale", one);
		warnings_init(&w);
		if (!(r = fields_check(one, at, tables, &w, p)) && w.unknown.n)
			r = problem_set(p, 400, "unknown_field", at, "unknown fields: %s", w.unknown.p);
		warnings_fini(&w);
		if (!r)
			r = field_int(one, "id", 0, INT32_MAX, &id, p);
		if (!r)
			r = field_number(one, "scale", -SCALE_MOST, SCALE_MOST, &s, p);
		if (!r && id >= d->n_adapter)
			r = problem_set(p, 400, "invalid_value", at,
			                "there is no adapter with id %lld; there are %d (--lora)", (long long)id,
			                d->n_adapter);
		if (!r)
			scale[id] = (float)s;
	}
	return r;
}

int adapters_read(struct wanted_adapters *w, const struct served *d, struct adapter_scales *scales, const char *model,
                  size_t n, const struct json *body, struct problem *p)
{
	const struct json *list = json_get(body, "lora");
	int at = model ? adapter_named(d, model, n) : -1, some = 0, r;
	float scale[SERVED_ADAPTERS_MAX] = { 0 };

	w->n = 0;
	w->name = at < 0 ? NULL : d->adapter[at].name;
	if (json_kind(list) != JSON_NULL) {
		if ((r = read_list(list, "lora", d, scale, p)))
			return r;
	} else if (at >= 0) {
		scale[at] = d->adapter[at].scale;
	} else if (scales) {
		pthread_mutex_lock(&scales->lock);
		memcpy(scale, scales->of, sizeof scale);
		pthread_mutex_unlock(&scales->lock);
	}
	for (int i = 0; i < d->n_adapter; i++) {
		w->of[w->n] = d->adapter[i].of;
		w->scale[w->n] = scale[i];
		w->n += scale[i] != 0;
		some += scale[i] != 0;
	}
	if (some > ASK_ADAPTERS_MAX)
		return problem_set(p, 400, "invalid_value", "lora", "%d adapters at once; at most %d are done", some,
		                   ASK_ADAPTERS_MAX);
	return 0;
}

/* ---- /lora-adapters ---- */

static void list(struct exchange *x)
{
	const struct served *d;
	struct adapter_scales *s;
	struct problem p;
	struct buf b;

	if (known_ask(x, &p)) {
		exchange_refuse(x, &p);
		return;
	}
	d = &x->model->served;
	s = &x->model->adapter_scales;

	buf_init(&b);
	buf_putc(&b, '[');
	pthread_mutex_lock(&s->lock);
	for (int i = 0; i < d->n_adapter; i++) {
		buf_printf(&b, "%s{\"id\":%d,\"name\":", i ? "," : "", i);
		json_put_cstr(&b, d->adapter[i].name);
		buf_puts(&b, ",\"path\":");
		json_put_cstr(&b, d->adapter[i].path);
		buf_puts(&b, ",\"scale\":");
		json_put_double(&b, (double)s->of[i]);
		buf_putc(&b, '}');
	}
	pthread_mutex_unlock(&s->lock);
	buf_puts(&b, "]\n");
	exchange_reply(x, 200, "application/json", b.p, b.n);
	buf_fini(&b);
}

/* The body is the list itself, which no other body is. */
static void set_prep(struct exchange *x)
{
	struct known_model *m;
	struct adapter_scales *s;
	float scale[SERVED_ADAPTERS_MAX] = { 0 };
	struct json *body;
	struct err err;

	body = json_parse(x->body.p, x->body.n, 0, &err);
	if (!body) {
		problem_set(&x->problem, 400, "invalid_json", NULL, "the body is not JSON: %s", err.msg);
		return;
	}
	if (known_ask(x, &x->problem)) {
		json_free(body);
		return;
	}
	m = x->model;
	s = &m->adapter_scales;
	if (!read_list(body, "the body", &m->served, scale, &x->problem)) {
		pthread_mutex_lock(&s->lock);
		memcpy(s->of, scale, sizeof scale);
		pthread_mutex_unlock(&s->lock);
		log_info("the adapters of %s have other scales from now on", m->served.name);
	}
	json_free(body);
}

static void set_ready(struct exchange *x)
{
	static const char done[] = "{\"success\":true}\n";

	exchange_reply(x, 200, "application/json", done, sizeof done - 1);
}

const struct endpoint adapters_endpoint = { .ready = list };
const struct endpoint adapters_set_endpoint = { .prep = set_prep, .ready = set_ready };
