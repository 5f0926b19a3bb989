/* from_folder.c - see from_folder.h.
 *
 * Names come from the tables that GGUF files are read with (gguf_names.c), read the other way.  What a converter changes:
 *
 *   llama q, k         rows j, d / 2 + j of a head become 2 j, 2 j + 1
 *   qwen35 norms       w becomes 1 + w, but for the gated one
 *   qwen35 A_log       becomes -exp(A_log)
 *   qwen35 value heads head n belongs to key head n mod (key heads): rows, and the inputs of the output matrix
 *   Gemma's norms      w becomes 1 + w; of queries, times what a GGUF file cannot say of the scores' scale
 *   experts            one matrix each, or gate and up in one, become one stack per kind */
#include "export/from_folder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "export/folder_making.h"

enum { NAME_BYTES = 64, EXPERTS_MOST = 4096 };

/* ---- names ---- */

static bool ends(const char *s, const char *with)
{
	size_t n = strlen(s), w = strlen(with);

	return n >= w && !strcmp(s + n - w, with);
}

/* Behind prefix, or NULL. */
static const char *behind(const char *s, const char *prefix)
{
	size_t n = strlen(prefix);

	return strncmp(s, prefix, n) ? NULL : s + n;
}

/* The line whose tensor is called hf, of the architecture's own names or the common ones. */
static const struct gguf_name *line_of(const struct gguf_name *own, const struct gguf_name *common, const char *hf)
{
	/* Stacks of a folder have no ".weight" behind them. */
	for (const struct gguf_name *n = own; n && n->gguf; n++)
		if (!strcmp(n->hf, hf) || (behind(n->hf, hf) && !strcmp(behind(n->hf, hf), ".weight")))
			return n;
	for (const struct gguf_name *n = common; n->gguf; n++)
		if (!strcmp(n->hf, hf))
			return n;
	return NULL;
}

/* The language model's part of a name, as if there were nothing beside it; NULL: a tower's. */
static const char *text_name(const char *name, char *buf, size_t cap)
{
	static const char *const roots[] = { "model.language_model.", "language_model.model.", "backbone.", "model." };
	static const char *const towers[] = { "visual.",       "vision_tower.", "multi_modal_projector.",
		                              "embed_vision.", "embed_audio.",  "audio_tower.",
		                              "vision_model.", "patch_merger." };
	const char *rest, *inner = behind(name, "model.");

	for (size_t i = 0; i < sizeof towers / sizeof *towers; i++)
		if (behind(name, towers[i]) || (inner && behind(inner, towers[i])))
			return NULL;
	for (int i = 0; i < 4; i++)
		if ((rest = behind(name, roots[i]))) {
			snprintf(buf, cap, "model.%s", rest);
			return buf;
		}
	rest = behind(name, "language_model.");
	return rest ? rest : name;
}

/* "PREFIXn.rest": n, and the rest in *rest; -1: no such name. */
static int64_t numbered(const char *name, const char *prefix, const char **rest)
{
	const char *at = behind(name, prefix);
	char *end;
	long n;

	if (!at || *at < '0' || *at > '9')
		return -1;
	n = strtol(at, &end, 10);
	*rest = end + 1;
	return *end == '.' && n <= 100000 ? n : -1;
}

/* The block of a language model's or draft head's layer, counted as the new file counts them, and what follows in *rest; -1:
 * a tensor of no layer. */
static int64_t block_of(const struct making *m, const char *hf, const char **rest)
{
	int64_t block = numbered(hf, "model.layers.", rest);

	if (block < 0 && (block = numbered(hf, "mtp.layers.", rest)) >= 0)
		block += m->blocks;
	return block;
}

/* A tensor of the new file: its name, and the line of the tables that says how it is made. */
struct target {
	const struct gguf_name *line;
	char name[NAME_BYTES];
};

static bool target_of(const struct making *m, const char *hf, struct target *to)
{
	const char *rest = hf;
	int64_t block = block_of(m, hf, &rest);

	if (block >= 0) {
		to->line = line_of(m->arch->names, gguf_block_names, rest);
		if (!to->line && block >= m->blocks && !m->arch->mtp_apart)
			to->line = line_of(NULL, gguf_behind_names, rest);
	} else {
		to->line = line_of(m->arch->names, gguf_top_names, hf);
		if (!to->line && (to->line = line_of(NULL, gguf_draft_names, hf)))
			block = m->blocks;
	}
	if (!to->line || block >= m->blocks + m->drafts)
		return false;
	if (block >= 0)
		snprintf(to->name, sizeof to->name, "blk.%" PRId64 ".%s", block, to->line->gguf);
	else
		snprintf(to->name, sizeof to->name, "%s", to->line->gguf);
	return true;
}

/* ---- orders ---- */

/* Rows in pairs, for the other rotation. */
static const int32_t *paired(struct making *m, int64_t rows)
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
static void tile(struct making *m, struct source_tensor *t, const char *what)
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

/* ---- tensors ---- */

/* Vectors and kernels are computed at once, as F32: moved, with one added, or as a rate. */
static void make_floats(struct making *m, struct source_tensor *t, const char *hf, const struct gguf_name *line)
{
	bool zero = m->delta && !m->norms_whole && strstr(hf, "norm") && !ends(hf, "linear_attn.norm.weight");
	bool add = zero || line->fix == &gguf_minus_one;
	int64_t cols = t->t.n_dim == 1 ? 1 : t->t.ne[0], rows = t->t.count / cols;
	float *v = arena_alloc(&m->s->g.arena, size_mul((size_t)t->t.count, sizeof *v));
	struct weight w;

	if (rows > INT32_MAX || cols > INT32_MAX ||
	    (m->code = weight_gguf(&w, hf, t->t.type, (int)rows, (int)cols, t->t.data, t->t.bytes, m->err)))
		return;
	for (int64_t r = 0; r < rows; r++)
		w.fmt->decode(v + r * cols, &w, t->row ? t->row[r] : (int)r);
	for (int64_t i = 0; i < t->t.count; i++)
		v[i] = line->fix == &gguf_log_minus ? -expf(v[i]) : add ? v[i] + 1 : v[i];
	for (int64_t i = 0; i < t->t.count && m->query_scale > 0 && ends(hf, "self_attn.q_norm.weight"); i++)
		v[i] = (float)(m->query_scale * (double)v[i]);
	t->t.type = gguf_type_named("F32");
	t->t.data = (const uint8_t *)v;
	t->t.bytes = (size_t)t->t.count * sizeof *v;
	t->row = NULL;
}

/* Shape and bytes of t under its new name; axes of 1 go. */
static void take_tensor(struct making *m, struct source_tensor *to, const struct tensor *t, const char *name)
{
	const struct gguf_type *type = gguf_type_named(tensor_type_name(t));
	int n = 0;

	if (!t->count)
		making_fail(m, E_FORMAT, "tensor %s is empty", t->name);
	if (!type || t->format || !type->fmt)
		making_fail(m, E_UNSUPPORTED, "tensor %s is %s: GGUF files are made of BF16, F16 and F32", t->name,
		            tensor_type_name(t));
	*to = (struct source_tensor){ .t = { .name = arena_strndup(&m->s->g.arena, name, strlen(name)),
		                             .type = type,
		                             .ne = { 1, 1, 1, 1 },
		                             .count = t->count,
		                             .data = t->data,
		                             .bytes = t->bytes },
		                      .known_as = t->name };
	for (int d = t->n_dim - 1; d >= 0; d--)
		if (t->dim[d] != 1 || (t->n_dim == 2 && !ends(name, "shexp.weight")) || t->n_dim == 1) {
			if (n == GGUF_DIMS) {
				making_fail(m, E_UNSUPPORTED, "tensor %s has more than %d axes", t->name, GGUF_DIMS);
				return;
			}
			to->t.ne[n++] = t->dim[d];
		}
	to->t.n_dim = n;
}

static void add_tensor(struct making *m, const struct tensor *t, const char *hf, const struct target *target)
{
	struct source_tensor *to = &m->s->t[m->s->n++];

	take_tensor(m, to, t, target->name);
	if (!m->code && to->t.n_dim > (strstr(target->name, "_exps.") ? 3 : 2))
		making_fail(m, E_FORMAT, "tensor %s has %d axes, at most 2 are wanted", t->name, to->t.n_dim);
	if (m->code)
		return;
	if (target->line->fix == &gguf_permuted)
		to->row = paired(m, to->t.n_dim == 1 ? to->t.ne[0] : to->t.ne[1]);
	if (m->tiled)
		tile(m, to, target->line->gguf);
	if (!m->code && (to->t.n_dim == 1 || target->line->fix == &gguf_conv || strstr(target->name, "shortconv.conv")))
		make_floats(m, to, hf, target->line);
}

/* ---- experts ---- */

static const char *const stacks[] = { "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps" };

/* Names of experts that have a matrix each: the prefix before their number, and their matrices in the order of stacks. */
static const struct expert_form {
	const char *prefix, *hf[3];
} forms[] = { { "mlp.experts.", { "gate_proj", "up_proj", "down_proj" } },
	      { "mixer.experts.", { NULL, "up_proj", "down_proj" } },
	      { "feed_forward.experts.", { "w1", "w3", "w2" } },
	      { "block_sparse_moe.experts.", { "w1", "w3", "w2" } } };

static struct source_tensor *add_stack(struct making *m, const struct tensor *like, int64_t block, int kind, int n)
{
	struct source_tensor *to = &m->s->t[m->s->n++];
	char name[NAME_BYTES];

	snprintf(name, sizeof name, "blk.%" PRId64 ".%s.weight", block, stacks[kind]);
	take_tensor(m, to, like, name);
	to->n_part = n;
	to->part = xcalloc((size_t)n + 1, sizeof *to->part);
	return to;
}

/* Expert 0 of a kind stands for all of its layer: "...experts.0.gate_proj.weight". */
static void add_apart(struct making *m, const struct tensor *first, int64_t block, const struct expert_form *form,
                      int kind)
{
	const char *count = json_get(m->st->text, "n_routed_experts")  ? "n_routed_experts" :
	                    json_get(m->st->text, "num_local_experts") ? "num_local_experts" :
	                                                                 "num_experts";
	int64_t n = making_int(m, count, INT64_MIN);
	int stem = (int)strlen(first->name) - (int)strlen("0.") - (int)strlen(form->hf[kind]) - (int)strlen(".weight");
	struct source_tensor *to;

	if (n < 1 || n > EXPERTS_MOST)
		making_fail(m, E_FORMAT, "%s: %" PRId64, count, n);
	if (first->n_dim != 2)
		making_fail(m, E_FORMAT, "tensor %s has %d axes, 2 are wanted", first->name, first->n_dim);
	if (m->code)
		return;
	to = add_stack(m, first, block, kind, (int)n);
	for (int64_t e = 0; e < n && !m->code; e++) {
		char name[512];
		struct tensor *t;

		snprintf(name, sizeof name, "%.*s%" PRId64 ".%s.weight", stem, first->name, e, form->hf[kind]);
		t = store_find(m->st, name);
		if (!t || t->type != first->type || t->bytes != first->bytes || t->n_dim != 2 ||
		    t->dim[1] != first->dim[1])
			making_fail(m, E_MISSING, "tensor %s: missing, or of another size than %s", name, first->name);
		else if (!(m->code = store_data(m->st, t, m->err)))
			to->part[e] = t->data;
	}
	to->t.n_dim = 3;
	to->t.ne[2] = n;
	to->t.count *= n;
	to->t.bytes *= (size_t)n;
}

/* [experts][gate rows, up rows][inputs]: two stacks. */
static void add_fused(struct making *m, const struct tensor *t, int64_t block)
{
	int64_t n = t->n_dim == 3 ? t->dim[0] : 0;

	if (n < 1 || n > EXPERTS_MOST || t->dim[1] % 2) {
		making_fail(m, E_FORMAT, "tensor %s: is not a stack of gates and ups", t->name);
		return;
	}
	for (int kind = 0; kind < 2; kind++) {
		struct source_tensor *to = add_stack(m, t, block, kind, (int)n);
		size_t half = t->bytes / (size_t)n / 2;

		for (int64_t e = 0; e < n; e++)
			to->part[e] = t->data + (size_t)(2 * e + kind) * half;
		to->t.n_dim = 3;
		to->t.ne[0] = t->dim[2];
		to->t.ne[1] = t->dim[1] / 2;
		to->t.ne[2] = n;
		to->t.count /= 2;
		to->t.bytes /= 2;
	}
}

static void add_whole_stack(struct making *m, const struct tensor *t, int64_t block)
{
	char name[NAME_BYTES];

	if (t->n_dim != 3)
		making_fail(m, E_FORMAT, "tensor %s: is not a stack, it has %d axes", t->name, t->n_dim);
	snprintf(name, sizeof name, "blk.%" PRId64 ".ffn_down_exps.weight", block);
	take_tensor(m, &m->s->t[m->s->n++], t, name);
}

/* Whether t is of experts as Hugging Face lays them out; then it is added, or is part of what is. */
static bool add_experts(struct making *m, const struct tensor *t, const char *hf)
{
	const char *rest = hf, *of;
	int64_t block = block_of(m, hf, &rest), e;

	if (block < 0 || block >= m->blocks + m->drafts)
		return false;
	if (!strcmp(rest, "mlp.experts.gate_up_proj") || !strcmp(rest, "block_sparse_moe.input_linear.weight")) {
		add_fused(m, t, block);
		return true;
	}
	if (!strcmp(rest, "mlp.experts.down_proj") || !strcmp(rest, "block_sparse_moe.output_linear.weight")) {
		add_whole_stack(m, t, block);
		return true;
	}
	for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
		e = numbered(rest, forms[f].prefix, &of);
		for (int kind = 0; kind < 3 && e >= 0; kind++)
			if (forms[f].hf[kind] && behind(of, forms[f].hf[kind]) &&
			    !strcmp(behind(of, forms[f].hf[kind]), ".weight")) {
				if (!e)
					add_apart(m, t, block, &forms[f], kind);
				return true;
			}
	}
	return false;
}

/* ---- matrices that become two ---- */

/* Rows of t, in the order of row (or those from first on, row NULL), as a matrix of its own. */
static void add_rows(struct making *m, const struct tensor *t, int64_t block, const char *name, int64_t first,
                     int64_t rows, const int32_t *row)
{
	struct source_tensor *to = &m->s->t[m->s->n++];
	char full[NAME_BYTES];
	size_t row_bytes;

	snprintf(full, sizeof full, "blk.%" PRId64 ".%s", block, name);
	take_tensor(m, to, t, full);
	if (m->code)
		return;
	row_bytes = to->t.bytes / (size_t)t->dim[0];
	to->t.data += (size_t)first * row_bytes;
	to->t.n_dim = 2;
	to->t.ne[0] = t->dim[1];
	to->t.ne[1] = rows;
	to->t.count = rows * t->dim[1];
	to->t.bytes = (size_t)rows * row_bytes;
	to->row = row;
}

/* Qwen3-Next's q, k, v and z stand together by key head: q, k and v of all heads, and z of all. */
static void add_qkvz(struct making *m, const struct tensor *t, int64_t block)
{
	int64_t dk = making_int(m, "linear_key_head_dim", INT64_MIN),
		keys = making_int(m, "linear_num_key_heads", INT64_MIN),
		values = making_int(m, "linear_num_value_heads", INT64_MIN), each, per, at = 0, z = 0;
	int32_t *qkv, *gate;

	if (m->code)
		return;
	each = values / keys * dk;
	per = 2 * dk + 2 * each;
	if (values % keys || t->n_dim != 2 || t->dim[0] != keys * per) {
		making_fail(m, E_FORMAT, "tensor %s: %" PRId64 " rows, %" PRId64 " key heads have %" PRId64 " each",
		            t->name, t->dim[0], keys, per);
		return;
	}
	qkv = arena_alloc(&m->s->g.arena, size_mul((size_t)(keys * (2 * dk + each)), sizeof *qkv));
	gate = arena_alloc(&m->s->g.arena, size_mul((size_t)(keys * each), sizeof *gate));
	for (int part = 0; part < 3; part++)
		for (int64_t h = 0; h < keys; h++)
			for (int64_t r = 0; r < (part < 2 ? dk : each); r++)
				qkv[at++] = (int32_t)(h * per + part * dk + r);
	for (int64_t h = 0; h < keys; h++)
		for (int64_t r = 0; r < each; r++)
			gate[z++] = (int32_t)(h * per + 2 * dk + each + r);
	add_rows(m, t, block, "attn_qkv.weight", 0, at, qkv);
	if (!m->code)
		add_rows(m, t, block, "attn_gate.weight", 0, z, gate);
}

/* Whether t is a matrix that the file has in parts or under a name that no table has. */
static bool add_parts(struct making *m, const struct tensor *t, const char *hf)
{
	const char *rest = hf;
	int64_t block = block_of(m, hf, &rest);
	bool experts = making_int(m, "num_local_experts", 0) > 0;

	if (block < 0 || block >= m->blocks + m->drafts || m->code)
		return false;
	if (!strcmp(rest, "shared_mlp.input_linear.weight")) {
		if (t->n_dim != 2 || t->dim[0] % 2)
			making_fail(m, E_FORMAT, "tensor %s: is no gate and up", t->name);
		if (!m->code)
			add_rows(m, t, block, experts ? "ffn_gate_shexp.weight" : "ffn_gate.weight", 0, t->dim[0] / 2,
			         NULL);
		if (!m->code)
			add_rows(m, t, block, experts ? "ffn_up_shexp.weight" : "ffn_up.weight", t->dim[0] / 2,
			         t->dim[0] / 2, NULL);
		return true;
	}
	if (!strcmp(rest, "linear_attn.in_proj_qkvz.weight")) {
		add_qkvz(m, t, block);
		return true;
	}
	if (strcmp(rest, "shared_mlp.output_linear.weight") && strcmp(rest, "linear_attn.in_proj_ba.weight"))
		return false;
	if (t->n_dim != 2)
		making_fail(m, E_FORMAT, "tensor %s has %d axes, 2 are wanted", t->name, t->n_dim);
	else
		add_rows(m, t, block,
		         *rest == 'l' ? "ssm_ba.weight" :
		         experts      ? "ffn_down_shexp.weight" :
		                        "ffn_down.weight",
		         0, t->dim[0], NULL);
	return true;
}

/* Mamba-2's vectors have an axis more: [heads][1], and the norm's [groups][inputs]. */
static void fold_mamba(struct making *m, struct source_tensor *t, const char *name)
{
	int64_t groups = making_int(m, "n_groups", making_int(m, "mamba_n_groups", 1));
	bool norm = !strcmp(name, "ssm_norm.weight");

	if (m->delta || t->t.n_dim != 1 || (strcmp(name, "ssm_a") && strcmp(name, "ssm_d") && !norm))
		return;
	if (m->code || groups < 1 || t->t.count % groups) {
		making_fail(m, E_FORMAT, "%" PRId64 " groups, of %" PRId64 " inputs", groups, t->t.count);
	} else if (!norm || groups > 1) {
		t->t.n_dim = 2;
		t->t.ne[0] = norm ? t->t.count / groups : 1;
		t->t.ne[1] = norm ? groups : t->t.count;
	}
}

/* ---- all of it ---- */

/* Convolutions of [channels][width][1], as mlx has them, come with norms that hold 1 + w. */
static bool has_whole_norms(const struct store *st)
{
	for (size_t i = 0; i < st->n; i++)
		if (ends(st->v[i]->name, "conv1d.weight") && st->v[i]->n_dim == 3)
			return st->v[i]->dim[2] == 1;
	return false;
}

static void put_source(struct making *m, struct tensor *t, int *left)
{
	struct target target;
	char buf[512];
	const char *hf = text_name(t->name, buf, sizeof buf);

	if (!hf)
		++*left;
	if (!hf || ends(hf, "rotary_emb.inv_freq"))
		return;
	m->code = store_data(m->st, t, m->err);
	if (m->code || add_experts(m, t, hf) || add_parts(m, t, hf))
		return;
	if (target_of(m, hf, &target)) {
		add_tensor(m, t, hf, &target);
		fold_mamba(m, &m->s->t[m->s->n - 1], target.line->gguf);
	} else {
		making_fail(m, E_UNSUPPORTED, "tensor %s: GGUF files of %s have no name for it", t->name,
		            m->arch->name);
	}
}

int folder_source(struct gguf_source *s, struct store *st, struct err *err)
{
	struct making m = { .st = st, .s = s, .norms_whole = has_whole_norms(st), .err = err };
	struct tensor *embedding = NULL;
	int left = 0;

	*s = (struct gguf_source){ .g.path = st->dir, .made = true };
	arena_init(&s->g.arena);
	s->t = xcalloc(2 * st->n + 2, sizeof *s->t);
	if (st->coded)
		m.code = err_set(err, E_UNSUPPORTED, "%s: is quantised already; take the model that it was made from",
		                 st->dir);
	if (strcmp(st->box.ops->name, "folder"))
		m.code = err_set(err, E_UNSUPPORTED, "%s: is no model folder; of GGUF files name the file itself",
		                 st->dir);
	making_keys(&m);
	for (size_t i = 0; i < st->n && !m.code; i++) {
		put_source(&m, st->v[i], &left);
		if ((ends(st->v[i]->name, "embed_tokens.weight") ||
		     ends(st->v[i]->name, "backbone.embeddings.weight")) &&
		    !behind(st->v[i]->name, "mtp."))
			embedding = st->v[i];
	}
	if (!m.code && !embedding)
		making_fail(&m, E_MISSING, "tensor embed_tokens.weight: missing");
	if (!m.code)
		making_tokens(&m, embedding->dim[0]);
	if (!m.code && left)
		log_info("%s: %d tensors of its tower are not in the GGUF file: --mmproj-out FILE writes them", st->dir,
		         left);
	pairs_sort(&m.p);
	return m.code;
}
