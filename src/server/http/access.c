/* access.c - see access.h. */
#include "server/http/access.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/inside.h"

static double ms(int64_t ns)
{
	return (double)ns / 1e6;
}

static const char *finish_of(const struct exchange *x)
{
	if (x->access.finish)
		return x->access.finish;
	return x->status == 0 ? "cancelled" : x->status < 400 ? "ok" : x->status == 500 ? "error" : "refused";
}

static void put_line(struct buf *b, const struct exchange *x, double whole_ms)
{
	const struct access *a = &x->access;

	buf_printf(b, "%s %s %s %s: %d %s", x->request_id, x->from.peer, x->from.client, x->route->path, x->status,
	           finish_of(x));
	if (a->n_prompt) {
		buf_printf(b, ", prompt %d, cached %d, output %d, queued %.0f ms", a->n_prompt, a->n_cached,
		           a->n_output, ms(a->queue_ns));
		if (a->first_ns)
			buf_printf(b, ", first token %.0f ms", ms(a->first_ns));
		if (a->rate > 0)
			buf_printf(b, ", %.1f tokens/s", a->rate);
	}
	buf_printf(b, ", %.0f ms", whole_ms);
	if (x->warned.n)
		buf_printf(b, "; %s", x->warned.p);
	if (*a->why)
		buf_printf(b, ": %s", a->why);
}

static void put_member(struct buf *b, const char *name, const char *value)
{
	buf_printf(b, ",\"%s\":", name);
	json_put_cstr(b, value);
}

static void put_members(struct buf *b, const struct exchange *x, double whole_ms)
{
	const struct access *a = &x->access;

	buf_puts(b, "\"event\":\"request\"");
	put_member(b, "id", x->request_id);
	put_member(b, "client", x->from.client);
	put_member(b, "peer", x->from.peer);
	put_member(b, "path", x->route->path);
	buf_printf(b, ",\"status\":%d", x->status);
	put_member(b, "finish", finish_of(x));
	buf_printf(b,
	           ",\"prompt\":%d,\"cached\":%d,\"output\":%d,\"queue_ms\":%.3f,\"first_token_ms\":%.3f"
	           ",\"tokens_per_second\":%.3f,\"total_ms\":%.3f",
	           a->n_prompt, a->n_cached, a->n_output, ms(a->queue_ns), ms(a->first_ns), a->rate, whole_ms);
	if (x->warned.n)
		put_member(b, "warning", x->warned.p);
	if (*a->why)
		put_member(b, "error", a->why);
}

void access_log(const struct exchange *x)
{
	enum log_level level = x->route->endpoint->prep ? LOG_INFO : LOG_DEBUG;
	double whole = ms(clock_monotonic_ns() - x->t_begin);
	struct buf line, members;

	if (!log_wants(level))
		return;
	buf_init(&line);
	buf_init(&members);
	put_line(&line, x, whole);
	put_members(&members, x, whole);
	log_record(level, line.p, members.p);
	buf_fini(&line);
	buf_fini(&members);
}

void access_log_refused(const char *peer, const char *id, const struct http *h, const struct problem *p)
{
	/* A target is up to 8 KB. */
	int n_method = h ? (int)(h->method.n < 20 ? h->method.n : 20) : 0;
	int n_path = h ? (int)(h->path.n < 200 ? h->path.n : 200) : 0;
	struct buf line, members;

	if (!log_wants(LOG_INFO))
		return;
	buf_init(&line);
	buf_init(&members);
	buf_printf(&line, "%s %s %.*s %.*s: %d refused: %s", id, peer, n_method, n_method ? h->method.p : "", n_path,
	           n_path ? h->path.p : "", p->status, p->message);
	buf_puts(&members, "\"event\":\"refused\"");
	put_member(&members, "id", id);
	put_member(&members, "peer", peer);
	buf_puts(&members, ",\"method\":");
	json_put_str(&members, n_method ? h->method.p : "", (size_t)n_method);
	buf_puts(&members, ",\"path\":");
	json_put_str(&members, n_path ? h->path.p : "", (size_t)n_path);
	buf_printf(&members, ",\"status\":%d", p->status);
	put_member(&members, "error", p->message);
	log_record(LOG_INFO, line.p, members.p);
	buf_fini(&line);
	buf_fini(&members);
}

void access_log_prompt(const struct exchange *x, const char *p, size_t n)
{
	struct buf line, members;

	buf_init(&line);
	buf_init(&members);
	buf_puts(&members, "\"event\":\"prompt\",\"id\":");
	json_put_cstr(&members, x->request_id);
	buf_puts(&members, ",\"prompt\":");
	json_put_str(&members, p, n);
	buf_printf(&line, "%s prompt ", x->request_id);
	json_put_str(&line, p, n);
	log_record(LOG_INFO, line.p, members.p);
	buf_fini(&line);
	buf_fini(&members);
}
