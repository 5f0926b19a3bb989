/* serve.c - `weft serve`: a model behind HTTP. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/pull.h"
#include "host/load.h"
#include "host/load_image.h"
#include "server/http/gate.h"
#include "server/server.h"

/* Writes the port to a new file and renames it, so that a waiting program never reads half; a path
 * that is not a regular file, as /dev/stdout, is written directly. */
static int write_port(const char *path, int port, struct err *err)
{
	struct buf part;
	bool special = file_is_special(path);
	FILE *f;
	int rc = 0;

	buf_init(&part);
	buf_printf(&part, special ? "%s" : "%s.part", path);
	f = fopen(part.p, "w");
	if (!f || fprintf(f, "%d\n", port) < 0 || fclose(f) || (!special && rename(part.p, path)))
		rc = err_set(err, E_IO, "--port-file %s: cannot be written", path);
	buf_fini(&part);
	return rc;
}

static void fill_opts(const struct options *o, struct server_opts *so)
{
	server_opts_default(so);
	so->host = o->host;
	so->port = o->port;
	so->api_key = o->api_key;
	so->api_key_file = o->api_key_file;
	so->cors_origin = o->cors_origin;
	so->image_folder = o->image_folder.v;
	so->n_image_folder = o->image_folder.n;
	so->image_host = o->image_host.v;
	so->n_image_host = o->image_host.n;
	so->connections_max = o->connections;
	so->body_max = (int64_t)o->body_bytes;
	so->response_bytes = o->response_bytes;
	so->keep_alive_ms = o->keep_alive * 1000;
	so->body_ms = o->timeout * 1000;
	so->head_ms = o->timeout * 1000 / 6;
	so->stall_ms = o->stall * 1000;
	so->idle_ms = o->idle * 1000;
	so->grace_ms = o->grace * 1000;
	so->stuck_ms = o->stuck * 1000;
	so->log_prompts = o->log_prompts;
	so->turn_replay = (enum turn_replay)o->turn_replay;
	so->turn_bytes = o->turn_bytes;
	so->drop_volatile = o->drop_volatile;
}

/* To be freed. */
static struct served_adapter *served_adapters(const struct loaded_adapters *a)
{
	struct served_adapter *v = xcalloc((size_t)a->n + 1, sizeof *v);

	for (int i = 0; i < a->n; i++)
		v[i] = (struct served_adapter){ a->v[i].of, a->v[i].name, a->v[i].path, a->v[i].scale };
	return v;
}

/* All names of --alias, separated by commas; "": there is none. */
static char *all_names(const struct texts *t)
{
	struct buf b;

	buf_init(&b);
	for (int i = 0; i < t->n; i++) {
		if (b.n)
			buf_putc(&b, ',');
		buf_puts(&b, t->v[i]);
	}
	return buf_take(&b);
}

/* names: takes those of --alias, the first cut off, to be freed. */
static void fill_served(const struct options *o, struct session *s, struct served *d, char **names)
{
	char *all = *names = all_names(&o->alias);
	size_t n = strcspn(all, ",");
	bool more = n && all[n];

	all[n] = 0;
	*d = (struct served){
		.is = { .arch = s->model->arch,
		        .form = strcmp(s->store->box.ops->name, "folder") ? s->store->box.ops->name : "safetensors",
		        .params = s->model->shape.params,
		        .bytes = s->model->shape.weight_bytes,
		        .hidden = s->model->shape.hidden,
		        .ctx_max = s->model->shape.ctx_max },
		.engine = s->engine,
		.tokenizer = s->tok,
		.tmpl = s->tmpl,
		.tool_tmpl = s->tool_tmpl,
		.name = n ? all : s->store->name,
		.aliases = more ? all + n + 1 : NULL,
		.any_model = o->any_model,
		.bos_token = s->bos,
		.eos_token = s->eos,
		.eos = s->eos_id,
		.n_eos = s->n_eos,
		.ctx_max = s->model->opts.ctx_max,
		.queue_max = o->load.queue,
		.vocab = tokenizer_size(s->tok),
		.max_tokens = o->max_tokens,
		.sampling = s->sampling,
		.template_args = s->template_args,
	};
	d->strict = o->strict;
	d->adapter = served_adapters(&s->adapters);
	d->n_adapter = s->adapters.n;
	if (o->seed >= 0) {
		d->seeded = true;
		d->sampling.seed = (uint64_t)o->seed;
	}
}

static int read_image(void *arg, const void *bytes, size_t n, struct media **out, struct err *err)
{
	return media_of_bytes(arg, MEDIA_IMAGE, bytes, n, out, err);
}

static int read_sound(void *arg, const void *bytes, size_t n, struct media **out, struct err *err)
{
	return media_of_bytes(arg, MEDIA_SOUND, bytes, n, out, err);
}

int cmd_serve(const struct options *o)
{
	struct server *server = NULL;
	struct server_opts so;
	struct served served;
	struct sight sight;
	struct session s;
	struct err err;
	char *names;
	int rc;

	fill_opts(o, &so);
	if (pull_if_missing(o, &err))
		return cli_fail("serve", &err);
	if (server_open(&server, &so, &err))
		return cli_fail("serve", &err);
	if (session_open(&s, &o->load, LOAD_TOKENIZER | LOAD_TEMPLATE | LOAD_ENGINE | LOAD_HUGE | LOAD_TOWER, &err)) {
		server_close(server);
		return cli_fail("serve", &err);
	}
	if (s.adapters.n > SERVED_ADAPTERS_MAX) {
		err_set(&err, E_LIMIT, "--lora: %d adapters, at most %d are served", s.adapters.n, SERVED_ADAPTERS_MAX);
		server_close(server);
		session_close(&s);
		return cli_fail("serve", &err);
	}
	fill_served(o, &s, &served, &names);
	sight = (struct sight){ .image = s.tower ? read_image : NULL, .sound = s.ear ? read_sound : NULL, .arg = &s };
	if (s.tower || s.ear) {
		served.sight = &sight;
		served.image_bytes = s.image_bytes;
	}
	if (!served.tmpl)
		log_warn("%s has no chat template: only /v1/completions will answer", served.name);
	server_begin(server, &served);
	rc = o->port_file ? write_port(o->port_file, server_port(server), &err) : 0;
	if (!rc) {
		bool six = strchr(o->host, ':') != NULL;

		if (!strncmp(o->host, "unix:", 5))
			log_info("serving %s at %s", served.name, o->host);
		else
			log_info("serving %s at http://%s%s%s:%d", served.name, six ? "[" : "", o->host, six ? "]" : "",
			         server_port(server));
		if (!gate_is_local(o->host) && strncmp(o->host, "unix:", 5) && !o->api_key && !o->api_key_file)
			log_warn(
				"--host %s without --api-key: every client that can reach this machine may use the model, see what "
				"is cached and stop requests",
				o->host);
		rc = server_run(server, &err);
	}
	/* The engine may call into the server until it is closed. */
	engine_close(s.engine);
	s.engine = NULL;
	server_close(server);
	session_close(&s);
	free((void *)served.adapter);
	free(names);
	return rc ? cli_fail("serve", &err) : 0;
}
