/* gguf_adapter.c - an adapter in a GGUF file.
 *
 *     general.type "adapter", adapter.type "lora", adapter.lora.alpha
 *     NAME.lora_a [rank][inputs], NAME.lora_b [outputs][rank]   NAME: the base's tensor in GGUF's words
 *
 * The converter did to B what it did to rows of the base, and it is undone in the same way (gguf_fix.c), which needs the
 * base's metadata: for a model that is not a GGUF file such tensors are refused. */
#include <math.h>
#include <string.h>

#include "store/adapter_file.h"
#include "store/gguf/gguf_conf.h"

static bool value_is(const struct gguf *g, const char *key, const char *want)
{
	const struct gguf_value *v = gguf_find(g, key);
	const uint8_t *at;
	struct gguf_string s;

	if (!v || v->kind != GGUF_STRING || v->array)
		return false;
	at = v->p;
	s = gguf_next(&at);
	return s.n == strlen(want) && !memcmp(s.p, want, s.n);
}

static int check_kind(const struct gguf *g, struct err *err)
{
	if (!value_is(g, "general.type", "adapter"))
		return err_set(err, E_FORMAT, "%s: its general.type is not adapter: it may be a model", g->path);
	if (!value_is(g, "adapter.type", "lora"))
		return err_set(err, E_UNSUPPORTED, "%s: its adapter.type is not lora", g->path);
	if (gguf_find(g, "adapter.alora.invocation_tokens"))
		return err_set(
			err, E_UNSUPPORTED,
			"%s: it has adapter.alora.invocation_tokens: adapters that begin at a token are not done",
			g->path);
	return 0;
}

/* The numbers of t, whatever its type. */
static float *floats_of(struct arena *a, const struct gguf *g, const struct gguf_info *t, struct err *err)
{
	int rows = (int)t->ne[1], cols = (int)t->ne[0], code;
	float *out = arena_alloc(a, size_mul((size_t)t->count, sizeof *out));
	struct weight w;
	enum dtype plain;

	if (t->type->block == 1 && !dtype_parse(t->type->name, &plain))
		code = weight_plain(&w, t->name, plain, rows, cols, t->data, t->bytes, err);
	else
		code = weight_gguf(&w, t->name, t->type, rows, cols, t->data, t->bytes, err);
	if (code) {
		err_prefix(err, "%s", g->path);
		return NULL;
	}
	for (int i = 0; i < rows; i++)
		w.fmt->decode(out + (size_t)i * (size_t)cols, &w, i);
	return out;
}

static int check_pair(const struct gguf *g, const struct gguf_info *a, const struct gguf_info *b, struct err *err)
{
	if (a->n_dim != 2 || b->n_dim != 2 || a->ne[1] != b->ne[0])
		return err_set(err, E_FORMAT,
		               "%s: tensor %s: is [%lld, %lld] of %d dimensions, and %s [%lld, %lld] of %d; ranks are "
		               "the first's second and the other's first, both of 2",
		               g->path, a->name, (long long)a->ne[0], (long long)a->ne[1], a->n_dim, b->name,
		               (long long)b->ne[0], (long long)b->ne[1], b->n_dim);
	if (a->ne[0] > INT32_MAX || b->ne[1] > INT32_MAX || a->ne[1] > INT32_MAX)
		return err_set(err, E_LIMIT, "%s: tensor %s: too large", g->path, a->name);
	return 0;
}

/* B's rows for the k-th tensor that the base's becomes, put back as the base's are. */
static int undone(struct adapter_file *f, const struct gguf_model *m, const struct gguf_info *b,
                  const struct gguf_name *line, struct adapter_matrix *out, struct err *err)
{
	struct gguf_tensor t = { .from = b, .fix = line->fix, .part = line->part };
	int code;

	out->rows = (int)b->ne[1];
	if (!line->fix)
		return 0;
	if (!m->part)
		return err_set(err, E_UNSUPPORTED,
		               "%s: tensor %s: the converter has moved its rows, which can be undone with a GGUF file "
		               "of the model; for a folder give the adapter in PEFT's form",
		               f->path, b->name);
	t.t = (struct tensor){ .name = b->name, .file = f->path, .type = DT_F32, .n_dim = 2 };
	t.t.dim[0] = b->ne[1];
	t.t.dim[1] = b->ne[0];
	t.t.count = t.t.elements = b->count;
	t.t.data = b->data;
	t.t.bytes = b->bytes;
	if (line->fix->shape && (code = line->fix->shape(m, &t, err)))
		return code;
	if (t.t.n_dim != 2 || t.t.dim[1] != b->ne[0])
		return err_set(err, E_UNSUPPORTED, "%s: tensor %s: no adapter can be for the tensor that it names",
		               f->path, b->name);
	if (!t.t.data) {
		uint8_t *to = arena_alloc(&f->arena, t.t.bytes);

		line->fix->fill(m, &t, to);
		t.t.data = to;
	}
	out->b = (const float *)t.t.data;
	out->rows = (int)t.t.dim[0];
	return 0;
}

static int read_pair(struct adapter_file *f, const struct store *base, const struct gguf_model *m, const struct gguf *g,
                     const struct gguf_info *a, double alpha, struct err *err)
{
	const char *stem = arena_strndup(&f->arena, a->name, strlen(a->name) - strlen(".lora_a"));
	const struct gguf_info *b = gguf_info(g, arena_printf(&f->arena, "%s.lora_b", stem));
	struct adapter_matrix *to, one = { .name = stem };
	struct gguf_named n;
	struct gguf_info plain;
	int code;

	if (!b)
		return err_set(err, E_MISSING, "%s: tensor %s.lora_b: missing, %s is there", f->path, stem, a->name);
	if ((code = check_pair(g, a, b, err)))
		return code;
	one.rank = (int)a->ne[1];
	one.cols = (int)a->ne[0];
	one.factor = alpha != 0 ? (float)(alpha / one.rank) : 1; /* as llama.cpp reads it */
	if (!(one.a = floats_of(&f->arena, g, a, err)) || !(one.b = floats_of(&f->arena, g, b, err)))
		return err->code;
	plain = *b;
	plain.data = (const uint8_t *)one.b;
	plain.bytes = (size_t)b->count * sizeof *one.b;
	gguf_name_of(m, stem, &n);
	if (!n.n)
		return err_set(err, E_UNSUPPORTED, "%s: tensor %s: no tensor of %s has that name", f->path, a->name,
		               m->arch->name);
	to = adapter_file_room(f, n.n);
	for (int k = 0; k < n.n && !code; k++) {
		size_t tail = strlen(".weight"), len = strlen(n.name[k]->hf);
		bool weight = len > tail && !strcmp(n.name[k]->hf + len - tail, ".weight");

		const char *hf = arena_printf(&f->arena, "%s%s%.*s", n.prefix, n.block,
		                              (int)(weight ? len - tail : len), n.name[k]->hf);

		to[k] = one;
		to[k].path = adapter_file_path(base, hf);
		if (!to[k].path)
			return err_set(err, E_MISSING,
			               "%s: tensor %s: the model %s has no matrix %s that an adapter could be for",
			               f->path, a->name, base->name, hf);
		code = undone(f, m, &plain, n.name[k], &to[k], err);
	}
	return code;
}

static bool ends(const char *s, const char *tail)
{
	size_t n = strlen(s), m = strlen(tail);

	return n > m && !strcmp(s + n - m, tail);
}

/* The base's metadata, where it is a GGUF file; else its architecture's names alone. */
static int base_of(struct gguf_model *m, const struct gguf *g, const struct store *base, struct err *err)
{
	extern const struct container_ops gguf_container;
	const struct gguf_value *v = gguf_find(g, "general.architecture");
	char name[64] = "";

	if (v && v->kind == GGUF_STRING && !v->array) {
		const uint8_t *at = v->p;
		struct gguf_string s = gguf_next(&at);

		if (s.n < sizeof name)
			memcpy(name, s.p, s.n);
	}
	*m = (struct gguf_model){ .arch = gguf_arch_find(name), .blocks = INT16_MAX };
	if (!m->arch)
		return err_set(err, E_UNSUPPORTED, "%s: general.architecture: \"%s\" is not known", g->path, name);
	if (base->box.ops != &gguf_container)
		return 0;
	*m = *(const struct gguf_model *)base->box.own;
	if (strcmp(m->arch->name, name))
		return err_set(err, E_FORMAT, "%s: general.architecture: is %s, the model's is %s", g->path, name,
		               m->arch->name);
	return 0;
}

static int read_pairs(struct adapter_file *f, const struct gguf *g, const struct store *base, struct err *err)
{
	const struct gguf_value *v = gguf_find(g, "adapter.lora.alpha");
	struct gguf_model m;
	double alpha = 0;
	int code = check_kind(g, err);

	if (!code && v)
		code = gguf_float(g, v, 0, &alpha, err);
	if (!code && !isfinite(alpha))
		code = err_set(err, E_FORMAT, "%s: key adapter.lora.alpha: must be a finite number", g->path);
	if (!code)
		code = base_of(&m, g, base, err);
	for (size_t i = 0; i < g->n_info && !code; i++) {
		const char *name = g->info[i].name;

		if (ends(name, ".lora_a"))
			code = read_pair(f, base, &m, g, &g->info[i], alpha, err);
		else if (!ends(name, ".lora_b"))
			code = err_set(err, E_UNSUPPORTED, "%s: tensor %s: is neither a lora_a nor a lora_b", g->path,
			               name);
	}
	return code;
}

int gguf_adapter_read(struct adapter_file *f, const struct store *base, struct err *err)
{
	struct gguf g;
	int code = gguf_open(&g, f->path, err);

	if (code)
		return code;
	code = read_pairs(f, &g, base, err);
	gguf_close(&g);
	return code;
}
