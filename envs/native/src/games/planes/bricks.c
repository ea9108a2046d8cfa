/* Bricks: envs/games/bricks.py has the rules. */

#include "planes.h"

#define FIRST 1 /* row of the wall */
#define ROWS 3
#define BOTTOM (SIDE - 1)

static void stand_again(struct bricks *game)
{
    memset(game->brick, 1, sizeof game->brick);
    game->left = ROWS * SIDE;
}

static void begin_bricks(struct bricks *game, const void *settings, struct generator *generator)
{
    (void)settings;
    const int right = (int)draw_integer(generator, 0, 2);
    *game = (struct bricks){
        .x = (int8_t)(right * (SIDE - 1)), .y = FIRST + ROWS, .dx = (int8_t)(1 - 2 * right), .dy = 1,
        .paddle = SIDE / 2 - 1,
    };
    game->trail[0] = game->y, game->trail[1] = game->x;
    stand_again(game);
}

static int play_bricks(struct bricks *game, const void *settings, struct generator *generator, int choice, double *reward)
{
    (void)settings, (void)generator;
    game->paddle = (int8_t)bounded(game->paddle + (choice == 2) - (choice == 1), 0, SIDE - 2);
    game->trail[0] = game->y, game->trail[1] = game->x;
    if (game->x + game->dx < 0 || game->x + game->dx >= SIDE) game->dx = (int8_t)-game->dx;
    if (game->y + game->dy < 0) game->dy = (int8_t)-game->dy;
    const int x = game->x + game->dx, y = bounded(game->y + game->dy, 0, BOTTOM); /* whoever steps on after the end */
    *reward = 0;
    if (y >= FIRST && y < FIRST + ROWS && game->brick[SIDE * (y - FIRST) + x]) {
        game->brick[SIDE * (y - FIRST) + x] = 0, game->left--;
        game->dy = (int8_t)-game->dy;
        *reward = 1;
        return 0;
    }
    game->x = (int8_t)x, game->y = (int8_t)y;
    if (y < BOTTOM) return 0;
    if (x < game->paddle || x > game->paddle + 1) return 1;
    game->y = (int8_t)(y - 1), game->dx = (int8_t)(2 * (x - game->paddle) - 1), game->dy = -1;
    if (!game->left) stand_again(game);
    return 0;
}

static void show_bricks(const struct bricks *game, const void *settings, unsigned char *row)
{
    enum { TRAIL, BRICK, PADDLE, BALL };
    (void)settings;
    memset(row, 0, ROW_PLANES(BRICKS_PLANES));
    put(row, BRICKS_PLANES, game->trail[0], game->trail[1], TRAIL);
    for (int k = 0; k < ROWS * SIDE; k++) row[(SIDE * FIRST + k) * BRICKS_PLANES + BRICK] = game->brick[k];
    for (int k = 0; k < 2; k++) put(row, BRICKS_PLANES, BOTTOM, game->paddle + k, PADDLE);
    put(row, BRICKS_PLANES, game->y, game->x, BALL);
}

static void mend_bricks(struct bricks *game, const void *settings)
{
    (void)settings;
    game->x = (int8_t)bounded(game->x, 0, SIDE - 1), game->y = (int8_t)bounded(game->y, 0, BOTTOM);
    game->dx = game->dx < 0 ? -1 : 1, game->dy = game->dy < 0 ? -1 : 1;
    for (int k = 0; k < 2; k++) game->trail[k] = (int8_t)bounded(game->trail[k], 0, SIDE - 1);
    game->paddle = (int8_t)bounded(game->paddle, 0, SIDE - 2), game->left = 0;
    for (int k = 0; k < ROWS * SIDE; k++) {
        game->brick[k] = game->brick[k] != 0;
        game->left = (int8_t)(game->left + game->brick[k]);
    }
}

BYTE_GAME(bricks, ROW_PLANES(BRICKS_PLANES))
