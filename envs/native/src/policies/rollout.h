/* Whole episodes of many networks, as `play` of algos/learning/episodes.py, in native code. */

#pragma once

#include "features.h"
#include "runtime/native.h"

enum { HEAD_DISCRETE, HEAD_BOUNDED, HEAD_CLIPPED };

/* E episodes of M networks with P parameters each, laid out as in `MLP`; envs/native/rollout.py has the same fields. */
struct rollout {
    const struct task *task;
    const void *settings;
    const float *parameters;         /* [M, P]; for rows of bytes laid out as in `struct forward` */
    int64_t members, episodes, num_parameters, limit; /* limit: steps per episode, 0 for none */
    const int64_t *seeds;            /* [E] */
    const int32_t *member;           /* [E] row of parameters */
    const uint8_t *observe;          /* [E] whether to compute moments of observations */
    const int32_t *sizes;            /* [layers + 1] widths from observation to output */
    const float *low, *high;         /* [A] bounds of continuous actions */
    const float *mean, *std;         /* [O] of observations; NULL: no normalization */
    const struct features *features; /* for rows of bytes; else NULL */
    int32_t layers, relu, head, threads; /* relu: else tanh */
    float clip;                      /* of normalized observations, in standard deviations */
    double *returns;                 /* [E]; NaN if a non-finite action ended the episode */
    int64_t *lengths;                /* [E] */
    double *moment_mean, *moment_m2; /* [E, O], where `observe` is set */
};

/* Play episodes until all have started; threads share the counter `next`. Return 0, or -1 if out of memory (then none
 * was started). */
typedef int play_fn(const struct rollout *rollout, int64_t *next);

/* Return the next episode to start, or -1 if there is none. */
static inline int64_t take_episode(const struct rollout *rollout, int64_t *next)
{
    int64_t episode = __atomic_load_n(next, __ATOMIC_RELAXED);
    if (episode < rollout->episodes) episode = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
    return episode < rollout->episodes ? episode : -1;
}

/* Play all episodes; each depends only on its seed and parameters. Return 0, or -1 if out of memory. */
int play_episodes(const struct rollout *rollout);
