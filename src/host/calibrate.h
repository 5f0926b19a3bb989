/* calibrate.h - what each matrix of a model is multiplied with while it reads a text. */
#ifndef HOST_CALIBRATE_H
#define HOST_CALIBRATE_H

#include "export/imatrix.h"
#include "host/host_opts.h"

/* Reads the text of a file with the model load->model in reference arithmetic, on the processor; a form feed begins a new text.
 * Means of squared inputs, under the names of the store and, where the file has other ones, under those as well.  On an error *m
 * is empty; otherwise the caller frees it (imatrix_fini). */
int calibrate(struct imatrix *m, const char *text, const struct host_opts *load, struct err *err);

#endif
