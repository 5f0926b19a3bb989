/* hub.h - models fetched by name from the Hugging Face hub, or a mirror, into its cache on disk.
 *
 * The cache is the one that other programs use: models--ORG--NAME/blobs/DIGEST holds the bytes, snapshots/COMMIT/PATH
 * links to them, refs/main names the commit.  Files appear in a snapshot only when all that were asked for are whole
 * and their digests are right, so that what an interrupted fetch leaves is never taken for a model.  Nothing here is
 * used unless a person asks for it: `weft pull`, or --pull.
 *
 * Functions may be called from one thread at a time; hub_pull starts threads of its own and ends them. */
#ifndef HUB_HUB_H
#define HUB_HUB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* What the environment says, by the names that the hub's own client reads. */
struct hub_place {
	char *endpoint; /* HF_ENDPOINT, without a slash at its end */
	char *token;    /* HF_TOKEN, or the file that `hf auth login` wrote; NULL: none */
	char *cache;    /* HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub */
	bool offline;   /* HF_HUB_OFFLINE: no request at all */
};
void hub_place_get(struct hub_place *place);
void hub_place_free(struct hub_place *place);

/* A model as a person names it: NAME, NAME@REVISION, and a type behind a colon.  Strings are the caller's to free. */
struct hub_wish {
	char *name;     /* "Qwen/Qwen3.5-4B" */
	char *revision; /* branch, tag or commit; "main" where none was given */
	char *type;     /* "Q4_K_M"; NULL: none was given */
};
/* E_ARG: no name that the hub allows; the message says what one looks like. */
int hub_wish_parse(struct hub_wish *w, const char *text, struct err *err);
void hub_wish_free(struct hub_wish *w);

/* How a fetch goes on.  done and total count bytes of this fetch, those included that were there before.  Called from
 * threads of hub_pull, one at a time, some ten times a second at most. */
struct hub_watch {
	void (*moved)(void *arg, uint64_t done, uint64_t total);
	void (*say)(void *arg, const char *line); /* something that a person should know, one line */
	void *arg;
};

struct hub_pulled {
	struct buf path;  /* the snapshot's folder, or the GGUF file in it; caller: buf_fini */
	int files;        /* of the model */
	uint64_t bytes;   /* all of them */
	uint64_t fetched; /* bytes that came over the network */
};

struct hub_options {
	int connections;    /* at once; 1 to 16 */
	bool all;           /* every file, not only those that a model needs */
	bool no_projector;  /* a GGUF model without its tower for pictures */
	uint64_t part_size; /* bytes of one request; 0: 32 MB */
};

/* Fetches what is missing of the model and links it into the cache.  E_MISSING: no such model, revision or file;
 * E_UNSUPPORTED: the hub wants a token or an acceptance, and the message says which; E_FULL: the disk has too little
 * room; E_FORMAT: the hub's answer, or bytes whose digest stays wrong; E_IO: the network or the disk.  What was fetched
 * before an error is kept, and the next call goes on there. */
int hub_pull(const struct hub_place *place, const struct hub_wish *wish, const struct hub_options *options,
             const struct hub_watch *watch, struct hub_pulled *out, struct err *err);

/* One model of the cache. */
struct hub_model {
	const char *name;
	uint64_t bytes;      /* on disk, blobs that no snapshot has included */
	int64_t changed;     /* seconds since 1970 */
	int files;           /* of the snapshot of main */
	bool whole;          /* what the snapshot has is there, and nothing is half fetched */
	const char *formats; /* "safetensors", "GGUF Q4_K_M, Q8_0" */
};
/* Calls each() for every model of the cache, in order of their names.  E_IO: the cache cannot be read; none is
 * not an error. */
int hub_list(const struct hub_place *place, void (*each)(void *arg, const struct hub_model *m), void *arg,
             struct err *err);
/* Removes a model from the cache: with type, its GGUF files of that type and no other.  *bytes: what became free.
 * E_MISSING names the folder or the files that there are. */
int hub_remove(const struct hub_place *place, const struct hub_wish *wish, uint64_t *bytes, struct err *err);

#endif
