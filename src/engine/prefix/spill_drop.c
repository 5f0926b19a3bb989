/* spill_drop.c - see spill_drop.h. */
#include "engine/prefix/spill_drop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

/* A page and the key before it. */
struct link {
	struct digest prev, key;
	struct spill_name *name;
};

static int by_prev(const void *a, const void *b)
{
	return memcmp(&((const struct link *)a)->prev, &((const struct link *)b)->prev, sizeof(struct digest));
}

static int by_key(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct digest));
}

static bool peek_file(struct spill_peek *peek, const struct spill_name *f, struct spill_head *h, int32_t *tok, size_t n)
{
	const struct spill_peek_files *p = (const struct spill_peek_files *)peek;
	const struct spill_io *io = p->io;
	char name[SPILL_NAME];
	uint8_t raw[SPILL_HEAD];
	struct stat st;
	bool good = false;
	int fd;

	spill_name_put(name, f->kind, &f->key, f->pos, f->tail);
	fd = io->open(io, p->dir, name, O_RDONLY);
	if (fd < 0)
		return false;
	if (!fstat(fd, &st) && io->read(io, fd, raw, sizeof(raw), 0) == (ssize_t)sizeof(raw) &&
	    !spill_head_get(h, raw, sizeof(raw), (uint64_t)st.st_size, NULL) && h->n_tok >= n)
		good = !n || io->read(io, fd, tok, n * sizeof(*tok), SPILL_HEAD) == (ssize_t)(n * sizeof(*tok));
	close(fd);
	return good;
}

struct spill_peek_files spill_peek_files(const struct spill_io *io, int dir)
{
	return (struct spill_peek_files){ { peek_file }, io, dir };
}

/* Marks all pages that follow dropped pages, directly or not. */
static void spread(struct link *page, size_t n)
{
	size_t *todo = xmalloc(size_mul(n + 1, sizeof(*todo))), n_todo = 0;

	for (size_t i = 0; i < n; i++)
		if (page[i].name->out)
			todo[n_todo++] = i;
	while (n_todo) {
		const struct link want = { .prev = page[todo[--n_todo]].key };
		struct link *at = bsearch(&want, page, n, sizeof(*page), by_prev);

		while (at && at > page && !by_prev(at - 1, &want))
			at--;
		for (; at && at < page + n && !by_prev(at, &want); at++) {
			if (at->name->out)
				continue;
			at->name->out = true;
			todo[n_todo++] = (size_t)(at - page);
		}
	}
	free(todo);
}

void spill_mark(struct spill_peek *peek, int page_rows, const struct digest *key, const int32_t *tok, int n_tok,
                struct spill_name *v, size_t n)
{
	const struct digest *last = &key[n_tok / page_rows];
	size_t rest = (size_t)(n_tok % page_rows), n_page = 0, n_out = 0, most = (size_t)n_tok;
	struct link *page = xmalloc(size_mul(n + 1, sizeof(*page)));
	struct digest *out;
	int32_t *got = xmalloc(size_mul(most + 1, sizeof(*got)));
	struct spill_head h;

	for (size_t i = 0; i < n; i++) {
		struct spill_name *f = &v[i];

		f->out = false;
		if (f->kind != SPILL_PAGE)
			continue;
		if (!peek->peek(peek, f, &h, got, rest)) {
			f->out = true;
			continue;
		}
		f->out = (!memcmp(&h.prev, last, sizeof(*last)) &&
		          !memcmp(got, tok + n_tok - rest, rest * sizeof(*tok))) ||
		         (!rest && n_tok && !memcmp(&f->key, last, sizeof(*last)));
		page[n_page++] = (struct link){ h.prev, f->key, f };
	}
	qsort(page, n_page, sizeof(*page), by_prev);
	spread(page, n_page);
	out = xmalloc(size_mul(n_page + 1, sizeof(*out)));
	for (size_t i = 0; i < n_page; i++)
		if (page[i].name->out)
			out[n_out++] = page[i].key;
	qsort(out, n_out, sizeof(*out), by_key);
	for (size_t i = 0; i < n; i++) {
		struct spill_name *f = &v[i];

		if (f->kind != SPILL_SNAP)
			continue;
		f->out = bsearch(&f->key, out, n_out, sizeof(*out), by_key) != NULL;
		if (!f->out && f->pos >= most && !memcmp(&f->key, last, sizeof(*last)))
			f->out = !peek->peek(peek, f, &h, got, most) || !memcmp(got, tok, most * sizeof(*tok));
	}
	free(out);
	free(page);
	free(got);
}
