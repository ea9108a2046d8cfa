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

/* Of a board's sides, and of each game's planes. */
#define PLANE_SIDE 10
#define ROW_PLANES(planes) (PLANE_SIDE * PLANE_SIDE * (planes))
#define BRICKS_PLANES 4
#define ROAD_PLANES 7
#define HARVEST_PLANES 4
#define FLEET_PLANES 6
#define DEPTHS_PLANES 10
#define PLANE_LANES (PLANE_SIDE - 2)

struct bricks {
    int8_t x, y, dx, dy, trail[2], paddle, left; /* trail: row and column; left: bricks */
    uint8_t brick[3 * PLANE_SIDE];
};
BYTE_GAME_DECLARED(bricks)

struct road {
    int8_t y, rest;
    int8_t x[PLANE_LANES], pace[PLANE_LANES], ahead[PLANE_LANES], wait[PLANE_LANES];
};
BYTE_GAME_DECLARED(road)

struct harvest {
    int32_t steps;
    int8_t y, x, until;
    int8_t kind[PLANE_LANES], at[PLANE_LANES], ahead[PLANE_LANES]; /* 0 nothing, 1 a beast, 2 fruit */
};
BYTE_GAME_DECLARED(harvest)

struct fleet {
    int8_t x, reload, pause, slowest, ahead, wait, left; /* left: ships */
    uint16_t ships[PLANE_SIDE], shots[PLANE_SIDE], its_shots[PLANE_SIDE]; /* of each row bit x is column x */
};
BYTE_GAME_DECLARED(fleet)

struct depths {
    int32_t steps, level, air;
    int8_t y, x, facing, aboard, until, pause;
    int8_t kind[PLANE_LANES], at[PLANE_LANES], ahead[PLANE_LANES]; /* 0 nothing, 1 a fish, 2 a hunter, 3 a diver */
    int8_t shot[PLANE_LANES], way[PLANE_LANES], its_shot[PLANE_LANES], its_way[PLANE_LANES]; /* way 0: no shot */
};
BYTE_GAME_DECLARED(depths)

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
