/* past.h - a conversation as it comes back: which of its turns are ours.
 *
 * Clients send our answers back rewritten: arguments of calls with their keys in
 * another order or written as other numbers of the same value, blanks around the
 * content gone or added, members null or left out, thinking stripped or empty.  A
 * message of the assistant that is, as data, an answer that this server gave to
 * exactly this history is taken as what it was (docs/prefix-store.md says what is
 * put in the place of what, and how to turn it off). */
#ifndef SERVER_PAST_H
#define SERVER_PAST_H

#include "base/json.h"
#include "server/chat/prompt.h"
#include "server/chat/turns.h"
#include "server/server.h"

/* A turn's place in the prompt's text, which there is what its tokens spell. */
struct splice {
	size_t at, n; /* bytes */
	const struct turn *turn;
};

struct past {
	struct turns *turns;
	struct turn **turn; /* [n] what message i is; NULL: none of ours, or not to be put back */
	int n, n_turn;
	struct digest end;     /* stands for all n messages */
	struct splice *splice; /* rising; once past_splice was called */
	int n_splice, n_token; /* tokens: of all of them */
	char *header;          /* how the turn of the answer begins; NULL: it is not remembered */
};

/* Everything besides messages that a prompt depends on: tools and template variables as JSON texts, and the
 * owner of the conversation. */
struct past_context {
	const char *salt; /* NULL: "" */
	int key;          /* of the API; see clients.h */
	uint64_t model;   /* whose tokens they are; see known_models.h */
	const struct json *tools, *variables;
};

void past_fini(struct past *h);

/* Looks every message up.  messages is an array in the normal form of messages.h. */
void past_read(struct past *h, struct turns *turns, enum turn_replay mode, const struct past_context *context,
               const struct json *messages);
/* The messages with ours in the place of theirs; and the same with a word in the
 * place of ours, so that two renderings tell where a turn ends.  To be freed. */
struct json *past_restore(const struct past *h, const struct json *messages);
struct json *past_blank(const struct past *h, const struct json *messages);
/* Puts the turns' own text into the rendered prompt, wherever the template begins
 * the turn as it did when it was answered; else (it drops past thinking, say) the
 * rendering is kept. blank: of past_blank. */
void past_splice(struct past *h, struct prompt *p, const struct template_output *blank, const struct tokenizer *t);
/* Remembers the answer to this history, which has a header. */
void past_remember(const struct past *h, const struct json *message, const struct tokens *answer);

/* The messages, to be freed, without what is known to change with every request and to
 * mean nothing: at the beginning of a system message, a line
 * "x-anthropic-billing-header: name=value; ...".  NULL: there was none. */
struct json *past_drop_volatile(const struct json *messages);

#endif
