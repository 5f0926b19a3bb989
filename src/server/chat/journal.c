/* journal.c - see journal.h. */
#include "server/chat/journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "server/chat/generate.h"
#include "server/inside.h"

enum {
	HEAD_BYTES = 104,
	WRITE_TOKENS = 16,      /* written at once */
	STAY_SECONDS = 60 * 60, /* of a file without a new token */
	SWEEP_SECONDS = 60,     /* between two looks for old files */
};
static const char magic[8] = "weftjrn1", folder[] = "streams";

struct journal {
	int fd; /* -1: nothing can be written any more */
	char id[40];
	uint64_t seed;
	int64_t created;
	struct tokens prompt; /* of one that was found */
	struct tokens known;
	int said; /* tokens that were taken */
	off_t at; /* in the file, of the answer's first token */
	int32_t wait[WRITE_TOKENS];
	int n_wait;                       /* of the last taken, not given to a worker yet */
	struct stream_place place, after; /* the last event numbered; the last that the client has */
	atomic_int refs;                  /* its stream, and what workers write */
};

/* ---- files ---- */

static void path_of(const struct served *d, const char *name, struct buf *out)
{
	buf_init(out);
	buf_printf(out, "%s/%s/%s", d->journal_dir, folder, name);
}

static void unref(struct journal *j)
{
	if (atomic_fetch_sub(&j->refs, 1) > 1)
		return;
	if (j->fd >= 0)
		close(j->fd);
	tokens_fini(&j->prompt);
	tokens_fini(&j->known);
	free(j);
}

static struct journal *journal_new(const char *id)
{
	struct journal *j = xcalloc(1, sizeof *j);

	j->fd = -1;
	snprintf(j->id, sizeof j->id, "%s", id);
	tokens_init(&j->prompt);
	tokens_init(&j->known);
	atomic_init(&j->refs, 1);
	return j;
}

static void put64(struct buf *b, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		buf_putc(b, (char)(v >> 8 * i));
}
static void put32(struct buf *b, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		buf_putc(b, (char)(v >> 8 * i));
}
static uint64_t get(const char *p, int n)
{
	uint64_t v = 0;

	for (int i = 0; i < n; i++)
		v |= (uint64_t)(uint8_t)p[i] << 8 * i;
	return v;
}

static void put_file(const struct generation *g, struct buf *b)
{
	const struct tokens *t = &g->prompts.of[0];
	struct buf prompt;

	buf_init(&prompt);
	for (size_t i = 0; i < t->n; i++)
		put32(&prompt, (uint32_t)t->id[i]);
	buf_put(b, magic, sizeof magic);
	put64(b, (uint64_t)g->created);
	put64(b, g->params.sampling.seed);
	buf_put(b, (const char *)g->x->asked.b, sizeof g->x->asked.b);
	buf_put(b, (const char *)g->served->identity.b, sizeof g->served->identity.b);
	put32(b, (uint32_t)t->n);
	put32(b, 0);
	put64(b, check128(b->p, b->n, prompt.p, prompt.n).lo);
	buf_put(b, prompt.p, prompt.n);
	buf_fini(&prompt);
}

/* Removes files whose last token is old, now and then.  Other servers may do so, too. */
static void sweep(const char *dir)
{
	static atomic_llong swept;
	long long now = (long long)time(NULL), last = atomic_load(&swept);
	struct dirent *e;
	struct stat st;
	DIR *d;

	if (now - last < SWEEP_SECONDS || !atomic_compare_exchange_strong(&swept, &last, now) || !(d = opendir(dir)))
		return;
	while ((e = readdir(d)))
		if (e->d_name[0] != '.' && !fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) &&
		    S_ISREG(st.st_mode) && now - (long long)st.st_mtime > STAY_SECONDS)
			unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
}

/* The file under its name is whole from the beginning. */
static int create(struct journal *j, const struct generation *g, struct err *err)
{
	struct buf dir, tmp, path, b;
	char part[48];
	int rc;

	snprintf(part, sizeof part, "%s.part", j->id);
	path_of(g->served, "", &dir);
	path_of(g->served, part, &tmp);
	path_of(g->served, j->id, &path);
	buf_init(&b);
	put_file(g, &b);
	rc = dir_make(dir.p, err);
	if (!rc) {
		sweep(dir.p);
		j->fd = open(tmp.p, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (j->fd < 0 || file_write_at(j->fd, b.p, b.n, 0) || rename(tmp.p, path.p))
			rc = err_set(err, E_IO, "%s: %s", tmp.p, strerror(errno));
		j->at = (off_t)b.n;
	}
	buf_fini(&b);
	buf_fini(&path);
	buf_fini(&tmp);
	buf_fini(&dir);
	return rc;
}

static int broken(const struct journal *j, struct problem *p)
{
	return problem_set(p, 404, "unknown_stream", NULL,
	                   "the file of stream %s is damaged: send the request without Last-Event-ID", j->id);
}

/* Reads the file, which is hostile until its sum is right. */
static int parse(struct journal *j, const struct generation *g, const struct buf *b, struct problem *p)
{
	uint64_t n;

	if (b->n < HEAD_BYTES || memcmp(b->p, magic, sizeof magic))
		return broken(j, p);
	n = get(b->p + 88, 4);
	if (n > (b->n - HEAD_BYTES) / 4 || get(b->p + 96, 8) != check128(b->p, 96, b->p + HEAD_BYTES, (size_t)n * 4).lo)
		return broken(j, p);
	if (memcmp(b->p + 24, g->x->asked.b, 32))
		return problem_set(p, 409, "other_request", NULL,
		                   "Last-Event-ID: this is not the request that began stream %s", j->id);
	if (memcmp(b->p + 56, g->served->identity.b, 32))
		return problem_set(
			p, 409, "other_model", NULL,
			"Last-Event-ID: stream %s began with another model, template or arithmetic than this server's",
			j->id);
	j->created = (int64_t)get(b->p + 8, 8);
	j->seed = get(b->p + 16, 8);
	for (size_t i = 0; i < n; i++)
		tokens_put(&j->prompt, (int32_t)get(b->p + HEAD_BYTES + 4 * i, 4));
	j->at = HEAD_BYTES + (off_t)n * 4;
	for (size_t at = (size_t)j->at; at + 4 <= b->n; at += 4) {
		int64_t id = (int64_t)get(b->p + at, 4) - 1;

		if (id < 0 || id >= g->served->vocab)
			break;
		tokens_put(&j->known, (int32_t)id);
	}
	return 0;
}

int journal_find(struct generation *g, struct problem *p)
{
	const struct last_event *after = &g->x->headers.last_event;
	struct journal *j;
	struct buf path, b;
	struct err err;
	int r = 0;

	if (!after->asked)
		return 0;
	if (!g->served->journal_dir)
		return problem_set(p, 404, "unknown_stream", NULL,
		                   "Last-Event-ID: this server keeps no journal of streams (--tune journal)");
	if (!after->sound)
		return problem_set(p, 400, "invalid_value", "Last-Event-ID",
		                   "Last-Event-ID is not an id of this API's streams");
	j = journal_new(after->answer);
	path_of(g->served, j->id, &path);
	buf_init(&b);
	j->fd = open(path.p, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (j->fd < 0 || file_read_fd(j->fd, path.p, HEAD_BYTES + 8 * (size_t)g->served->ctx_max + 4, &b, &err))
		r = problem_set(
			p, 404, "unknown_stream", NULL,
			"Last-Event-ID: there is no stream %s here, or it is too old: send the request without it",
			j->id);
	else
		r = parse(j, g, &b, p);
	buf_fini(&b);
	buf_fini(&path);
	if (r) {
		unref(j);
		return r;
	}
	j->after = after->place;
	g->stream.journal = j;
	g->created = j->created;
	return 0;
}

static bool can_resume(const struct generation *g)
{
	return g->served->journal_dir && g->endpoint->resumes && g->params.stream && g->params.n == 1 &&
	       g->prompts.n == 1 && !g->rows.kinds && !g->prompts.told;
}

/* The prompt may be spelled by other tokens here: past answers that this server did not give are tokenised again. */
static int put_prompt(struct generation *g, struct problem *p)
{
	const struct tokens *t = &g->stream.journal->prompt;
	struct tokens *now = &g->prompts.of[0];

	if (t->n == now->n && !memcmp(t->id, now->id, t->n * sizeof *t->id))
		return 0;
	for (size_t i = 0; i < t->n; i++)
		if (t->id[i] < 0 || t->id[i] >= g->served->vocab)
			return broken(g->stream.journal, p);
	if (g->images.n_span)
		return problem_set(
			p, 409, "other_prompt", NULL,
			"Last-Event-ID: the prompt of stream %s, which has images, is spelled by other tokens here",
			g->stream.journal->id);
	tokens_fini(now);
	tokens_init(now);
	for (size_t i = 0; i < t->n; i++)
		tokens_put(now, t->id[i]);
	g->marks.n = g->messages.n = 0;
	return 0;
}

int journal_begin(struct generation *g, struct problem *p)
{
	struct sampler_params *s = &g->params.sampling;
	struct journal *j = g->stream.journal;
	struct err err;

	if (!can_resume(g))
		return j ? problem_set(p, 400, "invalid_value", "Last-Event-ID",
		                       "Last-Event-ID: only a stream of one answer to one prompt can be continued") :
		           0;
	if (j || !g->params.seeded)
		s->seed = j ? j->seed : rng_os_seed();
	g->params.seeded = true;
	if (j)
		return put_prompt(g, p);
	j = journal_new(g->x->id);
	if (create(j, g, &err)) {
		log_warn("%s: no journal of this stream: %s", g->x->request_id, err.msg);
		unref(j);
		return 0;
	}
	g->stream.journal = j;
	return 0;
}

/* ---- a running stream ---- */

const int32_t *journal_known(const struct journal *j, int *n)
{
	*n = (int)j->known.n;
	return j->known.id;
}

struct record {
	struct journal *j;
	off_t at;
	struct buf b;
};

static void write_record(void *arg)
{
	struct record *r = arg;

	/* What is not written is decoded again. */
	(void)file_write_at(r->j->fd, r->b.p, r->b.n, (uint64_t)r->at);
	buf_fini(&r->b);
	unref(r->j);
	free(r);
}

static void flush(struct journal *j, struct server *s)
{
	struct record *r;

	if (!j->n_wait)
		return;
	r = xcalloc(1, sizeof *r);
	r->j = j;
	r->at = j->at + (off_t)(j->said - j->n_wait) * 4;
	buf_init(&r->b);
	for (int i = 0; i < j->n_wait; i++)
		put32(&r->b, (uint32_t)j->wait[i] + 1);
	j->n_wait = 0;
	atomic_fetch_add(&j->refs, 1);
	workers_discard(s, write_record, r);
}

bool journal_take(struct journal *j, struct server *s, int32_t token)
{
	if ((size_t)j->said < j->known.n && j->known.id[j->said] != token)
		return false;
	j->place = (struct stream_place){ ++j->said, 0 };
	if ((size_t)j->said <= j->known.n)
		return true;
	j->wait[j->n_wait++] = token;
	if (j->n_wait == WRITE_TOKENS)
		flush(j, s);
	return true;
}

void journal_number(struct journal *j, struct buf *out)
{
	struct buf b;

	buf_init(&b);
	for (const char *p = out->p, *end = out->p + out->n; out->n && p < end;) {
		const char *to = memmem(p, (size_t)(end - p), "\n\n", 2);

		to = to ? to + 2 : end;
		j->place.event++;
		if (stream_place_after(j->place, j->after)) {
			buf_printf(&b, "id: %s.%d.%d\n", j->id, j->place.token, j->place.event);
			buf_put(&b, p, (size_t)(to - p));
		}
		p = to;
	}
	buf_reset(out);
	buf_put(out, b.p, b.n);
	buf_fini(&b);
}

void journal_close(struct journal *j, struct server *s)
{
	flush(j, s);
	unref(j);
}
