/* stream_files.c - see stream_files.h. */
#include "backend/stream_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void weight_runs(struct weight_run run[WEIGHT_RUNS], const struct weight *w)
{
	size_t scales = weight_scale_bytes(w);

	run[0] = (struct weight_run){ w->data, w->row_bytes };
	run[1] = (struct weight_run){ w->scales, w->scales ? scales : 0 };
	run[2] = (struct weight_run){ w->biases, w->biases ? scales : 0 };
}

int stream_file_of(const struct stream_file *file, int n_file, const uint8_t *p, size_t n)
{
	for (int i = 0; i < n_file; i++) {
		const struct file_map *map = file[i].map;

		if (p >= map->p && p < map->p + map->n && n <= (size_t)(map->p + map->n - p))
			return i;
	}
	return -1;
}

bool stream_files_have(const struct stream_file *file, int n_file, const struct weight *w)
{
	struct weight_run run[WEIGHT_RUNS];

	weight_runs(run, w);
	for (int k = 0; k < WEIGHT_RUNS; k++)
		if (run[k].each && stream_file_of(file, n_file, run[k].p, (size_t)w->rows * run[k].each) < 0)
			return false;
	return true;
}

/* Opens one of the files and checks that it is the one that is mapped. */
static int open_one(struct read_file *f, const struct stream_file *of, struct err *err)
{
	int rc = read_file_open(f, of->path, err);

	if (rc)
		return rc;
	if (f->id.device == of->map->id.device && f->id.inode == of->map->id.inode &&
	    f->id.bytes == of->map->id.bytes && f->id.modified_ns == of->map->id.modified_ns)
		return 0;
	read_file_close(f);
	return err_set(err, E_IO, "%s: changed since it was opened", of->path);
}

int stream_files_open(struct read_file **out, const struct stream_file *file, int n_file, struct err *err)
{
	struct read_file *f = xcalloc((size_t)n_file + 1, sizeof *f);

	*out = NULL;
	for (int i = 0; i < n_file; i++) {
		int rc = open_one(&f[i], &file[i], err);

		if (rc) {
			stream_files_close(f, i);
			return rc;
		}
	}
	*out = f;
	return 0;
}

void stream_files_close(struct read_file *file, int n_file)
{
	for (int i = 0; file && i < n_file; i++)
		read_file_close(&file[i]);
	free(file);
}

const char *stream_fault_text(int fault)
{
	return fault == ENODATA ? "the file ends too early" :
	       fault == ESTALE  ? "the file was changed" :
	       fault == EBADMSG ? "its bytes do not have their digest" :
	                          strerror(fault);
}
