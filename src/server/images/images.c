/* images.c - see images.h. */
#include "model/media.h"
#include "server/images/images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "base/base64.h"
#include "base/fault.h"
#include "server/http/workers.h"

/* ---- kept images ---- */

struct image_kept {
	struct digest file; /* of the bytes that it was read from */
	int64_t pixels;     /* of that file; another file with the same picture may have more */
	struct media *media;
	uint64_t used;
};

/* Bytes that an entry counts for besides its vectors; most entries.  Pixels that wait for the tower are a small multiple of
 * the vectors. */
enum { ENTRY_BYTES = 4096, ENTRIES_MAX = 4096 };

void image_store_init(struct image_store *s, size_t bytes_max)
{
	*s = (struct image_store){ .bytes_max = bytes_max };
	pthread_mutex_init(&s->lock, NULL);
}

static size_t entry_bytes(const struct image_kept *k)
{
	return ENTRY_BYTES + k->media->bytes;
}

static void drop_entry(struct image_store *s, int i)
{
	s->bytes -= entry_bytes(&s->kept[i]);
	media_unref(s->kept[i].media);
	s->kept[i] = s->kept[--s->n];
}

void image_store_fini(struct image_store *s)
{
	while (s->n)
		drop_entry(s, 0);
	free(s->kept);
	pthread_mutex_destroy(&s->lock);
}

static bool same(const struct digest *a, const struct digest *b)
{
	return !memcmp(a, b, sizeof *a);
}

/* A reference to the image of this file, whose pixels are counted, or (file NULL) of this digest of pixels; NULL: it is
 * not kept. */
static struct media *store_get(struct image_store *s, const struct digest *file, const struct digest *pixels,
                               int64_t *count)
{
	struct media *found = NULL;

	if (!s)
		return NULL;
	fault_lock(&s->lock);
	for (int i = 0; i < s->n && !found; i++)
		if (!s->kept[i].media->broken &&
		    (file ? same(&s->kept[i].file, file) : same(&s->kept[i].media->digest, pixels))) {
			s->kept[i].used = ++s->clock;
			found = media_ref(s->kept[i].media);
			if (count)
				*count = s->kept[i].pixels;
		}
	fault_unlock(&s->lock);
	return found;
}

static int oldest_entry(const struct image_store *s)
{
	int at = 0;

	for (int i = 1; i < s->n; i++)
		if (s->kept[i].used < s->kept[at].used)
			at = i;
	return at;
}

/* Takes a reference of its own. */
static void store_put(struct image_store *s, const struct digest *file, int64_t pixels, struct media *m)
{
	struct image_kept k = { .file = *file, .pixels = pixels, .media = m };

	if (!s || entry_bytes(&k) > s->bytes_max)
		return;
	fault_lock(&s->lock);
	while (s->n && (s->bytes + entry_bytes(&k) > s->bytes_max || s->n == ENTRIES_MAX))
		drop_entry(s, oldest_entry(s));
	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 16;
		s->kept = xrealloc(s->kept, size_mul((size_t)s->cap, sizeof *s->kept));
	}
	k.used = ++s->clock;
	media_ref(m);
	s->kept[s->n++] = k;
	s->bytes += entry_bytes(&k);
	fault_unlock(&s->lock);
}

/* ---- an image that comes ---- */

static void show_none(struct images *im)
{
	while (im->n_shown)
		media_unref(im->shown[--im->n_shown]);
	im->n_span = 0;
}

void images_fini(struct images *im)
{
	for (int i = 0; i < im->n_came; i++)
		media_unref(im->came[i]);
	show_none(im);
	free(im->shown);
	free(im->span);
	*im = (struct images){ 0 };
}

static const char *const names[MEDIA_KINDS] = { "image", "sound" };
static const char *const codes[MEDIA_KINDS][2] = { { "invalid_image", "image_too_large" },
	                                           { "invalid_sound", "sound_too_large" } };
static const char *const types[MEDIA_KINDS] = { "image/png", "audio/wav" };

/* The base64 in url; NULL: *p says why there is none. */
static const char *payload_of(const char *url, size_t n, enum media_kind kind, size_t *len, const char *at,
                              struct problem *p)
{
	const char *comma, *colon = memchr(url, ':', n < 32 ? n : 32);

	*len = n;
	if (!colon)
		return url;
	if (n < 5 || strncasecmp(url, "data:", 5)) {
		problem_set(
			p, 400, "unsupported_content", at,
			"%s is a URL of kind \"%.*s\": this server fetches nothing (--image-host lets it); send the %s "
			"as a data URL (data:%s;base64,...)",
			at, (int)(colon - url < 20 ? colon - url : 20), url, names[kind], types[kind]);
		return NULL;
	}
	comma = memchr(url, ',', n < 256 ? n : 256);
	if (!comma || comma - url < 12 || strncasecmp(comma - 7, ";base64", 7)) {
		problem_set(p, 400, "invalid_value", at, "%s is a data URL without \";base64,\"", at);
		return NULL;
	}
	*len = n - (size_t)(comma + 1 - url);
	return comma + 1;
}

/* Private characters around the digest: nothing that a template, or a tokenizer's normalisation, gives a meaning. */
static const char mark_open[] = "\xEE\x80\x82"
				"image ",
		  mark_close[] = "\xEE\x80\x83";
enum { HEX = 2 * sizeof(struct digest) };

typedef int media_reader(void *arg, const void *bytes, size_t n, struct media **out, struct err *err);

/* NULL: the model takes none of this kind. */
static media_reader *reader_of(const struct sight *s, enum media_kind kind)
{
	return kind == MEDIA_SOUND ? s->sound : s->image;
}

static void put_mark(struct buf *text, const struct digest *d)
{
	char hex[HEX + 1];

	hex_put(hex, d->b, sizeof d->b);
	buf_printf(text, "%s%s%s", mark_open, hex, mark_close);
}

int images_take(struct images *im, struct media *m, struct buf *text)
{
	if (im->n_came == IMAGES_MAX) {
		media_unref(m);
		return E_LIMIT;
	}
	im->came[im->n_came++] = m;
	put_mark(text, &m->digest);
	return 0;
}

/* Decodes a file and prepares it for the tower.  Its work is paid from an allowance of its own, so that a request costs
 * the same whether its images are kept or new. */
static int make_media(struct images *im, enum media_kind kind, const uint8_t *bytes, size_t n, const char *at,
                      struct media **m, struct problem *p)
{
	enum { STEPS = 2000000 }; /* for a small one; pixels bring more */
	struct allowance part, *whole = allowance_part_begin(&part, STEPS + (uint64_t)n * ALLOWANCE_PER_BYTE);
	struct err err;
	int rc = reader_of(im->sight, kind)(im->sight->arg, bytes, n, m, &err);

	allowance_part_end(&part, whole);
	if (rc)
		return problem_set(p, 400, codes[kind][err.code == E_LIMIT], at, "%s: %s", at, err.msg);
	return 0;
}

/* Counts an image's pixels; lets go of it where they are too many. */
static int count_pixels(struct images *im, int64_t pixels, struct media *m, const char *at, struct problem *p)
{
	im->pixels += pixels;
	if (im->pixels <= IMAGES_PIXELS_MAX)
		return 0;
	problem_set(p, 400, "too_many_images", at,
	            "%s: %lld pixels up to this %s, where a request may hold %d in all its images and sounds", at,
	            (long long)im->pixels, names[m->kind], IMAGES_PIXELS_MAX);
	media_unref(m);
	return p->status;
}

static int read_file(struct images *im, enum media_kind kind, const uint8_t *bytes, size_t n, const char *at,
                     struct buf *text, struct problem *p)
{
	struct media *m, *kept;
	struct digest file;
	struct sha256 h;
	int64_t pixels;
	int r;

	/* The bytes of an image that come as a sound are not a sound, whatever is kept of them. */
	sha256_init(&h);
	sha256_put(&h, names[kind], strlen(names[kind]));
	sha256_put(&h, bytes, n);
	sha256_end(&h, &file);
	if ((m = store_get(im->store, &file, NULL, &pixels)))
		return (r = count_pixels(im, pixels, m, at, p)) ? r : images_take(im, m, text);
	if ((r = make_media(im, kind, bytes, n, at, &m, p)))
		return r;
	pixels = m->pixels;
	/* The store has this picture from another file. */
	if ((kept = store_get(im->store, NULL, &m->digest, NULL))) {
		media_unref(m);
		m = kept;
	}
	store_put(im->store, &file, pixels, m);
	return (r = count_pixels(im, pixels, m, at, p)) ? r : images_take(im, m, text);
}

/* The image of a file: URL, or of one whose host may be asked. */
static int open_url(struct images *im, enum media_kind kind, const char *url, size_t n, const char *at,
                    struct buf *text, struct problem *p)
{
	uint8_t *bytes;
	struct err err;
	size_t len;
	int r;

	if (image_file_url(url, n)) {
		r = image_file_read(im->folders, url, n, &bytes, &len, &err);
	} else {
		if ((r = workers_aside(p)))
			return r;
		r = image_host_read(im->hosts, url, n, &bytes, &len, &err);
		workers_back();
	}
	if (r && allowance_why())
		return problem_set(p, 400, "too_costly", at, "%s: %s", at, allowance_why());
	if (r == E_FULL)
		return problem_set(p, 503, "overloaded", at, "%s: %s", at, err.msg);
	if (r)
		return problem_set(p, 400, r == E_ARG ? "unsupported_content" : codes[kind][r == E_LIMIT], at, "%s: %s",
		                   at, err.msg);
	r = read_file(im, kind, bytes, len, at, text, p);
	free(bytes);
	return r;
}

static int take_url(struct images *im, enum media_kind kind, const char *url, size_t n, const char *at,
                    struct buf *text, struct problem *p)
{
	const char *base64;
	uint8_t *bytes;
	int64_t len;
	size_t n64, bad = 0;
	int r;

	if (!im)
		return problem_set(p, 400, "unsupported_content", at,
		                   "%s: %ss can stand in messages of the user and in results of tools", at,
		                   names[kind]);
	if (!im->sight)
		return problem_set(p, 400, "unsupported_content", at, "%s: this model reads text only", at);
	if (!reader_of(im->sight, kind))
		return problem_set(p, 400, "unsupported_content", at, "%s: this model takes no %ss", at, names[kind]);
	if (im->n_came == IMAGES_MAX)
		return problem_set(p, 400, "too_many_images", at,
		                   "%s is one %s more than the %d that a request may hold", at, names[kind],
		                   IMAGES_MAX);
	/* As readers of URLs do. */
	for (; n && (unsigned char)*url <= ' '; url++)
		n--;
	if (image_file_url(url, n) || (image_host_url(url, n) && im->hosts && im->hosts->n))
		return open_url(im, kind, url, n, at, text, p);
	if (!(base64 = payload_of(url, n, kind, &n64, at, p)))
		return p->status;
	if (!allowance_spend(n64 / 16))
		return problem_set(p, 400, "too_costly", at, "%s: %s", at, allowance_why());
	bytes = try_malloc(n64 + 1);
	if (!bytes)
		return problem_set(p, 503, "overloaded", at, "no memory for %zu bytes of base64", n64);
	len = base64_decode(bytes, base64, n64, &bad);
	r = len > 0 ? read_file(im, kind, bytes, (size_t)len, at, text, p) :
	              problem_set(p, 400, "invalid_value", at, "%s is not base64 at character %zu", at, bad);
	free(bytes);
	return r;
}

int images_url(struct images *im, const char *url, size_t n, const char *at, struct buf *text, struct problem *p)
{
	return take_url(im, MEDIA_IMAGE, url, n, at, text, p);
}

int images_sound(struct images *im, const char *url, size_t n, const char *at, struct buf *text, struct problem *p)
{
	return take_url(im, MEDIA_SOUND, url, n, at, text, p);
}

/* ---- parts for the template ---- */

/* The next mark in s[0..n), with its digest; NULL: there is none. */
static const char *next_mark(const char *s, size_t n, struct digest *d)
{
	size_t open = sizeof mark_open - 1, close = sizeof mark_close - 1;
	const char *end = s + n;

	while ((s = memmem(s, (size_t)(end - s), mark_open, open))) {
		char hex[HEX + 1];

		if ((size_t)(end - s) < open + HEX + close)
			return NULL;
		memcpy(hex, s + open, HEX);
		hex[HEX] = 0;
		if (!memcmp(s + open + HEX, mark_close, close) && !hex_get(d->b, sizeof d->b, hex))
			return s;
		s += open;
	}
	return NULL;
}

/* A reference to the image with these pixels, of this request or kept from an earlier one; NULL: there is none. */
static struct media *find_image(const struct images *im, const struct digest *d)
{
	for (int i = 0; i < im->n_came; i++)
		if (same(&im->came[i]->digest, d))
			return media_ref(im->came[i]);
	return store_get(im->store, NULL, d, NULL);
}

static void add_part(struct json *list, const char *type, const char *s, size_t n)
{
	struct json *part = json_new_object();

	json_set_cstr(part, "type", type);
	if (n)
		json_set_str(part, "text", s, n);
	json_add(list, part);
}

/* Adds the text as parts to a list. */
static int put_parts(struct images *im, const char *s, size_t n, struct json *list, struct problem *p)
{
	const char *mark, *end = s + n;
	struct digest d;

	for (; (mark = next_mark(s, (size_t)(end - s), &d));
	     s = mark + sizeof mark_open - 1 + HEX + sizeof mark_close - 1) {
		struct media *m = find_image(im, &d);

		if (!m)
			return problem_set(
				p, 400, "image_not_found", "messages",
				"an image or sound of an earlier message is not here any longer: send it again");
		if (mark > s)
			add_part(list, "text", s, (size_t)(mark - s));
		im->shown = xrealloc(im->shown, size_mul((size_t)im->n_shown + 1, sizeof(struct media *)));
		im->shown[im->n_shown++] = m;
		add_part(list, m->kind == MEDIA_SOUND ? "audio" : "image", NULL, 0);
	}
	if (end > s)
		add_part(list, "text", s, (size_t)(end - s));
	return 0;
}

static const char *marked_content(const struct json *m, size_t *n)
{
	const char *s = json_str(json_get(m, "content"), n);
	struct digest d;

	return s && next_mark(s, *n, &d) ? s : NULL;
}

/* Adds a message with parts in place of marks. */
static int put_message(struct images *im, const struct json *m, struct json *out, struct problem *p)
{
	struct json *changed, *parts;
	const char *text;
	size_t n;

	if (!(text = marked_content(m, &n))) {
		json_add(out, json_share(m));
		return 0;
	}
	parts = json_new_array();
	changed = json_copy(m);
	json_set(changed, "content", parts);
	json_add(out, changed);
	return put_parts(im, text, n, parts, p);
}

struct json *images_parts(struct images *im, const struct json *messages, struct problem *p)
{
	struct json *out;
	bool some = false;
	size_t n;
	int r = 0;

	show_none(im);
	for (size_t i = 0; i < json_len(messages) && !some && allowance_spend(0); i++)
		some = marked_content(json_at(messages, i), &n) != NULL;
	if (!some || !im->sight)
		return NULL;
	out = json_new_array();
	for (size_t i = 0; i < json_len(messages) && !r && allowance_spend(0); i++)
		r = put_message(im, json_at(messages, i), out, p);
	if (!r)
		return out;
	json_free(out);
	return NULL;
}

/* ---- rows for the engine ---- */

static void put_rows(struct images *im, struct media *m, struct tokens *out)
{
	int row = 0;

	for (int i = 0; i < m->n_layout; i++) {
		struct ask_span *s = im->n_span ? &im->span[im->n_span - 1] : NULL;

		if (m->layout[i] != MEDIA_ROW) {
			tokens_put(out, m->layout[i]);
			continue;
		}
		if (!i || m->layout[i - 1] != MEDIA_ROW) {
			im->span = xrealloc(im->span, size_mul((size_t)im->n_span + 1, sizeof *im->span));
			s = &im->span[im->n_span++];
			*s = (struct ask_span){ .at = (int)out->n, .media = m, .from = row };
		}
		tokens_put(out, m->row_token);
		s->n++;
		row++;
	}
}

/* Moves each place from position k to where[k]. */
static void move_places(const struct image_places *places, int n_places, const int *where, size_t n)
{
	for (int i = 0; i < n_places; i++)
		for (int k = 0; k < places[i].n; k++)
			if (places[i].at[k] >= 0 && (size_t)places[i].at[k] <= n)
				places[i].at[k] = where[places[i].at[k]];
}

/* Is it the placeholder of something shown? */
static bool stands_for(const struct images *im, int32_t id)
{
	for (int i = 0; i < im->n_shown; i++)
		if (im->shown[i]->placeholder == id)
			return true;
	return false;
}

int images_expand(struct images *im, struct tokens *ids, const struct image_places *places, int n_places,
                  struct problem *p)
{
	struct tokens out;
	int k = 0, *where;

	if (!im->n_shown)
		return 0;
	for (size_t i = 0; i < ids->n; i++)
		k += stands_for(im, ids->id[i]) && (k >= im->n_shown || ids->id[i] == im->shown[k]->placeholder);
	if (k != im->n_shown)
		return problem_set(p, 400, "template_error", "messages",
		                   "the chat template of this model shows %d of %d images and sounds", k, im->n_shown);
	im->n_span = 0;
	tokens_init(&out);
	where = xmalloc(size_mul(ids->n + 1, sizeof *where));
	k = 0;
	for (size_t i = 0; i < ids->n; i++) {
		where[i] = (int)out.n;
		if (stands_for(im, ids->id[i]))
			put_rows(im, im->shown[k++], &out);
		else
			tokens_put(&out, ids->id[i]);
	}
	where[ids->n] = (int)out.n;
	move_places(places, n_places, where, ids->n);
	free(where);
	tokens_fini(ids);
	*ids = out;
	return 0;
}
