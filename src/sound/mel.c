/* mel.c - see mel.h. */
#include "sound/mel.h"

#include <math.h>
#include <string.h>

#include "sound/samples/sound_file.h"

#define FLOOR 1e-3

static double mel_of(double hz)
{
	return 2595 * log10(1 + hz / 700);
}

static double hz_of(double mel)
{
	return 700 * (pow(10, mel / 2595) - 1);
}

static void init_bands(struct mel *m)
{
	double edge[MEL_BANDS + 2], top = mel_of(SOUND_RATE / 2.0);

	for (int i = 0; i < MEL_BANDS + 2; i++)
		edge[i] = hz_of(top * i / (MEL_BANDS + 1));
	for (int b = 0; b < MEL_BANDS; b++)
		for (int k = 0; k < MEL_BINS; k++) {
			double f = (double)SOUND_RATE / MEL_FFT * k;
			double w = fmin((f - edge[b]) / (edge[b + 1] - edge[b]),
			                (edge[b + 2] - f) / (edge[b + 2] - edge[b + 1]));

			if (w <= 0)
				continue;
			if (!m->n[b])
				m->first[b] = k;
			m->weight[b][m->n[b]++] = w;
		}
}

void mel_init(struct mel *m)
{
	double turn = 2 * acos(-1.0);

	memset(m, 0, sizeof *m);
	for (int i = 0; i < MEL_FRAME; i++)
		m->window[i] = 0.5 - 0.5 * cos(turn * i / MEL_FRAME);
	for (int i = 0; i < MEL_FFT / 2; i++) {
		m->cos[i] = cos(turn * i / MEL_FFT);
		m->sin[i] = -sin(turn * i / MEL_FFT);
	}
	init_bands(m);
}

int mel_frames(int n)
{
	return n > 0 ? (n - 1) / MEL_HOP : 0;
}

/* The discrete Fourier transform of a sequence in bit-reversed order, in place. */
static void transform(const struct mel *m, double *re, double *im)
{
	for (int half = 1; half < MEL_FFT; half *= 2)
		for (int at = 0; at < MEL_FFT; at += 2 * half)
			for (int k = 0; k < half; k++) {
				double c = m->cos[k * (MEL_FFT / 2 / half)], s = m->sin[k * (MEL_FFT / 2 / half)];
				double *r = re + at + k, *i = im + at + k;
				double x = r[half] * c - i[half] * s, y = r[half] * s + i[half] * c;

				r[half] = r[0] - x;
				i[half] = i[0] - y;
				r[0] += x;
				i[0] += y;
			}
}

void mel_frame(const struct mel *m, float out[MEL_BANDS], const float *samples, int n, int frame)
{
	double re[MEL_FFT] = { 0 }, im[MEL_FFT] = { 0 }, size[MEL_BINS];
	int begin = MEL_HOP * (frame - 1);

	for (int i = 0; i < MEL_FRAME; i++) {
		int to = 0, at = begin + i;

		for (int bit = 1; bit < MEL_FFT; bit *= 2)
			to = 2 * to + !!(i & bit);
		re[to] = at >= 0 && at < n ? m->window[i] * (double)samples[at] : 0;
	}
	transform(m, re, im);
	for (int k = 0; k < MEL_BINS; k++)
		size[k] = sqrt(re[k] * re[k] + im[k] * im[k]);
	for (int b = 0; b < MEL_BANDS; b++) {
		double sum = FLOOR;

		for (int k = 0; k < m->n[b]; k++)
			sum += m->weight[b][k] * size[m->first[b] + k];
		out[b] = (float)log(sum);
	}
}
