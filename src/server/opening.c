/* opening.c - see opening.h. */
#include "server/opening.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/chat/generate.h"
#include "server/inside.h"
#include "server/known_switch.h"
#include "server/routes.h"

/* A server without an engine, with the options and the templates that a prompt's text depends on. */
struct opening {
	struct server server;
	struct known_model model;
};

struct opening *opening_begin(const struct served *d, bool drop_volatile)
{
	struct opening *o = xcalloc(1, sizeof *o);

	server_opts_default(&o->server.opts);
	o->server.opts.turn_replay = REPLAY_OFF;
	o->server.opts.drop_volatile = drop_volatile;
	o->model.srv = &o->server;
	o->model.serial = 1;
	adapter_scales_init(&o->model.adapter_scales);
	pthread_mutex_init(&o->model.vocab_lock, NULL);
	known_fill(&o->model, d);
	return o;
}

void opening_end(struct opening *o)
{
	known_empty(&o->model);
	adapter_scales_fini(&o->model.adapter_scales);
	pthread_mutex_destroy(&o->model.vocab_lock);
	free(o);
}

/* The endpoint that reads bodies sent to a path, which may have a query, or to one below it; NULL: there is none. */
static const struct endpoint *endpoint_of(const char *path)
{
	size_t n = strcspn(path, "?");

	for (const struct route *r = routes; r->path; r++) {
		size_t len = strlen(r->path);

		if (r->post && r->endpoint->read && r->endpoint->open && (r->prefix ? len < n : len == n) &&
		    !memcmp(r->path, path, len))
			return r->endpoint;
	}
	return NULL;
}

static int read_body(struct generation *g, const char *body, size_t n, struct tokens *ids, int *system, struct err *err)
{
	struct problem p = { 0 };
	struct json *j = body_parse(body, n, &p);

	if (!j || g->endpoint->read(g, j, &p))
		return err_set(err, E_ARG, "%s", p.message);
	if (g->images.n_span)
		return err_set(err, E_UNSUPPORTED, "it has images or sounds: a pack is of text");
	for (size_t i = 0; i < g->prompts.of[0].n; i++)
		tokens_put(ids, g->prompts.of[0].id[i]);
	*system = 0;
	for (int i = 0; i < g->marks.n; i++)
		if (g->marks.kind[i] == PLACE_SYSTEM)
			*system = g->marks.at[i];
	return 0;
}

int opening_render(struct opening *o, const char *path, const char *body, size_t n, int64_t now, struct tokens *ids,
                   int *system, struct err *err)
{
	const struct endpoint *endpoint = endpoint_of(path);
	struct exchange x = { .srv = &o->server, .model = &o->model, .from.key = NO_KEY };
	struct generation *g;
	int rc;

	if (!endpoint)
		return err_set(err, E_UNSUPPORTED, "%s: no path that answers chats", path);
	g = generation_new(&o->model.served, endpoint);
	g->x = &x;
	if (now)
		g->created = now;
	g->images.store = &o->model.images;
	g->images.folders = &o->server.image_folders;
	g->images.hosts = &o->server.image_hosts;
	rc = read_body(g, body, n, ids, system, err);
	generation_free(g);
	return rc;
}
