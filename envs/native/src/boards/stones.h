/* Games of two who lay stones by turns, as PettingZoo's classic ones are (Terry et al. 2021, arXiv:2009.14471).
 *
 * A seat sees a mask of what it may do, of zeros where it is not its player, then of each field two bytes: whether its own
 * stone lies there, and whether the other's does. A win pays 1 and costs the other 1. Who does what is not allowed loses 1,
 * the other nothing, and both have terminated and are truncated, as PettingZoo's TerminateIllegalWrapper has it. */

#ifndef PADDOCK_STONES_H
#define PADDOCK_STONES_H

#include "games/multiagent_game.h"

#define STONE_SEATS 2
#define MAX_MOVES 16

/* What a game goes on from: rows keep the rest, as they are what the last step left. */
struct stones {
    uint8_t free[MAX_MOVES]; /* which moves are allowed */
    int player;                 /* the seat whose player it is */
};

/* What a seat does, and what comes of it. */
struct move {
    int index, field, left; /* where its stone lies, if it is allowed; left: whether the move is still allowed then */
    int won, full, illegal;
};

/* Rows are zeros before. */
static inline void start_stones(struct stones *stones, int moves, const struct agent_rows *rows)
{
    *stones = (struct stones){0};
    memset(stones->free, 1, moves);
    rows->alive[0] = rows->alive[1] = rows->acts[0] = 1;
    memset(rows->observation, 1, moves);
}

/* Enter a player: of rows what changes by it. */
static inline void apply_move(
    struct stones *stones, int moves, int fields, const struct agent_rows *rows, const struct move *move
)
{
    const int player = stones->player, row = moves + 2 * fields;
    unsigned char *own = rows->observation + player * row, *others = rows->observation + (1 - player) * row;
    stones->player = move->illegal ? 0 : 1 - player; /* who would take leave first */
    rows->acts[player] = 0, rows->acts[stones->player] = 1;
    if (!move->illegal) {
        own[moves + 2 * move->field] = others[moves + 2 * move->field + 1] = 1;
        memset(own, 0, moves);
        memcpy(others, stones->free, moves); /* before it is changed, which would have to be waited for */
        stones->free[move->index] = others[move->index] = (uint8_t)move->left;
    } else if (player) {
        memset(own, 0, moves);
        memcpy(others, stones->free, moves);
    }
    if (!(move->won | move->full | move->illegal)) return;
    rows->reward[player] = move->won - move->illegal, rows->reward[1 - player] = -move->won;
    rows->terminated[0] = rows->terminated[1] = 1;
    rows->truncated[0] = rows->truncated[1] = (uint8_t)move->illegal;
}

#endif
