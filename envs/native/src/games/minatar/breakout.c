/* MinAtar's Breakout. */

#include "minatar.h"

#define BRICKS 30 /* of rows 1 to 3 */
#define WALL ((1u << BRICKS) - 1)

enum { PADDLE, BALL, TRAIL, BRICK, CHANNELS };

struct breakout {
    uint8_t last_action;
    int8_t x, y, dx, dy, trail_x, trail_y, paddle, inside_wall; /* inside_wall: the ball hit a brick a step ago */
    uint32_t bricks;                                            /* bits by row, then column */
};

static void begin_breakout(struct breakout *game, const void *settings, struct generator *generator)
{
    (void)settings;
    memset(game, 0, sizeof *game);
    game->dx = draw_integer(generator, 0, 2) ? -1 : 1, game->dy = 1;
    game->x = game->trail_x = game->dx < 0 ? SIDE - 1 : 0, game->y = game->trail_y = 3;
    game->paddle = 4, game->bricks = WALL;
}

static int act_breakout(
    struct breakout *game, const struct minatar_settings *rules, struct generator *generator, int action, double *reward
)
{
    (void)rules, (void)generator;
    game->paddle = (int8_t)bounded(game->paddle + (action == RIGHT) - (action == LEFT), 0, SIDE - 1);
    const int from_x = game->trail_x = game->x, from_y = game->trail_y = game->y;
    int x = from_x + game->dx, y = from_y + game->dy, over = 0, hit = 0;
    if (!inside(x)) x = from_x, game->dx = -game->dx;
    const int brick = SIDE * (y - 1) + x;
    if (y < 0) y = 0, game->dy = -game->dy;
    else if (brick >= 0 && brick < BRICKS && game->bricks >> brick & 1) {
        hit = 1;
        if (!game->inside_wall) {
            *reward = 1;
            game->bricks ^= 1u << brick;
            y = from_y, game->dy = -game->dy;
        }
    } else if (y == SIDE - 1) {
        if (!game->bricks) game->bricks = WALL;
        over = game->paddle != from_x && game->paddle != x;
        if (!over) {
            if (game->paddle != from_x) game->dx = -game->dx;
            y = from_y, game->dy = -game->dy;
        }
    }
    game->inside_wall = (int8_t)hit;
    game->x = (int8_t)x, game->y = (int8_t)y;
    return over;
}

static void show_breakout(const struct breakout *game, unsigned char *row)
{
    unsigned char(*cell)[SIDE][CHANNELS] = (void *)row;
    cell[SIDE - 1][game->paddle][PADDLE] = 1;
    cell[game->y][game->x][BALL] = 1;
    cell[game->trail_y][game->trail_x][TRAIL] = 1;
    for (int k = 0; k < BRICKS; k++) cell[1 + k / SIDE][k % SIDE][BRICK] = game->bricks >> k & 1;
}

MINATAR(breakout, CHANNELS, STAY, LEFT, RIGHT)
