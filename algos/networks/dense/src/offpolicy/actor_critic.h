/* An actor and its critics that learn from replay at one width of lanes, and what their threads need: SAC, TD3, DDPG. */

#ifndef PADDOCK_ACTOR_CRITIC_H
#define PADDOCK_ACTOR_CRITIC_H

#include "squashed.h"
#include "tape.h"
#include "weighed.h"

struct workspace { /* of one thread, for TOGETHER rows */
    struct tape actor, critics; /* of what need not be kept */
    struct drawn drawn;         /* of numbers */
    struct weighed weighed;     /* of choices */
    float *input;     /* [TOGETHER, observed + actions] */
    float *by_input;  /* [TOGETHER, wide_in], of the critics */
    float *by_action; /* [actions, TOGETHER], the actor's gradients */
};

struct terms { /* of a row, which sums are taken of */
    double critic_loss, value, actor_loss, logprob, most; /* most: that the entropy can be, of choices */
};

struct actor_critic {
    struct actor_critic_settings settings;
    int observed, row; /* numbers of an observation, and floats with what is legal */
    int actions, choices; /* numbers of an action, or so many choices */
    struct plan actor_plan, critics_plan;
    struct descent actor, critics;
    int64_t rows; /* that there is room for */
    struct tape actor_tape, critics_tape;
    float *input; /* [rows, observed + actions], of numbers */
    struct terms *terms;
    struct workspace *spaces; /* [threads] */
    struct team team;
    const struct batches *batches;
};

static int open_workspace(struct workspace *space, const struct actor_critic *own)
{
    const int wide_in = own->critics_plan.layers[0].wide_in;
    space->input = zeros((size_t)TOGETHER * (own->observed + own->actions) * sizeof(float));
    space->by_input = zeros((size_t)TOGETHER * wide_in * sizeof(float));
    space->by_action = zeros((size_t)TOGETHER * own->actions * sizeof(float));
    int failed = open_tape(&space->actor, &own->actor_plan, TOGETHER);
    failed |= open_tape(&space->critics, &own->critics_plan, TOGETHER) | open_drawn(&space->drawn, own->actions);
    failed |= open_weighed(&space->weighed, own->choices);
    return failed || !space->input || !space->by_input || !space->by_action ? -1 : 0;
}

static void close_workspace(struct workspace *space)
{
    close_tape(&space->actor);
    close_tape(&space->critics);
    close_drawn(&space->drawn);
    close_weighed(&space->weighed);
    free(space->input);
    free(space->by_input);
    free(space->by_action);
}

static void close_rows_of(struct actor_critic *own)
{
    close_tape(&own->actor_tape);
    close_tape(&own->critics_tape);
    free(own->input);
    free(own->terms);
    own->input = NULL, own->terms = NULL, own->rows = 0;
}

/* Make room for minibatches of so many rows. */
static int open_rows_of(struct actor_critic *own, int64_t rows)
{
    if (rows <= own->rows) return 0;
    close_rows_of(own);
    own->input = zeros(rows * (own->observed + own->actions) * sizeof(float));
    own->terms = zeros(rows * sizeof *own->terms);
    if (open_tape(&own->actor_tape, &own->actor_plan, rows) | open_tape(&own->critics_tape, &own->critics_plan, rows))
        return -1;
    if (!own->input || !own->terms) return -1;
    own->rows = rows;
    return 0;
}

static void close_actor_critic(struct actor_critic *own)
{
    for (int k = 0; own->spaces && k < own->settings.threads; k++) close_workspace(&own->spaces[k]);
    close_rows_of(own);
    free(own->spaces);
    close_descent(&own->actor);
    close_descent(&own->critics);
    close_plan(&own->actor_plan);
    close_plan(&own->critics_plan);
    free(own);
}

/* NULL: no memory. */
static struct actor_critic *open_actor_critic(const struct actor_critic_settings *settings)
{
    const struct chain actor = {settings->actor, settings->actor_layers, 0, 0, 0};
    const int actions = settings->critic[0] - settings->actor[0];
    const struct chain critic = {settings->critic, settings->critic_layers, 0, actions > 0, 0};
    const struct chain critics[] = {critic, critic};
    struct actor_critic *own = zeros(sizeof *own);
    if (!own) return NULL;
    own->settings = *settings;
    own->observed = settings->actor[0], own->actions = actions;
    own->choices = actions ? 0 : settings->critic[settings->critic_layers];
    own->row = own->observed + (settings->masked ? own->choices : 0);
    int failed = !(own->spaces = zeros(settings->threads * sizeof *own->spaces));
    failed = failed || open_plan(&own->actor_plan, &actor, 1, 0, settings->relu);
    failed = failed || open_plan(&own->critics_plan, critics, settings->critics, 0, settings->relu);
    failed = failed || open_descent(&own->actor, &own->actor_plan, !settings->soft);
    failed = failed || open_descent(&own->critics, &own->critics_plan, 1);
    failed = failed || open_parts(&own->actor, 1) || open_parts(&own->critics, 1);
    for (int k = 0; !failed && k < settings->threads; k++) failed = open_workspace(&own->spaces[k], own);
    if (!failed) return own;
    close_actor_critic(own);
    return NULL;
}

static void load_actor_critic(struct actor_critic *own, const struct vectors *actor, const struct vectors *critics)
{
    load_descent(&own->actor, actor);
    load_descent(&own->critics, critics);
}

static void save_actor_critic(
    const struct actor_critic *own, const struct vectors *actor, const struct vectors *critics
)
{
    save_descent(&own->actor, actor);
    if (critics) save_descent(&own->critics, critics);
}

/* What the last layer of a chain gave of a row. */
INLINE float *given_of(const struct tape *tape, int chain, int64_t row)
{
    const int k = last_layer(tape->plan, chain);
    return tape->outputs[k] + row * tape->plan->layers[k].wide;
}

INLINE float *by_given(const struct tape *tape, int chain, int64_t row)
{
    const int k = last_layer(tape->plan, chain);
    return tape->by[k] + row * tape->plan->layers[k].wide;
}

INLINE int outputs_wide(const struct actor_critic *own)
{
    return own->actor_plan.layers[last_layer(&own->actor_plan, 0)].wide;
}

#endif
