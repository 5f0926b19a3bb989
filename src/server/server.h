/* server.h - HTTP in front of one engine.
 *
 * One thread does all reading and writing (the caller of server_run), a few
 * others parse, template and tokenise bodies, and the engine has its own.  A
 * connection's input is watched in every state, so that a client that leaves is
 * noticed at once also while it waits in a queue or for a prefill; what ran for
 * it is cancelled.  Called by cli/serve.c and by tests. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/json.h"
#include "engine/engine.h"
#include "text/jinja/template.h"
#include "text/tokens/tokenizer.h"

struct embedder;  /* embed/embedder.h */
struct kv_events; /* server/kv_events.h */

/* Reader of images and sounds, for models that take them. */
struct sight {
	/* The bytes of a file to a media object with one reference, of which docs/images.md tells; NULL: the model takes none of
	 * this kind.  On several workers at once, under their allowance.  E_FORMAT: it is none, E_LIMIT: too large a one,
	 * others as they come. */
	int (*image)(void *arg, const void *bytes, size_t n, struct media **out, struct err *err);
	int (*sound)(void *arg, const void *bytes, size_t n, struct media **out, struct err *err);
	void *arg;
};

enum { SERVED_ADAPTERS_MAX = 64 };
/* An adapter of it: docs/adapters.md. */
struct served_adapter {
	const struct adapter *of;
	const char *name, *path;
	float scale; /* of a request that has its name as model */
};

/* A model's properties that clients show next to its name. */
struct served_model {
	const char *arch, *form; /* its architecture; how its files are: "safetensors", "gguf" */
	const char *quant; /* the number format that most bytes of its matrices are in, as "bf16", "affine4", "q4_k" */
	int64_t params, bytes; /* of its weights */
	int hidden, ctx_max;   /* columns of a row; positions that it was made for */
	unsigned can;          /* CAN_ flags, where nothing of it is open: see served_can */
};

enum { CAN_CHAT = 1, CAN_TOOLS = 2, CAN_THINK = 4, CAN_INSERT = 8, CAN_SEE = 16, CAN_HEAR = 32 };

/* A model that is served.  Borrowed until server_close, or until its source closes it. */
struct served {
	struct served_model is; /* all 0: not known */
	struct engine *engine;
	const struct tokenizer *tokenizer;
	const struct template *tmpl;      /* NULL: no chat, only completions */
	const struct template *tool_tmpl; /* of requests that show tools; NULL: tmpl is for them too */
	const struct sight *sight;        /* NULL: it reads text only */
	size_t image_bytes; /* of images and sounds that are kept, with what their towers computed; 0: none */
	const struct embedder *embedder;      /* what is made of its rows; NULL: not known, it writes */
	const char *name;                     /* in the API; "default" names it too */
	const char *aliases;                  /* further names, separated by commas; NULL: none */
	bool any_model;                       /* every name names it, but those of adapters */
	const struct served_adapter *adapter; /* [n_adapter] */
	int n_adapter;                        /* at most SERVED_ADAPTERS_MAX */
	const char *bos_token, *eos_token;    /* for the template; NULL: none */
	const int32_t *eos;                   /* ids that end an answer */
	int n_eos;
	int ctx_max;        /* positions of one sequence */
	int queue_max;      /* requests that may wait, in the engine or for being prepared; 0: any number here */
	int vocab;          /* ids are below this */
	int32_t max_tokens; /* of a request that names none; -1: until the context ends */
	struct sampler_params sampling; /* of a request that names none */
	bool seeded;                    /* sampling.seed counts; else every answer gets a new one */
	bool strict;                    /* unknown fields are errors, not warnings */
	const char *
		journal_dir; /* the folder of its kept prefixes, where its streams have journals; NULL: they have none */
	struct digest identity;           /* with that: of the model and its arithmetic (docs/prefix-store.md) */
	const struct json *template_args; /* object of template variables a request may override; NULL: none */
};

/* The template of a request that shows tools, or of one that shows none; NULL: the model has none. */
static inline const struct template *served_template(const struct served *d, bool tools)
{
	return tools && d->tool_tmpl ? d->tool_tmpl : d->tmpl;
}

/* CAN_ flags: what it can do, as its template and tokenizer say while it is open. */
unsigned served_can(const struct served *d);

/* How a model is loaded and unloaded, for servers that have several.  Called on one thread, and only in the order that makes
 * sense: open, close, open ..., free. */
struct model_source {
	/* The description of the model while it is not loaded.  Its pointers hold until free. */
	const struct served *about;
	int (*open)(void *arg, struct served *out,
	            struct err *err); /* loads it; what out points to stays until close */
	void (*close)(void *arg);     /* unloads it; what it keeps for its next requests is on disk afterwards */
	void (*free)(void *arg);
	void *arg;
	size_t bytes;    /* of the budget, while it is loaded */
	int64_t idle_ns; /* it is unloaded after so long without a request; 0: never for that */
	bool pinned;     /* loaded at the start, and never unloaded to make room */
	struct err why;  /* code not 0: it cannot be loaded, and why */
	/* The folder of the model's kept prefixes; NULL: none are kept on disk.  A model is not loaded while one that was removed has the
	 * same folder. */
	const char *folder;
};

/* Which of its earlier answers the server puts back as they were: docs/prefix-store.md. */
enum turn_replay {
	REPLAY_OFF,
	REPLAY_TEXT, /* not the thinking: where the client sent none there is none */
	REPLAY_ALL,
};

struct server_opts {
	const char *host;                /* an address, or unix:/path of a socket */
	int port;                        /* 0: any free one */
	const char *version;             /* of the program, as 1.2.3; a constant */
	const char *commit;              /* that it was built of, as git says; "unknown": it does not; a constant */
	const char *api_key;             /* NULL, and no file: no key is needed */
	const char *api_key_file;        /* more keys; see clients.h.  NULL: none.  SIGHUP has it read again */
	const char *cors_origin;         /* "*" or origins separated by commas, whose pages may ask; NULL: none */
	const char *const *image_folder; /* [n_image_folder] below which file: URLs may name images */
	int n_image_folder;
	const char *const
		*image_host; /* [n_image_host] that images may be fetched from; borrowed while the server is open */
	int n_image_host;
	int connections_max;   /* beyond it: 503 */
	size_t response_bytes; /* answers of /v1/responses that are kept; 0: none */
	int64_t body_max;      /* bytes of one body; beyond it: 413 */
	int prep_threads;
	/* Milliseconds. */
	int head_ms;       /* from the first byte of a request to the end of its header */
	int body_ms;       /* from there to the end of its body */
	int keep_alive_ms; /* a stream with nothing to say says so this often; 0: never */
	int idle_ms;       /* between two requests of a connection */
	int stall_ms;      /* a reader that stops, or stays behind, for this long is cancelled */
	int grace_ms;      /* after a signal: how long answers may go on */
	int stuck_ms;      /* work and no step for this long: /health says so */
	bool journal;      /* served.journal_dir is set */
	bool log_prompts;  /* their text, at level info */
	enum turn_replay turn_replay;
	size_t turn_bytes;           /* of remembered turns */
	bool drop_volatile;          /* lines of system messages that mean nothing */
	struct kv_events *kv_events; /* what /metrics counts of them; the caller's until server_close.  NULL: none */
};

void server_opts_default(struct server_opts *o);

struct server;

/* Listens from here on, so that an address in use or a wrong file of keys is reported
 * before a model is loaded; a client that connects waits in the system's queue until server_run answers.
 * Strings are copied. */
int server_open(struct server **out, const struct server_opts *opts, struct err *err);
int server_port(const struct server *s); /* the one that was bound */

/* Sets the model that is served.  From now on SIGTERM and SIGINT stop the server instead of ending
 * the program, so readiness is announced after this call. */
void server_begin(struct server *s, const struct served *served);

/* In place of server_begin, for several models: server_set_models, then server_begin_several, which loads those that are pinned,
 * and the first.  Requests that name no model mean the first.  budget: bytes of all models that are loaded at once; queue_max: as
 * in struct served.
 * reread: called on the thread that loads, after SIGHUP; NULL: never.  It may call server_set_models again, at another time the
 * caller may not: a model whose arg is that of one that is there is that one, and stays as it is.  One that is missing is removed:
 * requests do not find it any more, those that have it go on, then it is unloaded and freed.  n is at least 1. */
void server_set_models(struct server *s, const struct model_source *v, int n);
int server_begin_several(struct server *s, size_t budget, int queue_max, void (*reread)(void *arg), void *arg,
                         struct err *err);

/* Answers, after server_begin, until SIGTERM, SIGINT or server_stop: then it refuses new
 * work (503), lets answers go on for grace_ms and returns; a second signal ends it at once. */
int server_run(struct server *s, struct err *err);
/* Any thread. */
void server_stop(struct server *s);

/* After server_run returned, or in place of it, and after the engine was closed:
 * until then the engine may still call into the server. */
void server_close(struct server *s);

#endif
