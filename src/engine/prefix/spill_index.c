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
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/prefix/spill_share.h"

enum { FOLDER_NAME = SPILL_FOLDER - 1 };
/* A folder without pieces goes when it was not changed for this long: a server that just started may have made it. */
enum { EMPTY_S = 86400 };
enum { LENT_MAX = 1 << 16 };

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

/* Before a place; before the ring's own: the last. */
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
	link_init(&x->lent);
	spill_index_folder(x, own_folder);
}

void spill_index_unpack(struct spill_index *x)
{
	while (!link_alone(&x->packed))
		spill_index_remove(x, of_use(x->packed.next));
}

void spill_index_fini(struct spill_index *x)
{
	spill_index_unpack(x);
	spill_index_unlend(x);
	while (!link_alone(&x->use))
		spill_index_remove(x, of_use(x->use.next));
	for (int i = 0; i < x->n_folder; i++)
		free(x->folder[i].name);
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
	e->seen = x->listing;
	link_init(&e->stale);
	link_put(e->pack ? &x->packed : e->no_file ? &x->lent : &x->use, &e->use);
	x->n_lent += e->no_file;
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

void spill_index_lend(struct spill_index *x, enum spill_kind kind, const struct digest *key, uint32_t pos,
                      uint64_t tail)
{
	struct spill_entry *e = xcalloc(1, sizeof(*e));

	*e = (struct spill_entry){ .kind = kind, .key = *key, .no_file = true, .shared = SHARED_YES };
	if (kind == SPILL_SNAP) {
		e->pos = pos;
		e->tail = tail;
	}
	if (x->n_lent == LENT_MAX)
		spill_index_remove(x, of_use(x->lent.next));
	insert(x, e);
}

void spill_index_unlend(struct spill_index *x)
{
	while (!link_alone(&x->lent))
		spill_index_remove(x, of_use(x->lent.next));
	for (struct spill_link *l = x->use.next; l != &x->use; l = l->next)
		of_use(l)->shared = SHARED_UNKNOWN;
}

static int64_t *count_of(struct spill_index *x, const struct spill_entry *e)
{
	return e->kind == SPILL_PAGE ? &x->pages : &x->snaps;
}

void spill_index_written(struct spill_index *x, struct spill_entry *e, uint64_t bytes)
{
	assert(e->queued);
	e->queued = false;
	e->seen = x->listing;
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
	x->n_lent -= e->no_file;
	if (!e->queued && !e->pack && !e->no_file) {
		x->bytes -= e->bytes;
		if (!e->folder)
			--*count_of(x, e);
	}
	free(e);
}

void spill_index_use(struct spill_index *x, struct spill_entry *e, int64_t used)
{
	if (e->pack || e->no_file)
		return;
	e->used = used;
	link_cut(&e->use);
	link_put(&x->use, &e->use);
	if (!e->queued && link_alone(&e->stale))
		link_put(&x->stale, &e->stale);
}

void spill_index_move(struct spill_index *x, struct spill_entry *e, int64_t used)
{
	struct spill_link *at;

	e->used = used;
	link_cut(&e->use);
	at = x->use.prev;
	while (at != &x->use && of_use(at)->used > used)
		at = at->prev;
	link_put(at->next, &e->use);
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
	snprintf(out, SPILL_PATH, "%s/%s", x->folder[e->folder].name, name);
}

/* ---- listing ---- */

int spill_index_folder(struct spill_index *x, const char *name)
{
	for (int i = 0; i < x->n_folder; i++)
		if (!strcmp(x->folder[i].name, name))
			return i;
	x->folder = xrealloc(x->folder, size_mul((size_t)x->n_folder + 1, sizeof(*x->folder)));
	x->folder[x->n_folder] = (struct spill_folder){ .name = xstrdup(name), .listed = INT64_MIN / 2 };
	return x->n_folder++;
}

uint64_t spill_index_begin(struct spill_index *x)
{
	return ++x->listing;
}

bool spill_index_see(struct spill_index *x, const struct spill_found *f)
{
	struct spill_entry *e = spill_index_find(x, f->kind, &f->key, f->pos, f->tail);

	if (e)
		e->seen = x->listing;
	return e && !e->no_file;
}

void spill_index_found(struct spill_index *x, const struct spill_found *f)
{
	struct spill_entry *e = xcalloc(1, sizeof(*e)), *lent;

	*e = (struct spill_entry){
		.kind = f->kind, .key = f->key, .pos = f->pos, .tail = f->tail, .folder = f->folder
	};
	lent = spill_index_find(x, f->kind, &f->key, f->pos, f->tail);
	if (lent && lent->no_file) {
		e->shared = lent->shared;
		spill_index_remove(x, lent);
	}
	e->queued = true;
	insert(x, e);
	spill_index_written(x, e, f->bytes);
	spill_index_move(x, e, f->used);
}

void spill_index_end(struct spill_index *x, int folder, uint64_t listing)
{
	struct spill_link *next;

	for (struct spill_link *l = x->use.next; l != &x->use; l = next) {
		struct spill_entry *e = of_use(l);

		next = l->next;
		if (e->folder == folder && !e->queued && e->seen < listing)
			spill_index_remove(x, e);
	}
}

static void list_put(struct spill_list *to, const char *name, int folder)
{
	struct spill_found f = { .folder = folder };

	if (spill_name_get(name, &f.kind, &f.key, &f.pos, &f.tail))
		return;
	if (to->n == to->cap) {
		to->cap = to->cap ? 2 * to->cap : 256;
		to->v = xrealloc(to->v, size_mul(to->cap, sizeof(*to->v)));
	}
	to->v[to->n++] = f;
}

static DIR *open_folder(int root, const char *name)
{
	int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d && fd >= 0)
		close(fd);
	return d;
}

bool spill_list_folder(int root, const char *folder, int number, struct spill_list *out)
{
	DIR *d = open_folder(root, folder);
	struct dirent *e;

	if (!d)
		return false;
	while ((e = readdir(d)))
		list_put(out, e->d_name, number);
	closedir(d);
	return true;
}

bool spill_found_stat(int root, const char *folder, struct spill_found *f)
{
	char name[SPILL_NAME], path[SPILL_PATH];
	struct stat st;

	spill_name_put(name, f->kind, &f->key, f->pos, f->tail);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
		return false;
	f->bytes = (uint64_t)st.st_size;
	f->used = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	return true;
}

/* Removes what programs that have ended left in a folder. */
static void clean_folder(int root, const char *name, const struct spill_io *io)
{
	DIR *d = open_folder(root, name);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (spill_tmp_left(dirfd(d), e->d_name))
			io->unlink(io, dirfd(d), e->d_name);
	if (d)
		closedir(d);
}

static void remove_empty(int root, const char *name)
{
	char about[SPILL_FOLDER + sizeof(SPILL_ABOUT)];
	struct stat st;

	if (fstatat(root, name, &st, AT_SYMLINK_NOFOLLOW) || time(NULL) - st.st_mtime < EMPTY_S)
		return;
	snprintf(about, sizeof(about), "%s/" SPILL_ABOUT, name);
	unlinkat(root, about, 0);
	unlinkat(root, name, AT_REMOVEDIR); /* refused unless it is empty */
}

static int by_use(const void *a, const void *b)
{
	const struct spill_found *x = a, *y = b;

	return (x->used > y->used) - (x->used < y->used);
}

static bool folder_name(const char *name)
{
	uint8_t b[FOLDER_NAME / 2];

	return strlen(name) == FOLDER_NAME && !hex_get(b, sizeof(b), name);
}

/* Adds the files of a folder to the list; false: it cannot be listed. */
static bool scan_folder(struct spill_index *x, int folder, int root, const struct spill_io *io, struct spill_list *list)
{
	struct spill_folder *f = &x->folder[folder];
	size_t n = list->n, from = n;

	clean_folder(root, f->name, io);
	f->listed = clock_monotonic_ns();
	if (!spill_list_folder(root, f->name, folder, list))
		return false;
	for (size_t i = from; i < list->n; i++)
		if (spill_found_stat(root, f->name, &list->v[i]))
			list->v[n++] = list->v[i];
	list->n = n;
	if (folder && n == from)
		remove_empty(root, f->name);
	return true;
}

int spill_index_scan(struct spill_index *x, int root, const struct spill_io *io, struct err *err)
{
	DIR *d = open_folder(root, ".");
	struct spill_list list = { 0 };
	struct dirent *e;
	int rc = 0;

	if (!d)
		return err_set(err, E_IO, "%s", strerror(errno));
	clean_folder(root, ".", io);
	if (!scan_folder(x, 0, root, io, &list))
		rc = err_set(err, E_IO, "%s: %s", x->folder[0].name, strerror(errno));
	while (!rc && (e = readdir(d)))
		if (folder_name(e->d_name) && strcmp(e->d_name, x->folder[0].name))
			scan_folder(x, spill_index_folder(x, e->d_name), root, io, &list);
	closedir(d);
	if (list.n)
		qsort(list.v, list.n, sizeof(*list.v), by_use);
	for (size_t i = 0; i < list.n; i++)
		spill_index_found(x, &list.v[i]);
	free(list.v);
	return rc;
}
