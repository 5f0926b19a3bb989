/* pack_command.c - `weft pack`: the opening of an agent, computed once, as a file. */
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/new_path.h"
#include "cli/pull.h"
#include "cli/serving.h"
#include "engine/prefix/place.h"
#include "engine/prefix/prefix_pack.h"
#include "host/load.h"
#include "server/opening.h"
#include "server/server.h"

enum { REQUEST_MAX = 64 << 20 }; /* bytes of a file with a request, or with a system prompt */

/* The longest beginning that all prompts read so far share. */
struct common {
	struct opening *render;
	struct tokens ids;  /* the first prompt */
	size_t n, shortest; /* tokens that are common; of the shortest prompt */
	size_t dated;       /* where the first prompt differs from what it will be in another year, or its end */
	int prompts, system;
};

static size_t alike(const struct tokens *a, const struct tokens *b)
{
	size_t n = 0;

	while (n < a->n && n < b->n && a->id[n] == b->id[n])
		n++;
	return n;
}

/* Renders a body as of a day on which year, month and day are others, in all formats of dates. */
static int find_date(struct common *c, const char *path, const char *body, size_t n, struct err *err)
{
	enum { DAYS = 400 };
	struct tokens ids;
	int system, rc;

	tokens_init(&ids);
	rc = opening_render(c->render, path, body, n, (int64_t)time(NULL) + DAYS * 86400ll, &ids, &system, err);
	c->dated = alike(&ids, &c->ids);
	tokens_fini(&ids);
	return rc;
}

static int add_body(struct common *c, const char *path, const char *body, size_t n, struct err *err)
{
	struct tokens ids;
	int system, rc;

	tokens_init(&ids);
	rc = opening_render(c->render, path, body, n, 0, &ids, &system, err);
	if (!rc && !c->prompts++) {
		for (size_t i = 0; i < ids.n; i++)
			tokens_put(&c->ids, ids.id[i]);
		c->n = c->shortest = ids.n;
		c->system = system;
		rc = find_date(c, path, body, n, err);
	} else if (!rc) {
		size_t k = alike(&ids, &c->ids);

		c->n = k < c->n ? k : c->n;
		c->shortest = ids.n < c->shortest ? ids.n : c->shortest;
		c->system = system < c->system ? system : c->system;
	}
	tokens_fini(&ids);
	return rc;
}

/* A text is a system prompt.  What follows it in a request may begin with anything: with these, among others. */
static int add_text(struct common *c, const struct buf *text, struct err *err)
{
	static const char *const questions[] = { "Hello", "1", "\n", " a", "\"" };
	struct buf body;
	int rc = 0;

	buf_init(&body);
	for (size_t i = 0; i < sizeof(questions) / sizeof(*questions) && !rc; i++) {
		buf_reset(&body);
		buf_puts(&body, "{\"messages\":[{\"role\":\"system\",\"content\":");
		json_put_str(&body, text->p, text->n);
		buf_puts(&body, "},{\"role\":\"user\",\"content\":");
		json_put_cstr(&body, questions[i]);
		buf_puts(&body, "}]}");
		rc = add_body(c, "/v1/chat/completions", body.p, body.n, err);
	}
	buf_fini(&body);
	c->system = 0; /* the rendered text goes on to the question */
	return rc;
}

/* Adds a file: a recorded request, an object with path and body; the body of a chat completion; or else, with texts, a system
 * prompt. */
static int add_file(struct common *c, const char *path, bool texts, struct err *err)
{
	const struct json *body, *to;
	struct buf text, b;
	struct json *j = NULL;
	size_t n;
	int rc;

	buf_init(&text);
	buf_init(&b);
	rc = file_refuse_special(path, err);
	if (!rc)
		rc = file_read(path, REQUEST_MAX, &text, err);
	if (!rc) {
		j = json_parse(text.p, text.n, 200, err);
		rc = j || texts ? 0 : err->code;
	}
	if (!rc && json_kind(j) == JSON_OBJECT) {
		body = json_get(j, "body");
		to = json_get(j, "path");
		json_put(&b, json_kind(body) == JSON_OBJECT && json_str(to, &n) ? body : j);
		rc = add_body(c, b.n && body && json_str(to, &n) ? json_str(to, &n) : "/v1/chat/completions", b.p, b.n,
		              err);
	} else if (!rc && texts) {
		rc = add_text(c, &text, err);
	} else if (!rc) {
		rc = err_set(err, E_FORMAT, "not a request: a JSON object with path and body is expected");
	}
	json_free(j);
	buf_fini(&b);
	buf_fini(&text);
	return rc && strncmp(err->msg, path, strlen(path)) ? err_prefix(err, "%s", path) : rc;
}

static int is_json(const struct dirent *e)
{
	size_t n = strlen(e->d_name);

	return *e->d_name != '.' && n > 5 && !strcmp(e->d_name + n - 5, ".json");
}

static int add_folder(struct common *c, const char *dir, struct err *err)
{
	struct dirent **v;
	int n = scandir(dir, &v, is_json, alphasort), rc = 0;
	struct buf path;

	if (n < 0)
		return err_set(err, E_IO, "--recorded %s: it cannot be read", dir);
	buf_init(&path);
	for (int i = 0; i < n; i++) {
		buf_reset(&path);
		buf_printf(&path, "%s/%s", dir, v[i]->d_name);
		if (!rc)
			rc = add_file(c, path.p, false, err);
		free(v[i]);
	}
	free(v);
	buf_fini(&path);
	return rc || n ? rc : err_set(err, E_MISSING, "--recorded %s: no file .json is in it", dir);
}

/* Cuts what is common to what the pack is of: positions of the states, the last of which is its end. */
static int cut(struct common *c, int pos[2], int *n_pos, struct err *err)
{
	size_t n = c->n < c->shortest ? c->n : c->shortest - 1; /* a token has to follow */

	if (c->prompts == 1 && !c->system)
		return err_set(err, E_ARG,
		               "where the system prompt of one request ends, the chat template does not show: give two "
		               "requests in a folder (--recorded)");
	if (c->prompts == 1)
		n = (size_t)c->system;
	if (n < PLACE_APART)
		return err_set(
			err, E_ARG,
			"%d prompts have their first %zu tokens in common, and fewer than %d are not worth a pack",
			c->prompts, n, PLACE_APART);
	/* What users write may begin alike, and another that does not resumes at the end of the system prompt. */
	*n_pos = 0;
	if (c->system >= PLACE_APART && (size_t)c->system <= n)
		pos[(*n_pos)++] = c->system;
	if (!*n_pos || (size_t)c->system + PLACE_APART <= n) /* states are not kept closer */
		pos[(*n_pos)++] = (int)n;
	return 0;
}

/* ---- computing ---- */

/* A signal ends what runs, and the folder that it writes to is removed. */
static struct request *_Atomic computing;
static volatile sig_atomic_t interrupted;

static void on_signal(int n)
{
	struct request *r = atomic_load(&computing);

	(void)n;
	interrupted = 1;
	if (r)
		request_cancel(r);
}

static void catch_signals(void)
{
	struct sigaction a = { .sa_handler = on_signal };

	sigemptyset(&a.sa_mask);
	sigaction(SIGINT, &a, NULL);
	sigaction(SIGTERM, &a, NULL);
}

static int compute(const struct session *s, const struct common *c, const int *pos, int n_pos, struct err *err)
{
	static const unsigned char kinds[] = { PLACE_SYSTEM, PLACE_SYSTEM };
	struct ask ask = {
		.prompt = c->ids.id, .n_prompt = pos[n_pos - 1] + 1, .mark = pos, .mark_kind = kinds, .n_mark = n_pos
	};
	bool tty = isatty(STDERR_FILENO);
	struct request *r;
	struct event ev;
	int rc = 0;

	sampler_params_init(&ask.sampling);
	if ((rc = engine_submit(s->engine, &ask, &r, err)))
		return rc;
	atomic_store(&computing, r);
	if (interrupted)
		request_cancel(r);
	while (request_wait(r, &ev)) {
		if (tty && ev.kind == EV_PROGRESS)
			fprintf(stderr, "\r\033[K%d of %d tokens", ev.done, ev.total);
		if (ev.kind == EV_DONE && ev.finish == FINISH_ERROR) {
			*err = ev.err;
			rc = ev.err.code;
		} else if (ev.kind == EV_DONE && ev.finish == FINISH_CANCEL) {
			rc = err_set(err, E_GONE, "interrupted");
		}
	}
	atomic_store(&computing, NULL);
	if (tty)
		fputs("\r\033[K", stderr);
	request_free(r);
	return rc;
}

static int read_prompts(struct common *c, const struct options *o, const struct session *s, struct err *err)
{
	struct served served;
	char *names;
	int rc;

	serving_fill(o, s, &served, &names);
	c->render = opening_begin(&served, o->serve.drop_volatile);
	rc = o->pack.recorded ? add_folder(c, o->pack.recorded, err) : add_file(c, o->pack.prompt, true, err);
	opening_end(c->render);
	free((void *)served.adapter);
	free(names);
	return rc;
}

/* Computes the opening with o's model, which keeps it in o's folder, and packs that. */
static int make(const struct options *o, const char *to, struct err *err)
{
	struct pack_from from = { .dir = o->load.disk.dir };
	struct common c = { 0 };
	struct pack_sum sum;
	struct session s;
	char hex[2 * sizeof(sum.digest.b) + 1];
	int pos[2], rc;

	rc = session_open(&s, &o->load, LOAD_TOKENIZER | LOAD_TEMPLATE | LOAD_ENGINE | LOAD_TOWER, err);
	if (rc)
		return rc;
	tokens_init(&c.ids);
	rc = read_prompts(&c, o, &s, err);
	if (!rc)
		rc = cut(&c, pos, &from.n_pos, err);
	if (!rc && c.dated < (size_t)pos[from.n_pos - 1])
		log_warn("the chat template writes the date at token %zu: on another day, prompts find nothing of the "
		         "pack that comes after it",
		         c.dated);
	if (!rc)
		rc = compute(&s, &c, pos, from.n_pos, err);
	from.model = s.identity;
	from.pos = pos;
	session_close(&s); /* everything is written then */
	tokens_fini(&c.ids);
	if (!rc)
		rc = pack_write(&from, to, &sum, err);
	if (rc)
		return rc;
	hex_put(hex, sum.digest.b, sizeof(sum.digest.b));
	printf("%s: %d tokens, %.1f MB, sha256 of its head %s\n", to, pos[from.n_pos - 1], (double)sum.bytes / 1e6,
	       hex);
	return 0;
}

static int make_in_folder(struct options *o, struct err *err)
{
	struct buf out, dir;
	struct err other;
	int rc;

	if (!o->pack.out || !o->pack.recorded == !o->pack.prompt)
		return err_set(err, E_ARG, "%s",
		               !o->pack.out ? "--out FILE is needed" :
		                              "either --prompt FILE or --recorded DIR is needed");
	buf_init(&out);
	buf_init(&dir);
	rc = new_path(&out, "out", o->pack.out, false, err);
	buf_printf(&dir, "%s.work-XXXXXX", out.p);
	if (!rc)
		rc = pull_if_missing(o, err);
	catch_signals();
	if (!rc && !mkdtemp(dir.p))
		rc = err_set(err, E_IO, "%s: no folder can be made next to it", out.p);
	if (!rc) {
		o->load.disk.dir = dir.p;
		o->load.disk.bytes = SIZE_MAX;
		rc = make(o, out.p, err);
		if (dir_remove(dir.p, &other) && !rc)
			*err = other, rc = other.code;
	}
	buf_fini(&dir);
	buf_fini(&out);
	return rc;
}

int cmd_pack(const struct options *given)
{
	struct options o = *given;
	struct err err;

	return make_in_folder(&o, &err) ? cli_fail("pack", &err) : 0;
}
