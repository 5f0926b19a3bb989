/* plan.h - where the memory goes: decided before anything is loaded, by one owner.
 *
 * docs/memory.md says what each part is, how what is left open is shared out, and how far the plan is from what is
 * measured. */
#ifndef HOST_PLAN_H
#define HOST_PLAN_H

#include "base/buf.h"
#include "engine/engine.h"
#include "model/model.h"

struct host_opts;
struct session;

/* Where the memory goes, in bytes. */
struct plan {
	size_t weights;        /* mapped: shared with the page cache; without what stays on disk */
	size_t experts;        /* slots for those; 0: all experts are among the weights */
	size_t tables;         /* the buffer of rows of tables that stay on disk; 0: all tables are among the weights */
	size_t tables_disk;    /* bytes of those tables, which are not in memory */
	size_t program;        /* what it holds already: tokenizer, tables, itself; and the backend's own */
	size_t texts;          /* of program: long texts whose tokens are remembered (tokenizer_remember) */
	size_t step;           /* work memory and logits of the largest step */
	size_t states;         /* of the running sequences, tapes included */
	size_t kv;             /* the page pool */
	size_t prefix, parked; /* kept prefixes, their pages included; preempted sequences */
	size_t draft;          /* all that guessing ahead takes */
	struct plan_device {
		size_t memory; /* of it that may be used; 0: there is none */
		size_t weights, step, states, kv, prefix, draft;
	} device;                    /* what it has of the parts above; of the weights, copies */
	bool divided;                /* the device has a part of the model */
	size_t states_away, kv_away; /* of states and kv, what is on that device and not in the machine */
	int ctx_asked, ctx_fits;     /* context before memory had its say, and after */
};

/* Bytes in the machine; of a model that is whole on a device, in either. */
size_t plan_total(const struct plan *p);
/* Bytes that the process uses now, in coarse steps, so that one command gives one plan.  A sanitizer's own memory does
 * not count. */
size_t plan_program_bytes(void);
/* Plans a session whose model, drafters and formats of keys and values are bound, and fills *mo.  Reads step_rows, logit_rows
 * and n_draft of eo.  E_LIMIT: it does not fit. */
int plan_make(struct plan *p, struct model_opts *mo, struct session *s, const struct host_opts *o,
              const struct engine_opts *eo, struct err *err);

/* Shares memory between n > 1 models of one process, bound as for plan_make, which is called afterwards.  Sets each
 * o[i].memory_bytes to what the model takes at least and an equal share of what is left of `memory` bytes (0: of fifteen
 * sixteenths of the machine's).  E_LIMIT: nothing is left. */
int plan_share(struct session *s, struct host_opts *o, const struct engine_opts *eo, int n, size_t memory,
               struct err *err);

/* For a person: a line for each part, what is taken from the first request on and what at most. */
void plan_print(const struct plan *p, struct buf *out);

#endif
