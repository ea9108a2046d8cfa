/* Learning of action values at one width of lanes: Q learning from replay. The policy's chain gives the values of
 * actions, or, where there is a chain for the state's value too, their advantages (Wang et al. 2016). */

#ifndef PADDOCK_Q_LEARN_H
#define PADDOCK_Q_LEARN_H

#include "../descent.h"
#include "../network.h"

struct q_learner {
    struct network network;
    struct model model;
    struct descent descent;
};

/* Of a part of a minibatch, in the order of rows. */
struct q_sums {
    double loss, value, target;
};

struct q_work {
    struct q_learner *learner;
    const struct q_update *update;
    struct team team;
    struct q_sums sums[MOST_PARTS];
    int failed;
};

static void close_q(struct q_learner *learner)
{
    close_descent(&learner->descent);
    close_model(&learner->model);
    free(learner);
}

static struct q_learner *open_q(const struct network *network, int sparse)
{
    struct q_learner *learner = zeros(sizeof *learner);
    if (!learner) return NULL;
    learner->network = *network;
    if (!open_model(&learner->model, &learner->network, sparse) && !open_descent(&learner->descent, &learner->model.plan, 1))
        return learner;
    close_q(learner);
    return NULL;
}

static void load_q(struct q_learner *learner, const struct vectors *given) { load_descent(&learner->descent, given); }

static void save_q(const struct q_learner *learner, const struct vectors *onto)
{
    save_descent(&learner->descent, onto);
}

/* The legal action that is worth most: the first of equals. */
static int best_of(const struct values *values, int b, const float *output)
{
    const struct model *model = values->model;
    const float *legal = model->network->masked ? values->input + b * model->row + model->numbers : NULL;
    int best = 0;
    float top = !legal || legal[0] != 0 ? output[0] : LOWEST;
    for (int j = 1; j < model->outputs; j++)
        if ((!legal || legal[j] != 0) && output[j] > top) best = j, top = output[j];
    return best;
}

/* What an action is worth: what was given of it, or the value of the state and by how much it is above the mean. */
static float worth_of(const struct model *model, const float *output, const float *value, int action)
{
    if (!value) return output[action];
    float sum = output[0];
    for (int j = 1; j < model->outputs; j++) sum += output[j];
    return *value + (output[action] - sum / (float)model->outputs);
}

/* Let `count` rows from `first` on be what is computed. */
static void take_block(
    struct values *values, int64_t *order, const float *rows, const struct sparse *sparse, int64_t first, int count
)
{
    const size_t row = values->model->row;
    memcpy(values->input, rows + first * row, count * row * sizeof *rows);
    for (int b = 0; b < count; b++) order[b] = first + b;
    values->pass.sparse = sparse, values->pass.order = order;
}

/* The targets of `count` rows from `first` on: reward + discount * what the best next action is worth. Where the
 * discount is 0, that may be anything. */
static void find_q_targets(
    const struct q_work *work, struct values *values, int64_t *order, int64_t first, int count, float *targets
)
{
    const struct q_update *update = work->update;
    const struct model *model = values->model;
    const struct descent *descent = &work->learner->descent;
    int best[BLOCK], wide, value_wide, followed = 0;
    for (int b = 0; b < count; b++) {
        targets[b] = update->reward[first + b];
        followed |= update->discount[first + b] != 0;
    }
    if (!followed) return;
    take_block(values, order, update->following, update->following_sparse, first, count);
    const float *output = given_by(values, POLICY, &wide), *value = given_by(values, VALUE, &value_wide);
    if (update->double_q) {
        compute(values, descent->parameters, count, 1);
        for (int b = 0; b < count; b++) best[b] = best_of(values, b, output + b * wide);
    }
    compute(values, descent->targets, count, 1);
    for (int b = 0; b < count; b++) {
        if (!update->double_q) best[b] = best_of(values, b, output + b * wide);
        const float worth = worth_of(model, output + b * wide, value ? value + b * value_wide : NULL, best[b]);
        if (update->discount[first + b] != 0) targets[b] += update->discount[first + b] * worth;
    }
}

/* The gradients of `count` rows' part of a minibatch's mean loss by outputs and values, where those were. */
static void lose_q(
    const struct q_update *update, const struct values *values, int64_t first, int count, const float *targets,
    float share, struct q_sums *sums
)
{
    const struct model *model = values->model;
    const float limit = update->huber;
    int wide, value_wide;
    float *output = given_by(values, POLICY, &wide), *value = given_by(values, VALUE, &value_wide);
    for (int b = 0; b < count; b++, output += wide) {
        const int action = update->action[first + b];
        const float weight = update->weight[first + b];
        const float worth = worth_of(model, output, value, action), error = worth - targets[b];
        const float size = __builtin_fabsf(error);
        float loss = 0.5f * error * error, by = error;
        if (limit >= 0 && size > limit) loss = limit * (size - 0.5f * limit), by = error < 0 ? -limit : limit;
        sums->loss += weight * loss, sums->value += worth, sums->target += targets[b];
        update->distance[first + b] = size;
        by *= weight * share;
        const float others = value ? by / (float)model->outputs : 0;
        for (int j = 0; j < model->outputs; j++) output[j] = (j == action ? by : 0) - others;
        if (value) *value = by, value += value_wide;
    }
}

/* The gradient of rows first .. last - 1. */
static void learn_q_part(struct q_work *work, struct values *values, int part, int64_t first, int64_t last)
{
    const struct descent *descent = &work->learner->descent;
    const struct q_update *update = work->update;
    const float share = 1.0f / (float)update->rows;
    float *gradient = descent->gradient[part], targets[BLOCK];
    int64_t order[BLOCK];
    clear_part(descent, part);
    values->pass.touched = descent->touched[part];
    work->sums[part] = (struct q_sums){0};
    for (int64_t start = first; start < last; start += BLOCK) {
        const int count = last - start < BLOCK ? (int)(last - start) : BLOCK;
        find_q_targets(work, values, order, start, count, targets);
        take_block(values, order, update->observation, update->sparse, start, count);
        compute(values, descent->parameters, count, 1);
        lose_q(update, values, start, count, targets, share, &work->sums[part]);
        differentiate(values, descent->back, count, gradient);
    }
}

static void learn_q(void *job, int member)
{
    struct q_work *work = job;
    const struct q_update *update = work->update;
    const struct adam adam = {update->epsilon, update->momentum_decay, update->variance_decay};
    const int parts = count_parts(update->rows);
    struct team *team = &work->team;
    struct values values;
    if (open_values(&values, &work->learner->model)) __atomic_store_n(&work->failed, 1, __ATOMIC_RELAXED);
    meet(team, member);
    for (int64_t u = 0; u < update->updates && !work->failed; u++) {
        const int64_t first = u * update->rows;
        for (int p = member; p < parts; p += team->size)
            learn_q_part(
                work, &values, p, first + part_of(update->rows, parts, p), first + part_of(update->rows, parts, p + 1)
            );
        const float norm = take_step(
            &work->learner->descent, team, member, parts, &adam, update->max_norm, update->rates[u],
            update->deviations[u], update->taus[u]
        );
        if (member == 0) {
            struct q_sums total = {0};
            for (int p = 0; p < parts; p++) {
                const struct q_sums *own = &work->sums[p];
                total.loss += own->loss, total.value += own->value, total.target += own->target;
            }
            double *report = update->report + Q_REPORTED * u, count = (double)update->rows;
            report[0] = total.loss / count, report[1] = total.value / count, report[2] = total.target / count;
            report[3] = norm;
        }
        if (!stay(team, member)) break;
    }
    close_values(&values);
}

static int update_q(struct q_learner *learner, const struct q_update *update)
{
    struct q_work work = {.learner = learner, .update = update};
    const int parts = count_parts(update->rows);
    if (open_parts(&learner->descent, parts)) return -1;
    run_team(&work.team, update->threads < parts ? update->threads : parts, learn_q, &work);
    return work.failed ? -1 : 0;
}

#endif
