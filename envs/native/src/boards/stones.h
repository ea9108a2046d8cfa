/* Games of two who lay stones by turns, as PettingZoo's classic ones are (Terry et al. 2021, arXiv:2009.14471).
 *
 * A seat sees a mask of what it may do, of zeros where it is not its turn, then of each field two bytes: whether its own
 * stone lies there, and whether the other's does. A win pays 1 and costs the other 1. Who does what is not allowed loses 1,
 * the other nothing, and both have terminated and are truncated, as PettingZoo's TerminateIllegalWrapper has it. */

#ifndef PADDOCK_STONES_H
#define PADDOCK_STONES_H

#include "games/world.h"

#define STONE_SEATS 2
#define MOST_MOVES 16

/* What a game goes on from: rows keep the rest, as they are what the last step left. */
struct stones {
    uint8_t free[MOST_MOVES]; /* which moves are allowed */
    int turn;                 /* the seat whose turn it is */
};

/* What a seat does, and what comes of it. */
struct turn {
    int move, field, left; /* where its stone lies, if it is allowed; left: whether the move is still allowed then */
    int won, full, refused;
};

/* Rows are zeros before. */
static inline void begin_turns(struct stones *stones, int moves, const struct seat_rows *rows)
{
    *stones = (struct stones){0};
    memset(stones->free, 1, moves);
    rows->alive[0] = rows->alive[1] = rows->acts[0] = 1;
    memset(rows->observation, 1, moves);
}

/* Enter a turn: of rows what changes by it. */
static inline void take_turn(
    struct stones *stones, int moves, int fields, const struct seat_rows *rows, const struct turn *taken
)
{
    const int turn = stones->turn, row = moves + 2 * fields;
    unsigned char *own = rows->observation + turn * row, *others = rows->observation + (1 - turn) * row;
    stones->turn = taken->refused ? 0 : 1 - turn; /* who would take leave first */
    rows->acts[turn] = 0, rows->acts[stones->turn] = 1;
    if (!taken->refused) {
        own[moves + 2 * taken->field] = others[moves + 2 * taken->field + 1] = 1;
        memset(own, 0, moves);
        memcpy(others, stones->free, moves); /* before it is changed, which would have to be waited for */
        stones->free[taken->move] = others[taken->move] = (uint8_t)taken->left;
    } else if (turn) {
        memset(own, 0, moves);
        memcpy(others, stones->free, moves);
    }
    if (!(taken->won | taken->full | taken->refused)) return;
    rows->reward[turn] = taken->won - taken->refused, rows->reward[1 - turn] = -taken->won;
    rows->terminated[0] = rows->terminated[1] = 1;
    rows->truncated[0] = rows->truncated[1] = (uint8_t)taken->refused;
}

#endif
