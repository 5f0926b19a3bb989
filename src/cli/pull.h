/* pull.h - fetching a model before it is loaded. */
#ifndef CLI_PULL_H
#define CLI_PULL_H

#include "cli/cli.h"

/* With --pull, fetches o->model where neither a folder, a file nor the cache has it.  Any code of hub_pull. */
int pull_if_missing(const struct options *o, struct err *err);

#endif
