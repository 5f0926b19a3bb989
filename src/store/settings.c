/* settings.c - what a checkpoint says about its use: stop tokens, sampling. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "store/store.h"

static int add_ids(const struct json *j, int32_t *out, int n, int max)
{
	size_t len = json_kind(j) == JSON_ARRAY ? json_len(j) : 1;

	for (size_t i = 0; i < len && n < max; i++) {
		int64_t id;
		bool known = false;

		if (json_to_int(json_kind(j) == JSON_ARRAY ? json_at(j, i) : j, &id) || id < 0 || id > INT32_MAX)
			continue;
		for (int k = 0; k < n; k++)
			known |= out[k] == (int32_t)id;
		if (!known)
			out[n++] = (int32_t)id;
	}
	return n;
}

int store_eos(const struct store *st, int32_t *out, int max)
{
	int n = add_ids(json_get(st->generation, "eos_token_id"), out, 0, max);

	n = add_ids(json_get(st->config, "eos_token_id"), out, n, max);
	return add_ids(json_get(st->text, "eos_token_id"), out, n, max);
}

/* Those beyond the vocabulary are never picked. */
static int read_suppressed(const struct store *st, struct store_sampling *io, struct err *err)
{
	const struct json *list = json_get(st->generation, "suppress_tokens");
	int64_t vocab = INT32_MAX;
	int n = 0;

	if (json_kind(list) == JSON_ARRAY && json_len(list) > SUPPRESSED_MAX)
		return err_set(err, E_LIMIT, "%s: suppress_tokens: %zu ids, at most %d are read",
		               store_place(st, "generation_config.json"), json_len(list), SUPPRESSED_MAX);
	if (json_kind(list) != JSON_ARRAY)
		return 0;
	json_to_int(json_get(st->text, "vocab_size"), &vocab);
	io->n_suppressed = add_ids(list, io->suppressed, 0, SUPPRESSED_MAX);
	for (int i = 0; i < io->n_suppressed; i++)
		if (io->suppressed[i] < vocab)
			io->suppressed[n++] = io->suppressed[i];
	io->n_suppressed = n;
	return 0;
}

int store_sampling(const struct store *st, struct store_sampling *io, struct err *err)
{
	const struct json *j = st->generation;
	int64_t top_k;
	bool sample;
	int code;

	if (!j)
		return 0;
	if ((code = json_get_bool(j, "do_sample", true, &sample, err)) ||
	    (code = json_get_double(j, "temperature", io->temperature, &io->temperature, err)) ||
	    (code = json_get_double(j, "top_p", io->top_p, &io->top_p, err)) ||
	    (code = json_get_double(j, "min_p", io->min_p, &io->min_p, err)) ||
	    (code = json_get_double(j, "repetition_penalty", io->repetition_penalty, &io->repetition_penalty, err)) ||
	    (code = json_get_int(j, "top_k", io->top_k, &top_k, err)))
		return err_prefix(err, "%s", store_place(st, "generation_config.json"));
	if (io->temperature < 0 || io->top_p < 0 || io->top_p > 1 || io->min_p < 0 || io->min_p > 1 ||
	    io->repetition_penalty <= 0 || top_k < 0 || top_k > INT32_MAX)
		return err_set(err, E_FORMAT,
		               "%s: sampling out of range: temperature %g, top_p %g, min_p %g, "
		               "repetition_penalty %g, top_k %" PRId64,
		               store_place(st, "generation_config.json"), io->temperature, io->top_p, io->min_p,
		               io->repetition_penalty, top_k);
	if ((code = read_suppressed(st, io, err)))
		return code;
	io->top_k = (int)top_k;
	if (!sample)
		io->temperature = 0;
	return 0;
}
