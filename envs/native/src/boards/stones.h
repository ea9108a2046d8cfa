/* Games of two who lay stones by turns, as PettingZoo's classic ones are (Terry et al. 2021, arXiv:2009.14471).
 *
 * A seat sees a mask of what it may do, of zeros where it is not its turn, then of each field two bytes: whether its own
 * stone lies there, and whether the other's does. A win pays 1 and costs the other 1. Who does what is not allowed loses 1,
 * the other nothing, and both have terminated and are truncated, as PettingZoo's TerminateIllegalWrapper has it. */

#ifndef PADDOCK_STONES_H
#define PADDOCK_STONES_H

#include <string.h>

#include "games/game.h"
#include "runtime/native.h"
#include "simd/lanes.h"

#define STONE_SEATS 2
#define MOST_MOVES 16

/* What a game goes on from: rows keep the rest, as they are what the last step left. */
struct stones {
    uint8_t free[MOST_MOVES]; /* which moves are allowed */
    int turn;                 /* the seat whose turn it is */
};

static int two_seats(const void *settings)
{
    (void)settings;
    return STONE_SEATS;
}

/* What a seat does, and what comes of it. */
struct turn {
    int move, field, left; /* where its stone lies, if it is allowed; left: whether the move is still allowed then */
    int won, full, refused;
};

/* Rows are zeros before. */
INLINE void begin_turns(struct stones *stones, int moves, int fields, const struct seat_rows *rows, int lane)
{
    const size_t first = (size_t)lane * STONE_SEATS;
    *stones = (struct stones){0};
    memset(stones->free, 1, moves);
    rows->alive[first] = rows->alive[first + 1] = rows->acts[first] = 1;
    memset(rows->observation + first * (moves + 2 * fields), 1, moves);
}

/* Enter a turn: of rows what changes by it. */
INLINE void take_turn(
    struct stones *stones, int moves, int fields, const struct seat_rows *rows, int lane, const struct turn *taken
)
{
    const size_t first = (size_t)lane * STONE_SEATS;
    const int turn = stones->turn, row = moves + 2 * fields;
    unsigned char *own = rows->observation + (first + turn) * row, *others = rows->observation + (first + 1 - turn) * row;
    stones->turn = taken->refused ? 0 : 1 - turn; /* who would take leave first */
    rows->acts[first + turn] = 0, rows->acts[first + stones->turn] = 1;
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
    rows->reward[first + turn] = taken->won - taken->refused, rows->reward[first + 1 - turn] = -taken->won;
    rows->terminated[first] = rows->terminated[first + 1] = 1;
    rows->truncated[first] = rows->truncated[first + 1] = (uint8_t)taken->refused;
}

#endif
