/* redis.c - see redis.h. */
#include "base/redis.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/redis_tls.h"

#ifdef WEFT_HIREDIS
#include <hiredis/hiredis.h>

enum {
	PIECE = 256 << 10, /* read at once */
	ITEMS_MAX = 1 << 16,
	HOST_MAX = 1025, /* of a name, with its 0: NI_MAXHOST, which POSIX lacks */
};

struct redis {
	char *host, *port, *user, *password, *db, *name;
	bool has_tls;
	int fd; /* -1: not connected */
	struct tls *tls;
	redisReader *reader;
	redisReplyObjectFunctions make;
	void *(*make_list)(const redisReadTask *, int);
	struct buf out;
	size_t came; /* bytes since the last send */
	char *piece; /* [PIECE] */
};

/* ---- the URL ---- */

static const char form[] = "redis://[user:password@]host[:port][/db] (rediss:// for TLS)";

/* A part of a URL, decoded.  NULL: it is wrong. */
static char *url_part(const char *p, size_t n)
{
	char *out = xmalloc(n + 1), *to = out;

	for (size_t i = 0; i < n; i++) {
		char hex[3] = { 0 }, *end;

		if (p[i] != '%') {
			*to++ = p[i];
			continue;
		}
		memcpy(hex, p + i + 1, n - i - 1 < 2 ? n - i - 1 : 2);
		*to = (char)strtoul(hex, &end, 16);
		if (end != hex + 2 || !*to) {
			free(out);
			return NULL;
		}
		to++;
		i += 2;
	}
	*to = '\0';
	return out;
}

static bool is_number(const char *text, long most)
{
	return *text && strspn(text, "0123456789") == strlen(text) && strlen(text) < 10 && atol(text) <= most;
}

/* user:password */
static bool take_user(struct redis *r, const char *p, size_t n)
{
	const char *colon = memchr(p, ':', n);
	size_t n_user = colon ? (size_t)(colon - p) : n;

	r->user = url_part(p, n_user);
	r->password = url_part(colon ? colon + 1 : "", colon ? n - n_user - 1 : 0);
	return r->user && r->password;
}

/* host, host:port, [address]:port */
static bool take_host(struct redis *r, const char *p, size_t n)
{
	const char *end = *p == '[' ? memchr(p, ']', n) : memchr(p, ':', n);
	const char *host = p + (*p == '[');

	if (*p == '[' && !end)
		return false;
	if (!end)
		end = p + n;
	r->host = url_part(host, (size_t)(end - host));
	end += *end == ']';
	if (end < p + n && *end != ':')
		return false;
	r->port = end < p + n ? url_part(end + 1, (size_t)(p + n - end - 1)) : xstrdup("6379");
	return r->host && *r->host && r->port && is_number(r->port, 65535);
}

static bool url_take(struct redis *r, const char *url)
{
	const char *p = strstr(url, "://") + 3, *end = p + strcspn(p, "/?#"), *at = end;
	char name[HOST_MAX + 64];

	while (at > p && at[-1] != '@')
		at--;
	if (at > p && !take_user(r, p, (size_t)(at - 1 - p)))
		return false;
	if (end == at || !take_host(r, at, (size_t)(end - at)))
		return false;
	r->db = xstrdup(*end == '/' && end[1] ? end + 1 : "0");
	if ((*end && *end != '/') || !is_number(r->db, 1 << 20))
		return false;
	snprintf(name, sizeof(name), strchr(r->host, ':') ? "redis%s://[%s]:%s/%s" : "redis%s://%s:%s/%s",
	         r->has_tls ? "s" : "", r->host, r->port, r->db);
	r->name = xstrdup(name);
	return true;
}

/* ---- replies ---- */

/* A list is made before its items came, of as many places as it says. */
static void *list_new(const redisReadTask *task, int n)
{
	const struct redis *r = task->privdata;

	return n > ITEMS_MAX || !r ? NULL : r->make_list(task, n);
}

static bool reader_new(struct redis *r)
{
	redisReader *plain = redisReaderCreate();

	if (!plain)
		return false;
	r->make = *plain->fn;
	redisReaderFree(plain);
	r->make_list = r->make.createArray;
	r->make.createArray = list_new;
	r->reader = redisReaderCreateWithFunctions(&r->make);
	if (r->reader)
		r->reader->privdata = r;
	return r->reader != NULL;
}

int redis_new(struct redis **out, const char *url, const char *password, struct err *err)
{
	struct redis *r;

	*out = NULL;
	if (strncmp(url, "redis://", 8) != 0 && strncmp(url, "rediss://", 9) != 0)
		return err_set(err, E_ARG, "the URL is not of the form %s", form);
	r = xcalloc(1, sizeof(*r));
	r->fd = -1;
	r->has_tls = url[5] == 's';
	buf_init(&r->out);
	if (!url_take(r, url)) {
		redis_free(r);
		return err_set(err, E_ARG, "the URL is not of the form %s", form);
	}
	if (r->has_tls && !tls_there()) {
		redis_free(r);
		return err_set(err, E_UNSUPPORTED,
		               "rediss://: this build has no TLS (libssl); redis:// through stunnel is a way");
	}
	if (password) {
		free(r->password);
		r->password = xstrdup(password);
	}
	r->piece = xmalloc(PIECE);
	*out = r;
	return 0;
}

const char *redis_name(const struct redis *r)
{
	return r->name;
}

void redis_close(struct redis *r)
{
	tls_free(r->tls);
	r->tls = NULL;
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
	if (r->reader)
		redisReaderFree(r->reader);
	r->reader = NULL;
	buf_reset(&r->out);
}

void redis_free(struct redis *r)
{
	if (!r)
		return;
	redis_close(r);
	buf_fini(&r->out);
	free(r->host);
	free(r->port);
	free(r->user);
	free(r->password);
	free(r->db);
	free(r->name);
	free(r->piece);
	free(r);
}

/* ---- bytes ---- */

/* Closes the connection. */
static int lost(struct redis *r, struct err *err, int code, const char *what)
{
	redis_close(r);
	return err_set(err, code, "%s", what);
}

static int wait_for(struct redis *r, short events, int64_t until, struct err *err)
{
	for (;;) {
		struct pollfd p = { .fd = r->fd, .events = events };
		int64_t left = until - clock_monotonic_ns();
		int n;

		if (left <= 0)
			return lost(r, err, E_LATE, "it does not answer in time");
		n = poll(&p, 1, left / 1000000 < INT_MAX ? (int)((left + 999999) / 1000000) : INT_MAX);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return lost(r, err, E_IO, strerror(errno));
	}
}

/* Reads or writes what is possible without waiting.  Returns the bytes; 0: the other side has closed; below 0: *events says what to
 * wait for. */
static ssize_t some(struct redis *r, bool out, void *p, size_t n, short *events)
{
	ssize_t got;

	*events = out ? POLLOUT : POLLIN;
	if (r->tls)
		return out ? tls_write(r->tls, p, n, events) : tls_read(r->tls, p, n, events);
	got = out ? send(r->fd, p, n, MSG_NOSIGNAL) : recv(r->fd, p, n, 0);
	if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
		*events = 0;
	return got;
}

static int put_all(struct redis *r, const void *p, size_t n, int64_t until, struct err *err)
{
	const char *at = p;
	short events;

	while (n) {
		ssize_t got = some(r, true, (void *)at, n, &events);
		int rc;

		if (got > 0) {
			at += got;
			n -= (size_t)got;
			continue;
		}
		if (!got || !events)
			return lost(r, err, E_IO, got ? strerror(errno) : "the connection was closed");
		rc = wait_for(r, events, until, err);
		if (rc)
			return rc;
	}
	return 0;
}

/* Takes at least a byte. */
static int feed(struct redis *r, size_t most, int64_t until, struct err *err)
{
	for (;;) {
		short events;
		ssize_t got = some(r, false, r->piece, PIECE, &events);
		int rc;

		if (got > 0) {
			r->came += (size_t)got;
			if (r->came > most)
				return lost(r, err, E_FORMAT, "its answer is longer than it can be");
			if (redisReaderFeed(r->reader, r->piece, (size_t)got) == REDIS_OK)
				return 0;
			return lost(r, err, E_FORMAT, "it does not answer as Redis does");
		}
		if (!got || !events)
			return lost(r, err, E_IO, got ? strerror(errno) : "the connection was closed");
		rc = wait_for(r, events, until, err);
		if (rc)
			return rc;
	}
}

/* ---- commands ---- */

void redis_add(struct redis *r, const struct redis_word *word, int n)
{
	const char *p[8];
	size_t len[8];
	char *command = NULL;
	long long bytes;

	for (int i = 0; i < n; i++) {
		p[i] = word[i].p;
		len[i] = word[i].n;
	}
	bytes = redisFormatCommandArgv(&command, n, p, len);
	if (bytes > 0)
		buf_put(&r->out, command, (size_t)bytes);
	redisFreeCommand(command);
}

void redis_addf(struct redis *r, const char *word, ...)
{
	struct redis_word w[8];
	int n = 0;
	va_list ap;

	va_start(ap, word);
	for (const char *p = word; p && n < 8; p = va_arg(ap, const char *))
		w[n++] = (struct redis_word){ p, strlen(p) };
	va_end(ap);
	redis_add(r, w, n);
}

static bool is_open(const struct redis *r, struct err *err)
{
	if (r->fd < 0)
		err_set(err, E_IO, "not connected");
	return r->fd >= 0;
}

int redis_send(struct redis *r, int64_t until, struct err *err)
{
	int rc;

	if (!is_open(r, err))
		return E_IO;
	r->came = 0;
	rc = put_all(r, r->out.p, r->out.n, until, err);
	buf_reset(&r->out);
	return rc;
}

int redis_set(struct redis *r, const char *name, const struct redis_word *part, int n_part, int seconds, int64_t until,
              struct err *err)
{
	char text[16];
	size_t n = 0;
	int rc = 0;

	if (!is_open(r, err))
		return E_IO;
	r->came = 0;
	for (int i = 0; i < n_part; i++)
		n += part[i].n;
	snprintf(text, sizeof(text), "%d", seconds);
	buf_reset(&r->out);
	buf_printf(&r->out, "*5\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%zu\r\n", strlen(name), name, n);
	rc = put_all(r, r->out.p, r->out.n, until, err);
	for (int i = 0; i < n_part && !rc; i++)
		rc = put_all(r, part[i].p, part[i].n, until, err);
	buf_reset(&r->out);
	if (rc)
		return rc;
	buf_printf(&r->out, "\r\n$2\r\nEX\r\n$%zu\r\n%s\r\n", strlen(text), text);
	rc = put_all(r, r->out.p, r->out.n, until, err);
	buf_reset(&r->out);
	return rc;
}

static struct redis_reply view(const redisReply *x)
{
	switch (x->type) {
	case REDIS_REPLY_INTEGER: return (struct redis_reply){ .kind = REDIS_INTEGER, .n = x->integer };
	case REDIS_REPLY_ARRAY:
		return (struct redis_reply){ .kind = REDIS_LIST, .n = (int64_t)x->elements, .own = (void *)x };
	case REDIS_REPLY_STRING:
	case REDIS_REPLY_STATUS:
		return (struct redis_reply){ .kind = REDIS_TEXT, .n = (int64_t)x->len, .text = x->str };
	default: return (struct redis_reply){ .kind = REDIS_NIL };
	}
}

/* The first word of an error, if it is one of Redis. */
static int says_no(const redisReply *x, struct err *err)
{
	int n = (int)strspn(x->str, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");

	return err_set(err, E_UNSUPPORTED, "it answers %.*s", n && n < 24 ? n : 8, n && n < 24 ? x->str : "an error");
}

int redis_reply(struct redis *r, struct redis_reply *out, size_t most, int64_t until, struct err *err)
{
	void *got = NULL;

	*out = (struct redis_reply){ .kind = REDIS_NIL };
	if (!is_open(r, err))
		return E_IO;
	for (;;) {
		const redisReply *x;
		int rc;

		if (redisReaderGetReply(r->reader, &got) != REDIS_OK)
			return lost(r, err, E_FORMAT, "it does not answer as Redis does");
		x = got;
		if (x && x->type == REDIS_REPLY_ERROR) {
			rc = says_no(x, err);
			freeReplyObject(got);
			return rc;
		}
		if (x) {
			*out = view(x);
			out->own = got;
			return 0;
		}
		rc = feed(r, most, until, err);
		if (rc)
			return rc;
	}
}

void redis_reply_free(struct redis_reply *reply)
{
	if (reply->own)
		freeReplyObject(reply->own);
	*reply = (struct redis_reply){ .kind = REDIS_NIL };
}

struct redis_reply redis_item(const struct redis_reply *list, int64_t i)
{
	const redisReply *x = list->own;

	if (list->kind != REDIS_LIST || i < 0 || i >= list->n || !x->element[i])
		return (struct redis_reply){ .kind = REDIS_NIL };
	return view(x->element[i]);
}

/* ---- connecting ---- */

/* A socket connected to one of the addresses, or -1. */
static int connect_one(struct redis *r, const struct addrinfo *a, int64_t until, struct err *err)
{
	const int on = 1;
	int error = 0;
	socklen_t n = sizeof(error);

	r->fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
	if (r->fd < 0)
		return err_set(err, E_IO, "%s", strerror(errno));
	fcntl(r->fd, F_SETFD, FD_CLOEXEC);
	fcntl(r->fd, F_SETFL, O_NONBLOCK);
	setsockopt(r->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(r->fd, a->ai_addr, a->ai_addrlen) && errno != EINPROGRESS)
		return lost(r, err, E_IO, strerror(errno));
	if (wait_for(r, POLLOUT, until, err))
		return E_LATE;
	if (getsockopt(r->fd, SOL_SOCKET, SO_ERROR, &error, &n) || error)
		return lost(r, err, E_IO, strerror(error ? error : errno));
	return 0;
}

static int connect_any(struct redis *r, int64_t until, struct err *err)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *list = NULL;
	int rc = getaddrinfo(r->host, r->port, &hints, &list);

	if (rc)
		return err_set(err, E_IO, "%s", gai_strerror(rc));
	rc = E_IO;
	for (const struct addrinfo *a = list; a && rc; a = a->ai_next)
		rc = connect_one(r, a, until, err);
	freeaddrinfo(list);
	return rc;
}

static int connect_tls(struct redis *r, int64_t until, struct err *err)
{
	short events;
	int rc;

	r->tls = tls_new(r->fd, r->host, err);
	if (!r->tls) {
		redis_close(r);
		return E_IO;
	}
	while ((rc = tls_shake(r->tls, &events, err)) && events) {
		rc = wait_for(r, events, until, err);
		if (rc)
			return rc;
	}
	if (rc)
		redis_close(r);
	return rc;
}

int redis_connect(struct redis *r, int64_t until, struct err *err)
{
	const size_t most = 64 << 10;
	bool proves = r->password && *r->password;
	struct redis_reply reply;
	int rc;

	redis_close(r);
	rc = connect_any(r, until, err);
	if (!rc && r->has_tls)
		rc = connect_tls(r, until, err);
	if (rc)
		return rc;
	if (!reader_new(r))
		return lost(r, err, E_IO, "no memory");
	if (proves && r->user && *r->user)
		redis_addf(r, "AUTH", r->user, r->password, NULL);
	else if (proves)
		redis_addf(r, "AUTH", r->password, NULL);
	redis_addf(r, "SELECT", r->db, NULL);
	rc = redis_send(r, until, err);
	for (int i = 0; i < (proves ? 2 : 1) && !rc; i++) {
		rc = redis_reply(r, &reply, most, until, err);
		if (!rc && reply.kind != REDIS_TEXT)
			rc = err_set(err, E_FORMAT, "it does not answer as Redis does");
		redis_reply_free(&reply);
	}
	if (rc)
		redis_close(r);
	return rc;
}

#else

int redis_new(struct redis **out, const char *url, const char *password, struct err *err)
{
	*out = NULL;
	return err_set(err, E_UNSUPPORTED, "this build has no client for Redis (libhiredis)");
}

void redis_free(struct redis *r) {}

const char *redis_name(const struct redis *r)
{
	return "";
}

int redis_connect(struct redis *r, int64_t until, struct err *err)
{
	return E_UNSUPPORTED;
}

void redis_close(struct redis *r) {}

void redis_add(struct redis *r, const struct redis_word *word, int n) {}

void redis_addf(struct redis *r, const char *word, ...) {}

int redis_send(struct redis *r, int64_t until, struct err *err)
{
	return E_UNSUPPORTED;
}

int redis_set(struct redis *r, const char *name, const struct redis_word *part, int n_part, int seconds, int64_t until,
              struct err *err)
{
	return E_UNSUPPORTED;
}

int redis_reply(struct redis *r, struct redis_reply *out, size_t most, int64_t until, struct err *err)
{
	*out = (struct redis_reply){ .kind = REDIS_NIL };
	return E_UNSUPPORTED;
}

void redis_reply_free(struct redis_reply *reply) {}

struct redis_reply redis_item(const struct redis_reply *list, int64_t i)
{
	return (struct redis_reply){ .kind = REDIS_NIL };
}

#endif
