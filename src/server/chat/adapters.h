/* adapters.h - the adapters (LoRA) of the model that is served, and which of them a request has: docs/adapters.md. */
#ifndef SERVER_ADAPTERS_H
#define SERVER_ADAPTERS_H

#include <pthread.h>

#include "base/json.h"
#include "engine/engine.h"
#include "server/http/problem.h"
#include "server/server.h"

/* Scales of adapters for requests that name the model itself: set by POST /lora-adapters, all 0 at first. */
struct adapter_scales {
	pthread_mutex_t lock;
	float of[SERVED_ADAPTERS_MAX];
};
void adapter_scales_init(struct adapter_scales *s);
void adapter_scales_fini(struct adapter_scales *s);

/* The adapters of one request. */
struct wanted_adapters {
	const char *name; /* of the one that its `model` names; NULL: that is the model itself */
	const struct adapter *of[SERVED_ADAPTERS_MAX];
	float scale[SERVED_ADAPTERS_MAX];
	int n;
};

/* The adapter of that name; -1: there is none. */
int adapter_named(const struct served *d, const char *name, size_t n);
/* Fills w from a body's `lora`, a list of {"id", "scale"} as llama-server has it; else from model[0..n), the name that it
 * gives; else from scales.  Returns 0 or *p's status. */
int adapters_read(struct wanted_adapters *w, const struct served *d, struct adapter_scales *scales, const char *model,
                  size_t n, const struct json *body, struct problem *p);
static inline struct ask_adapters adapters_ask(const struct wanted_adapters *w)
{
	return (struct ask_adapters){ w->of, w->scale, w->n };
}

#endif
