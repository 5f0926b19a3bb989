/* spill_keys.c - see spill.h: the names of pieces, and their order of use. */
#include "engine/prefix/spill_core.h"

#include <assert.h>
#include <string.h>
#include <time.h>

/* ---- keys ---- */

static void key_root(const struct digest *model, const void *salt, size_t n, struct digest *out)
{
	static const char what[] = "weft prefix";
	struct sha256 h;

	sha256_init(&h);
	sha256_field(&h, what, sizeof(what));
	sha256_put(&h, model->b, sizeof(model->b));
	sha256_field(&h, salt, n);
	sha256_end(&h, out);
}

void spill_keys(const struct spill *s, const void *salt, size_t n_salt, const int32_t *tok, int n, struct digest *key)
{
	spill_keys_more(s, salt, n_salt, tok, n, NULL, key);
}

void spill_keys_more(const struct spill *s, const void *salt, size_t n_salt, const int32_t *tok, int n,
                     const struct digest *more, struct digest *key)
{
	static const struct digest none;
	int rows = s->o.page_rows;

	key_root(&s->o.model, salt, n_salt, key);
	for (int i = 0; i < n / rows; i++) {
		struct sha256 h;

		sha256_init(&h);
		sha256_put(&h, key[i].b, sizeof(key[i].b));
		sha256_put(&h, tok + (size_t)i * (size_t)rows, (size_t)rows * sizeof(*tok));
		if (more && memcmp(&more[i], &none, sizeof(none)))
			sha256_put(&h, more[i].b, sizeof(more[i].b));
		sha256_end(&h, &key[i + 1]);
	}
}

uint64_t spill_tail(const struct spill *s, const int32_t *tok, int pos)
{
	int n = pos % s->o.page_rows;

	return check64(tok + pos - n, (size_t)n * sizeof(*tok));
}

void spill_head_fill(const struct spill *s, const struct spill_piece *p, struct spill_head *h)
{
	int page = p->pos / s->o.page_rows;

	assert(p->pos > 0 && (p->kind == SPILL_SNAP || p->pos % s->o.page_rows == 0));
	*h = (struct spill_head){ .kind = p->kind, .pos = (uint32_t)p->pos, .model = s->o.model, .key = p->key[page] };
	if (p->kind == SPILL_PAGE) {
		h->n_tok = (uint32_t)s->o.page_rows;
		h->prev = p->key[page - 1];
	} else {
		h->n_tok = (uint32_t)p->pos;
	}
}

struct spill_entry *spill_entry_of(const struct spill *s, const struct spill_piece *p)
{
	const struct digest *key = &p->key[p->pos / s->o.page_rows];

	if (p->kind == SPILL_PAGE)
		return spill_index_find(&s->index, SPILL_PAGE, key, 0, 0);
	return spill_index_find(&s->index, SPILL_SNAP, key, (uint32_t)p->pos, spill_tail(s, p->tok, p->pos));
}

/* ---- order of use ---- */

int64_t spill_tick(struct spill *s)
{
	struct timespec ts;
	int64_t now;

	clock_gettime(CLOCK_REALTIME, &ts);
	now = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
	return s->clock = now > s->clock ? now : s->clock + 1;
}

/* A prefix is given up from its end: the snapshot, then its pages, the deepest
 * first. */
void spill_used(struct spill *s, const struct digest *key, const int32_t *tok, int pos)
{
	struct spill_piece p = { SPILL_SNAP, pos, tok, key };
	struct spill_entry *e = spill_entry_of(s, &p);

	if (e)
		spill_index_use(&s->index, e, spill_tick(s));
	for (int i = pos / s->o.page_rows; i > 0; i--) {
		e = spill_index_find(&s->index, SPILL_PAGE, &key[i], 0, 0);
		if (e)
			spill_index_use(&s->index, e, spill_tick(s));
	}
	if (!s->read_only)
		pthread_cond_signal(&s->work);
}

void spill_use(struct spill *s, const struct digest *key, const int32_t *tok, int pos)
{
	pthread_mutex_lock(&s->lock);
	spill_used(s, key, tok, pos);
	pthread_mutex_unlock(&s->lock);
}
