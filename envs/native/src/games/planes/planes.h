/* Games on a board of 10 x 10 (envs/games/planes.py): a row of theirs is planes of bits, a byte each, cell by cell. */

#ifndef PADDOCK_PLANES_H
#define PADDOCK_PLANES_H

#include "games/games.h"

#define SIDE PLANE_SIDE

static inline void put(unsigned char *row, int planes, int y, int x, int plane)
{
    row[(SIDE * y + x) * planes + plane] = 1;
}

#endif
