/* Forward and backward passes of SAC with discrete actions (Christodoulou 2019, arXiv:1910.07207). Expectations are
 * exact sums over all actions. */

#ifndef PADDOCK_DISCRETE_H
#define PADDOCK_DISCRETE_H

#include "actor_critic.h"

/* Return the minimum over critics of an action's value, for `lanes` rows from `first` on. */
INLINE vf min_q_value(const struct actor_critic *learner, const struct tape *critics, int choice, int first, int lanes)
{
    const int wide = learner->critics_plan.layers[last_layer(&learner->critics_plan, 0)].wide;
    const vf one = column(output_row(critics, 0, first) + choice, wide, lanes);
    if (learner->settings.critics == 1) return one;
    const vf other = column(output_row(critics, 1, first) + choice, wide, lanes);
    return pick(other < one, other, one);
}

/* Compute action probabilities from the actor's outputs, and the critics' values in the workspace. */
static void evaluate_choices(
    const struct actor_critic *learner, struct workspace *space, const float *out, const float *parameters,
    const float *observation, int count
)
{
    const float *legal = learner->settings.masked ? observation + learner->observed : NULL;
    softmax_choices(&space->categorical, out, outputs_wide(learner), legal, learner->row, count);
    for (int c = 0; c < learner->settings.critics; c++)
        tape_forward(&space->critics, c, parameters, observation, learner->row, 0, count);
}

/* Compute the TD targets of rows `start` .. */
static void find_discrete_targets(
    const struct actor_critic *learner, struct workspace *space, int64_t u, int64_t start, int count, float alpha,
    float *target
)
{
    const struct batches *batches = learner->batches;
    const size_t at = u * batches->rows + start;
    const float *observation = batches->next_observation + at * learner->row;
    tape_forward(&space->actor, 0, learner->actor.parameters, observation, learner->row, 0, count);
    evaluate_choices(learner, space, output_row(&space->actor, 0, 0), learner->critics.targets, observation, count);
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        vf next_observation = splat(0);
        for (int j = 0; j < learner->choices; j++) {
            const vf q = min_q_value(learner, &space->critics, j, first, lanes);
            const vf log = *lanes_of(space->categorical.log, j, first);
            const vf term = *lanes_of(space->categorical.prob, j, first) * (q - log * alpha);
            next_observation = j ? next_observation + term : term;
        }
        for (int i = 0; i < lanes; i++) {
            const size_t row = at + first + i;
            target[first + i] = batches->reward[row] + batches->discount[row] * next_observation[i];
        }
    }
}

/* Run the critics forward and backward on rows `start` .. */
static void train_critics_discrete(
    const struct actor_critic *learner, struct workspace *space, int64_t u, int64_t start, int count, float alpha
)
{
    const struct batches *batches = learner->batches;
    const struct tape *tape = &learner->critics_tape;
    const int critics = learner->settings.critics;
    const float share = 1.0f / (float)batches->rows;
    const size_t at = u * batches->rows + start;
    float target[REPLAY_BLOCK];
    find_discrete_targets(learner, space, u, start, count, alpha, target);
    for (int c = 0; c < critics; c++)
        tape_forward(
            tape, c, learner->critics.parameters, batches->observation + at * learner->row, learner->row, start, count
        );
    for (int b = 0; b < count; b++) {
        const int choice = (int)batches->action[at + b];
        const float weight = batches->weight[at + b];
        float squares = 0, distance = 0;
        double value = 0;
        for (int c = 0; c < critics; c++) {
            const float q = output_row(tape, c, start + b)[choice], error = q - target[b];
            float *grad = gradient_row(tape, c, start + b);
            squares += error * error, distance += fabsf(error), value += q;
            memset(grad, 0, learner->choices * sizeof *grad);
            grad[choice] = error * (weight * share);
        }
        batches->distance[at + b] = critics > 1 ? distance * 0.5f : distance;
        learner->terms[start + b].critic_loss = weight * squares, learner->terms[start + b].value = value;
    }
    for (int c = 0; c < critics; c++) tape_backward(tape, c, learner->critics.back, start, count, NULL);
}

/* Run actor and critics forward on rows `start` .., and the actor backward. */
static void train_actor_discrete(
    const struct actor_critic *learner, struct workspace *space, int64_t u, int64_t start, int count, float alpha
)
{
    const struct batches *batches = learner->batches;
    const struct tape *tape = &learner->actor_tape;
    struct categorical *categorical = &space->categorical;
    const float share = 1.0f / (float)batches->rows;
    const int wide = outputs_wide(learner);
    const float *observation = batches->observation + (u * batches->rows + start) * learner->row;
    float *grad = gradient_row(tape, 0, start);
    tape_forward(tape, 0, learner->actor.parameters, observation, learner->row, start, count);
    evaluate_choices(learner, space, output_row(tape, 0, start), learner->critics.parameters, observation, count);
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        vf loss = splat(0), logprob = splat(0);
        for (int j = 0; j < learner->choices; j++) {
            const vf prob = *lanes_of(categorical->prob, j, first), log = *lanes_of(categorical->log, j, first);
            const vf cost = log * alpha - min_q_value(learner, &space->critics, j, first, lanes);
            *lanes_of(categorical->cost, j, first) = cost;
            loss = j ? loss + prob * cost : prob * cost;
            logprob = j ? logprob + prob * log : prob * log;
        }
        for (int j = 0; j < learner->choices; j++) { /* derivative of the softmax */
            const vf cost = *lanes_of(categorical->cost, j, first) - loss;
            write_column(
                *lanes_of(categorical->prob, j, first) * cost * share, grad + (size_t)first * wide + j, wide, lanes
            );
        }
        for (int i = 0; i < lanes; i++) {
            struct terms *terms = &learner->terms[start + first + i];
            terms->actor_loss = loss[i], terms->logprob = logprob[i];
            terms->max_entropy = categorical->max_entropy[first + i];
        }
    }
    tape_backward(tape, 0, learner->actor.back, start, count, NULL);
}

#endif
