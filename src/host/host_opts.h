/* host_opts.h - what a model is to be opened with: a description that knows no command line.
 *
 * The commands fill it in from their options (cli/options/option_table.c), a test or another program by hand.
 * Strings and lists are borrowed until session_close. */
#ifndef HOST_HOST_OPTS_H
#define HOST_HOST_OPTS_H

#include <stdbool.h>
#include <stddef.h>

#include "quant/choices.h"
#include "quant/format.h"
#include "quant/kv/kv_policy.h"

struct texts {
	const char **v;
	int n;
	int source; /* used by a parser of options: which source gave them (cli/options/options.c) */
};

/* Speculation: docs/speculation.md. */
struct host_draft {
	struct texts model; /* folders, files or cached names of draft models and heads */
	enum draft_kind { DRAFT_NONE, DRAFT_NGRAM, DRAFT_GRAMMAR, DRAFT_MODEL, DRAFT_HEAD, DRAFT_AUTO } kind;
	int n;          /* most tokens drafted in a step; 0: none */
	bool fixed;     /* always n tokens, even when drafting does not pay */
	double pretend; /* share of drafts accepted without a check; 0: drafts are checked */
};

/* Prefixes that are kept on disk: docs/prefix-store.md. */
struct host_disk {
	const char *dir;   /* NULL: no prefix is kept on disk */
	size_t bytes;      /* most that the folder may hold */
	const char *url;   /* of a Redis server that has prefixes too; NULL: none */
	double url_days;   /* that a prefix stays there unused */
	double wait;       /* seconds that a prompt waits for its prefix; 0: as long as computing would take */
	struct texts pack; /* files of prefixes to read from, besides the folder */
	bool packs_differ; /* some packs may be of models with other weights, and are left out; else that is an error */
};

/* Experts that stay on disk: docs/memory.md. */
struct host_experts {
	const char *dir;   /* folder for a copy that is faster to read; NULL: read from the model's files */
	const char *trace; /* file for a log of the experts that each layer used; NULL: none */
	const char *io;    /* "io_uring" or "threads"; NULL or "auto": the better of these */
};

/* Sampling and template of requests that do not set their own. */
struct host_answer {
	double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
	int top_k;
	/* Set by the user; where false, the checkpoint's suggestion counts. */
	bool temperature_set, top_p_set, min_p_set, top_k_set, repetition_set;
	const char *template_file; /* NULL: the model's */
	const char *template_args; /* JSON object, or NULL */
	enum think { THINK_DEFAULT, THINK_ON, THINK_OFF } think;
};

struct host_opts {
	const char *model;    /* NULL: the bundled one */
	const char *mmproj;   /* file of a tower; "none"; NULL: the one next to the model */
	int ctx_size;         /* positions of a sequence at most; 0: ctx_default */
	int ctx_default;      /* used where ctx_size is 0 and the model has more positions; 0: the model's number */
	int parallel;         /* sequences at once */
	int queue;            /* most requests that may wait */
	double queue_seconds; /* most work of prompts that may wait, in seconds; 0: no limit */
	int threads;          /* 0: all processors */
	int step_rows;        /* 0: what suits the model */
	int decode_gap;       /* ms; see engine.h */
	int answer_reserve;   /* tokens; see engine.h */
	struct choices cpu;
	const char *device; /* what computes, as --device names it ("cuda:1", "cuda,20", "cuda,experts"); NULL: auto */
	enum arith arith;
	size_t memory_bytes; /* for everything; 0: no such bound */
	size_t text_bytes; /* of the tokenizer and template, where memory_bytes does not count the program; 0: it does */
	struct ticket_lock *turn; /* of models that are open together: see engine.h; NULL: none is */
	size_t expert_bytes;      /* for experts that stay on disk; 0: see plan.c */
	/* Where tables are kept.  A table is a matrix that a step reads single rows of, such as an embedding. */
	enum tables { TABLES_AUTO, TABLES_MEMORY, TABLES_DISK } tables;
	bool small_pages;          /* weights stay where they are mapped */
	size_t kv_bytes;           /* 0: see plan.c */
	struct kv_policy kv;       /* how keys and values are written */
	size_t prefix_bytes;       /* SIZE_MAX: see plan.c */
	struct block_sink *blocks; /* as in engine.h; NULL: none */
	double verify_cache;       /* share of reused prefixes that are computed again and compared */
	struct texts lora;         /* NAME=PATH[,SCALE] */
	struct host_draft draft;
	struct host_disk disk;
	struct host_experts experts;
	struct host_answer answer;
};

/* One sequence, this machine's processor, fast arithmetic, no drafting; memory and formats as plan.c and the model choose. */
void host_opts_init(struct host_opts *o);

struct shape;
struct ticket_lock;
/* o->step_rows, or the number of rows that suits a model of this shape where that is 0. */
int step_rows_of(const struct host_opts *o, const struct shape *shape);
/* Reads a number of bytes as options have it: digits, then nothing, or K, M, G or T, after which B or iB may come.  0, or
 * E_ARG. */
int host_size(const char *text, size_t *out);

#endif
