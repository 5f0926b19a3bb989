/* tensor.c - see tensor.h. */
#include "store/tensor.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct tensor *const *)a)->name, (*(const struct tensor *const *)b)->name);
}

void tensors_sort(struct tensor **v, size_t n)
{
	if (n)
		qsort(v, n, sizeof *v, by_name);
}

struct tensor *tensors_find(struct tensor *const *v, size_t n, const char *name)
{
	struct tensor key = { .name = name }, *k = &key, *const * hit;

	hit = n ? bsearch(&k, v, n, sizeof *v, by_name) : NULL;
	return hit ? *hit : NULL;
}

char *shape_text(char *buf, size_t cap, const int64_t *dim, int n_dim)
{
	size_t n = (size_t)snprintf(buf, cap, "[");

	for (int i = 0; i < n_dim && n < cap; i++)
		n += (size_t)snprintf(buf + n, cap - n, "%s%" PRId64, i ? ", " : "", dim[i]);
	if (n < cap)
		snprintf(buf + n, cap - n, "]");
	return buf;
}

const char *tensor_type_name(const struct tensor *t)
{
	return t->format ? t->format : t->type == DT_OTHER ? t->other : dtype_name(t->type);
}

bool tensor_stem(struct buf *to, const char *name, const char *suffix)
{
	size_t n = strlen(name), m = strlen(suffix);

	if (n <= m || strcmp(name + n - m, suffix))
		return false;
	buf_reset(to);
	buf_put(to, name, n - m);
	return true;
}
