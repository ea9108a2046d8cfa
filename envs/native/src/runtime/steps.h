/* T steps of a vector's environments by one policy: numbers that depend neither on threads nor on the order of groups. */

#ifndef PADDOCK_STEPS_H
#define PADDOCK_STEPS_H

#include "policies/features.h"
#include "vector.h"

/* SAMPLE_SOFT: W = 2A, behind the means their log standard deviations. SAMPLE_TANH: noise comes onto the tanh of outputs. */
enum { SAMPLE_CHOICE, SAMPLE_CLIPPED, SAMPLE_SQUASHED, SAMPLE_SOFT, SAMPLE_TANH };

/* W outputs, A numbers in an action, O in an observation; envs/native/steps.py has the same fields. */
struct steps {
    const float *weights;    /* of the policy's layers, laid out as for `struct forward` */
    const int32_t *sizes;    /* [layers + 1] widths from observation to outputs */
    const struct features *features; /* of observations that are rows of bytes; else NULL */
    const float *mean, *std; /* [O] of observations; NULL: they are taken as they are */
    const float *log_std, *deviation, *inverse; /* [A] of a Gaussian: its logarithm, itself, one over it */
    const float *low, *half, *high, *log_half;  /* [A] bounds of numbers, half the width between them, its logarithm */
    const float *noise;                /* [T, N, W], or of numbers [T, N, A] */
    unsigned char *observation;        /* [T + 1, N, O] float, or rows of bytes */
    void *action;                      /* [T, N] int64_t choices, or [T, N, A] float: as drawn */
    float *logprob, *reward;           /* [T, N]; log-probabilities are 0 of soft and tanh actions */
    uint8_t *terminated, *truncated;   /* [T, N]; truncated: and not terminated */
    double *final_return;              /* [T, N], where an episode ended */
    int64_t *final_length;             /* [T, N], likewise */
    unsigned char *final;              /* [T, N, O] likewise, where an episode was truncated */
    int64_t count;                     /* T */
    int32_t layers, relu, sampling;     /* relu: or else tanh between layers */
    int32_t numbers;                   /* A; 0 of choices */
    float clip;                        /* of normalized observations, in deviations */
    /* Set by the call. */
    int64_t invalid;                   /* t * N + n of the first action that is none; INT64_MAX: there is none such */
    int32_t failed;                    /* no memory */
    uint64_t policy_ticks, env_ticks;  /* of all threads, of the processor's clock */
};

/* The job of `play_steps`, a part of each width. */
struct steps_job {
    struct steps *steps;
    const struct rows *rows;
};

/* Play from where the vector is, which same-step restarts keep going. -1; or the environment of the first action that is
 * none, where others may have stepped on; or -2: no memory. */
int64_t vector_play(struct vector *vector, struct steps *steps, const struct rows *rows);

#endif
