/* speed_models.h - times of whole models (speed_models.c). */
#ifndef TESTS_DEVICE_SPEED_MODELS_H
#define TESTS_DEVICE_SPEED_MODELS_H

#include <stdbool.h>
#include <stdio.h>

#include "model/model.h"
#include "store/store.h"

/* Prints them for the model in a folder on a device of backends.h, or "cpu" with threads, and writes lines to csv, which may be NULL. */
void speed_models(const char *folder, const char *device, int threads, bool small, FILE *csv);

#endif
