/* trial.h - a model folder or file of a fuzzer: refused in one line, or run. */
#ifndef TESTS_FUZZ_TRIAL_H
#define TESTS_FUZZ_TRIAL_H

#include "base/err.h"

/* Aborts unless rc is 0 or the message is one line. */
void trial_refusal(int rc, const struct err *err);
/* Binds the model at path and its draft head, and runs it in both arithmetics: a prompt in one step must leave the bits of its
 * last row that it leaves token by token.  Aborts where it does not. */
void trial_model(const char *path);

#endif
