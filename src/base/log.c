/* log.c - see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/err.h"

static atomic_int level_now = LOG_INFO;
static const char *const names[] = { "error", "warn", "info", "debug" };

void log_set_level(enum log_level level) { atomic_store(&level_now, (int)level); }
enum log_level log_get_level(void) { return (enum log_level)atomic_load(&level_now); }

int log_parse_level(const char *name, enum log_level *out)
{
	for (int i = 0; i < 4; i++) {
		if (!strcmp(name, names[i])) {
			*out = (enum log_level)i;
			return 0;
		}
	}
	return E_ARG;
}

void log_at(enum log_level level, const char *fmt, ...)
{
	char line[2048];
	struct timespec ts;
	struct tm tm;
	va_list ap;
	size_t n;
	int k;

	if ((int)level > atomic_load(&level_now))
		return;
	clock_gettime(CLOCK_REALTIME, &ts);
	localtime_r(&ts.tv_sec, &tm);
	n = strftime(line, sizeof line, "%H:%M:%S", &tm);
	k = snprintf(line + n, sizeof line - n, ".%03ld %-5s ", ts.tv_nsec / 1000000, names[level]);
	n += (size_t)k;
	va_start(ap, fmt);
	k = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
	va_end(ap);
	if (k < 0)
		k = 0;
	n += (size_t)k;
	if (n > sizeof line - 2)
		n = sizeof line - 2;
	line[n++] = '\n';
	fwrite(line, 1, n, stderr);       /* one call: lines of threads do not mix */
}
