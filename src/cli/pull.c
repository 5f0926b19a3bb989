/* pull.c - `weft pull`, `weft list`, `weft rm`: models fetched by name, and what the cache has of them. */
#include "cli/pull.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "hub/hub.h"
#include "store/store.h"

/* ---- progress ---- */

struct bar {
	bool terminal;
	double began, last; /* seconds; of the last line that was not to a terminal */
	uint64_t first;     /* bytes that were there before */
	bool started;
};

static void put_size(char *out, size_t size, double bytes)
{
	snprintf(out, size,
	         bytes >= 1e9 ? "%.2f GB" :
	         bytes >= 1e6 ? "%.1f MB" :
	                        "%.0f kB",
	         bytes / (bytes >= 1e9 ? 1e9 :
	                  bytes >= 1e6 ? 1e6 :
	                                 1e3));
}

static void put_time(char *out, size_t size, double seconds)
{
	if (seconds < 90)
		snprintf(out, size, "%.0f s", seconds);
	else if (seconds < 5400)
		snprintf(out, size, "%.0f min", seconds / 60);
	else
		snprintf(out, size, "%.1f h", seconds / 3600);
}

static void moved(void *arg, uint64_t done, uint64_t total)
{
	struct bar *b = arg;
	double at = 1e-9 * (double)clock_monotonic_ns(), speed;
	char have[32], all[32], rate[32], left[32];

	if (!b->started) {
		b->started = true;
		b->began = b->last = at;
		b->first = done;
	}
	if (!b->terminal && done < total && at - b->last < 10)
		return;
	b->last = at;
	speed = at > b->began && done > b->first ? (double)(done - b->first) / (at - b->began) : 0;
	put_size(have, sizeof have, (double)done);
	put_size(all, sizeof all, (double)total);
	put_size(rate, sizeof rate, speed);
	put_time(left, sizeof left, speed > 0 ? (double)(total - done) / speed : 0);
	fprintf(stderr, "%s%3.0f%%  %s of %s, %s/s%s%s%s", b->terminal ? "\r\033[K" : "",
	        total ? 100 * (double)done / (double)total : 100, have, all, rate,
	        speed > 0 && done < total ? ", " : "", speed > 0 && done < total ? left : "",
	        speed > 0 && done < total ? " left" : "");
	if (!b->terminal)
		fputc('\n', stderr);
	fflush(stderr);
}

static void say(void *arg, const char *line)
{
	const struct bar *b = arg;

	fprintf(stderr, "%s%s\n", b->terminal ? "\r\033[K" : "", line);
}

/* ---- weft pull ---- */

static int fetch(const char *name, const struct hub_options *options, struct hub_pulled *out, struct err *err)
{
	struct bar bar = { .terminal = isatty(STDERR_FILENO) };
	const struct hub_watch watch = { .moved = moved, .say = say, .arg = &bar };
	struct hub_place place;
	struct hub_wish wish;
	int rc = hub_wish_parse(&wish, name, err);

	*out = (struct hub_pulled){ 0 };
	if (rc)
		return rc;
	hub_place_get(&place);
	fprintf(stderr, "%s from %s\n", name, place.offline ? "the cache (HF_HUB_OFFLINE)" : place.endpoint);
	rc = hub_pull(&place, &wish, options, &watch, out, err);
	if (bar.terminal && bar.started)
		fputc('\n', stderr);
	hub_place_free(&place);
	hub_wish_free(&wish);
	return rc;
}

int cmd_pull(const struct options *o)
{
	const struct hub_options options = { .connections = o->pull.connections,
		                             .part_size = o->pull.part,
		                             .all = o->pull.all,
		                             .no_projector = o->load.mmproj && !strcmp(o->load.mmproj, "none") };
	struct hub_pulled got;
	struct err err = { 0 };
	char bytes[32];
	int rc;

	if (!o->load.model) {
		err_set(&err, E_ARG, "which model? For example: weft pull Qwen/Qwen3.5-4B, or org/name:Q4_K_M");
		cli_fail("pull", &err);
		return EXIT_USAGE;
	}
	rc = fetch(o->load.model, &options, &got, &err);
	put_size(bytes, sizeof bytes, (double)got.bytes);
	if (!rc)
		printf("%s\n", got.path.p);
	if (!rc)
		fprintf(stderr, "%d files, %s%s. Try: weft run %s\n", got.files, bytes,
		        got.fetched ? "" : ", all there already", o->load.model);
	buf_fini(&got.path);
	return rc ? cli_fail("pull", &err) : 0;
}

int pull_if_missing(const struct options *o, struct err *err)
{
	const struct hub_options options = { .connections = 4 };
	struct hub_pulled got;
	struct buf path;
	int rc;

	if (!o->pull.wanted || !o->load.model)
		return 0;
	buf_init(&path);
	rc = store_locate(o->load.model, &path, err);
	buf_fini(&path);
	if (rc != E_MISSING)
		return rc;
	rc = fetch(o->load.model, &options, &got, err);
	buf_fini(&got.path);
	return rc;
}

/* ---- weft list, weft rm ---- */

struct table {
	bool json;
	int n;
};

static void print_model(void *arg, const struct hub_model *m)
{
	struct table *t = arg;
	char bytes[32], date[32] = "";
	time_t at = (time_t)m->changed;
	struct tm tm;

	if (t->json) {
		printf("%s\n  {\"name\": \"%s\", \"bytes\": %" PRIu64 ", \"files\": %d, \"formats\": \"%s\", "
		       "\"complete\": %s, \"changed\": %" PRId64 "}",
		       t->n++ ? "," : "", m->name, m->bytes, m->files, m->formats, m->whole ? "true" : "false",
		       m->changed);
		return;
	}
	if (m->changed && localtime_r(&at, &tm))
		strftime(date, sizeof date, "%Y-%m-%d", &tm);
	put_size(bytes, sizeof bytes, (double)m->bytes);
	if (!t->n++)
		printf("%-48s %10s  %-10s  %s\n", "MODEL", "ON DISK", "CHANGED", "FORMAT");
	printf("%-48s %10s  %-10s  %s%s\n", m->name, bytes, date, *m->formats ? m->formats : "no weights",
	       m->whole ? "" : " (incomplete: `weft pull` goes on)");
}

int cmd_list(const struct options *o)
{
	struct table t = { .json = o->list_json };
	struct hub_place place;
	struct err err;
	int rc;

	hub_place_get(&place);
	if (t.json)
		printf("[");
	rc = hub_list(&place, print_model, &t, &err);
	if (t.json)
		printf("%s]\n", t.n ? "\n" : "");
	if (!rc && !t.n)
		fprintf(stderr, "No models in %s. `weft pull NAME` fetches one.\n", place.cache);
	hub_place_free(&place);
	return rc ? cli_fail("list", &err) : 0;
}

int cmd_rm(const struct options *o)
{
	struct hub_place place;
	struct hub_wish wish;
	struct err err;
	uint64_t bytes;
	char text[32];
	int rc;

	if (!o->load.model) {
		err_set(&err, E_ARG, "which model? `weft list` names those of the cache");
		cli_fail("rm", &err);
		return EXIT_USAGE;
	}
	if ((rc = hub_wish_parse(&wish, o->load.model, &err)))
		return cli_fail("rm", &err);
	hub_place_get(&place);
	rc = hub_remove(&place, &wish, &bytes, &err);
	put_size(text, sizeof text, (double)bytes);
	if (!rc)
		fprintf(stderr, "%s: removed, %s freed\n", o->load.model, text);
	hub_place_free(&place);
	hub_wish_free(&wish);
	return rc ? cli_fail("rm", &err) : 0;
}
