/* formats.c - the list of weight formats; describing a matrix. */
#include <string.h>

#include "quant/coded/coded.h"
#include "quant/format_list.h"
#include "quant/lanes/lane_table.h"
#include "quant/level_fill.h"

#define ENTRY(name) &format_##name,
const struct format *const formats[] = { QUANT_FORMATS(ENTRY) GGUF_TYPES(ENTRY) NULL };

const struct format *format_find(const char *name)
{
	for (int i = 0; formats[i]; i++)
		if (!strcmp(formats[i]->name, name))
			return formats[i];
	return NULL;
}

size_t weight_scratch_bytes(const struct weight *w)
{
	size_t most = lane_scratch(w), more = w->fmt->coding ? coded_scratch(w) : 0;

	if (w->fmt->pairs)
		more = level_bf16_scratch(w);
	return ((most > more ? most : more) + 63) / 64 * 64;
}

static int check_bytes(const char *name, const char *what, size_t have, size_t rows, size_t row_bytes, struct err *err)
{
	size_t want;

	if (__builtin_mul_overflow(rows, row_bytes, &want) || have != want)
		return err_set(err, E_FORMAT, "%s: %s has %zu bytes, %zu rows of %zu are wanted", name, what, have,
		               rows, row_bytes);
	return 0;
}

int weight_plain(struct weight *w, const char *name, enum dtype t, int rows, int cols, const void *data, size_t bytes,
                 struct err *err)
{
	const struct format *fmt = t == DT_F32  ? &format_f32 :
	                           t == DT_F16  ? &format_f16 :
	                           t == DT_BF16 ? &format_bf16 :
	                                          NULL;
	size_t row_bytes;

	if (!fmt)
		return err_set(err, E_UNSUPPORTED, "%s: weights of type %s; F32, F16 and BF16 are read", name,
		               dtype_name(t));
	if (rows < 1 || cols < 1)
		return err_set(err, E_FORMAT, "%s: shape %d x %d", name, rows, cols);
	row_bytes = (size_t)cols * (size_t)dtype_size(t);
	*w = (struct weight){
		.fmt = fmt, .name = name, .rows = rows, .cols = cols, .data = data, .row_bytes = row_bytes
	};
	return check_bytes(name, "weight", bytes, (size_t)rows, row_bytes, err);
}

static const struct mode {
	const char *mode;
	int bits, group;
	const struct format *fmt;
	enum dtype scale;
} modes[] = {
	/* group 0: any; scale DT_COUNT: F16, BF16 or F32 */
	{ "affine", 1, 0, &format_affine1, DT_COUNT }, { "affine", 2, 0, &format_affine2, DT_COUNT },
	{ "affine", 3, 0, &format_affine3, DT_COUNT }, { "affine", 4, 0, &format_affine4, DT_COUNT },
	{ "affine", 5, 0, &format_affine5, DT_COUNT }, { "affine", 6, 0, &format_affine6, DT_COUNT },
	{ "affine", 8, 0, &format_affine8, DT_COUNT }, { "mxfp4", 4, 32, &format_mxfp4, DT_F8_E8M0 },
	{ "nvfp4", 4, 16, &format_nvfp4, DT_F8_E4M3 }, { "mxfp8", 8, 32, &format_mxfp8, DT_F8_E8M0 },
	{ "fp8", 8, 0, &format_fp8, DT_F32 },
};

static int check_scales(const struct mode *m, const char *name, const void *biases, enum dtype *t, struct err *err)
{
	if (m->scale == DT_COUNT) {
		if (*t != DT_F16 && *t != DT_BF16 && *t != DT_F32)
			return err_set(err, E_FORMAT, "%s: scales of type %s; affine has F16, BF16 or F32", name,
			               dtype_name(*t));
		if (!biases)
			return err_set(err, E_MISSING, "%s: affine without biases", name);
		return 0;
	}
	if (*t != DT_U8 && *t != m->scale)
		return err_set(err, E_FORMAT, "%s: scales of type %s; %s has U8", name, dtype_name(*t), m->mode);
	if (biases)
		return err_set(err, E_FORMAT, "%s: biases with mode %s, which has none", name, m->mode);
	*t = m->scale;
	return 0;
}

int weight_coded(struct weight *w, const char *name, const char *mode, int bits, int group, int rows, int cols,
                 const void *data, size_t data_bytes, const void *scales, size_t scale_bytes, const void *biases,
                 size_t bias_bytes, enum dtype scale_type, struct err *err)
{
	const struct mode *m = NULL;
	size_t row_bytes, scale_row;
	int rc;

	for (size_t i = 0; i < sizeof modes / sizeof *modes && !m; i++)
		if (!strcmp(modes[i].mode, mode) && modes[i].bits == bits)
			m = &modes[i];
	if (!m)
		return err_set(err, E_UNSUPPORTED, "%s: quantisation mode %s with %d bits", name, mode, bits);
	if (rows < 1 || cols < 1 || group < 1 || cols % group)
		return err_set(err, E_FORMAT, "%s: shape %d x %d in groups of %d", name, rows, cols, group);
	if (m->group && m->group != group)
		return err_set(err, E_UNSUPPORTED, "%s: %s in groups of %d; it has groups of %d", name, mode, group,
		               m->group);
	if ((int64_t)cols * bits % 8)
		return err_set(err, E_FORMAT, "%s: %d codes of %d bits do not end on a byte", name, cols, bits);
	rc = check_scales(m, name, biases, &scale_type, err);
	if (rc)
		return rc;
	row_bytes = (size_t)cols * (size_t)bits / 8;
	scale_row = (size_t)(cols / group) * (size_t)dtype_size(scale_type);
	*w = (struct weight){ .fmt = m->fmt,
		              .name = name,
		              .rows = rows,
		              .cols = cols,
		              .group = group,
		              .data = data,
		              .row_bytes = row_bytes,
		              .scales = scales,
		              .biases = biases,
		              .scale_type = scale_type };
	rc = check_bytes(name, "weight", data_bytes, (size_t)rows, row_bytes, err);
	if (!rc)
		rc = check_bytes(name, "scales", scale_bytes, (size_t)rows, scale_row, err);
	if (!rc && biases)
		rc = check_bytes(name, "biases", bias_bytes, (size_t)rows, scale_row, err);
	return rc;
}
