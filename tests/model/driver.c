/* driver.c - see driver.h. */
#include "driver.h"

#include "../check.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "test_backend.h"

int driver_attach(struct driver *d, struct model *m, const struct driver_opts *o, struct err *err)
{
	struct model_opts mo = {
		.arith = o->arith,
		.slots = o->slots,
		.ctx_max = o->ctx_max,
		.step_rows = o->step_rows,
		.tape_rows = o->tape_rows,
		.kv = o->kv,
		.snap_bytes = (size_t)1 << 28,
	};
	struct pass *p = &d->pass;
	int code;

	d->m = m;
	d->be = o->device ? test_backend_named(o->device, o->threads, o->level) :
	                    test_backend_open(o->threads, o->level);
	if ((code = model_attach(m, d->be, &mo, err)) || (o->experts && (code = model_stream(m, o->experts, err))) ||
	    (o->tables && (code = model_stream_rows(m, o->tables, err))))
		return code;
	d->rows_max = o->step_rows;
	d->vocab = m->shape.vocab;
	d->near = xmalloc(size_mul((size_t)d->rows_max * (size_t)d->vocab, sizeof *d->near));
	p->be = d->be;
	p->arith = o->arith;
	p->work.cap = m->ops->work_floats(m, o->step_rows, o->step_rows) * sizeof(float);
	p->work.p = d->be->ops->alloc(d->be, p->work.cap);
	p->logits = d->be->ops->alloc(d->be, (size_t)d->rows_max * (size_t)d->vocab * sizeof(float));
	assert(p->work.p && p->logits);
	return 0;
}

int driver_open(struct driver *d, const char *folder, const struct driver_opts *o, struct err *err)
{
	struct model *m;
	int code;

	*d = (struct driver){ 0 };
	if ((code = store_open(&d->st, folder, err)) || (code = model_bind(&m, d->st, err)) ||
	    (code = driver_attach(d, m, o, err)))
		driver_close(d);
	return code;
}

void driver_close(struct driver *d)
{
	if (d->pass.work.p)
		d->be->ops->free(d->be, d->pass.work.p, d->pass.work.cap);
	if (d->pass.logits)
		d->be->ops->free(d->be, d->pass.logits, (size_t)d->rows_max * (size_t)d->vocab * sizeof(float));
	model_close(d->m);
	if (d->be)
		d->be->ops->close(d->be);
	store_close(d->st);
	free(d->near);
	*d = (struct driver){ 0 };
}

void driver_step(struct driver *d, const struct item *item, int n_item)
{
	enum { ITEMS = 64, ROWS = 4096 };
	static int32_t tok[ROWS], pos[ROWS], of[ROWS], all[ROWS];
	struct span span[ITEMS];
	const struct adapter_mix *mix[ITEMS];
	int32_t first[ITEMS];
	struct pass *p = &d->pass;
	int n = 0;

	assert(n_item <= ITEMS);
	p->adapter = NULL;
	for (int i = 0; i < n_item; i++) {
		span[i] = (struct span){ item[i].slot, item[i].pos, item[i].n, item[i].n_draft };
		first[i] = n;
		mix[i] = item[i].slot < DRIVER_SLOTS ? d->mix[item[i].slot] : NULL;
		if (mix[i])
			p->adapter = mix;
		for (int k = 0; k < item[i].n; k++, n++) {
			assert(n < ROWS && n < d->rows_max);
			tok[n] = item[i].tok[k];
			pos[n] = item[i].pos + k;
			of[n] = i;
			all[n] = n;
		}
		assert(caches_reserve(&d->m->caches, &span[i]) == 0);
	}
	p->n_row = p->n_logit = n;
	p->n_item = n_item;
	p->tok = tok;
	p->pos = pos;
	p->item = of;
	p->span = span;
	p->row = first;
	p->logit_row = all;
	caches_begin(&d->m->caches, span, n_item);
	for (int i = 0; i < d->n_seen; i++)
		assert(caches_foresee(&d->m->caches, span, d->seen[i].item, d->seen[i].pos) == 0);
	assert(!model_run(d->m, p, NULL));
	assert(!d->be->ops->read(d->be, d->near, p->logits, (size_t)n * (size_t)d->vocab * sizeof(float)));
	for (int i = 0; i < n_item; i++) {
		caches_settle(&d->m->caches, &span[i], item[i].keep);
		if (item[i].logits)
			memcpy(item[i].logits, d->near + (size_t)first[i] * (size_t)d->vocab,
			       (size_t)item[i].n * (size_t)d->vocab * sizeof(float));
	}
	for (int i = 0; i < d->n_seen; i++)
		assert(caches_capture(&d->m->caches, span[d->seen[i].item].slot, d->seen[i].pos, &d->seen[i].snaps) ==
		       0);
	d->n_seen = 0;
	caches_check(&d->m->caches);
}

void driver_feed(struct driver *d, int slot, int pos, const int32_t *tok, int n, const int *chunk, int n_chunk,
                 float *logits)
{
	for (int i = 0, c = 0; i < n; c++) {
		int take = chunk ? chunk[c % n_chunk] : d->rows_max;
		struct item it = { slot, pos + i, take < n - i ? take : n - i,
			           0,    tok + i, logits ? logits + (size_t)i * (size_t)d->vocab : NULL,
			           0 };

		it.keep = it.n;
		driver_step(d, &it, 1);
		i += it.n;
	}
}

const char *shared_folder(void)
{
	const char *at = getenv("WEFT_SHARED");

	if (!at || !*at)
		at = WEFT_SOURCE_ROOT "/../shared";
	if (dir_exists(at))
		return at;
	printf("skipped: reference vectors missing (%s; WEFT_SHARED names another place)\n", at);
	return NULL;
}

bool shared_argument(char **argv, int i)
{
	enum { ARGUMENTS = 8 };
	static char place[ARGUMENTS][4096];
	const char *shared;

	CHECK(i < ARGUMENTS, "argument %d", i);
	if (strncmp(argv[i], "shared:", 7))
		return true;
	shared = shared_folder();
	if (!shared)
		return false;
	snprintf(place[i], sizeof place[i], "%s/%s", shared, argv[i] + 7);
	argv[i] = place[i];
	return true;
}

const char *const golden_family[] = {
	"qwen3_5",
	"qwen3_5_tied",
	"qwen3_5_moe",
	"qwen3_next",
	"qwen3",
	"qwen3_moe",
	"qwen2",
	"llama",
	"llama2",
	"nemotron_h_moe",
	"nemotron_h_latent",
	"mamba2",
	"granitemoehybrid",
	"granitemoehybrid_dense",
	"falcon_h1",
	"lfm2",
	"lfm2_moe",
	"jamba",
	"bailing_moe_linear",
	"gemma3_text",
	"gemma4_e2b",
	"gemma4_31b",
	"gemma4_unified",
	"gemma4_moe",
	"gpt_oss",
	"ministral3",
	"olmo3",
	"glm4_moe",
	"minimax_m2",
	"deepseek_v3",
	"glm4_moe_lite",
	"kimi_linear",
	"rwkv7",
	"mixtral",
	"cohere2",
	"olmoe",
	"gemma",
	"ernie4_5",
	"ernie4_5_moe",
	"seed_oss",
	"exaone4",
	"granitemoe",
	"arcee",
	"internlm3",
	"hunyuan_v1_dense",
	"afmoe",
	"granite_swa",
	"granitemoe_swa",
	"cohere2_moe",
	"bailing_moe",
	"kimi_k25",
	"mistral4",
	"deepseek_v32",
	"glm_moe_dsa",
	"qwen4_exp",
	"glm5_next",
	"deepseek_v4",
	"mamba",
	"falcon_mamba",
	"bamba",
	"plamo2",
	"apertus",
	"phimoe",
	"mimo_v2_flash",
	"step3p5",
	"llama4_text",
	NULL,
};

int each_golden_family(void (*each)(const char *folder))
{
	static const char *const variant[] = { "mlx-q4", "hf-bf16", "hf-f32" };
	const char *shared = shared_folder();
	char folder[1024];
	int n = 0, quick = getenv("WEFT_TEST_QUICK") != NULL;

	for (; shared && golden_family[n]; n++) {
		if (quick && n % 3)
			continue;
		for (int v = 0; v < 3; v++) {
			snprintf(folder, sizeof folder, "%s/golden/%s/%s", shared, golden_family[n], variant[v]);
			if (dir_exists(folder))
				break;
		}
		each(folder);
	}
	return n;
}
