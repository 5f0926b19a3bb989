/* ear_conformer.c - the ear of Gemma 4 E2B and E4B: mel bands, two convolutions that halve time and bands, then blocks of a
 * feed-forward layer, attention to the last twelve rows, a convolution over the last five, and another feed-forward layer.
 *
 *     x = W flatten(relu(norm(conv relu(norm(conv mel)))))
 *     per block:  x += ff(x) / 2;  x += rms(attention(rms x));  x += convolution(rms x);  x += ff(x) / 2;  x = rms x
 *     rows = P rms(W x + b)
 *
 * A row hears the rows before it alone, so the blocks run over a few rows at a time, whose keys, values and inputs of the
 * convolution stay for those behind them.  Products are the backend's; what is between them is done here, on the host's
 * memory: a hundredth of the work. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "model/work.h"
#include "sound/ear_parts.h"
#include "sound/mel.h"

enum { UNIT = 16 /* rows at a time */, CONVS = 2, KERNEL = 3, TAPS_MAX = 32, FF_WIDE = 4 };

struct feed {
	const float *before, *after;
	struct ear_linear up, down;
};

struct block {
	struct feed ff[2];
	const float *pre_attn, *post_attn, *out;
	struct ear_linear q, k, v, post, relative;
	float *q_scale; /* [dim] */
	const float *pre_conv, *conv_norm, *taps;
	struct ear_linear start, end;
};

struct conformer {
	struct mel mel;
	int heads, dim, keys, n_tap, channels[CONVS];
	float cap, residual;
	struct ear_linear conv[CONVS], input, output;
	bool conv_last[CONVS]; /* the weight's last dimension is the channel */
	const float *conv_gain[CONVS];
	struct block *block;
};

/* ---- tensors ---- */

static void bind_product(struct binder *b, struct ear_linear *l, int rows, int cols, int i, const char *name,
                         bool bounded)
{
	static const char *const what[] = { "input_min", "input_max", "output_min", "output_max" };
	float *to[] = { &l->in[0], &l->in[1], &l->out[0], &l->out[1] };

	bind_weight(b, &l->w, rows, cols, "audio_tower.layers.%d.%s.linear", i, name);
	l->bounded = bounded;
	for (int k = 0; k < 4 && bounded; k++) {
		const float *v = bind_floats(b, 1, 0, "audio_tower.layers.%d.%s.%s", i, name, what[k]);

		if (v)
			*to[k] = *v;
	}
}

static const float *bind_gain(struct binder *b, int n, int i, const char *name)
{
	return bind_host(b, n, "audio_tower.layers.%d.%s.weight", i, name);
}

static void bind_feed(struct binder *b, struct feed *f, int hidden, int i, int which, bool bounded)
{
	char name[64];

	snprintf(name, sizeof name, "feed_forward%d.pre_layer_norm", which);
	f->before = bind_gain(b, hidden, i, name);
	snprintf(name, sizeof name, "feed_forward%d.post_layer_norm", which);
	f->after = bind_gain(b, hidden, i, name);
	snprintf(name, sizeof name, "feed_forward%d.ffw_layer_1", which);
	bind_product(b, &f->up, FF_WIDE * hidden, hidden, i, name, bounded);
	snprintf(name, sizeof name, "feed_forward%d.ffw_layer_2", which);
	bind_product(b, &f->down, hidden, FF_WIDE * hidden, i, name, bounded);
}

static void bind_block(struct ear *e, struct binder *b, struct block *k, int i, bool bounded)
{
	const struct conformer *c = e->conformer;
	const float *scale;
	int h = e->hidden;

	bind_feed(b, &k->ff[0], h, i, 1, bounded);
	bind_feed(b, &k->ff[1], h, i, 2, bounded);
	k->pre_attn = bind_gain(b, h, i, "norm_pre_attn");
	k->post_attn = bind_gain(b, h, i, "norm_post_attn");
	k->out = bind_gain(b, h, i, "norm_out");
	bind_product(b, &k->q, h, h, i, "self_attn.q_proj", bounded);
	bind_product(b, &k->k, h, h, i, "self_attn.k_proj", bounded);
	bind_product(b, &k->v, h, h, i, "self_attn.v_proj", bounded);
	bind_product(b, &k->post, h, h, i, "self_attn.post", bounded);
	bind_weight(b, &k->relative.w, h, h, "audio_tower.layers.%d.self_attn.relative_k_proj", i);
	scale = bind_host(b, c->dim, "audio_tower.layers.%d.self_attn.per_dim_scale", i);
	k->pre_conv = bind_gain(b, h, i, "lconv1d.pre_layer_norm");
	k->conv_norm = bind_gain(b, h, i, "lconv1d.conv_norm");
	k->taps = bind_host(b, h * c->n_tap, "audio_tower.layers.%d.lconv1d.depthwise_conv1d.weight", i);
	bind_product(b, &k->start, 2 * h, h, i, "lconv1d.linear_start", bounded);
	bind_product(b, &k->end, h, h, i, "lconv1d.linear_end", bounded);
	if (b->code)
		return;
	k->q_scale = arena_alloc(&e->holder.arena, (size_t)c->dim * sizeof *k->q_scale);
	for (int d = 0; d < c->dim; d++)
		k->q_scale[d] = (float)(log1p(exp((double)scale[d])) / (log(2.0) * sqrt(c->dim)));
}

static void bind_conv(struct ear *e, struct binder *b, int i)
{
	struct conformer *c = e->conformer;
	int from = i ? c->channels[i - 1] : 1;
	const struct tensor *t;
	char name[160];

	snprintf(name, sizeof name, "%saudio_tower.subsample_conv_projection.layer%d.conv.weight", b->prefix, i);
	t = store_find(b->st, name);
	c->conv_last[i] = t && t->n_dim == 4 && t->dim[3] == from && t->dim[1] != from;
	bind_flat(b, &c->conv[i].w, c->channels[i], KERNEL * KERNEL * from,
	          "audio_tower.subsample_conv_projection.layer%d.conv", i);
	c->conv_gain[i] = bind_host(b, c->channels[i], "audio_tower.subsample_conv_projection.layer%d.norm.weight", i);
}

/* Bands that the convolutions leave of a row. */
enum { BANDS_LEFT = MEL_BANDS / 4 };

static void read_config(struct ear *e, struct conf *c)
{
	struct conformer *f = e->conformer;
	const struct json *channels = conf_get(c, "subsampling_conv_channels");
	int64_t n[CONVS] = { 128, 32 };
	int left = conf_int_or(c, "attention_context_left", 13, 2, 4096);

	e->depth = conf_int(c, "num_hidden_layers", 1, CONF_LAYERS_MAX);
	e->hidden = conf_int(c, "hidden_size", 1, CONF_DIM_MAX / (2 * FF_WIDE));
	f->heads = conf_int(c, "num_attention_heads", 1, CONF_HEADS_MAX);
	f->n_tap = conf_int_or(c, "conv_kernel_size", 5, 1, TAPS_MAX);
	f->cap = (float)conf_double_or(c, "attention_logit_cap", 50);
	f->residual = (float)conf_double_or(c, "residual_weight", 0.5);
	f->keys = left - 1; /* a row itself, and those before it */
	if (conf_int_or(c, "attention_context_right", 0, 0, 4096))
		conf_fail(c, E_UNSUPPORTED, "attention_context_right: rows that hear what follows are not done");
	if (strcmp(conf_str_or(c, "hidden_act", "silu"), "silu"))
		conf_fail(c, E_UNSUPPORTED, "hidden_act: silu alone is done");
	for (size_t i = 0; channels && i < CONVS && !c->code; i++)
		if (json_len(channels) != CONVS || json_to_int(json_at(channels, i), &n[i]) || n[i] < 1 || n[i] > 4096)
			conf_fail(c, E_FORMAT, "subsampling_conv_channels: is not a list of two numbers of channels");
	for (int i = 0; i < CONVS; i++)
		f->channels[i] = (int)n[i];
	if (!c->code && (e->hidden % f->heads || e->hidden % 2 || e->hidden < 4))
		conf_fail(c, E_FORMAT, "hidden_size: %d, with %d heads", e->hidden, f->heads);
	if (!c->code && !(f->cap > 0))
		conf_fail(c, E_FORMAT, "attention_logit_cap: %g is not above 0", (double)f->cap);
}

static void bind(struct ear *e, struct binder *b, struct conf *c)
{
	struct conformer *f = e->conformer = arena_zalloc(&e->holder.arena, sizeof *f);
	bool bounded = conf_bool_or(c, "use_clipped_linears", true);
	int wide;

	read_config(e, c);
	wide = conf_int(c, "output_proj_dims", 1, CONF_DIM_MAX);
	if (c->code)
		return;
	mel_init(&f->mel);
	e->frame = 4 * MEL_HOP;
	e->seconds_max = 30;
	e->projection.w.cols = wide;
	f->dim = e->hidden / f->heads;
	for (int i = 0; i < CONVS; i++)
		bind_conv(e, b, i);
	bind_weight(b, &f->input.w, e->hidden, BANDS_LEFT * f->channels[1],
	            "audio_tower.subsample_conv_projection.input_proj_linear");
	f->block = arena_zalloc(&e->holder.arena, size_mul((size_t)e->depth, sizeof *f->block));
	for (int i = 0; i < e->depth && !b->code; i++)
		bind_block(e, b, &f->block[i], i, bounded);
	bind_weight(b, &f->output.w, wide, e->hidden, "audio_tower.output_proj");
	f->output.bias = bind_floats(b, wide, 0, "audio_tower.output_proj.bias");
}

static int rows(const struct ear *e, int samples)
{
	return (mel_frames(samples) + 3) / 4;
}

/* ---- a run ---- */

struct run {
	struct ear *e;
	struct conformer *c;
	struct ear_desk desk;
	const float *samples;
	int n, frames, rows;
	float *vectors;
	float *mel;          /* [frames][MEL_BANDS] */
	float *x;            /* [rows][hidden] */
	float *k, *v, *mix;  /* [rows][hidden] of the block at work: keys, values, inputs of the convolution */
	float *far;          /* [keys][hidden] of the block at work: keys by distance */
	float *a, *b, *wide; /* of a unit: [UNIT][hidden] each, and the widest of what is between two products */
	float *points, *cols;
	int stage; /* -1: mel; 0: convolutions; then blocks from 1 on; then the projection */
	int next;  /* frame or row */
};

/* Rows of the first convolution's output that a unit's rows need, and points of them. */
enum { MIDDLE_ROWS = 2 * UNIT + 1, MIDDLE_BANDS = MEL_BANDS / 2 };

static void end(void *run)
{
	struct run *r = run;

	desk_close(&r->desk);
	free(r->mel);
	free(r->x);
	free(r->k);
	free(r->v);
	free(r->mix);
	free(r->far);
	free(r->a);
	free(r->b);
	free(r->wide);
	free(r->points);
	free(r->cols);
	free(r);
}

/* Floats of a unit's columns before, and points behind, each convolution. */
static size_t cols_most(const struct conformer *c)
{
	size_t first = (size_t)MIDDLE_ROWS * MIDDLE_BANDS * KERNEL * KERNEL;
	size_t second = (size_t)UNIT * BANDS_LEFT * KERNEL * KERNEL * (size_t)c->channels[0];
	size_t joined = (size_t)UNIT * BANDS_LEFT * (size_t)c->channels[1];

	return work_max(work_max(first, second), joined);
}
static size_t points_most(const struct conformer *c)
{
	return work_max((size_t)MIDDLE_ROWS * MIDDLE_BANDS * (size_t)c->channels[0],
	                (size_t)UNIT * BANDS_LEFT * (size_t)c->channels[1]);
}

static float *floats(size_t n)
{
	return xcalloc(n, sizeof(float));
}

static void *begin(struct ear *e, const float *samples, int n, int n_row, float *vectors, struct err *err)
{
	const struct conformer *c = e->conformer;
	size_t h = (size_t)e->hidden, all = (size_t)n_row * h;
	size_t unit = work_max(UNIT, (size_t)c->keys) * work_max(FF_WIDE * h, (size_t)c->output.w.rows);
	struct run *r = xcalloc(1, sizeof *r);

	*r = (struct run){ .e = e, .c = e->conformer, .samples = samples, .n = n, .rows = n_row, .vectors = vectors };
	if (desk_open(&r->desk, e, work_max(unit, cols_most(c)),
	              work_max(work_max(unit, points_most(c)), UNIT * (size_t)e->out), err)) {
		free(r);
		return NULL;
	}
	r->frames = mel_frames(n);
	r->mel = floats((size_t)r->frames * MEL_BANDS);
	r->x = floats(all);
	r->k = floats(all);
	r->v = floats(all);
	r->mix = floats(all);
	r->far = floats((size_t)c->keys * h);
	r->a = floats(unit);
	r->b = floats(unit);
	r->wide = floats(unit);
	r->points = floats(points_most(c));
	r->cols = floats(cols_most(c));
	r->stage = -1;
	return r;
}

/* ---- convolutions ---- */

/* x[n][cols] less its mean, by the root of its mean of squares, times gain; then max(x, 0). */
static void norm_points(float *x, int n, int cols, const float *gain, float eps)
{
	for (int r = 0; r < n; r++, x += cols) {
		double mean = 0, sum = 0, by;

		for (int i = 0; i < cols; i++)
			mean += (double)x[i];
		mean /= cols;
		for (int i = 0; i < cols; i++)
			sum += ((double)x[i] - mean) * ((double)x[i] - mean);
		by = 1 / sqrt(sum / cols + (double)eps);
		for (int i = 0; i < cols; i++)
			x[i] = fmaxf((float)(((double)x[i] - mean) * by) * gain[i], 0);
	}
}

/* Rows [first, first + there) of a picture at x: [there][bands][channels]; those around them count as zeros. */
struct grid {
	const float *x;
	int first, there, bands, channels;
};

/* The inputs of output rows [at, at + n), each of bands / 2 points. */
static void gather(float *out, const struct grid *g, int at, int n, bool channels_last)
{
	for (int t = at; t < at + n; t++)
		for (int f = 0; f < g->bands / 2; f++, out += KERNEL * KERNEL * g->channels)
			for (int k = 0; k < KERNEL * KERNEL; k++) {
				int y = 2 * t - 1 + k / KERNEL, z = 2 * f - 1 + k % KERNEL;
				bool in = y >= g->first && y < g->first + g->there && z >= 0 && z < g->bands;
				size_t point = in ? (size_t)(y - g->first) * (size_t)g->bands + (size_t)z : 0;
				const float *x = g->x + point * (size_t)g->channels;

				for (int c = 0; c < g->channels; c++)
					out[channels_last ? k * g->channels + c : c * KERNEL * KERNEL + k] = in ? x[c] :
					                                                                          0;
			}
}

/* Output rows [at, at + n) of convolution i. */
static int convolve(struct run *r, int i, const struct grid *g, int at, int n, float *out, struct err *err)
{
	const struct conformer *c = r->c;
	int points = n * g->bands / 2, rc;

	gather(r->cols, g, at, n, c->conv_last[i]);
	rc = desk_product(&r->desk, &c->conv[i], r->cols, out, points, err);
	norm_points(out, rc ? 0 : points, c->channels[i], c->conv_gain[i], r->e->eps);
	return rc;
}

/* Rows [first, first + n) before the blocks. */
static int subsample(struct run *r, int first, int n, struct err *err)
{
	struct conformer *c = r->c;
	int half = (r->frames + 1) / 2, from = 2 * first - 1 > 0 ? 2 * first - 1 : 0;
	int to = 2 * (first + n) < half ? 2 * (first + n) : half;
	struct grid mel = { r->mel, 0, r->frames, MEL_BANDS, 1 };
	struct grid middle = { r->points, from, to - from, MIDDLE_BANDS, c->channels[0] };
	int rc = convolve(r, 0, &mel, from, to - from, r->points, err);
	float *flat;

	if (rc)
		return rc;
	flat = floats((size_t)n * BANDS_LEFT * (size_t)c->channels[1]);
	rc = convolve(r, 1, &middle, first, n, flat, err);
	if (!rc)
		rc = desk_product(&r->desk, &c->input, flat, r->x + (size_t)first * (size_t)r->e->hidden, n, err);
	free(flat);
	return rc;
}

/* ---- blocks ---- */

static float sigmoid(float x)
{
	return 1 / (1 + expf(-x));
}

static void silu(float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] *= sigmoid(x[i]);
}

static void add(float *x, const float *y, size_t n, float by)
{
	for (size_t i = 0; i < n; i++)
		x[i] += by * y[i];
}

static int feed(struct run *r, const struct feed *f, float *x, int n, struct err *err)
{
	int h = r->e->hidden, rc;

	ear_norm(r->a, x, n, h, f->before, r->e->eps);
	if ((rc = desk_product(&r->desk, &f->up, r->a, r->wide, n, err)))
		return rc;
	silu(r->wide, (size_t)n * FF_WIDE * (size_t)h);
	if ((rc = desk_product(&r->desk, &f->down, r->wide, r->a, n, err)))
		return rc;
	ear_norm(r->a, r->a, n, h, f->after, r->e->eps);
	add(x, r->a, (size_t)n * (size_t)h, r->c->residual);
	return 0;
}

/* Keys by distance: the projection of sines and cosines. */
static int distances(struct run *r, const struct block *b, struct err *err)
{
	int h = r->e->hidden, half = h / 2;

	for (int d = 0; d < r->c->keys; d++)
		for (int i = 0; i < half; i++) {
			double angle = d * exp(-i * log(10000.0) / (half - 1));

			r->a[d * h + i] = (float)sin(angle);
			r->a[d * h + half + i] = (float)cos(angle);
		}
	return desk_product(&r->desk, &b->relative, r->a, r->far, r->c->keys, err);
}

/* One head of one row: out[dim] = the mean of values by weights. */
static void attend(const struct run *r, float *out, const float *q, int row, size_t head)
{
	const struct conformer *c = r->c;
	int first = row - c->keys + 1 > 0 ? row - c->keys + 1 : 0, n = row - first + 1;
	size_t h = (size_t)r->e->hidden;
	double sum = 0, high = -HUGE_VAL, s[4096];

	for (int i = 0; i < n; i++) {
		const float *k = r->k + (size_t)(first + i) * h + head,
			    *far = r->far + (size_t)(row - first - i) * h + head;
		double dot = 0;

		for (int d = 0; d < c->dim; d++)
			dot += (double)q[d] * ((double)k[d] + (double)far[d]);
		s[i] = (double)c->cap * tanh(dot / (double)c->cap);
		high = fmax(high, s[i]);
	}
	memset(out, 0, (size_t)c->dim * sizeof *out);
	for (int i = 0; i < n; i++)
		sum += s[i] = exp(s[i] - high);
	for (int i = 0; i < n; i++) {
		const float *v = r->v + (size_t)(first + i) * h + head;

		for (int d = 0; d < c->dim; d++)
			out[d] += (float)(s[i] / sum) * v[d];
	}
}

static int attention(struct run *r, const struct block *b, float *x, int first, int n, struct err *err)
{
	const struct conformer *c = r->c;
	size_t h = (size_t)r->e->hidden, at = (size_t)first * h;
	float by = (float)(log1p(exp(1.0)) / log(2.0));
	int rc = first ? 0 : distances(r, b, err);

	ear_norm(r->a, x, n, (int)h, b->pre_attn, r->e->eps);
	if (rc || (rc = desk_product(&r->desk, &b->q, r->a, r->b, n, err)) ||
	    (rc = desk_product(&r->desk, &b->k, r->a, r->k + at, n, err)) ||
	    (rc = desk_product(&r->desk, &b->v, r->a, r->v + at, n, err)))
		return rc;
	for (size_t i = 0; i < (size_t)n * h; i++) {
		r->b[i] *= b->q_scale[i % (size_t)c->dim];
		r->k[at + i] *= by;
	}
	for (int i = 0; i < n; i++)
		for (size_t head = 0; head < h; head += (size_t)c->dim)
			attend(r, r->a + (size_t)i * h + head, r->b + (size_t)i * h + head, first + i, head);
	if ((rc = desk_product(&r->desk, &b->post, r->a, r->b, n, err)))
		return rc;
	ear_norm(r->b, r->b, n, (int)h, b->post_attn, r->e->eps);
	add(x, r->b, (size_t)n * h, 1);
	return 0;
}

static int convolution(struct run *r, const struct block *b, float *x, int first, int n, struct err *err)
{
	int h = r->e->hidden, taps = r->c->n_tap, rc;
	float *mix = r->mix + (size_t)first * (size_t)h;

	ear_norm(r->a, x, n, h, b->pre_conv, r->e->eps);
	if ((rc = desk_product(&r->desk, &b->start, r->a, r->wide, n, err)))
		return rc;
	for (int i = 0; i < n; i++)
		for (int k = 0; k < h; k++)
			mix[i * h + k] = r->wide[2 * i * h + k] * sigmoid(r->wide[(2 * i + 1) * h + k]);
	for (int i = 0; i < n; i++)
		for (int k = 0; k < h; k++) {
			float sum = 0;

			for (int j = 0; j < taps; j++)
				if (first + i - (taps - 1) + j >= 0)
					sum += b->taps[k * taps + j] * mix[(i - (taps - 1) + j) * h + k];
			r->a[i * h + k] = sum;
		}
	ear_norm(r->a, r->a, n, h, b->conv_norm, r->e->eps);
	silu(r->a, (size_t)n * (size_t)h);
	if ((rc = desk_product(&r->desk, &b->end, r->a, r->b, n, err)))
		return rc;
	add(x, r->b, (size_t)n * (size_t)h, 1);
	return 0;
}

static int run_block(struct run *r, const struct block *b, int first, int n, struct err *err)
{
	float *x = r->x + (size_t)first * (size_t)r->e->hidden;
	int rc;

	if ((rc = feed(r, &b->ff[0], x, n, err)) || (rc = attention(r, b, x, first, n, err)) ||
	    (rc = convolution(r, b, x, first, n, err)) || (rc = feed(r, &b->ff[1], x, n, err)))
		return rc;
	ear_norm(x, x, n, r->e->hidden, b->out, r->e->eps);
	return 0;
}

static int project(struct run *r, int first, int n, struct err *err)
{
	const struct ear *e = r->e;
	int rc = desk_product(&r->desk, &r->c->output, r->x + (size_t)first * (size_t)e->hidden, r->wide, n, err);

	if (rc)
		return rc;
	ear_norm(r->wide, r->wide, n, r->c->output.w.rows, NULL, e->eps);
	return desk_product(&r->desk, &e->projection, r->wide, r->vectors + (size_t)first * (size_t)e->out, n, err);
}

/* The next unit of the stage, and with its last one the next stage. */
static int unit(struct run *r, struct err *err)
{
	int all = r->stage < 0 ? r->frames : r->rows, n = all - r->next, rc = 0;

	n = n < UNIT ? n : UNIT;
	if (r->stage < 0)
		for (int i = r->next; i < r->next + n; i++)
			mel_frame(&r->c->mel, r->mel + (size_t)i * MEL_BANDS, r->samples, r->n, i);
	else if (r->stage == 0)
		rc = subsample(r, r->next, n, err);
	else if (r->stage <= r->e->depth)
		rc = run_block(r, &r->c->block[r->stage - 1], r->next, n, err);
	else
		rc = project(r, r->next, n, err);
	r->next += n;
	if (r->next == all) {
		r->stage++;
		r->next = 0;
	}
	return rc;
}

static int step(void *run, int64_t ns, struct err *err)
{
	struct run *r = run;
	int64_t until = clock_monotonic_ns() + ns;
	int rc;

	do
		rc = unit(r, err);
	while (!rc && r->stage <= r->e->depth + 1 && clock_monotonic_ns() < until);
	return rc ? rc : r->stage <= r->e->depth + 1;
}

const struct ear_family ear_conformer = { "gemma4_audio",
	                                  "gemma4_audio",
	                                  "audio_tower.subsample_conv_projection.input_proj_linear.weight",
	                                  bind,
	                                  rows,
	                                  begin,
	                                  step,
	                                  end };
