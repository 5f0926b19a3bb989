/* Whole models on a device against the processor: every logit of prompts, of steps with several sequences, and of drafts that are
 * taken back, at the processor's best level of plain arithmetic, by memcmp.
 *
 *     models_test DEVICE [--arith f32] [--kv KEYS VALUES] FOLDER...     which must all be served; rows of the cache in these formats
 *     models_test DEVICE --adapters FOLDER...        with one adapter, and with two beside it
 *     models_test DEVICE --families                  one folder of every family: those that are refused say why
 *     models_test DEVICE --make SHAPE FOLDER         makes a folder first (made_model.h)
 *     models_test DEVICE --speed FOLDER [small] [csv=FILE]   times on the device, then on the processor */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../model/driver.h"
#include "../model/lora.h"
#include "base/alloc.h"
#include "made_model.h"
#include "speed_models.h"

enum { SLOTS = 2, ROWS = 48, TAPE = 4, PROMPT = 41 };

static const char *device;
static enum arith arith = ARITH_FAST;
static struct kv_rows kv; /* empty: what goes with arith */
static bool adapters;
static int served, refused, failed;

/* The highest level whose bits every device can repeat. */
static enum cpu_level plain_level(void)
{
	enum cpu_level best = CPU_SCALAR;

	for (enum cpu_level l = CPU_SCALAR; l < CPU_LEVELS; l = cpu_level_next(l))
		if (!strcmp(level_orders(l).products, "plain") && !strcmp(level_orders(l).attention, "plain"))
			best = l;
	return best;
}

static int32_t token(const struct driver *d, int i)
{
	return (int32_t)((unsigned)(i * 7919 + i * i * 31 + 5) % (unsigned)d->vocab);
}

struct pair {
	struct driver cpu, dev;
	float *want, *got;
	const char *folder;
};

/* One step over both: items with their tokens, all rows compared. */
static bool step(struct pair *p, const char *what, const struct item *item, int n)
{
	struct item both[2][SLOTS];
	int32_t tok[SLOTS][ROWS];
	size_t at = 0, vocab = (size_t)p->cpu.vocab;

	for (int i = 0; i < n; i++) {
		for (int k = 0; k < item[i].n; k++)
			tok[i][k] = token(&p->cpu, item[i].slot * 1000 + item[i].pos + k);
		both[0][i] = both[1][i] = item[i];
		both[0][i].tok = both[1][i].tok = tok[i];
		both[0][i].logits = p->want + at;
		both[1][i].logits = p->got + at;
		at += (size_t)item[i].n * vocab;
	}
	driver_step(&p->cpu, both[0], n);
	driver_step(&p->dev, both[1], n);
	for (size_t k = 0; k < at; k++)
		if (memcmp(&p->want[k], &p->got[k], sizeof(float))) {
			printf("%s: %s: row %zu, token %zu: %a on the processor, %a on the device\n", p->folder, what,
			       k / vocab, k % vocab, (double)p->want[k], (double)p->got[k]);
			failed++;
			return false;
		}
	return true;
}

static void lives(struct pair *p)
{
	enum { LATER = PROMPT + 1 };

	if (step(p, "a prompt", (struct item[]){ { .slot = 0, .n = PROMPT, .keep = PROMPT } }, 1) &&
	    step(p, "a step beside a prompt",
	         (struct item[]){ { .slot = 1, .n = 17, .keep = 17 }, { .slot = 0, .pos = PROMPT, .n = 1, .keep = 1 } },
	         2) &&
	    step(p, "drafts",
	         (struct item[]){ { .slot = 0, .pos = LATER, .n = 4, .n_draft = 3, .keep = 2 },
	                          { .slot = 1, .pos = 17, .n = 3, .n_draft = 2, .keep = 1 } },
	         2) &&
	    step(p, "a step after drafts",
	         (struct item[]){ { .slot = 1, .pos = 18, .n = 1, .keep = 1 },
	                          { .slot = 0, .pos = LATER + 2, .n = 1, .keep = 1 } },
	         2) &&
	    step(p, "the rest of a prompt", (struct item[]){ { .slot = 0, .pos = LATER + 3, .n = 30, .keep = 30 } }, 1))
		printf("alike    %s\n", p->folder);
}

/* Two adapters, made for the processor's model and for the device's.  The first sequence uses one of them, the second both. */
struct adapted {
	struct adapter *of[2];
	struct adapter_mix mix[2];
};

static void adapt(struct adapted *a, struct driver *d)
{
	a->of[0] = lora_made(d->m, 5, 0);
	a->of[1] = lora_made(d->m, 16, 1);
	a->mix[0] = (struct adapter_mix){ 1, { { a->of[0], 0.5f } } };
	a->mix[1] = (struct adapter_mix){ 2, { { a->of[1], 1 }, { a->of[0], -1 } } };
	d->mix[0] = &a->mix[0];
	d->mix[1] = &a->mix[1];
}

static void compare_lives(struct pair *p)
{
	struct adapted a[2] = { { { NULL } } };
	size_t n = (size_t)(SLOTS * ROWS) * (size_t)p->cpu.vocab;

	p->want = xmalloc(n * sizeof *p->want);
	p->got = xmalloc(n * sizeof *p->got);
	if (adapters) {
		adapt(&a[0], &p->cpu);
		adapt(&a[1], &p->dev);
	}
	lives(p);
	for (int i = 0; i < 4; i++)
		adapter_close(a[i / 2].of[i % 2]);
	free(p->want);
	free(p->got);
}

static void compare(const char *folder, bool must)
{
	struct driver_opts o = { .arith = arith,
		                 .threads = 1,
		                 .level = plain_level(),
		                 .slots = SLOTS,
		                 .ctx_max = 128,
		                 .step_rows = ROWS,
		                 .tape_rows = TAPE,
		                 .kv = kv };
	struct pair *p = xcalloc(1, sizeof *p);
	struct err err;
	int code;

	p->folder = folder;
	if (driver_open(&p->cpu, folder, &o, &err)) {
		printf("%s: %s\n", folder, err.msg);
		exit(1);
	}
	o.device = device;
	code = driver_open(&p->dev, folder, &o, &err);
	if (code) {
		printf("refused  %s: %s\n", folder, err.msg);
		refused++;
		failed += must || code != E_UNSUPPORTED;
	} else {
		compare_lives(p);
		driver_close(&p->dev);
		served++;
	}
	fflush(stdout);
	driver_close(&p->cpu);
	free(p);
}

static void family(const char *folder)
{
	compare(folder, false);
}

/* The folder of a shape by name. */
static void make(const char *name, const char *folder)
{
	const struct made_shape *s = made_shapes;

	while (s->name && strcmp(s->name, name))
		s++;
	if (!s->name) {
		printf("no shape %s\n", name);
		exit(2);
	}
	made_model(s, folder);
}

static int speed(int argc, char **argv)
{
	bool small = false;
	FILE *csv = NULL;

	for (int i = 4; i < argc; i++)
		if (!strcmp(argv[i], "small"))
			small = true;
		else if (!strncmp(argv[i], "csv=", 4))
			csv = fopen(argv[i] + 4, "w");
	speed_models(argv[3], device, 1, small, csv);
	speed_models(argv[3], "cpu", cpu_count(), small, csv);
	return csv && fclose(csv);
}

int main(int argc, char **argv)
{
	int i = 2;

	if (argc < 3)
		return 2;
	device = argv[1];
	if (!strcmp(argv[i], "--arith")) {
		arith = ARITH_F32;
		i += 2;
	}
	adapters = !strcmp(argv[i], "--adapters");
	i += adapters;
	if (i + 2 < argc && !strcmp(argv[i], "--kv")) {
		kv.all = (struct kv_pair){ kv_format_find(argv[i + 1]), kv_format_find(argv[i + 2]) };
		i += 3;
	}
	if (argc > 3 && !strcmp(argv[2], "--speed"))
		return speed(argc, argv);
	for (; i < argc; i++)
		if (!strcmp(argv[i], "--make") && i + 2 < argc) {
			make(argv[i + 1], argv[i + 2]);
			i += 2;
		} else if (!strcmp(argv[i], "--families"))
			each_golden_family(family);
		else if (strncmp(argv[i], "shared:", 7) || shared_argument(argv, i))
			compare(argv[i], true);
	printf("%d models served, %d refused, %d not as they should be\n", served, refused, failed);
	return failed != 0;
}
