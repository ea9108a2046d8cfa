/* A dense policy and its value, and how they learn: what algos/networks/dense/compiled.py has too.
 *
 * Three chains of layers: a trunk, which may be empty, then the policy's and the value's on what it gives. Flat vectors
 * are in torch's order: log standard deviations, then of each layer its weights [out, in] and its bias. */

#ifndef PADDOCK_DENSE_H
#define PADDOCK_DENSE_H

#include <stddef.h>
#include <stdint.h>

#include "simd/sparse.h"

#define DENSE_ABI 10 /* goes up with every change that library.py must know of */
#define CHAINS 3
#define MOST_PARTS 16   /* that a minibatch is cut into */
#define BLOCK 32        /* rows that are computed together, and the fewest of a part */
#define CHUNK 16        /* rows of weights whose squares are summed together */
#define REPORTED 6      /* policy loss, value loss, entropy, divergence, clipped share, gradient norm */
#define Q_REPORTED 4    /* loss, mean value, mean target, gradient norm */

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
    const struct sparse *sparse; /* the numbers, where almost all are 0: what is legal stands alone above; or NULL */
    const float *action;      /* [R, components], or NULL */
    float *value, *logprob;   /* [R]; of actions, if there are any, before squashing */
    int64_t rows;
    int32_t threads;
};

/* One pass over minibatches: the clipped surrogate of Schulman et al. 2017, and Adam. */
struct update {
    float *parameters, *momentum, *variance; /* [P] */
    const float *observation;                /* [R, ...] */
    const struct sparse *sparse;             /* as above */
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

/* What a learner from replay is, [P] each, in flat order. */
struct vectors {
    float *parameters, *targets, *momentum, *variance;
};

/* U updates of it, one after another, by B transitions each: Q learning of Mnih et al. 2015, and Adam. */
struct q_update {
    const float *observation, *following; /* [U, B, ...]; following: what was led to */
    const struct sparse *sparse, *following_sparse; /* their numbers, of a learner that was opened for them */
    const int32_t *action;                /* [U, B] */
    const float *reward, *discount, *weight; /* [U, B]; discount: 0 where an episode terminated */
    const float *rates, *deviations;         /* [U], of Adam */
    const float *taus;                       /* [U], how far targets move after it; 0: they stay */
    float *distance;                         /* [U, B], of values from their targets */
    double *report;                          /* [U, Q_REPORTED] */
    int64_t updates, rows;
    float huber, max_norm; /* negative for none */
    float epsilon, momentum_decay, variance_decay; /* of Adam */
    int32_t double_q; /* whether the next action is chosen by the parameters, not by the targets */
    int32_t threads;
};

struct q_learner;

struct adam {
    float epsilon, momentum_decay, variance_decay;
};

/* An actor and one or two critics, and how they learn: algos/networks/dense/compiled_actor_critic.py has it too. */
struct actor_critic_settings {
    /* Widths from input to output. A soft actor gives means, then log deviations; or, where critics take no actions, the
     * scores of choices, which they value. */
    const int32_t *actor, *critic;
    int32_t actor_layers, critic_layers, critics, relu, soft, learned, target_every, actor_every, threads;
    int32_t masked; /* whether behind the numbers of an observation lies which choices are legal */
    float alpha, target_entropy, target_noise, target_noise_clip, tau;
    struct adam adam;
};

/* Transitions of several updates, `rows` each. */
struct batches {
    /* [updates, rows, ...]; an action is its numbers, or the number of a choice. */
    const float *observation, *action, *reward, *next_observation, *discount, *weight;
    const float *noise; /* [updates, rows, actions], or of a soft actor [updates, 2, rows, actions]; of choices none */
    const float *rates, *deviations;                   /* of the critics' Adam, as in struct update */
    const float *actor_rates, *actor_deviations;       /* of the updates in which the actor moves */
    float *log_alpha;                                  /* and its momentum and its variance */
    double *actor_report;                              /* actor loss and entropy of the last actor update */
    double *report;                                    /* [updates, ACTOR_CRITIC_REPORTED] */
    float *distance;                                   /* [updates, rows], of values from their targets */
    int64_t updates, rows, before;                     /* before: updates that were made already */
    int32_t threads;
};

#define ACTOR_CRITIC_REPORTED 5 /* the critics' loss, mean value, the actor's loss, alpha, entropy */

struct actor_critic;

/* An LSTM of torch's over T steps of B rows; see lstm.h. */
struct lstm {
    const float *in_weight, *state_weight, *in_bias, *state_bias; /* [4 H, inputs], [4 H, H], [4 H] */
    const float *inputs;         /* [T, B, inputs] */
    const float *state;          /* [B, 2 H], the memory before: the output, and the cell's state */
    const uint8_t *start, *acts; /* [T, B]; start: the memory is empty; acts, or NULL: if not, the memory stays */
    float *memory;               /* [T, B, 2 H], after each step */
    float *tape;                 /* as many floats as `lstm_tape` says, in whole lines of 64 bytes */
    int64_t steps, rows;
    int32_t in, width;
    int32_t kept; /* whether the tape holds all steps, so that the gradient can go back */
    int32_t threads;
};

/* Its gradient, by what it was given; the tape is used up. */
struct lstm_gradient {
    const float *memory;                                /* [T, B, 2 H], by the memory after each step */
    float *inputs, *state;                               /* as above; either may be NULL */
    float *in_weight, *state_weight, *bias;              /* as above; either bias has the same */
};

/* What learns with one set of instructions, as library.py reads it. `open` gives NULL, and others -1, without memory. */
struct dense_set {
    const char *name;
    int (*evaluate)(const struct network *network, const struct evaluation *evaluation);
    int (*update)(const struct network *network, const struct update *update);
    /* `sparse`: of observations whose numbers lie apart, as above. */
    struct q_learner *(*q_open)(const struct network *network, int sparse);
    void (*q_close)(struct q_learner *learner);
    void (*q_load)(struct q_learner *learner, const struct vectors *given);
    void (*q_save)(const struct q_learner *learner, const struct vectors *onto); /* all but parameters may be NULL */
    int (*q_update)(struct q_learner *learner, const struct q_update *update);
    struct actor_critic *(*actor_critic_open)(const struct actor_critic_settings *settings);
    void (*actor_critic_close)(struct actor_critic *learner);
    void (*actor_critic_load)(
        struct actor_critic *learner, const struct vectors *actor, const struct vectors *critics
    );
    /* Without critics where those are NULL, and without vectors that are. */
    void (*actor_critic_save)(
        const struct actor_critic *learner, const struct vectors *actor, const struct vectors *critics
    );
    int (*actor_critic_update)(struct actor_critic *learner, const struct batches *batches);
    /* Without a gradient it goes forward, else back. */
    int (*lstm_run)(const struct lstm *lstm, const struct lstm_gradient *gradient);
    size_t (*lstm_tape)(const struct lstm *lstm);
};

/* NULL where the compiler has not got the set. */
extern const struct dense_set *const baseline_dense, *const avx2_dense, *const avx512_dense;

const struct dense_set *find_dense(const char *name); /* NULL: there is none of the name */

/* Threads that start together and wait for each other. */
struct team {
    int size;
    volatile int waiting, round;
    double since, waited; /* seconds, by the first of them */
    int tried, alone;     /* rounds since then; whether the first goes on by itself */
};

typedef void team_work(void *job, int member);

/* Run work(job, 0 .. size - 1), the first on the calling thread; members that could not be had leave all to fewer. */
void run_team(struct team *team, int threads, team_work *work, void *job);
void meet(struct team *team, int member);

/* End a round of work, where all meet; 0: this member is to leave. Where others have the cores, one thread is faster than
 * two that wait for each other, and the first goes on alone. */
int stay(struct team *team, int member);

#endif
