/* far.h - a backend whose memory is far away: the CPU backend with everything that
 * alloc() gave out unreadable except while one of its operations runs.  Code
 * that follows a pointer it should not, as it may not on a GPU, dies of SIGSEGV.
 *
 * What models place it copies there and spoils where it was: vectors become no numbers,
 * mapped files unreadable.  An operation that is given other weights or vectors than placed
 * ones dies of an assert.  The tables and views of a pass are copied when it begins, and the copies go when it ends: an
 * operation outside of a pass, or with a view or a table that the pass did not have when it began, dies of an assert. */
#ifndef TESTS_BACKEND_FAR_H
#define TESTS_BACKEND_FAR_H

#include "backend/backend.h"

/* Wraps inner and owns it: close() closes both. */
struct backend *far_open(struct backend *inner);
/* A far backend that leaves what models place readable on the host, so that another backend can read it too. */
struct backend *far_open_beside(struct backend *inner);
/* Makes the device of a far backend fail in the calls-th begin, end or read from now, and in all later ones: E_DEVICE.
 * Operations do nothing from then on. */
void far_fail(struct backend *be, int calls);

#endif
