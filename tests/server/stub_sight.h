/* stub_sight.h - a tower for tests of the server: an "image" is the text "PIC 2x3 words#junk", of which what stands before
 * the # is the picture and the rest its encoding.  It has two runs of three rows with a token between.  A sound begins with
 * "HUM" and is the same. */
#ifndef TESTS_SERVER_STUB_SIGHT_H
#define TESTS_SERVER_STUB_SIGHT_H

#include "server/server.h"

enum { STUB_SOUND = 2027, STUB_BREAK = 2025, STUB_IMAGE = 2026 }; /* of weft-tiny's tokens */
extern const struct sight stub_sight;
int stub_sight_read(void); /* images that were read so far */

#endif
