/* The law of the row, with memcmp: the logits of a token are a function of the
 * model and of the tokens before it, and of nothing else.
 *
 * Serving arithmetic, each instruction level of this machine.  One prefill on one
 * thread is the reference; then the same tokens in other chunks, beside other
 * sequences, resumed from a snapshot at every position, drafted and partly taken
 * back, captured on the way through a step, on more threads.  Not one bit may differ.
 *
 *     law_test FOLDER...      model folders
 *     law_test --kv FOLDER... with keys and values in few bits, by several policies
 *     law_test --kv --families     those of other kinds of layers, from ../shared/golden
 *     law_test --adapters FOLDER...  beside adapters: with one, and without
 *     law_test --families     one 4-bit and one plain folder of every family, from ../shared/golden */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "driver.h"
#include "lora.h"

/* AFTER: rows computed after a resumption; one in thirty goes on to the end.  A
 * state or a page that is wrong shows in the first row that reads it. */
enum { MOST = 300, OTHERS = 3, TAPE = 7, STEP = 320, AFTER = 2, LAYERS = 64 };

/* Rows of the levels below the best: past one page of keys and one block of the recurrence, or two. */
enum { FEW = 70, SOME = 140 };

struct policy {
	const char *name;
	struct kv_pair layer[2]; /* of even attention layers, and of odd ones */
};

struct run {
	const char *folder;
	const struct policy *kv;              /* NULL: the plain cache */
	enum { ALONE, ADAPTED, BESIDE } lora; /* no adapters; the sequence has one; others have */
	struct adapter *adapter[2];
	struct adapter_mix mix[3]; /* one, the other, both */
	struct driver d;
	const char *arithmetic; /* of the backend that is tested */
	int n;                  /* rows: 300, fewer when quick */
	bool full;              /* as many at each level but the lowest, which takes twenty times as long for a row */
	int32_t tok[MOST], other[OTHERS][MOST];
	float *want, *got;
	size_t row;               /* bytes of a row of logits */
	struct rows_opts *tables; /* left on disk so; NULL: in memory */
	bool has_tables;          /* and the backend can leave them on disk */
	bool mixtures;            /* the model has some */
	int bad;
};

static void tokens(int32_t *tok, int n, int vocab, uint64_t seed)
{
	for (int i = 0; i < n; i++)
		tok[i] = (int32_t)(rng_bits(seed, (uint64_t)i, 0) % (uint64_t)vocab);
}

/* Rows [from, to) of got against want. */
static void same(struct run *r, int from, int to, const char *what)
{
	for (int i = from; i < to; i++) {
		if (!memcmp((char *)r->got + (size_t)i * r->row, (char *)r->want + (size_t)i * r->row, r->row))
			continue;
		printf("FAIL %s, %s, %s, %d threads: %s: row %d differs\n", r->folder, r->kv ? r->kv->name : "plain",
		       r->d.be->level, r->d.be->threads, what, i);
		r->bad++;
		return;
	}
}

static float *at(struct run *r, int row)
{
	return r->got + (size_t)row * (size_t)r->d.vocab;
}

static void begin(struct run *r)
{
	memset(r->got, 0xff, (size_t)r->n * r->row);
}

static void end(struct run *r)
{
	for (int s = 0; s <= OTHERS; s++)
		caches_close(&r->d.m->caches, s);
}

/* ---- the ways ---- */

static void chunked(struct run *r, size_t first)
{
	static const int size[][4] = {
		{ 1, 1, 1, 1 }, { 7, 7, 7, 7 }, { 64, 64, 64, 64 }, { 1, 7, 64, 5 }, { 63, 65, 2, 129 }
	};
	char what[64];

	for (size_t i = first; i < sizeof size / sizeof *size; i++) {
		snprintf(what, sizeof what, "chunks %d,%d,%d,%d", size[i][0], size[i][1], size[i][2], size[i][3]);
		begin(r);
		driver_feed(&r->d, 0, 0, r->tok, r->n, size[i], 4, r->got);
		same(r, 0, r->n, what);
		end(r);
	}
}

/* Others with their own tokens share each step; one starts late, one leaves early,
 * and the order of the sequences in the step changes. */
static void alongside(struct run *r)
{
	static const int size[] = { 1, 7, 64, 2 };
	int at_other[OTHERS] = { 0 }, step = 0;

	begin(r);
	for (int i = 0; i < r->n; step++) {
		struct item it[1 + OTHERS];
		int n = 0, take = size[step % 4] < r->n - i ? size[step % 4] : r->n - i, mine = step % (OTHERS + 1);

		for (int s = 0; s <= OTHERS; s++) {
			int o = s < mine ? s : s - 1, m = 1 + (step * 5 + o * 3) % 17;

			if (s == mine) {
				it[n++] = (struct item){ 0, i, take, 0, r->tok + i, at(r, i), take };
				continue;
			}
			if ((o == 1 && step < 3) || (o == 2 && step == 8)) {
				if (step == 8) {
					caches_close(&r->d.m->caches, 1 + o);
					at_other[o] = 0;
				}
				continue;
			}
			if (m > r->n - at_other[o])
				m = r->n - at_other[o];
			if (m <= 0)
				continue;
			it[n++] = (struct item){ 1 + o, at_other[o], m, 0, r->other[o] + at_other[o], NULL, m };
			at_other[o] += m;
		}
		driver_step(&r->d, it, n);
		i += take;
	}
	same(r, 0, r->n, "alongside others");
	end(r);
}

/* Compute to K, capture, restore into another slot, go on there. */
static void resumed(struct run *r, int stride)
{
	static const int ones[] = { 1 };
	const struct adapter_mix *other = r->d.mix[1];
	struct snaps s;
	char what[64];

	r->d.mix[1] = r->d.mix[0];
	for (int k = 1; k < r->n; k += stride) {
		static const int back[] = { 64 };
		int to = k % 30 == 1 || k + AFTER > r->n ? r->n : k + AFTER;

		begin(r);
		if (k % 30 == 1) { /* the first part anew, in chunks that end at K */
			caches_close(&r->d.m->caches, 0);
			driver_feed(&r->d, 0, 0, r->tok, k, back, 1, NULL);
		} else { /* the slot stands at K - stride */
			driver_feed(&r->d, 0, k - stride, r->tok + k - stride, stride, ones, 1, NULL);
		}
		assert(caches_capture(&r->d.m->caches, 0, k, &s) == 0);
		assert(snaps_reach(&s, k) == k);
		assert(caches_restore(&r->d.m->caches, 1, &s, k) == 0);
		driver_feed(&r->d, 1, k, r->tok + k, to - k, back, 1, at(r, k));
		snprintf(what, sizeof what, "resumed at %d", k);
		same(r, k, to, what);
		caches_close(&r->d.m->caches, 1);
		snaps_drop(&s);
	}
	r->d.mix[1] = other;
	end(r);
}

/* Steps of one sure row and some drafts, of which the first few are right. */
static void drafted(struct run *r)
{
	begin(r);
	for (int i = 0, step = 0; i < r->n; step++) {
		int32_t tok[1 + TAPE];
		struct item it[2];
		int sure = 1 + (int)(rng_bits(4, (uint64_t)step, 0) % 3),
		    draft = (int)(rng_bits(1, (uint64_t)step, 0) % (TAPE + 1));
		int right;
		float *rows;

		sure = sure > r->n - i ? r->n - i : sure;
		draft = draft > r->n - i - sure ? r->n - i - sure : draft;
		draft = sure + draft > TAPE + 1 ? TAPE + 1 - sure : draft;
		right = draft ? (int)(rng_bits(2, (uint64_t)step, 0) % (uint64_t)(draft + 1)) : 0;
		for (int k = 0; k < sure + draft; k++)
			tok[k] = k < sure + right ? r->tok[i + k] : (r->tok[i + k] + 1 + k) % r->d.vocab;
		rows = xmalloc((size_t)(sure + draft) * r->row);
		it[0] = (struct item){ 0, i, sure + draft, draft, tok, rows, sure + right };
		/* somebody else is drafting too, and always wrong */
		it[1] = (struct item){ 1, step, 3, 2, r->other[0], NULL, 1 };
		driver_step(&r->d, it, step + 3 <= r->n ? 2 : 1);
		memcpy(at(r, i), rows, (size_t)(sure + right) * r->row);
		free(rows);
		i += sure + right;
	}
	same(r, 0, r->n, "drafted");
	end(r);
}

struct bytes {
	struct sink sink;
	struct buf buf;
};

static int bytes_put(struct sink *to, const void *p, size_t n)
{
	buf_put(&((struct bytes *)to)->buf, p, n);
	return 0;
}

/* What a sequence that stops at pos holds there, against what was captured on the way. */
static void same_state(struct run *r, const struct driver_seen *seen, const int32_t *tok, const char *what)
{
	static const int back[] = { 64 };
	struct bytes a = { .sink.put = bytes_put }, b = { .sink.put = bytes_put };
	struct snaps stopped;

	buf_init(&a.buf);
	buf_init(&b.buf);
	caches_close(&r->d.m->caches, OTHERS);
	r->d.mix[OTHERS] = r->d.mix[tok == r->tok ? 0 : 1];
	driver_feed(&r->d, OTHERS, 0, tok, seen->pos, back, 1, NULL);
	assert(caches_capture(&r->d.m->caches, OTHERS, seen->pos, &stopped) == 0);
	assert(!snaps_write(&stopped, &a.sink) && !snaps_write(&seen->snaps, &b.sink));
	if (a.buf.n != b.buf.n || memcmp(a.buf.p, b.buf.p, a.buf.n)) {
		printf("FAIL %s, %s, %s, %d threads: captured at %d, %s: not what is there when it stops\n", r->folder,
		       r->kv ? r->kv->name : "plain", r->d.be->level, r->d.be->threads, seen->pos, what);
		r->bad++;
	}
	snaps_drop(&stopped);
	buf_fini(&a.buf);
	buf_fini(&b.buf);
}

/* States captured inside a step: at its first rows, one after the other and at its last
 * sure one; of two sequences, of which one begins in the middle and has drafts at the end. */
static void inside(struct run *r)
{
	enum { BEGUN = 30, SEEN = 10 };
	int n = r->n < STEP / 2 ? r->n : STEP / 2, last = n - TAPE;
	struct driver_seen seen[SEEN] = {
		{ .item = 1, .pos = last - 1 },  { .item = 0, .pos = 1 },         { .item = 0, .pos = 2 },
		{ .item = 0, .pos = n / 2 },     { .item = 0, .pos = n / 2 + 1 }, { .item = 0, .pos = n - 1 },
		{ .item = 1, .pos = BEGUN + 1 }, { .item = 1, .pos = BEGUN + 2 }, { .item = 1, .pos = BEGUN + 5 },
		{ .item = 0, .pos = 64 },
	};
	struct item it[2] = { { 0, 0, n, 0, r->tok, at(r, 0), n },
		              { 1, BEGUN, n - BEGUN, TAPE, r->other[0] + BEGUN, NULL, n - BEGUN - 2 } };

	driver_feed(&r->d, 1, 0, r->other[0], BEGUN, NULL, 0, NULL);
	begin(r);
	r->d.seen = seen;
	r->d.n_seen = SEEN;
	driver_step(&r->d, it, 2);
	same(r, 0, n, "captured inside");
	for (int i = 0; i < SEEN; i++) {
		same_state(r, &seen[i], seen[i].item ? r->other[0] : r->tok, seen[i].item ? "beside" : "inside a step");
		snaps_drop(&seen[i].snaps);
	}
	end(r);
}

/* Steps whose sure rows end beside a multiple of 64 (the recurrence's blocks, the keys' pages),
 * at 0 and after three others, with drafts behind them, copies at the blocks' edges, and one
 * more step after what was kept. */
static void edges(struct run *r)
{
	static const int sure[] = { 63, 64, 65, 127, 128, 129 }, draft[] = { TAPE, 1, 2 };
	enum { FIRST = 3, MORE = 2 };

	for (size_t c = 0; c < 2 * sizeof sure / sizeof *sure; c++) {
		int pos = c % 2 ? FIRST : 0, n = sure[c / 2], d = draft[c % 3], right = d / 2,
		    to = pos + n + right + MORE, k = 0;
		const int edge[] = { 1, 63, 64, 65, n - 1 };
		struct driver_seen seen[sizeof edge / sizeof *edge];
		int32_t tok[STEP];
		float *rows;
		struct item it;

		if (to > r->n)
			continue;
		for (size_t i = 0; i < sizeof edge / sizeof *edge; i++)
			if (edge[i] < n && edge[i] > (k ? seen[k - 1].pos - pos : 0))
				seen[k++] = (struct driver_seen){ .item = 0, .pos = pos + edge[i] };
		for (int i = 0; i < n + d; i++)
			tok[i] = i < n + right ? r->tok[pos + i] : (r->tok[pos + i] + 1) % r->d.vocab;
		rows = xmalloc((size_t)(n + d) * r->row);
		begin(r);
		driver_feed(&r->d, 0, 0, r->tok, pos, NULL, 0, r->got);
		it = (struct item){ 0, pos, n + d, d, tok, rows, n + right };
		r->d.seen = seen;
		r->d.n_seen = k;
		driver_step(&r->d, &it, 1);
		memcpy(at(r, pos), rows, (size_t)(n + right) * r->row);
		free(rows);
		driver_feed(&r->d, 0, pos + n + right, r->tok + pos + n + right, MORE, NULL, 0, at(r, pos + n + right));
		same(r, 0, to, "edges");
		for (int i = 0; i < k; i++) {
			same_state(r, &seen[i], r->tok, "at a block's edge");
			snaps_drop(&seen[i].snaps);
		}
		end(r);
	}
}

/* ---- one model ---- */

static int run_open(struct run *r, int threads, enum cpu_level level, const char *device, struct err *err)
{
	struct kv_pair layer[LAYERS];
	struct driver_opts o = { .arith = ARITH_FAST,
		                 .threads = threads,
		                 .level = level,
		                 .slots = 1 + OTHERS,
		                 .ctx_max = 512,
		                 .step_rows = STEP,
		                 .tape_rows = TAPE,
		                 .device = device,
		                 .tables = r->tables };

	for (int i = 0; i < LAYERS && r->kv; i++)
		layer[i] = r->kv->layer[i % 2];
	if (r->kv)
		o.kv.layer = layer;
	return driver_open(&r->d, r->folder, &o, err);
}

/* The sequences of slots 1 and on have other adapters than the one that is compared, or none. */
static void adapt(struct run *r)
{
	for (int i = 0; i < 2; i++)
		r->adapter[i] = lora_made(r->d.m, i ? 17 : 4, (uint64_t)i);
	r->mix[0] = (struct adapter_mix){ 1, { { r->adapter[0], 1 } } };
	r->mix[1] = (struct adapter_mix){ 1, { { r->adapter[1], 0.5f } } };
	r->mix[2] = (struct adapter_mix){ 2, { { r->adapter[1], 1 }, { r->adapter[0], -0.25f } } };
	r->d.mix[0] = r->lora == ADAPTED ? &r->mix[0] : NULL;
	r->d.mix[1] = &r->mix[1];
	r->d.mix[2] = r->lora == ADAPTED ? NULL : &r->mix[0];
	r->d.mix[3] = &r->mix[2];
}

static void run_close(struct run *r)
{
	for (int i = 0; i < 2; i++) {
		adapter_close(r->adapter[i]);
		r->adapter[i] = NULL;
	}
	driver_close(&r->d);
}

/* device: NULL for the backend that the run is over. */
static void open_or_exit(struct run *r, int threads, enum cpu_level level, const char *device)
{
	struct err err;

	if (run_open(r, threads, level, device, &err)) {
		printf("FAIL %s: %s\n", r->folder, err.msg);
		exit(1);
	}
	r->row = (size_t)r->d.vocab * sizeof(float);
	r->mixtures = r->d.m->n_mixture;
	r->has_tables = r->d.be->ops->stream_rows && model_table_bytes(r->d.m) > 0;
	tokens(r->tok, r->n, r->d.vocab, 11);
	for (int i = 0; i < OTHERS; i++)
		tokens(r->other[i], r->n, r->d.vocab, 100 + (uint64_t)i);
	if (!r->got)
		r->got = xmalloc((size_t)r->n * r->row);
	if (!device)
		r->arithmetic = r->d.be->arithmetic;
	if (r->lora && !device)
		adapt(r);
}

/* Compares another backend with the processor bit for bit: one that cannot read the host's weights, vectors and tables (far.h),
 * or two that share the layers (split_backend.h).  stride: of the places at which it is resumed; 0: it is not. */
static void over(struct run *r, enum cpu_level level, const char *device, int stride)
{
	static const int size[] = { 7, 64, 1, 40 };

	open_or_exit(r, 1, level, device);
	begin(r);
	driver_feed(&r->d, 0, 0, r->tok, r->n, size, 4, r->got);
	if (!strcmp(r->arithmetic, r->d.be->arithmetic)) /* a device's has no bf16 */
		same(r, 0, r->n, device);
	end(r);
	if (stride) {
		alongside(r);
		drafted(r);
		inside(r);
		resumed(r, stride);
	}
	run_close(r);
}

/* Rows of tables that are read from disk, one at a time, change no bit. */
static void tables_on_disk(struct run *r, enum cpu_level level)
{
	struct rows_opts how = { .bytes = 1 };

	r->tables = &how;
	open_or_exit(r, 2, level, NULL);
	alongside(r);
	drafted(r);
	chunked(r, 3);
	run_close(r);
	r->tables = NULL;
}

/* rows: of the rows of the reference only the first few are compared. */
static void check_level(struct run *r, enum cpu_level level, int stride, int threads_max, int rows)
{
	int all = r->n;

	for (int threads = 1; threads <= threads_max; threads++) {
		open_or_exit(r, threads, level, NULL);
		if (!r->want) {
			r->want = xmalloc((size_t)r->n * r->row);
			driver_feed(&r->d, 0, 0, r->tok, r->n, NULL, 0, r->want);
			end(r);
		}
		r->n = rows < all ? rows : all;
		begin(r);
		driver_feed(&r->d, 0, 0, r->tok, r->n, NULL, 0, r->got);
		same(r, 0, r->n, "one prefill");
		end(r);
		alongside(r);
		drafted(r);
		if (threads < 3) {
			inside(r);
			if (r->n == all)
				edges(r);
		}
		if (threads < 3)
			chunked(r, threads == 1 ? 0 : 3);
		if (threads == 1)
			resumed(r, stride);
		run_close(r);
	}
	r->n = all;
}

/* The first level where attention over bf16 rows, and products of bf16 weights, have the order of products of bf16 (format.h). */
static bool other_order(const struct run *r, enum cpu_level level)
{
	const struct kv_format *half = kv_format_find("bf16");
	bool rows = !r->kv || strstr(r->folder, "bf16");

	for (int i = 0; i < 2 && r->kv; i++)
		rows |= r->kv->layer[i].k == half && r->kv->layer[i].v == half;
	return rows && level == CPU_AVX512BF16;
}

/* last: a row of logits at the end, for the caller to free; NULL: not wanted. */
static int check_with(struct run r, enum cpu_level lowest, int stride, int quick, int rows, float **last)
{
	int bad = 0;

	/* want is the lowest level's: quant/ and backend/ promise the same bits at
	 * every level, so one reference serves them all, up to the level from which there is
	 * another order. */
	for (enum cpu_level level = lowest; level < CPU_LEVELS; level = cpu_level_next(level)) {
		/* A restored byte is the same byte at every level: each residue of a page's 64 rows at the best, which a stride
		 * of 3 reaches too, and some of the first page at the lower ones. */
		int best = level == cpu_detect(), every = best || quick ? stride : r.lora ? 70 : 7;
		int few = !best && (level == lowest || !r.full);

		if (other_order(&r, level)) {
			free(r.want);
			r.want = NULL;
		}
		r.bad = 0;
		check_level(&r, level, every,
		            best                                    ? 2 + !quick :
		            level == lowest || quick || rows == FEW ? 1 :
		            few                                     ? 2 :
		                                                      3,
		            few ? rows : r.n);
		if (best && !r.kv && !r.lora) {
			over(&r, level, "far", 0);
			over(&r, level, "split", r.full || quick ? stride : 7);
			if (r.mixtures)
				over(&r, level, "experts", quick ? stride : 7);
		}
		if (best && !r.kv && !r.lora && r.has_tables)
			tables_on_disk(&r, level);
		printf("%s %s, %s, %s: %d rows: chunks, alongside, resumed at every %d, drafted, threads\n",
		       r.bad ? "FAIL" : "ok  ", r.folder,
		       r.kv              ? r.kv->name :
		       r.lora == ADAPTED ? "adapted" :
		       r.lora            ? "beside adapters" :
		                           "plain",
		       cpu_level_name(level), few ? rows : r.n, every);
		bad += r.bad;
	}
	if (last)
		memcpy(*last = xmalloc(r.row), r.want + (size_t)(r.n - 1) * (r.row / sizeof(float)), r.row);
	free(r.want);
	free(r.got);
	return bad;
}

/* rows: at the levels below the best; FEW: one thread there. */
static int check(const char *folder, enum cpu_level lowest, int stride, int quick, int rows)
{
	bool full = getenv("WEFT_TEST_FULL");

	return check_with((struct run){ .folder = folder, .n = quick ? 100 : MOST, .full = full }, lowest, stride,
	                  quick, rows, NULL);
}

static int check_adapters(const char *folder, int quick)
{
	struct run r = { .folder = folder, .n = 100 };
	float *last[3] = { NULL };
	int bad = 0;

	for (r.lora = ALONE; r.lora <= BESIDE; r.lora++)
		bad += check_with(r,
		                  r.lora == ALONE ? cpu_detect() :
		                  quick           ? cpu_detect() :
		                                    CPU_SCALAR,
		                  quick ? 33 : 10, quick, FEW, &last[r.lora]);
	if (memcmp(last[ALONE], last[BESIDE], 64)) {
		printf("FAIL %s: a row beside adapters is not what it is without any\n", folder);
		bad++;
	}
	if (!memcmp(last[ALONE], last[ADAPTED], 64)) {
		printf("FAIL %s: an adapter changes nothing\n", folder);
		bad++;
	}
	for (int i = 0; i < 3; i++)
		free(last[i]);
	return bad;
}

/* Are there rows of this policy for heads of this model's size? */
static bool fits(const char *folder, const struct policy *kv)
{
	struct run r = { .folder = folder, .kv = kv };
	struct err err;

	if (run_open(&r, 1, cpu_detect(), false, &err))
		return err.code != E_UNSUPPORTED;
	driver_close(&r.d);
	return true;
}

/* A few policies, and one that differs by layer; each must give other logits than the
 * one before, or it was not in force.  At least two are for heads of this model's size. */
static int check_policies(const char *folder, int quick)
{
#define F(name) kv_format_find(name)
	const struct policy policies[] = {
		{ "8 bits", { { F("u8g64"), F("u8g64") }, { F("u8g64"), F("u8g64") } } },
		{ "8 bits, groups of 32", { { F("u8g32"), F("u8g32") }, { F("u8g32"), F("u8g32") } } },
		{ "4 bits", { { F("u4g32"), F("u4g32") }, { F("u4g32"), F("u4g32") } } },
		{ "3.5 bits", { { F("tq3"), F("tq4") }, { F("tq3"), F("tq4") } } },
		{ "3.5 bits in every other layer", { { F("tq3"), F("tq4") }, { F("bf16"), F("bf16") } } },
		{ "2 and 8 bits by turns", { { F("u8g32"), F("tq2") }, { F("tq2"), F("bf16") } } },
	};
#undef F
	float *last[2] = { NULL, NULL };
	int bad = 0, tried = 0;

	for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
		if (!fits(folder, &policies[i]))
			continue;
		tried++;
		/* Of the quick length at any size: what a longer prompt would find, a longer one
		 * without codes finds. */
		bad += check_with((struct run){ .folder = folder, .kv = &policies[i], .n = 100 },
		                  quick ? cpu_detect() : CPU_SCALAR, quick ? 33 : 10, 1, FEW, &last[1]);
		if (last[0] && !memcmp(last[0], last[1], 64)) {
			printf("FAIL %s: %s gives what the policy before it gives\n", folder, policies[i].name);
			bad++;
		}
		free(last[0]);
		last[0] = last[1];
	}
	free(last[0]);
	if (tried < 2)
		printf("FAIL %s: %d policies are for its heads\n", folder, tried);
	return bad + (tried < 2);
}

/* Latent rows alone and beside a recurrence; windows, with sinks, and with layers that share. */
static int check_kv_families(void)
{
	static const char *const other[] = { "deepseek_v3/mlx-q4", "kimi_linear/mlx-q4", "gpt_oss/mlx-q8",
		                             "gemma4_e2b/mlx-q4", "gemma3_text/mlx-q4" };
	const char *shared = shared_folder();
	char folder[1024];
	int bad = 0;

	for (size_t i = 0; shared && i < sizeof other / sizeof *other; i++) {
		snprintf(folder, sizeof folder, "%s/golden/%s", shared, other[i]);
		bad += check_policies(folder, 1);
	}
	return shared ? bad : -1;
}

static const char *const variants[] = { "mlx-q4", "hf-bf16", "hf-f32" };
enum { BF16 = 1 };

static int check_families(int stride, int quick)
{
	const char *shared = shared_folder();
	char folder[1024];
	int bad = 0;

	if (!shared)
		return -1;
	for (size_t f = 0; golden_family[f]; f++) {
		int plain = 0, ran = 0;

		for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
			enum cpu_level lowest;

			snprintf(folder, sizeof folder, "%s/golden/%s/%s", shared, golden_family[f], variants[v]);
			if ((v && plain) || !dir_exists(folder))
				continue;
			/* Quick: one kind of weights of each family; golden_test has all. */
			if (quick && v && ran) {
				plain = 1;
				continue;
			}
			ran = 1;
			plain = v > 0;
			/* Plain floats take long at the lower levels, and differ in the products only, of which
			 * bf16 has its own from one level on; in the quick size the models in the tree stand
			 * for the lower levels. */
			lowest = quick || v ? cpu_detect() : CPU_SCALAR;
			if (v == BF16 && !quick && cpu_has(CPU_AVX512BF16))
				lowest = CPU_AVX512BF16;
			bad += check(folder, lowest, stride, quick, FEW);
		}
		if (!plain) {
			printf("FAIL %s/golden/%s: neither hf-bf16 nor hf-f32\n", shared, golden_family[f]);
			bad++;
		}
	}
	return bad;
}

int main(int argc, char **argv)
{
	int bad = 0, quick = getenv("WEFT_TEST_QUICK") != NULL, stride = quick ? 33 : getenv("WEFT_TEST_FULL") ? 1 : 3;

	log_set_level(LOG_ERROR);
	if (argc == 2 && !strcmp(argv[1], "--families")) {
		bad = check_families(stride, quick);
		return bad < 0 ? 77 : bad > 0;
	}
	if (argc == 3 && !strcmp(argv[1], "--kv") && !strcmp(argv[2], "--families")) {
		bad = check_kv_families();
		return bad < 0 ? 77 : bad > 0;
	}
	if (argc > 1 && !strcmp(argv[1], "--adapters")) {
		for (int i = 2; i < argc; i++)
			bad += check_adapters(argv[i], quick);
		return bad > 0;
	}
	if (argc > 1 && !strcmp(argv[1], "--kv")) {
		for (int i = 2; i < argc; i++)
			bad += check_policies(argv[i], quick);
		return bad > 0;
	}
	/* Quick: one folder without and one with a mixture stand for the others at the lower levels. */
	for (int i = 1; i < argc; i++)
		bad += check(argv[i], quick && i > 2 ? cpu_detect() : CPU_SCALAR, stride, quick, quick ? FEW : SOME);
	return bad > 0;
}
