/* containers.c - every container there is.  To add one: its file, and its line here. */
#include "store/container.h"

extern const struct container_ops folder_container, gguf_container;

const struct container_ops *const containers[] = {
	&folder_container,
	&gguf_container,
	NULL,
};
