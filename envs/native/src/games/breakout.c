/* Breakout: envs/games/breakout.py has the rules. Whole numbers, so that no rounding is in them. */

#include "games.h"
#include "serve.h"

#define WIDTH 192
#define HEIGHT 160
#define COLUMNS 12
#define ROWS (BREAKOUT_BRICKS / COLUMNS)
#define TOP 24
#define PADDLE 32
#define PLANE 152
#define SLOW 4
#define FAST 6
#define LIVES 5

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
        .paddle = (WIDTH - PADDLE) / 2, .lives = LIVES, .left = BREAKOUT_BRICKS, .word = draw_word(generator),
    };
    memset(game->bricks, 1, sizeof game->bricks);
    serve(game);
}

/* Take the brick there away, if there is one; its points. */
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

static void mend_breakout(struct breakout *game, const void *settings)
{
    (void)settings;
    game->x = bounded(game->x, 0, WIDTH - 1), game->y = bounded(game->y, 0, HEIGHT - 1);
    game->vx = bounded(game->vx, -5, 5), game->vy = bounded(game->vy, -FAST, FAST);
    game->speed = bounded(game->speed, SLOW, FAST), game->lives = bounded(game->lives, 1, LIVES);
    game->paddle = bounded(game->paddle, 0, WIDTH - PADDLE), game->left = 0;
    for (int k = 0; k < BREAKOUT_BRICKS; k++) game->left += game->bricks[k] = game->bricks[k] != 0;
}

BYTE_GAME(breakout, ROW_BREAKOUT)
