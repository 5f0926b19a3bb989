/* device_backend.h - the backend over a device (device.h): whole models on a GPU, with the bits of the CPU backend's plain
 * arithmetic.
 *
 * Host code follows no pointer that alloc() gives: it is an address that is reserved and has no memory, and names a place in the
 * device's.  Weights are brought over in the layout that kernels read (lay.h) when they are first named; between rehearse and
 * rehearsed, when a model is opened, its operations name all of them and compute nothing (backend.h).
 *
 * A model that needs an operation without a kernel is refused then, by name: shapes and rules of recurrences that
 * device_recur_serves denies, heads that device_attn_serves denies, and formats of coded weights without a module in lay.c. */
#ifndef BACKEND_DEVICE_DEVICE_BACKEND_H
#define BACKEND_DEVICE_DEVICE_BACKEND_H

#include "backend/backend.h"
#include "backend/device/device.h"

/* The backend over a device, which it takes over and closes with itself. */
struct backend *backend_device_open(struct device *dev);

#endif
