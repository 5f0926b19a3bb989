/* generate.h - an exchange that has the engine write: from a body to answers.
 *
 * An endpoint reads its bodies and writes its shapes (struct endpoint, second part);
 * what endpoints share is here: preparing on a worker, giving choices to the engine,
 * taking their events, pausing for a slow reader, server-sent events, the end, the
 * log line.  To add one: a file like api_chat.c. */
#ifndef SERVER_GENERATE_H
#define SERVER_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "server/chat/adapters.h"
#include "server/http/exchange.h"
#include "server/chat/explain.h"
#include "server/images/images.h"
#include "server/chat/past.h"
#include "server/chat/params.h"
#include "server/chat/prompt.h"
#include "server/server.h"
#include "server/chat/tool_kinds.h"
#include "text/grammar/grammar.h"
#include "text/calls/split.h"

/* Token counts of a request or an answer, as usage reports them. */
struct usage {
	int prompt, cached, output, thought;
	int accepted, rejected; /* drafts */
};

/* The pieces of an answer that its client was sent (chat_next). */
struct told_pieces {
	int n;        /* told whole */
	size_t bytes; /* told of the next one */
	bool begun;   /* the next one was announced */
	int calls;    /* counted by the endpoint */
};

/* Progress of an answer that is sent in blocks or items. */
struct answer_blocks {
	enum { BLOCK_NONE, BLOCK_THINKING, BLOCK_TEXT, BLOCK_CALL } open;
	int n;     /* begun */
	int piece; /* that began the last */
};

/* Ids of an answer's calls, those that were asked for (chat_call_id). */
struct call_ids {
	char (*v)[24];
	int n;
};

/* One answer being written. */
struct choice {
	int index;
	int prompt; /* which of the prompts */
	struct request *req;
	bool started, done, told_first;
	enum finish finish;
	const char *stop_text; /* the stop string that ended it, or NULL */
	struct usage usage;    /* until its end, so far */
	int64_t t_last;        /* clock of the last token; 0: none yet */

	struct tokens said; /* of answers that are remembered */

	/* The endpoint's: what was written and not yet sent. */
	struct split split; /* chats */
	struct told_pieces told;
	struct buf called; /* the function whose call is being told; completions: prompt_logprobs */
	int n_told;        /* completions: tokens of the prompt that are still to be said */
	bool enough;       /* what else the model says is not wanted */
	struct answer_blocks block;
	struct call_ids ids;
	struct buf text;        /* completions */
	struct buf logprobs[4]; /* arrays without their brackets */
	size_t text_at;         /* characters before the next token */
};

/* The prompts of a request, as tokens. */
struct prompts {
	struct tokens *of; /* [n] */
	int n;
	const char *called; /* what errors call one; NULL: "the prompt" */
	bool cut;           /* one that is too long is cut by the endpoint, not refused */
	bool told;          /* all of one but its first token is output, with log-probabilities */
};

/* Places in the one prompt of a chat; see struct ask. */
struct marks {
	int at[MARKS_MAX], n;
	unsigned char kind[MARKS_MAX];
};

/* Places in the one prompt of a chat at which messages begin, for cache_report: see explain.h. */
struct message_places {
	int *at, n; /* NULL: not known */
};

/* The tools of a chat, and how its model calls them. */
struct tool_set {
	const struct json *list; /* of body or made, where calls are to be looked for; NULL: not */
	struct json *shown;      /* with what the template wants of them; NULL: they are shown as they are */
	struct tool_kinds kinds; /* of those that are not functions */
	const struct dialect *const *dialects;
};

/* Thoughts in the answer of a chat. */
struct thoughts {
	const struct speech *speech; /* what is around them */
	bool open;                   /* the prompt ends inside of one */
	bool may_open;               /* the answer may begin with one */
	bool hidden;                 /* they are not told */
};

/* Tokens that an answer is made to say. */
struct led {
	bool on;
	struct lead lead; /* when on; its arrays are those of end and then */
	struct tokens open, end, then;
};

/* Rows of each prompt that are wanted in the place of an answer (engine/wanted_rows.h). */
struct rows_wish {
	unsigned kinds; /* 0: none */
	/* [prompts.n] as struct ask has them, with kinds.  NULL: the last row, of one text; kind 0: kinds. */
	unsigned *kind;
	int *from, *second;
};

/* Grammars that constrain an answer (structured.h). */
struct held {
	struct grammar *content; /* NULL: content is free */
	struct grammar *calls;   /* NULL: calls are free */
	bool must_call;
	const struct vocab *vocab; /* with either */
};

/* The stream of events of a reply. */
struct reply_stream {
	bool begun;
	bool sent;               /* something went out since the last tick */
	struct event *tick;      /* keeps a quiet one alive; NULL: nothing does */
	struct journal *journal; /* NULL: none */
};

struct generation {
	struct exchange *x;
	const struct endpoint *endpoint;
	const struct served *served;
	struct params params;
	struct wanted_adapters adapters;
	struct prompts prompts;
	struct images images; /* of a chat: its one prompt's */
	struct marks marks;
	struct message_places messages;
	struct prefix_report prefix; /* of the first choice */
	struct past past;            /* of a chat, where turns are replayed */
	struct json *body;           /* kept while choices look at its tools */
	struct json *made;           /* of body's parts, in the form they are used in; NULL: nothing */
	struct tool_set tools;
	struct thoughts thoughts;
	struct led led;
	struct rows_wish rows;
	struct held held;
	struct buf echo; /* what a reply repeats of its request, or is made of */
	void *own;       /* made by own_new of the endpoint that read the body; warming changes endpoint afterwards */
	void (*own_free)(void *own);
	const char *reply_type; /* of a whole reply; NULL: JSON */
	struct reply_stream stream;
	int64_t created; /* seconds since 1970; the time that templates print */

	struct choice *choice;             /* [n_choice] */
	int n_choice, n_submitted, n_done; /* submitted: given to the engine */
	int64_t t_first;                   /* clock of the first token; 0: none yet */
};

/* The chat template of this request, once its tools are known: see served_template. */
static inline const struct template *generation_template(const struct generation *g)
{
	return served_template(g->served, g->tools.list != NULL);
}

/* A generation that has read nothing yet; x->work of an exchange, or for tests. */
struct generation *generation_new(const struct served *served, const struct endpoint *as);
void generation_free(struct generation *g);

/* The steps of an endpoint that has the engine write. */
#define GENERATION_STEPS                                                                                      \
	.prep = generation_prep, .ready = generation_ready, .wake = generation_wake, .drop = generation_drop, \
	.abandon = generation_abandon, .stop = generation_stop
void generation_prep(struct exchange *x);
/* generation_prep for a body that was parsed, which is taken over, and is read as that endpoint reads it. */
void generation_prep_as(struct exchange *x, const struct endpoint *as, struct json *body);
void generation_ready(struct exchange *x);
/* The two halves of generation_ready: gives the work to the engine, 0 or *p's status; and begins the stream. */
int generation_start(struct exchange *x, struct problem *p);
void generation_stream(struct generation *g);
void generation_wake(struct exchange *x);
/* The generation that the engine works on for x, or NULL: x has another endpoint, its client left, or
 * is still prepared by a worker, which writes to x->work.  Main thread. */
const struct generation *generation_running(const struct exchange *x);
void generation_drop(struct exchange *x);
void generation_abandon(struct exchange *x);
void generation_stop(struct exchange *x, const struct problem *p);

/* Replies with a whole JSON body, which is taken over, and the header that names unknown fields; ends the exchange. */
void generation_reply(struct generation *g, struct buf *body);

/* Reads the adapters of a body, by model or lora.  The model itself was chosen before (known_models.h). */
int model_read(struct generation *g, const struct json *body, struct problem *p);
/* The model's name in replies: that of the served model, or of the adapter that the request named. */
const char *model_shown(const struct generation *g);

/* Room for n prompts; each is to be filled with its tokens. */
void generation_prompts(struct generation *g, int n);
/* Tokenises text into prompt i.  user marks what must not be read as special tokens. */
int generation_tokenize(struct generation *g, int i, const char *text, size_t n, unsigned flags,
                        const struct text_range *user, size_t n_user, struct problem *p);

/* A choice that is zeroed, its numbers filled in, gets its buffers and its endpoint's beginning. */
void choice_open(struct generation *g, struct choice *c);

/* For endpoints: the members that every object of a reply begins with, up to the
 * value of "choices"; object names its kind. */
void put_reply_head(const struct generation *g, struct buf *out, const char *object);
/* Appends the prefix store's report on the first prompt as an object; put_cache_report appends it as a further
 * member of usage, for requests with cache_report. */
void generation_explain(const struct generation *g, struct buf *out);
void put_cache_report(const struct generation *g, struct buf *out);
void put_usage(const struct generation *g, struct buf *out, bool thinking);
/* That of all answers together, where a prompt counts once. */
struct usage generation_usage(const struct generation *g);
/* Appends the member "timings" for these tokens, until now, with llama-server's members. */
void put_timings(const struct generation *g, struct usage u, struct buf *out);
/* {"total", "cache", "processed", "time_ms"} of a PROGRESS, as llama.cpp has it. */
void put_progress(const struct generation *g, const struct choice *c, const struct event *ev, struct buf *out);
/* The usage event, if it was asked for, and [DONE]. */
void close_openai(struct generation *g, const char *object, bool thinking, struct buf *out);
void event_begin(struct buf *out);
void event_named(struct buf *out, const char *name); /* with an event line before its data */
void event_end(struct buf *out);
/* "stop", "length"; NULL in C for an answer that was broken off. */
const char *finish_name(enum finish f);
/* A token as logprobs show it: its text, U+FFFD for what is not UTF-8. */
void put_token(const struct served *d, int32_t id, struct buf *out);
void put_logprob(struct buf *out, float v);

#endif
