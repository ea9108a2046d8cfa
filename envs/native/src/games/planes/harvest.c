/* Harvest: envs/games/harvest.py has the rules. */

#include "planes.h"

#define RAREST 10
#define SLOWEST 5
#define LEVEL 100
#define LEVELS 8

enum { NOTHING, BEAST, FRUIT };

static void begin_harvest(struct harvest *game, const void *settings, struct generator *generator)
{
    (void)settings, (void)generator;
    *game = (struct harvest){.y = SIDE / 2, .x = SIDE / 2, .until = RAREST};
}

static void add_thing(struct harvest *game, struct generator *generator)
{
    int free[PLANE_LANES], count = 0;
    for (int k = 0; k < PLANE_LANES; k++) free[count] = k, count += !game->kind[k];
    if (!count) return;
    const int k = free[draw_integer(generator, 0, count)], right = (int)draw_integer(generator, 0, 2);
    game->kind[k] = draw_integer(generator, 0, 3) ? BEAST : FRUIT;
    game->at[k] = (int8_t)(right * (SIDE - 1)), game->ahead[k] = (int8_t)(1 - 2 * right);
}

/* What the player meets now; fruit is gone then. */
static int meet(struct harvest *game)
{
    const int k = game->y - 1, kind = game->at[k] == game->x ? game->kind[k] : NOTHING;
    if (kind == FRUIT) game->kind[k] = NOTHING;
    return kind;
}

static int play_harvest(
    struct harvest *game, const void *settings, struct generator *generator, int choice, double *reward
)
{
    (void)settings;
    const int level = bounded(game->steps / LEVEL, 0, LEVELS);
    game->steps++;
    game->y = (int8_t)bounded(game->y + (choice == 3) - (choice == 1), 1, PLANE_LANES);
    game->x = (int8_t)bounded(game->x + (choice == 2) - (choice == 4), 0, SIDE - 1);
    const int before = meet(game);
    if (!--game->until) {
        game->until = (int8_t)(RAREST - level / 2 * 2);
        add_thing(game, generator);
    }
    if (game->steps % (SLOWEST - (level + 1) / 2) == 0)
        for (int k = 0; k < PLANE_LANES; k++) {
            if (!game->kind[k]) continue;
            game->at[k] = (int8_t)(game->at[k] + game->ahead[k]);
            if (game->at[k] < 0 || game->at[k] >= SIDE) game->kind[k] = NOTHING, game->at[k] = 0;
        }
    const int after = meet(game);
    *reward = (before == FRUIT) + (after == FRUIT);
    return before == BEAST || after == BEAST;
}

static void show_harvest(const struct harvest *game, const void *settings, unsigned char *row)
{
    enum { TRAIL, PLAYER = 3 }; /* and the kinds between */
    (void)settings;
    memset(row, 0, ROW_PLANES(HARVEST_PLANES));
    for (int k = 0; k < PLANE_LANES; k++) {
        if (!game->kind[k]) continue;
        const int behind = game->at[k] - game->ahead[k];
        if (behind >= 0 && behind < SIDE) put(row, HARVEST_PLANES, k + 1, behind, TRAIL);
        put(row, HARVEST_PLANES, k + 1, game->at[k], game->kind[k]);
    }
    put(row, HARVEST_PLANES, game->y, game->x, PLAYER);
}

static void mend_harvest(struct harvest *game, const void *settings)
{
    (void)settings;
    game->steps &= INT32_MAX >> 1;
    game->y = (int8_t)bounded(game->y, 1, PLANE_LANES), game->x = (int8_t)bounded(game->x, 0, SIDE - 1);
    game->until = (int8_t)bounded(game->until, 1, RAREST);
    for (int k = 0; k < PLANE_LANES; k++) {
        game->kind[k] = (int8_t)bounded(game->kind[k], NOTHING, FRUIT);
        game->at[k] = (int8_t)bounded(game->at[k], 0, SIDE - 1), game->ahead[k] = (int8_t)bounded(game->ahead[k], -1, 1);
    }
}

BYTE_GAME(harvest, ROW_PLANES(HARVEST_PLANES))
