/* The tasks of games.h at this width. */

#ifndef PADDOCK_GAME_TASKS_H
#define PADDOCK_GAME_TASKS_H

#include "games.h"

BYTE_GAME_TASK(game_2048, 4, ROW_2048)
BYTE_GAME_TASK(breakout, 3, ROW_BREAKOUT)
BYTE_GAME_TASK(sanity_squared, 8, ROW_SQUARED)
BYTE_GAME_TASK(sanity_noisy_bandit, 10, ROW_NOISY_BANDIT)

#endif
