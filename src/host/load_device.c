/* load_device.c - see load_device.h. */
#include "host/load_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backends.h"
#include "backend/backend.h"
#include "backend/split_backend.h"
#include "base/alloc.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/memory.h"
#include "host/divide.h"
#include "host/load.h"

enum { FOUND_MOST = 32 };

/* Does the kernel show a GPU?  Asked before a driver's library is opened, which takes a hundred milliseconds. */
static bool card_of_nvidia(void)
{
	return !access("/dev/nvidiactl", F_OK);
}
static bool card_of_others(void)
{
	return !access("/dev/dri/renderD128", F_OK) || !access("/dev/kfd", F_OK);
}

/* Fills to[FOUND_MOST] with the devices of this machine; none where the kernel shows no card. */
static int find_devices(struct backend_found *to)
{
	return card_of_nvidia() || card_of_others() ? backends_find(to, FOUND_MOST) : 0;
}

/* A second model of the session's own, attached with a small cache: says whether the device serves it, and has its weights
 * brought over, which are then shared. */
static int look(struct session *s, const struct host_opts *o, struct err *err)
{
	struct model_opts mo = { .arith = o->arith,
		                 .slots = 1,
		                 .ctx_max = s->model->shape.ctx_max < 256 ? s->model->shape.ctx_max : 256,
		                 .step_rows = s->step_rows < 256 ? s->step_rows : 256,
		                 .tape_rows = drafts_tokens(o),
		                 .snap_bytes = 1,
		                 .kv.layer = s->kv };
	int rc = model_bind(&s->looked, s->store, err);

	return rc ? rc : model_attach(s->looked, s->be, &mo, err);
}

enum { LAYERS_MOST = 10000 };

/* Adds to err what takes less memory than the device has. */
static void advise(const struct session *s, const struct backend_found *f, int layers, struct err *err)
{
	bool experts = s->model->n_mixture && layers != DEVICE_NO_EXPERTS;
	struct err own = *err;

	err_set(err, own.code,
	        "%s; --device %s,auto, or ',N' with a smaller number of layers%s takes less memory there", own.msg,
	        f->name, experts ? ", or ',experts' for all but the experts," : "");
}

/* The option, if any, that asks for something that no device does; NULL: none does. */
static const char *asked_of_the_processor(const struct host_opts *o)
{
	if (o->expert_bytes || o->experts.dir)
		return "experts on disk";
	if (o->tables == TABLES_DISK)
		return "--tables disk";
	return NULL;
}

/* The value of --device, read. */
struct wanted {
	char name[24]; /* of a device, or "auto" */
	int layers;    /* DEVICE_*, or the first layers */
	bool divide;   /* if it has no room for all, the part that divide() chooses */
	size_t memory; /* the most that may be used of its memory */
};

static size_t may_give(size_t memory, const struct wanted *w)
{
	return memory < w->memory ? memory : w->memory;
}

static int open_cpu(struct session *s, const struct host_opts *o, struct err *err)
{
	const struct backend_opts opts = { o->threads ? o->threads : cpu_count(), &o->cpu };

	return s->cpu ? 0 : backends_open(&s->cpu, "cpu", &opts, err);
}

/* Opens f for the part w->layers of the model.  f->memory is SIZE_MAX where it is not known. */
static int try_device(struct session *s, const struct host_opts *o, const struct backend_found *f,
                      const struct wanted *w, struct err *err)
{
	size_t need = device_copy_bytes((size_t)s->model->shape.weight_bytes) + ((size_t)1 << 30);
	size_t memory = may_give(f->memory, w);
	int rc;

	if (s->model->shape.whole)
		return err_set(err, E_UNSUPPORTED, "no device has kernels for models that see whole texts");
	if (w->layers == DEVICE_ALL && need > memory)
		return err_set(err, E_FULL, "%s may give %zu MB, and %s needs %zu MB", f->name, memory >> 20,
		               s->store->name, need >> 20);
	if (w->layers == DEVICE_NO_EXPERTS && !s->model->n_mixture)
		return err_set(err, E_UNSUPPORTED, "%s has no mixtures of experts", s->store->name);
	rc = w->layers ? open_cpu(s, o, err) : 0;
	if (!rc)
		rc = backends_open(&s->be, f->name, NULL, err);
	if (!rc)
		s->device_bytes = may_give(s->be->memory, w);
	if (!rc && w->layers) {
		s->be = w->layers == DEVICE_NO_EXPERTS ? split_open_mixtures(s->be, s->cpu) :
		                                         split_open(s->be, s->cpu, w->layers);
		s->divided = true;
		s->device_layers = w->layers;
	}
	if (!rc)
		rc = look(s, o, err);
	if (rc)
		device_close(s);
	return rc;
}

/* Asks divide() which part of the model a device takes that may give `memory` bytes. */
static bool find_part(const struct session *s, size_t memory, struct division *to)
{
	const struct shape *shape = &s->model->shape;
	size_t layers = (size_t)shape->layers, all = (size_t)shape->weight_bytes, in_layers = 0, table;
	size_t *bytes = xcalloc(2 * layers + 1, sizeof *bytes);
	struct divide_ask a = { .layers = shape->layers, .bytes = bytes, .mixtures = bytes + layers, .memory = memory };
	bool found;

	model_layer_bytes(s->model, bytes, bytes + layers);
	for (size_t i = 0; i < layers; i++)
		in_layers += bytes[i];
	a.used = shape->experts ? (double)shape->experts_used / shape->experts : 0;
	a.beside = all > in_layers ? all - in_layers : 0;
	table = model_table_bytes(s->model);
	a.read = a.beside > table ? a.beside - table : 0;
	a.first_layers = !s->model->n_mixture || all < memory_total() / 16 * 15; /* else experts are on disk */
	found = divide(&a, to);
	free(bytes);
	return found;
}

/* Opens f for a part of the model, after it had no room for all of it, as *err says. */
static int try_part(struct session *s, const struct host_opts *o, const struct backend_found *f, const struct wanted *w,
                    struct err *err)
{
	const struct err whole = *err;
	struct wanted part = *w;
	struct division d;
	char what[48] = "all but the experts";
	int rc;

	if (!find_part(s, may_give(f->memory, w), &d))
		return err_set(err, E_FULL, "%s; and no part of it there would help", whole.msg);
	part.layers = d.layers;
	rc = try_device(s, o, f, &part, err);
	if (d.layers != DEVICE_NO_EXPERTS)
		snprintf(what, sizeof what, "%d of %d layers", d.layers, s->model->shape.layers);
	if (rc)
		return err_prefix(err, "%s on %s", what, f->name);
	log_info("device: %s has %s, %zu MB of weights, for %s; a token reads what takes about %.1f ms in place of "
	         "%.1f, if its memory gives %d GB/s and the machine's %d",
	         f->name, what, d.there >> 20, whole.msg, d.ms, d.alone, DIVIDE_DEVICE_GBS, DIVIDE_MACHINE_GBS);
	return 0;
}

static int try_all(struct session *s, const struct host_opts *o, const struct backend_found *f, const struct wanted *w,
                   struct err *err)
{
	int rc = try_device(s, o, f, w, err);

	return rc == E_FULL && w->divide ? try_part(s, o, f, w, err) : rc;
}

static void choose(struct session *s, const struct host_opts *o, const struct wanted *w)
{
	struct backend_found found[FOUND_MOST];
	const char *other = asked_of_the_processor(o);
	int n = find_devices(found);
	struct err err;

	for (int i = 0; i < n; i++) {
		const struct backend_found *f = &found[i];

		if (!f->gpu && !f->why.code)
			continue; /* a processor that OpenCL shows as a device */
		err = f->why;
		if (other) {
			log_info("device: the processor, and not %s: %s is asked for", f->name, other);
		} else if (f->why.code || try_all(s, o, f, w, &err)) {
			log_info("device: not %s: %s", f->name, err.msg);
		} else {
			if (!s->divided)
				log_info("device: %s, %s: a GPU that has kernels and memory for the model", f->name,
				         f->device);
			return;
		}
	}
}

/* Reads p[0..n), which follows the name or another part. */
static int read_part(const char *p, size_t n, struct wanted *w, struct err *err)
{
	static const char memory[] = "memory=";
	char *end = NULL, size[32];
	long layers;

	if (n > strlen(memory) && !strncmp(p, memory, strlen(memory))) {
		snprintf(size, sizeof size, "%.*s", (int)(n - strlen(memory)), p + strlen(memory));
		if (n - strlen(memory) >= sizeof size || host_size(size, &w->memory) || !w->memory)
			return err_set(err, E_ARG, "'%.*s': not a size, such as memory=6G", (int)n, p);
		return 0;
	}
	if (w->layers || w->divide)
		return err_set(err, E_ARG, "'%.*s': the part of the model is given already", (int)n, p);
	if (n == strlen("experts") && !strncmp(p, "experts", n)) {
		w->layers = DEVICE_NO_EXPERTS;
	} else if (n == strlen("auto") && !strncmp(p, "auto", n)) {
		w->divide = true;
	} else {
		layers = strtol(p, &end, 10);
		if (!n || end != p + n || layers < 1 || layers > LAYERS_MOST)
			return err_set(
				err, E_ARG,
				"'%.*s': not a number of layers, 1 to %d, nor 'experts', 'auto' or 'memory=SIZE'",
				(int)n, p, LAYERS_MOST);
		w->layers = (int)layers;
	}
	return 0;
}

/* "NAME", then ",LAYERS", ",experts" or ",auto", and ",memory=SIZE". */
static int read_wanted(const char *text, struct wanted *w, struct err *err)
{
	size_t n = strcspn(text, ",");
	int rc = 0;

	*w = (struct wanted){ .memory = SIZE_MAX };
	snprintf(w->name, sizeof w->name, "%.*s", (int)n, text);
	w->divide = !strcmp(w->name, "auto");
	for (text += n; *text && !rc; text += n) {
		n = strcspn(++text, ",");
		rc = read_part(text, n, w, err);
	}
	if (!rc && !strcmp(w->name, "cpu") && (w->layers || w->divide || w->memory != SIZE_MAX))
		rc = err_set(err, E_ARG, "the processor computes all of a model, and --memory limits it");
	return rc;
}

/* The device that was named, and what it is to compute. */
static int open_named(struct session *s, const struct host_opts *o, const struct wanted *w, struct err *err)
{
	struct backend_found f = { .memory = SIZE_MAX };
	int rc = 0;

	snprintf(f.name, sizeof f.name, "%s", w->name);
	if (w->divide) { /* how much it has decides */
		rc = backends_open(&s->be, f.name, NULL, err);
		f.memory = rc ? 0 : s->be->memory;
		device_close(s);
	}
	if (!rc)
		rc = try_all(s, o, &f, w, err);
	if (rc == E_FULL && !w->divide)
		advise(s, &f, w->layers, err);
	if (!rc)
		log_info("device: %s", s->be->level);
	return rc;
}

int device_open(struct session *s, const struct host_opts *o, struct err *err)
{
	const char *name = o->device ? o->device : "auto";
	struct wanted w;
	int rc = read_wanted(name, &w, err);

	if (!rc && !strcmp(w.name, "auto"))
		choose(s, o, &w);
	else if (!rc && strcmp(w.name, "cpu"))
		rc = open_named(s, o, &w, err);
	if (rc)
		return err_prefix(err, "--device %s", name);
	rc = open_cpu(s, o, err);
	if (!s->be)
		s->be = s->cpu;
	return rc;
}

void device_settled(struct session *s)
{
	model_close(s->looked);
	s->looked = NULL;
}

void device_close(struct session *s)
{
	device_settled(s);
	if (s->be && s->be != s->cpu)
		s->be->ops->close(s->be);
	if (s->cpu && !s->divided)
		s->cpu->ops->close(s->cpu);
	s->be = s->cpu = NULL;
	s->divided = false;
	s->device_bytes = 0;
	s->device_layers = DEVICE_ALL;
}

void device_describe(struct buf *out, const char *indent)
{
	struct backend_found found[FOUND_MOST];
	int n = find_devices(found);

	for (int i = 0; i < n; i++) {
		const struct backend_found *f = &found[i];
		bool cuda = !strncmp(f->name, "cuda", 4);

		if (f->why.code == E_MISSING && !(cuda ? card_of_nvidia() : card_of_others()))
			continue;
		buf_printf(out, "%s%s: ", out->n ? indent : "", f->name);
		if (f->why.code)
			buf_printf(out, "cannot be used: %s\n", f->why.msg);
		else
			buf_printf(out, "%s, %zu MB, driver %s%s\n", f->device, f->memory >> 20, f->driver,
			           f->gpu ? "" : " (a processor: --device auto does not take it)");
	}
	if (!out->n)
		buf_puts(out, "only the processor\n");
}
