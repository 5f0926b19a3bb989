/* known_models.c - see known_models.h. */
#include "server/known_models.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "server/api/complete.h"
#include "server/http/exchange.h"
#include "server/inside.h"
#include "server/known_switch.h"
#include "server/routes.h"
#include "text/calls/dialect.h"
#include "text/grammar/grammar.h"

/* ---- what is made from a model that is open ---- */

unsigned served_can(const struct served *d)
{
	if (!d->tokenizer)
		return d->is.can;
	return (d->tmpl ? CAN_CHAT : 0u) |
	       (d->tmpl && template_uses(served_template(d, true), "tools") ? CAN_TOOLS : 0u) |
	       (d->tmpl && speech_thinks(d->tmpl) ? CAN_THINK : 0u) | (fim_known(d->tokenizer) ? CAN_INSERT : 0u) |
	       (d->sight && d->sight->image ? CAN_SEE : 0u) | (d->sight && d->sight->sound ? CAN_HEAR : 0u);
}

static int longest_token(const struct tokenizer *t)
{
	int longest = 0;

	for (int32_t id = 0; t && id < tokenizer_size(t); id++) {
		size_t n = 0;

		if (tokenizer_token_bytes(t, id, &n) && (int)n > longest)
			longest = (int)n;
	}
	return longest;
}

void known_fill(struct known_model *m, const struct served *served)
{
	m->served = *served;
	m->longest_token = longest_token(served->tokenizer);
	image_store_init(&m->images, served->image_bytes);
	grammar_store_init(&m->grammars);
	if (!served->tmpl)
		return;
	roles_try(&m->roles[0], &m->served, false);
	m->roles[1] = m->roles[0];
	if (served->tool_tmpl)
		roles_try(&m->roles[1], &m->served, true);
	tool_needs_try(&m->tool_needs, &m->served);
}

void known_empty(struct known_model *m)
{
	vocab_free(m->vocab);
	m->vocab = NULL;
	grammar_store_fini(&m->grammars);
	image_store_fini(&m->images);
}

/* ---- the list ---- */

void known_init(struct server *s)
{
	struct known_models *k = &s->known;
	pthread_condattr_t monotonic;

	pthread_mutex_init(&k->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&k->work, &monotonic);
	pthread_cond_init(&k->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

/* Under the lock. */
static struct known_model *new_known(struct server *s, const struct served *about)
{
	struct known_model *m = xcalloc(1, sizeof *m);

	m->srv = s;
	m->about = *about;
	m->idle_ns = INT64_MAX;
	adapter_scales_init(&m->adapter_scales);
	pthread_mutex_init(&m->vocab_lock, NULL);
	m->serial = ++s->known.serials;
	return m;
}

void known_add(struct server *s, const struct served *served)
{
	struct known_models *k = &s->known;
	struct known_model *m;

	pthread_mutex_lock(&k->lock);
	m = new_known(s, served);
	k->v = xrealloc(k->v, size_mul((size_t)k->n + 1, sizeof(*k->v)));
	k->v[k->n++] = m;
	k->n_listed = k->n;
	pthread_mutex_unlock(&k->lock);
	known_fill(m, served);
	m->phase = KNOWN_LOADED;
}

static struct known_model *new_on_disk(struct server *s, const struct model_source *src)
{
	struct known_model *m = new_known(s, src->about);

	m->source = *src;
	m->bytes = src->bytes;
	m->idle_ns = src->idle_ns ? src->idle_ns : INT64_MAX;
	m->due = src->pinned && !src->why.code;
	return m;
}

/* The listed model with this source; NULL: there is none. */
static struct known_model *with_source(const struct known_models *k, const void *arg)
{
	for (int i = 0; i < k->n_listed; i++)
		if (k->v[i]->source.arg == arg)
			return k->v[i];
	return NULL;
}

void known_set(struct server *s, const struct model_source *src, int n)
{
	struct known_models *k = &s->known;
	struct known_model **v = xcalloc((size_t)n + (size_t)k->n, sizeof(*v));
	int all = n;

	pthread_mutex_lock(&k->lock);
	for (int i = 0; i < k->n_listed; i++)
		k->v[i]->removed = true;
	for (int i = 0; i < n; i++) {
		v[i] = with_source(k, src[i].arg);
		if (!v[i])
			v[i] = new_on_disk(s, &src[i]);
		v[i]->removed = false;
	}
	for (int i = 0; i < k->n; i++) {
		struct known_model *m = k->v[i];

		if (!m->removed)
			continue;
		m->asleep = true;
		m->due = m->source.pinned = false;
		v[all++] = m;
	}
	free(k->v);
	k->v = v;
	k->n = all;
	k->n_listed = n;
	pthread_cond_broadcast(&k->changed);
	pthread_cond_signal(&k->work);
	pthread_mutex_unlock(&k->lock);
}

void known_free(struct known_model *m)
{
	if (m->phase == KNOWN_LOADED)
		known_empty(m);
	if (m->phase == KNOWN_LOADED && m->source.close)
		m->source.close(m->source.arg);
	if (m->source.free)
		m->source.free(m->source.arg);
	adapter_scales_fini(&m->adapter_scales);
	pthread_mutex_destroy(&m->vocab_lock);
	free(m);
}

void known_close(struct server *s)
{
	struct known_models *k = &s->known;

	known_stop(s);
	if (k->threaded)
		pthread_join(k->thread, NULL);
	for (int i = 0; i < k->n; i++)
		known_free(k->v[i]);
	free(k->v);
	pthread_mutex_destroy(&k->lock);
	pthread_cond_destroy(&k->work);
	pthread_cond_destroy(&k->changed);
}

/* ---- names ---- */

const char *served_alias(const char **at, size_t *n)
{
	const char *own = *at;

	if (!own || !*own)
		return NULL;
	*n = strcspn(own, ",");
	*at = own + *n + (own[*n] == ',');
	return own;
}

static bool is_name(const char *name, size_t n, const char *own)
{
	return n == strlen(own) && !memcmp(name, own, n);
}

static bool is_named(const struct served *d, const char *name, size_t n)
{
	size_t len;

	if (is_name(name, n, d->name) || adapter_named(d, name, n) >= 0)
		return true;
	for (const char *at = d->aliases, *own; (own = served_alias(&at, &len));)
		if (n == len && !memcmp(name, own, n))
			return true;
	return false;
}

struct known_model *known_find(struct known_models *k, const char *name, size_t n)
{
	struct known_model *first = k->n_listed ? k->v[0] : NULL;

	for (int i = 0; i < k->n_listed; i++)
		if (is_named(known_as(k->v[i]), name, n))
			return k->v[i];
	return first && (is_name(name, n, "default") || first->about.any_model) ? first : NULL;
}

/* A 404 that lists the names there are. */
static int unknown(const struct known_models *k, const char *name, size_t n, struct problem *p)
{
	struct buf b;

	buf_init(&b);
	for (int i = 0; i < k->n_listed; i++)
		buf_printf(&b, "%s\"%s\"", !i ? "" : i + 1 < k->n_listed ? ", " : " and ", k->v[i]->about.name);
	problem_set(p, 404, "model_not_found", "model",
	            "the model \"%.*s\" is not served here; %s %s (--alias and --any-model give it other names)",
	            (int)(n < 200 ? n : 200), name, b.p ? b.p : "none", k->n_listed > 1 ? "are" : "is");
	buf_fini(&b);
	return p->status;
}

/* ollama's keep_alive: seconds, or "5m", "1h30m", "300ms"; below 0: for ever.  What is none of these, or absent, means deflt. */
static int64_t keep_alive_ns(const struct json *v, int64_t deflt)
{
	static const struct {
		const char *name;
		double ns;
	} unit[] = { { "ms", 1e6 }, { "s", 1e9 }, { "m", 60e9 }, { "h", 3600e9 } };
	enum { DAYS_MAX = 36500 };
	double all = 0, x, most = DAYS_MAX * 86400e9;
	size_t n = 0;
	const char *text = json_str(v, &n);
	char *end;

	if (!json_to_double(v, &x)) {
		all = x * 1e9;
	} else if (text && n && !text[strcspn(text, " \t\n")]) {
		for (const char *at = text; *at; at = end) {
			size_t k = 0;

			x = strtod(at, &end);
			if (end == at)
				return deflt;
			while (k < 4 && strncmp(end, unit[k].name, strlen(unit[k].name)))
				k++;
			if (k == 4 && *end)
				return deflt;
			all += x * (k < 4 ? unit[k].ns : 1e9);
			end += k < 4 ? strlen(unit[k].name) : 0;
		}
	} else {
		return deflt;
	}
	return all < 0 || !(all < most) ? INT64_MAX : (int64_t)all;
}

int known_choose(struct exchange *x, const struct json *body, struct problem *p)
{
	static const char latest[] = ":latest";
	enum { LATEST = sizeof latest - 1 };
	struct known_models *k = &x->srv->known;
	bool ollama = x->route->shape == SHAPE_OLLAMA;
	size_t n = 0;
	const char *name = json_str(json_get(body, "model"), &n);
	struct known_model *m;
	int r;

	if (!name && ollama)
		name = json_str(json_get(body, "name"), &n);
	if (!name)
		n = strlen(name = "default");
	if (ollama && n > LATEST && !memcmp(name + n - LATEST, latest, LATEST))
		n -= LATEST;
	pthread_mutex_lock(&k->lock);
	do {
		m = known_find(k, name, n);
		r = m ? known_hold(x, m, p) : unknown(k, name, n, p);
	} while (r == KNOWN_AGAIN);
	/* Each request of ollama's sets it anew. */
	if (!r && ollama && m->source.open)
		m->idle_ns = keep_alive_ns(json_get(body, "keep_alive"),
		                           m->source.idle_ns ? m->source.idle_ns : INT64_MAX);
	pthread_mutex_unlock(&k->lock);
	return r;
}

int known_name(const struct exchange *x, struct buf *name, bool *given, struct problem *p)
{
	size_t n = 0, bad;
	const char *v = exchange_query(x, "model", &n);

	*given = v != NULL;
	if (!v)
		buf_puts(name, "default");
	else if (http_unescape((struct http_slice){ v, n }, name, &bad))
		return problem_set(p, 400, NULL, "model", "?model= holds a bad percent escape");
	return 0;
}

int known_ask(struct exchange *x, struct problem *p)
{
	struct known_models *k = &x->srv->known;
	struct known_model *m;
	struct buf name;
	bool given;
	int r;

	buf_init(&name);
	r = known_name(x, &name, &given, p);
	pthread_mutex_lock(&k->lock);
	m = r ? NULL : known_find(k, name.p, name.n);
	if (!r && !m) {
		r = unknown(k, name.p, name.n, p);
	} else if (!r && m->phase != KNOWN_LOADED) {
		r = problem_set(p, 503, "model_not_loaded", "model",
		                "the model \"%s\" is not loaded; a request to it loads it", m->about.name);
	} else if (!r) {
		m->refs++;
		x->model = m;
	}
	pthread_mutex_unlock(&k->lock);
	buf_fini(&name);
	return r;
}

/* ---- looking ---- */

const char *known_phase_name(const struct known_model *m)
{
	static const char *const name[] = { "unloaded", "loading", "loaded", "unloading" };

	if (m->phase != KNOWN_ON_DISK)
		return name[m->phase];
	return m->source.why.code ? "failed" : m->asleep ? "asleep" : name[KNOWN_ON_DISK];
}

void known_each(struct server *s, void (*fn)(void *arg, const struct known_model *m), void *arg)
{
	struct known_models *k = &s->known;

	pthread_mutex_lock(&k->lock);
	for (int i = 0; i < k->n_listed; i++)
		fn(arg, k->v[i]);
	pthread_mutex_unlock(&k->lock);
}

int known_one(struct server *s, const char *name, size_t n, void (*fn)(void *arg, const struct known_model *m),
              void *arg, struct problem *p)
{
	struct known_models *k = &s->known;
	const struct known_model *m;
	int r = 0;

	pthread_mutex_lock(&k->lock);
	m = known_find(k, name, n);
	if (m)
		fn(arg, m);
	else
		r = unknown(k, name, n, p);
	pthread_mutex_unlock(&k->lock);
	return r;
}

static void add_waiting(void *arg, const struct known_model *m)
{
	struct engine_stats e;
	int *n = arg;

	*n += m->waiting;
	if (m->phase != KNOWN_LOADED)
		return;
	engine_stats(m->served.engine, &e);
	*n += e.waiting;
}

int known_waiting(struct server *s)
{
	int n = 0;

	known_each(s, add_waiting, &n);
	return n;
}
