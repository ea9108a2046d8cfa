/* MinAtar (Young and Tian 2019, arXiv:1903.03176), with the rules of docs/benchmarks/minatar.md. MINATAR registers a game
 * with its minimal action set and, as `minatar_GAME_full`, with all six actions, given `struct GAME` with a
 * member `uint8_t last_action`, and three functions:
 *
 *   begin_GAME(state, settings, generator)                    start an episode
 *   act_GAME(state, rules, generator, action, &reward)        apply one of the six actions; return whether it is over
 *   show_GAME(state, row)                                     set the observation's ones in a row of zeros */

#pragma once

#include "games/game.h"

#define SIDE 10
#define CELLS (SIDE * SIDE)

enum { STAY, LEFT, UP, RIGHT, DOWN, FIRE, ACTIONS };

struct minatar_settings {
    double sticky_action_prob;
    int32_t difficulty_ramping;
};

static inline int inside(int x) { return x >= 0 && x < SIDE; }
static inline int tick(int timer) { return timer - (timer > 0); }

#define MINATAR(game, channels, ...)                                                                                   \
    static const uint8_t game##_actions[] = {__VA_ARGS__};                                                             \
    static int play_##game##_full(                                                                                     \
        struct game *state, const void *settings, struct generator *generator, int choice, double *reward              \
    )                                                                                                                  \
    {                                                                                                                  \
        const struct minatar_settings *rules = settings;                                                               \
        if (draw(generator) >= rules->sticky_action_prob) state->last_action = (uint8_t)choice;                        \
        *reward = 0;                                                                                                   \
        return act_##game(state, rules, generator, state->last_action, reward);                                        \
    }                                                                                                                  \
    static int play_##game(                                                                                            \
        struct game *state, const void *settings, struct generator *generator, int choice, double *reward              \
    )                                                                                                                  \
    {                                                                                                                  \
        return play_##game##_full(state, settings, generator, game##_actions[choice], reward);                         \
    }                                                                                                                  \
    static void show_all_##game(const struct game *state, const void *settings, unsigned char *row)                    \
    {                                                                                                                  \
        (void)settings;                                                                                                \
        memset(row, 0, CELLS * (channels));                                                                            \
        show_##game(state, row);                                                                                       \
    }                                                                                                                  \
    GAME_OF(                                                                                                           \
        minatar_##game, struct game, begin_##game, play_##game, show_all_##game, .choices = sizeof game##_actions,     \
        .row_bytes = CELLS * (channels)                                                                                \
    )                                                                                                                  \
    GAME_OF(                                                                                                           \
        minatar_##game##_full, struct game, begin_##game, play_##game##_full, show_all_##game, .choices = ACTIONS,     \
        .row_bytes = CELLS * (channels)                                                                                \
    )
