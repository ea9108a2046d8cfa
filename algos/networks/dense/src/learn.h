/* Evaluation and learning of policies and values at one width of lanes: PPO. */

#include "offpolicy/alternate.h"
#include "descent.h"
#include "loss.h"
#include "lstm.h"
#include "offpolicy/q_learn.h"

struct work {
    const struct model *model;
    const struct update *update;
    struct team team;
    struct descent descent;
    struct sums sums[MOST_PARTS];
    int failed;
};

struct desk { /* of one thread */
    struct values values;
    struct rows rows;
};

static int open_desk(struct desk *desk, const struct model *model)
{
    return open_values(&desk->values, model) | open_rows(&desk->rows, model);
}

static void close_desk(struct desk *desk)
{
    close_values(&desk->values);
    close_rows(&desk->rows);
}

static void take_rows(const struct model *model, const float *observation, const int64_t *order, int count, float *to)
{
    for (int b = 0; b < count; b++)
        memcpy(to + (size_t)b * model->row, observation + order[b] * model->row, model->row * sizeof *to);
}

/* The gradient of rows first .. last - 1 of the order. */
static void learn_part(
    struct work *work, struct desk *desk, int part, int64_t first, int64_t last, const struct scale *scale
)
{
    const struct model *model = work->model;
    const struct update *update = work->update;
    struct values *values = &desk->values;
    const struct descent *descent = &work->descent;
    float *gradient = descent->gradient[part];
    clear_part(descent, part);
    values->pass.sparse = update->sparse, values->pass.touched = descent->touched[part];
    for (int j = 0; part == 0 && j < model->network->log_stds; j++) gradient[j] = -update->entropy_coef;
    work->sums[part] = (struct sums){0};
    for (int64_t start = first; start < last; start += BLOCK) {
        const int count = last - start < BLOCK ? (int)(last - start) : BLOCK;
        const int64_t *order = update->order + start;
        int wide, value_wide;
        take_rows(model, update->observation, order, count, values->input);
        values->pass.order = order;
        compute(values, descent->parameters, count, 1);
        forbid(values, count);
        float *output = given_by(values, POLICY, &wide), *value = given_by(values, VALUE, &value_wide);
        lose(
            model, update, descent->parameters, order, count, scale, &desk->rows, output, wide, value, value_wide,
            gradient, &work->sums[part]
        );
        differentiate(values, descent->back, count, gradient);
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

static void report_on(const struct work *work, int64_t minibatch, int parts, int64_t rows, float norm)
{
    struct sums total = {0};
    for (int p = 0; p < parts; p++) {
        const struct sums *own = &work->sums[p];
        total.policy += own->policy, total.value += own->value, total.entropy += own->entropy;
        total.divergence += own->divergence, total.clipped += own->clipped;
    }
    double *report = work->update->report + REPORTED * minibatch, count = (double)rows;
    report[0] = -total.policy / count, report[1] = 0.5 * total.value / count, report[2] = total.entropy / count;
    report[3] = total.divergence / count, report[4] = total.clipped / count, report[5] = norm;
}

static void learn(void *job, int member)
{
    struct work *work = job;
    const struct model *model = work->model;
    const struct update *update = work->update;
    const struct adam adam = {update->epsilon, update->momentum_decay, update->variance_decay};
    struct team *team = &work->team;
    struct desk desk;
    if (open_desk(&desk, model)) __atomic_store_n(&work->failed, 1, __ATOMIC_RELAXED);
    meet(team, member);
    for (int64_t m = 0; m < update->minibatches && !work->failed; m++) {
        const int64_t first = m ? update->ends[m - 1] : 0, rows = update->ends[m] - first;
        const int parts = count_parts(rows);
        const struct scale scale = scale_of(update, first, first + rows);
        for (int p = member; p < parts; p += team->size)
            learn_part(work, &desk, p, first + part_of(rows, parts, p), first + part_of(rows, parts, p + 1), &scale);
        const float norm = take_step(
            &work->descent, team, member, parts, &adam, update->max_norm, update->rates[m], update->deviations[m], 0
        );
        if (member == 0) report_on(work, m, parts, rows, norm);
        if (!stay(team, member)) break;
    }
    close_desk(&desk);
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
    int parts = 1;
    for (int64_t m = 0; m < update->minibatches; m++) {
        int own = count_parts(update->ends[m] - (m ? update->ends[m - 1] : 0));
        if (own > parts) parts = own;
    }
    work.failed = open_descent(descent, &model.plan, 0) || open_parts(descent, parts);
    if (!work.failed) {
        load_descent(descent, &vectors);
        run_team(&work.team, update->threads < parts ? update->threads : parts, learn, &work);
    }
    if (!work.failed) save_descent(descent, &vectors);
    close_descent(descent);
    close_model(&model);
    return work.failed ? -1 : 0;
}

struct looking {
    const struct model *model;
    const struct evaluation *evaluation;
    struct team team;
    float *parameters;
    int64_t next; /* the first row that nobody has taken */
    int failed;
};

/* Log-probabilities of `count` actions under the outputs of their rows. */
static void judge(
    const struct looking *looking, struct rows *rows, const float *outputs, int wide, const float *action, int count,
    float *logprob
)
{
    const struct model *model = looking->model;
    for (int first = 0; first < count; first += LANES) {
        const int lanes = count - first < LANES ? count - first : LANES;
        const float *actions[LANES];
        for (int i = 0; i < lanes; i++) actions[i] = action + (size_t)(first + i) * model->network->components;
        take_lanes(model, rows, outputs + (size_t)first * wide, wide, actions, lanes);
        vf entropy, logs = log_probability(model->network, looking->parameters, rows, &entropy);
        memcpy(logprob + first, &logs, lanes * sizeof *logprob);
    }
}

static void look(void *job, int member)
{
    (void)member;
    struct looking *looking = job;
    const struct model *model = looking->model;
    const struct evaluation *evaluation = looking->evaluation;
    struct values values;
    struct rows rows;
    int failed = open_values(&values, model) | open_rows(&rows, model);
    int64_t order[BLOCK];
    values.pass.sparse = evaluation->sparse, values.pass.order = order;
    if (failed) __atomic_store_n(&looking->failed, 1, __ATOMIC_RELAXED);
    for (int64_t first; !failed;) {
        first = __atomic_fetch_add(&looking->next, BLOCK, __ATOMIC_RELAXED);
        if (first >= evaluation->rows) break;
        const int count = evaluation->rows - first < BLOCK ? (int)(evaluation->rows - first) : BLOCK;
        for (int b = 0; b < count; b++) order[b] = first + b;
        take_rows(model, evaluation->observation, order, count, values.input);
        compute(&values, looking->parameters, count, evaluation->action != NULL);
        if (evaluation->action) forbid(&values, count);
        int wide;
        const float *value = given_by(&values, VALUE, &wide), *output;
        for (int b = 0; b < count; b++) evaluation->value[first + b] = value[b * wide];
        output = given_by(&values, POLICY, &wide);
        if (evaluation->action)
            judge(
                looking, &rows, output, wide, evaluation->action + first * model->network->components, count,
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
    struct looking looking = {.model = &model, .evaluation = evaluation, .parameters = parameters};
    looking.failed = !parameters;
    if (!looking.failed) {
        const int64_t blocks = (evaluation->rows + BLOCK - 1) / BLOCK;
        take_in(&model.plan, evaluation->parameters, parameters);
        run_team(&looking.team, evaluation->threads < blocks ? evaluation->threads : (int)blocks, look, &looking);
    }
    free(parameters);
    close_model(&model);
    return looking.failed ? -1 : 0;
}

static const struct dense_set own_set = {
    SET_NAME, evaluate_network, update_network,
    open_q, close_q, load_q, save_q, update_q,
    open_actor_critic, close_actor_critic, load_actor_critic, save_actor_critic, update_actor_critic,
    lstm_run, lstm_tape,
};
const struct dense_set *const SET = &own_set;
