/* Games whose observations are a few floats, one lane after another: what is left to write of one is its state and
 *
 *   begin(state, settings, generator)           where an episode begins
 *   play(state, settings, choice, &reward)      whether it is over
 *   show(state, settings, seen)                 the numbers of its observation
 *   mend(state, settings)                       what was not saved by this code is made one to go on from
 *
 * and LANE_GAME makes a task of them. Networks run in the lanes beside it, as in those of the classic tasks. */

#ifndef PADDOCK_LANE_GAME_H
#define PADDOCK_LANE_GAME_H

#include "game.h"
#include "simd/lanes.h"

#define LANE_GAME(game, type, begin, play, show, mend, shown, most_choices)                                            \
    INLINE void show_lane_##game(const type *state, const void *settings, int lane, float *observation)                \
    {                                                                                                                  \
        float seen[shown];                                                                                             \
        show(state, settings, seen);                                                                                   \
        for (int k = 0; k < (shown); k++) observation[k * LANES + lane] = seen[k];                                     \
    }                                                                                                                  \
    static void start_##game(                                                                                          \
        void *group, const void *settings, struct generator *generators, unsigned mask, float *observation             \
    )                                                                                                                  \
    {                                                                                                                  \
        type *state = group;                                                                                           \
        for (; mask; mask &= mask - 1) {                                                                               \
            const int i = __builtin_ctz(mask);                                                                         \
            begin(state + i, settings, generators + i);                                                                \
            show_lane_##game(state + i, settings, i, observation);                                                     \
        }                                                                                                              \
    }                                                                                                                  \
    static unsigned step_##game(                                                                                       \
        void *group, const void *settings, unsigned mask, const float *action, float *observation, double *reward      \
    )                                                                                                                  \
    {                                                                                                                  \
        type *state = group;                                                                                           \
        unsigned ended = 0;                                                                                            \
        for (; mask; mask &= mask - 1) {                                                                               \
            const int i = __builtin_ctz(mask);                                                                         \
            ended |= (unsigned)play(state + i, settings, (int)action[i], reward + i) << i;                             \
            show_lane_##game(state + i, settings, i, observation);                                                     \
        }                                                                                                              \
        return ended;                                                                                                  \
    }                                                                                                                  \
    static void save_##game(const void *group, int lane, void *saved)                                                  \
    {                                                                                                                  \
        memcpy(saved, (const type *)group + lane, sizeof(type));                                                       \
    }                                                                                                                  \
    static void load_##game(void *group, const void *settings, int lane, const void *saved)                            \
    {                                                                                                                  \
        type *state = (type *)group + lane;                                                                            \
        memcpy(state, saved, sizeof *state);                                                                           \
        mend(state, settings);                                                                                         \
    }                                                                                                                  \
    static const struct task game##_task = {                                                                           \
        .name = #game,                                                                                                 \
        .kind = KIND_GAME,                                                                                             \
        .lanes = LANES,                                                                                                \
        .observations = shown,                                                                                         \
        .actions = 1,                                                                                                  \
        .choices = most_choices,                                                                                       \
        .group_bytes = LANES * sizeof(type),                                                                           \
        .saved_bytes = sizeof(type),                                                                                   \
        .start = start_##game,                                                                                         \
        .step = step_##game,                                                                                           \
        .save = save_##game,                                                                                           \
        .load = load_##game,                                                                                           \
    };

#endif
