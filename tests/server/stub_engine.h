/* stub_engine.h - see stub_engine.c. */
#ifndef STUB_ENGINE_H
#define STUB_ENGINE_H

#include "engine/engine.h"

struct engine *stub_engine_open(const struct tokenizer *tok);
/* Before the first request: every one is answered at the pace of "slow". */
void stub_engine_slow(struct engine *e);
/* The same: it remembers all sequences and reports as cached what a perfect prefix
 * store would have; and answers with what stands between the last [[ and ]] of a
 * prompt; odd: in other tokens than the tokenizer would give. */
void stub_engine_script(struct engine *e, bool odd);

#endif
