/* State and buffers of off-policy actor-critic learners: SAC, TD3, DDPG. */

#ifndef PADDOCK_ACTOR_CRITIC_H
#define PADDOCK_ACTOR_CRITIC_H

#include "squashed.h"
#include "tape.h"
#include "categorical.h"

struct workspace { /* of one thread, for REPLAY_BLOCK rows */
    struct tape actor, critics;     /* discarded after a block */
    struct sample sample;           /* continuous actions */
    struct categorical categorical; /* discrete actions */
    float *input;                   /* [REPLAY_BLOCK, observed + actions] */
    float *grad_input;              /* [REPLAY_BLOCK, wide_in], of the critics */
    float *grad_action;             /* [actions, REPLAY_BLOCK], for the actor */
};

struct terms { /* loss terms of a row */
    double critic_loss, value, actor_loss, logprob, max_entropy; /* max_entropy: log of the number of legal actions */
};

struct actor_critic {
    struct actor_critic_settings settings;
    int observed, row; /* features of an observation, and row size with the mask */
    int actions, choices; /* dimensions of a continuous action, or number of discrete actions */
    struct plan actor_plan, critics_plan;
    struct descent actor, critics;
    int64_t rows; /* allocated */
    struct tape actor_tape, critics_tape;
    float *input; /* [rows, observed + actions], continuous actions only */
    struct terms *terms;
    struct workspace *spaces; /* [threads] */
    struct team team;
    const struct batches *batches;
};

static int open_workspace(struct workspace *space, const struct actor_critic *learner)
{
    const int wide_in = learner->critics_plan.layers[0].wide_in;
    space->input = zeros((size_t)REPLAY_BLOCK * (learner->observed + learner->actions) * sizeof(float));
    space->grad_input = zeros((size_t)REPLAY_BLOCK * wide_in * sizeof(float));
    space->grad_action = zeros((size_t)REPLAY_BLOCK * learner->actions * sizeof(float));
    int failed = open_tape(&space->actor, &learner->actor_plan, REPLAY_BLOCK);
    failed |= open_tape(&space->critics, &learner->critics_plan, REPLAY_BLOCK);
    failed |= open_sample(&space->sample, learner->actions) | open_categorical(&space->categorical, learner->choices);
    return failed || !space->input || !space->grad_input || !space->grad_action ? -1 : 0;
}

static void close_workspace(struct workspace *space)
{
    close_tape(&space->actor);
    close_tape(&space->critics);
    close_sample(&space->sample);
    close_categorical(&space->categorical);
    free(space->input);
    free(space->grad_input);
    free(space->grad_action);
}

static void close_rows_of(struct actor_critic *learner)
{
    close_tape(&learner->actor_tape);
    close_tape(&learner->critics_tape);
    free(learner->input);
    free(learner->terms);
    learner->input = NULL, learner->terms = NULL, learner->rows = 0;
}

/* Allocate buffers for minibatches of `rows` rows. */
static int open_rows_of(struct actor_critic *learner, int64_t rows)
{
    if (rows <= learner->rows) return 0;
    close_rows_of(learner);
    learner->input = zeros(rows * (learner->observed + learner->actions) * sizeof(float));
    learner->terms = zeros(rows * sizeof *learner->terms);
    const int failed = open_tape(&learner->actor_tape, &learner->actor_plan, rows);
    if (open_tape(&learner->critics_tape, &learner->critics_plan, rows) || failed) return -1;
    if (!learner->input || !learner->terms) return -1;
    learner->rows = rows;
    return 0;
}

static void close_actor_critic(struct actor_critic *learner)
{
    for (int k = 0; learner->spaces && k < learner->settings.threads; k++) close_workspace(&learner->spaces[k]);
    close_rows_of(learner);
    free(learner->spaces);
    close_descent(&learner->actor);
    close_descent(&learner->critics);
    close_plan(&learner->actor_plan);
    close_plan(&learner->critics_plan);
    free(learner);
}

/* Return NULL if out of memory. */
static struct actor_critic *open_actor_critic(const struct actor_critic_settings *settings)
{
    const struct chain actor = {settings->actor, settings->actor_layers, 0, 0, 0};
    const int actions = settings->critic[0] - settings->actor[0];
    const struct chain critic = {settings->critic, settings->critic_layers, 0, actions > 0, 0};
    const struct chain critics[] = {critic, critic};
    struct actor_critic *learner = zeros(sizeof *learner);
    if (!learner) return NULL;
    learner->settings = *settings;
    learner->observed = settings->actor[0], learner->actions = actions;
    learner->choices = actions ? 0 : settings->critic[settings->critic_layers];
    learner->row = learner->observed + (settings->masked ? learner->choices : 0);
    int failed = !(learner->spaces = zeros(settings->threads * sizeof *learner->spaces));
    failed = failed || open_plan(&learner->actor_plan, &actor, 1, 0, settings->relu);
    failed = failed || open_plan(&learner->critics_plan, critics, settings->critics, 0, settings->relu);
    failed = failed || open_descent(&learner->actor, &learner->actor_plan, !settings->soft);
    failed = failed || open_descent(&learner->critics, &learner->critics_plan, 1);
    failed = failed || open_shards(&learner->actor, 1) || open_shards(&learner->critics, 1);
    for (int k = 0; !failed && k < settings->threads; k++) failed = open_workspace(&learner->spaces[k], learner);
    if (!failed) return learner;
    close_actor_critic(learner);
    return NULL;
}

static void load_actor_critic(struct actor_critic *learner, const struct vectors *actor, const struct vectors *critics)
{
    load_descent(&learner->actor, actor);
    load_descent(&learner->critics, critics);
}

static void save_actor_critic(
    const struct actor_critic *learner, const struct vectors *actor, const struct vectors *critics
)
{
    save_descent(&learner->actor, actor);
    if (critics) save_descent(&learner->critics, critics);
}

/* Return a chain's output of a row. */
INLINE float *output_row(const struct tape *tape, int chain, int64_t row)
{
    const int k = last_layer(tape->plan, chain);
    return tape->outputs[k] + row * tape->plan->layers[k].wide;
}

INLINE float *gradient_row(const struct tape *tape, int chain, int64_t row)
{
    const int k = last_layer(tape->plan, chain);
    return tape->grad[k] + row * tape->plan->layers[k].wide;
}

INLINE int outputs_wide(const struct actor_critic *learner)
{
    return learner->actor_plan.layers[last_layer(&learner->actor_plan, 0)].wide;
}

#endif
