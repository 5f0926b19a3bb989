/* backend.c - what every backend shares: work memory of a pass, sizes of state. */
#include "backend/backend.h"

#include <assert.h>

float *pass_floats(struct pass *p, size_t n)
{
	size_t bytes = (n * sizeof(float) + 63) / 64 * 64;
	float *f = (float *)(p->work.p + p->work.used);

	assert(n <= SIZE_MAX / 8 && bytes <= p->work.cap - p->work.used);
	p->work.used += bytes;
	if (p->work.used > p->work.peak)
		p->work.peak = p->work.used;
	return f;
}

float *backend_near(struct backend *be, float *far, size_t n, float *scratch)
{
	if (be->ops->near)
		return far;
	return be->ops->read(be, scratch, far, n * sizeof *far) ? NULL : scratch;
}

int pass_begin(struct pass *p)
{
	int rc = p->be->failed.code;

	assert(!p->begun);
	p->begun = true;
	p->work.used = 0;
	return !rc && p->be->ops->begin ? p->be->ops->begin(p) : rc;
}

int pass_end(struct pass *p)
{
	int rc;

	assert(p->begun);
	p->begun = false;
	rc = p->be->ops->end ? p->be->ops->end(p) : 0;
	return rc ? rc : p->be->failed.code;
}

static size_t round16(size_t n)
{
	return (n + 15) / 16 * 16;
}

size_t state_floats(const struct state_shape *s)
{
	return (size_t)s->heads_v * (size_t)s->dim_k * round16((size_t)s->dim_v);
}

size_t state_tail_floats(const struct state_shape *s)
{
	return (size_t)(s->conv_width > 0 ? s->conv_width - 1 : 0) * (size_t)s->conv_channels;
}

static int decay_floats(const struct state_shape *s)
{
	switch (s->rule) {
	case RECUR_KDA:
	case RECUR_RWKV7: return s->dim_k;
	case RECUR_SCAN: return s->dim_v;
	default: return 1;
	}
}

struct state_tape state_tape(const struct state_shape *s)
{
	struct state_tape t = { .key = (size_t)s->conv_channels, .decay_n = decay_floats(s) };
	size_t heads = (size_t)s->heads_v, two = s->rule == RECUR_RWKV7 ? heads : 0;

	t.decay = t.key + (size_t)s->heads_k * (size_t)s->dim_k;
	t.update = t.decay + heads * (size_t)t.decay_n;
	t.key2 = t.update + heads * (size_t)s->dim_v;
	t.update2 = t.key2 + two * (size_t)s->dim_k;
	t.floats = round16(t.update2 + two * (size_t)s->dim_v);
	return t;
}

size_t kv_group_lay(struct kv_layer *layer, const struct kv_group *g, const struct kv_rows *rows, int page_rows)
{
	const int dim[2] = { [KV_KEYS] = g->dim_k, [KV_VALUES] = g->dim_v },
		  n_row = page_rows / (g->every ? g->every : 1);
	size_t at = 0;

	for (int i = 0; i < g->layers; i++) {
		struct kv_pair pair = kv_rows_at(rows, i);
		const struct kv_format *fmt[2] = { [KV_KEYS] = pair.k, [KV_VALUES] = g->latent ? pair.k : pair.v };

		for (enum kv_side side = KV_KEYS; side <= KV_VALUES; side++) {
			bool shared = g->latent && side == KV_VALUES;
			size_t row = shared ? layer[i].row_bytes[KV_KEYS] : fmt[side]->row_bytes(dim[side]);

			layer[i].fmt[side] = fmt[side];
			layer[i].row_bytes[side] = row;
			layer[i].at[side] = shared ? layer[i].at[KV_KEYS] : at;
			at += shared ? 0 : (size_t)g->heads * (size_t)n_row * row;
		}
	}
	return at;
}

size_t kv_layers_lay(struct kv_layer *layer, int layers, const struct kv_rows *rows, int heads, int dim, int page_rows)
{
	struct kv_group g = { .layers = layers, .heads = heads, .dim_k = dim, .dim_v = dim };

	return kv_group_lay(layer, &g, rows, page_rows);
}

size_t kv_group_head_bytes(const struct kv_group *g, struct kv_pair pair)
{
	size_t k = pair.k->row_bytes(g->dim_k), v = g->latent ? 0 : pair.v->row_bytes(g->dim_v);

	return k && (v || g->latent) ? k + v : 0;
}
