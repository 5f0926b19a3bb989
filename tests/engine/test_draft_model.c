/* test_draft_model.c - drafters over real models: the answers of a conversation
 * and the bytes of all caches after each step are those of plain decoding, with
 * each drafter and all of them; and the draft head guesses what it would guess
 * from a cold start, whatever was cached, drafted, taken back or read from disk
 * before.
 *
 *     test_draft_model MODEL DRAFT-MODEL
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "driver.h"
#include "test_backend.h"
#include "engine/core.h"
#include "lives.h"
#include "rows.h"
#include "spill_world.h"

enum { CTX = 320, STEP = 64, SLOTS = 3, DEPTH = 4, ANSWER = 40, TURNS = 3 };

static struct tokenizer *tok;
static const char *folder, *draft_folder;

/* ---- the head, cold ---- */

/* Stands before a draft head and compares. */
struct spy {
	struct drafter d;
	struct drafter *head;
	struct driver model, cold; /* the model, and its head */
	float *hidden, *own;       /* [CTX + DRAFT_MAX] rows, each */
	float *logits;             /* one row */
	int32_t tok[CTX];          /* where the model stands: before so many of them */
	int n_tok;
	int n_compared, n_silent, n_late;
	int n_round, each; /* one of so many rounds is compared */
	bool window;       /* nothing is computed but what was asked for */
	/* Of the slot's sequence: rows that wait, and the first token that has a row. */
	uint64_t id[SLOTS];
	int wait[SLOTS], base[SLOTS];
};

/* One row or more of a driver's slot 0. */
static void feed(struct driver *d, int pos, const int32_t *t, const float *given, int n, float *hidden, float *logits)
{
	struct item it = { .pos = pos, .n = n, .tok = t, .logits = logits, .keep = n };

	d->pass.given = given;
	d->pass.hidden = hidden;
	driver_step(d, &it, 1);
}

/* The model's hidden rows of the first n tokens, from where it stands if that is among them. */
static void stand(struct spy *s, const int32_t *t, int n)
{
	size_t h = (size_t)s->model.m->shape.hidden;

	if (s->n_tok > n || memcmp(s->tok, t, (size_t)s->n_tok * sizeof(*t))) {
		caches_close(&s->model.m->caches, 0);
		s->n_tok = 0;
	}
	if (n > s->n_tok)
		feed(&s->model, s->n_tok, t + s->n_tok, NULL, n - s->n_tok, s->hidden + (size_t)(1 + s->n_tok) * h,
		     NULL);
	memset(s->hidden, 0, h * sizeof(float));
	memcpy(s->tok, t, (size_t)n * sizeof(*t));
	s->n_tok = n;
}

static void compare(struct spy *s, const struct draft_ask *a)
{
	size_t h = (size_t)s->model.m->shape.hidden;
	int n = a->seq.n_tok, base = s->window ? s->base[a->seq.slot] : 0;

	s->wait[a->seq.slot] = 1;
	s->n_late += base > 0;
	if (!a->n) {
		s->n_silent++;
		return;
	}
	if (s->n_round++ % s->each)
		return;
	stand(s, a->seq.tok, n - 1);
	if (n - 1 > base)
		feed(&s->cold, 0, a->seq.tok + base, s->hidden + (size_t)base * h, n - 1 - base,
		     s->own + (size_t)base * h, NULL);
	feed(&s->cold, n - 1 - base, a->seq.tok + n - 1, s->hidden + (size_t)(n - 1) * h, 1,
	     s->own + (size_t)(n - 1) * h, s->logits);
	for (int i = 0; i < a->n; i++) {
		int32_t want = sampler_guess(a->seq.sampler, s->logits, n + i);

		CHECK(a->out[i] == want, "guess %d after %d tokens is %d, from a cold start %d", i, n, a->out[i], want);
		if (i + 1 < a->n)
			feed(&s->cold, n - base + i, &want, s->own + (size_t)(n - 1 + i) * h, 1,
			     s->own + (size_t)(n + i) * h, s->logits);
	}
	caches_close(&s->cold.m->caches, 0);
	s->n_compared++;
}

static void spy_propose(struct drafter *d, struct draft_ask *ask, int n_ask)
{
	struct spy *s = (struct spy *)d;

	s->head->ops->propose(s->head, ask, n_ask);
	for (int i = 0; i < n_ask; i++)
		compare(s, &ask[i]);
}

static void spy_learn(struct drafter *d, const struct draft_seq *seq)
{
	struct spy *s = (struct spy *)d;

	s->head->ops->learn(s->head, seq);
}

static void spy_forget(struct drafter *d, int slot)
{
	struct spy *s = (struct spy *)d;

	s->head->ops->forget(s->head, slot);
}

static int spy_follow(struct drafter *d, const struct pass *p, const struct draft_run *run, int n)
{
	struct spy *s = (struct spy *)d;
	struct draft_run own[SLOTS];

	memcpy(own, run, (size_t)n * sizeof(*own));
	for (int i = 0; i < n && s->window; i++) {
		const struct draft_seq *a = &own[i].seq;
		int slot = a->slot, at = a->pos - run[i].n, over;

		own[i].seq.follow = false;
		if (s->id[slot] != a->id) {
			s->id[slot] = a->id;
			s->base[slot] = at ? at + 1 : 0;
			s->wait[slot] = !at;
		}
		over = s->wait[slot] + run[i].n - DRAFT_WAITING_MAX;
		if (over > 0) {
			if (run[i].n < DRAFT_WAITING_MAX / 2)
				over = DRAFT_WAITING_MAX / 2;
			/* All rows but those that wait for the newest tokens. */
			s->base[slot] = at + 1 - s->wait[slot] + over;
			s->wait[slot] -= over;
		}
		s->wait[slot] += run[i].n;
	}
	return s->head->ops->follow(s->head, p, own, n);
}

static struct prefix *spy_kept(struct drafter *d, struct model **m)
{
	struct spy *s = (struct spy *)d;

	return s->head->ops->kept(s->head, m);
}

static void spy_close(struct drafter *d)
{
	struct spy *s = (struct spy *)d;

	s->head->ops->close(s->head);
	if (s->n_tok)
		caches_close(&s->model.m->caches, 0);
	driver_close(&s->cold);
	driver_close(&s->model);
	free(s->hidden);
	free(s->own);
	free(s->logits);
}

static const struct drafter_ops spy_ops = {
	.name = "mtp",
	.propose = spy_propose,
	.close = spy_close,
	.learn = spy_learn,
	.forget = spy_forget,
	.follow = spy_follow,
	.kept = spy_kept,
};

static void spy_open(struct spy *s, struct drafter *head)
{
	struct driver_opts o = {
		.arith = ARITH_FAST, .threads = 1, .level = cpu_detect(), .slots = 1, .ctx_max = CTX, .step_rows = CTX
	};
	struct model *m;
	struct err err;

	memset(s, 0, sizeof(*s));
	s->d.ops = &spy_ops;
	s->each = getenv("WEFT_TEST_QUICK") ? 2 : 1;
	s->head = head;
	CHECK(!driver_open(&s->model, folder, &o, &err), "%s", err.msg);
	CHECK(!model_bind_head(&m, s->model.m, s->model.st, &err) && !driver_attach(&s->cold, m, &o, &err), "%s",
	      err.msg);
	s->hidden = xcalloc((size_t)(CTX + DRAFT_MAX) * (size_t)m->shape.hidden, sizeof(float));
	s->own = xcalloc((size_t)(CTX + DRAFT_MAX) * (size_t)m->shape.hidden, sizeof(float));
	s->logits = xcalloc((size_t)m->shape.vocab, sizeof(float));
}

/* ---- an engine ---- */

/* Stands still: no rate is measured, so that whatever is on disk is waited for. */
static int64_t stands(struct clock *c)
{
	return 1;
}
static struct clock still = { stands };
static const char *disk_dir; /* NULL: nothing is kept on disk */

struct rig {
	struct store *st, *draft_st;
	struct backend *be;
	struct model *m, *small, *head;
	struct engine *e;
	struct engine_opts o;
	struct spy spy;
};

enum { NGRAM = 1, MODEL = 2, MTP = 4, WINDOW = 8 };

static void rig_open(struct rig *g, unsigned drafters, int step)
{
	struct model_opts mo = { .arith = ARITH_FAST,
		                 .slots = SLOTS,
		                 .ctx_max = CTX,
		                 .step_rows = STEP,
		                 .tape_rows = DEPTH,
		                 .snap_bytes = 1 << 25 };
	struct model_opts ho = mo;
	struct drafter *head;
	struct err err;

	ho.step_rows = DRAFT_WAITING_MAX + SLOTS;
	memset(g, 0, sizeof(*g));
	g->be = test_backend_open(2, cpu_detect());
	g->o = (struct engine_opts){ .seqs_max = SLOTS,
		                     .step_rows = step,
		                     .queue_max = 8,
		                     .prefix_bytes = 1 << 24,
		                     .by_hand = true,
		                     .n_draft = DEPTH,
		                     .draft_fixed = true };
	CHECK(!store_open(&g->st, folder, &err) && !model_open(&g->m, g->st, g->be, &mo, &err), "%s", err.msg);
	if (drafters & NGRAM)
		g->o.drafter[g->o.n_drafter++] = draft_ngram_open(SLOTS, 1 << 12);
	if (drafters & MTP) {
		CHECK(!model_bind_head(&g->head, g->m, g->st, &err) && !model_attach(g->head, g->be, &ho, &err), "%s",
		      err.msg);
		CHECK(!draft_head_open(&head, g->head, SLOTS, drafters & WINDOW ? 0 : 1 << 24, &err), "%s", err.msg);
		spy_open(&g->spy, head);
		g->spy.window = drafters & WINDOW;
		g->o.drafter[g->o.n_drafter++] = &g->spy.d;
	}
	if (drafters & MODEL) {
		CHECK(!store_open(&g->draft_st, draft_folder, &err), "%s", err.msg);
		CHECK(!model_open(&g->small, g->draft_st, g->be, &mo, &err), "%s", err.msg);
		CHECK(!draft_model_open(&g->o.drafter[g->o.n_drafter++], g->small, SLOTS, 1 << 24, &err), "%s",
		      err.msg);
	}
	if (disk_dir) {
		g->o.disk.dir = disk_dir;
		g->o.disk.bytes = 1 << 28;
		g->o.disk.io = world_io();
		g->o.clock = &still;
		for (int i = 0; i < g->o.n_drafter; i++)
			g->o.drafter[i]->identity.b[0] = (unsigned char)(1 + i);
	}
	CHECK(!engine_open(&g->e, g->m, tok, &g->o, &err), "%s", err.msg);
}

static void rig_close(struct rig *g)
{
	struct engine_stats s;

	engine_stats(g->e, &s);
	engine_close(g->e);
	for (int i = 0; i < g->o.n_drafter; i++) {
		printf("    %s: %d of %d in %d rounds\n", s.drafter[i].name, (int)s.drafter[i].accepted,
		       (int)s.drafter[i].drafted, (int)s.drafter[i].rounds);
		g->o.drafter[i]->ops->close(g->o.drafter[i]);
	}
	model_close(g->small);
	model_close(g->head);
	model_close(g->m);
	g->be->ops->close(g->be);
	store_close(g->draft_st);
	store_close(g->st);
}

/* ---- a conversation ---- */

static const char *const said[TURNS] = {
	"<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
	"<|im_end|>\n<|im_start|>user\nRepeat: red green blue red green blue red green blue<|im_end|>\n"
	"<|im_start|>assistant\n",
	"<|im_end|>\n<|im_start|>user\nWhat did I ask first?<|im_end|>\n<|im_start|>assistant\n",
};

struct record {
	struct answer answer[TURNS];
	int cached[TURNS];
	struct buf at[TURNS][CTX]; /* what the caches held */
};

static void look(struct rig *g, const struct request *r, struct buf *at, bool first)
{
	if (r->slot < 0 || !r->pos)
		return;
	/* Prompts may be cut elsewhere. */
	if (first || at[r->pos].n || r->pos >= r->n_prompt)
		caches_held(&g->m->caches, r->slot, r->pos, at, first);
}

/* Turns of one conversation, each with the answer before it; beside it two others. */
static void talk(struct rig *g, struct record *rec, bool first, bool sampled, bool alone)
{
	int32_t all[CTX];
	int n = 0;

	for (int turn = 0; turn < TURNS; turn++) {
		struct life l, other[2];
		struct tokens t;
		struct err err;

		tokens_init(&t);
		CHECK(!tokenizer_encode(tok, said[turn], strlen(said[turn]), TOKENIZE_SPECIAL, &t, &err), "%s",
		      err.msg);
		memcpy(all + n, t.id, t.n * sizeof(*all));
		n += (int)t.n;
		tokens_fini(&t);
		life_init(&l, 1, 2000, 1);
		memcpy(l.prompt, all, (size_t)n * sizeof(*all));
		l.ask.n_prompt = n;
		l.ask.max_tokens = ANSWER;
		l.ask.sampling.n_logprobs = 2;
		if (sampled) {
			l.ask.sampling.temperature = 1;
			l.ask.sampling.seed = (uint64_t)turn;
			l.ask.sampling.top_p = 0.95f;
			l.ask.sampling.repetition_penalty = 1.1f;
		}
		CHECK(!life_submit(&l, g->e, &err), "%s", err.msg);
		for (int i = 0; i < 2 && !alone; i++) {
			life_init(&other[i], 5 + 40 * i, 2000, (uint64_t)(10 * turn + i));
			other[i].ask.max_tokens = 25;
			CHECK(!life_submit(&other[i], g->e, &err), "%s", err.msg);
		}
		while (engine_step(g->e))
			look(g, l.r, rec->at[turn], first);
		for (int i = 0; i < 2 && !alone; i++) {
			life_read(&other[i], false);
			CHECK(other[i].done, "others end");
			life_free(&other[i]);
		}
		life_read(&l, false);
		CHECK(l.done && l.got.n == ANSWER, "%d tokens", l.got.n);
		if (first) {
			rec->answer[turn] = l.got;
			rec->cached[turn] = l.cached;
		}
		CHECK(!memcmp(&rec->answer[turn], &l.got, sizeof(l.got)),
		      "the answer of turn %d differs: '%.*s' for '%.*s'", turn, (int)l.got.n_text, l.got.text,
		      (int)rec->answer[turn].n_text, rec->answer[turn].text);
		CHECK(rec->cached[turn] == l.cached, "turn %d: %d known, %d in plain decoding", turn, l.cached,
		      rec->cached[turn]);
		memcpy(all + n, l.got.tok, (size_t)l.got.n * sizeof(*all));
		n += l.got.n;
		life_free(&l);
	}
}

/* ---- a restart ---- */

/* Where the drafter could stand within the first n tokens of the prompt. */
static int known(struct rig *g, const struct life *l, int n)
{
	struct drafter *d = g->o.drafter[0];
	struct prefix_hit hit;
	struct model *m;

	prefix_find(d->ops->kept(d, &m), "", l->prompt, n + 1, &hit);
	return hit.at;
}

/* What drafters keep is there again as the model's own is, at the same tokens; the head
 * guesses as if it had seen all of them; and what is dropped is gone there too. */
static void test_restart(bool quick)
{
	static const unsigned kinds[] = { MTP, MODEL };
	char dir[PATH_MAX];

	for (int k = 0; k < (quick ? 1 : 2); k++) {
		int32_t said_before[CTX];
		int n = 0, at = 0;

		world_dir(dir);
		disk_dir = dir;
		for (int start = 0; start < 3; start++) {
			struct prefix_report why;
			struct life l;
			struct err err;
			struct rig g;
			int dropped;

			rig_open(&g, kinds[k], STEP);
			life_init(&l, 150, 2000, 5);
			if (start) {
				memcpy(l.prompt, said_before, (size_t)n * sizeof(*l.prompt));
				for (int i = 0; i < 10; i++)
					l.prompt[n + i] = 20 + i;
				l.ask.n_prompt = n + 10;
			}
			l.ask.max_tokens = ANSWER;
			CHECK(!life_submit(&l, g.e, &err), "%s", err.msg);
			/* Steps until it has begun. */
			while (!l.r->sched.started)
				CHECK(engine_step(g.e), "it stands still");
			why = l.r->reuse.report;
			CHECK((why.source == PREFIX_DISK) == (start == 1) &&
			              (start == 1 ? why.resumed > 150 : !why.resumed),
			      "start %d: resumed at %d", start, why.resumed);
			if (start == 1)
				at = why.resumed;
			/* A model that drafts may have been some tokens behind at the end. */
			if (start == 1)
				CHECK(known(&g, &l, at) >= (kinds[k] == MTP ? at : at - DEPTH - 1),
				      "the drafter knows %d, the model %d", known(&g, &l, at), at);
			else if (start == 2)
				CHECK(known(&g, &l, at) < 150, "the drafter knows %d of what was dropped",
				      known(&g, &l, at));
			while (engine_step(g.e))
				;
			life_read(&l, false);
			CHECK(l.done && l.got.n == ANSWER, "%d tokens", l.got.n);
			if (!start) {
				memcpy(said_before, l.prompt, 150 * sizeof(*said_before));
				memcpy(said_before + 150, l.got.tok, (size_t)l.got.n * sizeof(*said_before));
				n = 150 + l.got.n;
			}
			if (kinds[k] == MTP)
				CHECK(g.spy.n_compared > 10, "%d rounds compared", g.spy.n_compared);
			life_free(&l);
			/* The third start finds nothing. */
			if (start == 1)
				CHECK(!engine_prefix_drop(g.e, &(struct prefix_spot){ 0 }, &dropped) && dropped,
				      "nothing dropped");
			rig_close(&g);
		}
		disk_dir = NULL;
		world_remove(dir);
	}
}

int main(int argc, char **argv)
{
	static const unsigned kinds[] = { NGRAM, MTP, MTP | WINDOW, MODEL, NGRAM | MTP | MODEL };
	bool quick = getenv("WEFT_TEST_QUICK") != NULL;
	static struct record rec;
	struct buf json;
	struct err err;
	char path[512];
	struct rig g;

	CHECK(argc == 3, "test_draft_model MODEL DRAFT-MODEL");
	folder = argv[1];
	draft_folder = argv[2];
	log_set_level(LOG_WARN);
	snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
	buf_init(&json);
	CHECK(!file_read(path, 1 << 24, &json, &err) && !tokenizer_open(&tok, json.p, json.n, &err), "%s", err.msg);
	buf_fini(&json);
	test_restart(quick);
	for (int sampled = 0; sampled < 2; sampled++) {
		rig_open(&g, 0, STEP);
		talk(&g, &rec, true, sampled, true);
		rig_close(&g);
		for (int k = quick ? 3 * sampled : 0; k < (quick && !sampled ? 3 : 5); k++)
			for (int alone = quick; alone < 2; alone++) {
				printf("%s, %s, drafters %x\n", sampled ? "sampled" : "greedy",
				       alone ? "alone" : "beside others", kinds[k]);
				rig_open(&g, kinds[k], alone ? STEP : 9);
				talk(&g, &rec, false, sampled, alone);
				if (kinds[k] & MTP)
					printf("    %d rounds of the head compared, %d silent\n", g.spy.n_compared,
					       g.spy.n_silent);
				CHECK(!(kinds[k] & WINDOW) || g.spy.n_late > 20, "%d rounds without the beginning",
				      g.spy.n_late);
				if (kinds[k] == MTP)
					CHECK(g.spy.n_compared > 20 && (!alone || !g.spy.n_silent),
					      "%d compared, %d silent", g.spy.n_compared, g.spy.n_silent);
				rig_close(&g);
			}
	}
	for (int i = 0; i < TURNS; i++)
		for (int k = 0; k < CTX; k++)
			buf_fini(&rec.at[i][k]);
	tokenizer_close(tok);
	return 0;
}
