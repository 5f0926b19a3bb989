/* converse.c - a conversation in the terminal: turns, and commands that begin with a slash. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/console.h"
#include "cli/pictures.h"
#include "cli/talk.h"

enum { FILE_MAX = 64 << 20 }; /* bytes of a saved conversation */

struct chat {
	struct talk *t;
	struct console *console;
	size_t *turn; /* each message of the user in t->messages */
	int n_turn;
	bool end;
};

/* ---- the list of messages ---- */

void conversation_begin(struct talk *t)
{
	json_free(t->messages);
	t->messages = json_new_array();
	if (t->o->run.system)
		talk_message_put(t, "system", t->o->run.system, strlen(t->o->run.system));
}

static void note_turn(struct chat *c)
{
	c->turn = xrealloc(c->turn, (size_t)(c->n_turn + 1) * sizeof *c->turn);
	c->turn[c->n_turn++] = json_len(c->t->messages);
}

/* Asks with the messages; a failed answer is not a turn. */
static void ask(struct chat *c)
{
	struct talk *t = c->t;
	struct err err;

	if (talk_ask(t, &err)) {
		fprintf(stderr, "weft run: %s%s\n", err.msg,
		        err.code == E_LIMIT ? "; /new begins another conversation" : "");
	} else if (t->answer.n || t->thinking.n) {
		talk_answer_put(t);
		return;
	}
	json_cut(t->messages, c->turn[--c->n_turn]);
}

/* Text between images, without the blanks next to one. */
static void put_between(struct talk *t, const char *text, size_t n, bool after)
{
	size_t lead = after ? strspn(text, " \t\n") : 0;

	lead = lead < n ? lead : n;
	while (n > lead && strchr(" \t\n", text[n - 1]))
		n--;
	talk_text(t, text + lead, n - lead);
}

/* Images whose paths are words of the text, in their places.  *rest: what follows the last; false: one cannot be read. */
static bool put_pictures(struct talk *t, const char *text, const char **rest)
{
	const size_t before = talk_shown(t);
	struct picture_word w;
	struct err err;
	size_t at = 0;

	*rest = text;
	while (picture_next(text, at, &w)) {
		if (talk_sees(t) == SEES_NOT)
			fprintf(stderr, "[%s reads text only: %s is sent as text]\n", t->name, w.path);
		else if (talk_sees(t) == SEES_UNKNOWN)
			fprintf(stderr, "[does %s see? %s is sent as text, /image sends the image]\n", t->name, w.path);
		if (talk_sees(t) != SEES)
			return true;
		put_between(t, text + at, w.at - at, at > 0);
		if (talk_image(t, w.path, &err)) {
			fprintf(stderr, "weft run: %s\n", err.msg);
			talk_shown_cut(t, before);
			return false;
		}
		fprintf(stderr, "[image %s]\n", w.path);
		at = w.at + w.n;
		*rest = text + at + strspn(text + at, " \t\n");
	}
	return true;
}

static void turn(struct chat *c, const char *text)
{
	if (!put_pictures(c->t, text, &text))
		return;
	note_turn(c);
	talk_message_put(c->t, "user", text, strlen(text));
	ask(c);
}

static void begin(struct chat *c)
{
	c->n_turn = 0;
	conversation_begin(c->t);
	talk_images_forget(c->t);
}

/* ---- commands ---- */

static void say_help(struct chat *c, const char *rest);

static void do_quit(struct chat *c, const char *rest)
{
	c->end = true;
}

static void do_new(struct chat *c, const char *rest)
{
	begin(c);
	puts("a new conversation");
}

static void do_undo(struct chat *c, const char *rest)
{
	if (!c->n_turn) {
		puts("nothing was said yet");
		return;
	}
	json_cut(c->t->messages, c->turn[--c->n_turn]);
	printf("the last of %d questions is taken back\n", c->n_turn + 1);
}

static void do_retry(struct chat *c, const char *rest)
{
	if (!c->n_turn) {
		puts("nothing was said yet");
		return;
	}
	json_cut(c->t->messages, c->turn[c->n_turn - 1] + 1);
	ask(c);
}

static void do_system(struct chat *c, const char *rest)
{
	struct talk *t = c->t;

	free(t->system);
	t->system = *rest ? xstrdup(rest) : NULL;
	t->o->run.system = t->system;
	begin(c);
	puts(*rest ? "a new conversation, with that system message" : "a new conversation, without a system message");
}

/* One option of answers, as on the command line. */
static void set_option(struct chat *c, const char *name, const char *value)
{
	struct talk *t = c->t;
	struct err err;
	int rc = options_set_answer(t->o, name, value, &err);

	if (!rc && !t->remote)
		rc = session_answer_options(&t->s, &t->o->load, &err);
	if (rc)
		fprintf(stderr, "weft run: %s\n", err.msg);
	else
		printf("%s is %s from the next answer on\n", name, value);
}

static void do_think(struct chat *c, const char *rest)
{
	if (*rest)
		set_option(c, "think", rest);
	else
		puts("/think on, or /think off");
}

static void do_set(struct chat *c, const char *rest)
{
	char name[40];
	size_t n = strcspn(rest, " ");

	if (!n || !rest[n] || n >= sizeof name) {
		puts("/set NAME VALUE, as /set temp 0.7; names are those of `weft run --help all` under Answers");
		return;
	}
	memcpy(name, rest, n);
	name[n] = '\0';
	set_option(c, name, rest + n + strspn(rest + n, " "));
}

/* An image for the text that follows, or for the next message. */
static void do_image(struct chat *c, const char *rest)
{
	struct talk *t = c->t;
	struct picture_word w;
	struct err err;

	picture_word(rest, &w);
	if (!w.n) {
		puts("/image PATH, or /image PATH TEXT; quotes or backslashes where the path has blanks");
	} else if (talk_sees(t) == SEES_NOT && t->remote) {
		fprintf(stderr, "weft run: %s reads text only\n", t->name);
	} else if (talk_image(t, w.path, &err)) {
		fprintf(stderr, "weft run: %s\n", err.msg);
	} else {
		rest += w.at + w.n;
		rest += strspn(rest, " \t\n");
		fprintf(stderr, "[image %s]\n", w.path);
		if (*rest)
			turn(c, rest);
		else
			puts("the next message shows it");
	}
}

static void save(struct chat *c, const char *rest, const char *mode)
{
	FILE *f = *rest ? fopen(rest, mode) : NULL;

	if (!*rest) {
		puts("/save FILE; /save! FILE replaces one that exists");
	} else if (!f) {
		fprintf(stderr, "weft run: cannot make %s: %m%s%s\n", rest,
		        errno == EEXIST ? "; this replaces it: /save! " : "", errno == EEXIST ? rest : "");
	} else {
		struct buf text;
		bool bad;

		buf_init(&text);
		json_put(&text, c->t->messages);
		bad = fprintf(f, "%s\n", text.p) < 0;
		buf_fini(&text);
		if (fclose(f) || bad)
			fprintf(stderr, "weft run: cannot write %s: %m\n", rest);
		else
			printf("%d question%s saved\n", c->n_turn, c->n_turn == 1 ? "" : "s");
	}
}

static void do_save(struct chat *c, const char *rest)
{
	save(c, rest, "wx");
}

static void do_replace(struct chat *c, const char *rest)
{
	save(c, rest, "w");
}

/* Whether each of list is a message with a role that is known and a text, or (parts) a list of parts, as images make them
 * where a server answers. */
static bool are_messages(const struct json *list, bool parts)
{
	static const char *const roles[] = { "system", "user", "assistant" };

	for (size_t i = 0; i < json_len(list); i++) {
		const char *role = json_str(json_get(json_at(list, i), "role"), NULL);
		const struct json *content = json_get(json_at(list, i), "content");
		bool known = false;

		for (int k = 0; role && k < 3; k++)
			known |= !strcmp(role, roles[k]);
		if (!known || !(json_str(content, NULL) || (parts && json_kind(content) == JSON_ARRAY)))
			return false;
	}
	return json_kind(list) == JSON_ARRAY;
}

static void take_messages(struct chat *c, const struct json *list)
{
	struct json *messages = json_new_array();

	json_free(c->t->messages);
	c->t->messages = messages;
	c->n_turn = 0;
	for (size_t i = 0; i < json_len(list); i++) {
		const struct json *m = json_at(list, i);

		if (!strcmp(json_str(json_get(m, "role"), NULL), "user"))
			note_turn(c);
		json_add(messages, json_share(m));
	}
	printf("%d questions loaded\n", c->n_turn);
}

static void do_load(struct chat *c, const char *rest)
{
	struct json *list = NULL;
	struct buf text;
	struct err err;

	buf_init(&text);
	if (!*rest)
		puts("/load FILE");
	else if (file_read(rest, FILE_MAX, &text, &err))
		fprintf(stderr, "weft run: %s\n", err.msg);
	else if (!(list = json_parse(text.p, text.n, 0, &err)))
		fprintf(stderr, "weft run: %s: %s\n", rest, err.msg);
	else if (!are_messages(list, c->t->remote))
		fprintf(stderr, "weft run: %s: is not a list of messages, each with role and content\n", rest);
	else
		take_messages(c, list);
	json_free(list);
	buf_fini(&text);
}

static const struct {
	const char *name, *also, *arg, *what;
	void (*run)(struct chat *c, const char *rest);
} commands_of_chat[] = {
	{ "/new", "/clear", "", "forget the conversation", do_new },
	{ "/system", NULL, "TEXT", "begin anew with this system message", do_system },
	{ "/undo", NULL, "", "take the last question and its answer back", do_undo },
	{ "/retry", NULL, "", "answer the last question again", do_retry },
	{ "/think", NULL, "on|off", "think before answers, where the model can", do_think },
	{ "/set", NULL, "NAME VALUE", "an option of answers, as /set temp 0.7", do_set },
	{ "/image", NULL, "PATH [TEXT]", "show an image; its path in a message does too", do_image },
	{ "/save", NULL, "FILE", "write the conversation to a new file", do_save },
	{ "/save!", NULL, "FILE", "the same, in place of a file that exists", do_replace },
	{ "/load", NULL, "FILE", "go on with a saved conversation", do_load },
	{ "/help", "/?", "", "this list", say_help },
	{ "/quit", "/exit", "", "end (so does Ctrl-D)", do_quit },
};
enum { COMMANDS = sizeof commands_of_chat / sizeof *commands_of_chat };

static void say_help(struct chat *c, const char *rest)
{
	for (int i = 0; i < COMMANDS; i++) {
		const char *also = commands_of_chat[i].also;

		printf("%-8s %-11s %s%s%s\n", commands_of_chat[i].name, commands_of_chat[i].arg,
		       commands_of_chat[i].what, also ? "; also " : "", also ? also : "");
	}
	puts("Ctrl-C stops an answer, Ctrl-R searches what was typed. A line that ends in \\ goes on in the\n"
	     "next, as does all between two lines of \"\"\"; pasted lines are one message.");
}

static bool is_word(const char *text, size_t n, const char *word)
{
	return word && strlen(word) == n && !memcmp(text, word, n);
}

/* Runs the command that text begins with; false: it is none, but a message. */
static bool command(struct chat *c, const char *text)
{
	size_t n = strcspn(text, " \n");
	struct picture_word w;

	if (*text != '/')
		return false;
	for (int i = 0; i < COMMANDS; i++)
		if (is_word(text, n, commands_of_chat[i].name) || is_word(text, n, commands_of_chat[i].also)) {
			commands_of_chat[i].run(c, text + n + strspn(text + n, " "));
			return true;
		}
	/* A path or a word of several lines is a message. */
	if (memchr(text + 1, '/', n - 1) || strchr(text, '\n') || (picture_next(text, 0, &w) && !w.at))
		return false;
	printf("%.*s: not known; /help lists what is\n", (int)n, text);
	return true;
}

/* ---- the loop ---- */

/* $XDG_STATE_HOME/weft/history or ~/.local/state/weft/history; NULL: nowhere. */
static char *history_path(void)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	struct err none;
	struct buf b;

	if (!(state && *state) && !(home && *home))
		return NULL;
	buf_init(&b);
	buf_printf(&b, "%s%s/weft", state && *state ? state : home, state && *state ? "" : "/.local/state");
	if (dir_make(b.p, &none)) {
		buf_fini(&b);
		return NULL;
	}
	buf_puts(&b, "/history");
	return buf_take(&b);
}

int converse(struct talk *t, struct err *err)
{
	struct chat c = { .t = t };
	char *history = history_path();
	struct buf text;
	int got, rc;

	if (!t->remote && !t->s.chat.tmpl) {
		free(history);
		return err_set(err, E_MISSING,
		               "%s has no chat template, so it cannot hold a conversation; -p TEXT lets it go on "
		               "with a text, --chat-template FILE gives it one",
		               t->s.store->name);
	}
	rc = console_open(&c.console, history, talk_interrupt, err);
	free(history);
	if (rc)
		return rc;
	buf_init(&text);
	talk_catch_interrupts(); /* until now it ended the program */
	if (!t->remote && model_is_bundled(&t->o->load))
		printf(BUNDLED_SAYS ".\n", t->name);
	printf("%s. /help lists what can be typed besides messages; Ctrl-D ends.\n", t->name);
	while (!c.end) {
		talk_forget_interrupt();
		got = console_read(c.console, &text);
		if (got <= 0)
			putchar('\n');
		if (!got)
			break;
		if (got > 0 && strspn(text.p, " \t\n") < text.n && !command(&c, text.p))
			turn(&c, text.p);
	}
	buf_fini(&text);
	free(c.turn);
	console_close(c.console);
	return 0;
}
