/* Connect Four with the numbers of PettingZoo's connect_four_v3. */

#ifndef PADDOCK_CONNECT4_H
#define PADDOCK_CONNECT4_H

#include "stones.h"

enum { C4_COLUMNS = 7, C4_ROWS = 6, C4_FIELDS = C4_COLUMNS * C4_ROWS, C4_HIGH = C4_ROWS + 1 };

/* Stones as bits, column by column from the left, of each seven from the bottom up: the last one is never laid. */
struct connect4 {
    uint64_t laid[STONE_SEATS];
    struct stones stones;
};

struct saved_connect4 {
    uint64_t laid[STONE_SEATS];
    int64_t turn;
};

#define C4_BOTTOM 0x0000040810204081u /* of all columns */
#define C4_BOARD (C4_BOTTOM * ((1 << C4_ROWS) - 1))

INLINE int four_in_line(uint64_t laid)
{
    static const int ways[] = {1, C4_HIGH, C4_HIGH - 1, C4_HIGH + 1};
    uint64_t found = 0;
    for (int k = 0; k < 4; k++) {
        const uint64_t pairs = laid & laid >> ways[k];
        found |= pairs & pairs >> 2 * ways[k];
    }
    return found != 0;
}

static void start_connect4(
    void *group, const void *settings, struct generator *generators, unsigned mask, const struct seat_rows *rows
)
{
    (void)settings, (void)generators;
    struct connect4 *games = group;
    for (; mask; mask &= mask - 1) {
        const int lane = __builtin_ctz(mask);
        games[lane].laid[0] = games[lane].laid[1] = 0;
        begin_turns(&games[lane].stones, C4_COLUMNS, C4_FIELDS, rows, lane);
    }
}

static void step_connect4(
    void *group, const void *settings, struct generator *generators, unsigned mask, const int64_t *choice,
    const struct seat_rows *rows
)
{
    (void)settings, (void)generators;
    for (; mask; mask &= mask - 1) {
        const int lane = __builtin_ctz(mask);
        struct connect4 *game = (struct connect4 *)group + lane;
        const int turn = game->stones.turn;
        const uint64_t column = (uint64_t)choice[lane * STONE_SEATS + turn], all = game->laid[0] | game->laid[1];
        struct turn taken = {.move = (int)column, .refused = column >= C4_COLUMNS || !game->stones.free[column]};
        if (!taken.refused) {
            const int lowest = taken.move * C4_HIGH;
            const uint64_t own = (all + (1ull << lowest)) & ~all & 0x3full << lowest; /* the carry stops at what is free */
            const int up = __builtin_ctzll(own) - lowest;
            game->laid[turn] |= own;
            taken.field = (C4_ROWS - 1 - up) * C4_COLUMNS + taken.move, taken.left = up < C4_ROWS - 1;
            taken.won = four_in_line(game->laid[turn]), taken.full = (all | own) == C4_BOARD;
        }
        take_turn(&game->stones, C4_COLUMNS, C4_FIELDS, rows, lane, &taken);
    }
}

static void save_connect4(const void *group, int lane, void *saved)
{
    const struct connect4 *game = (const struct connect4 *)group + lane;
    const struct saved_connect4 own = {{game->laid[0], game->laid[1]}, game->stones.turn};
    memcpy(saved, &own, sizeof own);
}

/* What was not saved by this code is brought to a board that there could be, whatever the rows are: columns filled from the
 * bottom. */
static void load_connect4(void *group, const void *settings, int lane, const void *saved)
{
    (void)settings;
    struct connect4 *game = (struct connect4 *)group + lane;
    struct saved_connect4 was;
    memcpy(&was, saved, sizeof was);
    *game = (struct connect4){.stones.turn = (int)(was.turn & 1)};
    for (int column = 0; column < C4_COLUMNS; column++) {
        int up = 0;
        for (; up < C4_ROWS; up++) {
            const uint64_t bit = 1ull << (column * C4_HIGH + up);
            const int seat = was.laid[0] & bit ? 0 : 1;
            if (!(was.laid[seat] & bit)) break;
            game->laid[seat] |= bit;
        }
        game->stones.free[column] = up < C4_ROWS;
    }
}

static const struct task connect4_task = {
    .name = "connect4",
    .kind = KIND_BOARD,
    .lanes = LANES,
    .actions = 1,
    .choices = C4_COLUMNS,
    .row_bytes = C4_COLUMNS + 2 * C4_FIELDS,
    .group_bytes = LANES * sizeof(struct connect4),
    .saved_bytes = sizeof(struct saved_connect4),
    .seats = two_seats,
    .drawless = 1,
    .start_worlds = start_connect4,
    .step_worlds = step_connect4,
    .save = save_connect4,
    .load = load_connect4,
};

#endif
