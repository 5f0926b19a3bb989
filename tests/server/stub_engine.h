/* stub_engine.h - see stub_engine.c. */
#ifndef STUB_ENGINE_H
#define STUB_ENGINE_H

#include "engine/engine.h"

struct engine *stub_engine_open(const struct tokenizer *tok);

#endif
