/* self_test.h - does a device compute what the processor does?  Norms, activations and products of small data, by memcmp. */
#ifndef BACKEND_DEVICE_SELF_TEST_H
#define BACKEND_DEVICE_SELF_TEST_H

#include "base/err.h"

struct backend;

/* E_UNSUPPORTED: it does not, and what differs.  Some milliseconds, and the time to compile the kernels where the driver has not kept
 * them. */
int self_test(struct backend *, struct err *);

#endif
