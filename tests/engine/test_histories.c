/* test_histories.c - random conversations of text and pictures, which grow, are edited, have pictures swapped for others
 * of the same size, repeated, or sent again as another object of the same digest, and come back in any order to an
 * engine that keeps prefixes.  Every row that is computed, and every answer, is what the model says of these rows alone.
 * A quarter of them is over a folder and restarts, where the vectors of pictures come from there.
 *
 *     test_histories [HISTORIES [SEED]] */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "lives.h"
#include "model/media.h"
#include "spill_world.h"
#include "toy.h"

enum { CTX = 256, MOST = 200, STEP = 48, TALKS = 24, PARTS = 40, ANSWER = 3, PICTURES = 12, SLOTS = 3 };

/* Part of a conversation: a run of text, or a picture. */
struct part {
	int n, picture; /* -1: text */
	uint64_t seed;  /* of the text */
};

struct talk {
	struct part part[PARTS];
	int n;
};

/* ---- pictures: sizes repeat, so that one may stand for another ---- */

static int worked, taken; /* pictures that were computed, and that came from disk */

static void picture_free(struct media *m)
{
	free((void *)(uintptr_t)m->vectors);
	free(m);
}

static int picture_rows(int k)
{
	static const int rows[] = { 1, 2, 5, 9, 16, 30 };

	return rows[k % 6];
}

/* The number in a picture's row. */
static int32_t picture_number(int k, int row)
{
	return -(1000 * (k + 1) + row);
}

static int picture_work(struct media *m, int64_t ns, struct err *err)
{
	float *v = xmalloc(m->bytes);

	for (int i = 0; i < m->n; i++)
		v[i] = (float)picture_number(m->digest.b[0], i);
	m->vectors = v;
	worked++;
	return 0;
}

static void picture_take(struct media *m, float *vectors)
{
	m->vectors = vectors;
	taken++;
}

static struct media *picture(int k)
{
	static const struct media_ops ops = { picture_work, picture_take, picture_free };
	struct media *m = xcalloc(1, sizeof *m);

	*m = (struct media){ .ops = &ops,
		             .refs = 1,
		             .n = picture_rows(k),
		             .hidden = 1,
		             .grid_h = k % 6 == 3 ? 3 : 0,
		             .grid_w = k % 6 == 3 ? 3 : 0,
		             .whole = k % 6 > 3,
		             .bytes = (size_t)picture_rows(k) * sizeof(float) };
	m->digest.b[0] = (uint8_t)k;
	return m;
}

/* ---- conversations ---- */

static int talk_rows(const struct talk *t)
{
	int n = 0;

	for (int i = 0; i < t->n; i++)
		n += t->part[i].n;
	return n;
}

/* Texts are of few kinds, so that conversations begin alike. */
static struct part some_part(uint64_t *dice_at)
{
	struct part p = { .picture = -1 };

	if (dice(dice_at, 5) < 2) {
		p.picture = (int)dice(dice_at, PICTURES);
		p.n = picture_rows(p.picture);
	} else {
		p.seed = dice(dice_at, 4);
		p.n = 1 + (int)dice(dice_at, 14);
	}
	return p;
}

static void grow(struct talk *t, uint64_t *dice_at)
{
	do {
		if (t->n == PARTS || talk_rows(t) > MOST - 40)
			t->n = (int)dice(dice_at, (uint64_t)t->n);
		t->part[t->n++] = some_part(dice_at);
	} while (!talk_rows(t) || dice(dice_at, 2));
}

static void change(struct talk *all, struct talk *t, uint64_t *dice_at)
{
	int i = t->n ? (int)dice(dice_at, (uint64_t)t->n) : 0;

	switch (dice(dice_at, 6)) {
	case 0: /* another picture of the same size in the place of one, or other text */
		if (t->n && t->part[i].picture >= 0)
			t->part[i].picture = (t->part[i].picture + 6) % PICTURES;
		else if (t->n)
			t->part[i].seed++;
		break;
	case 1: *t = all[dice(dice_at, TALKS)]; break; /* as another one */
	case 2: t->n = i; break;                       /* gone on with from earlier on */
	case 3: break;                                 /* as it was */
	default: grow(t, dice_at);
	}
	if (!t->n)
		grow(t, dice_at);
}

/* ---- one request ---- */

struct said {
	const struct model *m;
	int32_t truth[CTX]; /* of every row, pictures' numbers included */
	int rows, wrong;
};

static void look(void *arg, int pos, const float *row, int vocab)
{
	struct said *s = arg;
	float want[TOY_VOCAB];

	toy_logits(s->m, s->truth, pos + 1, want);
	s->wrong += memcmp(want, row, (size_t)vocab * sizeof *row) != 0;
	s->rows++;
}

struct sums {
	int64_t rows, cached, prompts, hits;
};

static void run(struct engine *e, const struct model *m, const struct talk *t, uint64_t k, struct sums *sums)
{
	int32_t tok[CTX];
	struct ask_span span[PARTS];
	struct said said = { .m = m };
	struct ask a = { .prompt = tok, .span = span, .max_tokens = ANSWER, .on_logits = look, .on_logits_arg = &said };
	struct request *r;
	struct event ev;
	struct err err;
	int n_answer = 0;

	for (int i = 0; i < t->n; i++) {
		const struct part *p = &t->part[i];

		if (p->picture >= 0)
			span[a.n_span++] = (struct ask_span){ a.n_prompt, p->n, picture(p->picture), 0 };
		for (int j = 0; j < p->n; j++) {
			tok[a.n_prompt] = (int32_t)((p->seed * 37 + (uint64_t)j) % 256);
			said.truth[a.n_prompt] = p->picture >= 0 ? picture_number(p->picture, j) : tok[a.n_prompt];
			a.n_prompt++;
		}
	}
	sampler_params_init(&a.sampling);
	a.sampling.temperature = 0;
	CHECK(!engine_submit(e, &a, &r, &err), "history %d: %s", (int)k, err.msg);
	for (int i = 0; i < a.n_span; i++)
		media_unref(span[i].media);
	do {
		while (request_next(r, &ev)) {
			if (ev.kind == EV_TOKEN)
				said.truth[a.n_prompt + n_answer++] = ev.token;
			if (ev.kind == EV_DONE) {
				CHECK(ev.finish == FINISH_LENGTH, "history %d: %s", (int)k, ev.err.msg);
				sums->cached += ev.n_cached;
				sums->hits += ev.n_cached > 0;
			}
		}
	} while (engine_step(e));
	request_free(r);
	CHECK(n_answer == ANSWER && said.rows >= ANSWER, "history %d: %d rows", (int)k, said.rows);
	CHECK(!said.wrong, "history %d: %d of %d rows are not what the model says", (int)k, said.wrong, said.rows);
	sums->rows += said.rows;
	sums->prompts += a.n_prompt;
}

/* dir: where prefixes and vectors are kept beside memory, by an engine that is opened anew now and then; NULL: nowhere. */
static void histories(int n, uint64_t seed, const struct toy_opts *o, const char *dir)
{
	struct engine_opts eo = { .seqs_max = SLOTS,
		                  .step_rows = STEP,
		                  .logit_rows = STEP,
		                  .queue_max = 4,
		                  .prefix_bytes = (size_t)1 << 21,
		                  .by_hand = true,
		                  .disk.dir = dir,
		                  .disk.bytes = (uint64_t)1 << 22,
		                  .disk.io = dir ? world_io() : NULL };
	int restart = n / 20 + 1;
	struct model *m = toy_open(o);
	struct talk *talk = xcalloc(TALKS, sizeof *talk);
	struct sums sums = { 0 };
	struct engine *e;
	struct err err;

	CHECK(!engine_open(&e, m, NULL, &eo, &err), "%s", err.msg);
	for (int i = 0; i < n; i++) {
		struct talk *t = &talk[dice(&seed, TALKS)];

		change(talk, t, &seed);
		run(e, m, t, (uint64_t)i, &sums);
		if (!dir || i % restart != restart - 1)
			continue;
		engine_close(e);
		CHECK(!engine_open(&e, m, NULL, &eo, &err), "%s", err.msg);
	}
	CHECK(sums.hits > n / 4, "%d of %d histories found anything", (int)sums.hits, n);
	CHECK(!dir || taken > 0, "no picture came from disk");
	printf("%d histories, %d tokens of prompts, %d cached, %d rows compared, none wrong; %d pictures computed, %d from "
	       "disk\n",
	       n, (int)sums.prompts, (int)sums.cached, (int)sums.rows, worked, taken);
	worked = taken = 0;
	engine_close(e);
	toy_close(m);
	free(talk);
}

int main(int argc, char **argv)
{
	char dir[PATH_MAX];
	int n = argc > 1 ? atoi(argv[1]) : getenv("WEFT_TEST_QUICK") ? 600 : 10000;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	struct toy_opts o = { .slots = SLOTS, .ctx_max = CTX, .step_rows = STEP, .page_rows = 8, .snaps = 256 };

	log_set_level(LOG_ERROR);
	histories(n / 2, seed, &o, NULL);
	world_dir(dir);
	histories(n / 4, seed + 3, &o, dir);
	world_remove(dir);
	o.attention_only = true;
	histories(n / 4, seed + 1, &o, NULL);
	o.attention_only = false;
	o.window = 11;
	histories(n / 4, seed + 2, &o, NULL);
	return 0;
}
