/* Rollouts of T steps with one stochastic policy; results depend neither on threads nor on the order of groups. */

#pragma once

#include "policies/features.h"
#include "vector.h"

/* SAMPLE_SOFT: W = 2A, means, then log standard deviations. SAMPLE_TANH: noise is added to the tanh of outputs. */
enum { SAMPLE_CHOICE, SAMPLE_CLIPPED, SAMPLE_SQUASHED, SAMPLE_SOFT, SAMPLE_TANH };

/* W outputs, A numbers in an action, O in an observation; envs/native/steps.py has the same fields. */
struct steps {
    const float *weights;    /* of the policy's layers, laid out as in `struct forward` */
    const int32_t *sizes;    /* [layers + 1] widths from observation to outputs */
    const struct features *features; /* for rows of bytes; else NULL */
    const float *mean, *std; /* [O] of observations; NULL: no normalization */
    const float *log_std, *deviation, *inverse; /* [A] of a Gaussian: log std, std, 1 / std */
    const float *low, *half, *high, *log_half;  /* [A] bounds, half the distance between them, its logarithm */
    const float *noise;                /* [T, N, W]; for continuous actions [T, N, A] */
    unsigned char *observation;        /* [T + 1, N, O] float, or rows of bytes */
    void *action;                      /* [T, N] int64_t, or [T, N, A] float: as sampled */
    float *logprob, *reward;           /* [T, N]; log-probabilities are 0 for soft and tanh actions */
    uint8_t *terminated, *truncated;   /* [T, N]; truncated: and not terminated */
    double *final_return;              /* [T, N], where an episode ended */
    int64_t *final_length;             /* [T, N], where an episode ended */
    unsigned char *final;              /* [T, N, O], where an episode was truncated */
    int64_t count;                     /* T */
    int32_t layers, relu, sampling;     /* relu: else tanh between layers */
    int32_t numbers;                   /* A; 0 for discrete actions */
    float clip;                        /* of normalized observations, in standard deviations */
    /* Set by the call. */
    int64_t invalid;                   /* t * N + n of the first invalid action; INT64_MAX: none */
    int32_t failed;                    /* out of memory */
    uint64_t policy_ticks, env_ticks;  /* CPU clock ticks of all threads */
};

/* Argument of `play_steps`. */
struct steps_job {
    struct steps *steps;
    const struct rows *rows;
};

/* Play from the current state with same-step autoreset. Return -1; the environment of the first invalid action (others
 * may have stepped further); or -2 if out of memory. */
int64_t vector_play(struct vector *vector, struct steps *steps, const struct rows *rows);
