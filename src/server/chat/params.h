/* params.h - what a request may ask of an answer, whatever API it came by. */
#ifndef SERVER_PARAMS_H
#define SERVER_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "server/chat/fields.h"
#include "server/server.h"

enum {
	CHOICES_MAX = 128, /* answers of one request: n times the prompts */
	N_MAX = 128,       /* n */
	STOPS_MAX = 16,
	STOP_BYTES_MAX = 1024,
	STOP_TOKENS_MAX = 64,
	BIAS_MAX = 1024,
	BIAS_OWN_MAX = 64, /* of the model's own */
	TOP_LOGPROBS_MAX = 20,
	SALT_MAX = 256, /* bytes of cache_salt */
};

struct params {
	bool stream, include_usage, progress;
	bool store;            /* keep the answer for later requests */
	bool parallel;         /* several calls in one answer */
	int priority, n_draft; /* as the engine has them */
	int n;
	int64_t max_tokens;             /* -1: until the context ends */
	struct sampler_params sampling; /* its pointers point into this struct */
	bool seeded;                    /* the request named a seed */
	char *stop[STOPS_MAX];
	int n_stop;
	int32_t stop_token[STOP_TOKENS_MAX];
	int n_stop_token;
	bool ignore_eos, skip_special;
	bool logprobs;
	int top_logprobs;
	struct logit_bias bias[BIAS_MAX + BIAS_OWN_MAX];
	struct warnings warnings;
	char *cache_salt; /* NULL: none */
	bool cache_report, turn_replay;
	bool timings; /* with every piece of a stream */
};

/* The fields common to all endpoints, for fields_check. */
extern const struct field params_fields[];

void params_init(struct params *a, const struct served *d);
void params_fini(struct params *a);

/* The common fields but stream_options, for endpoints with their own. */
int params_sampling(struct params *a, const struct json *body, const struct served *d, struct problem *p);
/* All but logprobs, whose meaning differs between the APIs. */
int params_read(struct params *a, const struct json *body, const struct served *d, struct problem *p);
/* The most tokens of the answer; -1 there counts as absent. */
int params_max_tokens(struct params *a, const struct json *body, const char *name, struct problem *p);
/* Adds the strings of that field to a->stop. */
int params_stop(struct params *a, const struct json *body, const char *field, struct problem *p);
/* The tokens' logarithms are wanted when a->logprobs, with top alternatives. */
void params_logprobs(struct params *a, int top);

#endif
