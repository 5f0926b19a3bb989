/* log.h - lines for a person, or for a machine, on standard error.
 *
 * One line per call, written whole, from any thread.  Standard output belongs
 * to answers and can be piped. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
/* TEXT: time, level, message.  JSON: one object with "time" (RFC 3339, UTC),
 * "level" and "message". */
enum log_format { LOG_TEXT, LOG_JSON };

void log_set_level(enum log_level level); /* default LOG_INFO */
enum log_level log_get_level(void);
int log_parse_level(const char *name, enum log_level *out); /* "error" "warn" "info" "debug"; 0 or E_ARG */
void log_set_format(enum log_format format);                /* default LOG_TEXT */
bool log_wants(enum log_level level);

/* A message longer than some 2,000 bytes is cut. */
void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Messages of any length. As text: the message; as JSON, also members: `"a":1,"b":"x"`,
 * which may not be empty nor hold a line break.  Control characters of a text
 * become blanks. */
void log_record(enum log_level level, const char *message, const char *members);

/* A line for the end, at level error, without a time: from a signal handler. */
void log_last_words(const char *message);

#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

#endif
