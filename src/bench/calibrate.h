/* calibrate.h - what each matrix of a model is multiplied with while it reads a text. */
#ifndef BENCH_CALIBRATE_H
#define BENCH_CALIBRATE_H

#include "cli/cli.h"
#include "export/imatrix.h"

/* Reads the text o->calibrate with the model o->load.model in reference arithmetic; a form feed begins a new text.  Means of squared
 * inputs, under the names of the store and, where the file has other ones, under those as well.  On an error *m is empty. */
int calibrate(struct imatrix *m, const struct options *o, struct err *err);

#endif
