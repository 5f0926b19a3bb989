/* stream_files.h - a model's files, from which parts of it are read while it runs: experts (slabs.h) and rows of tables
 * (cpu/row_tables.h). */
#ifndef BACKEND_STREAM_FILES_H
#define BACKEND_STREAM_FILES_H

#include "backend/backend.h"

/* A matrix is up to three runs of bytes that lie apart: rows, scales, biases. */
enum { WEIGHT_RUNS = 3 };
struct weight_run {
	const uint8_t *p;
	size_t each; /* bytes of a row; 0: there is no such run */
};
void weight_runs(struct weight_run run[WEIGHT_RUNS], const struct weight *w);

/* The file of file[n_file] in whose mapping the n bytes at p lie; -1: in none. */
int stream_file_of(const struct stream_file *file, int n_file, const uint8_t *p, size_t n);
/* Do all bytes of w lie in these files? */
bool stream_files_have(const struct stream_file *file, int n_file, const struct weight *w);

/* Opens all of file[n_file] to be read directly; the caller closes *out.  E_IO, E_MISSING: one cannot be opened, or is not
 * the file that is mapped. */
int stream_files_open(struct read_file **out, const struct stream_file *file, int n_file, struct err *err);
void stream_files_close(struct read_file *file, int n_file); /* NULL is allowed */

/* How a read failed, for messages: an errno, or ENODATA (the file ended), ESTALE (it was changed), EBADMSG (wrong digest). */
const char *stream_fault_text(int fault);

#endif
