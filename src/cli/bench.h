/* bench.h - the kinds of `weft bench`. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

struct options;

/* `weft bench serve URL`: a load on a server, over HTTP.  Returns the exit status. */
int bench_serve(const struct options *o);

#endif
