/* served.h - a model that is served, for fuzz targets of the server: a template and a
 * tokenizer of single bytes, and no engine. */
#ifndef TESTS_FUZZ_SERVED_H
#define TESTS_FUZZ_SERVED_H

#include "server/server.h"

/* Made by the first call; lives as long as the program. */
const struct served *fuzz_served(void);

#endif
