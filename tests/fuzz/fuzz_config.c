/* Any bytes as the file of options of a command, which the first byte chooses: refused with a message that names the line,
 * or every number lies within its bounds; and the rest as the value of an option of answers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options/option_table.h"
#include "cli/options/several_options.h"
#include "held.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct command *command_of(uint8_t i)
{
	int n = 0;

	while (commands[n].name)
		n++;
	return &commands[i % n];
}

static void check_bounds(const struct options *o, const struct command *c)
{
	for (int i = 0; i < n_options; i++) {
		const struct option *op = &option_table[i];
		const char *at = (const char *)o + op->at;
		double v = op->kind == K_INT    ? *(const int *)at :
		           op->kind == K_INT64  ? (double)*(const int64_t *)at :
		           op->kind == K_DOUBLE ? *(const double *)at :
		                                  op->min;

		if ((op->commands & c->bit) && op->deflt && !(v >= op->min && v <= op->max))
			abort();
	}
}

/* The first line as a name, the rest as its value, as `/set` of a conversation has them. */
static void set_answer(struct options *o, const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *end;
	struct err err = { 0 };

	memcpy(text, data, size);
	text[size] = 0;
	end = text + strcspn(text, "=\n");
	if (*end)
		*end++ = 0;
	if (options_set_answer(o, text, end, &err) && !err.msg[0])
		abort();
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64], word[] = "--config", *argv[] = { word, path, NULL };
	const struct command *c;
	struct err err = { 0 };
	struct options o;
	int fd, rc;

	if (!size)
		return 0;
	c = command_of(data[0]);
	if (!(c->bit & CMD_ALL))
		return 0;
	fd = held_file(data + 1, size - 1, path);
	rc = options_parse(c, 2, argv, &o, &err);
	if (!rc && c->bit == CMD_SERVE && !o.several.dir)
		rc = options_several(c, &o, &err);
	if (rc && !err.msg[0])
		abort();
	if (!rc)
		check_bounds(&o, c);
	if (!rc && c->bit == CMD_RUN)
		set_answer(&o, data + 1, size - 1);
	options_fini(&o);
	close(fd);
	return 0;
}
