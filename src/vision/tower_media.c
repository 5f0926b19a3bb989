/* tower_media.c - an image as a media object (model/media.h): resized and counted at once, its vectors when they are asked
 * for. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "vision/tower_parts.h"

struct image_media {
	struct media m;
	struct tower *t;
	struct picture_plan plan;
	struct image source[2]; /* resized; freed once the vectors are there */
	struct tower_run *run;
	float *vectors;
};

static void release(struct image_media *im)
{
	tower_run_close(im->run);
	im->run = NULL;
	for (int i = 0; i < 2; i++)
		image_fini(&im->source[i]);
}

static int work(struct media *m, int64_t ns, struct err *err)
{
	struct image_media *im = (struct image_media *)m;
	int64_t begun = clock_monotonic_ns();
	int rc;

	if (m->vectors)
		return 0;
	if (!im->vectors)
		im->vectors = try_malloc(m->bytes);
	if (!im->vectors)
		return err_set(err, E_LIMIT, "image: no memory for %zu bytes of vectors", m->bytes);
	if (!im->run)
		im->run = tower_run_open(im->t, &im->plan, im->source, im->vectors, err);
	if (!im->run)
		return err->code;
	rc = tower_run_step(im->run, ns - (clock_monotonic_ns() - begun), err); /* to open it took some of the time */
	if (rc)
		return rc < 0 ? rc : 0;
	release(im);
	m->vectors = im->vectors;
	return 0;
}

static void free_media(struct media *m)
{
	struct image_media *im = (struct image_media *)m;

	release(im);
	free(im->vectors);
	free((void *)(uintptr_t)m->layout);
	free(im);
}

static void take(struct media *m, float *vectors)
{
	struct image_media *im = (struct image_media *)m;

	release(im);
	free(im->vectors);
	im->vectors = vectors;
	m->vectors = vectors;
}

static const struct media_ops ops = { work, take, free_media };

/* Pixels as the tower sees them, and what it does with their places; the arithmetic, since vectors differ by it. */
static void digest(struct image_media *im)
{
	const struct picture_form *f = &im->t->form;
	struct sha256 s;
	float numbers[6];
	int32_t shape[] = { f->size,     f->resample, f->patch, f->merge, im->plan.tile_rows, im->plan.tile_cols,
		            im->t->arith };

	memcpy(numbers, f->mean, sizeof f->mean);
	memcpy(numbers + 3, f->std, sizeof f->std);
	sha256_init(&s);
	sha256_field(&s, im->t->family->name, strlen(im->t->family->name));
	sha256_field(&s, shape, sizeof shape);
	sha256_field(&s, numbers, sizeof numbers);
	for (int i = 0; i < im->plan.n_resize; i++) {
		int32_t size[] = { im->source[i].w, im->source[i].h };

		sha256_field(&s, size, sizeof size);
		sha256_field(&s, im->source[i].rgb, (size_t)size[0] * (size_t)size[1] * 3);
	}
	sha256_end(&s, &im->m.digest);
}

/* Tables of places may be smaller than what a picture's aspect can ask for. */
static int check_places(const struct tower_places *t, const struct picture_plan *p, struct err *err)
{
	for (int i = 0; i < p->n_view && (t->kind == PLACES_AXES || t->kind == PLACES_TABLE); i++)
		if (p->view[i].grid_h > t->side || p->view[i].grid_w > t->side)
			return err_set(err, E_LIMIT, "image: %d x %d patches, where the tower has places for %d",
			               p->view[i].grid_w, p->view[i].grid_h, t->side);
	return 0;
}

static int resize(struct image_media *im, const struct image *from, struct err *err)
{
	int rc = 0;

	for (int i = 0; i < im->plan.n_resize && !rc; i++)
		rc = image_resample(&im->source[i], from, im->plan.resize[i].w, im->plan.resize[i].h,
		                    im->t->form.resample, err);
	return rc;
}

int tower_image(struct media **out, struct tower *t, const struct image *from, int rows_max, struct err *err)
{
	struct image_media *im = xcalloc(1, sizeof *im);
	struct media *m = &im->m;
	int rc = picture_plan(&im->plan, &t->form, from->w, from->h, err), grid, most;
	int32_t *layout;

	im->t = t;
	if (!rc && rows_max && im->plan.rows > rows_max)
		rc = err_set(err, E_LIMIT, "image: %d x %d pixels are %d tokens, where %d are allowed", from->w,
		             from->h, im->plan.rows, rows_max);
	if (!rc)
		rc = check_places(&t->places, &im->plan, err);
	if (!rc)
		rc = resize(im, from, err);
	if (rc) {
		release(im);
		free(im);
		return rc;
	}
	grid = im->plan.view[0].grid_h / t->form.merge;
	most = im->plan.rows + 4 * (grid + im->plan.n_view) + 8;
	layout = xcalloc((size_t)most, sizeof *layout);
	*m = (struct media){ .ops = &ops,
		             .kind = MEDIA_IMAGE,
		             .row_token = t->tokens.row,
		             .placeholder = t->tokens.placeholder,
		             .n = im->plan.rows,
		             .hidden = t->out,
		             .deep = t->deep.n,
		             .whole = t->both_ways,
		             .pixels = (int64_t)from->w * from->h,
		             .layout = layout,
		             .n_layout = t->family->layout(t, &im->plan, layout) };
	atomic_init(&m->refs, 1);
	if (t->grid_places) {
		m->grid_h = grid;
		m->grid_w = im->plan.view[0].grid_w / t->form.merge;
	}
	m->bytes = (size_t)m->n * (size_t)(1 + m->deep) * (size_t)m->hidden * sizeof(float);
	digest(im);
	*out = m;
	return 0;
}
