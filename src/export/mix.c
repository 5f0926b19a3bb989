/* mix.c - see mix.h.  The mixes are llama.cpp's, so that a name means here what it means there. */
#include "export/mix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Types that differ from the base type: of the output matrix; of values and down projections in some layers. */
static const struct mix mixes[] = {
	{ "F32", 0, "F32" },        { "F16", 1, "F16" },        { "BF16", 32, "BF16" },   { "Q8_0", 7, "Q8_0" },
	{ "Q4_0", 2, "Q4_0" },      { "Q4_1", 3, "Q4_1" },      { "Q5_0", 8, "Q5_0" },    { "Q5_1", 9, "Q5_1" },
	{ "Q2_K", 10, "Q2_K" },     { "Q3_K_S", 11, "Q3_K" },   { "Q3_K_M", 12, "Q3_K" }, { "Q4_K_S", 14, "Q4_K" },
	{ "Q4_K_M", 15, "Q4_K" },   { "Q5_K_S", 16, "Q5_K" },   { "Q5_K_M", 17, "Q5_K" }, { "Q6_K", 18, "Q6_K" },
	{ "IQ4_NL", 25, "IQ4_NL" }, { "IQ4_XS", 30, "IQ4_XS" }, { "Q1_0", 40, "Q1_0" },   { "Q2_0", 41, "Q2_0" },
};
enum { MIXES = sizeof mixes / sizeof *mixes };

const struct mix *mix_find(const char *name)
{
	if (!strcasecmp(name, "Q4_K"))
		name = "Q4_K_M";
	if (!strcasecmp(name, "Q5_K"))
		name = "Q5_K_M";
	if (!strcasecmp(name, "Q3_K"))
		name = "Q3_K_M";
	for (int i = 0; i < MIXES; i++)
		if (!strcasecmp(mixes[i].name, name))
			return &mixes[i];
	return NULL;
}

const char *mix_names(void)
{
	return "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K_S, Q3_K_M, Q4_K_S, Q4_K_M, Q5_K_S, Q5_K_M, Q6_K, IQ4_NL, IQ4_XS, Q2_0, Q1_0";
}

static bool is(const struct mix *m, const char *name)
{
	return !strcmp(m->name, name);
}

/* The first and the last eighth of n layers, and every third between. */
static bool more_bits(int i, int n)
{
	return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

/* The layer of "blk.N.rest"; -1: of none.  *rest: what follows. */
static int layer_of(const char *name, const char **rest)
{
	char *end;
	long n;

	*rest = name;
	if (strncmp(name, "blk.", 4))
		return -1;
	n = strtol(name + 4, &end, 10);
	if (*end != '.' || n < 0 || n > 100000)
		return -1;
	*rest = end + 1;
	return (int)n;
}

static bool begins(const char *s, const char *with)
{
	return !strncmp(s, with, strlen(with));
}

/* Tensors that are small or that everything hangs on: norms, routers, convolutions, parameters of a recurrence. */
static bool stays(const char *rest, int n_dim)
{
	static const char *const kept[] = {
		"ffn_gate_inp",     "ssm_conv1d",           "ple_conv1d",      "shortconv.conv",
		"attn_rel_b",       "time_mix_w",           "time_mix_a",      "time_mix_v0",
		"time_mix_v1",      "time_mix_v2",          "time_mix_g1",     "time_mix_g2",
		"time_mix_lerp",    "time_mix_decay",       "time_mix_first",  "altup",
		"laurel",           "per_layer_model_proj", "position_embd",   "ssm_dt",
		"nextn.hc_head_fn", "hc_attn_fn",           "hc_ffn_fn",       "indexer_compressor",
		"output_hc_fn",     "attn_compressor_ape",  "ffn_gate_tid2eid"
	};
	size_t n = strlen(rest);

	if (n_dim < 2 || n < 7 || strcmp(rest + n - 7, ".weight") || strstr(rest, "_norm"))
		return true;
	for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
		if (begins(rest, kept[i]))
			return true;
	return false;
}

static const char *of_values(const struct mix *m, int i, int n)
{
	if (is(m, "Q2_K"))
		return "Q4_K";
	if (is(m, "Q3_K_M"))
		return i < 2 ? "Q5_K" : "Q4_K";
	if (is(m, "Q4_K_S"))
		return i < 4 ? "Q5_K" : "Q4_K";
	if (is(m, "Q4_K_M") || is(m, "Q5_K_M"))
		return more_bits(i, n) ? "Q6_K" : m->base;
	return is(m, "IQ4_XS") || is(m, "IQ4_NL") ? "Q5_K" : m->base;
}

static const char *of_down(const struct mix *m, int i, int n)
{
	if (is(m, "Q2_K"))
		return "Q3_K";
	if (is(m, "Q3_K_M"))
		return i < n / 16 ? "Q5_K" : more_bits(i, n) ? "Q4_K" : "Q3_K";
	if (is(m, "Q4_K_M") || is(m, "Q5_K_M"))
		return more_bits(i, n) ? "Q6_K" : m->base;
	if (is(m, "Q4_K_S") || is(m, "IQ4_XS") || is(m, "IQ4_NL"))
		return i < n / 8 ? "Q5_K" : m->base;
	return m->base;
}

static bool is_plain(const struct mix *m)
{
	return m->file_type <= 1 || m->file_type == 32;
}

static const char *wanted(const struct mix *m, const struct mix_model *of, const char *name)
{
	const char *rest;
	int i = layer_of(name, &rest);

	if (is_plain(m))
		return m->base;
	if (begins(name, "output.") || (of->tied && begins(name, "token_embd.")))
		return is(m, "Q8_0") ? "Q8_0" : "Q6_K";
	if (begins(name, "token_embd.") && (is(m, "Q1_0") || is(m, "Q2_0")))
		return "Q4_K";
	if (i < 0)
		return m->base;
	if (begins(rest, "attn_v."))
		return of->experts >= 8 && is(m, "Q4_K_M") ? "Q8_0" : of_values(m, i, of->blocks);
	if (begins(rest, "attn_qkv."))
		return is(m, "Q4_K_M") ? "Q5_K" : is(m, "Q5_K_M") ? "Q6_K" : m->base;
	if (begins(rest, "ffn_down"))
		return of_down(m, i, of->blocks);
	if (begins(rest, "attn_output.") && is(m, "Q3_K_M"))
		return "Q4_K";
	return m->base;
}

/* Rows that are not whole blocks. */
static const char *fallback(const char *name)
{
	static const char *const to[][2] = { { "Q4_K", "Q5_0" }, { "Q5_K", "Q5_1" }, { "Q6_K", "Q8_0" },
		                             { "Q2_K", "Q4_0" }, { "Q3_K", "Q4_0" }, { "IQ4_XS", "IQ4_NL" },
		                             { "Q1_0", "Q2_0" }, { "Q2_0", "Q4_0" } };

	for (size_t i = 0; i < sizeof to / sizeof *to; i++)
		if (!strcmp(to[i][0], name))
			return to[i][1];
	return "F16";
}

const struct gguf_type *mix_type(const struct mix *mix, const struct mix_model *m, const char *name, int n_dim,
                                 int64_t cols)
{
	const char *rest, *type = wanted(mix, m, name);

	layer_of(name, &rest);
	if (stays(rest, n_dim))
		return NULL;
	while (cols % gguf_type_named(type)->block)
		type = fallback(type);
	return gguf_type_named(type);
}
