/* test_toy_drafter.c - the recipe of docs/add-a-drafter.md, followed for the smallest
 * drafter there can be: what came after a token is what comes after it again.  No file
 * outside this one knows it. */
#include <string.h>

#include "base/alloc.h"
#include "engine/draft/draft.h"
#include "lives.h"
#include "toy.h"

/* ---- the drafter: this much is a new one ---- */

struct pairs {
	struct drafter d;
	int32_t after[TOY_VOCAB]; /* of all sequences; -1: it was never seen */
	int learned, forgotten;
};

/* Every guess follows from the one before. */
static void propose(struct drafter *d, struct draft_ask *ask, int n_ask)
{
	struct pairs *p = (struct pairs *)d;

	for (int i = 0; i < n_ask; i++) {
		struct draft_ask *a = &ask[i];
		int32_t t = a->seq.tok[a->seq.n_tok - 1];

		for (a->n = 0; a->n < a->max && p->after[t] >= 0; a->n++)
			t = a->out[a->n] = p->after[t];
	}
}

static void learn(struct drafter *d, const struct draft_seq *s)
{
	struct pairs *p = (struct pairs *)d;

	/* Nothing passes from a sequence that asked for that, nor between salts: none is told apart here. */
	if (s->secret || s->salt[0])
		return;
	for (int i = s->n_prompt; i < s->n_tok; i++)
		p->after[s->tok[i - 1]] = s->tok[i];
	p->learned++;
}

static void forget(struct drafter *d, int slot)
{
	((struct pairs *)d)->forgotten++;
}

static void pairs_close(struct drafter *d)
{
	free(d);
}

static const struct drafter_ops pairs_ops = {
	.name = "pairs",
	.propose = propose,
	.close = pairs_close,
	.learn = learn,
	.forget = forget,
};

static struct drafter *pairs_open(void)
{
	struct pairs *p = xcalloc(1, sizeof(*p));

	p->d.ops = &pairs_ops;
	memset(p->after, 0xff, sizeof(p->after));
	return &p->d;
}

/* ---- it works ---- */

int main(void)
{
	struct toy_opts to = { .slots = 2, .ctx_max = 256, .step_rows = 64, .page_rows = 8 };
	struct model *m = toy_open(&to);
	struct tokenizer *tok = toy_tokenizer();
	struct engine_opts eo = { .seqs_max = 2,
		                  .step_rows = 64,
		                  .logit_rows = 64,
		                  .queue_max = 4,
		                  .prefix_bytes = 1 << 20,
		                  .by_hand = true,
		                  .n_draft = 5,
		                  .n_drafter = 1,
		                  .draft_fixed = true };
	struct drafter *d = eo.drafter[0] = pairs_open();
	struct engine_stats s;
	struct engine *e;
	struct err err;

	CHECK(!engine_open(&e, m, tok, &eo, &err), "%s", err.msg);
	for (int i = 0; i < 6; i++) {
		struct answer want;
		struct life l;

		/* The same question twice, then others, greedy and sampled, one of them secret. */
		life_init(&l, 20, 250, (uint64_t)(i / 2));
		l.want_rows = true;
		l.ask.max_tokens = 50;
		l.ask.no_cache = i == 3;
		l.ask.sampling.temperature = i / 2 == 1 ? 1 : 0;
		l.ask.sampling.seed = 5;
		CHECK(!life_submit(&l, e, &err), "%s", err.msg);
		while (engine_step(e))
			;
		life_read(&l, false);
		life_alone(&l, m, life_room(m), tok, toy_logits, &want);
		life_check(&l, m, &want, toy_logits, false);
		CHECK(i != 1 || l.end.n_accepted > 5, "%d guesses came true when all was said before",
		      l.end.n_accepted);
		life_free(&l);
	}
	engine_stats(e, &s);
	CHECK(!strcmp(s.drafter[0].name, "pairs") && s.drafter[0].accepted > 5 &&
	              s.drafter[0].drafted > s.drafter[0].accepted,
	      "%s: %d of %d", s.drafter[0].name, (int)s.drafter[0].accepted, (int)s.drafter[0].drafted);
	CHECK(((struct pairs *)d)->learned == 5 && ((struct pairs *)d)->forgotten >= 6, "learned %d, forgotten %d",
	      ((struct pairs *)d)->learned, ((struct pairs *)d)->forgotten);
	printf("%d of %d guesses came true\n", (int)s.drafter[0].accepted, (int)s.drafter[0].drafted);
	engine_close(e);
	d->ops->close(d);
	tokenizer_close(tok);
	toy_close(m);
	return 0;
}
