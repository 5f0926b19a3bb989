/* draft_grammar.c - the drafter that knows the form: what an answer is held to often leaves one text
 * only, as the next key of an object, its quotes and its colon.
 *
 * A mask allows every token that begins such a text, "na" and "name" and "name\":" alike, so that
 * the tokens are a guess where the text is none; the guess is as the tokenizer writes the text.  White space
 * between values may be left out or be a blank, and is guessed to be as it was before in the answer.  Where the text
 * ends, what follows may be part of its last token ("=" of "=get"): one that was mostly wrong at such an end is left out. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/draft/draft.h"

enum {
	AHEAD_BYTES = 96, /* of text that must come: some DRAFT_MAX tokens */
	TAIL_TOKENS = 4,  /* before it, which say how the text is cut into tokens */
	TAIL_BYTES = 128,
	STYLE_TOKENS = 64, /* in which white space is looked for */
	ENDS = 256,        /* last tokens that are told apart, by their ids' low bits */
	ENDS_TRIED = 4,    /* before one is left out, and from then on used once in this many times */
	ENDS_MOST = 32,    /* older ones fade */
};

/* The last guess of a token that ends a forced text. */
struct end_guess {
	uint64_t id; /* of the sequence; 0: nothing */
	int at;      /* the token's place in it */
	int32_t before, token;
};

/* How often such a token was right there. */
struct end_odds {
	unsigned char right, tried, left_out;
};

struct grammar_drafter {
	struct drafter d;
	const struct tokenizer *t;
	struct tokens ids;
	struct end_guess *guess; /* [seqs_max] */
	struct end_odds odds[ENDS];
};

struct form_ask {
	struct grammar_drafter *g;
	struct draft_ask *ask;
};

static bool is_blank(int c)
{
	return c == ' ' || c == '\n' || c == '\t';
}

/* The bytes of token i of the sequence, if it is one of the answer and no added one. */
static const char *own_bytes(const struct form_ask *f, int i, size_t *n)
{
	const struct draft_seq *s = &f->ask->seq;

	*n = 0;
	if (i < s->n_prompt || s->tok[i] < 0 || tokenizer_is_added(f->g->t, s->tok[i]))
		return NULL;
	return tokenizer_token_bytes(f->g->t, s->tok[i], n);
}

/* The byte behind the last `mark` in the answer; -1: there is none. */
static int stood_behind(const struct form_ask *f, char mark)
{
	int behind = -1, last = f->ask->seq.n_tok - 1;

	for (int i = last; i >= 0 && i > last - STYLE_TOKENS; i--) {
		size_t n;
		const char *p = own_bytes(f, i, &n);

		if (!p)
			return -1;
		while (n--) {
			if (p[n] == mark && behind >= 0)
				return behind;
			behind = (unsigned char)p[n];
		}
	}
	return -1;
}

static int last_byte(const struct form_ask *f)
{
	size_t n;
	const char *p = own_bytes(f, f->ask->seq.n_tok - 1, &n);

	return p && n ? (unsigned char)p[n - 1] : -1;
}

/* White space or the one byte that may come in its place. */
static int choose(void *arg, const char *text, size_t n_text, const uint8_t *may, int n)
{
	const struct form_ask *f = arg;
	int before = n_text ? (unsigned char)text[n_text - 1] : last_byte(f), solid = -1, as;
	bool blank = false;

	for (int i = 0; i < n; i++) {
		blank |= may[i] == ' ';
		if (is_blank(may[i]))
			continue;
		if (solid >= 0)
			return -1;
		solid = may[i];
	}
	if (before == '\n')
		return -1;
	if (before != ':' && before != ',')
		return solid;
	as = stood_behind(f, (char)before);
	if (as < 0 || as == ' ')
		return blank ? ' ' : solid;
	return as == '\n' ? -1 : solid;
}

/* Text in tokens, as they follow the last ones of the answer; ids of g. */
static void cut(const struct form_ask *f, const char *text, size_t n)
{
	struct grammar_drafter *g = f->g;
	const int32_t *tok = f->ask->seq.tok + f->ask->seq.n_tok;
	char all[TAIL_BYTES + AHEAD_BYTES];
	size_t at = TAIL_BYTES, tail = 0, len;

	memcpy(all + at, text, n);
	for (; tail < TAIL_TOKENS; tail++) {
		const char *p = own_bytes(f, f->ask->seq.n_tok - 1 - (int)tail, &len);

		if (!p || len > at)
			break;
		at -= len;
		memcpy(all + at, p, len);
	}
	tokens_reset(&g->ids);
	if (tail && !tokenizer_encode(g->t, all + at, TAIL_BYTES - at + n, 0, &g->ids, NULL) && g->ids.n >= tail &&
	    !memcmp(g->ids.id, tok - tail, tail * sizeof *tok)) {
		g->ids.n -= tail;
		memmove(g->ids.id, g->ids.id + tail, g->ids.n * sizeof *tok);
		return;
	}
	tokens_reset(&g->ids);
	if (tokenizer_encode(g->t, text, n, 0, &g->ids, NULL))
		tokens_reset(&g->ids);
}

static struct end_odds *odds_of(struct grammar_drafter *g, int32_t token)
{
	return &g->odds[(uint32_t)token % ENDS];
}

/* Learns whether the end guessed last came true, if the answer has come that far as guessed. */
static void learn_end(struct form_ask *f)
{
	const struct draft_seq *s = &f->ask->seq;
	struct end_guess *e = &f->g->guess[s->slot];
	struct end_odds *o = odds_of(f->g, e->token);

	if (e->id == s->id && e->at < s->n_tok && s->tok[e->at - 1] == e->before) {
		o->right = (unsigned char)(o->right + (s->tok[e->at] == e->token));
		if (++o->tried == ENDS_MOST) {
			o->tried /= 2;
			o->right /= 2;
		}
	}
	if (e->at < s->n_tok)
		e->id = 0;
}

/* Leaves the last of n guesses out where such ends were mostly wrong; else notes it. */
static int settle_end(struct form_ask *f, int n)
{
	const struct draft_seq *s = &f->ask->seq;
	int32_t token = f->ask->out[n - 1];
	struct end_odds *o = odds_of(f->g, token);

	if (o->tried >= ENDS_TRIED && 2 * o->right < o->tried && ++o->left_out % ENDS_TRIED)
		return n - 1;
	f->g->guess[s->slot] = (struct end_guess){
		.id = s->id,
		.at = s->n_tok + n - 1,
		.before = n > 1 ? f->ask->out[n - 2] : s->tok[s->n_tok - 1],
		.token = token,
	};
	return n;
}

static void propose_one(void *arg)
{
	struct form_ask *f = arg;
	struct draft_ask *a = f->ask;
	struct mask_source *m = a->seq.mask;
	char text[AHEAD_BYTES];
	size_t n;

	a->n = 0;
	learn_end(f);
	if (!m || !m->ops->ahead || m->ops->whole(m))
		return;
	n = m->ops->ahead(m, text, sizeof text, choose, f);
	/* A blank is most often part of the token that follows it. */
	while (n && text[n - 1] == ' ')
		n--;
	if (!n)
		return;
	cut(f, text, n);
	for (; a->n < a->max && (size_t)a->n < f->g->ids.n; a->n++)
		a->out[a->n] = f->g->ids.id[a->n];
	if (a->n && (size_t)a->n == f->g->ids.n)
		a->n = settle_end(f, a->n);
}

static void propose(struct drafter *d, struct draft_ask *ask, int n_ask)
{
	struct grammar_drafter *g = (struct grammar_drafter *)d;

	for (int i = 0; i < n_ask; i++)
		if (!draft_own(&ask[i], propose_one, &(struct form_ask){ g, &ask[i] })) {
			ask[i].n = 0;
			tokens_init(&g->ids); /* what it was is lost */
		}
}

static void grammar_close(struct drafter *d)
{
	struct grammar_drafter *g = (struct grammar_drafter *)d;

	tokens_fini(&g->ids);
	free(g->guess);
	free(g);
}

static const struct drafter_ops grammar_ops = { .name = "grammar", .propose = propose, .close = grammar_close };

struct drafter *draft_grammar_open(const struct tokenizer *t, int seqs_max)
{
	struct grammar_drafter *g = xcalloc(1, sizeof *g);

	g->d = (struct drafter){ .ops = &grammar_ops, .held = true };
	g->t = t;
	tokens_init(&g->ids);
	g->guess = xcalloc((size_t)seqs_max, sizeof *g->guess);
	return &g->d;
}
