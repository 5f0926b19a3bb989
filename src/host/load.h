/* load.h - from options to an open model, with progress for a caller that shows it.
 *
 * Shared by the commands that need one.  Errors are the one line a person sees. */
#ifndef HOST_LOAD_H
#define HOST_LOAD_H

#include "base/json.h"
#include "host/host_opts.h"
#include "host/huge_pages.h"
#include "host/load_adapters.h"
#include "host/load_draft.h"
#include "host/plan.h"
#include "engine/engine.h"
#include "model/model.h"
#include "store/store.h"
#include "text/jinja/template.h"
#include "text/tokens/tokenizer.h"

enum {
	LOAD_TOKENIZER = 1, /* it is an error when the folder has none */
	LOAD_TEMPLATE = 2,  /* the chat template, if there is one */
	LOAD_ENGINE = 4,    /* weights, caches, engine */
	LOAD_LOGITS = 8,    /* the engine gives the logits of all rows */
	LOAD_BY_HAND = 16,  /* the engine has no thread: the caller runs engine_step */
	LOAD_HUGE = 32,     /* weights go to huge pages where possible, in the background */
	LOAD_HUGE_NOW = 64, /* weights go to huge pages before the model is open */
	LOAD_PLAN = 128,    /* with LOAD_ENGINE: no further than to say what it would take (session.plan) */
	LOAD_TOWER = 256,   /* what reads images and sounds, if the model has it */
	LOAD_DEVICE = 512,  /* with LOAD_PLAN: opens the device too, for the plan of its memory */
};

struct ear;
struct embedder;
struct pack;
struct tower;

enum { EOS_MAX = 16 };

/* How messages become a prompt, and what ends an answer. */
struct session_chat {
	struct template *tmpl;      /* NULL: none */
	struct template *tool_tmpl; /* of requests with tools, where the model has another for them; NULL: tmpl */
	struct json *args;          /* object of variables from the options, or NULL */
	char *bos, *eos;            /* as the template wants them, or NULL */
	int32_t eos_id[EOS_MAX];    /* ids that end an answer */
	int n_eos;
};

struct session {
	struct store *store;
	struct tokenizer *tok; /* NULL: the folder has none */
	struct session_chat chat;
	struct sampler_params sampling;               /* the checkpoint's, under what the options say */
	struct logit_bias suppressed[SUPPRESSED_MAX]; /* of sampling */

	int step_rows;      /* most tokens of a step: as the options say, or as suits the model */
	struct kv_pair *kv; /* [layers_attn] how keys and values are written */

	struct plan plan;
	size_t text_bytes;    /* of the tokenizer and template, in coarse steps */
	bool follows;         /* another session of sessions_open came before it, whose plan counts the program */
	struct backend *be;   /* of the model */
	struct backend *cpu;  /* of what stays on the processor: be, unless that is a device's */
	size_t device_bytes;  /* that may be used of the memory of be's device; 0: be is cpu */
	bool divided;         /* be has cpu, for a part of the model */
	int device_layers;    /* which part the device has: DEVICE_* of load_device.h, or its first layers */
	struct model *looked; /* see load_device.h */
	struct model *model;
	struct tower *tower;       /* NULL: the model has none that weft reads, or it was not asked for */
	struct err no_tower;       /* why the model's tower cannot be bound; code 0: it can, or there is none */
	struct embedder *embedder; /* with LOAD_ENGINE: what is made of its rows */
	struct ear *ear;           /* the same for sounds */
	struct err no_ear;
	size_t image_bytes; /* what images and sounds that are kept may take, of the budget of prefixes */
	struct drafts drafts;
	struct loaded_adapters adapters;
	struct pack **pack; /* [n_pack] of --pack: load_packs.h */
	int n_pack;
	struct digest identity; /* of a model that keeps prefixes on disk */
	struct engine *engine;
	struct huge_pages huge;
};

/* MODEL as it was asked for, or WEFT_MODEL, or the bundled one of the
 * program: ../share/weft/models/weft-tiny, or ../models/weft-tiny in a tree. */
int model_name(const struct host_opts *o, struct buf *out, struct err *err);
/* Is that the bundled model, because none was named? */
bool model_is_bundled(const struct host_opts *o);

/* The store of that model, with the tower that --mmproj names or that is next to it. */
int session_store(struct store **out, const struct host_opts *o, struct err *err);

/* Opens the model of a description; what: LOAD_ flags.  On an error everything is closed again. */
int session_open(struct session *s, const struct host_opts *o, unsigned what, struct err *err);
/* Opens n models in one process, s[i] as o[i] says.  With n > 1 they share `memory` bytes, by plan_share, which sets the
 * memory_bytes of each; 0: fifteen sixteenths of the machine's.  On an error all are closed again. */
int sessions_open(struct session *s, const struct host_opts *o, int n, size_t memory, unsigned what, struct err *err);
void session_close(struct session *s);

/* Sampling and template variables anew, after options of answers have changed. */
int session_answer_options(struct session *s, const struct host_opts *o, struct err *err);

/* How a model keeps keys and values, as the options say: [layers_attn], to be freed. */
int kv_of_options(struct kv_pair **layer, const struct host_opts *o, const struct shape *shape, struct err *err);
/* Formats, layers, bytes of a token, for a person. */
void kv_describe(struct buf *out, const struct kv_pair *layer, const struct shape *shape);

#endif
