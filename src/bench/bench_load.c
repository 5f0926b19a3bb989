/* bench_load.c - see bench_load.h. */
#include "bench/bench_load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/rng.h"
#include "bench/sorted.h"

/* Streams of random numbers of one request; words come after them. */
enum { R_GAP, R_PROMPT, R_OUTPUT, R_PREFIX, R_ABORT, R_ABORT_AT, R_WORDS };

static int pick(const struct ints *of, double u)
{
	int i = (int)(u * of->n);

	return of->v[i < of->n ? i : of->n - 1];
}

enum { NEW_SEEDS = 1000000000 }; /* short enough to be typed again */

void load_plan(struct load *l, const struct bench_serve_options *o)
{
	double at = 0;

	*l = (struct load){ .seed = o->seed < 0 ? rng_os_seed() % NEW_SEEDS : (uint64_t)o->seed, .n = o->requests };
	l->req = xcalloc((size_t)l->n, sizeof *l->req);
	for (int i = 0; i < l->n; i++) {
		struct load_request *r = &l->req[i];
		uint64_t k = (uint64_t)i;

		r->at_ns = (int64_t)(at * 1e9);
		if (o->rate > 0)
			at += -log(rng_uniform(l->seed, k, R_GAP)) / o->rate;
		r->words = pick(&o->prompt, rng_uniform(l->seed, k, R_PROMPT));
		r->max_tokens = pick(&o->output, rng_uniform(l->seed, k, R_OUTPUT));
		r->prefix = -1;
		if (o->prefixes) {
			r->prefix = (int)(rng_uniform(l->seed, k, R_PREFIX) * o->prefixes);
			r->prefix_words = o->prefix_words;
		}
		r->abort_after = -1;
		if (rng_uniform(l->seed, k, R_ABORT) < o->abort)
			r->abort_after = (int)(rng_uniform(l->seed, k, R_ABORT_AT) * r->max_tokens);
	}
}

void load_free(struct load *l)
{
	free(l->req);
	*l = (struct load){ 0 };
}

/* Words that most tokenizers know whole, so that a word is about a token. */
static void put_words(struct buf *b, uint64_t seed, uint64_t which, int n)
{
	static const char *const word[] = {
		"the",  "of",   "and",   "to",    "in",   "is",   "that", "it",   "for",   "was",   "on",
		"are",  "as",   "with",  "they",  "at",   "be",   "this", "from", "have",  "or",    "by",
		"one",  "had",  "not",   "but",   "what", "all",  "were", "when", "we",    "there", "can",
		"an",   "your", "which", "their", "said", "if",   "do",   "will", "each",  "about", "how",
		"up",   "out",  "them",  "then",  "she",  "many", "some", "so",   "these", "would", "other",
		"into", "has",  "more",  "her",   "two",  "like", "him",  "see",  "time",
	};
	enum { N = sizeof word / sizeof word[0] };

	for (int i = 0; i < n; i++)
		buf_printf(b, "%s%s", i ? " " : "", word[rng_bits(seed, (uint64_t)i, R_WORDS + which) % N]);
}

void load_text(const struct load *l, int i, struct buf *out)
{
	const struct load_request *r = &l->req[i];

	/* Beginnings count from 0, own texts from a place that no beginning reaches. */
	if (r->prefix >= 0) {
		put_words(out, l->seed, (uint64_t)r->prefix, r->prefix_words);
		buf_puts(out, ".\n");
	}
	put_words(out, l->seed, (UINT64_C(1) << 32) + (uint64_t)i, r->words);
}

/* ---- figures ---- */

void samples_add(struct samples *s, double v)
{
	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 256;
		s->v = xrealloc(s->v, size_mul(s->cap, sizeof *s->v));
	}
	s->v[s->n++] = v;
}

void samples_free(struct samples *s)
{
	free(s->v);
	*s = (struct samples){ 0 };
}

/* The smallest value that a share p of them do not exceed. */
static double percentile(const struct samples *s, double p)
{
	size_t i = (size_t)ceil(p * (double)s->n);

	return s->n ? s->v[i ? i - 1 : 0] : 0;
}

static double mean(const struct samples *s)
{
	double sum = 0;

	for (size_t i = 0; i < s->n; i++)
		sum += s->v[i];
	return s->n ? sum / (double)s->n : 0;
}

static const struct {
	const char *name;
	double p;
} cut[] = {
	{ "p50", 0.5 },
	{ "p90", 0.9 },
	{ "p99", 0.99 },
	{ "max", 1 },
};
enum { N_CUT = sizeof cut / sizeof cut[0] };

struct figures {
	int count[OUTCOMES];
	int64_t prompt, cached, output;
	struct samples first, per_token, whole, late;
};

static void gather(const struct load *l, const struct load_result *result, struct figures *f)
{
	*f = (struct figures){ 0 };
	for (int i = 0; i < l->n; i++) {
		const struct load_result *r = &result[i];

		f->count[r->outcome]++;
		samples_add(&f->late, (double)r->late_ns / 1e9);
		if (r->first_ns)
			samples_add(&f->first, (double)r->first_ns / 1e9);
		f->prompt += r->prompt;
		f->cached += r->cached;
		f->output += r->output;
		if (r->outcome != OUT_OK)
			continue;
		samples_add(&f->whole, (double)r->whole_ns / 1e9);
		if (r->output > 1 && r->first_ns)
			samples_add(&f->per_token, (double)(r->whole_ns - r->first_ns) / 1e9 / (double)(r->output - 1));
	}
}

static void put_row(struct buf *out, const char *name, struct samples *s, bool as_json)
{
	if (s->n)
		sort_doubles(s->v, s->n);
	if (as_json) {
		buf_printf(out, ",\"%s\":{\"n\":%zu,\"mean\":", name, s->n);
		json_put_double(out, mean(s));
		for (int i = 0; i < N_CUT; i++) {
			buf_printf(out, ",\"%s\":", cut[i].name);
			json_put_double(out, percentile(s, cut[i].p));
		}
		buf_putc(out, '}');
		return;
	}
	buf_printf(out, "%-22s %8zu %10.1f", name, s->n, mean(s) * 1e3);
	for (int i = 0; i < N_CUT; i++)
		buf_printf(out, " %10.1f", percentile(s, cut[i].p) * 1e3);
	buf_putc(out, '\n');
}

static void put_head(const struct load *l, const struct load_result *result, const struct figures *f, double took,
                     bool as_json, const char *url, struct buf *out)
{
	const char *error = "";

	for (int i = 0; i < l->n && !*error; i++)
		error = result[i].error;
	if (as_json) {
		buf_puts(out, "{\"url\":");
		json_put_cstr(out, url);
		buf_printf(out,
		           ",\"seed\":%llu,\"requests\":%d,\"completed\":%d,\"aborted\":%d,\"refused\":%d,\"failed\":%d"
		           ",\"prompt_tokens\":%lld,\"cached_tokens\":%lld,\"output_tokens\":%lld,\"seconds\":",
		           (unsigned long long)l->seed, l->n, f->count[OUT_OK], f->count[OUT_ABORTED],
		           f->count[OUT_REFUSED], f->count[OUT_FAILED], (long long)f->prompt, (long long)f->cached,
		           (long long)f->output);
		json_put_double(out, took);
		buf_puts(out, ",\"requests_per_second\":");
		json_put_double(out, f->count[OUT_OK] / took);
		buf_puts(out, ",\"output_tokens_per_second\":");
		json_put_double(out, (double)f->output / took);
		buf_puts(out, ",\"first_error\":");
		json_put_cstr(out, error);
		return;
	}
	buf_printf(out, "%s: %d requests, seed %llu, %.1f s\n", url, l->n, (unsigned long long)l->seed, took);
	buf_printf(out, "completed %d, aborted by us %d, refused (429, 503) %d, failed %d%s%s\n", f->count[OUT_OK],
	           f->count[OUT_ABORTED], f->count[OUT_REFUSED], f->count[OUT_FAILED], *error ? "; first error: " : "",
	           error);
	buf_printf(out, "prompt tokens %lld, of them cached %lld; output tokens %lld\n", (long long)f->prompt,
	           (long long)f->cached, (long long)f->output);
	buf_printf(out, "%.2f requests/s completed, %.1f output tokens/s\n\n", f->count[OUT_OK] / took,
	           (double)f->output / took);
	buf_printf(out, "%-22s %8s %10s", "milliseconds", "n", "mean");
	for (int i = 0; i < N_CUT; i++)
		buf_printf(out, " %10s", cut[i].name);
	buf_putc(out, '\n');
}

void load_report(const struct load *l, const struct load_result *result, struct samples *gaps, int64_t took_ns,
                 bool as_json, const char *url, struct buf *out)
{
	struct figures f;
	struct {
		const char *text, *json;
		struct samples *s;
	} row[] = {
		{ "time to first token", "first_token_seconds", &f.first },
		{ "between pieces", "inter_token_seconds", gaps },
		{ "per output token", "per_output_token_seconds", &f.per_token },
		{ "whole answer", "whole_seconds", &f.whole },
		{ "sent late by us", "sent_late_seconds", &f.late },
	};

	gather(l, result, &f);
	put_head(l, result, &f, took_ns > 0 ? (double)took_ns / 1e9 : 1e-9, as_json, url, out);
	for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
		put_row(out, as_json ? row[i].json : row[i].text, row[i].s, as_json);
	if (as_json)
		buf_puts(out, "}\n");
	samples_free(&f.first);
	samples_free(&f.per_token);
	samples_free(&f.whole);
	samples_free(&f.late);
}
