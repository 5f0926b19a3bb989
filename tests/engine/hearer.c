/* hearer.c - see hearer.h. */
#include "hearer.h"

#include "base/digest.h"
#include "lives.h"

int heard_at(const struct hearer *h, uint64_t name)
{
	int i = 0;

	while (i < h->n && h->name[i] != name)
		i++;
	return i;
}

static bool hear_again(struct block_sink *sink)
{
	struct hearer *h = (struct hearer *)sink;
	bool again = h->again;

	h->again = false;
	return again;
}

static void hear_cleared(struct block_sink *sink)
{
	struct hearer *h = (struct hearer *)sink;

	h->n = 0;
	h->cleared++;
	h->open = true;
}

static void hear_removed(struct block_sink *sink, const uint64_t *name, int n)
{
	struct hearer *h = (struct hearer *)sink;

	for (int i = 0; i < n; i++) {
		int at = heard_at(h, name[i]);

		CHECK(at < h->n, "withdrawn and not told");
		h->name[at] = h->name[--h->n];
	}
	h->open = true;
}

uint64_t name_behind(uint64_t parent, const int32_t *tok)
{
	unsigned char bytes[8 + 4 * BLOCK];
	struct sha256 s;
	struct digest d;
	uint64_t name = 0;

	for (int i = 0; i < 8 + 4 * BLOCK; i++)
		bytes[i] = (unsigned char)(i < 8 ? parent >> 8 * i : (uint64_t)tok[(i - 8) / 4] >> 8 * (i % 4));
	sha256_init(&s);
	sha256_put(&s, bytes, sizeof(bytes));
	sha256_end(&s, &d);
	for (int i = 0; i < 8; i++)
		name = name << 8 | d.b[i];
	return name;
}

static void hear_stored(struct block_sink *sink, uint64_t parent, const uint64_t *name, int n, const int32_t *tok,
                        int size)
{
	struct hearer *h = (struct hearer *)sink;

	CHECK(size == BLOCK && n > 0, "blocks of %d", size);
	for (int i = 0; i < n; i++) {
		parent = name_behind(parent, tok + (size_t)i * BLOCK);
		CHECK(name[i] == parent, "not the name of its tokens");
		CHECK(heard_at(h, parent) == h->n && h->n < HEARD_MAX, "told twice");
		h->name[h->n++] = parent;
	}
	h->open = true;
}

static void hear_end(struct block_sink *sink)
{
	struct hearer *h = (struct hearer *)sink;

	CHECK(h->open, "an empty message");
	h->open = false;
}

void hearer_init(struct hearer *h)
{
	*h = (struct hearer){ { hear_again, hear_cleared, hear_removed, hear_stored, hear_end } };
}
