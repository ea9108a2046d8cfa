/* Bandit whose rewards have noise: envs/sanity/bandit.py has the rules. It draws in its step, where games in lanes have no
 * generator. */

#include "games/games.h"
#include "sanity_settings.h"

static void begin_sanity_noisy_bandit(
    struct sanity_noisy_bandit *game, const void *settings, struct generator *generator
)
{
    (void)settings, (void)generator;
    game->nothing = 0;
}

static int play_sanity_noisy_bandit(
    struct sanity_noisy_bandit *game, const void *memory, struct generator *generator, int choice, double *reward
)
{
    const struct sanity_settings *settings = memory;
    struct bits bits = bits_of(generator);
    (void)game;
    *reward = (choice == settings->arm) + settings->offset;
    if (settings->noise != 0) *reward += settings->noise * settings->normal(&bits);
    return 1;
}

static void show_sanity_noisy_bandit(const struct sanity_noisy_bandit *game, const void *settings, unsigned char *row)
{
    const float one = 1;
    (void)game, (void)settings;
    memcpy(row, &one, sizeof one);
}

static void mend_sanity_noisy_bandit(struct sanity_noisy_bandit *game, const void *settings)
{
    (void)settings;
    game->nothing = 0;
}

BYTE_GAME(sanity_noisy_bandit, ROW_NOISY_BANDIT)
