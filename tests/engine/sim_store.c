/* sim_store.c - see sim_store.h. */
#include "sim_store.h"

#include <stdlib.h>
#include <string.h>

#include "lives.h"
#include "quant/format.h"

enum { STATE_TOKENS = 1572, PAGE_ROWS = 64, SLOT = 0 };

/* ---- memory that is not there ---- */

static void *far_alloc(struct backend *be, size_t n)
{
	return malloc(1);
}
static void far_free(struct backend *be, void *p, size_t n)
{
	free(p);
}
static void far_move(struct backend *be, void *dst, const void *src, size_t n) {}
static int far_read(struct backend *be, void *near, const void *far, size_t n)
{
	return 0;
}
static void far_apply(struct backend *be, const struct state_view *v, int slot, int keep) {}

static const struct backend_ops nowhere = {
	.name = "nowhere",
	.alloc = far_alloc,
	.free = far_free,
	.write = far_move,
	.read = far_read,
	.copy = far_move,
	.tape_apply = far_apply,
};

/* ---- serving ---- */

void sim_open(struct sim *s, int states, bool kv)
{
	const struct kv_format *fmt = kv_format_find("bf16");
	struct state_shape shape = { .layers = 4,
		                     .heads_k = 1,
		                     .heads_v = 1,
		                     .dim_k = 128,
		                     .dim_v = 128,
		                     .conv_channels = 16,
		                     .conv_width = 4 };
	struct paged_opts po = { .group = { .layers = 1, .heads = 1 },
		                 .rows = kv_rows_of(fmt),
		                 .page_rows = PAGE_ROWS,
		                 .slots = 1,
		                 .ctx_max = TALK_CTX };
	struct state_opts so = { .slots = 1, .snap_bytes_max = SIZE_MAX / 2 };
	size_t state_bytes, per_token;

	memset(s, 0, sizeof(*s));
	s->states = states;
	s->be = (struct backend){ .ops = &nowhere, .order = "nowhere", .threads = 1 };
	po.group.dim_k = po.group.dim_v = 32;
	per_token = 2 * fmt->row_bytes(po.group.dim_k);
	/* As many heads as make a state of the right size. */
	shape.heads_v = shape.heads_k = (int)(per_token * STATE_TOKENS * (kv ? 1 : 1000) / (4 * 128 * 128 * 4) + 1);
	so.shape = shape;
	state_bytes = state_slot_bytes(&shape);
	po.bytes_max = (size_t)(kv ? 1 << 20 : 1 << 19) * (per_token * PAGE_ROWS);
	CHECK((caches_add(&s->caches, paged_open(&s->be, &po, NULL)), s->caches.v[0]), "pages");
	CHECK((caches_add(&s->caches, state_open(&s->be, &so, NULL)), s->caches.v[1]), "states");
	prefix_init(&s->prefix, &s->caches, states ? (size_t)states * state_bytes + state_bytes / 2 : SIZE_MAX / 2);
}

void sim_close(struct sim *s)
{
	prefix_fini(&s->prefix);
	caches_fini(&s->caches);
}

static void advance(struct sim *s, int *pos, int to)
{
	struct span sp = { .slot = SLOT, .pos = *pos, .n = to - *pos };

	if (to <= *pos)
		return;
	while (caches_reserve(&s->caches, &sp))
		CHECK(prefix_evict(&s->prefix, true), "no room");
	caches_begin(&s->caches, &sp, 1);
	caches_settle(&s->caches, &sp, sp.n);
	*pos = to;
}

static void keep(struct sim *s, const struct text *x, int pos, enum place kind)
{
	struct prefix_key key = { .kind = kind, .now = s->now };

	if (kind == PLACE_END || prefix_room(&s->prefix, &key, x->tok, pos, 0, 0))
		prefix_learn(&s->prefix, &key, SLOT, x->tok, pos);
}

static struct place_pitch pitch_of(const struct sim *s, int n)
{
	const struct prefix *p = &s->prefix;

	if (s->coarse)
		return (struct place_pitch){ .step = PLACE_COARSE, .near = PLACE_COARSE, .dense = 2 * PLACE_COARSE };
	if (!p->place_bytes)
		return place_pitch(&(struct place_cost){ 0 }, n);
	return place_pitch(&(struct place_cost){ .states = (double)p->bytes_max / (double)p->place_bytes,
	                                         .token = p->token_bytes / (double)p->place_bytes },
	                   n);
}

void sim_serve(struct sim *s, const struct text *x, int n_prompt)
{
	struct prefix_hit hit;
	struct place_plan plan;
	struct place_pitch pitch;
	int pos, junction;

	s->now++;
	prefix_find(&s->prefix, "", x->tok, n_prompt, &hit);
	if (hit.at)
		CHECK(!caches_restore(&s->caches, SLOT, hit.snaps, hit.at), "restore");
	prefix_use(&s->prefix, &hit, s->now);
	pos = hit.at;
	junction = hit.report.junction > hit.at ? hit.report.junction : 0;
	s->prompt += n_prompt;
	s->computed += n_prompt - pos;
	place_plan_init(&plan, n_prompt, x->mark, x->kind, x->n_mark, 0);
	pitch = pitch_of(s, n_prompt);
	for (;;) {
		enum place kind = PLACES;
		int next = place_next(&plan, &pitch, pos, pos, &kind);

		if (junction > pos && junction < next) {
			next = junction;
			kind = PLACE_JUNCTION;
		}
		advance(s, &pos, next);
		if (next == n_prompt)
			break;
		keep(s, x, pos, kind);
	}
	place_plan_fini(&plan);
	while (pitch.answers && x->n - 1 - pos > pitch.step) {
		advance(s, &pos, pos + pitch.step);
		keep(s, x, pos, PLACE_GRID);
	}
	advance(s, &pos, x->n - 1);
	keep(s, x, pos, PLACE_END);
	caches_close(&s->caches, SLOT);
	prefix_trim(&s->prefix);
}
