/* refused.c - tables of verbs and caches that must not open. */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "life.h"

/* The program must die of a table that lacks one of the required verbs. */
void check_tables(void)
{
	struct backend *be = toy_backend_open(false);
	struct pooled_opts o = { .group = 2, .slots = 1, .ctx_max = 8, .step_rows = 4, .blocks_max = 1 };
	struct cache *c = pooled_open(be, &o, NULL);
	const struct cache_ops whole = *c->ops;
	static const size_t required[] = {
		offsetof(struct cache_ops, name),    offsetof(struct cache_ops, fini),
		offsetof(struct cache_ops, close),   offsetof(struct cache_ops, reserve),
		offsetof(struct cache_ops, settle),  offsetof(struct cache_ops, reach),
		offsetof(struct cache_ops, rewind),  offsetof(struct cache_ops, foresee),
		offsetof(struct cache_ops, capture), offsetof(struct cache_ops, snap_reach),
		offsetof(struct cache_ops, restore), offsetof(struct cache_ops, drop),
		offsetof(struct cache_ops, write),   offsetof(struct cache_ops, read),
		offsetof(struct cache_ops, facts),   offsetof(struct cache_ops, describe),
	};

	for (size_t i = 0; i <= sizeof required / sizeof *required; i++) {
		bool lacks = i < sizeof required / sizeof *required;
		int status;
		pid_t pid;

		fflush(stdout);
		pid = fork();
		if (pid == 0) {
			struct cache_ops ops = whole;
			struct cache copy = { .ops = &ops, .be = be };
			struct caches set = { .n = 0 };

			if (lacks)
				memset((char *)&ops + required[i], 0, sizeof ops.fini);
			ops.begin = NULL;
			ops.shed = NULL;
			ops.check = NULL;
			if (!freopen("/dev/null", "w", stderr))
				_exit(1);
			caches_add(&set, &copy);
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			abort();
		if (lacks ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT : status != 0) {
			printf("FAILED: a table %s at byte %zu: status %x\n",
			       lacks ? "with nothing" : "with all required", lacks ? required[i] : 0, (unsigned)status);
			exit(1);
		}
	}
	c->ops->fini(c);
	be->ops->close(be);
}

/* A refused allocation at any point of opening leaves nothing behind. */
void check_refusals(void)
{
	struct life *l = xcalloc(1, sizeof *l);
	struct world *w = &l->w;

	toy_truth.open(w, 0x35);
	w->paged[0].page_rows = 4;
	w->paged[0].slots = w->state.slots = 2;
	w->paged[0].ctx_max = 16;
	w->paged[0].bytes_max = 1 << 16;
	w->state.tape_rows = 2;
	for (int k = 0; k < 2; k++)
		for (int nth = 1;; nth++) {
			struct err err = { 0 };
			struct cache *c;

			toy_backend_refuse(w->be, nth);
			c = k ? state_open(w->be, &w->state, &err) : paged_open(w->be, &w->paged[0], &err);
			toy_backend_refuse(w->be, 0);
			if (c) {
				c->ops->fini(c);
				must(l, nth > 1, "no allocation was refused");
				break;
			}
			must(l, err.code == E_FULL && err.msg[0], "code %d: %s", err.code, err.msg);
			must(l, !toy_backend_live(w->be), "%zu bytes left", toy_backend_live(w->be));
		}
	w->paged[0].bytes_max = 3;
	{
		struct err err = { 0 };

		must(l, !paged_open(w->be, &w->paged[0], &err) && err.code == E_LIMIT, "a pool of no page opened");
		w->paged[0].bytes_max = SIZE_MAX;
		w->paged[0].group.heads = w->paged[0].group.layers = w->paged[0].page_rows = INT_MAX;
		must(l, !paged_open(w->be, &w->paged[0], &err) && err.code == E_LIMIT, "a page beyond memory opened");
	}
	w->be->ops->close(w->be);
	free(l);
}
