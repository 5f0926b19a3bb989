/* spill_world.h - prefixes with payloads that can be told from their tokens, for the
 * tests of kept prefixes on disk. */
#ifndef TESTS_ENGINE_SPILL_WORLD_H
#define TESTS_ENGINE_SPILL_WORLD_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/prefix/spill.h"

enum { ROWS = 4, PAGE_BYTES = 96, SNAP_BYTES = 200, LONGEST = 64 };

/* The system's, but nothing is synced: tests wait for no disk. */
const struct spill_io *world_io(void);
/* Ample budgets. */
struct spill_opts world_opts(const char *dir);

/* Tokens of prefix k; returns how many.  Some share their beginnings. */
int world_tokens(uint64_t k, int32_t *tok);
/* n bytes from malloc.  As in life, a function of all tokens before the end. */
void *world_payload(enum spill_kind kind, const int32_t *tok, int pos, size_t n);
/* Hands over what is wanted of the prefix tok[0..n) and its snapshot. */
void world_put(struct spill *s, const int32_t *tok, int n);
int world_find(struct spill *s, const int32_t *tok, int n);
/* What is found once the folder was looked at. */
int world_look_find(struct spill *s, const int32_t *tok, int n);
/* Takes all of a load and compares each piece; true when the snapshot came. */
bool world_load(struct spill *s, const int32_t *tok, int pos);

/* The folder as the system sees it: files whose names end with suffix. */
struct world_files {
	int files, tmp; /* tmp: half written, whatever the suffix */
	uint64_t bytes;
	char last[PATH_MAX]; /* path of one of the files */
};
struct world_files world_files(const char *dir, const char *suffix);

/* A new empty folder under $TMPDIR or /tmp. */
void world_dir(char out[PATH_MAX]);
void world_remove(const char *dir);

#endif
