/* image_files.h - files of the server's machine that requests may name: those below the folders that the command line lists.
 *
 * A folder is held open from the start on, and a path is followed below it component by component without following
 * links, so nothing that is renamed or linked meanwhile leads out of it. */
#ifndef SERVER_IMAGE_FILES_H
#define SERVER_IMAGE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { IMAGE_FILE_MAX = 64 << 20 }; /* bytes of a file */

struct image_folders {
	struct image_folder *v; /* [n] */
	int n;
};
/* path: [n] folders.  E_IO: one cannot be opened.  image_folders_close in either case. */
int image_folders_open(struct image_folders *f, const char *const *path, int n, struct err *err);
void image_folders_close(struct image_folders *f);

bool image_file_url(const char *url, size_t n); /* is it one of kind file:? */
/* The bytes of the regular file that a file: URL names, to be freed, and their number.  E_ARG: the URL is wrong or names
 * nothing below a folder, whether it exists or not; E_LIMIT: too large, or the allowance says no; E_FULL: no memory, or no
 * descriptor; E_MISSING, E_IO: it cannot be read.  Any thread, under its allowance. */
int image_file_read(const struct image_folders *f, const char *url, size_t n, uint8_t **bytes, size_t *n_bytes,
                    struct err *err);

#endif
