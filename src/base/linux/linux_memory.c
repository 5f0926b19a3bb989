/* linux_memory.c - see base/memory.h: /proc, control groups, pressure stall information. */
#include "base/memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"

const char *memory_root = "";

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* A small file of the system's, ended by a 0; false: it is not there. */
static bool read_small(struct buf *out, const char *path)
{
	struct err none = { 0 };
	struct buf whole;
	bool there;

	buf_init(&whole);
	buf_printf(&whole, "%s%s", memory_root, path);
	buf_reset(out);
	there = !file_read(whole.p, 1 << 20, out, &none);
	buf_fini(&whole);
	if (there)
		buf_putc(out, 0);
	return there;
}

/* The number behind `name` in lines of "name number"; def: there is none. */
static size_t field(const char *text, const char *name, size_t def)
{
	const size_t n = strlen(name);

	for (const char *at = text; at && *at; at = strchr(at, '\n'), at += at != NULL)
		if (!strncmp(at, name, n) && (at[n] == ' ' || at[n] == ':'))
			return (size_t)strtoull(at + n + 1, NULL, 10);
	return def;
}

/* ---- control groups ---- */

/* A version of the interface: where it is mounted, and its files' names. */
struct version {
	const char *mount, *max, *now, *cache;
};
static const struct version versions[] = {
	{ "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file" },
	{ "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file" },
};

/* The number in a file of a group; SIZE_MAX: "max", or none. */
static size_t number(struct buf *b, const char *mount, const char *group, const char *name)
{
	struct buf path;
	bool there;

	buf_init(&path);
	buf_printf(&path, "%s%s/%s", mount, group, name);
	there = read_small(b, path.p);
	buf_fini(&path);
	return there && *b->p >= '0' && *b->p <= '9' ? (size_t)strtoull(b->p, NULL, 10) : SIZE_MAX;
}

/* The path of this process's group: of version 2, whose line begins with "0::", or of version 1's memory controller. */
static bool group_of(char *out, size_t cap, int version)
{
	struct buf b;
	bool found = false;

	buf_init(&b);
	for (char *line = read_small(&b, "/proc/self/cgroup") ? b.p : NULL; line && *line && !found;) {
		char *end = line + strcspn(line, "\n"), *at = strchr(line, ':'),
		     *path = at ? strchr(at + 1, ':') : NULL;

		if (path && path < end) {
			bool mine = version ? !strncmp(at, ":memory:", 8) : !strncmp(line, "0::", 3);

			found = mine && (size_t)(end - path - 1) < cap;
			if (found)
				snprintf(out, cap, "%.*s", (int)(end - path - 1), path + 1);
		}
		line = *end ? end + 1 : end;
	}
	buf_fini(&b);
	return found;
}

/* Cuts the last part off; false: it was the root. */
static bool up(char *group)
{
	char *slash = strrchr(group, '/');

	if (!slash || !*group)
		return false;
	*slash = '\0';
	return true;
}

struct groups {
	size_t total, available; /* the least of all groups */
};

static void look_at(struct groups *g, const struct version *v, const char *group, struct buf *b)
{
	size_t max = number(b, v->mount, group, v->max), now, cache;
	struct buf path;

	if (max == SIZE_MAX || !max)
		return;
	now = number(b, v->mount, group, v->now);
	now = now == SIZE_MAX ? 0 : now;
	buf_init(&path);
	buf_printf(&path, "%s%s/memory.stat", v->mount, group);
	cache = read_small(b, path.p) ? field(b->p, v->cache, 0) : 0;
	buf_fini(&path);
	now -= least(cache, now);
	g->total = least(g->total, max);
	g->available = least(g->available, max > now ? max - now : 0);
}

static struct groups groups(void)
{
	enum { PATH = 4096 };
	struct groups g = { SIZE_MAX, SIZE_MAX };
	char group[PATH];
	struct buf b;

	buf_init(&b);
	for (int i = 0; i < 2; i++) {
		if (!group_of(group, sizeof group, i))
			continue;
		if (!strcmp(group, "/"))
			*group = '\0';
		do
			look_at(&g, &versions[i], group, &b);
		while (up(group));
	}
	buf_fini(&b);
	return g;
}

/* ---- the machine ---- */

static size_t limit(int which)
{
	struct rlimit r;

	return getrlimit((__rlimit_resource_t)which, &r) || r.rlim_cur == RLIM_INFINITY ? SIZE_MAX : (size_t)r.rlim_cur;
}

/* A line of kilobytes; def: there is none. */
static size_t kilobytes(const char *path, const char *name, size_t def)
{
	struct buf b;
	size_t kb;

	buf_init(&b);
	kb = read_small(&b, path) ? field(b.p, name, 0) : 0;
	buf_fini(&b);
	return kb ? kb * 1024 : def;
}

size_t memory_total(void)
{
	size_t machine = kilobytes("/proc/meminfo", "MemTotal", (size_t)4 << 30);

	machine = least(machine, least(limit(RLIMIT_AS), limit(RLIMIT_DATA)));
	return least(machine, groups().total);
}

size_t memory_available(void)
{
	return least(kilobytes("/proc/meminfo", "MemAvailable", memory_total()), groups().available);
}

size_t memory_own(void)
{
	return kilobytes("/proc/self/status", "RssAnon", 0);
}

size_t memory_resident(void)
{
	return kilobytes("/proc/self/status", "VmRSS", 0);
}

/* The share in a file of PSI; below 0: it is not there. */
static double pressure_in(struct buf *b, const char *path)
{
	const char *at = read_small(b, path) ? strstr(b->p, "some avg10=") : NULL;

	return at ? strtod(at + strlen("some avg10="), NULL) / 100 : -1;
}

double memory_pressure(void)
{
	enum { PATH = 4096 };
	char group[PATH];
	struct buf path, b;
	double share = -1;

	buf_init(&path);
	buf_init(&b);
	if (group_of(group, sizeof group, 0)) {
		buf_printf(&path, "%s%s/memory.pressure", versions[0].mount, group);
		share = pressure_in(&b, path.p);
	}
	if (share < 0)
		share = pressure_in(&b, "/proc/pressure/memory");
	buf_fini(&path);
	buf_fini(&b);
	return share > 0 ? share : 0;
}
