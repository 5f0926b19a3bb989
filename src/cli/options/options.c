/* options.c - from words, the environment and a file to struct options; see cli.h. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/redis.h"
#include "cli/options/option_table.h"
#include "cli/options/several_options.h"
#include "server/server.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

/* ---- values ---- */

static void *field(struct options *o, size_t at)
{
	return (char *)o + at;
}

static int number(const char *text, double *out)
{
	char *end;

	errno = 0;
	*out = strtod(text, &end);
	return *text && !*end && !errno && isfinite(*out) ? 0 : E_ARG;
}

static int integer(const char *text, int64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoll(text, &end, 10);
	return *text && !*end && !errno ? 0 : E_ARG;
}

/* Keeps p for release, in the place of what an option given before has left. */
static void *own(struct options *o, void *before, void *p)
{
	int i = 0;

	while (i < o->said.n_owned && (!before || o->said.owned[i] != before))
		i++;
	if (i < o->said.n_owned)
		free(before);
	else
		o->said.owned = xrealloc(o->said.owned, (size_t)++o->said.n_owned * sizeof *o->said.owned);
	o->said.owned[i] = p;
	return p;
}

static int ints(struct options *o, const struct option *op, const char *text, struct err *err)
{
	struct ints *out = field(o, op->at);
	int n = 1, i = 0;
	char *copy, *save, *word;

	for (const char *p = text; *p; p++)
		n += *p == ',';
	out->v = own(o, out->v, xcalloc((size_t)n, sizeof(*out->v)));
	out->n = n;
	copy = xstrdup(text);
	for (word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		int64_t v;

		if (integer(word, &v) || (double)v < op->min || (double)v > op->max)
			break;
		out->v[i++] = (int)v;
	}
	free(copy);
	return i == n ? 0 :
	                err_set(err, E_ARG, "--%s: '%s' is not a list of numbers from %.0f, as 1,7,64", op->name, text,
	                        op->min);
}

static void texts(struct options *o, const struct option *op, const char *text)
{
	struct texts *all = field(o, op->at);
	const char **v;

	/* A list from a later source replaces that of an earlier one: the file, then variables, then the command line. */
	if (all->source != o->said.source)
		all->n = 0;
	all->source = o->said.source;
	v = xcalloc((size_t)all->n + 1, sizeof *v);

	if (all->n)
		memcpy(v, all->v, (size_t)all->n * sizeof *v);
	v[all->n++] = text;
	all->v = own(o, all->v, v);
}

static int choice(const struct option *op, const char *text, struct options *o, struct err *err)
{
	enum cpu_level level;

	if (op->kind == K_CPU) {
		if (cpu_level_parse(text, &level, err))
			return err_prefix(err, "--%s", op->name);
		*(struct choices *)field(o, op->at) = choices_all(level);
		o->said.cpu_said = true;
		return 0;
	}
	if (op->kind == K_LOG) {
		if (log_parse_level(text, field(o, op->at)))
			return err_set(err, E_ARG, "--%s: '%s' is not error, warn, info or debug", op->name, text);
		return 0;
	}
	if (op->kind == K_LOG_FORMAT && (!strcmp(text, "text") || !strcmp(text, "json"))) {
		*(enum log_format *)field(o, op->at) = *text == 'j' ? LOG_JSON : LOG_TEXT;
		return 0;
	}
	if (op->kind == K_REPLAY && (!strcmp(text, "off") || !strcmp(text, "text") || !strcmp(text, "all"))) {
		*(int *)field(o, op->at) = *text == 'o' ? REPLAY_OFF : *text == 't' ? REPLAY_TEXT : REPLAY_ALL;
		return 0;
	}
	if (op->kind == K_ARITH && (!strcmp(text, "f32") || !strcmp(text, "fast"))) {
		*(enum arith *)field(o, op->at) = text[1] == '3' ? ARITH_F32 : ARITH_FAST;
		return 0;
	}
	if (op->kind == K_AGAINST && (!strcmp(text, "bf16") || !strcmp(text, "exact") || !strcmp(text, "none"))) {
		*(enum against *)field(o, op->at) = *text == 'b' ? AGAINST_BF16 :
		                                    *text == 'e' ? AGAINST_EXACT :
		                                                   AGAINST_NONE;
		return 0;
	}
	if (op->kind == K_TABLES && (!strcmp(text, "auto") || !strcmp(text, "memory") || !strcmp(text, "disk"))) {
		*(enum tables *)field(o, op->at) = *text == 'a' ? TABLES_AUTO :
		                                   *text == 'm' ? TABLES_MEMORY :
		                                                  TABLES_DISK;
		return 0;
	}
	if (op->kind == K_DRAFT) {
		static const char *const name[] = { "none", "ngram", "grammar", "model", "head", "auto" };

		for (int i = DRAFT_NONE; i <= DRAFT_AUTO; i++)
			if (!strcmp(text, name[i])) {
				*(enum draft_kind *)field(o, op->at) = (enum draft_kind)i;
				return 0;
			}
		if (!strcmp(text, "mtp")) { /* what it was called while there was one kind of head */
			*(enum draft_kind *)field(o, op->at) = DRAFT_HEAD;
			return 0;
		}
	}
	if (op->kind == K_THINK && (!strcmp(text, "on") || !strcmp(text, "off"))) {
		*(enum think *)field(o, op->at) = text[1] == 'n' ? THINK_ON : THINK_OFF;
		return 0;
	}
	return err_set(err, E_ARG, "--%s: '%s' is not one of %s", op->name, text, op->arg);
}

/* text NULL: the option is on the command line without a value. */
static int flag(const char *text, bool *out)
{
	static const char *const yes[] = { "true", "on", "yes", "1" }, *const no[] = { "false", "off", "no", "0" };

	*out = !text;
	for (int i = 0; text && i < 4; i++) {
		if (!strcasecmp(text, yes[i]))
			*out = true;
		else if (strcasecmp(text, no[i]))
			continue;
		return 0;
	}
	return text ? E_ARG : 0;
}

static int set(struct options *o, const struct option *op, const char *text, struct err *err)
{
	void *at = field(o, op->at);
	int64_t i;
	double d;

	switch (op->kind) {
	case K_FLAG:
		if (flag(text, at))
			return err_set(err, E_ARG, "--%s: '%s' is neither true nor false", op->name, text);
		break;
	case K_HELP:
		o->said.help = true;
		o->said.help_topic = text;
		break;
	case K_TEXT: *(const char **)at = text; break;
	case K_INT:
	case K_INT64:
		if (integer(text, &i) || (double)i < op->min || (double)i > op->max)
			return err_set(err, E_ARG, "--%s: '%s' is not a whole number from %.0f to %.0f", op->name, text,
			               op->min, op->max);
		if (op->kind == K_INT)
			*(int *)at = (int)i;
		else
			*(int64_t *)at = i;
		break;
	case K_DOUBLE:
		if (number(text, &d) || d < op->min || d > op->max)
			return err_set(err, E_ARG, "--%s: '%s' is not a number from %g to %g", op->name, text, op->min,
			               op->max);
		*(double *)at = d;
		break;
	case K_SIZE:
		if (host_size(text, at))
			return err_set(err, E_ARG, "--%s: '%s' is not a size, as 500M or 2G", op->name, text);
		break;
	case K_INTS: return ints(o, op, text, err);
	case K_TEXTS: texts(o, op, text); break;
	default: return choice(op, text, o, err);
	}
	if (op->set_at != 0)
		*(bool *)field(o, op->set_at) = true;
	return 0;
}

/* ---- the command line ---- */

static const struct option *find_option(const struct command *c, const char *word, size_t n, bool is_long)
{
	for (int i = 0; i < n_options; i++) {
		const struct option *op = &option_table[i];

		if (!option_is_of(op, c->bit))
			continue;
		if (is_long ? option_named(word, n, op->name) || option_named(word, n, op->also) :
		              option_named(word, n, op->letter))
			return op;
	}
	return NULL;
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

/* Letters to change, add, leave out or exchange with the next one, to make b of a. */
static int distance(const char *a, const char *b)
{
	enum { LONGEST = 40 };
	int row[3][LONGEST + 1] = { { 0 } }, n = (int)strlen(b), m = (int)strlen(a);

	if (n > LONGEST || m > LONGEST)
		return LONGEST;
	for (int j = 0; j <= n; j++)
		row[0][j] = j;
	for (int i = 1; i <= m; i++) {
		int *now = row[i % 3], *before = row[(i + 2) % 3], *earlier = row[(i + 1) % 3];

		now[0] = i;
		for (int j = 1; j <= n; j++) {
			now[j] = least(before[j - 1] + (a[i - 1] != b[j - 1]), 1 + least(before[j], now[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				now[j] = least(now[j], earlier[j - 2] + 1);
		}
	}
	return row[m % 3][n];
}

/* Whether a word that is d letters from a name may be meant for it: a quarter of the letters at most are wrong, and the first is
 * right unless all others are. */
static bool is_near(const char *word, const char *name, int d)
{
	size_t longer = strlen(word) > strlen(name) ? strlen(word) : strlen(name);

	return 4 * (size_t)d <= longer && (d <= 1 || *word == *name);
}

const char *closest(const char *word, const char *const *name, int n)
{
	const char *best = NULL;
	int best_at = INT_MAX;

	for (int i = 0; i < n; i++) {
		bool begins = strlen(word) > 2 && !strncmp(word, name[i], strlen(word));
		int d = begins ? 1 : distance(word, name[i]);

		if (d < best_at && (begins || is_near(word, name[i], d))) {
			best = name[i];
			best_at = d;
		}
	}
	return best;
}

/* The option that NAME[=VALUE] after --tune means, and its value (NULL: none); NULL when there is none. */
static const struct option *tuned(const struct command *c, const char *word, const char **value)
{
	size_t n = strcspn(word, "=");

	*value = word[n] ? word + n + 1 : NULL;
	for (int i = 0; i < n_options; i++) {
		const struct option *op = &option_table[i];

		if (option_is_tuning(op, c->bit) &&
		    (option_named(word, n, op->name) || option_named(word, n, op->also)))
			return op;
	}
	return NULL;
}

/* Puts the option that --tune names in the place of --tune; any other option stays. */
static int resolve(const struct command *c, const struct option **op, const char **text, struct err *err)
{
	const char *word = *text;

	if ((*op)->kind != K_TUNE)
		return 0;
	*op = tuned(c, word, text);
	if (!*op)
		return err_set(err, E_ARG, "--tune: '%.*s' is not one of the names that `weft %s --help tune` lists",
		               (int)strcspn(word, "="), word, c->name);
	if ((*op)->arg && !*text)
		return err_set(err, E_ARG, "--tune %s needs a value: --tune %s=%s", word, word, (*op)->arg);
	return 0;
}

/* The weft option to use in place of another program's; NULL: the name is not such an option. */
static const char *foreign_option(const char *name)
{
	static const struct {
		const char *names, *instead;
	} table[] = {
		{ "ngl gpu-layers n-gpu-layers",
		  "--device chooses the processor or a GPU; a GPU computes the whole model" },
		{ "hf hf-repo hfr hf-file",
		  "`weft serve NAME --pull` fetches the model and serves it, `weft pull NAME` only fetches it" },
		{ "jinja", "chat templates are always read as Jinja" },
		{ "cb cont-batching enable-chunked-prefill", "requests always run together" },
		{ "fa flash-attn", "attention always runs in blocks" },
		{ "slots", "GET /slots is always there" },
		{ "ssl-key-file ssl-cert-file ssl-keyfile ssl-certfile", "a proxy speaks TLS (docs/http-api.md)" },
		{ "log-file", "the log goes to standard error: 2> FILE" },
		{ "pid-file pidfile", "a service manager or the shell knows the process; --port-file names the port" },
		{ "context n-ctx context-length max-seq-len", "--ctx-size is the length of a context" },
		{ "model-path", "--model, or MODEL by itself" },
		{ "dtype",
		  "weights are computed in the format that they are stored in; `weft quantize` writes others" },
		{ "embedding embeddings", "POST /v1/embeddings is always there" },
		{ "no-mmap mmap", "weights are moved into memory of the process where there is room" },
		{ "trust-remote-code", "weft runs no code of a model" },
		{ "mlock", "weights are moved into memory of the process where there is room" },
		{ "ctk ctv cache-type-k cache-type-v", "--kv-bits chooses the format of the cache" },
		{ "enable-prefix-caching cache-prompt", "prefixes are always kept; --prompt-cache-bytes bounds them" },
		{ "tensor-parallel-size tp", "one machine computes, on its processor or on one GPU (--device)" },
		{ "gpu-memory-utilization", "--memory bounds all memory" },
		{ "lora-scaled", "--lora NAME=PATH,SCALE" },
		{ "enable-lora", "--lora NAME=PATH loads an adapter" },
		{ "no-mmproj", "--mmproj none" },
		{ "served-model-name", "--alias names the model in the API" },
		{ "reasoning-format reasoning-parser tool-call-parser enable-auto-tool-choice",
		  "thinking and tool calls are found by the model's template" },
	};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (option_named(name, strlen(name), table[i].names))
			return table[i].instead;
	return NULL;
}

static int unknown(const struct command *c, const char *word, struct err *err)
{
	const char *name[OPTION_MAX], *hint, *others = NULL, *foreign;
	const char *bare = word + strspn(word, "-");
	size_t len = strcspn(bare, "=");
	int n = 0;
	char *plain = xstrndup(bare, len);
	const char *value;
	const struct option *tuning = tuned(c, bare, &value);

	for (int i = 0; i < n_options; i++)
		if (option_is_of(&option_table[i], c->bit))
			name[n++] = option_table[i].name;
		else if (!(option_table[i].commands & c->bit) && !strcmp(option_table[i].name, plain))
			others = option_table[i].name;
	foreign = others ? NULL : foreign_option(plain);
	hint = closest(plain, name, n);
	free(plain);
	if (tuning)
		return err_set(err, E_ARG, "%.*s is given as --tune %s%s%s", (int)strcspn(word, "="), word,
		               tuning->name, tuning->arg ? "=" : "", tuning->arg ? tuning->arg : "");
	if (foreign)
		return err_set(err, E_ARG, "%.*s is not an option of weft: %s", (int)strcspn(word, "="), word, foreign);
	if (others)
		return err_set(err, E_ARG, "%.*s is not an option of `weft %s`, but of another command",
		               (int)strcspn(word, "="), word, c->name);
	if (hint)
		return err_set(err, E_ARG, "unknown option %.*s; did you mean --%s?", (int)strcspn(word, "="), word,
		               hint);
	return err_set(err, E_ARG, "unknown option %.*s", (int)strcspn(word, "="), word);
}

/* The command line: options and their values, in order, and words. */
struct words {
	struct {
		const struct option *op;
		const char *text; /* NULL: the option takes no value */
	} * option;
	int n_option;
	const char **word;
	int n_word;
};

/* One option at argv[i]; how many words it takes, or a code. */
static int take_word(const struct command *c, int argc, char **argv, int i, struct words *w, struct err *err)
{
	bool is_long = argv[i][1] == '-';
	const char *word = argv[i] + 1 + is_long, *eq = strchr(word, '=');
	size_t n = eq ? (size_t)(eq - word) : strlen(word);
	const struct option *op = find_option(c, word, n, is_long);
	const char *text = eq ? eq + 1 : op && op->arg && i + 1 < argc ? argv[i + 1] : NULL;
	bool follows = text && !eq;
	int rc;

	if (!op)
		return unknown(c, argv[i], err);
	if (op->kind == K_HELP && (!text || (strcmp(text, "all") && strcmp(text, "tune")))) {
		text = NULL;
		follows = false;
	} else if (!op->arg && eq) {
		return err_set(err, E_ARG, "%s: --%s takes no value", argv[i], op->name);
	} else if (op->arg && !text) {
		return err_set(err, E_ARG, "%s needs a value: --%s %s", argv[i], op->name, op->arg);
	}
	rc = resolve(c, &op, &text, err);
	if (rc)
		return rc;
	w->option[w->n_option].op = op;
	w->option[w->n_option++].text = text;
	return follows ? 2 : 1;
}

static int one_too_many(const struct command *c, const char *word, struct err *err)
{
	return err_set(err, E_ARG, "'%s' is one argument too many (usage: weft %s%s%s)", word, c->name,
	               *c->args ? " " : "", c->args);
}

/* Divides the command line into options and words, without looking at values. */
static int divide(const struct command *c, int argc, char **argv, struct words *w, struct err *err)
{
	int word_max = c->bit & (CMD_SERVE | CMD_CACHE)               ? argc :
	               c->bit & (CMD_TOKENIZE | CMD_RUN | CMD_AGENTS) ? 2 :
	                                                                1,
	    used;
	bool only_words = false;

	for (int i = 0; i < argc; i += used) {
		used = 1;
		if (!only_words && !strcmp(argv[i], "--")) {
			only_words = true;
		} else if (!only_words && argv[i][0] == '-' && argv[i][1]) {
			used = take_word(c, argc, argv, i, w, err);
			if (used < 0)
				return used;
		} else if (w->n_word == word_max) {
			return one_too_many(c, argv[i], err);
		} else {
			w->word[w->n_word++] = argv[i];
		}
	}
	return 0;
}

/* ---- the environment and the file ---- */

/* WEFT_KV_BITS of "kv-bits".  The model's variable counts only where no option or word
 * names a model, and is read there (load.c). */
static int set_from_environment(const struct command *c, struct options *o, struct err *err)
{
	for (int i = 0; i < n_options; i++) {
		const struct option *op = &option_table[i];
		char name[64] = "WEFT_";
		const char *text;
		size_t n = strlen(name);
		int rc;

		if (!(op->commands & c->bit) || op->kind == K_HELP || !strcmp(op->name, "model"))
			continue;
		for (const char *p = op->name; *p && n + 1 < sizeof name; p++)
			name[n++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
		name[n] = 0;
		text = getenv(name);
		rc = text && *text ? resolve(c, &op, &text, err) : 0;
		if (!rc && text && *text)
			rc = set(o, op, text, err);
		if (rc)
			return err_prefix(err, "the variable %s", name);
	}
	return 0;
}

/* A # after a blank begins a comment, but not in a value between quotes. */
static void cut_comment(char *value)
{
	char *at = value;

	if ((*at == '"' || *at == '\'') && strchr(at + 1, *at))
		at = strchr(at + 1, *at) + 1;
	while ((at = strchr(at, '#')) && at > value && !strchr(" \t", at[-1]))
		at++;
	if (at)
		*at = 0;
}

static void trim(char *text)
{
	size_t n = strlen(text);

	while (n && strchr(" \t\r", text[n - 1]))
		text[--n] = 0;
}

int options_split_line(char *line, char **name_out, char **value_out, struct err *err)
{
	char *name = line + strspn(line, " \t\r"), *end = name + strcspn(name, " \t\r="), *text = end;
	size_t n;

	*name_out = NULL;
	if (!*name || *name == '#')
		return 0;
	text += strspn(text, " \t\r");
	if (*text && *text != '=' && *text != '#') {
		cut_comment(text);
		trim(text);
		return err_set(err, E_ARG,
		               "'%.60s' has no =; a line is NAME = VALUE, or a NAME alone that switches something on",
		               name);
	}
	if (*text == '=')
		text += 1 + strspn(text + 1, " \t\r");
	*end = 0;
	cut_comment(text);
	trim(text);
	n = strlen(text);
	if (n > 1 && (*text == '"' || *text == '\'') && text[n - 1] == *text) {
		text[n - 1] = 0;
		text++;
	}
	*name_out = name;
	*value_out = text;
	return 0;
}

int options_set_line(const struct command *c, struct options *o, char *name, char *text, struct err *err)
{
	const char *value;
	int rc;

	for (int i = 0, known = 0; i <= n_options; i++) {
		const struct option *op = &option_table[i];

		if (i == n_options)
			return known ? 0 : unknown(c, name, err); /* of another command: a file may serve several */
		if (!option_named(name, strlen(name), op->name) && !option_named(name, strlen(name), op->also))
			continue;
		known = 1;
		if (option_is_tuning(op, c->bit) && !option_is_of(op, c->bit))
			return unknown(c, name, err);
		if (!option_is_of(op, c->bit) || op->kind == K_HELP || op->at == offsetof(struct options, said.config))
			continue;
		if (!*text && op->kind != K_FLAG)
			return err_set(err, E_ARG, "%s needs a value: %s = %s", name, name, op->arg);
		value = *text ? text : NULL;
		rc = resolve(c, &op, &value, err);
		return rc ? rc : set(o, op, value, err);
	}
	return 0;
}

int options_read_file(struct options *o, const char *path, char **text, struct err *err)
{
	struct buf b;
	int rc;

	buf_init(&b);
	rc = file_read(path, CONFIG_BYTES_MAX, &b, err);
	if (!rc && b.n && memchr(b.p, 0, b.n))
		rc = err_set(err, E_FORMAT, "%s: a byte 0 in it; options are lines of plain text", path);
	if (rc)
		buf_fini(&b);
	else
		*text = own(o, NULL, buf_take(&b));
	return rc;
}

char *options_next_line(char *line)
{
	char *end = strchr(line, '\n');

	if (end)
		*end++ = 0;
	return end;
}

bool options_at_section(const char *line)
{
	return line[strspn(line, " \t")] == '[';
}

static int set_from_file(const struct command *c, struct options *o, const char *path, struct err *err)
{
	char *text, *next, *name, *value;
	int rc = options_read_file(o, path, &text, err);

	for (int line = 1; !rc && text; text = next, line++) {
		if (options_at_section(text)) { /* the rest is read when all else is known */
			o->several.sections = c->bit == CMD_SERVE ? text : NULL;
			o->several.file = path;
			o->several.line = line;
			break;
		}
		next = options_next_line(text);
		rc = options_split_line(text, &name, &value, err);
		if (!rc && name)
			rc = options_set_line(c, o, name, value, err);
		if (rc)
			err_prefix(err, "%s:%d", path, line);
	}
	return rc;
}

static void defaults(const struct command *c, struct options *o)
{
	struct err err;

	memset(o, 0, sizeof(*o));
	host_opts_init(&o->load);
	/* Defaults of other commands' options first: two commands may give one field different defaults. */
	for (int i = 0; i < 2 * n_options; i++) {
		const struct option *op = &option_table[i % n_options];
		bool own = op->commands & c->bit;

		if (op->deflt && own == (i >= n_options) && (own || op->kind != K_INTS) &&
		    set(o, op, op->deflt, &err)) {
			fprintf(stderr, "%s\n", err.msg);
			fault_abort();
		}
	}
	if (!(c->bit & (CMD_SERVE | CMD_INSPECT)))
		o->load.parallel = 1;
	if (c->bit != CMD_SERVE)
		o->load.decode_gap = 1000000; /* no request joins, so chunks need not be small */
	o->log_level = c->bit == CMD_SERVE ? LOG_INFO : LOG_WARN;
}

/* Applies the words that are not options. */
static int take_words(const struct command *c, const struct words *w, struct options *o, struct err *err)
{
	bool two = c->bit & (CMD_TOKENIZE | CMD_RUN); /* MODEL and TEXT */

	/* A model of that name is ./help; a text is what it is. */
	if (w->n_word == 1 && !strcmp(w->word[0], "help") && c->bit != CMD_TOKENIZE) {
		o->said.help = true;
		return 0;
	}
	if (w->n_word && !*c->args)
		return one_too_many(c, w->word[0], err);
	if (c->bit == CMD_BENCH_SERVE) {
		o->remote.url = w->word[0];
		return o->remote.url || o->said.help ? 0 : err_set(err, E_ARG, "serve needs the URL of a server");
	}
	if (c->bit == CMD_CACHE)
		return 0; /* the command reads them itself */
	if (c->bit == CMD_AGENTS) {
		o->said.text = w->word[0];
		o->load.model = w->word[1];
		return 0;
	}
	if (w->n_word && o->load.model && !two)
		return err_set(err, E_ARG, "two models were named: '%s' and '%s'", o->load.model, w->word[0]);
	if (o->load.model && w->n_word == 2 && c->bit != CMD_SERVE)
		return err_set(err, E_ARG, "unexpected argument '%s' (the model was given with --model)", w->word[1]);
	if (o->load.model || (two && w->n_word == 1 && !o->run.prompt)) {
		o->said.text = w->word[0]; /* run and tokenize look whether a lone word is a model */
	} else if (w->n_word) {
		o->load.model = w->word[0];
		o->said.text = w->word[1];
	}
	if (c->bit == CMD_RUN && w->n_word == 2 && o->run.prompt)
		return err_set(err, E_ARG, "two questions were asked: -p '%s' and '%s'", o->run.prompt, o->said.text);
	return 0;
}

/* The file, then the environment, then the command line: what comes later counts. */
static int set_all(const struct command *c, const struct words *w, struct options *o, bool *given, struct err *err)
{
	const char *config = getenv("WEFT_CONFIG");
	int rc = 0;

	for (int i = 0; i < w->n_option; i++)
		if (w->option[i].op->at == offsetof(struct options, said.config))
			config = w->option[i].text;
	if (config && *config)
		rc = set_from_file(c, o, config, err);
	o->said.source++;
	if (!rc)
		rc = set_from_environment(c, o, err);
	o->said.source++;
	for (int i = 0; i < w->n_option && !rc; i++) {
		given[w->option[i].op - option_table] = true;
		rc = set(o, w->option[i].op, w->option[i].text, err);
	}
	return rc;
}

int options_parse(const struct command *c, int argc, char **argv, struct options *o, struct err *err)
{
	struct words w = { .option = xcalloc((size_t)argc + 1, sizeof *w.option),
		           .word = xcalloc((size_t)argc + 2, sizeof *w.word) };
	bool given[OPTION_MAX] = { false };
	int rc;

	defaults(c, o);
	rc = divide(c, argc, argv, &w, err);
	if (!rc)
		rc = set_all(c, &w, o, given, err);
	o->said.word = own(o, NULL, w.word);
	o->said.n_word = w.n_word;
	if (!rc && !o->said.help)
		rc = options_refuse_idle(c, o, given, err);
	if (!rc)
		rc = take_words(c, &w, o, err);
	free(w.option);
	return rc ? rc : options_finish(o, err);
}

int options_set_answer(struct options *o, const char *name, const char *text, struct err *err)
{
	const char *known[OPTION_MAX], *hint;
	int n = 0;

	for (int i = 0; i < n_options; i++) {
		const struct option *op = &option_table[i];

		if (!(op->commands & CMD_RUN) || op->group != option_groups[OPTION_ANSWERS])
			continue;
		known[n++] = op->name;
		if (option_named(name, strlen(name), op->name) || option_named(name, strlen(name), op->also))
			return set(o, op, own(o, NULL, xstrdup(text)), err);
	}
	hint = closest(name, known, n);
	return err_set(err, E_ARG, "%s is not an option of answers%s%s", name, hint ? "; did you mean " : "",
	               hint ? hint : "");
}

char *options_own(struct options *o, char *p)
{
	return own(o, NULL, p);
}

/* A URL that is wrong is told before a model is loaded. */
static int check_redis(const struct options *o, struct err *err)
{
	struct redis *r;
	int rc = redis_new(&r, o->load.disk.url, NULL, err);

	redis_free(r);
	return rc ? err_prefix(err, "--prompt-cache-url") : 0;
}

int options_finish(struct options *o, struct err *err)
{
	int rc = o->load.disk.url ? check_redis(o, err) : 0;

	if (rc)
		return rc;
	if ((o->serve.api_key && !*o->serve.api_key) || (o->remote.api_key && !*o->remote.api_key))
		return err_set(err, E_ARG, "--api-key: the key is empty; leave the option out where there is none");
	return kv_policy_parse(&o->load.kv, &o->kv_ask, err);
}

void options_fini(struct options *o)
{
	for (int i = 0; i < o->several.n_model; i++)
		options_fini(&o->several.model[i]);
	free(o->several.model);
	o->several.model = NULL;
	o->several.n_model = 0;
	for (int i = 0; i < o->said.n_owned; i++)
		free(o->said.owned[i]);
	free(o->said.owned);
	o->said.owned = NULL;
	o->said.n_owned = 0;
}
