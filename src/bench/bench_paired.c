/* bench_paired.c - `weft bench --paired OTHER`: two builds measured in turn.
 *
 * The load of a machine changes by the minute, so two separate runs cannot compare two programs.  A round runs each
 * program once, in a process of its own, and the order alternates from round to round.  Each round gives a ratio; the
 * median of the ratios is what a change gave.  Both programs get this program's command line. */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/system.h"
#include "bench/bench.h"
#include "bench/sorted.h"

extern char **environ;

enum { MINE, OTHER, SIDES };
enum { OUTPUT_MAX = 64 << 20, TESTS_MAX = 4096 };

struct paired_row {
	char *test;
	double *rate[SIDES]; /* [rounds] tokens a second */
};

struct paired {
	const struct bench_options *o;
	const char *program[SIDES];
	char **argv; /* of both, but for argv[0] */
	struct paired_row *row;
	int n_row, round;
};

/* ---- one run of one program ---- */

/* Our own command line from its second word, without --paired and its value; "--json -r 1" behind it. */
static char **command_line(struct buf *text, struct err *err)
{
	static const char *const last[] = { "--json", "--repetitions=1" };
	int n = 0, rc = system_words(OUTPUT_MAX, text, err);
	char **argv, *end;

	if (rc)
		return NULL;
	argv = xcalloc(text->n + 4, sizeof *argv);
	end = text->p + text->n;
	for (char *word = text->p; word < end; word += strlen(word) + 1) {
		if (!strcmp(word, "--paired"))
			word += strlen(word) + 1;
		else if (strncmp(word, "--paired=", 9) != 0)
			argv[n++] = word;
	}
	for (size_t i = 0; i < sizeof last / sizeof *last; i++)
		argv[n++] = (char *)last[i];
	return argv;
}

/* Runs the program and appends what it prints; its standard error is ours. */
static int output_of(const char *program, char **argv, struct buf *out, struct err *err)
{
	posix_spawn_file_actions_t io;
	int ends[2], status = 0, rc;
	pid_t pid;

	if (file_pipe(ends, 0))
		return err_set(err, E_IO, "no pipe to %s: %s", program, strerror(errno));
	posix_spawn_file_actions_init(&io);
	posix_spawn_file_actions_adddup2(&io, ends[1], STDOUT_FILENO);
	argv[0] = (char *)program;
	rc = posix_spawn(&pid, program, &io, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&io);
	close(ends[1]);
	if (rc) {
		close(ends[0]);
		return err_set(err, E_MISSING, "%s does not start: %s", program, strerror(rc));
	}
	rc = file_read_fd(ends[0], program, OUTPUT_MAX, out, err);
	close(ends[0]);
	waitpid(pid, &status, 0);
	if (!rc && !(WIFEXITED(status) && !WEXITSTATUS(status)))
		rc = err_set(err, E_IO, "%s ended with %s %d", program, WIFEXITED(status) ? "status" : "signal",
		             WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	return rc;
}

/* ---- figures ---- */

/* Row i is of that test; the first run of all says which there are. */
static int place_of(struct paired *p, int i, const char *test, struct err *err)
{
	if (i >= p->n_row) {
		struct paired_row *r;

		p->row = xrealloc(p->row, (size_t)(i + 1) * sizeof *p->row);
		r = &p->row[p->n_row++];
		r->test = xstrdup(test);
		for (int s = 0; s < SIDES; s++)
			r->rate[s] = xcalloc((size_t)p->o->repeat, sizeof *r->rate[s]);
	}
	return strcmp(p->row[i].test, test) ? err_set(err, E_FORMAT, "row %d is %s in one run and %s in another", i + 1,
	                                              p->row[i].test, test) :
	                                      0;
}

static int take_rows(struct paired *p, int side, const struct json *rows, struct err *err)
{
	int n = (int)json_len(rows), rc = 0;

	if (json_kind(rows) != JSON_ARRAY || n > TESTS_MAX || (p->n_row && n != p->n_row))
		return err_set(err, E_FORMAT, "%s printed %d rows where %d were expected", p->program[side], n,
		               p->n_row);
	for (int i = 0; i < n && !rc; i++) {
		const struct json *row = json_at(rows, (size_t)i);
		const char *test = json_str(json_get(row, "test"), NULL);
		double rate = 0;

		if (!test || json_to_double(json_get(row, "tokens_per_second"), &rate) || rate <= 0)
			return err_set(err, E_FORMAT, "%s printed a row without a test and its tokens_per_second",
			               p->program[side]);
		rc = place_of(p, i, test, err);
		if (!rc)
			p->row[i].rate[side][p->round] = rate;
	}
	return rc;
}

static int run_side(struct paired *p, int side, struct err *err)
{
	struct buf out;
	struct json *rows = NULL;
	int rc;

	buf_init(&out);
	rc = output_of(p->program[side], p->argv, &out, err);
	if (!rc && !(rows = json_parse(out.p, out.n, 0, err)))
		rc = err_prefix(err, "what %s printed", p->program[side]);
	if (!rc)
		rc = take_rows(p, side, rows, err);
	json_free(rows);
	buf_fini(&out);
	return rc;
}

/* ---- printing ---- */

static double median_of(const double *v, int n, double *sorted)
{
	memcpy(sorted, v, (size_t)n * sizeof *v);
	sort_doubles(sorted, (size_t)n);
	return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

static void put_row(const struct paired *p, int i, struct buf *out)
{
	const struct paired_row *r = &p->row[i];
	int n = p->o->repeat;
	double *ratio = xcalloc((size_t)n, sizeof *ratio), *sorted = xcalloc((size_t)n, sizeof *sorted);
	double mine = median_of(r->rate[MINE], n, sorted), other = median_of(r->rate[OTHER], n, sorted), mid;

	for (int k = 0; k < n; k++)
		ratio[k] = r->rate[MINE][k] / r->rate[OTHER][k];
	mid = median_of(ratio, n, sorted);
	if (p->o->json) {
		buf_puts(out, i ? ",\n{\"test\":" : "{\"test\":");
		json_put_cstr(out, r->test);
		buf_printf(out,
		           ",\"tokens_per_second\":%.6g,\"other_tokens_per_second\":%.6g,\"ratio\":%.6g,\"ratios\":[",
		           mine, other, mid);
		for (int k = 0; k < n; k++)
			buf_printf(out, "%s%.6g", k ? "," : "", ratio[k]);
		buf_puts(out, "]}");
	} else {
		buf_printf(out, "%-20s %10.1f %10.1f %8.3f %8.3f to %.3f\n", r->test, mine, other, mid, sorted[0],
		           sorted[n - 1]);
	}
	free(ratio);
	free(sorted);
}

static void print(const struct paired *p)
{
	struct buf out;

	buf_init(&out);
	if (p->o->json)
		buf_puts(&out, "[");
	else
		buf_printf(&out, "%d rounds; this is %s, the other %s\n\n%-20s %10s %10s %8s %s\n", p->o->repeat,
		           p->program[MINE], p->program[OTHER], "test", "this", "other", "ratio", "  least to most");
	for (int i = 0; i < p->n_row; i++)
		put_row(p, i, &out);
	if (p->o->json)
		buf_puts(&out, "]\n");
	fwrite(out.p, 1, out.n, stdout);
	buf_fini(&out);
}

int bench_paired(const struct bench_options *o, struct err *err)
{
	char self[4096] = "";
	struct paired p = { .o = o, .program = { self, o->paired } };
	struct buf text;
	int rc;

	buf_init(&text);
	rc = system_program(self, sizeof self, err);
	unsetenv("WEFT_PAIRED"); /* or the two would pair up, too */
	if (!rc && !(p.argv = command_line(&text, err)))
		rc = err->code;
	for (p.round = 0; p.round < o->repeat && !rc; p.round++) {
		if (isatty(STDERR_FILENO))
			fprintf(stderr, "round %d of %d\n", p.round + 1, o->repeat);
		for (int s = 0; s < SIDES && !rc; s++)
			rc = run_side(&p, s ^ (p.round & 1), err);
	}
	if (!rc)
		print(&p);
	for (int i = 0; i < p.n_row; i++) {
		free(p.row[i].test);
		for (int s = 0; s < SIDES; s++)
			free(p.row[i].rate[s]);
	}
	free(p.row);
	free(p.argv);
	buf_fini(&text);
	return rc;
}
