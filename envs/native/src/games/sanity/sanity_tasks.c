/* Tasks of the sanity suite (envs/sanity): for each the start of an episode, a step and the observation. */

#include "games/game.h"

/* Settings; each task reads some of them. envs/sanity/native.py has the same fields. */
struct sanity_settings {
    double opening, leave, stay, noise, end;
    double (*normal)(struct bits *);             /* NumPy's function, for Bandit */
    int64_t (*geometric)(struct bits *, double); /* the same for Forget */
    int32_t arm, zeros, delay, digits, steps, terminates;
    uint32_t password; /* bit k: action of step k */
};

/* State of an environment; tasks use some of the fields. */
struct sanity_env {
    int32_t step, count; /* steps so far; a count of actions or of steps left */
    uint32_t bits;       /* actions given or expected */
    int32_t number;      /* observed cue */
};

#define ENV(task) struct sanity_env *task, const void *memory, struct generator *generator
#define PLAYED(task) struct sanity_env *task, const void *memory, struct generator *generator, int choice, double *reward
#define SHOWN(task) const struct sanity_env *task, const void *memory, float *seen
#define SETTINGS const struct sanity_settings *settings = memory

static inline void clear_env(struct sanity_env *env) { *env = (struct sanity_env){0}; }
static inline int bit_of(uint32_t bits, int k) { return bits >> (k & 31) & 1; }

static inline void begin_empty(ENV(env))
{
    (void)memory, (void)generator;
    clear_env(env);
}

static inline void show_one(const void *state, const void *memory, float *seen)
{
    (void)state, (void)memory;
    seen[0] = 1;
}

/* Password: one bit per step. */
#define PASSWORD_BITS 5
static inline int play_password(PLAYED(env))
{
    SETTINGS;
    (void)generator;
    env->bits |= (uint32_t)choice << (env->step & 31);
    const int over = ++env->step >= PASSWORD_BITS;
    *reward = over && env->bits == settings->password;
    return over;
}

static inline void show_password(SHOWN(env))
{
    (void)memory;
    for (int k = 0; k < PASSWORD_BITS; k++) seen[k] = k < env->step ? (float)bit_of(env->bits, k) : -1;
}

/* Blend: a given number of `steps` actions must be 0. */
static inline int play_blend(PLAYED(env))
{
    SETTINGS;
    (void)generator;
    env->count += !choice;
    const int over = ++env->step >= settings->steps;
    *reward = over && env->count == settings->zeros;
    return over;
}

/* Delay: the first action is rewarded in the last step. */
#define DELAY_NUMBERS 8
static inline void begin_delay(ENV(env))
{
    (void)memory;
    clear_env(env);
    env->number = (int32_t)draw_integer(generator, 0, DELAY_NUMBERS);
}

static inline int play_delay(PLAYED(env))
{
    SETTINGS;
    (void)generator;
    if (!env->step) env->bits = choice == env->number % 2;
    const int over = env->step >= settings->delay;
    *reward = over && env->bits;
    env->step++;
    return over;
}

static inline void show_delay(SHOWN(env))
{
    SETTINGS;
    for (int k = 0; k < DELAY_NUMBERS; k++) seen[k] = !env->step && k == env->number;
    seen[DELAY_NUMBERS] = env->step < settings->delay ? (float)((double)env->step / settings->delay) : 1;
}

/* Cutoff: after an opening, leave or stay; staying is truncated by the vector, or terminates here with `terminates`. */
#define OPENING 2
static inline int play_cutoff(PLAYED(env))
{
    SETTINGS;
    (void)generator;
    const int step = env->step++, left = env->count;
    if (step == OPENING) env->count = !choice;
    if (step < OPENING) *reward = settings->opening;
    else *reward = left ? 0 : env->count ? settings->leave : settings->stay;
    return left || (settings->terminates && env->step == OPENING + settings->steps);
}

static inline void show_cutoff(SHOWN(env))
{
    (void)memory;
    const int at = env->step < OPENING ? 0 : env->count ? 3 : env->step == OPENING ? 1 : 2;
    for (int k = 0; k < 4; k++) seen[k] = k == at;
}

/* Copy: repeat observed digits after a delay. */
static inline void begin_digits(ENV(env))
{
    SETTINGS;
    clear_env(env);
    for (int k = 0; k < settings->digits; k++) env->bits |= (uint32_t)draw_integer(generator, 0, 2) << k;
}

static inline int play_copy(PLAYED(env))
{
    SETTINGS;
    (void)generator;
    const int asked = env->step - settings->digits - settings->delay;
    *reward = asked >= 0 && choice == bit_of(env->bits, asked) ? 1.0 / settings->digits : 0;
    return ++env->step >= 2 * settings->digits + settings->delay;
}

static inline void show_copy(SHOWN(env))
{
    SETTINGS;
    seen[0] = env->step < settings->digits ? (float)(2 * bit_of(env->bits, env->step) - 1) : 0;
    seen[1] = env->step >= settings->digits + settings->delay;
}

/* Forget: report in the last step whether there was a signal; `count` steps are left. */
static inline void begin_forget(ENV(env))
{
    SETTINGS;
    struct bits bits = bits_of(generator);
    clear_env(env);
    env->number = (int32_t)draw_integer(generator, 0, 2);
    const int64_t more = settings->geometric(&bits, settings->end);
    env->count = more < settings->steps ? 1 + (int32_t)more : settings->steps;
}

static inline int play_forget(PLAYED(env))
{
    (void)generator, (void)memory;
    env->step = 1;
    const int over = --env->count <= 0;
    *reward = over && choice == env->number;
    return over;
}

static inline void show_forget(SHOWN(env))
{
    (void)memory;
    seen[0] = env->step ? 0 : (float)env->number;
}

/* Recall: report a cue after a delay. */
static inline void begin_recall(ENV(env))
{
    (void)memory;
    clear_env(env);
    env->number = (int32_t)draw_integer(generator, 0, 2);
}

static inline int play_recall(PLAYED(env))
{
    SETTINGS;
    (void)generator;
    const int asked = env->step > settings->delay;
    *reward = asked ? choice == (env->number & 1) ? 1 : -1 : 0;
    env->step++;
    return asked;
}

static inline void show_recall(SHOWN(env))
{
    SETTINGS;
    seen[0] = env->step ? 0 : (float)(2 * (env->number & 1) - 1);
    seen[1] = env->step == settings->delay + 1;
}

#define SANITY_TASK(task, begin, show, shown, most_choices)                                                            \
    GAME_OF(                                                                                                           \
        sanity_##task, struct sanity_env, begin, play_##task, show, .choices = most_choices, .observations = shown,    \
        .row_bytes = (shown) * sizeof(float)                                                                           \
    )

SANITY_TASK(password, begin_empty, show_password, PASSWORD_BITS, 2)
SANITY_TASK(blend, begin_empty, show_one, 1, 2)
SANITY_TASK(delay, begin_delay, show_delay, DELAY_NUMBERS + 1, 2)
SANITY_TASK(cutoff, begin_empty, show_cutoff, 4, 2)
SANITY_TASK(copy, begin_digits, show_copy, 2, 2)
SANITY_TASK(forget, begin_forget, show_forget, 1, 2)
SANITY_TASK(recall, begin_recall, show_recall, 2, 2)

/* Squared: walk from the centre of a grid to a target on its rim. */
#define SQUARED_SIDE 7
#define ROW_SQUARED (SQUARED_SIDE * SQUARED_SIDE * sizeof(float))

struct sanity_squared { /* x, y */
    uint8_t at[2], target[2], moves;
};

#define DISTANCE (SQUARED_SIDE / 2)
#define RIM (4 * (SQUARED_SIDE - 1)) /* cells */

static int far_of(int x, int y)
{
    const int across = x < 0 ? -x : x, up = y < 0 ? -y : y;
    return across > up ? across : up;
}

static void centre(struct sanity_squared *game) { game->at[0] = game->at[1] = DISTANCE; }

/* Cells of the rim are ordered by x, then y. */
static void begin_sanity_squared(struct sanity_squared *game, const void *settings, struct generator *generator)
{
    (void)settings;
    const int cell = (int)draw_integer(generator, 0, RIM), sides = cell - SQUARED_SIDE, last = SQUARED_SIDE - 1;
    const int x = sides < 0 ? 0 : sides < 2 * (last - 1) ? 1 + sides / 2 : last;
    const int y = sides < 0 ? cell : sides < 2 * (last - 1) ? sides % 2 * last : sides - 2 * (last - 1);
    *game = (struct sanity_squared){.target = {(uint8_t)x, (uint8_t)y}};
    centre(game);
}

static int play_sanity_squared(
    struct sanity_squared *game, const void *settings, struct generator *generator, int choice, double *reward
)
{
    static const int8_t moves[][2] = {{0, -1}, {0, 1}, {-1, 0}, {1, 0}, {1, -1}, {-1, -1}, {1, 1}, {-1, 1}};
    (void)settings, (void)generator;
    const int x = game->at[0] + moves[choice][0], y = game->at[1] + moves[choice][1];
    *reward = 1 - (double)far_of(x - game->target[0], y - game->target[1]) / DISTANCE;
    game->at[0] = (uint8_t)x, game->at[1] = (uint8_t)y;
    if (far_of(x - DISTANCE, y - DISTANCE) >= DISTANCE) centre(game);
    return ++game->moves == DISTANCE;
}

static void show_sanity_squared(const struct sanity_squared *game, const void *settings, unsigned char *row)
{
    const float one = 1, minus = -1;
    (void)settings;
    memset(row, 0, ROW_SQUARED);
    memcpy(row + sizeof one * (SQUARED_SIDE * game->target[0] + game->target[1]), &one, sizeof one);
    memcpy(row + sizeof one * (SQUARED_SIDE * game->at[0] + game->at[1]), &minus, sizeof minus);
}

GAME(sanity_squared, .choices = 8, .row_bytes = ROW_SQUARED)

/* Bandit: episodes of one step; one arm gives a reward. */
struct sanity_noisy_bandit {
    uint8_t nothing;
};

static void begin_bandit(struct sanity_noisy_bandit *game, const void *settings, struct generator *generator)
{
    (void)settings, (void)generator;
    game->nothing = 0;
}

static int play_bandit(
    struct sanity_noisy_bandit *game, const void *memory, struct generator *generator, int choice, double *reward
)
{
    const struct sanity_settings *settings = memory;
    struct bits bits = bits_of(generator);
    (void)game;
    *reward = choice == settings->arm;
    if (settings->noise != 0) *reward += settings->noise * settings->normal(&bits);
    return 1;
}

GAME_OF(
    sanity_noisy_bandit, struct sanity_noisy_bandit, begin_bandit, play_bandit, show_one, .choices = 10,
    .observations = 1, .row_bytes = sizeof(float)
)
