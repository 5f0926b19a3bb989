/* far.h - a backend whose memory is far away: the CPU backend with everything that
 * alloc() gave out unreadable except while one of its operations runs.  Code
 * that follows a pointer it should not, as it may not on a GPU, dies of SIGSEGV. */
#ifndef TESTS_BACKEND_FAR_H
#define TESTS_BACKEND_FAR_H

#include "backend/backend.h"

/* Wraps inner and owns it: close() closes both. */
struct backend *far_open(struct backend *inner);

#endif
