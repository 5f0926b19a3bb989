/* engine.h - from tokens to tokens.
 *
 * One thread of the engine's own touches sequences and caches.  Others submit
 * requests into its inbox and read events from each request's outbox; that is
 * all the locking there is.  The engine never touches a socket and never waits
 * for a reader.
 *
 * A request's tokens are a function of the model, the prompt and its own
 * parameters: which others run, how the prompt was cut, whether its prefix was
 * cached, and whether it was preempted change no bit. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/stream_stats.h"
#include "engine/prefix/report.h"
#include "engine/sampler.h"

struct adapter; /* model/adapter.h opens them */
struct block_sink;
struct drafter;
struct mask_source;
struct media;
struct model;
struct pack;
struct ticket_lock;
struct tokenizer;
struct engine;
struct request; /* one submitted request, seen from outside */

enum { DRAFT_MAX = 16, DRAFTERS_MAX = 8 }; /* tokens drafted at once; drafters of one engine */

/* Kept prefixes outside of memory; see docs/prefix-store.md. */
struct engine_disk {
	const char *dir; /* folder; NULL: none */
	uint64_t bytes;  /* budget of the folder */
	/* A digest of everything that prefixes are a function of besides their tokens. */
	struct digest model;
	const char *redis;          /* a Redis server with kept prefixes too (base/redis.h); NULL: none */
	const char *redis_password; /* NULL: the URL's */
	int redis_seconds;          /* seconds after which an unused prefix goes there */
	struct pack *const
		*pack; /* [n_pack] more of them, for reading (prefix/prefix_pack.h); the caller's until engine_close */
	int n_pack;
	/* Longest that a prompt waits for its prefix to be read, ns; 0: as long as computing it would take. */
	int64_t wait_ns;
	const struct spill_io *io; /* NULL: the system's (tests) */
};

struct engine_opts {
	int seqs_max;         /* running at once; <= model slots */
	int step_rows;        /* most rows of one step */
	int queue_max;        /* waiting requests; beyond it submit says E_FULL */
	double queue_seconds; /* most seconds of computing prompts that may wait, by the measured rate; 0: any */
	int decode_gap_ms;    /* longest time between tokens of a running answer while other requests join; 0: 100 */
	int answer_reserve;   /* tokens of an answer that pages are set aside for when it starts; 0: 512.
	                                 * More of it means fewer at once, less of it more preemption */
	int logit_rows;       /* most rows of a step that can have logits; 0: what answers need.  More of them
	                                 * make asks with on_logits faster */
	size_t prefix_bytes;  /* budget of kept prefixes; 0: keep none */
	double copy_ns; /* what a state's copy on the way of a pass is taken to cost (tests); 0: what was measured */
	double place_share; /* most of a prompt's time that copying states to be kept may take; 0: any */
	/* This share of the hits is computed again when the engine is idle, and compared
	 * byte for byte; which ones follows from the seed.  0: none. */
	double verify_share;
	uint64_t verify_seed;
	size_t park_bytes; /* budget of preempted sequences' memory outside the page pool; 0: compute again */
	struct engine_disk disk;
	/* Receives the blocks that prompts can resume from (prefix/announce.h); NULL: none. */
	struct block_sink *blocks;
	struct clock *clock;      /* read from any thread; NULL: the monotonic one */
	struct ticket_lock *turn; /* held during a step, by engines that share processors; NULL: it shares none */
	bool by_hand;             /* no thread: the caller runs engine_step (tests) */
	bool squeeze;             /* gives memory back while the machine is short of it: docs/memory.md */
	/* Asked in this order, the next when the one before had nothing to say; the
	 * caller's, and closed by it after the engine. */
	struct drafter *drafter[DRAFTERS_MAX];
	int n_drafter;
	int n_draft;          /* most tokens drafted per sequence and step; <= model tape_rows */
	bool draft_fixed;     /* always as many, whether it pays or not (tests) */
	double draft_pretend; /* this share of drafts is taken for right: for planning; text means nothing.  0: no */
};

/* Forced tokens of an answer: given where the model would have chosen others.  They are
 * output like any token, with the model's own log-probabilities. */
struct lead {
	bool thinking; /* the prompt ends inside a thought */
	int32_t open;  /* else a first token that opens one, with those behind it; -1: nothing does */
	const int32_t *opens;
	int n_opens;
	bool reopens;       /* that may open another thought anywhere; the bound is on all of them together */
	int32_t close;      /* ends a thought; -1: nothing does */
	int think_max;      /* tokens of thought; after them end[] is said.  -1: no bound */
	const int32_t *end; /* tokens that end a thought which is too long; they contain `close` */
	int n_end;
	const int32_t *then; /* said right after the thought, or at once when there is none */
	int n_then;
};

/* Why a request was not taken, and when to come again. */
enum limit {
	LIMIT_NONE,
	LIMIT_COUNT,    /* queue_max requests wait */
	LIMIT_SECONDS,  /* queue_seconds of prompts wait */
	LIMIT_SHARE,    /* there is room, but this client has taken its share of it */
	LIMIT_DEADLINE, /* it could not be answered in time */
	N_LIMIT
};
struct refusal {
	enum limit limit;
	double wait_s; /* estimate: until a request like this would have been started */
	int retry_s;   /* seconds after which another try is worthwhile; >= 1 */
};

/* How far a request came. */
enum request_stage { STAGE_QUEUED, STAGE_PREFILL, STAGE_DECODE, STAGE_PREEMPTED, N_STAGE };

/* Rows of a prompt that bring their own vectors: docs/images.md. */
struct ask_span {
	int at, n;           /* prompt[at .. at + n); the ids there are not looked at */
	struct media *media; /* submit takes a reference of its own */
	int from;            /* the media object's rows [from, from + n) */
};

/* Adapters of a request: its rows add each adapter, times its scale, to the products of weights, in this order; scale 0
 * adds nothing.  Adapters stay until the engine is closed. */
struct ask_adapters {
	const struct adapter *const *of; /* [n] */
	const float *scale;              /* [n] */
	int n;                           /* 0: nothing; at most ASK_ADAPTERS_MAX of other scales than 0, or E_ARG */
};
enum { ASK_ADAPTERS_MAX = 8 };

/* A request to the engine.  engine_submit copies everything that pointers point to, except
 * refusal, and mask, which it takes over. */
struct ask {
	const int32_t *prompt;
	int n_prompt;                /* >= 1 */
	const struct ask_span *span; /* rising, apart */
	int n_span;
	int max_tokens;                 /* >= 0; 0: only the prompt is computed.  Cut to what context and memory hold */
	struct sampler_params sampling; /* end_token unset: stop_token */
	const int32_t *stop_token;      /* end the answer, not part of it */
	int n_stop_token;
	const char *const *stop;  /* strings that end the answer, not part of it */
	int n_stop;               /* of stop; not looked for in thoughts and tokens that are lead's */
	bool skip_special;        /* special tokens give no text */
	const struct lead *lead;  /* NULL: every token is the model's */
	bool no_cache;            /* neither use nor keep a prefix */
	struct mask_source *mask; /* of this request alone, and the engine's once submitted; NULL: all tokens */
	int n_draft;              /* most tokens drafted per step; 0: the engine's number; -1: none */
	/* [n_expect] what the answer is likely to be, token by token, as when it was given before: drafted until one is wrong.
	 * They change no token of the answer. */
	const int32_t *expect;
	int n_expect;
	/* Lengths of prompt prefixes worth keeping, rising: where a later prompt is
	 * likely to part from this one (the end of a message).  The end of the prompt
	 * and the end of the answer are kept anyway. */
	const int *mark;
	const unsigned char *mark_kind; /* enum place of each; NULL: the start of a user's message */
	int n_mark;
	const char *cache_salt;       /* prefixes are shared under one salt only; NULL: "" */
	struct ask_adapters adapters; /* prefixes are shared with those that have the same only */

	/* The client: clients share the engine evenly, however many requests each has waiting.
	 * 0: unknown; those requests count as one client, and no share limits them. */
	uint64_t client;
	int priority; /* larger is served sooner; one that waits rises, so none starves */
	/* On the engine's clock; 0: none.  The request is refused when its first token could not come
	 * before it; a request that has not ended at the deadline ends with E_LATE. */
	int64_t deadline_ns;
	struct refusal *refusal; /* NULL, or filled when submit says E_FULL or E_LATE */

	/* Called on the engine's thread when an event comes to a request that had none
	 * waiting, so the reader takes all there are.  Must not block, nor call any
	 * function of this request.  Never comes after request_free has returned. */
	void (*notify)(void *arg);
	void *notify_arg;

	/* The rows of the prompt from rows_from on, pooled as `rows` says (wanted_rows.h), for request_rows; 0: none.  Where more
	 * than the last row is wanted, no kept prefix is used, and none kept. */
	unsigned rows;
	int rows_from;
	int second; /* where the second text of a pair begins; 0: it is one text */

	/* For `weft logits` and tests. */
	const int *split; /* prefill chunk sizes, cycled; NULL: the scheduler's own */
	int n_split;
	/* At this position: capture, give the slot back, restore, go on; 0: never.  Inside a stretch that is not cut: at its
	 * end. */
	int resume_at;
	/* Every computed row in rising position; row is valid during the call. */
	void (*on_logits)(void *arg, int pos, const float *row, int vocab);
	void *on_logits_arg;
};

enum event_kind {
	EV_START,    /* admitted: cached says how much of the prompt was there */
	EV_PROGRESS, /* prompt positions computed so far, in `done`, of `total` */
	EV_TOKEN,    /* one sampled token with the text that became certain */
	EV_DONE,     /* the last event; finish says why */
};
enum finish { FINISH_STOP, FINISH_LENGTH, FINISH_CANCEL, FINISH_ERROR };

struct event {
	enum event_kind kind;
	int cached, done, total;     /* START, PROGRESS */
	struct prefix_report prefix; /* START, DONE: where it was resumed, and why not further on */
	int32_t token;               /* TOKEN */
	struct pick pick;            /* TOKEN: logprobs as asked */
	const char *text;            /* TOKEN, DONE: bytes to append, whole characters; valid until the next event */
	size_t n_text;
	enum finish finish;               /* DONE */
	const char *stop_text;            /* DONE by a stop string: which; NULL otherwise */
	int n_prompt, n_cached, n_output; /* DONE: tokens; output counts the TOKEN events */
	int n_accepted, n_rejected;       /* DONE: drafts that became part of the answer, and that did not */
	int64_t queue_ns, prefill_ns, decode_ns;
	enum request_stage stage; /* DONE: where it ended */
	int n_preempted;          /* DONE: times it was preempted */
	struct err err;           /* DONE with FINISH_ERROR; E_FAULT: by a fault in the program; E_MEMORY */
};

/* Bytes of work memory and logits that an engine opened with opts takes; the model need only
 * be bound. */
size_t engine_step_bytes(const struct model *m, const struct engine_opts *opts);
/* Tokens of a block of opts.blocks: those of a page. */
int engine_block(const struct model *m);
int engine_open(struct engine **out, struct model *m, const struct tokenizer *tok, const struct engine_opts *opts,
                struct err *err);
/* Cancels what runs, waits for the thread, frees. */
void engine_close(struct engine *e);

/* Any thread.  E_FULL: the queue is full, or this client's share of it (refusal
 * says which); E_LATE: the deadline cannot be met; E_LIMIT: the prompt and one
 * token more can never fit the context or memory (both numbers in the message);
 * E_ARG: the ask itself; E_GONE: the engine is closing or draining.  The request
 * is freed with request_free, also after engine_close. */
int engine_submit(struct engine *e, const struct ask *ask, struct request **out, struct err *err);
/* Any thread.  From now on submit says E_GONE; what was taken goes on. */
void engine_drain(struct engine *e);

/* By the request's one reader.  next: 1 and *ev filled, or 0 when none waits.
 * wait: the same, but waits for an event; after EV_DONE both return 0. */
int request_next(struct request *r, struct event *ev);
int request_wait(struct request *r, struct event *ev);
/* By the reader, once it has taken an event of the answer (TOKEN, or DONE by STOP or LENGTH): what ask.rows wanted of the
 * model's rows, as its output matrix reads them, *n floats, the request's own.  NULL: it wanted none. */
const float *request_rows(const struct request *r, size_t *n);
/* Any thread and signal handlers, any time, more than once: the work ends within
 * one step; EV_DONE with FINISH_CANCEL follows unless it had finished. */
void request_cancel(struct request *r);
/* Cancels if needed; the reader may not use r afterwards. */
void request_free(struct request *r);

/* ---- the prefix store ----
 *
 * Any thread; each call waits until the engine is between two steps, at most
 * one step long, and must have returned before engine_close is called.  E_GONE:
 * the engine is closing.  To warm the store, submit the prompt with max_tokens 0
 * and its marks. */

/* A place in the tree: a node by its id, or (id 0) the deepest kept state on the
 * way of tok[0..n). */
struct prefix_spot {
	uint64_t id;
	const char *salt; /* NULL: "" */
	struct ask_adapters adapters;
	const int32_t *tok;
	int n;
	const struct ask_span *span; /* of tok */
	int n_span;
};
/* fn is called on the engine's thread for every node, parents first; what item
 * points to is valid during the call.  E_FAULT, E_MEMORY: one call of fn was broken off
 * (base/fault.h), what it was making is half made. */
int engine_prefix_walk(struct engine *e, void (*fn)(void *arg, const struct prefix_item *item), void *arg);
/* Drops the node and all that begins with its tokens; id 0 and n 0: all under the salt, or with
 * salt NULL everything.  On disk as well, where it takes a moment; but what is there alone has no
 * node.  dropped: how many states of memory went.  E_MISSING: no node has that id. */
int engine_prefix_drop(struct engine *e, const struct prefix_spot *spot, int *dropped);
/* A pinned state is not evicted.  E_MISSING: no state there; E_FULL: pins would
 * take more than half of the budget. */
int engine_prefix_pin(struct engine *e, const struct prefix_spot *spot, bool pin, struct err *err);
/* Reports which kept prefix this prompt (salt, tok, n) would resume from if it came now; changes nothing. */
int engine_prefix_explain(struct engine *e, const struct prefix_spot *prompt, struct prefix_report *out);

/* With by_hand: one step on the calling thread.  false: nothing was to be done. */
bool engine_step(struct engine *e);

/* A snapshot of counters for /metrics and /health; any thread. */
enum { STEP_SIZES = 16 };
struct parked_stats {
	int n;                   /* preempted sequences with a snapshot */
	size_t bytes, bytes_max; /* of theirs outside the pool */
};
struct page_stats {
	int pages, pages_used, page_rows; /* page_rows: positions of one; 0: no pages */
};
/* Kept prefixes in memory. */
struct prefix_stats {
	size_t bytes, bytes_max;
	int entries;
	int64_t hits;                   /* admissions that found one */
	int64_t evicted;                /* entries */
	int64_t reason[PREFIX_REASONS]; /* first admissions, by why they were not resumed further on */
	int64_t verified, wrong; /* hits that were recomputed for an audit; those dropped because it found them wrong */
};
struct engine_stats {
	int running, waiting;
	int64_t steps, requests, finished[4]; /* by enum finish */
	int64_t step_rows[STEP_SIZES]; /* steps, by their rows: at most 1, 2, 4 ..., and more than all of these */
	int64_t step_rows_sum;
	int64_t cancelled[N_STAGE]; /* by where it was then */
	int64_t refused[N_LIMIT];   /* submits that said E_FULL or E_LATE */
	int64_t late;               /* taken, and ended by their deadline */
	int64_t preempted;          /* times a running request went back to waiting ... */
	int64_t yielded;            /* those of them that made place for another client */
	int64_t resumed;            /* times one came back from its snapshot, nothing computed again */
	int64_t prompt_tokens, cached_tokens, output_tokens;
	bool device_lost;     /* the backend's device failed: every request fails */
	int64_t last_step_ns; /* clock of the last step's end */
	int64_t stuck_ns; /* nanoseconds for which there has been work and no step has ended; 0: no work, or moving */
	int64_t waiting_tokens; /* of the prompts that wait */
	double prefill_rate;    /* prompt tokens per second while prompts were computed; 0: not yet known */
	int64_t decode_step_ns; /* a step that only decodes, lately; 0: not yet known */
	int slots;              /* sequences (and their states) there is room for */
	struct parked_stats parked;
	struct page_stats kv;
	struct prefix_stats prefix;
	struct engine_drafted {
		const char *name;                  /* NULL: no such drafter */
		int64_t rounds, drafted, accepted; /* runs of tokens, and tokens */
	} drafter[DRAFTERS_MAX];
	struct disk_stats disk;
	struct stream_stats experts; /* that stay on disk; slots 0: none do */
	struct row_stats tables;     /* that stay on disk; 0: none do */
};
void engine_stats(struct engine *e, struct engine_stats *out);

#endif
