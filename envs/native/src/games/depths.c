/* Depths: envs/games/depths.py has the rules. */

#include "planes.h"

#define LANES PLANE_LANES
#define GAUGE (SIDE - 1)
#define AIR 200
#define PLACES 6
#define PAUSE 10
#define SLOWEST 5
#define RAREST 10
#define OFTENEST 3

enum { NOTHING, FISH, HUNTER, DIVER };

static void begin_depths(struct depths *game, const void *settings, struct generator *generator)
{
    (void)settings, (void)generator;
    *game = (struct depths){.x = SIDE / 2, .facing = 1, .air = AIR, .until = RAREST, .pause = PAUSE};
}

static int tenths(const struct depths *game) { return (10 * game->air + AIR - 1) / AIR; }

/* Move or shoot; whether it surfaced as it may not. */
static int act(struct depths *game, int choice, int *paid)
{
    const int before = game->y, right = (choice == 2) - (choice == 4);
    if (right) game->facing = (int8_t)right;
    game->y = (int8_t)bounded(game->y + (choice == 3) - (choice == 1), 0, LANES);
    game->x = (int8_t)bounded(game->x + right, 0, SIDE - 1);
    const int k = game->y - 1;
    if (choice == 5 && k >= 0 && !game->way[k]) game->shot[k] = game->x, game->way[k] = game->facing;
    if (game->y || !before) return 0;
    if (!game->aboard) return 1;
    if (game->aboard == PLACES) *paid += tenths(game), game->aboard = 0;
    else game->aboard--;
    game->air = AIR, game->level++;
    return 0;
}

/* Take a diver aboard who is there; whether what is there is the end. */
static int meet(struct depths *game)
{
    const int k = game->y - 1, back = game->x - game->facing;
    if (k < 0) return 0;
    const int over = game->its_way[k] && (game->its_shot[k] == game->x || game->its_shot[k] == back);
    if (!game->kind[k] || (game->at[k] != game->x && game->at[k] != back)) return over;
    if (game->kind[k] == DIVER && game->aboard < PLACES) {
        game->kind[k] = NOTHING, game->aboard++;
        return over;
    }
    return over || game->kind[k] != DIVER;
}

/* Whether there is none in any lane, as mostly. */
static int are_none(const int8_t *way)
{
    uint64_t all;
    memcpy(&all, way, sizeof all);
    return !all;
}
_Static_assert(LANES == sizeof(uint64_t), "a byte a lane");

static int hit_things(struct depths *game)
{
    int hits = 0;
    if (are_none(game->way)) return 0;
    for (int k = 0; k < LANES; k++) {
        if (!game->way[k] || !game->kind[k] || game->kind[k] == DIVER || game->at[k] != game->shot[k]) continue;
        game->kind[k] = NOTHING, game->way[k] = game->shot[k] = 0, hits++;
    }
    return hits;
}

static void fly(int8_t *at, int8_t *way)
{
    if (are_none(way)) return;
    for (int k = 0; k < LANES; k++) {
        if (!way[k]) continue;
        at[k] = (int8_t)(at[k] + way[k]);
        if (at[k] < 0 || at[k] >= SIDE) at[k] = way[k] = 0;
    }
}

static void add_thing(struct depths *game, struct generator *generator)
{
    static const int8_t kinds[] = {FISH, FISH, HUNTER, DIVER};
    int free[LANES], count = 0;
    for (int k = 0; k < LANES; k++) free[count] = k, count += !game->kind[k];
    if (!count) return;
    const int k = free[draw_integer(generator, 0, count)], right = (int)draw_integer(generator, 0, 2);
    game->kind[k] = kinds[draw_integer(generator, 0, 4)];
    game->at[k] = (int8_t)(right * (SIDE - 1)), game->ahead[k] = (int8_t)(1 - 2 * right);
}

static void go_on(struct depths *game)
{
    for (int k = 0; k < LANES; k++) {
        if (!game->kind[k]) continue;
        game->at[k] = (int8_t)(game->at[k] + game->ahead[k]);
        if (game->at[k] < 0 || game->at[k] >= SIDE) game->kind[k] = NOTHING, game->at[k] = 0;
    }
}

static int play_depths(
    struct depths *game, const void *settings, struct generator *generator, int choice, double *reward
)
{
    (void)settings;
    int paid = 0;
    game->steps++;
    int over = act(game, choice, &paid);
    over |= meet(game);
    fly(game->shot, game->way);
    fly(game->its_shot, game->its_way);
    paid += hit_things(game);
    over |= meet(game);
    if (game->steps % bounded(SLOWEST - game->level / 2, 1, SLOWEST) == 0) {
        go_on(game);
        paid += hit_things(game);
        over |= meet(game);
    }
    if (!--game->pause) {
        game->pause = PAUSE;
        for (int k = 0; k < LANES; k++)
            if (game->kind[k] == HUNTER && !game->its_way[k])
                game->its_shot[k] = game->at[k], game->its_way[k] = game->ahead[k];
    }
    if (!--game->until) {
        game->until = (int8_t)bounded(RAREST - game->level, OFTENEST, RAREST);
        add_thing(game, generator);
    }
    game->air -= game->y > 0 && game->air > 0;
    *reward = paid;
    return over || !game->air;
}

static void show_depths(const struct depths *game, const void *settings, unsigned char *row)
{
    enum { TRAIL, BACK = 4, FRONT, SHOT, ITS_SHOT, LEFT_AIR, ABOARD }; /* and the kinds between the first two */
    (void)settings;
    memset(row, 0, ROW_PLANES(DEPTHS_PLANES));
    for (int k = 0; k < LANES; k++) {
        if (game->kind[k]) {
            const int behind = game->at[k] - game->ahead[k];
            if (behind >= 0 && behind < SIDE) put(row, DEPTHS_PLANES, k + 1, behind, TRAIL);
            put(row, DEPTHS_PLANES, k + 1, game->at[k], game->kind[k]);
        }
        if (game->way[k]) put(row, DEPTHS_PLANES, k + 1, game->shot[k], SHOT);
        if (game->its_way[k]) put(row, DEPTHS_PLANES, k + 1, game->its_shot[k], ITS_SHOT);
    }
    const int back = game->x - game->facing, air = tenths(game);
    if (back >= 0 && back < SIDE) put(row, DEPTHS_PLANES, game->y, back, BACK);
    put(row, DEPTHS_PLANES, game->y, game->x, FRONT);
    for (int k = 0; k < SIDE; k++) {
        unsigned char *cell = row + (SIDE * GAUGE + k) * DEPTHS_PLANES;
        cell[LEFT_AIR] = k < air, cell[ABOARD] = k < game->aboard;
    }
}

static void mend_depths(struct depths *game, const void *settings)
{
    (void)settings;
    game->y = (int8_t)bounded(game->y, 0, LANES), game->x = (int8_t)bounded(game->x, 0, SIDE - 1);
    game->facing = game->facing < 0 ? -1 : 1, game->air = bounded(game->air, 1, AIR);
    game->aboard = (int8_t)bounded(game->aboard, 0, PLACES);
    game->until = (int8_t)bounded(game->until, 1, RAREST), game->pause = (int8_t)bounded(game->pause, 1, PAUSE);
    game->level &= INT32_MAX >> 1, game->steps &= INT32_MAX >> 1;
    for (int k = 0; k < LANES; k++) {
        game->kind[k] = (int8_t)bounded(game->kind[k], NOTHING, DIVER);
        game->ahead[k] = (int8_t)bounded(game->ahead[k], -1, 1), game->at[k] = (int8_t)bounded(game->at[k], 0, SIDE - 1);
        game->way[k] = (int8_t)bounded(game->way[k], -1, 1), game->its_way[k] = (int8_t)bounded(game->its_way[k], -1, 1);
        game->shot[k] = (int8_t)bounded(game->shot[k], 0, SIDE - 1);
        game->its_shot[k] = (int8_t)bounded(game->its_shot[k], 0, SIDE - 1);
    }
}

BYTE_GAME(depths, ROW_PLANES(DEPTHS_PLANES))
