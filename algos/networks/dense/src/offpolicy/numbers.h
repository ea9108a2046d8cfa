/* How the rows of a minibatch go through an actor of numbers between bounds, and through its critics, and back. */

#ifndef PADDOCK_NUMBERS_H
#define PADDOCK_NUMBERS_H

#include "actor_critic.h"

/* Compute critics on observations and the actions that were drawn for them. */
static void judge_drawn(
    const struct actor_critic *own, struct workspace *space, const float *parameters, const float *observation,
    int critics, int count
)
{
    const int row = own->observed + own->actions;
    for (int b = 0; b < count; b++) {
        float *to = space->input + (size_t)b * row;
        memcpy(to, observation + (size_t)b * own->observed, own->observed * sizeof *to);
        for (int c = 0; c < own->actions; c++) to[own->observed + c] = space->drawn.action[c * TOGETHER + b];
    }
    for (int c = 0; c < critics; c++) run(&space->critics, c, parameters, space->input, row, 0, count);
}

/* What the values of rows `start` .. are to become. */
static void find_targets(
    const struct actor_critic *own, struct workspace *space, int64_t u, int64_t start, int count, float alpha,
    float *target
)
{
    const struct actor_critic_settings *settings = &own->settings;
    const struct batches *batches = own->batches;
    const int soft = settings->soft, wide = outputs_wide(own);
    const size_t at = u * batches->rows + start, noise_at = (soft ? 2 * u : u) * batches->rows + start;
    const float *observation = batches->next_observation + at * own->observed;
    const float *noise = batches->noise + noise_at * own->actions, *out = given_of(&space->actor, 0, 0);
    run(&space->actor, 0, soft ? own->actor.parameters : own->actor.targets, observation, own->observed, 0, count);
    if (soft) draw_squashed(&space->drawn, out, wide, noise, count);
    else take_tangent(&space->drawn, out, wide, noise, settings->target_noise, settings->target_noise_clip, count);
    judge_drawn(own, space, own->critics.targets, observation, settings->critics, count);
    for (int b = 0; b < count; b++) {
        float q = *given_of(&space->critics, 0, b);
        if (settings->critics > 1 && *given_of(&space->critics, 1, b) < q) q = *given_of(&space->critics, 1, b);
        if (soft) q = q - alpha * space->drawn.logprob[b];
        target[b] = batches->reward[at + b] + batches->discount[at + b] * q;
    }
}

/* Let rows `start` .. go through the critics, and back. */
static void pass_critics(
    const struct actor_critic *own, struct workspace *space, int64_t u, int64_t start, int count, float alpha
)
{
    const struct actor_critic_settings *settings = &own->settings;
    const struct batches *batches = own->batches;
    const struct tape *tape = &own->critics_tape;
    const float share = 1.0f / (float)batches->rows, factor = settings->soft ? share : share + share;
    const int row = own->observed + own->actions;
    const size_t at = u * batches->rows + start;
    float target[TOGETHER], *input = own->input + start * row;
    find_targets(own, space, u, start, count, alpha, target);
    for (int b = 0; b < count; b++) {
        float *to = input + (size_t)b * row;
        memcpy(to, batches->observation + (at + b) * own->observed, own->observed * sizeof *to);
        memcpy(to + own->observed, batches->action + (at + b) * own->actions, own->actions * sizeof *to);
    }
    for (int c = 0; c < settings->critics; c++) run(tape, c, own->critics.parameters, input, row, start, count);
    for (int b = 0; b < count; b++) {
        const float weight = batches->weight[at + b];
        float squares = 0, distance = 0;
        double value = 0;
        for (int c = 0; c < settings->critics; c++) {
            const float q = *given_of(tape, c, start + b), error = q - target[b];
            squares += error * error, distance += fabsf(error), value += q;
            *by_given(tape, c, start + b) = error * (weight * factor);
        }
        batches->distance[at + b] = settings->critics > 1 ? distance * 0.5f : distance;
        own->terms[start + b].critic_loss = weight * squares, own->terms[start + b].value = value;
    }
    for (int c = 0; c < settings->critics; c++) run_back(tape, c, own->critics.back, start, count, NULL);
}

/* Gradients by actions of the rows that learn from a critic, through its inputs; `by_q` is that by its value. */
static void climb(
    const struct actor_critic *own, struct workspace *space, int critic, const int *chosen, int rows, float by_q
)
{
    const struct plan *plan = &own->critics_plan;
    const struct tape *tape = &space->critics;
    const int wide_in = plan->layers[plan->begin[critic]].wide_in;
    const int whole_tiles = (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS; /* nobody looks at the last rows */
    for (int k = plan->begin[critic]; k < last_layer(plan, critic); k++) {
        const size_t wide = plan->layers[k].wide;
        float *output = tape->outputs[k];
        for (int i = 0; i < rows; i++)
            if (chosen[i] != i) memcpy(output + i * wide, output + chosen[i] * wide, wide * sizeof *output);
    }
    for (int i = 0; i < whole_tiles; i++) *by_given(tape, critic, i) = by_q;
    run_back(tape, critic, own->critics.back, 0, whole_tiles, space->by_input);
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < own->actions; c++)
            space->by_action[c * TOGETHER + chosen[i]] = space->by_input[(size_t)i * wide_in + own->observed + c];
}

/* Let rows `start` .. go through the actor and on through the critics, and back. */
static void pass_actor(
    const struct actor_critic *own, struct workspace *space, int64_t u, int64_t start, int count, float alpha
)
{
    const struct batches *batches = own->batches;
    const struct tape *tape = &own->actor_tape;
    const float share = 1.0f / (float)batches->rows;
    const int soft = own->settings.soft, critics = soft ? own->settings.critics : 1, wide = outputs_wide(own);
    const float *observation = batches->observation + (u * batches->rows + start) * own->observed;
    const float *noise = batches->noise + ((2 * u + 1) * batches->rows + start) * own->actions;
    const float *out = given_of(tape, 0, start);
    run(tape, 0, own->actor.parameters, observation, own->observed, start, count);
    if (soft) draw_squashed(&space->drawn, out, wide, noise, count);
    else take_tangent(&space->drawn, out, wide, NULL, 0, 0, count);
    judge_drawn(own, space, own->critics.parameters, observation, critics, count);
    int chosen[2][TOGETHER], many[2] = {0, 0};
    for (int b = 0; b < count; b++) {
        const int c = critics > 1 && *given_of(&space->critics, 1, b) < *given_of(&space->critics, 0, b);
        const float q = *given_of(&space->critics, c, b), logprob = soft ? space->drawn.logprob[b] : 0;
        chosen[c][many[c]++] = b;
        own->terms[start + b].actor_loss = soft ? alpha * logprob - q : -q, own->terms[start + b].logprob = logprob;
    }
    for (int c = 0; c < critics; c++)
        if (many[c]) climb(own, space, c, chosen[c], many[c], -share);
    float *by = by_given(tape, 0, start);
    if (soft) squashed_gradient(&space->drawn, space->by_action, alpha * share, by, wide, count);
    else tangent_gradient(&space->drawn, space->by_action, by, wide, count);
    run_back(tape, 0, own->actor.back, start, count, NULL);
}

#endif
