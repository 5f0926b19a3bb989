/* serving.c - see serving.h. */
#include "cli/serving.h"

#include <stdlib.h>
#include <string.h>

#include "embed/embedder.h"
#include "base/alloc.h"
#include "base/log.h"
#include "host/load.h"
#include "host/load_image.h"
#include "server/server.h"
#include "vision/tower.h"

struct serving {
	struct session s;
	struct served served;
	struct sight sight;
	char *names;
};

/* To be freed. */
static struct served_adapter *served_adapters(const struct loaded_adapters *a)
{
	struct served_adapter *v = xcalloc((size_t)a->n + 1, sizeof *v);

	for (int i = 0; i < a->n; i++)
		v[i] = (struct served_adapter){ a->v[i].of, a->v[i].name, a->v[i].path, a->v[i].scale };
	return v;
}

/* All names of --alias, separated by commas; "": there is none. */
static char *all_names(const struct texts *t)
{
	struct buf b;

	buf_init(&b);
	for (int i = 0; i < t->n; i++) {
		if (b.n)
			buf_putc(&b, ',');
		buf_puts(&b, t->v[i]);
	}
	return buf_take(&b);
}

/* The name of the number format that most bytes of the matrices in use are in; NULL: there are none. */
static const char *main_format(const struct store *st)
{
	enum { KINDS = 32 };
	struct {
		const struct format *of;
		size_t bytes;
	} kind[KINDS] = { 0 };
	int n = 0, most = 0;

	for (size_t i = 0; i < st->n; i++) {
		const struct tensor *t = st->v[i];
		int k = 0;

		if (!t->used || !t->fmt)
			continue;
		while (k < n && kind[k].of != t->fmt)
			k++;
		if (k == KINDS)
			continue;
		n = k == n ? n + 1 : n;
		kind[k].of = t->fmt;
		kind[k].bytes += t->stored;
	}
	for (int k = 1; k < n; k++)
		most = kind[k].bytes > kind[most].bytes ? k : most;
	return n ? kind[most].of->name : NULL;
}

void serving_fill(const struct options *o, const struct session *s, struct served *d, char **names)
{
	char *all = *names = all_names(&o->alias);
	size_t n = strcspn(all, ",");
	bool more = n && all[n];

	all[n] = 0;
	*d = (struct served){
		.is = { .arch = s->model->arch,
		        .form = strcmp(s->store->box.ops->name, "folder") ? s->store->box.ops->name : "safetensors",
		        .quant = main_format(s->store),
		        .params = s->model->shape.params,
		        .bytes = s->model->shape.weight_bytes,
		        .hidden = s->model->shape.hidden,
		        .ctx_max = s->model->shape.ctx_max },
		.engine = s->engine,
		.embedder = s->embedder,
		.tokenizer = s->tok,
		.tmpl = s->chat.tmpl,
		.tool_tmpl = s->chat.tool_tmpl,
		.name = n ? all : s->store->name,
		.aliases = more ? all + n + 1 : NULL,
		.any_model = o->serve.any_model,
		.bos_token = s->chat.bos,
		.eos_token = s->chat.eos,
		.eos = s->chat.eos_id,
		.n_eos = s->chat.n_eos,
		.ctx_max = s->model->opts.ctx_max,
		.queue_max = o->load.queue,
		.vocab = tokenizer_size(s->tok),
		.max_tokens = o->max_tokens,
		.sampling = s->sampling,
		.template_args = s->chat.args,
	};
	d->strict = o->serve.strict;
	if (o->serve.journal) {
		d->journal_dir = o->load.disk.dir;
		d->identity = s->identity;
	}
	d->adapter = served_adapters(&s->adapters);
	d->n_adapter = s->adapters.n;
	if (o->seed >= 0) {
		d->seeded = true;
		d->sampling.seed = (uint64_t)o->seed;
	}
}

static int read_image(void *arg, const void *bytes, size_t n, struct media **out, struct err *err)
{
	return media_of_bytes(arg, MEDIA_IMAGE, bytes, n, out, err);
}

static int read_sound(void *arg, const void *bytes, size_t n, struct media **out, struct err *err)
{
	return media_of_bytes(arg, MEDIA_SOUND, bytes, n, out, err);
}

int serving_open(struct serving **out, const struct options *o, struct err *err)
{
	struct serving *v = xcalloc(1, sizeof *v);
	struct session *s = &v->s;
	int rc = session_open(s, &o->load, LOAD_TOKENIZER | LOAD_TEMPLATE | LOAD_ENGINE | LOAD_HUGE | LOAD_TOWER, err);

	*out = NULL;
	if (!rc && s->adapters.n > SERVED_ADAPTERS_MAX) {
		rc = err_set(err, E_LIMIT, "--lora: %d adapters, at most %d are served", s->adapters.n,
		             SERVED_ADAPTERS_MAX);
		session_close(s);
	}
	if (rc) {
		free(v);
		return rc;
	}
	serving_fill(o, s, &v->served, &v->names);
	v->sight = (struct sight){ .image = s->tower ? read_image : NULL,
		                   .sound = s->ear ? read_sound : NULL,
		                   .arg = s };
	if (s->tower || s->ear) {
		v->served.sight = &v->sight;
		v->served.image_bytes = s->image_bytes;
	}
	if (s->embedder && !s->embedder->writes)
		log_info("%s writes no text: /v1/embeddings, /rerank and what docs/embeddings.md lists answer",
		         v->served.name);
	else if (!v->served.tmpl)
		log_warn("%s has no chat template: only /v1/completions will answer", v->served.name);
	*out = v;
	return 0;
}

const struct served *serving_served(const struct serving *v)
{
	return &v->served;
}

void serving_stop(struct serving *v)
{
	engine_close(v->s.engine);
	v->s.engine = NULL;
}

void serving_close(struct serving *v)
{
	session_close(&v->s);
	free((void *)v->served.adapter);
	free(v->names);
	free(v);
}
