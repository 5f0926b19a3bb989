/* basis_file.c - see basis_file.h. */
#include "store/basis_file.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "prism.hadamard."
enum { BLOCK_MOST = 1 << 20, WIDTHS_MOST = 64, KEY_BYTES = 64 };
static const char document[] = "hadamard.json";

/* A document being read; the first failure stays. */
struct reader {
	struct store *st;
	const struct json *j;
	struct err *err;
	int code;
};

static void fail(struct reader *r, int code, const char *key, const char *what)
{
	if (!r->code)
		r->code = err_set(r->err, code, "%s: " PREFIX "%s: %s", store_place(r->st, document), key, what);
}

static const struct json *member(const struct reader *r, const char *key)
{
	char full[KEY_BYTES];

	snprintf(full, sizeof full, PREFIX "%s", key);
	return json_get(r->j, full);
}

static int64_t whole(struct reader *r, const char *key)
{
	int64_t v = 0;

	if (json_to_int(member(r, key), &v))
		fail(r, E_FORMAT, key, "missing, or not a whole number");
	return v;
}

static void expect(struct reader *r, const char *key, const char *value)
{
	const char *s = json_str(member(r, key), NULL);
	char what[160];

	snprintf(what, sizeof what, "is \"%.40s\", \"%s\" is read", s ? s : "", value);
	if (!s || strcmp(s, value))
		fail(r, E_UNSUPPORTED, key, what);
}

static const struct basis *of_width(const struct store *st, int64_t cols)
{
	for (int i = 0; i < st->n_basis; i++)
		if (st->basis[i].cols == cols)
			return &st->basis[i];
	return NULL;
}

/* One vector of signs for each width, one after the other. */
static void read_signs(struct reader *r)
{
	const struct json *widths = member(r, "sign_widths"), *values = member(r, "sign_values");
	struct store *st = r->st;
	size_t n = json_len(widths), at = 0;

	if (json_kind(widths) != JSON_ARRAY || !n || n > WIDTHS_MOST)
		fail(r, E_FORMAT, "sign_widths", "is not a list of 1 to 64 widths");
	for (size_t i = 0; i < n && !r->code; i++) {
		struct basis *b = &st->basis[st->n_basis];
		int64_t cols = 0;
		double v = 0;
		float *sign;

		if (json_to_int(json_at(widths, i), &cols) || cols < 1 || cols > INT_MAX || cols % st->basis_block ||
		    of_width(st, cols)) {
			fail(r, E_FORMAT, "sign_widths", "a width is not a multiple of block_size, or is there twice");
			return;
		}
		if (json_len(values) - at < (size_t)cols) {
			fail(r, E_FORMAT, "sign_values", "holds fewer numbers than sign_widths names");
			return;
		}
		sign = arena_alloc(&st->arena, (size_t)cols * sizeof *sign);
		for (int64_t k = 0; k < cols; k++) {
			if (json_to_double(json_at(values, at++), &v) || (v != 1 && v != -1)) {
				fail(r, E_FORMAT, "sign_values", "holds another number than 1 and -1");
				return;
			}
			sign[k] = (float)v;
		}
		*b = (struct basis){ .cols = (int)cols, .block = st->basis_block, .sign = sign };
		st->n_basis++;
	}
	if (!r->code && at != json_len(values))
		fail(r, E_FORMAT, "sign_values", "holds more numbers than sign_widths names");
}

/* Marks the tensors of the list.  Returns how many there are. */
static size_t mark(struct reader *r, const char *key, bool needed)
{
	const struct json *list = member(r, key);
	size_t n = json_len(list);
	char what[240];
	struct buf stem;

	if (json_kind(list) != JSON_ARRAY && (list || needed))
		fail(r, E_FORMAT, key, "is not a list of names");
	buf_init(&stem);
	for (size_t i = 0; i < n && !r->code; i++) {
		const char *name = json_str(json_at(list, i), NULL), *wrong = NULL;
		struct tensor *t = name ? store_find(r->st, name) : NULL;

		/* Others are read where no basis is looked for. */
		if (!t)
			wrong = "which the model does not have";
		else if (!tensor_stem(&stem, name, ".weight"))
			wrong = "which does not end in .weight";
		else if (t->rotated)
			wrong = "which is there twice";
		else
			t->rotated = true;
		snprintf(what, sizeof what, "names \"%.160s\", %s", name ? name : "", wrong ? wrong : "");
		if (wrong)
			fail(r, E_FORMAT, key, what);
	}
	buf_fini(&stem);
	return n;
}

static void read_version(struct reader *r)
{
	int64_t version = whole(r, "version");
	bool tied = false, grouped;

	if (!r->code && version != 1 && version != 2)
		fail(r, E_UNSUPPORTED, "version", "is none of 1 and 2");
	if (member(r, "tied_output") && json_to_bool(member(r, "tied_output"), &tied))
		fail(r, E_FORMAT, "tied_output", "is neither true nor false");
	if (member(r, "gdn_v_grouped") && json_to_bool(member(r, "gdn_v_grouped"), &grouped))
		fail(r, E_FORMAT, "gdn_v_grouped", "is neither true nor false");
	if (!r->code && tied != (version == 2))
		fail(r, E_FORMAT, "tied_output", "is true in version 2 alone, and there always");
}

static void read_document(struct reader *r)
{
	const char *mode;
	int64_t block;

	read_version(r);
	block = whole(r, "block_size");
	if (!r->code && (block < 1 || block > BLOCK_MOST || (block & (block - 1))))
		fail(r, E_FORMAT, "block_size", "is not a power of two from 1 to 1048576");
	expect(r, "transform", "normalized-sylvester-walsh-hadamard");
	expect(r, "axis", "input-last-dimension");
	if (r->code)
		return;
	r->st->basis_block = (int)block;
	r->st->basis = arena_zalloc(&r->st->arena, WIDTHS_MOST * sizeof *r->st->basis);
	mode = json_str(member(r, "sign_mode"), NULL);
	r->st->basis_signs = mode && !strcmp(mode, "explicit");
	if (r->st->basis_signs)
		read_signs(r);
	else if (!mode || strcmp(mode, "identity"))
		fail(r, E_UNSUPPORTED, "sign_mode", "is none of \"identity\" and \"explicit\"");
	if (!mark(r, "weight_names", true))
		fail(r, E_FORMAT, "weight_names", "names no tensor");
	mark(r, "inverse_weight_names", false);
}

int basis_read(struct store *st, struct err *err)
{
	struct reader r = { .st = st, .err = err };
	struct json *j = NULL;
	struct buf b;

	buf_init(&b);
	r.code = store_document(st, document, &b, err);
	if (r.code == E_MISSING) {
		r.code = 0;
		if (json_get(st->config, "hadamard_config"))
			r.code = err_set(err, E_MISSING, "%s: missing, and %s names it", store_place(st, document),
			                 st->config_path);
	} else if (!r.code) {
		r.j = j = json_parse(b.p, b.n, 0, err);
		if (j)
			read_document(&r);
		else
			r.code = err_prefix(err, "%s", store_place(st, document));
	}
	json_free(j);
	buf_fini(&b);
	return r.code;
}

/* A folder of mlx has the signs once more, next to each matrix. */
static int check_signs(struct store *st, const struct tensor *t, const struct basis *b, struct err *err)
{
	struct buf path;
	struct tensor *s;
	int code;

	buf_init(&path);
	s = tensor_stem(&path, t->name, ".weight") ? store_part(st, path.p, ".signs") : NULL;
	buf_fini(&path);
	if (!s)
		return 0;
	if (s->format || s->type != DT_F32 || s->count != b->cols)
		return err_set(err, E_FORMAT, "%s: tensor %s: is not a vector of %d numbers in F32", s->file, s->name,
		               b->cols);
	if ((code = store_data(st, s, err)))
		return code;
	s->used++;
	for (int i = 0; i < b->cols; i++) {
		float v;

		memcpy(&v, s->data + (size_t)i * sizeof v, sizeof v);
		if (v != (b->sign ? b->sign[i] : 1.0f))
			return err_set(err, E_FORMAT, "%s: tensor %s: sign %d is another than in %s", s->file, s->name,
			               i, store_place(st, document));
	}
	return 0;
}

int basis_of(struct store *st, const struct tensor *t, int cols, const struct basis **out, struct err *err)
{
	*out = of_width(st, cols);
	if (!*out && !st->basis_signs && cols % st->basis_block == 0 && st->n_basis < WIDTHS_MOST) {
		st->basis[st->n_basis] = (struct basis){ .cols = cols, .block = st->basis_block };
		*out = &st->basis[st->n_basis++];
	}
	if (!*out)
		return err_set(err, E_FORMAT, "%s: tensor %s: %s has no basis for its %d inputs, in blocks of %d",
		               t->file, t->name, store_place(st, document), cols, st->basis_block);
	return check_signs(st, t, *out, err);
}
