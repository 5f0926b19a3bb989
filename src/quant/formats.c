/* formats.c - the lists: weight formats, cache row formats; describing a matrix. */
#include <string.h>

#include "quant/gguf/gguf_list.h"
#include "quant/levels.h"

extern const struct format format_f32, format_f16, format_affine2, format_affine3, format_affine4, format_affine5,
	format_affine6, format_affine8, format_mxfp4, format_nvfp4, format_mxfp8;
#define DECLARE(type) extern const struct format format_##type;
GGUF_TYPES(DECLARE)

const struct format *const formats[] = { &format_f32,           &format_f16,     &format_bf16,    &format_affine2,
	                                 &format_affine3,       &format_affine4, &format_affine5, &format_affine6,
	                                 &format_affine8,       &format_mxfp4,   &format_nvfp4,   &format_mxfp8,
#define ENTRY(type) &format_##type,
	                                 GGUF_TYPES(ENTRY) NULL };

const struct format *format_find(const char *name)
{
	for (int i = 0; formats[i]; i++)
		if (!strcmp(formats[i]->name, name))
			return formats[i];
	return NULL;
}

const struct lane_table *lane_table(enum cpu_level level)
{
#if defined(__x86_64__)
	if (level >= CPU_AVX512)
		return &lane_table_avx512;
	if (level >= CPU_AVX2)
		return &lane_table_avx2;
#endif
	return &lane_table_scalar;
}

size_t acts_tile_bytes(int cols, int group)
{
	return (size_t)ACTS_TILE * ((size_t)cols + (size_t)(cols / group) * 3 * sizeof(float));
}

acts_tile_fn *acts_tiler(enum cpu_level level)
{
#if defined(__x86_64__)
	if (level >= CPU_AMX)
		return acts_tile_amx;
#endif
	return NULL;
}

/* 16 rows, blocks of 32 inputs of 2 bytes */
size_t acts_pairs_bytes(int cols)
{
	return ((size_t)cols + 31) / 32 * 32 * ACTS_TILE * 2;
}

acts_tile_fn *acts_pairer(enum cpu_level level)
{
#if defined(__x86_64__)
	if (level >= CPU_AVX512BF16)
		return level >= CPU_AMX ? acts_pairs_amx : acts_pairs_avx512bf16;
#endif
	return NULL;
}

acts_quantise_fn *acts_quantiser(enum cpu_level level)
{
#if defined(__x86_64__)
	if (level >= CPU_AVX512)
		return acts_quantise_avx512;
#endif
	return lane_table(level)->quantise;
}

void vec_kernels(struct vec_kernels *k, enum cpu_level level)
{
	*k = lane_table(level)->vec;
}

void quant_peaks(struct peaks *p, enum cpu_level level)
{
	*p = (struct peaks){ .int8 = coded_peak_scalar, .f32 = lane_table(level)->peak };
#if defined(__x86_64__)
	if (level >= CPU_AVX2)
		p->int8 = coded_peak_avx2;
	if (level >= CPU_AVXVNNI && cpu_has_avxvnni())
		p->int8 = coded_peak_avxvnni;
	if (level >= CPU_AVX512)
		p->int8 = coded_peak_avx512;
	if (level >= CPU_AVX512BF16)
		p->bf16 = bf16_dot_slow() ? p->f32 : bf16_peak_avx512bf16;
	if (level >= CPU_AMX) {
		p->int8_vectors = p->int8;
		p->int8 = coded_peak_amx;
		p->bf16 = bf16_peak_amx;
	}
#endif
}

size_t weight_scratch_bytes(const struct weight *w)
{
	size_t cols = (size_t)w->cols, groups = w->group ? cols / (size_t)w->group : 0;
	/* Decoded rows and some of them packed, sums of these; scales and biases of four outputs as floats. */
	size_t decoded = (DECODE_ROWS * cols + PACKED_OUT * (cols + 16) + PACKED_ROWS * PACKED_OUT * 16 +
	                  8 * (groups + 16)) *
	                 sizeof(float);
	/* Codes of a panel, its scales and biases, sums in float. */
	size_t panel = PANEL_OUT * cols + (2 * groups + TILED_ROWS) * PANEL_OUT * sizeof(float);
	/* Scales and biases of 16 outputs, arranged rows, integer sums per 64 inputs. */
	size_t direct = 32 * groups * sizeof(float) + DIRECT_ROWS * (cols + 128) + DIRECT_ROWS * 256 * (cols / 64 + 2);
	/* Scales and biases of a panel, codes, sums in float, activations laid out here. */
	size_t tiled = 2 * PANEL_OUT * groups * sizeof(float) +
	               PANEL_OUT * (cols > TILED_INPUTS ? cols : TILED_INPUTS) +
	               (size_t)TILED_ROWS * PANEL_OUT * sizeof(float) +
	               (w->group ? TILED_HERE / ACTS_TILE * acts_tile_bytes(w->cols, w->group) : 0);
	/* Scales and biases of 16 outputs, sums in float, a panel, arranged rows. */
	size_t block = (32 * groups + 16 * BLOCK_ROWS) * sizeof(float) +
	               16 * (size_t)(w->group > PANEL_INPUTS ? w->group : PANEL_INPUTS) + BLOCK_ROWS * cols;
	/* A panel of codes, sums and scales and biases of 16 outputs, arranged rows with two numbers a
	 * group, half as many where they are int16. */
	size_t g64 = G64_PANEL + 16 * G64_ROWS * sizeof(float) + 32 * groups * sizeof(float) +
	             G64_ROWS * (cols + 2 * groups * sizeof(float));
	size_t most = decoded > panel ? decoded : panel;

	most = most > tiled ? most : tiled;
	most = most > g64 ? most : g64;
	most = w->group && block > most ? block : most;
#if defined(__x86_64__)
	/* Of one row: its codes, as int16 at most, two numbers a group, scales and biases of 16 outputs. */
	if (w->group && 2 * cols + 34 * groups * sizeof(float) + coded_one_scratch(w->cols) > most)
		most = 2 * cols + 34 * groups * sizeof(float) + coded_one_scratch(w->cols);
	if (!w->group && bf16_scratch_amx(w->cols) > most)
		most = bf16_scratch_amx(w->cols);
	if (!w->group && bf16_scratch_avx512bf16(w->cols) > most)
		most = bf16_scratch_avx512bf16(w->cols);
#endif
	return ((most > direct ? most : direct) + 63) / 64 * 64;
}

size_t weight_scale_bytes(const struct weight *w)
{
	return w->scales ? (size_t)(w->cols / w->group) * (size_t)dtype_size(w->scale_type) : 0;
}

struct weight weight_rows(const struct weight *w, int first, int n)
{
	struct weight r = *w;

	r.rows = n;
	r.data += (size_t)first * w->row_bytes;
	if (r.scales)
		r.scales += (size_t)first * weight_scale_bytes(w);
	if (r.biases)
		r.biases += (size_t)first * weight_scale_bytes(w);
	r.blocks_row += first;
	return r;
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
	{ "affine", 2, 0, &format_affine2, DT_COUNT }, { "affine", 3, 0, &format_affine3, DT_COUNT },
	{ "affine", 4, 0, &format_affine4, DT_COUNT }, { "affine", 5, 0, &format_affine5, DT_COUNT },
	{ "affine", 6, 0, &format_affine6, DT_COUNT }, { "affine", 8, 0, &format_affine8, DT_COUNT },
	{ "mxfp4", 4, 32, &format_mxfp4, DT_F8_E8M0 }, { "nvfp4", 4, 16, &format_nvfp4, DT_F8_E4M3 },
	{ "mxfp8", 8, 32, &format_mxfp8, DT_F8_E8M0 },
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
		return err_set(err, E_FORMAT, "%s: biases beside mode %s, which has none", name, m->mode);
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
