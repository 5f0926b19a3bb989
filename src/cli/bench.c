/* bench.c - `weft bench`: the way to one of its kinds. */
#include "cli/bench.h"
#include "cli/cli.h"

int cmd_bench(const struct options *o)
{
	struct err err;

	if (o->url)
		return bench_serve(o);
	err_set(&err, E_ARG, "only `weft bench serve URL` is there");
	return cli_fail("bench", &err);
}
