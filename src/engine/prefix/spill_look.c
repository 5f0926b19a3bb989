/* spill_look.c - see spill.h: what other programs did to the folder. */
#include "engine/prefix/spill_core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

/* After this long a folder is listed whatever the tallies say: files also come by other ways, as a copy. */
static const int64_t LISTED_NS = 60ll * 1000000000;
/* Names that are looked up with the lock held once. */
enum { CHUNK = 512 };

static bool is_old(const struct spill *s, int folder)
{
	return clock_monotonic_ns() - s->index.folder[folder].listed >= LISTED_NS;
}

/* Adds those of the names that the index has not.  Called and returns locked. */
static void see_some(struct spill *s, const char *name, struct spill_found *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		v[i].known = spill_index_see(&s->index, &v[i]);
	pthread_mutex_unlock(&s->lock);
	for (size_t i = 0; i < n; i++)
		if (!v[i].known)
			v[i].known = !spill_found_stat(s->root, name, &v[i]);
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < n; i++) {
		if (v[i].known || spill_index_see(&s->index, &v[i]))
			continue;
		spill_index_found(&s->index, &v[i]);
		s->stats.found += !v[i].folder;
	}
}

/* Called and returns locked. */
static bool list_again(struct spill *s, int folder)
{
	const char *name = s->index.folder[folder].name; /* never freed before the end */
	uint64_t listing = spill_index_begin(&s->index);
	int64_t now = clock_monotonic_ns();
	struct spill_list list = { 0 };
	bool listed;

	pthread_mutex_unlock(&s->lock);
	listed = spill_list_folder(s->root, name, folder, &list);
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; listed && i < list.n; i += CHUNK)
		see_some(s, name, list.v + i, list.n - i < CHUNK ? list.n - i : CHUNK);
	if (listed) {
		spill_index_end(&s->index, folder, listing);
		s->index.folder[folder].listed = now;
	}
	free(list.v);
	return listed;
}

void spill_look_again(struct spill *s, bool all, bool must)
{
	struct spill_tallies now;
	uint64_t kb = 0;
	bool known;

	while (s->looks.busy)
		pthread_cond_wait(&s->looks.over, &s->lock);
	s->looks.busy = true;
	pthread_mutex_unlock(&s->lock);
	known = spill_tallies_read(s->root, s->tally, NULL, &now);
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; all && i < now.n; i++) {
		char folder[SPILL_FOLDER];

		memcpy(folder, now.v[i].name, sizeof(folder) - 1);
		folder[sizeof(folder) - 1] = '\0';
		spill_index_folder(&s->index, folder);
	}
	for (int i = 0; i < (all ? s->index.n_folder : 1); i++) {
		const char *name = s->index.folder[i].name;

		if ((must || !known || is_old(s, i) || spill_tallies_new(&now, &s->looks.others, name, &kb)) &&
		    list_again(s, i) && known)
			spill_tallies_take(&s->looks.others, &now, name);
	}
	spill_tallies_fini(&now);
	s->looks.busy = false;
	pthread_cond_broadcast(&s->looks.over);
}

uint64_t spill_look(struct spill *s)
{
	uint64_t ticket = 0;

	pthread_mutex_lock(&s->lock);
	if (s->o.dir) {
		ticket = ++s->looks.asked;
		pthread_cond_signal(&s->looks.wanted);
	}
	pthread_mutex_unlock(&s->lock);
	return ticket;
}

void *spill_looker(void *arg)
{
	struct spill *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->closing) {
		uint64_t ticket = s->looks.asked;

		if (s->looks.done == ticket) {
			pthread_cond_wait(&s->looks.wanted, &s->lock);
			continue;
		}
		spill_look_again(s, false, false);
		s->looks.done = ticket;
		if (!s->o.looked)
			continue;
		pthread_mutex_unlock(&s->lock); /* it takes a lock with which this one may be asked for */
		s->o.looked(s->o.looked_arg);
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

bool spill_looked(struct spill *s, uint64_t ticket)
{
	bool done;

	pthread_mutex_lock(&s->lock);
	done = s->looks.done >= ticket;
	pthread_mutex_unlock(&s->lock);
	return done;
}

/* ---- for the writing thread ---- */

/* One kilobyte more than was announced says that it is there: a look between the two is not the last. */
static void tell(struct spill *s, uint64_t kb)
{
	s->tally_kb += kb;
	spill_tally_put(s->root, s->tally, s->tally_kb);
}

void spill_announce(struct spill *s, uint64_t bytes)
{
	tell(s, (bytes + 1023) / 1024);
}

void spill_announced(struct spill *s)
{
	tell(s, 1);
}

uint64_t spill_others_wrote(struct spill *s)
{
	struct spill_tallies now;
	uint64_t kb = 0;
	bool known = spill_tallies_read(s->root, s->tally, NULL, &now);

	pthread_mutex_lock(&s->lock);
	if (known)
		spill_tallies_new(&now, &s->looks.others, NULL, &kb);
	pthread_mutex_unlock(&s->lock);
	spill_tallies_fini(&now);
	return kb * 1024;
}

bool spill_is_old(const struct spill *s)
{
	for (int i = 0; i < s->index.n_folder; i++)
		if (is_old(s, i))
			return true;
	return false;
}

/* The descriptor keeps its number: the reading thread uses it at the same time. */
bool spill_folder_again(struct spill *s)
{
	int fd;
	bool there;

	if (mkdirat(s->root, s->folder, 0700) && errno != EEXIST)
		return false;
	fd = openat(s->root, s->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	there = fd >= 0 && dup2(fd, s->own) >= 0 && !fcntl(s->own, F_SETFD, FD_CLOEXEC);
	if (fd >= 0)
		close(fd);
	return there;
}
