/* head.h - draft heads in folders of their own, of other makers than the model's.  Inside src/model/. */
#ifndef MODEL_HEAD_H
#define MODEL_HEAD_H

#include "model/conf.h"
#include "model/model.h"

/* A kind of head, known by its config; bind as model_bind_head. */
struct head_kind {
	bool (*is)(const struct store *st);
	int (*bind)(struct model **out, const struct model *of, struct store *st, struct err *err);
};
extern const struct head_kind eagle3_head, dflash_head, assistant_head;

/* A zeroed model of ops->size bytes for `of`, by the name ops->arch[0]. */
struct model *head_new(const struct model_ops *ops, const struct model *of, struct store *st);

/* The kind of the folder's draft head; NULL: the folder has no draft head that is known here. */
const struct head_kind *head_kind_of(const struct store *st);

/* Is one of config.json's architectures this one? */
bool head_named(const struct store *st, const char *architecture);
/* Layers of the model from a list of numbers, each less `back`, into m->shape.head and m->shape.carry; fails where `of`
 * has no such layer. */
void head_taps(struct conf *c, struct model *m, const struct model *of, const struct json *list, const char *key,
               int back);
/* Sets the tapped layers from layer[0..n), for heads whose config does not name them. */
void head_taps_of(struct conf *c, struct model *m, const struct model *of, const int *layer, int n, const char *key);

#endif
