/* image_hosts.h - hosts that images may be fetched from: those that the command line lists, and no other.
 *
 * HTTP, TLS and URLs are libcurl's, which is opened where hosts are listed and nowhere else.  Redirects are not followed and
 * no proxy is asked, so nothing but a listed host is ever connected to; which address its name stands for is up to the
 * operator. */
#ifndef SERVER_IMAGE_HOSTS_H
#define SERVER_IMAGE_HOSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { IMAGE_FETCH_MAX = 64 << 20, IMAGE_FETCH_SECONDS = 60 }; /* bytes, and seconds, of a picture */

struct curl_calls;
struct image_hosts {
	const char *const *host; /* [n] */
	int n;
	struct curl_calls *curl;
};
/* host: [n], borrowed: "NAME", which means the port that belongs to http: or https:, or "NAME:PORT".  E_ARG: a word that is
 * neither; E_MISSING: n is above 0 and libcurl is not here.  image_hosts_close in either case.  One thread, before others
 * fetch. */
int image_hosts_open(struct image_hosts *h, const char *const *host, int n, struct err *err);
void image_hosts_close(struct image_hosts *h);

bool image_host_url(const char *url, size_t n); /* is it one of kind http: or https:? */
/* The bytes that a URL gives, to be freed, and their number.  E_ARG: the URL is wrong, or its host is not listed; E_LIMIT: too
 * large, or the allowance says no; E_FULL: no memory, or no descriptor; E_IO: the host gives none.
 * Any thread, under its allowance, which is looked at every few milliseconds. */
int image_host_read(const struct image_hosts *h, const char *url, size_t n, uint8_t **bytes, size_t *n_bytes,
                    struct err *err);

#endif
