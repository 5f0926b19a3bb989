/* mtp.h - a checkpoint's own draft head, for multi-token prediction (DeepSeek-V3, 2024, arXiv 2412.19437, section 2.2).
 * Inside src/model/.
 *
 *     x = proj [norm(E[token]) | norm(given)];  layers of the family, with keys and values of their own
 *     hidden = norm(x);  logits = hidden head'
 *
 * given is the model's hidden row of the token before, behind its last norm, so the logits are of the token after.  Fed
 * its own hidden, the head guesses on.  It is a model of the family with other beginnings (trunk.fuse), so the family's
 * forward is its forward: a family says how the tensors are named, and binds the layers. */
#ifndef MODEL_MTP_H
#define MODEL_MTP_H

#include "model/trunk.h"

struct mtp_form {
	const char *proj, *norm_embed, *norm_given, *norm;
	const char *embed, *head; /* where the file has none of its own, the model's */
	bool apart;               /* layers are numbered from 0, under "mtp."; else they lie behind the model's last */
	bool outside;             /* these tensors are in no layer; else in the first, but norm and head in the last */
	float norm_add;           /* 1 for norms stored without their 1 */
};

/* DeepSeek's layout, and later ones: in the layer after the last. */
extern const struct mtp_form mtp_behind;

/* Binds what is around a head's `layers` layers into t, finds the prefix of their tensors, and makes m's shape, into
 * which the config was read before, that of a head with these layers.  Returns the number of the first in the file.
 * E_MISSING stays in b where there is no head. */
int mtp_bind(struct binder *b, struct trunk *t, const struct model *of, const struct mtp_form *f, int layers);

/* The beginning of mtp_bind alone, for heads with other tensors around their layers: the prefix under which f->proj is, the
 * shape, the trunk, with the model's embedding, output matrix and last norm. */
void mtp_begin(struct binder *b, struct trunk *t, const struct model *of, const struct mtp_form *f, int layers);

/* The embedding and the output matrix that a head may have of its own, in its first and its last layer. */
void mtp_bind_own(struct binder *b, struct trunk *t, const struct mtp_form *f, int first, int last);

/* For bind of the model: marks tensors of n layers behind its last as a draft head's; of those under "mtp.". */
void mtp_ignore_behind(struct binder *b, int n);
void mtp_ignore_apart(struct store *st);

/* model_bind_head for the model's own head. */
int mtp_open(struct model **out, const struct model *of, struct store *st, struct err *err);

#endif
