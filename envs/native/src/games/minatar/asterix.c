/* MinAtar's Asterix. */

#include "minatar.h"

#define ROWS 8
#define RAMP_STEPS 100
#define FREE -2 /* x of a row without an object; its trail is outside, too */

enum { PLAYER, ENEMY, TRAIL, GOLD, CHANNELS };

struct asterix {
    uint8_t last_action;
    int8_t player_x, player_y;
    int8_t x[ROWS], right[ROWS], gold[ROWS]; /* of the objects of rows 1 to 8 */
    int8_t spawn_speed, spawn_wait, move_speed, move_wait, ramp_wait;
    int32_t ramps;
};

static void begin_asterix(struct asterix *game, const void *settings, struct generator *generator)
{
    (void)settings, (void)generator;
    memset(game, 0, sizeof *game);
    memset(game->x, FREE, sizeof game->x);
    game->player_x = game->player_y = 5;
    game->spawn_speed = game->spawn_wait = 10;
    game->move_speed = game->move_wait = 5;
    game->ramp_wait = RAMP_STEPS;
}

/* Put an object at the side of a random free row. */
static void spawn_object(struct asterix *game, struct generator *generator)
{
    const int right = draw(generator) < 0.5, gold = draw(generator) < 1.0 / 3;
    int free[ROWS], count = 0;
    for (int i = 0; i < ROWS; i++) free[count] = i, count += game->x[i] == FREE;
    if (!count) return;
    const int i = free[draw_integer(generator, 0, count)];
    game->x[i] = right ? 0 : SIDE - 1, game->right[i] = (int8_t)right, game->gold[i] = (int8_t)gold;
}

/* Take gold that the player touches; return whether it is an enemy instead. */
static int touch_object(struct asterix *game, int i, double *reward)
{
    if (game->x[i] != game->player_x || i + 1 != game->player_y) return 0;
    if (!game->gold[i]) return 1;
    game->x[i] = FREE, *reward += 1;
    return 0;
}

static int act_asterix(
    struct asterix *game, const struct minatar_settings *rules, struct generator *generator, int action, double *reward
)
{
    int over = 0;
    if (!game->spawn_wait) spawn_object(game, generator), game->spawn_wait = game->spawn_speed;
    game->player_x = (int8_t)bounded(game->player_x + (action == RIGHT) - (action == LEFT), 0, SIDE - 1);
    game->player_y = (int8_t)bounded(game->player_y + (action == DOWN) - (action == UP), 1, ROWS);
    for (int i = 0; i < ROWS; i++) over |= touch_object(game, i, reward);
    if (!game->move_wait) {
        game->move_wait = game->move_speed;
        for (int i = 0; i < ROWS; i++) {
            if (game->x[i] == FREE) continue;
            game->x[i] = (int8_t)(game->x[i] + (game->right[i] ? 1 : -1));
            if (!inside(game->x[i])) game->x[i] = FREE;
            over |= touch_object(game, i, reward);
        }
    }
    game->spawn_wait--, game->move_wait--;
    if (!rules->difficulty_ramping || (game->spawn_speed == 1 && game->move_speed == 1)) return over;
    if (--game->ramp_wait >= -1) return over;
    game->ramp_wait = RAMP_STEPS;
    game->move_speed -= game->move_speed > 1 && game->ramps % 2;
    game->spawn_speed -= game->spawn_speed > 1;
    game->ramps++;
    return over;
}

static void show_asterix(const struct asterix *game, unsigned char *row)
{
    unsigned char(*cell)[SIDE][CHANNELS] = (void *)row;
    cell[game->player_y][game->player_x][PLAYER] = 1;
    for (int i = 0; i < ROWS; i++) {
        if (game->x[i] == FREE) continue;
        const int behind = game->x[i] + (game->right[i] ? -1 : 1);
        cell[i + 1][game->x[i]][game->gold[i] ? GOLD : ENEMY] = 1;
        if (inside(behind)) cell[i + 1][behind][TRAIL] = 1;
    }
}

MINATAR(asterix, CHANNELS, STAY, LEFT, UP, RIGHT, DOWN)
