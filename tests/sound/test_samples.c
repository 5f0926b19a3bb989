/* test_samples.c - files of each kind to samples: against what was written, cut at every length, with changed bytes, and headers that
 * lie. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "check.h"
#include "sound/samples/sound_file.h"

#ifndef WEFT_SNDFILE
int main(void)
{
	static const uint8_t wav[44] = "RIFF\x24\0\0\0WAVEfmt ";
	struct sound s;
	struct err err;

	CHECK(sound_decode(&s, wav, sizeof wav, NULL, &err) == E_UNSUPPORTED, "%s", err.msg);
	return 0;
}
#else
#include <sndfile.h>

/* ---- files that are written here ---- */

struct made {
	uint8_t p[1 << 20];
	sf_count_t n, at;
};
static struct made made;

static sf_count_t length_of(void *arg)
{
	return made.n;
}
static sf_count_t seek_to(sf_count_t offset, int whence, void *arg)
{
	made.at = whence == SEEK_SET ? offset : whence == SEEK_CUR ? made.at + offset : made.n + offset;
	return made.at;
}
static sf_count_t read_from(void *to, sf_count_t n, void *arg)
{
	n = n < made.n - made.at ? n : made.n - made.at;
	memcpy(to, made.p + made.at, (size_t)n);
	made.at += n;
	return n;
}
static sf_count_t write_to(const void *from, sf_count_t n, void *arg)
{
	CHECK(made.at + n <= (sf_count_t)sizeof made.p, "too large a file");
	memcpy(made.p + made.at, from, (size_t)n);
	made.at += n;
	made.n = made.n > made.at ? made.n : made.at;
	return n;
}
static sf_count_t where_is(void *arg)
{
	return made.at;
}

static void write_file(int format, int rate, int channels, const float *x, int frames)
{
	SF_VIRTUAL_IO io = { length_of, seek_to, read_from, write_to, where_is };
	SF_INFO info = { .samplerate = rate, .channels = channels, .format = format };
	SNDFILE *f;

	made.n = made.at = 0;
	f = sf_open_virtual(&io, SFM_WRITE, &info, NULL);
	CHECK(f, "format %x: %s", (unsigned)format, sf_strerror(NULL));
	CHECK(sf_writef_float(f, x, frames) == frames, "format %x", (unsigned)format);
	sf_close(f);
}

enum { WAV16 = SF_FORMAT_WAV | SF_FORMAT_PCM_16, RATE = SOUND_RATE };

static const struct kind {
	int format, rate, channels;
	float off; /* of the tone's amplitude, at most, away from the ends */
} kinds[] = {
	{ WAV16, RATE, 1, 1e-4f },
	{ WAV16, 48000, 1, 2e-4f },
	{ WAV16, 44100, 2, 2e-4f },
	{ WAV16, 8000, 1, 2e-4f },
	{ SF_FORMAT_WAV | SF_FORMAT_PCM_U8, RATE, 1, 0.016f },
	{ SF_FORMAT_WAV | SF_FORMAT_PCM_24, RATE, 3, 1e-5f },
	{ SF_FORMAT_WAV | SF_FORMAT_FLOAT, 22050, 1, 2e-4f },
	{ SF_FORMAT_WAV | SF_FORMAT_ULAW, RATE, 1, 0.05f },
	{ SF_FORMAT_WAVEX | SF_FORMAT_PCM_32, RATE, 2, 1e-5f },
	{ SF_FORMAT_RF64 | SF_FORMAT_PCM_16, RATE, 1, 1e-4f },
	{ SF_FORMAT_FLAC | SF_FORMAT_PCM_16, RATE, 1, 1e-4f },
	{ SF_FORMAT_FLAC | SF_FORMAT_PCM_24, 96000, 2, 2e-4f },
	{ SF_FORMAT_OGG | SF_FORMAT_VORBIS, 44100, 2, 0.05f },
	{ SF_FORMAT_OGG | SF_FORMAT_OPUS, 48000, 1, 0.1f },
#ifdef SF_FORMAT_MPEG_LAYER_III
	{ SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 44100, 1, 0.05f },
#endif
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static double tone(double seconds)
{
	return 0.5 * sin(2 * acos(-1.0) * 440 * seconds);
}

/* Half a second of a tone, of which channels have shares that are one together, on the mean. */
static int write_tone(const struct kind *k)
{
	static float x[1 << 18];
	int frames = k->rate / 2;

	for (int i = 0; i < frames; i++)
		for (int c = 0; c < k->channels; c++)
			x[i * k->channels + c] = (float)(tone((double)i / k->rate) *
			                                 (k->channels == 1 ? 1 :
			                                  c == 0           ? 1.5 :
			                                                     (k->channels - 1.5) / (k->channels - 1)));
	write_file(k->format, k->rate, k->channels, x, frames);
	return frames;
}

/* Codecs delay what they write, some by a part of a sample. */
static double off_by(const struct sound *s, double late)
{
	double most = 0;

	for (int i = 1600; i < s->n - 1600; i++)
		most = fmax(most, fabs((double)s->at[i] - tone((double)i / RATE - late)));
	return most / 0.5;
}

static void check_kinds(void)
{
	for (int i = 0; i < KINDS; i++) {
		int frames = write_tone(&kinds[i]),
		    want = (int)(((int64_t)frames * RATE + kinds[i].rate - 1) / kinds[i].rate);
		double least = 9;
		struct sound s;
		struct err err;

		CHECK(sound_known(made.p, (size_t)made.n), "format %x is not known", (unsigned)kinds[i].format);
		CHECK(!sound_decode(&s, made.p, (size_t)made.n, NULL, &err), "format %x: %s", (unsigned)kinds[i].format,
		      err.msg);
		CHECK(abs(s.n - want) <= (kinds[i].off < 0.02f ? 0 : 3000), "format %x: %d samples, not %d",
		      (unsigned)kinds[i].format, s.n, want);
		for (int late = 0; late < (kinds[i].off < 0.02f ? 1 : 400); late++)
			least = fmin(least, off_by(&s, late / 40.0 / 440));
		CHECK(least <= (double)kinds[i].off, "format %x at %d: off by %g", (unsigned)kinds[i].format,
		      kinds[i].rate, least);
		sound_fini(&s);
	}
}

/* ---- hostile files ---- */

static int try_decode(const uint8_t *p, size_t n, struct err *err)
{
	static const struct sound_limits small = { 1 << 20, 1 << 20, 5, 8, 4000, 384000 };
	uint8_t *copy = xmalloc(n + 1); /* of the right size, for the sanitizers */
	struct sound s;
	int rc;

	memcpy(copy, p, n);
	rc = sound_decode(&s, copy, n, &small, err);
	CHECK(rc == 0 || rc == E_FORMAT || rc == E_LIMIT || rc == E_UNSUPPORTED, "%d: %s", rc, err->msg);
	CHECK(rc || (s.n > 0 && s.n <= 5 * RATE), "%d samples", s.n);
	for (int i = 0; !rc && i < s.n; i++)
		CHECK(isfinite(s.at[i]), "sample %d", i);
	CHECK(!rc || !s.at, "samples after an error");
	sound_fini(&s);
	free(copy);
	return rc;
}

static void check_broken(void)
{
	bool quick = getenv("WEFT_TEST_QUICK");
	uint32_t seed = 1;

	for (int i = 0; i < KINDS; i++) {
		struct err err;
		size_t n;

		write_tone(&kinds[i]);
		n = (size_t)made.n;
		for (size_t cut = 0; cut < n; cut += 1 + (cut > 200) * n / (quick ? 20 : 150))
			try_decode(made.p, cut, &err);
		for (int round = 0; round < (quick ? 30 : 300); round++) {
			size_t at[4];
			uint8_t was[4];

			for (int k = 0; k < 4; k++) {
				seed = seed * 1664525 + 1013904223;
				at[k] = (seed >> 8) % (round % 2 && n > 64 ? 64 : n);
				was[k] = made.p[at[k]];
				made.p[at[k]] = (uint8_t)(seed >> 3);
			}
			try_decode(made.p, n, &err);
			for (int k = 3; k >= 0; k--)
				made.p[at[k]] = was[k];
		}
	}
}

static void put32(size_t at, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		made.p[at + (size_t)i] = (uint8_t)(v >> 8 * i);
}

/* A WAV header as it is written; `at` of which becomes `value`, of 2 or 4 bytes. */
static int lying(size_t at, uint32_t value, int bytes, struct err *err)
{
	write_tone(&kinds[0]);
	if (bytes == 4) {
		put32(at, value);
	} else {
		made.p[at] = (uint8_t)value;
		made.p[at + 1] = (uint8_t)(value >> 8);
	}
	return try_decode(made.p, (size_t)made.n, err);
}

static void check_lies(void)
{
	static float loud[4000], nan[4000];
	struct err err;

	CHECK(lying(22, 0, 2, &err) < 0, "no channels");
	CHECK(lying(22, 9, 2, &err) == E_LIMIT && strstr(err.msg, "9 channels"), "%s", err.msg);
	CHECK(lying(22, 65535, 2, &err) < 0, "%s", err.msg);
	CHECK(lying(24, 3999, 4, &err) == E_LIMIT && strstr(err.msg, "3999"), "%s", err.msg);
	CHECK(lying(24, 1000000000, 4, &err) == E_LIMIT, "%s", err.msg);
	CHECK(lying(24, 0, 4, &err) < 0, "%s", err.msg);
	CHECK(lying(20, 2, 2, &err) < 0, "a coding that is not read");
	/* As recorders write it that do not know the length yet. */
	CHECK(!lying(40, 0xffffffff, 4, &err), "%s", err.msg);
	for (int i = 0; i < 4000; i++) {
		loud[i] = 0.1f;
		nan[i] = i == 2000 ? NAN : 0;
	}
	loud[3000] = 1e7f;
	write_file(SF_FORMAT_WAV | SF_FORMAT_FLOAT, RATE, 1, loud, 4000);
	CHECK(try_decode(made.p, (size_t)made.n, &err) == E_FORMAT && strstr(err.msg, "full scale"), "%s", err.msg);
	write_file(SF_FORMAT_WAV | SF_FORMAT_FLOAT, RATE, 1, nan, 4000);
	CHECK(try_decode(made.p, (size_t)made.n, &err) == E_FORMAT, "%s", err.msg);
	CHECK(try_decode((const uint8_t *)"", 0, &err) == E_FORMAT &&
	              try_decode((const uint8_t *)"RIFF", 4, &err) == E_FORMAT,
	      "%s", err.msg);
}

/* The checksum of the Ogg page that begins the file and is n bytes long, anew (RFC 3533, section 6). */
static void sum_page(size_t n)
{
	uint32_t sum = 0;

	put32(22, 0);
	for (size_t i = 0; i < n; i++) {
		sum ^= (uint32_t)made.p[i] << 24;
		for (int bit = 0; bit < 8; bit++)
			sum = sum << 1 ^ (sum >> 31 ? 0x04c11db7 : 0);
	}
	put32(22, sum);
}

static void check_cut_vorbis(size_t n)
{
	struct err err;

	CHECK(try_decode(made.p, n, &err) == E_FORMAT && strstr(err.msg, "Vorbis headers"), "%s", err.msg);
}

/* Vorbis files that are cut behind their first page and have the name of Opus's header somewhere.  Their headers must be read
 * before libsndfile reads them, which loses memory with such ones. */
static void check_names(void)
{
	enum { PACKET = 28, RATES = PACKET + 16, PAGE = PACKET + 30 };
	static float silence[4000];

	write_file(SF_FORMAT_OGG | SF_FORMAT_VORBIS, 44100, 1, silence, 4000);
	CHECK(made.p[26] == 1 && made.p[27] == 30 && !memcmp(made.p + PACKET, "\1vorbis", 7), "other pages");
	memmove(made.p + PAGE, made.p, PAGE);
	/* In the bit rates. */
	memcpy(made.p + RATES, "OpusHead", 8);
	sum_page(PAGE);
	check_cut_vorbis(PAGE);
	/* In a page before it, of a wrong checksum. */
	memcpy(made.p + PACKET, "OpusHead", 8);
	check_cut_vorbis(2 * PAGE);
}

/* Silence that a few bytes stand for: refused by what it would become. */
static void check_bomb(void)
{
	static const int format[] = { SF_FORMAT_FLAC | SF_FORMAT_PCM_16, SF_FORMAT_OGG | SF_FORMAT_VORBIS };
	int frames = 8 * 48000;
	float *x = xcalloc((size_t)frames, sizeof *x);
	struct err err;

	for (int i = 0; i < 2; i++) {
		write_file(format[i], 48000, 1, x, frames);
		CHECK(made.n < 100000, "%d bytes are no bomb", (int)made.n);
		CHECK(try_decode(made.p, (size_t)made.n, &err) == E_LIMIT && strstr(err.msg, "5 seconds"), "%s",
		      err.msg);
	}
	free(x);
}

int main(void)
{
	check_kinds();
	check_lies();
	check_names();
	check_bomb();
	check_broken();
	return 0;
}
#endif
