/* families.h - the tables that models.c lists.  Inside src/model/. */
#ifndef MODEL_FAMILIES_H
#define MODEL_FAMILIES_H

#include "model/model.h"

extern const struct model_ops qwen3_5_ops;    /* qwen3_5.c: Qwen3.5 to 3.8, dense and MoE, and Qwen3-Next */
extern const struct model_ops llama_ops;      /* llama.c: llama, qwen2, qwen3, qwen3_moe */
extern const struct model_ops nemotron_h_ops; /* nemotron_h.c: Nemotron-H, Nano 2, Nemotron 3 */
extern const struct model_ops mamba2_ops;     /* mamba2.c: Mamba-2 */
extern const struct model_ops granite_h_ops;  /* granite_h.c: Granite 4, hybrid and dense */
extern const struct model_ops falcon_h1_ops;  /* falcon_h1.c: Falcon-H1 */
extern const struct model_ops lfm2_ops;       /* lfm2.c: LFM2, dense and MoE */
extern const struct model_ops jamba_ops;      /* jamba.c: Jamba */
extern const struct model_ops bailing_ops;    /* bailing.c: Ring and Ling 2.x */

#endif
