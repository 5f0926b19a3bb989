/* load_device.h - the backend of a session: the processor, or a device (--device). */
#ifndef HOST_LOAD_DEVICE_H
#define HOST_LOAD_DEVICE_H

#include <stddef.h>

#include "base/err.h"

struct buf;
struct host_opts;
struct session;

/* The part of a model that a device computes: all, all but the mixtures of experts, or a number of first layers. */
enum { DEVICE_ALL = 0, DEVICE_NO_EXPERTS = -1 };

/* Bytes that weights take on a device, at most: a copy in its layout is up to an eighth larger than what is stored. */
static inline size_t device_copy_bytes(size_t stored)
{
	return stored / 8 * 9;
}

/* Opens the session's backends, whose model is bound: be for the model, cpu for what stays on the processor.  "auto" takes the
 * first GPU that has kernels for the model, and memory for all of it or for a part that helps (divide.h), and the log says what was
 * taken and why; "NAME,LAYERS" takes a device for the first layers alone, "NAME,experts" for all but the mixtures of experts,
 * "NAME,auto" for what "auto" would; ",memory=SIZE" limits what is planned of its memory.  A device that was named and cannot be
 * used is an error: E_ARG, E_MISSING, E_UNSUPPORTED, E_FULL. */
int device_open(struct session *s, const struct host_opts *o, struct err *err);
/* Closes what was opened to look at a device, once the model is attached; before the backends are closed. */
void device_settled(struct session *s);
void device_close(struct session *s);

/* The devices of this machine, a line each, all but the first after `indent`, and what is missing where there is a card without
 * its driver's library.  Drivers are only opened where the kernel shows a card. */
void device_describe(struct buf *out, const char *indent);

#endif
