/* folder_orders.c - the order of rows and inputs, factors and axes of tensors that go over as one; see from_folder.c. */
#include <inttypes.h>
#include <string.h>

#include "export/folder_making.h"

const int32_t *making_paired(struct making *m, int64_t rows)
{
	int64_t d = making_head_dim(m);
	int32_t *row;

	if (rows % d) {
		making_fail(m, E_FORMAT, "%" PRId64 " rows are not whole heads of %" PRId64, rows, d);
		return NULL;
	}
	row = arena_alloc(&m->s->g.arena, size_mul((size_t)rows, sizeof *row));
	for (int64_t r = 0; r < rows; r++)
		row[r] = (int32_t)(r / d * d + r % 2 * (d / 2) + r % d / 2);
	return row;
}

/* Value heads in turn over the key heads: n is of key head n mod (key heads).  NULL: they are in that order. */
static const int32_t *tiled(struct making *m, int64_t all, int64_t first, int64_t dim)
{
	int64_t keys = making_int(m, "linear_num_key_heads", INT64_MIN),
		values = making_int(m, "linear_num_value_heads", INT64_MIN), each;
	int32_t *row;

	if (m->code || keys == values)
		return NULL;
	if (values < keys || values % keys || all > INT32_MAX || all != first + values * dim) {
		making_fail(m, E_FORMAT,
		            "%" PRId64 " rows, %" PRId64 " value heads of %" PRId64 " over %" PRId64
		            " key heads are wanted",
		            all, values, dim, keys);
		return NULL;
	}
	each = values / keys;
	row = arena_alloc(&m->s->g.arena, size_mul((size_t)all, sizeof *row));
	for (int64_t r = 0; r < all; r++) {
		int64_t head = (r - first) / dim, within = (r - first) % dim;

		row[r] = (int32_t)(r < first ? r : first + (head % keys * each + head / keys) * dim + within);
	}
	return row;
}

/* The order of rows and inputs of a tensor of gated delta nets. */
void settle_tiled(struct making *m, struct source_tensor *t, const char *hf, const char *what)
{
	static const struct {
		const char *name;
		bool behind_keys, whole_head, inputs;
	} of[] = {
		{ "attn_qkv.weight", true, true, false },
		{ "attn_gate.weight", false, true, false },
		{ "ssm_alpha.weight", false, false, false },
		{ "ssm_beta.weight", false, false, false },
		{ "ssm_a", false, false, false },
		{ "ssm_dt.bias", false, false, false },
		{ "ssm_conv1d.weight", true, true, false },
		{ "ssm_out.weight", false, true, true },
	};
	int64_t dk = making_int(m, "linear_key_head_dim", INT64_MIN),
		keys = making_int(m, "linear_num_key_heads", INT64_MIN);

	for (size_t i = 0; i < sizeof of / sizeof *of && !m->code; i++) {
		int64_t first = of[i].behind_keys ? 2 * keys * dk : 0, dim = of[i].whole_head ? dk : 1;
		bool vector = t->t.n_dim == 1;

		if (strcmp(of[i].name, what))
			continue;
		if (of[i].inputs)
			t->col = tiled(m, t->t.ne[0], first, dim);
		else
			t->row = tiled(m, vector ? t->t.ne[0] : t->t.ne[1], first, dim);
	}
}

/* Mamba-2's vectors have an axis more: [heads][1], and the norm's [groups][inputs]. */
void settle_mamba(struct making *m, struct source_tensor *t, const char *hf, const char *name)
{
	int64_t groups = making_int(m, "n_groups", making_int(m, "mamba_n_groups", 1));
	bool norm = !strcmp(name, "ssm_norm.weight");

	if (t->t.n_dim != 1 || (strcmp(name, "ssm_a") && strcmp(name, "ssm_d") && !norm))
		return;
	if (m->code || groups < 1 || t->t.count % groups) {
		making_fail(m, E_FORMAT, "%" PRId64 " groups, of %" PRId64 " inputs", groups, t->t.count);
	} else if (!norm || groups > 1) {
		t->t.n_dim = 2;
		t->t.ne[0] = norm ? t->t.count / groups : 1;
		t->t.ne[1] = norm ? groups : t->t.count;
	}
}

/* ---- Falcon-H1 ---- */

/* Element i of a list of n numbers; 1 where there is none. */
static float factor_at(struct making *m, const char *member, size_t n, size_t i)
{
	const struct json *list = json_get(m->st->text, member);
	double v = 1;

	if (json_kind(list) != JSON_NULL && (json_len(list) != n || json_to_double(json_at(list, i), &v)))
		making_fail(m, E_FORMAT, "%s: is not %zu numbers", member, n);
	return (float)v;
}

/* The five factors of the mixer's rows: gate, x, B, C and time steps. */
static void mixer_factors(struct making *m, struct source_tensor *t)
{
	int64_t groups = making_int(m, "mamba_n_groups", 1) * making_int(m, "mamba_d_state", INT64_MIN),
		heads = making_int(m, "mamba_n_heads", INT64_MIN),
		inner = heads * making_int(m, "mamba_d_head", INT64_MIN), rows = t->t.ne[1];
	int64_t ends[5] = { inner, 2 * inner, 2 * inner + groups, 2 * inner + 2 * groups,
		            2 * inner + 2 * groups + heads };
	float by[5], *row;

	for (size_t i = 0; i < 5; i++)
		by[i] = factor_at(m, "ssm_multipliers", 5, i);
	if (!m->code && (t->t.n_dim != 2 || rows != ends[4]))
		making_fail(m, E_FORMAT, "tensor %s: %" PRId64 " rows, gate, x, B, C and steps have %" PRId64,
		            t->known_as, rows, ends[4]);
	if (m->code)
		return;
	row = arena_alloc(&m->s->g.arena, size_mul((size_t)rows, sizeof *row));
	for (int64_t r = 0, i = 0; r < rows; r++) {
		while (r >= ends[i])
			i++;
		row[r] = by[i];
	}
	t->row_times = row;
}

/* A tied embedding is two matrices, since its factors differ. */
static void untie(struct making *m, const struct source_tensor *embedding)
{
	struct source_tensor *to = &m->s->t[m->s->n++];

	*to = *embedding;
	to->t.name = "output.weight";
	to->times = (float)making_float(m, "lm_head_multiplier", 1);
}

/* The file has no keys for the model's factors: they are in its matrices. */
void settle_falcon_h1(struct making *m, struct source_tensor *t, const char *hf, const char *name)
{
	static const struct {
		const char *name, *member;
	} of[] = {
		{ "token_embd.weight", "embedding_multiplier" }, { "output.weight", "lm_head_multiplier" },
		{ "attn_q.weight", "attention_in_multiplier" },  { "attn_v.weight", "attention_in_multiplier" },
		{ "attn_k.weight", "key_multiplier" },           { "attn_output.weight", "attention_out_multiplier" },
		{ "ssm_in.weight", "ssm_in_multiplier" },        { "ssm_out.weight", "ssm_out_multiplier" },
	};
	float *row;

	settle_mamba(m, t, hf, name);
	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		if (!strcmp(of[i].name, name))
			t->times = (float)making_float(m, of[i].member, 1);
	if (!strcmp(name, "token_embd.weight") && !store_has(m->st, "lm_head.weight"))
		untie(m, t);
	if (!strcmp(name, "ffn_gate.weight"))
		t->times = factor_at(m, "mlp_multipliers", 2, 0);
	if (!strcmp(name, "ffn_down.weight"))
		t->times = factor_at(m, "mlp_multipliers", 2, 1);
	if (!strcmp(name, "ssm_in.weight"))
		mixer_factors(m, t);
	if (!strcmp(name, "attn_k.weight") && t->t.n_dim == 2) {
		row = arena_alloc(&m->s->g.arena, size_mul((size_t)t->t.ne[1], sizeof *row));
		for (int64_t r = 0; r < t->t.ne[1]; r++)
			row[r] = (float)making_float(m, "attention_in_multiplier", 1);
		t->row_times = row;
	}
}

/* ---- Kimi ---- */

/* Convolutions have an axis of one input: [channels][1][width]. */
void settle_kimi_linear(struct making *m, struct source_tensor *t, const char *hf, const char *name)
{
	settle_mamba(m, t, hf, name);
	if (!name_behind(name, "ssm_conv1d_") || t->t.n_dim != 2)
		return;
	t->t.n_dim = 3;
	t->t.ne[2] = t->t.ne[1];
	t->t.ne[1] = 1;
}

/* The same, and one axis more. */
void settle_glm5_next(struct making *m, struct source_tensor *t, const char *hf, const char *name)
{
	if (!name_behind(name, "ssm_conv1d_") || t->t.n_dim != 2)
		return;
	t->t.n_dim = 4;
	t->t.ne[2] = t->t.ne[1];
	t->t.ne[1] = 1;
}

/* ---- RWKV ---- */

/* The bonus, a row for each head, is a vector. */
void settle_rwkv7(struct making *m, struct source_tensor *t, const char *hf, const char *name)
{
	if (strcmp(name, "time_mix_r_k.weight") != 0)
		return;
	t->t.n_dim = 1;
	t->t.ne[0] = t->t.count;
	t->t.ne[1] = 1;
}
