/* new_path.h - paths that options name for something that a command makes. */
#ifndef CLI_NEW_PATH_H
#define CLI_NEW_PATH_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

/* Appends the path of something that is to be made, in a folder that is there: a folder, whose name shells end in a slash, or
 * a file. */
int new_path(struct buf *out, const char *option, const char *path, bool folder, struct err *err);

#endif
