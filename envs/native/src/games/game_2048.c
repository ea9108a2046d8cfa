/* 2048: envs/games/game_2048.py has the rules. */

#include "games.h"

#define SIDE 4
#define MOST 17 /* power of two of the greatest tile */

/* Of up, right, down and left: the first cell of the first line, from it to the next line's, and along a line. */
static const struct {
    int start, across, along;
} lines[] = {{0, 1, 4}, {3, 4, -1}, {12, 1, -4}, {0, 4, 1}};

static void add_tile(struct game_2048 *game, struct generator *generator)
{
    int empty[SIDE * SIDE], count = 0;
    for (int i = 0; i < SIDE * SIDE; i++) empty[count] = i, count += !game->board[i];
    if (!count) return; /* of what was not saved by this code */
    const int cell = empty[draw_integer(generator, 0, count)];
    game->board[cell] = draw(generator) < 0.1 ? 2 : 1;
}

/* Slide a line to its front; the sum of the tiles that were made. */
static int slide(uint8_t *line, int along)
{
    int made = 0, score = 0, last = 0; /* `last` may still be joined; 0: there is none */
    for (int k = 0; k < SIDE; k++) {
        const int power = line[k * along];
        if (!power) continue;
        line[k * along] = 0;
        if (power == last && power < MOST) {
            line[(made - 1) * along] = (uint8_t)(power + 1);
            score += 1 << (power + 1), last = 0;
        } else
            line[made++ * along] = (uint8_t)power, last = power;
    }
    return score;
}

/* Bit a: whether action a moves a tile: to an empty cell in front of it, or onto an equal one. */
static unsigned legal(const uint8_t *board)
{
    unsigned up = 0, right = 0, down = 0, left = 0;
    for (int i = 0; i < SIDE; i++)
        for (int k = 0; k + 1 < SIDE; k++) {
            const int a = board[SIDE * i + k], b = board[SIDE * i + k + 1];
            const int c = board[SIDE * k + i], d = board[SIDE * (k + 1) + i];
            const int across = a && a == b && a < MOST, along = c && c == d && c < MOST;
            left |= across | (!a && b), right |= across | (a && !b);
            up |= along | (!c && d), down |= along | (c && !d);
        }
    return up | right << 1 | down << 2 | left << 3;
}

static void begin_game_2048(struct game_2048 *game, const void *settings, struct generator *generator)
{
    (void)settings;
    memset(game, 0, sizeof *game);
    for (int k = 0; k < 2; k++) add_tile(game, generator);
}

static int play_game_2048(
    struct game_2048 *game, const void *settings, struct generator *generator, int choice, double *reward
)
{
    (void)settings;
    struct game_2048 before = *game;
    int score = 0;
    for (int i = 0; i < SIDE; i++)
        score += slide(game->board + lines[choice].start + i * lines[choice].across, lines[choice].along);
    if (memcmp(&before, game, sizeof before)) add_tile(game, generator);
    *reward = score;
    return !legal(game->board);
}

static void show_game_2048(const struct game_2048 *game, const void *settings, unsigned char *row)
{
    (void)settings;
    const unsigned moves = legal(game->board);
    for (int a = 0; a < 4; a++) row[a] = moves >> a & 1;
    memcpy(row + 4, game->board, sizeof game->board);
}

static void mend_game_2048(struct game_2048 *game, const void *settings)
{
    (void)settings;
    for (int i = 0; i < SIDE * SIDE; i++)
        if (game->board[i] > MOST) game->board[i] = MOST;
}

BYTE_GAME(game_2048, ROW_2048)
