/* Q-learning from replay. The policy chain outputs action values, or advantages if there is a value chain (dueling
 * networks, Wang et al. 2016). */

#ifndef PADDOCK_Q_LEARN_H
#define PADDOCK_Q_LEARN_H

#include "../descent.h"
#include "../network.h"

struct q_learner {
    struct network network;
    struct model model;
    struct descent descent;
};

/* Sums over a shard, in row order. */
struct q_sums {
    double loss, value, target;
};

struct q_work {
    struct q_learner *learner;
    const struct q_update *update;
    struct team team;
    struct q_sums sums[MAX_SHARDS];
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
    int failed = open_model(&learner->model, &learner->network, sparse);
    failed = failed || open_descent(&learner->descent, &learner->model.plan, 1);
    if (!failed) return learner;
    close_q(learner);
    return NULL;
}

static void load_q(struct q_learner *learner, const struct vectors *given) { load_descent(&learner->descent, given); }

static void save_q(const struct q_learner *learner, const struct vectors *onto)
{
    save_descent(&learner->descent, onto);
}

/* Return the legal action with the highest value, the first of equals. */
static int best_action(const struct values *values, int b, const float *output)
{
    const struct model *model = values->model;
    const float *legal = model->network->masked ? values->input + b * model->row + model->numbers : NULL;
    int best = 0;
    float top = !legal || legal[0] != 0 ? output[0] : LOWEST;
    for (int j = 1; j < model->outputs; j++)
        if ((!legal || legal[j] != 0) && output[j] > top) best = j, top = output[j];
    return best;
}

/* Return an action's value: the output, or V + A - mean A of a dueling network. */
static float q_value(const struct model *model, const float *output, const float *value, int action)
{
    if (!value) return output[action];
    float sum = output[0];
    for (int j = 1; j < model->outputs; j++) sum += output[j];
    return *value + (output[action] - sum / (float)model->outputs);
}

/* Load `count` rows from `first` on. */
static void take_block(
    struct values *values, int64_t *order, const float *rows, const struct sparse *sparse, int64_t first, int count
)
{
    const size_t row = values->model->row;
    memcpy(values->input, rows + first * row, count * row * sizeof *rows);
    for (int b = 0; b < count; b++) order[b] = first + b;
    values->pass.sparse = sparse, values->pass.order = order;
}

/* Compute TD targets, reward + discount * best next value, of `count` rows from `first` on. The next value is ignored
 * where the discount is 0. */
static void find_q_targets(
    const struct q_work *work, struct values *values, int64_t *order, int64_t first, int count, float *targets
)
{
    const struct q_update *update = work->update;
    const struct model *model = values->model;
    const struct descent *descent = &work->learner->descent;
    int best[BLOCK], wide, value_wide, bootstraps = 0;
    for (int b = 0; b < count; b++) {
        targets[b] = update->reward[first + b];
        bootstraps |= update->discount[first + b] != 0;
    }
    if (!bootstraps) return;
    take_block(values, order, update->next_observation, update->next_sparse, first, count);
    const float *output = chain_output(values, POLICY, &wide), *value = chain_output(values, VALUE, &value_wide);
    if (update->double_q) {
        network_forward(values, descent->parameters, count, 1);
        for (int b = 0; b < count; b++) best[b] = best_action(values, b, output + b * wide);
    }
    network_forward(values, descent->targets, count, 1);
    for (int b = 0; b < count; b++) {
        if (!update->double_q) best[b] = best_action(values, b, output + b * wide);
        const float q = q_value(model, output + b * wide, value ? value + b * value_wide : NULL, best[b]);
        if (update->discount[first + b] != 0) targets[b] += update->discount[first + b] * q;
    }
}

/* Replace outputs and values of `count` rows by the gradients of the mean loss. */
static void q_gradient(
    const struct q_update *update, const struct values *values, int64_t first, int count, const float *targets,
    float share, struct q_sums *sums
)
{
    const struct model *model = values->model;
    const float limit = update->huber;
    int wide, value_wide;
    float *output = chain_output(values, POLICY, &wide), *value = chain_output(values, VALUE, &value_wide);
    for (int b = 0; b < count; b++, output += wide) {
        const int action = update->action[first + b];
        const float weight = update->weight[first + b];
        const float q = q_value(model, output, value, action), error = q - targets[b];
        const float size = __builtin_fabsf(error);
        float loss = 0.5f * error * error, grad = error;
        if (limit >= 0 && size > limit) loss = limit * (size - 0.5f * limit), grad = error < 0 ? -limit : limit;
        sums->loss += weight * loss, sums->value += q, sums->target += targets[b];
        update->distance[first + b] = size;
        grad *= weight * share;
        const float others = value ? grad / (float)model->outputs : 0;
        for (int j = 0; j < model->outputs; j++) output[j] = (j == action ? grad : 0) - others;
        if (value) *value = grad, value += value_wide;
    }
}

/* Compute the gradient of rows first .. last - 1. */
static void learn_q_shard(struct q_work *work, struct values *values, int shard, int64_t first, int64_t last)
{
    const struct descent *descent = &work->learner->descent;
    const struct q_update *update = work->update;
    const float share = 1.0f / (float)update->rows;
    float *gradient = descent->gradient[shard], targets[BLOCK];
    int64_t order[BLOCK];
    clear_shard(descent, shard);
    values->pass.touched = descent->touched[shard];
    work->sums[shard] = (struct q_sums){0};
    for (int64_t start = first; start < last; start += BLOCK) {
        const int count = last - start < BLOCK ? (int)(last - start) : BLOCK;
        find_q_targets(work, values, order, start, count, targets);
        take_block(values, order, update->observation, update->sparse, start, count);
        network_forward(values, descent->parameters, count, 1);
        q_gradient(update, values, start, count, targets, share, &work->sums[shard]);
        network_backward(values, descent->back, count, gradient);
    }
}

static void learn_q(void *job, int member)
{
    struct q_work *work = job;
    const struct q_update *update = work->update;
    const struct adam adam = {update->epsilon, update->momentum_decay, update->variance_decay};
    const int shards = count_shards(update->rows, BLOCK);
    struct team *team = &work->team;
    struct values values;
    if (open_values(&values, &work->learner->model)) __atomic_store_n(&work->failed, 1, __ATOMIC_RELAXED);
    team_barrier(team, member);
    for (int64_t u = 0; u < update->updates && !work->failed; u++) {
        const int64_t first = u * update->rows;
        for (int p = member; p < shards; p += team->size)
            learn_q_shard(
                work, &values, p, first + shard_start(update->rows, shards, p),
                first + shard_start(update->rows, shards, p + 1)
            );
        const float norm = take_step(
            &work->learner->descent, team, member, shards, &adam, update->max_norm, update->rates[u],
            update->deviations[u], update->taus[u]
        );
        if (member == 0) {
            struct q_sums total = {0};
            for (int p = 0; p < shards; p++) {
                const struct q_sums *shard_sums = &work->sums[p];
                total.loss += shard_sums->loss, total.value += shard_sums->value, total.target += shard_sums->target;
            }
            double *report = update->report + Q_REPORTED * u, count = (double)update->rows;
            report[0] = total.loss / count, report[1] = total.value / count, report[2] = total.target / count;
            report[3] = norm;
        }
        if (!team_continue(team, member)) break;
    }
    close_values(&values);
}

static int update_q(struct q_learner *learner, const struct q_update *update)
{
    struct q_work work = {.learner = learner, .update = update};
    const int shards = count_shards(update->rows, BLOCK);
    if (open_shards(&learner->descent, shards)) return -1;
    run_team(&work.team, update->threads < shards ? update->threads : shards, learn_q, &work);
    return work.failed ? -1 : 0;
}

#endif
