/* Reads of experts and of tables' rows that fail (docs/experts-from-disk.md): those requests end that
 * needed the expert or the row, with an error that names it; the others' answers are what they are alone, and the next request
 * that needs it reads it again.
 *
 *     test_experts FOLDER HEADED    a mixture; a model with a table that its draft head shares */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/draft/draft.h"
#include "engine/engine.h"
#include "base/reads.h"
#include "../check.h"
#include "driver.h"

enum { CTX = 128, STEP = 64, SLOTS = 4, PROMPT = 70, ANSWER = 24 };

struct world {
	struct store *st;
	struct backend *be;
	struct model *m, *head;
	struct engine *e;
	struct drafter *drafter;
};

static struct clock *test_clock; /* NULL: the system's */
static struct rows_opts *tables; /* left on disk so; NULL: in memory */
static bool drafting;            /* by the model's own head */

static void open_head(struct world *w, struct model_opts mo, struct engine_opts *eo)
{
	struct err err;

	CHECK(!model_bind_head(&w->head, w->m, w->st, &err), "%s", err.msg);
	mo.step_rows = draft_head_rows(&w->head->shape, SLOTS);
	CHECK(!model_attach(w->head, w->be, &mo, &err), "%s", err.msg);
	CHECK(!draft_head_open(&eo->drafter[0], w->head, SLOTS, 1 << 20, &err), "%s", err.msg);
	w->drafter = eo->drafter[0];
	eo->n_drafter = 1;
	eo->n_draft = 3;
	eo->draft_fixed = true;
}

static void open_world(struct world *w, const char *folder, struct stream_opts *how)
{
	struct model_opts mo = {
		.arith = ARITH_FAST, .slots = SLOTS, .ctx_max = CTX, .step_rows = STEP, .snap_bytes = 1 << 23
	};
	struct engine_opts eo = { .seqs_max = SLOTS,
		                  .queue_max = 16,
		                  .by_hand = true,
		                  .step_rows = STEP,
		                  .prefix_bytes = 1 << 22,
		                  .squeeze = test_clock != NULL,
		                  .clock = test_clock };
	struct err err;

	*w = (struct world){ .be = backend_cpu_open(1, cpu_detect()) };
	mo.tape_rows = eo.n_draft = drafting ? 3 : 0;
	CHECK(!store_open(&w->st, folder, &err), "%s", err.msg);
	CHECK(!model_bind(&w->m, w->st, &err), "%s", err.msg);
	CHECK(!model_attach(w->m, w->be, &mo, &err), "%s", err.msg);
	CHECK(!how || !model_stream(w->m, how, &err), "%s", err.msg);
	CHECK(!tables || !model_stream_rows(w->m, tables, &err), "%s", err.msg);
	if (drafting)
		open_head(w, mo, &eo);
	CHECK(!engine_open(&w->e, w->m, NULL, &eo, &err), "%s", err.msg);
}

static void close_world(struct world *w)
{
	engine_close(w->e);
	if (w->drafter)
		w->drafter->ops->close(w->drafter);
	model_close(w->head);
	model_close(w->m);
	w->be->ops->close(w->be);
	store_close(w->st);
}

struct answer {
	int32_t tok[ANSWER];
	int n;
	enum finish finish;
	struct err err;
	struct request *req;
};

static void ask(struct world *w, int i, struct answer *a)
{
	int32_t prompt[PROMPT];
	struct ask k = { .prompt = prompt, .n_prompt = PROMPT, .max_tokens = ANSWER };
	struct err err;

	*a = (struct answer){ 0 };
	for (int j = 0; j < PROMPT; j++)
		prompt[j] = 3 + (i * 37 + j * 11) % (w->m->shape.vocab < 203 ? 60 : 200);
	sampler_params_init(&k.sampling);
	k.sampling.temperature = 0;
	CHECK(!engine_submit(w->e, &k, &a->req, &err), "%s", err.msg);
}

static bool look(struct answer *a)
{
	struct event ev;

	while (a->req && request_next(a->req, &ev)) {
		if (ev.kind == EV_TOKEN)
			a->tok[a->n++] = ev.token;
		if (ev.kind != EV_DONE)
			continue;
		a->finish = ev.finish;
		a->err = ev.err;
		request_free(a->req);
		a->req = NULL;
	}
	return !a->req;
}

static void run(struct world *w, struct answer *a, int n)
{
	for (bool all = false; !all;) {
		all = true;
		engine_step(w->e);
		for (int i = 0; i < n; i++)
			all &= look(&a[i]);
	}
}

static bool same(const struct answer *a, const struct answer *b)
{
	return a->n == b->n && !memcmp(a->tok, b->tok, (size_t)a->n * sizeof *a->tok);
}

/* ---- a disk that fails ---- */

static atomic_int reads_left; /* until the one that fails; < 0: none does */

static int fail_one(const struct read_ask *a)
{
	return atomic_fetch_sub(&reads_left, 1) == 0 ? EIO : 0;
}

/* Four requests; the k-th read fails, of what has this name.  Returns how many ended for it; *rows: that were lost. */
static int one_failure(const char *folder, struct stream_opts *how, const struct answer *want, int k, const char *name,
                       int64_t *rows)
{
	struct row_stats s;
	struct answer got[SLOTS], again;
	struct world w;
	int ended = 0;

	open_world(&w, folder, how);
	for (int i = 0; i < SLOTS; i++)
		ask(&w, i, &got[i]);
	atomic_store(&reads_left, k);
	reads_fault = fail_one;
	run(&w, got, SLOTS);
	reads_fault = NULL;
	for (int i = 0; i < SLOTS; i++) {
		if (got[i].finish != FINISH_ERROR) {
			CHECK(same(&got[i], &want[i]), "read %d fails: request %d has another answer", k, i);
			continue;
		}
		ended++;
		CHECK(got[i].err.code == E_IO && strstr(got[i].err.msg, name), "%s", got[i].err.msg);
		CHECK(got[i].n < ANSWER && !memcmp(got[i].tok, want[i].tok, (size_t)got[i].n * sizeof *got[i].tok),
		      "read %d fails: request %d had wrong tokens before", k, i);
		ask(&w, i, &again);
		run(&w, &again, 1);
		CHECK(same(&again, &want[i]), "read %d failed: request %d asked again has another answer", k, i);
	}
	w.be->ops->row_stats(w.be, &s);
	*rows = s.failed;
	close_world(&w);
	return ended;
}

/* ---- a file that changes ---- */

static char path[256];

static void damage(const char *dir, off_t at, off_t length)
{
	char cmd[512];
	struct stat st;
	FILE *f;
	int fd;

	snprintf(cmd, sizeof cmd, "ls %s/*.experts", dir);
	f = popen(cmd, "r");
	CHECK(f && fgets(path, sizeof path, f), "no packed experts in %s", dir);
	pclose(f);
	path[strcspn(path, "\n")] = 0;
	fd = open(path, O_RDWR);
	CHECK(fd >= 0 && !fstat(fd, &st), "%s", path);
	if (length)
		CHECK(!ftruncate(fd, st.st_size - length), "truncate");
	for (off_t i = at; i < st.st_size - length && !length; i += 4096)
		CHECK(pwrite(fd, "damage", 6, i) == 6, "write");
	close(fd);
}

/* The file of the last damage() is in the form before this one. */
static void older_form(void)
{
	const uint32_t before = 1;
	int fd = open(path, O_RDWR);

	CHECK(fd >= 0 && pwrite(fd, &before, sizeof before, 8) == sizeof before, "%s", path);
	close(fd);
}

/* After the engine has it open; every later read is wrong. */
static void changed(const char *folder, struct stream_opts how, off_t at, off_t length, const char *says)
{
	struct answer a;
	struct world w;

	open_world(&w, folder, &how);
	damage(how.dir, at, length);
	ask(&w, 1, &a);
	run(&w, &a, 1);
	CHECK(a.finish == FINISH_ERROR && strstr(a.err.msg, says), "%s", a.err.msg);
	close_world(&w);
}

static void refused(const char *folder, struct stream_opts *how, const char *says)
{
	struct world w = { .be = backend_cpu_open(1, cpu_detect()) };
	struct model_opts mo = { .arith = ARITH_FAST, .slots = 1, .ctx_max = CTX, .step_rows = STEP };
	struct err err = { 0 };

	CHECK(!store_open(&w.st, folder, &err) && !model_bind(&w.m, w.st, &err) && !model_attach(w.m, w.be, &mo, &err),
	      "%s", err.msg);
	CHECK(model_stream(w.m, how, &err) && strstr(err.msg, says), "%s, not %s", err.msg, says);
	model_close(w.m);
	w.be->ops->close(w.be);
	store_close(w.st);
}

/* ---- tables ---- */

/* Reads of rows fail, the first and later ones.  A draft head's rows may be lost as well: that ends nobody, and changes no
 * answer. */
static void failing_rows(const char *folder, const struct answer *want)
{
	struct rows_opts how = { .bytes = 1 };
	int ended = 0, spared = 0, drafts = 0;

	tables = &how;
	for (int k = 0; k < 120; k += k < 20 ? 1 : 7) {
		int64_t rows;
		int n;

		how.way = k % 2 ? READS_THREADS : READS_BEST;
		n = one_failure(folder, NULL, want, k, "embed_tokens.weight could not be read", &rows);
		ended += n;
		spared += n ? SLOTS - n : 0;
		drafts += rows && !n;
	}
	CHECK(ended && spared, "%d requests ended for want of a row, %d beside them did not", ended, spared);
	CHECK(!drafting == !drafts, "%d times a draft head's row was lost", drafts);
	tables = NULL;
}

static void touched_file(const char *folder)
{
	static const struct timespec then[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
	struct rows_opts how = { .bytes = 1 };
	char dir[] = "/tmp/weft-tables-XXXXXX", cmd[1024];
	struct answer a;
	struct world w;

	CHECK(mkdtemp(dir), "mkdtemp");
	snprintf(cmd, sizeof cmd, "cp %s/* %s/", folder, dir);
	CHECK(!system(cmd), "%s", cmd);
	tables = &how;
	open_world(&w, dir, NULL);
	tables = NULL;
	snprintf(cmd, sizeof cmd, "%s/model.safetensors", dir);
	CHECK(!utimensat(AT_FDCWD, cmd, then, 0), "%s", cmd);
	ask(&w, 1, &a);
	run(&w, &a, 1);
	CHECK(a.finish == FINISH_ERROR && strstr(a.err.msg, "the file was changed"), "%s", a.err.msg);
	close_world(&w);
	snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
	CHECK(!system(cmd), "%s", cmd);
}

static void answers(const char *folder, struct answer *want)
{
	struct world w;

	open_world(&w, folder, NULL);
	for (int i = 0; i < SLOTS; i++) {
		ask(&w, i, &want[i]);
		run(&w, &want[i], 1);
	}
	close_world(&w);
}

static int files_in(const char *dir)
{
	char cmd[512], line[32] = "";
	FILE *f;

	snprintf(cmd, sizeof cmd, "ls -A %s | wc -l", dir);
	f = popen(cmd, "r");
	CHECK(f && fgets(line, sizeof line, f), "%s", cmd);
	pclose(f);
	return atoi(line);
}

/* Files may not grow beyond so much, as on a disk without room: what packing began is not left there. */
static void no_room(const char *folder, struct stream_opts *how)
{
	struct rlimit was, few = { 64 << 10, 64 << 10 };

	CHECK(!getrlimit(RLIMIT_FSIZE, &was), "getrlimit");
	few.rlim_max = was.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	CHECK(!setrlimit(RLIMIT_FSIZE, &few), "setrlimit");
	refused(folder, how, "packed experts");
	CHECK(!setrlimit(RLIMIT_FSIZE, &was), "setrlimit");
	CHECK(!files_in(how->dir), "something is left in %s", how->dir);
}

static void files(const char *folder, struct stream_opts how)
{
	struct digest key = { "of this test" };
	char dir[] = "/tmp/weft-experts-XXXXXX", cmd[64];

	CHECK(mkdtemp(dir), "mkdtemp");
	how.dir = dir;
	how.key = &key;
	no_room(folder, &how);
	changed(folder, how, 4096, 0, "digest");
	CHECK(!unlink(path), "unlink");
	changed(folder, how, 0, 200 << 10, "ends too early");
	refused(folder, &how, "are wanted");
	older_form();
	refused(folder, &how, "packed experts in form 1, form 2 is wanted; remove the file");
	damage(dir, 0, 0);
	refused(folder, &how, "not a file of packed experts");
	snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
	CHECK(!system(cmd), "%s", cmd);
}

/* ---- memory that becomes short ---- */

static void machine(const char *root, int available_kb)
{
	char at[256];
	FILE *f;

	snprintf(at, sizeof at, "%s/proc", root);
	mkdir(at, 0700);
	snprintf(at, sizeof at, "%s/proc/meminfo", root);
	f = fopen(at, "w");
	CHECK(f && fprintf(f, "MemTotal: 1000000 kB\nMemAvailable: %d kB\n", available_kb) > 0 && !fclose(f), "%s", at);
}

static int64_t fake_ns;
static int64_t fake_now(struct clock *c)
{
	return fake_ns += 2000000000; /* each look is two seconds later: every step may give back */
}

static int slots_now(struct world *w)
{
	struct stream_stats s;

	w->be->ops->stream_stats(w->be, &s);
	return s.slots;
}

/* Slots go while memory is short, down to the experts of one row, and come back; answers stay what they are. */
static void squeezed(const char *folder, struct stream_opts *how, const struct answer *want)
{
	char root[] = "/tmp/weft-experts-XXXXXX", cmd[64];
	struct clock clock = { .now_ns = fake_now };
	struct answer got;
	struct world w;
	int most, least;

	CHECK(mkdtemp(root), "mkdtemp");
	memory_root = root;
	machine(root, 500000);
	test_clock = &clock;
	open_world(&w, folder, how);
	most = slots_now(&w);
	least = w.m->shape.experts_used;
	for (int i = 0; i < SLOTS; i++) {
		machine(root, i % 2 ? 500000 : 100);
		ask(&w, i, &got);
		run(&w, &got, 1);
		CHECK(same(&got, &want[i]), "request %d has another answer while memory is short", i);
		CHECK(slots_now(&w) == (i % 2 ? most : least), "request %d: %d slots of %d", i, slots_now(&w), most);
	}
	close_world(&w);
	memory_root = "";
	test_clock = NULL;
	snprintf(cmd, sizeof cmd, "rm -rf %s", root);
	CHECK(!system(cmd), "%s", cmd);
}

static bool go_on(void *arg, size_t done)
{
	return true;
}

static size_t pack_all(struct world *w)
{
	return w->be->ops->pack(w->be, &(struct pack_opts){ .arith = ARITH_FAST, .more = go_on });
}

/* Spare time makes the memory of all slots ready, once; none after slots have been given back. */
static void ready(const char *folder, struct stream_opts *how, const struct answer *want)
{
	struct stream_stats s;
	struct answer got;
	struct world w;
	size_t all, packed;

	open_world(&w, folder, how);
	w.be->ops->stream_stats(w.be, &s);
	all = pack_all(&w);
	CHECK(!pack_all(&w), "made ready twice");
	ask(&w, 1, &got);
	run(&w, &got, 1);
	CHECK(same(&got, &want[1]), "another answer with slots that were made ready");
	close_world(&w);
	open_world(&w, folder, how);
	w.be->ops->stream_shrink(w.be, 1);
	packed = pack_all(&w);
	CHECK(all >= packed + (size_t)s.slots * s.slot_bytes,
	      "%zu bytes made ready, %zu with few slots, of %d slots of %zu", all, packed, s.slots, s.slot_bytes);
	close_world(&w);
}

int main(int argc, char **argv)
{
	struct stream_opts how = { .arith = ARITH_FAST, .bytes = 1 };
	struct answer want[SLOTS];
	int ended = 0, spared = 0;
	int64_t rows;

	log_set_level(LOG_ERROR);
	CHECK(argc == 3, "test_experts FOLDER HEADED");
	answers(argv[1], want);
	how.bytes = 400 << 10;
	for (int i = 0; i < 2; i++) {
		how.way = i ? READS_THREADS : READS_BEST;
		for (int k = 3; k < 400; k = k * 3 + 1) {
			int n = one_failure(argv[1], &how, want, k, "expert", &rows);

			ended += n;
			spared += n ? SLOTS - n : 0;
		}
	}
	CHECK(ended && spared, "%d requests ended, %d beside them did not", ended, spared);
	files(argv[1], how);
	squeezed(argv[1], &how, want);
	ready(argv[1], &how, want);
	failing_rows(argv[1], want);
	touched_file(argv[1]);
	answers(argv[2], want);
	drafting = true;
	failing_rows(argv[2], want);
	printf("%d requests ended, %d beside them did not\n", ended, spared);
	return 0;
}
