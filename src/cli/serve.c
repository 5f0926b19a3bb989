/* serve.c - `weft serve`: a model behind HTTP. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/pull.h"
#include "cli/serving.h"
#include "host/load.h"
#include "server/http/gate.h"
#include "server/kv_events.h"
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

static void fill_opts(const struct serve_options *o, struct server_opts *so)
{
	server_opts_default(so);
	so->version = WEFT_VERSION;
	so->commit = weft_commit;
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
	so->journal = o->journal;
	so->log_prompts = o->log_prompts;
	so->turn_replay = (enum turn_replay)o->turn_replay;
	so->turn_bytes = o->turn_bytes;
	so->drop_volatile = o->drop_volatile;
}

/* Says where it serves, and answers until it is told to stop. */
static int serve(struct server *server, const struct serve_options *o, const char *what, struct err *err)
{
	bool six = strchr(o->host, ':') != NULL;
	int rc = o->port_file ? write_port(o->port_file, server_port(server), err) : 0;

	if (rc)
		return rc;
	if (!strncmp(o->host, "unix:", 5))
		log_info("serving %s at %s", what, o->host);
	else
		log_info("serving %s at http://%s%s%s:%d", what, six ? "[" : "", o->host, six ? "]" : "",
		         server_port(server));
	if (!gate_is_local(o->host) && strncmp(o->host, "unix:", 5) && !o->api_key && !o->api_key_file)
		log_warn(
			"--host %s without --api-key: every client that can reach this machine may use the model, see what "
			"is cached and stop requests",
			o->host);
	return server_run(server, err);
}

static int serve_several(struct server *server, const struct options *o, struct err *err)
{
	struct several *all;
	int rc = several_begin(&all, server, o, err);

	if (!rc)
		rc = serve(server, &o->serve, "several models", err);
	server_close(server);
	several_end(all);
	return rc;
}

static int serve_one(struct server *server, const struct options *o, struct err *err)
{
	struct serving *v;
	int rc = serving_open(&v, o, err);

	if (rc) {
		server_close(server);
		return rc;
	}
	server_begin(server, serving_served(v));
	if (model_is_bundled(&o->load))
		log_info(BUNDLED_SAYS, serving_served(v)->name);
	rc = serve(server, &o->serve, serving_served(v)->name, err);
	/* The engine may call into the server until it is closed. */
	serving_stop(v);
	server_close(server);
	serving_close(v);
	return rc;
}

static int open_events(const struct options *o, struct kv_events **out, struct err *err)
{
	const struct kv_events_opts opts = { o->serve.kv_events, o->serve.kv_replay, o->serve.kv_topic,
		                             o->serve.kv_format };

	*out = NULL;
	if (!o->serve.kv_events)
		return 0;
	if (o->several.n_model)
		return err_set(err, E_ARG, "kv-events %s: the events are of one model, and %d are served",
		               o->serve.kv_events, o->several.n_model);
	return kv_events_open(out, &opts, err);
}

int cmd_serve(const struct options *o)
{
	struct server *server = NULL;
	struct options with = *o;
	struct kv_events *events;
	struct server_opts so;
	struct err err;
	int rc;

	fill_opts(&o->serve, &so);
	if ((!o->several.n_model && pull_if_missing(o, &err)) || open_events(o, &events, &err))
		return cli_fail("serve", &err);
	so.kv_events = events;
	with.load.blocks = events ? kv_events_sink(events) : NULL;
	rc = server_open(&server, &so, &err);
	if (!rc)
		rc = (o->several.n_model ? serve_several : serve_one)(server, &with, &err);
	kv_events_close(events);
	return rc ? cli_fail("serve", &err) : 0;
}
