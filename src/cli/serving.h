/* serving.h - a model that is open, as the server wants it.  Inside src/cli/. */
#ifndef CLI_SERVING_H
#define CLI_SERVING_H

#include "cli/cli.h"

struct served;
struct server;
struct session;
struct serving;
struct several;

/* Opens o's model. */
int serving_open(struct serving **out, const struct options *o, struct err *err);
/* Stays until serving_close. */
const struct served *serving_served(const struct serving *v);
/* Ends the engine: it calls nothing of the server afterwards. */
void serving_stop(struct serving *v);
void serving_close(struct serving *v);
/* Fills *d with what is known of a session, which may be opened with LOAD_PLAN.  names: what d's names point to, to be freed. */
void serving_fill(const struct options *o, const struct session *s, struct served *d, char **names);

/* Plans the models o->model[] and offers them to the server. */
int several_begin(struct several **out, struct server *server, const struct options *o, struct err *err);
/* After server_close. */
void several_end(struct several *v);

#endif
