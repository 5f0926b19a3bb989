/* talk.c - see talk.h.
 *
 * Standard output carries the answer and nothing else when it is one answer.  A
 * conversation is a list of messages that is rendered anew for each turn; that
 * most of it was computed before is the engine's business (kept prefixes). */
#include "host/load_image.h"
#include "cli/remote.h"
#include "cli/talk.h"
#include "server/images/images.h"
#include "vision/pixels/image.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/base64.h"
#include "base/log.h"
#include "base/rng.h"
#include "text/calls/dialect.h"

/* A server's answer that came within less came at once, and its tokens per second would mean nothing. */
#define RATE_SECONDS 0.1

/* ---- Ctrl-C ----
 *
 * The handler does its work on the main thread alone, which sets and clears the
 * pointer, so the request is there when the handler looks. */
static struct request *_Atomic answering;
static volatile sig_atomic_t interrupted;
static pthread_t main_thread;

static void on_interrupt(int sig)
{
	struct request *r;

	if (!pthread_equal(pthread_self(), main_thread)) {
		pthread_kill(main_thread, sig);
		return;
	}
	r = atomic_load(&answering);
	interrupted = 1;
	if (r)
		request_cancel(r);
}

/* Writing goes on behind an interrupt: stdio takes a broken write for a broken output. */
void talk_catch_interrupts(void)
{
	struct sigaction sa = { .sa_handler = on_interrupt, .sa_flags = SA_RESTART };

	sigemptyset(&sa.sa_mask);
	main_thread = pthread_self();
	sigaction(SIGINT, &sa, NULL);
}

bool talk_interrupted(void)
{
	return interrupted;
}

void talk_interrupt(void)
{
	interrupted = 1;
}

void talk_forget_interrupt(void)
{
	interrupted = 0;
}

/* ---- what is shown ---- */

static void line_clear(struct talk *t)
{
	if (t->line_used)
		fputs("\r\033[K", stderr);
	t->line_used = false;
}

/* Text of a model on a terminal: no byte of it may move the cursor about. */
static void show(struct talk *t, const char *p, size_t n)
{
	if (!t->out_tty) {
		fwrite(p, 1, n, stdout);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)p[i];

		putchar((c < 32 && c != '\n' && c != '\t') || c == 127 ? '?' : c);
	}
}

static void show_thought(struct talk *t, const char *p, size_t n)
{
	buf_put(&t->thinking, p, n);
	if (!t->conversation && !t->o->run.show_thinking) {
		if (t->err_tty) {
			fprintf(stderr, "\r\033[Kthinking: %zu characters", t->thinking.n);
			t->line_used = true;
		}
		return;
	}
	line_clear(t);
	if (t->said == SAID_NOTHING && t->out_tty)
		fputs("\033[2m", stdout); /* faint */
	t->said = SAID_THOUGHT;
	show(t, p, n);
	fflush(stdout);
}

static void thought_ends(struct talk *t)
{
	if (t->said != SAID_THOUGHT)
		return;
	fputs(t->out_tty ? "\033[0m\n\n" : "\n\n", stdout);
}

/* Colours are for terminals whose user wants some (no-color.org). */
static bool shows_markdown(const struct talk *t)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return t->out_tty && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

/* p NULL: the answer is over. */
static void show_marked(struct talk *t, const char *p, size_t n)
{
	struct buf in, out;
	struct winsize w;

	t->markdown.columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) ? 0 : w.ws_col;
	buf_init(&in);
	buf_init(&out);
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)p[i];

		buf_putc(&in, (char)((c < 32 && c != '\n' && c != '\t') || c == 127 ? '?' : c));
	}
	if (p)
		markdown_put(&t->markdown, in.p, in.n, &out);
	else
		markdown_end(&t->markdown, &out);
	fwrite(out.p, 1, out.n, stdout);
	buf_fini(&in);
	buf_fini(&out);
}

static void show_answer(struct talk *t, const char *p, size_t n)
{
	line_clear(t);
	thought_ends(t);
	t->said = SAID_ANSWER;
	buf_put(&t->answer, p, n);
	if (shows_markdown(t))
		show_marked(t, p, n);
	else
		show(t, p, n);
	fflush(stdout);
}

/* Shows the pieces of the answer that have become certain. */
static void show_pieces(struct talk *t)
{
	struct split *s = &t->split;

	for (int i = 0; i < s->n_piece; i++) {
		const struct piece *p = &s->piece[i];

		(p->kind == PIECE_THINKING ? show_thought : show_answer)(t, s->text.p + p->at, p->n);
	}
	split_taken(s);
}

static void show_progress(struct talk *t, const struct event *ev)
{
	if (!t->err_tty || ev->done == ev->total || ev->total - ev->cached <= t->s.step_rows)
		return;
	fprintf(stderr, "\r\033[Kreading the prompt: %d of %d tokens", ev->done, ev->total);
	fflush(stderr);
	t->line_used = true;
}

/* Nothing more comes of the answer: its line ends. */
static void answer_ends(struct talk *t)
{
	line_clear(t);
	if (t->said == SAID_ANSWER && shows_markdown(t))
		show_marked(t, NULL, 0);
	if (t->said == SAID_THOUGHT && t->out_tty)
		fputs("\033[0m", stdout);
	if (t->out_tty || t->said != SAID_NOTHING)
		putchar('\n');
	fflush(stdout);
}

/* Figures of an answer in brackets.  On a terminal they take one line: what has no room in it is left out, and so is all
 * after that. */
struct figures {
	struct buf line;
	size_t room; /* bytes of line, with what ends it */
	const char *end;
};

static void figures_begin(struct figures *f, const struct talk *t, bool stopped, bool cut)
{
	struct winsize w;

	f->end = stopped ? "; stopped]" : cut ? "; cut at the limit]" : "]";
	f->room = t->err_tty && !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col ? w.ws_col : SIZE_MAX;
	buf_init(&f->line);
	buf_putc(&f->line, '[');
}

__attribute__((format(printf, 2, 3))) static void figures_put(struct figures *f, const char *format, ...)
{
	char part[80];
	va_list args;

	va_start(args, format);
	vsnprintf(part, sizeof part, format, args);
	va_end(args);
	if (f->line.n + strlen(part) + strlen(f->end) > f->room)
		f->room = 0;
	else
		buf_puts(&f->line, part);
}

static void figures_end(struct figures *f, const struct talk *t)
{
	const char *end = f->line.n == 1 && *f->end == ';' ? f->end + 2 : f->end;

	if (f->line.n > 1 || end != f->end)
		fprintf(stderr, "%s%s%s%s\n", t->err_tty ? "\033[2m" : "", f->line.p, end, t->err_tty ? "\033[0m" : "");
	buf_fini(&f->line);
}

static void show_end(struct talk *t, const struct event *ev)
{
	struct figures f;
	double prefill = (double)ev->prefill_ns / 1e9, decode = (double)ev->decode_ns / 1e9;
	int n_read = ev->n_prompt - ev->n_cached;

	answer_ends(t);
	if (log_get_level() < LOG_WARN)
		return;
	figures_begin(&f, t, ev->finish == FINISH_CANCEL, ev->finish == FINISH_LENGTH);
	figures_put(&f, "prompt %d tokens, %d cached", ev->n_prompt, ev->n_cached);
	if (prefill > 0 && n_read > 0)
		figures_put(&f, ", %.1f/s", n_read / prefill);
	figures_put(&f, "; answer %d", ev->n_output);
	/* The first token's time belongs to the prompt. */
	if (decode > 0 && ev->n_output > 1)
		figures_put(&f, ", %.1f/s", (ev->n_output - 1) / decode);
	if (ev->n_accepted + ev->n_rejected)
		figures_put(&f, "; drafts %d of %d", ev->n_accepted, ev->n_accepted + ev->n_rejected);
	figures_end(&f, t);
}

/* ---- messages to tokens ---- */

struct talk_seen {
	struct sight sight;
	struct images images;
	/* The beginning of the next message of the user: text with marks, or, for a remote model, parts. */
	struct buf shown;
	struct json *parts;
};

void talk_text(struct talk *t, const char *text, size_t n)
{
	struct json *part;

	if (!t->remote) {
		buf_put(&t->seen->shown, text, n);
	} else if (n) {
		part = json_new_object();
		json_set_cstr(part, "type", "text");
		json_set(part, "text", json_new_bytes(text, n));
		json_add(t->seen->parts, part);
	}
}

/* The content of a message of the user that begins with what waits. */
static struct json *content_shown(struct talk *t, const char *text, size_t n)
{
	struct talk_seen *seen = t->seen;
	struct json *content;

	talk_text(t, text, n);
	if (t->remote) {
		content = seen->parts;
		seen->parts = json_new_array();
	} else {
		content = json_new_bytes(seen->shown.p, seen->shown.n);
		buf_reset(&seen->shown);
	}
	return content;
}

void talk_message_put(struct talk *t, const char *role, const char *text, size_t n)
{
	struct json *m = json_new_object();
	bool shown = t->seen && talk_shown(t) && !strcmp(role, "user");

	json_set_cstr(m, "role", role);
	json_set(m, "content", shown ? content_shown(t, text, n) : json_new_bytes(text, n));
	json_add(t->messages, m);
}

/* As servers take them: a data URL. */
static int put_remote_image(struct talk *t, const char *path, struct err *err)
{
	struct json *part, *image;
	struct buf file, url;
	int rc;

	buf_init(&file);
	buf_init(&url);
	rc = file_read(path, image_limits_default.bytes, &file, err);
	if (!rc) {
		buf_puts(&url, "data:image/");
		buf_puts(&url, file.n && (uint8_t)file.p[0] == 0xff ? "jpeg" : "png"); /* servers look at the bytes */
		buf_puts(&url, ";base64,");
		base64_put(&url, file.p, file.n);
		image = json_new_object();
		json_set_str(image, "url", url.p, url.n);
		part = json_new_object();
		json_set_cstr(part, "type", "image_url");
		json_set(part, "image_url", image);
		json_add(t->seen->parts, part);
	}
	buf_fini(&file);
	buf_fini(&url);
	return rc;
}

enum sees talk_sees(const struct talk *t)
{
	if (t->remote)
		return remote_sees(t->remote);
	return t->s.tower ? SEES : SEES_NOT;
}

int talk_image(struct talk *t, const char *path, struct err *err)
{
	struct media *m;
	int rc;

	if (t->remote)
		return put_remote_image(t, path, err);
	if ((rc = media_of_file(&t->s, path, &m, err)))
		return rc;
	if (images_take(&t->seen->images, m, &t->seen->shown))
		rc = err_set(err, E_LIMIT, "%s is one image more than the %d that a conversation may hold", path,
		             IMAGES_MAX);
	return rc;
}

size_t talk_shown(const struct talk *t)
{
	return t->remote ? json_len(t->seen->parts) : t->seen->shown.n;
}

void talk_shown_cut(struct talk *t, size_t n)
{
	struct buf *shown = &t->seen->shown;

	if (t->remote) {
		json_cut(t->seen->parts, n);
		return;
	}
	shown->n = n;
	if (shown->p)
		shown->p[n] = '\0';
}

int talk_images(struct talk *t, struct err *err)
{
	int rc = 0;

	t->seen = xcalloc(1, sizeof *t->seen);
	buf_init(&t->seen->shown);
	t->seen->parts = json_new_array();
	t->seen->images.sight = &t->seen->sight;
	for (int i = 0; i < t->o->run.images.n && !rc; i++)
		rc = talk_image(t, t->o->run.images.v[i], err);
	return rc;
}

void talk_images_forget(struct talk *t)
{
	if (!t->seen || talk_shown(t))
		return;
	images_fini(&t->seen->images);
	t->seen->images.sight = &t->seen->sight;
}

void talk_images_end(struct talk *t)
{
	if (!t->seen)
		return;
	images_fini(&t->seen->images);
	buf_fini(&t->seen->shown);
	json_free(t->seen->parts);
	free(t->seen);
	t->seen = NULL;
}

void talk_answer_put(struct talk *t)
{
	struct json *m = json_new_object();

	json_set_cstr(m, "role", "assistant");
	json_set(m, "content", json_new_bytes(t->answer.p, t->answer.n));
	if (t->thinking.n)
		json_set(m, "reasoning_content", json_new_bytes(t->thinking.p, t->thinking.n));
	json_add(t->messages, m);
}

static int encode(const struct tokenizer *tok, const struct template_output *out, struct tokens *ids, struct err *err)
{
	struct text_range *user = xcalloc(out->n_runs + 1, sizeof(*user));
	size_t n = 0, at = 0;
	int rc;

	for (size_t i = 0; i < out->n_runs; at = out->runs[i++].end)
		if (out->runs[i].user && out->runs[i].end > at)
			user[n++] = (struct text_range){ at, out->runs[i].end };
	rc = tokenizer_encode_ranges(tok, out->text.p, out->text.n, TOKENIZE_SPECIAL, user, n, ids, err);
	free(user);
	return rc;
}

/* The conversation as tokens; *mark is where the part ends that the next turn
 * will begin with too.  *thinks: the answer begins inside a thought. */
static int render(struct talk *t, struct tokens *ids, int *mark, bool *thinks, struct err *err)
{
	struct template_output out;
	struct template_input in;
	struct tokens bare;
	struct problem problem = { 0 };
	struct json *parts = images_parts(&t->seen->images, t->messages, &problem);
	int rc;

	if (!parts && problem.status)
		return err_set(err, E_MISSING, "%s", problem.message);
	tokens_init(&bare);
	template_output_init(&out);
	in = (struct template_input){ .messages = parts ? parts : t->messages,
		                      .extra = t->s.chat.args,
		                      .bos_token = t->s.chat.bos,
		                      .eos_token = t->s.chat.eos,
		                      .now = (int64_t)time(NULL) };
	rc = template_render(t->s.chat.tmpl, &in, &out, err);
	if (!rc)
		rc = encode(t->s.tok, &out, &bare, err);
	in.add_generation_prompt = true;
	if (!rc)
		rc = template_render(t->s.chat.tmpl, &in, &out, err);
	if (!rc)
		rc = encode(t->s.tok, &out, ids, err);
	if (!rc) {
		*mark = 0;
		while ((size_t)*mark < bare.n && (size_t)*mark < ids->n && bare.id[*mark] == ids->id[*mark])
			++*mark;
		*thinks = split_opens(speech_of(t->s.chat.tmpl), out.text.p, out.text.n);
		if (images_expand(&t->seen->images, ids, &(struct image_places){ mark, 1 }, 1, &problem))
			rc = err_set(err, E_ARG, "%s", problem.message);
	}
	tokens_fini(&bare);
	template_output_fini(&out);
	json_free(parts);
	return rc;
}

/* ---- an answer ---- */

/* A conversation goes on after an answer that was stopped; where the output is closed, cli_main says why. */
static int stopped(const struct talk *t, struct err *err)
{
	return t->conversation || ferror(stdout) ? 0 : err_set(err, E_GONE, "stopped");
}

static int listen_to(struct talk *t, struct request *r, struct err *err)
{
	struct event ev;
	int rc = 0;

	while (request_wait(r, &ev)) {
		if (ev.kind == EV_PROGRESS)
			show_progress(t, &ev);
		if (ev.kind != EV_TOKEN && ev.kind != EV_DONE)
			continue;
		split_put(&t->split, ev.text, ev.n_text);
		show_pieces(t);
		if (ferror(stdout))
			request_cancel(r);
		if (ev.kind != EV_DONE)
			continue;
		split_end(&t->split);
		show_pieces(t);
		if (ev.finish == FINISH_ERROR) {
			*err = ev.err;
			rc = ev.err.code;
			if (t->said != SAID_NOTHING)
				answer_ends(t);
			line_clear(t);
		} else {
			show_end(t, &ev);
		}
		if (ev.finish == FINISH_CANCEL)
			rc = stopped(t, err);
	}
	return rc;
}

static int answer(struct talk *t, const struct tokens *ids, int mark, bool thinks, struct err *err)
{
	const struct speech *speech = t->s.chat.tmpl ? speech_of(t->s.chat.tmpl) : &speech_plain;
	struct ask ask = {
		.prompt = ids->id,
		.n_prompt = (int)ids->n,
		.span = t->seen->images.span,
		.n_span = t->seen->images.n_span,
		.max_tokens = t->o->max_tokens < 0 ? INT_MAX : t->o->max_tokens,
		.sampling = t->s.sampling,
		.stop_token = t->s.chat.eos_id,
		.n_stop_token = t->s.chat.n_eos,
		.skip_special = speech == &speech_plain,
		.mark = &mark,
		.n_mark = mark > 0,
		/* A single answer is not returned to, so its prompt need not stop where a state is worth keeping. */
		.no_cache = !t->conversation && !t->o->load.disk.dir,
	};
	struct request *r;
	int rc;

	ask.adapters = loaded_ask(&t->s.adapters);
	ask.sampling.seed = t->o->seed < 0 ? rng_os_seed() : (uint64_t)t->o->seed;
	split_init(&t->split, thinks, NULL, NULL);
	t->split.speech = speech;
	buf_reset(&t->thinking);
	buf_reset(&t->answer);
	t->said = SAID_NOTHING;
	rc = engine_submit(t->s.engine, &ask, &r, err);
	if (!rc) {
		atomic_store(&answering, r);
		if (interrupted)
			request_cancel(r);
		rc = listen_to(t, r, err);
		atomic_store(&answering, NULL);
		request_free(r);
	}
	split_fini(&t->split);
	return rc;
}

/* ---- an answer from elsewhere ---- */

static void remote_shown(void)
{
	if (ferror(stdout))
		interrupted = 1;
}

static void remote_thinking(void *arg, const char *p, size_t n)
{
	show_thought(arg, p, n);
	remote_shown();
}

static void remote_content(void *arg, const char *p, size_t n)
{
	show_answer(arg, p, n);
	remote_shown();
}

static void remote_progress(void *arg, int done, int total)
{
	struct talk *t = arg;

	if (!t->err_tty || done >= total)
		return;
	fprintf(stderr, "\r\033[Kreading the prompt: %d of %d tokens", done, total);
	fflush(stderr);
	t->line_used = true;
}

static void remote_end(struct talk *t, const struct remote_answer *a)
{
	const double seconds = a->whole - a->first;
	struct figures f;

	answer_ends(t);
	if (log_get_level() < LOG_WARN)
		return;
	figures_begin(&f, t, a->stopped, a->cut);
	if (a->n_prompt >= 0)
		figures_put(&f, "prompt %d tokens, %d cached; answer %d, ", a->n_prompt,
		            a->n_cached < 0 ? 0 : a->n_cached, a->n_output);
	figures_put(&f, "first after %.2f s", a->first);
	if (a->n_output > 1 && seconds >= RATE_SECONDS)
		figures_put(&f, ", %.1f/s", (a->n_output - 1) / seconds);
	figures_end(&f, t);
}

static int answer_remote(struct talk *t, struct err *err)
{
	struct remote_answer a = { .thinking = remote_thinking,
		                   .content = remote_content,
		                   .progress = remote_progress,
		                   .arg = t,
		                   .stop = &interrupted };
	int rc;

	buf_reset(&t->thinking);
	buf_reset(&t->answer);
	t->said = SAID_NOTHING;
	rc = remote_ask(t->remote, t->messages, &a, err);
	if (rc) {
		if (t->said != SAID_NOTHING)
			answer_ends(t);
		line_clear(t);
		return rc;
	}
	remote_end(t, &a);
	/* The server has its own way with thoughts of the past. */
	buf_reset(&t->thinking);
	return a.stopped ? stopped(t, err) : 0;
}

int talk_ask(struct talk *t, struct err *err)
{
	if (t->remote)
		return answer_remote(t, err);

	struct tokens ids;
	bool thinks = false;
	int mark = 0, rc;

	tokens_init(&ids);
	rc = render(t, &ids, &mark, &thinks, err);
	if (!rc)
		rc = answer(t, &ids, mark, thinks, err);
	tokens_fini(&ids);
	return rc;
}

int talk_go_on(struct talk *t, const struct tokens *ids, struct err *err)
{
	return answer(t, ids, 0, false, err);
}
