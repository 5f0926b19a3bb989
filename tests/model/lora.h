/* lora.h - adapters made of random numbers, for all matrices of a model that can have one. */
#ifndef TESTS_LORA_H
#define TESTS_LORA_H

#include "model/adapter.h"
#include "store/adapter_file.h"

/* The pairs, in memory that lora_free frees; *n of them.  every: one matrix in so many is left out; 0: none is. */
struct adapter_matrix *lora_pairs(const struct model *m, int rank, uint64_t seed, int every, int *n);
void lora_free(struct adapter_matrix *v, int n);
/* The adapter of such pairs, named by its seed. */
struct adapter *lora_made(struct model *m, int rank, uint64_t seed);

#endif
