/* run.c - `weft run`: one answer, or a conversation in the terminal. */
#include <ctype.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/pull.h"
#include "cli/remote.h"
#include "cli/talk.h"

enum { STDIN_MAX = 64 << 20 }; /* bytes of a prompt from standard input */

/* ---- once ---- */

/* Whether something was piped or redirected into the program: not a terminal, and not what a
 * service manager or a script leaves open with nothing to come. */
static bool stdin_is_piped(void)
{
	struct stat st;

	return !fstat(STDIN_FILENO, &st) && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode));
}

/* The text of -p, then what is piped in, an empty line between them; one of them may be missing. */
static int read_question(struct talk *t, struct buf *text, struct err *err)
{
	const struct options *o = t->o;
	size_t n;
	int rc = 0;

	if (!o->run.prompt && isatty(STDIN_FILENO))
		fprintf(stderr, "weft run: type the question; Ctrl-D on a line of its own ends it\n");
	buf_puts(text, o->run.prompt ? o->run.prompt : "");
	if (o->run.prompt && *o->run.prompt)
		buf_puts(text, "\n\n");
	n = text->n;
	if (!o->run.prompt || stdin_is_piped())
		rc = file_read_fd(STDIN_FILENO, "standard input", STDIN_MAX, text, err);
	if (!rc && text->n == n && n) {
		text->n -= 2; /* nothing came: the text alone */
		text->p[text->n] = '\0';
	}
	t->nothing_asked = !rc && (!text->n || strspn(text->p, " \t\r\n") == text->n);
	if (t->nothing_asked)
		rc = err_set(err, E_ARG, "nothing was asked: -p TEXT and standard input are empty");
	return rc;
}

static int once(struct talk *t, struct err *err)
{
	struct tokens ids;
	struct buf text;
	int rc = 0;

	buf_init(&text);
	rc = read_question(t, &text, err);
	talk_catch_interrupts(); /* until now, reading too, it ended the program */
	if (!rc && (t->remote || t->s.chat.tmpl)) {
		talk_message_put(t, "user", text.p, text.n);
		rc = talk_ask(t, err);
	} else if (!rc && t->o->run.system) {
		rc = err_set(err, E_ARG,
		             "%s has no chat template, which --system-prompt needs; --chat-template FILE gives it one",
		             t->name);
	} else if (!rc) {
		/* No template: the model goes on with the text. */
		tokens_init(&ids);
		rc = tokenizer_encode(t->s.tok, text.p, text.n, TOKENIZE_AROUND, &ids, err);
		if (!rc)
			rc = talk_go_on(t, &ids, err);
		tokens_fini(&ids);
	}
	buf_fini(&text);
	return rc;
}

static bool is_on_disk(const char *model)
{
	struct buf at;
	bool found;

	buf_init(&at);
	found = store_locate(model, &at, NULL) != E_MISSING;
	buf_fini(&at);
	return found;
}

/* Whether the lone argument asks something, rather than naming a model here or at the server. */
static bool is_question(const struct options *o, const char *word)
{
	return strpbrk(word, " \t\n?") && (o->remote.url || !is_on_disk(word));
}

/* Whether a lone word that names no model may be a question: letters, as in `git diff | weft run Summarise`.  Names of models
 * nearly always have something else in them. */
static bool is_plain_word(const char *word)
{
	size_t n = 0;

	while (isalpha((unsigned char)word[n]) || (word[n] & 0x80))
		n++;
	return n && !word[n + strspn(word + n, ".!:")];
}

/* Whether the lone argument is a question when no model has that name: something is piped in, which it may be about. */
static bool may_be_question(const struct options *o)
{
	return o->said.text && !o->load.model && !o->run.prompt && !o->pull.wanted && is_plain_word(o->said.text) &&
	       stdin_is_piped();
}

/* Tells how to ask a question of one word, where the word was taken for a model's name. */
static void explain_word(const struct options *o, const struct err *err)
{
	if (o->said.text && o->load.model == o->said.text && is_plain_word(o->said.text) &&
	    (o->remote.url || err->code == E_MISSING))
		fprintf(stderr, "A question of one word is asked with -p: weft run -p '%s'\n", o->said.text);
}

/* The editor of lines drops the letters that the locale has no codes for, and where none is set those are all but ASCII. */
static void use_utf8(void)
{
	if ((setlocale(LC_CTYPE, "") && !strcmp(nl_langinfo(CODESET), "UTF-8")) || setlocale(LC_CTYPE, "C.UTF-8"))
		return;
	fprintf(stderr, "weft run: this system has no UTF-8 locale: letters beyond ASCII that are typed are lost\n");
}

int cmd_run(const struct options *given)
{
	struct options own = *given;
	const struct options *o = &own;
	struct talk t = { .o = &own };
	struct err err;
	bool unsure = may_be_question(o);
	int rc;

	own.said.owned = NULL; /* what the copy comes to own is its own */
	own.said.n_owned = 0;
	if (o->said.text &&
	    (o->load.model || is_question(o, o->said.text) || (unsure && !o->remote.url && !is_on_disk(o->said.text))))
		own.run.prompt = o->said.text;
	else if (o->said.text && !(unsure && o->remote.url))
		own.load.model = o->said.text;

	use_utf8();
	buf_init(&t.thinking);
	buf_init(&t.answer);
	t.err_tty = isatty(STDERR_FILENO);
	t.out_tty = isatty(STDOUT_FILENO);
	t.conversation = !o->run.prompt && isatty(STDIN_FILENO) && t.out_tty;
	if (o->remote.url)
		rc = remote_open(&t.remote, o, unsure ? o->said.text : NULL, &err);
	else if (!(rc = pull_if_missing(o, &err)))
		rc = session_open(&t.s, &o->load,
		                  LOAD_TOKENIZER | LOAD_TEMPLATE | LOAD_ENGINE |
		                          (o->run.images.n || t.conversation ? LOAD_TOWER : 0u) |
		                          (t.conversation ? LOAD_HUGE : 0u),
		                  &err);
	if (!rc) {
		if (t.remote && unsure && strcmp(remote_model(t.remote), o->said.text) != 0)
			own.run.prompt = o->said.text;
		t.name = t.remote ? remote_model(t.remote) : t.s.store->name;
		conversation_begin(&t);
		rc = talk_images(&t, &err);
		if (!rc)
			rc = t.conversation ? converse(&t, &err) : once(&t, &err);
		talk_images_end(&t);
		if (t.remote)
			remote_close(t.remote);
		else
			session_close(&t.s);
	}
	json_free(t.messages);
	buf_fini(&t.thinking);
	buf_fini(&t.answer);
	free(t.system);
	options_fini(&own);
	if (!rc)
		return 0;
	cli_fail("run", &err);
	explain_word(o, &err);
	return t.nothing_asked ? EXIT_USAGE : EXIT_WORK;
}
