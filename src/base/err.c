/* err.c - see err.h. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Messages quote what files and requests say. */
static void one_line(struct err *err)
{
	for (char *p = err->msg; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return code;
	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->msg, sizeof err->msg, fmt, ap);
	va_end(ap);
	one_line(err);
	return code;
}

int err_prefix(struct err *err, const char *fmt, ...)
{
	char old[sizeof err->msg];
	va_list ap;
	int n;

	if (!err)
		return E_FORMAT;
	memcpy(old, err->msg, sizeof old);
	va_start(ap, fmt);
	n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof err->msg)
		snprintf(err->msg + n, sizeof err->msg - (size_t)n, ": %s", old);
	one_line(err);
	return err->code;
}

const char *err_name(int code)
{
	switch (code) {
	case 0: return "ok";
	case E_ARG: return "argument";
	case E_FORMAT: return "format";
	case E_MISSING: return "missing";
	case E_FULL: return "full";
	case E_IO: return "io";
	case E_GONE: return "gone";
	case E_LIMIT: return "limit";
	case E_UNSUPPORTED: return "unsupported";
	case E_LATE: return "late";
	case E_FAULT: return "fault";
	case E_MEMORY: return "memory";
	case E_DEVICE: return "device";
	}
	return "unknown";
}
