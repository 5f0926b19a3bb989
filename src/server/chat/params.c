/* params.c - see params.h. */
#include "server/chat/params.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

const struct field params_fields[] = {
	/* honoured */
	TAKEN("model", TAKES_STRING),
	{ "max_tokens" },
	{ "temperature" },
	{ "top_p" },
	{ "top_k" },
	{ "min_p" },
	{ "repetition_penalty" },
	{ "repetition_context_size" },
	{ "presence_penalty" },
	{ "frequency_penalty" },
	{ "logit_bias" },
	{ "seed" },
	{ "stop" },
	{ "stop_token_ids" },
	{ "ignore_eos" },
	{ "min_tokens" },
	{ "stream" },
	{ "stream_options" },
	{ "n" },
	{ "skip_special_tokens" },
	{ "logprobs" },
	{ "priority" },
	{ "speculation" },
	{ "num_draft_tokens" },
	/* of other servers */
	OTHER_LIMITS("max_tokens"),
	{ "repeat_last_n" },
	/* harmless: they change no token */
	{ "user" },
	{ "metadata" },
	{ "safety_identifier" },
	{ "prompt_cache_key" },
	TAKEN("prompt_cache_retention", TAKES_STRING),
	TAKEN("prompt_cache_options", TAKES_OBJECT),
	TAKEN("cache_control", TAKES_OBJECT),
	TAKEN("keep_alive", TAKES_NUMBER | TAKES_STRING),
	TAKEN("id_slot", TAKES_NUMBER),
	/* known and not supported: only values that change nothing are accepted */
	{ "best_of", "1", "n gives several answers" },
	{ "use_beam_search", "false" },
	{ "length_penalty", "1|1.0" },
	{ "early_stopping", "false" },
	{ "include_stop_str_in_output", "false" },
	{ "spaces_between_special_tokens", "true" },
	{ "truncate_prompt_tokens", "-1", "a prompt is never cut in silence" },
	{ "prompt_logprobs", "0" },
	{ "return_tokens_as_token_ids", "false" },
	{ "return_token_ids", "false" },
	{ "allowed_token_ids", "[]" },
	{ "bad_words", "[]", "logit_bias can forbid tokens" },
	{ "logits_processors", "[]" },
	{ "logit_bias_exclude", "" },
	{ "guided_json", "" },
	{ "guided_regex", "" },
	{ "guided_choice", "" },
	{ "guided_grammar", "" },
	{ "structured_outputs", "" },
	{ "json_schema", "{}" },
	TAKEN("guided_decoding_backend", TAKES_STRING),
	{ "guided_whitespace_pattern", "" },
	{ "structural_tag", "" },
	{ "grammar", "\"\"" },
	{ "regex", "" },
	{ "ebnf", "" },
	{ "cache_salt" },
	{ "cache_report" },
	{ "turn_replay" },
	{ "kv_transfer_params", "" },
	{ "vllm_xargs", "{}" },
	IGNORED("service_tier", "\"auto\"|\"default\""),
	IGNORED("store", "false"),
	SYNONYM("repeat_penalty", "repetition_penalty"),
	{ "typical_p", "1|1.0" },
	{ "tfs_z", "1|1.0" },
	{ "mirostat", "0" },
	{ "dry_multiplier", "0|0.0" },
	{ "xtc_probability", "0|0.0" },
	{ "dynatemp_range", "0|0.0" },
	{ "typ_p", "1|1.0" },
	{ "reasoning_format", "\"auto\"|\"deepseek\"", "thoughts are told as reasoning_content" },
	/* what goes with the samplers above, which are off */
	TAKEN("mirostat_tau", TAKES_NUMBER),
	TAKEN("mirostat_eta", TAKES_NUMBER),
	TAKEN("dry_base", TAKES_NUMBER),
	TAKEN("dry_allowed_length", TAKES_NUMBER),
	TAKEN("dry_penalty_last_n", TAKES_NUMBER),
	TAKEN("dry_sequence_breakers", TAKES_ARRAY),
	TAKEN("xtc_threshold", TAKES_NUMBER),
	TAKEN("dynatemp_exponent", TAKES_NUMBER),
	TAKEN("min_keep", TAKES_NUMBER),
	IGNORED("samplers", ""),
	IGNORED("backend_sampling", "false"),
	TAKEN("cache_prompt", TAKES_BOOL),
	{ "adapters", "" },
	{ "adapter", "" },
	{ "lora" },
	IGNORED("draft_model", "\"\""), /* guessing ahead changes no token */
	{ NULL },
};

void params_init(struct params *a, const struct served *d)
{
	memset(a, 0, sizeof *a);
	a->n = 1;
	a->parallel = a->turn_replay = true;
	a->max_tokens = d->max_tokens;
	a->sampling = d->sampling;
	a->seeded = d->seeded;
	a->skip_special = true;
	warnings_init(&a->warnings);
}

void params_fini(struct params *a)
{
	for (int i = 0; i < a->n_stop; i++)
		free(a->stop[i]);
	free(a->cache_salt);
	warnings_fini(&a->warnings);
}

/* ---- what is not a plain number ---- */

static int one_stop(struct params *a, const struct json *v, const char *name, struct problem *p)
{
	size_t n;
	const char *s = json_str(v, &n);

	if (!s)
		return field_wrong(p, name, "a string", v);
	if (!n)
		return 0; /* an empty string stops nothing; some clients send it */
	if (n > STOP_BYTES_MAX)
		return problem_set(p, 400, "invalid_value", name, "%s has %zu bytes; at most %d are allowed", name, n,
		                   STOP_BYTES_MAX);
	if (memchr(s, 0, n))
		return problem_set(p, 400, "invalid_value", name, "%s holds a NUL character", name);
	a->stop[a->n_stop++] = xstrndup(s, n);
	return 0;
}

int params_stop(struct params *a, const struct json *body, const char *field, struct problem *p)
{
	const struct json *v = json_get(body, field);
	char name[60];
	int r;

	if (json_kind(v) == JSON_NULL)
		return 0;
	if (json_kind(v) == JSON_STRING)
		return one_stop(a, v, field, p);
	if (json_kind(v) != JSON_ARRAY)
		return field_wrong(p, field, "a string or an array of strings", v);
	if (json_len(v) > STOPS_MAX)
		return problem_set(p, 400, "invalid_value", field, "%s has %zu strings; at most %d are allowed", field,
		                   json_len(v), STOPS_MAX);
	for (size_t i = 0; i < json_len(v); i++) {
		snprintf(name, sizeof name, "%.30s[%zu]", field, i);
		if ((r = one_stop(a, json_at(v, i), name, p)))
			return r;
	}
	return 0;
}

static int read_stop_tokens(struct params *a, const struct json *body, const struct served *d, struct problem *p)
{
	const struct json *v;
	char name[40], expected[60];
	int r;

	if ((r = field_value(body, "stop_token_ids", JSON_ARRAY, &v, p)))
		return r;
	if (json_len(v) > STOP_TOKENS_MAX)
		return problem_set(p, 400, "invalid_value", "stop_token_ids",
		                   "stop_token_ids has %zu ids; at most %d are allowed", json_len(v), STOP_TOKENS_MAX);
	for (size_t i = 0; i < json_len(v); i++) {
		int64_t id;

		snprintf(name, sizeof name, "stop_token_ids[%zu]", i);
		snprintf(expected, sizeof expected, "a token id from 0 to %d", d->vocab - 1);
		if (json_to_int(json_at(v, i), &id) || id < 0 || id >= d->vocab)
			return field_wrong(p, name, expected, json_at(v, i));
		a->stop_token[a->n_stop_token++] = (int32_t)id;
	}
	return 0;
}

static int too_many_biases(size_t n, struct problem *p)
{
	return problem_set(p, 400, "invalid_value", "logit_bias", "logit_bias has %zu entries; at most %d are allowed",
	                   n, BIAS_MAX);
}

/* The n of the request, and those that every answer of the model has. */
static int add_biases(struct params *a, int n, const struct served *d)
{
	for (int i = 0; i < d->sampling.n_bias && n < BIAS_MAX + BIAS_OWN_MAX; i++)
		a->bias[n++] = d->sampling.bias[i];
	a->sampling.bias = a->bias;
	a->sampling.n_bias = n;
	return 0;
}

/* llama-server's form: an array of pairs, a token id and its bias or false, which forbids it. */
static int read_bias_pairs(struct params *a, const struct json *v, const struct served *d, struct problem *p)
{
	size_t n = json_len(v);

	if (n > BIAS_MAX)
		return too_many_biases(n, p);
	for (size_t i = 0; i < n; i++) {
		const struct json *pair = json_at(v, i), *value = json_at(pair, 1);
		bool allowed = true;
		char name[60];
		int64_t id;
		double b = -100;

		snprintf(name, sizeof name, "logit_bias[%zu]", i);
		if (json_kind(pair) != JSON_ARRAY || json_len(pair) != 2 || json_to_int(json_at(pair, 0), &id) ||
		    id < 0 || id >= d->vocab)
			return field_wrong(p, name, "a pair of a token id and a number", pair);
		if ((json_to_bool(value, &allowed) || allowed) &&
		    (json_to_double(value, &b) || !(b >= -100 && b <= 100)))
			return field_wrong(p, name, "a pair with a number from -100 to 100, or false", value);
		a->bias[i] = (struct logit_bias){ (int32_t)id, (float)b };
	}
	return add_biases(a, (int)n, d);
}

static int read_bias(struct params *a, const struct json *body, const struct served *d, struct problem *p)
{
	const struct json *v = json_get(body, "logit_bias"), *value;
	struct json_cursor c;
	const char *key;
	int n = 0, r;

	if (json_kind(v) == JSON_ARRAY)
		return read_bias_pairs(a, v, d, p);
	if ((r = field_value(body, "logit_bias", JSON_OBJECT, &v, p)) || !v)
		return r;
	if (json_len(v) > BIAS_MAX)
		return too_many_biases(json_len(v), p);
	for (c = json_first(v); json_next(&c, &key, &value);) {
		char *end, name[60];
		long id;
		double b = 0;

		errno = 0;
		id = strtol(key, &end, 10);
		if (!*key || *end || errno || id < 0 || id >= d->vocab || key[0] == '+' || key[0] == ' ')
			return problem_set(p, 400, "invalid_value", "logit_bias",
			                   "the keys of logit_bias must be token ids from 0 to %d; found \"%.40s\"",
			                   d->vocab - 1, key);
		snprintf(name, sizeof name, "logit_bias[%ld]", id);
		if (json_to_double(value, &b) || !(b >= -100 && b <= 100))
			return field_wrong(p, name, "a number from -100 to 100", value);
		a->bias[n++] = (struct logit_bias){ (int32_t)id, (float)b };
	}
	return add_biases(a, n, d);
}

static int read_stream(struct params *a, const struct json *body, struct problem *p)
{
	static const struct field known[] = { { "include_usage" },
		                              IGNORED("include_obfuscation", "false"),
		                              IGNORED("continuous_usage_stats", "false"),
		                              { NULL } };
	static const struct field *const tables[] = { known, NULL };
	const struct json *v;
	int r;

	if ((r = field_bool(body, "stream", &a->stream, p)) ||
	    (r = field_value(body, "stream_options", JSON_OBJECT, &v, p)) || !v)
		return r;
	if (!a->stream)
		return problem_set(p, 400, "invalid_value", "stream_options",
		                   "stream_options is only for stream: true");
	if ((r = fields_check(v, "stream_options", tables, &a->warnings, p)))
		return r;
	return field_bool(v, "include_usage", &a->include_usage, p);
}

static int read_number(const struct json *body, const char *name, double min, double max, float *out, struct problem *p)
{
	double d = (double)*out;
	int r = field_number(body, name, min, max, &d, p);

	*out = (float)d;
	return r;
}

static int read_sampling(struct params *a, const struct json *body, struct problem *p)
{
	struct sampler_params *s = &a->sampling;
	int64_t top_k = s->top_k, seed = 0, min_tokens = 0, context = s->repetition_context, last_n = -2;
	int r;

	if ((r = read_number(body, "temperature", 0, 100, &s->temperature, p)) ||
	    (r = read_number(body, "top_p", 0, 1, &s->top_p, p)) ||
	    (r = read_number(body, "min_p", 0, 1, &s->min_p, p)) ||
	    (r = read_number(body, "repetition_penalty", 0.01, 100, &s->repetition_penalty, p)) ||
	    (r = read_number(body, "presence_penalty", -2, 2, &s->presence_penalty, p)) ||
	    (r = read_number(body, "frequency_penalty", -2, 2, &s->frequency_penalty, p)) ||
	    (r = field_int(body, "top_k", -1, INT32_MAX, &top_k, p)) ||
	    (r = field_int(body, "seed", INT64_MIN, INT64_MAX, &seed, p)) ||
	    (r = field_int(body, "repeat_last_n", -1, INT32_MAX, &last_n, p)) ||
	    (r = field_int(body, "min_tokens", 0, INT32_MAX, &min_tokens, p)))
		return r;
	/* Where this name comes from, 0 means no penalty of any kind, and -1 looks at all that came before. */
	if (last_n == 0)
		s->repetition_penalty = 1, s->presence_penalty = s->frequency_penalty = 0;
	else if (last_n > -2)
		context = last_n > 0 ? last_n : 0;
	if ((r = field_int(body, "repetition_context_size", 0, INT32_MAX, &context, p)))
		return r;
	/* 0 is allowed by the API and keeps the likeliest token alone, as this does. */
	if (s->top_p <= 0)
		s->top_p = 1e-9f;
	s->top_k = top_k < 0 ? 0 : (int)top_k;
	s->repetition_context = (int)context;
	s->min_tokens = (int)min_tokens;
	/* -1 is the other servers' word for none, which front ends send with every request. */
	if (json_kind(json_get(body, "seed")) != JSON_NULL) {
		a->seeded = seed != -1;
		s->seed = (uint64_t)seed;
	}
	return 0;
}

static int read_cache(struct params *a, const struct json *body, struct problem *p)
{
	const struct json *v;
	size_t n;
	int r;

	if ((r = field_bool(body, "cache_report", &a->cache_report, p)) ||
	    (r = field_bool(body, "turn_replay", &a->turn_replay, p)) ||
	    (r = field_value(body, "cache_salt", JSON_STRING, &v, p)) || !v)
		return r;
	json_str(v, &n);
	if (n > SALT_MAX || memchr(json_str(v, &n), 0, n))
		return problem_set(p, 400, "invalid_value", "cache_salt",
		                   "cache_salt has %zu bytes; up to %d without NUL are allowed", n, SALT_MAX);
	a->cache_salt = xstrndup(json_str(v, &n), n);
	return 0;
}

/* Checks the types of the fields that may name the client (generate.c). */
static int check_names(const struct json *body, struct problem *p)
{
	static const char *const strings[] = { "user", "safety_identifier", "prompt_cache_key" };
	const struct json *v, *id;
	int r;

	for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
		if ((r = field_value(body, strings[i], JSON_STRING, &v, p)))
			return r;
	if ((r = field_value(body, "metadata", JSON_OBJECT, &v, p)))
		return r;
	id = json_get(v, "user_id");
	if (json_kind(id) != JSON_NULL && json_kind(id) != JSON_STRING)
		return field_wrong(p, "metadata.user_id", "a string", id);
	return 0;
}

int params_max_tokens(struct params *a, const struct json *body, const char *name, struct problem *p)
{
	int64_t n = -1;
	int r = field_int(body, name, -2, INT32_MAX, &n, p); /* llama-server's -2: until the context is full */

	if (!r && n >= 0)
		a->max_tokens = n;
	return r;
}

int params_sampling(struct params *a, const struct json *body, const struct served *d, struct problem *p)
{
	int64_t n = 1, priority = 0, n_draft = DRAFT_MAX;
	bool speculation = true;
	struct err err;
	int r;

	if ((r = check_names(body, p)) || (r = read_cache(a, body, p)) || (r = read_sampling(a, body, p)) ||
	    (r = params_stop(a, body, "stop", p)) || (r = read_stop_tokens(a, body, d, p)) ||
	    (r = read_bias(a, body, d, p)) || (r = params_max_tokens(a, body, "max_tokens", p)) ||
	    (r = field_int(body, "n", 1, N_MAX, &n, p)) || (r = field_bool(body, "ignore_eos", &a->ignore_eos, p)) ||
	    (r = field_bool(body, "skip_special_tokens", &a->skip_special, p)) ||
	    (r = field_int(body, "priority", -1000, 1000, &priority, p)) ||
	    (r = field_bool(body, "speculation", &speculation, p)) ||
	    (r = field_int(body, "num_draft_tokens", 0, DRAFT_MAX, &n_draft, p)))
		return r;
	a->n_draft = speculation && n_draft ? (int)n_draft : -1;
	a->priority = (int)-priority; /* where this name comes from, the smaller is served first */
	a->n = (int)n;
	/* The sampler has the last word on what it takes. */
	if (sampler_params_check(&a->sampling, d->vocab, &err))
		return problem_set(p, 400, "invalid_value", NULL, "%s", err.msg);
	return 0;
}

int params_read(struct params *a, const struct json *body, const struct served *d, struct problem *p)
{
	int r = read_stream(a, body, p);

	return r ? r : params_sampling(a, body, d, p);
}

void params_logprobs(struct params *a, int top)
{
	a->top_logprobs = top;
	a->sampling.n_logprobs = a->logprobs ? top : -1;
}
