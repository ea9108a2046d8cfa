/* Single-agent games. GAME defines and registers a task, given `struct GAME` and three functions:
 *
 *   begin_GAME(state, settings, generator)                   start an episode
 *   play_GAME(state, settings, generator, choice, &reward)   play an action; return whether the episode is over
 *   show_GAME(state, settings, row)                          write every byte of the observation */

#pragma once

#include <string.h>

#include "runtime/native.h"

static inline int bounded(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

#define GAME(game, ...) GAME_OF(game, struct game, begin_##game, play_##game, show_##game, __VA_ARGS__)

/* As GAME, with explicit names of the functions and the state; further members of `struct task` follow. */
#define GAME_OF(game, type, begin, play, show, ...)                                                                    \
    static void start_all_##game(                                                                                      \
        void *group, const void *settings, struct generator *generators, unsigned mask, unsigned char *rows            \
    );                                                                                                                 \
    static unsigned step_all_##game(                                                                                   \
        void *group, const void *settings, struct generator *generators, unsigned mask, const int64_t *choice,         \
        unsigned char *rows, double *reward                                                                            \
    );                                                                                                                 \
    static const struct task game##_task = {                                                                           \
        .name = #game,                                                                                                 \
        .actions = 1,                                                                                                  \
        .group_bytes = sizeof(type),                                                                                   \
        .saved_bytes = sizeof(type),                                                                                   \
        .start_rows = start_all_##game,                                                                                \
        .step_rows = step_all_##game,                                                                                  \
        __VA_ARGS__                                                                                                    \
    };                                                                                                                 \
    static void start_all_##game(                                                                                      \
        void *group, const void *settings, struct generator *generators, unsigned mask, unsigned char *rows            \
    )                                                                                                                  \
    {                                                                                                                  \
        for (; mask; mask &= mask - 1) {                                                                               \
            const int i = __builtin_ctz(mask);                                                                         \
            begin((type *)group + i, settings, generators + i);                                                        \
            show((type *)group + i, settings, (void *)(rows + i * game##_task.row_bytes));                             \
        }                                                                                                              \
    }                                                                                                                  \
    static unsigned step_all_##game(                                                                                   \
        void *group, const void *settings, struct generator *generators, unsigned mask, const int64_t *choice,         \
        unsigned char *rows, double *reward                                                                            \
    )                                                                                                                  \
    {                                                                                                                  \
        unsigned ended = 0;                                                                                            \
        for (; mask; mask &= mask - 1) {                                                                               \
            const int i = __builtin_ctz(mask);                                                                         \
            const int over = play((type *)group + i, settings, generators + i, (int)choice[i], reward + i);            \
            ended |= (unsigned)over << i;                                                                              \
            show((type *)group + i, settings, (void *)(rows + i * game##_task.row_bytes));                             \
        }                                                                                                              \
        return ended;                                                                                                  \
    }                                                                                                                  \
    REGISTER_TASK(game##_task)
