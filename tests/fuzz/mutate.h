/* mutate.h - what a target tells the mutator of JSON (mutate_json.c). */
#ifndef TESTS_FUZZ_MUTATE_H
#define TESTS_FUZZ_MUTATE_H

/* A member whose value chooses how the rest of a document is read, as model_type does.  Returns one of its values, of any i, as
 * JSON that stands until the next call. */
const char *mutate_choice(unsigned i, const char **key);

#endif
