/* rotary.c - see rotary.h.
 *
 * Frequencies are computed in double and rounded once; the angle itself is a
 * float product in the backend, as everywhere else. */
#include "model/rotary.h"

#include <math.h>
#include <string.h>

struct scaling {
	struct conf *c;   /* reads rope_parameters or rope_scaling */
	struct conf *all; /* reads what they are in */
	double theta;
	int dims, ctx; /* rotating dims; max_position_embeddings */
	int *ctx_max;
};

static double positive(struct conf *c, const char *key, double v)
{
	if (!(v > 0) || !isfinite(v)) {
		conf_fail(c, E_FORMAT, "%s: %g is not a positive number", key, v);
		return 1;
	}
	return v;
}

static int original_ctx(struct scaling *s, int dflt)
{
	return conf_int_or(s->c, "original_max_position_embeddings", dflt, 1, CONF_CTX_MAX);
}

static void scale_linear(struct scaling *s, double *f, int n)
{
	double factor = positive(s->c, "factor", conf_double(s->c, "factor"));

	for (int i = 0; i < n; i++)
		f[i] /= factor;
}

/* Llama 3.1: long waves slowed by factor, short ones kept, a ramp between. */
static void scale_llama3(struct scaling *s, double *f, int n)
{
	double factor = positive(s->c, "factor", conf_double(s->c, "factor"));
	double low = positive(s->c, "low_freq_factor", conf_double(s->c, "low_freq_factor"));
	double high = positive(s->c, "high_freq_factor", conf_double(s->c, "high_freq_factor"));
	double ctx = original_ctx(s, 8192);

	if (high < low) {
		conf_fail(s->c, E_FORMAT, "high_freq_factor %g is below low_freq_factor %g", high, low);
		return;
	}
	for (int i = 0; i < n; i++) {
		double wave = 2 * M_PI / f[i], t = (ctx / wave - low) / (high - low);

		if (wave > ctx / low)
			f[i] /= factor;
		else if (high > low && wave >= ctx / high)
			f[i] *= (1 - t) / factor + t;
	}
}

/* YaRN (arXiv 2309.00071, 3.2 and 3.4). */
static double yarn_dim(double turns, const struct scaling *s, double ctx)
{
	return s->dims * log(ctx / (turns * 2 * M_PI)) / (2 * log(s->theta));
}

static double yarn_gain(double factor, double a)
{
	return factor > 1 ? 0.1 * a * log(factor) + 1 : 1;
}

static double scale_yarn(struct scaling *s, double *f, int n)
{
	double factor = positive(s->c, "factor", conf_double(s->c, "factor"));
	double ctx = original_ctx(s, s->ctx);
	double lo = yarn_dim(positive(s->c, "beta_fast", conf_double_or(s->c, "beta_fast", 32)), s, ctx);
	double hi = yarn_dim(positive(s->c, "beta_slow", conf_double_or(s->c, "beta_slow", 1)), s, ctx);
	double mscale = conf_double_or(s->c, "mscale", 0), all = conf_double_or(s->c, "mscale_all_dim", 0);

	if (conf_bool_or(s->c, "truncate", true)) {
		lo = floor(lo);
		hi = ceil(hi);
	}
	lo = lo < 0 ? 0 : lo;
	hi = hi > s->dims - 1 ? s->dims - 1 : hi;
	if (lo == hi)
		hi += 0.001; /* as the reference does, against division by zero */
	for (int i = 0; i < n; i++) {
		double t = (i - lo) / (hi - lo);

		t = t < 0 ? 0 : t > 1 ? 1 : t;
		f[i] = f[i] * (1 - t) + f[i] / factor * t;
	}
	if (ctx * factor > *s->ctx_max && ctx * factor <= CONF_CTX_MAX)
		*s->ctx_max = (int)(ctx * factor);
	if (conf_get(s->c, "attention_factor"))
		return positive(s->c, "attention_factor", conf_double(s->c, "attention_factor"));
	if (mscale != 0 && all != 0)
		return yarn_gain(factor, mscale) / yarn_gain(factor, all);
	return yarn_gain(factor, 1);
}

/* What cos and sin are multiplied with. */
static double longrope_gain(struct scaling *s, double ctx)
{
	double factor = s->ctx / ctx, of_short, of_long;

	if (conf_get(s->c, "short_mscale") || conf_get(s->c, "long_mscale")) {
		of_short = positive(s->c, "short_mscale", conf_double(s->c, "short_mscale"));
		of_long = positive(s->c, "long_mscale", conf_double(s->c, "long_mscale"));
		if (of_short != of_long)
			conf_fail(s->c, E_UNSUPPORTED,
			          "long_mscale: %g, and short_mscale is %g; done where they are one", of_long,
			          of_short);
		return of_short;
	}
	if (conf_get(s->c, "attention_factor"))
		return positive(s->c, "attention_factor", conf_double(s->c, "attention_factor"));
	return factor > 1 && ctx > 1 ? sqrt(1 + log(factor) / log(ctx)) : 1;
}

static void divide(struct scaling *s, const char *key, double *f, int n)
{
	const struct json *list = conf_list(s->c, key);
	double by = 1;

	if (!s->c->code && !list)
		conf_fail(s->c, E_MISSING, "%s: missing", key);
	if (!s->c->code && json_len(list) != (size_t)n)
		conf_fail(s->c, E_FORMAT, "%s: has %zu entries for %d frequencies", key, json_len(list), n);
	for (int i = 0; i < n && !s->c->code; i++) {
		if (json_to_double(json_at(list, (size_t)i), &by))
			conf_fail(s->c, E_FORMAT, "%s: entry %d is %.40s, not a number", key, i,
			          conf_entry(json_at(list, (size_t)i)));
		f[i] /= positive(s->c, key, by);
	}
}

/* LongRoPE (arXiv 2402.13753): a divisor for each frequency, of which there is a list for long sequences and one for short
 * ones; where both are the same, lengths have no say. */
static double scale_divided(struct scaling *s, double *f, int n, struct rotary_lengths *lengths, struct arena *a)
{
	double longer[CONF_HEAD_DIM_MAX / 2];
	int most = conf_int_or(s->all, "original_max_position_embeddings", s->ctx, 1, CONF_CTX_MAX);
	int ctx = original_ctx(s, most);
	float *far;

	memcpy(longer, f, (size_t)n * sizeof *longer);
	divide(s, "short_factor", f, n);
	divide(s, "long_factor", longer, n);
	if (s->c->code || !memcmp(longer, f, (size_t)n * sizeof *longer))
		return longrope_gain(s, ctx);
	if (!lengths) {
		conf_fail(
			s->c, E_UNSUPPORTED,
			"rope_type \"longrope\" whose long_factor and short_factor differ is not done for this family");
		return 1;
	}
	far = arena_alloc(a, (size_t)n * sizeof *far);
	for (int i = 0; i < n; i++)
		far[i] = (float)longer[i];
	*lengths = (struct rotary_lengths){ .longer = far, .n = n, .ctx = ctx };
	return longrope_gain(s, ctx);
}

/* Hunyuan's alpha is a factor of the base for all lengths.  Without one the base changes beyond max_position_embeddings
 * alone, where no sequence of a server goes. */
static double dynamic_base(struct scaling *s)
{
	if (!conf_get(s->c, "alpha") || s->dims <= 2)
		return 1;
	return pow(positive(s->c, "alpha", conf_double(s->c, "alpha")), (double)s->dims / (s->dims - 2));
}

/* Multimodal rotary positions: mrope_section says how many frequencies turn by time, height and width, one after the
 * other, or, interleaved, height as i mod 3 = 1 and width as i mod 3 = 2 within their sections and time elsewhere
 * (Qwen2-VL, arXiv 2409.12191; interleaved: Qwen3-VL). */
static const uint8_t *read_axes(struct conf *c, int n, struct arena *a)
{
	const struct json *list = conf_get(c, "mrope_section");
	bool mixed = conf_bool_or(c, "mrope_interleaved", false);
	int64_t size[3] = { 0 };
	uint8_t *axis;

	if (!list)
		return NULL;
	for (size_t i = 0; i < 3; i++)
		if (json_len(list) != 3 || json_to_int(json_at(list, i), &size[i]) || size[i] < 0 || size[i] > n) {
			conf_fail(c, E_FORMAT, "mrope_section: is not three numbers of 0 to %d", n);
			return NULL;
		}
	if (size[0] + size[1] + size[2] != n) {
		conf_fail(c, E_FORMAT, "mrope_section: %d and %d and %d are not the %d frequencies there are",
		          (int)size[0], (int)size[1], (int)size[2], n);
		return NULL;
	}
	axis = arena_alloc(a, (size_t)n);
	for (int i = 0; i < n; i++)
		if (mixed)
			axis[i] = (uint8_t)(i % 3 && i < 3 * size[i % 3] ? i % 3 : 0);
		else
			axis[i] = (uint8_t)((i >= size[0]) + (i >= size[0] + size[1]));
	return axis;
}

static void refuse(struct conf *c, const char *type)
{
	conf_fail(
		c, E_UNSUPPORTED,
		"rope_type \"%.40s\" is not known; known: default, linear, llama3, yarn, proportional, longrope, dynamic",
		type);
}

/* The part of the config that holds the scaling, as a conf of its own; *own: the part is for these layers alone. */
static struct conf scaling_part(struct conf *c, const struct rotary_defaults *d, const struct json **params, bool *own)
{
	const struct json *j = conf_get(c, "rope_parameters"), *of = d->kind ? json_get(j, d->kind) : NULL;
	struct conf r = *c;

	*own = json_kind(of) == JSON_OBJECT;
	j = *own ? of : j;
	*params = j;
	r.j = j ? j : conf_get(c, "rope_scaling");
	r.where = j ? "rope_parameters." : "rope_scaling.";
	if (r.j && json_kind(r.j) != JSON_OBJECT) {
		conf_fail(c, E_FORMAT, "%s: is %s, not an object", j ? "rope_parameters" : "rope_scaling",
		          json_kind_name(json_kind(r.j)));
		r.j = NULL;
	}
	return r;
}

static double read_theta(struct conf *c, struct conf *r, const struct rotary_defaults *d, bool own)
{
	const char *key = d->theta_key && !own ? d->theta_key : "rope_theta";
	double theta;

	if (!(d->theta_key && !own) && r->j && conf_get(r, "rope_theta"))
		theta = conf_double(r, "rope_theta");
	else
		theta = d->theta > 0 ? conf_double_or(c, key, d->theta) : conf_double(c, key);
	if (!c->code && !(theta > 1 && isfinite(theta)))
		conf_fail(c, E_FORMAT, "%s: %g is not above 1", key, theta);
	return theta;
}

void rotary_read(struct rope *out, struct conf *c, const struct rotary_defaults *d, int dim, int *ctx_max,
                 struct arena *a)
{
	rotary_read_lengths(out, NULL, c, d, dim, ctx_max, a);
}

void rotary_read_lengths(struct rope *out, struct rotary_lengths *lengths, struct conf *c,
                         const struct rotary_defaults *d, int dim, int *ctx_max, struct arena *a)
{
	const struct json *params;
	bool own;
	struct conf r = scaling_part(c, d, &params, &own);
	const char *said = conf_str_or(&r, "rope_type", conf_str_or(&r, "type", "default"));
	const char *type = d->unscaled && !own ? "default" : said;
	bool whole = !strcmp(type,
	                     "proportional"); /* frequencies are those of the whole head, of which the first rotate */
	double partial = d->whole ? 1 :
	                            conf_double_or(&r, "partial_rotary_factor",
	                                           conf_double_or(c, "partial_rotary_factor", d->partial));
	double f[CONF_HEAD_DIM_MAX / 2], gain = 1;
	struct scaling s = { .c = &r, .all = c, .ctx = *ctx_max, .ctx_max = ctx_max };
	float *freq;

	if (dim < 2 || dim > CONF_HEAD_DIM_MAX)
		conf_fail(c, E_FORMAT, "a head of %d dims; rotary embeddings are of 2 to %d", dim, CONF_HEAD_DIM_MAX);
	s.dims = partial > 0 && partial <= 1 ? (int)(dim * partial) : 0;
	s.theta = d->given > 0 ? d->given : read_theta(c, &r, d, own);
	if (!c->code && (s.dims < 2 || s.dims % 2))
		conf_fail(c, E_FORMAT, "partial_rotary_factor: %g of %d dims is not a positive even number of dims",
		          partial, dim);
	if (c->code || r.code)
		goto out;
	if (!strcmp(type, "dynamic"))
		s.theta *= dynamic_base(&s);
	for (int i = 0; i < s.dims / 2; i++)
		f[i] = pow(s.theta, -2.0 * i / (whole ? dim : s.dims));
	if (!strcmp(type, "linear") || (whole && conf_get(&r, "factor")))
		scale_linear(&s, f, s.dims / 2);
	else if (!strcmp(type, "llama3"))
		scale_llama3(&s, f, s.dims / 2);
	else if (!strcmp(type, "yarn"))
		gain = scale_yarn(&s, f, s.dims / 2);
	else if (!strcmp(type, "longrope") || !strcmp(type, "su"))
		gain = scale_divided(&s, f, s.dims / 2, lengths, a);
	else if (!whole && strcmp(type, "default") && strcmp(type, "dynamic") &&
	         strcmp(type, "mrope")) /* mrope of text is plain */
		refuse(&r, type);
	freq = arena_alloc(a, sizeof *freq * (size_t)(s.dims / 2));
	for (int i = 0; i < s.dims / 2; i++)
		freq[i] = (float)f[i];
	if (lengths)
		lengths->freq = freq;
	*out = (struct rope){ freq, s.dims / 2, (float)gain, .apart = whole ? dim / 2 : 0 };
	out->axis = read_axes(&r, s.dims / 2, a);
out:
	if (!c->code)
		c->code = r.code;
}
