/* known_models.h - the models that the server knows, and what belongs to each of them.
 *
 * A request names its model in its body.  The model is chosen before anything else is read of the body, and what the request
 * needs afterwards hangs off the chosen model (x->model), not off the server.
 *
 * A model that has a source is loaded when a request names it.  Where memory for it is missing, models that were used least
 * lately are unloaded first: no new request gets them, and when the last that has them has ended they go.  So a running answer
 * is never cut off.  One thread loads and unloads; the workers of requests that wait have stepped aside. */
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

enum known_phase { KNOWN_ON_DISK, KNOWN_LOADING, KNOWN_LOADED, KNOWN_UNLOADING };

/* One model. */
struct known_model {
	struct server *srv;
	uint64_t serial;            /* no other model of this process has it */
	struct served about;        /* constant: its names and properties, without what is open while it is loaded */
	struct model_source source; /* open NULL: it is always loaded */
	struct adapter_scales adapter_scales;

	/* Under the lock of known_models. */
	enum known_phase phase;
	size_t bytes;    /* of the budget, while it is not on disk */
	int refs;        /* requests that have it */
	int waiting;     /* requests that wait for it */
	int64_t grants;  /* how often those that waited were given it, all at once */
	uint64_t wanted; /* rises with the time of the first that waits; 0: none does */
	int64_t idle_ns; /* it is unloaded after so long without a request; INT64_MAX: never */
	int64_t used_ns; /* clock: when the last request ended */
	bool leaving;    /* its memory is wanted: no further request gets it */
	bool asleep;     /* by /sleep: it is unloaded, and requests are refused */
	bool removed;    /* from the list: it is unloaded like one that sleeps, and then freed */
	bool due;        /* it is loaded though no request waits for it: it was added and is pinned */
	int64_t loads, failures;
	struct err why; /* of the last failure */

	/* While it is loaded: made by its source, and from that. */
	struct served served;
	int longest_token;            /* bytes */
	struct roles roles[2];        /* of a model with a chat template; [1]: of requests that show tools */
	struct tool_needs tool_needs; /* of a model with a chat template */
	struct image_store images;
	struct grammar_store grammars;
	pthread_mutex_t vocab_lock;
	struct vocab *vocab; /* for structured.c: made under vocab_lock, constant once it is there */
};

struct known_models {
	pthread_mutex_t lock;
	pthread_cond_t work;      /* for the thread that loads */
	pthread_cond_t changed;   /* for requests that wait */
	struct known_model **v;   /* [n]; the first n_listed have names, those behind them were removed */
	int n, n_listed;          /* v[0] is the model of requests that name none */
	int n_waiting;            /* requests, for all models */
	uint64_t serials, wishes; /* the last ones given */
	size_t budget;            /* bytes of all that are loaded */
	pthread_t thread;
	void (*reread)(void *arg); /* see server_begin_several */
	void *reread_arg;
	bool threaded, stop, reread_asked;
};

void known_init(struct server *s);
/* Adds a model that is open, and stays so until the server is closed. */
void known_add(struct server *s, const struct served *served);
/* As server_set_models in server.h. */
void known_set(struct server *s, const struct model_source *src, int n);
/* Loads what is pinned, and the first model, on the calling thread; then starts the thread that loads and unloads. */
int known_begin(struct server *s, size_t budget, struct err *err);
/* Has the thread that loads call k->reread.  False: there is none. */
bool known_reread(struct server *s);
/* Requests that wait are refused from now on. */
void known_stop(struct server *s);
/* After known_stop, when no request has a model: unloads all. */
void known_close(struct server *s);

/* ---- by requests ---- */

/* Sets x->model as the member "model" of a body says, and waits until it is loaded.  A body without it means the default; so
 * does a value that is not a string, which model_read refuses.  ollama's clients write "name" as well, add ":latest",
 * and say in "keep_alive" for how long the model stays.  Not 0: *p's status.  On a worker. */
int known_choose(struct exchange *x, const struct json *body, struct problem *p);
/* Appends the name in ?model=NAME of the path, or "default" where there is none.  Not 0: *p's status. */
int known_name(const struct exchange *x, struct buf *name, bool *given, struct problem *p);
/* Sets x->model as ?model=NAME of the path says; without it the default.  Waits for nothing: a model that is not loaded is a
 * 503 in *p. */
int known_ask(struct exchange *x, struct problem *p);
/* x has ended.  IO thread. */
void known_release(struct exchange *x);
/* A request that may wait for a model was given up. */
void known_wake(struct server *s);
/* The model that a request waits for, and why it has to wait. */
struct known_waits {
	char name[100]; /* the model's */
	char why[100];  /* the model's position among those that are to be loaded, and the reason */
};
/* False: x waits for no model, or is not answered with a stream of events.  IO thread. */
bool known_waits(const struct exchange *x, struct known_waits *out);

/* ---- looking ---- */

/* What m is: served while it is loaded, else about.  Under the lock, as in known_each. */
static inline const struct served *known_as(const struct known_model *m)
{
	return m->phase == KNOWN_LOADED ? &m->served : &m->about;
}
/* "loaded", "unloaded", "loading", "unloading", "asleep" or "failed". */
const char *known_phase_name(const struct known_model *m);

/* Calls fn for each, in order, under the lock: fn must not wait, nor call anything of this header. */
void known_each(struct server *s, void (*fn)(void *arg, const struct known_model *m), void *arg);
/* Calls fn in the same way for the model with this name, alias or adapter's name.  Not 0: there is none, and *p is a 404 that
 * lists the names there are. */
int known_one(struct server *s, const char *name, size_t n, void (*fn)(void *arg, const struct known_model *m),
              void *arg, struct problem *p);
/* Requests that wait for models and in the engines of those that are loaded. */
int known_waiting(struct server *s);

/* ---- orders ---- */

/* The models of that name, or all where name is NULL: sleep unloads them when their requests have ended, and refuses others
 * until they are woken.  Returns how many there are.  IO thread. */
int known_sleep(struct server *s, const char *name, size_t n, bool asleep);

#endif
