/* Shared code of Gymnasium's classic control tasks: a state of a few numbers, stepped one half of the lanes at a time.
 *
 * Precision and order of operations are Gymnasium's (envs/classic_control/); steps differ only in the last bits of sine
 * and cosine. */

#pragma once

#include <string.h>

#include "simd/halves.h"
#include "runtime/native.h"

#define PI 3.141592653589793
#define MAX_NUMBERS 4 /* of a state */
#define MAX_SHOWN 6   /* of an observation */

/* `marked` has bit i for lane i. CartPole: the pole has fallen. MountainCarContinuous: the state is an episode's first,
 * the only one that Gymnasium stores in double precision. */
struct classic_group {
    hd state[MAX_NUMBERS][2];
    unsigned marked;
};

/* Result of a step for one half of the lanes. */
struct outcome {
    hd state[MAX_NUMBERS], shown[MAX_SHOWN], reward;
    hl terminated;
};

typedef void half_step(
    const struct classic_settings *settings, const hd *state, hl marked, hf action, struct outcome *outcome
);
typedef void show_state(double *state, float *shown); /* observe an initial state, which it may round */

INLINE double *number(struct classic_group *group, int k, int lane)
{
    return (double *)&group->state[k][lane / HALF] + lane % HALF;
}

/* Step the lanes of the mask; return those that terminated. */
INLINE unsigned step_classic(
    struct classic_group *group, const struct classic_settings *settings, unsigned mask, const float *action,
    float *observation, double *reward, int numbers, int shown, half_step *step
)
{
    hl ended[2];
    for (int h = 0; h < 2; h++) {
        hd state[MAX_NUMBERS];
        struct outcome outcome;
        for (int k = 0; k < numbers; k++) state[k] = group->state[k][h];
        step(settings, state, from_bits_h(group->marked, h), load_h(action, h), &outcome);
        if (mask != ALL_LANES) {
            hl chosen = from_bits_h(mask, h);
            for (int k = 0; k < numbers; k++) outcome.state[k] = pick_h(chosen, outcome.state[k], state[k]);
            for (int k = 0; k < shown; k++)
                outcome.shown[k] = pick_h(chosen, outcome.shown[k], widen_h(load_h(observation + k * LANES, h)));
            outcome.reward = pick_h(chosen, outcome.reward, ((hd *)reward)[h]);
        }
        for (int k = 0; k < numbers; k++) group->state[k][h] = outcome.state[k];
        for (int k = 0; k < shown; k++) store_h(observation + k * LANES, h, outcome.shown[k]);
        ((hd *)reward)[h] = outcome.reward;
        ended[h] = outcome.terminated;
    }
    return to_bits_h(ended) & mask;
}

/* Sample the first `drawn` numbers of the state as Generator.uniform(low, high) does; the others are 0. */
INLINE void start_classic(
    struct classic_group *group, struct generator *generators, unsigned mask, float *observation, int numbers,
    int shown, int drawn, const double *low, const double *high, show_state *show
)
{
    for (; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask);
        double state[MAX_NUMBERS] = {0};
        float seen[MAX_SHOWN];
        for (int k = 0; k < drawn; k++) state[k] = draw_uniform(&generators[lane], low[k], high[k]);
        show(state, seen);
        for (int k = 0; k < numbers; k++) *number(group, k, lane) = state[k];
        for (int k = 0; k < shown; k++) observation[k * LANES + lane] = seen[k];
    }
}

/* Save the state in Gymnasium's order, then the mark, as doubles. */
INLINE void save_classic(struct classic_group *group, int lane, void *saved, int numbers)
{
    double all[MAX_NUMBERS + 1];
    for (int k = 0; k < numbers; k++) all[k] = *number(group, k, lane);
    all[numbers] = group->marked >> lane & 1;
    memcpy(saved, all, (numbers + 1) * sizeof *all);
}

INLINE void load_classic(struct classic_group *group, int lane, const void *saved, int numbers)
{
    double all[MAX_NUMBERS + 1];
    memcpy(all, saved, (numbers + 1) * sizeof *all);
    for (int k = 0; k < numbers; k++) *number(group, k, lane) = all[k];
    group->marked = (group->marked & ~(1u << lane)) | (unsigned)(all[numbers] != 0) << lane;
}

/* Define step_... and start_... of a task without a mark, with `drawn` numbers sampled between low and high. */
#define CLASSIC_STEPS(which, numbers, shown, drawn, low, high, show)                                                   \
    static unsigned step_##which(                                                                                      \
        void *group, const void *settings, unsigned mask, const float *action, float *observation, double *reward      \
    )                                                                                                                  \
    {                                                                                                                  \
        return step_classic(group, settings, mask, action, observation, reward, numbers, shown, step_##which##_half);  \
    }                                                                                                                  \
    static void start_##which(                                                                                         \
        void *group, const void *settings, struct generator *generators, unsigned mask, float *observation             \
    )                                                                                                                  \
    {                                                                                                                  \
        (void)settings;                                                                                                \
        start_classic(group, generators, mask, observation, numbers, shown, drawn, low, high, show);                   \
    }

/* Define save_..., load_... and the task, given start_... and step_.... */
#define CLASSIC_TASK(which, numbers, shown, most_choices)                                                              \
    static void save_##which(const void *group, int lane, void *saved)                                                 \
    {                                                                                                                  \
        save_classic((struct classic_group *)group, lane, saved, numbers);                                             \
    }                                                                                                                  \
    static void load_##which(void *group, const void *settings, int lane, const void *saved)                           \
    {                                                                                                                  \
        (void)settings;                                                                                                \
        load_classic(group, lane, saved, numbers);                                                                     \
    }                                                                                                                  \
    static const struct task which##_task = {                                                                          \
        .name = #which,                                                                                                \
        .lanes = LANES,                                                                                                \
        .observations = shown,                                                                                         \
        .actions = 1,                                                                                                  \
        .choices = most_choices,                                                                                       \
        .group_bytes = sizeof(struct classic_group),                                                                   \
        .saved_bytes = (numbers + 1) * sizeof(double),                                                                 \
        .start = start_##which,                                                                                        \
        .step = step_##which,                                                                                          \
        .save = save_##which,                                                                                          \
        .load = load_##which,                                                                                          \
    };
