/* Whole episodes of many networks: what `play` of algos/learning/episodes.py does, without leaving native code. */

#ifndef PADDOCK_ROLLOUT_H
#define PADDOCK_ROLLOUT_H

#include "features.h"
#include "runtime/native.h"

enum { HEAD_DISCRETE, HEAD_BOUNDED, HEAD_CLIPPED };

/* E episodes of M networks with P parameters each, laid out as in `MLP`; envs/native/rollout.py has the same fields. */
struct rollout {
    const struct task *task;
    const void *settings;
    const float *parameters;         /* [M, P]; where observations are rows of bytes, laid out as for `struct forward` */
    int64_t members, episodes, num_parameters, limit; /* limit: steps of an episode, 0 for none */
    const int64_t *seeds;            /* [E] */
    const int32_t *member;           /* [E] row of parameters */
    const uint8_t *observe;          /* [E] whether the moments of its observations are wanted */
    const int32_t *sizes;            /* [layers + 1] widths from observation to output */
    const float *low, *high;         /* [A] bounds of actions; not for choices */
    const float *mean, *std;         /* [O] of observations; NULL: they are taken as they are */
    const struct features *features; /* of observations that are rows of bytes; else NULL */
    int32_t layers, relu, head, threads; /* relu: or else tanh */
    float clip;                      /* of normalized observations, in deviations */
    double *returns;                 /* [E]; NaN: an action was not finite, which ended the episode */
    int64_t *lengths;                /* [E] */
    double *moment_mean, *moment_m2; /* [E, O], where they are wanted */
};

/* Play episodes from `next` on, until others or oneself have begun the last; several threads may share `next`.
 * 0, or -1: no memory, and none was begun. */
typedef int play_part(const struct rollout *rollout, int64_t *next);

/* The next episode that nobody has begun, or -1: there is none. */
static inline int64_t take_episode(const struct rollout *rollout, int64_t *next)
{
    int64_t episode = __atomic_load_n(next, __ATOMIC_RELAXED);
    if (episode < rollout->episodes) episode = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
    return episode < rollout->episodes ? episode : -1;
}

/* Play all episodes; what one gives depends on its seed and its parameters alone. 0, or -1: no memory. */
int play_episodes(const struct rollout *rollout);

#endif
