/* folder_pieces.c - vocabularies of SentencePiece's kinds in a GGUF file; see folder_vocab.h.
 *
 *     tokenizer.ggml.model  of                  joins
 *     llama                 pairs by merges     by scores that pair_order.c finds, if there are any that do the same
 *     gemma4                pairs by merges     by merges, without a mark before a text, words cut at ends of lines
 *     t5                    Unigram             the scores of tokenizer.json
 *
 * "gemma4" is for that family, and for merges that no scores follow.  Tokens of added_tokens that hold U+2581 and that merges
 * give too are ordinary ones: readers of GGUF look for added tokens in the text before its spaces are marked. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/log.h"
#include "export/folder_vocab.h"

struct pieces {
	struct tokens_made *t;
	struct making *m;
	struct normal_form form;
	struct text_index index;
	struct pair_merge *merge;
	size_t n_merge;
	struct buf apart; /* in which texts a reader of the file has other tokens than the folder's own tokenizer */
};

static void differs(struct pieces *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void differs(struct pieces *p, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	buf_printf(&p->apart, "%s%s", p->apart.n ? "; " : "", text);
}

static bool holds(const struct token *t, const char *what)
{
	return t->p && memmem(t->p, t->n, what, strlen(what));
}

/* ---- the list ---- */

static int byte_of(const struct token *t)
{
	unsigned byte;
	char text[8];

	if (!t->p || t->n != 6)
		return -1;
	memcpy(text, t->p, 6);
	text[6] = 0;
	if (sscanf(text, "<0x%2X>", &byte) != 1)
		return -1;
	snprintf(text, sizeof text, "<0x%02X>", byte);
	return memcmp(text, t->p, 6) ? -1 : (int)byte;
}

/* Each byte has its token: readers of the file take them for characters that the vocabulary lacks. */
static void mark_bytes(struct pieces *p)
{
	struct tokens_made *t = p->t;
	bool there[256] = { false }, fallback = false;

	if (json_to_bool(json_get(t->model, "byte_fallback"), &fallback))
		fallback = false;
	for (int64_t i = 0; i < t->n && fallback; i++) {
		int byte = byte_of(&t->tok[i]);

		if (byte < 0)
			continue;
		there[byte] = true;
		t->tok[i].type = GGUF_BYTE;
	}
	for (int i = 0; i < 256; i++)
		if (!there[i]) {
			making_fail(p->m, E_UNSUPPORTED,
			            fallback ? "tokenizer.json: byte_fallback without a token <0x%02X>" :
			                       "tokenizer.json: GGUF files of pairs have a token for each byte: no "
			                       "byte_fallback to <0x%02X>",
			            (unsigned)i);
			return;
		}
}

static void find_unknown(struct pieces *p)
{
	const struct json *model = p->t->model;
	size_t n;
	const char *text = json_str(json_get(model, "unk_token"), &n);

	p->t->unknown = -1;
	if (text)
		p->t->unknown = vocab_find(p->t, text, n);
	else if (json_to_int(json_get(model, "unk_id"), &p->t->unknown) || p->t->unknown < 0 ||
	         p->t->unknown >= p->t->n)
		p->t->unknown = -1;
	if (p->t->unknown >= 0)
		p->t->tok[p->t->unknown].type = GGUF_UNKNOWN;
}

static void open_index(struct pieces *p)
{
	int64_t twin[2];

	text_index_open(&p->index, p->t->tok, p->t->n, twin);
	if (twin[0] >= 0)
		making_fail(p->m, E_UNSUPPORTED,
		            "tokenizer.json: tokens %" PRId64 " and %" PRId64
		            " have the same text, which a GGUF file cannot tell apart",
		            twin[0], twin[1]);
	for (int64_t i = 0; i < p->t->n; i++) {
		struct token *t = &p->t->tok[i];

		/* The model is given no text with spaces in it, and none of tokens that are found before it is asked. */
		t->unseen = holds(t, " ") || (t->type == GGUF_USER && !holds(t, WORD_MARK));
		if (t->p && t->n > PAIR_CHARS_MAX)
			making_fail(p->m, E_LIMIT, "tokenizer.json: token %" PRId64 " of %zu bytes, at most %d", i,
			            t->n, PAIR_CHARS_MAX);
	}
}

/* Options of added tokens that GGUF files have no key for. */
static void look_at_added(struct pieces *p)
{
	static const char *const option[] = { "lstrip", "rstrip", "single_word" };
	const struct json *added = json_get(p->t->tokenizer, "added_tokens");
	size_t strips = 0, late = 0;

	for (size_t i = 0; i < json_len(added); i++) {
		const struct json *a = json_at(added, i);
		bool on, any = false;

		for (int k = 0; k < 3; k++)
			any |= !json_to_bool(json_get(a, option[k]), &on) && on;
		strips += any;
	}
	for (int64_t i = 0; i < p->t->n; i++)
		late += p->t->tok[i].p && p->t->tok[i].normalized && (p->form.mark == MARK_ALWAYS || p->form.charsmap);
	if (strips)
		differs(p, "%zu added tokens with lstrip, rstrip or single_word are found without it", strips);
	if (late)
		differs(p, "%zu added tokens are looked for in the text itself, not in the normalised one", late);
}

/* An added token that holds marks of words stands for spaces: merges give it, or it is written with spaces. */
static void settle_marked(struct pieces *p, const int32_t *rank)
{
	for (int64_t i = 0; i < p->t->n; i++) {
		struct token *t = &p->t->tok[i];

		if (t->type != GGUF_USER || !holds(t, WORD_MARK))
			continue;
		if (rank && rank[i] >= 0) {
			t->type = GGUF_NORMAL;
		} else if (t->normalized) {
			char *text = arena_alloc(&p->m->s->g.arena, t->n + 1);
			size_t n = 0;

			for (size_t k = 0; k < t->n; k++)
				if (t->n - k >= strlen(WORD_MARK) && !memcmp(t->p + k, WORD_MARK, strlen(WORD_MARK))) {
					text[n++] = ' ';
					k += strlen(WORD_MARK) - 1;
				} else {
					text[n++] = t->p[k];
				}
			t->p = text;
			t->n = n;
		}
	}
}

/* ---- merges ---- */

static void read_merges(struct pieces *p)
{
	size_t n = json_len(json_get(p->t->model, "merges"));
	struct merge_text text;
	struct buf both;

	if (n > INT32_MAX)
		making_fail(p->m, E_LIMIT, "tokenizer.json: %zu merges", n);
	buf_init(&both);
	p->merge = xmalloc(size_mul(n + 1, sizeof *p->merge));
	for (size_t i = 0; i < n && merge_read(p->t, i, &text); i++) {
		struct pair_merge *to = &p->merge[p->n_merge++];

		buf_reset(&both);
		buf_put(&both, text.p[0], text.n[0]);
		buf_put(&both, text.p[1], text.n[1]);
		*to = (struct pair_merge){ text_index_find(&p->index, text.p[0], text.n[0]),
			                   text_index_find(&p->index, text.p[1], text.n[1]),
			                   text_index_find(&p->index, both.p, both.n), (int32_t)i };
		if (to->left < 0 || to->right < 0 || to->made < 0 || !text.n[0] || !text.n[1])
			making_fail(p->m, E_FORMAT, "tokenizer.json: merge %zu: a half or the whole is not a token", i);
		else if (byte_of(&p->t->tok[to->left]) >= 0 || byte_of(&p->t->tok[to->right]) >= 0)
			making_fail(p->m, E_UNSUPPORTED, "tokenizer.json: merge %zu joins tokens of bytes", i);
	}
	buf_fini(&both);
}

struct ranked {
	int32_t id, rank;
};

static int by_rank(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Scores from 0 downwards in the order of ranks; what merges never give comes last. */
static void score_by_rank(struct pieces *p, const int32_t *rank)
{
	struct ranked *order = xmalloc(size_mul((size_t)p->t->n + 1, sizeof *order));
	size_t n = 0;

	for (int64_t i = 0; i < p->t->n; i++)
		if (rank[i] >= 0)
			order[n++] = (struct ranked){ (int32_t)i, rank[i] };
	qsort(order, n, sizeof *order, by_rank);
	for (int64_t i = 0; i < p->t->n; i++)
		p->t->tok[i].score = -(float)n;
	for (size_t i = 0; i < n; i++)
		p->t->tok[order[i].id].score = -(float)i;
	free(order);
}

/* The reason why merges cannot be written as such, or NULL. */
static const char *no_merges(struct pieces *p, const int32_t *rank)
{
	if (p->form.mark != MARK_NONE)
		return "a file with merges has no U+2581 put before a text";
	for (size_t i = 0; i < p->n_merge; i++) {
		const struct token *right = &p->t->tok[p->merge[i].right], *left = &p->t->tok[p->merge[i].left];

		if (p->form.cut && right->n >= strlen(WORD_MARK) && !memcmp(right->p, WORD_MARK, strlen(WORD_MARK)))
			return "merges join what words are cut at";
		if (holds(left, " ") || holds(right, " "))
			return "merges hold spaces";
	}
	for (int64_t i = 0; i < p->t->n; i++) {
		const struct token *t = &p->t->tok[i];
		size_t lines = 0;

		for (size_t k = 0; k < t->n; k++)
			lines += t->p[k] == '\n';
		if (rank[i] >= 0 && lines && lines < t->n)
			return "a token goes on behind the end of a line";
	}
	return NULL;
}

static void put_pairs(struct pieces *p, int32_t *rank)
{
	struct pair_order o = { .tok = p->t->tok,
		                .n = p->t->n,
		                .index = &p->index,
		                .merge = p->merge,
		                .n_merge = p->n_merge,
		                .cut = p->form.cut };
	bool family = !strcmp(p->m->arch->name, "gemma4");
	int64_t apart = pair_order(&o, rank);
	const char *why = family || apart >= 0 ? no_merges(p, rank) : NULL;

	if (why && apart >= 0) {
		making_fail(
			p->m, E_UNSUPPORTED,
			"tokenizer.json: scores, which GGUF has in place of merges, would join the text of token %" PRId64
			" (%.*s) where its merges do not, and %s",
			apart, (int)(p->t->tok[apart].n < 40 ? p->t->tok[apart].n : 40), p->t->tok[apart].p, why);
		return;
	}
	family = apart >= 0 || (family && !why);
	settle_marked(p, rank);
	score_by_rank(p, rank);
	pair_text(&p->m->p, "tokenizer.ggml.model", family ? "gemma4" : "llama", family ? 6 : 5);
	for (int64_t i = 0; i < p->t->n && family; i++)
		if (p->t->tok[i].type == GGUF_CONTROL && gguf_printed_mark(p->t->tok[i].p, p->t->tok[i].n))
			p->t->tok[i].type = GGUF_USER;
	if (family)
		vocab_put_merges(p->t);
	else
		pair_text(&p->m->p, "tokenizer.ggml.pre", "default", 7);
}

static void refuse_option(struct pieces *p, const char *key)
{
	const struct json *v = json_get(p->t->model, key);
	double number = 0;
	bool on = false;
	size_t n = 0;

	if (json_to_bool(v, &on))
		on = false;
	if (json_to_double(v, &number))
		number = 0;
	json_str(v, &n);
	if (on || number != 0 || n)
		making_fail(p->m, E_UNSUPPORTED, "tokenizer.json: a GGUF file has no key for %s of its model", key);
}

static void make_pairs(struct pieces *p)
{
	static const char *const option[] = { "ignore_merges", "dropout", "continuing_subword_prefix",
		                              "end_of_word_suffix" };
	const struct normal_form *f = &p->form;
	int32_t *rank = xmalloc(size_mul((size_t)p->t->n + 1, sizeof *rank));

	for (int i = 0; i < 4; i++)
		refuse_option(p, option[i]);
	if (f->charsmap || f->stripped || f->merged || f->words)
		making_fail(p->m, E_UNSUPPORTED, "tokenizer.json: GGUF files of pairs have no key for %s",
		            f->charsmap           ? "a Precompiled normalizer" :
		            f->words || f->merged ? "spaces made one" :
		                                    "spaces dropped at the end");
	mark_bytes(p);
	read_merges(p);
	if (!p->m->code)
		put_pairs(p, rank);
	if (f->mark == MARK_UNLESS_THERE || f->mark == MARK_FIRST_TEXT)
		differs(p, "U+2581 is put before a text also where a space begins it%s",
		        f->mark == MARK_FIRST_TEXT ? ", and behind special tokens" : "");
	if (!p->m->code)
		pair_bool(&p->m->p, "tokenizer.ggml.add_space_prefix", f->mark != MARK_NONE);
	free(rank);
}

/* ---- Unigram ---- */

static void put_charsmap(struct pieces *p)
{
	size_t n, bad;
	const char *text = json_str(p->form.charsmap, &n);
	uint8_t *bytes = xmalloc((text ? n : 0) + 4);
	int64_t got = text ? base64_decode(bytes, text, n, &bad) : 0;

	if (got < 0)
		making_fail(p->m, E_FORMAT, "tokenizer.json: precompiled_charsmap: no base64 at byte %zu", bad);
	else if (got)
		pair_list(&p->m->p, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, (uint64_t)got, bytes, (size_t)got);
	free(bytes);
}

/* Words are not cut by readers of the file: that makes no difference if no token goes on into the next word. */
static void check_cut(struct pieces *p)
{
	size_t mark = strlen(WORD_MARK);

	for (int64_t i = 0; i < p->t->n; i++) {
		const struct token *t = &p->t->tok[i];

		if (t->p && !token_hidden(t) && !t->unseen && t->n > mark &&
		    memmem(t->p + 1, t->n - 1, WORD_MARK, mark)) {
			making_fail(p->m, E_UNSUPPORTED,
			            "tokenizer.json: token %" PRId64
			            " (%.*s) holds U+2581, where text is cut, and a GGUF file has no key for that",
			            i, (int)(t->n < 40 ? t->n : 40), t->p);
			return;
		}
	}
}

static void make_unigram(struct pieces *p)
{
	const struct normal_form *f = &p->form;
	bool fallback = false, merged = f->words || f->merged;

	if (!json_to_bool(json_get(p->t->model, "byte_fallback"), &fallback) && fallback)
		making_fail(p->m, E_UNSUPPORTED, "tokenizer.json: a GGUF file has no key for byte_fallback of Unigram");
	if (p->t->unknown < 0)
		making_fail(p->m, E_UNSUPPORTED, "tokenizer.json: Unigram without unk_id: GGUF files have one");
	if (f->stripped && !merged)
		making_fail(p->m, E_UNSUPPORTED,
		            "tokenizer.json: a GGUF file has no key for spaces that are dropped at the end alone");
	if ((f->words && f->mark != MARK_UNLESS_THERE) || (merged && f->mark == MARK_NONE))
		making_fail(
			p->m, E_UNSUPPORTED,
			"tokenizer.json: spaces are made one, without U+2581 before every text, as a GGUF file has it");
	if (f->cut)
		check_cut(p);
	settle_marked(p, NULL);
	pair_text(&p->m->p, "tokenizer.ggml.model", "t5", 2);
	pair_text(&p->m->p, "tokenizer.ggml.pre", "default", 7);
	put_charsmap(p);
	pair_bool(&p->m->p, "tokenizer.ggml.add_space_prefix", f->mark != MARK_NONE);
	pair_bool(&p->m->p, "tokenizer.ggml.remove_extra_whitespaces", merged);
	if (merged && !f->words && !f->stripped)
		differs(p, "a space at the end of a text is dropped");
	if (f->stripped && !f->charsmap)
		differs(p, "of white space at the end of a text spaces alone are dropped");
	if (f->mark == MARK_FIRST_TEXT)
		differs(p, "U+2581 is put before a text also behind special tokens");
	if (!merged && f->mark == MARK_ALWAYS)
		differs(p, "U+2581 is put before no text that is all spaces");
	if (!merged && (f->mark == MARK_UNLESS_THERE || f->mark == MARK_FIRST_TEXT))
		differs(p, "U+2581 is put before a text also where a space begins it");
	if (merged && f->mark == MARK_ALWAYS)
		differs(p, "spaces that begin a text are dropped");
	if (p->t->rounded)
		differs(p, "scores are rounded to 32 bits");
}

/* ---- besides the list ---- */

static void put_scores(struct pieces *p)
{
	float *score = xmalloc(size_mul((size_t)p->t->n + 1, sizeof *score));

	for (int64_t i = 0; i < p->t->n; i++)
		score[i] = p->t->tok[i].score;
	pair_list(&p->m->p, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)p->t->n, score,
	          (size_t)p->t->n * sizeof *score);
	free(score);
}

/* Whether a decoder drops the first space of a text. */
static bool strips(const struct json *j, int depth)
{
	const struct json *list = json_get(j, "decoders"), *type = json_get(j, "type");
	int64_t start = 0;
	bool space = true;

	for (size_t i = 0; depth < 4 && i < json_len(list); i++)
		if (strips(json_at(list, i), depth + 1))
			return true;
	if (json_says(type, "Strip"))
		return !json_to_int(json_get(j, "start"), &start) && start > 0;
	if (!json_says(type, "Metaspace"))
		return false;
	if (json_get(j, "prepend_scheme"))
		return !json_says(json_get(j, "prepend_scheme"), "never");
	return json_to_bool(json_get(j, "add_prefix_space"), &space) || space;
}

void pieces_put(struct tokens_made *t)
{
	struct pieces p = { .t = t, .m = t->m };

	buf_init(&p.apart);
	normal_form_read(t, &p.form);
	vocab_read(t);
	if (!t->m->code)
		find_unknown(&p);
	if (!t->m->code)
		open_index(&p);
	if (!t->m->code)
		look_at_added(&p);
	if (!t->m->code && t->listed)
		make_unigram(&p);
	else if (!t->m->code)
		make_pairs(&p);
	if (!t->m->code) {
		if (strips(json_get(t->tokenizer, "decoder"), 0) != (p.form.mark != MARK_NONE))
			differs(&p, "the space that begins a decoded text is %s", p.form.mark ? "dropped" : "kept");
		vocab_put(t, "PAD "); /* a space is in no text by then */
		put_scores(&p);
	}
	if (!t->m->code && p.apart.n)
		log_warn("%s: readers of GGUF differ from its own tokenizer in this: %.*s", t->m->st->dir,
		         (int)p.apart.n, p.apart.p);
	text_index_close(&p.index);
	free(p.merge);
	buf_fini(&p.apart);
}
