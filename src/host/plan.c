/* plan.c - see plan.h. */
#include "host/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/memory.h"
#include "host/load.h"
#include "host/load_device.h"

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Rows of some hundred tokens of the widest embeddings that there are. */
enum { TABLE_BUFFER = 4 << 20 };

size_t plan_total(const struct plan *p)
{
	return p->program + p->weights + p->experts + p->tables + p->step + p->states + p->kv + p->prefix + p->parked +
	       p->draft - p->states_away - p->kv_away;
}

/* Bytes of memory that a plan may count on: the machine's, or those of a device of the whole model but a sixteenth, which its
 * driver needs.  A device counts for no more than the machine has, because weights and parked sequences are in the machine's
 * memory too. */
static size_t machine_bytes(const struct session *s)
{
	size_t machine = memory_total(), device = s->device_bytes / 16 * 15;

	return device && !s->divided ? least(machine, device) : machine;
}

/* At most how many of `of` layers a side of a divided model has.  A plan does not know which layers have keys and values, and which
 * states: they count in proportion and rounded up, on both sides.  A device that lacks only mixtures has all. */
static int layers_there(const struct session *s, int of)
{
	int all = s->model->shape.layers, there = s->device_layers;

	if (!s->divided)
		return 0;
	if (there == DEVICE_NO_EXPERTS || there >= all)
		return of;
	return (int)(((int64_t)of * there + all - 1) / all);
}

static int layers_here(const struct session *s, int of)
{
	int all = s->model->shape.layers, there = s->device_layers;

	if (!s->divided)
		return of;
	if (there == DEVICE_NO_EXPERTS || there >= all)
		return 0;
	return (int)(((int64_t)of * (all - there) + all - 1) / all);
}

/* The part of bytes of `of` layers that some of them have. */
static size_t part(size_t bytes, int layers, int of)
{
	return layers == of ? bytes : bytes / (size_t)of * (size_t)layers;
}

static size_t kv_there(const struct session *s, size_t bytes)
{
	int of = s->model->shape.layers_attn;

	return part(bytes, layers_there(s, of), of);
}

static size_t kv_here(const struct session *s, size_t bytes)
{
	int of = s->model->shape.layers_attn;

	return part(bytes, layers_here(s, of), of);
}

/* Bytes of a pool of which `layers` layers have `bytes`; SIZE_MAX: they have nothing of it. */
static size_t pool_with(const struct session *s, int layers, size_t bytes)
{
	int all = s->model->shape.layers_attn;

	return !layers ? SIZE_MAX : layers == all ? bytes : size_mul(bytes / (size_t)layers, (size_t)all);
}

static size_t pool_here(const struct session *s, size_t bytes)
{
	int all = s->model->shape.layers_attn;

	return pool_with(s, layers_here(s, all), bytes);
}

/* Bytes of the experts that may stay on disk: a model that is divided by layers reads none from there. */
static size_t experts_here(const struct session *s)
{
	return s->divided && s->device_layers != DEVICE_NO_EXPERTS ? 0 : model_expert_bytes(s->model);
}

/* Bytes that a sequence at its longest could use, and all. */
static size_t kv_one(const struct session *s, const struct model_opts *mo)
{
	return model_pool_bytes(&s->model->shape, mo, -1, mo->ctx_max);
}

static size_t kv_most(const struct session *s, const struct model_opts *mo)
{
	enum { PAGE = 64 };

	/* Whole texts keep nothing beyond their step, in which each has a page of its own at least. */
	if (s->model->shape.whole)
		return model_pool_bytes(&s->model->shape, mo, -1, mo->step_rows + PAGE * mo->slots);
	return size_mul((size_t)mo->slots, kv_one(s, mo));
}

/* The pool with the pages of kept prefixes, which lie in it too; without them, one
 * sequence at a time would leave no conversation but its own.  About half of the bytes of
 * kept prefixes are states, which are not in the pool. */
static size_t pool_most(size_t most, size_t prefix)
{
	return !most ? 0 : most > SIZE_MAX - prefix / 2 ? SIZE_MAX : most + prefix / 2;
}

/* Bytes that no prompt changes: of the program, the weights, a step, states and drafting. */
static size_t fixed_part(const struct plan *p)
{
	return p->program + p->weights + p->tables + p->step + p->states + p->draft - p->states_away;
}

/* Sets the budgets that the options leave open, out of `bound`: --memory where it was given, else fifteen sixteenths of the
 * machine's memory.  Experts that stay on disk get three quarters of what weights, step and states leave of it.  From
 * the remainder, keys and values get five eighths, kept prefixes two and preempted sequences one, because a hybrid model's
 * state at the end of a conversation is about as large as the keys and values of some thousand tokens. */
static int share_out(const struct session *s, const struct host_opts *o, const struct model_opts *mo, struct plan *p,
                     size_t bound, struct err *err)
{
	enum { MB = 1 << 20 };
	size_t most = kv_most(s, mo), experts = experts_here(s), fixed, rest;

	fixed = fixed_part(p) + (o->kv_bytes ? kv_here(s, p->kv) : 0) + (o->prefix_bytes == SIZE_MAX ? 0 : p->prefix);
	if (fixed >= bound)
		return err_set(
			err, E_LIMIT,
			"--memory %zu MB: the program takes %zu MB, weights %zu MB, a step %zu MB, states %zu MB, drafting %zu MB, "
			"keys and values and kept prefixes as asked for %zu MB; nothing is left",
			bound / MB, p->program / MB, p->weights / MB, p->step / MB, p->states / MB, p->draft / MB,
			(fixed - fixed_part(p)) / MB);
	rest = bound - fixed;
	if (p->experts == SIZE_MAX)
		p->experts = least(experts, rest / 4 * 3);
	if (p->experts >= rest)
		return err_set(err, E_LIMIT, "--memory %zu MB: %zu MB are left for experts, %zu MB were asked for",
		               bound / MB, rest / MB, p->experts / MB);
	rest -= p->experts;
	if (o->prefix_bytes == SIZE_MAX)
		p->prefix = rest / 8 * 2;
	if (!o->kv_bytes)
		p->kv = least(pool_most(most, p->prefix), pool_here(s, rest / 8 * 5));
	p->parked = least(most, rest / 8);
	return 0;
}

/* A quarter of what the fixed parts leave, as in share_out: where a model is small, states for more conversations than an
 * eighth of the machine would hold, and where it is large, no more than there is (docs/memory.md has the figures).  But a
 * thirty-second of all, for weights that are larger than memory are read from the files again anyway. */
static size_t prefix_default(const struct plan *p, size_t bound)
{
	size_t fixed = fixed_part(p), some = bound / 32;

	return fixed < bound && (bound - fixed) / 4 > some ? (bound - fixed) / 4 : some;
}

static int budgets(const struct session *s, const struct host_opts *o, struct model_opts *mo, struct plan *p,
                   struct err *err)
{
	size_t machine = machine_bytes(s), most = kv_most(s, mo), experts = experts_here(s);
	size_t bound = o->memory_bytes ? o->memory_bytes : machine - machine / 16;

	p->prefix = o->prefix_bytes == SIZE_MAX ? prefix_default(p, bound) : o->prefix_bytes;
	p->kv = o->kv_bytes ? o->kv_bytes : least(pool_most(most, p->prefix), pool_here(s, machine / 4));
	p->kv_away = p->kv - kv_here(s, p->kv);
	p->parked = least(most, machine / 16);
	p->experts = o->expert_bytes;
	/* Experts go to disk where all together is over the bound.  Under --memory the three budgets above do not count,
	 * since share_out fits them to what is left. */
	if (!p->experts && experts &&
	    plan_total(p) - (o->memory_bytes ? p->prefix + p->kv - p->kv_away + p->parked : 0) > bound)
		p->experts = SIZE_MAX;
	if (p->experts)
		p->weights -= experts;
	return o->memory_bytes || p->experts == SIZE_MAX ? share_out(s, o, mo, p, bound, err) : 0;
}

/* Keeps keys and values on the device of a divided model to half of what it has left, for operations need room too, and to a
 * quarter of its memory, which is what OpenCL promises to give in one piece; or to all that is left, where the option says how
 * many. */
static int fit_device(const struct session *s, const struct host_opts *o, struct plan *p, struct err *err)
{
	struct plan_device *d = &p->device;
	size_t bound = d->memory / 16 * 15, fixed = d->weights + d->step + d->states + d->draft,
	       left = bound > fixed ? bound - fixed : 0;

	if (!s->divided)
		return 0;
	if (!left)
		return err_set(
			err, E_LIMIT,
			"the device may give %zu MB, and its part of the model takes %zu MB: weights %zu MB, a step %zu MB, "
			"states %zu MB, drafting %zu MB; a smaller number of layers takes less",
			bound >> 20, fixed >> 20, d->weights >> 20, d->step >> 20, d->states >> 20, d->draft >> 20);
	if (o->kv_bytes && kv_there(s, o->kv_bytes) > left)
		return err_set(err, E_LIMIT,
		               "--kv-bytes %zu MB: the device has %zu MB left for its keys and values, %zu MB of them",
		               o->kv_bytes >> 20, left >> 20, kv_there(s, o->kv_bytes) >> 20);
	if (!o->kv_bytes)
		p->kv = least(p->kv, pool_with(s, layers_there(s, s->model->shape.layers_attn),
		                               least(left / 2, d->memory / 4)));
	d->kv = kv_there(s, p->kv);
	p->kv_away = p->kv - kv_here(s, p->kv);
	return 0;
}

/* Limits the context to the longest sequence that fits into the pool. */
static int fit_context(const struct session *s, const struct host_opts *o, struct model_opts *mo, struct plan *p,
                       struct err *err)
{
	enum { LEAST = 256 }; /* tokens: instructions, a question, a short answer */
	const struct shape *shape = &s->model->shape;
	int least, fits;

	p->ctx_asked = mo->ctx_max;
	if (p->kv >= kv_one(s, mo) || mo->ctx_max > shape->ctx_max) /* that, model_attach refuses */
		return 0;
	fits = model_longest(shape, mo, p->kv, mo->ctx_max);
	least = mo->ctx_max < LEAST ? mo->ctx_max : LEAST;
	if (fits < least)
		return err_set(err, E_LIMIT,
		               "%s leaves %zu KB for keys and values, which hold %d tokens of %zu bytes; a context of "
		               "%d is the least",
		               o->kv_bytes     ? "--kv-bytes" :
		               o->memory_bytes ? "--memory" :
		               p->divided      ? "the memory of the device and the machine" :
		                                 "the machine's memory",
		               p->kv / 1024, fits, model_kv_row_bytes(shape, &mo->kv), least);
	if (o->ctx_size)
		log_warn("--ctx-size %d: memory for keys and values holds %d tokens, and that is the context",
		         o->ctx_size, fits);
	mo->ctx_max = fits;
	return 0;
}

static int ctx_default(const struct session *s, const struct host_opts *o)
{
	int most = s->model->shape.ctx_max;

	return o->ctx_default && o->ctx_default < most ? o->ctx_default : most;
}

size_t plan_program_bytes(void)
{
	enum { STEP = 4 << 20 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return STEP;
#else
	return (memory_own() + STEP - 1) / STEP * STEP;
#endif
}

/* Bytes of the weights that a divided model has on its device. */
static size_t weights_there(const struct session *s)
{
	int layers = s->model->shape.layers, most = s->device_layers;
	size_t n = 0, *bytes, *mixtures;

	if (most == DEVICE_NO_EXPERTS)
		return (size_t)s->model->shape.weight_bytes - model_mixture_bytes(s->model);
	bytes = xcalloc((size_t)layers, 2 * sizeof *bytes);
	mixtures = bytes + layers;
	model_layer_bytes(s->model, bytes, mixtures);
	for (int i = 0; i < layers && i < most; i++)
		n += bytes[i];
	free(bytes);
	return n;
}

/* The device's parts of what plan_fixed sets.  Work memory of a step and drafting are
 * counted on both sides. */
static void plan_parts_there(struct plan *p, const struct session *s)
{
	const struct shape *shape = &s->model->shape;
	size_t there = s->divided ? weights_there(s) : p->weights;
	int of = shape->layers_rec ? shape->layers_rec : shape->layers;

	p->divided = s->divided;
	p->device = (struct plan_device){
		.memory = s->device_bytes,
		.weights = device_copy_bytes(there),
		.step = p->step,
		.states = s->divided ? part(p->states, layers_there(s, of), of) : p->states,
		.draft = p->draft,
	};
	p->states_away = p->states - part(p->states, layers_here(s, of), of);
	p->weights -= s->divided ? there : 0;
}

/* Bytes of texts whose tokens are remembered: a conversation of a million tokens takes about as many. */
enum { TEXTS_MOST = 8 << 20 };

/* Sets *p to the parts that no budget changes, and *mo but for its budgets.  tables_disk: tables stay on disk. */
static void plan_fixed(struct plan *p, struct model_opts *mo, struct session *s, const struct host_opts *o,
                       const struct engine_opts *eo, bool tables_disk)
{
	size_t memory = o->memory_bytes ? o->memory_bytes : machine_bytes(s);

	*p = (struct plan){
		.weights = (size_t)s->model->shape.weight_bytes,
		.texts = s->tok ? least(memory / 512, TEXTS_MOST) : 0,
	};
	if (tables_disk) {
		p->tables = TABLE_BUFFER;
		p->tables_disk = model_table_bytes(s->model);
		p->weights -= p->tables_disk;
	}
	*mo = (struct model_opts){
		.arith = o->arith,
		.slots = eo->seqs_max,
		.ctx_max = o->ctx_size ? o->ctx_size : ctx_default(s, o),
		.step_rows = eo->step_rows,
		.tape_rows = drafts_tokens(o),
		.kv.layer = s->kv,
	};
	p->states = size_mul((size_t)mo->slots, model_slot_bytes(&s->model->shape, mo->tape_rows));
	p->step = engine_step_bytes(s->model, eo);
	p->program = (o->text_bytes ? o->text_bytes :
	              s->follows    ? 0 :
	                              plan_program_bytes()) +
	             p->texts +
	             backend_cpu_own_bytes(s->model->mixture, s->model->n_mixture, eo->step_rows,
	                                   s->model->shape.hidden);
	p->draft = drafts_plan(&s->drafts, o, mo->ctx_max, memory);
	if (s->device_bytes)
		plan_parts_there(p, s);
}

static int plan_with(struct plan *p, struct model_opts *mo, struct session *s, const struct host_opts *o,
                     const struct engine_opts *eo, bool tables_disk, struct err *err)
{
	int rc;

	plan_fixed(p, mo, s, o, eo, tables_disk);
	rc = budgets(s, o, mo, p, err);
	if (s->model->shape.whole)
		p->parked = 0;
	if (!rc)
		rc = fit_device(s, o, p, err);
	if (s->device_bytes && !s->divided) {
		p->device.kv = p->kv;
		p->device.prefix = p->prefix;
	}
	if (!rc)
		rc = fit_context(s, o, mo, p, err);
	mo->kv_bytes = p->kv;
	p->ctx_fits = mo->ctx_max;
	/* Two snapshots besides the kept ones, for `logits --resume-at`. */
	mo->snap_bytes = p->prefix + 2 * model_snap_bytes(&s->model->shape);
	return rc;
}

/* With all tables in memory, does something not fit, or have to make room? */
static bool is_tight(const struct session *s, const struct plan *p, const struct host_opts *o, int rc)
{
	size_t machine = machine_bytes(s);

	return rc == E_LIMIT || (p->experts && !o->expert_bytes) ||
	       (o->memory_bytes ? p->ctx_fits < p->ctx_asked && !o->kv_bytes : plan_total(p) > machine - machine / 16);
}

/* Tables go to disk before experts do, or a context is cut, since a step reads few rows of them. */
static int plan_tables(struct plan *p, struct model_opts *mo, struct session *s, const struct host_opts *o,
                       const struct engine_opts *eo, struct err *err)
{
	bool some = !s->divided &&
	            model_table_bytes(s->model) > TABLE_BUFFER; /* a divided model reads none from disk */
	int rc;

	if (o->tables == TABLES_DISK && !model_table_bytes(s->model))
		return err_set(
			err, E_UNSUPPORTED,
			"--tables disk: %s has no table that rows are only looked up of: its embedding is the output "
			"matrix as well",
			s->store->name);
	rc = plan_with(p, mo, s, o, eo, o->tables == TABLES_DISK, err);
	if (o->tables == TABLES_AUTO && some && is_tight(s, p, o, rc))
		rc = plan_with(p, mo, s, o, eo, true, err);
	return rc;
}

int plan_make(struct plan *p, struct model_opts *mo, struct session *s, const struct host_opts *o,
              const struct engine_opts *eo, struct err *err)
{
	struct draft_source *own = drafts_own(&s->drafts, o);
	struct model_opts other_opts;
	struct plan other;
	struct err why;
	int rc = plan_tables(p, mo, s, o, eo, err);
	bool better;

	if (!own || (rc != E_LIMIT && (rc || !p->experts || o->expert_bytes)))
		return rc;
	s->drafts.n_of--; /* planned as though it were not there */
	better = !plan_tables(&other, &other_opts, s, o, eo, &why) && (rc || !other.experts);
	s->drafts.n_of++;
	if (!better)
		return rc;
	log_warn("drafting without the model's draft head: with its %zu MB %s", own->model->shape.weight_bytes >> 20,
	         rc ? "nothing is left" : "experts would stay on disk");
	drafts_drop_own(&s->drafts, s->store);
	*p = other;
	*mo = other_opts;
	return 0;
}

/* Bytes that a model takes at least: its fixed parts, and the budgets that its description names.  experts: all experts are in
 * memory. */
static size_t least_of(struct session *s, const struct host_opts *o, const struct engine_opts *eo, bool experts)
{
	struct model_opts mo;
	struct plan p;

	plan_fixed(&p, &mo, s, o, eo, o->tables == TABLES_DISK);
	return fixed_part(&p) - (experts ? 0 : model_expert_bytes(s->model)) + o->kv_bytes + o->expert_bytes +
	       (o->prefix_bytes == SIZE_MAX ? 0 : o->prefix_bytes);
}

int plan_share(struct session *s, struct host_opts *o, const struct engine_opts *eo, int n, size_t memory,
               struct err *err)
{
	size_t all = 0, with_experts = 0, bound = memory ? memory : SIZE_MAX;

	for (int i = 0; i < n; i++) {
		size_t machine = machine_bytes(&s[i]);

		all += least_of(&s[i], &o[i], &eo[i], false);
		with_experts += least_of(&s[i], &o[i], &eo[i], true);
		if (!memory)
			bound = least(bound, machine - machine / 16);
	}
	if (all >= bound)
		return err_set(
			err, E_LIMIT,
			"%d models: %zu MB may be taken, and without keys, values and kept prefixes they take %zu MB",
			n, bound >> 20, all >> 20);
	for (int i = 0; i < n; i++) {
		bool experts = with_experts < bound;

		o[i].memory_bytes = least_of(&s[i], &o[i], &eo[i], experts) +
		                    (bound - (experts ? with_experts : all)) / (size_t)n;
	}
	return 0;
}

/* A line: bytes in the machine, and on the device. */
static void put_part(struct buf *out, const struct plan *p, const char *name, size_t here, size_t there,
                     const char *what)
{
	if (!here && !there)
		return;
	buf_printf(out, "  %-16s %10.1f MB", name, (double)here / 1e6);
	if (p->device.memory)
		buf_printf(out, "  %10.1f MB", (double)there / 1e6);
	buf_printf(out, "  %s\n", what);
}

void plan_print(const struct plan *p, struct buf *out)
{
	const struct plan_device *d = &p->device;
	bool whole = d->memory && !p->divided; /* only the weights are in both */
	size_t step = whole ? 0 : p->step, draft = whole ? 0 : p->draft,
	       states = whole ? 0 : p->states - p->states_away, kv = whole ? 0 : p->kv - p->kv_away,
	       prefix = p->prefix - d->prefix,
	       now = p->program + p->weights + p->experts + p->tables + step + states + draft,
	       now_there = d->weights + d->step + d->states + d->draft;

	if (d->memory)
		buf_printf(out, "  %-16s %13s  %13s\n", "", "machine", "device");
	put_part(out, p, "program", p->program, 0, "itself, tokenizer, what operations work in");
	put_part(out, p, "weights", p->weights, d->weights,
	         p->experts && p->tables ? "mapped from the files, without experts and tables" :
	         p->experts              ? "mapped from the files, without experts" :
	         p->tables               ? "mapped from the files, without tables" :
	                                   "mapped from the files");
	put_part(out, p, "experts", p->experts, 0, "slots; the other experts stay on disk");
	if (p->tables)
		buf_printf(out, "  %-16s %10.1f MB  a buffer; tables of %.1f MB stay on disk\n", "tables",
		           (double)p->tables / 1e6, (double)p->tables_disk / 1e6);
	put_part(out, p, "step", step, d->step, "");
	put_part(out, p, "states", states, d->states, "");
	put_part(out, p, "drafting", draft, d->draft, "");
	put_part(out, p, "together", now, now_there, "from the first request on");
	put_part(out, p, "keys and values", kv, d->kv, "at most");
	put_part(out, p, "kept prefixes", prefix, d->prefix, "at most");
	put_part(out, p, "preempted", p->parked, 0, "at most");
	put_part(out, p, "all", now + kv + prefix + p->parked, now_there + d->kv + d->prefix, "at most");
	buf_printf(out, "  of %.1f MB that there are, %.1f MB of them available now", (double)memory_total() / 1e6,
	           (double)memory_available() / 1e6);
	if (d->memory)
		buf_printf(out, "; of the device %.1f MB may be used", (double)d->memory / 1e6);
	buf_puts(out, "\n");
}
