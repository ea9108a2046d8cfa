/* MinAtar's Space Invaders. */

#include "minatar.h"

#define WAVE 0xfc /* columns 2 to 7 */
#define WAVE_ROWS 4
#define RELOAD 5        /* steps between two shots of the cannon */
#define ALIEN_RELOAD 10 /* and of the aliens */
#define LAST (SIDE - 1)

enum { CANNON, ALIEN, ALIEN_LEFT, ALIEN_RIGHT, FRIENDLY_BULLET, ENEMY_BULLET, CHANNELS };

struct space_invaders {
    uint8_t last_action;
    int8_t cannon, right, interval, move_wait, alien_shot, shot; /* right: direction of the aliens */
    uint16_t aliens[SIDE], bullets[SIDE], enemy_bullets[SIDE];   /* by row; bits by column */
};

static void bring_aliens(struct space_invaders *game)
{
    for (int y = 0; y < WAVE_ROWS; y++) game->aliens[y] = WAVE;
}

static void begin_space_invaders(struct space_invaders *game, const void *settings, struct generator *generator)
{
    (void)settings, (void)generator;
    memset(game, 0, sizeof *game);
    game->cannon = 5, game->interval = game->move_wait = 12, game->alien_shot = ALIEN_RELOAD;
    bring_aliens(game);
}

static unsigned alien_columns(const struct space_invaders *game)
{
    unsigned columns = 0;
    for (int y = 0; y < SIDE; y++) columns |= game->aliens[y];
    return columns;
}

/* Move aliens sideways, or down at the edge; return whether they cannot move down. */
static int move_aliens(struct space_invaders *game)
{
    int count = 0;
    for (int y = 0; y < SIDE; y++) count += __builtin_popcount(game->aliens[y]);
    game->move_wait = (int8_t)(count < game->interval ? count : game->interval);
    if (alien_columns(game) & (game->right ? 1u << LAST : 1u)) {
        game->right = !game->right;
        const uint16_t last = game->aliens[LAST];
        memmove(game->aliens + 1, game->aliens, LAST * sizeof *game->aliens);
        game->aliens[0] = last;
        return last != 0;
    }
    for (int y = 0; y < SIDE; y++) game->aliens[y] = (uint16_t)(game->right ? game->aliens[y] << 1 : game->aliens[y] >> 1);
    return 0;
}

/* Let the lowest alien of the column nearest to the cannon shoot; of two columns, the left one. */
static void shoot_back(struct space_invaders *game)
{
    const unsigned columns = alien_columns(game);
    for (int distance = 0; distance < SIDE; distance++)
        for (int side = -1; side <= 1; side += 2) {
            const int x = game->cannon + side * distance;
            if (!inside(x) || !(columns >> x & 1)) continue;
            int y = LAST;
            while (!(game->aliens[y] >> x & 1)) y--;
            game->enemy_bullets[y] |= (uint16_t)(1 << x);
            return;
        }
}

static int act_space_invaders(
    struct space_invaders *game, const struct minatar_settings *rules, struct generator *generator, int action, double *reward
)
{
    (void)generator;
    if (action == FIRE && !game->shot) game->bullets[LAST] |= (uint16_t)(1 << game->cannon), game->shot = RELOAD;
    game->cannon = (int8_t)bounded(game->cannon + (action == RIGHT) - (action == LEFT), 0, LAST);
    memmove(game->bullets, game->bullets + 1, LAST * sizeof *game->bullets);
    memmove(game->enemy_bullets + 1, game->enemy_bullets, LAST * sizeof *game->bullets);
    game->bullets[LAST] = game->enemy_bullets[0] = 0;
    int over = (game->enemy_bullets[LAST] | game->aliens[LAST]) >> game->cannon & 1;
    if (!game->move_wait) over |= move_aliens(game) | (game->aliens[LAST] >> game->cannon & 1);
    if (!game->alien_shot) game->alien_shot = ALIEN_RELOAD, shoot_back(game);
    int killed = 0;
    for (int y = 0; y < SIDE; y++) {
        const uint16_t hit = game->aliens[y] & game->bullets[y];
        game->aliens[y] ^= hit, game->bullets[y] ^= hit;
        killed += __builtin_popcount(hit);
    }
    *reward = killed;
    game->shot = (int8_t)tick(game->shot);
    game->move_wait--, game->alien_shot--;
    if (!alien_columns(game)) {
        game->interval -= game->interval > 6 && rules->difficulty_ramping;
        bring_aliens(game);
    }
    return over;
}

static void show_space_invaders(const struct space_invaders *game, unsigned char *row)
{
    unsigned char(*cell)[SIDE][CHANNELS] = (void *)row;
    cell[LAST][game->cannon][CANNON] = 1;
    for (int y = 0; y < SIDE; y++) {
        for (unsigned rest = game->aliens[y]; rest; rest &= rest - 1) {
            unsigned char *at = cell[y][__builtin_ctz(rest)];
            at[ALIEN] = at[game->right ? ALIEN_RIGHT : ALIEN_LEFT] = 1;
        }
        for (unsigned rest = game->bullets[y]; rest; rest &= rest - 1) cell[y][__builtin_ctz(rest)][FRIENDLY_BULLET] = 1;
        for (unsigned rest = game->enemy_bullets[y]; rest; rest &= rest - 1)
            cell[y][__builtin_ctz(rest)][ENEMY_BULLET] = 1;
    }
}

MINATAR(space_invaders, CHANNELS, STAY, LEFT, RIGHT, FIRE)
