/* life.h - a random life of checkcache, and the naive account of what it holds. */
#ifndef CACHE_LIFE_H
#define CACHE_LIFE_H

#include "world.h"

enum { SLOTS_MAX = 8, CTX_MAX = 160, KEPT_MAX = 12, STEP_MAX = 24, TAPE_MAX = 6, SEEN_MAX = 3 };

/* Pages as the naive account knows them: numbers never used again, those from first to n. */
struct pages {
	int id[CTX_MAX];
	int first, n;
};

/* A position of the last step, foreseen and not captured, and what is held for it. */
struct seen {
	int pos;
	bool lost; /* a cache after the one with the window refused: it is not captured, nor forgotten before its time */
	struct pages pages[GROUPS];
};

struct seq {
	int32_t tok[CTX_MAX + STEP_MAX];
	int pos;
	struct pages pages[GROUPS];
	/* While a span is reserved. */
	struct span span;
	bool reserved;
	struct pages before[GROUPS]; /* what it goes back to when it does not run */
	struct seen seen[SEEN_MAX];
	int n_seen;
};

struct kept {
	struct snaps snaps;
	int32_t tok[CTX_MAX];
	int pos; /* 0: free */
	struct pages pages[GROUPS];
};

struct life {
	struct world w;
	uint64_t seed, number, drawn;
	struct seq seq[SLOTS_MAX];
	struct kept kept[KEPT_MAX];
	int next_id;
	int op;
	const char *doing;
	bool armed;
};

void fail(const struct life *l, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));
#define must(l, cond, ...) ((cond) ? (void)0 : fail(l, __VA_ARGS__))

/* ---- account.c: nothing below looks into a cache, but the last three, which compare ---- */

int pages_for(const struct life *l, int pos);
int first_for(const struct life *l, int g, int pos); /* the first page of which the next row sees something */
size_t page_bytes(const struct life *l, int g);      /* 0: no such group in this life */
int holders(const struct life *l, int g, int id);
bool shares_last(const struct life *l, int s, int g); /* slot s would write a page that somebody else holds */
int pages_used(const struct life *l, int g);
bool room_for_pages(const struct life *l, const int more[GROUPS]);
int kept_count(const struct life *l);
int seen_count(const struct life *l);
int blocks_used(const struct life *l);
bool room_to_keep(const struct life *l, int pos); /* in budgets of their own, beside the pools */
/* The largest position that a slot which stands at `at` and has pages p, or a snapshot, can go to. */
int where(const struct life *l, const struct pages p[GROUPS], int at, int pos, bool snap);
size_t snap_bytes(const struct life *l, int pos);
uint64_t carried(const struct life *l, const int32_t *tok, int pos);
void check_kept(const struct life *l);
void check_numbers(const struct life *l);

/* ---- refused.c ---- */

void check_tables(void);
void check_refusals(void);

#endif
