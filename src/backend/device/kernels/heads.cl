/* heads.cl - rows regrouped by head, so that each head is multiplied by a weight of its own (backend.h, by_head), and heads of
 * other sizes. */
#include "dialect.cl"

#define THREADS 256

/* Places, by head and then by row, of the first `cols` numbers of each head: to[heads * n][cols]; heads of a row lie `ld` floats
 * apart.  Also the units of a product over them, of at most `size` places of one head (places.cl). */
KERNEL(THREADS) by_head(MEM(float, to), MEM(int, unit), MEM(const float, in), int n, int heads, int cols, int ld, int size)
{
	USE(float, to);
	USE(int, unit);
	USE_CONST(float, in);
	int i = BID * THREADS + TID, place = i / cols, of_head = (n + size - 1) / size, first = i % of_head * size;

	if (place >= heads * n)
		return;
	to[i] = in[((long)(place % n) * heads + place / n) * ld + i % cols];
	if (i < heads * of_head) {
		unit[3 * i] = i / of_head;
		unit[3 * i + 1] = i / of_head * n + first;
		unit[3 * i + 2] = n - first < size ? n - first : size;
	}
}

/* Back to rows: each head of out is the last `rest` numbers of in's head, then the `cols` of its place. */
KERNEL(THREADS) by_row(MEM(float, out), MEM(const float, from), MEM(const float, in), int n, int heads, int cols, int ld, int rest,
                       int in_cols, int in_ld)
{
	USE(float, out);
	USE_CONST(float, from);
	USE_CONST(float, in);
	int i = BID * THREADS + TID, head = i / (rest + cols), c = i % (rest + cols);

	if (head < heads * n)
		out[(long)head * ld + c] = c < rest ? in[(long)head * in_ld + in_cols + c] :
		                                      from[((long)(head % heads) * n + head / heads) * cols + c - rest];
}

/* Heads of in_dim numbers cut to out_dim, or filled up with zeros. */
KERNEL(THREADS) resize(MEM(float, out), MEM(const float, in), int heads, int out_dim, int in_dim)
{
	USE(float, out);
	USE_CONST(float, in);
	int i = BID * THREADS + TID, head = i / out_dim, c = i % out_dim;

	if (head < heads)
		out[i] = c < in_dim ? in[(long)head * in_dim + c] : 0.0f;
}
