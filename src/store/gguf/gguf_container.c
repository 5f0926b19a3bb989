/* gguf_container.c - the container of GGUF files; see gguf.h. */
#include "store/gguf/gguf_projector.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum {
	PARTS_MAX = 1024,     /* of a split model */
	BLOCKS_MAX = 1 << 12, /* as many as binders take */
	SPLIT_SUFFIX = 20,    /* "-00001-of-00003.gguf" */
};

const struct gguf_info *gguf_tensor_info(const struct gguf_model *m, const char *name)
{
	const struct gguf_info *t = NULL;

	for (int i = 0; i < m->n_part && !t; i++)
		t = gguf_info(&m->part[i], name);
	return t;
}

/* ---- files ---- */

/* An integer under the whole key, or dflt. */
static int key_int(const struct gguf *g, const char *key, int64_t dflt, int64_t *out, struct err *err)
{
	const struct gguf_value *v = gguf_find(g, key);

	*out = dflt;
	return v ? gguf_int(g, v, 0, out, err) : 0;
}

/* "-00001-of-00003.gguf" at the end of a name of n bytes; the number of parts, or 0. */
static int split_of(const char *path, int *part)
{
	size_t n = strlen(path);
	int count, end = 0;

	if (n < SPLIT_SUFFIX || sscanf(path + n - SPLIT_SUFFIX, "-%5d-of-%5d.gguf%n", part, &count, &end) != 2 ||
	    end != SPLIT_SUFFIX || *part < 1 || count < *part)
		return 0;
	return count;
}

static int open_part(struct gguf_model *m, struct container *c, const char *path, struct err *err)
{
	struct gguf *g = &m->part[m->n_part];
	int code = gguf_open(g, path, err);

	if (code)
		return code;
	m->n_part++;
	c->file[c->n_file++] = (struct store_file){ g->path, g->map };
	return 0;
}

static int check_part(const struct gguf_model *m, int i, int count, struct err *err)
{
	const struct gguf *g = &m->part[i];
	int64_t no, of;
	int code = key_int(g, "split.no", -1, &no, err);

	if (!code)
		code = key_int(g, "split.count", 0, &of, err);
	if (code)
		return code;
	if (no != i || of != count)
		return err_set(err, E_FORMAT,
		               "%s: keys split.no %" PRId64 " and split.count %" PRId64 ", its name says part %d "
		               "of %d",
		               g->path, no, of, i + 1, count);
	return 0;
}

static int check_total(const struct gguf_model *m, struct err *err)
{
	int64_t total, sum = 0;
	int code = key_int(&m->part[0], "split.tensors.count", -1, &total, err);

	for (int i = 0; i < m->n_part; i++)
		sum += (int64_t)m->part[i].n_info;
	if (!code && total >= 0 && total != sum)
		code = err_set(err, E_FORMAT,
		               "%s: key split.tensors.count: %" PRId64 ", the %d parts have %" PRId64 " tensors",
		               m->part[0].path, total, m->n_part, sum);
	return code;
}

/* Any part names the whole. */
static int open_parts(struct gguf_model *m, struct container *c, struct err *err)
{
	int part = 1, count = split_of(c->path, &part), n = count ? count : 1, code = 0;

	if (n > PARTS_MAX)
		return err_set(err, E_LIMIT, "%s: %d parts, at most %d are read", c->path, n, PARTS_MAX);
	m->part = arena_zalloc(&c->arena, (size_t)n * sizeof *m->part);
	c->file = arena_zalloc(&c->arena, (size_t)(n + 1) * sizeof *c->file); /* and the projector's */
	if (!count) {
		int64_t of;

		code = open_part(m, c, c->path, err);
		if (!code && !(code = key_int(&m->part[0], "split.count", 0, &of, err)) && of > 1)
			code = err_set(err, E_FORMAT,
			               "%s: one of %" PRId64 " parts by its key split.count, and its name does not "
			               "end in -00001-of-%05" PRId64 ".gguf",
			               c->path, of, of);
		return code;
	}
	for (int i = 0; i < n && !code; i++) {
		const char *path = arena_printf(&c->arena, "%.*s-%05d-of-%05d.gguf",
		                                (int)(strlen(c->path) - SPLIT_SUFFIX), c->path, i + 1, n);

		code = open_part(m, c, path, err);
		if (!code)
			code = check_part(m, i, n, err);
	}
	return code ? code : check_total(m, err);
}

/* ---- the model ---- */

static int read_arch(struct gguf_model *m, struct container *c, struct err *err)
{
	const struct gguf *g = &m->part[0];
	const struct gguf_value *v = gguf_find(g, "general.architecture");
	const char *name, *nearest;
	struct gguf_string s;
	const uint8_t *at;

	if (!v || v->kind != GGUF_STRING || v->array)
		return err_set(err, E_FORMAT, "%s: key general.architecture: %s", g->path,
		               v ? "is not a string" : "missing");
	at = v->p;
	s = gguf_next(&at);
	if (s.n == 4 && !memcmp(s.p, "clip", 4))
		return err_set(err, E_ARG, "%s: is a projector file: its tower is read with the GGUF file of a model",
		               g->path);
	name = arena_strndup(&c->arena, s.p, s.n);
	m->arch = gguf_arch_find(name);
	if (m->arch) {
		m->arch = gguf_arch_choose(m);
		return 0;
	}
	if (!strcmp(name, "deepseek41"))
		return err_set(err, E_UNSUPPORTED,
		               "%s: architecture \"%s\" is not supported: it has Engram tables, and histories that "
		               "several layers read, which weft does not compute",
		               g->path, name);
	nearest = gguf_arch_nearest(name);
	return err_set(err, E_UNSUPPORTED, "%s: architecture \"%.60s\" is not known%s%s; all that are: docs/gguf.md",
	               g->path, name, nearest ? "; the nearest that is known: " : "", nearest ? nearest : "");
}

/* Converters of DeepSeek V4 name a draft head in the metadata, and leave it out. */
static bool names_no_head(const struct gguf_model *m)
{
	char name[GGUF_NAME_BYTES];

	snprintf(name, sizeof name, "blk.%" PRId64 ".nextn.eh_proj.weight", m->blocks - m->drafts);
	return !strcmp(m->arch->name, "deepseek4") && !gguf_tensor_info(m, name);
}

static int read_blocks(struct gguf_model *m, struct err *err)
{
	struct gguf_conf c = { .m = m, .err = err };

	m->blocks = gguf_conf_int(&c, "block_count", m->arch->sizeless ? 1 : GGUF_NEEDED);
	m->drafts = m->arch->head ? 0 : gguf_conf_int(&c, "nextn_predict_layers", 0);
	if (!c.code && m->drafts > 0 && names_no_head(m))
		m->drafts = 0;
	if (!c.code && (m->blocks < 1 || m->blocks > BLOCKS_MAX || m->drafts < 0 || m->drafts >= m->blocks))
		gguf_conf_fail(&c, E_FORMAT,
		               "key %s.block_count: %" PRId64 " blocks, %" PRId64 " of them draft heads; 1 to %d are "
		               "read",
		               m->arch->name, m->blocks, m->drafts, BLOCKS_MAX);
	return c.code;
}

/* Opens the tower that was asked for, or the one next to the model; if the latter cannot be read, the model reads text
 * only. */
static int open_projector(struct gguf_model *m, struct container *c, struct err *err)
{
	struct gguf_projector *p = arena_zalloc(&c->arena, sizeof *p);
	const char *path = c->tower;
	struct err why;
	int code;

	if (path && !*path)
		path = projector_beside(c->path, &c->arena);
	if (!path)
		return 0;
	code = projector_open(p, path, m, &c->arena, &why);
	if (!code) {
		m->seen = p;
		return 0;
	}
	projector_close(p);
	if (!*c->tower) {
		log_warn("%s reads text only: its projector file cannot be used: %s", c->path, why.msg);
		return 0;
	}
	if (err)
		*err = why;
	return code;
}

static int open_gguf(struct container *c, struct err *err)
{
	struct gguf_model *m = arena_zalloc(&c->arena, sizeof *m);
	int code;

	c->own = m;
	if ((code = open_parts(m, c, err)) || (code = read_arch(m, c, err)) || (code = read_blocks(m, err)))
		return code;
	return m->arch->head ? 0 : open_projector(m, c, err);
}

/* ---- tensors ---- */

static int find_names(const struct gguf_name *table, const char *name, const struct gguf_name *out[GGUF_PER_TENSOR])
{
	int n = 0;

	for (; table->gguf && n < GGUF_PER_TENSOR; table++)
		if (!strcmp(table->gguf, name))
			out[n++] = table;
	return n;
}

static void name_block(const struct gguf_model *m, int64_t i, const char *rest, struct gguf_named *out)
{
	bool draft = i >= m->blocks - m->drafts, apart = draft && m->arch->mtp_apart;

	out->prefix = apart ? "mtp." : "model.";
	snprintf(out->block, sizeof out->block, "%s%" PRId64 ".", m->arch->block ? m->arch->block : "layers.",
	         apart ? i - (m->blocks - m->drafts) : i);
	out->n = find_names(m->arch->names, rest, out->name);
	if (!out->n)
		out->n = find_names(gguf_block_names, rest, out->name);
	if (!out->n && draft && !apart)
		out->n = find_names(gguf_behind_names, rest, out->name);
	if (!out->n && apart && (out->n = find_names(gguf_draft_names, rest, out->name))) {
		out->prefix = "";
		out->block[0] = 0;
	}
}

void gguf_name_of(const struct gguf_model *m, const char *name, struct gguf_named *out)
{
	int64_t i;
	int at = 0;

	*out = (struct gguf_named){ .prefix = "" };
	if (sscanf(name, "blk.%5" SCNd64 ".%n", &i, &at) == 1 && at && i >= 0 && i < m->blocks) {
		name_block(m, i, name + at, out);
		return;
	}
	/* Files of DeepSeek V4 may have the draft head's block apart, as its folders have. */
	if (!strncmp(m->arch->name, "deepseek4", 9) && !strncmp(name, "mtp.0.", 6)) {
		snprintf(out->block, sizeof out->block, "mtp.0.");
		out->n = find_names(m->arch->names, name + 6, out->name);
		return;
	}
	out->n = find_names(m->arch->names, name, out->name);
	if (!out->n)
		out->n = find_names(gguf_top_names, name, out->name);
}

void gguf_describe(struct gguf_tensor *t, const struct gguf_info *from, const char *file)
{
	t->from = from;
	t->t.file = file;
	t->t.type = DT_U8;
	if (from->type->block > 1 || dtype_parse(from->type->name, &t->t.type))
		t->t.format = from->type->name;
	t->t.n_dim = from->n_dim;
	for (int i = 0; i < from->n_dim; i++)
		t->t.dim[i] = from->ne[from->n_dim - 1 - i];
	t->t.count = t->t.elements = from->count;
	t->t.data = from->data;
	t->t.bytes = from->bytes;
}

static int add_part(struct container *c, struct gguf_tensor *t, const struct gguf_named *n, int k, struct err *err)
{
	struct gguf_model *m = c->own;
	const char *hf = n->n ? n->name[k]->hf : t->from->name;

	t->t.name = arena_printf(&c->arena, "%s%s%s", n->n ? n->prefix : "", n->block, hf);
	if (!n->n)
		t->t.name = t->from->name;
	c->v[c->n++] = &t->t;
	if (!n->n)
		return 0;
	t->fix = n->name[k]->fix;
	t->part = n->name[k]->part;
	t->t.origin = t->fix ? NULL : t->from->name;
	return t->fix && t->fix->shape ? t->fix->shape(m, t, err) : 0;
}

/* Where gate and up are one stack, binders look for the stack of down next to it. */
static const char *beside_fused(const struct container *c, const struct gguf_info *t)
{
	char fused[GGUF_NAME_BYTES];
	int64_t i;
	int at = 0;

	if (sscanf(t->name, "blk.%5" SCNd64 ".%n", &i, &at) != 1 || !at || strcmp(t->name + at, "ffn_down_exps.weight"))
		return NULL;
	snprintf(fused, sizeof fused, "blk.%" PRId64 ".ffn_gate_up_exps.weight", i);
	return gguf_tensor_info(c->own, fused) ? "mlp.experts.down_proj" : NULL;
}

static int add_info(struct container *c, const struct gguf *g, const struct gguf_info *from, struct err *err)
{
	const struct gguf_model *m = c->own;
	const struct gguf_name *own[GGUF_PER_TENSOR];
	const char *down = find_names(m->arch->names, "ffn_down_exps.weight", own) ? NULL : beside_fused(c, from);
	struct gguf_name renamed = { .hf = down };
	struct gguf_named n;
	int code = 0;

	gguf_name_of(m, from->name, &n);
	if (down)
		n.name[0] = &renamed;
	for (int k = 0; k < (n.n ? n.n : 1) && !code; k++) {
		struct gguf_tensor *t = arena_zalloc(&c->arena, sizeof *t);

		gguf_describe(t, from, g->path);
		t->of = m;
		code = add_part(c, t, &n, k, err);
	}
	return code;
}

static int tensors(struct container *c, struct err *err)
{
	struct gguf_model *m = c->own;
	size_t n = 0;
	int code = 0;

	for (int i = 0; i < m->n_part; i++)
		n += m->part[i].n_info;
	n += m->seen ? m->seen->n : 0;
	c->v = arena_alloc(&c->arena, size_mul(GGUF_PER_TENSOR * n + 1, sizeof *c->v));
	for (int i = 0; i < m->n_part; i++) {
		for (size_t k = 0; k < m->part[i].n_info && !code; k++)
			code = add_info(c, &m->part[i], &m->part[i].info[k], err);
		if (m->part[i].tail_bytes >= 64)
			log_info("%s: %zu bytes belong to no tensor", m->part[i].path, m->part[i].tail_bytes);
	}
	for (size_t i = 0; i < c->n && !code; i++)
		if (!strncmp(c->v[i]->name, "rope_freqs.", 11) || !strncmp(c->v[i]->name, "rope_factors_", 13))
			c->v[i]->ignored = "rotation: read into the config";
	if (m->seen)
		c->file[c->n_file++] = (struct store_file){ m->seen->g.path, m->seen->g.map };
	for (size_t i = 0; m->seen && i < m->seen->n; i++)
		c->v[c->n++] = &m->seen->t[i]->t;
	return code;
}

static int load(struct container *c, struct tensor *t, struct err *err)
{
	struct gguf_tensor *g = (struct gguf_tensor *)t;
	uint8_t *to = arena_alloc(&c->arena, t->bytes);

	g->fix->fill(g->of, g, to);
	t->data = to;
	return 0;
}

static void close_gguf(struct container *c)
{
	struct gguf_model *m = c->own;

	for (int i = 0; m && i < m->n_part; i++)
		gguf_close(&m->part[i]);
	if (m && m->seen)
		projector_close(m->seen);
}

/* ---- documents ---- */

static const struct {
	const char *name;
	int (*make)(const struct gguf_model *m, struct buf *out, struct err *err);
} documents[] = {
	{ "config.json", gguf_config },
	{ "tokenizer.json", gguf_tokenizer },
	{ "tokenizer_config.json", gguf_tokenizer_config },
	{ "generation_config.json", gguf_generation_config },
	{ "hadamard.json", gguf_basis },
	{ "modules.json", gguf_modules },
	{ "1_Pooling/config.json", gguf_pooling },
	{ "2_Dense/config.json", gguf_dense_2 },
	{ "3_Dense/config.json", gguf_dense_3 },
};

static const char processor[] = "preprocessor_config.json";

static const char *place(struct container *c, const char *name)
{
	const struct gguf_model *m = c->own;

	if (m->seen && !strcmp(name, processor))
		return arena_printf(&c->arena, "%s (%s of its metadata)", m->seen->g.path, name);
	if (m->seen && !strcmp(name, "config.json"))
		return arena_printf(&c->arena, "%s and %s (%s of their metadata)", m->part[0].path, m->seen->g.path,
		                    name);
	return arena_printf(&c->arena, "%s (%s of its metadata)", m->part[0].path, name);
}

static int document(struct container *c, const char *name, struct buf *out, struct err *err)
{
	const struct gguf_model *m = c->own;

	if (m->seen && !strcmp(name, processor))
		return projector_processor(m->seen, out, err);
	for (size_t i = 0; i < sizeof documents / sizeof *documents; i++)
		if (!strcmp(documents[i].name, name))
			return documents[i].make(c->own, out, err);
	return err_set(err, E_MISSING, "%s: a GGUF file has no %s", c->path, name);
}

static bool match(const char *path)
{
	return file_exists(path) && gguf_is(path);
}

const struct container_ops gguf_container = {
	.name = "gguf",
	.tower_apart = true,
	.match = match,
	.open = open_gguf,
	.tensors = tensors,
	.close = close_gguf,
	.document = document,
	.place = place,
	.load = load,
};
