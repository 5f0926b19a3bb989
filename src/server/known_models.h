/* known_models.h - the models that the server knows, and what belongs to each of them.
 *
 * A request names its model in its body.  The model is chosen before anything else is read of the body, and what the request
 * needs afterwards hangs off the chosen model (x->model), not off the server. */
#ifndef SERVER_KNOWN_MODELS_H
#define SERVER_KNOWN_MODELS_H

#include <pthread.h>
#include <stdint.h>

#include "server/chat/adapters.h"
#include "server/chat/grammar_store.h"
#include "server/chat/roles.h"
#include "server/chat/shown_tools.h"
#include "server/images/images.h"
#include "server/server.h"

struct exchange;
struct vocab;

/* One model. */
struct known_model {
	struct server *srv;
	uint64_t serial; /* no other model of this process has it */
	struct served served;
	struct adapter_scales adapter_scales;

	/* Made from `served` by known_fill. */
	int longest_token;            /* bytes */
	struct roles roles[2];        /* of a model with a chat template; [1]: of requests that show tools */
	struct tool_needs tool_needs; /* of a model with a chat template */
	struct image_store images;
	struct grammar_store grammars;
	pthread_mutex_t vocab_lock;
	struct vocab *vocab; /* for structured.c: made under vocab_lock, constant once it is there */
};

struct known_models {
	struct known_model **v; /* [n]; the first is that of requests that name none */
	int n;
};

/* Adds a model that is open, and stays so until the server is closed. */
void known_add(struct server *s, const struct served *served);
void known_close(struct server *s);

/* The model of requests that name none.  There is one after server_begin. */
struct known_model *known_default(const struct server *s);
/* The model that has this name, alias or adapter's name.  NULL: none has, and no model takes any name. */
struct known_model *known_find(const struct server *s, const char *name, size_t n);
/* Fills p with a 404 that lists the names there are; returns its status. */
int known_unknown(const struct server *s, const char *name, size_t n, struct problem *p);

/* Sets x->model as the member "model" of a body says.  A body without it means the default; so does a value that is not a
 * string, which model_read refuses.  ollama's clients write "name" as well, and add ":latest".  On a worker. */
int known_choose(struct exchange *x, const struct json *body, struct problem *p);

/* Requests that wait in the engines of all models. */
int known_waiting(const struct server *s);

#endif
