/* kv.cl - rows of the cache of keys and values: where they lie, and what their numbers stand for (docs/kv-cache.md).  A row is
 * numbers of 32 or 16 bits (bf16), or codes of 8 or 4 in chunks of CHUNK, then the scales of its groups and their biases in
 * f16. */
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
/* Where the scales of a row begin, and where scale g's bias lies behind it. */
FN int kv_scales_at(GLOBAL const struct kv_shape *s, int dim)
{
	return kv_chunks(dim) * (CHUNK / 8) * s->bits;
}
FN int kv_bias_behind(GLOBAL const struct kv_shape *s, int dim)
{
	return dim / s->group * 2;
}
