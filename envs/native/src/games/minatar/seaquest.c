/* MinAtar's Seaquest. */

#include "minatar.h"

#define CAPACITY 64 /* enemies: at most one a step, each gone after 60 steps */
#define OXYGEN 200
#define RELOAD 5        /* steps between two shots of the player */
#define ENEMY_RELOAD 10 /* steps that an enemy submarine waits between two shots */
#define DIVER_EVERY 30
#define DIVER_WAIT 5 /* steps that a diver waits between two moves */
#define MAX_DIVERS 6
#define BOTTOM 8

enum {
    SUB_FRONT, SUB_BACK, FRIENDLY_BULLET, TRAIL, ENEMY_BULLET, ENEMY_FISH, ENEMY_SUB, OXYGEN_GAUGE, DIVER_GAUGE, DIVER,
    CHANNELS
};

/* An object that moves along its row. */
struct mover {
    int8_t x, y, right, wait, shot; /* right: direction; wait, shot: steps until it moves and shoots */
};

struct movers {
    uint8_t count;
    struct mover item[CAPACITY];
};

struct seaquest {
    uint8_t last_action;
    int8_t x, y, right, surfaced;
    int8_t spawn_speed, spawn_wait, diver_wait, move_speed, shot;
    int16_t oxygen;
    int32_t divers_aboard, ramps; /* divers_aboard: -1 after all six were unloaded, and less after later surfacings */
    struct movers bullets, enemy_bullets, fish, subs, divers;
};

static void begin_seaquest(struct seaquest *game, const void *settings, struct generator *generator)
{
    (void)settings, (void)generator;
    memset(game, 0, sizeof *game);
    game->x = 5, game->surfaced = 1, game->oxygen = OXYGEN;
    game->spawn_speed = game->spawn_wait = 20, game->diver_wait = DIVER_EVERY, game->move_speed = 5;
}

static void add(struct movers *list, struct mover mover)
{
    if (list->count < CAPACITY) list->item[list->count++] = mover;
}

static void drop(struct movers *list, int i)
{
    memmove(list->item + i, list->item + i + 1, (size_t)(--list->count - i) * sizeof *list->item);
}

static int touches(const struct seaquest *game, const struct mover *mover)
{
    return mover->x == game->x && mover->y == game->y;
}

/* Move one cell; return whether it has left the board. */
static int advance(struct mover *mover)
{
    mover->x = (int8_t)(mover->x + (mover->right ? 1 : -1));
    return !inside(mover->x);
}

/* Return whether a mover of the row has the other direction. */
static int opposes(const struct movers *list, int y, int right)
{
    for (int i = 0; i < list->count; i++)
        if (list->item[i].y == y && list->item[i].right != right) return 1;
    return 0;
}

static void spawn_enemy(struct seaquest *game, struct generator *generator)
{
    const int right = draw(generator) < 0.5, is_sub = draw(generator) < 1.0 / 3;
    const int y = (int)draw_integer(generator, 1, 9);
    if (opposes(&game->subs, y, right) || opposes(&game->fish, y, right)) return;
    add(is_sub ? &game->subs : &game->fish,
        (struct mover){right ? 0 : SIDE - 1, (int8_t)y, (int8_t)right, game->move_speed, ENEMY_RELOAD});
}

/* Remove the first mover of a list in the place of another one; return whether there was one. */
static int hit(struct movers *list, const struct mover *other)
{
    for (int i = 0; i < list->count; i++)
        if (list->item[i].x == other->x && list->item[i].y == other->y) return drop(list, i), 1;
    return 0;
}

static void move_bullets(struct seaquest *game, double *reward)
{
    for (int i = game->bullets.count - 1; i >= 0; i--) {
        struct mover *bullet = game->bullets.item + i;
        if (advance(bullet)) {
            drop(&game->bullets, i);
        } else if (hit(&game->fish, bullet) || hit(&game->subs, bullet)) {
            drop(&game->bullets, i);
            *reward += 1;
        }
    }
}

/* Take a diver that the submarine touches, if there is room; return whether it was taken. */
static int take(struct seaquest *game, int i)
{
    if (!touches(game, game->divers.item + i) || game->divers_aboard == MAX_DIVERS) return 0;
    game->divers_aboard++;
    drop(&game->divers, i);
    return 1;
}

static void move_divers(struct seaquest *game)
{
    for (int i = game->divers.count - 1; i >= 0; i--) {
        struct mover *diver = game->divers.item + i;
        if (take(game, i) || diver->wait--) continue;
        diver->wait = DIVER_WAIT;
        if (advance(diver)) drop(&game->divers, i);
        else take(game, i);
    }
}

/* Move enemies, also into bullets, and let submarines shoot; return whether one touches the player. */
static int move_enemies(struct seaquest *game, struct movers *enemies, int shoot, double *reward)
{
    int over = 0;
    for (int i = enemies->count - 1; i >= 0; i--) {
        struct mover *enemy = enemies->item + i;
        int gone = 0;
        over |= touches(game, enemy);
        if (enemy->wait) enemy->wait--;
        else {
            enemy->wait = game->move_speed;
            gone = advance(enemy);
            if (touches(game, enemy)) over = 1;
            else if (hit(&game->bullets, enemy)) gone = 1, *reward += 1;
        }
        if (shoot && !enemy->shot--) {
            enemy->shot = ENEMY_RELOAD;
            add(&game->enemy_bullets, (struct mover){enemy->x, enemy->y, enemy->right, 0, 0});
        }
        if (gone) drop(enemies, i);
    }
    return over;
}

static int move_enemy_bullets(struct seaquest *game)
{
    int over = 0;
    for (int i = game->enemy_bullets.count - 1; i >= 0; i--) {
        struct mover *bullet = game->enemy_bullets.item + i;
        over |= touches(game, bullet);
        if (advance(bullet)) drop(&game->enemy_bullets, i);
        else over |= touches(game, bullet);
    }
    return over;
}

/* Unload one diver, or all six and one more; fill up oxygen and make enemies faster. Return the reward. */
static int surface(struct seaquest *game, const struct minatar_settings *rules)
{
    int reward = 0;
    game->surfaced = 1;
    if (game->divers_aboard == MAX_DIVERS) reward = game->oxygen * SIDE / OXYGEN, game->divers_aboard = 0;
    game->divers_aboard--;
    game->oxygen = OXYGEN;
    if (rules->difficulty_ramping && (game->spawn_speed > 1 || game->move_speed > 2)) {
        game->move_speed -= game->move_speed > 2 && game->ramps % 2;
        game->spawn_speed -= game->spawn_speed > 1;
        game->ramps++;
    }
    return reward;
}

static int act_seaquest(
    struct seaquest *game, const struct minatar_settings *rules, struct generator *generator, int action, double *reward
)
{
    if (!game->spawn_wait) spawn_enemy(game, generator), game->spawn_wait = game->spawn_speed;
    if (!game->diver_wait) {
        const int right = draw(generator) < 0.5, y = (int)draw_integer(generator, 1, 9);
        add(&game->divers, (struct mover){right ? 0 : SIDE - 1, (int8_t)y, (int8_t)right, DIVER_WAIT, 0});
        game->diver_wait = DIVER_EVERY;
    }
    if (action == FIRE && !game->shot) {
        add(&game->bullets, (struct mover){game->x, game->y, game->right, 0, 0});
        game->shot = RELOAD;
    }
    if (action == LEFT || action == RIGHT) game->right = action == RIGHT;
    game->x = (int8_t)bounded(game->x + (action == RIGHT) - (action == LEFT), 0, SIDE - 1);
    game->y = (int8_t)bounded(game->y + (action == DOWN) - (action == UP), 0, BOTTOM);
    move_bullets(game, reward);
    move_divers(game);
    int over = move_enemies(game, &game->subs, 1, reward);
    over |= move_enemy_bullets(game);
    over |= move_enemies(game, &game->fish, 0, reward);
    game->spawn_wait = (int8_t)tick(game->spawn_wait);
    game->diver_wait = (int8_t)tick(game->diver_wait);
    game->shot = (int8_t)tick(game->shot);
    over |= game->oxygen <= 0;
    if (game->y > 0) game->oxygen--, game->surfaced = 0;
    else if (!game->surfaced) {
        if (!game->divers_aboard) over = 1;
        else *reward += surface(game, rules);
    }
    return over;
}

static void show_movers(const struct movers *list, int channel, int trail, unsigned char *row)
{
    unsigned char(*cell)[SIDE][CHANNELS] = (void *)row;
    for (int i = 0; i < list->count; i++) {
        const struct mover *mover = list->item + i;
        const int behind = mover->x + (mover->right ? -1 : 1);
        cell[mover->y][mover->x][channel] = 1;
        if (trail && inside(behind)) cell[mover->y][behind][TRAIL] = 1;
    }
}

static void show_seaquest(const struct seaquest *game, unsigned char *row)
{
    unsigned char(*cell)[SIDE][CHANNELS] = (void *)row;
    cell[game->y][game->x][SUB_FRONT] = 1;
    cell[game->y][game->x + (game->right ? -1 : 1)][SUB_BACK] = 1;
    for (int x = 0; x < game->oxygen * SIDE / OXYGEN; x++) cell[SIDE - 1][x][OXYGEN_GAUGE] = 1;
    for (int k = 1; k <= game->divers_aboard; k++) cell[SIDE - 1][SIDE - 1 - k][DIVER_GAUGE] = 1;
    show_movers(&game->bullets, FRIENDLY_BULLET, 0, row);
    show_movers(&game->enemy_bullets, ENEMY_BULLET, 0, row);
    show_movers(&game->fish, ENEMY_FISH, 1, row);
    show_movers(&game->subs, ENEMY_SUB, 1, row);
    show_movers(&game->divers, DIVER, 1, row);
}

MINATAR(seaquest, CHANNELS, STAY, LEFT, UP, RIGHT, DOWN, FIRE)
