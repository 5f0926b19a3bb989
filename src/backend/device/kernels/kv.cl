/* kv.cl - rows of the cache of keys and values: where they lie, and what their numbers stand for (docs/kv-cache.md).  A row is
 * numbers of 32 or 16 bits (bf16), or codes of 8 or 4 in chunks of CHUNK, then the scales of its groups and their biases in
 * f16.  A rotated row is codes of 2 to 4 bits, which name entries of a book, and one scale, a float. */
#define CHUNK 64

/* The row of position pos of a head. */
FN long kv_row_at(GLOBAL const int *page, int page_max, int page_rows, int page_bytes, GLOBAL const struct kv_shape *s, int item, int head,
              int pos)
{
	int of = page[(long)item * page_max + pos / page_rows], row = head * page_rows + pos % page_rows;

	return (long)of * page_bytes + s->at + (long)row * s->row_bytes;
}
FN int kv_chunks(int dim)
{
	return (dim + CHUNK - 1) / CHUNK;
}
/* Where the scales of a row begin. */
FN int kv_scales_at(GLOBAL const struct kv_shape *s, int dim)
{
	return kv_chunks(dim) * (CHUNK / 8) * s->bits;
}
/* Entry c of a book. */
FN float kv_entry(GLOBAL const struct kv_shape *s, int c)
{
	return (float)((int)((uint)s->book[c / 4] << (24 - c % 4 * 8)) >> 24);
}
/* What element i is multiplied with in a round of the rotation: 1 or -1. */
FN float kv_sign(GLOBAL const struct kv_turn *s, int round, int i)
{
	return s->negative[round][i / 16] >> i % 16 & 1 ? -1.0f : 1.0f;
}
/* x = H x for each of so many vectors of n numbers in local memory, from row to row `line` floats; H of 1 and -1, n a power of
 * two (quant/lanes/hadamard.h).  n 0: nothing.  Work-item t of `threads`. */
FN void hadamard_local(LOCAL float *x, int vectors, int line, int n, int t, int threads)
{
	for (int h = 1; h < n; h *= 2) {
		for (int i = t; i < vectors * (n / 2); i += threads) {
			int pair = i % (n / 2), low = pair / h * 2 * h + pair % h;
			LOCAL float *at = x + i / (n / 2) * line + low;
			float a = at[0], b = at[h];

			at[0] = add1(a, b);
			at[h] = sub1(a, b);
		}
		BARRIER();
	}
}
/* Multiplies the vectors with the signs of a round, and with a factor. */
FN void signs_local(LOCAL float *x, int vectors, int line, int n, GLOBAL const struct kv_turn *s, int round, float factor, int t,
                    int threads)
{
	for (int i = t; i < vectors * n; i += threads) {
		LOCAL float *at = x + i / n * line + i % n;

		at[0] = mul1(mul1(at[0], kv_sign(s, round, i % n)), factor);
	}
	BARRIER();
}
