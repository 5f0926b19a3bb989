/* grammar.h - what an answer may look like, compiled; and how far one has come.
 *
 * A grammar is a pushdown automaton over bytes: JSON values as a schema allows
 * them, in one order of members and with bounded white space.  It is constant and
 * may be shared by any number of threads.  A matcher is one walk through it, used
 * by one thread at a time.
 *
 * From every place that can be reached the end can be reached: a byte that leads
 * nowhere is refused when it comes, not later.  docs/structured-output.md says
 * which keywords are done and how values are written. */
#ifndef TEXT_GRAMMAR_H
#define TEXT_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

struct grammar;

/* Compiles a JSON Schema, which may be freed afterwards.  E_UNSUPPORTED names a
 * keyword that is not done and its place; E_FORMAT a schema that is none, or that no
 * value fulfils; E_LIMIT one that takes too much; E_MISSING a reference to nothing. */
int grammar_compile(const struct json *schema, struct grammar **out, struct err *err);

/* A grammar of the text between the tags of a call: of any of the tools (an array as the
 * OpenAI API has it, checked), or of `only`.  Arguments are held to their schema; where that
 * has keywords that are not supported they are any object, unless the tool is "strict".
 *
 * CALLS_JSON: {"name": NAME, "arguments": {...}}.  CALLS_TAGGED: <function=NAME>,
 * <parameter=KEY> ... </parameter> and </function> on lines of their own; what may be a
 * string alone is bare text there, other values are JSON.
 *
 * Without tags: CALLS_LLAMA: {"name": NAME, "parameters": {...}}, more of them behind ;
 * CALLS_PYTHON: [NAME(KEY=value, ...), ...], values in JSON but for True, False and
 * None; E_UNSUPPORTED when a function cannot be named so.  More than one: if several. */
enum calls_form { CALLS_JSON, CALLS_TAGGED, CALLS_LLAMA, CALLS_PYTHON };
int grammar_compile_calls(const struct json *tools, enum calls_form form, const char *only, bool several,
                          struct grammar **out, struct err *err);

/* A grammar's tools whose arguments are not held to what their parameters say, as they are not strict; NULL: there are
 * none. They live as long as the grammar. */
struct let_go {
	const char *name;
	const struct let_go *next;
};
const struct let_go *grammar_let_go(const struct grammar *g);

/* Texts that are one token each: mark i of the list is the byte MARK_FIRST + i, which no UTF-8 has, in a grammar and
 * in what a matcher is given; so ordinary text that spells such a token is not taken for it, nor the other way. */
enum { MARKS_MOST = 7, MARK_FIRST = 0xF8 };
struct call_marks {
	const char *text[MARKS_MOST];
	int n;
};

/* Spellings of other calls, from behind the first tag to behind the last call:
 *
 *     first CALL between CALL ... last        CALL: head NAME behind ARGUMENTS tail
 *
 * Any of head[], behind[] and tail[], of which no behind begins another; '\1' in them is a number of up to three
 * digits, '\2' nine letters or digits, '\3' up to 40 of these and - _ . :
 * Arguments: SPELL_JSON an object; SPELL_MARKED: key KEY key_end value value_end value_gap ... end, values bare
 * text or JSON as in CALLS_TAGGED, of which bare text has key_end and JSON key_end_json (NULL: the same), and `line`
 * says whether a line break comes before the end of bare text; SPELL_PYTHON: as in CALLS_PYTHON, of which only first,
 * between and last count; SPELL_GEMMA: an object whose strings are between `quote`, which must be marks[0] (else
 * E_UNSUPPORTED). */
enum calls_spell { SPELL_JSON, SPELL_MARKED, SPELL_PYTHON, SPELL_GEMMA };
struct calls_spelling {
	enum calls_spell spell;
	const char *first, *between, *last; /* NULL counts as "", in all members */
	const char *head[4], *behind[16];   /* end with NULL */
	const char *tail[3];
	const char *key, *key_end, *key_end_json, *value_end, *value_gap, *end;
	const char *quote;
	const char *spelled_end; /* value_end as text, where marks were put into it; set by grammar_compile_spelled */
	bool line;
};
int grammar_compile_spelled(const struct json *tools, const struct calls_spelling *sp, const struct call_marks *marks,
                            const char *only, bool several, struct grammar **out, struct err *err);

/* Rules as llama.cpp's GBNF writes them; text in which a regular expression
 * (pattern.h) is found from beginning to end; one of an array of strings.  Errors as
 * above; those of rules name the rule, its line and column. */
enum { GBNF_BYTES_MAX = 100000 };
int grammar_compile_gbnf(const char *text, size_t n, struct grammar **out, struct err *err);
int grammar_compile_regex(const char *re, size_t n, struct grammar **out, struct err *err);
int grammar_compile_choice(const struct json *list, struct grammar **out, struct err *err);
size_t grammar_bytes(const struct grammar *g); /* of its tables */
void grammar_ref(struct grammar *g);
void grammar_unref(struct grammar *g); /* NULL is allowed */

/* ---- a walk ---- */

struct matcher;

struct matcher *matcher_new(struct grammar *g); /* holds a reference */
struct matcher *matcher_copy(const struct matcher *m);
void matcher_free(struct matcher *m);

/* Takes p[0..n) as one step.  False: the grammar does not allow it, and nothing
 * was taken. */
bool matcher_put(struct matcher *m, const char *p, size_t n);
/* Undoes the last n steps; n is at most the number of steps made, and of a matcher with more than 4,000 steps at most
 * 4,000 can be undone. */
void matcher_back(struct matcher *m, int n);

/* Begins anew, as one step that can be undone. This many line breaks, up
 * to MATCHER_BREAKS_MAX, may come before the value, and one after it, as some
 * templates have them; a new matcher allows none. */
void matcher_restart(struct matcher *m, int before, bool after);
enum { MATCHER_BREAKS_MAX = 2 };

bool matcher_complete(const struct matcher *m); /* what was taken is a whole value */
bool matcher_whole(const struct matcher *m);    /* and nothing may follow it */

/* Text that must come next, up to max bytes into out; how many there are.  Where 2 to MATCHER_CHOICES_MAX bytes may
 * come behind text[0..n_text) `choose` says with which of them to go on (-1: with none).  Ends where the value may. */
enum { MATCHER_CHOICES_MAX = 4 };
typedef int matcher_choice(void *arg, const char *text, size_t n_text, const uint8_t *may, int n);
size_t matcher_ahead(struct matcher *m, char *out, size_t max, matcher_choice *choose, void *arg);

/* ---- masks ---- */

/* The tokens of a tokenizer in the order of their bytes; constant. */
struct vocab;
/* Tokens are [0, n).  Those that bytes() has no bytes for never match. */
struct vocab *vocab_new(int32_t n, const char *(*bytes)(void *ctx, int32_t id, size_t *len), void *ctx);
void vocab_free(struct vocab *v);
int32_t vocab_size(const struct vocab *v);

/* Bit i % 32 of mask[i / 32], of (size + 31) / 32 words: matcher_put would take the
 * token's bytes.  Valid until the matcher's next call. */
const uint32_t *matcher_mask(struct matcher *m, const struct vocab *v);

#endif
