/* sound_file.c - see sound_file.h. */
#include "sound/samples/sound_file.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/allowance.h"
#include "sound/samples/resampler.h"

const struct sound_limits sound_limits_default = { 64 << 20, 120000000, 600, 8, 4000, 384000 };

static bool begins(const uint8_t *p, size_t n, size_t at, const char *with)
{
	size_t len = strlen(with);

	return n >= at + len && !memcmp(p + at, with, len);
}

/* The format's name, by the first bytes; NULL: none of them. */
static const char *kind_of(const uint8_t *p, size_t n)
{
	if ((begins(p, n, 0, "RIFF") || begins(p, n, 0, "RF64")) && begins(p, n, 8, "WAVE"))
		return "WAV";
	if (begins(p, n, 0, "fLaC"))
		return "FLAC";
	if (begins(p, n, 0, "OggS"))
		return "Ogg";
	/* A tag, or the header of a frame of layer III. */
	if (begins(p, n, 0, "ID3") || (n >= 4 && p[0] == 0xff && (p[1] & 0xe6) == 0xe2 && (p[1] & 0x18) != 0x08))
		return "MP3";
	return NULL;
}

bool sound_known(const void *bytes, size_t n)
{
	return kind_of(bytes, n) != NULL;
}

void sound_fini(struct sound *s)
{
	free(s->at);
	*s = (struct sound){ 0 };
}

#ifdef WEFT_SNDFILE
#include <sndfile.h>
#ifdef WEFT_VORBISFILE
#define OV_EXCLUDE_STATIC_CALLBACKS
#include <vorbis/vorbisfile.h>
#endif

/* Samples that are read at once; steps of an allowance that one brings, to decode and to resample it. */
enum { BLOCK = 1 << 14, STEPS_PER_SAMPLE = 3 };
/* Beyond it a sample is not one of a sound: full scale is 1. */
#define LOUDEST 1e6f

struct reading {
	const uint8_t *p; /* the file */
	size_t n, at;
	const char *kind;
	const struct sound_limits *limits;
	SNDFILE *file;
	SF_INFO info;
	struct resampler *resampler; /* NULL: the rate is right */
	struct sound *out;
	size_t room; /* floats of out->at */
};

static sf_count_t length_of(void *arg)
{
	return (sf_count_t)((struct reading *)arg)->n;
}

static sf_count_t seek_to(sf_count_t offset, int whence, void *arg)
{
	struct reading *r = arg;
	sf_count_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? (sf_count_t)r->at : (sf_count_t)r->n;

	/* An offset that leads out of the file leads to its nearer end. */
	if (offset < -from)
		r->at = 0;
	else if (offset > (sf_count_t)r->n - from)
		r->at = r->n;
	else
		r->at = (size_t)(from + offset);
	return (sf_count_t)r->at;
}

static sf_count_t read_from(void *to, sf_count_t count, void *arg)
{
	struct reading *r = arg;
	size_t n = r->n - r->at;

	if (count < 0)
		return 0;
	n = (uint64_t)count < n ? (size_t)count : n;
	memcpy(to, r->p + r->at, n);
	r->at += n;
	return (sf_count_t)n;
}

static sf_count_t where_is(void *arg)
{
	return (sf_count_t)((struct reading *)arg)->at;
}

/* The library begins the use of other libraries with the first file that needs them, without a lock. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* Bytes of the Ogg page that p begins with; 0: it is not whole.  RFC 3533, section 6. */
static size_t page_bytes(const uint8_t *p, size_t n)
{
	size_t head = n > 26 ? 27 + (size_t)p[26] : SIZE_MAX, all = head;

	if (head > n)
		return 0;
	for (size_t i = 27; i < head; i++)
		all += p[i];
	return all <= n ? all : 0;
}

/* Is the checksum of that page right? */
static bool page_right(const uint8_t *p, size_t n)
{
	enum { AT = 22, END = AT + 4 };
	uint32_t sum = 0, is = 0;

	for (size_t i = 0; i < n; i++) {
		sum ^= (uint32_t)(i >= AT && i < END ? 0 : p[i]) << 24;
		for (int bit = 0; bit < 8; bit++)
			sum = sum << 1 ^ (sum >> 31 ? 0x04c11db7 : 0);
	}
	for (int i = END; i > AT; i--)
		is = is << 8 | p[i - 1];
	return sum == is;
}

/* Is the first page, which libsndfile knows a stream by, that of an Opus stream?  RFC 7845, section 5.1.  A page whose checksum
 * is wrong is passed over, and another stream may follow. */
static bool is_opus(const struct reading *r)
{
	size_t n = page_bytes(r->p, r->n);

	return n && begins(r->p, n, 27 + (size_t)r->p[26], "OpusHead") && page_right(r->p, n);
}

/* libsndfile 1.2 loses the memory of Vorbis headers that it cannot read, so they are read by their own library before. */
#ifdef WEFT_VORBISFILE
static size_t vorbis_read(void *to, size_t size, size_t n, void *arg)
{
	return size ? (size_t)read_from(to, (sf_count_t)(size * n), arg) / size : 0;
}

static int check_vorbis(struct reading *r, struct err *err)
{
	OggVorbis_File file;
	int rc = ov_test_callbacks(r, &file, NULL, 0, (ov_callbacks){ vorbis_read, NULL, NULL, NULL });

	r->at = 0;
	if (rc)
		return err_set(err, E_FORMAT, "sound: a broken Ogg file: Vorbis headers are not there or not right");
	ov_clear(&file);
	return 0;
}
#else
static int check_vorbis(struct reading *r, struct err *err)
{
	return err_set(err, E_UNSUPPORTED, "sound: this build of weft is without libvorbisfile, which Ogg files need");
}
#endif

static int open_file(struct reading *r, struct err *err)
{
	static SF_VIRTUAL_IO io = { length_of, seek_to, read_from, NULL, where_is };
	int rc = 0;

	pthread_mutex_lock(&opening);
	r->file = sf_open_virtual(&io, SFM_READ, &r->info, r);
	if (!r->file)
		rc = err_set(err, E_FORMAT, "sound: a broken %s file: %s", r->kind, sf_strerror(NULL));
	pthread_mutex_unlock(&opening);
	return rc;
}

static void close_file(struct reading *r)
{
	pthread_mutex_lock(&opening);
	if (r->file)
		sf_close(r->file);
	pthread_mutex_unlock(&opening);
}

/* Containers may hold what was never meant to be in them, by decoders that few have tried. */
static bool coding_known(int format)
{
	switch (format & SF_FORMAT_TYPEMASK) {
	case SF_FORMAT_WAV:
	case SF_FORMAT_WAVEX:
	case SF_FORMAT_RF64:
		switch (format & SF_FORMAT_SUBMASK) {
		case SF_FORMAT_PCM_U8:
		case SF_FORMAT_PCM_16:
		case SF_FORMAT_PCM_24:
		case SF_FORMAT_PCM_32:
		case SF_FORMAT_FLOAT:
		case SF_FORMAT_DOUBLE:
		case SF_FORMAT_ULAW:
		case SF_FORMAT_ALAW: return true;
		default: return false;
		}
	case SF_FORMAT_FLAC: return true;
	case SF_FORMAT_OGG:
		return (format & SF_FORMAT_SUBMASK) == SF_FORMAT_VORBIS ||
		       (format & SF_FORMAT_SUBMASK) == SF_FORMAT_OPUS;
#ifdef SF_FORMAT_MPEG_LAYER_III
	case SF_FORMAT_MPEG: return true;
#endif
	default: return false;
	}
}

static int check_header(const struct reading *r, struct err *err)
{
	const struct sound_limits *l = r->limits;
	const SF_INFO *i = &r->info;

	if (!coding_known(i->format))
		return err_set(err, E_UNSUPPORTED, "sound: a %s file in a coding that is not read (0x%x)", r->kind,
		               (unsigned)i->format);
	if (i->channels < 1 || i->channels > l->channels)
		return err_set(err, E_LIMIT, "sound: %d channels, 1 to %d are read", i->channels, l->channels);
	if (i->samplerate < l->rate_min || i->samplerate > l->rate_max)
		return err_set(err, E_LIMIT, "sound: %d samples a second, %d to %d are read", i->samplerate,
		               l->rate_min, l->rate_max);
	if (i->frames < 0)
		return err_set(err, E_FORMAT, "sound: %lld samples", (long long)i->frames);
	return 0;
}

static int too_long(const struct reading *r, struct err *err)
{
	const struct sound_limits *l = r->limits;

	return err_set(err, E_LIMIT, "sound: more than %d seconds, or %lld samples in %d channels at %d a second",
	               l->seconds, (long long)l->samples, r->info.channels, r->info.samplerate);
}

static bool within(const struct reading *r, sf_count_t frames)
{
	const struct sound_limits *l = r->limits;

	return frames <= (sf_count_t)l->seconds * r->info.samplerate && frames <= l->samples / r->info.channels;
}

/* Room for `more` samples behind those that are there; doubles. */
static int make_room(struct reading *r, size_t more, struct err *err)
{
	size_t want = (size_t)r->out->n + more, room = r->room ? r->room : BLOCK;
	float *at;

	if (want <= r->room)
		return 0;
	while (room < want)
		room *= 2;
	at = try_malloc(room * sizeof *at);
	if (!at)
		return err_set(err, E_LIMIT, "sound: no memory for %zu samples", room);
	if (r->out->n)
		memcpy(at, r->out->at, (size_t)r->out->n * sizeof *at);
	free(r->out->at);
	r->out->at = at;
	r->room = room;
	return 0;
}

/* Adds samples of one channel at the file's rate; in NULL: there are no more. */
static int put_samples(struct reading *r, const float *in, size_t n, struct err *err)
{
	int rc = 0;

	if (!r->resampler) {
		if (n && !(rc = make_room(r, n, err)))
			memcpy(r->out->at + r->out->n, in, n * sizeof *in);
		r->out->n += rc ? 0 : (int)n;
		return rc;
	}
	while (!rc) {
		size_t taken = 0, got = 0;

		if ((rc = make_room(r, BLOCK, err)))
			break;
		rc = resampler_put(r->resampler, in, n, &taken, r->out->at + r->out->n, BLOCK, &got, err);
		r->out->n += rc ? 0 : (int)got;
		if (in) {
			in += taken;
			n -= taken;
		}
		if (!got && !taken)
			break;
		if (in && !n && got < BLOCK)
			break;
	}
	return rc;
}

/* The mean of a frame's channels, in place. */
static int mix(const struct reading *r, float *x, sf_count_t frames, struct err *err)
{
	int channels = r->info.channels;

	for (sf_count_t i = 0; i < frames; i++) {
		double sum = 0;

		for (int c = 0; c < channels; c++)
			sum += (double)x[i * channels + c];
		x[i] = (float)(sum / channels);
		if (!(fabsf(x[i]) <= LOUDEST))
			return err_set(err, E_FORMAT, "sound: a sample of %g, where full scale is 1", (double)x[i]);
	}
	return 0;
}

static int read_samples(struct reading *r, float *block, struct err *err)
{
	sf_count_t frames = BLOCK / r->info.channels, all = 0, n;
	int rc = 0;

	while (!rc && (n = sf_readf_float(r->file, block, frames)) > 0) {
		uint64_t steps = (uint64_t)n * (uint64_t)r->info.channels * STEPS_PER_SAMPLE;

		if (!within(r, all += n))
			return too_long(r, err);
		allowance_grant(steps);
		if (!allowance_spend(steps))
			return err_set(err, E_LIMIT, "sound: %s", allowance_why());
		rc = mix(r, block, n, err);
		if (!rc)
			rc = put_samples(r, block, (size_t)n, err);
	}
	if (!rc && sf_error(r->file))
		return err_set(err, E_FORMAT, "sound: a broken %s file: %s", r->kind, sf_strerror(r->file));
	if (!rc && !all)
		return err_set(err, E_FORMAT, "sound: a %s file without samples", r->kind);
	r->out->source = all * r->info.channels;
	return rc ? rc : put_samples(r, NULL, 0, err);
}

/* As many samples as the time of the file has, whatever the resampler's edges gave. */
static int settle(struct reading *r, struct err *err)
{
	int64_t frames = r->out->source / r->info.channels, rate = r->info.samplerate;
	int64_t want = (frames * SOUND_RATE + rate - 1) / rate;
	int rc = want > r->out->n ? make_room(r, (size_t)(want - r->out->n), err) : 0;

	if (rc)
		return rc;
	for (int64_t i = r->out->n; i < want; i++)
		r->out->at[i] = 0;
	r->out->n = (int)want;
	return 0;
}

static int decode(struct reading *r, struct err *err)
{
	float *block;
	int rc;

	if (!strcmp(r->kind, "Ogg") && !is_opus(r) && (rc = check_vorbis(r, err)))
		return rc;
	if ((rc = open_file(r, err)) || (rc = check_header(r, err)))
		return rc;
	if (r->info.frames != SF_COUNT_MAX && !within(r, r->info.frames))
		return too_long(r, err);
	if (r->info.samplerate != SOUND_RATE)
		rc = resampler_open(&r->resampler, r->info.samplerate, SOUND_RATE, err);
	if (rc)
		return rc;
	block = xmalloc(BLOCK * sizeof *block);
	rc = read_samples(r, block, err);
	free(block);
	return rc ? rc : settle(r, err);
}

#else

struct reading {
	const uint8_t *p;
	size_t n;
	const char *kind;
	const struct sound_limits *limits;
	struct sound *out;
	struct resampler *resampler;
};

static int decode(struct reading *r, struct err *err)
{
	return err_set(err, E_UNSUPPORTED, "sound: this build of weft is without libsndfile, which reads %s files",
	               r->kind);
}

static void close_file(struct reading *r) {}

#endif

int sound_decode(struct sound *out, const void *bytes, size_t n, const struct sound_limits *limits, struct err *err)
{
	struct reading r = { .p = bytes,
		             .n = n,
		             .limits = limits ? limits : &sound_limits_default,
		             .out = out,
		             .kind = kind_of(bytes, n) };
	int rc;

	*out = (struct sound){ 0 };
	if (n > r.limits->bytes)
		return err_set(err, E_LIMIT, "sound: a file of %zu bytes, where %zu are allowed", n, r.limits->bytes);
	if (!r.kind)
		return err_set(err, E_FORMAT, "sound: %zu bytes that begin as no WAV, FLAC, Ogg or MP3 file does", n);
	rc = decode(&r, err);
	close_file(&r);
	resampler_close(r.resampler);
	if (rc)
		sound_fini(out);
	return rc;
}
