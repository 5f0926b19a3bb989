/* known_models.c - see known_models.h. */
#include "server/known_models.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/http/exchange.h"
#include "server/inside.h"
#include "server/routes.h"
#include "text/grammar/grammar.h"

/* ---- what is made from a model that is open ---- */

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

static void known_fill(struct known_model *m, const struct served *served)
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

static void known_empty(struct known_model *m)
{
	vocab_free(m->vocab);
	grammar_store_fini(&m->grammars);
	image_store_fini(&m->images);
}

/* ---- the list ---- */

void known_add(struct server *s, const struct served *served)
{
	struct known_models *all = &s->known;
	struct known_model *m = xcalloc(1, sizeof *m);

	m->srv = s;
	m->serial = (uint64_t)all->n;
	adapter_scales_init(&m->adapter_scales);
	pthread_mutex_init(&m->vocab_lock, NULL);
	known_fill(m, served);
	all->v = xrealloc(all->v, size_mul((size_t)all->n + 1, sizeof *all->v));
	all->v[all->n++] = m;
}

void known_close(struct server *s)
{
	struct known_models *all = &s->known;

	for (int i = 0; i < all->n; i++) {
		struct known_model *m = all->v[i];

		known_empty(m);
		adapter_scales_fini(&m->adapter_scales);
		pthread_mutex_destroy(&m->vocab_lock);
		free(m);
	}
	free(all->v);
	*all = (struct known_models){ 0 };
}

struct known_model *known_default(const struct server *s)
{
	return s->known.v[0];
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

struct known_model *known_find(const struct server *s, const char *name, size_t n)
{
	for (int i = 0; i < s->known.n; i++)
		if (is_named(&s->known.v[i]->served, name, n))
			return s->known.v[i];
	if (is_name(name, n, "default") || known_default(s)->served.any_model)
		return known_default(s);
	return NULL;
}

int known_unknown(const struct server *s, const char *name, size_t n, struct problem *p)
{
	struct buf b;

	buf_init(&b);
	for (int i = 0; i < s->known.n; i++)
		buf_printf(&b, "%s\"%s\"", !i ? "" : i + 1 < s->known.n ? ", " : " and ", s->known.v[i]->served.name);
	problem_set(p, 404, "model_not_found", "model",
	            "the model \"%.*s\" is not served here; %s %s (--alias and --any-model give it other names)",
	            (int)(n < 200 ? n : 200), name, b.p, s->known.n > 1 ? "are" : "is");
	buf_fini(&b);
	return p->status;
}

int known_choose(struct exchange *x, const struct json *body, struct problem *p)
{
	static const char latest[] = ":latest";
	enum { LATEST = sizeof latest - 1 };
	bool ollama = x->route->shape == SHAPE_OLLAMA;
	size_t n = 0;
	const char *name = json_str(json_get(body, "model"), &n);

	if (!name && ollama)
		name = json_str(json_get(body, "name"), &n);
	if (!name) {
		x->model = known_default(x->srv);
		return 0;
	}
	if (ollama && n > LATEST && !memcmp(name + n - LATEST, latest, LATEST))
		n -= LATEST;
	x->model = known_find(x->srv, name, n);
	return x->model ? 0 : known_unknown(x->srv, name, n, p);
}

int known_waiting(const struct server *s)
{
	int n = 0;

	for (int i = 0; i < s->known.n; i++) {
		struct engine_stats e;

		engine_stats(s->known.v[i]->served.engine, &e);
		n += e.waiting;
	}
	return n;
}
