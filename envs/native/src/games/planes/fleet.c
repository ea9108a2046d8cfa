/* Fleet: envs/games/fleet.py has the rules. */

#include "planes.h"

#define BOTTOM (SIDE - 1)
#define ROWS 4
#define WAVE 0xfc /* columns 2 to 7 */
#define SHIPS (ROWS * 6)
#define SLOWEST 12
#define QUICKEST 6
#define RELOAD 5
#define PAUSE 10
#define ALL ((1 << SIDE) - 1)

static void muster(struct fleet *game)
{
    memset(game->ships, 0, sizeof game->ships);
    for (int y = 0; y < ROWS; y++) game->ships[y] = WAVE;
    game->left = SHIPS, game->ahead = -1, game->wait = game->slowest;
}

static void begin_fleet(struct fleet *game, const void *settings, struct generator *generator)
{
    (void)settings, (void)generator;
    *game = (struct fleet){.x = SIDE / 2, .pause = PAUSE, .slowest = SLOWEST};
    muster(game);
}

/* Rows come down by one, or go up. */
static void come_down(uint16_t *rows)
{
    memmove(rows + 1, rows, BOTTOM * sizeof *rows);
    rows[0] = 0;
}

static void go_up(uint16_t *rows)
{
    memmove(rows, rows + 1, BOTTOM * sizeof *rows);
    rows[BOTTOM] = 0;
}

static int hit_ships(struct fleet *game)
{
    int count = 0;
    for (int y = 0; y < SIDE; y++) {
        const unsigned hit = game->ships[y] & game->shots[y];
        if (!hit) continue;
        count += __builtin_popcount(hit);
        game->ships[y] ^= hit, game->shots[y] ^= hit;
    }
    game->left = (int8_t)(game->left - count);
    return count;
}

static unsigned columns_of(const struct fleet *game)
{
    unsigned columns = 0;
    for (int y = 0; y < SIDE; y++) columns |= game->ships[y];
    return columns;
}

static void go_on(struct fleet *game)
{
    if (columns_of(game) & (game->ahead < 0 ? 1u : 1u << BOTTOM)) {
        game->ahead = (int8_t)-game->ahead;
        come_down(game->ships);
    } else
        for (int y = 0; y < SIDE; y++)
            game->ships[y] = (uint16_t)(game->ahead < 0 ? game->ships[y] >> 1 : game->ships[y] << 1);
}

static void shoot_back(struct fleet *game, struct generator *generator)
{
    unsigned columns = columns_of(game);
    if (!columns) return;
    for (int skip = (int)draw_integer(generator, 0, __builtin_popcount(columns)); skip; skip--) columns &= columns - 1;
    const unsigned column = columns & -columns;
    int y = BOTTOM;
    while (!(game->ships[y] & column)) y--;
    if (y < BOTTOM) game->its_shots[y + 1] |= column;
}

static int play_fleet(struct fleet *game, const void *settings, struct generator *generator, int choice, double *reward)
{
    (void)settings;
    game->x = (int8_t)bounded(game->x + (choice == 2) - (choice == 1), 0, BOTTOM);
    if (game->reload) game->reload--;
    if (choice == 3 && !game->reload) game->shots[BOTTOM] |= 1u << game->x, game->reload = RELOAD;
    go_up(game->shots);
    int hits = hit_ships(game);
    come_down(game->its_shots);
    int over = game->its_shots[BOTTOM] >> game->x & 1;
    if (game->wait) game->wait--;
    if (!game->wait && game->left) {
        go_on(game);
        hits += hit_ships(game);
        game->wait = game->left < game->slowest ? game->left : game->slowest;
    }
    over |= game->ships[BOTTOM] != 0;
    if (!--game->pause) {
        game->pause = PAUSE;
        shoot_back(game, generator);
    }
    if (!game->left) {
        if (game->slowest > QUICKEST) game->slowest--;
        muster(game);
    }
    *reward = hits;
    return over;
}

enum { SHIP, TO_LEFT, TO_RIGHT, CANNON, SHOT, ITS_SHOT };

/* Five cells of a row by which of them have ships, which go left or right: most of what is shown. */
#define CELL(on, left) (on), (on) & (left), (on) & !(left), 0, 0, 0
#define FIVE(b, left) \
    {CELL((b) & 1, left), CELL((b) >> 1 & 1, left), CELL((b) >> 2 & 1, left), CELL((b) >> 3 & 1, left), CELL((b) >> 4 & 1, left)}
#define FOUR_OF(b, left) FIVE(b, left), FIVE((b) + 1, left), FIVE((b) + 2, left), FIVE((b) + 3, left)
#define ALL_OF(left) \
    {FOUR_OF(0, left), FOUR_OF(4, left), FOUR_OF(8, left), FOUR_OF(12, left), FOUR_OF(16, left), FOUR_OF(20, left), \
     FOUR_OF(24, left), FOUR_OF(28, left)}
static const uint8_t fives[2][32][5 * FLEET_PLANES] = {ALL_OF(0), ALL_OF(1)};

static void put_shots(unsigned char *row, int y, unsigned shots, int plane)
{
    for (; shots; shots &= shots - 1) put(row, FLEET_PLANES, y, __builtin_ctz(shots), plane);
}

static void show_fleet(const struct fleet *game, const void *settings, unsigned char *row)
{
    (void)settings;
    for (int y = 0; y < SIDE; y++) {
        unsigned char *at = row + SIDE * FLEET_PLANES * y;
        memcpy(at, fives[game->ahead < 0][game->ships[y] & 31], sizeof **fives);
        memcpy(at + sizeof **fives, fives[game->ahead < 0][game->ships[y] >> 5], sizeof **fives);
    }
    for (int y = 0; y < SIDE; y++) {
        put_shots(row, y, game->shots[y], SHOT);
        put_shots(row, y, game->its_shots[y], ITS_SHOT);
    }
    put(row, FLEET_PLANES, BOTTOM, game->x, CANNON);
}

static void mend_fleet(struct fleet *game, const void *settings)
{
    (void)settings;
    game->x = (int8_t)bounded(game->x, 0, BOTTOM), game->reload = (int8_t)bounded(game->reload, 0, RELOAD);
    game->pause = (int8_t)bounded(game->pause, 1, PAUSE), game->wait = (int8_t)bounded(game->wait, 0, SLOWEST);
    game->slowest = (int8_t)bounded(game->slowest, QUICKEST, SLOWEST), game->ahead = game->ahead < 0 ? -1 : 1;
    game->left = 0;
    for (int y = 0; y < SIDE; y++) {
        game->ships[y] &= ALL, game->shots[y] &= ALL, game->its_shots[y] &= ALL;
        game->left = (int8_t)(game->left + __builtin_popcount(game->ships[y]));
    }
}

BYTE_GAME(fleet, ROW_PLANES(FLEET_PLANES))
