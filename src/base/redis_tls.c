/* redis_tls.c - see redis_tls.h. */
#include "base/redis_tls.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>

#include "base/alloc.h"

#ifdef WEFT_LIBSSL
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

struct tls {
	SSL_CTX *ctx;
	SSL *ssl;
};

bool tls_there(void)
{
	return true;
}

void tls_free(struct tls *t)
{
	if (!t)
		return;
	SSL_free(t->ssl);
	SSL_CTX_free(t->ctx);
	free(t);
}

/* Names the host to the server, and to the check of its certificate. */
static bool tls_name(SSL *ssl, const char *host)
{
	unsigned char address[16];

	if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
	return SSL_set_tlsext_host_name(ssl, host) == 1 && SSL_set1_host(ssl, host) == 1;
}

struct tls *tls_new(int fd, const char *host, struct err *err)
{
	struct tls *t = xcalloc(1, sizeof(*t));

	t->ctx = SSL_CTX_new(TLS_client_method());
	if (t->ctx && SSL_CTX_set_default_verify_paths(t->ctx) == 1 &&
	    SSL_CTX_set_min_proto_version(t->ctx, TLS1_2_VERSION) == 1) {
		SSL_CTX_set_verify(t->ctx, SSL_VERIFY_PEER, NULL);
		SSL_CTX_set_mode(t->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
		t->ssl = SSL_new(t->ctx);
	}
	if (t->ssl && SSL_set_fd(t->ssl, fd) == 1 && tls_name(t->ssl, host))
		return t;
	tls_free(t);
	ERR_clear_error();
	err_set(err, E_IO, "TLS cannot be set up");
	return NULL;
}

/* -1, with what to wait for; 0 where the other side has closed. */
static int tls_wants(struct tls *t, int rc, short *events)
{
	int why = SSL_get_error(t->ssl, rc);

	*events = why == SSL_ERROR_WANT_READ ? POLLIN : why == SSL_ERROR_WANT_WRITE ? POLLOUT : 0;
	ERR_clear_error();
	if (!*events && why != SSL_ERROR_SYSCALL)
		errno = EPROTO;
	return why == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

int tls_shake(struct tls *t, short *events, struct err *err)
{
	int rc = SSL_connect(t->ssl);
	long check;

	*events = 0;
	if (rc == 1)
		return 0;
	tls_wants(t, rc, events);
	check = SSL_get_verify_result(t->ssl);
	return err_set(err, E_IO, "TLS: %s",
	               check != X509_V_OK ? X509_verify_cert_error_string(check) : "the two did not agree");
}

ssize_t tls_read(struct tls *t, void *p, size_t n, short *events)
{
	int rc = SSL_read(t->ssl, p, n < INT_MAX ? (int)n : INT_MAX);

	return rc > 0 ? rc : tls_wants(t, rc, events);
}

ssize_t tls_write(struct tls *t, const void *p, size_t n, short *events)
{
	int rc = SSL_write(t->ssl, p, n < INT_MAX ? (int)n : INT_MAX);

	return rc > 0 ? rc : tls_wants(t, rc, events);
}

#else

bool tls_there(void)
{
	return false;
}

struct tls *tls_new(int fd, const char *host, struct err *err)
{
	return NULL;
}

void tls_free(struct tls *t) {}

int tls_shake(struct tls *t, short *events, struct err *err)
{
	*events = 0;
	return E_UNSUPPORTED;
}

ssize_t tls_read(struct tls *t, void *p, size_t n, short *events)
{
	*events = 0;
	return -1;
}

ssize_t tls_write(struct tls *t, const void *p, size_t n, short *events)
{
	*events = 0;
	return -1;
}

#endif
