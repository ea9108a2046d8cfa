/* Forward and backward passes of SAC, TD3 and DDPG with continuous actions. */

#ifndef PADDOCK_CONTINUOUS_H
#define PADDOCK_CONTINUOUS_H

#include "actor_critic.h"

/* Evaluate critics on observations and the sampled actions. */
static void evaluate_critics(
    const struct actor_critic *learner, struct workspace *space, const float *parameters, const float *observation,
    int critics, int count
)
{
    const int row = learner->observed + learner->actions;
    for (int b = 0; b < count; b++) {
        float *to = space->input + (size_t)b * row;
        memcpy(to, observation + (size_t)b * learner->observed, learner->observed * sizeof *to);
        to += learner->observed;
        for (int c = 0; c < learner->actions; c++) to[c] = space->sample.action[c * REPLAY_BLOCK + b];
    }
    for (int c = 0; c < critics; c++) tape_forward(&space->critics, c, parameters, space->input, row, 0, count);
}

/* Compute the TD targets of rows `start` .. */
static void find_continuous_targets(
    const struct actor_critic *learner, struct workspace *space, int64_t u, int64_t start, int count, float alpha,
    float *target
)
{
    const struct actor_critic_settings *settings = &learner->settings;
    const struct batches *batches = learner->batches;
    const int soft = settings->soft, wide = outputs_wide(learner);
    const size_t at = u * batches->rows + start, noise_at = (soft ? 2 * u : u) * batches->rows + start;
    const float *observation = batches->next_observation + at * learner->observed;
    const float *noise = batches->noise + noise_at * learner->actions, *out = output_row(&space->actor, 0, 0);
    const float *actor = soft ? learner->actor.parameters : learner->actor.targets;
    tape_forward(&space->actor, 0, actor, observation, learner->observed, 0, count);
    if (soft) sample_squashed(&space->sample, out, wide, noise, count);
    else sample_tanh(&space->sample, out, wide, noise, settings->target_noise, settings->target_noise_clip, count);
    evaluate_critics(learner, space, learner->critics.targets, observation, settings->critics, count);
    for (int b = 0; b < count; b++) {
        float q = *output_row(&space->critics, 0, b);
        if (settings->critics > 1 && *output_row(&space->critics, 1, b) < q) q = *output_row(&space->critics, 1, b);
        if (soft) q = q - alpha * space->sample.logprob[b];
        target[b] = batches->reward[at + b] + batches->discount[at + b] * q;
    }
}

/* Run the critics forward and backward on rows `start` .. */
static void train_critics_continuous(
    const struct actor_critic *learner, struct workspace *space, int64_t u, int64_t start, int count, float alpha
)
{
    const struct actor_critic_settings *settings = &learner->settings;
    const struct batches *batches = learner->batches;
    const struct tape *tape = &learner->critics_tape;
    const float share = 1.0f / (float)batches->rows, factor = settings->soft ? share : share + share;
    const int row = learner->observed + learner->actions;
    const size_t at = u * batches->rows + start;
    float target[REPLAY_BLOCK], *input = learner->input + start * row;
    find_continuous_targets(learner, space, u, start, count, alpha, target);
    for (int b = 0; b < count; b++) {
        float *to = input + (size_t)b * row;
        memcpy(to, batches->observation + (at + b) * learner->observed, learner->observed * sizeof *to);
        memcpy(to + learner->observed, batches->action + (at + b) * learner->actions, learner->actions * sizeof *to);
    }
    for (int c = 0; c < settings->critics; c++)
        tape_forward(tape, c, learner->critics.parameters, input, row, start, count);
    for (int b = 0; b < count; b++) {
        const float weight = batches->weight[at + b];
        float squares = 0, distance = 0;
        double value = 0;
        for (int c = 0; c < settings->critics; c++) {
            const float q = *output_row(tape, c, start + b), error = q - target[b];
            squares += error * error, distance += fabsf(error), value += q;
            *gradient_row(tape, c, start + b) = error * (weight * factor);
        }
        batches->distance[at + b] = settings->critics > 1 ? distance * 0.5f : distance;
        learner->terms[start + b].critic_loss = weight * squares, learner->terms[start + b].value = value;
    }
    for (int c = 0; c < settings->critics; c++) tape_backward(tape, c, learner->critics.back, start, count, NULL);
}

/* Compute action gradients of the rows for which `critic` is the minimum; `grad_q` is the gradient of its value. */
static void critic_action_gradient(
    const struct actor_critic *learner, struct workspace *space, int critic, const int *chosen, int rows, float grad_q
)
{
    const struct plan *plan = &learner->critics_plan;
    const struct tape *tape = &space->critics;
    const int wide_in = plan->layers[plan->begin[critic]].wide_in;
    const int whole_groups = (rows + ROW_GROUP - 1) / ROW_GROUP * ROW_GROUP; /* the padding rows are ignored */
    for (int k = plan->begin[critic]; k < last_layer(plan, critic); k++) {
        const size_t wide = plan->layers[k].wide;
        float *output = tape->outputs[k];
        for (int i = 0; i < rows; i++)
            if (chosen[i] != i) memcpy(output + i * wide, output + chosen[i] * wide, wide * sizeof *output);
    }
    for (int i = 0; i < whole_groups; i++) *gradient_row(tape, critic, i) = grad_q;
    tape_backward(tape, critic, learner->critics.back, 0, whole_groups, space->grad_input);
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < learner->actions; c++)
            space->grad_action[c * REPLAY_BLOCK + chosen[i]] =
                space->grad_input[(size_t)i * wide_in + learner->observed + c];
}

/* Run actor and critics forward and backward on rows `start` .., and train the actor. */
static void train_actor_continuous(
    const struct actor_critic *learner, struct workspace *space, int64_t u, int64_t start, int count, float alpha
)
{
    const struct batches *batches = learner->batches;
    const struct tape *tape = &learner->actor_tape;
    const float share = 1.0f / (float)batches->rows;
    const int soft = learner->settings.soft, critics = soft ? learner->settings.critics : 1;
    const int wide = outputs_wide(learner);
    const float *observation = batches->observation + (u * batches->rows + start) * learner->observed;
    const float *noise = batches->noise + ((2 * u + 1) * batches->rows + start) * learner->actions;
    const float *out = output_row(tape, 0, start);
    tape_forward(tape, 0, learner->actor.parameters, observation, learner->observed, start, count);
    if (soft) sample_squashed(&space->sample, out, wide, noise, count);
    else sample_tanh(&space->sample, out, wide, NULL, 0, 0, count);
    evaluate_critics(learner, space, learner->critics.parameters, observation, critics, count);
    int chosen[2][REPLAY_BLOCK], many[2] = {0, 0};
    for (int b = 0; b < count; b++) {
        const int c = critics > 1 && *output_row(&space->critics, 1, b) < *output_row(&space->critics, 0, b);
        const float q = *output_row(&space->critics, c, b), logprob = soft ? space->sample.logprob[b] : 0;
        chosen[c][many[c]++] = b;
        learner->terms[start + b].actor_loss = soft ? alpha * logprob - q : -q;
        learner->terms[start + b].logprob = logprob;
    }
    for (int c = 0; c < critics; c++)
        if (many[c]) critic_action_gradient(learner, space, c, chosen[c], many[c], -share);
    float *grad = gradient_row(tape, 0, start);
    if (soft) squashed_gradient(&space->sample, space->grad_action, alpha * share, grad, wide, count);
    else tanh_gradient(&space->sample, space->grad_action, grad, wide, count);
    tape_backward(tape, 0, learner->actor.back, start, count, NULL);
}

#endif
