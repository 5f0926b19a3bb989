/* core.h - the engine's insides, for the files of this folder.
 *
 * The way through them: engine.c (submit, inbox, the thread, the step), queue.c
 * (whether it is taken), fair.c (which client is next), pace.c (how many rows a
 * step takes), sched.c (which requests run, the rows of a step), park.c (preempted requests),
 * verify.c (from logits to tokens, text and the end), guard.c (faults in that), reuse.c (a request and the
 * prefix store), prefix.c, place.c, outbox.c.
 *
 * Everything but what is marked otherwise belongs to the engine's thread. */
#ifndef ENGINE_CORE_H
#define ENGINE_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/low_rank.h"
#include "engine/brought.h"
#include "engine/draft/draft.h"
#include "engine/disk.h"
#include "engine/draft/draft_gain.h"
#include "engine/engine.h"
#include "engine/fair.h"
#include "engine/lead.h"
#include "engine/outbox.h"
#include "engine/pace.h"
#include "engine/park.h"
#include "engine/prefix/prefix.h"
#include "engine/queue.h"
#include "engine/sampler.h"
#include "engine/spans.h"
#include "text/tokens/detok.h"
#include "text/tokens/stops.h"

struct announce; /* prefix/announce.h */

#define AHEAD_NONE UINT64_MAX
/* Places that a prompt may pass in one step; it ends at the next.  And the near ones of an answer. */
enum { PASSED_MAX = 32, NEAR_MAX = PLACE_TAIL / PLACE_NEAR * 2 };
/* States whose memory is got ahead of time while answers run; those of the grid leave all but one of them to others. */
enum { READY_STATES = 4 };

/* A request as it was submitted; constant. */
struct request_ask {
	int out_max; /* max_tokens, or less where the context ends */
	int32_t *stop_token;
	int n_stop_token;
	bool no_cache;
	bool proof; /* the engine's own, counted nowhere; see proof.c */
	int *split, n_split;
	char *salt; /* with its adapters (prefix_salt); "": none */
	struct adapter_mix adapters;
	struct place_plan plan;
	int resume_at;
	int priority;
	int64_t deadline_ns; /* INT64_MAX: none */
	void (*on_logits)(void *arg, int pos, const float *row, int vocab);
	void *on_logits_arg;
	int second; /* INT32_MAX: none */
};

/* The scheduler's knowledge of a request; see sched.c. */
struct request_sched {
	bool started;      /* was admitted once */
	uint64_t skip;     /* not to be considered again in this round */
	bool hurry;        /* its last chunk ended soon */
	int64_t passed_ns; /* since when others pass that need less memory; 0: not */
	int n_preempted;
	int split_at; /* chunks taken, for ask.split */
};

/* How a request uses and feeds the kept prefixes; see reuse.c. */
struct request_reuse {
	int n_cached; /* restored from a kept prefix, at first */
	int learned;  /* the last place on the way, or where it resumed: prefixes up to here need no more snapshots */
	int kept_at;  /* the last state kept or resumed from, on the way to pos */
	struct place_at passed[PASSED_MAX]; /* in this step: where its state will have been foreseen */
	int n_passed;
	struct place_pitch pitch;      /* since it was admitted last */
	int told_at;                   /* the last place that the disk was told of */
	int near_at[NEAR_MAX], n_near; /* places in the answer that may be given up, rising */
	int stays_at;                  /* the last place in the answer that stays; 0: none yet */
	int junction;                  /* where it leaves what was known; 0: no state is wanted there */
	uint64_t ahead;                /* age of the running request it waits for; AHEAD_NONE: none */
	int ahead_at;                  /* the position that the running request must reach */
	struct prefix_report report;
};

/* Tokens guessed to follow the last one, for the next step alone, and how guessing went. */
struct request_drafts {
	int32_t tok[DRAFT_MAX];
	int n, by;                  /* by: index of the drafter; -1: what is given */
	int dare;                   /* the drafter that is asked first in this step, to learn of it; -1: none */
	int n_max;                  /* most that were allowed by the ask */
	int n_accepted, n_rejected; /* of all rounds */
	struct draft_try tries[DRAFTERS_MAX];
	struct {
		int32_t *tok;
		int n, at; /* at: tokens that the answer is known to begin with; n is 0 once one was wrong */
	} expect;          /* of the ask */
};

/* State of turning a request's logits into text; see verify.c. */
struct request_text {
	struct sampler sampler;
	struct lead_run lead;
	struct mask_source *mask; /* NULL: every token may be picked */
	bool is_made;             /* false: the engine has no tokenizer */
	struct detok detok;
	struct stops stops;
	char **stop; /* [n_stop] the strings that stops looks for */
	int n_stop;
	uint32_t *end;           /* [out_max] with stop strings: bytes of text after each token */
	uint32_t n;              /* bytes of the answer's text, those included that stops holds back */
	uint32_t n_out;          /* bytes given to the reader */
	struct buf piece, shown; /* a step's text before and after stops */
};

/* A request, which is also the sequence it makes. */
struct request {
	atomic_int refs;    /* one of the reader's, one of the engine's */
	atomic_bool cancel; /* set by anyone, read by the engine at each step */
	struct outbox out;
	struct request *next;  /* in the inbox or among the waiting */
	uint64_t age;          /* number of its submission; the smaller is served first */
	struct client *client; /* until it ends */
	struct request_ask ask;

	/* The sequence.  tok[n_prompt..n_tok) is the answer so far.  Between two steps
	 * every cache is at pos, and pos < n_tok unless max_tokens is 0. */
	int32_t *tok; /* [n_prompt + ask.out_max]; below 0: rows of a span (spans.h) */
	int n_prompt, n_tok, pos;
	int slot; /* -1: not running */
	struct brought brought;
	struct rows *rows; /* of the prompt, for request_rows */
	struct park park;  /* its memory while it waits to run again */
	struct request_sched sched;
	struct request_reuse reuse;
	struct request_drafts drafts;
	struct request_text text;
	int progress; /* of the prompt, as last told */
	int reported; /* rows before this position were given to on_logits */

	/* The end, once it is decided. */
	bool ending;
	bool broken; /* by a fault: text is not looked at again */
	enum finish finish;
	const char *stop_text;
	int end_pos; /* the answer's text ends here; < pos after a stop string */
	struct err err;

	int64_t t_submit, t_start, t_first; /* clock; 0: not yet */
};

struct batch_item {
	struct request *req;
	int row;            /* its first row */
	int logit, n_logit; /* its rows among those with logits: they are its last n_logit */
	int keep;           /* rows that stayed, once it is verified */
};

/* The rows of one step.  A prefill chunk and a decoded token with its drafts are
 * the same thing here: some positions of a sequence. */
struct batch {
	struct batch_item *item;            /* [seqs_max] */
	struct span *span;                  /* [seqs_max] */
	int32_t *first;                     /* [seqs_max] item[i].row, as pass wants it */
	int32_t *tok, *pos, *item_of;       /* [step_rows] */
	int32_t *logit_row;                 /* [logit_rows] */
	int32_t *second;                    /* [seqs_max] as pass has them */
	int32_t *rope, *see;                /* [step_rows][3] and [step_rows], as pass has them */
	const float **brought;              /* [step_rows] */
	const struct adapter_mix **adapter; /* [seqs_max] as pass has them */
	bool turns, whole;                  /* rope, see are other than pos */
	int n_brought;
	int n_item, n_row, n_logit;
	int n_prompt;      /* rows of prompts */
	double prompt_pos; /* mean position of those */
};

struct chosen {
	struct request *req;
	int n; /* rows */
};

struct sched {
	struct fair fair;     /* those who wait */
	struct request **run; /* [seqs_max] by rising age */
	int n_run;
	int *free_slot; /* [seqs_max] a stack */
	int n_free;
	unsigned turn;            /* where decoding begins when not all fit in a step */
	struct request *starving; /* no other request joins before it */
	bool refused;             /* memory was, in this round */
	bool gave_way; /* a request was preempted in this step for want of memory: none joins, or that might repeat for ever */
	uint64_t round;      /* counts attempts to fill a step */
	struct chosen *pick; /* [seqs_max] prompts chosen for the step */
	int n_pick;
	int n_pass; /* states that the pass copies on its way, so far */
	bool quick; /* the step is kept short for one of them, or one that decodes */
};

/* draft.c */
struct drafting {
	struct draft_cost cost;
	double mixed_ns; /* of recent steps with rows of prompts; 0: not known */
	struct draft_odds odds[DRAFTERS_MAX], said[DRAFTERS_MAX]; /* of all sequences */
	struct draft_time token[DRAFTERS_MAX];                    /* for one token, however long ago */
	struct draft_time row[DRAFTERS_MAX];        /* for one token that it catches up with, however long ago */
	int idle[DRAFTERS_MAX], wait[DRAFTERS_MAX]; /* as draft_try's, of the oldest sequence */
	int64_t asked_at[DRAFTERS_MAX];             /* cost.now when it was asked last, of any sequence */
	int dare[DRAFTERS_MAX];                     /* steps after that until it is asked before others */
	struct draft_lengths lengths;
	double purse; /* nanoseconds for trying what is not expected to pay */
	struct draft_accounts accounts;
	int64_t calls[DRAFTERS_MAX],
		pardoned[DRAFTERS_MAX]; /* calls that took time; the last that was not its own doing */
	struct draft_round round;       /* of this step */
	struct draft_ask *ask;          /* [seqs_max] */
	struct draft_bid *bid;          /* [seqs_max] */
	struct request **of;            /* [seqs_max] by slot */
	int *asked;                     /* [seqs_max] by slot */
	struct draft_run *followed;     /* [seqs_max] */
};

/* Kept prefixes to be recomputed and compared; see proof.c. */
struct proof {
	struct proof_job *job; /* the first is at work while req is there */
	int n_job;
	struct request *req; /* the engine's own */
	uint64_t drawn;      /* coins so far */
};

/* squeeze.c: what experts' slots took at the start, in bytes, and take now. */
struct squeeze {
	size_t asked, slots;
	size_t slot;     /* of one */
	int64_t next_ns; /* when memory is looked at again */
	bool is_short;   /* it was, when last looked at: none is made ready ahead of time */
};

/* Members that other threads share with the engine's thread: all under the lock. */
struct inbox {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_cond_t answered; /* commands are done */
	struct command *command; /* to the prefix store, oldest first */
	bool woken;              /* by engine_wake */
	struct request *first, **end;
	struct queue queue;                /* submitted and not yet admitted for the first time */
	uint64_t submitted, submitted_own; /* own: those of the engine's, see proof.c */
	int64_t refused[N_LIMIT];
	int64_t work_ns; /* when work came to an engine that had none */
	bool closing, draining;
	struct engine_stats shown;
};

/* A step's pass, and the room for what it gives. */
struct step {
	struct batch batch;
	struct pass pass;
	size_t logits_bytes, hidden_bytes;
	float *hidden;   /* [step_rows][hidden] for pass.hidden, backend memory */
	bool follows;    /* a drafter reads all hidden rows */
	struct tap *tap; /* pass.taps: of all drafters that read layers */
	float *logits;   /* [n_logit][vocab] of the step, which may be changed */
	float *copied;   /* them, of a backend whose memory is elsewhere; else NULL */
	bool *spoiled;   /* [seqs_max] items of the step, as backend.h has it */
	uint32_t *only;  /* bits for [vocab], none set: room to allow one token */
};

/* Times that are spent between two passes. */
struct between {
	int64_t keep_ns;  /* of this step, and between two: copying states that are kept */
	int64_t tower_ns; /* that a tower took since the last step */
	int64_t ready_ns; /* spent on making memory ready for states since the last step */
};

struct engine {
	struct model *m;
	const struct tokenizer *tok;
	struct engine_opts opts;
	struct clock *clock;
	int ctx_max;       /* longest sequence in positions */
	size_t pool_bytes; /* of the pools that sequences grow in; 0: the model has none */

	pthread_t thread;
	struct inbox inbox;
	struct engine_stats stats; /* the engine's copy; shown at the end of a step */
	struct sched sched;
	struct pace pace;
	struct between between;
	bool prepared;  /* memory for the next states is ready, or none is needed */
	double miss;    /* share of prompt tokens not found in kept prefixes, lately */
	double hold_ns; /* how long a request runs, lately */
	struct prefix prefix;
	struct announce *announce; /* NULL: blocks are not announced */
	int place_block;           /* states are kept at multiples of it; 0: anywhere */
	struct span_ids spans;     /* any thread */
	struct disk *disk;         /* NULL: none */
	struct vectors vectors;
	struct proof proof;
	struct squeeze squeeze;
	struct step step;
	struct drafting drafting;
	bool ending; /* the engine closes: nothing more is kept */
	bool lost;   /* a file of the model became shorter: nothing can be computed any more */
};

int64_t engine_now(const struct engine *e);
/* Any thread: what a waiting request waits for may be there. */
void engine_wake(struct engine *e);
/* Whether requests run or wait.  Under the lock. */
bool inbox_has_work(const struct inbox *b);
/* Shows what the engine counted since, to engine_stats(). */
void engine_show_stats(struct engine *e);
/* Takes r out of the books of the queue: it is admitted for the first time, or ends before that. */
void engine_dequeue(struct engine *e, struct request *r);
/* The ring of clients holds c, or lets go of it. */
void engine_client_hold(struct engine *e, struct client *c);
void engine_client_forget(struct engine *e, struct client *c);
/* Ends a request, waiting or running: memory back, last event out, reference dropped. */
void engine_finish(struct engine *e, struct request *r);
void request_unref(struct request *r);

/* ---- rows_taken.c ---- */
/* Can the rows that are asked for be given, and a text of a model that sees whole texts be computed?  Any thread. */
int rows_check(const struct engine *e, const struct ask *a, struct err *err);
/* What the request wants of its rows.  E_FULL. */
int rows_begin(struct engine *e, struct request *r, const struct ask *a, struct err *err);
/* Does an item of the step have rows that its request wants? */
bool rows_wanted(const struct engine *e);
/* After a pass: gives an item's rows to what its request wants.  E_DEVICE: they could not be read. */
int rows_take(struct engine *e, const struct batch_item *it, struct err *err);

/* ---- squeeze.c ---- */
void squeeze_init(struct engine *e);
/* Once a second, between two steps: gives memory back while it is short. */
void squeeze_step(struct engine *e);

/* ---- sched.c ---- */
void sched_init(struct sched *s, int seqs_max);
void sched_fini(struct engine *e);
/* Takes it out of wherever it is; a running one's slot is closed. */
void sched_remove(struct engine *e, struct request *r);
/* Chooses the rows of this step, admits the requests whose turn it is and reserves their
 * memory; preempts when no request can go on otherwise.  false: none runs, or all wait for vectors (brought.h). */
bool sched_fill(struct engine *e);
/* Does any running request decode? */
bool sched_decodes(const struct sched *s);
/* Moves a running sequence to another slot (if one is free) through a snapshot. */
int sched_resume(struct engine *e, struct request *r, struct err *err);

/* ---- draft.c ---- */
void drafting_init(struct drafting *g, int seqs_max, int n_drafter);
void drafting_fini(struct drafting *g);
/* The step, from its rows to its tokens, took so long. */
void draft_timed(struct engine *e, int64_t ns);
/* Before r starts: is what drafters keep of its prompt on its way from disk? */
bool draft_fetches(struct engine *e, struct request *r);
/* Drops kept prefixes of the drafters: those that begin with tok[0..n) under the salt; n 0:
 * all under it, and with salt NULL all. */
void draft_drop(struct engine *e, const char *salt, const int32_t *tok, int n);
/* Fills the drafts of the running sequences that decode. */
void draft_propose(struct engine *e);
/* The step's rows are settled: tells the drafters that follow the model. */
void draft_follow(struct engine *e);
/* Accounts for a finished round of r: `drafted` drafts were computed, `accepted` of them accepted. */
void draft_judge(struct engine *e, struct request *r, int drafted, int accepted);
/* r's answer has ended, and not by an error or cancel. */
void draft_learn(struct engine *e, struct request *r);
/* The slot's sequence is gone. */
void draft_forget(struct engine *e, int slot);

/* ---- reuse.c ---- */
/* At admission: restores the longest known prefix into r's slot.  Returns its length. */
int reuse_start(struct engine *e, struct request *r);
/* Should r not start yet, because a running request computes what it begins with? */
bool reuse_waits(struct engine *e, struct request *r);
/* The next position at which a chunk of r must end so that its states can be kept. */
int reuse_cut(struct engine *e, const struct request *r);
/* The next positions at which its states are kept, n at most; how many there are. */
int reuse_places(struct engine *e, const struct request *r, struct place_at *at, int n);
/* Between begin and forward: the item's rows pass places. */
void reuse_foresee(struct engine *e, int item);
/* r's rows are settled: keeps the states at places that were passed, also if it ends. */
void reuse_passed(struct engine *e, struct request *r);
/* Keeps the state at r's position, if that is a place, or if drafts went past one. */
void reuse_moved(struct engine *e, struct request *r);
/* r ends, its slot still open or its memory parked: what it computed is kept. */
void reuse_end(struct engine *e, struct request *r);
/* Reports which kept prefix a prompt would resume from if it came now; changes nothing. */
void reuse_explain(const struct engine *e, const char *salt, const int32_t *tok, int n, struct prefix_report *out);

/* ---- proof.c ---- */
void proof_fini(struct proof *p);
/* r resumed at hit: may that be looked at, some time? */
void proof_draw(struct engine *e, const struct request *r, int hit);
/* Under the lock: is there anything to be done when all else is? */
bool proof_wants(const struct engine *e);
/* Between two steps, before the inbox is emptied: begins one when the engine is idle,
 * and abandons it when it is not. */
void proof_begin(struct engine *e);
/* The engine's own request has computed its prefix. */
void proof_judge(struct engine *e, struct request *r);

/* ---- prefix_calls.c ---- */
/* The text that stands for salt (NULL: "") and adapters in keys of prefixes: different for different pairs; without adapters
 * the salt itself.  Caller frees. */
char *prefix_salt(const char *salt, const struct adapter_mix *adapters);
/* E_ARG: they are too many. */
int adapters_of_ask(struct adapter_mix *out, const struct ask_adapters *a, struct err *err);
struct command;
/* Under the lock: is there anything to run? */
bool commands_wait(const struct inbox *b);
/* Between two steps. */
void commands_run(struct engine *e);

/* ---- guard.c ---- */
/* Calls fn(arg), which changes nothing but r's own data (and counters).  False: a fault
 * broke it off, now or earlier, and r is ending with an error. */
bool request_guard(struct request *r, void (*fn)(void *arg), void *arg);
/* Ends r with code, E_FAULT or E_MEMORY, as if a guarded call on it had just failed. */
void request_break(struct request *r, int code);
/* Gives up a broken request once nothing refers to it: the rest of its memory is leaked. */
void request_give_up(struct request *r);

/* ---- verify.c ---- */
/* Looks at the item's logits and takes the next token, and one more for each
 * draft that it turns out to be.  Returns how many of its rows stay. */
int verify(struct engine *e, struct batch_item *it);
/* Ends the answer: text that was held back may now go.  Fills ev's text. */
void verify_flush(struct request *r, struct event *ev);
/* Marks the request as ending. */
void verify_end(struct request *r, enum finish why);

#endif
