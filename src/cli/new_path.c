/* new_path.c - see new_path.h. */
#include "cli/new_path.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"

int new_path(struct buf *out, const char *option, const char *path, bool folder, struct err *err)
{
	size_t n = strlen(path), at;
	bool inside, named;

	while (n > 1 && path[n - 1] == '/')
		n--;
	for (at = n; at && path[at - 1] != '/'; at--)
		;
	named = n > at && strncmp(path + at, ".", n - at) && strncmp(path + at, "..", n - at);
	if (path[n] && !folder)
		return err_set(err, E_ARG, "--%s %s: ends as the name of a folder, and a file is made", option, path);
	buf_put(out, path, at);
	inside = !at || dir_exists(out->p);
	buf_put(out, path + at, n - at);
	if (n && access(out->p, F_OK) == 0)
		return err_set(err, E_ARG, "--%s %s: is there already", option, path);
	if (!inside)
		return err_set(err, E_ARG, "--%s %s: there is no folder %.*s", option, path, (int)at, path);
	if (!named)
		return err_set(err, E_ARG, "--%s \"%s\": names nothing that could be made", option, path);
	return 0;
}
