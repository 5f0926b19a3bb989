/* mel.h - samples to the logarithms of energies in mel bands: what ears with a conformer read.  Inside sound/.
 *
 * Frame i is samples 160 i - 160 ... 160 i + 159 under a periodic Hann window, zeros before the first; magnitudes of a
 * transform of 512, summed under triangles of 128 bands, plus a floor, of that the natural logarithm. */
#ifndef SOUND_MEL_H
#define SOUND_MEL_H

enum { MEL_HOP = 160, MEL_FRAME = 2 * MEL_HOP, MEL_FFT = 512, MEL_BINS = MEL_FFT / 2 + 1, MEL_BANDS = 128 };

struct mel {
	double window[MEL_FRAME];
	double cos[MEL_FFT / 2], sin[MEL_FFT / 2];
	/* Band b is weight[b] of bins [first[b], first[b] + n[b]). */
	int first[MEL_BANDS], n[MEL_BANDS];
	double weight[MEL_BANDS][MEL_BINS];
};

void mel_init(struct mel *m);
/* Frames of n samples; 0: too few. */
int mel_frames(int n);
void mel_frame(const struct mel *m, float out[MEL_BANDS], const float *samples, int n, int frame);

#endif
