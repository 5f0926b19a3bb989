/* grids.h - inside quant/gguf: tables of points, see grids.c. */
#ifndef QUANT_GRIDS_H
#define QUANT_GRIDS_H

#include <stdint.h>

extern const uint16_t grid_iq2xxs[256], grid_iq2xs[512], grid_iq2s[1024]; /* of 8, 2 bits each: 8, 25, 43 */
extern const uint16_t grid_iq3xxs[256];                                   /* of 4, 3 bits each: 4, 12 ... 52, 62 */
extern const uint16_t grid_iq3s[512];                                     /* of 4, 3 bits each: 1, 3 ... 15 */
extern const uint16_t grid_iq1s[2048];                                    /* of 8, 2 bits each: -1, 0, 1 */

#endif
