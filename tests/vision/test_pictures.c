/* test_pictures.c - the law over real towers: prompts with pictures and sounds of the golden vectors, whose towers are run by
 * the engine between its steps.  Taken up anew at each place inside and after a picture, interrupted again and again while
 * towers work and inside pictures, short of memory, cut, and from kept prefixes, each row's logits are those of the
 * same prompt alone and cold, bit for bit; and cold ones are the reference's.
 *
 * Over a device (WEFT_TEST_BACKEND) towers stay on the processor, whose rows' logits are what the device's must be; quick,
 * without what happens between steps, where no device is asked.
 *
 *     test_pictures [FAMILY]... */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "check.h"
#include "driver.h"
#include "engine/core.h"
#include "rows.h"
#include "sound/ear.h"
#include "store/safetensors.h"
#include "test_backend.h"
#include "vision/tower.h"

enum { ANSWER = 6, CTX = 512, STEP = 400, SPANS = 64, ROWS = 300, PICTURES = 3 };

static const float TOLERANCE = 1e-3f; /* absolute, of logits, with reference arithmetic */

static int64_t stands(struct clock *c)
{
	return 1;
}

static struct clock still = { stands };

/* ---- a folder's prompt ---- */

struct sample {
	struct store *st;
	struct image pic[PICTURES];
	struct sound sound[PICTURES]; /* in place of the picture, where it has samples */
	int n_pic;
	int32_t id[ROWS];
	int n;
	struct safetensors golden;
	char made[32];         /* a folder of links; "": none */
	const char *logits;    /* the tensor's name in it */
	const char *positions; /* of which positions these are; NULL: of all */
};

static void file_of(struct buf *b, const char *fmt, const char *root, const char *name)
{
	char path[2 * PATH_MAX];
	struct err err;

	snprintf(path, sizeof path, fmt, root, name);
	buf_init(b);
	CHECK(!file_read(path, 1 << 22, b, &err), "%s", err.msg);
}

static void store_of(struct sample *s, const char *path)
{
	struct err err;

	CHECK(!store_open(&s->st, path, &err), "%s", err.msg);
}

static void golden_of(struct safetensors *golden, const char *path)
{
	struct err err;

	CHECK(!safetensors_open(golden, path, &err), "%s", err.msg);
}

static int int_at(const struct tensor *t, int64_t i)
{
	return t->type == DT_I64 ? (int)((const int64_t *)(const void *)t->data)[i] :
	                           ((const int32_t *)(const void *)t->data)[i];
}

static void take_ids(struct sample *s, const char *name)
{
	const struct tensor *t = safetensors_find(&s->golden, name);

	CHECK(t && t->count <= ROWS, "no %s, or too many", name);
	s->n = (int)t->count;
	for (int i = 0; i < s->n; i++)
		s->id[i] = int_at(t, i);
}

/* Of _vision2/NAME, as gemma3/hf-f32. */
static void sample_new(struct sample *s, const char *root, const char *name)
{
	static const char *const file[] = { "a37x53", "e75x118_rgba" };
	char path[2 * PATH_MAX];
	struct err err;

	snprintf(path, sizeof path, "%s/_vision2/%s", root, name);
	store_of(s, path);
	snprintf(path, sizeof path, "%s/_vision2/%s/vision.safetensors", root, name);
	golden_of(&s->golden, path);
	s->n_pic = 2;
	for (int i = 0; i < s->n_pic; i++) {
		struct buf b;

		file_of(&b, "%s/_vision2/images/%s.png", root, file[i]);
		CHECK(!image_decode(&s->pic[i], b.p, b.n, NULL, &err), "%s", err.msg);
		buf_fini(&b);
	}
	take_ids(s, "two.input_ids");
	s->logits = "two.prompt_logits";
}

/* Of NAME/hf-bf16, with pictures and sounds in the order of the prompt. */
static void sample_mixed(struct sample *s, const char *root, const char *name)
{
	static const struct {
		const char *name, *ids, *logits, *positions, *file[PICTURES];
	} all[] = {
		{ "gemma4_unified",
		  "mixed.input_ids",
		  "mixed.prompt_logits_at",
		  "mixed.logit_positions",
		  { "small.png", "s2.wav", "exact.png" } },
		{ "gemma4_sound",
		  "two.input_ids",
		  "two.prompt_logits_at",
		  "two.logit_positions",
		  { "s2.wav", "s1.wav" } },
	};
	int k = strcmp(name, all[0].name) != 0;
	char path[2 * PATH_MAX], folder[PATH_MAX];
	struct err err;

	snprintf(folder, sizeof folder, "%s/%s/hf-bf16", root, name);
	store_of(s, folder);
	snprintf(path, sizeof path, "%s/multimodal.safetensors", folder);
	golden_of(&s->golden, path);
	for (; s->n_pic < PICTURES && all[k].file[s->n_pic]; s->n_pic++) {
		const char *file = all[k].file[s->n_pic];
		struct buf b;

		file_of(&b, "%s/%s", folder, file);
		if (strstr(file, ".wav"))
			CHECK(!sound_decode(&s->sound[s->n_pic], b.p, b.n, NULL, &err), "%s", err.msg);
		else
			CHECK(!image_decode(&s->pic[s->n_pic], b.p, b.n, NULL, &err), "%s", err.msg);
		buf_fini(&b);
	}
	take_ids(s, all[k].ids);
	s->logits = all[k].logits;
	s->positions = all[k].positions;
}

/* Of _vision: the pixels are beside the vectors, the ids in a document, and the limits in no file. */
static void sample_old(struct sample *s, const char *root, const char *variant)
{
	static const char limits[] = "{\"size\": {\"shortest_edge\": 1024, \"longest_edge\": 16777216}}";
	char path[2 * PATH_MAX], to[2 * PATH_MAX];
	struct dirent *d;
	struct json *said;
	const struct json *ids;
	struct err err;
	struct buf b;
	FILE *f;
	DIR *dir;

	strcpy(s->made, "/tmp/weft-pictures-XXXXXX");
	CHECK(mkdtemp(s->made), "no folder");
	snprintf(path, sizeof path, "%s/qwen3_5_vl/%s", root, variant);
	CHECK((dir = opendir(path)), "%s", path);
	while ((d = readdir(dir))) {
		if (d->d_name[0] == '.' || !strcmp(d->d_name, "preprocessor_config.json"))
			continue;
		snprintf(path, sizeof path, "%s/qwen3_5_vl/%s/%s", root, variant, d->d_name);
		snprintf(to, sizeof to, "%s/%s", s->made, d->d_name);
		CHECK(!symlink(path, to), "%s", to);
	}
	snprintf(to, sizeof to, "%s/preprocessor_config.json", s->made);
	CHECK((f = fopen(to, "w")) && fputs(limits, f) >= 0 && !fclose(f), "%s", to);
	store_of(s, s->made);
	closedir(dir);
	snprintf(path, sizeof path, "%s/_vision/qwen3_5_vl.%s.safetensors", root, variant);
	golden_of(&s->golden, path);
	s->n_pic = 2;
	for (int i = 0; i < s->n_pic; i++) {
		const struct tensor *t = safetensors_find(&s->golden, i ? "image1_rgb" : "image0_rgb");

		CHECK(t, "no picture %d", i);
		s->pic[i] = (struct image){ (int)t->dim[1], (int)t->dim[0], xmalloc(t->bytes) };
		memcpy(s->pic[i].rgb, t->data, t->bytes);
	}
	file_of(&b, "%s/_vision/qwen3_5_vl.%s.json", root, variant);
	CHECK((said = json_parse_python(b.p, b.n, 50, &err)), "%s", err.msg);
	ids = json_get(json_get(said, "two"), "input_ids");
	s->n = (int)json_len(ids);
	CHECK(s->n && s->n <= ROWS, "%d ids", s->n);
	for (int i = 0; i < s->n; i++) {
		int64_t v;

		CHECK(!json_to_int(json_at(ids, (size_t)i), &v), "id %d", i);
		s->id[i] = (int32_t)v;
	}
	json_free(said);
	buf_fini(&b);
	s->logits = "two_prompt_logits";
}

static void folder_remove(const char *folder)
{
	struct dirent *d;
	DIR *dir = opendir(folder);

	CHECK(dir, "%s", folder);
	while ((d = readdir(dir)))
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			CHECK(!unlinkat(dirfd(dir), d->d_name, 0), "%s", d->d_name);
	closedir(dir);
	CHECK(!rmdir(folder), "%s", folder);
}

static void sample_free(struct sample *s)
{
	for (int i = 0; i < PICTURES; i++) {
		image_fini(&s->pic[i]);
		sound_fini(&s->sound[i]);
	}
	safetensors_close(&s->golden);
	store_close(s->st);
	if (s->made[0])
		folder_remove(s->made);
}

/* ---- an engine with a tower ---- */

struct how {
	int threads, slots;
	size_t park_bytes, prefix_bytes;
	bool tight; /* memory for hardly more than one */
	bool near;  /* the model on the processor too */
	enum arith arith;
};

struct rig {
	struct backend *be, *cpu; /* the model's, the towers' */
	struct model *m;
	struct tower *t; /* NULL: the model does not see */
	struct ear *ear; /* NULL: it does not hear */
	struct engine *e;
	const struct sample *s;
	struct media *pic[PICTURES]; /* of the run that was begun last */
	struct ask_span span[SPANS];
	int n_span;
};

/* The best level; over a device the best with its bits. */
static enum cpu_level level(void)
{
	enum cpu_level best = CPU_SCALAR;

	if (!getenv("WEFT_TEST_BACKEND"))
		return cpu_detect();
	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l))
		if (!strcmp(level_orders(l).products, "plain") && !strcmp(level_orders(l).attention, "plain"))
			best = l;
	return best;
}

static struct rig rig_open(const struct sample *s, const struct how *h)
{
	struct model_opts mo = { .arith = h->arith,
		                 .slots = h->slots,
		                 .ctx_max = CTX,
		                 .step_rows = STEP,
		                 .tape_rows = 4,
		                 .snap_bytes = (size_t)1 << 30,
		                 .kv = model_kv_default(h->arith) };
	struct engine_opts eo = { .seqs_max = h->slots,
		                  .step_rows = STEP,
		                  .logit_rows = STEP,
		                  .queue_max = 8,
		                  .prefix_bytes = h->prefix_bytes,
		                  .by_hand = true,
		                  .answer_reserve = 4,
		                  .park_bytes = h->park_bytes,
		                  .clock = &still };
	struct rig g = { .cpu = backend_cpu_open(h->threads, level()), .s = s };
	struct err err = { 0 };

	g.be = h->near || !getenv("WEFT_TEST_BACKEND") ? g.cpu : test_backend_open(h->threads, level());
	CHECK(!model_bind(&g.m, s->st, &err), "%s", err.msg);
	CHECK(!tower_open(&g.t, s->st, &err) && !ear_open(&g.ear, s->st, &err) && (g.t || g.ear), "%s", err.msg);
	if (h->tight)
		mo.kv_bytes = model_pool_bytes(&g.m->shape, &mo, -1, CTX) +
		              2 * model_pool_bytes(&g.m->shape, &mo, -1, 1);
	CHECK(!model_attach(g.m, g.be, &mo, &err), "%s", err.msg);
	CHECK(!g.t || !tower_attach(g.t, g.cpu, h->arith, NULL, &err), "%s", err.msg);
	CHECK(!g.ear || !ear_attach(g.ear, g.cpu, h->arith, &err), "%s", err.msg);
	CHECK(!engine_open(&g.e, g.m, NULL, &eo, &err), "%s", err.msg);
	return g;
}

static void pictures_free(struct rig *g)
{
	for (int i = 0; i < PICTURES; i++)
		media_unref(g->pic[i]);
}

static void rig_close(struct rig *g)
{
	pictures_free(g);
	engine_close(g->e);
	tower_close(g->t);
	ear_close(g->ear);
	model_close(g->m);
	if (g->be != g->cpu)
		g->be->ops->close(g->be);
	g->cpu->ops->close(g->cpu);
}

/* ---- one request ---- */

/* Spans of the golden ids: each placeholder is the next row of the pictures. */
static void spans_of(struct rig *g)
{
	int pic = 0, row = 0, n = 0;

	for (int i = 0; i < g->s->n; i++) {
		if ((!g->t || g->s->id[i] != tower_info(g->t).image_token) &&
		    (!g->ear || g->s->id[i] != ear_info(g->ear).sound_token))
			continue;
		if (row == g->pic[pic]->n) {
			row = 0;
			CHECK(++pic < g->s->n_pic, "more rows than the pictures have");
		}
		CHECK(g->s->id[i] == g->pic[pic]->row_token, "a row of another kind at %d", i);
		if (!row || g->span[n - 1].at + g->span[n - 1].n != i) {
			CHECK(n < SPANS, "%d spans", n);
			g->span[n++] = (struct ask_span){ .at = i, .media = g->pic[pic], .from = row };
		}
		g->span[n - 1].n++;
		row++;
	}
	CHECK(pic == g->s->n_pic - 1 && row == g->pic[pic]->n, "%d rows of picture %d", row, pic);
	g->n_span = n;
}

/* The pictures are new: their towers have not run.  Those of a run before are the engine's alone by now. */
static void begin(struct run *u, struct rig *g)
{
	struct err err;

	*u = (struct run){ 0 };
	run_begin(u, g->s->id, g->s->n, ANSWER, (size_t)g->m->shape.vocab);
	pictures_free(g);
	for (int i = 0; i < g->s->n_pic; i++)
		CHECK(!(g->s->sound[i].at ? ear_sound(&g->pic[i], g->ear, &g->s->sound[i], 0, &err) :
		                            tower_image(&g->pic[i], g->t, &g->s->pic[i], 0, &err)),
		      "%s", err.msg);
	spans_of(g);
	u->a.span = g->span;
	u->a.n_span = g->n_span;
}

/* Inside one of the pictures' runs of rows? */
static bool inside(const struct rig *g, int pos)
{
	for (int i = 0; i < g->n_span; i++)
		if (pos > g->span[i].at && pos < g->span[i].at + g->span[i].n)
			return true;
	return false;
}

/* ---- the ways ---- */

static void check_golden(const struct sample *s, const struct run *u, const char *name)
{
	const struct tensor *t = safetensors_find(&s->golden, s->logits);
	const struct tensor *at = s->positions ? safetensors_find(&s->golden, s->positions) : NULL;
	int64_t rows = at ? at->count : s->n, vocab = (int64_t)u->vocab;
	const float *want;
	float most = 0;

	CHECK(t && t->count == rows * vocab, "%s: logits of another shape", name);
	want = (const float *)(const void *)t->data;
	for (int64_t i = 0; i < t->count; i++)
		most = fmaxf(most,
		             fabsf(u->row[(at ? int_at(at, i / vocab) : i / vocab) * vocab + i % vocab] - want[i]));
	CHECK(most <= TOLERANCE, "%s: %g from the reference", name, (double)most);
}

static struct run ask(struct rig *g, const struct run *want, int resume_at, int split, const char *what)
{
	struct run u;

	begin(&u, g);
	u.a.resume_at = resume_at;
	u.a.split = &split;
	u.a.n_split = split > 0;
	run_submit(&u, g->e);
	run_end(&u, g->e);
	if (want)
		run_same(&u, want, what);
	return u;
}

static bool few_ways(void)
{
	return getenv("WEFT_TEST_BACKEND") && getenv("WEFT_TEST_QUICK");
}

static void cuts(const struct sample *s, const struct how *plain, const struct run *want)
{
	static const int split[] = { 1, 5, 64 };
	struct rig g = rig_open(s, plain);

	for (int at = 1; at < s->n; at += 1 + s->n / (few_ways() ? 4 : 40))
		free(ask(&g, want, at, 0, "resumed at").row);
	for (int i = 0; i < 3; i++)
		free(ask(&g, want, 0, split[i], "cut").row);
	rig_close(&g);
}

/* One slot, taken by a more urgent request again and again: its pictures are others' media objects, whose towers run in
 * the midst of this one's.  Returns how often it gave way inside a picture. */
static int preempted(const struct sample *s, const struct how *plain, size_t park_bytes, const struct run *want)
{
	struct how h = *plain;
	struct rig g;
	struct run u;
	int n = 0;

	h.slots = 1;
	h.park_bytes = park_bytes;
	g = rig_open(s, &h);
	begin(&u, &g);
	u.a.split = (const int[]){ 3 };
	u.a.n_split = 1;
	run_submit(&u, g.e);
	for (int i = 0; i < 24; i++) {
		struct run v;

		/* Without memory to keep it, everything is computed again: so it gets on a little further each time. */
		for (int k = 0; k < (park_bytes ? 1 : 2 * i + 1); k++)
			engine_step(g.e);
		run_read(&u);
		if (u.done)
			break;
		n += inside(&g, u.r->pos);
		begin(&v, &g);
		v.a.priority = 5;
		v.a.on_logits = NULL;
		v.a.max_tokens = 1;
		run_submit(&v, g.e);
		while (!v.done && engine_step(g.e))
			run_read(&v);
		run_free(&v);
		free(v.row);
	}
	run_end(&u, g.e);
	CHECK(u.end.n_preempted > (park_bytes ? 3 : 1), "%d times preempted", u.end.n_preempted);
	run_same(&u, want, park_bytes ? "preempted" : "preempted, nothing kept");
	free(u.row);
	rig_close(&g);
	return n;
}

/* Three at once, where there is memory for hardly more than one. */
static void crowded(const struct sample *s, const struct how *plain, const struct run *want)
{
	struct how h = *plain;
	struct run u[3];
	struct rig g;

	h.slots = 3;
	h.tight = true;
	g = rig_open(s, &h);
	for (int i = 0; i < 3; i++) {
		begin(&u[i], &g);
		u[i].a.split = (const int[]){ 11 };
		u[i].a.n_split = 1;
		run_submit(&u[i], g.e);
		for (int k = 0; k < 5; k++)
			engine_step(g.e);
	}
	for (int i = 0; i < 3; i++)
		run_end(&u[i], g.e);
	for (int i = 0; i < 3; i++) {
		run_same(&u[i], want, "crowded");
		free(u[i].row);
	}
	rig_close(&g);
}

/* Of the run that was begun last: an image or a sound whose rows were all kept was not encoded again. */
static void not_encoded(const struct rig *g, int n_cached)
{
	int n = 0;

	for (int i = 0; i < g->n_span; i++) {
		const struct ask_span *w = &g->span[i];
		bool last = w->from + w->n == w->media->n;

		if (!last || w->at + w->n > n_cached)
			continue;
		CHECK(!w->media->vectors, "%s up to %d was encoded, %d tokens were kept",
		      w->media->kind == MEDIA_SOUND ? "a sound" : "an image", w->at + w->n, n_cached);
		n++;
	}
	CHECK(n == g->s->n_pic, "%d of %d were kept whole", n, g->s->n_pic);
}

/* Cancelled at each step in turn, and then asked again over what was kept. */
static void kept(const struct sample *s, const struct how *plain, const struct run *want)
{
	struct how h = *plain;

	h.prefix_bytes = (size_t)1 << 28;
	for (int steps = 2; steps < 30; steps += 9) {
		struct rig g = rig_open(s, &h);
		struct run u;

		begin(&u, &g);
		u.a.split = (const int[]){ 7 };
		u.a.n_split = 1;
		run_submit(&u, g.e);
		for (int i = 0; i < steps; i++)
			engine_step(g.e);
		request_cancel(u.r);
		run_end(&u, g.e);
		free(u.row);
		free(ask(&g, want, 0, 0, "after a cancel").row);
		u = ask(&g, want, 0, 0, "again");
		not_encoded(&g, u.end.n_cached);
		free(u.row);
		rig_close(&g);
	}
}

static void check(const struct sample *s, const char *name)
{
	for (int i = 0; i < 2; i++) {
		struct how plain = {
			.threads = 1 + i, .slots = 2, .park_bytes = 1 << 26, .arith = i ? ARITH_FAST : ARITH_F32
		};
		struct how near = plain;
		struct rig g;
		struct run want;
		bool whole;
		int n;

		near.near = true;
		g = rig_open(s, &near);
		want = ask(&g, NULL, 0, 0, NULL);
		whole = g.t && tower_info(g.t).both_ways && !g.ear;
		CHECK(want.end.finish == FINISH_LENGTH && want.n_got == ANSWER, "%s: %s", name, want.end.err.msg);
		rig_close(&g);
		if (!i)
			check_golden(s, &want, name);
		cuts(s, &plain, &want);
		if (few_ways()) {
			printf("%s, %s: equal\n", name, i ? "fast" : "f32");
			free(want.row);
			continue;
		}
		n = preempted(s, &plain, 1 << 26, &want);
		CHECK(whole ? !n : n > 0, "%s: gave way inside a picture %d times", name, n);
		preempted(s, &plain, 0, &want);
		crowded(s, &plain, &want);
		kept(s, &plain, &want);
		printf("%s, %s: equal; gave way inside a picture %d times\n", name, i ? "fast" : "f32", n);
		free(want.row);
	}
}

static bool wanted(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc < 2;
}

int main(int argc, char **argv)
{
	static const char *const family[] = { "qwen3_5_vl", "qwen3_vl",     "qwen2_5_vl", "gemma3",
		                              "gemma4_e",   "gemma4_dense", "lfm2_vl",    "mistral3" };
	static const char *const mixed[] = { "gemma4_unified", "gemma4_sound" };
	char root[2048], name[64];
	bool quick = getenv("WEFT_TEST_QUICK") && argc == 1;

	if (!shared_folder())
		return 77;
	snprintf(root, sizeof root, "%s/golden", shared_folder());
	for (size_t i = 0; i < sizeof family / sizeof *family; i++)
		for (int k = 0; k < 2; k++) {
			struct sample s = { 0 };

			/* Quick, under the sanitizers: rows that see each other, and rows that do not. */
			if (quick && (k == 0 || (i != 0 && i != 3)))
				continue;
			if (!wanted(argc, argv, family[i]))
				continue;
			snprintf(name, sizeof name, "%s/%s", family[i], !k ? "hf-f32" : i ? "mlx-q4" : "mlxvlm-q4");
			if (i)
				sample_new(&s, root, name);
			else
				sample_old(&s, root, strchr(name, '/') + 1);
			check(&s, name);
			sample_free(&s);
		}
	for (size_t i = 0; i < sizeof mixed / sizeof *mixed; i++) {
		struct sample s = { 0 };

		if (!wanted(argc, argv, mixed[i]))
			continue;
		sample_mixed(&s, root, mixed[i]);
		check(&s, mixed[i]);
		sample_free(&s);
	}
	return 0;
}
