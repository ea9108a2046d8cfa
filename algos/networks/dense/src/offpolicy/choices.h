/* How the rows of a minibatch go through an actor that chooses, and through its critics, which value each choice
 * (Christodoulou 2019, arXiv:1910.07207): expectations are over all choices, so that nothing is drawn. */

#ifndef PADDOCK_CHOICES_H
#define PADDOCK_CHOICES_H

#include "actor_critic.h"

/* The smaller of what critics say of a choice in LANES rows from `first` on, of which `lanes` are there. */
INLINE vf worth_of_choice(const struct actor_critic *own, const struct tape *critics, int choice, int first, int lanes)
{
    const int wide = own->critics_plan.layers[last_layer(&own->critics_plan, 0)].wide;
    const vf one = column(given_of(critics, 0, first) + choice, wide, lanes);
    if (own->settings.critics == 1) return one;
    const vf other = column(given_of(critics, 1, first) + choice, wide, lanes);
    return pick(other < one, other, one);
}

/* Weigh the choices of rows, of which an actor's tape has the outputs; critics say in the workspace what each is worth. */
static void weigh_and_judge(
    const struct actor_critic *own, struct workspace *space, const float *out, const float *parameters,
    const float *observation, int count
)
{
    const float *legal = own->settings.masked ? observation + own->observed : NULL;
    weigh(&space->weighed, out, outputs_wide(own), legal, own->row, count);
    for (int c = 0; c < own->settings.critics; c++)
        run(&space->critics, c, parameters, observation, own->row, 0, count);
}

/* What the values of the choices of rows `start` .. are to become. */
static void find_targets_of_choices(
    const struct actor_critic *own, struct workspace *space, int64_t u, int64_t start, int count, float alpha,
    float *target
)
{
    const struct batches *batches = own->batches;
    const size_t at = u * batches->rows + start;
    const float *observation = batches->next_observation + at * own->row;
    run(&space->actor, 0, own->actor.parameters, observation, own->row, 0, count);
    weigh_and_judge(own, space, given_of(&space->actor, 0, 0), own->critics.targets, observation, count);
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        vf following = splat(0);
        for (int j = 0; j < own->choices; j++) {
            const vf q = worth_of_choice(own, &space->critics, j, first, lanes);
            const vf log = *lanes_of(space->weighed.log, j, first);
            const vf term = *lanes_of(space->weighed.share, j, first) * (q - log * alpha);
            following = j ? following + term : term;
        }
        for (int i = 0; i < lanes; i++) {
            const size_t row = at + first + i;
            target[first + i] = batches->reward[row] + batches->discount[row] * following[i];
        }
    }
}

/* Let rows `start` .. go through the critics, and back. */
static void pass_critics_of_choices(
    const struct actor_critic *own, struct workspace *space, int64_t u, int64_t start, int count, float alpha
)
{
    const struct batches *batches = own->batches;
    const struct tape *tape = &own->critics_tape;
    const int critics = own->settings.critics;
    const float share = 1.0f / (float)batches->rows;
    const size_t at = u * batches->rows + start;
    float target[TOGETHER];
    find_targets_of_choices(own, space, u, start, count, alpha, target);
    for (int c = 0; c < critics; c++)
        run(tape, c, own->critics.parameters, batches->observation + at * own->row, own->row, start, count);
    for (int b = 0; b < count; b++) {
        const int choice = (int)batches->action[at + b];
        const float weight = batches->weight[at + b];
        float squares = 0, distance = 0;
        double value = 0;
        for (int c = 0; c < critics; c++) {
            const float q = given_of(tape, c, start + b)[choice], error = q - target[b];
            float *by = by_given(tape, c, start + b);
            squares += error * error, distance += fabsf(error), value += q;
            memset(by, 0, own->choices * sizeof *by);
            by[choice] = error * (weight * share);
        }
        batches->distance[at + b] = critics > 1 ? distance * 0.5f : distance;
        own->terms[start + b].critic_loss = weight * squares, own->terms[start + b].value = value;
    }
    for (int c = 0; c < critics; c++) run_back(tape, c, own->critics.back, start, count, NULL);
}

/* Let rows `start` .. go through the actor and the critics, and back through the actor alone. */
static void pass_actor_of_choices(
    const struct actor_critic *own, struct workspace *space, int64_t u, int64_t start, int count, float alpha
)
{
    const struct batches *batches = own->batches;
    const struct tape *tape = &own->actor_tape;
    struct weighed *weighed = &space->weighed;
    const float share = 1.0f / (float)batches->rows;
    const int wide = outputs_wide(own);
    const float *observation = batches->observation + (u * batches->rows + start) * own->row;
    float *by = by_given(tape, 0, start);
    run(tape, 0, own->actor.parameters, observation, own->row, start, count);
    weigh_and_judge(own, space, given_of(tape, 0, start), own->critics.parameters, observation, count);
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        vf loss = splat(0), logprob = splat(0);
        for (int j = 0; j < own->choices; j++) {
            const vf own_share = *lanes_of(weighed->share, j, first), log = *lanes_of(weighed->log, j, first);
            const vf pull = log * alpha - worth_of_choice(own, &space->critics, j, first, lanes);
            *lanes_of(weighed->pull, j, first) = pull;
            loss = j ? loss + own_share * pull : own_share * pull;
            logprob = j ? logprob + own_share * log : own_share * log;
        }
        for (int j = 0; j < own->choices; j++) { /* by softmax, whose shares always sum to 1 */
            const vf pull = *lanes_of(weighed->pull, j, first) - loss;
            write_column(
                *lanes_of(weighed->share, j, first) * pull * share, by + (size_t)first * wide + j, wide, lanes
            );
        }
        for (int i = 0; i < lanes; i++) {
            struct terms *terms = &own->terms[start + first + i];
            terms->actor_loss = loss[i], terms->logprob = logprob[i], terms->most = weighed->most[first + i];
        }
    }
    run_back(tape, 0, own->actor.back, start, count, NULL);
}

#endif
