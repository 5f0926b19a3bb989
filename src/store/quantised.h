/* quantised.h - matrices as mlx-lm's quantiser leaves them.  Inside src/store/. */
#ifndef STORE_QUANTISED_H
#define STORE_QUANTISED_H

#include "store/store.h"

/* A matrix asked for: n = 0 for [rows][cols], else a stack [n][rows][cols]. */
struct wanted {
	int n, rows, cols;
	bool flat; /* cols is the product of all dimensions but the first */
};

/* Reads "quantization" (or a "quantization_config" of the same form) into
 * st->coded, dflt and entry.  E_UNSUPPORTED for other quantisation methods. */
int coded_read_config(struct store *st, struct err *err);

/* The config's quantisation entry for the module path (no ".weight"): the entry of that
 * path, the default, or NULL when the config has neither. */
const struct quant_entry *coded_entry(const struct store *st, const char *path);

/* Corrects tensor.elements of coded modules, for the parameter count. */
void coded_count_elements(struct store *st);

#endif
