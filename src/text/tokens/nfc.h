/* nfc.h - Unicode normalisation forms of UTF-8 text, for tokenizer.c and normal.c.
 *
 * Most text is in the form already: only the runs around characters that could
 * change are taken apart, and what changed is written down, so that positions in
 * the result can be traced back. */
#ifndef TEXT_NFC_H
#define TEXT_NFC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Source bytes [from, from_end) became [to, to_end); outside of all changes the
 * bytes are equal and in step. */
struct nfc_change {
	size_t from, from_end, to, to_end;
};

enum nfc_form { FORM_C, FORM_D, FORM_KC, FORM_KD };

struct nfc {
	enum nfc_form form;        /* the caller sets it after nfc_init, which leaves C */
	struct buf out;            /* the normalised text, when nfc_run says so */
	struct nfc_change *change; /* in order */
	size_t n_change, cap_change;
	int32_t *cp, *sorted; /* code points of the run at hand */
	size_t cap_cp;
};

void nfc_init(struct nfc *f);
void nfc_fini(struct nfc *f);

/* Normalises p[0..n), valid UTF-8.  False when the text is in the form as it is:
 * then out and change are empty.  Time is linear in n, also for long runs of
 * combining marks. */
bool nfc_run(struct nfc *f, const char *p, size_t n);

/* The source range [*from, *from_end) that yielded [to, to_end) of the result,
 * widened to whole changes. */
void nfc_source(const struct nfc *f, size_t to, size_t to_end, size_t *from, size_t *from_end);

#endif
