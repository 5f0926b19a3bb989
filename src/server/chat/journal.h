/* journal.h - streams that survive their server.
 *
 * With --tune journal a streamed answer has a file in its model's folder of kept prefixes, which other servers read too: what
 * the answer is a function of besides its request (its seed, its time, the tokens of its prompt), and the tokens said so
 * far.  Every event of the stream has an id, "ANSWER.TOKENS.EVENT": how many tokens had been said, and which of the events
 * of that number it is.  A client whose stream broke off sends the same request to any of the servers, with the last id in
 * the header Last-Event-ID.  That server computes the answer again, with the file's tokens as drafts, and sends the events
 * behind that one.  So the file makes it fast, and nothing in it but seed, time and prompt can change a byte.
 *
 * A file goes an hour after its last token.
 *
 *     offset  0  magic "weftjrn1"
 *             8  created i64, seed u64: see struct generation, struct sampler_params
 *            24  SHA-256 of the request's path and body; digest of the model and its arithmetic
 *            88  tokens of the prompt u32; 0 u32; XXH3 of all before and of these tokens u64
 *           104  i32 of each token of the prompt
 *                i32 of each token of the answer, plus 1; 0: not written yet
 *
 * All numbers are little-endian. */
#ifndef SERVER_JOURNAL_H
#define SERVER_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/digest.h"
#include "server/http/problem.h"

struct generation;
struct journal;
struct server;

/* Worker.  For a request that is asked for again: fills g->stream.journal, g->created and the seed from its file.  Before the body is
 * read, since templates print the time.  Returns 0 or *p's status: 404 there is no such file, 409 it is of another request or
 * model, 400 the id. */
int journal_find(struct generation *g, struct problem *p);
/* Worker, when the body was read: begins a file for an answer that can have one (one choice of one prompt, streamed by an
 * endpoint that says `resumes`), or puts the prompt of the one that was found in the place of g's.  Where the file cannot be
 * written the log says so and there is no journal.  Returns 0 or *p's status. */
int journal_begin(struct generation *g, struct problem *p);

/* The answer's tokens as the file had them when it was found; *n: 0 for a new one. */
const int32_t *journal_known(const struct journal *j, int *n);
/* Main thread.  The answer's next token; written soon, by a worker.  False: the file has another in this place, so that the
 * stream must not go on. */
bool journal_take(struct journal *j, struct server *s, int32_t token);
/* Gives the events in out, each ended by an empty line, their ids, and takes out those that the client has. */
void journal_number(struct journal *j, struct buf *out);
/* Writes what is left, by a worker, and forgets the journal.  The file stays. */
void journal_close(struct journal *j, struct server *s);

#endif
