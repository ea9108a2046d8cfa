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
#define MOST_FIELDS 42

/* What two seats see of one game: moves are the first so many bytes of the mask. */
struct stones {
    uint8_t free[MOST_MOVES];
    uint8_t fields[STONE_SEATS][2 * MOST_FIELDS + 4]; /* of each seat */
    int turn;                                       /* the seat whose turn it is */
};

static int two_seats(const void *settings)
{
    (void)settings;
    return STONE_SEATS;
}

INLINE void lay(struct stones *stones, int seat, int field)
{
    stones->fields[seat][2 * field] = 1;
    stones->fields[1 - seat][2 * field + 1] = 1;
}

INLINE void show(const struct stones *stones, int moves, int fields, unsigned char *rows)
{
    const int row = moves + 2 * fields;
    for (int seat = 0; seat < STONE_SEATS; seat++) {
        unsigned char *own = rows + seat * row;
        if (seat == stones->turn) memcpy(own, stones->free, moves);
        else memset(own, 0, moves);
        memcpy(own + moves, stones->fields[seat], 2 * fields);
    }
}

/* What a seat does, and what comes of it. */
struct turn {
    int move, field, left; /* where its stone lies, if it is allowed; left: whether the move is still allowed then */
    int won, full, refused;
};

INLINE void begin_turns(struct stones *stones, int moves, int fields, const struct seat_rows *rows, int lane)
{
    const size_t first = (size_t)lane * STONE_SEATS;
    *stones = (struct stones){0};
    memset(stones->free, 1, moves);
    rows->alive[first] = rows->alive[first + 1] = rows->acts[first] = 1;
    show(stones, moves, fields, rows->observation + first * (moves + 2 * fields));
}

/* Enter a turn. Rows are written as they were and then changed, here and there: what was just written of a cell would have
 * to be waited for. */
INLINE void take_turn(
    struct stones *stones, int moves, int fields, const struct seat_rows *rows, int lane, const struct turn *taken
)
{
    const size_t first = (size_t)lane * STONE_SEATS;
    const int turn = stones->turn, row = moves + 2 * fields;
    unsigned char *seen = rows->observation + first * row;
    stones->turn = taken->refused ? 0 : 1 - turn; /* who would take leave first */
    rows->acts[first + turn] = 0, rows->acts[first + stones->turn] = 1;
    show(stones, moves, fields, seen);
    if (!taken->refused) {
        lay(stones, turn, taken->field);
        seen[turn * row + moves + 2 * taken->field] = 1;
        seen[(1 - turn) * row + moves + 2 * taken->field + 1] = 1;
        stones->free[taken->move] = seen[(1 - turn) * row + taken->move] = (uint8_t)taken->left;
    }
    if (!(taken->won | taken->full | taken->refused)) return;
    rows->reward[first + turn] = taken->won - taken->refused, rows->reward[first + 1 - turn] = -taken->won;
    rows->terminated[first] = rows->terminated[first + 1] = 1;
    rows->truncated[first] = rows->truncated[first + 1] = (uint8_t)taken->refused;
}

#endif
