/* The sanity suite's Squared: envs/sanity/squared.py has the rules. */

#include "games/games.h"

#define DISTANCE (SQUARED_SIDE / 2)
#define RIM (4 * (SQUARED_SIDE - 1)) /* cells */

static int far_of(int x, int y)
{
    const int across = x < 0 ? -x : x, up = y < 0 ? -y : y;
    return across > up ? across : up;
}

static void centre(struct sanity_squared *game) { game->at[0] = game->at[1] = DISTANCE; }

/* Cells of the rim are counted by x, and those of one x by y. */
static void begin_sanity_squared(struct sanity_squared *game, const void *settings, struct generator *generator)
{
    (void)settings;
    const int cell = (int)draw_integer(generator, 0, RIM), sides = cell - SQUARED_SIDE, last = SQUARED_SIDE - 1;
    const int x = sides < 0 ? 0 : sides < 2 * (last - 1) ? 1 + sides / 2 : last;
    const int y = sides < 0 ? cell : sides < 2 * (last - 1) ? sides % 2 * last : sides - 2 * (last - 1);
    *game = (struct sanity_squared){.target = {(uint8_t)x, (uint8_t)y}};
    centre(game);
}

static int play_sanity_squared(
    struct sanity_squared *game, const void *settings, struct generator *generator, int choice, double *reward
)
{
    static const int8_t moves[][2] = {{0, -1}, {0, 1}, {-1, 0}, {1, 0}, {1, -1}, {-1, -1}, {1, 1}, {-1, 1}};
    (void)settings, (void)generator;
    const int x = game->at[0] + moves[choice][0], y = game->at[1] + moves[choice][1];
    *reward = 1 - (double)far_of(x - game->target[0], y - game->target[1]) / DISTANCE;
    game->at[0] = (uint8_t)x, game->at[1] = (uint8_t)y;
    if (far_of(x - DISTANCE, y - DISTANCE) >= DISTANCE) centre(game);
    return ++game->moves == DISTANCE;
}

static void show_sanity_squared(const struct sanity_squared *game, const void *settings, unsigned char *row)
{
    const float one = 1, minus = -1;
    (void)settings;
    memset(row, 0, ROW_SQUARED);
    memcpy(row + sizeof one * (SQUARED_SIDE * game->target[0] + game->target[1]), &one, sizeof one);
    memcpy(row + sizeof one * (SQUARED_SIDE * game->at[0] + game->at[1]), &minus, sizeof minus);
}

static void mend_sanity_squared(struct sanity_squared *game, const void *settings)
{
    (void)settings;
    for (int k = 0; k < 2; k++) {
        if (game->target[k] >= SQUARED_SIDE) game->target[k] = 0;
        if (far_of(game->at[k] - DISTANCE, 0) >= DISTANCE) centre(game);
    }
}

BYTE_GAME(sanity_squared, ROW_SQUARED)
