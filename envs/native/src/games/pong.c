/* Pong, with the rules of envs/games/pong.py, in integer arithmetic. */

#include "game.h"

#define WIDTH 192
#define HEIGHT 128
#define PADDLE 24
#define POINTS 21
#define UNIT (1 / 64.0f)

static const int8_t slopes[8] = {-5, -4, -2, -1, 1, 2, 4, 5}; /* by the eighth of the paddle that is hit, and of serves */

struct pong {
    int32_t x, y, vx, vy, hits;
    int32_t paddle[2], points[2]; /* player, opponent */
    uint32_t word;
};

/* Linear congruential generator of Numerical Recipes; its high bits are the better ones. */
static inline uint32_t next_word(uint32_t word) { return word * 1664525u + 1013904223u; }

/* Serve towards the player (`side` 1) or the opponent (-1). */
static inline void serve_pong(struct pong *game, int side)
{
    game->word = next_word(game->word);
    game->x = WIDTH / 2, game->y = HEIGHT / 4 + (int32_t)(game->word >> 26);
    game->vx = side * 4, game->vy = slopes[game->word >> 23 & 7], game->hits = 0;
}

static void begin_pong(struct pong *game, const void *settings, struct generator *generator)
{
    (void)settings;
    const int middle = (HEIGHT - PADDLE) / 2;
    *game = (struct pong){.paddle = {middle, middle}, .word = (uint32_t)draw_integer(generator, 0, (int64_t)1 << 32)};
    serve_pong(game, game->word >> 22 & 1 ? 1 : -1);
}

static int play_pong(struct pong *game, const void *settings, struct generator *generator, int choice, double *reward)
{
    static const int plane[2] = {184, 8};
    (void)settings, (void)generator;
    const int ahead = game->y - PADDLE / 2 - game->paddle[1], last = HEIGHT - PADDLE;
    game->paddle[0] = bounded(game->paddle[0] + (choice == 2) * 4 - (choice == 1) * 4, 0, last);
    if (game->vx < 0) game->paddle[1] = bounded(game->paddle[1] + bounded(ahead, -3, 3), 0, last);
    game->x += game->vx, game->y += game->vy;
    if (game->y < 0) game->y = -game->y, game->vy = -game->vy;
    if (game->y >= HEIGHT) game->y = 2 * (HEIGHT - 1) - game->y, game->vy = -game->vy;
    *reward = 0;
    if (game->x > plane[1] && game->x < plane[0]) return 0;
    const int side = game->x < plane[0], hit = game->y - game->paddle[side];
    if (hit >= 0 && hit < PADDLE) {
        const int speed = bounded(4 + ++game->hits / 4, 4, 8);
        game->x = plane[side], game->vx = side ? speed : -speed;
        game->vy = slopes[hit * 8 / PADDLE];
        return 0;
    }
    const int points = ++game->points[1 - side];
    serve_pong(game, side ? 1 : -1);
    *reward = side ? 1 : -1;
    return points == POINTS;
}

static void show_pong(const struct pong *game, const void *settings, float *seen)
{
    (void)settings;
    const int middle = PADDLE / 2 - HEIGHT / 2;
    const int32_t shown[8] = {
        game->x - WIDTH / 2, game->y - HEIGHT / 2, 8 * game->vx, 8 * game->vy,
        game->paddle[0] + middle, game->paddle[1] + middle, 2 * game->points[0], 2 * game->points[1],
    };
    for (int k = 0; k < 8; k++) seen[k] = (float)shown[k] * UNIT;
}

GAME(pong, .choices = 3, .observations = 8, .row_bytes = 8 * sizeof(float))
