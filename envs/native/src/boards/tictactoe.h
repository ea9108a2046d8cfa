/* Tic-tac-toe with the numbers of PettingZoo's tictactoe_v3. */

#ifndef PADDOCK_TICTACTOE_H
#define PADDOCK_TICTACTOE_H

#include "stones.h"

#define T3_FIELDS 9
#define T3_BOARD ((1 << T3_FIELDS) - 1)

struct tictactoe {
    uint16_t laid[STONE_SEATS]; /* bit i: field i */
    struct stones stones;
};

struct saved_tictactoe {
    uint16_t laid[STONE_SEATS], turn, nothing;
};

INLINE int three_in_line(unsigned laid)
{
    static const uint16_t lines[] = {0007, 0070, 0700, 0111, 0222, 0444, 0421, 0124};
    int found = 0;
    for (int k = 0; k < 8; k++) found |= (laid & lines[k]) == lines[k];
    return found;
}

static void start_tictactoe(
    void *group, const void *settings, struct generator *generators, unsigned mask, const struct seat_rows *rows
)
{
    (void)settings, (void)generators;
    struct tictactoe *games = group;
    for (; mask; mask &= mask - 1) {
        const int lane = __builtin_ctz(mask);
        games[lane].laid[0] = games[lane].laid[1] = 0;
        begin_turns(&games[lane].stones, T3_FIELDS, T3_FIELDS, rows, lane);
    }
}

static void step_tictactoe(
    void *group, const void *settings, struct generator *generators, unsigned mask, const int64_t *choice,
    const struct seat_rows *rows
)
{
    (void)settings, (void)generators;
    for (; mask; mask &= mask - 1) {
        const int lane = __builtin_ctz(mask);
        struct tictactoe *game = (struct tictactoe *)group + lane;
        const int turn = game->stones.turn;
        const uint64_t field = (uint64_t)choice[lane * STONE_SEATS + turn];
        struct turn taken = {.move = (int)field, .refused = field >= T3_FIELDS || !game->stones.free[field]};
        if (!taken.refused) {
            game->laid[turn] |= (uint16_t)(1 << field);
            taken.field = taken.move;
            taken.won = three_in_line(game->laid[turn]), taken.full = (game->laid[0] | game->laid[1]) == T3_BOARD;
        }
        take_turn(&game->stones, T3_FIELDS, T3_FIELDS, rows, lane, &taken);
    }
}

static void save_tictactoe(const void *group, int lane, void *saved)
{
    const struct tictactoe *game = (const struct tictactoe *)group + lane;
    const struct saved_tictactoe own = {{game->laid[0], game->laid[1]}, (uint16_t)game->stones.turn, 0};
    memcpy(saved, &own, sizeof own);
}

/* What was not saved by this code is brought to a board that there could be: one stone in a field. */
static void load_tictactoe(void *group, const void *settings, int lane, const void *saved)
{
    (void)settings;
    struct tictactoe *game = (struct tictactoe *)group + lane;
    struct saved_tictactoe was;
    memcpy(&was, saved, sizeof was);
    *game = (struct tictactoe){.laid = {was.laid[0] & T3_BOARD, was.laid[1] & ~was.laid[0] & T3_BOARD}};
    game->stones.turn = was.turn & 1;
    for (int field = 0; field < T3_FIELDS; field++)
        game->stones.free[field] = !((game->laid[0] | game->laid[1]) >> field & 1);
}

static const struct task tictactoe_task = {
    .name = "tictactoe",
    .kind = KIND_BOARD,
    .lanes = LANES,
    .actions = 1,
    .choices = T3_FIELDS,
    .row_bytes = 3 * T3_FIELDS,
    .group_bytes = LANES * sizeof(struct tictactoe),
    .saved_bytes = sizeof(struct saved_tictactoe),
    .seats = two_seats,
    .drawless = 1,
    .start_worlds = start_tictactoe,
    .step_worlds = step_tictactoe,
    .save = save_tictactoe,
    .load = load_tictactoe,
};

#endif
