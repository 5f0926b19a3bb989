/* cli.h - the commands of the program, their options, and what they share.
 *
 * A command is one file with one function, and one line in commands.c.  Every
 * option is one line of option_table.c, from which parsing, --help, the manual
 * page and completions are made; an option belongs to one or more commands.  To
 * add one: a field here, a line there. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "host/host_opts.h"

/* Commands and groups that an option belongs to, as bits. */
enum {
	CMD_SERVE = 1,
	CMD_RUN = 2,
	CMD_LOGITS = 4,
	CMD_INSPECT = 8,
	CMD_TOKENIZE = 16,
	CMD_BENCH = 32,
	CMD_BENCH_SERVE = 64,
	CMD_PPL = 128,
	CMD_PACK = 32768,
	CMD_ENGINE = CMD_SERVE | CMD_RUN | CMD_LOGITS | CMD_BENCH | CMD_PPL | CMD_PACK, /* those that load a model */
	CMD_CHAT = CMD_SERVE | CMD_RUN,                                                 /* those that speak */
	CMD_QUANTIZE = 1024,
	CMD_PULL = 2048,
	CMD_LIST = 4096,
	CMD_RM = 8192,
	CMD_CACHE = 1 << 18,
	CMD_ALL = 255 | CMD_QUANTIZE | CMD_PULL | CMD_LIST | CMD_RM | CMD_PACK | CMD_CACHE,
	/* Commands that only print a text are not in CMD_ALL: their one option is --help. */
	CMD_COMPLETION = 256,
	CMD_MAN = 512,
	CMD_MODELS = 16384,
	CMD_AGENTS = 1 << 19, /* reads no file of options either */
};

/* Whether a model takes images. */
enum sees { SEES_UNKNOWN, SEES_NOT, SEES };

struct ints {
	int *v;
	int n;
};

/* The options of each command, and what several commands share.  A field has the default of its option where that was not given. */

/* The words of the command line besides options, and the memory that parsing owns. */
struct option_words {
	const char *text;  /* tokenize, run: the second argument; agents: the agent; NULL: none */
	const char **word; /* [n_word] models in the command line */
	int n_word;
	int source;    /* that is being read: the file's, the variables', the command line's */
	bool cpu_said; /* --cpu names the level */
	bool help;
	const char *help_topic; /* "all", "tune" or NULL */
	const char *config;     /* file of options; NULL: none */
	void **owned;           /* [n_owned] for release */
	int n_owned;
};

/* serve with several models. */
struct several_options {
	struct options *model; /* the options of each, in which `load`, `alias` and `its` differ */
	int n_model;           /* 0: the one model is load.model */
	const char *dir;       /* --models-dir */
	char *sections;        /* of the file of options, from its first [model] on; NULL: there is none */
	const char *file;
	int line; /* the line that the sections begin at */
};

/* Members that a section of the file of options adds to its model's options. */
struct section_options {
	bool pinned, found;  /* found: in the folder of --models-dir, so that it may turn out to be no model */
	int unload_after;    /* seconds; 0: never for that */
	const char *section; /* the lines of its section; NULL: it is of the command line or of --models-dir */
};

struct serve_options {
	const char *host;
	int port;
	const char *port_file;
	const char *api_key, *api_key_file;
	const char *cors_origin;
	struct texts image_folder;
	struct texts image_host;
	bool any_model; /* every name names it */
	bool strict;
	int connections;        /* at once */
	size_t body_bytes;      /* of one request */
	int keep_alive;         /* seconds between comments in a quiet stream; 0: none */
	size_t response_bytes;  /* of answers kept for /v1/responses */
	int timeout;            /* seconds that a client may take to send a request */
	int stall;              /* seconds that a client may leave an answer unread */
	int idle, grace, stuck; /* seconds */
	bool log_prompts;
	bool drop_volatile; /* pack too */
	bool journal;       /* of streams, in the folder of kept prefixes */
	int turn_replay;    /* enum turn_replay */
	size_t turn_bytes;
	const char *kv_events, *kv_replay, *kv_topic, *kv_format; /* server/kv_events.h */
};

/* A server that is asked: by run, agents and bench serve. */
struct remote_options {
	const char *url; /* run: NULL: the model itself answers */
	const char *api_key;
};

struct run_options {
	const char *prompt, *system;
	bool show_thinking;
	struct texts images; /* files */
};

struct bench_options {
	struct ints prompt, output, depth, batch;
	int repeat;
	bool profile, fill, json;
	const char *paired; /* another weft; NULL: this one alone is measured */
};

struct bench_serve_options {
	struct ints prompt, output;
	int64_t seed;     /* -1: a new one */
	const char *user; /* NULL: none is sent */
	int requests, prefixes, prefix_words;
	double rate, abort; /* a second; a share */
	bool completions, ignore_eos, json;
	int timeout; /* seconds */
};

struct logits_options {
	const char *ids, *out;
	struct ints split;
	int greedy, alongside, resume_at;
	const char *warm;    /* ids to be run before; NULL: none */
	struct texts images; /* files */
};

struct ppl_options {
	const char *text_file, *ids;
	enum against { AGAINST_BF16, AGAINST_EXACT, AGAINST_NONE, AGAINST_MODEL } against;
	const char *against_model; /* NULL: none, else against is AGAINST_MODEL */
	bool special, json;
};

struct quantize_options {
	const char *type, *out, *imatrix, *calibrate;
	const char *mmproj_out; /* projector file to be written */
	const char *text_file;
};

struct pull_options {
	bool wanted; /* serve, run and pack fetch what is missing */
	bool all;
	int connections;
	size_t part; /* bytes */
};

struct pack_options {
	const char *prompt, *recorded;
	const char *out; /* cache export too */
};

struct inspect_options {
	bool tensors, memory, json;
};

struct tokenize_options {
	bool pieces, special, around;
};

/* Every option of every command. */
struct options {
	struct host_opts load; /* how the model is opened; agents: load.model is its name there */
	struct kv_ask kv_ask;  /* formats of keys and values as written; load.kv is what they mean */
	struct texts alias;    /* names of the model in the API, several separated by commas; none: its own */

	/* Answers, in addition to load.answer. */
	int max_tokens; /* -1: until the context ends */
	int64_t seed;   /* -1: a new one for each answer */

	struct serve_options serve;
	struct several_options several;
	struct section_options its;
	struct remote_options remote;
	struct run_options run;
	struct bench_options bench;
	struct bench_serve_options bench_serve;
	struct logits_options logits;
	struct ppl_options ppl;
	struct quantize_options quantize;
	struct pull_options pull;
	struct pack_options pack;
	struct inspect_options inspect;
	struct tokenize_options tokenize;
	bool list_json; /* list */
	bool write;     /* agents */

	enum log_level log_level;
	enum log_format log_format;
	struct option_words said;
};

struct command {
	const char *name; /* of two words: a kind of the command before it */
	unsigned bit;
	const char *args;  /* after the name, in the usage line */
	const char *what;  /* one line, for the list */
	const char *about; /* paragraphs, for its own help */
	const char *examples;
	int (*run)(const struct options *o); /* exit status */
};

extern const struct command commands[]; /* commands.c; ends with name NULL */

/* Exit statuses: the work failed; the command line is wrong. */
enum { EXIT_WORK = 1, EXIT_USAGE = 2 };

/* Reads argv[0..argc) (after the command's name); what it leaves open comes from the
 * variables WEFT_NAME, and what they leave open from the file that --config names.
 * E_ARG names the word that is wrong and hints at what may have been meant.  Strings
 * point into argv, the environment and memory that options_fini releases. */
int options_parse(const struct command *c, int argc, char **argv, struct options *o, struct err *err);
void options_fini(struct options *o);
/* Sets one of the options of answers of `run`, by its long name.  text is copied.  E_ARG says what is wrong. */
int options_set_answer(struct options *o, const char *name, const char *text, struct err *err);
/* Prints the command's help, made from its texts and the table, to standard output.  topic NULL: the common options;
 * "all": all of them; "tune": those of --tune. */
void options_help(const struct command *c, const char *topic);
/* For help: text whose lines are broken already, broken anew where the terminal is narrower than a paragraph's longest line; a
 * name with what it is. */
void help_paragraphs(const char *text);
void help_item(const char *name, const char *what);
/* The one of n names that looks most like word, or NULL when none does. */
const char *closest(const char *word, const char *const *name, int n);

/* The program: dispatch, --help, --version.  Returns the exit status. */
int cli_main(int argc, char **argv);

/* The commit that the program was built of, with "-dirty" where files differed from it; "unknown": git did not say. */
extern const char weft_commit[];

/* Said where the bundled model answers because none was named. */
#define BUNDLED_SAYS "no MODEL was named: %s shows that everything works, and knows little; `weft models` lists others"

int cmd_serve(const struct options *o);
int cmd_run(const struct options *o);
int cmd_agents(const struct options *o);
int cmd_logits(const struct options *o);
int cmd_inspect(const struct options *o);
int cmd_tokenize(const struct options *o);
int cmd_bench(const struct options *o);
int cmd_ppl(const struct options *o);
int cmd_quantize(const struct options *o);
int cmd_pull(const struct options *o);
int cmd_list(const struct options *o);
int cmd_rm(const struct options *o);
int cmd_pack(const struct options *o);
int cmd_cache(const struct options *o);
int cmd_bench_serve(const struct options *o);
int cmd_completion(const struct options *o);
int cmd_man(const struct options *o);
int cmd_models(const struct options *o);

/* Prints "weft COMMAND: message" and returns EXIT_WORK. */
int cli_fail(const char *command, const struct err *err);

#endif
