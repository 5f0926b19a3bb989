/* load.c - see load.h. */
#include "host/load.h"
#include "host/load_device.h"
#include "engine/draft/draft.h"
#include "engine/prefix/prefix_pack.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/pages.h"
#include "base/rng.h"
#include "base/system.h"
#include "embed/embedder.h"
#include "host/identity.h"
#include "host/load_image.h"
#include "host/load_packs.h"
#include "sound/ear.h"
#include "vision/tower.h"

static const double PLACE_SHARE = 0.01; /* of a prompt's time may go into copies of states for later prompts */
enum { TEMPLATE_MAX = 4 << 20 };        /* bytes; the largest known has 17 KB */

/* ---- which model ---- */

bool model_is_bundled(const struct host_opts *o)
{
	const char *env = getenv("WEFT_MODEL");

	return !o->model && !(env && *env);
}

int model_name(const struct host_opts *o, struct buf *out, struct err *err)
{
	static const char *const beside[] = { "share/weft/models/weft-tiny", "models/weft-tiny" };
	char exe[PATH_MAX];

	buf_reset(out);
	if (!model_is_bundled(o)) {
		buf_puts(out, o->model ? o->model : getenv("WEFT_MODEL"));
		return 0;
	}
	if (system_program(exe, sizeof exe, err))
		return err_prefix(err, "no MODEL was named, and the bundled one is not found");
	for (int up = 0; up < 2; up++) { /* off the program's name, off its folder */
		char *slash = strrchr(exe, '/');

		if (slash)
			*slash = '\0';
	}
	for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
		buf_reset(out);
		buf_printf(out, "%s/%s", exe, beside[i]);
		if (dir_exists(out->p))
			return 0;
	}
	return err_set(err, E_MISSING, "no MODEL was named, and the bundled one is in neither %s/%s nor %s/%s", exe,
	               beside[0], exe, beside[1]);
}

/* ---- progress ---- */

/* One line on a terminal, rewritten in place; nothing elsewhere. */
static void progress(const char *name, const char *what, int percent)
{
	if (!isatty(STDERR_FILENO))
		return;
	if (!what)
		fputs("\r\033[K", stderr);
	else if (percent < 0)
		fprintf(stderr, "\r\033[Kloading %s: %s", name, what);
	else
		fprintf(stderr, "\r\033[Kloading %s: %s %d%%", name, what, percent);
	fflush(stderr);
}

/* Does touching a page of each megabyte read nothing?  mincore would say so of every file that is another user's.  A
 * read of another thread counts as well: then pages are touched that are there. */
static bool in_memory(const struct file_map *map)
{
	enum { APART = 1 << 20 };
	volatile uint8_t sum = 0;
	struct rusage before, now;

	if (getrusage(RUSAGE_SELF, &before))
		return false;
	for (size_t at = 0; at < map->n; at += APART) {
		sum = (uint8_t)(sum + map->p[at]);
		if (getrusage(RUSAGE_SELF, &now) || now.ru_majflt != before.ru_majflt)
			return false;
	}
	return true;
}

/* Reads the mapped weights into memory and reports progress; otherwise the first request
 * would wait without a sign.  Pages that are in memory already are left to the first step,
 * which maps them with all threads. */
static void read_weights(const struct store *st)
{
	enum { PIECE = 32 << 20 }; /* bytes between two lines of progress */
	size_t total = 0, done = 0, page = page_bytes();
	volatile uint8_t sum = 0;

	for (int i = 0; i < st->n_file; i++)
		total += st->file[i].map.n;
	if (total > memory_total() / 4 * 3)
		return; /* the end would push out the beginning */
	for (int i = 0; i < st->n_file; i++) {
		const struct file_map *map = &st->file[i].map;

		if (in_memory(map)) {
			done += map->n;
			continue;
		}
		for (size_t at = 0; at < map->n; at += PIECE) {
			size_t end = map->n - at < PIECE ? map->n : at + PIECE;

			posix_madvise((void *)(map->p + at), end - at, POSIX_MADV_WILLNEED);
			for (size_t k = at; k < end; k += page)
				sum = (uint8_t)(sum + map->p[k]);
			done += end - at;
			progress(st->name, "weights", (int)(done * 100 / total));
		}
	}
}

/* read_weights for a model of which experts or tables stay on disk: reads all other tensors. */
static void read_what_stays(const struct store *st, const struct model *m, const struct plan *p)
{
	size_t page = page_bytes();
	volatile uint8_t sum = 0;

	for (size_t i = 0; i < st->n; i++) {
		const struct tensor *t = st->v[i];

		if (!t->used || !t->data || (p->experts && model_has_expert(m, t->data, t->bytes)) ||
		    (p->tables && model_has_table(m, t->data, t->bytes)))
			continue;
		for (size_t at = 0; at < t->bytes; at += page)
			sum = (uint8_t)(sum + t->data[at]);
		progress(st->name, "weights", (int)(i * 100 / st->n));
	}
}

/* ---- text ---- */

/* A draft head has no tokenizer, and a model that is not known is no better with one: that is told first. */
static int no_tokenizer(struct session *s, const char *name, struct err *err)
{
	struct model *m;

	if (model_bind(&m, s->store, err))
		return err->code;
	model_close(m);
	return err_set(err, E_MISSING, "%s: not there, and text needs it", store_place(s->store, name));
}

static int open_tokenizer(struct session *s, unsigned what, struct err *err)
{
	static const char name[] = "tokenizer.json";
	struct buf json;
	int rc;

	progress(s->store->name, "tokenizer", -1);
	buf_init(&json);
	rc = store_document(s->store, name, &json, err);
	if (rc == E_MISSING)
		rc = what & LOAD_TOKENIZER ? no_tokenizer(s, name, err) : 0;
	else if (!rc && tokenizer_open(&s->tok, json.p, json.n, err))
		rc = err_prefix(err, "%s", store_place(s->store, name));
	buf_fini(&json);
	return rc;
}

/* "bos_token": a string, or an object with its content. */
static char *special_token(const struct json *config, const char *key)
{
	const struct json *j = json_get(config, key);
	const char *p;
	size_t n;

	if (json_kind(j) == JSON_OBJECT)
		j = json_get(j, "content");
	p = json_str(j, &n);
	return p ? xstrndup(p, n) : NULL;
}

static int compile(struct template **out, const char *text, size_t n, const char *whose, const char *name,
                   struct err *err)
{
	if (!template_open(out, text, n, NULL, err))
		return 0;
	return err_prefix(err, "%s: chat template%s%s", whose, name ? " " : "", name ? name : "");
}

/* The template of a file is for all requests; of those of the model, "tool_use" is for requests with tools. */
static int open_template(struct session *s, const struct host_opts *o, struct err *err)
{
	static const char for_tools[] = "tool_use";
	struct store_templates own = { 0 };
	const char *tools;
	struct buf text;
	int rc;

	if (o->answer.template_file) {
		buf_init(&text);
		rc = file_read(o->answer.template_file, TEMPLATE_MAX, &text, err);
		if (!rc)
			rc = compile(&s->chat.tmpl, text.p, text.n, o->answer.template_file, NULL, err);
		buf_fini(&text);
		return rc;
	}
	rc = store_templates_read(s->store, &own, err);
	if (!rc && own.n)
		rc = compile(&s->chat.tmpl, own.v[0].text, strlen(own.v[0].text), s->store->name, NULL, err);
	tools = store_templates_find(&own, for_tools);
	if (!rc && tools && tools != own.v[0].text)
		rc = compile(&s->chat.tool_tmpl, tools, strlen(tools), s->store->name, for_tools, err);
	store_templates_end(&own);
	return rc;
}

/* The object of --chat-template-args, with what --think adds. */
static int template_args(struct session_chat *c, const struct host_answer *o, struct err *err)
{
	struct json *args;

	if (!o->template_args && o->think == THINK_DEFAULT)
		return 0;
	if (o->think != THINK_DEFAULT && c->tmpl && !template_uses(c->tmpl, "enable_thinking") &&
	    !(c->tool_tmpl && template_uses(c->tool_tmpl, "enable_thinking")))
		log_warn("the chat template never looks at enable_thinking: --think changes nothing");
	args = o->template_args ? json_parse(o->template_args, strlen(o->template_args), 0, err) : json_new_object();
	if (!args)
		return err_prefix(err, "--chat-template-args");
	if (json_kind(args) != JSON_OBJECT) {
		err_set(err, E_ARG, "--chat-template-args: %s, not an object", json_kind_name(json_kind(args)));
		json_free(args);
		return E_ARG;
	}
	if (o->think != THINK_DEFAULT)
		json_set_bool(args, "enable_thinking", o->think == THINK_ON);
	c->args = args;
	return 0;
}

static void find_eos(struct session *s)
{
	int32_t id;

	s->chat.n_eos = store_eos(s->store, s->chat.eos_id, EOS_MAX - 1);
	if (!s->chat.eos || !s->tok)
		return;
	id = tokenizer_find(s->tok, s->chat.eos, strlen(s->chat.eos));
	for (int i = 0; i < s->chat.n_eos; i++)
		if (s->chat.eos_id[i] == id)
			return;
	if (id >= 0)
		s->chat.eos_id[s->chat.n_eos++] = id;
}

static int open_sampling(struct session *s, const struct host_opts *o, struct err *err)
{
	struct store_sampling c = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 };
	struct sampler_params *p = &s->sampling;
	int rc = store_sampling(s->store, &c, err);

	if (rc)
		return rc;
	sampler_params_init(p);
	p->temperature = (float)(o->answer.temperature_set ? o->answer.temperature : c.temperature);
	p->top_p = (float)(o->answer.top_p_set ? o->answer.top_p : c.top_p);
	p->top_k = o->answer.top_k_set ? o->answer.top_k : c.top_k;
	p->min_p = (float)(o->answer.min_p_set ? o->answer.min_p : c.min_p);
	p->repetition_penalty = (float)(o->answer.repetition_set ? o->answer.repetition_penalty : c.repetition_penalty);
	for (int i = 0; i < c.n_suppressed; i++)
		s->suppressed[i] = (struct logit_bias){ c.suppressed[i], LOGIT_NEVER };
	p->bias = s->suppressed;
	p->n_bias = c.n_suppressed;
	p->presence_penalty = (float)o->answer.presence_penalty;
	p->frequency_penalty = (float)o->answer.frequency_penalty;
	return 0;
}

int session_answer_options(struct session *s, const struct host_opts *o, struct err *err)
{
	struct json *before = s->chat.args;
	int rc;

	s->chat.args = NULL;
	rc = template_args(&s->chat, &o->answer, err);
	if (rc) {
		s->chat.args = before;
		return rc;
	}
	json_free(before);
	return open_sampling(s, o, err);
}

/* ---- weights and engine ---- */

static void packing(void *arg, int percent)
{
	const struct session *s = arg;

	progress(s->store->name, "experts packed", percent);
}

/* The experts of the mixtures stay on disk. */
static int stream_experts(struct session *s, const struct host_opts *o, struct plan *p, struct err *err)
{
	struct stream_opts how = { .arith = o->arith,
		                   .bytes = p->experts,
		                   .dir = o->experts.dir,
		                   .trace = o->experts.trace,
		                   .progress = packing,
		                   .progress_arg = s };
	struct stream_stats now;
	struct digest key;
	int rc = 0;

	if (o->experts.io && strcmp(o->experts.io, "auto")) {
		how.way = !strcmp(o->experts.io, "io_uring") ? READS_URING :
		          !strcmp(o->experts.io, "threads")  ? READS_THREADS :
		                                               READS_BEST;
		if (how.way == READS_BEST)
			return err_set(err, E_ARG, "--expert-io %s: none of auto, io_uring, threads", o->experts.io);
	}
	if (o->experts.dir) {
		progress(s->store->name, "which weights these are", -1);
		rc = identity_of_weights(s->store, o->experts.dir, &key, err);
		how.key = &key;
	}
	if (!rc)
		rc = model_stream(s->model, &how, err);
	if (rc)
		return rc;
	s->be->ops->stream_stats(s->be, &now);
	p->experts = (size_t)now.slots * now.slot_bytes;
	progress(s->store->name, NULL, 0);
	log_info("experts on disk: slots for %d of %d, %zu KB each, read by %s from %s", now.slots, now.experts,
	         now.slot_bytes / 1024, now.way, now.packed ? "packed slabs" : "the model");
	return 0;
}

/* Tables that rows are looked up of stay on disk. */
static int stream_tables(struct session *s, const struct plan *p, struct err *err)
{
	struct rows_opts how = { .bytes = p->tables };
	struct row_stats now;
	int rc = model_stream_rows(s->model, &how, err);

	if (rc)
		return rc;
	s->be->ops->row_stats(s->be, &now);
	log_info("tables on disk: %d, of %zu MB, rows read by %s", now.tables, now.table_bytes >> 20, now.way);
	return 0;
}

/* Rows of an image that see each other are computed in one step: Gemma's have up to 280, and others share the step. */
enum { WHOLE_ROWS = 512 };

static void log_plan(const struct session *s, const struct engine_opts *eo, const struct plan *p)
{
	const struct model_opts *mo = &s->model->opts;
	const struct shape *shape = &s->model->shape;
	enum { MB = 1 << 20 };
	char asked[80] = "";
	struct buf kv;

	buf_init(&kv);
	log_info("%s: %s, %.1f million parameters; %d threads, %s", s->store->name, s->model->arch,
	         (double)shape->params / 1e6, s->be->threads, s->be->level);
	kv_describe(&kv, s->kv, shape);
	log_info("keys and values: %s", kv.p);
	buf_fini(&kv);
	if (mo->ctx_max < p->ctx_asked)
		snprintf(asked, sizeof(asked), " (of %d: keys and values of more do not fit)", p->ctx_asked);
	log_info("context %d%s, %d sequences at once, up to %d tokens per step, queue %d", mo->ctx_max, asked,
	         eo->seqs_max, eo->step_rows, eo->queue_max);
	log_info(
		"memory %zu MB: weights mapped %zu, step %zu, states %zu, keys and values up to %zu (%zu tokens), "
		"kept prefixes up to %zu, preempted up to %zu, drafting up to %zu, program %zu, experts %zu, tables %zu",
		plan_total(p) / MB, p->weights / MB, p->step / MB, p->states / MB, p->kv / MB,
		shape->layers_attn ? p->kv / model_kv_row_bytes(shape, &mo->kv) : 0, p->prefix / MB, p->parked / MB,
		p->draft / MB, p->program / MB, p->experts / MB, p->tables / MB);
	if (s->divided)
		log_info(
			"of the device's memory, %zu MB: weights %zu, step %zu, states %zu, keys and values up to %zu, drafting up to %zu",
			p->device.memory / MB, p->device.weights / MB, p->device.step / MB, p->device.states / MB,
			p->device.kv / MB, p->device.draft / MB);
	for (int i = 0; i < eo->n_drafter; i++)
		log_info("drafts by %s, up to %d tokens", eo->drafter[i]->ops->name, eo->n_draft);
}

int kv_of_options(struct kv_pair **layer, const struct host_opts *o, const struct shape *shape, struct err *err)
{
	struct kv_dims *dim = xcalloc((size_t)shape->layers_attn + 1, sizeof(*dim));
	int rc;

	for (int i = 0; i < shape->layers_attn; i++) {
		const struct kv_group *g = &shape->kv[shape_kv_place(shape, i).group];

		dim[i] = (struct kv_dims){ g->dim_k, g->latent ? g->dim_k : g->dim_v };
	}
	*layer = xcalloc((size_t)shape->layers_attn + 1, sizeof(**layer));
	rc = kv_policy_apply(&o->kv, shape->layers_attn, dim, model_kv_default(o->arith).all.k, *layer, err);
	free(dim);
	return rc;
}

void kv_describe(struct buf *out, const struct kv_pair *layer, const struct shape *shape)
{
	struct kv_rows rows = { .layer = layer };

	if (!shape->layers_attn) {
		buf_puts(out, "none");
		return;
	}
	kv_layers_describe(out, layer, shape->layers_attn);
	buf_printf(out, ", %zu bytes per token", model_kv_row_bytes(shape, &rows));
}

static void begin_huge_pages(struct session *s, const struct host_opts *o, const struct plan *plan, bool now)
{
	struct huge_pages_of of = {
		.store = { s->store }, .engine = s->engine, .be = s->be, .arith = o->arith, .planned = plan_total(plan)
	};

	static_assert(1 + DRAFT_SOURCES_MAX <= HUGE_STORES_MAX, "room for every store");
	for (int i = 0; i < s->drafts.n_of; i++)
		of.store[1 + i] = s->drafts.of[i].store;
	huge_pages_begin(&s->huge, &of, now);
}

/* The options of a model that computes whole texts: a step holds the longest, and many short ones, which need no memory of
 * their own; nothing is drafted, and no prefix kept. */
static void for_whole_texts(const struct session *s, struct host_opts *o)
{
	enum { TEXTS = 64 };
	int most = s->embedder->max_tokens ? s->embedder->max_tokens : s->model->shape.ctx_max;
	int rows = step_rows_of(o, &s->model->shape);

	if (o->ctx_size && o->ctx_size < most)
		most = o->ctx_size;
	else if (!o->ctx_size && o->ctx_default && o->ctx_default < most)
		most = o->ctx_default;
	o->step_rows = most > rows ? most : rows;
	o->parallel = o->parallel > TEXTS ? o->parallel : TEXTS;
	o->draft = (struct host_draft){ .kind = DRAFT_NONE };
	o->prefix_bytes = 0;
	if (o->disk.pack.n)
		log_warn("%s keeps no prefixes: --pack does nothing", s->store->name);
	o->disk = (struct host_disk){ 0 };
}

/* Binds the model, its tower and its drafters, opens its backends, and sets the options of *eo that do not depend on the
 * memory plan. */
static int bind_engine(struct session *s, struct host_opts *o, unsigned what, struct engine_opts *eo, struct err *err)
{
	int rc;

	progress(s->store->name, NULL, 0); /* the log may speak now */
	rc = model_bind(&s->model, s->store, err);
	if (!rc)
		rc = embedder_open(&s->embedder, s->model, s->store, err);
	if (!rc && s->model->shape.whole)
		for_whole_texts(s, o);
	if (!rc && what & LOAD_TOWER)
		rc = tower_bind(s, o, err);
	if (!rc)
		rc = kv_of_options(&s->kv, o, &s->model->shape, err);
	if (!rc)
		rc = drafts_bind(&s->drafts, o, s->model, s->store, s->tok, err);
	if (rc)
		return rc;
	*eo = (struct engine_opts){
		.seqs_max = o->parallel,
		.queue_max = o->queue,
		.queue_seconds = o->queue_seconds,
		.decode_gap_ms = o->decode_gap,
		.answer_reserve = o->answer_reserve,
		.by_hand = what & LOAD_BY_HAND,
		.squeeze = !(what & LOAD_BY_HAND),
	};
	s->step_rows = step_rows_of(o, &s->model->shape);
	if (s->tower && tower_info(s->tower).both_ways && !o->step_rows && s->step_rows < WHOLE_ROWS)
		s->step_rows = WHOLE_ROWS;
	eo->step_rows = s->step_rows;
	eo->logit_rows = what & LOAD_LOGITS ? s->step_rows : 0;
	eo->n_draft = drafts_tokens(o);
	return what & LOAD_PLAN && !(what & LOAD_DEVICE) ? 0 : device_open(s, o, err);
}

/* Are prefixes kept on disk, or read from there? */
static bool on_disk(const struct host_opts *o)
{
	return o->disk.dir || o->disk.url || o->disk.pack.n;
}

static void checking(void *arg, int percent)
{
	const struct session *s = arg;

	progress(s->store->name, "packs checked", percent);
}

/* The identity of the model, which is attached, its folder of kept prefixes and its packs. */
static int open_disk(struct session *s, const struct host_opts *o, struct engine_disk *disk, struct err *err)
{
	struct buf about;
	int rc;

	if (!on_disk(o))
		return 0;
	buf_init(&about);
	progress(s->store->name, "which weights these are", -1);
	rc = identity_of(s, o, &s->identity, &about, err);
	if (!rc && o->disk.dir && pack_about_write(o->disk.dir, &s->identity, about.p, err))
		log_warn("%s: without it, the prefixes cannot be exported", err->msg);
	if (!rc)
		rc = load_packs(s, &o->disk, about.p, err);
	buf_fini(&about);
	*disk = (struct engine_disk){
		.model = s->identity,
		.dir = o->disk.dir,
		.bytes = o->disk.bytes,
		.redis = o->disk.url,
		.redis_password = getenv("WEFT_REDIS_PASSWORD"),
		.redis_seconds = (int)(o->disk.url_days * 86400),
		.wait_ns = (int64_t)(o->disk.wait * 1e9),
		.pack = s->pack,
		.n_pack = s->n_pack,
	};
	return rc;
}

/* Plans the memory of what bind_engine bound, attaches it, and starts its engine. */
static int start_engine(struct session *s, const struct host_opts *o, unsigned what, const struct engine_opts *e,
                        struct err *err)
{
	struct engine_opts eo = *e;
	struct model_opts mo;
	struct plan plan = { 0 };
	int rc;

	rc = plan_make(&plan, &mo, s, o, &eo, err);
	s->plan = plan;
	if (!rc && s->tok)
		tokenizer_remember(s->tok, plan.texts);
	if (rc || what & LOAD_PLAN)
		return rc;
	/* A fifth is for copies on their way to disk (disk.c takes a quarter of the rest). */
	eo.prefix_bytes = on_disk(o) ? plan.prefix / 5 * 4 : plan.prefix;
	/* An eighth is for images and sounds, and what their towers computed: a row's vector is a fraction of its keys and values. */
	s->image_bytes = s->tower || s->ear ? eo.prefix_bytes / 8 : 0;
	eo.prefix_bytes -= s->image_bytes;
	eo.place_share = PLACE_SHARE;
	eo.verify_share = o->verify_cache;
	eo.blocks = o->blocks;
	eo.verify_seed = rng_os_seed();
	eo.park_bytes = plan.parked;
	eo.turn = s->device_bytes && !s->divided ? NULL : o->turn; /* a device's step leaves the processors alone */
	if (!plan.experts && (o->experts.dir || o->experts.trace || o->experts.io))
		log_warn("all experts fit into memory: --expert-dir, --expert-trace and --expert-io do nothing without "
		         "--expert-memory");
	rc = model_attach(s->model, s->be, &mo, err);
	device_settled(s);
	if (!rc)
		rc = load_adapters(&s->adapters, &o->lora, s->model, err);
	if (!rc)
		rc = tower_begin(s, o->arith, err);
	if (!rc && plan.experts)
		rc = stream_experts(s, o, &plan, err);
	if (!rc && plan.tables)
		rc = stream_tables(s, &plan, err);
	if (rc)
		return rc;
	rc = open_disk(s, o, &eo.disk, err);
	if (rc)
		return rc;
	if (plan.experts || plan.tables)
		read_what_stays(s->store, s->model, &plan);
	else
		read_weights(s->store);
	for (int i = 0; i < s->drafts.n_of; i++)
		if (s->drafts.of[i].store)
			read_weights(s->drafts.of[i].store);
	progress(s->store->name, NULL, 0);
	eo.draft_fixed = o->draft.fixed || what & LOAD_LOGITS;
	rc = drafts_open(&s->drafts, o, s->model, s->tok, &eo, err);
	for (int i = 0; i < s->drafts.n_of && on_disk(o) && !rc; i++)
		if (s->drafts.of[i].drafter)
			rc = identity_of_draft(&s->drafts.of[i], o, &eo.disk.model, &s->drafts.of[i].drafter->identity,
			                       err);
	if (rc)
		return rc;
	rc = engine_open(&s->engine, s->model, s->tok, &eo, err);
	if (!rc)
		rc = packs_check(s, checking, s, err);
	if (rc)
		return rc;
	progress(s->store->name, NULL, 0);
	log_plan(s, &eo, &plan);
	if (what & LOAD_HUGE_NOW)
		progress(s->store->name, "weights into memory of their own", -1);
	if (what & (LOAD_HUGE | LOAD_HUGE_NOW) && !o->small_pages)
		begin_huge_pages(s, o, &plan, what & LOAD_HUGE_NOW);
	return 0;
}

/* The file of a GGUF model's tower as store_open_seeing wants it. */
static const char *tower_file(const struct host_opts *o)
{
	if (!o->mmproj)
		return "";
	return strcmp(o->mmproj, "none") ? o->mmproj : NULL;
}

int session_store(struct store **out, const struct host_opts *o, struct err *err)
{
	struct buf name;
	int rc;

	buf_init(&name);
	rc = model_name(o, &name, err);
	if (!rc)
		rc = store_open_seeing(out, name.p, tower_file(o), err);
	buf_fini(&name);
	return rc;
}

/* ---- the whole ---- */

static int open_text(struct session *s, const struct host_opts *o, unsigned what, struct err *err)
{
	int rc = session_store(&s->store, o, err);

	if (!rc)
		rc = open_tokenizer(s, what, err);
	if (!rc) {
		s->chat.bos = special_token(s->store->tokenizer_config, "bos_token");
		s->chat.eos = special_token(s->store->tokenizer_config, "eos_token");
		find_eos(s);
		rc = open_sampling(s, o, err);
	}
	if (!rc && (what & LOAD_TEMPLATE))
		rc = open_template(s, o, err);
	if (!rc && (what & LOAD_TEMPLATE))
		rc = template_args(&s->chat, &o->answer, err);
	return rc;
}

int sessions_open(struct session *s, const struct host_opts *given, int n, size_t memory, unsigned what,
                  struct err *err)
{
	struct engine_opts *eo = xcalloc((size_t)n, sizeof *eo);
	struct host_opts *o = xcalloc((size_t)n, sizeof *o);
	int rc = 0;

	memset(s, 0, (size_t)n * sizeof *s);
	memcpy(o, given, (size_t)n * sizeof *o);
	for (int i = 0; i < n && !rc; i++) {
		size_t before = plan_program_bytes();

		s[i].follows = i > 0;
		rc = open_text(&s[i], &o[i], what, err);
		s[i].text_bytes = plan_program_bytes() > before ? plan_program_bytes() - before : 1;
		if (!rc && (what & LOAD_ENGINE))
			rc = bind_engine(&s[i], &o[i], what, &eo[i], err);
	}
	if (!rc && (what & LOAD_ENGINE) && n > 1)
		rc = plan_share(s, o, eo, n, memory, err);
	for (int i = 0; i < n && !rc && (what & LOAD_ENGINE); i++)
		rc = start_engine(&s[i], &o[i], what, &eo[i], err);
	for (int i = 0; i < n; i++) {
		if (s[i].store)
			progress(s[i].store->name, NULL, 0);
		if (rc)
			session_close(&s[i]);
	}
	free(eo);
	free(o);
	return rc;
}

int session_open(struct session *s, const struct host_opts *o, unsigned what, struct err *err)
{
	return sessions_open(s, o, 1, 0, what, err);
}

void session_close(struct session *s)
{
	huge_pages_end(&s->huge);
	engine_close(s->engine);
	drafts_close(&s->drafts);
	tower_close(s->tower);
	ear_close(s->ear);
	embedder_close(s->embedder);
	model_close(s->model);
	loaded_adapters_close(&s->adapters);
	packs_close(s);
	device_close(s);
	template_close(s->chat.tmpl);
	template_close(s->chat.tool_tmpl);
	json_free(s->chat.args);
	tokenizer_close(s->tok);
	if (s->store)
		store_close(s->store);
	free(s->kv);
	free(s->chat.bos);
	free(s->chat.eos);
	memset(s, 0, sizeof(*s));
}
