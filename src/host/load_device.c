/* load_device.c - see load_device.h. */
#include "host/load_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backends.h"
#include "backend/backend.h"
#include "backend/split_backend.h"
#include "base/cpu.h"
#include "base/log.h"
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

	err_set(err, own.code, "%s; --device %s,N with a smaller number of layers%s takes less memory there", own.msg,
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

static int try_device(struct session *s, const struct host_opts *o, const struct backend_found *f, int layers,
                      struct err *err)
{
	size_t need = (size_t)s->model->shape.weight_bytes / 8 * 9 + ((size_t)1 << 30);
	int rc;

	if (f->why.code) {
		*err = f->why;
		return err->code;
	}
	if (s->model->shape.whole)
		return err_set(err, E_UNSUPPORTED, "no device has kernels for models that see whole texts");
	if (need > f->memory)
		return err_set(err, E_FULL, "%s has %zu MB, and %s needs %zu MB", f->device, f->memory >> 20,
		               s->store->name, need >> 20);
	if (layers == DEVICE_NO_EXPERTS && !s->model->n_mixture)
		return err_set(err, E_UNSUPPORTED, "%s has no mixtures of experts", s->store->name);
	rc = backends_open(&s->be, f->name, NULL, err);
	if (!rc)
		s->device_bytes = s->be->memory;
	if (!rc && layers) {
		s->be = layers == DEVICE_NO_EXPERTS ? split_open_mixtures(s->be, s->cpu) :
		                                      split_open(s->be, s->cpu, layers);
		s->divided = true;
		s->device_layers = layers;
	}
	if (!rc && (rc = look(s, o, err)) == E_FULL)
		advise(s, f, layers, err);
	if (rc)
		device_close(s);
	return rc;
}

static void choose(struct session *s, const struct host_opts *o)
{
	struct backend_found found[FOUND_MOST];
	const char *other = asked_of_the_processor(o);
	int n = find_devices(found);
	struct err err;

	for (int i = 0; i < n; i++) {
		if (!found[i].gpu && !found[i].why.code)
			continue; /* a processor that OpenCL shows as a device */
		if (other)
			log_info("device: the processor, and not %s: %s is asked for", found[i].name, other);
		else if (!try_device(s, o, &found[i], DEVICE_ALL, &err)) {
			log_info("device: %s, %s: a GPU that has kernels and memory for the model", found[i].name,
			         found[i].device);
			return;
		} else {
			log_info("device: not %s: %s", found[i].name, err.msg);
		}
	}
}

/* "NAME", "NAME,LAYERS" or "NAME,experts": the device's name, and how much it computes. */
static int read_name(const char *text, struct backend_found *f, int *layers, struct err *err)
{
	size_t n = strcspn(text, ",");
	char *end = NULL;
	bool experts = !strcmp(text + n, ",experts");
	long most = experts ? DEVICE_NO_EXPERTS : text[n] ? strtol(text + n + 1, &end, 10) : DEVICE_ALL;

	if (text[n] && !experts && (end == text + n + 1 || *end || most < 1 || most > LAYERS_MOST))
		return err_set(err, E_ARG, "'%s': not a number of layers, 1 to %d, nor 'experts'", text + n + 1,
		               LAYERS_MOST);
	if (n >= sizeof f->name)
		n = sizeof f->name - 1;
	memcpy(f->name, text, n);
	*layers = (int)most;
	return 0;
}

/* The device that was named, and what it is to compute. */
static int open_named(struct session *s, const struct host_opts *o, const char *name, const struct backend_opts *cpu,
                      struct err *err)
{
	struct backend_found f = { .memory = SIZE_MAX };
	int layers = DEVICE_ALL, rc = read_name(name, &f, &layers, err);

	if (!rc && layers && !strcmp(f.name, "cpu"))
		rc = err_set(err, E_ARG, "the processor computes all of a model");
	if (!rc && layers)
		rc = backends_open(&s->cpu, "cpu", cpu, err);
	if (!rc)
		rc = try_device(s, o, &f, layers, err);
	if (rc)
		return err_prefix(err, "--device %s", name);
	log_info("device: %s", s->be->level);
	return 0;
}

int device_open(struct session *s, const struct host_opts *o, struct err *err)
{
	const char *name = o->device ? o->device : "auto";
	const struct backend_opts opts = { o->threads ? o->threads : cpu_count(), &o->cpu };
	int rc = 0;

	if (!strcmp(name, "auto"))
		choose(s, o);
	else if (strcmp(name, "cpu"))
		rc = open_named(s, o, name, &opts, err);
	if (rc)
		return rc;
	if (!s->cpu)
		rc = backends_open(&s->cpu, "cpu", &opts, err);
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
