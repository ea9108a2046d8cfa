/* A game of several agents: its state `struct GAME` and functions of one world, whose rows are those of its seats,
 *
 *   count_GAME(settings)                                     seats, 2 to MAX_AGENTS
 *   width_GAME(settings)                                     bytes of what a seat sees
 *   start_GAME(state, settings, generator, rows)             begins an episode
 *   step_GAME(state, settings, generator, choice, rows)      plays the choices of who acts
 *
 * of which WORLD makes a task, and enters it among all tasks. Further members of `struct task` follow the name. */

#ifndef PADDOCK_MULTIAGENT_GAME_H
#define PADDOCK_MULTIAGENT_GAME_H

#include <string.h>

#include "runtime/native.h"

static inline struct agent_rows offset_rows(const struct agent_rows *rows, size_t first, size_t width)
{
    return (struct agent_rows){
        rows->observation + first * width, rows->reward + first, rows->terminated + first, rows->truncated + first,
        rows->alive + first, rows->acts + first,
    };
}

#define MULTIAGENT_GAME(game, ...)                                                                                               \
    static void start_all_##game(                                                                                      \
        void *group, const void *settings, struct generator *generators, unsigned mask, const struct agent_rows *rows   \
    )                                                                                                                  \
    {                                                                                                                  \
        for (; mask; mask &= mask - 1) {                                                                               \
            const int i = __builtin_ctz(mask);                                                                         \
            const struct agent_rows own = offset_rows(rows, i * count_##game(settings), width_##game(settings));          \
            start_##game((struct game *)group + i, settings, generators + i, &own);                                    \
        }                                                                                                              \
    }                                                                                                                  \
    static void step_all_##game(                                                                                       \
        void *group, const void *settings, struct generator *generators, unsigned mask, const int64_t *choice,         \
        const struct agent_rows *rows                                                                                   \
    )                                                                                                                  \
    {                                                                                                                  \
        for (; mask; mask &= mask - 1) {                                                                               \
            const int i = __builtin_ctz(mask), first = i * count_##game(settings);                                     \
            const struct agent_rows own = offset_rows(rows, first, width_##game(settings));                               \
            step_##game((struct game *)group + i, settings, generators + i, choice + first, &own);                     \
        }                                                                                                              \
    }                                                                                                                  \
    static const struct task game##_task = {                                                                           \
        .name = #game,                                                                                                 \
        .actions = 1,                                                                                                  \
        .group_bytes = sizeof(struct game),                                                                            \
        .seats = count_##game,                                                                                         \
        .seat_bytes = width_##game,                                                                                    \
        .start_multiagent = start_all_##game,                                                                              \
        .step_multiagent = step_all_##game,                                                                                \
        __VA_ARGS__                                                                                                    \
    };                                                                                                                 \
    REGISTER_TASK(game##_task)

#endif
