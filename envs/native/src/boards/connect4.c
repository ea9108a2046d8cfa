/* Connect Four, bit-identical to PettingZoo's connect_four_v3. */

#include "stones.h"

enum { C4_COLUMNS = 7, C4_ROWS = 6, C4_FIELDS = C4_COLUMNS * C4_ROWS, C4_HIGH = C4_ROWS + 1 };

/* Stones as bits, column by column from the left, seven bits per column from the bottom up; the top bit stays 0. */
struct connect4 {
    uint64_t placed[STONE_PLAYERS];
    struct stones stones;
};

struct saved_connect4 {
    uint64_t placed[STONE_PLAYERS];
    int64_t player;
};

#define C4_BOTTOM 0x0000040810204081u /* of all columns */
#define C4_BOARD (C4_BOTTOM * ((1 << C4_ROWS) - 1))

static inline int four_in_line(uint64_t placed)
{
    static const int ways[] = {1, C4_HIGH, C4_HIGH - 1, C4_HIGH + 1};
    uint64_t found = 0;
    for (int k = 0; k < 4; k++) {
        const uint64_t pairs = placed & placed >> ways[k];
        found |= pairs & pairs >> 2 * ways[k];
    }
    return found != 0;
}

static int count_connect4(const void *settings) { return (void)settings, STONE_PLAYERS; }
static size_t width_connect4(const void *settings) { return (void)settings, C4_COLUMNS + 2 * C4_FIELDS; }

static void start_connect4(
    struct connect4 *game, const void *settings, struct generator *generator, const struct agent_rows *rows
)
{
    (void)settings, (void)generator;
    game->placed[0] = game->placed[1] = 0;
    start_stones(&game->stones, C4_COLUMNS, rows);
}

static void step_connect4(
    struct connect4 *game, const void *settings, struct generator *generator, const int64_t *choice,
    const struct agent_rows *rows
)
{
    (void)settings, (void)generator;
    const int player = game->stones.player;
    const uint64_t column = (uint64_t)choice[player], all = game->placed[0] | game->placed[1];
    struct move move = {.index = (int)column, .illegal = column >= C4_COLUMNS || !game->stones.free[column]};
    if (!move.illegal) {
        const int lowest = move.index * C4_HIGH;
        const uint64_t own = (all + (1ull << lowest)) & ~all & 0x3full << lowest; /* the carry stops at a free cell */
        const int up = __builtin_ctzll(own) - lowest;
        game->placed[player] |= own;
        move.field = (C4_ROWS - 1 - up) * C4_COLUMNS + move.index, move.left = up < C4_ROWS - 1;
        move.won = four_in_line(game->placed[player]), move.full = (all | own) == C4_BOARD;
    }
    apply_move(&game->stones, C4_COLUMNS, C4_FIELDS, rows, &move);
}

static void save_connect4(const void *group, int i, void *saved)
{
    const struct connect4 *game = (const struct connect4 *)group + i;
    const struct saved_connect4 own = {{game->placed[0], game->placed[1]}, game->stones.player};
    memcpy(saved, &own, sizeof own);
}

static void load_connect4(void *group, const void *settings, int i, const void *saved)
{
    (void)settings;
    struct connect4 *game = (struct connect4 *)group + i;
    struct saved_connect4 state;
    memcpy(&state, saved, sizeof state);
    *game = (struct connect4){.placed = {state.placed[0], state.placed[1]}, .stones.player = (int)state.player};
    for (int column = 0; column < C4_COLUMNS; column++)
        game->stones.free[column] = !((state.placed[0] | state.placed[1]) >> (column * C4_HIGH + C4_ROWS - 1) & 1);
}

MULTIAGENT_GAME(
    connect4, .choices = C4_COLUMNS, .row_bytes = C4_COLUMNS + 2 * C4_FIELDS, .deterministic = 1,
    .saved_bytes = sizeof(struct saved_connect4), .save = save_connect4, .load = load_connect4
)
