/* PPO: evaluation and updates of policy and value, compiled once per vector width. */

#include "offpolicy/actor_critic_update.h"
#include "descent.h"
#include "loss.h"
#include "lstm.h"
#include "offpolicy/q_learn.h"

struct work {
    const struct model *model;
    const struct update *update;
    struct team team;
    struct descent descent;
    struct sums sums[MAX_SHARDS];
    int failed;
};

static void gather_rows(const struct model *model, const float *observation, const int64_t *order, int count, float *to)
{
    for (int b = 0; b < count; b++)
        memcpy(to + (size_t)b * model->row, observation + order[b] * model->row, model->row * sizeof *to);
}

/* Compute the gradient of rows order[first .. last - 1]. */
static void learn_shard(
    struct work *work, struct values *values, struct rows *rows, int shard, int64_t first, int64_t last,
    const struct scale *scale
)
{
    const struct model *model = work->model;
    const struct update *update = work->update;
    const struct descent *descent = &work->descent;
    float *gradient = descent->gradient[shard];
    clear_shard(descent, shard);
    values->pass.sparse = update->sparse, values->pass.touched = descent->touched[shard];
    for (int j = 0; shard == 0 && j < model->network->log_stds; j++) gradient[j] = -update->entropy_coef;
    work->sums[shard] = (struct sums){0};
    for (int64_t start = first; start < last; start += BLOCK) {
        const int count = last - start < BLOCK ? (int)(last - start) : BLOCK;
        const int64_t *order = update->order + start;
        int wide, value_wide;
        gather_rows(model, update->observation, order, count, values->input);
        values->pass.order = order;
        network_forward(values, descent->parameters, count, 1);
        mask_outputs(values, count);
        float *output = chain_output(values, POLICY, &wide), *value = chain_output(values, VALUE, &value_wide);
        ppo_gradient(
            model, update, descent->parameters, order, count, scale, rows, output, wide, value, value_wide, gradient,
            &work->sums[shard]
        );
        network_backward(values, descent->back, count, gradient);
    }
}

static struct scale scale_of(const struct update *update, int64_t first, int64_t last)
{
    const int64_t count = last - first;
    struct scale scale = {0, 1, 1.0f / (float)count};
    if (!update->normalize_advantages || count < 2) return scale;
    double sum = 0, squares = 0;
    for (int64_t k = first; k < last; k++) sum += update->advantage[update->order[k]];
    const double mean = sum / (double)count;
    for (int64_t k = first; k < last; k++) {
        const double difference = update->advantage[update->order[k]] - mean;
        squares += difference * difference;
    }
    scale.mean = (float)mean;
    scale.deviation = (float)sqrt(squares / (double)(count - 1)) + 1e-8f;
    return scale;
}

static void report_losses(const struct work *work, int64_t minibatch, int shards, int64_t rows, float norm)
{
    struct sums total = {0};
    for (int p = 0; p < shards; p++) {
        const struct sums *shard_sums = &work->sums[p];
        total.policy += shard_sums->policy, total.value += shard_sums->value, total.entropy += shard_sums->entropy;
        total.divergence += shard_sums->divergence, total.clipped += shard_sums->clipped;
    }
    double *report = work->update->report + REPORTED * minibatch, count = (double)rows;
    report[0] = -total.policy / count, report[1] = 0.5 * total.value / count, report[2] = total.entropy / count;
    report[3] = total.divergence / count, report[4] = total.clipped / count, report[5] = norm;
}

static void learn_ppo(void *job, int member)
{
    struct work *work = job;
    const struct model *model = work->model;
    const struct update *update = work->update;
    const struct adam adam = {update->epsilon, update->momentum_decay, update->variance_decay};
    struct team *team = &work->team;
    struct values values;
    struct rows buffers;
    if (open_values(&values, model) | open_rows(&buffers, model)) __atomic_store_n(&work->failed, 1, __ATOMIC_RELAXED);
    team_barrier(team, member);
    for (int64_t m = 0; m < update->minibatches && !work->failed; m++) {
        const int64_t first = m ? update->ends[m - 1] : 0, rows = update->ends[m] - first;
        const int shards = count_shards(rows, BLOCK);
        const struct scale scale = scale_of(update, first, first + rows);
        for (int p = member; p < shards; p += team->size)
            learn_shard(
                work, &values, &buffers, p, first + shard_start(rows, shards, p),
                first + shard_start(rows, shards, p + 1), &scale
            );
        const float norm = take_step(
            &work->descent, team, member, shards, &adam, update->max_norm, update->rates[m], update->deviations[m], 0
        );
        if (member == 0) report_losses(work, m, shards, rows, norm);
        if (!team_continue(team, member)) break;
    }
    close_rows(&buffers);
    close_values(&values);
}

static int update_network(const struct network *network, const struct update *update)
{
    struct model model;
    if (open_model(&model, network, update->sparse != NULL)) return -1;
    struct work work = {.model = &model, .update = update};
    struct descent *descent = &work.descent;
    const struct vectors vectors = {
        .parameters = update->parameters, .momentum = update->momentum, .variance = update->variance,
    };
    int shards = 1;
    for (int64_t m = 0; m < update->minibatches; m++) {
        const int count = count_shards(update->ends[m] - (m ? update->ends[m - 1] : 0), BLOCK);
        if (count > shards) shards = count;
    }
    work.failed = open_descent(descent, &model.plan, 0) || open_shards(descent, shards);
    if (!work.failed) {
        load_descent(descent, &vectors);
        run_team(&work.team, update->threads < shards ? update->threads : shards, learn_ppo, &work);
    }
    if (!work.failed) save_descent(descent, &vectors);
    close_descent(descent);
    close_model(&model);
    return work.failed ? -1 : 0;
}

struct evaluator {
    const struct model *model;
    const struct evaluation *evaluation;
    struct team team;
    float *parameters;
    int64_t next; /* next unprocessed row */
    int failed;
};

/* Compute log-probabilities of `count` actions from the outputs of their rows. */
static void action_logprobs(
    const struct evaluator *evaluator, struct rows *rows, const float *outputs, int wide, const float *action,
    int count, float *logprob
)
{
    const struct model *model = evaluator->model;
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        const float *actions[LANES];
        for (int i = 0; i < lanes; i++) actions[i] = action + (size_t)(first + i) * model->network->components;
        take_lanes(model, rows, outputs + (size_t)first * wide, wide, actions, lanes);
        vf entropy, logs = log_probability(model->network, evaluator->parameters, rows, &entropy);
        memcpy(logprob + first, &logs, lanes * sizeof *logprob);
    }
}

static void evaluate_blocks(void *job, int member)
{
    (void)member;
    struct evaluator *evaluator = job;
    const struct model *model = evaluator->model;
    const struct evaluation *evaluation = evaluator->evaluation;
    struct values values;
    struct rows rows;
    int failed = open_values(&values, model) | open_rows(&rows, model);
    int64_t order[BLOCK];
    values.pass.sparse = evaluation->sparse, values.pass.order = order;
    if (failed) __atomic_store_n(&evaluator->failed, 1, __ATOMIC_RELAXED);
    for (int64_t first; !failed;) {
        first = __atomic_fetch_add(&evaluator->next, BLOCK, __ATOMIC_RELAXED);
        if (first >= evaluation->rows) break;
        const int count = evaluation->rows - first < BLOCK ? (int)(evaluation->rows - first) : BLOCK;
        for (int b = 0; b < count; b++) order[b] = first + b;
        gather_rows(model, evaluation->observation, order, count, values.input);
        network_forward(&values, evaluator->parameters, count, evaluation->action != NULL);
        if (evaluation->action) mask_outputs(&values, count);
        int wide;
        const float *value = chain_output(&values, VALUE, &wide), *output;
        for (int b = 0; b < count; b++) evaluation->value[first + b] = value[b * wide];
        output = chain_output(&values, POLICY, &wide);
        if (evaluation->action)
            action_logprobs(
                evaluator, &rows, output, wide, evaluation->action + first * model->network->components, count,
                evaluation->logprob + first
            );
    }
    close_rows(&rows);
    close_values(&values);
}

static int evaluate_network(const struct network *network, const struct evaluation *evaluation)
{
    struct model model;
    if (open_model(&model, network, evaluation->sparse != NULL)) return -1;
    float *parameters = zeros(model.plan.parameters * sizeof(float));
    struct evaluator evaluator = {.model = &model, .evaluation = evaluation, .parameters = parameters};
    evaluator.failed = !parameters;
    if (!evaluator.failed) {
        const int64_t blocks = (evaluation->rows + BLOCK - 1) / BLOCK;
        pack(&model.plan, evaluation->parameters, parameters);
        const int threads = evaluation->threads < blocks ? evaluation->threads : (int)blocks;
        run_team(&evaluator.team, threads, evaluate_blocks, &evaluator);
    }
    free(parameters);
    close_model(&model);
    return evaluator.failed ? -1 : 0;
}

static const struct dense_set this_set = {
    SET_NAME, evaluate_network, update_network,
    open_q, close_q, load_q, save_q, update_q,
    open_actor_critic, close_actor_critic, load_actor_critic, save_actor_critic, update_actor_critic,
    lstm_run, lstm_tape,
};
const struct dense_set *const SET = &this_set;
