/* stub_server.c - the server before the stub engine: stub_server TOKENIZER PORT-FILE
 * [NAME=VALUE...], where NAME is a field of struct server_opts or ctx. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "server/server.h"
#include "stub_engine.h"
#include "stub_sight.h"

/* Turns and nothing else; thinking and tools as the real ones show them. */
static const char chat[] =
	"{% for m in messages %}{% if m.role == 'bad' %}{{ raise_exception('bad role') }}{% endif %}"
	"{{ m.content }}{% if m.is_error %}!{% endif %}{% endfor %}{% if tools %}{{ tools | length }} tools{% endif %}"
	"{% if add_generation_prompt and enable_thinking %}<think>{% endif %}";

static bool slow;
static char script; /* 'u' or 'o' */
static const char *template_path;
static const char *says; /* what the template says besides, as <tool_call> */

static int option(struct server_opts *o, struct served *d, const char *arg)
{
	static const char *key;
	const char *eq = strchr(arg, '=');
	struct {
		const char *name;
		int *at;
	} ints[] = {
		{ "connections_max", &o->connections_max },
		{ "head_ms", &o->head_ms },
		{ "body_ms", &o->body_ms },
		{ "idle_ms", &o->idle_ms },
		{ "keep_alive_ms", &o->keep_alive_ms },
		{ "stall_ms", &o->stall_ms },
		{ "prep_threads", &o->prep_threads },
		{ "grace_ms", &o->grace_ms },
		{ "stuck_ms", &o->stuck_ms },
		{ "ctx", &d->ctx_max },
		{ "queue_max", &d->queue_max },
	};

	if (!eq)
		return -1;
	for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
		if (strlen(ints[i].name) == (size_t)(eq - arg) && !strncmp(arg, ints[i].name, (size_t)(eq - arg))) {
			*ints[i].at = atoi(eq + 1);
			return 0;
		}
	}
	if (!strncmp(arg, "body_max=", 9)) {
		o->body_max = atoll(eq + 1);
		return 0;
	}
	if (!strncmp(arg, "response_bytes=", 15)) {
		o->response_bytes = (size_t)atoll(arg + 15);
		return 0;
	}
	if (!strncmp(arg, "says=", 5)) {
		says = arg + 5;
		return 0;
	}
	if (!strncmp(arg, "aliases=", 8))
		return d->aliases = arg + 8, 0;
	if (!strcmp(arg, "any_model=1"))
		return d->any_model = true, 0;
	if (!strcmp(arg, "strict=1"))
		return d->strict = true, 0;
	if (!strncmp(arg, "cors_origin=", 12)) {
		o->cors_origin = arg + 12;
		return 0;
	}
	if (!strcmp(arg, "script=usual") || !strcmp(arg, "script=odd"))
		return script = arg[7], 0;
	if (!strncmp(arg, "template=", 9))
		return template_path = arg + 9, 0;
	if (!strcmp(arg, "drop_volatile=1"))
		return o->drop_volatile = true, 0;
	if (!strcmp(arg, "drop_volatile=0"))
		return o->drop_volatile = false, 0;
	if (!strncmp(arg, "turn_replay=", 12))
		return o->turn_replay = (enum turn_replay)atoi(arg + 12), 0;
	if (!strncmp(arg, "turn_bytes=", 11))
		return o->turn_bytes = (size_t)atoll(arg + 11), 0;
	if (!strcmp(arg, "sight=1"))
		return d->sight = &stub_sight, 0;
	if (!strncmp(arg, "image_folder=", 13)) {
		static const char *folder;

		folder = arg + 13;
		o->image_folder = &folder;
		o->n_image_folder = 1;
		return 0;
	}
	if (!strncmp(arg, "image_host=", 11)) {
		static const char *host;

		host = arg + 11;
		o->image_host = &host;
		o->n_image_host = 1;
		return 0;
	}
	if (!strncmp(arg, "image_bytes=", 12))
		return d->image_bytes = (size_t)atoll(arg + 12), 0;
	if (!strcmp(arg, "slow=1"))
		return slow = true, 0;
	if (!strcmp(arg, "log_prompts=1"))
		return o->log_prompts = true, 0;
	if (!strcmp(arg, "log_format=json"))
		return log_set_format(LOG_JSON), 0;
	if (!strcmp(arg, "log_level=info"))
		return log_set_level(LOG_INFO), 0;
	if (!strncmp(arg, "api_key_file=", 13)) {
		o->api_key_file = arg + 13;
		return 0;
	}
	if (!strncmp(arg, "host=", 5)) {
		o->host = arg + 5;
		return 0;
	}
	if (!strncmp(arg, "api_key=", 8)) {
		key = eq + 1;
		o->api_key = key;
		return 0;
	}
	return -1;
}

int main(int argc, char **argv)
{
	struct served d = { .name = "stub", .image_bytes = 1 << 20, .ctx_max = 100000, .max_tokens = -1 };
	struct server_opts o;
	struct tokenizer *tok;
	struct template *tmpl;
	struct buf text;
	struct server *s;
	struct buf json;
	struct err err;
	FILE *f;

	sampler_params_init(&d.sampling);
	server_opts_default(&o);
	o.port = 0;
	if (argc < 3)
		return 2;
	log_set_level(LOG_DEBUG);
	for (int i = 3; i < argc; i++)
		if (option(&o, &d, argv[i]))
			return 2;
	buf_init(&json);
	buf_init(&text);
	/* "one system": it refuses a second, as some do. */
	if (says && strstr(says, "one system"))
		buf_puts(
			&text,
			"{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('one only') }}{% endif %}"
			"{% endfor %}");
	if (!template_path)
		buf_printf(&text, "%s{#%s#}", chat, says ? says : "");
	else if (file_read(template_path, 1 << 20, &text, &err))
		return 1;
	if (file_read(argv[1], (size_t)1 << 28, &json, &err) || tokenizer_open(&tok, json.p, json.n, &err) ||
	    template_open(&tmpl, text.p, text.n, NULL, &err)) {
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	buf_fini(&json);
	buf_fini(&text);
	d.tokenizer = tok;
	d.tmpl = tmpl;
	d.vocab = tokenizer_size(tok);
	d.is.hidden = 2; /* of the row that its engine gives */
	d.engine = stub_engine_open(tok);
	if (script)
		stub_engine_script(d.engine, script == 'o');
	if (slow)
		stub_engine_slow(d.engine);
	if (server_open(&s, &o, &err)) {
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	server_begin(s, &d);
	f = fopen(argv[2], "w");
	if (!f)
		return 1;
	fprintf(f, "%d\n", server_port(s));
	fclose(f);
	if (server_run(s, &err)) {
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	engine_close(d.engine);
	server_close(s);
	template_close(tmpl);
	tokenizer_close(tok);
	return 0;
}
