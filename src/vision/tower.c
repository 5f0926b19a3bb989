/* tower.c - see tower.h: binding a tower, and what is known of an image before it runs. */
#include "vision/tower.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "vision/tower_parts.h"

static const struct tower_family *const families[] = {
	&tower_qwen,   &tower_qwen2,          &tower_qwen2_5, &tower_gemma3,
	&tower_gemma4, &tower_gemma4_unified, &tower_lfm2,    &tower_pixtral,
};

/* ---- for families ---- */

enum { PATH = 160 };

/* Bytes of a run's memory that are kept at most: five times those of a picture of 1,024 x 1,024 where hidden is 768. */
enum { SPARE_MOST = 128 << 20 };

/* "path", "path.name" or "path.i.name" */
static void path_of(char out[PATH], const char *path, int i, const char *name)
{
	if (i >= 0)
		snprintf(out, PATH, "%s.%d.%s", path, i, name);
	else
		snprintf(out, PATH, "%s%s%s", path, *name ? "." : "", name);
}

void bind_linear(struct binder *b, struct tower_linear *l, int rows, int cols, const char *path, int i,
                 const char *name, bool bias)
{
	char p[PATH];

	path_of(p, path, i, name);
	*l = (struct tower_linear){ 0 };
	bind_weight(b, &l->w, rows, cols, "%s", p);
	if (bias)
		l->bias = bind_floats(b, rows, 0, "%s.bias", p);
}

void bind_norm(struct binder *b, struct tower_norm *n, enum tower_norm_kind kind, int cols, float add, float eps,
               const char *path, int i, const char *name)
{
	char p[PATH];

	path_of(p, path, i, name);
	*n = (struct tower_norm){ .kind = kind, .eps = eps };
	n->gain = bind_floats(b, cols, add, "%s.weight", p);
	if (kind == TOWER_NORM_LAYER)
		n->bias = bind_floats(b, cols, 0, "%s.bias", p);
}

const float *bind_host_table(struct binder *b, int rows, int cols, const char *path)
{
	return bind_host(b, (int64_t)rows * cols, "%s%s", path, bind_has(b, "%s.weight", path) ? ".weight" : "");
}

void bind_patches(struct binder *b, struct tower *t, const char *path, bool bias)
{
	const struct picture_form *f = &t->form;
	char name[PATH * 2];
	const struct tensor *kernel;

	if (b->code)
		return;
	snprintf(name, sizeof name, "%s%s.weight", b->prefix, path);
	kernel = store_find(t->st, name);
	t->embed.channels_last = kernel && kernel->n_dim >= 4 && kernel->dim[kernel->n_dim - 1] == 3;
	bind_flat(b, &t->embed.linear.w, t->hidden, 3 * f->frames * f->patch * f->patch, "%s", path);
	if (bias)
		t->embed.linear.bias = bind_floats(b, t->hidden, 0, "%s.bias", path);
}

int layout_plain(const struct tower *t, const struct picture_plan *p, int32_t *out)
{
	for (int i = 0; i < p->rows; i++)
		out[i] = MEDIA_ROW;
	return p->rows;
}

/* ---- open ---- */

static bool is_of(const struct tower_family *f, const char *type)
{
	for (int i = 0; f->types[i]; i++)
		if (!strcmp(f->types[i], type))
			return true;
	return false;
}

static const struct tower_family *family_of(const char *type)
{
	for (size_t i = 0; i < sizeof families / sizeof *families; i++)
		if (is_of(families[i], type))
			return families[i];
	return NULL;
}

/* The processor's settings: a file of their own, or one for all kinds of input. */
static int read_processor(struct tower *t, struct err *err)
{
	static const char *const file[] = { "preprocessor_config.json", "processor_config.json" };
	int rc = 0;

	for (int i = 0; i < 2 && !rc; i++) {
		struct json *j = NULL;
		const struct json *part;
		struct buf text;

		buf_init(&text);
		rc = store_document(t->st, file[i], &text, err);
		if (!rc && !(j = json_parse_python(text.p, text.n, 0, err)))
			rc = err_prefix(err, "%s", store_place(t->st, file[i]));
		buf_fini(&text);
		if (rc == E_MISSING) {
			rc = 0;
			continue;
		}
		part = json_get(j, "image_processor");
		if (!rc && (part || i == 0))
			rc = picture_read(&t->form, part ? part : j, store_place(t->st, file[i]), err);
		json_free(j);
	}
	return rc;
}

/* A view's patches and rows have to come out whole. */
static int check_shape(const struct tower *t, const char *file, struct err *err)
{
	int head = t->rope.kind == ROPE_NONE ? 1 : 4;

	if (!t->depth)
		return 0;
	if (t->dim < 1 || t->heads * t->dim > CONF_DIM_MAX || t->dim % head)
		return err_set(err, E_FORMAT, "%s: vision_config: %d heads of %d", file, t->heads, t->dim);
	if (t->form.area_min > t->form.area_max && (t->form.size == SIZE_AREA || t->form.size == SIZE_TILES))
		return err_set(err, E_FORMAT, "%s: images of at least %lld and at most %lld pixels", file,
		               (long long)t->form.area_min, (long long)t->form.area_max);
	return 0;
}

static int bind_tower(struct tower *t, struct binder *b, struct conf *c, struct err *err)
{
	int rc;

	t->out = conf_int(&(struct conf){ .j = t->st->text, .file = c->file, .where = "text_config.", .err = err },
	                  "hidden_size", 1, CONF_DIM_MAX);
	t->family->bind(t, b, c);
	rc = c->code ? c->code : b->code;
	if (rc)
		return rc;
	if (!t->dim && t->heads)
		t->dim = t->hidden / t->heads;
	if (t->scale == 0 && t->dim)
		t->scale = 1.0f / sqrtf((float)t->dim);
	rc = read_processor(t, err);
	return rc ? rc : check_shape(t, c->file, err);
}

/* The id of the token that stands for a row of an image, under either of its names; an error where it is missing. */
static int read_token(struct tower *t, struct err *err)
{
	static const char *const key[] = { "image_token_id", "image_token_index" };
	struct conf top = { .j = t->st->config, .file = t->st->config_path, .where = "", .err = err };

	for (int i = 0; i < 2; i++)
		if (conf_get(&top, key[i])) {
			t->tokens.row = t->tokens.placeholder = conf_int(&top, key[i], 0, CONF_VOCAB_MAX - 1);
			return top.code;
		}
	return err_set(err, E_MISSING, "%s: %s: missing, and a tower needs it", top.file, key[0]);
}

static int bind_or_forget(struct tower *t, const char *prefix, struct conf *c, struct err *err)
{
	int *uses = store_uses(t->st);
	int rc = read_token(t, err);

	if (!rc)
		rc = bind_tower(t, &(struct binder){ .st = t->st, .m = &t->holder, .prefix = prefix, .err = err }, c,
		                err);
	store_uses_end(t->st, uses, rc);
	return rc;
}

int tower_open(struct tower **out, struct store *st, struct err *err)
{
	const struct json *vision = json_get(st->config, "vision_config");
	const char *type = json_str(json_get(st->config, "model_type"), NULL);
	const struct tower_family *f = type ? family_of(type) : NULL;
	struct conf c = { .j = vision, .file = st->config_path, .where = "vision_config.", .err = err };
	const char *prefix;
	struct tower *t;
	int rc;

	*out = NULL;
	if (json_kind(vision) != JSON_OBJECT || !f || !(prefix = store_prefix(st, f->prefix, f->shown_by)))
		return 0;
	t = xcalloc(1, sizeof *t);
	pthread_mutex_init(&t->spare.lock, NULL);
	t->st = st;
	t->family = f;
	arena_init(&t->holder.arena);
	arena_init(&t->holder.vectors);
	rc = bind_or_forget(t, prefix, &c, err);
	if (rc) {
		tower_close(t);
		return rc;
	}
	*out = t;
	return 0;
}

/* ---- a backend ---- */

/* The store's tensors and the tables that were made for operations. */
static int place(struct tower *t, struct err *err)
{
	int n, rc;

	if (!t->be->ops->place)
		return 0;
	t->placed = store_placed(t->st, &t->holder.vectors, &n);
	rc = t->be->ops->place(t->be, t->placed, n, err);
	t->n_placed = rc ? 0 : n;
	return rc;
}

int tower_attach(struct tower *t, struct backend *be, enum arith arith, const struct tower_tokens *tokens,
                 struct err *err)
{
	int unit = arith == ARITH_FAST ? 32 : 16;

	t->be = be;
	t->arith = arith;
	t->wide = (t->dim + unit - 1) / unit * unit;
	for (int i = 0; i < TOWER_MARKS; i++)
		t->tokens.mark[i] = MEDIA_UNKNOWN;
	for (int i = 0; t->family->marks[i] && tokens; i++) {
		int32_t id = tokens->id(tokens->arg, t->family->marks[i]);

		t->tokens.mark[i] = id < 0 ? MEDIA_UNKNOWN : id;
	}
	return place(t, err);
}

void *tower_take(struct tower *t, size_t *bytes, size_t *ready)
{
	void *area = NULL;

	*ready = 0;
	pthread_mutex_lock(&t->spare.lock);
	if (t->spare.bytes >= *bytes) {
		area = t->spare.area;
		*bytes = *ready = t->spare.bytes;
		t->spare.area = NULL;
		t->spare.bytes = 0;
	}
	pthread_mutex_unlock(&t->spare.lock);
	return area ? area : t->be->ops->alloc(t->be, *bytes);
}

void tower_give(struct tower *t, void *area, size_t bytes)
{
	pthread_mutex_lock(&t->spare.lock);
	if (bytes <= SPARE_MOST && bytes > t->spare.bytes) {
		void *was = t->spare.area;
		size_t was_bytes = t->spare.bytes;

		t->spare.area = area;
		t->spare.bytes = bytes;
		area = was;
		bytes = was_bytes;
	}
	pthread_mutex_unlock(&t->spare.lock);
	if (area)
		t->be->ops->free(t->be, area, bytes);
}

void tower_close(struct tower *t)
{
	if (!t)
		return;
	if (t->spare.area)
		t->be->ops->free(t->be, t->spare.area, t->spare.bytes);
	pthread_mutex_destroy(&t->spare.lock);
	if (t->n_placed)
		t->be->ops->unplace(t->be, t->placed, t->n_placed);
	free(t->placed);
	arena_fini(&t->holder.arena);
	arena_fini(&t->holder.vectors);
	free(t);
}

static void count(const struct tower *t, struct tower_info *i)
{
	for (size_t k = 0; k < t->st->n; k++) {
		const struct tensor *s = t->st->v[k];

		if (s->used &&
		    (strstr(s->name, "vision") || strstr(s->name, "visual") || strstr(s->name, "multi_modal"))) {
			i->params += s->elements;
			i->bytes += (int64_t)s->bytes;
		}
	}
}

struct tower_info tower_info(const struct tower *t)
{
	struct tower_info i = { .family = t->family->name,
		                .depth = t->depth,
		                .hidden = t->hidden,
		                .heads = t->heads,
		                .patch = t->form.patch,
		                .merge = t->form.merge,
		                .out = t->out,
		                .deep = t->deep.n,
		                .image_token = t->tokens.row,
		                .placeholder = t->tokens.placeholder,
		                .both_ways = t->both_ways };

	count(t, &i);
	return i;
}

const struct picture_form *tower_form(const struct tower *t)
{
	return &t->form;
}
