/* mutate_gguf.c - changes the header of a GGUF file: mostly a number of its metadata or a dimension becomes another one, since
 * bytes that are changed anywhere seldom leave a file whose lengths agree.  For fuzzers alone; replays do not link it. */
#include <stdint.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

enum { STRING = 8, ARRAY = 9, N_PLACE = 8192 };
static const uint8_t bytes_of[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

struct reader {
	const uint8_t *p;
	size_t n, at;
};
static struct place {
	size_t at;
	int type;
} place[N_PLACE];
static int n_place;

static uint64_t get(struct reader *r, int bytes)
{
	uint64_t x = 0;

	if (r->n - r->at < (size_t)bytes) {
		r->at = r->n;
		return 0;
	}
	memcpy(&x, r->p + r->at, (size_t)bytes);
	r->at += (size_t)bytes;
	return x;
}

static void skip_string(struct reader *r)
{
	uint64_t n = get(r, 8);

	r->at = n < r->n - r->at ? r->at + (size_t)n : r->n;
}

static void note(size_t at, int type)
{
	if (n_place < N_PLACE)
		place[n_place++] = (struct place){ at, type };
}

static void one_value(struct reader *r, int type)
{
	if (type == STRING) {
		skip_string(r);
	} else if (type >= 0 && type < (int)sizeof bytes_of && bytes_of[type]) {
		if (r->n - r->at >= bytes_of[type])
			note(r->at, type);
		get(r, bytes_of[type]);
	} else {
		r->at = r->n;
	}
}

static void find_places(const uint8_t *data, size_t size)
{
	struct reader r = { data, size, 8 };
	uint64_t tensors = get(&r, 8), pairs = get(&r, 8);

	n_place = 0;
	for (; pairs && r.at < r.n; pairs--) {
		uint64_t n = 1;
		int type;

		skip_string(&r);
		type = (int)get(&r, 4);
		if (type == ARRAY) {
			type = (int)get(&r, 4);
			n = get(&r, 8);
		}
		for (; n && r.at < r.n; n--)
			one_value(&r, type);
	}
	for (; tensors && r.at < r.n; tensors--) {
		uint64_t dims;

		skip_string(&r);
		for (dims = get(&r, 4); dims && r.at < r.n; dims--)
			one_value(&r, 10);
		one_value(&r, 4);
		get(&r, 8); /* where its bytes are */
	}
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	static const int64_t whole[] = { 0,  1,  2,   3,   4,   5,       7,          8,  16,         31,
		                         32, 64, 100, 128, 256, 1 << 16, 0x7fffffff, -1, 0x80000000, INT64_MAX };
	static const float real[] = { 0, 1, -1, 0.5f, 1e-38f, 1e38f, -1e30f, 2, 10000, 1e9f, 1e-6f, 0.0f / 0.0f };
	unsigned r = seed * 2654435761u >> 7;
	struct place x;
	int64_t to;
	double d;

	find_places(data, size);
	if (r % 10 == 0 || !n_place)
		return LLVMFuzzerMutate(data, size, max);
	x = place[r / 10 % (unsigned)n_place];
	r = (r * 2246822519u + 374761393u) >> 5;
	to = whole[r % (sizeof whole / sizeof *whole)];
	if (x.type == 6) {
		memcpy(data + x.at, &real[r % (sizeof real / sizeof *real)], 4);
	} else if (x.type == 12) {
		d = (double)real[r % (sizeof real / sizeof *real)];
		memcpy(data + x.at, &d, 8);
	} else {
		memcpy(data + x.at, &to, bytes_of[x.type]);
	}
	return size;
}
