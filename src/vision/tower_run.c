/* tower_run.c - a tower at work on one image, in units that end where the caller's time does.
 *
 * A unit is one stage of some adjacent patches.  Once the view's memory is there, stages follow each other, each over
 * all patches of the view: the embedding; of each block keys and values, then everything else; the projector.  A unit's
 * results do not depend on which patches share it, as the backend's operations promise, so neither do the vectors on
 * the time that steps are given.
 *
 * Keys and values of one block at a time lie in pages, as a text model's do, and are attended to by the same operation:
 * a patch that sees its whole segment is a row at the segment's last position. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "vision/tower_parts.h"

enum { PAGE_ROWS = 64, UNIT_MOST = 256, UNIT_LEAST = 32 };
/* Bytes of new memory that are written at a time. */
enum { MEMORY_UNIT = 1 << 18 };

enum stage { STAGE_MEMORY, STAGE_EMBED, STAGE_KEYS, STAGE_REST, STAGE_DEEP, STAGE_PROJECT, STAGE_DONE };

/* Patches that see each other: all, or windows.  Tables by patch and by segment. */
struct segments {
	int32_t *item, *pos, *last; /* [n] segment; place in it; its last place */
	int32_t *page;              /* [segments][page_max] */
	int n, page_max;
};

struct tower_run {
	struct tower *t;
	const struct picture_plan *plan;
	const struct image *source; /* [n_resize] */
	float *vectors;
	float value[3][256];

	/* The view at work. */
	int view, n;     /* patches */
	int row0;        /* of the view's first row in vectors */
	struct image im; /* its pixels, in the source's memory or its own */
	bool im_own;
	int32_t (*at)[2];       /* [n] row and column of each patch, in the order of computing */
	int32_t (*turn)[2];     /* [n] places by the rope's axes */
	int32_t *row;           /* [n / merge^2] row of the view that these patches become */
	struct segments seg[2]; /* all; windows */
	float *place;           /* [grid_h * grid_w][hidden] for PLACES_ANTIALIAS */

	/* Backend memory, one piece. */
	uint8_t *area;
	size_t area_bytes, area_ready; /* ready: that were written before */
	float *x, *a, *b, *q, *k, *v, *wide_q, *wide_k, *wide_v, *inner, *inner2, *patches;
	float *cosines[2], *sines[2];
	uint8_t *pages;
	struct grid_rope rope;
	struct kv_layer layer;
	size_t page_bytes;

	float *host;    /* of a unit's patches or places */
	int32_t *index; /* of gathers */

	enum stage stage;
	int block, deep, next; /* which block, which of the deepstack, first patch of the next unit */
	int unit;              /* patches of a unit */
	/* Nanoseconds of a patch in the last unit of the stage, in blocks without windows and with them; 0: not yet
	 * known. */
	double pace[STAGE_DONE][2];
	struct kv_view cached; /* the keys and values of the block at work, as the unit sees them */
	struct pass pass;
};

static int group_of(const struct tower *t)
{
	return t->form.merge * t->form.merge;
}

static int biggest(int a, int b)
{
	return a > b ? a : b;
}

/* ---- a view's tables ---- */

static void segments_fini(struct segments *s)
{
	free(s->item);
	free(s->pos);
	free(s->last);
	free(s->page);
	*s = (struct segments){ 0 };
}

/* Segments of the given lengths, each with pages of its own; returns how many pages. */
static int segments_init(struct segments *s, const int *length, int n_seg, int n)
{
	int pages = 0, p = 0;

	s->n = n_seg;
	s->item = xcalloc((size_t)n, sizeof *s->item);
	s->pos = xcalloc((size_t)n, sizeof *s->pos);
	s->last = xcalloc((size_t)n, sizeof *s->last);
	for (int i = 0; i < n_seg; i++)
		s->page_max = biggest(s->page_max, (length[i] + PAGE_ROWS - 1) / PAGE_ROWS);
	s->page = xcalloc(size_mul((size_t)n_seg, (size_t)s->page_max), sizeof *s->page);
	for (int i = 0; i < n_seg; i++) {
		int n_page = (length[i] + PAGE_ROWS - 1) / PAGE_ROWS;

		for (int k = 0; k < s->page_max; k++)
			s->page[i * s->page_max + k] = k < n_page ? pages + k : -1;
		pages += n_page;
		for (int k = 0; k < length[i]; k++, p++) {
			s->item[p] = i;
			s->pos[p] = k;
			s->last[p] = length[i] - 1;
		}
	}
	assert(p == n);
	return pages;
}

/* Patches of the row at (R, C) of the prompt's grid. */
static void put_cell(struct tower_run *r, int *p, int R, int C)
{
	int m = r->t->form.merge, cols = r->plan->view[r->view].grid_w / m;

	r->row[*p / (m * m)] = R * cols + C;
	for (int i = 0; i < m; i++)
		for (int j = 0; j < m; j++, ++*p) {
			r->at[*p][0] = R * m + i;
			r->at[*p][1] = C * m + j;
		}
}

/* The order of patches: row by row of the prompt, within windows where there are any.  Returns the pages of keys. */
static int order_patches(struct tower_run *r)
{
	int m = r->t->form.merge, rows = r->plan->view[r->view].grid_h / m, cols = r->plan->view[r->view].grid_w / m;
	int w = r->t->window ? r->t->window : biggest(rows, cols), p = 0, n_seg = 0, pages;
	int *length = xcalloc((size_t)((rows + w - 1) / w) * (size_t)((cols + w - 1) / w), sizeof *length);

	for (int R0 = 0; R0 < rows; R0 += w)
		for (int C0 = 0; C0 < cols; C0 += w) {
			int before = p;

			for (int R = R0; R < rows && R < R0 + w; R++)
				for (int C = C0; C < cols && C < C0 + w; C++)
					put_cell(r, &p, R, C);
			length[n_seg++] = p - before;
		}
	assert(p == r->n);
	pages = segments_init(&r->seg[0], &r->n, 1, r->n);
	if (r->t->window)
		pages = biggest(pages, segments_init(&r->seg[1], length, n_seg, r->n));
	free(length);
	for (int i = 0; i < r->n; i++)
		for (int a = 0; a < 2; a++)
			r->turn[i][a] = r->at[i][r->t->rope.kind == ROPE_HALVES ? 1 - a : a];
	return pages;
}

/* Angle i of an axis at a place. */
static double angle(const struct tower *t, int axis, int i, int place)
{
	double by = t->rope.kind == ROPE_ALTERNATE ? 2.0 * (2 * i + axis) / t->dim : 4.0 * i / t->dim;
	float freq = (float)pow(t->rope.theta, -by);

	return (double)((float)place * freq);
}

static void write_rope(struct tower_run *r, int places)
{
	const struct tower *t = r->t;
	int freqs = t->dim / 4;
	size_t bytes = (size_t)places * (size_t)freqs * sizeof(float);
	float *c = xmalloc(bytes), *s = xmalloc(bytes);

	for (int axis = 0; axis < 2; axis++) {
		for (int p = 0; p < places; p++)
			for (int i = 0; i < freqs; i++) {
				double phi = angle(t, axis, i, p);

				c[p * freqs + i] = (float)cos(phi);
				s[p * freqs + i] = (float)sin(phi);
			}
		t->be->ops->write(t->be, r->cosines[axis], c, bytes);
		t->be->ops->write(t->be, r->sines[axis], s, bytes);
	}
	free(c);
	free(s);
	r->rope = (struct grid_rope){
		{ r->cosines[0], r->cosines[1] }, { r->sines[0], r->sines[1] }, freqs, t->rope.kind == ROPE_HALVES
	};
}

/* The table of places resized to the grid: columns, then rows. */
static void resize_places(struct tower_run *r)
{
	const struct tower *t = r->t;
	int gh = r->plan->view[r->view].grid_h, gw = r->plan->view[r->view].grid_w, S = t->places.side, h = t->hidden,
	    first;
	double *tap = xcalloc(
		(size_t)biggest(resample_taps(S, gw, RESAMPLE_BILINEAR), resample_taps(S, gh, RESAMPLE_BILINEAR)),
		sizeof *tap);
	float *wide = xcalloc(size_mul((size_t)S * (size_t)gw, (size_t)h), sizeof *wide);

	r->place = xcalloc(size_mul((size_t)gh * (size_t)gw, (size_t)h), sizeof *r->place);
	for (int c = 0; c < gw; c++) {
		int n = resample_weights(tap, &first, S, gw, c, RESAMPLE_BILINEAR);

		for (int y = 0; y < S; y++)
			for (int j = 0; j < n; j++)
				for (int i = 0; i < h; i++)
					wide[((size_t)y * (size_t)gw + (size_t)c) * (size_t)h + (size_t)i] +=
						(float)tap[j] *
						t->places.table[(size_t)(y * S + first + j) * (size_t)h + (size_t)i];
	}
	for (int y = 0; y < gh; y++) {
		int n = resample_weights(tap, &first, S, gh, y, RESAMPLE_BILINEAR);
		float *to = r->place + (size_t)y * (size_t)gw * (size_t)h;

		for (int j = 0; j < n; j++)
			for (size_t i = 0; i < (size_t)gw * (size_t)h; i++)
				to[i] += (float)tap[j] * wide[(size_t)(first + j) * (size_t)gw * (size_t)h + i];
	}
	free(wide);
	free(tap);
}

/* The source's part that the view is. */
static void take_pixels(struct tower_run *r)
{
	const struct picture_view *v = &r->plan->view[r->view];
	const struct image *from = &r->source[v->source];

	r->im_own = v->w != from->w || v->h != from->h;
	r->im = *from;
	if (!r->im_own)
		return;
	r->im = (struct image){ v->w, v->h, xmalloc((size_t)v->w * (size_t)v->h * 3) };
	for (int y = 0; y < v->h; y++)
		memcpy(r->im.rgb + (size_t)y * (size_t)v->w * 3,
		       from->rgb + 3 * ((size_t)(v->y + y) * (size_t)from->w + (size_t)v->x), (size_t)v->w * 3);
}

/* ---- memory ---- */

struct lay {
	uint8_t *base;
	size_t used;
};

static void *lay_bytes(struct lay *l, size_t bytes)
{
	void *p = l->base ? l->base + l->used : NULL;

	l->used += (bytes + 63) / 64 * 64;
	return p;
}
static float *lay_floats(struct lay *l, int rows, int cols)
{
	return lay_bytes(l, (size_t)rows * (size_t)cols * sizeof(float));
}

/* Widest output of the projectors, of one row. */
static int widest_row(const struct tower *t)
{
	int most = t->out;

	for (int k = -1; k < t->deep.n; k++) {
		const struct projector *p = k < 0 ? &t->projector : &t->deep.v[k];

		for (int i = 0; i < p->n; i++)
			most = biggest(most, p->linear[i].w.rows);
	}
	return most;
}

/* Lays the area out; the pointers are set once there is one. */
static size_t lay_area(struct tower_run *r, uint8_t *base, int pages)
{
	const struct tower *t = r->t;
	struct lay l = { base, 0 };
	int c = r->unit, head = t->heads * t->dim, wide = t->heads * t->wide, rows = c / group_of(t);
	int places = biggest(r->plan->view[r->view].grid_h, r->plan->view[r->view].grid_w);
	/* a and b also hold a unit's rows in the projector. */
	int most = biggest(biggest(t->hidden, wide), (widest_row(t) * rows + c - 1) / c);

	r->x = lay_floats(&l, r->n, t->hidden);
	r->a = lay_floats(&l, c, most);
	r->b = lay_floats(&l, c, most);
	r->q = lay_floats(&l, c, head);
	r->k = lay_floats(&l, c, head);
	r->v = lay_floats(&l, c, head);
	r->wide_q = lay_floats(&l, c, wide);
	r->wide_k = lay_floats(&l, c, wide);
	r->wide_v = lay_floats(&l, c, wide);
	r->inner = lay_floats(&l, c, t->inner);
	r->inner2 = lay_floats(&l, c, biggest(t->inner, most));
	r->patches = lay_floats(&l, c, t->embed.linear.w.cols);
	for (int axis = 0; axis < 2; axis++) {
		r->cosines[axis] = lay_floats(&l, places, t->dim / 4 + 1);
		r->sines[axis] = lay_floats(&l, places, t->dim / 4 + 1);
	}
	r->pages = lay_bytes(&l, (size_t)pages * r->page_bytes);
	return l.used;
}

static void view_close(struct tower_run *r)
{
	if (r->area && r->area_ready == r->area_bytes)
		tower_give(r->t, r->area, r->area_bytes);
	else if (r->area)
		r->t->be->ops->free(r->t->be, r->area, r->area_bytes);
	r->area = NULL;
	if (r->im_own)
		free(r->im.rgb);
	r->im_own = false;
	segments_fini(&r->seg[0]);
	segments_fini(&r->seg[1]);
	free(r->at);
	free(r->turn);
	free(r->row);
	free(r->place);
	free(r->host);
	free(r->index);
	r->at = r->turn = NULL;
	r->row = r->index = NULL;
	r->place = r->host = NULL;
}

static int view_open(struct tower_run *r, struct err *err)
{
	struct tower *t = r->t;
	const struct picture_view *v = &r->plan->view[r->view];
	struct kv_rows rows = kv_rows_of(kv_format_find(t->arith == ARITH_FAST ? "bf16" : "f32"));
	int group = group_of(t), most = UNIT_MOST / group * group, pages;

	r->n = v->grid_h * v->grid_w;
	r->unit = r->n < most ? r->n : biggest(most, group);
	r->at = xcalloc((size_t)r->n, sizeof *r->at);
	r->turn = xcalloc((size_t)r->n, sizeof *r->turn);
	r->row = xcalloc((size_t)(r->n / group), sizeof *r->row);
	r->host = xcalloc((size_t)r->unit * (size_t)biggest(t->embed.linear.w.cols, t->hidden), sizeof *r->host);
	r->index = xcalloc((size_t)r->unit * (size_t)(t->projector.channels_first ? t->hidden : 1), sizeof *r->index);
	pages = order_patches(r);
	r->page_bytes = t->depth ? kv_layers_lay(&r->layer, 1, &rows, t->heads, t->wide, PAGE_ROWS) : 0;
	if (!r->page_bytes && t->depth)
		return err_set(err, E_UNSUPPORTED, "image: no cache rows for heads of %d", t->wide);
	r->area_bytes = lay_area(r, NULL, pages);
	r->area = tower_take(t, &r->area_bytes, &r->area_ready);
	if (!r->area)
		return err_set(err, E_FULL, "image: no memory for %zu bytes that %d patches need", r->area_bytes, r->n);
	lay_area(r, r->area, pages);
	if (t->places.kind == PLACES_ANTIALIAS)
		resize_places(r);
	take_pixels(r);
	r->stage = STAGE_MEMORY;
	r->block = r->deep = r->next = 0;
	return 0;
}

/* ---- operations ---- */

static const struct backend_ops *ops_of(struct tower_run *r)
{
	return r->t->be->ops;
}

static struct kv_view view_of(const struct tower_run *r, const struct segments *s)
{
	return (struct kv_view){ .base = r->pages,
		                 .page_bytes = r->page_bytes,
		                 .layer = &r->layer,
		                 .layers = 1,
		                 .page_rows = PAGE_ROWS,
		                 .heads = r->t->heads,
		                 .dim = r->t->wide,
		                 .dim_v = r->t->wide,
		                 .page = s->page,
		                 .page_max = s->page_max };
}

/* Tables of a unit: patches [first, first + n); all see their segments, or themselves only. */
static int begin(struct tower_run *r, const struct segments *s, int first, int n, bool whole)
{
	r->cached = view_of(r, s);
	r->pass.kv[0] = &r->cached;
	r->pass.grid = r->turn + first;
	r->pass.n_row = n;
	r->pass.n_item = s->n;
	r->pass.pos = (whole ? s->last : s->pos) + first;
	r->pass.item = s->item + first;
	return pass_begin(&r->pass);
}

static const float *norm(struct tower_run *r, const struct tower_norm *m, float *out, const float *in, int n, int cols)
{
	if (m->kind == TOWER_NORM_NONE)
		return in;
	if (m->kind == TOWER_NORM_LAYER)
		ops_of(r)->layer_norm(&r->pass, out, in, n, cols, m->gain, m->bias, m->eps);
	else
		ops_of(r)->norm(&r->pass, out, in, n, cols, m->gain, m->eps);
	return out;
}

/* Keeps the inputs of a product within its bounds, in a copy. */
static const float *bounded_in(struct tower_run *r, const struct tower_linear *l, const float *in, float *copy, int n)
{
	if (!l->bounded)
		return in;
	ops_of(r)->copy(r->t->be, copy, in, (size_t)n * (size_t)l->w.cols * sizeof(float));
	ops_of(r)->affine(&r->pass, copy, n, l->w.cols, NULL, NULL, l->in[0], l->in[1]);
	return copy;
}

static void bounded_out(struct tower_run *r, const struct tower_linear *l, float *out, int n)
{
	if (l->bounded)
		ops_of(r)->affine(&r->pass, out, n, l->w.rows, NULL, NULL, l->out[0], l->out[1]);
}

/* Several products of one input, at once where they have no bounds; spare holds a copy of the input. */
static void products(struct tower_run *r, const struct tower_linear *const *l, float *const *out, int n_l,
                     const float *in, float *spare, int n)
{
	struct linear job[3];

	for (int i = 0; i < n_l; i++)
		job[i] = (struct linear){
			.w = &l[i]->w, .out = out[i], .ld = (size_t)l[i]->w.rows, .bias = l[i]->bias
		};
	if (!l[0]->bounded) {
		ops_of(r)->linear(&r->pass, job, n_l, in, n, l[0]->w.cols);
		return;
	}
	for (int i = 0; i < n_l; i++) {
		ops_of(r)->linear(&r->pass, &job[i], 1, bounded_in(r, l[i], in, spare, n), n, l[i]->w.cols);
		bounded_out(r, l[i], out[i], n);
	}
}

/* x += post(in l'); out is for what is normed first, spare for bounds. */
static void join(struct tower_run *r, float *x, const struct tower_linear *l, const struct tower_norm *post,
                 const float *in, float *out, float *spare, int n)
{
	bool apart = l->bounded || post->kind != TOWER_NORM_NONE;
	struct linear job = {
		.w = &l->w, .out = apart ? out : x, .ld = (size_t)l->w.rows, .bias = l->bias, .add = !apart
	};

	ops_of(r)->linear(&r->pass, &job, 1, bounded_in(r, l, in, spare, n), n, l->w.cols);
	if (!apart)
		return;
	bounded_out(r, l, out, n);
	ops_of(r)->add(&r->pass, x, norm(r, post, out, out, n, l->w.rows), n, l->w.rows, 1.0f);
}
static struct attn attn_of(const struct tower *t, int heads)
{
	return (struct attn){ .heads = heads, .heads_kv = t->heads, .dim = t->wide, .scale = t->scale };
}

/* Heads normed, rotated and filled up to what the kernels like. */
static float *heads(struct tower_run *r, float *wide, float *x, const float *gain, bool normed, bool turned, int n)
{
	const struct tower *t = r->t;

	if (normed)
		ops_of(r)->norm(&r->pass, x, x, n * t->heads, t->dim, gain, t->block[r->block].norm_attn.eps);
	ops_of(r)->heads(&r->pass, wide, t->wide, x, t->dim, n, t->heads,
	                 turned && t->rope.kind != ROPE_NONE ? &r->rope : NULL);
	return wide;
}

/* ---- stages, of patches [first, first + n) ---- */

/* table row(s) for a patch, added up into out. */
static void place_of(const struct tower_run *r, float *out, int row, int col)
{
	const struct tower_places *t = &r->t->places;
	const struct picture_view *v = &r->plan->view[r->view];
	int h = r->t->hidden, S = t->side;

	if (t->kind == PLACES_CORNERS) {
		float y = v->grid_h > 1 ? (float)row * (float)(S - 1) / (float)(v->grid_h - 1) : 0;
		float x = v->grid_w > 1 ? (float)col * (float)(S - 1) / (float)(v->grid_w - 1) : 0;
		int y0 = (int)y, x0 = (int)x, y1 = y0 + 1 < S ? y0 + 1 : S - 1, x1 = x0 + 1 < S ? x0 + 1 : S - 1;
		const float *corner[4] = { t->table + (size_t)(y0 * S + x0) * (size_t)h,
			                   t->table + (size_t)(y0 * S + x1) * (size_t)h,
			                   t->table + (size_t)(y1 * S + x0) * (size_t)h,
			                   t->table + (size_t)(y1 * S + x1) * (size_t)h };
		float dy = y - (float)y0, dx = x - (float)x0;
		float weight[4] = { (1 - dy) * (1 - dx), (1 - dy) * dx, dy * (1 - dx), dy * dx };

		for (int i = 0; i < h; i++)
			out[i] = weight[0] * corner[0][i] + weight[1] * corner[1][i] + weight[2] * corner[2][i] +
			         weight[3] * corner[3][i];
	} else if (t->kind == PLACES_AXES) {
		const float *x = t->table + (size_t)col * (size_t)h, *y = t->table + (size_t)(S + row) * (size_t)h;

		for (int i = 0; i < h; i++)
			out[i] = x[i] + y[i];
	} else {
		const float *from = t->kind == PLACES_TABLE ? t->table + (size_t)(row * S + col) * (size_t)h :
		                                              r->place + (size_t)(row * v->grid_w + col) * (size_t)h;

		memcpy(out, from, (size_t)h * sizeof *out);
	}
}

static void embed(struct tower_run *r, int first, int n)
{
	const struct tower *t = r->t;
	int cols = t->embed.linear.w.cols;
	float *x = r->x + (size_t)first * (size_t)t->hidden;
	bool placed = t->places.kind != PLACES_NONE, apart = t->embed.embedded.kind != TOWER_NORM_NONE;
	struct linear job = { .w = &t->embed.linear.w,
		              .out = x,
		              .ld = (size_t)t->hidden,
		              .bias = t->embed.linear.bias,
		              .add = placed && !apart };

	if (begin(r, &r->seg[0], first, n, false))
		return;
	for (int i = 0; i < n; i++)
		picture_patch(r->host + (size_t)i * (size_t)cols, &t->form, &r->im, r->at[first + i][0],
		              r->at[first + i][1], t->embed.channels_last, r->value);
	ops_of(r)->write(t->be, r->patches, r->host, (size_t)n * (size_t)cols * sizeof(float));
	for (int i = 0; i < n && placed; i++)
		place_of(r, r->host + (size_t)i * (size_t)t->hidden, r->at[first + i][0], r->at[first + i][1]);
	if (placed)
		ops_of(r)->write(t->be, apart ? r->a : x, r->host, (size_t)n * (size_t)t->hidden * sizeof(float));
	norm(r, &t->embed.patch, r->patches, r->patches, n, cols);
	ops_of(r)->linear(&r->pass, &job, 1, r->patches, n, cols);
	norm(r, &t->embed.embedded, x, x, n, t->hidden);
	if (placed && apart)
		ops_of(r)->add(&r->pass, x, r->a, n, t->hidden, 1.0f);
	norm(r, &t->pre, x, x, n, t->hidden);
}

static const struct segments *seen(const struct tower_run *r)
{
	return &r->seg[r->t->block[r->block].windowed];
}

static void keys(struct tower_run *r, int first, int n)
{
	const struct tower *t = r->t;
	const struct tower_block *k = &t->block[r->block];
	const struct segments *s = seen(r);
	const struct tower_linear *const l[] = { &k->k, &k->v };
	float *const out[] = { r->k, r->v };
	struct attn a = attn_of(t, 0);
	const float *in;

	if (begin(r, s, first, n, false))
		return;
	in = norm(r, &k->norm_attn, r->a, r->x + (size_t)first * (size_t)t->hidden, n, t->hidden);
	products(r, l, out, 2, in, r->b, n);
	heads(r, r->wide_k, r->k, k->k_norm, k->k_norm != NULL, true, n);
	heads(r, r->wide_v, r->v, NULL, k->v_norm, false, n);
	ops_of(r)->kv_append(&r->pass, &a, r->wide_q, 0, 0, r->wide_k, r->wide_v, &r->cached, 0);
}

static void attend(struct tower_run *r, float *x, int first, int n)
{
	const struct tower *t = r->t;
	const struct tower_block *k = &t->block[r->block];
	const struct segments *s = seen(r);
	const struct tower_linear *const l[] = { &k->q };
	float *const out[] = { r->q };
	struct attn a = attn_of(t, t->heads);

	if (begin(r, s, first, n, true))
		return;
	products(r, l, out, 1, norm(r, &k->norm_attn, r->a, x, n, t->hidden), r->b, n);
	heads(r, r->wide_q, r->q, k->q_norm, k->q_norm != NULL, true, n);
	ops_of(r)->attend(&r->pass, r->wide_v, &a, r->wide_q, NULL, (size_t)(t->heads * t->wide), (size_t)t->wide,
	                  &r->cached, 0);
	ops_of(r)->heads(&r->pass, r->q, t->dim, r->wide_v, t->wide, n, t->heads, NULL);
	join(r, x, &k->proj, &k->post_attn, r->q, r->a, r->b, n);
}

static void mlp(struct tower_run *r, float *x, int n)
{
	const struct tower *t = r->t;
	const struct tower_block *k = &t->block[r->block];
	const float *in = norm(r, &k->norm_mlp, r->a, x, n, t->hidden);
	const struct tower_linear *const l[] = { &k->gate, &k->up };
	float *const out[] = { r->inner, r->inner2 };
	struct linear up = { .w = &k->up.w, .bias = k->up.bias };
	struct linear job = { .w = k->gated ? &k->gate.w : &k->up.w,
		              .out = r->inner,
		              .ld = (size_t)t->inner,
		              .bias = k->gated ? k->gate.bias : k->up.bias,
		              .up = k->gated ? &up : NULL,
		              .act = t->act };

	if (k->up.bounded) {
		products(r, l, out, 2, in, r->b, n);
		ops_of(r)->gate(&r->pass, r->inner, r->inner2, n, t->inner, &t->act);
	} else {
		ops_of(r)->linear(&r->pass, &job, 1, in, n, t->hidden);
	}
	join(r, x, &k->down, &k->post_mlp, r->inner, r->a, r->inner2, n);
}

static void rest(struct tower_run *r, int first, int n)
{
	float *x = r->x + (size_t)first * (size_t)r->t->hidden;

	attend(r, x, first, n);
	mlp(r, x, n);
}

/* The rows that rows_of gathers. */
static void picks(struct tower_run *r, const struct projector *p, int n)
{
	int group = group_of(r->t), h = r->t->hidden, rows = n / group, k = 0;

	if (p->average)
		for (int j = 0; j < group; j++)
			for (int i = 0; i < rows; i++)
				r->index[k++] = i * group + j;
	else if (p->channels_first)
		for (int i = 0; i < rows; i++)
			for (int c = 0; c < h; c++)
				for (int j = 0; j < group; j++)
					r->index[k++] = (i * group + j) * h + c;
	r->pass.picked.row = r->index;
	r->pass.picked.n = k;
}

/* Rows of n patches at `in`, one after the other, into r->b: what the projector's products read. */
static void rows_of(struct tower_run *r, const struct projector *p, const float *in, int n)
{
	int group = group_of(r->t), h = r->t->hidden, rows = n / group;

	if (p->average) {
		for (int j = 0; j < group; j++) {
			ops_of(r)->gather(&r->pass, j ? r->inner2 : r->b, in, r->index + j * rows, rows, h);
			if (j)
				ops_of(r)->add(&r->pass, r->b, r->inner2, rows, h, p->factor);
			else
				ops_of(r)->map(&r->pass, r->b, rows, h, p->factor, 0);
		}
		if (p->gain)
			ops_of(r)->affine(&r->pass, r->b, rows, h, p->gain, p->shift, -INFINITY, INFINITY);
	} else if (p->channels_first) {
		ops_of(r)->gather(&r->pass, r->b, in, r->index, n * h, 1);
	} else {
		ops_of(r)->copy(r->t->be, r->b, in, (size_t)n * (size_t)h * sizeof(float));
	}
}

/* Vector `which` of the rows of patches [first, first + n). */
static void project(struct tower_run *r, const struct projector *p, int which, int first, int n)
{
	const struct tower *t = r->t;
	int group = group_of(t), rows = n / group, cols = p->linear[0].w.cols, width = t->out * (1 + t->deep.n);
	float *from = r->b, *to = r->a, *host;
	const float *x;
	int rc;

	picks(r, p, n);
	if (begin(r, &r->seg[0], first, n, false))
		return;
	x = r->x + (size_t)first * (size_t)t->hidden;
	if (which == 0)
		x = norm(r, &t->post, r->a, x, n, t->hidden);
	x = norm(r, &p->before, r->a, x, n, t->hidden);
	rows_of(r, p, x, n);
	norm(r, &p->joined, r->b, r->b, rows, cols);
	for (int i = 0; i < p->n; i++) {
		struct linear job = { .w = &p->linear[i].w,
			              .out = to,
			              .ld = (size_t)p->linear[i].w.rows,
			              .bias = p->linear[i].bias,
			              .act = p->act[i] };
		float *was = from;

		ops_of(r)->linear(&r->pass, &job, 1, from, rows, p->linear[i].w.cols);
		from = to;
		to = was;
	}
	host = xmalloc((size_t)rows * (size_t)t->out * sizeof *host);
	rc = ops_of(r)->read(t->be, host, from, (size_t)rows * (size_t)t->out * sizeof *host);
	for (int i = 0; i < rows && !rc; i++)
		memcpy(r->vectors + (size_t)(r->row0 + r->row[first / group + i]) * (size_t)width +
		               (size_t)which * (size_t)t->out,
		       host + (size_t)i * (size_t)t->out, (size_t)t->out * sizeof *host);
	free(host);
}

/* ---- in parts ---- */

static void unit(struct tower_run *r, int first, int n)
{
	switch (r->stage) {
	case STAGE_MEMORY: break;
	case STAGE_EMBED: embed(r, first, n); break;
	case STAGE_KEYS: keys(r, first, n); break;
	case STAGE_REST: rest(r, first, n); break;
	case STAGE_DEEP: project(r, &r->t->deep.v[r->deep], 1 + r->deep, first, n); break;
	case STAGE_PROJECT: project(r, &r->t->projector, 0, first, n); break;
	case STAGE_DONE: break;
	}
}

/* Goes on to the stage after the one that has finished all patches of the view. */
static void next_stage(struct tower_run *r)
{
	const struct tower *t = r->t;
	bool deep = r->stage == STAGE_REST && r->deep < t->deep.n && t->deep.after[r->deep] == r->block;

	r->next = 0;
	if (r->stage == STAGE_EMBED && !t->depth) {
		r->stage = STAGE_PROJECT;
		return;
	}
	if (r->stage == STAGE_EMBED || r->stage == STAGE_KEYS || deep) {
		r->stage = deep ? STAGE_DEEP : r->stage == STAGE_EMBED ? STAGE_KEYS : STAGE_REST;
		return;
	}
	if (r->stage == STAGE_PROJECT) {
		r->stage = STAGE_DONE;
		return;
	}
	r->deep += r->stage == STAGE_DEEP;
	r->stage = ++r->block < t->depth ? STAGE_KEYS : STAGE_PROJECT;
}

/* The next view, or the end. */
static int next_view(struct tower_run *r, struct err *err)
{
	r->row0 += r->n / group_of(r->t);
	view_close(r);
	return ++r->view < r->plan->n_view ? view_open(r, err) : 0;
}

static double *pace_of(struct tower_run *r)
{
	const struct tower *t = r->t;

	return &r->pace[r->stage][r->block < t->depth && t->block[r->block].windowed];
}

static int least_of(const struct tower_run *r)
{
	int group = group_of(r->t);

	return UNIT_LEAST / group * group + (group > UNIT_LEAST ? group : 0);
}

/* Patches of the next unit: as many as `left` nanoseconds are good for at the pace of the stage's last one, and half of
 * all that were given: new memory, or another program, may make it twice as long.  In whole numbers of the least unit,
 * since kernels are slower with odd rows. */
static int unit_of(const struct tower_run *r, int64_t left, int64_t half, double pace)
{
	int n = r->n - r->next, least = least_of(r);
	double fit = pace > 0 ? (double)(left < half ? left : half) / pace : UNIT_LEAST;

	if (fit < n)
		n = (int)fit / least * least;
	n = biggest(n, least);
	n = n < r->unit ? n : r->unit;
	return n < r->n - r->next ? n : r->n - r->next;
}

/* Writes new memory of the area, from front to back, until the part ends, and the tables once that is done: the system
 * may take milliseconds to find memory, which a unit would not foresee.  Returns the time. */
static int64_t fill_area(struct tower_run *r, int64_t now, int64_t end)
{
	const struct picture_view *v = &r->plan->view[r->view];
	size_t left = r->area_bytes - r->area_ready;
	uint8_t *zeros = left ? xcalloc(1, MEMORY_UNIT) : NULL;

	while (left) {
		size_t n = left < MEMORY_UNIT ? left : MEMORY_UNIT;

		ops_of(r)->write(r->t->be, r->area + r->area_ready, zeros, n);
		r->area_ready += n;
		left -= n;
		now = clock_monotonic_ns();
		if (now >= end)
			break;
	}
	free(zeros);
	if (left)
		return now;
	if (r->t->rope.kind != ROPE_NONE)
		write_rope(r, biggest(v->grid_h, v->grid_w));
	r->stage = STAGE_EMBED;
	return now;
}

int tower_run_step(struct tower_run *r, int64_t ns, struct err *err)
{
	int64_t end = clock_monotonic_ns() + ns, now = end - ns;

	do {
		double *pace = pace_of(r);
		int64_t before = now;
		int n;

		if (r->stage == STAGE_MEMORY) {
			now = fill_area(r, now, end);
			continue;
		}
		n = unit_of(r, end - now, ns / 2, *pace);
		r->pass.picked.n = 0;
		unit(r, r->next, n);
		if (pass_end(&r->pass)) {
			*err = r->t->be->failed;
			return err->code;
		}
		r->next += n;
		now = clock_monotonic_ns();
		*pace = (double)(now - before) / n;
		if (r->next == r->n)
			next_stage(r);
		if (r->stage == STAGE_DONE) {
			int rc = next_view(r, err);

			if (rc || r->view == r->plan->n_view)
				return rc;
		}
		/* A unit that would end later by more than it now ends too soon waits for the next part. */
	} while ((double)(end - now) > *pace_of(r) * least_of(r) / 2);
	return 1;
}

struct tower_run *tower_run_open(struct tower *t, const struct picture_plan *plan, const struct image *source,
                                 float *vectors, struct err *err)
{
	struct tower_run *r = xcalloc(1, sizeof *r);

	r->t = t;
	r->plan = plan;
	r->source = source;
	r->vectors = vectors;
	r->pass = (struct pass){ .be = t->be, .arith = t->arith };
	picture_values(r->value, &t->form);
	if (!view_open(r, err))
		return r;
	tower_run_close(r);
	return NULL;
}

void tower_run_close(struct tower_run *r)
{
	if (!r)
		return;
	view_close(r);
	free(r);
}
