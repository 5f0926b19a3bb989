/* dialect.h - how a family of models writes calls of functions.
 *
 * One file and one line in dialect.c for each.  split.c finds where a call begins
 * and then has the dialect read it out of the held bytes. */
#ifndef TEXT_DIALECT_H
#define TEXT_DIALECT_H

#include "text/calls/split.h"
#include "text/grammar/dfa.h"
#include "text/grammar/grammar.h"
#include "text/jinja/template.h"

enum verdict { CALL_NO, CALL_MAYBE, CALL_YES }; /* MAYBE: more text will tell */

enum progress {
	CALL_MORE, /* more text is needed */
	CALL_DONE, /* the call is over: whole (CALL_END was put), or broken off (malformed) */
};

/* Marks around thoughts, and text that belongs to the form and not to the answer. */
struct speech {
	const char *think_open, *think_close;
	bool reopens;             /* thoughts may begin anywhere */
	const char *const *noise; /* ends with NULL */
	/* Texts that end a thought which was not closed, and are not part of it; ends with NULL, or is NULL. */
	const char *const *breaks;
	/* Where an answer is in messages of its own: what comes before the content, and before any but the first
	 * message.  NULL: nothing does. */
	const char *content_open, *turn;
};

struct dialect {
	const char *name;
	const char *open; /* what comes before a call. "": a call can only begin the content */
	/* Is p[0..n), which follows `open`, a call, by what there is? over: there is no more. */
	enum verdict (*begins)(const struct split *s, const struct dialect *d, const char *p, size_t n, bool over);
	/* After a YES: takes what it can from s->held, which begins after `open`, and
	 * puts pieces.  Called again as more is held.  What it leaves in held when it is
	 * done is content, or the next call. */
	enum progress (*read)(struct split *s, bool over);
	/* The beginning of a call of that function (NULL: of any), to make a model call. It
	 * ends where a token is likely to: models are at a loss inside of one. */
	void (*lead)(struct buf *out, const char *function);
	const struct speech *speech; /* of the models that are taught it; NULL: <think>, and no noise */
	const void *form;            /* the file's own, where several dialects share their functions */
	/* How calls are held to the tools' schemas; NULL: they are not, or in one of the ways that structured.c names.
	 * marks: texts of the spelling that are tokens of their own, ended by NULL.  opened: the part of `open` that
	 * the spelling begins with. */
	const struct calls_spelling *held;
	const char *const *marks;
	const char *opened;
};

/* The dialects that an answer to this template's prompts may be written in, the one
 * it teaches first; ends with NULL. */
const struct dialect *const *dialects_of(const struct template *t);
/* The one it teaches, or NULL: none that is known. */
const struct dialect *dialect_taught(const struct template *t);
/* The marks around thoughts in this template, whether its models think or not: <think> where it names no others. */
const struct speech *speech_of(const struct template *t);
/* Do its models think? */
bool speech_thinks(const struct template *t);

extern const struct dialect dialect_tagged, dialect_tagged_bare, dialect_hermes, dialect_llama, dialect_python;
extern const struct dialect dialect_list_mistral, dialect_list_granite, dialect_list_nemotron, dialect_list_apriel,
	dialect_list_cohere, dialect_list_apertus;
extern const struct dialect dialect_mistral, dialect_kimi, dialect_deepseek, dialect_deepseek_fenced,
	dialect_functionary, dialect_tagged_json, dialect_wrapped_json, dialect_harmony, dialect_harmony_role,
	dialect_harmony_analysis, dialect_harmony_bare;
extern const struct dialect dialect_glm, dialect_glm_tight, dialect_minimax, dialect_seed, dialect_dsml,
	dialect_dsml_calls, dialect_dsml_bare, dialect_dsml_calls_bare, dialect_glm_json;
extern const struct dialect dialect_lfm, dialect_olmo, dialect_gemma;

/* ---- for dialects (split.c) ---- */

extern const struct speech speech_plain, speech_brackets, speech_inner; /* <think>, [THINK], <|inner_prefix|> */

void split_piece(struct split *s, enum piece_kind kind, const char *p, size_t n);
void split_call(struct split *s, const char *name, size_t n); /* CALL */
/* Drops the first n held bytes; or puts text before them. */
void split_drop(struct split *s, size_t n);
void split_put_back(struct split *s, const char *text);
/* The longest beginning of p[0..n) that is a tool's name; 0: none is. */
size_t split_prefix(const struct split *s, const char *p, size_t n);
bool split_knows(const struct split *s, const char *name, size_t n); /* is it one of the tools? */
/* The schema of that tool's arguments; NULL when it has none. */
const struct json *split_parameters(const struct split *s, const char *name, size_t n);

/* ---- arguments as text between marks (argument.c) ---- */

/* The kinds that an argument may have, as bits of enum json_kind; 0: its schema does not say.  All of the schema is
 * asked: references, combinations and patterns of keys, of the whole and of the argument.  In tagged calls, whose
 * values are bare text, an argument that may only be a string, or may be anything, is a string. */
unsigned argument_kinds(const struct json *parameters, const char *key);
bool argument_named(const struct json *parameters, const char *key); /* is it among the properties? */

/* What follows a value. */
struct value_form {
	const char *end;           /* begins with '<' and holds no other */
	const char *const *follow; /* ends with NULL: `end` is one where one of these follows it, with or without blanks
	                              between, or `end` again, or nothing more; else it is text of the value */
};
/* Where the value that begins at p[0] ends.  YES: f->end is at p + *len.  MAYBE: more text will tell.  NO: it is not a
 * list or object of those kinds followed by the end. An end inside of its brackets and strings does not count. x:
 * zeroed before the value's first bytes. */
enum verdict value_json(const struct value_form *f, unsigned kinds, struct extent *x, const char *p, size_t n,
                        size_t *len);
/* The same for any text; the first end counts where it may be something other than a string.  MAYBE: *len bytes surely
 * belong to it.  NO, where over: the end is missing. */
enum verdict value_text(const struct value_form *f, unsigned kinds, const char *p, size_t n, bool over, size_t *len);
/* Appends bare text as JSON of one of the kinds (0: any) if it reads as such, else as a string. */
void bare_value_put(struct buf *out, unsigned kinds, const char *p, size_t n);
/* What else the text of a string may be read as, of a value of those kinds; breaks: line breaks at its ends are
 * dropped. value_otherwise: the strings that would not come back (some that would are among them); NULL: the pool is
 * used up. */
enum { READ_BREAKS = 1, READ_NUMBERS = 2, READ_LISTS = 4, READ_WORDS = 8, READINGS = 16 };
int value_readings(unsigned kinds, bool breaks);
struct dfa *value_otherwise(struct dfa_pool *p, int readings);
/* The strings that hold this text, which has no sign of regular expressions. */
struct dfa *value_spelling(struct dfa_pool *p, const char *text);

size_t blanks(const char *p, size_t n);        /* at the beginning */
size_t blanks_at_end(const char *p, size_t n); /* at the end */
/* Looks on, from x->at; true: the value that begins at p[0] ends before p + x->at. */
bool extent_put(struct extent *x, const char *p, size_t n);
/* The end of the value that begins at p[0], in JSON or as Python writes it, brackets and strings minded, or 0
 * when it is not there yet. */
size_t json_extent(const char *p, size_t n);
/* p[0..n) as JSON, or an object or a list that mend() makes JSON of; NULL: it is neither.  json_free is the
 * caller's. */
struct json *json_mended(const char *p, size_t n);

/* Puts p[0..n), a part of an object or a list, into out as JSON (mend.c) and returns how many bytes it took: those left
 * may mean this or that and come again with what follows.  m is zeroed before the first part; m->closed: the value has
 * ended. */
size_t mend(struct mend *m, const char *p, size_t n, bool over, struct buf *out);

/* {"name": NAME, KEY: ... as calls in JSON begin.  YES: *name and *at are set, the
 * value of KEY begins at p + *at, and it is an object. */
enum verdict json_call_head(const char *p, size_t n, const char *const *keys, const char **name, size_t *n_name,
                            size_t *at);
/* For a dialect's read, with s->held beginning with such a call (s->call.stage is 0 until
 * then): the object itself.  MORE, or DONE when the object is closed, or with `malformed`; DONE again
 * from then on, while what follows is looked at. */
enum progress json_call_read(struct split *s, const char *const *keys, bool over);
/* Arguments that begin s->held, passed on as they are written up to the end of their object, and CALL_END. */
enum progress json_arguments_read(struct split *s, bool over);
/* p[0..n) against text: MAYBE while it may still become it. */
enum verdict text_match(const char *p, size_t n, const char *text);
/* How many of the last bytes of p[0..n) may be the beginning of text. */
size_t text_partial(const char *p, size_t n, const char *text);
/* How many bytes of p[0..n) are surely before text, and whether it is there.  Lengths are judged by this: then a text
 * that comes in pieces is judged as it is when it comes whole. */
size_t text_until(const char *p, size_t n, const char *text, bool *there);
/* A call that has another order: whole.  true: it was one, and with put it was put. */
bool json_call_whole(struct split *s, const char *p, size_t n, const char *const *keys, bool put);

#endif
