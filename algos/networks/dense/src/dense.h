/* Interface of dense networks and their learners; mirrored by algos/networks/dense/compiled.py.
 *
 * A network has three chains of layers: an optional shared trunk, the policy and the value. Flat parameters are in
 * torch's order: log standard deviations, then the weights [out, in] and the bias of each layer. */

#ifndef PADDOCK_DENSE_H
#define PADDOCK_DENSE_H

#include <stddef.h>
#include <stdint.h>

#include "simd/sparse.h"

#define DENSE_ABI 11 /* increase with every incompatible change; library.py checks it */
#define CHAINS 3
#define MAX_SHARDS 16   /* gradient shards of a minibatch */
#define BLOCK 64        /* rows computed together; minimum size of a shard */
#define CHUNK 32        /* weight rows per unit of work of the optimizer */
#define REPORTED 6      /* policy loss, value loss, entropy, divergence, clipped share, gradient norm */
#define Q_REPORTED 4    /* loss, mean value, mean target, gradient norm */

struct network {
    const int32_t *sizes;   /* layer widths of trunk, policy and value, concatenated */
    const int32_t *choices; /* [components] of an action: number of choices; 0 for a Gaussian */
    const int32_t *leaf;    /* [components], leaf of the action space */
    int32_t layers[CHAINS];
    int32_t relu;       /* activation of hidden layers; otherwise tanh */
    int32_t masked;     /* observations end with an action mask, one float per output */
    int32_t components, log_stds;
};

/* Evaluation of R observations. */
struct evaluation {
    const float *parameters;     /* [P] */
    const float *observation;    /* [R, numbers], or [R, numbers + outputs] */
    const struct sparse *sparse; /* features, if mostly 0; `observation` then holds masks only. Or NULL */
    const float *action;         /* [R, components], or NULL */
    float *value, *logprob;      /* [R]; log-probabilities of actions before squashing */
    int64_t rows;
    int32_t threads;
};

/* One pass over minibatches with PPO's clipped surrogate (Schulman et al. 2017) and Adam. */
struct update {
    float *parameters, *momentum, *variance; /* [P] */
    const float *observation;                /* [R, ...] */
    const struct sparse *sparse;             /* as above */
    const float *action;                     /* [R, components] */
    const float *logprob, *advantage, *target, *value, *slope; /* [R]; slope: log-derivative of the squashing */
    const int64_t *order;            /* row indices of all minibatches, concatenated */
    const int64_t *ends;             /* [minibatches], end of each in `order` */
    const float *rates, *deviations; /* [minibatches], of Adam: rate / (1 - b1^t), 1 / sqrt(1 - b2^t) */
    double *report;                  /* [minibatches, REPORTED] */
    int64_t minibatches;
    float clip, value_clip, value_coef, entropy_coef, max_norm; /* value_clip, max_norm: negative for none */
    float epsilon, momentum_decay, variance_decay; /* of Adam */
    int32_t normalize_advantages, threads;
};

/* State of an off-policy learner, [P] each, in flat order. */
struct vectors {
    float *parameters, *targets, *momentum, *variance;
};

/* U consecutive updates of Q-learning (Mnih et al. 2015) with B transitions each, and Adam. */
struct q_update {
    const float *observation, *next_observation; /* [U, B, ...] */
    const struct sparse *sparse, *next_sparse;   /* features of a sparse learner */
    const int32_t *action;                       /* [U, B] */
    const float *reward, *discount, *weight;     /* [U, B]; discount: 0 where an episode terminated */
    const float *rates, *deviations;             /* [U], of Adam */
    const float *taus;                           /* [U], Polyak coefficient of the target; 0: no update */
    float *distance;                             /* [U, B], absolute TD errors */
    double *report;                              /* [U, Q_REPORTED] */
    int64_t updates, rows;
    float huber, max_norm; /* negative for none */
    float epsilon, momentum_decay, variance_decay; /* of Adam */
    int32_t double_q; /* Double Q-learning: the online network selects the next action */
    int32_t threads;
};

struct q_learner;

struct adam {
    float epsilon, momentum_decay, variance_decay;
};

/* Settings of an actor and one or two critics; mirrored by algos/networks/dense/actor_critic.py. */
struct actor_critic_settings {
    /* Layer widths. A soft actor outputs means, then log standard deviations; or, for discrete actions, logits, and its
     * critics one value per action. */
    const int32_t *actor, *critic;
    int32_t actor_layers, critic_layers, critics, relu, soft, learned, target_every, actor_every, threads;
    int32_t masked; /* observations end with an action mask */
    float alpha, target_entropy, target_noise, target_noise_clip, tau;
    struct adam adam;
};

/* Minibatches of transitions for several updates. */
struct batches {
    /* [updates, rows, ...]; an action is a vector, or the index of a discrete action. */
    const float *observation, *action, *reward, *next_observation, *discount, *weight;
    const float *noise; /* [updates, 1, or 2 for a soft actor, rows, actions]; unused for discrete actions */
    const float *rates, *deviations;                   /* Adam scales of the critics, as in struct update */
    const float *actor_rates, *actor_deviations;       /* the same for updates of the actor */
    float *log_alpha;                                  /* [3]: log alpha, its momentum and its variance */
    double *actor_report;                                      /* [2]: loss and entropy of the last actor update */
    double *report;                                    /* [updates, ACTOR_CRITIC_REPORTED] */
    float *distance;                                   /* [updates, rows], absolute TD errors */
    int64_t updates, rows, before;                     /* before: updates done previously */
    int32_t threads;
};

#define ACTOR_CRITIC_REPORTED 5 /* critic loss, mean Q, actor loss, alpha, entropy */

struct actor_critic;

/* An LSTM with torch's parameters over T steps of B rows. */
struct lstm {
    const float *in_weight, *state_weight, *in_bias, *state_bias; /* [4 H, inputs], [4 H, H], [4 H] */
    const float *inputs;         /* [T, B, inputs] */
    const float *state;          /* [B, 2 H], initial hidden and cell state */
    const uint8_t *start, *acts; /* [T, B]; start: reset the state; acts: update the state (NULL: always) */
    float *memory;               /* [T, B, 2 H], states after each step */
    float *tape;                 /* `lstm_tape` floats, aligned to 64 bytes */
    int64_t steps, rows;
    int32_t in, width;
    int32_t kept; /* the tape keeps all steps, for the backward pass */
    int32_t threads;
};

/* Gradients of the LSTM; computing them overwrites the tape. */
struct lstm_gradient {
    const float *memory;                    /* [T, B, 2 H], of the states after each step (input) */
    float *inputs, *state;                  /* outputs, shaped as above; either may be NULL */
    float *in_weight, *state_weight, *bias; /* outputs; both biases have the same gradient */
};

/* Functions compiled for one instruction set, as in library.py. Without memory `open` returns NULL, others -1. */
struct dense_set {
    const char *name;
    int (*evaluate)(const struct network *network, const struct evaluation *evaluation);
    int (*update)(const struct network *network, const struct update *update);
    struct q_learner *(*q_open)(const struct network *network, int sparse);
    void (*q_close)(struct q_learner *learner);
    void (*q_load)(struct q_learner *learner, const struct vectors *given);
    void (*q_save)(const struct q_learner *learner, const struct vectors *onto); /* all but `parameters` may be NULL */
    int (*q_update)(struct q_learner *learner, const struct q_update *update);
    struct actor_critic *(*actor_critic_open)(const struct actor_critic_settings *settings);
    void (*actor_critic_close)(struct actor_critic *learner);
    void (*actor_critic_load)(
        struct actor_critic *learner, const struct vectors *actor, const struct vectors *critics
    );
    /* NULL critics or vectors are skipped. */
    void (*actor_critic_save)(
        const struct actor_critic *learner, const struct vectors *actor, const struct vectors *critics
    );
    int (*actor_critic_update)(struct actor_critic *learner, const struct batches *batches);
    /* Forward pass if `gradient` is NULL, else backward pass. */
    int (*lstm_run)(const struct lstm *lstm, const struct lstm_gradient *gradient);
    size_t (*lstm_tape)(const struct lstm *lstm);
};

/* NULL if the compiler lacks the instruction set. */
extern const struct dense_set *const baseline_dense, *const avx2_dense, *const avx512_dense;

const struct dense_set *find_dense(const char *name); /* NULL: unknown name */

/* Threads that run one job and meet at barriers. */
struct team {
    int size;
    volatile int waiting, round;
    double since, waited; /* seconds, measured by the first thread */
    int tried, alone;     /* rounds since then; whether only the first thread continues */
};

typedef void team_work(void *job, int member);

/* Run work(job, 0 .. size - 1), the first on the calling thread; size shrinks if threads cannot be created. */
void run_team(struct team *team, int threads, team_work *work, void *job);
void team_barrier(struct team *team, int member);

/* Wait at the end of a round; return 0 if this member must leave. On busy cores one thread is faster than two that wait
 * for each other; then only the first continues. */
int team_continue(struct team *team, int member);

#endif
