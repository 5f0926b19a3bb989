/* talk.h - messages to an answer that is shown as it comes: what `weft run` does, once or in a
 * conversation.  The model is opened here, or lives behind a server (remote.h). */
#ifndef CLI_TALK_H
#define CLI_TALK_H

#include "cli/markdown.h"
#include "base/buf.h"
#include "cli/cli.h"
#include "host/load.h"
#include "text/calls/split.h"

struct remote;

struct talk {
	struct options *o;      /* a copy of the command's, which /set changes */
	struct session s;       /* not with remote */
	struct remote *remote;  /* --url: the server that answers; NULL: the model of s */
	const char *name;       /* of the model */
	struct json *messages;  /* an array */
	struct talk_seen *seen; /* images of the conversation; NULL before talk_images */
	char *system;           /* of /system; NULL: the options' */
	bool conversation;
	bool nothing_asked; /* the command line and standard input were empty */
	bool err_tty, out_tty;

	/* State of the answer under way. */
	struct split split;
	struct markdown markdown; /* of the answer, at a terminal */
	struct buf thinking, answer;
	bool line_used; /* a line of progress is on the terminal */
	enum { SAID_NOTHING, SAID_THOUGHT, SAID_ANSWER } said;
};

/* From now on Ctrl-C ends the answer under way, and not the program.  One thread, the main one. */
void talk_catch_interrupts(void);
/* Whether Ctrl-C came since it was forgotten. */
bool talk_interrupted(void);
void talk_interrupt(void);
void talk_forget_interrupt(void);

/* Begins with the images of the options, which the first message of the user will show. */
int talk_images(struct talk *t, struct err *err);
void talk_images_end(struct talk *t);
/* Lets go of the images of another conversation, unless some wait for the next message. */
void talk_images_forget(struct talk *t);
enum sees talk_sees(const struct talk *t);
/* Appends an image to what the next message of the user begins with; an error names the file.  So talk_text does with text. */
int talk_image(struct talk *t, const char *path, struct err *err);
void talk_text(struct talk *t, const char *text, size_t n);
/* How much waits so, and back to that much. */
size_t talk_shown(const struct talk *t);
void talk_shown_cut(struct talk *t, size_t n);
/* Appends a message; role is a plain word. */
void talk_message_put(struct talk *t, const char *role, const char *text, size_t n);
/* Appends the answer that came last, with its thinking. */
void talk_answer_put(struct talk *t);

/* Asks with the messages, or goes on with ids where there is no template; shows the answer and, on
 * standard error, what it took.  Its text stands in t->answer and t->thinking. */
int talk_ask(struct talk *t, struct err *err);
int talk_go_on(struct talk *t, const struct tokens *ids, struct err *err);

/* converse.c: turns until the user ends them. */
int converse(struct talk *t, struct err *err);
/* The system message of the options, if any, and no other.  t->messages is NULL, or a conversation that ends. */
void conversation_begin(struct talk *t);

#endif
