/* spill_share.c - see spill_share.h. */
#include "engine/prefix/spill_share.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/system.h"

static const char tally_folder[] = "servers";
enum { OLD_S = 3600 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct spill_owner *owners;

/* ---- owners ---- */

void spill_owner_begin(struct spill_owner *o)
{
	uint32_t random;

	system_random(&random, sizeof(random));
	snprintf(o->name, sizeof(o->name), "%016llx-%lld-%08x", (unsigned long long)system_processes(),
	         (long long)getpid(), (unsigned)random);
	pthread_mutex_lock(&lock);
	o->next = owners;
	owners = o;
	pthread_mutex_unlock(&lock);
}

void spill_owner_end(struct spill_owner *o)
{
	struct spill_owner **at = &owners;

	pthread_mutex_lock(&lock);
	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	pthread_mutex_unlock(&lock);
}

void spill_tmp_name(const struct spill_owner *o, const char *name, char out[SPILL_TMP_NAME])
{
	snprintf(out, SPILL_TMP_NAME, SPILL_TMP "%s-%.*s", o->name, SPILL_NAME - 1, name);
}

/* Has the program ended whose name begins the text?  false too where that is not known. */
static bool has_ended(const char *text)
{
	unsigned long long machine;
	long long pid;
	unsigned random;
	char name[SPILL_OWNER];
	bool live = false;

	if (sscanf(text, "%16llx-%lld-%8x", &machine, &pid, &random) != 3 || !machine ||
	    machine != system_processes() || pid <= 0 || pid != (pid_t)pid)
		return false;
	if (pid != getpid())
		return kill((pid_t)pid, 0) && errno == ESRCH;
	snprintf(name, sizeof(name), "%016llx-%lld-%08x", machine, pid, random);
	pthread_mutex_lock(&lock);
	for (const struct spill_owner *o = owners; o && !live; o = o->next)
		live = !strcmp(o->name, name);
	pthread_mutex_unlock(&lock);
	return !live;
}

static bool is_old(const struct stat *st)
{
	return time(NULL) - st->st_mtime > OLD_S;
}

bool spill_tmp_left(int dir, const char *name)
{
	size_t n = strlen(SPILL_TMP);
	struct stat st;

	if (strncmp(name, SPILL_TMP, n))
		return false;
	return has_ended(name + n) || (!fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && is_old(&st));
}

/* ---- tallies ---- */

void spill_tally_name(char out[SPILL_TALLY], const char *folder, const struct spill_owner *o)
{
	snprintf(out, SPILL_TALLY, "%s-%s", folder, o->name);
}

void spill_tally_put(int root, const char *name, uint64_t kb)
{
	char path[sizeof(tally_folder) + SPILL_TALLY];
	const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", tally_folder, name);
	fd = openat(root, path, flags, 0600);
	if (fd < 0 && errno == ENOENT && !mkdirat(root, tally_folder, 0700))
		fd = openat(root, path, flags, 0600);
	if (fd < 0)
		return;
	if (ftruncate(fd, (off_t)kb)) {
		/* others list within a minute */
	}
	close(fd);
}

/* Is it the name of a tally? */
static bool tally_parse(const char *name)
{
	uint8_t model[(SPILL_FOLDER - 1) / 2];

	return strlen(name) < SPILL_TALLY && !hex_get(model, sizeof(model), name) && name[SPILL_FOLDER - 1] == '-';
}

/* Opened and closed: a file system over a network then asks its server, and not its memory, how long it is. */
static bool tally_get(int dir, const char *name, struct stat *st)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool got = fd >= 0 && !fstat(fd, st) && S_ISREG(st->st_mode);

	if (fd >= 0)
		close(fd);
	return got;
}

bool spill_tallies_read(int root, const char *own, uint64_t *removed, struct spill_tallies *out)
{
	int fd = openat(root, tally_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	struct stat st;

	*out = (struct spill_tallies){ 0 };
	if (!d) {
		bool none = errno == ENOENT;

		if (fd >= 0)
			close(fd);
		return none;
	}
	while ((e = readdir(d))) {
		struct spill_tally *t;

		if (!tally_parse(e->d_name) || !strcmp(e->d_name, own) || !tally_get(fd, e->d_name, &st))
			continue;
		if (removed && (has_ended(e->d_name + SPILL_FOLDER) || is_old(&st))) {
			*removed += !unlinkat(fd, e->d_name, 0);
			continue;
		}
		out->v = xrealloc(out->v, size_mul(out->n + 1, sizeof(*out->v)));
		t = &out->v[out->n++];
		memcpy(t->name, e->d_name, strlen(e->d_name) + 1);
		t->kb = (uint64_t)st.st_size;
	}
	closedir(d);
	return true;
}

void spill_tallies_fini(struct spill_tallies *t)
{
	free(t->v);
	*t = (struct spill_tallies){ 0 };
}

static bool tally_is_of(const struct spill_tally *t, const char *folder)
{
	return !folder || !strncmp(t->name, folder, SPILL_FOLDER - 1);
}

static const struct spill_tally *tally_find(const struct spill_tallies *t, const char *name)
{
	for (size_t i = 0; i < t->n; i++)
		if (!strcmp(t->v[i].name, name))
			return &t->v[i];
	return NULL;
}

bool spill_tallies_new(const struct spill_tallies *t, const struct spill_tallies *before, const char *folder,
                       uint64_t *kb)
{
	bool differs = false;

	for (size_t i = 0; i < t->n; i++) {
		const struct spill_tally *is = &t->v[i], *was = tally_find(before, is->name);
		uint64_t from = was ? was->kb : 0;

		if (!tally_is_of(is, folder) || is->kb == from)
			continue;
		differs = true;
		*kb += is->kb > from ? is->kb - from : 0;
	}
	for (size_t i = 0; i < before->n; i++)
		differs |= tally_is_of(&before->v[i], folder) && !tally_find(t, before->v[i].name);
	return differs;
}

void spill_tallies_take(struct spill_tallies *to, const struct spill_tallies *t, const char *folder)
{
	size_t n = 0;

	for (size_t i = 0; i < to->n; i++)
		if (!tally_is_of(&to->v[i], folder))
			to->v[n++] = to->v[i];
	to->v = xrealloc(to->v, size_mul(n + t->n + 1, sizeof(*to->v)));
	for (size_t i = 0; i < t->n; i++)
		if (tally_is_of(&t->v[i], folder))
			to->v[n++] = t->v[i];
	to->n = n;
}
