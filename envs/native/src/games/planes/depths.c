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

/* A byte of each lane. */
static uint64_t all_of(const int8_t *lanes)
{
    uint64_t all;
    memcpy(&all, lanes, sizeof all);
    return all;
}
_Static_assert(LANES == sizeof(uint64_t), "a byte a lane");

/* A bit of each lane that has something: kinds of things are 1 to 3, ways 1 and -1. Loops over these have no branch for each
 * lane, which nobody could predict. */
static uint64_t some_of(const int8_t *lanes)
{
    const uint64_t all = all_of(lanes);
    return (all | all >> 1) & 0x0101010101010101u;
}

/* The first lane of those. */
static int lane_of(uint64_t some) { return __builtin_ctzll(some) / 8; }

static int hit_things(struct depths *game)
{
    int hits = 0;
    for (uint64_t rest = some_of(game->way) & some_of(game->kind); rest; rest &= rest - 1) {
        const int k = lane_of(rest);
        if (game->kind[k] == DIVER || game->at[k] != game->shot[k]) continue;
        game->kind[k] = NOTHING, game->way[k] = game->shot[k] = 0, hits++;
    }
    return hits;
}

static void fly(int8_t *at, int8_t *way)
{
    for (uint64_t rest = some_of(way); rest; rest &= rest - 1) {
        const int k = lane_of(rest);
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
    for (uint64_t rest = some_of(game->kind); rest; rest &= rest - 1) {
        const int k = lane_of(rest);
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

enum { TRAIL, BACK = 4, FRONT, SHOT, ITS_SHOT, LEFT_AIR, ABOARD }; /* planes, and the kinds between the first two */

/* Enter a value, 1 or 0, at a cell of a plane. */
static void enter(unsigned char *row, int y, int x, int plane, unsigned char value)
{
    row[(SIDE * y + x) * DEPTHS_PLANES + plane] = value;
}

static void enter_things(const struct depths *game, unsigned char *row, unsigned char value)
{
    for (uint64_t rest = some_of(game->kind); rest; rest &= rest - 1) {
        const int k = lane_of(rest), behind = game->at[k] - game->ahead[k];
        if (behind >= 0 && behind < SIDE) enter(row, k + 1, behind, TRAIL, value);
        enter(row, k + 1, game->at[k], game->kind[k], value);
    }
}

static void enter_shots(const int8_t *at, const int8_t *way, int plane, unsigned char *row, unsigned char value)
{
    for (uint64_t rest = some_of(way); rest; rest &= rest - 1) {
        const int k = lane_of(rest);
        enter(row, k + 1, at[k], plane, value);
    }
}

static void enter_boat(const struct depths *game, unsigned char *row, unsigned char value)
{
    const int back = game->x - game->facing;
    if (back >= 0 && back < SIDE) enter(row, game->y, back, BACK, value);
    enter(row, game->y, game->x, FRONT, value);
}

static void enter_gauge(const struct depths *game, unsigned char *row)
{
    const int air = tenths(game);
    for (int k = 0; k < SIDE; k++) {
        enter(row, GAUGE, k, LEFT_AIR, k < air);
        enter(row, GAUGE, k, ABOARD, k < game->aboard);
    }
}

static void show_depths(const struct depths *game, const void *settings, unsigned char *row)
{
    (void)settings;
    memset(row, 0, ROW_PLANES(DEPTHS_PLANES));
    enter_things(game, row, 1);
    enter_shots(game->shot, game->way, SHOT, row, 1);
    enter_shots(game->its_shot, game->its_way, ITS_SHOT, row, 1);
    enter_boat(game, row, 1);
    enter_gauge(game, row);
}

/* Things go on in few steps, and shots are rare. */
static void change_depths(
    const struct depths *before, const struct depths *game, const void *settings, unsigned char *row
)
{
    (void)settings;
    if (all_of(before->kind) != all_of(game->kind) || all_of(before->at) != all_of(game->at)) {
        enter_things(before, row, 0);
        enter_things(game, row, 1);
    }
    if (all_of(before->way) | all_of(game->way)) {
        enter_shots(before->shot, before->way, SHOT, row, 0);
        enter_shots(game->shot, game->way, SHOT, row, 1);
    }
    if (all_of(before->its_way) | all_of(game->its_way)) {
        enter_shots(before->its_shot, before->its_way, ITS_SHOT, row, 0);
        enter_shots(game->its_shot, game->its_way, ITS_SHOT, row, 1);
    }
    enter_boat(before, row, 0);
    enter_boat(game, row, 1);
    if (before->air != game->air || before->aboard != game->aboard) enter_gauge(game, row);
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

CHANGED_BYTE_GAME(depths, ROW_PLANES(DEPTHS_PLANES))
