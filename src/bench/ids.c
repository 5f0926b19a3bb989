/* ids.c - see ids.h. */
#include "bench/ids.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"

enum { FILE_MAX = 64 << 20 };

/* Ids in j, or -1 when it is not an array of something. */
static int64_t count(const struct json *j)
{
	return json_kind(j) == JSON_ARRAY && json_len(j) && json_len(j) < INT_MAX ? (int64_t)json_len(j) : -1;
}

static int not_ids(const struct json *j, const char *path, struct err *err)
{
	return err_set(err, E_FORMAT, "%s: %s, not a JSON array of token ids", path,
	               json_kind(j) == JSON_ARRAY ? "an empty array" : json_kind_name(json_kind(j)));
}

static int put_part(struct ids *f, const struct json *j, const char *path, struct err *err)
{
	for (size_t i = 0; i < json_len(j); i++) {
		int64_t id;

		if (json_to_int(json_at(j, i), &id) || id < 0 || id > INT32_MAX)
			return err_set(err, E_FORMAT, "%s: element %zu is not a token id", path, i);
		f->id[f->n++] = (int32_t)id;
	}
	f->part[++f->n_part] = f->n;
	return 0;
}

static int put_all(struct ids *f, const struct json *j, const char *path, struct err *err)
{
	bool nested = count(j) > 0 && json_kind(json_at(j, 0)) == JSON_ARRAY;
	int64_t n = nested ? 0 : count(j);
	int rc = 0;

	if (count(j) < 0)
		return not_ids(j, path, err);
	for (size_t i = 0; nested && i < json_len(j); i++) {
		if (count(json_at(j, i)) < 0)
			return not_ids(json_at(j, i), path, err);
		n += count(json_at(j, i));
	}
	f->id = xcalloc((size_t)n, sizeof(*f->id));
	f->part = xcalloc(nested ? json_len(j) + 1 : 2, sizeof(*f->part));
	if (!nested)
		return put_part(f, j, path, err);
	for (size_t i = 0; i < json_len(j) && !rc; i++)
		rc = put_part(f, json_at(j, i), path, err);
	return rc;
}

int ids_read(struct ids *f, const char *path, struct err *err)
{
	struct json *j = NULL;
	struct buf b;
	int rc;

	*f = (struct ids){ 0 };
	buf_init(&b);
	rc = file_read(path, FILE_MAX, &b, err);
	if (!rc && !(j = json_parse(b.p, b.n, 0, err)))
		rc = err_prefix(err, "%s", path);
	if (!rc)
		rc = put_all(f, j, path, err);
	json_free(j);
	buf_fini(&b);
	if (rc)
		ids_fini(f);
	return rc;
}

int ids_read_one(struct ids *f, const char *path, struct err *err)
{
	int rc = ids_read(f, path, err);

	if (rc || f->n_part == 1)
		return rc;
	rc = err_set(err, E_FORMAT, "%s: %d arrays of token ids, not one", path, f->n_part);
	ids_fini(f);
	return rc;
}

int ids_check(const struct ids *f, const char *path, int vocab, struct err *err)
{
	for (int i = 0; i < f->n; i++)
		if (f->id[i] >= vocab)
			return err_set(err, E_ARG, "%s: element %d is %" PRId32 ", the model has %d tokens", path, i,
			               f->id[i], vocab);
	return 0;
}

void ids_fini(struct ids *f)
{
	free(f->id);
	free(f->part);
	*f = (struct ids){ 0 };
}
