/* log.h - lines for a person on standard error.
 *
 * One line per call, written whole, from any thread.  Standard output belongs
 * to answers and can be piped. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level);               /* default LOG_INFO */
enum log_level log_get_level(void);
int log_parse_level(const char *name, enum log_level *out);   /* "error" "warn" "info" "debug"; 0 or E_ARG */
void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

#endif
