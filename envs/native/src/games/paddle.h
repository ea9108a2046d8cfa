/* Shared code of paddle games. Serves come from a generator in the game's state. */

#pragma once

#include "game.h"

static const int8_t serve_slopes[8] = {-5, -4, -2, -1, 1, 2, 4, 5}; /* also by the eighth of the paddle that is hit */

/* Linear congruential generator of Numerical Recipes; its high bits are the better ones. */
static inline uint32_t next_word(uint32_t word) { return word * 1664525u + 1013904223u; }
static inline uint32_t draw_word(struct generator *generator)
{
    return (uint32_t)draw_integer(generator, 0, (int64_t)1 << 32);
}
