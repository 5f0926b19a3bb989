/* test_law.c - the law of the row, with memcmp: each row's outputs and the final
 * states are the same alone or together, whole or in chunks, plain or drafted,
 * with 1, 2 or 3 threads, at every level (bf16 weights and attention over bf16 rows
 * aside, which have orders of their own where there are tiles), with pages of any size,
 * and with the backend's memory unreadable outside its operations. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "test_backend.h"

enum {
	SEQS = 3,
	LAYERS = 2,
	HEADS = 6,
	HEADS_KV = 2,
	DIM = 64,
	NF = 6,
	HK = 2,
	HV = 4,
	DK = 32,
	DV = 104,
	WIDTH = 4,
	CH = 2 * HK * DK + HV * DV,
	COLS = 96,
	WIDE = 45,
	EXPERTS = 5,
	TOP_K = 2,
	INNER = 32,
	SHARED = 64,
	TAPE = 11, /* more than twice what a kernel takes of it at once */
	Q = 2 * HEADS * DIM,
	KV = HEADS_KV * DIM,
	Z = HV * DV,
	/* what a row brings, and what it yields */
	IN = Q + 2 * KV + CH + Z + 2 * HV + COLS,
	OUT = HEADS * DIM + Z + 5 * COLS + 3 * WIDE,
};
static const int lengths[SEQS] = { 70, 1, 1090 }; /* the last crosses a segment of attention */

/* ---- the weights, one set for all worlds ---- */

static struct weight w_plain, w_four, w_eight, w_half, router, shared[4], gate[EXPERTS], up[EXPERTS], down[EXPERTS];
static struct weight half_gate[EXPERTS], half_up[EXPERTS], half_down[EXPERTS], half_narrow[EXPERTS];
static float *conv, *decay, *dt_bias, *gain_v, *gain_d, *gain_c, *freq, *bias, *bias_experts;

static float at(uint64_t seed, uint64_t i)
{
	return (float)(rng_uniform(seed, i, 7) * 2 - 1);
}

static float *floats(uint64_t seed, int n)
{
	float *f = xmalloc((size_t)n * sizeof *f);

	for (int i = 0; i < n; i++)
		f[i] = at(seed, (uint64_t)i);
	return f;
}

static uint8_t *codes(uint64_t seed, size_t n)
{
	uint8_t *p = xmalloc(n);

	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)rng_bits(seed, i, 3);
	return p;
}

static uint8_t *halves(uint64_t seed, size_t n, float scale)
{
	uint8_t *p = xmalloc(n * 2);

	for (size_t i = 0; i < n; i++) {
		uint16_t h = float_to_bf16(at(seed, i) * scale);

		memcpy(p + 2 * i, &h, 2);
	}
	return p;
}

static void affine(struct weight *w, uint64_t seed, int bits, int rows, int cols)
{
	size_t bytes = (size_t)rows * (size_t)cols * (size_t)bits / 8, groups = (size_t)rows * (size_t)cols / 32;
	struct err err;
	int rc = weight_coded(w, "w", "affine", bits, 32, rows, cols, codes(seed, bytes), bytes,
	                      halves(seed + 1, groups, 0.3f / (float)(1 << bits)), groups * 2,
	                      halves(seed + 2, groups, 0.2f), groups * 2, DT_BF16, &err);

	assert(!rc);
}

static void half(struct weight *w, uint64_t seed, int rows, int cols)
{
	size_t n = (size_t)rows * (size_t)cols;
	struct err err;
	int rc = weight_plain(w, "half", DT_BF16, rows, cols, halves(seed, n, 0.2f), n * 2, &err);

	assert(!rc);
}

static void weights_make(void)
{
	struct err err;

	weight_plain(&w_plain, "plain", DT_F32, WIDE, COLS, floats(1, WIDE * COLS), WIDE * COLS * 4, &err);
	half(&w_half, 2, COLS, COLS);
	affine(&w_four, 10, 4, WIDE, COLS);
	affine(&w_eight, 20, 8, COLS, COLS);
	affine(&router, 30, 8, EXPERTS, COLS);
	for (int e = 0; e < EXPERTS; e++) {
		affine(&gate[e], 100 + (uint64_t)e * 10, 4, INNER, COLS);
		affine(&up[e], 200 + (uint64_t)e * 10, 4, INNER, COLS);
		affine(&down[e], 300 + (uint64_t)e * 10, 6, COLS, INNER);
		half(&half_gate[e], 500 + (uint64_t)e, INNER, COLS);
		half(&half_up[e], 600 + (uint64_t)e, INNER, COLS);
		half(&half_down[e], 700 + (uint64_t)e, COLS, INNER);
		half(&half_narrow[e], 800 + (uint64_t)e, COLS, INNER / 2);
	}
	affine(&shared[0], 410, 4, SHARED, COLS);
	affine(&shared[1], 420, 4, SHARED, COLS);
	affine(&shared[2], 430, 5, COLS, SHARED);
	affine(&shared[3], 440, 8, 1, COLS);
	conv = floats(50, CH * WIDTH);
	decay = floats(51, HV);
	for (int i = 0; i < HV; i++)
		decay[i] = fabsf(decay[i]);
	dt_bias = floats(52, HV);
	gain_v = floats(53, DV);
	gain_d = floats(54, DIM);
	gain_c = floats(55, COLS);
	freq = floats(56, NF);
	bias = floats(57, WIDE);
	bias_experts = floats(58, EXPERTS * COLS);
}

/* ---- a world: a backend with caches for all sequences ---- */

struct world {
	struct backend *be;
	struct kv_layer layer[LAYERS];
	struct kv_view kv;
	struct state_view st;
	int32_t page[SEQS * 2048], page_of[SEQS * 2048], owed[SEQS];
	bool still[SEQS];
	size_t kv_bytes, s_bytes, tail_bytes, tape_bytes, work_bytes;
	uint8_t *work;
	float *result[SEQS]; /* [length][LAYERS][OUT] */
	enum arith arith;
	int most; /* rows of a step */
};

static void world_open(struct world *w, struct backend *be, enum arith arith, const char *fmt, int page_rows, int most)
{
	struct state_shape sh = { LAYERS, HK, HV, DK, DV, CH, WIDTH };
	const struct kv_rows rows = kv_rows_of(kv_format_find(fmt));
	int pages = 0;

	memset(w, 0, sizeof *w);
	w->be = be;
	w->arith = arith;
	w->most = most;
	w->kv = (struct kv_view){ .layer = w->layer,
		                  .layers = LAYERS,
		                  .page_rows = page_rows,
		                  .heads = HEADS_KV,
		                  .dim = DIM,
		                  .page_max = 2048,
		                  .page_bytes = kv_layers_lay(w->layer, LAYERS, &rows, HEADS_KV, DIM, page_rows) };
	for (int i = 0; i < SEQS; i++)
		for (int at_ = 0; at_ < lengths[i] + TAPE; at_ += page_rows)
			w->page_of[i * 2048 + at_ / page_rows] = pages++;
	w->kv_bytes = w->kv.page_bytes * (size_t)pages;
	w->kv.base = be->ops->alloc(be, w->kv_bytes);
	w->st = (struct state_view){
		.shape = sh, .tape_rows = TAPE, .slots = SEQS, .owed = w->owed, .still = w->still
	};
	w->s_bytes = SEQS * LAYERS * state_floats(&sh) * 4;
	w->tail_bytes = SEQS * LAYERS * state_tail_floats(&sh) * 4;
	w->tape_bytes = SEQS * TAPE * LAYERS * state_tape_floats(&sh) * 4;
	w->st.s = be->ops->alloc(be, w->s_bytes);
	w->st.tail = be->ops->alloc(be, w->tail_bytes);
	w->st.tape = be->ops->alloc(be, w->tape_bytes);
	w->work_bytes = (size_t)most * (IN + OUT + COLS) * 4 + 4096;
	w->work = be->ops->alloc(be, w->work_bytes);
	for (int i = 0; i < SEQS; i++)
		w->result[i] = xcalloc((size_t)lengths[i] * LAYERS * OUT, 4);
}

static void world_close(struct world *w)
{
	const struct backend_ops *op = w->be->ops;

	op->free(w->be, w->kv.base, w->kv_bytes);
	op->free(w->be, w->st.s, w->s_bytes);
	op->free(w->be, w->st.tail, w->tail_bytes);
	op->free(w->be, w->st.tape, w->tape_bytes);
	op->free(w->be, w->work, w->work_bytes);
	op->close(w->be);
	for (int i = 0; i < SEQS; i++)
		free(w->result[i]);
}

/* Runs all operations of one layer; in and out are near memory, row-major by kind. */
static void layer_run(struct world *w, struct pass *p, int layer, const float *in, float *out)
{
	const struct backend_ops *op = p->be->ops;
	size_t n = (size_t)p->n_row;
	float *x = pass_floats(p, n * IN + 256), *y = pass_floats(p, n * OUT + 256);
	float *normed = pass_floats(p, n * COLS);
	float *q = x, *k = q + n * Q, *v = k + n * KV, *qkv = v + n * KV, *z = qkv + n * CH, *b = z + n * Z;
	float *a = b + n * HV;
	float *c = a + n * HV, *o_attn = y, *o_delta = o_attn + n * HEADS * DIM, *o_norm = o_delta + n * Z;
	float *o_eight = o_norm + n * COLS, *o_half = o_eight + n * COLS, *o_moe = o_half + n * COLS;
	float *o_moe_half = o_moe + n * COLS, *o_wide = o_moe_half + n * COLS;
	struct attn at_ = { HEADS, HEADS_KV, DIM, 0.2f, gain_d, gain_d, 1e-6f, { freq, NF, 1 } };
	struct attn local = at_;
	struct recur d = { .conv = conv,
		           .a_log_exp = decay,
		           .dt_bias = dt_bias,
		           .norm = gain_v,
		           .eps = 1e-6f,
		           .sigmoid_gate = layer == 1 };
	struct moe m = {
		.experts = EXPERTS,
		.top_k = TOP_K,
		.inner = INNER,
		.shared_inner = SHARED,
		.normalise = true,
		.router = &router,
		.gate = gate,
		.up = up,
		.down = down,
		.shared_gate = &shared[0],
		.shared_up = &shared[1],
		.shared_down = &shared[2],
		.shared_router = &shared[3],
		.act = { .kind = layer ? ACT_GELU_TANH : ACT_SILU },
		.shared_act = { layer ? ACT_LIMITED : ACT_NONE, 0, 0.5f },
		.route = layer ? ROUTE_SIGMOID : ROUTE_SOFTMAX,
		.select_bias = layer ? bias : NULL,
		.scale = layer ? 2.5f : 0,
		.expert_scale = layer ? gain_d : NULL,
	};
	/* Gates and factors in turn, and experts of one product. */
	struct moe m_half = {
		.experts = EXPERTS,
		.top_k = TOP_K,
		.inner = layer ? INNER / 2 : INNER,
		.router = &router,
		.gate = layer ? half_gate : NULL,
		.up = layer ? NULL : half_up,
		.down = layer ? half_narrow : half_down,
		.act = { layer ? ACT_CLAMPED : ACT_RELU2, 1.7f, 0.5f },
		.route = ROUTE_TOP,
		.router_bias = bias,
		.gate_bias = bias_experts,
		.up_bias = bias_experts,
		.down_bias = bias_experts,
	};
	struct linear gated = { .w = &w_half, .bias = gain_c };
	struct linear job[6] = {
		{ &w_plain, o_wide, WIDE, bias, false },
		{ &w_four, o_wide + n * WIDE, WIDE, NULL, false, .act = { .kind = ACT_RELU2 } },
		{ &w_four, o_wide + 2 * n * WIDE, WIDE, bias, true },
		{ &w_eight, o_eight, COLS, NULL, false },
		{ &w_half, o_half, COLS, NULL, true },
		{ &w_eight, o_norm, COLS, NULL, false, &gated, .act = { .kind = ACT_SILU } },
	};

	local.window = 77;
	local.sinks = gain_c;
	local.v_norm = true;
	local.rope.adjacent = true;
	local.q_bend = 0.1f;
	local.q_bend_every = 32;
	at_.rope.apart = DIM / 2;
	p->be->ops->write(p->be, x, in, n * IN * 4);
	memset(out, 0, n * OUT * 4);
	for (size_t i = 0; i < n * COLS; i++)
		out[(size_t)(o_half - y) + i] = in[(size_t)(c - x) + i];
	op->write(p->be, y, out, n * OUT * 4);
	op->norm(p, normed, c, p->n_row, COLS, gain_c, 1e-6f);
	op->linear(p, job, 6, normed, p->n_row, COLS);
	op->kv_append(p, layer ? &local : &at_, q, Q, 2 * DIM, k, layer ? k : v, &w->kv, layer);
	op->attend(p, o_attn, layer ? &local : &at_, q, q + DIM, Q, 2 * DIM, &w->kv, layer);
	op->recur(p, o_delta, &d, &(struct recur_in){ qkv, z, b, a }, &w->st, layer);
	op->moe(p, o_moe, true, &m, normed, NULL, p->n_row, COLS);
	op->moe(p, o_moe_half, false, &m_half, normed, c, p->n_row, COLS);
	op->map(p, o_moe_half, p->n_row, COLS, 0.7f, layer ? 3 : 0);
	op->mul(p, o_moe_half, normed, COLS, 1, p->n_row, COLS);
	op->add(p, o_moe_half, o_moe, p->n_row, COLS, 0.22f);
	assert(!op->read(p->be, out, y, n * OUT * 4));
}

static const int in_size[] = { Q, KV, KV, CH, Z, HV, HV, COLS };
static const int out_size[] = { HEADS * DIM, Z, COLS, COLS, COLS, COLS, COLS, WIDE, WIDE, WIDE };
enum {
	OF_ATTEND = 0,
	OF_GATED_HALF = 2,
	OF_HALF = 4,
	OF_MOE_HALF = 6
}; /* places in out_size of attention, and of what bf16 is in */

/* Makes S and the tails what they should be where the sequence stands. */
static void pay(struct world *w, int slot)
{
	if (w->owed[slot])
		w->be->ops->tape_apply(w->be, &w->st, slot, w->owed[slot]);
	w->owed[slot] = 0;
}

/* One step over some spans; of span i the rows before keep[i] are the true ones,
 * the others get inputs that never come again and leave no result. */
static void step(struct world *w, const struct span *span, const int *keep, int n_span)
{
	enum { MOST = 2048 };
	static int32_t pos[MOST], item[MOST], row[SEQS];
	struct pass p = { .be = w->be,
		          .arith = w->arith,
		          .n_item = n_span,
		          .pos = pos,
		          .item = item,
		          .span = span,
		          .row = row,
		          .kv = { &w->kv },
		          .state = &w->st,
		          .work = { w->work, w->work_bytes, 0, 0 } };
	float *in, *out;

	for (int i = 0; i < n_span; i++) {
		row[i] = p.n_row;
		/* S is written when it must be, and now and then when it need not. */
		w->still[span[i].slot] = w->owed[span[i].slot] + span[i].n <= TAPE &&
		                         rng_bits(3, (uint64_t)span[i].pos, (uint64_t)i) % 8;
		memcpy(w->page + i * 2048, w->page_of + span[i].slot * 2048, 2048 * sizeof *w->page);
		for (int j = 0; j < span[i].n; j++, p.n_row++) {
			pos[p.n_row] = span[i].pos + j;
			item[p.n_row] = i;
		}
	}
	assert(p.n_row <= w->most && p.n_row <= MOST);
	w->kv.page = w->page;
	in = xmalloc((size_t)p.n_row * IN * 4);
	out = xmalloc((size_t)p.n_row * OUT * 4);
	for (int layer = 0; layer < LAYERS; layer++) {
		float *to = in, *from = out;

		for (size_t s = 0; s < sizeof in_size / sizeof *in_size; s++)
			for (int r = 0; r < p.n_row; r++, to += in_size[s])
				for (int i = 0; i < in_size[s]; i++) {
					bool wrong = pos[r] - span[item[r]].pos >= keep[item[r]];
					uint64_t seed = (uint64_t)(span[item[r]].slot + 10 * layer) * 100 + s +
					                (wrong ? 7777 : 0);

					to[i] = 2 * at(seed + 1000, (uint64_t)pos[r] * 4096 + (uint64_t)i);
				}
		assert(!pass_begin(&p));
		layer_run(w, &p, layer, in, out);
		assert(!pass_end(&p));
		for (size_t s = 0, off = 0; s < sizeof out_size / sizeof *out_size; off += (size_t)out_size[s++])
			for (int r = 0; r < p.n_row; r++, from += out_size[s])
				if (pos[r] - span[item[r]].pos < keep[item[r]])
					memcpy(w->result[span[item[r]].slot] +
					               ((size_t)pos[r] * LAYERS + (size_t)layer) * OUT + off,
					       from, (size_t)out_size[s] * 4);
	}
	free(in);
	free(out);
	for (int i = 0; i < n_span; i++) {
		int slot = span[i].slot;

		assert(keep[i] >= span[i].n - span[i].n_draft && keep[i] <= span[i].n);
		w->owed[slot] = state_taped_at(&w->st, &span[i]) + keep[i] - state_taped(&w->st, &span[i]);
		if (rng_bits(4, (uint64_t)span[i].pos, (uint64_t)i) % 4 == 0)
			pay(w, slot);
	}
}

/* Every sequence alone and whole. */
static void run_plain(struct world *w)
{
	for (int i = 0; i < SEQS; i++) {
		struct span s = { i, 0, lengths[i], 0 };

		step(w, &s, &lengths[i], 1);
	}
}

/* All sequences together in random cuts, with drafts. */
static void run_cut(struct world *w, uint64_t seed, int longest, bool draft)
{
	int at_[SEQS] = { 0 };
	uint64_t c = 0;

	for (;;) {
		struct span span[SEQS];
		int keep[SEQS], n = 0;

		for (int i = 0; i < SEQS; i++) {
			int left = lengths[i] - at_[i], len, most = longest;

			if (!left || rng_bits(seed, c++, 0) % 4 == 0)
				continue;
			/* the long one would take for ever in small steps */
			if (lengths[i] > 1000 && at_[i] < lengths[i] - 40)
				most = 400;
			len = 1 + (int)(rng_bits(seed, c++, 0) % (uint64_t)most);
			len = len < left ? len : left;
			span[n] = (struct span){ i, at_[i], len, 0 };
			keep[n] = len;
			if (draft) {
				int d = (int)(rng_bits(seed, c++, 0) % (TAPE + 1)), sure;

				d = d < len ? d : len - 1;
				span[n].n_draft = d;
				sure = len - d;
				keep[n] = sure + (int)(rng_bits(seed, c++, 0) % (uint64_t)(d + 1));
			}
			at_[i] += keep[n++];
		}
		if (n)
			step(w, span, keep, n);
		if (at_[0] == lengths[0] && at_[1] == lengths[1] && at_[2] == lengths[2])
			return;
	}
}

static int failures;

/* Over bf16 products and attention have two orders each (format.h): with the dot product of bf16
 * or with tiles, and at all other levels. */
static bool one_order(const struct world *a, const struct world *b, size_t output)
{
	bool rows = output == OF_ATTEND && a->layer[0].fmt[KV_KEYS] == kv_format_find("bf16");
	bool half = output == OF_GATED_HALF || output == OF_HALF || output == OF_MOE_HALF;

	return a->arith != ARITH_FAST || (!rows && !half) || !strcmp(a->be->arithmetic, b->be->arithmetic);
}

static void compare(struct world *a, struct world *b, const char *what)
{
	size_t n = a->s_bytes + a->tail_bytes;
	uint8_t *sa = xmalloc(n), *sb = xmalloc(n);

	for (int i = 0; i < SEQS; i++)
		for (size_t r = 0; r < (size_t)lengths[i] * LAYERS; r++)
			for (size_t s = 0, off = 0; s < sizeof out_size / sizeof *out_size;
			     off += (size_t)out_size[s++])
				if (one_order(a, b, s) &&
				    memcmp(a->result[i] + r * OUT + off, b->result[i] + r * OUT + off,
				           (size_t)out_size[s] * 4)) {
					printf("FAIL %s: sequence %d position %zu layer %zu output %zu differs\n", what,
					       i, r / LAYERS, r % LAYERS, s);
					failures++;
					goto state;
				}
state:
	for (int i = 0; i < SEQS; i++) {
		pay(a, i);
		pay(b, i);
	}
	assert(!a->be->ops->read(a->be, sa, a->st.s, a->s_bytes) &&
	       !a->be->ops->read(a->be, sa + a->s_bytes, a->st.tail, a->tail_bytes) &&
	       !b->be->ops->read(b->be, sb, b->st.s, b->s_bytes) &&
	       !b->be->ops->read(b->be, sb + a->s_bytes, b->st.tail, b->tail_bytes));
	if (memcmp(sa, sb, n)) {
		printf("FAIL %s: recurrent states differ\n", what);
		failures++;
	}
	free(sa);
	free(sb);
}

static struct world truth, other;

static void try(const char *name, int threads, enum cpu_level level, enum arith arith, const char *fmt, int page_rows,
                int longest, bool draft, const char *over, uint64_t seed)
{
	char what[200];

	snprintf(what, sizeof what, "%s (%d threads, %s, arith %d, kv %s, pages of %d, steps to %d, seed %llu)", name,
	         threads, cpu_level_name(level), arith, fmt, page_rows, longest, (unsigned long long)seed);
	world_open(&other, test_backend_named(over, threads, level), arith, fmt, page_rows, 1200);
	if (longest)
		run_cut(&other, seed, longest, draft);
	else
		run_plain(&other);
	compare(&truth, &other, what);
	world_close(&other);
}

/* Every format of coded rows: cuts, drafts, pages and threads once, and each level. */
static void rows_of_codes(enum cpu_level top, uint64_t seed, bool quick)
{
	for (int i = 0; kv_formats[i]; i++) {
		const char *fmt = kv_formats[i]->name;

		if ((quick && i % 3) || !kv_formats[i]->row_bytes(DIM) || !strcmp(fmt, "f32") || !strcmp(fmt, "bf16"))
			continue;
		world_open(&truth, backend_cpu_open(1, top), ARITH_FAST, fmt, 64, 1200);
		run_plain(&truth);
		try("drafts", 3, top, ARITH_FAST, fmt, 5, 30, true, "far", seed + (uint64_t)i);
		if (!quick) { /* a level for each format, in turn */
			enum cpu_level l = CPU_SCALAR;

			for (int k = 0; k < i; k++)
				l = cpu_level_next(l) < CPU_LEVELS ? cpu_level_next(l) : CPU_SCALAR;
			try("levels", 2, l, ARITH_FAST, fmt, 48, 400, false, "cpu", seed + (uint64_t)i);
		}
		world_close(&truth);
	}
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	enum cpu_level top = cpu_detect();
	bool quick = getenv("WEFT_TEST_QUICK") != NULL; /* each kind of change once, no level below the best */

	weights_make();
	rows_of_codes(top, seed, quick);
	for (enum arith arith = ARITH_F32; arith <= ARITH_FAST; arith++) {
		const char *fmt = arith == ARITH_F32 ? "f32" : "bf16";

		world_open(&truth, backend_cpu_open(1, top), arith, fmt, 64, 1200);
		run_plain(&truth);
		try("cuts", 3, top, arith, fmt, 1, 30, false, "cpu", seed + 1);
		try("far", 2, top, arith, fmt, 64, 25, true, "far", seed + 4);
		try("split", 2, top, arith, fmt, 64, 25, true, "split", seed + 4);
		if (!quick) {
			try("threads", 2, top, arith, fmt, 64, 0, false, "cpu", seed);
			try("threads", 3, top, arith, fmt, 64, 0, false, "cpu", seed);
			try("pages of one", 2, top, arith, fmt, 1, 0, false, "cpu", seed);
			try("cuts", 1, top, arith, fmt, 48, 3, false, "cpu", seed);
			try("drafts", 2, top, arith, fmt, 16, 6, true, "cpu", seed + 2);
			try("drafts", 1, top, arith, fmt, 64, 20, true, "cpu", seed + 3);
			/* Where tiles give bf16 the same bits: rows of any number by the dot product as well. */
			if (top == CPU_AMX && arith == ARITH_FAST)
				try("cuts", 2, CPU_AVX512BF16, arith, fmt, 64, 25, true, "cpu", seed + 5);
			for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l))
				try("levels", 2, l, arith, fmt, 64, 0, false, "cpu", seed);
		}
		world_close(&truth);
	}
	if (failures)
		printf("%d failures; seed %llu\n", failures, (unsigned long long)seed);
	return failures != 0;
}
