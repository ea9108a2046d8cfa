/* Multi-agent games. MULTIAGENT_GAME defines and registers a task, given `struct GAME` and four functions:
 *
 *   count_GAME(settings)                                     return the number of agents, 2 to MAX_AGENTS
 *   width_GAME(settings)                                     return the bytes of an agent's observation
 *   start_GAME(state, settings, generator, rows)             start an episode
 *   step_GAME(state, settings, generator, choice, rows)      play the actions of the agents that act
 *
 * Further members of `struct task` follow the name. */

#pragma once

#include <string.h>

#include "runtime/native.h"

static inline struct agent_rows offset_rows(const struct agent_rows *rows, size_t first, size_t width)
{
    return (struct agent_rows){
        rows->observation + first * width, rows->reward + first, rows->terminated + first, rows->truncated + first,
        rows->alive + first, rows->acts + first,
    };
}

#define MULTIAGENT_GAME(game, ...)                                                                                     \
    static void start_all_##game(                                                                                      \
        void *group, const void *settings, struct generator *generators, unsigned mask, const struct agent_rows *rows  \
    )                                                                                                                  \
    {                                                                                                                  \
        for (; mask; mask &= mask - 1) {                                                                               \
            const int i = __builtin_ctz(mask);                                                                         \
            const struct agent_rows own = offset_rows(rows, i * count_##game(settings), width_##game(settings));       \
            start_##game((struct game *)group + i, settings, generators + i, &own);                                    \
        }                                                                                                              \
    }                                                                                                                  \
    static void step_all_##game(                                                                                       \
        void *group, const void *settings, struct generator *generators, unsigned mask, const int64_t *choice,         \
        const struct agent_rows *rows                                                                                  \
    )                                                                                                                  \
    {                                                                                                                  \
        for (; mask; mask &= mask - 1) {                                                                               \
            const int i = __builtin_ctz(mask), first = i * count_##game(settings);                                     \
            const struct agent_rows own = offset_rows(rows, first, width_##game(settings));                            \
            step_##game((struct game *)group + i, settings, generators + i, choice + first, &own);                     \
        }                                                                                                              \
    }                                                                                                                  \
    static const struct task game##_task = {                                                                           \
        .name = #game,                                                                                                 \
        .actions = 1,                                                                                                  \
        .group_bytes = sizeof(struct game),                                                                            \
        .agents = count_##game,                                                                                        \
        .agent_bytes = width_##game,                                                                                   \
        .start_multiagent = start_all_##game,                                                                          \
        .step_multiagent = step_all_##game,                                                                            \
        __VA_ARGS__                                                                                                    \
    };                                                                                                                 \
    REGISTER_TASK(game##_task)
