/* kv_events.c - see kv_events.h. */
#include "server/kv_events.h"

#ifndef HAVE_ZMQ

#include <stddef.h>

int kv_events_open(struct kv_events **out, const struct kv_events_opts *opts, struct err *err)
{
	(void)opts;
	*out = NULL;
	return err_set(err, E_UNSUPPORTED, "kv-events: this program was built without zmq.h (Debian: libzmq3-dev)");
}

void kv_events_close(struct kv_events *k)
{
	(void)k;
}

struct block_sink *kv_events_sink(struct kv_events *k)
{
	(void)k;
	return NULL;
}

void kv_events_stats(struct kv_events *k, struct kv_events_stats *out)
{
	(void)k;
	*out = (struct kv_events_stats){ 0 };
}

#else

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/prefix/announce.h"

/* QUEUE_BYTES: of batches that wait to be sent.  KEPT_*: batches that can be replayed. */
enum { QUEUE_BYTES = 16 << 20, KEPT_BYTES = 64 << 20, KEPT_MAX = 10000 };
enum { LINGER_MS = 1000, REPLAY_MS = 1000 }; /* longest wait at the end, and for a reader of a replay */
enum { FRAME_MAX = 256 };                    /* of a request for a replay */

struct batch {
	struct batch *next;
	uint64_t seq; /* once it is sent */
	struct buf payload;
};

struct batches {
	struct batch *first, **end;
	size_t bytes;
	int64_t n;
};

struct kv_events {
	struct block_sink sink; /* first */
	char *topic;
	bool array;

	/* Functions of libzmq. */
	void *(*ctx_new)(void);
	int (*ctx_term)(void *);
	void *(*socket)(void *, int);
	int (*setsockopt)(void *, int, const void *, size_t);
	int (*getsockopt)(void *, int, void *, size_t *);
	int (*bind)(void *, const char *);
	int (*connect)(void *, const char *);
	int (*send)(void *, const void *, size_t, int);
	int (*recv)(void *, void *, size_t, int);
	int (*poll)(zmq_pollitem_t *, int, long);
	int (*close)(void *);
	int (*error)(void);
	const char *(*strerror)(int);

	/* The engine's thread: the batch that is being written. */
	struct buf events;
	uint32_t n_event;
	int64_t n_stored, n_removed;

	pthread_mutex_t lock; /* for what follows */
	struct batches queue;
	bool again, stop;
	struct kv_events_stats stats;

	/* The thread that sends. */
	pthread_t thread;
	bool threaded;
	void *ctx, *pub, *replay; /* replay NULL: none */
	int wake[2];
	struct batches kept;
	uint64_t seq; /* of the next batch */
};

/* ---- MessagePack ---- */

static void put_word(struct buf *b, int head, uint64_t v, int bytes)
{
	if (head >= 0)
		buf_putc(b, head);
	while (bytes--)
		buf_putc(b, (int)(v >> 8 * bytes & 0xff));
}

static void put_uint(struct buf *b, uint64_t v)
{
	if (v < 0x80)
		put_word(b, -1, v, 1);
	else if (v < 0x100)
		put_word(b, 0xcc, v, 1);
	else if (v < 0x10000)
		put_word(b, 0xcd, v, 2);
	else if (v < 0x100000000)
		put_word(b, 0xce, v, 4);
	else
		put_word(b, 0xcf, v, 8);
}

/* The head of an array or, `map`, of a map. */
static void put_head(struct buf *b, bool map, uint32_t n)
{
	if (n < 16)
		put_word(b, -1, (map ? 0x80u : 0x90u) | n, 1);
	else if (n < 0x10000)
		put_word(b, map ? 0xde : 0xdc, n, 2);
	else
		put_word(b, map ? 0xdf : 0xdd, n, 4);
}

static void put_nil(struct buf *b)
{
	buf_putc(b, 0xc0);
}

/* Shorter than 32 bytes. */
static void put_text(struct buf *b, const char *s)
{
	size_t n = strlen(s);

	assert(n < 32);
	put_word(b, -1, 0xa0 | n, 1);
	buf_put(b, s, n);
}

static void put_double(struct buf *b, double v)
{
	uint64_t word;

	memcpy(&word, &v, sizeof(word));
	put_word(b, 0xcb, word, 8);
}

/* ---- events, on the engine's thread ---- */

static struct kv_events *of_sink(struct block_sink *sink)
{
	return (struct kv_events *)sink;
}

/* The head of an event of n values besides its type. */
static void put_event(struct kv_events *k, const char *type, uint32_t n)
{
	k->n_event++;
	put_head(&k->events, !k->array, n + 1);
	if (!k->array)
		put_text(&k->events, "type");
	put_text(&k->events, type);
}

static void put_name(struct kv_events *k, const char *name)
{
	if (!k->array)
		put_text(&k->events, name);
}

static void put_names(struct kv_events *k, const uint64_t *name, int n)
{
	put_name(k, "block_hashes");
	put_head(&k->events, false, (uint32_t)n);
	for (int i = 0; i < n; i++)
		put_uint(&k->events, name[i]);
}

static bool on_again(struct block_sink *sink)
{
	struct kv_events *k = of_sink(sink);
	bool again;

	pthread_mutex_lock(&k->lock);
	again = k->again;
	k->again = false;
	pthread_mutex_unlock(&k->lock);
	return again;
}

static void on_cleared(struct block_sink *sink)
{
	put_event(of_sink(sink), "AllBlocksCleared", 0);
}

static void on_removed(struct block_sink *sink, const uint64_t *name, int n)
{
	struct kv_events *k = of_sink(sink);

	put_event(k, "BlockRemoved", 3);
	put_names(k, name, n);
	put_name(k, "medium");
	put_text(&k->events, "GPU");
	put_name(k, "group_idx");
	put_uint(&k->events, 0);
	k->n_removed += n;
}

static void on_stored(struct block_sink *sink, uint64_t parent, const uint64_t *name, int n, const int32_t *tok,
                      int size)
{
	struct kv_events *k = of_sink(sink);
	struct buf *b = &k->events;

	put_event(k, "BlockStored", 10);
	put_names(k, name, n);
	put_name(k, "parent_block_hash");
	if (parent)
		put_uint(b, parent);
	else
		put_nil(b);
	put_name(k, "token_ids");
	put_head(b, false, (uint32_t)(n * size));
	for (int i = 0; i < n * size; i++)
		put_uint(b, (uint64_t)tok[i]);
	put_name(k, "block_size");
	put_uint(b, (uint64_t)size);
	put_name(k, "lora_id");
	put_nil(b);
	put_name(k, "medium");
	put_text(b, "GPU");
	put_name(k, "lora_name");
	put_nil(b);
	put_name(k, "extra_keys");
	put_head(b, false, (uint32_t)n);
	for (int i = 0; i < n; i++)
		put_nil(b);
	put_name(k, "group_idx");
	put_uint(b, 0);
	put_name(k, "kv_cache_spec_kind");
	put_text(b, "full_attention");
	k->n_stored += n;
}

static void batches_init(struct batches *q)
{
	*q = (struct batches){ .end = &q->first };
}

static void batches_put(struct batches *q, struct batch *b)
{
	b->next = NULL;
	*q->end = b;
	q->end = &b->next;
	q->bytes += b->payload.n;
	q->n++;
}

static struct batch *batches_take(struct batches *q)
{
	struct batch *b = q->first;

	if (!b)
		return NULL;
	q->first = b->next;
	if (!q->first)
		q->end = &q->first;
	q->bytes -= b->payload.n;
	q->n--;
	return b;
}

static void batch_free(struct batch *b)
{
	buf_fini(&b->payload);
	free(b);
}

static void batches_clear(struct batches *q)
{
	struct batch *b;

	while ((b = batches_take(q)))
		batch_free(b);
}

/* A full pipe rings as well. */
static void ring(const struct kv_events *k)
{
	ssize_t n = write(k->wake[1], "", 1);

	(void)n;
}

static void on_end(struct block_sink *sink)
{
	struct kv_events *k = of_sink(sink);
	struct batch *b = xcalloc(1, sizeof(*b));
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	buf_init(&b->payload);
	put_head(&b->payload, false, 3);
	put_double(&b->payload, (double)now.tv_sec + (double)now.tv_nsec / 1e9);
	put_head(&b->payload, false, k->n_event);
	buf_put(&b->payload, k->events.p, k->events.n);
	put_uint(&b->payload, 0);
	buf_reset(&k->events);
	k->n_event = 0;
	pthread_mutex_lock(&k->lock);
	/* A batch that is larger than the queue goes through an empty one: everything told anew may be. */
	if (k->queue.n && k->queue.bytes + b->payload.n > QUEUE_BYTES) {
		k->stats.dropped += k->queue.n + 1;
		batches_clear(&k->queue);
		batch_free(b);
		k->again = true;
	} else {
		batches_put(&k->queue, b);
		k->stats.stored += k->n_stored;
		k->stats.removed += k->n_removed;
	}
	k->stats.waiting = k->queue.n;
	pthread_mutex_unlock(&k->lock);
	k->n_stored = k->n_removed = 0;
	ring(k);
}

/* ---- the thread that sends ---- */

static void put_seq(unsigned char out[8], uint64_t seq)
{
	for (int i = 0; i < 8; i++)
		out[i] = (unsigned char)(seq >> 8 * (7 - i));
}

/* PUB never waits: what a subscriber does not read it loses, and sees by the numbers. */
static void publish(struct kv_events *k, struct batch *b)
{
	unsigned char seq[8];

	b->seq = k->seq++;
	put_seq(seq, b->seq);
	if (k->send(k->pub, k->topic, strlen(k->topic), ZMQ_SNDMORE) < 0 || k->send(k->pub, seq, 8, ZMQ_SNDMORE) < 0 ||
	    k->send(k->pub, b->payload.p, b->payload.n, 0) < 0)
		log_warn("kv-events: batch %llu is not sent: %s", (unsigned long long)b->seq, k->strerror(k->error()));
	if (!k->replay) {
		batch_free(b);
		return;
	}
	batches_put(&k->kept, b);
	while (k->kept.n > 1 && (k->kept.n > KEPT_MAX || k->kept.bytes > KEPT_BYTES))
		batch_free(batches_take(&k->kept));
}

static void publish_all(struct kv_events *k)
{
	struct batch *b;

	for (;;) {
		pthread_mutex_lock(&k->lock);
		b = batches_take(&k->queue);
		pthread_mutex_unlock(&k->lock);
		if (!b)
			return;
		publish(k, b);
		pthread_mutex_lock(&k->lock);
		k->stats.sent++;
		k->stats.waiting = k->queue.n;
		pthread_mutex_unlock(&k->lock);
	}
}

/* One reply of a replay; false: the reader does not read. */
static bool replay_one(struct kv_events *k, const char *client, int n_client, uint64_t seq, const void *p, size_t n)
{
	unsigned char head[8];

	put_seq(head, seq);
	return k->send(k->replay, client, (size_t)n_client, ZMQ_SNDMORE) >= 0 &&
	       k->send(k->replay, "", 0, ZMQ_SNDMORE) >= 0 && k->send(k->replay, head, 8, ZMQ_SNDMORE) >= 0 &&
	       k->send(k->replay, p, n, 0) >= 0;
}

/* Is another frame of the same message there? */
static bool more_frames(struct kv_events *k)
{
	int more = 0;
	size_t n = sizeof(more);

	return !k->getsockopt(k->replay, ZMQ_RCVMORE, &more, &n) && more;
}

/* Reads a request: its client, and the first batch that it wants.  False: it is not three frames of the right size. */
static bool replay_asked(struct kv_events *k, char client[FRAME_MAX], int *n_client, uint64_t *from)
{
	unsigned char frame[FRAME_MAX];
	int i = 0, n, last = 0;

	*n_client = k->recv(k->replay, client, FRAME_MAX, ZMQ_DONTWAIT);
	if (*n_client < 0)
		return false;
	while (more_frames(k)) {
		n = k->recv(k->replay, frame, sizeof(frame), ZMQ_DONTWAIT);
		if (n < 0)
			return false;
		last = n;
		i++;
	}
	if (i != 2 || last != 8 || *n_client > FRAME_MAX) {
		log_warn(
			"kv-events: a request for a replay of %d frames, the last of %d bytes; the others have an empty one "
			"and one of 8 bytes",
			i, last);
		return false;
	}
	*from = 0;
	for (int b = 0; b < 8; b++)
		*from = *from << 8 | frame[b];
	return true;
}

static void answer_replay(struct kv_events *k)
{
	char client[FRAME_MAX];
	uint64_t from;
	bool reads = true;
	int n_client;

	if (!replay_asked(k, client, &n_client, &from))
		return;
	/* What was forgotten can only be told anew. */
	if (from < (k->kept.first ? k->kept.first->seq : k->seq)) {
		pthread_mutex_lock(&k->lock);
		k->again = true;
		pthread_mutex_unlock(&k->lock);
	}
	for (const struct batch *b = k->kept.first; b && reads; b = b->next)
		if (b->seq >= from)
			reads = replay_one(k, client, n_client, b->seq, b->payload.p, b->payload.n);
	if (reads)
		replay_one(k, client, n_client, UINT64_MAX, "", 0);
}

static void *send_thread(void *arg)
{
	struct kv_events *k = arg;
	zmq_pollitem_t item[] = { { .fd = k->wake[0], .events = ZMQ_POLLIN },
		                  { .socket = k->replay, .events = ZMQ_POLLIN } };
	char drain[64];
	bool stop;

	do {
		if (k->poll(item, k->replay ? 2 : 1, -1) < 0 && k->error() != EINTR) {
			log_error("kv-events: no further events are sent: %s", k->strerror(k->error()));
			return NULL;
		}
		while (read(k->wake[0], drain, sizeof(drain)) > 0)
			;
		pthread_mutex_lock(&k->lock);
		stop = k->stop;
		pthread_mutex_unlock(&k->lock);
		publish_all(k);
		if (k->replay && item[1].revents & ZMQ_POLLIN)
			answer_replay(k);
	} while (!stop);
	return NULL;
}

/* ---- open and close ---- */

/* The library brings several others, so it is opened when it is wanted. */
static int zmq_load(struct kv_events *k, struct err *err)
{
	const struct {
		const char *name;
		void *at;
	} f[] = {
		{ "zmq_ctx_new", &k->ctx_new },
		{ "zmq_ctx_term", &k->ctx_term },
		{ "zmq_socket", &k->socket },
		{ "zmq_setsockopt", &k->setsockopt },
		{ "zmq_getsockopt", &k->getsockopt },
		{ "zmq_bind", &k->bind },
		{ "zmq_connect", &k->connect },
		{ "zmq_send", &k->send },
		{ "zmq_recv", &k->recv },
		{ "zmq_poll", &k->poll },
		{ "zmq_close", &k->close },
		{ "zmq_errno", &k->error },
		{ "zmq_strerror", &k->strerror },
	};
	void *lib = dlopen("libzmq.so.5", RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		return err_set(err, E_MISSING,
		               "kv-events needs the library libzmq.so.5 (Debian: libzmq5), which is not here: %s",
		               dlerror());
	for (size_t i = 0; i < sizeof(f) / sizeof(*f); i++) {
		void *function = dlsym(lib, f[i].name);

		if (!function)
			return err_set(err, E_MISSING, "libzmq has no %s", f[i].name);
		memcpy(f[i].at, &function, sizeof(function));
	}
	return 0;
}

static int listen_at(struct kv_events *k, void **socket, int type, const char *option, const char *address,
                     struct err *err)
{
	bool out = *address == '>';
	int linger = LINGER_MS, must = 1, wait = REPLAY_MS;

	*socket = k->socket(k->ctx, type);
	if (!*socket)
		return err_set(err, E_IO, "%s: no socket: %s", option, k->strerror(k->error()));
	k->setsockopt(*socket, ZMQ_LINGER, &linger, sizeof(linger));
	if (type == ZMQ_ROUTER) {
		k->setsockopt(*socket, ZMQ_ROUTER_MANDATORY, &must, sizeof(must));
		k->setsockopt(*socket, ZMQ_SNDTIMEO, &wait, sizeof(wait));
	}
	if (out ? k->connect(*socket, address + 1) : k->bind(*socket, address))
		return err_set(err, E_ARG, "%s %s: %s; an address is as tcp://*:5557 or ipc:///path", option, address,
		               k->strerror(k->error()));
	return 0;
}

int kv_events_open(struct kv_events **out, const struct kv_events_opts *opts, struct err *err)
{
	struct kv_events *k = xcalloc(1, sizeof(*k));
	int rc;

	*out = NULL;
	k->sink = (struct block_sink){ on_again, on_cleared, on_removed, on_stored, on_end };
	k->topic = xstrdup(opts->topic);
	k->array = !strcmp(opts->format, "array");
	k->wake[0] = k->wake[1] = -1;
	buf_init(&k->events);
	batches_init(&k->queue);
	batches_init(&k->kept);
	pthread_mutex_init(&k->lock, NULL);
	rc = k->array || !strcmp(opts->format, "map") ?
	             zmq_load(k, err) :
	             err_set(err, E_ARG, "kv-events-format %s: it is map or array", opts->format);
	if (!rc && !(k->ctx = k->ctx_new()))
		rc = err_set(err, E_IO, "kv-events: no context of ZeroMQ: %s", k->strerror(k->error()));
	if (!rc)
		rc = listen_at(k, &k->pub, ZMQ_PUB, "kv-events", opts->address, err);
	if (!rc && opts->replay)
		rc = listen_at(k, &k->replay, ZMQ_ROUTER, "kv-events-replay", opts->replay, err);
	if (!rc && file_pipe(k->wake, O_NONBLOCK))
		rc = err_set(err, E_IO, "pipe: %s", strerror(errno));
	if (!rc && pthread_create(&k->thread, NULL, send_thread, k))
		rc = err_set(err, E_IO, "cannot start the thread of kv-events");
	if (rc) {
		kv_events_close(k);
		return rc;
	}
	k->threaded = true;
	*out = k;
	return 0;
}

void kv_events_close(struct kv_events *k)
{
	if (!k)
		return;
	if (k->threaded) {
		pthread_mutex_lock(&k->lock);
		k->stop = true;
		pthread_mutex_unlock(&k->lock);
		ring(k);
		pthread_join(k->thread, NULL);
	}
	if (k->pub)
		k->close(k->pub);
	if (k->replay)
		k->close(k->replay);
	if (k->ctx)
		k->ctx_term(k->ctx);
	for (int i = 0; i < 2; i++)
		if (k->wake[i] >= 0)
			close(k->wake[i]);
	batches_clear(&k->queue);
	batches_clear(&k->kept);
	buf_fini(&k->events);
	pthread_mutex_destroy(&k->lock);
	free(k->topic);
	free(k);
}

struct block_sink *kv_events_sink(struct kv_events *k)
{
	return &k->sink;
}

void kv_events_stats(struct kv_events *k, struct kv_events_stats *out)
{
	pthread_mutex_lock(&k->lock);
	*out = k->stats;
	pthread_mutex_unlock(&k->lock);
}

#endif
