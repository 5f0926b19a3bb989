/* explain.h - what a client is told of the prefix that its prompt was resumed from. */
#ifndef SERVER_EXPLAIN_H
#define SERVER_EXPLAIN_H

#include "base/buf.h"
#include "engine/prefix/report.h"
#include "text/tokens/tokenizer.h"

struct clients;

/* The parts of a prompt that explaining it needs. */
struct explained {
	const struct tokens *ids;
	const int *message_at; /* [n_message] token where each message's text begins; NULL: not known */
	int n_message;
	int n_turn, n_turn_token; /* turns of ours that were recognised, and tokens taken from them */
};

/* Appends an object: {"prompt_tokens", "resumed_at", "replayed", "computed",
 * "source", "reason", "place", "denser_grid_saves", "first_diff", "turns"}.  secret: what other prompts say is
 * not this client's business, so the token that was there is left out. */
void explain_put(struct buf *out, const struct tokenizer *t, const struct explained *x, const struct prefix_report *r,
                 bool secret);

#endif
