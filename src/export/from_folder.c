/* from_folder.c - see from_folder.h.
 *
 * Names come from the tables that GGUF files are read with (gguf_names.c), read the other way.  What a converter changes:
 *
 *   llama q, k         rows j, d / 2 + j of a head become 2 j, 2 j + 1
 *   qwen35 norms       w becomes 1 + w, but for the gated one
 *   qwen35 A_log       becomes -exp(A_log)
 *   qwen35 value heads head n belongs to key head n mod (key heads): rows, and the inputs of the output matrix
 *   Gemma's norms      w becomes 1 + w; of queries, times what a GGUF file cannot say of the scores' scale
 *   experts            one matrix each, or gate and up in one, become one stack per kind
 *   Falcon-H1          matrices times the model's factors
 *
 * folder_parts.c has what becomes several tensors or is one of several, folder_orders.c orders and factors. */
#include "export/from_folder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "export/folder_making.h"

/* ---- names ---- */

bool name_ends(const char *s, const char *with)
{
	size_t n = strlen(s), w = strlen(with);

	return n >= w && !strcmp(s + n - w, with);
}

const char *name_behind(const char *s, const char *prefix)
{
	size_t n = strlen(prefix);

	return strncmp(s, prefix, n) ? NULL : s + n;
}

/* The line whose tensor is called hf, of the architecture's own names or the common ones. */
static const struct gguf_name *line_of(const struct gguf_name *own, const struct gguf_name *common, const char *hf)
{
	/* Stacks of a folder have no ".weight" behind them. */
	for (const struct gguf_name *n = own; n && n->gguf; n++)
		if (!strcmp(n->hf, hf) || (name_behind(n->hf, hf) && !strcmp(name_behind(n->hf, hf), ".weight")))
			return n;
	for (const struct gguf_name *n = common; n->gguf; n++)
		if (!strcmp(n->hf, hf))
			return n;
	return NULL;
}

/* The language model's part of a name, as if there were nothing else; NULL: a tower's. */
static const char *text_name(const char *name, char *buf, size_t cap)
{
	static const char *const roots[] = { "model.language_model.", "language_model.model.", "backbone.", "model." };
	static const char *const towers[] = { "visual.",       "vision_tower.", "multi_modal_projector.",
		                              "embed_vision.", "embed_audio.",  "audio_tower.",
		                              "vision_model.", "patch_merger.", "vision_embedder." };
	const char *rest, *inner = name_behind(name, "model.");

	for (size_t i = 0; i < sizeof towers / sizeof *towers; i++)
		if (name_behind(name, towers[i]) || (inner && name_behind(inner, towers[i])))
			return NULL;
	for (int i = 0; i < 4; i++)
		if ((rest = name_behind(name, roots[i]))) {
			snprintf(buf, cap, "model.%s", rest);
			return buf;
		}
	rest = name_behind(name, "language_model.");
	return rest ? rest : name;
}

int64_t name_numbered(const char *name, const char *prefix, const char **rest)
{
	const char *at = name_behind(name, prefix);
	char *end;
	long n;

	if (!at || *at < '0' || *at > '9')
		return -1;
	n = strtol(at, &end, 10);
	*rest = end + 1;
	return *end == '.' && n <= 100000 ? n : -1;
}

int64_t making_block(const struct making *m, const char *hf, const char **rest)
{
	int64_t block = name_numbered(hf, "model.layers.", rest);

	if (block < 0 && (block = name_numbered(hf, "mtp.layers.", rest)) >= 0)
		block += m->blocks;
	return block;
}

/* The line that has the whole name of a layer's tensor, which the file has as one of no layer; NULL: none. */
static const struct gguf_name *whole_line(const struct gguf_name *own, const char *hf)
{
	for (const struct gguf_name *n = own; n->gguf; n++)
		if (!strcmp(n->hf, hf))
			return n;
	return NULL;
}

/* A tensor of the new file: its name, and the line of the tables that says how it is made. */
struct target {
	const struct gguf_name *line;
	char name[MAKING_NAME_BYTES];
};

static bool target_of(const struct making *m, const char *hf, struct target *to)
{
	const char *rest = hf;
	int64_t block = making_block(m, hf, &rest);

	to->line = block >= 0 ? whole_line(m->arch->names, hf) : NULL;
	if (to->line) {
		block = -1;
	} else if (block >= 0) {
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

/* ---- tensors ---- */

/* Vectors and kernels are computed at once, as F32: moved, with one added, or as a rate. */
static void make_floats(struct making *m, struct source_tensor *t, const char *hf, const struct gguf_name *line)
{
	bool zero = m->delta && !m->norms_whole && strstr(hf, "norm") && !name_ends(hf, "linear_attn.norm.weight");
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
	for (int64_t i = 0; i < t->t.count && m->query_scale > 0 && name_ends(hf, "self_attn.q_norm.weight"); i++)
		v[i] = (float)(m->query_scale * (double)v[i]);
	t->t.type = gguf_type_named("F32");
	t->t.data = (const uint8_t *)v;
	t->t.bytes = (size_t)t->t.count * sizeof *v;
	t->row = NULL;
}

struct item_scales *making_scales(struct making *m, const struct tensor *t)
{
	struct item_scales *s = arena_zalloc(&m->s->g.arena, sizeof *s);
	struct store_grid g = { .s = NULL };

	if (!m->code)
		m->code = store_grid(m->st, t, &g, m->err);
	if (m->code || !g.s)
		return NULL;
	*s = (struct item_scales){
		.at = g.s->data, .type = g.s->type, .wide = g.wide, .high = g.high, .broad = g.broad
	};
	return s;
}

void making_take(struct making *m, struct source_tensor *to, const struct tensor *t, const char *name)
{
	const struct gguf_type *type = t->type == DT_OTHER ? NULL : gguf_type_named(tensor_type_name(t));
	struct item_scales *scales = !t->format && t->type == DT_F8_E4M3 ? making_scales(m, t) : NULL;
	int n = 0;

	type = scales ? &source_e4m3 : type;

	if (!t->count)
		making_fail(m, E_FORMAT, "tensor %s is empty", t->name);
	if (t->type == DT_F8_E4M3 && !t->format && !scales)
		making_fail(m, E_MISSING, "tensor %s is in FP8 and has no scales", t->name);
	if (!type || t->format || !type->fmt)
		making_fail(m, E_UNSUPPORTED, "tensor %s is %s: GGUF files are made of BF16, F16, F32 and FP8", t->name,
		            tensor_type_name(t));
	*to = (struct source_tensor){ .t = { .name = arena_strndup(&m->s->g.arena, name, strlen(name)),
		                             .type = type,
		                             .ne = { 1, 1, 1, 1 },
		                             .count = t->count,
		                             .data = t->data,
		                             .bytes = t->bytes },
		                      .scales = scales,
		                      .known_as = t->name };
	for (int d = t->n_dim - 1; d >= 0; d--)
		if (t->dim[d] != 1 || (t->n_dim == 2 && !name_ends(name, "shexp.weight")) || t->n_dim == 1) {
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
	bool vector;

	making_take(m, to, t, target->name);
	if (!m->code && to->t.n_dim > (strstr(target->name, "_exps.") ? 3 : 2))
		making_fail(m, E_FORMAT, "tensor %s has %d axes, at most 2 are wanted", t->name, to->t.n_dim);
	if (m->code)
		return;
	vector = to->t.n_dim == 1 || target->line->fix == &gguf_conv || target->line->fix == &gguf_log_minus ||
	         strstr(target->name, "shortconv.conv");
	if (target->line->fix == &gguf_permuted)
		to->row = making_paired(m, to->t.n_dim == 1 ? to->t.ne[0] : to->t.ne[1]);
	if (m->settle && !m->code)
		m->settle(m, to, hf, target->line->gguf);
	if (vector && !m->code)
		make_floats(m, to, hf, target->line);
}

/* ---- all of it ---- */

/* Convolutions of [channels][width][1], as mlx has them, come with norms that hold 1 + w. */
static bool has_whole_norms(const struct store *st)
{
	for (size_t i = 0; i < st->n; i++)
		if (name_ends(st->v[i]->name, "conv1d.weight") && st->v[i]->n_dim == 3)
			return st->v[i]->dim[2] == 1;
	return false;
}

/* Scales go with their matrix. */
static bool is_scale(const struct making *m, const char *name)
{
	static const char *const suffix[] = { "_scale_inv", "_scale", ".scale" };

	for (int i = 0; i < 3; i++) {
		char of[512];
		const struct tensor *t;

		if (!name_ends(name, suffix[i]))
			continue;
		snprintf(of, sizeof of, "%.*s%s", (int)(strlen(name) - strlen(suffix[i])), name,
		         *suffix[i] == '.' ? ".weight" : "");
		t = store_find(m->st, of);
		return t && !t->format && (t->type == DT_F8_E4M3 || (t->type == DT_I8 && *suffix[i] == '.'));
	}
	return false;
}

/* DeepSeek's own name with a root, and that of a draft head's tensor as the layer behind the last; "": nothing reads it. */
static const char *rooted(const struct making *m, const char *own, char *buf, size_t cap)
{
	const char *of = name_behind(own, "mtp.0.");

	if (of && m->drafts)
		snprintf(buf, cap, "model.layers.%" PRId64 ".%s%s", m->blocks,
		         strcmp(of, "norm.weight") ? "" : "shared_head.", of);
	else
		snprintf(buf, cap, "%s%s", name_behind(own, "mtp.") ? "" : "model.",
		         name_behind(own, "mtp.") ? "" : own);
	return buf;
}

static void put_source(struct making *m, struct tensor *t, int *left)
{
	struct target target;
	char buf[512];
	const char *hf = text_name(t->name, buf, sizeof buf);

	if (hf && !strcmp(m->arch->name, "deepseek4") && !name_behind(hf, "model."))
		hf = rooted(m, t->name, buf, sizeof buf);
	if (!hf)
		++*left;
	if (!hf || !*hf || t->ignored || name_ends(hf, "rotary_emb.inv_freq") || is_scale(m, t->name))
		return;
	m->code = store_data(m->st, t, m->err);
	if (m->code || making_parts(m, t, hf))
		return;
	if (target_of(m, hf, &target))
		add_tensor(m, t, hf, &target);
	else
		making_fail(m, E_UNSUPPORTED, "tensor %s: GGUF files of %s have no name for it", t->name,
		            m->arch->name);
}

int folder_source(struct gguf_source *s, struct store *st, struct err *err)
{
	struct making m = { .st = st, .s = s, .norms_whole = has_whole_norms(st), .err = err };
	struct tensor *embedding = NULL;
	int left = 0;

	*s = (struct gguf_source){ .g.path = st->dir, .made = true };
	arena_init(&s->g.arena);
	s->t = xcalloc(MAKING_PARTS_MOST * st->n + 2, sizeof *s->t);
	if (st->coded)
		m.code = err_set(err, E_UNSUPPORTED, "%s: is quantised already; take the model that it was made from",
		                 st->dir);
	if (st->basis)
		m.code = err_set(err, E_UNSUPPORTED,
		                 "%s: has weights in a rotated basis, which no file is written with; take the model "
		                 "that it was made from",
		                 st->dir);
	if (strcmp(st->box.ops->name, "folder"))
		m.code = err_set(err, E_UNSUPPORTED, "%s: is not a model folder; for a GGUF file, name the file itself",
		                 st->dir);
	making_keys(&m);
	for (size_t i = 0; i < st->n && !m.code; i++) {
		put_source(&m, st->v[i], &left);
		if ((name_ends(st->v[i]->name, "embed_tokens.weight") ||
		     name_ends(st->v[i]->name, "backbone.embeddings.weight") ||
		     !strcmp(st->v[i]->name, "model.embeddings.weight") || !strcmp(st->v[i]->name, "embed.weight")) &&
		    !name_behind(st->v[i]->name, "mtp."))
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
