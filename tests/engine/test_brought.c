/* test_brought.c - rows that bring their own vectors, over real architectures: whatever is cut, cached, drafted, shared,
 * preempted or restarted around them, each row's logits are those of the same prompt alone and cold, bit for bit.
 *
 * The prompts have pictures of made-up vectors, with grids, in one run and side by side, divided in two with a token
 * between, and with rows that see each other both ways.
 *
 *     test_brought FOLDER... */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rng.h"
#include "engine/core.h"
#include "driver.h"
#include "test_backend.h"
#include "rows.h"
#include "spill_world.h"

enum { PROMPT = 190, ANSWER = 10, CTX = 256, STEP = 96, SPANS = 5, ALL = PROMPT + ANSWER, PARTS = 3 };

static int64_t stands(struct clock *c)
{
	return 1;
}

static struct clock still = { stands };

/* ---- pictures ---- */

struct picture {
	struct media m;
	float *made;
	int parts; /* that are still to be computed */
	bool fails;
};

static int live, worked, taken;

static int picture_work(struct media *m, int64_t ns, struct err *err)
{
	struct picture *p = (struct picture *)m;

	CHECK(!m->vectors && ns > 0, "asked for what is there");
	worked++;
	if (p->fails)
		return err_set(err, E_FORMAT, "a picture that cannot be computed");
	if (!--p->parts)
		m->vectors = p->made;
	return 0;
}

static void picture_free(struct media *m)
{
	free(((struct picture *)m)->made);
	free(m);
	live--;
}

static void picture_take(struct media *m, float *vectors)
{
	struct picture *p = (struct picture *)m;

	CHECK(!m->vectors, "brought, and there before");
	free(p->made);
	m->vectors = p->made = vectors;
	taken++;
}

static const struct media_ops picture_ops = { picture_work, picture_take, picture_free };

/* h x w rows; parts 0: the vectors are there.  Equal seeds give equal pictures. */
static struct media *picture(const struct model *m, uint64_t seed, int h, int w, bool grid, bool whole, int parts)
{
	struct picture *p = xcalloc(1, sizeof *p);
	size_t n = (size_t)(h * w), cols = (size_t)m->shape.hidden;
	struct sha256 s;

	p->m = (struct media){ .ops = &picture_ops,
		               .refs = 1,
		               .n = (int)n,
		               .hidden = (int)cols,
		               .bytes = n * cols * sizeof(float),
		               .grid_h = grid ? h : 0,
		               .grid_w = grid ? w : 0,
		               .whole = whole };
	sha256_init(&s);
	sha256_put(&s, &seed, sizeof seed);
	sha256_end(&s, &p->m.digest);
	p->made = xmalloc(n * cols * sizeof(float));
	for (size_t i = 0; i < n * cols; i++)
		p->made[i] = (float)(rng_uniform(seed, i, 5) - 0.5);
	p->parts = parts;
	p->m.vectors = parts ? NULL : p->made;
	live++;
	return &p->m;
}

/* A prompt with pictures. */
struct prompt {
	int32_t tok[ALL];
	struct ask_span span[SPANS];
};

/* seed: of the text; pics: of the pictures. */
static void prompt_make(struct prompt *q, const struct model *m, uint64_t seed, uint64_t pics, int parts)
{
	static const struct {
		int at, h, w, from, n;
		bool grid, whole;
	} form[SPANS] = {
		{ 11, 3, 4, 0, 12, true, false },   { 23, 1, 9, 0, 9, false, false },   { 60, 5, 6, 0, 30, true, true },
		{ 100, 1, 14, 0, 6, false, false }, { 107, 1, 14, 6, 8, false, false },
	};
	static struct media *divided;

	for (int i = 0; i < ALL; i++)
		q->tok[i] = (int32_t)(rng_bits(seed, (uint64_t)i, 3) % (uint64_t)m->shape.vocab);
	for (int i = 0; i < SPANS; i++) {
		struct media *p = form[i].from ? media_ref(divided) :
		                                 picture(m, pics + (uint64_t)i, form[i].h, form[i].w, form[i].grid,
		                                         form[i].whole, parts);

		divided = p;
		q->span[i] = (struct ask_span){ form[i].at, form[i].n, p, form[i].from };
	}
}

static void prompt_free(struct prompt *q)
{
	for (int i = 0; i < SPANS; i++)
		media_unref(q->span[i].media);
}

/* ---- an engine ---- */

struct how {
	int threads, slots, step_rows;
	bool tight; /* memory for hardly more than one */
	bool drafts, far;
	const char *kv, *dir;
	const struct spill_io *io; /* NULL: world_io() */
	size_t prefix_bytes;
	uint64_t disk_bytes; /* 0: plenty */
	double verify;
};

struct rig {
	struct backend *be;
	struct model *m;
	struct engine *e;
	struct drafter *d;
};

static struct rig rig_open(struct store *st, const struct how *h)
{
	struct model_opts mo = { .arith = ARITH_FAST,
		                 .slots = h->slots,
		                 .ctx_max = CTX,
		                 .step_rows = STEP,
		                 .tape_rows = 4,
		                 .snap_bytes = (size_t)1 << 30,
		                 .kv = h->kv ? kv_rows_of(kv_format_find(h->kv)) : model_kv_default(ARITH_FAST) };
	struct engine_opts eo = { .seqs_max = h->slots,
		                  .step_rows = h->step_rows,
		                  .logit_rows = h->step_rows,
		                  .queue_max = 8,
		                  .prefix_bytes = h->prefix_bytes,
		                  .by_hand = true,
		                  .answer_reserve = 4,
		                  .park_bytes = (size_t)1 << 26,
		                  .disk.dir = h->dir,
		                  .disk.bytes = h->disk_bytes ? h->disk_bytes : (uint64_t)1 << 30,
		                  .disk.io = h->dir && !h->io ? world_io() : h->io,
		                  .verify_share = h->verify,
		                  .clock = &still };
	struct rig g = { .be = test_backend_open(h->threads, cpu_detect()) };
	struct err err;

	CHECK(!model_bind(&g.m, st, &err), "%s", err.msg);
	if (h->tight)
		mo.kv_bytes = model_pool_bytes(&g.m->shape, &mo, -1, CTX) +
		              2 * model_pool_bytes(&g.m->shape, &mo, -1, 1);
	CHECK(!model_attach(g.m, g.be, &mo, &err), "%s", err.msg);
	if (h->drafts) {
		eo.drafter[0] = g.d = draft_ngram_open(h->slots, 1000);
		eo.n_drafter = 1;
		eo.n_draft = 4;
		eo.draft_fixed = true;
	}
	CHECK(!engine_open(&g.e, g.m, NULL, &eo, &err), "%s", err.msg);
	return g;
}

static void rig_close(struct rig *g)
{
	engine_close(g->e);
	if (g->d)
		g->d->ops->close(g->d);
	model_close(g->m);
	g->be->ops->close(g->be);
}

/* ---- one request ---- */

static void begin(struct run *u, const struct rig *g, const struct prompt *q)
{
	run_begin(u, q->tok, PROMPT, ANSWER, (size_t)g->m->shape.vocab);
	u->a.span = q->span;
	u->a.n_span = SPANS;
}

static struct run ask(const struct rig *g, const struct prompt *q, const struct run *want, const char *what)
{
	struct run u = { 0 };

	begin(&u, g, q);
	run_submit(&u, g->e);
	run_end(&u, g->e);
	if (want)
		run_same(&u, want, what);
	return u;
}

/* ---- the ways ---- */

static const struct how plain = { .threads = 2, .slots = 3, .step_rows = STEP };

static void splits(struct store *st, const struct prompt *q, const struct run *want)
{
	static const int size[][3] = { { 1, 1, 1 }, { 7, 7, 7 }, { 64, 64, 64 }, { 5, 1, 40 }, { 13, 90, 2 } };

	for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
		struct how h = plain;
		struct run u = { 0 };
		struct rig g;

		h.threads = 1 + (int)i % 3;
		g = rig_open(st, &h);
		begin(&u, &g, q);
		u.a.split = size[i];
		u.a.n_split = 3;
		run_submit(&u, g.e);
		run_end(&u, g.e);
		run_same(&u, want, "split");
		free(u.row);
		rig_close(&g);
	}
}

static void resumes(struct store *st, const struct prompt *q, const struct run *want)
{
	static const int at[] = { 12, 17, 23, 25, 60, 75, 89, 90, 103, 106, 110, 115, 150 };
	struct rig g = rig_open(st, &plain);

	for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
		struct run u = { 0 };

		begin(&u, &g, q);
		u.a.resume_at = at[i];
		run_submit(&u, g.e);
		run_end(&u, g.e);
		run_same(&u, want, "resumed at");
		free(u.row);
	}
	rig_close(&g);
}

/* Beside two others, one with other pictures; drafts on top; with vectors that come in parts. */
static void alongside(struct store *st, const struct prompt *q, const struct prompt *other, const struct run *want)
{
	for (int k = 0; k < 4; k++) {
		struct how h = plain;
		struct run u = { 0 }, v = { 0 }, w = { 0 };
		struct prompt late;
		struct rig g;

		h.drafts = k & 1;
		h.tight = k & 2;
		g = rig_open(st, &h);
		prompt_make(&late, g.m, 1, 100, PARTS);
		begin(&w, &g, other);
		w.a.on_logits = NULL;
		run_submit(&w, g.e);
		engine_step(g.e);
		begin(&u, &g, q);
		run_submit(&u, g.e);
		engine_step(g.e);
		begin(&v, &g, &late);
		run_submit(&v, g.e);
		while (engine_step(g.e))
			;
		run_end(&w, g.e);
		run_end(&u, g.e);
		run_end(&v, g.e);
		run_same(&u, want, "alongside");
		run_same(&v, want, "alongside, vectors in parts");
		free(u.row);
		free(v.row);
		free(w.row);
		prompt_free(&late);
		rig_close(&g);
	}
}

/* While pictures are computed, an answer that runs has a token in every step, and a part is computed in each. */
static void shared(struct store *st, const struct prompt *q)
{
	struct rig g = rig_open(st, &plain);
	struct run u = { 0 }, v = { 0 };
	struct prompt late;

	prompt_make(&late, g.m, 1, 100, 8);
	begin(&u, &g, q);
	u.a.on_logits = NULL;
	run_submit(&u, g.e);
	while (!u.n_got) {
		engine_step(g.e);
		run_read(&u);
	}
	worked = 0;
	begin(&v, &g, &late);
	v.a.on_logits = NULL;
	run_submit(&v, g.e);
	while (!worked) { /* what is before the first picture */
		CHECK(u.n_got < 5, "no picture is begun");
		engine_step(g.e);
		run_read(&u);
	}
	for (int i = 0; i < 4; i++) {
		int had = u.n_got, parts = worked;

		engine_step(g.e);
		run_read(&u);
		CHECK(u.n_got == had + 1 && worked == parts + 1, "step %d: %d tokens, %d parts", i, u.n_got - had,
		      worked - parts);
	}
	run_end(&u, g.e);
	run_end(&v, g.e);
	free(u.row);
	free(v.row);
	prompt_free(&late);
	rig_close(&g);
}

/* One slot, taken by a more urgent request again and again. */
static void preempted(struct store *st, const struct prompt *q, const struct run *want)
{
	struct how h = plain;
	struct rig g;
	struct run u = { 0 };
	int n = 0;

	h.slots = 1;
	g = rig_open(st, &h);
	begin(&u, &g, q);
	u.a.split = (const int[]){ 9 };
	u.a.n_split = 1;
	run_submit(&u, g.e);
	for (int i = 0; i < 12; i++) {
		struct run v = { 0 };

		engine_step(g.e);
		begin(&v, &g, q);
		v.a.priority = 5;
		v.a.on_logits = NULL;
		v.a.max_tokens = 1;
		run_submit(&v, g.e);
		while (!v.done && engine_step(g.e))
			run_read(&v);
		request_free(v.r);
		free(v.row);
		n++;
	}
	run_end(&u, g.e);
	CHECK(u.end.n_preempted > 3, "%d of %d preempted", u.end.n_preempted, n);
	run_same(&u, want, "preempted");
	free(u.row);
	rig_close(&g);
}

/* Kept prefixes: found with equal pictures made anew, up to the first that differs with others;
 * after a cancel in the middle; on disk and after a restart. */
static void kept(struct store *st, const struct prompt *q, const struct run *want)
{
	struct how h = plain;
	struct prompt again, swapped, shorter;
	struct run u, c = { 0 };
	struct rig g;
	char dir[PATH_MAX];

	world_dir(dir);
	h.prefix_bytes = (size_t)1 << 28;
	h.dir = dir;
	g = rig_open(st, &h);
	begin(&c, &g, q);
	c.a.split = (const int[]){ 20 };
	c.a.n_split = 1;
	run_submit(&c, g.e);
	for (int i = 0; i < 5; i++)
		engine_step(g.e);
	request_cancel(c.r);
	run_end(&c, g.e);
	CHECK(c.end.finish == FINISH_CANCEL, "not cancelled");
	free(c.row);
	u = ask(&g, q, want, "after a cancel");
	CHECK(u.end.n_cached > 0, "nothing was kept of what was cancelled");
	free(u.row);
	prompt_make(&again, g.m, 1, 100, PARTS);
	worked = 0;
	u = ask(&g, &again, want, "the same pictures again");
	CHECK(u.end.n_cached >= PROMPT - 20 && !worked, "%d cached, %d parts computed", u.end.n_cached, worked);
	free(u.row);
	for (int i = 0; i < SPANS; i++) {
		/* Another picture of the same size in one place; the two of the divided one are one. */
		uint64_t pics[] = { 100, 101, 102, 103, 103 };

		prompt_make(&swapped, g.m, 1, 100, 0);
		prompt_make(&shorter, g.m, 1, pics[i] + 1000 - (uint64_t)i, 0);
		media_unref(swapped.span[i].media);
		swapped.span[i].media = media_ref(shorter.span[i].media);
		if (i >= 3) {
			media_unref(swapped.span[7 - i].media);
			swapped.span[7 - i].media = media_ref(shorter.span[i].media);
		}
		u = ask(&g, &swapped, NULL, NULL);
		CHECK(u.end.n_cached <= swapped.span[i == 4 ? 3 : i].at,
		      "picture %d is another: %d of its prompt cached", i, u.end.n_cached);
		CHECK(memcmp(u.row + (size_t)(PROMPT - 1) * u.vocab, want->row + (size_t)(PROMPT - 1) * u.vocab,
		             u.vocab * sizeof(float)),
		      "picture %d has no say", i);
		free(u.row);
		prompt_free(&swapped);
		prompt_free(&shorter);
	}
	rig_close(&g);
	g = rig_open(st, &h);
	worked = 0;
	u = ask(&g, &again, want, "after a restart");
	CHECK(u.end.prefix.source == PREFIX_DISK && u.end.n_cached >= PROMPT - 20 && !worked, "%d cached from %s",
	      u.end.n_cached, prefix_source_name(u.end.prefix.source));
	free(u.row);
	prompt_free(&again);
	/* Other pictures under a table of ids that begins anew: first ids are equal, nothing else. */
	rig_close(&g);
	g = rig_open(st, &h);
	prompt_make(&swapped, g.m, 1, 2000, 0);
	u = ask(&g, &swapped, NULL, NULL);
	CHECK(u.end.n_cached <= swapped.span[0].at, "other pictures: %d cached from disk", u.end.n_cached);
	free(u.row);
	prompt_free(&swapped);
	rig_close(&g);
	world_remove(dir);
}

/* Changes one byte of every file. */
static void damage_all(const char *dir)
{
	struct world_files f = world_files(dir, ".snap");
	struct dirent *d;
	DIR *folder;
	int n = 0;

	CHECK(f.files && !f.tmp, "%d files", f.files);
	*strrchr(f.last, '/') = 0;
	CHECK((folder = opendir(f.last)), "%s", f.last);
	while ((d = readdir(folder))) {
		int fd = d->d_name[0] == '.' ? -1 : openat(dirfd(folder), d->d_name, O_RDWR);
		struct stat s;
		char c;

		if (fd < 0)
			continue;
		CHECK(!fstat(fd, &s) && pread(fd, &c, 1, s.st_size - 1 - n) == 1, "%s", d->d_name);
		c ^= 4;
		CHECK(pwrite(fd, &c, 1, s.st_size - 1 - n++) == 1, "%s", d->d_name);
		close(fd);
	}
	closedir(folder);
}

/* A prompt's pictures, two of whose spans are of one; and the parts of their work. */
enum { PICTURES = 4, WORK = PICTURES * PARTS };

/* The pictures of a prompt whose text nobody knows, over an engine that is opened anew. */
static void seen(struct store *st, const struct how *h, uint64_t text, uint64_t pics, const struct run *want, int works,
                 int takes, const char *what)
{
	struct rig g = rig_open(st, h);
	struct prompt p;
	struct run u;

	prompt_make(&p, g.m, text, pics, PARTS);
	worked = taken = 0;
	u = ask(&g, &p, want, what);
	CHECK(!u.end.n_cached && worked == works && taken == takes,
	      "%s: %d cached, %d parts computed, %d pictures read", what, u.end.n_cached, worked, taken);
	free(u.row);
	prompt_free(&p);
	rig_close(&g);
}

/* A disk whose reads do not end while it is held. */
static pthread_mutex_t reads = PTHREAD_MUTEX_INITIALIZER;

static ssize_t held_read(const struct spill_io *io, int fd, void *p, size_t n, uint64_t at)
{
	pthread_mutex_lock(&reads);
	pthread_mutex_unlock(&reads);
	return spill_io_real.read(io, fd, p, n, at);
}

/* The client leaves while a picture is read. */
static void read_for_nobody(struct store *st, const struct how *kept)
{
	struct spill_io io = *world_io();
	struct how h = *kept;
	struct run u = { 0 };
	struct prompt p;
	struct rig g;

	io.read = held_read;
	h.io = &io;
	g = rig_open(st, &h);
	pthread_mutex_lock(&reads);
	prompt_make(&p, g.m, 6, 100, PARTS);
	begin(&u, &g, &p);
	run_submit(&u, g.e);
	while (!g.e->vectors.load)
		CHECK(engine_step(g.e), "nothing is read");
	request_cancel(u.r);
	pthread_mutex_unlock(&reads);
	run_end(&u, g.e);
	CHECK(u.end.finish == FINISH_CANCEL && !g.e->vectors.load, "a read outlives the request");
	free(u.row);
	prompt_free(&p);
	rig_close(&g);
}

/* Vectors on disk: known pictures in other text run no tower after a restart; those that are damaged, others, or dropped
 * for want of room are computed. */
static void vectors_kept(struct store *st)
{
	struct how h = plain;
	struct prompt first, second;
	struct run want, later;
	struct rig g = rig_open(st, &plain);
	struct world_files f;
	char dir[PATH_MAX];

	prompt_make(&first, g.m, 3, 100, 0);
	prompt_make(&second, g.m, 4, 100, 0);
	want = ask(&g, &first, NULL, NULL);
	later = ask(&g, &second, NULL, NULL);
	rig_close(&g);
	world_dir(dir);
	h.prefix_bytes = (size_t)1 << 28;
	h.dir = dir;
	seen(st, &h, 3, 100, &want, WORK, 0, "pictures that are new");
	seen(st, &h, 4, 100, &later, 0, PICTURES, "known pictures after a restart");
	seen(st, &h, 5, 900, NULL, WORK, 0, "other pictures");
	read_for_nobody(st, &h);
	damage_all(dir);
	seen(st, &h, 4, 100, &later, WORK, 0, "damaged");
	seen(st, &h, 7, 100, NULL, 0, PICTURES, "written anew");
	world_remove(dir);

	world_dir(dir);
	h.disk_bytes = 3 * first.span[2].media->bytes;
	seen(st, &h, 3, 100, &want, WORK, 0, "a small disk");
	f = world_files(dir, "");
	CHECK(f.bytes <= h.disk_bytes, "%d bytes on a disk of %d", (int)f.bytes, (int)h.disk_bytes);
	world_remove(dir);

	world_dir(dir);
	h.disk_bytes = SPILL_HEAD;
	seen(st, &h, 3, 100, &want, WORK, 0, "hardly a disk");
	seen(st, &h, 3, 100, &want, WORK, 0, "hardly a disk again");
	world_remove(dir);
	prompt_free(&first);
	prompt_free(&second);
	free(want.row);
	free(later.row);
}

/* The engine computes what was found again, with the pictures, and compares. */
static void proved(struct store *st, const struct prompt *q, const struct run *want)
{
	struct how h = plain;
	struct engine_stats es;
	struct rig g;
	struct run u;

	h.prefix_bytes = (size_t)1 << 28;
	h.verify = 1;
	g = rig_open(st, &h);
	for (int i = 0; i < 3; i++) {
		u = ask(&g, q, want, "proved");
		free(u.row);
	}
	engine_stats(g.e, &es);
	CHECK(es.prefix.verified == 2 && !es.prefix.wrong, "%d of %d wrong", (int)es.prefix.wrong,
	      (int)es.prefix.verified);
	rig_close(&g);
}

static void row_formats(struct store *st, const struct prompt *q)
{
	static const char *const name[] = { "f32", "u8g32", "tq4" };

	for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
		struct how h = plain;
		struct run want, u = { 0 };
		struct rig g;

		h.kv = name[i];
		if (!kv_format_find(name[i]))
			continue;
		g = rig_open(st, &h);
		want = ask(&g, q, NULL, NULL);
		begin(&u, &g, q);
		u.a.split = (const int[]){ 17, 3 };
		u.a.n_split = 2;
		run_submit(&u, g.e);
		run_end(&u, g.e);
		run_same(&u, &want, name[i]);
		free(u.row);
		free(want.row);
		rig_close(&g);
	}
}

/* Vectors that are the embeddings of tokens, without a grid, give what the tokens give. */
static void as_tokens(struct store *st, float scale)
{
	static const char *const path[] = { "language_model.model.embed_tokens", "model.embed_tokens" };
	struct rig g = rig_open(st, &plain);
	int hidden = g.m->shape.hidden, rc = E_MISSING;
	struct run want = { 0 }, u;
	struct prompt q;
	struct weight w;
	struct err err;

	for (size_t i = 0; i < sizeof path / sizeof *path && rc; i++)
		rc = store_weight(st, path[i], g.m->shape.vocab, hidden, &w, &err);
	CHECK(!rc, "%s", err.msg);
	prompt_make(&q, g.m, 7, 300, 0);
	for (int i = 0; i < SPANS; i++) {
		struct media *m = q.span[i].media;

		m->grid_h = m->grid_w = 0;
		m->whole = false;
		for (int k = 0; k < q.span[i].n; k++) {
			float *to = ((struct picture *)m)->made + (size_t)(q.span[i].from + k) * (size_t)hidden;

			w.fmt->decode(to, &w, q.tok[q.span[i].at + k]);
			for (int c = 0; c < hidden; c++)
				to[c] *= scale;
		}
	}
	begin(&want, &g, &q);
	want.a.n_span = 0;
	run_submit(&want, g.e);
	run_end(&want, g.e);
	u = ask(&g, &q, &want, "vectors of tokens");
	free(want.row);
	free(u.row);
	prompt_free(&q);
	rig_close(&g);
}

/* What cannot be computed is refused, or ends its own request alone. */
static void refused(struct store *st, const struct prompt *q, const struct run *want)
{
	struct rig g = rig_open(st, &plain);
	struct run u = { 0 }, v = { 0 };
	struct prompt bad;
	struct err err;

	begin(&u, &g, q);
#define REFUSED(code, change, back)                                                           \
	do {                                                                                  \
		struct prompt p_ = *q;                                                        \
		struct media m_ = *q->span[2].media;                                          \
		struct ask_span *s = p_.span;                                                 \
		u.a.prompt = p_.tok;                                                          \
		u.a.span = s;                                                                 \
		u.a.n_span = SPANS;                                                           \
		(void)m_;                                                                     \
		change;                                                                       \
		CHECK(engine_submit(g.e, &u.a, &u.r, &err) == code, "not refused: " #change); \
	} while (0)
	REFUSED(E_ARG, s[1].at = 22, );
	REFUSED(E_ARG, s[4].n = 9, );
	REFUSED(E_ARG, s[4].from = -1, );
	REFUSED(E_ARG, s[4].at = PROMPT - 7, );
	REFUSED(E_ARG, s[0].n = 11, );
	REFUSED(E_ARG, (s[2].media = &m_, m_.hidden++), );
	REFUSED(E_ARG, (s[2].media = &m_, m_.deep++), );
	REFUSED(E_ARG, (s[2].media = &m_, m_.grid_h++), );
	REFUSED(E_ARG, p_.tok[0] = -3, );
	REFUSED(E_LIMIT, (s[2].media = &m_, m_.grid_h = 0, m_.n = s[2].n = STEP, u.a.n_span = 3), );
	prompt_make(&bad, g.m, 1, 500, PARTS);
	((struct picture *)bad.span[2].media)->fails = true;
	begin(&u, &g, &bad);
	run_submit(&u, g.e);
	begin(&v, &g, q);
	run_submit(&v, g.e);
	run_end(&v, g.e);
	run_read(&u);
	CHECK(u.done && u.end.finish == FINISH_ERROR && u.end.err.code == E_FORMAT, "a picture that fails");
	request_free(u.r);
	run_same(&v, want, "beside one whose picture fails");
	free(u.row);
	free(v.row);
	prompt_free(&bad);
	rig_close(&g);
}

/* Three tokens, one that begins a picture of 2 x 3 rows, one that ends it, two more (Qwen2-VL's example); and what sees
 * what where the picture's rows see each other. */
static void positions(void)
{
	static const int want[][3] = { { 0, 0, 0 }, { 1, 1, 1 }, { 2, 2, 2 }, { 3, 3, 3 }, { 4, 4, 4 },
		                       { 4, 4, 5 }, { 4, 4, 6 }, { 4, 5, 4 }, { 4, 5, 5 }, { 4, 5, 6 },
		                       { 7, 7, 7 }, { 8, 8, 8 }, { 9, 9, 9 } };
	struct media m = { .n = 6, .grid_h = 2, .grid_w = 3, .whole = true };
	struct brought_span span = { .media = &m, .at = 4, .n = 6, .rope = 4, .after = 7 };
	struct brought b = { .span = &span, .n = 1 };

	for (int i = 0; i < 13; i++) {
		int in = i > 4 && i < 10;
		int32_t got[3];

		brought_rope(&b, i, got);
		CHECK(!memcmp(got, want[i], sizeof got), "row %d: %d %d %d", i, got[0], got[1], got[2]);
		CHECK(brought_sees(&b, i) == (i >= 4 && i < 10 ? 9 : i), "row %d sees %d", i, brought_sees(&b, i));
		CHECK(brought_floor(&b, i) == (in ? 4 : i) && brought_ceil(&b, i) == (in ? 10 : i), "row %d cuts", i);
	}
}

static void folder(const char *path)
{
	struct prompt q, other;
	struct run want;
	struct store *st;
	struct how one = plain;
	struct rig g;
	struct err err;

	CHECK(!store_open(&st, path, &err), "%s", err.msg);
	one.threads = 1;
	g = rig_open(st, &one);
	prompt_make(&q, g.m, 1, 100, 0);
	prompt_make(&other, g.m, 2, 200, 0);
	want = ask(&g, &q, NULL, NULL);
	CHECK(want.end.finish == FINISH_LENGTH, "%s", want.end.err.msg);
	rig_close(&g);
	splits(st, &q, &want);
	resumes(st, &q, &want);
	alongside(st, &q, &other, &want);
	shared(st, &q);
	preempted(st, &q, &want);
	kept(st, &q, &want);
	proved(st, &q, &want);
	row_formats(st, &q);
	as_tokens(st, strstr(path, "gemma") ? 8 : 1); /* the square root of 64, by which Gemma scales */
	refused(st, &q, &want);
	printf("%s: rows that bring their vectors: split, resumed, alongside, drafted, preempted, kept, from disk, their vectors too\n",
	       path);
	prompt_free(&q);
	prompt_free(&other);
	free(want.row);
	vectors_kept(st);
	store_close(st);
	CHECK(!live, "%d pictures are left", live);
}

int main(int argc, char **argv)
{
	log_set_level(LOG_ERROR);
	positions();
	for (int i = 1; i < argc; i++)
		folder(argv[i]);
	return 0;
}
