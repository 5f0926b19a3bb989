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
#include "host/load.h"
#include "host/several.h"
#include "server/server.h"

/* One model, as the server loads and unloads it. */
struct offer {
	struct options o; /* the model's, with its share of memory and its folder of prefixes */
	struct served about;
	char *names;
	char *dir;
	char *arch;
	struct serving *open; /* NULL: it is not loaded */
};

struct several {
	struct ticket_lock turn;
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

static void free_model(void *arg)
{
	struct offer *f = arg;

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

struct planning {
	struct offer **offer; /* [n] */
	int n;
};

/* Fills what is known of offer i while it is not loaded.  Nothing of the session, which is closed afterwards, is kept. */
static void told(void *arg, int i, const struct session *s)
{
	const struct planning *p = arg;
	struct offer *f = p->offer[i];
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
static int names_differ(const struct planning *p, struct err *err)
{
	for (int i = 0; i < p->n; i++)
		for (int k = 0; k < i; k++)
			if (!strcmp(p->offer[i]->about.name, p->offer[k]->about.name))
				return err_set(
					err, E_ARG,
					"%s and %s would both be called %s: alias = NAME in a [model] section gives one of "
					"them another name",
					p->offer[k]->o.load.model, p->offer[i]->o.load.model, p->offer[i]->about.name);
	return 0;
}

static int make_offers(struct planning *p, struct several *v, const struct options *o, struct err *err)
{
	struct buf base;
	int rc;

	buf_init(&base);
	rc = prefix_folder(o, &base, err);
	for (int i = 0; i < o->n_model && !rc; i++) {
		struct offer *f = p->offer[p->n++] = xcalloc(1, sizeof *f);

		f->o = o->model[i];
		f->dir = own_folder(base.p, &f->o);
		f->o.load.disk.dir = f->dir;
		f->o.load.disk.bytes /= (size_t)o->n_model;
		f->o.load.turn = &v->turn;
		f->o.any_model = o->any_model && !i;
		rc = pull_if_missing(&f->o, err);
	}
	buf_fini(&base);
	return rc;
}

/* Gives all offers to the server, which frees them when it is closed. */
static void hand_over(const struct planning *p, const struct one_of_several *plan, struct server *server)
{
	for (int i = 0; i < p->n; i++) {
		struct offer *f = p->offer[i];
		struct model_source src = { .open = open_model,
			                    .close = close_model,
			                    .free = free_model,
			                    .arg = f,
			                    .bytes = plan[i].bytes,
			                    .idle_ns = (int64_t)f->o.unload_after * 1000000000,
			                    .pinned = f->o.pinned,
			                    .why = plan[i].why };

		if (plan[i].why.code)
			log_warn("%s: %s", f->about.name, plan[i].why.msg);
		else
			log_info("%s: up to %zu MB when it is loaded, context %d%s", f->about.name, plan[i].bytes >> 20,
			         f->about.ctx_max, f->o.pinned ? ", pinned" : "");
		server_offer(server, &f->about, &src);
	}
}

/* A model that was named and cannot be loaded is an error, unless it only lacks memory; one that was found is left out. */
static int check_plans(struct planning *p, struct one_of_several *plan, struct err *err)
{
	int n = 0;

	for (int i = 0; i < p->n; i++) {
		struct offer *f = p->offer[i];

		if (plan[i].why.code && plan[i].why.code != E_LIMIT && !f->o.found) {
			*err = plan[i].why;
			for (int k = i; k < p->n; k++)
				p->offer[n++] = p->offer[k];
			p->n = n;
			return err->code;
		}
		if (plan[i].why.code)
			name_only(f);
		if (plan[i].why.code && plan[i].why.code != E_LIMIT) {
			log_warn("%s is left out: %s", f->o.load.model, plan[i].why.msg);
			free_model(f);
			continue;
		}
		plan[n] = plan[i];
		p->offer[n++] = f;
	}
	p->n = n;
	return n ? names_differ(p, err) : err_set(err, E_MISSING, "none of the models can be loaded");
}

int several_begin(struct several **out, struct server *server, const struct options *o, struct err *err)
{
	struct one_of_several *plan = xcalloc((size_t)o->n_model, sizeof *plan);
	struct planning p = { .offer = xcalloc((size_t)o->n_model, sizeof *p.offer) };
	struct several *v = *out = xcalloc(1, sizeof *v);
	size_t budget = 0;
	int rc;

	ticket_init(&v->turn);
	rc = make_offers(&p, v, o, err);
	for (int i = 0; i < p.n; i++)
		plan[i].o = &p.offer[i]->o.load;
	if (!rc) {
		budget = several_plan(plan, p.n, o->load.memory_bytes, told, &p);
		rc = check_plans(&p, plan, err);
	}
	for (int i = 0; i < p.n && rc; i++)
		free_model(p.offer[i]);
	if (!rc) {
		hand_over(&p, plan, server);
		log_info("%d models may take %zu MB together", p.n, budget >> 20);
		rc = server_begin_several(server, budget, o->load.queue, err);
	}
	free(p.offer);
	free(plan);
	return rc;
}

void several_end(struct several *v)
{
	if (!v)
		return;
	ticket_fini(&v->turn);
	free(v);
}
