/* names.h - names of the hub, and how they are written in URLs and on disk.  Inside src/hub/. */
#ifndef HUB_NAMES_H
#define HUB_NAMES_H

#include <stdbool.h>

#include "base/buf.h"

enum { HUB_COMMIT = 40, HUB_SHA256 = 64 };

/* NAME or ORG/NAME as the hub allows them; nothing that could lead out of a folder. */
bool hub_is_name(const char *s);
/* A path of a repository that is safe as a file name below a folder: relative, no "..", ".", empty part or backslash. */
bool hub_is_path(const char *s);
/* n digits of lower-case hexadecimal, and no more. */
bool hub_is_hex(const char *s, size_t n);
/* The name of a blob: hexadecimal digits of a SHA-256, or of git's SHA-1. */
bool hub_is_digest(const char *s);
/* Appends s with % escapes; slashes stay where keep_slashes. */
void hub_put_escaped(struct buf *b, const char *s, bool keep_slashes);
/* Appends "/NAME/resolve/REVISION/PATH". */
void hub_put_resolve(struct buf *b, const char *name, const char *revision, const char *path);
/* Appends "models--ORG--NAME". */
void hub_put_folder(struct buf *b, const char *name);
/* Appends where the link at snapshots/COMMIT/PATH leads: "../../blobs/DIGEST". */
void hub_put_link(struct buf *b, const char *path, const char *digest);
/* Appends the URL of a path on the host of another URL. */
void hub_put_relative(struct buf *b, const char *url, const char *path);
/* Whether two URLs have the same scheme, host and port. */
bool hub_same_origin(const char *a, const char *b);

#endif
