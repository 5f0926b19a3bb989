/* gguf_projector.c - see gguf_projector.h: finding a projector file, opening it, and its tensors. */
#include "store/gguf/gguf_projector.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "store/gguf/gguf_vocab.h"
#include "store/pick.h"

enum { PROJECTOR_BLOCKS_MAX = 1 << 10, NAME_BYTES = GGUF_NAME_BYTES };

/* ---- next to a model ---- */

const char *projector_beside(const char *path, struct arena *a)
{
	const char *slash = strrchr(path, '/'), *found = NULL, *other = NULL;
	const char *dir = slash ? arena_strndup(a, path, (size_t)(slash - path) + 1) : "./";
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (pick_is_projector(e->d_name)) {
			other = found;
			found = arena_printf(a, "%s%s", slash ? dir : "", e->d_name);
			if (other)
				break;
		}
	if (d)
		closedir(d);
	if (other)
		log_warn(
			"%s: several projector files are next to it, %s and %s among them: none is read unless it is named",
			path, other, found);
	return other ? NULL : found;
}

/* ---- which it is ---- */

/* The string under the whole key; "" where it is missing or no string. */
static struct gguf_string string_of(const struct gguf *g, const char *key)
{
	const struct gguf_value *v = gguf_find(g, key);
	const uint8_t *at;

	if (!v || v->kind != GGUF_STRING || v->array)
		return (struct gguf_string){ "", 0 };
	at = v->p;
	return gguf_next(&at);
}

static bool equals(struct gguf_string s, const char *text)
{
	return s.n == strlen(text) && !memcmp(s.p, text, s.n);
}

static int shown(struct gguf_string s)
{
	return s.n < 60 ? (int)s.n : 60;
}

static int check_arch(const struct gguf *g, struct err *err)
{
	struct gguf_string s = string_of(g, "general.architecture");

	if (equals(s, "clip"))
		return 0;
	return err_set(err, E_FORMAT, "%s: key general.architecture: \"%.*s\", a projector file has \"clip\"", g->path,
	               shown(s), s.p);
}

static int find_form(struct gguf_projector *p, struct err *err)
{
	struct gguf_string s = string_of(&p->g, "clip.vision.projector_type");
	struct buf known;

	struct gguf_string sound = string_of(&p->g, "clip.audio.projector_type");

	if (!s.n)
		s = string_of(&p->g, "clip.projector_type");
	if (!s.n && sound.n)
		return err_set(err, E_UNSUPPORTED, "%s: a projector for sounds alone, \"%.*s\", is not done", p->g.path,
		               shown(sound), sound.p);
	for (p->form = projector_forms; p->form->type; p->form++)
		if (equals(s, p->form->type) && (!p->form->shown_by || gguf_info(&p->g, p->form->shown_by))) {
			if (p->form->ear && equals(sound, p->form->ear->type))
				p->ear = p->form->ear;
			return 0;
		}
	buf_init(&known);
	for (const struct projector_form *f = projector_forms; f->type; f++)
		if (!f->shown_by)
			buf_printf(&known, "%s%s", known.n ? ", " : "", f->type);
	err_set(err, E_UNSUPPORTED, "%s: a projector of type \"%.*s\" is not done; known: %s", p->g.path, shown(s), s.p,
	        known.p);
	buf_fini(&known);
	return E_UNSUPPORTED;
}

/* The blocks of one tower. */
static int read_blocks(struct gguf_model *m, bool flat, struct err *err)
{
	struct gguf_conf c = { .m = m, .err = err };

	m->blocks = gguf_conf_int(&c, "block_count", GGUF_NEEDED);
	if (!c.code && !(flat && !m->blocks) && (m->blocks < 1 || m->blocks > PROJECTOR_BLOCKS_MAX))
		gguf_conf_fail(&c, E_FORMAT, "key %s.block_count: %" PRId64 ", 1 to %d are read", m->arch->name,
		               m->blocks, PROJECTOR_BLOCKS_MAX);
	return c.code;
}

static int check_model(struct gguf_projector *p, const struct gguf_model *text, struct err *err)
{
	struct gguf_conf of_text = { .m = text, .err = err }, c = { .m = &p->m, .err = err };
	int64_t width = gguf_conf_int(&of_text, "embedding_length", GGUF_NEEDED);
	int64_t out = gguf_conf_int(&c, "projection_dim", width);
	int code;

	p->which = -1;
	for (int i = 0; i < PROJECTOR_ARCHS && p->form->of[i].arch; i++)
		if (!strcmp(p->form->of[i].arch, text->arch->name))
			p->which = i;
	if (p->which < 0)
		return err_set(err, E_FORMAT,
		               "%s: a projector of type %s is for models of architecture %s, that of %s is %s",
		               p->g.path, p->form->type, p->form->of[0].arch, text->part[0].path, text->arch->name);
	if (of_text.code || c.code)
		return of_text.code ? of_text.code : c.code;
	if (out != width)
		return err_set(err, E_FORMAT,
		               "%s: key clip.vision.projection_dim: %" PRId64 ", %s has vectors of %" PRId64, p->g.path,
		               out, text->part[0].path, width);
	code = read_blocks(&p->m, p->form->flat, err);
	return code || !p->ear ? code : read_blocks(&p->sound, !p->ear->block, err);
}

/* Ids of the tokens that stand for an image, which a projector names nowhere. */
static int find_tokens(struct gguf_projector *p, const struct gguf_model *text, struct err *err)
{
	struct gguf_vocab v;
	int code = gguf_vocab_read(&v, text, err);

	if (code)
		return code;
	for (int i = 0; i < PROJECTOR_MARKS && p->form->token[i].text && !code; i++) {
		const char *s = p->form->token[i].text;

		p->token[i] = -1;
		if (p->form->token[i].sound && !p->ear)
			continue;
		p->token[i] = gguf_vocab_find(&v, s, strlen(s));
		if (p->token[i] < 0)
			code = err_set(err, E_MISSING,
			               "%s: has no token \"%s\", and images of a projector of type %s need it",
			               text->part[0].path, s, p->form->type);
	}
	gguf_vocab_free(&v);
	return code;
}

/* ---- tensors ---- */

static const struct projector_name *line_of(const struct projector_name *table, const char *name, char out[NAME_BYTES])
{
	for (; table->gguf; table++) {
		size_t n = strlen(table->gguf);
		bool begins = table->gguf[n - 1] == '.';

		if (begins ? strncmp(name, table->gguf, n) != 0 : strcmp(name, table->gguf) != 0)
			continue;
		snprintf(out, NAME_BYTES, "%s%s", table->hf ? table->hf : "", begins && table->hf ? name + n : "");
		return table;
	}
	return NULL;
}

/* Files from before 2025 may have the names of an MLP's two matrices the wrong way round; shapes tell. */
static bool names_swapped(const struct gguf_projector *p, int64_t block)
{
	struct gguf_conf c = { .m = &p->m };
	int64_t hidden = gguf_conf_int(&c, "embedding_length", 0);
	const struct gguf_info *t;
	char name[64];

	if (!p->form->old_names)
		return false;
	snprintf(name, sizeof name, "v.blk.%" PRId64 ".ffn_down.weight", block);
	t = gguf_info(&p->g, name);
	return t && t->ne[0] == hidden && t->ne[1] != hidden;
}

static bool begins(const char *s, const char *with)
{
	return !strncmp(s, with, strlen(with));
}

/* As name_of, of the tower for sounds. */
static const struct projector_name *name_heard(const struct gguf_projector *p, const char *name, char out[NAME_BYTES])
{
	const struct projector_name *line;
	char rest[NAME_BYTES];
	int64_t block;
	int at = 0;

	if (!p->ear)
		return NULL;
	if (!p->ear->block || sscanf(name, "a.blk.%5" SCNd64 ".%n", &block, &at) != 1 || !at || block < 0 ||
	    block >= p->sound.blocks)
		return line_of(p->ear->top, name, out);
	line = line_of(p->ear->in_block, name + at, rest);
	if (line)
		snprintf(out, NAME_BYTES, "%.60s%" PRId64 ".%.80s", p->ear->block, block, rest);
	return line;
}

static bool is_heard(const char *name)
{
	return begins(name, "a.") || begins(name, "mm.a.");
}

/* The line for the tensor and its name there; NULL: no table has it. */
static const struct projector_name *name_of(const struct gguf_projector *p, const char *name, char out[NAME_BYTES])
{
	const struct projector_name *line;
	char rest[NAME_BYTES], other[NAME_BYTES];
	const char *in_block = name;
	int64_t block;
	int at = 0;

	if (is_heard(name))
		return name_heard(p, name, out);
	if (sscanf(name, "v.blk.%5" SCNd64 ".%n", &block, &at) != 1 || !at || block < 0 || block >= p->m.blocks)
		return line_of(p->form->top, name, out);
	in_block += at;
	if (!strncmp(in_block, "ffn_up.", 7) && names_swapped(p, block)) {
		snprintf(other, sizeof other, "ffn_down.%.100s", in_block + 7);
		in_block = other;
	} else if (!strncmp(in_block, "ffn_down.", 9) && names_swapped(p, block)) {
		snprintf(other, sizeof other, "ffn_up.%.100s", in_block + 9);
		in_block = other;
	}
	line = line_of(p->form->in_block, in_block, rest);
	if (line && line->hf)
		snprintf(out, NAME_BYTES, "%.60s%" PRId64 ".%.80s", p->form->block, block, rest);
	return line;
}

/* Vectors of earlier blocks: those of the file have the block's number, here they are counted. */
static bool name_deep(const struct gguf_projector *p, const char *name, char out[NAME_BYTES])
{
	static const char *const part[][2] = { { "norm.", "norm." },
		                               { "fc1.", "linear_fc1." },
		                               { "fc2.", "linear_fc2." } };
	char first[64];
	int64_t block;
	int at = 0, rank = 0;

	if (sscanf(name, "v.deepstack.%5" SCNd64 ".%n", &block, &at) != 1 || !at || block < 0 || block >= p->m.blocks)
		return false;
	for (int64_t i = 0; i < block; i++) {
		snprintf(first, sizeof first, "v.deepstack.%" PRId64 ".norm.weight", i);
		rank += gguf_info(&p->g, first) != NULL;
	}
	for (int i = 0; i < 3; i++)
		if (!strncmp(name + at, part[i][0], strlen(part[i][0]))) {
			snprintf(out, NAME_BYTES, "model.visual.deepstack_merger_list.%d.%s%.60s", rank, part[i][1],
			         name + at + strlen(part[i][0]));
			return true;
		}
	return false;
}

/* Why a tensor that no table has is not used; NULL: unknown. */
static const char *ignored(const struct gguf_projector *p, const char *name)
{
	if (!p->ear && is_heard(name))
		return "tower for sounds";
	if (!strcmp(name, "v.token_embd.img_break"))
		return "a row of the text model's embedding";
	return NULL;
}

static int add_tensor(struct gguf_projector *p, const struct gguf_info *from, struct arena *a, struct err *err)
{
	struct gguf_tensor *t = arena_zalloc(a, sizeof *t);
	const struct projector_name *line;
	char name[NAME_BYTES] = "";
	bool deep = false;

	gguf_describe(t, from, p->g.path);
	t->of = &p->m;
	line = name_of(p, from->name, name);
	if (line && !line->hf)
		return 0;
	if (!line)
		deep = name_deep(p, from->name, name);
	t->t.name = line || deep ? arena_strndup(a, name, strlen(name)) : from->name;
	t->fix = line ? line->fix : NULL;
	t->t.origin = line && !t->fix ? from->name : NULL;
	if (!line && !deep)
		t->t.ignored = ignored(p, from->name);
	p->t[p->n++] = t;
	return t->fix ? t->fix->shape(&p->m, t, err) : 0;
}

static int list_tensors(struct gguf_projector *p, struct arena *a, struct err *err)
{
	int code = 0;

	p->t = arena_alloc(a, size_mul(p->g.n_info + 1, sizeof(struct gguf_tensor *)));
	for (size_t i = 0; i < p->g.n_info && !code; i++)
		code = add_tensor(p, &p->g.info[i], a, err);
	return code;
}

/* ---- the processor's settings ---- */

/* Three numbers of the file, left out where it has none. */
static void copy_colours(struct gguf_conf *c, const char *member, const char *key)
{
	const struct gguf_value *v;
	char full[64];

	snprintf(full, sizeof full, "clip.vision.%s", key);
	v = c->code ? NULL : gguf_find(&c->m->part[0], full);
	if (!v)
		return;
	if (!v->array || v->n != 3) {
		gguf_conf_fail(c, E_FORMAT, "key %s: %" PRIu64 " numbers, colours have 3", full, v->n);
		return;
	}
	gguf_put_name(c, member);
	for (uint64_t i = 0; i < 3 && !c->code; i++) {
		double x = 0;

		c->code = gguf_float(&c->m->part[0], v, i, &x, c->err);
		buf_putc(c->out, i ? ',' : '[');
		if (!c->code && !isfinite(x))
			gguf_conf_fail(c, E_FORMAT, "key %s: element %" PRIu64 " is not a finite number", full, i);
		gguf_put_number(c->out, x);
	}
	buf_putc(c->out, ']');
}

int projector_processor(const struct gguf_projector *p, struct buf *out, struct err *err)
{
	struct gguf_conf c = { .m = &p->m, .out = out, .err = err };

	buf_putc(out, '{');
	if (p->form->processor) {
		p->form->processor(&c);
	} else {
		copy_colours(&c, "image_mean", "image_mean");
		copy_colours(&c, "image_std", "image_std");
		gguf_copy_int(&c, "min_pixels", "image_min_pixels");
		gguf_copy_int(&c, "max_pixels", "image_max_pixels");
	}
	buf_putc(out, '}');
	return c.code;
}

/* ---- open ---- */

/* Checks that the metadata from which the documents are made are there and in range. */
static int check_config(const struct gguf_projector *p, struct err *err)
{
	struct buf out;
	struct gguf_conf c = { .m = &p->m, .out = &out, .err = err };
	struct gguf_conf ear = { .m = &p->sound, .out = &out, .err = err };

	if (!gguf_info(&p->g, "v.patch_embd.weight"))
		return err_set(err, E_MISSING, "%s: tensor v.patch_embd.weight: missing (%zu tensors)", p->g.path,
		               p->g.n_info);
	buf_init(&out);
	p->form->vision(&c);
	if (p->form->around && !c.code)
		p->form->around(&c);
	if (p->ear && !c.code) {
		p->ear->audio(&ear);
		c.code = ear.code;
	}
	if (!c.code)
		c.code = projector_processor(p, &out, err);
	buf_fini(&out);
	return c.code;
}

int projector_open(struct gguf_projector *p, const char *path, const struct gguf_model *text, struct arena *a,
                   struct err *err)
{
	static const struct gguf_arch arch = { .name = "clip.vision" }, sound = { .name = "clip.audio" };
	int code = gguf_open(&p->g, path, err);

	if (code)
		return code;
	p->m = (struct gguf_model){ .part = &p->g, .n_part = 1, .arch = &arch };
	p->sound = (struct gguf_model){ .part = &p->g, .n_part = 1, .arch = &sound };
	if ((code = check_arch(&p->g, err)) || (code = find_form(p, err)) || (code = check_model(p, text, err)) ||
	    (code = find_tokens(p, text, err)))
		return code;
	code = list_tensors(p, a, err);
	return code ? code : check_config(p, err);
}

void projector_close(struct gguf_projector *p)
{
	if (p->g.path)
		gguf_close(&p->g);
}
