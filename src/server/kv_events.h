/* kv_events.h - publishes over ZeroMQ which blocks a request can resume from, in vLLM's format.
 *
 * A PUB socket sends a message of three frames for each batch: topic, sequence number (8 bytes, the largest first, from 0
 * on) and MessagePack: [seconds since 1970, [events], 0].  An event is a map, or an array of the same values without their
 * names.  A ROUTER socket replays: a request of an empty frame and the number of the first wanted batch is answered with
 * (empty, number, payload) for each that is remembered, and (empty, -1, "").  docs/fleet.md.
 *
 * The engine's thread only appends to a bounded queue; a thread of its own sends.  Where the queue is full, what waits in
 * it is dropped, and everything is told anew. */
#ifndef SERVER_KV_EVENTS_H
#define SERVER_KV_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct block_sink;
struct kv_events;

struct kv_events_opts {
	const char *address; /* of ZeroMQ, as ipc:///path; with > before it: connects there instead of listening */
	const char *replay;  /* the same; NULL: no replay */
	const char *topic;
	const char *format; /* map or array */
};

/* Listens, and starts the thread.  E_ARG: what an option says; E_MISSING: libzmq is not here; E_UNSUPPORTED: a build
 * without it; E_IO. */
int kv_events_open(struct kv_events **out, const struct kv_events_opts *opts, struct err *err);
/* Sends what waits, for a second at most.  The engine is closed.  NULL: nothing. */
void kv_events_close(struct kv_events *k);

/* For engine_opts.blocks (engine/prefix/announce.h). */
struct block_sink *kv_events_sink(struct kv_events *k);

/* Any thread. */
struct kv_events_stats {
	int64_t sent, waiting, dropped; /* batches */
	int64_t stored, removed;        /* blocks */
};
void kv_events_stats(struct kv_events *k, struct kv_events_stats *out);

#endif
