/* memory.c over made trees: control groups of both versions, nested, with and without limits, and the process's own limits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../check.h"
#include "base/memory.h"

static char root[] = "/tmp/weft-memory-XXXXXX";

/* Writes text under the root; folders are made. */
static void put(const char *name, const char *text)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", root, name);
	for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		mkdir(path, 0700);
		*p = '/';
	}
	f = fopen(path, "w");
	CHECK(f && fputs(text, f) >= 0 && !fclose(f), "%s", path);
}

static void is(const char *what, size_t total, size_t available)
{
	CHECK(memory_total() == total, "%s: %zu in all, not %zu", what, memory_total(), total);
	CHECK(memory_available() == available, "%s: %zu available, not %zu", what, memory_available(), available);
}

int main(void)
{
	struct rlimit was, now;
	char cmd[64];

	CHECK(mkdtemp(root), "mkdtemp");
	memory_root = root;
	put("proc/meminfo", "MemTotal:  1000000 kB\nMemFree: 5 kB\nMemAvailable:   600000 kB\n");
	is("no groups", 1024000000, 614400000);

	put("proc/self/cgroup", "0::/a.slice/b\n");
	put("sys/fs/cgroup/a.slice/b/memory.max", "max\n");
	is("a group without a limit", 1024000000, 614400000);
	put("sys/fs/cgroup/a.slice/memory.max", "500000000\n");
	put("sys/fs/cgroup/a.slice/memory.current", "300000000\n");
	put("sys/fs/cgroup/a.slice/memory.stat", "anon 5\ninactive_file 100000000\n");
	is("the limit of a group above", 500000000, 300000000);
	put("sys/fs/cgroup/a.slice/b/memory.max", "100000000\n");
	put("sys/fs/cgroup/a.slice/b/memory.current", "150000000\n");
	is("a group beyond its own limit", 100000000, 0);

	put("proc/self/cgroup", "9:pids:/x\n4:memory:/one\n0::/\n");
	put("sys/fs/cgroup/memory/one/memory.limit_in_bytes", "200000000\n");
	put("sys/fs/cgroup/memory/one/memory.usage_in_bytes", "150000000\n");
	put("sys/fs/cgroup/memory/one/memory.stat", "inactive_file 7\ntotal_inactive_file 50000000\n");
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	is("version 1", 200000000, 100000000);
	put("sys/fs/cgroup/memory/one/memory.limit_in_bytes", "nonsense\n");
	is("no number", 1024000000, 614400000);

	CHECK(!getrlimit(RLIMIT_DATA, &was), "getrlimit");
	now = (struct rlimit){ 80000000, was.rlim_max };
	CHECK(!setrlimit(RLIMIT_DATA, &now), "setrlimit");
	CHECK(memory_total() == 80000000, "RLIMIT_DATA: %zu", memory_total());
	CHECK(!setrlimit(RLIMIT_DATA, &was), "setrlimit");

	put("proc/pressure/memory", "some avg10=12.50 avg60=0.00 avg300=0.00 total=0\nfull avg10=9.00\n");
	CHECK(memory_pressure() == 0.125, "%f", memory_pressure());
	put("proc/self/cgroup", "0::/a.slice/b\n");
	put("sys/fs/cgroup/a.slice/b/memory.pressure", "some avg10=50.00 avg60=0.00 avg300=0.00 total=0\n");
	CHECK(memory_pressure() == 0.5, "%f, of the group", memory_pressure());
	put("proc/self/status", "VmRSS: 9 kB\nRssAnon:\t    300 kB\n");
	CHECK(memory_own() == 307200, "%zu", memory_own());
	snprintf(cmd, sizeof cmd, "rm -rf %s", root);
	CHECK(!system(cmd), "%s", cmd);
	return 0;
}
