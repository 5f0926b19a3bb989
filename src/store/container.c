/* container.c - see container.h. */
#include "store/container.h"

#include <assert.h>
#include <string.h>

#include "store/lfs.h"

int container_open(struct container *c, const struct container_ops *ops, const char *path, const char *tower,
                   struct err *err)
{
	*c = (struct container){ 0 };
	arena_init(&c->arena);
	c->path = arena_strndup(&c->arena, path, strlen(path));
	c->tower = tower ? arena_strndup(&c->arena, tower, strlen(tower)) : NULL;
	for (int i = 0; !ops && containers[i]; i++)
		if (containers[i]->match(path))
			ops = containers[i];
	if (!ops && lfs_refuse_file(path, err))
		return err->code;
	if (!ops)
		return err_set(err, E_ARG,
		               "%s: is %s; MODEL is a folder that holds config.json and *.safetensors, or a GGUF file",
		               path, file_exists(path) ? "a file of another kind" : "not there");
	assert(ops->name && ops->match && ops->open && ops->tensors && ops->close && ops->document && ops->place);
	c->ops = ops;
	if (tower && *tower && !ops->tower_apart)
		return err_set(err, E_ARG, "%s: its tower is among its own files; %s would be one for a GGUF file",
		               path, tower);
	return ops->open(c, err);
}

int container_tensors(struct container *c, struct err *err)
{
	int code = c->ops->tensors(c, err);

	if (code)
		return code;
	tensors_sort(c->v, c->n);
	for (size_t i = 0; i + 1 < c->n; i++)
		if (!strcmp(c->v[i]->name, c->v[i + 1]->name))
			return err_set(err, E_FORMAT, "%s: tensor %s: also in %s", c->v[i + 1]->file, c->v[i]->name,
			               c->v[i]->file);
	return 0;
}

int container_document(struct container *c, const char *name, struct buf *out, struct err *err)
{
	assert(*name && *name != '.' && *name != '/' && !strstr(name, "/."));
	return c->ops->document(c, name, out, err);
}

int container_list(struct container *c, const char *folder, const char *const **out, struct err *err)
{
	static const char *const none[] = { NULL };

	*out = none;
	return c->ops->list ? c->ops->list(c, folder, out, err) : 0;
}

const char *container_place(struct container *c, const char *name)
{
	return c->ops->place(c, name);
}

int container_load(struct container *c, struct tensor *t, struct err *err)
{
	if (t->data || !t->bytes)
		return 0;
	assert(c->ops->load);
	return c->ops->load(c, t, err);
}

void container_close(struct container *c)
{
	if (c->ops)
		c->ops->close(c);
	arena_fini(&c->arena);
	*c = (struct container){ 0 };
}
