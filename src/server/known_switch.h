/* known_switch.h - which models are loaded: those who wait for one, and the thread that loads and unloads.  Inside
 * known_models.h. */
#ifndef SERVER_KNOWN_SWITCH_H
#define SERVER_KNOWN_SWITCH_H

#include "server/known_models.h"

/* Makes m->served and what belongs to it; takes that away again.  The caller has m for itself. */
void known_fill(struct known_model *m, const struct served *served);
void known_empty(struct known_model *m);

/* Unloads and frees a model that no request has. */
void known_free(struct known_model *m);

/* Under the lock: the model of that name, and NULL where there is none. */
struct known_model *known_find(struct known_models *k, const char *name, size_t n);

/* m was removed while the request waited for it; another may have its name now. */
enum { KNOWN_AGAIN = -1 };

/* Sets x->model to m once it is loaded, which may take as long as the request may wait.  Not 0: *p's status, or KNOWN_AGAIN,
 * after which m may be freed.  On a worker, under the lock, which is given back meanwhile. */
int known_hold(struct exchange *x, struct known_model *m, struct problem *p);

#endif
