/* log.c - see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

static atomic_int level_now = LOG_INFO, format_now = LOG_TEXT;
static const char *const names[] = { "error", "warn", "info", "debug" };

void log_set_level(enum log_level level)
{
	atomic_store(&level_now, (int)level);
}
enum log_level log_get_level(void)
{
	return (enum log_level)atomic_load(&level_now);
}
bool log_wants(enum log_level level)
{
	return (int)level <= atomic_load(&level_now);
}
void log_set_format(enum log_format format)
{
	atomic_store(&format_now, (int)format);
}

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

static void put_text(struct buf *b, const struct timespec *ts, enum log_level level, const char *message)
{
	struct tm tm;
	char clock[16];

	localtime_r(&ts->tv_sec, &tm);
	strftime(clock, sizeof clock, "%H:%M:%S", &tm);
	buf_printf(b, "%s.%03ld %-5s ", clock, ts->tv_nsec / 1000000, names[level]);
	for (const char *p = message; *p; p++)
		buf_putc(b, (unsigned char)*p < 0x20 && *p != '\t' ? ' ' : *p);
}

static void put_json(struct buf *b, const struct timespec *ts, enum log_level level, const char *message,
                     const char *members)
{
	struct tm tm;
	char clock[40];

	gmtime_r(&ts->tv_sec, &tm);
	strftime(clock, sizeof clock, "%Y-%m-%dT%H:%M:%S", &tm);
	buf_printf(b, "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"message\":", clock, ts->tv_nsec / 1000000,
	           names[level]);
	json_put_cstr(b, message);
	if (members)
		buf_printf(b, ",%s", members);
	buf_putc(b, '}');
}

void log_record(enum log_level level, const char *message, const char *members)
{
	struct timespec ts;
	struct buf b;

	if (!log_wants(level))
		return;
	clock_gettime(CLOCK_REALTIME, &ts);
	buf_init(&b);
	if (atomic_load(&format_now) == LOG_JSON)
		put_json(&b, &ts, level, message, members);
	else
		put_text(&b, &ts, level, message);
	buf_putc(&b, '\n');
	fwrite(b.p, 1, b.n, stderr); /* one call: lines of threads do not mix */
	buf_fini(&b);
}

void log_at(enum log_level level, const char *fmt, ...)
{
	char line[2048];
	va_list ap;

	if (!log_wants(level))
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	log_record(level, line, NULL);
}

void log_last_words(const char *message)
{
	bool json = atomic_load(&format_now) == LOG_JSON;
	const char *const part[] = { json ? "{\"level\":\"error\",\"message\":\"weft: " : "weft: ", message,
		                     json ? "\"}\n" : "\n" };
	char line[400];
	size_t n = 0;

	/* Neither stdio nor the heap: the interrupted thread may hold their locks. */
	for (int i = 0; i < 3; i++)
		for (const char *p = part[i]; *p && n < sizeof line; p++)
			line[n++] = *p;
	if (write(STDERR_FILENO, line, n) < 0)
		return; /* standard error is closed */
}
