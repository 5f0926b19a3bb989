/* commands.c - the list of commands, and the way to one of them. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/fault.h"
#include "cli/cli.h"
#include "cli/options/several_options.h"

static const char about_model[] =
	"MODEL is a GGUF file, a folder with config.json, tokenizer.json and safetensors, or a\n"
	"name like Qwen/Qwen3.5-4B (or org/name:Q4_K_M) that is in the Hugging Face cache on\n"
	"disk (`weft pull NAME` fetches it).\n"
	"Default: the environment variable WEFT_MODEL, else the small model that comes with\n"
	"the program.";

const struct command commands[] = {
	{
		"serve",
		CMD_SERVE,
		"[MODEL ...]",
		"serve models over HTTP with the OpenAI API",
		"Loads a model and answers clients of the OpenAI API (chat completions, completions,\n"
		"responses) and of Anthropic's (messages), streaming or not. Requests are batched;\n"
		"batching never changes an answer. A browser gets a page to chat and to watch the\n"
		"engine. Ctrl-C or SIGTERM ends it.\n"
		"With several models, each is loaded when a request names it (docs/several-models.md).\n\n",
		"  weft serve\n"
		"  weft serve Qwen/Qwen3.5-4B --port 9000 --parallel 16 --ctx-size 32768\n"
		"  weft serve --host unix:/run/weft.sock --cors-origin https://example.org\n"
		"  weft serve ~/models/Qwen3.5-4B-4bit --host 0.0.0.0 --api-key \"$KEY\"\n",
		cmd_serve,
	},
	{
		"run",
		CMD_RUN,
		"[MODEL] ['QUESTION']",
		"answer once, or hold a conversation in the terminal",
		"With a question, or with standard input from a pipe or file, prints one answer on\n"
		"standard output, and statistics on standard error; piped input follows the question.\n"
		"Otherwise starts a conversation: Ctrl-C stops the answer, Ctrl-D ends, /help lists\n"
		"commands. A single argument is QUESTION if it contains a blank and names no model;\n"
		"use -p for a question of one word.\n\n"
		"With --url a server answers, this one or another with the OpenAI API; no model is\n"
		"loaded here, and MODEL is the server's name for it (default: its first).\n\n",
		"  weft run\n"
		"  weft run 'What is the capital of Peru?' --temp 0\n"
		"  weft run --url http://127.0.0.1:8080\n"
		"  git diff | weft run Qwen/Qwen3.5-4B 'Summarise this change.' --think off\n",
		cmd_run,
	},
	{
		"logits",
		CMD_LOGITS,
		"[MODEL] --ids FILE --out FILE",
		"write the logits of every position to a file",
		"Runs token ids through the serving engine and writes the logits of every position,\n"
		"for comparing with other engines and for tests. They do not depend on how the work is\n"
		"cut or on what else runs, to the bit.\n\n",
		"  weft logits MODEL --ids ids.json --out logits.safetensors --arith f32\n"
		"  weft logits MODEL --ids ids.json --out logits.safetensors --split 1,7,64 --alongside 3\n",
		cmd_logits,
	},
	{
		"inspect",
		CMD_INSPECT,
		"[MODEL]",
		"show what a model is and what it will need",
		"Prints architecture, layers by kind, parameters, quantisation, bytes of cache per\n"
		"token and of state per sequence, and the memory for a context and a number of\n"
		"sequences.\n\n",
		"  weft inspect\n"
		"  weft inspect Qwen/Qwen3.5-4B --ctx-size 32768 --parallel 4\n",
		cmd_inspect,
	},
	{
		"tokenize",
		CMD_TOKENIZE,
		"[MODEL] [TEXT]",
		"turn text into token ids",
		"Prints the ids of TEXT, or of standard input, as a JSON array. A single argument is\n"
		"MODEL if it is a folder or a cached name, and TEXT otherwise.\n\n",
		"  weft tokenize 'Hello, world'\n"
		"  weft tokenize Qwen/Qwen3.5-4B --pieces < README.md\n",
		cmd_tokenize,
	},
	{
		"ppl",
		CMD_PPL,
		"[MODEL] --text FILE | --ids FILE",
		"measure what a setting costs in quality",
		"Reads a text and prints the model's perplexity on it and how far its predictions are\n"
		"from those with the 16-bit cache of keys and values, or from the exact ones: mean,\n"
		"median, 99.9th percentile and largest KL divergence (in nats), and how often the\n"
		"likeliest token is the same. Nothing is sampled, so the same command prints the same.\n\n",
		"  weft ppl MODEL --text book.txt --kv-bits 4\n"
		"  weft ppl MODEL --text book.txt --kv-bits 3.5 --ctx-size 8192 --json\n"
		"  weft ppl MODEL --ids ids.json --against exact\n",
		cmd_ppl,
	},
	{
		"quantize",
		CMD_QUANTIZE,
		"MODEL --type TYPE --out PATH",
		"write a model in fewer bits",
		"Writes the model's matrices in another number format. A GGUF type or mix makes a GGUF\n"
		"file of a GGUF file (F32, F16, BF16 or Q8_0); affine2 to affine8 and mxfp4 make a folder\n"
		"as mlx-lm writes it, of a folder or GGUF file. Memory stays small whatever the size. The\n"
		"output is PATH.partial until it is complete; if interrupted, the same command continues.\n\n",
		"  weft quantize model-BF16.gguf --type Q4_K_M --out model-Q4_K_M.gguf --imatrix imatrix.gguf\n"
		"  weft quantize Qwen/Qwen3.5-4B --type affine4 --out Qwen3.5-4B-4bit --text book.txt\n",
		cmd_quantize,
	},
	{
		"pull",
		CMD_PULL,
		"NAME[:TYPE]",
		"fetch a model from the Hugging Face hub",
		"Fetches the files of a model that weft reads into the Hugging Face cache, checks the\n"
		"digest of each, and prints the path of the model. NAME is its name on the hub;\n"
		"NAME@REVISION is a branch, tag or commit of it. NAME:TYPE, such as org/name:Q4_K_M, is\n"
		"the GGUF file of that type, with the file of its image tower if there is one. Without\n"
		"TYPE it is a folder of safetensors, else the GGUF file Q4_K_M, Q8_0 or the first. After\n"
		"an interruption the same command continues.\n\n"
		"HF_TOKEN is sent to the hub alone, for models that require it. HF_ENDPOINT names a\n"
		"mirror, HF_HUB_CACHE another cache. HF_HUB_OFFLINE=1 allows no request. HTTPS_PROXY is\n"
		"used as by curl.",
		"  weft pull Qwen/Qwen3.5-4B\n"
		"  weft pull unsloth/Qwen3.5-4B-GGUF:Q4_K_M\n"
		"  HF_TOKEN=hf_... weft pull google/gemma-3-4b-it\n",
		cmd_pull,
	},
	{
		"list",
		CMD_LIST,
		"",
		"list the models in the Hugging Face cache",
		"Lists the models in the Hugging Face cache, including those that other programs fetched:\n"
		"name, bytes on disk, date, format.",
		"  weft list\n",
		cmd_list,
	},
	{
		"models",
		CMD_MODELS,
		"",
		"print a short list of models that work well",
		"Prints models that work well, by the memory of the machine, with the names that\n"
		"`weft pull` takes. Nothing is fetched.",
		"  weft models\n",
		cmd_models,
	},
	{
		"agents",
		CMD_AGENTS,
		"[AGENT [NAME]]",
		"print or write the settings of a coding agent",
		"Prints what the agent's file of settings needs for a server that runs: its address, its\n"
		"model (NAME, else its first), context and key. Without AGENT lists agents and their files.",
		"  weft agents\n"
		"  weft agents codex\n"
		"  weft agents opencode --url http://192.168.1.5:8080 --write\n",
		cmd_agents,
	},
	{
		"rm",
		CMD_RM,
		"NAME[:TYPE]",
		"remove a model from the Hugging Face cache",
		"Removes a model from the Hugging Face cache; with TYPE, its GGUF files of that type only.\n"
		"A server that has the model open is not affected.",
		"  weft rm Qwen/Qwen3.5-4B\n"
		"  weft rm unsloth/Qwen3.5-4B-GGUF:Q8_0\n",
		cmd_rm,
	},
	{
		"pack",
		CMD_PACK,
		"[MODEL] --prompt FILE | --recorded DIR --out FILE",
		"compute the beginning of an agent's requests once, as a file",
		"Computes what the requests of an agent begin with, system prompt and tools, and writes it\n"
		"as a pack. `weft serve --pack FILE` reads it and answers the first request as if it had\n"
		"computed it. FILE is a system prompt, or a request as JSON. DIR has requests that an agent\n"
		"sent, files .json with members path and body. Options that shape prompts and caches have\n"
		"to be those of the server.\n\n",
		"  weft pack Qwen/Qwen3.5-4B --prompt system.txt --out assistant.pack\n"
		"  weft pack Qwen/Qwen3.5-4B --recorded requests --kv-bits 8 --out agent.pack\n"
		"  weft serve Qwen/Qwen3.5-4B --kv-bits 8 --pack agent.pack\n",
		cmd_pack,
	},
	{
		"cache",
		CMD_CACHE,
		"export|import|info|verify PATH ...",
		"copy cached prompt prefixes between machines",
		"`export DIR [ID]` writes the prefixes of one model in a folder of --prompt-cache-dir to a\n"
		"pack, which holds the text of prompts. `import FILE DIR` puts the prefixes of a pack into\n"
		"a folder that no server has open. `info PATH` shows what a folder or a pack is of.\n"
		"`verify FILE` compares the digests of a pack.",
		"  weft cache info ~/.cache/weft/prefixes\n"
		"  weft cache export ~/.cache/weft/prefixes --out mine.pack\n"
		"  weft cache verify mine.pack\n"
		"  weft cache import mine.pack /srv/prefixes\n",
		cmd_cache,
	},
	{
		"bench",
		CMD_BENCH,
		"[MODEL]",
		"measure a model on this machine; `bench serve`: a server",
		"Computes prompts and decodes tokens through the serving engine, and prints tokens a\n"
		"second and the share of what the machine allows, measured in the same run: a step takes\n"
		"at least the time to read its data or to do its arithmetic, whichever is longer.\n"
		"`weft bench serve URL` measures a server from outside instead.\n\n",
		"  weft bench\n"
		"  weft bench ~/models/Qwen3.5-4B-4bit -p 512,2048 -n 64 --depth 0,4096 --batch 1,8\n"
		"  weft bench Qwen/Qwen3.5-4B -p 0 --profile\n",
		cmd_bench,
	},
	{
		"bench serve",
		CMD_BENCH_SERVE,
		"URL",
		"measure a server from outside",
		"Sends requests to a server with the OpenAI API (this one or another) at random times\n"
		"that do not wait for answers, and prints percentiles of what its clients see: time to\n"
		"the first token, between pieces of a stream, of the whole answer. --model is the name\n"
		"of the model in the API (default: none is sent).",
		"  weft bench serve http://127.0.0.1:8080 --rate 4 --requests 200\n"
		"  weft bench serve http://127.0.0.1:8000/v1 --model Qwen/Qwen3.5-4B --prefixes 4 --abort 0.1 --json\n",
		cmd_bench_serve,
	},
	{
		"completion",
		CMD_COMPLETION,
		"bash|zsh|fish",
		"print a script that completes commands and options in a shell",
		"Prints a completion script for one of the shells.",
		"  weft completion bash > ~/.local/share/bash-completion/completions/weft\n"
		"  weft completion zsh > ~/.zfunc/_weft\n"
		"  weft completion fish > ~/.config/fish/completions/weft.fish\n",
		cmd_completion,
	},
	{
		"man",
		CMD_MAN,
		"",
		"print the manual page",
		"Prints the manual page of the program, with every option, in the form that man reads.",
		"  weft man | man -l -\n"
		"  weft man > ~/.local/share/man/man1/weft.1\n",
		cmd_man,
	},
	{ NULL },
};

int cli_fail(const char *command, const struct err *err)
{
	fprintf(stderr, "weft %s: %s\n", command, err->msg);
	return EXIT_WORK;
}

static void help(void)
{
	printf("usage: weft COMMAND [options] [MODEL]\n\n");
	help_paragraphs("weft runs hybrid language models (attention and recurrent layers) on CPUs and GPUs.");
	printf("\nCommands:\n");
	for (const struct command *c = commands; c->name; c++)
		help_item(c->name, c->what);
	putchar('\n');
	help_paragraphs(about_model);
	putchar('\n');
	help_paragraphs("`weft COMMAND --help` shows the most useful options, `weft COMMAND --help all`\n"
	                "every one; `weft --version` names the version.");
}

static void help_command(const struct command *c, const char *topic)
{
	struct command whole = *c;
	char about[1200];

	snprintf(about, sizeof(about), "%s%s", c->about,
	         c->bit & (CMD_BENCH_SERVE | CMD_COMPLETION | CMD_MAN | CMD_MODELS | CMD_PULL | CMD_LIST | CMD_RM |
	                   CMD_CACHE | CMD_AGENTS) ?
	                 "" :
	                 about_model);
	whole.about = about;
	options_help(&whole, topic);
}

/* The weft command to use in place of another program's; NULL: the word is not such a command. */
static const char *foreign_command(const char *word)
{
	static const struct {
		const char *word, *instead;
	} table[] = {
		{ "download", "`weft pull NAME` fetches a model" },
		{ "ls", "`weft list` lists the models in the cache" },
		{ "ps", "GET /v1/models of a server says which models are loaded, and /health how it is" },
		{ "show", "`weft inspect MODEL` shows what a model is" },
		{ "chat", "`weft run MODEL` holds a conversation" },
		{ "generate", "`weft run MODEL -p TEXT` answers once" },
		{ "stop", "Ctrl-C or SIGTERM ends a server" },
		{ "quantise", "it is spelt `weft quantize`" },
		{ "convert", "`weft quantize MODEL --type TYPE --out PATH` writes a model in fewer bits" },
		{ "create",
		  "`weft serve MODEL --alias NAME` gives a model another name; --system-prompt is of `weft run`" },
		{ "cp", "`weft serve MODEL --alias NAME` gives a model another name" },
		{ "push", "weft sends no model anywhere" },
		{ "search", "https://huggingface.co/models finds models; `weft models` names some that work well" },
		{ "perplexity", "`weft ppl MODEL --text FILE` measures it" },
		{ "embed", "POST /v1/embeddings of `weft serve` makes vectors" },
		{ "remove", "`weft rm NAME` removes a model from the cache" },
	};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (!strcmp(word, table[i].word))
			return table[i].instead;
	return NULL;
}

static int usage_error(const char *word)
{
	const char *instead = foreign_command(word);
	const char *name[32];
	const char *hint;
	int n = 0;

	for (const struct command *c = commands; c->name; c++)
		name[n++] = c->name;
	if (instead) {
		fprintf(stderr, "weft: there is no command '%s': %s\n", word, instead);
		return EXIT_USAGE;
	}
	hint = closest(word, name, n);
	fprintf(stderr, "weft: unknown command '%s'", word);
	if (hint)
		fprintf(stderr, "; did you mean '%s'?", hint);
	fprintf(stderr, "\n`weft --help` lists the commands.\n");
	return EXIT_USAGE;
}

/* How many of the words begin the command's: all of its name's, or 0. */
static int named(const struct command *c, int argc, char **argv)
{
	size_t first = strcspn(c->name, " ");

	if (argc < 1 || strlen(argv[0]) != first || memcmp(argv[0], c->name, first))
		return 0;
	if (!c->name[first])
		return 1;
	return argc > 1 && !strcmp(argv[1], c->name + first + 1) ? 2 : 0;
}

/* The longest name that fits. */
static const struct command *find_command(int argc, char **argv, int *n)
{
	const struct command *best = NULL;

	*n = 0;
	for (const struct command *c = commands; c->name; c++)
		if (named(c, argc, argv) > *n) {
			*n = named(c, argc, argv);
			best = c;
		}
	return best;
}

static int run_command(const struct command *c, int argc, char **argv)
{
	struct options o;
	struct err err;
	int rc = options_parse(c, argc, argv, &o, &err);

	if (!rc && c->bit == CMD_SERVE && !o.said.help)
		rc = options_several(c, &o, &err);
	if (!rc && o.said.help) {
		help_command(c, o.said.help_topic);
	} else if (rc) {
		fprintf(stderr, "weft %s: %s\n`weft %s --help` lists the options.\n", c->name, err.msg, c->name);
		rc = EXIT_USAGE;
	} else {
		log_set_level(o.log_level);
		log_set_format(o.log_format);
		if (o.said.cpu_said)
			cpu_mask(o.load.cpu.level);
		rc = c->run(&o);
	}
	options_fini(&o);
	return rc;
}

static int dispatch(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : NULL;
	const struct command *c;
	int n;

	if (!word) {
		fprintf(stderr, "weft: no command\n`weft --help` lists the commands.\n");
		return EXIT_USAGE;
	}
	if (!strcmp(word, "help") && argc > 2) {
		c = find_command(argc - 2, argv + 2, &n);
		if (!c)
			return usage_error(argv[2]);
		help_command(c, argc > 2 + n ? argv[2 + n] : NULL);
		return 0;
	}
	if (!strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help")) {
		help();
		return 0;
	}
	if (!strcmp(word, "--version") || !strcmp(word, "-v") || !strcmp(word, "version")) {
		printf(strcmp(weft_commit, "unknown") != 0 ? "weft %s (%s)\n" : "weft %s\n", WEFT_VERSION, weft_commit);
		return 0;
	}
	c = find_command(argc - 1, argv + 1, &n);
	return c ? run_command(c, argc - 1 - n, argv + 1 + n) : usage_error(word);
}

/* A standard descriptor that is closed would be the next that is opened: the log might go to
 * a socket. */
static void open_standard(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
			_exit(EXIT_WORK);
}

int cli_main(int argc, char **argv)
{
	int rc;

	open_standard();
	fault_install();
	rc = dispatch(argc, argv);

	/* A full disk must not look like success. */
	if (!rc && (fflush(stdout) || ferror(stdout))) {
		fputs("weft: cannot write standard output\n", stderr);
		rc = EXIT_WORK;
	}
	return rc;
}
