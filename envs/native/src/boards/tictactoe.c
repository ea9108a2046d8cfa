/* Tic-tac-toe, bit-identical to PettingZoo's tictactoe_v3. */

#include "stones.h"

#define T3_FIELDS 9
#define T3_BOARD ((1 << T3_FIELDS) - 1)

struct tictactoe {
    uint16_t placed[STONE_PLAYERS]; /* bit i: field i */
    struct stones stones;
};

struct saved_tictactoe {
    uint16_t placed[STONE_PLAYERS], player, nothing;
};

static inline int three_in_line(unsigned placed)
{
    static const uint16_t lines[] = {0007, 0070, 0700, 0111, 0222, 0444, 0421, 0124};
    int found = 0;
    for (int k = 0; k < 8; k++) found |= (placed & lines[k]) == lines[k];
    return found;
}

static int count_tictactoe(const void *settings) { return (void)settings, STONE_PLAYERS; }
static size_t width_tictactoe(const void *settings) { return (void)settings, 3 * T3_FIELDS; }

static void start_tictactoe(
    struct tictactoe *game, const void *settings, struct generator *generator, const struct agent_rows *rows
)
{
    (void)settings, (void)generator;
    game->placed[0] = game->placed[1] = 0;
    start_stones(&game->stones, T3_FIELDS, rows);
}

static void step_tictactoe(
    struct tictactoe *game, const void *settings, struct generator *generator, const int64_t *choice,
    const struct agent_rows *rows
)
{
    (void)settings, (void)generator;
    const int player = game->stones.player;
    const uint64_t field = (uint64_t)choice[player];
    struct move move = {.index = (int)field, .illegal = field >= T3_FIELDS || !game->stones.free[field]};
    if (!move.illegal) {
        game->placed[player] |= (uint16_t)(1 << field);
        move.field = move.index;
        move.won = three_in_line(game->placed[player]), move.full = (game->placed[0] | game->placed[1]) == T3_BOARD;
    }
    apply_move(&game->stones, T3_FIELDS, T3_FIELDS, rows, &move);
}

static void save_tictactoe(const void *group, int i, void *saved)
{
    const struct tictactoe *game = (const struct tictactoe *)group + i;
    const struct saved_tictactoe own = {{game->placed[0], game->placed[1]}, (uint16_t)game->stones.player, 0};
    memcpy(saved, &own, sizeof own);
}

static void load_tictactoe(void *group, const void *settings, int i, const void *saved)
{
    (void)settings;
    struct tictactoe *game = (struct tictactoe *)group + i;
    struct saved_tictactoe state;
    memcpy(&state, saved, sizeof state);
    *game = (struct tictactoe){.placed = {state.placed[0], state.placed[1]}, .stones.player = state.player};
    for (int field = 0; field < T3_FIELDS; field++)
        game->stones.free[field] = !((state.placed[0] | state.placed[1]) >> field & 1);
}

MULTIAGENT_GAME(
    tictactoe, .choices = T3_FIELDS, .row_bytes = 3 * T3_FIELDS, .deterministic = 1,
    .saved_bytes = sizeof(struct saved_tictactoe), .save = save_tictactoe, .load = load_tictactoe
)
