/* Tic-tac-toe with the numbers of PettingZoo's tictactoe_v3. */

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

static inline int three_in_line(unsigned laid)
{
    static const uint16_t lines[] = {0007, 0070, 0700, 0111, 0222, 0444, 0421, 0124};
    int found = 0;
    for (int k = 0; k < 8; k++) found |= (laid & lines[k]) == lines[k];
    return found;
}

static int count_tictactoe(const void *settings) { return (void)settings, STONE_SEATS; }
static size_t width_tictactoe(const void *settings) { return (void)settings, 3 * T3_FIELDS; }

static void start_tictactoe(
    struct tictactoe *game, const void *settings, struct generator *generator, const struct seat_rows *rows
)
{
    (void)settings, (void)generator;
    game->laid[0] = game->laid[1] = 0;
    begin_turns(&game->stones, T3_FIELDS, rows);
}

static void step_tictactoe(
    struct tictactoe *game, const void *settings, struct generator *generator, const int64_t *choice,
    const struct seat_rows *rows
)
{
    (void)settings, (void)generator;
    const int turn = game->stones.turn;
    const uint64_t field = (uint64_t)choice[turn];
    struct turn taken = {.move = (int)field, .refused = field >= T3_FIELDS || !game->stones.free[field]};
    if (!taken.refused) {
        game->laid[turn] |= (uint16_t)(1 << field);
        taken.field = taken.move;
        taken.won = three_in_line(game->laid[turn]), taken.full = (game->laid[0] | game->laid[1]) == T3_BOARD;
    }
    take_turn(&game->stones, T3_FIELDS, T3_FIELDS, rows, &taken);
}

static void save_tictactoe(const void *group, int i, void *saved)
{
    const struct tictactoe *game = (const struct tictactoe *)group + i;
    const struct saved_tictactoe own = {{game->laid[0], game->laid[1]}, (uint16_t)game->stones.turn, 0};
    memcpy(saved, &own, sizeof own);
}

static void load_tictactoe(void *group, const void *settings, int i, const void *saved)
{
    (void)settings;
    struct tictactoe *game = (struct tictactoe *)group + i;
    struct saved_tictactoe was;
    memcpy(&was, saved, sizeof was);
    *game = (struct tictactoe){.laid = {was.laid[0], was.laid[1]}, .stones.turn = was.turn};
    for (int field = 0; field < T3_FIELDS; field++)
        game->stones.free[field] = !((was.laid[0] | was.laid[1]) >> field & 1);
}

WORLD(
    tictactoe, .choices = T3_FIELDS, .row_bytes = 3 * T3_FIELDS, .drawless = 1,
    .saved_bytes = sizeof(struct saved_tictactoe), .save = save_tictactoe, .load = load_tictactoe
)
