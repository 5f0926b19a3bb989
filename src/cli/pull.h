/* pull.h - fetching a model before it is loaded. */
#ifndef CLI_PULL_H
#define CLI_PULL_H

#include "cli/cli.h"

/* With --pull, fetches o->load.model unless it is a folder, a file or in the cache.  Errors are those of hub_pull. */
int pull_if_missing(const struct options *o, struct err *err);

#endif
