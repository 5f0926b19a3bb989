/* families.h - the tables that models.c lists.  Inside src/model/. */
#ifndef MODEL_FAMILIES_H
#define MODEL_FAMILIES_H

#include "model/model.h"

extern const struct model_ops plain_ops;       /* plain.c: the families of plain_table.c */
extern const struct model_ops qwen3_5_ops;     /* qwen3_5.c: Qwen3.5 to 3.8, dense and MoE, and Qwen3-Next */
extern const struct model_ops qwen4_exp_ops;   /* qwen4_exp.c: Qwen3.8-Flash-Next */
extern const struct model_ops gemma4_ops;      /* gemma4.c: Gemma 4 */
extern const struct model_ops sigmoid_moe_ops; /* sigmoid_moe.c: GLM-4.5, MiniMax M2 */
extern const struct model_ops nemotron_h_ops;  /* nemotron_h.c: Nemotron-H, Nano 2, Nemotron 3 */
extern const struct model_ops mamba2_ops;      /* mamba2.c: Mamba-2 */
extern const struct model_ops mamba1_ops;      /* mamba1.c: Mamba, Falcon-Mamba */
extern const struct model_ops plamo2_ops;      /* plamo2.c: PLaMo 2 */
extern const struct model_ops bamba_ops;       /* bamba.c: Bamba */
extern const struct model_ops granite_h_ops;   /* granite_h.c: Granite 4, hybrid and dense */
extern const struct model_ops falcon_h1_ops;   /* falcon_h1.c: Falcon-H1 */
extern const struct model_ops lfm2_ops;        /* lfm2.c: LFM2, dense and MoE */
extern const struct model_ops jamba_ops;       /* jamba.c: Jamba */
extern const struct model_ops bailing_ops;     /* bailing.c: Ring and Ling 2.x to 3.0 */
extern const struct model_ops deepseek_ops;    /* deepseek.c: DeepSeek-V3, Kimi-K2, GLM-4.7-Flash */
extern const struct model_ops kimi_linear_ops; /* kimi_linear.c: Kimi-Linear */
extern const struct model_ops glm5_next_ops;   /* glm5_next.c: GLM-5.3-Flash */
extern const struct model_ops deepseek_v4_ops; /* deepseek_v4.c: DeepSeek-V4 */
extern const struct model_ops olmo_hybrid_ops; /* olmo_hybrid.c: Olmo-Hybrid */
extern const struct model_ops encoder_ops;     /* encoder.c: BERT and its kind, which see a text both ways */
extern const struct model_ops rwkv7_ops;       /* rwkv7.c: RWKV-7 */

#endif
