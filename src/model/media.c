/* media.c - see media.h: a media object's place in a prompt of token ids. */
#include "model/media.h"

#include <string.h>

static const char *name_of(const struct media *m)
{
	return m->kind == MEDIA_SOUND ? "a sound" : "an image";
}

/* Does the layout stand in ids, beginning at `begin`?  A mark whose id is not known matches anything. */
static bool stands_at(const struct media *m, const int32_t *ids, int n, int begin)
{
	if (begin < 0 || begin + m->n_layout > n)
		return false;
	for (int i = 0; i < m->n_layout; i++) {
		int32_t want = m->layout[i] == MEDIA_ROW ? m->row_token : m->layout[i];

		if (want >= 0 && ids[begin + i] != want)
			return false;
	}
	return true;
}

static int replace(const struct media *m, int32_t *ids, int *n, int at, struct err *err)
{
	for (int i = 0; i < m->n_layout; i++)
		if (m->layout[i] == MEDIA_UNKNOWN)
			return err_set(err, E_MISSING, "the tokenizer has no token for the marks around %s's rows",
			               name_of(m));
	memmove(ids + at + m->n_layout, ids + at + 1, (size_t)(*n - at - 1) * sizeof *ids);
	for (int i = 0; i < m->n_layout; i++)
		ids[at + i] = m->layout[i] == MEDIA_ROW ? m->row_token : m->layout[i];
	*n += m->n_layout - 1;
	return 0;
}

/* A placeholder that is neither a row itself nor the mark before rows. */
static bool lone_placeholder(const struct media *m, const int32_t *ids, int n, int at)
{
	return m->placeholder != m->row_token && ids[at] == m->placeholder &&
	       !(at + 1 < n && ids[at + 1] == m->row_token);
}

int media_next(const struct media *m, const int32_t *ids, int n, int at)
{
	while (at < n && ids[at] != m->row_token && !lone_placeholder(m, ids, n, at))
		at++;
	return at;
}

int media_expand(const struct media *m, int32_t *ids, int *n, int *at, int *layout_at, struct err *err)
{
	int first = media_next(m, ids, *n, *at), before = 0, run = 0, rc;

	if (first == *n)
		return err_set(err, E_MISSING, "no placeholder (token %d) is left for %s", m->row_token, name_of(m));
	while (m->layout[before] != MEDIA_ROW)
		before++;
	if (stands_at(m, ids, *n, first - before)) {
		*layout_at = first - before;
		*at = *layout_at + m->n_layout;
		return 0;
	}
	while (first + run < *n && ids[first + run] == ids[first])
		run++;
	if (run != 1)
		return err_set(err, E_FORMAT, "%d placeholders at %d, where %s has %d rows", run, first, name_of(m),
		               m->n);
	rc = replace(m, ids, n, first, err);
	*layout_at = first;
	*at = first + m->n_layout;
	return rc;
}
