/* load_adapters.c - see load_adapters.h. */
#include "host/load_adapters.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "model/adapter.h"

/* "NAME=PATH[,SCALE]", or PATH, whose last part less .gguf is the name then. */
static int parse(struct loaded_adapter *a, const char *text, struct err *err)
{
	const char *eq = strchr(text, '='), *path = eq ? eq + 1 : text, *comma = strrchr(path, ','), *last, *dot;
	char *end;

	a->scale = 1;
	if (comma && comma[1] && !strchr(comma, '/')) {
		a->scale = strtof(comma + 1, &end);
		if (*end || !isfinite(a->scale))
			return err_set(err, E_ARG, "--lora %s: \"%s\" is not a scale", text, comma + 1);
		a->path = xstrndup(path, (size_t)(comma - path));
	} else {
		a->path = xstrdup(path);
	}
	if (eq) {
		a->name = xstrndup(text, (size_t)(eq - text));
	} else {
		for (size_t n = strlen(a->path); n > 1 && a->path[n - 1] == '/'; n--)
			a->path[n - 1] = 0;
		last = strrchr(a->path, '/');
		last = last ? last + 1 : a->path;
		dot = strstr(last, ".gguf");
		a->name = xstrndup(last, dot ? (size_t)(dot - last) : strlen(last));
	}
	if (!*a->name || !*a->path)
		return err_set(err, E_ARG, "--lora %s: must be NAME=PATH[,SCALE]", text);
	return 0;
}

int load_adapters(struct loaded_adapters *a, const struct texts *given, struct model *m, struct err *err)
{
	size_t n = (size_t)given->n;
	int code = 0;

	*a = (struct loaded_adapters){ .v = NULL };
	if (!n)
		return 0;
	a->v = xcalloc(n, sizeof *a->v);
	a->all = xcalloc(n, sizeof *a->all);
	a->scale = xcalloc(n, sizeof *a->scale);
	for (; a->n < given->n && !code; a->n++) {
		struct loaded_adapter *one = &a->v[a->n];

		code = parse(one, given->v[a->n], err);
		for (int i = 0; i < a->n && !code; i++)
			if (!strcmp(a->v[i].name, one->name))
				code = err_set(err, E_ARG, "--lora: two adapters are called %s", one->name);
		if (!code)
			code = adapter_open(&one->of, m, one->name, one->path, err);
		a->all[a->n] = one->of;
		a->scale[a->n] = one->scale;
	}
	return code;
}

void loaded_adapters_close(struct loaded_adapters *a)
{
	for (int i = 0; i < a->n; i++) {
		adapter_close(a->v[i].of);
		free(a->v[i].name);
		free(a->v[i].path);
	}
	free(a->v);
	free(a->all);
	free(a->scale);
	*a = (struct loaded_adapters){ .v = NULL };
}
