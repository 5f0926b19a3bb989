/* choices.h - which level's arithmetic an operation takes on which processor.
 *
 * Results depend on it to the bit, so it follows from the processor's model alone and never from a race at start.
 * Where two ways give the same bits, a trial may choose (trial.h). */
#ifndef QUANT_CHOICES_H
#define QUANT_CHOICES_H

#include "base/cpu.h"

struct choices {
	enum cpu_level level;     /* of all operations except those below */
	enum cpu_level attention; /* the level of attention, and of what writes and reads rows of the cache */
};

/* Every operation at that level, as --cpu asks for. */
struct choices choices_all(enum cpu_level level);
/* The levels that are fastest on that processor, of which `best` is the highest.  The table in choices.c has the
 * measurements. */
struct choices choices_of(const struct cpu_processor *p, enum cpu_level best);

#endif
