/* 2048, with the rules of envs/games/game_2048.py. */

#include "game.h"

#define SIDE 4
#define MAX_POWER 17 /* exponent of the highest tile */

struct game_2048 {
    uint8_t board[SIDE * SIDE]; /* powers of two; 0: empty */
    uint8_t moves[4];           /* mask of actions that move a tile */
};

/* For up, right, down and left: first cell of the first line, stride from line to line, stride along a line. */
static const struct {
    int start, across, along;
} lines[] = {{0, 1, 4}, {3, 4, -1}, {12, 1, -4}, {0, 4, 1}};

static void add_tile(struct game_2048 *game, struct generator *generator)
{
    int empty[SIDE * SIDE], count = 0;
    for (int i = 0; i < SIDE * SIDE; i++) empty[count] = i, count += !game->board[i];
    const int cell = empty[draw_integer(generator, 0, count)];
    game->board[cell] = draw(generator) < 0.1 ? 2 : 1;
}

/* Slide a line to its front; return the sum of the merged tiles. */
static int slide(uint8_t *line, int along)
{
    int made = 0, score = 0, last = 0; /* `last`: tile that may still merge, or 0 */
    for (int k = 0; k < SIDE; k++) {
        const int power = line[k * along];
        if (!power) continue;
        line[k * along] = 0;
        if (power == last && power < MAX_POWER) {
            line[(made - 1) * along] = (uint8_t)(power + 1);
            score += 1 << (power + 1), last = 0;
        } else
            line[made++ * along] = (uint8_t)power, last = power;
    }
    return score;
}

/* Set the mask of actions that move a tile, to an empty cell or onto an equal one; return whether any does. */
static int find_moves(struct game_2048 *game)
{
    const uint8_t *board = game->board;
    unsigned up = 0, right = 0, down = 0, left = 0;
    for (int i = 0; i < SIDE; i++)
        for (int k = 0; k + 1 < SIDE; k++) {
            const unsigned a = board[SIDE * i + k], b = board[SIDE * i + k + 1];
            const unsigned c = board[SIDE * k + i], d = board[SIDE * (k + 1) + i];
            const unsigned across = (a == b) & (a - 1 < MAX_POWER - 1), along = (c == d) & (c - 1 < MAX_POWER - 1);
            left |= across | (!a & (b > 0)), right |= across | ((a > 0) & !b);
            up |= along | (!c & (d > 0)), down |= along | ((c > 0) & !d);
        }
    game->moves[0] = (uint8_t)up, game->moves[1] = (uint8_t)right;
    game->moves[2] = (uint8_t)down, game->moves[3] = (uint8_t)left;
    return (int)(up | right | down | left);
}

static void begin_game_2048(struct game_2048 *game, const void *settings, struct generator *generator)
{
    (void)settings;
    memset(game, 0, sizeof *game);
    for (int k = 0; k < 2; k++) add_tile(game, generator);
    find_moves(game);
}

static int play_game_2048(
    struct game_2048 *game, const void *settings, struct generator *generator, int choice, double *reward
)
{
    (void)settings;
    int score = 0;
    if (game->moves[choice]) {
        for (int i = 0; i < SIDE; i++)
            score += slide(game->board + lines[choice].start + i * lines[choice].across, lines[choice].along);
        add_tile(game, generator);
    }
    *reward = score;
    return !find_moves(game);
}

static void show_game_2048(const struct game_2048 *game, const void *settings, unsigned char *row)
{
    (void)settings;
    memcpy(row, game->moves, sizeof game->moves);
    memcpy(row + sizeof game->moves, game->board, sizeof game->board);
}

GAME(game_2048, .choices = 4, .row_bytes = sizeof(struct game_2048))
