/* kernel_set.c - see kernel_set.h. */
#include "backend/device/kernel_set.h"

#include <assert.h>
#include <string.h>

int kernels_find(struct kernel_set *s, struct device_kernel **to, const char *module, const char *name, int threads,
                 struct err *err)
{
	const struct device_text *text = device_text(module);
	int m = 0, k = 0, code;

	while (k < s->n && (s->kernel[k].text != text || strcmp(s->kernel[k].name, name) != 0))
		k++;
	if (k < s->n) {
		*to = s->kernel[k].k;
		return 0;
	}
	while (m < s->modules && s->module[m].text != text)
		m++;
	if (m == s->modules) {
		assert(m < (int)(sizeof s->module / sizeof *s->module));
		code = s->dev->ops->module(s->dev, &s->module[m].m, text, err);
		if (code)
			return code;
		s->module[s->modules++].text = text;
	}
	assert(k < (int)(sizeof s->kernel / sizeof *s->kernel));
	code = s->dev->ops->kernel(s->dev, to, s->module[m].m, name, threads, err);
	if (code)
		return code;
	s->kernel[k].text = text;
	s->kernel[k].name = name;
	s->kernel[k].k = *to;
	s->n++;
	return 0;
}

int kernels_run(struct kernel_set *s, const char *module, const char *name, int threads, int gx, int gy,
                const struct darg *arg, int n, struct err *err)
{
	struct device_kernel *k;
	int code = kernels_find(s, &k, module, name, threads, err);

	return code || s->only_find ? code : s->dev->ops->launch(s->dev, k, gx, gy, arg, n, err);
}
