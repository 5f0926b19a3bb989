/* picture.c - see picture.h. */
#include "vision/picture.h"

#include <math.h>
#include <string.h>

#include "model/conf.h"

static int too_long(int w, int h, struct err *err)
{
	return err_set(err, E_LIMIT, "image: %d x %d pixels: an edge may be at most 200 times the other", w, h);
}

static int64_t to_unit(double x, int unit)
{
	return (int64_t)nearbyint(x / unit) * unit; /* half to even, as Python rounds */
}
static int64_t down_to_unit(double x, int unit)
{
	return (int64_t)floor(x / unit) * unit;
}
static int64_t up_to_unit(double x, int unit)
{
	return (int64_t)ceil(x / unit) * unit;
}
static int64_t least(int64_t x, int64_t bound)
{
	return x > bound ? x : bound;
}

struct size {
	int64_t w, h;
};

/* Multiples of unit, of an area within the bounds, as near to w x h as may be; first_least: what the first rounding
 * gives at least. */
static struct size area_size(int w, int h, int unit, int64_t area_min, int64_t area_max, int first_least)
{
	struct size s = { least(to_unit(w, unit), first_least), least(to_unit(h, unit), first_least) };
	double area = (double)w * h;

	if (s.w * s.h > area_max) {
		double by = sqrt(area / (double)area_max);

		s = (struct size){ least(down_to_unit(w / by, unit), unit), least(down_to_unit(h / by, unit), unit) };
	} else if (s.w * s.h < area_min) {
		double by = sqrt((double)area_min / area);

		s = (struct size){ up_to_unit(w * by, unit), up_to_unit(h * by, unit) };
	}
	return s;
}

/* A side that would vanish is a unit, the other then what the whole aspect gives, within what the patches hold. */
static struct size fill_size(const struct picture_form *f, int w, int h)
{
	int unit = f->patch * f->merge;
	int64_t longest = (int64_t)f->patches_max / (f->merge * f->merge) * unit;
	double by = sqrt((double)f->patches_max * f->patch * f->patch / ((double)w * h));
	struct size s = { down_to_unit(w * by, unit), down_to_unit(h * by, unit) };

	if (s.w < unit && s.h < unit)
		return (struct size){ unit, unit };
	if (s.h < unit) {
		s.h = unit;
		s.w = w / h * (int64_t)unit < longest ? w / h * (int64_t)unit : longest;
	} else if (s.w < unit) {
		s.w = unit;
		s.h = h / w * (int64_t)unit < longest ? h / w * (int64_t)unit : longest;
	}
	return s;
}

static struct size longest_size(const struct picture_form *f, int w, int h)
{
	int unit = f->patch * f->merge;
	double over = fmax((double)w / f->edge, (double)h / f->edge);

	if (over > 1) {
		w = (int)floor(w / over);
		h = (int)floor(h / over);
	}
	return (struct size){ up_to_unit(w > 0 ? w : 1, unit), up_to_unit(h > 0 ? h : 1, unit) };
}

/* Chooses the grid with an allowed number of tiles whose aspect is nearest to the image's; among equally near ones a
 * larger grid only if the image fills half of it. */
static void best_tiles(const struct picture_form *f, int w, int h, int *rows, int *cols)
{
	double aspect = (double)w / h, nearest = HUGE_VAL;

	*rows = *cols = 1;
	for (int n = f->tiles_min; n <= f->tiles_max; n++)
		for (int c = 1; c <= n; c++) {
			double off;

			if (n % c)
				continue;
			off = fabs(aspect - (double)c / (n / c));
			if (off < nearest || (off == nearest && (double)w * h > 0.5 * f->edge * f->edge * n)) {
				nearest = off;
				*cols = c;
				*rows = n / c;
			}
		}
}

static void add_view(struct picture_plan *p, const struct picture_form *f, int source, int x, int y, int w, int h)
{
	p->view[p->n_view++] = (struct picture_view){
		.source = source, .x = x, .y = y, .w = w, .h = h, .grid_h = h / f->patch, .grid_w = w / f->patch
	};
	p->rows += h / f->patch / f->merge * (w / f->patch / f->merge);
}

static int add_resize(struct picture_plan *p, struct size s, struct err *err)
{
	if (s.w > PICTURE_EDGE_MAX || s.h > PICTURE_EDGE_MAX || s.w < 1 || s.h < 1)
		return err_set(err, E_LIMIT, "image: it would be resized to %lld x %lld pixels", (long long)s.w,
		               (long long)s.h);
	p->resize[p->n_resize].w = (int)s.w;
	p->resize[p->n_resize++].h = (int)s.h;
	return 0;
}

static int plan_tiles(struct picture_plan *p, const struct picture_form *f, int w, int h, struct size whole,
                      struct err *err)
{
	int rows, cols, rc;

	best_tiles(f, w, h, &rows, &cols);
	rc = add_resize(p, (struct size){ (int64_t)cols * f->edge, (int64_t)rows * f->edge }, err);
	if (rc)
		return rc;
	p->tile_rows = rows;
	p->tile_cols = cols;
	for (int r = 0; r < rows; r++)
		for (int c = 0; c < cols; c++)
			add_view(p, f, 0, c * f->edge, r * f->edge, f->edge, f->edge);
	if (!f->whole || rows * cols == 1)
		return 0;
	rc = add_resize(p, whole, err);
	if (!rc)
		add_view(p, f, 1, 0, 0, (int)whole.w, (int)whole.h);
	return rc;
}

/* Is it large enough to be cut? */
static bool is_large(const struct picture_form *f, int w, int h)
{
	int unit = f->patch * f->merge;
	int64_t area = least(to_unit(w, unit), f->patch) * least(to_unit(h, unit), f->patch);

	return f->split && f->tiles_max > 1 && (double)area > (double)f->area_max * f->tolerance;
}

int picture_plan(struct picture_plan *out, const struct picture_form *f, int w, int h, struct err *err)
{
	struct size s = { 0, 0 };
	int rc, unit = f->patch * f->merge;

	*out = (struct picture_plan){ 0 };
	switch (f->size) {
	case SIZE_AREA:
		if ((w > h ? w / h : h / w) >= 200 && (int64_t)(w > h ? w : h) > 200 * (int64_t)(w > h ? h : w))
			return too_long(w, h, err);
		s = area_size(w, h, unit, f->area_min, f->area_max, 0);
		break;
	case SIZE_SQUARE: s = (struct size){ f->edge, f->edge }; break;
	case SIZE_FILL: s = fill_size(f, w, h); break;
	case SIZE_LONGEST: s = longest_size(f, w, h); break;
	case SIZE_TILES:
		s = area_size(w, h, unit, f->area_min, f->area_max, unit);
		if (is_large(f, w, h))
			return plan_tiles(out, f, w, h, s, err);
		break;
	}
	rc = add_resize(out, s, err);
	if (!rc)
		add_view(out, f, 0, 0, 0, (int)s.w, (int)s.h);
	return rc;
}

/* ---- settings ---- */

static void read_colours(struct conf *c, const char *key, float out[3])
{
	const struct json *list = conf_get(c, key);
	double v;

	if (!list)
		return;
	for (size_t i = 0; i < 3; i++) {
		if (json_len(list) != 3 || json_to_double(json_at(list, i), &v) || !isfinite(v)) {
			conf_fail(c, E_FORMAT, "%s: is not a list of three numbers", key);
			return;
		}
		out[i] = (float)v;
	}
}

static int64_t read_area(struct conf *c, const char *key, int64_t dflt)
{
	return conf_int_or(c, key, dflt, 1, 1 << 30);
}

static void read_tiles(struct picture_form *f, struct conf *c)
{
	int64_t token = (int64_t)f->patch * f->patch * f->merge * f->merge;

	f->area_min = token * conf_int_or(c, "min_image_tokens", f->area_min / token, 1, 1 << 16);
	f->area_max = token * conf_int_or(c, "max_image_tokens", f->area_max / token, 1, 1 << 16);
	f->edge = conf_int_or(c, "tile_size", f->edge, f->patch * f->merge, 8192);
	f->tiles_min = conf_int_or(c, "min_tiles", f->tiles_min, 1, PICTURE_VIEWS - 1);
	f->tiles_max = conf_int_or(c, "max_tiles", f->tiles_max, 1, PICTURE_VIEWS - 1);
	f->tolerance = conf_double_or(c, "max_pixels_tolerance", f->tolerance);
	f->split = conf_bool_or(c, "do_image_splitting", f->split);
	f->whole = conf_bool_or(c, "use_thumbnail", f->whole);
	if (f->edge % (f->patch * f->merge))
		conf_fail(c, E_FORMAT, "tile_size: %d is not a multiple of %d", f->edge, f->patch * f->merge);
}

int picture_read(struct picture_form *f, const struct json *processor, const char *file, struct err *err)
{
	struct conf c = { .j = processor, .file = file, .where = "", .err = err };
	struct conf size = { .j = conf_get(&c, "size"), .file = file, .where = "size.", .err = err };

	if (!processor)
		return 0;
	if (conf_bool_or(&c, "do_normalize", true)) {
		read_colours(&c, "image_mean", f->mean);
		read_colours(&c, "image_std", f->std);
	}
	if (size.j && json_kind(size.j) != JSON_OBJECT && (f->size == SIZE_AREA || f->size == SIZE_LONGEST))
		conf_fail(&c, E_FORMAT, "size: is %s, not an object", json_kind_name(json_kind(size.j)));
	if (f->size == SIZE_AREA) {
		f->area_min = read_area(&size, "shortest_edge", read_area(&c, "min_pixels", f->area_min));
		f->area_max = read_area(&size, "longest_edge", read_area(&c, "max_pixels", f->area_max));
	} else if (f->size == SIZE_LONGEST) {
		f->edge = conf_int_or(&size, "longest_edge", f->edge, f->patch, PICTURE_EDGE_MAX);
	} else if (f->size == SIZE_FILL) {
		f->patches_max = f->merge * f->merge *
		                 conf_int_or(&c, "max_soft_tokens", f->patches_max / (f->merge * f->merge), 1, 4096);
	} else if (f->size == SIZE_TILES) {
		read_tiles(f, &c);
	}
	for (int i = 0; i < 3; i++)
		if (!(f->std[i] > 0))
			conf_fail(&c, E_FORMAT, "image_std: %g is not above 0", (double)f->std[i]);
	return c.code ? c.code : size.code;
}

/* ---- patches ---- */

void picture_values(float value[3][256], const struct picture_form *f)
{
	for (int c = 0; c < 3; c++)
		for (int i = 0; i < 256; i++)
			value[c][i] = f->levels ? (float)i - 127.5f :
			                          (float)((i / 255.0 - (double)f->mean[c]) / (double)f->std[c]);
}

void picture_patch(float *out, const struct picture_form *f, const struct image *view, int row, int col,
                   bool channels_last, const float value[3][256])
{
	int p = f->patch, frame = p * p * (channels_last ? 3 : 1);

	for (int y = 0; y < p; y++)
		for (int x = 0; x < p; x++) {
			const uint8_t *from = view->rgb +
			                      3 * ((size_t)(row * p + y) * (size_t)view->w + (size_t)(col * p + x));

			for (int c = 0; c < 3; c++) {
				float v = value[c][from[c]];

				for (int t = 0; t < f->frames; t++)
					out[channels_last ? t * frame + (y * p + x) * 3 + c :
					                    (c * f->frames + t) * frame + y * p + x] = v;
			}
		}
}
