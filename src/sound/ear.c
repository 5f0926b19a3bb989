/* ear.c - see ear.h: binding an ear, and a sound as a media object. */
#include "sound/ear.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "sound/ear_parts.h"

static const struct ear_family *const families[] = { &ear_frames, &ear_conformer };
enum { FAMILIES = sizeof families / sizeof *families };

/* ---- open ---- */

static const struct ear_family *family_of(const struct json *audio)
{
	const char *type = json_str(json_get(audio, "model_type"), NULL);

	for (int i = 0; i < FAMILIES; i++)
		if (type && !strcmp(type, families[i]->type))
			return families[i];
	return NULL;
}

/* An id of the config under either of two names; MEDIA_UNKNOWN: it has none. */
static int32_t token_of(struct conf *c, const char *name, const char *other)
{
	const char *key = conf_get(c, name) ? name : other;

	return conf_get(c, key) ? conf_int(c, key, 0, CONF_VOCAB_MAX - 1) : MEDIA_UNKNOWN;
}

static void read_tokens(struct ear *e, struct conf *top)
{
	e->token = conf_int(top, "audio_token_id", 0, CONF_VOCAB_MAX - 1);
	e->open = token_of(top, "boa_token_id", "boa_token_index");
	e->close = token_of(top, "eoa_token_id", "eoa_token_index");
}

static int bind_ear(struct ear *e, const char *prefix, const struct json *audio, struct err *err)
{
	static const char *const at[] = { "model.embed_audio.", "embed_audio.", NULL };
	struct conf c = { .j = audio, .file = e->st->config_path, .where = "audio_config.", .err = err };
	struct conf text = { .j = e->st->text, .file = c.file, .where = "text_config.", .err = err };
	struct conf top = { .j = e->st->config, .file = c.file, .where = "", .err = err };
	struct binder b = { .st = e->st, .m = &e->holder, .prefix = prefix, .err = err };

	read_tokens(e, &top);
	if (!top.code)
		e->out = conf_int(&text, "hidden_size", 1, CONF_DIM_MAX);
	if (top.code || text.code)
		return err->code;
	e->eps = (float)conf_double_or(&c, "rms_norm_eps", 1e-6);
	e->family->bind(e, &b, &c);
	if (c.code || b.code)
		return err->code;
	b.prefix = store_prefix(e->st, at, "embedding_projection.weight");
	if (!b.prefix)
		return store_missing(e->st, "embed_audio.embedding_projection.weight", err);
	bind_weight(&b, &e->projection.w, e->out, e->projection.w.cols, "embedding_projection");
	return b.code;
}

int ear_open(struct ear **out, struct store *st, struct err *err)
{
	static const char *const prefixes[] = { "model.", "", NULL };
	const struct json *audio = json_get(st->config, "audio_config");
	const struct ear_family *f = json_kind(audio) == JSON_OBJECT ? family_of(audio) : NULL;
	const char *prefix;
	struct ear *e;
	int *uses, rc;

	*out = NULL;
	if (!f || !(prefix = store_prefix(st, prefixes, f->shown_by)))
		return 0;
	e = xcalloc(1, sizeof *e);
	e->st = st;
	e->family = f;
	arena_init(&e->holder.arena);
	arena_init(&e->holder.vectors);
	uses = store_uses(st);
	rc = bind_ear(e, prefix, audio, err);
	store_uses_end(st, uses, rc);
	if (rc) {
		ear_close(e);
		return rc;
	}
	*out = e;
	return 0;
}

int ear_attach(struct ear *e, struct backend *be, enum arith arith, struct err *err)
{
	int rc;

	e->be = be;
	e->arith = arith;
	if (!be->ops->place)
		return 0;
	e->placed = store_placed(e->st, &e->holder.vectors, &e->n_placed);
	rc = be->ops->place(be, e->placed, e->n_placed, err);
	e->n_placed = rc ? 0 : e->n_placed;
	return rc;
}

void ear_close(struct ear *e)
{
	if (!e)
		return;
	if (e->n_placed)
		e->be->ops->unplace(e->be, e->placed, e->n_placed);
	free(e->placed);
	arena_fini(&e->holder.arena);
	arena_fini(&e->holder.vectors);
	free(e);
}

struct ear_info ear_info(const struct ear *e)
{
	struct ear_info i = { .family = e->family->name,
		              .depth = e->depth,
		              .hidden = e->hidden,
		              .out = e->out,
		              .row_samples = e->frame,
		              .seconds_max = e->seconds_max,
		              .sound_token = e->token };

	for (size_t k = 0; k < e->st->n; k++) {
		const struct tensor *t = e->st->v[k];

		if (t->used && strstr(t->name, "audio")) {
			i.params += t->elements;
			i.bytes += (int64_t)t->bytes;
		}
	}
	return i;
}

/* ---- a sound ---- */

struct sound_media {
	struct media m;
	struct ear *e;
	struct sound sound; /* freed once the vectors are there */
	void *run;
	float *vectors;
};

static void release(struct sound_media *s)
{
	if (s->run)
		s->e->family->end(s->run);
	s->run = NULL;
	sound_fini(&s->sound);
}

static int work(struct media *m, int64_t ns, struct err *err)
{
	struct sound_media *s = (struct sound_media *)m;
	int64_t begun = clock_monotonic_ns();
	int rc;

	if (m->vectors)
		return 0;
	if (!s->vectors)
		s->vectors = try_malloc(m->bytes);
	if (!s->vectors)
		return err_set(err, E_LIMIT, "sound: no memory for %zu bytes of vectors", m->bytes);
	if (!s->run)
		s->run = s->e->family->begin(s->e, s->sound.at, s->sound.n, m->n, s->vectors, err);
	if (!s->run)
		return err->code;
	rc = s->e->family->step(s->run, ns - (clock_monotonic_ns() - begun), err);
	if (rc)
		return rc < 0 ? rc : 0;
	release(s);
	m->vectors = s->vectors;
	return 0;
}

static void take(struct media *m, float *vectors)
{
	struct sound_media *s = (struct sound_media *)m;

	release(s);
	free(s->vectors);
	s->vectors = vectors;
	m->vectors = vectors;
}

static void free_media(struct media *m)
{
	struct sound_media *s = (struct sound_media *)m;

	release(s);
	free(s->vectors);
	free((void *)(uintptr_t)m->layout);
	free(s);
}

static const struct media_ops ops = { work, take, free_media };

/* The samples, and what makes vectors of them; the arithmetic, since vectors differ by it. */
static void digest(struct sound_media *s)
{
	int32_t shape[] = { s->e->frame, s->e->arith };
	struct sha256 h;

	sha256_init(&h);
	sha256_field(&h, "sound", 5);
	sha256_field(&h, s->e->family->name, strlen(s->e->family->name));
	sha256_field(&h, shape, sizeof shape);
	sha256_field(&h, s->sound.at, (size_t)s->sound.n * sizeof *s->sound.at);
	sha256_end(&h, &s->m.digest);
}

static int32_t *layout_of(const struct ear *e, int rows)
{
	int32_t *out = xcalloc((size_t)rows + 2, sizeof *out);

	out[0] = e->open;
	for (int i = 0; i < rows; i++)
		out[1 + i] = MEDIA_ROW;
	out[1 + rows] = e->close;
	return out;
}

static int count_rows(const struct ear *e, const struct sound *from, int rows_max, int *rows, struct err *err)
{
	double seconds = (double)from->n / SOUND_RATE;

	*rows = e->family->rows(e, from->n);
	if (*rows < 1)
		return err_set(err, E_FORMAT, "sound: %d samples are too few for one token", from->n);
	if (e->seconds_max && seconds > e->seconds_max)
		return err_set(err, E_LIMIT, "sound: %.1f seconds, where this model hears %d", seconds, e->seconds_max);
	if (rows_max && *rows > rows_max)
		return err_set(err, E_LIMIT, "sound: %.1f seconds are %d tokens, where %d are allowed", seconds, *rows,
		               rows_max);
	return 0;
}

int ear_sound(struct media **out, struct ear *e, const struct sound *from, int rows_max, struct err *err)
{
	struct sound_media *s;
	float *copy;
	int rows, rc = count_rows(e, from, rows_max, &rows, err);

	if (rc)
		return rc;
	copy = try_malloc((size_t)from->n * sizeof *copy);
	if (!copy)
		return err_set(err, E_LIMIT, "sound: no memory for %d samples", from->n);
	memcpy(copy, from->at, (size_t)from->n * sizeof *copy);
	s = xcalloc(1, sizeof *s);
	s->e = e;
	s->sound = (struct sound){ copy, from->n, from->source };
	s->m = (struct media){ .ops = &ops,
		               .kind = MEDIA_SOUND,
		               .row_token = e->token,
		               .placeholder = e->token,
		               .n = rows,
		               .hidden = e->out,
		               .seconds = (double)from->n / SOUND_RATE,
		               .pixels = from->source,
		               .layout = layout_of(e, rows),
		               .n_layout = rows + 2 };
	atomic_init(&s->m.refs, 1);
	s->m.bytes = (size_t)rows * (size_t)e->out * sizeof(float);
	digest(s);
	*out = &s->m;
	return 0;
}
