/* err.h - how a function says what went wrong.
 *
 * There are three kinds of failure. A fault of weft itself is an assert.
 * Running out of memory aborts (alloc.h).  Everything else returns 0 or one of the codes below;
 * a function whose failure a person will read takes a struct err * last and
 * fills it with what, where, and the two values that disagree. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

enum {
	E_ARG = -1,         /* the caller's input is not acceptable */
	E_FORMAT = -2,      /* bytes from outside do not follow their format */
	E_MISSING = -3,     /* something named is not there */
	E_FULL = -4,        /* a budget is used up; nothing was changed */
	E_IO = -5,          /* the operating system refused */
	E_GONE = -6,        /* cancelled, or the other side left */
	E_LIMIT = -7,       /* larger than a named limit */
	E_UNSUPPORTED = -8, /* known, and not done by this version */
	E_LATE = -9,        /* a deadline passed, or would */
	E_FAULT = -10,      /* a fault of ours ended it (fault.h) */
	E_MEMORY = -11,     /* the heap was empty: ended in the same way */
	E_DEVICE = -12,     /* a device that computes failed */
};

struct err {
	int code;
	char msg[512];
};

/* Formats the message, replacing an earlier one, and returns code.  Control bytes, which may come from what is quoted,
 * become '?': a message is one line, and says nothing to a terminal.  err may be NULL: then only the code is
 * returned. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "text: " before the message that is there.  Returns err->code. */
int err_prefix(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The code's name for logs: "format", "missing", ... */
const char *err_name(int code);

#endif
