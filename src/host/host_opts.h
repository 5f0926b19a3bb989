/* host_opts.h - what a model is to be opened with: a description that knows no command line.
 *
 * The commands fill it in from their options (cli/option_table.c), a test or another program by hand.
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
	int source; /* for a parser of options: what gave them (cli/options.c) */
};

/* Speculation: docs/speculation.md. */
struct host_draft {
	struct texts model; /* folders */
	enum draft_kind { DRAFT_NONE, DRAFT_NGRAM, DRAFT_GRAMMAR, DRAFT_MODEL, DRAFT_HEAD, DRAFT_AUTO } kind;
	int n; /* tokens */
	bool fixed;
	double pretend; /* 0: no */
};

/* Prefixes that are kept on disk: docs/prefix-store.md. */
struct host_disk {
	const char *dir; /* NULL: none are */
	size_t bytes;
	double wait; /* seconds; 0: as long as computing would take */
};

/* Experts that stay on disk: docs/memory.md. */
struct host_experts {
	const char *dir, *trace, *io;
};

/* Answers of a request that does not say. */
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
	int ctx_size;         /* positions; 0: the model's own ... */
	int ctx_default;      /* longest sequence if the model's is longer; 0: the model's */
	int parallel;         /* sequences at once */
	int queue;            /* requests that may wait ... */
	double queue_seconds; /* seconds of prompts that may wait; 0: any */
	int threads;          /* 0: all processors */
	int step_rows;        /* 0: what suits the model */
	int decode_gap;       /* ms; see engine.h */
	int answer_reserve;   /* tokens; see engine.h */
	struct choices cpu;
	const char *device; /* what computes, as --device names it; NULL: auto */
	enum arith arith;
	size_t memory_bytes; /* for everything; 0: no such bound */
	size_t expert_bytes; /* for experts that stay on disk; 0: see plan.c */
	/* Where tables lie, that is matrices of which a step looks up rows. */
	enum tables { TABLES_AUTO, TABLES_MEMORY, TABLES_DISK } tables;
	bool small_pages;    /* weights stay where they are mapped */
	size_t kv_bytes;     /* 0: see plan.c */
	struct kv_policy kv; /* how keys and values are written */
	size_t prefix_bytes; /* SIZE_MAX: see plan.c */
	double verify_cache; /* share of hits that is computed again */
	struct texts lora;   /* NAME=PATH[,SCALE] */
	struct host_draft draft;
	struct host_disk disk;
	struct host_experts experts;
	struct host_answer answer;
};

/* One sequence, this machine's processor, fast arithmetic, no drafting; memory and formats as plan.c and the model choose. */
void host_opts_init(struct host_opts *o);

#endif
