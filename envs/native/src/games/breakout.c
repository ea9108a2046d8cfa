/* Breakout, with the rules of envs/games/breakout.py, in integer arithmetic. */

#include "paddle.h"

#define WIDTH 192
#define HEIGHT 160
#define COLUMNS 12
#define ROWS 6
#define BRICKS (ROWS * COLUMNS)
#define TOP 24
#define PADDLE 32
#define PLANE 152
#define SLOW 4
#define FAST 6
#define LIVES 5

struct breakout {
    int32_t x, y, vx, vy, speed, paddle, lives, left; /* units; lives: balls left; left: bricks left */
    uint32_t word;
    uint8_t bricks[BRICKS];
};

static void serve(struct breakout *game)
{
    game->word = next_word(game->word);
    game->x = 32 + (int32_t)(game->word >> 25), game->y = HEIGHT / 2;
    game->vx = serve_slopes[game->word >> 22 & 7], game->vy = SLOW, game->speed = SLOW;
}

static void begin_breakout(struct breakout *game, const void *settings, struct generator *generator)
{
    (void)settings;
    *game = (struct breakout){
        .paddle = (WIDTH - PADDLE) / 2, .lives = LIVES, .left = BRICKS, .word = draw_word(generator),
    };
    memset(game->bricks, 1, sizeof game->bricks);
    serve(game);
}

/* Remove the brick at a position, if any, and return its points. */
static int break_at(struct breakout *game, int x, int y)
{
    static const int8_t points[ROWS] = {7, 7, 4, 4, 1, 1};
    if (y < TOP || y >= TOP + 8 * ROWS) return 0;
    const int row = (y - TOP) / 8;
    uint8_t *brick = game->bricks + COLUMNS * row + x / 16;
    if (!*brick) return 0;
    *brick = 0, game->left--;
    if (row < 2) game->speed = FAST;
    return points[row];
}

static int play_breakout(
    struct breakout *game, const void *settings, struct generator *generator, int choice, double *reward
)
{
    (void)settings, (void)generator;
    game->paddle = bounded(game->paddle + (choice == 2) * 6 - (choice == 1) * 6, 0, WIDTH - PADDLE);
    const int y = game->y + game->vy, hit = game->x - game->paddle;
    int paid = break_at(game, game->x, y);
    if (paid || y < 0) game->vy = -game->vy;
    else if (game->y < PLANE && y >= PLANE && hit >= 0 && hit < PADDLE) {
        game->y = PLANE - 1, game->vy = -game->speed;
        game->vx = serve_slopes[hit * 8 / PADDLE];
    } else
        game->y = y;
    const int x = game->x + game->vx;
    if (x < 0 || x >= WIDTH) game->vx = -game->vx;
    else {
        const int points = break_at(game, x, game->y);
        paid += points;
        if (points) game->vx = -game->vx;
        else game->x = x;
    }
    if (game->y >= HEIGHT) game->lives--, serve(game);
    *reward = paid;
    return !game->lives || !game->left;
}

static void show_breakout(const struct breakout *game, const void *settings, unsigned char *row)
{
    (void)settings;
    const int32_t shown[6] = {
        game->x - WIDTH / 2, game->y - HEIGHT / 2, 8 * game->vx, 8 * game->vy, game->paddle + PADDLE / 2 - WIDTH / 2,
        8 * game->lives,
    };
    float motion[6];
    for (int k = 0; k < 6; k++) motion[k] = (float)shown[k] * (1 / 64.0f);
    memcpy(row, game->bricks, sizeof game->bricks);
    memcpy(row + sizeof game->bricks, motion, sizeof motion);
}

GAME(breakout, .choices = 3, .row_bytes = BRICKS + 6 * sizeof(float))
