/* suggested.c - `weft models`: a short list of models that work well, by memory size. */
#include <stdio.h>

#include "cli/cli.h"

/* Names that `weft pull` takes.  Families are those of docs/models.md. */
static const struct suggested {
	const char *name;
	double params, active; /* thousand millions; active 0: all of them */
	double bits;           /* of a parameter in the file, on average */
	const char *use;
} suggested[] = {
	{ "unsloth/Qwen3.5-0.8B-GGUF:Q4_K_M", 0.8, 0, 5, "trying things out" },
	{ "LiquidAI/LFM2-1.2B-GGUF:Q4_K_M", 1.2, 0, 5, "small machines" },
	{ "unsloth/Qwen3.5-4B-GGUF:Q4_K_M", 4, 0, 5, "chat, tools, images" },
	{ "ibm-granite/granite-4.0-h-tiny-GGUF:Q4_K_M", 7, 1, 5, "tools, long contexts" },
	{ "LiquidAI/LFM2-8B-A1B-GGUF:Q4_K_M", 8.3, 1.5, 5, "chat without a GPU" },
	{ "unsloth/Qwen3.5-9B-GGUF:Q4_K_M", 9, 0, 5, "chat, tools, images" },
	{ "ggml-org/gemma-3-12b-it-GGUF:Q4_K_M", 12, 0, 5, "many languages, images" },
	{ "openai/gpt-oss-20b", 21, 3.6, 4.4, "reasoning, tools" },
	{ "unsloth/Qwen3.5-27B-GGUF:Q4_K_M", 27, 0, 5, "code, agents, images" },
	{ "Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M", 30.5, 3, 5, "agents without a GPU" },
	{ "unsloth/Qwen3.5-35B-A3B-GGUF:Q4_K_M", 35, 3, 5, "agents, long contexts, images" },
	{ "openai/gpt-oss-120b", 117, 5.1, 4.4, "reasoning, tools" },
};

/* Gigabytes of the smallest usual machine that holds the weights, a sixth of their size for contexts, and the program. */
static int machine_gb(double file_gb)
{
	static const int usual[] = { 2, 4, 8, 16, 24, 32, 48, 64, 96, 128 };
	size_t i = 0;

	while (i + 1 < sizeof usual / sizeof *usual && usual[i] < file_gb * 7 / 6 + 0.5)
		i++;
	return usual[i];
}

int cmd_models(const struct options *o)
{
	char active[24];

	(void)o;
	printf("%-8s %-45s %10s %8s %9s  %s\n", "MEMORY", "MODEL", "PARAMETERS", "ACTIVE", "DOWNLOAD", "GOOD FOR");
	for (size_t i = 0; i < sizeof suggested / sizeof *suggested; i++) {
		const struct suggested *s = &suggested[i];
		double gb = s->params * s->bits / 8;

		*active = 0;
		if (s->active > 0)
			snprintf(active, sizeof active, "%gB", s->active);
		printf("%3d GB   %-45s %9gB %8s %6.1f GB  %s\n", machine_gb(gb), s->name, s->params, active, gb,
		       s->use);
	}
	printf("\nAll are on https://huggingface.co; `weft pull MODEL` fetches one.  Sizes are estimates, from the number\n"
	       "of parameters; `weft inspect MODEL --memory` computes those of a model on disk.\n");
	return 0;
}
