/* spill_index.c - see spill_index.h. */
#include "engine/prefix/spill_index.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

enum { FOLDER_NAME = SPILL_FOLDER - 1 };

/* ---- rings ---- */

static void link_init(struct spill_link *l)
{
	l->prev = l->next = l;
}

static bool link_alone(const struct spill_link *l)
{
	return l->next == l;
}

static void link_cut(struct spill_link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	link_init(l);
}

/* Before the ring's own place: the last. */
static void link_put(struct spill_link *ring, struct spill_link *l)
{
	l->prev = ring->prev;
	l->next = ring;
	ring->prev->next = l;
	ring->prev = l;
}

static struct spill_entry *of_use(struct spill_link *l)
{
	return (struct spill_entry *)((char *)l - offsetof(struct spill_entry, use));
}

/* ---- the table ---- */

static size_t slot_of(const struct spill_index *x, const struct digest *key)
{
	uint64_t h;

	memcpy(&h, key->b, sizeof(h));
	return h & (x->n_bucket - 1);
}

void spill_index_init(struct spill_index *x, const char *own_folder)
{
	enum { FIRST = 64 }; /* buckets; doubled as entries come */

	assert(strlen(own_folder) == FOLDER_NAME);
	memset(x, 0, sizeof(*x));
	x->n_bucket = FIRST;
	x->bucket = xcalloc(FIRST, sizeof(struct spill_entry *));
	link_init(&x->use);
	link_init(&x->stale);
	link_init(&x->packed);
	x->folder = xmalloc(sizeof(*x->folder));
	x->folder[x->n_folder++] = xstrdup(own_folder);
}

void spill_index_unpack(struct spill_index *x)
{
	while (!link_alone(&x->packed))
		spill_index_remove(x, of_use(x->packed.next));
}

void spill_index_fini(struct spill_index *x)
{
	spill_index_unpack(x);
	while (!link_alone(&x->use))
		spill_index_remove(x, of_use(x->use.next));
	for (int i = 0; i < x->n_folder; i++)
		free(x->folder[i]);
	free(x->folder);
	free(x->bucket);
}

static void grow(struct spill_index *x)
{
	struct spill_entry **old = x->bucket;
	size_t n = x->n_bucket;

	x->n_bucket = 2 * n;
	x->bucket = xcalloc(x->n_bucket, sizeof(struct spill_entry *));
	for (size_t i = 0; i < n; i++)
		for (struct spill_entry *e = old[i], *next; e; e = next) {
			struct spill_entry **at = &x->bucket[slot_of(x, &e->key)];

			next = e->chain;
			e->chain = *at;
			*at = e;
		}
	free(old);
}

static void insert(struct spill_index *x, struct spill_entry *e)
{
	struct spill_entry **at;

	if (x->n == x->n_bucket)
		grow(x);
	at = &x->bucket[slot_of(x, &e->key)];
	e->chain = *at;
	*at = e;
	x->n++;
	link_init(&e->stale);
	link_put(e->pack ? &x->packed : &x->use, &e->use);
}

struct spill_entry *spill_index_next(const struct spill_index *x, const struct digest *key, struct spill_entry *e)
{
	for (e = e ? e->chain : x->bucket[slot_of(x, key)]; e; e = e->chain)
		if (!memcmp(&e->key, key, sizeof(*key)))
			return e;
	return NULL;
}

struct spill_entry *spill_index_find(const struct spill_index *x, enum spill_kind kind, const struct digest *key,
                                     uint32_t pos, uint64_t tail)
{
	struct spill_entry *e = NULL;

	while ((e = spill_index_next(x, key, e)))
		if (e->kind == kind && (kind == SPILL_PAGE || (e->pos == pos && e->tail == tail)))
			return e;
	return NULL;
}

struct spill_entry *spill_index_add(struct spill_index *x, enum spill_kind kind, const struct digest *key, uint32_t pos,
                                    uint64_t tail, int64_t used)
{
	struct spill_entry *e = xcalloc(1, sizeof(*e));

	e->kind = kind;
	e->key = *key;
	e->pos = kind == SPILL_PAGE ? 0 : pos;
	e->tail = kind == SPILL_PAGE ? 0 : tail;
	e->used = used;
	e->queued = true;
	insert(x, e);
	return e;
}

void spill_index_pack(struct spill_index *x, const struct spill_entry *what)
{
	struct spill_entry *e = xmalloc(sizeof(*e));

	assert(what->pack && !what->queued);
	*e = *what;
	insert(x, e);
}

static int64_t *count_of(struct spill_index *x, const struct spill_entry *e)
{
	return e->kind == SPILL_PAGE ? &x->pages : &x->snaps;
}

void spill_index_written(struct spill_index *x, struct spill_entry *e, uint64_t bytes)
{
	assert(e->queued);
	e->queued = false;
	e->bytes = bytes;
	x->bytes += bytes;
	if (!e->folder)
		++*count_of(x, e);
}

void spill_index_remove(struct spill_index *x, struct spill_entry *e)
{
	struct spill_entry **at = &x->bucket[slot_of(x, &e->key)];

	while (*at != e)
		at = &(*at)->chain;
	*at = e->chain;
	x->n--;
	link_cut(&e->use);
	link_cut(&e->stale);
	if (!e->queued && !e->pack) {
		x->bytes -= e->bytes;
		if (!e->folder)
			--*count_of(x, e);
	}
	free(e);
}

void spill_index_use(struct spill_index *x, struct spill_entry *e, int64_t used)
{
	if (e->pack)
		return;
	e->used = used;
	link_cut(&e->use);
	link_put(&x->use, &e->use);
	if (!e->queued && link_alone(&e->stale))
		link_put(&x->stale, &e->stale);
}

struct spill_entry *spill_index_each(const struct spill_index *x, struct spill_entry *e)
{
	struct spill_link *l = e ? e->use.next : x->use.next;

	return l == &x->use ? NULL : of_use(l);
}

struct spill_entry *spill_index_oldest(const struct spill_index *x)
{
	for (struct spill_link *l = x->use.next; l != &x->use; l = l->next)
		if (!of_use(l)->queued)
			return of_use(l);
	return NULL;
}

struct spill_entry *spill_index_stale(struct spill_index *x)
{
	struct spill_link *l = x->stale.next;

	if (l == &x->stale)
		return NULL;
	link_cut(l);
	return (struct spill_entry *)((char *)l - offsetof(struct spill_entry, stale));
}

void spill_index_path(const struct spill_index *x, const struct spill_entry *e, char out[SPILL_PATH])
{
	char name[SPILL_NAME];

	spill_name_put(name, e->kind, &e->key, e->pos, e->tail);
	snprintf(out, SPILL_PATH, "%s/%s", x->folder[e->folder], name);
}

/* ---- listing ---- */

struct found {
	struct spill_entry **v;
	size_t n, cap;
};

static void scan_file(struct found *f, int dir, int folder, const char *name)
{
	struct spill_entry *e, got = { .folder = folder };
	struct stat st;

	if (spill_name_get(name, &got.kind, &got.key, &got.pos, &got.tail) ||
	    fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
		return;
	got.bytes = (uint64_t)st.st_size;
	got.used = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	if (f->n == f->cap) {
		f->cap = f->cap ? 2 * f->cap : 256;
		f->v = xrealloc(f->v, size_mul(f->cap, sizeof(*f->v)));
	}
	e = xmalloc(sizeof(*e));
	*e = got;
	f->v[f->n++] = e;
}

static int scan_folder(struct found *f, int root, const char *path, int folder, bool clean, const struct spill_io *io,
                       struct err *err)
{
	int fd = openat(root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	char about[SPILL_FOLDER + sizeof(SPILL_ABOUT)];
	size_t before = f->n;
	struct dirent *e;

	snprintf(about, sizeof(about), "%s/" SPILL_ABOUT, path);
	if (!d) {
		if (fd >= 0)
			close(fd);
		return folder ? 0 : err_set(err, E_IO, "%s: %s", path, strerror(errno));
	}
	while ((e = readdir(d))) {
		if (!strncmp(e->d_name, SPILL_TMP, strlen(SPILL_TMP))) {
			if (clean)
				io->unlink(io, fd, e->d_name);
		} else {
			scan_file(f, fd, folder, e->d_name);
		}
	}
	closedir(d);
	if (clean && folder && f->n == before) {
		unlinkat(root, about, 0);
		unlinkat(root, path, AT_REMOVEDIR); /* refused unless it is empty */
	}
	return 0;
}

static int by_use(const void *a, const void *b)
{
	const struct spill_entry *x = *(struct spill_entry *const *)a, *y = *(struct spill_entry *const *)b;

	return (x->used > y->used) - (x->used < y->used);
}

static bool folder_name(const char *name)
{
	uint8_t b[FOLDER_NAME / 2];

	return strlen(name) == FOLDER_NAME && !hex_get(b, sizeof(b), name);
}

int spill_index_scan(struct spill_index *x, int root, bool clean, const struct spill_io *io, struct err *err)
{
	struct found f = { 0 };
	int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return err_set(err, E_IO, "%s", strerror(errno));
	}
	rc = scan_folder(&f, root, x->folder[0], 0, clean, io, err);
	while (!rc && (e = readdir(d))) {
		if (clean && !strncmp(e->d_name, SPILL_TMP, strlen(SPILL_TMP)))
			io->unlink(io, root, e->d_name);
		if (!folder_name(e->d_name) || !strcmp(e->d_name, x->folder[0]))
			continue;
		x->folder = xrealloc(x->folder, size_mul((size_t)x->n_folder + 1, sizeof(*x->folder)));
		x->folder[x->n_folder] = xstrdup(e->d_name);
		rc = scan_folder(&f, root, e->d_name, x->n_folder++, clean, io, err);
	}
	closedir(d);
	if (f.n)
		qsort(f.v, f.n, sizeof(*f.v), by_use);
	for (size_t i = 0; i < f.n; i++) {
		uint64_t bytes = f.v[i]->bytes;

		f.v[i]->queued = true;
		insert(x, f.v[i]);
		spill_index_written(x, f.v[i], bytes);
	}
	free(f.v);
	return rc;
}
