/* quantize.c - `weft quantize MODEL --type TYPE --out PATH`: a model in fewer bits.
 *
 * A type of GGUF, or a mix of them, makes a GGUF file of a GGUF file or of a folder; affineN and mxfp4 make a folder as
 * mlx-lm writes it, of anything that weft reads in 8 bits or more.  --mmproj-out writes the tower of a folder in addition to
 * the former. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/new_path.h"
#include "host/calibrate.h"
#include "host/load.h"
#include "export/from_folder.h"
#include "export/from_tower.h"
#include "export/to_folder.h"
#include "sound/ear.h"
#include "vision/tower.h"

struct quantize {
	const struct quantize_options *o;
	const struct host_opts *load;
	const struct mix *mix; /* NULL: a folder of this kind */
	struct folder_kind kind;
	struct imatrix importance;
	struct buf from, words;
	struct buf to, tower_to; /* what --out and --mmproj-out name; tower_to is empty without it */
};

/* ---- what is asked ---- */

static int read_paths(struct quantize *q, struct err *err)
{
	const struct quantize_options *o = q->o;
	int rc = new_path(&q->to, "out", o->out, !q->mix, err);

	if (rc || !o->mmproj_out)
		return rc;
	if (!q->mix)
		return err_set(err, E_ARG, "--mmproj-out %s: a folder of type %s has its tower itself", o->mmproj_out,
		               o->type);
	if ((rc = new_path(&q->tower_to, "mmproj-out", o->mmproj_out, false, err)))
		return rc;
	return strcmp(q->to.p, q->tower_to.p) ? 0 : err_set(err, E_ARG, "--mmproj-out %s: is --out too", o->mmproj_out);
}

static int read_ask(struct quantize *q, struct err *err)
{
	const struct quantize_options *o = q->o;

	if (!q->load->model && !getenv("WEFT_MODEL"))
		return err_set(err, E_ARG, "which model? weft quantize MODEL --type TYPE --out PATH");
	if (!o->type || !o->out)
		return err_set(err, E_ARG, "--%s is needed", o->type ? "out PATH" : "type TYPE");
	q->mix = mix_find(o->type);
	if (!q->mix && strncmp(o->type, "affine", 6) && strcmp(o->type, "mxfp4"))
		return err_set(err, E_ARG, "--type %s: a GGUF type or mix (%s), affine2 to affine8 or mxfp4", o->type,
		               mix_names());
	if (!q->mix && folder_kind_parse(&q->kind, o->type, err))
		return err_prefix(err, "--%s", "type");
	if (o->imatrix && o->calibrate)
		return err_set(err, E_ARG, "--imatrix %s and --calibrate %s: one of them says what counts", o->imatrix,
		               o->calibrate);
	return read_paths(q, err);
}

/* Names the job by everything that must be equal for a job that was cut off to be continued. */
static int name_job(struct quantize *q, struct err *err)
{
	struct file_id id;
	int rc = 0;

	buf_printf(&q->words, "weft quantize 1: %s to %s", q->from.p, q->o->type);
	if (file_exists(q->from.p) && !(rc = file_id_get(q->from.p, &id, err)))
		buf_printf(&q->words, ", %llu bytes of %lld", (unsigned long long)id.bytes, (long long)id.modified_ns);
	if (!rc && q->o->calibrate && !(rc = file_id_get(q->o->calibrate, &id, err)))
		buf_printf(&q->words, ", text %llu bytes of %lld", (unsigned long long)id.bytes,
		           (long long)id.modified_ns);
	if (!rc && q->o->imatrix && !(rc = file_id_get(q->o->imatrix, &id, err)))
		buf_printf(&q->words, ", importance %llu bytes of %lld", (unsigned long long)id.bytes,
		           (long long)id.modified_ns);
	return rc;
}

static void progress(void *arg, size_t done, size_t all)
{
	(void)arg;
	if (!isatty(STDERR_FILENO))
		return;
	if (done >= all)
		fputs("\r\033[K", stderr);
	else
		fprintf(stderr, "\r\033[K%zu of %zu MB", done >> 20, all >> 20);
	fflush(stderr);
}

/* Bytes of a file, or of the files in a folder. */
static uint64_t bytes_at(const char *path)
{
	DIR *folder = opendir(path);
	uint64_t all = 0;
	struct dirent *e;
	struct stat st;

	if (!folder)
		return stat(path, &st) ? 0 : (uint64_t)st.st_size;
	while ((e = readdir(folder)))
		if (!fstatat(dirfd(folder), e->d_name, &st, 0) && S_ISREG(st.st_mode))
			all += (uint64_t)st.st_size;
	closedir(folder);
	return all;
}

/* ---- doing it ---- */

static int find_ear(struct tower_facts *f, struct store *st, struct err *err)
{
	struct ear *e;
	int rc = ear_open(&e, st, err);

	if (rc || !e)
		return rc;
	f->hears = true;
	f->heard_blocks = ear_info(e).depth;
	f->heard_width = ear_info(e).hidden;
	ear_close(e);
	return 0;
}

/* The tower of a folder, and its ear, as the source of a projector file; they are opened, so that what is wrong with them is
 * said. */
static int find_tower(struct gguf_source *tower, struct store *st, const struct gguf_source *text, struct err *err)
{
	struct tower_facts f = { 0 };
	const struct picture_form *form;
	struct tower_info info;
	struct tower *t = NULL;
	int rc = tower_open(&t, st, err);

	if (!rc && !t)
		rc = err_set(err, E_ARG, "%s: has no tower for --mmproj-out", st->dir);
	if (rc)
		return rc;
	info = tower_info(t);
	form = tower_form(t);
	f = (struct tower_facts){ .depth = info.depth,
		                  .hidden = info.hidden,
		                  .heads = info.heads,
		                  .patch = info.patch,
		                  .merge = info.merge,
		                  .out = info.out,
		                  .edge = form->size == SIZE_LONGEST || form->size == SIZE_SQUARE ? form->edge : 0,
		                  .area_min = form->size == SIZE_AREA ? form->area_min : 0,
		                  .area_max = form->size == SIZE_AREA ? form->area_max : 0,
		                  .rows = form->size == SIZE_FILL ? form->patches_max / (form->merge * form->merge) : 0,
		                  .both_ways = info.both_ways };
	memcpy(f.mean, form->mean, sizeof f.mean);
	memcpy(f.std, form->std, sizeof f.std);
	rc = find_ear(&f, st, err);
	if (!rc)
		rc = tower_source(tower, st, text, &f, err);
	tower_close(t);
	return rc;
}

static int to_gguf(struct quantize *q, const struct export_ask *ask, struct err *err)
{
	struct gguf_source source = { 0 }, tower = { 0 };
	struct export_ask beside = *ask;
	struct store *st = NULL;
	int rc;

	if (gguf_is(q->from.p)) {
		rc = q->o->mmproj_out ?
		             err_set(err, E_ARG, "--mmproj-out: %s is a GGUF file, whose tower is another", q->from.p) :
		             gguf_source_open(&source, q->from.p, err);
	} else {
		rc = store_open(&st, q->from.p, err);
		if (!rc)
			rc = folder_source(&source, st, err);
	}
	if (!rc && q->o->mmproj_out)
		rc = find_tower(&tower, st, &source, err);
	if (!rc)
		rc = export_gguf(&source, q->mix, ask, err);
	beside.to = q->tower_to.p;
	if (!rc && q->tower_to.n)
		rc = export_gguf(&tower, mix_find(tower.kept), &beside, err);
	gguf_source_close(&tower);
	gguf_source_close(&source);
	store_close(st);
	return rc;
}

/* Binds the model, and its draft head where it has one that can be bound, so that the store knows which tensors are
 * matrices. */
static int to_folder(struct quantize *q, const struct export_ask *ask, struct err *err)
{
	struct store *st = NULL;
	struct model *m = NULL, *head = NULL;
	struct err none;
	int rc = store_open(&st, q->from.p, err);

	if (!rc)
		rc = model_bind(&m, st, err);
	if (!rc) {
		model_bind_head(&head, m, st, &none);
		rc = export_folder(st, &q->kind, ask, err);
	}
	model_close(head);
	model_close(m);
	store_close(st);
	return rc;
}

static int make(struct quantize *q, struct err *err)
{
	struct export_ask ask = { .to = q->to.p, .importance = &q->importance, .progress = progress };
	int rc = q->o->imatrix ? imatrix_read(&q->importance, q->o->imatrix, err) : 0;

	if (!rc && q->o->calibrate)
		rc = calibrate(&q->importance, q->o->calibrate, q->load, err);
	if (!rc)
		rc = name_job(q, err);
	if (rc)
		return rc;
	ask.words = q->words.p;
	ask.pool = pool_new(q->load->threads ? q->load->threads : cpu_count());
	rc = q->mix ? to_gguf(q, &ask, err) : to_folder(q, &ask, err);
	pool_free(ask.pool);
	imatrix_fini(&q->importance);
	return rc;
}

/* Measures the loss on a text, as `weft ppl` does against the source model. */
static int measure(const struct options *given, const struct quantize *q)
{
	struct options o = *given;

	o.load.model = q->to.p;
	o.ppl.text_file = q->o->text_file;
	o.ppl.against_model = q->from.p;
	o.ppl.against = AGAINST_MODEL;
	return cmd_ppl(&o);
}

/* Prints what was made, and how much smaller it is. */
static void tell(const struct quantize *q)
{
	double from = (double)bytes_at(q->from.p), to = (double)bytes_at(q->to.p);

	fprintf(stderr, "%s: %.1f MB, from %.1f MB in %s\n", q->to.p, to / 1e6, from / 1e6, q->from.p);
	if (q->tower_to.n)
		fprintf(stderr, "%s: %.1f MB\n", q->tower_to.p, (double)bytes_at(q->tower_to.p) / 1e6);
}

int cmd_quantize(const struct options *o)
{
	struct quantize q = { .o = &o->quantize, .load = &o->load };
	struct err err;
	int rc, status = 0;

	buf_init(&q.from);
	buf_init(&q.words);
	buf_init(&q.to);
	buf_init(&q.tower_to);
	if ((rc = read_ask(&q, &err))) {
		cli_fail("quantize", &err);
		status = EXIT_USAGE;
		goto done;
	}
	if (o->load.model)
		rc = store_locate(o->load.model, &q.from, &err);
	else
		rc = model_name(&o->load, &q.from, &err);
	if (!rc)
		rc = make(&q, &err);
	if (!rc)
		tell(&q);
	if (!rc && o->quantize.text_file)
		status = measure(o, &q);
	if (rc)
		status = cli_fail("quantize", &err);
done:
	buf_fini(&q.from);
	buf_fini(&q.words);
	buf_fini(&q.to);
	buf_fini(&q.tower_to);
	return status;
}
