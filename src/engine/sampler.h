/* sampler.h - which token comes next.
 *
 * A pure function of the logits, the request's parameters, the tokens that the
 * request has so far, and (seed, position).  In this order:
 *
 *   1. log-probabilities, when asked: log softmax of the logits as the model gave
 *      them, before anything below (as OpenAI-compatible servers report them);
 *   2. logit_bias is added;
 *   3. repetition penalty r over the prompt and the output: a logit l > 0 becomes
 *      l / r, others l * r (Keskar et al., arXiv:1909.05858);
 *   4. presence and frequency penalties over the output alone:
 *      l - presence - frequency * count;
 *   5. forbidden: ids outside the vocabulary, those not in the mask, end tokens
 *      before min_tokens;
 *   6. temperature 0 (or below 1e-5) takes the largest logit;
 *   7. otherwise logits are divided by the temperature, and of the tokens in
 *      falling order are kept: the first top_k; of these, renormalised, each with
 *      less than top_p of probability before it; and of these each with at least
 *      min_p times the probability of the first;
 *   8. of the kept tokens the one with the largest logit / temperature + noise,
 *      noise = -log(-log(u)), u = rng_uniform(seed, position, token id).
 *
 * Step 8 is the Gumbel-max trick: a draw from the softmax of what is kept, in
 * which a token's noise does not depend on which others are kept; so a drafter
 * with the same noise tends to the same choice.  Equal values go to the lower id
 * everywhere.
 *
 * Step 7 is the order of Hugging Face and vLLM, whose recommended settings model
 * cards give.  mlx-lm and llama.cpp apply the temperature after the filters; at
 * temperature 1 and with one filter at a time all agree. */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SAMPLER_TOP_MAX = 20 };

#define LOGIT_NEVER (-1e30f) /* a bias of what must not be picked */
struct logit_bias {
	int32_t token;
	float bias;
};

struct sampler_params {
	float temperature;        /* 0: greedy */
	int top_k;                /* 0: all */
	float top_p;              /* 1: all */
	float min_p;              /* 0: all */
	float repetition_penalty; /* 1: none */
	int repetition_context; /* length of the window of prompt and output that penalties look at, in tokens; 0: all */
	float presence_penalty, frequency_penalty;
	const struct logit_bias *bias; /* of one token twice: both are added */
	int n_bias;
	uint64_t seed;
	int min_tokens; /* tokens of output before which end_token cannot be picked */
	const int32_t *end_token;
	int n_end_token;
	int n_logprobs; /* -1: none; else how many alternatives besides the picked one's */
};

/* Sampling from the model's own distribution: temperature 1, no filter, no penalty,
 * seed 0, no log-probabilities. */
void sampler_params_init(struct sampler_params *p);

/* E_ARG with a message that names the field, its value and what is allowed. */
int sampler_params_check(const struct sampler_params *p, int n_vocab, struct err *err);

struct sampler_seen;
struct sampler_cand;

/* The sampler of one request. Used by one thread at a time. */
struct sampler {
	struct sampler_params p; /* its arrays are the sampler's own copies */
	int n_vocab;
	/* May be set before each pick: bit i % 32 of mask[i / 32] allows id i; NULL: all. */
	const uint32_t *mask;

	int n_out;                 /* tokens accepted */
	struct sampler_seen *seen; /* tokens that a penalty touches */
	int n_seen, cap_seen;
	int32_t *slot;   /* open addressing into seen, -1 empty; 2 * cap_seen of them */
	int32_t *recent; /* ring of the last repetition_context tokens */
	int n_recent, at_recent;
	struct sampler_cand *cand;
	int cap_cand;
};

/* Ids are [0, n_vocab): the tokens of the tokenizer, of which logits may hold more.
 * prompt is read, not kept.  Checks p; on error nothing needs sampler_fini. */
int sampler_init(struct sampler *s, const struct sampler_params *p, int n_vocab, const int32_t *prompt, int n_prompt,
                 struct err *err);
void sampler_fini(struct sampler *s); /* also of a zeroed one */

struct pick_top {
	int32_t token;
	float logprob;
};

struct pick {
	int32_t token;
	float logprob; /* of token; 0 when n_logprobs is -1 */
	int n_top;
	struct pick_top top[SAMPLER_TOP_MAX]; /* the most likely, in falling order */
};

/* Picks the token for position (that of the new token in its sequence).  logits
 * [n_vocab or more] serves as scratch: on return it is as step 5 leaves it.  E_FORMAT: a logit is NaN or
 * +infinity; E_ARG: no token is allowed. */
int sampler_pick(struct sampler *s, float *logits, int64_t position, struct pick *out, struct err *err);

/* For drafters: the token that sampler_pick would pick at position if these were the logits, with the
 * same noise, the mask as it is set, and the tokens accepted so far; no log-probabilities.  -1: no token
 * can be picked.  logits are overwritten. */
int32_t sampler_guess(struct sampler *s, float *logits, int64_t position);

/* token is now part of the output. */
void sampler_accept(struct sampler *s, int32_t token);

#endif
