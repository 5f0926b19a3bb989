/* Towers against float64 forwards written to Hugging Face's semantics (../shared/golden/_vision2, and those in the tree, of
 * tools/golden/eyes.py): sizes, resized pixels, patches, vectors; and the law: the same bits for every number of threads,
 * every cut into parts, beside other images, and behind the far backend.
 *
 *     test_towers [--tree FOLDER] [--root FOLDER] [FAMILY]... */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "check.h"
#include "driver.h"
#include "far.h"
#include "store/safetensors.h"
#include "vision/tower.h"

static const float TOLERANCE = 1e-4f; /* absolute, of vectors of some units, with reference arithmetic */

enum { PICTURES = 5 };

/* Pictures: their folder below the root, their names, and those that the law is tried with. */
struct album {
	const char *folder, *picture[PICTURES]; /* NULL-ended where there are fewer */
	const char *large, *other;
};
static const struct album shared_album = { "images",
	                                   { "a37x53", "b200x64", "c448x300", "d97x61_gray", "e75x118_rgba" },
	                                   "c448x300",
	                                   "e75x118_rgba" },
			  pixtral_album = { "pixtral/images", { "wide", "tall", "dot" }, "wide", "tall" },
			  qwen2_album = { "qwen2_vl/images", { "wide", "tall", "dot" }, "wide", "tall" };

static const struct {
	const char *folder, *preprocess, *sizes;
	double fast; /* what serving arithmetic may be off by, relative to the largest element, beyond what was measured */
} families[] = {
	{ "qwen3_vl", "qwen3_vl", "qwen3_vl", 0.05 },
	{ "qwen2_5_vl", "qwen2_5_vl", "qwen2_5_vl", 0.05 },
	{ "gemma3", "gemma3", NULL, 0.05 },
	{ "gemma4_e", "gemma4_e", "gemma4", 0.05 },
	{ "gemma4_dense", "gemma4_e", "gemma4", 0.05 },
	{ "lfm2_vl", "lfm2_vl", "lfm2_vl", 0.05 },
	{ "mistral3", "mistral3", "mistral3", 0.05 },
};
enum { FAMILIES = sizeof families / sizeof *families };

/* Golden folders that lie in the tree. */
static const struct {
	const char *name;
	const struct album *album;
} tree_families[] = { { "pixtral", &pixtral_album }, { "qwen2_vl", &qwen2_album } };
enum { TREE_FAMILIES = sizeof tree_families / sizeof *tree_families };

static const char *root;
static const struct album *album = &shared_album;

/* A model's tower on a backend. */
struct rig {
	struct store *st;
	struct backend *be;
	struct tower *t;
};

static void rig_open(struct rig *r, const char *folder, enum arith arith, int threads, bool far)
{
	char path[4400];
	struct err err = { 0 };

	*r = (struct rig){ 0 };
	snprintf(path, sizeof path, "%s/%s", root, folder);
	CHECK(!store_open(&r->st, path, &err), "%s", err.msg);
	CHECK(!tower_open(&r->t, r->st, &err), "%s: %s", folder, err.msg);
	CHECK(r->t, "%s has no tower", folder);
	r->be = backend_cpu_open(threads, cpu_detect());
	if (far)
		r->be = far_open(r->be);
	CHECK(!tower_attach(r->t, r->be, arith, NULL, &err), "%s", err.msg);
}

static void rig_close(struct rig *r)
{
	tower_close(r->t);
	r->be->ops->close(r->be);
	store_close(r->st);
}

static void load_picture(struct image *im, const char *name)
{
	char path[4400];
	struct buf b;
	struct err err;

	snprintf(path, sizeof path, "%s/%s/%s.png", root, album->folder, name);
	buf_init(&b);
	CHECK(!file_read(path, 1 << 20, &b, &err), "%s", err.msg);
	CHECK(!image_decode(im, b.p, b.n, NULL, &err), "%s", err.msg);
	buf_fini(&b);
}

static struct media *media_of(struct rig *r, const char *name)
{
	struct image im;
	struct media *m = NULL;
	struct err err;

	load_picture(&im, name);
	CHECK(!tower_image(&m, r->t, &im, 0, &err), "%s: %s", name, err.msg);
	image_fini(&im);
	return m;
}

static void run(struct media *m, int64_t ns)
{
	struct err err = { 0 };

	while (!m->vectors)
		CHECK(!m->ops->work(m, ns, &err), "%s", err.msg);
}

static const struct tensor *golden(const struct safetensors *s, const char *fmt, const char *name)
{
	char full[128];

	snprintf(full, sizeof full, fmt, name);
	return safetensors_find(s, full);
}

static void golden_open(struct safetensors *s, const char *file)
{
	char path[4400];
	struct err err;

	snprintf(path, sizeof path, "%s/%s", root, file);
	CHECK(!safetensors_open(s, path, &err), "%s", err.msg);
}

/* ---- sizes and pixels ---- */

static int64_t number(const struct json *j, size_t i)
{
	int64_t v = -1;

	CHECK(!json_to_int(json_at(j, i), &v), "no number");
	return v;
}

/* The released checkpoints' limits are the defaults of the families, so the folder's own are put aside. */
static void check_sizes(const struct picture_form *own, const char *family)
{
	struct picture_form f = *own;
	char path[4400];
	struct json *all;
	const struct json *list;
	struct buf text;
	struct err err;

	snprintf(path, sizeof path, "%s/sizes.json", root);
	buf_init(&text);
	CHECK(!file_read(path, 1 << 20, &text, &err), "%s", err.msg);
	all = json_parse(text.p, text.n, 0, &err);
	list = json_get(all, family);
	CHECK(json_len(list) > 10, "%s", family);
	if (!strcmp(family, "qwen3_vl"))
		f.area_min = 65536, f.area_max = 16777216;
	else if (!strcmp(family, "qwen2_5_vl"))
		f.area_min = 3136, f.area_max = 12845056;
	else if (!strcmp(family, "gemma4"))
		f.patches_max = 280 * 9;
	else if (!strcmp(family, "mistral3"))
		f.edge = 1540;
	else if (!strcmp(family, "lfm2_vl"))
		f.area_min = 64 * 1024, f.area_max = 256 * 1024, f.edge = 512;
	for (size_t i = 0; i < json_len(list); i++) {
		const struct json *e = json_at(list, i), *in = json_get(e, "in"), *out = json_get(e, "out");
		struct picture_plan p;
		int64_t tokens;

		if (!out)
			out = json_get(e, "thumbnail_or_single");
		CHECK(!picture_plan(&p, &f, (int)number(in, 1), (int)number(in, 0), &err), "%s", err.msg);
		CHECK(p.resize[p.n_resize - 1].h == number(out, 0) && p.resize[p.n_resize - 1].w == number(out, 1),
		      "%s, %lld x %lld: %d x %d, %lld x %lld wanted", family, (long long)number(in, 1),
		      (long long)number(in, 0), p.resize[p.n_resize - 1].w, p.resize[p.n_resize - 1].h,
		      (long long)number(out, 1), (long long)number(out, 0));
		CHECK(!json_to_int(json_get(e, "tokens"), &tokens) && p.rows == tokens,
		      "%s, %lld x %lld: %d rows, not %lld", family, (long long)number(in, 1), (long long)number(in, 0),
		      p.rows, (long long)tokens);
	}
	json_free(all);
	buf_fini(&text);
}

static void same_pixels(const struct tensor *t, const struct image *im, const char *what)
{
	CHECK(t->type == DT_U8 && t->dim[0] == im->h && t->dim[1] == im->w, "%s: %d x %d", what, im->w, im->h);
	CHECK(!memcmp(t->data, im->rgb, (size_t)t->count), "%s: other pixels", what);
}

/* Rows of the processor's matrix that the golden file has, against ours of the same place. */
static void check_patches(const struct picture_form *f, const struct picture_view *v, const struct image *im,
                          const struct tensor *rows, const struct tensor *values, bool last, bool blocks, float add,
                          float mul)
{
	float value[3][256], *mine = xcalloc((size_t)values->dim[1], sizeof *mine);
	int m = blocks ? f->merge : 1, cols = (int)values->dim[1];

	picture_values(value, f);
	for (int64_t i = 0; i < values->dim[0]; i++) {
		int32_t p = (int32_t)i;
		int block, in, row, col;

		if (rows)
			memcpy(&p, rows->data + 4 * i, sizeof p);
		if (p >= v->grid_h * v->grid_w)
			continue; /* of another view */
		block = p / (m * m);
		in = p % (m * m);
		row = block / (v->grid_w / m) * m + in / m;
		col = block % (v->grid_w / m) * m + in % m;
		picture_patch(mine, f, im, row, col, last, value);
		for (int k = 0; k < cols; k++) {
			float want;

			memcpy(&want, values->data + 4 * ((size_t)i * (size_t)cols + (size_t)k), sizeof want);
			want = want * mul + add;
			CHECK(fabsf(mine[k] - want) <= 1e-6f, "patch %d, %d: %g, %g wanted", p, k, (double)mine[k],
			      (double)want);
		}
	}
	free(mine);
}

static void check_picture(const struct picture_form *f, const struct safetensors *s, const char *name,
                          const char *family)
{
	const struct tensor *resized = golden(s, "%s.resized", name), *rows = golden(s, "%s.pixel_rows", name),
			    *values = golden(s, rows ? "%s.pixel_values_rows" : "%s.pixel_values", name);
	bool gemma4 = f->size == SIZE_FILL, last = gemma4 || f->size == SIZE_TILES;
	struct picture_plan p;
	struct image im, to;
	struct err err;

	if (!resized)
		resized = golden(s, "%s.resized_grid", name);
	load_picture(&im, name);
	CHECK(!picture_plan(&p, f, im.w, im.h, &err), "%s", err.msg);
	CHECK(!image_resample(&to, &im, p.resize[0].w, p.resize[0].h, f->resample, &err), "%s", err.msg);
	if (resized)
		same_pixels(resized, &to, name);
	if (golden(s, "%s.resized_thumbnail", name)) {
		struct image whole;

		CHECK(!image_resample(&whole, &im, p.resize[1].w, p.resize[1].h, f->resample, &err), "%s", err.msg);
		same_pixels(golden(s, "%s.resized_thumbnail", name), &whole, name);
		image_fini(&whole);
	}
	/* Matrices of patches; pictures by channel hold the same numbers in another order. */
	if (values && values->n_dim == 2 && p.n_view == 1)
		check_patches(f, &p.view[0], &to, rows, values, last, f->size == SIZE_AREA, gemma4 ? -1.0f : 0.0f,
		              gemma4 ? 2.0f : 1.0f);
	CHECK(resized || values, "%s: nothing of %s to compare", family, name);
	image_fini(&im);
	image_fini(&to);
}

/* ---- vectors ---- */

/* Largest difference of vector `which` of each row, and the largest element. */
static float farthest(const struct media *m, const struct tensor *t, int which, float *largest)
{
	float most = 0;

	CHECK(t && t->type == DT_F32 && t->n_dim == 2 && t->dim[0] == m->n && t->dim[1] == m->hidden, "%d rows of %d",
	      m->n, m->hidden);
	*largest = 0;
	for (int i = 0; i < m->n; i++)
		for (int k = 0; k < m->hidden; k++) {
			float want, d;

			memcpy(&want, t->data + 4 * ((size_t)i * (size_t)m->hidden + (size_t)k), sizeof want);
			d = fabsf(m->vectors[((size_t)i * (size_t)(1 + m->deep) + (size_t)which) * (size_t)m->hidden +
			                     (size_t)k] -
			          want);
			most = d <= most ? most : isnan(d) ? INFINITY : d;
			*largest = fmaxf(*largest, fabsf(want));
		}
	return most;
}

static void check_vectors(const char *folder, const char *file, double fast)
{
	struct safetensors s;
	char name[256];

	snprintf(name, sizeof name, "%s/%s", folder, file);
	golden_open(&s, name);
	for (int a = 0; a < 2; a++) {
		enum arith arith = a ? ARITH_FAST : ARITH_F32;
		float most = 0, share = 0;
		struct rig r;

		rig_open(&r, folder, arith, 2, false);
		for (int i = 0; i < PICTURES && album->picture[i]; i++) {
			struct media *m = media_of(&r, album->picture[i]);

			run(m, INT64_MAX / 2);
			for (int k = 0; k <= m->deep; k++) {
				char fmt[32];
				float largest, d;

				snprintf(fmt, sizeof fmt, k ? "%%s.deepstack%d" : "%%s.vision_embeds", k - 1);
				d = farthest(m, golden(&s, fmt, album->picture[i]), k, &largest);
				most = fmaxf(most, d);
				share = fmaxf(share, d / largest);
			}
			media_unref(m);
		}
		printf("%-22s %s  %.1e absolute, %.1e of the largest element\n", folder, a ? "fast" : "f32 ",
		       (double)most, (double)share);
		CHECK(a ? (double)share <= fast : most <= TOLERANCE, "%s", folder);
		rig_close(&r);
	}
	safetensors_close(&s);
}

/* ---- the law ---- */

static void same_bits(const struct media *a, const struct media *b, const char *what)
{
	CHECK(a->bytes == b->bytes && !memcmp(a->vectors, b->vectors, a->bytes), "%s", what);
	CHECK(!memcmp(&a->digest, &b->digest, sizeof a->digest), "%s: digest", what);
}

/* Alone at once; then on other threads, part by part in turns with another image, in memory used before, behind the far
 * backend. */
static void check_law(const char *folder, enum arith arith)
{
	struct rig one, many, away;
	struct media *want, *first, *part, *other, *beyond;
	struct err err;

	rig_open(&one, folder, arith, 1, false);
	rig_open(&many, folder, arith, 3, false);
	want = media_of(&one, album->large);
	run(want, INT64_MAX / 2);
	first = media_of(&many, album->large);
	run(first, 1000000);
	same_bits(want, first, "threads");
	part = media_of(&many, album->large); /* in the memory of the first; the other in memory of its own */
	other = media_of(&many, album->other);
	CHECK(memcmp(&want->digest, &other->digest, sizeof want->digest), "two images, one digest");
	while (!part->vectors || !other->vectors) {
		CHECK(!part->ops->work(part, 1, &err), "%s", err.msg);
		CHECK(!other->ops->work(other, 1, &err), "%s", err.msg);
	}
	same_bits(want, part, "threads and parts");
	media_unref(first);
	first = media_of(&many, album->other); /* in memory that a larger one has used */
	run(first, 1000000);
	same_bits(other, first, "used memory");
	rig_open(&away, folder, arith, 2, true);
	beyond = media_of(&away, album->large);
	run(beyond, 1000000);
	same_bits(want, beyond, "far backend");
	media_unref(want);
	media_unref(first);
	media_unref(part);
	media_unref(other);
	media_unref(beyond);
	rig_close(&one);
	rig_close(&many);
	rig_close(&away);
}

/* ---- in a prompt ---- */

enum { ID_BEFORE = 5, ID_MARK = 100 };

/* Every text is a token. */
static int32_t made_id(void *arg, const char *text)
{
	return ID_MARK + (int32_t)strlen(text);
}

/* A single placeholder becomes the layout; what is in full already stays; another length is refused. */
static void check_expand(const char *folder)
{
	const struct tower_tokens tokens = { made_id, NULL };
	struct err err = { 0 };
	struct rig r;
	struct media *m;
	int32_t ids[1000] = { ID_BEFORE, 0, ID_BEFORE }, want[1000];
	int n = 3, at = 0, layout, rows = 0, again, image;

	rig_open(&r, folder, ARITH_F32, 1, false);
	tower_close(r.t);
	CHECK(!tower_open(&r.t, r.st, &err) && !tower_attach(r.t, r.be, ARITH_F32, &tokens, &err), "%s", err.msg);
	image = tower_info(r.t).image_token;
	m = media_of(&r, album->large);
	ids[1] = tower_info(r.t).placeholder;
	CHECK(!media_expand(m, ids, &n, &at, &layout, &err), "%s", err.msg);
	CHECK(n == 2 + m->n_layout && layout == 1 && at == 1 + m->n_layout && ids[n - 1] == ID_BEFORE, "%d ids", n);
	for (int i = 0; i < m->n_layout; i++) {
		rows += m->layout[i] == MEDIA_ROW;
		CHECK(ids[1 + i] == (m->layout[i] == MEDIA_ROW ? image : m->layout[i]), "%d: %d", i, ids[1 + i]);
		CHECK(m->layout[i] == MEDIA_ROW || m->layout[i] >= ID_MARK, "%d", m->layout[i]);
	}
	CHECK(rows == m->n, "%d rows in the layout, %d there are", rows, m->n);
	memcpy(want, ids, sizeof want);
	again = n;
	at = 0;
	CHECK(!media_expand(m, ids, &again, &at, &layout, &err) && again == n && layout == 1, "%s", err.msg);
	CHECK(!memcmp(want, ids, sizeof want), "ids in full were changed");
	CHECK(media_expand(m, ids, &again, &at, &layout, &err) == E_MISSING, "a second image in one place");
	memmove(ids + n - 2, ids + n - 1, sizeof *ids); /* one short */
	for (int i = 0; i < n; i++)
		ids[i] = i && i < n - 2 ? image : ID_BEFORE;
	again = n - 1;
	at = 0;
	CHECK(media_expand(m, ids, &again, &at, &layout, &err) == E_FORMAT, "a run of another length");
	media_unref(m);
	rig_close(&r);
}

static void check_family(int i)
{
	struct safetensors s;
	struct rig r;
	char folder[128];

	snprintf(folder, sizeof folder, "%s/preprocess.safetensors", families[i].preprocess);
	golden_open(&s, folder);
	snprintf(folder, sizeof folder, "%s/hf-f32", families[i].folder);
	rig_open(&r, folder, ARITH_F32, 1, false);
	for (int p = 0; p < PICTURES; p++)
		check_picture(tower_form(r.t), &s, shared_album.picture[p], families[i].folder);
	if (families[i].sizes)
		check_sizes(tower_form(r.t), families[i].sizes);
	rig_close(&r);
	safetensors_close(&s);
	check_expand(folder);
	check_vectors(folder, "vision.safetensors", families[i].fast);
	check_law(folder, ARITH_F32);
	snprintf(folder, sizeof folder, "%s/mlx-q4", families[i].folder);
	check_vectors(folder, "vision.safetensors", families[i].fast);
	check_law(folder, ARITH_FAST);
}

/* [width, height, columns of rows, rows of them] of many sizes. */
static void check_tree_sizes(const struct picture_form *f, const char *folder)
{
	char path[4400];
	const struct json *list;
	struct json *all;
	struct buf text;
	struct err err;

	snprintf(path, sizeof path, "%s/%s/vision.json", root, folder);
	buf_init(&text);
	CHECK(!file_read(path, 1 << 20, &text, &err), "%s", err.msg);
	CHECK((all = json_parse(text.p, text.n, 0, &err)), "%s", err.msg);
	list = json_get(all, "sizes");
	CHECK(json_len(list) > 10, "%s", path);
	for (size_t i = 0; i < json_len(list); i++) {
		const struct json *e = json_at(list, i);
		struct picture_plan p;

		CHECK(!picture_plan(&p, f, (int)number(e, 0), (int)number(e, 1), &err), "%s", err.msg);
		CHECK(p.view[0].grid_w / f->merge == number(e, 2) && p.view[0].grid_h / f->merge == number(e, 3) &&
		              p.rows == number(e, 2) * number(e, 3),
		      "%s, %d x %d: %d x %d patches", folder, (int)number(e, 0), (int)number(e, 1), p.view[0].grid_w,
		      p.view[0].grid_h);
	}
	json_free(all);
	buf_fini(&text);
}

static void check_tree_family(int i)
{
	struct rig r;
	char folder[128];

	album = tree_families[i].album;
	snprintf(folder, sizeof folder, "%s/hf-bf16", tree_families[i].name);
	rig_open(&r, folder, ARITH_F32, 1, false);
	check_tree_sizes(tower_form(r.t), folder);
	rig_close(&r);
	check_expand(folder);
	check_vectors(folder, "vision.safetensors", 0.05);
	check_law(folder, ARITH_F32);
	check_law(folder, ARITH_FAST);
}

static bool is_named(int argc, char **argv, const char *name)
{
	for (int k = 1; k < argc; k++)
		if (!strcmp(argv[k], name))
			return true;
	return argc < 2;
}

/* The value of the option, which is taken away; NULL: it is not there. */
static const char *take_option(int *argc, char ***argv, const char *name)
{
	const char *value;

	if (*argc < 3 || strcmp((*argv)[1], name))
		return NULL;
	value = (*argv)[2];
	*argc -= 2;
	*argv += 2;
	return value;
}

int main(int argc, char **argv)
{
	const char *tree = take_option(&argc, &argv, "--tree"), *named = take_option(&argc, &argv, "--root");
	char shared[4096];

	if (named) {
		root = named;
	} else if (shared_folder()) {
		snprintf(shared, sizeof shared, "%s/golden/_vision2", shared_folder());
		root = shared;
	} else if (!tree) {
		return 77;
	}
	for (int i = 0; i < FAMILIES && root; i++)
		if (is_named(argc, argv, families[i].folder))
			check_family(i);
	root = tree;
	for (int i = 0; i < TREE_FAMILIES && root; i++)
		if (is_named(argc, argv, tree_families[i].name))
			check_tree_family(i);
	return 0;
}
