/* hub_cache.h - what the cache on disk holds of a model.  Inside src/hub/. */
#ifndef HUB_HUB_CACHE_H
#define HUB_HUB_CACHE_H

#include "base/buf.h"
#include "hub/choose.h"
#include "hub/hub.h"

void hub_tree_add(struct hub_tree *t, const char *path, int64_t size, const char *digest, const char *blob_id);
void hub_tree_free(struct hub_tree *t);

/* The list of a commit's files, trees/COMMIT.json: 0, or E_MISSING where it is not there or of another version. */
int hub_tree_read(struct hub_tree *t, const char *folder, const char *commit);
int hub_tree_write(const struct hub_tree *t, const char *folder, const char *commit, struct err *err);
/* Adds the entries of one page of the hub's answer; those whose path is not a safe file name are left out.  E_FORMAT. */
int hub_tree_page(struct hub_tree *t, const char *text, size_t n, struct err *err);

/* The commit that refs/REVISION names; revision may be a commit.  E_MISSING; E_FORMAT: what the file has is none. */
int hub_ref_read(const char *folder, const char *revision, char commit[41]);
int hub_ref_write(const char *folder, const char *revision, const char *commit, struct err *err);
/* snapshots/COMMIT/PATH leads to the blob afterwards. */
int hub_link(const char *folder, const char *commit, const struct hub_entry *e, struct err *err);
/* Whether snapshots/COMMIT/PATH is there with the right size. */
bool hub_linked(const char *folder, const char *commit, const struct hub_entry *e);
/* The folder and those above it that are not there, as open to others as the umask allows: the cache may be shared. */
int hub_make_folder(const char *path, struct err *err);
/* Writes text to path by a name of its own and a rename, folders made. */
int hub_write(const char *path, const char *text, size_t n, struct err *err);

#endif
