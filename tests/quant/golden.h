/* golden.h - reference tensors of ../shared/golden, for the tests of quant and backend. */
#ifndef TESTS_QUANT_GOLDEN_H
#define TESTS_QUANT_GOLDEN_H

#include <stddef.h>
#include <stdint.h>

struct golden;

/* Opens shared/golden/<path>: shared is $WEFT_SHARED or ../shared beside the
 * source tree; or tests/golden/<path>, which may have fewer tensors.  NULL, with a
 * line that says so, when there is neither. */
struct golden *golden_open(const char *path);
void golden_close(struct golden *g);
/* A tensor's bytes, or NULL.  dim[0..3] gets its shape, 1 where it has fewer axes. */
const void *golden_get(const struct golden *g, const char *name, int dim[4]);

#endif
