/* Road: envs/games/road.py has the rules. */

#include "planes.h"

#define CARS PLANE_LANES
#define COLUMN 4
#define BOTTOM (SIDE - 1)
#define REST 2
#define PACES 5

static void draw_paces(struct road *game, struct generator *generator)
{
    for (int k = 0; k < CARS; k++) {
        game->wait[k] = game->pace[k] = (int8_t)(1 + draw_integer(generator, 0, PACES));
        game->ahead[k] = (int8_t)(2 * draw_integer(generator, 0, 2) - 1);
    }
}

static int around(int x) { return x < 0 ? x + SIDE : x >= SIDE ? x - SIDE : x; }

static void begin_road(struct road *game, const void *settings, struct generator *generator)
{
    (void)settings;
    *game = (struct road){.y = BOTTOM};
    for (int k = 0; k < CARS; k++) game->x[k] = (int8_t)draw_integer(generator, 0, SIDE);
    draw_paces(game, generator);
}

static int play_road(struct road *game, const void *settings, struct generator *generator, int choice, double *reward)
{
    (void)settings;
    if (game->rest) game->rest--;
    else if (choice)
        game->y = (int8_t)bounded(game->y + (choice == 2 ? 1 : -1), 0, BOTTOM), game->rest = REST;
    const int arrived = game->y == 0;
    if (arrived) game->y = BOTTOM, draw_paces(game, generator);
    for (int k = 0; k < CARS; k++)
        if (!--game->wait[k]) game->x[k] = (int8_t)around(game->x[k] + game->ahead[k]), game->wait[k] = game->pace[k];
    if (game->y >= 1 && game->y <= CARS && game->x[game->y - 1] == COLUMN) game->y = BOTTOM;
    *reward = arrived;
    return 0;
}

static void show_road(const struct road *game, const void *settings, unsigned char *row)
{
    enum { CAR = PACES, WALKER };
    (void)settings;
    memset(row, 0, ROW_PLANES(ROAD_PLANES));
    for (int k = 0; k < CARS; k++) {
        put(row, ROAD_PLANES, k + 1, around(game->x[k] - game->ahead[k]), game->pace[k] - 1);
        put(row, ROAD_PLANES, k + 1, game->x[k], CAR);
    }
    put(row, ROAD_PLANES, game->y, COLUMN, WALKER);
}

static void mend_road(struct road *game, const void *settings)
{
    (void)settings;
    game->y = (int8_t)bounded(game->y, 1, BOTTOM), game->rest = (int8_t)bounded(game->rest, 0, REST);
    for (int k = 0; k < CARS; k++) {
        game->x[k] = (int8_t)bounded(game->x[k], 0, SIDE - 1), game->ahead[k] = game->ahead[k] < 0 ? -1 : 1;
        game->pace[k] = (int8_t)bounded(game->pace[k], 1, PACES), game->wait[k] = (int8_t)bounded(game->wait[k], 1, PACES);
    }
}

BYTE_GAME(road, ROW_PLANES(ROAD_PLANES))
