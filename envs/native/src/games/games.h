/* Our own games of envs/games whose observations are rows of bytes: their states, and how long their rows are. */

#ifndef PADDOCK_GAMES_H
#define PADDOCK_GAMES_H

#include "game.h"

#define ROW_2048 20 /* bytes: of each action whether it moves a tile, then the board row by row */

struct game_2048 {
    uint8_t board[16]; /* powers of two; 0: empty */
    uint8_t moves[4];  /* of each action whether it moves a tile */
};
BYTE_GAME_DECLARED(game_2048)

#define BREAKOUT_BRICKS 72
#define ROW_BREAKOUT (BREAKOUT_BRICKS + 6 * sizeof(float)) /* which bricks there are, then what moves, and balls left */

struct breakout {
    int32_t x, y, vx, vy, speed, paddle, lives, left; /* units; balls and bricks */
    uint32_t word;
    uint8_t bricks[BREAKOUT_BRICKS];
};
BYTE_GAME_DECLARED(breakout)

#define SQUARED_SIDE 7
#define ROW_SQUARED (SQUARED_SIDE * SQUARED_SIDE * sizeof(float))

struct sanity_squared { /* x and y of both */
    uint8_t at[2], target[2], moves;
};
BYTE_GAME_DECLARED(sanity_squared)

#define ROW_NOISY_BANDIT sizeof(float)

struct sanity_noisy_bandit { /* an episode has one step */
    uint8_t nothing;
};
BYTE_GAME_DECLARED(sanity_noisy_bandit)

#endif
