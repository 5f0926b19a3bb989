/* agents.c - `weft agents`: the settings of coding agents for a server that runs. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/remote.h"

/* The settings of opencode; Kilo Code, made from it, reads the same. */
#define OPENCODE(schema)                                                                                       \
	"{\n"                                                                                                  \
	"  \"$schema\": \"" schema "\",\n"                                                                     \
	"  \"provider\": {\n"                                                                                  \
	"    \"weft\": {\n"                                                                                    \
	"      \"npm\": \"@ai-sdk/openai-compatible\",\n"                                                      \
	"      \"name\": \"weft\",\n"                                                                          \
	"      \"options\": { \"baseURL\": \"%V\", \"apiKey\": \"%K\" },\n"                                    \
	"      \"models\": { \"%M\": { \"name\": \"%M\", \"limit\": { \"context\": %C, \"output\": %O } } }\n" \
	"    }\n"                                                                                              \
	"  },\n"                                                                                               \
	"  \"model\": \"weft/%M\"\n"                                                                           \
	"}\n"

/* The settings of a client: a file below the user's home, or, with file NULL, a command.  Marks in text:
 *   %U  the server's address      %V  the address with /v1     %M  the model's name      %K  the key
 *   %u, %v, %m, %k                these as a word of a shell; the others are escaped for strings in double quotes
 *   %x                            the key as Crush reads it, which expands a word that the shell has read once more
 *   %C  tokens of a context       %O  tokens of an answer      %E  Codex' line for a key, if there is a key */
static const struct agent {
	const char *name, *file, *text;
} agents[] = {
	{ "claude", ".claude/settings.json",
	  "{\n"
	  "  \"env\": {\n"
	  "    \"ANTHROPIC_BASE_URL\": \"%U\",\n"
	  "    \"ANTHROPIC_AUTH_TOKEN\": \"%K\",\n"
	  "    \"ANTHROPIC_MODEL\": \"%M\",\n"
	  "    \"ANTHROPIC_SMALL_FAST_MODEL\": \"%M\",\n"
	  "    \"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC\": \"1\"\n"
	  "  }\n"
	  "}\n" },
	{ "codex", ".codex/config.toml",
	  "model = \"%M\"\n"
	  "model_provider = \"weft\"\n"
	  "model_context_window = %C\n"
	  "\n"
	  "[model_providers.weft]\n"
	  "name = \"weft\"\n"
	  "base_url = \"%V\"\n"
	  "wire_api = \"responses\"\n"
	  "%E" },
	{ "opencode", ".config/opencode/opencode.json", OPENCODE("https://opencode.ai/config.json") },
	{ "kilo", ".config/kilo/kilo.json", OPENCODE("https://app.kilo.ai/config.json") },
	{ "continue", ".continue/config.yaml",
	  "name: local\n"
	  "version: 1.0.0\n"
	  "schema: v1\n"
	  "models:\n"
	  "  - name: weft\n"
	  "    provider: openai\n"
	  "    model: \"%M\"\n"
	  "    apiBase: \"%V\"\n"
	  "    apiKey: \"%K\"\n"
	  "    roles: [chat, edit, apply]\n"
	  "    capabilities: [tool_use]\n" },
	{ "qwen", ".qwen/settings.json",
	  "{\n"
	  "  \"modelProviders\": {\n"
	  "    \"openai\": [{\n"
	  "      \"id\": \"%M\",\n"
	  "      \"name\": \"%M\",\n"
	  "      \"baseUrl\": \"%V\",\n"
	  "      \"envKey\": \"WEFT_API_KEY\",\n"
	  "      \"generationConfig\": { \"contextWindowSize\": %C, \"samplingParams\": { \"max_tokens\": %O } }\n"
	  "    }]\n"
	  "  },\n"
	  "  \"env\": { \"WEFT_API_KEY\": \"%K\" },\n"
	  "  \"security\": { \"auth\": { \"selectedType\": \"openai\" } },\n"
	  "  \"model\": { \"name\": \"%M\" }\n"
	  "}\n" },
	{ "pi", ".pi/agent/models.json",
	  "{\n"
	  "  \"providers\": {\n"
	  "    \"weft\": {\n"
	  "      \"baseUrl\": \"%V\",\n"
	  "      \"api\": \"openai-completions\",\n"
	  "      \"apiKey\": \"%K\",\n"
	  "      \"models\": [{ \"id\": \"%M\", \"contextWindow\": %C, \"maxTokens\": %O }]\n"
	  "    }\n"
	  "  }\n"
	  "}\n" },
	{ "openclaw", ".openclaw/openclaw.json",
	  "{\n"
	  "  \"agents\": { \"defaults\": { \"model\": { \"primary\": \"weft/%M\" } } },\n"
	  "  \"models\": {\n"
	  "    \"providers\": {\n"
	  "      \"weft\": {\n"
	  "        \"baseUrl\": \"%V\",\n"
	  "        \"api\": \"openai-completions\",\n"
	  "        \"apiKey\": \"%K\",\n"
	  "        \"models\": [{ \"id\": \"%M\", \"name\": \"%M\", \"contextWindow\": %C, \"maxTokens\": %O }]\n"
	  "      }\n"
	  "    }\n"
	  "  }\n"
	  "}\n" },
	{ "gemini", ".gemini/settings.json",
	  "// run it with GOOGLE_GEMINI_BASE_URL=%u GEMINI_API_KEY=%k\n"
	  "{\n"
	  "  \"security\": { \"auth\": { \"selectedType\": \"gemini-api-key\" } },\n"
	  "  \"model\": { \"name\": \"%M\" }\n"
	  "}\n" },
	{ "crush", ".config/crush/crushrc",
	  "provider add weft --name weft --type openai-compat --base-url %v --api-key %x\n"
	  "model add weft/%m --name %m --context-window %C --default-max-tokens %O\n"
	  "model large weft/%m\n"
	  "model small weft/%m\n" },
	{ "aider", ".aider.conf.yml",
	  "openai-api-base: \"%V\"\n"
	  "openai-api-key: \"%K\"\n"
	  "model: \"openai/%M\"\n" },
	{ "cline", NULL, "cline auth -p openai -k %k -m %m -b %v\n" },
};
static const char NO_KEY[] = "none"; /* clients want one */
enum { N_AGENTS = sizeof agents / sizeof *agents, CONTEXT_UNKNOWN = 32768, FILE_MOST = 1 << 20 };

/* As a word of a shell. */
static void put_word(struct buf *out, const char *s)
{
	buf_putc(out, '\'');
	for (; *s; s++)
		if (*s == '\'')
			buf_puts(out, "'\\''");
		else
			buf_putc(out, *s);
	buf_putc(out, '\'');
}

/* As a word of a shell, of what is expanded once more, as a here-document is. */
static void put_twice(struct buf *out, const char *s)
{
	struct buf once;
	char *p;

	buf_init(&once);
	for (; *s; s++) {
		if (strchr("$`\\", *s))
			buf_putc(&once, '\\');
		buf_putc(&once, *s);
	}
	p = buf_take(&once);
	put_word(out, p);
	free(p);
}

/* The text for a server of that address, with its /v1. */
static void fill_in(const struct agent *a, const char *base, const char *model, const char *key, int context,
                    struct buf *out)
{
	size_t n = strlen(base);
	char *root = xstrndup(base, n > 3 && !strcmp(base + n - 3, "/v1") ? n - 3 : n);

	for (const char *p = a->text; *p; p++) {
		const char *value;

		if (*p != '%') {
			buf_putc(out, *p);
			continue;
		}
		switch (*++p) {
		case 'C': buf_printf(out, "%d", context); continue;
		case 'E': buf_puts(out, strcmp(key, NO_KEY) != 0 ? "env_key = \"WEFT_API_KEY\"\n" : ""); continue;
		case 'O': buf_printf(out, "%d", context / 4); continue;
		case 'x': put_twice(out, key); continue;
		case 'U':
		case 'u': value = root; break;
		case 'V':
		case 'v': value = base; break;
		case 'M':
		case 'm': value = model; break;
		default: value = key; break;
		}
		if (*p >= 'a')
			put_word(out, value);
		else
			json_put_inside(out, value, strlen(value));
	}
	free(root);
}

/* A new file of that name, for its owner alone: a key may be in it. */
static int write_new(const char *path, const struct buf *text, struct err *err)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	size_t done = 0;
	ssize_t n = 0;

	if (fd < 0)
		return err_set(err, E_IO, "%s: %s", path, strerror(errno));
	while (done < text->n && (n = write(fd, text->p + done, text->n - done)) > 0)
		done += (size_t)n;
	if (close(fd) || done < text->n) {
		err_set(err, E_IO, "%s: %s", path, strerror(errno));
		unlink(path);
		return E_IO;
	}
	return 0;
}

/* Moves what is at path out of the way.  *was: there was something. */
static int keep_old(const char *path, const char *bak, bool *was, struct err *err)
{
	struct stat st;

	*was = !lstat(path, &st);
	if (!*was)
		return 0;
	if (!lstat(bak, &st))
		return err_set(err, E_ARG, "%s and %s are both there: nothing was written; move one of them away", path,
		               bak);
	return rename(path, bak) ? err_set(err, E_IO, "%s: %s", bak, strerror(errno)) : 0;
}

static int write_settings(const struct agent *a, const struct buf *text, struct err *err)
{
	const char *home = getenv("HOME");
	struct buf path, bak, old;
	bool was = false;
	int rc;

	if (!a->file)
		return err_set(err, E_ARG, "%s has no file of settings: run the command that `weft agents %s` prints",
		               a->name, a->name);
	if (!home || *home != '/')
		return err_set(err, E_ARG,
		               "the variable HOME is not a folder's path: where %s reads its settings is not known",
		               a->name);
	buf_init(&path);
	buf_init(&bak);
	buf_init(&old);
	buf_printf(&path, "%s/%s", home, a->file);
	buf_printf(&bak, "%s.bak", path.p);
	if (file_exists(path.p) == 1 && !file_read(path.p, FILE_MOST, &old, err) && old.n == text->n &&
	    !memcmp(old.p, text->p, old.n)) {
		printf("%s has these settings already\n", path.p);
		rc = 0;
		goto out;
	}
	*strrchr(path.p, '/') = 0;
	rc = dir_make(path.p, err);
	path.p[strlen(path.p)] = '/';
	if (rc || (rc = keep_old(path.p, bak.p, &was, err)))
		goto out;
	if ((rc = write_new(path.p, text, err))) {
		if (was)
			(void)rename(bak.p, path.p);
		goto out;
	}
	printf("wrote %s\n", path.p);
	if (was)
		printf("what was there is in %s; copy from it what you still need\n", bak.p);
out:
	buf_fini(&path);
	buf_fini(&bak);
	buf_fini(&old);
	return rc;
}

static const struct agent *find_agent(const char *name, struct err *err)
{
	const char *names[N_AGENTS], *near;

	for (int i = 0; i < N_AGENTS; i++) {
		names[i] = agents[i].name;
		if (!strcmp(name, names[i]))
			return &agents[i];
	}
	near = closest(name, names, N_AGENTS);
	if (near)
		err_set(err, E_ARG, "unknown agent '%s'; did you mean '%s'?", name, near);
	else
		err_set(err, E_ARG, "unknown agent '%s'; `weft agents` lists them", name);
	return NULL;
}

static int one_agent(const struct agent *a, const struct options *o, struct err *err)
{
	struct options with = *o;
	struct remote *r = NULL;
	const char *key = o->remote.api_key ? o->remote.api_key : getenv("WEFT_API_KEY");
	struct buf text;
	int rc;

	if (!with.remote.url)
		with.remote.url = "http://127.0.0.1:8080";
	if (!strncmp(with.remote.url, "unix:", 5))
		return err_set(err, E_ARG, "--url %s: agents need an address of http", with.remote.url);
	with.load.model = NULL;
	if ((rc = remote_open(&r, &with, o->load.model, err)))
		return rc;
	buf_init(&text);
	if (o->load.model && strcmp(o->load.model, remote_model(r)) != 0) {
		rc = err_set(err, E_ARG, "%s serves no model of the name '%s'; its first is '%s'", with.remote.url,
		             o->load.model, remote_model(r));
	} else {
		fill_in(a, remote_base(r), remote_model(r), key && *key ? key : NO_KEY,
		        remote_context(r) > 0 ? remote_context(r) : CONTEXT_UNKNOWN, &text);
		if (o->write)
			rc = write_settings(a, &text, err);
		else
			fwrite(text.p, 1, text.n, stdout);
	}
	buf_fini(&text);
	remote_close(r);
	return rc;
}

int cmd_agents(const struct options *o)
{
	const struct agent *a;
	struct err err = { 0 };
	int rc;

	if (!o->said.text) {
		for (int i = 0; i < N_AGENTS; i++)
			printf("%-10s %s%s\n", agents[i].name, agents[i].file ? "~/" : "",
			       agents[i].file ? agents[i].file : "(a command)");
		return 0;
	}
	rc = (a = find_agent(o->said.text, &err)) ? one_agent(a, o, &err) : E_ARG;
	if (rc)
		fprintf(stderr, "weft agents: %s\n", err.msg);
	return rc == E_ARG ? EXIT_USAGE : rc ? EXIT_WORK : 0;
}
