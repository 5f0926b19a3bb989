/* host_opts.c - see host_opts.h. */
#include "host/host_opts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "model/model.h"

void host_opts_init(struct host_opts *o)
{
	struct cpu_processor processor;

	cpu_processor(&processor);
	*o = (struct host_opts){
		.parallel = 1,
		.queue = 256,
		.queue_seconds = 120,
		.decode_gap = 100,
		.answer_reserve = 512,
		.cpu = choices_of(&processor, cpu_detect()),
		.arith = ARITH_FAST,
		.kv.skip = "none",
		.prefix_bytes = SIZE_MAX,
		.answer = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 },
	};
}

int step_rows_of(const struct host_opts *o, const struct shape *shape)
{
	enum { ROWS = 256, ROWS_EXPERTS = 1024 }; /* rows meet in an expert only when there are many */

	return o->step_rows ? o->step_rows : shape->experts ? ROWS_EXPERTS : ROWS;
}

int host_size(const char *text, size_t *out)
{
	static const char unit[] = "KMGT";
	unsigned long long n;
	char *end;
	const char *u;
	int shift = 0;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (end == text || *text == '-' || errno)
		return E_ARG;
	if (*end) {
		u = strchr(unit, *end & ~0x20);
		if (!u || (end[1] && strcmp(end + 1, "iB") && strcmp(end + 1, "B")))
			return E_ARG;
		shift = 10 * (int)(u - unit + 1);
	}
	if (n > SIZE_MAX >> shift)
		return E_ARG;
	*out = (size_t)n << shift;
	return 0;
}
