/* test_ears.c - ears against the reference's vectors of the same samples, and against themselves: work cut by the time it is given,
 * threads, another backend, other sounds between change no bit.
 *
 *     test_ears */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "check.h"
#include "far.h"
#include "driver.h"
#include "sound/ear.h"
#include "sound/mel.h"
#include "store/safetensors.h"

static const char *const folder[] = { "gemma4_unified", "gemma4_sound" };
static const float TOLERANCE = 1e-4f, FAST = 0.05f; /* the second of the largest element */

struct rig {
	struct store *st;
	struct backend *be;
	struct ear *e;
	struct safetensors golden;
	char path[1100];
};

static void rig_open(struct rig *r, const char *name, enum arith arith, int threads, bool far)
{
	char file[1200];
	struct err err = { 0 };

	*r = (struct rig){ 0 };
	snprintf(r->path, sizeof r->path, "%s/golden/%s/hf-bf16", shared_folder(), name);
	CHECK(!store_open(&r->st, r->path, &err), "%s", err.msg);
	CHECK(!ear_open(&r->e, r->st, &err) && r->e, "%s: %s", name, err.msg);
	snprintf(file, sizeof file, "%s/multimodal.safetensors", r->path);
	CHECK(!safetensors_open(&r->golden, file, &err), "%s", err.msg);
	r->be = backend_cpu_open(threads, cpu_detect());
	if (far)
		r->be = far_open(r->be);
	CHECK(!ear_attach(r->e, r->be, arith, &err), "%s", err.msg);
}

static void rig_close(struct rig *r)
{
	ear_close(r->e);
	r->be->ops->close(r->be);
	safetensors_close(&r->golden);
	store_close(r->st);
}

static void load(const struct rig *r, const char *name, struct sound *s)
{
	char file[1200];
	struct err err;
	struct buf b;

	buf_init(&b);
	snprintf(file, sizeof file, "%s/%s.wav", r->path, name);
	CHECK(!file_read(file, 1 << 22, &b, &err), "%s", err.msg);
	CHECK(!sound_decode(s, b.p, b.n, NULL, &err), "%s", err.msg);
	buf_fini(&b);
}

static struct media *media_of(struct rig *r, const char *name)
{
	struct media *m = NULL;
	struct sound s;
	struct err err;

	load(r, name, &s);
	CHECK(!ear_sound(&m, r->e, &s, 0, &err), "%s", err.msg);
	sound_fini(&s);
	return m;
}

static void work(struct media *m, int64_t ns)
{
	struct err err = { 0 };

	CHECK(!m->ops->work(m, ns, &err), "%s", err.msg);
}

static const struct tensor *golden(const struct rig *r, const char *name, const char *what)
{
	char full[64];

	snprintf(full, sizeof full, "%s.%s", name, what);
	return safetensors_find(&r->golden, full);
}

/* ---- against the reference ---- */

static void check_samples(struct rig *r, const char *name)
{
	const struct tensor *t = golden(r, name, "samples_i16");
	struct sound s;

	if (!t)
		return;
	load(r, name, &s);
	CHECK(s.n == t->count, "%d samples, %d in the file", s.n, (int)t->count);
	for (int i = 0; i < s.n; i++)
		CHECK(s.at[i] == (float)((const int16_t *)(const void *)t->data)[i] / 32768, "sample %d of %s", i,
		      name);
	sound_fini(&s);
}

static void check_mel(struct rig *r, const char *name)
{
	const struct tensor *rows = golden(r, name, "mel_rows"), *want = golden(r, name, "mel");
	static struct mel mel;
	float got[MEL_BANDS];
	struct sound s;

	if (!rows)
		return;
	mel_init(&mel);
	load(r, name, &s);
	for (int i = 0; i < rows->count; i++) {
		int frame = rows->type == DT_I64 ? (int)((const int64_t *)(const void *)rows->data)[i] :
		                                   (int)((const int32_t *)(const void *)rows->data)[i];

		if (frame >= mel_frames(s.n))
			continue; /* one that the reference masks */
		mel_frame(&mel, got, s.at, s.n, frame);
		for (int b = 0; b < MEL_BANDS; b++) {
			float off = fabsf(got[b] - ((const float *)(const void *)want->data)[i * MEL_BANDS + b]);

			CHECK(off < TOLERANCE, "frame %d, band %d of %s: %g", frame, b, name, (double)off);
		}
	}
	sound_fini(&s);
}

static void check_vectors(struct rig *r, const char *name, bool fast)
{
	const struct tensor *t = golden(r, name, "embeds");
	const float *want = (const float *)(const void *)t->data;
	struct media *m = media_of(r, name);
	float most = 0, large = 0;

	while (!m->vectors)
		work(m, 1 << 30);
	CHECK(t->count == (int64_t)m->n * m->hidden, "%s: %d rows of %d", name, m->n, m->hidden);
	for (int64_t i = 0; i < t->count; i++) {
		most = fmaxf(most, fabsf(m->vectors[i] - want[i]));
		large = fmaxf(large, fabsf(want[i]));
	}
	printf("%s of %s, %s: %g from the reference, largest %g\n", name, r->path, fast ? "fast" : "f32", (double)most,
	       (double)large);
	CHECK(most <= (fast ? FAST * large : TOLERANCE), "%s: %g", name, (double)most);
	if ((t = golden(r, name, "embeds_13_keys")) && !fast) { /* another program's reading: a row more is heard */
		for (int64_t i = 0; i < t->count; i++)
			most = fmaxf(most, fabsf(m->vectors[i] - ((const float *)(const void *)t->data)[i]));
		CHECK(most > 1, "13 keys are no other than 12: %g", (double)most);
	}
	media_unref(m);
}

/* ---- against itself ---- */

static void same(const struct media *a, const struct media *b, const char *what)
{
	CHECK(a->n == b->n && !memcmp(a->vectors, b->vectors, a->bytes), "%s", what);
	CHECK(!memcmp(&a->digest, &b->digest, sizeof a->digest), "%s: the digest", what);
}

static void check_same(const char *name, enum arith arith)
{
	struct media *want, *m, *other;
	struct rig r;
	int parts = 0;

	rig_open(&r, name, arith, 1, false);
	want = media_of(&r, "s1");
	while (!want->vectors)
		work(want, 1 << 30);
	m = media_of(&r, "s1");
	other = media_of(&r, "s2");
	CHECK(memcmp(&m->digest, &other->digest, sizeof m->digest) != 0, "two sounds are one");
	while (!m->vectors || !other->vectors) {
		work(m, 0);
		work(other, 0);
		parts++;
	}
	CHECK(parts > (strcmp(name, "gemma4_sound") ? 0 : 10), "%d parts", parts);
	same(m, want, "cut, beside another");
	media_unref(m);
	media_unref(other);
	for (int k = 2; k < 5; k++) {
		struct rig q;

		rig_open(&q, name, arith, k < 4 ? k : 2, k == 4);
		m = media_of(&q, "s1");
		while (!m->vectors)
			work(m, 1 << 20);
		same(m, want, k < 4 ? "threads" : "another backend");
		media_unref(m);
		rig_close(&q);
	}
	media_unref(want);
	rig_close(&r);
}

/* ---- lengths ---- */

static int rows_of(struct rig *r, int n, int rows_max, int *rc)
{
	float *at = xcalloc((size_t)n + 1, sizeof *at);
	struct sound s = { .at = at, .n = n, .source = n };
	struct media *m = NULL;
	struct err err;
	int rows = 0;

	*rc = ear_sound(&m, r->e, &s, rows_max, &err);
	if (!*rc) {
		rows = m->n;
		CHECK(m->n_layout == rows + 2 && m->kind == MEDIA_SOUND, "a layout of %d", m->n_layout);
		media_unref(m);
	}
	free(at);
	return rows;
}

static void check_lengths(void)
{
	struct rig r;
	int rc;

	rig_open(&r, "gemma4_unified", ARITH_F32, 1, false);
	CHECK(!rows_of(&r, 0, 0, &rc) && rc == E_FORMAT, "nothing is a sound: %d", rc);
	CHECK(rows_of(&r, 1, 0, &rc) == 1 && rows_of(&r, 640, 0, &rc) == 1 && rows_of(&r, 641, 0, &rc) == 2, "rows");
	CHECK(rows_of(&r, 640 * 5, 5, &rc) == 5 && !rows_of(&r, 640 * 5 + 1, 5, &rc) && rc == E_LIMIT, "%d", rc);
	rig_close(&r);
	rig_open(&r, "gemma4_sound", ARITH_F32, 1, false);
	CHECK(!rows_of(&r, 160, 0, &rc) && rc == E_FORMAT, "half a frame is a sound: %d", rc);
	CHECK(rows_of(&r, 161, 0, &rc) == 1 && rows_of(&r, 641, 0, &rc) == 1 && rows_of(&r, 801, 0, &rc) == 2, "rows");
	CHECK(rows_of(&r, 30 * SOUND_RATE, 0, &rc) == 750, "30 seconds");
	CHECK(!rows_of(&r, 30 * SOUND_RATE + 1, 0, &rc) && rc == E_LIMIT, "more than 30 seconds: %d", rc);
	rig_close(&r);
}

int main(void)
{
	static const char *const sound[] = { "s1", "s2" };

	if (!shared_folder())
		return 77;
	for (size_t i = 0; i < sizeof folder / sizeof *folder; i++) {
		for (int fast = 0; fast < 2; fast++) {
			struct rig r;

			rig_open(&r, folder[i], fast ? ARITH_FAST : ARITH_F32, 2, false);
			for (int k = 0; k < 2; k++) {
				check_samples(&r, sound[k]);
				check_mel(&r, sound[k]);
				check_vectors(&r, sound[k], fast);
			}
			rig_close(&r);
			check_same(folder[i], fast ? ARITH_FAST : ARITH_F32);
		}
	}
	check_lengths();
	return 0;
}
