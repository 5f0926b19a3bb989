/* server.c - see server.h: the listener, the loop, the signals. */
#include "server/server.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <event2/util.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "server/chat/chat.h"
#include "server/inside.h"

enum {
	BACKLOG = 4096,   /* bursts of connects must not wait for SYN retries; the kernel may cap it */
	REFUSED_MAX = 64, /* connections too many that are still told so; beyond it: closed without a word */
};

static const char unix_prefix[] = "unix:";

void server_opts_default(struct server_opts *o)
{
	*o = (struct server_opts){
		.host = "127.0.0.1",
		.version = "0.0.0",
		.commit = "unknown",
		.port = 8080,
		.connections_max = 1024,
		.body_max = 64 << 20,
		.response_bytes = 64 << 20,
		.prep_threads = 3, /* of which one client has two */
		.head_ms = 10000,
		.body_ms = 60000,
		.idle_ms = 75000,
		.keep_alive_ms = 15000,
		.stall_ms = 30000,
		.grace_ms = 30000,
		.stuck_ms = 120000,
		.turn_replay = REPLAY_ALL,
		.turn_bytes = 64 << 20,
	};
}

/* ---- the mailbox's bell ---- */

void server_ring(struct server *s)
{
	/* A full pipe means that it rings already. */
	if (write(s->mailbox.pipe[1], "", 1) < 0)
		assert(errno == EAGAIN || errno == EINTR);
}

static void on_ring(evutil_socket_t fd, short what, void *arg)
{
	struct server *s = arg;
	char sink[64];
	bool stop;

	server_turn(s);
	(void)what;
	while (read(fd, sink, sizeof sink) == (ssize_t)sizeof sink)
		;
	pthread_mutex_lock(&s->lock);
	stop = s->mailbox.stop_asked;
	s->mailbox.stop_asked = false;
	pthread_mutex_unlock(&s->lock);
	exchange_deliver(s);
	if (stop)
		event_active(s->signals.on_term, 0, 0);
}

/* ---- stopping ---- */

void server_stop(struct server *s)
{
	pthread_mutex_lock(&s->lock);
	s->mailbox.stop_asked = true;
	server_ring(s);
	pthread_mutex_unlock(&s->lock);
}

void server_conn_gone(struct server *s)
{
	if (s->stopping && !s->conns.n_busy)
		event_base_loopbreak(s->base);
}

static void on_grace(evutil_socket_t fd, short what, void *arg)
{
	struct server *s = arg;

	server_turn(s);
	(void)fd;
	(void)what;
	event_base_loopbreak(s->base);
}

static void on_reload(evutil_socket_t fd, short what, void *arg)
{
	struct server *s = arg;
	bool models = known_reread(s);
	struct err err;
	int added, gone;

	server_turn(s);
	(void)fd;
	(void)what;
	if (!s->opts.api_key_file && !models)
		log_info("SIGHUP: there is no --api-key-file to be read again");
	if (!s->opts.api_key_file)
		return;
	if (clients_reload(&s->clients, s->opts.api_key, s->opts.api_key_file, &added, &gone, &err))
		log_error("SIGHUP: the old keys stay: %s", err.msg);
	else
		log_info("SIGHUP: read %s again: %d new, %d gone", s->opts.api_key_file, added, gone);
}

static void on_stop(evutil_socket_t fd, short what, void *arg)
{
	struct server *s = arg;
	struct timeval tv = { s->opts.grace_ms / 1000, s->opts.grace_ms % 1000 * 1000 };

	server_turn(s);
	(void)fd;
	(void)what;
	if (s->stopping) {
		log_info("stopping at once");
		event_base_loopbreak(s->base);
		return;
	}
	/* The server goes on listening, to answer 503: a load balancer then chooses another,
	 * and a probe of /health is told why. */
	s->stopping = true;
	log_info("stopping: %d connections, %d of them with a request; answers may go on for %g s", s->conns.n,
	         s->conns.n_busy, s->opts.grace_ms / 1000.0);
	event_add(s->signals.grace, &tv);
	if (!s->conns.n_busy)
		event_base_loopbreak(s->base);
}

/* ---- accepting ---- */

static void address(const struct sockaddr *sa, char *out, size_t n)
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)sa;

		inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
		snprintf(out, n, "%s:%d", host, ntohs(in->sin_port));
	} else if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const void *)sa;

		inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
		snprintf(out, n, "[%s]:%d", host, ntohs(in->sin6_port));
	} else {
		snprintf(out, n, "%s", sa->sa_family == AF_UNIX ? "unix" : host);
	}
}

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *sa, int len, void *arg)
{
	struct server *s = arg;
	char peer[64];

	server_turn(s);
	(void)l;
	(void)len;
	address(sa, peer, sizeof peer);
	if (s->conns.n < s->opts.connections_max) {
		conn_open(s, fd, peer, true);
		return;
	}
	metrics_refused_connection(&s->metrics);
	if (s->conns.n_refused < REFUSED_MAX)
		conn_open(s, fd, peer, false);
	else
		close(fd);
}

/* Out of file descriptors: the listening socket stays readable, so pause. */
static void on_accept_error(struct evconnlistener *l, void *arg)
{
	struct server *s = arg;
	struct timeval tv = { 0, 100000 }; /* a tenth of a second, in which other connections may close */

	server_turn(s);
	log_error("accept: %s", strerror(errno));
	evconnlistener_disable(l);
	event_add(s->listening.again, &tv);
}

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
	struct server *s = arg;

	(void)fd;
	(void)what;
	if (s->listening.at)
		evconnlistener_enable(s->listening.at);
}

/* Each connection is a descriptor; take what the system lets us have. */
static void raise_descriptors(int connections)
{
	struct rlimit r;
	rlim_t want = (rlim_t)connections + REFUSED_MAX + 64; /* 64: files, pipes, the loop's own */

	if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur >= want)
		return;
	r.rlim_cur = r.rlim_max < want ? r.rlim_max : want;
	setrlimit(RLIMIT_NOFILE, &r);
	if (r.rlim_cur < want)
		log_warn("only %llu open files are allowed: fewer than the %d connections of max-connections",
		         (unsigned long long)r.rlim_cur, connections);
}

/* Listens on a socket in the file system.  A socket that a dead server left is taken over; one
 * that answers belongs to another server. */
static int listen_unix(struct server *s, const char *path, struct err *err)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct stat st;
	int fd;

	if (!*path || strlen(path) >= sizeof a.sun_path)
		return err_set(err, E_ARG, "host \"%s\": the path of a socket has 1 to %zu bytes, not %zu",
		               s->opts.host, sizeof a.sun_path - 1, strlen(path));
	memcpy(a.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0)
		return err_set(err, E_IO, "socket: %s", strerror(errno));
	/* A file refuses a connection as well as a dead server's socket does. */
	if (!lstat(path, &st) && !S_ISSOCK(st.st_mode)) {
		close(fd);
		return err_set(err, E_ARG, "host \"%s\": %s is there and no socket; it is left alone", s->opts.host,
		               path);
	}
	if (connect(fd, (const struct sockaddr *)&a, sizeof a) && errno == ECONNREFUSED)
		unlink(path);
	close(fd);
	s->listening.at = evconnlistener_new_bind(s->base, on_accept, s, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC,
	                                          BACKLOG, (const struct sockaddr *)&a, sizeof a);
	if (!s->listening.at)
		return err_set(err, E_IO, "cannot listen at %s: %s", path, strerror(errno));
	s->listening.unix_path = s->opts.host + strlen(unix_prefix);
	evconnlistener_set_error_cb(s->listening.at, on_accept_error);
	return 0;
}

static int listen_on(struct server *s, struct err *err)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *ai;
	char port[16];
	struct sockaddr_storage bound;
	socklen_t n = sizeof bound;
	int r;

	if (!strncmp(s->opts.host, unix_prefix, strlen(unix_prefix)))
		return listen_unix(s, s->opts.host + strlen(unix_prefix), err);
	snprintf(port, sizeof port, "%d", s->opts.port);
	if ((r = getaddrinfo(s->opts.host, port, &hints, &ai)))
		return err_set(err, E_ARG, "host \"%s\": %s", s->opts.host, gai_strerror(r));
	s->listening.at = evconnlistener_new_bind(s->base, on_accept, s,
	                                          LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE,
	                                          BACKLOG, ai->ai_addr, (int)ai->ai_addrlen);
	freeaddrinfo(ai);
	if (!s->listening.at)
		return err_set(err, E_IO, "cannot listen on %s port %d: %s%s", s->opts.host, s->opts.port,
		               strerror(errno),
		               errno == EADDRINUSE ? "; --port N names another one, 0 any that is free" : "");
	evconnlistener_set_error_cb(s->listening.at, on_accept_error);
	if (getsockname(evconnlistener_get_fd(s->listening.at), (struct sockaddr *)&bound, &n))
		return err_set(err, E_IO, "getsockname: %s", strerror(errno));
	s->listening.port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port :
	                                                        ((struct sockaddr_in *)&bound)->sin_port);
	return 0;
}

static char *copy(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

static void keep_texts(struct opts_texts *t, struct server_opts *o)
{
	*t = (struct opts_texts){ copy(o->host), copy(o->cors_origin), copy(o->api_key), copy(o->api_key_file) };
	o->host = t->host;
	o->cors_origin = t->cors_origin;
	o->api_key = t->api_key;
	o->api_key_file = t->api_key_file;
}

static void free_texts(struct opts_texts *t)
{
	free(t->host);
	free(t->cors_origin);
	free(t->api_key);
	free(t->api_key_file);
}

int server_open(struct server **out, const struct server_opts *opts, struct err *err)
{
	struct server *s = xcalloc(1, sizeof *s);
	int r;

	*out = NULL;
	signal(SIGPIPE, SIG_IGN); /* from the first line of the log on: its reader may be gone */
	s->opts = *opts;
	keep_texts(&s->texts, &s->opts);
	s->gate = (struct gate){ .origins = s->opts.cors_origin, .local = gate_is_local(s->opts.host) };
	s->created = (int64_t)time(NULL);
	s->mailbox.tail = &s->mailbox.first;
	s->mailbox.pipe[0] = s->mailbox.pipe[1] = -1;
	metrics_init(&s->metrics);
	response_store_init(&s->responses, opts->response_bytes);
	pthread_mutex_init(&s->lock, NULL);
	known_init(s);
	if (opts->body_max > JSON_BYTES_MAX) {
		r = err_set(err, E_ARG, "bodies of up to %lld bytes (--max-body): at most %d are read as JSON",
		            (long long)opts->body_max, JSON_BYTES_MAX);
		goto fail;
	}
	if ((r = image_folders_open(&s->image_folders, opts->image_folder, opts->n_image_folder, err)))
		goto fail;
	if ((r = image_hosts_open(&s->image_hosts, opts->image_host, opts->n_image_host, err)))
		goto fail;
	raise_descriptors(opts->connections_max);
	s->turns = turns_new(opts->turn_bytes);
	r = clients_open(&s->clients, opts->api_key, opts->api_key_file, err);
	if (r)
		goto fail;
	s->base = event_base_new();
	if (!s->base)
		fault_abort();
	if (file_pipe(s->mailbox.pipe, O_NONBLOCK)) {
		r = err_set(err, E_IO, "pipe: %s", strerror(errno));
		goto fail;
	}
	s->mailbox.ring = event_new(s->base, s->mailbox.pipe[0], EV_READ | EV_PERSIST, on_ring, s);
	s->listening.again = evtimer_new(s->base, on_accept_again, s);
	s->signals.grace = evtimer_new(s->base, on_grace, s);
	s->signals.on_term = evsignal_new(s->base, SIGTERM, on_stop, s);
	s->signals.on_int = evsignal_new(s->base, SIGINT, on_stop, s);
	s->signals.on_hup = evsignal_new(s->base, SIGHUP, on_reload, s);
	if (!s->mailbox.ring || !s->listening.again || !s->signals.grace || !s->signals.on_term || !s->signals.on_int ||
	    !s->signals.on_hup)
		fault_abort();
	/* At a terminal that is closed, a server without a file of keys ends. */
	if (s->opts.api_key_file || !isatty(STDIN_FILENO))
		event_add(s->signals.on_hup, NULL);
	if ((r = listen_on(s, err)))
		goto fail;
	*out = s;
	return 0;
fail:
	server_close(s);
	return r;
}

int server_port(const struct server *s)
{
	return s->listening.port;
}

/* aside: some requests wait for other machines, or for models. */
static void begin(struct server *s, int queue_max, bool aside)
{
	s->queue_max = queue_max;
	workers_open(s, s->opts.prep_threads, aside);
	event_add(s->mailbox.ring, NULL);
	event_add(s->signals.on_term, NULL);
	event_add(s->signals.on_int, NULL);
}

void server_begin(struct server *s, const struct served *served)
{
	known_add(s, served);
	begin(s, served->queue_max, s->opts.n_image_host > 0);
}

void server_set_models(struct server *s, const struct model_source *v, int n)
{
	known_set(s, v, n);
}

int server_begin_several(struct server *s, size_t budget, int queue_max, void (*reread)(void *arg), void *arg,
                         struct err *err)
{
	int rc;

	s->known.reread = reread;
	s->known.reread_arg = arg;
	rc = known_begin(s, budget, err);
	if (rc)
		return rc;
	if (reread)
		event_add(s->signals.on_hup, NULL);
	begin(s, queue_max, true);
	return 0;
}

static int64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void server_turn(struct server *s)
{
	if (s->clock.turn.wall)
		return;
	s->clock.turn.wall = clock_monotonic_ns();
	s->clock.turn.cpu = cpu_ns();
}

static void end_turn(struct server *s)
{
	int64_t wall = clock_monotonic_ns() - s->clock.turn.wall, cpu = cpu_ns() - s->clock.turn.cpu;

	if (!s->clock.turn.wall)
		return;
	s->clock.longest.wall = wall > s->clock.longest.wall ? wall : s->clock.longest.wall;
	s->clock.longest.cpu = cpu > s->clock.longest.cpu ? cpu : s->clock.longest.cpu;
	s->clock.turn.wall = 0;
}

int server_run(struct server *s, struct err *err)
{
	int r;

	do {
		r = event_base_loop(s->base, EVLOOP_ONCE);
		end_turn(s);
	} while (!r && !event_base_got_break(s->base));
	if (r < 0)
		return err_set(err, E_IO, "the event loop failed: %s", strerror(errno));
	s->stopping = true;
	while (s->conns.first)
		conn_close(s->conns.first, CAUSE_STOP);
	for (size_t i = 0; i < s->exchanges.n; i++)
		if (s->exchanges.v[i]->detached)
			exchange_leave(s->exchanges.v[i], CAUSE_STOP);
	known_stop(s);
	/* No worker may ask an engine anything once its owner closes it. */
	workers_close(s);
	return 0;
}

void server_close(struct server *s)
{
	if (!s)
		return;
	if (s->workers.v)
		workers_close(s);
	if (s->base) {
		s->stopping = true;
		while (s->conns.first)
			conn_close(s->conns.first, CAUSE_STOP);
		if (s->listening.at)
			evconnlistener_free(s->listening.at);
		struct event *const events[] = { s->mailbox.ring,    s->listening.again, s->signals.grace,
			                         s->signals.on_term, s->signals.on_int,  s->signals.on_hup };

		for (size_t i = 0; i < sizeof events / sizeof *events; i++)
			if (events[i])
				event_free(events[i]);
	}
	for (size_t i = 0; i < s->exchanges.n; i++) {
		struct exchange *x = s->exchanges.v[i];

		/* Prepared for a client that had left. */
		if (x->stage == PREPARING && x->route->endpoint->drop)
			x->route->endpoint->drop(x);
	}
	known_close(s); /* an engine may call for an exchange until it is closed */
	for (size_t i = 0; i < s->exchanges.n; i++)
		exchange_free(s->exchanges.v[i]);
	free(s->exchanges.v);
	if (s->base)
		event_base_free(s->base);
	for (int i = 0; i < 2; i++)
		if (s->mailbox.pipe[i] >= 0)
			close(s->mailbox.pipe[i]);
	pthread_mutex_destroy(&s->lock);
	if (s->listening.unix_path)
		unlink(s->listening.unix_path);
	response_store_fini(&s->responses);
	image_folders_close(&s->image_folders);
	image_hosts_close(&s->image_hosts);
	free_texts(&s->texts);
	clients_close(&s->clients);
	turns_free(s->turns);
	free(s);
}
