/* split.h - an answer's text as it comes, parted into thinking, content and calls.
 *
 *     <think> ... </think> content <tool_call> ... </tool_call> content ...
 *
 * Pieces come out in the order of the text, as soon as they are certain; of a
 * call, its arguments too.  However the text is cut, the pieces joined are the
 * same.  Blanks between the parts belong to none.  How a call is written is its
 * dialect's business (dialect.h).  Nothing is lost: what begins like a call and is
 * none is content, a call that breaks off keeps what there was of it, and
 * `malformed` tells of both.  Used by server and cli; one thread at a time. */
#ifndef TEXT_SPLIT_H
#define TEXT_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/json.h"

struct dialect;
struct speech;

/* Where mend() stands in a value. */
struct mend {
	char quote; /* of the string it is in; 0: it is in none */
	bool closed;
	size_t depth;
};

/* The state of the search for the end of a JSON value: open brackets and strings. */
struct extent {
	size_t at, depth; /* at: bytes looked at */
	char quote;       /* of the string it is in; 0: it is in none */
	bool escaped, ended;
};

enum piece_kind {
	PIECE_THINKING,
	PIECE_CONTENT,
	PIECE_CALL,      /* a call begins: the function's name */
	PIECE_ARGUMENTS, /* its arguments as JSON text, one object if it is whole; there always are some */
	PIECE_CALL_END,  /* it is whole; no text */
};

struct piece {
	enum piece_kind kind;
	size_t at, n; /* bytes of split.text */
};

enum split_state { SPLIT_START, SPLIT_THINK, SPLIT_TEXT, SPLIT_CALL };

struct split {
	/* Text that came out since split_taken. */
	struct buf text;
	struct piece *piece;
	int n_piece, cap_piece;

	int n_call, n_whole; /* begun so far, and ended as they should */
	bool malformed;
	/* The answer was made to begin with a call: what has its beginning and no name yet when it ends is
	 * dropped, and malformed is set.  Set after split_init. */
	bool demanded;
	enum split_state state;

	/* The splitter's own, and the dialects'. */
	const struct json *tools; /* as the request gave them; NULL: calls are not looked for */
	const struct dialect *const *dialects;
	const struct speech *speech; /* of the first of them */
	bool skip_blanks;            /* at the beginning of a part */
	bool content_begun;
	struct buf held;               /* not certain yet */
	const struct dialect *dialect; /* whose call is being read */
	struct {                       /* of that call; zeroed as it begins */
		int stage, n_argument, depth;
		bool in_string, escaped;
		struct mend mend;
		struct extent value; /* of the argument that is being read */
		unsigned kinds;
		struct buf name, arguments;
	} call;
};

/* thinking: the text begins inside a thought.  tools NULL: text in the form of a
 * call is content.  dialects as dialects_of gives them. */
void split_init(struct split *s, bool thinking, const struct json *tools, const struct dialect *const *dialects);
void split_fini(struct split *s);

void split_put(struct split *s, const char *p, size_t n);
void split_end(struct split *s);
/* The caller has handled all output: clears it. */
void split_taken(struct split *s);

/* Does the prompt p[0..n) end with an open thought? */
bool split_opens(const struct speech *how, const char *p, size_t n);
/* Or with a closed one? */
bool split_closes(const struct speech *how, const char *p, size_t n);

#endif
