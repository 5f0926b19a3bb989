/* sim_talks.h - conversations that are made up, and their prompts, for simulations of the prefix store.
 *
 * Traffic, all from a seed.  Agents: system and tools of 3000-8000 tokens out of
 * two, a task, then 8-40 rounds of thought and call (50-300) and tool result
 * (100-3000); thoughts stay in the prompt until the task is done.  Chats: system
 * of 200-500, turns of 20-300 and answers of 100-800; before the next turn the
 * answer is regenerated (12 %), the last message edited (10 %) or an earlier one
 * (3 %).  Thinking chats: 300-2000 tokens of thought before each answer, which
 * later prompts leave out.  One-offs: 2000 tokens of instructions, a question, one
 * or two turns.  A chat's or agent's first turn is followed by a request for a
 * title, under another system prompt, half of the time.  Edits: a document of 2000-8000
 * tokens without marks, of which 100 somewhere are rewritten before each request.  Fill in the
 * middle: 300-3000 tokens before the cursor and 100-1500 after it, as an editor sends them while
 * 2-12 tokens are typed between two requests.  Rewritten results: an agent that replaces an earlier
 * tool result by 40 tokens before half of its rounds.  Branches: a chat in which every other
 * turn is asked from the middle of an answer, the rest of it gone.  Of the conversations that
 * are open, the next request comes from the last one again (60 %) or any. */
#ifndef TESTS_SIM_TALKS_H
#define TESTS_SIM_TALKS_H

#include <stdbool.h>
#include <stdint.h>

enum { TALK_CTX = 1 << 18 };

enum role { SYSTEM, USER, ANSWER, TOOL };
struct message {
	enum role role;
	uint64_t key;   /* its words are a function of this */
	int n, thought; /* tokens; of an answer: thought before it */
};

enum kind { AGENT, CHAT, THINKING, ONEOFF, EDIT, MIDDLE, REWRITE, BRANCH, KINDS, TITLE };
enum { MESSAGES = 128 };
struct talk {
	enum kind kind;
	struct message m[MESSAGES];
	int n;
	int left; /* turns to come */
	bool titled;
};

/* A prompt, the places that are worth keeping (struct ask), and the answer behind it. */
struct text {
	int32_t tok[TALK_CTX];
	int n;
	int mark[3];
	unsigned char kind[3];
	int n_mark;
};

/* Everything below draws from one stream of numbers. */
void talks_seed(uint64_t seed);
int between(int a, int b);
bool percent(int p);

/* A new conversation; systems: how many system prompts agents, and chats, have between them. */
void talk_begin(struct talk *t, enum kind kind, int systems);
/* What the user does after an answer.  false: nothing more. */
bool talk_go_on(struct talk *t);
/* The prompt of its next turn and the answer to it, which becomes part of the conversation.  Returns the prompt's tokens. */
int talk_answer(struct talk *t, struct text *x);
/* Does its first turn come with a request for a title?  talk_title writes that request. */
bool talk_has_title(const struct talk *t);
int talk_title(const struct talk *t, struct text *x);

#endif
