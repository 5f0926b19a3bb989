/* normal_form.c - how a tokenizer.json normalises and cuts text, where GGUF files have keys for it; see folder_vocab.h.
 *
 * Steps of the normalizer in their order, each of them or none:
 *
 *     Precompiled                      tokenizer.ggml.precompiled_charsmap
 *     Strip, Replace " {2,}"           tokenizer.ggml.remove_extra_whitespaces
 *     Prepend U+2581                   tokenizer.ggml.add_space_prefix
 *     Replace " " by U+2581            what the kind of vocabulary is known by
 *
 * The last two may also be a pre-tokenizer's Metaspace. */
#include <inttypes.h>
#include <string.h>

#include "export/folder_vocab.h"

enum { DEPTH_MAX = 8 };

struct walk {
	struct tokens_made *t;
	struct normal_form *f;
	int stage; /* of the last step */
};

static const char *type_of(const struct json *j)
{
	const char *type = json_str(json_get(j, "type"), NULL);

	return type ? type : "";
}

static bool flag_of(const struct json *j, const char *key, bool dflt)
{
	bool v = dflt;

	return json_to_bool(json_get(j, key), &v) ? dflt : v;
}

static void refuse(struct walk *w, const char *where, const struct json *j)
{
	struct buf text;

	buf_init(&text);
	json_put(&text, j);
	making_fail(w->t->m, E_UNSUPPORTED, "tokenizer.json: %s: a GGUF file has no key for %.120s%s", where, text.p,
	            text.n > 120 ? "..." : "");
	buf_fini(&text);
}

/* Moves on to a step's stage; false: it comes too late. */
static bool reach(struct walk *w, int stage)
{
	bool ok = stage >= w->stage;

	w->stage = stage;
	return ok;
}

static bool replaced(struct walk *w, const struct json *j)
{
	const struct json *pattern = json_get(j, "pattern"), *with = json_get(j, "content");

	if (json_says(json_get(pattern, "Regex"), " {2,}") && (json_says(with, " ") || json_says(with, WORD_MARK))) {
		w->f->merged = true;
		return reach(w, 2);
	}
	w->f->spaces_marked |= json_says(json_get(pattern, "String"), " ") && json_says(with, WORD_MARK);
	return json_says(json_get(pattern, "String"), " ") && json_says(with, WORD_MARK) && reach(w, 3);
}

static void normalizer(struct walk *w, const struct json *j, int depth)
{
	const struct json *list = json_get(j, "normalizers");
	const char *type = type_of(j);
	bool known = false;

	if (json_kind(j) == JSON_NULL || w->t->m->code)
		return;
	if (!strcmp(type, "Sequence") && depth < DEPTH_MAX) {
		for (size_t i = 0; i < json_len(list); i++)
			normalizer(w, json_at(list, i), depth + 1);
		return;
	}
	if (!strcmp(type, "Precompiled")) {
		known = reach(w, 1) && !w->f->charsmap && json_str(json_get(j, "precompiled_charsmap"), NULL);
		w->f->charsmap = json_get(j, "precompiled_charsmap");
	} else if (!strcmp(type, "Strip")) {
		known = reach(w, 2) && flag_of(j, "strip_right", true);
		w->f->stripped = true;
	} else if (!strcmp(type, "Replace")) {
		known = replaced(w, j);
	} else if (!strcmp(type, "Prepend")) {
		known = json_says(json_get(j, "prepend"), WORD_MARK) && reach(w, 3);
		w->f->mark = MARK_ALWAYS;
	}
	if (!known)
		refuse(w, "normalizer", j);
}

static bool metaspace(struct walk *w, const struct json *j)
{
	const struct json *with = json_get(j, "replacement"), *scheme = json_get(j, "prepend_scheme");
	bool space = flag_of(j, "add_prefix_space", true);
	enum mark_before mark = json_says(scheme, "never")           ? MARK_NONE :
	                        json_says(scheme, "first")           ? MARK_FIRST_TEXT :
	                        json_says(scheme, "always") || space ? MARK_UNLESS_THERE :
	                                                               MARK_NONE;

	/* Behind a Prepend there is a mark already. */
	if (w->f->mark == MARK_NONE)
		w->f->mark = mark;
	w->f->spaces_marked = true;
	w->f->cut |= flag_of(j, "split", true);
	return !with || json_says(with, WORD_MARK);
}

static void pre_tokenizer(struct walk *w, const struct json *j, int depth)
{
	const struct json *list = json_get(j, "pretokenizers");
	const char *type = type_of(j);
	bool known = false;

	if (json_kind(j) == JSON_NULL || w->t->m->code)
		return;
	if (!strcmp(type, "Sequence") && depth < DEPTH_MAX) {
		for (size_t i = 0; i < json_len(list); i++)
			pre_tokenizer(w, json_at(list, i), depth + 1);
		return;
	}
	if (!strcmp(type, "Metaspace")) {
		known = metaspace(w, j);
	} else if (!strcmp(type, "Split")) {
		/* There are no spaces left to cut at. */
		known = w->f->spaces_marked && json_says(json_get(json_get(j, "pattern"), "String"), " ");
	} else if (!strcmp(type, "WhitespaceSplit")) {
		/* Tabs and ends of lines are dropped like spaces where the map before made them spaces. */
		known = w->f->charsmap && !w->f->spaces_marked;
		w->f->words = true;
	}
	if (!known)
		refuse(w, "pre_tokenizer", j);
}

void normal_form_read(struct tokens_made *t, struct normal_form *f)
{
	struct walk w = { .t = t, .f = f };

	*f = (struct normal_form){ .mark = MARK_NONE };
	normalizer(&w, json_get(t->tokenizer, "normalizer"), 0);
	pre_tokenizer(&w, json_get(t->tokenizer, "pre_tokenizer"), 0);
	if (!t->m->code && !f->spaces_marked)
		making_fail(t->m, E_UNSUPPORTED,
		            "tokenizer.json: spaces stay spaces: in GGUF files of such a vocabulary they are U+2581");
}
