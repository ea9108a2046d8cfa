/* A dense policy and its value, and how they learn: what algos/networks/dense/compiled.py has too.
 *
 * Three chains of layers: a trunk, which may be empty, then the policy's and the value's on what it gives. Flat vectors
 * are in torch's order: log standard deviations, then of each layer its weights [out, in] and its bias. */

#ifndef PADDOCK_DENSE_H
#define PADDOCK_DENSE_H

#include <stdint.h>

#define DENSE_ABI 1 /* goes up with every change that library.py must know of */
#define CHAINS 3
#define MOST_PARTS 16   /* that a minibatch is cut into */
#define BLOCK 32        /* rows that are computed together, and the fewest of a part */
#define CHUNK 16        /* rows of weights whose squares are summed together */
#define REPORTED 6      /* policy loss, value loss, entropy, divergence, clipped share, gradient norm */

struct network {
    const int32_t *sizes; /* widths from input to output of the trunk, the policy and the value, one after another */
    const int32_t *choices; /* [components] of an action: so many choices, or 0 for a number drawn from a Gaussian */
    const int32_t *leaf;    /* [components], which leaf of the action space each belongs to */
    int32_t layers[CHAINS];
    int32_t relu;       /* or else tanh, behind every layer but those that give outputs and values */
    int32_t masked;     /* whether behind the numbers of an observation lies which outputs are legal */
    int32_t components, log_stds;
};

/* R observations and what is known of them. */
struct evaluation {
    const float *parameters;  /* [P] */
    const float *observation; /* [R, numbers], or [R, numbers + outputs] */
    const float *action;      /* [R, components], or NULL */
    float *value, *logprob;   /* [R]; of actions, if there are any, before squashing */
    int64_t rows;
    int32_t threads;
};

/* One pass over minibatches: the clipped surrogate of Schulman et al. 2017, and Adam. */
struct update {
    float *parameters, *momentum, *variance; /* [P] */
    const float *observation;                /* [R, ...] */
    const float *action;                     /* [R, components] */
    const float *logprob, *advantage, *target, *value, *slope; /* [R]; slope: of squashing, taken from log-densities */
    const int64_t *order;            /* rows as minibatches take them, one after another */
    const int64_t *ends;             /* [minibatches], where each ends in that order */
    const float *rates, *deviations; /* [minibatches], of Adam: rate / (1 - b1^t), 1 / sqrt(1 - b2^t) */
    double *report;                  /* [minibatches, REPORTED] */
    int64_t minibatches;
    float clip, value_clip, value_coef, entropy_coef, max_norm; /* value_clip, max_norm: negative for none */
    float epsilon, momentum_decay, variance_decay; /* of Adam */
    int32_t normalize_advantages, threads;
};

/* 0, or -1: no memory. */
typedef int evaluate_part(const struct network *network, const struct evaluation *evaluation);
typedef int update_part(const struct network *network, const struct update *update);

struct dense_set {
    const char *name;
    evaluate_part *evaluate;
    update_part *update;
};

/* NULL where the compiler has not got the set. */
extern const struct dense_set *const baseline_dense, *const avx2_dense, *const avx512_dense;

const struct dense_set *find_dense(const char *name); /* NULL: there is none of the name */

/* Threads that start together and wait for each other. */
struct team {
    int size;
    volatile int waiting, round;
    double waited; /* seconds, by the first of them */
};

typedef void team_work(void *job, int member);

/* Run work(job, 0 .. size - 1), the first on the calling thread; members that could not be had leave all to fewer. */
void run_team(struct team *team, int threads, team_work *work, void *job);
void meet(struct team *team, int member);
double seconds(void); /* of a clock that only goes forward */

#endif
