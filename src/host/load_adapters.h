/* load_adapters.h - the adapters that --lora names. */
#ifndef HOST_LOAD_ADAPTERS_H
#define HOST_LOAD_ADAPTERS_H

#include "host/host_opts.h"
#include "engine/engine.h"
#include "model/model.h"

/* One of them: NAME=PATH[,SCALE]. */
struct loaded_adapter {
	struct adapter *of;
	char *name, *path;
	float scale;
};
struct loaded_adapters {
	struct loaded_adapter *v;
	int n;
	/* All of them, each at its scale, for commands without a server. */
	const struct adapter **all;
	float *scale;
};

/* For a model that is attached; to be closed in any case, after the engine. */
int load_adapters(struct loaded_adapters *a, const struct texts *given, struct model *m, struct err *err);
void loaded_adapters_close(struct loaded_adapters *a);
static inline struct ask_adapters loaded_ask(const struct loaded_adapters *a)
{
	return (struct ask_adapters){ a->all, a->scale, a->n };
}

#endif
