/* serve_several.c - several models behind one server: docs/several-models.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/log.h"
#include "base/ticket.h"
#include "cli/pull.h"
#include "cli/serving.h"
#include "cli/options/several_options.h"
#include "host/load.h"
#include "host/several.h"
#include "server/server.h"

/* Options that were read after the start, and how many of the offers below have theirs from them. */
struct reading {
	struct options o;
	int users;
};

/* One model, as the server loads and unloads it. */
struct offer {
	struct options o;     /* the model's, with its share of memory and its folder of prefixes */
	struct reading *from; /* NULL: the options of the start, which outlive the server */
	struct served about;
	struct model_source source; /* all 0: it is not planned yet */
	char *names;
	char *dir;
	char *arch;
	struct serving *open; /* NULL: it is not loaded */
};

struct offers {
	struct offer **v; /* [n] */
	int n;
};

struct several {
	struct server *server;
	const struct options *o; /* of the start */
	struct ticket_lock turn;
	char *base;           /* the folders of prefixes are in it */
	size_t budget;        /* bytes of all models together */
	struct offers offers; /* those that the server knows; it frees those that are removed */
};

/* ---- the source of one ---- */

static int open_model(void *arg, struct served *out, struct err *err)
{
	struct offer *f = arg;
	int rc = serving_open(&f->open, &f->o, err);

	if (!rc)
		*out = *serving_served(f->open);
	return rc;
}

static void close_model(void *arg)
{
	struct offer *f = arg;

	serving_close(f->open);
	f->open = NULL;
}

static void reading_leave(struct reading *r)
{
	if (!r || --r->users)
		return;
	options_fini(&r->o);
	free(r);
}

static void free_model(void *arg)
{
	struct offer *f = arg;

	reading_leave(f->from);
	free(f->names);
	free(f->dir);
	free(f->arch);
	free(f);
}

/* ---- where prefixes are kept ---- */

static int prefix_folder(const struct options *o, struct buf *out, struct err *err)
{
	const char *home = getenv("HOME"), *cache = getenv("XDG_CACHE_HOME");

	if (o->load.disk.dir) {
		buf_puts(out, o->load.disk.dir);
		return 0;
	}
	if (cache && *cache == '/')
		buf_printf(out, "%s/weft/prefixes", cache);
	else if (home && *home)
		buf_printf(out, "%s/.cache/weft/prefixes", home);
	else
		return err_set(err, E_ARG, "several models keep prefixes on disk: --prompt-cache-dir DIR says where");
	log_info("prompt prefixes are kept in %s, so that a model that was unloaded computes none of them again "
	         "(--prompt-cache-dir names another folder)",
	         out->p);
	return 0;
}

/* The model's folder below base, to be freed: the last part of its path, so that a person finds it, and a digest of the whole. */
static char *own_folder(const char *base, const struct options *m)
{
	const char *last = strrchr(m->load.model, '/');
	struct digest d;
	struct sha256 h;
	struct buf b;
	size_t from;

	sha256_init(&h);
	sha256_field(&h, m->load.model, strlen(m->load.model));
	sha256_end(&h, &d);
	buf_init(&b);
	buf_printf(&b, "%s/", base);
	from = b.n;
	buf_printf(&b, "%.60s", last && last[1] ? last + 1 : m->load.model);
	for (size_t i = from; i < b.n; i++)
		if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.", b.p[i]))
			b.p[i] = '_';
	buf_printf(&b, "-%02x%02x%02x%02x", d.b[0], d.b[1], d.b[2], d.b[3]);
	return buf_take(&b);
}

/* ---- planning ---- */

/* Fills what is known of offer i while it is not loaded.  Nothing of the session, which is closed afterwards, is kept. */
static void told(void *arg, int i, const struct session *s)
{
	const struct offers *fresh = arg;
	struct offer *f = fresh->v[i];
	struct served d;

	serving_fill(&f->o, s, &d, &f->names);
	if (d.name == s->store->name) {
		free(f->names);
		d.name = f->names = xstrdup(s->store->name);
	}
	f->arch = xstrdup(d.is.arch);
	f->about = (struct served){
		.is = d.is,
		.name = d.name,
		.aliases = d.aliases,
		.any_model = d.any_model,
		.ctx_max = s->plan.ctx_fits,
		.vocab = d.vocab,
	};
	f->about.is.arch = f->arch;
	f->about.is.can = served_can(&d) | (s->tower ? CAN_SEE : 0u) | (s->ear ? CAN_HEAR : 0u);
	free((void *)d.adapter);
}

/* Fills `about` of a model that cannot be opened, of which only the name is known. */
static void name_only(struct offer *f)
{
	const char *last = strrchr(f->o.load.model, '/');

	f->names = xstrdup(f->o.alias.n ? f->o.alias.v[0] : last && last[1] ? last + 1 : f->o.load.model);
	f->names[strcspn(f->names, ",")] = 0;
	f->about = (struct served){ .name = f->names };
}

/* No two models have one name. */
static int names_differ(const struct offers *all, struct err *err)
{
	for (int i = 0; i < all->n; i++)
		for (int k = 0; k < i; k++)
			if (!strcmp(all->v[i]->about.name, all->v[k]->about.name))
				return err_set(
					err, E_ARG,
					"%s and %s would both be called %s: alias = NAME in a [model] section gives one of "
					"them another name",
					all->v[k]->o.load.model, all->v[i]->o.load.model, all->v[i]->about.name);
	return 0;
}

/* The pinned models fit together. */
static int pinned_fit(const struct several *v, const struct offers *all, struct err *err)
{
	size_t bytes = 0;

	for (int i = 0; i < all->n; i++)
		bytes += all->v[i]->o.its.pinned ? all->v[i]->source.bytes : 0;
	return bytes <= v->budget ? 0 :
	                            err_set(err, E_LIMIT, "the pinned models take %zu MB, and models may take %zu MB",
	                                    bytes >> 20, v->budget >> 20);
}

static bool same(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

/* The offer of a model that is as it was; NULL: it is new, or changed, or could not be loaded. */
static struct offer *find_offer(const struct several *v, const struct options *m)
{
	for (int i = 0; i < v->offers.n; i++) {
		struct offer *f = v->offers.v[i];

		if (!f->source.why.code && same(f->o.load.model, m->load.model) &&
		    same(f->o.its.section, m->its.section))
			return f;
	}
	return NULL;
}

static struct offer *make_offer(struct several *v, const struct options *o, int i, struct reading *from)
{
	struct offer *f = xcalloc(1, sizeof *f);

	f->o = o->several.model[i];
	f->from = from;
	if (from)
		from->users++;
	f->dir = own_folder(v->base, &f->o);
	f->o.load.disk.dir = f->dir;
	f->o.load.disk.packs_differ = true;
	f->o.load.disk.bytes /= (size_t)o->several.n_model;
	f->o.load.turn = &v->turn;
	f->o.serve.any_model = o->serve.any_model && !i;
	return f;
}

static void fill_source(struct offer *f, const struct one_of_several *plan)
{
	f->source = (struct model_source){ .about = &f->about,
		                           .open = open_model,
		                           .close = close_model,
		                           .free = free_model,
		                           .arg = f,
		                           .bytes = plan->bytes,
		                           .idle_ns = (int64_t)f->o.its.unload_after * 1000000000,
		                           .pinned = f->o.its.pinned,
		                           .why = plan->why,
		                           .folder = f->dir };
	if (plan->why.code)
		log_warn("%s: %s", f->about.name, plan->why.msg);
	else
		log_info("%s: up to %zu MB when it is loaded, context %d%s", f->about.name, plan->bytes >> 20,
		         f->about.ctx_max, f->o.its.pinned ? ", pinned" : "");
}

/* Takes those that turn out to be no models out of the list.  A model that was named and cannot be loaded is an error, unless it
 * only lacks memory; one that was found is left out. */
static int check_plans(struct offers *all, const struct offers *fresh, const struct one_of_several *plan,
                       struct err *err)
{
	int n = 0;

	for (int i = 0; i < fresh->n; i++) {
		struct offer *f = fresh->v[i];

		if (plan[i].why.code && plan[i].why.code != E_LIMIT && !f->o.its.found) {
			*err = plan[i].why;
			return err->code;
		}
		if (plan[i].why.code)
			name_only(f);
		if (plan[i].why.code && plan[i].why.code != E_LIMIT)
			log_warn("%s is left out: %s", f->o.load.model, plan[i].why.msg);
		else
			fill_source(f, &plan[i]);
	}
	for (int i = 0; i < all->n; i++) {
		if (all->v[i]->source.open)
			all->v[n++] = all->v[i];
		else
			free_model(all->v[i]);
	}
	all->n = n;
	return n ? names_differ(all, err) : err_set(err, E_MISSING, "none of the models can be loaded");
}

/* Plans the models that are not planned yet. */
static int plan_new(const struct several *v, struct offers *all, struct err *err)
{
	struct one_of_several *plan = xcalloc((size_t)all->n, sizeof *plan);
	struct offers fresh = { .v = xcalloc((size_t)all->n, sizeof(*fresh.v)) };
	size_t taken = 0;
	int rc;

	for (int i = 0; i < all->n; i++) {
		struct offer *f = all->v[i];

		taken += f->source.bytes;
		if (f->source.open)
			continue;
		plan[fresh.n].o = &f->o.load;
		fresh.v[fresh.n++] = f;
	}
	several_plan(plan, fresh.n, v->budget, taken, told, &fresh);
	rc = check_plans(all, &fresh, plan, err);
	free(fresh.v);
	free(plan);
	return rc ? rc : pinned_fit(v, all, err);
}

/* Sets the server's models to those that o names.  On an error they are as before.  from: the options that o is part of. */
static int set_models(struct several *v, const struct options *o, struct reading *from, int *added, struct err *err)
{
	struct offers all = { .v = xcalloc((size_t)o->several.n_model, sizeof(*all.v)) };
	struct model_source *source = xcalloc((size_t)o->several.n_model, sizeof *source);
	int rc = 0;

	for (int i = 0; i < o->several.n_model; i++) {
		struct offer *f = find_offer(v, &o->several.model[i]);

		all.v[all.n++] = f ? f : make_offer(v, o, i, from);
	}
	rc = plan_new(v, &all, err);
	*added = 0;
	for (int i = 0; i < all.n; i++) {
		bool old = find_offer(v, &all.v[i]->o) == all.v[i];

		*added += !old;
		source[i] = all.v[i]->source;
		if (rc && !old)
			free_model(all.v[i]);
	}
	if (rc) {
		free(all.v);
	} else {
		free(v->offers.v);
		v->offers = all;
		server_set_models(v->server, source, all.n);
	}
	free(source);
	return rc;
}

/* Reads the sections of the file and the folder of models again. */
static void read_models_again(void *arg)
{
	struct several *v = arg;
	struct reading *r = xcalloc(1, sizeof *r);
	int before = v->offers.n, added, rc;
	struct err err;

	r->users = 1;
	rc = options_again(v->o, &r->o, &err);
	if (!rc)
		rc = set_models(v, &r->o, r, &added, &err);
	if (rc)
		log_error("SIGHUP: the old models stay: %s", err.msg);
	else
		log_info("SIGHUP: read the models again: %d new, %d gone", added, before + added - v->offers.n);
	reading_leave(r);
}

/* ---- all ---- */

int several_begin(struct several **out, struct server *server, const struct options *o, struct err *err)
{
	struct several *v = *out = xcalloc(1, sizeof *v);
	bool again = o->several.file || o->several.dir;
	struct buf base;
	int rc, added;

	v->server = server;
	v->o = o;
	ticket_init(&v->turn);
	buf_init(&base);
	rc = prefix_folder(o, &base, err);
	v->base = buf_take(&base);
	for (int i = 0; i < o->several.n_model && !rc; i++)
		rc = pull_if_missing(&o->several.model[i], err);
	if (rc)
		return rc;
	v->budget = several_budget(o->load.memory_bytes);
	if ((rc = set_models(v, o, NULL, &added, err)))
		return rc;
	log_info("%d models may take %zu MB together", v->offers.n, v->budget >> 20);
	return server_begin_several(server, v->budget, o->load.queue, again ? read_models_again : NULL, v, err);
}

void several_end(struct several *v)
{
	if (!v)
		return;
	ticket_fini(&v->turn);
	free(v->offers.v);
	free(v->base);
	free(v);
}
