/* Rotary frequencies against a reference implementation's rotated vectors, for
 * each kind of scaling, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "driver.h"
#include "model/rotary.h"
#include "store/safetensors.h"

enum { POSITIONS = 9, HEADS = 2 };

static int fail(const char *name, const char *what)
{
	printf("FAIL %s: %s\n", name, what);
	return 1;
}

/* Largest difference of x rotated at pos..pos+8 from what the file holds. */
static float rotate(const struct rope *r, const float *x, const float *want, int pos, int dim)
{
	float most = 0;

	for (int row = 0; row < HEADS * POSITIONS; row++) {
		const float *v = x + (size_t)row * (size_t)dim, *w = want + (size_t)row * (size_t)dim;

		for (int i = 0; i < dim; i++) {
			int apart = r->apart ? r->apart : r->n_freq, k = i % apart < r->n_freq ? i % apart : 0;
			float a = (float)(pos + row % POSITIONS) * r->freq[k], c = cosf(a) * r->mscale,
			      s = sinf(a) * r->mscale;
			float got = i >= 2 * apart || i % apart >= r->n_freq ? v[i] :
			            i < apart                                ? v[i] * c - v[i + apart] * s :
			                                                       v[i] * c + v[i - apart] * s;

			most = fmaxf(most, fabsf(got - w[i]));
		}
	}
	return most;
}

/* The case as a config of a model would say it. */
static struct json *config_of(const struct json *c, int truncate)
{
	const struct json *scaling = json_get(c, "scaling"), *value;
	struct json_cursor at;
	const char *key;
	struct buf b;
	struct json *j;
	struct err err;
	double base = 0;

	json_to_double(json_get(c, "base"), &base);
	buf_init(&b);
	buf_printf(&b, "{\"rope_theta\":%.17g,\"rope_scaling\":{\"truncate\":%s", base, truncate ? "true" : "false");
	if (json_kind(scaling) == JSON_OBJECT)
		for (at = json_first(scaling); json_next(&at, &key, &value);) {
			if (!strcmp(key, "truncate"))
				continue;
			buf_printf(&b, ",\"%s\":", key);
			json_put(&b, value);
		}
	buf_puts(&b, "}}");
	j = json_parse(b.p, b.n, 0, &err);
	if (!j)
		printf("%s\n", err.msg);
	buf_fini(&b);
	return j;
}

static int check_case(const struct safetensors *s, const char *name, const struct json *c)
{
	static const int offset[] = { 0, 5, 1000 };
	int64_t dims = 0, dim = 0, ctx = 4096;
	struct rotary_defaults d = { .partial = 1 };
	struct json *config = config_of(c, 1); /* the reference floors and ceils whatever the file says */
	struct err err = { 0 };
	struct conf conf = { .j = config, .file = "rope.json", .where = "", .err = &err };
	struct rope rope;
	struct arena a;
	bool traditional = false;
	int ctx_max, bad = 0;
	struct rotary_lengths lengths = { 0 };
	bool two = !strncmp(name, "longrope", 8), dynamic = !strncmp(name, "dynamic", 7);

	json_to_int(json_get(c, "dims"), &dims);
	json_to_int(json_get(c, "head_dim"), &dim);
	json_to_int(json_get(c, "max_position_embeddings"), &ctx);
	json_to_bool(json_get(c, "traditional"), &traditional);
	if (traditional) { /* pairs (2i, 2i + 1): no model here */
		json_free(config);
		return 0;
	}
	d.partial = (double)dims / (double)dim;
	ctx_max = (int)ctx;
	arena_init(&a);
	if (two) { /* where a model has no place for both sets */
		rotary_read(&rope, &conf, &d, (int)dim, &ctx_max, &a);
		if (conf.code != E_UNSUPPORTED)
			bad = fail(name, "not refused");
		conf.code = 0;
	}
	rotary_read_lengths(&rope, &lengths, &conf, &d, (int)dim, &ctx_max, &a);
	if (!conf.code && two != (lengths.n > 0))
		bad += fail(name, "has one set of frequencies");
	for (int i = 0; i < lengths.n; i++) { /* the reference has those of long sequences */
		bad += i && lengths.freq[i] <= lengths.longer[i] ? fail(name, "long sequences do not turn slower") : 0;
		lengths.freq[i] = lengths.longer[i];
	}
	if (conf.code) {
		bad = fail(name, err.msg);
	} else {
		for (int i = 0; i < 3; i++) {
			char x[96], want[96];
			float most;

			if (dynamic && offset[i] >= ctx) /* beyond what a server takes */
				continue;
			snprintf(x, sizeof x, "%s.x", name);
			snprintf(want, sizeof want, "%s.out_off%d", name, offset[i]);
			most = rotate(&rope, (const float *)(const void *)safetensors_find(s, x)->data,
			              (const float *)(const void *)safetensors_find(s, want)->data, offset[i],
			              (int)dim);
			printf("%s %s at %d: %.1e\n", most < 5e-4f ? "ok  " : "FAIL", name, offset[i], (double)most);
			bad += !(most < 5e-4f);
		}
	}
	arena_fini(&a);
	json_free(config);
	return bad;
}

int main(void)
{
	const char *root = shared_folder(), *name;
	const struct json *c;
	struct json_cursor at;
	struct safetensors s;
	struct json *j;
	struct err err;
	struct buf b;
	char path[4300];
	int bad = 0;

	if (!root)
		return 77;
	buf_init(&b);
	snprintf(path, sizeof path, "%s/golden/_ops/rope.json", root);
	if (file_read(path, 1 << 20, &b, &err) || !(j = json_parse(b.p, b.n, 0, &err)))
		return fail(path, err.msg);
	snprintf(path, sizeof path, "%s/golden/_ops/rope.safetensors", root);
	if (safetensors_open(&s, path, &err))
		return fail(path, err.msg);
	for (at = json_first(json_get(j, "cases")); json_next(&at, &name, &c);) {
		snprintf(path, sizeof path, "%s.x", name);
		if (safetensors_find(&s, path))
			bad += check_case(&s, name, c);
	}
	safetensors_close(&s);
	json_free(j);
	buf_fini(&b);
	return bad > 0;
}
