/* MinAtar's Freeway. */

#include "minatar.h"

#define CARS 8
#define COLUMN 4 /* of the chicken */
#define PAUSE 3  /* steps between two moves of the chicken */
#define STEPS 2500

enum { CHICKEN, CAR, SPEED_1, CHANNELS = SPEED_1 + 5 };

struct freeway {
    uint8_t last_action;
    int8_t y, pause;
    int8_t x[CARS], wait[CARS], speed[CARS]; /* of the cars of rows 1 to 8; speed: 1, fast, to 5, times the direction */
    int16_t left;                            /* steps until the end */
};

static void draw_speeds(struct freeway *game, struct generator *generator)
{
    for (int i = 0; i < CARS; i++) game->wait[i] = (int8_t)draw_integer(generator, 1, 6);
    for (int i = 0; i < CARS; i++) game->speed[i] = draw(generator) < 0.5 ? -game->wait[i] : game->wait[i];
}

static void begin_freeway(struct freeway *game, const void *settings, struct generator *generator)
{
    (void)settings;
    memset(game, 0, sizeof *game);
    game->y = SIDE - 1, game->pause = PAUSE, game->left = STEPS;
    draw_speeds(game, generator);
}

static int act_freeway(
    struct freeway *game, const struct minatar_settings *rules, struct generator *generator, int action, double *reward
)
{
    (void)rules;
    if ((action == UP || action == DOWN) && !game->pause) {
        game->pause = PAUSE;
        game->y = (int8_t)bounded(game->y + (action == DOWN) - (action == UP), 0, SIDE - 1);
    }
    if (!game->y) {
        *reward = 1;
        draw_speeds(game, generator);
        game->y = SIDE - 1;
    }
    for (int i = 0; i < CARS; i++) {
        if (game->x[i] == COLUMN && game->y == i + 1) game->y = SIDE - 1;
        if (game->wait[i]--) continue;
        game->wait[i] = game->speed[i] < 0 ? -game->speed[i] : game->speed[i];
        game->x[i] = (int8_t)((game->x[i] + (game->speed[i] < 0 ? SIDE - 1 : 1)) % SIDE);
        if (game->x[i] == COLUMN && game->y == i + 1) game->y = SIDE - 1;
    }
    game->pause = (int8_t)tick(game->pause);
    return --game->left < 0;
}

static void show_freeway(const struct freeway *game, unsigned char *row)
{
    unsigned char(*cell)[SIDE][CHANNELS] = (void *)row;
    cell[game->y][COLUMN][CHICKEN] = 1;
    for (int i = 0; i < CARS; i++) {
        const int speed = game->speed[i] < 0 ? -game->speed[i] : game->speed[i];
        cell[i + 1][game->x[i]][CAR] = 1;
        cell[i + 1][(game->x[i] + (game->speed[i] < 0 ? 1 : SIDE - 1)) % SIDE][SPEED_1 + speed - 1] = 1;
    }
}

MINATAR(freeway, CHANNELS, STAY, UP, DOWN)
