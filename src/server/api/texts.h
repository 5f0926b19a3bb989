/* texts.h - what the endpoints share that make vectors and scores of texts: reading texts into prompts, and what the engine's
 * rows become.
 *
 * A request of these endpoints is a generation without answers: each text, or pair, is a prompt whose pooled rows are wanted
 * (g->rows.kinds).  docs/embeddings.md has what each API says. */
#ifndef SERVER_TEXTS_H
#define SERVER_TEXTS_H

#include "embed/embedder.h"
#include "server/chat/generate.h"

enum { TEXTS_MAX = 2048 }; /* of one request */

/* What a request asks of all its texts; the endpoint's own (g->own). */
struct texts_ask {
	const struct embedder *of; /* NULL: of a model that is not known, and writes */
	const char *prompt;        /* put before each text; NULL: nothing */
	bool cut, ends;            /* texts that are too long are cut, at their beginning */
	int64_t most;              /* tokens, where texts are to be shorter than the model has them; 0: they are not */
	bool plain_ids;            /* no tokens around texts */
	bool raw;                  /* vectors keep their length, scores are logits */
	int dimensions;            /* 0: all */
	bool base64;
	/* Members that single endpoints use. */
	int norm;       /* llama-server's embd_normalize */
	unsigned types; /* Cohere's embedding_types */
	int top_n;      /* 0: all */
	bool documents; /* are shown again */
	bool bare;      /* TEI's shape: a list without an envelope */
	bool batch;     /* the reply is a list of replies */
	bool rows;      /* each row's vector or scores */
	int n_first;    /* of two lists, each text of the first with each or one of the second; 0: pairs are prompts */
	struct json *body; /* kept for documents */
};

/* For struct endpoint. */
void *texts_own_new(void);
void texts_own_free(void *own);
void texts_no_token(struct generation *g, struct choice *c, const struct event *ev);
void texts_no_end(struct generation *g, struct choice *c);
#define TEXTS_ENDPOINT(prefix, reader, writer, none)                                                        \
	{                                                                                                   \
		GENERATION_STEPS, .id_prefix = prefix, .read = reader, .own_new = texts_own_new,            \
				  .own_free = texts_own_free, .token = texts_no_token, .end = texts_no_end, \
				  .whole = writer, .nothing = none, .takes_texts = true                     \
	}

/* What the model is to be able to do. */
enum texts_want { WANT_VECTORS, WANT_ROWS, WANT_SCORES, WANT_LABELS, WANT_NEARNESS };

/* Members about the client that all of these requests may have, in a table of fields. */
#define TEXTS_ABOUT                                                            \
	{ "user" }, { "safety_identifier" }, { "metadata" }, { "cache_salt" }, \
	{                                                                      \
		"priority"                                                     \
	}
/* body_check with one table. */
struct json *texts_check(struct generation *g, struct json *body, const struct field *fields, struct problem *p);
/* Whether the member is that word, in any case. */
bool texts_word(const struct json *body, const char *field, const char *word);

/* Begins: reads the model and what clients say about themselves (body_of), and refuses, with 400, what the model cannot do.
 * 0, or *p's status. */
int texts_begin(struct generation *g, const struct json *body, enum texts_want want, struct problem *p);
/* "truncate_prompt_tokens" of vLLM, where -1 is the model's own limit.  side: the member that says which side of a text is cut;
 * NULL: there is none. */
int texts_cut(struct generation *g, const struct json *body, const char *side, struct problem *p);
/* "dimensions", held to what the model gives; and a prompt by its name. */
int texts_dimensions(struct generation *g, const struct json *body, const char *field, struct problem *p);
int texts_prompt(struct generation *g, const struct json *body, const char *field, struct problem *p);
/* The first of these prompts that there is, or none. */
void texts_usual_prompt(struct generation *g, const char *const *names);
/* Room for n prompts; more than TEXTS_MAX is an error. */
int texts_room(struct generation *g, int n, const char *field, struct problem *p);
/* Reads a string, ids, or a list of these into prompts.  objects: entries may be objects with a member "text". */
int texts_read(struct generation *g, const struct json *v, const char *field, bool objects, struct problem *p);
/* Reads a text, or a pair, into prompt i. */
int text_take(struct generation *g, int i, const struct json *a, const struct json *b, const char *field,
              struct problem *p);
/* The text of a document: a string, or an object with "text"; NULL: it is none. */
const char *document_text(const struct json *v, size_t *n);

/* After the answer: what a choice's rows give, *n floats, to be freed; with a->rows *n_row rows of them. */
float *texts_vector(const struct generation *g, const struct choice *c, int *n, int *n_row);
float *texts_scores(const struct generation *g, const struct choice *c, int *n, int *n_row);
/* [1.5,2] */
void put_floats(struct buf *out, const float *v, int n);
void put_base64(struct buf *out, const void *p, size_t bytes);
/* The cosine of two vectors of one length. */
double nearness(const float *a, const float *b, int n);
/* Order by falling score; equal ones keep theirs.  [n], to be freed. */
int *order_of_scores(const float *score, int n);

#endif
