/* models.c - every architecture there is.  To add one: its file, and its line here. */
#include "model/model.h"
#include "model/families.h"

/* clang-format off */
const struct model_ops *const models[] = {
	&qwen3_5_ops,
	&qwen4_exp_ops,
	&plain_ops,
	&gemma4_ops,
	&sigmoid_moe_ops,
	&nemotron_h_ops,
	&mamba2_ops,
	&mamba1_ops,
	&bamba_ops,
	&plamo2_ops,
	&granite_h_ops,
	&falcon_h1_ops,
	&lfm2_ops,
	&jamba_ops,
	&bailing_ops,
	&deepseek_ops,
	&kimi_linear_ops,
	&glm5_next_ops,
	&deepseek_v4_ops,
	&encoder_ops,
	&rwkv7_ops,
	&olmo_hybrid_ops,
	NULL,
};
/* clang-format on */
