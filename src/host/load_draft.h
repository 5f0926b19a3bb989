/* load_draft.h - the drafters that the options ask for. */
#ifndef HOST_LOAD_DRAFT_H
#define HOST_LOAD_DRAFT_H

#include "host/host_opts.h"
#include "engine/engine.h"

/* Models that --draft-model may name; and the model's own head in addition. */
enum { DRAFT_MODELS_MAX = 5, DRAFT_SOURCES_MAX = DRAFT_MODELS_MAX + 1 };

/* A second model, or a draft head. */
struct draft_source {
	struct store *store; /* of --draft-model; NULL: the model's own head */
	struct model *model;
	bool head;
	size_t kv_bytes, prefix_bytes; /* what it may take for keys and values, for kept prefixes */
	struct drafter *drafter;       /* over it, once it is open */
	int *uses;                     /* of the model's own head: of its tensors before (store_uses); or NULL */
};

struct drafts {
	struct draft_source of[DRAFT_SOURCES_MAX]; /* [n_of] no two of a kind */
	int n_of;
	struct drafter *drafter[DRAFTERS_MAX]; /* [n] in the order in which they are asked */
	int n;
};

/* Binds what drafts for m, which was bound from st with that tokenizer (or NULL).
 * On an error, as after the rest, drafts_close. */
int drafts_bind(struct drafts *d, const struct host_opts *o, const struct model *m, struct store *st,
                const struct tokenizer *tok, struct err *err);
/* Tokens that will be drafted at most; 0: none. */
int drafts_tokens(const struct host_opts *o);
/* Bytes in all beyond what m takes, of the memory there is for everything. */
size_t drafts_plan(struct drafts *d, const struct host_opts *o, int ctx_max, size_t memory);
/* The model's own head, which is the last, or NULL where there is none, or where the options ask for a head. */
struct draft_source *drafts_own(struct drafts *d, const struct host_opts *o);
/* Leaves it out: st, the model's store, uses its tensors no more. */
void drafts_drop_own(struct drafts *d, struct store *st);
/* Opens the drafters, after m was attached, into eo.  tok NULL: the model has no tokenizer, and no drafter works from a
 * grammar. */
int drafts_open(struct drafts *d, const struct host_opts *o, struct model *m, const struct tokenizer *tok,
                struct engine_opts *eo, struct err *err);
/* After the engine is closed, before m. */
void drafts_close(struct drafts *d);

#endif
