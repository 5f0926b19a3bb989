/* device.c - see device.h. */
#include "backend/device/device.h"

#include <assert.h>
#include <string.h>

const struct device_text *device_text(const char *name)
{
	const struct device_text *t = device_texts;

	while (t->name && strcmp(t->name, name) != 0)
		t++;
	assert(t->name);
	return t;
}
