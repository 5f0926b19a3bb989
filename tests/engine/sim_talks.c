/* sim_talks.c - see sim_talks.h. */
#include "sim_talks.h"

#include <string.h>

#include "base/rng.h"
#include "engine/prefix/place.h"
#include "lives.h"

static uint64_t state;

void talks_seed(uint64_t seed)
{
	state = seed * 1000003;
}

int between(int a, int b)
{
	return a + (int)dice(&state, (uint64_t)(b - a + 1));
}

bool percent(int p)
{
	return (int)dice(&state, 100) < p;
}

static void say(struct talk *t, enum role role, int n, uint64_t key)
{
	t->m[t->n++] = (struct message){ .role = role, .key = key ? key : rng_bits(++state, 1, 1), .n = n };
}

void talk_begin(struct talk *t, enum kind kind, int systems)
{
	int which = between(1, systems);

	memset(t, 0, sizeof(*t));
	t->kind = kind;
	switch (kind) {
	case AGENT:
		say(t, SYSTEM, which % 2 ? 3000 : 8000, (uint64_t)which * 16 + 1);
		say(t, USER, between(200, 800), 0);
		t->left = between(8, 40);
		break;
	case CHAT:
	case THINKING:
		say(t, SYSTEM, which % 2 ? 200 : 500, (uint64_t)which * 16 + 2);
		say(t, USER, between(20, 300), 0);
		t->left = between(2, 14);
		break;
	case EDIT:
		for (int i = 0, n = between(20, 80); i < n; i++)
			say(t, USER, 100, 0);
		t->left = between(10, 40);
		break;
	case MIDDLE:
		say(t, USER, between(300, 3000), 0);
		say(t, USER, 4, 0);
		say(t, USER, between(100, 1500), 0);
		t->left = between(10, 40);
		break;
	case REWRITE:
		say(t, SYSTEM, 3000, 17);
		say(t, USER, between(200, 800), 0);
		t->left = between(8, 40);
		break;
	case BRANCH:
		say(t, SYSTEM, 200, 18);
		say(t, USER, between(20, 300), 0);
		t->left = between(4, 14);
		break;
	default:
		say(t, SYSTEM, 2000, 20);
		say(t, USER, between(50, 400), 0);
		t->left = between(1, 2);
	}
}

bool talk_go_on(struct talk *t)
{
	int last = t->n - 1;

	if (--t->left <= 0 || t->n + 2 > MESSAGES)
		return false;
	if (t->kind == EDIT) {
		t->n = last; /* what was answered is not part of the document */
		t->m[between(0, t->n - 1)].key = rng_bits(++state, 1, 1);
		return true;
	}
	if (t->kind == MIDDLE) {
		t->n = last;
		t->m[1].n += between(2, 12); /* what follows the cursor moves on */
		return true;
	}
	if (t->kind == REWRITE && t->n > 5 && percent(50)) {
		int i = 3 + 2 * between(0, (t->n - 4) / 2);

		t->m[i].n = 40;
		t->m[i].key = rng_bits(++state, 1, 1);
	}
	if (t->kind == BRANCH && percent(50)) {
		t->m[last].n = between(1, t->m[last].n);
		say(t, USER, between(20, 300), 0);
		return true;
	}
	if (t->kind == AGENT || t->kind == REWRITE) {
		say(t, TOOL, percent(70) ? between(100, 600) : between(600, 3000), 0);
		return true;
	}
	if (percent(12)) {
		t->n = last; /* again */
		return true;
	}
	if (percent(11)) {
		t->n = last - 1; /* the last message, otherwise */
		say(t, USER, between(20, 300), 0);
		return true;
	}
	if (percent(4) && t->n > 5) {
		t->n = 1 + 2 * between(0, (t->n - 3) / 2); /* an earlier one */
		say(t, USER, between(20, 300), 0);
		return true;
	}
	say(t, USER, between(20, 300), 0);
	return true;
}

/* ---- a prompt ---- */

enum { HEAD = 3, TAIL = 2 }; /* tokens around a message */

static void put(struct text *x, uint64_t key, int from, int n)
{
	CHECK(x->n + n <= TALK_CTX, "%d tokens", x->n + n);
	for (int i = 0; i < n; i++)
		x->tok[x->n++] = (int32_t)(rng_bits(key, (uint64_t)(from + i), 2) & 0xffff);
}

static void put_message(struct text *x, const struct message *m, bool thought)
{
	put(x, 1000 + m->role, 0, HEAD);
	if (thought)
		put(x, m->key, 100000, m->thought);
	put(x, m->key, 0, m->n);
	put(x, 2000, 0, TAIL);
}

/* As templates of thinking models do: thoughts before the last user's message go. */
static void render(struct text *x, const struct talk *t)
{
	int last = 0;

	x->n = x->n_mark = 0;
	if (t->kind == EDIT || t->kind == MIDDLE) {
		for (int i = 0; i < t->n; i++)
			put(x, t->m[i].key, 0, t->m[i].n);
		return;
	}
	for (int i = 0; i < t->n; i++)
		if (t->m[i].role == USER)
			last = i;
	for (int i = 0; i < t->n; i++) {
		if (i == 1) {
			x->mark[0] = x->n;
			x->kind[0] = PLACE_SYSTEM;
			x->n_mark = 1;
		}
		if (i == last && i > 1) {
			x->mark[x->n_mark] = x->n;
			x->kind[x->n_mark++] = PLACE_USER;
		}
		put_message(x, &t->m[i], i > last);
	}
	x->mark[x->n_mark] = x->n;
	x->kind[x->n_mark++] = PLACE_HEADER;
	put(x, 1000 + ANSWER, 0, HEAD);
}

/* ---- requests ---- */

static bool is_agent(const struct talk *t)
{
	return t->kind == AGENT || t->kind == REWRITE;
}

bool talk_has_title(const struct talk *t)
{
	return t->kind != ONEOFF && t->kind != EDIT && t->kind != MIDDLE;
}

int talk_answer(struct talk *t, struct text *x)
{
	int n_prompt;
	struct message *m = &t->m[t->n];

	render(x, t);
	n_prompt = x->n;
	say(t, ANSWER, is_agent(t) ? between(50, 300) : t->kind == MIDDLE ? between(5, 30) : between(100, 800), 0);
	m->thought = t->kind == THINKING ? between(300, 2000) : is_agent(t) ? between(30, 300) : 0;
	put(x, m->key, 100000, m->thought);
	put(x, m->key, 0, m->n);
	put(x, 2000, 0, 1);
	return n_prompt;
}

int talk_title(const struct talk *t, struct text *x)
{
	static struct talk title;
	int n;

	title.kind = TITLE;
	title.n = 0;
	say(&title, SYSTEM, 120, 30);
	title.m[title.n++] = t->m[1];
	render(x, &title);
	n = x->n;
	put(x, ++state, 0, 12);
	return n;
}
