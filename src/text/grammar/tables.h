/* tables.h - a compiled grammar, and the frames of a walk.
 *
 * For grammar.c, matcher.c and vocab.c. */
#ifndef TEXT_TABLES_H
#define TEXT_TABLES_H

#include <stdatomic.h>

#include "text/grammar/dfa.h"
#include "text/grammar/grammar.h"

enum { NO_LIMIT = UINT32_MAX };

enum shape_kind { SHAPE_WORD, SHAPE_ARRAY, SHAPE_OBJECT, SHAPE_CALLS, SHAPE_NET };

/* A value of one form. */
struct shape {
	enum shape_kind kind;
	uint32_t min, max; /* characters of a counted word, items, members */

	const struct dfa *d; /* a word's bytes; an object's keys: labels [0, n_prop) are its properties, those
	                                 * above are values of `other` */
	bool counted;        /* a string of any characters */
	bool colon;          /* an object's keys end with their colon: a bare key ends there, and not before */
	/* An object as tagged calls have it: d spells <parameter=KEY> and a line break
	 * for property i (label i), and the end (label n_node).  A value is one of
	 * node[i], in JSON, or of bare[i], text with its end; -1: none. */
	bool tagged;
	bool any_key; /* its one property stands for all there may be */
	int32_t *bare;
	const char *value_end; /* what follows a value in JSON; from value_end[bare_end] on one that is bare, too */
	uint32_t bare_end;
	/* CALLS: d spells <function=NAME>, or {"name": "NAME" as an object does; node[label] is the shape of what
	 * follows: parameters, or the object whose first property that was.  places: it is a place of the net, where
	 * the rule of the arguments begins. */
	bool places;

	int32_t *node; /* array: of the first items; object: of its properties */
	int n_node;
	int32_t rest;   /* array: of the items after them; -1: there are none */
	int32_t *other; /* object: of members that are not properties */
	int n_other;
	int32_t *next_need, *n_need; /* [n_node + 1] from property i on: the first that is required (n_node: none),
	                                 * and how many are */
	/* For each state of d: which labels can still come, properties in order. */
	int32_t *label_at, *label; /* those of state s are label[label_at[s]..label_at[s + 1]) */
	bool *other_at;
	/* For each state of d the state of any plain string (lexeme.h) after the same
	 * bytes, where all such strings are keys; NULL where some are not. */
	int32_t *plain_at;
};

/* Rules that hold themselves, as places.  For each place, what may come there
 * after empty moves: one of the steps (at[p] to at[p + 1]), or, where it ends, what
 * comes after the rule.  No rule begins with itself. */
struct net_step {
	int32_t shape; /* a word; -1: none */
	int32_t node;  /* a value; -1: none */
	int32_t rule;  /* the place where a rule begins; -1: none */
	int32_t to;    /* the place after it */
};

struct net {
	int32_t shape; /* of its frames */
	int32_t *at;
	struct net_step *step;
	bool *ends;
	bool *tail; /* it ends, and nothing else */
};

struct sheet;

enum { SHARED_SHEETS = 64 }; /* of a grammar: 32 kB each at 250,000 tokens, and up to 240 kB of exits */

struct grammar {
	atomic_int refs;
	_Atomic(struct sheet *) sheet[SHARED_SHEETS]; /* vocab.c's, of its words; in order, NULL ends */
	struct dfa_pool pool;                         /* holds everything */
	struct shape *shape;
	int n_shape;
	int32_t *first; /* [n_node + 1] the shapes of node i are first[i] .. first[i + 1] */
	int n_node;
	int32_t root;                     /* a node; -1: place 0 of the net */
	const struct net *net;            /* NULL: none */
	const struct dfa *string, *plain; /* any string: masks are shared by all walks */
	const struct dfa *bare;           /* any bare text of a call: its masks are shared, too; NULL: none */
	const struct let_go *let_go;      /* tools whose arguments are any object, though their parameters say more */
};

/* Places in a shape.  A word: the state of its automaton. */
enum phase { AT_FIRST, AT_NEXT, AT_KEY, AT_COLON, AT_VALUE, AT_BLANK_VALUE, AT_AFTER, N_PHASE };

/* One thread of a walk: a place, and those around it. */
struct frame {
	int32_t shape; /* SHAPE_END (at 1: a line break may follow), SHAPE_BEGIN, or an index */
	uint32_t at;   /* a word's state; a net's place; else phase << 24 | blanks, label or key state */
	uint32_t a, b; /* a word's characters; items; the next property, and members; of a net, b 1: a
	                                 * value of node a comes first */
	int32_t parent;
	int32_t chain; /* of the same hash */
};
enum { SHAPE_END = -1, SHAPE_BEGIN = -2 };

enum {
	THREADS_MAX = 64,             /* more are left out, which makes fewer texts possible and none wrong */
	INDENT_MAX = 40,              /* blanks after a line break */
	OFFERS_MAX = 4 * THREADS_MAX, /* words and values that places may offer in one step; more are left out */
	UNDO_MAX = 4000,              /* steps that a walk keeps at least */
	FRAME_END = 0,
};

struct threads {
	int32_t id[THREADS_MAX];
	int n;
	int offers; /* of places, in this step */
};

/* Frames are made once each and never change; the walk's history is lists of them. */
struct matcher {
	struct grammar *g;
	struct frame *frame;
	int n_frame, cap_frame;
	int32_t *bucket; /* [cap_frame] */
	int32_t *past;   /* the threads after each step */
	int *past_at;    /* [n_past + 1] */
	int n_past, cap_past, cap_threads;
	bool full;           /* once there was no room for all: for tests */
	int n_live;          /* frames, when they were last sorted out */
	uint64_t work;       /* frames stepped and offered, ever */
	struct masks *masks; /* NULL until asked for */
};

int32_t frame_make(struct matcher *m, struct frame f);
/* Forgets the frames from n on. */
void frame_drop(struct matcher *m, int n);
/* Adds what byte c makes of frame id to out. */
void frame_step(struct matcher *m, int32_t id, uint8_t c, struct threads *out);
void threads_step(struct matcher *m, const struct threads *in, uint8_t c, struct threads *out);

/* A place whose continuation is an automaton of its own until it ends: a word, or a
 * key.  NULL: the frame is none. */
const struct dfa *frame_word(const struct matcher *m, const struct frame *f, int *state);
/* May a key come to this state, after a and b of its frame? */
bool key_may(const struct shape *s, int state, uint32_t a, uint32_t b);
/* May it be one that is not a property? */
bool key_may_other(const struct shape *s, uint32_t a, uint32_t b);
/* Appends the threads that follow the end of a word in an accepting state. */
void word_end(struct matcher *m, const struct frame *f, int state, struct threads *out);

void masks_free(struct masks *k);
void sheet_free(struct sheet *s);
/* Frames have got other numbers. */
void masks_forget(struct masks *k);

#endif
